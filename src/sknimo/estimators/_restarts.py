"""Restarts: select supports, refit within them, choose the members to average.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.estimators._resume import TaskStore
from sknimo.estimators._threads import torch_threads
from sknimo.network import init_params, unpack
from sknimo.solver import (
    ESTIMATED_DISPERSION,
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    fit_evidence,
    restrict,
    simplify,
    start_state,
)

Result = TypeVar("Result")

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
# Log evidence that a feature must bring to an unshrunken linear model.
LINEAR_MARGIN = 1.0
OUTPUT_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """One restart: where it starts and what it may use."""

    stage: str
    seed: int
    optimism: float
    support: Tensor
    input_support: Tensor


def feature_margin(n_features: int) -> float:
    """Log evidence that a feature must bring.

    A coefficient with squared Wald statistic t raises the evidence by
    `(t - 1 - log t) / 2`. The t used here grows with the number of features so that
    about one fit in thirty would keep a feature that does nothing; one more unit pays
    for the bilinear terms that can move between features.
    """
    threshold = 4 + 2 * math.log(max(n_features, 1))
    return 1 + (threshold - 1 - math.log(threshold)) / 2


def count_weights(weight: np.ndarray) -> np.ndarray:
    """Weights that count rows: integers as they are, others scaled to mean one."""
    if np.array_equal(weight, np.round(weight)):
        return weight
    return weight * (len(weight) / weight.sum())


class Runner:
    """Runs restarts, in this process or in several, until time is up."""

    def __init__(
        self,
        problem: Problem,
        weight: Tensor,
        options: EvidenceOptions,
        n_jobs: int | None = None,
        progress: bool = False,
        store: TaskStore | None = None,
    ) -> None:
        self.problem, self.weight, self.options = problem, weight, options
        self.n_jobs, self.progress = n_jobs, progress
        self.store = store or TaskStore()
        self.out_of_time = False

    def run(
        self, tasks: Sequence[Task], start: Coefficients
    ) -> list[tuple[Task, EvidenceState]]:
        """Fit every task; tasks that cannot start in time are left out."""
        done = self.map(
            EvidenceState,
            tasks[0].stage if tasks else "",
            run_task,
            [(self.problem, self.weight, task, start, self.options) for task in tasks],
        )
        return [
            (task, state)
            for task, state in zip(tasks, done, strict=True)
            if state is not None
        ]

    def call(
        self, stage: str, function: Callable[..., EvidenceState], *args: Any
    ) -> EvidenceState:
        """One task on all rows, in this process."""
        return self.store.call(
            EvidenceState, stage, function, self.problem, self.weight, *args
        )

    def map(
        self,
        kind: type[Result],
        stage: str,
        function: Callable[..., Result | None],
        calls: Sequence[tuple[Any, ...]],
    ) -> list[Result | None]:
        """Results of a function for each tuple of arguments, None without time.

        They are records of the given kind; those that a checkpoint holds are loaded.
        """
        store = self.store
        names = [store.name(stage, args) for args in calls]
        done = [store.load(kind, name) for name in names]
        left = [k for k, result in enumerate(done) if result is None]
        bar = tqdm(
            _parallel(self.n_jobs)(
                delayed(store.run)(names[k], function, calls[k]) for k in left
            ),
            total=len(calls),
            initial=len(calls) - len(left),
            desc=f"sknimo {stage}",
            disable=None if self.progress else True,
            delay=2,
            leave=False,
        )
        for k, result in zip(left, bar, strict=True):
            done[k] = result
        self.out_of_time = self.out_of_time or self.options.out_of_time
        return done


def _parallel(n_jobs: int | None) -> Parallel:
    try:
        return Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:  # Ray's backend returns everything at the end
        return Parallel(n_jobs=n_jobs)


def run_task(
    problem: Problem,
    weight: Tensor,
    task: Task,
    start: Coefficients,
    options: EvidenceOptions,
) -> EvidenceState | None:
    """One restart, on one thread unless the table is large; None without time."""
    if options.out_of_time:
        return None
    with torch_threads(problem.n_rows):
        state = start_state(
            problem,
            weight,
            random_network(problem, task.seed),
            start,
            task.support,
            task.input_support,
            task.optimism,
        )
        state = restrict(state, problem, task.input_support, task.support)
        return fit_evidence(problem, weight, state, options)


def random_network(problem: Problem, seed: int) -> Tensor:
    """A random network with a small output layer, (P,)."""
    params = init_params(problem.spec, [seed])
    generator = torch.Generator().manual_seed(seed)
    out = unpack(problem.spec, params).out
    out.normal_(
        0, OUTPUT_SCALE / math.sqrt(problem.spec.hidden[1]), generator=generator
    )
    return params[0].to(problem.device)


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

    def best_tasks(self, count: int) -> list[Task]:
        """The best restarts again, one per seed, within the selected supports."""
        selected = self.states[-1]
        order = sorted(self.eligible, key=lambda k: -self.states[k].log_evidence)
        best: dict[int, Task] = {}
        for k in order:
            best.setdefault(self.tasks[k].seed, self.tasks[k])
        return [
            replace(
                task, support=selected.support, input_support=selected.input_support
            )
            for task in list(best.values())[:count]
        ]

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
    leader, best = max(done, key=lambda pair: pair[1].log_evidence)
    tidied = runner.call("simplified", simplify, best, options)
    if stable:
        tidied = keep_stable(runner, tidied, done, linear.log_evidence)
    n_selecting = len(done)
    if relax and bool(tidied.input_support.any()):
        support, inputs = tidied.support, tidied.input_support
        plan = make_tasks(problem, random, "relaxed", support, inputs, n_starts)
        relaxed = runner.run(plan, start)
        done += [(task, state) for task, state in relaxed if has_evidence(state)]
        # A better fit tells a feature that does nothing more clearly.
        candidates = [(leader, tidied), *done[n_selecting:]]
        leader, best = max(candidates, key=lambda pair: pair[1].log_evidence)
        tidied = runner.call("simplified", simplify, best, options)
    done.append((replace(leader, stage="simplified"), tidied))
    first = n_selecting if stable else 0
    return SearchResult(
        [task for task, _ in done],
        [state for _, state in done],
        linear,
        list(range(first, len(done))),
    )


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
) -> EvidenceState:
    """Restrict a state to supports, and refit it if that takes anything away."""
    support, inputs = state.support & support, state.input_support & inputs
    same = torch.equal(support, state.support)
    if same and torch.equal(inputs, state.input_support):
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
    best one gains over the linear fit, before or after it has been restricted to the
    selected supports.
    """
    floor = search.linear.log_evidence
    gain = search.best.log_evidence - floor
    if not (search.eligible and gain >= EVIDENCE_MARGIN):
        return []
    pool = successful([search.states[k] for k in search.eligible], floor)
    pool = sorted(pool, key=lambda state: -state.log_evidence)[:n_members]
    selected = search.states[-1]
    brief = replace(
        runner.options, max_iter=min(12, runner.options.max_iter), burn_in=0
    )
    agreed = [
        refit_within(runner, state, selected.support, selected.input_support, brief)
        for state in pool
    ]
    return [s for s in agreed if s.log_evidence - floor >= MEMBER_SHARE * gain]


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
