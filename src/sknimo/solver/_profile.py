"""Eliminate the coefficients: the inner solve, with the network held fixed.

Given `design = phi * (1 + g)` the intercept and coefficients minimise

    F(b0, beta) = sum_i w_i loss(y_i, eta_i) / sum_i w_i + penalty(beta),
    eta = offset + b0 + design . beta.

Two solvers share one Newton system. `newton_step` majorises the penalty by a ridge
(the adaptive ridge of the paper) and takes one damped Newton step: cheap, smooth, used
inside training. `solve_coefficients` minimises F itself: proximal Newton steps whose
quadratic model is solved by accelerated proximal descent, which finds the support, and
Newton's method on the support, which makes it exact. It returns exact zeros and the
remaining optimality (KKT) residual.

Everything here is float64. The intercept is eliminated by centring the columns of the
design with the working weights, never by subtracting large moments.

Shapes: K models, n rows, q columns, p features; the model axis K always leads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.penalties import CoefPenalty

# Working weights below this share of their mean are lifted to it: curvature only, so
# the solution does not move, but a saturated row can no longer make a step explode.
WEIGHT_FLOOR = 1e-8
# Relative to the mean diagonal of the Gram matrix. Breaks ties between duplicated
# columns symmetrically and is far below every tolerance promised to users.
TIE_BREAK = 1e-11


@dataclass(frozen=True, slots=True)
class Rows:
    """What the inner solve needs to know of the data, per model.

    Attributes
    ----------
    y, offset : Tensor of shape (n,)
    weight : Tensor of shape (K, n)
        Row weights of each model, summing to one.
    family : Family
    """

    y: Tensor
    offset: Tensor
    weight: Tensor
    family: Family

    def take(self, members: Tensor) -> Rows:
        """Keep the models with the given indices."""
        return Rows(self.y, self.offset, self.weight[members], self.family)

    def eta(self, design: Tensor, coef: Tensor, intercept: Tensor) -> Tensor:
        """Linear predictor, (K, n)."""
        fitted = (design @ coef.unsqueeze(-1)).squeeze(-1)
        return self.offset + intercept.unsqueeze(-1) + fitted

    def loss(self, eta: Tensor, weight: Tensor | None = None) -> Tensor:
        """Weighted mean half deviance, (K,); zero weights silence their rows."""
        weight = self.weight if weight is None else weight
        return _weigh(weight, self.family.loss(self.y, eta)).sum(-1)

    def score(self, eta: Tensor) -> Tensor:
        """Weighted minus first derivative of each row's loss, (K, n)."""
        return _weigh(self.weight, self.family.score(self.y, eta))

    def curvature(self, eta: Tensor) -> Tensor:
        """Weighted second derivative of each row's loss, (K, n)."""
        return _weigh(self.weight, self.family.curvature(self.y, eta))


def _weigh(weight: Tensor, values: Tensor) -> Tensor:
    """Product in which a weight of zero silences even an overflow."""
    return weight * torch.where(weight > 0, values, torch.zeros_like(values))


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Intercept and coefficients of K models."""

    coef: Tensor  # (K, q)
    intercept: Tensor  # (K,)

    def take(self, members: Tensor) -> Coefficients:
        """Keep the models with the given indices."""
        return Coefficients(self.coef[members], self.intercept[members])


@dataclass(frozen=True, slots=True)
class InnerSolution:
    """Minimiser of the penalised loss for a fixed network."""

    coefficients: Coefficients
    objective: Tensor  # (K,)
    kkt: Tensor  # (K,), optimality residual relative to the gradient at zero
    converged: Tensor  # (K,), bool


@dataclass(frozen=True, slots=True)
class _Quadratic:
    """Second-order model of the loss after the intercept has been eliminated.

    Up to a constant `beta' gram beta / 2 - moment' beta`; the intercept that belongs
    to `beta` is `level - mean . beta`.
    """

    gram: Tensor  # (K, q, q)
    moment: Tensor  # (K, q)
    mean: Tensor  # (K, q)
    level: Tensor  # (K,)

    def intercept(self, coef: Tensor) -> Tensor:
        return self.level - (self.mean * coef).sum(-1)

    def gradient(self, coef: Tensor) -> Tensor:
        return (self.gram @ coef.unsqueeze(-1)).squeeze(-1) - self.moment


def quadratic_model(design: Tensor, rows: Rows, at: Coefficients) -> _Quadratic:
    """Expand the loss to second order around the given coefficients."""
    eta = rows.eta(design, at.coef, at.intercept)
    curvature = rows.curvature(eta)
    total = curvature.sum(-1, keepdim=True)
    # Floor relative to the mean, only where a row counts at all.
    floor = WEIGHT_FLOOR * total * rows.weight
    curvature = torch.maximum(curvature, floor)
    total = curvature.sum(-1, keepdim=True).clamp(min=1e-300)
    score = rows.score(eta)
    share = (curvature / total).unsqueeze(-1)
    mean = (share * design).sum(-2)
    centred = design - mean.unsqueeze(-2)
    gram = centred.mT @ (curvature.unsqueeze(-1) * centred)
    pull = (centred.mT @ score.unsqueeze(-1)).squeeze(-1)
    moment = (gram @ at.coef.unsqueeze(-1)).squeeze(-1) + pull
    level = at.intercept + (mean * at.coef).sum(-1) + score.sum(-1) / total.squeeze(-1)
    return _Quadratic(gram, moment, mean, level)


def start_coefficients(rows: Rows, n_columns: int) -> Coefficients:
    """Intercept-only start: the link of the weighted mean response."""
    n_models = rows.weight.shape[0]
    y_mean = (rows.weight * rows.y).sum(-1)
    offset_mean = (rows.weight * rows.offset).sum(-1)
    family = rows.family
    if family.name == "binomial":
        y_mean = y_mean.clamp(1e-6, 1 - 1e-6)
    elif family.link == "log":
        y_mean = y_mean.clamp(min=1e-6)
    coef = rows.weight.new_zeros(n_models, n_columns)
    return Coefficients(coef, family.link_function(y_mean) - offset_mean)


def newton_step(
    design: Tensor, rows: Rows, ridge: Tensor, at: Coefficients, max_halvings: int = 4
) -> Coefficients:
    """One damped Newton step on the loss plus `sum ridge * beta**2 / 2`, ridge (K, q).

    With the ridge of a penalty's majoriser this is a step of the adaptive ridge. For
    the Gaussian family the step is the exact minimiser.
    """
    model = quadratic_model(design, rows, at)
    coef = _solve_ridge(model.gram, model.moment, ridge)
    step = Coefficients(coef, model.intercept(coef))
    if rows.family.scaled_target:
        return step

    def value(point: Coefficients) -> Tensor:
        eta = rows.eta(design, point.coef, point.intercept)
        return rows.loss(eta) + (ridge * point.coef.square()).sum(-1) / 2

    return _halve_until_lower(value, at, step, max_halvings)


def _solve_ridge(gram: Tensor, moment: Tensor, ridge: Tensor) -> Tensor:
    """Solve `(gram + diag(ridge)) beta = moment` after scaling the diagonal to one."""
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    tie_break = TIE_BREAK * diagonal.mean(-1, keepdim=True) + 1e-300
    total = gram + torch.diag_embed(ridge + tie_break)
    scale = total.diagonal(dim1=-2, dim2=-1).rsqrt()
    scaled = scale.unsqueeze(-1) * total * scale.unsqueeze(-2)
    factor, info = torch.linalg.cholesky_ex(scaled)
    solution = torch.cholesky_solve((scale * moment).unsqueeze(-1), factor)
    if bool((info > 0).any()):  # numerically singular: lift the diagonal and retry
        lifted = scaled + 1e-9 * torch.eye(gram.shape[-1], dtype=gram.dtype).to(gram)
        retry = torch.linalg.solve(lifted, (scale * moment).unsqueeze(-1))
        solution = torch.where((info > 0).view(-1, 1, 1), retry, solution)
    return scale * solution.squeeze(-1)


def _halve_until_lower(value, at, step, max_halvings):  # type: ignore[no-untyped-def]
    """Shorten the step of each model until its objective does not rise."""
    start = value(at)
    slack = 16 * torch.finfo(start.dtype).eps * start.abs()
    size = torch.ones_like(start)
    for halving in range(max_halvings + 1):
        trial = Coefficients(
            at.coef + size.unsqueeze(-1) * (step.coef - at.coef),
            at.intercept + size * (step.intercept - at.intercept),
        )
        worse = ~(value(trial) <= start + slack)  # NaN counts as worse
        if not bool(worse.any()):
            return trial
        last = halving == max_halvings
        size = torch.where(worse, torch.zeros_like(size) if last else size / 2, size)
    return Coefficients(
        torch.where(worse.unsqueeze(-1), at.coef, trial.coef),
        torch.where(worse, at.intercept, trial.intercept),
    )


def kkt_residual(
    design: Tensor, rows: Rows, penalty: CoefPenalty, at: Coefficients
) -> Tensor:
    """Largest violation of the optimality conditions, relative, shape (K,).

    The violation is the distance of zero to the subdifferential of F, measured against
    the largest gradient of the loss at zero coefficients. Below power 1 zero is always
    a stationary point, so only nonzero features are judged.
    """
    model = quadratic_model(design, rows, at)
    null = start_coefficients(rows, design.shape[-1])
    null_model = quadratic_model(design, rows, null)
    scale = torch.ones_like(penalty.strength)
    if design.shape[-1] > 0:  # else an intercept alone: nothing to be relative to
        scale = torch.maximum(
            null_model.moment.abs().amax(-1), penalty.strength * penalty.weight.amax(-1)
        )
    eta = rows.eta(design, at.coef, at.intercept)
    level_gap = rows.score(eta).sum(-1).abs()
    gap = _stationarity_gap(penalty, at.coef, model.gradient(at.coef))
    return torch.maximum(gap, level_gap) / scale.clamp(min=1e-300)


def _stationarity_gap(penalty: CoefPenalty, coef: Tensor, gradient: Tensor) -> Tensor:
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


def solve_coefficients(
    design: Tensor,
    rows: Rows,
    penalty: CoefPenalty,
    start: Coefficients | None = None,
    tol: float = 1e-10,
    max_iter: int = 60,
) -> InnerSolution:
    """Minimise the penalised loss to optimality, exact zeros included.

    `design` is (K, n, q). Models that have converged stop moving, so no answer
    depends on its batch mates.
    """
    at = start_coefficients(rows, design.shape[-1]) if start is None else start
    if start is None and penalty.power < 1:
        at = _graduated_start(design, rows, penalty, at)

    def value(point: Coefficients) -> Tensor:
        eta = rows.eta(design, point.coef, point.intercept)
        return rows.loss(eta) + penalty.value(point.coef)

    done = torch.zeros(rows.weight.shape[0], dtype=torch.bool, device=design.device)
    kkt = torch.full_like(rows.weight[:, 0], torch.inf)
    damping = torch.zeros_like(kkt)
    for _ in range(max_iter):
        model = quadratic_model(design, rows, at)
        lift = (damping * model.gram.diagonal(dim1=-2, dim2=-1).mean(-1)).unsqueeze(-1)
        gram = model.gram + torch.diag_embed(lift.expand_as(at.coef))
        coef = minimise_quadratic(gram, model.moment + lift * at.coef, penalty, at.coef)
        step = Coefficients(coef, model.intercept(coef))
        trial = _halve_until_lower(value, at, step, max_halvings=30)
        # Below power 1 a returning feature costs infinitely much at first: a shorter
        # step is no remedy, a model that trusts itself less far is.
        stuck = (trial.coef == at.coef).all(-1) & (trial.intercept == at.intercept)
        damping = torch.where(stuck, (10 * damping).clamp(min=0.01), damping / 10)
        at = Coefficients(
            torch.where(done.unsqueeze(-1), at.coef, trial.coef),
            torch.where(done, at.intercept, trial.intercept),
        )
        last_kkt, kkt = kkt, kkt_residual(design, rows, penalty, at)
        # At rounding level the residual stops falling: that is convergence as well.
        done = done | (kkt <= tol) | ((kkt <= 1e-8) & (kkt >= last_kkt / 2))
        if bool(done.all()):
            break
    return InnerSolution(at, value(at), kkt, done)


def _graduated_start(
    design: Tensor, rows: Rows, penalty: CoefPenalty, at: Coefficients
) -> Coefficients:
    """Follow a non-convex penalty from a ridge-like, convex one down to itself.

    Zero is a stationary point of every power below one; starting there would stay
    there. A falling floor of the majoriser drops features one after the other instead.
    """
    for exponent in range(25):
        ridge = penalty.ridge(at.coef, 10 ** (-exponent / 6))
        at = newton_step(design, rows, ridge, at)
    return at


def minimise_quadratic(
    gram: Tensor, moment: Tensor, penalty: CoefPenalty, start: Tensor
) -> Tensor:
    """Minimise `b' gram b / 2 - moment' b + penalty(b)`, (K, q).

    Rounds of accelerated proximal descent find the support; after each round Newton's
    method on the support is tried, and a model is finished once its optimality
    conditions hold.
    """
    if gram.shape[-1] == 0:
        return start
    if penalty.power == 2:
        ridge = penalty.ridge(start, 0.0)
        return _solve_ridge(gram, moment, ridge)
    diagonal = gram.diagonal(dim1=-2, dim2=-1)
    tie_break = TIE_BREAK * diagonal.mean(-1, keepdim=True) + 1e-300
    gram = gram + torch.diag_embed(tie_break.expand_as(moment))
    largest = torch.linalg.matrix_norm(gram, ord=2).clamp(min=1e-300)
    scale = torch.maximum(moment.abs().amax(-1), penalty.strength).clamp(min=1e-300)
    coef = start
    done = torch.zeros_like(scale, dtype=torch.bool)
    for round_ in range(40):
        n_steps = 20 if round_ == 0 else 200
        trial = _proximal_descent(gram, moment, penalty, coef, 1 / largest, n_steps)
        trial = _polish(gram, moment, penalty, trial)
        coef = torch.where(done.unsqueeze(-1), coef, trial)
        gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) - moment
        done = done | (_stationarity_gap(penalty, coef, gradient) <= 1e-13 * scale)
        done = done | ~torch.isfinite(coef).all(-1)  # lost: more rounds do not help
        if bool(done.all()):
            break
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
    """Newton's method on the support; a feature that would change sign leaves it."""
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    same_feature = (
        penalty.column_feature.unsqueeze(0) == penalty.column_feature[:, None]
    )
    for _ in range(8):
        norm = penalty.norm(coef)
        on = penalty.spread((norm > 0).to(coef.dtype))
        safe = torch.where(norm > 0, norm, torch.ones_like(norm))
        pull = penalty.spread(penalty.slope(safe) / safe)
        gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) - moment + pull * coef
        unit = coef / penalty.spread(safe)
        outer = unit.unsqueeze(-1) * unit.unsqueeze(-2) * same_feature
        bend = eye + (penalty.power - 2) * outer
        hessian = gram + pull.unsqueeze(-1) * bend
        hessian = on.unsqueeze(-1) * hessian * on.unsqueeze(-2)
        hessian = hessian + torch.diag_embed(1 - on)
        move, info = torch.linalg.solve_ex(hessian, (-on * gradient).unsqueeze(-1))
        move = torch.where((info == 0).view(-1, 1, 1), move, torch.zeros_like(move))
        coef = _step_within_orthant(penalty, coef, move.squeeze(-1))
        if bool((move.abs().amax((-2, -1)) <= 1e-15 * coef.abs().amax(-1)).all()):
            break
    return coef


def _step_within_orthant(penalty: CoefPenalty, coef: Tensor, move: Tensor) -> Tensor:
    """Step up to the first feature that reaches zero, and set that one to zero.

    A feature reaches zero when the projection on its own direction does.
    """
    along = torch.zeros_like(penalty.weight)
    along.index_add_(1, penalty.column_feature, coef * move)
    square = penalty.norm(coef).square()
    # coef . (coef + t move) = 0 at t = -square / along.
    reach = torch.where(along < 0, -square / along, torch.full_like(square, torch.inf))
    reach = torch.where(square > 0, reach, torch.full_like(square, torch.inf))
    size = reach.amin(-1).clamp(max=1.0)
    hit = reach <= size.unsqueeze(-1)
    moved = coef + size.unsqueeze(-1) * move
    return torch.where(penalty.spread(hit), torch.zeros_like(moved), moved)
