"""Which restarts join the average, and what most of them agree on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import sknimo.search._restarts as restarts_module
from sknimo.search import Settings
from sknimo.search._restarts import (
    Selection,
    _Relaxed,
    _until_agreed,
    choose_members,
    first_starts,
    keep_stable,
    loose_members,
)
from sknimo.search._runner import Restart, View
from sknimo.solver import Coefficients, EvidenceOptions

SETTINGS = Settings()


@pytest.fixture
def select(make_problem, make_state, make_start, make_runner):
    """A finished selection with the given log evidences; the linear fit has zero.

    Restarts are told apart by their coefficients.
    """

    def select(evidences, seeds=None, n_members=6, family="gaussian"):
        problem = make_problem(family=family)
        state, view = make_state(problem), View(problem)
        restarts = [
            Restart(
                make_start(seed),
                replace(state, log_evidence=value, coef=state.coef * (k + 1)),
                view,
            )
            for k, (value, seed) in enumerate(
                zip(evidences, seeds or [0] * len(evidences), strict=True)
            )
        ]
        linear = replace(state, log_evidence=0.0)
        runner = make_runner(problem, n_members=n_members)
        return runner, Selection(restarts, linear, view)

    return select


def chosen(members):
    """Numbers of the restarts, in their order."""
    return [int(state.coef[0]) - 1 for state in members]


def test_failed_restarts_are_left_out(select):
    just, not_quite = 100 * SETTINGS.member_share, 100 * SETTINGS.member_share - 1e-6
    members = choose_members(*select([not_quite, 100.0, just, -50.0, 99.0]))
    assert chosen(members) == [1, 4, 2]


def test_no_more_than_asked_for_join_the_best_first(select):
    evidences = [100.0, 99.0, 101.0, 98.0]
    assert chosen(choose_members(*select(evidences, n_members=2))) == [2, 0]
    assert chosen(choose_members(*select(evidences, n_members=1))) == [2]


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_network_that_does_not_earn_its_keep_has_no_members(select, family):
    """Two classes that can almost be told apart have evidence for anything."""
    binary = family == "binomial"
    least = SETTINGS.class_margin if binary else SETTINGS.evidence_margin
    for members in (choose_members, loose_members):
        assert members(*select([-10.0, least - 1e-6], family=family)) == []
        assert members(*select([], family=family)) == []
        assert len(members(*select([-10.0, least], family=family))) == 1


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_members_of_two_classes_keep_which_features_they_find_to_bend(
    family, select, monkeypatch
):
    """A selected feature that bends others in one restart does so in the average."""

    def restrict_all(runner, view, states, within, always):
        return [
            replace(state, input_support=state.input_support & other.input_support)
            for state, other in zip(states, within, strict=True)
        ]

    monkeypatch.setattr(restarts_module, "refit_all", restrict_all)
    runner, found = select([100.0, 99.0, 98.0], family=family, seeds=(1, 2, 3))
    others, last = found.restarts[:2], found.restarts[2]
    selected = torch.tensor([True, False, True, False])
    state = replace(last.state, input_support=selected)
    found = replace(found, restarts=[*others, replace(last, state=state)])
    members = choose_members(runner, found)
    kept = [state.input_support for state in members]
    every = torch.ones(4) > 0
    usual = every if family == "binomial" else selected
    assert [x.tolist() for x in kept] == [x.tolist() for x in (usual, usual, selected)]


def test_a_selection_that_costs_evidence_keeps_members_of_its_own(select):
    """Features that bring little each may bring much together."""
    assert chosen(choose_members(*select([100.0, 90.0, 50.0]))) == [0, 1]


def test_restarts_that_are_barred_neither_lead_nor_join(select):
    runner, found = select([100.0, 120.0, 90.0, 95.0])
    found = replace(found, n_barred=2)
    assert found.best_index == 3
    assert chosen(choose_members(runner, found)) == [3, 2]


def test_loose_members_keep_the_supports_that_they_found(select):
    runner, found = select([100.0, 90.0, 60.0, 80.0], seeds=(1, 2, 3, 1))
    few = torch.tensor([True, False, True, True])
    first, *others = found.restarts
    first = replace(first, state=replace(first.state, support=few))
    found = replace(found, restarts=[first, *others])
    members = loose_members(runner, found)
    assert chosen(members) == [0, 1]  # one per seed, without the failure
    assert torch.equal(members[0].support, few)
    again = found.loose_starts(2)
    assert [start.seed for start in again] == [1, 2]
    assert torch.equal(again[0].support, few)
    for rule in ("1se", "stability"):  # for fewer features, not for all of them again
        runner.settings = replace(runner.settings, rule=rule)
        assert loose_members(runner, found) == []


def test_the_best_restarts_are_named_once_each(select):
    """The simplified best has the seed of the restart that it came from."""
    _, found = select([5.0, 9.0, 7.0, 8.0], seeds=(1, 2, 3, 2))
    few = torch.tensor([True, False, True, True])
    *others, last = found.restarts
    last = replace(last, state=replace(last.state, support=few))
    best = replace(found, restarts=[*others, last]).best_starts(2)
    assert [start.seed for start in best] == [2, 3]
    for start in best:  # within the selected supports
        assert torch.equal(start.support, few)


@pytest.fixture
def vote(make_problem, make_state, make_start, make_runner):
    """What is left of a state when `(features, inputs, evidence, shown)` have voted."""

    def vote(votes):
        problem = make_problem()
        state, view = make_state(problem), View(problem)
        restarts = []
        for features, inputs, evidence, shown in votes:
            support, reads = torch.zeros(4).bool(), torch.zeros(4).bool()
            support[features], reads[inputs] = True, True
            fitted = replace(
                state, support=support, input_support=reads, log_evidence=evidence
            )
            restarts.append(Restart(make_start(shown=shown), fitted, view))
        runner = make_runner(problem, max_iter=1)
        return state, keep_stable(runner, view, state, restarts, floor=0.0)

    return vote


ALL, FIRST_THREE = (True,) * 4, (True, True, True, False)


def test_what_few_restarts_keep_is_dropped(vote):
    """Feature 1 in three of six, feature 3 in four of five; input 2 in one."""
    _, kept = vote(
        [
            ([0, 1, 2, 3], [1, 2, 3], 100.0, ALL),
            ([0, 1, 2, 3], [1, 3], 100.0, ALL),
            ([0, 1, 2, 3], [1, 3], 100.0, ALL),
            ([0, 2, 3], [1, 3], 100.0, ALL),
            ([0, 2], [1, 3], 100.0, ALL),
            ([1], [2], 10.0, ALL),  # failed: has no say
            ([0, 2], [1], 100.0, FIRST_THREE),  # none on feature 3 either
        ]
    )
    assert kept.support.tolist() == [True, False, True, True]
    assert kept.input_support.tolist() == [False, True, False, True]
    assert kept.coef[1] == 0


def test_where_every_restart_failed_nobody_votes(vote):
    """Below the GLM: nothing is stable, and nothing is dropped."""
    state, kept = vote([([0], [1], -10.0, ALL), ([2], [3], -20.0, ALL)])
    assert kept is state


class TestWidened:
    """Restarts in which what acts may bend, and what bends may act."""

    ACTS, BENDS = [True, True, False, False], [True, False, True, False]
    EITHER = [True, True, True, False]

    @pytest.fixture
    def widen(self, make_problem, make_state, make_start, make_runner, monkeypatch):
        """The result for a selection of evidence 50 and restarts of that given."""

        def widen(evidence, acts=self.ACTS, bends=self.BENDS):
            problem = make_problem()
            state, view, tried = make_state(problem), View(problem), []

            def run(starts, at):
                tried.extend(starts)
                if evidence is None:  # time is up
                    return []
                done = replace(state, log_evidence=evidence)
                return [Restart(start, done, view) for start in starts]

            runner = make_runner(problem)
            monkeypatch.setattr(runner, "run", lambda view, *how: run(*how))
            monkeypatch.setattr(
                runner, "call", lambda view, name, work, state, how: state
            )
            acts, bends = (torch.tensor(kept) for kept in (acts, bends))
            chosen = replace(
                state, support=acts, input_support=bends, log_evidence=50.0
            )
            relaxed = _Relaxed(runner, None, np.random.RandomState(0), 0.0)
            best = relaxed._widened(Restart(make_start(), chosen, view))
            return best.log_evidence, tried, relaxed.done

        return widen

    @pytest.mark.parametrize(("evidence", "expected"), [(49.0, 50.0), (51.0, 51.0)])
    def test_the_better_one_is_kept(self, widen, evidence, expected):
        assert widen(evidence)[0] == expected

    def test_restarts_may_use_all_that_acts_or_bends_for_both(self, widen):
        tried = widen(49.0)[1]
        assert len(tried) == SETTINGS.n_starts // 2
        for start in tried:
            assert start.support.tolist() == self.EITHER
            assert start.input_support.tolist() == self.EITHER

    def test_they_may_join_the_average(self, widen):
        _, tried, done = widen(49.0)
        assert [each.start for each in done] == tried

    def test_others_follow_within_what_the_better_one_keeps(self, widen):
        """Those before have other supports, and would leave few members."""
        _, tried, done = widen(51.0)
        assert len(tried) > SETTINGS.n_starts // 2
        assert [each.start for each in done] == tried
        assert all(start.support.all() for start in tried[SETTINGS.n_starts // 2 :])

    def test_without_time_there_is_nothing_to_choose_from(self, widen):
        assert widen(None)[0] == 50.0

    def test_where_all_does_both_there_are_none(self, widen):
        best, tried, _ = widen(51.0, self.ACTS, self.ACTS)
        assert (best, tried) == (50.0, [])


class TestAgreed:
    """Features that restarts within the same supports can mostly do without."""

    MARGIN = EvidenceOptions().feature_margin

    @pytest.fixture
    def agree(self, make_problem, make_state, make_start, make_runner, monkeypatch):
        """Features that stay where the second of four is worth this to restarts.

        It is worth a hundred to the best one.
        """

        def agree(costs, family="gaussian", shown=(True,) * 4, tried=(1,)):
            problem = make_problem(family=family)
            state = replace(make_state(problem), log_evidence=200.0)
            view, runner = View(problem), make_runner(problem)

            def refit(view, states, options):
                return [
                    each
                    if each.support[1]
                    else replace(each, log_evidence=each.log_evidence - cost)
                    for each, cost in zip(states, costs, strict=False)  # or none
                ]

            monkeypatch.setattr(runner, "refit", refit)
            monkeypatch.setattr(
                restarts_module, "weak_features", lambda *_: list(tried)
            )
            relaxed = _Relaxed(runner, None, np.random.RandomState(0), 0.0)
            relaxed.done = [
                Restart(make_start(k, shown), replace(state, log_evidence=190.0), view)
                for k in range(len(costs))
            ]
            best = relaxed._agreed(Restart(make_start(), state, view))
            return best.state.support.tolist()

        return agree

    def test_the_luckiest_restarts_do_not_decide(self, agree):
        assert agree([100.0, 0.0, -1.0, 100.0, 1.0, 2.0]) == [True, False, True, True]

    def test_what_most_of_them_need_stays(self, agree):
        assert all(agree([self.MARGIN + 0.1] * 4 + [-100.0] * 2))

    def test_less_is_enough_where_the_dispersion_is_known(self, agree):
        part = (SETTINGS.known_dispersion_share + 1) / 2 * self.MARGIN
        assert all(agree([part] * 6, family="binomial"))
        assert not all(agree([part] * 6))

    def test_restarts_that_were_not_shown_it_have_no_say(self, agree):
        assert not all(agree([0.0] * 6))
        assert all(agree([0.0] * 6, shown=(True, False, True, True)))

    def test_a_few_are_no_jury(self, agree):
        assert all(agree([0.0] * (SETTINGS.n_jurors - 1)))

    def test_what_is_strong_is_not_tried(self, agree):
        assert all(agree([0.0] * 6, tried=()))


class TestStages:
    """Which restarts come first, and when the others are spared."""

    @pytest.fixture
    def stages(self, make_problem, make_state, make_start, make_runner, monkeypatch):
        """Stages that were tried, of restarts that gain so much in turn."""
        problem = make_problem()
        state, runner = make_state(problem), make_runner(problem)

        def stages(names, gains, n_rows=1e9):
            gains, tried = iter(gains), []

            def run(view, starts, at):
                tried.extend(start.stage for start in starts)
                ends = [replace(state, log_evidence=next(gains)) for _ in starts]
                return [
                    Restart(start, end, view)
                    for start, end in zip(starts, ends, strict=True)
                ]

            monkeypatch.setattr(runner, "run", run)
            runner.weight = torch.full((10,), n_rows / 10)
            starts = [replace(make_start(), stage=name) for name in names]
            _until_agreed(runner, View(problem), starts, None, 0.0)
            return tried

        return stages

    HALF = SETTINGS.n_starts // 2
    SAME, APART = [100.0] * SETTINGS.n_starts, [100.0, *[80.0] * SETTINGS.n_starts]

    def test_restarts_that_gain_the_same_spare_the_other_half(self, stages):
        names = ["wide"] * SETTINGS.n_starts
        assert len(stages(names, self.SAME)) == self.HALF
        assert len(stages(names, self.APART)) == SETTINGS.n_starts

    def test_narrow_ones_spare_wide_ones_only_where_they_are_decisive(self, stages):
        names = ["narrow"] * self.HALF + ["wide"] * self.HALF
        assert stages(names, self.SAME) == names
        few_rows = 50 / SETTINGS.decisive_gain
        assert stages(names, self.APART, few_rows) == names[: self.HALF]

    def test_relaxed_ones_go_on_where_one_is_decisive(self, stages):
        names = ["relaxed"] * SETTINGS.n_starts
        assert stages(names, self.APART, 50 / SETTINGS.decisive_gain) == names

    def test_narrow_ones_come_first_where_there_are_many_features(self, make_problem):
        for n_features, first in ((4, "wide"), (20, "narrow")):
            problem = make_problem(widths=(1,) * n_features)
            slopes = torch.linspace(1, 2, n_features, dtype=torch.float64)
            at = Coefficients(slopes.unsqueeze(0), torch.zeros(1).double())
            none = torch.zeros(n_features, dtype=torch.bool)
            random = np.random.RandomState(0)
            starts = first_starts(problem, at, none, random, SETTINGS)
            assert starts[0].stage == first and starts[-1].stage == "wide"
            assert len(starts) == SETTINGS.n_starts
