"""Figures of explained rows: contributions of many rows or of one."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_rgba

from sknimo.explain import Explanation, mean_of
from sknimo.plots import _style as style

# Standard errors to either side of a 95 % interval.
Z_95 = 1.959964


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> len(plots.plot_beeswarm(est.explain(data.X)).get_yticks()) > 1
    True
    """
    order = style.largest(record.importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(record.importance > 0), order)
    rows = style.thin(len(record))
    lines = len(order) + bool(len(rest))
    ax = style.make_axes(ax, 6.5, lines, row_height=0.36)
    ax.axvline(0, color=style.GREY, lw=0.8)
    labels = [record.names[j] for j in order]
    colours = ScalarMappable(Normalize(0, 1), style.SEQUENTIAL)
    grey = False
    for place, j in enumerate(order):
        x = record.values[rows, j]
        data = record.data[rows, j]
        ranked = ~np.isnan(data) & (record.levels[j] is None)
        shade = np.tile(to_rgba(style.GREY), (len(x), 1))
        if ranked.any():
            shade[ranked] = colours.to_rgba(style.ranks(data[ranked]))
        ax.scatter(x, place + style.swarm(x), c=shade, s=9, **style.DOTS)
        grey |= not ranked.all()
    if len(rest):
        x = record.values[np.ix_(rows, rest)].sum(axis=1)
        ax.scatter(x, len(order) + style.swarm(x), color=style.GREY, s=9, **style.DOTS)
        labels.append(f"{len(rest)} others together")
    style.name_rows(ax, labels)
    note = "\n(grey: levels and missing values)" if grey else ""
    ax.set_xlabel(f"contribution to the {record.family.eta_name}{note}")
    bar = style.colour_bar(ax, colours, "value of the feature")
    bar.set_ticks([0, 1], labels=["low", "high"])
    return ax


def plot_waterfall(
    record: Explanation, ax: Axes | None = None, *, row: int = 0, max_features: int = 12
) -> Axes:
    """How one prediction comes about, from the base value to eta.

    Thin lines are 95 % intervals of what features add, where errors are known.

    Parameters
    ----------
    record : Explanation
    ax : Axes, optional
    row : int, default=0
        Row of the explanation.
    max_features : int, default=12
        Largest contributions to show; the others are summed up in one bar.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> plots.plot_waterfall(est.explain(data.X), row=3).get_xlabel()
    'prediction'
    """
    order = list(style.largest(np.abs(record.values[row]), max_features))
    steps, labels = _name_steps(record, row, order)
    start = record.base_value + float(record.offset[row])
    edges = start + np.concatenate([[0.0], np.cumsum(steps)])
    ax = style.make_axes(ax, 6.5, len(steps) + 2, row_height=0.34)
    places = np.arange(1, len(steps) + 1)
    colours = [style.BLUE if step >= 0 else style.ORANGE for step in steps]
    ax.barh(places, steps, left=edges[:-1], color=colours, height=0.62)
    reach = np.zeros(len(steps))
    if record.std_err is not None:
        reach[: len(order)] = Z_95 * record.std_err[row, order]
        thin: dict[str, Any] = {"fmt": "none", "ecolor": style.DARK, "elinewidth": 0.8}
        own = slice(len(order))
        ax.errorbar(edges[1:][own], places[own], xerr=reach[own], capsize=2, **thin)
    for above, edge in enumerate(edges):
        ax.plot([edge, edge], [above - 0.31, above + 1.31], color=style.GREY, lw=0.8)
    ax.plot(edges[[0, -1]], (0, len(steps) + 1), "D", color=style.DARK, ms=6)
    span = float(np.ptp(edges)) or abs(start) or 1.0
    signed = [f"{step:+.3g}" for step in steps]
    texts = [f"{edges[0]:.4g}", *signed, f"{edges[-1]:.4g}"]
    ahead = [edges[0], *np.maximum(edges[:-1], edges[1:] + reach), edges[-1]]
    beside: dict[str, Any] = {"xytext": (7, 0), "textcoords": "offset points"}
    for at, (edge, text) in enumerate(zip(ahead, texts, strict=True)):
        ax.annotate(text, (edge, at), va="center", fontsize=9, **beside)
    first = "base value" if record.offset[row] == 0 else "base value and offset"
    style.name_rows(ax, [first, *labels, "prediction"], cut=False)
    low = min(edges.min(), (edges[1:] - reach).min(initial=np.inf))
    ax.set_xlim(low - 0.05 * span, max(ahead) + 0.16 * span)
    ax.set_xlabel(record.family.eta_name)
    mean, binary = float(record.mean[row]), record.family.is_binary
    told = f"probability {mean:.1%}" if binary else f"prediction {mean:.4g}"
    ax.set_title(f"row {row}: {told}", loc="left", fontsize=10)
    # The probability of one of several classes needs the eta of the others, too.
    if record.family.link != "identity" and record.response is None:
        _show_response(ax, record.family, "{:.0%}" if binary else "{:.3g}")
    return ax


def _name_steps(
    record: Explanation, row: int, order: list[int]
) -> tuple[list[float], list[str]]:
    """Contributions of some features and their labels; the others come last as one."""
    values = record.values[row]
    rest = [j for j in np.flatnonzero(values) if j not in order]
    labels = [
        f"{style.short(record.names[j])} = {style.short(record.value_text(row, j), 18)}"
        for j in order
    ]
    steps = [float(values[j]) for j in order]
    if rest:
        steps.append(float(values[rest].sum()))
        labels.append(f"{len(rest)} others together")
    return steps, labels


def _show_response(ax: Axes, family: Any, text: str) -> None:
    """A second axis on top: the response that belongs to each linear predictor."""
    top = ax.secondary_xaxis("top")
    ticks = ax.get_xticks()
    low, high = ax.get_xlim()
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    top.set_xticks(ticks, [text.format(mean) for mean in mean_of(family, ticks)])
    top.tick_params(labelsize=8, colors=style.GREY)
    top.spines["top"].set_visible(False)


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> plots.plot_effect(est.explain(data.X), feature="x0", modifier="x1").get_xlabel()
    'x0'
    """
    j = int(record.importance.argmax()) if feature is None else record.column(feature)
    k = record.strongest_modifier(j) if modifier is None else record.column(modifier)
    rows = style.thin(len(record))
    y = record.values[rows, j]
    ax = style.make_axes(ax, 6.0, 11)
    ax.axhline(0, color=style.GREY, lw=0.8)
    x = style.place_values(ax, record.data[rows, j], record.levels[j], y)
    if record.levels[j] is None:
        style.mark_reference(ax, float(record.reference[j]))
    if k is None:
        ax.scatter(x, y, s=16, color=style.BLUE, **style.DOTS)
    else:
        shade = record.data[rows, k]
        style.scatter_shaded(ax, x, y, shade, record.levels[k], record.names[k])
    up = f"contribution to the {record.family.eta_name}"
    return style.finish(ax, style.plain(record.names[j]), up, legend=False)


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> ax = plots.plot_agreement(est.explain(data.X), against=data.contributions)
    >>> len(ax.collections) + len(ax.lines) > 0
    True
    """
    other = np.asarray(getattr(against, "values", against), dtype=float)
    if other.shape != record.values.shape:
        raise ValueError(
            f"against has shape {other.shape}, the explanation {record.values.shape}."
        )
    ax = style.make_axes(ax, 5.6, 14)
    rows = style.thin(len(record))
    importance = np.maximum(record.importance, np.abs(other).mean(axis=0))
    order = style.largest(importance, max_features)
    rest = np.setdiff1d(np.flatnonzero(importance > 0), order)
    if len(rest):
        x, y = other[np.ix_(rows, rest)], record.values[np.ix_(rows, rest)]
        grey = style.GREY_DOTS | {"s": 8}
        ax.scatter(x, y, label=f"{len(rest)} others", **grey)
    for at, j in enumerate(order.tolist()):
        x, y = other[rows, j], record.values[rows, j]
        known = x.std() > 0 and y.std() > 0
        note = f" (r = {np.corrcoef(x, y)[0, 1]:.3f})" if known else ""
        dots: dict[str, Any] = style.series_of(at) | style.DOTS | {"s": 14}
        ax.scatter(x, y, label=style.legend_name(record.names[j]) + note, **dots)
    low = min(other.min(initial=0.0), record.values.min(initial=0.0))
    high = max(other.max(initial=0.0), record.values.max(initial=0.0))
    ax.plot([low, high], [low, high], zorder=0, **style.DASHES)
    up = f"contribution to the {record.family.eta_name}"
    return style.finish(ax, f"contribution, {style.plain(label)}", up)
