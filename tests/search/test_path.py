"""The path of the nested GLM: its two ends, and that its table may lie anywhere.

Shapes: n rows, T penalties, F folds.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import (
    GammaRegressor,
    Lasso,
    LinearRegression,
    PoissonRegressor,
)

from sknimo.families import FAMILIES
from sknimo.penalties import make_penalty
from sknimo.search import Settings
from sknimo.search._path import fit_path, glm_path, largest_alpha, path_loss
from sknimo.solver import solve_coefficients
from sknimo.training._folds import Fold

SAME_ATOL = 1e-8  # blocks change the order of sums alone
SMALL = 10_000.0  # bytes: a few models and rows at a time
RELAXED_ATOL = 1e-5  # the relaxed fit keeps a ridge of 1e-8


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
    whole = glm_path(problem, weight, folds, Settings(path_length=8))
    stored = store(problem)
    small = Settings(path_length=8, memory_budget=4 * SMALL)
    parts = glm_path(stored, weight, folds, small)
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
    glm_path(stored, weight, folds, Settings(memory_budget=4 * SMALL))
    # The largest penalty, the path of all rows, those of all folds, and their losses.
    assert stored.columns.n_read == 90 * (3 + len(folds))


def test_a_path_of_more_features_than_rows_is_that_of_scikit_learn(make_problem):
    """Each penalty is solved among the features that it asks for."""
    problem = make_problem("gaussian", n_rows=60, widths=(1,) * 150)
    share = problem.share(torch.ones(60, dtype=torch.float64))
    grid = largest_alpha(problem, share) * np.geomspace(1, 0.01, 10)
    path = fit_path(problem, share, grid).lasso
    for alpha, coef, intercept in zip(grid, path.coef, path.intercept, strict=True):
        lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=10**6)
        lasso.fit(problem.terms.numpy(), problem.y.numpy())
        np.testing.assert_allclose(coef, lasso.coef_, rtol=0, atol=1e-7)
        assert float(intercept) == pytest.approx(lasso.intercept_, abs=1e-7)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_path_of_many_features_ends_where_smaller_penalties_predict_no_better(
    family, folds, make_problem
):
    problem = make_problem(family, n_rows=90, widths=(1,) * 70)
    weight = torch.ones(90, dtype=torch.float64)
    if family == "gaussian":
        noise = torch.as_tensor(np.random.default_rng(0).normal(size=90))
        problem = replace(problem, y=5.0 * problem.terms[:, 1] + 9.0 * noise)
    short = glm_path(problem, weight, folds, Settings())
    share = problem.share(weight)
    steps = np.geomspace(1, Settings().path_ratio, Settings().path_length)
    grid = tuple(largest_alpha(problem, share) * steps)
    whole = glm_path(problem, weight, folds, Settings(alphas=grid))
    n_solved = len(short.alphas)
    assert n_solved < len(whole.alphas)
    assert (short.index, short.relaxation) == (whole.index, whole.relaxation)
    for name in ("alphas", "cv_loss"):
        ours, theirs = getattr(short, name), getattr(whole, name)[:n_solved]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    for ours, theirs in (
        (short.chosen, whole.chosen),
        (short.of_folds, whole.of_folds),
    ):
        torch.testing.assert_close(ours.coef, theirs.coef, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_a_glm_path_of_many_features_solves_the_whole_problem(family, make_problem):
    """Among some columns at a time; the solver that sees all of them says the same."""
    problem = make_problem(family, n_rows=60, widths=(1,) * 90 + (2,) * 5)
    share = problem.share(torch.ones(60, dtype=torch.float64))
    grid = largest_alpha(problem, share) * np.geomspace(0.9, 0.4, 3)
    path = fit_path(problem, share, grid)
    for alpha, coef, free in zip(grid, path.lasso.coef, path.free.coef, strict=True):
        price = torch.tensor([alpha], dtype=torch.float64)
        n_features = problem.spec.n_features
        lasso, ridge = (
            make_penalty(name, strength, problem.term_feature, n_features)
            for name, strength in (("lasso", price), ("ridge", 0 * price + 1e-8))
        )
        design, rows = problem.terms.unsqueeze(0), problem.rows(share)
        alone = solve_coefficients(design, rows, lasso).coefficients.coef[0]
        torch.testing.assert_close(coef, alone, rtol=0, atol=1e-5)
        kept = coef != 0
        relaxed = solve_coefficients(design * kept, rows, ridge).coefficients.coef[0]
        torch.testing.assert_close(free, relaxed, rtol=1e-3, atol=1e-4)


def test_the_chosen_point_is_known_for_every_fold(folds, make_problem):
    problem = make_problem("gamma", n_rows=90)
    weight = torch.ones(90, dtype=torch.float64)
    path = glm_path(problem, weight, folds, Settings())
    assert path.fold_loss.mean() == pytest.approx(path.cv_loss[path.index], rel=1e-12)
    alpha = path.alphas[[path.index]]
    known = zip(path.of_folds.coef, path.of_folds.intercept, strict=True)
    for fold, loss, at in zip(folds, path.fold_loss, known, strict=True):
        train, held_out = (
            problem.share(torch.as_tensor(part)) for part in (fold.train, fold.held_out)
        )
        again = fit_path(problem, train, alpha).blend(path.relaxation)
        # Solves end at a residual of 1e-7, from wherever they start.
        assert loss == pytest.approx(
            float(path_loss(problem, held_out, again)[0]), abs=1e-6
        )
        torch.testing.assert_close(at[0], again.coef[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(at[1], again.intercept[0], rtol=0, atol=1e-5)


def test_other_folds_have_their_say_in_the_choice_alone(folds, make_problem):
    problem = make_problem("gaussian", n_rows=90)
    weight = torch.ones(90, dtype=torch.float64)
    fifth = np.arange(90) * 5 // 90
    others = [Fold(1.0 * (fifth != f), 1.0 * (fifth == f)) for f in range(5)]
    # How far solutions are relaxed hangs on how much folds disagree, and others that
    # hold out the same rows again count for less there.
    lasso = Settings(relaxation=(0.0,))
    own, all_of_them = (
        glm_path(problem, weight, some, lasso) for some in (folds, folds + others)
    )
    found = glm_path(problem, weight, folds, lasso, others)
    np.testing.assert_array_equal(found.cv_loss, all_of_them.cv_loss)
    assert np.abs(found.cv_loss - own.cv_loss).max() > SAME_ATOL
    assert found.index == all_of_them.index
    assert torch.equal(found.of_folds.coef, all_of_them.of_folds.coef[: len(folds)])
    np.testing.assert_array_equal(found.fold_loss, all_of_them.fold_loss[: len(folds)])


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


def test_a_fully_relaxed_path_is_least_squares_on_its_supports(make_problem):
    problem = make_problem(n_rows=50, widths=(1,) * 6)
    share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
    grid = np.array([0.3, 0.1, 0.01])
    path = fit_path(problem, share, grid)
    free = path.blend(1.0)
    sizes = []
    for k in range(len(grid)):
        kept = path.lasso.coef[k].numpy() != 0
        sizes.append(kept.sum())
        ols = LinearRegression().fit(problem.terms.numpy()[:, kept], problem.y)
        found = free.coef[k].numpy()
        np.testing.assert_allclose(found[kept], ols.coef_, rtol=0, atol=RELAXED_ATOL)
        assert not found[~kept].any()
        intercept = free.intercept[k].item()
        assert intercept == pytest.approx(ols.intercept_, abs=RELAXED_ATOL)
    assert 0 < sizes[0] < sizes[-1]


@pytest.mark.parametrize(
    ("family", "rival"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)]
)
def test_a_fully_relaxed_path_is_the_free_glm_on_its_supports(
    family, rival, make_problem
):
    problem = make_problem(family, n_rows=80, widths=(1,) * 5)
    share = torch.full((1, 80), 1 / 80, dtype=torch.float64)
    path = fit_path(problem, share, np.array([0.4]))
    kept = path.lasso.coef[0].numpy() != 0
    assert 0 < kept.sum() < 5
    glm = rival(alpha=0, solver="newton-cholesky", tol=1e-10)
    glm.fit(problem.terms.numpy()[:, kept], problem.y)
    np.testing.assert_allclose(
        path.blend(1.0).coef[0].numpy()[kept], glm.coef_, rtol=0, atol=RELAXED_ATOL
    )


def test_a_blend_moves_from_the_lasso_to_the_free_fit(make_problem):
    problem = make_problem(n_rows=50)
    share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
    path = fit_path(problem, share, np.array([0.1]))
    assert torch.equal(path.blend(0.0).coef, path.lasso.coef)
    assert torch.equal(path.blend(1.0).coef, path.free.coef)
    half = (path.lasso.coef + path.free.coef) / 2
    torch.testing.assert_close(path.blend(0.5).coef, half, rtol=1e-14, atol=0)


def test_memory_blocks_do_not_change_the_path(make_problem):
    problem = make_problem(n_rows=50)
    share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
    grid = np.geomspace(0.5, 0.01, 7)
    whole = fit_path(problem, share, grid)
    blocks = fit_path(problem, share, grid, n_bytes=8 * 4 * 50 * 4 * 2)
    for part in ("lasso", "free"):
        first, second = getattr(whole, part), getattr(blocks, part)
        torch.testing.assert_close(first.coef, second.coef, rtol=0, atol=1e-12)


@pytest.mark.parametrize("widths", [(1, 1, 1, 1), (1, 3, 2)])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_largest_alpha_is_the_smallest_that_empties_the_model(
    family, widths, make_problem
):
    problem = make_problem(family, n_rows=70, widths=widths, offset=True)
    weight = np.random.default_rng(0).uniform(0.1, 2.0, 70)
    share = torch.as_tensor(weight / weight.sum()).unsqueeze(0)
    largest = largest_alpha(problem, share)
    path = fit_path(problem, share, largest * np.array([1.0001, 0.99]))
    assert not path.lasso.coef[0].any()
    assert path.lasso.coef[1].any()
