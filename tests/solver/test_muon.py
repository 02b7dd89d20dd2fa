"""Steps of members: matrices as torch's Muon moves them, the rest as its Adam."""

import math

import pytest
import torch

from sknimo.network import make_spec, unpack
from sknimo.solver import JointOptions
from sknimo.solver import _muon as muon

RATE, N_STEPS, N_PASSES = 1e-2, 10, 100


@pytest.fixture
def spec():
    return make_spec([0, 0, 1, 1, 1, 2, 2, 3], 4, hidden=(5, 6))


@pytest.fixture
def make_muon(spec):
    def make(n_members=3, **options):
        """Networks, four coefficients and an intercept; no warm-up."""
        generator = torch.Generator().manual_seed(1)
        shape = n_members, spec.n_params + 5
        flat = torch.randn(shape, generator=generator, dtype=torch.float64)
        how = {"learning_rate": RATE, "max_passes": N_PASSES, "warm_up": 1e-9}
        joint = JointOptions(**how | options)
        return muon.Muon(flat, spec, spec.n_params, joint, N_STEPS)

    return make


def slopes(like, count):
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(like.shape, generator=generator, dtype=torch.float64)
        for _ in range(count)
    ]


@pytest.mark.parametrize("shape", [(4, 30), (30, 4), (5, 5)])
def test_singular_values_are_moved_by_the_polynomial_alone(shape):
    matrix = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    matrix = matrix.double()
    left, size, right = torch.linalg.svd(matrix, full_matrices=False)
    size = size / size.norm(dim=1, keepdim=True)
    a, b, c = muon.POLYNOMIAL
    for _ in range(muon.ROUNDS):
        size = a * size + b * size**3 + c * size**5
    expected = left @ torch.diag_embed(size) @ right
    torch.testing.assert_close(muon.even_out(matrix), expected, rtol=1e-9, atol=1e-9)
    assert 0.6 < float(size.min()) <= float(size.max()) < 1.3


def test_a_gradient_of_zero_moves_no_matrix():
    assert torch.equal(muon.even_out(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))


def test_matrices_move_as_torch_moves_them(make_muon, spec):
    """Its products are in half precision; one entry is about the size of Adam's."""
    ours = make_muon(n_members=1, weight_decay=0.5)
    start = ours.flat.clone()
    pairs = zip(ours._matrices(start), ("first", "second"), strict=True)
    theirs = {name: torch.nn.Parameter(part[0].clone()) for part, name in pairs}
    optimiser = torch.optim.Muon(
        theirs.values(),
        lr=1.0,
        weight_decay=0.5,
        momentum=muon.MOMENTUM,
        adjust_lr_fn="match_rms_adamw",
    )
    for count, slope in enumerate(slopes(ours.flat, 5), 1):
        pace = ours.pace(count)
        ours.step(slope.clone(), torch.zeros_like(start), pace)
        for matrix, name in zip(ours._matrices(slope), theirs, strict=True):
            theirs[name].grad = matrix[0].clone()
        # Steps are three times those that torch would match to Adam's.
        optimiser.param_groups[0]["lr"] = pace[0] * muon.ENTRY / 0.2
        optimiser.param_groups[0]["weight_decay"] = 0.5 * 0.2 / muon.ENTRY
        optimiser.step()
    for matrix, before, name in zip(
        ours._matrices(ours.flat), ours._matrices(start), theirs, strict=True
    ):
        moved, expected = matrix[0] - before[0], theirs[name].detach() - before[0]
        assert float((moved - expected).norm() / expected.norm()) < 0.02


def test_everything_else_moves_by_adam(make_muon, spec):
    ours = make_muon(weight_decay=0.5)
    theirs = torch.nn.Parameter(ours.flat.clone())
    optimiser = torch.optim.Adam([theirs], lr=RATE)
    decayed = torch.zeros_like(ours.flat)
    decayed[:, : spec.n_params] = 1.0
    for count, slope in enumerate(slopes(ours.flat, 5), 1):
        rate = ours.pace(count)[0]
        with torch.no_grad():
            theirs.mul_(1 - rate * 0.5 * decayed)
        theirs.grad = slope.clone()
        optimiser.param_groups[0]["lr"] = rate
        optimiser.step()
        ours.step(slope.clone(), torch.zeros_like(slope), ours.pace(count))
    matrices = torch.zeros_like(ours.flat).bool()
    for matrix in ours._matrices(matrices):
        matrix[:] = True
    torch.testing.assert_close(ours.flat[~matrices], theirs.detach()[~matrices])
    assert not torch.allclose(ours.flat[matrices], theirs.detach()[matrices])


def test_rate_rises_and_falls_to_nothing(make_muon):
    steps = N_STEPS * N_PASSES
    found = make_muon(warm_up=0.1)
    rates = [found.pace(count)[0] for count in range(1, steps + 1)]
    top = int(torch.tensor(rates).argmax()) + 1
    assert steps * 0.1 <= top <= steps * 0.1 + 1
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    half = found.pace(steps // 2)[0]
    assert half == pytest.approx(RATE * (1 + math.cos(math.pi / 2)) / 2)


def test_the_less_is_left_to_explain_the_less_weights_decay(make_muon, spec):
    ours = make_muon(weight_decay=2.0)
    before = ours.flat.clone()
    ours.noise[:] = torch.tensor([[1.0], [0.5], [0.0]])
    ours.step(torch.zeros_like(before), before.clone(), ours.pace(1))
    rate = ours.pace(1)[0]
    for k, noise in enumerate([1.0, 0.5, 0.0]):
        network, rest = before[k].split([spec.n_params, 5])
        expected = torch.cat([network * (1 - 2 * rate * noise), rest])
        torch.testing.assert_close(ours.flat[k], expected)


def test_some_members_go_on_as_they_would_among_all(make_muon):
    ours, some = make_muon(), torch.tensor([0, 2])
    first, second = slopes(ours.flat, 2)
    ours.step(first.clone(), ours.flat.clone(), ours.pace(1))
    ours.count = 1
    few = ours.take(some)
    ours.step(second.clone(), ours.flat.clone(), ours.pace(2))
    few.step(second[some], few.flat.clone(), few.pace(2))
    torch.testing.assert_close(few.flat, ours.flat[some])


def test_another_cycle_is_twice_as_long_and_begins_anew(make_muon):
    ours = make_muon()
    ours.count = 7
    again = ours.again(ours.flat[:1])
    assert again.options.max_passes == 2 * ours.options.max_passes
    assert again.count == 0
    assert torch.equal(again.flat, ours.flat[:1])


def test_views_of_layers_are_those_of_the_network(make_muon, spec):
    ours = make_muon()
    weights = unpack(spec, ours.flat[:, : spec.n_params])
    for found, expected in zip(
        ours._matrices(ours.flat), (weights.first, weights.second), strict=True
    ):
        assert torch.equal(found, expected)
