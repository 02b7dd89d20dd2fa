"""From a validated table to training rows in memory, in canonical order."""

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from sknimo.exceptions import DataWarning
from sknimo.families import Family
from sknimo.features import (
    FeatureMap,
    FeatureOptions,
    Linear,
    Table,
    drop_unused_levels,
    fit_features,
    fit_linear,
    spread_option,
    typical_reference,
)
from sknimo.rows import RowBlocks, WeightedRows
from sknimo.training._checks import (
    Target,
    check_heavy,
    check_span,
    check_spans,
    is_whole,
    settle_weights,
)
from sknimo.training._curves import CurveRules, choose_curves
from sknimo.training._tails import draw_tails

# Tables up to this size are sorted and repeated rows merged.
MERGE_CELLS = 2_000_000
# Values below this cannot lie too far apart for floats.
EXTREME = 1e307
# Linear predictors beyond this, with hardly any deviance left, mean separation.
SEPARATION_ETA = 30.0
SEPARATION_LOSS = 1e-3


@dataclass(frozen=True, slots=True)
class FitRows:
    """Validated rows of positive weight, in the units of the fit."""

    # The target is centred and scaled where the family allows it.
    y: np.ndarray  # (n,)
    weight: np.ndarray  # (n,)
    offset: np.ndarray  # (n,)
    features: FeatureMap
    # What was subtracted from and divided out of the target.
    y_mean: float
    y_scale: float
    classes: np.ndarray | None  # (C,), labels of a classification target


@dataclass(frozen=True, slots=True)
class TrainingSet(FitRows):
    """Rows of a table in memory."""

    table: np.ndarray  # (n, p)
    # Where each row of the user went, -1 for rows of zero weight.
    place: np.ndarray  # (n_samples,)
    given_weight: np.ndarray  # (n_samples,), weights of those rows
    # Curves for every numeric column, where a search may try them beside `features`:
    # many columns that most searches of smooth tables never ask for.
    read_curves: Callable[[], FeatureMap] | None = None

    @property
    def n_samples(self) -> int:
        """Rows as they were given."""
        return len(self.place)

    @property
    def n_total(self) -> int:
        """Rows that are trained on, n."""
        return len(self.table)


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How rows are to be read, from a table or from blocks."""

    features: FeatureOptions
    curves: CurveRules
    categorical: Any  # columns to take for categories
    admit_missing: bool
    prepare: Callable[[Any], Any]  # applied to the table of every block
    # Refuses too few rows that count, of so many that were given.
    check_n_rows: Callable[[int, int], None]
    memory_budget: float
    wants_digest: bool
    # How bags read a table of so many rows with these levels, and whether they are the
    # only way to search it. None where they are no way.
    read_bags: Callable[[int, Sequence[Any], bool], tuple[FeatureOptions | None, bool]]


def merge_rows(
    table: np.ndarray, target: np.ndarray, weight: np.ndarray, offset: np.ndarray
) -> tuple[WeightedRows, np.ndarray]:
    """Drop rows of zero weight, sort the rest and merge repeated ones.

    Returns where each row went as well, -1 for rows of zero weight.

    The objective depends on the rows only through their weighted distribution. In this
    canonical form so does every rounding error: integer weights equal repetition and
    the order of rows does not matter, to the last bit. Rows of other weights stay as
    many as they are: they are no repetitions. Beyond `MERGE_CELLS` cells sorting is no
    longer free, and sums are long enough not to care.
    """
    keep = weight > 0
    table, target = table[keep], target[keep]
    weight, offset = weight[keep], offset[keep]
    place = np.full(len(keep), -1)
    if table.size > MERGE_CELLS or len(table) == 0:
        place[keep] = np.arange(len(table))
        return WeightedRows(table, target, weight, offset), place
    keys = np.column_stack([offset, target, table])
    order = np.lexsort(keys.T[::-1])
    keys, weight = keys[order], weight[order]
    first = unlike_before(keys) if is_whole(weight) else np.ones(len(keys), dtype=bool)
    total = np.add.reduceat(weight, np.flatnonzero(first))
    merged = np.empty(len(order), dtype=int)
    merged[order] = np.cumsum(first) - 1
    place[keep] = merged
    keys = keys[first]
    table = np.ascontiguousarray(keys[:, 2:])
    return WeightedRows(table, keys[:, 1].copy(), total, keys[:, 0].copy()), place


def unlike_before(keys: np.ndarray) -> np.ndarray:
    """Whether a row differs from the one before, (n,); missing equals missing."""
    first = np.ones(len(keys), dtype=bool)
    absent = np.isnan(keys)
    differ = (keys[1:] != keys[:-1]) & ~(absent[1:] & absent[:-1])
    first[1:] = differ.any(axis=1)
    return first


def to_fit_units(
    y: np.ndarray, offset: np.ndarray, spread: Linear | None
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Centre and scale a target by its spread, if there is one; say by how much."""
    if spread is None:
        return y, offset, {"y_mean": 0.0, "y_scale": 1.0}
    # A constant target has no scale: every coefficient is zero.
    mean, scale = spread.reference, spread.scale or 1.0
    return (y - mean) / scale, offset / scale, {"y_mean": mean, "y_scale": scale}


def refuse_single_class(found: Collection[float]) -> None:
    """Refuse rows that hold one class, after those of zero weight have gone."""
    if len(found) < 2:
        raise ValueError(
            "Rows with positive weight hold a single class; two classes are needed."
        )


def refuse_rare_class(
    y: np.ndarray, weight: np.ndarray, classes: np.ndarray, place: np.ndarray
) -> None:
    """Refuse one of several classes that a single row, or none, belongs to.

    `place` says where each row of the user went. A whole weight repeats a row.
    """
    whole = is_whole(weight)
    for number, label in enumerate(classes.tolist()):
        own = np.flatnonzero(y == number)
        if len(own) == 0:
            raise ValueError(
                f"The class {label!r} of y has no row of positive weight. Leave its "
                "rows out of the table."
            )
        rows = np.flatnonzero(np.isin(place, own))
        if len(rows) < 2 and not (whole and weight[own].sum() > 1):
            raise ValueError(
                f"The class {label!r} of y is seen once (row {rows[0]}); among several "
                "classes each needs two rows at least. Leave the row out, or join the "
                "class with another."
            )


def find_rows(X: Any, y: Any, sample_weight: Any, offset: Any) -> RowBlocks | None:
    """The rows as blocks if that is what they are, or memory-mapped; else None.

    Tables that are small enough to be sorted and merged are read into memory, mapped or
    not, and fitted like any other.
    """
    if isinstance(X, RowBlocks):
        if not (y is None and sample_weight is None and offset is None):
            raise ValueError(
                "y, sample_weight and offset are part of the blocks; leave them out "
                "when X is a RowBlocks."
            )
        return X
    mapped = isinstance(X, np.memmap) or isinstance(y, np.memmap)
    if not mapped or not isinstance(X, np.ndarray) or X.ndim != 2:
        return None
    if X.size <= MERGE_CELLS:
        return None
    plain = X.dtype.kind in "fiub" and np.ndim(y) == 1 and len(y) == len(X)
    return RowBlocks.from_arrays(X, y, sample_weight, offset) if plain else None


def certain(largest_eta: float, largest_loss: float) -> bool:
    """Whether all of some rows are predicted with certainty: separated classes."""
    return largest_eta > SEPARATION_ETA and largest_loss < SEPARATION_LOSS


def _check_extremes(
    table: np.ndarray, names: Sequence[str], counted: np.ndarray
) -> None:
    """Refuse columns whose counted rows lie too far apart for floats."""
    large = np.fmax.reduce(np.abs(table), axis=0, initial=0.0) > EXTREME
    for j in np.flatnonzero(large).tolist():
        check_span(f"Column {names[j]!r} of X", table[counted, j], counted)


def prepare_table(
    read: Table,
    names: Sequence[str],
    target: Target,
    weight: np.ndarray,
    offset: np.ndarray,
    family: Family,
    options: ReadingOptions,
) -> TrainingSet:
    """Merge the rows and learn the features; what `prepare_stream` is for blocks."""
    check_heavy(weight, np.arange(len(weight)))
    weight = settle_weights(weight)
    used = drop_unused_levels(read, weight)
    counted = np.flatnonzero(weight > 0)
    _check_extremes(used.values, names, counted)
    check_spans(target.values[counted], offset[counted], family, counted)
    rows, place = merge_rows(used.values, target.values, weight, offset)
    options.check_n_rows(len(rows.y), len(place))
    given = np.empty(len(rows.y), dtype=int)
    given[place[counted]] = counted
    total, named = rows.weight, given
    if not is_whole(weight) and rows.table.size <= MERGE_CELLS:
        # They were sorted, not merged; but copies of one row carry weight as one.
        keys = np.column_stack([rows.offset, rows.y, rows.table])
        starts = np.flatnonzero(unlike_before(keys))
        total, named = np.add.reduceat(total, starts), given[starts]
    check_heavy(total, named)
    if target.classes is not None:
        refuse_single_class(np.unique(rows.y))
        if len(target.classes) > 2:
            refuse_rare_class(rows.y, rows.weight, target.classes, place)
    elif np.ptp(rows.y) == 0:
        warnings.warn(
            f"y is {rows.y[0]:g} in every row: there is nothing to explain. Check the "
            "target.",
            DataWarning,
            stacklevel=7,
        )
    spread = None
    if family.least_squares:
        spread = fit_linear(rows.y - rows.offset, rows.weight)
    y, offset, units = to_fit_units(rows.y, rows.offset, spread)
    rows = replace(rows, y=y, offset=offset)
    levels = used.levels or (None,) * len(names)
    how, curved = _choose_features(rows, names, levels, family, options)
    read_curves = None
    if curved is not None:
        known = rows.table, names, rows.weight, levels, curved
        read_curves = cache(partial(fit_features, *known, quiet=True))
    return TrainingSet(
        y=y,
        weight=rows.weight,
        offset=offset,
        features=fit_features(rows.table, names, rows.weight, levels, how),
        classes=target.classes,
        table=rows.table,
        place=place,
        given_weight=weight,
        read_curves=read_curves,
        **units,
    )


def _choose_features(
    rows: WeightedRows,
    names: Sequence[str],
    levels: Sequence[Any],
    family: Family,
    options: ReadingOptions,
) -> tuple[FeatureOptions, FeatureOptions | None]:
    """How columns enter the model, and bags beside it, if there are any."""
    curved, alone = options.read_bags(len(rows.y), levels, False)
    how, drawn = curved, options.features.drawn
    if curved is not None:
        free, rules = options.features.basis, options.curves
        drawn = draw_tails(rows, names, levels, free, curved, family, rules)
        how = curved = replace(curved, drawn=drawn)
    if how is None or not alone:
        how = replace(options.features, drawn=drawn)
        how = choose_curves(rows, names, levels, how, family, options.curves)
    if not alone:
        # On a large table a point among the rows costs accuracy: no feature can be bent
        # there, where most rows are.
        place_of = typical_reference(how.reference, rows.table, rows.weight, levels)
        how = replace(how, reference=place_of)
    if curved is None or alone:
        return how, None
    return how, _with_curves(how, curved, names, levels)


def _with_curves(
    chosen: FeatureOptions,
    curved: FeatureOptions,
    names: Sequence[str],
    levels: Sequence[Any],
) -> FeatureOptions:
    """Curves that were chosen stay as they are; other columns have those of bags."""
    both = (
        spread_option("basis", how.basis, names, "linear") for how in (chosen, curved)
    )
    basis = {
        j: kind if kind != "linear" else other
        for j, (kind, other) in enumerate(zip(*both, strict=True))
        if levels[j] is None
    }
    place = chosen.reference
    return replace(curved, basis=basis, reference=place, found=chosen.found)
