"""Additive models as a card of points to be added up by hand.

A point is worth `unit` on the scale of the linear predictor. Numbers are cut where
their points change; points of a feature begin at zero, so that none is subtracted.
"""

import csv
import io
import math
from dataclasses import dataclass

import numpy as np
import torch

from sknimo.families import Family
from sknimo.features import MISSING_LABEL, FeatureMap, OrMissing
from sknimo.model import FittedModel
from sknimo.network import unpack


def bent_features(model: FittedModel) -> list[str]:
    """Names of the features whose coefficients a network really bends."""
    weights = unpack(model.spec, model.params)
    reads = (weights.first.abs().amax(1) > 0).any(-1)  # (M,)
    speaks = (weights.out.abs().flatten(1).amax(1) > 0) & reads
    owner = model.features.term_feature
    bent = []
    for j, name in enumerate(model.features.names):
        own = (model.coef[:, owner == j] != 0).any(-1)
        if bool((own & speaks & model.modulated[:, j]).any()):
            bent.append(name)
    return bent


def refuse_bends(model: FittedModel, what: str, remedy: str) -> None:
    """Refuse a model that is not a sum of its features."""
    bent = bent_features(model)
    if bent:
        more = f" and {len(bent) - 3} more" if len(bent) > 3 else ""
        raise ValueError(
            f"{what} adds up features, but a network bends the coefficients of "
            f"{', '.join(map(repr, bent[:3]))}{more}. {remedy}"
        )


# Values of a number at which its points are looked at.
GRID = 2001
# Steps in which points are counted when one by one would make too many ranges.
STEPS = [step * 10**power for power in range(5) for step in (1, 2, 3, 4, 5, 6, 8)]
# Share of a column's range by which the end of a range may move to be a short number.
READABLE = 0.01
# Points that the widest feature of an identity link spans.
SPAN = 100


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Points of one level, or of one range of a number."""

    feature: str
    value: str  # in words
    low: float | None  # from here on, None without an end
    high: float | None  # below this
    points: int


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Points to add up.

    Attributes
    ----------
    rows : tuple of ScoreRow
    base : float
        Linear predictor of nobody's points: `eta = base + unit * points`.
    unit : float
        What a point adds to the linear predictor.
    error : float
        The most that rounding and ranges can be wrong by, on the same scale and within
        the training ranges.
    family : Family

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(setting=4, n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> bool(est.scorecard().unit > 0)
    True
    """

    rows: tuple[ScoreRow, ...]
    base: float
    unit: float
    error: float
    family: Family

    def predict(self, points: np.ndarray) -> np.ndarray:
        """Mean response for sums of points, (n,)."""
        eta = self.base + self.unit * np.asarray(points, dtype=float)
        return self.family.mean(torch.as_tensor(eta)).numpy()

    @property
    def most(self) -> int:
        """The largest sum of points."""
        most: dict[str, int] = {}
        for row in self.rows:
            most[row.feature] = max(most.get(row.feature, 0), row.points)
        return sum(most.values())

    def to_csv(self) -> str:
        """One line per level or range, for other programs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["feature", "value", "from", "below", "points"])
        for row in self.rows:
            ends = ["" if end is None else _show(end) for end in (row.low, row.high)]
            writer.writerow([row.feature, row.value, *ends, row.points])
        return text.getvalue()

    def to_markdown(self) -> str:
        """The card for people, with what sums of points mean."""
        mean = "probability" if self.family.is_binary else "prediction"
        mean = "hazard ratio" if self.family.is_hazard else mean
        lines = ["# Scorecard", "", "| feature | value | points |", "|---|---|---:|"]
        last = ""
        for row in self.rows:
            name = "" if row.feature == last else row.feature
            lines.append(f"| {_plain(name)} | {_plain(row.value)} | {row.points} |")
            last = row.feature
        sums = np.unique(np.linspace(0, self.most, 11).round().astype(int))
        lines += ["", f"| sum of points | {mean} |", "|---:|---:|"]
        for total, value in zip(sums, self.predict(sums), strict=True):
            lines.append(f"| {total} | {value:.3g} |")
        lines += [
            "",
            f"eta = {self.base:.6g} + {self.unit:.6g} x points. Points are rounded, "
            f"and numbers go by steps: within the training ranges eta is at most "
            f"{self.error:.2g} off.",
            "",
        ]
        return "\n".join(lines)


def build_scorecard(
    model: FittedModel, *, double: float = 20.0, max_ranges: int = 10
) -> Scorecard:
    """Points for every level and range.

    `double` points double odds or rates; on an identity link the widest feature has 100
    points. A number has at most `max_ranges` ranges.
    """
    refuse_bends(
        model,
        "A scorecard",
        "Export it to ONNX, or fit an additive model (max_iter=0).",
    )
    if not model.features.low:
        raise ValueError(
            "The model does not know the ranges of its columns; fit again."
        )
    shapes = [_shape(model, j) for j in range(model.features.n_features)]
    if model.family.link == "identity":
        unit = max(float(np.ptp(values)) for *_, values in shapes) / SPAN or 1.0
    else:
        unit = math.log(2) / double
    rows: list[ScoreRow] = []
    base, error = model.base_value, 0.0
    for name, (labels, grid, values) in zip(model.features.names, shapes, strict=True):
        if not values.any():
            continue
        least = float(values.min())
        exact = (values - least) / unit
        if labels is None:
            own, wrong = _cut(name, grid, exact, max_ranges)
        else:
            own, wrong = _list(name, labels, exact)
        rows += own
        base += least
        error += wrong * unit
    return Scorecard(tuple(rows), base, unit, error, model.family)


def _shape(
    model: FittedModel, j: int
) -> tuple[list[str] | None, np.ndarray, np.ndarray]:
    """Labels of a feature if it has any, its values, and what these contribute.

    A missing value comes last and has no label.
    """
    features = model.features
    labels = features.levels(j)
    if labels is not None:
        grid = np.arange(len(labels), dtype=float)
    elif labels := _two_values(features, j):
        grid = np.array(labels, dtype=float)
    else:
        grid = np.linspace(features.low[j], features.high[j], GRID)
    if isinstance(features.bases[j], OrMissing):
        grid = np.append(grid, np.nan)
    own = model.term_coef[features.term_feature == j]
    values = np.asarray(features.bases[j].terms(grid) @ own)
    return None if labels is None else list(map(str, labels)), grid, values


def _two_values(features: FeatureMap, j: int) -> tuple[int, int] | None:
    """The two whole numbers of a column of flags or codes, such as 0 and 1.

    It has one of them as its reference, and nothing lies between; amounts have theirs
    inside of their range.
    """
    low, high = features.low[j], features.high[j]
    basis = features.bases[j]
    inner = basis.basis if isinstance(basis, OrMissing) else basis
    at_end = features.reference[j] in (low, high)
    if inner.n_terms != 1 or not at_end or low % 1 or high - low != 1:
        return None
    return int(low), int(high)


def _list(
    name: str, labels: list[str], exact: np.ndarray
) -> tuple[list[ScoreRow], float]:
    """One row per level; how far rounding is off at most."""
    if len(labels) < len(exact):
        labels = [*labels, MISSING_LABEL]
    points = np.round(exact).astype(int)
    rows = [
        ScoreRow(name, label, None, None, int(each))
        for label, each in zip(labels, points, strict=True)
    ]
    return rows, float(np.abs(points - exact).max())


def _cut(
    name: str, grid: np.ndarray, exact: np.ndarray, most: int
) -> tuple[list[ScoreRow], float]:
    """Ranges of a number on which its points do not change."""
    known = ~np.isnan(grid)
    x, points = grid[known], exact[known]
    for step in STEPS:
        rounded = np.round(points / step).astype(int) * step
        ends = np.flatnonzero(np.diff(rounded)) + 1
        if len(ends) < most:
            break
    near = READABLE * float(np.ptp(x))
    edges = sorted({_round_between(x[end] - near, x[end] + near) for end in ends})
    place = np.searchsorted(np.array(edges), x, side="right")
    last = np.searchsorted(place, np.arange(len(edges) + 1), side="right") - 1
    first = np.searchsorted(place, np.arange(len(edges) + 1))
    each = rounded[(first + last) // 2]
    rows = []
    for k, value in enumerate(each):
        low = edges[k - 1] if k else None
        high = edges[k] if k < len(edges) else None
        rows.append(ScoreRow(name, _describe(low, high), low, high, int(value)))
    wrong = float(np.abs(each[place] - points).max())
    if not known.all():
        more, off = _list(name, [], exact[~known])
        rows, wrong = rows + more, max(wrong, off)
    return rows, wrong


def _round_between(low: float, high: float) -> float:
    """The shortest number between two."""
    middle = (low + high) / 2
    for digits in range(1, 17):
        found = float(f"{middle:.{digits}g}")
        if low <= found <= high:
            return found
    return middle


def _show(end: float) -> str:
    """The end of a range with all digits: it is short where the range allows it."""
    return f"{end:.15g}"


def _describe(low: float | None, high: float | None) -> str:
    if low is None:
        return "any" if high is None else f"below {_show(high)}"
    start = _show(low)
    return f"{start} or more" if high is None else f"{start} to below {_show(high)}"


def _plain(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
