"""How far coefficients depend on the reference, and what the first layer reads.

A coefficient is the effect at one point. Here it is set beside the effect at others,
points that could have been the reference just as well: if they differ much, say whose
effect it is.

Shapes: n rows, p features, c coefficients, m points.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.explain._frames import Origin, Shown, cut, make_frame, pad, show_number
from sknimo.explain._kinds import contrasted, eta_at
from sknimo.explain._local import (
    check_weight,
    find_roles,
    local_slopes,
    sum_by_owner,
    weighted_quantiles,
)
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

ROUNDING = 1e-12
POINTS = ("mean", "median", "lower_quartile", "upper_quartile")


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceSensitivity(Shown):
    """Coefficients beside the same effects at other points.

    Attributes
    ----------
    names : tuple of str
        One per coefficient: a feature, a feature and a level, a feature and missing.
    coef : ndarray of shape (c,)
        At the reference.
    points : tuple of str
        The other points: mean, median and quartiles of all numeric features, each with
        the most frequent level of every category and of every feature of two values.
    effects : ndarray of shape (c, m)
        Slope or contrast there, everything else at that point.
    values : ndarray of shape (m, p)
        The points themselves, codes for levels.
    n_rows : int
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> found = est.reference_sensitivity(data.X)
    >>> bool(abs(found.effects[:, 0] - est.coef_).max() < 1e-9)
    True
    """

    names: tuple[str, ...]
    coef: np.ndarray
    points: tuple[str, ...]
    effects: np.ndarray
    values: np.ndarray
    n_rows: int
    origin: Origin

    @property
    def largest_change(self) -> np.ndarray:
        """Largest `|effect - coef| / |coef|` over the points, (c,).

        Zero where nothing changes, infinite where a zero coefficient does.
        """
        change = np.abs(self.effects - self.coef[:, None]).max(axis=1, initial=0.0)
        # Differences of eta around a coefficient of zero leave rounding behind.
        change[change <= ROUNDING * np.abs(self.effects).max(initial=0.0)] = 0.0
        size = np.abs(self.coef)
        out = np.where(change > 0, np.inf, 0.0)
        return np.divide(change, size, out=out, where=size > 0)

    @property
    def changes_sign(self) -> np.ndarray:
        """Whether some point has an effect of the opposite sign, (c,)."""
        return (self.effects * self.coef[:, None] < 0).any(axis=1)

    def to_frame(self) -> Any:
        """One row per coefficient, as a data frame of the library of `X`."""
        columns: dict[str, Any] = {"name": list(self.names), "coef": self.coef}
        columns |= {name: self.effects[:, at] for at, name in enumerate(self.points)}
        columns["largest_change"] = self.largest_change
        columns["changes_sign"] = self.changes_sign
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        heads = ("coef", *(point.replace("_quartile", " q.") for point in self.points))
        lines = [
            f"Sensitivity to the reference over {self.n_rows} rows",
            " " * 20 + "".join(f"{head:>10}" for head in heads) + f"{'change':>9}",
        ]
        for at, name in enumerate(self.names):
            numbers = (self.coef[at], *self.effects[at])
            cells = "".join(f"{show_number(value, 3):>10}" for value in numbers)
            change = f"{100 * self.largest_change[at]:.0f} %"
            change = "> 999 %" if self.largest_change[at] > 9.99 else change
            lines.append(f"{pad(cut(name, 19), 20)}{cells}{change:>9}")
        return "\n".join(lines)


def reference_sensitivity(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    origin: Origin | None = None,
) -> ReferenceSensitivity:
    """Set the coefficients beside the effects at the mean, median and quartiles."""
    features = model.features
    points = find_points(features, table, check_weight(weight, len(table)))
    return ReferenceSensitivity(
        names=features.coef_names,
        coef=features.coefficients(model.term_coef),
        points=POINTS,
        effects=effects_at(model, points).T,
        values=points,
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )


def find_points(
    features: FeatureMap, table: np.ndarray, row_weight: np.ndarray
) -> np.ndarray:
    """The points of `POINTS`, rows of a table, (m, p)."""
    out = np.tile(features.reference, (len(POINTS), 1))
    for j, column in enumerate(table.T):
        known = ~np.isnan(column) & (row_weight > 0)
        if not known.any():
            continue
        values, which = np.unique(column[known], return_inverse=True)
        weight = np.bincount(which, row_weight[known])
        if features.levels(j) is not None or len(values) <= 2:
            out[:, j] = values[weight.argmax()]
            continue
        quantiles = weighted_quantiles(values, weight, [0.5, 0.25, 0.75])
        out[:, j] = [weight @ values / weight.sum(), *quantiles]
    return out


def effects_at(model: FittedModel, points: np.ndarray) -> np.ndarray:
    """Slopes and contrasts at some points, in the order of the coefficients, (m, c)."""
    features = model.features
    slopes, eta = local_slopes(model, points), model.eta(points)
    columns = []
    for j, basis in enumerate(features.bases):
        before = eta
        if features.levels(j) is None:
            columns.append(slopes[:, j])
        else:
            before = eta_at(model, points, j, basis.reference, eta)
        columns += [
            eta_at(model, points, j, value, eta) - before
            for value in contrasted(features, j)
        ]
    return np.stack(columns, axis=1) if columns else np.empty((len(points), 0))


@dataclass(frozen=True, slots=True, eq=False)
class FirstLayer(Shown):
    """First-layer weights per feature.

    Attributes
    ----------
    weights : ndarray of shape (M, h, r)
    size : ndarray of shape (M, h, p)
        Norm of the weights from each feature to each unit.
    norms : ndarray of shape (p,)
        Norm over all units, averaged over members; zero where nothing is read.
    modifies : ndarray of shape (p,), bool
        Whether the feature bends a coefficient at all.
    names : tuple of str

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> est.first_layer().names[:2]
    ('x0', 'x1')
    """

    weights: np.ndarray
    size: np.ndarray
    norms: np.ndarray
    modifies: np.ndarray
    names: tuple[str, ...]


def first_layer(model: FittedModel) -> FirstLayer:
    """Read the first layer of a fitted model."""
    features = model.features
    weights = model.first_layer
    square = sum_by_owner(weights**2, features.input_feature, features.n_features)
    return FirstLayer(
        weights=weights,
        size=np.sqrt(square),
        norms=model.input_norms,
        modifies=find_roles(model).modifies,
        names=features.names,
    )
