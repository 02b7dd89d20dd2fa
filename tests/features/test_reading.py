"""Frames and arrays become numbers; what is no number is refused by name and row."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sknimo import DataWarning
from sknimo.features import (
    Table,
    check_finite,
    check_new,
    drop_unused_levels,
    encode_table,
    fit_features,
    is_missing,
    read_table,
    read_vector,
)


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
        table = read_table(frame)
        assert table.levels is None
        assert table.values.dtype == np.float64
        assert table.values.tolist() == [[float(value), 0.5] for value in expected]

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

    @pytest.mark.parametrize("gap", [False, True])
    def test_integers_beyond_floats_are_rounded_alike_everywhere(self, gap):
        numbers = [2**63 + 1, 2**53 + 1, 7, None if gap else 8]
        expected = [float(2**63), float(2**53), 7.0, np.nan if gap else 8.0]
        column = pa.array(numbers, pa.uint64())
        arrow = pa.table({"x": column})
        frames = [arrow, pl.from_arrow(arrow)]
        frames += [pd.DataFrame({"x": pd.array(numbers, "UInt64")})]
        frames += [pd.DataFrame({"x": pd.array(column, "uint64[pyarrow]")})]
        for frame in frames:
            read = read_table(frame, admit_missing=True).values[:, 0]
            assert np.array_equal(read, expected, equal_nan=True)

    def test_integer_column_names_are_read(self):
        self.check(pd.DataFrame({0: self.NUMBERS, 1: 0.5}), self.NUMBERS)

    def test_duplicate_column_names_are_refused_by_name(self):
        frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["dose", "age", "dose"])
        with pytest.raises(ValueError, match="'dose' 2 times"):
            read_table(frame)

    def test_arrays_and_lists_pass_untouched(self):
        for values in (np.eye(2), [[1.0, 2.0]], np.eye(2, dtype="f4")):
            assert read_table(values).values is values

    def test_object_arrays_of_numbers_become_floats(self):
        values = read_table(np.array([[1, 2.5], [True, -3]], dtype=object)).values
        assert values.dtype == np.float64
        assert values.tolist() == [[1.0, 2.5], [1.0, -3.0]]


def pandas_frame(column):
    return pd.DataFrame({"age": range(len(column)), "dose": column})


def polars_frame(column):
    return pl.DataFrame({"age": range(len(column)), "dose": column})


def arrow_frame(column):
    return pa.table({"age": range(len(column)), "dose": column})


TEXT = ("low", "high", "low", "mid")
ORDER = ("low", "mid", "high", "never")


class TestLevels:
    SORTED = (1.0, 0.0, 1.0, 2.0)
    OWN_ORDER = (0.0, 2.0, 0.0, 1.0)

    FRAMES = {
        "pandas str": pandas_frame(pd.Series(TEXT)),
        "pandas object": pandas_frame(pd.Series(TEXT, dtype=object)),
        "pandas string": pandas_frame(pd.Series(TEXT, dtype="string")),
        "pandas arrow": pandas_frame(pd.Series(TEXT, dtype="string[pyarrow]")),
        "pandas category": pandas_frame(pd.Categorical(TEXT, ORDER)),
        "polars str": polars_frame(pl.Series(TEXT)),
        "polars categorical": polars_frame(pl.Series(TEXT, dtype=pl.Categorical)),
        "arrow": arrow_frame(pa.array(TEXT)),
        "arrow dictionary": arrow_frame(pa.array(TEXT).dictionary_encode()),
    }
    ORDERED = {
        "pandas ordered": pandas_frame(pd.Categorical(TEXT, ORDER, ordered=True)),
        "polars enum": polars_frame(pl.Series(TEXT, dtype=pl.Enum(ORDER))),
    }

    @pytest.mark.parametrize("kind", FRAMES)
    def test_text_becomes_codes_of_sorted_levels(self, kind):
        table = read_table(self.FRAMES[kind])
        assert table.levels == (None, ("high", "low", "mid"))
        assert tuple(table.values[:, 1]) == self.SORTED

    @pytest.mark.parametrize("kind", ORDERED)
    def test_ordered_levels_keep_their_order_and_unused_ones_are_forgotten(self, kind):
        table = read_table(self.ORDERED[kind])
        assert table.levels == (None, ("low", "mid", "high"))
        assert tuple(table.values[:, 1]) == self.OWN_ORDER

    @pytest.mark.parametrize(
        "column",
        [
            pd.Series([3, 1, 3, 2]),
            pd.Series([3.0, 1.0, 3.0, 2.0]),
            pd.Series([3, 1, 3, 2], dtype="Int64"),
            pd.Series([3, 1, 3, 2], dtype="category"),
            pd.Series([3, 1.0, 3, 2], dtype=object),
        ],
        ids=lambda column: str(column.dtype),
    )
    def test_declared_numbers_are_levels_whatever_their_type(self, column):
        frame = pandas_frame(column)
        for key in (["dose"], [1], [-1], "dose", 1):
            table = read_table(frame, key)
            assert table.levels == (None, (1, 2, 3))
            assert table.values[:, 1].tolist() == [2.0, 0.0, 2.0, 1.0]

    def test_categories_of_numbers_need_no_declaration(self):
        frame = pandas_frame(pd.Categorical([3, 1, 3, 2], [3, 2, 1], ordered=True))
        assert read_table(frame).levels == (None, (3, 2, 1))

    def test_flags_can_be_declared(self):
        table = read_table(pandas_frame([True, False, True]), ["dose"])
        assert table.levels == (None, (False, True))
        assert table.values[:, 1].tolist() == [1.0, 0.0, 1.0]

    @pytest.mark.parametrize(
        "X",
        [
            np.array([[1.5, "b"], [2, "a"], [0, "b"]], dtype=object),
            [[1.5, "b"], [2, "a"], [0, "b"]],
            ((1.5, "b"), (2, "a"), (0, "b")),
        ],
        ids=["objects", "lists", "tuples"],
    )
    def test_arrays_hold_levels_where_declared(self, X):
        table = read_table(X, [1])
        assert table.levels == (None, ("a", "b"))
        assert table.values.tolist() == [[1.5, 1.0], [2.0, 0.0], [0.0, 1.0]]

    def test_arrays_of_strings_hold_levels_where_all_are_declared(self):
        table = read_table(np.array([["b", "1"], ["a", "2"]]), [0, 1])
        assert table.levels == (("a", "b"), ("1", "2"))
        assert table.values.tolist() == [[1.0, 0.0], [0.0, 1.0]]

    def test_numbers_spelled_in_an_array_of_strings_stay_text(self):
        with pytest.raises(ValueError, match=r"'x1' holds '1' at row 0, not numbers"):
            read_table(np.array([["b", "1"], ["a", "2"]]), [0])

    @pytest.mark.parametrize(
        "column",
        [
            pd.Series(["a", None, "b"]),
            pd.Series(["a", pd.NA, "b"], dtype="string"),
            pd.Series(["a", np.nan, "b"], dtype=object),
            pd.Categorical(["a", None, "b"]),
            pl.Series(["a", None, "b"]),
            pl.Series(["a", None, "b"], dtype=pl.Categorical),
            pl.Series(["a", None, "b"], dtype=pl.Enum(["a", "b"])),
        ],
        ids=["str", "string", "object", "category", "pl str", "pl cat", "pl enum"],
    )
    def test_a_missing_level_is_admitted_or_refused_by_row(self, column):
        frame = (polars_frame if isinstance(column, pl.Series) else pandas_frame)(
            column
        )
        table = read_table(frame, admit_missing=True)
        assert table.levels == (None, ("a", "b"))
        assert np.array_equal(table.values[:, 1], [0.0, np.nan, 1.0], equal_nan=True)
        with pytest.raises(ValueError, match=r"'dose' .*NaN.* row 1\..*indicator"):
            read_table(frame)

    def test_levels_of_two_types_that_look_alike_are_refused(self):
        frame = pandas_frame(pd.Series([1, "1", 2], dtype=object))
        with pytest.raises(ValueError, match="'dose' .*look alike: 1 and '1'"):
            read_table(frame)

    def test_a_level_called_missing_is_refused_beside_missing_values(self):
        frame = pandas_frame(pd.Series(["missing", None, "a"]))
        with pytest.raises(ValueError, match="'dose' has a level 'missing'.*Rename"):
            read_table(frame, admit_missing=True)
        known = pandas_frame(pd.Series(["missing", "b", "a"]))
        assert read_table(known, admit_missing=True).levels[1] == ("a", "b", "missing")

    @pytest.mark.parametrize("column", [[None, None, None], [np.nan] * 3])
    def test_a_column_without_levels_is_refused(self, column):
        frame = pandas_frame(pd.Series(column, dtype=object))
        with pytest.raises(ValueError, match=r"'dose' .*missing values \(NaN\) only"):
            read_table(frame, ["dose"], admit_missing=True)

    def test_levels_that_are_numbers_fit_64_bits_or_stay_floats(self):
        table = read_table(pandas_frame([1e30, -1.0, 2.0**63]), ["dose"])
        assert table.levels == (None, (-1, 2**63, 1e30))
        assert [type(level) for level in table.levels[1]] == [int, int, float]
        frame = pandas_frame(pd.Series([1, 10**30, 2], dtype=object))
        with pytest.raises(ValueError, match="'dose' .*64 bits at row 1.* as text"):
            read_table(frame, ["dose"])

    def test_pieces_of_numbers_are_levels_by_their_text(self):
        """With a gap or without; beside one pandas makes floats of the ends."""
        pieces = pd.cut(np.array([1.5, 10.5, 2.5, np.nan]), [0, 2, 10, 11])
        levels = ("(0, 2]", "(2, 10]", "(10, 11]")
        for column in (pieces, pieces[:3]):
            table = read_table(pandas_frame(column), admit_missing=True)
            assert table.levels == (None, levels)
            assert table.values[:3, 1].tolist() == [0.0, 2.0, 1.0]
            assert np.isnan(table.values[3:, 1]).all()
        other = pandas_frame(pd.arrays.IntervalArray(pieces[:3]))
        assert set(read_table(other).levels[1]) == set(levels)
        other = pandas_frame(pd.Series(pieces[:3]).astype(object))
        assert set(read_table(other, ["dose"]).levels[1]) == set(levels)

    def test_levels_are_text_or_numbers(self):
        day = datetime.date(2020, 1, 1)
        frame = pandas_frame(pd.Series(["a", day, "b"], dtype=object))
        with pytest.raises(
            TypeError, match=r"'dose' holds date at row 1;.*astype\(str\)"
        ):
            read_table(frame)

    def test_infinity_is_no_level(self):
        with pytest.raises(ValueError, match=r"'dose' .*infinity.* row 1\."):
            read_table(pandas_frame([1.0, np.inf, 2.0]), ["dose"])

    @pytest.mark.parametrize("key", ["size", 2, True, 1.5])
    def test_unknown_declarations_are_refused_with_a_list(self, key):
        with pytest.raises(ValueError, match="categorical names .*X has 'age', 'dose'"):
            read_table(pandas_frame([1, 2, 3]), [key])


class TestEncoding:
    @pytest.fixture
    def features(self):
        frame = pandas_frame(["b", "a", None, "b", "c", "b"])
        table = read_table(frame, admit_missing=True)
        return fit_features(table.values, ["age", "dose"], np.ones(6), table.levels)

    FRAMES = {
        "pandas": pandas_frame(["c", None, "a"]),
        "pandas category": pandas_frame(pd.Categorical(["c", None, "a"], list("zca"))),
        "polars": polars_frame(["c", None, "a"]),
        "arrow": arrow_frame(pa.array(["c", None, "a"])),
        "objects": np.array([[0, "c"], [1, None], [2, "a"]], dtype=object),
        "lists": [[0, "c"], [1, np.nan], [2, "a"]],
    }

    @pytest.mark.parametrize("kind", FRAMES)
    def test_new_rows_get_the_codes_of_the_training_rows(self, features, kind):
        values = encode_table(self.FRAMES[kind], features)
        expected = [[0.0, 2.0], [1.0, np.nan], [2.0, 0.0]]
        assert np.array_equal(values, expected, equal_nan=True)

    def test_a_batch_of_missing_levels_is_read(self, features):
        for frame in (pandas_frame([None, None]), polars_frame([None, None])):
            assert np.isnan(encode_table(frame, features)[:, 1]).all()

    def test_an_unknown_level_is_refused_by_column_level_and_row(self, features):
        with pytest.raises(
            ValueError, match=r"'dose' has level 'z' at row 1, .*'a', 'b', 'c'.*handle"
        ):
            encode_table(pandas_frame(["a", "z"]), features)

    def test_an_unknown_level_stands_at_the_reference_on_request(self, features):
        values = encode_table(pandas_frame(["a", "z"]), features, "reference")
        assert values[:, 1].tolist() == [0.0, features.reference[1]]
        assert features.levels(1)[int(features.reference[1])] == "b"

    WRAPPED = {
        "pandas": pandas_frame,
        "polars": polars_frame,
        "arrow": arrow_frame,
        "objects": lambda column: np.array([*enumerate(column)], dtype=object),
        "lists": lambda column: [[*row] for row in enumerate(column)],
    }

    @pytest.mark.parametrize("kind", WRAPPED)
    def test_flags_and_their_names_are_different_levels(self, kind):
        wrap = self.WRAPPED[kind]
        flags, words = [True, False, True], ["true", "false", "true"]
        for seen, other in ((flags, words), (words, flags)):
            table = read_table(wrap(seen), [1])
            levels = (None, tuple(sorted(set(seen))))
            assert table.levels == levels
            features = fit_features(table.values, ["a", "b"], np.ones(3), levels)
            assert np.array_equal(encode_table(wrap(seen), features), table.values)
            with pytest.raises(ValueError, match=f"level {other[0]!r} at row 0"):
                encode_table(wrap(other), features)

    def test_text_where_numbers_were_is_refused(self, features):
        frame = pd.DataFrame({"age": ["young"], "dose": ["a"]})
        with pytest.raises(ValueError, match="'age' holds text, .*numbers in training"):
            encode_table(frame, features)

    def test_missing_numbers_are_refused_where_none_were_seen(self, features):
        frame = pd.DataFrame({"age": [1.0, None], "dose": ["a", "b"]})
        table = encode_table(frame, features)
        with pytest.raises(ValueError, match=r"'age' .*NaN.* row 1\..*where some are"):
            check_new(table, features)


class TestUnusedLevels:
    def test_levels_of_weightless_rows_are_forgotten(self):
        table = read_table(pandas_frame(["a", "b", "c", "b", "a"]))
        weight = np.array([1.0, 0.0, 1.0, 0.0, 2.0])
        kept = drop_unused_levels(table, weight)
        assert kept.levels == (None, ("a", "c"))
        assert kept.values[weight > 0, 1].tolist() == [0.0, 1.0, 0.0]
        assert table.levels == (None, ("a", "b", "c"))

    def test_missing_values_stay_missing(self):
        table = read_table(pandas_frame(["a", None, "c"]), admit_missing=True)
        kept = drop_unused_levels(table, np.array([0.0, 1.0, 1.0]))
        assert np.array_equal(kept.values[1:, 1], [np.nan, 0.0], equal_nan=True)

    def test_tables_of_numbers_pass(self):
        table = Table(np.ones((3, 2)))
        assert drop_unused_levels(table, np.zeros(3)) is table


class TestRefusals:
    DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
    ENCODE = r"Column 'dose' .*not numbers\..*categorical=.*drop it"
    DATES = r"Column 'dose' holds dates or times.* days since"

    @pytest.mark.parametrize(
        "frame",
        [
            pandas_frame(pd.Series([1 + 1j, 2, 3])),
            pandas_frame(pd.Series([b"1", 2, 3], dtype=object)),
            polars_frame(pl.Series([[1], [2], [3]])),
            polars_frame(pl.Series([{"a": 1}] * 3)),
            polars_frame(pl.Series([b"1", b"2", b"3"])),
        ],
        ids=[
            "pandas complex",
            "pandas bytes",
            "polars list",
            "polars struct",
            "polars binary",
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
            pandas_frame(pd.period_range("2020-01", periods=3, freq="M")),
            polars_frame(pl.Series(DAYS)),
            polars_frame(pl.Series([datetime.timedelta(day) for day in (1, 2, 3)])),
            polars_frame(pl.Series([datetime.time(hour) for hour in (1, 2, 3)])),
        ],
        ids=[
            "pandas datetime",
            "pandas datetime with zone",
            "pandas timedelta",
            "pandas period",
            "polars date",
            "polars duration",
            "polars time",
        ],
    )
    def test_dates_and_times_are_refused_with_a_remedy(self, frame):
        with pytest.raises(TypeError, match=self.DATES):
            read_table(frame)

    def test_dates_among_objects_are_refused_by_column_and_row(self):
        for value in (self.DAYS[0], pd.Timestamp("2020"), pd.Period("2020-01")):
            frame = pandas_frame(pd.Series([1.0, value, 2.0], dtype=object))
            found = (
                rf"Column 'dose' holds {type(value).__name__} at row 1\..*days since"
            )
            with pytest.raises(TypeError, match=found):
                read_table(frame)

    @pytest.mark.parametrize("kind", ["M8[D]", "m8[s]"])
    def test_arrays_of_dates_are_refused(self, kind):
        with pytest.raises(TypeError, match="dates or times.* days since"):
            read_table(np.ones((2, 2)).astype(kind))

    @pytest.mark.parametrize("kind", ["U5", "S5"])
    def test_arrays_of_strings_are_refused_even_when_they_spell_numbers(self, kind):
        with pytest.raises(ValueError, match="X holds strings.*categorical="):
            read_table(np.ones((2, 2)).astype(kind))

    def test_numbers_beyond_floats_are_refused_by_column_and_row(self):
        frame = pandas_frame(pd.Series([1, 10**400, 2], dtype=object))
        with pytest.raises(TypeError, match="'dose' holds int at row 1"):
            read_table(frame)

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
            pd.Series([1, 2, pd.NaT, None], dtype=object),
            pl.Series([1, 2, None, None]),
            pl.Series([1.0, 2.0, None, float("nan")]),
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
        column = read_table(frame, admit_missing=True).values[:, 1]
        assert np.array_equal(column, [1, float(column[1]), np.nan, np.nan], True)

    def test_a_column_of_nothing_is_missing_whatever_its_type(self):
        for frame in (pandas_frame([None] * 3), polars_frame([None] * 3)):
            with pytest.raises(ValueError, match=r"'dose' .*NaN.* row 0\."):
                read_table(frame)
            assert np.isnan(read_table(frame, admit_missing=True).values[:, 1]).all()

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

    @pytest.mark.parametrize("bad", ["high", "2", b"2", [2], {}, 10**400])
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
        missing = (None, pd.NA, pd.NaT, float("nan"), np.float32("nan"))
        assert all(is_missing(value) for value in missing)
        assert not any(is_missing(value) for value in (0, "", "nan", np.inf, False))


class TestDisguise:
    """Text that is a number or a date is told from names."""

    @pytest.mark.parametrize(
        "labels",
        [
            ["12,5", "3,25"],
            ["45 %", "3 %"],
            ["1.234,56", "12,00"],
            ["1", "2", "3"],
            ["31.12.2024", "1.1.2025"],
        ],
    )
    def test_numbers_and_dates_as_text_are_a_warning(self, labels):
        frame = pd.DataFrame({"x": labels * 4})
        with pytest.warns(
            DataWarning, match=r"Column 'x' holds .* categorical=\['x'\]"
        ):
            read = read_table(frame)
        assert len(read.levels[0]) == len(labels)
        read_table(frame, ["x"])  # declared, so that nothing is said
        read_table(frame.astype("category"))

    @pytest.mark.parametrize(
        "labels",
        [
            ["01234", "30001"],
            ["18-25", "26-30"],
            ["a", "b", "1"],
            ["10.0.0.1"],
            ["1st"],
        ],
    )
    def test_names_and_codes_are_levels_without_a_word(self, labels):
        read_table(pd.DataFrame({"x": labels * 4}))
