"""Learn bases, references and scales from weighted rows.

Shapes: n rows, p features.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from sknimo.exceptions import DataWarning, check_option
from sknimo.features._bases import (
    Basis,
    Clipped,
    Drawn,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    PooledLevels,
    Ramps,
    Spline,
    draw,
)
from sknimo.features._disguise import find_stand_in, numbers_rows
from sknimo.features._map import FeatureMap
from sknimo.features._shapes import (
    ValueSample,
    fit_linear,
    fit_ramps,
    fit_rank_gauss,
    fit_spline,
    place_edges,
    weigh_values,
)
from sknimo.features._typical import NEAR

BasisName = Literal["linear", "poly2", "spline", "ramps"]
# "auto" is the mean here; a search may leave it (search/_runner.py).
ReferenceName = Literal["auto", "mean", "median", "mode"]
InputScaling = Literal["standard", "rank_gauss", "ramps"]

# Tails are drawn in of columns of more values than this, with one farther from the
# median than so many standard deviations, as the distance between quartiles tells them.
TAIL_VALUES = 8
FAR_OUT = 6.0
# A curve needs this many distinct values.
SPLINE_VALUES = 6
POLYNOMIAL_VALUES = 3
# A reference with no row near it is nobody's; fewer rows than that cannot be near
# everything.
NEAR_ROWS = 10
# A column with more levels than this share of the rows is a name, not a category.
MAX_LEVEL_SHARE = 0.5
FEW_LEVELS = 20
# A level, or a gap, of fewer rows than this and of less than this share of them has no
# coefficient of its own: one row would decide it. Not where such levels hold many of
# the rows: then they are the rule, and what is learned from all of them shrinks each.
FEW_ROWS = 5
FEW_SHARE = 0.05
MANY_SHARE = 0.2
# How far a curve that was found goes on beyond the training range, as a share of it:
# new rows are often a little outside, and some farther than a parabola may be trusted.
# Of pieces the line goes on: where large coefficients of columns that go together hold
# each other in balance, a column that stops at its own end upsets them.
HOLD_SHARE = 0.25


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
    # Features whose curve was found, not asked for: it is constant far outside.
    found: tuple[int, ...] = ()
    # Features whose tails are drawn in.
    drawn: tuple[int, ...] = ()


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
    # Weight of all rows, and of those whose value is missing.
    weight: float = 0.0
    missing_weight: float = 0.0

    def has_tails(self) -> bool:
        """Whether some of many values lie far out."""
        return len(self.sample.values) > TAIL_VALUES and self.is_far()

    def is_far(self) -> bool:
        """Whether values lie far out, by the distance between quartiles."""
        centre, width = self.sample.middle()
        farthest = max(self.high - centre, centre - self.low)
        return farthest > FAR_OUT * width

    def curve_beyond(self) -> str:
        """Kind of a curve that values far out do not decide: no parabola."""
        return "spline" if len(self.sample.values) >= SPLINE_VALUES else "ramps"

    def drawn(self, at: Linear) -> tuple[ColumnSummary, Drawn]:
        """The column on a scale that draws its tails in, and that scale."""
        centre, width = self.sample.middle()

        def pull(values: Any) -> Any:
            return draw(np.asarray(values, dtype=float), centre, width)

        values, weight = pull(self.sample.values), self.sample.weight
        low, high = map(float, pull([self.low, self.high]))
        line = replace(
            fit_linear(values, weight), reference=float(pull(at.reference)), residue=0.0
        )
        sample = ValueSample(values, weight)
        own = replace(self, line=line, low=low, high=high, sample=sample)
        return own, Drawn(line, at.reference, at.scale, centre, width)

    def is_rare(self, weight: np.ndarray | float) -> np.ndarray:
        """Whether rows of this weight are too few for a coefficient of their own.

        Weights count rows, those of less than one on average rows of that average.
        """
        return np.less(weight, min(FEW_ROWS * self.unit, FEW_SHARE * self.weight))

    @property
    def unit(self) -> float:
        """Weight of a row."""
        return min(1.0, (self.weight - self.missing_weight) / self.n_known)


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
        float(weight.sum()),
        float(weight[~known].sum()),
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
    fitted: list[tuple[Basis, Basis, float, float]] = []
    far: list[str] = []
    odd: list[str] = []
    for j, known in enumerate(summaries):
        own = levels[j]
        basis: Basis
        read: Basis
        if own is not None:
            basis = read = fit_levels(known, own, references[j], names[j])
        else:
            of_all = not isinstance(options.reference, Mapping)
            at = _choose_reference(known, references[j], names[j], of_all)
            if j in options.drawn and at.scale:
                pulled, scale = known.drawn(at)
                inner = _fit_numeric(pulled, kinds[j], pulled.line, options)
                basis = _around(inner, scale, known)
                read = _around(_fit_input(pulled, inner, options), scale, known)
            else:
                basis = _fit_numeric(known, kinds[j], at, options)
                read = _fit_input(known, basis, options)
            curve = basis.basis if isinstance(basis, Drawn) else basis
            found = j in options.found and isinstance(curve, Polynomial | Spline)
            if found or isinstance(curve, Ramps):
                basis = _clip(basis, known, HOLD_SHARE)
            if options.clip_inputs == "all" and basis.scale:
                bare = basis.basis if isinstance(basis, Clipped) else basis
                basis = _clip(bare, known)
        if known.missing_scale:
            few = bool(known.is_rare(known.missing_weight))
            spread = 0.0 if few else known.missing_scale
            basis, read = OrMissing(basis, spread), OrMissing(read, spread)
        fitted.append((basis, read, known.low, known.high))
        if own is None and _is_far(basis, known):
            far.append(names[j])
        if own is None and not quiet:
            odd += _describe_odd(known, names[j])
    features = FeatureMap(tuple(names), *zip(*fitted, strict=True))
    if not quiet:
        _warn(features, far)
        for text in odd:
            warnings.warn(text, DataWarning, stacklevel=9)
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
            known = ", ".join(map(repr, (*get_args(BasisName), "auto")))
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


def find_columns(
    keys: Sequence[Any] | str | int | None, names: Sequence[str], option: str
) -> set[int]:
    """Positions of the columns that an option names, one or several or none."""
    given = [keys] if isinstance(keys, str | int) else keys or ()
    return {find_column(key, names, option) for key in given}


def find_column(key: Any, names: Sequence[str], option: str) -> int:
    """Position of a column given by name or position."""
    if isinstance(key, str) and key in names:
        return list(names).index(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if -len(names) <= int(key) < len(names):
            return int(key) % len(names)
    shown = ", ".join(map(repr, names[:8]))
    more = ", ..." if len(names) > 8 else ""
    raise ValueError(f"{option} names column {key!r}; X has {shown}{more}.")


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
            shown = ", ".join(map(repr, values[:8]))
            raise ValueError(
                f"reference of column {name!r} is {reference!r}, which is none of its "
                f"levels: {shown}."
            )
        baseline = values.index(reference)
    if len(values) == 1:
        return Levels(values, 0, 0.0)
    acts_as = _pool(known, total, baseline)
    share = np.bincount(acts_as, total, minlength=len(values)) / total.sum()
    share = share[np.setdiff1d(acts_as, baseline)]
    scale = float(np.sqrt(np.mean(share * (1 - share)))) if len(share) else 0.0
    if (acts_as == np.arange(len(values))).all():
        return Levels(values, baseline, scale)
    return PooledLevels(values, baseline, scale, tuple(acts_as.tolist()))


def _pool(known: ColumnSummary, total: np.ndarray, baseline: int) -> np.ndarray:
    """Code that each level counts as, (n_levels,).

    Rare levels share a coefficient where they have enough rows together; otherwise they
    count as the baseline.
    """
    codes = np.arange(len(total))
    rare = known.is_rare(total) & (codes != baseline)
    together = float(total[rare].sum())
    if not rare.any() or together > MANY_SHARE * total.sum():
        return codes
    shared = baseline if known.is_rare(together) else int(codes[rare][0])
    return np.where(rare, shared, codes)


def _fit_numeric(
    known: ColumnSummary, kind: Any, line: Linear, options: FeatureOptions
) -> Basis:
    sample = known.sample
    if kind == "linear" or line.scale == 0 or len(sample.values) < POLYNOMIAL_VALUES:
        return line
    if kind == "ramps":
        return fit_ramps(sample.reach(known.low, known.high), line, options.n_edges)
    if kind == "poly2" or len(sample.values) < SPLINE_VALUES:
        z = (sample.values - line.reference) / line.scale
        return Polynomial(
            line.reference, line.scale, fit_linear(z**2, sample.weight).scale or 1.0
        )
    return fit_spline(sample.reach(known.low, known.high), line)


def _choose_reference(
    known: ColumnSummary, reference: Any, name: str, of_all: bool
) -> Linear:
    """Mean by default, a level for a column of two values, or what was asked for.

    `of_all` says whether it was asked for of all columns.
    """
    line, sample = known.line, known.sample
    if line.scale == 0:
        return line
    if isinstance(reference, str):
        if reference not in get_args(ReferenceName):
            names = ", ".join(map(repr, get_args(ReferenceName)))
            if not of_all:
                raise ValueError(
                    f"reference of column {name!r} is {reference!r}; give a number or "
                    f"one of {names}."
                )
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


def _fit_input(known: ColumnSummary, basis: Basis, options: FeatureOptions) -> Basis:
    """What the network sees of a numeric column."""
    line = basis if isinstance(basis, Linear) else Linear(basis.reference, basis.scale)
    if line.scale == 0:
        return line
    if options.input_scaling == "rank_gauss" and len(known.sample.values) > 2:
        return fit_rank_gauss(known.sample, line.reference)
    if options.input_scaling == "ramps":
        sample = known.sample.reach(known.low, known.high)
        edges = place_edges(sample, options.n_input_edges)
        if len(edges) >= POLYNOMIAL_VALUES:
            return _clip(Ramps(line.reference, line.scale, edges), known)
    return _clip(line, known) if options.clip_inputs else line


def _around(inner: Basis, drawn: Drawn, known: ColumnSummary) -> Basis:
    """A basis of drawn values as one of the values, clipped where it was."""
    if isinstance(inner, Clipped):
        return _clip(replace(drawn, basis=inner.basis), known)
    return replace(drawn, basis=inner)


def _clip(basis: Basis, known: ColumnSummary, beyond: float = 0.0) -> Clipped:
    """The same within the training range and the reference: it is zero there.

    And `beyond`, by this share of the range.
    """
    more = beyond * (known.high - known.low)
    low = min(known.low - more, basis.reference)
    return Clipped(basis, low, max(known.high + more, basis.reference))


def _warn(features: FeatureMap, far: list[str]) -> None:
    """Warn of columns without effect and of references far from all rows."""
    idle = [j for j, basis in enumerate(features.bases) if basis.n_terms == 0]
    rare = [features.names[j] for j in idle if len(features.levels(j) or ()) > 1]
    constant = [features.names[j] for j in idle if features.names[j] not in rare]
    for names, text in (
        (
            constant,
            "Constant column {}: its coefficient is zero and it has no effect on "
            "predictions. Drop it to silence this warning.",
        ),
        (
            rare,
            "Column {} has hardly any row outside its most frequent level (fewer than "
            f"{FEW_ROWS}): it has no effect on predictions. Drop it, or collect more "
            "such rows.",
        ),
        (
            far,
            "No row lies near the reference in column {}: coefficients there describe "
            "nobody in the data. Choose another point with reference=.",
        ),
    ):
        if names:
            told = text.format(show_names(names, 5))
            warnings.warn(told, DataWarning, stacklevel=10)


def _describe_odd(known: ColumnSummary, name: str) -> Iterator[str]:
    """What to say of a column whose numbers may be none."""
    values = known.sample.values
    at = find_stand_in(values, known.sample.weight / known.unit)
    if at is not None:
        low, high = np.delete(values, at)[[0, -1]]
        yield (
            f"Column {name!r} has the value {values[at]:g} in "
            f"{known.sample.weight[at] / known.unit:.0f} rows, far from all others "
            f"({low:g} to {high:g}). If it is a code, make it a missing value and set "
            "missing='indicator'."
        )
    if numbers_rows(name, values, known.n_known):
        yield (
            f"Column {name!r} seems to number the rows: no two have the same. It tells "
            "nothing of new rows; leave it out."
        )


def _is_far(basis: Basis, known: ColumnSummary) -> bool:
    """Whether the reference is nobody's value."""
    if basis.scale == 0 or known.n_known < NEAR_ROWS:
        return False
    near = np.abs(known.sample.values - basis.reference) <= NEAR * basis.scale
    return not near[known.sample.weight > 0].any()


def show_names(names: Sequence[Any], most: int = 8) -> str:
    """The first names or levels of a list for a message, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
