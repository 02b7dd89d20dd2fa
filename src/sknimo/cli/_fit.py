"""From a table and options to a fitted estimator."""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pa_compute
import typer

from sknimo.cli._describe import describe_model
from sknimo.cli._errors import APPLIED, UserError, count_rows
from sknimo.cli._far import FarRows
from sknimo.cli._numbers import leave_out_index, refuse_disguise, remark_on
from sknimo.cli._propose import find_family, propose_family
from sknimo.cli._tables import (
    TextFormat,
    list_names,
    no_column,
    read_numbers,
    split_names,
)
from sknimo.families import get_family

# Measures whose names are no words.
NAMES = {"auc": "AUC"}
# Fields of rows with an entry for each; there may be none.
ROW_COLUMNS = ("y", "place", "weight", "offset", "entry", "strata")


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """What the columns of a table are for."""

    target: str
    weight: str | None = None
    offset: str | None = None
    drop: Sequence[str] = ()  # left out
    categorical: Sequence[str] = ()  # categories although they look like numbers
    event: str | None = None  # the target is a time to this
    entry: str | None = None
    strata: str | None = None

    @property
    def special(self) -> list[str]:
        """Columns that are no features."""
        every = self.target, self.event, self.weight, self.offset
        return [name for name in (*every, self.entry, self.strata) if name is not None]


def name_roles(target: str | None, time: str | None, **others: Any) -> ColumnRoles:
    """Roles of the columns: there is a target, or a time with its event."""
    survival = [others.get(name) for name in ("event", "entry", "strata")]
    if time is None:
        if target is None or any(survival):
            raise typer.BadParameter(
                "Name --target COLUMN, or --time COLUMN and --event COLUMN for "
                "survival; --entry and --strata go with them."
            )
        return ColumnRoles(target, **others)
    if target is not None or survival[0] is None or others.get("offset") is not None:
        raise UserError(
            "--time needs --event, and goes with neither --target nor --offset."
        )
    return ColumnRoles(time, **others)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows to fit or to judge by."""

    X: Any  # (n, p), a pyarrow table; an array for models that know no names
    y: np.ndarray  # (n,)
    place: np.ndarray  # (n,), where each row stands in its file, from zero
    weight: np.ndarray | None = None  # (n,)
    offset: np.ndarray | None = None  # (n,)
    target: str = ""  # the column of `y`
    # Of survival, whose `y` has two columns (n, 2).
    entry: np.ndarray | None = None  # (n,)
    strata: np.ndarray | None = None  # (n,)

    def given(self, suffix: str = "") -> dict[str, Any]:
        """What `fit`, and with a suffix `report`, take beside features and target."""
        names = ("entry", "strata") if self.y.ndim == 2 else ("offset",)
        given = {"sample_weight": self.weight}
        given |= {name: getattr(self, name) for name in names}
        return {f"{name}{suffix}": values for name, values in given.items()}

    def take(self, index: np.ndarray) -> FileRows:
        """Some of the rows."""
        given = {name: getattr(self, name) for name in ROW_COLUMNS}
        taken = {name: v[index] for name, v in given.items() if v is not None}
        is_array = isinstance(self.X, np.ndarray)  # whose own `take` flattens
        X = self.X[index] if is_array else self.X.take(index)
        return replace(self, X=X, **taken)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Measures on rows held out: of the model, and of their mean for everybody."""

    model: dict[str, float]
    baseline: dict[str, float]

    def describe(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.model, "baseline": self.baseline}

    def show(self, n_rows: int) -> list[str]:
        """Lines of a table."""
        lines = [f"On {n_rows} rows held out:{'model':>18}  baseline"]
        for name, value in self.model.items():
            label = NAMES.get(name, name.replace("_", " "))
            beside = self.baseline.get(name, 0.0)
            lines.append(f"  {label:30} {value:>10.4g}{beside:>10.4g}")
        return [*lines, "  (baseline: the mean of these rows, for everybody)"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted estimator and the rows that it saw and did not see."""

    est: Any
    n_rows: int  # rows fitted
    rows: FileRows | None  # these rows, or a sample of them
    held_out: FileRows | None
    judged: Judgement | None  # by the rows held out
    seconds: float  # what the fit took

    def describe(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            **describe_model(self.est),
            "held_out": None if self.judged is None else self.judged.describe(),
            "seconds": round(self.seconds, 3),
        }

    def show(self) -> str:
        """Summary, measures and time as text."""
        lines = [str(self.est.summary()), ""]
        if self.held_out is not None and self.judged is not None:
            lines += [*self.judged.show(len(self.held_out.y)), ""]
        lines.append(f"Fitted {self.n_rows} rows in {self.seconds:.1f} s.")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Request:
    """What the command asks for."""

    data: str  # the file
    text: TextFormat
    roles: ColumnRoles
    family: str  # "auto" judges by the target
    fixed: bool  # whether penalties are set by hand
    settings: dict[str, Any]  # parameters of the estimator
    skip_missing: bool  # whether to leave out rows with missing cells
    test: float | None  # share of the rows to hold out
    seed: int  # governs which
    wants_rows: bool  # whether the rows are needed after the fit


def fit_table(
    table: pa.Table, source: str, request: Request, remark: Callable[[str], None]
) -> Fitted:
    """Fit an estimator to a table; `remark` takes what the user should know."""
    roles = split_roles(request.roles, table.column_names)
    table = leave_out_index(table, [*roles.special, *roles.drop], remark)
    rows = read_roles(table, source, roles)
    remark_on(rows.X, roles.categorical, remark)
    _refuse_constant(rows)
    if request.skip_missing:
        complete = drop_missing(rows)
        if len(complete.y) < len(rows.y):
            remark(f"left out {len(rows.y) - len(complete.y)} rows with missing cells.")
        rows = complete
    likely = "cox" if roles.event else find_family(rows.y)
    family, est = choose_estimator(request, roles, likely, rows.y, remark)
    if get_family(family).is_binary:
        rows = replace(rows, y=label_target(rows.y))
    held_out = None
    if request.test is not None:
        rows, held_out = hold_out(rows, request.test, request.seed)
        if get_family(family).is_binary:
            _refuse_held_out(rows, held_out)
    begin = perf_counter()
    with count_rows(rows.place):
        est.fit(rows.X, rows.y, **rows.given())
    seconds = perf_counter() - begin
    judged = None if held_out is None else judge(est, held_out)
    return Fitted(est, len(rows.y), rows, held_out, judged, seconds)


def _refuse_held_out(rows: FileRows, held_out: FileRows) -> None:
    """Refuse a class without a row to learn from, before a fit that may take long."""
    unseen = {*held_out.y.tolist()} - {*rows.y.tolist(), None}
    if unseen:
        raise UserError(
            f"All rows of the class {min(unseen)!r} are held out. Take another --seed "
            "or merge rare classes."
        )


def _refuse_constant(rows: FileRows) -> None:
    """Refuse a target with one value: every model would predict it perfectly."""
    known = rows.y[~np.isnan(rows.y)] if rows.y.dtype.kind == "f" else rows.y
    values = {*known.tolist()} - {None}
    if len(values) == 1:
        raise UserError(constant_target(rows.target, values.pop()))


def constant_target(name: str, value: Any) -> str:
    """What is said of a target with one value."""
    shown = f"{value:g}" if isinstance(value, float) else repr(value)
    return (
        f"Column {name!r} is {shown} in every row; there is nothing to predict. Is it "
        "the right --target?"
    )


def split_roles(roles: ColumnRoles, names: Sequence[str]) -> ColumnRoles:
    """The same with names that were given in one text parted."""
    return replace(
        roles,
        drop=split_names(roles.drop, names),
        categorical=split_names(roles.categorical, names),
    )


def find_features(names: Sequence[str], source: str, roles: ColumnRoles) -> list[str]:
    """Columns that are left to predict from; all roles must be among the columns."""
    used = roles.special
    for name in [*used, *roles.drop, *roles.categorical]:
        if name not in names:
            raise no_column(source, name, names)
    if len(set(used)) < len(used):
        raise UserError("Target, weight and offset must be different columns.")
    left_out = {*used, *roles.drop}
    features = [name for name in names if name not in left_out]
    if not features:
        raise UserError(
            f"{source} has no column left to predict {roles.target!r} from."
        )
    return features


def read_roles(
    table: pa.Table, source: str, roles: ColumnRoles, first_row: int = 0
) -> FileRows:
    """Part a table into features, target, weight and offset.

    `first_row` is where the table begins in its file.
    """
    features = find_features(table.column_names, source, roles)
    for name in [*features, roles.target]:
        if name not in roles.categorical:
            refuse_disguise(table[name], name, name == roles.target, first_row)
    place = first_row + np.arange(len(table))
    return read_rows(table, roles, table.select(features), place)


def read_rows(
    table: pa.Table, roles: ColumnRoles, X: Any, place: np.ndarray
) -> FileRows:
    """Features X of a table with its target, weight, offset, entry and strata."""
    strata = None
    if roles.strata is not None:
        strata = np.array(table[roles.strata].to_pylist(), dtype=object)
    return FileRows(
        X,
        y=_read_response(table, roles),
        place=place,
        weight=read_numbers(table, roles.weight),
        offset=read_numbers(table, roles.offset),
        target=roles.target,
        entry=read_numbers(table, roles.entry),
        strata=strata,
    )


def _read_response(table: pa.Table, roles: ColumnRoles) -> np.ndarray:
    """The target (n,), or times and events (n, 2)."""
    if roles.event is None:
        return read_target(table[roles.target])
    event = table[roles.event]
    if pa.types.is_boolean(event.type):
        at = table.column_names.index(roles.event)
        table = table.set_column(at, roles.event, event.cast(pa.float64()))
    elif not (pa.types.is_floating(event.type) or pa.types.is_integer(event.type)):
        raise UserError(
            f"Column {roles.event!r} must have 1 where the event happened and 0 where "
            "the row was censored."
        )
    both = [read_numbers(table, name) for name in (roles.target, roles.event)]
    return np.stack([part for part in both if part is not None], axis=1)


def drop_missing(rows: FileRows) -> FileRows:
    """The rows in which no cell is missing."""
    complete = find_complete(rows)
    if not complete.any():
        raise UserError("Every row has a missing value; none is left to fit.")
    return rows.take(np.flatnonzero(complete))


def find_complete(rows: FileRows) -> np.ndarray:
    """Whether no cell of a row is missing, (n,)."""
    complete = np.ones(len(rows.y), dtype=bool)
    for column in rows.X.columns:
        complete &= ~pa_compute.is_null(column, nan_is_null=True).to_numpy()
    for values in (rows.y, rows.weight, rows.offset, rows.entry, rows.strata):
        if values is None:
            continue
        if values.dtype.kind == "f":
            complete &= ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
        elif values.dtype == object:
            complete &= np.array([x is not None and x == x for x in values], bool)
    return complete


def read_target(column: pa.ChunkedArray) -> np.ndarray:
    """A target as numbers, truth values or texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_temporal(kind) and len(pa_compute.unique(column.drop_null())) > 2:
        raise UserError(
            "The target holds dates or times. Make a number with a meaning of it, such "
            "as days since a start."
        )
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return column.cast(pa.float64()).to_numpy().copy()
    if pa.types.is_boolean(kind) and not column.null_count:
        return column.to_numpy().astype(bool)
    keep = bool if pa.types.is_boolean(kind) else str
    labels = np.empty(len(column), dtype=object)
    labels[:] = [None if v is None else keep(v) for v in column.to_pylist()]
    return labels


def label_target(y: np.ndarray, is_whole: bool | None = None) -> np.ndarray:
    """Labels of a classifier: whole numbers, truth values or texts.

    `is_whole` says whether numbers are whole where `y` is not all of the target.
    """
    if y.dtype.kind == "f" and np.isfinite(y).all():
        is_whole = bool((y == np.round(y)).all()) if is_whole is None else is_whole
        return y.astype(np.int64 if is_whole else str)
    if y.dtype == object and all(label is not None for label in y):
        return y.astype(bool if all(isinstance(each, bool) for each in y) else str)
    return y


def read_settings(options: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Settings from options, None if not given, and then from texts `name=value`.

    A value in a text is read as JSON if it can be.
    """
    settings = {
        name: getattr(value, "value", value)  # of a choice
        for name, value in options.items()
        if value is not None
    }
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set needs name=value, got {text!r}.")
        try:
            settings[name.strip()] = json.loads(value)
        except ValueError:
            settings[name.strip()] = value
    if isinstance(settings.get("hidden"), list):
        settings["hidden"] = tuple(settings["hidden"])
    return settings


def read_test(given: str | None) -> tuple[float | None, str | None]:
    """The share of the rows to hold out, or the file that has others."""
    if given is None:
        return None, None
    try:
        return float(given), None
    except ValueError:
        if not Path(given).is_file():
            raise UserError(
                f"--test needs a share such as 0.2, or a table; there is no file "
                f"{given}."
            ) from None
        return None, given


def read_size(text: str) -> float:
    """Bytes from a number with a unit, such as 500MB or 4 GB."""
    found = re.fullmatch(r"\s*([\d.]+(?:e\d+)?)\s*([kMGT]?)B?\s*", text, re.I)
    try:
        number = float(found[1]) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or number <= 0:
        raise UserError(f"--memory-budget needs a size such as 4GB, got {text!r}.")
    return number * 1000 ** " kMGT".upper().index(found[2].upper() or " ")


def choose_estimator(
    request: Request,
    roles: ColumnRoles,
    likely: str,
    y: np.ndarray,
    remark: Callable[[str], None],
) -> tuple[str, Any]:
    """The family asked for, or the likely one, and the estimator for it.

    Where nobody asked, some values of the target may suggest another.
    """
    settings = request.settings
    family = settings.get("family", request.family)
    if likely == "cox":
        family = likely
    elif family == "auto":
        family = likely
        if likely == "gaussian" and (other := propose_family(y, roles.target)):
            remark(other)
        n_labels = len({*y.tolist()} - {None}) if y.dtype == object else 0
        what = f"{n_labels} classes" if n_labels > 2 else f"{family} family"
        remark(f"{what}, as column {roles.target!r} suggests (--family).")
    if roles.categorical:
        settings = {"categorical": list(roles.categorical)} | settings
    return family, make_estimator(family, request.fixed, settings)


def make_estimator(family: str, fixed: bool, settings: dict[str, Any]) -> Any:
    """The estimator for a family; settings are checked by name."""
    from sknimo import estimators

    kind = "Survival" if get_family(family).is_hazard else "Regressor"
    kind = "Classifier" if get_family(family).is_binary else kind
    if kind == "Regressor":
        settings = {"family": family, **settings}
    cls = getattr(estimators, f"NIMO{kind}{'' if fixed else 'CV'}")
    known = inspect.signature(cls).parameters
    for name in settings:
        if name not in known:
            raise UserError(
                f"{cls.__name__} has no setting {name!r}. It has "
                f"{list_names(known, 40)}."
            )
    return cls(**settings)


def count_test_rows(n_rows: int, share: float) -> int:
    """How many rows to hold out; some must be left on either side."""
    n_test = round(share * n_rows) if math.isfinite(share) else 0
    if not 0 < n_test < n_rows:
        raise UserError(
            f"--test {share:g} of {n_rows} rows leaves nothing to one side."
        )
    return n_test


def hold_out(rows: FileRows, share: float, seed: int) -> tuple[FileRows, FileRows]:
    """Part rows at random into those to fit and those to judge by."""
    n_rows = len(rows.y)
    n_test = count_test_rows(n_rows, share)
    order = np.random.default_rng(seed).permutation(n_rows)
    return rows.take(np.sort(order[n_test:])), rows.take(np.sort(order[:n_test]))


class Named(np.ndarray):
    """A column that knows its name, which reports show."""

    name: str


def write_report(
    est: Any, path: str, rows: FileRows | None, held_out: FileRows | None
) -> None:
    """Write a report; faults are told by the row of the file."""
    if rows is None:
        raise UserError("No row is left to report on.")
    y = rows.y.view(Named)
    y.name = rows.target
    test: dict[str, Any] = {}
    if held_out is not None:
        test = {"X_test": held_out.X, "y_test": held_out.y, **held_out.given("_test")}
    with count_rows(rows.place, APPLIED):
        est.report(
            path,
            rows.X,
            y,
            **rows.given(),
            row_names=[f"row {at + 1}" for at in rows.place],  # as `explain --row`
            **test,
        )


def judge(est: Any, rows: FileRows) -> Judgement:
    """How well a model predicts rows that it has not seen."""
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    far = FarRows()
    with count_rows(rows.place, APPLIED), far.count(est, rows.X, rows.place):
        far.tell()
        if hasattr(est, "baseline_"):
            own = {name: getattr(rows, name) for name in ("entry", "strata")}
            found = {"concordance": est.score(rows.X, rows.y, weight, **own)}
            return Judgement(found, {"concordance": 0.5})
        if hasattr(est, "classes_"):
            chances, truth = find_chances(est, rows)
            share = np.average(truth, axis=0, weights=weight)
            return Judgement(
                _judge_chances(chances, truth, weight),
                _judge_chances(np.tile(share, (len(truth), 1)), truth, weight),
            )
        guess = est.predict(rows.X, rows.offset)
        found, mean = {}, np.average(rows.y, weights=weight)
        found["deviance_explained"] = est.score(rows.X, rows.y, weight, rows.offset)

    def root(error: np.ndarray) -> float:
        return float(np.sqrt(np.average(error**2, weights=weight)))

    found["root_mean_squared_error"] = root(rows.y - guess)
    return Judgement(found, {"root_mean_squared_error": root(rows.y - mean)})


def find_chances(est: Any, rows: FileRows) -> tuple[np.ndarray, np.ndarray]:
    """Chance of every class, and whether it is the true one, both (n, k)."""
    with count_rows(rows.place, APPLIED):
        est._known_target(rows.y)  # refuses labels that the model does not know
        chances = est.predict_proba(rows.X, rows.offset)
    return chances, rows.y[:, None] == est.classes_


def cost_chances(chances: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Negative log-likelihood of what is true, (n,)."""
    return -np.log(np.clip((chances * truth).sum(axis=1), 1e-300, 1.0))


def _judge_chances(
    chances: np.ndarray, truth: np.ndarray, weight: np.ndarray
) -> dict[str, float]:
    """Measures of probabilities; the AUC only of two classes that are both there."""
    from sklearn.metrics import roc_auc_score

    right = truth[np.arange(len(truth)), chances.argmax(axis=1)]
    found = {
        "accuracy": float(np.average(right, weights=weight)),
        "log_loss": float(np.average(cost_chances(chances, truth), weights=weight)),
    }
    if truth.shape[1] > 2 or not truth.any(axis=0).all():
        return found
    area = roc_auc_score(truth[:, 1], chances[:, 1], sample_weight=weight)
    return {"auc": float(area)} | found
