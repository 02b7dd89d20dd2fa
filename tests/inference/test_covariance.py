"""Standard errors against statsmodels, finite differences and simulation."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from sknimo import NIMOClassifier, NIMOClassifierCV, NIMORegressor, load
from sknimo.families import GAUSSIAN
from sknimo.features import FeatureMap, Linear
from sknimo.inference._bands import t_quantile
from sknimo.inference._covariance import (
    Averaged,
    _is_certain,
    _mix,
    coefficient_covariance,
    left_out_size,
    member_estimate,
    state_given,
)
from sknimo.inference._lines import Turned
from sknimo.inference._posterior import Tangents, normal_equations, settle
from sknimo.inference._robust import Part, robust
from sknimo.inference._uncertainty import Uncertainty
from sknimo.network import init_params, make_spec, unpack
from sknimo.solver import Problem
from sknimo.training import Ensemble

from .conftest import quick_search

sm = pytest.importorskip("statsmodels.api")
# Both sides solve the same equations; iterations end at about this.
CLOSE = 1e-6
OFF = {"alpha": 0.0, "max_iter": 0}


@pytest.fixture(scope="module")
def table():
    """Numbers, a category and groups of rows, with a linear predictor."""
    rng = np.random.default_rng(0)
    n = 120
    X = pd.DataFrame(
        {
            "a": 3 * rng.normal(size=n) + 1,
            "b": rng.normal(size=n),
            "g": rng.choice(list("uvw"), n, p=[0.5, 0.3, 0.2]),
        }
    )
    eta = X["a"] / 6 - 0.4 * X["b"] + 0.3 * (X["g"] == "v")
    design = X[["a", "b"]].assign(v=1.0 * (X["g"] == "v"), w=1.0 * (X["g"] == "w"))
    return X, eta.to_numpy(), sm.add_constant(design), rng.integers(0, 15, n)


@pytest.fixture(scope="module")
def gaussian(table):
    X, eta, _, _ = table
    rng = np.random.default_rng(1)
    y = eta + rng.normal(size=len(X)) * np.exp(0.3 * X["b"].to_numpy())
    return y, NIMORegressor(**OFF).fit(X, y)


def test_least_squares_is_that_of_statsmodels(table, gaussian):
    y, est = gaussian
    theirs = sm.OLS(y, table[2]).fit()
    found = est.conf_int(level=0.9)
    np.testing.assert_allclose(est.cov_, theirs.cov_params().iloc[1:, 1:], rtol=CLOSE)
    np.testing.assert_allclose(found.z, theirs.tvalues.iloc[1:], rtol=CLOSE)
    ends = theirs.conf_int(alpha=0.1).iloc[1:]
    np.testing.assert_allclose(found.lower, ends[0], rtol=CLOSE)
    np.testing.assert_allclose(found.upper, ends[1], rtol=CLOSE)


def test_robust_errors_are_those_of_statsmodels(table, gaussian):
    y, est = gaussian
    theirs = sm.OLS(y, table[2]).fit()
    robust_fit = theirs.get_robustcov_results("HC3")
    found = est.conf_int(cov_type="HC3")
    np.testing.assert_allclose(found.std_err, robust_fit.bse[1:], rtol=CLOSE)


def test_families_are_those_of_statsmodels(table):
    X, eta, design, _ = table
    rng = np.random.default_rng(2)
    log = sm.families.links.Log()
    targets = {
        "poisson": (rng.poisson(np.exp(eta) * rng.gamma(2, 0.5, len(X))), "Poisson"),
        "gamma": (rng.gamma(3, np.exp(eta) / 3), "Gamma"),
    }
    for family, (y, name) in targets.items():
        theirs = sm.GLM(y, design, family=getattr(sm.families, name)(log))
        theirs = theirs.fit(scale="X2")
        est = NIMORegressor(family, **OFF).fit(X, y)
        cov = theirs.cov_params().iloc[1:, 1:]
        np.testing.assert_allclose(est.cov_, cov, rtol=CLOSE)
    y = (eta + rng.logistic(size=len(X)) > 0).astype(int)
    theirs = sm.GLM(y, design, family=sm.families.Binomial()).fit(tol=1e-12)
    est = NIMOClassifier(**OFF).fit(X, y)
    found = est.conf_int()
    np.testing.assert_allclose(found.std_err, theirs.bse.iloc[1:], rtol=CLOSE)
    ends = theirs.conf_int().iloc[1:]
    np.testing.assert_allclose(found.lower, ends[0], rtol=1e-5, atol=1e-6)


def test_contrasts_are_those_of_statsmodels(table, gaussian):
    y, est = gaussian
    theirs = sm.OLS(y, table[2]).fit().t_test("v - w = 0")
    found = est.contrast("g", "v", "w")
    np.testing.assert_allclose(found.estimate, theirs.effect, rtol=CLOSE)
    np.testing.assert_allclose(found.std_err, np.ravel(theirs.sd), rtol=CLOSE)
    theirs = sm.OLS(y, table[2]).fit(cov_type="HC3").t_test("v - w = 0")
    robust_one = est.contrast("g", "v", "w", cov_type="HC3")
    np.testing.assert_allclose(robust_one.std_err, np.ravel(theirs.sd), rtol=CLOSE)
    same = est.contrast({"g[v]": 1, "g[w]": -1})
    assert same.std_err == pytest.approx(found.std_err)
    baseline = est.contrast("g", "v", "u")
    assert baseline.std_err[0] == pytest.approx(est.conf_int().std_err[2])
    with pytest.raises(ValueError, match="no level 'q'"):
        est.contrast("g", "q", "u")


def test_contrasts_of_levels_do_not_mind_a_column_of_the_same_name(table, gaussian):
    """A number "g[v]" stands before the category "g" with its level "v"."""
    X, (y, est) = table[0], gaussian
    one = NIMORegressor(**OFF).fit(X.rename(columns={"b": "g[v]"}), y)
    assert list(one.coef_names_) == ["a", "g[v]", "g[v]", "g[w]"]
    for levels in (("v", "u"), ("u", "v"), ("v", "w")):
        found, wanted = one.contrast("g", *levels), est.contrast("g", *levels)
        assert found.estimate == pytest.approx(wanted.estimate)
        assert found.std_err == pytest.approx(wanted.std_err)
    with pytest.raises(ValueError, match="2 coefficients are called 'g.v.'.*Rename"):
        one.contrast({"g[v]": 1})
    assert one.contrast({"g[w]": 1}).estimate[0] == one.coef_[3]


def make_given(est, X, y):
    """The rows of a fit without a network, as the covariance sees them."""
    model = est.model_
    table = est._read_table(X)
    problem = Problem.in_memory(
        terms=torch.as_tensor(model.features.terms(table)),
        inputs=torch.as_tensor(model.features.inputs(table)),
        term_feature=torch.as_tensor(model.features.term_feature),
        y=torch.as_tensor(y).double(),
        offset=torch.zeros(len(y), dtype=torch.float64),
        family=model.family,
        spec=model.spec,
    )
    members = Ensemble(model.coef, model.intercept, model.params, model.modulated)
    given = state_given(problem, Averaged.of(members), torch.ones_like(problem.y))
    return replace(given, ridge=torch.zeros(problem.n_terms, dtype=torch.float64))


@pytest.fixture(scope="module")
def settled_rows(table, gaussian):
    """The rows of least squares, and the inverse of their curvature."""
    y, est = gaussian
    given, model = make_given(est, table[0], y), est.model_
    members = Ensemble(model.coef, model.intercept, model.params, model.modulated)
    point = Averaged.of(members).points[0]
    return given, settle(given, normal_equations(given, point), 1.0)


def test_residuals_left_out_are_those_of_refits(table, gaussian, settled_rows):
    given, settled = settled_rows
    press = sm.OLS(gaussian[0], table[2]).fit().get_influence().resid_press
    found = left_out_size(given, [settled, settled], [0.3, 0.7])
    assert found == pytest.approx(np.abs(press).mean(), rel=CLOSE)


def test_robust_covariance_is_that_of_statsmodels(table, gaussian, settled_rows):
    y, est = gaussian
    given, settled = settled_rows
    part = Part(given, settled, est.model_.features, 1.0)
    reply, leverage = part.replies()
    found = robust(given, reply, leverage, settled.dispersion)
    theirs = sm.OLS(y, table[2]).fit().get_robustcov_results("HC3")
    np.testing.assert_allclose(
        found.numpy()[1:, 1:], theirs.cov_params()[1:, 1:], rtol=CLOSE
    )


def test_the_only_row_of_a_value_is_as_noisy_as_the_family_says(table, gaussian):
    X, y = table[0].assign(once=0.0), gaussian[0]
    X.loc[7, "once"] = 1.0
    est = NIMORegressor(**OFF).fit(X, y)
    known, robust = (est.conf_int(cov_type=kind) for kind in ("nonrobust", "HC3"))
    # HC3 of statsmodels is any number here.
    assert robust.std_err[-1] == pytest.approx(known.std_err[-1], rel=0.1)
    without = np.arange(len(y)) != 7
    rest = NIMORegressor(**OFF).fit(X[without].drop(columns="once"), y[without])
    others = rest.conf_int(cov_type="HC3").std_err
    # That row says nothing of the others; the dispersion is the same.
    np.testing.assert_allclose(robust.std_err[:-1], others, rtol=1e-4)
    assert np.isnan(est.average_effects(X, y).std_err[0, -1])
    assert np.isfinite(est.average_effects(X, y).std_err[0, :-1]).all()


@pytest.mark.parametrize("kind", ["nonrobust", "HC3"])
def test_only_columns_that_are_combinations_have_no_errors(table, gaussian, kind):
    X, y = table[0], gaussian[0]
    X = X.assign(**{f"is_{g}": 1.0 * (X["g"] == g) for g in "uvw"}).drop(columns="g")
    est = NIMORegressor(**OFF).fit(X, y)
    theirs = sm.OLS(y, table[2]).fit()
    bse = theirs.get_robustcov_results(kind).bse if kind == "HC3" else theirs.bse
    found = est.conf_int(cov_type=kind)
    assert found.notes == ("", "", *["collinear"] * 3)
    np.testing.assert_allclose(found.std_err, [*bse[1:3], *[np.nan] * 3], rtol=1e-5)
    np.testing.assert_array_equal(np.isnan(np.diag(est.cov_)), np.isnan(found.std_err))
    # Rows tell differences of levels all the same.
    one = est.contrast({"is_v": 1, "is_u": -1})
    assert one.estimate[0] == pytest.approx(theirs.params.iloc[3], rel=1e-5)
    assert one.std_err[0] == pytest.approx(theirs.bse.iloc[3], rel=1e-5)
    assert np.isnan(est.contrast({"is_v": 1}).std_err[0])
    assert "collinear: a combination" in str(est.summary())
    mean = est.predict_interval(X, kind="mean", level=0.95)
    ends = theirs.get_prediction(table[2]).conf_int()
    np.testing.assert_allclose(mean.lower, ends[:, 0], rtol=1e-4, atol=1e-5)


def test_a_search_says_which_columns_are_combinations(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    X["twice"] = 2 * X["a"] + 1
    y = X["a"] + X["b"] + 0.5 * rng.normal(size=150)
    est = quick_search().fit(X, y)
    assert est.conf_int().notes == ("collinear", "", "collinear")
    est.save(tmp_path / "model.sknimo")
    assert load(tmp_path / "model.sknimo").conf_int().notes == est.conf_int().notes


def test_clusters_are_those_of_statsmodels(table):
    X, eta, design, groups = table
    rng = np.random.default_rng(3)
    y = eta + rng.normal(size=15)[groups] + rng.normal(size=len(X))
    theirs = sm.OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": groups})
    est = NIMORegressor(**OFF)
    keep = est._keep_uncertainty
    est._keep_uncertainty = lambda *a, **k: keep(*a, labels=groups, **k)
    found = est.fit(X, y).conf_int(cov_type="cluster")
    np.testing.assert_allclose(found.std_err, theirs.bse.iloc[1:], rtol=CLOSE)


def test_weights_count_rows(table, gaussian):
    X, _, _, _ = table
    y, _ = gaussian
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    one = NIMORegressor(**OFF).fit(X, y, sample_weight=weight)
    row = np.repeat(np.arange(len(X)), weight)
    two = NIMORegressor(**OFF).fit(X.iloc[row], y[row])
    np.testing.assert_allclose(one.cov_, two.cov_, rtol=1e-9)
    robust_errors = [e.conf_int(cov_type="HC3").std_err for e in (one, two)]
    np.testing.assert_allclose(*robust_errors, rtol=1e-9)


@pytest.fixture(scope="module")
def bent():
    """A member with a network of random weights, and rows."""
    generator = torch.Generator().manual_seed(0)
    n, p = 60, 3
    x = torch.randn(n, p, generator=generator, dtype=torch.float64)
    spec = make_spec(list(range(p)), p, (2, 2), "binary", True)
    params = init_params(spec, [0]).double()
    unpack(spec, params).out.normal_(0, 1.0, generator=generator)
    coef = torch.tensor([[1.0, -0.5, 0.8]], dtype=torch.float64)
    problem = Problem.in_memory(
        terms=x,
        inputs=x,
        term_feature=torch.arange(p),
        y=torch.randn(n, generator=generator, dtype=torch.float64),
        offset=torch.zeros(n, dtype=torch.float64),
        family=GAUSSIAN,
        spec=spec,
    )
    modulated = torch.tensor([[True, True, False]])
    level = torch.zeros(1, dtype=torch.float64)
    members = Ensemble(coef, level, params, modulated)
    noisy = Averaged.of(members).eta(problem) + 0.2 * problem.y
    return replace(problem, y=noisy), members


def lines_of(problem):
    """Features that are lines around zero."""
    lines = tuple(Linear(0.0, 1.0) for _ in range(problem.n_terms))
    return FeatureMap(tuple("abc"), lines)


def test_derivatives_are_finite_differences_of_eta(bent):
    problem, members = bent
    point = Averaged.of(members).points[0]
    rows = Tangents(problem, point).rows(slice(0, problem.n_rows))

    def eta(coef, params):
        shifted = Ensemble(coef, members.intercept, params, members.modulated)
        return Averaged.of(shifted).eta(problem)

    step, columns = 1e-6, []
    for k in range(problem.n_terms):
        move = torch.zeros_like(members.coef)
        move[0, k] = step
        up, down = (eta(members.coef + s * move, members.params) for s in (1, -1))
        columns.append((up - down) / (2 * step))
    for k in range(members.params.shape[1]):
        move = torch.zeros_like(members.params)
        move[0, k] = step
        up, down = (eta(members.coef, members.params + s * move) for s in (1, -1))
        columns.append((up - down) / (2 * step))
    found = torch.stack(columns, dim=1)
    torch.testing.assert_close(rows[:, 1:], found, atol=1e-8, rtol=1e-6)


def test_errors_are_larger_than_those_that_take_the_network_for_granted(bent):
    problem, members = bent
    features = lines_of(problem)
    weight = torch.ones_like(problem.y)
    averaged = Averaged.of(members)
    found = member_estimate(
        state_given(problem, averaged, weight), averaged, features, None
    )
    point = averaged.points[0]
    design = Tangents(problem, point).design(slice(0, problem.n_rows))
    wide = torch.cat([torch.ones(problem.n_rows, 1).double(), design], dim=1)
    naive = np.linalg.inv(wide.mT @ wide) * found.dispersion
    assert (np.diag(found.nonrobust)[1:3] > 1.2 * np.diag(naive)[1:3]).all()


def test_members_that_differ_add_their_spread(bent):
    problem, members = bent
    features = lines_of(problem)
    weight = torch.ones_like(problem.y)

    def error(gap):
        coef = torch.cat([members.coef - gap, members.coef + gap])
        twice = [torch.cat([x, x]) for x in (members.intercept, members.params)]
        both = Ensemble(coef, *twice, torch.cat([members.modulated] * 2))
        return coefficient_covariance(problem, both, weight, features).nonrobust

    near, far = error(0.0), error(0.2)
    # Two members, each 0.2 from their mean: half of the squares, halved again.
    assert far[1, 1] == pytest.approx(near[1, 1] + 0.02, rel=0.2)


def test_bends_that_turn_elsewhere_are_moved_bends_without_a_slope(bent):
    problem, members = bent
    point = Averaged.of(members).points[0]
    tangents, features = Tangents(problem, point), lines_of(problem)
    turned = Turned(tangents, features, torch.arange(problem.n_terms))
    x = problem.columns.read(slice(0, problem.n_rows))[0]

    def eta(terms, inputs):
        """Of the first two features, the ones that bend, at terms of one's own."""
        rows = Problem.in_memory(
            terms=terms,
            inputs=inputs,
            term_feature=problem.term_feature,
            y=terms[:, 0],
            offset=torch.zeros_like(terms[:, 0]),
            family=GAUSSIAN,
            spec=problem.spec,
        )
        own = Tangents(rows, point)
        return own.design(slice(0, len(terms))) @ point.coef

    for feature in (0, 1):
        moved = x.clone()
        moved[:, feature] += 1.0
        # One more of a term is its bent coefficient: bends and a constant.
        curve = (eta(moved, x) - eta(x, x)) * point.coef[feature].sign()
        found = turned.rows(slice(0, problem.n_rows))[:, feature]
        near = torch.zeros(2 * problem.n_terms, problem.n_terms).double()
        near[: problem.n_terms] = 1e-4 * torch.eye(problem.n_terms)
        near[problem.n_terms :] = -near[: problem.n_terms]
        more = near.clone()
        more[:, feature] += 1.0
        ends = (eta(more, near) - eta(near, near)) * point.coef[feature].sign()
        up, down = ends.split(problem.n_terms)
        slope = (up - down) / 2e-4
        left = curve - curve.new_tensor(float(point.coef[feature].abs())) - x @ slope
        torch.testing.assert_close(found, left, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 0.0), (-0.7, 0.3)])
def test_bends_that_turn_elsewhere_leave_nothing_of_a_column_of_two_values(
    bent, values
):
    """A curve between the two would be the column: its error was 60 times too large."""
    problem, members = bent
    x = torch.zeros(problem.n_rows, 3, dtype=torch.float64)
    x[:, 2] = x.new_tensor(values)[torch.arange(len(x)) % 2]
    rows = Problem.in_memory(
        terms=x,
        inputs=x,
        term_feature=problem.term_feature,
        y=problem.y,
        offset=problem.offset,
        family=GAUSSIAN,
        spec=problem.spec,
    )
    tangents = Tangents(rows, Averaged.of(members).points[0])
    turned = Turned(tangents, lines_of(problem), torch.arange(3))
    found = turned.rows(slice(0, len(x)))
    assert turned.slopes[2].abs().max() > 0.01  # the network does bend along it
    torch.testing.assert_close(found, found[:1].expand_as(found), atol=1e-9, rtol=0)


def test_what_only_some_members_have_is_not_taken_for_known(bent):
    problem, members = bent
    without = members.coef.clone()
    without[0, 2] = 1e-9
    gone = members.coef.clone()
    gone[0, 2] = 0.0
    coef = torch.cat([gone, gone, gone, without])
    four = [torch.cat([x] * 4) for x in (members.intercept, members.params)]
    some = Ensemble(coef, *four, torch.cat([members.modulated] * 4))
    weight = torch.ones_like(problem.y)
    features = lines_of(problem)
    found = coefficient_covariance(problem, some, weight, features)
    error = np.sqrt(found.nonrobust[3, 3])
    # The rows say 0.8, and that there is more noise while the model has it not.
    assert 0.05 < error < 0.3
    assert abs(found.centre[3] - 0.8) < 2 * error


def test_a_search_has_errors_by_residuals_and_a_glm_those_of_other_programs(
    case, gaussian
):
    for est, kind in ((case.est, "HC3"), (gaussian[1], "nonrobust")):
        found = est.conf_int()
        assert found.cov_type == est.contrast({found.names[0]: 1}).cov_type == kind
        errors = np.sqrt(np.diag(est.cov_))
        np.testing.assert_array_equal(found.std_err, errors)
        named = est.conf_int(cov_type=kind)
        np.testing.assert_array_equal(found.std_err, named.std_err)


@pytest.mark.slow
def test_errors_of_many_features_in_few_rows_are_not_those_of_a_prior():
    # A prior that is learned made them two thirds of what the rows allow.
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 30))
    y = random.random(150) < 1 / (1 + np.exp(-X[:, :8].sum(1) * 0.4))
    quick = {"n_members": 5, "batch_size": 64, "max_iter": 4, "random_state": 0}
    found = NIMOClassifierCV(**quick).fit(X, y).conf_int().to_frame()
    other = sm.Logit(y, sm.add_constant(X)).fit(disp=0).bse[1:]
    kept = np.isfinite(found.std_err.to_numpy())
    ratio = found.std_err.to_numpy()[kept] / other[kept]
    assert kept.sum() >= 8
    assert ratio.min() > 0.8
    assert 0.9 < ratio.mean() < 1.2


def test_quantiles_are_those_of_students_t():
    from scipy.stats import t

    for free in (1.5, 3.0, 11.0, 200.0, 1e5):
        for probability in (0.6, 0.95, 0.975, 0.9995):
            expected = t.ppf(probability, free)
            assert t_quantile(probability, free) == pytest.approx(expected, rel=1e-8)


def test_what_is_not_honest_is_refused_in_a_word_and_a_sentence():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 8))
    est = NIMORegressor(**OFF).fit(X, X[:, 0] + rng.normal(size=12))
    found = est.conf_int()
    assert set(found.notes) == {"few rows"}
    assert np.isnan(found.lower).all()
    assert "ten residual degrees" in found.reason
    assert "few rows" in str(est.summary())
    assert "ten residual degrees" in str(est.summary())
    assert np.isnan(est.cov_).all() and est.cov_.shape == (len(est.coef_),) * 2


@pytest.mark.parametrize(
    ("centre", "error", "certain"),
    [
        (
            (0.0, 0.0, 0.0),
            1e-5,
            True,
        ),  # it was told as 0 to 2
        ((2.1, -1.2, 0.0), 1e-5, True),
        ((2.0, -1.0, 0.0), 1e-5, False),
        ((0.0, 0.0, 0.0), 0.3, False),
    ],
)
def test_lines_that_are_sure_of_other_coefficients_know_nothing(centre, error, certain):
    features = FeatureMap(
        tuple("abc"), (Linear(0.0, 1.0),) * 3, (Linear(0.0, 1.0),) * 3
    )
    shown = SimpleNamespace(coef=torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64))
    at = np.array((0.5, *centre))
    found = Uncertainty(centre=at, nonrobust=np.eye(4) * error**2)
    assert _is_certain(found, shown, features) == certain


def test_estimates_are_mixed_in_double_precision():
    first, second = (
        Uncertainty(centre=np.full(2, at), nonrobust=np.eye(2)) for at in (0.0, 1.0)
    )
    found = _mix(first, second, 0.3)
    np.testing.assert_allclose(found.centre, 0.7, rtol=1e-15)
    np.testing.assert_allclose(np.diag(found.nonrobust), 1.0 + 0.3 * 0.7, rtol=1e-15)


def test_bands_of_a_spline_hold_its_line(table, gaussian):
    X, _, _, _ = table
    y, _ = gaussian
    est = NIMORegressor(basis="spline", **OFF).fit(X[["a", "b"]], y)
    band = est.curve_band("a")
    assert bool((band.all_upper - band.upper >= 0).all())
    at = est.curve_band("a", values=[est.reference_[0]])
    assert at.std_err[0] == 0
    # The slope at the reference, by a small step.
    step = 1e-4
    near = est.curve_band("a", values=[est.reference_[0] + step])
    assert near.std_err[0] / step == pytest.approx(est.conf_int().std_err[0], rel=1e-2)


def test_what_was_removed_has_no_contrast():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
    est = NIMORegressor(alpha=0.3, max_iter=0).fit(X, X["a"] + rng.normal(size=200))
    assert est.coef_[1] == 0
    for weights in ({"b": 1}, {"a": 1, "b": -1}):
        found = est.contrast(weights)
        assert np.isnan([found.std_err, found.lower, found.upper]).all()
    assert np.isfinite(est.contrast({"a": 2}).std_err).all()


@pytest.mark.parametrize("weight", [0.5, 1.5])
def test_errors_count_rows_as_they_are_given_not_distinct_ones(weight):
    """Two columns of zeros and ones have few distinct rows."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (400, 2)).astype(float)
    y = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
    off = {"family": "poisson", "alpha": 0.0, "max_iter": 0}
    plain = NIMORegressor(**off).fit(X, y).conf_int().std_err
    some = np.ones(400)
    some[0] = weight
    weighted = NIMORegressor(**off).fit(X, y, sample_weight=some).conf_int().std_err
    assert weighted == pytest.approx(plain, rel=0.02)


def test_a_handful_of_events_has_the_errors_of_the_family():
    """Residuals of two events in 150 rows would make them a sixth of that."""
    X = np.random.default_rng(0).normal(size=(150, 3))
    y = np.arange(150) < 2
    quick = {"n_starts": 1, "n_members": 1, "max_iter": 3, "random_state": 0}
    est = NIMOClassifierCV(**quick).fit(X, y)
    known = sm.Logit(y, sm.add_constant(X)).fit(disp=0).bse[1:]
    assert (est.conf_int().std_err > 0.8 * known).all()
    with pytest.raises(ValueError, match="HC3"):
        est.conf_int(cov_type="HC3")


@pytest.mark.parametrize(("n_rows", "n_kept"), [(90, 30), (90, 29)])
def test_precisions_learned_from_noise_make_no_small_errors(n_rows, n_kept):
    """Few rows for every line; without the cap errors were a thousandth."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, n_kept))
    y = random.integers(0, 3, n_rows)
    est = NIMOClassifier(penalty="ridge", alpha=1e-2, max_iter=0).fit(X, y)
    found = est.for_class(1, baseline=0).conf_int().std_err
    assert np.median(found) > 0.1


def test_columns_that_are_combinations_of_others_do_not_hide_the_rest():
    random = np.random.default_rng(0)
    level, x = random.integers(0, 3, 300), random.normal(size=300)
    y = random.integers(0, 3, 300)
    X = np.column_stack([np.eye(3)[level], x])
    est = NIMOClassifier(penalty="ridge", alpha=1e-4, max_iter=0).fit(X, y)
    found = est.for_class(1, baseline=0).conf_int().std_err
    known = sm.MNLogit(y, sm.add_constant(X[:, 1:])).fit(disp=0).bse
    assert found[3] == pytest.approx(np.asarray(known)[3, 0], rel=0.05)
    assert np.isnan(found[:3]).all()  # only differences are known
