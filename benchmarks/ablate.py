"""What each number that decides a search is worth: one changed at a time.

    python benchmarks/ablate.py [--numbers tol,window] [--tables setting1,poisson]
                                [--seeds 1] [--first-seed 100] [--jobs 14]
                                [--minutes 8] [--csv ablate.csv]

Every number of `Settings`, `CurveRules` and `EvidenceOptions` is halved and doubled, or
moved to its neighbours where that says more, and the search is run again on simulated
tables on which the number can act. Printed for each: the mean ratio of the test loss to
that of the defaults, with its standard error over tables and seeds, and the ratio of
seconds. Losses are mean squared error, log loss and mean Poisson deviance on 2,000 rows
that no fit has seen. The first lines change `random_state` alone: a ratio is worth
talking about where it is farther from one than these.

Fits run in `--jobs` processes of one thread each, quick tables first, and each is
written to the CSV file as soon as it is done. A run that was stopped, at any moment or
by `--minutes`, goes on where it was; delete the file after a change of the library.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, fields, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from sknimo.datasets import make_nimo_classification, make_nimo_regression
from sknimo.estimators._searching import HIDDEN
from sknimo.search import Settings

N_TEST = 2_000
DEFAULTS = "defaults"
# Parameters of the estimator that are not fields of `Settings`.
PARAMETERS = {"random_state": 0, "hidden": HIDDEN}


@dataclass(frozen=True)
class Table:
    """A simulated table: how to draw it, and what the fit is told."""

    name: str
    n_rows: int
    kind: str  # "regression", "classification" or "poisson"
    setting: int = 0
    params: dict[str, Any] = field(default_factory=dict)

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        n_rows = self.n_rows + N_TEST
        if self.kind == "poisson":
            return draw_counts(n_rows, seed)
        labels = self.kind == "classification"
        make = make_nimo_classification if labels else make_nimo_regression
        return make(self.setting, n_rows, random_state=seed, return_X_y=True)


def draw_counts(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts with a bent line, a parabola, a wave and three idle columns."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n_rows, 7))
    eta = 0.3 + 0.4 * X[:, 0] * (1 + np.tanh(X[:, 1])) - 0.3 * X[:, 1]
    eta += 0.3 * (X[:, 2] ** 2 - 4 / 3) + 0.5 * np.sin(2 * X[:, 3])
    return X, rng.poisson(np.exp(eta)).astype(float)


# Quick ones first: a run that is cut short has whole lines of its summary.
TABLES = {
    table.name: table
    for table in (
        Table("setting1", 300, "regression", 1),
        Table("class1", 300, "classification", 1),
        Table("setting2", 300, "regression", 2),
        Table("poisson", 300, "poisson", params={"family": "poisson"}),
        Table("class-batches", 600, "classification", 1, {"batch_size": 128}),
        Table("batches", 600, "regression", 2, {"batch_size": 128}),
        Table("stable", 300, "regression", 2, {"rule": "stability"}),
        Table("setting3", 300, "regression", 3),
        # On either side of `max_work`.
        Table("rows2000", 2_000, "regression", 2),
        Table("rows4000", 4_000, "regression", 2),
    )
}
SPREAD = ("setting1", "setting2", "setting3", "poisson")  # the dispersion is estimated
KNOWN = ("class1",)  # the dispersion is known
SEPARABLE = ("class1", "poisson")  # coefficients can run away
USUAL = (*SPREAD, *KNOWN)
LARGE = ("batches", "class-batches", "rows4000")


@dataclass(frozen=True)
class Number:
    """A number by its place, the values to try, and tables on which it can act."""

    name: str  # a field of Settings, curves.FIELD, evidence.FIELD or fit.PARAMETER
    tried: tuple[Any, ...] | None = None
    tables: tuple[str, ...] = USUAL

    def default(self) -> Any:
        place, _, name = self.name.rpartition(".")
        if place == "fit":
            if name in PARAMETERS:
                return PARAMETERS[name]
            return getattr(Settings(), name)
        return getattr(getattr(Settings(), place) if place else Settings(), name)

    def values(self) -> tuple[Any, ...]:
        return neighbours(self.default()) if self.tried is None else self.tried

    def put(self, value: Any) -> tuple[dict[str, Any], Settings]:
        """Parameters and settings of a search with this value."""
        place, _, name = self.name.rpartition(".")
        if place == "fit":
            return {name: value}, Settings()
        if place:
            part = replace(getattr(Settings(), place), **{name: value})
            return {}, replace(Settings(), **{place: part})
        return {}, replace(Settings(), **{name: value})


def neighbours(value: float) -> tuple[float, float]:
    """Half and double; one less and one more for small whole numbers."""
    if isinstance(value, int) and value <= 6:
        return value - 1, value + 1
    return (value // 2 if isinstance(value, int) else value / 2), 2 * value


def tenfold(value: float) -> tuple[float, float]:
    return value / 10, value * 10


def make_numbers() -> tuple[Number, ...]:
    """Shares go half the way to one; numbers that span decades move by ten."""
    fixed = Settings()
    return (
        Number("fit.random_state", (1, 2), (*USUAL, *LARGE)),
        Number("fit.n_starts"),
        Number("fit.n_members"),
        Number("fit.max_iter", tables=(*USUAL, *LARGE)),
        Number("fit.hidden", ((4, 4), (16, 16))),
        Number("max_work", (fixed.max_work / 2,), ("rows2000",)),
        Number("max_work", (2 * fixed.max_work,), ("rows4000",)),
        Number("decisive_gain", tables=SPREAD),
        Number("agreed_share", (0.9, 0.99)),
        Number("clear_gain"),
        Number("path_length"),
        Number("path_ratio", tenfold(fixed.path_ratio)),
        Number("relaxation", ((0.0,), (0.0, 0.25, 0.5, 0.75, 1.0))),
        Number("optimism", ((1.0,), (0.1,), (0.5, 0.05, 0.5, 0.01)), SPREAD),
        Number(
            "optimism_fixed_dispersion",
            ((0.1,), (1.0,), (0.05, 0.15, 0.015, 0.5)),
            KNOWN,
        ),
        Number("output_scale"),
        Number("window", (3, 12), SPREAD),
        Number("window_fixed_dispersion", tables=KNOWN),
        Number("few_features", tables=("setting2", "setting3")),
        Number(
            "narrow_sizes", ((None,), (None, 4, 3, 2), (None, 16, 12, 8)), ("setting3",)
        ),
        Number("brief_steps"),
        Number("wald_threshold"),
        Number("bilinear_margin"),
        Number("faint_slack"),
        Number("n_jurors"),
        Number("known_dispersion_share", (0.5, 1.0), KNOWN),
        Number("linear_margin"),
        Number("stable_share", (0.4, 0.9), ("stable",)),
        Number("member_share", (0.35, 0.85)),
        Number("evidence_margin"),
        Number("max_errors", tables=SPREAD),
        Number("min_step", tables=SPREAD),
        Number("max_moves", (2, 8), SPREAD),
        Number("move_margin", tables=SPREAD),
        Number("max_folds", (2, 3)),
        Number("max_tries", (1, 6)),
        Number("verdict_steps"),
        Number("success_share", (0.25, 0.75)),
        Number("tiny_gain"),
        *make_bag_numbers(fixed),
        *make_curve_numbers(),
        *make_evidence_numbers(fixed),
    )


def make_bag_numbers(fixed: Settings) -> tuple[Number, ...]:
    return (
        Number("bag_hidden", ((32, 32), (128, 128)), LARGE),
        Number("start_share", (0.01, 0.1, 0.3), LARGE),
        Number("largest_ridge", tenfold(fixed.largest_ridge), LARGE),
        Number("max_modulated", (4, 8), ("rows4000",)),
        Number("bag_steps", tables=("class-batches",)),
        Number("n_scouts", tables=LARGE),
        Number("max_visits", tables=("rows4000",)),
        Number("dial_steps", tables=LARGE),
        Number("spread_rows", tables=("rows4000",)),
        Number("term_edges", tables=LARGE),
        Number("input_edges", tables=LARGE),
    )


def make_curve_numbers() -> tuple[Number, ...]:
    return (
        Number("curves.margin"),
        Number("curves.fixed_dispersion_margin", tables=KNOWN),
        Number("curves.max_rows", (1_000, 2_000), ("rows4000",)),
        Number("curves.max_curves", tables=("setting3",)),
        Number("curves.promise", tables=("setting3",)),
        # Among fifty features a hundred lines are all of them.
        Number("curves.max_lines", (10, 25), ("setting3",)),
        Number("curves.trial_steps"),
    )


def make_evidence_numbers(fixed: Settings) -> tuple[Number, ...]:
    least, most = fixed.evidence.precision_range
    return (
        Number("evidence.burn_in"),
        Number("evidence.tol"),
        Number("evidence.input_margin"),
        Number("evidence.faint_slack"),
        Number("evidence.feature_steps"),
        Number("evidence.input_steps"),
        Number("evidence.weak_margins"),
        Number(
            "evidence.precision_range",
            ((least * 10, most / 10), (least / 10, most * 10)),
        ),
        Number(
            "evidence.least_logit_precision",
            tenfold(fixed.evidence.least_logit_precision),
            SEPARABLE,
        ),
        Number("evidence.dead_input", tenfold(fixed.evidence.dead_input)),
        Number("evidence.dead_coef", tenfold(fixed.evidence.dead_coef)),
    )


# Fields that no ablation changes: what the user asks for, where and how long to
# compute, records with numbers of their own, and what a search sets by other fields.
LEFT_OUT = {
    *("relax", "rule", "alphas", "batch_size", "n_jobs", "memory_budget", "deadline"),
    *("n_processes", "progress", "curves", "evidence"),
    "sample_rows",  # of rows in blocks alone
    # Limits of memory, and what acts on sparse models of large tables alone.
    *("max_columns", "columns_per_row", "least_edges"),
    *("keep_share", "copy_correlation"),
    *("additive", "joint"),
    # What decides between bags and evidence was measured on real tables.
    *("few_hidden", "least_rows", "blend_steps", "blend_errors", "blend_gain"),
    *("class_margin", "settled_pooling", "settled_rise"),
    *("least_gain", "cautious", "few_rows", "least_batch", "least_steps"),
    *("work_hidden", "smooth_times", "dial_errors", "least_weight"),
    "few_joint",
    *("cycle_share", "most_steps", "largest_batch", "usual_features", "pair_level"),
    # These act on survival alone.
    "bags_first",
    # These act on several classes alone.
    *("class_columns", "line_ridges", "line_steps", "few_kept"),
    *("evidence.max_iter", "evidence.window", "evidence.feature_margin"),
    *("evidence.memory_budget", "evidence.deadline"),
    # When hopeless restarts are given up: their seconds.
    *("evidence.least", "evidence.grace", "evidence.allowance"),
}


@dataclass(frozen=True)
class Fit:
    """A search: what was changed, on which table, and what came out."""

    number: str
    tried: str
    table: str
    seed: int
    loss: float = np.nan
    seconds: float = np.nan

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.number, self.tried, self.table, self.seed


Task = tuple[Fit, dict[str, Any], Settings]


def plan(numbers: Iterable[Number], tables: set[str], seeds: range) -> Iterator[Task]:
    """The defaults on every table that a number needs, then the changed fits."""
    numbers = list(numbers)
    used = {name for number in numbers for name in number.tables} & tables
    for seed in seeds:
        for name in filter(used.__contains__, TABLES):
            yield Fit(DEFAULTS, "", name, seed), {}, Settings()
            for number in numbers:
                for value in number.values() if name in number.tables else ():
                    yield Fit(number.name, str(value), name, seed), *number.put(value)


def warm_up() -> None:
    """Let a process load what its first fit needs, so that no fit pays for it."""
    import torch

    from sknimo import NIMOClassifierCV

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, y = TABLES["class1"].draw(0)
    for batch_size in (0, 16):
        est = NIMOClassifierCV(n_starts=1, max_iter=3, batch_size=batch_size)
        est.fit(X[:100], y[:100])


def run_fit(fit: Fit, params: dict[str, Any], settings: Settings) -> Fit:
    """Search with one thread; a search that fails has no loss."""
    from threadpoolctl import threadpool_limits

    from sknimo import NIMOClassifierCV, NIMORegressorCV

    table = TABLES[fit.table]
    X, y = table.draw(fit.seed)
    n, labels = table.n_rows, table.kind == "classification"
    make = NIMOClassifierCV if labels else NIMORegressorCV
    est = make(**{"random_state": 0, **table.params, **params})
    est._settings = settings
    with threadpool_limits(1):
        begin = perf_counter()
        try:
            est.fit(X[:n], y[:n])
        except Exception as error:  # one value out of range must not end the run
            print(f"failed: {fit.key}: {error!r}"[:300], file=sys.stderr)
            return fit
        seconds = perf_counter() - begin
        loss = measure_loss(est, table.kind, X[n:], y[n:])
    return replace(fit, loss=loss, seconds=seconds)


def measure_loss(est: Any, kind: str, X: np.ndarray, y: np.ndarray) -> float:
    from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

    if kind == "classification":
        return float(log_loss(y, est.predict_proba(X)))
    loss = mean_poisson_deviance if kind == "poisson" else mean_squared_error
    return float(loss(y, est.predict(X)))


def read_fits(path: Path) -> dict[tuple, Fit]:
    """What has been computed; a line that a kill has cut off goes."""
    if not path.exists():
        return {}
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])
    with path.open(newline="") as lines:
        fits = [
            Fit(
                row["number"],
                row["tried"],
                row["table"],
                int(row["seed"]),
                float(row["loss"]),
                float(row["seconds"]),
            )
            for row in csv.DictReader(lines)
        ]
    return {fit.key: fit for fit in fits}


def append_fit(path: Path, fit: Fit) -> None:
    is_new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as lines:
        names = [f.name for f in fields(Fit)]
        writer = csv.DictWriter(lines, names, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(asdict(fit))


def describe(fit: Fit) -> str:
    changed = f"{fit.table:14s} {fit.number} {fit.tried}"
    return f"{changed}: {fit.loss:.5g} in {fit.seconds:.1f} s"


def run(
    tasks: list[Task], path: Path, jobs: int, minutes: float | None = None
) -> dict[tuple, Fit]:
    """Compute what the file does not have while there is time, and return all of it."""
    done = read_fits(path)
    missing = [task for task in tasks if task[0].key not in done]
    print(f"{len(tasks)} fits, {len(missing)} to compute", flush=True)
    begin = perf_counter()
    with ProcessPoolExecutor(jobs, get_context("spawn"), warm_up) as pool:
        futures = [pool.submit(run_fit, *task) for task in missing]
        finished = as_completed(futures, None if minutes is None else 60 * minutes)
        try:
            for place, future in enumerate(finished, 1):
                fit, clock = future.result(), perf_counter() - begin
                counted = f"{place:4d}/{len(missing)} {clock:6.0f} s"
                print(f"{counted}  {describe(fit)}", flush=True)
                if np.isfinite(fit.loss):
                    append_fit(path, fit)
                    done[fit.key] = fit
        except TimeoutError:
            print(f"stopped after {minutes:g} minutes", flush=True)
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.kill()
    return done


@dataclass(frozen=True)
class Ratio:
    """How a value compares with the default, over tables and seeds."""

    mean: float
    error: float
    worst: str  # the table with the largest ratio
    largest: float
    seconds: float
    n_fits: int


def compare(number: Number, value: Any, done: dict[tuple, Fit]) -> Ratio | None:
    pairs = [
        (fit, done[DEFAULTS, "", fit.table, fit.seed])
        for fit in done.values()
        if (fit.number, fit.tried) == (number.name, str(value))
        and (DEFAULTS, "", fit.table, fit.seed) in done
    ]
    if not pairs:
        return None
    ratios = np.array([fit.loss / default.loss for fit, default in pairs])
    error = np.nan
    if len(ratios) > 1:
        error = float(ratios.std(ddof=1)) / len(ratios) ** 0.5
    worst = int(np.argmax(ratios))
    return Ratio(
        float(ratios.mean()),
        error,
        pairs[worst][0].table,
        float(ratios[worst]),
        sum(a.seconds for a, _ in pairs) / sum(b.seconds for _, b in pairs),
        len(pairs),
    )


def print_summary(numbers: Iterable[Number], done: dict[tuple, Fit]) -> None:
    print(
        f"\n{'number':32s} {'default':>22s} {'tried':>22s} {'loss':>7s} {'error':>6s}"
        f" {'seconds':>7s} {'fits':>4s}  largest ratio"
    )
    for number in numbers:
        for value in number.values():
            ratio = compare(number, value, done)
            if ratio is not None:
                print(
                    f"{number.name:32s} {number.default()!s:>22.22s} {value!s:>22.22s}"
                    f" {ratio.mean:7.3f} {ratio.error:6.3f} {ratio.seconds:7.2f}"
                    f" {ratio.n_fits:4d}  {ratio.largest:.3f} {ratio.worst}"
                )


def choose_numbers(text: str | None) -> list[Number]:
    numbers = make_numbers()
    asked = text.split(",") if text else [number.name for number in numbers]
    unknown = set(asked) - {number.name for number in numbers}
    if unknown:
        known = ", ".join(dict.fromkeys(number.name for number in numbers))
        raise SystemExit(f"--numbers: {', '.join(unknown)} not among {known}.")
    return [number for number in numbers if number.name in asked]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--numbers", help="comma-separated; all by default")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=1, help="seeds per table")
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, help="stop after this wall time")
    parser.add_argument("--csv", type=Path, default=Path("ablate.csv"))
    options = parser.parse_args()
    tables = set(options.tables.split(","))
    if tables - set(TABLES):
        raise SystemExit(f"--tables: choose from {', '.join(TABLES)}.")
    numbers = choose_numbers(options.numbers)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = list(plan(numbers, tables, seeds))
    done = run(tasks, options.csv, options.jobs, options.minutes)
    wanted = {task[0].key for task in tasks}
    print_summary(numbers, {key: fit for key, fit in done.items() if key in wanted})


if __name__ == "__main__":
    main()
