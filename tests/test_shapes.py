"""Likelihoods are those of other libraries, and what is learned is where they peak."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import gamma, nbinom, poisson
from statsmodels.genmod.families import Tweedie

from sknimo.shapes import (
    OVERDISPERSION_RANGE,
    POWER_RANGE,
    learn_overdispersion,
    learn_power,
    negative_binomial_log_likelihood,
    tweedie_log_likelihood,
)

N_ROWS = 400
EXACT = 1e-12  # the same sums in another order
WRIGHT = 1e-5  # digits of scipy's Wright function where it changes its method
MANY = 2e-3  # a saddlepoint where more than a hundred amounts are likely
FOUND = 1e-4  # where the general optimiser stops


def as_tensors(*arrays):
    return [torch.as_tensor(array, dtype=torch.float64) for array in arrays]


@pytest.fixture(scope="module")
def mean():
    return np.exp(0.5 + 0.7 * np.random.default_rng(0).normal(size=N_ROWS))


def draw_amounts(mean, power, dispersion, seed=1):
    rng = np.random.default_rng(seed)
    number = rng.poisson(mean ** (2 - power) / (dispersion * (2 - power)))
    shape = (2 - power) / (power - 1)
    scale = dispersion * (power - 1) * mean ** (power - 1)
    return rng.gamma(np.maximum(number, 1) * shape) * scale * (number > 0)


@pytest.mark.parametrize("k", [1e-4, 0.3, 5.0])
def test_counts_have_the_probabilities_of_scipy(k, mean):
    y = np.arange(N_ROWS) % 30.0
    found = negative_binomial_log_likelihood(*as_tensors(y, mean), k)
    expected = nbinom.logpmf(y, 1 / k, 1 / (1 + k * mean))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("power", "dispersion", "tol"),
    [(1.2, 2.0, WRIGHT), (1.5, 1.5, EXACT), (1.9, 3.0, EXACT), (1.5, 0.02, MANY)],
)
def test_amounts_have_the_densities_of_statsmodels(power, dispersion, tol, mean):
    y = draw_amounts(mean, power, dispersion)
    found = tweedie_log_likelihood(*as_tensors(y, mean, power, dispersion))
    family = Tweedie(var_power=power, eql=False)
    expected = family.loglike_obs(y, mean, scale=dispersion)
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)


def test_amounts_are_a_poisson_number_of_gamma_amounts(mean):
    power, dispersion = 1.2, 2.0
    y = draw_amounts(mean, power, dispersion)
    j = np.arange(1, 200)[:, None]
    chance = poisson.pmf(j, mean**0.8 / (dispersion * 0.8))
    amounts = gamma.pdf(y, 4 * j, scale=dispersion * 0.2 * mean**0.2)
    found = tweedie_log_likelihood(*as_tensors(y, mean, power, dispersion)).exp()
    some = y > 0
    expected = (chance * amounts).sum(axis=0)
    np.testing.assert_allclose(found[some], expected[some], rtol=1e-11)


def test_overdispersion_is_the_likeliest(mean):
    rng = np.random.default_rng(2)
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, N_ROWS)).astype(float)
    weight = rng.uniform(0.5, 2.0, N_ROWS)

    def cost(log_k):
        k = np.exp(log_k[0])
        return -weight @ nbinom.logpmf(y, 1 / k, 1 / (1 + k * mean))

    expected = np.exp(minimize(cost, [0.0], method="Nelder-Mead", tol=1e-10).x[0])
    found = learn_overdispersion(*as_tensors(y, mean, weight))
    assert found == pytest.approx(expected, rel=1e-6)
    assert 0.3 < found < 0.8  # the truth is 0.5


def test_counts_that_vary_less_than_poisson_have_none(mean):
    y = np.round(mean)
    found = learn_overdispersion(*as_tensors(y, mean, np.ones(N_ROWS)))
    assert found == pytest.approx(OVERDISPERSION_RANGE[0])


@pytest.mark.parametrize(
    ("power", "dispersion"),
    [pytest.param(1.3, 1.0, marks=pytest.mark.slow), (1.7, 2.0)],
)
def test_power_is_the_likeliest(power, dispersion, mean):
    y = draw_amounts(mean, power, dispersion)
    weight = np.random.default_rng(3).uniform(0.5, 2.0, N_ROWS)

    def cost(at):
        low, high = POWER_RANGE
        if not low < at[0] < high:
            return np.inf
        family = Tweedie(var_power=at[0], eql=False)
        return -weight @ family.loglike_obs(y, mean, scale=np.exp(at[1]))

    expected = minimize(cost, [1.5, 0.0], method="Nelder-Mead", tol=1e-9).x[0]
    found = learn_power(*as_tensors(y, mean, weight))
    assert found == pytest.approx(expected, abs=FOUND)
    assert found == pytest.approx(power, abs=0.1)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_power_does_not_depend_on_the_unit(scale, mean):
    y = draw_amounts(mean, 1.6, 1.5)
    at_one = learn_power(*as_tensors(y, mean, np.ones(N_ROWS)))
    found = learn_power(*as_tensors(scale * y, scale * mean, np.ones(N_ROWS)))
    assert found == pytest.approx(at_one, abs=FOUND)


@pytest.mark.slow
@pytest.mark.parametrize("learn", [learn_overdispersion, learn_power])
def test_hopeless_rows_still_lead_to_a_number_in_range(learn, mean):
    low, high = POWER_RANGE if learn is learn_power else OVERDISPERSION_RANGE
    for y in (0 * mean, np.r_[1e6, np.zeros(N_ROWS - 1)], np.full(N_ROWS, 7.0)):
        found = learn(*as_tensors(y, np.full(N_ROWS, 1e-3), np.ones(N_ROWS)))
        assert low * (1 - 1e-9) <= found <= high * (1 + 1e-9)
