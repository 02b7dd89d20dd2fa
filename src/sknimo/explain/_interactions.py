"""Who bends whom: directed and symmetric interactions, curves and surfaces.

Shapes: n rows, p features, q terms, m grid values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from sknimo.explain._explanation import find_feature
from sknimo.explain._frames import Origin, make_frame
from sknimo.explain._local import (
    MAX_ROWS,
    Roles,
    check_weight,
    find_roles,
    local_jacobian,
    local_term_coef,
    mixed_derivatives,
    spread_rows,
    sum_by_owner,
)
from sknimo.model import FittedModel

Kind = Literal["directed", "strength"]


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """How strongly features act on each other's effects, in standard deviations.

    Attributes
    ----------
    directed : ndarray of shape (p, p)
        Row j, column k: how much one standard deviation more of feature k bends the
        coefficient of feature j (itself per standard deviation), on average over rows.
        Exact products are shared equally (minimum-energy gauge).
    strength : ndarray of shape (p, p)
        Mean `|d2 eta / dx_j dx_k|` per standard deviations of both, symmetric, zero on
        the diagonal. It depends on the fitted function alone.
    names : tuple of str
    roles : Roles
    n_rows : int
        Rows averaged over.
    origin : Origin
    """

    directed: np.ndarray
    strength: np.ndarray
    names: tuple[str, ...]
    roles: Roles
    n_rows: int
    origin: Origin

    def strongest(self, n_pairs: int = 5) -> list[tuple[str, str]]:
        """The pairs that interact most, by `strength`, strongest first."""
        rows, columns = np.triu_indices(len(self.names), 1)
        size = self.strength[rows, columns]
        order = np.argsort(-size, kind="stable")[:n_pairs]
        return [
            (self.names[rows[at]], self.names[columns[at]])
            for at in order
            if size[at] > 0
        ]

    def to_frame(self, kind: Kind = "directed") -> Any:
        """The p by p table as a data frame, one row per bent feature.

        Parameters
        ----------
        kind : {"directed", "strength"}, default="directed"
        """
        check_kind(kind)
        table = getattr(self, kind)
        columns: dict[str, Any] = {"feature": list(self.names)}
        columns |= {name: table[:, k] for k, name in enumerate(self.names)}
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = [f"Interactions of {len(self.names)} features over {self.n_rows} rows"]
        pairs = self.strongest()
        if not pairs:
            return f"{lines[0]}\n  none"
        lines.append(f"{'pair':44}{'strength':>11}{'1st bent':>11}{'2nd bent':>11}")
        for first, second in pairs:
            j, k = self.names.index(first), self.names.index(second)
            lines.append(
                f"{f'{first[:20]} x {second[:20]}':44}{self.strength[j, k]:11.3g}"
                f"{self.directed[j, k]:11.3g}{self.directed[k, j]:11.3g}"
            )
        return "\n".join(lines)


def check_kind(kind: str) -> None:
    """Refuse an unknown kind, naming the known ones."""
    if kind not in get_args(Kind):
        known = ", ".join(repr(option) for option in get_args(Kind))
        raise ValueError(f"kind must be one of {known}, got {kind!r}.")


def bending(
    model: FittedModel, table: np.ndarray, weight: np.ndarray, swap: np.ndarray | None
) -> np.ndarray:
    """Mean `|d s_j / d x_k|` per standard deviations of both, (p, p)."""
    features = model.features
    owner, p = features.term_feature, features.n_features
    slopes = features.term_slopes(table)
    change = local_jacobian(model, table)  # (n, q, p)
    if swap is not None:
        moved = slopes[:, None, :] * swap  # (n, q, q)
        change = change - sum_by_owner(moved, owner, p)
    per_unit = np.moveaxis(change * slopes[:, :, None], 1, 2)  # (n, p, q)
    per_unit = np.moveaxis(sum_by_owner(per_unit, owner, p), 1, 2)  # (n, p, p)
    scale = features.scale
    out = np.einsum("n,njk->jk", weight, np.abs(per_unit)) * np.outer(scale, scale)
    np.fill_diagonal(out, 0.0)
    # What is left where two numbers cancel is rounding, not an interaction.
    return np.where(out > 1e-12 * out.max(initial=0.0), out, 0.0)


def interactions(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    max_rows: int | None = MAX_ROWS,
    origin: Origin | None = None,
) -> Interactions:
    """Average directed and symmetric interactions over at most `max_rows` rows.

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> from sknimo.explain import interactions
    >>> found = interactions(est.model_, data.X)
    >>> bool((found.strength == found.strength.T).all())
    True
    """
    kept = spread_rows(len(table), max_rows)
    share = check_weight(weight, len(table))[kept]
    table, share = table[kept], share / share.sum()
    scale = model.features.scale
    return Interactions(
        directed=bending(model, table, share, swap),
        strength=mixed_derivatives(model, table, share) * np.outer(scale, scale),
        names=model.features.names,
        roles=find_roles(model),
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PairSurface:
    """What two features do together, all else at the reference.

    Attributes
    ----------
    names : tuple of two str
        Features j (rows) and k (columns).
    grid_j, grid_k : ndarray of shape (m,)
        Values of the two features.
    surface : ndarray of shape (m, m)
        `eta(x_j, x_k) - eta(x_j) - eta(x_k) + eta(reference)`: what goes beyond the
        two straight lines. It depends on the fitted function alone and is zero where
        either feature is at its reference.
    eta : ndarray of shape (m, m)
        The linear predictor itself.
    reference : tuple of two float
    """

    names: tuple[str, str]
    grid_j: np.ndarray
    grid_k: np.ndarray
    surface: np.ndarray
    eta: np.ndarray
    reference: tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class CorrectionCurve:
    """The coefficient of one feature along another, all else at the reference.

    Attributes
    ----------
    feature, modifier : str
    grid : ndarray of shape (m,)
        Values of the modifier.
    local_coef : ndarray of shape (m,)
        Coefficient of the feature there, per unit, in the minimum-energy gauge.
    coef : float
        Coefficient at the reference.
    reference : float
        Reference of the modifier.
    """

    feature: str
    modifier: str
    grid: np.ndarray
    local_coef: np.ndarray
    coef: float
    reference: float


def feature_grid(
    model: FittedModel, j: int, n_grid: int, table: np.ndarray | None
) -> np.ndarray:
    """Evenly spaced values of a feature.

    From the 2nd to the 98th percentile of the rows given, or two standard deviations
    around the reference; few levels are taken as they are.
    """
    if table is not None:
        levels = np.unique(table[:, j])
        if len(levels) <= min(n_grid, 10):
            return levels
        low, high = np.quantile(table[:, j], [0.02, 0.98])
    else:
        reference, scale = model.features.reference[j], model.features.scale[j]
        low, high = reference - 2 * scale, reference + 2 * scale
    return np.linspace(low, high, n_grid)


def pair_surface(
    model: FittedModel,
    feature_j: int | str,
    feature_k: int | str,
    *,
    n_grid: int = 25,
    table: np.ndarray | None = None,
) -> PairSurface:
    """Evaluate two features on a grid, all else at the reference.

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> from sknimo.explain import pair_surface
    >>> pair_surface(est.model_, "x0", "x1", n_grid=7).surface.shape
    (7, 7)
    """
    features = model.features
    j = find_feature(features.names, feature_j)
    k = find_feature(features.names, feature_k)
    if j == k:
        raise ValueError(f"A pair needs two features, got {features.names[j]!r} twice.")
    grid_j = feature_grid(model, j, n_grid, table)
    grid_k = feature_grid(model, k, n_grid, table)
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
    grid = feature_grid(model, k, n_grid, table)
    rows = np.tile(features.reference, (len(grid), 1))
    rows[:, k] = grid
    local = local_term_coef(model, rows)
    if swap is not None:
        local = local - features.terms(rows) @ swap.T
    owner, p = features.term_feature, features.n_features
    slopes = features.term_slopes(rows)
    base = sum_by_owner(model.term_coef * slopes[:1], owner, p)
    return CorrectionCurve(
        feature=features.names[j],
        modifier=features.names[k],
        grid=grid,
        local_coef=sum_by_owner(local * slopes, owner, p)[:, j],
        coef=float(base[0, j]),
        reference=float(features.reference[k]),
    )
