"""Shapes of one column: knots, edges, curves in the order of their roughness, scores.

Shapes: n values, k knots or edges, c curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from threadpoolctl import ThreadpoolController

from sknimo.features._bases import (
    Linear,
    Ramps,
    RankGauss,
    Spline,
    find_pieces,
    natural_spline,
    natural_spline_curvature,
    ramp_bends,
)

# Rounding of a reference below this share of the scale does not show.
RESIDUE = 1e-12
# Knots of a spline. The smoothness prior decides how much a curve may bend, so there
# are more than most curves need.
N_KNOTS = 10
# Half of the knots follow the rows, half are even between these shares of them.
EVEN_KNOTS = (0.02, 0.98)
# Below these shares of the range and of the widest curve lies nothing but rounding.
KNOT_GAP = 1e-9
CURVE_SPREAD = 1e-10
# Fewer edges make no curve.
LEAST_EDGES = 3
# Rows on either side of the reference, as a share of all, and the distance in standard
# deviations, within which a curve of pieces is straight. Without: slopes of 2 and 0.5
# there became -0.7 and 1.7 (one simulation, 6,000 rows, noise of 0.5), and losses of
# six real tables 0.99 of those with a twentieth of the rows at any distance. The width:
# not ablated.
CLEAR_SHARE = 0.05
CLEAR_WIDTH = 0.15
# Values between which normal scores are interpolated.
N_SCORES = 129


@dataclass(frozen=True, slots=True)
class ValueSample:
    """Distinct values of a column, increasing, and the weight on each."""

    values: np.ndarray
    weight: np.ndarray

    def quantiles(self, probability: np.ndarray) -> np.ndarray:
        """Values below which the given shares of the weight lie."""
        total = np.cumsum(self.weight)
        place = np.searchsorted(total, probability * total[-1] * (1 - 1e-12))
        return self.values[np.minimum(place, len(self.values) - 1)]

    def median(self) -> float:
        """Weighted median, the mean of the two middle values on a tie."""
        total = np.cumsum(self.weight)
        half = total[-1] / 2
        low = self.values[np.searchsorted(total, half * (1 - 1e-12))]
        high = self.values[
            min(np.searchsorted(total, half * (1 + 1e-12)), len(total) - 1)
        ]
        return float((low + high) / 2)

    def mode(self) -> float:
        """Value of the largest weight; the median when all weigh the same."""
        if len(self.values) > 2 and np.ptp(self.weight) == 0:
            return self.median()
        return float(self.values[np.argmax(self.weight)])

    def middle(self) -> tuple[float, float]:
        """Median, and the standard deviation that the quartiles of a normal tell."""
        low, high = self.quantiles(np.array([0.25, 0.75]))
        width = float(high - low) / (2 * NormalDist().inv_cdf(0.75))
        return self.median(), width or fit_linear(self.values, self.weight).scale

    def reach(self, low: float, high: float) -> ValueSample:
        """The same with both ends of the range among the values."""
        ends = np.setdiff1d([low, high], self.values)
        place = np.searchsorted(self.values, ends)
        return ValueSample(
            np.insert(self.values, place, ends), np.insert(self.weight, place, 0.0)
        )


def weigh_values(column: np.ndarray, weight: np.ndarray) -> ValueSample:
    """Distinct values of a column and the total weight on each."""
    values, place = np.unique(column, return_inverse=True)
    return ValueSample(values, np.bincount(place, weight))


def fit_spline(sample: ValueSample, line: Linear) -> Spline | Linear:
    """Natural cubic spline of uncorrelated curves, smooth ones first.

    After the line the terms are the directions of the spline space in order of their
    curvature `integral f''(z)**2 dz` at unit variance, each divided by the root of its
    curvature relative to the smoothest. Their squared coefficients thus add up to the
    curvature of the curve: a common prior is a prior on smoothness. An outlier that
    leaves nothing to tell a curve from a line leaves the line.
    """
    z = (sample.values - line.reference) / line.scale
    share = sample.weight / sample.weight.sum()
    knots = _place_knots(ValueSample(z, share))
    raw = natural_spline(z, knots)
    transform = _order_curves(raw, share, natural_spline_curvature(knots))
    if transform is None:
        return line
    return Spline(line.reference, line.scale, knots, transform)


def fit_ramps(sample: ValueSample, line: Linear, n_edges: int) -> Ramps | Linear:
    """Piecewise linear curves in the order of their roughness, as those of a spline."""
    every = place_edges(sample, n_edges)
    edges = _clear_reference(every, sample, line)
    if len(edges) < LEAST_EDGES:
        return line
    ramps, weight = _gather_pieces(sample, edges)
    # Within the range the line is a sum of ramps, so that it can be taken out of them.
    rise = np.diff(edges) / line.scale
    raw = np.column_stack([ramps @ rise, ramps])
    share = weight / weight.sum()
    # On one thread: for matrices as small as these a team waits for its members, and
    # where other programs hold the cores a hundred times as long as it works.
    with _libraries().limit(limits=1, user_api="blas"):
        rises = np.column_stack([rise, np.eye(len(rise))])
        transform = _order_curves(raw, share, bends=ramp_bends(edges) @ rises)
        if transform is None:
            return line
        steps = np.diff(np.searchsorted(every, edges))
        walk = _scale_walk(np.sqrt(steps), ramps, share)
        even = _order_curves(raw, share, bends=np.diff(rises, axis=0))
    assert even is not None
    curves, even = (t[1:, 1:] + np.outer(rise, t[0, 1:]) for t in (transform, even))
    return Ramps(line.reference, line.scale, edges, curves, walk, even)


@cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded: to look for them takes as long as a few curves."""
    return ThreadpoolController()


def _scale_walk(step: np.ndarray, ramps: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Steps (c,) of a walk whose widest direction varies by one over the rows."""
    walks = (ramps - share @ ramps) * step
    return step / np.linalg.svd(np.sqrt(share)[:, None] * walks, compute_uv=False)[0]


def _clear_reference(
    edges: np.ndarray, sample: ValueSample, line: Linear
) -> np.ndarray:
    """Leave out edges about the reference, so that enough rows tell the slope there.

    Never the value that most rows have: without it all they tell would be lost where a
    few rows far out (codes such as 999) have moved the mean beyond it.
    """
    share = sample.weight / sample.weight.sum()
    rank = np.cumsum(share)
    at = np.interp(line.reference, sample.values, rank)
    low, high = np.interp([at - CLEAR_SHARE, at + CLEAR_SHARE], rank, sample.values)
    low = max(low, line.reference - CLEAR_WIDTH * line.scale)
    high = min(high, line.reference + CLEAR_WIDTH * line.scale)
    kept = (edges <= low) | (edges >= high) | np.isin(edges, sample.values[share > 0.5])
    kept[[0, -1]] = True
    return edges[kept]


def _gather_pieces(
    sample: ValueSample, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ramps and weights of two rows per piece that stand for all rows there.

    They have the weight, the mean and the spread of those rows. Curves are straight
    within a piece: no mean and no covariance of curves differs.
    """
    n_pieces = len(edges) - 1
    place, risen = find_pieces(sample.values, edges)

    def average(values: np.ndarray) -> np.ndarray:
        return np.bincount(place, sample.weight * values, n_pieces) / (weight + empty)

    weight = np.bincount(place, sample.weight, n_pieces)
    empty = weight == 0
    mean = average(risen)
    spread = np.sqrt(average((risen - mean[place]) ** 2))
    below = np.tri(n_pieces, k=-1)
    rows = [below + np.diag(at) for at in (mean - spread, mean + spread)]
    return np.concatenate(rows), np.tile(weight / 2, 2)


def _order_curves(
    raw: np.ndarray,
    share: np.ndarray,
    roughness: np.ndarray | None = None,
    bends: np.ndarray | None = None,
) -> np.ndarray | None:
    """Turn columns, a line first, into the line and uncorrelated curves without it.

    Returns the transform of the columns (1 + c, m), or None if nothing but a line is
    left of them. The curves come smooth ones first by `roughness` (c, c), the matrix of
    a quadratic form, or by the sum of squared `bends` (b, 1 + c) of all columns. With
    unit variance each is divided by the root of its roughness, that of the smoothest
    being one.
    """
    centred = raw - share @ raw
    line_column, curves = centred[:, 0], centred[:, 1:]
    widest = np.sqrt(share @ curves**2).max(initial=0.0)
    tilt = (share * line_column) @ curves / (share @ line_column**2)
    curves = curves - np.outer(line_column, tilt)
    # Not from their covariance: squares lose the curves in the bulk of a skewed column.
    _, size, direction = np.linalg.svd(
        np.sqrt(share)[:, None] * curves, full_matrices=False
    )
    kept = size > CURVE_SPREAD * widest
    if not kept.any():
        return None
    whiten = direction[kept].T / size[kept]
    if bends is not None:  # from their root: squares lose the smoothest curves
        bends = bends[:, 1:] - np.outer(bends[:, 0], tilt)
        _, size, direction = np.linalg.svd(bends @ whiten, full_matrices=False)
        wiggle, turn = size[::-1] ** 2, direction[::-1].T
    else:
        wiggle, turn = np.linalg.eigh(whiten.T @ roughness @ whiten)
    whiten = whiten @ turn
    # Signs of eigenvectors are arbitrary; fix them.
    whiten *= np.sign(whiten[np.abs(whiten).argmax(axis=0), np.arange(len(wiggle))])
    wiggle = np.maximum(wiggle, 1e-15 * wiggle.max())
    whiten *= np.sqrt(wiggle[0] / wiggle)
    transform = np.zeros((raw.shape[1], 1 + whiten.shape[1]))
    transform[0, 0] = 1.0
    transform[0, 1:] = -tilt @ whiten
    transform[1:, 1:] = whiten
    return transform


def _place_knots(sample: ValueSample) -> np.ndarray:
    """Knots at evenly spaced values of a blend of ranks and values.

    Ranks alone leave the tails to one cubic piece each, values alone the bulk of a
    skewed column; the blend is even half in ranks, half in values. The outer knots are
    the smallest and the largest value, so that every curve is straight beyond them.
    """
    values = sample.values
    total = np.cumsum(sample.weight)
    rank = (total - sample.weight / 2) / total[-1]
    low, high = sample.quantiles(np.array(EVEN_KNOTS))
    if high > low:
        rank = (rank + np.clip((values - low) / (high - low), 0.0, 1.0)) / 2
    even = np.linspace(rank[0], rank[-1], N_KNOTS)[1:-1]
    knots = np.unique(np.r_[values[0], np.interp(even, rank, values), values[-1]])
    return _keep_apart(knots)


def place_edges(sample: ValueSample, n_edges: int) -> np.ndarray:
    """Every value if they are few; else quantiles of rows and of values in turn.

    In a column without ties these are the same quantiles. In one where most rows share
    a value, every other edge is left for the rest. Both ends are edges.
    """
    values = sample.values
    if len(values) > n_edges:
        even = np.linspace(0, 1, n_edges)[1:-1]
        by_row = sample.quantiles(even[::2])
        by_value = ValueSample(values, np.ones(len(values))).quantiles(even[1::2])
        values = np.unique(np.r_[values[0], by_row, by_value, values[-1]])
    return _keep_apart(values)


def _keep_apart(points: np.ndarray) -> np.ndarray:
    """Leave out points that lie too close to the next."""
    apart = np.diff(points) > KNOT_GAP * (points[-1] - points[0])
    return np.r_[points[:-1][apart], points[-1]]


def fit_rank_gauss(sample: ValueSample, reference: float) -> RankGauss:
    """Normal scores of mid-ranks, thinned to even scores, with unit spread."""
    share = sample.weight / sample.weight.sum()
    rank = np.cumsum(share) - share / 2
    normal = NormalDist()
    place = np.arange(len(rank))
    if len(rank) > N_SCORES:
        low, high = (normal.inv_cdf(float(rank[end])) for end in (0, -1))
        even = [normal.cdf(score) for score in np.linspace(low, high, N_SCORES)[1:-1]]
        near = np.minimum(np.searchsorted(rank, even), len(rank) - 1)
        place = np.unique(np.concatenate([[0], near, [len(rank) - 1]]))
    scores = np.array([normal.inv_cdf(float(r)) for r in rank[place]])
    points = sample.values[place]
    spread = fit_linear(np.interp(sample.values, points, scores), share).scale
    return RankGauss(reference, points, scores / spread)


def fit_linear(column: np.ndarray, weight: np.ndarray) -> Linear:
    """Weighted mean and standard deviation without cancellation or overflow."""
    share = weight / weight.sum()
    # Two passes: the second removes the rounding error of a mean far from zero.
    mean = float(share @ column)
    mean += float(share @ (column - mean))
    residual = column - mean
    residue = float(share @ residual)
    residual -= residue
    largest = float(np.abs(residual).max())
    unit = largest or 1.0
    scale = largest * float(np.sqrt(share @ (residual / unit) ** 2))
    return make_linear(mean, residue, scale, float(column.min()), float(column.max()))


def make_linear(
    mean: float, residue: float, scale: float, low: float, high: float
) -> Linear:
    """A line from the moments and the range of a column.

    A column whose spread is rounding error counts as constant. What the mean lacks,
    `residue`, is kept where it shows.
    """
    largest = max(high - mean - residue, mean + residue - low)
    floor = 16 * np.finfo(float).eps * max(abs(low), abs(high))
    if largest <= max(floor, 1e-300):
        return Linear(mean, 0.0)
    return Linear(mean, scale, residue if abs(residue) > RESIDUE * scale else 0.0)
