"""Lines, curves or both: held-out rows decide, and the average is one model.

Shapes: n rows, m rows held out, q terms, p features.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sknimo.search import Settings
from sknimo.search._runner import View, straight_columns, without_curves
from sknimo.search._verdict import (
    Exploration,
    HeldOut,
    average,
    decide,
    glm_member,
    judge,
    make_choices,
)
from sknimo.solver import Coefficients

N_ROWS = 60


@pytest.fixture
def explore(make_problem):
    """A finished exploration whose members predict `eta` of the rows held out.

    States are told apart by their intercepts.
    """

    def explored(
        agreed=None, loose=None, glm=None, name=1.0, curved=True, held_out=True
    ):
        problem = make_problem(n_rows=N_ROWS, widths=(1, 2, 1))
        p, q = problem.spec.n_features, problem.n_terms
        if curved:  # the second column of the second feature is a curve
            group = problem.term_feature.clone()
            group[2] += p
            problem = replace(problem, term_group=group)
        state = SimpleNamespace(
            coef=torch.ones(q).double(),
            intercept=torch.tensor(name).double(),
            params=torch.zeros(problem.spec.n_params).double(),
            support=torch.ones(p, dtype=torch.bool),
            input_support=torch.ones(p, dtype=torch.bool),
        )
        off = problem.y.numpy() + 1.0 if glm is None else glm
        rows = np.arange(N_ROWS)
        held = HeldOut(
            rows,
            rows % 3,
            np.ones(N_ROWS),
            off,
            off if agreed is None else agreed,
            off if loose is None else loose,
        )
        pools = [[] if eta is None else [state] for eta in (agreed, loose)]
        at = Coefficients(torch.ones(1, q).double(), torch.zeros(1).double())
        held = held if held_out else None
        return Exploration(View(problem), None, None, *pools, at, held)

    return explored


@pytest.fixture
def y(make_problem):
    return make_problem(n_rows=N_ROWS, widths=(1, 2, 1)).y.numpy()


def names(members):
    return members.intercept.tolist()


def choose(curved, straight=None, n_members=10):
    """Decide where every row weighs the same: members, verdict and predictions."""
    settings = Settings(n_members=n_members)
    found = decide(curved, straight, settings, np.ones(N_ROWS))
    return found.choice and found.choice.members, found.verdict, found.eta


class TestDecide:
    def test_a_network_that_predicts_held_out_rows_is_returned(self, explore, y):
        members, verdict, eta = choose(explore(agreed=y + 0.1))
        assert names(members) == [1.0]
        assert np.array_equal(eta, y + 0.1)
        assert verdict.keeps_network

    def test_a_network_that_does_not_is_not(self, explore, y):
        fit = explore(agreed=y + 1.1)
        members, verdict, eta = choose(fit)
        assert members is None
        assert eta is fit.held_out.glm
        assert verdict.gain < 0

    def test_without_a_network_there_is_nothing_to_judge(self, explore):
        fit = explore()
        members, verdict, eta = choose(fit, explore())
        assert members is None and verdict is None
        assert eta is fit.held_out.glm

    def test_without_time_the_evidence_decides(self, explore, y):
        members, verdict, eta = choose(explore(agreed=y + 9, held_out=False))
        assert names(members) == [1.0]
        assert verdict is None and eta is None

    def test_errors_that_cancel_call_for_the_average(self, explore, y):
        noise = 0.3 * np.random.default_rng(0).normal(size=N_ROWS)
        curved = explore(agreed=y + noise)
        lines = explore(agreed=y - noise, name=2.0, curved=False)
        members, _, _ = choose(curved, straighten(lines))
        assert names(members) == [1.0, 2.0]

    @pytest.mark.parametrize("better", ["curves", "lines"])
    def test_a_kind_that_is_clearly_better_is_returned_alone(self, better, explore, y):
        """The average with a kind that fails would be worse than the other alone."""
        good, bad = y + 0.01, y + 0.5
        curved, lines = (good, bad) if better == "curves" else (bad, good)
        fit = explore(agreed=curved)
        other = straighten(explore(agreed=lines, name=2.0))
        members, _, _ = choose(fit, other)
        assert names(members) == [1.0 if better == "curves" else 2.0]

    def test_restarts_within_supports_of_their_own_must_be_better(self, explore, y):
        better = explore(agreed=y + 0.2, loose=y + 0.1)
        worse = explore(agreed=y + 0.1, loose=y + 0.2)
        for fit, pool in ((better, "loose"), (worse, "agreed")):
            _, verdict, eta = choose(fit)
            expected = judge(
                fit.view.problem,
                fit.held_out,
                getattr(fit.held_out, pool),
                np.ones(N_ROWS),
            )
            assert verdict.gain == expected.gain
            assert eta is getattr(fit.held_out, pool)

    def test_one_member_is_never_an_average(self, explore, y):
        fit = explore(agreed=y + 0.1)
        other = straighten(explore(agreed=y - 0.1, name=2.0))
        members, _, _ = choose(fit, other, n_members=1)
        assert len(members.coef) == 1

    def test_a_curved_glm_joins_where_only_lines_have_a_network(self, explore, y):
        fit = explore(glm=y + 0.3)
        other = straighten(explore(agreed=y - 0.3, name=2.0))
        members, _, _ = choose(fit, other)
        assert names(members) == [0.0, 2.0]
        assert not members.modulated[0].any()


def straighten(fit):
    """The same members without the coefficient of the curve."""
    kept = straight_columns(fit.view.problem)
    for state in (*fit.agreed, *fit.loose):
        state.coef = state.coef[:-1] if len(kept) == len(state.coef) else state.coef
    return fit


class TestChoices:
    def test_both_kinds_weigh_the_same_whatever_their_numbers(self, explore, y):
        choice = explore(agreed=y).choice("agreed")

        def times(count, name):
            members = choice.members
            tensors = {
                field: getattr(members, field).repeat_interleave(count, 0)
                for field in ("coef", "params", "modulated", "scale", "of_bags")
            }
            intercept = torch.full((count,), name).double()
            return replace(
                choice, members=replace(members, **tensors, intercept=intercept)
            )

        few, many = times(2, 1.0), times(7, 2.0)
        assert names(average(few, many, 10).members) == [1.0] * 5 + [2.0] * 5
        assert names(average(few, few, 10).members) == [1.0] * 4

    def test_a_straight_member_has_no_curves(self, explore, y):
        fit = explore(agreed=y)
        other = straighten(explore(agreed=y, name=2.0))
        lines = make_choices(fit, other, "agreed", 10)[-1]
        assert lines.members.coef.tolist() == [[1.0, 1.0, 0.0, 1.0]]

    def test_a_glm_is_a_member_without_a_network(self, explore):
        problem = explore().view.problem
        at = Coefficients(torch.tensor([[2.0, 3.0]]), torch.tensor([1.0]))
        member = glm_member(problem, at)
        assert member.coef.tolist() == [[2.0, 3.0]]
        assert member.intercept.tolist() == [1.0]
        assert not member.modulated.any()
        assert not member.params.any()

    def test_curves_leave_and_all_else_stays(self, explore):
        view = explore().view
        lines = without_curves(view).problem
        kept = straight_columns(view.problem)
        assert kept.tolist() == [True, True, False, True]
        assert torch.equal(lines.terms, view.problem.terms[:, kept])
        assert torch.equal(lines.inputs, view.problem.inputs)
        assert lines.term_feature.tolist() == [0, 1, 2]

    def test_a_view_without_curves_has_a_name_of_its_own(self, explore):
        """Or tasks of the one would be taken for tasks of the other."""
        view = explore().view
        assert without_curves(view).name != view.name
