"""A fit says how far it is, to those who can see it and to nobody else."""

import io
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from sknimo import NIMORegressor, NIMORegressorCV, progress
from sknimo.progress import Progress, choose_mode, show_seconds, watch


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    """Show progress without waiting for a fit to be long."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "REFRESH", 0.01)
    monkeypatch.setattr(progress, "LINES", (0.0, 0.02, 0.04))


def work():
    progress.expect(1, {"wide": 4}, None)
    for _ in range(4):
        progress.plan("wide")
    for _ in range(2):
        progress.finish("wide")
    time.sleep(0.1)


def test_a_terminal_has_a_bar_with_an_estimate(at_once, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with watch("auto", has_tasks=True):
        work()
    shown = sys.stderr.getvalue()
    assert "restarts 2 of 4" in shown and "at most about" in shown


def test_elsewhere_there_are_lines_on_request_alone(at_once, capsys):
    with watch("auto", has_tasks=True):
        work()
    with watch(False, has_tasks=True):
        work()
    assert capsys.readouterr().err == ""
    with watch(True, has_tasks=False):
        work()
    lines = capsys.readouterr().err.splitlines()
    assert "sknimo: 1 s, restarts 2 of 4, at most about 1 s left" in lines


def test_a_short_fit_shows_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with watch(True, has_tasks=True):
        pass
    assert sys.stderr.getvalue() == ""


def test_a_notebook_is_told_by_its_kernel(monkeypatch):
    class Shell:
        config = {"IPKernelApp": {}}

    class IPython:
        get_ipython = staticmethod(Shell)

    assert choose_mode("auto") is None
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert choose_mode("auto") == "bar"
    monkeypatch.setenv("RANK", "1")
    assert choose_mode(True) is None


def test_the_share_never_falls_within_a_round_and_a_limit_is_kept():
    seen = Progress()
    seen.rounds, seen.expected = 2, {"wide": 3}
    shares = []
    for stage in ("path", "linear", "wide", "wide", "wide", "held-out rows", "path"):
        seen.plan(stage)
        shares.append(seen.share)
        seen.finish(stage)
        shares.append(seen.share)
    assert shares == sorted(shares) and shares[-1] < 1
    seen.limit = 5.0
    seen.began -= 3.0
    assert seen.remaining() == "at most about 2 s left"
    assert [show_seconds(s) for s in (0.2, 80, 600, 9000)] == [
        *("1 s", "80 s", "10 min", "2.5 h"),
    ]


def test_a_search_counts_its_tasks(monkeypatch):
    seen = Progress()
    monkeypatch.setattr(progress, "_current", seen)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    est = NIMORegressorCV(n_starts=2, max_iter=5, random_state=0, max_time=60)
    est.fit(X, y)
    assert seen.expected["wide"] == 2 and seen.limit == 60
    # One of the two may be so good that the other is not tried.
    assert seen._done[1, "wide"] in (1, 2) and seen.share > 0.4
    assert seen.describe() == "summing up" and seen.remaining() == "nearly done"


@pytest.mark.parametrize("ask", ["conf_int", "summary"])
def test_errors_that_take_long_have_a_bar_when_first_asked_for(
    at_once, monkeypatch, ask
):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)

    def first_use(stderr, verbose):
        est = NIMORegressor(alpha=0, max_iter=0, verbose=verbose).fit(X, y)
        late = vars(est)["_uncertainty"]  # a fit does not wait for them
        slowly = replace(late, work=lambda: (time.sleep(0.05), late.work())[1])
        est._uncertainty = slowly
        monkeypatch.setattr(sys, "stderr", stderr)
        for _ in range(2):
            getattr(est, ask)()
            shown = stderr.getvalue()
            stderr.truncate(0)
            yield shown

    first, second = first_use(Terminal(), "auto")
    assert "sknimo: standard errors" in first and second == ""
    assert [*first_use(io.StringIO(), "auto")] == ["", ""]
    assert [*first_use(Terminal(), False)] == ["", ""]


def test_verbose_knows_one_word():
    with pytest.raises(ValueError, match="verbose must be one of 'auto'"):
        NIMORegressorCV(verbose="yes").fit(np.eye(5), np.arange(5))
