"""Training: members are independent, safe against divergence and never lose to the GLM.

Runs are short; what is claimed holds after every step, not only at convergence.

Shapes: K models, n rows, q terms, p features, P weights.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from sknimo.families import FAMILIES
from sknimo.network import Modulator, NetworkSpec, init_params, unpack
from sknimo.solver import MemoryColumns, Options, Status, solve
from sknimo.solver._forward import Bent, Forward, pad_active
from sknimo.solver._live import LiveMembers, learning_rate
from sknimo.solver._profile import Rows, solve_coefficients

SAME_ATOL = 1e-10  # only the order of summation differs, over a short run
PERMUTED_ATOL = 1e-9  # sums over features change their order as well
SHORT = Options(max_iter=30, check_every=5, patience=100, scale_contributions=True)
N_DATASETS = 100
GLM_RTOL = 1e-12  # rounding of the recomputed objective

EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))
EVERY_PENALTY = pytest.mark.parametrize("penalty", ["ridge", "lasso", "sub_l1"])
# All families with one penalty, and all penalties with one family; other pairs later.
EVERY_PAIR = pytest.mark.parametrize(
    ("family", "penalty"),
    [
        pair
        if "gaussian" in pair or "lasso" in pair
        else pytest.param(*pair, marks=pytest.mark.slow)
        for pair in product(FAMILIES, ["ridge", "lasso", "sub_l1"])
    ],
)


def assert_same(left, right, atol, k_left=slice(None), k_right=slice(None)):
    """Two solutions hold the same members."""
    for name in ("coef", "intercept", "params", "objective", "glm_objective"):
        torch.testing.assert_close(
            getattr(left, name)[k_left],
            getattr(right, name)[k_right],
            rtol=0,
            atol=atol,
        )
    assert torch.equal(left.modulated[k_left], right.modulated[k_right])


def linear_predictor(problem, solution):
    """Eta of every member from its published parts, (K, n)."""
    spec = problem.spec
    modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)
    every = torch.arange(spec.n_features).expand(len(solution.coef), -1)
    bend = modulator(solution.params.double(), problem.inputs, every, exact=True)
    bend = bend * solution.modulated.unsqueeze(1)
    design = problem.terms * (1 + bend[..., problem.term_feature])
    return (
        problem.offset
        + solution.intercept.unsqueeze(-1)
        + (design @ solution.coef.unsqueeze(-1)).squeeze(-1)
    )


def objective_by_hand(problem, members, solution, scale_contributions):
    """Training objective of every member from its published parts, (K,)."""
    eta = linear_predictor(problem, solution)
    loss = (members.weight * problem.family.loss(problem.y, eta)).sum(-1)
    penalty = members.penalty
    if scale_contributions:
        forward = Forward(problem, members, Options(scale_contributions=True))
        bent = Bent.by(solution.params, solution.modulated)
        design = forward.block(bent, slice(0, problem.n_rows))
        square = (members.weight.unsqueeze(-1) * design.square()).sum(1)
        penalty = forward.price(square)
    return loss + penalty.value(solution.coef)


# --- Members do not know of each other ------------------------------------------------


@EVERY_PAIR
def test_batched_fits_equal_single_fits(family, penalty, make_problem, make_members):
    problem = make_problem(family, widths=(1, 2, 1), offset=True)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, (3, problem.n_rows))
    members = make_members(
        problem,
        n_models=3,
        penalty=penalty,
        alpha=(0.002, 0.02, 0.1),  # supports, and so active sets, differ in size
        network_alpha=(0.0, 1.0, 5.0),
        seeds=(4, 9, 2),
        weight=weight,
    )
    batched = solve(problem, members, SHORT)
    assert (batched.objective < batched.glm_objective).any()
    for k in range(3):
        only = torch.tensor([k])
        single = solve(problem, members.take(only), SHORT)
        assert_same(batched, single, SAME_ATOL, only)
        assert batched.status[k] is single.status[0]


@pytest.mark.parametrize(
    "scale_contributions", [pytest.param(False, marks=pytest.mark.slow), True]
)
@EVERY_FAMILY
def test_chunked_rows_equal_all_rows_at_once(
    family, scale_contributions, make_problem, make_members
):
    problem = make_problem(family, widths=(1, 2, 1))
    members = make_members(problem, n_models=2, alpha=0.02, network_alpha=0.5)
    whole = replace(SHORT, scale_contributions=scale_contributions)
    chunked = replace(whole, memory_budget=20_000)
    assert len(Forward(problem, members, chunked).supply.blocks(2, 3)) >= 4
    assert len(Forward(problem, members, whole).supply.blocks(2, 3)) == 1
    left, right = solve(problem, members, whole), solve(problem, members, chunked)
    assert (left.objective < left.glm_objective).all()
    assert_same(left, right, SAME_ATOL)


def test_chunks_draw_the_same_noise(make_problem, make_members):
    problem = make_problem()
    members = make_members(problem, alpha=0.02)
    whole = replace(SHORT, noise=0.3)
    left = solve(problem, members, whole)
    right = solve(problem, members, replace(whole, memory_budget=20_000))
    assert_same(left, right, SAME_ATOL)


# --- Relabelling and repetition -------------------------------------------------------


def permuted(problem, params, order):
    """The same problem and start with its features in another order."""
    owner = problem.term_feature.tolist()
    columns = [c for j in order for c, feature in enumerate(owner) if feature == j]
    place = {feature: new for new, feature in enumerate(order)}
    new_owner = [place[owner[c]] for c in columns]
    spec = problem.spec
    code = tuple(spec.code[j] for j in order)
    new_spec = NetworkSpec(tuple(new_owner), code, spec.hidden, spec.mask)
    start = params.clone()
    first = unpack(spec, params).first
    unpack(new_spec, start).first.copy_(first[:, :, columns])
    new_problem = replace(
        problem,
        columns=MemoryColumns(problem.terms[:, columns], problem.inputs[:, columns]),
        term_feature=torch.tensor(new_owner),
        spec=new_spec,
    )
    return new_problem, start, columns


@EVERY_PENALTY
@EVERY_FAMILY
def test_permuting_columns_permutes_the_answer(
    family, penalty, make_problem, make_members
):
    problem = make_problem(family, widths=(1, 2, 1, 1))
    start = init_params(problem.spec, seeds=(3,))
    options = dict(penalty=penalty, alpha=0.02, network_alpha=0.5)
    answer = solve(problem, make_members(problem, **options), SHORT, start.clone())
    order = [2, 0, 3, 1]
    other, other_start, columns = permuted(problem, start, order)
    turned = solve(other, make_members(other, **options), SHORT, other_start)
    assert answer.objective < answer.glm_objective
    torch.testing.assert_close(
        turned.coef, answer.coef[:, columns], rtol=0, atol=PERMUTED_ATOL
    )
    assert torch.equal(turned.modulated, answer.modulated[:, order])
    first = unpack(problem.spec, answer.params).first[:, :, columns]
    torch.testing.assert_close(
        unpack(other.spec, turned.params).first, first, rtol=0, atol=PERMUTED_ATOL
    )
    torch.testing.assert_close(
        linear_predictor(other, turned),
        linear_predictor(problem, answer),
        rtol=0,
        atol=PERMUTED_ATOL,
    )


@EVERY_FAMILY
def test_integer_weights_equal_repetition(
    family, make_problem, make_members, repeat_rows
):
    problem = make_problem(family, n_rows=40, offset=True)
    counts = np.random.default_rng(0).integers(0, 4, problem.n_rows)
    assert (counts == 0).any()
    weighted = make_members(problem, alpha=0.02, network_alpha=0.5, weight=counts)
    repeated = repeat_rows(problem, counts)
    plain = make_members(repeated, alpha=0.02, network_alpha=0.5)
    left = solve(problem, weighted, SHORT)
    right = solve(repeated, plain, SHORT)
    assert left.objective < left.glm_objective
    assert_same(left, right, SAME_ATOL)


@EVERY_FAMILY
def test_rows_of_zero_weight_do_not_train_even_when_they_overflow(
    family, make_problem, make_members
):
    problem = make_problem(family)
    weight = torch.ones(problem.n_rows)
    weight[:5] = 0.0
    members = make_members(problem, alpha=0.02, weight=weight)
    answer = solve(problem, members, SHORT)
    terms = problem.terms.clone()
    terms[:5] *= 1e5
    wild = replace(problem, columns=replace(problem.columns, terms=terms))
    assert_same(answer, solve(wild, members, SHORT), SAME_ATOL)


# --- Noise, precision, starts ---------------------------------------------------------


def test_noise_is_governed_by_its_seed(make_problem, make_members):
    problem = make_problem()
    members = make_members(problem, n_models=2, alpha=0.02)
    noisy = replace(SHORT, noise=0.5, noise_seed=3)
    before = torch.get_rng_state()
    left, right = solve(problem, members, noisy), solve(problem, members, noisy)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(left.params, right.params)
    assert torch.equal(left.coef, right.coef)
    other = solve(problem, members, replace(noisy, noise_seed=4))
    assert (left.params - other.params).abs().max() > 1e-4
    clean = solve(problem, members, SHORT)
    assert (left.params - clean.params).abs().max() > 1e-4


def test_noise_is_absent_from_what_is_reported(make_problem, make_members):
    problem = make_problem()
    members = make_members(problem, n_models=2, alpha=0.02)
    solution = solve(problem, members, replace(SHORT, noise=0.5))
    assert solution.modulated.any()
    expected = objective_by_hand(problem, members, solution, True)
    torch.testing.assert_close(solution.objective, expected, rtol=1e-12, atol=0)


def test_single_precision_follows_double(make_problem, make_members):
    problem = make_problem()
    members = make_members(problem, alpha=0.02)
    double = solve(problem, members, SHORT)
    single = solve(problem, members, replace(SHORT, dtype=torch.float32))
    assert single.params.dtype is torch.float32
    assert single.coef.dtype is torch.float64
    torch.testing.assert_close(single.coef, double.coef, rtol=0, atol=1e-4)
    assert not torch.equal(single.coef, double.coef)


def test_solving_leaves_its_arguments_alone(make_problem, make_members):
    problem = make_problem()
    members = make_members(problem, alpha=0.02, network_alpha=5.0)
    start = init_params(problem.spec, seeds=(0,))
    before = start.clone()
    solve(problem, members, SHORT, start)
    assert torch.equal(start, before)


def test_no_steps_give_the_penalised_glm(make_problem, make_members):
    for family in FAMILIES:
        problem = make_problem(family)
        members = make_members(problem, alpha=0.03)
        solution = solve(problem, members, Options(max_iter=0))
        rows = Rows(problem.y, problem.offset, members.weight, problem.family)
        design = problem.terms.unsqueeze(0)
        glm = solve_coefficients(design, rows, members.penalty)
        assert torch.equal(solution.coef, glm.coefficients.coef)
        assert torch.equal(solution.intercept, glm.coefficients.intercept)
        assert not solution.modulated.any()
        assert solution.status == (Status.PLAIN,)


def test_training_starts_at_the_glm(make_problem, make_members):
    for family in FAMILIES:
        problem = make_problem(family)
        members = make_members(problem, penalty="ridge", alpha=0.03)
        solution = solve(problem, members, Options(max_iter=3, check_every=1))
        history = solution.history
        assert history.step.tolist() == [0, 1, 2, 3]
        assert history.objective[0, 0] == pytest.approx(
            solution.glm_objective.item(), rel=1e-10
        )


def test_learning_rate_rises_peaks_and_anneals():
    options = Options(max_iter=200, learning_rate=0.05)
    rates = [learning_rate(step, options) for step in range(201)]
    assert rates[0] == pytest.approx(0.005)
    assert max(rates) == rates[20] == pytest.approx(0.05)
    assert (np.diff(rates[:21]) > 0).all()
    assert (np.diff(rates[20:]) < 0).all()
    assert rates[-1] == pytest.approx(0.0005)


# --- Never worse than the nested GLM --------------------------------------------------


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3))]
)
def test_objective_never_ends_above_the_nested_glm(part, make_problem, make_members):
    """One hundred random datasets over families, penalties, prices and step sizes."""
    trained = 0
    for seed in range(part * N_DATASETS // 4, (part + 1) * N_DATASETS // 4):
        rng = np.random.default_rng(seed)
        problem = make_problem(
            family=list(FAMILIES)[seed % 4],
            n_rows=int(rng.integers(12, 60)),
            widths=tuple(rng.integers(1, 3, int(rng.integers(2, 7)))),
            seed=seed,
            offset=bool(rng.random() < 0.5),
        )
        members = make_members(
            problem,
            penalty=rng.choice(["ridge", "lasso", "sub_l1"]),
            alpha=10 ** rng.uniform(-3, -0.5),
            network_alpha=rng.choice([0.0, 1.0, 20.0]),
            seeds=(seed,),
            weight=rng.uniform(0.1, 2, problem.n_rows),
        )
        options = Options(
            max_iter=12,
            check_every=4,
            learning_rate=rng.choice([0.01, 0.1, 3.0]),
            noise=rng.choice([0.0, 0.3]),
            scale_contributions=bool(rng.random() < 0.5),
        )
        solution = solve(problem, members, options)
        rows = Rows(problem.y, problem.offset, members.weight, problem.family)
        square = members.weight @ problem.terms.square()
        penalty = Forward(problem, members, options).price(square)
        glm = solve_coefficients(problem.terms.unsqueeze(0), rows, penalty)
        ended = objective_by_hand(
            problem, members, solution, options.scale_contributions
        )
        torch.testing.assert_close(solution.objective, ended, rtol=1e-10, atol=1e-12)
        assert ended.item() <= glm.objective.item() * (1 + GLM_RTOL)
        assert solution.kkt.item() <= 1e-8
        assert solution.inner_converged.all()
        trained += bool(solution.modulated.any())
    assert trained >= N_DATASETS // 8


def test_network_that_does_not_help_is_dropped(make_problem, make_members, make_params):
    """A wild start and no time to mend it: the GLM is kept, and said to be kept."""
    problem = make_problem()
    members = make_members(problem, alpha=0.02)
    start = make_params(problem.spec, size=20.0)
    solution = solve(problem, members, Options(max_iter=1), start)
    assert solution.status == (Status.NESTED,)
    assert not solution.modulated.any()
    glm = solve(problem, members, Options(max_iter=0))
    assert torch.equal(solution.coef, glm.coef)
    assert torch.equal(solution.intercept, glm.intercept)
    assert torch.equal(solution.objective, solution.glm_objective)
    assert solution.status[0].ok


# --- Early stopping -------------------------------------------------------------------


@pytest.fixture
def overfit(make_problem, make_members):
    """A long, fast fit to few rows: the validation loss falls, then rises."""

    def fit(**changes):
        problem = make_problem(n_rows=60, hidden=(12, 12), seed=2)
        held_out = torch.arange(60) >= 30
        members = make_members(
            problem,
            penalty="ridge",
            alpha=1e-4,
            weight=(~held_out).double(),
            validation=held_out.double(),
        )
        settings = dict(
            max_iter=400, check_every=5, patience=8, tol=0.0, learning_rate=0.05
        )
        options = Options(**(settings | changes))
        return problem, members, solve(problem, members, options)

    return fit


def validation_loss(problem, members, solution):
    """Loss of the members as they are returned, (K,)."""
    loss = problem.family.loss(problem.y, linear_predictor(problem, solution))
    return (members.validation * loss).sum(-1)


def test_early_stopping_returns_the_best_state(overfit):
    problem, members, solution = overfit()
    seen = solution.history.validation[:, 0]
    assert solution.status == (Status.EARLY_STOPPED,)
    assert solution.n_iter < 400
    # Overfitted at the end, not at the start: there is something to restore.
    assert seen.min() < 0.9 * seen[0]
    assert seen[-1] > 1.02 * seen.min()
    # Eight checks without progress, then the end.
    assert len(seen) - 1 - seen.argmin() == 8
    found = validation_loss(problem, members, solution)
    np.testing.assert_allclose(found, seen.min(), rtol=1e-8)


def test_best_state_is_kept_when_time_runs_out_first(overfit):
    problem, members, solution = overfit(max_iter=150, patience=1000)
    history = solution.history.validation
    assert (history[-1] > 1.02 * history.min(0)).all()
    found = validation_loss(problem, members, solution)
    np.testing.assert_allclose(found, history.min(0), rtol=1e-8)


def test_validation_rows_do_not_train(make_problem, make_members):
    problem = make_problem(n_rows=60)
    held_out = torch.arange(60) >= 40
    options = replace(SHORT, max_iter=10, patience=100)
    members = make_members(
        problem, alpha=0.02, weight=(~held_out).double(), validation=held_out.double()
    )
    y = problem.y.clone()
    y[held_out] += 10.0
    left = solve(problem, members, options)
    right = solve(replace(problem, y=y), members, options)
    assert (
        torch.equal(left.history.objective[0], right.history.objective[0])
        if (isinstance(left.history.objective, torch.Tensor))
        else np.array_equal(left.history.objective, right.history.objective)
    )
    assert not np.array_equal(left.history.validation, right.history.validation)


# --- Divergence -----------------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["ridge", "lasso"])
@EVERY_FAMILY
def test_absurd_learning_rate_is_rolled_back_and_reported(
    family, penalty, make_problem, make_members
):
    problem = make_problem(family)
    members = make_members(problem, penalty=penalty, alpha=0.02)
    options = Options(max_iter=60, check_every=2, learning_rate=1e200)
    solution = solve(problem, members, options)
    assert solution.status == (Status.DIVERGED,)
    assert not solution.status[0].ok
    for name in ("coef", "intercept", "params", "objective"):
        assert torch.isfinite(getattr(solution, name)).all()
    assert solution.objective <= solution.glm_objective


@pytest.mark.parametrize("penalty", ["ridge", "lasso", "sub_l1"])
def test_broken_start_ends_as_the_glm_and_is_reported(
    penalty, make_problem, make_members
):
    problem = make_problem()
    members = make_members(problem, n_models=2, penalty=penalty, alpha=0.02)
    start = init_params(problem.spec, members.seeds)
    healthy = solve(problem, members, SHORT, start.clone())
    start[0, 3] = torch.nan
    solution = solve(problem, members, SHORT, start)
    assert solution.status[0] is Status.DIVERGED
    glm = solve(problem, members, replace(SHORT, max_iter=0))
    torch.testing.assert_close(solution.coef[0], glm.coef[0], rtol=0, atol=SAME_ATOL)
    assert not solution.modulated[0].any()
    assert torch.isfinite(solution.params).all()
    # The other member does not notice.
    assert_same(solution, healthy, SAME_ATOL, slice(1, 2), slice(1, 2))


def test_member_recovers_from_one_divergence(make_problem, make_members, monkeypatch):
    problem = make_problem()
    members = make_members(problem, n_models=2, alpha=0.02)
    options = replace(SHORT, max_iter=40, check_every=2)
    healthy = solve(problem, members, options)
    differentiate, calls = Forward.differentiate, []
    move, rates = LiveMembers.move, []

    def break_once(self, *args):
        point = differentiate(self, *args)
        calls.append(point)
        if len(calls) != 11:  # a check is due at step 10
            return point
        objective, gradient = point.objective.clone(), point.gradient.clone()
        objective[0], gradient[0] = torch.nan, torch.nan
        return replace(point, objective=objective, gradient=gradient)

    def watch(self, *args):
        rates.append(self.rate.tolist())
        move(self, *args)

    monkeypatch.setattr(Forward, "differentiate", break_once)
    monkeypatch.setattr(LiveMembers, "move", watch)
    solution = solve(problem, members, options)
    assert len(calls) == 40
    # Half the rate for the member that broke, from that check on.
    assert rates[9] == [1.0, 1.0]
    assert rates[10] == [0.5, 1.0]
    assert solution.status[0] is not Status.DIVERGED
    assert torch.isfinite(solution.params).all()
    assert solution.modulated[0].any()
    assert solution.objective[0] < solution.glm_objective[0]
    assert_same(solution, healthy, SAME_ATOL, slice(1, 2), slice(1, 2))


# --- Shrinkage ------------------------------------------------------------------------


def test_group_shrinkage_clears_whole_features_exactly(make_problem, make_members):
    problem = make_problem(widths=(1, 2, 1, 2), hidden=(6, 4))
    members = make_members(
        problem, n_models=3, alpha=0.01, network_alpha=(0.0, 4.0, 99.0)
    )
    solution = solve(problem, members, replace(SHORT, max_iter=100))
    first = unpack(problem.spec, solution.params).first
    off = (first == 0).all(1)  # (K, r)
    assert torch.equal(off, (first == 0).any(1))
    assert torch.equal(off[:, 1], off[:, 2])
    assert torch.equal(off[:, 4], off[:, 5])
    n_off = off.sum(-1).tolist()
    assert n_off[0] == 0 < n_off[1] < n_off[2] == 6
    n_inputs = solution.history.n_inputs
    assert n_inputs[0].tolist() == [6, 6, 6]


def test_shrinkage_and_decay_touch_their_own_layers_alone(make_problem, make_members):
    """Where nothing is bent there is no gradient: penalties move what moves."""
    problem = replace(make_problem(hidden=(6, 4)), unbent=torch.ones(4).bool())
    members = make_members(problem, network_alpha=4.0)
    options = Options(max_iter=10, patience=100, learning_rate=0.01)
    start = init_params(problem.spec, seeds=(0,))
    start += 0.1  # no zeros, so that decay shows in every layer
    before = unpack(problem.spec, start)
    total = sum(learning_rate(step, options) for step in range(10))

    def trained(options, members):
        solution = solve(problem, members, options, start)
        assert not solution.modulated.any()
        return unpack(problem.spec, solution.params)

    after = trained(options, members)
    for name in ("code_weight", "bias", "second", "second_bias", "out"):
        assert torch.equal(getattr(after, name), getattr(before, name))
    norm = before.first.norm(dim=1)
    assert (norm > 4 * total).all()
    torch.testing.assert_close(
        after.first.norm(dim=1), norm - 4 * total, rtol=1e-12, atol=0
    )
    free = replace(members, network_alpha=torch.zeros_like(members.network_alpha))
    decayed = trained(replace(options, weight_decay=2.0), free)
    for name in ("first", "code_weight", "bias", "second_bias"):
        assert torch.equal(getattr(decayed, name), getattr(before, name))
    shrunk = np.prod([1 - 2 * learning_rate(step, options) for step in range(10)])
    for name in ("second", "out"):
        torch.testing.assert_close(
            getattr(decayed, name), shrunk * getattr(before, name), rtol=1e-12, atol=0
        )


def test_shrinkage_alone_ends_in_exact_zeros(make_problem, make_members):
    problem = replace(make_problem(), unbent=torch.ones(4).bool())
    members = make_members(problem, network_alpha=50.0)
    options = Options(max_iter=50, patience=1000)
    solution = solve(problem, members, options)
    weights = unpack(problem.spec, solution.params)
    start = unpack(problem.spec, init_params(problem.spec, members.seeds))
    assert (weights.first == 0).all()
    assert torch.equal(weights.code_weight, start.code_weight)


def test_padding_of_short_active_sets_bends_nothing(
    make_problem, make_members, make_params
):
    """Members with fewer active features than others carry padding that is cut off."""
    problem = make_problem()
    members = make_members(problem, n_models=2)
    params = make_params(problem.spec, seeds=(0, 1))
    mask = torch.tensor([[True, True, False, True], [False, True, False, False]])
    active = pad_active(mask)
    assert active.shape == (2, 3)
    assert active[0].tolist() == [0, 1, 3]
    assert active[1, 0] == 1
    bent = Bent(params, active, mask)
    design = Forward(problem, members, SHORT).block(bent, slice(0, problem.n_rows))
    assert torch.equal((design != problem.terms).any(1), mask)
