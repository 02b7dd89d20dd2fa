"""Figures of the training: penalty path, first layer, history."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator

from sknimo.explain import FirstLayer
from sknimo.plots import _style as style


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
    record : NIMORegressorCV or NIMOClassifierCV, or its `path_`
        An estimator names its columns; `path_` has `alphas` (T,), `coef` (T, q) and
        `index`.
    ax : Axes, optional
    names : sequence of str, optional
        Labels of the columns of `coef`: of levels and curves, not of features.
    max_labels : int, default=10
        Largest coefficients to label; the others are drawn in grey.

    Examples
    --------
    >>> from sknimo import NIMORegressorCV, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressorCV(n_starts=1, cv=2, max_iter=5, random_state=0)
    >>> est = est.fit(data.X, data.y)
    >>> plots.plot_path(est.path_).get_xlabel() != ""
    True
    """
    if hasattr(record, "model_"):
        names = _term_names(record.model_.features) if names is None else names
        record = record.path_
    if record is None:
        raise ValueError("There is no path: large tables are fitted without one.")
    alphas, coef = np.asarray(record.alphas), np.asarray(record.coef)
    names = [f"x{j}" for j in range(coef.shape[1])] if names is None else names
    if len(names) != coef.shape[1]:
        raise ValueError(
            f"names has {len(names)} entries for {coef.shape[1]} columns: categories "
            "and curves have several. Pass the estimator itself instead of its path_."
        )
    ax = style.make_axes(ax, 6.5, 11)
    labelled = style.largest(np.abs(coef).max(axis=0), max_labels)
    ax.plot(
        alphas, np.delete(coef, labelled, axis=1), color=style.GREY, lw=0.7, alpha=0.6
    )
    for at, j in enumerate(labelled):
        color = style.CYCLE[at % len(style.CYCLE)]
        dash = ("-", "--", ":")[at // len(style.CYCLE) % 3]
        ax.plot(alphas, coef[:, j], color=color, ls=dash, lw=1.8)
    ax.axhline(0, color=style.DARK, lw=0.6)
    chosen = float(alphas[record.index])
    ax.axvline(chosen, color=style.DARK, ls=style.DASHED, lw=1)
    style.note_above(ax, chosen, f"chosen {chosen:.2g}")
    ax.set_xscale("log")
    ax.set_xlim(alphas.max(), alphas.min())
    ends = coef[int(np.argmin(alphas)), labelled]
    _label_ends(ax, float(alphas.min()), ends, [names[j] for j in labelled])
    across, up = "penalty (stronger to the left)", "standardised coefficient"
    return style.finish(ax, across, up, legend=False)


def _label_ends(ax: Axes, x: float, ends: np.ndarray, names: Sequence[str]) -> None:
    """Names beside the right ends of lines, moved apart."""
    heights = style.spread_labels(ends, ax.get_ylim())
    thin = {"arrowstyle": "-", "color": style.GREY, "lw": 0.5}
    for at, (name, height) in enumerate(zip(names, heights, strict=True)):
        ax.annotate(
            style.short(name),
            (x, ends[at]),
            xytext=(1.03, height),
            textcoords=("axes fraction", "data"),
            color=style.CYCLE[at % len(style.CYCLE)],
            fontsize=9,
            va="center",
            arrowprops=thin,
        )


def _term_names(features: Any) -> list[str]:
    """A name for each term of a model: features, levels, curves, missing values."""
    names = []
    for j, (name, basis) in enumerate(zip(features.names, features.bases, strict=True)):
        n_curves = basis.n_terms - len(basis.labels)
        curves = [f"{name} (curve {k + 1})" for k in range(n_curves)]
        own = [f"{name}: {label}" for label in basis.labels]
        at = len(own)
        # The terms of a number are its line, its curves, and missing values last.
        if features.levels(j) is None:
            own[0], at = name, 1
        names += (own[:at] + curves + own[at:])[: basis.n_terms]
    return names


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

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> len(plots.plot_first_layer(est.first_layer()).get_xticks()) > 0
    True
    """
    size = record.size[member].T  # (p, h)
    p, n_units = size.shape
    ax = style.make_axes(ax, 5.5, p, row_height=0.17 if p > 20 else 0.28)
    if not size.any():
        return style.say_instead(ax, "the network reads no feature: there is none")
    norm = Normalize(0, float(size.max(initial=0.0)) or 1.0)
    mesh = ax.imshow(
        np.ma.masked_equal(size, 0), aspect="auto", cmap=style.HEAT, norm=norm
    )
    style.name_rows(ax, list(record.names))
    ax.set_xticks(np.arange(0, n_units, max(1, n_units // 8)))
    ax.set_xlabel("unit of the first layer")
    n_read = int((size.max(axis=1) > 0).sum())
    ax.set_title(f"the network reads {n_read} of {p} features", fontsize=10, loc="left")
    style.colour_bar(ax, mesh, "size of weight (white: zero)")
    return ax


def plot_history(record: Any, ax: Axes | None = None) -> Axes:
    """Objective and sparsity during training.

    Parameters
    ----------
    record : History
        `history_` of a fitted estimator. A second axis counts features.
    ax : Axes, optional

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> plots.plot_history(est.history_).get_xlabel() != ""
    True
    """
    ax = style.make_axes(ax, 6.5, 11)
    lines = ax.plot(record.step, record.objective, color=style.BLUE, lw=1.8)[:1]
    lines[0].set_label("objective")
    if np.isfinite(record.validation).any():
        held_out = ax.plot(
            record.step, record.validation, color=style.ORANGE, lw=1.8, ls=(0, (5, 2))
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
        (record.n_features, style.GREEN, "-", "features with a coefficient"),
        (record.n_inputs, style.PINK, ":", "features the network reads"),
    ):
        lines += count.step(
            record.step, number[:, 0], where="post", color=color, ls=ls, label=label
        )
    count.set_ylabel("number of features")
    count.set_ylim(bottom=0)
    count.yaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend_above(ax, handles=lines)
    for spine in (ax.spines["top"], count.spines["top"]):
        spine.set_visible(False)
    return ax
