"""Restarts: select supports, refit within them, choose the members to average.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.search._runner import (
    Crewed,
    Restart,
    Runner,
    Start,
    View,
    brief_options,
    is_wide,
    settle_reference,
    simplify_crew,
    with_terms,
)
from sknimo.search._settings import Settings
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    fit_evidence,
    restrict,
    simplify,
    trial_options,
    weak_features,
)


@dataclass(frozen=True, slots=True)
class Selection:
    """All restarts, the linear fit beside them, and the best."""

    restarts: list[Restart]  # the last has the selected supports
    linear: EvidenceState  # around the sample's mean
    view: View  # where the reference ended: members are fitted around it
    # First restarts that may neither be the best nor join the average.
    n_barred: int = 0

    @property
    def eligible(self) -> list[int]:
        """Restarts that may be the best and join the average."""
        return list(range(self.n_barred, len(self.restarts)))

    @property
    def best_index(self) -> int:
        """The eligible restart of the highest evidence, -1 when there is none."""
        return max(
            self.eligible, key=lambda k: self.restarts[k].log_evidence, default=-1
        )

    @property
    def best(self) -> EvidenceState:
        """Its state; the linear fit when there is none."""
        return self.restarts[self.best_index].state if self.eligible else self.linear

    def leaders(self) -> list[Restart]:
        """Eligible restarts, the best first, one per seed."""
        order = sorted(
            (self.restarts[k] for k in self.eligible), key=lambda r: -r.log_evidence
        )
        best: dict[int, Restart] = {}
        for restart in order:
            best.setdefault(restart.start.seed, restart)
        return list(best.values())

    def best_starts(self, count: int) -> list[Start]:
        """The best restarts again, within the selected supports."""
        selected = self.restarts[-1].state
        return [_again(restart, selected) for restart in self.leaders()[:count]]

    def loose_starts(self, count: int) -> list[Start]:
        """The best restarts again, each within the supports that it found."""
        return [_again(restart, restart.state) for restart in self.leaders()[:count]]

    def table(self) -> dict[str, list[Any]]:
        """One row per restart, ready for a data frame."""
        starts = [restart.start for restart in self.restarts]
        states = [restart.state for restart in self.restarts]
        return {
            "stage": [start.stage for start in starts],
            "optimism": [start.optimism for start in starts],
            "seed": [start.seed for start in starts],
            "log_evidence": [state.log_evidence for state in states],
            "n_features": [int(state.support.sum()) for state in states],
            "n_inputs": [int(state.input_support.sum()) for state in states],
            "n_effective": [state.n_effective for state in states],
            "n_iter": [state.n_iter for state in states],
        }


def _again(restart: Restart, within: EvidenceState) -> Start:
    return replace(
        restart.start, support=within.support, input_support=within.input_support
    )


def select(
    runner: Runner, view: View, at: Coefficients, random: np.random.RandomState
) -> Selection:
    """Select supports by restarts, then restart within them.

    Begins at a GLM's coefficients, `at`.
    """
    settings, options = runner.settings, runner.options
    stable = settings.rule == "stability"
    linear = runner.linear(view, at)
    if is_wide(view.problem, int((runner.weight > 0).sum())):
        return Selection([], linear, view)
    starts = first_starts(view.problem, at, linear.support, random, settings)
    floor = linear.log_evidence
    if settings.cautious and not _has_promise(runner, view, starts, at, floor):
        runner.gave_up = True
        return Selection([], linear, view)
    done = _until_agreed(runner, view, starts, at, floor)
    if not done:
        return Selection([], linear, view)
    leader = max(done, key=by_evidence)
    bold = replace(options, faint_slack=settings.faint_slack)
    tidied = runner.call(view, "simplified", simplify, leader.state, bold)
    if stable:
        tidied = keep_stable(runner, view, tidied, done, linear.log_evidence)
    n_barred = len(done) if stable else 0
    selected = replace(leader, state=tidied)
    if settings.relax and bool(tidied.input_support.any()):
        relaxed = _Relaxed(runner, at, random, floor)
        selected = relaxed.run(leader, selected)
        done = done + relaxed.done
    selected = replace(selected, start=replace(selected.start, stage="simplified"))
    return Selection([*done, selected], linear, selected.view, n_barred)


def _has_promise(
    runner: Runner, view: View, starts: list[Start], at: Coefficients, floor: float
) -> bool:
    """Whether restarts that are given up early gain anything, a half at a time."""
    # Where there are many features, restarts that see all of them hardly ever succeed
    # where those among the strongest fail.
    narrow = [start for start in starts if start.stage == "narrow"]
    eager, half = narrow or starts, max(runner.settings.n_starts // 2, 1)
    for begin in range(0, len(eager), half):
        some = eager[begin : begin + half]
        gain = scout(runner, view, some, at, floor, least=floor)
        if gain >= runner.settings.evidence_margin:
            return True
    return False


def scout(
    runner: Runner,
    view: View,
    starts: list[Start],
    at: Coefficients,
    floor: float,
    least: float = -math.inf,
) -> float:
    """Log evidence that the best of the first half of the restarts has gained."""
    half = max(runner.settings.n_starts // 2, 1)
    found = runner.run(view, starts[:half], at, least)
    return max((each.log_evidence for each in found), default=-math.inf) - floor


def is_decisive(runner: Runner, gain: float) -> bool:
    """Whether a restart leaves so little noise that nothing has to stand beside it."""
    return gain > runner.settings.decisive_gain * float(runner.weight.sum())


def _until_agreed(
    runner: Runner, view: View, starts: list[Start], at: Coefficients, floor: float
) -> list[Restart]:
    """Restarts, half of them at a time, until the two best gain about the same.

    Narrow ones among themselves say nothing of wide ones. Restarts that are followed by
    relaxed ones also end with a decisive one.
    """
    settings = runner.settings
    size = max(settings.n_starts // 2, 1)
    first = settings.relax and starts[0].stage != "relaxed"
    done: list[Restart] = []
    for begin in range(0, len(starts), size):
        done += runner.run(view, starts[begin : begin + size], at)
        gains = sorted((each.log_evidence - floor for each in done), reverse=True)
        best, second = (*gains, -math.inf, -math.inf)[:2]
        if first and is_decisive(runner, best):
            break
        agreed = best > settings.clear_gain and second >= settings.agreed_share * best
        if agreed and starts[-1].stage == starts[begin].stage:
            break
    return done


def first_starts(
    problem: Problem,
    at: Coefficients,
    linear_support: Tensor,
    random: np.random.RandomState,
    settings: Settings,
) -> list[Start]:
    """Narrow starts of the GLM's strongest features, then wide ones that see all.

    Narrow ones take a fraction of the time, and are often decisive.
    """
    usable = with_terms(problem)
    few = settings.few_features
    shortlist = linear_support | strongest_features(problem, at, few)
    n_narrow = 0
    if len(usable) > few and bool(shortlist.any()):
        n_narrow = settings.n_starts // 2
    n_wide = settings.n_starts - n_narrow
    wide = make_starts(settings, problem, random, "wide", usable, usable, n_wide)
    narrow = make_starts(
        settings, problem, random, "narrow", shortlist, shortlist, n_narrow
    )
    for k, start in enumerate(narrow):
        size = settings.narrow_sizes[k % len(settings.narrow_sizes)]
        if size is not None:
            strongest = strongest_features(problem, at, size)
            narrow[k] = replace(start, support=strongest, input_support=strongest)
    return narrow + wide


class _Relaxed:
    """Restarts within supports that were selected, until those are confirmed."""

    def __init__(
        self,
        runner: Runner,
        at: Coefficients,
        random: np.random.RandomState,
        floor: float,
    ) -> None:
        self.runner, self.at, self.random = runner, at, random
        self.floor = floor
        self.done: list[Restart] = []

    def run(self, before: Restart, tidied: Restart) -> Restart:
        """The best restart within what `before` needs, simplified."""
        runner, n_starts = self.runner, self.runner.settings.n_starts
        stable = runner.settings.rule == "stability"
        bold = replace(runner.options, faint_slack=runner.settings.faint_slack)
        settled = settle_reference(runner, tidied)
        best = self._restart(settled, n_starts)
        if not (stable or self._confirms(before, best)):
            careful = self._simplified(replace(before, view=best.view), runner.options)
            best = self._restart(careful, n_starts)
        # A better fit tells more clearly what does nothing, and where the mean is.
        if best is not settled:
            best = settle_reference(runner, best)
        fewer = best
        lost = before.state.input_support & ~tidied.state.input_support
        # What bold margins left, and no restart bettered, they would leave once more.
        if stable or best is not tidied or bool(lost.any()):
            how = [(best.view.problem, runner.weight, best.state, runner.options, bold)]
            (done,) = runner.map(Crewed, best.view, "simplified", simplify_crew, how)
            assert done is not None
            best, fewer = (replace(best, state=state) for state in done.states)
        if bool((fewer.state.support != best.state.support).any()):
            again = self._restart(fewer, max(1, n_starts // 2))
            if self._confirms(best, again):
                best = self._simplified(again, runner.options)
        if runner.settings.rule == "min":
            best = self._widened(best)
        return best if stable else self._agreed(best)

    def _widened(self, best: Restart) -> Restart:
        """The same, or a better one in which all that acts or bends may do both.

        What left the coefficients too early often bends others still, and comes back.
        """
        runner, state = self.runner, best.state
        if torch.equal(state.support, state.input_support):
            return best
        either = state.support | state.input_support
        wide = replace(state, support=either, input_support=either)
        found = self._tried(best, wide, max(1, runner.settings.n_starts // 2))
        if not found:  # time is up
            return best
        leader = max(found, key=by_evidence)
        # No more than what features are worth that are idle in the wider one.
        if leader.log_evidence <= best.log_evidence - runner.options.feature_margin:
            return best
        other = self._simplified(leader, runner.options)
        if other.log_evidence <= best.log_evidence:
            return best
        # Restarts within other supports fail within these, and leave few members.
        return self._restart(other, runner.settings.n_starts)

    def _agreed(self, best: Restart) -> Restart:
        """Without features that restarts within its supports can mostly do without.

        The best of many restarts is the luckiest, also in what it makes of a feature
        that does nothing.
        """
        runner, state, view = self.runner, best.state, best.view
        problem, options = view.problem, runner.options
        pool = [each for each in self.done if _may_have(each.start, state)]
        pool = successful(pool, self.floor, runner.settings) if pool else []
        pool = sorted(pool, key=by_evidence)[-runner.settings.n_members :]
        if len(pool) < runner.settings.n_jurors:
            return best
        known = not problem.family.estimates_dispersion
        share = runner.settings.known_dispersion_share if known else 1.0
        own = [each.state for each in pool]
        weak = weak_features(problem, runner.weight, own, options)
        weak = [feature for feature in weak if state.support[feature]]
        if not weak:
            return best
        moved = [each.view is not view for each in pool]
        jury = refit_all(runner, view, own, [state] * len(own), moved)
        support = state.support.clone()
        for feature in weak:
            support[feature] = False
            fewer = [
                restrict(each, problem, each.input_support, support) for each in jury
            ]
            trials = runner.refit(view, fewer, trial_options(options))
            costs = [
                before.log_evidence - after.log_evidence
                for before, after in zip(jury, trials, strict=True)
            ]
            if median(costs) >= share * options.feature_margin:
                support[feature] = True
                break
            jury = trials
        if torch.equal(support, state.support):
            return best
        state = refit_within(runner, view, state, support, state.input_support)
        return replace(best, state=max([state, *jury], key=by_evidence))

    def _simplified(self, restart: Restart, options: EvidenceOptions) -> Restart:
        view, state = restart.view, restart.state
        state = self.runner.call(view, "simplified", simplify, state, options)
        return replace(restart, state=state)

    def _restart(self, known: Restart, count: int) -> Restart:
        """Best of restarts within the supports of a known one, and of that one."""
        return max([known, *self._tried(known, known.state, count)], key=by_evidence)

    def _tried(
        self, known: Restart, within: EvidenceState, count: int
    ) -> list[Restart]:
        """Restarts around the point of a known one, within the supports of a state."""
        starts = make_starts(
            self.runner.settings,
            known.view.problem,
            self.random,
            "relaxed",
            within.support,
            within.input_support,
            count,
        )
        found = _until_agreed(self.runner, known.view, starts, self.at, self.floor)
        self.done += found
        return found

    def _confirms(self, before: Restart, after: Restart) -> bool:
        """Whether the features that are gone cost no more than their margins."""
        n_gone = int((before.state.support & ~after.state.support).sum())
        cost = before.log_evidence - after.log_evidence
        return cost <= self.runner.options.feature_margin * max(n_gone, 1)


def _may_have(start: Start, state: EvidenceState) -> bool:
    """Whether a restart begins with all that a state uses."""
    missing = state.support & ~start.support
    unread = state.input_support & ~start.input_support
    return not bool((missing | unread).any())


def by_evidence(found: Restart | EvidenceState) -> float:
    """Key to rank restarts and states by."""
    return found.log_evidence


def make_starts(
    settings: Settings,
    problem: Problem,
    random: np.random.RandomState,
    stage: str,
    support: Tensor,
    inputs: Tensor,
    count: int,
) -> list[Start]:
    """Starts of one stage, from cautious to optimistic in turn."""
    optimism = settings.optimism
    if not problem.family.estimates_dispersion:
        optimism = settings.optimism_fixed_dispersion
    return [
        Start(
            stage,
            int(random.randint(2**31 - 1)),
            optimism[k % len(optimism)],
            settings.output_scale,
            support,
            inputs,
        )
        for k in range(count)
    ]


def keep_stable(
    runner: Runner,
    view: View,
    state: EvidenceState,
    restarts: list[Restart],
    floor: float,
) -> EvidenceState:
    """Drop what too few of the successful restarts keep.

    A restart that was not shown a feature or input has no say on it.
    """
    voters = successful(restarts, floor, runner.settings)
    if not voters:
        return state

    def often(kept: list[Tensor], shown: list[Tensor]) -> Tensor:
        least = runner.settings.stable_share * torch.stack(shown).sum(0)
        return torch.stack(kept).sum(0) >= least

    support = often(
        [v.state.support for v in voters], [v.start.support for v in voters]
    )
    inputs = often(
        [v.state.input_support for v in voters],
        [v.start.input_support for v in voters],
    )
    return refit_within(runner, view, state, support, inputs)


def successful(
    restarts: list[Restart], floor: float, settings: Settings
) -> list[Restart]:
    """Restarts that gain a good share of the best gain over the GLM."""
    least = settings.member_share * (max(r.log_evidence for r in restarts) - floor)
    return [r for r in restarts if r.log_evidence - floor >= least]


def refit_within(
    runner: Runner, view: View, state: EvidenceState, support: Tensor, inputs: Tensor
) -> EvidenceState:
    """Restrict a state to supports, and refit it if that takes anything away."""
    support, inputs = state.support & support, state.input_support & inputs
    same = torch.equal(support, state.support)
    if same and torch.equal(inputs, state.input_support):
        return state
    fewer = restrict(state, view.problem, inputs, support)
    return runner.call(view, "within", fit_evidence, fewer, runner.options)


def refit_all(
    runner: Runner,
    view: View,
    states: list[EvidenceState],
    within: list[EvidenceState],
    always: list[bool],
) -> list[EvidenceState]:
    """Restrict states to the supports of others; refit, briefly, those that change."""
    kept = [
        restrict(
            state,
            view.problem,
            state.input_support & other.input_support,
            state.support & other.support,
        )
        for state, other in zip(states, within, strict=True)
    ]
    changed = [
        k
        for k, (new, old) in enumerate(zip(kept, states, strict=True))
        if always[k]
        or not torch.equal(new.support, old.support)
        or not torch.equal(new.input_support, old.input_support)
    ]
    done = list(states)
    found = runner.refit(view, [kept[k] for k in changed], brief_options(runner))
    for k, state in zip(changed, found, strict=True):
        done[k] = state
    return done


def strongest_features(problem: Problem, at: Coefficients, count: int) -> Tensor:
    """Features with the largest coefficients of the GLM, `count` at most."""
    size = at.coef.new_zeros(problem.spec.n_features)
    size.index_add_(0, problem.term_feature, at.coef[0].square())
    top = torch.topk(size, min(count, len(size)))
    strongest = torch.zeros_like(size, dtype=torch.bool)
    strongest[top.indices] = top.values > 0
    return strongest


def choose_members(runner: Runner, found: Selection) -> list[EvidenceState]:
    """The restarts to average; none when the network does not beat the GLM.

    A restart has failed when it gains less than a share of the evidence that the best
    one gains over the linear fit, or, once it has been restricted to the selected
    supports, of what the selected state gains.

    Which of the selected features bend others is more than two classes tell: there
    every restart keeps what it has found of that, one restart per seed.
    """
    settings, view = runner.settings, found.view
    if not found.restarts:
        return []
    floor, selected = found.linear.log_evidence, found.restarts[-1].state
    gain = selected.log_evidence - floor
    if not gain >= _least_gain(view.problem, settings):
        return []
    within, pool = selected, [found.restarts[k] for k in found.eligible]
    if view.problem.family.is_binary:
        either = selected.support | selected.input_support
        within, pool = replace(selected, input_support=either), found.leaders()
    pool = successful(pool, floor, settings)
    pool = sorted(pool, key=lambda r: -r.log_evidence)[: settings.n_members]
    # Others were fitted around another point, or before the last step.
    agreed = refit_all(
        runner,
        view,
        [restart.state for restart in pool],
        [within] * len(pool),
        [view.has_moved and restart.state is not selected for restart in pool],
    )
    least = settings.member_share * gain
    return [state for state in agreed if state.log_evidence - floor >= least]


def _least_gain(problem: Problem, settings: Settings) -> float:
    """Log evidence that a network must bring."""
    binary = problem.family.is_binary
    return settings.class_margin if binary else settings.evidence_margin


def loose_members(runner: Runner, found: Selection) -> list[EvidenceState]:
    """The best successful restarts, one per seed, with the supports each has found.

    None under a rule for fewer features: together they bring back what was left out.
    """
    settings, view = runner.settings, found.view
    floor = found.linear.log_evidence
    gain = found.best.log_evidence - floor
    if gain < _least_gain(view.problem, settings) or settings.rule != "min":
        return []
    pool = successful(found.leaders(), floor, settings)[: settings.n_members]
    if not view.has_moved:
        return [restart.state for restart in pool]
    states = [restart.state for restart in pool]
    return refit_all(runner, view, states, states, [True] * len(states))


def linear_model(
    runner: Runner, view: View, linear: EvidenceState, within: Tensor | None = None
) -> Coefficients:
    """Coefficients of the linear evidence fit without features that bring nothing.

    `within` (p,) names the features that it may keep.
    """
    gentle = replace(runner.options, feature_margin=runner.settings.linear_margin)
    if within is not None:
        inputs = linear.input_support
        linear = refit_within(runner, view, linear, within, inputs)
    return runner.call(view, "simplified", simplify, linear, gentle).coefficients
