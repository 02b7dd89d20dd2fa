"""Penalties: one value, a majoriser above it, and the proximal map that minimises it.

Shapes: K models, p features, q columns.
"""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from sknimo import NIMORegressor, load
from sknimo.penalties import CoefPenalty, Penalty, make_penalty, shrink_groups

RTOL = 1e-12  # float64, closed forms on both sides
STEP = 1e-6
FD_RTOL = 1e-8  # central differences of a smooth function of order one
GRID = 0.005  # spacing of the brute-force search; the minimiser lies within one cell
ABOVE = 1e-12  # rounding allowed where the majoriser touches

POWERS = (2.0, 1.0, 0.5, 0.3)
EVERY_POWER = pytest.mark.parametrize("power", POWERS)
# Three features with one, two and three columns, out of order.
OWNER = (1, 0, 2, 1, 2, 2)


@pytest.fixture
def make_power():
    """Two models of a grouped penalty that differ in strength and prices."""

    def make(power, strength=(0.3, 1.2), owner=OWNER):
        p = max(owner) + 1
        weight = torch.linspace(0.5, 1.5, len(strength) * p, dtype=torch.float64)
        return CoefPenalty(
            torch.tensor(strength, dtype=torch.float64),
            power,
            weight.reshape(len(strength), p),
            torch.tensor(owner),
        )

    return make


def random_coef(n_models=2, n_columns=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_models, n_columns, generator=generator, dtype=torch.float64)


def naive_value(penalty, coef):
    """The definition, one model and one feature at a time."""
    owner = penalty.column_feature.tolist()
    total = []
    for k, row in enumerate(coef.numpy()):
        size = [
            np.linalg.norm([b for b, o in zip(row, owner, strict=True) if o == j])
            for j in range(penalty.weight.shape[1])
        ]
        prices = penalty.weight[k].numpy()
        total.append(
            penalty.strength[k].item() * prices @ np.power(size, penalty.power)
        )
    return torch.tensor(np.array(total))


@EVERY_POWER
def test_value_is_the_definition(power, make_power):
    penalty, coef = make_power(power), random_coef()
    torch.testing.assert_close(
        penalty.value(coef), naive_value(penalty, coef), rtol=RTOL, atol=0
    )


@EVERY_POWER
def test_slope_is_the_derivative_of_the_value_in_the_norm(power, make_power):
    penalty = make_power(power, owner=(0, 1, 2))
    coef = random_coef(n_columns=3).abs() + 0.1
    slope = penalty.slope(penalty.norm(coef))
    for j in range(3):
        step = torch.zeros_like(coef)
        step[:, j] = STEP
        rise = penalty.value(coef + step) - penalty.value(coef - step)
        torch.testing.assert_close(
            slope[:, j], rise / (2 * STEP), rtol=FD_RTOL, atol=1e-9
        )


@EVERY_POWER
def test_majoriser_touches_at_its_point_and_lies_above_elsewhere(power, make_power):
    penalty, at = make_power(power), random_coef()
    ridge = penalty.ridge(at, floor=0.0)
    value = penalty.value(at)

    def majoriser(coef):
        return value + (ridge * (coef.square() - at.square())).sum(-1) / 2

    assert (majoriser(at) - value).abs().max() <= ABOVE
    for seed in range(200):
        size = 10.0 ** (seed % 5 - 3)
        coef = at + size * random_coef(seed=seed + 1)
        assert (majoriser(coef) >= penalty.value(coef) - ABOVE).all()
    # Tangent as well: along the way to zero both fall at the same rate.
    near = (1 - STEP) * at
    gap = (majoriser(near) - penalty.value(near)) / STEP
    assert gap.abs().max() <= 1e-4


@EVERY_POWER
def test_floor_keeps_the_ridge_of_a_dead_feature_finite(power, make_power):
    penalty = make_power(power)
    coef = random_coef()
    coef[:, penalty.column_feature == 2] = 0.0
    ridge = penalty.ridge(coef, floor=1e-4)
    assert torch.isfinite(ridge).all()
    price = penalty.strength * penalty.weight[:, 2] * power
    dead = ridge[:, penalty.column_feature == 2]
    expected = (price * 1e-4 ** (power - 2)).unsqueeze(-1).expand_as(dead)
    torch.testing.assert_close(dead, expected, rtol=RTOL, atol=0)


@EVERY_POWER
@pytest.mark.parametrize("point", [0.02, 0.3, -0.7, 1.1, -1.9])
@pytest.mark.parametrize("strength", [0.02, 0.4, 1.5])
def test_prox_is_the_brute_force_minimiser(power, point, strength, make_power):
    penalty = make_power(power, strength=(strength,), owner=(0,))
    step = torch.tensor([0.8], dtype=torch.float64)
    grid = torch.arange(-2.5, 2.5, 1e-4, dtype=torch.float64).unsqueeze(-1)

    def objective(coef):
        price = step * penalty.strength * penalty.weight[0]
        return (coef - point).square() / 2 + price * coef.abs() ** power

    coef = penalty.prox(torch.tensor([[point]], dtype=torch.float64), step)
    lowest = objective(grid).min()
    # The zero of the grid misses zero itself by rounding, hence the second candidate.
    lowest = torch.minimum(lowest, torch.tensor(point**2 / 2, dtype=torch.float64))
    assert objective(coef).item() <= lowest.item() + 1e-15


@EVERY_POWER
@pytest.mark.parametrize("point", [(0.1, -0.2), (0.9, -0.4), (-1.2, 1.0)])
def test_prox_of_a_group_is_the_brute_force_minimiser(power, point, make_power):
    penalty = make_power(power, strength=(0.5,), owner=(0, 0))
    step = torch.tensor([0.7], dtype=torch.float64)
    axis = torch.arange(-320, 321, dtype=torch.float64) * GRID
    grid = torch.cartesian_prod(axis, axis)
    at = torch.tensor([point], dtype=torch.float64)

    def objective(coef):
        price = step * penalty.strength * penalty.weight[0]
        norm = coef.square().sum(-1).sqrt()
        return (coef - at).square().sum(-1) / 2 + price * norm**power

    coef = penalty.prox(at, step)
    values = objective(grid)
    assert objective(coef).item() <= values.min().item() + 1e-15
    assert (coef - grid[values.argmin()]).abs().max() <= GRID


@pytest.mark.parametrize("power", [0.5, 0.3])
def test_prox_below_one_is_stationary_and_jumps_at_its_threshold(power, make_power):
    penalty = make_power(power, strength=(0.4,), owner=tuple(range(400)))
    points = torch.linspace(0.01, 3, 400, dtype=torch.float64).unsqueeze(0)
    step = torch.ones(1, dtype=torch.float64)
    coef = penalty.prox(points, step)
    price = penalty.strength * penalty.weight
    on = coef > 0
    assert 0 < on.sum() < 400
    stationary = coef - points + price * power * coef ** (power - 1)
    assert stationary[on].abs().max() <= RTOL
    # The smallest survivor keeps at least the knee, below which no minimum exists.
    knee = (2 * price * (1 - power)) ** (1 / (2 - power))
    assert (coef[on] >= knee[on] * (1 - RTOL)).all()


@pytest.mark.parametrize("power", [1.0, 0.5, 0.3])
def test_prox_sets_small_groups_to_exact_zeros_as_a_whole(power, make_power):
    penalty = make_power(power)
    coef = random_coef()
    small = penalty.column_feature == 2
    coef[:, small] *= 1e-3
    result = penalty.prox(coef, torch.full((2,), 0.1, dtype=torch.float64))
    assert (result[:, small] == 0).all()
    assert (result[0, ~small] != 0).all()


@EVERY_POWER
def test_prox_keeps_the_direction_of_every_feature(power, make_power):
    penalty, coef = make_power(power), random_coef()
    result = penalty.prox(coef, torch.full((2,), 0.05, dtype=torch.float64))
    ratio = result / coef
    for j in range(3):
        own = ratio[:, penalty.column_feature == j]
        torch.testing.assert_close(own, own[:, :1].expand_as(own), rtol=RTOL, atol=0)
        assert ((own >= 0) & (own < 1)).all()


def test_prox_of_zero_is_zero_not_nan(make_power):
    for power in POWERS:
        zero = torch.zeros(2, len(OWNER), dtype=torch.float64)
        result = make_power(power).prox(zero, torch.ones(2, dtype=torch.float64))
        assert (result == 0).all()


def test_public_names_state_their_conventions():
    alpha = torch.tensor([0.3], dtype=torch.float64)
    owner = torch.tensor([0, 1, 1, 1, 1])
    coef = torch.tensor([[2.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)

    def value(name, delta=1.0):
        return make_penalty(name, alpha, owner, 2, delta).value(coef).item()

    assert value("ridge") == pytest.approx(0.3 / 2 * (4 + 4), rel=RTOL)
    # A feature of four columns is priced at sqrt(4); its norm is 2.
    assert value("lasso") == pytest.approx(0.3 * (2 + 2 * 2), rel=RTOL)
    assert value("sub_l1", delta=1.0) == pytest.approx(value("lasso"), rel=RTOL)
    half = 0.3 * (2**0.5 + 2 * 2**0.5)
    assert value("sub_l1", delta=1 / 3) == pytest.approx(half, rel=RTOL)


def test_unknown_penalty_lists_the_known():
    alpha, owner = torch.ones(1), torch.tensor([0])
    with pytest.raises(ValueError, match="'ridge', 'lasso', 'sub_l1', got 'l0'"):
        make_penalty("l0", alpha, owner, 1)
    for delta in (0.0, 1.5):
        with pytest.raises(ValueError, match="delta must lie in"):
            make_penalty("sub_l1", alpha, owner, 1, delta)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, X[:, 0] * (1 + np.tanh(X[:, 1])) + 0.3 * rng.normal(size=80)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "power"), [("ridge", 2.0), ("lasso", 1.0), ("sub_l1", 2 * 0.3 / 1.3)]
)
def test_a_name_and_its_record_lead_to_the_same_fit(name, power, table):
    X, y = table
    plain = NIMORegressor(penalty=name, delta=0.3, max_iter=20, random_state=0)
    record = clone(plain).set_params(penalty=Penalty(power), delta=0.7)
    assert record.penalty == Penalty(power)
    assert np.array_equal(record.fit(X, y).coef_, plain.fit(X, y).coef_)


@pytest.mark.parametrize("power", [0.0, -1.0, 1.5, 3.0, np.nan])
def test_a_power_without_a_proximal_map_is_refused(power):
    with pytest.raises(ValueError, match=r"power must lie in \(0, 1\] or be 2, got"):
        Penalty(power)


def test_a_file_keeps_the_penalties_that_have_a_name(table, tmp_path):
    for given, loaded in ((Penalty(2.0), "ridge"), (Penalty(0.5), "lasso")):
        est = NIMORegressor(penalty=given, max_iter=0, random_state=0).fit(*table)
        est.save(tmp_path / "model.sknimo")
        # A penalty of one's own is an object, which comes back as the default.
        assert load(tmp_path / "model.sknimo").penalty == loaded


def test_what_is_no_penalty_is_refused_with_the_options(table):
    with pytest.raises(ValueError, match="'sub_l1', got 0.5. Or give a Penalty."):
        NIMORegressor(penalty=0.5).fit(*table)


def test_taking_members_keeps_their_own_penalties(make_power):
    penalty, coef = make_power(0.5), random_coef()
    second = penalty.take(torch.tensor([1]))
    assert torch.equal(second.value(coef[1:]), penalty.value(coef)[1:])


def test_group_shrinkage_is_the_closed_form():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 4, 6, generator=generator, dtype=torch.float64)
    amount = torch.tensor([0.5, 2.0], dtype=torch.float64)
    result = shrink_groups(weight, torch.tensor(OWNER), 3, amount)
    for k in range(2):
        for j in range(3):
            own = [c for c, feature in enumerate(OWNER) if feature == j]
            norm = np.linalg.norm(weight[k][:, own].numpy())
            factor = max(0.0, 1 - amount[k].item() / norm)
            np.testing.assert_allclose(
                result[k][:, own], factor * weight[k][:, own], rtol=RTOL, atol=0
            )


def test_group_shrinkage_ends_in_exact_zeros_of_whole_groups():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(1, 4, 6, generator=generator, dtype=torch.float64)
    norm = weight[0][:, [2, 4, 5]].norm()
    just_enough = (norm * (1 + 1e-12)).reshape(1)
    result = shrink_groups(weight, torch.tensor(OWNER), 3, just_enough)
    assert (result[0][:, [2, 4, 5]] == 0).all()
    not_enough = (norm * (1 - 1e-6)).reshape(1)
    result = shrink_groups(weight, torch.tensor(OWNER), 3, not_enough)
    assert (result[0][:, [2, 4, 5]] != 0).all()


def test_no_shrinkage_leaves_weights_alone_and_zero_groups_at_zero():
    weight = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    weight[:, :, 1] = 0.0
    none = torch.zeros(1)
    assert torch.equal(shrink_groups(weight, torch.tensor(OWNER), 3, none), weight)
    some = shrink_groups(weight, torch.tensor(OWNER), 3, torch.full((1,), 0.1))
    assert (some[:, :, 1] == 0).all()
