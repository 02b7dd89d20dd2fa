"""One row per level: contrasts with the baseline, and of missing with the reference.

Shapes: n rows, p features, l levels of all features together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sknimo.explain._bends import is_large
from sknimo.explain._frames import Origin, Shown, cut, make_frame, pad, show_number
from sknimo.explain._kinds import eta_at
from sknimo.explain._local import exp_or_inf, find_roles, thin_rows
from sknimo.families import Family
from sknimo.features import MISSING_LABEL
from sknimo.model import FittedModel

# With hundreds of levels rows are fewer, so that contrasts do not outlast the training.
MIN_CONTRAST_ROWS = 50
# Evaluations of a large model, for contrasts of all levels, that nobody waits long for.
LARGE_EVALUATIONS = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class LevelEffects(Shown):
    """What each level does, all arrays of shape (l,).

    Levels of every category, the baseline among them, and "missing" of every feature
    that admits it, in the order of the features.

    Attributes
    ----------
    features, levels : tuple of str
    column : ndarray of int
        Position of the feature.
    value : ndarray
        Code of the level, NaN for missing.
    baseline : ndarray of bool
    family : Family
    origin : Origin
    n_rows : ndarray
        Rows with this level; their weight where rows are weighted.
    coef : ndarray
        Change of the linear predictor from the baseline to this level, everything else
        at the reference. For missing the change from the reference.
    average_effect, effect_sd : ndarray
        Mean and standard deviation of the same change over all rows, whatever level
        they have, everything else as in the row.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from sknimo import NIMORegressor
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"dose": rng.normal(size=60), "ward": ["a", "b", "c"] * 20})
    >>> y = X["dose"] + (X["ward"] == "b") + 0.1 * rng.normal(size=60)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(X, y)
    >>> est.effects(X).levels.to_frame()["level"].tolist()
    ['a', 'b', 'c']
    """

    features: tuple[str, ...]
    levels: tuple[str, ...]
    column: np.ndarray
    value: np.ndarray
    baseline: np.ndarray
    family: Family
    origin: Origin
    n_rows: np.ndarray
    coef: np.ndarray
    average_effect: np.ndarray
    effect_sd: np.ndarray

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def missing(self) -> np.ndarray:
        """Which rows stand for missing values, (l,)."""
        return np.isnan(self.value)

    @property
    def measured(self) -> np.ndarray:
        """What follows from rows and not from the model alone, (3, l)."""
        return np.stack([self.n_rows, self.average_effect, self.effect_sd])

    def of(self, column: int) -> np.ndarray:
        """Places of the levels of one feature, in the order of their codes."""
        return np.flatnonzero(self.column == column)

    def to_frame(self) -> Any:
        """One row per level, as a data frame of the library that `X` came from."""
        columns: dict[str, Any] = {
            "feature": list(self.features),
            "level": list(self.levels),
            "baseline": self.baseline,
            "n_rows": self.n_rows,
            "coef": self.coef,
            "average_effect": self.average_effect,
            "effect_sd": self.effect_sd,
        }
        name = self.family.ratio_name
        if name is not None:
            label = name.replace(" ", "_")
            columns[label] = exp_or_inf(self.coef)
            columns[f"average_{label}"] = exp_or_inf(self.average_effect)
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        if not len(self):
            return "No feature has levels"
        lines = [
            f"Effects of {len(self)} levels",
            f"{'':34}{'rows':>9}{'coef':>12}{'average':>12}{'sd':>10}",
        ]
        for at, name in enumerate(self.features):
            mark = " (baseline)" if self.baseline[at] else ""
            label = cut(name, 14) + " " + cut(self.levels[at], 18 - len(mark)) + mark
            lines.append(
                f"{pad(label, 34)}{self.n_rows[at]:9.6g}"
                f"{show_number(self.coef[at]):>12}"
                f"{show_number(self.average_effect[at]):>12}"
                f"{show_number(self.effect_sd[at], 3):>10}"
            )
        return "\n".join(lines)


def restore_levels(
    model: FittedModel, measured: np.ndarray | None = None, origin: Origin | None = None
) -> LevelEffects:
    """Levels of a model with what was measured on rows, NaN where nothing was."""
    features = model.features
    rows: list[tuple[int, float, str, bool, float]] = []
    contrasts = iter(features.coefficients(model.term_coef).tolist())
    for j, basis in enumerate(features.bases):
        own = features.levels(j)
        if own is None:
            next(contrasts, None)  # the slope
        for code, label in enumerate(own or ()):
            at_baseline = code == int(basis.reference)
            coef = 0.0 if at_baseline else next(contrasts)
            rows.append((j, float(code), str(label), at_baseline, coef))
        if features.admits_missing[j]:
            rows.append((j, np.nan, MISSING_LABEL, False, next(contrasts)))
    column, value, labels, baseline, coefs = (
        zip(*rows, strict=True) if rows else 5 * [()]
    )
    if measured is None:
        measured = np.full((3, len(rows)), np.nan)
    n_rows, average_effect, effect_sd = measured
    return LevelEffects(
        features=tuple(features.names[j] for j in column),
        levels=tuple(labels),
        column=np.array(column, dtype=int),
        value=np.array(value, dtype=float),
        baseline=np.array(baseline, dtype=bool),
        family=model.family,
        origin=Origin() if origin is None else origin,
        n_rows=n_rows,
        coef=np.array(coefs, dtype=float),
        average_effect=average_effect,
        effect_sd=effect_sd,
    )


def contrast_rows(model: FittedModel, evaluations: int) -> int:
    """Rows for which all levels can be contrasted with so many evaluations."""
    n_levels = max(len(restore_levels(model)), 1)
    return max(MIN_CONTRAST_ROWS, evaluations // n_levels)


def affordable_rows(model: FittedModel, max_rows: int | None) -> int | None:
    """At most `max_rows`, and fewer for a large model with many levels."""
    if max_rows is None or not is_large(model):
        return max_rows
    return min(max_rows, contrast_rows(model, LARGE_EVALUATIONS))


def level_effects(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray | None,
    max_rows: int | None,
    origin: Origin | None,
) -> LevelEffects:
    """Average the contrast of every level over at most `max_rows` weighted rows."""
    found = count_levels(restore_levels(model, origin=origin), table, weight)
    table, weight = thin_rows(table, weight, max_rows)
    average, spread = np.zeros((2, len(found)))
    for at, contrast in level_contrasts(model, table, found):
        average[at] = weight @ contrast
        spread[at] = np.sqrt(weight @ (contrast - average[at]) ** 2)
    return replace(found, average_effect=average, effect_sd=spread)


def level_contrasts(
    model: FittedModel, table: np.ndarray, levels: LevelEffects
) -> Iterator[tuple[int, np.ndarray]]:
    """Place among `levels` and change of eta in every row (n,), where there is any."""
    relevant = find_roles(model).relevant
    eta = model.eta(table) if len(levels) else np.zeros(len(table))
    for j in np.unique(levels.column[relevant[levels.column]]).tolist():
        before = eta_at(model, table, j, float(model.features.reference[j]), eta)
        for at in levels.of(j).tolist():
            if not levels.baseline[at]:
                yield at, eta_at(model, table, j, levels.value[at], eta) - before


def count_levels(
    levels: LevelEffects, table: np.ndarray, weight: np.ndarray | None
) -> LevelEffects:
    """The same levels with the number, or weight, of the rows that have them."""
    weight = np.ones(len(table)) if weight is None else weight
    n_rows = np.zeros(len(levels))
    for at, (j, value) in enumerate(zip(levels.column, levels.value, strict=True)):
        column = table[:, j]
        hit = np.isnan(column) if np.isnan(value) else column == value
        n_rows[at] = weight[hit].sum()
    return replace(levels, n_rows=n_rows)
