"""Restarts run side by side; those that fail are left out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import sknimo.search._runner as runner_module
from sknimo.search._runner import (
    Crewed,
    Start,
    Try,
    View,
    fit_linear_crew,
    fit_linear_evidence,
    in_crews,
    run_crew,
)
from sknimo.solver import LARGEST_CREW, Coefficients, EvidenceOptions

# Sums of a crew are in another order; steps carry that on.
CREW_RTOL = 1e-6


def test_restarts_that_are_missing_in_the_middle_leave_the_others_in_place(
    make_problem, make_state, make_start, make_runner, monkeypatch
):
    """Each state stays with its own start, whichever starts find no time."""
    problem = make_problem()
    state = make_state(problem)

    def some(problem, tries, options):
        seeds = [each.start.seed for each in tries]
        if 1 not in seeds:
            found = [replace(state, log_evidence=10.0 * seed) for seed in seeds]
            return Crewed(tuple(found))

    monkeypatch.setattr(runner_module, "run_crew", some)
    monkeypatch.setattr(runner_module, "crew_size", lambda problem: 1)
    starts = [make_start(seed) for seed in range(4)]
    view = View(problem)
    done = make_runner(problem).run(view, starts, None)
    assert [restart.start.seed for restart in done] == [0, 2, 3]
    assert [restart.log_evidence for restart in done] == [0.0, 20.0, 30.0]
    assert all(restart.view is view for restart in done)


def test_a_restart_that_is_no_number_is_left_out(make_task, monkeypatch):
    real, seeds = runner_module.run_crew, []

    def some(problem, tries, options):
        states = list(real(problem, tries, options).states)
        if not seeds:
            states[0] = replace(states[0], log_evidence=-np.inf)
        seeds.extend(each.start.seed for each in tries)
        return Crewed(tuple(states))

    monkeypatch.setattr(runner_module, "run_crew", some)
    outcome = make_task().search(n_starts=3)
    assert seeds[0] not in outcome.trials["seed"]
    assert np.isfinite(outcome.trials["log_evidence"]).all()
    assert outcome.n_members > 0


@pytest.mark.parametrize("count", [0, 1, 2, 5, 11])
def test_crews_have_all_members_in_order_and_a_second_process_its_half(
    count, make_problem
):
    crews = in_crews(list(range(count)), make_problem())
    sizes = [len(crew) for crew in crews]
    assert [k for crew in crews for k in crew] == list(range(count))
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert max(sizes, default=0) <= LARGEST_CREW
    assert len(crews) >= min(count, 2)


@pytest.mark.parametrize(("least", "n_crews"), [(-np.inf, 2), (-1e6, 1)])
def test_restarts_that_may_be_given_up_together_are_one_crew(
    least, n_crews, make_problem, make_start, make_runner, monkeypatch
):
    """In two, one of them would be given up although the other succeeds."""
    runner = make_runner(make_problem(), max_iter=1)
    at = Coefficients(torch.full((1, 4), 0.1).double(), torch.zeros(1).double())
    asked, usual = [], runner.map

    def count(*args):
        asked.append(len(args[-1]))
        return usual(*args)

    monkeypatch.setattr(runner, "map", count)
    runner.run(View(make_problem()), [make_start(k) for k in range(4)], at, least)
    assert asked == [n_crews]


@pytest.mark.parametrize("n_busy", [0, 1])
def test_restarts_in_two_processes_have_the_same_bits(
    n_busy, make_problem, make_start, make_runner, monkeypatch
):
    problem = make_problem(n_rows=90)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    at = Coefficients(torch.full((1, 4), 0.1).double(), torch.zeros(1).double())
    starts = [make_start(seed) for seed in range(5)]

    def fit(n_processes):
        runner = make_runner(problem, max_iter=6, n_processes=n_processes)
        runner.n_busy = lambda: n_busy
        return runner.run(View(problem), starts, at)

    for one, other in zip(fit(1), fit(2), strict=True):
        assert one.start == other.start
        assert one.log_evidence == other.log_evidence
        assert torch.equal(one.state.params, other.state.params)


def test_a_crew_ends_where_its_members_end_alone(make_problem, make_runner):
    """Members that keep other features and inputs, on rows that count otherwise."""
    problem = make_problem(n_rows=90, widths=(1, 2, 1, 1))
    at = Coefficients(torch.full((1, 5), 0.1).double(), torch.zeros(1).double())
    shown = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 1], [0, 0, 0, 0]]) > 0
    weights = torch.ones(4, 90, dtype=torch.float64)
    weights[1, :30], weights[2, 60:] = 0.0, 2.0
    tries = [
        Try(weight, Start("wide", k, 0.3, 0.5, shown[0], inputs), at)
        for k, (weight, inputs) in enumerate(zip(weights, shown, strict=True))
    ]
    options = EvidenceOptions(max_iter=14)
    together = run_crew(problem, tries, options).states
    for own, each in zip(together, tries, strict=True):
        (alone,) = run_crew(problem, [each], options).states
        assert torch.equal(own.support, alone.support)
        assert torch.equal(own.input_support, alone.input_support)
        assert own.n_iter == alone.n_iter
        assert own.log_evidence == pytest.approx(alone.log_evidence, rel=CREW_RTOL)
        torch.testing.assert_close(own.coef, alone.coef, rtol=CREW_RTOL, atol=1e-9)


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_linear_fits_of_several_folds_are_those_of_each(family, make_problem):
    problem, options = make_problem(family=family), EvidenceOptions()
    generator = torch.Generator().manual_seed(0)
    shape = 3, problem.n_rows
    weights = (torch.rand(shape, generator=generator) < 0.8).double()
    begin = Coefficients(torch.zeros(1, problem.n_terms).double(), torch.zeros(1))
    together = fit_linear_crew(problem, weights, [begin] * 3, options).states
    for weight, state in zip(weights, together, strict=True):
        alone = fit_linear_evidence(problem, weight, begin, options)
        assert state.log_evidence == pytest.approx(alone.log_evidence, rel=CREW_RTOL)
        assert torch.equal(state.support, alone.support)
