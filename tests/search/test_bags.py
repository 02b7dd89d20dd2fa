"""Bags: additive and bent members, mixed by a dial that held-out rows turn.

Members are trained in double precision here, so that identities can be told from
rounding.

Shapes: K members, n rows, q terms, p features.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logit

import sknimo.search._bags as bagged
import sknimo.solver._joint as joint
from sknimo.families import get_family
from sknimo.features import FeatureOptions, fit_features
from sknimo.network import Modulator, make_spec
from sknimo.search import Settings, large_features
from sknimo.search._verdict import eta_losses, spread_of_loss
from sknimo.solver import (
    AdditiveOptions,
    JointState,
    Problem,
    fit_additive,
    predict_rows,
)
from sknimo.training import Fold, TaskStore, state_columns, state_problem

# Few rows go their own way, see `TestFewRows`.
FEW = {"n_members": 3, "few_rows": 0}
WIDE = FEW | {"batch_size": 64, "bag_hidden": (16, 16)}
SHORT = FEW | {"batch_size": 16, "bag_hidden": (4, 4)}
IDENTITY = 1e-12  # the same sums in another order


@pytest.fixture(autouse=True)
def in_double(monkeypatch):
    monkeypatch.setattr(joint, "DTYPE", torch.float64)


def settings_of(**options):
    return Settings(**SHORT | {"max_iter": 90} | options)


def make_bags(task, settings):
    problem = task.problem
    weight = torch.ones(problem.n_rows, dtype=torch.float64)
    fit = fit_additive(problem, weight, AdditiveOptions())
    seeds = range(settings.n_members)
    return bagged.state_bags(problem, task.folds, settings, weight, fit, seeds)


@pytest.fixture(scope="module")
def searched(make_task):
    """The outcome of a search, and what it has trained: bags, states and settings."""
    seen, train = [], bagged.train_bags

    def watch(bags, settings, store):
        seen.append((bags, train(bags, settings, store), settings))
        return seen[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "DTYPE", torch.float64)
        patch.setattr(bagged, "train_bags", watch)
        outcome = make_task(n_rows=300).search(**SHORT, max_iter=90)
    (trained,) = seen
    return outcome, trained


@pytest.fixture(scope="module")
def trained(searched):
    """Bags, states of their bent members, and settings."""
    _, (bags, states, settings) = searched
    assert len(states) == 3
    return bags, states, settings


@pytest.fixture
def settled(trained):
    """The same states with coefficients that are solved for."""
    bags, states, settings = trained
    return bagged.settle(bags, states, settings)


@pytest.mark.slow
def test_settled_coefficients_lower_the_loss_of_a_bag(trained, settled):
    bags, states, _ = trained
    rows = torch.arange(bags.problem.n_rows)
    for k in range(len(states)):
        before, after = (
            float(
                bags.train[k]
                @ (bags.problem.y - predict_rows(bags.table, s, rows)[0]).square()
            )
            for s in (states[k], settled[k])
        )
        assert after < 0.999 * before


def test_coefficients_are_not_settled_where_rows_held_out_object(trained, monkeypatch):
    bags, states, settings = trained

    def settle_far_away(*args, **kwargs):
        found = fit_additive(*args, **kwargs)
        return replace(found, coef=found.coef + 1.0)

    monkeypatch.setattr(bagged, "fit_additive", settle_far_away)
    assert bagged.settle(bags, states, settings) is states
    monkeypatch.setattr(bagged, "fit_additive", fit_additive)
    assert bagged.settle(bags, states, settings) is not states


def ensemble_eta(problem, members):
    """Mean linear predictor of members, (n,)."""
    spec = problem.spec
    modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)
    everything = torch.arange(spec.n_features).expand(len(members.coef), -1)
    bend = modulator(members.params, problem.inputs, everything)
    bend = bend * members.modulated.unsqueeze(1)
    design = problem.terms * (1 + bend[..., problem.term_feature])
    eta = (design @ members.coef.unsqueeze(-1)).squeeze(-1)
    return (eta + members.intercept.unsqueeze(1)).mean(0) + problem.offset


class TestDial:
    """The mix is a model, and rows held out choose it."""

    @pytest.mark.parametrize("dial", [0.0, 0.35, 1.0])
    def test_members_average_to_the_mix(self, dial, trained, settled):
        bags, _, _ = trained
        states = settled
        rows = torch.arange(bags.problem.n_rows)
        each = [bags.additive_eta(k, rows) for k in range(3)]
        additive = torch.stack(each).mean(0)
        bent = torch.cat([predict_rows(bags.table, s, rows) for s in states]).mean(0)
        assert (additive - bent).std() > 0.05
        members = bagged.mix_members(bags, states, dial)
        found = ensemble_eta(bags.problem, members)
        expected = (1 - dial) * additive + dial * bent
        torch.testing.assert_close(found, expected, rtol=IDENTITY, atol=IDENTITY)
        assert len(members.coef) == (1 if dial == 0 else 4)

    def test_a_strong_bend_is_worth_all_of_it(self, make_task):
        outcome = make_task(n_rows=400).search(**SHORT, max_iter=30)
        assert outcome.dial > 0.8
        assert outcome.n_members == 3
        assert outcome.verdict.gain > 3 * outcome.verdict.error
        assert (outcome.verdict.network_loss < outcome.verdict.glm_loss).all()

    def test_lines_and_nothing_else_are_left_to_the_additive_model(self, make_task):
        outcome = make_task(n_rows=1600, bent=False).search(**WIDE, max_iter=12)
        assert outcome.dial == 0
        assert outcome.n_members == 0
        assert outcome.verdict.gain == 0
        assert not outcome.members.modulated.any()
        assert "bent" not in outcome.trials["stage"]

    def test_without_spread_it_minimises_the_held_out_loss(self, trained, monkeypatch):
        bags, states, settings = trained
        monkeypatch.setattr(bagged, "spread_loss", lambda *args: 0.0)
        where = bagged._hold_out(bags, states)
        # Bent members that overshoot, so that the best mix lies inside.
        bold = where.glm + 4.0 * (where.agreed - where.glm)
        where = replace(where, agreed=bold)
        y = bags.problem.y.numpy()[where.rows]

        def loss(w):
            eta = (1 - w) * where.glm + w * bold
            return np.average((y - eta) ** 2, weights=where.weight)

        best = minimize_scalar(loss, bounds=(0, 1), method="bounded").x
        assert 0.1 < best < 0.9
        dial = bagged.turn_dial(bags, states, where, settings)
        assert abs(dial - best) <= 0.5 / settings.dial_steps + 1e-6

    def test_equal_members_have_no_spread(self, trained):
        bags, states, settings = trained
        assert bagged.spread_loss(bags, states, settings, 3) > 0
        assert bagged.spread_loss(bags, states[:1] * 3, settings, 3) < IDENTITY
        assert bagged.spread_loss(bags, states[:1], settings, 1) == 0

    def test_of_least_squares_the_spread_is_half_the_variance(self, trained):
        bags, states, settings = trained
        rows = torch.arange(bags.problem.n_rows)
        eta = torch.cat([bagged.predict_rows(bags.table, s, rows) for s in states])
        seen = bags.train[: len(states)] > 0
        variance = [x[on].var().item() for x, on in zip(eta.T, seen.T, strict=True)]
        expected = np.mean(variance) / 2 * (1 - 1 / len(states))
        found = bagged.spread_loss(bags, states, settings, len(states))
        assert found == pytest.approx(expected)

    def test_where_classes_are_told_apart_the_spread_is_less_than_the_loss(self):
        """However far apart members are: they agree on the class."""
        family, y = get_family("binomial"), torch.tensor([1.0, 0.0, 1.0, 0.0])
        eta = torch.tensor([[2.0], [40.0], [9.0]]) * (2 * y - 1)

        def losses(eta):
            return family.loss(y, eta)

        seen, weight = torch.ones_like(eta, dtype=torch.bool), torch.ones(4)
        spread = spread_of_loss(losses, eta.double(), seen, weight.double())
        mean = losses(eta).mean(), losses(eta.mean(0)).mean()
        assert 0 < spread == pytest.approx(float(mean[0] - mean[1]) * 3 / 2)

    def test_few_members_are_relieved_of_less(self, trained, monkeypatch):
        """Scouts stand for all members, unless time ends with them."""
        bags, states, settings = trained
        loss = [bagged.spread_loss(bags, states, settings, n) for n in (2, 4, 10)]
        assert loss == pytest.approx([loss[2] / 0.9 * x for x in (0.5, 0.75, 0.9)])
        asked = []
        monkeypatch.setattr(
            bagged, "spread_loss", lambda *args: asked.append(args[-1]) or 0.0
        )
        where = bagged._hold_out(bags, states[:2])
        bagged.turn_dial(bags, states[:2], where, settings)
        bagged.train_bags(bags, replace(settings, max_iter=4), TaskStore())
        assert asked == [2, 3]

    def test_no_member_leaves_the_additive_model(self, trained):
        bags, _, settings = trained
        where = bagged._hold_out(bags, [])
        assert bagged.turn_dial(bags, [], where, settings) == 0
        assert np.array_equal(where.agreed, where.glm)


class TestHeldOut:
    """Rows are predicted by members that have not seen them."""

    def test_predictions_are_those_of_the_member_without_the_row(self, trained):
        bags, states, _ = trained
        where = bagged._hold_out(bags, states)
        assert sorted(where.rows) == list(range(bags.problem.n_rows))
        for k, state in enumerate(states):
            rows = where.rows[where.fold == k]
            assert (bags.train[k][rows] == 0).all()
            eta = predict_rows(bags.table, state, torch.as_tensor(rows))[0]
            assert where.agreed[where.fold == k] == pytest.approx(eta, rel=IDENTITY)

    def test_several_folds_that_hold_a_row_out_are_averaged(self, trained):
        bags, states, _ = trained
        where = bagged._hold_out(bags, states)
        # Row 1 by two folds, row 0 by none.
        twice = np.where(where.rows == 0, 1, where.rows)
        mean = bagged.mean_by_row(twice, where.agreed, bags.problem.n_rows)
        assert math.isnan(mean[0])
        both = where.agreed[np.isin(where.rows, [0, 1])]
        assert mean[1] == pytest.approx(both.mean())

    def test_the_table_has_the_losses_of_rows_held_out(self, searched):
        outcome, _ = searched
        trials = outcome.trials
        assert trials["stage"] == ["additive"] * 3 + ["bent"] * 3
        assert trials["loss"][:3] == pytest.approx(outcome.verdict.glm_loss)
        assert outcome.best_index == int(np.argmin(trials["loss"]))
        assert set(trials["n_iter"][:3]) == {1} and min(trials["n_iter"][3:]) > 1

    @pytest.mark.slow
    def test_few_folds_serve_many_members(self, make_task):
        outcome = make_task(n_rows=300).search(**SHORT | {"n_members": 5}, max_iter=90)
        assert outcome.n_members == 5
        assert np.isfinite(outcome.held_out_eta).all()


def watch_training(monkeypatch):
    """Groups and options of every stage of a search."""
    stages, train = [], bagged.train_groups

    def watch(how, make_start, groups, options, *others):
        stages.append((groups, options))
        return train(how, make_start, groups, options, *others)

    monkeypatch.setattr(bagged, "train_groups", watch)
    return stages


class TestScouts:
    """The first bags say whether the others are worth training."""

    @pytest.mark.parametrize("bent", [True, False])
    def test_the_others_are_trained_only_where_scouts_gain(
        self, bent, make_task, monkeypatch
    ):
        stages, asked = watch_training(monkeypatch), WIDE | {"pair_level": math.inf}
        make_task(n_rows=1600, bent=bent).search(
            **asked | {"n_members": 8}, max_iter=12
        )
        scouts, *others = [groups for groups, _ in stages]
        assert scouts == [[0], [1]]
        assert others == ([[[2, 4, 6], [3, 5, 7]]] if bent else [])

    @pytest.mark.parametrize("bent", [True, False])
    def test_none_is_trained_where_no_features_act_together(
        self, bent, make_task, monkeypatch
    ):
        stages = watch_training(monkeypatch)
        outcome = make_task(n_rows=1600, bent=bent).search(**WIDE, max_iter=4)
        assert bool(stages) == bent
        assert bent or outcome.dial == 0

    def test_without_time_something_is_returned(self, make_task):
        outcome = make_task(n_rows=300).search(**SHORT, deadline=-math.inf)
        assert outcome.out_of_time
        assert outcome.members.coef.isfinite().all()
        assert ensemble_eta(outcome.problem, outcome.members).isfinite().all()

    def test_what_merely_ends_late_is_not_cut(self, make_task, monkeypatch):
        """All members are trained when the clock passes the deadline."""
        now, settle = [0.0], bagged.settle

        def dawdle(*args):
            now[0] = 100.0
            return settle(*args)

        monkeypatch.setattr(bagged.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(bagged, "settle", dawdle)
        outcome = make_task(n_rows=300).search(**SHORT, max_iter=4, deadline=50.0)
        assert now[0] > 50
        assert not outcome.out_of_time

    def test_one_feature_has_nothing_to_be_bent_by(self, make_task):
        task = make_task(n_rows=300)
        bags = make_bags(task, settings_of())
        spec = replace(bags.problem.spec, code=bags.problem.spec.code[:1])
        alone = replace(bags, problem=replace(bags.problem, spec=spec))
        assert bagged.train_bags(alone, settings_of(), TaskStore()) == []


def curved_task(curve, n_rows=600, noise=0.5):
    """Two features, of which the first acts along a curve; with walks as a prior."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-2, 2, size=(n_rows, 2))
    y = curve(table[:, 0]) + noise * rng.normal(size=n_rows)
    options = FeatureOptions(basis="ramps", n_edges=40)
    features = fit_features(table, ["x0", "x1"], np.ones(n_rows), (None,) * 2, options)
    data = SimpleNamespace(features=features, table=table, y=y, offset=0.0 * y)
    spec = make_spec(features.input_feature.tolist(), 2, (4, 4))
    problem = state_problem(data, get_family("gaussian"), spec, torch.device("cpu"))
    third = np.arange(n_rows) % 3
    folds = [Fold(1.0 * (third != f), 1.0 * (third == f)) for f in range(3)]
    return SimpleNamespace(problem=problem, folds=folds)


class TestWalks:
    """Rows held out say how rough curves are."""

    @staticmethod
    def share(bags):
        """How far the mixture lies from smooth curves towards walks."""
        way = bags.walks.coef - bags.curves.coef
        share = ((bags.coef - bags.curves.coef) * way).sum() / way.square().sum()
        mixed = torch.lerp(bags.curves.coef, bags.walks.coef, float(share))
        torch.testing.assert_close(bags.coef, mixed)
        return float(share)

    @pytest.mark.parametrize("few_rows", [0, 3000])
    def test_a_parabola_is_smooth_and_steps_are_a_walk(self, few_rows):
        settings = settings_of(few_rows=few_rows)
        smooth = make_bags(curved_task(np.square, n_rows=3000), settings)
        rough = make_bags(curved_task(lambda x: 3.0 * (np.floor(4 * x) % 2)), settings)
        assert self.share(smooth) < 0.3
        assert self.share(rough) > 0.7

    def test_the_share_has_the_least_loss_beside_bent_members(self, monkeypatch):
        """Against a search over both weights."""
        settings = settings_of(max_iter=20)
        bags = make_bags(curved_task(lambda x: np.sin(3 * x), noise=0.1), settings)
        states = bagged.train_bags(bags, settings, TaskStore())
        monkeypatch.setattr(bagged, "spread_loss", lambda *args: 0.0)
        monkeypatch.setattr(bagged, "likely_weight", lambda w, x, *rest: w[x.argmin()])
        found = bagged.weigh_walks(bags, states, settings)

        def least(share):
            mixed = replace(
                bags,
                coef=torch.lerp(bags.curves.coef, bags.walks.coef, share),
                intercept=torch.lerp(
                    bags.curves.intercept, bags.walks.intercept, share
                ),
            )
            held_out = bagged._hold_out(mixed, states)
            y = bags.problem.y.numpy()[held_out.rows]

            def loss(w):
                eta = (1 - w) * held_out.glm + w * held_out.agreed
                return np.mean((y - eta) ** 2)

            return minimize_scalar(loss, bounds=(0, 1), method="bounded").fun

        best = minimize_scalar(least, bounds=(0, 1), method="bounded").x
        assert self.share(found) == pytest.approx(best, abs=1 / settings.dial_steps)

    def test_odd_bags_learn_by_other_sums_of_the_same_curves(self, monkeypatch):
        """What they begin with is the same function, and it is given back in terms."""
        begun = []

        def train(table, start, ridge, options, report):
            begun.append(table.terms.double() @ start.coef[0])
            nothing, none = torch.zeros_like(start.coef), torch.zeros(1)
            parts = start.coef, nothing, start.intercept, start.params
            return JointState(*parts, none, none.long())

        monkeypatch.setattr(bagged, "train_jointly", train)
        monkeypatch.setattr(bagged, "turn_dial", lambda *args: 1.0)
        settings = settings_of(pair_level=math.inf)
        bags = make_bags(curved_task(np.square), settings)
        assert (
            bags.problem.learned - torch.eye(bags.problem.n_terms)
        ).abs().max() > 0.1
        states = bagged.train_bags(bags, settings, TaskStore())
        for bag, state in enumerate(states):
            expected = settings.start_share * bags.curves.coef[[bag]]
            torch.testing.assert_close(state.coef, expected, rtol=1e-6, atol=1e-9)
        ours = settings.start_share * bags.problem.terms @ bags.curves.coef.T
        found = torch.stack(begun)
        torch.testing.assert_close(found[:2], ours.T[:2], rtol=1e-6, atol=1e-9)


class TestFewRows:
    """Every bag has precisions of its own, and all of them stop together."""

    def test_a_bag_is_the_additive_model_of_its_rows(self, make_task):
        task, settings = make_task(n_rows=90, noise=1.0), settings_of(few_rows=90)
        bags = make_bags(task, settings)
        together = make_bags(task, settings_of())
        for k, fold in enumerate(task.folds):
            rows = torch.as_tensor(fold.train).nonzero().squeeze(-1)
            alone = task.problem.take(rows)
            ones = torch.ones(len(rows), dtype=torch.float64)
            fit = fit_additive(alone, ones, AdditiveOptions())
            gap = (bags.coef[k] - fit.coef).abs().max()
            # Precisions that have settled differ by what `AdditiveOptions.tol` allows.
            assert gap < 0.02 * fit.coef.abs().max()
            assert gap < 0.5 * (together.coef[k] - fit.coef).abs().max()

    @pytest.mark.parametrize("family", ["gaussian", "binomial"])
    @pytest.mark.slow
    def test_rows_held_out_are_honest_about_noise(self, family):
        """Precisions of all rows know them: with those, noise seems predictable."""
        own, of_all = (
            np.mean([loss_on_noise(family, seed, rows) for seed in range(8)])
            for rows in (10**6, 0)
        )
        assert own > 0.99
        assert of_all < 0.98

    def test_all_bags_are_one_program(self, make_task, monkeypatch):
        stages = watch_training(monkeypatch)
        few = SHORT | {"n_members": 5, "few_rows": 400, "few_hidden": (3, 3)}
        outcome = make_task(n_rows=400).search(**few, max_iter=5)
        (((bags,), options),) = stages
        assert len(bags) == 5 and options.common_stop
        assert outcome.problem.spec.hidden == (3, 3)

    def test_rows_are_counted_once_for_all(self, make_task, monkeypatch):
        """A bag of a table with many rows is no table with few."""
        task, settings = make_task(n_rows=300), settings_of(few_rows=250, max_iter=2)
        bags, stages = make_bags(task, settings), watch_training(monkeypatch)
        assert bags.problem.spec.hidden == settings.bag_hidden
        bagged.train_bags(bags, settings, TaskStore())
        together = [options.common_stop for _, options in stages]
        assert together and not any(together)

    def test_batches_are_small_but_not_tiny(self):
        settings = Settings()
        sizes = [
            bagged.joint_options(n, 5, n < 4000, settings).batch_size
            for n in (50, 1600, 10_000, 30_000, 100_000)
        ]
        usual, largest = settings.joint.batch_size, settings.largest_batch
        assert sizes == [settings.least_batch, 100, usual, 300, largest]

    def test_passes_over_many_rows_are_fewer_unless_features_are_many(self):
        settings = Settings()
        usual, n = settings.usual_features, 4 * settings.max_visits // 100
        found = [
            bagged.joint_options(n_rows, p, False, settings).max_passes
            for n_rows, p in ((n, 5), (n, usual), (n, usual * 6 // 5), (100 * n, 5))
        ]
        assert found == [25, 25, 30, 10]

    def test_rates_rise_by_the_root_of_larger_batches(self):
        settings = Settings()
        usual = settings.joint.learning_rate
        found = [
            bagged.joint_options(n, 5, False, settings).learning_rate
            for n in (5_000, 4 * 100 * settings.joint.batch_size)
        ]
        assert found == pytest.approx([usual, 2 * usual])


def loss_on_noise(family, seed, few_rows, n_rows=80, p=6, n_bags=8):
    """Held-out loss of additive models, relative to that of a mean of their rows."""
    rng = np.random.default_rng(seed)
    table, y = rng.normal(size=(n_rows, p)), rng.normal(size=n_rows)
    y = (y > 0).astype(float) if family == "binomial" else y
    names, ones = [f"x{j}" for j in range(p)], np.ones(n_rows)
    options = FeatureOptions(basis="ramps", n_edges=10)
    features = fit_features(table, names, ones, (None,) * p, options)
    problem = Problem(
        columns=state_columns(features, table),
        term_feature=torch.as_tensor(features.term_feature),
        term_group=torch.as_tensor(features.term_group),
        y=torch.as_tensor(y),
        offset=torch.zeros(n_rows, dtype=torch.float64),
        family=get_family(family),
        spec=make_spec(features.input_feature.tolist(), p, (3, 3)),
    )
    number = rng.permutation(n_rows) % n_bags
    folds = [Fold(1.0 * (number != k), 1.0 * (number == k)) for k in range(n_bags)]
    task = SimpleNamespace(problem=problem, folds=folds)
    settings = Settings(n_members=n_bags, few_rows=few_rows)
    held_out = bagged._hold_out(make_bags(task, settings), [])
    means = np.array([y[number != k].mean() for k in range(n_bags)])
    plain = logit(means) if family == "binomial" else means
    loss, base = (
        eta_losses(problem, held_out.rows, eta).mean()
        for eta in (held_out.glm, plain[held_out.fold])
    )
    return loss / base


class TestWhatIsBent:
    """Features with the largest effects have a modulation, and a code each."""

    def test_the_largest_effects_are_modulated_in_their_order(self, make_task):
        problem = make_task().problem
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        coef = torch.tensor([0.5, 3.0, 0.0, -2.0], dtype=torch.float64)
        assert bagged.strongest(problem, weight, coef, 2).tolist() == [1, 3]
        assert bagged.strongest(problem, weight, coef, 9).tolist() == [0, 1, 2, 3]

    def test_a_feature_without_terms_is_never_modulated(self, make_task):
        problem = make_task().problem
        bare = replace(problem, term_feature=torch.tensor([0, 1, 1, 3]))
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        coef = torch.ones(4, dtype=torch.float64)
        assert bagged.strongest(bare, weight, coef, 9).tolist() == [0, 1, 3]

    def test_codes_tell_modulated_features_apart(self):
        code = np.array(bagged.one_hot(4, [1, 3]))
        assert code.tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]

    @pytest.mark.slow
    def test_features_beyond_the_limit_are_only_inputs(self, make_task):
        outcome = make_task(n_rows=300).search(**SHORT, max_iter=90, max_modulated=2)
        modulated = outcome.members.modulated.any(0)
        assert modulated.sum() == 2 and modulated[0]


class TestLargeFeatures:
    """Curves for every numeric feature, as many pieces as the memory carries."""

    def read(self, basis="auto", n_rows=10_000, n_numeric=10, room=1e9):
        options = FeatureOptions(basis=basis)
        return large_features(Settings(), options, n_rows, n_numeric, room)

    def test_what_is_left_to_the_search_becomes_ramps(self):
        assert self.read().basis == "ramps"
        assert self.read("spline").basis == "spline"
        mixed = self.read({"a": "auto", "b": "linear"}).basis
        assert mixed == {"a": "ramps", "b": "linear"}

    def test_pieces_are_limited_by_memory_and_by_columns(self):
        settings = Settings()
        assert self.read().n_edges == settings.term_edges
        assert self.read().n_input_edges == settings.input_edges
        assert self.read(n_numeric=100).n_edges == settings.max_columns // 100
        tight = self.read(room=28 * 10_000 * 200)
        assert tight.n_edges == tight.n_input_edges == 20

    def test_crowded_tables_have_the_fewest_pieces(self):
        """Half as many features as rows at most have curves at all."""
        settings = Settings()
        assert self.read(n_rows=145, n_numeric=60).n_edges == settings.least_edges
        assert self.read(n_rows=240, n_numeric=40).n_edges == 6
        assert self.read(n_rows=100, n_numeric=51) is None

    def test_without_room_there_are_none(self):
        assert self.read(room=28 * 10_000 * 30) is None
        assert self.read(n_numeric=1000) is None
