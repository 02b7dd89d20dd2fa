"""Restarts: select supports, refit within them, choose the members to average.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._reference import MAX_SHIFT, MAX_STEPS, MIN_STEP, MOVE_MARGIN
from sknimo.estimators._runner import Runner, Task
from sknimo.solver import (
    ESTIMATED_DISPERSION,
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    fit_evidence,
    reference_step,
    restrict,
    simplify,
    start_state,
)

# Where restarts begin, as a share of the dispersion that the GLM leaves.
OPTIMISM = (1.0, 0.1, 1.0, 0.02)
OPTIMISM_FIXED_DISPERSION = (0.1, 0.3, 0.03, 1.0)
# A restart joins the average when its gain in log evidence over the GLM is at least
# this share of the best gain; the others have failed.
MEMBER_SHARE = 0.7
# Share of the successful restarts that must keep what `rule="stability"` keeps.
STABLE_SHARE = 0.8
# The network must beat the GLM's log evidence by this much.
EVIDENCE_MARGIN = 5.0
# Up to this many features every restart may see all of them.
FEW_FEATURES = 12
# Narrow restarts see the shortlist, then ever fewer of the GLM's strongest features:
# among fewer a restart goes astray less often, and the evidence tells what is missing.
NARROW_SIZES = (None, 8, 6, 4)
# Evidence is bumpy: a refit without a feature may end in a poorer optimum. A feature
# that Wald statistics call idle may therefore leave at this multiple of its margin, if
# restarts without it then reach the evidence that was there before.
FAINT_SLACK = 4.0
# Log evidence that a feature must bring to an unshrunken linear model.
LINEAR_MARGIN = 1.0
# Gauss-Newton steps of members that are moved or restricted.
BRIEF_STEPS = 15


def feature_margin(n_features: int) -> float:
    """Log evidence that a feature must bring.

    A coefficient with squared Wald statistic t raises the evidence by
    `(t - 1 - log t) / 2`. The t used here grows with the number of features so that
    about one fit in thirty would keep a feature that does nothing; one more unit pays
    for the bilinear terms that can move between features.
    """
    threshold = 4 + 2 * math.log(max(n_features, 1))
    return 1 + (threshold - 1 - math.log(threshold)) / 2


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All restarts, the linear fit beside them, and the best.

    Attributes
    ----------
    tasks : list of Task
    states : list of EvidenceState
        One per task; the last has the selected supports.
    linear : EvidenceState
    eligible : list of int
        Restarts that may be the best and join the average.
    """

    tasks: list[Task]
    states: list[EvidenceState]
    linear: EvidenceState
    eligible: list[int]

    @property
    def best_index(self) -> int:
        """The eligible restart of the highest evidence, -1 when there is none."""
        return max(self.eligible, key=lambda k: self.states[k].log_evidence, default=-1)

    @property
    def best(self) -> EvidenceState:
        """Its state; the linear fit when there is none."""
        return self.states[self.best_index] if self.eligible else self.linear

    def leaders(self) -> list[int]:
        """Eligible restarts, the best first, one per seed."""
        order = sorted(self.eligible, key=lambda k: -self.states[k].log_evidence)
        best: dict[int, int] = {}
        for k in order:
            best.setdefault(self.tasks[k].seed, k)
        return list(best.values())

    def best_tasks(self, count: int) -> list[Task]:
        """The best restarts again, within the selected supports."""
        selected = self.states[-1]
        return [self._again(k, selected) for k in self.leaders()[:count]]

    def loose_tasks(self, count: int) -> list[Task]:
        """The best restarts again, each within the supports that it found."""
        return [self._again(k, self.states[k]) for k in self.leaders()[:count]]

    def _again(self, k: int, within: EvidenceState) -> Task:
        return replace(
            self.tasks[k], support=within.support, input_support=within.input_support
        )

    def table(self) -> dict[str, list[Any]]:
        """One row per restart, ready for a data frame."""
        return {
            "stage": [task.stage for task in self.tasks],
            "optimism": [task.optimism for task in self.tasks],
            "seed": [task.seed for task in self.tasks],
            "log_evidence": [state.log_evidence for state in self.states],
            "n_features": [int(state.support.sum()) for state in self.states],
            "n_inputs": [int(state.input_support.sum()) for state in self.states],
            "n_effective": [state.n_effective for state in self.states],
            "n_iter": [state.n_iter for state in self.states],
        }


def run_search(
    runner: Runner,
    start: Coefficients,
    random: np.random.RandomState,
    n_starts: int,
    relax: bool,
    stable: bool = False,
) -> SearchResult:
    """Select supports by restarts, then restart within them.

    `stable` keeps only what most of the successful restarts keep.
    """
    problem, options = runner.problem, runner.options
    usable = usable_features(problem)
    linear = runner.call("linear", fit_linear_evidence, start, options)
    shortlist = linear.support | strongest_features(problem, start)
    n_narrow = 0
    if len(usable) > FEW_FEATURES and bool(shortlist.any()):
        n_narrow = n_starts // 2
    plan = make_tasks(problem, random, "wide", usable, usable, n_starts - n_narrow)
    for k, task in enumerate(
        make_tasks(problem, random, "narrow", shortlist, shortlist, n_narrow)
    ):
        size = NARROW_SIZES[k % len(NARROW_SIZES)]
        if size is not None:
            few = strongest_features(problem, start, size)
            task = replace(task, support=few, input_support=few)
        plan.append(task)
    done = runner.run(plan, start)
    done = [(task, state) for task, state in done if has_evidence(state)]
    if not done:
        return SearchResult([], [], linear, [])
    leader, best = max(done, key=by_evidence)
    bold = replace(options, faint_slack=FAINT_SLACK)
    tidied = runner.call("simplified", simplify, best, bold)
    if stable:
        tidied = keep_stable(runner, tidied, done, linear.log_evidence)
    n_selecting = len(done)
    if relax and bool(tidied.input_support.any()):
        stages = _Relaxed(runner, start, random)
        leader, tidied = stages.run((leader, best), tidied, n_starts, stable)
        done += stages.done
    done.append((replace(leader, stage="simplified"), tidied))
    first = n_selecting if stable else 0
    return SearchResult(
        [task for task, _ in done],
        [state for _, state in done],
        linear,
        list(range(first, len(done))),
    )


class _Relaxed:
    """Restarts within supports that were selected, until those are confirmed."""

    def __init__(
        self, runner: Runner, start: Coefficients, random: np.random.RandomState
    ) -> None:
        self.runner, self.start, self.random = runner, start, random
        self.done: list[tuple[Task, EvidenceState]] = []

    def run(
        self,
        before: tuple[Task, EvidenceState],
        tidied: EvidenceState,
        n_starts: int,
        stable: bool,
    ) -> tuple[Task, EvidenceState]:
        """The best restart within what `before` needs, and its simplified state."""
        runner = self.runner
        bold = replace(runner.options, faint_slack=FAINT_SLACK)
        leader = before[0]
        best = self._restart((leader, settle_reference(runner, tidied)), n_starts)
        if not (stable or self._confirms(before[1], best[1])):
            careful = runner.call("simplified", simplify, before[1], runner.options)
            best = self._restart((leader, careful), n_starts)
        # A better fit tells more clearly what does nothing, and where the mean is.
        leader, state = best
        state = settle_reference(runner, state)
        state = runner.call("simplified", simplify, state, runner.options)
        fewer = runner.call("simplified", simplify, state, bold)
        if bool((fewer.support != state.support).any()):
            best = self._restart((leader, fewer), max(1, n_starts // 2))
            if self._confirms(state, best[1]):
                leader, state = best
                state = runner.call("simplified", simplify, state, runner.options)
        return leader, state

    def _restart(
        self, known: tuple[Task, EvidenceState], count: int
    ) -> tuple[Task, EvidenceState]:
        """Best of restarts within the supports of a state, and of that state."""
        runner, state = self.runner, known[1]
        plan = make_tasks(
            runner.problem,
            self.random,
            "relaxed",
            state.support,
            state.input_support,
            count,
        )
        done = runner.run(plan, self.start)
        found = [(task, state) for task, state in done if has_evidence(state)]
        self.done += found
        return max([known, *found], key=by_evidence)

    def _confirms(self, before: EvidenceState, after: EvidenceState) -> bool:
        """Whether the features that are gone cost no more than their margins."""
        n_gone = int((before.support & ~after.support).sum())
        cost = before.log_evidence - after.log_evidence
        return cost <= self.runner.options.feature_margin * max(n_gone, 1)


def by_evidence(pair: tuple[Task, EvidenceState]) -> float:
    """Key to rank restarts by."""
    return pair[1].log_evidence


def settle_reference(runner: Runner, state: EvidenceState) -> EvidenceState:
    """Move the runner's reference where the evidence rises clearly; refit there."""
    if runner.reference is None:
        return state
    brief = brief_options(runner.options)
    error = 1 / math.sqrt(float(runner.weight.sum()))  # of the mean, in scales
    movable = runner.reference.movable.to(runner.weight.device)
    for _ in range(MAX_STEPS):
        here = runner.shift
        step = reference_step(
            runner.problem,
            runner.weight,
            state,
            movable,
            here.to(runner.weight),
            runner.options,
        )
        limit = MAX_SHIFT * error
        there = (here + step.cpu()).clamp(-limit, limit)
        if float((there - here).abs().max()) < MIN_STEP * error:
            break
        runner.move(there)
        trial = runner.call("moved", fit_evidence, state, brief)
        farther = float((there.square() - here.square()).sum()) / (2 * error**2)
        if not trial.log_evidence - farther > state.log_evidence + MOVE_MARGIN:
            runner.move(here)
            break
        state = trial
    return state


def brief_options(options: EvidenceOptions) -> EvidenceOptions:
    """A few steps for a state that is almost there."""
    return replace(options, max_iter=min(BRIEF_STEPS, options.max_iter), burn_in=0)


def has_evidence(state: EvidenceState) -> bool:
    """Whether a restart came to anything."""
    return state.log_evidence > -math.inf


def make_tasks(
    problem: Problem,
    random: np.random.RandomState,
    stage: str,
    support: Tensor,
    inputs: Tensor,
    count: int,
) -> list[Task]:
    """Restarts of one stage, from cautious to optimistic in turn."""
    levels = (
        OPTIMISM
        if problem.family.name in ESTIMATED_DISPERSION
        else OPTIMISM_FIXED_DISPERSION
    )
    return [
        Task(
            stage,
            int(random.randint(2**31 - 1)),
            levels[k % len(levels)],
            support,
            inputs,
        )
        for k in range(count)
    ]


def fit_linear_evidence(
    problem: Problem, weight: Tensor, start: Coefficients, options: EvidenceOptions
) -> EvidenceState:
    """The member without a network; it is cheap and has no deadline."""
    usable = usable_features(problem)
    n_params = problem.spec.n_params
    params = torch.zeros(n_params, dtype=torch.float64, device=weight.device)
    nothing = torch.zeros_like(usable)
    return fit_evidence(
        problem,
        weight,
        start_state(problem, weight, params, start, usable, nothing),
        replace(options, deadline=math.inf),
    )


def usable_features(problem: Problem) -> Tensor:
    """Features with a term at all, (p,)."""
    usable = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    usable = usable.to(problem.device)
    usable[problem.term_feature] = True
    return usable


def keep_stable(
    runner: Runner,
    state: EvidenceState,
    restarts: list[tuple[Task, EvidenceState]],
    floor: float,
) -> EvidenceState:
    """Drop what fewer than `STABLE_SHARE` of the successful restarts keep.

    A restart that was not shown a feature or input has no say on it.
    """
    good = successful([state for _, state in restarts], floor)
    voters = [(task, s) for task, s in restarts if any(s is g for g in good)]

    def often(kept: list[Tensor], shown: list[Tensor]) -> Tensor:
        return torch.stack(kept).sum(0) >= STABLE_SHARE * torch.stack(shown).sum(0)

    support = often([s.support for _, s in voters], [t.support for t, _ in voters])
    inputs = often(
        [s.input_support for _, s in voters], [t.input_support for t, _ in voters]
    )
    return refit_within(runner, state, support, inputs, runner.options)


def successful(states: list[EvidenceState], floor: float) -> list[EvidenceState]:
    """Restarts that gain at least `MEMBER_SHARE` of the best gain over the GLM."""
    gain = max(state.log_evidence for state in states) - floor
    return [s for s in states if s.log_evidence - floor >= MEMBER_SHARE * gain]


def refit_within(
    runner: Runner,
    state: EvidenceState,
    support: Tensor,
    inputs: Tensor,
    options: EvidenceOptions,
    always: bool = False,
) -> EvidenceState:
    """Restrict a state to supports, and refit it if that takes anything away."""
    support, inputs = state.support & support, state.input_support & inputs
    same = torch.equal(support, state.support)
    if same and torch.equal(inputs, state.input_support) and not always:
        return state
    fewer = restrict(state, runner.problem, inputs, support)
    return runner.call("within", fit_evidence, fewer, options)


def strongest_features(
    problem: Problem, at: Coefficients, count: int = FEW_FEATURES
) -> Tensor:
    """Features with the largest coefficients of the GLM, `count` at most."""
    size = at.coef.new_zeros(problem.spec.n_features)
    size.index_add_(0, problem.term_feature, at.coef[0].square())
    top = torch.topk(size, min(count, len(size)))
    strongest = torch.zeros_like(size, dtype=torch.bool)
    strongest[top.indices] = top.values > 0
    return strongest


def choose_members(
    runner: Runner, search: SearchResult, n_members: int
) -> list[EvidenceState]:
    """The restarts to average; none when the network does not beat the GLM.

    A restart has failed when it gains less than `MEMBER_SHARE` of the evidence that the
    best one gains over the linear fit, or, once it has been restricted to the selected
    supports, of what the selected state gains.
    """
    if not search.eligible:
        return []
    floor, selected = search.linear.log_evidence, search.states[-1]
    gain = selected.log_evidence - floor
    if not gain >= EVIDENCE_MARGIN:
        return []
    pool = successful([search.states[k] for k in search.eligible], floor)
    pool = sorted(pool, key=lambda state: -state.log_evidence)[:n_members]
    brief = brief_options(runner.options)
    agreed = [
        refit_within(
            runner,
            state,
            selected.support,
            selected.input_support,
            brief,
            # Others may have been fitted around the sample's mean.
            always=runner.has_moved and state is not selected,
        )
        for state in pool
    ]
    return [s for s in agreed if s.log_evidence - floor >= MEMBER_SHARE * gain]


def loose_members(
    runner: Runner, search: SearchResult, n_members: int
) -> list[EvidenceState]:
    """The best successful restarts, one per seed, with the supports each has found."""
    floor = search.linear.log_evidence
    if not search.best.log_evidence - floor >= EVIDENCE_MARGIN:
        return []
    pool = successful([search.states[k] for k in search.leaders()], floor)
    if not runner.has_moved:
        return pool[:n_members]
    brief = brief_options(runner.options)
    return [
        refit_within(runner, s, s.support, s.input_support, brief, always=True)
        for s in pool[:n_members]
    ]


def linear_model(
    runner: Runner, linear: EvidenceState, within: Tensor | None = None
) -> Coefficients:
    """Coefficients of the linear evidence fit without features that bring nothing.

    `within` (p,) names the features that it may keep.
    """
    gentle = replace(runner.options, feature_margin=LINEAR_MARGIN)
    if within is not None:
        inputs = linear.input_support
        linear = refit_within(runner, linear, within, inputs, runner.options)
    state = runner.call("simplified", simplify, linear, gentle)
    return Coefficients(state.coef.unsqueeze(0), state.intercept.reshape(1))
