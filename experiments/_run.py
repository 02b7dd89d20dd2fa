"""Cells and their results: plan, compute what is missing, look up.

A cell is one fit: a method on a data set with a seed. Its entries (see `_measure.py`)
are written to `OUT/cells/DATASET.csv` as soon as they are known, all at once; a cell
whose entries are there is not computed again, so every run can be stopped and resumed,
and artefacts share cells. Quick and full cells never mix.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from rivals import MissingRivalError, Rival

from experiments._data import BIG, MissingTableError, check_table, load
from experiments._measure import Entry, measure
from experiments._methods import make_methods
from experiments._tables import Page

COLUMNS = (
    "effort",
    "dataset",
    "method",
    "seed",
    "version",
    "quantity",
    "item",
    "value",
)
LAST = "seconds"  # the entry that completes a cell
# Methods in the order of time that they take, longest first, so that no long fit is
# left to the end of a parallel run.
SLOW = ("nam", "nimo", "lassonet", "imn", "sknimo", "ebm", "localglmnet", "mlp")


@dataclass(frozen=True)
class Cell:
    """One fit."""

    effort: str  # "quick" or "full"
    dataset: str
    method: str
    seed: int

    @property
    def quick(self) -> bool:
        return self.effort == "quick"


@dataclass(frozen=True)
class Plan:
    """Cells of an artefact: every method on every data set with every seed."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    quick_seeds: int

    def cells(self, choice: Choice) -> Iterator[Cell]:
        count = self.quick_seeds if choice.quick else self.seeds
        for dataset in self.datasets:
            for seed in range(count) if choice.seeds is None else choice.seeds:
                for method in self.methods:
                    if choice.admits(dataset, method):
                        yield Cell(choice.effort, dataset, method, seed)


@dataclass(frozen=True)
class Choice:
    """What the command line asks for."""

    quick: bool
    seeds: tuple[int, ...] | None
    methods: tuple[str, ...] | None
    datasets: tuple[str, ...] | None
    out: Path
    data: str | None
    jobs: int
    device: str = "cpu"
    cells_only: bool = False

    @property
    def effort(self) -> str:
        return "quick" if self.quick else "full"

    def admits(self, dataset: str, method: str) -> bool:
        return (self.methods is None or method in self.methods) and (
            self.datasets is None or dataset in self.datasets
        )


@dataclass
class Results:
    """Entries of all cells of one effort, by data set, method and quantity."""

    effort: str
    values: dict[tuple[str, str, str], dict[int, dict[str, float]]] = field(
        default_factory=dict
    )
    done: set[Cell] = field(default_factory=set)

    def add(self, cell: Cell, entries: Iterable[Entry]) -> None:
        for quantity, item, value in entries:
            key = (cell.dataset, cell.method, quantity)
            self.values.setdefault(key, {}).setdefault(cell.seed, {})[item] = value
        self.done.add(cell)

    def items(self, dataset: str, method: str, quantity: str) -> dict[int, dict]:
        """Values by seed and item."""
        return self.values.get((dataset, method, quantity), {})

    def scalars(self, dataset: str, method: str, quantity: str) -> dict[int, float]:
        """Values by seed, of a quantity without items."""
        found = self.items(dataset, method, quantity)
        return {seed: by_item[""] for seed, by_item in sorted(found.items())}

    def relative_cpu(self, dataset: str, method: str) -> dict[int, float]:
        """Processor times in units of a fixed piece of work, by seed."""
        cpu = self.scalars(dataset, method, "cpu")
        unit = self.scalars(dataset, method, "yardstick")
        return {seed: cpu[seed] / unit[seed] for seed in cpu}

    def table(
        self, dataset: str, method: str, quantity: str, names: Sequence[str]
    ) -> np.ndarray:
        """Values of all seeds, (n_seeds, n_names); absent items are NaN."""
        by_seed = sorted(self.items(dataset, method, quantity).items())
        rows = [[row.get(name, np.nan) for name in names] for _, row in by_seed]
        return np.array(rows, dtype=float).reshape(len(rows), len(names))

    def names(self, dataset: str, quantity: str) -> list[str]:
        """Items of a quantity in the order in which they were written."""
        for (other, _, known), by_seed in self.values.items():
            if other == dataset and known == quantity:
                return list(next(iter(by_seed.values())))
        return []

    def datasets(self, order: Sequence[str]) -> list[str]:
        known = {dataset for dataset, _, _ in self.values}
        return [dataset for dataset in order if dataset in known]


@dataclass(frozen=True)
class Artefact:
    """A table or figure of the paper."""

    number: int
    name: str  # of the module and of the files written
    title: str
    plans: tuple[Plan, ...]
    render: Callable[[Results], Page]

    @property
    def stem(self) -> str:
        return f"{self.number:02d}_{self.name}"

    def main(self) -> None:
        """Command line of one artefact."""
        choice = parse_choice(f"{self.title}.")
        results = run([self], choice)
        if choice.cells_only:
            return
        page = self.render(results)
        page.write(choice.out, self.stem)
        print(page.markdown(self.stem))


def run(artefacts: Iterable[Artefact], choice: Choice) -> Results:
    """Compute the cells that are missing, and return all."""
    artefacts = tuple(artefacts)
    check_names(artefacts, choice)
    folder = choice.out / "cells"
    results = read_results(folder, choice.effort)
    wanted = dict.fromkeys(
        cell for a in artefacts for plan in a.plans for cell in plan.cells(choice)
    )
    missing = [c for c in available(wanted, choice.data) if c not in results.done]
    # Seed by seed, so that an early stop leaves a fair table.
    missing.sort(key=lambda c: (c.seed, c.dataset not in BIG, slowness(c.method)))
    print(f"{len(wanted)} cells, {len(missing)} to compute", file=sys.stderr)
    # A worker process each: fits are single-threaded, and one that dies is noticed.
    parallel = Parallel(n_jobs=choice.jobs, return_as="generator_unordered")
    tasks = (delayed(try_cell)(cell, choice) for cell in missing)
    for place, outcome in enumerate(parallel(tasks), 1):
        print(f"{place:4d}/{len(missing)} {describe(outcome)}", file=sys.stderr)
        if not outcome.error:
            append(folder, outcome)
            results.add(outcome.cell, outcome.entries)
    return results


def check_names(artefacts: Iterable[Artefact], choice: Choice) -> None:
    """Refuse names that no plan has: they would be left out without a word."""
    plans = [plan for artefact in artefacts for plan in artefact.plans]
    for asked, kind in ((choice.methods, "methods"), (choice.datasets, "datasets")):
        known = dict.fromkeys(name for plan in plans for name in getattr(plan, kind))
        unknown = [name for name in asked or () if name not in known]
        if unknown:
            raise SystemExit(
                f"--{kind}: {', '.join(unknown)} not among {', '.join(known)}."
            )


def available(cells: Iterable[Cell], data: str | None) -> list[Cell]:
    """Cells whose method is installed and whose table is there; others are named."""
    usable, absent = [], {}
    for cell in cells:
        try:
            methods_of(cell.quick)[cell.method].load()
            check_table(cell.dataset, data)
        except (MissingRivalError, MissingTableError) as error:
            absent[str(error)] = None
            continue
        usable.append(cell)
    for message in absent:
        print(f"left out: {message}", file=sys.stderr)
    return usable


@cache
def methods_of(quick: bool, device: str = "cpu") -> dict[str, Rival]:
    return make_methods(quick, device)


def slowness(method: str) -> int:
    places = [k for k, name in enumerate(SLOW) if method.startswith(name)]
    return min(places, default=len(SLOW))


@dataclass(frozen=True)
class Outcome:
    """Entries of a cell and the version of its method, or what went wrong."""

    cell: Cell
    version: str
    entries: list[Entry]
    error: str = ""


def try_cell(cell: Cell, choice: Choice) -> Outcome:
    """Compute a cell; an error ends that cell alone."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    method = methods_of(cell.quick, choice.device)[cell.method]
    try:
        loaded = load(cell.dataset, cell.seed, choice.data, cell.quick)
        # joblib lets BLAS of each process use its share of the cores, and threads that
        # wait count as processor time.
        with threadpool_limits(1):
            return Outcome(cell, method.version, measure(loaded, method))
    except Exception as error:
        return Outcome(cell, "", [], repr(error)[:300])


def describe(outcome: Outcome) -> str:
    cell = outcome.cell
    text = f"{cell.dataset:20s} {cell.method:20s} seed {cell.seed:<3d} "
    if outcome.error:
        return text + f"failed: {outcome.error}"
    figure, _, value = outcome.entries[0]
    return text + f"{figure} {value:10.4g} {outcome.entries[-1][2]:8.1f} s"


def append(folder: Path, outcome: Outcome) -> None:
    """Add a cell in a single write."""
    cell = outcome.cell
    path = folder / f"{cell.dataset}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    key = [cell.effort, cell.dataset, cell.method, str(cell.seed), outcome.version]
    lines = [] if path.exists() else [",".join(COLUMNS)]
    for quantity, item, value in outcome.entries:
        lines.append(",".join([*key, quantity, item, f"{value:.6g}"]))
    with path.open("a", newline="") as out:
        out.write("\n".join(lines) + "\n")


def read_results(folder: Path, effort: str) -> Results:
    """All complete cells of an effort; of two with the same key the later counts."""
    results = Results(effort)
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as lines:
            rows = (row for row in csv.DictReader(lines) if row["effort"] == effort)
            pending: list[Entry] = []
            before = None
            for row in rows:
                cell = Cell(effort, row["dataset"], row["method"], int(row["seed"]))
                if cell != before:  # what a killed run left of another cell
                    pending, before = [], cell
                pending.append((row["quantity"], row["item"], float(row["value"])))
                if row["quantity"] == LAST:
                    results.add(cell, pending)
                    pending = []
    return results


def parse_choice(description: str, arguments: Sequence[str] | None = None) -> Choice:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="minutes on two cores")
    parser.add_argument("--seeds", help="how many, or a list such as 0,3,7")
    parser.add_argument("--methods", help="only these, comma-separated")
    parser.add_argument("--datasets", help="only these, comma-separated")
    parser.add_argument("--out", type=Path, help="folder of results")
    parser.add_argument("--data", help="folder of tables; default SKNIMO_DATA")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", default="cpu", help="of sknimo: cpu or cuda")
    parser.add_argument(
        "--cells-only", action="store_true", help="draw nothing; needs no matplotlib"
    )
    options = parser.parse_args(arguments)
    default = Path("experiments", "results", "quick" if options.quick else "full")
    return Choice(
        quick=options.quick,
        seeds=parse_seeds(options.seeds),
        methods=split_names(options.methods),
        datasets=split_names(options.datasets),
        out=options.out or default,
        data=options.data or find_tables(),
        jobs=options.jobs,
        device=options.device,
        cells_only=options.cells_only,
    )


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if "," not in text:
        return tuple(range(int(text)))
    return tuple(int(part) for part in text.split(",") if part)


def split_names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, text.split(",")))


def find_tables() -> str | None:
    """Folder of tables: the environment's, or where `download.py` puts them."""
    from experiments.download import default_folder

    folder = default_folder()
    return str(folder) if folder.exists() or "SKNIMO_DATA" in os.environ else None
