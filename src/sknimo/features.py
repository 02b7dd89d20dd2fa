"""Columns to features: names, basis, groups, reference and scaling.

A *feature* is a column as the user sees it. It enters the model through *terms*, basis
columns that are zero at the reference, and is seen by the network through *inputs*,
which are zero there too. A feature may own several of both; `term_feature` and
`input_feature` say which columns belong together, so that one modulator masks them all.
A feature without terms (a constant column) has no effect and no coefficient.

This is the only module that knows about data frames and dtypes.

Shapes: n rows, p features, q terms, r inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np

from sknimo.exceptions import DataWarning

# Rounding of a reference below this share of the scale does not show.
RESIDUE = 1e-12


@dataclass(frozen=True, slots=True)
class Linear:
    """A numeric feature as one standardised column, `(x - reference) / scale`.

    Attributes
    ----------
    reference : float
        Where the term is zero.
    scale : float
        Standard deviation of the training rows; zero marks a constant column.
    residue : float
        What the mean exceeds `reference` by when a float is too coarse to hold it: a
        mean of 1e8 has no digits below 1e-8, and training would amplify the loss.
    """

    reference: float
    scale: float
    residue: float = 0.0

    @property
    def n_terms(self) -> int:
        """Number of columns: one, or none for a constant feature."""
        return int(self.scale > 0)

    def terms(self, x: np.ndarray) -> np.ndarray:
        """Basis columns, (n, n_terms)."""
        if self.scale == 0:
            return np.empty((len(x), 0))
        above = x - self.reference
        if self.residue:
            above = np.where(above == 0, 0.0, above - self.residue)
        return (above / self.scale)[:, None]

    def unit(self) -> np.ndarray:
        """Slope of each term per unit of x, (n_terms,)."""
        return np.array([1 / self.scale] if self.scale else [])

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """Derivative of each term in x at every row, (n, n_terms)."""
        return np.broadcast_to(self.unit(), (len(x), self.n_terms))


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """How a numeric table becomes terms and network inputs.

    Attributes
    ----------
    names : tuple of str
    bases : tuple of Linear
        One per feature.
    """

    names: tuple[str, ...]
    bases: tuple[Linear, ...]

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return len(self.bases)

    @property
    def term_feature(self) -> np.ndarray:
        """The feature that owns each term, (q,)."""
        widths = [basis.n_terms for basis in self.bases]
        return np.repeat(np.arange(self.n_features), widths)

    @property
    def input_feature(self) -> np.ndarray:
        """The feature that owns each network input, (r,)."""
        return self.term_feature

    @property
    def reference(self) -> np.ndarray:
        """Reference point in the units of the table, (p,)."""
        return np.array([basis.reference for basis in self.bases])

    @property
    def scale(self) -> np.ndarray:
        """Spread of each feature in training, zero for a constant one, (p,)."""
        return np.array([basis.scale for basis in self.bases])

    @property
    def unit(self) -> np.ndarray:
        """Slope of each term per unit of its column, (q,)."""
        return np.concatenate([basis.unit() for basis in self.bases] or [np.empty(0)])

    def terms(self, table: np.ndarray) -> np.ndarray:
        """Basis columns, (n, q)."""
        columns = [basis.terms(table[:, j]) for j, basis in enumerate(self.bases)]
        return np.concatenate(columns or [np.empty((len(table), 0))], axis=1)

    def inputs(self, table: np.ndarray) -> np.ndarray:
        """Network inputs, (n, r)."""
        return self.terms(table)

    def term_slopes(self, table: np.ndarray) -> np.ndarray:
        """Derivative of each term in the column of its feature, (n, q)."""
        columns = [basis.slopes(table[:, j]) for j, basis in enumerate(self.bases)]
        return np.concatenate(columns or [np.empty((len(table), 0))], axis=1)

    def input_slopes(self, table: np.ndarray) -> np.ndarray:
        """Derivative of each network input in the column of its feature, (n, r)."""
        return self.term_slopes(table)

    def per_feature(self, per_term: np.ndarray) -> np.ndarray:
        """Sum term columns into their features, (..., q) to (..., p)."""
        total = np.zeros((*per_term.shape[:-1], self.n_features))
        for column, feature in enumerate(self.term_feature):
            total[..., feature] += per_term[..., column]
        return total


def fit_features(
    table: np.ndarray, names: Sequence[str], weight: np.ndarray
) -> FeatureMap:
    """Learn reference and scale of every column from weighted rows."""
    bases = tuple(fit_linear(column, weight) for column in table.T)
    constant = [
        name for name, basis in zip(names, bases, strict=True) if basis.scale == 0
    ]
    if constant:
        shown = ", ".join(repr(name) for name in constant[:5])
        more = f" and {len(constant) - 5} more" if len(constant) > 5 else ""
        warnings.warn(
            f"Constant column {shown}{more}: its coefficient is zero and it has no "
            "effect on predictions. Drop it to silence this warning.",
            DataWarning,
            stacklevel=5,
        )
    return FeatureMap(tuple(names), bases)


def fit_linear(column: np.ndarray, weight: np.ndarray) -> Linear:
    """Weighted mean and standard deviation without cancellation or overflow."""
    share = weight / weight.sum()
    # Two passes: the second removes the rounding error of a mean far from zero.
    mean = float(share @ column)
    mean += float(share @ (column - mean))
    residual = column - mean
    residue = float(share @ residual)
    residual -= residue
    largest = float(np.abs(residual).max())
    floor = 16 * np.finfo(float).eps * float(np.abs(column).max())
    if largest <= max(floor, 1e-300):
        return Linear(mean, 0.0)
    scale = largest * float(np.sqrt(share @ (residual / largest) ** 2))
    return Linear(mean, scale, residue if abs(residue) > RESIDUE * scale else 0.0)


def read_table(X: Any) -> Any:
    """Turn a data frame into a float array; leave anything else as it is.

    Columns that are not numbers are refused by name with a remedy, missing and
    infinite values by name and row.
    """
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return _read_array(X)
    columns = [
        _read_column(column, str(column.name)) for column in frame.iter_columns()
    ]
    if not columns:
        return np.empty((len(frame), 0))
    return np.column_stack(columns)


def _read_column(column: nw.Series[Any], name: str) -> np.ndarray:
    """One numeric column as float64, or a refusal with a remedy."""
    dtype = column.dtype
    if dtype.is_temporal():
        raise TypeError(
            f"Column {name!r} holds dates or times ({dtype}). Convert it to a number "
            "with a meaning first, for example days since a start."
        )
    if dtype == nw.Object:
        return _read_objects(column.to_numpy(), name)
    if not (dtype.is_numeric() or dtype == nw.Boolean):
        raise ValueError(_not_numbers(f"Column {name!r} holds {dtype}"))
    missing = column.is_null().to_numpy()
    if missing.any():
        raise ValueError(_bad_value(name, int(missing.argmax()), "missing value (NaN)"))
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _read_array(X: Any) -> Any:
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
        columns = [_read_objects(column, f"x{j}") for j, column in enumerate(X.T)]
        return np.column_stack(columns)
    return X


def _read_objects(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers kept as Python objects; anything else is refused by name and row."""
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        if is_missing(value):
            raise ValueError(_bad_value(name, row, "missing value (NaN)"))
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


def check_finite(table: np.ndarray, names: Sequence[str]) -> None:
    """Refuse NaN and infinity, naming the column and the first row."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(table.sum()) or np.isfinite(table).all():
            return
    bad = ~np.isfinite(table)
    column = int(bad.any(axis=0).argmax())
    row = int(bad[:, column].argmax())
    kind = "NaN" if np.isnan(table[row, column]) else "infinity (inf)"
    raise ValueError(_bad_value(names[column], row, kind))


def _not_numbers(found: str) -> str:
    return (
        f"{found}, not numbers. Encode it first, for example with "
        "sklearn.preprocessing.OneHotEncoder, or drop it."
    )


def _bad_value(name: str, row: int, kind: str) -> str:
    return (
        f"Column {name!r} of X contains {kind}, first at row {row}. Drop or impute "
        "such rows first, for example with sklearn.impute.SimpleImputer."
    )
