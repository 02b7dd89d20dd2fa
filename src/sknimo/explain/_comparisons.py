"""What a readable step goes with: the numbers that lead summary and report.

A number is moved by a round step around its value in every row, a level is compared
with its baseline and a missing value with the reference; everything else stays as it is
in the row. Averages are on the scale of the response, where readers live. Beside them:
how much each feature moves predictions at all, and how many rows could make the step.

Shapes: n rows, p features, c coefficients.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sknimo.explain._bends import is_large
from sknimo.explain._effects import two_values
from sknimo.explain._kinds import ENDS, eta_at, switch, usual_spread
from sknimo.explain._local import (
    MAX_ROWS,
    check_weight,
    fill_offset,
    find_roles,
    mean_of,
    spread_rows,
    weighted_quantiles,
)
from sknimo.explain._support import INSIDE, Support, measure_support
from sknimo.model import FittedModel

# Evaluations for all steps together, of a large model fewer, and rows that are not
# gone below.
EVALUATIONS = 60_000
LARGE_EVALUATIONS = 12_000
MIN_ROWS = 50
# A coefficient is unlike the average from this share of the effect's size on.
WORTH = 0.25
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

    def contradicts(self, coef: np.ndarray) -> np.ndarray:
        """Coefficients (c,) that would mislead about the average, bool.

        Those of the other sign, and those beyond what nearly all rows have.
        """
        at = coef * self.step
        low, high = self.eta_ends
        size = np.maximum(np.abs(self.eta), (high - low) / 2)
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
    evaluations = LARGE_EVALUATIONS if is_large(model) else EVALUATIONS
    most = max(MIN_ROWS, evaluations // max(2 * n_coef, 1))
    kept = spread_rows(len(table), min(MAX_ROWS, most))
    weight, fixed = check_weight(weight, len(table)), fill_offset(offset, len(table))
    support = measure_support(model, table, weight)
    table, weight, fixed = table[kept], weight[kept], fixed[kept]
    out = np.full((8, n_coef), np.nan)
    importance = np.zeros(p)
    eta = model.eta(table)
    for j in np.flatnonzero(find_roles(model).relevant).tolist():
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
                out[7, move.coef] = _possible(support, table, weight, move, j)
    return restore_comparisons(out, importance)


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
    levels = features.levels(j)
    reference = float(features.reference[j])
    if levels is None:
        yield _step(model, table, j, next(places), step)
    states = [float(code) for code in range(len(levels or ())) if code != reference]
    if features.admits_missing[j]:
        states.append(np.nan)
    base = np.full(len(column), reference)
    for value, at in zip(states, places, strict=True):
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
    support: Support, table: np.ndarray, weight: np.ndarray, move: Move, j: int
) -> float:
    """Share of the rows for which both ends of the step are possible."""
    here = support.beyond_own(support.columns(table), j)
    limit = weighted_quantiles(here, weight, [INSIDE])[0]
    inside = np.ones(len(table), dtype=bool)
    for value in move.values:
        moved = support.columns(switch(table, j, value))
        inside &= support.beyond_own(moved, j) <= limit
    return float(weight[inside].sum() / weight.sum())
