"""Train the network: K members in one tensor program, coefficients eliminated.

One step: evaluate the penalised loss and its gradient with the coefficients eliminated
on the same rows with the same noise (`_forward.py`), move by Adam, shrink the first
layer's groups by a proximal step.

With mini-batches a step differentiates the loss of some rows only, at coefficients that
were solved on all rows and are held fixed: unbiased, where solving on the batch itself
would not be. At every check they are renewed, and the set of features that are
modulated: those with a coefficient. Members of one run end together.

With several ranks every rank takes the same steps: gradients and objectives are sums
over all rows, and at checks the ranks go on from the first one's weights. Between two
steps the run is a handful of tensors of no rank in particular: saved at checks, it goes
on from there as if it had never stopped.

Shapes: K models, n rows, q term columns, r inputs, p features, a active, P weights.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from sknimo.checkpoint import (
    Checkpoint,
    State,
    pack_record,
    part_of,
    put_below,
    unpack_record,
)
from sknimo.machine import ONE_THREAD_WORK, hide_progress, torch_threads
from sknimo.network import init_params, unpack
from sknimo.ranks import Ranks
from sknimo.solver._forward import Bent, Forward, Point, RowNoise, pad_active
from sknimo.solver._live import KeptMembers, LiveMembers
from sknimo.solver._problem import (
    History,
    Members,
    Options,
    Problem,
    Solution,
    Status,
)
from sknimo.solver._profile import InnerSolution, agree
from sknimo.solver._supply import Batches, Noise, send

Record = TypeVar("Record")


def solve(
    problem: Problem,
    members: Members,
    options: Options,
    start: Tensor | None = None,
    checkpoint: Checkpoint | None = None,
    name: str = "solve",
) -> Solution:
    """Fit K members; `start` (K, P) replaces the random networks.

    With a checkpoint the run saves its state under `name` and goes on from there when
    it is called again; once finished it returns the same solution at once.
    """
    saver = _Saver(checkpoint, name, problem.ranks, options.checkpoint_seconds)
    saved = saver.load()
    if saved is not None and saved.facts["finished"]:
        return _unpack(saved, problem.device)
    with _threads(problem, members):
        if saved is None:
            run = _Run.begin(problem, members, options, start)
        else:
            run = _Run.resume(problem, members, options, saved)
        steps = tqdm(
            range(run.next_step, options.max_iter),
            desc="sknimo",
            initial=run.next_step,
            total=options.max_iter,
            disable=hide_progress(options.progress and problem.ranks.first),
            delay=2,
            leave=False,
        )
        for step in steps:
            if run.finished:
                break
            if step % options.check_every == 0:
                saver.maybe_save(run)
            run.step(step)
        steps.close()
        saver.maybe_save(run)
        solution = run.finish()
        saver.save(_pack(solution))
        return solution


@dataclass
class _Saver:
    """Saves states, not more often than asked for; the first rank reads and writes."""

    checkpoint: Checkpoint | None
    name: str
    ranks: Ranks
    seconds: float
    latest: float = field(default_factory=time.monotonic)

    def load(self) -> State | None:
        """The state that the first rank finds, on all ranks."""
        if self.checkpoint is None:
            return None
        found = self.checkpoint.load(self.name) if self.ranks.first else None
        state: State | None = self.ranks.share(found)
        return state

    def maybe_save(self, run: _Run) -> None:
        """Save the run if the last state has become old."""
        old = time.monotonic() - self.latest >= self.seconds
        if old and run.next_step and self.checkpoint is not None and self.ranks.first:
            self.save(run.state())

    def save(self, state: State) -> None:
        """Replace the saved state."""
        if self.checkpoint is not None and self.ranks.first:
            self.checkpoint.save(self.name, state.tensors, state.facts)
            self.latest = time.monotonic()


def _pack(solution: Solution) -> State:
    """A finished run."""
    names = [status.name for status in solution.status]
    tensors = put_below("solution", pack_record(solution).tensors)
    return State(tensors, {"finished": True, "status": names})


def _unpack(state: State, device: torch.device) -> Solution:
    """Undo `_pack`."""
    status = tuple(Status[name] for name in state.facts["status"])
    packed = State(part_of(state.tensors, "solution"), {})
    solution = unpack_record(Solution, packed, device, status=status)
    return replace(solution, n_iter=solution.n_iter.cpu())


class _Run:
    """One call of `solve`: the loop's state and its three verbs."""

    def __init__(
        self, forward: Forward, nested: InnerSolution, live: LiveMembers
    ) -> None:
        self.forward = forward
        self.problem = problem = forward.problem
        self.options = options = forward.options
        self.nested = nested
        self.live = live
        self.members = forward.members
        self.log = History.begin(self.members.n_models)
        self.noise = Noise(options.noise_seed, problem.spec.hidden[0])
        self.batches = Batches(
            forward.supply.n_total, options.batch_size, options.noise_seed
        )
        self.finished = False  # before the last step
        self.n_iter = 0
        self.next_step = 0

    @classmethod
    def begin(
        cls,
        problem: Problem,
        members: Members,
        options: Options,
        start: Tensor | None = None,
    ) -> _Run:
        """All members at their nested GLM."""
        forward = Forward(problem, members, options)
        params = init_params(problem.spec, members.seeds) if start is None else start
        params = params.to(device=problem.device, dtype=options.dtype, copy=True)
        shape = members.n_models, problem.spec.n_features
        nobody = torch.zeros(shape, dtype=torch.bool, device=problem.device)
        nested = forward.solve_exactly(Bent.by(params, nobody), None)
        at = nested.coefficients
        kept = KeptMembers(params, forward.choose_active(at.coef), at)
        return cls(forward, nested, LiveMembers.begin(kept, members.penalty))

    @classmethod
    def resume(
        cls, problem: Problem, members: Members, options: Options, state: State
    ) -> _Run:
        """Go on from a state."""
        device, tensors, facts = problem.device, state.tensors, state.facts

        def read(record: type[Record], prefix: str) -> Record:
            return unpack_record(record, State(part_of(tensors, prefix), {}), device)

        forward = Forward(problem, members, options, facts["budget"])
        run = cls(forward, read(InnerSolution, "nested"), read(LiveMembers, "live"))
        run.log = read(History, "log")
        run.batches.restore(part_of(tensors, "batches"))
        run.finished, run.n_iter = facts["ended"], facts["n_iter"]
        run.next_step = facts["next_step"]
        return run

    def state(self) -> State:
        """All that the coming steps depend on."""
        tensors = put_below("batches", self.batches.state())
        records = {"live": self.live, "nested": self.nested, "log": self.log}
        for name, record in records.items():
            tensors |= put_below(name, pack_record(record).tensors)
        facts = {
            "finished": False,
            "ended": self.finished,
            "n_iter": self.n_iter,
            "next_step": self.next_step,
            "budget": self.forward.supply.whole_budget,
        }
        return State(tensors, facts)

    def step(self, step: int) -> None:
        """One optimiser step, with a check when it is due."""
        self.next_step = step + 1
        if self.options.batch_size:
            self._batch_step(step)
            return
        live, options = self.live, self.options
        noise = self._row_noise(step)
        point = self.forward.differentiate(live.bent, live.coefficients, noise)
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
        live.move(step, gradient, self.forward)

    def _evaluate(self) -> Point:
        """Noise-free values at the current weights; coefficients follow."""
        live = self.live
        point = self.forward.evaluate(live.bent, live.coefficients)
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
            self.members.penalty.reweighted(live.prices),
            live.coefficients,
            batch,
            self.batches.order,
            noise,
        )
        live.move(step, gradient, self.forward)

    def _row_noise(self, step: int) -> RowNoise | None:
        if self.options.noise == 0:
            return None
        supply, like = self.forward.supply, self.live.params

        def draw(rows: slice) -> Tensor:
            begin, stop = supply.first_row + rows.start, supply.first_row + rows.stop
            drawn = self.noise.draw(step, begin, stop, supply.n_total)
            return self.options.noise * send(drawn, like.device).to(like.dtype)

        return draw

    def _check(self, step: int, point: Point) -> None:
        """Judge progress, keep the best, roll back divergence, end if it is time."""
        live, ranks = self.live, self.problem.ranks
        for name in ("params", "first_moment", "second_moment"):
            setattr(live, name, agree(ranks, getattr(live, name)))
        validation, score = torch.full_like(point.objective, torch.nan), point.objective
        if self.members.validation is not None:
            rows, weight = self.forward.rows, self.members.validation
            score = validation = rows.loss(point.eta, weight)
        diverged = ~(torch.isfinite(score) & torch.isfinite(point.objective))
        live.roll_back(diverged, self.nested.coefficients)
        live.remember(score, diverged, self.forward)
        first = unpack(self.problem.spec, live.params).first
        n_features, n_inputs = (
            live.active_mask.sum(-1),
            (first.abs().amax(1) > 0).sum(-1),
        )
        self.log = self.log.add(step, point.objective, validation, n_features, n_inputs)
        self.n_iter = step
        still = live.stalled >= self.options.patience
        self.finished = bool((still | live.lost).all())
        if not self.finished:
            mask = self.forward.choose_active(live.coefficients.coef)
            live.active, live.active_mask = pad_active(mask), mask

    def finish(self) -> Solution:
        """Exact inner solve of every member; none may end above its nested GLM."""
        # The schedule has annealed: a stall at its end is convergence, and one low
        # after a stall is chance, where noise moves the objective.
        calm = self.live.stalled > 0
        if not self.finished:
            self._check(self.options.max_iter, self._evaluate())
            calm = calm | (self.live.stalled > 0)
        final = self.live.kept
        # A member that never was finite ends as its nested GLM.
        finite = torch.isfinite(final.params).all(-1, keepdim=True)
        final.params = final.params.masked_fill(~finite, 0.0)
        final.active = final.active & finite
        bent = Bent.by(final.params, final.active)
        exact = self.forward.solve_exactly(bent, final.coefficients)
        return self._never_worse(exact, calm)

    def _never_worse(self, exact: InnerSolution, calm: Tensor) -> Solution:
        """Keep the nested GLM wherever the network did not lower the objective."""
        final, nested = self.live.kept, self.nested
        # A gain at rounding level is no gain: the simpler model wins.
        slack = 1e-12 * nested.objective.abs()
        worse = ~(exact.objective < nested.objective - slack)
        # Nor is one without a network: coefficients without a bound always gain.
        out = unpack(self.problem.spec, final.params).out
        worse |= (out.flatten(1) == 0).all(-1)
        at = exact.coefficients.replaced(worse, nested.coefficients)
        norm = self.members.penalty.norm(at.coef)
        modulated = final.active & ~worse.unsqueeze(-1) & (norm > 0)
        return Solution(
            coef=at.coef,
            intercept=at.intercept,
            params=final.params,
            modulated=modulated,
            objective=torch.where(worse, nested.objective, exact.objective),
            glm_objective=nested.objective,
            kkt=torch.where(worse, nested.kkt, exact.kkt),
            inner_converged=torch.where(worse, nested.converged, exact.converged),
            n_iter=torch.full((len(worse),), self.n_iter),
            status=tuple(map(self._tell, self.live.lost, worse, calm)),
            history=self.log,
        )

    def _tell(self, lost: Tensor, worse: Tensor, calm: Tensor) -> Status:
        """How a member ended."""
        if bool(lost):
            return Status.DIVERGED
        trained = self.options.max_iter > 0
        if bool(worse):
            return Status.NESTED if trained else Status.PLAIN
        judged = self.members.validation is not None
        if self.finished:
            return Status.EARLY_STOPPED if judged else Status.CONVERGED
        if judged or bool(calm) or not trained:
            return Status.CONVERGED
        return Status.MAX_ITER


def _threads(problem: Problem, members: Members) -> AbstractContextManager[None]:
    """As many threads of torch as a run deserves."""
    work = members.n_models * problem.n_rows * problem.spec.n_features
    work *= sum(problem.spec.hidden)
    on_cpu = problem.device.type == "cpu"
    return torch_threads(work=work if on_cpu else ONE_THREAD_WORK)
