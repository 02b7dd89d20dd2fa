"""Where work runs: on which device, and on how many threads.

Small problems run faster on one thread (`torch_threads`), and many small tasks run
faster side by side, with torch on one thread in each (`run_alone`). torch spreads a
single operation over a team of threads. For operations as small as the blocks of a
prediction a team waits more than it works, and where other programs hold the cores it
waits a hundred times as long. Alone, every task runs on one thread and the tasks run
side by side: torch lets go of the interpreter while it computes.
"""

import math
import operator
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record")

DeviceName = Literal["auto", "cpu", "cuda"]

# Below this many rows, or numbers in a pass, threads cost more than they bring.
ONE_THREAD_ROWS = 20_000
ONE_THREAD_WORK = 2**23
# Libraries get ready while work is done as it stands.
CALLS_BEFORE_RECORDING = 3
# Up to this many rows a GPU waits for the host most of the time.
FEW_GPU_ROWS = 2_000

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_gpu_in_use = False  # when the process was last forked
_lost_gpu = False  # a GPU that the parent used is out of reach in a forked process


def choose_device(name: str, n_rows: float = math.inf) -> torch.device:
    """Device by name; "auto" takes a GPU when there is one and rows are many."""
    if name != "cpu" and _lost_gpu:
        raise ValueError(
            "This process was forked from one that had used the GPU, and cannot use it "
            'itself. Use device="cpu" here, or start processes anew: backend="loky" in '
            'joblib, the start method "spawn" in multiprocessing.'
        )
    if name == "auto":
        worth = n_rows > FEW_GPU_ROWS and torch.cuda.is_available()
        return torch.device("cuda" if worth else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            'device="cuda" but no GPU is available. Use device="auto" to fall back to '
            "the CPU."
        )
    return torch.device(name)


def prediction_device(name: str) -> torch.device:
    """Where to predict: on a GPU only if asked for, and only where there is one.

    With "auto" it would depend on the machine, to the last bits, what a row gets; and a
    model that was fitted on a GPU is served where there is none.
    """
    there = name == "cuda" and torch.cuda.is_available() and not _lost_gpu
    return torch.device("cuda" if there else "cpu")


def to_device(record: Record, device: torch.device) -> Record:
    """A record with all tensors in it on a device; what holds none stays itself."""
    if isinstance(record, Tensor):
        return record.to(device)  # type: ignore[return-value]
    if isinstance(record, tuple):
        parts = tuple(to_device(part, device) for part in record)
        same = all(map(operator.is_, parts, record))
        return record if same else parts  # type: ignore[return-value]
    if not is_dataclass(record) or isinstance(record, type):
        return record
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    moved = {name: to_device(value, device) for name, value in values.items()}
    moved = {name: value for name, value in moved.items() if value is not values[name]}
    return replace(record, **moved) if moved else record


@contextmanager
def torch_threads(n_rows: int = 0, work: int = 0) -> Iterator[None]:
    """Keep small problems on one thread; the number of threads is restored.

    A problem is large by its rows or by its `work`, the numbers in one pass over them.
    """
    before = torch.get_num_threads()
    if n_rows < ONE_THREAD_ROWS and work < ONE_THREAD_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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


def _begin_alone() -> None:
    """A process that was forked has none of the threads, neither ours nor torch's.

    torch's would be waited for without end, so there it computes on one thread.
    """
    global _lock, _pool, _lost_gpu
    _lost_gpu = _lost_gpu or _gpu_in_use
    _lock, _pool = threading.Lock(), None
    torch.set_num_threads(1)


def _note_gpu() -> None:
    """What the child can no longer ask: whether the GPU is in use here."""
    global _gpu_in_use
    _gpu_in_use = torch.cuda.is_initialized()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_gpu, after_in_child=_begin_alone)


def record(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """Work that is done again and again, on the same tensors.

    On a GPU it is done as it stands the first few times, then recorded and played: its
    many small kernels start without the host. It must not wait for their results.
    """
    if device.type != "cuda":
        return work
    n_calls, graph = 0, torch.cuda.CUDAGraph()

    def play() -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls <= CALLS_BEFORE_RECORDING:
            work()
            return
        if n_calls == CALLS_BEFORE_RECORDING + 1:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                work()
        graph.replay()

    return play


def hide_progress(wanted: bool) -> bool | None:
    """What tqdm takes for `disable`: bars are for terminals and notebooks.

    A notebook is no terminal, and tqdm would say nothing there.
    """
    if not wanted:
        return True
    shell = sys.modules.get("IPython")
    kernel = None if shell is None else getattr(shell.get_ipython(), "kernel", None)
    return None if kernel is None else False
