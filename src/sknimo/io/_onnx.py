"""Export to ONNX: one graph that predicts and explains, from raw columns on.

The graph is written node by node and mirrors `FittedModel`: columns become terms and
network inputs, the network bends the coefficients, contributions are summed. Scaling
and encoding are part of it. Everything is computed in float64, which ONNX Runtime
offers on the CPU for every operator used here, so a column of values around 1e8 loses
nothing when its reference is subtracted.

A graph cannot raise errors. What the estimator refuses (a missing value where none was
seen, a level that no training row had) makes `eta` and `prediction` of that row NaN,
provided that the model uses the column at all.

Shapes: n rows, p features, q terms used, r inputs used, a active features, c
coefficients, h1 and h2 hidden units.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from sknimo.features import (
    Basis,
    Clipped,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    RankGauss,
    Spline,
)
from sknimo.files import replace_file
from sknimo.model import FittedModel
from sknimo.network import Weights, unpack

if TYPE_CHECKING:
    from onnx import ModelProto

OnnxDtype = Literal["float64", "float32"]

# Not the newest, so that older runtimes understand the graph too.
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
OUTPUTS = ("prediction", "eta", "local_coefficients", "contributions")
CLASSIFIER_OUTPUTS = ("probabilities", "label")
UNKNOWN = -1.0


def write_onnx(
    path: str | os.PathLike[str],
    model: FittedModel,
    *,
    classes: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    unknown_is_baseline: bool = False,
    dtype: OnnxDtype = "float64",
) -> None:
    """Write a fitted model as an ONNX file; the arguments are those of `build_onnx`."""
    proto = build_onnx(
        model,
        classes=classes,
        swap=swap,
        unknown_is_baseline=unknown_is_baseline,
        dtype=dtype,
    )
    with replace_file(path) as file:
        file.write(proto.SerializeToString())


def build_onnx(
    model: FittedModel,
    *,
    classes: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    unknown_is_baseline: bool = False,
    dtype: OnnxDtype = "float64",
) -> ModelProto:
    """Write a fitted model as an ONNX graph.

    Parameters
    ----------
    model : FittedModel
    classes : ndarray of shape (2,), optional
        Labels of a classifier; adds the outputs `probabilities` and `label`.
    swap : ndarray of shape (q, q), optional
        The gauge of contributions and local coefficients (`fit_gauge`); without it
        they are as the network holds them.
    unknown_is_baseline : bool
        Take unknown levels for the baseline; otherwise their rows become NaN.
    dtype : {"float64", "float32"}
        Type of numeric inputs and outputs. Computation is in float64 in any case.

    Returns
    -------
    onnx.ModelProto
        Checked.
    """
    if dtype not in get_args(OnnxDtype):
        known = ", ".join(repr(option) for option in get_args(OnnxDtype))
        raise ValueError(f"dtype must be one of {known}, got {dtype!r}.")
    graph = _Graph(dtype)
    table = _declare_inputs(graph, model, unknown_is_baseline)
    used = _find_used(model)
    features = model.features
    phi = _columns(graph, table, features.bases, used.terms)
    local = _local_coef(graph, table, model, used)
    shares = graph.add("Mul", phi, local)
    total = _place(graph, table, shares, np.zeros_like(used.terms), 1)
    eta = graph.add("Add", total, graph.constant(model.base_value))
    eta = graph.add("Squeeze", eta, graph.indices([1]))
    if swap is not None and len(used.terms):
        moved = swap[np.ix_(used.terms, used.terms)].T
        local = graph.add("Sub", local, graph.add("MatMul", phi, graph.constant(moved)))
        shares = graph.add("Mul", phi, local)
    owner = features.term_feature[used.terms]
    contributions = _place(graph, table, shares, owner, features.n_features)
    coefficients = _read_out(graph, table, model, used.terms, local)
    mean = _mean(graph, model.family.link, eta)
    graph.output("prediction", mean, [])
    graph.output("eta", eta, [])
    graph.output("local_coefficients", coefficients, [len(features.coef_names)])
    graph.output("contributions", contributions, [features.n_features])
    if classes is not None:
        _add_classes(graph, eta, mean, classes)
    return graph.build(_describe(model, classes, swap, table))


class _Graph:
    """Nodes and constants under construction; every value has a name of its own."""

    def __init__(self, dtype: OnnxDtype) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ImportError(
                "ONNX export needs the package onnx: pip install 'sknimo[onnx]'."
            ) from error
        self.onnx = onnx
        self.dtype = dtype
        self.kind = onnx.TensorProto.DOUBLE
        if dtype == "float32":
            self.kind = onnx.TensorProto.FLOAT
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: dict[Any, Any] = {}

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node; returns the name of its output."""
        name = f"/{op}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(
            op, list(inputs), [name], domain=domain, **attributes
        )
        self.nodes.append(node)
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant tensor; equal ones are stored once."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        text = array.dtype == object  # whose bytes are addresses
        content = tuple(array.ravel()) if text else array.tobytes()
        key = (array.dtype.str, array.shape, content)
        if key not in self.constants:
            name = f"/constant_{len(self.constants)}"
            self.constants[key] = self.onnx.numpy_helper.from_array(array, name)
        return str(self.constants[key].name)

    def indices(self, value: Any) -> str:
        """A constant tensor of whole numbers."""
        return self.constant(value, np.int64)

    def take(self, columns: str, index: Any) -> str:
        """Columns picked by position, (n, m) to (n, len(index))."""
        return self.add("Gather", columns, self.indices(index), axis=1)

    def concat(self, parts: Sequence[str], axis: int = 1) -> str:
        """Parts side by side."""
        if len(parts) == 1:
            return parts[0]
        return self.add("Concat", *parts, axis=axis)

    def cast(self, value: str, kind: int) -> str:
        """Another element type."""
        return self.add("Cast", value, to=kind)

    def read(self, name: str, shape: list[int], text: bool = False) -> str:
        """Declare an input; numbers come out as float64."""
        kind = self.onnx.TensorProto.STRING if text else self.kind
        info = self.onnx.helper.make_tensor_value_info
        self.inputs.append(info(name, kind, ["n", *shape]))
        if text or self.dtype == "float64":
            return name
        return self.cast(name, self.onnx.TensorProto.DOUBLE)

    def output(
        self, name: str, value: str, shape: list[int], kind: int | None = None
    ) -> None:
        """Declare an output; float64 is turned into the type of the outputs."""
        if kind is None:
            kind = self.kind
            if self.dtype != "float64":
                value = self.cast(value, kind)
        node = self.onnx.helper.make_node("Identity", [value], [name])
        self.nodes.append(node)
        info = self.onnx.helper.make_tensor_value_info
        self.outputs.append(info(name, kind, ["n", *shape]))

    def build(self, metadata: dict[str, str]) -> ModelProto:
        """The checked model."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "sknimo",
            self.inputs,
            self.outputs,
            list(self.constants.values()),
        )
        model = helper.make_model(
            graph,
            producer_name="sknimo",
            producer_version=version("sknimo"),
            ir_version=IR_VERSION,
            opset_imports=[
                helper.make_opsetid("", OPSET),
                helper.make_opsetid("ai.onnx.ml", ML_OPSET),
            ],
        )
        helper.set_model_props(model, metadata)
        self.onnx.checker.check_model(model, full_check=True)
        return model


@dataclass(frozen=True, slots=True)
class _Table:
    """The inputs as a table of numbers: a level is its code, a missing value NaN.

    Attributes
    ----------
    columns : str
        All columns side by side, (n, p).
    zero : str
        A column of zeros, (n, 1).
    inputs : tuple of str
        Name of the input of each feature; one name when they come in one.
    """

    columns: str
    zero: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Used:
    """What the model does not ignore: the rest stays out of the graph.

    Attributes
    ----------
    terms : ndarray of shape (q,)
        Terms with a coefficient in some member.
    inputs : ndarray of shape (r,)
        Network inputs with a first-layer weight in some member.
    """

    terms: np.ndarray
    inputs: np.ndarray


def _find_used(model: FittedModel) -> _Used:
    has_coef = (model.coef != 0).any(0).numpy()
    bent = model.modulated.any(-1).numpy()
    live = (model.first_layer[bent] != 0).any(axis=(0, 1))
    return _Used(np.flatnonzero(has_coef), np.flatnonzero(live))


def _declare_inputs(
    graph: _Graph, model: FittedModel, unknown_is_baseline: bool
) -> _Table:
    """One numeric input `X`, or one input per column where some hold text."""
    features = model.features
    p = features.n_features
    levels = [features.levels(j) for j in range(p)]
    with_text = any(isinstance(value, str) for own in levels for value in own or ())
    columns, names = [], ["X"]
    if with_text:
        names = _input_names(features.names)
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
            admits = bool(features.admits_missing[j])
            column = encode(graph, column, own, float(baseline), admits)
        columns.append(column)
    if with_text or any(levels):
        whole = graph.concat(columns)
    n_rows = graph.add("Shape", names[0], end=1)
    shape = graph.add("Concat", n_rows, graph.indices([1]), axis=0)
    zero = graph.add("Expand", graph.constant([[0.0]]), shape)
    return _Table(whole, zero, tuple(names))


def _input_names(names: Sequence[str]) -> list[str]:
    """Names of the columns, changed where an output or another column has them."""
    taken = {*OUTPUTS, *CLASSIFIER_OUTPUTS, ""}
    out: list[str] = []
    for name in names:
        while name in taken or name.startswith("/"):
            name = f"{name.lstrip('/')}_input"
        taken.add(name)
        out.append(name)
    return out


def _encode_text(
    graph: _Graph, column: str, levels: tuple[Label, ...], other: float, admits: bool
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
    graph: _Graph, column: str, levels: tuple[Label, ...], other: float, admits: bool
) -> str:
    """Code of every number; NaN stays NaN."""
    # Levels as the input can hold them: 0.1 in float32 is another number.
    values = np.array([levels], dtype=np.float64).astype(graph.dtype)
    hit = graph.add("Equal", column, graph.constant(values))
    hit = graph.cast(hit, graph.onnx.TensorProto.DOUBLE)
    rise = np.arange(len(levels)) - other
    code = graph.add("MatMul", hit, graph.constant(rise[:, None]))
    code = graph.add("Add", code, graph.constant(other))
    missing = graph.add("IsNaN", column)
    absent = graph.constant(np.nan if admits else UNKNOWN)
    return graph.add("Where", missing, absent, code)


def _columns(
    graph: _Graph, table: _Table, bases: Sequence[Basis], wanted: np.ndarray
) -> str:
    """Columns of some bases, (n, len(wanted)), in the order of `wanted`.

    Straight lines, by far the most frequent kind, are computed all at once.
    """
    if len(wanted) == 0:
        return graph.take(table.columns, [])
    owner = np.repeat(np.arange(len(bases)), [basis.n_terms for basis in bases])
    first = np.cumsum([0, *(basis.n_terms for basis in bases)])
    parts: list[str] = []
    order: list[int] = []
    needed = np.unique(owner[wanted]).tolist()
    lines = [j for j in needed if type(bases[j]) is Linear]
    if lines:
        x = graph.take(table.columns, lines)
        parts.append(_standardise(graph, x, [bases[j] for j in lines]))
        order += [int(first[j]) for j in lines]
    for j in needed:
        if j not in lines:
            parts.append(_terms(bases[j], graph, graph.take(table.columns, [j])))
            order += range(int(first[j]), int(first[j + 1]))
    whole = graph.concat(parts)
    if order == wanted.tolist():
        return whole
    return graph.take(whole, [order.index(column) for column in wanted.tolist()])


def _standardise(graph: _Graph, x: str, bases: Sequence[Any]) -> str:
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
def _terms(basis: Any, graph: _Graph, x: str) -> str:
    """Terms of one feature from its column, (n, 1) to (n, m)."""
    raise NotImplementedError(f"No ONNX form of {type(basis).__name__}.")


@_terms.register
def _(basis: Linear, graph: _Graph, x: str) -> str:
    return _standardise(graph, x, [basis])


@_terms.register
def _(basis: Polynomial, graph: _Graph, x: str) -> str:
    z = _standardise(graph, x, [basis])
    square = graph.add("Div", graph.add("Mul", z, z), graph.constant(basis.spread))
    return graph.concat([z, square])


@_terms.register
def _(basis: Spline, graph: _Graph, x: str) -> str:
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
def _(basis: Levels, graph: _Graph, x: str) -> str:
    hit = graph.add("Equal", x, graph.constant([basis.codes]))
    on, off = graph.constant(1 / basis.scale), graph.constant(0.0)
    terms = graph.add("Where", hit, on, off)
    # NaN, or the code of an unknown level, must not pass for the baseline.
    known = graph.add("GreaterOrEqual", x, graph.constant(0.0))
    return graph.add("Where", known, terms, graph.constant(np.nan))


@_terms.register
def _(basis: OrMissing, graph: _Graph, x: str) -> str:
    missing = graph.add("IsNaN", x)
    on, off = graph.constant(1 / basis.indicator_scale), graph.constant(0.0)
    indicator = graph.add("Where", missing, on, off)
    if basis.basis.n_terms == 0:
        return indicator
    filled = graph.add("Where", missing, graph.constant(basis.reference), x)
    return graph.concat([_terms(basis.basis, graph, filled), indicator])


@_terms.register
def _(basis: Clipped, graph: _Graph, x: str) -> str:
    low, high = graph.constant(basis.low), graph.constant(basis.high)
    return _terms(basis.basis, graph, graph.add("Clip", x, low, high))


@_terms.register
def _(basis: RankGauss, graph: _Graph, x: str) -> str:
    points, scores = basis.points, basis.scores
    origin = float(np.interp(basis.reference, points, scores))
    low, high = graph.constant(points[0]), graph.constant(points[-1])
    inside = graph.add("Clip", x, low, high)
    # A piece adds its rise in proportion to how much of it lies below x.
    width = np.diff(points)
    below = graph.add("Sub", inside, graph.constant(points[None, :-1]))
    share = graph.add("Div", below, graph.constant(width[None]))
    share = graph.add("Clip", share, graph.constant(0.0), graph.constant(1.0))
    rise = graph.add("MatMul", share, graph.constant(np.diff(scores)[:, None]))
    return graph.add("Add", rise, graph.constant(scores[0] - origin))


def _local_coef(graph: _Graph, table: _Table, model: FittedModel, used: _Used) -> str:
    """Local coefficient of each used term, mean of `beta (1 + g)`, (n, q) or (1, q)."""
    coef = model.coef.double().numpy()[:, used.terms] / model.n_members
    owner = model.features.term_feature[used.terms]
    total = graph.constant(coef.sum(0)[None])
    if len(used.inputs) == 0 or len(used.terms) == 0:
        return total  # nothing bends
    z = _columns(graph, table, model.features.input_bases, used.inputs)
    for member in range(model.n_members):
        acts = np.unique(owner[coef[member] != 0])
        active = acts[model.modulated[member].numpy()[acts]]
        if len(active) == 0:
            continue
        order, g = _modulation(graph, z, model, member, active, used.inputs)
        place = {feature: position for position, feature in enumerate(order)}
        bent = np.array([feature in place for feature in owner])
        spread = graph.take(g, [place.get(feature, 0) for feature in owner])
        slope = graph.constant((coef[member] * bent)[None])
        total = graph.add("Add", total, graph.add("Mul", spread, slope))
    return total


def _modulation(
    graph: _Graph,
    z: str,
    model: FittedModel,
    member: int,
    active: np.ndarray,
    inputs: np.ndarray,
) -> tuple[list[int], str]:
    """`g` of one member, (n, a), and the features in the order of its columns.

    The masked inputs are never built: one product serves all features, and each takes
    its own columns out again. Values at the reference are subtracted layer by layer, so
    that small differences keep their digits.
    """
    spec = model.spec
    weights = unpack(spec, model.params[member : member + 1].double())
    first = weights.first[0].numpy()[:, inputs]  # (h1, r)
    owner = np.array(spec.input_feature)[inputs]
    own = {
        int(j): np.flatnonzero(owner == j) if spec.mask else np.empty(0, dtype=int)
        for j in active
    }
    order = sorted(own, key=lambda j: (len(own[j]), j))
    shift = _shift(model, weights)[order]  # (a, h1)
    product = graph.add("MatMul", z, graph.constant(first.T))  # (n, h1)
    seen = graph.add("Unsqueeze", product, graph.indices([1]))  # (n, 1, h1)
    hidden, begin = [], 0
    for n_own in sorted({len(columns) for columns in own.values()}):
        group = [j for j in order if len(own[j]) == n_own]
        level = shift[begin : begin + len(group)]
        begin += len(group)
        if n_own <= 1:
            part = graph.add("Add", seen, graph.constant(level[None]))
        if n_own == 1:
            columns = np.concatenate([own[j] for j in group])
            part = graph.add("Sub", part, _own_column(graph, z, first, columns))
        if n_own > 1:
            part = graph.concat(
                [
                    _hidden_without(graph, z, product, first, own[j], at)
                    for j, at in zip(group, level, strict=True)
                ]
            )
        hidden.append(part)
    return order, _head(graph, weights, graph.concat(hidden), shift)


def _shift(model: FittedModel, weights: Weights) -> np.ndarray:
    """What the first layer sees besides its inputs: bias and code, (p, h1)."""
    coded: np.ndarray = model.spec.codes().numpy() @ weights.code_weight[0].numpy().T
    return coded + weights.bias[0].numpy()


def _own_column(graph: _Graph, z: str, first: np.ndarray, columns: np.ndarray) -> str:
    """What single inputs give to the first layer, (n, len(columns), h1)."""
    value = graph.add("Unsqueeze", graph.take(z, columns), graph.indices([2]))
    return graph.add("Mul", value, graph.constant(first.T[columns][None]))


def _hidden_without(
    graph: _Graph,
    z: str,
    product: str,
    first: np.ndarray,
    columns: np.ndarray,
    level: np.ndarray,
) -> str:
    """First layer of a feature with several inputs, (n, 1, h1)."""
    own = graph.constant(first.T[columns])
    given = graph.add("MatMul", graph.take(z, columns), own)
    rest = graph.add("Sub", product, given)
    rest = graph.add("Add", rest, graph.constant(level[None]))
    return graph.add("Unsqueeze", rest, graph.indices([1]))


def _head(graph: _Graph, weights: Weights, hidden: str, shift: np.ndarray) -> str:
    """Layers after the first, above their values at the reference, (n, a)."""
    second, out = weights.second[0].numpy(), weights.out[0].numpy()
    level = np.tanh(shift)  # (a, h1)
    base = level @ second.T + weights.second_bias[0].numpy()  # (a, h2)
    rise = graph.add("Sub", graph.add("Tanh", hidden), graph.constant(level[None]))
    rise = graph.add("MatMul", rise, graph.constant(second.T))
    bend = graph.add("Sin", graph.add("Add", rise, graph.constant(base[None])))
    bend = graph.add("Sub", bend, graph.constant(np.sin(base)[None]))
    return graph.add("MatMul", bend, graph.constant(out))


def _place(
    graph: _Graph,
    table: _Table,
    columns: str,
    owner: np.ndarray,
    n_owners: int,
) -> str:
    """Sum the columns of each owner, (n, q) to (n, n_owners); zeros where none."""
    # Side by side: zeros, the columns themselves, and sums where an owner has several.
    parts, place = [table.zero, columns], np.zeros(n_owners, dtype=int)
    place[owner] = 1 + np.arange(len(owner))
    for j in np.flatnonzero(np.bincount(owner, minlength=n_owners) > 1):
        own = graph.take(columns, np.flatnonzero(owner == j))
        place[j] = len(owner) + len(parts) - 1
        parts.append(graph.add("ReduceSum", own, graph.indices([1]), keepdims=1))
    return graph.take(graph.concat(parts), place)


def _read_out(
    graph: _Graph, table: _Table, model: FittedModel, terms: np.ndarray, local: str
) -> str:
    """Local coefficients as a user reads them, (n, c).

    Every term belongs to one coefficient: a slope, or the contrast of a level.
    """
    features = model.features
    n_terms = len(features.term_feature)
    matrix = features.coefficients(np.eye(n_terms))[terms]  # (q, c)
    owner = np.abs(matrix).argmax(axis=1)
    unit = matrix[np.arange(len(terms)), owner]
    # A sum with zeros gives every row its own copy where nothing bends.
    each = graph.add("Mul", local, graph.constant(unit[None]))
    each = graph.add("Add", each, table.zero)
    return _place(graph, table, each, owner, matrix.shape[1])


def _mean(graph: _Graph, link: str, eta: str) -> str:
    """Inverse link."""
    if link == "identity":
        return eta
    return graph.add({"log": "Exp", "logit": "Sigmoid"}[link], eta)


def _add_classes(graph: _Graph, eta: str, mean: str, classes: np.ndarray) -> None:
    """Probabilities of both classes, (n, 2), and the label of the likelier one."""
    axis = graph.indices([1])
    other = graph.add("Sigmoid", graph.add("Neg", eta))
    both = [graph.add("Unsqueeze", value, axis) for value in (other, mean)]
    graph.output("probabilities", graph.concat(both), [2])
    kinds = graph.onnx.TensorProto
    likely = graph.add("Greater", eta, graph.constant(0.0))
    index = graph.cast(likely, kinds.INT64)
    if classes.dtype.kind in "iu":
        labels, kind = graph.indices(classes), kinds.INT64
    elif classes.dtype.kind == "b":
        labels, kind = graph.constant(classes, bool), kinds.BOOL
    elif classes.dtype.kind == "f":
        labels, kind = graph.constant(classes), kinds.DOUBLE
    else:
        labels, kind = graph.constant([str(c) for c in classes], object), kinds.STRING
    graph.output("label", graph.add("Gather", labels, index), [], kind)


def _describe(
    model: FittedModel,
    classes: np.ndarray | None,
    swap: np.ndarray | None,
    table: _Table,
) -> dict[str, str]:
    """What a reader of the file needs besides the graph, as JSON texts by name."""
    features = model.features
    facts = {
        "base_value": model.base_value,
        "family": model.family.name,
        "link": model.family.link,
        "feature_names": list(features.names),
        "coefficient_names": list(features.coef_names),
        "inputs": list(table.inputs),
        "reference": [
            value if own is None else own[int(value)]
            for j, value in enumerate(features.reference.tolist())
            for own in [features.levels(j)]
        ],
        "contributions": "native" if swap is None else "min_energy",
    }
    if classes is not None:
        facts["classes"] = classes.tolist()
    return {name: json.dumps(value) for name, value in facts.items()}
