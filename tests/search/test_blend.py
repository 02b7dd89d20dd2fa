"""A mean of two searches: one model, whose weight rows held out choose.

Outcomes are made by hand, so that every number of theirs is known. The oracle is the
model of each search alone, with its own features and network.

Shapes: n rows, q terms, p features, K members.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import mean_poisson_deviance

from sknimo.families import get_family
from sknimo.features import FeatureOptions, fit_features
from sknimo.model import FittedModel
from sknimo.network import make_spec, one_hot
from sknimo.search import Beside, Outcome, Settings
from sknimo.search._blend import _empty_loss, blend_outcomes
from sknimo.solver import Problem
from sknimo.training import Ensemble, state_columns

IDENTITY = 1e-12  # the same sums in another order
N_ROWS = 300
NAMES = ("line", "spline", "gaps", "kind", "other")
LEVELS = (None, None, None, ("x", "y", "z"), None)
STEPS = np.linspace(0, 1, Settings().blend_steps + 1)


def draw_table(seed=0):
    """Numbers, a skewed column, missing values, levels."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(N_ROWS, 5))
    table[:, 1] = np.exp(table[:, 1])
    table[:, 3] = rng.integers(3, size=N_ROWS)
    table[rng.random(N_ROWS) < 0.1, 2] = np.nan
    table[rng.random(N_ROWS) < 0.1, 3] = np.nan
    return table


def within_range(table, seed=1):
    """Other rows, every value of which has been there."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.permutation(column) for column in table.T])


class Case:
    """Evidence with lines and a spline, bags with curves, on the same rows.

    Evidence bends the second and the fourth feature, bags the first and the third.
    """

    def __init__(self, make_params, family="gaussian", code="binary"):
        self.table = draw_table()
        lines = FeatureOptions(basis={"spline": "spline"})
        curves = FeatureOptions(
            basis={"line": "ramps", "spline": "spline", "gaps": "ramps"},
            input_scaling="ramps",
            n_edges=10,
            n_input_edges=8,
        )
        ones = np.ones(N_ROWS)
        self.lines, self.curves = (
            fit_features(self.table, NAMES, ones, LEVELS, how)
            for how in (lines, curves)
        )
        rng = np.random.default_rng(2)
        truth = rng.normal(size=N_ROWS)
        known = 0.2 * rng.normal(size=N_ROWS)
        y = truth
        if family == "binomial":
            y = (rng.random(N_ROWS) < expit(truth)).astype(float)
        elif family == "poisson":
            y = rng.poisson(np.exp(truth)).astype(float)
        self.y, self.truth, self.known = y, truth, known
        problems = [
            Problem(
                columns=state_columns(features, self.table),
                term_feature=torch.as_tensor(features.term_feature),
                term_group=torch.as_tensor(features.term_group),
                y=torch.as_tensor(y),
                offset=torch.as_tensor(known),
                family=get_family(family),
                spec=make_spec(features.input_feature.tolist(), 5, (4, 3), code),
            )
            for features in (self.lines, self.curves)
        ]
        if code != "none":
            spec = replace(problems[1].spec, code=one_hot(5, [0, 2]))
            problems[1] = replace(problems[1], spec=spec)
        self.found = outcome(problems[0], make_params, (1, 3), n_members=2, seed=3)
        self.other = outcome(problems[1], make_params, (0, 2), n_members=3, seed=4)
        columns = tuple(torch.as_tensor(at) for at in self.lines.embed(self.curves))
        self.beside = Beside(problems[1], [], columns)

    def hold_out(self, one, two):
        """What both predict of rows that they have not seen."""
        self.found = replace(self.found, held_out_eta=one, straight_eta=one + 0.1)
        self.other = replace(self.other, held_out_eta=two, straight_eta=two + 0.3)

    def apart(self):
        """Errors of both that cancel, so that a mean of both is best."""
        error = np.random.default_rng(5).normal(size=N_ROWS)
        self.hold_out(self.truth + error, self.truth - error)

    def blend(self, weight=None, **settings):
        weight = np.ones(N_ROWS) if weight is None else weight
        how = Settings(**settings)
        pair = self.found, self.other
        return blend_outcomes(*pair, self.beside, torch.as_tensor(weight), how)

    def loss(self, w, weight=None):
        """Mean loss of rows held out, of classes with evidence as it is tempered."""
        one, two = self.found.held_out_eta, self.other.held_out_eta
        one = self.known + self.certainty(weight) * (one - self.known)
        return self.cost((1 - w) * one + w * two, weight)

    def cost(self, eta, weight=None):
        each = (self.y - eta) ** 2 / 2
        if self.is_binary:
            each = np.logaddexp(0, eta) - self.y * eta
        return np.average(each, weights=weight)

    @property
    def is_binary(self):
        return self.found.problem.family.name == "binomial"

    def certainty(self, weight=None):
        """What is left of the certainty of evidence, by the likelihood of rows."""
        if not self.is_binary:
            return 1.0
        own, steps = self.found.held_out_eta - self.known, np.linspace(0.05, 1, 20)
        losses = np.array([self.cost(self.known + s * own, weight) for s in steps])
        odds = np.exp(-N_ROWS * (losses - losses.min()))
        return float(steps @ odds / odds.sum())


def outcome(problem, make_params, bent, n_members, seed):
    """Random members, two of whose features are bent, in one case not by all."""
    generator = torch.Generator().manual_seed(seed)
    coef = torch.randn(n_members, problem.n_terms, generator=generator).double()
    modulated = torch.zeros(n_members, 5, dtype=torch.bool)
    modulated[:, list(bent)] = True
    modulated[0, bent[0]] = False
    members = Ensemble(
        coef,
        torch.randn(n_members, generator=generator).double(),
        make_params(problem.spec, range(seed, seed + n_members), size=1.0),
        modulated,
    )
    nothing = {"path": None, "verdict": None, "features": None, "best_index": 0}
    numbers = ("alpha", "input_precision", "log_evidence")
    return Outcome(
        members=members,
        problem=problem,
        glm_log_evidence=math.nan,
        trials={"stage": ["some"] * n_members, f"only {seed}": [1.0] * n_members},
        n_members=n_members,
        out_of_time=False,
        dial=1.0 if seed == 3 else 0.4,
        **nothing,
        **dict.fromkeys(numbers, math.nan),
    )


def model_of(features, problem, members):
    return FittedModel(
        features=features,
        family=problem.family,
        spec=problem.spec,
        coef=members.coef,
        intercept=members.intercept,
        params=members.params,
        modulated=members.modulated,
    )


@pytest.fixture
def case(make_params):
    def make(**options):
        case = Case(make_params, **options)
        case.apart()
        return case

    return make


def chosen_weight(case, weight=None):
    """The mean of the steps by the likelihood of rows held out."""
    losses = np.array([case.loss(w, weight) for w in STEPS])
    counted = N_ROWS if weight is None else weight.sum()
    unit = 1.0 if case.is_binary else max(2 * losses.min(), 1e-300)
    odds = np.exp(-counted * (losses - losses.min()) / unit)
    return float(STEPS @ odds / odds.sum())


class TestModel:
    """The mean of both is a model of the class."""

    @pytest.mark.parametrize("code", ["binary", "none"])
    @pytest.mark.parametrize("family", ["gaussian", "binomial"])
    def test_its_linear_predictor_is_the_mean_of_both(self, family, code, case):
        case = case(family=family, code=code)
        w = chosen_weight(case)
        assert 0 < w < 1
        blend = case.blend()
        model = model_of(case.curves, blend.problem, blend.members)
        for X in (case.table, within_range(case.table)):
            one = model_of(case.lines, case.found.problem, case.found.members).eta(X)
            two = model_of(case.curves, case.other.problem, case.other.members).eta(X)
            assert np.std(one - two) > 1
            expected = (1 - w) * case.certainty() * one + w * two
            scale = np.abs(np.concatenate([one, two])).max()
            assert np.abs(model.eta(X) - expected).max() < IDENTITY * scale

    def test_contributions_sum_to_it(self, case):
        case = case()
        blend = case.blend()
        model = model_of(case.curves, blend.problem, blend.members)
        X = within_range(case.table)
        total = model.base_value + model.contributions(X).sum(axis=1)
        assert total == pytest.approx(model.eta(X), abs=1e-9)

    def test_members_with_a_network_are_counted(self, case):
        case = case()
        silent = case.found.members.modulated.clone()
        silent[0] = False
        members = replace(case.found.members, modulated=silent)
        case.found = replace(case.found, members=members)
        blend = case.blend()
        assert blend.n_members == 1 + 3
        assert len(blend.members.coef) == 2 + 3
        w = chosen_weight(case)
        assert blend.dial == pytest.approx((1 - w) * 1.0 + w * 0.4)

    def test_trials_are_those_of_both(self, case):
        trials = case().blend().trials
        assert trials["stage"] == ["some"] * 5
        for name, known in (("only 3", slice(0, 2)), ("only 4", slice(2, 5))):
            there = np.isfinite(trials[name])
            assert there[known].all() and there.sum() == len(range(5)[known])


class TestCertainty:
    """Networks of two classes are as certain as rows held out allow."""

    def hold_out(self, case):
        """Five times as certain as it should be, and bags that know nothing."""
        case = case(family="binomial")
        noise = np.random.default_rng(7).normal(size=N_ROWS)
        case.hold_out(case.known + 5 * case.truth, case.known + noise)
        return case

    def test_one_that_is_too_certain_is_scaled(self, case):
        case = self.hold_out(case)
        s = case.certainty()
        assert 0.1 < s < 0.4
        blend = case.blend(blend_gain=1e3)
        before, after = (
            model_of(case.lines, case.found.problem, each.members)
            for each in (case.found, blend)
        )
        X = within_range(case.table)
        assert after.eta(X) == pytest.approx(s * before.eta(X))
        own = case.found.held_out_eta - case.known
        assert blend.held_out_eta == pytest.approx(case.known + s * own)

    def test_it_is_weighed_as_scaled(self, case):
        case = self.hold_out(case)
        w = chosen_weight(case)
        assert 0 < w < 0.2
        own = case.found.held_out_eta - case.known
        scaled = case.known + case.certainty() * own
        mixed = (1 - w) * scaled + w * case.other.held_out_eta
        assert case.blend(blend_gain=0.0, blend_errors=(0.0, 0.0)).held_out_eta == (
            pytest.approx(mixed)
        )

    def test_a_glm_is_left_as_it_is(self, case):
        case = self.hold_out(case)
        case.found = replace(case.found, n_members=0)
        assert case.blend(blend_gain=1e3).members is case.found.members


class TestWeight:
    """Rows held out choose between evidence, bags and their means."""

    @pytest.mark.parametrize("w", [0.1, 0.3, 0.8])
    def test_it_is_where_errors_cancel(self, w, case):
        case = case()
        error = np.random.default_rng(5).normal(size=N_ROWS)
        case.hold_out(case.truth + error, case.truth - error * (1 - w) / w)
        blend = case.blend()
        assert blend.held_out_eta == pytest.approx(case.truth, abs=1e-9)
        straight = (1 - w) * case.found.straight_eta + w * case.other.straight_eta
        assert blend.straight_eta == pytest.approx(straight, abs=1e-9)
        assert blend.by_bags

    def test_the_verdict_is_on_what_is_returned(self, case):
        case = case()
        verdict, w = case.blend().verdict, chosen_weight(case)
        assert verdict.network_loss == pytest.approx([case.loss(w)])
        straight = (1 - w) * case.found.straight_eta + w * case.other.straight_eta
        loss = np.mean((case.y - straight) ** 2) / 2
        assert verdict.glm_loss == pytest.approx([loss])

    def test_rows_count_by_their_weight(self, case):
        case = case()
        first = np.arange(N_ROWS) < N_ROWS // 2
        rough = np.random.default_rng(6).normal(size=N_ROWS)
        one = case.truth + np.where(first, 1.0, 0.1) * rough
        two = case.truth - np.where(first, 0.1, 1.0) * rough
        case.hold_out(one, two)
        found = []
        for weight in (np.where(first, 3.0, 0.01), np.where(first, 0.02, 3.0)):
            w = chosen_weight(case, weight)
            eta = case.blend(weight, blend_gain=0.0).held_out_eta
            assert eta == pytest.approx((1 - w) * one + w * two)
            found.append(w)
        assert found[0] > 0.8 and found[1] < 0.2

    def test_rows_that_one_of_them_has_seen_do_not_count(self, case):
        """They would choose the other one."""
        case = case()
        one, two = case.found.held_out_eta.copy(), case.other.held_out_eta.copy()
        expected = case.blend().dial
        one[:50], two[:50] = np.nan, case.truth[:50]
        case.hold_out(one, two)
        blend = case.blend()
        assert blend.dial == pytest.approx(expected, abs=0.05)
        assert np.isnan(blend.held_out_eta).sum() == 50

    def test_evidence_has_more_weight_where_bags_save_little(self, case):
        """In proportion to what they save, none where that would be hardly any."""
        case = case()
        error = np.random.default_rng(5).normal(size=N_ROWS)
        one, two = case.truth + error, case.truth + 0.998 * error
        case.hold_out(one, two)
        case.found = replace(case.found, n_members=0)

        def weight(blend_gain):
            found = case.blend(blend_gain=blend_gain).held_out_eta
            return (found - one)[0] / (two - one)[0]

        full, half = weight(0.0), weight(0.004)
        assert 0.4 < full < 0.6
        assert weight(0.008) == pytest.approx(half / 2)
        assert case.blend(blend_gain=0.1) is case.found
        case.hold_out(one, case.truth + 1.5 * error)
        assert case.blend() is case.found

    @pytest.mark.parametrize("n_members", [0, 3])
    def test_a_gain_within_chance_counts_in_part(self, n_members, case):
        """One row in three hundred has it all."""
        case = case()
        one, two = case.truth + 0.1, case.truth + 0.1
        one[7] += 2.0
        case.hold_out(one, two)
        assert case.loss(1.0) < 0.5 * case.loss(0.0)
        case.found = replace(case.found, n_members=n_members)
        weights = []
        for errors in (0.25, 2.0, 4.0):
            eta = case.blend(blend_errors=(errors, 9.0)).held_out_eta
            weights.append((eta - one)[7] / (two - one)[7])
        assert weights[0] > 0.8
        assert weights[1] == pytest.approx(2 * weights[2])
        assert weights[1] < 0.6

    def test_beside_a_network_of_counts_it_is_none(self, case):
        case = case(family="poisson")
        two = np.log(case.y + 0.5) - case.found.problem.offset.numpy()
        one = two.copy()
        one[7] += 3.0
        case.hold_out(one, two)
        assert case.blend(blend_errors=(0.1, 4.0)) is case.found
        assert case.blend(blend_errors=(4.0, 0.1)) is not case.found
        case.found = replace(case.found, n_members=0)
        assert case.blend(blend_errors=(2.0, 9.0)) is not case.found

    def test_beside_a_network_of_two_classes_it_is_none(self, case):
        case = case(family="binomial")
        two = 2.0 * (2 * case.y - 1)
        one = two.copy()
        one[7] *= -2.0
        case.hold_out(one, two)
        kept = case.blend(blend_errors=(0.1, 4.0))
        assert kept.n_members == case.found.n_members
        tempered = case.known + case.certainty() * (one - case.known)
        assert kept.held_out_eta == pytest.approx(tempered)
        assert case.blend(blend_errors=(4.0, 0.1)).n_members > kept.n_members

    def test_where_bags_come_first_lines_must_beat_them(self, case):
        """By more than chance; a network of evidence is as hard to beat as ever."""
        case = case()
        one, two = case.truth + 0.1, case.truth + 0.1
        two[7] += 2.0
        case.hold_out(one, two)
        network, case.found = case.found, replace(case.found, n_members=0)
        strict, lax = ({"blend_errors": (x, x), "bags_first": True} for x in (1.5, 0.2))
        assert case.blend(**strict).members is case.other.members
        assert case.blend(**lax) is case.found
        case.found = network
        assert case.blend(**strict) is network
        # Neither predicts anything: the simpler one.
        case.found = replace(network, n_members=0)
        case.hold_out(case.truth * 0 + 9.0, case.truth * 0 + 9.0)
        assert case.blend(**strict) is case.found

    def test_where_bags_come_first_weak_ones_beat_a_model_without_features(self, case):
        """Which is judged by rows that it has not seen, as they are."""
        case = case()
        rng = np.random.default_rng(7)
        mean = case.y.mean()
        one = mean - 0.1 * (case.y - mean)  # the mean of the other rows, exaggerated
        case.hold_out(one, one + 0.02 * rng.normal(size=N_ROWS) + 0.05 * case.y)
        empty = replace(case.found.members, coef=0 * case.found.members.coef)
        case.found = replace(case.found, members=empty, n_members=0)
        assert case.blend() is case.found
        assert case.blend(bags_first=True) is not case.found

    def test_bags_stay_alone_where_evidence_adds_nothing(self, case):
        case = case()
        error = np.random.default_rng(5).normal(size=N_ROWS)
        case.hold_out(case.truth + error, case.truth + 0.1 * error)
        assert case.blend().members is case.other.members

    @pytest.mark.parametrize("why", ["another point", "other widths"])
    def test_what_cannot_be_averaged_is_one_or_the_other(self, why, case):
        case = case()
        error = np.random.default_rng(5).normal(size=N_ROWS)
        case.hold_out(case.truth + error, case.truth - 0.5 * error)
        if why == "another point":
            case.found = replace(case.found, features=case.lines)
        else:
            spec = replace(case.found.problem.spec, hidden=(5, 3))
            problem = replace(case.found.problem, spec=spec)
            case.found = replace(case.found, problem=problem)
        assert case.blend().members is case.other.members
        case.hold_out(case.truth + 0.5 * error, case.truth - error)
        assert case.blend() is case.found

    def test_without_time_for_rows_held_out_evidence_stays(self, case):
        case = case()
        case.found = replace(case.found, held_out_eta=None, straight_eta=None)
        assert case.blend() is case.found


def test_a_model_without_features_knows_the_exposure():
    """Its rate is events per exposure, whatever the mean logarithm of that is."""
    rng = np.random.default_rng(0)
    exposure = rng.lognormal(0.0, 1.5, size=200)
    y, share = rng.poisson(0.5 * exposure).astype(float), rng.uniform(1, 2, size=200)
    problem = Problem.in_memory(
        terms=torch.zeros(200, 1, dtype=torch.float64),
        term_feature=torch.zeros(1, dtype=torch.long),
        inputs=torch.zeros(200, 0, dtype=torch.float64),
        y=torch.as_tensor(y),
        offset=torch.as_tensor(np.log(exposure)),
        family=get_family("poisson"),
        spec=make_spec([], 1, (1, 1), "none", True),
    )
    mean = exposure * (share @ y) / (share @ exposure)
    deviance = mean_poisson_deviance(y, mean, sample_weight=share)
    found = _empty_loss(problem, np.arange(200), share)
    assert found == pytest.approx(deviance / 2, rel=1e-9)
