"""What a baseline hazard takes away from the information of rows under observation.

With the hazard known a row has the information `mu = exp(eta) H` of a Poisson count.
The hazard is estimated from the same rows, one step at every event. Eliminating the
steps leaves what Cox's partial likelihood knows,

    J' diag(mu) J - sum_e w_e m_e m_e',

where `m_e` is the mean of the derivatives over those at risk at an event. A constant
explains nothing then: the intercept belongs to the hazard.

Shapes: n rows of the fit, N rows as given, m parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sknimo.survival import FollowUp, RiskSums, Ties, expose

if TYPE_CHECKING:
    from sknimo.inference._posterior import Columns


@dataclass(frozen=True, slots=True)
class Watched:
    """How long the rows behind the rows of a fit were watched."""

    rows: FollowUp  # N of them
    place: np.ndarray  # (N,), integer, the row of the fit that stands for each
    ties: Ties

    def take(self, place: np.ndarray) -> Watched:
        """Those of some rows; `place` (n,) is their new number, -1 of all others."""
        kept = np.flatnonzero(place[self.place] >= 0)
        return Watched(self.rows.take(kept), place[self.place[kept]], self.ties)

    def offset(self, eta: np.ndarray) -> np.ndarray:
        """Logarithm of what rows of the fit are exposed to at their `eta`, (n,).

        Rows that were merged have one `eta`: their mean exposure stands for them.
        """
        each = np.exp(expose(self.rows, eta[self.place], self.ties).offset)
        weight, n = self.rows.weight, len(eta)
        total = np.bincount(self.place, weight * each, minlength=n)
        return np.asarray(np.log(total / np.bincount(self.place, weight, minlength=n)))


@dataclass(frozen=True, slots=True)
class Risks:
    """Risk sets at the linear predictor of a model."""

    sums: RiskSums
    order: np.ndarray  # (N,), rows as given, by the rows of the fit
    place: np.ndarray  # (N,), their rows of the fit, increasing
    unit: float  # weight of a row of the fit per weight as given
    weight: np.ndarray  # (N,), as given

    @classmethod
    def of(cls, watched: Watched, eta: np.ndarray, weight: Tensor) -> Risks:
        """At `eta` (n,) of the rows of the fit, which count by `weight` (n,)."""
        order = np.argsort(watched.place, kind="stable")
        sums = RiskSums.of(watched.rows, eta[watched.place], watched.ties)
        unit = float(weight.sum()) / float(watched.rows.weight.sum())
        return cls(sums, order, watched.place[order], unit, watched.rows.weight)

    def explained(self, columns: Columns, n_columns: int) -> Tensor:
        """`sum_e w_e m_e m_e'` of some columns, (m, m)."""
        sums = np.zeros((2, self.sums.n_times + 1, n_columns))
        device = None
        for rows in columns.chunks():
            block = columns.rows(rows)
            device = block.device
            at = slice(*np.searchsorted(self.place, [rows.start, rows.stop]))
            own = block.cpu().numpy()[self.place[at] - rows.start]
            self.sums.add(sums, self.order[at], own)
        total = np.zeros((n_columns, n_columns))
        for mean, weight in self.sums.means(sums):
            total += (mean * weight[:, None]).T @ mean
        return torch.as_tensor(total * self.unit, device=device)

    def moves(self, reply: Tensor) -> Tensor:
        """How far each row as given moves what replies to a score by `reply` (n, m).

        Weights included, in the order in which rows were given, (N, m).
        """
        place = np.empty_like(self.place)
        place[self.order] = self.place
        values = reply.cpu().numpy()[place]
        found = self.sums.score_residuals(values, self.weight)
        return torch.as_tensor(found * self.unit).to(reply)
