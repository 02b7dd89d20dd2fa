"""The step of the reference is that of the whole least-squares problem."""

import numpy as np
import torch

from sknimo.families import get_family
from sknimo.network import Modulator, init_params, make_spec
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    Problem,
    fit_evidence,
    reference_step,
    start_state,
)


def test_the_step_is_that_of_the_joint_least_squares_problem():
    """Against the dense normal equations with numerical derivatives."""
    generator = np.random.default_rng(3)
    z = torch.as_tensor(generator.normal(size=(60, 2)))
    y = (z[:, 0] - 0.2) * (1 + torch.tanh(2 * z[:, 1])) + 0.3 * z[:, 1]
    spec = make_spec([0, 1], 2, (2, 2))

    def state_at(shift):
        return Problem.in_memory(
            terms=z - shift,
            inputs=z - shift,
            term_feature=torch.arange(2),
            y=y,
            offset=torch.zeros(60, dtype=torch.float64),
            family=get_family("gaussian"),
            spec=spec,
        )

    problem, weight = state_at(torch.zeros(2)), torch.ones(60, dtype=torch.float64)
    everything = torch.ones(2, dtype=torch.bool)
    params = init_params(spec, [0])[0]
    params = params + 0.3 * torch.randn(
        len(params), generator=torch.Generator().manual_seed(0)
    )
    start = Coefficients(torch.ones(1, 2).double(), torch.zeros(1).double())
    state = start_state(problem, weight, params, start, everything, everything)
    state = fit_evidence(problem, weight, state, EvidenceOptions(max_iter=12))

    def eta(theta):
        """Intercept, coefficients, shift of the terms alone, then the weights."""
        modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)
        active = torch.arange(2).unsqueeze(0)
        g = modulator(theta[5:].unsqueeze(0), z, active)[0]
        return theta[0] + ((z - theta[3:5]) * (1 + g) * theta[1:3]).sum(1)

    theta = torch.cat(
        [state.intercept.reshape(1), state.coef, torch.zeros(2), state.params]
    )
    jacobian = torch.autograd.functional.jacobian(eta, theta)
    sizes = [int(np.prod(shape)) for shape in list(spec.shapes.values())[1:]]
    owner = [0, 1] * spec.hidden[0]
    for block, size in enumerate(sizes):
        owner += [2 + block] * size
    precision = torch.cat(
        [
            torch.zeros(1),
            state.coef_precision[:2],
            torch.full((2,), 60.0),
            state.params_precision[torch.tensor(owner)],
        ]
    ).double()
    normal = jacobian.T @ jacobian / state.dispersion + torch.diag(precision)
    pull = jacobian.T @ (y - eta(theta)) / state.dispersion - precision * theta
    expected = torch.linalg.solve(normal, pull)[3:5]
    step = reference_step(
        problem,
        weight,
        state,
        everything,
        torch.zeros(2).double(),
        EvidenceOptions(),
    )
    assert expected[0] > 0.01
    torch.testing.assert_close(step, expected, rtol=1e-6, atol=1e-9)
