"""Tasks run once each, on threads for which torch computes alone."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from sknimo.machine import run_alone

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
def test_a_forked_process_starts_threads_of_its_own():
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=120).returncode == 0
