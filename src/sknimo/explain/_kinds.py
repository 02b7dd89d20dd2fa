"""What a feature is, and the values between which it can be switched.

A numeric feature has slopes. A category has none: its codes are names, and what it
does is said by *contrasts*, differences of eta between two of its *states* with
everything else as it is. A missing value is a state too, of a numeric feature as well:
one that stands beside the reference.

Shapes: n rows, p features, l states.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sknimo.features import FeatureMap, drawn_scale
from sknimo.model import FittedModel

ENDS = (0.05, 0.95)
WIDTH_OF_ENDS = 3.29  # in standard deviations of a normal distribution
# A standard deviation so many times that of most rows is that of a few.
OUTLYING = 3.0

FeatureKind = Literal["line", "curve", "category"]


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Values (l,) that a feature is switched between, and their shares of the rows.

    Values are codes of levels, or the reference of a numeric feature; NaN is missing.
    """

    values: np.ndarray
    share: np.ndarray

    def __len__(self) -> int:
        return len(self.values)


def feature_kinds(features: FeatureMap) -> tuple[FeatureKind, ...]:
    """One of "line", "curve" and "category" per feature."""
    return tuple(_kind(features, j) for j in range(features.n_features))


def _kind(features: FeatureMap, j: int) -> FeatureKind:
    if features.levels(j) is not None:
        return "category"
    n_terms = int((features.bases[j].group < 2).sum())
    return "curve" if n_terms > 1 or drawn_scale(features.bases[j]) else "line"


def is_category(features: FeatureMap) -> np.ndarray:
    """Which features have levels, (p,)."""
    found = [features.levels(j) is not None for j in range(features.n_features)]
    return np.array(found, dtype=bool)


def n_levels(features: FeatureMap, j: int) -> int:
    """Number of levels of a category, zero for a numeric feature."""
    return len(features.levels(j) or ())


def contrasted(features: FeatureMap, j: int) -> list[float]:
    """Values of a feature that have a contrast, in the order of its coefficients.

    Codes of the levels but the baseline, then NaN where values may be missing.
    """
    codes = map(float, range(n_levels(features, j)))
    values = [code for code in codes if code != features.bases[j].reference]
    return [*values, np.nan] if features.admits_missing[j] else values


def usual_spread(column: np.ndarray) -> float:
    """Standard deviation of a number as most rows have it, zero for a few values."""
    known = column[~np.isnan(column)]
    if len(known) == 0:
        return 0.0
    low, high = np.quantile(known, ENDS)
    return float(high - low) / WIDTH_OF_ENDS


def usual_scale(features: FeatureMap, table: np.ndarray) -> np.ndarray:
    """Spread of each feature in training, less where few rows make it many times so.

    A step that only they could make is no measure of what happens to the others, (p,).
    """
    scale = features.scale.copy()
    for j in np.flatnonzero(~is_category(features)).tolist():
        usual = usual_spread(table[:, j])
        if 0 < usual < scale[j] / OUTLYING:
            scale[j] = usual
    return scale


def near_reference(
    features: FeatureMap, table: np.ndarray, relevant: np.ndarray
) -> np.ndarray:
    """Rows within a standard deviation of the reference in every number, (n,) bool.

    Numbers with a role count, `relevant` (p,); missing values do not.
    """
    numeric = relevant & ~is_category(features)
    scale = usual_scale(features, table)[numeric]
    apart = np.abs(table[:, numeric] - features.reference[numeric])
    return np.asarray(~(apart > scale).any(axis=1))


def switch(table: np.ndarray, j: int, value: float | np.ndarray) -> np.ndarray:
    """The same rows with one feature at a given value, or one for each row."""
    switched = table.copy()
    switched[:, j] = value
    return switched


def eta_at(
    model: FittedModel, table: np.ndarray, j: int, value: float, eta: np.ndarray
) -> np.ndarray:
    """Linear predictor of all rows with one feature at a given value, (n,).

    `eta` (n,) is that of the rows as they are: those that have the value already keep
    theirs to the last bit, and only the others are evaluated.
    """
    column = table[:, j]
    moved = ~np.isnan(column) if np.isnan(value) else column != value
    out = eta.copy()
    if moved.any():
        out[moved] = model.eta(switch(table[moved], j, value))
    return out


def find_states(
    features: FeatureMap, j: int, column: np.ndarray, weight: np.ndarray
) -> States | None:
    """States that the rows have; None for a feature that cannot be switched.

    Those of a category are its levels, and missing. A numeric feature is missing or
    known, and then at its reference.
    """
    missing = np.isnan(column)
    if features.levels(j) is not None:
        codes = column[~missing].astype(int)
        total = np.bincount(codes, weight[~missing], minlength=n_levels(features, j))
        values = np.arange(len(total), dtype=float)
    else:
        values, total = features.reference[j : j + 1], weight[~missing].sum()[None]
    total = np.append(total, weight[missing].sum())
    values = np.append(values, np.nan)
    kept = total > 0
    if kept.sum() < 2:
        return None
    return States(values[kept], total[kept] / total.sum())
