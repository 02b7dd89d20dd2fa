"""The figures of a report, drawn from its numbers.

Shapes: n rows, m grid values, k times.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from sknimo.explain import CorrectionCurve, EffectCurve, Explanation, spread_rows
from sknimo.features import Label
from sknimo.report import _svg as svg
from sknimo.report._inputs import ModelCard
from sknimo.report._lines import Line
from sknimo.report._quality import Quality
from sknimo.report._story import MAX_POINTS
from sknimo.report._text import (
    clean_text,
    cut_text,
    show_count,
    show_number,
    show_percent,
    show_value,
)
from sknimo.survival import Baseline, FollowUp, kaplan_meier

# A number with so few values is shown by value.
FEW_VALUES = 4
MAX_LEVELS = 8
MAX_STRIPS = 12
# Letters of a level for which there is room beside a strip, and more of them.
SHORT, LONG = 13, 20
# Lines of one figure that can be told apart.
MAX_LINES = 3
SHADES = ("low", "middle", "high")
# Of survival curves: thirds of the rows, dots of one curve that can be told apart,
# points of a predicted one.
GROUPS = ("lowest", "middle", "highest")
MAX_DOTS = 12
N_TIMES = 60


def fit_figure(quality: Quality, target: str, by_row: bool) -> str:
    """Predictions beside observations: all rows, or averages of groups."""
    if by_row:
        rows = spread_rows(len(quality.sample), MAX_POINTS)
        x, y = quality.predicted[rows], quality.sample.y[rows]
        css, what = "point", "rows"
    else:
        x, y = quality.mean_predicted, quality.mean_observed
        css, what = "group", "groups of rows"
    ends = svg.spread(np.concatenate([x, y]))
    across, up = svg.panel_scales(ends, ends)
    body = svg.axes(across, up, f"predicted {target}", "observed")
    diagonal = np.array([across.low, across.high])
    body += svg.line_path(across(diagonal), up(diagonal), "guide")
    body += svg.points_path(across(x), up(y), css)
    told = f"{len(x)} {what}; on the diagonal a prediction is exactly right"
    return svg.figure(body, f"Predicted against observed {target}", told)


def range_cell(line: Line, scale: svg.Scale) -> str:
    """Effects of a line over rows as a range, with average and coefficient marked.

    What is too rare to quote may lie anywhere: it is not drawn.
    """
    if line.row.is_rare:
        return ""
    low, high, average, coef = _in_units(line)
    body = svg.cell_rule(scale(0.0), "zero")
    if np.isfinite([low, high]).all():
        body += svg.cell_reach(scale(low), scale(high))
    for css, value in (("mark-average", average), ("mark-coef", coef)):
        if np.isfinite(value):
            body += svg.cell_mark(scale(value), css)
    return svg.cell(body)


def range_scale(lines: Iterable[Line]) -> svg.Scale:
    """Scale of a cell that shows every line that is not rare, and zero."""
    shown = [_in_units(line) for line in lines if not line.row.is_rare]
    return svg.Scale(*svg.spread([0.0, *chain(*shown)], 0.04), 0.0, 1.0)


def _in_units(line: Line) -> tuple[float, ...]:
    """Both ends of a range over rows, average and coefficient, to be compared."""
    over_rows = (value * line.per_unit for value in (*line.eta_ends, line.eta))
    return *over_rows, line.row.coef * line.unit


def bar_cell(length: float) -> str:
    """A bar from the left of a cell, of a length from 0 to 1."""
    return svg.cell(svg.bar(0.0, length, "bar"))


def step_cell(start: float, stop: float, scale: svg.Scale) -> str:
    """One step of a waterfall."""
    css = "bar plus" if stop >= start else "bar minus"
    edge = svg.cell_rule(scale(start), "edge")
    return svg.cell(edge + svg.bar(scale(start), scale(stop), css))


def total_cell(value: float, scale: svg.Scale) -> str:
    """Where a waterfall begins or ends."""
    return svg.cell(svg.cell_mark(scale(value), "mark-total"))


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure of one feature, beside another that shades or bends it.

    The caption says what its shades, or its lines, stand for; `left` what is not drawn.
    """

    name: str
    other: str
    figure: str
    caption: str
    left: str = ""


def _shade_rows(
    column: np.ndarray, levels: Sequence[Label] | None
) -> tuple[np.ndarray, str]:
    """Shade rows by thirds of a number, or by the most frequent levels.

    Index into `SHADES` of every row, -1 for none (n,), and what the shades stand for.
    """
    known = ~np.isnan(column)
    values, index = np.unique(column[known], return_inverse=True)
    which = np.full(len(column), -1)
    if levels is not None or len(values) <= len(SHADES):
        counts = np.bincount(index, minlength=len(values))
        kept = np.sort(np.argsort(-counts, kind="stable")[: len(SHADES)])
        shades = (1,) if len(kept) == 1 else (0, 2) if len(kept) == 2 else (0, 1, 2)
        for at, shade in zip(kept, shades, strict=False):
            which[column == values[at]] = shade
        names = [show_value(float(values[at]), levels) for at in kept]
        return which, ", ".join(cut_text(name, 16) for name in names)
    ranked = np.sort(column[known])
    below = np.searchsorted(ranked, column[known])
    upto = np.searchsorted(ranked, column[known], side="right")
    rank = (below + upto) / 2 / len(ranked)
    which[known] = np.minimum((len(SHADES) * rank).astype(int), len(SHADES) - 1)
    return which, "low, middle, high third"


def effect_panel(
    curve: EffectCurve, rows: Explanation, feature: int, modifier: int | None
) -> Panel:
    """Contributions of a feature over rows, shaded by what bends it most."""
    column, values = rows.data[:, feature], rows.values[:, feature]
    which, other, caption = np.full(len(column), -1), "", ""
    if modifier is not None:
        other, levels = rows.names[modifier], rows.levels[modifier]
        which, caption = _shade_rows(rows.data[:, modifier], levels)
    many = curve.levels is None and len(curve.value) > FEW_VALUES
    draw = _effect_by_value if many else _effect_by_level
    figure = draw(curve, column, values, which)
    more = 0 if many else len(curve.value) - MAX_STRIPS
    left = f"Not drawn: {show_count(more, 'value')} of fewer rows." if more > 0 else ""
    return Panel(curve.feature, other, figure, caption, left)


def _cloud(x: np.ndarray, y: np.ndarray, which: np.ndarray) -> str:
    """Dots, one path per shade; those of none first."""
    every = [(which == k - 1, css) for k, css in enumerate(("point", *SHADES))]
    return "".join(svg.points_path(x[mine], y[mine], css) for mine, css in every)


def _effect_by_value(
    curve: EffectCurve, column: np.ndarray, values: np.ndarray, which: np.ndarray
) -> str:
    """Panel of a numeric feature."""
    known = ~np.isnan(column)
    across, up = svg.panel_scales(
        np.append(column[known], curve.value),
        np.concatenate([values[known], curve.effect, [0.0]]),
    )
    body = svg.axes(across, up, curve.feature, "contribution")
    reference = across(curve.reference)
    body += svg.rule(reference, up.start, reference, up.stop, "reference")
    body += _cloud(across(column[known]), up(values[known]), which[known])
    body += svg.line_path(across(curve.value), up(curve.effect), "alone")
    told = (
        f"contributions of {int(known.sum())} rows from "
        f"{show_number(float(values.min(initial=0.0)))} to "
        f"{show_number(float(values.max(initial=0.0)))}; the line is the effect with "
        "everything else at the reference"
    )
    return svg.figure(body, f"Contribution of {curve.feature}", told)


def _effect_by_level(
    curve: EffectCurve, column: np.ndarray, values: np.ndarray, which: np.ndarray
) -> str:
    """Panel of a feature with few values: one strip of dots for each."""
    counts = np.array([(column == value).sum() for value in curve.value])
    kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_STRIPS])
    names = [show_value(float(value), curve.levels) for value in curve.value[kept]]
    wide = max(map(len, names)) > SHORT
    left = svg.LONG_NAMES_LEFT if wide else svg.NAMES_LEFT
    top, bottom = svg.TOP, svg.HEIGHT - svg.BOTTOM
    ends = svg.spread(np.concatenate([values, curve.effect[kept], [0.0]]))
    across = svg.Scale(*ends, left, svg.WIDTH - svg.RIGHT)
    step = (bottom - top) / len(kept)
    body = svg.axes(across, _no_ticks(bottom, top), "contribution", "")
    body += svg.rule(across(0.0), bottom, across(0.0), top, "reference")
    for at, (value, effect) in enumerate(
        zip(curve.value[kept], curve.effect[kept], strict=True)
    ):
        middle = top + (at + 0.5) * step
        name = cut_text(names[at], LONG if wide else SHORT)
        body += svg.text(left - 8, middle + 4, name, "tick end")
        mine = column == value
        jitter = (np.arange(mine.sum()) * 0.618 % 1 - 0.5) * 0.55 * step
        body += _cloud(across(values[mine]), middle + jitter, which[mine])
        x = across(float(effect))
        body += svg.rule(x, middle - 0.4 * step, x, middle + 0.4 * step, "alone")
    told = (
        f"contributions of {len(kept)} levels; the upright marks are the effects with "
        "everything else at the reference"
    )
    return svg.figure(body, f"Contribution of {curve.feature}", told)


def _no_ticks(start: float, stop: float) -> svg.Scale:
    """A part of the page without a range to number."""
    return svg.Scale(np.nan, np.nan, start, stop)


def curve_panel(curve: CorrectionCurve, coef: np.ndarray, step: float = 1.0) -> Panel:
    """Coefficients of one feature along another, all else at the reference.

    `coef` (c,) are per unit; the figure shows them for a `step`, as the table does.
    """
    # Beyond a few levels lines cannot be told apart: the ones that move most. Of a
    # number its own; that of a missing value has another unit.
    span = np.ptp(curve.all_coef, axis=0)
    most = np.argsort(-span, kind="stable")[:MAX_LINES]
    slope = curve.feature_levels is None
    if slope:
        most = np.array([0])
    along, coef = step * curve.all_coef[:, most], step * coef[most]
    labels = [clean_text(curve.coef_labels[at]) for at in most]
    name, other, levels = curve.feature, curve.modifier, curve.modifier_levels
    heights = np.concatenate([along.ravel(), coef, [0.0]])
    across, up = svg.panel_scales(curve.grid, heights)
    if levels:  # each has a slot of the axis to itself
        last = len(levels) - 0.5
        across = svg.Scale(-0.5, last, across.start, across.stop)
    numbered = _no_ticks(across.start, across.stop) if levels else across
    per = "" if step == 1 else f", per {show_number(step)}"
    body = svg.axes(numbered, up, other, f"coefficient of {name}{per}")
    if up.low <= 0 <= up.high:
        body += svg.rule(across.start, up(0.0), across.stop, up(0.0), "zero")
    x = across(curve.reference)
    body += svg.rule(x, up.start, x, up.stop, "reference")
    xs = across(curve.grid)
    draw, css = (svg.points_path, "level") if levels else (svg.line_path, "curve")
    for at, line in enumerate(along.T):
        body += draw(xs, up(line), f"{css} curve-{at}")
    if levels and len(levels) <= MAX_LEVELS:
        room = across(1.0) - across(0.0) - 4
        for at, level in zip(xs, levels, strict=True):
            text = cut_text(clean_text(level), 44 // len(levels))
            body += svg.text(at, up.start + 16, text, "tick middle", room)
    body += svg.points_path(np.full(len(coef), x), up(coef), "anchor")
    told = "; ".join(
        f"the coefficient of {name if slope else f'{name}[{label}]'} goes from "
        f"{show_number(float(line[0]))} to {show_number(float(line[-1]))}"
        for label, line in zip(labels, along.T, strict=True)
    )
    figure = svg.figure(body, f"Coefficient of {name} along {other}", told)
    more = 0 if slope else len(span) - len(most)
    move = "moves" if more == 1 else "move"
    left = f"Not drawn: {show_count(more, 'level')} that {move} less." if more else ""
    return Panel(name, other, figure, _key(labels, levels is None), left)


def _key(labels: list[str], lines: bool) -> str:
    """What tells several lines or dots apart, in words."""
    if len(labels) < 2:
        return f"level {labels[0]}" if labels and labels[0] else ""
    styles = ("full", "dashed", "dotted") if lines else ("blue", "orange", "grey")
    pairs = zip(styles, labels, strict=False)
    return ", ".join(f"{style}: {label}" for style, label in pairs)


def survival_figure(card: ModelCard, quality: Quality) -> tuple[str, str]:
    """Curves of thirds of the rows by risk, and a caption with the median time."""
    baseline, rows = card.baseline, quality.sample.follow_up
    if baseline is None or rows is None or not rows.event.any():
        return "", ""
    risk = quality.eta - quality.sample.row_offset
    middle = float(np.median(rows.time[rows.ends]))
    times = np.linspace(0.0, float(rows.time[rows.ends].max()), N_TIMES)
    across, up = svg.panel_scales(times, [0.0, 1.0])
    body = svg.axes(across, up, "time", "share without the event")
    body += svg.rule(across(middle), up.start, across(middle), up.stop, "reference")
    told = []
    for k, part in enumerate(np.array_split(np.argsort(risk, kind="stable"), 3)):
        expected = _predicted(baseline, rows, risk, part, np.append(times, middle))
        seen = kaplan_meier(rows.take(part))
        at = seen.times[0][:: len(seen.times[0]) // MAX_DOTS + 1]
        body += svg.line_path(across(times), up(expected[:-1]), f"curve curve-{k}")
        body += svg.points_path(across(at), up(_alive(seen, at)), f"level curve-{k}")
        observed = _alive(seen, np.array([middle]))[0]
        told.append(
            f"{show_percent(float(expected[-1]))} and {show_percent(float(observed))} "
            f"({GROUPS[k]})"
        )
    caption = (
        "Predicted survival (lines) and Kaplan-Meier's (dots) of the third of the rows "
        "with the lowest, middle (dashed) and highest (dotted) predicted risk. At "
        f"{show_number(middle)}, the median time of the events: {', '.join(told)}."
    )
    return svg.figure(body, "Survival by predicted risk", caption), caption


def _predicted(
    baseline: Baseline,
    rows: FollowUp,
    risk: np.ndarray,
    part: np.ndarray,
    times: np.ndarray,
) -> np.ndarray:
    """Mean predicted survival of some rows, (k,)."""
    places = [baseline.labels.index(label) for label in rows.labels]
    stratum = np.array(places)[rows.stratum[part]]
    weight = rows.weight[part]
    hazard = baseline.at(times, stratum) * np.exp(risk[part])[:, None]
    return np.asarray(weight @ np.exp(-hazard) / weight.sum())


def _alive(curve: Baseline, times: np.ndarray) -> np.ndarray:
    """Kaplan-Meier's estimate, (k,)."""
    return np.asarray(np.exp(-curve.at(times, np.zeros(1, dtype=int)))[0])
