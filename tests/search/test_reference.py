"""Views of a table: around the mean, or around another point."""

import numpy as np
import pytest
import torch

from sknimo.features import FeatureOptions, fit_features
from sknimo.search import movable_reference
from sknimo.search._runner import View, lines_alone, straight_columns


@pytest.fixture
def view(make_task):
    """A table around its mean."""
    task = make_task()
    return View(task.problem, movable_reference(task.features, task.table))


AWAY = torch.tensor([0.2, 0.0, -0.1, 0.0], dtype=torch.float64)


def test_another_point_is_another_view_and_the_first_stays_as_it_was(view):
    terms, name = view.problem.terms.clone(), view.name
    moved = view.around(AWAY)
    assert moved is not view
    assert torch.equal(view.problem.terms, terms)
    assert (view.distance, view.features, view.has_moved) == (None, None, False)
    assert view.name == name
    assert moved.has_moved
    assert moved.name != name


def test_a_view_has_its_terms_around_its_point(view):
    moved = view.around(AWAY)
    expected = view.problem.terms - AWAY
    torch.testing.assert_close(moved.problem.terms, expected, rtol=0, atol=1e-12)
    mean = view.reference.features
    at = mean.reference + AWAY.numpy() * mean.scale
    assert moved.features.reference == pytest.approx(at)


def test_distances_are_from_the_mean_however_often_it_moves(view):
    once, twice = view.around(AWAY), view.around(2 * AWAY).around(AWAY)
    assert torch.equal(once.problem.terms, twice.problem.terms)
    assert once.name == twice.name


def test_only_lines_through_several_values_move():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(50, 5))
    table[:, 1] = table[:, 1] > 0  # two values: its mode is the reference
    table[:, 2] = 7.0
    table[:, 4] = table[:, 4] * 1e-3 + 1e13  # a float cannot hold its mean
    with pytest.warns(UserWarning, match="Constant column"):
        features = fit_features(
            table,
            list("abcde"),
            np.ones(50),
            (None,) * 5,
            FeatureOptions(basis={"d": "spline"}),
        )
    assert movable_reference(features, table).movable.tolist() == [True] + [False] * 4


def test_a_feature_whose_curve_is_left_out_can_move(make_task):
    task = make_task(basis={"x0": "spline"})
    curved = View(task.problem, movable_reference(task.features, task.table))
    assert not curved.reference.movable[0]
    lines = lines_alone(curved)
    assert lines.reference.movable.all() and lines.name != curved.name
    kept = straight_columns(task.problem)
    assert torch.equal(lines.problem.terms, task.problem.terms[:, kept])
    assert lines.features.terms(task.table) == pytest.approx(lines.problem.terms)
    moved = lines.around(AWAY)
    expected = lines.problem.terms - AWAY
    torch.testing.assert_close(moved.problem.terms, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.slow
def test_curves_that_were_found_leave_where_lines_can_move_and_explain_more(
    make_task, keeps
):
    """The centre of the bend is off the mean of a feature with a curve."""
    task = make_task(off=2.0, noise=0.01, basis={"x0": "spline"})
    out = task.search(moves=True, keeps=keeps, max_iter=60)
    assert (out.problem.n_terms == 4) == (not keeps)
    if not keeps:
        assert out.features.reference[0] == pytest.approx(2 / np.sqrt(80), abs=0.1)
