"""Average effects of a population, with intervals: the one-step correction.

The plain average of a penalised model is biased, and its spread over rows is no
standard error. With the effect `m(x; eta)` of a row, the family's score s and curvature
v, and a dictionary `b(x)` of the model's lines and levels, each row has

    psi = m(x; eta) + a'b(x) s(y, eta),   a = mean(v b b')^-1 mean(dm / d eta . b)

The mean of psi is the average effect without the bias that the dictionary can see,
whatever pulled the coefficients; its standard error is that of a mean. `a'b` is the
Riesz representer of the effect. Residuals are those of rows held out, where there are
any. Without a network and a penalty this is the delta method of a GLM with standard
errors that heteroscedasticity does not fool (HC0).

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
    Move,
    Origin,
    Shown,
    fill_offset,
    make_frame,
    mean_of,
    mean_slope,
    moves_of,
    spread_rows,
)
from sknimo.model import FittedModel

# Evaluations of the model for all effects together, and rows that are not gone below.
EVALUATIONS = 400_000
MIN_ROWS = 500
# Rows beyond the columns of the dictionary: with fewer nothing honest can be said.
SPARE_ROWS = 10
# Relative ridge that keeps equal columns apart.
TIE_BREAK = 1e-10
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
        The same on the response.
    n_rows : ndarray of shape (g,)
    level : float
    held_out : bool
        Whether residuals are those of rows that the model has not seen.
    is_identity : bool
        Whether response and linear predictor are the same.
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=80, random_state=0)
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
    offset: np.ndarray | None  # (n,)
    held_out: np.ndarray | None  # (n,)
    cluster: np.ndarray | None = None  # (n,), whole numbers
    population: bool = True  # whether the rows are a sample of those that matter


@dataclass(frozen=True, slots=True, eq=False)
class _Influence:
    """Estimates (c,) and what a unit of weight of each row adds to them, (n, c)."""

    estimate: np.ndarray
    rows: np.ndarray

    def minus(self, other: _Influence) -> _Influence:
        return _Influence(self.estimate - other.estimate, self.rows - other.rows)

    def std_err(self, rows: KnownRows) -> np.ndarray:
        """Standard error of each estimate, (c,); weights count repetitions."""
        if rows.cluster is None:
            return np.sqrt(rows.weight @ self.rows**2)
        count = int(rows.cluster.max()) + 1
        total = np.zeros((count, self.rows.shape[1]))
        np.add.at(total, rows.cluster, rows.weight[:, None] * self.rows)
        return np.sqrt((total**2).sum(axis=0) * count / max(count - 1, 1))


def average_effects(
    model: FittedModel,
    rows: KnownRows,
    *,
    by: Sequence[tuple[str, np.ndarray]] = (),
    level: float = 0.95,
    origin: Origin | None = None,
) -> AverageEffects:
    """Average effects over all rows, or over each of some groups (name, mask (n,)).

    Groups are populations of their own: nothing is borrowed. Differences to the first
    follow the groups.
    """
    count = max(1, 2 * len(model.features.coef_feature))
    most = max(MIN_ROWS, EVALUATIONS // count)
    prepared = _prepare(model, rows, spread_rows(len(rows.y), most), slope=True)
    parts = list(by) or [(ALL, np.ones(len(rows.y), dtype=bool))]
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
        origin=Origin() if origin is None else origin,
    )


def correct_comparisons(
    model: FittedModel, rows: KnownRows, compared: Comparisons
) -> Comparisons:
    """Comparisons with the corrected average of each step, and its standard error."""
    count = max(1, 2 * len(model.features.coef_feature))
    most = min(MAX_ROWS, max(MIN_ROWS, EVALUATIONS // (4 * count)))
    prepared = _prepare(model, rows, spread_rows(len(rows.y), most), slope=False)
    found = _correct(model, rows, prepared, np.ones(len(rows.y), dtype=bool))
    parts = [(each.estimate, each.std_err(rows)) for each in found]
    return replace(compared, corrected=np.array([x for pair in parts for x in pair]))


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """What all groups share: moves of some rows, dictionary and scores of all."""

    kept: np.ndarray  # rows that are moved
    moves: tuple[Move, ...]
    columns: np.ndarray  # (n, d)
    used: np.ndarray  # terms that the dictionary has after its constant, (d - 1,)
    score: np.ndarray  # (n,)
    curvature: np.ndarray  # (n,)
    offset: np.ndarray  # (n,)


def _prepare(
    model: FittedModel, rows: KnownRows, kept: np.ndarray, slope: bool
) -> _Prepared:
    features, p = model.features, model.features.n_features
    group = features.term_group
    used = np.flatnonzero((group < p) | (group >= 2 * p))
    columns = np.column_stack([np.ones(len(rows.y)), features.terms(rows.table)[:, used]])
    offset = fill_offset(rows.offset, len(rows.y))
    eta = model.eta(rows.table) + offset
    left = eta
    if rows.held_out is not None:
        left = np.where(np.isfinite(rows.held_out), rows.held_out, eta)
    y = torch.as_tensor(rows.y)
    score = model.family.score(y, torch.as_tensor(left)).numpy()
    curvature = model.family.curvature(y, torch.as_tensor(eta)).numpy()
    return _Prepared(
        kept=kept,
        moves=tuple(_all_moves(model, rows.table[kept], slope)),
        columns=columns,
        used=used,
        score=score,
        curvature=curvature,
        offset=offset,
    )


def _all_moves(model: FittedModel, table: np.ndarray, slope: bool) -> Iterator[Move]:
    """Every coefficient's step of every feature that varies."""
    eta = model.eta(table)
    for j, basis in enumerate(model.features.bases):
        if basis.n_terms:
            at = table.copy()
            at[:, j] = basis.reference
            before = model.eta(at)
            yield from moves_of(model, table, j, eta, before, slope)


def _correct(
    model: FittedModel, rows: KnownRows, made: _Prepared, mask: np.ndarray
) -> list[_Influence]:
    """Average effects of the rows in `mask` on linear predictor and response."""
    n, c = len(rows.y), len(model.features.coef_feature)
    total = float(rows.weight[mask].sum())
    weight = np.where(mask, rows.weight, 0.0) / total
    some = mask[made.kept]
    out = [_Influence(np.full(c, np.nan), np.zeros((n, c))) for _ in range(2)]
    if int(mask.sum()) < made.columns.shape[1] + SPARE_ROWS:
        for each in out:
            each.rows[:] = np.nan
        return out
    heavy = made.columns * (weight * made.curvature)[:, None]
    gram = heavy.T @ made.columns
    size = np.diag(gram)
    gram[np.diag_indices_from(gram)] += TIE_BREAK * np.maximum(size, size.max() * 1e-6)
    varies = _varying(made.columns[mask])
    for move in made.moves:
        for response, each in enumerate(out):
            effect, slopes = _functional(model, rows, made, move, bool(response))
            own = weight[made.kept] * (some & np.isfinite(effect))
            share = float(own.sum())
            if share <= 0 or not _identified(model, made, move, varies):
                each.rows[:, move.coef] = np.nan
                continue
            own = own / share
            effect = np.where(own > 0, effect, 0.0)
            mean = float(own @ effect)
            direction = slopes(own)
            riesz = made.columns @ np.linalg.solve(gram, direction)
            pull = np.where(mask, riesz * made.score, 0.0)
            moved = float(weight @ pull)
            each.estimate[move.coef] = mean + moved
            pull = np.where(mask, pull - moved, 0.0)
            if rows.population:
                # Of rows that are moved each stands for those that are not.
                varied = np.zeros(n)
                there = weight[made.kept] > 0
                varied[made.kept[there]] = (own * (effect - mean))[there] / weight[
                    made.kept[there]
                ]
                pull = pull + varied
            each.rows[:, move.coef] = pull / total
    return out


def _varying(columns: np.ndarray) -> np.ndarray:
    """Columns of the dictionary that differ between the rows, (d,) bool."""
    return np.asarray(np.ptp(columns, axis=0) > 0)


def _identified(
    model: FittedModel, made: _Prepared, move: Move, varies: np.ndarray
) -> bool:
    """Whether the rows vary in every column that the move changes."""
    ends = _own_columns(model, made, move)
    moved = (ends[1] != ends[0]).any(axis=0)
    own = 1 + np.flatnonzero(_owned(model, made, move))
    return bool(varies[own[moved]].all())


def _owned(model: FittedModel, made: _Prepared, move: Move) -> np.ndarray:
    feature = model.features.coef_feature[move.coef]
    return np.asarray(model.features.term_feature[made.used] == feature)


def _own_columns(model: FittedModel, made: _Prepared, move: Move) -> list[np.ndarray]:
    """Columns of the feature that moves, before and after."""
    features = model.features
    feature = int(features.coef_feature[move.coef])
    first = int(np.flatnonzero(features.term_feature == feature)[0])
    place = made.used[_owned(model, made, move)] - first
    return [features.bases[feature].terms(at)[:, place] for at in move.values]


def _functional(
    model: FittedModel, rows: KnownRows, made: _Prepared, move: Move, response: bool
) -> tuple[np.ndarray, Any]:
    """Effects of rows (k,), and their mean's derivative along the dictionary, (d,).

    The second is a function of the weights of the rows.
    """
    known = made.offset[made.kept]
    before, after = (at + known for at in move.eta)
    factor = np.broadcast_to(np.asarray(move.factor, dtype=float), before.shape)
    if response:
        effect = factor * (mean_of(model.family, after) - mean_of(model.family, before))
        ends = [mean_slope(model.family, at) for at in (before, after)]
    else:
        effect = factor * (after - before)
        ends = [np.ones_like(before)] * 2
    columns, owned = made.columns[made.kept], _owned(model, made, move)
    own = _own_columns(model, made, move)

    def direction(weight: np.ndarray) -> np.ndarray:
        each = weight * np.where(weight > 0, factor, 0.0)
        low, high = each * ends[0], each * ends[1]
        out = (high - low) @ columns
        moved = np.where(each[:, None] != 0, own[1], 0.0), np.where(
            each[:, None] != 0, own[0], 0.0
        )
        out[1:][owned] = high @ moved[0] - low @ moved[1]
        return out

    return effect, direction
