"""Train the network: K members in one tensor program, coefficients eliminated.

One step: evaluate the design `phi * (1 + g)`, eliminate the coefficients (inner solve,
float64), differentiate the penalised loss with the coefficients held fixed (exact by
the envelope theorem, because they minimise that same loss on the same rows with the
same noise), move by Adam, shrink the first layer's groups by a proximal step.

With mini-batches a step differentiates the loss of some rows only, at coefficients that
were solved on all rows and are held fixed: unbiased, where solving on the batch itself
would not be. They are renewed at every check, and the last word is an exact solve.

Only features with a coefficient are modulated; the others stay in the design as they
are, so that they can return, and cost the network nothing. The set is renewed at every
check. Members that are finished leave the batch with their values frozen.

Shapes: K models, n rows, q term columns, r inputs, p features, a active, P weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.network import Modulator, init_params, unpack
from sknimo.penalties import CoefPenalty, shrink_groups
from sknimo.solver._problem import History, Members, Options, Problem, Solution, Status
from sknimo.solver._profile import (
    Coefficients,
    InnerSolution,
    Rows,
    newton_step,
    solve_coefficients,
)

# Coefficients far below this size are majorised as if they had it (penalties.ridge).
RIDGE_FLOOR = 1e-4
# A feature is modulated while its coefficients exceed this share of the largest.
ACTIVE_SHARE = 1e-3
# Newton steps of the inner solve per network step when the loss is not quadratic.
GLM_INNER_STEPS = 2
ADAM_BETAS = (0.9, 0.99)
# Large for Adam: gradients of a unit-variance objective far below it are rounding
# noise, and normalising noise would let the order of summation decide the result.
ADAM_EPS = 1e-4
MAX_ROLLBACKS = 3


def solve(
    problem: Problem,
    members: Members,
    options: Options,
    start: Tensor | None = None,
) -> Solution:
    """Fit K members; `start` (K, P) replaces the random networks.

    The result of a member does not depend on the others, on the number of row chunks
    or, beyond rounding, on the device.
    """
    device = problem.device
    params = init_params(problem.spec, members.seeds) if start is None else start
    params = params.to(device=device, dtype=options.dtype, copy=True)
    nested = Forward(problem, options).solve_exactly(
        params, members, torch.zeros_like(members.support), None
    )
    run = _Run(problem, members, options, nested, params)
    steps = tqdm(
        range(options.max_iter),
        desc="sknimo",
        disable=None if options.progress else True,
        delay=2,
        leave=False,
    )
    with _Threads(problem, members):
        for step in steps:
            if run.finished:
                break
            run.step(step)
        steps.close()
        return run.finish()


@dataclass
class _Live:
    """The moving part of the members still in training, K leading."""

    index: Tensor  # (K,), position in the full batch
    members: Members
    rows: Rows
    params: Tensor  # (K, P)
    first_moment: Tensor  # (K, P)
    second_moment: Tensor  # (K, P)
    coefficients: Coefficients
    active: Tensor  # (K, a)
    active_mask: Tensor  # (K, p), bool
    rate: Tensor  # (K,), learning rate factor, halved after a divergence
    rollbacks: Tensor  # (K,)
    best_score: Tensor  # (K,)
    stalled: Tensor  # (K,), checks since the score last fell
    safe: Tensor  # (K, P), params at the last finite check
    kept: Tensor  # (K, P), params to return
    kept_coefficients: Coefficients
    kept_active: Tensor  # (K, p)

    def take(self, members: Tensor) -> _Live:
        """Keep the members with the given indices."""
        values = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            is_tensor = isinstance(value, Tensor)
            values[name] = value[members] if is_tensor else value.take(members)
        return _Live(**values)


@dataclass
class _Log:
    """Rows of the history as they come."""

    step: list[int] = field(default_factory=list)
    columns: dict[str, list[np.ndarray]] = field(
        default_factory=lambda: {
            name: [] for name in ("objective", "validation", "n_features", "n_inputs")
        }
    )

    def add(self, step: int, n_models: int, index: Tensor, **values: Tensor) -> None:
        where = index.cpu().numpy()
        self.step.append(step)
        for name, value in values.items():
            row = np.full(n_models, np.nan)
            row[where] = value.detach().cpu().double().numpy()
            self.columns[name].append(row)

    def freeze(self, n_models: int) -> History:
        stacked = {
            name: np.array(rows).reshape(-1, n_models)
            for name, rows in self.columns.items()
        }
        return History(step=np.array(self.step, dtype=int), **stacked)


class _Run:
    """One call of `solve`: the loop's state and its three verbs."""

    def __init__(
        self,
        problem: Problem,
        members: Members,
        options: Options,
        nested: InnerSolution,
        params: Tensor,
    ) -> None:
        self.problem = problem
        self.members = members
        self.options = options
        self.nested = nested
        self.forward = Forward(problem, options)
        self.log = _Log()
        self.noise_source = torch.Generator().manual_seed(options.noise_seed)
        self.order = torch.empty(0, dtype=torch.long)  # rows of this pass still to come
        self.penalty = members.penalty  # as priced at the last check
        n_models = members.n_models
        self.status: list[Status | None] = [None] * n_models
        self.n_iter = torch.zeros(n_models, dtype=torch.long)
        params = self.forward.only_supported_inputs(params, members)
        self.live = self._start(params)
        self.final = self.live  # kept values of all members, filled as they finish

    @property
    def finished(self) -> bool:
        """Whether no member is left in training."""
        return len(self.live.index) == 0

    def _start(self, params: Tensor) -> _Live:
        members, problem = self.members, self.problem
        n_models, device = members.n_models, params.device
        at = self.nested.coefficients
        active, mask = choose_active(members.penalty, at.coef, members.support)
        infinite = torch.full((n_models,), torch.inf, device=device).double()
        zeros = torch.zeros(n_models, dtype=torch.long, device=device)
        rows = Rows(problem.y, problem.offset, members.weight, problem.family)
        return _Live(
            index=torch.arange(n_models, device=device),
            members=members,
            rows=rows,
            params=params,
            first_moment=torch.zeros_like(params),
            second_moment=torch.zeros_like(params),
            coefficients=at,
            active=active,
            active_mask=mask,
            rate=torch.ones(n_models, device=device, dtype=params.dtype),
            rollbacks=zeros,
            best_score=infinite,
            stalled=zeros.clone(),
            safe=params.clone(),
            kept=params.clone(),
            kept_coefficients=at,
            kept_active=mask,
        )

    def step(self, step: int) -> None:
        """One optimiser step for all live members, with a check when it is due."""
        if self.options.batch_size:
            self._batch_step(step)
            return
        live, options = self.live, self.options
        noise = self._draw_noise(self.problem.n_rows)
        point = self.forward.differentiate(live, noise)
        live.coefficients = point.coefficients
        gradient = point.gradient
        if step % options.check_every == 0:
            rollbacks = live.rollbacks
            self._check(step, point, clean=noise is None)
            if self.finished:
                return
            # The gradient of a member that was rolled back belongs to the lost state.
            lost = (live.rollbacks > rollbacks).unsqueeze(-1)
            gradient = gradient.masked_fill(lost, 0.0)
            if self.live is not live:  # members left: their gradients leave too
                gradient = gradient[torch.isin(live.index, self.live.index)]
        self._move(step, gradient)

    def _batch_step(self, step: int) -> None:
        """One step on a batch of rows; coefficients move at the checks only."""
        if step % self.options.check_every == 0:
            point = self.forward.evaluate(self.live.params, self.live)
            live = self.live
            live.coefficients = point.coefficients
            self._check(step, point, clean=True)
            if self.finished:
                return
            stayed = torch.isin(live.index, self.live.index).nonzero().squeeze(-1)
            self.penalty = point.penalty.take(stayed)
        batch = self._draw_batch()
        noise = self._draw_noise(len(batch))
        gradient = self.forward.differentiate_batch(
            self.live, self.penalty, batch, noise
        )
        self._move(step, gradient)

    def _draw_batch(self) -> Tensor:
        """Rows of the next step, each once per pass, the same for all members."""
        size = self.options.batch_size
        if len(self.order) < size:
            fresh = torch.randperm(self.problem.n_rows, generator=self.noise_source)
            self.order = torch.cat([self.order, fresh])
        batch, self.order = self.order[:size], self.order[size:]
        return batch.to(self.problem.device)

    def _draw_noise(self, n_rows: int) -> Tensor | None:
        if self.options.noise == 0:
            return None
        shape = (n_rows, self.problem.spec.hidden[0])
        # Drawn on the CPU in one precision: the same noise on every device.
        draw = torch.randn(shape, generator=self.noise_source)
        return self.options.noise * draw.to(self.live.params)

    def _move(self, step: int, gradient: Tensor) -> None:
        """Adam, decoupled decay, then the proximal step of the first layer."""
        live, options = self.live, self.options
        beta1, beta2 = ADAM_BETAS
        live.first_moment.lerp_(gradient, 1 - beta1)
        live.second_moment.lerp_(gradient.square(), 1 - beta2)
        mean = live.first_moment / (1 - beta1 ** (step + 1))
        spread = (live.second_moment / (1 - beta2 ** (step + 1))).sqrt()
        rate = learning_rate(step, options) * live.rate
        move = rate.unsqueeze(-1) * mean / (spread + ADAM_EPS)
        params = live.params - move
        weights = unpack(self.problem.spec, params)
        if options.weight_decay:
            keep = (1 - rate * options.weight_decay).view(-1, 1, 1)
            weights.second.mul_(keep)
            weights.out.mul_(keep.squeeze(-1))
        amount = rate * live.members.network_alpha.to(rate)
        weights.first.copy_(
            shrink_groups(
                weights.first,
                self.forward.modulator.input_feature,
                self.problem.spec.n_features,
                amount,
            )
        )
        live.params = self.forward.only_supported_inputs(params, live.members)

    def _check(self, step: int, point: Point, clean: bool) -> None:
        """Judge progress, keep the best, roll back divergence, let members leave."""
        live, options = self.live, self.options
        if not clean:
            point = self.forward.evaluate(live.params, live)
            live.coefficients = point.coefficients
        has_validation = live.members.validation is not None
        validation = torch.full_like(point.objective, torch.nan)
        if has_validation:
            validation = live.rows.loss(point.eta, live.members.validation)
        score = validation if has_validation else point.objective
        diverged = ~(torch.isfinite(score) & torch.isfinite(point.objective))
        self._roll_back(diverged)
        better = score < live.best_score - options.tol * live.best_score.abs().clamp(
            max=1e300
        )
        better |= torch.isinf(live.best_score) & ~diverged
        live.stalled = torch.where(better, 0, live.stalled + 1)
        live.best_score = torch.where(better, score, live.best_score)
        live.safe = torch.where(diverged.unsqueeze(-1), live.safe, live.params)
        # With validation rows the best state is kept, otherwise the latest finite one:
        # shrinkage may raise the loss while it clears the first layer.
        keep = better if has_validation else ~diverged
        wide = keep.unsqueeze(-1)
        live.kept = torch.where(wide, live.params, live.kept)
        live.kept_coefficients = Coefficients(
            torch.where(wide, live.coefficients.coef, live.kept_coefficients.coef),
            torch.where(
                keep, live.coefficients.intercept, live.kept_coefficients.intercept
            ),
        )
        live.kept_active = torch.where(wide, live.active_mask, live.kept_active)
        first = unpack(self.problem.spec, live.params).first
        self.log.add(
            step,
            self.members.n_models,
            live.index,
            objective=point.objective,
            validation=validation,
            n_features=live.active_mask.sum(-1),
            n_inputs=(first.abs().amax(1) > 0).sum(-1),
        )
        self._let_go(step, has_validation)
        if not self.finished:
            live = self.live
            live.active, live.active_mask = choose_active(
                live.members.penalty, live.coefficients.coef, live.members.support
            )

    def _roll_back(self, diverged: Tensor) -> None:
        """Return diverged members to their last finite state at half the rate."""
        if not bool(diverged.any()):
            return
        live = self.live
        wide = diverged.unsqueeze(-1)
        live.params = torch.where(wide, live.safe, live.params)
        live.first_moment = live.first_moment.masked_fill(wide, 0.0)
        live.second_moment = live.second_moment.masked_fill(wide, 0.0)
        nested = self.nested.coefficients.take(live.index)
        live.coefficients = Coefficients(
            torch.where(wide, nested.coef, live.coefficients.coef),
            torch.where(diverged, nested.intercept, live.coefficients.intercept),
        )
        live.rate = torch.where(diverged, live.rate / 2, live.rate)
        live.rollbacks = live.rollbacks + diverged

    def _let_go(self, step: int, has_validation: bool) -> None:
        """Freeze members that are done and drop them from the batch."""
        live, options = self.live, self.options
        lost = live.rollbacks >= MAX_ROLLBACKS
        stalled = live.stalled >= options.patience
        leaving = lost | stalled
        self.n_iter[live.index.cpu()] = step
        if not bool(leaving.any()):
            return
        calm = Status.EARLY_STOPPED if has_validation else Status.CONVERGED
        for k, is_lost in zip(
            live.index[leaving].tolist(), lost[leaving].tolist(), strict=True
        ):
            self.status[k] = Status.DIVERGED if is_lost else calm
        self._store(leaving)
        self.live = live.take((~leaving).nonzero().squeeze(-1))

    def _store(self, leaving: Tensor) -> None:
        """Copy the kept values of leaving members to their place in the full batch."""
        live, final = self.live, self.final
        if final is live:  # nothing has left yet: the full batch starts as a copy
            final = live.take(torch.arange(len(live.index), device=live.index.device))
            self.final = final
        where = live.index[leaving]
        for name in ("kept", "kept_active"):
            getattr(final, name)[where] = getattr(live, name)[leaving]
        final.kept_coefficients.coef[where] = live.kept_coefficients.coef[leaving]
        final.kept_coefficients.intercept[where] = live.kept_coefficients.intercept[
            leaving
        ]

    def finish(self) -> Solution:
        """Exact inner solve of every member; none may end above its nested GLM."""
        if not self.finished:
            live = self.live
            point = self.forward.evaluate(live.params, live)
            live.coefficients = point.coefficients
            self._check(self.options.max_iter, point, clean=True)
        if not self.finished:
            live = self.live
            self._store(torch.ones_like(live.index, dtype=torch.bool))
            for k, stalled in zip(
                live.index.tolist(), live.stalled.tolist(), strict=True
            ):
                # The schedule has annealed; a stall at its end is convergence.
                calm = stalled > 0 or self.members.validation is not None
                calm |= self.options.max_iter == 0  # nothing was to be trained
                self.status[k] = Status.CONVERGED if calm else Status.MAX_ITER
            self.n_iter[live.index.cpu()] = self.options.max_iter
        final, members = self.final, self.members
        # A member that never was finite ends as its nested GLM.
        finite = torch.isfinite(final.kept).all(-1, keepdim=True)
        final.kept = final.kept.masked_fill(~finite, 0.0)
        final.kept_active = final.kept_active & finite
        exact = self.forward.solve_exactly(
            final.kept, members, final.kept_active, final.kept_coefficients
        )
        return self._never_worse(exact)

    def _never_worse(self, exact: InnerSolution) -> Solution:
        """Keep the nested GLM wherever the network did not lower the objective."""
        final, nested = self.final, self.nested
        # A gain at rounding level is no gain: the simpler model wins.
        slack = 1e-12 * nested.objective.abs()
        worse = ~(exact.objective < nested.objective - slack)
        wide = worse.unsqueeze(-1)
        at, glm = exact.coefficients, nested.coefficients
        coef = torch.where(wide, glm.coef, at.coef)
        intercept = torch.where(worse, glm.intercept, at.intercept)
        norm = self.members.penalty.norm(coef)
        modulated = final.kept_active & ~wide & (norm > 0)
        for k in worse.nonzero().flatten().tolist():
            if self.status[k] is not Status.DIVERGED:
                self.status[k] = Status.NESTED
        assert all(status is not None for status in self.status)
        return Solution(
            coef=coef,
            intercept=intercept,
            params=final.kept,
            modulated=modulated,
            objective=torch.where(worse, nested.objective, exact.objective),
            glm_objective=nested.objective,
            validation_loss=self._validation_loss(
                Coefficients(coef, intercept), modulated
            ),
            glm_coef=glm.coef,
            glm_intercept=glm.intercept,
            kkt=torch.where(worse, nested.kkt, exact.kkt),
            inner_converged=torch.where(worse, nested.converged, exact.converged),
            n_iter=self.n_iter,
            status=tuple(status for status in self.status if status is not None),
            history=self.log.freeze(self.members.n_models),
        )

    @torch.no_grad()
    def _validation_loss(self, at: Coefficients, modulated: Tensor) -> Tensor:
        """Loss of the members as they are returned, (K,); NaN without validation."""
        members, problem = self.members, self.problem
        if members.validation is None:
            return torch.full_like(at.intercept, torch.nan)
        design = self.forward._full_design(
            self.final.kept, members, pad_active(modulated), modulated
        )
        rows = Rows(problem.y, problem.offset, members.weight, problem.family)
        return rows.loss(rows.eta(design, at.coef, at.intercept), members.validation)


@dataclass(frozen=True, slots=True)
class Point:
    """The profiled objective at one state of the network."""

    coefficients: Coefficients
    objective: Tensor  # (K,)
    gradient: Tensor  # (K, P), empty when only the value was asked for
    eta: Tensor  # (K, n)
    penalty: CoefPenalty  # as priced by this design


class Forward:
    """Evaluates design, objective and gradient over row chunks."""

    def __init__(self, problem: Problem, options: Options) -> None:
        self.problem = problem
        self.options = options
        device = problem.device
        self.modulator = Modulator.build(problem.spec, device, options.dtype)
        self.inputs = problem.inputs.to(options.dtype)

    def only_supported_inputs(self, params: Tensor, members: Members) -> Tensor:
        """Clear the first layer of inputs that a member may not read."""
        mask = members.input_support[:, self.modulator.input_feature]
        weights = unpack(self.problem.spec, params)
        weights.first.mul_(mask.unsqueeze(1))
        return params

    def chunks(self, n_models: int, n_active: int) -> Iterator[slice]:
        """Row blocks whose activations stay within the memory budget."""
        h1, h2 = self.problem.spec.hidden
        itemsize = torch.finfo(self.options.dtype).bits // 8
        # Autograd keeps about three tensors of each layer; the design is float64.
        per_row = n_models * (
            max(n_active, 1) * (3 * h1 + 3 * h2) * itemsize
            + 4 * 8 * self.problem.n_terms
        )
        size = max(1, int(self.options.memory_budget // max(per_row, 1)))
        for begin in range(0, self.problem.n_rows, size):
            yield slice(begin, min(begin + size, self.problem.n_rows))

    def design(
        self,
        params: Tensor,
        members: Members,
        active: Tensor,
        active_mask: Tensor,
        rows: slice | Tensor,
        noise: Tensor | None = None,
    ) -> Tensor:
        """`phi * (1 + g)` for some rows and their noise, (K, rows, q) in float64."""
        problem = self.problem
        terms = problem.terms[rows]
        support = members.support[:, problem.term_feature].unsqueeze(1)
        if active.shape[1] == 0:
            return terms * support
        bend = self.modulator(params, self.inputs[rows], active, noise).double()
        p = problem.spec.n_features
        n_models, n_rows, _ = bend.shape
        # Padding entries of `active` point at p, a column that is cut off again.
        full = bend.new_zeros(n_models, n_rows, p + 1)
        slots = torch.where(active_mask.gather(1, active), active, p)
        slots = slots.unsqueeze(1).expand(-1, n_rows, -1)
        full = full.scatter(2, slots, bend)
        return terms * (1 + full[..., problem.term_feature]) * support

    def _full_design(
        self,
        params: Tensor,
        members: Members,
        active: Tensor,
        mask: Tensor,
        noise: Tensor | None = None,
    ) -> Tensor:
        blocks = [
            self.design(params, members, active, mask, rows, _some(noise, rows))
            for rows in self.chunks(members.n_models, active.shape[1])
        ]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1)

    def penalty_of(self, members: Members, design: Tensor) -> CoefPenalty:
        """The penalty, priced by the size of the design's columns if asked for."""
        if not self.options.scale_contributions:
            return members.penalty
        square = (members.weight.unsqueeze(-1) * design.square()).sum(1)
        weight = torch.zeros_like(members.penalty.weight)
        weight.index_add_(1, members.penalty.column_feature, square)
        # Size to the power of the penalty: then only `|beta_j| * size` is priced.
        size = weight.sqrt().clamp(min=1e-12)
        return members.penalty.reweighted(size**members.penalty.power)

    def differentiate(self, live: _Live, noise: Tensor | None) -> Point:
        """Profiled objective and its gradient for the live members."""
        n_active = live.active.shape[1]
        params = live.params.detach().requires_grad_(True)
        args = (live.members, live.active, live.active_mask)
        blocks = list(self.chunks(live.members.n_models, n_active))
        if len(blocks) == 1:
            with torch.enable_grad():
                graph = self.design(params, *args, blocks[0], noise)
            design = graph.detach()
        else:
            graph = None
            with torch.no_grad():
                design = self._full_design(params, *args, noise)
        penalty = self.penalty_of(live.members, design)
        at = live.coefficients
        quadratic = self.problem.family.scaled_target
        for _ in range(1 if quadratic else GLM_INNER_STEPS):
            ridge = penalty.ridge(at.coef, RIDGE_FLOOR)
            at = newton_step(design, live.rows, ridge, at)
        eta = live.rows.eta(design, at.coef, at.intercept)
        objective = live.rows.loss(eta) + penalty.value(at.coef)
        upstream = self.upstream(live.members, live.rows, penalty, design, eta, at)
        gradient = torch.zeros_like(params)
        if n_active > 0:
            for rows in blocks:
                if graph is None:
                    with torch.enable_grad():
                        block = self.design(params, *args, rows, _some(noise, rows))
                else:
                    block = graph
                (part,) = torch.autograd.grad(block, params, upstream[:, rows])
                gradient += part
        return Point(at, objective, gradient, eta, penalty)

    def differentiate_batch(
        self, live: _Live, penalty: CoefPenalty, batch: Tensor, noise: Tensor | None
    ) -> Tensor:
        """Gradient estimated on a batch; coefficients and prices stay, (K, P)."""
        problem, members = self.problem, live.members
        params = live.params.detach().requires_grad_(True)
        if live.active.shape[1] == 0:
            return torch.zeros_like(params)
        with torch.enable_grad():
            graph = self.design(
                params, members, live.active, live.active_mask, batch, noise
            )
        design = graph.detach()
        # Weights of the batch stand for those of all rows.
        weight = members.weight[:, batch] * (problem.n_rows / len(batch))
        rows = Rows(problem.y[batch], problem.offset[batch], weight, problem.family)
        some = replace(members, weight=weight, validation=None)
        at = live.coefficients
        eta = rows.eta(design, at.coef, at.intercept)
        upstream = self.upstream(some, rows, penalty, design, eta, at)
        (gradient,) = torch.autograd.grad(graph, params, upstream)
        return gradient

    def upstream(
        self,
        members: Members,
        rows: Rows,
        penalty: CoefPenalty,
        design: Tensor,
        eta: Tensor,
        at: Coefficients,
    ) -> Tensor:
        """Derivative of the objective in the design, coefficients fixed, (K, n, q)."""
        upstream = -rows.score(eta).unsqueeze(-1) * at.coef.unsqueeze(1)
        if self.options.scale_contributions:
            # The price of feature j is the size of its columns to the power of the
            # penalty; the network moves it: d size**power = power size**(power - 2) ...
            power = penalty.power
            value = penalty.strength.unsqueeze(-1) * penalty.norm(at.coef) ** power
            size = penalty.weight ** (1 / power)
            factor = penalty.spread(value * power * size ** (power - 2)).unsqueeze(1)
            upstream = upstream + factor * members.weight.unsqueeze(-1) * design
        return upstream

    @torch.no_grad()
    def evaluate(self, params: Tensor, live: _Live) -> Point:
        """Noise-free profiled objective, without gradient."""
        design = self._full_design(params, live.members, live.active, live.active_mask)
        penalty = self.penalty_of(live.members, design)
        ridge = penalty.ridge(live.coefficients.coef, RIDGE_FLOOR)
        at = newton_step(design, live.rows, ridge, live.coefficients)
        eta = live.rows.eta(design, at.coef, at.intercept)
        objective = live.rows.loss(eta) + penalty.value(at.coef)
        return Point(at, objective, params.new_zeros(0), eta, penalty)

    @torch.no_grad()
    def solve_exactly(
        self,
        params: Tensor,
        members: Members,
        active_mask: Tensor,
        start: Coefficients | None,
    ) -> InnerSolution:
        """Noise-free design and inner optimum, with exact zeros."""
        active = pad_active(active_mask)
        design = self._full_design(params, members, active, active_mask)
        problem = self.problem
        rows = Rows(problem.y, problem.offset, members.weight, problem.family)
        penalty = self.penalty_of(members, design)
        return solve_coefficients(design, rows, penalty, start)


def _some(noise: Tensor | None, rows: slice) -> Tensor | None:
    return None if noise is None else noise[rows]


def profile(
    problem: Problem, members: Members, options: Options, params: Tensor
) -> Point:
    """Profiled objective and gradient with the inner problem solved to optimality.

    Training uses cheaper inner steps; this is the quantity they approach, and what the
    gradient tests differentiate numerically.
    """
    forward = Forward(problem, options)
    mask = members.support.clone()
    exact = forward.solve_exactly(params, members, mask, None)
    rows = Rows(problem.y, problem.offset, members.weight, problem.family)
    active = pad_active(mask)
    leaf = params.detach().requires_grad_(True)
    with torch.enable_grad():
        design = forward.design(leaf, members, active, mask, slice(None))
    at = exact.coefficients
    penalty = forward.penalty_of(members, design.detach())
    eta = rows.eta(design.detach(), at.coef, at.intercept)
    upstream = forward.upstream(members, rows, penalty, design.detach(), eta, at)
    (gradient,) = torch.autograd.grad(design, leaf, upstream)
    return Point(at, exact.objective, gradient, eta, penalty)


def choose_active(
    penalty: CoefPenalty, coef: Tensor, support: Tensor
) -> tuple[Tensor, Tensor]:
    """Features worth modulating: indices (K, a) and the same as a mask (K, p)."""
    norm = penalty.norm(coef)
    mask = (norm > ACTIVE_SHARE * norm.amax(-1, keepdim=True)) & support
    return pad_active(mask), mask


def pad_active(mask: Tensor) -> Tensor:
    """Indices of the true entries, (K, a); short rows are padded with false ones."""
    n_active = int(mask.sum(-1).max()) if mask.numel() else 0
    order = torch.argsort(mask.to(torch.int8), dim=-1, descending=True, stable=True)
    return order[:, :n_active]


def learning_rate(step: int, options: Options) -> float:
    """One-cycle schedule: a tenth of the steps up, a cosine down to one percent."""
    rise = max(1, options.max_iter // 10)
    if step < rise:
        share = 0.1 + 0.9 * step / rise
    else:
        position = (step - rise) / max(1, options.max_iter - rise)
        share = 0.01 + 0.99 * (1 + math.cos(math.pi * min(position, 1.0))) / 2
    return options.learning_rate * share


class _Threads:
    """Small problems run faster on one thread; restored on exit."""

    def __init__(self, problem: Problem, members: Members) -> None:
        h1, h2 = problem.spec.hidden
        size = members.n_models * problem.n_rows * problem.spec.n_features * (h1 + h2)
        self.single = problem.device.type == "cpu" and size < 2**23

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        if self.single:
            torch.set_num_threads(1)

    def __exit__(self, *exception: object) -> None:
        torch.set_num_threads(self.before)
