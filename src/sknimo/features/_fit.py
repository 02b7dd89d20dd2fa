"""Learn bases, references and scales from weighted rows.

Shapes: n rows, p features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from sknimo.exceptions import DataWarning, check_option
from sknimo.features._bases import (
    Basis,
    Clipped,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    Ramps,
    RankGauss,
    Spline,
    natural_spline,
    natural_spline_curvature,
    ramp_roughness,
)
from sknimo.features._map import FeatureMap

BasisName = Literal["linear", "poly2", "spline", "ramps"]
# "auto" is the mean here; a search may leave it (estimators/_reference.py).
ReferenceName = Literal["auto", "mean", "median", "mode"]
InputScaling = Literal["standard", "rank_gauss", "ramps"]

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
# A curve needs this many distinct values.
SPLINE_VALUES = 6
POLYNOMIAL_VALUES = 3
# Values between which normal scores are interpolated.
N_SCORES = 129
# A reference with no row within this many standard deviations is nobody's; fewer rows
# than that cannot be near everything.
NEAR = 0.5
NEAR_ROWS = 10
# A column with more levels than this share of the rows is a name, not a category.
MAX_LEVEL_SHARE = 0.5
FEW_LEVELS = 20


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """How columns are to be read."""

    basis: str | Mapping[Any, str] = "linear"
    reference: str | Mapping[Any, Any] = "mean"
    input_scaling: str = "standard"
    clip_inputs: bool | str = False  # or "all": the terms as well
    # Edges of the pieces of ramps at most, of terms and of inputs.
    n_edges: int = 64
    n_input_edges: int = 64


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

    def reach(self, low: float, high: float) -> ValueSample:
        """The same with both ends of the range among the values."""
        ends = np.setdiff1d([low, high], self.values)
        place = np.searchsorted(self.values, ends)
        return ValueSample(
            np.insert(self.values, place, ends), np.insert(self.weight, place, 0.0)
        )


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What a basis is learned from: figures of all rows, and values of some or all."""

    line: Linear  # weighted mean and standard deviation of the known values
    # Their range.
    low: float
    high: float
    n_known: int  # rows whose value is known
    # Standard deviation of the indicator of missing values, zero without any.
    missing_scale: float
    sample: ValueSample  # known values of all rows, or of a random sample of them
    # Total weight of each level of a category.
    level_weight: np.ndarray | None = None  # (n_levels,)


def summarise_column(
    column: np.ndarray, weight: np.ndarray, levels: tuple[Label, ...] | None, name: str
) -> ColumnSummary:
    """Summary of a column that is there as a whole; NaN is missing."""
    known = ~np.isnan(column)
    values, share = column[known], weight[known]
    if len(values) == 0:
        raise ValueError(only_missing(name))
    complete = len(values) == len(column)
    level_weight = None
    if levels is not None:
        level_weight = np.bincount(values.astype(int), share, minlength=len(levels))
    return ColumnSummary(
        fit_linear(values, share),
        float(values.min()),
        float(values.max()),
        len(values),
        0.0 if complete else fit_linear((~known).astype(float), weight).scale,
        weigh_values(values, share),
        level_weight,
    )


def only_missing(name: str) -> str:
    """Why a column without any value is refused."""
    return f"Column {name!r} of X contains missing values (NaN) only. Drop it."


def fit_features(
    table: np.ndarray,
    names: Sequence[str],
    weight: np.ndarray,
    levels: Sequence[tuple[Label, ...] | None] | None = None,
    options: FeatureOptions | None = None,
    quiet: bool = False,
) -> FeatureMap:
    """Learn basis, reference and scale of every column from weighted rows.

    `levels` holds the levels of categorical columns, whose entries are codes. A column
    with missing values (NaN) admits them. Unless `quiet`, columns without effect and
    references that are nobody's are warned of.
    """
    levels = levels or [None] * len(names)
    summaries = (
        summarise_column(column, weight, own, name)
        for column, own, name in zip(table.T, levels, names, strict=True)
    )
    return fit_summaries(summaries, names, levels, options, quiet)


def fit_summaries(
    summaries: Iterable[ColumnSummary],
    names: Sequence[str],
    levels: Sequence[tuple[Label, ...] | None],
    options: FeatureOptions | None = None,
    quiet: bool = False,
) -> FeatureMap:
    """The same from what is known of every column, one after the other."""
    options = options or FeatureOptions()
    kinds = spread_option("basis", options.basis, names, "linear")
    references = spread_option("reference", options.reference, names, "mean")
    _check_options(options, kinds, names, levels)
    bases: list[Basis] = []
    inputs: list[Basis] = []
    low: list[float] = []
    high: list[float] = []
    far: list[str] = []
    for j, known in enumerate(summaries):
        own = levels[j]
        basis: Basis
        read: Basis
        if own is not None:
            basis = read = fit_levels(known, own, references[j], names[j])
        else:
            at = _choose_reference(known, references[j], names[j])
            basis = _fit_numeric(known, kinds[j], at, options)
            read = _fit_input(known, basis, options)
            if options.clip_inputs == "all" and basis.scale:
                basis = basis if isinstance(basis, Clipped) else _clip(basis, known)
        if known.missing_scale:
            basis = OrMissing(basis, known.missing_scale)
            read = OrMissing(read, known.missing_scale)
        bases.append(basis)
        inputs.append(read)
        low.append(known.low)
        high.append(known.high)
        if own is None and _is_far(basis, known):
            far.append(names[j])
    features = FeatureMap(
        tuple(names), tuple(bases), tuple(inputs), tuple(low), tuple(high)
    )
    if not quiet:
        _warn_constant(features)
        _warn_far(far)
    return features


def _check_options(
    options: FeatureOptions,
    kinds: Sequence[Any],
    names: Sequence[str],
    levels: Sequence[tuple[Label, ...] | None],
) -> None:
    """Refuse bases and scalings that do not exist or do not fit their column."""
    check_option("input_scaling", options.input_scaling, get_args(InputScaling))
    if isinstance(options.clip_inputs, str):
        check_option("clip_inputs", options.clip_inputs, ("all",))
    for kind, name, own in zip(kinds, names, levels, strict=True):
        if kind not in get_args(BasisName):
            known = ", ".join(repr(option) for option in (*get_args(BasisName), "auto"))
            raise ValueError(
                f"basis must be one of {known}, got {kind!r} for {name!r}."
            )
        if own is not None and kind != "linear" and isinstance(options.basis, Mapping):
            raise ValueError(
                f"basis of column {name!r} is {kind!r}, but its values are levels of a "
                "category, which have no curve. Remove it from basis."
            )


def spread_option(
    name: str, option: Any, names: Sequence[str], default: Any
) -> list[Any]:
    """One value per feature from a single value or a mapping by name or position."""
    if not isinstance(option, Mapping):
        return [option] * len(names)
    out = [default] * len(names)
    for key, value in option.items():
        out[find_column(key, names, name)] = value
    return out


def find_column(key: Any, names: Sequence[str], option: str) -> int:
    """Position of a column given by name or position."""
    if isinstance(key, str) and key in names:
        return list(names).index(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if -len(names) <= int(key) < len(names):
            return int(key) % len(names)
    shown = ", ".join(repr(name) for name in names[:8])
    more = ", ..." if len(names) > 8 else ""
    raise ValueError(f"{option} names column {key!r}; X has {shown}{more}.")


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


def fit_levels(
    known: ColumnSummary, values: tuple[Label, ...], reference: Any, name: str
) -> Levels:
    """Baseline (the most frequent level, or the one asked for) and common scale."""
    if len(values) > max(FEW_LEVELS, MAX_LEVEL_SHARE * known.n_known):
        raise ValueError(
            f"Column {name!r} has {len(values)} levels in {known.n_known} distinct "
            "rows, too many to learn from. Drop it, or merge rare levels first."
        )
    total = known.level_weight
    assert total is not None
    baseline = int(np.argmax(total))
    if not (isinstance(reference, str) and reference in get_args(ReferenceName)):
        if reference not in values:
            shown = ", ".join(repr(value) for value in values[:8])
            raise ValueError(
                f"reference of column {name!r} is {reference!r}, which is none of its "
                f"levels: {shown}."
            )
        baseline = values.index(reference)
    if len(values) == 1:
        return Levels(values, 0, 0.0)
    share = np.delete(total / total.sum(), baseline)
    return Levels(values, baseline, float(np.sqrt(np.mean(share * (1 - share)))))


def _fit_numeric(
    known: ColumnSummary, kind: Any, line: Linear, options: FeatureOptions
) -> Basis:
    sample = known.sample
    if kind == "linear" or line.scale == 0 or len(sample.values) < POLYNOMIAL_VALUES:
        return line
    if kind == "ramps":
        basis = fit_ramps(sample.reach(known.low, known.high), line, options.n_edges)
        if isinstance(basis, Linear):
            return basis
        # Constant outside the range, like the curve: a line would carry on alone.
        return _clip(basis, known)
    if kind == "poly2" or len(sample.values) < SPLINE_VALUES:
        z = (sample.values - line.reference) / line.scale
        return Polynomial(
            line.reference, line.scale, fit_linear(z**2, sample.weight).scale or 1.0
        )
    return fit_spline(sample.reach(known.low, known.high), line)


def weigh_values(column: np.ndarray, weight: np.ndarray) -> ValueSample:
    """Distinct values of a column and the total weight on each."""
    values, place = np.unique(column, return_inverse=True)
    return ValueSample(values, np.bincount(place, weight))


def _choose_reference(known: ColumnSummary, reference: Any, name: str) -> Linear:
    """Mean by default, a level for a column of two values, or what was asked for."""
    line, sample = known.line, known.sample
    if line.scale == 0:
        return line
    if isinstance(reference, str):
        if reference not in get_args(ReferenceName):
            names = ", ".join(repr(option) for option in get_args(ReferenceName))
            raise ValueError(
                f"reference must be one of {names} or a dictionary by column, got "
                f"{reference!r}."
            )
        if len(sample.values) == 2 or reference == "mode":
            return Linear(sample.mode(), line.scale)
        if reference == "median":
            return Linear(sample.median(), line.scale)
        return line
    if not isinstance(reference, Real) or not np.isfinite(float(reference)):
        raise ValueError(
            f"reference of column {name!r} must be a finite number, got {reference!r}."
        )
    return Linear(float(reference), line.scale)


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
    edges = _place_edges(sample, n_edges)
    if len(edges) < POLYNOMIAL_VALUES:
        return line
    ramps, weight = _gather_pieces(sample, edges)
    # Within the range the line is a sum of ramps, so that it can be taken out of them.
    rise = np.diff(edges) / line.scale
    raw = np.column_stack([ramps @ rise, ramps])
    share = weight / weight.sum()
    # On one thread: for matrices as small as these a team waits for its members, and
    # where other programs hold the cores a hundred times as long as it works.
    with threadpool_limits(1, "blas"):
        transform = _order_curves(raw, share, ramp_roughness(edges), rise)
    if transform is None:
        return line
    curves = transform[1:, 1:] + np.outer(rise, transform[0, 1:])
    return Ramps(line.reference, line.scale, edges, curves)


def _gather_pieces(
    sample: ValueSample, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ramps and weights of two rows per piece that stand for all rows there.

    They have the weight, the mean and the spread of those rows. Curves are straight
    within a piece: no mean and no covariance of curves differs.
    """
    n_pieces = len(edges) - 1
    place = np.searchsorted(edges, sample.values, side="right") - 1
    place = np.clip(place, 0, n_pieces - 1)
    risen = np.clip((sample.values - edges[place]) / np.diff(edges)[place], 0.0, 1.0)

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
    roughness: np.ndarray,
    rise: np.ndarray | None = None,
) -> np.ndarray | None:
    """Turn columns, a line first, into the line and uncorrelated curves without it.

    Returns the transform of the columns (1 + c, m), or None if nothing but a line is
    left of them. The curves come smooth ones first by `roughness` (c, c), the matrix of
    a quadratic form; at unit variance each is divided by the root of its roughness
    relative to the smoothest. A line that is rough itself is the sum of the other
    columns by `rise` (c,).
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
    if rise is not None:
        straighten = np.eye(len(rise)) - np.outer(rise, tilt)
        roughness = straighten.T @ roughness @ straighten
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


def _place_edges(sample: ValueSample, n_edges: int) -> np.ndarray:
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


def _fit_input(known: ColumnSummary, basis: Basis, options: FeatureOptions) -> Basis:
    """What the network sees of a numeric column."""
    line = basis if isinstance(basis, Linear) else Linear(basis.reference, basis.scale)
    if line.scale == 0:
        return line
    if options.input_scaling == "rank_gauss" and len(known.sample.values) > 2:
        return fit_rank_gauss(known.sample, line.reference)
    if options.input_scaling == "ramps":
        sample = known.sample.reach(known.low, known.high)
        edges = _place_edges(sample, options.n_input_edges)
        if len(edges) >= POLYNOMIAL_VALUES:
            return _clip(Ramps(line.reference, line.scale, edges), known)
    return _clip(line, known) if options.clip_inputs else line


def _clip(basis: Basis, known: ColumnSummary) -> Clipped:
    """The same within the training range and the reference: it is zero there."""
    low = min(known.low, basis.reference)
    return Clipped(basis, low, max(known.high, basis.reference))


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


def _warn_constant(features: FeatureMap) -> None:
    constant = [
        name
        for name, basis in zip(features.names, features.bases, strict=True)
        if basis.n_terms == 0
    ]
    if constant:
        warnings.warn(
            f"Constant column {_shown(constant)}: its coefficient is zero and it has "
            "no effect on predictions. Drop it to silence this warning.",
            DataWarning,
            stacklevel=10,
        )


def _is_far(basis: Basis, known: ColumnSummary) -> bool:
    """Whether the reference is nobody's value."""
    if basis.scale == 0 or known.n_known < NEAR_ROWS:
        return False
    near = np.abs(known.sample.values - basis.reference) <= NEAR * basis.scale
    return not near[known.sample.weight > 0].any()


def _warn_far(far: list[str]) -> None:
    if far:
        warnings.warn(
            f"No row lies near the reference in column {_shown(far)}: coefficients "
            "there describe nobody in the data. Choose another point with reference=.",
            DataWarning,
            stacklevel=10,
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more
