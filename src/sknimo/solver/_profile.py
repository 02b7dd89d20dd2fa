"""Eliminate the coefficients: the inner solve, with the network held fixed.

Given `design = phi * (1 + g)` the intercept and coefficients minimise

    F(b0, beta) = sum_i w_i loss(y_i, eta_i) / sum_i w_i + penalty(beta),
    eta = offset + b0 + design . beta.

Two solvers share one Newton system. `step_from` majorises the penalty by a ridge (the
adaptive ridge of the paper) and takes one damped Newton step: cheap, smooth, used
inside training. `solve_coefficients` minimises F itself by proximal Newton steps
(`minimise_quadratic`), with exact zeros and the optimality (KKT) residual that is left.

Everything here is float64. The intercept is eliminated by centring the columns of the
design with the working weights, never by subtracting large moments: blocks of rows are
centred each about their own mean, and merged by the formula of Chan, Golub and LeVeque.
Over ranks means are added first, and Gram matrices about the common mean after that.
What the ranks decide on is a sum over all of them or the first rank's own number.

Shapes: K models, n rows, q columns, p features; the model axis K always leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Self

import torch
from torch import Tensor

from sknimo.families import LINKS, Family
from sknimo.penalties import CoefPenalty
from sknimo.ranks import ALONE, Ranks
from sknimo.solver._quadratic import (
    Design,
    as_design,
    minimise_quadratic,
    solve_ridge,
    stationarity_gap,
)

# Working weights below this share of their mean are lifted to it: curvature only, so
# the solution does not move, but a saturated row can no longer make a step explode.
WEIGHT_FLOOR = 1e-8
# On a GPU so few trials cost less than asking whether the first was good.
FEW_HALVINGS = 4
# Where the network has just changed, a step may have to be far shorter.
MANY_HALVINGS = 8
# Proximal Newton steps at most.
MAX_STEPS = 60


@dataclass(frozen=True, slots=True)
class Rows:
    """What the inner solve needs to know of the data, per model."""

    y: Tensor  # (n,)
    offset: Tensor  # (n,)
    weight: Tensor  # (K, n), row weights of each model, summing to one over all ranks
    family: Family
    ranks: Ranks = ALONE  # the processes over which the rows are spread

    def take(self, members: Tensor | slice) -> Rows:
        """Keep the models with the given indices."""
        return replace(self, weight=self.weight[members])

    def part(self, rows: slice | Tensor) -> Rows:
        """Keep some rows."""
        if isinstance(rows, slice) and rows == slice(0, len(self.y)):
            return self
        return replace(
            self, y=self.y[rows], offset=self.offset[rows], weight=self.weight[:, rows]
        )

    def eta(self, design: Design | Tensor, coef: Tensor, intercept: Tensor) -> Tensor:
        """Linear predictor, (K, n)."""
        if isinstance(design, Tensor):
            fitted = (design @ coef.unsqueeze(-1)).squeeze(-1)
            return self.offset + intercept.unsqueeze(-1) + fitted
        gathered = PerRow(self)
        for rows, block in design.blocks():
            gathered.put(rows, self.part(rows).eta(block, coef, intercept))
        return gathered.values

    def loss(self, eta: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted mean half deviance, (K,); zero weights silence their rows."""
        return self.ranks.total(self._own_loss(eta, weight))

    def objective(self, eta: Tensor, penalty: Tensor) -> Tensor:
        """Loss plus a penalty (K,), the same bits on every rank."""
        loss = self._own_loss(eta)
        return self.ranks.total(loss + penalty if self.ranks.first else loss)

    def _own_loss(self, eta: Tensor, weight: Tensor | None = None) -> Tensor:
        weight = self.weight if weight is None else weight
        return _weigh(weight, self.family.loss(self.y, eta)).sum(-1)

    def score(self, eta: Tensor) -> Tensor:
        """Weighted minus first derivative of each row's loss, (K, n)."""
        return _weigh(self.weight, self.family.score(self.y, eta))

    def curvature(self, eta: Tensor) -> Tensor:
        """Weighted second derivative of each row's loss, (K, n)."""
        return _weigh(self.weight, self.family.curvature(self.y, eta))


class PerRow:
    """Numbers per row, (K, n), that come block by block.

    Their place is taken beforehand: small tensors that outlive the large ones of a
    block would keep the memory of many blocks from being used again.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.values = rows.weight[:, :0]

    def put(self, some: slice, values: Tensor) -> None:
        """Write the numbers of some rows."""
        n_rows = len(self.rows.y)
        if some == slice(0, n_rows):
            self.values = values
            return
        if self.values.shape[1] < n_rows:
            self.values = values.new_empty(len(values), n_rows)
        self.values[:, some] = values


def agree(ranks: Ranks, values: Tensor) -> Tensor:
    """The first rank's values: rounding on unlike machines must not part the ranks."""
    if ranks.alone:
        return values
    return ranks.total(values if ranks.first else torch.zeros_like(values))


def _weigh(weight: Tensor, values: Tensor) -> Tensor:
    """Product in which a weight of zero silences even an overflow."""
    return torch.where(weight > 0, weight * values, 0.0)


class PerMember:
    """A record of tensors, tuples and such records with one entry per model each.

    What has no entries is the same for all models.
    """

    __slots__ = ()

    def take(self, members: Any) -> Self:
        """Keep the models with the given indices."""

        def cut(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(value[int(k)] for k in members)
            if isinstance(value, Tensor):
                return value[members]
            return value.take(members) if hasattr(value, "take") else value

        return type(self)(*map(cut, self._values()))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The models of several records in one."""
        if len(parts) == 1:
            return parts[0]

        def merge(*each: Any) -> Any:
            if isinstance(each[0], tuple):
                return tuple(chain.from_iterable(each))
            join = torch.cat if isinstance(each[0], Tensor) else type(each[0]).join
            return join(each)

        return cls(*map(merge, *(part._values() for part in parts)))

    def _values(self) -> list[Any]:
        names = fields(self)  # type: ignore[arg-type]
        return [getattr(self, field.name) for field in names]


@dataclass(frozen=True, slots=True)
class Coefficients(PerMember):
    """Intercept and coefficients of K models."""

    coef: Tensor  # (K, q)
    intercept: Tensor  # (K,)

    def replaced(self, where: Tensor, others: Coefficients) -> Coefficients:
        """Others where the mask (K,) says so."""
        return Coefficients(
            torch.where(where.unsqueeze(-1), others.coef, self.coef),
            torch.where(where, others.intercept, self.intercept),
        )


@dataclass(frozen=True, slots=True)
class InnerSolution:
    """Minimiser of the penalised loss for a fixed network."""

    coefficients: Coefficients
    objective: Tensor  # (K,)
    kkt: Tensor  # (K,), optimality residual relative to the gradient at zero
    converged: Tensor  # (K,), bool


@dataclass(frozen=True, slots=True)
class _RowSums:
    """Weighted sums over some rows; products are about the mean of these rows."""

    weight: Tensor  # (K,), total of the working weights
    mean: Tensor  # (K, q)
    gram: Tensor  # (K, q, q), sum of weight * centred * centred'
    score: Tensor  # (K,), total of the scores
    pull: Tensor  # (K, q), sum of score * centred
    square: Tensor  # (K, q), sum of row weight * column ** 2; (K, 0) if not asked for

    def add(self, other: _RowSums) -> None:
        """Include the rows of other moments, in place (see `PerRow`)."""
        share = other.weight / (self.weight + other.weight).clamp(min=1e-300)
        gap = other.mean - self.mean
        move = share.unsqueeze(-1) * gap
        spread = (self.weight.unsqueeze(-1) * move).unsqueeze(-1) * gap.unsqueeze(-2)
        self.gram.add_(other.gram).add_(spread)
        mean = self.mean + move
        self.pull.copy_(self._pull_about(mean) + other._pull_about(mean))
        self.mean.copy_(mean)
        self.weight.add_(other.weight)
        self.score.add_(other.score)
        self.square.add_(other.square)

    def _pull_about(self, mean: Tensor) -> Tensor:
        return self.pull + (self.mean - mean) * self.score.unsqueeze(-1)

    def total(self, ranks: Ranks) -> _RowSums:
        """Moments of the rows of all ranks."""
        if ranks.alone:
            return self
        own = self.weight.unsqueeze(-1)
        both = ranks.total(torch.cat([own, own * self.mean], -1))
        weight, mean = both[:, 0], both[:, 1:] / both[:, :1].clamp(min=1e-300)
        gap = self.mean - mean
        gram = self.gram + own.unsqueeze(-1) * gap.unsqueeze(-1) * gap.unsqueeze(-2)
        parts = [gram.flatten(1), self.score.unsqueeze(-1)]
        parts += [self._pull_about(mean), self.square]
        q = mean.shape[1]
        sums = ranks.total(torch.cat(parts, -1))
        flat, score, pull, square = sums.split(
            [q * q, 1, q, self.square.shape[1]], dim=-1
        )
        gram = flat.reshape_as(gram)
        return _RowSums(weight, mean, gram, score.squeeze(-1), pull, square)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Second-order model of the loss at one point, the intercept eliminated.

    Up to a constant `beta' gram beta / 2 - moment' beta`; the intercept that belongs
    to `beta` is `level - mean . beta`.
    """

    at: Coefficients
    eta: Tensor  # (K, n)
    gram: Tensor  # (K, q, q)
    moment: Tensor  # (K, q)
    mean: Tensor  # (K, q)
    level: Tensor  # (K,)
    score: Tensor  # (K,), zero where the intercept is optimal
    square: Tensor  # (K, q), weighted mean square of each column; (K, 0) if not asked

    def intercept(self, coef: Tensor) -> Tensor:
        """Best intercept for some coefficients, (K,)."""
        return self.level - (self.mean * coef).sum(-1)

    def gradient(self, coef: Tensor) -> Tensor:
        """Derivative of the model in the coefficients, (K, q)."""
        return (self.gram @ coef.unsqueeze(-1)).squeeze(-1) - self.moment


def expand(
    design: Design | Tensor, rows: Rows, at: Coefficients, square: bool = False
) -> Expansion:
    """Expand the loss to second order around the given coefficients.

    One pass over the design, a second one in the rare case that working weights must
    be lifted and rows come in several blocks.
    """
    design = as_design(design)
    quadratic = rows.family.least_squares
    lone = len(design.slices) == 1 and rows.ranks.alone
    moments, eta = _sweep(design, rows, at, square, lone and not quadratic)
    if not (quadratic or lone):
        floor = WEIGHT_FLOOR * moments.weight.unsqueeze(-1) * rows.weight
        low = (rows.curvature(eta) < floor).sum()
        if bool(rows.ranks.total(low) > 0):
            moments, eta = _sweep(design, rows, at, square, True, moments.weight)
    gram, mean, coef = moments.gram, moments.mean, at.coef
    lift = moments.score / moments.weight.clamp(min=1e-300)
    squares = moments.square
    if square and quadratic:  # the working weights are the row weights
        weight = moments.weight.unsqueeze(-1)
        squares = gram.diagonal(dim1=-2, dim2=-1) + weight * mean.square()
    return Expansion(
        at=at,
        eta=eta,
        gram=gram,
        moment=(gram @ coef.unsqueeze(-1)).squeeze(-1) + moments.pull,
        mean=mean,
        level=at.intercept + (mean * coef).sum(-1) + lift,
        score=moments.score,
        square=squares,
    )


def _sweep(
    design: Design,
    rows: Rows,
    at: Coefficients,
    square: bool,
    lift: bool,
    total: Tensor | None = None,
) -> tuple[_RowSums, Tensor]:
    """One pass: moments of all ranks, and `eta` of the own rows.

    With `lift` working weights are lifted to the floor, relative to their `total`, or
    to that of the only block.
    """
    found, gathered = None, PerRow(rows)
    for some, block in design.blocks():
        part = rows.part(some)
        eta = part.eta(block, at.coef, at.intercept)
        quadratic = rows.family.least_squares
        curvature = part.weight if quadratic else part.curvature(eta)
        if lift:
            whole = curvature.sum(-1) if total is None else total
            # Only where a row counts at all.
            floor = WEIGHT_FLOOR * whole.unsqueeze(-1) * part.weight
            curvature = torch.maximum(curvature, floor)
        squares = square and not quadratic
        weight = part.weight if squares else None
        fresh = _block_moments(block, curvature, part.score(eta), weight)
        if found is None:
            found = fresh
        else:
            found.add(fresh)
        gathered.put(some, eta)
    assert found is not None
    return found.total(rows.ranks), gathered.values


def _block_moments(
    block: Tensor, curvature: Tensor, score: Tensor, weight: Tensor | None
) -> _RowSums:
    total = curvature.sum(-1)
    share = curvature / total.clamp(min=1e-300).unsqueeze(-1)
    mean = (share.unsqueeze(-2) @ block).squeeze(-2)
    centred = block - mean.unsqueeze(-2)
    pull = (score.unsqueeze(-2) @ centred).squeeze(-2)
    gram = centred.mT @ (curvature.unsqueeze(-1) * centred)
    square = mean.new_zeros(len(mean), 0)
    if weight is not None:
        square = (weight.unsqueeze(-2) @ block.square()).squeeze(-2)
    return _RowSums(total, mean, gram, score.sum(-1), pull, square)


def start_coefficients(rows: Rows, n_columns: int) -> Coefficients:
    """Intercept-only start: the link of the weighted mean response."""
    n_models = rows.weight.shape[0]
    sums = torch.stack([(rows.weight * v).sum(-1) for v in (rows.y, rows.offset)])
    y_mean, offset_mean = rows.ranks.total(sums)
    link = LINKS[rows.family.link]
    coef = rows.weight.new_zeros(n_models, n_columns)
    start = link.link_function(link.inside(y_mean, 1e-6)) - offset_mean
    return Coefficients(coef, start)


def newton_steps(
    design: Design | Tensor,
    rows: Rows,
    ridge: Tensor,
    at: Coefficients,
    count: int = 1,
    max_halvings: int = MANY_HALVINGS,
) -> Coefficients:
    """Damped Newton steps on the loss plus `sum ridge * beta**2 / 2`, ridge (K, q).

    With the ridge of a penalty's majoriser they are steps of the adaptive ridge. For
    the Gaussian family one is the exact minimiser. A pass that judges a step also
    expands for the next.
    """
    design, here = as_design(design), None
    for left in range(count, 0, -1):
        here = here or expand(design, rows, at)
        step = step_from(here, design, rows, ridge, max_halvings, again=left > 1)
        at, here = step.coefficients, step.here
    return at


@dataclass(frozen=True, slots=True)
class InnerStep:
    """Coefficients after a step, with what had to be known about the point there."""

    coefficients: Coefficients
    eta: Tensor | None = None  # (K, n)
    here: Expansion | None = None


def step_from(
    here: Expansion,
    design: Design,
    rows: Rows,
    ridge: Tensor,
    max_halvings: int = FEW_HALVINGS,
    again: bool = False,
) -> InnerStep:
    """One of these steps where the expansion is known already.

    With `again` another step will follow: one pass then judges this one and expands for
    the next.
    """
    coef = agree(rows.ranks, solve_ridge(here.gram, here.moment, ridge))
    at = Coefficients(coef, here.intercept(coef))
    if rows.family.least_squares:
        return InnerStep(at)

    def penalty(coef: Tensor) -> Tensor:
        return (ridge * coef.square()).sum(-1) / 2

    step = _look(design, rows, at, again and not _is_blind(coef, max_halvings))
    return _halve_until_lower(rows, penalty, here, step, max_halvings)


def _look(design: Design, rows: Rows, at: Coefficients, far: bool) -> InnerStep:
    """One pass at a point: `eta`, and the expansion as well when looking far."""
    if not far:
        return InnerStep(at, rows.eta(design, at.coef, at.intercept))
    here = expand(design, rows, at)
    return InnerStep(at, here.eta, here)


def _is_blind(values: Tensor, max_halvings: int) -> bool:
    """Whether trials are made without asking if the first was good."""
    return values.is_cuda and max_halvings <= FEW_HALVINGS


def _halve_until_lower(
    rows: Rows,
    penalty: Callable[[Tensor], Tensor],
    here: Expansion,
    step: InnerStep,
    max_halvings: int,
) -> InnerStep:
    """Shorten the step of each model until its objective does not rise.

    `eta` is linear in the coefficients, so shorter steps need no pass over the design.
    The step itself is returned if no model needs a shorter one.
    """
    at, full, eta = here.at, step.coefficients, step.eta
    assert eta is not None
    start = rows.objective(here.eta, penalty(at.coef))
    slack = 16 * torch.finfo(start.dtype).eps * start.abs()
    size = torch.ones_like(start)
    blind = _is_blind(start, max_halvings)
    for halving in range(max_halvings + 1):
        trial = Coefficients(
            at.coef + size.unsqueeze(-1) * (full.coef - at.coef),
            at.intercept + size * (full.intercept - at.intercept),
        )
        trial_eta = here.eta + size.unsqueeze(-1) * (eta - here.eta)
        value = rows.objective(trial_eta, penalty(trial.coef))
        worse = ~(value <= start + slack)  # NaN counts as worse
        if not blind and not bool(worse.any()):
            return step if halving == 0 else InnerStep(trial, trial_eta)
        last = halving == max_halvings
        size = torch.where(worse, torch.zeros_like(size) if last else size / 2, size)
    kept = torch.where(worse.unsqueeze(-1), here.eta, trial_eta)
    return InnerStep(trial.replaced(worse, at), kept)


def kkt_scale(null: Expansion, penalty: CoefPenalty) -> Tensor:
    """What a violation is relative to: the largest gradient at zero, (K,)."""
    if null.moment.shape[-1] == 0:  # an intercept alone: nothing to be relative to
        return torch.ones_like(penalty.strength)
    largest = null.moment.abs().amax(-1)
    price = penalty.strength * penalty.weight.amax(-1)
    return torch.maximum(largest, price).clamp(min=1e-300)


def violation(here: Expansion, penalty: CoefPenalty) -> Tensor:
    """Distance of zero to the subdifferential of F, (K,).

    Below power 1 zero is always stationary: only nonzero features are judged.
    """
    gap = stationarity_gap(penalty, here.at.coef, here.gradient(here.at.coef))
    return torch.maximum(gap, here.score.abs())


def solve_coefficients(
    design: Design | Tensor,
    rows: Rows,
    penalty: CoefPenalty,
    start: Coefficients | None = None,
    tol: float = 1e-10,
    null: Expansion | None = None,
) -> InnerSolution:
    """Minimise the penalised loss to optimality, exact zeros included.

    `design` is (K, n, q). Models that have converged stop moving, so no answer
    depends on its batch mates. Every iteration is one pass over the design, unless a
    step must be shortened. `null` is the expansion at `start_coefficients`, if known.
    """
    design, ranks = as_design(design), rows.ranks
    if null is None:
        null = expand(design, rows, start_coefficients(rows, design.n_columns))
    here, scale = null, kkt_scale(null, penalty)
    if start is not None:
        here = expand(design, rows, start)
    elif penalty.power < 1:
        here = expand(design, rows, _graduated_start(design, rows, penalty, null.at))
    kkt = torch.full_like(scale, torch.inf)
    done = torch.zeros_like(scale, dtype=torch.bool)
    damping = torch.zeros_like(scale)
    for _ in range(MAX_STEPS):
        at = here.at
        lift = (damping * here.gram.diagonal(dim1=-2, dim2=-1).mean(-1)).unsqueeze(-1)
        gram = here.gram + torch.diag_embed(lift.expand_as(at.coef))
        coef = minimise_quadratic(gram, here.moment + lift * at.coef, penalty, at.coef)
        coef = agree(ranks, coef)
        step = Coefficients(coef, here.intercept(coef)).replaced(done, at)
        look = _look(design, rows, step, far=True)
        found = _halve_until_lower(rows, penalty.value, here, look, 30)
        trial = found.coefficients
        # Below power 1 a returning feature costs infinitely much at first: a shorter
        # step is no remedy, a model that trusts itself less far is.
        stuck = (trial.coef == at.coef).all(-1) & (trial.intercept == at.intercept)
        damping = torch.where(stuck, (10 * damping).clamp(min=0.01), damping / 10)
        here = found.here or expand(design, rows, trial)
        last_kkt, kkt = kkt, agree(ranks, violation(here, penalty) / scale)
        # At rounding level the residual stops falling: that is convergence as well.
        done = done | (kkt <= tol) | ((kkt <= 1e-8) & (kkt >= last_kkt / 2))
        if bool(done.all()):
            break
    objective = rows.objective(here.eta, penalty.value(here.at.coef))
    return InnerSolution(here.at, objective, kkt, done)


def _graduated_start(
    design: Design, rows: Rows, penalty: CoefPenalty, at: Coefficients
) -> Coefficients:
    """Follow a non-convex penalty from a ridge-like, convex one down to itself.

    Zero is a stationary point of every power below one; starting there would stay
    there. A falling floor of the majoriser drops features one after the other instead.
    """
    for exponent in range(25):
        ridge = penalty.ridge(at.coef, 10 ** (-exponent / 6))
        at = newton_steps(design, rows, ridge, at, 1, FEW_HALVINGS)
    return at
