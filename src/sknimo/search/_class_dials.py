"""Models of several classes on rows held out: their losses, and the best mix of them.

Shapes: n rows, m rows held out, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from sknimo.search._verdict import Verdict

# Kinds of models, in the order of weights.
CURVES, LINES, BENDS, STRAIGHT = range(4)
STAGES = ("additive", "lines", "bent", "straight")
# Brier's score of shares alone, below which all rows are of one class.
LEAST_SCORE = 1e-12


@dataclass(frozen=True, slots=True)
class ClassHeldOut:
    """Linear predictors of rows that bags hold out, of every kind of model."""

    rows: Tensor  # (m,)
    bag: Tensor  # (m,)
    weight: Tensor  # (m,)
    truth: Tensor  # (m,), numbers of classes
    eta: Tensor  # (4, m, C), zero for kinds that are not there
    kinds: tuple[int, ...]  # that are there

    def mix(self, share: Tensor) -> Tensor:
        """A weighted mean of all kinds, (m, C)."""
        return torch.einsum("k,kmc->mc", share, self.eta)

    def loss(self, share: Tensor) -> float:
        """Mean loss of a mix."""
        each = class_losses(self.truth, self.mix(share))
        return float(self.weight @ each / self.weight.sum())


def class_losses(truth: Tensor, eta: Tensor) -> Tensor:
    """Deviance halves of rows, (..., m), for `eta` of shape (..., m, classes)."""
    own = eta.gather(-1, truth.expand(eta.shape[:-1]).unsqueeze(-1)).squeeze(-1)
    loss = torch.nan_to_num(eta.logsumexp(-1) - own, nan=1e30, posinf=1e30)
    return loss.clamp(max=1e30)


def best_share(
    held_out: ClassHeldOut, kinds: set[int], relief: Tensor, n_steps: int
) -> Tensor:
    """Weights of some kinds, in steps: moved from one to another while losses fall."""
    there = sorted(kinds & {*held_out.kinds})

    def loss(share: Tensor) -> float:
        return held_out.loss(share) - float(share.square() @ relief)

    vertices = torch.eye(len(STAGES), dtype=torch.float64)[there]
    share = min(vertices, key=loss)
    least, size = loss(share), n_steps // 2
    while size:
        moved = False
        for giver, taker in permutations(there, 2):
            trial = share.clone()
            trial[giver] -= size / n_steps
            trial[taker] += size / n_steps
            if float(trial[giver]) < -1e-9:
                continue
            trial[trial.abs() < 1e-9] = 0.0
            found = loss(trial)
            if found < least:
                share, least, moved = trial, found, True
        if not moved:
            size //= 2
    return share


def judge(held_out: ClassHeldOut, share: Tensor, other: Tensor) -> Verdict:
    """Compare what has more bends with what has less, by Brier's score.

    A deviance has no bound: a few rows would outweigh all others.
    """
    truth = torch.nn.functional.one_hot(held_out.truth, held_out.eta.shape[2])
    weight = held_out.weight

    def score(eta: Tensor) -> Tensor:
        return (eta.softmax(1) - truth).square().sum(1)

    bent, plain = score(held_out.mix(share)), score(held_out.mix(other))
    saved = plain - bent
    total = float(weight.sum())
    gain = float(weight @ saved) / total
    spread = float(weight @ (saved - gain).square()) / total
    bent_loss, plain_loss = (
        np.array([mean_of(x, weight, held_out.bag == k) for k in held_out.bag.unique()])
        for x in (bent, plain)
    )
    shares = (weight @ truth.double()) / total
    null = float(weight @ (shares - truth).square().sum(1)) / total
    null = null if null > LEAST_SCORE else math.nan  # rows of one class
    r2, plain_r2 = (1 - float(weight @ x) / total / null for x in (bent, plain))
    n_rows = float(torch.bincount(held_out.rows, weight).clamp(max=1.0).sum())
    error = math.sqrt(spread / max(min(total, n_rows), 1.0))
    return Verdict(bent_loss, plain_loss, gain, error, 0.0, r2, plain_r2)


def mean_of(values: Tensor, weight: Tensor, own: Tensor) -> float:
    return float(weight[own] @ values[own] / weight[own].sum())
