"""A run that is killed and called again ends with the same bits.

Shapes: K models, n rows, P weights.
"""

import dataclasses
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from sknimo.checkpoint import Checkpoint
from sknimo.solver import Options, Solution, solve
from sknimo.solver._outer import _Run, _Saver

WAYS = {
    "all rows": dict(),
    "noise": dict(noise=0.2),
    "blocks": dict(memory_budget=60_000, noise=0.2),
    "batches": dict(batch_size=16, noise=0.2),
    "single": dict(batch_size=16, dtype=torch.float32),
}
N_KILLS = 1
N_KILLS_SLOW = 20


class KilledError(Exception):
    """Raised where a process would die."""


def assert_identical(left: Solution, right: Solution):
    for field in dataclasses.fields(Solution):
        one, two = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, torch.Tensor):
            assert one.dtype is two.dtype
            assert np.array_equal(one.numpy(), two.numpy(), equal_nan=True), field.name
    assert left.status == right.status
    for field in dataclasses.fields(left.history):
        one, two = getattr(left.history, field.name), getattr(right.history, field.name)
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)


@pytest.fixture
def task(make_problem, make_members):
    """A run that ends early, or at its last step."""

    def make(way, family="gaussian", store=None, patience=4):
        problem = make_problem(family, n_rows=80, widths=(1, 2, 1))
        held_out = torch.arange(80) % 4 == 0
        members = make_members(
            problem,
            alpha=0.001,
            network_alpha=1.0,
            weight=~held_out,
            validation=held_out,
        )
        settings = dict(
            max_iter=60,
            check_every=3,
            patience=patience,
            learning_rate=0.05,
            scale_contributions=True,
            checkpoint_seconds=0.0,
        )
        options = Options(**(settings | WAYS[way]))
        return problem if store is None else store(problem), members, options

    return make


@pytest.mark.parametrize(
    "family", ["gaussian", pytest.param("poisson", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("patience", [2, 60])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_run_broken_off_at_any_step_goes_on_as_if_nothing_had_happened(
    way, patience, family, task, tmp_path, monkeypatch
):
    problem, members, options = task(way, family, patience=patience)
    expected = solve(problem, members, options)
    end = int(expected.n_iter)
    assert (end < options.max_iter) == (patience < 60)
    step = _Run.step
    # Before the first state, right after one half way, and between the last two.
    half_way = end // 2 // options.check_every * options.check_every - 1
    for last in {1, half_way, end - 2}:

        def break_off(self, number, last=last):
            if number > last:
                raise KilledError
            step(self, number)

        checkpoint = Checkpoint.open(tmp_path / f"{last}", "test")
        with monkeypatch.context() as patch:
            patch.setattr(_Run, "step", break_off)
            with pytest.raises(KilledError):
                solve(problem, members, options, checkpoint=checkpoint)
        saved = checkpoint.load("solve")
        assert (saved is None) == (last < options.check_every - 1)
        if saved is not None:
            assert saved.facts["next_step"] <= last + 1
        resumed = solve(problem, members, options, checkpoint=checkpoint)
        assert_identical(resumed, expected)


def test_a_resumed_run_does_not_begin_again(task, tmp_path, monkeypatch):
    problem, members, options = task("batches")
    checkpoint = Checkpoint.open(tmp_path, "test")
    step, seen = _Run.step, []

    def break_off(self, number):
        seen.append(number)
        if seen.count(20) == 1 and number == 20:
            raise KilledError
        step(self, number)

    monkeypatch.setattr(_Run, "step", break_off)
    with pytest.raises(KilledError):
        solve(problem, members, options, checkpoint=checkpoint)
    solve(problem, members, options, checkpoint=checkpoint)
    assert seen[20] == 20
    assert seen[21] == 18  # the last check before


def test_a_finished_run_returns_its_solution_at_once(task, tmp_path, monkeypatch):
    problem, members, options = task("all rows")
    checkpoint = Checkpoint.open(tmp_path, "test")
    first = solve(problem, members, options, checkpoint=checkpoint)
    monkeypatch.setattr(_Run, "begin", None)
    monkeypatch.setattr(_Run, "resume", None)
    again = solve(problem, members, options, checkpoint=checkpoint)
    assert_identical(first, again)


def test_two_runs_may_share_a_folder(task, tmp_path):
    problem, members, options = task("all rows")
    checkpoint = Checkpoint.open(tmp_path, "test")
    first = solve(problem, members, options, checkpoint=checkpoint, name="trials")
    some = dataclasses.replace(members, seeds=(1,))
    second = solve(problem, some, options, checkpoint=checkpoint, name="members")
    assert not torch.equal(first.params, second.params)


def test_stored_rows_are_read_again_after_a_break(task, store, tmp_path, monkeypatch):
    problem, members, options = task("batches", store=store)
    expected = solve(problem, members, options)
    step = _Run.step

    def break_off(self, number):
        if number == 13:
            raise KilledError
        step(self, number)

    checkpoint = Checkpoint.open(tmp_path / "states", "test")
    with monkeypatch.context() as patch:
        patch.setattr(_Run, "step", break_off)
        with pytest.raises(KilledError):
            solve(problem, members, options, checkpoint=checkpoint)
    assert_identical(solve(problem, members, options, checkpoint=checkpoint), expected)


def test_states_are_not_saved_more_often_than_asked_for(task, tmp_path, monkeypatch):
    problem, members, options = task("all rows")
    saves = []
    save = _Saver.save

    def count(self, state):
        saves.append(state.facts["finished"])
        save(self, state)

    monkeypatch.setattr(_Saver, "save", count)
    checkpoint = Checkpoint.open(tmp_path, "test")
    rarely = dataclasses.replace(options, checkpoint_seconds=1e6)
    solve(problem, members, rarely, checkpoint=checkpoint)
    assert saves == [True]


def test_what_is_kept_is_in_the_state_and_rows_are_not(task):
    problem, members, options = task("all rows")
    run = _Run.begin(problem, members, options)
    while not run.finished:
        run.step(run.next_step)
    state = run.state()
    assert state.facts["ended"]
    assert torch.equal(state.tensors["live.kept.params"], run.live.kept.params)
    per_row = [name for name, value in state.tensors.items() if 80 in value.shape]
    # Nothing that belongs to rows or to one rank, except the order of the batches.
    assert set(per_row) <= {"batches.order"}


KILLED_FIT = """
import sys
import numpy as np
import torch

from sknimo.checkpoint import Checkpoint
from sknimo.families import get_family
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Options, Problem, solve

torch.set_num_threads(1)
rng = np.random.default_rng(0)
n, p = 400, 5
terms = torch.as_tensor(rng.normal(size=(n, p)))
y = terms[:, 0] * (1 + terms[:, 1].tanh()) + 0.2 * torch.as_tensor(rng.normal(size=n))
problem = Problem.in_memory(
    terms=terms, inputs=terms, term_feature=torch.arange(p), y=y,
    offset=torch.zeros_like(y), family=get_family("gaussian"),
    spec=make_spec(range(p), p, (6, 6)),
)
members = Members(
    make_penalty("lasso", torch.tensor([0.01, 0.05]).double(), torch.arange(p), p),
    torch.tensor([0.0, 0.3]).double(), (0, 1),
    torch.full((2, n), 1 / n, dtype=torch.float64), None,
)
options = Options(
    max_iter=int(sys.argv[2]), check_every=5, patience=10**6, noise=0.1,
    batch_size=64, scale_contributions=True, checkpoint_seconds=0.0,
)
checkpoint = Checkpoint.open(sys.argv[1], "test")
print("ready", flush=True)
solution = solve(problem, members, options, checkpoint=checkpoint)
print(solution.params.numpy().tobytes().hex(), solution.coef.numpy().tobytes().hex())
print(solution.history.objective.tobytes().hex(), solution.n_iter.tolist())
"""


def saved_step(folder, n_iter):
    """Steps that the saved run has made; a state that is not whole raises."""
    saved = Checkpoint(folder, "test").load("solve")
    if saved is None:
        return 0
    return n_iter if saved.facts["finished"] else saved.facts["next_step"]


def run_killed(folder, n_iter, n_kills):
    """Kill the fit at random moments, all along, then let it end; what it prints."""
    moments = random.Random(0)
    command = [sys.executable, "-c", KILLED_FIT, str(folder), str(n_iter)]
    for k in range(n_kills):
        least = n_iter * (k + moments.random()) / (n_kills + 1)
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline() == "ready\n"
        while saved_step(folder, n_iter) < least:
            assert worker.poll() is None
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.02))
        worker.kill()
        worker.communicate()
        assert worker.returncode != 0
        assert least <= saved_step(folder, n_iter) < n_iter
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


@pytest.mark.parametrize(
    ("n_kills", "n_iter"),
    [
        (N_KILLS, 500),
        pytest.param(N_KILLS_SLOW, 3000, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_process_killed_at_random_moments_ends_with_the_same_model(
    n_kills, n_iter, tmp_path
):
    expected = run_killed(tmp_path / "whole", n_iter, 0)
    found = run_killed(tmp_path / "killed", n_iter, n_kills)
    assert found == expected
