"""Intervals of the mean: those of statsmodels without a network."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import norm
from sklearn.datasets import make_friedman1

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV

from .conftest import draw_rows

RELATIVE = 1e-6


def test_a_linear_model_has_the_errors_of_least_squares():
    X, y = draw_rows(100, 0)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    found = est.predict_interval(X, kind="mean", level=0.9)
    truth = sm.OLS(y, sm.add_constant(X)).fit().get_prediction()
    lower, upper = truth.conf_int(alpha=0.1).T
    np.testing.assert_allclose(found.lower, lower, rtol=RELATIVE)
    np.testing.assert_allclose(found.upper, upper, rtol=RELATIVE)
    np.testing.assert_allclose(found.prediction, truth.predicted_mean, rtol=RELATIVE)


def test_levels_and_curves_count_in():
    X, y = draw_rows(150, 1)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["b"] = np.where(frame["b"] > 0, "on", "off")
    est = NIMORegressor(alpha=0.0, max_iter=0, basis={"a": "poly2"}).fit(frame, y)
    found = est.predict_interval(frame, kind="mean")
    on = (frame["b"] == "on").to_numpy(float)
    design = sm.add_constant(np.column_stack([X[:, 0], X[:, 0] ** 2, on, X[:, 2]]))
    truth = sm.OLS(y, design).fit().get_prediction()
    error = found.width / (2 * norm.ppf(0.95))
    # What a curve shares with other features is taken from its slope at the reference.
    assert np.corrcoef(error, truth.se_mean)[0, 1] > 0.98
    assert np.abs(error / truth.se_mean - 1).mean() < 0.1


def test_a_probability_stays_between_zero_and_one():
    X, y = draw_rows(100, 2)
    z = (y > np.median(y)).astype(int)
    est = NIMOClassifier(alpha=0.0, max_iter=0).fit(X, z)
    found = est.predict_interval(X, kind="mean", level=0.95)
    assert ((found.lower > 0) & (found.upper < 1)).all()
    fit = sm.Logit(z, sm.add_constant(X)).fit(disp=0, tol=1e-12)
    eta = sm.add_constant(X) @ fit.params
    wide = np.sqrt(
        ((sm.add_constant(X) @ fit.cov_params()) * sm.add_constant(X)).sum(1)
    )
    upper = 1 / (1 + np.exp(-(eta + norm.ppf(0.975) * wide)))
    np.testing.assert_allclose(found.upper, upper, rtol=1e-5)


def test_where_no_errors_are_known_it_says_why():
    random = np.random.default_rng(0)
    X = random.normal(size=(12, 8))
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, random.normal(size=12))
    with pytest.raises(ValueError, match="no interval of the mean"):
        est.predict_interval(X, kind="mean")


def test_several_classes_are_refused_with_a_remedy():
    X, _ = draw_rows(60, 3)
    est = NIMOClassifier(max_iter=0, alpha=0.01).fit(X, np.arange(60) % 3)
    for ask in (est.predict_interval, lambda x: est.influence(x, np.arange(60) % 3)):
        with pytest.raises(ValueError, match="one class against all others"):
            ask(X)


@pytest.mark.slow
def test_intervals_of_a_mean_do_not_know_the_level_of_the_target():
    """Members that weigh differently had told it apart, a hundred times too wide."""
    X, y = make_friedman1(300, 6, noise=1.0, random_state=1)
    found = []
    for level in (0.0, 100.0):
        est = NIMORegressorCV(n_starts=1, random_state=0).fit(X, y + level)
        assert np.ptp(est._uncertainty.scale) > 0
        found.append(est.predict_interval(X, kind="mean").width)
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    assert np.median(found[0]) < np.median(est.predict_interval(X).width)


@pytest.mark.filterwarnings("ignore:Constant column")
def test_a_constant_column_changes_nothing():
    X, y = draw_rows(100, 0)
    more = np.column_stack([X[:, :1], np.full(100, 7.0), X[:, 1:]])
    found, known = (
        NIMORegressor(alpha=0.0, max_iter=0).fit(x, y).predict_interval(x, kind="mean")
        for x in (more, X)
    )
    np.testing.assert_allclose(found.lower, known.lower, rtol=1e-10)
    np.testing.assert_allclose(found.upper, known.upper, rtol=1e-10)
