"""One member in training: Gauss-Newton steps, and its penalties by evidence.

Inputs and groups of terms that are switched off leave the arrays: all costs are those
of what is left.

Shapes: n rows, q term columns, r inputs, p features, a active features, P weights,
m = q + P parameters.
"""

import math
import time
from collections.abc import Callable
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


class Member:
    """One member in training: its state on compact arrays, and two verbs."""

    def __init__(
        self,
        problem: Problem,
        weight: Tensor,
        start: EvidenceState,
        options: EvidenceOptions,
    ) -> None:
        self.problem = problem
        self.weight = weight
        self.state = start
        self.options = options
        self.damping = 1.0
        self._compact()

    def _compact(self) -> None:
        """Leave out inputs that are switched off; the network shrinks with them."""
        problem, state = self.problem, self.state
        owner = torch.tensor(
            problem.spec.input_feature, dtype=torch.long, device=state.params.device
        )
        self.live = state.input_support[owner].nonzero().squeeze(-1)
        self.spec, params = keep_inputs(
            problem.spec, state.params.unsqueeze(0), self.live
        )
        self.params = params[0]
        self.group = param_groups(self.spec).to(self.params.device)
        if len(self.live) == 0 or not bool(state.support.any()):
            # Without inputs or coefficients there is no network to pay a prior for.
            self.params, self.group = self.params[:0], self.group[:0]
        self.active = (state.support & ~problem.unbent).nonzero().squeeze(-1)
        alive = state.coef_precision <= self.options.dead_coef
        alive = state.support[problem.term_feature] & alive[problem.term_group]
        self.columns = alive.nonzero().squeeze(-1)
        self.column_feature = problem.term_feature[self.columns]
        self.linear_group = problem.term_group[self.columns]
        self.tangent = Tangent(
            self.spec,
            problem.inputs[:, self.live],
            problem.terms[:, self.columns],
            self.column_feature,
            self.active,
        )
        self.chunks = self.tangent.chunks(self._chunk_bytes())
        self.rows = Rows(
            problem.y, problem.offset, self.weight.unsqueeze(0), problem.family
        )
        self.coef = state.coef[self.columns]
        self.intercept = state.intercept
        self.design = self._evaluate(self.params)
        self.cached: Primal | Dual | None = None
        # Marginal variance of each coefficient and what the data add to its precision;
        # nothing until it has been updated.
        self.variance = 1 / state.coef_precision[self.linear_group]
        self.information = torch.zeros_like(self.variance)

    def _chunk_bytes(self) -> float:
        """Memory of one block of rows: what the matrices of a step leave."""
        n_parameters = len(self.columns) + len(self.params)
        spare = self.options.memory_budget - needed_bytes(
            len(self.weight), n_parameters
        )
        on_cpu = self.weight.device.type == "cpu"
        return min(spare, BLOCK_BYTES) if on_cpu else spare

    def _evaluate(self, params: Tensor) -> Tensor:
        """The design for some weights, (n, q), block by block."""
        if self.tangent.is_linear or len(self.chunks) == 1:
            return self.tangent.design(params)
        return torch.cat([self.tangent.design(params, rows) for rows in self.chunks])

    def _precision(self) -> Tensor:
        """Precision of every parameter, coefficients first, (m,)."""
        return torch.cat(
            [
                self.state.coef_precision[self.linear_group],
                self.state.params_precision[self.group],
            ]
        )

    def _theta(self) -> Tensor:
        return torch.cat([self.coef, self.params])

    def _at(self) -> Coefficients:
        return Coefficients(self.coef.unsqueeze(0), self.intercept.reshape(1))

    def _eta(self) -> Tensor:
        """Linear predictor here, (1, n)."""
        at = self._at()
        return self.rows.eta(self.design.unsqueeze(0), at.coef, at.intercept)

    def _value(self, design: Tensor, params: Tensor, at: Coefficients) -> float:
        eta = self.rows.eta(design.unsqueeze(0), at.coef, at.intercept)
        theta = torch.cat([at.coef[0], params])
        prior = (self._precision() * theta.square()).sum() / 2
        return float(self.rows.loss(eta)[0] / self.state.dispersion + prior)

    def _solve_linear(self, design: Tensor, at: Coefficients) -> Coefficients:
        """Re-solve the coefficients for a design; one step when it is quadratic."""
        ridge = self.state.coef_precision[self.linear_group] * self.state.dispersion
        for _ in range(1 if self.rows.family.least_squares else GLM_INNER_STEPS):
            at = newton_step(
                design.unsqueeze(0), self.rows, ridge.unsqueeze(0), at, max_halvings=8
            )
        return at

    def _linearised(self) -> Primal | Dual:
        """Curvature here; a precision update and the next step share it."""
        if self.cached is None:
            working = working_rows(self.rows, self._eta()[0])
            self.cached = linearise(
                self.tangent, self.params, self.coef, working, self.chunks
            )
        return self.cached

    def newton_step(self) -> None:
        """One damped Gauss-Newton step on everything, then the coefficients exactly."""
        at, linear, dispersion = self._at(), self._linearised(), self.state.dispersion
        before = self._value(self.design, self.params, at)
        precision, q = self._precision(), len(self.coef)
        downhill = linear.pull / dispersion - precision * self._theta()
        for _ in range(6):
            damped = precision.clone()
            damped[q:] += self.damping
            move = linear.step(dispersion, damped, downhill)
            promise = float(downhill @ move) + linear.level_gain / dispersion
            if promise <= STANDSTILL * abs(before):
                return  # there is nowhere to go: more damping would not help
            params = self.params + move[q:]
            design = self._evaluate(params)
            trial = self._solve_linear(design, at)
            after = self._value(design, params, trial)
            if after < before:  # NaN counts as worse
                self.params, self.coef = params, trial.coef[0]
                self.intercept, self.design = trial.intercept[0], design
                self.cached = None
                self.damping = max(self.damping / 4, 1e-6)
                return
            self.damping = min(self.damping * 6, MAX_DAMPING)

    def update_precisions(self) -> None:
        """Move precisions and dispersion towards the maximum of the evidence."""
        state, q, options = self.state, len(self.coef), self.options
        precision, theta = self._precision(), self._theta()
        posterior = self._linearised().posterior(state.dispersion, precision)
        determined = (1 - precision * posterior.variance).clamp(0, 1)
        n_groups = len(state.params_precision)
        counted = group_sum(determined[q:], self.group, n_groups)
        size = group_sum(theta[q:].square(), self.group, n_groups)
        params_precision = torch.where(
            size > 0, (counted + 1e-3) / (size + 1e-8), state.params_precision
        ).clamp(*options.precision_range)
        width = self._group_width()
        counted = group_sum(determined[:q], self.linear_group, len(width))
        size = group_sum(theta[:q].square(), self.linear_group, len(width))
        family = self.rows.family
        least, most = options.precision_range
        if family.separable:
            least = options.least_logit_precision
        coef_precision = (counted + 1e-6) / (size + 1e-10)
        coef_precision = torch.where(
            width > 0,
            coef_precision.clamp(least, most),
            state.coef_precision,
        )
        eta = self._eta()
        loss = float(self.rows.loss(eta)[0])
        n_rows = float(self.weight.sum())
        used = float(determined.sum()) + 1
        dispersion = max(estimate_dispersion(self.rows, eta[0], used), 1e-10)
        prior = float((precision * theta.square()).sum()) / 2
        evidence = -loss / state.dispersion - prior - posterior.half_log_det
        if family.estimates_dispersion:  # the intercept takes one row's worth
            evidence -= (n_rows - 1) / 2 * math.log(state.dispersion)
        self.variance = posterior.variance[:q]
        # Less the precision that comes next: a coefficient on its way out counts for
        # more than it is worth, and is not dropped while others may still need it.
        self.information = 1 / self.variance - coef_precision[self.linear_group]
        self.state = replace(
            state,
            params_precision=params_precision,
            coef_precision=coef_precision,
            dispersion=dispersion,
            # What is not a number has failed and must lose every comparison.
            log_evidence=evidence if math.isfinite(evidence) else -math.inf,
            n_effective=used,
        )
        p = len(state.support)
        dead_inputs = state.input_support & (params_precision[:p] > options.dead_input)
        dead_groups = (width > 0) & (coef_precision > options.dead_coef)
        if bool(dead_inputs.any() or dead_groups.any()):
            self._switch_off(dead_groups, dead_inputs)

    def reference_step(self, movable: Tensor, moved: Tensor) -> Tensor:
        """Step of the reference with everything else profiled out, (p,)."""
        move = torch.zeros_like(moved)
        columns = movable[self.column_feature].nonzero().squeeze(-1)
        if self.tangent.is_linear or len(columns) == 0:
            return move
        working = working_rows(self.rows, self._eta()[0])
        root = working.root
        unit = root / root.norm().clamp(min=1e-300)
        # Of `eta` in the reference.
        slope = -self._local_coef()[:, columns] * root.unsqueeze(-1)
        slope = slope - unit.unsqueeze(-1) * (unit @ slope)
        cross = slope.new_zeros(len(self.coef) + len(self.params), len(columns))
        for rows in self.chunks:
            block = self.tangent.jacobian(self.params, self.coef, rows)
            cross += (block * root[rows].unsqueeze(-1)).mT @ slope[rows]
        linear, dispersion = self._linearised(), self.state.dispersion
        precision = self._precision()
        downhill = linear.pull / dispersion - precision * self._theta()
        targets = torch.cat([cross / dispersion, downhill.unsqueeze(-1)], dim=1)
        follow = linear.step(dispersion, precision, targets)
        prior = self.weight.sum()  # the mean of n unit variances
        curvature = (slope.mT @ slope - cross.mT @ follow[:, :-1]) / dispersion
        curvature.diagonal().add_(prior)
        pull = (slope.mT @ working.score - cross.mT @ follow[:, -1]) / dispersion
        feature = self.column_feature[columns]
        pull = pull - prior * moved[feature]
        move[feature] = torch.linalg.solve(curvature, pull)
        return move

    def _local_coef(self) -> Tensor:
        """`coef * (1 + g)` of every row and column, (n, q)."""
        flat = Tangent(
            self.spec,
            self.tangent.inputs,
            torch.ones_like(self.tangent.terms),
            self.column_feature,
            self.active,
        )
        parts = [flat.design(self.params, rows) for rows in self.chunks]
        return torch.cat(parts) * self.coef

    def _group_width(self) -> Tensor:
        """Number of live terms in each group, (n_groups,)."""
        ones, n_groups = torch.ones_like(self.coef), len(self.state.coef_precision)
        return group_sum(ones, self.linear_group, n_groups)

    def _wald_columns(self) -> Tensor:
        """Squared Wald statistic per term, its own prior left out, (q,)."""
        information = self.information.clamp(min=1e-300)
        return (self.coef / self.variance).square() / information

    def wald(self) -> Tensor:
        """Squared Wald statistic per feature, summed over its terms, (p,)."""
        n_features = len(self.state.support)
        return group_sum(self._wald_columns(), self.column_feature, n_features)

    def drop_useless(self) -> bool:
        """Switch off groups below one: the evidence rises when they leave."""
        width = self._group_width()
        wald = group_sum(self._wald_columns(), self.linear_group, len(width))
        useless = wald < width
        if not bool(useless.any()):
            return False
        self._switch_off(useless, torch.zeros_like(self.state.support))
        return True

    def _switch_off(self, groups: Tensor, inputs: Tensor) -> None:
        """Set groups of terms and inputs to zero for good.

        A feature stays as long as one of its groups does.
        """
        state, problem = self.expanded(), self.problem
        kept = ~groups[self.linear_group]
        support = torch.zeros_like(state.support)
        support[self.column_feature[kept]] = True
        self.state = restrict(
            replace(
                state,
                coef=state.coef * ~groups[problem.term_group],
                coef_precision=state.coef_precision.masked_fill(
                    groups, self.options.precision_range[1]
                ),
            ),
            problem,
            state.input_support & ~inputs,
            support,
        )
        variance, information = self.variance[kept], self.information[kept]
        self._compact()
        self.variance, self.information = variance, information

    def expanded(self) -> EvidenceState:
        """The state with parameters on the full set of inputs and columns."""
        state, problem = self.state, self.problem
        coef = torch.zeros_like(state.coef)
        coef[self.columns] = self.coef
        params = torch.zeros_like(state.params)
        if len(self.params):
            params = restore_inputs(
                problem.spec, self.spec, self.params.unsqueeze(0), self.live
            )[0]
        return replace(
            state, params=params, coef=coef, intercept=self.intercept.clone()
        )


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
