"""Many fits and loads in one process leave nothing behind.

Memory, threads, open files and temporary files come back to where they were after the
first few, which load libraries and start threads once.
"""

import gc
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV, RowBlocks, load

PROCESS = Path("/proc/self")
# Allocators keep some room. Were a table or model kept each time, 200 rounds would take
# more: the arrays below have 160 kB.
MAX_BYTES = 16e6
SHORT = {"max_iter": 3, "hidden": (3, 3), "random_state": 0}

pytestmark = pytest.mark.skipif(
    not (PROCESS / "statm").exists(), reason="asks Linux what the process holds"
)


@dataclass(frozen=True)
class Held:
    """What the process holds."""

    threads: int
    files: int
    temporary: tuple[str, ...]


def look():
    gc.collect()
    return Held(
        threads=len(os.listdir(PROCESS / "task")),
        files=len(os.listdir(PROCESS / "fd")),
        temporary=tuple(sorted(os.listdir(tempfile.gettempdir()))),
    )


def resident_bytes():
    gc.collect()
    pages = int((PROCESS / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Do something a few times, look, do it often, and look again."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # predictions start threads of their own

    def run(work, n_times, n_first):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(n_first):
                work(number)
            before, memory = look(), resident_bytes()
            for number in range(n_times):
                work(number)
        assert look() == before
        assert resident_bytes() - memory < MAX_BYTES

    yield run
    torch.set_num_threads(threads)


@pytest.fixture
def fit_any(tmp_path):
    """One fit of a kind that goes by its number: plain, classes, blocks, a search."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    y = X[:, 0] * (1 + np.tanh(X[:, 1])) + rng.normal(size=2000)

    def fit(number):
        folder = tmp_path / "checkpoints"
        kind = number % 5
        if kind == 0:
            est = NIMORegressorCV(**SHORT, n_starts=1, cv=2, basis="linear")
            est.set_params(checkpoint=folder).fit(X[:60, :3], y[:60])
            for file in folder.iterdir():
                file.unlink()
            return
        if kind == 1:
            est = NIMORegressor(**SHORT).fit(RowBlocks.from_arrays(X, y))
        elif kind == 2:
            est = NIMOClassifier(**SHORT).fit(X, y > 0)
        else:
            est = NIMORegressor(**SHORT).fit(X, y)
        est.predict(X)
        est.summary()

    return fit


@pytest.fixture
def load_model(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 10))
    path = tmp_path / "model.sknimo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        NIMORegressor(**SHORT).fit(X, X[:, 0] + rng.normal(size=2000)).save(path)

    def load_one(number):
        est = load(path)
        est.predict(X)
        est.save(path)

    return load_one


@pytest.mark.slow
def test_fits_leave_nothing_behind(check, fit_any):
    check(fit_any, 5, n_first=5)


def test_loads_leave_nothing_behind(check, load_model):
    check(load_model, 20, n_first=10)


@pytest.mark.slow
def test_two_hundred_fits_leave_nothing_behind(check, fit_any):
    check(fit_any, 200, n_first=25)


@pytest.mark.slow
def test_two_hundred_loads_leave_nothing_behind(check, load_model):
    check(load_model, 200, n_first=25)
