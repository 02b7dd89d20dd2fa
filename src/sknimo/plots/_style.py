"""Colours, labels and axes that all figures share.

Colours are those of Okabe and Ito and maps that survive colour blindness (cividis,
shades of blue, purple to orange).
"""

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from sknimo.explain import clean, spread_rows

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "sknimo.plots needs matplotlib: pip install 'sknimo[plot]'."
    ) from error

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
AMBER, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
GREY, DARK = "#8C8C8C", "#333333"
CYCLE = (BLUE, ORANGE, GREEN, AMBER, SKY, PINK)
# Twelve levels, such as months, in colours of their own; markers and dashes help.
LEVEL_COLOURS = (
    *CYCLE,
    "#332288",
    "#882255",
    "#117733",
    "#999933",
    "#661100",
    "#000000",
)
MARKERS = ("o", "s", "^", "D", "v", "P")
SEQUENTIAL, DIVERGING = "cividis", "PuOr_r"
# Zero stays white; the smallest number above it is already tinted.
HEAT = LinearSegmentedColormap.from_list("heat", ["#DCE9F5", BLUE, "#00263D"])
DASHED = (0, (4, 3))
DASHES: dict[str, Any] = {"color": DARK, "lw": 0.9, "ls": DASHED}
DOTS: dict[str, Any] = {"lw": 0, "alpha": 0.8}
GREY_DOTS: dict[str, Any] = {"s": 12, "color": GREY, **DOTS}

# Points beyond this many are thinned evenly: more ink, no more to see.
MAX_POINTS = 2000
MAX_NAME = 30
WORD_MARKS = " _-/.:,;"
LETTER = 0.08  # inches of a label
# More entries than this stand beside the axes, where they cover nothing.
MAX_INSIDE = 5


def make_axes(
    ax: Axes | None, width: float, n_rows: int, row_height: float = 0.3
) -> Axes:
    """The given axes, or new ones high enough for a number of rows."""
    return open_axes(ax, width, float(np.clip(1.2 + row_height * n_rows, 2.2, 14)))


def open_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or new ones of a size in inches."""
    if ax is not None:
        return ax
    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def to_svg(ax: Axes) -> str:
    """The figure of some axes as an element of a page; equal figures are equal text.

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo.plots import plot_beside, to_svg
    >>> to_svg(plot_beside(np.arange(3.0), np.arange(3.0), ("old", "new")))[:4]
    '<svg'
    """
    file = io.StringIO()
    figure: Any = ax.figure
    with plt.rc_context({"svg.hashsalt": "sknimo"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    return text[text.index("<svg") :]


def largest(size: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest sizes above zero, largest first; at least one."""
    order = np.argsort(-size, kind="stable")[: max(count, 1)]
    kept = order[size[order] > 0]
    return kept if len(kept) else order[:1]


def thin(n_rows: int) -> np.ndarray:
    """Rows to draw, evenly spaced."""
    return spread_rows(n_rows, MAX_POINTS)


def plain(text: object) -> str:
    """Text that matplotlib draws as it is, dollar signs included."""
    return clean(text).replace("$", r"\$")


def short(name: object, width: int = MAX_NAME) -> str:
    """Plain text of at most so many letters, its middle left out, by words if possible.

    Names that begin alike often differ at the end.
    """
    text, last = clean(name), (width - 1) // 3
    if len(text) <= width:
        return plain(text)
    head, tail = text[: width - 1 - last], text[-last:]
    end = max(head.rfind(mark) for mark in WORD_MARKS)
    begin = 1 + min(
        (k for k, mark in enumerate(tail) if mark in WORD_MARKS), default=-1
    )
    head = head[:end] if 2 * end >= len(head) else head
    tail = tail[begin:] if 2 * begin <= last else tail
    return plain(f"{head}…{tail}")


def label_room(names: Sequence[str]) -> float:
    """Inches that the longest label takes beside the axes."""
    return LETTER * max((len(short(name)) for name in names), default=0)


def legend_name(name: object) -> str:
    """Plain text that a legend takes neither for a private label nor for none."""
    text = short(name) or '""'
    return f" {text}" if text.startswith("_") else text


def colour_of(index: int) -> str:
    """Colour of a level or series, grey beyond those that can be told apart."""
    return LEVEL_COLOURS[index] if index < len(LEVEL_COLOURS) else GREY


def series_of(index: int) -> dict[str, Any]:
    """Colour and marker of one of a few series."""
    marker = MARKERS[index % len(MARKERS)]
    return {"color": CYCLE[index % len(CYCLE)], "marker": marker}


def marker_of(index: int) -> str:
    """Marker that tells two series of one colour apart."""
    return MARKERS[index // len(CYCLE) % len(MARKERS)]


def name_rows(ax: Axes, names: list[str], cut: bool = True) -> None:
    """Label horizontal rows, the first one on top."""
    labels = [short(name) for name in names] if cut else names
    font = 10 if len(names) <= 15 else 9 if len(names) <= 32 else 7
    ax.set_yticks(np.arange(len(names)), labels, fontsize=font)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    strip(ax)
    ax.spines["left"].set_visible(False)


def note_above(ax: Axes, x: float, text: str) -> None:
    """A word above the frame at a value of the horizontal axis."""
    ax.annotate(
        text,
        (x, 1),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )


def legend_above(ax: Axes, **options: Any) -> None:
    """A legend over the frame, in two columns."""
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    ax.legend(frameon=False, fontsize=9, ncols=2, **place, **options)


def legend_of_levels(ax: Axes, name: object) -> None:
    """A legend of levels: beside the axes if there are many."""
    place: dict[str, Any] = {}
    if len(ax.get_legend_handles_labels()[0]) > MAX_INSIDE:
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    title = short(name)
    ax.legend(frameon=False, fontsize=9, title=title, title_fontsize=9, **place)


def say_instead(ax: Axes, text: str) -> Axes:
    """A sentence where a figure would be empty."""
    ax.clear()
    ax.axis("off")
    middle: dict[str, Any] = {"ha": "center", "va": "center", "color": DARK}
    ax.text(0.5, 0.5, text, transform=ax.transAxes, wrap=True, **middle)
    return ax


def mark_values(ax: Axes, values: np.ndarray) -> None:
    """Ticks at the only two values of a column, with room on both sides."""
    width = float(np.ptp(values))
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.set_xlim(values.min() - 0.5 * width, values.max() + 0.5 * width)


def strip(ax: Axes) -> None:
    """Only the two axes that carry numbers."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def finish(ax: Axes, across: str, up: str, legend: bool = True, **options: Any) -> Axes:
    """Name both axes, strip the frame, and add a legend if it is wanted."""
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    if legend:
        ax.legend(frameon=False, fontsize=9, **options)
    strip(ax)
    return ax


def mark_reference(ax: Axes, at: float, text: str = "reference") -> None:
    """An upright line at the reference, with a word above it."""
    ax.axvline(at, color=GREY, lw=0.8, ls=DASHED)
    note_above(ax, at, text)


def say_what_is_missing(
    ax: Axes, n_shown: int, n_total: int, noun: str = "features"
) -> None:
    """A note below the corner when not everything is drawn."""
    if n_shown < n_total:
        ax.set_title(
            f"{n_shown} of {n_total} {noun}", fontsize=9, color=DARK, loc="left"
        )


def name_levels(ax: Axes, labels: Sequence[object], axis: str = "x") -> None:
    """Name the levels along an axis, aslant where they would not fit side by side."""
    texts = [short(label, 18) for label in labels]
    places = np.arange(len(texts))
    if axis == "y":
        ax.set_yticks(places, texts)
        ax.set_ylim(-0.6, len(texts) - 0.4)
        return
    crowded = sum(map(len, texts)) > 40 or len(texts) > 8
    ax.set_xticks(places, texts)
    if crowded:
        plt.setp(ax.get_xticklabels(), rotation=35, ha="right", rotation_mode="anchor")
    ax.set_xlim(-0.6, len(texts) - 0.4)


def place_values(
    ax: Axes, values: np.ndarray, levels: Sequence[object] | None, heights: np.ndarray
) -> np.ndarray:
    """Horizontal places of values, with ticks: levels side by side, missing last."""
    missing = np.isnan(values)
    if levels is not None:
        labels = [*levels, *(["missing"] if missing.any() else [])]
        name_levels(ax, labels)
        lane = np.where(missing, len(levels), values)
        places = lane.astype(float)
        for at in np.unique(lane):
            places[lane == at] += swarm(heights[lane == at], spread=0.3)
        return places
    known = values[~missing]
    distinct = np.unique(known)
    places = values.copy()
    if missing.any():
        places[missing] = missing_place(ax, known)
    if len(distinct) == 2:
        width = float(np.ptp(distinct))
        mark_values(ax, distinct)
        for at in distinct:
            places[values == at] += width * swarm(heights[values == at], spread=0.2)
    return places


def missing_place(ax: Axes, known: np.ndarray) -> float:
    """A place to the right of all known values, labelled."""
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    place = float(high + 0.1 * ((high - low) or 1.0))
    ax.axvline(place - 0.04 * ((high - low) or 1.0), color=GREY, lw=0.5)
    note_above(ax, place, "missing")
    return place


def scatter_shaded(
    ax: Axes,
    x: np.ndarray,
    y: np.ndarray,
    shade: np.ndarray,
    levels: Sequence[object] | None,
    name: str,
) -> None:
    """Points coloured by another feature: by rank, or one colour per level."""
    missing = np.isnan(shade)
    ax.scatter(x[missing], y[missing], s=16, facecolors="none", edgecolors=GREY)
    if levels is not None:
        for code, level in enumerate(levels):
            hit = shade == code
            if hit.any():
                look: dict[str, Any] = {"marker": marker_of(code), "s": 16} | DOTS
                look |= {"color": colour_of(code), "label": legend_name(level)}
                ax.scatter(x[hit], y[hit], **look)
        legend_of_levels(ax, name)
        return
    known = shade[~missing]
    if not len(known):
        return
    dots = ax.scatter(
        x[~missing],
        y[~missing],
        c=ranks(known),
        s=16,
        cmap=SEQUENTIAL,
        norm=Normalize(0, 1),
        **DOTS,
    )
    note = " (hollow: missing)" if missing.any() else ""
    bar = colour_bar(ax, dots, short(name) + note)
    # Colours go by rank, so that a skewed modifier keeps them apart.
    two = len(np.unique(known)) == 2
    ticks = [0.0, 1.0] if two else [0.0, 0.25, 0.5, 0.75, 1.0]
    at = np.quantile(known, ticks)
    bar.set_ticks(ticks, labels=[f"{value:.3g}" for value in at])


def colour_bar(ax: Axes, mappable: Any, label: str) -> Any:
    """A thin colour bar beside the axes."""
    bar = ax.figure.colorbar(mappable, ax=ax, pad=0.02, fraction=0.05, aspect=30)
    bar.set_label(label, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    return bar


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks between 0 and 1; ties share theirs, a constant gets one half."""
    below = np.searchsorted(np.sort(values), values)
    return below / below.max() if below.any() else np.full(len(values), 0.5)


def swarm(values: np.ndarray, spread: float = 0.4) -> np.ndarray:
    """Vertical offsets that keep points of one bin apart, at most `spread`."""
    span = np.ptp(values)
    if span == 0:
        return np.linspace(-spread / 2, spread / 2, len(values))
    bins = np.minimum(((values - values.min()) / span * 70).astype(int), 69)
    order = np.argsort(bins, kind="stable")
    first = np.searchsorted(bins[order], bins[order])
    position = np.empty(len(values), dtype=int)
    position[order] = np.arange(len(values)) - first
    side = np.where(position % 2 == 0, 1, -1) * ((position + 1) // 2)
    largest = max(int(np.abs(side).max()), 1)
    return side * min(spread / largest, 0.06)


def spread_labels(heights: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Heights moved apart so that labels do not overlap."""
    gap = 0.055 * (limits[1] - limits[0])
    order = np.argsort(heights)
    placed = np.array(heights, dtype=float)
    for low, high in zip(order[:-1], order[1:], strict=True):
        placed[high] = max(placed[high], placed[low] + gap)
    return placed - (placed - heights).mean() if len(placed) else placed
