"""How well the mean of rows is known, from what is known of the coefficients.

With `d` the terms of a row, bent as the model bends them, the linear predictor is
`b0 + d . beta`. Its variance follows from the covariance of intercept and coefficients,
that of the terms within each feature, and from how far members lie apart at the row,
which says how well the bends are known there. Approximate, and of the model: what it
cannot express is not counted in.

Shapes: n rows, q terms, c coefficients, M members.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sknimo.explain import Origin, find_roles, local_term_coef, mean_of, split_members
from sknimo.features import FeatureMap
from sknimo.inference._bands import quantile
from sknimo.inference._conformal import PredictionIntervals
from sknimo.inference._uncertainty import Uncertainty
from sknimo.model import FittedModel

# A coefficient counts as multiplied by this at most.
MOST_BENT = 3.0
# Members that are asked how far they lie apart.
MEMBERS = 10


def mean_intervals(
    model: FittedModel,
    known: Uncertainty,
    table: np.ndarray,
    eta: np.ndarray,
    *,
    level: float,
    origin: Origin,
) -> PredictionIntervals:
    """Intervals of the mean response around linear predictors `eta` (n,)."""
    error = np.sqrt(predictor_variance(model, known, table))
    reach = quantile(level, known) * error
    low, mean, high = (
        mean_of(model.family, at) for at in (eta - reach, eta, eta + reach)
    )
    return PredictionIntervals(mean, low, high, level, "mean", origin)


def predictor_variance(
    model: FittedModel, known: Uncertainty, table: np.ndarray
) -> np.ndarray:
    """Variance of the linear predictor of each row, (n,)."""
    known = known.grouped(model.features.coef_feature)
    assert known.nonrobust is not None  # the caller has refused the others
    features, cov = model.features, np.nan_to_num(known.nonrobust)
    factor = bend_factor(model, table)
    slopes = read_columns(features, table) * factor[:, features.coef_feature]
    wide = np.column_stack([np.ones(len(table)), slopes])
    # Within a feature, terms say more than coefficients do.
    owner = np.append(-1, features.coef_feature)
    cov[(owner[:, None] == owner) & (owner >= 0)] = 0.0
    variance = ((wide @ cov) * wide).sum(axis=1)
    variance += term_variance(features, known, table, factor).sum(axis=1)
    # No row may be at the reference where columns are combinations of others.
    least = max(float(cov[0, 0]), 0.0) * 0.1 * (known.loose is None)
    # From the reference on: its level is known as well as the intercept is, and in the
    # units of the target it does not grow with the weight of a member.
    apart = between(
        model, known, lambda member: member.eta(table) - float(member.intercept.mean())
    )
    return np.maximum(variance, least) + apart


def term_variance(
    features: FeatureMap, known: Uncertainty, table: np.ndarray, factor: np.ndarray
) -> np.ndarray:
    """Variance of what each feature adds where `factor` (n, p) bends it, (n, p)."""
    terms = features.terms(table) * factor[:, features.term_feature]
    out = np.zeros_like(factor)
    for j, block in enumerate(known.terms):
        part = terms[:, features.term_feature == j]
        out[:, j] = ((part @ np.nan_to_num(block)) * part).sum(axis=1)
    return out


def read_columns(features: FeatureMap, table: np.ndarray) -> np.ndarray:
    """What every coefficient is multiplied with: distance, level, missing, (n, c)."""
    columns = []
    for j, basis in enumerate(features.bases):
        column, levels = table[:, j], features.levels(j)
        reference = float(features.reference[j])
        own = []
        if levels is None and basis.labels:
            own.append(np.nan_to_num(column - reference))
        states = range(len(levels or ()))
        own += [column == code for code in states if code != reference]
        if features.admits_missing[j]:
            own.append(np.isnan(column))
        columns += own[: len(basis.labels)]
    return np.column_stack(columns or [np.empty((len(table), 0))]).astype(float)


def bend_factor(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """`1 + g` of every feature as the average has it, one without bends, (n, p)."""
    features, coef = model.features, model.term_coef
    out = np.ones((len(table), features.n_features))
    if not find_roles(model).modifies.any():
        return out
    local = local_term_coef(model, table)
    for j in range(features.n_features):
        own = features.term_feature == j
        size = float(coef[own] @ coef[own])
        if size > 0:
            out[:, j] = local[:, own] @ coef[own] / size
    # Where hardly any coefficient is bent, members say how well the bend is known.
    return np.clip(out, -MOST_BENT, MOST_BENT)


def between(
    model: FittedModel,
    known: Uncertainty,
    look: Callable[[FittedModel], np.ndarray],
) -> np.ndarray:
    """Variance of what bent members say, as much as they weigh; zero for one.

    `look` is linear in the coefficients of a member.
    """
    some = weigh_members(model, known)
    if len(some.places) < 2:
        return np.zeros(1)
    members = list(split_members(model))
    alone = np.stack(
        [
            np.sum([look(members[m]) for m in own], axis=0) / scale
            for own, scale in zip(some.places, some.scale, strict=True)
        ]
    )
    apart = alone - np.tensordot(some.share, alone, 1)
    return np.asarray(np.tensordot(some.share, apart**2, 1) * some.count)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Bent members that stand for all."""

    # (k, C), places of each in the model: one, or of several classes one each.
    places: np.ndarray
    share: np.ndarray  # (k,), sums to one
    scale: np.ndarray  # (k,), what their coefficients were multiplied with
    count: float  # what their mean squared distance is multiplied with


def weigh_members(model: FittedModel, known: Uncertainty) -> Weighed:
    """Choose bent members, and weigh them."""
    scale = np.ones(model.n_members) if known.scale is None else known.scale
    places = np.flatnonzero(model.modulated.any(-1).cpu().numpy())[:, None]
    if known.together > 1:
        places = np.arange(model.n_members - 1).reshape(known.together, -1).T
    scale = scale[places[:, 0]]
    places, scale = places[scale > 0], scale[scale > 0]
    total = float(scale.sum()) / model.n_members
    some = slice(None, None, max(1, len(places) // MEMBERS))
    places, scale = places[some], scale[some]
    count = total**2 * len(places) / max(len(places) - 1, 1)
    return Weighed(places, scale / scale.sum(), scale, count)
