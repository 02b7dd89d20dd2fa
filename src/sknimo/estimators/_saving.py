"""Estimators as files: what is kept of them, and how it is written and read.

A file holds the fitted model, what the summary knows of the training rows, the
parameters, and the small fitted attributes. It does not hold what only served the
training (`LEFT_OUT`), nor parameters that are objects: those are named in the file and
come back as their defaults.

Shapes: p features, q terms.
"""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._explaining import refuse_classes
from sknimo.estimators._later import Late
from sknimo.estimators._saved_errors import (
    BASELINE,
    DIAL_TENSORS,
    ERROR_TENSORS,
    INTERVAL_TENSORS,
    write_baseline,
    write_dial,
    write_errors,
    write_intervals,
)
from sknimo.exceptions import ModelFileError
from sknimo.explain import (
    Effects,
    Origin,
    Reach,
    TrainingFacts,
    feature_kinds,
    find_roles,
    restore_comparisons,
    restore_levels,
    restore_reach,
    widest_class,
)
from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.inference import Conformal
from sknimo.io import (
    MODEL_TENSORS,
    Archive,
    Node,
    OnnxDtype,
    Scorecard,
    Tensors,
    bent_features,
    build_onnx,
    build_scorecard,
    build_sql,
    pack_model,
    write_archive,
    write_onnx,
    write_real,
    write_sql,
)
from sknimo.model import ClassModels, FittedModel
from sknimo.penalties import Penalty
from sknimo.training import check_number
from sknimo.version import VERSION

# Traces of the training, which files leave out.
LEFT_OUT = ("history_", "oob_prediction_", "path_", "trials_", "verdict_")
# Small fitted attributes of the plain and of the searching estimators, and how they
# are read.
FIXED_ATTRIBUTES: dict[str, Callable[[Node], Any]] = {
    "n_iter_": lambda node: node.integer(low=0),
    "converged_": Node.flag,
}
# Of a search, what files of the first schemas do not have; it comes back as NaN.
LATER_ATTRIBUTES = (
    *("bend_", "held_out_score_", "glm_held_out_score_"),
    *("held_out_gain_", "held_out_gain_error_", "status_"),
)
_REALS = ("alpha_", "network_alpha_", "log_evidence_", "glm_log_evidence_")
SEARCH_ATTRIBUTES = FIXED_ATTRIBUTES | {
    "n_members_": lambda node: node.integer(low=0),
    "best_index_": lambda node: node.integer(low=-1),
    **dict.fromkeys((*_REALS, *LATER_ATTRIBUTES[:-1]), Node.real),
    "status_": Node.text,
}
CERTIFICATE = ("kkt", "objective", "glm_objective")

# Arrays of `Effects` with one number per feature; ratios go with the log links alone.
EFFECTS = (
    *("reference", "scale", "coef", "coef_std", "average_effect", "effect_sd"),
    *("variance_share", "nonlinearity", "bend", "response_effect"),
)
RATIOS = ("ratio", "average_ratio")
# Not in files of earlier versions.
COMPARED = ("comparisons", "importance", "corrected")
CLASS_REACH = "class_reach"
FACT_TENSORS = (
    *("swap", "directed", "contrast", "levels", "reach"),
    *(*COMPARED, *EFFECTS, *RATIOS),
)
OWN_TENSORS = (
    *(*MODEL_TENSORS, *ERROR_TENSORS, *INTERVAL_TENSORS),
    *(*BASELINE, *DIAL_TENSORS, CLASS_REACH),
)
TENSORS = (*OWN_TENSORS, *(f"facts.{name}" for name in FACT_TENSORS))
DEVIANCES = ("deviance", "null_deviance", "glm_deviance")

CLASS_DTYPES = ("bool", "str", "object", "float16", "float32", "float64") + tuple(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
)
MAX_PARAM_LENGTH = 10_000
# The gauge is a square of this size in memory, if almost empty.
MAX_TERMS = 20_000


class Saveable:
    """An estimator that can be written to a file."""

    model_: FittedModel
    _facts: Late[TrainingFacts | None]
    _conformal: Conformal | None
    handle_unknown: str
    missing: str
    _recipe: Any

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, for `sknimo.load`.

        The file is replaced as a whole or not at all. It holds neither training rows
        nor code, and anyone's file can be loaded without harm. `history_`,
        `trials_` and `path_` are left out, and parameters that are objects, such
        as a splitter, become their defaults.

        Parameters
        ----------
        path : str or path
            Where to write; `.sknimo` is the usual ending.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sknimo import load
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> path = Path(tempfile.mkdtemp()) / "model.sknimo"
        >>> est.save(path)
        >>> bool((load(path).predict(data.X) == est.predict(data.X)).all())
        True
        """
        check_is_fitted(self)
        write_archive(path, describe_estimator(self))

    def to_onnx(
        self, path: str | os.PathLike[str], *, dtype: OnnxDtype = "float64"
    ) -> None:
        """Export the fitted model with its explanations as an ONNX graph.

        The graph takes raw columns and returns `prediction`, `eta`,
        `local_coefficients` and `contributions` as `explain` does by default, for
        classifiers also `probabilities` and `label`; of more than two classes it
        returns `eta`, `probabilities` and `label`. An offset is not part of it.

        Parameters
        ----------
        path : str or path
            Where to write; the file is replaced as a whole or not at all.
        dtype : {"float64", "float32"}, default="float64"
            Type of the numeric inputs and outputs; computation is in float64.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> path = Path(tempfile.mkdtemp()) / "model.onnx"
        >>> est.to_onnx(path)
        >>> path.stat().st_size > 0
        True
        """
        check_is_fitted(self)
        whole = getattr(self, "_whole", None)
        graph = build_onnx(
            self.model_ if whole is None else whole,
            classes=getattr(self, "classes_", None),
            swap=None if self._facts is None else self._facts.swap,
            **self._admitted(),
            dtype=dtype,
        )
        write_onnx(path, graph)

    def _admitted(self) -> dict[str, bool]:
        """What exports take for the reference, as `predict` does."""
        unknown = self.handle_unknown == "reference"
        gaps = unknown and self.missing == "indicator"
        return {"unknown_is_baseline": unknown, "gaps_are_reference": gaps}

    def to_sql(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        table: str = "data",
        X: Any = None,
    ) -> str:
        """Export the model as one SQL query that scores a table.

        Where no network bends a coefficient the query is exact: lines, curves by their
        pieces and levels by CASE. Unknown levels and missing values that the model
        would refuse give NULL. An offset is not part of it.

        Parameters
        ----------
        path : str or path, optional
            Where to write; the file is replaced as a whole or not at all.
        table : str, default="data"
            Name of the table to score.
        X : array or data frame, optional
            Rows on which a network is approximated by curves; the query says how well.
            They must have every level, and missing values where the model knows them.
            Without rows a network is refused.

        Returns
        -------
        str
            The query.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
        >>> print(est.to_sql(table="patients").splitlines()[-2])
          FROM "patients" AS rows_in
        """
        check_is_fitted(self)
        if self._recipe is not None:
            raise ValueError(
                "The columns of a formula have no SQL form. Fit a table that has them."
            )
        refuse_classes(self, "to_sql")
        model, note = self.model_, f"sknimo {VERSION}"
        if X is not None and bent_features(model):
            model, told = approximate(self, X)
            note = f"{note}\n{told}"
        query = build_sql(
            model,
            table=table,
            classes=getattr(self, "classes_", None),
            **self._admitted(),
            note=note,
        )
        if path is not None:
            write_sql(path, query)
        return query

    def scorecard(self, *, double: float = 20.0, max_ranges: int = 10) -> Scorecard:
        """Points per level and range that add up to the prediction.

        For additive models: a network is refused.

        Parameters
        ----------
        double : float, default=20
            Points that double the odds or the rate; for the identity link the widest
            feature has 100 points instead.
        max_ranges : int, default=10
            Largest number of ranges of one number.

        Returns
        -------
        Scorecard
            With `to_csv`, `to_markdown`, `predict` and the largest `error`.

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> est.scorecard().to_csv().splitlines()[0]
        'feature,value,from,below,points'
        """
        check_is_fitted(self)
        refuse_classes(self, "scorecard")
        check_number("double", double, Real, 1e-6)
        check_number("max_ranges", max_ranges, Integral, 1)
        return build_scorecard(self.model_, double=double, max_ranges=int(max_ranges))


def approximate(est: Any, X: Any) -> tuple[FittedModel, str]:
    """An additive model of what a network predicts for some rows; how near it is."""
    from sknimo.estimators._plain import NIMORegressor

    eta = est._eta(X, 0.0)
    how = {"missing": est.missing, "categorical": est.categorical, "max_iter": 0}
    near = NIMORegressor(basis="spline", alpha=0.0, **how).fit(X, eta)
    _refuse_unseen(est.model_.features, near.model_.features)
    off = np.abs(near.predict(X) - eta)
    explained = 1 - float((off**2).mean() / eta.var()) if eta.var() else 1.0
    told = (
        f"Approximates a network by curves: R2 of {explained:.4f} in the linear "
        f"predictor of {len(eta)} rows, root mean squared error "
        f"{np.sqrt((off**2).mean()):.3g}, largest error {off.max():.3g}."
    )
    return replace(near.model_, family=est.model_.family), told


def _refuse_unseen(known: FeatureMap, seen: FeatureMap) -> None:
    """Refuse rows that lack a level, or missing values, that a model knows."""
    for j, name in enumerate(known.names):
        there = seen.levels(j) or ()
        lost = [repr(level) for level in known.levels(j) or () if level not in there]
        what = f"{name} = {' or '.join(lost[:5])}"
        if not lost and known.admits_missing[j] and not seen.admits_missing[j]:
            lost, what = ["missing"], f"a missing value of {name}"
        if lost:
            told = f"X has no row with {what}, which the model knows: add such rows."
            raise ValueError(told)


def describe_estimator(est: Any) -> Archive:
    """Everything that a file keeps of a fitted estimator."""
    several: ClassModels | None = getattr(est, "_whole", None)
    model = pack_model(est.model_ if several is None else several.stacked)
    params, omitted = _write_params(est)
    facts, tensors = write_facts(est._facts if several is None else None)
    of_all = getattr(est, "_class_errors", None) or est._uncertainty
    errors, more = write_errors(of_all, est.model_.features)
    certificate = getattr(est, "certificate_", None)
    classes = getattr(est, "classes_", None)
    baseline, steps = write_baseline(getattr(est, "baseline_", None))
    names = SEARCH_ATTRIBUTES if certificate is None else FIXED_ATTRIBUTES
    content = {
        "library": VERSION,
        "class": type(est).__name__,
        "params": params,
        "omitted": omitted,
        "named": hasattr(est, "feature_names_in_"),
        "classes": None if classes is None else write_classes(classes),
        "attributes": {name: _write_attribute(est, name) for name in names},
        "certificate": None
        if certificate is None
        else {
            **{name: write_real(getattr(certificate, name)) for name in CERTIFICATE},
            "status": certificate.status,
        },
        "facts": facts,
        "errors": errors,
        "model": model.content,
    }
    tensors |= more | steps | write_intervals(est._conformal)
    tensors |= write_dial(getattr(est, "_dial", None))
    reach = getattr(est, "_class_reach", None)
    if several is not None and reach is not None and reach.shape is not None:
        columns = restore_reach(widest_class(several)).columns
        if np.array_equal(columns, reach.columns):  # not where bends were set
            tensors[CLASS_REACH] = reach.shape
    return Archive(content | baseline, model.tensors | tensors)


def _write_attribute(est: Any, name: str) -> Any:
    """A small number; files call the precision of inputs by an older name."""
    value = getattr(est, "input_precision_" if name == "network_alpha_" else name)
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return int(value) if isinstance(value, Integral) else write_real(value)


def write_classes(classes: np.ndarray) -> dict[str, Any]:
    """Labels and the type of their array."""
    dtype = "str" if classes.dtype.kind == "U" else classes.dtype.name
    labels = classes.tolist()
    if dtype not in CLASS_DTYPES or not all(
        type(label) in (str, bool, int, float) for label in labels
    ):
        raise ValueError(
            f"Class labels {labels} cannot be saved; use strings, numbers or booleans."
        )
    return {"dtype": dtype, "labels": labels}


def read_classes(node: Node, several: bool = False) -> np.ndarray:
    """Undo `write_classes`: two labels, or more where there are `several`."""
    count = "labels" if several else "two labels"
    dtype, labels = node.fields("dtype", "labels")
    values = [label.label() for label in labels.items()]
    name = dtype.text(CLASS_DTYPES)
    try:
        classes = np.array(values, dtype=name)
    except (TypeError, ValueError, OverflowError) as error:
        raise node.refuse(f"{count} of type {name}") from error
    fits = classes.ndim == 1 and (len(classes) > 2 if several else len(classes) == 2)
    if not fits or write_classes(classes) != node.value:
        raise node.refuse(f"{count} of type {name}")
    if len(set(classes.tolist())) < len(classes):
        raise node.refuse("two different labels" if not several else "different labels")
    return classes


class _NoPlaceError(Exception):
    """A parameter is an object that has no place in a file."""


def _write_params(est: Any) -> tuple[dict[str, Any], list[str]]:
    """Constructor parameters, and the names of those that cannot be written."""
    params, omitted = {}, []
    for name, value in est.get_params(deep=False).items():
        try:
            params[name] = write_param(value)
        except _NoPlaceError:
            omitted.append(name)
    return params, omitted


def write_param(value: Any) -> Any:
    """Plain values as they are, containers as a mapping of their type to a list."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Family | Penalty) and value.is_registered:
        return value.name
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral) and abs(int(value)) <= 2**53:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral):
        number = float(value)
        return number if math.isfinite(number) else {"number": str(number)}
    if type(value) in (tuple, list) and len(value) <= MAX_PARAM_LENGTH:
        return {type(value).__name__: [write_param(item) for item in value]}
    if type(value) is dict and len(value) <= MAX_PARAM_LENGTH:
        pairs = [[write_param(key), write_param(v)] for key, v in value.items()]
        if not any(key is None or type(key) is dict for key, _ in pairs):
            return {"dict": pairs}
    if (
        isinstance(value, np.ndarray)
        and value.ndim == 1
        and value.dtype.kind in "biufU"
    ):
        return {"array": write_param(value.tolist())["list"]}
    raise _NoPlaceError


def read_param(node: Node) -> Any:
    """Undo `write_param`."""
    value = node.value
    if value is None:
        return None
    if type(value) is not dict:
        return node.label()
    if len(value) != 1:
        raise node.refuse("a value or a container of values")
    (kind,) = value
    (inner,) = node.fields(kind)
    if kind == "number":
        return inner.real()
    if kind == "array":
        return np.array(inner.labels())
    if kind == "dict":
        pairs = [pair.items() for pair in inner.items()]
        if any(len(pair) != 2 for pair in pairs):
            raise node.refuse("pairs of keys and values")
        return {key.label(): read_param(item) for key, item in pairs}
    if kind not in ("tuple", "list"):
        raise node.refuse("a value or a container of values")
    items = [read_param(item) for item in inner.items()]
    return items if kind == "list" else tuple(items)


def write_facts(
    facts: TrainingFacts | None,
) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """What is known of the training rows, as values and arrays."""
    if facts is None:
        return None, {}
    if len(facts.swap) > MAX_TERMS:
        raise ValueError(
            f"The model is too large to save: {len(facts.swap)} terms, where "
            f"{MAX_TERMS} are allowed. Merge rare levels of categorical columns."
        )
    effects = facts.effects
    squares = {"swap": facts.swap, "directed": effects.directed}
    kept = {name: _used(square) for name, square in squares.items()}
    names = (*EFFECTS, *RATIOS, "contrast")
    tensors = {name: getattr(effects, name) for name in names}
    tensors["levels"] = effects.levels.measured if len(effects.levels) else None
    tensors["reach"] = facts.reach.shape
    if (found := facts.comparisons) is not None:
        compared = found.measured, found.importance, found.corrected
        tensors |= dict(zip(COMPARED, compared, strict=True))
    for name, square in squares.items():
        tensors[name] = square[np.ix_(*kept[name].values())]
    arrays = {f"facts.{k}": array for k, array in tensors.items() if array is not None}
    values = {
        "n_samples": int(facts.n_samples),
        "n_rows": int(effects.n_rows),
        "near": write_real(facts.near),
        **{name: write_real(getattr(facts, name)) for name in DEVIANCES},
        **kept,
    }
    return values, arrays


def _used(matrix: np.ndarray) -> dict[str, list[int]]:
    """Rows and columns that are not all zero: sparse models stay small."""
    used = matrix != 0
    return {
        "rows": np.flatnonzero(used.any(axis=1)).tolist(),
        "columns": np.flatnonzero(used.any(axis=0)).tolist(),
    }


def _read_square(kept: Node, values: Node, size: int) -> np.ndarray:
    """A matrix (size, size) of which some rows and columns are kept."""
    axes = []
    for axis in kept.fields("rows", "columns"):
        axes.append([place.integer(0, size - 1) for place in axis.items()])
        if axes[-1] != sorted(set(axes[-1])):
            raise axis.refuse("increasing positions")
    out = np.zeros((size, size))
    out[np.ix_(*axes)] = values.array((len(axes[0]), len(axes[1])), finite=False)
    return out


def read_reach(tensors: Tensors, name: str, model: FittedModel) -> Reach:
    """How far the training rows reach; of files of schema 1 the ranges alone."""
    reach = restore_reach(model)
    if name not in tensors:
        return reach
    n_columns = len(reach.columns)
    return restore_reach(model, tensors.node(name).array((n_columns + 1, n_columns)))


def read_facts(
    node: Node, tensors: Tensors, model: FittedModel
) -> TrainingFacts | None:
    """Undo `write_facts`."""
    if node.value is None:
        return None
    names = ("n_samples", "n_rows", *DEVIANCES, "swap", "directed")
    has_near = isinstance(node.value, dict) and "near" in node.value
    found = node.mapping(*names, *(("near",) if has_near else ()))
    features = model.features
    p, q = features.n_features, len(features.term_feature)
    if max(p, q) > MAX_TERMS:
        raise ModelFileError(f"the model has more than {MAX_TERMS} terms.")

    def fact(name: str, *shape: int, dtype: Any = np.float64) -> np.ndarray:
        return tensors.node(f"facts.{name}").array(shape, dtype, finite=False)

    with_ratio = "facts.ratio" in tensors
    levels = restore_levels(model)
    if len(levels):
        levels = restore_levels(model, fact("levels", 3, len(levels)))
    comparisons, n_coef = None, len(features.coef_feature)
    if "facts.comparisons" in tensors:
        measured = fact("comparisons", 8, n_coef)
        comparisons = restore_comparisons(measured, fact("importance", p))
        if "facts.corrected" in tensors:
            comparisons = replace(comparisons, corrected=fact("corrected", 4, n_coef))
    effects = Effects(
        names=features.names,
        kinds=feature_kinds(features),
        levels=levels,
        **{name: fact(name, p) for name in EFFECTS},
        ratio=fact("ratio", p) if with_ratio else None,
        average_ratio=fact("average_ratio", p) if with_ratio else None,
        contrast=fact("contrast", p, dtype=np.bool_),
        directed=_read_square(found["directed"], tensors.node("facts.directed"), p),
        roles=find_roles(model),
        family=model.family,
        n_rows=found["n_rows"].integer(low=1),
        origin=Origin(),
    )
    return TrainingFacts(
        n_samples=found["n_samples"].integer(low=1),
        swap=_read_square(found["swap"], tensors.node("facts.swap"), q),
        effects=effects,
        reach=read_reach(tensors, "facts.reach", model),
        comparisons=comparisons,
        near=found["near"].real() if has_near else math.nan,
        **{name: found[name].real() for name in DEVIANCES},
    )
