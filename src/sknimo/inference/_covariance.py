"""Covariance of intercept and coefficients of the model that is shown.

A fitted model averages members. Each that evidence has found has a joint covariance of
its own (`_posterior.py`), and the average of them

    V = sum_m share_m V_m + sum_m share_m**2 (beta_m - beta)(beta_m - beta)'.

Members saw the same rows, so that their errors go together: the first part is that of
errors that are the same. The second is what other seeds would have changed.

Members of bags stop early, and nothing says how far they are from the truth at one
point. So they have no say in how well an effect is known: lines with possible bends
(`_lines.py`) tell in their place, as much as bags weigh. Then the estimate that
intervals lie around, `centre`, is not the coefficient that is shown, and intervals are
stretched to hold both.

Robust versions replace what the family says of the rows by what the rows say, with the
reply of the *average* to each row, and keep the share of the priors. Nothing is given
where nothing honest can be said; `reason` then has the word.

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
from sknimo.inference._hazard import Risks, Watched
from sknimo.inference._lines import Lines, average_sizes, line_equations, open_bends
from sknimo.inference._posterior import (
    MAX_CONDITION,
    Given,
    MemberPoint,
    Settled,
    Tangents,
    loose_directions,
    normal_equations,
    pearson,
    settle,
    settle_all,
    tie_ridge,
)
from sknimo.inference._robust import (
    Clusters,
    Part,
    clustered,
    leverages,
    mean_reply,
    robust,
)
from sknimo.inference._uncertainty import (
    COLLINEAR,
    MAX_TERMS,
    Uncertainty,
    by_feature,
    read_loose,
)
from sknimo.penalties import CoefPenalty
from sknimo.progress import finish, plan
from sknimo.solver import Problem
from sknimo.training import Ensemble

# Members of a kind whose covariance is worked out; the others only add their spread.
MEMBERS = 2
# Multiplications that all of them may take; beyond, a part of the rows stands for all.
WORK = 3e10
# Rows of such a part, for every parameter.
ROWS_PER_PARAMETER = 8
# Numbers of the replies of all rows beyond which there is no robust version.
MAX_REPLIES = 5e7
# Residual degrees of freedom for an honest number.
LEAST_FREE = 10.0
# Rows of the rarer class for every direction, without which residuals make errors too
# small: a sixth of those of the family with two events in 150 rows of three features.
LEAST_EVENTS = 3
LEAST_DISPERSION = 1e-20
# Standard errors of a line that a coefficient of bags is off where it says nothing.
FAR_OFF = 20.0
# A row that alone decides a direction would otherwise divide by nothing.
MOST = 0.999
# Turns of precisions and dispersion.
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Averaged:
    """Members as they are alone, with what each adds to the average."""

    points: tuple[MemberPoint, ...]
    share: Tensor  # (M,), sums to one
    of_bags: Tensor  # (M,), bool

    @classmethod
    def of(cls, members: Ensemble) -> Averaged:
        """Undo the scaling by which members of other weights became equals."""
        scale = members.scale.double()
        used = (members.coef[~members.of_bags] != 0).any(0)
        points = tuple(
            MemberPoint(
                members.coef[m].double() / scale[m],
                members.intercept[m].double() / scale[m],
                members.params[m],
                members.modulated[m],
                used,
            )
            for m in range(len(scale))
        )
        return cls(points, scale / len(scale), members.of_bags)

    def of_evidence(self) -> Averaged | None:
        """Members that are not of bags, if one of them has a network."""
        kept = (~self.of_bags).nonzero().squeeze(-1).tolist()
        if not any(bool(self.points[m].modulated.any()) for m in kept):
            return None
        share = self.share[kept]
        points = tuple(self.points[m] for m in kept)
        return Averaged(points, share / share.sum(), self.of_bags[kept])

    @property
    def share_of_evidence(self) -> float:
        """How much members that are not of bags weigh."""
        return float(self.share[~self.of_bags].sum() / self.share.sum())

    @property
    def estimates(self) -> Tensor:
        """Intercept and coefficients of every member, (M, 1 + q)."""
        each = [(point.intercept.reshape(1), point.coef) for point in self.points]
        return torch.stack([torch.cat(pair) for pair in each])

    @property
    def coef(self) -> Tensor:
        """Coefficients of the average, (q,)."""
        return self.share @ self.estimates[:, 1:]

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

    def eta(self, problem: Problem) -> Tensor:
        """Linear predictor of the average, (n,)."""
        eta = problem.offset.clone()
        for m, point in enumerate(self.points):
            tangents = Tangents(problem, point)
            for rows in tangents.chunks(slopes=False):
                own = tangents.design(rows) @ tangents.coef + point.intercept
                eta[rows] += self.share[m] * own
        return eta


def coefficient_covariance(
    problem: Problem,
    members: Ensemble,
    weight: Tensor,
    features: FeatureMap,
    *,
    y_mean: float = 0.0,
    y_scale: float = 1.0,
    penalty: CoefPenalty | None = None,
    scaled_penalty: bool = False,
    clusters: Clusters | None = None,
    watched: Watched | None = None,
    separated: bool = False,
) -> Uncertainty:
    """Covariance of a fitted model on the rows that it was fitted to.

    Parameters
    ----------
    problem : Problem
        The rows around the reference of the model.
    weight : Tensor of shape (n,)
        Counts rows.
    y_mean, y_scale : float
        What was taken off the target, and its units in units of the fit.
    penalty, scaled_penalty : CoefPenalty, optional, and bool
        Known penalty of one member's mean loss; whether it prices contributions.
    watched : Watched, optional
        The follow-up behind the rows, for hazards.
    separated : bool
        Whether the classes are separated.
    """
    averaged = Averaged.of(members)
    if reason := _refuse(problem, averaged, weight, separated):
        return Uncertainty(reason)
    whole = problem.n_rows
    rows, problem, weight = _fewer_rows(problem, averaged, weight)
    if rows is not None:
        place = torch.full((whole,), -1, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        clusters = None if clusters is None else clusters.take(place)
        watched = None if watched is None else watched.take(place.cpu().numpy())
    with_bends = averaged if penalty is not None else averaged.of_evidence()
    loose = loose_directions(problem, weight, averaged.estimates[:, 1:])
    found: list[Uncertainty] = []
    if with_bends is not None:
        given = state_given(problem, with_bends, weight, watched)
        if penalty is not None:
            ridge = known_ridge(given, with_bends.points[0], penalty, scaled_penalty)
            if bool((ridge > 0).all()):  # a penalty tells all that rows do not
                loose = loose[:, :0]
            given = replace(given, ridge=ridge + tie_ridge(given, loose))
        found.append(member_estimate(given, with_bends, features, clusters))
    if penalty is None and (with_bends is None or bool(averaged.of_bags.any())):
        given = state_given(problem, averaged, weight, watched)
        lines = line_estimate(given, averaged.coef, features, clusters)
        certain = problem.family.is_binary and _is_certain(lines, averaged, features)
        found.append(Uncertainty("separated") if certain else lines)
    for known in found:
        if known.reason:
            return known
    merged = found[0]
    if len(found) > 1:
        merged = _mix(found[0], found[1], averaged.share_of_evidence)
    if problem.n_rows < whole:
        merged = replace(merged, method=f"{merged.method}, of a part of the rows")
    known = _in_units(merged, y_mean, y_scale)
    scale = members.scale.double().cpu().numpy()
    return replace(known, scale=scale, loose=read_loose(features, loose))


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
    used = problem.term_feature[averaged.coef != 0].unique()
    if len(used) + 1 > float(weight.sum()):
        return "p > n"
    return ""


def _is_certain(found: Uncertainty, averaged: Averaged, features: FeatureMap) -> bool:
    """Whether lines beside bags say nothing of most coefficients, and are sure of it.

    Where classes are almost separated hardly any row is uncertain, and lines are left
    to their priors: near zero, with errors far too small.
    """
    shown = features.coefficients(averaged.coef.cpu().numpy())
    used = np.flatnonzero(shown)
    if found.centre is None or found.nonrobust is None or not len(used):
        return False
    error = np.sqrt(np.diag(found.nonrobust)[1:])
    off = np.abs(shown - found.centre[1:])[used] > FAR_OFF * error[used]
    return bool(off.mean() > 0.5)


def _fewer_rows(
    problem: Problem, averaged: Averaged, weight: Tensor
) -> tuple[Tensor | None, Problem, Tensor]:
    """All rows in memory, or so many at even distances that the sums stay small.

    First those that were taken, None for all.
    """
    used = averaged.of_evidence() or averaged
    widths = []
    for m, _ in used.examples():
        tangents = Tangents(problem, used.points[m])
        widths.append(1 + len(tangents.columns) + len(tangents.column_group))
    square = sum(float(width) ** 2 for width in widths)
    room = max(WORK / square, ROWS_PER_PARAMETER * max(widths))
    step = max(1, math.ceil(problem.n_rows / room))
    if step == 1 and problem.in_one_place:
        return None, problem, weight
    rows = torch.arange(0, problem.n_rows, step, device=problem.device)
    taken = weight[rows]
    taken = taken * (weight.sum() / taken.sum())
    return rows, problem.take(rows), taken


def state_given(
    problem: Problem, averaged: Averaged, weight: Tensor, watched: Watched | None = None
) -> Given:
    """Information and scores of the rows, as the average predicts them."""
    eta, family, risks = averaged.eta(problem), problem.family, None
    if watched is not None:
        alone = (eta - problem.offset).cpu().numpy()
        risks = Risks.of(watched, alone, weight)
        offset = torch.as_tensor(watched.offset(alone)).to(eta)
        eta = eta - problem.offset + offset
        problem = replace(problem, offset=offset)
    # Expected, not observed: every curvature here is linear in the target.
    information = family.curvature(family.mean(eta), eta)
    floor = 1e-10 * float((information * weight).sum() / weight.sum())
    information = information.clamp(min=max(floor, 1e-300))
    score = family.score(problem.y, eta)
    return Given(problem, weight, eta, information, score, risks=risks)


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


def refuse_fit(given: Given, settled: Sequence[Settled], used: float) -> str:
    """Why there is no honest number after all; "" if there is one."""
    if given.n_rows - used < LEAST_FREE:
        return "few rows"
    if not settled[0].dispersion > LEAST_DISPERSION:
        return "perfect fit"
    free = given.ridge is not None and not bool((given.ridge > 0).all())
    worst = max(each.condition for each in settled)
    return COLLINEAR if free and worst > MAX_CONDITION else ""


def member_estimate(
    given: Given, averaged: Averaged, features: FeatureMap, clusters: Clusters | None
) -> Uncertainty:
    """The mean of members, in the units of the fit."""
    if not given.is_finite:
        return Uncertainty("overflow")
    chosen = averaged.examples()
    shares = [share for _, share in chosen]
    # Sums over rows of each, as it is and with bends that it does not have.
    for _ in chosen:
        plan("errors")
    normals = [normal_equations(given, averaged.points[m]) for m, _ in chosen]
    finish("errors")
    used = 1.0 + float((averaged.coef != 0).sum())
    rounds = ROUNDS if given.problem.family.estimates_dispersion else 1
    settled, used = settle_all(given, normals, shares, used, rounds)
    if reason := refuse_fit(given, settled, used):
        return Uncertainty(reason)
    bent = any(len(found.normal.group) > len(found.normal.columns) for found in settled)
    method = "joint" if bent else "exact"
    if any(getattr(found.normal.tangents, "mixes", False) for found in settled):
        method = "sketched"
    centre = averaged.share @ averaged.estimates
    left_out = left_out_size(given, settled, shares) if method == "joint" else math.nan
    if given.ridge is None and method == "joint":
        settled, moved = _open_all(given, averaged, settled, centre[1:], features)
        centre = centre + moved
        used = float(np.dot(shares, [found.n_effective for found in settled]))
    parts = [
        Part(given, each, features, share)
        for each, share in zip(settled, shares, strict=True)
    ]
    apart = _spread(averaged, features)
    found = join_parts(parts, features, centre, apart, clusters, used, method)
    return replace(found, left_out=left_out)


def left_out_size(
    given: Given, settled: Sequence[Settled], shares: Sequence[float]
) -> float:
    """Mean size of Pearson residuals of the average, had each row been left out."""
    family, leverage = given.problem.family, torch.zeros_like(given.eta)
    for each, share in zip(settled, shares, strict=True):
        tangents = each.normal.tangents
        for rows in tangents.chunks():
            block = tangents.rows(rows)
            leverage[rows] += share * leverages(given, each, rows, block)
    mean = family.mean(given.eta)
    spread = family.variance(mean).clamp(min=1e-300).sqrt()
    size = (given.problem.y - mean).abs() / spread / (1 - leverage.clamp(max=MOST))
    return float((given.weight * size).sum() / given.weight.sum())


def _open_all(
    given: Given,
    averaged: Averaged,
    settled: list[Settled],
    coef: Tensor,
    features: FeatureMap,
) -> tuple[list[Settled], Tensor]:
    """Members opened to bends that they do not have, and where that moves them.

    The move is that of the average, of intercept and terms, (1 + q,).
    """
    opened, moved = [], coef.new_zeros(1 + len(coef))
    for found, (m, share) in zip(settled, averaged.examples(), strict=True):
        point = averaged.points[m]
        tangents = Tangents(given.problem, point)
        level = point.intercept.reshape(1)
        start = torch.cat([level, tangents.coef, tangents.params])
        own, theta = open_bends(given, found, start, coef, features)
        finish("errors")
        opened.append(own)
        step = share * (theta[: len(start)] - start)
        moved[0] += step[0]
        moved[1 + tangents.columns] += step[1 : 1 + len(tangents.columns)]
    return opened, moved


def _read(features: FeatureMap, values: Tensor) -> Tensor:
    """Intercept and terms (..., 1 + q) as readings (..., 1 + c)."""
    each = features.coefficients(values[..., 1:].cpu().numpy())
    return torch.cat([values[..., :1], torch.as_tensor(each).to(values)], dim=-1)


def line_estimate(
    given: Given, coef: Tensor, features: FeatureMap, clusters: Clusters | None
) -> Uncertainty:
    """Lines with bends that may be there, in the units of the fit."""
    if not given.is_finite:
        return Uncertainty("overflow")
    lines = Lines(given.problem, coef)
    normal = line_equations(given, lines)
    assert normal.target is not None
    found: Settled | None = None
    score, used = given.score, 1.0 + float((coef != 0).sum())
    theta = normal.target
    for _ in range(ROUNDS):
        dispersion = pearson(given, used, score)
        found = settle(given, normal, dispersion, found)
        theta = found.inverse @ (normal.target / dispersion)
        fitted = [normal.tangents.rows(r) @ theta for r in normal.tangents.chunks()]
        # The step from the linear predictor that is given to that of the lines.
        step = torch.cat(fitted) - (given.eta - given.problem.offset)
        score = given.score - given.information * step
        used = found.n_effective
    assert found is not None
    if reason := refuse_fit(given, [found], used):
        return Uncertainty(reason)
    found, theta = average_sizes(given, found, torch.zeros(lines.width).long())
    part = Part(replace(given, score=score), found, features, 1.0)
    centre = coef.new_zeros(1 + len(coef))
    centre[0] = theta[0]
    centre[1 + normal.columns] = theta[1 : 1 + len(normal.columns)]
    none, used = coef.new_zeros(()), found.n_effective
    return join_parts([part], features, centre, (none, none), clusters, used, "lines")


def join_parts(
    parts: list[Part],
    features: FeatureMap,
    centre: Tensor,
    apart: tuple[Tensor, Tensor],
    clusters: Clusters | None,
    used: float,
    method: str,
) -> Uncertainty:
    """Covariance of an average from those of members that stand for all.

    `centre` (1 + q,) is the average, `apart` what `_spread` says of members.
    """
    given, (spread, of_terms) = parts[0].given, apart
    total = sum((part.share * part.covariance for part in parts), spread)
    prior = sum((part.share * part.prior for part in parts), spread)
    hc3 = cluster = None
    few = given.problem.n_rows * len(total) <= MAX_REPLIES
    if few and (given.risks is None or clusters is not None):
        reply, leverage = mean_reply(parts)
        if given.risks is None and not _is_rare(given, used):
            noise = parts[0].settled.dispersion
            hc3 = robust(given, reply, leverage, noise) + prior
        if clusters is not None:
            cluster = clustered(given, reply, clusters, used) + prior
    terms = sum((part.share * part.terms for part in parts), of_terms)

    def plain(values: Tensor | None) -> np.ndarray | None:
        return None if values is None else values.cpu().numpy()

    return Uncertainty(
        centre=plain(_read(features, centre)),
        nonrobust=plain(total),
        hc3=plain(hc3),
        cluster=plain(cluster),
        terms=by_feature(terms.cpu().numpy(), features),
        term_centre=plain(centre[1:]),
        dispersion=parts[0].settled.dispersion,
        n_effective=used,
        n_rows=float(given.weight.sum()),
        estimated=given.problem.family.estimates_dispersion,
        method=method,
    )


def _is_rare(given: Given, used: float) -> bool:
    """Whether one of two classes has too few rows for residuals to tell a variance."""
    if not given.problem.family.is_binary:
        return False
    total, events = float(given.weight.sum()), float(given.weight @ given.problem.y)
    return min(events, total - events) < LEAST_EVENTS * used


def _mix(first: Uncertainty, second: Uncertainty, share: float) -> Uncertainty:
    """Two estimates as the model mixes what they are of; `share` is of the first.

    Their errors go together, as those of members do, and how far they lie apart is not
    known to be nothing. What the first does not have is the second's; so are terms.
    """
    assert first.centre is not None and second.centre is not None
    assert first.nonrobust is not None
    own = np.where(np.diag(first.nonrobust) > 0, share, 0.0)
    gap = np.sqrt(own * (1 - own)) * (first.centre - second.centre)
    one, two = np.sqrt(own), np.sqrt(1 - own)

    def mix(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
        if a is None or b is None:
            return None
        return np.outer(one, one) * a + np.outer(two, two) * b + np.outer(gap, gap)

    return replace(
        first,
        centre=own * first.centre + (1 - own) * second.centre,
        nonrobust=mix(first.nonrobust, second.nonrobust),
        hc3=mix(first.hc3, second.hc3),
        cluster=mix(first.cluster, second.cluster),
        term_centre=second.term_centre,
        terms=second.terms,
        n_effective=max(first.n_effective, second.n_effective),
        left_out=math.nan,
    )


def _in_units(found: Uncertainty, y_mean: float, y_scale: float) -> Uncertainty:
    """An estimate in the units of the user."""
    unit = float(np.square(np.float64(y_scale)))
    assert found.centre is not None and found.term_centre is not None
    nonrobust, hc3, cluster = (
        None if cov is None else cov * unit
        for cov in (found.nonrobust, found.hc3, found.cluster)
    )
    if nonrobust is None or not np.isfinite(nonrobust).all():
        return Uncertainty("overflow")
    centre = found.centre * y_scale
    centre[0] += y_mean
    return replace(
        found,
        centre=centre,
        nonrobust=nonrobust,
        hc3=hc3,
        cluster=cluster,
        terms=tuple(block * unit for block in found.terms),
        term_centre=found.term_centre * y_scale,
        dispersion=found.dispersion * unit,
        left_out=found.left_out * y_scale,
    )


def _spread(averaged: Averaged, features: FeatureMap) -> tuple[Tensor, Tensor]:
    """What other seeds would change: of the readings, and of the terms."""
    each, share = averaged.estimates, averaged.share

    def between(values: Tensor) -> Tensor:
        apart = (values - share @ values) * share.unsqueeze(-1)
        return apart.mT @ apart

    return between(_read(features, each)), between(each[:, 1:])
