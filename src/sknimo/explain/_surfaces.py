"""The fitted function along one feature or two, all others at the reference.

Grids of a category are its levels, and the records carry their names.

Shapes: n rows, p features, q terms, m grid values, c coefficients of a feature.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.explain._explanation import find_feature
from sknimo.explain._frames import Origin, Shown, label_column, make_frame, show_value
from sknimo.explain._kinds import feature_kinds
from sknimo.explain._local import exp_or_inf, local_coefficients
from sknimo.families import Family
from sknimo.features import FeatureMap, Label, drawn_scale
from sknimo.model import FittedModel

# Numeric features with no more values than this are shown at these values.
FEW_VALUES = 10


@dataclass(frozen=True, slots=True, eq=False)
class EffectCurve(Shown):
    """What one feature does with all others at the reference.

    Attributes
    ----------
    feature : str
    kind : str
        "line", "curve" or "category".
    value : ndarray of shape (m,)
        Values of the feature; codes of its levels.
    levels : tuple of labels or None
        Levels by code, None for a numeric feature.
    effect : ndarray of shape (m,)
        Change of the linear predictor from the reference to each value. Exactly what
        the model says: `eta(value, reference) - eta(reference)`.
    slope : ndarray of shape (m,)
        Derivative of the effect; NaN for levels.
    coef : float
        Slope at the reference; NaN for levels.
    missing : float or None
        Effect of a missing value, None where none is admitted.
    reference : float
    family : Family
    origin : Origin

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sknimo import NIMORegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"dose": rng.normal(size=60), "ward": ["a", "b", "c"] * 20})
    >>> y = X["dose"] + (X["ward"] == "b") + 0.1 * rng.normal(size=60)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(X, y)
    >>> est.effect_curve("ward").effect.round()  # of the levels a, b and c
    array([0., 1., 0.])
    """

    feature: str
    kind: str
    value: np.ndarray
    levels: tuple[Label, ...] | None
    effect: np.ndarray
    slope: np.ndarray
    coef: float
    missing: float | None
    reference: float
    family: Family
    origin: Origin

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Levels as text, None for a numeric feature."""
        return None if self.levels is None else tuple(map(str, self.levels))

    @property
    def reference_text(self) -> str:
        """The reference as text, a level by its name."""
        return show_value(self.reference, self.levels)

    @property
    def ratio(self) -> np.ndarray | None:
        """`exp(effect)`: odds, rate or mean ratio to the reference, if it is one."""
        if self.family.ratio_name is None:
            return None
        return exp_or_inf(self.effect)

    def to_frame(self) -> Any:
        """One row per value; a missing value, where admitted, comes last."""
        value, effect, slope = self.value, self.effect, self.slope
        if self.missing is not None:
            value, slope = np.append(value, np.nan), np.append(slope, np.nan)
            effect = np.append(effect, self.missing)
        if self.levels is None:
            columns: dict[str, Any] = {"value": value, "effect": effect, "slope": slope}
        else:
            columns = {"level": label_column(value, self.levels), "effect": effect}
        name = self.family.ratio_name
        if name is not None:
            columns[name.replace(" ", "_")] = exp_or_inf(effect)
        return make_frame(columns, self.origin)


@dataclass(frozen=True, slots=True, eq=False)
class PairSurface(Shown):
    """What two features do together, all else at the reference.

    Attributes
    ----------
    names : tuple of two str
        Features j (rows) and k (columns).
    grid_j, grid_k : ndarray of shape (m,)
        Values of the two features; codes of levels.
    surface : ndarray of shape (m, m)
        `eta(x_j, x_k) - eta(x_j) - eta(x_k) + eta(reference)`: what goes beyond the
        two features' own lines, curves or contrasts. It depends on the fitted function
        alone and is zero where either feature is at its reference.
    eta : ndarray of shape (m, m)
        The linear predictor itself.
    reference : tuple of two float
    levels_j, levels_k : tuple of labels or None
        Levels by code, None for a numeric feature.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> pair = est.pair_surface("x0", "x1", n_grid=7)
    >>> pair.grid_j.shape, pair.surface.shape
    ((7,), (7, 7))
    """

    names: tuple[str, str]
    grid_j: np.ndarray
    grid_k: np.ndarray
    surface: np.ndarray
    eta: np.ndarray
    reference: tuple[float, float]
    levels_j: tuple[Label, ...] | None = None
    levels_k: tuple[Label, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CorrectionCurve(Shown):
    """The coefficient of one feature along another, all else at the reference.

    Attributes
    ----------
    feature, modifier : str
    grid : ndarray of shape (m,)
        Values of the modifier; codes of its levels.
    local_coef : ndarray of shape (m,)
        Coefficient of the feature there, per unit, in the minimum-energy gauge; NaN for
        a category of more than two levels.
    coef : float
        Coefficient at the reference.
    reference : float
        Reference of the modifier.
    modifier_levels : tuple of labels or None
        Levels of the modifier by code, None for a numeric one.
    coef_labels : tuple of str
        What tells the coefficients of the feature apart: "" for a slope, the level of a
        contrast, "missing".
    all_coef : ndarray of shape (m, c)
        All of them along the grid; `local_coef` is the first where it is a number.
    feature_levels : tuple of labels or None
        Levels of the feature by code, None for a numeric one, whose first coefficient
        is a slope. A level, too, may be "".

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> curve = est.correction_curve("x0", "x1", n_grid=7)
    >>> curve.feature, curve.modifier, curve.grid.shape
    ('x0', 'x1', (7,))
    """

    feature: str
    modifier: str
    grid: np.ndarray
    local_coef: np.ndarray
    coef: float
    reference: float
    modifier_levels: tuple[Label, ...] | None
    coef_labels: tuple[str, ...]
    all_coef: np.ndarray
    feature_levels: tuple[Label, ...] | None = None


def feature_grid(
    features: FeatureMap,
    j: int,
    n_grid: int,
    table: np.ndarray | None,
    even: bool = False,
) -> np.ndarray:
    """Values along which a feature is shown.

    All levels of a category. Otherwise evenly spaced values, from the 2nd to the 98th
    percentile of the rows given, or two standard deviations around the reference as far
    as training rows went; few distinct values are taken as they are. Where the model
    draws tails in they are closer together in the middle, unless `even` is asked for.
    """
    levels = features.levels(j)
    if levels is not None:
        return np.arange(len(levels), dtype=float)
    known = np.empty(0) if table is None else table[~np.isnan(table[:, j]), j]
    if len(known):
        values = np.unique(known)
        if len(values) <= min(n_grid, FEW_VALUES):
            return values
        low, high = np.quantile(known, [0.02, 0.98])
    else:
        reference, scale = features.reference[j], features.scale[j]
        low, high = reference - 2 * scale, reference + 2 * scale
        if features.low and features.low[j] < high and low < features.high[j]:
            low, high = max(low, features.low[j]), min(high, features.high[j])
            at_end = reference in (features.low[j], features.high[j])
            if at_end and features.bases[j].n_terms == 1:
                # A column of two values stands at one of them.
                return np.array([features.low[j], features.high[j]])
    drawn = drawn_scale(features.bases[j])
    if drawn and n_grid > 1 and not even:
        return drawn.spaced(low, high, n_grid)
    return np.linspace(low, high, n_grid)


def effect_curve(
    model: FittedModel,
    feature: int | str,
    *,
    n_grid: int = 101,
    table: np.ndarray | None = None,
    origin: Origin | None = None,
) -> EffectCurve:
    """Follow the effect of one feature, all others at the reference."""
    features = model.features
    j = find_feature(features.names, feature)
    own = features.term_feature == j
    basis, coef = features.bases[j], model.term_coef[own]
    levels = features.levels(j)
    grid = feature_grid(features, j, n_grid, table)
    slope = basis.slopes(grid) @ coef
    at = np.array([basis.reference])
    missing = None
    if features.admits_missing[j]:
        missing = float((basis.terms(np.array([np.nan])) @ coef)[0])
    return EffectCurve(
        feature=features.names[j],
        kind=feature_kinds(features)[j],
        value=grid,
        levels=levels,
        effect=basis.terms(grid) @ coef,
        slope=slope if levels is None else np.full(len(grid), np.nan),
        coef=float((basis.slopes(at) @ coef)[0]) if levels is None else np.nan,
        missing=missing,
        reference=float(basis.reference),
        family=model.family,
        origin=Origin() if origin is None else origin,
    )


def pair_surface(
    model: FittedModel,
    feature_j: int | str,
    feature_k: int | str,
    *,
    n_grid: int = 25,
    table: np.ndarray | None = None,
) -> PairSurface:
    """Evaluate two features on a grid, all else at the reference."""
    features = model.features
    j = find_feature(features.names, feature_j)
    k = find_feature(features.names, feature_k)
    if j == k:
        raise ValueError(f"A pair needs two features, got {features.names[j]!r} twice.")
    grid_j = feature_grid(features, j, n_grid, table, even=True)
    grid_k = feature_grid(features, k, n_grid, table, even=True)
    reference = features.reference
    axis_j, axis_k = np.append(grid_j, reference[j]), np.append(grid_k, reference[k])
    rows = np.tile(reference, (len(axis_j) * len(axis_k), 1))
    rows[:, j] = np.repeat(axis_j, len(axis_k))
    rows[:, k] = np.tile(axis_k, len(axis_j))
    eta = model.eta(rows).reshape(len(axis_j), len(axis_k))
    beyond = eta - eta[:, -1:] - eta[-1:, :] + eta[-1, -1]
    return PairSurface(
        names=(features.names[j], features.names[k]),
        grid_j=grid_j,
        grid_k=grid_k,
        surface=beyond[:-1, :-1],
        eta=eta[:-1, :-1],
        reference=(float(reference[j]), float(reference[k])),
        levels_j=features.levels(j),
        levels_k=features.levels(k),
    )


def correction_curve(
    model: FittedModel,
    feature: int | str,
    modifier: int | str,
    *,
    swap: np.ndarray | None = None,
    n_grid: int = 50,
    table: np.ndarray | None = None,
) -> CorrectionCurve:
    """Follow the coefficient of one feature along another, all else at reference."""
    features = model.features
    j = find_feature(features.names, feature)
    k = find_feature(features.names, modifier)
    if j == k:
        raise ValueError("A feature never bends its own coefficient.")
    grid = feature_grid(features, k, n_grid, table)
    rows = np.tile(features.reference, (len(grid), 1))
    rows[:, k] = grid
    own = features.coef_feature == j
    along = local_coefficients(model, rows, swap)[:, own]
    coef = float(features.feature_coef(model.term_coef)[j])
    first = along[:, 0] if along.shape[1] else np.zeros(len(grid))
    return CorrectionCurve(
        feature=features.names[j],
        modifier=features.names[k],
        grid=grid,
        local_coef=np.full(len(grid), np.nan) if np.isnan(coef) else first,
        coef=coef,
        reference=float(features.reference[k]),
        modifier_levels=features.levels(k),
        coef_labels=features.bases[j].labels,
        all_coef=along,
        feature_levels=features.levels(j),
    )
