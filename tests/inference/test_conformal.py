"""Intervals of the next observation hold what they promise on rows held out."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV, load
from sknimo.inference import Conformal
from sknimo.inference._conformal import GRANTED, Width, fit_width, sort_scores

from .conftest import draw_rows, quick_search


def test_quantiles_are_those_of_exchangeable_scores():
    """With n scores the k-th of them exceeds a new one with probability k/(n + 1)."""
    values = np.random.default_rng(0).normal(size=99)
    found = sort_scores(values, np.ones(99))
    ordered = np.sort(values)
    assert found.highest(0.95) == ordered[94]  # 95 of 100 places are below
    assert found.lowest(0.95) == ordered[4]
    assert found.highest(0.991) == np.inf
    assert found.lowest(0.991) == -np.inf


def test_whole_weights_equal_repetition():
    values, weight = np.array([3.0, 1.0, 2.0]), np.array([1, 3, 2])
    once = sort_scores(np.repeat(values, weight), np.ones(6))
    weighted = sort_scores(values, weight.astype(float))
    assert weighted.n_rows == 6
    for share in (0.3, 0.5, 0.8):
        assert weighted.highest(share) == once.highest(share)
        assert weighted.lowest(share) == once.lowest(share)


def test_equal_rows_are_as_many_as_there_are():
    """Two levels and ten counts are hardly twenty distinct rows, but 300 rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"g": rng.choice(["x", "y"], 300)})
    y = rng.poisson(2.0 + 2.0 * (X["g"] == "y"))
    est = NIMORegressorCV("poisson", n_starts=1, random_state=0).fit(X, y)
    found = est.predict_interval(X, level=0.95)
    assert np.isfinite(found.upper).all()
    inside = (found.lower <= y) & (y <= found.upper)
    assert 0.94 <= inside.mean() < 1


def test_many_scores_are_thinned_out_without_narrowing():
    values = np.random.default_rng(0).normal(size=20_000)
    found = sort_scores(values, np.ones(20_000))
    assert found.table.shape[1] < 1200
    for share in (0.5, 0.9, 0.99, 0.9999):
        exact = np.sort(values)[int(np.ceil(share * 20_001)) - 1]
        assert exact <= found.highest(share) <= exact + 0.05 * (share < 0.999)


def test_a_width_follows_its_column():
    random = np.random.default_rng(0)
    column = random.normal(size=(2000, 2))
    size = np.abs(random.normal(size=2000)) * np.exp(0.8 * column[:, 0])
    width, own = fit_width(column, size, np.ones(2000))
    assert abs(width.coef[0] - 0.8) < 0.1
    assert abs(width.coef[1]) < 0.1
    assert np.corrcoef(np.log(own), column[:, 0])[0, 1] > 0.99


def test_a_width_without_cause_is_constant():
    random = np.random.default_rng(1)
    size = np.abs(random.normal(size=300))
    width, own = fit_width(random.normal(size=(300, 20)), size, np.ones(300))
    assert not width.coef.any()
    # All but the row itself: hardly anything.
    assert np.ptp(own) < 0.05 * own.mean()


def test_a_share_of_new_rows_lies_within(case):
    X, y = draw_rows(4000, 1)
    for adapt in (False, True):
        found = case.est.predict_interval(X, level=0.8, adapt=adapt)
        inside = np.mean((found.lower <= y) & (y <= found.upper))
        # 300 scores: the share has a standard deviation of 0.023.
        assert abs(inside - 0.8) < 0.06
    assert found.to_frame().shape == (4000, 3)


def test_an_adapted_width_is_right_in_quiet_and_in_loud_rows(case):
    X, y = draw_rows(4000, 2)
    plain, adapted = (
        case.est.predict_interval(X, level=0.8, adapt=adapt) for adapt in (False, True)
    )
    quiet = X[:, 0] < -0.7
    share = [
        np.mean((f.lower <= y) & (y <= f.upper), where=quiet) for f in (plain, adapted)
    ]
    assert share[0] > 0.93  # far too wide there
    assert share[1] < share[0] - 0.05
    assert adapted.width[quiet].mean() < 0.6 * adapted.width[~quiet].mean()


def test_held_out_rows_calibrate_themselves(case):
    """The share of residuals within the interval is the level, by construction."""
    kept = case.est._held_out
    score = case.y - kept.eta
    conformal: Conformal = case.est._conformal
    low, high = conformal.plain.lowest(0.95), conformal.plain.highest(0.95)
    inside = np.sum((low <= score) & (score <= high))
    place = int(np.ceil(0.95 * 301))  # of either end, counted from the other
    assert inside == 2 * place - 300


def test_scores_of_folds_have_the_size_of_residuals_left_out():
    random = np.random.default_rng(0)
    scores = sort_scores(random.normal(size=200), random.uniform(size=200))
    folds = Conformal(scores, scores.times(2.0), Width(*np.zeros((2, 1)), 0, 0, 0))
    folds = replace(folds, by_folds=True)
    size = np.average(
        np.abs(scores.table[0]), weights=np.diff(scores.table[1:], axis=0)[0]
    )
    for left_out, factor in ((size / 2, GRANTED / 2), (2 * size, 1.0), (np.nan, 1.0)):
        found = folds.of_all_rows(left_out)
        assert found.plain.highest(0.9) == pytest.approx(factor * scores.highest(0.9))
        assert found.adapted.lowest(0.9) == pytest.approx(
            2 * factor * scores.lowest(0.9)
        )
        assert found.of_all_rows(size / 9) is found  # as are scores of new rows


def test_counts_have_whole_bounds_and_no_negative_ones():
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 2))
    y = random.poisson(np.exp(0.5 + 0.4 * X[:, 0]))
    est = NIMORegressor("poisson", max_iter=0).fit(X[:200], y[:200])
    est.calibrate_interval(X[200:], y[200:])
    found = est.predict_interval(X)
    assert (found.lower == np.round(found.lower)).all()
    assert (found.upper == np.round(found.upper)).all()
    assert (found.lower >= 0).all()
    assert (found.upper >= found.lower).all()


def test_gamma_intervals_are_as_wide_as_the_mean():
    random = np.random.default_rng(0)
    X = random.normal(size=(800, 2))
    y = random.gamma(3.0, np.exp(X[:, 0]) / 3)
    est = NIMORegressor("gamma", alpha=0.0, max_iter=0).fit(X[:100], y[:100])
    found = est.calibrate_interval(X[100:], y[100:]).predict_interval(X, adapt=False)
    ratio = found.upper / found.prediction
    assert np.ptp(ratio) < 1e-9
    # Quantiles of the law itself; 700 rows have seen it.
    exact = stats.gamma(3.0, scale=1 / 3).ppf([0.05, 0.95])
    np.testing.assert_allclose(
        [found.lower[0], found.upper[0]] / found.prediction[0], exact, rtol=0.2
    )


def test_sets_hold_the_class_that_comes():
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 2))
    y = np.where(random.random(3000) < 1 / (1 + np.exp(-2 * X[:, 0])), "sick", "well")
    est = NIMOClassifier(max_iter=0).fit(X[:200], y[:200])
    est.calibrate_interval(X[200:1200], y[200:1200])
    found = est.predict_interval(X[1200:], level=0.9)
    column = (y[1200:] == est.classes_[1]).astype(int)
    assert abs(found.member[np.arange(1800), column].mean() - 0.9) < 0.03
    assert list(found.to_frame().columns) == ["prediction", "in_sick", "in_well"]


def test_files_keep_intervals(case, tmp_path):
    case.est.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo")
    before, after = (e.predict_interval(case.X) for e in (case.est, again))
    assert (before.lower == after.lower).all()
    assert (before.upper == after.upper).all()
    assert str(again.summary()) == str(case.est.summary())


def test_a_fit_without_held_out_rows_says_what_to_do(case):
    est = NIMORegressor(max_iter=0).fit(case.X, case.y)
    with pytest.raises(ValueError, match="calibrate_interval"):
        est.predict_interval(case.X)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        case.est.predict_interval(case.X, level=90)
    with pytest.raises(ValueError, match="kind"):
        case.est.predict_interval(case.X, kind="soon")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_nine_of_ten_new_rows_lie_within(family):
    inside = []
    for seed in range(67):
        random = np.random.default_rng(seed)
        X = random.normal(size=(2200, 3))
        eta = 0.5 * X[:, 0] * (1 + np.tanh(X[:, 1])) - 0.3 * X[:, 2]
        y = {
            "gaussian": eta + random.normal(size=len(eta)),
            "poisson": random.poisson(np.exp(eta + 1)),
            "gamma": random.gamma(2.0, np.exp(eta) / 2),
        }[family]
        est: NIMORegressorCV = quick_search(family=family).fit(X[:200], y[:200])
        found = est.predict_interval(X[200:])
        inside.append(np.mean((found.lower <= y[200:]) & (y[200:] <= found.upper)))
    assert 0.87 < np.mean(inside) < 0.94


@pytest.mark.parametrize("family", ["gamma", "tweedie(1.5)"])
def test_intervals_do_not_depend_on_the_unit_of_the_target(family):
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 2))
    y = random.gamma(2.0, np.exp(0.5 * X[:, 0]))

    def upper(unit):
        est = NIMORegressor(family, alpha=0.0, max_iter=0).fit(X, y * unit)
        known = est.calibrate_interval(X, y * unit)
        return known.predict_interval(X).upper / unit

    np.testing.assert_allclose(upper(1e-9), upper(1.0), rtol=1e-6)


def test_a_row_of_a_whole_weight_calibrates_as_so_many_rows():
    X, y = draw_rows(150, 3)
    weight = np.arange(150) % 3 + 1
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    rows = np.repeat(np.arange(150), weight)
    found, known = (
        est.calibrate_interval(X[at], y[at], sample_weight=w).predict_interval(X)
        for at, w in ((slice(None), weight.astype(float)), (rows, None))
    )
    assert np.ptp(found.upper - found.lower) > 0  # the width adapts
    np.testing.assert_allclose(found.lower, known.lower, rtol=1e-10)
    np.testing.assert_allclose(found.upper, known.upper, rtol=1e-10)
