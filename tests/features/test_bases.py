"""Every basis is zero at its reference and is what its name says.

Oracles: patsy's natural splines, scipy's cubic splines and quadrature, scikit-learn's
encoders, and finite differences.
"""

import numpy as np
import patsy
import pytest
from scipy.interpolate import CubicSpline
from scipy.stats import norm, spearmanr
from sklearn.preprocessing import (
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
)

from sknimo.features import (
    Clipped,
    Drawn,
    FeatureOptions,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    RankGauss,
    Spline,
    fit_features,
    summarise_column,
)

N_ROWS = 400
ROUNDING = 1e-12  # relative, float64: a handful of operations
SPAN = 1e-7  # residual of a projection between two badly conditioned bases
SLOPE = 1e-6  # central differences with a step of 1e-5 of the scale


def draw(kind="normal", seed=0, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    return {
        "normal": lambda: rng.normal(50.0, 8.0, n_rows),
        "far": lambda: rng.normal(1e8, 1.0, n_rows),
        "tiny": lambda: rng.normal(0.0, 1e-12, n_rows),
        "skewed": lambda: np.exp(2 * rng.normal(size=n_rows)),
        "left": lambda: -np.exp(2 * rng.normal(size=n_rows)),
        "ties": lambda: rng.poisson(3.0, n_rows).astype(float),
        "outlier": lambda: np.r_[rng.normal(size=n_rows - 1), 1e6],
    }[kind]()


KINDS = ("linear", "poly2", "spline", "ramps")
COLUMNS = ("normal", "far", "tiny", "skewed", "left", "ties", "outlier")


def fit_column(x, weight=None, levels=None, **options):
    """Basis and input basis of a single column."""
    weight = np.ones(len(x)) if weight is None else weight
    features = fit_features(
        np.asarray(x)[:, None], ["x"], weight, [levels], FeatureOptions(**options), True
    )
    return features.bases[0], features.input_bases[0]


def spline(x, weight=None, **options):
    return fit_column(x, weight, basis="spline", **options)[0]


def with_gaps(x):
    x = x.copy()
    x[::7] = np.nan
    return x


class TestReference:
    @pytest.mark.parametrize("reference", ["mean", "median", "mode", 3.7, -1e9])
    @pytest.mark.parametrize("missing", [False, True], ids=["known", "missing"])
    @pytest.mark.parametrize("scaling", ["standard", "rank_gauss", "ramps"])
    @pytest.mark.parametrize("clip", [False, True], ids=["free", "clipped"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_terms_and_inputs_are_exactly_zero_there(
        self, kind, clip, scaling, missing, reference
    ):
        given = reference if isinstance(reference, str) else {"x": reference}
        for column in COLUMNS:
            x = with_gaps(draw(column)) if missing else draw(column)
            bases = fit_column(
                x, basis=kind, reference=given, clip_inputs=clip, input_scaling=scaling
            )
            for basis in bases:
                assert basis.n_terms > 0
                # Among other rows: vectorised code must not round differently.
                among = np.r_[x[~np.isnan(x)], basis.reference, basis.reference]
                assert not basis.terms(among)[-2:].any()
                assert basis.terms(np.array([basis.reference])).tolist() == [
                    [0.0] * basis.n_terms
                ]

    def test_of_a_category_is_the_baseline(self):
        codes = np.repeat([0.0, 1.0, 2.0], [5, 9, 6])
        basis, read = fit_column(codes, levels=("a", "b", "c"))
        assert basis.reference == 1.0
        for each in (basis, read):
            assert not each.terms(np.array([1.0])).any()
            assert each.terms(np.array([0.0, 2.0])).any(axis=1).all()

    @pytest.mark.parametrize("name", ["mean", "median", "mode"])
    def test_names_mean_what_they_say(self, name):
        x = np.array([1.0, 2.0, 2.0, 3.0, 10.0])
        expected = {"mean": 3.6, "median": 2.0, "mode": 2.0}[name]
        assert fit_column(x, reference=name)[0].reference == pytest.approx(expected)

    def test_the_median_of_an_even_number_is_between_the_middle_values(self):
        x = np.array([4.0, 1.0, 2.0, 9.0])
        assert fit_column(x, reference="median")[0].reference == np.median(x)

    def test_median_and_mode_count_weights_as_rows(self):
        x, weight = draw("ties"), np.random.default_rng(1).integers(1, 5, N_ROWS)
        for name in ("median", "mode"):
            weighted = fit_column(x, weight.astype(float), reference=name)[0]
            repeated = fit_column(np.repeat(x, weight), reference=name)[0]
            assert weighted.reference == repeated.reference

    @pytest.mark.parametrize("name", ["mean", "median", "mode"])
    def test_two_values_stand_at_the_more_frequent_one(self, name):
        x = np.repeat([0.0, 1.0], [3, 7])
        basis, _ = fit_column(x, reference=name)
        assert basis.reference == 1.0
        assert basis.scale == pytest.approx(x.std())

    @pytest.mark.parametrize("bad", ["center", None, np.nan, np.inf, "3"])
    def test_anything_else_is_refused(self, bad):
        given = bad if bad == "center" else {"x": bad}
        with pytest.raises(ValueError, match="^reference "):
            fit_column(draw(), reference=given)

    def test_a_wrong_name_for_one_column_is_told_with_the_column(self):
        with pytest.raises(ValueError, match=r"column 'x' is 'abc'; .* 'median', 'mo"):
            fit_column(draw(), reference={"x": "abc"})

    def test_no_level_of_that_name_is_refused_with_a_list(self):
        codes = np.repeat([0.0, 1.0], 5)
        with pytest.raises(ValueError, match=r"'x' is 'c', .* levels: 'a', 'b'\."):
            fit_column(codes, levels=("a", "b"), reference={"x": "c"})


def columns_options(kind):
    return {
        "linear": {},
        "poly2": {"basis": "poly2"},
        "spline": {"basis": "spline"},
        "ramps": {"basis": "ramps"},
        "missing": {"basis": "spline"},
        "rank_gauss": {"input_scaling": "rank_gauss"},
        "clipped": {"clip_inputs": True},
        "drawn": {"drawn": (0,)},
        "drawn curve": {"basis": "spline", "drawn": (0,)},
        "drawn pieces": {"basis": "ramps", "drawn": (0,)},
    }[kind]


def columns_of(kind):
    """A basis of each kind and values away from its corners, where it has any."""
    x = draw(seed=3)
    between = np.linspace(20.0, 80.0, 57) + 1 / np.pi
    options = columns_options(kind)
    basis, read = fit_column(with_gaps(x) if kind == "missing" else x, **options)
    return (read if kind in ("rank_gauss", "clipped") else basis), between


DRAWN = ("drawn", "drawn curve", "drawn pieces")
SMOOTH = (*KINDS, "missing", "rank_gauss", "clipped", *DRAWN)


class TestSlopes:
    @pytest.mark.parametrize("kind", SMOOTH)
    def test_are_derivatives(self, kind):
        basis, x = columns_of(kind)
        step = 1e-5
        rise = basis.terms(x + step) - basis.terms(x - step)
        assert basis.slopes(x) == pytest.approx(rise / (2 * step), abs=SLOPE)

    @pytest.mark.parametrize("kind", SMOOTH)
    def test_at_the_reference_are_the_readout(self, kind):
        basis, _ = columns_of(kind)
        at = basis.slopes(np.array([basis.reference]))
        assert np.array_equal(basis.readout()[:1], at)

    def test_are_zero_where_a_value_is_missing(self):
        basis, _ = columns_of("missing")
        assert not basis.slopes(np.array([np.nan])).any()

    def test_levels_have_none(self):
        assert not Levels(("a", "b", "c"), 0, 0.5).slopes(np.arange(3.0)).any()


class TestDrawn:
    @pytest.mark.parametrize("kind", DRAWN)
    @pytest.mark.parametrize("at", [{}, {"reference": {"x": 61.7}}])
    def test_terms_are_exactly_zero_at_a_reference_in_units_of_the_column(
        self, kind, at
    ):
        x = draw("skewed")
        options = columns_options(kind) | at
        basis, read = fit_column(x, **options)
        plain, _ = fit_column(x, **at)
        assert (basis.reference, basis.scale) == (plain.reference, plain.scale)
        for each in (basis, read):
            assert not each.terms(np.array([basis.reference])).any()

    def test_a_line_goes_with_the_values_in_the_middle_and_with_logarithms_far_out(
        self,
    ):
        x = np.concatenate([np.linspace(-1, 1, 401), [1e3, 1e6, 1e9]])
        basis, _ = fit_column(x, drawn=(0,))
        pace = basis.slopes(np.array([0.0, 0.01, 1e3, 1e6, 1e9]))[:, 0]
        assert pace[1] == pytest.approx(pace[0], rel=1e-3)
        rise = np.diff(basis.terms(np.array([1e3, 1e6, 1e9]))[:, 0])
        assert rise[0] == pytest.approx(rise[1], rel=1e-3)

    def test_pieces_are_constant_far_outside_the_range(self):
        x = draw("skewed")
        basis, _ = fit_column(x, basis="ramps", drawn=(0,))
        assert isinstance(basis, Clipped) and isinstance(basis.basis, Drawn)
        ends = basis.terms(np.quantile(x, [0, 1]) + np.ptp(x) / 4 * np.array([-1, 1]))
        assert np.array_equal(basis.terms(np.array([-1e9, 1e9])), ends)

    def test_spaced_values_rise_the_line_by_even_steps(self):
        basis, _ = fit_column(draw("skewed"), drawn=(0,))
        values = basis.spaced(1.0, 500.0, 9)
        assert (values[0], values[-1]) == (1.0, 500.0)
        rise = np.diff(basis.terms(values)[:, 0])
        assert rise == pytest.approx(np.full(8, rise[0]), rel=1e-9)

    def test_only_columns_with_rows_far_out_have_tails(self):
        rng = np.random.default_rng(0)
        weight = np.ones(400)

        def has_tails(x):
            return summarise_column(x, weight, None, "x").has_tails()

        assert has_tails(rng.lognormal(sigma=1.5, size=400))
        assert has_tails(np.r_[rng.normal(size=399), -9.0])
        assert not has_tails(rng.normal(size=400))
        assert not has_tails(rng.uniform(size=400))
        assert not has_tails(np.r_[np.zeros(399), 9.0])  # two values: no tail


class TestSpline:
    @pytest.mark.parametrize("column", ["normal", "skewed", "left", "ties"])
    def test_spans_the_natural_cubic_splines_of_its_knots(self, column):
        x = draw(column)
        basis = spline(x)
        knots = basis.reference + basis.scale * basis.knots
        oracle = np.asarray(
            patsy.dmatrix(
                "cr(x, knots=inner, lower_bound=low, upper_bound=high) - 1",
                {"x": x, "inner": knots[1:-1], "low": knots[0], "high": knots[-1]},
            )
        )
        own = np.column_stack([np.ones(len(x)), basis.terms(x)])
        own /= np.linalg.norm(own, axis=0)
        # Ties: not every spline of the knots can be told apart at the values.
        assert own.shape[1] == np.linalg.matrix_rank(oracle)
        for left, right in ((own, oracle), (oracle, own)):
            fitted, *_ = np.linalg.lstsq(left, right, rcond=None)
            assert np.abs(right - left @ fitted).max() < SPAN * np.abs(right).max()

    def test_lies_within_the_cubic_splines_of_scikit_learn(self):
        x = draw()
        basis = spline(x)
        knots = basis.reference + basis.scale * basis.knots
        cubic = SplineTransformer(degree=3, knots=knots[:, None]).fit_transform(
            x[:, None]
        )
        terms = basis.terms(x)
        fitted, *_ = np.linalg.lstsq(cubic, terms, rcond=None)
        assert np.abs(terms - cubic @ fitted).max() < SPAN

    @pytest.mark.parametrize("column", COLUMNS[:-1])
    def test_has_the_line_first(self, column):
        x = draw(column)
        basis = spline(x)
        z = (x - basis.reference) / basis.scale
        assert np.array_equal(basis.terms(x)[:, 0], z)

    @pytest.mark.parametrize("column", ["normal", "skewed", "left", "ties"])
    def test_curves_are_uncorrelated_with_the_line_and_each_other(self, column):
        x = draw(column)
        weight = np.random.default_rng(1).random(N_ROWS)
        terms = spline(x, weight).terms(x)
        covariance = np.cov(terms.T, aweights=weight, ddof=0)
        size = np.sqrt(np.diag(covariance))
        assert size[1] == pytest.approx(1.0, rel=1e-6)
        assert (np.diff(size[1:]) <= 1e-12).all()
        correlation = covariance / np.outer(size, size)
        assert correlation == pytest.approx(np.eye(len(size)), abs=1e-6)

    @pytest.mark.parametrize("column", ["normal", "skewed", "left", "ties"])
    def test_squared_coefficients_are_the_integrated_squared_curvature(self, column):
        basis = spline(draw(column))
        at = basis.reference + basis.scale * basis.knots
        rng = np.random.default_rng(2)
        ratios = []
        for _ in range(5):
            coef = rng.normal(size=basis.n_terms)
            oracle = CubicSpline(
                basis.knots, basis.terms(at) @ coef, bc_type="natural"
            ).derivative(2)
            # Second derivatives are lines between knots: two points integrate exactly.
            nodes, shares = np.polynomial.legendre.leggauss(2)
            half = np.diff(basis.knots) / 2
            middle = (basis.knots[1:] + basis.knots[:-1]) / 2
            points = middle[:, None] + half[:, None] * nodes
            energy = (half[:, None] * shares * oracle(points) ** 2).sum()
            ratios.append(energy / (coef[1:] ** 2).sum())
        assert ratios == pytest.approx([ratios[0]] * 5, rel=1e-5)

    @pytest.mark.parametrize("column", ["normal", "skewed", "left"])
    @pytest.mark.parametrize("side", [-1, 1])
    def test_is_straight_beyond_the_outer_knots(self, column, side):
        x = draw(column)
        basis = spline(x)
        edge = x.max() if side > 0 else x.min()
        terms = basis.terms(edge + side * basis.scale * np.r_[0, 1, 2, 1e3, 1e9])
        slope = side * basis.scale * basis.slopes(np.array([edge]))
        for distance, row in zip((1, 2, 1e3, 1e9), terms[1:], strict=True):
            assert row == pytest.approx(
                terms[0] + distance * slope[0], rel=1e-9, abs=1e-9 * distance
            )

    def test_knots_reach_into_the_tails(self):
        x = draw("normal", n_rows=2000)
        knots = spline(x).knots
        z = (x - x.mean()) / x.std()
        assert knots[0] == pytest.approx(z.min()) and knots[-1] == pytest.approx(
            z.max()
        )
        quantiles = np.quantile(z, np.linspace(0, 1, len(knots)))
        assert knots[1] < quantiles[1] and knots[-2] > quantiles[-2]
        # and stay among the rows of a skewed column
        x = draw("skewed", n_rows=2000)
        inner = spline(x).knots[1:-1] * x.std() + x.mean()
        assert (inner < np.quantile(x, 0.98)).all()

    @pytest.mark.parametrize("column", ["normal", "skewed", "ties"])
    def test_integer_weights_count_rows(self, column):
        x, weight = draw(column), np.random.default_rng(1).integers(1, 4, N_ROWS)
        weighted = spline(x, weight.astype(float)).terms(x)
        repeated = spline(np.repeat(x, weight)).terms(x)
        assert weighted == pytest.approx(repeated, rel=1e-6, abs=1e-9)

    @pytest.mark.parametrize(
        ("n_values", "kind"),
        [(2, Linear), (3, Polynomial), (5, Polynomial), (6, Spline)],
    )
    def test_needs_enough_distinct_values(self, n_values, kind):
        x = np.tile(np.arange(float(n_values)), 20)
        assert type(spline(x)) is kind

    def test_an_outlier_that_hides_the_rest_leaves_finite_terms(self):
        x = np.r_[np.arange(100.0), 1e30]
        basis = spline(x)
        assert np.isfinite(basis.terms(x)).all()


class TestParabola:
    def test_spans_the_polynomials_of_degree_two(self):
        x = draw()
        basis, _ = fit_column(x, basis="poly2")
        oracle = PolynomialFeatures(2).fit_transform(x[:, None] - x.mean())
        own = np.column_stack([np.ones(N_ROWS), basis.terms(x)])
        fitted, *_ = np.linalg.lstsq(own, oracle, rcond=None)
        assert np.abs(oracle - own @ fitted).max() < SPAN

    def test_terms_have_unit_spread(self):
        x = draw("skewed")
        basis, _ = fit_column(x, basis="poly2")
        assert basis.terms(x).std(axis=0) == pytest.approx([1.0, 1.0], rel=1e-10)


class TestLevels:
    LABELS = ("a", "b", "c", "d")

    @pytest.fixture
    def codes(self):
        return np.random.default_rng(0).choice(
            np.arange(4.0), 200, p=[0.2, 0.5, 0.25, 0.05]
        )

    def test_terms_are_indicators_without_the_baseline(self, codes):
        basis, read = fit_column(codes, levels=self.LABELS)
        assert basis == read
        oracle = OneHotEncoder(drop=[1], sparse_output=False).fit_transform(
            codes.astype(int)[:, None]
        )
        assert basis.terms(codes) * basis.scale == pytest.approx(oracle)
        assert basis.labels == ("a", "c", "d")

    def test_indicators_have_unit_variance_on_average(self, codes):
        basis, _ = fit_column(codes, levels=self.LABELS)
        assert basis.terms(codes).var(axis=0).mean() == pytest.approx(1.0)

    def test_readout_is_the_contrast_with_the_baseline(self, codes):
        basis, _ = fit_column(codes, levels=self.LABELS, reference={"x": "d"})
        coef = np.array([1.0, -2.0, 0.5])
        effect = basis.terms(np.arange(4.0)) @ coef
        assert basis.baseline == 3
        assert basis.readout() @ coef == pytest.approx(effect[:3] - effect[3])

    def test_a_single_level_has_no_terms(self):
        basis, _ = fit_column(np.zeros(5), levels=("a",))
        assert basis.n_terms == 0
        assert basis.terms(np.zeros(5)).shape == (5, 0)
        assert basis.labels == ()

    def test_more_levels_than_the_rows_can_tell_apart_are_refused(self):
        labels = tuple(f"id{k}" for k in range(30))
        with pytest.raises(ValueError, match="'x' has 30 levels in 40 .*too many"):
            fit_column(np.arange(40.0) % 30, levels=labels)
        basis, _ = fit_column(np.arange(60.0) % 30, levels=labels)
        assert basis.n_terms == 29

    def test_a_curve_of_a_category_is_refused(self):
        with pytest.raises(ValueError, match="'x' is 'spline', .*no curve"):
            fit_column(
                np.arange(6.0) % 3, levels=("a", "b", "c"), basis={"x": "spline"}
            )


class TestRareLevels:
    """Levels of fewer than five rows, and of less than a twentieth of them."""

    @staticmethod
    def codes(*counts):
        return np.repeat(np.arange(len(counts)), counts).astype(float)

    def test_one_row_counts_as_the_baseline(self):
        codes = self.codes(60, 30, 1)
        basis, read = fit_column(codes, levels=("a", "b", "c"))
        assert basis == read
        assert basis.terms(np.array([0.0, 2.0])).tolist() == [[0.0], [0.0]]
        assert basis.labels == ("b", "c")
        assert basis.readout()[:, 0] * basis.scale == pytest.approx([1.0, 0.0])

    def test_several_share_a_coefficient_once_they_are_five_rows(self):
        codes = self.codes(60, 2, 30, 3, 1)
        basis, _ = fit_column(codes, levels=tuple("abcde"))
        # The same column with one name for all of them.
        merged = self.codes(60, 6, 30)
        alone, _ = fit_column(merged, levels=tuple("abc"))
        of = basis.terms(np.arange(5.0))
        assert of[[1, 3, 4]].tolist() == [of[1].tolist()] * 3
        assert of[[0, 1, 2]] == pytest.approx(alone.terms(np.arange(3.0)))

    def test_five_rows_and_a_twentieth_of_the_rows_keep_their_own(self):
        assert fit_column(self.codes(90, 5), levels=("a", "b"))[0].n_terms == 1
        assert fit_column(self.codes(90, 4), levels=("a", "b"))[0].n_terms == 0
        assert fit_column(self.codes(19, 1), levels=("a", "b"))[0].n_terms == 1

    def test_where_small_levels_are_the_rule_all_keep_their_own(self):
        names = tuple(f"clinic {k}" for k in range(30))
        assert fit_column(self.codes(40, *[4] * 29), levels=names)[0].n_terms == 29

    @pytest.mark.parametrize("unit", [1.0, 3.0, 1e-6])
    def test_weights_count_rows_but_shares_of_one_do_not_make_all_rare(self, unit):
        weight = unit * np.r_[np.ones(90), 7.0, 1.0]
        codes = self.codes(60, 30, 1, 1)
        basis, _ = fit_column(codes, weight, levels=tuple("abcd"))
        assert basis.n_terms == 2
        assert not basis.terms(np.array([3.0])).any()

    def test_the_baseline_that_was_asked_for_is_never_pooled(self):
        levels = ("a", "b", "c")
        codes = self.codes(60, 30, 1)
        basis, _ = fit_column(codes, levels=levels, reference={"x": "c"})
        assert (basis.baseline, basis.n_terms) == (2, 2)


class TestMissing:
    def test_a_handful_of_gaps_has_no_indicator_and_stands_at_the_reference(self):
        x = draw()
        x[:3] = np.nan
        basis, read = fit_column(x)
        assert basis.n_terms == read.n_terms == 1
        assert basis.terms(x[:3]).tolist() == [[0.0]] * 3
        assert basis.slopes(x[:3]).tolist() == [[0.0]] * 3
        assert basis.labels == ("", "missing")
        assert basis.readout()[1].tolist() == [0.0]

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_missing_value_stands_at_the_reference_and_is_marked(self, kind):
        x = with_gaps(draw())
        basis, _ = fit_column(x, basis=kind)
        gone = np.isnan(x)
        assert isinstance(basis, OrMissing)
        terms = basis.terms(x)
        assert not terms[gone, :-1].any()
        assert terms[:, -1] * basis.indicator_scale == pytest.approx(gone.astype(float))
        assert terms[:, -1].std() == pytest.approx(1.0)

    @pytest.mark.parametrize("kind", KINDS)
    def test_known_values_are_learned_from_known_rows_alone(self, kind):
        x = with_gaps(draw())
        known = x[~np.isnan(x)]
        basis, _ = fit_column(x, basis=kind)
        alone, _ = fit_column(known, basis=kind)
        assert np.array_equal(basis.terms(known)[:, :-1], alone.terms(known))

    def test_of_a_category_is_one_more_level(self):
        codes = np.array([0.0, 1.0, 1.0, np.nan, 2.0, 1.0])
        basis, _ = fit_column(codes, levels=("a", "b", "c"))
        assert basis.labels == ("a", "c", "missing")
        effects = basis.terms(np.array([0.0, 1.0, 2.0, np.nan])) @ np.linalg.inv(
            basis.readout()
        )
        expected = [[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
        assert effects == pytest.approx(np.array(expected, dtype=float))

    def test_a_constant_column_keeps_its_indicator(self):
        x = np.array([5.0, np.nan, 5.0, 5.0, np.nan])
        basis, _ = fit_column(x)
        assert basis.n_terms == 1
        assert basis.labels == ("", "missing")
        assert basis.readout().shape == (2, 1)
        assert basis.readout()[0] == 0

    def test_nothing_but_missing_values_is_refused(self):
        with pytest.raises(ValueError, match=r"'x' of X contains missing .* only\."):
            fit_column(np.full(5, np.nan))


class TestInputs:
    @pytest.mark.parametrize("column", ["normal", "skewed", "left", "ties"])
    @pytest.mark.parametrize("n_rows", [5, 128, 3000])
    def test_normal_scores_are_monotone_with_unit_spread(self, column, n_rows):
        x = draw(column, n_rows=n_rows)
        _, read = fit_column(x, input_scaling="rank_gauss")
        assert isinstance(read, RankGauss)
        score = read.terms(x)[:, 0]
        assert spearmanr(x, score).statistic == pytest.approx(1.0)
        assert score.std() == pytest.approx(1.0)

    @pytest.mark.parametrize("column", ["normal", "skewed", "left"])
    def test_normal_scores_are_those_of_scikit_learn(self, column):
        x = draw(column, n_rows=1001)
        _, read = fit_column(x, input_scaling="rank_gauss")
        oracle = QuantileTransformer(
            n_quantiles=1001, output_distribution="normal"
        ).fit_transform(x[:, None])[:, 0]
        bulk = np.abs(oracle) < norm.ppf(0.97)  # the oracle clips the extremes at 5
        score = read.terms(x)[:, 0]
        slope, shift = np.polyfit(oracle[bulk], score[bulk], 1)
        assert slope == pytest.approx(1.0, abs=0.02)  # a spread that is exactly one
        # Interpolation between 129 values instead of every row.
        assert score[bulk] == pytest.approx(slope * oracle[bulk] + shift, abs=0.04)

    def test_normal_scores_are_constant_outside_the_training_range(self):
        x = draw()
        _, read = fit_column(x, input_scaling="rank_gauss")
        far = read.terms(np.array([x.min() - 100, x.min(), x.max(), x.max() + 1e9]))
        assert far[0] == far[1] and far[2] == far[3]

    def test_heavy_ties_share_a_score(self):
        x = np.r_[np.zeros(500), np.arange(1.0, 301.0)]
        _, read = fit_column(x, input_scaling="rank_gauss")
        scores = np.unique(read.terms(x)[:, 0])
        assert len(scores) == 301

    def test_clipping_ends_at_the_training_range(self):
        x = draw()
        basis, read = fit_column(x, clip_inputs=True)
        assert isinstance(read, Clipped)
        wide = np.linspace(-100, 300, 101)
        clipped = np.clip(wide, x.min(), x.max())
        assert np.array_equal(read.terms(wide), basis.terms(clipped))
        free = (wide - x.mean()) / x.std()
        assert basis.terms(wide)[:, 0] == pytest.approx(free, rel=ROUNDING)

    def test_clipping_never_cuts_the_reference_off(self):
        x = draw()
        basis, read = fit_column(x, clip_inputs=True, reference={"x": 1000.0})
        assert not read.terms(np.array([1000.0])).any()
        assert np.array_equal(read.terms(x), basis.terms(x))

    def test_two_values_stay_two_values(self):
        x = np.repeat([0.0, 1.0], [3, 7])
        _, read = fit_column(x, input_scaling="rank_gauss")
        assert isinstance(read, Linear)

    def test_unknown_scalings_are_refused_with_a_list(self):
        with pytest.raises(ValueError, match="'rank_gauss', 'ramps', got 'robust'"):
            fit_column(draw(), input_scaling="robust")


@pytest.mark.parametrize("bad", ["cubic", None, 3])
def test_unknown_bases_are_refused_with_a_list(bad):
    with pytest.raises(ValueError, match="'spline', 'ramps', 'auto', got"):
        fit_column(draw(), basis=bad)
    with pytest.raises(ValueError, match="got .* for 'x'"):
        fit_column(draw(), basis={"x": bad})


@pytest.mark.slow
def test_relative_rounding_is_all_that_scaling_loses():
    x = draw("normal")
    for factor in (1e-100, 1e6, 1e100):
        for kind in KINDS:
            plain = fit_column(x, basis=kind)[0].terms(x)
            scaled = fit_column(x * factor, basis=kind)[0].terms(x * factor)
            assert scaled == pytest.approx(plain, rel=1e-7, abs=1e-7)
            first = np.abs(scaled[:, 0] - plain[:, 0]).max()
            assert first < 1e3 * ROUNDING
