"""Responses that are no plain numbers, on rows held out and against known truths.

    python benchmarks/responses.py SECTION [--data DIR] [--tables NAME,NAME]
        [--methods NAME,NAME] [--splits 10] [--first 0] [--jobs 1]
        [--time-limit SECONDS] [--csv responses_SECTION.csv]

    python benchmarks/responses.py classes    log loss, several classes
    python benchmarks/responses.py survival   concordance and calibration
    python benchmarks/responses.py counts     likelihood of overdispersed counts
    python benchmarks/responses.py truth      support and coefficients, simulated

DIR, or the environment variable SKNIMO_DATA, is a folder of tables NAME.csv.gz with a
header line; text columns are categories. Each section says in `_responses_SECTION.py`
what it compares. Splits have the seeds FIRST, FIRST + 1, ...; what is tuned is tuned on
seeds from 100 on. Every fit is written to the CSV file as soon as it is done, and what
the file has is not done again; a method whose library is missing is left out. Each fit
has a process with one thread.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

SECTIONS = ("classes", "survival", "counts", "truth")
# Rivals first: they take little, and a run that is cut has something to compare with.
OURS = "sknimo"


@dataclass(frozen=True)
class Task:
    """One fit."""

    section: str
    folder: Path | None
    table: str
    method: str
    seed: int

    def run(self) -> list[dict[str, Any]]:
        """Lines of the CSV file; none where a library is missing."""
        began = time.perf_counter()
        key = {"table": self.table, "method": self.method, "seed": self.seed}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                measure = load(self.section).measure
                found = measure(self.folder, self.table, self.method, self.seed)
        except ModuleNotFoundError as error:
            print(f"{self.method} is left out: {error}", flush=True)
            return []
        seconds = time.perf_counter() - began
        return [key | line | {"seconds": seconds} for line in found]


def load(section: str) -> Any:
    return importlib.import_module(f"_responses_{section}")


def list_tasks(args: argparse.Namespace, done: pd.DataFrame) -> Iterator[Task]:
    known = set()
    if len(done):
        known = set(zip(done["table"], done["method"], done["seed"], strict=True))
    section = load(args.section)
    methods = (args.methods or ",".join(section.METHODS)).split(",")
    for seed in range(args.first, args.first + args.splits):
        for method in sorted(methods, key=lambda name: name == OURS):
            for table in (args.tables or section.TABLES).split(","):
                if (table, method, seed) not in known:
                    yield Task(args.section, args.data, table, method, seed)


def run_all(tasks: list[Task], args: argparse.Namespace, csv: Path) -> None:
    """Fit on processes of one thread each, until all is done or time is over."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before a process loads what reads it
    end = time.monotonic() + args.time_limit
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        waiting = pool.imap_unordered(Task.run, tasks)
        for _ in tasks:
            try:
                found = waiting.next(max(end - time.monotonic(), 0.0))
            except multiprocessing.TimeoutError:
                print("time is over", flush=True)
                return
            if found:
                lines = pd.DataFrame(found)
                lines.to_csv(csv, mode="a", header=not csv.exists(), index=False)
                print(*found[0].values(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--data", type=Path, default=os.environ.get("SKNIMO_DATA"))
    parser.add_argument("--tables")
    parser.add_argument("--methods")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=1e6, help="seconds")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    args.data = args.data and Path(args.data)
    csv = args.csv or Path(f"responses_{args.section}.csv")
    done = pd.read_csv(csv) if csv.exists() else pd.DataFrame()
    tasks = list(list_tasks(args, done))
    if tasks:
        run_all(tasks, args, csv)
    if csv.exists():
        load(args.section).show(pd.read_csv(csv))


if __name__ == "__main__":
    main()
