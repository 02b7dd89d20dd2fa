"""Train the network: K members in one tensor program, coefficients eliminated.

One step: evaluate the penalised loss and its gradient with the coefficients eliminated
on the same rows with the same noise (`_forward.py`), move by Adam, shrink the first
layer's groups by a proximal step.

With mini-batches a step differentiates the loss of some rows only, at coefficients that
were solved on all rows and are held fixed: unbiased, where solving on the batch itself
would not be. They are renewed at every check, and the last word is an exact solve.

Only features with a coefficient are modulated; the others stay in the design as they
are, so that they can return, and cost the network nothing. The set is renewed at every
check. Members that are finished leave the batch with their values frozen.

With several ranks every rank takes the same steps: gradients and objectives are sums
over all rows, and at checks the ranks go on from the first one's weights. Between two
steps the run is a handful of tensors (`_resume.py`): saved at checks, it goes on from
there as if it had never stopped.

Shapes: K models, n rows, q term columns, r inputs, p features, a active, P weights.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.checkpoint import (
    Checkpoint,
    State,
    pack_record,
    part_of,
    put_below,
    unpack_record,
)
from sknimo.network import init_params, unpack
from sknimo.penalties import shrink_groups
from sknimo.solver._draws import Batches, Noise
from sknimo.solver._forward import Bent, Forward, Point, RowNoise, pad_active
from sknimo.solver._problem import History, Members, Options, Problem, Solution, Status
from sknimo.solver._profile import Coefficients, InnerSolution, Rows, agree
from sknimo.solver._resume import load_state, pack_solution, unpack_solution
from sknimo.solver._supply import send

Record = TypeVar("Record")

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
    checkpoint: Checkpoint | None = None,
    name: str = "solve",
) -> Solution:
    """Fit K members; `start` (K, P) replaces the random networks.

    The result of a member does not depend on the others nor, beyond rounding, on the
    number of row blocks or ranks or on the device. With a checkpoint the run saves its
    state under `name` and goes on from there when it is called again; once finished it
    returns the same solution at once. What the deadline cut short counts as unfinished.
    """
    saved = load_state(checkpoint, name, problem.ranks)
    if saved is not None and saved.facts["finished"]:
        return unpack_solution(saved, problem.device)
    with _Machine(problem, members, options):
        if saved is None:
            run = _Run.begin(problem, members, options, start)
        else:
            run = _Run.resume(problem, members, options, saved)
        saver = _Saver(problem, options, checkpoint, name)
        steps = tqdm(
            range(run.next_step, options.max_iter),
            desc="sknimo",
            initial=run.next_step,
            total=options.max_iter,
            disable=None if options.progress and problem.ranks.first else True,
            delay=2,
            leave=False,
        )
        for step in steps:
            if run.finished or run.is_late():
                break
            if step % options.check_every == 0:
                saver.maybe_save(run)
            run.step(step)
        steps.close()
        if run.late:
            saver.save(run.state())
            return run.finish()
        saver.maybe_save(run)
        solution = run.finish()
        saver.save(pack_solution(solution))
        return solution


class _Saver:
    """Saves states, not more often than asked for, on the first rank only."""

    def __init__(
        self,
        problem: Problem,
        options: Options,
        checkpoint: Checkpoint | None,
        name: str,
    ) -> None:
        self.checkpoint = checkpoint if problem.ranks.first else None
        self.seconds = options.checkpoint_seconds
        self.name = name
        self.latest = time.monotonic()

    def maybe_save(self, run: _Run) -> None:
        """Save the run if the last state has become old."""
        if self.checkpoint is None or run.next_step == 0:
            return
        if time.monotonic() - self.latest >= self.seconds:
            self.save(run.state())

    def save(self, state: State) -> None:
        """Replace the saved state."""
        if self.checkpoint is not None:
            self.checkpoint.save(self.name, state.tensors, state.facts)
            self.latest = time.monotonic()


@dataclass
class _Kept:
    """What a member returns, K leading."""

    params: Tensor  # (K, P)
    active: Tensor  # (K, p), bool
    coefficients: Coefficients

    def take(self, members: Tensor) -> _Kept:
        """Keep the members with the given indices."""
        coefficients = self.coefficients.take(members)
        return _Kept(self.params[members], self.active[members], coefficients)

    def put(self, members: Tensor, other: _Kept) -> None:
        """Overwrite the members with the given indices."""
        self.params[members] = other.params
        self.active[members] = other.active
        self.coefficients.coef[members] = other.coefficients.coef
        self.coefficients.intercept[members] = other.coefficients.intercept


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
    prices: Tensor  # (K, p), of the penalty at the last check
    rate: Tensor  # (K,), learning rate factor, halved after a divergence
    rollbacks: Tensor  # (K,)
    best_score: Tensor  # (K,)
    stalled: Tensor  # (K,), checks since the score last fell
    safe: Tensor  # (K, P), params at the last finite check
    kept: _Kept  # to return

    @property
    def bent(self) -> Bent:
        """The networks and the features that they bend."""
        return Bent(self.params, self.members, self.active, self.active_mask)

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

    @classmethod
    def thaw(cls, columns: dict[str, Tensor]) -> _Log:
        rows = {name: list(value.numpy()) for name, value in columns.items()}
        return cls([int(step) for step in rows.pop("step")], rows)


class _Run:
    """One call of `solve`: the loop's state and its three verbs."""

    def __init__(
        self,
        forward: Forward,
        members: Members,
        nested: InnerSolution,
        live: _Live,
        final: _Kept,
    ) -> None:
        self.forward = forward
        self.problem = problem = forward.problem
        self.options = options = forward.options
        self.members = members
        self.nested = nested
        self.live = live
        self.final = final  # of all members, filled as they finish
        self.log = _Log()
        self.noise = Noise(options.noise_seed, problem.spec.hidden[0])
        self.batches = Batches(
            forward.supply.n_total, options.batch_size, options.noise_seed
        )
        self.status: list[Status | None] = [None] * members.n_models
        self.n_iter = torch.zeros(members.n_models, dtype=torch.long)
        self.next_step = 0
        self.late = False

    @property
    def finished(self) -> bool:
        """Whether no member is left in training."""
        return len(self.live.index) == 0

    def is_late(self) -> bool:
        """Whether the deadline has passed, by the clock of the first rank."""
        deadline = self.options.deadline
        if deadline < math.inf:
            self.late = self.problem.ranks.share(time.monotonic() >= deadline)
        return self.late

    @classmethod
    def begin(
        cls,
        problem: Problem,
        members: Members,
        options: Options,
        start: Tensor | None = None,
    ) -> _Run:
        """All members at their nested GLM."""
        forward = Forward(problem, options)
        params = init_params(problem.spec, members.seeds) if start is None else start
        params = params.to(device=problem.device, dtype=options.dtype, copy=True)
        params = forward.only_supported_inputs(params, members)
        nobody = Bent.by(params, members, torch.zeros_like(members.support))
        nested = forward.solve_exactly(nobody, None)
        at = nested.coefficients
        mask = forward.choose_active(members, at.coef)
        n_models, device = members.n_models, params.device
        zeros = torch.zeros(n_models, dtype=torch.long, device=device)
        every = torch.arange(n_models, device=device)
        kept = _Kept(params, mask, at)
        live = _Live(
            index=every,
            members=members,
            rows=problem.rows(members.weight),
            params=params,
            first_moment=torch.zeros_like(params),
            second_moment=torch.zeros_like(params),
            coefficients=at,
            active=pad_active(mask),
            active_mask=mask,
            prices=members.penalty.weight,
            rate=torch.ones(n_models, device=device, dtype=params.dtype),
            rollbacks=zeros,
            best_score=torch.full_like(at.intercept, torch.inf),
            stalled=zeros.clone(),
            safe=params.clone(),
            kept=kept.take(every),
        )
        return cls(forward, members, nested, live, kept.take(every))

    @classmethod
    def resume(
        cls, problem: Problem, members: Members, options: Options, state: State
    ) -> _Run:
        """Go on from a state."""
        device, tensors, facts = problem.device, state.tensors, state.facts

        def read(record: type[Record], prefix: str, **others: Any) -> Record:
            part = State(part_of(tensors, prefix), {})
            return unpack_record(record, part, device, **others)

        some = members.take(tensors["live.index"].to(device))
        live = read(_Live, "live", members=some, rows=problem.rows(some.weight))
        forward = Forward(problem, options, facts["budget"])
        nested, final = read(InnerSolution, "nested"), read(_Kept, "final")
        run = cls(forward, members, nested, live, final)
        run.log = _Log.thaw(part_of(tensors, "log"))
        run.batches.restore(part_of(tensors, "batches"))
        run.status = [
            None if name is None else Status[name] for name in facts["status"]
        ]
        run.n_iter = tensors["n_iter"].clone()
        run.next_step = facts["next_step"]
        return run

    def state(self) -> State:
        """All that the coming steps depend on."""
        records = {
            "live": self.live,
            "final": self.final,
            "nested": self.nested,
            "log": self.log.freeze(self.members.n_models),
        }
        tensors: dict[str, Tensor] = {}
        for name, record in records.items():
            tensors |= put_below(name, pack_record(record).tensors)
        for name in list(tensors):
            if name.startswith(("live.members.", "live.rows.")):  # are there already
                del tensors[name]
        tensors |= put_below("batches", self.batches.state())
        tensors["n_iter"] = self.n_iter
        facts = {
            "finished": False,
            "next_step": self.next_step,
            "status": [None if s is None else s.name for s in self.status],
            "budget": self.forward.supply.whole_budget,
        }
        return State(tensors, facts)

    def step(self, step: int) -> None:
        """One optimiser step for all live members, with a check when it is due."""
        self.next_step = step + 1
        if self.options.batch_size:
            self._batch_step(step)
            return
        live, options = self.live, self.options
        noise = self._row_noise(step)
        point = self.forward.differentiate(
            live.bent, live.rows, live.coefficients, noise
        )
        live.coefficients = point.coefficients
        gradient = point.gradient
        if step % options.check_every == 0:
            rollbacks = live.rollbacks
            self._check(step, point if noise is None else self._evaluate())
            if self.finished:
                return
            # The gradient of a member that was rolled back belongs to the lost state.
            lost = (live.rollbacks > rollbacks).unsqueeze(-1)
            gradient = gradient.masked_fill(lost, 0.0)
            if self.live is not live:  # members left: their gradients leave too
                gradient = gradient[torch.isin(live.index, self.live.index)]
        self._move(step, gradient)

    def _evaluate(self) -> Point:
        """Noise-free values at the current weights; coefficients follow."""
        live = self.live
        point = self.forward.evaluate(live.bent, live.rows, live.coefficients)
        live.coefficients = point.coefficients
        return point

    def _batch_step(self, step: int) -> None:
        """One step on a batch of rows; coefficients move at the checks only."""
        if step % self.options.check_every == 0:
            point = self._evaluate()
            self.live.prices = point.penalty.weight
            self._check(step, point)
            if self.finished:
                return
        live, batch = self.live, self.batches.draw()
        noise = None
        if self.options.noise > 0:
            noise = self.noise.draw(step, 0, len(batch), len(batch))
            noise = self.options.noise * noise
        gradient = self.forward.differentiate_batch(
            live.bent,
            live.members.penalty.reweighted(live.prices),
            live.coefficients,
            batch,
            self.batches.order,
            noise,
        )
        self._move(step, gradient)

    def _row_noise(self, step: int) -> RowNoise | None:
        if self.options.noise == 0:
            return None
        supply, like = self.forward.supply, self.live.params

        def draw(rows: slice) -> Tensor:
            begin, stop = supply.first_row + rows.start, supply.first_row + rows.stop
            drawn = self.noise.draw(step, begin, stop, supply.n_total)
            return self.options.noise * send(drawn, like.device).to(like.dtype)

        return draw

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

    def _check(self, step: int, point: Point) -> None:
        """Judge progress, keep the best, roll back divergence, let members leave."""
        live, options, ranks = self.live, self.options, self.problem.ranks
        for name in ("params", "first_moment", "second_moment"):
            setattr(live, name, agree(ranks, getattr(live, name)))
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
        kept, at = live.kept, live.coefficients
        live.kept = _Kept(
            torch.where(wide, live.params, kept.params),
            torch.where(wide, live.active_mask, kept.active),
            Coefficients(
                torch.where(wide, at.coef, kept.coefficients.coef),
                torch.where(keep, at.intercept, kept.coefficients.intercept),
            ),
        )
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
            mask = self.forward.choose_active(live.members, live.coefficients.coef)
            live.active, live.active_mask = pad_active(mask), mask

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
        self.final.put(live.index[leaving], live.kept.take(leaving))
        self.live = live.take((~leaving).nonzero().squeeze(-1))

    def finish(self) -> Solution:
        """Exact inner solve of every member; none may end above its nested GLM."""
        n_steps = self.next_step if self.late else self.options.max_iter
        if not self.finished:
            self._check(n_steps, self._evaluate())
        if not self.finished:
            live = self.live
            self.final.put(live.index, live.kept)
            for k, stalled in zip(
                live.index.tolist(), live.stalled.tolist(), strict=True
            ):
                # The schedule has annealed; a stall at its end is convergence.
                calm = stalled > 0 or self.members.validation is not None
                calm |= self.options.max_iter == 0  # nothing was to be trained
                self.status[k] = Status.CONVERGED if calm else Status.MAX_ITER
                if self.late:
                    self.status[k] = Status.OUT_OF_TIME
            self.n_iter[live.index.cpu()] = n_steps
        final, members = self.final, self.members
        # A member that never was finite ends as its nested GLM.
        finite = torch.isfinite(final.params).all(-1, keepdim=True)
        final.params = final.params.masked_fill(~finite, 0.0)
        final.active = final.active & finite
        bent = Bent.by(final.params, members, final.active)
        exact = self.forward.solve_exactly(bent, final.coefficients)
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
        modulated = final.active & ~wide & (norm > 0)
        for k in worse.nonzero().flatten().tolist():
            if self.status[k] not in (Status.DIVERGED, Status.OUT_OF_TIME):
                self.status[k] = Status.NESTED
        assert all(status is not None for status in self.status)
        return Solution(
            coef=coef,
            intercept=intercept,
            params=final.params,
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
        bent = Bent.by(self.final.params, members, modulated)
        eta = self.forward.eta(bent, at)
        return problem.rows(members.weight).loss(eta, members.validation)


def learning_rate(step: int, options: Options) -> float:
    """One-cycle schedule: a tenth of the steps up, a cosine down to one percent."""
    rise = max(1, options.max_iter // 10)
    if step < rise:
        share = 0.1 + 0.9 * step / rise
    else:
        position = (step - rise) / max(1, options.max_iter - rise)
        share = 0.01 + 0.99 * (1 + math.cos(math.pi * min(position, 1.0))) / 2
    return options.learning_rate * share


class _Machine:
    """Settings of torch for one run, restored on exit.

    Small problems run faster on one thread; TF32 is a switch of the whole process.
    """

    def __init__(self, problem: Problem, members: Members, options: Options) -> None:
        h1, h2 = problem.spec.hidden
        size = members.n_models * problem.n_rows * problem.spec.n_features * (h1 + h2)
        self.single = problem.device.type == "cpu" and size < 2**23
        self.tf32 = options.matmul == "tf32"

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        self.precision = torch.get_float32_matmul_precision()
        if self.single:
            torch.set_num_threads(1)
        if self.tf32:
            torch.set_float32_matmul_precision("high")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        torch.set_num_threads(self.before)
        if self.tf32:
            torch.set_float32_matmul_precision(self.precision)
