"""One row per feature: what it does at the reference, on average and to whom.

Shapes: n rows, p features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.explain._frames import Origin, make_frame
from sknimo.explain._interactions import bending
from sknimo.explain._local import (
    MAX_ROWS,
    Roles,
    check_weight,
    find_roles,
    local_term_coef,
    local_values,
    mean_slope,
    ratio_name,
    spread_rows,
    sum_by_owner,
)
from sknimo.families import Family
from sknimo.model import FittedModel

# A feature is named among modifiers from this share of the strongest one in the model.
MODIFIER_SHARE = 0.1
MAX_MODIFIERS = 3


def exp_or_inf(values: np.ndarray) -> np.ndarray:
    """Exponential; a ratio too large for a float is infinite, without a warning."""
    with np.errstate(over="ignore"):
        return np.exp(values)


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """What each feature does, all arrays of shape (p,).

    Attributes
    ----------
    names : tuple of str
    reference, scale : ndarray
        Where the coefficients hold, and the standard deviation in training.
    coef, coef_std : ndarray
        Effect at the reference on the linear predictor, per unit and per standard
        deviation of the feature.
    average_effect : ndarray
        Local effect averaged over the rows, per unit. For a feature with two values
        it is the average contrast between them.
    effect_sd : ndarray
        Standard deviation of the local effect (or contrast) over the rows.
    contrast : ndarray of bool
        Whether the average effect is a contrast between two values.
    variance_share : ndarray
        Covariance of the feature's contribution with eta over the variance of eta.
        The shares sum to one; one can be negative.
    nonlinearity : ndarray
        The paper's `mean |1 + g_j|`: 1 for an unbent coefficient, NaN for a zero one.
        Not invariant: it depends on how the network splits products.
    bend : ndarray
        Share of the mean square of the local effect that is variation from row to row:
        0 for a constant effect, 1 for one that averages to nothing. Invariant.
    response_effect : ndarray
        Average effect on the mean response, per unit.
    ratio : ndarray or None
        `exp(coef)`: odds, rate or mean ratio per unit at the reference.
    average_ratio : ndarray or None
        `exp(average_effect)`.
    directed : ndarray of shape (p, p)
        Row j, column k: how much feature k bends the coefficient of feature j.
    roles : Roles
    family : Family
    n_rows : int
    origin : Origin
    """

    names: tuple[str, ...]
    reference: np.ndarray
    scale: np.ndarray
    coef: np.ndarray
    coef_std: np.ndarray
    average_effect: np.ndarray
    effect_sd: np.ndarray
    contrast: np.ndarray
    variance_share: np.ndarray
    nonlinearity: np.ndarray
    bend: np.ndarray
    response_effect: np.ndarray
    ratio: np.ndarray | None
    average_ratio: np.ndarray | None
    directed: np.ndarray
    roles: Roles
    family: Family
    n_rows: int
    origin: Origin

    @property
    def role(self) -> tuple[str, ...]:
        """One of "effect", "modifier", "both" and "neither" per feature."""
        return self.roles.labels

    @property
    def ratio_name(self) -> str | None:
        """What `ratio` is called, None for the identity link."""
        return ratio_name(self.family)

    @property
    def modifiers(self) -> tuple[tuple[str, ...], ...]:
        """The features that bend each coefficient most, strongest first.

        Faint ones, below a tenth of the strongest in the model, are left out.
        """
        named = []
        floor = MODIFIER_SHARE * self.directed.max(initial=0.0)
        for row in self.directed:
            order = np.argsort(-row, kind="stable")[:MAX_MODIFIERS]
            named.append(
                tuple(self.names[k] for k in order if row[k] > 0 and row[k] >= floor)
            )
        return tuple(named)

    def to_frame(self) -> Any:
        """One row per feature, as a data frame of the library that `X` came from."""
        columns: dict[str, Any] = {
            "feature": list(self.names),
            "role": list(self.role),
            "reference": self.reference,
            "coef": self.coef,
            "coef_std": self.coef_std,
            "average_effect": self.average_effect,
            "effect_sd": self.effect_sd,
            "variance_share": self.variance_share,
            "bend": self.bend,
            "nonlinearity": self.nonlinearity,
            "bent_by": [", ".join(names) for names in self.modifiers],
        }
        if self.ratio is not None and self.ratio_name is not None:
            label = self.ratio_name.replace(" ", "_")
            columns[label] = self.ratio
            columns[f"average_{label}"] = self.average_ratio
            columns["response_effect"] = self.response_effect
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = [
            f"Effects of {len(self.names)} features over {self.n_rows} rows",
            f"{'':16}{'coef':>11}{'average':>11}{'sd':>9}{'share':>7}{'bend':>6}  role",
        ]
        for j, name in enumerate(self.names):
            lines.append(
                f"{name[:15]:16}{self.coef[j]:11.4g}{self.average_effect[j]:11.4g}"
                f"{self.effect_sd[j]:9.3g}{self.variance_share[j]:7.2f}"
                f"{self.bend[j]:6.2f}  {self.role[j]}"
            )
        return "\n".join(lines)


def effects(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    directed: np.ndarray | None = None,
    max_rows: int | None = MAX_ROWS,
    origin: Origin | None = None,
) -> Effects:
    """Summarise every feature over weighted rows.

    `swap` is the gauge from `fit_gauge`; `directed` is computed over at most `max_rows`
    rows unless given.

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> from sknimo.explain import effects
    >>> found = effects(est.model_, data.X)
    >>> found.coef.round(0)
    array([ 3., -2.,  2.,  0.,  0.])
    >>> round(float(found.variance_share.sum()), 6)
    1.0
    """
    features = model.features
    share = check_weight(weight, len(table))
    local = local_values(model, table, swap)
    eta = model.eta(table, offset)
    link_eta = eta if offset is None else eta - offset
    if directed is None:
        kept = spread_rows(len(table), max_rows)
        directed = bending(model, table[kept], share[kept] / share[kept].sum(), swap)
    steps, contrast = _row_effects(model, table, local.local_effect)
    average = share @ steps
    square = share @ steps**2
    variance = share @ (steps - average) ** 2
    coef = features.feature_coef(model.term_coef)
    has_ratio = ratio_name(model.family) is not None
    slope = mean_slope(model.family, eta)
    return Effects(
        names=features.names,
        reference=features.reference,
        scale=features.scale,
        coef=coef,
        coef_std=coef * features.scale,
        average_effect=average,
        effect_sd=np.sqrt(variance),
        contrast=contrast,
        variance_share=_variance_share(local.contributions, link_eta, share),
        nonlinearity=_paper_nonlinearity(model, table, share),
        bend=np.divide(
            variance, square, out=np.zeros_like(square), where=square > 0
        ).clip(0, 1),
        response_effect=share @ (slope[:, None] * steps),
        ratio=exp_or_inf(coef) if has_ratio else None,
        average_ratio=exp_or_inf(average) if has_ratio else None,
        directed=directed,
        roles=find_roles(model),
        family=model.family,
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )


def _row_effects(
    model: FittedModel, table: np.ndarray, local_effect: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Effect per unit at every row (n, p), and which are contrasts (p,).

    A slope between two levels is nobody's effect: features with two values get the
    difference of eta between them, divided by their distance.
    """
    steps = local_effect.copy()
    relevant = find_roles(model).relevant
    contrast = np.zeros(table.shape[1], dtype=bool)
    for j in range(table.shape[1]):
        levels = np.unique(table[:, j][: 2**16])
        contrast[j] = len(levels) == 2 and len(np.unique(table[:, j])) == 2
        if not (contrast[j] and relevant[j]):
            continue
        low, high = table.copy(), table.copy()
        low[:, j], high[:, j] = levels
        steps[:, j] = (model.eta(high) - model.eta(low)) / (levels[1] - levels[0])
    return steps, contrast


def _variance_share(
    contributions: np.ndarray, eta: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """Covariance of each contribution with eta over the variance of eta, (p,)."""
    centred = eta - share @ eta
    total = share @ centred**2
    if total <= 0:
        return np.zeros(contributions.shape[1])
    return (share * centred) @ contributions / total


def _paper_nonlinearity(
    model: FittedModel, table: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """`mean |1 + g_j|` as the paper plots it, NaN without a coefficient, (p,)."""
    features = model.features
    owner, p = features.term_feature, features.n_features
    coef = model.term_coef
    local = local_term_coef(model, table)
    size = np.abs(coef)
    # With several terms the ratio of sizes; with one exactly |1 + g|.
    top = np.sqrt(sum_by_owner(local**2, owner, p))
    bottom = np.sqrt(sum_by_owner(size**2, owner, p))
    ratio = share @ top
    return np.divide(ratio, bottom, out=np.full(p, np.nan), where=bottom > 0)
