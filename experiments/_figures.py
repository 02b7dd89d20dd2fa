"""Figures that several artefacts draw.

Matplotlib is imported on use: machines that compute cells can do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments._tables import name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, as in `sknimo.plots`.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
AMBER, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
GREY, DARK = "#8C8C8C", "#333333"
HEAT = ("#DCE9F5", BLUE, "#00263D")

COLOURS = {
    "lasso": GREY,
    "mlp": PINK,
    "nam": SKY,
    "imn": GREEN,
    "localglmnet": "#7F5539",
    "lassonet-deep": AMBER,
    "ebm": "#6A51A3",
    "lightgbm": "#1B7837",
    "nimo": ORANGE,
    "sknimo": BLUE,
}


def colour_of(method: str) -> str:
    known = [name for name in COLOURS if method.startswith(name)]
    return COLOURS[max(known, key=len)] if known else DARK


def panels(
    n: int, width: float = 4.2, height: float = 3.6, n_columns: int = 4
) -> Figure:
    """A figure with n axes in rows of at most `n_columns`."""
    from matplotlib.figure import Figure

    n_columns = min(n, n_columns)
    n_rows = -(-n // n_columns)
    size = (width * n_columns, height * n_rows)
    figure = Figure(figsize=size, layout="constrained")
    for place in range(n):
        ax = figure.add_subplot(n_rows, n_columns, place + 1)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def say(ax: Axes, words: str) -> None:
    """Words in the middle of axes that would be empty."""
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center")


def add_key(figure: Figure) -> None:
    """One legend below all panels, each label once."""
    labelled = {}
    for ax in figure.axes:
        handles, labels = ax.get_legend_handles_labels()
        labelled |= dict(zip(labels, handles, strict=True))
    if labelled:
        figure.legend(
            labelled.values(),
            labelled.keys(),
            loc="outside lower center",
            ncols=5,
            frameon=False,
        )


def dots(
    ax: Axes,
    names: Sequence[str],
    series: Mapping[str, np.ndarray],
    truth: Sequence[float] | None = None,
) -> None:
    """Values per feature, one colour per method, bars of one standard deviation.

    `series` holds (n_seeds, p) by method.
    """
    places = np.arange(len(names))
    ax.axhline(0, color=DARK, lw=0.6, zorder=0)
    if truth is not None:
        ax.hlines(truth, places - 0.42, places + 0.42, color=DARK, lw=2, label="truth")
    width = 0.7 / max(len(series), 1)
    for k, (method, values) in enumerate(series.items()):
        if not len(values):
            continue
        shift = (k - (len(series) - 1) / 2) * width
        error = values.std(axis=0, ddof=1) if len(values) > 1 else None
        ax.errorbar(
            places + shift,
            values.mean(axis=0),
            error,
            fmt="o",
            ms=4.5,
            lw=1,
            color=colour_of(method),
            label=name_of(method),
        )
    ax.set_xticks(places, names, rotation=90 if len("".join(names)) > 30 else 0)
    ax.tick_params(axis="x", length=0)


def boxes(ax: Axes, values: Mapping[str, Sequence[float]]) -> None:
    """One box per method and a dot per split, best median on top."""
    order = sorted(values, key=lambda method: -np.median(values[method]))
    drawn = ax.boxplot(
        [values[m] for m in order],
        orientation="horizontal",
        patch_artist=True,
        widths=0.6,
        medianprops={"color": DARK},
        showfliers=False,
    )
    for box, method in zip(drawn["boxes"], order, strict=True):
        box.set_facecolor(colour_of(method))
        box.set_alpha(0.6)
    for place, method in enumerate(order, 1):
        level = [place] * len(values[method])
        ax.plot(values[method], level, "o", ms=3.5, color=colour_of(method))
    ax.set_yticks(range(1, len(order) + 1), [name_of(m) for m in order])


def heat(ax: Axes, names: Sequence[str], weights: Mapping[str, float]) -> None:
    """First-layer weights, units in columns; `weights` go by "feature|unit"."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("heat", HEAT)
    units = [int(item.rsplit("|", 1)[1]) for item in weights]
    size = np.zeros((len(names), max(units, default=0) + 1))
    for item, value in weights.items():
        name, unit = item.rsplit("|", 1)
        if name in names:
            size[list(names).index(name), int(unit)] = value
    image = np.ma.masked_equal(size, 0)
    ax.imshow(image, aspect="auto", cmap=colours, vmin=0, interpolation="none")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_xlabel("unit of the first layer")
    if not weights:
        ax.set_xticks([])
        ax.set_xlabel("reads nothing")


def scatter(ax: Axes, x: np.ndarray, y: np.ndarray, colour: str = BLUE) -> None:
    """Points around the diagonal."""
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    if ends[0] == ends[1]:  # nothing but zeros
        ends = [-1, 1]
    ax.plot(ends, ends, color=DARK, lw=0.8, ls="--", zorder=0)
    ax.locator_params(nbins=5)
    ax.scatter(x, y, s=9, color=colour, alpha=0.7, lw=0)


def critical_differences(
    ranks: Mapping[str, float], critical: float, n_tables: int
) -> Figure:
    """Average ranks on a line; bars join methods that cannot be told apart."""
    order = sorted(ranks, key=ranks.__getitem__)
    half = -(-len(order) // 2)
    figure = panels(1, width=8.5, height=1.4 + 0.28 * half)
    ax = figure.axes[0]
    low, high = 1.0, float(len(order))
    for place, method in enumerate(order):
        # The better half is named on the left, the others on the right.
        on_left = place < half
        level = -(place if on_left else len(order) - 1 - place) - 1
        end = low - 0.15 if on_left else high + 0.15
        rank = ranks[method]
        ax.plot([rank, rank, end], [0, level, level], color=GREY, lw=0.8, zorder=0)
        ax.plot(rank, 0, "o", color=colour_of(method), ms=7)
        text = f"{name_of(method)}  {rank:.2f}"
        side = "right" if on_left else "left"
        ax.text(end, level, f" {text} ", ha=side, va="center", fontsize=9)
    groups = cliques(ranks, order, critical)
    for k, group in enumerate(groups):
        ends = [ranks[group[0]] - 0.05, ranks[group[-1]] + 0.05]
        ax.plot(ends, [0.6 + 0.4 * k] * 2, color=DARK, lw=3, solid_capstyle="butt")
    ax.set_xlim(low - 2.2, high + 2.2)
    ax.set_ylim(-half - 0.7, 1.0 + 0.4 * len(groups))
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.spines["top"].set(visible=True, bounds=(low, high))
    ax.xaxis.tick_top()
    ax.set_xticks(range(1, len(order) + 1))
    ax.set_yticks([])
    ax.set_title(
        f"average rank over {n_tables} tables; bars join ranks closer than "
        f"{critical:.2f} (Nemenyi, 5 %)",
        fontsize=10,
    )
    return figure


def cliques(
    ranks: Mapping[str, float], order: Sequence[str], critical: float
) -> list[list[str]]:
    """Largest runs of methods whose ranks lie within the critical difference."""
    found: list[list[str]] = []
    for k, method in enumerate(order):
        group = [m for m in order[k:] if ranks[m] - ranks[method] <= critical]
        if len(group) > 1 and not any(set(group) <= set(other) for other in found):
            found.append(group)
    return found
