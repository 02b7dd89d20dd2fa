"""Additive models of several classes against scikit-learn, and what leaves them.

Shapes: n rows, C classes, q terms.
"""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sknimo.solver import AdditiveOptions, ClassRows, fit_classes, minimise
from sknimo.solver import _softmax as module

ORACLE_ATOL = 1e-5  # two solvers, each to its own tolerance


@pytest.fixture(scope="module")
def data():
    """Terms (n, 4), of which the last does nothing, and numbers of three classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    coef = np.array([[2.0, 0, -2], [1, -1, 0], [0, 1, -1], [0, 0, 0]])
    return X, (X @ coef + rng.gumbel(size=(300, 3))).argmax(1)


@pytest.fixture(scope="module")
def rows(data):
    X, y = data
    columns = torch.as_tensor(np.column_stack([X, np.ones(len(X))]))
    truth = torch.nn.functional.one_hot(torch.as_tensor(y), 3).double()
    weight = torch.as_tensor(1.0 + np.arange(len(X)) % 3)
    return ClassRows(columns, truth, weight)


@pytest.mark.parametrize("some", [20_000, 50], ids=["all rows", "some rows"])
@pytest.mark.parametrize("ridge", [1e-3, 3.0])
def test_minimum_is_that_of_scikit_learn(some, ridge, data, rows, monkeypatch):
    """Whatever rows the curvature is taken from."""
    monkeypatch.setattr(module, "CURVATURE_ROWS", some)
    start = torch.zeros(3, 5).double()
    each = torch.full((4,), ridge).double()
    found = minimise(rows, start, each, rows.curvature(start), 60)
    other = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000)
    other.fit(*data, sample_weight=rows.weight.numpy())
    np.testing.assert_allclose(found[:, :4], other.coef_, atol=ORACLE_ATOL)


def test_a_group_leaves_all_classes_or_none(data):
    """Of six features that do nothing some leave, and what leaves is gone from all."""
    X, y = data
    noise = np.random.default_rng(1).normal(size=(len(X), 6))
    columns = torch.as_tensor(np.column_stack([X[:, :3], noise, np.ones(len(X))]))
    truth = torch.nn.functional.one_hot(torch.as_tensor(y), 3).double()
    rows = ClassRows(columns, truth, torch.ones(len(X)).double())
    group, is_curve = torch.arange(9), torch.zeros(9, dtype=torch.bool)
    fit = fit_classes(rows, group, is_curve, AdditiveOptions())
    gone = fit.coef == 0
    assert torch.equal(gone.any(0), gone.all(0))
    assert 2 <= int(gone[0, 3:].sum())
    assert not gone[:, :3].any()
    torch.testing.assert_close(fit.coef.sum(0), torch.zeros(9).double())
