"""The figures of a report, drawn from its numbers.

Shapes: n rows, m grid values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sknimo.families import Family
from sknimo.model import FittedModel
from sknimo.report import _svg as svg
from sknimo.report._effects import (
    FEW_VALUES,
    Line,
    Pair,
    feature_grid,
    local_coefficients,
    show_value,
    spread_rows,
)
from sknimo.report._inputs import Sample
from sknimo.report._quality import Quality
from sknimo.report._text import clean_text, cut_text, show_number

MAX_POINTS = 240
MAX_LEVELS = 8
SHADES = ("low", "middle", "high")


def fit_figure(quality: Quality, target: str, family: Family) -> str:
    """Predictions beside observations: all rows, or averages of groups."""
    if family.least_squares:
        rows = spread_rows(quality.n_rows, MAX_POINTS)
        x, y = quality.predicted[rows], quality.observed[rows]
    else:
        x, y = quality.mean_predicted, quality.mean_observed
    ends = svg.spread(np.concatenate([x, y]))
    across, up = svg.panel_scales(ends, ends)
    body = svg.axes(across, up, f"predicted {target}", "observed")
    body += svg.line_path(
        [across(across.low), across(across.high)],
        [up(across.low), up(across.high)],
        "guide",
    )
    marks = "point" if family.least_squares else "group"
    body += svg.points_path(
        np.array([across(value) for value in x]),
        np.array([up(value) for value in y]),
        marks,
    )
    told = (
        f"{len(x)} rows" if family.least_squares else f"{len(x)} groups of rows"
    ) + "; on the diagonal a prediction is exactly right"
    return svg.figure(body, f"Predicted against observed {target}", told)


def range_cell(line: Line, low: float, high: float) -> str:
    """Local effects of a line as a range, with average and coefficient marked."""
    scale = svg.Scale(low, high, 0.0, 1.0)
    ends = [scale(end * line.scale) for end in line.local_effect]
    zero = svg.cell_rule(scale(0.0), "zero") if low <= 0 <= high else ""
    return svg.cell(
        zero
        + svg.cell_range(ends[0], ends[1], "reach")
        + svg.cell_mark(scale(line.average_effect * line.scale), "mark-average")
        + svg.cell_mark(scale(line.coef * line.scale), "mark-coef")
    )


def range_limits(lines: tuple[Line, ...]) -> tuple[float, float]:
    """Limits that show every line and zero."""
    ends = [0.0]
    for line in lines:
        values = (*line.local_effect, line.average_effect, line.coef)
        ends += [value * line.scale for value in values if np.isfinite(value)]
    low, high = svg.spread(ends, 0.04)
    return low, high


def share_cell(share: float, css: str = "bar") -> str:
    """A bar from the left of a cell."""
    return svg.cell(svg.bar(0.0, share, css))


def step_cell(start: float, stop: float, low: float, high: float) -> str:
    """One step of a waterfall."""
    scale = svg.Scale(low, high, 0.0, 1.0)
    css = "bar plus" if stop >= start else "bar minus"
    return svg.cell(
        svg.cell_rule(scale(start), "edge") + svg.bar(scale(start), scale(stop), css)
    )


def total_cell(value: float, low: float, high: float) -> str:
    """Where a waterfall begins or ends."""
    scale = svg.Scale(low, high, 0.0, 1.0)
    return svg.cell(svg.cell_mark(scale(value), "mark-total"))


@dataclass(frozen=True, slots=True, eq=False)
class Shade:
    """How rows are told apart by the feature that bends an effect.

    Attributes
    ----------
    feature : int
    place : ndarray of shape (n,)
        Index into `SHADES` of every row, -1 for none.
    legend : str
        What the shades stand for, from the first to the last.
    """

    feature: int
    place: np.ndarray
    legend: str


def shade_rows(model: FittedModel, k: int, column: np.ndarray) -> Shade:
    """Shade rows by thirds of a number, or by the most frequent levels."""
    known = ~np.isnan(column)
    values, index = np.unique(column[known], return_inverse=True)
    place = np.full(len(column), -1)
    if model.features.levels(k) is not None or len(values) <= 3:
        counts = np.bincount(index, minlength=len(values))
        kept = np.sort(np.argsort(-counts, kind="stable")[: len(SHADES)])
        shades = (1,) if len(kept) == 1 else (0, 2) if len(kept) == 2 else (0, 1, 2)
        for at, shade in zip(kept, shades, strict=True):
            place[column == values[at]] = shade
        names = [show_value(model, k, float(values[at])) for at in kept]
        return Shade(k, place, ", ".join(cut_text(name, 16) for name in names))
    ranked = np.sort(column[known])
    below = np.searchsorted(ranked, column[known])
    upto = np.searchsorted(ranked, column[known], side="right")
    rank = (below + upto) / 2 / len(ranked)
    place[known] = np.minimum((len(SHADES) * rank).astype(int), len(SHADES) - 1)
    return Shade(k, place, "low, middle, high third")


def effect_figure(
    model: FittedModel,
    rows: Sample,
    values: np.ndarray,
    feature: int,
    shade: Shade | None,
) -> str:
    """Contributions of a feature (n,) over rows, shaded by what bends it most."""
    place = None if shade is None else shade.place
    column = rows.table[:, feature]
    known = np.unique(column[~np.isnan(column)])
    if model.features.levels(feature) is None and len(known) > FEW_VALUES:
        return _effect_by_value(model, rows, feature, values, place)
    return _effect_by_level(model, rows, feature, values, place)


def _cloud(x: np.ndarray, y: np.ndarray, shade: np.ndarray | None) -> str:
    """Dots, one path per shade."""
    if shade is None:
        return svg.points_path(x, y, "point")
    parts = [svg.points_path(x[shade < 0], y[shade < 0], "point")]
    for place, name in enumerate(SHADES):
        mine = shade == place
        parts.append(svg.points_path(x[mine], y[mine], name))
    return "".join(parts)


def _effect_by_value(
    model: FittedModel,
    rows: Sample,
    feature: int,
    values: np.ndarray,
    shade: np.ndarray | None,
) -> str:
    """Panel of a numeric feature."""
    features = model.features
    column = rows.table[:, feature]
    known = ~np.isnan(column)
    grid = feature_grid(model, feature, column)
    line = _alone(model, feature, grid)
    across, up = svg.panel_scales(
        np.append(column[known], grid), np.concatenate([values[known], line, [0.0]])
    )
    name = features.names[feature]
    body = svg.axes(across, up, name, "contribution")
    reference = across(float(features.reference[feature]))
    body += svg.rule(reference, up.start, reference, up.stop, "reference")
    body += _cloud(
        np.array([across(value) for value in column[known]]),
        np.array([up(value) for value in values[known]]),
        None if shade is None else shade[known],
    )
    body += svg.line_path([across(v) for v in grid], [up(v) for v in line], "alone")
    told = (
        f"contributions of {int(known.sum())} rows from "
        f"{show_number(float(values.min(initial=0.0)))} to "
        f"{show_number(float(values.max(initial=0.0)))}; the line is the effect with "
        "everything else at the reference"
    )
    return svg.figure(body, f"Contribution of {name}", told)


def _alone(model: FittedModel, feature: int, grid: np.ndarray) -> np.ndarray:
    """Contribution along a grid with everything else at the reference, (m,)."""
    rows = np.tile(model.features.reference, (len(grid), 1))
    rows[:, feature] = grid
    return model.eta(rows) - model.base_value


def _effect_by_level(
    model: FittedModel,
    rows: Sample,
    feature: int,
    values: np.ndarray,
    shade: np.ndarray | None,
) -> str:
    """Panel of a feature with few values: one strip of dots for each."""
    column = rows.table[:, feature]
    levels = model.features.levels(feature)
    if levels is None:
        codes = np.unique(column[~np.isnan(column)])
    else:
        codes = np.arange(len(levels), dtype=float)
    counts = np.array([(column == code).sum() for code in codes])
    if len(codes) > MAX_LEVELS:
        kept = np.argsort(-counts, kind="stable")[:MAX_LEVELS]
        codes = np.sort(codes[kept])
    line = _alone(model, feature, codes)
    left = svg.NAMES_LEFT
    across = svg.Scale(
        *svg.spread(np.concatenate([values, line, [0.0]])),
        left,
        svg.WIDTH - svg.RIGHT,
    )
    top, bottom = svg.TOP, svg.HEIGHT - svg.BOTTOM
    step = (bottom - top) / len(codes)
    name = model.features.names[feature]
    flat = svg.Scale(0.0, 1.0, bottom, top)
    body = svg.axes(across, _no_ticks(flat), "contribution", "")
    body += svg.rule(across(0.0), bottom, across(0.0), top, "reference")
    for place, code in enumerate(codes):
        middle = top + (place + 0.5) * step
        label = cut_text(show_value(model, feature, float(code)), 13)
        body += svg.text(left - 8, middle + 4, label, "tick end")
        mine = column == code
        jitter = (np.arange(mine.sum()) * 0.618 % 1 - 0.5) * 0.55 * step
        body += _cloud(
            np.array([across(value) for value in values[mine]]),
            middle + jitter,
            None if shade is None else shade[mine],
        )
        at = across(float(line[place]))
        body += svg.rule(at, middle - 0.4 * step, at, middle + 0.4 * step, "alone")
    told = (
        f"contributions of {len(codes)} levels; the upright marks are the effects with "
        "everything else at the reference"
    )
    return svg.figure(body, f"Contribution of {name}", told)


def _no_ticks(scale: svg.Scale) -> svg.Scale:
    """The same place on the page, without a range to number."""
    return svg.Scale(np.nan, np.nan, scale.start, scale.stop)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure and the key to its lines, empty where there is only one."""

    figure: str
    key: str


def curve_figure(
    model: FittedModel, sample: Sample, swap: np.ndarray, pair: Pair
) -> Drawn:
    """Coefficient of one feature along another, all else at the reference."""
    features = model.features
    grid = feature_grid(model, pair.modifier, sample.table[:, pair.modifier])
    rows = np.tile(features.reference, (len(grid), 1))
    rows[:, pair.modifier] = grid
    own = np.flatnonzero(features.coef_feature == pair.bent)
    # Beyond a few levels lines cannot be told apart: the ones that move most.
    curves = local_coefficients(model, rows, swap)[:, own]
    most = np.argsort(-np.ptp(curves, axis=0), kind="stable")[:3]
    curves, own = curves[:, most], own[most]
    at_reference = features.coefficients(model.term_coef)[own]
    name, other = features.names[pair.bent], features.names[pair.modifier]
    levels = features.levels(pair.modifier)
    heights = np.concatenate([curves.ravel(), at_reference, [0.0]])
    across, up = svg.panel_scales(grid, heights)
    if levels:  # each has a slot of the axis to itself
        across = svg.Scale(grid[0] - 0.5, grid[-1] + 0.5, across.start, across.stop)
    body = svg.axes(
        _no_ticks(across) if levels else across, up, other, f"coefficient of {name}"
    )
    if up.low <= 0 <= up.high:
        body += svg.rule(across.start, up(0.0), across.stop, up(0.0), "zero")
    reference = float(features.reference[pair.modifier])
    x = across(reference)
    body += svg.rule(x, up.start, x, up.stop, "reference")
    if levels:
        body += _level_marks(model, pair.modifier, grid, curves, across, up)
    else:
        for place, curve in enumerate(curves.T):
            css = f"curve curve-{place}"
            body += svg.line_path(
                [across(v) for v in grid], [up(v) for v in curve], css
            )
    body += svg.points_path(
        np.full(len(own), x), np.array([up(v) for v in at_reference]), "anchor"
    )
    names = [clean_text(features.coef_names[c]) for c in own]
    told = "; ".join(
        f"the coefficient of {label} goes from {show_number(float(curve[0]))} to "
        f"{show_number(float(curve[-1]))}"
        for label, curve in zip(names, curves.T, strict=True)
    )
    figure = svg.figure(body, f"Coefficient of {name} along {other}", told)
    labels = [label for basis in features.bases for label in basis.labels]
    return Drawn(figure, _key([labels[c] for c in own], levels is None))


def _key(labels: list[str], lines: bool) -> str:
    """What tells several lines or dots apart, in words."""
    if len(labels) < 2:
        return labels[0] if labels else ""
    styles = ("full", "dashed", "dotted") if lines else ("blue", "orange", "grey")
    named = [clean_text(label) or "per unit" for label in labels]
    pairs = zip(styles, named, strict=False)
    return ", ".join(f"{style}: {label}" for style, label in pairs)


def _level_marks(
    model: FittedModel,
    feature: int,
    grid: np.ndarray,
    curves: np.ndarray,
    across: svg.Scale,
    up: svg.Scale,
) -> str:
    """Coefficients at each level of a categorical modifier, joined by nothing."""
    body = ""
    for place, curve in enumerate(curves.T):
        body += svg.points_path(
            np.array([across(v) for v in grid]),
            np.array([up(v) for v in curve]),
            f"level curve-{place}",
        )
    if len(grid) <= MAX_LEVELS:
        room = across(grid[0] + 1) - across(grid[0]) - 4
        for code in grid:
            label = cut_text(show_value(model, feature, float(code)), 44 // len(grid))
            body += svg.text(across(code), up.start + 16, label, "tick middle", room)
    return body
