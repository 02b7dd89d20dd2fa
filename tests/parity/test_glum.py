"""With modulation switched off the fit is glum's, offsets and weights included.

glum minimises the weighted mean of half deviances plus `alpha` times the penalty, as we
do; columns are standardised and a Gaussian target scaled before either sees them.

Shapes: n rows, p features.
"""

import numpy as np
import pytest
import torch
from glum import (
    GeneralizedLinearRegressor,
    NegativeBinomialDistribution,
    TweedieDistribution,
)

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.families import FAMILIES, get_family
from sknimo.penalties import make_penalty
from sknimo.solver._profile import Rows, solve_coefficients

COEF_ATOL = 1e-6  # promised
GLUM_TOL = 1e-7  # its gradient norm at the end; below, its line search may give up
N_ROWS, N_FEATURES = 120, 5

CASES = [(family, penalty) for family in FAMILIES for penalty in ("ridge", "lasso")]
GLUM = {
    "gaussian": "normal",
    "negative_binomial": NegativeBinomialDistribution(1.0),
    "tweedie": TweedieDistribution(1.5),
}
# The numbers that the records start from, which are not learned then.
GIVEN = {
    "negative_binomial": "negative_binomial(1.0)",
    "tweedie": "tweedie(1.5)",
}
EVERY_CASE = pytest.mark.parametrize(("family", "penalty"), CASES)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True])
OFFSET = pytest.mark.parametrize("with_offset", [False, True])


@pytest.fixture
def make_table(draw_response):
    """Columns in unequal units with weights and an offset, each if asked for."""

    def make(family, weighted, with_offset, seed=0):
        rng = np.random.default_rng(seed)
        latent = rng.normal(size=(N_ROWS, N_FEATURES))
        latent[:, 1] += 0.6 * latent[:, 0]
        offset = rng.normal(size=N_ROWS) if with_offset else None
        known = 0.0 if offset is None else offset
        truth = np.array([0.5, -0.4, 0.0, 0.3, 0.0])
        y = draw_response(family, known + latent @ truth + 0.2, seed)
        X = latent * np.array([1.0, 10.0, 0.1, 3.0, 50.0]) + 2.0
        weight = rng.uniform(0.2, 3.0, N_ROWS) if weighted else None
        return X, y, weight, offset

    return make


def fitted_glum(family, penalty, alpha, X, y, weight, offset):
    """Coefficients of standardised columns, in the units of y, and the intercept."""
    mean = np.average(X, axis=0, weights=weight)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    y_mean, y_scale = 0.0, 1.0
    if family == "gaussian":
        rest = y if offset is None else y - offset
        y_mean = np.average(rest, weights=weight)
        y_scale = np.sqrt(np.average((rest - y_mean) ** 2, weights=weight))
        y = (y - y_mean) / y_scale
        offset = None if offset is None else offset / y_scale
    model = GeneralizedLinearRegressor(
        family=GLUM.get(family, family),
        link=get_family(family).link,
        alpha=alpha,
        l1_ratio=0.0 if penalty == "ridge" else 1.0,
        gradient_tol=GLUM_TOL,
        max_iter=1000,
        scale_predictors=False,
    )
    model.fit((X - mean) / scale, y, sample_weight=weight, offset=offset)
    return model.coef_ * y_scale, model.intercept_ * y_scale + y_mean, scale


@OFFSET
@WEIGHTED
@EVERY_CASE
def test_inner_solve_is_glum(family, penalty, weighted, with_offset, make_table):
    X, y, weight, offset = make_table(family, weighted, with_offset)
    X = X / X.std(axis=0)  # the solver takes the columns as they are: so must glum
    share = np.ones(N_ROWS) if weight is None else weight
    share = share / share.sum()
    X = (X - share @ X) / np.sqrt(share @ (X - share @ X) ** 2)
    known = np.zeros(N_ROWS) if offset is None else offset
    if family == "gaussian":
        rest = y - known
        y = y - share @ rest
        unit = np.sqrt(share @ (y - known) ** 2)
        y, known = y / unit, known / unit
        offset = None if offset is None else known
    rows = Rows(
        torch.as_tensor(y),
        torch.as_tensor(known),
        torch.as_tensor(share).unsqueeze(0),
        get_family(family),
    )
    strength = torch.tensor([0.05], dtype=torch.float64)
    prices = make_penalty(penalty, strength, torch.arange(N_FEATURES), N_FEATURES)
    design = torch.as_tensor(X).unsqueeze(0)
    at = solve_coefficients(design, rows, prices).coefficients
    coef, intercept, _ = fitted_glum(family, penalty, 0.05, X, y, weight, offset)
    np.testing.assert_allclose(at.coef[0], coef, rtol=0, atol=COEF_ATOL)
    assert at.intercept.item() == pytest.approx(intercept, abs=COEF_ATOL)


@OFFSET
@WEIGHTED
@EVERY_CASE
def test_unbent_estimator_is_glum(family, penalty, weighted, with_offset, make_table):
    X, y, weight, offset = make_table(family, weighted, with_offset)
    options = dict(penalty=penalty, alpha=0.05, max_iter=0)
    if family == "binomial":
        est = NIMOClassifier(**options)
    else:
        est = NIMORegressor(GIVEN.get(family, family), **options)
    est.fit(X, y, sample_weight=weight, offset=offset)
    coef, intercept, scale = fitted_glum(family, penalty, 0.05, X, y, weight, offset)
    np.testing.assert_allclose(est.coef_ * scale, coef, rtol=0, atol=COEF_ATOL)
    assert est.intercept_ == pytest.approx(intercept, abs=COEF_ATOL)
    assert est.certificate_.kkt <= 1e-8
    if penalty == "lasso":
        assert np.array_equal(est.coef_ == 0, np.abs(coef) <= COEF_ATOL)
