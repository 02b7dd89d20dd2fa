"""Restarts: select supports, refit within them, choose the members to average.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.estimators._base import torch_threads
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

# Where restarts begin, as a share of the dispersion that the GLM leaves.
OPTIMISM = (1.0, 0.1, 1.0, 0.02)
OPTIMISM_FIXED_DISPERSION = (0.1, 0.3, 0.03, 1.0)
# A restart joins the average when its gain in log evidence over the GLM is at least
# this share of the best gain; the others have failed.
MEMBER_SHARE = 0.7
# The network must beat the GLM's log evidence by this much.
EVIDENCE_MARGIN = 5.0
# Up to this many features every restart may see all of them.
FEW_FEATURES = 12
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
        n_jobs: int | None,
        max_time: float | None,
        progress: bool,
    ) -> None:
        self.problem, self.weight, self.options = problem, weight, options
        self.n_jobs, self.progress = n_jobs, progress
        self.deadline = math.inf if max_time is None else time.monotonic() + max_time
        self.out_of_time = False

    def run(self, tasks: Sequence[Task], start: Coefficients) -> list[EvidenceState]:
        """Fit every task; tasks that cannot start in time are left out."""
        calls = (
            delayed(run_task)(
                self.problem, self.weight, task, start, self.options, self.deadline
            )
            for task in tasks
        )
        bar = tqdm(
            Parallel(n_jobs=self.n_jobs, return_as="generator")(calls),
            total=len(tasks),
            desc=f"sknimo {tasks[0].stage}" if tasks else "sknimo",
            disable=None if self.progress else True,
            delay=2,
            leave=False,
        )
        done = [state for state in bar if state is not None]
        self.out_of_time = self.out_of_time or len(done) < len(tasks)
        return done


def run_task(
    problem: Problem,
    weight: Tensor,
    task: Task,
    start: Coefficients,
    options: EvidenceOptions,
    deadline: float,
) -> EvidenceState | None:
    """One restart, on one thread unless the table is large."""
    if time.monotonic() > deadline:
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
    return params[0].to(problem.terms.device)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All restarts, the linear fit beside them, and the best."""

    tasks: list[Task]
    states: list[EvidenceState]
    linear: EvidenceState
    best_index: int

    @property
    def best(self) -> EvidenceState:
        """The state with the highest evidence, the linear fit included."""
        if self.best_index < 0:
            return self.linear
        return self.states[self.best_index]

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
) -> SearchResult:
    """Select supports by restarts, then restart within them."""
    problem = runner.problem
    p, device = problem.spec.n_features, problem.terms.device
    usable = torch.zeros(p, dtype=torch.bool, device=device)
    usable[problem.term_feature] = True
    nothing = torch.zeros_like(usable)
    levels = (
        OPTIMISM
        if problem.family.name in ESTIMATED_DISPERSION
        else OPTIMISM_FIXED_DISPERSION
    )

    def tasks(stage: str, support: Tensor, inputs: Tensor, count: int) -> list[Task]:
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

    linear = fit_evidence(
        problem,
        runner.weight,
        start_state(
            problem,
            runner.weight,
            torch.zeros(problem.spec.n_params, dtype=torch.float64, device=device),
            start,
            usable,
            nothing,
        ),
        runner.options,
    )
    shortlist = linear.support | strongest_features(problem, start)
    n_narrow = n_starts // 2 if p > FEW_FEATURES and bool(shortlist.any()) else 0
    plan = tasks("wide", usable, usable, n_starts - n_narrow)
    plan += tasks("narrow", shortlist, shortlist, n_narrow)
    states = runner.run(plan, start)
    plan = plan[: len(states)]
    if not states or max(state.log_evidence for state in states) == -math.inf:
        return SearchResult([], [], linear, -1)
    leader = int(np.argmax([state.log_evidence for state in states]))
    best = states[leader]
    tidied = simplify(problem, runner.weight, best, runner.options)
    if relax and bool(tidied.input_support.any()):
        more = tasks("relaxed", tidied.support, tidied.input_support, n_starts)
        relaxed = runner.run(more, start)
        plan = [*plan, *more[: len(relaxed)]]
        states = [*states, *relaxed]
        # A better fit tells a feature that does nothing more clearly.
        best = max([tidied, *relaxed], key=lambda state: state.log_evidence)
        tidied = simplify(problem, runner.weight, best, runner.options)
    plan.append(replace(plan[leader], stage="simplified"))
    states.append(tidied)
    evidence = [state.log_evidence for state in states]
    return SearchResult(plan, states, linear, int(np.argmax(evidence)))


def strongest_features(problem: Problem, at: Coefficients) -> Tensor:
    """Features with the largest coefficients of the GLM, `FEW_FEATURES` at most."""
    size = at.coef.new_zeros(problem.spec.n_features)
    size.index_add_(0, problem.term_feature, at.coef[0].square())
    top = torch.topk(size, min(FEW_FEATURES, len(size)))
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
    if search.best_index < 0 or gain < EVIDENCE_MARGIN:
        return []
    pool = [s for s in search.states if s.log_evidence - floor >= MEMBER_SHARE * gain]
    pool = sorted(pool, key=lambda state: -state.log_evidence)[:n_members]
    agreed = agree(runner, pool, search.states[-1])
    return [s for s in agreed if s.log_evidence - floor >= MEMBER_SHARE * gain]


def agree(
    runner: Runner, members: list[EvidenceState], selected: EvidenceState
) -> list[EvidenceState]:
    """Restrict members to the selected features and inputs, refitting if need be."""
    brief = replace(runner.options, max_iter=12, burn_in=0)
    agreed = []
    for state in members:
        support = state.support & selected.support
        inputs = state.input_support & selected.input_support
        if not torch.equal(support, state.support) or not torch.equal(
            inputs, state.input_support
        ):
            fewer = restrict(state, runner.problem, inputs, support)
            state = fit_evidence(runner.problem, runner.weight, fewer, brief)
        agreed.append(state)
    return agreed


def linear_model(runner: Runner, linear: EvidenceState) -> Coefficients:
    """Coefficients of the linear evidence fit without features that bring nothing."""
    gentle = replace(runner.options, feature_margin=LINEAR_MARGIN)
    state = simplify(runner.problem, runner.weight, linear, gentle)
    return Coefficients(state.coef.unsqueeze(0), state.intercept.reshape(1))
