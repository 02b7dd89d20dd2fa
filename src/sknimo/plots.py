"""Figures: every `plot_*(record, ax=None)` draws one record and returns its Axes.

Colours are those of Okabe and Ito and maps that survive colour blindness (cividis,
shades of blue, purple to orange). Long tables are cut to what can be read, and the
figure says so. Needs matplotlib, the extra `plot`.

>>> import matplotlib
>>> matplotlib.use("Agg")
>>> from sknimo import NIMORegressor
>>> from sknimo.datasets import make_nimo_regression
>>> from sknimo.explain import explain
>>> from sknimo.plots import plot_waterfall
>>> data = make_nimo_regression(setting=1, n_samples=100, random_state=0)
>>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
>>> ax = plot_waterfall(explain(est.model_, data.X), row=3)
>>> ax.get_xlabel()
'prediction'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from sknimo.explain import (
    CorrectionCurve,
    Effects,
    Explanation,
    FirstLayer,
    Interactions,
    PairSurface,
)

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize, TwoSlopeNorm
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.ticker import MaxNLocator
except ImportError as error:  # pragma: no cover
    raise ImportError(
        "sknimo.plots needs matplotlib: pip install 'sknimo[plot]'."
    ) from error

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
AMBER, SKY, PINK = "#E69F00", "#56B4E9", "#CC79A7"
GREY, DARK = "#8C8C8C", "#333333"
CYCLE = (BLUE, ORANGE, GREEN, AMBER, SKY, PINK)
SEQUENTIAL, DIVERGING = "cividis", "PuOr_r"
# Zero stays white; the smallest number above it is already tinted.
HEAT = LinearSegmentedColormap.from_list("heat", ["#DCE9F5", BLUE, "#00263D"])
DASHED = (0, (4, 3))
DOTS: dict[str, Any] = {"lw": 0, "alpha": 0.8}
# Interactions below this share of the strongest are left out of figures.
FAINT = 0.02

# Points beyond this many are thinned evenly: more ink, no more to see.
MAX_POINTS = 2000
MAX_NAME = 24

__all__ = [
    "plot_agreement",
    "plot_beeswarm",
    "plot_coefficients",
    "plot_correction",
    "plot_effect",
    "plot_first_layer",
    "plot_history",
    "plot_interactions",
    "plot_modification_graph",
    "plot_nonlinearity",
    "plot_pair_surface",
    "plot_path",
    "plot_waterfall",
]


def plot_coefficients(
    record: Effects,
    ax: Axes | None = None,
    *,
    against: Any = None,
    standardised: bool = True,
    max_features: int = 30,
) -> Axes:
    """Coefficients at the reference, beside the truth or those of rivals.

    Parameters
    ----------
    record : Effects
    ax : Axes, optional
    against : array of shape (p,) or mapping of name to array, optional
        Other coefficients per unit of each feature; a bare array is the truth.
    standardised : bool, default=True
        Show effects per standard deviation instead of per unit.
    max_features : int, default=30
        Largest coefficients to show.
    """
    factor = record.scale if standardised else np.ones_like(record.scale)
    series = {"NIMO": record.coef * factor}
    if against is not None:
        others = against if isinstance(against, Mapping) else {"truth": against}
        series |= {name: np.asarray(coef) * factor for name, coef in others.items()}
    size = np.max([np.abs(coef) for coef in series.values()], axis=0)
    shown = _largest(size, max_features)
    ax = _make_axes(ax, 6.0, len(shown))
    places = np.arange(len(shown))
    ax.axvline(0, color=GREY, lw=0.8)
    styles: Sequence[dict[str, Any]] = (
        {"marker": "o", "color": BLUE},
        {"marker": "D", "mfc": "none", "mec": ORANGE, "mew": 1.6},
        {"marker": "x", "color": GREEN, "mew": 1.8},
        {"marker": "s", "mfc": "none", "mec": PINK, "mew": 1.6},
    )
    for at, (name, coef) in enumerate(series.items()):
        style = styles[at % len(styles)]
        ax.plot(coef[shown], places, ls="none", ms=7 - at, label=name, **style)
    ax.hlines(places, 0, record.coef[shown] * factor[shown], color=BLUE, lw=1.2)
    _name_rows(ax, [record.names[j] for j in shown])
    unit = "standard deviation" if standardised else "unit"
    ax.set_xlabel(f"coefficient per {unit}, at the reference")
    if len(series) > 1:
        ax.legend(frameon=False, fontsize=9)
    _say_what_is_missing(ax, len(shown), len(record.names))
    return ax


def plot_path(
    record: Any,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    max_labels: int = 10,
) -> Axes:
    """Coefficients along a penalty path, with the chosen point.

    Parameters
    ----------
    record : object with `alphas` (T,), `coef` (T, q) and `index`
        For example `NIMORegressorCV.path_`.
    ax : Axes, optional
    names : sequence of str, optional
        Labels of the columns.
    max_labels : int, default=10
        Largest coefficients to label; the others are drawn in grey.
    """
    alphas, coef = np.asarray(record.alphas), np.asarray(record.coef)
    names = [f"x{j}" for j in range(coef.shape[1])] if names is None else names
    ax = _make_axes(ax, 6.5, 11)
    end = int(np.argmin(alphas))
    labelled = _largest(np.abs(coef).max(axis=0), max_labels)
    ax.plot(alphas, np.delete(coef, labelled, axis=1), color=GREY, lw=0.7, alpha=0.6)
    for place, j in enumerate(labelled):
        color = CYCLE[place % len(CYCLE)]
        dash = ("-", "--", ":")[place // len(CYCLE) % 3]
        ax.plot(alphas, coef[:, j], color=color, ls=dash, lw=1.8, label=names[j])
    ax.axhline(0, color=DARK, lw=0.6)
    chosen = float(alphas[record.index])
    ax.axvline(chosen, color=DARK, ls=DASHED, lw=1)
    _note_above(ax, chosen, f"chosen {chosen:.2g}")
    ax.set_xscale("log")
    ax.set_xlim(alphas.max(), alphas.min())
    heights = _spread_labels(coef[end, labelled], ax.get_ylim(), 0.055)
    for place, (j, height) in enumerate(zip(labelled, heights, strict=True)):
        ax.annotate(
            _short(names[j]),
            (alphas[end], coef[end, j]),
            xytext=(1.03, height),
            textcoords=("axes fraction", "data"),
            color=CYCLE[place % len(CYCLE)],
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": GREY, "lw": 0.5},
        )
    ax.set_xlabel("penalty (stronger to the left)")
    ax.set_ylabel("standardised coefficient")
    _strip(ax)
    return ax


def plot_first_layer(
    record: FirstLayer, ax: Axes | None = None, *, member: int = 0
) -> Axes:
    """Size of the first-layer weights: which features the network reads.

    Parameters
    ----------
    record : FirstLayer
    ax : Axes, optional
    member : int, default=0
        Which member of an averaged model to draw.
    """
    size = record.size[member].T  # (p, h)
    p, n_units = size.shape
    ax = _make_axes(ax, 5.5, p, row_height=0.17 if p > 20 else 0.28)
    norm = Normalize(0, float(size.max(initial=0.0)) or 1.0)
    mesh = ax.imshow(np.ma.masked_equal(size, 0), aspect="auto", cmap=HEAT, norm=norm)
    _name_rows(ax, list(record.names))
    ax.set_xticks(np.arange(0, n_units, max(1, n_units // 8)))
    ax.set_xlabel("unit of the first layer")
    n_read = int((size.max(axis=1) > 0).sum())
    ax.set_title(f"the network reads {n_read} of {p} features", fontsize=10, loc="left")
    _colour_bar(ax, mesh, "size of weight (white: zero)")
    return ax


def plot_nonlinearity(
    record: Effects,
    ax: Axes | None = None,
    *,
    measure: Literal["bend", "nonlinearity"] = "bend",
    max_features: int = 30,
) -> Axes:
    """How far each effect is from constant, largest effects on top.

    Features that act only through others are left out: their effect averages to little
    and varies by nature.

    Parameters
    ----------
    record : Effects
    ax : Axes, optional
    measure : {"bend", "nonlinearity"}, default="bend"
        The share of the effect that varies (invariant), or the paper's
        `mean |1 + g_j|`, which depends on how the network splits products.
    max_features : int, default=30
    """
    if measure not in ("bend", "nonlinearity"):
        raise ValueError(
            f"measure must be one of 'bend', 'nonlinearity', got {measure!r}."
        )
    values = getattr(record, measure)
    base = 0.0 if measure == "bend" else 1.0
    size = np.hypot(record.average_effect, record.effect_sd) * record.scale
    shown = _largest(np.where(record.roles.acts, size, 0.0), max_features)
    ax = _make_axes(ax, 5.5, len(shown))
    places = np.arange(len(shown))
    ax.barh(places, values[shown] - base, left=base, color=BLUE, height=0.62)
    ax.axvline(base, color=DARK, lw=0.8)
    _name_rows(ax, [record.names[j] for j in shown])
    if measure == "bend":
        ax.set_xlim(0, 1)
        ax.set_xlabel("share of the effect that varies from row to row")
    else:
        ax.set_xlabel("mean |1 + g|, 1 = unbent (depends on the split)")
    _say_what_is_missing(ax, len(shown), len(record.names))
    return ax


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
    """
    order = _largest(record.importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(record.importance > 0), order)
    rows = _thin(len(record))
    lines = len(order) + bool(len(rest))
    ax = _make_axes(ax, 6.5, lines, row_height=0.36)
    ax.axvline(0, color=GREY, lw=0.8)
    labels = [record.names[j] for j in order]
    colours = ScalarMappable(Normalize(0, 1), SEQUENTIAL)
    for place, j in enumerate(order):
        x = record.values[rows, j]
        rank = _ranks(record.data[rows, j])
        y = place + _swarm(x)
        ax.scatter(x, y, c=colours.to_rgba(rank), s=9, **DOTS)
    if len(rest):
        x = record.values[np.ix_(rows, rest)].sum(axis=1)
        ax.scatter(x, len(order) + _swarm(x), color=GREY, s=9, **DOTS)
        labels.append(f"{len(rest)} others together")
    _name_rows(ax, labels)
    ax.set_xlabel(f"contribution to the {_eta_label(record)}")
    bar = _colour_bar(ax, colours, "value of the feature")
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
    order = list(_largest(np.abs(values), max_features))
    rest = [j for j in np.flatnonzero(values) if j not in order]
    steps = [float(values[j]) for j in order]
    labels = [f"{_short(record.names[j])} = {record.data[row, j]:.4g}" for j in order]
    if rest:
        steps.append(float(values[rest].sum()))
        labels.append(f"{len(rest)} others together")
    start = record.base_value + float(record.offset[row])
    edges = start + np.concatenate([[0.0], np.cumsum(steps)])
    ax = _make_axes(ax, 6.5, len(steps) + 2, row_height=0.34)
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
    _name_rows(ax, [first, *labels, "prediction (eta)"], cut=False)
    ax.set_xlim(edges.min() - 0.05 * span, edges.max() + 0.16 * span)
    ax.set_xlabel(_eta_label(record))
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
    rows = _thin(len(record))
    x, y = record.data[rows, j], record.values[rows, j]
    ax = _make_axes(ax, 6.0, 11)
    reference = float(record.reference[j])
    ax.axhline(0, color=GREY, lw=0.8)
    ax.axvline(reference, color=GREY, lw=0.8, ls=DASHED)
    if k is None:
        ax.scatter(x, y, s=16, color=BLUE, **DOTS)
    else:
        shade = record.data[rows, k]
        rank = _ranks(shade)
        dots = ax.scatter(
            x, y, c=rank, s=16, cmap=SEQUENTIAL, norm=Normalize(0, 1), **DOTS
        )
        bar = _colour_bar(ax, dots, _short(record.names[k]))
        # Colours go by rank, so that a skewed modifier keeps them apart.
        ticks = (
            [0.0, 1.0] if len(np.unique(shade)) == 2 else [0.0, 0.25, 0.5, 0.75, 1.0]
        )
        at = np.quantile(shade, ticks)
        bar.set_ticks(ticks, labels=[f"{value:.3g}" for value in at])
    _note_above(ax, reference, "reference")
    levels = np.unique(x)
    if len(levels) == 2:
        ax.set_xticks(levels)
        ax.set_xlim(levels[0] - 0.5 * np.ptp(levels), levels[1] + 0.5 * np.ptp(levels))
    ax.set_xlabel(record.names[j])
    ax.set_ylabel(f"contribution to the {_eta_label(record)}")
    _strip(ax)
    return ax


def plot_correction(
    record: CorrectionCurve, ax: Axes | None = None, *, rows: Explanation | None = None
) -> Axes:
    """The coefficient of one feature along a modifier, all else at the reference.

    Parameters
    ----------
    record : CorrectionCurve
    ax : Axes, optional
    rows : Explanation, optional
        Rows to scatter behind the curve: their local coefficients, which other
        features bend as well.
    """
    ax = _make_axes(ax, 6.0, 11)
    if rows is not None:
        some = _thin(len(rows))
        j, k = rows.column(record.feature), rows.column(record.modifier)
        ax.scatter(
            rows.data[some, k],
            rows.local_coef[some, j],
            s=12,
            color=GREY,
            label="rows",
            **DOTS,
        )
    ax.axhline(record.coef, color=DARK, lw=0.9, ls=DASHED, label="coefficient")
    ax.axvline(record.reference, color=GREY, lw=0.8, ls=(0, (1, 2)))
    few = len(record.grid) <= 10
    ax.plot(
        record.grid,
        record.local_coef,
        color=BLUE,
        lw=2.2,
        marker="o" if few else None,
        label="all else at the reference",
    )
    ax.plot(
        record.reference, record.coef, marker="D", color=DARK, ls="none", label="_point"
    )
    ax.set_xlabel(record.modifier)
    ax.set_ylabel(f"coefficient of {_short(record.feature)}, per unit")
    ax.legend(frameon=False, fontsize=9)
    _strip(ax)
    return ax


def plot_pair_surface(record: PairSurface, ax: Axes | None = None) -> Axes:
    """What two features do together beyond their two straight lines.

    Parameters
    ----------
    record : PairSurface
    ax : Axes, optional
    """
    ax = _make_axes(ax, 5.6, 12)
    top = float(np.abs(record.surface).max(initial=0.0)) or 1.0
    mesh = ax.pcolormesh(
        record.grid_j,
        record.grid_k,
        record.surface.T,
        cmap=DIVERGING,
        norm=TwoSlopeNorm(0, -top, top),
        shading="nearest",
    )
    if min(record.surface.shape) > 2:
        lines = ax.contour(
            record.grid_j,
            record.grid_k,
            record.surface.T,
            levels=top * np.array([-0.8, -0.6, -0.4, -0.2, 0.2, 0.4, 0.6, 0.8]),
            colors=DARK,
            linewidths=0.5,
        )
        ax.clabel(lines, fontsize=7, fmt="%.2g")
    ax.axvline(record.reference[0], color=DARK, lw=0.9, ls=DASHED)
    ax.axhline(record.reference[1], color=DARK, lw=0.9, ls=DASHED)
    for grid, ticks in ((record.grid_j, ax.set_xticks), (record.grid_k, ax.set_yticks)):
        if len(grid) <= 5:
            ticks(grid)
    ax.set_xlabel(record.names[0])
    ax.set_ylabel(record.names[1])
    _colour_bar(ax, mesh, "eta beyond the straight lines")
    return ax


def plot_interactions(
    record: Interactions,
    ax: Axes | None = None,
    *,
    kind: Literal["directed", "strength"] = "directed",
    max_features: int = 30,
) -> Axes:
    """Heat map of who bends whom, or of how strongly pairs interact.

    Parameters
    ----------
    record : Interactions
    ax : Axes, optional
    kind : {"directed", "strength"}, default="directed"
    max_features : int, default=30
        Features with the strongest interactions to show.
    """
    if kind not in ("directed", "strength"):
        raise ValueError(f"kind must be one of 'directed', 'strength', got {kind!r}.")
    table = getattr(record, kind)
    size = np.maximum(table.max(axis=0), table.max(axis=1))
    size = np.where(size >= FAINT * size.max(initial=0.0), size, 0.0)
    shown = np.sort(_largest(size, max_features))
    part = table[np.ix_(shown, shown)]
    count = len(shown)
    if ax is None:
        side = float(np.clip(2.4 + 0.27 * count, 4.2, 11))
        _, ax = plt.subplots(figsize=(side + 1.2, side), layout="constrained")
    mesh = ax.imshow(
        np.ma.masked_less_equal(part, 0),
        cmap=HEAT,
        norm=Normalize(0, float(part.max(initial=0.0)) or 1.0),
    )
    names = [_short(record.names[j]) for j in shown]
    font = 9 if count <= 20 else 7.5
    ax.set_xticks(np.arange(count), names, rotation=90, fontsize=font)
    ax.set_yticks(np.arange(count), names, fontsize=font)
    if count <= 8:
        half = 0.4 * float(part.max(initial=0.0))
        for j, k in zip(*np.nonzero(part > 0), strict=True):
            ink = "white" if part[j, k] > half else "black"
            ax.text(k, j, f"{part[j, k]:.2g}", ha="center", va="center", color=ink)
    if kind == "directed":
        ax.set_ylabel("coefficient of ...")
        ax.set_xlabel("... is bent by")
        label = "change of the coefficient, per sd of both"
    else:
        label = "mean |mixed derivative|, per sd of both"
    for spine in ax.spines.values():
        spine.set_visible(False)
    _colour_bar(ax, mesh, label)
    _say_what_is_missing(ax, count, len(record.names))
    return ax


def plot_modification_graph(
    record: Interactions, ax: Axes | None = None, *, max_edges: int = 20
) -> Axes:
    """Graph of modification: an arrow from each feature to those that it bends.

    Parameters
    ----------
    record : Interactions
    ax : Axes, optional
    max_edges : int, default=20
        Strongest arrows to draw.
    """
    table = record.directed
    order = np.argsort(-table, axis=None, kind="stable")[:max_edges]
    bent, bends = np.unravel_index(order, table.shape)
    size = table[bent, bends]
    keep = (size > 0) & (size >= FAINT * size[0])
    bent, bends, size = bent[keep], bends[keep], size[keep]
    nodes = np.unique(np.concatenate([bent, bends]))
    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 6.0), layout="constrained")
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_xlim(-1.55, 1.55)
    ax.set_ylim(-1.35, 1.35)
    if len(nodes) == 0:
        ax.text(0, 0, "no feature bends another", ha="center", color=DARK)
        return ax
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(nodes)) / len(nodes)
    place = np.c_[np.cos(angle), np.sin(angle)]
    start, end = np.searchsorted(nodes, bends), np.searchsorted(nodes, bent)
    for share, k, j in zip(size[::-1] / size[0], start[::-1], end[::-1], strict=True):
        style = {"lw": 0.6 + 3.4 * share, "alpha": 0.35 + 0.6 * share, "color": BLUE}
        style |= {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.18"}
        style |= {"mutation_scale": 9 + 9 * share, "shrinkA": 11, "shrinkB": 11}
        ax.add_patch(FancyArrowPatch(place[k], place[j], **style))
    fill = [AMBER if acts else "white" for acts in record.roles.acts[nodes]]
    ax.scatter(place[:, 0], place[:, 1], s=200, c=fill, edgecolors=DARK, zorder=3)
    font = 10 if len(nodes) <= 16 else 8
    for node, (x, y) in zip(nodes, place, strict=True):
        side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
        name = _short(record.names[node])
        ax.text(1.13 * x, 1.15 * y, name, ha=side, va="center", fontsize=font)
    title = "arrow: bends the coefficient of; filled: has an effect of its own"
    ax.set_title(title, fontsize=9, color=DARK)
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
    ax = _make_axes(ax, 5.6, 14)
    rows = _thin(len(record))
    importance = np.maximum(record.importance, np.abs(other).mean(axis=0))
    order = _largest(importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(importance > 0), order)
    if len(rest):
        ax.scatter(
            other[np.ix_(rows, rest)].ravel(),
            record.values[np.ix_(rows, rest)].ravel(),
            s=8,
            color=GREY,
            label=f"{len(rest)} others",
            **DOTS,
        )
    markers = ("o", "s", "^", "D", "v", "P")
    for place, j in enumerate(order.tolist()):
        x, y = other[rows, j], record.values[rows, j]
        known = x.std() > 0 and y.std() > 0
        note = f" (r = {np.corrcoef(x, y)[0, 1]:.3f})" if known else ""
        ax.scatter(
            x,
            y,
            s=14,
            color=CYCLE[place % len(CYCLE)],
            marker=markers[place % len(markers)],
            label=_short(record.names[j]) + note,
            **DOTS,
        )
    low = min(other.min(initial=0.0), record.values.min(initial=0.0))
    high = max(other.max(initial=0.0), record.values.max(initial=0.0))
    ax.plot([low, high], [low, high], color=DARK, lw=0.9, ls=DASHED, zorder=0)
    ax.set_xlabel(f"contribution, {label}")
    ax.set_ylabel(f"contribution to the {_eta_label(record)}")
    ax.legend(frameon=False, fontsize=9)
    _strip(ax)
    return ax


def plot_history(record: Any, ax: Axes | None = None) -> Axes:
    """Objective and sparsity during training.

    Parameters
    ----------
    record : History
        `history_` of a fitted estimator. A second axis counts features.
    ax : Axes, optional
    """
    ax = _make_axes(ax, 6.5, 11)
    lines = ax.plot(record.step, record.objective, color=BLUE, lw=1.8)[:1]
    lines[0].set_label("objective")
    if np.isfinite(record.validation).any():
        held_out = ax.plot(
            record.step, record.validation, color=ORANGE, lw=1.8, ls=(0, (5, 2))
        )
        held_out[0].set_label("validation loss")
        lines += held_out[:1]
    finite = record.objective[np.isfinite(record.objective)]
    if len(finite) and finite.min() > 0 and finite.max() > 20 * finite.min():
        ax.set_yscale("log")
    ax.set_xlabel("step of the optimiser")
    ax.set_ylabel("mean half deviance and penalty")
    count = ax.twinx()
    for number, color, ls, label in (
        (record.n_features, GREEN, "-", "features with a coefficient"),
        (record.n_inputs, PINK, ":", "features the network reads"),
    ):
        lines += count.step(
            record.step, number[:, 0], where="post", color=color, ls=ls, label=label
        )
    count.set_ylabel("number of features")
    count.set_ylim(bottom=0)
    count.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(
        handles=lines,
        frameon=False,
        fontsize=9,
        ncols=2,
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )
    for spine in (ax.spines["top"], count.spines["top"]):
        spine.set_visible(False)
    return ax


def _make_axes(
    ax: Axes | None, width: float, n_rows: int, row_height: float = 0.3
) -> Axes:
    """The given axes, or new ones high enough for a number of rows."""
    if ax is not None:
        return ax
    height = float(np.clip(1.2 + row_height * n_rows, 2.2, 14))
    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def _largest(size: np.ndarray, count: int) -> np.ndarray:
    """Positions of the largest sizes above zero, largest first; at least one."""
    order = np.argsort(-size, kind="stable")[: max(count, 1)]
    kept = order[size[order] > 0]
    return kept if len(kept) else order[:1]


def _thin(n_rows: int) -> np.ndarray:
    """Rows to draw, evenly spaced."""
    if n_rows <= MAX_POINTS:
        return np.arange(n_rows)
    return np.linspace(0, n_rows - 1, MAX_POINTS).round().astype(int)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"


def _name_rows(ax: Axes, names: list[str], cut: bool = True) -> None:
    """Label horizontal rows, the first one on top."""
    labels = [_short(name) for name in names] if cut else names
    font = 10 if len(names) <= 15 else 9 if len(names) <= 32 else 7
    ax.set_yticks(np.arange(len(names)), labels, fontsize=font)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    _strip(ax)
    ax.spines["left"].set_visible(False)


def _note_above(ax: Axes, x: float, text: str) -> None:
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


def _strip(ax: Axes) -> None:
    """Only the two axes that carry numbers."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _say_what_is_missing(ax: Axes, n_shown: int, n_total: int) -> None:
    """A note below the corner when not everything is drawn."""
    if n_shown < n_total:
        ax.set_title(
            f"{n_shown} of {n_total} features", fontsize=9, color=DARK, loc="left"
        )


def _colour_bar(ax: Axes, mappable: Any, label: str) -> Any:
    bar = ax.figure.colorbar(mappable, ax=ax, pad=0.02, fraction=0.05, aspect=30)
    bar.set_label(label, fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8)
    return bar


def _eta_label(record: Explanation) -> str:
    words = {"identity": "prediction", "logit": "log-odds", "log": "log of the mean"}
    return words.get(record.family.link, "linear predictor")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks between 0 and 1; ties share theirs, a constant gets one half."""
    levels, inverse = np.unique(values, return_inverse=True)
    if len(levels) == 1:
        return np.full(len(values), 0.5)
    below = np.concatenate([[0], np.cumsum(np.bincount(inverse))[:-1]])
    return below[inverse] / max(below[-1], 1)


def _swarm(values: np.ndarray, n_bins: int = 70, spread: float = 0.4) -> np.ndarray:
    """Vertical offsets that keep points of one bin apart, at most `spread`."""
    span = np.ptp(values)
    if span == 0:
        return np.linspace(-spread / 2, spread / 2, len(values))
    bins = np.minimum(((values - values.min()) / span * n_bins).astype(int), n_bins - 1)
    order = np.argsort(bins, kind="stable")
    first = np.searchsorted(bins[order], bins[order])
    position = np.empty(len(values), dtype=int)
    position[order] = np.arange(len(values)) - first
    side = np.where(position % 2 == 0, 1, -1) * ((position + 1) // 2)
    largest = max(int(np.abs(side).max()), 1)
    return side * min(spread / largest, 0.06)


def _spread_labels(
    heights: np.ndarray, limits: tuple[float, float], gap_share: float
) -> np.ndarray:
    """Heights moved apart so that labels do not overlap."""
    gap = gap_share * (limits[1] - limits[0])
    order = np.argsort(heights)
    placed = np.array(heights, dtype=float)
    for low, high in zip(order[:-1], order[1:], strict=True):
        placed[high] = max(placed[high], placed[low] + gap)
    return placed - (placed - heights).mean() if len(placed) else placed
