"""Figures of explained rows: contributions of many rows or of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba

from sknimo.explain import Explanation
from sknimo.plots._style import (
    BLUE,
    CYCLE,
    DARK,
    DASHED,
    DOTS,
    GREY,
    MARKERS,
    ORANGE,
    SEQUENTIAL,
    colour_bar,
    largest,
    legend_name,
    make_axes,
    name_rows,
    note_above,
    place_values,
    plain,
    ranks,
    scatter_shaded,
    short,
    strip,
    swarm,
    thin,
)


def plot_beeswarm(
    record: Explanation, ax: Axes | None = None, *, max_features: int = 15
) -> Axes:
    """Contributions of every row, one line of points per feature.

    Parameters
    ----------
    record : Explanation
    ax : Axes, optional
    max_features : int, default=15
        Most important features to show; the others are summed up in one line.

    Notes
    -----
    Levels have no order, and missing values no rank: their points are grey.
    """
    order = largest(record.importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(record.importance > 0), order)
    rows = thin(len(record))
    lines = len(order) + bool(len(rest))
    ax = make_axes(ax, 6.5, lines, row_height=0.36)
    ax.axvline(0, color=GREY, lw=0.8)
    labels = [record.names[j] for j in order]
    colours = ScalarMappable(Normalize(0, 1), SEQUENTIAL)
    grey = False
    for place, j in enumerate(order):
        x = record.values[rows, j]
        data = record.data[rows, j]
        ranked = ~np.isnan(data) & (record.levels[j] is None)
        shade = np.tile(to_rgba(GREY), (len(x), 1))
        if ranked.any():
            shade[ranked] = colours.to_rgba(ranks(data[ranked]))
        ax.scatter(x, place + swarm(x), c=shade, s=9, **DOTS)
        grey |= not ranked.all()
    if len(rest):
        x = record.values[np.ix_(rows, rest)].sum(axis=1)
        ax.scatter(x, len(order) + swarm(x), color=GREY, s=9, **DOTS)
        labels.append(f"{len(rest)} others together")
    name_rows(ax, labels)
    note = "\n(grey: levels and missing values)" if grey else ""
    ax.set_xlabel(f"contribution to the {record.family.eta_name}{note}")
    bar = colour_bar(ax, colours, "value of the feature")
    bar.set_ticks([0, 1], labels=["low", "high"])
    return ax


def plot_waterfall(
    record: Explanation, ax: Axes | None = None, *, row: int = 0, max_features: int = 12
) -> Axes:
    """How one prediction comes about, from the base value to eta.

    Parameters
    ----------
    record : Explanation
    ax : Axes, optional
    row : int, default=0
        Row of the explanation.
    max_features : int, default=12
        Largest contributions to show; the others are summed up in one bar.
    """
    values = record.values[row]
    order = list(largest(np.abs(values), max_features))
    rest = [j for j in np.flatnonzero(values) if j not in order]
    steps = [float(values[j]) for j in order]
    labels = [
        f"{short(record.names[j])} = {short(record.value_text(row, j), 18)}"
        for j in order
    ]
    if rest:
        steps.append(float(values[rest].sum()))
        labels.append(f"{len(rest)} others together")
    start = record.base_value + float(record.offset[row])
    edges = start + np.concatenate([[0.0], np.cumsum(steps)])
    ax = make_axes(ax, 6.5, len(steps) + 2, row_height=0.34)
    places = np.arange(1, len(steps) + 1)
    colours = [BLUE if step >= 0 else ORANGE for step in steps]
    ax.barh(places, steps, left=edges[:-1], color=colours, height=0.62)
    for above, edge in enumerate(edges):
        ax.plot([edge, edge], [above - 0.31, above + 1.31], color=GREY, lw=0.8)
    ends = (0, len(steps) + 1)
    ax.plot([edges[0], edges[-1]], ends, ls="none", marker="D", color=DARK, ms=6)
    span = float(np.ptp(edges)) or abs(start) or 1.0
    texts = [f"{step:+.3g}" for step in steps]
    texts = [f"{edges[0]:.4g}", *texts, f"{edges[-1]:.4g}"]
    ahead = [edges[0], *np.maximum(edges[:-1], edges[1:]), edges[-1]]
    beside: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points"}
    for at, (edge, text) in enumerate(zip(ahead, texts, strict=True)):
        ax.annotate(text, (edge, at), va="center", fontsize=9, **beside)
    first = "base value" if record.offset[row] == 0 else "base value and offset"
    name_rows(ax, [first, *labels, "prediction (eta)"], cut=False)
    ax.set_xlim(edges.min() - 0.05 * span, edges.max() + 0.16 * span)
    ax.set_xlabel(record.family.eta_name)
    return ax


def plot_effect(
    record: Explanation,
    ax: Axes | None = None,
    *,
    feature: int | str | None = None,
    modifier: int | str | None = None,
) -> Axes:
    """Contribution of one feature, rows coloured by what bends it most.

    Parameters
    ----------
    record : Explanation
    ax : Axes, optional
    feature : int or str, optional
        The most important one by default.
    modifier : int or str, optional
        The feature that colours the rows; the strongest modifier by default.
    """
    j = int(record.importance.argmax()) if feature is None else record.column(feature)
    k = record.strongest_modifier(j) if modifier is None else record.column(modifier)
    rows = thin(len(record))
    y = record.values[rows, j]
    ax = make_axes(ax, 6.0, 11)
    ax.axhline(0, color=GREY, lw=0.8)
    x = place_values(ax, record.data[rows, j], record.levels[j], y)
    if record.levels[j] is None:
        reference = float(record.reference[j])
        ax.axvline(reference, color=GREY, lw=0.8, ls=DASHED)
        note_above(ax, reference, "reference")
    if k is None:
        ax.scatter(x, y, s=16, color=BLUE, **DOTS)
    else:
        shade = record.data[rows, k]
        scatter_shaded(ax, x, y, shade, record.levels[k], record.names[k])
    ax.set_xlabel(plain(record.names[j]))
    ax.set_ylabel(f"contribution to the {record.family.eta_name}")
    strip(ax)
    return ax


def plot_agreement(
    record: Explanation,
    ax: Axes | None = None,
    *,
    against: Any,
    label: str = "truth",
    max_features: int = 6,
) -> Axes:
    """Local contributions against the truth or another explainer.

    Parameters
    ----------
    record : Explanation
    ax : Axes, optional
    against : array of shape (n, p), Explanation or shap.Explanation
        The other contributions of the same rows.
    label : str, default="truth"
        What they are.
    max_features : int, default=6
        Most important features to colour; the others are drawn in grey.
    """
    other = np.asarray(getattr(against, "values", against), dtype=float)
    if other.shape != record.values.shape:
        raise ValueError(
            f"against has shape {other.shape}, the explanation {record.values.shape}."
        )
    ax = make_axes(ax, 5.6, 14)
    rows = thin(len(record))
    importance = np.maximum(record.importance, np.abs(other).mean(axis=0))
    order = largest(importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(importance > 0), order)
    if len(rest):
        x, y = other[np.ix_(rows, rest)], record.values[np.ix_(rows, rest)]
        label_rest = f"{len(rest)} others"
        ax.scatter(x.ravel(), y.ravel(), s=8, color=GREY, label=label_rest, **DOTS)
    for at, j in enumerate(order.tolist()):
        x, y = other[rows, j], record.values[rows, j]
        known = x.std() > 0 and y.std() > 0
        note = f" (r = {np.corrcoef(x, y)[0, 1]:.3f})" if known else ""
        ax.scatter(
            x,
            y,
            s=14,
            color=CYCLE[at % len(CYCLE)],
            marker=MARKERS[at % len(MARKERS)],
            label=legend_name(record.names[j]) + note,
            **DOTS,
        )
    low = min(other.min(initial=0.0), record.values.min(initial=0.0))
    high = max(other.max(initial=0.0), record.values.max(initial=0.0))
    ax.plot([low, high], [low, high], color=DARK, lw=0.9, ls=DASHED, zorder=0)
    ax.set_xlabel(f"contribution, {plain(label)}")
    ax.set_ylabel(f"contribution to the {record.family.eta_name}")
    ax.legend(frameon=False, fontsize=9)
    strip(ax)
    return ax
