"""One member in training: Gauss-Newton steps, and its penalties by evidence.

Inputs and groups of terms that are switched off leave the arrays: all costs are those
of what is left.

Shapes: n rows, q term columns, r inputs, p features, a active features, P weights,
m = q + P parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.families import LINKS
from sknimo.network import NetworkSpec, keep_inputs, restore_inputs, unpack
from sknimo.solver._problem import Problem
from sknimo.solver._profile import Coefficients, Rows, newton_step
from sknimo.solver._tangent import (
    BLOCK_BYTES,
    Dual,
    Primal,
    Tangent,
    linearise,
    needed_bytes,
    working_rows,
)

MAX_DAMPING = 1e8
# A step that promises less than this share of the objective is rounding.
STANDSTILL = 1e-13
# Newton steps that re-solve the coefficients when the loss is not quadratic.
GLM_INNER_STEPS = 3


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """How hard to try.

    What was measured, all of it on poisson, is told in the words of
    `search/_settings.py`. A search sets `max_iter`, `window` and `feature_margin`.
    """

    max_iter: int = 80  # Gauss-Newton steps
    # Steps before the precisions start to move. Halved and doubled: as another
    # seed, in 0.9 and 1.5 of the seconds.
    burn_in: int = 8
    # Rise of the log evidence per step, averaged over `window`, that still counts.
    # Halved and doubled: same fit.
    tol: float = 0.05
    window: int = 6
    # Log evidence that removing one feature's coefficient or one input may cost.
    # That of an input halved and doubled: same fit.
    feature_margin: float = 4.0
    input_margin: float = 1.0
    # A feature that Wald statistics call idle may leave at this multiple of the margin,
    # where they can be trusted (not for classes, which they underrate). Halved and
    # doubled: same fit.
    faint_slack: float = 1.0
    # Bytes that a step may take beside the data: rows are cut into blocks.
    memory_budget: int = 10**9
    # Time (`time.monotonic`) after which no further step or trial begins.
    deadline: float = math.inf
    # Gauss-Newton steps of a trial without a feature, and without an input: a bilinear
    # term needs time to move to another feature. Halved and doubled: same fit; half
    # the steps without an input: as another seed.
    feature_steps: int = 40
    input_steps: int = 15
    # Features whose squared Wald statistic is beyond this many margins per term are not
    # tried: their evidence could not fall by so little. Halved and doubled: same fit.
    weak_margins: float = 4.0
    # Precisions are kept in this range; beyond it only rounding would change.
    # A decade more or less on both sides: same fit.
    precision_range: tuple[float, float] = (1e-6, 1e10)
    # Where classes or zero counts can be separated, coefficients run away: their prior
    # standard deviation stays below ten per standard deviation of a feature. A tenth
    # and tenfold: same fit.
    least_logit_precision: float = 1e-2
    # An input or group of terms whose precision passes this is switched off: a
    # prior standard deviation of a hundredth, and of less than a thousandth. A tenth
    # and tenfold: as another seed.
    dead_input: float = 1e4
    dead_coef: float = 1e7

    @property
    def out_of_time(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline < math.inf and time.monotonic() >= self.deadline


@dataclass(frozen=True, slots=True)
class EvidenceState:
    """Parameters of one member and what the data say about them."""

    params: Tensor  # (P,)
    coef: Tensor  # (q,)
    intercept: Tensor  # ()
    # One per input feature, then one per later block of weights.
    params_precision: Tensor  # (p + 5,)
    # One per group of terms; above `dead_coef` the group is switched off.
    coef_precision: Tensor  # (n_groups,)
    dispersion: float
    # Features with a coefficient, and features that the network reads.
    support: Tensor  # (p,), bool
    input_support: Tensor  # (p,), bool
    log_evidence: float = -math.inf
    n_effective: float = 0.0  # directions that the data determine
    n_iter: int = 0


def start_state(
    problem: Problem,
    weight: Tensor,
    params: Tensor,
    coefficients: Coefficients,
    support: Tensor,
    input_support: Tensor,
    optimism: float = 1.0,
) -> EvidenceState:
    """Start at a GLM with a small random output layer.

    `optimism` in (0, 1] multiplies the dispersion that the GLM leaves: small values
    begin by fitting the rows closely, one begins with hardly any network.
    """
    p = problem.spec.n_features
    rows = Rows(problem.y, problem.offset, weight.unsqueeze(0), problem.family)
    eta = rows.eta(
        problem.terms.unsqueeze(0), coefficients.coef, coefficients.intercept
    )
    dispersion = max(estimate_dispersion(rows, eta[0], 0.0), 1e-12)
    precision = torch.ones(p + 5, dtype=torch.float64, device=weight.device)
    precision[:p] = max(int(input_support.sum()), 1)
    return EvidenceState(
        params=params.double(),
        coef=coefficients.coef[0] * support[problem.term_feature],
        intercept=coefficients.intercept[0],
        params_precision=precision,
        coef_precision=torch.full(
            (problem.n_groups,), 1e-2, dtype=torch.float64, device=weight.device
        ),
        dispersion=dispersion * optimism,
        support=support.clone(),
        input_support=input_support.clone(),
    )


def estimate_dispersion(rows: Rows, eta: Tensor, used: float) -> float:
    """Variance beyond the family's own that `eta` (n,) leaves, one if it is known.

    `used` counts the directions that the fit has spent. Mean deviance, or Pearson's
    statistic, divided by one plus the mean relative residual: a single count where
    hardly any was expected would decide it otherwise (Fletcher, 2012,
    doi:10.1093/biomet/asr083).
    """
    family, weight = rows.family, rows.weight[0]
    if not family.estimates_dispersion:
        return 1.0
    n_rows = float(weight.sum())
    free = max(n_rows - used, 0.05 * n_rows)
    if family.dispersion == "deviance":
        found = float(2 * rows.loss(eta.unsqueeze(0))[0]) / free
        return max(found, family.least_dispersion)
    counts = weight > 0
    weight, link = weight[counts], LINKS[family.link]
    mean = link.inside(link.mean(eta[counts]), 1e-12)
    variance, rise = _with_slope(family.variance, mean)
    excess = (rows.y[counts] - mean) / variance
    pearson = float((weight * excess.square() * variance).sum()) / free
    skew = float((weight * excess * rise).sum()) / n_rows
    return max(pearson / max(1 + skew, 0.1), family.least_dispersion)


def _with_slope(
    function: Callable[[Tensor], Tensor], at: Tensor
) -> tuple[Tensor, Tensor]:
    """A function of each number, and its derivative, which may be zero throughout."""
    leaf = at.detach().requires_grad_(True)
    with torch.enable_grad():
        value = function(leaf)
        (slope,) = torch.autograd.grad((value + 0 * leaf).sum(), leaf)
    return value.detach(), slope


def restrict(
    state: EvidenceState,
    problem: Problem,
    input_support: Tensor,
    support: Tensor | None = None,
) -> EvidenceState:
    """The same member with fewer features and inputs, everything else as it is."""
    support = state.support if support is None else support
    params = state.params.clone().unsqueeze(0)
    owner = torch.tensor(
        problem.spec.input_feature, dtype=torch.long, device=params.device
    )
    unpack(problem.spec, params).first.mul_(input_support[owner].to(params))
    return replace(
        state,
        params=params[0],
        coef=state.coef * support[problem.term_feature],
        support=support.clone(),
        input_support=input_support.clone(),
    )


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
        self._arrange(starts)

    def __len__(self) -> int:
        return len(self.damping)

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
        self.chunks = self.tangent.chunks(self._chunk_bytes(), len(states))
        self.coef = coef[:, self.columns] * self.alive
        self.design = self._evaluate(self.tangent, self.params)
        self.cached: Primal | Dual | None = None
        # Marginal variance of each coefficient and what the data add to its precision;
        # nothing until it has been updated.
        self.variance = 1 / self.coef_precision[:, self.linear_group]
        self.information = torch.zeros_like(self.variance)

    def _chunk_bytes(self) -> float:
        """Memory of one block of rows: what the matrices of a step leave."""
        n_parameters = len(self.columns) + self.params.shape[1]
        needed = len(self) * needed_bytes(len(self.rows.y), n_parameters)
        spare = self.options.memory_budget - needed
        on_cpu = self.rows.y.device.type == "cpu"
        return min(spare, BLOCK_BYTES) if on_cpu else spare

    def _evaluate(self, tangent: Tangent, params: Tensor) -> Tensor:
        """The design for some weights, (K, n, q), block by block."""
        if tangent.is_linear or len(self.chunks) == 1:
            return tangent.design(params)
        return torch.cat([tangent.design(params, rows) for rows in self.chunks], dim=1)

    def _precision(self) -> Tensor:
        """Precision of every parameter, coefficients first, (K, m)."""
        of_coef = self.coef_precision[:, self.linear_group]
        return torch.cat([of_coef, self.params_precision[:, self.group]], dim=1)

    def _theta(self) -> Tensor:
        return torch.cat([self.coef, self.params], dim=1)

    def eta(self) -> Tensor:
        """Linear predictors here, (K, n)."""
        return self.rows.eta(self.design, self.coef, self.intercept)

    def _linearised(self) -> Primal | Dual:
        """Curvature here; a precision update and the next step share it."""
        if self.cached is None:
            working = working_rows(self.rows, self.eta())
            self.cached = linearise(
                self.tangent, self.params, self.coef, working, self.chunks
            )
        return self.cached

    def newton_step(self) -> None:
        """One damped Gauss-Newton step on everything, then the coefficients exactly.

        Members whose trial fails try again with more damping, the others wait.
        """
        linear, precision, theta = self._linearised(), self._precision(), self._theta()
        before = self.rows.loss(self.eta()) / self.dispersion
        before = before + (precision * theta.square()).sum(-1) / 2
        scale = self.dispersion.unsqueeze(-1)
        downhill = linear.pull / scale - precision * theta
        left = torch.arange(len(self), device=theta.device)
        for _ in range(6):
            trial = _Trial(self, left, linear, precision, downhill)
            # Where there is nowhere to go, more damping would not help.
            goes = ~(trial.promise <= STANDSTILL * before[left].abs())
            if not bool(goes.any()):
                return
            if not bool(goes.all()):
                trial.keep(goes)
                left = trial.members
            better = trial.finish() < before[left]  # NaN counts as worse
            self._accept(trial, better)
            factor = torch.where(better, 0.25, 6.0)
            damping = (self.damping[left] * factor).clamp(1e-6, MAX_DAMPING)
            self.damping[left] = damping
            left = left[~better]
            if len(left) == 0:
                return

    def _accept(self, trial: _Trial, better: Tensor) -> None:
        if not bool(better.any()):
            return
        self.cached = None
        found = trial.at
        if len(trial.members) == len(self) and bool(better.all()):
            self.params, self.coef = trial.params, found.coef
            self.intercept, self.design = found.intercept, trial.design
            return
        where = trial.members[better]
        self.params, self.coef = self.params.clone(), self.coef.clone()
        self.intercept, self.design = self.intercept.clone(), self.design.clone()
        self.params[where], self.coef[where] = trial.params[better], found.coef[better]
        self.intercept[where] = found.intercept[better]
        self.design[where] = trial.design[better]

    def update_precisions(self) -> None:
        """Move precisions and dispersion towards the maximum of the evidence."""
        q, options, family = self.coef.shape[1], self.options, self.rows.family
        precision, theta = self._precision(), self._theta()
        posterior = self._linearised().posterior(self.dispersion, precision)
        determined = (1 - precision * posterior.variance).clamp(0, 1)
        n_groups = self.params_precision.shape[1]
        counted = group_sums(determined[:, q:], self.group, n_groups)
        size = group_sums(theta[:, q:].square(), self.group, n_groups)
        learned = (counted + 1e-3) / (size + 1e-8)
        params_precision = torch.where(size > 0, learned, self.params_precision)
        params_precision = params_precision.clamp(*options.precision_range)
        width = self._group_width()
        counted = group_sums(determined[:, :q], self.linear_group, width.shape[1])
        size = group_sums(theta[:, :q].square(), self.linear_group, width.shape[1])
        least, most = options.precision_range
        if family.separable:
            least = options.least_logit_precision
        learned = ((counted + 1e-6) / (size + 1e-10)).clamp(least, most)
        coef_precision = torch.where(width > 0, learned, self.coef_precision)
        eta, used = self.eta(), determined.sum(-1) + 1
        evidence = -self.rows.loss(eta) / self.dispersion - posterior.half_log_det
        evidence -= (precision * theta.square()).sum(-1) / 2
        if family.estimates_dispersion:  # the intercept takes one row's worth
            free = self.rows.weight.sum(-1) - 1
            evidence -= free / 2 * self.dispersion.log()
        dispersion = self._dispersion(eta, used)
        self.variance = posterior.variance[:, :q]
        # Less the precision that comes next: a coefficient on its way out counts for
        # more than it is worth, and is not dropped while others may still need it.
        self.information = 1 / self.variance - coef_precision[:, self.linear_group]
        self.params_precision, self.coef_precision = params_precision, coef_precision
        self.dispersion = dispersion.clamp(min=1e-10)
        # What is not a number has failed and must lose every comparison.
        evidence = evidence.nan_to_num(-math.inf, -math.inf, -math.inf)
        self.log_evidence = evidence.tolist()
        self.n_effective = used.tolist()
        p = self.support.shape[1]
        dead_inputs = self.reads & (params_precision[:, :p] > options.dead_input)
        dead_groups = (width > 0) & (coef_precision > options.dead_coef)
        if bool(dead_inputs.any() or dead_groups.any()):
            self._switch_off(dead_groups, dead_inputs)

    def _dispersion(self, eta: Tensor, used: Tensor) -> Tensor:
        """What `estimate_dispersion` says of each, (K,)."""
        if not self.rows.family.estimates_dispersion:
            return torch.ones_like(used)
        found = [
            estimate_dispersion(self.rows.take(slice(k, k + 1)), eta[k], n_used)
            for k, n_used in enumerate(used.tolist())
        ]
        return used.new_tensor(found)

    def reference_step(self, movable: Tensor, moved: Tensor) -> Tensor:
        """Step of the first member's reference, everything else profiled out, (p,)."""
        move = torch.zeros_like(moved)
        columns = movable[self.column_feature].nonzero().squeeze(-1)
        if self.tangent.is_linear or len(columns) == 0:
            return move
        working = working_rows(self.rows, self.eta())
        root, score = working.root[0], working.score[0]
        unit = root / root.norm().clamp(min=1e-300)
        # Of `eta` in the reference.
        slope = -self._local_coef()[:, columns] * root.unsqueeze(-1)
        slope = slope - unit.unsqueeze(-1) * (unit @ slope)
        cross = slope.new_zeros(self._theta().shape[1], len(columns))
        for rows in self.chunks:
            block = self.tangent.jacobian(self.params, self.coef, rows)[0]
            cross += (block * root[rows].unsqueeze(-1)).mT @ slope[rows]
        linear, dispersion = self._linearised(), self.dispersion[0]
        precision = self._precision()
        downhill = linear.pull[0] / dispersion - (precision * self._theta())[0]
        targets = torch.cat([cross / dispersion, downhill.unsqueeze(-1)], dim=1)
        follow = linear.step(self.dispersion, precision, targets.unsqueeze(0))[0]
        prior = self.rows.weight.sum()  # the mean of n unit variances
        curvature = (slope.mT @ slope - cross.mT @ follow[:, :-1]) / dispersion
        curvature.diagonal().add_(prior)
        pull = (slope.mT @ score - cross.mT @ follow[:, -1]) / dispersion
        feature = self.column_feature[columns]
        pull = pull - prior * moved[feature]
        move[feature] = torch.linalg.solve(curvature, pull)
        return move

    def _local_coef(self) -> Tensor:
        """`coef * (1 + g)` of every row and column of the first member, (n, q)."""
        flat = Tangent(
            self.spec,
            self.tangent.inputs,
            torch.ones_like(self.tangent.terms),
            self.column_feature,
            self.active,
        )
        parts = [flat.design(self.params[0], rows) for rows in self.chunks]
        return torch.cat(parts) * self.coef[0]

    def _group_width(self) -> Tensor:
        """Number of live terms in each group, (K, n_groups)."""
        n_groups = self.coef_precision.shape[1]
        return group_sums(self.alive, self.linear_group, n_groups)

    def _wald_columns(self) -> Tensor:
        """Squared Wald statistic per term, its own prior left out, (K, q)."""
        information = self.information.clamp(min=1e-300)
        return (self.coef / self.variance).square() / information

    def wald(self) -> Tensor:
        """Squared Wald statistic per feature, summed over its terms, (K, p)."""
        n_features = self.support.shape[1]
        return group_sums(self._wald_columns(), self.column_feature, n_features)

    def drop_useless(self, members: Sequence[int]) -> list[int]:
        """Switch off groups below one: the evidence rises when they leave.

        Returns the members among these that had any.
        """
        width = self._group_width()
        wald = group_sums(self._wald_columns(), self.linear_group, width.shape[1])
        useless = wald < width
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


class _Trial:
    """Where a damped step takes some members of a crew."""

    def __init__(
        self,
        crew: Crew,
        members: Tensor,
        linear: Primal | Dual,
        precision: Tensor,
        downhill: Tensor,
    ) -> None:
        self.crew, self.members = crew, members
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
        move = linear.step(self.dispersion, damped, downhill.unsqueeze(-1)).squeeze(-1)
        self.promise = (downhill * move).sum(-1) + gain / self.dispersion
        self.params = here + move[:, q:]

    def keep(self, some: Tensor) -> None:
        """Go on with some of the members alone."""
        self.members, self.params = self.members[some], self.params[some]
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
        # One step where the loss is quadratic.
        ridge = self.precision[:, :q] * self.dispersion.unsqueeze(-1)
        for _ in range(1 if rows.family.least_squares else GLM_INNER_STEPS):
            at = newton_step(self.design, rows, ridge, at, max_halvings=8)
        self.at = at
        theta = torch.cat([at.coef, self.params], dim=1)
        prior = (self.precision * theta.square()).sum(-1) / 2
        eta = rows.eta(self.design, at.coef, at.intercept)
        return rows.loss(eta) / self.dispersion + prior


def param_groups(spec: NetworkSpec) -> Tensor:
    """Prior group of each weight: its input feature, then one per later block."""
    p, h1 = spec.n_features, spec.hidden[0]
    parts = [torch.tensor(spec.input_feature, dtype=torch.long).repeat(h1)]
    later = list(spec.shapes.values())[1:]
    for block, shape in enumerate(later):
        parts.append(torch.full((math.prod(shape),), p + block, dtype=torch.long))
    return torch.cat(parts)


def group_sum(values: Tensor, group: Tensor, n_groups: int) -> Tensor:
    return values.new_zeros(n_groups).index_add(0, group, values)


def group_sums(values: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """The same of every row, (K, n_groups)."""
    return values.new_zeros(len(values), n_groups).index_add(1, group, values)
