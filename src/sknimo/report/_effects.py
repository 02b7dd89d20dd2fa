"""What each coefficient says over some rows, and who bends whom.

A *line* is one coefficient that a reader can quote: the slope of a numeric feature,
the contrast of a level with the baseline, that of a missing value with the reference.
Each line holds the three quantities side by side: the coefficient at the reference, the
local coefficient and the local effect over the rows.

Shapes: n rows, p features, q terms, c coefficients, m grid values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sknimo.explain import Roles, find_roles, local_values
from sknimo.features import MISSING_LABEL
from sknimo.model import FittedModel
from sknimo.report._inputs import Sample
from sknimo.report._text import clean_text, show_number

# Rows over which local quantities, contrasts and pairs are taken.
MAX_ROWS = 1000
MAX_CONTRAST_ROWS = 200
MAX_PAIR_ROWS = 100
# Pairs are looked for among this many of the strongest features.
MAX_PAIR_FEATURES = 16
# Rows that all contrasts together may evaluate.
CONTRAST_EVALUATIONS = 20_000
QUANTILES = (0.05, 0.95)
# Features that bend less than this share of the strongest bend are not named.
FAINT = 0.1
MAX_MODIFIERS = 3
N_GRID = 41
# A number with so few values is shown by value, and over its whole range.
FEW_VALUES = 4
ROUNDING = 1e-10


@dataclass(frozen=True, slots=True)
class Line:
    """One coefficient and what becomes of it over the rows.

    Attributes
    ----------
    feature : int
    label : str
        The level it belongs to; empty for a slope.
    contrast : bool
        Whether it is the difference between two values instead of a slope.
    coef : float
        At the reference, per unit or against the baseline.
    scale : float
        Factor that makes it comparable: the standard deviation, one for contrasts of
        levels.
    local_coef : tuple of two float
        Local coefficient, 5 % and 95 % of the rows.
    average_effect : float
        Mean local effect.
    local_effect : tuple of two float
        Local effect, 5 % and 95 % of the rows.
    bend : float
        Share of the mean square of the local effect that varies from row to row.
    """

    feature: int
    label: str
    contrast: bool
    coef: float
    scale: float
    local_coef: tuple[float, float]
    average_effect: float
    local_effect: tuple[float, float]
    bend: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two features that interact.

    Attributes
    ----------
    first, second : int
    joint : float
        Root mean square of what the two change together beyond what each changes
        alone, both measured from their reference.
    second_bends_first, first_bends_second : float
        See `Findings.bending`.
    """

    first: int
    second: int
    joint: float
    second_bends_first: float
    first_bends_second: float

    @property
    def bent(self) -> int:
        """The feature whose coefficient moves more."""
        by_second = self.second_bends_first >= self.first_bends_second
        return self.first if by_second else self.second

    @property
    def modifier(self) -> int:
        """The other one."""
        return self.second if self.bent == self.first else self.first


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """All that a report says about the features.

    Attributes
    ----------
    lines : tuple of Line
        Strongest features first; features without a role are left out.
    order : tuple of int
        Features with a role, strongest first.
    influence : ndarray of shape (p,)
        Root mean square change of eta when the feature is put at its reference.
    pairs : tuple of Pair
        Strongest first.
    bending : ndarray of shape (p, p)
        Row j, column k: how far the coefficient of feature j moves on average when
        feature k leaves its reference, per standard deviation of feature j.
    roles : Roles
    n_rows : int
        Rows that local quantities were taken over.
    """

    lines: tuple[Line, ...]
    order: tuple[int, ...]
    influence: np.ndarray
    pairs: tuple[Pair, ...]
    bending: np.ndarray
    roles: Roles
    n_rows: int

    def modifiers(self, feature: int) -> list[int]:
        """The features that bend a coefficient most, strongest first."""
        row = self.bending[feature]
        floor = FAINT * self.bending.max(initial=0.0)
        strongest = np.argsort(-row, kind="stable")[:MAX_MODIFIERS]
        return [int(k) for k in strongest if row[k] > 0 and row[k] >= floor]


def find_effects(model: FittedModel, sample: Sample, swap: np.ndarray) -> Findings:
    """Sum up the features of a model over a sample."""
    roles = find_roles(model)
    kept = sample.take(spread_rows(len(sample), MAX_ROWS))
    influence = measure_influence(model, kept, roles)
    strongest = np.argsort(-influence, kind="stable")
    order = tuple(int(j) for j in strongest if roles.relevant[j])
    rank = {feature: place for place, feature in enumerate(order)}
    lines = [line for line in _lines(model, kept, swap) if line.feature in rank]
    few = kept.take(spread_rows(len(kept), MAX_PAIR_ROWS))
    bending = measure_bending(model, few, swap, roles)
    return Findings(
        lines=tuple(sorted(lines, key=lambda line: rank[line.feature])),
        order=order,
        influence=influence,
        pairs=_pairs(model, few, order[:MAX_PAIR_FEATURES], bending),
        bending=bending,
        roles=roles,
        n_rows=len(kept),
    )


def spread_rows(n_rows: int, most: int) -> np.ndarray:
    """Indices of at most `most` rows, evenly spaced."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.linspace(0, n_rows - 1, most).round().astype(int)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A model at some rows.

    Attributes
    ----------
    eta : ndarray of shape (n,)
        Linear predictor without offset.
    contributions : ndarray of shape (n, p)
        In a gauge; with the base value they sum to `eta`.
    """

    eta: np.ndarray
    contributions: np.ndarray


def evaluate(model: FittedModel, table: np.ndarray, swap: np.ndarray) -> Evaluated:
    """Linear predictor and contributions in one pass."""
    parts = model.term_contributions(table)
    phi = model.features.terms(table)
    return Evaluated(
        eta=model.base_value + parts.sum(axis=1),
        contributions=model.features.per_feature(parts - phi * (phi @ swap.T)),
    )


@torch.no_grad()
def local_coefficients(
    model: FittedModel, table: np.ndarray, swap: np.ndarray
) -> np.ndarray:
    """Coefficients as a reader quotes them, at every row, (n, c)."""
    features = model.features
    terms = features.terms(table)
    inputs = torch.as_tensor(features.inputs(table))
    local = model.local_term_coef(torch.as_tensor(terms), inputs).numpy()
    return features.coefficients(local - terms @ swap.T)


def measure_influence(model: FittedModel, sample: Sample, roles: Roles) -> np.ndarray:
    """Root mean square change of eta when a feature goes to its reference, (p,)."""
    features = model.features
    few = sample.take(spread_rows(len(sample), MAX_CONTRAST_ROWS))
    eta, share = model.eta(few.table), few.share
    out = np.zeros(features.n_features)
    for j in np.flatnonzero(roles.relevant):
        without = few.table.copy()
        without[:, j] = features.reference[j]
        out[j] = np.sqrt(share @ (eta - model.eta(without)) ** 2)
    return out


def _lines(model: FittedModel, sample: Sample, swap: np.ndarray) -> list[Line]:
    """One line per coefficient, in the order of the columns."""
    features = model.features
    coef = features.coefficients(model.term_coef)
    local = local_values(model, sample.table, swap)
    labels = [label for basis in features.bases for label in basis.labels]
    n_contrasts = sum(label != "" for label in labels) + features.n_features
    most = min(MAX_CONTRAST_ROWS, max(20, CONTRAST_EVALUATIONS // n_contrasts))
    few = sample.take(spread_rows(len(sample), most))
    out = []
    baseline: dict[int, Evaluated] = {}
    for place, (j, label) in enumerate(zip(features.coef_feature, labels, strict=True)):
        j = int(j)
        column = sample.table[:, j]
        known = ~np.isnan(column)
        bent, bent_share = local.local_coef[known, j], sample.share[known]
        effect, share = local.local_effect[known, j], sample.share[known]
        ends = _ends(model, j, label, column[known])
        if ends is not None:
            if j not in baseline or label == "":
                baseline[j] = _at(model, few.table, swap, j, ends[0])
            high = _at(model, few.table, swap, j, ends[1])
            effect, share = high.eta - baseline[j].eta, few.share
            if label == "":
                effect = effect / (ends[1] - ends[0])
            else:
                bent, bent_share = high.contributions[:, j], few.share
        mean, square = _moments(effect, share)
        out.append(
            Line(
                feature=j,
                label=label,
                contrast=ends is not None,
                coef=float(coef[place]),
                scale=float(features.scale[j]) if label == "" else 1.0,
                local_coef=_quantiles(bent, bent_share),
                average_effect=mean,
                local_effect=_quantiles(effect, share),
                bend=1 - mean**2 / square if square > 0 else 0.0,
            )
        )
    return out


def _ends(
    model: FittedModel, j: int, label: str, known: np.ndarray
) -> tuple[float, float] | None:
    """The two values that a contrast compares, None for a slope.

    A numeric feature with two values has no slope between them that anybody could
    experience: it gets a contrast too.
    """
    features = model.features
    reference = float(features.reference[j])
    if label == "":
        values = np.unique(known)
        return (float(values[0]), float(values[1])) if len(values) == 2 else None
    if label == MISSING_LABEL and features.admits_missing[j]:
        return reference, np.nan
    levels = [str(level) for level in features.levels(j) or ()]
    return reference, float(levels.index(label))


def _at(
    model: FittedModel, table: np.ndarray, swap: np.ndarray, j: int, value: float
) -> Evaluated:
    """The model with one feature put to a value in every row."""
    moved = table.copy()
    moved[:, j] = value
    return evaluate(model, moved, swap)


def _moments(values: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Weighted mean and mean square."""
    total = share.sum()
    if total <= 0:
        return 0.0, 0.0
    return float(share @ values / total), float(share @ values**2 / total)


def _quantiles(values: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Values below which 5 % and 95 % of the weight lie."""
    kept = share > 0
    if not kept.any():
        return float("nan"), float("nan")
    order = np.argsort(values[kept], kind="stable")
    ranked, total = values[kept][order], np.cumsum(share[kept][order])
    at = np.searchsorted(total, np.array(QUANTILES) * total[-1] * (1 - 1e-12))
    low, high = ranked[np.minimum(at, len(ranked) - 1)]
    return float(low), float(high)


def measure_bending(
    model: FittedModel, sample: Sample, swap: np.ndarray, roles: Roles
) -> np.ndarray:
    """Mean change of each coefficient when another feature leaves its reference.

    Row j, column k; per standard deviation of feature j, or the level of it that moves
    most, (p, p).
    """
    features = model.features
    p = features.n_features
    labels = [label for basis in features.bases for label in basis.labels]
    owner = features.coef_feature
    width = np.where([label == "" for label in labels], features.scale[owner], 1.0)
    local = local_coefficients(model, sample.table, swap)
    out = np.zeros((p, p))
    for k in np.flatnonzero(roles.relevant):
        without = sample.table.copy()
        without[:, k] = features.reference[k]
        change = np.abs(local - local_coefficients(model, without, swap))
        moved = (sample.share @ change) * width
        np.maximum.at(out[:, k], owner, moved)
    np.fill_diagonal(out, 0.0)
    # What is left where two numbers cancel is rounding, not an interaction.
    return np.where(out > ROUNDING * out.max(initial=0.0), out, 0.0)


def _pairs(
    model: FittedModel, sample: Sample, candidates: tuple[int, ...], bending: np.ndarray
) -> tuple[Pair, ...]:
    """Pairs of candidates that act together, strongest first."""
    reference = model.features.reference

    def without(*features: int) -> np.ndarray:
        table = sample.table.copy()
        table[:, features] = reference[list(features)]
        return model.eta(table)

    eta = without()
    alone = {j: without(j) for j in candidates}
    out = []
    for place, j in enumerate(candidates):
        for k in candidates[place + 1 :]:
            if bending[j, k] == 0 and bending[k, j] == 0:
                continue
            joint = eta - alone[j] - alone[k] + without(j, k)
            size = float(np.sqrt(sample.share @ joint**2))
            pair = Pair(j, k, size, float(bending[j, k]), float(bending[k, j]))
            out.append(pair)
    return tuple(sorted(out, key=lambda pair: -pair.joint))


def feature_grid(
    model: FittedModel, j: int, column: np.ndarray, n_grid: int = N_GRID
) -> np.ndarray:
    """Values along which a feature is shown: its levels, or 2 % to 98 % of rows."""
    levels = model.features.levels(j)
    if levels is not None:
        return np.arange(len(levels), dtype=float)
    known = column[~np.isnan(column)]
    if len(known) == 0:
        return model.features.reference[[j]]
    few = len(np.unique(known)) <= FEW_VALUES
    low, high = np.quantile(known, [0.0, 1.0] if few else [0.02, 0.98])
    return np.linspace(low, high, n_grid) if high > low else np.array([low])


def show_value(model: FittedModel, j: int, value: float, digits: int = 4) -> str:
    """A value of a feature as its reader knows it: a level by its name."""
    if np.isnan(value):
        return MISSING_LABEL
    levels = model.features.levels(j)
    if levels is not None:
        return clean_text(levels[int(value)])
    return show_number(value, digits)
