"""Average effects: statsmodels' margins without a network, coverage with one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV
from sknimo.explain import compare
from sknimo.inference import KnownRows, correct_comparisons

from .conftest import draw_rows, quick_search

# Short steps stand for derivatives, and both sides iterate: not the last digits.
RELATIVE = 1e-6


@pytest.fixture(scope="module")
def rows():
    return draw_rows(300, 3)


@pytest.fixture(scope="module")
def least_squares(rows):
    """An unpenalised linear model."""
    return NIMORegressor(alpha=0.0, max_iter=0).fit(*rows)


def test_errors_of_a_linear_model_are_hc3(rows, least_squares):
    X, y = rows
    found = least_squares.average_effects(X, y)
    truth = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC3")
    np.testing.assert_allclose(found.effect[0], truth.params[1:], rtol=RELATIVE)
    np.testing.assert_allclose(found.std_err[0], truth.bse[1:], rtol=RELATIVE)
    np.testing.assert_allclose(found.lower[0], truth.conf_int()[1:, 0], rtol=RELATIVE)


def test_clusters_are_those_of_statsmodels(rows, least_squares):
    X, y = rows
    patient = np.arange(300) % 40
    found = least_squares.average_effects(X, y, groups=patient)
    how = {"groups": patient, "use_correction": False}
    truth = sm.OLS(y, sm.add_constant(X)).fit(cov_type="cluster", cov_kwds=how)
    few = np.sqrt(40 / 39)
    np.testing.assert_allclose(found.std_err[0], few * truth.bse[1:], rtol=RELATIVE)


def test_groups_that_weigh_nothing_are_none():
    moves, group = np.arange(12.0).reshape(6, 2), np.arange(6) // 2
    zeros, weight = np.zeros(6), np.array([1.0, 1, 1, 1, 0, 0])
    known = KnownRows(zeros[:, None], zeros, weight, zeros, None, cluster=group)
    total, size = known.independent(moves)
    np.testing.assert_array_equal(total, [[2, 4], [10, 12], [0, 0]])
    np.testing.assert_array_equal(size[:2], 2.0)  # two groups: 2 / (2 - 1)


@pytest.mark.parametrize("kind", ["logit", "poisson"])
def test_margins_are_those_of_statsmodels(kind, rows):
    X, _ = rows
    random = np.random.default_rng(4)
    eta = 0.3 + 0.5 * X[:, 0] - X[:, 1]
    if kind == "logit":
        y = (random.random(300) < 1 / (1 + np.exp(-eta))).astype(int)
        est, other = NIMOClassifier(alpha=0.0, max_iter=0), sm.Logit
    else:
        y = random.poisson(np.exp(eta))
        est, other = NIMORegressor("poisson", alpha=0.0, max_iter=0), sm.Poisson
    found = est.fit(X, y).average_effects(X, y, population=False)
    design = sm.add_constant(X)
    fit = other(y, design).fit(disp=0, tol=1e-12)
    # HC3 of statsmodels is for least squares alone: its leverages, by hand.
    like = sm.families.Binomial() if kind == "logit" else sm.families.Poisson()
    lever = sm.GLM(y, design, like).fit(tol=1e-12).get_hat_matrix_diag()
    moves = design * ((y - fit.predict()) / (1 - lever))[:, None] @ fit.cov_params()
    fit._results.cov_params_default = moves.T @ moves
    truth = fit.get_margeff(dummy=True)
    np.testing.assert_allclose(found.response[0], truth.margeff, rtol=RELATIVE)
    np.testing.assert_allclose(
        found.response_std_err[0], truth.margeff_se, rtol=RELATIVE
    )
    np.testing.assert_allclose(found.effect[0], fit.params[1:], rtol=RELATIVE)
    np.testing.assert_allclose(found.std_err[0], fit.bse[1:], rtol=RELATIVE)
    # A population of rows adds to the error where effects differ between rows.
    wider = est.average_effects(X, y)
    assert wider.response_std_err[0, 0] > found.response_std_err[0, 0]


def test_the_correction_undoes_a_penalty(rows, least_squares):
    X, y = rows
    shrunken = NIMORegressor(alpha=1.0, penalty="ridge", max_iter=0).fit(X, y)
    assert abs(shrunken.coef_[0]) < 0.8 * abs(least_squares.coef_[0])
    found = shrunken.average_effects(X, y)
    np.testing.assert_allclose(found.effect[0], least_squares.coef_, rtol=RELATIVE)


def test_whole_weights_equal_repetition(rows, least_squares):
    X, y = rows
    count = np.random.default_rng(5).integers(1, 4, size=300)
    weighted = least_squares.average_effects(X, y, sample_weight=count)
    twice = least_squares.average_effects(np.repeat(X, count, 0), np.repeat(y, count))
    np.testing.assert_allclose(weighted.effect, twice.effect, rtol=RELATIVE)
    np.testing.assert_allclose(weighted.std_err, twice.std_err, rtol=RELATIVE)


def test_groups_are_populations_of_their_own(rows, least_squares):
    X, y = rows
    found = least_squares.average_effects(X, y, by=1)
    assert found.groups == ("0.0", "1.0", "1.0 - 0.0")
    for k in range(2):
        own = X[:, 1] == k
        design = sm.add_constant(X[own][:, [0, 2]])
        truth = sm.OLS(y[own], design).fit(cov_type="HC3")
        np.testing.assert_allclose(found.effect[k, [0, 2]], truth.params[1:], rtol=1e-5)
        np.testing.assert_allclose(found.std_err[k, [0, 2]], truth.bse[1:], rtol=1e-5)
    assert np.isnan(found.effect[:, 1]).all()  # the group has one value of it
    apart = np.hypot(*found.std_err[:2])
    np.testing.assert_allclose(found.std_err[2], apart, rtol=RELATIVE)
    assert len(found.to_frame()) == 9


def test_a_search_takes_residuals_of_rows_held_out(case):
    found = case.est.average_effects(case.X, case.y)
    assert found.held_out
    mixed = case.est.average_effects(case.X[::-1], case.y[::-1])
    assert not mixed.held_out  # other rows, as far as it can tell
    frame = case.est.effects(case.X, case.y).to_frame()
    np.testing.assert_array_equal(frame["std_err"], found.std_err[0])
    np.testing.assert_array_equal(frame["upper"], found.upper[0])


def test_the_summary_shows_what_was_kept(case):
    found = case.est.summary().to_frame().set_index("feature")
    kept = case.est._facts.comparisons.corrected
    np.testing.assert_allclose(found.loc["x0", "corrected_average"], kept[2, 0])
    reach = 1.959964 * kept[3, 0]
    shown = found.loc["x0"]
    upper = max(kept[2, 0] + reach, shown["average"])  # stretched to hold both
    np.testing.assert_allclose(shown["average_upper"], upper)
    assert (found["average_lower"].dropna() <= found["average"].dropna()).all()
    text = str(case.est.summary())
    assert f"{shown['average']:+.3g} [{shown['average_lower']:+.3g}, " in text


def test_the_corrected_average_is_that_of_the_step_shown(rows, least_squares):
    """Whatever step the few rows that are moved would choose for themselves."""
    table, y = rows
    known = KnownRows(table, y, np.ones(len(y)), np.zeros(len(y)), None)
    shown = compare(least_squares.model_, table)
    far = replace(shown, step=10 * shown.step)
    found = [
        correct_comparisons(least_squares.model_, known, each) for each in (shown, far)
    ]
    np.testing.assert_allclose(
        found[1].corrected[2:, 0], 10 * found[0].corrected[2:, 0], rtol=1e-6
    )


def test_too_few_rows_get_no_interval():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(20, 15)), random.normal(size=20)
    found = NIMORegressor(max_iter=0).fit(X, y).average_effects(X, y)
    assert np.isnan(found.std_err).all()


def test_groups_that_are_none_are_refused(case):
    with pytest.raises(ValueError, match="'weight' is no column of X"):
        case.est.average_effects(case.X, case.y, by="weight")
    with pytest.raises(ValueError, match="at most 20 groups"):
        case.est.average_effects(case.X, case.y, by=0)


@pytest.mark.slow
def test_intervals_of_average_effects_cover():
    """Bends, and a penalty that pulls: 0.95 within four standard errors of 200 fits."""
    hits = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        X = random.normal(size=(200, 3))
        bent = 1 + 0.5 * np.tanh(X[:, 1]) + 0.6 * (1 - np.exp(-(X[:, 2] ** 2) / 2))
        y = 2 * X[:, 0] * bent - 1.5 * X[:, 1] * (1 + 0.5 * np.sin(X[:, 2]))
        y = y + random.normal(size=200)
        found = quick_search().fit(X, y).average_effects(X, y)
        # `1 - exp(-z**2 / 2)` has the mean 1 - 1 / sqrt(2).
        truth = np.array([2 * (1.6 - 0.6 / np.sqrt(2)), -1.5, 0.0])
        hits.append((found.lower[0] <= truth) & (truth <= found.upper[0]))
    share = np.mean(hits, axis=0)
    assert (0.89 < share).all()
    assert (share < 0.995).all()


def test_the_average_slope_of_a_curve_errs_with_the_curve():
    random = np.random.default_rng(0)
    X = np.column_stack([random.exponential(size=300), random.normal(size=300)])
    y = X @ [1.0, 0.5] + random.normal(size=300)
    est = NIMORegressor(alpha=0.0, max_iter=0, basis={0: "spline"}).fit(X, y)
    found = est.average_effects(X, y, population=False)
    features = est.model_.features
    slope = features.term_slopes(X).mean(0)[features.term_feature == 0]
    truth = np.sqrt(slope @ est._uncertainty.terms[0] @ slope)
    # Four turns stand for all of the spline; a line alone would have 0.28 of it, two
    # smooth curves 0.6.
    assert 0.75 < found.std_err[0, 0] / truth < 1.5


def test_through_a_few_values_a_curve_adds_no_uncertainty():
    """Of three values line and curves would tell nothing: errors grew sixfold."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.integers(0, 4, 300), random.normal(size=300)])
    y = X @ [1.0, 0.5] + random.normal(size=300)
    bent = NIMORegressor(alpha=0.0, max_iter=0, basis={0: "poly2"}).fit(X, y)
    line = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    found, expected = (
        est.average_effects(X, y, population=False).std_err[0, 0]
        for est in (bent, line)
    )
    assert found < 1.3 * expected


@pytest.mark.parametrize("times", [1 / 200, 50.25])
def test_units_of_weights_change_no_error(times):
    X, y = draw_rows(200, 4)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 200)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y, sample_weight=weight)
    once, other = (
        est.average_effects(X, y, sample_weight=w).std_err
        for w in (weight, weight * times)
    )
    assert other == pytest.approx(once, rel=1e-9)


def test_weights_that_are_no_counts_have_the_errors_of_statsmodels():
    X, y = draw_rows(200, 5)
    weight = np.random.default_rng(1).lognormal(size=200)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y, sample_weight=weight)
    truth = sm.WLS(y, sm.add_constant(X), weights=weight).fit(cov_type="HC3").bse[1:]
    assert est.conf_int(cov_type="HC3").std_err == pytest.approx(truth, rel=1e-6)


def test_a_curve_has_an_average_in_a_group_that_is_a_range_of_its_feature():
    X, y = draw_rows(300, 6)
    est = NIMORegressor(alpha=0.0, max_iter=0, basis="spline").fit(X, y)
    found = est.average_effects(X, y, by=X[:, 0] > 0)
    assert np.isfinite(found.effect).all()
    assert np.isfinite(found.std_err).all()


def test_after_a_fit_with_groups_rows_of_a_group_go_together():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 5)
    level = rng.normal(size=(30, 2))
    X = np.column_stack([level[groups, 0], rng.normal(size=150)])
    y = X.sum(1) + level[groups, 1] + 0.3 * rng.normal(size=150)
    search = NIMORegressorCV(basis="linear", n_starts=1, random_state=0)
    est = search.fit(X, y, groups=groups)
    assert est.conf_int().cov_type == "cluster"
    found, asked = (est.average_effects(X, y, groups=g) for g in (None, groups))
    np.testing.assert_array_equal(found.std_err, asked.std_err)
    alone = est.average_effects(X, y, groups=np.arange(150))
    assert found.std_err[0, 0] > 1.3 * alone.std_err[0, 0]
    # A line at one unit from the reference has the error of its coefficient.
    at = est.reference_[0] + np.array([0.0, 1.0])
    band = est.curve_band("x0", values=at)
    assert band.std_err[1] == pytest.approx(est.conf_int().std_err[0], rel=1e-6)
    told = {row.name: row for row in est.summary().rows}["x0"]
    assert told.average_lower <= found.lower[0, 0] + 1e-9
    assert told.average_upper >= found.upper[0, 0] - 1e-9


def test_effects_that_no_row_tells_are_not_known():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    y = X["a"] + rng.normal(size=200)
    est = NIMORegressor(alpha=0.0, max_iter=0)
    plain = est.fit(X, y).average_effects(X, y)
    twice = X.assign(c=X["a"])
    found = est.fit(twice, y).average_effects(twice, y)
    assert np.isnan(found.effect[0, [0, 2]]).all()
    np.testing.assert_allclose(found.effect[0, 1], plain.effect[0, 1], rtol=1e-6)
    np.testing.assert_allclose(found.std_err[0, 1], plain.std_err[0, 1], rtol=0.02)


def test_a_level_that_counts_as_another_has_no_effect_of_its_own():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=200), "g": rng.choice(["p", "q"], 200)})
    X.loc[:2, "g"] = "rare"
    y = X["a"] + 5.0 * (X["g"] == "rare") + rng.normal(size=200)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    frame = est.average_effects(X, y).to_frame().set_index("coefficient")
    assert frame.loc["g[rare]"].isna().all()
    assert frame.drop("g[rare]").notna().all(axis=None)


@pytest.mark.slow
def test_rows_of_no_weight_are_rows_that_are_not_there():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y, weight = X[:, 0] * (1 + X[:, 1]) + rng.normal(size=150), np.ones(150)
    weight[100:] = 0.0
    some, rows = (X[:100], y[:100]), {"sample_weight": weight}
    search = NIMORegressorCV(n_starts=1, random_state=0)
    found = search.fit(X, y, **rows).average_effects(X, y, **rows)
    again = search.fit(*some).average_effects(*some)
    np.testing.assert_allclose(found.std_err, again.std_err, rtol=1e-9)
    assert found.held_out and again.held_out
    est = NIMORegressor(alpha=0.0, max_iter=0)
    distance = est.fit(X, y, **rows).influence(X, y, **rows).distance[:100]
    expected = est.fit(*some).influence(*some).distance
    np.testing.assert_allclose(distance, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Constant column")
def test_a_constant_column_has_neither_effect_nor_error():
    X, y = draw_rows(100, 0)
    X[:, 1] = 7.0
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    found = est.average_effects(X, y).to_frame()
    known = found[["effect", "std_err", "lower", "upper"]].notna().to_numpy()
    assert known.all(1).tolist() == [True, False, True]
    assert known.any(1).tolist() == [True, False, True]


@pytest.mark.parametrize("noise", [0.2, 0.02])
def test_effects_that_others_tell_almost_as_well_have_no_errors(noise):
    """A variance inflation factor of a hundred is the end; below it they are HC3."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 1] = X[:, 0] + noise * X[:, 1]
    y = X.sum(axis=1) + rng.normal(size=300)
    found = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y).average_effects(X, y)
    truth = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC3")
    inflated = 1 / (1 - np.corrcoef(X[:, 0], X[:, 1])[0, 1] ** 2) > 100
    assert inflated == (noise < 0.1)
    expected = np.where([inflated, inflated, False], np.nan, truth.bse[1:])
    np.testing.assert_allclose(found.std_err[0], expected, rtol=RELATIVE)
