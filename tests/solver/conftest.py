"""What the solver's tests hold its training against."""

import pytest

from sknimo.solver._forward import Bent, Forward, Point
from sknimo.solver._profile import expand


@pytest.fixture
def profile():
    """Profiled objective and gradient, the inner problem solved to optimality.

    Training uses cheaper inner steps; this is the quantity that they approach.
    """

    def evaluate(problem, members, options, params):
        forward, bent = (
            Forward(problem, options),
            Bent.by(params, members, members.support),
        )
        exact = forward.solve_exactly(bent, None)
        at, rows = exact.coefficients, problem.rows(members.weight)
        here = expand(forward.design(bent), rows, at, square=True)
        penalty = forward.price(members, here.square)
        gradient, eta = forward.gradient(bent.leaf(), rows, penalty, at)
        return Point(at, exact.objective, gradient, eta, penalty)

    return evaluate
