"""Steps down the gradient of a batch: Muon for the matrices of a network, else Adam.

A step of Adam has the sign of the gradient, number by number. The matrices between
layers move by their momentum with all its singular values made about equal instead
(Muon): directions that few rows speak of are learned as fast as those of many. Loss on
new rows relative to Adam alone, ten tables of 4,600 rows and more, splits 100 and 101:
0.98 in 0.7 of the passes, with a decay of 0.3 (split 100) 0.96. Of the second layer
alone: 0.98 and 0.97 in as many passes.

Shapes: K members, N parameters of which P are weights of the network, matrices (h, r).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sknimo.network import NetworkSpec, unpack

# Decay of the mean and of the square of gradients, and what keeps Adam finite. Matrices
# with a decay of 0.95 and 0.98: 0.97 and 1.01 of Adam's loss (seven and six tables,
# splits 102 and 103), where 0.9 was not run.
MOMENTUM, SQUARES, TINY = 0.9, 0.999, 1e-8
# Size of an entry of a matrix's step, which is about one in Adam's. A third: 1.03; a
# tenth: 1.09; for the first layer alone three times as much: 1.02.
ENTRY = 0.6
# A singular value s of at most one becomes a s + b s^3 + c s^5, five times: then those
# above 1/500 are between 0.7 and 1.2 (Jordan et al., 2024). Four and three, from a
# closer bound, would save 2 and 5 % of a step.
ROUNDS = 5
POLYNOMIAL = 3.4445, -4.7750, 2.0315


@dataclass(frozen=True, slots=True)
class JointOptions:
    """How members are trained; what ratios are of is said in `search/_settings.py`."""

    # Relative to 256 (ten fits of eight tables, splits 100 and 101): 0.98; 64: 0.97, in
    # more seconds; 32: 0.98 to 1.4. On superconduct 1.03 (two members), 64: 1.06.
    batch_size: int = 128
    max_passes: int = 40  # over the rows; the learning rate falls to zero over them
    # Cycles that follow, each twice as long as the one before, for members whose best
    # state came after this share of the passes and leaves less than this share of the
    # loss. On a table almost free of noise (soil, split 100): 0.89 of the loss without
    # them; 200 passes by Adam: 0.70, in twice the seconds.
    more_cycles: int = 2
    late_share: float = 0.6
    quiet_share: float = 0.01
    # Members stop after this share of the passes that brought them to their best state,
    # but not before `least_patience` nor after `patience` passes without progress:
    # those that gain for long pause for long. Held-out loss and passes of three members
    # (12 tables, splits 100 and 101) relative to 15 passes for all: 1.000 in 0.75; at
    # 0.5: 1.005 in 0.70; 8 passes for all: 1.01 in 0.70; 5: 1.07 in 0.53.
    patience_share: float = 0.6
    least_patience: int = 5
    patience: int = 15
    # 7.5e-3: 1.05 (held-out loss of three members, 11 tables, splits 100 and 101);
    # 2e-3: 1.04.
    learning_rate: float = 5e-3
    # Whether matrices move as matrices, not number by number.
    by_matrix: bool = True
    # Of the network, relative to the learning rate, where nothing is explained yet;
    # times a power of the share of the loss that is left: a prior counts for the more,
    # the more noise there is.
    # Constant decay of 1, 2 and 4, relative to Adam: 0.96, 1.02 and 1.18 in the mean of
    # nine tables, but each is best on some, little decay where there is little noise.
    # 1.5 with a power of 0.25: 1.01 (24 fits of twelve tables); 3 with 0.75: 1.00.
    weight_decay: float = 2.0
    decay_power: float = 0.5
    # Share of the steps over which the rate rises. 0.01, 0.02, 0.05: 1.00 (18 fits of
    # eight tables, splits 100 to 103).
    warm_up: float = 0.03
    # How firmly bends at the reference are tied to those of the rows. Coefficients of
    # 8,000 simulated rows of eight features, of which six act, are up to 34 % too small
    # without it, up to 11 % with 0.1 and with 1, at the same loss. Members of
    # more than two classes have none. It follows the share of the loss that is left, as
    # the decay does: as firm without noise, 1.5 of the loss (soil, split 100).
    tie: float = 0.3
    # Length of the running mean of the parameters. None: 1.00; 3: 1.00.
    average_passes: float = 1.0
    # Whether members stop together, where all held-out rows are predicted best: few
    # rows of its own flatter a member that they stop.
    common_stop: bool = False
    deadline: float = math.inf  # on the monotonic clock

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline


class Muon:
    """Steps with decoupled decay of the network, a warm-up and a cosine schedule."""

    def __init__(
        self,
        flat: Tensor,
        spec: NetworkSpec,
        n_params: int,
        options: JointOptions,
        n_steps: int,
    ) -> None:
        self.flat = flat
        self._spec, self._n_params = spec, n_params
        self.options = options
        self._mean = torch.zeros_like(flat)
        single = torch.ones_like(flat[:1]).bool()
        for matrix in self._matrices(single):
            matrix[:] = False
        self._single = single[0].nonzero().squeeze(1)  # what is in no matrix
        self._square = torch.zeros_like(flat[:, self._single])
        # How much of the decay is left, which the caller keeps up to date.
        self.noise = torch.ones_like(flat[:, :1])
        self._per_pass = n_steps
        self.count = 0  # steps so far

    def _matrices(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Views of both layers of every member, (K, h, r) each."""
        if not self.options.by_matrix:
            return ()
        weights = unpack(self._spec, flat[:, : self._spec.n_params])
        return weights.first, weights.second

    def take(self, members: Tensor) -> Muon:
        """Go on with some of the members."""
        some = copy(self)
        for name in ("flat", "_mean", "_square", "noise"):
            setattr(some, name, getattr(self, name)[members])
        return some

    def again(self, flat: Tensor) -> Muon:
        """Another cycle from these parameters, twice as long."""
        options = replace(self.options, max_passes=2 * self.options.max_passes)
        return Muon(flat, self._spec, self._n_params, options, self._per_pass)

    def pace(self, count: int) -> tuple[float, ...]:
        """What the schedule says of a step; the first is number one.

        The rate, the bias of means and of squares, and how far a running mean of the
        parameters moves.
        """
        options = self.options
        done = count / (self._per_pass * options.max_passes)
        rate = options.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
        rate *= min(1.0, done / options.warm_up)
        length = options.average_passes * self._per_pass
        return (
            rate,
            1 - MOMENTUM**count,
            1 - SQUARES**count,
            max(1 / max(length, 1.0), 1 / count),
        )

    def step(self, slope: Tensor, mean: Tensor, pace: Sequence[Any]) -> None:
        """Move by a gradient, and a running mean of the parameters with it.

        The pace is in numbers, or in tensors that stay where they are.
        """
        rate, mean_bias, square_bias, share = pace
        self._mean.lerp_(slope, 1 - MOMENTUM)
        decay = self.noise * (rate * self.options.weight_decay)
        self.flat[:, : self._n_params].mul_(1 - decay)
        single = slope[:, self._single]
        self._square.lerp_(single.square_(), 1 - SQUARES)
        size = (self._square / square_bias).sqrt_().add_(TINY)
        move = (self._mean[:, self._single] * (rate / -mean_bias)).div_(size)
        self.flat.index_add_(1, self._single, move)
        layers = map(self._matrices, (self.flat, self._mean, slope))
        for matrix, kept, now in zip(*layers, strict=True):
            ahead = even_out(kept.lerp(now, 1 - MOMENTUM))
            matrix.sub_(ahead.mul_(rate * (ENTRY * math.sqrt(max(ahead.shape[1:])))))
        mean.lerp_(self.flat, share)


def even_out(matrix: Tensor) -> Tensor:
    """Matrices (K, h, r) with all but the least singular values about one.

    The polynomial is of their products with themselves, so that the longer side counts
    in two products only.
    """
    if matrix.shape[1] > matrix.shape[2]:
        return even_out(matrix.mT).mT
    size = matrix.flatten(1).norm(dim=1).clamp(min=torch.finfo(matrix.dtype).tiny)
    matrix = matrix / size[:, None, None]
    gram = matrix @ matrix.mT
    factor = part = _round(gram)
    for _ in range(ROUNDS - 1):
        gram = part @ gram @ part
        part = _round(gram)
        factor = part @ factor
    return factor @ matrix


def _round(gram: Tensor) -> Tensor:
    """What a round multiplies matrices with, given their products with themselves."""
    line, cube, fifth = POLYNOMIAL
    part = torch.baddbmm(gram, gram, gram, beta=cube, alpha=fifth)
    part.diagonal(dim1=1, dim2=2).add_(line)
    return part
