"""Additive models as one SQL query, exact to rounding.

A line is a product, a curve a CASE over its pieces, a category a CASE over its levels.
Names are quoted as the standard has it; of functions only EXP is needed. What the model
would refuse (an unknown level, a missing value) gives NULL.
"""

import os
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from sknimo.features import (
    Basis,
    Clipped,
    Drawn,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    Ramps,
    Spline,
)
from sknimo.files import replace_file
from sknimo.io._scorecard import refuse_bends
from sknimo.model import FittedModel

# Beyond these the exponential leaves the range of floats.
MAX_ETA = 700.0
# What the linear predictor is called: a name that no column of a table has.
ETA = "sknimo_eta"
MEANS = {
    "identity": ETA,
    "log": f"EXP({ETA})",
    "logit": f"1.0 / (1.0 + EXP(-CASE WHEN {ETA} > {MAX_ETA} THEN {MAX_ETA} "
    f"WHEN {ETA} < -{MAX_ETA} THEN -{MAX_ETA} ELSE {ETA} END))",
}


def build_sql(
    model: FittedModel,
    *,
    table: str,
    classes: np.ndarray | None = None,
    unknown_is_baseline: bool = False,
    gaps_are_reference: bool = False,
    note: str = "",
) -> str:
    """A query that gives every row of a table its prediction.

    The columns of the table come first, then `sknimo_eta` (the linear predictor) and
    `prediction`, for classes with `probability_<label>` of the second, for survival
    with `hazard_ratio`. `note` is written on top.
    """
    refuse_bends(
        model,
        "SQL",
        "Export it to ONNX, or approximate it: give X to to_sql (--data FILE).",
    )
    link = model.family.link
    if link not in MEANS:
        raise ValueError(f"SQL has no form of the link {link!r}; export to ONNX.")
    parts = [_number(model.base_value)]
    for j, name in enumerate(model.features.names):
        text = _feature(model, j, quote(name), unknown_is_baseline)
        if text and gaps_are_reference and not model.features.admits_missing[j]:
            text = f"CASE WHEN {quote(name)} IS NULL THEN 0.0 ELSE {text} END"
        if text:
            parts.append(text)
    out = [f"{MEANS[link]} AS prediction"]
    if model.family.is_hazard:  # as `predict`
        out = [f"{ETA} AS prediction", f"{MEANS[link]} AS hazard_ratio"]
    if classes is not None:
        first, second = (_literal(label) for label in classes.tolist())
        out = [
            f"CASE WHEN {ETA} > 0 THEN {second} WHEN {ETA} <= 0 THEN {first} END"
            " AS prediction",
            f"{MEANS[link]} AS {quote(f'probability_{classes[1]}')}",
        ]
    lines = [f"-- {line}" for line in note.splitlines()]
    lines += ["SELECT scored.*,", "  " + ",\n  ".join(out), "FROM ("]
    lines += ["  SELECT rows_in.*,", "    " + "\n    + ".join(parts) + f" AS {ETA}"]
    lines += [f"  FROM {quote(table)} AS rows_in", ") AS scored;", ""]
    return "\n".join(lines)


def write_sql(path: str | os.PathLike[str], query: str) -> None:
    """Write a query to a file, as a whole or not at all."""
    with replace_file(path) as file:
        file.write(query.encode())


def quote(name: str) -> str:
    """A name of a column or table."""
    return '"' + name.replace('"', '""') + '"'


def _number(value: float) -> str:
    """A number with all of its digits, in a float's own form."""
    text = repr(float(value))
    return text if "e" in text or "." in text else f"{text}.0"


def _literal(value: Label) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(int(value)) if isinstance(value, bool | int) else _number(value)


def _feature(model: FittedModel, j: int, x: str, unknown_is_baseline: bool) -> str:
    """The contribution of one feature as an expression, empty for none."""
    basis = model.features.bases[j]
    own = model.term_coef[model.features.term_feature == j]
    if not own.any():
        return ""
    inner = basis.basis if isinstance(basis, OrMissing) else basis
    coef = own[: inner.n_terms]
    if isinstance(inner, Levels):
        known = _levels(inner, x, coef, unknown_is_baseline)
    else:
        known = _shape(inner, x, coef)
    if inner is basis:
        return known
    missing = _number(float(_values(basis, own, [np.nan])[0]))
    return f"CASE WHEN {x} IS NULL THEN {missing} ELSE {known} END"


def _values(basis: Basis, coef: np.ndarray, x: Sequence[float] | np.ndarray) -> Any:
    return basis.terms(np.asarray(x, dtype=float)) @ coef


@singledispatch
def _shape(basis: Basis, x: str, coef: np.ndarray) -> str:
    """A basis of numbers with its coefficients (m,) as an expression in a column."""
    raise NotImplementedError(
        f"A {type(basis).__name__} basis has no SQL form. Export to ONNX."
    )


@_shape.register
def _linear(basis: Linear, x: str, coef: np.ndarray) -> str:
    slope = float(coef[0]) / basis.scale
    above = f"{x} - {_number(basis.reference)}"
    if basis.residue:
        above += f" - {_number(basis.residue)}"
    return f"{_number(slope)} * ({above})"


@_shape.register
def _parabola(basis: Polynomial, x: str, coef: np.ndarray) -> str:
    z = f"(({x} - {_number(basis.reference)}) / {_number(basis.scale)})"
    return f"({_number(coef[0])} + {_number(coef[1] / basis.spread)} * {z}) * {z}"


@_shape.register
def _spline(basis: Spline, x: str, coef: np.ndarray) -> str:
    return _pieces(basis.reference + basis.scale * basis.knots, basis, x, coef)


@_shape.register
def _ramps(basis: Ramps, x: str, coef: np.ndarray) -> str:
    return _pieces(basis.edges, basis, x, coef)


def _levels(basis: Levels, x: str, coef: np.ndarray, unknown_is_baseline: bool) -> str:
    each = _values(basis, coef, np.arange(len(basis.values)))
    cases = [
        f"WHEN {_literal(level)} THEN {_number(float(effect))}"
        for level, effect in zip(basis.values, each, strict=True)
    ]
    text = f"CASE {x} {' '.join(cases)}"
    if not unknown_is_baseline:
        return f"{text} END"
    return f"CASE WHEN {x} IS NULL THEN NULL ELSE {text} ELSE 0.0 END END"


@_shape.register
def _clipped(basis: Clipped, x: str, coef: np.ndarray) -> str:
    inner = _shape(basis.basis, x, coef)
    at_low, at_high = _values(basis.basis, coef, [basis.low, basis.high])
    return (
        f"CASE WHEN {x} <= {_number(basis.low)} THEN {_number(at_low)} "
        f"WHEN {x} >= {_number(basis.high)} THEN {_number(at_high)} "
        f"ELSE {inner} END"
    )


@_shape.register
def _drawn(basis: Drawn, x: str, coef: np.ndarray) -> str:
    z = f"(({x} - {_number(basis.centre)}) / {_number(basis.width)})"
    far = f"LN(ABS({z}) + SQRT({z} * {z} + 1.0))"
    return _shape(basis.basis, f"(CASE WHEN {z} < 0 THEN -{far} ELSE {far} END)", coef)


def _pieces(ends: np.ndarray, basis: Basis, x: str, coef: np.ndarray) -> str:
    """A curve by its pieces: cubics of a spline, lines of ramps, lines outside.

    A piece is written in the share of its width that lies below x, by the values at
    four of its points, which determine a cubic, or at its two ends.
    """
    share = np.linspace(0, 1, 2 if isinstance(basis, Ramps) else 4)
    inverse = np.linalg.inv(np.vander(share, increasing=True))
    width = float(ends[-1] - ends[0])
    below, first, last, above = _values(
        basis, coef, [ends[0] - width, ends[0], ends[-1], ends[-1] + width]
    )
    line = f"{_number(first)} + {_number((first - below) / width)}"
    cases = [f"WHEN {x} < {_number(ends[0])} THEN {line} * ({x} - {_number(ends[0])})"]
    for low, high in zip(ends[:-1], ends[1:], strict=True):
        poly = inverse @ _values(basis, coef, low + share * (high - low))
        z = f"(({x} - {_number(low)}) / {_number(high - low)})"
        text = _number(poly[-1])
        for each in poly[-2::-1]:
            text = f"({_number(each)} + {z} * {text})"
        cases.append(f"WHEN {x} < {_number(high)} THEN {text}")
    line = f"{_number(last)} + {_number((above - last) / width)}"
    cases.append(
        f"WHEN {x} >= {_number(ends[-1])} THEN {line} * ({x} - {_number(ends[-1])})"
    )
    return f"CASE {' '.join(cases)} END"
