"""Tasks of a search: restarts, side by side, until time is up.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from joblib import Parallel, delayed
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.estimators._reference import Reference
from sknimo.estimators._resume import TaskStore
from sknimo.estimators._threads import torch_threads
from sknimo.network import init_params, unpack
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    fit_evidence,
    restrict,
    start_state,
)

Result = TypeVar("Result")

OUTPUT_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """One restart: where it starts and what it may use."""

    stage: str
    seed: int
    optimism: float
    support: Tensor
    input_support: Tensor


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
        reference: Reference | None = None,
    ) -> None:
        self.problem, self.weight, self.options = problem, weight, options
        self.n_jobs, self.progress = n_jobs, progress
        self.store = store or TaskStore()
        self.out_of_time = False
        self.reference = reference
        self.shift = torch.zeros(problem.spec.n_features, dtype=torch.float64)

    @property
    def has_moved(self) -> bool:
        """Whether the reference is no longer the sample's mean."""
        return bool((self.shift != 0).any())

    def move(self, shift: Tensor) -> None:
        """Look at the problem from a reference `shift` (p,) away from the mean."""
        if self.reference is None or torch.equal(shift, self.shift):
            return
        self.problem = self.reference.restate(self.reference.features_at(shift))
        self.store = replace(self.store, place=tuple(shift.tolist()))
        self.shift = shift

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
