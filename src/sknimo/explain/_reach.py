"""Rows that lie far from all training rows, in a column or in several together.

A value is far when it is both more than three standard deviations beyond the training
range and twice as far from the reference as that end of the range. A row is far
*jointly* when its Mahalanobis distance from the mean of the training rows is more than
twice the largest that any of them has. Both count numeric columns alone that the model
uses and does not clip.

Shapes: n rows, a columns that are judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain._kinds import is_category
from sknimo.explain._local import MAX_ROWS, find_roles, spread_rows
from sknimo.features import Clipped, OrMissing
from sknimo.model import ClassModels, FittedModel
from sknimo.solver import cut_rows

# One deviation beyond the range, or its far end alone, happens to new rows too often.
BEYOND = 3.0
TIMES = 2.0
# Rows of more columns are not judged jointly: their matrix would outgrow the model.
MAX_COLUMNS = 256
# Least variance of a direction, relative to that of the columns: rows differ a little
# even where columns are copies of each other.
LEAST_VARIANCE = 0.01
# Rows of a block, which stays in the cache of a processor.
BLOCK_ROWS = 4096
LIMIT = 1e100  # of standardised values; their squares stay finite


@dataclass(frozen=True, slots=True)
class FarValue:
    """A value of a far row."""

    row: int
    column: int
    is_alone: bool  # or one that is far with others only


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """How far the training rows reach."""

    columns: np.ndarray  # (a,), the columns that are judged
    # (a,), beyond these a value is far by itself.
    low: np.ndarray
    high: np.ndarray
    end: np.ndarray  # (2, a), training range, for messages
    # Each (a,).
    reference: np.ndarray
    scale: np.ndarray
    # (a + 1, a), mean of the standardised training rows, then a matrix that takes the
    # distance from it to a length, at most one in training; None when unknown.
    shape: np.ndarray | None = None

    def times(self, table: np.ndarray) -> np.ndarray:
        """How many times as far as any training row each row lies, jointly, (n,)."""
        if self.shape is None:
            return np.zeros(len(table))
        with np.errstate(over="ignore", invalid="ignore"):
            moved = self._above(table) @ self.shape[1:]
            square = np.einsum("ij,ij->i", moved, moved)
            odd = np.flatnonzero(~np.isfinite(square))
            if len(odd):  # missing values stand at the mean, infinity is far enough
                above = self._above(table[odd])
                above = np.nan_to_num(np.clip(above, -LIMIT, LIMIT), nan=0.0)
                square[odd] = ((above @ self.shape[1:]) ** 2).sum(axis=1)
        return np.sqrt(square)

    def within(self, radius: float) -> Reach:
        """The same where rows that were at `radius` are at one."""
        if self.shape is None or radius == 0:
            return self
        shape = np.vstack([self.shape[:1], self.shape[1:] / radius])
        return replace(self, shape=shape)

    def find_far(self, table: np.ndarray) -> np.ndarray:
        """Rows that are far, (n,) bool."""
        far = np.empty(len(table), dtype=bool)
        for rows in cut_rows(len(table), 1, BLOCK_ROWS):
            block = table[rows]
            own = self.times(block) > TIMES
            beyond = self._beyond(block)
            if beyond.any():  # along rows numpy is slow, and hardly ever is there one
                own |= beyond.any(axis=1)
            far[rows] = own
        return far

    def worst(self, table: np.ndarray) -> FarValue:
        """The furthest of some far rows, and what is far in it."""
        column = self._take(table)
        ends = np.where(column > self.end[1], self.end[1], self.end[0])
        own = np.abs(ends - self.reference) + BEYOND * self.scale
        each = np.where(self._beyond(table), np.abs(column - self.reference) / own, 0.0)
        if each.any():
            row, at = np.unravel_index(each.argmax(), each.shape)
            return FarValue(int(row), int(self.columns[at]), True)
        row = self.times(table).argmax()
        assert self.shape is not None
        above = np.nan_to_num(self._above(table[row : row + 1])[0], nan=0.0)
        share = above * (self.shape[1:] @ (above @ self.shape[1:]))
        return FarValue(int(row), int(self.columns[share.argmax()]), False)

    def _beyond(self, table: np.ndarray) -> np.ndarray:
        """Values that are far by themselves, (n, a) bool; missing ones are not."""
        column = self._take(table)
        return (column < self.low) | (column > self.high)

    def _take(self, table: np.ndarray) -> np.ndarray:
        """The columns that are judged, (n, a)."""
        whole = len(self.columns) == table.shape[1]
        return table if whole else table[:, self.columns]

    def _above(self, table: np.ndarray) -> np.ndarray:
        """Standardised distance from the mean of the training rows, (n, a)."""
        assert self.shape is not None
        above = self._take(table) - (self.reference + self.shape[0] * self.scale)
        above /= self.scale
        return above


def restore_reach(model: FittedModel, shape: np.ndarray | None = None) -> Reach:
    """What the model itself knows, with what was learned of the rows' joint shape."""
    features = model.features
    known = find_roles(model).relevant & ~is_category(features) & (features.scale > 0)
    for j, basis in enumerate(features.bases):
        inner = basis.basis if isinstance(basis, OrMissing) else basis
        known[j] &= not isinstance(inner, Clipped) and bool(features.low)
    columns = np.flatnonzero(known)
    reference, scale = features.reference[columns], features.scale[columns]
    end = np.reshape([*features.low, *features.high], (2, -1))
    end = end[:, columns] if len(columns) else np.empty((2, 0))
    with np.errstate(over="ignore"):
        twice = reference + TIMES * (end - reference)
        low = np.minimum(end[0] - BEYOND * scale, twice[0])
        high = np.maximum(end[1] + BEYOND * scale, twice[1])
    return Reach(columns, low, high, end, reference, scale, shape)


def widest_class(model: ClassModels) -> FittedModel:
    """The class, against the mean of all, that asks rows about most columns."""
    each = [model.contrast(c) for c in range(model.n_classes)]
    return max(each, key=lambda one: len(restore_reach(one).columns))


def measure_reach(model: FittedModel, table: np.ndarray, weight: np.ndarray) -> Reach:
    """How far weighted training rows reach; at most a thousand tell their shape."""
    some = spread_rows(len(table), MAX_ROWS)
    reach = restore_reach(model, measure_shape(model, table[some], weight[some]))
    return reach.within(float(reach.times(table).max()))


def measure_shape(
    model: FittedModel, table: np.ndarray, weight: np.ndarray
) -> np.ndarray | None:
    """Mean and whitening of some weighted training rows.

    The covariance is shrunk towards the identity, the more the fewer the rows: new rows
    also vary where few training rows happen not to.
    """
    reach = restore_reach(model)
    n_columns = len(reach.columns)
    if not 0 < n_columns <= MAX_COLUMNS:
        return None
    start = replace(reach, shape=np.zeros((n_columns + 1, n_columns)))
    weight = weight / weight.sum()
    z = np.nan_to_num(start._above(table), nan=0.0)
    mean = weight @ z
    centred = z - mean
    size = 1 / float((weight**2).sum())
    shrink = max(LEAST_VARIANCE, n_columns / (n_columns + size))
    found = (centred * weight[:, None]).T @ centred
    variance, turn = np.linalg.eigh(found)
    variance = (1 - shrink) * np.maximum(variance, 0.0) + shrink
    return np.vstack([mean, turn / np.sqrt(variance)])
