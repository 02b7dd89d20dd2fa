"""The number of a family is learned again from what a search has found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import nbinom

from sknimo.families import NEGATIVE_BINOMIAL, negative_binomial
from sknimo.training import learn_again

K = 0.5


@pytest.fixture
def counts(make_problem):
    rng = np.random.default_rng(0)
    problem = make_problem(n_rows=2000)
    eta = rng.normal(0.5, 1.0, 2000)
    y = rng.poisson(np.exp(eta) * rng.gamma(1 / K, K, 2000))
    return problem, eta, y


def given(counts, overdispersion):
    problem, _, y = counts
    family = negative_binomial(overdispersion)
    return replace(problem, y=torch.as_tensor(y, dtype=torch.float64), family=family)


def test_predictions_that_explain_more_leave_less_overdispersion(counts):
    problem, (_, eta, y) = given(counts, 2 * K), counts
    some = np.where(np.arange(len(y)) % 3 > 0, eta, np.nan)  # not all were held out
    found = learn_again(problem, NEGATIVE_BINOMIAL, np.ones(len(y)), some)
    known = ~np.isnan(some)
    mu = np.exp(eta[known])
    best = minimize_scalar(
        lambda k: -nbinom.logpmf(y[known], 1 / k, 1 / (1 + k * mu)).sum(),
        bounds=(0.1, 2),
        method="bounded",
        options={"xatol": 1e-8},
    )
    assert found.family.shape.value == pytest.approx(best.x, abs=1e-5)
    again = learn_again(found, NEGATIVE_BINOMIAL, np.ones(len(y)), some)
    assert again is found  # no news


def test_what_is_given_or_not_held_out_is_kept(counts):
    problem, (_, eta, y) = given(counts, 2 * K), counts
    ones = np.ones(len(y))
    assert learn_again(problem, negative_binomial(2 * K), ones, eta) is problem
    assert learn_again(problem, NEGATIVE_BINOMIAL, ones, None) is problem
