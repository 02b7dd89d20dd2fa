"""Test error of sknimo and its rivals on simulated rows, the same, in the same run.

    python benchmarks/accuracy.py [--tasks setting0..setting4,class1]
                                  [--rivals sknimo,lasso] [--seeds 10] [--first-seed 0]
                                  [--n-jobs 2] [--csv out.csv] [--quick]
    python benchmarks/accuracy.py --table out.csv [--seeds 10] [--first-seed 0]

Figures are mean squared errors for regression and shares of correct labels for
classification, on rows that no method has seen; see `tasks.py` for the data and
`rivals.py` for the settings. Fits run one after another, each with `n_jobs` processes
or threads where the method can use them.

Rows that the CSV file holds already are not fitted again, so a run that was stopped can
be resumed; `--again` fits them anew, and the newest row counts. `--table` prints the
given seeds of a CSV file as Markdown.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import mean, median, stdev
from time import perf_counter

import numpy as np
from rivals import RIVALS, USUAL_RIVALS, Fitted, MissingRivalError, Rival, start_workers
from tasks import EVERY_TASK, Figure, Task, expand_names, load_task

SUPPORTS = ("coef", "inputs", "features")


@dataclass(frozen=True)
class Result:
    """One fit; supports are "" where the truth or the method's answer is unknown."""

    task: str
    rival: str
    seed: int
    n_fit: int
    n_test: int
    figure: Figure
    value: float
    seconds: float
    n_jobs: int
    version: str
    coef_exact: str = ""
    inputs_exact: str = ""
    features_exact: str = ""

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.task, self.rival, self.seed, self.n_fit


def measure(task: Task, rival: Rival, n_jobs: int | None) -> Result:
    """Fit, predict the test rows and compare supports with the truth."""
    rival.load()
    begin = perf_counter()
    fitted = rival.fit(task.rows, task.seed, n_jobs)
    seconds = perf_counter() - begin
    return Result(
        task.name,
        rival.name,
        task.seed,
        len(task.rows.y),
        len(task.y_test),
        task.figure,
        task.score(fitted.predict(task.X_test)),
        seconds,
        n_jobs or 1,
        rival.version,
        **{f"{name}_exact": is_exact(task, fitted, name) for name in SUPPORTS},
    )


def is_exact(task: Task, fitted: Fitted, support: str) -> str:
    """Whether a support is the true one: "1", "0" or, when unknown, ""."""
    found = getattr(fitted, support)
    if task.truth is None or found is None:
        return ""
    return str(int(np.array_equal(found, getattr(task.truth, support))))


def read_results(path: Path) -> dict[tuple, Result]:
    """Results in a CSV file by key; of two with the same key the later counts."""
    if not path.exists():
        return {}
    with path.open(newline="") as lines:
        results = [parse(row) for row in csv.DictReader(lines)]
    return {result.key: result for result in results}


def parse(row: dict[str, str]) -> Result:
    kinds = {"int": int, "float": float}
    values = {f.name: kinds.get(f.type, str)(row[f.name]) for f in fields(Result)}
    return Result(**values)


def append_result(path: Path, result: Result) -> None:
    is_new = not path.exists() or path.stat().st_size == 0
    with path.open("a", newline="") as lines:
        names = [field.name for field in fields(Result)]
        writer = csv.DictWriter(lines, names, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(asdict(result))


def run(options: argparse.Namespace) -> dict[tuple, Result]:
    """Fit what is missing, seed by seed, so that an early stop leaves a fair table."""
    done = read_results(options.csv) if options.csv and not options.again else {}
    rivals = usable_rivals(options.rivals.split(","), RIVALS)
    results, failures = {}, 0
    names = expand_names(options.tasks)
    start_workers(options.n_jobs)
    for name in names:
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            task = load_task(name, seed, None, options.quick)
            for rival in rivals:
                result = done.get((name, rival.name, seed, len(task.rows.y)))
                if result is None:
                    result = try_to_measure(task, rival, options.n_jobs)
                    if result is None:
                        failures += 1
                        continue
                    if options.csv:
                        append_result(options.csv, result)
                    print(describe(result), flush=True)
                results[result.key] = result
    if failures:
        print(f"{failures} fits failed and are missing from the table", file=sys.stderr)
    return results


def usable_rivals(names: Iterable[str], known: Mapping[str, Rival]) -> list[Rival]:
    """The rivals asked for, less those whose package is missing."""
    usable = []
    for name in names:
        if name not in known:
            raise SystemExit(f"{name} is not a rival; choose from {', '.join(known)}.")
        try:
            known[name].load()
        except MissingRivalError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        usable.append(known[name])
    return usable


def try_to_measure(task: Task, rival: Rival, n_jobs: int) -> Result | None:
    try:
        return measure(task, rival, n_jobs)
    except Exception as error:  # a rival that diverges must not end the whole run
        where = f"{task.name}, {rival.name}, seed {task.seed}"
        print(f"failed: {where}: {error!r}"[:300], file=sys.stderr)
        return None


def describe(result: Result) -> str:
    return (
        f"{result.task:13s} {result.rival:17s} seed {result.seed:<4d} "
        f"{result.figure} {show(result.value):>8s}  {result.seconds:7.1f} s"
    )


def show(value: float) -> str:
    """Three significant digits, without exponents."""
    if value == 0 or not np.isfinite(value):
        return str(value)
    n_decimals = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{n_decimals}f}"


def choose(results: Iterable[Result], seeds: range) -> list[Result]:
    """Results with these seeds, without those of quick runs beside full ones."""
    results = [result for result in results if result.seed in seeds]
    most: dict[str, int] = {}
    for result in results:
        most[result.task] = max(result.n_fit, most.get(result.task, 0))
    return [result for result in results if result.n_fit == most[result.task]]


Groups = dict[tuple[str, str], list[Result]]


def group(results: Iterable[Result]) -> Groups:
    """Results of each task and rival, in the order in which they first appear."""
    groups: Groups = {}
    for result in results:
        groups.setdefault((result.task, result.rival), []).append(result)
    return groups


def share_exact(results: list[Result], support: str) -> str:
    answers = [getattr(result, f"{support}_exact") for result in results]
    if "" in answers:
        return ""
    return f"{answers.count('1')}/{len(answers)}"


def spread(values: list[float]) -> float:
    return stdev(values) if len(values) > 1 else float("nan")


def print_summary(groups: Groups) -> None:
    head = f"{'task':13s} {'rival':17s} {'seeds':>5s}  figure "
    head += "".join(f"{word:>9s}" for word in ("mean", "sd", "median", "seconds"))
    print(f"\n{head}  exact coef, inputs")
    for (task, rival), results in groups.items():
        values = [result.value for result in results]
        numbers = [mean(values), spread(values), median(values)]
        numbers.append(median(result.seconds for result in results))
        line = f"{task:13s} {rival:17s} {len(results):5d} {results[0].figure:>8s}"
        line += "".join(f"{show(number):>9s}" for number in numbers)
        exact = ", ".join(share_exact(results, name) for name in SUPPORTS[:2])
        print(f"{line}  {exact.strip(', ')}")


def print_markdown(groups: Groups) -> None:
    """Figures, exact supports and seconds, each with a rival per row."""
    figures = {task: results[0].figure for (task, _), results in groups.items()}
    kinds = {
        "Simulated regression, mean squared error": [
            task for task in figures if figures[task] == "mse"
        ],
        "Simulated classification, accuracy": [
            task for task in figures if figures[task] == "accuracy"
        ],
    }
    for title, tasks in kinds.items():
        print_block(f"{title}: mean ± sd (median)", tasks, groups, figure_cell)
    for support in SUPPORTS:
        print_block(
            f"Exact support of {support}, share of seeds",
            list(figures),
            groups,
            lambda results, support=support: share_exact(results, support),
        )
    print_block("Seconds per fit, median", list(figures), groups, seconds_cell)


def print_block(
    title: str,
    tasks: list[str],
    groups: Groups,
    cell: Callable[[list[Result]], str],
) -> None:
    """One Markdown table; rivals that have nothing to say are left out."""
    rivals = dict.fromkeys(rival for _, rival in groups)
    most = max((len(results) for results in groups.values()), default=0)
    rows = []
    for rival in rivals:
        texts = []
        for task in tasks:
            results = groups.get((task, rival), [])
            text = cell(results) if results else ""
            if text and len(results) < most and "/" not in text:
                text += f", {len(results)} seeds"
            texts.append(text)
        if any(texts):
            rows.append([rival, *texts])
    if not rows:
        return
    print(f"\n{title}; {most} seeds unless a cell says otherwise.\n")
    print("| " + " | ".join(["method", *tasks]) + " |")
    print("|---" * (1 + len(tasks)) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def figure_cell(results: list[Result]) -> str:
    values = [result.value for result in results]
    if len(values) == 1:
        return show(values[0])
    return f"{show(mean(values))} ± {show(spread(values))} ({show(median(values))})"


def seconds_cell(results: list[Result]) -> str:
    return show(median(result.seconds for result in results))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default=EVERY_TASK)
    parser.add_argument("--rivals", default=",".join(USUAL_RIVALS))
    parser.add_argument("--seeds", type=int, help="how many; 10, or 1 with --quick")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=os.cpu_count())
    parser.add_argument("--csv", type=Path, help="file to resume from and add to")
    parser.add_argument("--again", action="store_true", help="fit known rows anew")
    parser.add_argument("--quick", action="store_true", help="fewer rows, one seed")
    parser.add_argument("--table", type=Path, help="print this CSV file as Markdown")
    options = parser.parse_args()
    if options.seeds is None:
        options.seeds = 1 if options.quick else 10
    return options


def main() -> None:
    options = parse_options()
    if options.table:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        print_markdown(group(choose(read_results(options.table).values(), seeds)))
    else:
        print_summary(group(run(options).values()))


if __name__ == "__main__":
    main()
