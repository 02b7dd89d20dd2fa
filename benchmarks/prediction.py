"""Rows per second of a prediction against LightGBM, in the same run.

    python benchmarks/prediction.py [--rows 1000000] [--threads 2] [--repeats 3]
                                    [--device cuda] [--csv prediction.csv]

Two models of three members each, hidden layers of 16 units, fitted to 20,000 rows of 50
normal columns by `NIMORegressor` with seeds 0 to 2 and joined as a search joins its
members; nothing in them is set by hand. In `sparse` ten columns act and bend one
another, penalties are at their defaults and the fit finds its own zeros. In `dense`
every column acts, the first ten bend all of them, and without a penalty on the network
every input reaches every feature: the least favourable case. The numbers of features
and inputs that are left are printed.

LightGBM has 500 trees of 31 leaves, all other parameters at their defaults, fitted to
the same rows. All predict the same table with the same number of threads, taking turns.
Seconds of the processor are printed beside those of the clock, because other work on
the machine does not enter them. `contributions` is what an explanation works out, the
way predictions were made before; it is timed on fewer rows.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from statistics import median

import lightgbm
import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMORegressor
from sknimo.model import FittedModel

N_FEATURES = 50
FIT_ROWS = 20_000
N_BENDING = 10
N_MEMBERS = 3
RIVAL = "LightGBM, 500 trees"
LIMIT = 1.0  # of its seconds
# Rows on which slower ways are timed.
FEW_ROWS = 20_000


@dataclass(frozen=True)
class Timing:
    """One way to predict one table."""

    task: str
    method: str
    rows: int
    threads: int
    seconds: float
    processor_seconds: float
    rows_per_second: float
    ratio: float


def make_rows(task: str, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal columns and a target; the truth does not depend on the seed."""
    truth = np.random.default_rng(7)
    n_acting = N_BENDING if task == "sparse" else N_FEATURES
    weight = truth.normal(size=(N_BENDING, n_acting)) / 3
    np.fill_diagonal(weight, 0.0)
    slope = np.linspace(1, 0.3, n_acting)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    y = np.empty(n_rows)
    for begin in range(0, n_rows, 50_000):
        rows = X[begin : begin + 50_000]
        bend = 1 + np.tanh(rows[:, :N_BENDING] @ weight)
        y[begin : begin + 50_000] = (rows[:, :n_acting] * slope * bend).sum(1)
    return X, y + 0.3 * rng.normal(size=n_rows)


def fit_members(task: str, X: np.ndarray, y: np.ndarray, steps: int) -> NIMORegressor:
    """An estimator whose model averages three fits."""
    options = {} if task == "sparse" else {"alpha": 1e-4, "network_alpha": 0.0}
    fits = [
        NIMORegressor(max_iter=steps, batch_size=1024, random_state=seed, **options)
        for seed in range(N_MEMBERS)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a short training
        models = [est.fit(X, y).model_ for est in fits]
    est, first = fits[0], models[0]
    est.model_ = FittedModel(
        features=first.features,
        family=first.family,
        spec=first.spec,
        coef=torch.cat([model.coef for model in models]),
        intercept=torch.cat([model.intercept for model in models]),
        params=torch.cat([model.params for model in models]),
        modulated=torch.cat([model.modulated for model in models]),
    )
    return est


def describe(model: FittedModel) -> str:
    """How much of a model is left to evaluate."""
    features = model.modulated.sum(1).tolist()
    inputs = [int((first != 0).any(0).sum()) for first in model.first_layer]
    return f"features bent {features}, inputs {inputs} of {N_FEATURES}"


def clock(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    begin, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - begin, time.process_time() - used


def compare(task: str, options: argparse.Namespace) -> list[Timing]:
    """Fit both, let them predict in turns."""
    X, y = make_rows(task, FIT_ROWS, seed=0)
    torch.set_num_threads(1)  # batches of this size gain nothing from more
    est = fit_members(task, X, y, options.steps)
    torch.set_num_threads(options.threads)
    trees = lightgbm.LGBMRegressor(
        n_estimators=500, num_leaves=31, n_jobs=options.threads, verbose=-1
    ).fit(X, y)
    table, truth = make_rows(task, options.rows, seed=1)
    methods: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        RIVAL: trees.predict,
        "sknimo": est.predict,
    }
    if options.device == "cuda":
        gpu = torch.device("cuda")
        methods["sknimo, GPU"] = lambda X: est.model_.eta(X, device=gpu)
    errors = {}
    for name, predict in methods.items():  # also warms up
        errors[name] = np.mean((predict(table[:FEW_ROWS]) - truth[:FEW_ROWS]) ** 2)
    print(f"{task}: {describe(est.model_)}")
    print("  MSE " + ", ".join(f"{name} {e:.3f}" for name, e in errors.items()))
    few = table[:FEW_ROWS]
    slow = est.model_.base_value + est.model_.contributions(few).sum(axis=1)
    for name in methods.keys() - {RIVAL}:
        gap = np.abs(methods[name](few) - slow).max()
        print(f"  {name} differs from the sum of contributions by at most {gap:.0e}")
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for _ in range(options.repeats):
        for name, predict in methods.items():
            times[name].append(clock(lambda predict=predict: predict(table)))
    old = [clock(lambda: est.model_.contributions(few)) for _ in range(3)]
    scale = options.rows / len(few)
    times["contributions"] = [(a * scale, b * scale) for a, b in old]
    rival = median(seconds for seconds, _ in times[RIVAL])
    return [
        summarise(task, name, options, found, rival) for name, found in times.items()
    ]


def summarise(
    task: str,
    name: str,
    options: argparse.Namespace,
    times: Iterable[tuple[float, float]],
    rival: float,
) -> Timing:
    seconds, used = (median(column) for column in zip(*times, strict=True))
    return Timing(
        task=task,
        method=name,
        rows=options.rows,
        threads=options.threads,
        seconds=seconds,
        processor_seconds=used,
        rows_per_second=options.rows / seconds,
        ratio=seconds / rival,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tasks", default="sparse,dense")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--csv", help="write the timings to this file as well")
    options = parser.parse_args()
    print(
        f"{options.rows} x {N_FEATURES} rows, {options.threads} threads of "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"torch {torch.__version__}, LightGBM {lightgbm.__version__}"
    )
    if options.device == "cuda":
        print(torch.cuda.get_device_name())
    results: list[Timing] = []
    for task in options.tasks.split(","):
        found = compare(task, options)
        results += found
        print(f"  {'':20s} {'seconds':>9s} {'processor':>10s} {'rows / s':>10s} ratio")
        for timing in found:
            print(
                f"  {timing.method:20s} {timing.seconds:9.2f} "
                f"{timing.processor_seconds:10.2f} {timing.rows_per_second:10.0f} "
                f"{timing.ratio:5.2f}",
                flush=True,
            )
        ours = next(timing for timing in found if timing.method == "sknimo")
        verdict = "kept" if ours.ratio <= LIMIT else "missed"
        print(f"  sknimo / LightGBM {ours.ratio:.2f} (limit {LIMIT} {verdict})")
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Timing)])
            writer.writeheader()
            writer.writerows(map(asdict, results))


if __name__ == "__main__":
    main()
