"""Which rows hold the model where it is: leverage, Cook's distance, leaving one out.

Near its optimum a fit moves as its linearisation does. With `j` the derivatives of
`eta` in all parameters at a row, H the joint curvature of all rows and priors
(`_posterior.py`), v the curvature and s the score of the row,

    leverage = v j' H^-1 j
    eta without the row = eta - leverage / (1 - leverage) s / v

Both are exact for least squares without network and penalty. Members are averaged.
Selection, penalties, scales of columns and the place where training ended are taken as
they are: a real refit moves these, too.

Shapes: n rows, q terms, M members.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.explain import Origin, Shown, make_frame, mean_of
from sknimo.inference._average import KnownRows
from sknimo.inference._covariance import MOST, known_ridge
from sknimo.inference._posterior import (
    Given,
    MemberPoint,
    Settled,
    normal_equations,
    settle_all,
)
from sknimo.model import FittedModel
from sknimo.penalties import CoefPenalty
from sknimo.solver import Problem

# Members with a network that stand for all.
MEMBERS = 4
ROUNDS = 3
# Members that follow the average less than this say nothing of their scale.
LEAST = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Influence(Shown):
    """What each row does to the fit, arrays of shape (n,).

    Attributes
    ----------
    leverage : ndarray
        How much of its own prediction a row is, from 0 to 1. Their sum is the number of
        directions that the rows determine.
    distance : ndarray
        Cook's distance: how far all predictions move without the row, squared, in units
        of their own uncertainty.
    prediction, left_out : ndarray
        Mean response with the row, and about what it would be without.
    n_effective : float
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
    >>> round(float(est.influence(data.X, data.y).leverage.sum()), 6)
    6.0
    """

    leverage: np.ndarray
    distance: np.ndarray
    prediction: np.ndarray
    left_out: np.ndarray
    n_effective: float
    origin: Origin

    def __len__(self) -> int:
        return len(self.leverage)

    def to_frame(self) -> Any:
        """One row per row of the table, as a data frame of its library."""
        names = ("leverage", "distance", "prediction", "left_out")
        columns = {name: getattr(self, name) for name in names}
        return make_frame(columns, self.origin, with_index=True)

    def __repr__(self) -> str:
        worst = np.argsort(-self.distance, kind="stable")[:3].tolist()
        return (
            f"Influence of {len(self)} rows, {self.n_effective:.4g} directions; most "
            f"distant without rows {worst}"
        )


def influence(
    model: FittedModel,
    rows: KnownRows,
    penalise: Callable[[Problem], CoefPenalty] | None = None,
    *,
    scaled: bool = False,
    origin: Origin,
) -> Influence:
    """Linearise the fit of weighted rows.

    `penalise` makes the penalty of their mean loss, of contributions where it is
    `scaled`; precisions are learned without it.
    """
    problem, unit, shift = _state(model, rows)
    counts = rows.weight
    if not rows.whole:  # a row of weight w is no w rows
        counts = counts * (np.count_nonzero(counts) / counts.sum())
    weight = torch.as_tensor(counts)
    eta = torch.as_tensor(model.eta(rows.table, rows.offset) / unit - shift)
    family = model.family
    information = family.curvature(family.mean(eta), eta).clamp(min=1e-300)
    score = family.score(problem.y, eta)
    given = Given(problem, weight, eta, information, score)
    points = list(_points(model, rows, weight, unit))
    if penalise is not None:
        ridge = known_ridge(given, points[0][0], penalise(problem), scaled)
        given = replace(given, ridge=ridge)
    normals = [normal_equations(given, point) for point, _ in points]
    shares = [share for _, share in points]
    used = 1.0 + float((model.coef != 0).any(0).sum())
    settled, used = settle_all(given, normals, shares, used, ROUNDS)
    dispersion = settled[0].dispersion
    leverage, spread = torch.zeros_like(eta), torch.zeros_like(eta)
    for each, share in zip(settled, shares, strict=True):
        own, wide = _reply(each, dispersion)
        leverage += share * own
        spread += share * wide
    leverage = (leverage * information * weight).clamp(0, MOST)
    pull = score / (1 - leverage)
    left = eta - leverage / information * pull
    distance = (weight * pull).square() * spread / (dispersion * max(used, 1.0))
    return Influence(
        leverage=leverage.numpy(),
        distance=distance.numpy(),
        prediction=mean_of(family, (eta.numpy() + shift) * unit),
        left_out=mean_of(family, (left.numpy() + shift) * unit),
        n_effective=used,
        origin=origin,
    )


def _state(model: FittedModel, rows: KnownRows) -> tuple[Problem, float, float]:
    """The rows as a problem, in units of the target's spread for least squares."""
    features, y, offset = model.features, rows.y, rows.offset
    unit, shift = 1.0, 0.0
    if model.family.least_squares:
        left = y - offset
        mean = float(np.average(left, weights=rows.weight))
        spread = float(np.average((left - mean) ** 2, weights=rows.weight))
        unit = spread**0.5 or 1.0
        shift = mean / unit
    problem = Problem.in_memory(
        terms=torch.as_tensor(features.terms(rows.table)),
        inputs=torch.as_tensor(features.inputs(rows.table)),
        term_feature=torch.as_tensor(features.term_feature),
        term_group=torch.as_tensor(features.term_group),
        y=torch.as_tensor(y / unit - shift),
        offset=torch.as_tensor(offset / unit),
        family=model.family,
        spec=model.spec,
    )
    return problem, unit, shift


def _points(
    model: FittedModel, rows: KnownRows, weight: Tensor, unit: float
) -> Iterator[tuple[MemberPoint, float]]:
    """Members that stand for all, as they are alone, and the share of each.

    Coefficients of members that weigh more than others were multiplied; what by is seen
    in how steeply their predictions follow those of the average.
    """
    whole = model.eta(rows.table)
    share = weight.numpy() / float(weight.sum())
    whole = whole - share @ whole
    size = float(share @ whole**2)
    bent = model.modulated.any(-1).cpu()
    for kind in (True, False):
        own = (bent == kind).nonzero().squeeze(-1).tolist()
        some = own[:: max(1, len(own) // MEMBERS)][: MEMBERS if kind else 1]
        for m in some:
            alone = model.take(slice(m, m + 1)).eta(rows.table)
            follows = float(share @ (whole * alone))
            scale = follows / size if model.n_members > 1 and size > 0 else 1.0
            scale = scale if scale > LEAST else 1.0
            point = MemberPoint(
                coef=model.coef[m].cpu().double() / (unit * scale),
                intercept=torch.zeros(()),  # no derivative depends on it
                params=model.params[m].cpu(),
                modulated=model.modulated[m].cpu(),
                used=model.coef[m].cpu() != 0,
            )
            yield point, scale * len(own) / len(some) / model.n_members


def _reply(settled: Settled, dispersion: float) -> tuple[Tensor, Tensor]:
    """`j' H^-1 j` of each row at dispersion one, and the same for all predictions."""
    tangents, inverse = settled.normal.tangents, settled.inverse / dispersion
    middle = inverse @ settled.normal.gram @ inverse
    own, wide = [], []
    for rows in tangents.chunks():
        block = tangents.rows(rows)
        own.append(((block @ inverse) * block).sum(-1))
        wide.append(((block @ middle) * block).sum(-1))
    return torch.cat(own), torch.cat(wide)
