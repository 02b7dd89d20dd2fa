"""Figures of coefficients: per feature, per level, along a feature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from sknimo.exceptions import check_option
from sknimo.explain import EffectCurve, Effects, Explanation
from sknimo.plots import _style as style

# How the model's own coefficients, and those beside them, are marked.
SERIES: Sequence[dict[str, Any]] = (
    {"marker": "o", "color": style.BLUE},
    {"marker": "D", "mfc": "none", "mec": style.ORANGE, "mew": 1.6},
    {"marker": "x", "color": style.GREEN, "mew": 1.8},
    {"marker": "s", "mfc": "none", "mec": style.PINK, "mew": 1.6},
)

HOLLOW = SERIES[1] | {"mfc": "white"}


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """One line per coefficient: slopes, contrasts of levels, missing values.

    `labels` name them, `feature` and `factor` (c,) say whose they are and what makes a
    slope one per standard deviation; `coef` is (c,), and `main` marks slopes and only
    other levels, for which one number per feature can stand.
    """

    labels: list[str]
    feature: np.ndarray
    factor: np.ndarray
    coef: np.ndarray
    main: np.ndarray


def _coefficient_lines(record: Effects) -> _Lines:
    rows: list[tuple[str, int, float, float, bool]] = []
    levels = record.levels
    for j, name in enumerate(record.names):
        category = record.kinds[j] == "category"
        if not category:
            label = f"{name} (curve)" if record.kinds[j] == "curve" else name
            rows.append((label, j, record.scale[j], record.coef[j], True))
        two_levels = category and not np.isnan(record.coef[j])
        for at in levels.of(j):
            if not levels.baseline[at]:
                only_other = bool(two_levels and not levels.missing[at])
                label = f"{name}: {levels.levels[at]}"
                rows.append((label, j, 1.0, levels.coef[at], only_other))
    labels, *columns = zip(*rows, strict=True)
    return _Lines(list(labels), *map(np.array, columns))


def _spread_features(record: Effects, lines: _Lines, values: Any) -> np.ndarray:
    """Other coefficients, one per line or one per feature, as one per line."""
    other = np.asarray(values, dtype=float)
    if other.shape == lines.coef.shape:
        return other
    if other.shape != (len(record.names),):
        raise ValueError(
            f"against holds {other.shape[0]} numbers; there are {len(lines.coef)} "
            f"coefficients of {len(record.names)} features."
        )
    return np.where(lines.main, other[lines.feature], np.nan)


def _other_series(record: Effects, lines: _Lines, against: Any) -> dict[str, Any]:
    """Coefficients to draw beside the model's, by name; a bare array is the truth."""
    others = against if isinstance(against, Mapping) else {"truth": against}
    return {
        name: _spread_features(record, lines, values)
        for name, values in others.items()
        if values is not None
    }


def _largest_together(size: np.ndarray, feature: np.ndarray, most: int) -> np.ndarray:
    """The largest lines: features by their largest, those of one feature together."""
    kept = style.largest(size, most)
    rank = np.zeros(feature.max(initial=0) + 1)
    np.maximum.at(rank, feature[kept], size[kept])
    return kept[np.lexsort((kept, feature[kept], -rank[feature[kept]]))]


def _interval_ends(intervals: Any, lines: _Lines) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends, one per line."""
    lower, upper = np.asarray(intervals.lower), np.asarray(intervals.upper)
    if lower.shape != lines.coef.shape:
        raise ValueError(
            f"intervals hold {len(lower)} coefficients; there are {len(lines.coef)}. "
            "Take both from the same estimator."
        )
    return lower, upper


def plot_coefficients(
    record: Effects,
    ax: Axes | None = None,
    *,
    against: Any = None,
    intervals: Any = None,
    standardised: bool = True,
    max_features: int = 30,
) -> Axes:
    """Coefficients at the reference, beside the truth or those of rivals.

    Parameters
    ----------
    record : Effects
    ax : Axes, optional
    against : array of shape (p,) or (c,), or mapping of name to array, optional
        Others per unit, one per feature or coefficient; a bare array is the truth.
    intervals : Intervals, optional
        What `conf_int()` gave: drawn as bars, a forest plot.
    standardised : bool, default=True
        Show slopes per standard deviation instead of per unit; levels are contrasts.
    max_features : int, default=30
        Largest coefficients to show; those of one feature stand together.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> ax = plots.plot_coefficients(est.effects(data.X), against=data.coef)
    >>> ax.get_legend() is not None
    True
    """
    lines = _coefficient_lines(record)
    factor = lines.factor if standardised else np.ones_like(lines.factor)
    series = {"NIMO": lines.coef} | _other_series(record, lines, against)
    series = {name: coef * factor for name, coef in series.items()}
    size = np.nanmax([np.abs(coef) for coef in series.values()], axis=0)
    shown = _largest_together(size, lines.feature, max_features)
    labels = [lines.labels[at] for at in shown]
    ax = style.make_axes(ax, 5.2 + style.label_room(labels), len(shown))
    places = np.arange(len(shown))
    ax.axvline(0, color=style.GREY, lw=0.8)
    for at, (name, coef) in enumerate(series.items()):
        marks = SERIES[at % len(SERIES)]
        ax.plot(coef[shown], places, ls="none", ms=7 - at, label=name, **marks)
    if intervals is None:
        ax.hlines(places, 0, series["NIMO"][shown], color=style.BLUE, lw=1.2)
    else:
        ends = (each * factor for each in _interval_ends(intervals, lines))
        ax.hlines(places, *(end[shown] for end in ends), color=style.BLUE, lw=1.6)
    style.name_rows(ax, labels)
    unit = "standard deviation" if standardised else "unit"
    noun, note = "features", ""
    if len(lines.labels) > len(record.names) or "category" in record.kinds:
        noun, note = "coefficients", "\n(levels against the baseline)"
    ax.set_xlabel(f"coefficient per {unit}, at the reference{note}", wrap=True)
    if len(series) > 1:
        ax.legend(frameon=False, fontsize=9)
    style.say_what_is_missing(ax, len(shown), len(lines.labels), noun)
    return ax


def plot_levels(
    record: Effects,
    ax: Axes | None = None,
    *,
    feature: int | str | None = None,
    max_levels: int = 40,
) -> Axes:
    """Contrasts of levels and missing values: at the reference and on average.

    Parameters
    ----------
    record : Effects
    ax : Axes, optional
    feature : int or str, optional
        One feature; all that have levels by default.
    max_levels : int, default=40

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sknimo import NIMORegressor
    >>> from sknimo.plots import plot_levels
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"dose": rng.normal(size=60), "ward": ["a", "b", "c"] * 20})
    >>> y = X["dose"] + (X["ward"] == "b") + 0.1 * rng.normal(size=60)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(X, y)
    >>> len(plot_levels(est.effects(X)).get_yticklabels())
    3
    """
    levels = record.levels
    shown = np.arange(len(levels))
    if feature is not None:
        j = record.names.index(feature) if isinstance(feature, str) else feature
        shown = levels.of(j % len(record.names))
    n_all, shown = len(shown), shown[:max_levels]
    ax = style.make_axes(ax, 6.0, len(shown))
    if len(shown) == 0:
        return style.say_instead(ax, "no feature has levels")
    places = np.arange(len(shown))
    ax.axvline(0, color=style.GREY, lw=0.8)
    mean, spread = levels.average_effect[shown], levels.effect_sd[shown]
    # A broad band, for thin whiskers would be read as confidence intervals.
    band: dict[str, Any] = {"color": style.ORANGE, "lw": 7, "alpha": 0.2}
    ax.hlines(places, mean - spread, mean + spread, label="sd between rows", **band)
    ax.plot(mean, places, ls="none", ms=6, label="average", **HOLLOW)
    blue: dict[str, Any] = {"color": style.BLUE, "label": "at the reference"}
    ax.plot(levels.coef[shown], places, "o", **blue)
    owners = levels.features if feature is None else [""] * len(levels)
    names = [
        _level_label(owners[at], levels.levels[at], bool(levels.baseline[at]))
        for at in shown
    ]
    style.name_rows(ax, names, cut=False)
    note = "\n(missing: from the reference)" if levels.missing[shown].any() else ""
    note += f"\n{len(shown)} of {n_all} levels" * (len(shown) < n_all)
    ax.set_xlabel(f"change from the baseline{note}")
    if feature is not None:
        ax.set_ylabel(style.short(levels.features[shown[0]]))
    style.legend_above(ax)
    return ax


def _level_label(feature: str, level: str, baseline: bool) -> str:
    name = f"{style.short(feature, 20)}: " if feature else ""
    return name + style.short(level, 24) + (" (baseline)" if baseline else "")


def plot_effect_curve(
    record: EffectCurve,
    ax: Axes | None = None,
    *,
    rows: Explanation | None = None,
    band: Any = None,
) -> Axes:
    """What one feature does with all others at the reference.

    A line or curve over its values; points against the baseline for levels.

    Parameters
    ----------
    record : EffectCurve
    ax : Axes, optional
    rows : Explanation, optional
        Rows to scatter behind a curve: their contributions, which other features bend.
    band : Band, optional
        What `curve_band` gave: where the curve may lie, at each value and as a whole.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> plots.plot_effect_curve(est.effect_curve("x0", data.X)).get_xlabel()
    'x0'
    """
    if record.labels is not None:
        return _plot_level_effects(record, ax)
    ax = style.make_axes(ax, 6.0, 11)
    ax.axhline(0, color=style.GREY, lw=0.8)
    style.mark_reference(ax, record.reference, f"reference {record.reference_text}")
    data = record.value
    if rows is not None:
        some, j = style.thin(len(rows)), rows.column(record.feature)
        data = np.concatenate([data, rows.data[some, j]])
    known = data[~np.isnan(data)]
    absent = record.missing is not None or len(known) < len(data)
    place = style.missing_place(ax, known) if absent else np.nan
    if rows is not None:
        values, label = rows.data[some, j], "rows: contributions"
        x = np.where(np.isnan(values), place, values)
        ax.scatter(x, rows.values[some, j], label=label, **style.GREY_DOTS)
    if band is not None:
        wide, narrow = (band.all_lower, band.all_upper), (band.lower, band.upper)
        for (low, high), alpha in ((wide, 0.12), (narrow, 0.18)):
            ax.fill_between(band.value, low, high, alpha=alpha, color=style.BLUE, lw=0)
    two = len(record.value) == 2
    few = len(record.value) <= 10 and record.kind != "curve"
    mark, name = "o" if two else "o-" if few else "-", "all else at the reference"
    if two:  # there is nothing between the two
        style.mark_values(ax, record.value)
        ax.vlines(record.value, 0, record.effect, color=style.BLUE, lw=1.6)
    ax.plot(record.value, record.effect, mark, color=style.BLUE, lw=2.2, label=name)
    if record.missing is not None:
        ax.plot(place, record.missing, "s", color=style.ORANGE, label="missing")
    name, what = style.plain(record.feature), f"effect on the {record.family.eta_name}"
    return style.finish(ax, name, what, legend=rows is not None)


def _plot_level_effects(record: EffectCurve, ax: Axes | None) -> Axes:
    """Points against the baseline, one line per level."""
    baseline = int(record.reference)
    names = [
        _level_label("", label, code == baseline)
        for code, label in enumerate(record.labels or ())
    ]
    effect = record.effect
    if record.missing is not None:
        names.append("missing")
        effect = np.append(effect, record.missing)
    ax = style.make_axes(ax, 6.0, len(names))
    places = np.arange(len(names))
    ax.axvline(0, color=style.GREY, lw=0.8)
    ax.hlines(places, 0, effect, color=style.BLUE, lw=1.6)
    colours = [style.DARK if place == baseline else style.BLUE for place in places]
    ax.scatter(effect, places, s=45, c=colours, zorder=3)
    style.name_rows(ax, names, cut=False)
    ax.set_xlabel(f"effect on the {record.family.eta_name}, against the baseline")
    ax.set_ylabel(style.short(record.feature))
    return ax


def plot_nonlinearity(
    record: Effects,
    ax: Axes | None = None,
    *,
    measure: Literal["bend", "nonlinearity"] = "bend",
    max_features: int = 30,
) -> Axes:
    """How far each effect is bent, largest effects on top.

    Features that act only through others are left out: their effect averages to little
    and varies by nature.

    Parameters
    ----------
    record : Effects
    ax : Axes, optional
    measure : {"bend", "nonlinearity"}, default="bend"
        The share of the effect that varies with other features (invariant), or the
        paper's `mean |1 + g_j|`, which depends on how the network splits products.
    max_features : int, default=30

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets, plots
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> len(plots.plot_nonlinearity(est.effects(data.X)).get_yticks()) > 0
    True
    """
    check_option("measure", measure, ("bend", "nonlinearity"))
    values = getattr(record, measure)
    base = 0.0 if measure == "bend" else 1.0
    shown = style.largest(np.where(record.roles.acts, record.size, 0.0), max_features)
    names = [record.names[j] for j in shown]
    ax = style.make_axes(ax, 5.2 + style.label_room(names), len(shown))
    if np.allclose(values[shown], base):
        return style.say_instead(ax, "no effect varies with other features")
    places = np.arange(len(shown))
    ax.barh(places, values[shown] - base, left=base, color=style.BLUE, height=0.62)
    ax.axvline(base, color=style.DARK, lw=0.8)
    style.name_rows(ax, names)
    if measure == "bend":
        ax.set_xlim(0, 1)
        ax.set_xlabel("share of the effect that varies with other features", wrap=True)
    else:
        ax.set_xlabel("mean |1 + g|, 1 = unbent (depends on the split)", wrap=True)
    style.say_what_is_missing(ax, len(shown), len(record.names))
    return ax
