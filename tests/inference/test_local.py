"""Errors of contributions and local coefficients: closed form, finite differences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo import NIMORegressor, load
from sknimo.inference._means import between

sm = pytest.importorskip("statsmodels.api")


@pytest.fixture(scope="module")
def straight():
    """A fit without a network and a penalty; statsmodels' errors."""
    random = np.random.default_rng(0)
    X = np.c_[3 * random.normal(size=80) + 1, random.normal(size=80)]
    y = X[:, 0] / 3 - X[:, 1] + random.normal(size=80)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    return X, est, sm.OLS(y, sm.add_constant(X)).fit().bse[1:]


def test_without_a_network_errors_are_distances_times_those_of_coefficients(straight):
    X, est, theirs = straight
    found = est.explain(X)
    away = np.abs(X - est.reference_)
    np.testing.assert_allclose(found.std_err, away * theirs, atol=1e-9)
    np.testing.assert_allclose(found.coef_std_err, np.tile(theirs, (80, 1)), rtol=1e-6)
    low, high = found[:5].band(0.9)
    np.testing.assert_allclose(high - low, 2 * 1.644854 * found.std_err[:5], rtol=1e-6)
    assert found.to_frame("std_err").shape == X.shape


def test_methods_that_follow_the_whole_function_have_none(straight):
    X, est, _ = straight
    found = est.explain(X[:3], method="shapley")
    assert found.std_err is None
    with pytest.raises(ValueError, match="no standard errors"):
        found.band()
    with pytest.raises(ValueError, match="no coef_std_err"):
        found.to_frame("coef_std_err")


def test_members_count_by_their_weight_and_not_by_their_scale(straight):
    X, est, _ = straight
    one, table = est.model_, X[:4]

    def members(scale):
        """Two bent members, coefficients 1 and 1.2, multiplied, and a straight one."""
        times = torch.tensor([[1.0 * scale], [1.2 * scale], [1.0]]).double()
        model = replace(
            one,
            coef=one.coef * times,
            intercept=one.intercept * times[:, 0],
            params=one.params.repeat(3, 1),
            modulated=torch.tensor([[True], [True], [False]]).repeat(1, 2),
        )
        known = replace(est._uncertainty, scale=np.array([scale, scale, 1.0]))
        return between(model, known, lambda member: member.eta(table))

    # Of three members two lie 0.2 apart: so is the variance of their mean, weighed.
    expected = (0.2 * one.eta(table)) ** 2 / 2 * (2 / 3) ** 2
    np.testing.assert_allclose(members(1.0), expected, rtol=1e-6)
    np.testing.assert_allclose(members(2.0), 4 * expected, rtol=1e-6)


def test_a_file_keeps_them(case, tmp_path):
    case.est.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo").explain(case.X[:5])
    np.testing.assert_allclose(again.std_err, case.est.explain(case.X[:5]).std_err)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_errors_are_of_the_size_of_a_bootstrap():
    random = np.random.default_rng(1)
    X = random.normal(size=(300, 3))
    y = X[:, 0] * (1 + np.tanh(X[:, 1])) + X[:, 1] + random.normal(size=300)
    how = {"alpha": 0.01, "penalty": "ridge", "hidden": (4, 4), "random_state": 0}
    est = NIMORegressor(**how).fit(X, y)
    found, draws = est.explain(X[:40]), []
    for seed in range(30):
        rows = np.random.default_rng(seed).integers(0, 300, 300)
        draws.append(NIMORegressor(**how).fit(X[rows], y[rows]).explain(X[:40]).values)
    spread = np.std(draws, axis=0)[:, :2].mean()
    assert 0.4 < found.std_err[:, :2].mean() / spread < 2.5
