"""Which features there are: models of some of them, and those that matter most.

Shapes: n rows, q terms, p features, a modulated features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.solver import MemoryColumns, Problem


@dataclass(frozen=True, slots=True)
class Size:
    """A model of some of the features, as the scouts see it."""

    kept: Tensor  # (p,), bool
    # Of rows that the scouts leave out: mean, and its standard error.
    loss: float
    error: float


def sparsest(path: Sequence[Size]) -> Size:
    """The fewest features as good as the best within its standard error."""
    best = min(path, key=lambda size: size.loss)
    return [size for size in path if size.loss <= best.loss + best.error][-1]


def without_features(problem: Problem, kept: Tensor) -> Problem:
    """The same rows, with zeros for the columns of features that are left out."""
    if bool(kept.all()):
        return problem
    there = kept.to(problem.device)
    owner = torch.tensor(problem.spec.input_feature, device=problem.device)
    terms = problem.terms * there[problem.term_feature]
    inputs = problem.inputs * there[owner]
    return replace(problem, columns=MemoryColumns(terms, inputs))


def strongest(problem: Problem, weight: Tensor, coef: Tensor, count: int) -> Tensor:
    """Features whose effects vary most over the rows, in their order, (a,)."""
    p = problem.spec.n_features
    share = weight / weight.sum()
    effect = weight.new_zeros(problem.n_rows, p)
    effect.index_add_(1, problem.term_feature, problem.terms * coef)
    centred = effect - share @ effect
    variance = share @ centred.square()
    usable = torch.zeros(p, dtype=torch.bool, device=weight.device)
    usable[problem.term_feature[(problem.terms != 0).any(0)]] = True
    variance = torch.where(usable & ~problem.unbent, variance, -1.0)
    order = variance.argsort(descending=True, stable=True)[:count]
    return order[variance[order] >= 0].sort().values


def some_rows(problem: Problem, count: int) -> Tensor:
    """Rows at even distances, about `count`."""
    step = max(1, problem.n_rows // count)
    return torch.arange(0, problem.n_rows, step, device=problem.device)
