"""The minimum-energy gauge: one split of the interactions among all equal ones.

A term `a x_i x_j` can stand in the channel of feature i or of feature j: the function
is the same, so contributions and local coefficients as the network happens to hold
them ("native") are one valid split among many. The gauge picks the split whose
nonlinear contributions `phi_i . (s_i(x) - coef_i)` are smallest in mean square over the
training rows; half of a pure product goes to either feature. Products are those of
terms, so a curve, a level or a missing value trades as a straight line does.

A split is written as an antisymmetric matrix over terms: `swap[t, u] phi_t phi_u` moves
from the channel of term t to that of term u. It is found in two steps.

1. *Anchor.* With all else at the reference, project how feature j bends term t on
   feature j's own terms, and make the projections of both directions equal. What comes
   out is the same from whatever split the model started.
2. *Least squares.* Minimise the energy over the pairs that bend each other in that
   common split. Pairs that do not bend each other keep nothing of each other, and those
   that hardly do hardly anything, so the gauge never invents an interaction. A ridge
   pulls the answer towards the anchored split in proportion to the number of pairs per
   row, and the more, the less a pair bends. Without it, curves and levels (hundreds of
   products of terms on hundreds of rows) let the least squares fit the rows:
   contributions shrink a little there and grow a thousandfold elsewhere.

Shapes: n rows, p features, q terms, m grid values.
"""

from collections.abc import Callable

import numpy as np
import torch

from sknimo.explain._kinds import switch
from sknimo.explain._local import (
    find_roles,
    local_term_coef,
    spread_rows,
    sum_by_owner,
    thin_rows,
)
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

N_ANCHORS = 24
MAX_GAUGE_ROWS = 1000
# Whether one feature bends another at all shows on few rows.
PROBE_ROWS = 100
CG_STEPS = 500
CG_TOL = 1e-14
# Pull towards the anchored split, for each pair of terms and effective row.
RIDGE = 0.2
# Curves of a feature that take part, smooth ones first; splines have no more.
MAX_CURVES = 8


def fit_gauge(
    model: FittedModel, table: np.ndarray, weight: np.ndarray | None = None
) -> np.ndarray:
    """Find the swap of minimum energy over weighted rows, antisymmetric, (q, q)."""
    table, weight = thin_rows(table, weight, MAX_GAUGE_ROWS)
    owner = model.features.term_feature
    roles = find_roles(model)
    # Only terms with a coefficient have a channel that something can move to.
    has_channel = roles.acts[owner] & _leading_terms(model.features)
    if has_channel.sum() < 2 or not roles.modifies.any():
        return np.zeros((len(owner), len(owner)))
    pairs = has_channel[:, None] & has_channel & (owner[:, None] != owner)
    local = local_term_coef(model, table)
    anchor = pairs * _anchored_split(model, table, roles.relevant)
    few = spread_rows(len(table), PROBE_ROWS)
    bent = _bent_pairs(
        model, table[few], weight[few], local[few], anchor, roles.relevant
    )
    return anchor + _least_squares(model, table, weight, local, anchor, pairs * bent)


def _leading_terms(features: FeatureMap) -> np.ndarray:
    """Terms that are no wiggles: the rest is too fine to tell whose it is, (q,)."""
    leading = []
    for basis in features.bases:
        curve = basis.group == 1
        leading.append(~curve | (np.cumsum(curve) <= MAX_CURVES))
    return np.concatenate(leading or [np.empty(0, dtype=bool)])


def _anchored_split(
    model: FittedModel, table: np.ndarray, relevant: np.ndarray
) -> np.ndarray:
    """Swap that makes anchored bilinear parts symmetric, (q, q)."""
    features = model.features
    owner = features.term_feature
    wanted = np.flatnonzero(relevant & np.isin(np.arange(len(relevant)), owner))
    anchors = [_anchors(features, j, table[:, j]) for j in wanted.tolist()]
    which = np.repeat(np.arange(len(wanted)), [len(values) for values in anchors])
    rows = np.tile(features.reference, (len(which), 1))
    rows[np.arange(len(which)), wanted[which]] = np.concatenate(anchors)
    bend = local_term_coef(model, rows) - model.term_coef
    phi = features.terms(rows)
    linear = np.zeros((len(owner), len(owner)))
    leading = _leading_terms(features)
    for at, j in enumerate(wanted):
        own, block = np.flatnonzero((owner == j) & leading), which == at
        fit, *_ = np.linalg.lstsq(phi[np.ix_(block, own)], bend[block], rcond=None)
        linear[:, own] = fit.T
    return (linear - linear.T) / 2


def _anchors(features: FeatureMap, j: int, column: np.ndarray) -> np.ndarray:
    """Values of a feature that show all of its terms: levels, quantiles, missing."""
    known = column[~np.isnan(column)]
    levels = features.levels(j)
    if levels is not None:
        values = np.arange(len(levels), dtype=float)
    elif len(known):
        values = np.quantile(np.unique(known), np.linspace(0, 1, N_ANCHORS))
    else:
        values = features.reference[j : j + 1]
    return np.append(values, np.nan) if features.admits_missing[j] else values


def _bent_pairs(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    local: np.ndarray,
    anchor: np.ndarray,
    relevant: np.ndarray,
) -> np.ndarray:
    """How much one of two terms bends the other in the anchored split, (q, q).

    As a share of the most that any does; zero where neither does.
    """
    features = model.features
    owner, p = features.term_feature, features.n_features
    phi = features.terms(table)
    floor = 1e3 * torch.finfo(model.params.dtype).eps * np.abs(local).max(initial=0.0)
    size = np.zeros((p, p))
    for k in np.flatnonzero(relevant).tolist():
        without = switch(table, k, float(features.reference[k]))
        change = local - local_term_coef(model, without)
        change -= (phi * (owner == k)) @ anchor.T
        change *= (np.abs(change) > floor).any(axis=0)
        moved = sum_by_owner(phi * change, owner, p)
        size[:, k] = np.sqrt(weight @ moved**2)
    either = np.maximum(size, size.T) / (size.max() or 1.0)
    return either[owner][:, owner]


def _least_squares(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    local: np.ndarray,
    anchor: np.ndarray,
    bent: np.ndarray,
) -> np.ndarray:
    """Swap that minimises energy and ridge of nonlinear contributions, by CG, (q, q).

    The normal equations are never formed: with `R` (n, p) the nonlinear contributions,
    the gradient of the energy is `M - M.T` with `M = (phi * R)' phi`. Products are
    measured in units of their own size, since rare levels and wiggly curves have small
    terms, times how much the pair is `bent`.
    """
    allowed = bent > 0
    features = model.features
    owner, p = features.term_feature, features.n_features
    phi = features.terms(table)
    bend = local - model.term_coef - phi @ anchor.T
    energy_of = sum_by_owner(phi * bend, owner, p)
    # Terms without a partner are left alone: they take no part in the products.
    taking = np.flatnonzero(allowed.any(axis=1))
    if not len(taking):
        return np.zeros_like(anchor)
    phi, owner = phi[:, taking], owner[taking]
    allowed, bent = (part[np.ix_(taking, taking)] for part in (allowed, bent))

    # At least as large as if terms were independent: a product that hardly any row has
    # would otherwise be free to grow a thousandfold where nobody looks.
    square_size = (phi**2 * weight[:, None]).T @ phi**2
    mean_square = weight @ phi**2
    square_size = np.maximum(square_size, np.outer(mean_square, mean_square))
    size = np.sqrt(square_size, out=np.zeros_like(square_size), where=allowed)
    per_size = np.divide(bent, size, out=np.zeros_like(size), where=size > 0)

    ridge = RIDGE * np.triu(allowed).sum() / _effective_rows(table, weight)

    def gather(per_feature: np.ndarray) -> np.ndarray:
        moment = (phi * per_feature[:, owner] * weight[:, None]).T @ phi
        return (moment - moment.T) * per_size

    def apply(swap: np.ndarray) -> np.ndarray:
        moved = phi * (phi @ (swap * per_size).T)
        return gather(sum_by_owner(moved, owner, p)) + ridge * swap

    residual = gather(energy_of)
    # Squares of a target in extreme units would overflow: solve in units of its own.
    unit = float(np.abs(residual).max()) or 1.0
    swap = _conjugate_gradients(apply, residual / unit)
    out = np.zeros_like(anchor)
    out[np.ix_(taking, taking)] = swap * per_size * unit
    return out


def _conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray], residual: np.ndarray
) -> np.ndarray:
    """Solve `apply(swap) = residual`, a symmetric system, (q, q)."""
    swap = np.zeros_like(residual)
    direction, square = residual, float((residual**2).sum())
    stop = CG_TOL**2 * square
    for _ in range(CG_STEPS):
        if square <= stop:
            break
        image = apply(direction)
        curvature = float((direction * image).sum())
        if curvature <= 0:  # a direction that the rows do not see, without a ridge
            break
        swap = swap + square / curvature * direction
        residual = residual - square / curvature * image
        last, square = square, float((residual**2).sum())
        direction = residual + square / last * direction
    return swap


def _effective_rows(table: np.ndarray, weight: np.ndarray) -> float:
    """Number of distinct rows that weigh as much as these, one repeated counts once."""
    filled = np.where(np.isnan(table), np.inf, table)
    _, which = np.unique(filled, axis=0, return_inverse=True)
    return 1 / float((np.bincount(which.reshape(-1), weight) ** 2).sum())
