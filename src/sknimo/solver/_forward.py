"""From the network's weights to the penalised loss and its gradient, by blocks of rows.

One evaluation: make the design `phi * (1 + g)`, eliminate the coefficients (inner
solve, float64), differentiate the penalised loss with the coefficients held fixed,
which is exact by the envelope theorem. If all rows fit into the memory budget, one pass
serves solve and gradient. Otherwise rows come in blocks: passes without gradient serve
the solve, and a last pass makes every block again with gradient.

Shapes: K models, n rows, q term columns, r inputs, p features, a active, P weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.network import Modulator
from sknimo.penalties import CoefPenalty
from sknimo.solver._problem import Members, Options, Problem
from sknimo.solver._profile import (
    Coefficients,
    InnerSolution,
    PerRow,
    Rows,
    agree,
    expand,
    solve_coefficients,
    start_coefficients,
    step_from,
)
from sknimo.solver._quadratic import Design, as_design
from sknimo.solver._supply import RowSupply, send

# Coefficients far below this size are majorised as if they had it (penalties.ridge).
RIDGE_FLOOR = 1e-4
# A feature is modulated while its coefficients exceed this share of the largest.
ACTIVE_SHARE = 1e-3
# Newton steps of the inner solve per network step when the loss is not quadratic.
GLM_INNER_STEPS = 2

# Noise of some rows, (m, h1).
RowNoise = Callable[[slice], Tensor]


@dataclass(frozen=True, slots=True)
class Bent:
    """K networks and the features that they bend."""

    params: Tensor  # (K, P)
    # Features to evaluate; short rows are padded with features outside the mask.
    active: Tensor  # (K, a)
    mask: Tensor  # (K, p), bool, features that are bent

    @classmethod
    def by(cls, params: Tensor, mask: Tensor) -> Bent:
        """Bend the features of the mask."""
        return cls(params, pad_active(mask), mask)

    def leaf(self) -> Bent:
        """The same with weights to differentiate by."""
        return replace(self, params=self.params.detach().requires_grad_(True))

    @property
    def n_active(self) -> int:
        """Features that are evaluated per model, a."""
        return self.active.shape[1]


@dataclass(frozen=True, slots=True)
class Point:
    """The profiled objective at one state of the network."""

    coefficients: Coefficients
    objective: Tensor  # (K,)
    gradient: Tensor  # (K, P), empty when only the value was asked for
    eta: Tensor  # (K, n), of the own rows
    penalty: CoefPenalty  # as priced by this design


class Forward:
    """Evaluates design, objective and gradient over blocks of rows.

    `RowSupply` cuts the blocks, within the `budget` in bytes if one is given.
    """

    def __init__(
        self,
        problem: Problem,
        members: Members,
        options: Options,
        budget: int | None = None,
    ) -> None:
        self.problem = problem
        self.members = members
        self.rows = problem.rows(members.weight)
        self.options = options
        self.modulator = Modulator.build(problem.spec, problem.device, options.dtype)
        self.supply = RowSupply(problem, options, budget)

    # --- Design ----------------------------------------------------------------------

    def block(self, bent: Bent, rows: slice, noise: RowNoise | None = None) -> Tensor:
        """`phi * (1 + g)` for some rows and their noise, (K, rows, q) in float64."""
        terms, inputs = self.supply.read(rows)
        return self.bend(bent, terms, inputs, None if noise is None else noise(rows))

    def bend(
        self, bent: Bent, terms: Tensor, inputs: Tensor, noise: Tensor | None
    ) -> Tensor:
        """The same for rows that have been read, (K, m, q)."""
        problem = self.problem
        if bent.n_active == 0:
            return terms.expand(self.members.n_models, -1, -1)
        bend = self.modulator(bent.params, inputs, bent.active, noise).double()
        p = problem.spec.n_features
        n_models, n_rows, _ = bend.shape
        # Padding entries of `active` point at p, a column that is cut off again.
        full = bend.new_zeros(n_models, n_rows, p + 1)
        slots = torch.where(bent.mask.gather(1, bent.active), bent.active, p)
        slots = slots.unsqueeze(1).expand(-1, n_rows, -1)
        full = full.scatter(2, slots, bend)
        return torch.addcmul(terms, terms, full[..., problem.term_feature])

    def design(self, bent: Bent, noise: RowNoise | None = None) -> Design:
        """The design of all rows, without gradient; kept when there is room."""
        blocks, keep = self.supply.plan(self.members.n_models, bent.n_active)

        @torch.no_grad()
        def make(rows: slice) -> Tensor:
            return self.block(bent, rows, noise)

        return Design(make, blocks, self.problem.n_terms, keep)

    def price(self, square: Tensor) -> CoefPenalty:
        """The penalty, priced by the mean squares (K, q) of the design's columns."""
        penalty = self.members.penalty
        if not self.options.scale_contributions:
            return penalty
        weight = torch.zeros_like(penalty.weight)
        weight.index_add_(1, penalty.column_feature, square)
        # Size to the power of the penalty: then only `|beta_j| * size` is priced.
        size = weight.sqrt().clamp(min=1e-12)
        return penalty.reweighted(size**penalty.power)

    # --- Objective and gradient ------------------------------------------------------

    def differentiate(
        self, bent: Bent, at: Coefficients, noise: RowNoise | None
    ) -> Point:
        """Profiled objective and its gradient, coefficients solved from `at`."""
        rows, leaf, graph = self.rows, bent.leaf(), None
        blocks, _ = self.supply.plan(self.members.n_models, bent.n_active)
        if len(blocks) == 1:
            with torch.enable_grad():
                graph = self.block(leaf, blocks[0], noise)
            design = as_design(graph.detach())
        else:
            design = self.design(bent, noise)
        here = expand(design, rows, at, square=self.options.scale_contributions)
        penalty = self.price(here.square)
        n_steps = 1 if self.problem.family.least_squares else GLM_INNER_STEPS
        for left in reversed(range(n_steps)):
            ridge = penalty.ridge(at.coef, RIDGE_FLOOR)
            step = step_from(here, design, rows, ridge, again=left > 0)
            at = step.coefficients
            if left > 0:
                here = step.here or expand(design, rows, at)
        gradient, eta = self.gradient(leaf, penalty, at, noise, graph)
        objective = rows.objective(eta, penalty.value(at.coef))
        return Point(at, objective, gradient, eta, penalty)

    def gradient(
        self,
        leaf: Bent,
        penalty: CoefPenalty,
        at: Coefficients,
        noise: RowNoise | None = None,
        graph: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Gradient (K, P) at fixed coefficients, and `eta` (K, n).

        `graph` is the only block, if it has been made with gradient already.
        """
        rows, gradient = self.rows, torch.zeros_like(leaf.params)
        gathered = PerRow(rows)
        blocks, _ = self.supply.plan(self.members.n_models, leaf.n_active)
        for some in blocks:
            with torch.enable_grad():
                block = self.block(leaf, some, noise) if graph is None else graph
            part = rows.part(some)
            eta = part.eta(block.detach(), at.coef, at.intercept)
            gathered.put(some, eta)
            if leaf.n_active > 0:
                upstream = self.upstream(part, penalty, block.detach(), eta, at)
                gradient += torch.autograd.grad(block, leaf.params, upstream)[0]
        return rows.ranks.total(gradient), gathered.values

    def differentiate_batch(
        self,
        bent: Bent,
        penalty: CoefPenalty,
        at: Coefficients,
        batch: Tensor,
        ahead: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Gradient estimated on a batch; coefficients and prices stay, (K, P).

        `batch` (m,) numbers rows over all ranks, and its `noise` is (m, h1); `ahead`
        are rows that later batches will ask for.
        """
        leaf, rows = bent.leaf(), self.rows
        gradient = torch.zeros_like(leaf.params)
        if bent.n_active == 0:
            return gradient
        n_models = self.members.n_models
        parts = self.supply.batch(batch, ahead, n_models, bent.n_active)
        for position, where, terms, inputs in parts:
            drawn = None
            if noise is not None:
                drawn = send(noise[position], terms.device).to(gradient.dtype)
            with torch.enable_grad():
                block = self.bend(leaf, terms, inputs, drawn)
            # Weights of the batch stand for those of all rows.
            weight = rows.weight[:, where] * (self.supply.n_total / len(batch))
            part = replace(rows.part(where), weight=weight)
            eta = part.eta(block.detach(), at.coef, at.intercept)
            upstream = self.upstream(part, penalty, block.detach(), eta, at)
            gradient += torch.autograd.grad(block, leaf.params, upstream)[0]
        return self.problem.ranks.total(gradient)

    def upstream(
        self,
        rows: Rows,
        penalty: CoefPenalty,
        design: Tensor,
        eta: Tensor,
        at: Coefficients,
    ) -> Tensor:
        """Derivative of the objective in the design, coefficients fixed, (K, n, q)."""
        upstream = -rows.score(eta).unsqueeze(-1) * at.coef.unsqueeze(1)
        if self.options.scale_contributions:
            # The price of feature j is the size of its columns to the power of the
            # penalty; the network moves it: d size**power = power size**(power - 2) ...
            power = penalty.power
            value = penalty.strength.unsqueeze(-1) * penalty.norm(at.coef) ** power
            size = penalty.weight ** (1 / power)
            factor = penalty.spread(value * power * size ** (power - 2)).unsqueeze(1)
            upstream = upstream + factor * rows.weight.unsqueeze(-1) * design
        return upstream

    @torch.no_grad()
    def evaluate(self, bent: Bent, at: Coefficients) -> Point:
        """Noise-free profiled objective, without gradient."""
        design, rows = self.design(bent), self.rows
        here = expand(design, rows, at, square=self.options.scale_contributions)
        penalty = self.price(here.square)
        ridge = penalty.ridge(at.coef, RIDGE_FLOOR)
        step = step_from(here, design, rows, ridge)
        at, eta = step.coefficients, step.eta
        if eta is None:
            eta = rows.eta(design, at.coef, at.intercept)
        objective = rows.objective(eta, penalty.value(at.coef))
        return Point(at, objective, bent.params.new_zeros(0), eta, penalty)

    @torch.no_grad()
    def solve_exactly(self, bent: Bent, start: Coefficients | None) -> InnerSolution:
        """Noise-free design and inner optimum, with exact zeros."""
        design, rows = self.design(bent), self.rows
        at = start_coefficients(rows, design.n_columns)
        null = expand(design, rows, at, square=self.options.scale_contributions)
        penalty = self.price(null.square)
        return solve_coefficients(design, rows, penalty, start, null=null)

    @torch.no_grad()
    def eta(self, bent: Bent, at: Coefficients) -> Tensor:
        """Linear predictor of the own rows, (K, n)."""
        return self.rows.eta(self.design(bent), at.coef, at.intercept)

    def choose_active(self, coef: Tensor) -> Tensor:
        """Features worth modulating, as a mask (K, p)."""
        norm = self.members.penalty.norm(coef)
        largest = norm.amax(-1, keepdim=True)
        mask = (norm > ACTIVE_SHARE * largest) & ~self.problem.unbent
        return agree(self.problem.ranks, mask.long()).bool()


def pad_active(mask: Tensor) -> Tensor:
    """Indices of the true entries, (K, a); short rows are padded with false ones."""
    n_active = int(mask.sum(-1).max()) if mask.numel() else 0
    order = torch.argsort(mask.to(torch.int8), dim=-1, descending=True, stable=True)
    return order[:, :n_active]
