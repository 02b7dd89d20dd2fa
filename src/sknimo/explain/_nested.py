"""Generalised linear models without a penalty: the one nested in a fitted model.

A fixed design has an exact optimum. Every such fit goes through `fit_glm`, whether the
rows are in memory or pass by in blocks, so that summary, price and report mean the same
by "nested GLM": the features of the model, no network, no penalty.

Shapes: K designs, n rows, q terms.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sknimo.explain._local import as_array, check_weight, fill_offset
from sknimo.model import FittedModel
from sknimo.penalties import make_penalty
from sknimo.solver import (
    Coefficients,
    Design,
    Problem,
    Rows,
    cut_rows,
    solve_coefficients,
    start_coefficients,
)

# Relative to a Gram matrix of standardised columns: breaks ties, moves nothing.
RIDGE = 1e-8
# Optimality of fits to streamed rows, whose deviance is shown with five digits.
STREAM_TOL = 1e-6
# Multiplications of a Gram matrix beyond which coefficients are found by descent.
MAX_GRAM = 2e9
# Share of the diagonal that keeps its factor from failing.
TIE_BREAK = 1e-11
# Descent ends where a step promises less than this share of the loss.
DESCENT_TOL = 1e-8
DESCENT_STEPS = 100
BLOCK_ROWS = 4096


def fit_glm(
    design: Design | Tensor,
    rows: Rows,
    owner: Tensor,
    n_features: int,
    tol: float = 1e-10,
    ridge: float = RIDGE,
) -> tuple[Coefficients, Tensor]:
    """Exact coefficients of K designs (K, n, q) and their mean half deviances (K,).

    Columns belong to the features `owner` (q,).
    """
    weight = rows.weight
    strength = torch.full((len(weight),), ridge, dtype=torch.float64).to(weight.device)
    penalty = make_penalty("ridge", strength, owner, n_features)
    found = solve_coefficients(design, rows, penalty, tol=tol)
    at = found.coefficients
    return at, found.objective - penalty.value(at.coef)


class MemoryRows:
    """Rows in memory, in the units of the family, on which designs are solved."""

    def __init__(
        self,
        model: FittedModel,
        y: np.ndarray,
        weight: np.ndarray | None,
        offset: np.ndarray | None,
    ) -> None:
        n_rows = len(y)
        self.model = model
        self.total = float(n_rows if weight is None else np.sum(weight))
        self.rows = Rows(
            torch.as_tensor(np.array(y, dtype=np.float64)),
            torch.as_tensor(np.array(fill_offset(offset, n_rows), dtype=np.float64)),
            torch.as_tensor(check_weight(weight, n_rows)).unsqueeze(0),
            model.family,
        )

    def solve(self, design: Tensor, ridge: float = RIDGE) -> Coefficients:
        """Exact coefficients of K designs (K, n, q); no columns for a constant."""
        features = self.model.features
        _, n_rows, q = design.shape
        if n_rows * q**2 > MAX_GRAM:
            return Coefficients.join([descend(one, self.rows) for one in design])
        owner = torch.as_tensor(features.term_feature[:q])
        rows = replace(self.rows, weight=self.rows.weight.expand(len(design), -1))
        return fit_glm(design, rows, owner, features.n_features, ridge=ridge)[0]

    def solved_eta(self, design: Tensor) -> Tensor:
        """Linear predictor of the average of K designs, each solved exactly, (n,)."""
        at = self.solve(design)
        return self.rows.eta(design, at.coef, at.intercept).mean(0)

    def solved_deviance(self, design: Tensor) -> float:
        """Deviance of the same."""
        return self.deviance(self.solved_eta(design))

    def deviance(self, eta: Tensor, kept: np.ndarray | None = None) -> float:
        """Twice the weighted sum of half unit deviances, of all rows or those kept."""
        some = slice(None) if kept is None else torch.as_tensor(kept)
        loss = self.rows.family.loss(self.rows.y[some], eta)
        return 2 * self.total * float((self.rows.weight[0, some] * loss).sum())

    def nested_design(self, table: np.ndarray) -> Tensor:
        """Terms of every feature with a coefficient in some member, (1, n, q)."""
        support = as_array((self.model.coef != 0).any(0))
        terms = self.model.features.terms(table)
        if not support.all():
            terms *= support
        return torch.as_tensor(terms).unsqueeze(0)

    def null_design(self) -> Tensor:
        """No term at all, (1, n, 0)."""
        return torch.zeros(1, len(self.rows.y), 0, dtype=torch.float64)


def descend(design: Tensor, rows: Rows) -> Coefficients:
    """Coefficients of one design (n, q) whose Gram matrix is dear: it is made once.

    It preconditions conjugate gradients, which need no more than products with the
    design. The optimum is that of `fit_glm`; least squares are there after one step.
    """
    start = start_coefficients(rows, design.shape[1])
    intercept, coef = start.intercept[0], start.coef[0]
    eta = rows.offset + intercept
    factor, scale = _precondition(design, rows.curvature(eta)[0])
    step, last = torch.zeros(1 + len(coef), dtype=coef.dtype), None
    for _ in range(DESCENT_STEPS):
        score = rows.score(eta)[0]
        pull = torch.cat([score.sum()[None], score @ design - RIDGE * coef])
        turned = torch.cholesky_solve((pull / scale)[:, None], factor)[:, 0] / scale
        promise = float(pull @ turned)
        if promise <= DESCENT_TOL * float(rows.loss(eta[None])):
            break
        if last is not None:  # Polak and Ribiere; a negative share begins anew
            step = max(float((pull - last[0]) @ turned) / last[1], 0.0) * step
        step = turned + step
        last = pull, promise
        move = step[0] + design @ step[1:]
        length = _go(rows, eta, move, coef, step[1:], float(pull @ step))
        eta = eta + length * move
        intercept, coef = intercept + length * step[0], coef + length * step[1:]
    return Coefficients(coef[None], intercept[None])


def _precondition(design: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """Factor of the scaled Gram matrix with a column of ones first, and its scale."""
    n_rows, q = design.shape
    gram = torch.zeros(1 + q, 1 + q, dtype=design.dtype)
    for some in cut_rows(n_rows, 1, BLOCK_ROWS):
        block = torch.nn.functional.pad(design[some], (1, 0), value=1.0)
        gram.addmm_((block * curvature[some, None]).T, block)
    gram.diagonal().add_(RIDGE)
    scale = gram.diagonal().sqrt()
    gram /= scale[:, None] * scale
    gram.diagonal().add_(TIE_BREAK)
    return torch.linalg.cholesky(gram), scale


def _go(
    rows: Rows, eta: Tensor, move: Tensor, coef: Tensor, step: Tensor, slope: float
) -> float:
    """How far to go along a direction: Newton's length, and halves of it."""
    bend = float((rows.curvature(eta)[0] * move.square()).sum())
    length = slope / (bend + RIDGE * float(step.square().sum()))
    here = float(rows.loss(eta[None])) + RIDGE / 2 * float(coef.square().sum())
    for _ in range(30):
        there = float(rows.loss((eta + length * move)[None]))
        there += RIDGE / 2 * float((coef + length * step).square().sum())
        if there <= here:
            return length
        length /= 2
    return 0.0


def best_constant(
    model: FittedModel,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
) -> float:
    """Linear predictor that fits best where no feature is known, beside the offset."""
    rows = MemoryRows(model, y, weight, offset)
    return float(rows.solve(rows.null_design()).intercept[0])


def streamed_losses(
    model: FittedModel, problem: Problem, weight: Tensor, budget: float
) -> tuple[float, float]:
    """Mean half deviances of the nested GLM and of the intercept alone, over all ranks.

    `weight` (n,) sums to one over all ranks. Blocks of rows take at most `budget`
    bytes; targets are in the units of the problem.
    """
    n_rows = problem.n_rows
    used = torch.as_tensor((model.coef != 0).any(0), device=problem.device)
    rows = problem.rows(weight.unsqueeze(0))

    def make(block: slice) -> Tensor:
        terms, _ = problem.columns.read(block)
        return terms[:, used].unsqueeze(0)

    q = int(used.sum())
    blocks = cut_rows(n_rows, 8 * (3 * problem.n_terms + 4 * q), budget)
    nested = Design(make, blocks, q)
    null = Design(lambda _: rows.weight.new_empty(1, n_rows, 0), [slice(0, n_rows)], 0)
    owner, p = problem.term_feature[used], problem.spec.n_features
    _, loss = fit_glm(nested, rows, owner, p, STREAM_TOL)
    _, null_loss = fit_glm(null, rows, owner[:0], p, STREAM_TOL)
    return float(loss), float(null_loss)
