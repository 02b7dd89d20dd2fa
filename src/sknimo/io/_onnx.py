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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from sknimo.exceptions import check_option
from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.files import replace_file
from sknimo.io._onnx_graph import Graph, OnnxDtype
from sknimo.io._onnx_inputs import Inputs, basis_columns, declare_inputs
from sknimo.model import ClassModels, FittedModel
from sknimo.network import Weights, unpack

if TYPE_CHECKING:
    from onnx import ModelProto

OUTPUTS = ("prediction", "eta", "local_coefficients", "contributions")
CLASSIFIER_OUTPUTS = ("probabilities", "label")


def write_onnx(path: str | os.PathLike[str], graph: ModelProto) -> None:
    """Write a graph to a file, as a whole or not at all."""
    with replace_file(path) as file:
        file.write(graph.SerializeToString())


def build_onnx(
    model: FittedModel | ClassModels,
    *,
    classes: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    unknown_is_baseline: bool = False,
    gaps_are_reference: bool = False,
    dtype: OnnxDtype = "float64",
) -> ModelProto:
    """Write a fitted model as an ONNX graph.

    Parameters
    ----------
    model : FittedModel or ClassModels
        More than two classes have the outputs `eta`, `probabilities` and `label` alone.
    classes : ndarray of shape (n_classes,), optional
        Labels of a classifier; adds the outputs `probabilities` and `label`.
    swap : ndarray of shape (q, q), optional
        The gauge of contributions and local coefficients (`fit_gauge`); without it
        they are as the network holds them.
    unknown_is_baseline : bool
        Take unknown levels for the baseline; otherwise their rows become NaN.
    gaps_are_reference : bool
        Take missing values where training had none for the reference, likewise.
    dtype : {"float64", "float32"}
        Type of numeric inputs and outputs. Computation is in float64 in any case.

    Returns
    -------
    onnx.ModelProto
        Checked.
    """
    check_option("dtype", dtype, get_args(OnnxDtype))
    graph = Graph(dtype)
    features = model.features
    reserved = OUTPUTS + CLASSIFIER_OUTPUTS
    given = declare_inputs(
        graph, features, reserved, unknown_is_baseline, gaps_are_reference
    )
    if isinstance(model, ClassModels):
        assert classes is not None  # several of them
        return _several_classes(graph, given, model, classes)
    used = _find_used(model)
    phi, local, parts, eta = _predict(graph, given, model, used)
    eta = graph.add("Squeeze", eta, graph.indices([1]))
    if swap is not None and len(used.terms):
        moved = swap[np.ix_(used.terms, used.terms)].T
        local = graph.add("Sub", local, graph.add("MatMul", phi, graph.constant(moved)))
        parts = graph.add("Mul", phi, local)
    owner = features.term_feature[used.terms]
    contributions = _sum_by_owner(graph, given, parts, owner, features.n_features)
    coefficients = _read_out(graph, given, model, used.terms, local)
    mean = _mean(graph, model.family.link, eta)
    hazard = model.family.is_hazard  # then `predict` has the logarithm
    graph.output("prediction", eta if hazard else mean, [])
    graph.output("eta", eta, [])
    graph.output("local_coefficients", coefficients, [len(features.coef_names)])
    graph.output("contributions", contributions, [features.n_features])
    if classes is not None:
        _add_classes(graph, eta, mean, classes)
    facts = _describe(features, model.family, given, classes) | {
        "base_value": model.base_value,
        "coefficient_names": list(features.coef_names),
        "contributions": "native" if swap is None else "min_energy",
    }
    return graph.build(_as_texts(facts))


def _several_classes(
    graph: Graph, given: Inputs, whole: ClassModels, classes: np.ndarray
) -> ModelProto:
    """Linear predictors of all classes less their mean, and a softmax of them."""
    models = [whole.of_class(c) for c in range(whole.n_classes)]
    each = [_predict(graph, given, model, _find_used(model))[-1] for model in models]
    eta = graph.concat(each)
    mean = graph.add("ReduceMean", eta, axes=[1], keepdims=1)
    eta = graph.add("Sub", eta, mean)
    graph.output("eta", eta, [len(classes)])
    graph.output("probabilities", graph.add("Softmax", eta, axis=1), [len(classes)])
    _add_label(graph, graph.add("ArgMax", eta, axis=1, keepdims=0), classes)
    return graph.build(
        _as_texts(_describe(whole.features, whole.family, given, classes))
    )


def _predict(
    graph: Graph, given: Inputs, model: FittedModel, used: _Used
) -> tuple[str, str, str, str]:
    """Terms, local coefficients, their products (n, q) and the sum of these (n, 1)."""
    phi = basis_columns(graph, given, model.features.bases, used.terms)
    local = _local_coef(graph, given, model, used)
    parts = graph.add("Mul", phi, local)
    total = _sum_by_owner(graph, given, parts, np.zeros_like(used.terms), 1)
    return phi, local, parts, graph.add("Add", total, graph.constant(model.base_value))


@dataclass(frozen=True, slots=True)
class _Used:
    """What the model does not ignore: the rest stays out of the graph."""

    terms: np.ndarray  # (q,), terms with a coefficient in some member
    inputs: np.ndarray  # (r,), network inputs with a first-layer weight in some member


def _find_used(model: FittedModel) -> _Used:
    has_coef = (model.coef != 0).any(0).numpy()
    bent = model.modulated.any(-1).numpy()
    live = (model.first_layer[bent] != 0).any(axis=(0, 1))
    return _Used(np.flatnonzero(has_coef), np.flatnonzero(live))


def _local_coef(graph: Graph, given: Inputs, model: FittedModel, used: _Used) -> str:
    """Local coefficient of each used term, mean of `beta (1 + g)`, (n, q) or (1, q)."""
    coef = model.coef.double().numpy()[:, used.terms] / model.n_members
    owner = model.features.term_feature[used.terms]
    total = graph.constant(coef.sum(0)[None])
    if len(used.inputs) == 0 or len(used.terms) == 0:
        return total  # nothing bends
    z = basis_columns(graph, given, model.features.input_bases, used.inputs)
    for member in range(model.n_members):
        acts = np.unique(owner[coef[member] != 0])
        active = acts[model.modulated[member].numpy()[acts]]
        if len(active) == 0:
            continue
        order, g = _modulation(graph, z, model, member, active, used.inputs)
        slot = {feature: position for position, feature in enumerate(order)}
        bent = np.array([feature in slot for feature in owner])
        spread = graph.take(g, [slot.get(feature, 0) for feature in owner])
        slope = graph.constant((coef[member] * bent)[None])
        total = graph.add("Add", total, graph.add("Mul", spread, slope))
    return total


def _modulation(
    graph: Graph,
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
        own_shift = shift[begin : begin + len(group)]
        begin += len(group)
        if n_own <= 1:
            part = graph.add("Add", seen, graph.constant(own_shift[None]))
        if n_own == 1:
            columns = np.concatenate([own[j] for j in group])
            part = graph.add("Sub", part, _own_column(graph, z, first, columns))
        if n_own > 1:
            part = graph.concat(
                [
                    _hidden_without(graph, z, product, first, own[j], at)
                    for j, at in zip(group, own_shift, strict=True)
                ]
            )
        hidden.append(part)
    out = weights.outputs(spec.codes()[order])[0].numpy()  # (a or 1, h2)
    return order, _head(graph, weights, graph.concat(hidden), shift, out)


def _shift(model: FittedModel, weights: Weights) -> np.ndarray:
    """What the first layer sees besides its inputs: bias and code, (p, h1)."""
    coded: np.ndarray = model.spec.codes().numpy() @ weights.code_weight[0].numpy().T
    return coded + weights.bias[0].numpy()


def _own_column(graph: Graph, z: str, first: np.ndarray, columns: np.ndarray) -> str:
    """What single inputs give to the first layer, (n, len(columns), h1)."""
    value = graph.add("Unsqueeze", graph.take(z, columns), graph.indices([2]))
    return graph.add("Mul", value, graph.constant(first.T[columns][None]))


def _hidden_without(
    graph: Graph,
    z: str,
    product: str,
    first: np.ndarray,
    columns: np.ndarray,
    shift: np.ndarray,
) -> str:
    """First layer of a feature with several inputs, (n, 1, h1)."""
    own = graph.constant(first.T[columns])
    given = graph.add("MatMul", graph.take(z, columns), own)
    rest = graph.add("Sub", product, given)
    rest = graph.add("Add", rest, graph.constant(shift[None]))
    return graph.add("Unsqueeze", rest, graph.indices([1]))


def _head(
    graph: Graph, weights: Weights, hidden: str, shift: np.ndarray, out: np.ndarray
) -> str:
    """Layers after the first, above their values at the reference, (n, a)."""
    second = weights.second[0].numpy()
    origin = np.tanh(shift)  # (a, h1)
    base = origin @ second.T + weights.second_bias[0].numpy()  # (a, h2)
    rise = graph.add("Sub", graph.add("Tanh", hidden), graph.constant(origin[None]))
    rise = graph.add("MatMul", rise, graph.constant(second.T))
    bend = graph.add("Sin", graph.add("Add", rise, graph.constant(base[None])))
    bend = graph.add("Sub", bend, graph.constant(np.sin(base)[None]))
    if len(out) == 1:
        return graph.add("MatMul", bend, graph.constant(out[0]))
    each = graph.add("Mul", bend, graph.constant(out[None]))
    return graph.add("ReduceSum", each, graph.indices([2]), keepdims=0)


def _sum_by_owner(
    graph: Graph, given: Inputs, columns: str, owner: np.ndarray, n_owners: int
) -> str:
    """Sum the columns of each owner, (n, q) to (n, n_owners); zeros where none."""
    # Side by side: zeros, the columns themselves, and sums where an owner has several.
    parts, source = [given.zero, columns], np.zeros(n_owners, dtype=int)
    source[owner] = 1 + np.arange(len(owner))
    for j in np.flatnonzero(np.bincount(owner, minlength=n_owners) > 1):
        own = graph.take(columns, np.flatnonzero(owner == j))
        source[j] = len(owner) + len(parts) - 1
        parts.append(graph.add("ReduceSum", own, graph.indices([1]), keepdims=1))
    return graph.take(graph.concat(parts), source)


def _read_out(
    graph: Graph, given: Inputs, model: FittedModel, terms: np.ndarray, local: str
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
    each = graph.add("Add", each, given.zero)
    return _sum_by_owner(graph, given, each, owner, matrix.shape[1])


def _mean(graph: Graph, link: str, eta: str) -> str:
    """Inverse link."""
    if link == "identity":
        return eta
    return graph.add({"log": "Exp", "logit": "Sigmoid"}[link], eta)


def _add_classes(graph: Graph, eta: str, mean: str, classes: np.ndarray) -> None:
    """Probabilities of both classes, (n, 2), and the label of the likelier one."""
    axis = graph.indices([1])
    other = graph.add("Sigmoid", graph.add("Neg", eta))
    both = [graph.add("Unsqueeze", value, axis) for value in (other, mean)]
    graph.output("probabilities", graph.concat(both), [2])
    likely = graph.add("Greater", eta, graph.constant(0.0))
    _add_label(graph, graph.cast(likely, graph.onnx.TensorProto.INT64), classes)


def _add_label(graph: Graph, index: str, classes: np.ndarray) -> None:
    """The label of the class with a number, (n,), as it was given."""
    kinds = graph.onnx.TensorProto
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
    features: FeatureMap, family: Family, given: Inputs, classes: np.ndarray | None
) -> dict[str, Any]:
    """What a reader of the file needs besides the graph."""
    facts = {
        "family": family.spelling,
        "link": family.link,
        "feature_names": list(features.names),
        "inputs": list(given.names),
        "reference": [
            value if own is None else own[int(value)]
            for j, value in enumerate(features.reference.tolist())
            for own in [features.levels(j)]
        ],
    }
    if classes is not None:
        facts["classes"] = classes.tolist()
    return facts


def _as_texts(facts: dict[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in facts.items()}
