"""One member by Gauss-Newton: steps go down, what is off stays off, numbers are finite.

Shapes: n rows, q term columns, p features, P weights.
"""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
import torch

import sknimo.solver._evidence as evidence_module
from sknimo.datasets import make_nimo_regression
from sknimo.families import FAMILIES, get_family
from sknimo.network import (
    Modulator,
    input_norms,
    keep_inputs,
    make_spec,
    restore_inputs,
    unpack,
)
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    MemoryColumns,
    Problem,
    Rows,
    fit_crew,
    fit_evidence,
    restrict,
    simplify,
    simplify_in_turn,
    start_state,
    trial_options,
)
from sknimo.solver._crew import Crew, _next_damping
from sknimo.solver._member import estimate_dispersion

CHUNK_RTOL = 1e-10  # promised; only the order of sums differs
REPEAT_ATOL = 1e-8  # promised; the order of sums differs and many steps amplify it

OPTIONS = EvidenceOptions()
FEW_STEPS = EvidenceOptions(max_iter=25)

EVERY_FAMILY = pytest.mark.parametrize("family", list(FAMILIES))
# Where every family costs seconds, the log links wait for the slow run.
EITHER_LINK = pytest.mark.parametrize(
    "family",
    [
        "gaussian",
        "binomial",
        pytest.param("poisson", marks=pytest.mark.slow),
        pytest.param("gamma", marks=pytest.mark.slow),
    ],
)


def ones(problem):
    return torch.ones(problem.n_rows, dtype=torch.float64)


def flags(problem, *features):
    """The given features on, the others off; all of them when none is given."""
    chosen = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    chosen[list(features) if features else slice(None)] = True
    return chosen


def alone(problem, weight, start, options):
    """A crew of one."""
    return Crew(problem, weight.unsqueeze(0), [start], options)


def eta_of(problem, state):
    """Linear predictor of a state by the modulator on the full network, (n,)."""
    modulator = Modulator.build(problem.spec, torch.device("cpu"), torch.float64)
    everything = torch.arange(problem.spec.n_features).unsqueeze(0)
    bend = modulator(state.params.unsqueeze(0), problem.inputs, everything)[0]
    design = problem.terms * (1 + bend[:, problem.term_feature])
    return problem.offset + state.intercept + design @ state.coef


def objective(problem, weight, state):
    """`sum w loss / dispersion + sum precision theta**2 / 2`, from the definition."""
    loss = (weight * problem.family.loss(problem.y, eta_of(problem, state))).sum()
    owner = torch.tensor(problem.spec.input_feature)
    weights = unpack(problem.spec, state.params.unsqueeze(0))
    later = (
        weights.code_weight,
        weights.bias,
        weights.second,
        weights.second_bias,
        weights.out,
    )
    precision = state.params_precision
    prior = (state.coef_precision[problem.term_feature] * state.coef.square()).sum()
    prior = prior + (precision[owner] * weights.first[0].square()).sum()
    p = problem.spec.n_features
    for block, values in enumerate(later):
        prior = prior + precision[p + block] * values.square().sum()
    return float(loss / state.dispersion + prior / 2)


class TestSteps:
    @pytest.mark.parametrize("seed", [0, 1])
    @EVERY_FAMILY
    def test_a_step_never_raises_the_penalised_objective(
        self, family, seed, make_problem, begin
    ):
        problem = make_problem(family, widths=(1, 2, 1, 1), offset=True, seed=seed)
        weight = torch.linspace(0.2, 2, problem.n_rows, dtype=torch.float64)
        member = alone(problem, weight, begin(problem, weight, seed, size=1.0), OPTIONS)
        values = [objective(problem, weight, member.expanded()[0])]
        for _ in range(25):
            member.newton_step()
            values.append(objective(problem, weight, member.expanded()[0]))
        slack = 1e-12 * np.abs(values[:-1])
        assert (np.diff(values) <= slack).all()
        assert values[-1] < 0.9 * values[0]

    @EITHER_LINK
    def test_steps_end_where_the_gradient_vanishes(self, family, make_problem, begin):
        problem = make_problem(family, hidden=(2, 2))
        weight = ones(problem)
        member = alone(problem, weight, begin(problem, size=0.5), OPTIONS)
        for _ in range(80):
            member.newton_step()
        state = member.expanded()[0]
        leaves = [
            part.clone().requires_grad_()
            for part in (state.params, state.coef, state.intercept)
        ]
        params, coef, intercept = leaves
        moved = replace(state, params=params, coef=coef, intercept=intercept)
        eta = eta_of(problem, moved)
        loss = (weight * problem.family.loss(problem.y, eta)).sum() / state.dispersion
        gradient = torch.autograd.grad(loss, leaves)
        precision = member._precision()[0]
        pull = precision * torch.cat([state.coef, state.params])
        total = torch.cat([gradient[1], gradient[0]]) + pull
        # Relative to the forces that are in balance there.
        assert total.norm() < 1e-4 * pull.norm()
        assert abs(gradient[2].item()) < 1e-6 * problem.n_rows

    def test_a_compact_member_is_the_full_one_with_zero_columns(
        self, make_problem, begin
    ):
        """Switched-off inputs and features are left out, not just multiplied by 0."""
        problem = make_problem(widths=(1, 2, 1, 1))
        start = begin(problem, size=0.5)
        start = restrict(start, problem, flags(problem, 1, 3), flags(problem, 0, 1, 2))
        member = alone(problem, ones(problem), start, OPTIONS)
        assert member.tangent.inputs.shape[1] == 3
        assert member.coef.shape == (1, 4)
        again = member.expanded()[0]
        assert torch.equal(again.params, start.params)
        assert torch.equal(again.coef, start.coef)

    def test_a_member_that_stands_still_tries_nothing(self, make_problem, begin):
        """At the minimum no amount of damping helps."""
        problem = make_problem(hidden=(2, 2))
        member = alone(problem, ones(problem), begin(problem, size=0.5), OPTIONS)
        for _ in range(300):
            member.newton_step()
        damping, trials = member.damping.clone(), []
        member.tangent.design = lambda *args: trials.append(args)
        member.newton_step()
        assert not trials
        assert member.damping == damping

    def test_an_intercept_out_of_place_is_no_standstill(self, make_problem, begin):
        problem = make_problem(widths=(1,))
        start = begin(problem, inputs=False)
        bare = restrict(
            start, problem, torch.zeros_like(start.support), torch.zeros(1).bool()
        )
        moved = replace(bare, intercept=bare.intercept + 3)
        member = alone(problem, ones(problem), moved, OPTIONS)
        member.newton_step()
        assert member.intercept.item() == pytest.approx(problem.y.mean().item())


class TestMemory:
    """Results do not depend on the budget; `test_memory.py` watches the blocks."""

    @pytest.mark.parametrize("n_rows", [60, 400], ids=["m>n", "m<n"])
    @EITHER_LINK
    def test_blocks_of_rows_change_nothing(self, family, n_rows, make_problem, begin):
        problem = make_problem(family, n_rows=n_rows, widths=(1, 2, 1), hidden=(3, 3))
        weight = torch.linspace(0.5, 1.5, n_rows, dtype=torch.float64)
        members = [
            alone(problem, weight, begin(problem, weight, size=0.5), options)
            for options in (OPTIONS, replace(OPTIONS, memory_budget=0))
        ]
        whole, blocks = members
        assert len(whole.chunks) == 1
        assert len(blocks.chunks) == n_rows
        for member in members:
            member.newton_step()
            member.update_precisions()
            member.newton_step()
            member.update_precisions()
        first, second = whole.expanded()[0], blocks.expanded()[0]
        for name in ("params", "coef", "params_precision", "coef_precision"):
            torch.testing.assert_close(
                getattr(first, name),
                getattr(second, name),
                rtol=CHUNK_RTOL,
                atol=CHUNK_RTOL,
            )
        assert first.log_evidence == pytest.approx(second.log_evidence, abs=1e-9)


class TestSwitchingOff:
    @pytest.mark.parametrize("columns", [(), (0,), (1, 2, 4), (0, 1, 2, 3, 4)])
    def test_kept_inputs_can_be_restored(self, columns, make_problem, make_params):
        spec = make_problem(widths=(2, 1, 1, 1)).spec
        params = make_params(spec, seeds=(0, 1))
        index = torch.tensor(columns, dtype=torch.long)
        small, compact = keep_inputs(spec, params, index)
        restored = restore_inputs(spec, small, compact, index)
        assert small.input_feature == tuple(spec.input_feature[j] for j in columns)
        assert compact.shape == (2, small.n_params)
        before, after = unpack(spec, params), unpack(spec, restored)
        gone = [j for j in range(5) if j not in columns]
        assert torch.equal(after.first[:, :, index], before.first[:, :, index])
        assert not after.first[:, :, gone].any()
        for name in ("code_weight", "bias", "second", "second_bias", "out"):
            assert torch.equal(getattr(after, name), getattr(before, name))

    def test_all_inputs_kept_change_nothing(self, make_problem, make_params):
        spec = make_problem().spec
        params = make_params(spec)
        small, compact = keep_inputs(spec, params, torch.arange(4))
        assert small == spec
        assert torch.equal(compact, params)

    def test_restrict_clears_exactly_what_is_taken_away(self, make_problem, begin):
        problem = make_problem(widths=(2, 1, 1, 1))
        start = replace(begin(problem), coef=torch.arange(1.0, 6.0).double())
        fewer = restrict(start, problem, flags(problem, 1, 3), flags(problem, 0, 2))
        assert fewer.coef.tolist() == [1, 2, 0, 4, 0]
        before = unpack(problem.spec, start.params.unsqueeze(0))
        after = unpack(problem.spec, fewer.params.unsqueeze(0))
        assert not after.first[:, :, [0, 1, 3]].any()
        assert torch.equal(after.first[:, :, [2, 4]], before.first[:, :, [2, 4]])
        rest = before.first[0].numel()
        assert torch.equal(fewer.params[rest:], start.params[rest:])
        assert fewer.support.tolist() == [True, False, True, False]
        assert fewer.input_support.tolist() == [False, True, False, True]

    def test_restrict_leaves_the_original_alone(self, make_problem, begin):
        problem = make_problem()
        start = begin(problem)
        before = start.params.clone()
        nothing = torch.zeros_like(start.support)
        fewer = restrict(start, problem, nothing, nothing)
        assert torch.equal(start.params, before)
        assert start.support.all()
        assert start.input_support.all()
        assert input_norms(problem.spec, fewer.params[None]).tolist() == [[0] * 4]

    def test_restrict_without_a_support_keeps_the_features(self, make_problem, begin):
        problem = make_problem()
        start = begin(problem)
        fewer = restrict(start, problem, flags(problem, 0))
        assert torch.equal(fewer.support, start.support)
        assert torch.equal(fewer.coef, start.coef)

    def test_what_is_off_stays_off(self, make_problem, begin):
        problem = make_problem(widths=(1, 2, 1, 1))
        start = begin(problem)
        start = restrict(start, problem, flags(problem, 1, 3), flags(problem, 0, 2))
        state = fit_evidence(problem, ones(problem), start, FEW_STEPS)
        assert not (state.support & ~start.support).any()
        assert not (state.input_support & ~start.input_support).any()
        assert not state.coef[~state.support[problem.term_feature]].any()
        (norms,) = input_norms(problem.spec, state.params[None])
        assert not norms[~state.input_support].any()
        assert norms[state.input_support].all()

    def test_input_norms_are_those_of_each_feature_s_columns(
        self, make_problem, make_params
    ):
        spec = make_problem(widths=(2, 1, 1, 1)).spec
        params = make_params(spec)
        first = unpack(spec, params).first[0]
        expected = [first[:, :2].norm(), *first[:, 2:].norm(dim=0)]
        torch.testing.assert_close(
            input_norms(spec, params)[0], torch.stack(expected), rtol=1e-14, atol=0
        )


class TestFit:
    @EVERY_FAMILY
    def test_the_same_start_gives_the_same_fit(
        self, family, make_problem, fit, is_finite
    ):
        problem = make_problem(family, widths=(1, 2, 1, 1))
        first, second = fit(problem), fit(problem)
        assert torch.equal(first.params, second.params)
        assert torch.equal(first.coef, second.coef)
        assert first.log_evidence == second.log_evidence
        assert is_finite(first)

    def test_a_fit_leaves_its_start_alone(self, make_problem, begin):
        problem = make_problem()
        start = begin(problem)
        params, coef = start.params.clone(), start.coef.clone()
        fit_evidence(problem, ones(problem), start, FEW_STEPS)
        assert torch.equal(start.params, params)
        assert torch.equal(start.coef, coef)

    @staticmethod
    def draw_easy(seed):
        """A table of a known truth, standardised."""
        data = make_nimo_regression(setting=1, n_samples=150, random_state=seed)
        X = (data.X - data.X.mean(0)) / data.X.std(0)
        problem = Problem.in_memory(
            terms=torch.as_tensor(X),
            term_feature=torch.arange(5),
            inputs=torch.as_tensor(X.copy()),
            y=torch.as_tensor((data.y - data.y.mean()) / data.y.std()),
            offset=torch.zeros(150, dtype=torch.float64),
            family=get_family("gaussian"),
            spec=make_spec(list(range(5)), 5, (8, 8), "binary", True),
        )
        return data, problem

    def test_the_evidence_is_that_of_the_inputs_that_are_left(self, fit, monkeypatch):
        _, problem = self.draw_easy(0)
        bent = fit(problem, options=EvidenceOptions(max_iter=60), optimism=0.1)
        real, calls = Crew.update_precisions, []

        def update(crew):
            calls.append(None)
            if len(calls) == 2:  # the last: from here on every input is dead
                crew.options = replace(crew.options, dead_input=1e-9)
            real(crew)

        monkeypatch.setattr(Crew, "update_precisions", update)
        brief = EvidenceOptions(max_iter=2, burn_in=0)
        state = fit_evidence(problem, ones(problem), bent, brief)
        monkeypatch.undo()
        assert bent.input_support.any() and not state.input_support.any()
        linear = fit(problem, inputs=False)
        assert bent.log_evidence > linear.log_evidence + 100
        assert state.log_evidence < linear.log_evidence + 1

    @pytest.mark.slow
    def test_most_easy_problems_end_with_the_true_supports(self, fit):
        """Of 100 states that were simplified 99 have them, and of inputs 70."""
        options, exact = EvidenceOptions(max_iter=100), []
        for table in range(5):
            data, problem = self.draw_easy(table)
            state = fit(problem, options=options, seed=table, optimism=0.1)
            state = simplify(problem, ones(problem), state, options)
            linear = fit(problem, options=options, inputs=False)
            assert state.log_evidence > linear.log_evidence + 100
            exact.append(
                (
                    state.support.nonzero().flatten().tolist() == data.active.tolist(),
                    state.input_support.nonzero().flatten().tolist()
                    == data.modulating.tolist(),
                )
            )
        assert (np.sum(exact, axis=0) >= [4, 3]).all()

    @EVERY_FAMILY
    def test_a_fit_counts_its_steps(self, family, make_problem, fit):
        problem = make_problem(family)
        assert fit(problem, options=EvidenceOptions(max_iter=5)).n_iter == 5
        assert 9 <= fit(problem, options=FEW_STEPS).n_iter <= 25

    def test_a_fit_that_comes_to_nothing_is_given_up(self, make_problem, fit):
        problem = make_problem("binomial")
        patient = replace(OPTIONS, window=30)
        whole = fit(problem, options=patient)
        for above, n_steps in ((-10.0, whole.n_iter), (5.0, 18), (1e3, 11)):
            options = replace(patient, least=whole.log_evidence + above)
            assert fit(problem, options=options).n_iter == n_steps

    @pytest.mark.parametrize("max_iter", [1, 8, 9, 10])
    @EVERY_FAMILY
    def test_short_fits_are_judged_at_the_dispersion_they_end_with(
        self, family, max_iter, make_problem, begin
    ):
        """Not at the optimism they began with, however few the steps."""
        problem = make_problem(family)
        weight = ones(problem)
        options = EvidenceOptions(max_iter=max_iter)
        state = fit_evidence(problem, weight, begin(problem, optimism=0.02), options)
        member = alone(problem, weight, state, OPTIONS)
        member.update_precisions()
        # Precisions that still move change it by units, optimism by hundreds.
        assert member.log_evidence[0] == pytest.approx(state.log_evidence, abs=30)

    def test_a_fit_after_its_deadline_takes_one_step_and_is_judged(
        self, make_problem, fit, is_finite
    ):
        late = EvidenceOptions(deadline=time.monotonic() - 1)
        state = fit(make_problem(), options=late)
        assert state.n_iter == 1
        assert is_finite(state)

    def test_an_evidence_that_is_no_number_loses(self, make_problem, begin):
        problem = make_problem()
        start = begin(problem)
        broken = replace(start, intercept=torch.tensor(torch.nan).double())
        member = alone(problem, ones(problem), broken, OPTIONS)
        member.update_precisions()
        assert member.log_evidence[0] == -np.inf

    def test_a_known_dispersion_stays_one(self, make_problem, fit):
        problem = make_problem("binomial")
        assert fit(problem, optimism=0.1).dispersion == 1.0


class TestDispersion:
    """How much the rows vary beyond what eta and the family say."""

    @staticmethod
    def rows(family, y, weight=None):
        weight = torch.ones(len(y)) if weight is None else weight
        return Rows(
            torch.as_tensor(y).double(),
            torch.zeros(len(y)).double(),
            weight.double().unsqueeze(0),
            get_family(family),
        )

    @pytest.mark.parametrize("family", ["gaussian", "gamma"])
    def test_it_is_the_mean_deviance_per_free_row(self, family, make_problem):
        problem = make_problem(family)
        rows = self.rows(family, problem.y)
        eta = torch.full_like(problem.y, 0.3)
        deviance = 2 * problem.family.loss(problem.y, eta).sum().item()
        found = estimate_dispersion(rows, eta, 7.0)
        assert found == pytest.approx(deviance / (problem.n_rows - 7), rel=1e-12)

    def test_counts_have_that_of_statsmodels(self):
        """Large means, where Fletcher's correction is small."""
        rng = np.random.default_rng(0)
        X = sm.add_constant(rng.normal(size=(500, 2)))
        mean = np.exp(X @ [3.0, 0.3, -0.2])
        y = rng.negative_binomial(mean / 2, 1 / 3)  # variance three times the mean
        glm = sm.GLM(y, X, family=sm.families.Poisson()).fit(scale="X2")
        eta = torch.as_tensor(np.log(glm.fittedvalues))
        found = estimate_dispersion(self.rows("poisson", y), eta, 3.0)
        assert found == pytest.approx(glm.scale, rel=0.02)
        assert found == pytest.approx(3.0, rel=0.15)

    def test_counts_are_never_taken_for_less_noisy_than_poisson(self):
        y = np.full(50, 4.0)
        eta = torch.full((50,), np.log(4.0)).double()
        assert estimate_dispersion(self.rows("poisson", y), eta, 0.0) == 1.0

    def test_one_count_where_none_was_expected_does_not_decide(self):
        """Pearson's statistic alone would be 10,000."""
        rng = np.random.default_rng(1)
        y = rng.poisson(2.0, size=100).astype(float)
        eta = torch.full((100,), np.log(2.0)).double()
        y[0], eta[0] = 1.0, np.log(1e-6)
        assert estimate_dispersion(self.rows("poisson", y), eta, 1.0) < 2

    def test_rows_of_no_weight_do_not_count(self):
        rng = np.random.default_rng(2)
        y = rng.poisson(2.0, size=100).astype(float)
        eta, weight = torch.full((100,), 0.5).double(), torch.ones(100)
        weight[::2] = 0
        rows = self.rows("poisson", np.where(weight > 0, y, 1e6), weight)
        eta[::2] = 800.0  # overflows
        fewer = estimate_dispersion(self.rows("poisson", y[1::2]), eta[1::2], 1.0)
        assert estimate_dispersion(rows, eta, 1.0) == pytest.approx(fewer, rel=1e-12)

    def test_noise_beyond_poisson_s_widens_the_intervals(self, make_problem, fit):
        """Evidence and precisions use the dispersion that the counts show."""
        problem = make_problem("poisson", n_rows=300)
        rng = np.random.default_rng(3)
        wild = problem.y * torch.as_tensor(rng.exponential(size=300))
        plain = fit(problem, inputs=False)
        noisy = fit(replace(problem, y=wild.round()), inputs=False)
        assert noisy.dispersion > 1.5 * plain.dispersion
        assert noisy.log_evidence < plain.log_evidence


class TestHardCases:
    """Nothing the data can be makes a NaN."""

    CASES = (
        "constant y",
        "more features than rows",
        "duplicated columns",
        pytest.param("two rows", marks=pytest.mark.slow),
    )

    @pytest.fixture
    def hard(self, make_problem, draw_response):
        def hard(case, family):
            if case == "more features than rows":
                return make_problem(family, n_rows=12, widths=(1,) * 20, hidden=(3, 3))
            problem = make_problem(family, n_rows=30, hidden=(3, 3))
            if case == "constant y":
                level = {"gaussian": 0.0, "binomial": 1.0}.get(family, 2.0)
                return replace(problem, y=torch.full_like(problem.y, level))
            if case == "two rows":
                return problem.take(torch.arange(2))
            copied = torch.tensor([0, 0, 1, 1])
            columns = MemoryColumns(problem.terms[:, copied], problem.inputs[:, copied])
            return replace(problem, columns=columns)

        return hard

    @pytest.mark.parametrize(
        "optimism", [0.01, pytest.param(1.0, marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("case", CASES)
    @EVERY_FAMILY
    def test_every_number_is_finite(self, family, case, optimism, hard, fit, is_finite):
        problem = hard(case, family)
        state = fit(problem, optimism=optimism)
        assert is_finite(state)
        assert eta_of(problem, state).isfinite().all()
        assert is_finite(simplify(problem, ones(problem), state, FEW_STEPS))

    @pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
    def test_a_constant_target_needs_no_feature(self, family, hard, fit):
        problem = hard("constant y", family)
        state = fit(problem, options=EvidenceOptions(max_iter=60))
        eta = eta_of(problem, state)
        mean = problem.family.mean(eta)
        torch.testing.assert_close(mean, problem.y, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("inputs", [False, True])
    def test_parted_classes_stay_finite(self, inputs, make_problem, fit, is_finite):
        problem = make_problem("binomial", n_rows=40)
        parted = replace(problem, y=(problem.terms[:, 0] > 0).double())
        state = fit(parted, options=EvidenceOptions(max_iter=60), inputs=inputs)
        assert is_finite(state)
        eta = eta_of(parted, state)
        assert ((eta > 0) == (parted.y > 0.5)).all()
        assert eta.abs().max() < 1e3

    @EVERY_FAMILY
    def test_rows_of_zero_weight_equal_deletion(
        self, family, make_problem, repeat_rows, fit, is_finite
    ):
        problem = make_problem(family, n_rows=40, widths=(1, 2, 1), hidden=(3, 3))
        counts = torch.ones(40, dtype=torch.long)
        counts[::3] = 0
        spoilt = problem.terms.clone()
        spoilt[::3] *= 30.0  # whatever they hold
        columns = replace(problem.columns, terms=spoilt)
        weighted = fit(replace(problem, columns=columns), counts.double())
        shorter = fit(repeat_rows(problem, counts))
        assert is_finite(weighted)
        self.check_equal(weighted, shorter)

    @EVERY_FAMILY
    def test_integer_weights_equal_repetition(
        self, family, make_problem, repeat_rows, fit
    ):
        problem = make_problem(family, n_rows=40, widths=(1, 2, 1), hidden=(3, 3))
        counts = torch.arange(40) % 3 + 1
        weighted = fit(problem, counts.double())
        repeated = fit(repeat_rows(problem, counts))
        self.check_equal(weighted, repeated)

    @staticmethod
    def check_equal(first, second):
        assert torch.equal(first.support, second.support)
        assert torch.equal(first.input_support, second.input_support)
        for name in ("params", "coef", "intercept"):
            torch.testing.assert_close(
                getattr(first, name), getattr(second, name), rtol=0, atol=REPEAT_ATOL
            )
        assert first.log_evidence == pytest.approx(second.log_evidence, rel=REPEAT_ATOL)
        assert first.dispersion == pytest.approx(second.dispersion, rel=REPEAT_ATOL)


class TestSimplify:
    """A needed input stays, an idle one goes; the same for features."""

    @pytest.fixture
    def fitted(self, begin):
        """`y = x0 (1 + tanh(2 x1)) + noise`; features 2 and 3 are idle."""
        rng = np.random.default_rng(3)
        terms = rng.normal(size=(150, 4))
        terms = (terms - terms.mean(0)) / terms.std(0)
        y = terms[:, 0] * (1 + np.tanh(2 * terms[:, 1])) + 0.1 * rng.normal(size=150)
        problem = Problem.in_memory(
            terms=torch.as_tensor(terms),
            term_feature=torch.arange(4),
            inputs=torch.as_tensor(terms.copy()),
            y=torch.as_tensor(y),
            offset=torch.zeros(150, dtype=torch.float64),
            family=get_family("gaussian"),
            spec=make_spec(list(range(4)), 4, (5, 5), "binary", True),
        )
        # Too few updates for the idle ones to die by themselves.
        options = EvidenceOptions(max_iter=11)
        start = begin(problem, optimism=0.1)
        return problem, fit_evidence(problem, ones(problem), start, options)

    def test_idle_inputs_go_and_the_needed_one_stays(self, fitted):
        problem, state = fitted
        assert state.input_support[2:].any()  # something to remove
        simple = simplify(problem, ones(problem), state, EvidenceOptions())
        assert simple.input_support.tolist() == [False, True, False, False]
        (norms,) = input_norms(problem.spec, simple.params[None])
        assert not norms[[0, 2, 3]].any()

    def test_idle_features_go_and_the_needed_one_stays(self, fitted):
        problem, state = fitted
        simple = simplify(problem, ones(problem), state, EvidenceOptions())
        assert simple.support.tolist() == [True, False, False, False]
        assert not simple.coef[1:].any()

    def test_nothing_costs_more_evidence_than_the_margins_allow(self, fitted):
        problem, state = fitted
        options = EvidenceOptions()
        simple = simplify(problem, ones(problem), state, options)
        n_gone = int(state.support.sum() - simple.support.sum())
        n_inputs_gone = int(state.input_support.sum() - simple.input_support.sum())
        allowed = options.feature_margin * n_gone + options.input_margin * n_inputs_gone
        assert simple.log_evidence > state.log_evidence - allowed

    def test_an_infinite_margin_removes_everything(self, fitted):
        problem, state = fitted
        options = EvidenceOptions(feature_margin=np.inf, input_margin=np.inf)
        simple = simplify(problem, ones(problem), state, options)
        assert not simple.support.any()
        assert not simple.input_support.any()
        mean = problem.y.mean().item()
        assert simple.intercept.item() == pytest.approx(mean, rel=1e-6)

    def test_trials_take_no_more_steps_than_a_fit_may(self, fitted, monkeypatch):
        problem, state = fitted
        asked = []

        def watched(problem, weight, starts, options):
            asked.append(options.max_iter)
            return fit_crew(problem, weight, starts, options)

        monkeypatch.setattr(evidence_module, "fit_crew", watched)
        simplify(problem, ones(problem), state, EvidenceOptions(max_iter=7))
        assert asked
        assert max(asked) == 7

    def test_hopeless_trials_without_an_input_end_early_and_change_nothing(
        self, fitted, monkeypatch
    ):
        problem, state = fitted
        n_steps, found = [], []

        def watched(problem, weight, starts, options):
            ends = fit_crew(problem, weight, starts, options)
            n_steps[-1] += sum(
                e.n_iter - s.n_iter for s, e in zip(starts, ends, strict=True)
            )
            return ends

        monkeypatch.setattr(evidence_module, "fit_crew", watched)
        for gain in (evidence_module.GAINS_TO_COME, 1e9):
            monkeypatch.setattr(evidence_module, "GAINS_TO_COME", gain)
            n_steps.append(0)
            options = EvidenceOptions()
            found.append(simplify(problem, ones(problem), state, options))
        assert n_steps[0] < n_steps[1]
        assert torch.equal(found[0].params, found[1].params)

    @pytest.mark.parametrize(
        ("trace", "hopeless"),
        [
            ([-2695.0, -364.0, -241.0], False),  # it gains more than it lacks
            ([-9.8, -6.3, -6.3], False),  # a step without any
            ([-9000.0, -751.0, -748.0], True),
            ([-9000.0, -751.0, -np.inf], True),
        ],
    )
    def test_trials_are_given_up_by_what_their_last_gain_promises(
        self, trace, hopeless
    ):
        brief = trial_options(EvidenceOptions(least=-1.0), inputs=True)
        assert evidence_module._hopeless([trace], len(trace), brief) == hopeless
        among = [trace, [-5.0, -3.0, -1.0]]
        assert not evidence_module._hopeless(among, len(trace), brief)

    def test_trials_that_are_one_program_lead_where_single_ones_do(
        self, fitted, monkeypatch
    ):
        problem, state = fitted
        both = []
        for size in (1, 5):
            monkeypatch.setattr(evidence_module, "crew_size", lambda *_, k=size: k)
            both.append(simplify(problem, ones(problem), state, EvidenceOptions()))
        one, other = both
        assert torch.equal(one.support, other.support)
        assert torch.equal(one.input_support, other.input_support)
        assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-3)

    def test_bolder_margins_go_on_from_the_careful_ones_without_their_trials(
        self, fitted, monkeypatch
    ):
        problem, state = fitted
        careful, bold = EvidenceOptions(), EvidenceOptions(faint_slack=4.0)
        one = simplify(problem, ones(problem), state, careful)
        other = simplify(problem, ones(problem), one, bold)
        n_trials = []

        def watched(problem, weight, starts, options):
            n_trials.append(len(starts))
            return fit_crew(problem, weight, starts, options)

        monkeypatch.setattr(evidence_module, "fit_crew", watched)
        both = simplify_in_turn(problem, ones(problem), state, [careful, bold])
        assert [each.log_evidence for each in both] == [
            one.log_evidence,
            other.log_evidence,
        ]
        n_both = sum(n_trials)
        simplify(problem, ones(problem), state, careful)
        simplify(problem, ones(problem), one, bold)
        assert n_both < sum(n_trials) - n_both

    def test_the_weakest_go_several_at_a_time_while_that_succeeds(self):
        tried = list(evidence_module._tried([7, 5, 3, 1, 0], halve=True))
        assert tried == [[7, 5], [7], [5, 3], [5], [3], [1], [0]]
        assert list(evidence_module._tried([7, 5], halve=False)) == [[7], [5]]

    def test_no_trial_begins_after_the_deadline(self, fitted):
        problem, state = fitted
        late = EvidenceOptions(deadline=time.monotonic() - 1)
        assert simplify(problem, ones(problem), state, late) is state

    def test_a_state_without_network_is_left_alone(self, fitted):
        problem, state = fitted
        bare = restrict(state, problem, torch.zeros(4, dtype=torch.bool))
        linear = fit_evidence(problem, ones(problem), bare, EvidenceOptions())
        simple = simplify(problem, ones(problem), linear, EvidenceOptions())
        assert not simple.input_support.any()
        assert simple.support[0]


def test_start_state_is_the_glm(make_problem, make_params):
    """The start keeps the coefficients given; its dispersion is what the GLM leaves."""
    problem = make_problem(widths=(1, 2, 1))
    weight = torch.linspace(0.5, 2, problem.n_rows, dtype=torch.float64)
    at = Coefficients(
        torch.tensor([[0.5, 0.2, -0.1, 0.3]], dtype=torch.float64),
        torch.tensor([0.1], dtype=torch.float64),
    )
    support = torch.tensor([True, False, True])
    params = make_params(problem.spec)[0]
    everything = flags(problem)
    start = start_state(problem, weight, params, at, support, everything, 0.5)
    residual = problem.y - 0.1 - problem.terms @ at.coef[0]
    spread = (weight * residual.square()).sum() / weight.sum()
    assert start.dispersion == pytest.approx(0.5 * spread.item(), rel=1e-12)
    assert start.coef.tolist() == [0.5, 0.0, 0.0, 0.3]
    assert start.intercept.item() == 0.1
    assert torch.equal(start.params, params)
    assert start.log_evidence == -np.inf


def test_damping_rises_before_a_step_fails():
    """Gains are shares of what the linearised loss promised, which is half of this."""
    promise = torch.full((6,), 2.0)
    gain = torch.tensor([1.0, 0.8, 0.5, 0.1, -0.1, math.nan])
    factor = _next_damping(gain, promise).tolist()
    assert factor == pytest.approx([1 / 3, 1 / 3, 1.0, 2.0, 4.0, 4.0])
