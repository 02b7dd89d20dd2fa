"""What training is held against, and members by Gauss-Newton from the null GLM."""

import pytest
import torch

from sknimo.penalties import make_penalty
from sknimo.solver import (
    EvidenceOptions,
    Rows,
    fit_evidence,
    restrict,
    solve_coefficients,
    start_state,
)
from sknimo.solver._forward import Bent, Forward, Point
from sknimo.solver._profile import expand

FEW_STEPS = EvidenceOptions(max_iter=25)


def null_coefficients(problem, weight):
    """Intercept-only GLM."""
    share = (weight / weight.sum()).unsqueeze(0)
    rows = Rows(problem.y, problem.offset, share, problem.family)
    huge = torch.tensor([1e12], dtype=torch.float64)
    penalty = make_penalty("lasso", huge, problem.term_feature, problem.spec.n_features)
    return solve_coefficients(problem.terms.unsqueeze(0), rows, penalty).coefficients


def ones(problem):
    return torch.ones(problem.n_rows, dtype=torch.float64)


@pytest.fixture
def begin(make_params):
    """A start from the intercept-only GLM; `inputs=False` leaves the network out."""

    def begin(problem, weight=None, seed=0, size=0.05, inputs=True, optimism=1.0):
        weight = ones(problem) if weight is None else weight
        everything = torch.ones(problem.spec.n_features, dtype=torch.bool)
        reads = everything if inputs else torch.zeros_like(everything)
        params = make_params(problem.spec, (seed,), size)[0]
        at = null_coefficients(problem, weight)
        state = start_state(problem, weight, params, at, everything, reads, optimism)
        return restrict(state, problem, reads)

    return begin


@pytest.fixture
def fit(begin):
    """`fit_evidence` from such a start."""

    def fit(problem, weight=None, options=FEW_STEPS, **start):
        weight = ones(problem) if weight is None else weight
        return fit_evidence(problem, weight, begin(problem, weight, **start), options)

    return fit


@pytest.fixture
def is_finite():
    """Whether every number of a state is finite."""

    def is_finite(state):
        numbers = (
            state.params,
            state.coef,
            state.intercept,
            state.params_precision,
            state.coef_precision,
        )
        scalars = torch.tensor(
            [state.dispersion, state.log_evidence, state.n_effective]
        )
        return all(bool(part.isfinite().all()) for part in (*numbers, scalars))

    return is_finite


@pytest.fixture
def profile():
    """Profiled objective and gradient, the inner problem solved to optimality.

    Training uses cheaper inner steps; this is the quantity that they approach.
    """

    def evaluate(problem, members, options, params):
        forward = Forward(problem, members, options)
        every = torch.ones(len(params), problem.spec.n_features, dtype=torch.bool)
        bent = Bent.by(params, every.to(params.device))
        exact = forward.solve_exactly(bent, None)
        at, rows = exact.coefficients, problem.rows(members.weight)
        here = expand(forward.design(bent), rows, at, square=True)
        penalty = forward.price(here.square)
        gradient, eta = forward.gradient(bent.leaf(), penalty, at)
        return Point(at, exact.objective, gradient, eta, penalty)

    return evaluate
