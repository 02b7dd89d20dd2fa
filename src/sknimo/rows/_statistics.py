"""Statistics of rows that nobody holds all of: merged over blocks and over ranks.

Means, spreads, ranges and the weights of levels are exact. Quantiles come from a sample
of rows: those whose number, scattered by a fixed hash, is among the smallest. Whether a
row belongs to it depends on nothing but its number, so neither the size of the blocks
nor the number of ranks changes the sample.

Shapes: n rows of a block or of this rank, p columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from sknimo.features import (
    ColumnSummary,
    Linear,
    TableSchema,
    ValueSample,
    make_linear,
    only_missing,
    weigh_values,
)
from sknimo.ranks import Ranks
from sknimo.rows._blocks import BLOCK_CELLS
from sknimo.rows._store import RowFile

# Rows that quantiles are taken from.
SAMPLE_ROWS = 100_000
# Columns with at most this many values are counted in full.
FEW_VALUES = 64
# Rows whose hashes are made at a time.
HASH_ROWS = 1 << 20
# A power of two: columns at the end of the range are added up in these units.
SHRINK = 2.0**-64


@dataclass(frozen=True, slots=True)
class Moments:
    """Weighted mean, spread and range of columns over some rows, each (p,).

    The mean is `centre + delta`, two floats, so that a column far from zero keeps its
    digits. Columns without a value have weight zero.
    """

    weight: np.ndarray
    centre: np.ndarray
    delta: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_known: np.ndarray

    def merge(self, other: Moments) -> Moments:
        """Over the rows of both (Chan, Golub and LeVeque)."""
        total = self.weight + other.weight
        share = np.divide(
            other.weight, total, out=np.zeros_like(total), where=total > 0
        )
        # Where this side knows nothing it stands where the other does.
        empty = self.weight == 0
        centre = np.where(empty, other.centre, self.centre)
        delta = np.where(empty, other.delta, self.delta)
        gap = (other.centre - centre) + (other.delta - delta)
        gap = np.where(other.weight > 0, gap, 0.0)
        largest = np.maximum(np.maximum(self.scale, other.scale), np.abs(gap))
        unit = np.where(largest > 0, largest, 1.0)  # squares must not overflow
        square = (1 - share) * (self.scale / unit) ** 2
        square += share * (other.scale / unit) ** 2
        square += share * (1 - share) * (gap / unit) ** 2
        return Moments(
            total,
            centre,
            delta + share * gap,
            unit * np.sqrt(square),
            np.fmin(self.low, other.low),
            np.fmax(self.high, other.high),
            self.n_known + other.n_known,
        )

    def line(self, column: int) -> Linear:
        """Mean and standard deviation of one column, as `fit_linear` has them."""
        centre, delta = float(self.centre[column]), float(self.delta[column])
        mean = centre + delta
        residue = (centre - mean) + delta
        low, high = float(self.low[column]), float(self.high[column])
        return make_linear(mean, residue, float(self.scale[column]), low, high)


def block_moments(table: np.ndarray, weight: np.ndarray) -> Moments:
    """Moments of the columns of one block, (n, p) and (n,); NaN is missing."""
    low = np.fmin.reduce(table, axis=0, initial=np.inf)
    high = np.fmax.reduce(table, axis=0, initial=-np.inf)
    missing = np.isnan(table)
    n_known = len(table) - missing.sum(axis=0)
    sum_weight = float(weight.sum())
    total = sum_weight - weight @ missing
    total[n_known == 0] = 0.0
    safe = np.where(total > 0, total, 1.0)
    any_missing = bool(missing.any())

    def distance(centre: np.ndarray) -> np.ndarray:
        above = table - centre
        if any_missing:
            above[missing] = 0.0
        return above

    def mean(above: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            sums = weight @ above
        if np.isfinite(sums).all():
            return sums / safe
        return (weight @ (above * SHRINK)) / safe / SHRINK  # the sum overflows

    # Two passes: the second removes the rounding error of a mean far from zero.
    some = n_known > 0
    middle = np.where(some, low, 0.0) / 2 + np.where(some, high, 0.0) / 2
    centre = middle + mean(distance(middle))
    residual = distance(centre)
    delta = mean(residual)
    largest = np.abs(residual).max(axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    residual -= delta
    if any_missing:
        residual[missing] = 0.0
    residual /= unit
    square = np.einsum("i,ij,ij->j", weight, residual, residual)
    spread = unit * np.sqrt(square / safe)
    return Moments(total, centre, delta, spread, low, high, n_known)


def merge_moments(parts: Sequence[Moments]) -> Moments:
    """Moments over the rows of all parts."""
    return reduce(Moments.merge, parts)


NOTHING = ValueSample(np.empty(0), np.empty(0))


def _count_more(
    known: ValueSample | None, values: np.ndarray, weight: np.ndarray
) -> ValueSample | None:
    """Values of a column and the weight on each, None once they are many."""
    if known is None:
        return None
    own = weigh_values(np.r_[known.values, values], np.r_[known.weight, weight])
    return own if len(own.values) <= FEW_VALUES else None


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """Exact figures of all columns over some rows."""

    moments: Moments
    # Values and their weights of columns with few of them.
    few: tuple[ValueSample | None, ...]
    # Weight of each level of categorical columns.
    level_weight: tuple[np.ndarray | None, ...]
    weight: float  # total weight of the rows
    n_rows: int


def count_columns(
    table: RowFile, weight: np.ndarray, schema: TableSchema
) -> ColumnCounts | None:
    """Figures of this rank's rows, None without a row."""
    p = len(schema.names)
    few: list[ValueSample | None] = [NOTHING] * p
    totals = [None if own is None else np.zeros(len(own)) for own in schema.levels]
    moments: Moments | None = None
    for rows, block in table.blocks(max(1, BLOCK_CELLS // p)):
        share = weight[rows]
        part = block_moments(block, share)
        moments = part if moments is None else moments.merge(part)
        for j, total in enumerate(totals):
            if total is None and few[j] is None:
                continue
            known = ~np.isnan(block[:, j])
            values, own = block[known, j], share[known]
            if total is None:
                few[j] = _count_more(few[j], values, own)
            else:
                total += np.bincount(values.astype(int), own, minlength=len(total))
    if moments is None:
        return None
    total_weight = float(weight.sum())
    return ColumnCounts(moments, tuple(few), tuple(totals), total_weight, len(weight))


def merge_counts(parts: Sequence[ColumnCounts]) -> ColumnCounts:
    """Figures over the rows of all parts."""
    few: list[ValueSample | None] = []
    for samples in zip(*(part.few for part in parts), strict=True):
        merged: ValueSample | None = NOTHING
        for own in samples:
            merged = (
                None if own is None else _count_more(merged, own.values, own.weight)
            )
        few.append(merged)
    levels = zip(*(part.level_weight for part in parts), strict=True)
    return ColumnCounts(
        merge_moments([part.moments for part in parts]),
        tuple(few),
        tuple(None if own[0] is None else np.sum(own, axis=0) for own in levels),
        sum(part.weight for part in parts),
        sum(part.n_rows for part in parts),
    )


@dataclass(frozen=True, slots=True)
class WeightedRows:
    """Rows as they are fitted to: a table, a target, weights and an offset."""

    table: np.ndarray  # (k, p)
    y: np.ndarray  # (k,)
    weight: np.ndarray  # (k,)
    offset: np.ndarray  # (k,)

    def take(self, index: np.ndarray) -> WeightedRows:
        """Some of the rows."""
        return WeightedRows(
            self.table[index], self.y[index], self.weight[index], self.offset[index]
        )


def summarise_columns(
    counts: ColumnCounts, sample: WeightedRows, schema: TableSchema
) -> Iterator[ColumnSummary]:
    """What features are learned from, column by column."""
    for j, name in enumerate(schema.names):
        moments, few = counts.moments, counts.few[j]
        n_known = int(moments.n_known[j])
        if n_known == 0:
            raise ValueError(only_missing(name))
        total = counts.level_weight[j]
        if total is not None:
            few = ValueSample(np.arange(len(total)).astype(float), total)
        elif few is None:
            known = ~np.isnan(sample.table[:, j])
            few = weigh_values(sample.table[known, j], sample.weight[known])
        share = 1 - float(moments.weight[j]) / counts.weight
        complete = n_known == counts.n_rows
        yield ColumnSummary(
            moments.line(j),
            float(moments.low[j]),
            float(moments.high[j]),
            n_known,
            0.0 if complete else float(np.sqrt(share * (1 - share))),
            few,
            total,
            float(counts.weight),
            float(counts.weight * share) if not complete else 0.0,
        )


def scatter(row: np.ndarray) -> np.ndarray:
    """A hash of row numbers; no two rows share one (Steele, Lea and Flood)."""
    with np.errstate(over="ignore"):
        z = row.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def sample_rows(first_row: int, n_rows: int, size: int, ranks: Ranks) -> np.ndarray:
    """Rows of this rank that belong to the sample of all, as local indices, sorted.

    The rows of this rank are `first_row` and those that follow among the rows of all.
    """
    kept = np.empty(0, dtype=np.uint64)
    index = np.empty(0, dtype=np.int64)
    for begin in range(0, n_rows, HASH_ROWS):
        rows = np.arange(begin, min(begin + HASH_ROWS, n_rows))
        kept = np.r_[kept, scatter(first_row + rows)]
        index = np.r_[index, rows]
        if len(kept) > size:
            smallest = np.argpartition(kept, size - 1)[:size]
            kept, index = kept[smallest], index[smallest]
    everyone = np.concatenate(ranks.gather(kept))
    if len(everyone) > size:
        limit = np.partition(everyone, size - 1)[size - 1]
        index = index[kept <= limit]
    return np.sort(index)


def gather_sample(
    table: RowFile,
    y: np.ndarray,
    weight: np.ndarray,
    offset: np.ndarray,
    rows: np.ndarray,
    ranks: Ranks,
) -> WeightedRows:
    """The sampled rows of all ranks, on every rank."""
    own = WeightedRows(table.take(rows), y[rows], weight[rows], offset[rows])
    parts = ranks.gather(own)
    if len(parts) == 1:
        return own
    names = [field.name for field in fields(WeightedRows)]
    values = ([getattr(part, name) for part in parts] for name in names)
    return WeightedRows(*map(np.concatenate, values))
