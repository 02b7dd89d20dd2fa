"""The path of the nested GLM does not care where its table lies.

Shapes: n rows, T penalties, F folds.
"""

import numpy as np
import pytest
import torch

from sknimo.training._folds import Fold
from sknimo.search._path import fit_path, glm_path, largest_alpha, path_loss
from sknimo.families import FAMILIES

SAME_ATOL = 1e-8  # blocks change the order of sums alone
SMALL = 10_000.0  # bytes: a few models and rows at a time


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


def test_a_gaussian_path_takes_one_pass_and_so_do_its_losses(
    folds, make_problem, store
):
    stored = store(make_problem("gaussian", n_rows=90))
    weight = torch.ones(90, dtype=torch.float64)
    glm_path(stored, weight, None, folds, "best", SMALL)
    # The largest penalty, the path of all rows, and two passes for each fold.
    assert stored.columns.n_read == 90 * (2 + 2 * len(folds))


def test_the_loss_of_the_chosen_point_is_known_for_every_fold(folds, make_problem):
    problem = make_problem("gamma", n_rows=90)
    weight = torch.ones(90, dtype=torch.float64)
    path = glm_path(problem, weight, None, folds, "best")
    assert path.fold_loss.mean() == pytest.approx(path.cv_loss[path.index], rel=1e-12)
    alpha = path.alphas[[path.index]]
    for fold, loss in zip(folds, path.fold_loss, strict=True):
        train, held_out = (
            problem.share(torch.as_tensor(part)) for part in (fold.train, fold.held_out)
        )
        again = fit_path(problem, train, alpha).blend(path.relaxation)
        # Solves end at a residual of 1e-7, from wherever they start.
        assert loss == pytest.approx(
            float(path_loss(problem, held_out, again)[0]), abs=1e-6
        )


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
