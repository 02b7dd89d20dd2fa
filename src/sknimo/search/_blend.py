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

from sknimo.search._path import GlmPath
from sknimo.search._reference import View
from sknimo.search._restarts import Selection
from sknimo.search._settings import Settings
from sknimo.search._verdict import HeldOut, Verdict, eta_losses, judge
from sknimo.solver import Coefficients, EvidenceState, MemoryColumns, Problem
from sknimo.training import Ensemble


@dataclass(frozen=True, slots=True)
class Choice:
    """Members that may be returned, and what they predict of rows held out, (m,)."""

    members: Ensemble
    eta: np.ndarray


@dataclass(frozen=True, slots=True)
class Exploration:
    """What the restarts of one view of the table came to.

    Attributes
    ----------
    view : View
        Around the point that members are fitted around.
    path : GlmPath
    selection : Selection
    agreed, loose : list of EvidenceState
        Restarts within the selected supports, and within those that each of them found.
        None where the evidence prefers the GLM.
    glm : Coefficients
        Returned where there are none.
    held_out : HeldOut or None
        None without time, or where nothing is to be decided.
    """

    view: View
    path: GlmPath
    selection: Selection
    agreed: list[EvidenceState]
    loose: list[EvidenceState]
    glm: Coefficients
    held_out: HeldOut | None

    @property
    def has_network(self) -> bool:
        """Whether there is a member in either pool."""
        return bool(self.agreed or self.loose)

    def choice(self, pool: str) -> Choice:
        """Members of a pool, or the GLM where there are none."""
        states: list[EvidenceState] = getattr(self, pool)
        eta = np.empty(0)
        if self.held_out is not None:
            eta = getattr(self.held_out, pool if states else "glm")
        if not states:
            return Choice(glm_member(self.view.problem, self.glm), eta)
        modulated = [s.support & s.input_support.any() for s in states]
        members = Ensemble(
            torch.stack([s.coef for s in states]),
            torch.stack([s.intercept for s in states]),
            torch.stack([s.params for s in states]),
            torch.stack(modulated),
        )
        return Choice(members, eta)


def glm_member(problem: Problem, glm: Coefficients) -> Ensemble:
    """A GLM as the only member, its network silent."""
    spec, coef = problem.spec, glm.coef[:1]
    nothing = torch.zeros(1, spec.n_features, dtype=torch.bool, device=coef.device)
    silent = coef.new_zeros(1, spec.n_params)
    return Ensemble(coef, glm.intercept[:1], silent, nothing)


def straight_columns(problem: Problem) -> Tensor:
    """Terms that are no curves, (q,), bool; see `FeatureMap.term_group`."""
    part = problem.term_group // max(problem.spec.n_features, 1)
    return part != 1


def without_curves(view: View) -> View:
    """The same table from the same point, with lines, levels and indicators alone."""
    problem = view.problem
    kept = straight_columns(problem)
    problem = replace(
        problem,
        columns=MemoryColumns(problem.terms[:, kept].contiguous(), problem.inputs),
        term_feature=problem.term_feature[kept],
        term_group=problem.term_group[kept],
    )
    return replace(view, problem=problem, reference=None, kind="straight")


def decide(
    curved: Exploration,
    straight: Exploration | None,
    settings: Settings,
    most: np.ndarray,
) -> tuple[Ensemble | None, Verdict | None]:
    """Members to return, None for the GLM, and what the held-out rows say of them.

    `most` is the weight of every row. Without time the evidence has the last word.
    """
    if curved.held_out is None:
        return (curved.choice("agreed").members if curved.agreed else None), None
    pools = [
        choices
        for pool in ("agreed", "loose")
        if (choices := make_choices(curved, straight, pool, settings.n_members))
    ]
    if not pools:
        return None, None
    problem, where = curved.view.problem, curved.held_out

    def loss(choice: Choice) -> float:
        losses = eta_losses(problem, where.rows, choice.eta)
        return float(np.average(losses, weights=where.weight))

    choices = min(pools, key=lambda choices: loss(choices[0]))
    best = choices[0]
    for other in choices[1:]:
        against = judge(problem, where, other.eta, most, best.eta)
        if against.gain > against.error:
            best = other
    verdict = judge(problem, where, best.eta, most, tiny_gain=settings.tiny_gain)
    return (best.members if verdict.keeps_network else None), verdict


def make_choices(
    curved: Exploration, straight: Exploration | None, pool: str, n_members: int
) -> list[Choice]:
    """What has a network, the average of both kinds first.

    It depends less on chance than one kind alone, which must be clearly better.
    """
    curves, alone = curved.choice(pool), []
    if curved.has_network:
        if not getattr(curved, pool):
            return []
        alone = [curves]
    if straight is None or straight.held_out is None or not getattr(straight, pool):
        return alone
    lines = straight.choice(pool)
    kept = straight_columns(curved.view.problem)
    lines = replace(lines, members=_with_curves(lines.members, kept))
    both = [average(curves, lines, n_members)] if n_members > 1 else []
    return [*both, *alone, lines]


def average(first: Choice, second: Choice, n_members: int) -> Choice:
    """Both, with the same weight whatever their numbers of members."""
    sizes = [len(each.members.coef) for each in (first, second)]
    count = min(n_members // 2, max(sizes))
    tensors = [
        torch.cat(
            [
                getattr(each.members, name)[torch.arange(count) % size]
                for each, size in zip((first, second), sizes, strict=True)
            ]
        )
        for name in Ensemble.__slots__
    ]
    return Choice(Ensemble(*tensors), (first.eta + second.eta) / 2)


def _with_curves(members: Ensemble, kept: Tensor) -> Ensemble:
    """Straight members among the terms of the curved model."""
    coef = members.coef.new_zeros(len(members.coef), len(kept))
    coef[:, kept] = members.coef
    return replace(members, coef=coef)


def join_tables(curved: Exploration, straight: Exploration | None) -> dict[str, Any]:
    """Restarts of both searches, the straight ones named so."""
    table = curved.selection.table()
    if straight is not None:
        more = straight.selection.table()
        more["stage"] = [f"straight {stage}" for stage in more["stage"]]
        table = {name: column + more[name] for name, column in table.items()}
    return table
