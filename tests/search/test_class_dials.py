"""The mix of models of several classes, against every mix in steps."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from sknimo.search._class_dials import (
    BENDS,
    CURVES,
    LINES,
    STRAIGHT,
    ClassHeldOut,
    best_share,
    judge,
)

N_STEPS = 8
N_ROWS, N_CLASSES = 60, 3


@pytest.fixture(scope="module", params=range(2))
def held_out(request):
    """Noisy copies of the truth: a mix of them is better than each."""
    rng = np.random.default_rng(request.param)
    truth = rng.integers(0, N_CLASSES, N_ROWS)
    signal = 1.5 * np.eye(N_CLASSES)[truth]
    eta = signal + rng.normal(size=(4, N_ROWS, N_CLASSES)) * [
        [[1]],
        [[2]],
        [[1]],
        [[1]],
    ]
    rows = torch.arange(N_ROWS)
    weight = torch.as_tensor(rng.uniform(0.5, 2.0, N_ROWS))
    every = torch.as_tensor(eta), tuple(range(4))
    return ClassHeldOut(rows, rows % 2, weight, torch.as_tensor(truth), *every)


@pytest.mark.parametrize(
    "kinds", [{CURVES, LINES}, {CURVES, LINES, STRAIGHT}, {CURVES, LINES, BENDS}]
)
def test_no_mix_in_steps_is_better(held_out, kinds):
    found = best_share(held_out, kinds, torch.zeros(4).double(), N_STEPS).numpy()
    weight, truth = held_out.weight.numpy(), held_out.truth.numpy()

    def loss(share):
        chance = log_softmax(np.tensordot(share, held_out.eta.numpy(), 1), axis=1)
        return -np.average(chance[np.arange(N_ROWS), truth], weights=weight)

    grid = np.array(list(product(range(N_STEPS + 1), repeat=4))) / N_STEPS
    allowed = np.isin(range(4), [*kinds]) | (grid == 0)
    mixes = grid[(grid.sum(1) == 1) & allowed.all(1)]
    assert loss(found) == pytest.approx(min(map(loss, mixes)), abs=1e-12)


def test_kinds_that_are_not_there_have_no_weight(held_out):
    part = ClassHeldOut(
        held_out.rows,
        held_out.bag,
        held_out.weight,
        held_out.truth,
        held_out.eta,
        (CURVES, BENDS),
    )
    share = best_share(part, {*range(4)}, torch.zeros(4).double(), N_STEPS)
    assert float(share[LINES]) == float(share[STRAIGHT]) == 0
    assert float(share.sum()) == pytest.approx(1)


def test_relief_draws_the_mix_to_its_kind(held_out):
    none, relief = torch.zeros(4).double(), torch.tensor([0.0, 0, 1, 0]).double()
    shares = [best_share(held_out, {*range(4)}, x, N_STEPS) for x in (none, relief)]
    assert float(shares[1][BENDS]) > float(shares[0][BENDS])


def test_the_gain_is_the_difference_of_brier_scores(held_out):
    better, worse = torch.eye(4).double()[[CURVES, LINES]]
    found = judge(held_out, better, worse)
    truth = np.eye(N_CLASSES)[held_out.truth.numpy()]
    chances = np.exp(log_softmax(held_out.eta.numpy(), axis=2))
    brier = np.average(((chances - truth) ** 2).sum(2), 1, held_out.weight.numpy())
    assert found.gain == pytest.approx(brier[LINES] - brier[CURVES])


def test_rows_of_one_class_have_nothing_to_explain(held_out):
    alone = replace(held_out, truth=torch.zeros_like(held_out.truth))
    better, worse = torch.eye(4).double()[[CURVES, LINES]]
    found = judge(alone, better, worse)
    assert np.isnan([found.r2, found.glm_r2]).all()
    assert np.isfinite(found.gain)
