"""Tasks of a search: restarts, side by side, until time is up.

Restarts have their own seeds. On small tables a few of them are one program, a crew; on
larger ones each is a task. Any number of processes gives the same answer. Restarts are
fitted in a `View`, the problem around one reference.

A modulated feature enters as `(x_j - ref_j) (1 + g_j)`: what the model can fit depends
on where the reference is. The mean of the population is known only up to its standard
error. Within a few of these the search looks for the point around which the rows are
explained best; coefficients are the marginal effects there. Views are never changed: a
move makes another one, and every restart keeps the view that it was fitted in.

Shapes: n rows, p features, P weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from torch import Tensor

from sknimo.features import Clipped, FeatureMap, Linear
from sknimo.machine import share_out, to_device, torch_threads
from sknimo.network import init_params, unpack
from sknimo.search._settings import Settings
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    MemoryColumns,
    Problem,
    crew_size,
    fit_crew,
    fit_evidence,
    reference_step,
    restrict,
    simplify_in_turn,
    start_state,
)
from sknimo.training import TaskStore, state_columns, too_wide

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MovableReference:
    """What it takes to look at a table from another point."""

    features: FeatureMap  # around the sample's mean
    table: np.ndarray  # (n, p)
    movable: Tensor  # (p,), bool, features whose reference may move
    keeps_curves: bool = True  # whether they were asked for, not found


@dataclass(frozen=True, slots=True)
class View:
    """The problem around one point."""

    problem: Problem
    # None where the reference stays at the mean.
    reference: MovableReference | None = None
    # From the sample's mean, in scales; None at the mean.
    distance: Tensor | None = None  # (p,)
    kind: str = ""  # tells views of the same point apart: with or without curves

    @property
    def has_moved(self) -> bool:
        """Whether the reference is no longer the sample's mean."""
        return self.distance is not None

    @property
    def name(self) -> tuple[object, ...]:
        """What tells this view from others of the same table."""
        far = () if self.distance is None else tuple(self.distance.tolist())
        return (self.kind, *far)

    @property
    def features(self) -> FeatureMap | None:
        """The features around this point, None where they are those of the data."""
        if self.reference is None:
            return None
        mean = self.reference.features
        if self.distance is None:
            return mean if self.kind else None
        return mean.around(mean.reference + self.distance.numpy() * mean.scale)

    def shift(self, at: Coefficients) -> Coefficients:
        """A linear model around the mean, as it is around this point."""
        if self.distance is None:
            return at
        moved = self.distance.to(at.coef)[self.problem.term_feature]
        return replace(at, intercept=at.intercept + at.coef @ moved)

    def around(self, distance: Tensor) -> View:
        """The same table from a point so many scales (p,) away from the mean."""
        moved = replace(self, distance=distance)
        features = moved.features
        assert self.reference is not None and features is not None
        columns = state_columns(features, self.reference.table)
        problem = replace(self.problem, columns=to_device(columns, self.problem.device))
        return replace(moved, problem=problem)


def without_curves(view: View) -> View:
    """The same table from the same point, with lines, levels and indicators alone."""
    problem = view.problem
    kept = straight_columns(problem)
    problem = replace(
        problem,
        columns=MemoryColumns(problem.terms[:, kept].contiguous(), problem.inputs),
        term_feature=problem.term_feature[kept],
        term_group=problem.term_group[kept],
        prior=None,
        learned=None,
    )
    return replace(view, problem=problem, reference=None, kind="straight")


def lines_alone(view: View) -> View:
    """The same for good: features that had a curve have a reference that may move."""
    lines, known = without_curves(view), view.reference
    assert known is not None
    reference = movable_reference(known.features.straightened(), known.table)
    return replace(lines, reference=reference)


def straight_columns(problem: Problem) -> Tensor:
    """Terms that are no curves, (q,), bool; see `FeatureMap.term_group`."""
    return ~problem.group_is_curve[problem.term_group]


def movable_reference(
    features: FeatureMap, table: np.ndarray, keeps_curves: bool = True
) -> MovableReference:
    """The reference of features that are one line through more than two values.

    Columns of two values have one of them as their reference. Where a float is too
    coarse to hold the mean it cannot hold a point near it either.
    """
    bare = (b.basis if isinstance(b, Clipped) else b for b in features.bases)
    movable = [
        isinstance(basis, Linear)
        and basis.scale > 0
        and basis.residue == 0
        and _has_many_values(table[:, j])
        for j, basis in enumerate(bare)
    ]
    able = torch.tensor(movable, dtype=torch.bool)
    return MovableReference(features, table, able, keeps_curves)


def _has_many_values(column: np.ndarray) -> bool:
    return bool(((column != column.min()) & (column != column.max())).any())


@dataclass(frozen=True, slots=True)
class Start:
    """Where a restart begins and what it may use."""

    stage: str
    seed: int
    optimism: float  # share of the GLM's dispersion that it begins with
    output_scale: float  # of the output layer's random weights
    support: Tensor  # (p,), bool
    input_support: Tensor  # (p,), bool


@dataclass(frozen=True, slots=True)
class Restart:
    """A finished restart: where it began, where it ended, and seen from where."""

    start: Start
    state: EvidenceState
    view: View

    @property
    def log_evidence(self) -> float:
        """Minus infinity where the restart came to nothing."""
        return self.state.log_evidence


class Runner:
    """Runs restarts, in this process or in several, until time is up."""

    def __init__(
        self, weight: Tensor, settings: Settings, options: EvidenceOptions, store: Any
    ) -> None:
        self.weight, self.settings, self.options = weight, settings, options
        self.store: TaskStore = store
        self.out_of_time = False
        self.gave_up = False  # after a few restarts
        # Processes that have other things to do.
        self.n_busy: Callable[[], int] = lambda: 0
        # Restarts that went ahead, by view and seed.
        self._known: dict[tuple[object, ...], EvidenceState | None] = {}

    def run(
        self,
        view: View,
        starts: Sequence[Start],
        at: Coefficients,
        least: float = -math.inf,
    ) -> list[Restart]:
        """Fit every restart; those that cannot start in time or fail are left out.

        What has been fitted before is not fitted again. Crews of which nobody comes to
        `least` soon are given up, and forgotten.
        """
        names = [(view.name, start.stage, start.seed) for start in starts]
        known = dict(self._known)
        fresh = [k for k, name in enumerate(names) if name not in known]
        tries = [Try(self.weight, starts[k], at) for k in fresh]
        stage = starts[0].stage if starts else ""
        options = replace(self.options, least=least)
        done = self.crews(view, stage, tries, options)
        known |= {names[k]: state for k, state in zip(fresh, done, strict=True)}
        found = [(start, known[n]) for start, n in zip(starts, names, strict=True)]
        restarts = [
            Restart(start, state, view)
            for start, state in found
            if state is not None and state.log_evidence > -math.inf
        ]
        if any(each.log_evidence >= least for each in restarts):
            self._known = known
        return restarts

    def linear(self, view: View, at: Coefficients) -> EvidenceState:
        """The member without a network, fitted once per view."""
        name = (view.name, "linear")
        found = self._known.get(name)
        if found is None:
            found = self.call(view, "linear", fit_linear_evidence, at, self.options)
            self._known[name] = found
        return found

    def crews(
        self, view: View, stage: str, tries: Sequence[Try], options: EvidenceOptions
    ) -> list[EvidenceState | None]:
        """Where each of these ends; those of a crew are one task, None without time."""
        # Those that are given up where nobody succeeds must stay together.
        together = options.least > -math.inf
        crews = in_crews(tries, view.problem, together)
        calls = [(view.problem, crew, options) for crew in crews]
        done = self.map(Crewed, view, stage, run_crew, calls)
        states: list[EvidenceState | None] = []
        for crew, found in zip(crews, done, strict=True):
            states += [None] * len(crew) if found is None else found.states
        return states

    def refit(
        self, view: View, states: Sequence[EvidenceState], options: EvidenceOptions
    ) -> list[EvidenceState]:
        """States that go on from where they are, as crews of this process."""
        crews = [Crewed(tuple(some)) for some in in_crews(states, view.problem)]
        calls = [(view.problem, self.weight, crew, options) for crew in crews]
        done = self.map(Crewed, view, "within", refit_crew, calls)
        return [state for found in done if found is not None for state in found.states]

    def call(
        self, view: View, stage: str, function: Callable[..., EvidenceState], *args: Any
    ) -> EvidenceState:
        """One task on all rows, in this process."""
        return self._store(view).call(
            EvidenceState, stage, function, view.problem, self.weight, *args
        )

    def map(
        self,
        kind: type[Result],
        view: View,
        stage: str,
        function: Callable[..., Result | None],
        calls: Sequence[tuple[Any, ...]],
    ) -> list[Result | None]:
        """Results of a function for each tuple of arguments, None without time.

        They are records of the given kind; those that a checkpoint holds are loaded.
        """
        store = self._store(view)
        names = [store.name(stage, args) for args in calls]
        done = [store.load(kind, name) for name in names]
        left = [k for k, result in enumerate(done) if result is None]
        if effective_n_jobs(self.settings.n_jobs) > 1:
            found = Parallel(n_jobs=self.settings.n_jobs)(
                delayed(store.run)(names[k], function, calls[k]) for k in left
            )
        else:
            tasks = [partial(store.run, names[k], function, calls[k]) for k in left]
            found = share_out(tasks, self.settings.n_processes - self.n_busy())
        for k, result in zip(left, found, strict=True):
            done[k] = result
        self.out_of_time = self.out_of_time or self.options.out_of_time
        return done

    def _store(self, view: View) -> TaskStore:
        return replace(self.store, view=view.name)


@dataclass(frozen=True, slots=True)
class Try:
    """A start on weighted rows, from the coefficients of a GLM."""

    weight: Tensor  # (n,)
    start: Start
    at: Coefficients

    def begin(self, problem: Problem) -> EvidenceState:
        """The state that it begins in."""
        start = self.start
        state = start_state(
            problem,
            self.weight,
            random_network(problem, start),
            self.at,
            start.support,
            start.input_support,
            start.optimism,
        )
        return restrict(state, problem, start.input_support, start.support)


@dataclass(frozen=True, slots=True)
class Crewed:
    """States of members that were fitted as one program."""

    states: tuple[EvidenceState, ...]


def in_crews(
    members: Sequence[Result], problem: Problem, together: bool = False
) -> list[Sequence[Result]]:
    """Members in crews of about the same size; a second processor has its half.

    However many processors there are: what a crew has in common decides last bits.
    """
    halves = 1 if together or problem.device.type != "cpu" else 2
    count = math.ceil(len(members) / crew_size(problem))
    count = max(count, min(halves, len(members)))
    ends = [k * len(members) // count for k in range(count + 1)] if count else []
    return [members[a:b] for a, b in pairwise(ends)]


def run_crew(
    problem: Problem, tries: Sequence[Try], options: EvidenceOptions
) -> Crewed | None:
    """Some restarts, on one thread unless the table is large; None without time."""
    if options.out_of_time:
        return None
    states = Crewed(tuple(each.begin(problem) for each in tries))
    weight = torch.stack([each.weight for each in tries])
    return refit_crew(problem, weight, states, options)


def refit_crew(
    problem: Problem, weight: Tensor, states: Crewed, options: EvidenceOptions
) -> Crewed:
    """Go on from some states with one vector of weights, or with one each."""
    each = weight.expand(len(states.states), -1)
    with torch_threads(problem.n_rows):
        return Crewed(tuple(fit_crew(problem, each, states.states, options)))


def simplify_crew(
    problem: Problem,
    weight: Tensor,
    state: EvidenceState,
    *options: EvidenceOptions,
) -> Crewed:
    """A state simplified by one set of margins, then by the next."""
    return Crewed(tuple(simplify_in_turn(problem, weight, state, options)))


def fit_linear_evidence(
    problem: Problem, weight: Tensor, start: Coefficients, options: EvidenceOptions
) -> EvidenceState:
    """The member without a network."""
    crew = fit_linear_crew(problem, weight.unsqueeze(0), [start], options)
    return crew.states[0]


def fit_linear_crew(
    problem: Problem,
    weights: Tensor,
    starts: Sequence[Coefficients],
    options: EvidenceOptions,
) -> Crewed:
    """Members without a network for some weights (K, n); cheap, and without a deadline.

    Each begins at a GLM's coefficients.
    """
    params = weights.new_zeros(problem.spec.n_params)
    states = []
    for weight, start in zip(weights, starts, strict=True):
        usable = usable_features(problem, weight, start)
        known = problem, weight, params, start, usable
        states.append(start_state(*known, torch.zeros_like(usable)))
    patient = replace(options, deadline=math.inf)
    return Crewed(tuple(fit_crew(problem, weights, states, patient)))


def with_terms(problem: Problem) -> Tensor:
    """Features with a term at all, (p,)."""
    usable = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    usable = usable.to(problem.device)
    usable[problem.term_feature] = True
    return usable


def is_wide(problem: Problem, n_rows: int) -> bool:
    """Whether features with terms are too many for evidence."""
    return too_wide(int(with_terms(problem).sum()), n_rows)


def usable_features(problem: Problem, weight: Tensor, at: Coefficients) -> Tensor:
    """Features of a linear fit, (p,): all with a term, unless they are too many.

    Then those of the GLM, `at`, and those that its residuals ask for most: one for four
    rows.
    """
    usable = with_terms(problem)
    if not is_wide(problem, int((weight > 0).sum())):
        return usable
    rows = problem.rows(weight.unsqueeze(0))
    eta = rows.eta(problem.terms.unsqueeze(0), at.coef, at.intercept)[0]
    pull = (weight * problem.family.score(problem.y, eta)) @ problem.terms
    size, asked = (
        pull.new_zeros(len(usable)).index_add_(0, problem.term_feature, each.square())
        for each in (at.coef[0], pull)
    )
    urgency = asked / asked.max().clamp(min=1e-300) + (size > 0)
    chosen = torch.zeros_like(usable)
    chosen[urgency.topk(max(int((weight > 0).sum()) // 4, 1)).indices] = True
    return chosen & usable


def random_network(problem: Problem, start: Start) -> Tensor:
    """A random network with a small output layer, (P,)."""
    params = init_params(problem.spec, [start.seed])
    generator = torch.Generator().manual_seed(start.seed)
    scale = start.output_scale / math.sqrt(problem.spec.hidden[1])
    unpack(problem.spec, params).out.normal_(0, scale, generator=generator)
    return params[0].to(problem.device)


def settle_reference(runner: Runner, restart: Restart) -> Restart:
    """Refit around another point where the evidence rises clearly by that."""
    settings, reference = runner.settings, restart.view.reference
    if reference is None:
        return restart
    brief = brief_options(runner)
    patient = replace(runner.options, burn_in=0)
    error = 1 / math.sqrt(float(runner.weight.sum()))  # of the mean, in scales
    movable = reference.movable.to(runner.weight.device)
    nowhere = torch.zeros(len(movable), dtype=torch.float64)
    for _ in range(settings.max_moves):
        view, state = restart.view, restart.state
        here = nowhere if view.distance is None else view.distance
        step = reference_step(
            view.problem,
            runner.weight,
            state,
            movable,
            here.to(runner.weight),
            runner.options,
        )
        limit = settings.max_errors * error
        there = (here + step.cpu()).clamp(-limit, limit)
        if float((there - here).abs().max()) < settings.min_step * error:
            break
        moved = view.around(there)
        farther = float((there.square() - here.square()).sum()) / (2 * error**2)
        least = state.log_evidence + farther + settings.move_margin
        trial = runner.call(moved, "moved", fit_evidence, state, brief)
        # Around a point that is far away all else differs, which takes its time.
        if trial.log_evidence <= least and float((there - here).abs().max()) > error:
            trial = runner.call(moved, "moved", fit_evidence, trial, patient)
        if not trial.log_evidence > least:
            break
        restart = replace(restart, state=trial, view=moved)
    return restart


def brief_options(runner: Runner) -> EvidenceOptions:
    """A few steps for a state that is almost there."""
    n_steps = min(runner.settings.brief_steps, runner.options.max_iter)
    return replace(runner.options, max_iter=n_steps, burn_in=0)
