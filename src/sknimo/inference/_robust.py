"""How estimates reply to single rows, and what that says of their variance.

Shapes: n rows, N observations, q terms, c coefficients, m parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap
from sknimo.inference._posterior import Given, Settled

# Rows whose moves are there at once.
ROWS = 8192
# A row that is left no less of its own prediction alone decides a direction.
LEAST_LEFT = 1e-3


@dataclass(frozen=True, slots=True)
class Clusters:
    """Which observations belong together; a row may stand for several of them."""

    number: Tensor  # (N,), integer, of the cluster of each observation
    row: Tensor  # (N,), integer, the row that stands for it
    weight: Tensor  # (N,)

    def take(self, place: Tensor) -> Clusters:
        """Those of some rows; `place` (n,) is their new number, -1 of all others."""
        kept = place[self.row] >= 0
        return Clusters(self.number[kept], place[self.row[kept]], self.weight[kept])


class Part:
    """What one member adds: its covariance, and its reply to every row."""

    def __init__(
        self, given: Given, settled: Settled, features: FeatureMap, share: float
    ) -> None:
        normal = settled.normal
        columns = normal.columns
        q, total = len(columns), given.problem.n_terms
        self.given, self.settled, self.share = given, settled, share
        own = np.zeros((q, total))
        own[np.arange(q), columns.cpu().numpy()] = 1.0
        read = torch.as_tensor(features.coefficients(own)).to(normal.gram)  # (q, c)
        wide = read.new_zeros(len(normal.gram), 1 + read.shape[1])
        wide[0, 0] = 1.0
        wide[1 : 1 + q, 1:] = read
        self.reading = settled.inverse @ wide  # (1 + m, 1 + c)
        known = settled.inverse
        if settled.spread is not None:
            known = known + settled.spread
        self.covariance = wide.mT @ known @ wide
        if settled.prior is None:
            held = settled.precision.unsqueeze(-1) * self.reading
            self.prior = self.reading.mT @ held
        else:
            self.prior = wide.mT @ settled.prior @ wide
        self.terms = normal.gram.new_zeros(total, total)
        at = columns.unsqueeze(-1), columns.unsqueeze(0)
        self.terms[at] = known[1 : 1 + q, 1 : 1 + q]

    def replies(self) -> tuple[Tensor, Tensor]:
        """How a unit of each row's score moves the readings, (n, 1 + c); leverages."""
        tangents, given = self.settled.normal.tangents, self.given
        n = given.problem.n_rows
        reply = self.reading.new_empty(n, self.reading.shape[1])
        leverage = self.reading.new_empty(n)
        for rows in tangents.chunks():
            block = tangents.rows(rows)
            reply[rows] = block @ self.reading / self.settled.dispersion
            leverage[rows] = leverages(given, self.settled, rows, block)
        return reply, leverage


def leverages(given: Given, settled: Settled, rows: slice, block: Tensor) -> Tensor:
    """How much of its own prediction each of some rows is, from their derivatives."""
    own = ((block @ settled.inverse) * block).sum(-1)
    return own * given.information[rows] / settled.dispersion


def mean_reply(parts: list[Part]) -> tuple[Tensor, Tensor]:
    """Reply of the average to every row, and its leverages."""
    reply, leverage = (each.mul_(parts[0].share) for each in parts[0].replies())
    for part in parts[1:]:
        own, lever = part.replies()
        reply.add_(own, alpha=part.share)
        leverage.add_(lever, alpha=part.share)
    return reply, leverage


def robust(given: Given, reply: Tensor, leverage: Tensor, noise: float) -> Tensor:
    """Variance of the readings as the residuals have it, (1 + c, 1 + c).

    HC3, as in linear regression. A row of a whole weight w is w rows, of which each has
    its own residual; any other weight multiplies the residual of one. The only row of a
    level has a residual of nothing whatever its noise is: it is as noisy as the family
    says.
    """
    weight = given.weight
    whole = bool((weight == weight.round()).all())
    leverage = leverage if whole else weight * leverage
    left = 1 - leverage
    score = given.score / left.clamp(min=LEAST_LEFT)
    score = torch.where(left > LEAST_LEFT, score, (given.information * noise).sqrt())
    share = (score * (weight.sqrt() if whole else weight)).unsqueeze(-1)
    out = reply.new_zeros(reply.shape[1], reply.shape[1])
    for own, part in zip(reply.split(ROWS), share.split(ROWS), strict=True):
        moves = own * part
        out += moves.mT @ moves
    return out


def clustered(given: Given, reply: Tensor, clusters: Clusters, used: float) -> Tensor:
    """The same by clusters, with the usual factor for few of them."""
    if given.risks is None:
        moves = reply * given.score.unsqueeze(-1)
        each = moves[clusters.row] * clusters.weight.unsqueeze(-1)
    else:  # a row replies by way of all who are at risk with it
        each = given.risks.moves(reply)
    count, n_rows = int(clusters.number.max()) + 1, float(given.weight.sum())
    sums = reply.new_zeros(count, reply.shape[1])
    sums.index_add_(0, clusters.number, each)
    factor = count / (count - 1) * (n_rows - 1) / (n_rows - used)
    return sums.mT @ sums * factor
