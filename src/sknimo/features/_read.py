"""Read data frames and arrays: names, dtypes, levels and missing values.

This is the only module that knows about data frames and dtypes. What it returns is a
numeric table: a level is its code, a missing value NaN.

Shapes: n rows, p columns.
"""

import datetime
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from sknimo.features._bases import MISSING_LABEL, Clipped, Label, where_known
from sknimo.features._disguise import warn_disguise
from sknimo.features._fit import find_columns, only_missing
from sknimo.features._map import FeatureMap

Column = nw.Series[Any] | np.ndarray
# Levels that are whole numbers, as files hold them.
LEAST_INTEGER, LARGEST_INTEGER = -(2**63), 2**64 - 1
# Standard deviations from the reference beyond which squares of curves may overflow.
FURTHEST = 1e50
MISSING, INFINITE = "missing value (NaN)", "infinity (inf)"
NO_DATES = (
    "Convert it to a number with a meaning first, for example days since a start."
)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns as numbers."""

    # Floats; what was given, untouched, when there was nothing to read.
    values: Any  # (n, p)
    # Levels of each categorical column by code; None when no column is categorical.
    levels: tuple[tuple[Label, ...] | None, ...] | None = None


def read_table(
    X: Any,
    categorical: Sequence[Any] | str | int | None = None,
    admit_missing: bool = False,
) -> Table:
    """Read training data: learn levels, turn a data frame into floats.

    Text, categorical and enum columns of a data frame are categories, and so are the
    columns that `categorical` names; text that looks like numbers or dates is worth a
    warning. Anything else that is not a number is refused by name with a remedy, and so
    are missing values unless admitted.
    """
    frame = as_frame(X)
    if frame is None and categorical is None:
        return Table(read_array(X, None, admit_missing))
    columns = split_columns(X, frame)
    if columns is None:
        return Table(X)
    names = name_columns(frame, len(columns))
    declared = find_columns(categorical, names, "categorical")
    read, levels = [], []
    for j, (column, name) in enumerate(zip(columns, names, strict=True)):
        own = None
        if j in declared or is_text(column):
            labels = read_labels(column, name)
            found = {label for label in labels if label is not None}
            order = stated_order(column, name)
            own = order_levels(found, None in labels, order, name)
            if j not in declared and not is_category(column):
                warn_disguise(own, name)
            read.append(code_labels(labels, own, name, admit_missing))
        else:
            read.append(read_numbers(column, name, admit_missing))
        levels.append(own)
    some = any(own is not None for own in levels)
    table = np.column_stack(read) if read else np.empty((len(X), 0))
    return Table(table, tuple(levels) if some else None)


def encode_table(
    X: Any,
    features: FeatureMap,
    handle_unknown: str = "error",
) -> Any:
    """Read new data as the training data were read.

    An unknown level is refused by name and row, or taken for the baseline when
    `handle_unknown` is "reference". Missing values are NaN; `check_new` refuses them
    in columns that had none in training.
    """
    frame = as_frame(X)
    known = [features.levels(j) for j in range(features.n_features)]
    if frame is None and not any(known):
        return read_array(X, features.names, admits_missing=True)
    columns = split_columns(X, frame)
    if columns is None:
        return X
    read = []
    for j, (column, own) in enumerate(zip(columns, known, strict=True)):
        name = features.names[j]
        if own is not None:
            unknown = int(features.reference[j]) if handle_unknown != "error" else None
            labels = read_labels(column, name)
            read.append(code_labels(labels, own, name, True, unknown=unknown))
        elif is_text(column):
            raise ValueError(
                f"Column {name!r} holds text, but it held numbers in training. Convert "
                "it to numbers, or fit again."
            )
        else:
            read.append(read_numbers(column, name, True))
    return np.column_stack(read)


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame, None for anything else."""
    frame = as_frame(X)
    for name in () if frame is None else frame.columns:
        if not isinstance(name, str):
            raise TypeError(
                f"Column {name!r} of the data frame has no text for a name, so that a "
                "formula cannot name it. Rename it."
            )
    return None if frame is None else list(frame.columns)


def take_column(X: Any, name: str) -> Any:
    """One column of a data frame, as its library has it."""
    return nw.from_native(X, eager_only=True)[name].to_native()


def take_columns(X: Any, columns: Mapping[str, np.ndarray | None]) -> Any:
    """Some columns of a data frame in a new one; arrays are columns to add."""
    frame = nw.from_native(X, eager_only=True)
    new = [
        nw.new_series(name, values, nw.Float64, backend=frame.implementation)
        for name, values in columns.items()
        if values is not None
    ]
    return frame.with_columns(*new).select(*columns).to_native()


def take_rows(X: Any, rows: slice) -> Any:
    """Some rows of a data frame."""
    frame = nw.from_native(X, eager_only=True)
    return frame[list(range(len(frame))[rows])].to_native()


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


def has_columns(X: Any) -> bool:
    """Whether something is a table at all: a data frame, a matrix, rows in a list."""
    if isinstance(X, list | tuple):
        return bool(X) and isinstance(X[0], list | tuple | np.ndarray)
    return len(getattr(X, "shape", ())) == 2


def drop_gradient(values: Any) -> Any:
    """A tensor as its bare numbers, where numpy can read them; others as they are."""
    return values.detach().cpu() if hasattr(values, "detach") else values


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except DuplicateError as error:  # says which, and how often
        told = " ".join(str(error).split())
        raise ValueError(f"{told}. Rename or drop columns of X.") from error
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X is a lazy frame, which has no rows yet. Give X.collect().")
    return frame if isinstance(frame, nw.DataFrame) else None


def split_columns(X: Any, frame: nw.DataFrame[Any] | None) -> list[Column] | None:
    """Columns of a data frame, an array or a list of rows; None without columns."""
    if frame is not None:
        return [_spell_pieces(column) for column in frame.iter_columns()]
    if not isinstance(X, np.ndarray | list | tuple):
        return None
    try:
        # Lists become objects: as an array of strings numbers would lose their type.
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
    except ValueError:  # rows of different lengths
        return None
    return list(array.T) if array.ndim == 2 else None


def _spell_pieces(column: nw.Series[Any]) -> nw.Series[Any]:
    """Pieces of a number, such as `pandas.cut` makes, as their text; others as is.

    By the type, not value by value: beside a gap pandas writes (0, 2] as (0.0, 2.0].
    """
    native, pandas = column.to_native(), nw.dependencies.get_pandas()
    if not nw.dependencies.is_pandas_series(native):
        return column
    kind = native.dtype
    if isinstance(kind, pandas.IntervalDtype):
        native = native.astype("category")
        kind = native.dtype
    levels = getattr(kind, "categories", None)
    if levels is None or not isinstance(levels.dtype, pandas.IntervalDtype):
        return column
    return nw.from_native(native.cat.rename_categories(str), series_only=True)


def name_columns(frame: nw.DataFrame[Any] | None, n_columns: int) -> list[str]:
    """Names of the columns; names that are no text are none, as in scikit-learn."""
    if frame is not None and all(isinstance(name, str) for name in frame.columns):
        return list(frame.columns)
    return [f"x{j}" for j in range(n_columns)]


def is_text(column: Column) -> bool:
    """Whether a column of a data frame holds categories by its type."""
    if isinstance(column, np.ndarray):
        return False
    if column.dtype in (nw.String, nw.Categorical, nw.Enum):
        return not column.is_null().all()  # a column of nothing may have any type
    return column.dtype == nw.Object and any(
        isinstance(value, str) for value in column.to_list()
    )


def is_category(column: Column) -> bool:
    """Whether the type of a column says that its text are levels."""
    dtype = None if isinstance(column, np.ndarray) else column.dtype
    return dtype in (nw.Categorical, nw.Enum)


def read_labels(column: Column, name: str, first_row: int = 0) -> list[Label | None]:
    """Levels as plain Python values, None where missing."""
    values = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    labels = []
    seen: dict[tuple[type, Any], Label | None] = {}
    for row, value in enumerate(values, first_row):
        try:
            label = seen[type(value), value]
        except (KeyError, TypeError):  # new; what cannot be looked up is no label
            label = seen[type(value), value] = _label(value, name, row)
        labels.append(label)
    return labels


def _label(value: Any, name: str, row: int) -> Label | None:
    if isinstance(value, np.generic):
        value = value.item()
    if is_missing(value):
        return None
    pandas = nw.dependencies.get_pandas()
    if pandas is not None and isinstance(value, pandas.Interval):
        return str(value)
    if isinstance(value, float):
        if np.isinf(value):
            raise ValueError(_bad_value(name, row, INFINITE))
        if not (value.is_integer() and LEAST_INTEGER <= value <= LARGEST_INTEGER):
            return value
        value = int(value)  # 1 and 1.0 are one level
    if isinstance(value, int) and not LEAST_INTEGER <= value <= LARGEST_INTEGER:
        raise ValueError(
            f"Column {name!r} has a level of more than 64 bits at row {row}, which no "
            "file can hold. Write the levels of this category as text."
        )
    if isinstance(value, str | bool | int):
        return value
    raise TypeError(
        f"Column {name!r} holds {type(value).__name__} at row {row}; the levels of a "
        "category are text or numbers. Convert it to text first, in pandas with "
        ".astype(str)."
    )


def stated_order(column: Column, name: str) -> tuple[Label, ...] | None:
    """Levels in the order that the type of a column gives them, if it does."""
    dtype = None if isinstance(column, np.ndarray) else column.dtype
    if not isinstance(dtype, nw.Enum):
        return None
    own = [_label(label, name, 0) for label in dtype.categories]
    return tuple(label for label in own if label is not None)


def order_levels(
    found: Collection[Label],
    has_missing: bool,
    own_order: tuple[Label, ...] | None,
    name: str,
) -> tuple[Label, ...]:
    """Distinct levels: in their own order where they have one, else sorted."""
    if not found:
        raise ValueError(only_missing(name))
    if has_missing and MISSING_LABEL in found:
        raise ValueError(
            f"Column {name!r} has a level {MISSING_LABEL!r} beside missing values "
            "(NaN). Rename the level, or make these values missing too."
        )
    levels = sorted(found, key=lambda label: (isinstance(label, str), label))
    shown: dict[str, Label] = {}
    for level in levels:
        alike = shown.setdefault(str(level), level)
        if alike is not level:
            raise ValueError(
                f"Column {name!r} has levels that look alike: {alike!r} and {level!r}. "
                "Give all its values one type."
            )
    if own_order is not None:
        return tuple(label for label in own_order if label in found)
    return tuple(levels)


def code_labels(
    labels: list[Label | None],
    levels: Collection[Label],
    name: str,
    admit_missing: bool,
    first_row: int = 0,
    unknown: int | None = None,
) -> np.ndarray:
    """Code of every label, NaN where missing; `unknown` for others, or a refusal."""
    known: dict[Label | None, float] = {label: j for j, label in enumerate(levels)}
    if admit_missing:
        known[None] = np.nan
    codes = np.array([known.get(label, -1) for label in labels], dtype=float)
    for place in np.flatnonzero(codes == -1).tolist():
        label, row = labels[place], first_row + place
        if label is None:
            raise ValueError(_bad_value(name, row, MISSING))
        if unknown is None:
            shown = ", ".join(map(repr, list(levels)[:8]))
            raise ValueError(
                f"Column {name!r} has level {label!r} at row {row}, which no training "
                f"row had (known: {shown}). Fit again with such rows, or use "
                'handle_unknown="reference" to take it for the baseline.'
            )
        codes[place] = unknown
    return codes


def read_numbers(
    column: Column, name: str, admit_missing: bool, first_row: int = 0
) -> np.ndarray:
    """One numeric column as float64, or a refusal with a remedy."""
    if isinstance(column, np.ndarray):
        return _read_objects(column, name, admit_missing, first_row)
    dtype, shown = column.dtype, str(column.dtype)
    if dtype == nw.Unknown:  # such as the periods of pandas
        shown = str(getattr(column.to_native(), "dtype", dtype))
    if dtype.is_temporal() or shown.startswith("period"):
        raise TypeError(f"Column {name!r} holds dates or times ({shown}). {NO_DATES}")
    missing = column.is_null().to_numpy()
    if missing.any() and not admit_missing:
        row = first_row + int(missing.argmax())
        raise ValueError(_bad_value(name, row, MISSING))
    if missing.all():
        return np.full(len(missing), np.nan)
    sparse = dtype == nw.Unknown and column.to_numpy().dtype.kind in "fiub"
    if dtype == nw.Object or sparse:
        return _read_objects(column.to_numpy(), name, admit_missing, first_row)
    if not (dtype.is_numeric() or dtype == nw.Boolean):
        raise ValueError(_not_numbers(f"Column {name!r} holds {shown}"))
    if not dtype.is_integer():  # arrow refuses to round integers beyond 2**53
        column = column.cast(nw.Float64)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def read_array(
    X: Any,
    names: Sequence[str] | None,
    admits_missing: np.ndarray | bool,
    first_row: int = 0,
) -> Any:
    """Refuse dates and strings in arrays; turn objects and long doubles into floats."""
    X = drop_gradient(X)
    X = _read_rows(X) if isinstance(X, list | tuple) else X
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        raise TypeError(
            "X holds dates or times. Convert them to numbers with a meaning first, "
            "for example days since a start."
        )
    if kind in ("U", "S"):
        raise ValueError(_not_numbers("X holds strings"))
    wide = kind == "f" and X.dtype.itemsize > 8
    if (kind == "O" or wide) and isinstance(X, np.ndarray) and X.ndim == 2 and X.size:
        names = name_columns(None, X.shape[1]) if names is None else names
        admits = np.broadcast_to(admits_missing, (len(names),))
        columns = zip(X.T, names, admits, strict=True)
        return np.column_stack([_read_objects(*each, first_row) for each in columns])
    return X


def _read_rows(X: list[Any] | tuple[Any, ...]) -> Any:
    """Rows in a list as an array of objects, unless all of them are plain numbers."""
    if not all(isinstance(row, list | tuple) for row in X):
        return X
    for row, values in enumerate(X):
        if len(values) != len(X[0]):
            raise ValueError(
                f"Rows of X differ in length: row 0 has {len(X[0])} values, row {row} "
                f"has {len(values)}. Give every row one value per column."
            )
    with suppress(ValueError):  # values that are sequences themselves
        if np.asarray(X).dtype.kind in "biuf":
            return X
    array = np.empty((len(X), len(X[0])), dtype=object)
    for row, values in enumerate(X):
        for j, value in enumerate(values):
            array[row, j] = value
    return array


def _read_objects(
    values: np.ndarray, name: str, admit_missing: bool, first_row: int = 0
) -> np.ndarray:
    """Numbers of another type, or Python objects; others are refused by row."""
    if values.dtype.kind in "fiub":
        return _to_double(values, f"Column {name!r} of X", first_row)
    numbers = np.empty(len(values))
    for row, value in enumerate(values, first_row):
        if is_missing(value):
            if not admit_missing:
                raise ValueError(_bad_value(name, row, MISSING))
            numbers[row - first_row] = np.nan
            continue
        if isinstance(value, str | bytes):
            text = value.item() if isinstance(value, np.generic) else value
            raise ValueError(
                _not_numbers(f"Column {name!r} holds {text!r} at row {row}")
            )
        try:
            numbers[row - first_row] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            found = f"Column {name!r} holds {type(value).__name__} at row {row}"
            if _is_time(value):
                raise TypeError(f"{found}. {NO_DATES}") from error
            raise TypeError(f"{_not_numbers(found)} ({error})") from error
    return numbers


def is_missing(value: object) -> bool:
    """Whether a Python object stands for a missing value."""
    pandas = nw.dependencies.get_pandas()
    if value is None:
        return True
    if pandas is not None and (value is pandas.NA or value is pandas.NaT):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_time(value: object) -> bool:
    """Whether a Python object is a date, a time or a span of time."""
    pandas = nw.dependencies.get_pandas()
    if pandas is not None and isinstance(value, pandas.Period):
        return True
    return isinstance(value, datetime.date | datetime.time | datetime.timedelta)


def read_vector(values: Any, name: str, first_row: int = 0) -> np.ndarray:
    """One number per row in a new float array; missing values become NaN.

    `first_row` is what messages call the first of them.
    """
    array = np.asarray(drop_gradient(values))
    if array.dtype.kind in "mM":
        raise TypeError(f"{name} holds dates or times; numbers are needed.")
    if np.iscomplexobj(array):
        raise ValueError(f"Complex data not supported: {name} must be real numbers.")
    if array.dtype.kind in "OUS":
        values = enumerate(np.atleast_1d(array), first_row)
        return np.array([_number(value, name, row) for row, value in values])
    return _to_double(array, name, first_row)


def _to_double(array: np.ndarray, name: str, first_row: int = 0) -> np.ndarray:
    """A copy in float64; what has become infinite on the way is refused by row."""
    with np.errstate(over="ignore"):
        double = np.array(array, dtype=np.float64)
    if array.dtype.kind != "f" or array.dtype.itemsize <= 8:
        return double
    lost = np.isinf(double) & np.isfinite(array)
    if lost.any():
        row = int(np.atleast_1d(lost).argmax())
        raise ValueError(
            f"{name} holds a number beyond 1.8e308 at row {first_row + row}, which "
            "float64 cannot hold. Measure it in larger units."
        )
    return double


def _number(value: Any, name: str, row: int) -> float:
    """A Python object as a float; NaN when it is missing."""
    if is_missing(value):
        return np.nan
    try:
        if isinstance(value, str | bytes):
            raise TypeError("a string is not a number")
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must hold numbers, row {row} has {str(value)!r}."
        ) from error


def check_finite(
    table: np.ndarray,
    names: Sequence[str],
    admits: np.ndarray | bool = False,
    first_row: int = 0,
    is_new: bool = False,
) -> None:
    """Refuse infinity, and NaN where not admitted, naming column and first row.

    `first_row` is what messages call the first row of the table; new rows are not those
    of the training.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(table.sum()) or np.isfinite(table).all():
            return
    bad = ~np.isfinite(table) & ~(np.isnan(table) & admits)
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax())
    row = int(bad[:, column].argmax())
    is_gap = np.isnan(table[row, column])
    kind = MISSING if is_gap else INFINITE
    raise ValueError(_bad_value(names[column], first_row + row, kind, is_new))


def check_new(table: np.ndarray, features: FeatureMap, anywhere: bool = False) -> None:
    """Refuse new rows that nothing can be computed from, naming column and row.

    Beside infinity and gaps that training had not, these are values too far from the
    training rows, unless the model ignores the column or holds it at its range's end,
    or rows may be anywhere.
    """
    scale = features.scale
    with np.errstate(over="ignore"):
        room = np.where((scale > 0) & (not anywhere), FURTHEST * scale, np.inf)
        low, high = features.reference - room, features.reference + room
    if table.min() > low.max() and table.max() < high.min():  # quick; NaN is neither
        return
    check_finite(table, features.names, features.admits_missing, is_new=True)
    far = (table < low) | (table > high)
    for j in np.flatnonzero(far.any(axis=0)).tolist():
        if not isinstance(where_known(features.bases[j]), Clipped):
            row = int(far[:, j].argmax())
            raise ValueError(
                f"Column {features.names[j]!r} of X is {table[row, j]:.3g} at row "
                f"{row}, too far from the training rows (standard deviation "
                f"{scale[j]:.3g}) to compute with. Check its units, or fit with "
                'clip_inputs="all" to hold predictions at the training range.'
            )


def _not_numbers(found: str) -> str:
    return (
        f"{found}, not numbers. Declare it a category with categorical=, pass a data "
        "frame with text columns, or drop it."
    )


def _bad_value(name: str, row: int, kind: str, is_new: bool = False) -> str:
    found = f"Column {name!r} of X contains {kind}, first at row {row}."
    remedy = (
        ", for example with sklearn.impute.SimpleImputer, or fit with "
        'missing="indicator" on rows where some are missing'
    )
    if kind == INFINITE:  # imputers refuse infinity as well
        return f"{found} Replace it by NaN, then drop or impute such rows{remedy}."
    if not is_new:
        return f"{found} Drop or impute such rows first{remedy}."
    return (
        f"{found} Training rows had no gap in this column. Drop or impute such rows "
        f'first{remedy}; beside it, use handle_unknown="reference" to take gaps for '
        "the reference."
    )
