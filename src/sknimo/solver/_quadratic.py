"""What the inner solve passes over, and what it does between passes.

The design `phi * (1 + g)` is met one block of rows after the other. One that fits into
memory is one block; a larger one is a function that makes the rows asked for.
Between passes Gram matrix and moment stand for the loss: a quadratic plus a penalty is
minimised exactly, zeros included.

Shapes: K models, n rows, q columns, p features, m rows of a block; K always leads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from sknimo.penalties import CoefPenalty


@dataclass(frozen=True)
class Design:
    """A tensor (K, n, q) in float64, by blocks of rows."""

    # `rows -> (K, m, q)` for a slice of rows, the same at every call.
    make: Callable[[slice], Tensor]
    slices: Sequence[slice]  # of rows: consecutive, and all of them
    n_columns: int
    keep: bool = False  # whether blocks stay in memory once they are made
    _kept: dict[int, Tensor] = field(default_factory=dict, init=False)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Slices of rows and their blocks (K, m, q), in order."""
        for position, rows in enumerate(self.slices):
            block = self._kept.get(position)
            if block is None:
                block = self.make(rows)
                if self.keep:
                    self._kept[position] = block
            yield rows, block


def as_design(design: Design | Tensor) -> Design:
    """A tensor (K, n, q) as a design of one block."""
    if isinstance(design, Design):
        return design
    whole = slice(0, design.shape[-2])
    return Design(lambda rows: design, [whole], design.shape[-1])


def cut_rows(n_rows: int, row_bytes: int, budget: float) -> list[slice]:
    """Blocks of rows that take at most `budget` bytes; one row at least in each."""
    size = max(1, int(budget // max(row_bytes, 1)))
    starts = range(0, max(n_rows, 1), size)
    return [slice(begin, min(begin + size, n_rows)) for begin in starts]


# Relative to the mean diagonal of the Gram matrix. Breaks ties between duplicated
# columns symmetrically and is far below every tolerance promised to users.
TIE_BREAK = 1e-11
# Relative error of a sum of products, a few units in the last place.
ROUNDING = 1e-15
# How exactly optimality conditions hold, relative to the largest moment or price.
ENOUGH = 1e-13
# Features that a lasso of more is solved among to begin with.
FEW_FEATURES = 64
# Share of the way to zero that a feature of several columns goes at a time.
SHORT_OF = 0.9


def solve_ridge(gram: Tensor, moment: Tensor, ridge: Tensor) -> Tensor:
    """Solve `(gram + diag(ridge)) beta = moment` after scaling the diagonal to one."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    tie_break = TIE_BREAK * diagonal.mean(-1, keepdim=True) + 1e-300
    scale = (diagonal + (ridge + tie_break)).rsqrt()
    scaled = scale.unsqueeze(-1) * gram * scale.unsqueeze(-2)
    scaled.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    target = (scale * moment).unsqueeze(-1)
    factor, info = torch.linalg.cholesky_ex(scaled)
    solution = torch.cholesky_solve(target, factor)
    # Numerically singular: lift the diagonal and retry. A GPU retries unasked, because
    # the question would make it wait.
    if info.is_cuda or bool((info > 0).any()):
        lifted = scaled + torch.diag_embed(torch.full_like(diagonal, 1e-9))
        factor, lost = torch.linalg.cholesky_ex(lifted)
        retry = torch.cholesky_solve(target, factor)
        retry = retry.masked_fill((lost > 0).view(-1, 1, 1), torch.nan)
        solution = torch.where((info > 0).view(-1, 1, 1), retry, solution)
    return scale * solution.squeeze(-1)


def stationarity_gap(penalty: CoefPenalty, coef: Tensor, gradient: Tensor) -> Tensor:
    """Distance of zero to the subdifferential given the loss gradient, (K,)."""
    if coef.shape[-1] == 0:
        return coef.new_zeros(coef.shape[0])
    norm = penalty.norm(coef)
    nonzero = norm > 0
    safe = torch.where(nonzero, norm, torch.ones_like(norm))
    if penalty.power == 2:
        pull = 2 * penalty.spread(penalty.strength.unsqueeze(-1) * penalty.weight)
        return penalty.norm(gradient + pull * coef).amax(-1)
    slope = penalty.slope(safe)
    at_nonzero = penalty.norm(gradient + penalty.spread(slope / safe) * coef)
    if penalty.power == 1:
        at_zero = (penalty.norm(gradient) - slope).clamp(min=0)
    else:
        at_zero = torch.zeros_like(norm)
    return torch.where(nonzero, at_nonzero, at_zero).amax(-1)


def minimise_quadratic(
    gram: Tensor, moment: Tensor, penalty: CoefPenalty, start: Tensor
) -> Tensor:
    """Minimise `b' gram b / 2 - moment' b + penalty(b)`, (K, q).

    Ties are broken towards `start`, so that breaking them moves no solution. A lasso
    of many features is solved among some: those that `start` has, and those that the
    optimality conditions ask for, the most urgent first, until they ask for no more.
    """
    if gram.shape[-1] == 0:
        return start
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    tie_break = TIE_BREAK * diagonal.mean(-1, keepdim=True) + 1e-300
    moment = moment + tie_break * start
    if penalty.power == 2:
        ridge = penalty.ridge(start, 0.0)
        return solve_ridge(gram, moment, ridge)
    scale = torch.maximum(moment.abs().amax(-1), penalty.strength).clamp(min=1e-300)

    def solve(some: Tensor | slice, coef: Tensor) -> Tensor:
        part = gram[:, some][:, :, some]
        own = moment[:, some]
        part = part + torch.diag_embed(tie_break.expand_as(own))
        few = replace(penalty, column_feature=penalty.column_feature[some])
        return _descend(part, own, few, coef[:, some], scale)

    owner, n_features = penalty.column_feature, penalty.weight.shape[-1]
    if penalty.power != 1 or n_features <= FEW_FEATURES:
        return solve(slice(None), start)
    coef, there = start, (penalty.norm(start) > 0).any(0)
    while True:
        gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) + tie_break * coef - moment
        more = most_urgent(penalty, gradient, scale, there, ENOUGH)
        if not len(more) and (coef is not start or not bool(there.any())):
            return coef
        there[more] = True
        some = there[owner].nonzero().squeeze(-1)
        coef = torch.zeros_like(start).index_copy(1, some, solve(some, coef))


def most_urgent(
    penalty: CoefPenalty, gradient: Tensor, scale: Tensor, there: Tensor, enough: float
) -> Tensor:
    """Numbers of features that a lasso asks for beside those there, a part of many.

    `gradient` (K, q) is that of the loss; conditions hold where they are violated by
    less than `enough` of the scale (K,) in every model.
    """
    beyond = penalty.norm(gradient) - penalty.slope(gradient)
    urgent = (beyond / scale.unsqueeze(-1)).amax(0).masked_fill(there, -torch.inf)
    n_missing = int((urgent > enough).sum())
    n_more = min(n_missing, max(FEW_FEATURES, int(there.sum())))
    return urgent.topk(n_more).indices


def _descend(
    gram: Tensor, moment: Tensor, penalty: CoefPenalty, start: Tensor, scale: Tensor
) -> Tensor:
    """Minimise it over all columns.

    Rounds of accelerated proximal descent find the support; after each round Newton's
    method on the support is tried, and a model is finished once its optimality
    conditions hold.
    """
    coef, left = start.clone(), torch.arange(len(start), device=start.device)
    step = 1 / torch.linalg.eigvalsh(gram)[..., -1].clamp(min=1e-300)
    for round_ in range(40):
        n_steps = 20 if round_ == 0 else 200
        found = _proximal_descent(gram, moment, penalty, coef[left], step, n_steps)
        found = _polish(gram, moment, penalty, found)
        coef[left] = found
        gradient = (gram @ found.unsqueeze(-1)).squeeze(-1) - moment
        # Where large coefficients cancel, the gradient is known to rounding alone.
        terms = (gram.abs() @ found.abs().unsqueeze(-1)).amax((-2, -1))
        enough = torch.maximum(ENOUGH * scale[left], ROUNDING * terms)
        going = stationarity_gap(penalty, found, gradient) > enough
        going &= torch.isfinite(found).all(-1)  # lost: more rounds do not help
        some = going.nonzero().squeeze(-1)
        if len(some) == 0:
            break
        if len(some) < len(left):
            left, gram, moment, step = left[some], gram[some], moment[some], step[some]
            penalty = penalty.take(some)
    return coef


def _proximal_descent(
    gram: Tensor,
    moment: Tensor,
    penalty: CoefPenalty,
    coef: Tensor,
    step: Tensor,
    n_steps: int,
) -> Tensor:
    """Accelerated proximal gradient with restarts; plain below power 1."""
    wide_step = step.unsqueeze(-1)
    previous, ahead = coef, coef
    momentum = torch.ones_like(step)
    for _ in range(n_steps):
        gradient = (gram @ ahead.unsqueeze(-1)).squeeze(-1) - moment
        coef = penalty.prox(ahead - wide_step * gradient, step)
        move = coef - previous
        # O'Donoghue and Candes: restart when the momentum points uphill.
        uphill = ((ahead - coef) * move).sum(-1) > 0
        momentum = torch.where(uphill, torch.ones_like(momentum), momentum)
        grown = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        factor = (momentum - 1) / grown if penalty.power == 1 else 0 * momentum
        ahead = coef + factor.unsqueeze(-1) * move
        previous, momentum = coef, grown
    return coef


def _polish(gram: Tensor, moment: Tensor, penalty: CoefPenalty, coef: Tensor) -> Tensor:
    """Newton's method on the support; a column that would change sign leaves it."""
    some = penalty.spread((penalty.norm(coef) > 0).any(0)).nonzero().squeeze(-1)
    if len(some) < len(penalty.column_feature):
        few = replace(penalty, column_feature=penalty.column_feature[some])
        part = gram[:, some][:, :, some], moment[:, some], few, coef[:, some]
        return torch.zeros_like(coef).index_copy(1, some, _polish(*part))
    if len(some) == 0:
        return coef
    same_feature = (
        penalty.column_feature.unsqueeze(0) == penalty.column_feature[:, None]
    )
    single = int(same_feature.sum()) == len(some)
    for _ in range(8):
        norm = penalty.norm(coef)
        on = penalty.spread((norm > 0).to(coef.dtype))
        safe = torch.where(norm > 0, norm, torch.ones_like(norm))
        pull = penalty.spread(penalty.slope(safe) / safe)
        gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) - moment + pull * coef
        if single:
            hessian = gram + torch.diag_embed((penalty.power - 1) * pull)
        else:
            unit = coef / penalty.spread(safe)
            outer = unit.unsqueeze(-1) * unit.unsqueeze(-2) * same_feature
            bent = (penalty.power - 2) * pull.unsqueeze(-1) * outer
            hessian = gram + torch.diag_embed(pull) + bent
        hessian = on.unsqueeze(-1) * hessian * on.unsqueeze(-2)
        hessian = hessian + torch.diag_embed(1 - on)
        move, info = torch.linalg.solve_ex(hessian, (-on * gradient).unsqueeze(-1))
        move = torch.where((info == 0).view(-1, 1, 1), move, torch.zeros_like(move))
        coef = _step_within_orthant(penalty, coef, move.squeeze(-1))
        if bool((move.abs().amax((-2, -1)) <= 1e-15 * coef.abs().amax(-1)).all()):
            break
    return coef


def _step_within_orthant(penalty: CoefPenalty, coef: Tensor, move: Tensor) -> Tensor:
    """Step up to the first feature that reaches zero.

    A feature reaches zero when the projection on its own direction does. One of a
    single column is zero then. Others may only have turned: they stop short of it, and
    proximal descent drops those that belong there.
    """
    owner = penalty.column_feature
    along = torch.zeros_like(penalty.weight)
    along.index_add_(1, owner, coef * move)
    square = penalty.norm(coef).square()
    single = torch.bincount(owner, minlength=square.shape[-1]) == 1
    # coef . (coef + t move) = 0 at t = -square / along.
    falls = (along < 0) & (square > 0)
    reach = torch.where(falls, -square / along, torch.full_like(square, torch.inf))
    size = torch.where(single, reach, SHORT_OF * reach).amin(-1).clamp(max=1.0)
    hit = (reach <= size.unsqueeze(-1)) & single
    moved = coef + size.unsqueeze(-1) * move
    return torch.where(penalty.spread(hit), torch.zeros_like(moved), moved)
