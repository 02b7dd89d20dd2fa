"""Penalties on the coefficients and on the network's first layer.

Every coefficient penalty here is one power of the size of a feature's coefficients,

    value = strength * sum_j weight_j * |beta_j| ** power,

where `|beta_j|` is the Euclidean norm over the columns that feature j owns. Power 2 is
ridge, power 1 the (group) lasso and a power below 1 the sub-l1 penalty of the paper,
`power = 2 delta / (1 + delta)`. All three are served by the same two operations: a
quadratic *majoriser*, which turns one step into a ridge solve (adaptive ridge), and a
*proximal map*, which sets features to exactly zero.

Shapes: K models, p features, q columns; the model axis K always leads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.exceptions import check_option


@dataclass(frozen=True, slots=True)
class Penalty:
    """A penalty on coefficients, before anything is known of strengths and features.

    Attributes
    ----------
    power : float
        Of the size of a feature's coefficients: in (0, 1] or exactly 2.

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.penalties import Penalty
    >>> NIMORegressor(penalty=Penalty(power=0.5))
    NIMORegressor(penalty=Penalty(power=0.5))
    """

    power: float

    def __post_init__(self) -> None:
        if not (0 < self.power <= 1 or self.power == 2):
            raise ValueError(f"power must lie in (0, 1] or be 2, got {self.power!r}.")

    @property
    def name(self) -> str:
        """The name that says the same; sub-l1 penalties differ by `delta`."""
        return {1.0: "lasso", 2.0: "ridge"}.get(self.power, "sub_l1")

    @property
    def is_registered(self) -> bool:
        """Whether the name alone says which penalty this is."""
        return self.name != "sub_l1"


# What the shape of a penalty by name is, given `delta`.
PENALTIES: dict[str, Callable[[float], Penalty]] = {
    "ridge": lambda delta: Penalty(2.0),
    "lasso": lambda delta: Penalty(1.0),
    "sub_l1": lambda delta: Penalty(2 * delta / (1 + delta)),
}


@dataclass(frozen=True, slots=True)
class CoefPenalty:
    """`strength * sum_j weight_j * |beta_j| ** power`, for K models at once."""

    strength: Tensor  # (K,)
    power: float  # in (0, 1] or exactly 2
    weight: Tensor  # (K, p), relative price of each feature
    column_feature: Tensor  # (q,), integer, the feature that owns each column

    def take(self, members: Tensor) -> CoefPenalty:
        """Keep the models with the given indices."""
        return replace(
            self, strength=self.strength[members], weight=self.weight[members]
        )

    def reweighted(self, weight: Tensor) -> CoefPenalty:
        """Return the penalty with another price per feature, (K, p)."""
        return replace(self, weight=weight)

    def spread(self, per_feature: Tensor) -> Tensor:
        """Repeat one value per feature over the feature's columns: (K, p) to (K, q)."""
        return per_feature.index_select(-1, self.column_feature)

    def norm(self, coef: Tensor) -> Tensor:
        """Size of each feature's coefficients, (K, q) to (K, p)."""
        square = torch.zeros_like(self.weight)
        square.index_add_(1, self.column_feature, coef.square())
        return square.sqrt()

    def value(self, coef: Tensor) -> Tensor:
        """Penalty of each model, shape (K,)."""
        return self.strength * (self.weight * self.norm(coef) ** self.power).sum(-1)

    def slope(self, norm: Tensor) -> Tensor:
        """Derivative of the penalty in each feature's norm, (K, p)."""
        price = self.strength.unsqueeze(-1) * self.weight
        if self.power == 1:
            return price
        return price * self.power * norm ** (self.power - 1)

    def ridge(self, coef: Tensor, floor: float) -> Tensor:
        """Quadratic majoriser at `coef`: ridge per column, (K, q).

        `floor` keeps the ridge of a vanishing feature finite, so that a feature can
        return while the network is still learning.
        """
        price = self.strength.unsqueeze(-1) * self.weight * self.power
        smooth = (self.norm(coef).square() + floor**2).sqrt()
        return self.spread(price * smooth ** (self.power - 2))

    def prox(self, coef: Tensor, step: Tensor) -> Tensor:
        """Proximal map with one step size per model, (K, q) to (K, q).

        Minimises `|b - coef|**2 / 2 + step * value(b)` feature by feature. Below
        power 1 the minimum jumps, and this returns the global one.
        """
        norm = self.norm(coef)
        price = step.unsqueeze(-1) * self.strength.unsqueeze(-1) * self.weight
        if self.power == 2:
            size = norm / (1 + 2 * price)
        elif self.power == 1:
            size = (norm - price).clamp(min=0)
        else:
            size = _power_prox(norm, price, self.power)
        tiny = torch.finfo(coef.dtype).tiny
        return coef * self.spread(size / norm.clamp(min=tiny))


def _power_prox(norm: Tensor, price: Tensor, power: float) -> Tensor:
    """Global minimiser over s >= 0 of `(s - norm)**2 / 2 + price * s**power`."""
    knee = (2 * price * (1 - power)) ** (1 / (2 - power))
    threshold = knee * (2 - power) / (2 * (1 - power))
    # Above the threshold the root lies in [knee, norm]; the map is a contraction there.
    size = norm.clamp(min=1e-300)
    for _ in range(60):
        size = torch.maximum(norm - price * power * size ** (power - 1), knee)
        size = size.clamp(min=1e-300)
    return torch.where(norm > threshold, size, torch.zeros_like(norm))


def make_penalty(
    penalty: str | Penalty,
    strength: Tensor,
    column_feature: Tensor,
    n_features: int,
    delta: float = 1.0,
) -> CoefPenalty:
    """Build a penalty from its public name, shaped by `delta`, or from its record.

    A feature with m columns is priced at `sqrt(m)`, as in the group lasso, so that a
    wide feature is not favoured for its width.
    """
    if isinstance(penalty, str):
        check_option("penalty", penalty, PENALTIES)
        if not 0 < delta <= 1:
            raise ValueError(f"delta must lie in (0, 1], got {delta!r}.")
        penalty = PENALTIES[penalty](delta)
    width = torch.bincount(column_feature, minlength=n_features).to(strength)
    weight = width.sqrt().expand(len(strength), -1).contiguous()
    if penalty.power == 2:
        return CoefPenalty(strength / 2, 2.0, torch.ones_like(weight), column_feature)
    return CoefPenalty(strength, penalty.power, weight, column_feature)


def shrink_groups(
    weight: Tensor, column_feature: Tensor, n_features: int, amount: Tensor
) -> Tensor:
    """Proximal step of the group penalty on a first layer, exact zeros included.

    `weight` is (K, h, r), with one column per network input; all columns of a feature
    shrink together, `w_j * max(0, 1 - amount / |w_j|)`, with `amount` of shape (K,).
    """
    square = weight.new_zeros(weight.shape[0], n_features)
    square.index_add_(1, column_feature, weight.square().sum(1))
    norm = square.sqrt().clamp(min=torch.finfo(weight.dtype).tiny)
    factor = (1 - amount.unsqueeze(-1) / norm).clamp(min=0)
    return weight * factor.index_select(1, column_feature).unsqueeze(1)
