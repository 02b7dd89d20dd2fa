"""Fit one member by Gauss-Newton with its penalties learned from the data.

Every group of parameters (the coefficients of a group of terms, the first-layer column
of an input feature, each later block of the network) has a Gaussian prior with a
precision of its own. Given the precisions, damped Gauss-Newton steps on the joint
Jacobian of `eta` followed by an exact re-solve of the coefficients minimise

    F = sum_i w_i loss_i / dispersion + sum_g precision_g |theta_g|**2 / 2.

Given the parameters, each precision moves to `gamma_g / |theta_g|**2`, where `gamma_g`
counts the directions of the group that the data determine (MacKay's evidence update;
automatic relevance determination). Groups that the data do not need are switched off
exactly. The log evidence (Laplace) then ranks restarts, judges whether an input may be
removed and whether the network is worth having at all, without held-out rows.

Everything is float64. On small tables several members are one program: an operation on
all of them costs little more than on one. Restarts of larger ones are side by side in
processes.

Shapes: n rows, q term columns, r inputs, p features, a active features, P weights,
m = q + P parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from sknimo.network import input_norms
from sknimo.solver._crew import Crew, crew_size, wald
from sknimo.solver._member import (
    EvidenceOptions,
    EvidenceState,
    restrict,
)
from sknimo.solver._problem import Problem

# What a trial without an input may gain with every update that is left, or it is given
# up: so much, and so many times its last gain. Where these succeed in the end gains
# shrink slowly; some stand still for a step before the last nats.
LEAST_TO_COME = 5.0
GAINS_TO_COME = 2.0

# Trials by the state that they begin from, which is kept so that no other has its id.
Known = dict[tuple[int, ...], tuple[EvidenceState, EvidenceState]]


def fit_evidence(
    problem: Problem, weight: Tensor, start: EvidenceState, options: EvidenceOptions
) -> EvidenceState:
    """Alternate Gauss-Newton steps and precision updates until the evidence settles.

    `weight` (n,) counts rows: it sums to the number of observations.
    """
    return fit_crew(problem, weight.unsqueeze(0), [start], options)[0]


@torch.no_grad()
def fit_crew(
    problem: Problem,
    weight: Tensor,
    starts: Sequence[EvidenceState],
    options: EvidenceOptions,
) -> list[EvidenceState]:
    """The same of K members at once, each with its own weights, (K, n)."""
    crew = Crew(problem, weight, starts, options)
    done = list(starts)
    numbers = list(range(len(starts)))  # who is still in training
    traces: list[list[float]] = [[] for _ in starts]
    pruned_at, n_steps = [0] * len(starts), 0

    def finish(places: Sequence[int]) -> None:
        gone = [numbers[place] for place in places]
        for number, state in zip(gone, crew.leave(places), strict=True):
            n_iter = starts[number].n_iter + n_steps
            done[number] = replace(state, n_iter=n_iter)
            numbers.remove(number)

    # The first step is always taken: every answer has seen the data.
    while numbers and n_steps < options.max_iter:
        if n_steps and options.out_of_time:
            break
        crew.newton_step()
        n_steps += 1
        if n_steps <= options.burn_in:
            continue
        crew.update_precisions()
        settled = []
        for place, number in enumerate(numbers):
            trace = traces[number]
            trace.append(crew.log_evidence[place])
            if len(trace) - pruned_at[number] > options.window:
                rise = trace[-1] - trace[-1 - options.window]
                if rise < options.tol * options.window and not crew.is_past[place]:
                    settled.append(place)
        if _hopeless(traces, n_steps - options.burn_in, options):
            break
        if settled:
            useful = crew.drop_useless(settled)
            for place in useful:
                pruned_at[numbers[place]] = len(traces[numbers[place]])
            over = [place for place in settled if place not in useful]
            if over:
                finish(over)
    if numbers:
        # An update judges the precisions and the dispersion before it. Two of them at
        # least: a start's optimism about the dispersion must not enter the verdict.
        for _ in range(2 - len(traces[numbers[0]])):
            crew.update_precisions()
        while any(crew.is_past):
            crew.newton_step()
            crew.update_precisions()
        finish(range(len(numbers)))
    return done


def _hopeless(
    traces: Sequence[Sequence[float]], n_updates: int, options: EvidenceOptions
) -> bool:
    """Whether nobody is where somebody should be by now."""
    to_go = options.grace - n_updates
    if not 0 <= to_go <= options.grace - 3:  # the first updates undo the optimism
        return False
    return all(
        trace[-1] + to_go * (options.allowance or _to_come(trace)) < options.least
        for trace in traces
    )


def _to_come(trace: Sequence[float]) -> float:
    """What the last update promises of every other one; not a number after failures."""
    return LEAST_TO_COME + GAINS_TO_COME * (trace[-1] - trace[-2])


def simplify(
    problem: Problem, weight: Tensor, state: EvidenceState, options: EvidenceOptions
) -> EvidenceState:
    """Live without features and inputs whose absence costs no more than the margins.

    The weakest go first, several at a time while that succeeds; every trial is refitted
    briefly and judged by its log evidence. At the deadline what is achieved stays.
    """
    return simplify_in_turn(problem, weight, state, [options])[0]


def simplify_in_turn(
    problem: Problem,
    weight: Tensor,
    state: EvidenceState,
    options: Sequence[EvidenceOptions],
) -> list[EvidenceState]:
    """Simplified by ever bolder margins, each what is left by those before.

    Trials that failed are judged again, not fitted again: only margins may differ.
    """
    found: list[EvidenceState] = []
    known: Known = {}
    for margins in options:
        state = _remove(problem, weight, state, margins, False, known)
        state = _remove(problem, weight, state, margins, True, known)
        found.append(state)
    return found


def _remove(
    problem: Problem,
    weight: Tensor,
    state: EvidenceState,
    options: EvidenceOptions,
    inputs: bool,
    known: Known,
) -> EvidenceState:
    brief = trial_options(options, inputs)
    margin = options.input_margin if inputs else options.feature_margin
    needed = torch.zeros_like(state.support)
    while True:
        kept = (state.input_support if inputs else state.support) & ~needed
        if not bool(kept.any()) or options.out_of_time:
            return state
        strength = (
            input_norms(problem.spec, state.params[None])[0]
            if inputs
            else feature_strength(problem, weight, state, options)
        )
        weak = (
            _in_order(strength, kept)
            if inputs
            else _weak(problem, strength, kept, options)
        )
        if not weak:
            return state
        allowance = torch.full_like(strength, margin)
        if not inputs and problem.family.estimates_dispersion:
            faint = wald_gain(strength, _width(problem, strength)) < margin - 1
            slack = options.faint_slack * margin
            allowance = torch.where(faint, slack, allowance)
        if inputs:  # many are hopeless from the beginning
            brief = replace(brief, least=state.log_evidence - margin)
        trials = _trials(problem, weight, state, brief, weak, inputs, known)
        for gone, trial in trials:
            cost = state.log_evidence - trial.log_evidence
            allowed = float(allowance[gone].sum())
            if bool(state.input_support.any()) and not bool(trial.input_support.any()):
                allowed = margin * len(gone)  # no slack for losing the whole network
            if cost < allowed:
                state = trial
                break
            if len(gone) == 1:
                needed[gone] = True
        else:
            return state


def trial_options(options: EvidenceOptions, inputs: bool = False) -> EvidenceOptions:
    """A brief refit without some features, or without inputs of the network."""
    n_steps = options.input_steps if inputs else options.feature_steps
    n_steps = min(n_steps, options.max_iter)
    brief = replace(options, max_iter=n_steps, burn_in=1)
    return replace(brief, grace=n_steps - 1, allowance=None)


def _trials(
    problem: Problem,
    weight: Tensor,
    state: EvidenceState,
    options: EvidenceOptions,
    weak: list[int],
    inputs: bool,
    known: Known,
) -> Iterator[tuple[list[int], EvidenceState]]:
    """What may go, and the state without it, as long as none of them is accepted.

    One failure announces others, so that ever more trials are one program.
    """
    every = _tried(weak, halve=not inputs)
    size, used = 1, state.support | state.input_support
    largest = crew_size(problem, int(used.sum()))
    while (some := list(islice(every, size))) and not options.out_of_time:
        keys = [(id(state), inputs, *gone) for gone in some]
        fresh = [k for k, key in enumerate(keys) if key not in known]
        fewer = []
        for k in fresh:
            acts, bends = state.support.clone(), state.input_support.clone()
            (bends if inputs else acts)[some[k]] = False
            fewer.append(restrict(state, problem, bends, acts))
        if fewer:
            found = fit_crew(problem, weight.expand(len(fewer), -1), fewer, options)
            for k, trial in zip(fresh, found, strict=True):
                known[keys[k]] = state, trial
        yield from ((gone, known[key][1]) for gone, key in zip(some, keys, strict=True))
        size = min(2 * size, largest)


def _tried(weak: list[int], halve: bool) -> Iterator[list[int]]:
    """The weakest, several at a time; what fails alone is needed, and others follow."""
    for begin in range(len(weak)):
        count = max(1, (len(weak) - begin) // 2) if halve else 1
        while count:
            yield weak[begin : begin + count]
            count //= 2


def weak_features(
    problem: Problem,
    weight: Tensor,
    states: Sequence[EvidenceState],
    options: EvidenceOptions,
) -> list[int]:
    """Features that may be worth nothing to most of these, the weakest first."""
    each = [feature_strength(problem, weight, state, options) for state in states]
    used = torch.stack([state.support for state in states]).any(0)
    return _weak(problem, torch.stack(each).median(0).values, used, options)


def _weak(
    problem: Problem, strength: Tensor, kept: Tensor, options: EvidenceOptions
) -> list[int]:
    margin = options.weak_margins * options.feature_margin
    most = margin * _width(problem, strength)
    return [j for j in _in_order(strength, kept) if strength[j] < most[j]]


def _in_order(strength: Tensor, kept: Tensor) -> list[int]:
    return [int(j) for j in torch.argsort(strength) if kept[j]]


def _width(problem: Problem, strength: Tensor) -> Tensor:
    """Terms of each feature, (p,)."""
    n_features = len(strength)
    return problem.term_feature.bincount(minlength=n_features).to(strength)


def wald_gain(strength: Tensor, width: Tensor) -> Tensor:
    """Log evidence that coefficients of a squared Wald statistic bring, (p,)."""
    each = (strength / width.clamp(min=1)).clamp(min=1.0)
    return width * (each - 1 - each.log()) / 2


def feature_strength(
    problem: Problem, weight: Tensor, state: EvidenceState, options: EvidenceOptions
) -> Tensor:
    """Squared Wald statistic of each feature's coefficients, (p,)."""
    crew = Crew(problem, weight.unsqueeze(0), [state], options)
    crew.update_precisions()
    return wald(crew)[0]


def linear_predictor(
    problem: Problem, state: EvidenceState, options: EvidenceOptions
) -> Tensor:
    """`eta` of a state on the rows of a problem, (n,)."""
    weight = torch.ones_like(problem.y).unsqueeze(0)
    return Crew(problem, weight, [state], options).eta[0]
