"""Lines, curves or both: held-out rows decide, and the average is one model.

Shapes: n rows, m rows held out, q terms, p features.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sknimo import NIMORegressorCV
from sknimo.search._blend import (
    Fit,
    Part,
    average,
    decide,
    glm_parts,
    make_options,
    straight_columns,
    without_curves,
)
from sknimo.search._verdict import HeldOut, judge
from sknimo.solver import Coefficients

N_ROWS = 60
QUICK = {"n_starts": 2, "max_iter": 25, "hidden": (4, 4), "cv": 3, "random_state": 0}


@pytest.fixture
def make_fit(make_problem):
    """A finished search whose members predict `eta` of the rows held out.

    States are told apart by their intercepts.
    """

    def make(agreed=None, loose=None, glm=None, name=1.0, curved=True, held_out=True):
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
        runner = SimpleNamespace(problem=problem)
        return Fit(runner, None, None, *pools, at, held if held_out else None)

    return make


@pytest.fixture
def y(make_problem):
    return make_problem(n_rows=N_ROWS, widths=(1, 2, 1)).y.numpy()


def names(parts):
    return [float(part.intercept) for part in parts]


ONES = np.ones(N_ROWS)


class TestDecide:
    def test_a_network_that_predicts_held_out_rows_is_returned(self, make_fit, y):
        parts, verdict = decide(make_fit(agreed=y + 0.1), None, 10, ONES)
        assert names(parts) == [1.0]
        assert verdict.keeps_network

    def test_a_network_that_does_not_is_not(self, make_fit, y):
        parts, verdict = decide(make_fit(agreed=y + 1.1), None, 10, ONES)
        assert parts is None
        assert verdict.gain < 0

    def test_without_a_network_there_is_nothing_to_judge(self, make_fit):
        assert decide(make_fit(), make_fit(), 10, ONES) == (None, None)

    def test_without_time_the_evidence_decides(self, make_fit, y):
        parts, verdict = decide(make_fit(agreed=y + 9, held_out=False), None, 10, ONES)
        assert names(parts) == [1.0]
        assert verdict is None

    def test_errors_that_cancel_call_for_the_average(self, make_fit, y):
        noise = 0.3 * np.random.default_rng(0).normal(size=N_ROWS)
        curved = make_fit(agreed=y + noise)
        lines = make_fit(agreed=y - noise, name=2.0, curved=False)
        parts, _ = decide(curved, straighten(lines), 10, ONES)
        assert names(parts) == [1.0, 2.0]

    @pytest.mark.parametrize("better", ["curves", "lines"])
    def test_a_kind_that_is_clearly_better_is_returned_alone(self, better, make_fit, y):
        """The average with a kind that fails would be worse than the other alone."""
        good, bad = y + 0.01, y + 0.5
        curved, lines = (good, bad) if better == "curves" else (bad, good)
        fit = make_fit(agreed=curved)
        other = straighten(make_fit(agreed=lines, name=2.0))
        parts, _ = decide(fit, other, 10, ONES)
        assert names(parts) == [1.0 if better == "curves" else 2.0]

    def test_restarts_within_supports_of_their_own_must_be_better(self, make_fit, y):
        better = make_fit(agreed=y + 0.2, loose=y + 0.1)
        worse = make_fit(agreed=y + 0.1, loose=y + 0.2)
        for fit, pool in ((better, "loose"), (worse, "agreed")):
            _, verdict = decide(fit, None, 10, ONES)
            expected = judge(
                fit.runner.problem, fit.held_out, getattr(fit.held_out, pool), ONES
            )
            assert verdict.gain == expected.gain

    def test_one_member_is_never_an_average(self, make_fit, y):
        fit = make_fit(agreed=y + 0.1)
        other = straighten(make_fit(agreed=y - 0.1, name=2.0))
        parts, _ = decide(fit, other, 1, ONES)
        assert len(parts) == 1

    def test_a_curved_glm_joins_where_only_lines_have_a_network(self, make_fit, y):
        fit = make_fit(glm=y + 0.3)
        other = straighten(make_fit(agreed=y - 0.3, name=2.0))
        parts, _ = decide(fit, other, 10, ONES)
        assert names(parts) == [0.0, 2.0]
        assert not parts[0].modulated.any()


def straighten(fit):
    """The same members without the coefficient of the curve."""
    kept = straight_columns(fit.runner.problem)
    for state in (*fit.agreed, *fit.loose):
        state.coef = state.coef[:-1] if len(kept) == len(state.coef) else state.coef
    return fit


class TestParts:
    def test_both_kinds_weigh_the_same_whatever_their_numbers(self, make_fit, y):
        option = make_fit(agreed=y).option("agreed")
        (part,) = option.parts
        few = replace(option, parts=[replace(part, intercept=torch.tensor(1.0))] * 2)
        many = replace(option, parts=[replace(part, intercept=torch.tensor(2.0))] * 7)
        both = average(few, many, 10)
        assert names(both.parts) == [1.0] * 5 + [2.0] * 5
        assert names(average(few, few, 10).parts) == [1.0] * 4

    def test_a_straight_member_has_no_curves(self, make_fit, y):
        fit = make_fit(agreed=y)
        other = straighten(make_fit(agreed=y, name=2.0))
        lines = make_options(fit, other, "agreed", 10)[-1]
        assert lines.parts[0].coef.tolist() == [1.0, 1.0, 0.0, 1.0]

    def test_a_glm_is_a_member_without_a_network(self, make_fit):
        spec = make_fit().runner.problem.spec
        at = Coefficients(torch.tensor([[2.0, 3.0]]), torch.tensor([1.0]))
        (part,) = glm_parts(spec, at)
        assert isinstance(part, Part)
        assert part.coef.tolist() == [2.0, 3.0]
        assert not part.modulated.any()
        assert not part.params.any()

    def test_curves_leave_and_all_else_stays(self, make_fit):
        problem = make_fit().runner.problem
        lines = without_curves(problem)
        kept = straight_columns(problem)
        assert kept.tolist() == [True, True, False, True]
        assert torch.equal(lines.terms, problem.terms[:, kept])
        assert torch.equal(lines.inputs, problem.inputs)
        assert lines.term_feature.tolist() == [0, 1, 2]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(150, 3))
    y = 2 * X[:, 0] ** 2 + X[:, 1] * (1 + X[:, 2]) + 0.1 * rng.normal(size=150)
    return X, y


@pytest.fixture(scope="module")
def fitted(rows):
    return NIMORegressorCV(**QUICK).fit(*rows)


class TestSearch:
    """The whole of it, on rows with a curve and a product."""

    def test_a_table_with_curves_is_searched_with_and_without(self, fitted):
        stages = fitted.cv_results_["stage"]
        assert any(stage.startswith("straight") for stage in stages)
        assert any(not stage.startswith("straight") for stage in stages)

    def test_the_returned_model_has_the_curve_and_the_product(self, fitted, rows):
        X, y = rows
        assert fitted.n_members_ > 0
        assert np.mean((fitted.predict(X) - y) ** 2) < 0.03

    def test_the_gradient_at_the_reference_is_the_coefficient(self, fitted):
        step = 1e-5 * np.eye(3)
        at = fitted.reference_
        slope = (fitted.predict(at + step) - fitted.predict(at - step)) / 2e-5
        assert slope == pytest.approx(fitted.coef_, abs=1e-6)

    def test_a_table_of_lines_is_searched_once(self, rows):
        X, _ = rows
        noise = np.random.default_rng(0).normal(size=150)
        est = NIMORegressorCV(**QUICK).fit(X, X @ [1.0, 2.0, 0.0] + noise)
        assert not any(s.startswith("straight") for s in est.cv_results_["stage"])

    def test_processes_do_not_change_the_answer(self, fitted, rows):
        again = NIMORegressorCV(**QUICK, n_jobs=2).fit(*rows)
        assert np.array_equal(again.predict(rows[0]), fitted.predict(rows[0]))
