"""What a search returns: lines or curves, one pool of members or another, or a GLM.

Where features have curves, a network has less left to explain; a network without curves
explains the same rows in another way. Their errors differ, so that an average of both
kinds often predicts better than either. So do restarts that keep the features each of
them has found, where no selection fits all rows. Both are tried on tables that have
curves, and held-out rows decide. A straight member is a curved one whose curves are
zero: every average is again one model.

Shapes: n rows, m rows held out, q terms, p features, P weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._path import GlmPath
from sknimo.estimators._restarts import SearchResult
from sknimo.estimators._runner import Runner
from sknimo.estimators._verdict import HeldOut, Verdict, eta_losses, judge
from sknimo.network import NetworkSpec
from sknimo.solver import Coefficients, EvidenceState, MemoryColumns, Problem


@dataclass(frozen=True, slots=True)
class Part:
    """What a member of the fitted model needs."""

    coef: Tensor  # (q,)
    intercept: Tensor  # ()
    params: Tensor  # (P,)
    modulated: Tensor  # (p,), bool


@dataclass(frozen=True, slots=True)
class Option:
    """Members that may be returned, and what they predict of rows held out, (m,)."""

    parts: list[Part]
    eta: np.ndarray


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished search.

    Attributes
    ----------
    runner : Runner
    path : GlmPath
    search : SearchResult
    agreed, loose : list of EvidenceState
        Restarts within the selected supports, and within those that each of them found.
        None where the evidence prefers the GLM.
    glm : Coefficients
        Returned where there are none.
    held_out : HeldOut or None
        None without time, or where nothing is to be decided.
    """

    runner: Runner
    path: GlmPath
    search: SearchResult
    agreed: list[EvidenceState]
    loose: list[EvidenceState]
    glm: Coefficients
    held_out: HeldOut | None

    @property
    def has_network(self) -> bool:
        """Whether there is a member in either pool."""
        return bool(self.agreed or self.loose)

    def option(self, pool: str) -> Option:
        """Members of a pool, or the GLM where there are none."""
        states: list[EvidenceState] = getattr(self, pool)
        eta = np.empty(0)
        if self.held_out is not None:
            eta = getattr(self.held_out, pool if states else "glm")
        if not states:
            return Option(glm_parts(self.runner.problem.spec, self.glm), eta)
        parts = [
            Part(s.coef, s.intercept, s.params, s.support & s.input_support.any())
            for s in states
        ]
        return Option(parts, eta)


def glm_parts(spec: NetworkSpec, glm: Coefficients) -> list[Part]:
    """A GLM as the only member, its network silent."""
    coef, intercept = glm.coef[0], glm.intercept[0]
    nothing = torch.zeros(spec.n_features, dtype=torch.bool, device=coef.device)
    return [Part(coef, intercept, coef.new_zeros(spec.n_params), nothing)]


def straight_columns(problem: Problem) -> Tensor:
    """Terms that are no curves, (q,), bool; see `FeatureMap.term_group`."""
    part = problem.term_group // max(problem.spec.n_features, 1)
    return part != 1


def without_curves(problem: Problem) -> Problem:
    """The same problem with lines, levels and indicators alone."""
    kept = straight_columns(problem)
    return replace(
        problem,
        columns=MemoryColumns(problem.terms[:, kept].contiguous(), problem.inputs),
        term_feature=problem.term_feature[kept],
        term_group=problem.term_group[kept],
    )


def decide(
    fit: Fit, straight: Fit | None, n_members: int, most: np.ndarray
) -> tuple[list[Part] | None, Verdict | None]:
    """Members to return, None for the GLM, and what the held-out rows say of them.

    `most` is the weight of every row. Without time the evidence has the last word.
    """
    if fit.held_out is None:
        return (fit.option("agreed").parts if fit.agreed else None), None
    pools = [
        options
        for pool in ("agreed", "loose")
        if (options := make_options(fit, straight, pool, n_members))
    ]
    if not pools:
        return None, None
    problem, where = fit.runner.problem, fit.held_out

    def loss(option: Option) -> float:
        losses = eta_losses(problem, where.rows, option.eta)
        return float(np.average(losses, weights=where.weight))

    options = min(pools, key=lambda options: loss(options[0]))
    best = options[0]
    for other in options[1:]:
        against = judge(problem, where, other.eta, most, best.eta)
        if against.gain > against.error:
            best = other
    verdict = judge(problem, where, best.eta, most)
    return (best.parts if verdict.keeps_network else None), verdict


def make_options(
    fit: Fit, straight: Fit | None, pool: str, n_members: int
) -> list[Option]:
    """What has a network, the average of both kinds first.

    It depends less on chance than one kind alone, which must be clearly better.
    """
    curved, alone = fit.option(pool), []
    if fit.has_network:
        if not getattr(fit, pool):
            return []
        alone = [curved]
    if straight is None or straight.held_out is None or not getattr(straight, pool):
        return alone
    kept = straight_columns(fit.runner.problem)
    lines = straight.option(pool)
    lines = replace(lines, parts=[_with_curves(p, kept) for p in lines.parts])
    both = [average(curved, lines, n_members)] if n_members > 1 else []
    return [*both, *alone, lines]


def average(first: Option, second: Option, n_members: int) -> Option:
    """Both, with the same weight whatever their numbers of members."""
    pair = (first.parts, second.parts)
    count = min(n_members // 2, max(map(len, pair)))
    parts = [parts[k % len(parts)] for parts in pair for k in range(count)]
    return Option(parts, (first.eta + second.eta) / 2)


def _with_curves(part: Part, kept: Tensor) -> Part:
    """A straight member among the terms of the curved model."""
    coef = part.coef.new_zeros(len(kept))
    coef[kept] = part.coef
    return replace(part, coef=coef)


def join_tables(fit: Fit, straight: Fit | None) -> dict[str, list[Any]]:
    """Restarts of both searches, the straight ones named so."""
    table = fit.search.table()
    if straight is not None:
        more = straight.search.table()
        more["stage"] = [f"straight {stage}" for stage in more["stage"]]
        table = {name: column + more[name] for name, column in table.items()}
    return table
