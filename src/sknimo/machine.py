"""Where work runs: on which device, and on how many threads.

Small problems run faster on one thread (`torch_threads`), and many small tasks run
faster side by side, with torch on one thread in each (`run_alone`). torch spreads a
single operation over a team of threads. For operations as small as the blocks of a
prediction a team waits more than it works, and where other programs hold the cores it
waits a hundred times as long. Alone, every task runs on one thread and the tasks run
side by side: torch lets go of the interpreter while it computes.

Tasks of many small operations have processes of their own (`share_out`): forks where
these are safe, since a new process takes as long to begin as a small search.
"""

import math
import operator
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Generic, Literal, NoReturn, TypeVar

import torch
from joblib import effective_n_jobs
from joblib.parallel import BACKENDS, DEFAULT_BACKEND, get_active_backend
from torch import Tensor
from tqdm import tqdm

from sknimo.progress import in_notebook

Record = TypeVar("Record")
Result = TypeVar("Result")

DeviceName = Literal["auto", "cpu", "cuda"]

# Below this many rows, or numbers in a pass, threads cost more than they bring.
ONE_THREAD_ROWS = 20_000
ONE_THREAD_WORK = 2**23
# Seconds that a fork is waited for, and as a multiple of those that it has had.
LEAST_WAIT, WAIT_TIMES = 30.0, 4.0
# Libraries get ready while work is done as it stands.
CALLS_BEFORE_RECORDING = 3
# Up to this many rows a GPU waits for the host most of the time.
FEW_GPU_ROWS = 2_000

# How many threads torch had before `torch_threads`.
_before: ContextVar[int] = ContextVar("threads", default=0)
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
    token = _before.set(all_threads())
    if n_rows < ONE_THREAD_ROWS and work < ONE_THREAD_WORK:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _before.reset(token)


def all_threads() -> int:
    """How many threads torch has, also where a small problem is kept on one."""
    return max(torch.get_num_threads(), _before.get())


def run_alone(
    work: Callable[[Any], None], tasks: Iterable[Any], n_threads: int | None = None
) -> None:
    """Do all tasks, as many at a time as torch has threads, one thread for each.

    Results do not depend on the number of threads, and calls from several threads at
    once do not disturb one another. Gradients are off. Tasks of seconds may have
    `all_threads`.
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

    n_threads = n_threads or torch.get_num_threads()
    if n_threads == 1 or not left:
        return drain()
    pool = _workers(n_threads)
    futures = [pool.submit(drain) for _ in range(min(n_threads, len(left)))]
    try:
        for future in futures:
            future.result()
    finally:
        left.clear()  # after an interrupt there are tasks left


class Beside(Generic[Result]):
    """Work in a process of its own, or work that is done here when it is asked for."""

    def __init__(self, work: Callable[[], Result], source: int | None = None) -> None:
        self._work, self._source = work, source
        self._begun = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether no other process works: there is none, or its result has begun."""
        ready = self._source is None or select.select([self._source], [], [], 0)[0]
        return bool(ready)

    def __call__(self) -> Result:
        """Wait for the result."""
        if self._source is None:
            return self._work()
        now = time.monotonic()
        wait = LEAST_WAIT + WAIT_TIMES * (now - self._begun)
        try:
            found: Result = pickle.loads(_read(self._source, now + wait))
        except (EOFError, pickle.UnpicklingError):  # it came to nothing
            found = self._work()
        self._source = None
        return found


@contextmanager
def work_beside(work: Callable[[], Result], wanted: bool) -> Iterator[Beside[Result]]:
    """Begin some work in a process of its own; what is yielded waits for its result.

    Threads would not do for many small operations: each holds the interpreter most of
    the time. A fork has all that the work needs, at once, but is safe on Linux alone.
    What fails there is done here, as is all of it where it is not `wanted`. So is what
    takes far longer than this process did: it may wait for a lock that nobody holds.
    """
    if not wanted or sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        yield Beside(work)
        return
    source, sink = os.pipe()
    with warnings.catch_warnings():
        # Other threads may hold locks: the child takes none that they know of.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _serve(work, sink)
    os.close(sink)
    try:
        yield Beside(work, source)
    finally:
        os.close(source)
        with suppress(ChildProcessError, ProcessLookupError):  # somebody else waited
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def count_processes(n_jobs: int | None) -> int:
    """How many processes forks may make of this one; one where joblib is to work.

    Two of them, if torch has two threads, where nobody says how many.
    """
    own = isinstance(get_active_backend()[0], BACKENDS[DEFAULT_BACKEND])
    if not own or sys.platform != "linux":
        return 1
    count = int(effective_n_jobs(n_jobs))
    free = n_jobs is None and count == 1 and torch.get_num_threads() > 1
    return 2 if free else count


def share_out(tasks: Sequence[Callable[[], Result]], n_processes: int) -> list[Result]:
    """Results of tasks that this process and forks of it take in turn."""
    count = max(min(n_processes, len(tasks)), 1)

    def do(k: int) -> list[Result]:
        return [task() for task in tasks[k::count]]

    with ExitStack() as stack:
        begun = [work_beside(partial(do, k), True) for k in range(1, count)]
        others = [stack.enter_context(each) for each in begun]
        parts = [do(0), *(other() for other in others)]
    return [parts[k % count][k // count] for k in range(len(tasks))]


def _read(source: int, until: float) -> bytes:
    """All that a pipe has to say, or nothing if it does not end in time."""
    parts: list[bytes] = []
    while select.select([source], [], [], max(until - time.monotonic(), 0.0))[0]:
        part = os.read(source, 2**20)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b""


def _serve(work: Callable[[], object], sink: int) -> NoReturn:
    """Write the result of some work, nothing where it fails, and end the process."""
    try:
        tqdm.set_lock(threading.RLock())  # that of the parent may be held for ever
        with warnings.catch_warnings(action="error"):
            answer = pickle.dumps(work())
        with open(sink, "wb") as out:
            out.write(answer)
    finally:
        os._exit(0)


def _workers(n_threads: int) -> ThreadPoolExecutor:
    """Threads for which torch computes on one thread, started once.

    The number of torch's threads belongs to a thread, but setting it also sets what
    threads begin with. It is put back at once, while the lock is held.
    """
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < n_threads:
            before = torch.get_num_threads()
            _pool = ThreadPoolExecutor(n_threads, "sknimo", _compute_alone)
            _pool_size = n_threads
            ready = threading.Barrier(n_threads + 1)
            for _ in range(n_threads):
                _pool.submit(ready.wait)
            ready.wait()
            torch.set_num_threads(before)
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
    return False if in_notebook() else None
