"""Held-out rows have the last word on whether the network is worth having.

Evidence trusts the family: outliers or counts that vary more than they should can look
like structure to it. Before a network is returned, its best member is therefore fitted
once more on the training rows of every fold, with the supports frozen, and compared
with the nested GLM on the rows held out. When these cannot tell them apart, the simpler
model wins.

The member starts from fresh random weights. Parameters found on all rows have seen the
held-out ones, and a few steps would not make them forget. A start can fail on one fold
that succeeded on all rows, which the evidence on the fold's training rows tells; the
next best restart is tried then.

Shapes: n rows, F folds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._folds import Fold
from sknimo.estimators._path import GlmPath, fit_path
from sknimo.estimators._restarts import (
    SearchResult,
    fit_linear_evidence,
)
from sknimo.estimators._runner import Runner, Task, run_task
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    linear_predictor,
)

# More folds than this are held out together, up to one part in as many of the rows.
MAX_FOLDS = 5
# Restarts to try on a fold, and Gauss-Newton steps of each. A restart has succeeded
# with this share of the evidence that as many of all rows would bring.
MAX_TRIES = 3
MAX_STEPS = 40
SUCCESS_SHARE = 0.5
# Within one standard error the network must save this share of the GLM's loss.
TINY_GAIN = 0.1


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
    """

    network_loss: np.ndarray
    glm_loss: np.ndarray
    gain: float
    error: float

    @property
    def keeps_network(self) -> bool:
        """Whether the network saves more than chance would."""
        tiny = TINY_GAIN * float(np.mean(self.glm_loss))
        return self.gain > min(self.error, tiny) and self.gain > 0


@dataclass(frozen=True, slots=True)
class _RowLosses:
    """Losses on the rows that a fold holds out."""

    rows: np.ndarray
    weight: np.ndarray
    network: np.ndarray
    glm: np.ndarray


def judge(
    runner: Runner, search: SearchResult, path: GlmPath, folds: list[Fold]
) -> Verdict | None:
    """Fit the best restart and the chosen GLM on every fold; None without time."""
    options = replace(runner.options, max_iter=min(MAX_STEPS, runner.options.max_iter))
    tasks = search.best_tasks(MAX_TRIES)
    gain = search.best.log_evidence - search.linear.log_evidence
    goal = SUCCESS_SHARE * gain / float(runner.weight.sum())
    parts = runner.map(
        _RowLosses,
        "held-out rows",
        _judge_fold,
        [
            (runner.problem, fold, tasks, goal, path, options)
            for fold in merge_folds(folds)
        ],
    )
    judged = [part for part in parts if part is not None]
    if len(judged) < len(parts):
        return None
    most = np.max([fold.train + fold.held_out for fold in folds], axis=0)
    return _sum_up(judged, most)


def merge_folds(folds: list[Fold]) -> list[Fold]:
    """At most `MAX_FOLDS` folds; small ones are held out together."""
    if len(folds) <= MAX_FOLDS:
        return folds
    most = math.ceil(len(folds[0].train) / MAX_FOLDS)
    merged = folds[:1]
    for fold in folds[1:]:
        both = merged[-1].merge(fold)
        if both.train.any() and np.count_nonzero(both.held_out) <= most:
            merged[-1] = both
        else:
            merged.append(fold)
    return merged[:: math.ceil(len(merged) / MAX_FOLDS)]


def _judge_fold(
    problem: Problem,
    fold: Fold,
    tasks: list[Task],
    goal: float,
    path: GlmPath,
    options: EvidenceOptions,
) -> _RowLosses | None:
    device = problem.device
    inside, outside = (
        torch.as_tensor(np.flatnonzero(part), device=device)
        for part in (fold.train, fold.held_out)
    )
    train = torch.as_tensor(fold.train, device=device)[inside]
    alpha = path.alphas[path.index : path.index + 1]
    trained = take_rows(problem, inside)
    share = (train / train.sum()).unsqueeze(0)
    glm = fit_path(trained, share, alpha).blend(path.relaxation)
    state = _first_success(trained, train, tasks, goal, glm, options)
    if state is None:
        return None
    held_out = take_rows(problem, outside)
    return _RowLosses(
        rows=outside.cpu().numpy(),
        weight=fold.held_out[fold.held_out > 0],
        network=held_out_losses(held_out, linear_predictor(held_out, state, options)),
        glm=held_out_losses(held_out, _glm_eta(held_out, glm)),
    )


def _first_success(
    problem: Problem,
    weight: Tensor,
    tasks: list[Task],
    goal: float,
    start: Coefficients,
    options: EvidenceOptions,
) -> EvidenceState | None:
    """The first restart that gains `goal` log evidence per row, or the best of all."""
    linear = fit_linear_evidence(problem, weight, start, options)
    enough = linear.log_evidence + goal * float(weight.sum())
    best: EvidenceState | None = None
    for task in tasks:
        state = run_task(problem, weight, task, start, options)
        if state is None:
            break
        if best is None or state.log_evidence > best.log_evidence:
            best = state
        if best.log_evidence >= enough:
            break
    return best


def take_rows(problem: Problem, rows: Tensor) -> Problem:
    """The same problem on some of its rows."""
    return problem.take(rows)


def _glm_eta(problem: Problem, at: Coefficients) -> Tensor:
    return problem.offset + at.intercept[0] + problem.terms @ at.coef[0]


def held_out_losses(problem: Problem, eta: Tensor) -> np.ndarray:
    """Half unit deviance of each row; squared error of the probability for classes.

    The deviance of a class has no bound: a few rows predicted with too much certainty
    would outweigh a hundred that only the network gets right.
    """
    family = problem.family
    if family.name == "binomial":
        loss = (problem.y - family.mean(eta)).square()
    else:
        loss = family.loss(problem.y, eta)
    # An overflow is a large loss, and the mean of losses must be a number.
    return torch.nan_to_num(loss, nan=1e30, posinf=1e30).clamp(max=1e30).cpu().numpy()


def _sum_up(parts: list[_RowLosses], most: np.ndarray) -> Verdict:
    saved, total = np.zeros(len(most)), np.zeros(len(most))
    for part in parts:
        saved[part.rows] += part.weight * (part.glm - part.network)
        total[part.rows] += part.weight
    seen = total > 0
    # A row that several folds hold out whole counts once still.
    gains, weight = saved[seen] / total[seen], np.minimum(total, most)[seen]
    gain = float(np.average(gains, weights=weight))
    spread = float(np.average((gains - gain) ** 2, weights=weight))
    return Verdict(
        network_loss=np.array([np.average(p.network, weights=p.weight) for p in parts]),
        glm_loss=np.array([np.average(p.glm, weights=p.weight) for p in parts]),
        gain=gain,
        error=math.sqrt(spread / float(weight.sum())),
    )
