"""Which combinations of values the rows make possible.

Columns are standardised, levels and missing values enter as indicators, and a row is
as unusual as it is far from the mean in units of the joint covariance. What a feature
allows of the others is judged alone, so that a rare level is no odd one: a December is
rare, a December in the middle of the year does not exist.

Shapes: n rows, d columns.
"""

from dataclasses import dataclass

import numpy as np

from sknimo.explain._kinds import n_levels
from sknimo.explain._local import check_weight, find_roles, weighted_quantiles
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

# Tables of more columns are not judged: their matrix would outgrow the model.
MAX_COLUMNS = 256
# Least variance of a direction, relative to that of the columns: rows differ a little
# even where columns are copies of each other.
LEAST_VARIANCE = 0.01
# Rows further out than this share of all rows are outside.
INSIDE = 0.99


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Where rows lie, jointly."""

    features: FeatureMap
    owner: np.ndarray  # (d,), feature of each column
    # (d,), code of the level that a column stands for, NaN for the number itself,
    # infinite for a missing value.
    value: np.ndarray
    # Each (d,).
    mean: np.ndarray
    scale: np.ndarray
    # (d, d), of the standardised columns, and its inverse.
    covariance: np.ndarray
    precision: np.ndarray
    distance: np.ndarray  # (n,), squared distance of the rows from their mean
    weight: np.ndarray  # (n,)

    def columns(self, table: np.ndarray) -> np.ndarray:
        """Standardised columns of some rows, (n, d)."""
        z = _columns(self.features, table, self.owner, self.value)
        return (z - self.mean) / self.scale

    def square(self, z: np.ndarray) -> np.ndarray:
        """Squared distance of standardised columns from the mean, (n,)."""
        return np.einsum("ij,ij->i", z @ self.precision, z)

    def beyond_own(self, z: np.ndarray, feature: int) -> np.ndarray:
        """The same of the other features, given what this one is, (n,)."""
        own = self.owner == feature
        if not own.any():
            return self.square(z)
        alone = np.linalg.inv(self.covariance[np.ix_(own, own)])
        return self.square(z) - np.einsum("ij,ij->i", z[:, own] @ alone, z[:, own])

    def limit(self, share: float = INSIDE) -> float:
        """Squared distance within which that share of the rows lies."""
        return float(weighted_quantiles(self.distance, self.weight, [share])[0])


def measure_support(
    model: FittedModel, table: np.ndarray, weight: np.ndarray | None = None
) -> Support | None:
    """Where weighted rows lie in the features with a role; None for very many."""
    features = model.features
    owner, value = _layout(features, find_roles(model).relevant)
    if not 0 < len(owner) <= MAX_COLUMNS or len(table) < 3:
        return None
    weight = check_weight(weight, len(table))
    raw = _columns(features, table, owner, value)
    mean = weight @ raw
    scale = np.sqrt(weight @ (raw - mean) ** 2)
    kept = np.isfinite(scale) & (scale > 0)
    owner, value, mean, scale = owner[kept], value[kept], mean[kept], scale[kept]
    if not kept.any():
        return None
    z = (raw[:, kept] - mean) / scale
    size = 1 / float((weight**2).sum())
    shrink = max(LEAST_VARIANCE, len(owner) / (len(owner) + size) / 10)
    covariance = (1 - shrink) * (z * weight[:, None]).T @ z
    covariance[np.diag_indices(len(owner))] += shrink
    precision = np.linalg.inv(covariance)
    return Support(
        features=features,
        owner=owner,
        value=value,
        mean=mean,
        scale=scale,
        covariance=covariance,
        precision=precision,
        distance=np.einsum("ij,ij->i", z @ precision, z),
        weight=weight,
    )


def _layout(
    features: FeatureMap, relevant: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Owner and meaning of each column."""
    found: list[tuple[int, float]] = []
    for j in np.flatnonzero(relevant).tolist():
        levels = n_levels(features, j)
        if levels:
            baseline = int(features.reference[j])
            found += [(j, float(k)) for k in range(levels) if k != baseline]
        else:
            found.append((j, np.nan))
        if features.admits_missing[j]:
            found.append((j, np.inf))
    owner = np.array([j for j, _ in found], dtype=int)
    return owner, np.array([value for _, value in found])


def _columns(
    features: FeatureMap, table: np.ndarray, owner: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Numbers and indicators, (n, d); a missing number stands at the reference."""
    out = np.empty((len(table), len(owner)))
    for at, (j, of) in enumerate(zip(owner.tolist(), value, strict=True)):
        column = table[:, j]
        if np.isnan(of):
            out[:, at] = np.where(np.isnan(column), features.reference[j], column)
        else:
            out[:, at] = np.isnan(column) if np.isinf(of) else column == of
    return out
