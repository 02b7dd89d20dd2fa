"""What a fit, or what follows it, shows while it runs: a bar, or lines with times.

A thread shows the time, so that a long task is not taken for a standstill. Tasks are
counted by `TaskStore`; those of other processes are not, and the bar waits for them.
The estimate comes from the usual shares of the stages and is an upper one: a search
that finds no use for a network ends early.
"""

import math
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, Literal

from tqdm import tqdm

Mode = Literal["bar", "lines"]

# Nothing is shown of a fit that is over by then, in seconds.
DELAY = 1.5
REFRESH = 0.5
# When lines are written, in seconds; the last step is repeated.
LINES = (2.0, 10.0, 30.0, 60.0)
# Usual share of each stage in a round of a search, and its name for people.
STAGES: dict[str, tuple[float, str]] = {
    "path": (0.03, "linear path"),
    "linear": (0.02, "linear model"),
    "wide": (0.45, "restarts"),
    "simplified": (0.1, "simplifying"),
    "relaxed": (0.25, "refined restarts"),
    "held out rows": (0.15, "held-out rows"),
    "curves": (0.05, "curves"),
    "bag": (0.95, "bags of rows"),
    "few rows": (0.1, "bags of few rows"),
    "errors": (1.0, "standard errors"),
}

# What comes after the search: effects and facts of the training rows.
LAST = "summing up"


class Progress:
    """Counts tasks and says how far a fit is."""

    def __init__(self) -> None:
        self.rounds, self.expected = 1, dict[str, int]()
        self.limit = math.inf  # seconds after which nothing new begins
        self.began = time.monotonic()
        self.stage, self._round = "", 0
        # Tasks by round and stage.
        self._done, self._planned = (
            Counter[tuple[int, str]](),
            Counter[tuple[int, str]](),
        )

    def plan(self, stage: str) -> None:
        """A task of a stage will be done; a second path begins another round."""
        stage = stage.replace("-", " ")
        if stage == "path" and stage != self.stage:
            self._round += 1
        self.stage = stage
        self._planned[self._at] += 1

    def finish(self, stage: str) -> None:
        """A task is done."""
        self._done[self._round, stage.replace("-", " ")] += 1

    @property
    def share(self) -> float:
        """How much of the whole fit is done, from 0 to 1."""
        total = 0.0
        for (which, stage), planned in list(self._planned.items()):
            weight = STAGES.get(stage, (0.0, ""))[0]
            most = max(planned, self.expected.get(stage, 0))
            part = self._done[which, stage] / most
            # A stage that has been left is done, whatever other processes have counted.
            total += weight * (part if (which, stage) == self._at else 1.0)
        return min(total / max(self.rounds, self._round, 1), 0.99)

    @property
    def _at(self) -> tuple[int, str]:
        return self._round, self.stage

    def describe(self) -> str:
        """Stage and tasks in words."""
        most = max(self._planned[self._at], self.expected.get(self.stage, 0))
        name = STAGES.get(self.stage, (0.0, self.stage or "fitting"))[1]
        return f"{name} {self._done[self._at]} of {most}" if most > 1 else name

    def remaining(self) -> str:
        """An upper estimate of the time left, in words; none where nothing is known."""
        share = self.share
        if self.stage == LAST:
            return "nearly done"
        if share <= 0:
            return ""
        spent = time.monotonic() - self.began
        seconds = spent * (1 - share) / share
        seconds = min(seconds, max(self.limit - spent, 1.0))
        return f"at most about {show_seconds(seconds)} left"


_current: Progress | None = None


def plan(stage: str) -> None:
    """Tell the fit that is being watched, if any, of a task to be done."""
    if _current is not None:
        _current.plan(stage)


def finish(stage: str) -> None:
    """Tell it that a task is done."""
    if _current is not None:
        _current.finish(stage)


def expect(rounds: int, expected: dict[str, int], limit: float | None) -> None:
    """Tell it how many rounds and tasks of a stage there may be, and seconds."""
    if _current is not None:
        _current.rounds, _current.expected = rounds, expected
        _current.limit = math.inf if limit is None else limit


def show_seconds(seconds: float) -> str:
    """A time that nobody takes for exact."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def choose_mode(verbose: Any) -> Mode | None:
    """How to show progress: "auto" only where a bar can be seen."""
    own = multiprocessing.current_process().name == "MainProcess"
    first = os.environ.get("RANK", "0") == "0"
    if not verbose or not own or not first:
        return None
    if sys.stderr is not None and (sys.stderr.isatty() or in_notebook()):
        return "bar"
    return None if verbose == "auto" else "lines"


def in_notebook() -> bool:
    """Whether the code runs in a kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", ())


@contextmanager
def watch(verbose: Any, has_tasks: bool) -> Iterator[None]:
    """Show the progress of the fit inside; one at a time in a process.

    One without tasks has a bar of its own for its steps.
    """
    global _current
    mode = choose_mode(verbose)
    if mode is None or _current is not None or (mode == "bar" and not has_tasks):
        yield
        return
    _current = Progress()
    stop = threading.Event()
    show = _show_bar if mode == "bar" else _show_lines
    thread = threading.Thread(target=show, args=(_current, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        _current = None


def _show_bar(progress: Progress, stop: threading.Event) -> None:
    if stop.wait(DELAY):
        return
    shape = "{desc} {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
    how = {"bar_format": shape, "leave": False, "disable": False}
    first = f"sknimo: {progress.describe()}"
    with tqdm(desc=first, total=100, file=sys.stderr, **how) as bar:
        bar.start_t = time.time() - (time.monotonic() - progress.began)
        while not stop.is_set():
            bar.n = round(100 * progress.share)
            bar.set_description_str(f"sknimo: {progress.describe()}", refresh=False)
            bar.set_postfix_str(progress.remaining(), refresh=False)
            bar.refresh()
            stop.wait(REFRESH)


def _show_lines(progress: Progress, stop: threading.Event) -> None:
    for due in chain(LINES, count(2 * LINES[-1], LINES[-1])):
        if stop.wait(max(progress.began + due - time.monotonic(), 0)):
            return
        spent = show_seconds(time.monotonic() - progress.began)
        told = [spent, progress.describe(), progress.remaining()]
        print("sknimo: " + ", ".join(filter(None, told)), file=sys.stderr, flush=True)
