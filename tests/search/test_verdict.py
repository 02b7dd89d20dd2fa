"""Held-out rows decide between the network and the nested GLM: the parts of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import KFold, LeaveOneOut, ShuffleSplit

import sknimo.search._verdict as verdict_module
from sknimo.search import Settings, Verdict
from sknimo.search._runner import Crewed, View
from sknimo.search._verdict import eta_losses, merge_folds
from sknimo.training import Fold

SETTINGS = Settings()
N_ROWS = 60


def verdict(gain, error, glm_loss=1.0):
    glm = np.full(3, glm_loss)
    return Verdict(glm - gain, glm, gain, error)


def test_the_simpler_model_wins_when_they_cannot_be_told_apart():
    assert not verdict(gain=0.0, error=0.0).keeps_network
    assert not verdict(gain=-0.5, error=0.01).keeps_network
    tiny = 0.9 * SETTINGS.tiny_gain
    assert not verdict(gain=tiny, error=1.01 * tiny).keeps_network
    assert verdict(gain=tiny, error=0.99 * tiny).keeps_network
    assert verdict(gain=1.1 * SETTINGS.tiny_gain, error=1.0).keeps_network
    assert not verdict(gain=np.nan, error=1.0).keeps_network


@pytest.mark.parametrize(
    ("gains", "goal", "tried", "kept"),
    [
        ([50.0, 90.0], 40.0, 1, 0),  # the first will do
        ([1.0, 90.0, 99.0], 40.0, 2, 1),  # it failed: the next
        ([1.0, 5.0, 3.0], 40.0, 3, 1),  # all failed: the best of them
    ],
)
def test_a_start_that_fails_on_a_fold_is_followed_by_the_next_best(
    gains, goal, tried, kept, make_problem, make_state, make_runner
):
    problem = make_problem()
    state, asked = make_state(problem), []

    def crews(view, stage, tries, options):
        asked.append(tries[0].start)
        return [replace(state, log_evidence=gains[each.start] - 7.0) for each in tries]

    runner = make_runner(problem)
    runner.crews = crews
    n_rows = problem.n_rows
    linear = Crewed((replace(state, log_evidence=-7.0),))
    runner.map = lambda kind, *args: [linear]
    ones = torch.ones(1, n_rows).double()
    judged = verdict_module._Folds(runner, View(problem), ones, [None], None)
    starts = list(range(len(gains)))
    (found,) = judged.first_success(starts, goal / n_rows)
    assert asked == starts[:tried]
    assert found.log_evidence == gains[kept] - 7.0


@pytest.mark.parametrize(
    ("cv", "n_folds"),
    [
        (KFold(3), 3),
        (KFold(10), 5),
        (LeaveOneOut(), 5),
        (ShuffleSplit(12, test_size=0.2, random_state=0), 4),
        (ShuffleSplit(1, random_state=0), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_many_folds_are_held_out_together(cv, n_folds):
    X = np.zeros((N_ROWS, 1))
    folds = []
    for train, test in cv.split(X):
        inside, outside = np.zeros(N_ROWS), np.zeros(N_ROWS)
        inside[train], outside[test] = 1, 1
        folds.append(Fold(inside, outside))
    merged = merge_folds(folds, SETTINGS.max_folds)
    assert len(merged) == n_folds
    for fold in merged:
        assert not (fold.train * fold.held_out).any()
        assert fold.held_out.sum() <= max(N_ROWS / 5, folds[0].held_out.sum())
        assert fold.train.sum() >= N_ROWS / 2


@pytest.mark.parametrize("n_rows", [50, 51, 54, 59])
@pytest.mark.parametrize("n_folds", [7, 10, 12])
def test_folds_of_any_size_hold_out_every_row_together(n_rows, n_folds):
    number = np.arange(n_rows) % n_folds
    folds = [Fold(1.0 * (number != k), 1.0 * (number == k)) for k in range(n_folds)]
    merged = merge_folds(folds, SETTINGS.max_folds)
    assert len(merged) <= SETTINGS.max_folds
    assert np.array_equal(sum(fold.held_out for fold in merged), np.ones(n_rows))


def test_too_much_certainty_about_one_row_does_not_outweigh_the_rest(make_problem):
    """Classes are judged by squared error of the probability."""
    problem = make_problem("binomial", n_rows=50)
    side = 2 * problem.y - 1
    bold, timid = 20 * side, 0.1 * side
    bold[0] *= -1  # certain, and wrong
    rows = np.arange(50)
    losses = [eta_losses(problem, rows, eta.numpy()).mean() for eta in (bold, timid)]
    assert losses[0] == pytest.approx(1 / 50, abs=1e-6)
    assert losses[0] < losses[1] < 0.25
    deviance = [
        problem.family.loss(problem.y, eta).mean() for eta in (bold, 0.5 * timid)
    ]
    assert deviance[0] > 0.39  # a fiftieth of 20: the deviance is near log 2


def test_an_overflow_on_a_held_out_row_is_a_loss_and_not_a_number(make_problem):
    problem = make_problem("poisson", n_rows=4)
    eta = torch.tensor([0.0, 1e4, torch.nan, 0.0], dtype=torch.float64)
    losses = eta_losses(problem, np.arange(4), eta.numpy())
    assert np.isfinite(losses).all()
    assert (losses[1:3] > 1e20).all()
