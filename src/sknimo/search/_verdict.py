"""Held-out rows have the last word on whether the network is worth having.

Evidence trusts the family: outliers or counts that vary more than they should can look
like structure to it. Before a network is returned, its best member is therefore fitted
once more on the training rows of every fold, with the supports frozen and from fresh
random weights, and compared with the nested GLM on the rows held out. When these cannot
tell them apart, the simpler model wins. A start can fail on one fold that succeeded on
all rows, which the evidence there tells; the next best restart is tried then.

Where features have curves, a network has less left to explain; one without curves
explains the same rows in another way, and an average of both often predicts better than
either. So do restarts that keep the features each of them has found. Held-out rows
decide. A straight member is a curved one whose curves are zero: every average is again
one model.

Shapes: n rows, m rows held out, F folds, q terms, p features, P weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.search._path import GlmPath, fit_path
from sknimo.search._restarts import Selection
from sknimo.search._runner import (
    Crewed,
    Runner,
    Start,
    Try,
    View,
    fit_linear_crew,
    fit_linear_evidence,
    straight_columns,
)
from sknimo.search._settings import Settings
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    linear_predictor,
    simplify,
)
from sknimo.training import Ensemble, Fold


@dataclass(frozen=True, slots=True)
class Verdict:
    """Mean half deviance on held-out rows, network against nested GLM.

    Attributes
    ----------
    network_loss, glm_loss : ndarray of shape (F,)
        Of the best member and of the GLM on each fold. For the Gaussian family in units
        of the target's variance.
    gain : float
        Loss per row that the network saves, over all folds.
    error : float
        Standard error of `gain` over the rows.
    tiny_gain : float
        Within one standard error, share of the GLM's loss that must be saved.
    r2, glm_r2 : float
        Share of the variance of held-out targets that each explains, NaN where it was
        not computed.
    """

    network_loss: np.ndarray
    glm_loss: np.ndarray
    gain: float
    error: float
    tiny_gain: float = 0.1
    r2: float = math.nan
    glm_r2: float = math.nan

    @property
    def keeps_network(self) -> bool:
        """Whether the network saves more than chance would."""
        tiny = self.tiny_gain * float(np.mean(self.glm_loss))
        return self.gain > min(self.error, tiny) and self.gain > 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found."""

    # What to average; a single member with a silent network where the GLM won.
    members: Ensemble
    # What they were fitted to; bags have a wider network.
    problem: Problem
    verdict: Verdict | None  # None when there was no network to judge, or no time
    trials: dict[str, list[Any]]  # one row per model that was trained
    best_index: int  # row of the best one there, -1 when there is none
    n_members: int  # members with a network, 0 where the GLM was kept
    out_of_time: bool
    # Around the reference that was chosen, None where that is the data's.
    features: FeatureMap | None = None
    path: GlmPath | None = None  # None after a search on bags
    alpha: float = math.nan  # penalty of the nested GLM
    # Median precision of the inputs that the best member reads, learned by evidence.
    input_precision: float = math.nan
    # Of the best restart and of the linear fit, NaN after a search on bags.
    log_evidence: float = math.nan
    glm_log_evidence: float = math.nan
    dial: float = math.nan  # weight of members with a network
    # Linear predictors by members that have not seen the row, NaN where all have.
    held_out_eta: np.ndarray | None = None  # (n,), or (n, C) of C classes
    straight_eta: np.ndarray | None = None  # the same of the nested GLM
    by_bags: bool = False  # whether the model has the curves of bags
    # Members of every class where these are more than two; `members` are the first.
    by_class: tuple[Ensemble, ...] = ()
    # The model without bends, in the columns of the members: coefficients of one model,
    # or of every class.
    straight: Coefficients | None = None
    # Restarts that are averaged, before bags stand beside them.
    parts: tuple[Part, ...] = ()
    # What was drawn of rows in blocks, and how often each row counts, (m,).
    sample: tuple[Problem, Tensor] | None = None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Linear predictors of the rows that folds hold out."""

    # Places of the rows, and the fold that holds each of them out.
    rows: np.ndarray  # (m,), integer
    fold: np.ndarray  # (m,), integer
    weight: np.ndarray  # (m,)
    # Predictors of the GLM, of the best restart within the selected supports, and of
    # the mean of restarts within supports of their own. Those without a network are the
    # GLM's.
    glm: np.ndarray  # (m,)
    agreed: np.ndarray  # (m,)
    loose: np.ndarray  # (m,)

    def mix(self, weight: float) -> np.ndarray:
        """What the GLM predicts, and restarts with a weight, (m,)."""
        return (1 - weight) * self.glm + weight * self.agreed


def hold_out(
    runner: Runner,
    explored: Exploration,
    folds: list[Fold],
    agreed: list[Start],
    loose: list[Start],
    of_path: bool = True,
) -> HeldOut | None:
    """Fit restarts and the chosen GLM on every fold; None without time.

    `of_path` says that folds that are as many as those of the path are the same.
    """
    view, found, path = explored.view, explored.selection, explored.path
    settings = runner.settings
    n_steps = min(settings.verdict_steps, runner.options.max_iter)
    options = replace(runner.options, max_iter=n_steps)
    # Where there is no network, the GLM that is returned is held to account.
    gentle = None
    if path.relaxation > 0 and not (agreed or loose):
        gentle = replace(runner.options, feature_margin=settings.linear_margin)
    # Around another point, and without several folds, it is yet to be fitted.
    same = of_path and len(folds) == len(path.fold_loss) and not view.has_moved
    calls = [
        (view.problem, fold, path, options, gentle, k if same else None)
        for k, fold in enumerate(folds)
    ]
    linear = runner.map(Coefficients, view, "held-out rows", fit_glm_fold, calls)
    known = [each for each in linear if each is not None]
    if len(known) < len(folds):
        return None
    gain = found.best.log_evidence - found.linear.log_evidence
    goal = settings.success_share * gain / float(runner.weight.sum())
    train = torch.as_tensor(np.stack([fold.train for fold in folds]))
    judged = _Folds(runner, view, train.to(view.problem.device), known, options)
    best = judged.first_success(agreed, goal) if agreed else []
    others = [judged.run(start, range(len(folds))) for start in loose]
    if any(len(each) < len(folds) for each in (*others, best if agreed else known)):
        return None
    parts = []
    for k, fold in enumerate(folds):
        outside = np.flatnonzero(fold.held_out)
        rows = view.problem.take(torch.as_tensor(outside, device=view.problem.device))
        at = known[k]
        eta = [rows.offset + at.intercept[0] + rows.terms @ at.coef[0]]
        for states in (best[k : k + 1], [other[k] for other in others]):
            each = [linear_predictor(rows, state, options) for state in states]
            eta.append(torch.stack(each).mean(0) if each else eta[0])
        numbers = [value.cpu().numpy() for value in eta]
        parts.append(
            [outside, np.full_like(outside, k), fold.held_out[outside], *numbers]
        )
    return HeldOut(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class _Folds:
    """Restarts on the training rows of every fold, all folds side by side."""

    runner: Runner
    view: View
    weight: Tensor  # (F, n), of the rows that a fold trains on
    glms: list[Coefficients]
    options: EvidenceOptions

    def run(self, start: Start, which: Sequence[int]) -> list[EvidenceState]:
        """A start on some of the folds; fewer states where time is up."""
        tries = [Try(self.weight[k], start, self.glms[k]) for k in which]
        found = self.runner.crews(self.view, "held-out rows", tries, self.options)
        return [state for state in found if state is not None]

    def first_success(self, starts: list[Start], goal: float) -> list[EvidenceState]:
        """The first that gains `goal` log evidence per row, or the best of all."""
        best: dict[int, EvidenceState] = {}
        left = list(range(len(self.weight)))
        args = (self.view.problem, self.weight, self.glms, self.options)
        how = self.view, "held-out rows", fit_linear_crew, [args]
        (linear,) = self.runner.map(Crewed, *how)
        assert linear is not None  # it has no deadline
        for start in starts:
            found = self.run(start, left)
            if len(found) < len(left):
                return []
            for k, state in zip(left, found, strict=True):
                if k not in best or state.log_evidence > best[k].log_evidence:
                    best[k] = state
            left = [
                k
                for k in left
                if not best[k].log_evidence
                >= linear.states[k].log_evidence + goal * float(self.weight[k].sum())
            ]
            if not left:
                break
        return [best[k] for k in sorted(best)]


def judge(
    problem: Problem,
    held_out: HeldOut,
    eta: np.ndarray,
    most: np.ndarray,
    other: np.ndarray | None = None,
    tiny_gain: float = 0.1,
) -> Verdict:
    """Compare a network that predicts `eta` (m,) with the GLM, or with another.

    A row that several folds hold out counts with its mean gain, and with no more weight
    than it has, `most` (n,).
    """
    rows, weight = held_out.rows, held_out.weight
    rival = held_out.glm if other is None else other
    network, glm = (eta_losses(problem, rows, x) for x in (eta, rival))
    saved = np.bincount(rows, weight * (glm - network), len(most))
    total = np.bincount(rows, weight, len(most))
    seen = total > 0
    gains, counts = saved[seen] / total[seen], np.minimum(total, most)[seen]
    gain = float(np.average(gains, weights=counts))
    spread = float(np.average((gains - gain) ** 2, weights=counts))
    of_fold = [held_out.fold == k for k in np.unique(held_out.fold)]
    network_loss, glm_loss = (
        np.array([np.average(x[own], weights=weight[own]) for own in of_fold])
        for x in (network, glm)
    )
    error = math.sqrt(spread / float(counts.sum()))
    r2, glm_r2 = (explained(problem, held_out, x) for x in (eta, rival))
    return Verdict(network_loss, glm_loss, gain, error, tiny_gain, r2, glm_r2)


def likely_weight(
    weights: np.ndarray, losses: np.ndarray, n_rows: float, family: Family
) -> float:
    """Mean of some weights (w,) of a mixture, by the likelihood of rows held out.

    `losses` (w,) are mean half deviances over `n_rows`. The best of the weights jumps
    where losses hardly differ, and with it all coefficients; their mean does not.
    """
    best = losses.min()
    unit = max(2 * best, 1e-300) if family.estimates_dispersion else 1.0
    odds = np.exp(-n_rows * (losses - best) / unit)
    return float(weights @ odds / odds.sum())


def damp_weight(weight: float, gain: float, least: float, settings: Settings) -> float:
    """A weight that gains less than the least counts in part, hardly any not at all."""
    damped = weight * min(max(gain / max(least, 1e-300), 0.0), 1.0)
    return damped if damped >= settings.least_weight else 0.0


def mean_by_row(rows: np.ndarray, eta: np.ndarray, n_rows: int) -> np.ndarray:
    """Mean over the folds that hold a row out, (n,) or (n, C), NaN where none does."""
    total = np.zeros((n_rows, *eta.shape[1:]))
    np.add.at(total, rows, eta)
    count = np.bincount(rows, minlength=n_rows).reshape(-1, *[1] * (eta.ndim - 1))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def explained(problem: Problem, held_out: HeldOut, eta: np.ndarray) -> float:
    """Share of what held-out targets vary, NaN where they do not."""
    y, offset = (x.cpu().double()[held_out.rows] for x in (problem.y, problem.offset))
    at, weight = (torch.as_tensor(x).double() for x in (eta, held_out.weight))
    return problem.family.explained(y, at, weight, offset)


def merge_folds(folds: list[Fold], n_folds: int) -> list[Fold]:
    """At most `n_folds` of them; small ones are held out together."""
    if len(folds) <= n_folds:
        return folds
    n_rows, together = len(folds[0].train), math.ceil(len(folds) / n_folds)
    # As many folds of a size as it takes, which may be a few rows more than a part.
    most = max(math.ceil(n_rows / n_folds), together * math.ceil(n_rows / len(folds)))
    merged = folds[:1]
    for fold in folds[1:]:
        both = merged[-1].merge(fold)
        if both.train.any() and np.count_nonzero(both.held_out) <= most:
            merged[-1] = both
        else:
            merged.append(fold)
    return merged[:: math.ceil(len(merged) / n_folds)]


def fit_glm_fold(
    problem: Problem,
    fold: Fold,
    path: GlmPath,
    options: EvidenceOptions,
    gentle: EvidenceOptions | None,
    number: int | None,
) -> Coefficients | None:
    """The GLM without the rows of a fold; `gentle` asks for the unshrunken one.

    With its `number` the path knows the GLM.
    """
    if options.out_of_time:
        return None
    inside = torch.as_tensor(np.flatnonzero(fold.train), device=problem.device)
    train = torch.as_tensor(fold.train, device=problem.device)[inside]
    trained = problem.take(inside)
    if number is not None:
        glm = path.of_folds.take(slice(number, number + 1))
    else:
        share = (train / train.sum()).unsqueeze(0)
        alpha = path.alphas[path.index : path.index + 1]
        glm = fit_path(trained, share, alpha).blend(path.relaxation)
    if gentle is not None:
        linear = fit_linear_evidence(trained, train, glm, gentle)
        glm = simplify(trained, train, linear, gentle).coefficients
    return glm


def eta_losses(
    problem: Problem, rows: np.ndarray, eta: np.ndarray, *, bounded: bool = True
) -> np.ndarray:
    """What each row that judges a model costs; see `Family.held_out_loss`.

    Or its loss, which of classes is not `bounded`.
    """
    family = problem.family
    y = problem.y.cpu()[torch.as_tensor(rows)]
    predicted = torch.as_tensor(eta)
    judging = (bounded and family.held_out_loss) or family.loss
    loss = judging(y, predicted)
    # An overflow is a large loss, and the mean of losses must be a number.
    return torch.nan_to_num(loss, nan=1e30, posinf=1e30).clamp(max=1e30).numpy()


def spread_of_loss(
    losses: Callable[[Tensor], Tensor], eta: Tensor, seen: Tensor, weight: Tensor
) -> float:
    """Loss of one of many members that their mean does not have.

    `eta` is (K, m), or (K, m, classes), and a row counts for those of the K members
    that have seen it, `seen` (K, m), if there are two: on others they differ more, so
    that this is cautious. Of least squares it is half the variance between members.
    Half the variance times the curvature, which others could do with, knows no bound:
    it was eight times the loss of a table whose classes can be told apart.
    """
    seen = seen.to(eta)
    count, by = seen.sum(0), seen if eta.dim() == 2 else seen.unsqueeze(2)
    mean = (eta * by).sum(0) / by.sum(0).clamp(min=1)
    gap = (losses(eta) * seen).sum(0) - count * losses(mean)
    gap = torch.nan_to_num(gap / (count - 1).clamp(min=1), posinf=0.0, neginf=0.0)
    weight = weight * (count > 1)
    return float((gap * weight).sum() / weight.sum().clamp(min=1e-300))


@dataclass(frozen=True, slots=True)
class Choice:
    """Members that may be returned, and what they predict of rows held out, (m,)."""

    members: Ensemble
    eta: np.ndarray
    parts: tuple[Part, ...]  # count as equals


@dataclass(frozen=True, slots=True)
class Part:
    """Restarts of one view of the table, in one of the pools."""

    explored: Exploration
    pool: str  # "agreed" or "loose"


@dataclass(frozen=True, slots=True)
class Exploration:
    """What the restarts of one view of the table came to."""

    view: View  # around the point that members are fitted around
    path: GlmPath
    selection: Selection
    # Restarts within the selected supports, and within those that each of them found.
    # None where the evidence prefers the GLM.
    agreed: list[EvidenceState]
    loose: list[EvidenceState]
    glm: Coefficients  # returned where there are none
    held_out: HeldOut | None = None  # not yet, or without time

    @property
    def has_network(self) -> bool:
        """Whether there is a member in either pool."""
        return bool(self.agreed or self.loose)

    def choice(self, pool: str) -> Choice:
        """Members of a pool, or the GLM where there are none."""
        states: list[EvidenceState] = getattr(self, pool)
        eta = np.empty(0)
        if self.held_out is not None:
            eta = getattr(self.held_out, pool if states else "glm")
        parts = (Part(self, pool),)
        if not states:
            return Choice(glm_member(self.view.problem, self.glm), eta, parts)
        bent = ~self.view.problem.unbent
        modulated = [s.support & bent & s.input_support.any() for s in states]
        members = Ensemble(
            torch.stack([s.coef for s in states]),
            torch.stack([s.intercept for s in states]),
            torch.stack([s.params for s in states]),
            torch.stack(modulated),
        )
        return Choice(members, eta, parts)


def glm_member(problem: Problem, glm: Coefficients) -> Ensemble:
    """A GLM as the only member, its network silent."""
    spec, coef = problem.spec, glm.coef[:1]
    nothing = torch.zeros(1, spec.n_features, dtype=torch.bool, device=coef.device)
    silent = coef.new_zeros(1, spec.n_params)
    return Ensemble(coef, glm.intercept[:1], silent, nothing)


@dataclass(frozen=True, slots=True)
class Decision:
    """What is returned, and what rows held out say of it."""

    choice: Choice | None  # None for the GLM
    verdict: Verdict | None  # None without a network, or without time
    eta: np.ndarray | None  # predicted of the rows held out, (m,)


def decide(
    curved: Exploration,
    straight: Exploration | None,
    settings: Settings,
    most: np.ndarray,
) -> Decision:
    """What to return, as the rows held out have it.

    `most` is the weight of every row. Without time the evidence has the last word.
    """
    if curved.held_out is None:
        return Decision(curved.choice("agreed") if curved.agreed else None, None, None)
    pools = [
        choices
        for pool in ("agreed", "loose")
        if (choices := make_choices(curved, straight, pool, settings.n_members))
    ]
    problem, where = curved.view.problem, curved.held_out
    if not pools:
        return Decision(None, None, where.glm)

    def loss(choice: Choice) -> float:
        losses = eta_losses(problem, where.rows, choice.eta)
        return float(np.average(losses, weights=where.weight))

    choices = min(pools, key=lambda choices: loss(choices[0]))
    best = choices[0]
    for other in choices[1:]:
        against = judge(problem, where, other.eta, most, best.eta)
        if against.gain > against.error:
            best = other
    verdict = judge(problem, where, best.eta, most, tiny_gain=settings.tiny_gain)
    if verdict.keeps_network:
        return Decision(best, verdict, best.eta)
    return Decision(None, verdict, where.glm)


def make_choices(
    curved: Exploration, straight: Exploration | None, pool: str, n_members: int
) -> list[Choice]:
    """What has a network, the average of both kinds first.

    It depends less on chance than one kind alone, which must be clearly better.
    """
    curves, alone = curved.choice(pool), []
    if curved.has_network:
        if not getattr(curved, pool):
            return []
        alone = [curves]
    if straight is None or straight.held_out is None or not getattr(straight, pool):
        return alone
    lines = straight.choice(pool)
    kept = straight_columns(curved.view.problem)
    lines = replace(lines, members=_with_curves(lines.members, kept))
    both = [average(curves, lines, n_members)] if n_members > 1 else []
    return [*both, *alone, lines]


def average(first: Choice, second: Choice, n_members: int) -> Choice:
    """Both, with the same weight whatever their numbers of members."""
    both = first.members, second.members
    count = torch.arange(min(n_members // 2, max(len(each.coef) for each in both)))
    members = Ensemble.join([each.take(count % len(each.coef)) for each in both])
    eta = (first.eta + second.eta) / 2
    return Choice(members, eta, first.parts + second.parts)


def _with_curves(members: Ensemble, kept: Tensor) -> Ensemble:
    """Straight members among the terms of the curved model."""
    coef = members.coef.new_zeros(len(members.coef), len(kept))
    coef[:, kept] = members.coef
    return replace(members, coef=coef)


def join_tables(curved: Exploration, straight: Exploration | None) -> dict[str, Any]:
    """Restarts of both searches, the straight ones named so."""
    table = curved.selection.table()
    if straight is not None:
        more = straight.selection.table()
        more["stage"] = [f"straight {stage}" for stage in more["stage"]]
        table = {name: column + more[name] for name, column in table.items()}
    return table
