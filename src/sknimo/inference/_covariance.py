"""Covariance of intercept and coefficients of the model that is shown.

A fitted model averages members. Each has a joint covariance of its own
(`_posterior.py`), that of the average is

    V = sum_m share_m V_m + sum_m share_m**2 (beta_m - beta)(beta_m - beta)'.

Members saw the same rows, so that their errors go together: the first part is that of
errors that are the same, or more, whatever the members. The second is what other seeds
would have changed. Robust versions replace what the family says of the rows by what
the rows say, with the reply of the *average* to each row, and keep the share of the
priors.

Nothing is given where nothing honest can be said; `reason` then has the word.

Shapes: n rows, q terms, c coefficients that a user reads, p features, M members.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap
from sknimo.inference._posterior import (
    Given,
    MemberPoint,
    Settled,
    Tangents,
    normal_equations,
    settle,
)
from sknimo.penalties import CoefPenalty
from sknimo.solver import Problem
from sknimo.training import Ensemble

# Members of a kind whose covariance is worked out; the others only add their spread.
MEMBERS = 3
# Multiplications that all of them may take; beyond, a part of the rows stands for all.
WORK = 3e10
# Rows of such a part, for every parameter.
ROWS_PER_PARAMETER = 8
# Terms beyond which there is no covariance.
MAX_TERMS = 4_000
# Numbers of the replies of all rows beyond which there is no robust version.
MAX_REPLIES = 5e7
# Residual degrees of freedom, and condition of the design, for an honest number.
LEAST_FREE = 10.0
MAX_CONDITION = 1e12
LEAST_DISPERSION = 1e-20
# Turns of precisions and dispersion.
ROUNDS = 3

REASONS = {
    "p > n": "More coefficients than the rows can tell apart.",
    "separated": "The classes are separated: the size of coefficients is arbitrary.",
    "few rows": (
        "Fewer than ten residual degrees of freedom are left to estimate the noise."
    ),
    "collinear": "Some columns are combinations of others.",
    "perfect fit": "The fit leaves no noise to estimate errors from.",
    "too many": f"More than {MAX_TERMS} columns: their covariance was not computed.",
    "several ranks": "Errors were not computed over several processes.",
    "overflow": "Numbers of this size have no squares.",
    "not kept": "The model was saved before intervals were kept with it.",
}


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How well the coefficients of a fitted model are known.

    Attributes
    ----------
    reason : str
        Why there are no numbers, a key of `REASONS`; empty where there are.
    nonrobust, hc3, cluster : ndarray of shape (1 + c, 1 + c) or None
        Covariances of the intercept and the entries of `coef_`, by assumption.
    terms : tuple of ndarray
        Covariance of the terms of each feature, (q_j, q_j).
    dispersion : float
    n_effective : float
        Directions that the data determine.
    n_rows : float
    estimated : bool
        Whether the rows told the dispersion; it is known otherwise.
    method : str
        "exact" without a network, "joint" with all its weights, "sketched" with random
        combinations of them; "... of a part of the rows".
    """

    reason: str = ""
    nonrobust: np.ndarray | None = None
    hc3: np.ndarray | None = None
    cluster: np.ndarray | None = None
    terms: tuple[np.ndarray, ...] = ()
    dispersion: float = math.nan
    n_effective: float = math.nan
    n_rows: float = math.nan
    estimated: bool = True
    method: str = ""

    @property
    def free(self) -> float:
        """Degrees of freedom that are left to estimate the dispersion; inf if known."""
        return self.n_rows - self.n_effective if self.estimated else math.inf


@dataclass(frozen=True, slots=True)
class Clusters:
    """Which observations belong together; a row may stand for several of them."""

    number: Tensor  # (N,), integer, of the cluster of each observation
    row: Tensor  # (N,), integer, the row that stands for it
    weight: Tensor  # (N,)

    def take(self, rows: Tensor, n_rows: int) -> Clusters:
        """Those of some rows."""
        place = torch.full((n_rows,), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        kept = place[self.row] >= 0
        return Clusters(self.number[kept], place[self.row[kept]], self.weight[kept])


@dataclass(frozen=True, slots=True)
class Averaged:
    """Members as they are alone, with what each adds to the average."""

    points: tuple[MemberPoint, ...]
    share: Tensor  # (M,), sums to one

    @classmethod
    def of(cls, members: Ensemble) -> Averaged:
        """Undo the scaling by which members of other weights became equals."""
        scale = members.scale.double()
        points = tuple(
            MemberPoint(
                members.coef[m].double() / scale[m],
                members.intercept[m].double() / scale[m],
                members.params[m],
                members.modulated[m],
            )
            for m in range(len(scale))
        )
        return cls(points, scale / len(scale))

    def examples(self) -> list[tuple[int, float]]:
        """Members that stand for their kind, and the share of each."""
        kinds: dict[tuple[bool, float], list[int]] = {}
        for m, point in enumerate(self.points):
            key = bool(point.modulated.any()), round(float(self.share[m]), 12)
            kinds.setdefault(key, []).append(m)
        found = []
        for own in kinds.values():
            step = max(1, len(own) // MEMBERS)
            some = own[::step][:MEMBERS]
            total = float(self.share[own].sum())
            found += [(m, total / len(some)) for m in some]
        return found


def coefficient_covariance(
    problem: Problem,
    members: Ensemble,
    weight: Tensor,
    features: FeatureMap,
    *,
    y_scale: float = 1.0,
    penalty: CoefPenalty | None = None,
    scaled_penalty: bool = False,
    clusters: Clusters | None = None,
    separated: bool = False,
) -> Uncertainty:
    """Covariance of a fitted model on the rows that it was fitted to.

    Parameters
    ----------
    problem : Problem
        The rows around the reference of the model.
    members : Ensemble
    weight : Tensor of shape (n,)
        Counts rows.
    features : FeatureMap
    y_scale : float
        Units of the target in units of the fit.
    penalty : CoefPenalty, optional
        Known penalty of one member's mean loss; precisions are learned without it.
    scaled_penalty : bool
        Whether it prices contributions.
    clusters : Clusters, optional
    separated : bool
        Whether the classes are separated.
    """
    averaged = Averaged.of(members)
    reason = _refuse(problem, averaged, weight, separated)
    if reason:
        return Uncertainty(reason)
    whole = problem.n_rows
    problem, weight, clusters = _fewer_rows(problem, averaged, weight, clusters)
    given = state_given(problem, averaged, weight)
    if penalty is not None:
        ridge = known_ridge(given, averaged.points[0], penalty, scaled_penalty)
        given = replace(given, ridge=ridge)
    if not bool((given.score.isfinite() & given.information.isfinite()).all()):
        return Uncertainty("overflow")
    used = 1.0 + float((members.coef != 0).any(0).sum())
    fit = settle_all(given, averaged, used)
    if reason := _refuse_fit(given, fit):
        return Uncertainty(reason)
    parts = [
        Part(given, each, features, fit.dispersion, share)
        for each, share in zip(fit.settled, fit.shares, strict=True)
    ]
    method = _method(fit.settled, problem.n_rows < whole)
    found = combine(parts, averaged, features, y_scale, clusters, fit.used, method)
    assert found.nonrobust is not None
    return found if np.isfinite(found.nonrobust).all() else Uncertainty("overflow")


@dataclass(frozen=True, slots=True)
class Fit:
    """Members that stand for all, with precisions at a common dispersion."""

    settled: tuple[Settled, ...]
    shares: tuple[float, ...]
    dispersion: float
    used: float  # directions that the data determine, of the average


def settle_all(given: Given, averaged: Averaged, used: float) -> Fit:
    """Precisions and dispersion in turn; `used` directions are a first guess."""
    chosen = averaged.examples()
    shares = tuple(share for _, share in chosen)
    normals = [normal_equations(given, averaged.points[m]) for m, _ in chosen]
    before: list[Settled | None] = [None] * len(normals)
    for _ in range(ROUNDS if given.problem.family.estimates_dispersion else 1):
        dispersion = max(pearson(given, used), 1e-300)
        settled = tuple(
            settle(given, normal, dispersion, start)
            for normal, start in zip(normals, before, strict=True)
        )
        before = list(settled)
        each = [found.n_effective for found in settled]
        used = float(np.dot(shares, each))
    return Fit(settled, shares, dispersion, used)


def _refuse_fit(given: Given, fit: Fit) -> str:
    """Why there is no honest number after all; "" if there is one."""
    if float(given.weight.sum()) - fit.used < LEAST_FREE:
        return "few rows"
    if not fit.dispersion > LEAST_DISPERSION:
        return "perfect fit"
    free = given.ridge is not None and not bool((given.ridge > 0).all())
    worst = max(each.condition for each in fit.settled)
    return "collinear" if free and worst > MAX_CONDITION else ""


def _refuse(
    problem: Problem, averaged: Averaged, weight: Tensor, separated: bool
) -> str:
    """Why there can be no honest number before anything is computed; "" if none."""
    if not problem.ranks.alone:
        return "several ranks"
    if separated:
        return "separated"
    if problem.n_terms > MAX_TERMS:
        return "too many"
    fewest = min(int((point.coef != 0).sum()) for point in averaged.points)
    if fewest + 1 > float(weight.sum()):
        return "p > n"
    return ""


def _method(settled: Sequence[Settled], part: bool) -> str:
    """How the network was counted in, in a word or two."""
    word = "exact"
    if any(len(each.normal.tangents.params) for each in settled):
        word = "joint"
    if any(each.normal.sketched for each in settled):
        word = "sketched"
    return f"{word}, of a part of the rows" if part else word


def _fewer_rows(
    problem: Problem, averaged: Averaged, weight: Tensor, clusters: Clusters | None
) -> tuple[Problem, Tensor, Clusters | None]:
    """All rows in memory, or so many at even distances that the sums stay small."""
    chosen = averaged.examples()
    widths = []
    for m, _ in chosen:
        tangents = Tangents(problem, averaged.points[m])
        widths.append(1 + len(tangents.columns) + len(tangents.mixed_groups()[0]))
    square = sum(float(width) ** 2 for width in widths)
    room = max(WORK / square, ROWS_PER_PARAMETER * max(widths))
    step = max(1, math.ceil(problem.n_rows / room))
    if step == 1 and problem.in_one_place:
        return problem, weight, clusters
    rows = torch.arange(0, problem.n_rows, step, device=problem.device)
    taken = weight[rows]
    taken = taken * (weight.sum() / taken.sum())
    some = None if clusters is None else clusters.take(rows, problem.n_rows)
    return problem.take(rows), taken, some


def linear_predictor_of(problem: Problem, averaged: Averaged) -> Tensor:
    """`eta` of the average, (n,)."""
    eta = problem.offset.clone()
    for m, point in enumerate(averaged.points):
        tangents = Tangents(problem, point)
        for rows in tangents.chunks():
            own = tangents.design(rows) @ tangents.coef + point.intercept
            eta[rows] += averaged.share[m] * own
    return eta


def state_given(problem: Problem, averaged: Averaged, weight: Tensor) -> Given:
    """Information and scores of the rows, as the average predicts them."""
    eta = linear_predictor_of(problem, averaged)
    family = problem.family
    # Expected, not observed: every curvature here is linear in the target.
    information = family.curvature(family.mean(eta), eta)
    floor = 1e-10 * float((information * weight).sum() / weight.sum())
    score = family.score(problem.y, eta)
    information = information.clamp(min=max(floor, 1e-300))
    return Given(problem, weight, eta, information, score)


def known_ridge(
    given: Given, point: MemberPoint, penalty: CoefPenalty, scaled: bool
) -> Tensor:
    """Ridge of the sum of losses that touches a penalty of their mean, (q,)."""
    problem, share = given.problem, given.weight / given.weight.sum()
    if scaled:
        tangents = Tangents(problem, point)
        square = share.new_zeros(problem.n_terms)
        for rows in tangents.chunks():
            own = tangents.design(rows)
            square[tangents.columns] += share[rows] @ own.square()
        size = torch.zeros_like(penalty.weight)
        size.index_add_(1, penalty.column_feature, square.unsqueeze(0))
        size = size.sqrt().clamp(min=1e-12)
        penalty = penalty.reweighted(size**penalty.power)
    ridge = penalty.ridge(point.coef.unsqueeze(0), 1e-12)[0]
    return ridge * given.weight.sum()


def pearson(given: Given, used: float) -> float:
    """Pearson's statistic per residual degree of freedom, one where it is known."""
    family = given.problem.family
    if not family.estimates_dispersion:
        return 1.0
    mean = family.mean(given.eta)
    variance = family.variance(mean).clamp(min=1e-300)
    squares = (given.problem.y - mean).square() / variance
    total, n_rows = float((given.weight * squares).sum()), float(given.weight.sum())
    free = max(n_rows - used, 0.05 * n_rows)
    return max(total / free, family.least_dispersion)


class Part:
    """What one member adds: its covariance, and its reply to every row."""

    def __init__(
        self,
        given: Given,
        settled: Settled,
        features: FeatureMap,
        dispersion: float,
        share: float,
    ) -> None:
        normal = settled.normal
        columns = normal.columns
        q, total = len(columns), given.problem.n_terms
        self.given, self.settled, self.share = given, settled, share
        self.dispersion = dispersion
        own = np.zeros((q, total))
        own[np.arange(q), columns.cpu().numpy()] = 1.0
        read = torch.as_tensor(features.coefficients(own)).to(normal.gram)  # (q, c)
        wide = read.new_zeros(len(normal.gram), 1 + read.shape[1])
        wide[0, 0] = 1.0
        wide[1 : 1 + q, 1:] = read
        self.reading = settled.inverse @ wide  # (1 + m, 1 + c)
        self.covariance = wide.mT @ self.reading
        self.prior = self.reading.mT @ (settled.precision.unsqueeze(-1) * self.reading)
        terms = normal.gram.new_zeros(total, total)
        at = columns.unsqueeze(-1), columns.unsqueeze(0)
        terms[at] = settled.inverse[1 : 1 + q, 1 : 1 + q]
        self.terms = terms

    def replies(self) -> tuple[Tensor, Tensor]:
        """How a unit of each row's score moves the readings, (n, 1 + c); leverages."""
        tangents, given = self.settled.normal.tangents, self.given
        n = given.problem.n_rows
        reply = self.reading.new_empty(n, self.reading.shape[1])
        leverage = self.reading.new_empty(n)
        for rows in tangents.chunks():
            block = tangents.rows(rows)
            reply[rows] = block @ self.reading / self.dispersion
            solved = block @ self.settled.inverse
            leverage[rows] = (solved * block).sum(-1) * given.information[rows]
        return reply, leverage / self.dispersion


def combine(
    parts: list[Part],
    averaged: Averaged,
    features: FeatureMap,
    y_scale: float,
    clusters: Clusters | None,
    used: float,
    method: str,
) -> Uncertainty:
    """Covariance of the average from those of members that stand for all."""
    given, unit = parts[0].given, float(np.square(np.float64(y_scale)))
    spread, of_terms = _spread(averaged, features)
    total = sum(part.share * part.covariance for part in parts)
    nonrobust = (total + spread.to(total)) * unit
    hc3 = cluster = None
    n_rows = float(given.weight.sum())
    if given.problem.n_rows * (1 + len(features.coef_names)) <= MAX_REPLIES:
        prior = sum(part.share * part.prior for part in parts) + spread.to(total)
        reply, leverage = _mean_reply(parts)
        hc3 = (robust(given, reply, leverage, "HC3", used) + prior) * unit
        if clusters is not None:
            meat = robust(given, reply, leverage, "cluster", used, clusters)
            cluster = (meat + prior) * unit
    terms = sum(part.share * part.terms for part in parts) + of_terms.to(total)
    owner = features.term_feature
    blocks = tuple(
        (terms[np.ix_(owner == j, owner == j)] * unit).cpu().numpy()
        for j in range(features.n_features)
    )
    return Uncertainty(
        nonrobust=nonrobust.cpu().numpy(),
        hc3=None if hc3 is None else hc3.cpu().numpy(),
        cluster=None if cluster is None else cluster.cpu().numpy(),
        terms=blocks,
        dispersion=parts[0].dispersion * unit,
        n_effective=used,
        n_rows=n_rows,
        estimated=given.problem.family.estimates_dispersion,
        method=method,
    )


def _mean_reply(parts: list[Part]) -> tuple[Tensor, Tensor]:
    """Reply of the average to every row, and its leverages."""
    reply, leverage = (parts[0].share * each for each in parts[0].replies())
    for part in parts[1:]:
        own, lever = part.replies()
        reply += part.share * own
        leverage += part.share * lever
    return reply, leverage


def robust(
    given: Given,
    reply: Tensor,
    leverage: Tensor,
    kind: str,
    used: float,
    clusters: Clusters | None = None,
) -> Tensor:
    """Variance of the readings as the residuals have it, (1 + c, 1 + c).

    A row of weight w is w rows. "HC0" to "HC3" as in linear regression, "cluster" with
    the usual factor for few clusters.
    """
    n_rows = float(given.weight.sum())
    power = {"HC2": 0.5, "HC3": 1.0}.get(kind, 0.0)
    score = given.score / (1 - leverage).clamp(min=1e-3) ** power
    moves = reply * score.unsqueeze(-1)
    if kind != "cluster":
        out = (moves * given.weight.unsqueeze(-1)).mT @ moves
        return out * (n_rows / (n_rows - used)) if kind == "HC1" else out
    assert clusters is not None
    count = int(clusters.number.max()) + 1
    sums = moves.new_zeros(count, moves.shape[1])
    each = moves[clusters.row] * clusters.weight.unsqueeze(-1)
    sums.index_add_(0, clusters.number, each)
    factor = count / (count - 1) * (n_rows - 1) / (n_rows - used)
    return sums.mT @ sums * factor


def _spread(averaged: Averaged, features: FeatureMap) -> tuple[Tensor, Tensor]:
    """What other seeds would change: of the readings, and of the terms."""
    share = averaged.share.cpu()
    coef = torch.stack([point.coef for point in averaged.points]).cpu()
    level = torch.stack([point.intercept for point in averaged.points]).cpu()
    read = torch.as_tensor(features.coefficients(coef.numpy()))
    read = torch.cat([level.unsqueeze(-1), read], dim=1)

    def between(values: Tensor) -> Tensor:
        apart = (values - share @ values) * share.unsqueeze(-1)
        return apart.mT @ apart

    return between(read), between(coef)
