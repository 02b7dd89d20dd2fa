"""The inner solve is optimal, exactly sparse, and nobody's answer depends on others.

Optimality is judged here by conditions typed a second time in NumPy, and by SciPy.

Shapes: K models, n rows, q columns, p features.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from sknimo.families import FAMILIES, get_family
from sknimo.penalties import make_penalty
from sknimo.solver._profile import (
    Coefficients,
    Rows,
    expand,
    kkt_scale,
    newton_steps,
    solve_coefficients,
    start_coefficients,
    violation,
)
from sknimo.solver._quadratic import minimise_quadratic

KKT_TOL = 1e-8  # the figure promised to users, relative to the gradient at zero
OBJECTIVE_RTOL = 1e-10  # ours may lie above a reference by rounding only
BATCH_ATOL = 1e-10  # batch mates change the order of sums and nothing else
ZERO_WEIGHT_ATOL = 1e-12
ALPHAS = (1e-3, 0.03, 0.3)  # nearly free, moderate, nearly empty
PENALTIES = ("ridge", "lasso", "sub_l1")
GROUPS = (0, 0, 1, 2, 2, 2, 3, 3, 3)

EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))
EVERY_PENALTY = pytest.mark.parametrize("penalty", PENALTIES)


def ill_conditioned(rng):
    left, _ = np.linalg.qr(rng.normal(size=(60, 8)))
    right, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    return np.sqrt(60) * (left * np.logspace(0, -6, 8)) @ right.T


def duplicated(rng):
    columns = rng.normal(size=(60, 6))
    return np.concatenate([columns, columns[:, :3]], axis=1)


DESIGNS = {
    "tall": lambda rng: rng.normal(size=(60, 8)),
    "more columns than rows": lambda rng: rng.normal(size=(25, 40)),
    "duplicated columns": duplicated,
    "groups": lambda rng: rng.normal(size=(60, len(GROUPS))),
    "condition number 1e6": ill_conditioned,
}
EVERY_DESIGN = pytest.mark.parametrize("kind", list(DESIGNS))


@pytest.fixture
def make_inner(draw_response):
    """One inner problem with random weights: `(design, rows, make_penalty(alphas))`."""

    def make(kind="tall", family="gaussian", seed=0, n_models=1, offset=False):
        rng = np.random.default_rng(seed)
        design = DESIGNS[kind](rng)
        n, q = design.shape
        owner = np.array(GROUPS) if kind == "groups" else np.arange(q)
        truth = np.where(rng.random(q) < 0.5, 2 * rng.normal(size=q) / np.sqrt(q), 0.0)
        known = rng.normal(size=n) if offset else np.zeros(n)
        y = draw_response(family, known + design @ truth + 0.2, seed)
        weight = rng.uniform(0.2, 1.8, size=(n_models, n))
        rows = Rows(
            torch.as_tensor(y),
            torch.as_tensor(known),
            torch.as_tensor(weight / weight.sum(-1, keepdims=True)),
            get_family(family),
        )

        def price(name, alphas=(0.03,)):
            strength = torch.tensor(alphas, dtype=torch.float64).expand(n_models)
            return make_penalty(
                name, strength, torch.as_tensor(owner), owner.max() + 1, delta=0.5
            )

        return torch.as_tensor(design).expand(n_models, -1, -1), rows, price

    return make


VARIANCE = {
    "poisson": lambda mu: mu,
    "gamma": lambda mu: mu**2,
    "negative_binomial": lambda mu: mu + mu**2,
    "tweedie": lambda mu: mu**1.5,
}


def scores(family, y, eta):
    """Minus the slope of the half deviance, from the textbook."""
    if family == "gaussian":
        return y - eta
    if family == "binomial":
        return y - 1 / (1 + np.exp(-eta))
    mu = np.exp(eta)
    return (y - mu) * mu / VARIANCE[family](mu)


def kkt_by_hand(design, rows, penalty, at, k=0):
    """Distance of zero to the subdifferential, relative to the gradient at zero."""
    X, y, offset = design[k].numpy(), rows.y.numpy(), rows.offset.numpy()
    weight, coef = rows.weight[k].numpy(), at.coef[k].numpy()
    name, power = rows.family.name, penalty.power
    owner = penalty.column_feature.numpy()
    price = penalty.strength[k].item() * penalty.weight[k].numpy()
    score = scores(name, y, offset + at.intercept[k].item() + X @ coef)
    gradient = -X.T @ (weight * score)
    gaps = [abs(weight @ score)]
    for j in range(len(price)):
        b, slope = coef[owner == j], gradient[owner == j]
        norm = np.linalg.norm(b)
        if norm > 0:
            gaps.append(
                np.linalg.norm(slope + price[j] * power * norm ** (power - 2) * b)
            )
        elif power == 1:
            gaps.append(max(0.0, np.linalg.norm(slope) - price[j]))
        elif power == 2:
            gaps.append(np.linalg.norm(slope))
    null = start_coefficients(rows, X.shape[1]).intercept[k].item()
    at_zero = X.T @ (weight * scores(name, y, offset + null))
    return max(gaps) / max(np.abs(at_zero).max(), price.max())


@EVERY_PENALTY
@EVERY_FAMILY
@EVERY_DESIGN
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_solve_is_optimal(kind, family, penalty, seed, make_inner):
    design, rows, price = make_inner(kind, family, seed, n_models=len(ALPHAS))
    prices = price(penalty, ALPHAS)
    solution = solve_coefficients(design, rows, prices)
    assert solution.converged.all()
    assert solution.kkt.max() <= KKT_TOL
    for k in range(len(ALPHAS)):
        by_hand = kkt_by_hand(design, rows, prices, solution.coefficients, k)
        assert by_hand <= KKT_TOL


def test_certificate_measures_the_violation(make_inner):
    design, rows, price = make_inner("groups")
    null = expand(design, rows, start_coefficients(rows, len(GROUPS)))
    for name in PENALTIES:
        prices = price(name, (0.1,))
        at = solve_coefficients(design, rows, prices).coefficients
        coef = at.coef + 0.01 * (at.coef != 0)
        # The intercept stays optimal, so that only the coefficients are judged.
        fitted = (design @ coef.unsqueeze(-1)).squeeze(-1)
        level = (rows.weight * (rows.y - fitted)).sum(-1)
        moved = Coefficients(coef, level)
        residual = violation(expand(design, rows, moved), prices)
        residual = (residual / kkt_scale(null, prices)).item()
        assert residual == pytest.approx(
            kkt_by_hand(design, rows, prices, moved), rel=1e-8
        )
        assert residual > 1e-3


@pytest.mark.parametrize("kind", ["tall", "more columns than rows"])
@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
@EVERY_FAMILY
def test_objective_is_no_worse_than_a_general_optimiser(
    family, penalty, kind, make_inner
):
    design, rows, price = make_inner(kind, family, seed=3, offset=True)
    prices = price(penalty, (0.03,))
    solution = solve_coefficients(design, rows, prices)
    X, y = design[0].numpy(), rows.y.numpy()
    weight, offset, q = rows.weight[0].numpy(), rows.offset.numpy(), design.shape[-1]

    def objective(split):
        """Intercept, positive and negative parts: smooth, with bounds."""
        coef = split[1 : q + 1] - split[q + 1 :]
        eta = offset + split[0] + X @ coef
        loss = rows.family.loss(torch.as_tensor(y), torch.as_tensor(eta)).numpy()
        pull = -weight * scores(family, y, eta)
        slope = X.T @ pull
        if penalty == "ridge":
            value, bend = 0.015 * coef @ coef, 0.03 * coef
            gradient = np.concatenate([[pull.sum()], slope + bend, -slope - bend])
        else:
            value = 0.03 * split[1:].sum()
            gradient = np.concatenate([[pull.sum()], slope + 0.03, 0.03 - slope])
        return weight @ loss + value, gradient

    bounds = [(None, None)] + [(0, None)] * (2 * q)
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
    reference = minimize(
        objective,
        np.zeros(2 * q + 1),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options=options,
    )
    value = solution.objective.item()
    assert value <= reference.fun * (1 + OBJECTIVE_RTOL)
    assert value == pytest.approx(reference.fun, rel=1e-6)


@EVERY_FAMILY
def test_sub_l1_ends_in_a_local_minimum(family, make_inner):
    design, rows, price = make_inner("groups", family, seed=1)
    prices = price("sub_l1", (0.05,))
    solution = solve_coefficients(design, rows, prices)
    at = solution.coefficients
    generator = torch.Generator().manual_seed(0)
    for trial in range(100):
        size = 10.0 ** -(1 + trial % 4)
        move = torch.randn(at.coef.shape, generator=generator, dtype=torch.float64)
        level = torch.randn(1, generator=generator, dtype=torch.float64)
        coef = at.coef + size * 0.1 * move
        eta = rows.eta(design, coef, at.intercept + size * 0.1 * level)
        value = rows.loss(eta) + prices.value(coef)
        assert value.item() >= solution.objective.item() * (1 - OBJECTIVE_RTOL)


def test_sub_l1_mostly_finds_the_global_minimum(draw_response):
    found = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(50, 4))
        X[:, 1] += 0.7 * X[:, 0]
        y = draw_response("gaussian", X @ (rng.normal(size=4) * (rng.random(4) < 0.5)))
        design, owner = torch.as_tensor(X).unsqueeze(0), torch.arange(4)
        rows = Rows(
            torch.as_tensor(y),
            torch.zeros(50, dtype=torch.float64),
            torch.full((1, 50), 1 / 50, dtype=torch.float64),
            get_family("gaussian"),
        )
        alpha = torch.tensor([0.05], dtype=torch.float64)
        prices = make_penalty("sub_l1", alpha, owner, 4, delta=0.5)
        solution = solve_coefficients(design, rows, prices)
        lowest = min(
            best_on_support(X, y, list(support), prices)
            for size in range(5)
            for support in combinations(range(4), size)
        )
        assert solution.objective.item() <= 1.01 * lowest
        found += solution.objective.item() <= lowest * (1 + 1e-6)
    assert found >= 8


def best_on_support(X, y, support, penalty):
    """Smooth minimisation from least squares, the other coefficients at zero."""
    columns = np.column_stack([np.ones(len(y)), X[:, support]])

    def objective(at):
        price = penalty.strength.item() * np.sum(np.abs(at[1:]) ** penalty.power)
        return np.mean((y - columns @ at) ** 2) / 2 + price

    start = np.linalg.lstsq(columns, y, rcond=None)[0]
    return minimize(objective, start, method="Nelder-Mead", tol=1e-10).fun


@pytest.mark.parametrize("penalty", ["lasso", "sub_l1"])
@EVERY_FAMILY
def test_zeros_are_exact_and_come_by_whole_features(family, penalty, make_inner):
    alphas = (1e-4, *np.geomspace(0.03, 0.6, 8), 100.0)
    design, rows, price = make_inner("groups", family, seed=2, n_models=len(alphas))
    at = solve_coefficients(design, rows, price(penalty, alphas)).coefficients
    off = (at.coef == 0).numpy()
    for j in range(4):
        own = off[:, np.array(GROUPS) == j]
        assert (own.all(1) | ~own.any(1)).all()
    assert not off[0].any()
    assert off[-1].all()
    assert (off.any(1) & ~off.all(1)).any()


@EVERY_FAMILY
def test_an_empty_model_predicts_the_weighted_mean(family, make_inner):
    design, rows, price = make_inner("tall", family)
    at = solve_coefficients(design, rows, price("lasso", (100.0,))).coefficients
    mean = rows.family.mean(at.intercept).item()
    assert mean == pytest.approx((rows.weight[0] @ rows.y).item(), rel=1e-9)


@EVERY_FAMILY
def test_a_model_without_columns_is_its_intercept(family, make_inner):
    design, rows, _ = make_inner("tall", family, n_models=2)
    none = torch.zeros(0, dtype=torch.long)
    for name in PENALTIES:
        prices = make_penalty(name, torch.ones(2, dtype=torch.float64), none, 3)
        solution = solve_coefficients(design[..., :0], rows, prices)
        mean = rows.family.mean(solution.coefficients.intercept)
        torch.testing.assert_close(mean, rows.weight @ rows.y, rtol=1e-9, atol=0)
        assert solution.converged.all()


@EVERY_PENALTY
def test_duplicated_columns_share_alike_under_ridge_and_predict_alike(
    penalty, make_inner
):
    design, rows, price = make_inner("duplicated columns", "gaussian")
    at = solve_coefficients(design, rows, price(penalty)).coefficients
    if penalty == "ridge":
        torch.testing.assert_close(at.coef[:, :3], at.coef[:, 6:], rtol=0, atol=1e-9)
    if penalty == "lasso":  # any split of a pair is optimal, its sum is unique
        _, _, single = make_inner("tall", "gaussian")
        strength, owner = torch.tensor([0.03], dtype=torch.float64), torch.arange(6)
        prices = make_penalty("lasso", strength, owner, 6)
        lone = solve_coefficients(design[..., :6], rows, prices).coefficients
        total = at.coef[:, :6].clone()
        total[:, :3] += at.coef[:, 6:]
        torch.testing.assert_close(total, lone.coef, rtol=0, atol=1e-8)


@EVERY_PENALTY
@EVERY_FAMILY
def test_a_constant_offset_moves_the_intercept_alone(family, penalty, make_inner):
    design, rows, price = make_inner("tall", family, offset=True)
    prices = price(penalty)
    at = solve_coefficients(design, rows, prices).coefficients
    shifted = Rows(rows.y, rows.offset + 0.7, rows.weight, rows.family)
    moved = solve_coefficients(design, shifted, prices).coefficients
    torch.testing.assert_close(moved.coef, at.coef, rtol=0, atol=1e-8)
    torch.testing.assert_close(moved.intercept, at.intercept - 0.7, rtol=0, atol=1e-8)


@EVERY_FAMILY
def test_an_offset_equal_to_a_column_lowers_its_coefficient_by_one(family, make_inner):
    design, rows, price = make_inner("tall", family)
    prices = price("ridge", (0.0,))
    at = solve_coefficients(design, rows, prices).coefficients
    known = Rows(rows.y, design[0, :, 2].clone(), rows.weight, rows.family)
    moved = solve_coefficients(design, known, prices).coefficients
    expected = at.coef.clone()
    expected[:, 2] -= 1
    torch.testing.assert_close(moved.coef, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("outlier", [1.0, 1e5])
@EVERY_PENALTY
@EVERY_FAMILY
def test_rows_of_zero_weight_have_no_influence(family, penalty, outlier, make_inner):
    design, rows, price = make_inner("tall", family)
    design, weight = design.clone(), rows.weight.clone()
    design[:, :5] *= outlier  # 1e5 overflows the exponential families
    weight[:, :5] = 0.0
    weight /= weight.sum()
    prices = price(penalty)
    silent = Rows(rows.y, rows.offset, weight, rows.family)
    without = Rows(rows.y[5:], rows.offset[5:], weight[:, 5:], rows.family)
    a = solve_coefficients(design, silent, prices)
    b = solve_coefficients(design[:, 5:], without, prices)
    for left, right in (
        (a.coefficients.coef, b.coefficients.coef),
        (a.coefficients.intercept, b.coefficients.intercept),
        (a.objective, b.objective),
    ):
        torch.testing.assert_close(left, right, rtol=0, atol=ZERO_WEIGHT_ATOL)


@EVERY_PENALTY
@EVERY_FAMILY
def test_batched_models_equal_single_models(family, penalty, make_inner):
    design, rows, price = make_inner("groups", family, n_models=3)
    # Members that need few and many iterations, so that some wait for others.
    design = design * torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64).view(3, 1, 1)
    prices = price(penalty, (1e-3, 0.03, 0.3))
    batched = solve_coefficients(design, rows, prices)
    for k in range(3):
        only = torch.tensor([k])
        single = solve_coefficients(design[only], rows.take(only), prices.take(only))
        torch.testing.assert_close(
            batched.coefficients.coef[only],
            single.coefficients.coef,
            rtol=0,
            atol=BATCH_ATOL,
        )
        torch.testing.assert_close(
            batched.coefficients.intercept[only],
            single.coefficients.intercept,
            rtol=0,
            atol=BATCH_ATOL,
        )


@pytest.mark.parametrize(
    ("penalty", "alpha"), [("ridge", 1e-4), ("lasso", 1e-3), ("sub_l1", 1e-3)]
)
def test_separated_classes_stay_finite_under_a_penalty(penalty, alpha, make_inner):
    design, rows, price = make_inner("tall", "binomial")
    split = Rows((design[0, :, 0] > 0).double(), rows.offset, rows.weight, rows.family)
    prices = price(penalty, (alpha,))
    solution = solve_coefficients(design, split, prices)
    assert solution.converged.all()
    assert kkt_by_hand(design, split, prices, solution.coefficients) <= KKT_TOL
    assert 1 < solution.coefficients.coef.abs().max() < 1e3


@EVERY_PENALTY
@EVERY_FAMILY
def test_a_warm_start_does_not_move_a_convex_optimum(family, penalty, make_inner):
    design, rows, price = make_inner("tall", family)
    prices = price(penalty)
    cold = solve_coefficients(design, rows, prices)
    start = cold.coefficients
    if penalty != "sub_l1":  # below power 1 another start may end elsewhere
        start = Coefficients(start.coef + 0.1, start.intercept - 0.1)
    warm = solve_coefficients(design, rows, prices, start)
    torch.testing.assert_close(
        warm.coefficients.coef, cold.coefficients.coef, rtol=0, atol=1e-8
    )


@EVERY_FAMILY
def test_newton_steps_lead_to_the_ridge_optimum(family, make_inner):
    design, rows, price = make_inner("tall", family)
    prices = price("ridge")
    exact = solve_coefficients(design, rows, prices).coefficients
    at = start_coefficients(rows, design.shape[-1])
    for _ in range(1 if family == "gaussian" else 12):
        at = newton_steps(design, rows, prices.ridge(at.coef, 1e-4), at)
    torch.testing.assert_close(at.coef, exact.coef, rtol=0, atol=1e-9)


@pytest.mark.parametrize("penalty", ["lasso", "sub_l1"])
@EVERY_FAMILY
def test_newton_steps_never_raise_the_majorised_objective(family, penalty, make_inner):
    design, rows, price = make_inner("more columns than rows", family)
    prices, floor = price(penalty), 1e-3
    at = start_coefficients(rows, design.shape[-1])

    def smoothed(at):
        norm = (prices.norm(at.coef).square() + floor**2).sqrt()
        value = prices.strength * (prices.weight * norm**prices.power).sum(-1)
        return (rows.loss(rows.eta(design, at.coef, at.intercept)) + value).item()

    values = [smoothed(at)]
    for _ in range(15):
        at = newton_steps(design, rows, prices.ridge(at.coef, floor), at)
        values.append(smoothed(at))
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0]


@EVERY_PENALTY
def test_the_quadratic_is_minimised_on_a_singular_gram_matrix(penalty, make_inner):
    design, rows, price = make_inner("more columns than rows")
    prices = price(penalty)
    weighted = rows.weight.unsqueeze(-1) * design
    gram = design.mT @ weighted
    moment = (weighted.mT @ rows.y.unsqueeze(-1)).squeeze(-1)
    start = moment.sign() * 0.01
    coef = minimise_quadratic(gram, moment, prices, start)
    gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) - moment
    norm = prices.norm(coef)
    on = norm > 0
    pull = torch.where(on, prices.slope(norm.clamp(min=1e-300)), 0.0)
    stationary = (gradient + pull * coef.sign()).abs()[on].max()
    assert stationary <= KKT_TOL * moment.abs().max()
    if penalty == "lasso":
        assert (gradient.abs() <= prices.slope(norm) * (1 + KKT_TOL)).all()
    if penalty != "ridge":
        assert 0 < on.sum() < on.numel()


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
@EVERY_FAMILY
def test_light_rows_decide_what_heavy_ones_leave_open(family, penalty, make_inner):
    # Three heavy rows of one target say nothing of slopes: all that is to be found is
    # in digits that sums with the heavy rows must not lose.
    design, rows, price = make_inner("tall", family)
    heavy = torch.arange(60) < 3
    weight = torch.where(heavy, 1.0, 1e-9).double().unsqueeze(0)
    y = torch.where(heavy, 1.0, rows.y)
    rows = Rows(y, rows.offset, weight / weight.sum(), rows.family)
    solution = solve_coefficients(design, rows, price(penalty, (1e-11,)), tol=1e-6)
    assert solution.converged.all()


def test_curves_that_turn_on_the_way_are_not_dropped():
    # More pieces than rows: Newton's steps turn a curve against itself. On the way its
    # projection on its own direction is zero, the curve is not.
    gram, moment = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(3, 12)), rng.normal(size=12)
        pieces = [np.maximum(one[:, None] - np.sort(one)[:-1], 0) for one in x]
        design = np.hstack(pieces)
        design -= design.mean(0)
        gram.append(design.T @ design / 12)
        moment.append(design.T @ y / 12)
    gram, moment = torch.as_tensor(np.array(gram)), torch.as_tensor(np.array(moment))
    owner = torch.arange(3).repeat_interleave(11)
    strength = torch.full((6,), 1e-4, dtype=torch.float64)
    prices = make_penalty("lasso", strength, owner, 3)
    coef = minimise_quadratic(gram, moment, prices, torch.zeros_like(moment))
    gradient = (gram @ coef.unsqueeze(-1)).squeeze(-1) - moment
    norm = prices.norm(coef)
    assert (norm > 0).all()
    pull = prices.spread(prices.slope(norm) / norm) * coef
    assert (gradient + pull).abs().amax() <= 1e-9 * moment.abs().amax()
