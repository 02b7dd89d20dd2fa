"""A point that is typical of the rows, where their mean is not.

The mean of a column can be a place where nobody is: in a gap between two clusters, or
between the codes of a column with few values. Two columns can each have many rows at
their mean and hardly any at both. In `typical_reference` such columns alone leave the
mean, together with those that would be impossible beside them, for the place where rows
lie closest together.

Shapes: n rows, p features.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from sknimo.features._shapes import weigh_values

# Rows within this many standard deviations of a point are near it.
NEAR = 0.5
# They are near in one column and in each of several. A gap in a column that is measured
# can be narrow.
NARROW = 0.25
FEW_VALUES = 20
# Fewer near the mean than this share of what rows in the middle have near themselves,
# or what either side of a gap has, and nobody is there.
SPARSE = 0.15
# Rows that this must be counted on; with fewer, none near the mean is chance.
MIN_COUNT = 20
# A column with so many rows at one value has that and others, but no middle.
SPIKE = 0.1
# Rows that are counted, rows around which they are counted, columns that are paired.
MAX_ROWS = 1000
MAX_CENTRES = 100
MAX_PAIRED = 24
# Fewer rows than that cannot be near everything.
MIN_ROWS = 30


def typical_reference(
    reference: Any, table: np.ndarray, weight: np.ndarray, levels: Sequence[Any]
) -> Any:
    """What "auto" stands for: "auto" itself, or columns by position with their values.

    Columns that are not named stand at their mean.
    """
    if not isinstance(reference, str) or reference != "auto" or len(table) < MIN_ROWS:
        return reference
    rows = np.linspace(0, len(table) - 1, min(len(table), MAX_ROWS)).round().astype(int)
    table, weight = table[rows], weight[rows] / weight[rows].sum()
    columns = [
        j
        for j, own in enumerate(levels)
        if own is None and len(np.unique(table[~np.isnan(table[:, j]), j])) > 2
    ]
    z = _standardise(table[:, columns], weight)
    place, moved = np.zeros(len(columns)), _gaps(z, weight)
    paired = _smooth(z, weight)
    whole = [j for j in paired if j not in moved]
    moved += [j for pair in _hollows(z, weight, whole, place) for j in pair]
    if not moved:
        return reference
    for _ in columns:  # what moves may leave others where nobody is
        moved = sorted(set(moved))
        place = _densest(z, weight, moved)
        more = _hollows(z, weight, sorted({*paired, *moved}), place)
        others = {j for pair in more for j in pair} - set(moved)
        if not others:
            break
        moved += others
    found = {}
    for at in moved:
        near = np.abs(z[:, at] - place[at]).argmin()
        found[columns[at]] = float(table[near, columns[at]])
    return found


def _standardise(table: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Distance from the mean in standard deviations; missing values stand there."""
    known = ~np.isnan(table)
    share = weight[:, None] * known
    share = share / np.maximum(share.sum(axis=0), 1e-300)
    size = np.nanmax(np.abs(table), axis=0)
    unit = np.where(known, table, 0.0) / np.where(size > 0, size, 1.0)  # no overflow
    mean = (share * unit).sum(axis=0)
    above = np.where(known, unit - mean, 0.0)
    scale = np.sqrt((share * above**2).sum(axis=0))
    return np.asarray(above / np.where(scale > 0, scale, 1.0))


def _near(z: np.ndarray, centres: np.ndarray, reach: float) -> np.ndarray:
    """Which rows (n, s) are near each of some points (m, s), (m, n)."""
    square = ((centres[:, None] - z[None]) ** 2).sum(axis=2)
    return np.asarray(square <= reach**2)


def _gaps(z: np.ndarray, weight: np.ndarray) -> list[int]:
    """Columns whose mean lies in a gap, with many rows on either side of it."""
    found = []
    for j in range(z.shape[1]):
        column = z[:, j]
        values = np.unique(column)
        reach = NEAR if len(values) <= FEW_VALUES else NARROW
        here = float(weight[np.abs(column) <= reach].sum())
        if here > SPARSE:  # a side has no more than all rows
            continue
        around = (np.abs(column[:, None] - column) <= reach) @ weight
        sides = (around[side].max(initial=0.0) for side in (column < 0, column > 0))
        least = float(min(sides))
        if least * len(z) >= MIN_COUNT and here < SPARSE * least:
            found.append(j)
    return found


def _smooth(z: np.ndarray, weight: np.ndarray) -> list[int]:
    """Columns that are measured: many values, none of them frequent."""
    found = []
    for j in range(z.shape[1]):
        values, which = np.unique(z[:, j], return_inverse=True)
        spike = np.bincount(which.ravel(), weight).max(initial=0.0)
        if len(values) > FEW_VALUES and spike <= SPIKE:
            found.append(j)
    return found if len(found) <= MAX_PAIRED else []


def _hollows(
    z: np.ndarray, weight: np.ndarray, columns: list[int], place: np.ndarray
) -> list[tuple[int, int]]:
    """Pairs of columns in which hardly any row is near a place (p,)."""
    return [
        (j, k)
        for j, k in combinations(columns, 2)
        if _is_hollow(z[:, [j, k]], weight, place[[j, k]])
    ]


def _is_hollow(z: np.ndarray, weight: np.ndarray, place: np.ndarray) -> bool:
    here = float(weight[_near(z, place[None], NEAR)[0]].sum())
    if here > SPARSE:
        return False
    step = -(-len(z) // MAX_CENTRES)
    usual = float(np.median(_near(z, z[::step], NEAR) @ weight))
    return usual * len(z) >= MIN_COUNT and here < SPARSE * usual


def _densest(z: np.ndarray, weight: np.ndarray, moved: list[int]) -> np.ndarray:
    """The mean, but in some columns the middle of where rows lie closest, (p,)."""
    some = z[:, moved]
    reach = NEAR * np.sqrt(len(moved))
    step = -(-len(z) // MAX_CENTRES)
    around = np.round(_near(some, some[::step], reach) @ weight, 12)
    centre = some[::step][[int(around.argmax())]]
    near = _near(some, centre, reach)[0]
    place = np.zeros(z.shape[1])
    for at, j in enumerate(moved):
        values = weigh_values(some[near, at], weight[near])
        place[j] = values.quantiles(np.array([0.5]))[0]
    return place
