"""Small figures as plain SVG that follow the theme of the page.

Nothing here carries a colour: marks have class names, and the style sheet knows both
themes. Clouds of points are one path per colour, which keeps a figure of 200 points
under four kilobytes. Two sizes exist: a *panel* with axes and text, and a *cell*, a
stretched strip without text that stands in a table beside its number.

Shapes: n points.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from sknimo.report._text import cut_text, show_number

WIDTH, HEIGHT = 320, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 26, 38
# Wider left margin where levels are named there.
NAMES_LEFT, LONG_NAMES_LEFT = 92, 128
# A cell is drawn in these units and stretched to its column.
CELL_WIDTH, CELL_HEIGHT = 100, 20


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map that puts the data from `low` to `high` between two places."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: Any) -> Any:
        """Where a number, or an array of them, lies on the page."""
        span = self.high - self.low
        # Halving before subtracting keeps a range of 1e308 finite.
        way = 0.5 + 0 * value if span == 0 else (value / 2 - self.low / 2) / (span / 2)
        return self.start + way * (self.stop - self.start)


def round_ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers.

    Examples
    --------
    >>> round_ticks(0.3, 9.7)
    [2.0, 4.0, 6.0, 8.0]
    """
    span = high - low
    if not math.isfinite(span):
        return []
    if span <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(
        size * power for size in (1, 2, 5, 10) if span / (size * power) <= wanted + 1
    )
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(place * step, digits) + 0.0 for place in range(first, last + 1)]


def spread(
    values: Sequence[float] | np.ndarray, share: float = 0.06
) -> tuple[float, float]:
    """Smallest and largest value with a margin; a single value gets some room."""
    known = np.asarray(values, dtype=float)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    margin = share * (high - low) or 0.5 * abs(low) or 1.0
    return low - margin, high + margin


def figure(body: str, title: str, description: str) -> str:
    """Wrap marks into an accessible SVG."""
    label = escape(f"{title}. {description}", quote=True)
    return (
        f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}">{body}</svg>'
    )


def points_path(x: np.ndarray, y: np.ndarray, css: str) -> str:
    """A cloud of dots as one path of empty strokes with round caps."""
    if len(x) == 0:
        return ""
    dots = "".join(f"M{_at(a)} {_at(b)}h0" for a, b in zip(x, y, strict=True))
    return f'<path class="dots {css}" d="{dots}"/>'


def line_path(x: np.ndarray, y: np.ndarray, css: str) -> str:
    """A polyline."""
    joined = "L".join(f"{_at(a)} {_at(b)}" for a, b in zip(x, y, strict=True))
    return f'<path class="{css}" d="M{joined}"/>'


def text(x: float, y: float, words: str, css: str, room: float = WIDTH) -> str:
    """A label of a panel, which the page squeezes where a font needs more room."""
    edge = {"middle": 2 * min(x, WIDTH - x), "end": x}.get(css.split()[-1], WIDTH - x)
    place = f'x="{_at(x)}" y="{_at(y)}" data-room="{_at(min(room, edge))}"'
    return f'<text {place} class="{css}">{escape(words)}</text>'


def rule(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    ends = f'x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}"'
    return f'<line class="{css}" {ends}/>'


def panel_scales(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray
) -> tuple[Scale, Scale]:
    """Scales of a panel that show all given values."""
    across = Scale(*spread(x), LEFT, WIDTH - RIGHT)
    return across, Scale(*spread(y), HEIGHT - BOTTOM, TOP)


def axes(across: Scale, up: Scale, x_label: str, y_label: str) -> str:
    """Grid lines, numbers and the names of both axes."""
    parts = []
    for value in round_ticks(up.low, up.high):
        y = up(value)
        parts.append(rule(across.start, y, across.stop, y, "grid"))
        parts.append(text(across.start - 6, y + 4, show_number(value, 3), "tick end"))
    floor, numbers = up.start, round_ticks(across.low, across.high)
    room = (across.stop - across.start) / max(len(numbers), 1)
    for value in numbers:
        x = across(value)
        parts.append(rule(x, floor, x, floor + 4, "axis"))
        parts.append(text(x, floor + 16, show_number(value, 3), "tick middle", room))
    parts.append(rule(across.start, floor, across.stop, floor, "axis"))
    middle = (across.start + across.stop) / 2
    parts.append(text(middle, HEIGHT - 6, cut_text(x_label, 42), "name middle"))
    # Upright names read better than turned ones: above the axis, at the edge.
    parts.append(text(0, 11, cut_text(y_label, 46), "name"))
    return "".join(parts)


def _at(value: float) -> str:
    """A coordinate with one decimal and nothing to spare."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def cell(body: str) -> str:
    """A strip in a table; the number stands beside it, so readers skip the drawing."""
    return (
        f'<svg class="cell" viewBox="0 0 {CELL_WIDTH} {CELL_HEIGHT}" '
        f'preserveAspectRatio="none" aria-hidden="true">{body}</svg>'
    )


def bar(start: float, stop: float, css: str) -> str:
    """A bar of a cell between two places from 0 to 1; never too thin to see."""
    low, high = sorted((CELL_WIDTH * start, CELL_WIDTH * stop))
    width = max(high - low, 0.6)
    low = min(low, CELL_WIDTH - width)
    return (
        f'<rect class="{css}" x="{low:.2f}" y="4" width="{width:.2f}" height="12" '
        'rx="0"/>'
    )


def cell_rule(place: float, css: str) -> str:
    """A vertical line across a cell."""
    x = f"{CELL_WIDTH * place:.2f}"
    return f'<line class="{css}" x1="{x}" y1="0" x2="{x}" y2="{CELL_HEIGHT}"/>'


def cell_reach(low: float, high: float) -> str:
    """A horizontal line between two places of a cell."""
    x1, x2 = f"{CELL_WIDTH * low:.2f}", f"{CELL_WIDTH * high:.2f}"
    y = CELL_HEIGHT / 2
    return f'<line class="reach" x1="{x1}" y1="{y:g}" x2="{x2}" y2="{y:g}"/>'


def cell_mark(place: float, css: str) -> str:
    """A mark that keeps its shape however far the cell is stretched."""
    x, y = CELL_WIDTH * place, CELL_HEIGHT / 2
    return f'<path class="{css}" d="M{x:.2f} {y:g}h0"/>'
