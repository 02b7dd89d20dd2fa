"""Figures of how good predictions are, and of how they move with a feature."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sknimo.diagnostics import Calibration, Dependence, Residuals, Roc
from sknimo.explain import spread_rows
from sknimo.plots import _style as style

# Thresholds that are marked on a curve.
MARKED = (0.1, 0.3, 0.5, 0.7, 0.9)


def _series(record: Any) -> Mapping[str, Any]:
    """One record, or several by name to compare."""
    return record if isinstance(record, Mapping) else {"": record}


def plot_roc(record: Roc | Mapping[str, Roc], ax: Axes | None = None) -> Axes:
    """Sensitivity against the share of false alarms, some thresholds marked.

    Parameters
    ----------
    record : Roc, or mapping of name to Roc
        Several models are drawn into one figure.
    ax : Axes, optional

    Examples
    --------
    >>> from sknimo.diagnostics import judge_thresholds
    >>> from sknimo.plots import plot_roc
    >>> ax = plot_roc(judge_thresholds([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]))
    >>> ax.get_legend().get_texts()[0].get_text()
    'AUC 0.750'
    """
    ax = style.make_axes(ax, 5.0, 12)
    ax.plot([0, 1], [0, 1], **style.DASHES)
    series = _series(record)
    for at, (name, each) in enumerate(series.items()):
        label = f"{style.legend_name(name)} " if name else ""
        color = style.CYCLE[at % len(style.CYCLE)]
        x, y = 1 - each.specificity, each.sensitivity
        ax.plot(x, y, color=color, lw=2, label=f"{label}AUC {each.auc:.3f}")
        some = each.at(MARKED)
        ax.plot(1 - some.specificity, some.sensitivity, "o", color=color, ms=4)
        if len(series) == 1:
            for place, threshold in enumerate(some.threshold):
                ax.annotate(
                    f"{threshold:g}",
                    (1 - some.specificity[place], some.sensitivity[place]),
                    xytext=(5, -9),
                    textcoords="offset points",
                    fontsize=8,
                )
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.set_aspect("equal")
    across = "1 - specificity (false alarms)\ndots: thresholds 0.1, 0.3, ... 0.9"
    return style.finish(ax, across, "sensitivity (hits)", loc="lower right")


def plot_calibration(
    record: Calibration | Mapping[str, Calibration], ax: Axes | None = None
) -> Axes:
    """What happened against what was predicted, in bins, with 95 % intervals.

    Parameters
    ----------
    record : Calibration, or mapping of name to Calibration
    ax : Axes, optional

    Examples
    --------
    >>> from sknimo.diagnostics import calibrate
    >>> from sknimo.plots import plot_calibration
    >>> bins = calibrate([0, 0, 1, 1], [0.1, 0.4, 0.6, 0.8], is_probability=True)
    >>> plot_calibration(bins).get_ylabel()
    'observed share'
    """
    ax = style.make_axes(ax, 5.0, 12)
    series = _series(record)
    every = [each.predicted for each in series.values()]
    every += [end for each in series.values() for end in (each.low, each.high)]
    low, high = np.concatenate(every).min(), np.concatenate(every).max()
    probability = all(each.is_probability for each in series.values())
    if probability:
        low, high = 0.0, 1.0
    ax.plot([low, high], [low, high], zorder=0, **style.DASHES)
    for at, (name, each) in enumerate(series.items()):
        color = style.CYCLE[at % len(style.CYCLE)]
        ax.vlines(each.predicted, each.low, each.high, color=color, lw=1.2, alpha=0.6)
        mark = style.MARKERS[at % len(style.MARKERS)]
        label = style.legend_name(name) if name else None
        ax.plot(each.predicted, each.observed, f"{mark}-", color=color, label=label)
    room = 0.02 * (high - low)
    ax.set_xlim(low - room, high + room)
    ax.set_ylim(low - room, high + room)
    names = ("predicted response", "observed mean")
    if probability:
        names = ("predicted probability", "observed share")
    return style.finish(ax, *names, legend=len(series) > 1)


def plot_residuals(record: Residuals, ax: Axes | None = None) -> Axes:
    """Deviance residuals against predictions, with their running mean.

    Parameters
    ----------
    record : Residuals
    ax : Axes, optional

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> plots.plot_residuals(est.residuals(data.X, data.y)).get_xlabel()
    'prediction'
    """
    ax = style.make_axes(ax, 6.0, 11)
    rows = style.thin(len(record.predicted))
    for height in (-2, 2):
        ax.axhline(height, color=style.GREY, lw=0.6, ls=style.DASHED)
    ax.axhline(0, color=style.GREY, lw=0.8)
    x, y = record.predicted[rows], record.residual[rows]
    ax.scatter(x, y, **style.GREY_DOTS)
    order = np.argsort(record.predicted, kind="stable")
    parts = np.array_split(order, min(20, max(len(order) // 10, 1)))
    mean_x = [record.predicted[part].mean() for part in parts]
    mean_y = [record.residual[part].mean() for part in parts]
    ax.plot(mean_x, mean_y, "o-", color=style.BLUE, ms=4, label="running mean")
    beyond = float((np.abs(record.residual) > 2).mean())
    told = f"{beyond:.1%} beyond 2 (about 5 % if the family is right)"
    ax.set_title(told, fontsize=9, loc="left")
    return style.finish(ax, "prediction", "deviance residual, in standard deviations")


def plot_dependence(
    record: Dependence, ax: Axes | None = None, *, max_rows: int = 60
) -> Axes:
    """Partial dependence on the response scale, over the lines of single rows.

    Parameters
    ----------
    record : Dependence
    ax : Axes, optional
    max_rows : int, default=60
        Rows to draw, evenly spaced.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> plots.plot_dependence(est.dependence(data.X, "x0")).get_xlabel()
    'x0'
    """
    ax = style.make_axes(ax, 6.0, 11)
    lines = record.rows[spread_rows(len(record.rows), max_rows)]
    few = record.levels is not None or len(record.grid) == 2
    thin: dict[str, Any] = {"color": style.GREY, "lw": 0.6, "alpha": 0.5}
    ax.plot(record.grid, lines.T, ls=":" if few else "-", **thin)
    ax.plot([], [], label="single rows", **thin)
    mark = "D" if few else "-"
    ax.plot(record.grid, record.mean, mark, color=style.BLUE, lw=2.4, label="mean")
    if record.levels is not None:
        style.name_levels(ax, record.levels)
    elif few:
        style.mark_values(ax, record.grid)
    return style.finish(ax, style.plain(record.feature), record.response)


def plot_beside(
    one: np.ndarray, two: np.ndarray, names: tuple[str, str], ax: Axes | None = None
) -> Axes:
    """Predictions of one model against those of another, row by row.

    Parameters
    ----------
    one, two : ndarray of shape (n,)
    names : tuple of two str
        What the models are called.
    ax : Axes, optional

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo.plots import plot_beside
    >>> plot_beside(np.arange(3.0), np.arange(3.0), ("old", "new")).get_ylabel()
    'prediction of new'
    """
    ax = style.make_axes(ax, 5.0, 12)
    rows = style.thin(len(one))
    low, high = min(one.min(), two.min()), max(one.max(), two.max())
    ax.plot([low, high], [low, high], zorder=0, **style.DASHES)
    ax.scatter(one[rows], two[rows], s=12, color=style.BLUE, **style.DOTS)
    across, up = (f"prediction of {style.plain(name)}" for name in names)
    return style.finish(ax, across, up, legend=False)
