"""The nested GLM and the best constant, against other libraries and by definition."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch

from sknimo.explain import best_constant
from sknimo.explain._nested import MemoryRows

SM_FAMILY = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
}


def test_predictions_of_the_nested_glm_are_those_of_statsmodels(fitted):
    y = fitted.est._read_target(fitted.y).values
    weight, offset = np.linspace(1, 2, len(y)), np.linspace(-0.2, 0.2, len(y))
    rows = MemoryRows(fitted.model, y, weight, offset)
    design = sm.add_constant(fitted.table[:, fitted.est.coef_ != 0])
    family = SM_FAMILY[fitted.model.family.name]
    oracle = sm.GLM(y, design, family, freq_weights=weight, offset=offset).fit(
        tol=1e-12, tol_criterion="params", maxiter=200
    )
    # The tiny ridge that breaks ties moves nothing that could be seen.
    eta = rows.solved_eta(rows.nested_design(fitted.table)).numpy()
    assert eta == pytest.approx(oracle.predict(which="linear"), abs=1e-6)


def test_no_constant_is_better_than_the_best(fitted):
    family = fitted.model.family
    y = fitted.est._read_target(fitted.y).values.astype(float)
    weight, offset = np.linspace(1, 2, len(y)), np.linspace(-1, 1, len(y))
    best = best_constant(fitted.model, y, weight, offset)

    def loss(at):
        each = family.loss(torch.as_tensor(y), torch.as_tensor(at + offset))
        return float(weight @ each.numpy())

    assert all(loss(best) < loss(best + step) for step in (-1e-3, 1e-3, -1.0, 1.0))
