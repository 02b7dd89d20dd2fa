"""With modulation switched off the fit is scikit-learn's penalised GLM.

Conventions: our objective is the weighted mean of half deviances plus `alpha / 2 |b|^2`
(ridge) or `alpha |b|_1` (lasso) on standardised columns, with a free intercept; a
Gaussian target has unit variance. The references are fitted to data prepared like that,
with their own scaling of the penalty, and read at the same reference point.

Shapes: n rows, p features.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.linear_model import (
    GammaRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.families import get_family
from sknimo.penalties import make_penalty
from sknimo.solver._profile import Rows, solve_coefficients

COEF_ATOL = 1e-6  # promised; the references stop at about 1e-8
N_ROWS, N_FEATURES = 150, 6

WEIGHTED = pytest.mark.parametrize("weighted", [False, True])
ALPHAS = pytest.mark.parametrize("alpha", [0.01, 0.1])


@dataclass(frozen=True)
class Table:
    """Raw data and the same data standardised."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    scale: np.ndarray
    standard_X: np.ndarray
    y_mean: float
    y_scale: float

    @property
    def total(self):
        """Sum of the weights."""
        return N_ROWS if self.weight is None else self.weight.sum()

    @property
    def standard_y(self):
        return (self.y - self.y_mean) / self.y_scale


@pytest.fixture
def make_table(draw_response):
    """Correlated columns in unequal units, with a sparse linear truth."""

    def make(family, weighted, seed=0):
        rng = np.random.default_rng(seed)
        mixing = np.eye(N_FEATURES) + 0.4 * rng.normal(size=(N_FEATURES, N_FEATURES))
        latent = rng.normal(size=(N_ROWS, N_FEATURES)) @ mixing
        truth = np.array([0.5, -0.4, 0.0, 0.3, 0.0, 0.0])
        y = draw_response(family, latent @ truth + 0.3, seed)
        X = latent * np.array([1.0, 10.0, 0.1, 3.0, 100.0, 1.0]) + np.arange(N_FEATURES)
        weight = rng.uniform(0.2, 3.0, N_ROWS) if weighted else None
        mean = np.average(X, axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        y_mean, y_scale = 0.0, 1.0
        if family == "gaussian":
            y_mean = np.average(y, weights=weight)
            y_scale = np.sqrt(np.average((y - y_mean) ** 2, weights=weight))
        return Table(X, y, weight, scale, (X - mean) / scale, y_mean, y_scale)

    return make


def reference(family, penalty, alpha, table):
    """The estimator of scikit-learn that minimises the same objective."""
    tight = dict(tol=1e-12, max_iter=100_000)
    if family == "gaussian" and penalty == "ridge":
        # Sums the squared errors that we halve and average.
        return Ridge(alpha=alpha * table.total)
    if family == "gaussian":
        return Lasso(alpha=alpha, **tight)
    if family == "binomial":
        # Sums the losses that we average, and multiplies them instead of the penalty.
        strength = dict(C=1 / (alpha * table.total))
        if penalty == "ridge":
            return LogisticRegression(solver="newton-cholesky", **strength, **tight)
        # The intercept of liblinear is penalised, that of saga is not.
        modern = LogisticRegression().get_params()["penalty"] == "deprecated"
        kind = {"l1_ratio": 1.0} if modern else {"penalty": "l1"}
        return LogisticRegression(
            solver="saga", random_state=0, **kind, **strength, **tight
        )
    kind = {"poisson": PoissonRegressor, "gamma": GammaRegressor}[family]
    return kind(alpha=alpha, solver="newton-cholesky", tol=1e-12, max_iter=1000)


def fitted_reference(family, penalty, alpha, table):
    """Standardised coefficients and the intercept at the reference point."""
    y = table.standard_y if family == "gaussian" else table.y
    model = reference(family, penalty, alpha, table)
    model.fit(table.standard_X, y, sample_weight=table.weight)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


CASES = pytest.mark.parametrize(
    ("family", "penalty"),
    [
        ("gaussian", "ridge"),
        ("gaussian", "lasso"),
        ("binomial", "ridge"),
        ("binomial", "lasso"),
        ("poisson", "ridge"),
        ("gamma", "ridge"),
    ],
)


@WEIGHTED
@ALPHAS
@CASES
def test_inner_solve_is_sklearn(family, penalty, alpha, weighted, make_table):
    table = make_table(family, weighted)
    y = table.standard_y if family == "gaussian" else table.y
    weight = np.ones(N_ROWS) if table.weight is None else table.weight
    rows = Rows(
        torch.as_tensor(y),
        torch.zeros(N_ROWS, dtype=torch.float64),
        torch.as_tensor(weight / weight.sum()).unsqueeze(0),
        get_family(family),
    )
    strength = torch.tensor([alpha], dtype=torch.float64)
    prices = make_penalty(penalty, strength, torch.arange(N_FEATURES), N_FEATURES)
    design = torch.as_tensor(table.standard_X).unsqueeze(0)
    at = solve_coefficients(design, rows, prices).coefficients
    coef, intercept = fitted_reference(family, penalty, alpha, table)
    np.testing.assert_allclose(at.coef[0], coef, rtol=0, atol=COEF_ATOL)
    assert at.intercept.item() == pytest.approx(intercept, abs=COEF_ATOL)


@pytest.mark.parametrize("scale_contributions", [False, True])
@WEIGHTED
@ALPHAS
@CASES
def test_unbent_estimator_is_sklearn(
    family, penalty, alpha, weighted, scale_contributions, make_table
):
    table = make_table(family, weighted)
    options = dict(
        penalty=penalty,
        alpha=alpha,
        max_iter=0,
        scale_contributions=scale_contributions,
    )
    if family == "binomial":
        est = NIMOClassifier(**options)
    else:
        est = NIMORegressor(family, **options)
    est.fit(table.X, table.y, sample_weight=table.weight)
    coef, intercept = fitted_reference(family, penalty, alpha, table)
    np.testing.assert_allclose(
        est.coef_ * table.scale, coef * table.y_scale, rtol=0, atol=COEF_ATOL
    )
    expected = intercept * table.y_scale + table.y_mean
    assert est.intercept_ == pytest.approx(expected, abs=COEF_ATOL)
    eta = est.intercept_ + (table.X - est.reference_) @ est.coef_
    predicted = (
        est.predict_proba(table.X)[:, 1]
        if family == "binomial"
        else est.predict(table.X)
    )
    mean = get_family(family).mean(torch.as_tensor(eta)).numpy()
    np.testing.assert_allclose(predicted, mean, rtol=1e-10)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_lasso_keeps_the_features_that_sklearn_keeps(family, make_table):
    table = make_table(family, weighted=False)
    for alpha in (0.02, 0.08):
        options = dict(penalty="lasso", alpha=alpha, max_iter=0)
        binary = family == "binomial"
        est = NIMOClassifier(**options) if binary else NIMORegressor(**options)
        est.fit(table.X, table.y)
        coef, _ = fitted_reference(family, "lasso", alpha, table)
        kept = est.coef_ != 0
        assert 0 < kept.sum() < N_FEATURES
        assert np.array_equal(kept, np.abs(coef) > COEF_ATOL)
