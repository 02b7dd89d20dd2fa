"""Read data frames and arrays: names, dtypes, levels and missing values.

This is the only module that knows about data frames and dtypes. What it returns is a
numeric table: a level is its code, a missing value NaN.

Shapes: n rows, p columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from sknimo.features._bases import Label
from sknimo.features._fit import find_column
from sknimo.features._map import FeatureMap

# A column with more levels than this share of the rows is a name, not a category.
MAX_LEVEL_SHARE = 0.5
FEW_LEVELS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """Columns as numbers.

    Attributes
    ----------
    values : array of shape (n, p)
        Floats; what was given, untouched, when there was nothing to read.
    levels : tuple of (tuple of labels or None), optional
        Levels of each categorical column by code; None when no column is categorical.
    """

    values: Any
    levels: tuple[tuple[Label, ...] | None, ...] | None = None


def read_table(
    X: Any, categorical: Sequence[Any] | None = None, admit_missing: bool = False
) -> Table:
    """Read training data: learn levels, turn a data frame into floats.

    Text, categorical and enum columns of a data frame are categories, and so are the
    columns that `categorical` names. Anything else that is not a number is refused by
    name with a remedy, and so are missing values unless admitted.
    """
    frame = _as_frame(X)
    if frame is None:
        if categorical is None:
            return Table(_read_array(X, admit_missing))
        return _read_mixed_array(X, categorical, admit_missing)
    names = [str(name) for name in frame.columns]
    declared = {find_column(key, names, "categorical") for key in categorical or ()}
    columns, levels = [], []
    for j, column in enumerate(frame.iter_columns()):
        own = None
        if j in declared or _is_text(column):
            labels = _read_labels(column.to_list(), names[j])
            own = _order_levels(labels, column.dtype, names[j])
            columns.append(_codes(labels, own, names[j], admit_missing, None))
        else:
            columns.append(_read_column(column, names[j], admit_missing))
        levels.append(own)
    return Table(_stack(columns, len(frame)), _levels(levels))


def encode_table(X: Any, features: FeatureMap, handle_unknown: str = "error") -> Any:
    """Read new data as the training data were read.

    An unknown level is refused by name and row, or taken for the baseline when
    `handle_unknown` is "reference".
    """
    admits = features.admits_missing
    known = [features.levels(j) for j in range(features.n_features)]
    frame = _as_frame(X)
    if frame is None and not any(known):
        return _read_array(X, bool(admits.any()))
    if frame is None:
        source = [(column.tolist(), column) for column in np.asarray(X).T]
    columns = []
    for j, own in enumerate(known):
        name, admit = features.names[j], bool(admits[j])
        if own is not None:
            values = source[j][0] if frame is None else frame[:, j].to_list()
            fallback = (
                int(features.reference[j]) if handle_unknown == "reference" else None
            )
            labels = _read_labels(values, name)
            columns.append(_codes(labels, own, name, admit, fallback))
        elif frame is None:
            columns.append(_read_objects(source[j][1], name, admit))
        else:
            columns.append(_read_column(frame[:, j], name, admit))
    return _stack(columns, len(X))


def drop_unused_levels(table: Table, weight: np.ndarray) -> Table:
    """Forget levels that only rows of zero weight have; deletion would as well."""
    if table.levels is None:
        return table
    values, levels = table.values.copy(), list(table.levels)
    for j, own in enumerate(levels):
        if own is None:
            continue
        codes = values[:, j]
        known = ~np.isnan(codes)
        used = np.unique(codes[known & (weight > 0)]).astype(int)
        if len(used) < len(own):
            levels[j] = tuple(own[code] for code in used)
            recode = np.full(len(own), np.nan)
            recode[used] = np.arange(len(used))
            values[known, j] = recode[codes[known].astype(int)]
    return Table(values, tuple(levels))


def _as_frame(X: Any) -> nw.DataFrame[Any] | None:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def _stack(columns: list[np.ndarray], n_rows: int) -> np.ndarray:
    return np.column_stack(columns) if columns else np.empty((n_rows, 0))


def _levels(
    levels: list[tuple[Label, ...] | None],
) -> tuple[tuple[Label, ...] | None, ...] | None:
    return tuple(levels) if any(own is not None for own in levels) else None


def _is_text(column: nw.Series[Any]) -> bool:
    """Whether a column of a data frame holds categories by its type."""
    dtype = column.dtype
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return True
    return dtype == nw.Object and any(isinstance(v, str) for v in column.to_list())


def _read_labels(values: list[Any], name: str) -> list[Label | None]:
    """Levels as plain Python values, None where missing."""
    labels: list[Label | None] = []
    for row, value in enumerate(values):
        if isinstance(value, np.generic):
            value = value.item()
        if is_missing(value):
            labels.append(None)
        elif isinstance(value, float) and value.is_integer():
            labels.append(int(value))  # 1 and 1.0 are one level
        elif isinstance(value, str | bool | int | float):
            labels.append(value)
        else:
            raise TypeError(
                f"Column {name!r} holds {type(value).__name__} at row {row}; the "
                "levels of a category are text or numbers."
            )
    return labels


def _order_levels(
    labels: list[Label | None], dtype: Any, name: str
) -> tuple[Label, ...]:
    """Distinct levels: in their own order where they have one, else sorted."""
    found = {label for label in labels if label is not None}
    n_known = sum(label is not None for label in labels)
    if len(found) > max(FEW_LEVELS, MAX_LEVEL_SHARE * n_known):
        raise ValueError(
            f"Column {name!r} has {len(found)} levels in {n_known} rows, too many to "
            "learn from. Drop it, or merge rare levels first."
        )
    if not found:
        raise ValueError(
            f"Column {name!r} of X contains missing values (NaN) only. Drop it."
        )
    if isinstance(dtype, nw.Enum):
        return tuple(label for label in dtype.categories if label in found)
    return tuple(sorted(found, key=lambda label: (isinstance(label, str), label)))


def _codes(
    labels: list[Label | None],
    levels: tuple[Label, ...],
    name: str,
    admit_missing: bool,
    fallback: int | None,
) -> np.ndarray:
    """Code of every label, NaN where missing."""
    place: dict[Label | None, float] = {
        label: float(code) for code, label in enumerate(levels)
    }
    if admit_missing:
        place[None] = np.nan
    codes = np.empty(len(labels))
    for row, label in enumerate(labels):
        code = place.get(label)
        if code is None:
            if label is None:
                raise ValueError(_bad_value(name, row, "missing value (NaN)"))
            if fallback is None:
                shown = ", ".join(repr(level) for level in levels[:8])
                raise ValueError(
                    f"Column {name!r} has level {label!r} at row {row}, which no "
                    f"training row had (known: {shown}). Fit again with such rows, or "
                    'use handle_unknown="reference" to take it for the baseline.'
                )
            code = float(fallback)
        codes[row] = code
    return codes


def _read_column(column: nw.Series[Any], name: str, admit_missing: bool) -> np.ndarray:
    """One numeric column as float64, or a refusal with a remedy."""
    dtype = column.dtype
    if dtype.is_temporal():
        raise TypeError(
            f"Column {name!r} holds dates or times ({dtype}). Convert it to a number "
            "with a meaning first, for example days since a start."
        )
    if dtype == nw.Object:
        return _read_objects(column.to_numpy(), name, admit_missing)
    if not (dtype.is_numeric() or dtype == nw.Boolean):
        raise ValueError(_not_numbers(f"Column {name!r} holds {dtype}"))
    missing = column.is_null().to_numpy()
    if missing.any() and not admit_missing:
        raise ValueError(_bad_value(name, int(missing.argmax()), "missing value (NaN)"))
    values = column.cast(nw.Float64).to_numpy()
    return np.asarray(values, dtype=np.float64)


def _read_array(X: Any, admit_missing: bool) -> Any:
    """Refuse dates and strings in arrays; turn Python objects into floats."""
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        raise TypeError(
            "X holds dates or times. Convert them to numbers with a meaning first, "
            "for example days since a start."
        )
    if kind in ("U", "S"):
        raise ValueError(_not_numbers("X holds strings"))
    if kind == "O" and isinstance(X, np.ndarray) and X.ndim == 2 and X.size:
        columns = [
            _read_objects(column, f"x{j}", admit_missing)
            for j, column in enumerate(X.T)
        ]
        return np.column_stack(columns)
    return X


def _read_mixed_array(X: Any, categorical: Sequence[Any], admit_missing: bool) -> Table:
    """An array with declared categories; other columns hold numbers."""
    array = np.asarray(X)
    if array.ndim != 2:
        return Table(X)
    names = [f"x{j}" for j in range(array.shape[1])]
    declared = {find_column(key, names, "categorical") for key in categorical}
    columns, levels = [], []
    for j, column in enumerate(array.T):
        own = None
        if j in declared:
            labels = _read_labels(column.tolist(), names[j])
            own = _order_levels(labels, None, names[j])
            columns.append(_codes(labels, own, names[j], admit_missing, None))
        else:
            columns.append(_read_objects(column, names[j], admit_missing))
        levels.append(own)
    return Table(_stack(columns, len(array)), _levels(levels))


def _read_objects(values: np.ndarray, name: str, admit_missing: bool) -> np.ndarray:
    """Numbers kept as Python objects; anything else is refused by name and row."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        if is_missing(value):
            if not admit_missing:
                raise ValueError(_bad_value(name, row, "missing value (NaN)"))
            numbers[row] = np.nan
            continue
        if isinstance(value, str | bytes):
            raise ValueError(
                _not_numbers(f"Column {name!r} holds {value!r} at row {row}")
            )
        try:
            numbers[row] = float(value)
        except (TypeError, ValueError) as error:
            found = f"Column {name!r} holds {type(value).__name__} at row {row}"
            raise TypeError(f"{_not_numbers(found)} ({error})") from error
    return numbers


def is_missing(value: object) -> bool:
    """Whether a Python object stands for a missing value."""
    pandas = nw.dependencies.get_pandas()
    if value is None or (pandas is not None and value is pandas.NA):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def read_vector(values: Any, name: str) -> np.ndarray:
    """One number per row in a new float array; missing values become NaN."""
    array = np.asarray(values)
    if array.dtype.kind in "mM":
        raise TypeError(f"{name} holds dates or times; numbers are needed.")
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported: {name} must be real numbers.")
    if array.dtype.kind in "OUS":
        values = enumerate(np.atleast_1d(array))
        return np.array([_number(value, name, row) for row, value in values])
    return np.array(array, dtype=np.float64)


def _number(value: Any, name: str, row: int) -> float:
    """A Python object as a float; NaN when it is missing."""
    if is_missing(value):
        return np.nan
    try:
        if isinstance(value, str | bytes):
            raise TypeError("a string is not a number")
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must hold numbers, row {row} has {str(value)!r}."
        ) from error


def check_finite(
    table: np.ndarray, names: Sequence[str], admits: np.ndarray | bool = False
) -> None:
    """Refuse infinity, and NaN where not admitted, naming column and first row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(table.sum()) or np.isfinite(table).all():
            return
    bad = ~np.isfinite(table) & ~(np.isnan(table) & admits)
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax())
    row = int(bad[:, column].argmax())
    kind = "NaN" if np.isnan(table[row, column]) else "infinity (inf)"
    raise ValueError(_bad_value(names[column], row, kind))


def _not_numbers(found: str) -> str:
    return (
        f"{found}, not numbers. Declare it a category with categorical=, pass a data "
        "frame with text columns, or drop it."
    )


def _bad_value(name: str, row: int, kind: str) -> str:
    return (
        f"Column {name!r} of X contains {kind}, first at row {row}. Drop or impute "
        "such rows first, for example with sklearn.impute.SimpleImputer"
        + (', or fit with missing="indicator".' if "NaN" in kind else ".")
    )
