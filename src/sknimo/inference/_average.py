"""Average effects of a population, with intervals.

The plain average of a penalised model is biased, and its spread over rows is no
standard error. Let `b(x)` be a dictionary of the model's lines and levels, and of a
curve along the line of each feature that has one. Rows held out, or those given, are
fitted by `eta + e'b(x)`, unpenalised and with `eta` known: what pulled the model away
from them, along the dictionary, is undone. With the effect `m(x; eta)` of a row there,
the family's score s and curvature v, and the leverage h in that fit, each row then has

    psi = m(x; eta) + a'b(x) s(y, eta) / (1 - h),
    a = mean(v b b')^-1 mean(dm / d eta . b)

whose standard error is that of a mean. `a'b` is the Riesz representer of the effect.
Without a network and a penalty nothing is moved, and this is the delta method of a GLM
with standard errors that heteroscedasticity does not fool (HC3).

In 72 to 74 simulated tables of 200 rows (designs of `benchmarks/intervals.py`), lines
without leverages / as it is: coverage in "mixed" .92 / .95, "bends" .91 / .93,
"uneven" .92 / .94, "linear" .97 / .99; false claims in "correlated" .10 / .07, "mixed"
.08 / .04. Curves are lines that turn at quantiles. The average slope of a learned curve
hangs on its ends, where a skewed column has few rows or many at once. With two smooth
curves instead, 26 tables of "mixed" by bags (2,000 rows) missed 9 of 52 averages of
its exponential columns, with these 2; intervals of normal columns are 4 % wider.

Shapes: n rows, p features, c coefficients, d columns of the dictionary, g groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from sknimo.explain import (
    MAX_ROWS,
    Comparisons,
    Effects,
    Move,
    Origin,
    Shown,
    eta_at,
    make_frame,
    mean_of,
    mean_slope,
    moves_of,
    spread_rows,
    weighted_quantiles,
)
from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.model import FittedModel

# Evaluations of the model for all effects together, and rows that are not gone below.
EVALUATIONS = 400_000
MIN_ROWS = 500
# The same at the end of a fit, which must not take long.
FEW_EVALUATIONS = 30_000
FEW_ROWS = 200
# Rows beyond the columns of the dictionary: with fewer nothing honest can be said.
SPARE_ROWS = 10
# Turns of a curve in the dictionary, as many as there are rows for every column.
N_TURNS = (4, 2)
ROWS_PER_COLUMN = 5
# Values of a feature that has them: of three, line and curves would tell nothing.
LEAST_VALUES = 8
NOWHERE = np.empty(0)
# Newton steps of the dictionary; a few suffice.
STEPS = 20
# What a row leaves to others is taken to be no less.
LEAST_LEFT = 1e-3
# Relative ridge that keeps equal columns apart.
TIE_BREAK = 1e-10
# Columns whose combination varies less are combinations of each other; and the share of
# an effect along such a combination beyond which it is not known.
UNKNOWN = 1e-9
UNKNOWN_SHARE = 1e-6
# Variance of an effect relative to that without other features from which on these tell
# it almost as well: what is left of it is anybody's guess. A variance inflation factor,
# which is called large from ten on.
MOST_INFLATED = 100.0
# Share of the information on an effect from which on it hangs on rows that are alone.
MOST_ALONE = 0.01
ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class AverageEffects(Shown):
    """Average effects and their standard errors; arrays of shape (c,) for each group.

    Attributes
    ----------
    names : tuple of str
        As `coef_names_`: features, and levels against their baseline.
    groups : tuple of str
        "all", or the groups; a difference is called "b - a".
    effect, std_err : ndarray of shape (g, c)
        On the linear predictor, per unit or from baseline to level. NaN where nothing
        honest can be said.
    response, response_std_err : ndarray of shape (g, c)
        The same on the response. Where it is another scale, this is the one to quote:
        the other leans more on the model.
    n_rows : ndarray of shape (g,)
    level : float
    held_out : bool
        Whether residuals are those of rows that the model has not seen.
    is_identity : bool
        Whether response and linear predictor are the same.
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
    >>> found = est.average_effects(data.X, data.y)
    >>> bool((found.lower < found.upper).all())
    True
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    effect: np.ndarray
    std_err: np.ndarray
    response: np.ndarray
    response_std_err: np.ndarray
    n_rows: np.ndarray
    level: float
    held_out: bool
    is_identity: bool
    origin: Origin

    @property
    def _reach(self) -> float:
        return NormalDist().inv_cdf((1 + self.level) / 2)

    @property
    def lower(self) -> np.ndarray:
        """Lower ends on the linear predictor, (g, c)."""
        return self.effect - self._reach * self.std_err

    @property
    def upper(self) -> np.ndarray:
        """Upper ends on the linear predictor, (g, c)."""
        return self.effect + self._reach * self.std_err

    @property
    def response_lower(self) -> np.ndarray:
        """Lower ends on the response, (g, c)."""
        return self.response - self._reach * self.response_std_err

    @property
    def response_upper(self) -> np.ndarray:
        """Upper ends on the response, (g, c)."""
        return self.response + self._reach * self.response_std_err

    def beside(self, found: Effects, owner: np.ndarray) -> Effects:
        """Effects with averages on the response, NaN for more than two levels.

        `owner` (c,) is the feature of each coefficient.
        """
        kept = [
            j
            for j in range(len(found.names))
            if not np.isnan(found.coef[j]) and (owner == j).any()
        ]
        first = [int(np.flatnonzero(owner == j)[0]) for j in kept]

        def take(values: np.ndarray) -> np.ndarray:
            out = np.full(len(found.names), np.nan)
            out[kept] = values[0, first]
            return out

        return replace(
            found,
            corrected=take(self.response),
            std_err=take(self.response_std_err),
            lower=take(self.response_lower),
            upper=take(self.response_upper),
        )

    def to_frame(self) -> Any:
        """One row per group and coefficient."""
        g, c = self.effect.shape
        columns: dict[str, Any] = {"coefficient": list(self.names) * g}
        if self.groups != (ALL,):
            columns["group"] = [name for name in self.groups for _ in range(c)]
        kinds = ["effect", "std_err", "lower", "upper"]
        if not self.is_identity:
            kinds += ["response", "response_std_err"]
            kinds += ["response_lower", "response_upper"]
        columns |= {name: getattr(self, name).ravel() for name in kinds}
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        how = "rows held out" if self.held_out else "the rows given"
        lines = [
            f"Average effects, {100 * self.level:g} % intervals, residuals of {how}"
        ]
        for k, group in enumerate(self.groups):
            if self.groups != (ALL,):
                lines.append(f"{group}, {self.n_rows[k]} rows")
            for j, name in enumerate(self.names):
                lines.append(
                    f"  {name[:24]:24} {self.effect[k, j]:>10.4g} "
                    f"[{self.lower[k, j]:.4g}, {self.upper[k, j]:.4g}]"
                )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """Rows with their targets.

    `held_out` (n,) is the linear predictor by members that have not seen the row,
    offset included; that of the model where all are new. NaN is not known.
    """

    table: np.ndarray  # (n, p)
    y: np.ndarray  # (n,)
    weight: np.ndarray  # (n,)
    offset: np.ndarray  # (n,), zero without one
    held_out: np.ndarray | None  # (n,)
    cluster: np.ndarray | None = None  # (n,), whole numbers
    population: bool = True  # whether the rows are a sample of those that matter

    @property
    def whole(self) -> bool:
        """Whether a row of weight w is w rows."""
        return bool((self.weight == np.round(self.weight)).all())

    def independent(self, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Independent parts of what rows add (n, m), and how much their squares count.

        A row of a whole weight w is w rows; groups add as one.
        """
        if self.cluster is None:
            return moves, self.weight if self.whole else self.weight**2
        total = np.zeros((int(self.cluster.max()) + 1, moves.shape[1]))
        np.add.at(total, self.cluster, self.weight[:, None] * moves)
        count = len(np.unique(self.cluster[self.weight > 0]))
        return total, np.full(len(total), count / max(count - 1, 1))


@dataclass(frozen=True, slots=True, eq=False)
class _Influence:
    """Estimates (c,) and what a unit of weight of each row adds to them, (n, c)."""

    estimate: np.ndarray
    rows: np.ndarray

    def minus(self, other: _Influence) -> _Influence:
        return _Influence(self.estimate - other.estimate, self.rows - other.rows)

    def std_err(self, rows: KnownRows) -> np.ndarray:
        """Standard error of each estimate, (c,)."""
        parts, weight = rows.independent(self.rows)
        return np.sqrt(weight @ parts**2)


def average_effects(
    model: FittedModel,
    rows: KnownRows,
    *,
    by: Sequence[tuple[str, np.ndarray]] = (),
    level: float = 0.95,
    origin: Origin,
) -> AverageEffects:
    """Average effects over all rows, or over each of some groups (name, mask (n,)).

    Groups are populations of their own: nothing is borrowed. Differences to the first
    follow the groups.
    """
    count = max(1, 2 * len(model.features.coef_feature))
    most = max(MIN_ROWS, EVALUATIONS // count)
    parts = list(by) or [(ALL, np.ones(len(rows.y), dtype=bool))]
    fewest = min(int(mask.sum()) for _, mask in parts)
    prepared = _prepare(model, rows, most, fewest)
    names, sizes, found = [], [], []
    for name, mask in parts:
        names.append(name)
        sizes.append(int(mask.sum()))
        found.append(_correct(model, rows, prepared, mask))
    for k in range(1, len(parts)):
        names.append(f"{names[k]} - {names[0]}")
        sizes.append(sizes[k] + sizes[0])
        found.append([a.minus(b) for a, b in zip(found[k], found[0], strict=True)])
    errors = [[each.std_err(rows) for each in pair] for pair in found]
    return AverageEffects(
        names=model.features.coef_names,
        groups=tuple(names),
        effect=np.array([pair[0].estimate for pair in found]),
        std_err=np.array([pair[0] for pair in errors]),
        response=np.array([pair[1].estimate for pair in found]),
        response_std_err=np.array([pair[1] for pair in errors]),
        n_rows=np.array(sizes),
        level=level,
        held_out=rows.held_out is not None,
        is_identity=model.family.link == "identity",
        origin=origin,
    )


def correct_comparisons(
    model: FittedModel, rows: KnownRows, compared: Comparisons
) -> Comparisons:
    """Comparisons with the corrected average of each step, and its standard error."""
    count = max(1, 2 * len(model.features.coef_feature))
    most = min(MAX_ROWS, max(FEW_ROWS, FEW_EVALUATIONS // count))
    prepared = _prepare(model, rows, most, len(rows.y), compared.step)
    found = _correct(model, rows, prepared, np.ones(len(rows.y), dtype=bool))
    parts = [(each.estimate, each.std_err(rows)) for each in found]
    return replace(compared, corrected=np.array([x for pair in parts for x in pair]))


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """What all groups share: moves of some rows, dictionary and scores of all."""

    kept: np.ndarray  # rows that are moved
    moves: tuple[Move, ...]
    columns: np.ndarray  # (n, d)
    owner: np.ndarray  # feature of each column after the constant, (d - 1,)
    turns: tuple[np.ndarray, ...]  # of each feature, where its line may turn
    left: np.ndarray  # (n,), linear predictors of rows held out
    offset: np.ndarray  # (n,)


def _prepare(
    model: FittedModel,
    rows: KnownRows,
    most: int,
    fewest: int,
    steps: np.ndarray | None = None,
) -> _Prepared:
    """Move `most` rows; `fewest` are the rows of the smallest group."""
    features, kept = model.features, spread_rows(len(rows.y), most)
    turns = _find_turns(model, rows, fewest)
    parts = [
        lead_columns(features, j, rows.table[:, j], own) for j, own in enumerate(turns)
    ]
    owner = np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])
    columns = np.column_stack([np.ones(len(rows.y)), *parts])
    eta = model.eta(rows.table) + rows.offset
    left = eta
    if rows.held_out is not None:
        left = np.where(np.isfinite(rows.held_out), rows.held_out, eta)
    return _Prepared(
        kept=kept,
        moves=tuple(_all_moves(model, rows.table[kept], steps)),
        columns=columns,
        owner=owner,
        turns=turns,
        left=left,
        offset=rows.offset,
    )


def _all_moves(
    model: FittedModel, table: np.ndarray, steps: np.ndarray | None
) -> Iterator[Move]:
    """Every move of every feature that varies: by `steps` (c,), or slopes per unit."""
    features = model.features
    eta, owner = model.eta(table), features.coef_feature
    for j, basis in enumerate(features.bases):
        if basis.n_terms:
            before = eta
            if features.levels(j) is not None or features.admits_missing[j]:
                before = eta_at(model, table, j, basis.reference, eta)
            step = np.nan if steps is None else float(steps[owner == j][0])
            yield from moves_of(model, table, j, eta, before, step)


def _correct(
    model: FittedModel, rows: KnownRows, made: _Prepared, mask: np.ndarray
) -> list[_Influence]:
    """Average effects of the rows in `mask` on linear predictor and response."""
    features, n, c = model.features, len(rows.y), len(model.features.coef_feature)
    total = float(rows.weight[mask].sum())
    weight = np.where(mask, rows.weight, 0.0) / total
    some = mask[made.kept]
    shapes = c, (n, c)
    out = [_Influence(*(np.full(shape, np.nan) for shape in shapes)) for _ in range(2)]
    if total < made.columns.shape[1] + SPARE_ROWS:
        return out
    moved = fit_columns(model.family, rows.y, made.left, made.columns, weight)
    score = moved.score
    leverage = moved.leverage(made.columns) / total
    leverage = leverage if rows.whole else rows.weight * leverage
    # The only row of a level leaves nothing of itself to tell how well it is known.
    heavy = weight * moved.curvature
    alone = np.where(leverage > 1 - LEAST_LEFT, heavy, 0.0)
    if rows.cluster is None:
        score = score / np.maximum(1 - leverage, LEAST_LEFT)
    varies = np.ptp(made.columns[mask][:, 1:], axis=0) > 0
    size, unknown = moved.unknown()
    for move in made.moves:
        feature = int(features.coef_feature[move.coef])
        owned, turns = made.owner == feature, made.turns[feature]
        ends = [lead_columns(features, feature, at, turns) for at in move.values]
        changed = (ends[1] != ends[0])[some].any(axis=0)
        # A level that counts as another moves nothing.
        known = bool(changed.any() and varies[owned][changed].all())
        for response, each in enumerate(out):
            effect = _effect(model, made, moved, move, owned, ends, bool(response))
            share = weight[made.kept] * (some & np.isfinite(effect.value))
            if not known or share.sum() <= 0:
                continue
            share = share / share.sum()
            value = np.where(share > 0, effect.value, 0.0)
            mean = float(share @ value)
            slope = effect.slope(share)
            along = unknown.T @ (slope / size)
            if along @ along > UNKNOWN_SHARE * ((slope / size) @ (slope / size)):
                continue  # another column could do as well
            if not response and _inflation(moved.gram, slope, owned) > MOST_INFLATED:
                break  # nor is the response known
            riesz = made.columns @ np.linalg.solve(moved.gram, slope)
            if alone @ riesz**2 > MOST_ALONE * (heavy @ riesz**2):
                break
            pull = np.where(mask, riesz * score, 0.0)
            each.estimate[move.coef] = mean
            if rows.population:
                # Of rows that are moved each stands for those that are not.
                there = made.kept[share > 0]
                pull[there] += (share * (value - mean))[share > 0] / weight[there]
            each.rows[:, move.coef] = pull / total
    return out


def _inflation(gram: np.ndarray, slope: np.ndarray, owned: np.ndarray) -> float:
    """Variance of an effect, relative to that beside a constant alone."""
    own = np.append(True, owned)
    alone = np.linalg.solve(gram[np.ix_(own, own)], slope[own])
    return float(slope @ np.linalg.solve(gram, slope) / (slope[own] @ alone))


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFit:
    """An unpenalised GLM of some columns, and what is left of the rows."""

    coef: np.ndarray  # (d,)
    score: np.ndarray  # (n,)
    curvature: np.ndarray  # (n,)
    gram: np.ndarray  # (d, d), mean of curvature times products of columns

    def unknown(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes of the columns (d,), and directions in these units that no row tells.

        The directions are (d, u), of length one.
        """
        size = np.sqrt(np.maximum(np.diag(self.gram), 1e-300))
        values, vectors = np.linalg.eigh(self.gram / np.outer(size, size))
        return size, vectors[:, values < UNKNOWN]

    def leverage(self, columns: np.ndarray) -> np.ndarray:
        """How far each row pulls its own fit, times the number of rows, (n,)."""
        solved = np.linalg.solve(self.gram, columns.T)
        return np.asarray(self.curvature * (columns.T * solved).sum(0))


def fit_columns(
    family: Family,
    y: np.ndarray,
    known: np.ndarray,
    columns: np.ndarray,
    weight: np.ndarray,
) -> ColumnFit:
    """Fit rows by a `known` part (n,) of eta and columns (n, d); weights sum to one."""
    target = torch.as_tensor(y)

    def look(coef: np.ndarray) -> tuple[float, torch.Tensor]:
        eta = torch.as_tensor(known + columns @ coef)
        return float(weight @ np.nan_to_num(family.loss(target, eta).numpy())), eta

    coef = np.zeros(columns.shape[1])
    loss, eta = look(coef)
    for step in range(STEPS + 1):
        score = family.score(target, eta).numpy()
        curvature = family.curvature(target, eta).numpy()
        gram = (columns * (weight * curvature)[:, None]).T @ columns
        size = np.diag(gram)
        tie = TIE_BREAK * np.maximum(size, size.max(initial=0.0) * 1e-6)
        gram[np.diag_indices_from(gram)] += np.maximum(tie, 1e-300)
        move = np.linalg.solve(gram, (weight * score) @ columns)
        found = look(coef + move)
        while found[0] > loss and np.abs(move).max() > 1e-10:
            move = move / 2
            found = look(coef + move)
        gained = loss - found[0]
        if step == STEPS or not gained > 1e-14 * max(abs(loss), 1e-300):
            break
        coef, (loss, eta) = coef + move, found
    return ColumnFit(coef, score, curvature, gram)


def _find_turns(
    model: FittedModel, rows: KnownRows, n_rows: int
) -> tuple[np.ndarray, ...]:
    """Where the line of each feature may turn in the dictionary; nowhere for most.

    The average slope of a curve that was learned errs with it, and lines do not say by
    how much. Through a few values there are too many curves.
    """
    features, p = model.features, model.features.n_features
    group = features.term_group
    there = (group >= p) & (group < 2 * p) & (model.coef != 0).any(0).cpu().numpy()
    curved = np.isin(np.arange(p), features.term_feature[there])
    curved &= [len(np.unique(column)) >= LEAST_VALUES for column in rows.table.T]
    room = n_rows / ROWS_PER_COLUMN - 1 - int((~there).sum())
    count = next((k for k in N_TURNS if k * int(curved.sum()) <= room), 0)
    shares = np.linspace(0.0, 1.0, count + 2)[1:-1].tolist()
    found = []
    for j, column in enumerate(rows.table.T):
        turns = NOWHERE
        if curved[j] and count:
            line = lead_columns(features, j, column)[:, 0]
            weight = np.where(np.isnan(column), 0.0, rows.weight)
            turns = np.unique(weighted_quantiles(line, weight, shares))
            turns = turns[(turns > line.min()) & (turns < line.max())]
        found.append(turns)
    return tuple(found)


def lead_columns(
    features: FeatureMap, feature: int, values: np.ndarray, turns: np.ndarray = NOWHERE
) -> np.ndarray:
    """Lines and levels of a feature at some values (n,), and turns of its line."""
    group = features.term_group[features.term_feature == feature]
    p = features.n_features
    terms = features.bases[feature].terms(values)
    straight = np.asarray(terms[:, (group < p) | (group >= 2 * p)])
    if len(turns) == 0:
        return straight
    above = np.maximum(terms[:, group < p] - turns, 0.0)
    return np.column_stack([straight, above - np.maximum(-turns, 0.0)])


@dataclass(frozen=True, slots=True, eq=False)
class _Effect:
    """Effects of the rows that are moved, (k,), and how the dictionary changes them."""

    value: np.ndarray
    # What the dictionary's columns count with before and after the move, (k,).
    low: np.ndarray
    high: np.ndarray
    columns: np.ndarray  # (k, d)
    owned: np.ndarray  # (d - 1,), bool, columns of the feature that moves
    ends: list[np.ndarray]  # those before and after, (k, owned)

    def slope(self, share: np.ndarray) -> np.ndarray:
        """Derivative of the mean effect along the dictionary, (d,)."""
        low, high = (np.where(share > 0, share * x, 0.0) for x in (self.low, self.high))
        out = (high - low) @ self.columns
        there = share > 0
        before, after = (np.where(there[:, None], end, 0.0) for end in self.ends)
        out[1:][self.owned] = high @ after - low @ before
        return np.asarray(out)


def _effect(
    model: FittedModel,
    made: _Prepared,
    moved: ColumnFit,
    move: Move,
    owned: np.ndarray,
    ends: list[np.ndarray],
    response: bool,
) -> _Effect:
    """Effect of one move on every row, where the dictionary has moved the fit."""
    family, columns = model.family, made.columns[made.kept]
    own = moved.coef[1:][owned]
    others = columns @ moved.coef - columns[:, 1:][:, owned] @ own
    known = made.offset[made.kept] + others
    before, after = (
        at + known + end @ own for at, end in zip(move.eta, ends, strict=True)
    )
    factor = np.broadcast_to(np.asarray(move.factor, dtype=float), before.shape)
    low = high = factor
    value = factor * (after - before)
    if response:
        value = factor * (mean_of(family, after) - mean_of(family, before))
        low, high = (factor * mean_slope(family, at) for at in (before, after))
    return _Effect(value, low, high, columns, owned, ends)
