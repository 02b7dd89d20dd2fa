"""Joint training: derivatives by hand, members apart, and the state that is kept.

Everything is computed in double precision here, so that tolerances can be small.

Shapes: K members, n rows, B rows of a batch, q terms, p features, a modulated features,
P weights.
"""

import math
import time
from dataclasses import replace

import pytest
import torch

import sknimo.solver._joint as joint
from sknimo.families import FAMILIES
from sknimo.network import start_networks, unpack
from sknimo.solver import JointOptions, JointStart, JointTable, train_jointly

AUTOGRAD_RTOL = 1e-10  # the same sums in another order
MASK_ATOL = 1e-12  # own inputs are taken out by subtraction
TOGETHER_RTOL = 1e-9  # products of batches are summed in another order, for some steps
SINGLE_RTOL = 1e-3  # single precision, sums of a few dozen numbers

CASES = {
    "plain": {},
    "columns in groups": {"widths": (2, 1, 3)},
    "some modulated": {"active": (1, 3)},
    "groups, some modulated": {"widths": (2, 1, 3, 1), "active": (0, 2)},
    "none modulated": {"active": ()},
    "no code": {"code": "none"},
    "known part": {"offset": True},
    "outputs of their own": {"own_out": True, "active": (0, 2)},
}


@pytest.fixture
def in_double(monkeypatch):
    monkeypatch.setattr(joint, "DTYPE", torch.float64)


@pytest.fixture
def setup(make_problem, make_params):
    """A problem, its table, and random parameters of three members, (K, P + q + 1)."""

    def setup(family="gaussian", n_rows=30, active=None, **options):
        problem = make_problem(family, n_rows=n_rows, hidden=(3, 4), **options)
        p = problem.spec.n_features
        active = torch.tensor(range(p) if active is None else active, dtype=torch.long)
        params = make_params(problem.spec, seeds=(0, 1, 2))
        generator = torch.Generator().manual_seed(0)
        rest = torch.randn(3, problem.n_terms + 1, generator=generator).double()
        table = JointTable.of(problem, active)
        return problem, table, torch.cat([params, 0.5 * rest], dim=1)

    return setup


def plain_bend(problem, flat, inputs, j, k):
    """Raw modulation of feature j by member k, as it is written down."""
    spec = problem.spec
    weights, code = unpack(spec, flat[:, : spec.n_params]), spec.codes()
    masked = inputs * (torch.tensor(spec.input_feature) != j)
    shift = weights.code_weight[k] @ code[j] + weights.bias[k]
    first = torch.tanh(masked @ weights.first[k].T + shift)
    second = first @ weights.second[k].T + weights.second_bias[k]
    out = weights.out[k] @ code[j] if spec.own_out else weights.out[k]
    return torch.sin(second) @ out


def plain_eta(problem, active, flat, rows):
    """The model as it is written down: masked copies of the inputs, no tricks."""
    spec, q = problem.spec, problem.n_terms
    coef, intercept = flat[:, spec.n_params : -1], flat[:, -1]
    etas = []
    for k in range(len(flat)):
        inputs, terms = problem.inputs[rows[k]], problem.terms[rows[k]]
        eta = problem.offset[rows[k]] + intercept[k]
        for t in range(q):
            j = int(problem.term_feature[t])
            effect = terms[:, t] * coef[k, t]
            if j in active.tolist():
                effect = effect * (1 + plain_bend(problem, flat, inputs, j, k))
            eta = eta + effect
        etas.append(eta)
    return torch.stack(etas)


def draw_rows(n_rows, n_members=3, size=12):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(n_rows, (n_members, size), generator=generator)
    weight = torch.rand(n_members, size, generator=generator, dtype=torch.float64)
    return rows, weight / size


def plain_gradient(problem, active, flat, rows, weight, ridge):
    """By autograd."""
    leaf = flat.clone().requires_grad_()
    eta = plain_eta(problem, active, leaf, rows)
    loss = (problem.family.loss(problem.y[rows], eta) * weight).sum()
    coef = leaf[:, problem.spec.n_params : -1]
    (loss + (ridge * coef.square()).sum() / 2).backward()
    return leaf.grad


def plain_tie(problem, active, flat, rows, weight):
    """Bends at the reference less their mean, squared, in units of the effect."""
    coef, total = flat[:, problem.spec.n_params : -1].detach(), []
    for k in range(len(flat)):
        inputs, share = problem.inputs[rows[k]], weight[k] / weight[k].sum()
        price = torch.zeros(())
        for j in active.tolist():
            own = problem.term_feature == j
            effect = problem.terms[rows[k]][:, own] @ coef[k, own]
            level = plain_bend(problem, flat, torch.zeros_like(inputs[:1]), j, k)[0]
            mean = share @ plain_bend(problem, flat, inputs, j, k)
            price = price + (share @ effect.square()) * (level - mean) ** 2
        total.append(price)
    return torch.stack(total)


@pytest.mark.parametrize("case", [name for name in CASES if "none" not in name])
@pytest.mark.usefixtures("in_double")
def test_the_tie_of_bends_at_the_reference_has_its_own_gradient(case, setup):
    problem, table, flat = setup(**CASES[case])
    rows, weight = draw_rows(problem.n_rows)
    ridge = torch.zeros(problem.n_terms, dtype=torch.float64)
    tie = torch.linspace(0.7, 1.4, len(flat), dtype=torch.float64).unsqueeze(1)
    tied, free = (
        joint.gradient(table, flat, rows, weight, ridge, each) for each in (tie, None)
    )
    leaf = flat.clone().requires_grad_()
    price = plain_tie(problem, table.active, leaf, rows, weight)
    (tie.squeeze(1) @ price / 2).backward()
    assert leaf.grad.norm() > 1e-3
    assert close(tied - free, leaf.grad, AUTOGRAD_RTOL)


def close(found, expected, rtol):
    return bool(((found - expected).norm(dim=1) <= rtol * expected.norm(dim=1)).all())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("in_double")
def test_forward_pass_is_the_model_as_written_down(case, setup):
    problem, table, flat = setup(**CASES[case])
    rows, _ = draw_rows(problem.n_rows)
    eta = joint.forward(table, flat, rows).eta
    expected = plain_eta(problem, table.active, flat, rows)
    torch.testing.assert_close(eta, expected, rtol=AUTOGRAD_RTOL, atol=AUTOGRAD_RTOL)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.usefixtures("in_double")
def test_gradient_by_hand_is_that_of_autograd(case, family, setup):
    problem, table, flat = setup(family, **CASES[case])
    rows, weight = draw_rows(problem.n_rows)
    ridge = torch.linspace(0.1, 0.5, problem.n_terms, dtype=torch.float64)
    found = joint.gradient(table, flat, rows, weight, ridge)
    expected = plain_gradient(problem, table.active, flat, rows, weight, ridge)
    assert expected.norm() > 1e-3
    assert close(found, expected, AUTOGRAD_RTOL)


def test_single_precision_is_enough_for_a_gradient(setup):
    problem, table, flat = setup("poisson", widths=(2, 1, 3))
    rows, weight = draw_rows(problem.n_rows)
    ridge = torch.full((problem.n_terms,), 0.1)
    single = joint.gradient(table, flat.float(), rows, weight.float(), ridge)
    assert single.dtype == torch.float32
    expected = plain_gradient(problem, table.active, flat, rows, weight, ridge)
    assert close(single.double(), expected, SINGLE_RTOL)


@pytest.mark.usefixtures("in_double")
def test_own_inputs_do_not_reach_the_modulation(setup):
    problem, table, flat = setup(widths=(2, 1, 3))
    rows, _ = draw_rows(problem.n_rows)
    before = joint.forward(table, flat, rows).bend
    for j, own in enumerate(table.own):
        inputs = table.inputs.clone()
        inputs[:, own] += 1.0
        after = joint.forward(replace(table, inputs=inputs), flat, rows).bend
        moved = (after - before).abs().amax((0, 2))
        assert moved[j] < MASK_ATOL
        others = [k for k in range(len(moved)) if k != j]
        assert (moved[others] > 1e-3).all()


def start_of(problem, flat, n_folds=3):
    """Members that leave out a third of the rows each."""
    fold = torch.arange(problem.n_rows) % n_folds
    out = torch.stack([(fold == k).double() for k in range(len(flat))])
    n_params = problem.spec.n_params
    return JointStart(
        coef=flat[:, n_params:-1],
        intercept=flat[:, -1],
        params=flat[:, :n_params],
        train=1 - out,
        held_out=out,
        seeds=tuple(range(len(flat))),
    )


def ridge_of(problem, size=1e-3):
    return torch.full((problem.n_terms,), size, dtype=torch.float64)


@pytest.mark.usefixtures("in_double")
def test_members_together_are_members_alone(setup):
    problem, table, flat = setup(n_rows=60)
    start, ridge = start_of(problem, flat), ridge_of(problem)
    options = JointOptions(batch_size=8, max_passes=4)
    together = train_jointly(table, start, ridge, options)
    for k in range(3):
        alone = train_jointly(table, start.take([k]), ridge, options)
        for name in ("coef", "intercept", "params", "loss"):
            found, expected = getattr(together, name)[k], getattr(alone, name)[0]
            torch.testing.assert_close(
                found, expected, rtol=TOGETHER_RTOL, atol=TOGETHER_RTOL
            )
        assert together.n_passes[k] == alone.n_passes[0]


def held_out_loss(problem, state, start, active):
    """Mean loss of the rows that a member leaves out, by the model written down."""
    flat = torch.cat([state.params, state.coef, state.intercept.unsqueeze(1)], dim=1)
    rows = torch.arange(problem.n_rows).expand(len(flat), -1)
    loss = problem.family.loss(problem.y, plain_eta(problem, active, flat, rows))
    return (loss * start.held_out).sum(1) / start.held_out.sum(1)


@pytest.mark.parametrize("rate", [5e-3, 10.0], ids=["improves", "only gets worse"])
@pytest.mark.usefixtures("in_double")
def test_state_that_is_kept_has_the_loss_that_is_reported(rate, setup):
    """Where training makes held-out rows worse the start is kept."""
    problem, table, flat = setup(n_rows=60)
    start = start_of(problem, flat)
    before = held_out_loss(problem, start, start, table.active)
    options = JointOptions(batch_size=8, max_passes=6, learning_rate=rate)
    state = train_jointly(table, start, ridge_of(problem), options)
    after = held_out_loss(problem, state, start, table.active)
    torch.testing.assert_close(after, state.loss, rtol=1e-9, atol=1e-12)
    assert (after <= before).all()
    if rate == 10.0:
        assert torch.equal(state.coef, start.coef)
    else:
        assert (after < before).all()


@pytest.mark.usefixtures("in_double")
@pytest.mark.slow
def test_more_passes_never_end_in_a_worse_state(setup):
    """The schedule is that of all passes; patience alone ends earlier."""
    problem, table, flat = setup(n_rows=60)
    start, ridge = start_of(problem, flat), ridge_of(problem)
    how = {"patience": 40, "least_patience": 40, "learning_rate": 0.02}
    options = JointOptions(8, 40, more_cycles=0, **how)
    long = train_jointly(table, start, ridge, options)
    short = train_jointly(table, start, ridge, replace(options, patience=2))
    assert (long.loss <= short.loss).all()
    assert (short.n_passes <= long.n_passes).all()
    assert (long.n_passes == 40).all()


@pytest.mark.usefixtures("in_double")
@pytest.mark.slow
def test_members_that_gain_until_the_end_go_through_longer_cycles(setup):
    """Of 4, 8 and 16 passes; those that stand still, or leave much, do not."""
    problem, table, flat = setup(n_rows=90)
    start, ridge = start_of(problem, flat), ridge_of(problem)
    how = {"learning_rate": 1e-3, "patience": 100, "quiet_share": math.inf}
    options = JointOptions(8, 4, more_cycles=0, **how)
    once, twice, more = (
        train_jointly(table, start, ridge, replace(options, more_cycles=count))
        for count in range(3)
    )
    assert set(once.n_passes.tolist()) == {4}
    assert set(twice.n_passes.tolist()) == {12}
    assert max(more.n_passes.tolist()) == 28
    assert (more.loss <= twice.loss).all()
    assert (twice.loss < once.loss).all()
    fast = replace(options, learning_rate=10.0, more_cycles=2, least_patience=100)
    assert (train_jointly(table, start, ridge, fast).n_passes == 4).all()
    noisy = replace(options, more_cycles=2, quiet_share=0.01)
    assert (train_jointly(table, start, ridge, noisy).n_passes == 4).all()


def test_members_that_gained_for_long_may_pause_for_long():
    options = JointOptions(patience=15, least_patience=5, patience_share=0.6)
    best = torch.tensor([0.0, 10.0, 20.0, 100.0])
    for stale, going in ((4, 0b1111), (5, 0b1110), (11, 0b1100), (14, 0b1000), (15, 0)):
        late = torch.full_like(best, stale)
        state = joint.Descent(best.unsqueeze(1), best, late, best + late)
        found = state.going(options).tolist()
        assert found == [bool(going >> k & 1) for k in range(4)], stale


def test_members_that_stop_together_keep_the_pass_of_the_least_total_loss(
    setup, in_double, monkeypatch
):
    """Total over rows held out: a member with more of them counts for more."""
    problem, table, flat = setup(n_rows=90)
    start = start_of(problem, flat)
    held_out = start.held_out * torch.tensor([[1.0], [1.0], [5.0]])
    start = replace(start, held_out=held_out)
    passes, measure = [], joint.held_out_loss

    def watch(table, flat, *rows):
        passes.append((flat.clone(), measure(table, flat, *rows)))
        return passes[-1][1]

    monkeypatch.setattr(joint, "held_out_loss", watch)
    together = JointOptions(
        batch_size=16,
        max_passes=25,
        more_cycles=0,
        learning_rate=0.1,
        patience=8,
        least_patience=8,
        common_stop=True,
    )
    kept = train_jointly(table, start, ridge_of(problem), together)
    losses = torch.stack([loss for _, loss in passes])
    total = losses @ held_out.sum(1)
    best = int(total.argmin())
    # Something is at stake: members alone, and the plain mean, would stop elsewhere.
    assert len(set(losses.argmin(0).tolist()) | {best}) > 1
    assert torch.equal(kept.loss, losses[best])
    assert torch.equal(joint.join_parameters(kept), passes[best][0])
    assert len(set(kept.n_passes.tolist())) == 1
    assert len(passes) - 1 == min(25, best + 8) == int(kept.n_passes[0])


def test_training_learns_a_bend(make_problem):
    """The first feature of the problem is bent by the last one."""
    problem = make_problem(n_rows=600, hidden=(8, 8))
    table = JointTable.of(problem, torch.arange(4))
    params = start_networks(problem.spec, [0])
    flat = torch.cat([params, params.new_zeros(1, 5)], dim=1)
    start, options = start_of(problem, flat), JointOptions(64, 60, learning_rate=0.02)
    state = train_jointly(table, start, ridge_of(problem, 1e-4), options)
    train = start.train[0] > 0
    ones = torch.cat([problem.terms, torch.ones(600, 1)], dim=1).double()
    line = torch.linalg.lstsq(ones[train], problem.y[train]).solution
    straight = (problem.y - ones @ line)[~train].square().mean() / 2
    assert state.loss[0] < 0.7 * straight  # noise alone is .045, the line has .1


def test_no_pass_begins_after_the_deadline(setup):
    problem, table, flat = setup(n_rows=60)
    start = start_of(problem, flat)
    late = JointOptions(batch_size=8, deadline=time.monotonic())
    state = train_jointly(table, start, ridge_of(problem), late)
    assert (state.n_passes == 0).all()
    torch.testing.assert_close(state.coef, start.coef, rtol=1e-6, atol=0)
    torch.testing.assert_close(state.params, start.params, rtol=1e-6, atol=0)


@pytest.mark.parametrize("plan", [joint.plan_pass, joint.plan_recorded_pass])
def test_every_row_is_shown_once_in_a_pass_with_its_weight(plan, setup):
    problem, _, flat = setup(n_rows=50)
    start = start_of(problem, flat, n_folds=4)
    weight = start.train * torch.linspace(0.5, 2.0, 50).double()
    order = joint.RowOrder.of(weight, start.seeds, batch_size=8)
    spec = problem.spec
    muon = joint.Muon(flat, spec, spec.n_params, JointOptions(), order.n_steps)
    seen = torch.zeros(3, 50)
    sizes = []

    def watch(at, rows, share, _noise):
        seen.scatter_add_(1, rows, share)
        sizes.append(int((share[0] > 0).sum()))
        return torch.zeros_like(at)

    plan(muon, order, flat.clone(), watch)()
    expected = weight / weight.sum(1, keepdim=True) * order.n_steps
    torch.testing.assert_close(seen, expected.float(), rtol=1e-5, atol=1e-7)
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == order.n_steps


@pytest.mark.usefixtures("in_double")
def test_steps_that_can_be_recorded_are_the_same_steps(setup, monkeypatch):
    problem, table, flat = setup(n_rows=61)
    start, ridge = start_of(problem, flat), ridge_of(problem)
    options = JointOptions(8, 4, more_cycles=0, learning_rate=0.05)
    expected = train_jointly(table, start, ridge, options)
    monkeypatch.setattr(joint, "plan_pass", joint.plan_recorded_pass)
    found = train_jointly(table, start, ridge, options)
    for name in ("coef", "intercept", "params", "loss"):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9
        )


@pytest.mark.slow
@pytest.mark.usefixtures("in_double")
def test_members_that_stand_still_leave_the_others_as_they_are(setup):
    problem, table, flat = setup(n_rows=60)
    start, ridge = start_of(problem, flat), ridge_of(problem)
    options = JointOptions(batch_size=8, max_passes=30, patience=1, learning_rate=0.05)
    found = train_jointly(table, start, ridge, options)
    assert len(found.n_passes.unique()) > 1
    for k in range(len(found.loss)):
        alone = train_jointly(table, start.take([k]), ridge, options)
        for name in ("coef", "intercept", "params", "loss", "n_passes"):
            torch.testing.assert_close(
                getattr(found.take([k]), name),
                getattr(alone, name),
                rtol=1e-7,
                atol=1e-9,
            )


def test_networks_begin_without_output_and_with_a_seed_each(make_problem):
    spec = make_problem(widths=(2, 1, 3)).spec
    both = start_networks(spec, [3, 4])
    assert torch.equal(both[1:], start_networks(spec, [4]))
    assert not torch.equal(both[0], both[1])
    weights = unpack(spec, both)
    assert (weights.out == 0).all()
    assert (weights.first != 0).all()
