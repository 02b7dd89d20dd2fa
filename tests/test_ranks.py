"""Processes that meet in a store in which others have met before."""

import json
import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore

from sknimo.ranks import NAME_KEY, meet

SOON = timedelta(seconds=20)


def meet_all(store, size, delays=None):
    """Names that threads agree on, one for each rank; `delays` in seconds."""
    names = [None] * size

    def join(rank):
        names[rank] = meet(store, rank, size, SOON)

    delays = delays or {}
    timers = [threading.Timer(delays.get(r, 0), join, [r]) for r in range(size)]
    for timer in timers:
        timer.start()
    for timer in timers:
        timer.join()
    return names


def test_all_ranks_learn_one_name():
    names = meet_all(HashStore(), 3)
    assert names[0] and names == names[:1] * 3


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_restart_never_meets_the_processes_before(late):
    store, seen = HashStore(), set()
    for _ in range(4):
        names = meet_all(store, 3, {late: 0.3})
        assert len(set(names)) == 1 and names[0] not in seen
        seen.add(names[0])


@pytest.mark.parametrize("n_answers", [0, 1, 2])
def test_a_first_rank_that_died_while_it_waited_is_left_alone(n_answers):
    store = HashStore()
    store.set(NAME_KEY, "old")
    for rank in range(1, n_answers + 1):
        store.set(f"old/{rank}", f"dead {rank}")
    names = meet_all(store, 3, {0: 0.3})
    assert len(set(names)) == 1 and names[0] != "old"


def test_more_processes_than_before():
    store = HashStore()
    store.set(NAME_KEY, "old")
    store.set("old/all", json.dumps(["dead 1"]))
    names = meet_all(store, 4, {0: 0.3})
    assert len(set(names)) == 1 and names[0] != "old"


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_in_vain_says_what_to_do(rank):
    with pytest.raises(TimeoutError, match=rf"Rank {rank} .*0:00:00.2.* 2 processes"):
        meet(HashStore(), rank, 3, timedelta(seconds=0.2))
