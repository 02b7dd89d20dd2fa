"""Checks of what users pass: options, weights, offsets and targets.

Every refusal names the row (or the parameter) and a remedy.
"""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_scalar, column_or_1d

from sknimo.exceptions import DataWarning, check_option
from sknimo.families import Family
from sknimo.features import drop_gradient, is_missing, read_vector
from sknimo.ranks import ALONE, Ranks

# Tables up to this many rows are trained on whole.
FULL_BATCH_ROWS = 20_000
BATCH_ROWS = 1024
# Below this share of the heaviest weight a row is lost in the rounding of any sum.
LEAST_SHARE = 2e-16
# Rows below this share of the heaviest cannot hold against it, and so many must.
HEAVY_SHARE = 1e-8
MIN_HEAVY = 3
# Weights beyond these powers of two would overflow when they are squared or summed.
MAX_EXPONENT = 500
# Linear predictors further apart than this share no scale: curvatures differ by 1e130.
MAX_LINK_SPAN = 300.0
LARGEST = float(np.finfo(float).max)
# A target's span, with room for coefficients and predictions above it.
MAX_TARGET_SPAN = 1e300


def check_number(name: str, value: Any, kind: type, minimum: float) -> None:
    """Refuse what is not a finite number of a kind, or is too small."""
    check_scalar(value, name, kind, min_val=minimum)
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")


def check_lengths(n_rows: int, n_targets: int) -> None:
    """Refuse targets that are not one for each row."""
    if n_targets != n_rows:
        raise ValueError(
            f"X has {n_rows} rows but y has {n_targets}: inconsistent numbers of "
            "samples."
        )


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


def settle_weights(weight: np.ndarray, ranks: Ranks = ALONE) -> np.ndarray:
    """Weights that count rows, with squares and sums in the range of floats.

    Extreme units are left by a power of two, to the last bit. A row that is lost in the
    rounding of every sum gets a weight of zero.
    """
    heaviest = max(ranks.gather(float(weight.max(initial=0.0))))
    light = (weight > 0) & (weight < LEAST_SHARE * heaviest)
    n_light = sum(ranks.gather(int(light.sum())))
    if n_light:
        weight = np.where(light, 0.0, weight)
        warnings.warn(
            f"{n_light} of the rows weigh less than {LEAST_SHARE:g} of the heaviest "
            f"({heaviest:g}), too little to count: left out. Set their sample_weight "
            "to zero to silence this warning.",
            DataWarning,
            stacklevel=8,
        )
    exponent = int(np.frexp(heaviest)[1])
    extreme = abs(exponent) >= MAX_EXPONENT
    return count_weights(np.ldexp(weight, -exponent) if extreme else weight, ranks)


def check_heavy(
    weight: np.ndarray, row: np.ndarray | None = None, ranks: Ranks = ALONE
) -> None:
    """Refuse weights that leave hardly any row to fit to.

    `row` (n,) holds what messages call the rows.
    """
    heaviest = max(ranks.gather(float(weight.max(initial=0.0))))
    own = int((weight > HEAVY_SHARE * heaviest).sum()), int((weight > 0).sum())
    n_heavy, n_rows = (sum(each) for each in zip(*ranks.gather(own), strict=True))
    if n_heavy < MIN_HEAVY <= n_rows:
        where = "" if row is None else f" (the heaviest is row {row[weight.argmax()]})"
        raise ValueError(
            f"{n_heavy} of {n_rows} distinct rows carry all the weight{where}: at "
            f"least {MIN_HEAVY} must weigh more than {HEAVY_SHARE:g} of the heaviest. "
            "Check sample_weight for wrong units, or cap the largest weights."
        )


def count_weights(weight: np.ndarray, ranks: Ranks = ALONE) -> np.ndarray:
    """Weights that count rows: integers as they are, others scaled to mean one.

    The mean is that of the rows as they are given, which have some weight.
    """
    if all(ranks.gather(is_whole(weight))):
        return weight
    own = int(np.count_nonzero(weight)), float(weight.sum())
    n_rows, total = (sum(each) for each in zip(*ranks.gather(own), strict=True))
    return weight * (n_rows / total)


def is_whole(weight: np.ndarray) -> bool:
    """Whether weights are integers, so that a row of weight w is w rows."""
    return bool(np.array_equal(weight, np.round(weight)))


def read_offset(offset: Any, n_rows: int, first_row: int = 0) -> np.ndarray:
    """Offset as floats, zero when not given."""
    if offset is None:
        return np.zeros(n_rows)
    values = read_vector(offset, "offset", first_row)
    if np.ndim(offset) == 0:  # the same in all rows
        values = np.full(n_rows, values)
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


def read_numeric_target(
    y: Any, first_row: int = 0, classifier: str = "NIMOClassifier"
) -> np.ndarray:
    """A numeric target as a float vector; NaN and infinity are refused by row.

    `classifier` is the class that a refusal of labels names.
    """
    column = column_or_1d(drop_gradient(y), warn=True)
    try:
        target = read_vector(column, "y", first_row)
    except ValueError as error:
        if column.dtype.kind not in "OUS":
            raise
        raise ValueError(f"{error} Use {classifier} for labels.") from error
    _refuse_missing(target, first_row)
    return target


def read_labels(y: Any, first_row: int = 0) -> np.ndarray:
    """Class labels as a vector; missing ones are refused by row."""
    labels = column_or_1d(drop_gradient(y), warn=True)
    if labels.dtype.kind == "f":
        _refuse_missing(labels, first_row)
    elif labels.dtype.kind == "O":
        absent = [is_missing(label) for label in labels]
        _refuse_missing(np.where(absent, np.nan, 0.0), first_row)
        is_text = np.array([isinstance(label, str) for label in labels], dtype=bool)
        if is_text.any() and not is_text.all():
            some = [int(at.argmax()) for at in (is_text, ~is_text)]
            shown = " and ".join(f"{labels[k]!r} at row {first_row + k}" for k in some)
            raise ValueError(
                f"y mixes text and numbers: {shown}. Make all labels text."
            )
    return labels


def check_classes(classes: np.ndarray, several: bool = False) -> None:
    """Refuse labels that are not two, or more where these are admitted."""
    if len(classes) > 2 and not several:
        raise ValueError(
            f"y has {len(classes)} classes, but rows in blocks may have two alone. "
            "Join classes, or hold the table in memory."
        )
    if len(classes) < 2:
        raise ValueError(
            f"y holds a single class ({classes.tolist()[0]!r}); two classes are needed."
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
        advice = family.advice(float(target[row])) if family.advice else ""
        raise ValueError(
            f"The {family.name} family needs {family.domain} in y; row "
            f"{first_row + row} has {target[row]:g}. {advice}".rstrip()
        )


def check_span(
    name: str,
    values: np.ndarray,
    row: np.ndarray | None = None,
    limit: float = LARGEST,
    remedy: str = "Check the two values, or measure in larger units.",
    ranks: Ranks = ALONE,
) -> None:
    """Refuse values (n,) that lie too far apart, naming both ends; NaN is missing.

    `row` (n,) holds what messages call the rows.
    """
    known = np.flatnonzero(~np.isnan(values))
    ends: list[tuple[float, str]] = []
    for find in (np.argmin, np.argmax) if len(known) else ():
        at = known[find(values[known])]
        where = "" if row is None else f" (row {row[at]})"
        ends.append((float(values[at]), where))
    everyone = sorted(end for part in ranks.gather(ends) for end in part)
    if not everyone or everyone[-1][0] - everyone[0][0] <= limit:
        return
    (low, first), (high, last) = everyone[0], everyone[-1]
    raise ValueError(
        f"{name} reaches from {low:g}{first} to {high:g}{last}: more than {limit:.3g} "
        f"apart, too far to compute with. {remedy}"
    )


def check_spans(
    target: np.ndarray,
    offset: np.ndarray,
    family: Family,
    row: np.ndarray | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Refuse a target or an offset whose values no linear predictor could span."""
    if family.link == "identity":
        check_span("y", target, row, MAX_TARGET_SPAN, ranks=ranks)
        with np.errstate(over="ignore"):
            rest = target - offset
        check_span("y - offset", rest, row, MAX_TARGET_SPAN, ranks=ranks)
        return
    remedy = (
        f"On the {family.link} link an offset is added to the linear predictor, such "
        "as the logarithm of an exposure. Check its units."
    )
    check_span("offset", offset, row, MAX_LINK_SPAN, remedy, ranks)
    if family.link == "log":
        # Zero has no logarithm: a count of one, or the smallest rate, stands for it.
        least = target[target > 0].min(initial=1.0)
        logs = np.log(np.maximum(target, least))
        remedy = "The log link fits ratios of means. Check the two values of y."
        check_span("log(y)", logs, row, MAX_LINK_SPAN, remedy, ranks)


def check_verbose(verbose: Any) -> None:
    """Refuse words other than "auto"."""
    if isinstance(verbose, str):
        check_option("verbose", verbose, ("auto",))


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


@dataclass(frozen=True, slots=True)
class NumberReader:
    """Numbers as they are."""

    classifier: str = "NIMOClassifier"  # the class for labels

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """The numbers of a block."""
        return read_numeric_target(y, first_row, self.classifier)

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """All of them."""
        return Target(values)


class LabelReader:
    """Two labels, whichever turns up first, or `several`."""

    def __init__(self, several: bool = False) -> None:
        self._several = several
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
            check_classes(self._found[0], self._several)
        codes = [self._codes.setdefault(x, len(self._codes)) for x in found.tolist()]
        return np.array(codes, dtype=np.float64)[index]

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """Numbers of the classes, by the sorted labels of all ranks."""
        known = [part for found in ranks.gather(self._found) for part in found]
        classes = np.unique(np.concatenate(known)) if known else np.empty(0)
        if len(known):
            check_classes(classes, self._several)
        known = classes.tolist()
        number = np.array([known.index(label) for label in self._codes], dtype=float)
        return Target(number[values.astype(int)] if len(values) else values, classes)


TargetReader = NumberReader | LabelReader
