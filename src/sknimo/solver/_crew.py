"""Members in training as one program: Gauss-Newton steps, penalties by evidence.

Inputs and groups of terms that every member has switched off leave the arrays: costs
are those of what is left.

Shapes: K members, n rows, q term columns, r inputs, p features, a active features,
P weights, m = q + P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sknimo.network import keep_inputs, restore_inputs
from sknimo.solver._member import (
    EvidenceOptions,
    EvidenceState,
    estimate_dispersion,
    group_sums,
    mean_deviance,
    param_groups,
    restrict,
)
from sknimo.solver._problem import Problem
from sknimo.solver._profile import Coefficients, Rows, newton_steps
from sknimo.solver._tangent import (
    BLOCK_BYTES,
    Dual,
    DualFactor,
    Primal,
    PrimalFactor,
    Tangent,
    Whitened,
    Working,
    linearise,
    needed_bytes,
    working_rows,
)

MAX_DAMPING = 1e8
# A step that promises less than this share of the objective is rounding.
STANDSTILL = 1e-13
# Steps that are tried before a member stays where it is.
TRIALS = 6
# Newton steps that re-solve the coefficients when the loss is not quadratic.
GLM_INNER_STEPS = 3
# Numbers in the Jacobians of a crew, which should not leave the cache of a processor by
# far, and members at most, as many as there are folds: half a stage is less.
CREW_NUMBERS = 1e6
LARGEST_CREW = 5


def crew_size(problem: Problem, n_used: int | None = None) -> int:
    """Members that are fitted as one program: several where tables are small.

    They use `n_used` of the features, or all of them.
    """
    numbers = problem.n_rows * (problem.n_terms + problem.spec.n_params)
    if n_used is not None:
        numbers = max(1, numbers * n_used // problem.spec.n_features)
    return max(1, min(LARGEST_CREW, int(CREW_NUMBERS // numbers)))


class Crew:
    """Members in training, all steps at once: their states on common arrays.

    The arrays have what any of the members needs; terms and inputs that one of them
    does not have are zero for it. One operation for all costs little more than for one
    where tables are small.
    """

    def __init__(
        self,
        problem: Problem,
        weight: Tensor,
        starts: Sequence[EvidenceState],
        options: EvidenceOptions,
    ) -> None:
        self.problem, self.options = problem, options
        self.rows = Rows(problem.y, problem.offset, weight, problem.family)
        self.damping = torch.ones_like(weight[:, 0])
        self.log_evidence = [state.log_evidence for state in starts]
        self.n_effective = [state.n_effective for state in starts]
        self.is_past = [False] * len(starts)  # whether evidence is of more inputs
        self._arrange(starts)

    def __len__(self) -> int:
        return self.damping.shape[0]  # at a fraction of what `len` of a tensor takes

    def _arrange(self, states: Sequence[EvidenceState]) -> None:
        """Leave out what no member needs; the networks shrink with their inputs."""
        problem, device = self.problem, self.rows.y.device
        self.states = list(states)
        support, reads, params, coef = (
            torch.stack([getattr(state, name) for state in states])
            for name in ("support", "input_support", "params", "coef")
        )
        self.intercept, self.params_precision, self.coef_precision = (
            torch.stack([getattr(state, name) for state in states])
            for name in ("intercept", "params_precision", "coef_precision")
        )
        self.dispersion = params.new_tensor([state.dispersion for state in states])
        self.support, self.reads = support, reads
        # Without inputs or coefficients there is no network to pay a prior for.
        bent = (reads.any(-1) & support.any(-1)).unsqueeze(-1)
        reads, params = reads & bent, params * bent
        owner = torch.tensor(
            problem.spec.input_feature, dtype=torch.long, device=device
        )
        self.live = reads.any(0)[owner].nonzero().squeeze(-1)
        self.spec, self.params = keep_inputs(problem.spec, params, self.live)
        self.group = param_groups(self.spec).to(device)
        if len(self.live) == 0:
            self.params, self.group = self.params[:, :0], self.group[:0]
        self.active = (support.any(0) & ~problem.unbent).nonzero().squeeze(-1)
        alive = self.coef_precision <= self.options.dead_coef
        alive = support[:, problem.term_feature] & alive[:, problem.term_group]
        self.columns = alive.any(0).nonzero().squeeze(-1)
        self.alive = alive[:, self.columns].to(params)
        self.column_feature = problem.term_feature[self.columns]
        self.linear_group = problem.term_group[self.columns]
        terms = problem.terms[:, self.columns]
        if not bool(self.alive.all()):
            terms = terms * self.alive.unsqueeze(1)
        seen = reads[:, owner[self.live]]
        self.tangent = Tangent(
            self.spec,
            problem.inputs[:, self.live],
            terms,
            self.column_feature,
            self.active,
            None if bool(seen.all()) else seen.to(params),
        )
        self.chunks = self.tangent.chunks(_chunk_bytes(self), len(states))
        # Groups of all parameters, those of coefficients first, and live terms in each.
        n_groups = self.coef_precision.shape[1]
        self.owner = torch.cat([self.linear_group, n_groups + self.group])
        self.width = group_sums(self.alive, self.linear_group, n_groups)
        self.coef = coef[:, self.columns] * self.alive
        self.design = self._evaluate(self.tangent, self.params)
        self.eta = self.rows.eta(self.design, self.coef, self.intercept)  # (K, n)
        self.loss = self.rows.loss(self.eta)
        self.working: Working | None = None
        self.cached: Primal | Dual | None = None
        self.fixed: Whitened | None = None
        # Of a quadratic with the precisions as they are: a step and their update share
        # it.
        self.factor: PrimalFactor | DualFactor | None = None
        # Marginal variance of each coefficient and what the data add to its precision;
        # nothing until it has been updated.
        self.variance = 1 / self.coef_precision[:, self.linear_group]
        self.information = torch.zeros_like(self.variance)

    def _evaluate(self, tangent: Tangent, params: Tensor) -> Tensor:
        """The design for some weights, (K, n, q), block by block."""
        if tangent.is_linear or len(self.chunks) == 1:
            return tangent.design(params, keep=True)
        return torch.cat([tangent.design(params, rows) for rows in self.chunks], dim=1)

    def _precision(self) -> Tensor:
        """Precision of every parameter, coefficients first, (K, m)."""
        each = [self.coef_precision, self.params_precision]
        return torch.cat(each, dim=1)[:, self.owner]

    def _theta(self) -> Tensor:
        return torch.cat([self.coef, self.params], dim=1)

    def _linearised(self) -> Primal | Dual:
        """Curvature here; a precision update and the next step share it."""
        if self.cached is None:
            working = working_rows(self.rows, self.eta, self.working)
            self.working = working
            if self.is_quadratic:
                if self.fixed is None:
                    self.fixed = Whitened(self.design.mT.clone(), working.root)
                self.cached = self.fixed.at(working)
            else:
                self.cached = linearise(
                    self.tangent, self.params, self.coef, working, self.chunks
                )
        return self.cached

    @property
    def is_quadratic(self) -> bool:
        """Whether one step is exact, and another design is never needed."""
        lines = self.tangent.is_linear and self.params.shape[1] == 0
        return lines and self.rows.family.least_squares and len(self.chunks) == 1

    def newton_step(self) -> None:
        """One damped Gauss-Newton step on everything, then the coefficients exactly.

        Members whose trial fails try again with more damping, or half the step where
        there is no network to damp; the others wait.
        """
        linear, precision, theta = self._linearised(), self._precision(), self._theta()
        before = self.loss / self.dispersion + _prior(precision, theta)
        scale = self.dispersion.unsqueeze(-1)
        downhill = linear.pull / scale - precision * theta
        left = torch.arange(len(self), device=theta.device)
        for count in range(TRIALS):
            trial = _Trial(self, left, linear, precision, downhill, 0.5**count)
            # Where there is nowhere to go, more damping would not help.
            goes = ~(trial.promise <= STANDSTILL * before[left].abs())
            if not bool(goes.any()):
                return
            if not bool(goes.all()):
                trial.keep(goes)
                left = trial.members
            gain = before[left] - trial.finish()
            better = gain > 0
            self._accept(trial, better)
            damping = self.damping[left] * _next_damping(gain, trial.promise)
            self.damping[left] = damping.clamp(1e-6, MAX_DAMPING)
            if bool(better.all()):
                return
            left = left[~better]

    def _accept(self, trial: _Trial, better: Tensor) -> None:
        if not bool(better.any()):
            return
        self.cached = None
        everybody = len(trial.members) == len(self) and bool(better.all())
        where = trial.members[better]
        for name in ("params", "coef", "intercept", "design", "eta", "loss"):
            found = getattr(trial, name)
            if not everybody:
                some, found = found[better], getattr(self, name).clone()
                found[where] = some
            setattr(self, name, found)

    def update_precisions(self) -> None:
        """Move precisions and dispersion towards the maximum of the evidence."""
        q, options, family = self.coef.shape[1], self.options, self.rows.family
        precision, theta = self._precision(), self._theta()
        factor = self.factor
        if factor is None:
            factor = self._linearised().factorised(self.dispersion, precision)
        posterior = factor.posterior()
        determined = (1 - precision * posterior.variance).clamp(0, 1)
        n_groups, n_blocks = self.width.shape[1], self.params_precision.shape[1]
        counted = group_sums(determined, self.owner, n_groups + n_blocks)
        size = group_sums(theta.square(), self.owner, n_groups + n_blocks)
        of_coef, of_block = counted.split([n_groups, n_blocks], dim=1)
        coef_size, block_size = size.split([n_groups, n_blocks], dim=1)
        learned = (of_block + 1e-3) / (block_size + 1e-8)
        params_precision = torch.where(block_size > 0, learned, self.params_precision)
        params_precision = params_precision.clamp(*options.precision_range)
        least, most = options.precision_range
        if family.separable:
            least = options.least_logit_precision
        learned = ((of_coef + 1e-6) / (coef_size + 1e-10)).clamp(least, most)
        coef_precision = torch.where(self.width > 0, learned, self.coef_precision)
        used = determined.sum(-1) + 1
        evidence = -self.loss / self.dispersion - posterior.half_log_det
        evidence -= _prior(precision, theta)
        if family.estimates_dispersion:  # the intercept takes one row's worth
            free = self.rows.weight.sum(-1) - 1
            evidence -= free / 2 * self.dispersion.log()
        dispersion = _dispersion(self, used)
        self.variance = posterior.variance[:, :q]
        # Less the precision that comes next: a coefficient on its way out counts for
        # more than it is worth, and is not dropped while others may still need it.
        self.information = 1 / self.variance - coef_precision[:, self.linear_group]
        self.params_precision, self.coef_precision = params_precision, coef_precision
        self.dispersion, self.factor = dispersion.clamp(min=1e-10), None
        # What is not a number has failed and must lose every comparison.
        evidence = evidence.nan_to_num(-math.inf, -math.inf, -math.inf)
        self.log_evidence = evidence.tolist()
        self.n_effective = used.tolist()
        p = self.support.shape[1]
        dead_inputs = self.reads & (params_precision[:, :p] > options.dead_input)
        dead_groups = (self.width > 0) & (coef_precision > options.dead_coef)
        # Weights of an input may be small and yet matter, where those that read them
        # are large: the evidence of who loses one is that of another model.
        self.is_past = dead_inputs.any(-1).tolist()
        if bool(dead_inputs.any() or dead_groups.any()):
            self._switch_off(dead_groups, dead_inputs)

    def drop_useless(self, members: Sequence[int]) -> list[int]:
        """Switch off groups below one: the evidence rises when they leave.

        Returns the members among these that had any.
        """
        n_groups = self.width.shape[1]
        wald = group_sums(_wald_columns(self), self.linear_group, n_groups)
        useless = wald < self.width
        asked = torch.zeros_like(useless[:, :1])
        asked[list(members)] = True
        useless &= asked
        if not bool(useless.any()):
            return []
        found = [k for k in members if bool(useless[k].any())]
        self._switch_off(useless, torch.zeros_like(self.reads))
        return found

    def _switch_off(self, groups: Tensor, inputs: Tensor) -> None:
        """Set groups of terms (K, n_groups) and inputs (K, p) to zero for good.

        A feature stays as long as one of its groups does.
        """
        problem, states = self.problem, self.expanded()
        changed = (groups.any(-1) | inputs.any(-1)).nonzero().squeeze(-1).tolist()
        for k in changed:
            state, gone = states[k], groups[k]
            kept = (self.alive[k] > 0) & ~gone[self.linear_group]
            support = torch.zeros_like(state.support)
            support[self.column_feature[kept]] = True
            dead = state.coef_precision.masked_fill(
                gone, self.options.precision_range[1]
            )
            state = replace(
                state, coef=state.coef * ~gone[problem.term_group], coef_precision=dead
            )
            reads = state.input_support & ~inputs[k]
            states[k] = restrict(state, problem, reads, support)
        self._rearrange(states)

    def _rearrange(
        self, states: list[EvidenceState], kept: Tensor | None = None
    ) -> None:
        """New arrays, with what is known of the coefficients that stay."""
        before, variance, information = self.columns, self.variance, self.information
        if kept is not None:
            variance, information = variance[kept], information[kept]
        self._arrange(states)
        place = torch.searchsorted(before, self.columns)
        self.variance, self.information = variance[:, place], information[:, place]

    def leave(self, members: Sequence[int]) -> list[EvidenceState]:
        """States of members that are done; the others go on without them."""
        states = self.expanded()
        others = [k for k in range(len(self)) if k not in members]
        kept = torch.tensor(others, dtype=torch.long, device=self.damping.device)
        self.damping, self.rows = self.damping[kept], self.rows.take(kept)
        self.log_evidence = [self.log_evidence[k] for k in others]
        self.n_effective = [self.n_effective[k] for k in others]
        self.is_past = [self.is_past[k] for k in others]
        if others:
            self._rearrange([states[k] for k in others], kept)
        return [states[k] for k in members]

    def expanded(self) -> list[EvidenceState]:
        """States with parameters on the full set of inputs and columns."""
        problem, n_members = self.problem, len(self)
        coef = self.coef.new_zeros(n_members, problem.n_terms)
        coef[:, self.columns] = self.coef
        params = self.coef.new_zeros(n_members, problem.spec.n_params)
        if self.params.shape[1]:
            params = restore_inputs(problem.spec, self.spec, self.params, self.live)
        return [
            replace(
                self.states[k],
                params=params[k],
                coef=coef[k],
                intercept=self.intercept[k],
                params_precision=self.params_precision[k],
                coef_precision=self.coef_precision[k],
                dispersion=float(self.dispersion[k]),
                log_evidence=self.log_evidence[k],
                n_effective=self.n_effective[k],
            )
            for k in range(n_members)
        ]


def _chunk_bytes(crew: Crew) -> float:
    """Memory of one block of rows: what the matrices of a step leave."""
    n_parameters = len(crew.columns) + crew.params.shape[1]
    needed = len(crew) * needed_bytes(len(crew.rows.y), n_parameters)
    spare = crew.options.memory_budget - needed
    on_cpu = crew.rows.y.device.type == "cpu"
    return min(spare, BLOCK_BYTES) if on_cpu else spare


def _next_damping(gain: Tensor, promise: Tensor) -> Tensor:
    """How damping changes with what a step has gained, (K,); twice that was promised.

    Raised before steps fail: these cost as much as others. By whether they fail alone:
    1.10 of the seconds (settings of the paper, ten seeds each).
    """
    kept = torch.where(gain > promise / 8, 1.0, 2.0)
    kept = torch.where(gain > promise * 3 / 8, 1 / 3, kept)
    return torch.where(gain > 0, kept, 4.0)  # NaN counts as worse


def _prior(precision: Tensor, theta: Tensor) -> Tensor:
    """Minus the log prior up to a constant, (K,)."""
    return (precision * theta.square()).sum(-1) / 2


def _dispersion(crew: Crew, used: Tensor) -> Tensor:
    """What `estimate_dispersion` says of each, (K,)."""
    family = crew.rows.family
    if not family.estimates_dispersion:
        return torch.ones_like(used)
    if family.dispersion == "deviance":
        return mean_deviance(crew.rows, crew.loss, used)
    found = [
        estimate_dispersion(crew.rows.take(slice(k, k + 1)), crew.eta[k], n_used)
        for k, n_used in enumerate(used.tolist())
    ]
    return used.new_tensor(found)


def _wald_columns(crew: Crew) -> Tensor:
    """Squared Wald statistic per term, its own prior left out, (K, q)."""
    information = crew.information.clamp(min=1e-300)
    return (crew.coef / crew.variance).square() / information


def wald(crew: Crew) -> Tensor:
    """Squared Wald statistic per feature, summed over its terms, (K, p)."""
    n_features = crew.support.shape[1]
    return group_sums(_wald_columns(crew), crew.column_feature, n_features)


class _Trial:
    """Where a damped step takes some members of a crew."""

    def __init__(
        self,
        crew: Crew,
        members: Tensor,
        linear: Primal | Dual,
        precision: Tensor,
        downhill: Tensor,
        share: float,
    ) -> None:
        self.crew, self.members, self.share = crew, members, share
        self.dispersion, damping = crew.dispersion, crew.damping
        self.precision, gain, here = precision, linear.level_gain, crew.params
        if len(members) < len(crew):
            linear, gain = linear.take(members), gain[members]
            self.precision, downhill = precision[members], downhill[members]
            self.dispersion, damping = self.dispersion[members], damping[members]
            here = here[members]
        q = crew.coef.shape[1]
        damped = self.precision.clone()
        damped[:, q:] += damping.unsqueeze(-1)
        factor = crew.factor
        if factor is None or len(members) < len(crew):
            factor = linear.factorised(self.dispersion, damped)
            if crew.is_quadratic and len(members) == len(crew):
                crew.factor = factor
        move = factor.solve(downhill.unsqueeze(-1)).squeeze(-1)
        self.promise = (downhill * move).sum(-1) + gain / self.dispersion
        self.params, self.move = here + move[:, q:], move[:, :q]

    def keep(self, some: Tensor) -> None:
        """Go on with some of the members alone."""
        self.members, self.params = self.members[some], self.params[some]
        self.move, self.promise = self.move[some], self.promise[some]
        self.dispersion, self.precision = self.dispersion[some], self.precision[some]

    def finish(self) -> Tensor:
        """Re-solve the coefficients; the penalised objective there, (K,)."""
        crew, rows, tangent = self.crew, self.crew.rows, self.crew.tangent
        at = Coefficients(crew.coef, crew.intercept)
        if len(self.members) < len(crew):
            rows, tangent = rows.take(self.members), tangent.take(self.members)
            at = at.take(self.members)
        self.design = crew._evaluate(tangent, self.params)
        q = at.coef.shape[1]
        if tangent.is_linear:  # the step has solved for them
            at = self._move(at)
        else:
            ridge = self.precision[:, :q] * self.dispersion.unsqueeze(-1)
            n_steps = 1 if rows.family.least_squares else GLM_INNER_STEPS
            at = newton_steps(self.design, rows, ridge, at, n_steps)
        self.coef, self.intercept = at.coef, at.intercept
        self.eta = rows.eta(self.design, at.coef, at.intercept)
        self.loss = rows.loss(self.eta)
        theta = torch.cat([at.coef, self.params], dim=1)
        return self.loss / self.dispersion + _prior(self.precision, theta)

    def _move(self, at: Coefficients) -> Coefficients:
        """A share of the step of the coefficients, and the intercept that goes with it.

        The intercept was projected out of the step.
        """
        working, move = self.crew.working, self.share * self.move
        assert working is not None
        root, level = working.root[self.members], working.level[self.members]
        fitted = (self.design @ move.unsqueeze(-1)).squeeze(-1)
        size = root.norm(dim=-1).clamp(min=1e-300)
        shift = self.share * level - (root.square() * fitted).sum(-1) / size
        return Coefficients(at.coef + move, at.intercept + shift / size)


def reference_step(
    problem: Problem,
    weight: Tensor,
    state: EvidenceState,
    movable: Tensor,
    moved: Tensor,
    options: EvidenceOptions,
) -> Tensor:
    """Gauss-Newton step of the reference, in scales of the features, (p,).

    Where `x_j - ref_j` is zero matters to a modulated feature: around another reference
    the model fits other functions. The mean of the population is known up to its
    standard error, which is the prior of `moved` (p,), the move away from the sample's
    mean so far; all other parameters are free to follow the step. Only `movable` (p,)
    features that are one line move.
    """
    crew = Crew(problem, weight.unsqueeze(0), [state], options)
    move = torch.zeros_like(moved)
    columns = movable[crew.column_feature].nonzero().squeeze(-1)
    if crew.tangent.is_linear or len(columns) == 0:
        return move
    working = working_rows(crew.rows, crew.eta)
    root, unit, score = working.root[0], working.unit[0], working.score[0]
    # Of `eta` in the reference.
    slope = -_local_coef(crew)[:, columns] * root.unsqueeze(-1)
    slope = slope - unit.unsqueeze(-1) * (unit @ slope)
    cross = slope.new_zeros(crew._theta().shape[1], len(columns))
    for rows in crew.chunks:
        block = crew.tangent.jacobian(crew.params, crew.coef, rows)[0]
        cross += (block * root[rows].unsqueeze(-1)).mT @ slope[rows]
    linear, dispersion = crew._linearised(), crew.dispersion[0]
    precision = crew._precision()
    downhill = linear.pull[0] / dispersion - (precision * crew._theta())[0]
    targets = torch.cat([cross / dispersion, downhill.unsqueeze(-1)], dim=1)
    factor = linear.factorised(crew.dispersion, precision)
    follow = factor.solve(targets.unsqueeze(0))[0]
    prior = crew.rows.weight.sum()  # the mean of n unit variances
    curvature = (slope.mT @ slope - cross.mT @ follow[:, :-1]) / dispersion
    curvature.diagonal().add_(prior)
    pull = (slope.mT @ score - cross.mT @ follow[:, -1]) / dispersion
    feature = crew.column_feature[columns]
    pull = pull - prior * moved[feature]
    move[feature] = torch.linalg.solve(curvature, pull)
    return move


def _local_coef(crew: Crew) -> Tensor:
    """`coef * (1 + g)` of every row and column of the only member, (n, q)."""
    flat = Tangent(
        crew.spec,
        crew.tangent.inputs,
        torch.ones_like(crew.tangent.terms),
        crew.column_feature,
        crew.active,
    )
    parts = [flat.design(crew.params[0], rows) for rows in crew.chunks]
    return torch.cat(parts) * crew.coef[0]
