"""Columns become standardised terms; groups of terms know their feature."""

import numpy as np
import pytest

from sknimo.exceptions import DataWarning
from sknimo.features import (
    FeatureMap,
    FeatureOptions,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    fit_features,
    fit_linear,
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


def unit(features):
    """Slope of each coefficient's only term per unit of its column."""
    return features.coefficients(np.ones(len(features.term_feature)))


class TestScaling:
    def test_reference_and_scale_are_mean_and_standard_deviation(self, table):
        features = fit(table)
        assert features.reference == pytest.approx(table.mean(0), rel=RTOL)
        assert unit(features) == pytest.approx(1 / table.std(0), rel=RTOL)

    def test_terms_have_mean_zero_and_unit_variance(self, table):
        terms = fit(table).terms(table)
        assert terms.mean(0) == pytest.approx(np.zeros(3), abs=RTOL)
        assert terms.std(0) == pytest.approx(np.ones(3), rel=RTOL)

    def test_integer_weights_count_rows(self, table):
        weight = np.random.default_rng(1).integers(1, 4, N_ROWS)
        weighted = fit(table, weight)
        repeated = fit(np.repeat(table, weight, axis=0))
        assert weighted.reference == pytest.approx(repeated.reference, rel=RTOL)
        assert unit(weighted) == pytest.approx(unit(repeated), rel=RTOL)

    def test_the_unit_of_weights_does_not_matter(self, table):
        weight = np.random.default_rng(1).random(N_ROWS)
        small, large = fit(table, 1e-200 * weight), fit(table, 1e200 * weight)
        assert small.reference == pytest.approx(large.reference, rel=RTOL)
        assert unit(small) == pytest.approx(unit(large), rel=RTOL)

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
        assert unit(features).tolist() == [0.0] * 8

    def test_the_effect_of_a_constant_column_is_zero(self, table):
        table[:, 1] = 7.0
        with pytest.warns(DataWarning):
            features = fit(table)
        assert features.per_feature(np.array([2.0, 3.0])).tolist() == [2.0, 0.0, 3.0]


class TestGroups:
    """Features of several columns: their terms, their coefficients, their sums."""

    @pytest.fixture
    def features(self):
        bases = (
            Linear(1.0, 2.0),
            Polynomial(3.0, 2.0, 0.5),
            Linear(0.0, 0.0),
            OrMissing(Levels(("u", "v", "w"), 1, 0.5), 0.25),
            Levels((False, True), 0, 0.5),
        )
        return FeatureMap(("a", "b", "c", "d", "e"), bases)

    def test_terms_know_their_feature(self, features):
        assert features.n_features == 5
        assert features.term_feature.tolist() == [0, 1, 1, 3, 3, 3, 4]
        assert features.input_feature.tolist() == [0, 1, 1, 3, 3, 3, 4]

    def test_terms_stand_side_by_side(self, features):
        row = np.array([[3.0, 5.0, 9.0, 2.0, 1.0]])
        assert features.terms(row).tolist() == [[1.0, 1.0, 2.0, 0.0, 2.0, 0.0, 2.0]]
        row = np.array([[1.0, 3.0, 9.0, np.nan, 0.0]])
        assert features.terms(row).tolist() == [[0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 0.0]]

    def test_coefficients_are_named_by_feature_and_level(self, features):
        assert features.coef_names == (
            "a",
            "b",
            "c",
            "d[u]",
            "d[w]",
            "d[missing]",
            "e[True]",
        )
        assert features.coef_feature.tolist() == [0, 1, 2, 3, 3, 3, 4]

    def test_coefficients_are_per_unit_or_per_level(self, features):
        per_term = np.array([1.0, 10.0, 100.0, 5.0, 6.0, 7.0, 8.0])
        each = features.coefficients(per_term)
        assert each.tolist() == [0.5, 5.0, 0.0, 10.0, 12.0, 28.0, 16.0]
        both = features.coefficients(np.stack([per_term, 2 * per_term]))
        assert both.tolist() == [each.tolist(), (2 * each).tolist()]

    def test_one_number_per_feature_where_one_says_it_all(self, features):
        per_term = np.array([1.0, 10.0, 100.0, 5.0, 6.0, 7.0, 8.0])
        one = features.feature_coef(per_term)
        assert one[[0, 1, 2, 4]].tolist() == [0.5, 5.0, 0.0, 16.0]
        assert np.isnan(one[3])

    def test_contributions_of_a_group_are_summed(self, features):
        per_term = np.array([1.0, 10.0, 100.0, 5.0, 6.0, 7.0, 8.0])
        expected = [1.0, 110.0, 0.0, 18.0, 8.0]
        assert features.per_feature(per_term).tolist() == expected
        assert features.per_feature(per_term[None]).tolist() == [expected]

    def test_levels_and_missing_values_are_known(self, features):
        assert features.levels(3) == ("u", "v", "w")
        assert features.levels(0) is None
        assert features.admits_missing.tolist() == [False, False, False, True, False]

    def test_line_curve_and_indicator_are_parts_of_their_own(self):
        table = np.random.default_rng(0).normal(size=(60, 2))
        table[::9, 0] = np.nan
        features = fit_features(
            table, ["a", "b"], np.ones(60), None, FeatureOptions(basis="spline")
        )
        n_curves = [basis.group.tolist().count(1) for basis in features.bases]
        assert features.term_group.tolist() == (
            [0] + [2] * n_curves[0] + [4] + [1] + [3] * n_curves[1]
        )


class TestRange:
    def test_excess_is_the_distance_beyond_the_training_range(self, table):
        features = fit(table)
        low, high = table.min(0), table.max(0)
        assert not features.excess(table).any()
        assert features.excess(high[None] + 3 * table.std(0)) == pytest.approx(3.0)
        assert features.excess(low[None] - 2 * table.std(0)) == pytest.approx(2.0)

    def test_missing_values_and_constant_columns_exceed_nothing(self, table):
        table[::5, 0] = np.nan
        table[:, 1] = 7.0
        with pytest.warns(DataWarning):
            features = fit(table)
        assert not features.excess(np.array([[np.nan, 1e6, 30.0]])).any()

    def test_a_map_without_a_range_knows_no_excess(self):
        assert not FeatureMap(("a",), (Linear(0.0, 1.0),)).excess(np.ones((2, 1))).any()


class TestNearTheReference:
    def fit(self, column, **options):
        table = np.asarray(column, dtype=float)[:, None]
        return fit_features(
            table, ["age"], np.ones(len(table)), None, FeatureOptions(**options)
        )

    def test_a_reference_that_is_nobodys_is_reported(self):
        two_camps = np.r_[np.linspace(0, 1, 20), np.linspace(9, 10, 20)]
        with pytest.warns(DataWarning, match="No row lies near .* column 'age'"):
            self.fit(two_camps)
        with pytest.warns(DataWarning, match="reference="):
            self.fit(np.linspace(0, 1, 20), reference={"age": 40})
        self.fit(two_camps, reference={"age": 9.5})

    def test_a_few_rows_need_not_be_near_anything(self):
        self.fit([0.0, 1.0, 9.0, 10.0])

    def test_rows_of_zero_weight_are_near_nothing(self):
        table = np.r_[np.linspace(0, 1, 20), np.linspace(9, 10, 20), 5.0][:, None]
        with pytest.warns(DataWarning, match="No row"):
            fit_features(table, ["age"], np.r_[np.ones(40), 0.0])

    def test_quiet_fits_say_nothing(self):
        two_camps = np.r_[np.linspace(0, 1, 20), np.linspace(9, 10, 20)][:, None]
        fit_features(two_camps, ["age"], np.ones(40), quiet=True)


class TestNumbersThatAreNone:
    def fit(self, column, name="age", weight=None):
        table = np.asarray(column, dtype=float)[:, None]
        weight = np.ones(len(table)) if weight is None else weight
        fit_features(table, [name], weight, None, FeatureOptions(reference="median"))

    @pytest.mark.parametrize("code", [999.0, -99.0, 8888.0])
    def test_a_code_far_from_all_others_is_reported(self, code):
        ages = np.r_[np.linspace(18, 90, 40), [code] * 3]
        for unit in (1.0, 0.3):
            with pytest.warns(DataWarning, match=f"value {code:g} in 3 rows.*18 to 90"):
                self.fit(ages, weight=np.full(43, unit))

    @pytest.mark.parametrize(
        "others, far",
        [
            (np.linspace(18, 90, 40), [99.0] * 3),  # an age
            (np.linspace(18, 90, 40), [999.0]),  # once
            (np.linspace(18, 90, 40), [1000.0] * 3),  # round
            ([0.0, 1.0] * 20, [99.0] * 3),  # levels
        ],
    )
    def test_what_may_be_a_number_is_not(self, others, far):
        self.fit(np.r_[others, far])

    @pytest.mark.parametrize("name", ["id", "ID", "patient_id", "userId", "Unnamed: 0"])
    def test_numbers_of_rows_are_reported(self, name):
        with pytest.warns(DataWarning, match="seems to number the rows"):
            self.fit(np.arange(40), name)

    @pytest.mark.parametrize("name", ["t", "year", "rank", "paid", "grid", "acid"])
    def test_times_and_ranks_are_not(self, name):
        self.fit(np.arange(40), name)

    def test_nor_is_an_identifier_of_several_rows(self):
        self.fit(np.repeat(np.arange(20), 2), "id")
        self.fit(np.linspace(0, 1, 40), "id")


class TestOptionsByColumn:
    def test_by_name_or_position(self, table):
        for basis in ({"b": "spline"}, {1: "spline"}, {-2: "spline"}):
            features = fit_features(
                table, ["a", "b", "c"], np.ones(N_ROWS), None, FeatureOptions(basis)
            )
            assert [basis.n_terms > 1 for basis in features.bases] == [
                False,
                True,
                False,
            ]

    @pytest.mark.parametrize("key", ["d", 3, -4, True, 1.5, None])
    def test_unknown_columns_are_refused_with_a_list(self, table, key):
        with pytest.raises(ValueError, match="names column .*; X has 'a', 'b', 'c'"):
            fit_features(
                table,
                ["a", "b", "c"],
                np.ones(N_ROWS),
                None,
                FeatureOptions({key: "spline"}),
            )


def test_a_target_is_measured_like_a_column():
    values = np.array([1.0, 2.0, 6.0])
    spread = fit_linear(values, np.ones(3))
    assert spread.reference == pytest.approx(3.0)
    assert spread.scale == pytest.approx(values.std())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"input_scaling": "rank_gauss"},
        {"input_scaling": "ramps"},
        {"clip_inputs": True},
    ],
)
def test_terms_and_inputs_vanish_at_a_moved_reference(options):
    table = np.random.default_rng(0).normal(size=(80, 2))
    features = fit_features(
        table, ["a", "b"], np.ones(80), (None, None), FeatureOptions(**options)
    )
    point = features.reference + [0.2, 0.0]
    moved = features.around(point)
    assert moved.reference.tolist() == point.tolist()
    assert not moved.terms(point[None]).any()
    assert not moved.inputs(point[None]).any()
    steps = moved.terms(table) - features.terms(table)
    assert steps[:, 0] == pytest.approx(-0.2 / features.scale[0])
    assert not steps[:, 1].any()


def test_a_curve_cannot_move():
    table = np.random.default_rng(0).normal(size=(80, 1))
    features = fit_features(
        table, ["a"], np.ones(80), (None,), FeatureOptions(basis="spline")
    )
    with pytest.raises(TypeError, match="Spline basis cannot move"):
        features.around(features.reference + 1)
