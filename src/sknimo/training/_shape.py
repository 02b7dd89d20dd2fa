"""The number that tells families of one name apart, learned before there is a network.

The mean and this number hardly depend on each other, so that they are found in turn:
coefficients of a GLM for the number, the number for the means of that GLM. What is
found is held from there on, for networks and folds alike. To a GLM all that a network
would explain is dispersion, so that a search looks once more at what it has found.

Shapes: n rows of this process.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.penalties import make_penalty
from sknimo.solver import (
    AdditiveOptions,
    Members,
    Options,
    Problem,
    fit_additive,
    linear_design,
    solve,
    solve_coefficients,
)

# Rows that are looked at for a number; a tenth of them would do.
MAX_ROWS = 50_000
MAX_ROUNDS = 25
# Relative change that counts as none, and as none to a search. With an overdispersion
# twice what it was, coefficients were held in as many samples but had wider intervals.
TOL = 1e-7
SETTLED = 0.1
# Keeps a GLM of rows that come in blocks from breaking down, and changes nothing else.
FAINT_RIDGE = 1e-6


def learn_shape(
    problem: Problem, weight: np.ndarray, solve_glm: Callable[[Problem], Tensor]
) -> Problem:
    """The problem with a family that its rows make likeliest, where it is free.

    `weight` (n,) are row weights; `solve_glm` gives the linear predictor (n,) of the
    GLM with the family of the problem it gets.
    """
    free = problem.family
    if not free.is_free:
        return problem
    own = problem.n_rows
    n_rows = sum(problem.ranks.gather(own))
    index = np.arange(0, own, -(-n_rows // MAX_ROWS))
    last = 0.0
    for _ in range(MAX_ROUNDS):
        eta = solve_glm(problem)
        some = [vector.cpu().numpy()[index] for vector in (problem.y, eta)]
        parts = problem.ranks.gather((*some, weight[index]))
        y, eta, share = (
            torch.as_tensor(np.concatenate(part)) for part in zip(*parts, strict=True)
        )
        family = free.learned(y, eta, share)
        problem = replace(problem, family=family)
        assert family.shape is not None
        if abs(family.shape.value - last) <= TOL * last:
            break
        last = family.shape.value
    return problem


def learn_again(
    problem: Problem, free: Family, weight: np.ndarray, eta: np.ndarray | None
) -> Problem:
    """The problem with the shape for predictions `eta` (n,) of rows held out.

    The same problem where `free`, the family that was asked for, has nothing to learn,
    or what it learns is hardly news. Rows that nobody predicted have NaN.
    """
    before = problem.family.shape
    if eta is None or before is None or not free.is_free:
        return problem
    share = np.where(np.isnan(eta), 0.0, weight)
    family = free.learned(problem.y.cpu(), *map(torch.as_tensor, (eta, share)))
    assert family.shape is not None
    if abs(family.shape.value - before.value) <= SETTLED * before.value:
        return problem
    return replace(problem, family=family)


def penalised_glm(members: Members, options: Options) -> Callable[[Problem], Tensor]:
    """The GLM that the first member starts from."""
    options = replace(options, max_iter=0)

    def solve_glm(problem: Problem) -> Tensor:
        found = solve(problem, members, options)
        design = linear_design(problem, 1, options.memory_budget)
        rows = problem.rows(members.weight)
        return rows.eta(design, found.coef, found.intercept)[0]

    return solve_glm


def smooth_glm(
    weight: np.ndarray, options: AdditiveOptions, budget: float
) -> Callable[[Problem], Tensor]:
    """The GLM whose shrinkage is learned; hardly any where rows are not in memory."""

    def solve_glm(problem: Problem) -> Tensor:
        design = linear_design(problem, 1, budget)
        if problem.in_one_place and problem.ranks.alone:
            counts = torch.as_tensor(weight).to(problem.y)
            fit = fit_additive(replace(problem, prior=None), counts, options)
            rows = problem.rows(problem.share(counts))
            return rows.eta(design, fit.coef.unsqueeze(0), fit.intercept.reshape(1))[0]
        rows = problem.rows(problem.share(torch.as_tensor(weight).to(problem.y)))
        strength = rows.weight.new_full((1,), FAINT_RIDGE)
        owner, p = problem.term_feature, problem.spec.n_features
        penalty = make_penalty("ridge", strength, owner, p)
        at = solve_coefficients(design, rows, penalty).coefficients
        return rows.eta(design, at.coef, at.intercept)[0]

    return solve_glm
