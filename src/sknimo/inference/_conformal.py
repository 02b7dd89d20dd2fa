"""How far the next observation may lie from its prediction.

Rows that the members which predict them have not seen say how wrong predictions are.
Their *scores*, `(y - mu) / spread`, are kept in order; a quantile of them on either
side of a new prediction is its interval. The spread is that of the family, times a
width that follows the row where rows held out show that it does: `log width` is a line
in the terms of the model and its linear predictor, shrunken as rows left out one by one
like best. A row's own residual is left out of the width that scales it, so that scores
of old rows are like those of new ones.

Rows held out are predicted by one member of fewer rows, the next by an average of
members of all: where a fit needs every row it has, it is much better than its folds.
How large residuals would be without their row is known from a linearisation of the fit
(`Uncertainty.left_out`), and the smaller of both sizes counts.

For classes the score is one less the probability of the class that came: a set holds
the classes whose score is no rarer than the level asks for.

Shapes: n rows, q terms, d columns of the width, k kept scores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from sknimo.explain import Origin, Shown, make_frame, mean_of, spread_rows
from sknimo.families import Family
from sknimo.model import FittedModel

Kind = Literal["next", "mean"]

# Scores that are kept, evenly spaced, and all of them at either end.
KEPT = 1000
ENDS = 25
# Rows and columns of which a width is learned; with more columns `eta` alone counts.
WIDTH_ROWS = 20_000
WIDTH_COLUMNS = 400
# Shrinkage of the width, relative to columns of variance one; infinite is constant.
SHRINKAGE = (math.inf, 3.0, 1.0, 0.3, 0.1, 0.03)
# Share of the standard error by which a changing width must be better.
MARGIN = 1.0
STEPS = 25
# A linearisation takes selection and restarts for granted: residuals of new rows are
# larger by 3 to 6 % in five simulated designs.
GRANTED = 1.05
TINY = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Width:
    """How wide intervals are, as a line in the columns of a row.

    Attributes
    ----------
    coef, centre : ndarray of shape (d,)
        Of the terms, or none of them, then of the linear predictor.
    intercept, low, high : float
        Logarithms; outside the range of the rows widths stay what they are at its end.
    """

    coef: np.ndarray
    centre: np.ndarray
    intercept: float
    low: float
    high: float

    def of(self, model: FittedModel, table: np.ndarray, eta: np.ndarray) -> np.ndarray:
        """Width of each row, (n,)."""
        if not self.coef.any():
            return np.full(len(eta), math.exp(self.intercept))
        columns = width_columns(model, table, eta, len(self.coef) > 1)
        line = self.intercept + (columns - self.centre) @ self.coef
        return np.exp(np.clip(line, self.low, self.high))


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores in order, (3, k): value, weight of rows below and up to it.

    Weights sum to the number of rows.
    """

    table: np.ndarray
    n_rows: float

    @property
    def mean_size(self) -> float:
        """Mean of the scores without their sign."""
        share = np.diff(self.table[2], prepend=0.0)
        return float(share @ np.abs(self.table[0]) / share.sum())

    def times(self, factor: float) -> "Scores":
        """All of them multiplied."""
        return replace(self, table=self.table * [[factor], [1.0], [1.0]])

    def highest(self, share: float) -> float:
        """What at most `1 - share` of new scores exceed; infinite without the rows."""
        at = np.searchsorted(self.table[2], share * (self.n_rows + 1) - 1e-9)
        return float(self.table[0, at]) if at < self.table.shape[1] else math.inf

    def lowest(self, share: float) -> float:
        """What at most `1 - share` of new scores are below."""
        above = self.n_rows - self.table[1]
        found = np.flatnonzero(above >= share * (self.n_rows + 1) - 1e-9)
        return float(self.table[0, found[-1]]) if len(found) else -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Conformal:
    """What predictions of the next observation are made of.

    Attributes
    ----------
    plain, adapted : Scores
        With the spread of the family alone, and with a width that follows the row.
    width : Width
    whole : bool
        Whether the target counts.
    by_folds : bool
        Whether it comes from members of fewer rows, whose errors may be larger.
    """

    plain: Scores
    adapted: Scores
    width: Width
    whole: bool = False
    by_folds: bool = False

    def of_all_rows(self, left_out: float) -> "Conformal":
        """Shortened to what the mean size of residuals left out allows, if known."""
        if not self.by_folds:
            return self
        factor = GRANTED * left_out / max(self.plain.mean_size, TINY)
        factor = factor if factor < 1 else 1.0  # NaN is not known
        plain, adapted = self.plain.times(factor), self.adapted.times(factor)
        return Conformal(plain, adapted, self.width, self.whole)


@dataclass(frozen=True, slots=True, eq=False)
class PredictionIntervals(Shown):
    """An interval for every row.

    Attributes
    ----------
    prediction, lower, upper : ndarray of shape (n,)
        On the scale of the response. Infinite where too few rows were held out for the
        level.
    level : float
    kind : str
        "next" is about the next observation, "mean" about the mean of such rows.
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressorCV, datasets
    >>> data = datasets.make_nimo_regression(n_samples=120, random_state=0)
    >>> est = NIMORegressorCV(n_starts=1, cv=2, max_iter=5, random_state=0)
    >>> found = est.fit(data.X, data.y).predict_interval(data.X)
    >>> bool((found.lower < found.prediction).all())
    True
    """

    prediction: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    kind: str
    origin: Origin

    def __len__(self) -> int:
        return len(self.prediction)

    @property
    def width(self) -> np.ndarray:
        """Distance of the two ends, (n,)."""
        return self.upper - self.lower

    def columns(self) -> dict[str, Any]:
        """Name and values of each column of `to_frame`."""
        names = ("prediction", "lower", "upper")
        return {name: getattr(self, name) for name in names}

    def to_frame(self) -> Any:
        """One row per row of the table, as a data frame of its library."""
        return make_frame(self.columns(), self.origin, with_index=True)

    def __repr__(self) -> str:
        what = "the next observation" if self.kind == "next" else "the mean"
        known = self.width[np.isfinite(self.width)]
        median = f", median width {np.median(known):.4g}" if len(known) else ""
        return f"{100 * self.level:g} % intervals of {what}, {len(self)} rows{median}"


@dataclass(frozen=True, slots=True, eq=False)
class PredictionSets(Shown):
    """The classes that a row may have.

    Attributes
    ----------
    classes : ndarray of shape (2,)
    member : ndarray of shape (n, 2), bool
        Whether each class is in the set of the row. One at least is.
    probability : ndarray of shape (n, 2)
    level : float
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMOClassifierCV, datasets
    >>> data = datasets.make_nimo_classification(n_samples=120, random_state=0)
    >>> est = NIMOClassifierCV(n_starts=1, cv=2, max_iter=5, random_state=0)
    >>> bool((est.fit(data.X, data.y).predict_interval(data.X).size >= 1).all())
    True
    """

    classes: np.ndarray
    member: np.ndarray
    probability: np.ndarray
    level: float
    origin: Origin

    def __len__(self) -> int:
        return len(self.member)

    @property
    def size(self) -> np.ndarray:
        """Number of classes in each set, (n,)."""
        return self.member.sum(axis=1)

    def columns(self) -> dict[str, Any]:
        """Name and values of each column of `to_frame`."""
        likely = self.classes[self.probability.argmax(axis=1)]
        columns: dict[str, Any] = {"prediction": likely.tolist()}
        for k, label in enumerate(self.classes.tolist()):
            columns[f"in_{label}"] = self.member[:, k]
        return columns

    def to_frame(self) -> Any:
        """One row per row of the table: the likeliest class, and who is in the set."""
        return make_frame(self.columns(), self.origin, with_index=True)

    def __repr__(self) -> str:
        sure = float((self.size == 1).mean())
        return (
            f"{100 * self.level:g} % prediction sets of {len(self)} rows, "
            f"{100 * sure:.0f} % of them with one class"
        )


def pack_conformal(found: Conformal) -> dict[str, np.ndarray]:
    """Everything as plain arrays, for a file."""
    width = found.width
    facts = [width.intercept, width.low, width.high, float(found.whole)]
    rows = [found.plain.n_rows, found.adapted.n_rows]
    return {
        "facts": np.array(facts + rows),
        "width": np.stack([width.coef, width.centre]),
        "plain": found.plain.table,
        "adapted": found.adapted.table,
    }


def restore_conformal(arrays: Mapping[str, np.ndarray]) -> Conformal:
    """Undo `pack_conformal`."""
    intercept, low, high, whole, *rows = arrays["facts"].tolist()
    coef, centre = arrays["width"]
    return Conformal(
        plain=Scores(arrays["plain"], rows[0]),
        adapted=Scores(arrays["adapted"], rows[1]),
        width=Width(coef, centre, intercept, low, high),
        whole=bool(whole),
    )


def calibrate(
    model: FittedModel,
    table: np.ndarray,
    y: np.ndarray,
    eta: np.ndarray,
    weight: np.ndarray,
    *,
    by_folds: bool = False,
) -> Conformal | None:
    """Learn from rows whose `eta` (n,) comes from members that have not seen them.

    A row of weight w is w rows.
    NaN there says that all have; None without rows that some have not. `by_folds` says
    that these members are not those that predict.
    """
    known = np.isfinite(eta) & (weight > 0)
    if not known.any():
        return None
    y, eta, weight = y[known], eta[known], weight[known]
    family = model.family
    if family.is_binary:
        wrong = np.where(y > 0.5, 1 - mean_of(family, eta), mean_of(family, eta))
        scores = sort_scores(wrong, weight)
        return Conformal(scores, scores, _constant(0.0, 1))
    residual = (y - mean_of(family, eta)) / family_spread(family, eta)
    kept = spread_rows(len(y), WIDTH_ROWS)
    rows = np.flatnonzero(known)[kept]
    wide = len(model.features.term_feature) < min(WIDTH_COLUMNS, len(kept) // 4)
    columns = width_columns(model, table[rows], eta[kept], wide)
    width, own = fit_width(columns, np.abs(residual[kept]), weight[kept])
    counts = not family.least_squares and bool(family.in_domain(torch.zeros(1)))
    return Conformal(
        plain=sort_scores(residual, weight),
        adapted=sort_scores(residual[kept] / own, weight[kept]),
        width=width,
        whole=counts and bool((y == np.round(y)).all()),
        by_folds=by_folds,
    )


def family_spread(family: Family, eta: np.ndarray) -> np.ndarray:
    """Standard deviation that the family gives each row, at dispersion one, (n,)."""
    mean = torch.as_tensor(mean_of(family, eta))
    return np.sqrt(np.maximum(family.variance(mean).numpy(), np.finfo(float).tiny))


def width_columns(
    model: FittedModel, table: np.ndarray, eta: np.ndarray, wide: bool
) -> np.ndarray:
    """What the width of a row may depend on, (n, d)."""
    if not wide:
        return eta[:, None]
    return np.column_stack([model.features.terms(table), eta])


def sort_scores(values: np.ndarray, weight: np.ndarray) -> Scores:
    """Scores in order, thinned out between the ends where they are many."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    table = np.stack([values[order], upto - weight[order], upto])
    last = len(values) - 1
    if last >= KEPT + 2 * ENDS:
        inner = np.linspace(ENDS, last - ENDS, KEPT).round().astype(int)
        ends = np.arange(ENDS)
        table = table[:, np.unique(np.r_[ends, inner, last - ends])]
    return Scores(table, float(upto[-1]))


def fit_width(
    columns: np.ndarray, size: np.ndarray, weight: np.ndarray
) -> tuple[Width, np.ndarray]:
    """A width for sizes (n,) of residuals, and that of each row without itself, (n,).

    `log width` minimises `size / width + log width` plus a ridge: the likelihood of a
    gamma law, whose expected curvature is one in every row. So the matrix of all Newton
    steps is the same, and its leverages give what leaving one row out changes.
    """
    share = weight / weight.sum()
    mean = float(share @ size)
    if mean <= 0:
        return _constant(0.0, columns.shape[1]), np.ones(len(size))
    n_rows, one = len(size), share  # of a row that is left out
    if (weight == np.round(weight)).all():  # it is as many rows as it weighs
        n_rows, one = weight.sum(), np.minimum(share, 1 / weight.sum())
    size = size / mean
    centre = share @ columns
    spread = np.sqrt(share @ (columns - centre) ** 2)
    unit = np.where(spread > 0, spread, np.inf)
    columns = (columns - centre) / unit
    values, vectors = np.linalg.eigh((columns * share[:, None]).T @ columns)
    turned = columns @ vectors
    found = [_fit_line(turned, values, size, share, one, ridge) for ridge in SHRINKAGE]
    losses = [size * np.exp(-own) + own for *_, own in found]
    best = int(np.argmin([share @ loss for loss in losses]))
    saved = losses[0] - losses[best]
    error = math.sqrt(float(share @ (saved - share @ saved) ** 2) / n_rows)
    if not float(share @ saved) > MARGIN * error:
        best = 0
    coef, intercept, own = found[best]
    low, high = float(own.min()), float(own.max())
    log_mean = math.log(mean)
    width = Width(
        coef=vectors @ coef / unit,
        centre=centre,
        intercept=intercept + log_mean,
        low=low + log_mean,
        high=high + log_mean,
    )
    return width, np.exp(own + log_mean)


def _fit_line(
    columns: np.ndarray,
    values: np.ndarray,
    size: np.ndarray,
    share: np.ndarray,
    one: np.ndarray,
    ridge: float,
) -> tuple[np.ndarray, float, np.ndarray]:
    """Coefficients in turned columns, intercept, and log widths without the own row."""
    inverse = 1 / (np.maximum(values, 0.0) + ridge)  # zero for an infinite ridge
    penalty = 0.0 if math.isinf(ridge) else ridge

    def price(at: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Objective, best intercept and log width."""
        line = columns @ at
        level = math.log(float(share @ (size * np.exp(-line))))
        whole = line + level
        cost = 1 + float(share @ whole) + penalty * float(at @ at) / 2
        return cost, level, whole

    coef = np.zeros(len(values))
    cost, intercept, whole = price(coef)
    for _ in range(STEPS if penalty else 0):
        excess = share * (size * np.exp(-whole) - 1)
        move = inverse * (excess @ columns - penalty * coef)
        step = 1.0
        while step > 1e-3:
            tried = price(coef + step * move)
            if tried[0] <= cost:
                break
            step /= 2
        else:
            break
        gained, coef = cost - tried[0], coef + step * move
        cost, intercept, whole = tried
        if gained < 1e-9:
            break
    leverage = np.minimum(one * (1 + (columns**2) @ inverse), 0.9)
    excess = size * np.exp(-whole) - 1
    return coef, intercept, whole - leverage / (1 - leverage) * np.minimum(excess, 5.0)


def _constant(log_width: float, n_columns: int) -> Width:
    zero = np.zeros(n_columns)
    return Width(zero, zero, log_width, log_width, log_width)


def next_intervals(
    model: FittedModel,
    found: Conformal,
    table: np.ndarray,
    eta: np.ndarray,
    *,
    level: float,
    adapt: bool,
    origin: Origin,
) -> PredictionIntervals:
    """Intervals of the next observation around linear predictors `eta` (n,)."""
    family = model.family
    spread = family_spread(family, eta)
    scores = found.adapted if adapt else found.plain
    if adapt:
        spread = spread * found.width.of(model, table, eta)
    mean, share = mean_of(family, eta), (1 + level) / 2
    with np.errstate(invalid="ignore"):
        lower = mean + spread * scores.lowest(share)
        upper = mean + spread * scores.highest(share)
    if found.whole:
        lower, upper = np.ceil(lower - TINY), np.floor(upper + TINY)
    if family.positive_only:
        lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
    return PredictionIntervals(
        mean, lower, np.maximum(lower, upper), level, "next", origin
    )


def prediction_sets(
    found: Conformal,
    probability: np.ndarray,
    classes: np.ndarray,
    *,
    level: float,
    origin: Origin,
) -> PredictionSets:
    """Sets of classes for rows with these probabilities (n, 2)."""
    member = 1 - probability <= found.plain.highest(level)
    likely = probability.argmax(axis=1)
    member[np.arange(len(member)), likely] = True
    return PredictionSets(classes, member, probability, level, origin)
