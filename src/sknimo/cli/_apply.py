"""Apply a saved model to a table of any length, part by part.

Parts are as long as the blocks in which the model itself works, so that predictions do
not depend on how a table was cut, to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sknimo.cli._errors import APPLIED, UserError, count_rows
from sknimo.cli._far import FarRows
from sknimo.cli._fit import (
    ColumnRoles,
    FileRows,
    Fitted,
    drop_missing,
    judge,
    label_target,
    read_rows,
)
from sknimo.cli._tables import (
    TableReader,
    TextFormat,
    check_names,
    list_names,
    read_numbers,
)

Quantity = Literal["contributions", "local-coefficients", "local-effects", "all"]

# Rows of a part, rounded down to blocks of the model.
PART_ROWS = 8192
# Explanation attribute and column prefix of each quantity.
PREFIXES = {
    "contributions": ("values", "contribution"),
    "local-coefficients": ("local_coef", "local_coef"),
    "local-effects": ("local_effect", "local_effect"),
}


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some consecutive rows of a table."""

    table: pa.Table
    first: int  # where the first row stands in the whole table, from zero


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """How a model finds its features in a table."""

    features: tuple[str, ...]  # columns of the table, in the order of the features
    named: bool  # whether the model was fitted with names
    types: dict[str, pa.DataType]

    def select(self, table: pa.Table) -> Any:
        """The features as the model was given them in training."""
        X = table.select(self.features)
        if self.named:
            return X
        columns = [column.to_numpy(zero_copy_only=False) for column in X.columns]
        kind = object if any(c.dtype == object for c in columns) else np.float64
        return np.column_stack([column.astype(kind) for column in columns])


def find_columns(est: Any, reader: TableReader) -> FeatureColumns:
    """Match the features of a model with the columns of a table."""
    features = est.model_.features
    found = reader.schema.names
    named = hasattr(est, "feature_names_in_")
    names = [str(name) for name in getattr(est, "feature_names_in_", features.names)]
    missing = [name for name in names if name not in found]
    if missing and named:
        raise UserError(
            f"{reader.name} has no column {list_names(missing)}, which the model "
            f"needs. Its columns are {list_names(found)}."
        )
    if missing:  # fitted from an array: columns count by position
        if len(found) != len(names):
            raise UserError(
                f"The model was fitted without column names and needs {len(names)} "
                f"columns; {reader.name} has {len(found)}."
            )
        names = found
    types = {
        name: _column_type(features.levels(j), reader.schema.field(name).type)
        for j, name in enumerate(names)
    }
    return FeatureColumns(tuple(names), named, types)


def _column_type(levels: Sequence[Any] | None, found: pa.DataType) -> pa.DataType:
    """Type to read a feature with: what the model needs, truth values as they are."""
    if levels is not None and any(isinstance(level, str) for level in levels):
        return pa.string()
    return pa.bool_() if pa.types.is_boolean(found) else pa.float64()


def read_parts(
    est: Any, reader: TableReader, columns: FeatureColumns, more: Sequence[str | None]
) -> Iterator[TablePart]:
    """The features and some more columns of a table, part by part; None is none."""
    every = dict.fromkeys([*columns.features, *more])
    names = [name for name in every if name is not None]
    size = part_rows(est)
    waiting: list[pa.Table] = []
    n_waiting = first = 0
    for batch in reader.batches(names, columns.types):
        waiting.append(batch)
        n_waiting += len(batch)
        while n_waiting >= size:
            rows = pa.concat_tables(waiting)
            yield TablePart(rows.slice(0, size), first)
            waiting, n_waiting = [rows.slice(size)], n_waiting - size
            first += size
    if n_waiting:
        yield TablePart(pa.concat_tables(waiting), first)
    elif not first:
        raise UserError(f"{reader.name} has no rows.")


def part_rows(est: Any) -> int:
    """Rows of a part: a whole number of the model's own blocks."""
    block = next(iter(est.model_.blocks(PART_ROWS))).stop
    return int(block * (PART_ROWS // block))


def predict_part(
    est: Any,
    part: TablePart,
    columns: FeatureColumns,
    offset: str | None,
    kept: Sequence[str],
    far: FarRows,
    at: Sequence[float] = (),
    level: float | None = None,
) -> pa.Table:
    """Kept columns of a part, then its predictions; far rows are counted."""
    X, known = columns.select(part.table), read_numbers(part.table, offset)
    made: dict[str, Any] = {}
    with count_rows(part.first, APPLIED), far.count(est, X, part.first):
        if hasattr(est, "baseline_"):
            made |= predict_survival(est, X, at, level)
        else:
            made["prediction"] = est.predict(X, known)
        if hasattr(est, "classes_"):
            chances = est.predict_proba(X, known).T
            for label, chance in zip(est.classes_, chances, strict=True):
                made[f"probability_{label}"] = chance
        if level is not None and not hasattr(est, "baseline_"):
            found = est.predict_interval(X, level=level, offset=known)
            for name, values in found.columns().items():
                made.setdefault(name, values)
    for name in kept:
        if name in made:
            raise UserError(
                f"The kept column {name!r} has the name of a column that is written; "
                "rename it in the data or do not keep it."
            )
    out = {name: part.table[name] for name in kept}
    return pa.table(out | {name: pa.array(values) for name, values in made.items()})


def predict_survival(
    est: Any, X: Any, at: Sequence[float], level: float | None = None
) -> dict[str, np.ndarray]:
    """Log hazard and hazard ratio; times where there are no strata."""
    risk = est.predict(X)
    made = {"prediction": risk, "hazard_ratio": np.exp(risk)}
    if len(est.baseline_.labels) > 1:
        asked = ["--at"] * bool(at) + ["--interval"] * (level is not None)
        if asked:
            raise UserError(
                "Survival of a model with strata depends on them; leave "
                f"{' and '.join(asked)}."
            )
        return made
    made["median_time"] = est.predict_median(X)
    if at:
        curves = est.predict_survival_function(X, times=np.unique(at))
        for time, alive in zip(curves.times, curves.values.T, strict=True):
            made[f"survival_{time:g}"] = np.ascontiguousarray(alive)
    if level is not None:  # of times, unlike `prediction`
        found = est.predict_interval(X, level=level)
        made |= {"lower_time": found.lower, "upper_time": found.upper}
    return made


def choose_class(est: Any, given: str | None) -> Any:
    """The model of the class that is to be explained, where there are several."""
    classes: Any = getattr(est, "classes_", ())
    if len(classes) < 3:
        if given is not None:
            raise UserError("--class is for models of more than two classes.")
        return est
    known = {str(label): label for label in classes.tolist()}
    if given not in known:
        raise UserError(
            f"The model has the classes {list_names(list(known))}. Say --class and one "
            "of them."
        )
    return est.for_class(known[given])


def explain_part(
    est: Any, part: TablePart, columns: FeatureColumns, offset: str | None, method: str
) -> Any:
    """Explanation of a part."""
    X, known = columns.select(part.table), read_numbers(part.table, offset)
    with count_rows(part.first, APPLIED):
        return est.explain(X, method=method, offset=known)


def name_prediction(est: Any, explanation: Any) -> dict[str, np.ndarray]:
    """Predictions of explained rows under the names that `predict` gives them."""
    if hasattr(est, "baseline_"):
        return {"prediction": explanation.eta, "hazard_ratio": explanation.mean}
    if not hasattr(est, "classes_"):
        return {"prediction": explanation.mean}
    if len(est.classes_) > 2:
        label = str(est.classes_[est._class])
        return {"explained_class": np.full(len(explanation), label)}
    first, second = est.classes_
    return {
        "prediction": est.classes_[(explanation.eta > 0).astype(int)],
        f"probability_{first}": 1 - explanation.mean,
        f"probability_{second}": explanation.mean,
    }


def explain_wide(est: Any, explanation: Any, quantity: Quantity) -> pa.Table:
    """One line per row, one column per feature and quantity."""
    out = {
        **name_prediction(est, explanation),
        "eta": explanation.eta,
        "base_value": np.full(len(explanation), explanation.base_value),
    }
    if explanation.offset.any():
        out["offset"] = explanation.offset
    for attribute, prefix in _asked(quantity):
        values = getattr(explanation, attribute)
        for j, name in enumerate(explanation.names):
            out[f"{prefix}_{name}"] = np.ascontiguousarray(values[:, j])
    return pa.table(out)


def explain_long(
    explanation: Any, part: TablePart, columns: FeatureColumns, quantity: Quantity
) -> pa.Table:
    """One line per row and feature; rows count from one."""
    n_rows, p = explanation.values.shape
    cells = [part.table[name].cast(pa.string()) for name in columns.features]
    rows = zip(*(column.to_pylist() for column in cells), strict=True)
    out: dict[str, Any] = {
        "row": np.repeat(np.arange(n_rows) + part.first + 1, p),
        "feature": list(explanation.names) * n_rows,
        "value": pa.array([cell for row in rows for cell in row], pa.string()),
    }
    for attribute, prefix in _asked(quantity):
        out[prefix] = getattr(explanation, attribute).ravel()
    return pa.table(out)


def check_test(path: str, text: TextFormat, roles: ColumnRoles) -> None:
    """Refuse a table to judge by that cannot serve, before a fit that may take long."""
    with TableReader(path, text) as reader:
        check_names(reader, roles.special)


def judge_by(
    fitted: Fitted, path: str, text: TextFormat, roles: ColumnRoles, complete: bool
) -> Fitted:
    """The same with the rows of another table to judge by, complete ones if asked."""
    rows = read_known(fitted.est, path, text, roles)
    rows = drop_missing(rows) if complete else rows
    return replace(fitted, held_out=rows, judged=judge(fitted.est, rows))


def read_known(est: Any, path: str, text: TextFormat, roles: ColumnRoles) -> FileRows:
    """All rows of a table with their targets, as a model knows them."""
    with TableReader(path, text) as reader:
        columns = find_columns(est, reader)
        names = list(dict.fromkeys([*columns.features, *roles.special]))
        table = reader.read(names, columns.types)
    if hasattr(est, "baseline_") != (roles.event is not None):
        kind = "--time and --event" if hasattr(est, "baseline_") else "--target"
        raise UserError(f"{type(est).__name__} needs {kind}.")
    rows = read_rows(table, roles, columns.select(table), np.arange(len(table)))
    if hasattr(est, "classes_") and est.classes_.dtype.kind != "f":
        y = label_target(rows.y)
        if est.classes_.dtype.kind in "OU" and y.dtype.kind in "ib":
            y = y.astype(str)
        rows = replace(rows, y=y)
    return rows


def _asked(quantity: Quantity) -> list[tuple[str, str]]:
    return list(PREFIXES.values()) if quantity == "all" else [PREFIXES[quantity]]
