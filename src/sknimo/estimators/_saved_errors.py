"""How well coefficients are known, in a file: written and read.

Shapes: c coefficients, q terms.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from sknimo.features import FeatureMap
from sknimo.inference import REASONS, Uncertainty
from sknimo.io import Node, write_real

NUMBERS = ("dispersion", "n_effective", "n_rows")
COVARIANCES = ("nonrobust", "hc3", "cluster")
ERROR_TENSORS = tuple(
    f"errors.{name}"
    for name in (*COVARIANCES, "centre", "terms", "term_centre", "scale")
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
    tensors: dict[str, np.ndarray],
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

    def array(name: str, *shape: int) -> np.ndarray:
        place = f"errors.{name}"
        return Node(tensors.get(place), place).array(shape)

    def square(name: str) -> np.ndarray | None:
        if name != "nonrobust" and f"errors.{name}" not in tensors:
            return None
        out = np.zeros((size, size))
        out[np.ix_(used, used)] = array(name, len(used), len(used))
        return out

    term_centre = array("term_centre", n_classes * len(features.term_feature))
    return replace(
        known,
        centre=array("centre", size),
        nonrobust=square("nonrobust"),
        hc3=square("hc3"),
        cluster=square("cluster"),
        terms=_read_blocks(tensors, features, used, n_classes),
        term_centre=term_centre,
        scale=array("scale", n_members) if "errors.scale" in tensors else None,
    )


def _read_blocks(
    tensors: dict[str, np.ndarray],
    features: FeatureMap,
    used: list[int],
    n_classes: int,
) -> tuple[np.ndarray, ...]:
    """Covariance of the terms of each feature, those of features that have any."""
    widths = [n_classes * basis.n_terms for basis in features.bases]
    acting = _acting(features, used)
    sizes = [width**2 if j in acting else 0 for j, width in enumerate(widths)]
    place = "errors.terms"
    flat = Node(tensors.get(place), place).array((sum(sizes),))
    blocks = np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
    return tuple(
        block.reshape(width, width) if len(block) else np.zeros((width, width))
        for block, width in zip(blocks, widths, strict=True)
    )
