"""Checks of what users pass: options, weights, offsets and targets.

Every refusal names the row (or the parameter) and a remedy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_scalar, column_or_1d

from sknimo.exceptions import check_option
from sknimo.families import Family
from sknimo.features import is_missing, read_vector
from sknimo.ranks import Ranks

# Tables up to this many rows are trained on whole.
FULL_BATCH_ROWS = 20_000
BATCH_ROWS = 1024


def check_number(name: str, value: Any, kind: type, minimum: float) -> None:
    """Refuse what is not a finite number of a kind, or is too small."""
    check_scalar(value, name, kind, min_val=minimum)
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")


def check_widths(hidden: Any) -> None:
    """Refuse layer widths that are not two positive whole numbers."""
    widths = list(hidden) if isinstance(hidden, Iterable) else []
    if len(widths) != 2 or not all(
        isinstance(size, Integral) and int(size) >= 1 for size in widths
    ):
        raise ValueError(
            f"hidden must hold two positive whole layer widths, got {hidden!r}."
        )


def check_number_or_auto(name: str, value: Any, kind: type, minimum: float) -> None:
    """The same, where the word "auto" leaves it to us."""
    if isinstance(value, str):
        check_option(name, value, ("auto",))
    else:
        check_number(name, value, kind, minimum)


def choose_batch_size(batch_size: Any, n_rows: int) -> int:
    """Rows per step, zero for all of them."""
    if isinstance(batch_size, str):
        return BATCH_ROWS if n_rows > FULL_BATCH_ROWS else 0
    return int(batch_size) if batch_size < n_rows else 0


def read_weight(
    sample_weight: Any, n_rows: int, first_row: int = 0, is_block: bool = False
) -> np.ndarray:
    """Row weights as floats, never negative and not all zero.

    `first_row` is what messages call the first of them here and below; a block of rows
    among others may weigh nothing.
    """
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        weight = np.full(n_rows, float(sample_weight))
    else:
        weight = read_vector(sample_weight, "sample_weight", first_row)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must be one number per row: expected shape ({n_rows},), "
            f"got {weight.shape}. Sample weights must be 1D array or scalar."
        )
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"sample_weight must be finite and not negative, row {first_row + row} "
            f"has {weight[row]}."
        )
    if not (is_block or (weight > 0).any()):
        raise ValueError("sample_weight is zero for every row; nothing to fit.")
    return weight


def count_weights(weight: np.ndarray) -> np.ndarray:
    """Weights that count rows: integers as they are, others scaled to mean one."""
    if np.array_equal(weight, np.round(weight)):
        return weight
    return weight * (len(weight) / weight.sum())


def read_offset(offset: Any, n_rows: int, first_row: int = 0) -> np.ndarray:
    """Offset as floats, zero when not given."""
    if offset is None:
        return np.zeros(n_rows)
    values = read_vector(offset, "offset", first_row)
    if values.shape != (n_rows,):
        raise ValueError(
            f"offset must be one number per row: expected shape ({n_rows},), got "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise ValueError(
            f"offset must be finite, row {first_row + row} has {values[row]}. An "
            "exposure of zero has no logarithm; drop such rows."
        )
    return values


def read_numeric_target(y: Any, first_row: int = 0) -> np.ndarray:
    """A numeric target as a float vector; NaN and infinity are refused by row."""
    column = column_or_1d(y, warn=True)
    try:
        target = read_vector(column, "y", first_row)
    except ValueError as error:
        raise ValueError(f"{error} Use NIMOClassifier for labels.") from error
    _refuse_missing(target, first_row)
    return target


def read_labels(y: Any, first_row: int = 0) -> np.ndarray:
    """Class labels as a vector; missing ones are refused by row."""
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "f":
        _refuse_missing(labels, first_row)
    elif labels.dtype.kind == "O":
        absent = [is_missing(label) for label in labels]
        _refuse_missing(np.where(absent, np.nan, 0.0), first_row)
    return labels


def check_classes(classes: np.ndarray) -> None:
    """Refuse labels that are not two."""
    if len(classes) > 2:
        kind = type_of_target(classes, input_name="y", raise_unknown=True)
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{kind} with {len(classes)} classes."
        )
    if len(classes) < 2:
        raise ValueError(
            f"y holds a single class ({classes[0]!r}); two classes are needed."
        )


def _refuse_missing(target: np.ndarray, first_row: int) -> None:
    """Refuse NaN and infinity in a target, naming the first row."""
    bad = ~np.isfinite(target)
    if bad.any():
        row = int(bad.argmax())
        kind = "NaN" if np.isnan(target[row]) else "infinity (inf)"
        raise ValueError(
            f"Input y contains {kind}, first at row {first_row + row}. Drop such rows "
            "first."
        )


def check_domain(
    target: np.ndarray, weight: np.ndarray, family: Family, first_row: int = 0
) -> None:
    """Refuse targets that the family cannot have produced, naming the row."""
    outside = ~family.in_domain(torch.as_tensor(target)).numpy() & (weight > 0)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"The {family.name} family needs {family.domain} in y; row "
            f"{first_row + row} has {target[row]:g}."
        )


def check_folder(path: Any) -> None:
    """Refuse what names no folder, before anything is computed."""
    if not (path is None or isinstance(path, str | os.PathLike)):
        raise TypeError(
            f"checkpoint must be the path of a folder or None, got {path!r}."
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A target as numbers, with the labels they stand for if any."""

    values: np.ndarray
    classes: np.ndarray | None = None


class NumberReader:
    """Numbers as they are."""

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """The numbers of a block."""
        return read_numeric_target(y, first_row)

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """All of them."""
        return Target(values)


class LabelReader:
    """Two labels, whichever turns up first."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._found: list[np.ndarray] = []

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """Number of each label in the order of their appearance."""
        labels = read_labels(y, first_row)
        if len(labels) == 0:
            return np.empty(0)
        check_classification_targets(labels)
        found, index = np.unique(labels, return_inverse=True)
        self._found = [np.unique(np.concatenate([*self._found, found]))]
        if len(self._found[0]) > 2:
            check_classes(self._found[0])
        codes = [self._codes.setdefault(x, len(self._codes)) for x in found.tolist()]
        return np.array(codes, dtype=np.float64)[index]

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """Zeros and ones by the sorted labels of all ranks."""
        known = [part for found in ranks.gather(self._found) for part in found]
        classes = np.unique(np.concatenate(known)) if known else np.empty(0)
        if len(known):
            check_classes(classes)
        second = np.array([label == classes[1] for label in self._codes], dtype=float)
        return Target(second[values.astype(int)] if len(values) else values, classes)


TargetReader = NumberReader | LabelReader
