"""A fitted model as plain values and arrays, and back.

The record is what files, exports and reports are made from:

    family      name of the response family, with its number in brackets if it has one
    spec        hidden: two integers; mask: bool; own_out: bool, whether features have
                outputs of their own; input_feature: the feature that owns each network
                input; code: position codes, array (p, b)
    features    per feature, its name, the basis of its terms and the basis of its
                network inputs
    low, high   range of each column in training, arrays (p,), or (0,) when unknown
    coef        array (M, q); intercept (M,); params (M, P), cut into blocks by
                `NetworkSpec.shapes`; modulated (M, p), bool

A basis is a mapping with its `kind` and its fields by name. `KINDS` lists every kind.

Shapes: M members, p features, q terms, r inputs, b bits, P weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sknimo.families import FAMILIES, Family, get_family
from sknimo.features import (
    Basis,
    Clipped,
    Drawn,
    FeatureMap,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    PooledLevels,
    Ramps,
    RankGauss,
    Spline,
)
from sknimo.io._checks import Node
from sknimo.model import FittedModel
from sknimo.network import NetworkSpec

MAX_HIDDEN = 2**16
# Arrays of a record; those of its features are within them.
ARRAYS = ("low", "high", "coef", "intercept", "params", "modulated")


@dataclass(frozen=True, slots=True)
class Field:
    """How one field of a basis is written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Node], Any]


def _read_matrix(node: Node) -> np.ndarray:
    return node.array((None, None))


def _plain_labels(values: tuple[Any, ...]) -> list[Any]:
    return [v.item() if isinstance(v, np.generic) else v for v in values]


NUMBER = Field(float, lambda node: node.number())
SPREAD = Field(float, lambda node: node.number(low=0.0))
POSITIVE = Field(float, lambda node: node.positive())
CODE = Field(int, lambda node: node.integer(low=0))
CODES = Field(list, lambda node: tuple(each.integer(low=0) for each in node.items()))
LABELS = Field(_plain_labels, lambda node: node.labels())
VECTOR = Field(np.array, lambda node: node.array((None,)))
MATRIX = Field(np.array, _read_matrix)
MATRIX_OR_NONE = Field(
    lambda matrix: None if matrix is None else np.array(matrix),
    lambda node: None if node.value is None else _read_matrix(node),
)
INNER = Field(lambda basis: basis_record(basis), lambda node: basis_from_record(node))


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of basis: its class, its fields, and what must hold between them."""

    cls: type[Any]
    fields: dict[str, Field]
    holds: Callable[[Any], bool] = lambda basis: True
    rule: str = ""


def _rises(points: np.ndarray) -> bool:
    return bool((np.diff(points) > 0).all())


def _wraps(basis: Any, cls: type[Any]) -> bool:
    """Whether a basis is or contains one of this class."""
    while not isinstance(basis, cls):
        if not isinstance(basis, OrMissing | Clipped | Drawn):
            return False
        basis = basis.basis
    return True


KINDS: dict[str, Kind] = {
    "linear": Kind(Linear, {"reference": NUMBER, "scale": SPREAD, "residue": NUMBER}),
    "polynomial": Kind(
        Polynomial, {"reference": NUMBER, "scale": POSITIVE, "spread": POSITIVE}
    ),
    "spline": Kind(
        Spline,
        {"reference": NUMBER, "scale": POSITIVE, "knots": VECTOR, "transform": MATRIX},
        lambda b: (
            len(b.knots) >= 3
            and _rises(b.knots)
            and len(b.transform) == len(b.knots) - 1
            and b.transform.shape[1] >= 1
        ),
        "a spline with three or more increasing knots and a transform that fits them",
    ),
    "ramps": Kind(
        Ramps,
        {
            "reference": NUMBER,
            "scale": POSITIVE,
            "edges": VECTOR,
            "transform": MATRIX_OR_NONE,
        },
        lambda b: (
            len(b.edges) >= 2
            and _rises(b.edges)
            and (b.transform is None or len(b.transform) == len(b.edges) - 1)
        ),
        "ramps between two or more increasing edges and a transform that fits them",
    ),
    "levels": Kind(
        Levels,
        {"values": LABELS, "baseline": CODE, "scale": SPREAD},
        lambda b: (
            b.baseline < len(b.values) == len(set(b.values))
            and (b.scale > 0) == (len(b.values) > 1)
        ),
        "distinct levels, one of them the baseline, with a scale if there are several",
    ),
    "pooled_levels": Kind(
        PooledLevels,
        {"values": LABELS, "baseline": CODE, "scale": SPREAD, "acts_as": CODES},
        lambda b: (
            b.baseline < len(b.values) == len(set(b.values)) == len(b.acts_as)
            and b.acts_as[b.baseline] == b.baseline
            and set(b.acts_as) <= set(range(len(b.values)))
            and all(b.acts_as[code] == code for code in b.acts_as)
            and (b.scale > 0) == (b.n_terms > 0)
        ),
        "distinct levels, each counting as one that counts as itself, as the baseline "
        "does, with a scale if there are terms",
    ),
    "or_missing": Kind(
        OrMissing,
        {"basis": INNER, "indicator_scale": SPREAD},
        lambda b: not _wraps(b.basis, OrMissing),
        "a basis that does not allow for missing values itself",
    ),
    "rank_gauss": Kind(
        RankGauss,
        {"reference": NUMBER, "points": VECTOR, "scores": VECTOR},
        lambda b: len(b.points) == len(b.scores) > 0 and _rises(b.points),
        "increasing points, each with a score",
    ),
    "clipped": Kind(
        Clipped,
        {"basis": INNER, "low": NUMBER, "high": NUMBER},
        lambda b: b.low <= b.high and not _wraps(b.basis, Clipped),
        "a range around a basis that is not clipped itself",
    ),
    "drawn": Kind(
        Drawn,
        {
            "basis": INNER,
            "origin": NUMBER,
            "spread": POSITIVE,
            "centre": NUMBER,
            "width": POSITIVE,
        },
        lambda b: isinstance(b.basis, Linear | Polynomial | Spline | Ramps | RankGauss),
        "a scale around a line, a curve or scores",
    ),
}
_KIND_OF = {kind.cls: name for name, kind in KINDS.items()}


def basis_record(basis: Basis) -> dict[str, Any]:
    """A basis as its kind and fields."""
    name = _KIND_OF[type(basis)]
    fields = KINDS[name].fields
    values = {key: field.write(getattr(basis, key)) for key, field in fields.items()}
    return {"kind": name, **values}


def basis_from_record(node: Node) -> Any:
    """Undo `basis_record`, refusing what no fit can have produced."""
    if type(node.value) is not dict or "kind" not in node.value:
        raise node.refuse("a mapping with a kind")
    kind = KINDS[Node(node.value["kind"], f"{node.place}.kind").text(KINDS)]
    found = node.mapping("kind", *kind.fields)
    values = {name: field.read(found[name]) for name, field in kind.fields.items()}
    basis = kind.cls(**values)
    if not kind.holds(basis):
        raise node.refuse(kind.rule)
    return basis


def model_record(model: FittedModel) -> dict[str, Any]:
    """Describe a fitted model in plain values and arrays.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> from sknimo.io import model_from_record, model_record
    >>> record = model_record(est.model_)
    >>> record["features"][0]["name"], record["features"][0]["basis"]["kind"]
    ('x0', 'linear')
    >>> bool((model_from_record(record).eta(data.X) == est.model_.eta(data.X)).all())
    True
    """
    features, spec = model.features, model.spec
    columns = zip(features.names, features.bases, features.input_bases, strict=True)
    return {
        "family": model.family.spelling,
        "spec": {
            "hidden": list(spec.hidden),
            "mask": spec.mask,
            "own_out": spec.own_out,
            "input_feature": list(spec.input_feature),
            "code": np.array(spec.code, dtype=np.float64).reshape(len(spec.code), -1),
        },
        "features": [
            {
                "name": name,
                "basis": basis_record(basis),
                "input": basis_record(input_basis),
            }
            for name, basis, input_basis in columns
        ],
        "low": np.array(features.low, dtype=np.float64),
        "high": np.array(features.high, dtype=np.float64),
        "coef": model.coef.double().numpy().copy(),
        "intercept": model.intercept.double().numpy().copy(),
        "params": model.params.numpy().copy(),
        "modulated": model.modulated.numpy().copy(),
    }


def model_from_record(record: dict[str, Any]) -> FittedModel:
    """Undo `model_record`; anything amiss is a `ModelFileError`."""
    found = Node(record, "model").mapping("family", "spec", "features", *ARRAYS)
    intercept, params = found["intercept"], found["params"]
    features = _read_features(found["features"], found["low"], found["high"])
    p, q = features.n_features, len(features.term_feature)
    network = _read_spec(found["spec"], features)
    members = intercept.array((None,))
    if len(members) == 0:
        raise intercept.refuse("one number per member")
    size = len(members)
    dtype = getattr(params.value, "dtype", None)
    dtype = np.float32 if dtype == np.float32 else np.float64
    return FittedModel(
        features=features,
        family=_read_family(found["family"]),
        spec=network,
        coef=_tensor(found["coef"].array((size, q))),
        intercept=_tensor(members),
        params=_tensor(params.array((size, network.n_params), dtype)),
        modulated=_tensor(found["modulated"].array((size, p), np.bool_)),
    )


def _read_family(node: Node) -> Family:
    name = node.text()
    try:
        return get_family(name)
    except ValueError:
        raise node.refuse(f"a family, one of {', '.join(FAMILIES)}") from None


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, order="C"))


def _read_features(columns: Node, low: Node, high: Node) -> FeatureMap:
    names, bases, input_bases = [], [], []
    for column in columns.items():
        name, basis, input_basis = column.fields("name", "basis", "input")
        names.append(name.text())
        bases.append(basis_from_record(basis))
        same = input_basis.value is basis.value
        input_bases.append(bases[-1] if same else basis_from_record(input_basis))
        if bases[-1].reference != input_bases[-1].reference:
            raise column.refuse("a feature with one reference")
    if not names:
        raise columns.refuse("one feature or more")
    known = (len(names) if np.size(low.value) else 0,)
    return FeatureMap(
        tuple(names),
        tuple(bases),
        tuple(input_bases),
        tuple(low.array(known, finite=False).tolist()),
        tuple(high.array(known, finite=False).tolist()),
    )


def _read_spec(node: Node, features: FeatureMap) -> NetworkSpec:
    names = ("hidden", "mask", "own_out", "input_feature", "code")
    hidden, mask, own_out, owner, code = node.fields(*names)
    widths = [width.integer(1, MAX_HIDDEN) for width in hidden.items()]
    if len(widths) != 2:
        raise hidden.refuse("two integers")
    owners = owner.labels()
    if owners != tuple(features.input_feature.tolist()):
        raise owner.refuse("the owners of the inputs that the features have")
    codes = code.array((features.n_features, None))
    return NetworkSpec(
        input_feature=tuple(map(int, owners)),
        code=tuple(tuple(row) for row in codes.tolist()),
        hidden=(widths[0], widths[1]),
        mask=mask.flag(),
        own_out=own_out.flag(),
    )
