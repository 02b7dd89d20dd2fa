"""`max_time`: a search ends in time with the best that it has found."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

MAX_ITER = 15  # of `make_search`


def test_out_of_time_says_so_and_gives_a_usable_model(data, make_search):
    X, y = data
    est = make_search(max_time=1e-9)
    with pytest.warns(ConvergenceWarning, match="max_time=1e-09 s"):
        est.fit(X, y)
    assert not est.converged_
    assert est.n_members_ == 0
    assert est.best_index_ == -1
    assert np.isfinite(est.predict(X)).all()
    assert est.score(X, y) > 0.3  # the GLM
    assert "without a network, which was finished, was kept" in est.status_
    first, second, *_ = est.summary().headline
    assert "searched for" not in first  # it was not
    assert second.startswith("Not converged. max_time=1e-09 s")


def test_the_warning_points_at_the_call_of_fit(data, make_search):
    with pytest.warns(ConvergenceWarning) as caught:
        make_search(max_time=1e-9).fit(*data)
    assert caught[0].filename == __file__


@pytest.fixture
def clock(monkeypatch):
    """A clock that shows one second more each time it is looked at."""
    ticks = iter(np.arange(1e6))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))


def test_restarts_within_the_time_are_kept(data, clock, make_search):
    """The deadline passes in the midst of the first crew, and no other begins."""
    X, y = data
    est = make_search(max_time=10, n_starts=4, batch_size=0)
    with pytest.warns(ConvergenceWarning, match="restarts; the best so far"):
        est.fit(X, y)
    stages = est.trials_["stage"]
    assert stages.count("wide") == 1
    assert 0 < est.trials_["n_iter"][0] < MAX_ITER
    assert "relaxed" not in stages
    assert est.verdict_ is None
    assert not est.converged_
    assert np.isfinite(est.predict(X)).all()


def test_simplifying_ends_in_time(data, clock, make_search):
    """Restarts fit in the time, tidying up after them does not."""
    est = make_search(max_time=40, n_starts=2, batch_size=0)
    with pytest.warns(ConvergenceWarning):
        est.fit(*data)
    # One of two goes ahead and decides.
    assert est.trials_["stage"] == ["wide", "simplified"]
    assert est.n_iter_ < 40 + MAX_ITER


@pytest.mark.slow
def test_time_enough_changes_nothing(data, make_search, searched):
    X, y = data
    assert searched.converged_
    limited = make_search(max_time=1e6).fit(X, y)
    assert limited.converged_
    assert np.array_equal(limited.predict(X), searched.predict(X))
