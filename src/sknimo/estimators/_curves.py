"""Choose which features enter as curves: `basis="auto"`.

Line and curve of every feature compete in an additive model without a network. Each
part has a precision of its own, learned by maximising the evidence (see
`solver/_evidence.py`); a curve that the evidence can do without becomes a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from sknimo.families import Family
from sknimo.features import FeatureOptions, Label, fit_features, spread_option
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import (
    EvidenceOptions,
    Problem,
    Rows,
    fit_evidence,
    simplify,
    solve_coefficients,
    start_state,
)

AUTO = "auto"
# Curves show on this many rows or not at all.
MAX_ROWS = 4_000
START_RIDGE = 1e-3
# Log evidence that a curve must bring.
CURVE_MARGIN = 3.0


def choose_curves(
    table: np.ndarray,
    names: Sequence[str],
    weight: np.ndarray,
    levels: Sequence[tuple[Label, ...] | None],
    options: FeatureOptions,
    target: np.ndarray,
    offset: np.ndarray,
    family: Family,
) -> FeatureOptions:
    """Replace "auto" by "spline" or "linear" for every feature."""
    kinds = spread_option("basis", options.basis, names, "linear")
    if not any(isinstance(kind, str) and kind == AUTO for kind in kinds):
        return options
    some = np.linspace(0, len(table) - 1, min(len(table), MAX_ROWS)).astype(int)
    trial = replace(
        options,
        basis={j: "spline" if kind == AUTO else kind for j, kind in enumerate(kinds)},
    )
    features = fit_features(table, names, weight, levels, trial, quiet=True)
    kept = _needed_parts(
        features.terms(table[some]),
        features.term_group,
        target[some],
        weight[some] * (weight.sum() / weight[some].sum()),
        offset[some],
        family,
    )
    curved = kept[kept >= features.n_features] - features.n_features
    chosen: Mapping[int, str] = {
        j: ("spline" if j in curved else "linear") if kind == AUTO else kind
        for j, kind in enumerate(kinds)
    }
    return replace(options, basis=chosen)


def _needed_parts(
    terms: np.ndarray,
    group: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    offset: np.ndarray,
    family: Family,
) -> np.ndarray:
    """Groups of terms that an additive model keeps."""
    parts, part = np.unique(group, return_inverse=True)
    problem = Problem(
        terms=torch.as_tensor(terms),
        term_feature=torch.as_tensor(part),
        inputs=torch.zeros(len(terms), 0, dtype=torch.float64),
        y=torch.as_tensor(target),
        offset=torch.as_tensor(offset),
        family=family,
        spec=make_spec([], len(parts), (1, 1), "none", True),
    )
    counts = torch.as_tensor(weight)
    penalty = make_penalty(
        "ridge",
        torch.full((1,), START_RIDGE, dtype=torch.float64),
        problem.term_feature,
        len(parts),
    )
    share = (counts / counts.sum()).unsqueeze(0)
    rows = Rows(problem.y, problem.offset, share, family)
    start = solve_coefficients(problem.terms.unsqueeze(0), rows, penalty).coefficients
    everything = torch.ones(len(parts), dtype=torch.bool)
    options = EvidenceOptions(feature_margin=CURVE_MARGIN)
    state = fit_evidence(
        problem,
        counts,
        start_state(
            problem,
            counts,
            torch.zeros(problem.spec.n_params, dtype=torch.float64),
            start,
            everything,
            torch.zeros_like(everything),
        ),
        options,
    )
    state = simplify(problem, counts, state, options)
    return parts[state.support.numpy()]
