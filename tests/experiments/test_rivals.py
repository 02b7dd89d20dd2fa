"""The compact rivals learn what their papers say they can."""

from functools import partial

import numpy as np
import pytest
import torch
from experiments._joint import train_joint
from experiments.rivals import imn, localglmnet, nam
from rivals import Rows, Scaling

from sknimo import NIMORegressor
from sknimo.datasets import make_nimo_regression

NOISE = 0.1


def make_rows(signal, n=300, p=3, seed=0, task="regression"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + 500, p))
    y = signal(X) + NOISE * rng.standard_normal(len(X))
    if task == "classification":
        y = (y > 0).astype(int)
    rows = Rows(X[:n], y[:n], task, 100, scale_target=False)
    return rows, X[n:], y[n:]


@pytest.fixture(autouse=True)
def one_network_each(monkeypatch):
    """Recommended settings without search and ensemble, to save time."""
    monkeypatch.setattr(imn, "WEIGHT_DECAYS", (0.01,))
    monkeypatch.setattr(imn, "DROPOUTS", (0.0,))
    monkeypatch.setattr(nam, "OUTPUT_PENALTIES", (0.001,))
    for module in (nam, localglmnet):
        monkeypatch.setattr(module, "fit", partial(module.fit, n_members=1))


def unexplained(fitted, X, y):
    return np.mean((fitted.predict(X) - y) ** 2) / np.var(y)


def additive(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2


def multiplicative(X):
    return X[:, 0] * (1 + 2 * np.tanh(X[:, 1]))


@pytest.mark.slow
def test_nam_fits_a_sum_of_curves_and_not_a_product():
    rows, X, y = make_rows(additive)
    assert unexplained(nam.fit(rows, 0, 1), X, y) < 0.05
    rows, X, y = make_rows(lambda X: X[:, 0] * X[:, 1])
    assert unexplained(nam.fit(rows, 0, 1), X, y) > 0.8


def test_the_shapes_of_nam_see_one_feature_each():
    torch.manual_seed(0)
    model = nam.NAM(3).eval()
    X = torch.randn(5, 3)
    other = X.clone()
    other[:, 1] += 1
    same = (model.shapes(X) == model.shapes(other)).all(0).tolist()
    assert same == [True, False, True]
    eta = model.shapes(X).sum(1) + model.bias
    assert torch.equal(model(X), eta)


@pytest.mark.slow
@pytest.mark.parametrize("module", [imn, localglmnet])
def test_networks_of_coefficients_fit_an_interaction(module):
    rows, X, y = make_rows(multiplicative)
    assert unexplained(module.fit(rows, 0, 1), X, y) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("module", [imn, localglmnet, nam])
def test_rivals_classify(module):
    rows, X, y = make_rows(lambda X: X[:, 0] - X[:, 1], task="classification")
    labels = module.fit(rows, 0, 1).predict(X)
    assert set(np.unique(labels)) <= {0, 1}
    assert np.mean(labels == y) > 0.9


def test_rivals_repeat_themselves_and_leave_the_global_generator_alone():
    rows, X, _ = make_rows(multiplicative, n=150)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = localglmnet.fit(rows, 0, 1).predict(X)
    assert torch.equal(torch.rand(1), expected)
    again = localglmnet.fit(rows, 0, 1).predict(X)
    assert np.array_equal(first, again)


@pytest.mark.slow
def test_joint_descent_shares_the_model_with_elimination():
    """With a frozen network both are the lasso, whose minimiser is known."""
    data = make_nimo_regression(setting=4, n_samples=150, random_state=0)
    rows = Rows(data.X, data.y, "regression", 0, scale_target=False)
    scaling = Scaling.learn(rows, len(data.y), always=True)
    joint = train_joint(
        scaling.columns(data.X),
        scaling.target(data.y),
        scaling,
        alpha=0.05,
        network_alpha=1e6,  # empties the first layer at once: g = 0
        hidden=(4, 4),
        noise=0.0,
        max_iter=1500,
        learning_rate=0.01,
        seed=0,
    )
    lasso = NIMORegressor(alpha=0.05, max_iter=0).fit(data.X, data.y)
    # Adam with an l1 term ends near the minimiser, not at it.
    assert joint.slopes == pytest.approx(lasso.coef_, abs=0.03)
    assert joint.predict(data.X) == pytest.approx(lasso.predict(data.X), abs=0.15)
