"""What a readable step goes with: the numbers that lead summary and report.

A number is moved by a round step around its value in every row, a level is compared
with its baseline and a missing value with the reference; everything else stays as it is
in the row. Averages are on the scale of the response, where readers live. Beside them:
how much each feature moves predictions at all, and how many rows could make the step.

Which combinations of values the rows make possible: columns are standardised, levels
and missing values enter as indicators, and a row is as unusual as it is far from the
mean in units of the joint covariance. What a feature allows of the others is judged
alone, so that a rare level is no odd one: a December is rare, a December in the middle
of the year does not exist. Combinations of features with few values are counted as
well: a holiday that is a working day lies near the mean of both, and does not exist.

Shapes: n rows, p features, c coefficients.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np

from sknimo.explain._bends import is_large
from sknimo.explain._effects import two_values
from sknimo.explain._kinds import ENDS, contrasted, eta_at, switch, usual_spread
from sknimo.explain._local import (
    MAX_ROWS,
    check_weight,
    fill_offset,
    find_roles,
    mean_of,
    spread_rows,
    weighted_quantiles,
)
from sknimo.explain._reach import LEAST_VARIANCE, MAX_COLUMNS
from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

# Rows further out than this share of all rows are outside.
INSIDE = 0.99
# Comparisons that fewer of the rows could make are called impossible.
POSSIBLE = 0.5
# A feature of so many values has few. Combinations of a value with those of one or two
# others that no row has are impossible where chance would give this many.
FEW_VALUES = 12
EXPECTED = 10
# Rows that are counted at most.
CELL_ROWS = 20_000
# Beyond these numbers of such features only pairs are looked at, or nothing.
MOST_TRIPLES, MOST_PAIRS = 12, 60


class Cells:
    """Combinations of features with few values that rows have."""

    def __init__(self, table: np.ndarray, relevant: np.ndarray) -> None:
        self._table = table[spread_rows(len(table), CELL_ROWS)]
        self._values = {}
        for j in np.flatnonzero(relevant).tolist():
            values = np.unique(self._table[:, j])
            if len(values) <= FEW_VALUES:
                self._values[j] = values

    def never(self, table: np.ndarray, j: int, value: np.ndarray) -> np.ndarray:
        """Rows that with this value (n,) of feature j would be like no other, (n,)."""
        odd = np.zeros(len(table), dtype=bool)
        others = [k for k in self._values if k != j]
        if j not in self._values or len(others) > MOST_PAIRS:
            return odd
        pairs = [(k, k) for k in others]
        if len(others) <= MOST_TRIPLES:
            pairs += list(combinations(others, 2))
        for pair in pairs:
            known, here = self._code(self._table, pair), self._code(table, pair)
            size = np.bincount(known, minlength=(FEW_VALUES + 1) ** 2)
            for v in np.unique(value[np.isin(value, self._values[j])]):
                has = self._table[:, j] == v
                seen = np.bincount(known[has], minlength=len(size))
                odd |= (value == v) & ((seen == 0) & (size * has.mean() >= EXPECTED))[
                    here
                ]
        return odd

    def _code(self, table: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
        first, second = (np.searchsorted(self._values[k], table[:, k]) for k in pair)
        return np.asarray(first * (FEW_VALUES + 1) + second)


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """Where rows lie, jointly."""

    features: FeatureMap
    owner: np.ndarray  # (d,), feature of each column
    # (d,), code of the level that a column stands for, NaN for the number itself,
    # infinite for a missing value.
    value: np.ndarray
    # Each (d,).
    mean: np.ndarray
    scale: np.ndarray
    # (d, d), of the standardised columns, and its inverse.
    covariance: np.ndarray
    precision: np.ndarray
    distance: np.ndarray  # (n,), squared distance of the rows from their mean
    weight: np.ndarray  # (n,)

    def columns(self, table: np.ndarray) -> np.ndarray:
        """Standardised columns of some rows, (n, d)."""
        z = _columns(self.features, table, self.owner, self.value)
        return (z - self.mean) / self.scale

    def square(self, z: np.ndarray) -> np.ndarray:
        """Squared distance of standardised columns from the mean, (n,)."""
        return _squares(z, self.precision)

    def beyond_own(self, z: np.ndarray, feature: int) -> np.ndarray:
        """The same of the other features, given what this one is, (n,)."""
        own = self.owner == feature
        alone = np.linalg.inv(self.covariance[np.ix_(own, own)])
        return self.square(z) - _squares(z[:, own], alone)


def _squares(z: np.ndarray, precision: np.ndarray) -> np.ndarray:
    return np.asarray(np.einsum("ij,ij->i", z @ precision, z))


def measure_support(
    model: FittedModel, table: np.ndarray, weight: np.ndarray | None = None
) -> Support | None:
    """Where weighted rows lie in the features with a role; None for very many."""
    features = model.features
    owner, value = _layout(features, find_roles(model).relevant)
    if not 0 < len(owner) <= MAX_COLUMNS or len(table) < 3:
        return None
    weight = check_weight(weight, len(table))
    raw = _columns(features, table, owner, value)
    mean = weight @ raw
    scale = np.sqrt(weight @ (raw - mean) ** 2)
    kept = np.isfinite(scale) & (scale > 0)
    owner, value, mean, scale = owner[kept], value[kept], mean[kept], scale[kept]
    if not kept.any():
        return None
    z = (raw[:, kept] - mean) / scale
    size = 1 / float((weight**2).sum())
    shrink = max(LEAST_VARIANCE, len(owner) / (len(owner) + size) / 10)
    covariance = (1 - shrink) * (z * weight[:, None]).T @ z
    covariance[np.diag_indices(len(owner))] += shrink
    precision = np.linalg.inv(covariance)
    return Support(
        features=features,
        owner=owner,
        value=value,
        mean=mean,
        scale=scale,
        covariance=covariance,
        precision=precision,
        distance=_squares(z, precision),
        weight=weight,
    )


def _layout(
    features: FeatureMap, relevant: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Owner and meaning of each column."""
    found: list[tuple[int, float]] = []
    for j in np.flatnonzero(relevant).tolist():
        if features.levels(j) is None:
            found.append((j, np.nan))
        states = contrasted(features, j)
        found += [(j, np.inf if math.isnan(value) else value) for value in states]
    owner = np.array([j for j, _ in found], dtype=int)
    return owner, np.array([value for _, value in found])


def _columns(
    features: FeatureMap, table: np.ndarray, owner: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Numbers and indicators, (n, d); a missing number stands at the reference."""
    out = np.empty((len(table), len(owner)))
    for at, (j, of) in enumerate(zip(owner.tolist(), value, strict=True)):
        column = table[:, j]
        if np.isnan(of):
            out[:, at] = np.where(np.isnan(column), features.reference[j], column)
        else:
            out[:, at] = np.isnan(column) if np.isinf(of) else column == of
    return out


# Evaluations for all steps together, of a large model fewer, and rows that are not
# gone below.
EVALUATIONS = 60_000
LARGE_EVALUATIONS = 24_000
MIN_ROWS = 50
# A coefficient is unlike the average from this share of the effect's size on.
WORTH = 0.25
# An effect is as small as this share of the largest, and no difference is worth less.
FAINT = 0.1
# A step so short, in standard deviations, that it gives a slope.
SLOPE = 1e-4
# Levels and missing values of fewer rows than this are rare.
RARE = 10


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """One comparison per coefficient, over rows; NaN where nothing is known."""

    step: np.ndarray  # (c,), round distance of two values of a number, one for levels
    # (c,), mean change of the linear predictor and of the response.
    eta: np.ndarray
    response: np.ndarray
    # (2, c), what 90 % of the rows have.
    eta_ends: np.ndarray
    response_ends: np.ndarray
    # (c,), share of the rows that could make the step: where the others stay as they
    # are, the combination is one that rows have.
    support: np.ndarray
    # (p,), mean size of the change of the linear predictor between the row's value and
    # the reference.
    importance: np.ndarray
    # (4, c), mean change of the linear predictor and of the response in the population,
    # each followed by its standard error. None where no residuals were there.
    corrected: np.ndarray | None = None

    @property
    def measured(self) -> np.ndarray:
        """All but importance and corrected averages, (8, c)."""
        top = np.stack([self.step, self.eta, self.response])
        return np.vstack([top, self.eta_ends, self.response_ends, self.support[None]])

    def as_read(self, family: Family) -> Self:
        """The same as readers are told: of a hazard by its logarithm.

        How many events are expected depends on how long a row was watched.
        """
        if not family.is_hazard:
            return self
        return replace(self, response=self.eta, response_ends=self.eta_ends)

    def contradicts(self, coef: np.ndarray) -> np.ndarray:
        """Coefficients (c,) that would mislead about the average, bool.

        Those of the other sign, and those beyond what nearly all rows have.
        """
        at = coef * self.step
        low, high = self.eta_ends
        size = np.maximum(np.abs(self.eta), (high - low) / 2)
        size = np.fmax(size, FAINT * np.fmax.reduce(size, initial=0.0))
        apart = np.abs(at - self.eta) > WORTH * size
        beyond = (at < low) | (at > high)
        return np.asarray(apart & ((at * self.eta < 0) | beyond))


def restore_comparisons(measured: np.ndarray, importance: np.ndarray) -> Comparisons:
    """Undo `measured`."""
    step, eta, response = measured[:3]
    return Comparisons(
        step, eta, response, measured[3:5], measured[5:7], measured[7], importance
    )


def readable_step(scale: float) -> float:
    """A power of ten between a fifth of the standard deviation and twice that.

    Examples
    --------
    >>> readable_step(2822.0), readable_step(9.1), readable_step(0.19)
    (1000.0, 10.0, 0.1)
    """
    if not 0 < scale < math.inf:
        return 1.0
    return float(f"1e{math.floor(math.log10(2 * scale))}")


def compare(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    respond: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Comparisons:
    """Make every comparison over weighted rows, or evenly spaced ones of very many.

    `respond` gives the response of a table where `eta` and `offset` do not.
    """
    n_coef, p = len(model.features.coef_feature), model.features.n_features
    kept = spread_rows(len(table), compared_rows(model), weight)
    weight, fixed = check_weight(weight, len(table)), fill_offset(offset, len(table))
    support = measure_support(model, table, weight)
    relevant = find_roles(model).relevant
    cells = Cells(table, relevant)
    table, weight, fixed = table[kept], weight[kept], fixed[kept]
    out = np.full((8, n_coef), np.nan)
    importance = np.zeros(p)
    eta = model.eta(table)
    for j in np.flatnonzero(relevant).tolist():
        before = eta_at(model, table, j, float(model.features.reference[j]), eta)
        importance[j] = weight @ np.abs(eta - before) / weight.sum()
        for move in moves_of(
            model, table, j, eta, before, choose_step(model, table, j)
        ):
            low, high = (mean_of(model.family, at + fixed) for at in move.eta)
            if respond is not None:
                low, high = (respond(switch(table, j, x)) for x in move.values)
            change = move.factor * (move.eta[1] - move.eta[0])
            out[0, move.coef] = move.step
            out[[1, 3, 4], move.coef] = _sum_up(change, weight)
            out[[2, 5, 6], move.coef] = _sum_up(move.factor * (high - low), weight)
            if support is not None:
                out[7, move.coef] = _possible(support, cells, table, weight, move, j)
    return restore_comparisons(out, importance)


def compared_rows(model: FittedModel) -> int:
    """How many rows `compare` looks at, at most."""
    evaluations = LARGE_EVALUATIONS if is_large(model) else EVALUATIONS
    steps = 2 * len(model.features.coef_feature)
    return min(MAX_ROWS, max(MIN_ROWS, evaluations // max(steps, 1)))


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Rows (n, p) at both ends of a step, and their linear predictors (n,)."""

    coef: int
    step: float
    factor: np.ndarray | float  # of the change, where the range cut the step short
    values: tuple[np.ndarray, np.ndarray]  # (n,) each, of the feature that moves
    eta: tuple[np.ndarray, np.ndarray]


def moves_of(
    model: FittedModel,
    table: np.ndarray,
    j: int,
    eta: np.ndarray,
    before: np.ndarray,
    step: float = math.nan,
) -> Iterator[Move]:
    """Moves of one feature, in the order of its coefficients.

    `before` (n,) is the linear predictor with the feature at its reference. A number
    moves by `step`, or has its slope per unit where that is NaN.
    """
    features, column = model.features, table[:, j]
    places = iter(np.flatnonzero(features.coef_feature == j).tolist())
    if features.levels(j) is None:
        yield _step(model, table, j, next(places), step)
    base = np.full(len(column), features.reference[j])
    for value, at in zip(contrasted(features, j), places, strict=True):
        after = eta_at(model, table, j, value, eta)
        yield Move(at, 1.0, 1.0, (base, np.full(len(column), value)), (before, after))


def choose_step(model: FittedModel, table: np.ndarray, j: int) -> float:
    """A readable step of a feature for these rows; between both where it has two."""
    column, scale = table[:, j], float(model.features.scale[j])
    only = two_values(column)
    if only is not None:
        return float(only[1] - only[0])
    step = readable_step(min(usual_spread(column) or scale, scale))
    whole = (np.isnan(column) | (column == np.round(column))).all()
    return max(step, 1.0) if whole else step  # whole numbers have no halves


def _step(
    model: FittedModel, table: np.ndarray, j: int, at: int, wanted: float
) -> Move:
    """A step of a number around each of its values, within the training range.

    At an end of the range it lies inside, in full: a part of it, blown up, would be a
    change that no two values have.
    """
    features, column = model.features, table[:, j]
    only, slope = two_values(column), math.isnan(wanted)
    if only is not None:
        low, high = (np.where(np.isnan(column), np.nan, value) for value in only)
    else:
        step = SLOPE * float(features.scale[j]) if slope else wanted
        low, high = column - step / 2, column + step / 2
        if features.low:
            least = np.minimum(features.low[j], column)
            most = np.maximum(features.high[j], column)
            shift = np.maximum(least - low, 0.0) - np.maximum(high - most, 0.0)
            low, high = (np.clip(end + shift, least, most) for end in (low, high))
    length, step = high - low, 1.0 if slope else wanted
    factor = np.where(length > 0, step / np.where(length > 0, length, 1.0), np.nan)
    before, after = (model.eta(switch(table, j, value)) for value in (low, high))
    known = np.where(np.isnan(column), np.nan, factor)
    return Move(at, step, known, (low, high), (before, after))


def _sum_up(change: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Mean and ends of the known changes, (3,)."""
    known = ~np.isnan(change)
    total = weight[known].sum()
    mean = weight[known] @ change[known] / total if total > 0 else np.nan
    return np.array([mean, *weighted_quantiles(change, weight, ENDS)])


def _possible(
    support: Support,
    cells: Cells,
    table: np.ndarray,
    weight: np.ndarray,
    move: Move,
    j: int,
) -> float:
    """Share of the rows for which both ends of the step are possible."""
    here = support.beyond_own(support.columns(table), j)
    limit = weighted_quantiles(here, weight, [INSIDE])[0]
    inside = np.ones(len(table), dtype=bool)
    for value in move.values:
        moved = support.columns(switch(table, j, value))
        inside &= support.beyond_own(moved, j) <= limit
        inside &= ~cells.never(table, j, value)
    return float(weight[inside].sum() / weight.sum())
