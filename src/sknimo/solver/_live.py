"""Members in training: where they are, how they move, what is kept of them.

A move is Adam, decoupled decay, then the proximal step of the first layer. A member
whose objective is no number goes back to its last finite state at half the rate.

Shapes: K members, q term columns, p features, a active, P weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sknimo.network import unpack
from sknimo.penalties import CoefPenalty, shrink_groups
from sknimo.solver._forward import Bent, Forward, pad_active
from sknimo.solver._problem import Options
from sknimo.solver._profile import Coefficients

ADAM_BETAS = (0.9, 0.99)
# Large for Adam: gradients of a unit-variance objective far below it are rounding
# noise, and normalising noise would let the order of summation decide the result.
ADAM_EPS = 1e-4
MAX_ROLLBACKS = 3


@dataclass
class KeptMembers:
    """What a member returns, K leading."""

    params: Tensor  # (K, P)
    active: Tensor  # (K, p), bool
    coefficients: Coefficients


@dataclass
class LiveMembers:
    """The moving part of the members, K leading."""

    params: Tensor  # (K, P)
    first_moment: Tensor  # (K, P)
    second_moment: Tensor  # (K, P)
    coefficients: Coefficients
    active: Tensor  # (K, a)
    active_mask: Tensor  # (K, p), bool
    prices: Tensor  # (K, p), of the penalty at the last check
    rate: Tensor  # (K,), learning rate factor, halved after a divergence
    rollbacks: Tensor  # (K,)
    best_score: Tensor  # (K,)
    stalled: Tensor  # (K,), checks since the score last fell
    safe: Tensor  # (K, P), params at the last finite check
    kept: KeptMembers  # to return

    @classmethod
    def begin(cls, kept: KeptMembers, penalty: CoefPenalty) -> LiveMembers:
        """All members at rest."""
        params, at = kept.params, kept.coefficients
        zeros = torch.zeros_like(at.intercept, dtype=torch.long)
        return cls(
            params=params,
            first_moment=torch.zeros_like(params),
            second_moment=torch.zeros_like(params),
            coefficients=at,
            active=pad_active(kept.active),
            active_mask=kept.active,
            prices=penalty.weight,
            rate=torch.ones_like(at.intercept, dtype=params.dtype),
            rollbacks=zeros,
            best_score=torch.full_like(at.intercept, torch.inf),
            stalled=zeros.clone(),
            safe=params.clone(),
            kept=kept,
        )

    @property
    def bent(self) -> Bent:
        """The networks and the features that they bend."""
        return Bent(self.params, self.active, self.active_mask)

    @property
    def lost(self) -> Tensor:
        """Members that have diverged too often, (K,), bool."""
        return self.rollbacks >= MAX_ROLLBACKS

    def move(self, step: int, gradient: Tensor, forward: Forward) -> None:
        """Adam, decoupled decay, then the proximal step of the first layer."""
        spec, options = forward.problem.spec, forward.options
        beta1, beta2 = ADAM_BETAS
        self.first_moment.lerp_(gradient, 1 - beta1)
        self.second_moment.lerp_(gradient.square(), 1 - beta2)
        mean = self.first_moment / (1 - beta1 ** (step + 1))
        spread = (self.second_moment / (1 - beta2 ** (step + 1))).sqrt()
        rate = learning_rate(step, options) * self.rate
        params = self.params - rate.unsqueeze(-1) * mean / (spread + ADAM_EPS)
        weights = unpack(spec, params)
        if options.weight_decay:
            keep = (1 - rate * options.weight_decay).view(-1, 1, 1)
            weights.second.mul_(keep)
            weights.out.mul_(keep.squeeze(-1))
        amount = rate * forward.members.network_alpha.to(rate)
        owner = forward.modulator.input_feature
        first = shrink_groups(weights.first, owner, spec.n_features, amount)
        weights.first.copy_(first)
        self.params = params

    def roll_back(self, diverged: Tensor, nested: Coefficients) -> None:
        """Return diverged members to their last finite state at half the rate."""
        if not bool(diverged.any()):
            return
        wide = diverged.unsqueeze(-1)
        self.params = torch.where(wide, self.safe, self.params)
        self.first_moment = self.first_moment.masked_fill(wide, 0.0)
        self.second_moment = self.second_moment.masked_fill(wide, 0.0)
        self.coefficients = self.coefficients.replaced(diverged, nested)
        self.rate = torch.where(diverged, self.rate / 2, self.rate)
        self.rollbacks = self.rollbacks + diverged

    def remember(self, score: Tensor, diverged: Tensor, forward: Forward) -> None:
        """Compare scores (K,) with the best so far, and keep what deserves it."""
        slack = forward.options.tol * self.best_score.abs().clamp(max=1e300)
        better = score < self.best_score - slack
        better |= torch.isinf(self.best_score) & ~diverged
        self.stalled = torch.where(better, 0, self.stalled + 1)
        self.best_score = torch.where(better, score, self.best_score)
        self.safe = torch.where(diverged.unsqueeze(-1), self.safe, self.params)
        # With validation rows the best state is kept, otherwise the latest finite one:
        # shrinkage may raise the loss while it clears the first layer.
        keep = ~diverged if forward.members.validation is None else better
        wide, kept = keep.unsqueeze(-1), self.kept
        self.kept = KeptMembers(
            torch.where(wide, self.params, kept.params),
            torch.where(wide, self.active_mask, kept.active),
            kept.coefficients.replaced(keep, self.coefficients),
        )


def learning_rate(step: int, options: Options) -> float:
    """One-cycle schedule: a tenth of the steps up, a cosine down to one percent."""
    rise = max(1, options.max_iter // 10)
    if step < rise:
        factor = 0.1 + 0.9 * step / rise
    else:
        position = (step - rise) / max(1, options.max_iter - rise)
        factor = 0.01 + 0.99 * (1 + math.cos(math.pi * min(position, 1.0))) / 2
    return options.learning_rate * factor
