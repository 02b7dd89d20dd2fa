"""Pairs and triples that act together are seen in what additive models leave.

Shapes: n rows, p features.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm

from sknimo.families import get_family
from sknimo.features import FeatureOptions, fit_features
from sknimo.network import make_spec
from sknimo.search._pairs import _cut, _pairs, _triples, find_bends
from sknimo.search._verdict import HeldOut
from sknimo.solver import Problem
from sknimo.training import state_columns

P = 4


def make_rows(seed, n=600):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P))
    x[:, 3] = rng.integers(0, 2, n)  # two values
    return rng, x


def said(x, y, family="gaussian", level=0.2, eta=None):
    """What is said of targets whose additive model is an intercept, or `eta`."""
    n = len(y)
    names, ones = [f"x{j}" for j in range(P)], np.ones(n)
    features = fit_features(x, names, ones, (None,) * P, FeatureOptions())
    problem = Problem(
        columns=state_columns(features, x),
        term_feature=torch.as_tensor(features.term_feature),
        term_group=torch.as_tensor(features.term_group),
        y=torch.as_tensor(y).double(),
        offset=torch.zeros(n).double(),
        family=get_family(family),
        spec=make_spec(features.input_feature.tolist(), P, (2, 2)),
    )
    eta = np.zeros(n) if eta is None else eta
    held_out = HeldOut(np.arange(n), np.zeros(n, int), np.ones(n), eta, eta, eta)
    return find_bends(problem, held_out, level)


def dummies(codes):
    return (codes[:, None] == np.unique(codes)).astype(float)


def test_pairs_are_compared_by_the_drop_of_squares_that_their_cells_bring():
    rng, x = make_rows(0)
    parts = _cut(torch.as_tensor(x), 3)
    score = rng.normal(size=len(x))
    least = 1.0
    for j, k in combinations(range(P), 2):
        a, b = dummies(parts[:, j].numpy()), dummies(parts[:, k].numpy())
        cells = (a[:, :, None] * b[:, None]).reshape(len(x), -1)
        squares = [
            np.sum((score - m @ np.linalg.lstsq(m, score, rcond=None)[0]) ** 2)
            for m in (np.hstack([a, b]), cells)
        ]
        free = (a.shape[1] - 1) * (b.shape[1] - 1)
        least = min(least, chi2.sf(squares[0] - squares[1], free))
    size = torch.ones(len(x)).double()
    found, count = _pairs(parts, torch.as_tensor(score), size)
    assert count == 6
    assert found == pytest.approx(least, rel=1e-3)


def test_triples_are_compared_by_products_of_signs():
    rng, x = make_rows(1)
    halves = _cut(torch.as_tensor(x), 2)
    score = rng.normal(size=len(x))
    signs = 2 * halves.numpy() - 1.0
    most = max(
        abs(score @ signs[:, list(three)].prod(1))
        for three in combinations(range(P), 3)
    )
    size = torch.ones(len(x)).double()
    found, count = _triples(halves.double(), torch.as_tensor(score), size)
    assert count == 4
    assert found == pytest.approx(2 * norm.sf(most / len(x) ** 0.5), rel=1e-6)


def test_equal_values_share_a_part():
    values = torch.tensor([0.0, 0, 0, 0, 0, 0, 1, 2, 3])[:, None].double()
    parts = _cut(values, 3).squeeze(1)
    assert len(parts[:6].unique()) == 1
    assert parts[6] > parts[0]
    for rare in (0.0, 1.0):
        two = torch.full((9, 1), 1 - rare).double()
        two[4] = rare
        assert len(_cut(two, 3).unique()) == 2


def test_noise_is_taken_for_bends_no_oftener_than_the_level_says():
    found = [
        said(x, rng.standard_t(5, len(x))) for rng, x in map(make_rows, range(100))
    ]
    assert np.mean(found) < 0.2 + 2 * 0.04


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda x: x[:, 0] * x[:, 1], id="product"),
        pytest.param(lambda x: np.sin(4 * x[:, 0]) * (x[:, 3] - 0.5), id="wave"),
        pytest.param(lambda x: x[:, 0] * x[:, 1] * x[:, 2], id="product-of-three"),
    ],
)
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_features_that_act_together_are_found(act, family):
    found = []
    for seed in range(10):
        rng, x = make_rows(seed, 2_000)
        rise = 0.7 * act(x)
        if family == "gaussian":
            y = rise + rng.normal(size=len(x))
        elif family == "binomial":
            y = rng.random(len(x)) < 1 / (1 + np.exp(-2 * rise))
        else:
            y = rng.poisson(np.exp(np.clip(rise, -3, 2)))
        found.append(said(x, y, family, level=0.05))
    assert np.mean(found) >= 0.9


def test_effects_of_single_features_that_curves_have_left_are_no_bend():
    found = []
    for seed in range(40):
        rng, x = make_rows(seed)
        y = 0.5 * (x[:, 0] > 0) + 0.5 * (x[:, 1] > 1) + rng.normal(size=len(x))
        found.append(said(x, y))
    assert np.mean(found) < 0.2 + 2 * 0.07
