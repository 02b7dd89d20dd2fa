"""What the benchmarks are run on: simulated settings and real tables.

A name is one of

- `setting0` to `setting4` and `class1` to `class3`: the paper's simulations, 300 rows
  to fit (its 200 plus 100 for validation) and 1000 to test;
- `diabetes`, which scikit-learn ships;
- any other: the file NAME.csv.gz in the folder of tables, whose last column is
  `target`.

Real tables are shuffled with the seed and split 60/20/20 into rows to train on, to
validate on and to test on. Every method is given the first 80 %; see `rivals.py`.
"""

from __future__ import annotations

import gzip
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from rivals import Rows

FOLDER_VARIABLE = "SKNIMO_DATA"
EVERY_TASK = "setting0..setting4,class1..class3"
SIMULATED = re.compile(r"(setting|class)(\d)")
N_FIT, N_HELD_OUT, N_TEST = 300, 100, 1000
QUICK_SHARE = 0.5  # of the simulated rows to fit
QUICK_TABLE = 500  # rows of a real table

Figure = Literal["mse", "accuracy", "log loss", "deviance"]


@dataclass(frozen=True)
class Truth:
    """Features that matter in a simulated setting; boolean, (p,)."""

    coef: np.ndarray
    inputs: np.ndarray

    @property
    def features(self) -> np.ndarray:
        return self.coef | self.inputs


@dataclass(frozen=True)
class Task:
    """Rows to fit and to test on, drawn with one seed."""

    name: str
    seed: int
    rows: Rows
    X_test: np.ndarray
    y_test: np.ndarray
    truth: Truth | None = None

    @property
    def figure(self) -> Figure:
        return "mse" if self.rows.task == "regression" else "accuracy"

    def score(self, predicted: np.ndarray) -> float:
        """Mean squared error, or the share of correct labels."""
        if self.figure == "mse":
            return float(np.mean((predicted - self.y_test) ** 2))
        return float(np.mean(predicted == self.y_test))


def expand_names(text: str) -> list[str]:
    """Names in a comma-separated list in which `class1..class3` is a range."""
    names = []
    for part in filter(None, text.split(",")):
        ends = [re.fullmatch(r"(\D+)(\d+)", end) for end in part.split("..")]
        if len(ends) != 2 or None in ends or ends[0][1] != ends[1][1]:
            names.append(part)
            continue
        first, last = (int(end[2]) for end in ends)
        names += [f"{ends[0][1]}{number}" for number in range(first, last + 1)]
    return names


def is_simulated(name: str) -> bool:
    return SIMULATED.fullmatch(name) is not None


def load_task(name: str, seed: int, folder: str | None, quick: bool = False) -> Task:
    """Draw a setting or split a table; `quick` takes fewer rows."""
    if is_simulated(name):
        return _simulate(name, seed, quick)
    return _split(name, seed, *_read_table(name, folder), quick)


def _simulate(name: str, seed: int, quick: bool) -> Task:
    # Importing the library takes seconds, which `--help` and `--table` can do without.
    from sknimo.datasets import make_nimo_classification, make_nimo_regression

    kind, number = SIMULATED.fullmatch(name).groups()
    make = make_nimo_regression if kind == "setting" else make_nimo_classification
    share = QUICK_SHARE if quick else 1
    n_fit, n_held_out = int(share * N_FIT), int(share * N_HELD_OUT)
    data = make(int(number), N_FIT + N_TEST, random_state=seed)
    features = np.arange(data.X.shape[1])
    return Task(
        name,
        seed,
        Rows(
            data.X[:n_fit],
            data.y[:n_fit],
            "regression" if kind == "setting" else "classification",
            n_held_out,
            scale_target=False,
        ),
        data.X[N_FIT:],
        data.y[N_FIT:],
        Truth(np.isin(features, data.active), np.isin(features, data.modulating)),
    )


@cache
def _read_table(name: str, folder: str | None) -> tuple[np.ndarray, np.ndarray]:
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return load_diabetes(return_X_y=True)
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise SystemExit(
            f"{name}: say where the tables are, with --data or {FOLDER_VARIABLE}."
        )
    path = Path(folder, f"{name}.csv.gz")
    if not path.exists():
        raise SystemExit(f"{name}: there is no file {path}.")
    with gzip.open(path, "rt") as lines:
        header = next(lines).strip().split(",")
        if header[-1].strip('"') != "target":
            raise SystemExit(f"{path}: the last column must be called target.")
        table = np.loadtxt(lines, delimiter=",", ndmin=2)
    return table[:, :-1], table[:, -1]


def _split(name: str, seed: int, X: np.ndarray, y: np.ndarray, quick: bool) -> Task:
    order = np.random.default_rng(seed).permutation(len(y))
    if quick:
        order = order[:QUICK_TABLE]
    n_train, n_fit = int(0.6 * len(order)), int(0.8 * len(order))
    fit, test = order[:n_fit], order[n_fit:]
    rows = Rows(X[fit], y[fit], "regression", n_fit - n_train, scale_target=True)
    return Task(name, seed, rows, X[test], y[test])
