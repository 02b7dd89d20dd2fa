"""The reference of a search: the mean, or near it where the data ask for it.

A modulated feature enters as `(x_j - ref_j) (1 + g_j)`: what the model can fit depends
on where the reference is. The mean of the population is known only up to its standard
error. Within a few of these the search looks for the point around which the rows are
explained best; coefficients are the marginal effects there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap, Linear
from sknimo.solver import Problem

# The reference stays within so many standard errors of the sample's mean.
MAX_SHIFT = 3.0
# Smaller steps, in standard errors, are not worth a refit.
MIN_STEP = 0.02
MAX_STEPS = 4
# Log evidence that a move must bring.
MOVE_MARGIN = 10.0


@dataclass(frozen=True, slots=True)
class Reference:
    """Where the reference is, and what the problem looks like from there.

    Attributes
    ----------
    features : FeatureMap
        Around the sample's mean.
    movable : Tensor of shape (p,), bool
        Features whose reference may move.
    restate : callable
        The problem in terms of a feature map.
    """

    features: FeatureMap
    movable: Tensor
    restate: Callable[[FeatureMap], Problem]

    @property
    def origin(self) -> Tensor:
        """The shift of the sample's mean, (p,)."""
        return torch.zeros(self.features.n_features, dtype=torch.float64)

    def features_at(self, shift: Tensor) -> FeatureMap:
        """Feature map around a point that lies `shift` (p,) scales from the mean."""
        features = self.features
        return features.around(features.reference + shift.numpy() * features.scale)


def movable_features(features: FeatureMap, table: np.ndarray) -> np.ndarray:
    """Features that are one line through more than two values, (p,).

    Columns of two values have one of them as their reference. Where a float is too
    coarse to hold the mean it cannot hold a point near it either.
    """
    return np.array(
        [
            isinstance(basis, Linear)
            and basis.scale > 0
            and basis.residue == 0
            and _has_many_values(table[:, j])
            for j, basis in enumerate(features.bases)
        ],
        dtype=bool,
    )


def _has_many_values(column: np.ndarray) -> bool:
    return bool(((column != column.min()) & (column != column.max())).any())
