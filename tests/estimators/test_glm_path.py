"""Without the network: a relaxed lasso path, as scikit-learn would compute it.

The path and its cross-validation are recomputed fold by fold. Where a test compares
rows with folds given by the user, `sort_rows` first brings the table into the order in
which `fit` keeps it.

Shapes: n rows, p features, T penalties, R relaxations, F folds.
"""

import numpy as np
import pytest
from sklearn.linear_model import (
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    lasso_path,
)
from sklearn.model_selection import KFold

from sknimo.search import Settings

SETTINGS = Settings()
PATH_ATOL = 1e-5  # promised; ours stops at 1e-7, the references at 1e-12
LOSS_RTOL = 1e-5  # held-out losses follow the coefficients

# `make_glm` has no time for restarts and is told so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:max_time=0 s:sklearn.exceptions.ConvergenceWarning"
)


def sort_rows(X, y):
    """The order in which `fit` keeps rows without repeats: by the target."""
    order = np.argsort(y, kind="stable")
    assert len(np.unique(y)) == len(y)
    return X[order], y[order]


def standardise(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


@pytest.fixture
def table(draw_linear):
    """Rows in the order of `fit`, their standardised numbers and three folds."""
    X, y = sort_rows(*draw_linear())
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    return X, y, standardise(X), standardise(y), folds


def held_out_losses(Z, t, alphas, folds):
    """Half mean squared error of every relaxation, penalty and fold, (R, T, F)."""
    losses = np.empty((len(SETTINGS.relaxation), len(alphas), len(folds)))
    for f, (train, test) in enumerate(folds):
        for k, alpha in enumerate(alphas):
            lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
            lasso.fit(Z[train], t[train])
            shrunk = lasso.predict(Z[test])
            kept = np.abs(lasso.coef_) > 1e-9
            free = np.full(len(test), t[train].mean())
            if kept.any():
                ols = LinearRegression().fit(Z[train][:, kept], t[train])
                free = ols.predict(Z[test][:, kept])
            for r, share in enumerate(SETTINGS.relaxation):
                predicted = (1 - share) * shrunk + share * free
                losses[r, k, f] = np.mean((t[test] - predicted) ** 2) / 2
    return losses


def test_penalties_fall_from_the_one_that_empties_the_model(table, make_glm):
    X, y, Z, t, folds = table
    path = make_glm(cv=folds).fit(X, y).path_
    largest = np.abs(Z.T @ t).max() / len(t)
    expected = largest * np.geomspace(1, 1e-3, len(path.alphas))
    assert path.alphas == pytest.approx(expected, rel=1e-10)
    assert not path.coef[0].any()
    assert path.coef[1].any()


def test_coefficients_are_those_of_sklearn_s_lasso_path(table, make_glm):
    X, y, Z, t, folds = table
    path = make_glm(cv=folds).fit(X, y).path_
    _, coef, _ = lasso_path(Z, t, alphas=path.alphas, tol=1e-12, max_iter=100_000)
    np.testing.assert_allclose(path.coef, coef.T, rtol=0, atol=PATH_ATOL)
    assert np.array_equal(path.coef != 0, np.abs(coef.T) > PATH_ATOL)


def test_weights_enter_the_path(table, make_glm):
    X, y, *_ = table
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    est = make_glm(alphas=[0.3, 0.1, 0.02], cv=3).fit(X, y, weight)
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    level = np.average(y, weights=weight)
    spread = np.sqrt(np.average((y - level) ** 2, weights=weight))
    for alpha, coef in zip(est.path_.alphas, est.path_.coef, strict=True):
        lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
        lasso.fit((X - mean) / scale, (y - level) / spread, sample_weight=weight)
        np.testing.assert_allclose(coef, lasso.coef_, rtol=0, atol=PATH_ATOL)


@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_point_has_the_smallest_held_out_loss(seed, make_glm, draw_linear):
    """Relaxing more must gain more than its standard error over the folds."""
    X, y = sort_rows(*draw_linear(n_rows=40, seed=seed))
    Z, t = standardise(X), standardise(y)
    folds = list(KFold(4, shuffle=True, random_state=seed).split(X))
    est = make_glm(cv=folds, alphas=np.geomspace(0.5, 0.001, 12)).fit(X, y)
    path = est.path_
    losses = held_out_losses(Z, t, path.alphas, folds)
    r, k = 0, losses[0].mean(axis=1).argmin()
    for relaxed in range(1, len(SETTINGS.relaxation)):
        best = losses[relaxed].mean(axis=1).argmin()
        gain = losses[r, k] - losses[relaxed, best]
        if gain.mean() > gain.std(ddof=1) / 2:
            r, k = relaxed, best
    assert (path.relaxation, path.index) == (SETTINGS.relaxation[r], k)
    assert est.alpha_ == path.alphas[k]
    assert path.cv_loss == pytest.approx(losses[r].mean(axis=1), rel=LOSS_RTOL)
    error = losses[r].std(axis=1, ddof=1) / 2  # four folds of equal size
    assert path.cv_error == pytest.approx(error, rel=1e-3)


def test_a_path_that_is_not_relaxed_is_lassocv(make_glm, draw_linear):
    """Many weak effects: shrinking helps, and the choice is that of LassoCV."""
    X, y = sort_rows(*draw_linear(n_rows=48, n_features=12, seed=2, dense=True))
    folds = list(KFold(4, shuffle=True, random_state=1).split(X))
    est = make_glm(cv=folds).fit(X, y)
    path = est.path_
    assert path.relaxation == 0
    Z, t = standardise(X), standardise(y)
    rival = LassoCV(alphas=path.alphas, cv=folds, tol=1e-12, max_iter=100_000)
    rival.fit(Z, t)
    assert est.alpha_ == rival.alpha_
    expected = rival.mse_path_.mean(axis=1) / 2
    assert path.cv_loss == pytest.approx(expected, rel=LOSS_RTOL)
    np.testing.assert_allclose(path.chosen.coef[0], rival.coef_, rtol=0, atol=PATH_ATOL)


@pytest.mark.parametrize("alpha", [0.02, 0.08])
def test_binary_path_is_that_of_sklearn_s_logistic_regression(
    alpha, make_glm, draw_linear
):
    X, _ = draw_linear(n_rows=100)
    rng = np.random.default_rng(0)
    Z = standardise(X)
    labels = (rng.random(100) < 1 / (1 + np.exp(-Z[:, 1] + Z[:, 3]))).astype(int)
    est = make_glm("binomial", alphas=[alpha, 2 * alpha], cv=2)
    path = est.fit(X, labels).path_
    modern = LogisticRegression().get_params()["penalty"] == "deprecated"
    kind = {"l1_ratio": 1.0} if modern else {"penalty": "l1"}
    # Sums the losses that we average; the intercept of saga is not penalised.
    rival = LogisticRegression(
        C=1 / (alpha * 100),
        solver="saga",
        tol=1e-12,
        max_iter=100_000,
        random_state=0,
        **kind,
    ).fit(Z, labels)
    assert path.alphas.tolist() == [2 * alpha, alpha]
    np.testing.assert_allclose(path.coef[1], rival.coef_[0], rtol=0, atol=PATH_ATOL)


def test_given_penalties_are_used_from_the_largest_down(table, make_glm):
    X, y, *_, folds = table
    est = make_glm(alphas=[0.01, 0.2, 0.05], cv=folds).fit(X, y)
    assert est.path_.alphas.tolist() == [0.2, 0.05, 0.01]
    assert est.alpha_ == est.path_.alphas[est.path_.index]
    assert est.path_.coef.shape == (3, 6)
    assert est.path_.cv_loss.shape == est.path_.cv_error.shape == (3,)


def test_given_penalties_are_left_alone(data, make_glm):
    alphas = [0.01, 0.2]
    est = make_glm(alphas=alphas).fit(*data)
    assert est.alphas is alphas
    assert alphas == [0.01, 0.2]


def test_one_penalty_is_a_path(data, make_glm):
    est = make_glm(alphas=0.1).fit(*data)
    assert est.alpha_ == 0.1


@pytest.mark.parametrize("seed", range(4))
def test_the_one_standard_error_rule_never_keeps_more_features(
    seed, make_glm, draw_linear
):
    X, y = draw_linear(n_rows=50, n_features=8, seed=seed)
    best, sparse = (make_glm(rule=rule).fit(X, y) for rule in ("min", "1se"))
    assert sparse.alpha_ >= best.alpha_
    assert sparse.path_.relaxation == best.path_.relaxation
    n_best, n_sparse = (
        np.count_nonzero(est.path_.chosen.coef) for est in (best, sparse)
    )
    assert n_sparse <= n_best
    assert np.count_nonzero(sparse.coef_) <= np.count_nonzero(best.coef_)
    loss, error = best.path_.cv_loss, best.path_.cv_error
    k = best.path_.index
    assert loss[sparse.path_.index] <= loss[k] + error[k]
    assert (loss[: sparse.path_.index] > loss[k] + error[k]).all()


@pytest.mark.parametrize("seed", [1, 2, 4])  # draws whose path is relaxed
def test_the_one_standard_error_rule_holds_where_shrinking_hurts(
    seed, make_search, draw_linear
):
    """The unshrunken fit may not keep what the rule's support leaves out."""
    X, y = draw_linear(n_rows=200, n_features=8, noise=0.3, seed=seed)
    options = {"alphas": None, "n_starts": 1, "max_iter": 30, "cv": 5}
    sparse = make_search(rule="1se", **options).fit(X, y)
    assert sparse.path_.relaxation > 0
    assert sparse.n_members_ == 0
    chosen = sparse.path_.chosen.coef[0].numpy() != 0
    assert not (sparse.coef_ != 0)[~chosen].any()


@pytest.mark.slow
def test_the_one_standard_error_rule_changes_an_unshrunken_model(make_search):
    """A weak effect: the evidence wants it, the folds' error hides it."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(120, 5))
    y = X[:, 0] + 0.15 * X[:, 1] + 0.5 * rng.normal(size=120)
    options = {"alphas": None, "n_starts": 1, "max_iter": 30, "cv": 5}
    best, sparse = (
        make_search(rule=rule, **options).fit(X, y) for rule in ("min", "1se")
    )
    assert best.path_.relaxation > 0
    assert np.flatnonzero(best.coef_).tolist() == [0, 1]
    assert np.flatnonzero(sparse.coef_).tolist() == [0]


def test_the_one_standard_error_rule_can_be_sparser(make_glm, draw_linear):
    X, y = draw_linear(n_rows=50, n_features=8, noise=2.0, seed=0)
    best, sparse = (
        np.count_nonzero(make_glm(rule=rule).fit(X, y).path_.chosen.coef)
        for rule in ("min", "1se")
    )
    assert sparse < best
