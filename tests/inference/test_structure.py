"""Tests of bends find what is there, and no more often than they say what is not."""

import numpy as np
import pytest
import statsmodels.api as sm

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.inference._structure import holm

from .conftest import quick_search


def draw_pairs(seed, strength, n_rows=300):
    """Curves, correlated features, and a product of two of them."""
    random = np.random.default_rng(seed)
    common = random.normal(size=(n_rows, 1))
    X = (common + random.normal(size=(n_rows, 4))) / np.sqrt(2)
    X[:, 3] = X[:, 3] > 0
    eta = np.sin(1.5 * X[:, 0]) + X[:, 1] ** 2 / 2 - X[:, 2] + 0.5 * X[:, 3]
    noise = random.normal(size=n_rows) * np.exp(0.3 * X[:, 0])
    return X, eta + strength * X[:, 1] * X[:, 2], noise


def test_a_product_is_found():
    X, eta, noise = draw_pairs(0, 0.8)
    est = NIMORegressor(basis="spline", max_iter=0).fit(X, eta + noise)
    found = est.test_bends(X, eta + noise)
    assert found.found == (("x1", "x2"),)
    assert found.pairs[0] == ("x1", "x2")
    assert len(found.to_frame()) == 6
    assert np.isnan(found.p_value)  # no rows were held out


def test_the_statistic_is_the_robust_score_test():
    """Against least squares: the product's residual times that of the target."""
    X, eta, noise = draw_pairs(1, 0.3)
    X, y = X[:, :2], eta + noise
    found = NIMORegressor(max_iter=0).fit(X, y).test_bends(X, y)
    base = sm.add_constant(np.column_stack([X, X**2]))
    left = sm.OLS(y, base).fit().resid
    product = sm.OLS(X[:, 0] * X[:, 1], base).fit().resid
    moves = left * product
    np.testing.assert_allclose(
        found.pair_statistic, [moves.sum() ** 2 / (moves**2).sum()], rtol=1e-6
    )
    assert found.df.tolist() == [1]


def test_a_search_tests_any_bend_on_rows_held_out(case):
    found = case.est.test_bends(case.X, case.y)
    assert 0 <= found.p_value <= 1
    if case.est.bend_ == 0:
        assert found.p_value == 1


def test_holm_is_that_of_statsmodels():
    values = np.sort(np.random.default_rng(0).random(9) ** 3)
    from statsmodels.stats.multitest import multipletests

    np.testing.assert_allclose(holm(values, 9), multipletests(values, method="holm")[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "classes"])
def test_false_pairs_are_as_rare_as_stated(kind):
    wrong = []
    for seed in range(200):
        X, eta, noise = draw_pairs(seed, 0.0)
        random = np.random.default_rng(seed)
        est, y = NIMORegressor(basis="spline", max_iter=0), eta + noise
        if kind == "classes":
            y = (random.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
            est = NIMOClassifier(basis="spline", max_iter=0)
        wrong.append(len(est.fit(X, y).test_bends(X, y).found) > 0)
    assert np.mean(wrong) < 0.08  # 0.05 and two standard errors of 200


@pytest.mark.slow
def test_any_bend_is_found_where_there_is_one():
    """A strong product; a search that keeps it must say so."""
    found = []
    for seed in range(10):
        X, eta, noise = draw_pairs(seed, 1.0)
        est = quick_search().set_params(max_iter=20).fit(X, eta + noise)
        found.append(est.test_bends(X, eta + noise).p_value < 0.05)
    assert np.mean(found) > 0.5


@pytest.mark.slow
def test_pairs_are_found_too_often_neither_in_groups_nor_by_weights():
    """Chances of .05 that one of three pairs is found."""
    found = np.zeros(2)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(40), 8)
        X = rng.normal(size=(40, 3))[groups]
        y = X @ [1, 0.5, 0] + rng.normal(size=40)[groups] + rng.normal(size=320)
        est = NIMORegressor(alpha=0, max_iter=0).fit(X, y)
        found[0] += bool(est.test_bends(X, y, groups=groups).found)
        X, weight = rng.normal(size=(200, 3)), np.exp(rng.normal(size=200))
        y = X @ [1, 0.5, 0] + rng.normal(size=200)
        est.fit(X, y, sample_weight=weight)
        found[1] += bool(est.test_bends(X, y, sample_weight=weight).found)
    assert (found <= 6).all()
