"""How good predictions are, and how they move with a feature: records for figures.

Functions of plain arrays that return frozen records; `to_frame` makes tables of them.
Whether the rows have been seen in training is for the caller to say.

Shapes: n rows, t thresholds, b bins, g grid values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

# Two sides of a normal interval that holds 95 in 100.
WIDTH_95 = 1.959963984540054


class _Framed:
    """A record whose columns of one length make a table."""

    __slots__ = ()

    def to_frame(self) -> Any:
        """The columns as a pandas data frame."""
        import pandas as pd

        columns = {}
        for field in fields(self):  # type: ignore[arg-type]
            values = getattr(self, field.name)
            if isinstance(values, np.ndarray) and values.ndim == 1:
                columns[field.name] = values
        return pd.DataFrame(columns)


@dataclass(frozen=True, slots=True, eq=False)
class Roc(_Framed):
    """What each threshold on a probability does.

    Attributes
    ----------
    threshold : ndarray of shape (t,)
        Rows at or above it are called the second class; falling.
    sensitivity : ndarray of shape (t,)
        Share of the second class that is called so.
    specificity : ndarray of shape (t,)
        Share of the first class that is not.
    precision : ndarray of shape (t,)
        Share of those called so that are; NaN where none is.
    called : ndarray of shape (t,)
        Share of all rows that are called so.
    auc : float
        Chance that a row of the second class has the higher probability.

    Examples
    --------
    >>> from sknimo import NIMOClassifier, datasets
    >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
    >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
    >>> est.roc(data.X, data.y).at(0.0).sensitivity
    array([1.])
    """

    threshold: np.ndarray
    sensitivity: np.ndarray
    specificity: np.ndarray
    precision: np.ndarray
    called: np.ndarray
    auc: float

    def at(self, thresholds: Any) -> Roc:
        """The same at chosen thresholds, such as 0.1, 0.2, ..."""
        given = np.atleast_1d(np.asarray(thresholds, dtype=float))
        # Thresholds fall: the last one that is not below the given one.
        place = np.searchsorted(-self.threshold, -given, side="right") - 1
        return Roc(
            given,
            self.sensitivity[place],
            self.specificity[place],
            self.precision[place],
            self.called[place],
            self.auc,
        )


def judge_thresholds(truth: Any, chance: Any, weight: Any = None) -> Roc:
    """Sensitivity and specificity at every threshold.

    `truth` (n,) is one for the second class, `chance` (n,) its probability.
    """
    truth, chance = np.asarray(truth, dtype=float), np.asarray(chance, dtype=float)
    weight = np.ones(len(truth)) if weight is None else np.asarray(weight, dtype=float)
    order = np.argsort(-chance, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(chance[order])), len(order) - 1)
    hit = np.append(0.0, np.cumsum((weight * truth)[order])[ends])
    called = np.append(0.0, np.cumsum(weight[order])[ends])
    positive, total = hit[-1], called[-1]
    if not 0 < positive < total:
        raise ValueError(
            "y holds a single class; thresholds need rows of both. Choose other rows."
        )
    sensitivity = hit / positive
    missed = (called - hit) / (total - positive)
    with np.errstate(invalid="ignore"):
        precision = hit / called
    steps = np.diff(missed) * (sensitivity[1:] + sensitivity[:-1]) / 2
    return Roc(
        np.append(np.inf, chance[order][ends]),
        sensitivity,
        1 - missed,
        precision,
        called / total,
        float(steps.sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Calibration(_Framed):
    """Predictions beside what happened, in bins of equal size.

    Attributes
    ----------
    predicted, observed : ndarray of shape (b,)
        Means over the rows of a bin.
    low, high : ndarray of shape (b,)
        95 % interval of the observed mean; of probabilities it stays within 0 and 1.
    n_rows : ndarray of shape (b,)
    is_probability : bool

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> est.calibration(data.X, data.y, n_bins=4).n_rows.sum()
    np.int64(80)
    """

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n_rows: np.ndarray
    is_probability: bool


def calibrate(
    truth: Any,
    predicted: Any,
    *,
    is_probability: bool,
    n_bins: int = 10,
    by: Any = None,
) -> Calibration:
    """Bins of rows with similar predictions, or `by` (n,); equal ones share a bin."""
    truth, predicted = np.asarray(truth, float), np.asarray(predicted, float)
    ranked = predicted if by is None else np.asarray(by, float)
    inner = np.quantile(ranked, np.linspace(0, 1, n_bins + 1)[1:-1])
    bin_of = np.searchsorted(np.unique(inner), ranked, side="right")
    _, bin_of, count = np.unique(bin_of, return_inverse=True, return_counts=True)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(bin_of, values) / count

    observed = mean(truth)
    if is_probability:  # Wilson's interval, which stays within 0 and 1
        z2 = WIDTH_95**2
        centre = (observed + z2 / (2 * count)) / (1 + z2 / count)
        half = np.sqrt(observed * (1 - observed) / count + z2 / (4 * count**2))
        half *= WIDTH_95 / (1 + z2 / count)
        low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    else:
        # Bins by anything else have unlike predictions: what these tell is no spread.
        rest = truth if by is None else truth - predicted
        spread = np.sqrt(mean((rest - mean(rest)[bin_of]) ** 2))
        half = WIDTH_95 * spread / np.sqrt(np.maximum(count - 1, 1))
        low, high = observed - half, observed + half
    return Calibration(mean(predicted), observed, low, high, count, is_probability)


@dataclass(frozen=True, slots=True, eq=False)
class Residuals(_Framed):
    """Deviance residuals beside predictions.

    Attributes
    ----------
    predicted : ndarray of shape (n,)
    residual : ndarray of shape (n,)
        Signed root of the deviance of each row, over the root of the dispersion: about
        standard normal where the family is right.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> est.residuals(data.X, data.y).predicted.shape
    (80,)
    """

    predicted: np.ndarray
    residual: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Dependence:
    """How predictions move when one feature is set to a value in every row.

    Attributes
    ----------
    feature : str
    grid : ndarray of shape (g,)
        Values, codes for levels.
    levels : tuple of str or None
        What the codes stand for.
    mean : ndarray of shape (g,)
        Mean response over the rows: partial dependence.
    rows : ndarray of shape (n, g)
        Response of each row: individual conditional expectations.
    response : str
        What the response is called.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> est.dependence(data.X, 0, n_grid=5).grid.shape
    (5,)
    """

    feature: str
    grid: np.ndarray
    levels: tuple[str, ...] | None
    mean: np.ndarray
    rows: np.ndarray
    response: str


def depend(
    predict: Callable[[np.ndarray], np.ndarray],
    table: np.ndarray,
    column: int,
    grid: np.ndarray,
) -> np.ndarray:
    """Responses with one column set to each value of a grid, (n, g)."""
    out = np.empty((len(table), len(grid)))
    moved = table.copy()
    for place, value in enumerate(grid):
        moved[:, column] = value
        out[:, place] = predict(moved)
    return out
