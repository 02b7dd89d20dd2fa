"""One member and its penalties: how hard to try, where it begins and where it stands.

Shapes: n rows, q term columns, r inputs, p features, a active features, P weights,
m = q + P parameters.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.families import LINKS
from sknimo.network import NetworkSpec, unpack
from sknimo.solver._problem import Problem
from sknimo.solver._profile import Coefficients, Rows


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
    # Log evidence that somebody of a crew must have after `grace` updates of the
    # precisions, and so much less with every update to go: otherwise all end there.
    # Second setting with classes, seeds 100 to 103: 48 to 69 more than the linear model
    # after ten, 6 to 21 more after three; real tables: 10 to 190 less.
    # None: as much less as its last updates promise.
    least: float = -math.inf
    grace: int = 10
    allowance: float | None = 10.0
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

    @property
    def coefficients(self) -> Coefficients:
        """Intercept and coefficients as those of one model."""
        return Coefficients(self.coef.unsqueeze(0), self.intercept.reshape(1))


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
    if family.dispersion == "deviance":
        loss = rows.loss(eta.unsqueeze(0))
        return float(mean_deviance(rows, loss, loss.new_tensor([used])))
    n_rows = float(weight.sum())
    free = max(n_rows - used, 0.05 * n_rows)
    counts = weight > 0
    weight, link = weight[counts], LINKS[family.link]
    mean = link.inside(link.mean(eta[counts]), 1e-12)
    variance, rise = _with_slope(family.variance, mean)
    excess = (rows.y[counts] - mean) / variance
    pearson = float((weight * excess.square() * variance).sum()) / free
    skew = float((weight * excess * rise).sum()) / n_rows
    return max(pearson / max(1 + skew, 0.1), family.least_dispersion)


def mean_deviance(rows: Rows, loss: Tensor, used: Tensor) -> Tensor:
    """Per row that is free, (K,), of sums of losses and directions spent, (K,)."""
    n_rows = rows.weight.sum(-1)
    free = torch.maximum(n_rows - used, 0.05 * n_rows)
    return (2 * loss / free).clamp(min=rows.family.least_dispersion)


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


def param_groups(spec: NetworkSpec) -> Tensor:
    """Prior group of each weight: its input feature, then one per later block."""
    p, h1 = spec.n_features, spec.hidden[0]
    parts = [torch.tensor(spec.input_feature, dtype=torch.long).repeat(h1)]
    later = list(spec.shapes.values())[1:]
    for block, shape in enumerate(later):
        parts.append(torch.full((math.prod(shape),), p + block, dtype=torch.long))
    return torch.cat(parts)


def group_sums(values: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Sums of every row by group, (K, n_groups)."""
    return values.new_zeros(len(values), n_groups).index_add(1, group, values)
