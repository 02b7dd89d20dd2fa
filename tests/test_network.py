"""The masked network: its shortcuts equal the plain computation, its masks are exact.

The plain computation builds every masked input row and walks through the layers one
model, feature and row at a time, as the paper writes them.

Shapes: K models, n rows, r inputs, p features, h1 and h2 hidden units.
"""

import math

import numpy as np
import pytest
import torch

from sknimo import network
from sknimo.network import (
    FEW_OWN_INPUTS,
    MASKED_PRODUCT_INPUTS,
    Modulator,
    binary_code,
    init_params,
    make_spec,
    unpack,
)

ATOL = 1e-13  # float64: only the order of summation differs
REFERENCE_ATOL = 1e-14  # two products that round differently, a few units of order one
N_ROWS = 6

WIDTHS = {
    "few inputs": (1,) * 5,
    "few inputs, groups": (2, 1, 3),
    "many inputs": (1,) * (MASKED_PRODUCT_INPUTS + 3),
    "many inputs, groups": (1, 3, 2) * (MASKED_PRODUCT_INPUTS // 6 + 2),
    "many own inputs": (MASKED_PRODUCT_INPUTS - 20, 1, 30, FEW_OWN_INPUTS + 1),
}
EVERY_WIDTH = pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS.keys())


def spec_of(widths, hidden=(4, 3), **options):
    owner = np.repeat(np.arange(len(widths)), widths)
    return make_spec(owner, len(widths), hidden, **options)


def draw_inputs(spec, n_rows=N_ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (n_rows, len(spec.input_feature))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def all_features(spec, n_models):
    return torch.arange(spec.n_features).expand(n_models, -1)


def build(spec):
    return Modulator.build(spec, torch.device("cpu"), torch.float64)


def plain_modulation(spec, params, inputs, noise=None, mask=True):
    """`g` from explicit masked inputs, (K, n, p)."""
    weights = unpack(spec, params)
    g = np.empty((len(params), len(inputs), spec.n_features))

    def raw(k, z, code, push):
        hidden = weights.first[k].numpy() @ z + weights.code_weight[k].numpy() @ code
        hidden = np.tanh(hidden + weights.bias[k].numpy() + push)
        second = weights.second[k].numpy() @ hidden + weights.second_bias[k].numpy()
        out = weights.out[k].numpy()
        return (out @ code if spec.own_out else out) @ np.sin(second)

    for k in range(len(params)):
        for j in range(spec.n_features):
            code = np.array(spec.code[j])
            for i, row in enumerate(inputs.numpy()):
                own = np.array(spec.input_feature) == j
                z = np.where(own & mask, 0.0, row)
                push = 0.0 if noise is None else noise[i].numpy()
                g[k, i, j] = raw(k, z, code, push) - raw(k, 0 * row, code, 0.0)
    return torch.as_tensor(g)


@EVERY_WIDTH
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("own_out", [False, True], ids=["one output", "own outputs"])
def test_shortcuts_equal_explicit_masked_inputs(widths, exact, own_out, make_params):
    spec = spec_of(widths, own_out=own_out)
    params, inputs = make_params(spec, seeds=(0, 1)), draw_inputs(spec)
    g = build(spec)(params, inputs, all_features(spec, 2), exact=exact)
    expected = plain_modulation(spec, params, inputs)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(g, expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("own_out", [False, True], ids=["one output", "own outputs"])
def test_a_rank_without_rows_has_no_modulation(exact, own_out, make_params):
    spec = spec_of((2, 1, 3), own_out=own_out)
    params, inputs = make_params(spec, seeds=(0, 1)), draw_inputs(spec)[:0]
    g = build(spec)(params, inputs, all_features(spec, 2), exact=exact)
    assert g.shape == (2, 0, 3)


@EVERY_WIDTH
def test_noise_enters_the_rows_first_layer_and_not_the_reference(widths, make_params):
    spec = spec_of(widths)
    params, inputs = make_params(spec), draw_inputs(spec)
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(N_ROWS, 4, generator=generator, dtype=torch.float64)
    noise[0] = 0.0
    active = all_features(spec, 1)
    g = build(spec)(params, inputs, active, noise)
    expected = plain_modulation(spec, params, inputs, noise)
    torch.testing.assert_close(g, expected, rtol=0, atol=ATOL)
    clean = build(spec)(params, inputs, active)
    torch.testing.assert_close(g[:, 0], clean[:, 0], rtol=0, atol=ATOL)
    assert ((g - clean)[:, 1:].abs().amax(-1) > 1e-3).all()


@EVERY_WIDTH
@pytest.mark.parametrize("n_rows", [1, 2, 7, 64])
@pytest.mark.parametrize("hidden", [(4, 3), (16, 16), (1, 1)])
def test_modulation_at_the_reference_is_exactly_zero(
    widths, n_rows, hidden, make_params
):
    spec = spec_of(widths, hidden)
    params = make_params(spec, seeds=(0, 1))
    active = all_features(spec, 2)
    inputs = draw_inputs(spec, n_rows)
    inputs[n_rows // 2] = 0.0
    modulator = build(spec)
    noise = torch.randn(n_rows, hidden[0], generator=torch.Generator().manual_seed(1))
    noise[n_rows // 2] = 0.0
    for push in (None, noise.double()):
        g = modulator(params, inputs, active, push, exact=True)
        assert (g[:, n_rows // 2] == 0).all()
        # In training the rows and the reference are two products of unequal shapes.
        fast = modulator(params, inputs, active, push)
        assert fast[:, n_rows // 2].abs().max() <= REFERENCE_ATOL
        if n_rows > 1:
            assert (g[:, 0] != 0).any()


@EVERY_WIDTH
def test_feature_does_not_reach_its_own_modulation_even_by_rounding(
    widths, make_params
):
    spec = spec_of(widths)
    params = make_params(spec)
    inputs = draw_inputs(spec, 2).requires_grad_(True)
    g = build(spec)(params, inputs, all_features(spec, 1), exact=True)
    owner = torch.tensor(spec.input_feature)
    for j in range(0, spec.n_features, max(1, spec.n_features // 6)):
        (slope,) = torch.autograd.grad(g[0, :, j].sum(), inputs, retain_graph=True)
        assert (slope[:, owner == j] == 0).all()
        assert (slope[:, owner != j] != 0).all()


@EVERY_WIDTH
def test_large_own_values_leave_the_modulation_untouched(widths, make_params):
    spec = spec_of(widths)
    params, inputs = make_params(spec), draw_inputs(spec)
    moved = inputs.clone()
    moved[:, torch.tensor(spec.input_feature) == 1] += 1e6
    modulator, active = build(spec), all_features(spec, 1)
    before = modulator(params, inputs, active, exact=True)
    after = modulator(params, moved, active, exact=True)
    assert torch.equal(before[..., 1], after[..., 1])
    assert (before[..., 0] != after[..., 0]).any()


@EVERY_WIDTH
def test_batched_models_equal_single_models(widths, make_params):
    spec = spec_of(widths)
    params, inputs = make_params(spec, seeds=(0, 1, 2)), draw_inputs(spec)
    # Every model may ask for other features, in another order.
    active = torch.tensor([[0, 1], [2, 0], [1, 2]])
    modulator = build(spec)
    g = modulator(params, inputs, active)
    every = modulator(params, inputs, all_features(spec, 3))
    for k in range(3):
        single = modulator(params[k : k + 1], inputs, active[k : k + 1])
        torch.testing.assert_close(g[k], single[0], rtol=0, atol=ATOL)
        torch.testing.assert_close(g[k], every[k][:, active[k]], rtol=0, atol=ATOL)


def test_many_own_inputs_have_the_gradient_of_masked_weights(make_params, monkeypatch):
    spec = spec_of(WIDTHS["many own inputs"])
    params, inputs = make_params(spec, seeds=(0, 1)), draw_inputs(spec)
    params.requires_grad_(True)
    active = torch.tensor([[3, 0, 1], [2, 0, 3]])
    modulator = build(spec)
    upstream = draw_inputs(spec, 2 * N_ROWS, seed=1)[:, :3].view(2, N_ROWS, 3)

    def gradient(exact=False):
        g = modulator(params, inputs, active, exact=exact)
        return torch.autograd.grad(g, params, upstream)[0]

    short = [gradient(), gradient(exact=True)]
    monkeypatch.setattr(network, "MASKED_PRODUCT_INPUTS", len(spec.input_feature))
    expected = gradient()
    assert expected.abs().max() > 0.1
    for found in short:
        torch.testing.assert_close(found, expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("n_features", [0, 1, 5])
def test_masked_weights_of_some_features_at_a_time_change_nothing(
    n_features, make_params, monkeypatch
):
    spec = spec_of(WIDTHS["many inputs, groups"])
    params, inputs = make_params(spec, seeds=(0, 1)), draw_inputs(spec)
    modulator, active = build(spec), all_features(spec, 2)
    whole = modulator(params, inputs, active, exact=True)
    n_bytes = n_features * unpack(spec, params).first.nbytes
    monkeypatch.setattr(network, "MASKED_BYTES", n_bytes)
    parts = modulator(params, inputs, active, exact=True)
    torch.testing.assert_close(parts, whole, rtol=0, atol=ATOL)


def test_start_bends_nothing():
    spec = spec_of((1, 2, 1))
    params = init_params(spec, seeds=(0, 1))
    weights = unpack(spec, params)
    assert (weights.out == 0).all()
    for name in ("first", "code_weight", "bias", "second", "second_bias"):
        assert (getattr(weights, name) != 0).all()
    g = build(spec)(params, draw_inputs(spec), all_features(spec, 2))
    assert (g == 0).all()


def test_start_depends_on_the_seed_alone():
    spec = spec_of((1, 2, 1))
    both = init_params(spec, seeds=(3, 8))
    assert torch.equal(both[1:], init_params(spec, seeds=(8,)))
    assert torch.equal(both.flip(0), init_params(spec, seeds=(8, 3)))
    assert not torch.equal(both[0], both[1])


def test_start_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    init_params(spec_of((1, 1)), seeds=(0,))
    assert torch.equal(before, torch.get_rng_state())


def test_start_stays_within_its_bounds():
    spec = spec_of((1,) * 30, hidden=(64, 64))
    weights = unpack(spec, init_params(spec, seeds=(0,)))
    bound = 1 / math.sqrt(30 + 5)
    assert 0.9 * bound < weights.first.abs().max() <= bound
    assert 0.9 / 8 < weights.second.abs().max() <= 1 / 8


def test_blocks_share_the_memory_of_the_flat_weights():
    spec = spec_of((1, 2))
    params = torch.zeros(2, spec.n_params, dtype=torch.float64)
    weights = unpack(spec, params)
    for name, shape in spec.shapes.items():
        block = getattr(weights, name)
        assert block.shape == (2, *shape)
        block.add_(1)
    assert (params == 1).all()


def test_own_columns_list_every_column_once():
    spec = make_spec([1, 0, 2, 1, 1], 3, (2, 2))
    assert spec.own_columns().tolist() == [[1, 5, 5], [0, 3, 4], [2, 5, 5]]


def test_binary_code_counts_from_one():
    assert binary_code(5) == (
        (1.0, 0.0, 0.0),
        (0.0, 1.0, 0.0),
        (1.0, 1.0, 0.0),
        (0.0, 0.0, 1.0),
        (1.0, 0.0, 1.0),
    )
    assert len(set(binary_code(40))) == 40


def test_without_mask_a_feature_sees_itself(make_params):
    spec = spec_of((1, 2, 1), mask=False)
    params, inputs = make_params(spec), draw_inputs(spec).requires_grad_(True)
    g = build(spec)(params, inputs, all_features(spec, 1))
    expected = plain_modulation(spec, params, inputs.detach(), mask=False)
    torch.testing.assert_close(g.detach(), expected, rtol=0, atol=ATOL)
    (slope,) = torch.autograd.grad(g[..., 0].sum(), inputs)
    assert (slope[:, 0] != 0).all()


def test_without_code_features_differ_by_their_masks_alone(make_params):
    spec = spec_of((1, 1, 1), code="none")
    assert spec.shapes["code_weight"] == (4, 0)
    params, inputs = make_params(spec), draw_inputs(spec)
    inputs[:, 1] = inputs[:, 0]
    active = all_features(spec, 1)
    g = build(spec)(params, inputs, active)
    expected = plain_modulation(spec, params, inputs)
    torch.testing.assert_close(g, expected, rtol=0, atol=ATOL)
    weights = unpack(spec, params)
    weights.first[:, :, 1] = weights.first[:, :, 0]
    g = build(spec)(params, inputs, active)
    torch.testing.assert_close(g[..., 0], g[..., 1], rtol=0, atol=ATOL)
    assert (g[..., 0] - g[..., 2]).abs().max() > 1e-3


def test_without_code_and_mask_every_feature_has_the_same_modulation(make_params):
    spec = spec_of((1, 2, 1), code="none", mask=False)
    params, inputs = make_params(spec), draw_inputs(spec)
    g = build(spec)(params, inputs, all_features(spec, 1))
    torch.testing.assert_close(g, g[..., :1].expand_as(g), rtol=0, atol=ATOL)
    coded = spec_of((1, 2, 1), mask=False)
    params = make_params(coded)
    g = build(coded)(params, inputs, all_features(coded, 1))
    assert (g - g[..., :1]).abs().max() > 1e-3


def test_unknown_code_lists_the_known():
    with pytest.raises(ValueError, match="'binary', 'none', got 'onehot'"):
        make_spec([0], 1, (2, 2), code="onehot")
