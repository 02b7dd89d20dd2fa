"""Tails are drawn in where rows left out are predicted better so."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from sknimo import NIMORegressorCV
from sknimo.families import BINOMIAL, SOFTMAX, get_family
from sknimo.features import FeatureOptions
from sknimo.rows import WeightedRows
from sknimo.training import CurveRules
from sknimo.training._tails import draw_tails

N_ROWS = 250


def draw(n_rows=N_ROWS, seed=0, spread=2.0):
    """Two columns with long tails, one without."""
    z = np.random.default_rng(seed).normal(size=(n_rows, 3))
    return np.column_stack([np.exp(spread * z[:, :2]), z[:, 2]])


def choose(X, y, family="gaussian", basis="auto", weight=None):
    if family == "gaussian":
        y = (y - y.mean()) / y.std()
    order = np.argsort(y, kind="stable")
    weight = np.ones(len(y)) if weight is None else weight
    rows = WeightedRows(X, np.asarray(y, float), weight, np.zeros(len(y))).take(order)
    family = get_family(family) if isinstance(family, str) else family
    names, levels = ("a", "b", "c"), (None,) * 3
    how = FeatureOptions(basis="ramps", input_scaling="ramps")
    return draw_tails(rows, names, levels, basis, how, family, CurveRules())


@pytest.mark.parametrize("seed", range(3))
def test_effects_by_orders_of_magnitude_draw_them_in(seed):
    X = draw(seed=seed)
    noise = 0.3 * np.random.default_rng(seed + 9).normal(size=N_ROWS)
    assert choose(X, np.log(X[:, 0]) - np.log(X[:, 1]) + noise) == (0, 1)


@pytest.mark.parametrize("seed", range(3))
def test_effects_in_proportion_do_not(seed):
    X = draw(seed=seed, spread=1.0)
    noise = 0.3 * np.random.default_rng(seed + 9).normal(size=N_ROWS)
    assert choose(X, X[:, 0] + X[:, 1] + noise) == ()


def test_classes_and_counts_are_asked_too():
    X = draw(seed=4)
    eta = np.log(X[:, 0]) / 2
    rng = np.random.default_rng(5)
    likely = rng.random(N_ROWS) < 1 / (1 + np.exp(-2 * eta))
    assert choose(X, likely, BINOMIAL) == (0, 1)
    assert choose(X, rng.poisson(np.exp(eta)), "poisson") == (0, 1)


def test_columns_without_tails_or_with_a_basis_of_the_users_are_left_alone():
    X, noise = draw(), 0.1 * np.random.default_rng(1).normal(size=N_ROWS)
    y = np.log(X[:, 0]) + np.log(X[:, 1]) + noise
    assert choose(np.arcsinh(X), y) == ()
    assert choose(X, y, basis="ramps") == ()
    assert choose(X, y, basis={"a": "auto", "b": "spline"}) == (0,)


def test_several_classes_are_not_asked():
    X = draw()
    assert choose(X, np.digitize(X[:, 0], [0.3, 3.0]), SOFTMAX) == ()


@pytest.mark.slow
def test_a_search_predicts_rows_far_out_as_well_as_on_logarithms():
    X, new = draw(seed=2), draw(2000, seed=3)
    rng = np.random.default_rng(6)

    def truth(X):
        return np.log(X[:, 0]) * (1 + 0.5 * X[:, 2]) + np.log(X[:, 1])

    y = truth(X) + 0.3 * rng.normal(size=N_ROWS)
    est = NIMORegressorCV(n_starts=2, n_members=4, n_jobs=1, random_state=0)
    logs, new_logs = (np.column_stack([np.log(A[:, :2]), A[:, 2]]) for A in (X, new))
    best = r2_score(truth(new), est.fit(logs, y).predict(new_logs))
    score = r2_score(truth(new), est.fit(X, y).predict(new))
    assert best - score < 0.05
    assert est.effects(X).kinds[:2] == ("curve", "curve")
    # Coefficients are slopes at the mean, by differences of eta.
    at, step = est.reference_, 1e-4 * X.std(axis=0)
    eta = [est.predict(at + side * np.diag(step)) for side in (1, -1)]
    assert est.coef_ == pytest.approx((eta[0] - eta[1]) / (2 * step), rel=1e-5)
