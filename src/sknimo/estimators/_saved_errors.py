"""What is known of errors, rows held out, baselines and dials, in a file.

Shapes: c coefficients, q terms.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from sknimo.features import FeatureMap
from sknimo.inference import (
    REASONS,
    Conformal,
    Uncertainty,
    pack_conformal,
    restore_conformal,
)
from sknimo.io import Node, Tensors, write_real
from sknimo.model import POSITIONS, Dial, FittedModel
from sknimo.survival import Baseline

NUMBERS = ("dispersion", "n_effective", "n_rows")
COVARIANCES = ("nonrobust", "hc3", "cluster")
ERROR_TENSORS = tuple(
    f"errors.{name}"
    for name in (*COVARIANCES, "centre", "terms", "term_centre", "scale", "loose")
)
# Reasons of earlier versions for what there is now.
RETIRED = ("classes", "survival")
# Coefficients beyond which a file would be little else.
MAX_KEPT = 1_000


def write_errors(
    known: Uncertainty, features: FeatureMap
) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """An uncertainty as values and arrays; None for one that is not kept."""
    if known.reason == "not kept":
        return None, {}
    # Sparse models stay small.
    used = np.empty(0, dtype=int)
    if known.nonrobust is not None:
        used = np.flatnonzero(np.diag(known.nonrobust))
    if len(used) > MAX_KEPT:
        return None, {}
    values: dict[str, Any] = {
        "reason": known.reason,
        "estimated": known.estimated,
        "method": known.method,
        "used": used.tolist(),
    }
    values |= {name: write_real(getattr(known, name)) for name in NUMBERS}
    if known.centre is None or known.term_centre is None:
        return values, {}
    arrays = {
        name: matrix[np.ix_(used, used)]
        for name in COVARIANCES
        if (matrix := getattr(known, name)) is not None
    }
    arrays["centre"], arrays["term_centre"] = known.centre, known.term_centre
    if known.scale is not None:
        arrays["scale"] = known.scale
    if known.loose is not None:
        arrays["loose"] = known.loose
    acting = _acting(features, used.tolist())
    flat = [block.ravel() for j, block in enumerate(known.terms) if j in acting]
    arrays["terms"] = np.concatenate([np.empty(0), *flat])
    return values, {f"errors.{name}": array for name, array in arrays.items()}


def _acting(features: FeatureMap, used: list[int]) -> set[int]:
    """Features of the coefficients that are used; the intercept comes first."""
    each = [at % (1 + len(features.coef_feature)) - 1 for at in used]
    return set(features.coef_feature[[at for at in each if at >= 0]].tolist())


def read_errors(
    node: Node,
    tensors: Tensors,
    features: FeatureMap,
    n_members: int,
    n_classes: int = 1,
) -> Uncertainty:
    """Undo `write_errors`; several classes stand side by side."""
    if node.value is None:
        return Uncertainty("not kept")
    found = node.mapping("reason", "estimated", "method", "used", *NUMBERS)
    reason = found["reason"].text(("", *REASONS, *RETIRED))
    if reason in RETIRED:
        return Uncertainty("not kept")
    known = Uncertainty(
        reason,
        dispersion=found["dispersion"].real(),
        n_effective=found["n_effective"].real(),
        n_rows=found["n_rows"].real(),
        estimated=found["estimated"].flag(),
        method=found["method"].text(),
    )
    if reason:
        return known
    size = n_classes * (1 + len(features.coef_names))
    used = [place.integer(0, size - 1) for place in found["used"].items()]
    if used != sorted(set(used)):
        raise found["used"].refuse("increasing positions")
    if len(used) > MAX_KEPT:
        raise found["used"].refuse(f"at most {MAX_KEPT} positions")

    def array(name: str, *shape: int | None) -> np.ndarray:
        return tensors.node(f"errors.{name}").array(shape)

    def square(name: str) -> np.ndarray | None:
        if name != "nonrobust" and f"errors.{name}" not in tensors:
            return None
        out = np.zeros((size, size))
        out[np.ix_(used, used)] = array(name, len(used), len(used))
        return out

    loose = None
    if "errors.loose" in tensors:
        loose = array("loose", len(features.coef_names), None)
    return replace(
        known,
        loose=loose,
        centre=array("centre", size),
        nonrobust=square("nonrobust"),
        hc3=square("hc3"),
        cluster=square("cluster"),
        terms=_read_blocks(tensors, features, used, n_classes),
        term_centre=array("term_centre", n_classes * len(features.term_feature)),
        scale=array("scale", n_members) if "errors.scale" in tensors else None,
    )


def _read_blocks(
    tensors: Tensors, features: FeatureMap, used: list[int], n_classes: int
) -> tuple[np.ndarray, ...]:
    """Covariance of the terms of each feature, those of features that have any."""
    widths = [n_classes * basis.n_terms for basis in features.bases]
    acting = _acting(features, used)
    sizes = [width**2 if j in acting else 0 for j, width in enumerate(widths)]
    flat = tensors.node("errors.terms").array((sum(sizes),))
    blocks = np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
    return tuple(
        block.reshape(width, width) if len(block) else np.zeros((width, width))
        for block, width in zip(blocks, widths, strict=True)
    )


SHAPES = {"facts": (6,), "width": (2, None), "plain": (3, None), "adapted": (3, None)}
INTERVAL_TENSORS = tuple(f"intervals.{name}" for name in SHAPES)


def write_intervals(found: Conformal | None) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    packed = {} if found is None else pack_conformal(found)
    return {f"intervals.{name}": array for name, array in packed.items()}


def read_intervals(tensors: Tensors, model: FittedModel) -> Conformal | None:
    """Undo `write_intervals`."""
    if not any(name in tensors for name in INTERVAL_TENSORS):
        return None
    nodes = {name: tensors.node(f"intervals.{name}") for name in SHAPES}
    found = {name: nodes[name].array(shape) for name, shape in SHAPES.items()}
    # A width follows all terms and the linear predictor, or that alone.
    if found["width"].shape[1] not in (1, len(model.features.term_feature) + 1):
        raise nodes["width"].refuse("a column for every term, or one")
    for name in ("plain", "adapted"):
        if found[name].shape[1] == 0 or (np.diff(found[name]) < 0).any():
            raise nodes[name].refuse("scores in order")
    return restore_conformal(found)


BASELINE = ("baseline.times", "baseline.hazard")


def write_baseline(
    baseline: Baseline | None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The baseline hazard of a survival model, as values and arrays; else nothing."""
    if baseline is None:
        return {}, {}
    labels = list(baseline.labels)
    if not all(type(label) in (str, bool, int, float, type(None)) for label in labels):
        raise ValueError(
            f"Labels of strata {labels} cannot be saved; use strings, numbers or "
            "booleans."
        )
    parts = baseline.times, baseline.hazard
    steps = (np.concatenate(part) for part in parts)
    lengths = [len(times) for times in baseline.times]
    content: dict[str, Any] = {"strata": None if labels == [None] else labels}
    content["lengths"] = lengths
    if baseline.entered:
        content["entered"] = True
    return {"baseline": content}, dict(zip(BASELINE, steps, strict=True))


def read_baseline(node: Node, tensors: Tensors) -> Baseline:
    """Undo `write_baseline`."""
    late = [name for name in ("entered",) if name in node.value]
    strata, lengths, *entered = node.fields("strata", "lengths", *late)
    sizes = [length.integer(low=0) for length in lengths.items()]
    labels = (None,) if strata.value is None else strata.labels()
    if len(labels) != len(sizes) or len(set(labels)) != len(labels):
        raise strata.refuse("a label for every stratum")
    steps = (tensors.node(name).array((sum(sizes),)) for name in BASELINE)
    ends = np.cumsum(sizes)[:-1]
    times, hazard = (tuple(np.split(each, ends)) for each in steps)
    for part in (*times, *hazard):
        if (np.diff(part) < 0).any() or (part < 0).any():
            raise node.refuse("times and hazards that increase")
    return Baseline(labels, times, hazard, any(flag.flag() for flag in entered))


DIAL_TENSORS = ("dial.coef", "dial.intercept", "dial.scores")


def write_dial(dial: Dial | None) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    if dial is None:
        return {}
    return dict(
        zip(DIAL_TENSORS, (dial.coef, dial.intercept, dial.scores), strict=True)
    )


def read_dial(
    tensors: Tensors, n_terms: int, n_classes: int, bend: float
) -> Dial | None:
    """Undo `write_dial`; earlier files have none of it."""
    if not any(name in tensors for name in DIAL_TENSORS):
        return None
    coef, intercept, scores = map(tensors.node, DIAL_TENSORS)
    dial = Dial(
        bend,
        coef.array((n_classes, n_terms)),
        intercept.array((n_classes,)),
        scores.array(POSITIONS.shape, finite=False),
    )
    if not 0 < bend <= 1:
        raise coef.refuse("a share of bends above 0")
    return dial
