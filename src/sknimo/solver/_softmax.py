"""Additive models of several classes: one softmax, coefficients for every class.

    P(class c | x) = exp(eta_c) / sum_l exp(eta_l),   eta_c = b_c + terms . beta_c

All classes are solved together: Newton's method on the penalised likelihood, its step
by conjugate gradients. What preconditions them is the curvature of each class alone,
`p_c (1 - p_c)`, times `C / (C - 1)`: exact on the subspace where coefficients sum to
zero over classes if all classes are equally likely.

A group of terms has one precision for all classes, learned by evidence as in
`_additive.py`. So coefficients are centred over classes, features that matter to one
class are shrunk less in all, and a group leaves all classes or none.

Everything is in double precision.

Shapes: n rows, q terms, g groups of terms, C classes. The intercept stands as the last
of q + 1 columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.solver._additive import (
    AdditiveOptions,
    by_group,
    factorise,
    pool_precisions,
)
from sknimo.solver._problem import Problem
from sknimo.solver._profile import WEIGHT_FLOOR

# Conjugate gradients of one Newton step, where they end (share of the slope left), and
# after how many of them what preconditions is made anew.
MAX_PRODUCTS = 30
ENOUGH = 0.03
RENEW = 80
# Newton steps between two looks at the precisions, and after the last.
STEPS_BETWEEN, STEPS_LAST = 2, 30
# Newton ends where a step would lower the objective by less than this share of it.
TOL = 1e-12
HALVINGS = 12
# Rows that tell curvatures: they steer, and only slopes decide where it ends.
CURVATURE_ROWS = 20_000


@dataclass(frozen=True, slots=True)
class ClassFit:
    """An additive model of several classes, and the precisions of its groups."""

    coef: Tensor  # (C, q)
    intercept: Tensor  # (C,)
    precision: Tensor  # (g,)

    def ridge(self, term_group: Tensor) -> Tensor:
        """Ridge of the sum of weighted losses, (q,)."""
        return self.precision[term_group]


@dataclass(frozen=True, slots=True)
class ClassRows:
    """Rows as the solver sees them."""

    columns: Tensor  # (n, q + 1), terms and ones
    truth: Tensor  # (n, C), one where the row is of the class
    weight: Tensor  # (n,), counts rows

    @classmethod
    def of(cls, problem: Problem, weight: Tensor, n_classes: int) -> ClassRows:
        """Rows of positive weight."""
        used = weight > 0
        terms = problem.terms[used]
        ones = terms.new_ones(len(terms), 1)
        truth = torch.nn.functional.one_hot(problem.y[used].long(), n_classes)
        return cls(torch.cat([terms, ones], 1), truth.to(terms), weight[used])

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return self.truth.shape[1]

    def chances(self, flat: Tensor) -> Tensor:
        """Probabilities, (n, C), of coefficients (C, q + 1)."""
        return (self.columns @ flat.T).softmax(1)

    def objective(self, flat: Tensor, ridge: Tensor) -> float:
        """Loss and penalty, which is `ridge` (q + 1,)."""
        eta = self.columns @ flat.T
        loss = eta.logsumexp(1) - (eta * self.truth).sum(1)
        return float(self.weight @ loss + (ridge * flat.square()).sum() / 2)

    def slope(self, flat: Tensor, ridge: Tensor) -> Tensor:
        """Derivative of the objective, (C, q + 1)."""
        left = (self.chances(flat) - self.truth) * self.weight.unsqueeze(1)
        return left.T @ self.columns + ridge * flat

    def curvature(self, flat: Tensor) -> Tensor:
        """Gram matrices of classes, (C, q + 1, q + 1), of some of very many rows."""
        n_classes, step = self.n_classes, -(-len(self.weight) // CURVATURE_ROWS)
        columns, weight = self.columns[::step], self.weight[::step]
        chance = (columns @ flat.T).softmax(1)
        share = chance * (1 - chance) * (n_classes / (n_classes - 1))
        weight = weight * (self.weight.sum() / weight.sum())
        share = share * weight.unsqueeze(1)
        share = torch.maximum(share, WEIGHT_FLOOR * share.mean(0))
        weighed = (columns.T * one for one in share.T)
        return torch.stack([each @ columns for each in weighed])


def fit_classes(
    rows: ClassRows,
    term_group: Tensor,
    is_curve: Tensor,
    options: AdditiveOptions,
    start: ClassFit | None = None,
) -> ClassFit:
    """Coefficients of all classes, with precisions learned; `is_curve` is (g,).

    `start` is the fit of almost the same rows, if there is one.
    """
    state = _start(rows, term_group, is_curve) if start is None else start
    size = torch.bincount(term_group, minlength=len(is_curve)).to(state.coef)
    for number in range(options.max_looks):
        before = state.precision
        grams = rows.curvature(join_classes(state))
        state = _learn(rows, state, grams, term_group, is_curve, size, options)
        moved = (state.precision / before).log().abs()[size > 0]
        settled = float(moved.max()) < 2 * options.tol if len(moved) else True
        if number > (0 if start else 2) and settled:
            break
    return _leave_out(rows, state, term_group, size, options)


def _start(rows: ClassRows, term_group: Tensor, is_curve: Tensor) -> ClassFit:
    """No coefficients, precisions of one."""
    counts = rows.weight @ rows.truth
    intercept = (counts.clamp(min=1e-9) / counts.sum()).log()
    nothing = rows.columns.new_zeros(rows.n_classes, len(term_group))
    ones = nothing.new_ones(len(is_curve))
    return ClassFit(nothing, intercept - intercept.mean(), ones)


def join_classes(state: ClassFit) -> Tensor:
    """Coefficients and intercepts side by side, (C, q + 1)."""
    return torch.cat([state.coef, state.intercept.unsqueeze(1)], 1)


def _with_intercept(ridge: Tensor) -> Tensor:
    return torch.cat([ridge, ridge.new_zeros(1)])


def _learn(
    rows: ClassRows,
    state: ClassFit,
    grams: Tensor,
    group: Tensor,
    is_curve: Tensor,
    size: Tensor,
    options: AdditiveOptions,
) -> ClassFit:
    """Precisions on one quadratic model, then coefficients by Newton's method."""
    n_classes = rows.n_classes
    high = options.precision_range[1]
    low = max(options.precision_range[0], options.least_separable)
    flat, precision = join_classes(state), state.precision
    slope = rows.slope(flat, torch.zeros_like(flat[0]))
    target = (grams @ flat.unsqueeze(2)).squeeze(2) - slope
    free = (n_classes - 1) / n_classes  # coefficients sum to zero over classes
    for _ in range(options.updates):
        ridge = _with_intercept(precision[group])
        factors = torch.stack([factorise(gram, ridge) for gram in grams])
        near = torch.cholesky_solve(target.unsqueeze(2), factors).squeeze(2)
        near = (near - near.mean(0))[:, :-1]
        spread = torch.cholesky_inverse(factors).diagonal(dim1=1, dim2=2)[:, :-1]
        idle = precision * by_group(spread.sum(0), group, size)
        gamma = free * (n_classes * size - idle)
        gamma = torch.minimum(gamma.clamp(min=1e-8), size * (n_classes - 1))
        square = by_group(near.square().sum(0), group, size).clamp(min=1e-30)
        new = pool_precisions(gamma, square, is_curve.long(), options.pooling)
        new = torch.where(size > 0, new.clamp(low, high), precision)
        change = (new / precision).log().abs()
        precision = new
        if float(change.max()) < options.tol:
            break
    ridge = precision[group]
    flat = minimise(rows, flat, ridge, grams, STEPS_BETWEEN)
    return ClassFit(flat[:, :-1], flat[:, -1], precision)


def minimise(
    rows: ClassRows, flat: Tensor, ridge: Tensor, grams: Tensor, n_steps: int
) -> Tensor:
    """Newton's method on the penalised loss, from `flat` (C, q + 1); `ridge` is (q,).

    `grams` are those of a point nearby, which precondition.
    """
    ridge = _with_intercept(ridge)
    factors = torch.stack([factorise(gram, ridge) for gram in grams])
    value, n_products = rows.objective(flat, ridge), 0
    for _ in range(n_steps):
        if n_products > RENEW:
            grams, n_products = rows.curvature(flat), 0
            factors = torch.stack([factorise(gram, ridge) for gram in grams])
        slope = rows.slope(flat, ridge)
        move, count = _newton_step(rows, flat, ridge, slope, factors)
        n_products += count
        fall = -float((move * slope).sum())
        if not fall > TOL * max(value, 1.0):
            break
        share = 1.0
        for _ in range(HALVINGS):
            trial = flat + share * move
            found = rows.objective(trial, ridge)
            if found <= value - 1e-4 * share * fall:
                break
            share /= 2
        else:
            break
        # A shift common to all classes changes penalties alone: zero is best.
        flat, value = trial - trial.mean(0), found
    return flat


def _newton_step(
    rows: ClassRows, flat: Tensor, ridge: Tensor, slope: Tensor, factors: Tensor
) -> tuple[Tensor, int]:
    """Solve with the curvature of all classes, (C, q + 1); in how many products."""
    chance = rows.chances(flat)
    weight = rows.weight.unsqueeze(1)

    def product(move: Tensor) -> Tensor:
        turned = rows.columns @ move.T
        inner = chance * (turned - (chance * turned).sum(1, keepdim=True))
        return (inner * weight).T @ rows.columns + ridge * move

    def precondition(left: Tensor) -> Tensor:
        near = torch.cholesky_solve(left.unsqueeze(2), factors).squeeze(2)
        return near - near.mean(0)

    move, left = torch.zeros_like(flat), -slope
    near = precondition(left)
    way, size = near, float((left * near).sum())
    first, count = size, 0
    while size > ENOUGH**2 * first and count < MAX_PRODUCTS:
        count += 1
        turned = product(way)
        along = float((way * turned).sum())
        if not along > 0:
            break
        move = move + (size / along) * way
        left = left - (size / along) * turned
        near = precondition(left)
        before, size = size, float((left * near).sum())
        way = near + (size / before) * way
    return move, count


def _leave_out(
    rows: ClassRows,
    state: ClassFit,
    group: Tensor,
    size: Tensor,
    options: AdditiveOptions,
) -> ClassFit:
    """Without the groups that do nothing in any class, as far as the rows can tell."""
    grams = rows.curvature(join_classes(state))
    ridge = _with_intercept(state.ridge(group))
    factors = torch.stack([factorise(gram, ridge) for gram in grams])
    spread = torch.cholesky_inverse(factors).diagonal(dim1=1, dim2=2)[:, :-1]
    free = (rows.n_classes - 1) / rows.n_classes
    idle = state.precision * by_group(spread.sum(0), group, size)
    gamma = free * (rows.n_classes * size - idle)
    wald = by_group((state.coef.square() / spread).sum(0), group, size)
    silent = wald < options.least_wald * gamma
    high = options.precision_range[1]
    precision = torch.where(silent, high, state.precision)
    flat = join_classes(
        replace(state, coef=torch.where(silent[group], 0.0, state.coef))
    )
    flat = minimise(rows, flat, precision[group], grams, STEPS_LAST)
    coef = torch.where(silent[group], 0.0, flat[:, :-1])
    return ClassFit(coef, flat[:, -1], precision)


def solve_class_bag(rows: ClassRows, fit: ClassFit, group: Tensor) -> ClassFit:
    """The model of some of the rows, with the precisions of all of them."""
    flat = join_classes(fit)
    silent = (fit.coef == 0).all(0)
    flat = minimise(rows, flat, fit.ridge(group), rows.curvature(flat), STEPS_LAST)
    return replace(
        fit, coef=torch.where(silent, 0.0, flat[:, :-1]), intercept=flat[:, -1]
    )
