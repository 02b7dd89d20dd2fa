"""Figures of pairs of features: who bends whom, and what two do together."""

from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.patches import FancyArrowPatch

from sknimo.exceptions import check_option
from sknimo.explain import CorrectionCurve, Explanation, Interactions, PairSurface
from sknimo.plots import _style as style

# Interactions below this share of the strongest are left out of figures.
FAINT = 0.02
# A surface below this share of the linear predictor is what rounding leaves of none.
ROUNDING = 1e-10
# Cells of a map that get their number written in.
MAX_NUMBERS = 64
BEYOND = "eta beyond the two features alone"


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> plots.plot_correction(est.correction_curve("x0", "x1", X=data.X)).get_xlabel()
    'x1'
    """
    ax = style.make_axes(ax, 6.0, 11)
    levels = record.modifier_levels
    several = bool(np.isnan(record.coef))
    if rows is not None and not several:
        _scatter_rows(ax, record, rows)
    if levels is None:
        ax.axvline(record.reference, color=style.GREY, lw=0.8, ls=(0, (1, 2)))
    else:
        style.name_levels(ax, levels)
    few = levels is not None or len(record.grid) <= 10
    width, size = (2.2, 6) if levels is None else (0, 8)
    for at, label in enumerate(record.coef_labels if several else [""]):
        coef = record.all_coef[:, at] if several else record.local_coef
        mark = style.MARKERS[at % len(style.MARKERS)] if few else None
        name = style.legend_name(label) if several else "all else at the reference"
        (line,) = ax.plot(record.grid, coef, marker=mark, ms=size, lw=width, label=name)
        line.set_color(style.colour_of(at))
    if several:
        ax.axhline(0, color=style.GREY, lw=0.8)
    else:
        ax.axhline(record.coef, label="coefficient", **style.DASHES)
        ax.plot(record.reference, record.coef, "D", color=style.DARK)
    style.legend_of_levels(ax, record.feature if several else "")
    unit = "per unit" if record.feature_levels is None else "contrast with the baseline"
    what = f"coefficient of {style.short(record.feature)}, {unit}"
    return style.finish(ax, style.plain(record.modifier), what, legend=False)


def _scatter_rows(ax: Axes, record: CorrectionCurve, rows: Explanation) -> None:
    some = style.thin(len(rows))
    j, k = rows.column(record.feature), rows.column(record.modifier)
    coef = rows.local_coef[some, j]
    at = style.place_values(ax, rows.data[some, k], record.modifier_levels, coef)
    ax.scatter(at, coef, label="rows", **style.GREY_DOTS)


def plot_pair_surface(record: PairSurface, ax: Axes | None = None) -> Axes:
    """What two features do together beyond what each does alone.

    A map for two numbers or two categories; one line per level for a category and a
    number; a sentence where there is nothing beyond rounding.

    Parameters
    ----------
    record : PairSurface
    ax : Axes, optional

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> ax = plots.plot_pair_surface(est.pair_surface("x0", "x1", X=data.X))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'x1')
    """
    top = float(np.abs(record.surface).max(initial=0.0))
    if top <= ROUNDING * float(np.abs(record.eta).max(initial=0.0)):
        ax = style.make_axes(ax, 5.6, 12)
        return style.say_instead(ax, "no effect of the two beyond what each does alone")
    numbers = (record.levels_j is None) + (record.levels_k is None)
    if numbers == 1:
        return _plot_level_lines(record, ax)
    ax = style.make_axes(ax, 5.6, 12)
    mesh = ax.pcolormesh(
        record.grid_j,
        record.grid_k,
        record.surface.T,
        cmap=style.DIVERGING,
        norm=TwoSlopeNorm(0, -top, top),
        shading="nearest",
    )
    if record.levels_j is not None and record.levels_k is not None:
        style.name_levels(ax, record.levels_j)
        style.name_levels(ax, record.levels_k, "y")
        if record.surface.size <= MAX_NUMBERS:
            for (a, b), value in np.ndenumerate(record.surface):
                ink = "white" if abs(value) > 0.6 * top else "black"
                ax.text(a, b, f"{value:.2g}", ha="center", va="center", color=ink)
    else:
        _draw_contours(ax, record, top)
        ax.axvline(record.reference[0], **style.DASHES)
        ax.axhline(record.reference[1], **style.DASHES)
    ax.set_xlabel(style.plain(record.names[0]))
    ax.set_ylabel(style.plain(record.names[1]))
    style.colour_bar(ax, mesh, BEYOND)
    return ax


def _draw_contours(ax: Axes, record: PairSurface, top: float) -> None:
    """Contours of a surface of two numbers, and ticks where there are few values."""
    if min(record.surface.shape) > 2:
        lines = ax.contour(
            record.grid_j,
            record.grid_k,
            record.surface.T,
            levels=top * np.array([-0.8, -0.6, -0.4, -0.2, 0.2, 0.4, 0.6, 0.8]),
            colors=style.DARK,
            linewidths=0.5,
        )
        ax.clabel(lines, fontsize=7, fmt="%.2g")
    for grid, ticks in ((record.grid_j, ax.set_xticks), (record.grid_k, ax.set_yticks)):
        if len(grid) <= 5:
            ticks(grid)


def _plot_level_lines(record: PairSurface, ax: Axes | None) -> Axes:
    """One line per level over the values of a number."""
    by_row = record.levels_k is None  # the category is feature j
    levels = record.levels_j if by_row else record.levels_k
    surface = record.surface if by_row else record.surface.T
    grid, number, category = (record.grid_k, 1, 0) if by_row else (record.grid_j, 0, 1)
    ax = style.make_axes(ax, 6.0, 11)
    ax.axhline(0, color=style.GREY, lw=0.8)
    style.mark_reference(ax, record.reference[number])
    baseline = int(record.reference[category])
    for code, level in enumerate(levels or ()):
        note = " (baseline)" if code == baseline else ""
        ax.plot(
            grid,
            surface[code],
            color=style.DARK if note else style.colour_of(code),
            ls=("-", "--", ":")[code // len(style.CYCLE) % 3],
            lw=1.2 if note else 2.0,
            marker="o" if len(grid) <= 10 else None,
            label=style.legend_name(level) + note,
        )
    style.legend_of_levels(ax, record.names[category])
    return style.finish(ax, style.plain(record.names[number]), BEYOND, legend=False)


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> len(plots.plot_interactions(est.interactions(data.X)).get_xticks()) > 1
    True
    """
    check_option("kind", kind, ("directed", "strength"))
    table = getattr(record, kind)
    size = np.maximum(table.max(axis=0), table.max(axis=1))
    size = np.where(size >= FAINT * size.max(initial=0.0), size, 0.0)
    shown = np.sort(style.largest(size, max_features))
    part = table[np.ix_(shown, shown)]
    count = len(shown)
    names = [style.short(record.names[j]) for j in shown]
    side = float(np.clip(2.4 + 0.27 * count, 4.2, 11)) + style.label_room(names)
    ax = style.open_axes(ax, side + 1.2, side)
    if not part.any():
        return style.say_instead(ax, "no feature bends another")
    mesh = ax.imshow(
        np.ma.masked_less_equal(part, 0),
        cmap=style.HEAT,
        norm=Normalize(0, float(part.max(initial=0.0)) or 1.0),
    )
    font = 9 if count <= 20 else 7.5
    ax.set_xticks(np.arange(count), names, rotation=90, fontsize=font)
    ax.set_yticks(np.arange(count), names, fontsize=font)
    label = "mean |mixed derivative|, per sd of both"
    if kind == "directed":
        ax.set(ylabel="coefficient of ...", xlabel="... is bent by")
        label = "change of the coefficient, per sd of both"
    for spine in ax.spines.values():
        spine.set_visible(False)
    style.colour_bar(ax, mesh, label)
    style.say_what_is_missing(ax, count, len(record.names))
    if count <= 8:
        _write_numbers(ax, part)
    return ax


def _write_numbers(ax: Axes, part: np.ndarray) -> None:
    """The numbers in the cells of a map, unless these are too narrow for them."""
    half = 0.4 * float(part.max(initial=0.0))
    texts = []
    for j, k in zip(*np.nonzero(part > 0), strict=True):
        ink = "white" if part[j, k] > half else "black"
        middle: dict[str, Any] = {"ha": "center", "va": "center", "color": ink}
        texts.append(ax.text(k, j, f"{part[j, k]:.2g}", fontsize=8, **middle))
    figure: Any = ax.figure.canvas.figure  # the whole one, of a part as well
    figure.draw_without_rendering()  # what room the labels leave
    cell = ax.get_window_extent().width / len(part)
    if any(text.get_window_extent().width > cell for text in texts):
        for text in texts:
            text.remove()


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> ax = plots.plot_modification_graph(est.interactions(data.X))
    >>> any(text.get_text() == "x0" for text in ax.texts)
    True
    """
    table = record.directed
    order = np.argsort(-table, axis=None, kind="stable")[:max_edges]
    bent, bends = np.unravel_index(order, table.shape)
    size = table[bent, bends]
    keep = (size > 0) & (size >= FAINT * size[0])
    bent, bends, size = bent[keep], bends[keep], size[keep]
    nodes = np.unique(np.concatenate([bent, bends]))
    ax = style.open_axes(ax, 6.4, 6.0)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_xlim(-1.55, 1.55)
    ax.set_ylim(-1.35, 1.35)
    if len(nodes) == 0:
        return style.say_instead(ax, "no feature bends another")
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(nodes)) / len(nodes)
    place = np.c_[np.cos(angle), np.sin(angle)]
    start, end = np.searchsorted(nodes, bends), np.searchsorted(nodes, bent)
    for share, k, j in zip(size[::-1] / size[0], start[::-1], end[::-1], strict=True):
        arrow = {"lw": 0.6 + 3.4 * share, "alpha": 0.35 + 0.6 * share}
        arrow |= {"color": style.BLUE, "connectionstyle": "arc3,rad=0.18"}
        arrow |= {"mutation_scale": 9 + 9 * share, "shrinkA": 11, "shrinkB": 11}
        ax.add_patch(FancyArrowPatch(place[k], place[j], arrowstyle="-|>", **arrow))
    fill = [style.AMBER if acts else "white" for acts in record.roles.acts[nodes]]
    ax.scatter(place[:, 0], place[:, 1], s=200, c=fill, edgecolors=style.DARK, zorder=3)
    font = 10 if len(nodes) <= 16 else 8
    for node, (x, y) in zip(nodes, place, strict=True):
        side = "left" if x > 0.1 else "right" if x < -0.1 else "center"
        name = style.short(record.names[node])
        ax.text(1.13 * x, 1.15 * y, name, ha=side, va="center", fontsize=font)
    title = "arrow: bends the coefficient of; filled: has an effect of its own"
    n_all = int((table > 0).sum())
    if len(size) < n_all:
        title += f"\n{len(size)} of {n_all} arrows, the strongest"
    ax.set_title(title, fontsize=9, color=style.DARK)
    return ax
