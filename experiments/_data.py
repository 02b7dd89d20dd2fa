"""Data sets by name, with the names of their features and, if simulated, the truth.

- `setting0` to `setting4`, `class1` to `class3`: the paper's simulations;
- `squares`: the sum of squares of its limitation table, `squares-expanded` the same
  with the nine terms of a polynomial of degree two as columns;
- `diabetes` and the tables of `download.py`.

Rows and splits are those of `benchmarks/tasks.py`: 200 + 100 rows to train and to
validate on and 1000 to test, or 60/20/20 of a real table.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rivals import Rows
from tasks import (
    N_FIT,
    N_HELD_OUT,
    N_TEST,
    SIMULATED,
    Task,
    is_simulated,
    load_task,
)

from sknimo.datasets import (
    SyntheticData,
    make_nimo_classification,
    make_nimo_regression,
    make_self_interaction,
    nimo_signal,
)

REGRESSION = ("setting1", "setting2", "setting3")
CLASSIFICATION = ("class1", "class2", "class3")
SQUARES = ("squares", "squares-expanded")
# 573 and 562 of the paper's ten tables are copies of 197 and 227.
PMLB = (
    "197_cpu_act",
    "201_pol",
    "225_puma8NH",
    "227_cpu_small",
    "294_satellite_image",
    "503_wind",
    "529_pollen",
    "688_visualizing_soil",
)
# Tables with more rows are cut in quick runs.
BIG = (*PMLB, "superconduct")


class MissingTableError(FileNotFoundError):
    """A real table is in neither of the places where it could be."""


@dataclass(frozen=True)
class Dataset:
    """A task and the names of its features."""

    task: Task
    names: tuple[str, ...]  # (p,)
    truth: SyntheticData | None = None  # all rows, those to fit first

    @property
    def test_truth(self) -> np.ndarray | None:
        """True contributions of the test rows, (n, p)."""
        if self.truth is None or self.truth.contributions.shape[1] != len(self.names):
            return None
        return self.truth.contributions[N_FIT:]

    def true_slopes(self, point: np.ndarray) -> np.ndarray | None:
        """Slopes of the true signal at a point, by central differences, (p,)."""
        known = SIMULATED.fullmatch(self.task.name)
        if known is None:
            return None
        step = 1e-5 * np.eye(len(point))
        setting, labels = int(known[2]), known[1] == "class"
        high = nimo_signal(setting, point + step, classification=labels)
        low = nimo_signal(setting, point - step, classification=labels)
        return (high - low) / 2e-5


def load(name: str, seed: int, folder: str | None, quick: bool = False) -> Dataset:
    """Draw or split a data set with one seed; `quick` cuts large tables."""
    if name in SQUARES:
        return _load_squares(name, seed)
    if is_simulated(name):
        truth = simulate(name, seed)
        return Dataset(load_task(name, seed, None), truth.names, truth)
    check_table(name, folder)
    task = load_task(name, seed, folder, quick and name in BIG)
    return Dataset(task, feature_names(name, folder))


def simulate(name: str, seed: int) -> SyntheticData:
    """All rows of a simulated setting, as `benchmarks/tasks.py` draws them."""
    kind, number = SIMULATED.fullmatch(name).groups()
    make = make_nimo_regression if kind == "setting" else make_nimo_classification
    return make(int(number), N_FIT + N_TEST, random_state=seed)


def check_table(name: str, folder: str | None) -> None:
    """Refuse a real table that is not there."""
    if name in SQUARES or name == "diabetes" or is_simulated(name):
        return
    if folder is None or not Path(folder, f"{name}.csv.gz").exists():
        raise MissingTableError(
            f"{name}: no table {name}.csv.gz in {folder or 'any folder'}. Give a "
            "folder with --data or SKNIMO_DATA, or fetch it: "
            f"python -m experiments.download {name}"
        )


def feature_names(name: str, folder: str | None) -> tuple[str, ...]:
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return tuple(load_diabetes().feature_names)
    with gzip.open(Path(folder or "", f"{name}.csv.gz"), "rt") as lines:
        header = next(lines).strip().split(",")
    return tuple(column.strip('"') for column in header[:-1])


def _load_squares(name: str, seed: int) -> Dataset:
    data = make_self_interaction(N_FIT + N_TEST, random_state=seed)
    X, names = data.X, data.names
    if name == "squares-expanded":
        X, names = expand(X, names)
    rows = Rows(X[:N_FIT], data.y[:N_FIT], "regression", N_HELD_OUT, scale_target=False)
    task = Task(name, seed, rows, X[N_FIT:], data.y[N_FIT:])
    return Dataset(task, names, data)


def expand(X: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Features, their squares and products, in the paper's order."""
    pairs = [(j, k) for j in range(len(names)) for k in range(j, len(names))]
    products = np.column_stack([X[:, j] * X[:, k] for j, k in pairs])
    more = tuple(
        f"{names[j]}^2" if j == k else f"{names[j]} {names[k]}" for j, k in pairs
    )
    return np.column_stack([X, products]), (*names, *more)
