"""The first part of an ONNX graph: raw columns to codes, terms and network inputs.

Shapes: n rows, p features, m columns of one feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from sknimo.features import (
    Basis,
    Clipped,
    Drawn,
    FeatureMap,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    PooledLevels,
    Ramps,
    RankGauss,
    Spline,
)
from sknimo.io._onnx_graph import Graph

UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs as a table of numbers: a level is its code, a missing value NaN."""

    columns: str  # all columns side by side, (n, p)
    zero: str  # a column of zeros, (n, 1)
    # Name of the input of each feature; one name when they come in one.
    names: tuple[str, ...]


def declare_inputs(
    graph: Graph,
    features: FeatureMap,
    reserved: Sequence[str],
    unknown_is_baseline: bool,
    gaps_are_reference: bool,
) -> Inputs:
    """One numeric input `X`, or one input per column where some hold text.

    `reserved` names are those of outputs; columns called so get another. Gaps where
    training had none stand at the reference, or are as a level that nobody knows.
    """
    p = features.n_features
    levels = [features.levels(j) for j in range(p)]
    with_text = any(isinstance(value, str) for own in levels for value in own or ())
    columns, names = [], ["X"]
    if with_text:
        names = _input_names(features.names, reserved)
    else:
        whole = graph.read("X", [p])
    for j, own in enumerate(levels):
        text = any(isinstance(value, str) for value in own or ())
        if with_text:
            column = graph.read(names[j], [1], text)
        else:
            column = whole if not any(levels) else graph.take(whole, [j])
        if own is not None:
            baseline = features.reference[j] if unknown_is_baseline else UNKNOWN
            encode = _encode_text if text else _encode_numbers
            admits = gaps_are_reference or bool(features.admits_missing[j])
            column = encode(graph, column, own, float(baseline), admits)
        columns.append(column)
    if with_text or any(levels):
        whole = graph.concat(columns)
    if gaps_are_reference:
        refused = graph.constant(~features.admits_missing[None], np.bool_)
        strange = graph.add("And", graph.add("IsNaN", whole), refused)
        whole = graph.add("Where", strange, graph.constant([features.reference]), whole)
    n_rows = graph.add("Shape", names[0], end=1)
    shape = graph.add("Concat", n_rows, graph.indices([1]), axis=0)
    zero = graph.add("Expand", graph.constant([[0.0]]), shape)
    return Inputs(whole, zero, tuple(names))


def _input_names(names: Sequence[str], reserved: Sequence[str]) -> list[str]:
    """Names of the columns, changed where an output or another column has them."""
    taken = {*reserved, ""}
    out: list[str] = []
    for name in names:
        while name in taken or name.startswith("/"):
            name = f"{name.lstrip('/')}_input"
        taken.add(name)
        out.append(name)
    return out


def _encode_text(
    graph: Graph, column: str, levels: tuple[Label, ...], other: float, admits: bool
) -> str:
    """Code of every text; an empty text is a missing value unless it is a level."""
    keys = [str(value) for value in levels]
    codes = [float(code) for code in range(len(keys))]
    if len(set(keys)) < len(keys):
        raise ValueError(
            f"Levels {list(levels)!r} cannot be told apart as text. Make them all text "
            "or all numbers before fitting."
        )
    if "" not in keys:
        keys.append("")
        codes.append(np.nan if admits else UNKNOWN)
    code = graph.add(
        "LabelEncoder",
        column,
        domain="ai.onnx.ml",
        keys_strings=keys,
        values_floats=codes,
        default_float=other,
    )
    return graph.cast(code, graph.onnx.TensorProto.DOUBLE)


def _encode_numbers(
    graph: Graph, column: str, levels: tuple[Label, ...], other: float, admits: bool
) -> str:
    """Code of every number; NaN stays NaN."""
    # Levels as the input can hold them: 0.1 in float32 is another number.
    values = np.array([levels], dtype=np.float64).astype(graph.dtype)
    if len(set(levels)) != len(np.unique(values)):
        raise ValueError(
            f"Levels such as {levels[0]!r} cannot be told apart as {graph.dtype} "
            "numbers. Make them text before fitting."
        )
    hit = graph.add("Equal", column, graph.constant(values))
    hit = graph.cast(hit, graph.onnx.TensorProto.DOUBLE)
    rise = np.arange(len(levels)) - other
    code = graph.add("MatMul", hit, graph.constant(rise[:, None]))
    code = graph.add("Add", code, graph.constant(other))
    missing = graph.add("IsNaN", column)
    absent = graph.constant(np.nan if admits else UNKNOWN)
    return graph.add("Where", missing, absent, code)


def basis_columns(
    graph: Graph, given: Inputs, bases: Sequence[Basis], wanted: np.ndarray
) -> str:
    """Columns of some bases, (n, len(wanted)), in the order of `wanted`.

    Straight lines, by far the most frequent kind, are computed all at once.
    """
    if len(wanted) == 0:
        return graph.take(given.columns, [])
    owner = np.repeat(np.arange(len(bases)), [basis.n_terms for basis in bases])
    first = np.cumsum([0, *(basis.n_terms for basis in bases)])
    parts: list[str] = []
    order: list[int] = []
    needed = np.unique(owner[wanted]).tolist()
    lines = [j for j in needed if type(bases[j]) is Linear]
    if lines:
        x = graph.take(given.columns, lines)
        parts.append(_standardise(graph, x, [bases[j] for j in lines]))
        order += [int(first[j]) for j in lines]
    for j in needed:
        if j not in lines:
            parts.append(_terms(bases[j], graph, graph.take(given.columns, [j])))
            order += range(int(first[j]), int(first[j + 1]))
    whole = graph.concat(parts)
    if order == wanted.tolist():
        return whole
    return graph.take(whole, [order.index(column) for column in wanted.tolist()])


def _standardise(graph: Graph, x: str, bases: Sequence[Any]) -> str:
    """Distance from the reference in units of the scale, (n, m)."""
    above = graph.add("Sub", x, graph.constant([[b.reference for b in bases]]))
    residue = np.array([[getattr(b, "residue", 0.0) for b in bases]])
    if residue.any():
        zero = graph.constant(0.0)
        at_reference = graph.add("Equal", above, zero)
        lower = graph.add("Sub", above, graph.constant(residue))
        above = graph.add("Where", at_reference, zero, lower)
    z = graph.add("Div", above, graph.constant([[b.scale for b in bases]]))
    if len(bases) > 1:
        return z
    # ONNX Runtime fuses a division by one number with a product that follows and keeps
    # the number in single precision. Something in between prevents that.
    return graph.add("Max", z, graph.constant(-np.inf))


@singledispatch
def _terms(basis: Any, graph: Graph, x: str) -> str:
    """Terms of one feature from its column, (n, 1) to (n, m)."""
    raise NotImplementedError(f"No ONNX form of {type(basis).__name__}.")


@_terms.register
def _(basis: Linear, graph: Graph, x: str) -> str:
    return _standardise(graph, x, [basis])


@_terms.register
def _(basis: Polynomial, graph: Graph, x: str) -> str:
    z = _standardise(graph, x, [basis])
    square = graph.add("Div", graph.add("Mul", z, z), graph.constant(basis.spread))
    return graph.concat([z, square])


@_terms.register
def _(basis: Spline, graph: Graph, x: str) -> str:
    # As in `natural_spline`: cubes up to the last knot, a line beyond it.
    z = _standardise(graph, x, [basis])
    knots, last = basis.knots[:-1], basis.knots[-1]
    inside = graph.add("Min", z, graph.constant(last))
    above = graph.add("Relu", graph.add("Sub", inside, graph.constant(knots[None])))
    square = graph.add("Mul", above, above)
    cube = graph.add("Mul", square, above)
    pieces = np.diag(1 / (last - knots))
    curves = pieces[:, :-1] - pieces[:, -1:]  # (k - 1, k - 2)
    bent = graph.add("MatMul", cube, graph.constant(curves))
    slope = graph.add("MatMul", square, graph.constant(3 * curves))
    beyond = graph.add("Mul", graph.add("Sub", z, inside), slope)
    raw = graph.concat([z, graph.add("Add", bent, beyond)])
    raw = graph.add("Sub", raw, graph.constant(_spline_origin(basis, curves)))
    return graph.add("MatMul", raw, graph.constant(basis.transform))


def _spline_origin(basis: Spline, curves: np.ndarray) -> np.ndarray:
    """The raw columns at the reference, (1, k - 1)."""
    inside = min(0.0, float(basis.knots[-1]))
    above = np.maximum(inside - basis.knots[:-1], 0.0)
    raw = above**3 @ curves - inside * (3 * above**2 @ curves)
    return np.append(0.0, raw)[None]


@_terms.register
def _(basis: Ramps, graph: Graph, x: str) -> str:
    z = _standardise(graph, x, [basis])
    low, width = basis.edges[None, :-1], np.diff(basis.edges)[None]
    origin = np.clip((basis.reference - low) / width, 0.0, 1.0)
    ramps = graph.add("Sub", _risen(graph, x, low, width), graph.constant(origin))
    if basis.transform is not None:
        ramps = graph.add("MatMul", ramps, graph.constant(basis.transform))
    return graph.concat([z, ramps])


def _risen(graph: Graph, x: str, low: np.ndarray, width: np.ndarray) -> str:
    """How much of each piece lies below x, (n, 1) to (n, pieces)."""
    above = graph.add("Sub", x, graph.constant(low))
    share = graph.add("Div", above, graph.constant(width))
    return graph.add("Clip", share, graph.constant(0.0), graph.constant(1.0))


@_terms.register
def _(basis: Levels, graph: Graph, x: str) -> str:
    hit = graph.add("Equal", x, graph.constant([basis.codes]))
    pooled = isinstance(basis, PooledLevels)
    on, off = graph.constant(1.0 if pooled else 1 / basis.scale), graph.constant(0.0)
    terms = graph.add("Where", hit, on, off)
    if pooled:
        terms = graph.add("MatMul", terms, graph.constant(basis.readout()))
    # NaN, or the code of an unknown level, must not pass for the baseline.
    known = graph.add("GreaterOrEqual", x, graph.constant(0.0))
    return graph.add("Where", known, terms, graph.constant(np.nan))


@_terms.register
def _(basis: OrMissing, graph: Graph, x: str) -> str:
    missing = graph.add("IsNaN", x)
    filled = graph.add("Where", missing, graph.constant(basis.reference), x)
    if not basis.indicator_scale:
        return _terms(basis.basis, graph, filled)
    on, off = graph.constant(1 / basis.indicator_scale), graph.constant(0.0)
    indicator = graph.add("Where", missing, on, off)
    if basis.basis.n_terms == 0:
        return indicator
    return graph.concat([_terms(basis.basis, graph, filled), indicator])


@_terms.register
def _(basis: Clipped, graph: Graph, x: str) -> str:
    low, high = graph.constant(basis.low), graph.constant(basis.high)
    return _terms(basis.basis, graph, graph.add("Clip", x, low, high))


@_terms.register
def _(basis: Drawn, graph: Graph, x: str) -> str:
    # By its logarithm: runtimes have no inverse hyperbolic sine in double precision.
    above = graph.add("Sub", x, graph.constant(basis.centre))
    z = graph.add("Div", above, graph.constant(basis.width))
    squares = graph.add("Add", graph.add("Mul", z, z), graph.constant(1.0))
    far = graph.add("Add", graph.add("Abs", z), graph.add("Sqrt", squares))
    drawn = graph.add("Mul", graph.add("Sign", z), graph.add("Log", far))
    return _terms(basis.basis, graph, drawn)


@_terms.register
def _(basis: RankGauss, graph: Graph, x: str) -> str:
    points, scores = basis.points, basis.scores
    origin = float(np.interp(basis.reference, points, scores))
    low, high = graph.constant(points[0]), graph.constant(points[-1])
    inside = graph.add("Clip", x, low, high)
    # A piece adds its rise in proportion to how much of it lies below x.
    share = _risen(graph, inside, points[None, :-1], np.diff(points)[None])
    rise = graph.add("MatMul", share, graph.constant(np.diff(scores)[:, None]))
    return graph.add("Add", rise, graph.constant(scores[0] - origin))
