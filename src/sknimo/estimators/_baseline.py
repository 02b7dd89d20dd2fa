"""The baseline hazard of a survival model in its file."""

from typing import Any

import numpy as np

from sknimo.io import Node
from sknimo.survival import Baseline

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
    content = {"strata": None if labels == [None] else labels, "lengths": lengths}
    return {"baseline": content}, dict(zip(BASELINE, steps, strict=True))


def read_baseline(node: Node, tensors: dict[str, np.ndarray]) -> Baseline:
    """Undo `write_baseline`."""
    strata, lengths = node.fields("strata", "lengths")
    sizes = [length.integer(low=0) for length in lengths.items()]
    labels = (None,) if strata.value is None else strata.labels()
    if len(labels) != len(sizes) or len(set(labels)) != len(labels):
        raise strata.refuse("a label for every stratum")
    steps = (Node(tensors.get(name), name).array((sum(sizes),)) for name in BASELINE)
    ends = np.cumsum(sizes)[:-1]
    times, hazard = (tuple(np.split(each, ends)) for each in steps)
    for part in (*times, *hazard):
        if (np.diff(part) < 0).any() or (part < 0).any():
            raise node.refuse("times and hazards that increase")
    return Baseline(labels, times, hazard)
