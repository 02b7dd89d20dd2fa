"""Holding the coefficients fixed costs nothing: the detached gradient is exact.

The profiled objective is differentiated numerically in every network weight. All
perturbed networks are profiled as members of one batch.

Shapes: K models, n rows, p features, P weights.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from sknimo.families import FAMILIES
from sknimo.solver import Options
from sknimo.solver._outer import _Run

STEP = 1e-5
GRADIENT_RTOL = 1e-6  # the figure promised; truncation and rounding leave about 1e-9
WIDTHS = (1, 2, 1, 1)
N_STATES = 6  # random states per case, of which a few may sit on a kink
MIN_TESTED = 4
# A weak and a strong penalty in turn: full and sparse supports.
ALPHA = {"ridge": (0.02, 0.2), "lasso": (0.02, 0.15), "sub_l1": (0.01, 0.1)}
# Labels, and counts of much spread, say less than numbers: the same strength would
# empty the model, and an empty one has no gradient.
FAINT = ("binomial", "negative_binomial")

EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))
EVERY_PENALTY = pytest.mark.parametrize("penalty", list(ALPHA))
# All families with one penalty, and all penalties with one family; other pairs later.
EVERY_PAIR = pytest.mark.parametrize(
    ("family", "penalty"),
    [
        pair
        if "gaussian" in pair or "lasso" in pair
        else pytest.param(*pair, marks=pytest.mark.slow)
        for pair in product(FAMILIES, ALPHA)
    ],
)
BOTH_PRICES = pytest.mark.parametrize("scale_contributions", [False, True])


def both_sides(params):
    """Every weight moved up, then every weight moved down: (1, P) to (2 P, P)."""
    steps = STEP * torch.eye(params.shape[1], dtype=params.dtype)
    return torch.cat([params + steps, params - steps])


def slope(objective):
    """Central differences from the objectives of `both_sides`, (P,)."""
    up, down = objective.chunk(2)
    return (up - down) / (2 * STEP)


def relative_error(gradient, reference):
    return ((gradient - reference).norm() / reference.norm()).item()


def many(members, n_models):
    """The same member `n_models` times."""
    return members.take(torch.zeros(n_models, dtype=torch.long))


@BOTH_PRICES
@EVERY_PAIR
def test_detached_gradient_is_exact(
    family,
    penalty,
    scale_contributions,
    make_problem,
    make_members,
    make_params,
    profile,
):
    options = Options(scale_contributions=scale_contributions)
    n_tested, n_sparse = 0, 0
    for seed in range(N_STATES):
        problem = make_problem(
            family, n_rows=40, widths=WIDTHS, hidden=(3, 3), seed=seed, offset=True
        )
        weight = np.random.default_rng(seed).uniform(0.1, 2.0, problem.n_rows)
        alpha = ALPHA[penalty][seed % 2] * (0.4 if family in FAINT else 1)
        members = make_members(problem, penalty=penalty, alpha=alpha, weight=weight)
        params = make_params(problem.spec, seeds=(seed,))
        point = profile(problem, members, options, params)
        moved = both_sides(params)
        around = profile(problem, many(members, len(moved)), options, moved)
        # A feature that enters or leaves within a step is a kink, not a gradient.
        support = point.coefficients.coef != 0
        if not ((around.coefficients.coef != 0) == support).all():
            continue
        reference = slope(around.objective)
        assert reference.norm() > 1e-4
        assert relative_error(point.gradient[0], reference) <= GRADIENT_RTOL
        n_tested += 1
        n_sparse += not bool(support.all())
    assert n_tested >= MIN_TESTED
    if penalty != "ridge":
        assert n_sparse > 0


def test_gradient_without_the_penalty_s_own_part_would_be_wrong(
    make_problem, make_members, make_params, profile
):
    """The price of a scaled contribution moves with the network: leaving it out shows.

    Guards the test above against a tolerance that nothing could fail.
    """
    problem = make_problem(n_rows=40, widths=WIDTHS, hidden=(3, 3))
    members = make_members(problem, alpha=0.1)
    params = make_params(problem.spec)
    scaled = Options(scale_contributions=True)
    moved = both_sides(params)
    around = profile(problem, many(members, len(moved)), scaled, moved)
    point = profile(problem, members, scaled, params)
    # The same coefficients and prices, but the prices taken for constants.
    prices = replace(members, penalty=point.penalty)
    frozen = profile(problem, prices, Options(scale_contributions=False), params)
    torch.testing.assert_close(frozen.objective, point.objective, rtol=1e-10, atol=0)
    reference = slope(around.objective)
    assert relative_error(point.gradient[0], reference) <= GRADIENT_RTOL
    assert relative_error(frozen.gradient[0], reference) > 1e-2


@BOTH_PRICES
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_training_step_differentiates_what_it_minimises(
    noise, scale_contributions, make_problem, make_members, make_params, profile
):
    """Solve and loss see one and the same noise draw, rows and normalisation.

    For a Gaussian target under ridge the training step solves exactly, so its own
    objective can be differentiated numerically.
    """
    problem = make_problem(n_rows=40, widths=WIDTHS, hidden=(3, 3))
    members = make_members(problem, penalty="ridge", alpha=0.2)
    options = Options(scale_contributions=scale_contributions)
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(problem.n_rows, 3, generator=generator, dtype=torch.float64)
    row_noise = (lambda rows: noise * draw[rows]) if noise else None
    params = make_params(problem.spec)

    def differentiate(params):
        batch = many(members, len(params))
        run = _Run.begin(problem, batch, options, params)
        live = run.live
        assert live.active.shape[1] == 4
        return run.forward.differentiate(live.bent, live.coefficients, row_noise)

    point = differentiate(params)
    reference = slope(differentiate(both_sides(params)).objective)
    assert relative_error(point.gradient[0], reference) <= GRADIENT_RTOL
    clean = profile(problem, members, options, params)
    if noise:
        assert relative_error(point.gradient, clean.gradient) > 1e-2
    else:
        assert relative_error(point.gradient, clean.gradient) <= 1e-9


@EVERY_FAMILY
def test_a_feature_without_coefficient_has_no_gradient_of_its_own(
    family, make_problem, make_members, make_params, profile
):
    """With every coefficient at zero nothing is left to bend."""
    problem = make_problem(family, n_rows=40, hidden=(3, 3))
    members = make_members(problem, alpha=100.0)
    point = profile(problem, members, Options(), make_params(problem.spec))
    assert (point.coefficients.coef == 0).all()
    assert (point.gradient == 0).all()
