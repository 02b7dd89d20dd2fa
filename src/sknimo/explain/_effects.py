"""One row per feature: what it does at the reference, on average and to whom.

Shapes: n rows, p features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sknimo.explain._frames import Origin, Shown, cut, make_frame, pad, show_number
from sknimo.explain._interactions import bending
from sknimo.explain._kinds import eta_at, feature_kinds, is_category, n_levels
from sknimo.explain._levels import LevelEffects, affordable_rows, level_effects
from sknimo.explain._local import (
    MAX_ROWS,
    LocalValues,
    Roles,
    Switch,
    check_weight,
    exp_or_inf,
    find_roles,
    local_values,
    response_effects,
    sum_by_owner,
    thin_rows,
)
from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

# A feature is named among modifiers from this share of the strongest one in the model.
MODIFIER_SHARE = 0.1
# Bends below this share of the largest effect are there, and change nothing.
NOTHING = 0.01
MAX_MODIFIERS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Effects(Shown):
    """What each feature does, all arrays of shape (p,).

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of str
        "line", "curve" or "category" per feature.
    reference, scale : ndarray
        Where the coefficients hold (the code of a level), and the standard deviation in
        training.
    coef, coef_std : ndarray
        Effect at the reference on the linear predictor, per unit and per standard
        deviation of the feature. The slope at the reference of a numeric feature, the
        contrast of a category of two levels; NaN for one of more, see `levels`.
    average_effect : ndarray
        Local effect averaged over the rows whose value is known, per unit. For two
        values or levels the average contrast between them; for more levels the average
        change from the baseline to the row's own level.
    effect_sd : ndarray
        Standard deviation of the local effect (or contrast) over the rows.
    contrast : ndarray of bool
        Whether the average effect is a contrast.
    variance_share : ndarray
        Covariance of the feature's contribution with eta over the variance of eta.
        The shares sum to one; one can be negative.
    nonlinearity : ndarray
        The paper's `mean |1 + g_j|`: 1 for an unbent coefficient, NaN for a zero one.
        Not invariant: it depends on how the network splits products.
    bend : ndarray
        Share of the mean square of the effect that varies with the other features:
        0 for an effect that is the same in every row (along a curve: at every row with
        the same value; between levels: for every row), 1 for one that averages to
        nothing. Invariant.
    response_effect : ndarray
        Average effect on the mean response, per unit or as a contrast.
    ratio : ndarray or None
        `exp(coef)`: odds, rate or mean ratio per unit at the reference.
    average_ratio : ndarray or None
        `exp(average_effect)`.
    directed : ndarray of shape (p, p)
        Row j, column k: how much feature k bends the coefficient of feature j.
    levels : LevelEffects
        One row per level of every category, and per kind of missing value.
    roles : Roles
    family : Family
    n_rows : int
    origin : Origin
    corrected, std_err, lower, upper : ndarray or None
        Average effect on the response in the population, corrected for shrinkage, its
        standard error and interval, where targets were given; NaN for more than two
        levels, see `average_effects`.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> bool(abs(est.effects(data.X).variance_share.sum() - 1) < 1e-9)
    True
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
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
    levels: LevelEffects
    roles: Roles
    family: Family
    n_rows: int
    origin: Origin
    corrected: np.ndarray | None = None
    std_err: np.ndarray | None = None
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    @property
    def role(self) -> tuple[str, ...]:
        """One of "effect", "modifier", "both" and "neither" per feature."""
        return self.roles.labels

    @property
    def ratio_name(self) -> str | None:
        """What `ratio` is called, None for the identity link."""
        return self.family.ratio_name

    @property
    def reference_text(self) -> tuple[str, ...]:
        """Reference of each feature as text, levels by name."""
        shown = [f"{value:.6g}" for value in self.reference]
        for at in np.flatnonzero(self.levels.baseline):
            shown[self.levels.column[at]] = self.levels.levels[at]
        return tuple(shown)

    @property
    def modifiers(self) -> tuple[tuple[str, ...], ...]:
        """The features that bend each coefficient most, strongest first.

        Faint ones are left out: below a tenth of the strongest in the model, or a
        hundredth of the largest effect.
        """
        return tuple(
            tuple(self.names[k] for k in self.modifiers_of(j))
            for j in range(len(self.names))
        )

    def modifiers_of(self, feature: int) -> list[int]:
        """Positions of the `modifiers` of one feature."""
        order = np.argsort(-self.directed[feature], kind="stable")[:MAX_MODIFIERS]
        return [int(k) for k in order if self.bends[feature, k]]

    @property
    def bends(self) -> np.ndarray:
        """Row j, column k: whether feature k bends that of j, faint ones aside."""
        strongest = MODIFIER_SHARE * self.directed.max(initial=0.0)
        floor = max(strongest, NOTHING * self.size.max(initial=0.0))
        return np.asarray((self.directed > 0) & (self.directed >= floor))

    @property
    def size(self) -> np.ndarray:
        """Root mean square of the effect, per standard deviation, (p,)."""
        size = np.hypot(self.average_effect, self.effect_sd) * self.scale
        return np.nan_to_num(size)

    def to_frame(self) -> Any:
        """One row per feature, as a data frame of the library that `X` came from.

        References are text where some of them are levels.
        """
        with_levels = "category" in self.kinds
        columns: dict[str, Any] = {
            "feature": list(self.names),
            "kind": list(self.kinds),
            "role": list(self.role),
            "reference": list(self.reference_text) if with_levels else self.reference,
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
        names = ("corrected", "std_err", "lower", "upper")
        columns |= {
            name: getattr(self, name) for name in names if self.lower is not None
        }
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = [
            f"Effects of {len(self.names)} features over {self.n_rows} rows",
            f"{'':16}{'coef':>11}{'average':>11}{'sd':>9}{'share':>7}{'bend':>6}  role",
        ]
        for j, name in enumerate(self.names):
            lines.append(
                f"{pad(cut(name, 15), 16)}{show_number(self.coef[j]):>11}"
                f"{show_number(self.average_effect[j]):>11}"
                f"{show_number(self.effect_sd[j], 3):>9}{self.variance_share[j]:7.2f}"
                f"{self.bend[j]:6.2f}  {self.role[j]}"
            )
        if len(self.levels):
            lines.append("Levels and missing values: see .levels")
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
    rows unless given, and so are the contrasts of features with more than two levels.
    A large model with many levels takes fewer, unless all are asked for (None).
    """
    features = model.features
    max_rows = affordable_rows(model, max_rows)
    levels = level_effects(model, table, weight, max_rows, origin)
    if directed is None:
        directed = bending(model, *thin_rows(table, weight, max_rows), swap)
    weight = check_weight(weight, len(table))
    local = local_values(model, table, swap)
    eta = model.eta(table, offset)
    link_eta = eta if offset is None else eta - offset
    steps, switches = row_effects(model, table, local, link_eta)
    average, spread, bend = _sum_up(steps, _own_slopes(model, table, switches), weight)
    levels = _agree_on_two_levels(levels, features, average, spread)
    response = response_effects(model.family, steps, switches, eta, offset)
    coef = features.feature_coef(model.term_coef)
    has_ratio = model.family.ratio_name is not None
    return Effects(
        names=features.names,
        kinds=feature_kinds(features),
        reference=features.reference,
        scale=features.scale,
        coef=coef,
        coef_std=coef * features.scale,
        average_effect=average,
        effect_sd=spread,
        contrast=_is_contrast(model, table),
        variance_share=_variance_share(local.contributions, link_eta, weight),
        nonlinearity=_paper_nonlinearity(model, weight @ local.size),
        bend=_bend_between_levels(levels, features, bend),
        response_effect=_known_mean(response, weight),
        ratio=exp_or_inf(coef) if has_ratio else None,
        average_ratio=exp_or_inf(average) if has_ratio else None,
        directed=directed,
        levels=levels,
        roles=find_roles(model),
        family=model.family,
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )


def row_effects(
    model: FittedModel, table: np.ndarray, local: LocalValues, eta: np.ndarray
) -> tuple[np.ndarray, tuple[Switch, ...]]:
    """What is averaged, row by row (n, p), and the switches behind its contrasts.

    The local effects of `local`, but for numeric features with two values: a slope
    between two values that nobody is between is nobody's effect. `eta` (n,) has no
    offset.
    """
    switches = (*local.switches, *_two_value_switches(model, table, eta))
    steps = local.local_effect.copy()
    for found in switches:
        steps[:, found.feature] = found.contrast
    return steps, switches


def class_response(
    models: Sequence[FittedModel], table: np.ndarray, own: int, between: bool
) -> np.ndarray:
    """Local effects on the probability of one of several classes, (n, p).

    A feature moves the linear predictors of all `models`, one of each class. Between
    the two values of a numeric feature there is a contrast if `between` says so.
    """
    eta = np.stack([model.eta(table) for model in models], axis=1)
    chance = torch.as_tensor(eta).softmax(1).numpy()
    steps: list[np.ndarray] = []
    ends: dict[int, tuple[np.ndarray, np.ndarray, float]] = {}
    for c, model in enumerate(models):
        local = local_values(model, table)
        step, found = local.local_effect, local.switches
        if between:
            step, found = row_effects(model, table, local, eta[:, c])
        steps.append(step)
        for one in found:  # classes that do not have the feature stay where they are
            both = ends.setdefault(one.feature, (eta.copy(), eta.copy(), one.distance))
            both[0][:, c], both[1][:, c] = one.before, one.after
    mean = np.einsum("nc,cnp->np", chance, np.stack(steps))
    out = chance[:, [own]] * (steps[own] - mean)
    for feature, (before, after, distance) in ends.items():
        low, high = (torch.as_tensor(x).softmax(1)[:, own] for x in (before, after))
        out[:, feature] = (high - low).numpy() / distance
    return out


def mean_response(response: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Weighted mean of effects on the response (n, p), where they are known."""
    return _known_mean(response, check_weight(weight, len(response)))


def _sum_up(
    steps: np.ndarray, own: np.ndarray, row_weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, spread and bend (p,) of effects `steps` (n, p) where the value is known.

    `own` (n, p) is what they would be with all other features at the reference, up to a
    constant: the slope of a curve at the row's value. What differs from it by more than
    a constant is bent.
    """
    weight = _known_weight(steps, row_weight)
    steps = np.where(weight > 0, steps, 0.0)
    deviation = steps - own
    common = (weight * deviation).sum(0)
    varying = (weight * (deviation - common) ** 2).sum(0)
    constant = (weight * (own + common) ** 2).sum(0)
    mean = (weight * steps).sum(0)
    spread = np.sqrt((weight * (steps - mean) ** 2).sum(0))
    mean = np.where(weight.sum(0) > 0, mean, np.nan)
    return mean, spread, _ratio(varying, varying + constant)


def _known_weight(steps: np.ndarray, row_weight: np.ndarray) -> np.ndarray:
    """Weight of each row in the average of each feature, (n, p)."""
    weight = row_weight[:, None] * ~np.isnan(steps)
    total = weight.sum(axis=0)
    return weight / np.where(total > 0, total, 1.0)


def _known_mean(steps: np.ndarray, row_weight: np.ndarray) -> np.ndarray:
    weight = _known_weight(steps, row_weight)
    mean = (weight * np.where(weight > 0, steps, 0.0)).sum(axis=0)
    return np.where(weight.sum(axis=0) > 0, mean, np.nan)


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.zeros_like(bottom), where=bottom > 0)


def two_values(column: np.ndarray) -> np.ndarray | None:
    """The two values of a column that has no others; missing ones do not count."""
    for part in (column[: 2**16], column):
        values = np.unique(part[~np.isnan(part)])
        if len(values) != 2:
            return None
    return values


def _is_contrast(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """Categories and numeric features with two values, (p,)."""
    flags = [two_values(column) is not None for column in table.T]
    return is_category(model.features) | np.array(flags, dtype=bool)


def _two_value_switches(
    model: FittedModel, table: np.ndarray, eta: np.ndarray
) -> list[Switch]:
    """Contrasts of numeric features with two values."""
    relevant = find_roles(model).relevant
    found = []
    for j, kind in enumerate(feature_kinds(model.features)):
        values = two_values(table[:, j])
        if kind == "category" or values is None or not relevant[j]:
            continue
        low, high = values.tolist()
        before, after = (eta_at(model, table, j, value, eta) for value in (low, high))
        found.append(Switch(j, before, after, high - low))
    return found


def _own_slopes(
    model: FittedModel, table: np.ndarray, switches: Sequence[Switch]
) -> np.ndarray:
    """Slope of each effect curve at the row's value, zero for contrasts, (n, p)."""
    features = model.features
    slopes = features.term_slopes(table) * model.term_coef
    own = sum_by_owner(slopes, features.term_feature, features.n_features)
    own[:, [found.feature for found in switches]] = 0.0
    return own


def _agree_on_two_levels(
    levels: LevelEffects, features: FeatureMap, mean: np.ndarray, sd: np.ndarray
) -> LevelEffects:
    """Give the only other level of a category the average over all rows."""
    average, spread = levels.average_effect.copy(), levels.effect_sd.copy()
    for at in np.flatnonzero(~levels.baseline & ~levels.missing):
        j = int(levels.column[at])
        if n_levels(features, j) == 2:
            average[at], spread[at] = mean[j], sd[j]
    return replace(levels, average_effect=average, effect_sd=spread)


def _bend_between_levels(
    levels: LevelEffects, features: FeatureMap, bend: np.ndarray
) -> np.ndarray:
    """Bend of categories with more than two levels: within levels, not between."""
    bend = bend.copy()
    for j in range(features.n_features):
        if n_levels(features, j) > 2:
            own = levels.of(j)
            own = own[~levels.missing[own]]
            varying = levels.n_rows[own] @ levels.effect_sd[own] ** 2
            constant = levels.n_rows[own] @ levels.average_effect[own] ** 2
            whole = varying + constant
            bend[j] = varying / whole if whole > 0 else 0.0
    return bend


def _variance_share(
    contributions: np.ndarray, eta: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Covariance of each contribution with eta over the variance of eta, (p,)."""
    centred = eta - weight @ eta
    total = weight @ centred**2
    if total <= 0:
        return np.zeros(contributions.shape[1])
    return (weight * centred) @ contributions / total


def _paper_nonlinearity(model: FittedModel, size: np.ndarray) -> np.ndarray:
    """`mean |1 + g_j|` as the paper plots it, NaN without a coefficient, (p,).

    From the mean size of local coefficients: with several terms the ratio of sizes,
    with one exactly |1 + g|.
    """
    owner, p = model.features.term_feature, model.features.n_features
    bottom = np.sqrt(sum_by_owner(model.term_coef**2, owner, p))
    return np.divide(size, bottom, out=np.full(p, np.nan), where=bottom > 0)
