"""The path of the nested GLM does not care where its table lies.

Shapes: n rows, T penalties, F folds.
"""

import numpy as np
import pytest
import torch

from sknimo.estimators._folds import Fold
from sknimo.estimators._path import fit_path, glm_path, largest_alpha, path_loss
from sknimo.families import FAMILIES

SAME_ATOL = 1e-8  # blocks change the order of sums alone
SMALL = 3000.0  # bytes: a few models and rows at a time


@pytest.fixture
def folds():
    third = np.arange(90) % 3
    weight = np.ones(90)
    return [
        Fold(np.where(third == f, 0, weight), np.where(third == f, weight, 0))
        for f in range(3)
    ]


@pytest.mark.parametrize("family", list(FAMILIES))
def test_stored_columns_have_the_path_of_columns_in_memory(
    family, folds, make_problem, store
):
    problem = make_problem(family, n_rows=90, widths=(1, 2, 1, 1), offset=True)
    weight = torch.ones(90, dtype=torch.float64)
    whole = glm_path(problem, weight, None, folds, "best")
    stored = store(problem)
    parts = glm_path(stored, weight, None, folds, "best", SMALL)
    assert stored.columns.largest < 90
    for name in ("alphas", "coef", "cv_loss"):
        np.testing.assert_allclose(
            getattr(parts, name), getattr(whole, name), rtol=0, atol=SAME_ATOL
        )
    assert (parts.index, parts.relaxation) == (whole.index, whole.relaxation)


def test_the_largest_alpha_just_empties_the_model(make_problem, store):
    problem = store(make_problem("poisson", n_rows=90, widths=(1, 2, 1)))
    share = problem.share(torch.ones(90, dtype=torch.float64))
    largest = largest_alpha(problem, share)
    path = fit_path(problem, share, largest * np.array([1.001, 0.99]))
    assert (path.lasso.coef[0] == 0).all()
    assert (path.lasso.coef[1] != 0).any()


def test_losses_of_a_path_are_those_of_its_rows(make_problem, store):
    problem = make_problem("binomial", n_rows=90)
    share = problem.share(torch.linspace(0.1, 1.0, 90, dtype=torch.float64))
    at = fit_path(problem, share, np.array([0.1, 0.01, 0.001])).lasso
    found = path_loss(store(problem), share, at, SMALL)
    eta = problem.offset + at.intercept[:, None] + at.coef @ problem.terms.T
    by_hand = problem.family.loss(problem.y, eta) @ share[0]
    torch.testing.assert_close(found, by_hand, rtol=1e-12, atol=0)
