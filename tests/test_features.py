"""Columns become standardised terms, and what is no number is refused by name."""

import datetime
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sknimo.exceptions import DataWarning
from sknimo.features import (
    FeatureMap,
    Linear,
    check_finite,
    fit_features,
    fit_linear,
    is_missing,
    read_table,
    read_vector,
)

RTOL = 1e-13  # float64: only the order of summation differs

N_ROWS = 50


@pytest.fixture
def table():
    return np.random.default_rng(0).normal([1.0, -2.0, 30.0], [1, 5, 0.1], (N_ROWS, 3))


def fit(table, weight=None, names=None):
    names = [f"x{j}" for j in range(table.shape[1])] if names is None else names
    weight = np.ones(len(table)) if weight is None else np.asarray(weight, float)
    return fit_features(table, names, weight)


class TestScaling:
    def test_reference_and_scale_are_mean_and_standard_deviation(self, table):
        features = fit(table)
        assert features.reference == pytest.approx(table.mean(0), rel=RTOL)
        assert features.unit == pytest.approx(1 / table.std(0), rel=RTOL)

    def test_terms_have_mean_zero_and_unit_variance(self, table):
        terms = fit(table).terms(table)
        assert terms.mean(0) == pytest.approx(np.zeros(3), abs=RTOL)
        assert terms.std(0) == pytest.approx(np.ones(3), rel=RTOL)

    def test_integer_weights_count_rows(self, table):
        weight = np.random.default_rng(1).integers(1, 4, N_ROWS)
        weighted = fit(table, weight)
        repeated = fit(np.repeat(table, weight, axis=0))
        assert weighted.reference == pytest.approx(repeated.reference, rel=RTOL)
        assert weighted.unit == pytest.approx(repeated.unit, rel=RTOL)

    def test_the_unit_of_weights_does_not_matter(self, table):
        weight = np.random.default_rng(1).random(N_ROWS)
        small, large = fit(table, 1e-200 * weight), fit(table, 1e200 * weight)
        assert small.reference == pytest.approx(large.reference, rel=RTOL)
        assert small.unit == pytest.approx(large.unit, rel=RTOL)

    @pytest.mark.parametrize("offset", [1e6, -1e8, 1e12])
    def test_an_offset_does_not_change_the_terms(self, table, offset):
        moved = table + offset
        exact = moved - offset  # what is left of the column after rounding
        terms = fit(moved).terms(moved)
        assert terms == pytest.approx(fit(exact).terms(exact), abs=1e-12)

    def test_terms_are_zero_at_a_reference_that_a_float_cannot_hold(self, table):
        features = fit(table + 1e12)
        assert any(basis.residue for basis in features.bases)
        assert not features.terms(features.reference[None, :]).any()

    def test_ordinary_columns_need_no_residue(self, table):
        assert not any(basis.residue for basis in fit(table).bases)

    @pytest.mark.parametrize("factor", [1e-290, 1e-12, 1e12, 1e300])
    def test_units_do_not_change_the_terms(self, table, factor):
        scaled = table * factor
        terms = fit(scaled).terms(scaled)
        assert np.isfinite(terms).all()
        assert terms == pytest.approx(fit(table).terms(table), rel=1e-10, abs=1e-10)

    def test_terms_and_inputs_are_exactly_zero_at_the_reference(self, table):
        features = fit(table * 1e6 + 1e8)
        at = features.reference[None, :]
        assert not features.terms(at).any()
        assert not features.inputs(at).any()

    def test_fitting_leaves_the_table_alone(self, table):
        before = table.copy()
        table.flags.writeable = False
        features = fit(table)
        features.terms(table)
        assert np.array_equal(table, before)


class TestConstantColumns:
    @pytest.mark.parametrize("value", [0.0, 7.0, -1e300, 0.1, 1e-310])
    def test_a_constant_column_is_reported_and_gets_no_terms(self, table, value):
        table[:, 1] = value
        with pytest.warns(DataWarning, match="Constant column 'dose'"):
            features = fit(table, names=["age", "dose", "size"])
        assert features.term_feature.tolist() == [0, 2]
        assert features.terms(table).shape == (N_ROWS, 2)
        assert features.reference[1] == pytest.approx(value)

    def test_rounding_noise_around_a_large_value_is_constant(self, table):
        table[:, 1] = 0.1 * 3e8
        table[::2, 1] = np.nextafter(0.1 * 3e8, 1e9)
        with pytest.warns(DataWarning, match="x1"):
            assert fit(table).bases[1].scale == 0

    def test_a_single_deviating_row_is_not_constant(self, table):
        table[:, 1] = 0.0
        table[3, 1] = 1e-30
        assert fit(table).bases[1].scale > 0

    def test_spread_below_denormals_is_constant(self, table):
        table[:, 1] *= 1e-305
        with pytest.warns(DataWarning, match="x1"):
            assert fit(table).bases[1].scale == 0

    def test_many_constant_columns_are_counted(self):
        with pytest.warns(DataWarning, match="and 3 more"):
            features = fit(np.ones((4, 8)))
        assert features.terms(np.ones((4, 8))).shape == (4, 0)
        assert features.unit.shape == (0,)

    def test_the_effect_of_a_constant_column_is_zero(self, table):
        table[:, 1] = 7.0
        with pytest.warns(DataWarning):
            features = fit(table)
        assert features.per_feature(np.array([2.0, 3.0])).tolist() == [2.0, 0.0, 3.0]


class TestGroups:
    @dataclass(frozen=True)
    class Curve:
        """A basis of two columns, as splines and categories will be."""

        reference: float
        n_terms: int = 2

        def terms(self, x):
            x = x - self.reference
            return np.column_stack([x, x**2])

        def unit(self):
            return np.array([1.0, 0.0])

    @pytest.fixture
    def features(self):
        bases = (Linear(1.0, 2.0), self.Curve(3.0), Linear(0.0, 0.0), Linear(0.0, 0.5))
        return FeatureMap(("a", "b", "c", "d"), bases)

    def test_terms_know_their_feature(self, features):
        assert features.n_features == 4
        assert features.term_feature.tolist() == [0, 1, 1, 3]
        assert features.input_feature.tolist() == [0, 1, 1, 3]
        assert features.unit.tolist() == [0.5, 1.0, 0.0, 2.0]

    def test_terms_stand_side_by_side(self, features):
        row = np.array([[3.0, 5.0, 9.0, 1.0]])
        assert features.terms(row).tolist() == [[1.0, 2.0, 4.0, 2.0]]

    def test_contributions_of_a_group_are_summed(self, features):
        per_term = np.array([[1.0, 10.0, 100.0, 5.0], [2.0, 0.0, 1.0, 0.0]])
        assert features.per_feature(per_term).tolist() == [
            [1.0, 110.0, 0.0, 5.0],
            [2.0, 1.0, 0.0, 0.0],
        ]


class TestReadingFrames:
    NUMBERS = (3, 1, 4, 1, 5)
    FLAGS = (True, False, True, True, False)

    PANDAS = {
        "int64": pd.Series(NUMBERS),
        "uint8": pd.Series(NUMBERS, dtype="uint8"),
        "float32": pd.Series(NUMBERS, dtype="float32"),
        "Int64": pd.Series(NUMBERS, dtype="Int64"),
        "Float64": pd.Series(NUMBERS, dtype="Float64"),
        "arrow": pd.Series(NUMBERS, dtype="int64[pyarrow]"),
        "object": pd.Series(NUMBERS, dtype=object),
    }
    PANDAS_FLAGS = {
        "bool": pd.Series(FLAGS),
        "boolean": pd.Series(FLAGS, dtype="boolean"),
        "object": pd.Series(FLAGS, dtype=object),
    }
    POLARS = {
        "Int64": pl.Series(NUMBERS),
        "UInt8": pl.Series(NUMBERS, dtype=pl.UInt8),
        "Float32": pl.Series(NUMBERS, dtype=pl.Float32),
        "Decimal": pl.Series(NUMBERS).cast(pl.Decimal(10, 2)),
    }

    @staticmethod
    def check(frame, expected):
        values = read_table(frame)
        assert values.dtype == np.float64
        assert values.tolist() == [[float(value), 0.5] for value in expected]

    @pytest.mark.parametrize("kind", PANDAS)
    def test_pandas_numbers_become_floats(self, kind):
        self.check(pd.DataFrame({"a": self.PANDAS[kind], "b": 0.5}), self.NUMBERS)

    @pytest.mark.parametrize("kind", PANDAS_FLAGS)
    def test_pandas_flags_become_floats(self, kind):
        self.check(pd.DataFrame({"a": self.PANDAS_FLAGS[kind], "b": 0.5}), self.FLAGS)

    @pytest.mark.parametrize("kind", POLARS)
    def test_polars_numbers_become_floats(self, kind):
        column = self.POLARS[kind]
        self.check(pl.DataFrame({"a": column, "b": [0.5] * 5}), self.NUMBERS)

    def test_polars_flags_become_floats(self):
        self.check(pl.DataFrame({"a": self.FLAGS, "b": [0.5] * 5}), self.FLAGS)

    def test_arrow_tables_are_read(self):
        self.check(pa.table({"a": self.NUMBERS, "b": [0.5] * 5}), self.NUMBERS)

    def test_integer_column_names_are_read(self):
        self.check(pd.DataFrame({0: self.NUMBERS, 1: 0.5}), self.NUMBERS)

    def test_duplicate_column_names_are_refused_by_name(self):
        frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["dose", "age", "dose"])
        with pytest.raises(ValueError, match="'dose' 2 times"):
            read_table(frame)

    def test_arrays_and_lists_pass_untouched(self):
        for values in (np.eye(2), [[1.0, 2.0]], np.eye(2, dtype="f4")):
            assert read_table(values) is values

    def test_object_arrays_of_numbers_become_floats(self):
        values = read_table(np.array([[1, 2.5], [True, -3]], dtype=object))
        assert values.dtype == np.float64
        assert values.tolist() == [[1.0, 2.5], [1.0, -3.0]]


def pandas_frame(column):
    return pd.DataFrame({"age": range(len(column)), "dose": column})


def polars_frame(column):
    return pl.DataFrame({"age": range(len(column)), "dose": column})


class TestRefusals:
    DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
    TEXT = ("low", "high", "low")
    ENCODE = r"Column 'dose' .*not numbers\..*OneHotEncoder"
    DATES = r"Column 'dose' holds dates or times.* days since"

    @pytest.mark.parametrize(
        "frame",
        [
            pandas_frame(pd.Series(TEXT)),
            pandas_frame(pd.Series(TEXT, dtype=object)),
            pandas_frame(pd.Series(TEXT, dtype="category")),
            pandas_frame(pd.Series([1, 2, 1], dtype="category")),
            pandas_frame(pd.Series([1, "low", 2], dtype=object)),
            pandas_frame(pd.Series([1, "2", 2], dtype=object)),
            pandas_frame(pd.Series([1 + 1j, 2, 3])),
            polars_frame(pl.Series(TEXT)),
            polars_frame(pl.Series(TEXT, dtype=pl.Categorical)),
            polars_frame(pl.Series(TEXT, dtype=pl.Enum(["low", "high"]))),
            polars_frame(pl.Series([[1], [2], [3]])),
        ],
        ids=[
            "pandas str",
            "pandas object",
            "pandas category",
            "pandas numeric category",
            "pandas mixed",
            "pandas numbers and digits",
            "pandas complex",
            "polars str",
            "polars categorical",
            "polars enum",
            "polars list",
        ],
    )
    def test_columns_that_are_not_numbers_are_refused_with_a_remedy(self, frame):
        with pytest.raises(ValueError, match=self.ENCODE):
            read_table(frame)

    @pytest.mark.parametrize(
        "frame",
        [
            pandas_frame(pd.to_datetime(DAYS)),
            pandas_frame(pd.to_datetime(DAYS).tz_localize("UTC")),
            pandas_frame(pd.to_timedelta([1, 2, 3], unit="D")),
            polars_frame(pl.Series(DAYS)),
            polars_frame(pl.Series([datetime.timedelta(day) for day in (1, 2, 3)])),
            polars_frame(pl.Series([datetime.time(hour) for hour in (1, 2, 3)])),
        ],
        ids=[
            "pandas datetime",
            "pandas datetime with zone",
            "pandas timedelta",
            "polars date",
            "polars duration",
            "polars time",
        ],
    )
    def test_dates_and_times_are_refused_with_a_remedy(self, frame):
        with pytest.raises(TypeError, match=self.DATES):
            read_table(frame)

    def test_dates_among_objects_are_refused_by_column_and_row(self):
        frame = pandas_frame(pd.Series([1.0, self.DAYS[0], 2.0], dtype=object))
        with pytest.raises(TypeError, match="Column 'dose' holds date at row 1"):
            read_table(frame)

    @pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
    def test_arrays_of_dates_are_refused(self, kind):
        with pytest.raises(TypeError, match="dates or times.* days since"):
            read_table(np.ones((2, 2)).astype(kind))

    @pytest.mark.parametrize("kind", ["U5", "S5"])
    def test_arrays_of_strings_are_refused_even_when_they_spell_numbers(self, kind):
        with pytest.raises(ValueError, match="X holds strings.*OneHotEncoder"):
            read_table(np.ones((2, 2)).astype(kind))

    def test_strings_in_object_arrays_are_refused_by_column_and_row(self):
        values = np.array([[1, 2], [3, "high"]], dtype=object)
        with pytest.raises(ValueError, match="Column 'x1' holds 'high' at row 1"):
            read_table(values)

    @pytest.mark.parametrize(
        "column",
        [
            pd.Series([1.0, 2.0, np.nan, np.nan]),
            pd.Series([1, 2, None, None], dtype="Int64"),
            pd.Series([1, 2, None, None], dtype="Float64"),
            pd.Series([True, False, None, None], dtype="boolean"),
            pd.Series([1, 2, None, None], dtype="int64[pyarrow]"),
            pd.Series([1, 2, pd.NA, pd.NA], dtype=object),
            pd.Series([1, 2, None, None], dtype=object),
            pl.Series([1, 2, None, None]),
            pl.Series([True, False, None, None]),
        ],
        ids=lambda column: f"{type(column).__module__.split('.')[0]} {column.dtype}",
    )
    def test_missing_values_are_refused_by_column_and_first_row(self, column):
        frame = (polars_frame if isinstance(column, pl.Series) else pandas_frame)(
            column
        )
        with pytest.raises(ValueError, match=r"'dose' .*NaN.* row 2\..*impute"):
            read_table(frame)

    @pytest.mark.parametrize("missing", [pd.NA, None, np.nan])
    def test_missing_objects_in_arrays_are_refused_by_column_and_row(self, missing):
        values = np.array([[1, 2], [3, missing]], dtype=object)
        with pytest.raises(ValueError, match=r"'x1' .*NaN.* row 1\."):
            read_table(values)

    @pytest.mark.parametrize(
        ("value", "kind"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")]
    )
    def test_values_that_are_not_finite_are_refused(self, value, kind):
        table = np.zeros((5, 3))
        table[3:, 1] = value
        table[4, 1] = -np.inf
        with pytest.raises(ValueError, match=rf"'dose' .*{kind}.* row 3\."):
            check_finite(table, ["age", "dose", "size"])

    def test_a_sum_that_overflows_is_no_reason_to_refuse(self):
        check_finite(np.full((5, 2), 1.7e308), ["a", "b"])


class TestReadingVectors:
    @pytest.mark.parametrize(
        "values",
        [
            [1, 2, 3],
            (1.0, 2.0, 3.0),
            np.array([1, 2, 3], dtype=">i4"),
            np.array([1, 2, 3], dtype=object),
            pd.Series([1, 2, 3], index=[7, 8, 9]),
            pd.Series([1, 2, 3], dtype="Int64"),
            pl.Series([1, 2, 3]),
        ],
        ids=["list", "tuple", "big-endian", "object", "pandas", "Int64", "polars"],
    )
    def test_numbers_become_a_new_float_array(self, values):
        read = read_vector(values, "offset")
        assert read.dtype == np.dtype("f8")
        assert read.tolist() == [1.0, 2.0, 3.0]
        assert not np.shares_memory(read, np.asarray(values))

    @pytest.mark.parametrize(
        "values",
        [
            [1.0, None, 3.0],
            pd.Series([1, pd.NA, 3], dtype="Int64"),
            pd.Series([1, pd.NA, 3], dtype=object),
            pl.Series([1, None, 3]),
        ],
        ids=["list", "Int64", "object", "polars"],
    )
    def test_missing_values_become_nan(self, values):
        read = read_vector(values, "offset")
        assert np.isnan(read).tolist() == [False, True, False]

    @pytest.mark.parametrize("bad", ["high", "2", b"2", [2], {}])
    def test_what_is_no_number_is_refused_by_row(self, bad):
        values = np.empty(3, dtype=object)
        values[:] = [1.0, bad, 3.0]
        with pytest.raises(ValueError, match="offset must hold numbers, row 1 has"):
            read_vector(values, "offset")

    def test_a_bare_string_is_refused(self):
        with pytest.raises(ValueError, match="sample_weight must hold numbers"):
            read_vector("balanced", "sample_weight")

    def test_dates_and_complex_numbers_are_refused(self):
        with pytest.raises(TypeError, match="y holds dates or times"):
            read_vector(np.array(["2020-01-01"], dtype="M8[D]"), "y")
        with pytest.raises(ValueError, match="Complex data not supported: y"):
            read_vector(np.array([1j]), "y")

    def test_missing_is_none_na_and_nan(self):
        missing = (None, pd.NA, float("nan"), np.float32("nan"))
        assert all(is_missing(value) for value in missing)
        assert not any(is_missing(value) for value in (0, "", "nan", np.inf, False))


def test_a_target_is_measured_like_a_column():
    values = np.array([1.0, 2.0, 6.0])
    spread = fit_linear(values, np.ones(3))
    assert spread.reference == pytest.approx(3.0)
    assert spread.scale == pytest.approx(values.std())
