"""Threads that take tasks, with torch on one thread in each.

torch spreads a single operation over a team of threads. For operations as small as the
blocks of a prediction a team waits more than it works, and where other programs hold
the cores it waits a hundred times as long. Here every task runs on one thread and the
tasks run side by side: torch lets go of the interpreter while it computes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def run_alone(work: Callable[[Any], None], tasks: Iterable[Any]) -> None:
    """Do all tasks, as many at a time as torch has threads, one thread for each.

    Results do not depend on the number of threads, and calls from several threads at
    once do not disturb one another. Gradients are off.
    """
    left = deque(tasks)

    def drain() -> None:
        with torch.inference_mode():
            while left:
                try:
                    task = left.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    work(task)
                except BaseException:
                    left.clear()  # the other threads stop after the task at hand
                    raise

    n_threads = torch.get_num_threads()
    if n_threads == 1 or not left:
        return drain()
    pool = _workers(n_threads)
    futures = [pool.submit(drain) for _ in range(min(n_threads, len(left)))]
    try:
        for future in futures:
            future.result()
    finally:
        left.clear()  # after an interrupt there are tasks left


def _workers(n_threads: int) -> ThreadPoolExecutor:
    """Threads for which torch computes on one thread, started once.

    The number of torch's threads belongs to a thread, but setting it also sets what
    threads begin with. It is put back at once, while the lock is held.
    """
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < n_threads:
            _pool = ThreadPoolExecutor(n_threads, "sknimo", _compute_alone)
            _pool_size = n_threads
            ready = threading.Barrier(n_threads + 1)
            for _ in range(n_threads):
                _pool.submit(ready.wait)
            ready.wait()
            torch.set_num_threads(n_threads)
        return _pool


def _compute_alone() -> None:
    torch.get_num_threads()  # or torch sets its default at the first operation
    torch.set_num_threads(1)


def _forget_workers() -> None:
    """A process that was forked has none of the threads."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
