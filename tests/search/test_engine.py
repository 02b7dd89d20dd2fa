"""`search` is a function: a problem, folds and settings in, an outcome out."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from joblib import parallel_config

import sknimo.search._engine as engine_module
from sknimo.checkpoint import Checkpoint
from sknimo.search import Beside, Settings
from sknimo.search._engine import feature_margin
from sknimo.solver import EvidenceOptions, linear_predictor
from sknimo.training import Ensemble, Fold, TaskStore


@pytest.fixture(scope="module")
def task(make_task):
    return make_task()


@pytest.fixture(scope="module")
def outcome(task):
    return task.search()


def same(first, second):
    """Whether two outcomes are equal to the last bit."""
    names = ("coef", "intercept", "params", "modulated")
    pairs = [(getattr(first.members, n), getattr(second.members, n)) for n in names]
    return first.trials == second.trials and all(
        torch.equal(one, other) for one, other in pairs
    )


class TestOutcome:
    def test_it_finds_what_acts_and_what_bends(self, task, outcome):
        assert outcome.n_members > 0
        coef = outcome.members.coef
        assert coef.abs().amax(0).nonzero().flatten().tolist() == [0, 2]
        best = outcome.trials["n_inputs"][outcome.best_index]
        assert best == 1
        assert outcome.verdict.keeps_network
        assert outcome.log_evidence > outcome.glm_log_evidence

    def test_without_anything_to_bend_it_is_the_glm(self, make_task):
        outcome = make_task(bent=False, noise=1.0).search()
        assert outcome.n_members == 0
        assert outcome.members.coef.shape == (1, 4)
        assert not outcome.members.params.any()
        assert outcome.input_precision == math.inf

    def test_the_same_seed_is_the_same_outcome_and_another_is_not(self, task, outcome):
        assert same(task.search(seed=0), outcome)
        assert task.search(seed=1, relax=False).trials["seed"] != outcome.trials["seed"]

    def test_the_number_of_jobs_does_not_change_it(self, task, outcome):
        with parallel_config(backend="threading"):
            assert same(task.search(n_jobs=2), outcome)

    def test_a_store_gives_back_what_it_was_given(self, task, outcome, tmp_path):
        store = TaskStore(Checkpoint.open(tmp_path, "search"))
        assert same(task.search(store=store), outcome)
        n_states = len(list(tmp_path.iterdir()))
        assert same(task.search(store=store), outcome)
        assert len(list(tmp_path.iterdir())) == n_states

    def test_bags_end_with_the_same_record(self, task):
        outcome = task.search(batch_size=32, max_iter=4, few_hidden=(3, 3), n_members=3)
        assert outcome.problem.spec.hidden == (3, 3)
        assert task.problem.spec.hidden == (4, 4)
        assert math.isnan(outcome.log_evidence)
        assert outcome.verdict.network_loss.shape == (3,)
        assert (outcome.n_members > 0) == (outcome.dial > 0)

    def test_rows_in_blocks_are_bags_of_all_rows_if_memory_holds_them(
        self, task, store
    ):
        short = {"batch_size": 32, "max_iter": 4, "few_hidden": (3, 3), "n_members": 3}
        blocks = replace(task, problem=store(task.problem)).search(**short)
        bags = task.search(**short)
        assert not blocks.problem.in_one_place
        assert blocks.problem.spec == bags.problem.spec
        for name in Ensemble.__slots__:
            ours, theirs = (getattr(x.members, name) for x in (blocks, bags))
            assert torch.equal(ours, theirs), name
        assert blocks.trials == bags.trials

    def test_bags_of_rows_in_blocks_have_a_sample(self, task, store):
        task = replace(task, problem=store(task.problem))
        short = {"batch_size": 32, "max_iter": 2, "few_hidden": (3, 3), "n_members": 2}
        some, fewer = (task.search(sample_rows=n, **short) for n in (10**6, 40))
        assert some.trials["loss"] != fewer.trials["loss"]


@pytest.fixture(scope="module")
def moved(make_task):
    """A search whose reference moves: its outcome, and the selection on its way."""
    selections, choose = [], engine_module.choose_members

    def watch(runner, selection):
        selections.append(selection)
        return choose(runner, selection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "choose_members", watch)
        task = make_task(n_rows=150, off=2.0, noise=0.02)
        outcome = task.search(moves=True, max_iter=40)
    (selection,) = selections
    return task, outcome, selection


class TestReference:
    """Every restart keeps the view that it was fitted in."""

    def test_restarts_before_a_move_stay_where_they_were_fitted(self, moved):
        _, _, selection = moved
        wide = [r.view for r in selection.restarts if r.start.stage == "wide"]
        last = selection.restarts[-1].view
        assert wide
        assert not any(view.has_moved for view in wide)
        assert last.has_moved
        assert selection.view is last

    def test_a_restart_predicts_best_through_its_own_view(self, moved):
        """Another restart's view is another table to it."""
        task, _, selection = moved
        first, last = selection.restarts[0], selection.restarts[-1]
        y, options = task.problem.y, EvidenceOptions()
        for restart, other in ((first, last), (last, first)):
            own, strange = (
                (linear_predictor(each.view.problem, restart.state, options) - y)
                .square()
                .mean()
                for each in (restart, other)
            )
            assert own < strange

    def test_the_outcome_has_the_features_of_the_last_view(self, moved):
        _, outcome, selection = moved
        assert outcome.n_members > 0
        expected = selection.view.features.reference
        assert np.array_equal(outcome.features.reference, expected)
        assert np.abs(expected).max() > 0.5 / np.sqrt(150)

    def test_the_problem_is_left_as_it_was(self, moved):
        task, outcome, selection = moved
        assert outcome.problem is task.problem
        assert torch.equal(task.problem.terms, selection.restarts[0].view.problem.terms)
        assert task.problem.terms.mean(0).abs().max() < 1e-12

    def test_without_a_network_it_is_that_of_the_data(self, moved):
        task, *_ = moved
        outcome = task.search(moves=True, evidence_margin=1e9)
        assert outcome.n_members == 0
        assert outcome.features is None


class TestStability:
    def test_where_no_restart_beats_the_glm_the_glm_is_returned(self, make_task):
        """There is nobody to agree with."""
        task = make_task("gamma", bent=False)
        outcome = task.search(rule="stability", relax=False, optimism=(50.0,))
        trials = outcome.trials
        wide = [k for k, stage in enumerate(trials["stage"]) if stage == "wide"]
        assert wide
        for k in wide:
            assert trials["log_evidence"][k] < outcome.glm_log_evidence
        assert outcome.n_members == 0
        assert outcome.members.coef.isfinite().all()

    def test_it_keeps_no_more_than_the_rule_of_all(self, task, outcome):
        stable = task.search(rule="stability")
        assert stable.n_members > 0
        kept, all_kept = (o.members.coef.abs().amax(0) > 0 for o in (stable, outcome))
        assert not (kept & ~all_kept).any()


class TestSettings:
    """Replacing one number changes what it should."""

    def test_a_margin_that_nothing_passes_gives_the_glm(self, task, outcome):
        strict = task.search(evidence_margin=1e9)
        assert strict.n_members == 0
        assert strict.verdict is None
        assert strict.log_evidence == outcome.log_evidence

    def test_a_larger_share_lets_fewer_restarts_join(self, task, outcome):
        assert task.search(member_share=1.0).n_members < outcome.n_members

    def test_no_more_members_than_asked_for(self, task, outcome):
        assert outcome.n_members > 1
        assert task.search(n_members=1).n_members == 1

    def test_relaxing_can_be_left_out(self, task, outcome):
        assert "relaxed" in outcome.trials["stage"]
        assert "relaxed" not in task.search(relax=False).trials["stage"]

    def test_restarts_begin_with_the_optimism_given(self, task):
        trials = task.search(optimism=(0.5, 0.25), relax=False).trials
        assert trials["optimism"][:2] == [0.5, 0.25]

    def test_narrow_restarts_are_for_more_features_than_few(self, task, outcome):
        assert "narrow" not in outcome.trials["stage"]
        trials = task.search(few_features=3, narrow_sizes=(2,), relax=False).trials
        narrow = trials["stage"].index("narrow")
        assert trials["n_features"][narrow] <= 2

    def test_the_path_is_as_long_as_asked_for(self, task):
        path = task.search(
            alphas=None, path_length=7, path_ratio=0.1, deadline=-math.inf
        ).path
        assert path.alphas == pytest.approx(path.alphas[0] * np.geomspace(1, 0.1, 7))

    def test_work_beyond_the_limit_goes_to_bags(self, task):
        outcome = task.search(max_work=1.0, max_iter=2, bag_hidden=(3, 3))
        assert set(outcome.trials["stage"]) <= {"additive", "bent"}

    def test_a_feature_must_bring_more_where_there_are_more(self):
        margins = [feature_margin(p, Settings()) for p in (1, 10, 100)]
        assert margins == sorted(margins)
        # A squared Wald statistic of four, and one unit more.
        assert margins[0] == pytest.approx(1 + (4 - 1 - math.log(4)) / 2)


LEAST_GAIN = Settings().least_gain


class TestBagsBeside:
    """A few restarts that fail are the last, unless bags gain by bends."""

    @pytest.mark.parametrize("gain", [0.05, 0.5])
    @pytest.mark.parametrize("fails", [False, True])
    @pytest.mark.parametrize("waits", [False, True])
    def test_all_restarts_follow_where_bags_gain(self, gain, fails, waits, monkeypatch):
        """In one process bags are known before."""
        found, seen = self.look(gain, fails, waits, 100, monkeypatch)
        expected = [True, False] if gain > LEAST_GAIN and fails else [True]
        if gain > LEAST_GAIN and waits:
            expected = [False]
        assert found == (len(expected), "bags")
        assert [cautious for cautious, _ in seen] == expected
        assert len({seed for _, seed in seen}) == 1, "restarts have other seeds"

    @pytest.mark.parametrize("gain", [0.05, 0.5])
    @pytest.mark.parametrize("waits", [False, True])
    def test_of_many_rows_bags_come_first_and_may_suffice(
        self, gain, waits, monkeypatch
    ):
        many = Settings().few_rows + 1
        found, seen = self.look(gain, False, waits, many, monkeypatch)
        worth = gain > LEAST_GAIN
        assert found == ((1, "bags") if worth else "bags")
        assert [cautious for cautious, _ in seen] == [False] * worth

    @staticmethod
    def look(gain, fails, waits, n_rows, monkeypatch):
        """What is returned, and how each search by evidence went."""
        runner = SimpleNamespace(
            settings=Settings(n_processes=1 if waits else 2),
            weight=torch.ones(n_rows),
            store=None,
            gave_up=False,
        )
        seen = []

        def compare(random):
            cautious = runner.settings.cautious
            seen.append((cautious, random.randint(10**6)))
            runner.gave_up = fails and cautious
            return len(seen)

        def blend(found, other, *how):
            return SimpleNamespace(by_bags=False, pair=(found, other))

        monkeypatch.setattr(engine_module, "search_bags", lambda *args: "bags")
        monkeypatch.setattr(engine_module, "bend_gain", lambda outcome: gain)
        monkeypatch.setattr(engine_module, "blend_outcomes", blend)
        beside = SimpleNamespace(problem=None, folds=[])
        random = np.random.RandomState(0)
        mean = engine_module._with_bags(runner, compare, beside, random)
        return getattr(mean, "pair", mean), seen

    @pytest.mark.parametrize("n_members", [0, 3])
    @pytest.mark.parametrize("by_bags", [False, True])
    def test_networks_that_bags_count_beside_are_weighed_again(
        self, n_members, by_bags, monkeypatch
    ):
        settings = Settings()
        runner = SimpleNamespace(
            settings=settings, weight=torch.ones(9), store=None, gave_up=False
        )
        found = SimpleNamespace(n_members=n_members, judged="as ever")
        weighed = []

        def blend(found, other, *how):
            weighed.append(found.judged)
            return SimpleNamespace(by_bags=by_bags)

        def judge(runner, found, beside):
            return SimpleNamespace(judged="like bags")

        monkeypatch.setattr(engine_module, "search_bags", lambda *args: "bags")
        monkeypatch.setattr(engine_module, "bend_gain", lambda outcome: 0.5)
        monkeypatch.setattr(engine_module, "blend_outcomes", blend)
        monkeypatch.setattr(engine_module, "judge_like_bags", judge)
        beside = SimpleNamespace(problem=None, folds=[])
        random = np.random.RandomState(0)
        engine_module._with_bags(runner, lambda random: found, beside, random)
        again = ["like bags"] if by_bags and n_members else []
        assert weighed == ["as ever", *again]


class TestJudgedLikeBags:
    """Evidence that is weighed against bags has seen as many rows as they have."""

    N_FOLDS = 6

    @pytest.fixture
    def beside(self, task):
        number = np.arange(task.problem.n_rows) % self.N_FOLDS
        every = range(self.N_FOLDS)
        folds = [Fold(1.0 * (number != k), 1.0 * (number == k)) for k in every]
        return Beside(task.problem, folds, None)

    @pytest.fixture
    def judge(self, beside, make_runner):
        def judged(found):
            runner = make_runner(found.problem, max_iter=15, n_members=self.N_FOLDS)
            return engine_module.judge_like_bags(runner, found, beside)

        return judged

    def test_no_target_that_is_held_out_is_seen(self, task, outcome, beside, judge):
        before = judge(outcome).held_out_eta
        last = torch.as_tensor(beside.folds[-1].held_out > 0)
        wrong = replace(task.problem, y=torch.where(last, 5.0, task.problem.y))
        parts = tuple(
            replace(
                part,
                explored=replace(
                    part.explored, view=replace(part.explored.view, problem=wrong)
                ),
            )
            for part in outcome.parts
        )
        after = judge(replace(outcome, parts=parts)).held_out_eta
        same = np.isclose(before, after, rtol=0, atol=1e-12)
        assert same[last].all()
        assert not same[~last].any()

    def test_restarts_of_the_chosen_pool_have_the_folds_of_bags(
        self, outcome, beside, judge, monkeypatch
    ):
        asked, hold_out = [], engine_module.hold_out

        def watch(runner, explored, folds, agreed, loose, of_path):
            asked.append((len(folds), bool(agreed), bool(loose)))
            return hold_out(runner, explored, folds, agreed, loose, of_path)

        monkeypatch.setattr(engine_module, "hold_out", watch)
        found = judge(outcome)
        pools = [part.pool for part in outcome.parts]
        assert asked == [(self.N_FOLDS, p == "agreed", p == "loose") for p in pools]
        assert np.isfinite(found.held_out_eta).all()
        assert found.members is outcome.members

    def test_without_a_network_nothing_is_judged_again(self, outcome, judge):
        found = replace(outcome, parts=())
        assert judge(found) is found

    def test_where_bags_have_no_more_rows_nothing_is(
        self, task, outcome, beside, judge
    ):
        beside.folds[:] = task.folds
        assert judge(outcome) is outcome


def test_curves_for_bags_are_not_read_where_restarts_decide(task, monkeypatch):
    def read():
        raise AssertionError("nobody asked for bags")

    monkeypatch.setattr(engine_module, "_is_open", lambda *args: False)
    monkeypatch.setattr(engine_module, "_by_evidence", lambda *args: "found")
    found = engine_module.search(
        task.problem,
        task.folds,
        Settings(),
        weight=torch.ones_like(task.problem.y),
        random=np.random.RandomState(0),
        beside=read,
    )
    assert found == "found"
