"""Survival: sknimo, Cox with ridge, random survival forests.

A section of `responses.py`. Tables have `event` (1 or 0) and `target`, the time, as
their last two columns. Rows are split 70/30 at random, stratified by event.

- sknimo: `NIMOSurvivalCV`, defaults; missing values have an indicator, or the median
  where no training row has any; unseen levels stand at the reference;
- ridge: Cox regression by Newton's method (Breslow), penalty by five folds of the
  cross-validated partial likelihood, on standardised and one-hot columns with medians
  and indicators for missing values;
- forest: `RandomSurvivalForest` of scikit-survival, 500 trees with leaves of 15 rows on
  the same columns. Needs scikit-survival, and nothing of sknimo.

Judged on the 30 % by Harrell's concordance and by calibration at the median time of the
training events: the mean gap between predicted survival and Kaplan-Meier's, in thirds
by prediction, and that of all rows. Beside it stands the gap by chance: the mean over
samples that are drawn from the predictions themselves, censored as the test rows are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TABLES = "veteran,pbc,colon"
ALPHAS = np.logspace(2.5, -1.5, 9)  # of ridge, in units of events
GROUPS = 3
N_SAMPLES = 100  # that tell the gap by chance


@dataclass(frozen=True)
class Rows:
    """Features, times and events."""

    X: pd.DataFrame
    time: np.ndarray
    event: np.ndarray  # bool

    def take(self, rows: np.ndarray) -> Rows:
        return Rows(self.X.iloc[rows], self.time[rows], self.event[rows])


@dataclass(frozen=True)
class Forecast:
    """Of the test rows: a risk, and the chance to live until a time."""

    risk: np.ndarray
    survival: np.ndarray


def fit_sknimo(train: Rows, test: Rows, at: float) -> Forecast:
    from sknimo import NIMOSurvivalCV

    est = NIMOSurvivalCV(
        missing="indicator", handle_unknown="reference", random_state=0
    )
    est.fit(train.X, np.column_stack([train.time, train.event]))
    # A column that is complete in training has no coefficient for missing values.
    X = test.X.fillna(train.X.loc[:, ~train.X.isna().any()].median(numeric_only=True))
    survival = est.predict_survival_function(X, times=[at]).values[:, 0]
    return Forecast(est.predict(X), survival)


def encode(train: Rows, test: Rows) -> tuple[np.ndarray, np.ndarray]:
    numbers = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
    )
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"),
        OneHotEncoder(handle_unknown="ignore", drop="first", sparse_output=False),
    )
    numeric = make_column_selector(dtype_include="number")
    others = make_column_selector(dtype_exclude="number")
    both = make_column_transformer((numbers, numeric), (levels, others))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return both.fit_transform(train.X), both.transform(test.X)


def sum_later(time: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum over rows that end at or after each row's time."""
    order = np.argsort(time, kind="stable")
    tail = np.cumsum(values[order][::-1], axis=0)[::-1]
    return tail[np.searchsorted(time[order], time)]


def partial_likelihood(rows: Rows, eta: np.ndarray) -> float:
    at_risk = np.log(sum_later(rows.time, np.exp(eta)))
    return float(np.sum((eta - at_risk)[rows.event]))


def newton(Z: np.ndarray, rows: Rows, alpha: float, start: np.ndarray) -> np.ndarray:
    """Coefficients of Cox regression with a ridge penalty."""
    beta, time, event = start, rows.time, rows.event
    for _ in range(30):
        risk = np.exp(Z @ beta)
        total = sum_later(time, risk)[event]
        mean = sum_later(time, risk[:, None] * Z)[event] / total[:, None]
        square = sum_later(time, risk[:, None, None] * Z[:, :, None] * Z[:, None, :])
        information = np.sum(square[event] / total[:, None, None], axis=0)
        information += alpha * np.eye(len(beta)) - mean.T @ mean
        score = np.sum(Z[event] - mean, axis=0) - alpha * beta
        step = np.linalg.solve(information, score)
        beta = beta + step * min(1.0, 2 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    return beta


def fit_ridge(train: Rows, test: Rows, at: float) -> Forecast:
    Z, Z_test = encode(train, test)
    found = np.zeros(len(ALPHAS))
    for used, _ in KFold(5, shuffle=True, random_state=0).split(Z):
        some, beta = train.take(used), np.zeros(Z.shape[1])
        for k, alpha in enumerate(ALPHAS):
            beta = newton(Z[used], some, alpha, beta)
            whole = partial_likelihood(train, Z @ beta)
            found[k] += whole - partial_likelihood(some, Z[used] @ beta)
    beta = newton(Z, train, float(ALPHAS[found.argmax()]), np.zeros(Z.shape[1]))
    eta = Z @ beta
    steps = train.event / sum_later(train.time, np.exp(eta))
    hazard = float(np.sum(steps[train.time <= at]))
    risk = Z_test @ beta
    return Forecast(risk, np.exp(-hazard * np.exp(risk)))


def fit_forest(train: Rows, test: Rows, at: float) -> Forecast:
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    Z, Z_test = encode(train, test)
    forest = RandomSurvivalForest(500, min_samples_leaf=15, random_state=0)
    forest.fit(Z, Surv.from_arrays(train.event, train.time))
    curves = forest.predict_survival_function(Z_test)
    return Forecast(forest.predict(Z_test), np.array([curve(at) for curve in curves]))


METHODS: dict[str, Callable[[Rows, Rows, float], Forecast]] = {
    "sknimo": fit_sknimo,
    "ridge": fit_ridge,
    "forest": fit_forest,
}


def concordance(rows: Rows, risk: np.ndarray) -> float:
    """Harrell's, pair by pair."""
    first = rows.event
    later = rows.time[None] > rows.time[first, None]
    later |= (rows.time[None] == rows.time[first, None]) & ~rows.event[None]
    higher = risk[first, None] > risk[None]
    tied = risk[first, None] == risk[None]
    return float(np.sum(later * (higher + 0.5 * tied)) / later.sum())


def kaplan_meier(rows: Rows, at: float) -> float:
    alive = 1.0
    for moment in np.unique(rows.time[rows.event & (rows.time <= at)]):
        ends = np.sum(rows.event & (rows.time == moment))
        alive *= 1 - ends / np.sum(rows.time >= moment)
    return alive


def judge_calibration(rows: Rows, survival: np.ndarray, at: float) -> list[float]:
    """Predicted less observed survival, of each group by prediction."""
    order = np.argsort(survival, kind="stable")
    return [
        float(survival[part].mean() - kaplan_meier(rows.take(part), at))
        for part in np.array_split(order, GROUPS)
    ]


def judge_chance(rows: Rows, survival: np.ndarray, at: float) -> float:
    """Mean gap of samples whose survival at a time is exactly the predicted one."""
    rng, n = np.random.default_rng(0), len(rows.time)
    hazard = -np.log(np.clip(survival, 1e-9, 1 - 1e-9)) / at
    # Times of censoring by Kaplan-Meier, which takes events for censored.
    ends = np.unique(rows.time)
    ended = Rows(rows.X, rows.time, ~rows.event)
    free = np.array([kaplan_meier(ended, end) for end in ends])
    found = []
    for _ in range(N_SAMPLES):
        time = rng.exponential(1 / hazard)
        later = np.searchsorted(-free, -rng.uniform(size=n))
        censored = np.append(ends, np.inf)[later]
        seen = Rows(rows.X, np.minimum(time, censored), time <= censored)
        found.append(np.abs(judge_calibration(seen, survival, at)).mean())
    return float(np.mean(found))


def measure(
    folder: Path | None, table: str, method: str, seed: int
) -> list[dict[str, Any]]:
    """Concordance and calibration of one split."""
    if folder is None:
        raise SystemExit("name the folder of the tables with --data or SKNIMO_DATA")
    frame = pd.read_csv(folder / f"{table}.csv.gz")
    rows = Rows(
        frame.drop(columns=["event", "target"]),
        frame["target"].to_numpy(float),
        frame["event"].to_numpy() == 1,
    )
    index = np.arange(len(frame))
    split = train_test_split(
        index, test_size=0.3, stratify=rows.event, random_state=seed
    )
    train, test = (rows.take(part) for part in split)
    at = float(np.median(train.time[train.event]))
    found = METHODS[method](train, test, at)
    gaps = judge_calibration(test, found.survival, at)
    return [
        {
            "concordance": concordance(test, found.risk),
            "gap": np.abs(gaps).mean(),  # predicted less Kaplan-Meier, over groups
            "chance": judge_chance(test, found.survival, at),
            "bias": found.survival.mean() - kaplan_meier(test, at),  # over all rows
        }
    ]


def show(found: pd.DataFrame) -> None:
    """Means over splits."""
    means = found.groupby(["table", "method"]).agg(
        splits=("seed", "size"),
        concordance=("concordance", "mean"),
        gap=("gap", "mean"),
        chance=("chance", "mean"),
        bias=("bias", "mean"),
        seconds=("seconds", "median"),
    )
    print(means.round(4).to_string())
    wide = found.pivot_table("concordance", ["table", "seed"], "method")
    if "sknimo" not in wide:
        return
    for rival in wide.columns.drop("sknimo"):
        ahead = (wide["sknimo"] - wide[rival]).groupby("table").agg(["mean", "sem"])
        print(f"ahead of {rival}:", ahead.round(4).to_string(), sep="\n")
