"""Mini-batches: unbiased gradients at coefficients of all rows, exact at the end.

Shapes: K models, n rows, P weights.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.families import FAMILIES
from sknimo.solver import Options, solve
from sknimo.solver._outer import _Run

SHORT = Options(max_iter=40, check_every=5, patience=100, batch_size=16)
EXACT_ATOL = 1e-12  # sums in another order
KKT_ATOL = 1e-8

EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))


@pytest.fixture
def start_run(make_problem, make_members, make_params):
    """A run that stands at a bent network with its coefficients solved."""

    def start(family="gaussian", n_rows=60, weight=None, **options):
        problem = make_problem(family, n_rows=n_rows)
        members = make_members(problem, 2, weight=weight)
        chosen = replace(SHORT, **options)
        params = make_params(problem.spec, (0, 1))
        run = _Run.begin(problem, members, chosen, params)
        run.live.prices = run._evaluate().penalty.weight
        return run

    return start


def differentiate(run, rows):
    """Gradient that some rows give at the run's coefficients and prices, (K, P)."""
    live = run.live
    penalty = run.members.penalty.reweighted(live.prices)
    return run.forward.differentiate_batch(live.bent, penalty, live.coefficients, rows)


class TestGradients:
    """What a batch says is right on average."""

    @EVERY_FAMILY
    @pytest.mark.parametrize("scale_contributions", [True, False])
    def test_batches_of_one_pass_average_to_the_gradient_of_all_rows(
        self, start_run, family, scale_contributions
    ):
        run = start_run(family, scale_contributions=scale_contributions)
        every = torch.arange(60)
        parts = [
            differentiate(run, rows) for rows in every[torch.randperm(60)].split(12)
        ]
        whole = differentiate(run, every)
        torch.testing.assert_close(
            torch.stack(parts).mean(0), whole, rtol=0, atol=EXACT_ATOL
        )

    def test_with_all_rows_the_gradient_is_that_of_the_full_step(self, start_run):
        run = start_run(scale_contributions=True)
        live = run.live
        for _ in range(2):
            point = run.forward.differentiate(live.bent, live.coefficients, None)
            live.coefficients = point.coefficients
        live.prices = point.penalty.weight
        whole = differentiate(run, torch.arange(60))
        torch.testing.assert_close(whole, point.gradient, rtol=0, atol=EXACT_ATOL)

    def test_rows_without_weight_do_not_pull(self, start_run):
        weight = torch.ones(60)
        weight[:20] = 0
        run = start_run(weight=weight)
        nobody = differentiate(run, torch.arange(20))
        assert torch.count_nonzero(nobody) == 0


class TestPasses:
    """Every row has its turn."""

    def test_a_pass_draws_every_row_once(self, start_run):
        run = start_run(batch_size=12)
        drawn = torch.cat([run.batches.draw() for _ in range(5)])
        assert torch.equal(drawn.sort().values, torch.arange(60))

    def test_batches_that_do_not_divide_the_rows_leave_none_out(self, start_run):
        run = start_run(batch_size=16)
        drawn = torch.cat([run.batches.draw() for _ in range(15)])
        assert torch.bincount(drawn, minlength=60).tolist() == [4] * 60


class TestSolutions:
    """Batches change the way, not what is promised at the end."""

    @EVERY_FAMILY
    def test_coefficients_are_optimal_on_all_rows(
        self, make_problem, make_members, family
    ):
        problem = make_problem(family)
        solution = solve(problem, make_members(problem, 2), SHORT)
        assert float(solution.kkt.max()) < KKT_ATOL
        assert bool((solution.objective <= solution.glm_objective).all())

    def test_a_member_does_not_depend_on_the_others(self, make_problem, make_members):
        problem = make_problem()
        both = solve(problem, make_members(problem, 2, seeds=(3, 4)), SHORT)
        alone = solve(problem, make_members(problem, 1, seeds=(4,)), SHORT)
        torch.testing.assert_close(
            both.params[1:], alone.params, rtol=0, atol=EXACT_ATOL
        )
        torch.testing.assert_close(both.coef[1:], alone.coef, rtol=0, atol=EXACT_ATOL)

    def test_the_same_seed_draws_the_same_batches(self, make_problem, make_members):
        problem = make_problem()
        first = solve(problem, make_members(problem), SHORT)
        again = solve(problem, make_members(problem), SHORT)
        other = solve(problem, make_members(problem), replace(SHORT, noise_seed=1))
        assert torch.equal(first.params, again.params)
        assert not torch.equal(first.params, other.params)

    def test_a_run_may_stop_early(self, make_problem, make_members):
        problem = make_problem(n_rows=80)
        held_out = torch.arange(80) % 4 == 0
        members = make_members(
            problem, alpha=0.01, weight=~held_out, validation=held_out
        )
        impatient = replace(SHORT, patience=2, max_iter=200, learning_rate=0.05)
        solution = solve(problem, members, impatient)
        assert solution.n_iter < 200
        assert float(solution.kkt) < KKT_ATOL
        assert np.isfinite(solution.history.validation).all()
