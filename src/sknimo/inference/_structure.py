"""Is any bend needed, and between which features: tests with a stated error rate.

*Any bend.* Members that have not seen a row predict it with and without bends. What
the bends add, less all that lines and curves could have added, must go along with what
is left of the row by the model without them: their mean product over its standard error
is normal where no bend is true, but for choices that the same rows have made.

*A pair.* Products of the columns of two features, less what lines, curves and the bends
of other pairs explain, are held against the residuals of a GLM that has those alone.
The score test takes residuals as they are, equal in variance or not. A product may sit
in the coefficient of either feature: data cannot tell who bends whom.

Shapes: n rows, q terms, d columns, t pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from sknimo.explain import Origin, Shown, make_frame
from sknimo.features import FeatureMap
from sknimo.inference._average import KnownRows, fit_columns, lead_columns
from sknimo.model import FittedModel

# Features whose pairs are tested, those that matter most.
MAX_FEATURES = 15
# Rows for each column of lines and curves; with fewer, squares stand for curves.
ROWS_PER_COLUMN = 8
# The rows that test a bend have also chosen its weight and when training stopped: as if
# so many bends had been tried. In 200 additive tables of 300 rows 9 % of the p-values
# were below 0.05 without this, 3 % with it.
CHOICES = 10
# Products of two categories beyond this many columns are not tested.
MAX_PRODUCTS = 30


@dataclass(frozen=True, slots=True, eq=False)
class BendTests(Shown):
    """Whether effects depend on other features.

    Attributes
    ----------
    statistic, p_value : float
        Of any bend at all, from rows held out: a normal deviate, large for bends. NaN
        where no rows were held out; 1 where the fit has found no bend to test.
    pairs : tuple of (str, str)
        The most significant first.
    pair_statistic : ndarray of shape (t,)
        Chi squared, with `df` degrees of freedom.
    df : ndarray of shape (t,), integer
    pair_p_value : ndarray of shape (t,)
        Of the pair alone.
    adjusted : ndarray of shape (t,)
        The same after Holm, for all pairs of the table: of those below `level` the
        chance that one is false is at most `level`.
    level : float
    origin : Origin

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo import NIMORegressor
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(200, 3))
    >>> y = X[:, 0] * (1 + X[:, 1]) + random.normal(size=200)
    >>> NIMORegressor(max_iter=0).fit(X, y).test_bends(X, y).found
    (('x0', 'x1'),)
    """

    statistic: float
    p_value: float
    pairs: tuple[tuple[str, str], ...]
    pair_statistic: np.ndarray
    df: np.ndarray
    pair_p_value: np.ndarray
    adjusted: np.ndarray
    level: float
    origin: Origin

    @property
    def found(self) -> tuple[tuple[str, str], ...]:
        """Pairs that bend each other, beyond chance at the level."""
        return tuple(
            pair
            for pair, p in zip(self.pairs, self.adjusted, strict=True)
            if p < self.level
        )

    def to_frame(self) -> Any:
        """One row per pair."""
        columns = {
            "feature": [one for one, _ in self.pairs],
            "other": [two for _, two in self.pairs],
            "chi2": self.pair_statistic,
            "df": self.df,
            "p_value": self.pair_p_value,
            "adjusted": self.adjusted,
        }
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = ["Tests of bends"]
        if not math.isnan(self.p_value):
            lines.append(f"  any bend, rows held out: p = {self.p_value:.3g}")
        for pair, p in list(zip(self.pairs, self.adjusted, strict=True))[:10]:
            lines.append(f"  {pair[0]} and {pair[1]}: adjusted p = {p:.3g}")
        return "\n".join(lines)


def bend_tests(
    model: FittedModel,
    rows: KnownRows,
    straight: np.ndarray | None,
    importance: np.ndarray,
    bent: np.ndarray,
    *,
    level: float,
    origin: Origin,
) -> BendTests:
    """Test for any bend, and the pairs of the most important features.

    `straight` (n,) is the linear predictor without bends by members that have not seen
    the row. `importance` (p,) orders features, `bent` (p, p) says whose bends the model
    has.
    """
    features, own = model.features, []
    for j, column in enumerate(rows.table.T):
        own.append(lead_columns(features, j, column))
    columns = _smooth_columns(features, rows.table, own)
    statistic = p_value = math.nan
    if rows.held_out is not None and straight is not None:
        statistic = _any_bend(model, rows, straight, columns)
        tail = math.erfc(statistic / math.sqrt(2)) / 2
        p_value = 1.0 if statistic == 0 else min(1.0, CHOICES * tail)
    p = features.n_features
    tested = np.sort(np.argsort(-importance, kind="stable")[:MAX_FEATURES])
    products = {
        (j, k): _products(own[j], own[k])
        for j, k in combinations(tested.tolist(), 2)
        if 0 < own[j].shape[1] * own[k].shape[1] <= MAX_PRODUCTS
    }
    held = bent | bent.T
    found = []
    for pair, product in products.items():
        others = [x for other, x in products.items() if other != pair and held[other]]
        found.append((pair, *_pair_test(model, rows, columns, others, product)))
    found.sort(key=lambda each: each[3])
    p_values = np.array([each[3] for each in found])
    names = features.names
    return BendTests(
        statistic=statistic,
        p_value=p_value,
        pairs=tuple((names[j], names[k]) for (j, k), *_ in found),
        pair_statistic=np.array([each[1] for each in found]),
        df=np.array([each[2] for each in found], dtype=int),
        pair_p_value=p_values,
        adjusted=holm(p_values, max(len(found), p * (p - 1) // 2)),
        level=level,
        origin=origin,
    )


def holm(p_values: np.ndarray, n_tests: int) -> np.ndarray:
    """Adjust p-values in order for `n_tests`, of which the others are not small.

    Examples
    --------
    >>> holm(np.array([0.01, 0.02, 0.6]), 3).round(6)
    array([0.03, 0.04, 0.6 ])
    """
    factor = n_tests - np.arange(len(p_values))
    return np.minimum(np.maximum.accumulate(factor * p_values), 1.0)


def _any_bend(
    model: FittedModel, rows: KnownRows, straight: np.ndarray, columns: np.ndarray
) -> float:
    """Mean product of bends and residuals over its standard error; zero without any."""
    assert rows.held_out is not None
    known = np.isfinite(rows.held_out) & np.isfinite(straight)
    y, at = torch.as_tensor(rows.y[known]), torch.as_tensor(straight[known])
    score = model.family.score(y, at).numpy()
    heavy = rows.weight[known] * model.family.curvature(y, at).numpy()
    added = (rows.held_out - straight)[known]
    added = _residual(added[:, None], columns[known], heavy)[:, 0]
    moves = np.zeros((len(known), 1))
    moves[known, 0] = added * score
    spread = math.sqrt(float(_variance(rows, moves)[0, 0]))
    return float(rows.weight @ moves[:, 0]) / spread if spread > 0 else 0.0


def _variance(rows: KnownRows, moves: np.ndarray) -> np.ndarray:
    """Variance of the weighted sum of what rows add, (n, m), as (m, m)."""
    parts, weight = rows.independent(moves)
    return (parts * weight[:, None]).T @ parts


def _pair_test(
    model: FittedModel,
    rows: KnownRows,
    columns: np.ndarray,
    others: Sequence[np.ndarray],
    product: np.ndarray,
) -> tuple[float, int, float]:
    """Chi squared, degrees of freedom and p-value of the products of one pair."""
    n = len(rows.y)
    room = n // ROWS_PER_COLUMN - columns.shape[1]
    base = [columns]
    for each in others:
        if each.shape[1] <= room:
            base.append(each)
            room -= each.shape[1]
    within = np.column_stack(base)
    share = rows.weight / rows.weight.sum()
    fit = fit_columns(model.family, rows.y, rows.offset, within, share)
    left = _residual(product, within, share * fit.curvature)
    moves = left * fit.score[:, None]
    total = rows.weight @ moves
    values, vectors = np.linalg.eigh(_variance(rows, moves))
    kept = values > 1e-8 * max(values[-1], 1e-300)
    if not kept.any():
        return 0.0, 0, 1.0
    turned = total @ vectors[:, kept]
    statistic = float((turned**2 / values[kept]).sum())
    df = int(kept.sum())
    half = torch.tensor([df / 2, statistic / 2], dtype=torch.float64)
    return statistic, df, float(torch.special.gammaincc(half[0], half[1]))


def _residual(
    values: np.ndarray, columns: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """What weighted least squares on the columns leaves of values (n, k)."""
    root = np.sqrt(np.maximum(weight, 0.0))[:, None]
    coef = np.linalg.lstsq(root * columns, root * values, rcond=1e-10)[0]
    return np.asarray(values - columns @ coef)


def _smooth_columns(
    features: FeatureMap, table: np.ndarray, own: Sequence[np.ndarray]
) -> np.ndarray:
    """A constant, and all that acts along single features, (n, d)."""
    terms, one = features.terms(table), np.ones((len(table), 1))
    lead = np.column_stack([one, *own])
    numeric = [features.levels(j) is None for j in features.term_feature]
    curved = np.flatnonzero(np.array(numeric, dtype=bool))
    first = np.unique(features.term_feature[curved], return_index=True)[1]
    squares = terms[:, curved[first]] ** 2
    more = terms[:, features.term_group >= features.n_features]
    wide = np.column_stack([lead, squares, more])
    if wide.shape[1] * ROWS_PER_COLUMN <= len(table):
        return wide
    return np.column_stack([lead, squares])


def _products(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Products of all columns of two features, (n, .)."""
    return (one[:, :, None] * two[:, None, :]).reshape(len(one), -1)
