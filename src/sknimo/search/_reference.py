"""The reference of a search: the mean, or near it where the data ask for it.

A modulated feature enters as `(x_j - ref_j) (1 + g_j)`: what the model can fit depends
on where the reference is. The mean of the population is known only up to its standard
error. Within a few of these the search looks for the point around which the rows are
explained best; coefficients are the marginal effects there.

A `View` is the problem around one point. Views are never changed: a move makes another
one, and every restart keeps the view that it was fitted in.

Shapes: n rows, p features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap, Linear
from sknimo.machine import to_device
from sknimo.solver import Problem
from sknimo.training import state_columns


@dataclass(frozen=True, slots=True)
class MovableReference:
    """What it takes to look at a table from another point."""

    features: FeatureMap  # around the sample's mean
    table: np.ndarray  # (n, p)
    movable: Tensor  # (p,), bool, features whose reference may move


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
        if self.reference is None or self.distance is None:
            return None
        mean = self.reference.features
        return mean.around(mean.reference + self.distance.numpy() * mean.scale)

    def around(self, distance: Tensor) -> View:
        """The same table from a point so many scales (p,) away from the mean."""
        moved = replace(self, distance=distance)
        features, reference = moved.features, self.reference
        assert features is not None and reference is not None
        columns = state_columns(features, reference.table)
        problem = replace(self.problem, columns=to_device(columns, self.problem.device))
        return replace(moved, problem=problem)


def movable_reference(features: FeatureMap, table: np.ndarray) -> MovableReference:
    """The reference of features that are one line through more than two values.

    Columns of two values have one of them as their reference. Where a float is too
    coarse to hold the mean it cannot hold a point near it either.
    """
    movable = [
        isinstance(basis, Linear)
        and basis.scale > 0
        and basis.residue == 0
        and _has_many_values(table[:, j])
        for j, basis in enumerate(features.bases)
    ]
    return MovableReference(features, table, torch.tensor(movable, dtype=torch.bool))


def _has_many_values(column: np.ndarray) -> bool:
    return bool(((column != column.min()) & (column != column.max())).any())
