"""Influence: statsmodels' numbers without a network, real refits with one."""

from copy import deepcopy

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy.stats import spearmanr
from sklearn.datasets import load_breast_cancer, load_diabetes

from sknimo import NIMOClassifier, NIMORegressor

from .conftest import draw_rows

# Both sides solve the same equations; the fit iterates to about this.
TOL = 1e-8


def test_least_squares_is_exact():
    X, y = draw_rows(60, 0)
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
    found = est.influence(X, y)
    truth = sm.OLS(y, sm.add_constant(X)).fit().get_influence()
    np.testing.assert_allclose(found.leverage, truth.hat_matrix_diag, atol=TOL)
    np.testing.assert_allclose(found.distance, truth.cooks_distance[0], atol=TOL)
    left = y - truth.resid_press
    np.testing.assert_allclose(found.left_out, left, atol=TOL)
    assert found.to_frame().shape == (60, 4)


def test_classes_are_those_of_statsmodels():
    X, y = draw_rows(80, 1)
    z = (y > 0).astype(int)
    z[:10] = 1 - z[:10]  # not separated
    est = NIMOClassifier(alpha=0.0, max_iter=0).fit(X, z)
    found = est.influence(X, z)
    fit = sm.GLM(z, sm.add_constant(X), family=sm.families.Binomial()).fit(tol=1e-12)
    truth = fit.get_influence()
    np.testing.assert_allclose(found.leverage, truth.hat_matrix_diag, atol=1e-6)
    np.testing.assert_allclose(found.distance, truth.cooks_distance[0], atol=1e-6)


def test_a_penalty_lowers_leverage():
    X, y = draw_rows(60, 2)
    free = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y).influence(X, y)
    est = NIMORegressor(alpha=0.5, penalty="ridge", max_iter=0).fit(X, y)
    found = est.influence(X, y)
    assert found.n_effective < free.n_effective
    np.testing.assert_allclose(found.leverage.sum(), found.n_effective, rtol=1e-6)


def test_a_search_can_be_asked(case):
    found = case.est.influence(case.X, case.y)
    assert ((found.leverage > 0) & (found.leverage < 1)).all()
    # Without itself a row is predicted worse.
    worse = np.abs(case.y - found.left_out) >= np.abs(case.y - found.prediction) - 1e-9
    assert worse.all()


def compare_with_refits(est, X, y, every):
    """Rank correlation of changes of the own prediction, and of all predictions.

    On the linear predictor, all predictions as certain as each is. A fit that goes on
    where it was also moves with all rows, which is taken off.
    """
    found = est.influence(X, y)
    whole = deepcopy(est).fit(X, y)._eta(X)
    family, at = est.model_.family, torch.as_tensor(whole)
    sure = family.curvature(family.mean(at), at).numpy()
    both = (torch.as_tensor(x) for x in (found.left_out, found.prediction))
    left, before = (family.link_function(x).numpy() for x in both)
    rows = np.arange(0, len(y), every)
    own, all_rows = [], []
    for i in rows:
        kept = np.arange(len(y)) != i
        # The penalty is one of the mean loss: this keeps its weight beside the others.
        same = deepcopy(est).set_params(alpha=est.alpha * len(y) / (len(y) - 1))
        moved = same.fit(X[kept], y[kept])._eta(X) - whole
        own.append(moved[i])
        all_rows.append(np.mean(sure * moved**2))
    ranks = spearmanr(all_rows, found.distance[rows])[0]
    return np.array([spearmanr(own, (left - before)[rows])[0], ranks])


@pytest.mark.slow
@pytest.mark.parametrize("table", ["diabetes", "cancer"])
def test_influence_ranks_rows_as_refits_do(table):
    if table == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        est = NIMORegressor(alpha=0.1, penalty="ridge", basis="spline", max_iter=0)
    else:
        X, y = load_breast_cancer(return_X_y=True)
        X = X[:, :6]
        est = NIMOClassifier(alpha=0.0, max_iter=0)
    assert (compare_with_refits(est.fit(X, y), X, y, 10) >= 0.9).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_network_moves_as_its_linearisation_does():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    y = X[:, 0] * (1 + np.tanh(X[:, 1])) + 0.5 * X[:, 1]
    y = y + 0.3 * random.standard_t(4, size=60)
    est = NIMORegressor(
        alpha=0.02,
        penalty="ridge",
        scale_contributions=False,
        hidden=(3, 3),
        max_iter=2000,
        tol=1e-7,
        patience=50,
        noise=0.0,
        network_alpha=0.0,
        weight_decay=0.02,
        learning_rate=0.01,
        warm_start=True,
        random_state=0,
    )
    est.fit(X, y).set_params(max_iter=1000)
    for _ in range(3):
        est.fit(X, y)
    assert (compare_with_refits(est, X, y, 4) >= 0.9).all()


def test_a_row_of_any_weight_is_left_out_as_a_whole():
    X, y = draw_rows(60, 3)
    weight = np.ones(60)
    weight[:2] = 5.0, 2.5
    off = {"alpha": 0.0, "max_iter": 0}
    est = NIMORegressor(**off).fit(X, y, sample_weight=weight)
    found = est.influence(X, y, sample_weight=weight).left_out
    for row in (0, 1, 7):
        rest = np.arange(60) != row
        alone = NIMORegressor(**off).fit(X[rest], y[rest], sample_weight=weight[rest])
        assert found[row] == pytest.approx(alone.predict(X[[row]])[0], rel=1e-8)


def test_a_row_of_a_whole_weight_is_as_far_off_as_so_many_rows():
    X, y = draw_rows(60, 3)
    weight = np.arange(60) % 4 + 1.0
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y, sample_weight=weight)
    found = est.influence(X, y, sample_weight=weight).distance
    columns = sm.add_constant(X)
    known = sm.WLS(y, columns, weight).fit()
    gram = (columns * weight[:, None]).T @ columns
    variance = weight @ known.resid**2 / (weight.sum() - 4)
    for row in (0, 1, 7):
        left = np.where(np.arange(60) == row, 0.0, weight)
        move = known.params - sm.WLS(y, columns, left).fit().params
        distance = move @ gram @ move / 4 / variance
        assert found[row] == pytest.approx(distance, rel=1e-8)
