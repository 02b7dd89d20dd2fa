"""How steady coefficients are: their spread over seeds beside that over samples.

    python benchmarks/stability.py --tables heart_statlog,pima_diabetes [--data DIR]
                                   [--seeds 5] [--samples 30] [--jobs 2]
                                   [--set n_members=20] [--time-limit 600]
                                   [--csv stability.csv]

A search draws folds and restarts by `random_state`. All rows of a table are fitted with
several of them, and as many bootstrap samples as asked for, each with its own seed. For
every coefficient the standard deviation over seeds is divided by that over samples, its
bootstrap standard error; and so for average effects on the linear predictor.

Fits that are in the file are not repeated. Tables are those of `real_tables.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from real_tables import COUNTS, Table, read_table
from tasks import FOLDER_VARIABLE

COLUMNS = ["table", "options", "kind", "number", "quantity", "name", "value"]


def fit(table: Table, kind: str, number: int, options: dict[str, Any]) -> list[list]:
    """Coefficients, average effects and share of bends of one fit."""
    import torch

    import sknimo

    torch.set_num_threads(1)
    X, y = table.X, table.y
    if kind == "sample":
        rows = np.random.default_rng(number).integers(len(y), size=len(y))
        X, y = X.iloc[rows].reset_index(drop=True), y[rows]
    classes = table.figure == "log loss"
    make = sknimo.NIMOClassifierCV if classes else sknimo.NIMORegressorCV
    how = {"n_jobs": 1, "random_state": number, "missing": "indicator"}
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = make(**how | options).fit(X, y)
        seconds = time.process_time() - begin
        effects = est.effects(table.X).average_effect
    found = [("coef", *pair) for pair in zip(est.coef_names_, est.coef_, strict=True)]
    names = est.model_.features.names
    found += [("average", *pair) for pair in zip(names, effects, strict=True)]
    found += [("search", "bend", est.bend_), ("search", "seconds", seconds)]
    text = json.dumps(options, sort_keys=True)
    key = [table.name, text, kind, number]
    return [[*key, quantity, name, float(value)] for quantity, name, value in found]


def compare(known: pd.DataFrame) -> pd.DataFrame:
    """One row per table, options and quantity: ratios of both spreads."""
    shown = []
    by = ["table", "options", "quantity"]
    for key, group in known[known.quantity != "search"].groupby(by):
        wide = {
            kind: part.pivot_table("value", "number", "name")
            for kind, part in group.groupby("kind")
        }
        if set(wide) != {"seed", "sample"}:
            continue
        seeds, samples = wide["seed"].std(), wide["sample"].std()
        used = samples.index[samples > 0]
        ratio = (seeds / samples)[used].dropna()
        counts = len(wide["seed"]), len(wide["sample"])
        pooled = math.sqrt(float((ratio**2).mean()))
        numbers = ratio.median(), pooled, ratio.max()
        shown.append([*key, *counts, *numbers, ratio.idxmax()])
    columns = [*by, "seeds", "samples", "median", "pooled", "largest", "of"]
    return pd.DataFrame(shown, columns=columns)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Spread of coefficients over seeds.")
    parser.add_argument("--tables", required=True, help="names, comma-separated")
    parser.add_argument("--data", default=os.environ.get(FOLDER_VARIABLE, "."))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="parameter=value")
    parser.add_argument("--time-limit", type=float, default=math.inf, help="seconds")
    parser.add_argument("--csv", type=Path, default=Path("stability.csv"))
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    params = {
        key: json.loads(value) for key, value in (s.split("=") for s in options.set)
    }
    known = pd.DataFrame(columns=COLUMNS)
    if options.csv.exists():
        known = pd.read_csv(options.csv, dtype={"options": str})
    done = {*known[COLUMNS[:4]].itertuples(index=False, name=None)}
    text, end = (
        json.dumps(params, sort_keys=True),
        time.monotonic() + options.time_limit,
    )
    tables = [
        read_table(Path(options.data, f"{name}.csv.gz"), COUNTS.split(","))
        for name in options.tables.split(",")
    ]
    cells = [
        (table, kind, number)
        for kind, count in (("seed", options.seeds), ("sample", options.samples))
        for number in range(count)
        for table in tables
        if (table.name, text, kind, number) not in done
    ]

    def work(table: Table, kind: str, number: int) -> list[list]:
        return [] if time.monotonic() > end else fit(table, kind, number, params)

    parallel = Parallel(options.jobs, return_as="generator_unordered")
    for rows in parallel(delayed(work)(*cell) for cell in cells):
        frame = pd.DataFrame(rows, columns=COLUMNS)
        frame.to_csv(
            options.csv, mode="a", index=False, header=not options.csv.exists()
        )
        known = pd.concat([known, frame]) if len(known) else frame
    print(compare(known).to_string(index=False, float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
