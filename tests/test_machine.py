"""Tasks run once each, on threads for which torch computes alone, or in a fork."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import joblib
import pytest
import torch

from sknimo import machine
from sknimo.machine import (
    all_threads,
    count_processes,
    run_alone,
    share_out,
    torch_threads,
    work_beside,
)

FORKED = """
import os, torch
from sknimo.machine import run_alone
torch.set_num_threads(2)
run_alone(lambda task: None, range(4))
if os.fork() == 0:
    done = []
    run_alone(done.append, range(4))
    os._exit(sorted(done) != [0, 1, 2, 3])
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""

# Enough rows that torch spreads an operation over its threads in the parent.
FORKED_FITS = """
import joblib, numpy as np, torch
from sknimo import NIMORegressor
torch.set_num_threads(2)
rng = np.random.default_rng(0)
X = rng.normal(size=(21_000, 3))
def predict(task):
    est = NIMORegressor(max_iter=1, random_state=0, device="cpu")
    return est.fit(X, X[:, 0]).predict(X[:50])
here = predict(0)
there = joblib.Parallel(2, backend="multiprocessing")([joblib.delayed(predict)(0)] * 2)
raise SystemExit(not all(np.allclose(here, each, rtol=1e-9) for each in there))
"""


@pytest.fixture(params=[1, 2, 3])
def n_threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_every_task_is_done_once(n_threads):
    done = []
    run_alone(done.append, range(100))
    assert sorted(done) == list(range(100))
    run_alone(done.append, [])
    assert len(done) == 100


def test_tasks_run_side_by_side_with_torch_on_one_thread(n_threads):
    meeting = threading.Barrier(n_threads, timeout=60)
    found = []

    def work(task):
        meeting.wait()  # passes only if as many tasks are under way
        found.append((torch.get_num_threads(), torch.is_inference_mode_enabled()))

    run_alone(work, range(n_threads))
    assert found == [(1, True)] * n_threads


def test_threads_of_torch_are_as_before(n_threads):
    run_alone(lambda task: torch.ones(4, 4) @ torch.ones(4, 4), range(8))
    assert torch.get_num_threads() == n_threads
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert elsewhere == [n_threads]
    assert not torch.is_inference_mode_enabled()


def test_a_failure_is_raised_and_ends_the_rest(n_threads):
    done = []

    def work(task):
        if task == 3:
            raise ZeroDivisionError("task 3")
        time.sleep(1e-4)
        done.append(task)

    with pytest.raises(ZeroDivisionError, match="task 3"):
        run_alone(work, range(50_000))
    assert len(done) < 49_999
    again = []
    run_alone(again.append, range(10))
    assert sorted(again) == list(range(10))


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.slow
def test_a_forked_process_starts_threads_of_its_own():
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=120).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.skipif(
    torch.cuda.is_available(), reason="beside a GPU torch takes no gradients in forks"
)
def test_forked_processes_fit_after_a_fit_of_their_parent():
    command = [sys.executable, "-W", "ignore", "-c", FORKED_FITS]
    assert subprocess.run(command, timeout=60).returncode == 0


def test_a_gpu_that_a_fork_has_lost_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(machine, "_lost_gpu", True)
    for name in ("auto", "cuda"):
        with pytest.raises(ValueError, match='forked.*device="cpu".*spawn'):
            machine.choose_device(name)
    assert machine.choose_device("cpu").type == "cpu"
    assert machine.prediction_device("cuda").type == "cpu"


def test_a_small_problem_keeps_its_threads_for_tasks_of_seconds():
    """torch on one thread, as many tasks at a time as there were threads before."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch_threads(10, 10), torch_threads(5, 5):
            together = threading.Barrier(2, timeout=20)
            assert all_threads() == 2
            run_alone(lambda task: together.wait(), range(2), all_threads())
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == all_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(sys.platform != "linux", reason="others do not fork")
class TestWorkBeside:
    """What a fork computes is what this process would have."""

    @pytest.fixture(autouse=True)
    def two_cores(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    @pytest.mark.parametrize("wanted", [True, False])
    def test_the_work_is_done_in_a_process_of_its_own_if_wanted(self, wanted):
        large = torch.arange(100_000.0)  # more than a pipe holds
        with work_beside(lambda: (os.getpid(), large + 1), wanted) as wait:
            number, found = wait()
        assert (number != os.getpid()) == wanted
        assert torch.equal(found, large + 1)

    def test_what_fails_there_is_done_here(self):
        here = os.getpid()

        def work():
            if os.getpid() != here:
                raise ValueError("only here")
            return "done"

        with work_beside(work, True) as wait:
            assert wait() == "done"

    def test_what_hangs_there_is_done_here(self, monkeypatch):
        here = os.getpid()
        monkeypatch.setattr(machine, "LEAST_WAIT", 0.1)

        def work():
            if os.getpid() != here:
                time.sleep(60)
            return "done"

        with work_beside(work, True) as wait:
            assert wait() == "done"

    @pytest.mark.parametrize("n_tasks", [0, 1, 2, 5])
    @pytest.mark.parametrize("n_processes", [0, 1, 2, 3])
    def test_tasks_of_several_processes_keep_their_order(self, n_tasks, n_processes):
        tasks = [lambda k=k: (k, os.getpid()) for k in range(n_tasks)]
        found = share_out(tasks, n_processes)
        assert [k for k, _ in found] == list(range(n_tasks))
        used = {process for _, process in found}
        assert len(used) == min(n_tasks, max(n_processes, 1))
        assert os.getpid() in used or not found

    @pytest.mark.skipif(sys.platform != "linux", reason="forks are safe on Linux alone")
    def test_whoever_names_a_number_of_processes_gets_as_many_forks(self, n_threads):
        assert count_processes(3) == 3
        assert count_processes(1) == 1
        assert count_processes(None) == (2 if n_threads > 1 else 1)
        with joblib.parallel_config(n_jobs=3):
            assert count_processes(None) == 3
        with joblib.parallel_config(backend="threading", n_jobs=3):
            assert count_processes(None) == count_processes(3) == 1

    def test_it_is_known_when_the_other_process_is_over(self):
        source, sink = os.pipe()
        with work_beside(lambda: os.read(source, 1), True) as other:
            assert not other.is_over
            os.write(sink, b"!")
            for _ in range(1000):
                if other.is_over:
                    break
                time.sleep(0.01)
            assert other.is_over
            assert other() == b"!"
            assert other.is_over
        with work_beside(lambda: 1, False) as nobody:
            assert nobody.is_over

    def test_nothing_is_left_behind(self):
        before, seen = children(), set()
        with pytest.raises(KeyError), work_beside(lambda: time.sleep(60), True):
            seen = children() - before
            raise KeyError
        assert len(seen) == 1
        assert children() == before


def children():
    """Numbers of the processes that this one has started."""
    place = f"/proc/self/task/{threading.get_native_id()}/children"
    return set(Path(place).read_text().split())
