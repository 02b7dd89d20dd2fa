"""From a table in memory to training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sknimo.families import Family
from sknimo.features import Table, drop_unused_levels, fit_features, fit_linear
from sknimo.training._curves import choose_curves
from sknimo.training._data import (
    Target,
    TrainingSet,
    merge_rows,
    refuse_single_class,
    to_fit_units,
)
from sknimo.training._streams import ReadingOptions


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
    used = drop_unused_levels(read, weight)
    rows, place = merge_rows(used.values, target.values, weight, offset)
    options.check_n_rows(len(rows.y))
    if target.classes is not None:
        refuse_single_class(np.unique(rows.y))
    spread = None
    if family.least_squares:
        spread = fit_linear(rows.y - rows.offset, rows.weight)
    y, offset, units = to_fit_units(rows.y, rows.offset, spread)
    rows = replace(rows, y=y, offset=offset)
    levels = used.levels or (None,) * len(names)
    how = choose_curves(rows, names, levels, options.features, family, options.curves)
    return TrainingSet(
        y=y,
        weight=rows.weight,
        offset=offset,
        features=fit_features(rows.table, names, rows.weight, levels, how),
        classes=target.classes,
        table=rows.table,
        place=place,
        given_weight=weight,
        **units,
    )
