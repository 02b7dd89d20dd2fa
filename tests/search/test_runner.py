"""Restarts run side by side; those that fail are left out."""

from dataclasses import replace

import numpy as np

import sknimo.search._runner as runner_module
from sknimo.search._runner import View


def test_restarts_that_are_missing_in_the_middle_leave_the_others_in_place(
    make_problem, make_state, make_start, make_runner, monkeypatch
):
    """Each state stays with its own start, whichever starts find no time."""
    problem = make_problem()
    state = make_state(problem)

    def some(problem, weight, start, at, options):
        if start.seed != 1:
            return replace(state, log_evidence=10.0 * start.seed)

    monkeypatch.setattr(runner_module, "run_start", some)
    starts = [make_start(seed) for seed in range(4)]
    view = View(problem)
    done = make_runner(problem).run(view, starts, None)
    assert [restart.start.seed for restart in done] == [0, 2, 3]
    assert [restart.log_evidence for restart in done] == [0.0, 20.0, 30.0]
    assert all(restart.view is view for restart in done)


def test_a_restart_that_is_no_number_is_left_out(make_task, monkeypatch):
    real, seeds = runner_module.run_start, []

    def some(problem, weight, start, *rest):
        seeds.append(start.seed)
        state = real(problem, weight, start, *rest)
        return replace(state, log_evidence=-np.inf) if len(seeds) == 1 else state

    monkeypatch.setattr(runner_module, "run_start", some)
    outcome = make_task().search(n_starts=3)
    assert seeds[0] not in outcome.trials["seed"]
    assert np.isfinite(outcome.trials["log_evidence"]).all()
    assert outcome.n_members > 0
