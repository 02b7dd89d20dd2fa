"""A family's derivatives belong to its loss, and its loss is half of the deviance."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    log_loss,
    mean_gamma_deviance,
    mean_poisson_deviance,
    mean_squared_error,
)

from sknimo.families import FAMILIES, get_family

AUTOGRAD_RTOL = 1e-12  # both sides analytic, float64: only the form differs
STEP = 1e-5
FD_RTOL = 1e-7  # central differences: truncation STEP**2, rounding eps / STEP
DEVIANCE_RTOL = 1e-12  # the same sums in another order
ROUNDING = 1e-14  # a perfect fit: terms of order one cancel

EVERY_FAMILY = pytest.mark.parametrize("name", list(FAMILIES))
TARGETS = {
    "gaussian": (-2.0, 0.0, 0.7, 30.0),
    "binomial": (0.0, 0.25, 0.5, 1.0),
    "poisson": (0.0, 1.0, 2.5, 30.0),
    "gamma": (1e-3, 1.0, 2.5, 30.0),
}
SKLEARN_DEVIANCE = {
    "gaussian": mean_squared_error,
    "binomial": lambda y, mu: 2 * log_loss(y, mu),
    "poisson": mean_poisson_deviance,
    "gamma": mean_gamma_deviance,
}


def grid(name):
    """Every target against every linear predictor, as two flat tensors."""
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    eta = torch.linspace(-4, 4, 17, dtype=torch.float64)
    pairs = torch.cartesian_prod(y, eta)
    return pairs[:, 0], pairs[:, 1]


def derivative(function, y, eta):
    eta = eta.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(function(y, eta).sum(), eta)
    return slope


@EVERY_FAMILY
def test_score_is_minus_the_slope_of_the_loss(name):
    family, (y, eta) = get_family(name), grid(name)
    slope = derivative(family.loss, y, eta)
    torch.testing.assert_close(
        family.score(y, eta), -slope, rtol=AUTOGRAD_RTOL, atol=ROUNDING
    )


@EVERY_FAMILY
def test_score_agrees_with_central_differences(name):
    family, (y, eta) = get_family(name), grid(name)
    rise = family.loss(y, eta + STEP) - family.loss(y, eta - STEP)
    score = family.score(y, eta)
    scale = family.loss(y, eta).abs().max()
    assert (score + rise / (2 * STEP)).abs().max() <= FD_RTOL * scale


@EVERY_FAMILY
def test_curvature_is_minus_the_slope_of_the_score(name):
    family, (y, eta) = get_family(name), grid(name)
    slope = derivative(family.score, y, eta)
    curvature = family.curvature(y, eta)
    torch.testing.assert_close(curvature, -slope, rtol=AUTOGRAD_RTOL, atol=ROUNDING)
    assert (curvature >= 0).all()


@EVERY_FAMILY
def test_loss_is_half_of_the_deviance_of_sklearn(name):
    rng = np.random.default_rng(0)
    eta = rng.normal(size=50)
    y = rng.choice([value for value in TARGETS[name] if value % 1 == 0], size=50)
    family = get_family(name)
    mu = family.mean(torch.as_tensor(eta)).numpy()
    expected = SKLEARN_DEVIANCE[name](y, mu) / 2
    loss = family.loss(torch.as_tensor(y), torch.as_tensor(eta)).mean().item()
    assert loss == pytest.approx(expected, rel=DEVIANCE_RTOL)


@EVERY_FAMILY
def test_saturated_fit_costs_nothing_and_anything_else_costs(name):
    family = get_family(name)
    inside = [value for value in TARGETS[name] if 0 < value < 1 or name != "binomial"]
    y = torch.tensor(inside, dtype=torch.float64)
    y = y[y > 0] if family.link == "log" else y
    saturated = family.link_function(y)
    scale = 1 + y.abs() * (1 + saturated.abs())
    assert (family.loss(y, saturated).abs() <= ROUNDING * scale).all()
    assert (family.loss(y, saturated + 0.1) > 1e-4).all()
    assert (family.loss(y, saturated - 0.1) > 1e-4).all()


@EVERY_FAMILY
def test_link_inverts_mean(name):
    family = get_family(name)
    eta = torch.linspace(-3, 3, 13, dtype=torch.float64)
    torch.testing.assert_close(
        family.link_function(family.mean(eta)), eta, rtol=1e-12, atol=1e-12
    )


# The largest |eta| at which the cost itself still is a float64, on either side.
@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("gaussian", -1e100, 1e100),
        ("binomial", -1e300, 1e300),
        ("poisson", -1e300, 700.0),
        ("gamma", -700.0, 1e300),
    ],
)
def test_extreme_linear_predictors_stay_finite(name, lowest, highest):
    family = get_family(name)
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    for value in (lowest, highest):
        eta = torch.full_like(y, value)
        for function in (family.loss, family.score, family.curvature):
            assert torch.isfinite(function(y, eta)).all()
        assert (family.loss(y, eta) >= 0).all()
        assert not torch.isnan(family.mean(eta)).any()


@pytest.mark.parametrize(("name", "eta"), [("poisson", 1e4), ("gamma", -1e4)])
def test_overflow_is_infinite_never_nan(name, eta):
    family = get_family(name)
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    loss = family.loss(y, torch.full_like(y, eta))
    assert torch.isposinf(loss).all()


def test_binomial_tails_are_exact():
    family = get_family("binomial")
    one, eta = torch.ones(1), torch.tensor([50.0], dtype=torch.float64)
    assert family.loss(one, -eta).item() == pytest.approx(50.0, rel=1e-15)
    assert family.loss(one, eta).item() == pytest.approx(0.0, abs=1e-20)
    assert family.curvature(one, eta).item() == pytest.approx(np.exp(-50), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("gaussian", [-5.0, 0.0], [np.inf, np.nan]),
        ("binomial", [0.0, 0.3, 1.0], [-0.1, 1.1, np.nan]),
        ("poisson", [0.0, 3.0], [-1.0, np.inf, np.nan]),
        ("gamma", [0.1, 3.0], [0.0, -1.0, np.inf, np.nan]),
    ],
)
def test_domain_tells_possible_targets_from_impossible(name, inside, outside):
    family = get_family(name)
    assert family.in_domain(torch.tensor(inside)).all()
    assert not family.in_domain(torch.tensor(outside)).any()


@EVERY_FAMILY
def test_copies_are_the_same_record(name):
    family = get_family(name)
    assert pickle.loads(pickle.dumps(family)) is family
    assert copy.deepcopy(family) is family


def test_unknown_family_lists_the_known():
    with pytest.raises(ValueError, match="'gaussian'.*'gamma', got 'tweedie'"):
        get_family("tweedie")


def test_only_the_gaussian_target_may_be_rescaled():
    assert [name for name in FAMILIES if get_family(name).scaled_target] == ["gaussian"]
