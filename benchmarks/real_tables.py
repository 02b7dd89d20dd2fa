"""Test loss on real tables: sknimo, LightGBM, EBM and linear models, one run.

    python benchmarks/real_tables.py [--data DIR] [--tables wage,boston] [--seeds 0,1]
                                     [--methods sknimo,linear] [--threads 2]
                                     [--min-rows 0] [--max-rows 5000]
                                     [--csv real_tables.csv] [--again]
    python benchmarks/real_tables.py --page [docs/benchmarks.md] [--csv ...]

DIR, or the environment variable SKNIMO_DATA, is a folder of tables NAME.csv.gz with a
header line and `target` as the last column. Text columns are categories. A target of
two values is a class, one named in `--counts` a count, and any other number a
regression. Three and more classes and survival (a column `event`) are left out.

Rows are split 70/30 at random, stratified for classes: seeds 0 to 2, for more than
5,000 rows seed 0 alone. Losses on the 30 % are mean squared error, log loss and mean
Poisson deviance. Every method has its defaults, and `--threads` processes or threads:

- sknimo: `NIMORegressorCV`, `NIMOClassifierCV`; unseen levels stand at the reference;
- lightgbm: rate 0.03, at most 3,000 trees, their number found by early stopping on a
  fifth of the training rows, refitted on all; one thread for small tables, where more
  are slower;
- ebm: with pairs; the Poisson deviance for counts;
- linear: `LassoCV`, `LogisticRegressionCV` (ridge) or `PoissonRegressor` (penalty
  chosen by five folds), on standardised and one-hot columns.

Each fit is written to the CSV file as soon as it is done, and is not done again unless
`--again` says so. `--page` fits nothing: it writes table and picture into the page.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from accuracy import (
    Result,
    append_result,
    describe,
    read_results,
    show,
    try_to_measure,
    usable_rivals,
)
from rivals import (
    Fitted,
    Predict,
    Rival,
    Rows,
    fit_ebm,
    fit_lightgbm_stopped,
    quietly,
    start_workers,
)
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, LogisticRegressionCV, PoissonRegressor
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tasks import FOLDER_VARIABLE, Figure, Task

OURS = "sknimo"
COUNTS = "badhealth,bikeshare,ofp"
MANY_ROWS = 5_000  # beyond, one split is enough
MOST_TREES = 3_000
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PICTURE = Path("images", "real_tables.png")  # beside the page
SECTION = re.compile(
    r"(?<=<!-- real tables -->\n).*?(?=<!-- end of real tables -->)", re.S
)
LEAST_RATIO = 0.5
COLOURS = {"lightgbm": "#1B7837", "ebm": "#6A51A3", "linear": "#8C8C8C"}


class UnfitTableError(ValueError):
    """A table that this comparison has no place for."""


@dataclass(frozen=True)
class Table:
    """A table and what its target is judged by."""

    name: str
    X: pd.DataFrame
    y: np.ndarray
    figure: Figure


@dataclass(frozen=True)
class TableRows(Rows):
    """Rows of a data frame; predictions are means, or chances of the second class."""

    counts: bool = False

    def predictor(self, est: Any) -> Predict:
        if self.is_regression:
            return quietly(est.predict)
        return quietly(lambda X: est.predict_proba(X)[:, 1])


@dataclass(frozen=True)
class Split(Task):
    """Rows to fit and to test on."""

    @property
    def figure(self) -> Figure:
        if not self.rows.is_regression:
            return "log loss"
        return "deviance" if self.rows.counts else "mse"

    def score(self, predicted: np.ndarray) -> float:
        return loss(self.figure, self.y_test, predicted)


def loss(figure: Figure, y: np.ndarray, predicted: np.ndarray) -> float:
    if figure == "mse":
        return float(mean_squared_error(y, predicted))
    if figure == "log loss":
        return float(log_loss(y, predicted, labels=[0, 1]))
    return float(mean_poisson_deviance(y, np.maximum(predicted, 1e-9)))


def read_table(path: Path, counts: Sequence[str]) -> Table:
    name = path.name.removesuffix(".csv.gz")
    frame = pd.read_csv(path)
    if frame.columns[-1] != "target":
        raise UnfitTableError(f"{name}: the last column must be called target")
    y = frame.pop("target")
    if "event" in frame:
        raise UnfitTableError(f"{name}: survival")
    n_values = y.nunique()
    if n_values != 2 and not pd.api.types.is_numeric_dtype(y):
        raise UnfitTableError(f"{name}: {n_values} classes")
    for column in frame.select_dtypes(exclude="number"):
        frame[column] = frame[column].astype(str).astype("category")
    if n_values == 2:
        return Table(name, frame, (y == y.max()).to_numpy(dtype=int), "log loss")
    figure = "deviance" if name in counts else "mse"
    return Table(name, frame, y.to_numpy(dtype=float), figure)


def read_tables(options: argparse.Namespace) -> list[Table]:
    """Tables that were asked for, the smallest first; the others are named."""
    folder = options.data or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise SystemExit(f"Say where the tables are, with --data or {FOLDER_VARIABLE}.")
    paths = {p.name.removesuffix(".csv.gz"): p for p in Path(folder).glob("*.csv.gz")}
    names = options.tables.split(",") if options.tables else sorted(paths)
    missing = [name for name in names if name not in paths]
    if missing or not names:
        raise SystemExit(f"{folder}: there is no {', '.join(missing) or 'table'}.")
    tables, known = [], {}
    for name in names:
        twin = known.setdefault(paths[name].read_bytes(), name)
        if twin != name:
            print(f"left out: {name}: a copy of {twin}")
            continue
        try:
            table = read_table(paths[name], options.counts.split(","))
        except UnfitTableError as error:
            print(f"left out: {error}")
            continue
        if options.min_rows <= len(table.y) <= options.max_rows:
            tables.append(table)
    return sorted(tables, key=lambda table: len(table.y))


def split(table: Table, seed: int) -> Split:
    classes = table.figure == "log loss"
    X, X_test, y, y_test = train_test_split(
        table.X,
        table.y,
        test_size=0.3,
        random_state=seed,
        stratify=table.y if classes else None,
    )
    rows = TableRows(
        X,
        y,
        "classification" if classes else "regression",
        n_held_out=len(y) // 5,
        scale_target=True,
        counts=table.figure == "deviance",
    )
    return Split(table.name, seed, rows, X_test, y_test)


def fit_sknimo(rows: TableRows, seed: int, n_jobs: int) -> Fitted:
    import sknimo

    params = {"n_jobs": n_jobs, "random_state": seed}
    params |= {"handle_unknown": "reference", "missing": "indicator"}
    if rows.counts:
        params["family"] = "poisson"
    make = sknimo.NIMORegressorCV if rows.is_regression else sknimo.NIMOClassifierCV
    return Fitted(rows.predictor(make(**params).fit(rows.X, rows.y)))


def fit_lightgbm(rows: TableRows, seed: int, n_jobs: int) -> Fitted:
    objective = {"objective": "poisson"} if rows.counts else {}
    return fit_lightgbm_stopped(rows, seed, n_jobs, most=MOST_TREES, **objective)


def fit_boosted(rows: TableRows, seed: int, n_jobs: int) -> Fitted:
    objective = {"objective": "poisson_deviance"} if rows.counts else {}
    return fit_ebm(rows, seed, n_jobs, **objective)


def fit_linear(rows: TableRows, seed: int, n_jobs: int) -> Fitted:
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    levels = OneHotEncoder(
        drop="if_binary", handle_unknown="ignore", sparse_output=False
    )
    encode = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (levels, make_column_selector(dtype_exclude="number")),
    )
    est = make_pipeline(encode, make_linear(rows, seed, n_jobs)).fit(rows.X, rows.y)
    return Fitted(rows.predictor(est))


def make_linear(rows: TableRows, seed: int, n_jobs: int) -> Any:
    if rows.counts:
        return GridSearchCV(
            PoissonRegressor(max_iter=1_000),
            {"alpha": np.geomspace(1e-4, 1, 5)},
            scoring="neg_mean_poisson_deviance",
            n_jobs=n_jobs,
        )
    if rows.is_regression:
        return LassoCV(cv=5, max_iter=10_000, n_jobs=n_jobs, random_state=seed)
    return LogisticRegressionCV(
        l1_ratios=(0,),
        cv=5,
        scoring="neg_log_loss",
        max_iter=5_000,
        use_legacy_attributes=False,
        n_jobs=n_jobs,
        random_state=seed,
    )


METHODS = {
    rival.name: rival
    for rival in (
        Rival(OURS, "sknimo", "sknimo", fit_sknimo),
        Rival("lightgbm", "lightgbm", "lightgbm", fit_lightgbm),
        Rival("ebm", "interpret-core", "interpret.glassbox", fit_boosted),
        Rival("linear", "scikit-learn", "sklearn.linear_model", fit_linear),
    )
}


def seeds_of(table: Table, asked: str | None) -> list[int]:
    if asked is not None:
        return [int(seed) for seed in asked.split(",")]
    return [0] if len(table.y) > MANY_ROWS else [0, 1, 2]


def run(options: argparse.Namespace) -> list[Result]:
    """Fit what the file does not have; a fit that fails is named and left out."""
    import torch
    from threadpoolctl import threadpool_limits

    methods = usable_rivals(options.methods.split(","), METHODS)
    tables = read_tables(options)
    done = {} if options.again else read_results(options.csv)
    start_workers(options.threads, [method.module for method in methods])
    torch.set_num_threads(options.threads)
    results = []
    with threadpool_limits(options.threads):
        for table in tables:
            fresh = []
            for seed in seeds_of(table, options.seeds):
                task = split(table, seed)
                for method in methods:
                    key = (table.name, method.name, seed, len(task.rows.y))
                    result = done.get(key)
                    if result is None:
                        result = try_to_measure(task, method, options.threads)
                        if result is None:
                            continue
                        append_result(options.csv, result)
                        print(describe(result), flush=True)
                    fresh.append(result)
            for line in make_lines(fresh):
                print(line.text(), flush=True)
            results += fresh
    return results


@dataclass(frozen=True)
class Line:
    """A table: mean loss and mean seconds of each method over the same splits."""

    name: str
    figure: Figure
    n_rows: int
    n_splits: int
    losses: dict[str, float]
    seconds: dict[str, float]

    @property
    def rivals(self) -> list[str]:
        return [name for name in self.losses if name != OURS]

    @property
    def best_rival(self) -> str:
        return min(self.rivals, key=self.losses.__getitem__)

    def ratio(self, rival: str | None = None) -> float:
        """Loss of sknimo over that of a rival, the best by default."""
        return self.losses[OURS] / self.losses[rival or self.best_rival]

    def text(self) -> str:
        losses = ", ".join(f"{name} {show(v)}" for name, v in self.losses.items())
        seconds = ", ".join(f"{show(value)}" for value in self.seconds.values())
        return (
            f"  {self.name}: {self.n_rows} rows, {self.figure}: {losses}; "
            f"ratio {self.ratio():.3f} to {self.best_rival}; seconds {seconds}"
        )


def make_lines(results: Iterable[Result]) -> Iterator[Line]:
    """Tables with a result of sknimo and of a rival; splits that all methods have."""
    tables: dict[str, dict[str, dict[int, Result]]] = {}
    for result in results:
        by_method = tables.setdefault(result.task, {})
        by_method.setdefault(result.rival, {})[result.seed] = result
    for name, found in tables.items():
        by_method = {method: found[method] for method in METHODS if method in found}
        seeds = sorted(set.intersection(*map(set, by_method.values())))
        if OURS not in by_method or len(by_method) < 2 or not seeds:
            continue
        any_result = by_method[OURS][seeds[0]]
        yield Line(
            name,
            any_result.figure,
            any_result.n_fit + any_result.n_test,
            len(seeds),
            {m: mean(r[s].value for s in seeds) for m, r in by_method.items()},
            {m: mean(r[s].seconds for s in seeds) for m, r in by_method.items()},
        )


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))


def summarise(lines: list[Line]) -> list[str]:
    """Ratios over all tables and over those of a size; sizes overlap on purpose."""
    groups = {
        "all tables": lines,
        "under 5,000 rows": [line for line in lines if line.n_rows < 5_000],
        "4,000 rows and more": [line for line in lines if line.n_rows >= 4_000],
    }
    texts = []
    for title, group in groups.items():
        if not group:
            continue
        worst = max(group, key=Line.ratio)
        against = ", ".join(
            f"{geometric_mean(x.ratio(r) for x in group if r in x.losses):.3f} to {r}"
            for r in METHODS
            if r != OURS and any(r in x.losses for x in group)
        )
        texts.append(
            f"{title} ({len(group)}): loss {geometric_mean(map(Line.ratio, group)):.3f}"
            f" times that of the best rival (geometric mean), worst "
            f"{worst.ratio():.3f} ({worst.name}), best or equal on "
            f"{sum(line.ratio() <= 1 for line in group)}; {against}"
        )
    return texts


def write_page(path: Path, lines: list[Line]) -> None:
    """Put table and picture between the marks of the page."""
    page = path.read_text()
    if not SECTION.search(page):
        raise SystemExit(f"{path}: no marks <!-- real tables --> ... to write between.")
    if not lines:
        raise SystemExit("There is no table with a fit of sknimo and one of a rival.")
    lines = sorted(lines, key=Line.ratio)
    picture = path.parent / PICTURE
    picture.parent.mkdir(exist_ok=True)
    draw(lines).savefig(picture, dpi=120)
    text = SECTION.sub(lambda _: render(lines), page, count=1)
    path.write_text(text)
    print(f"wrote {path} and {picture}")


def render(lines: list[Line]) -> str:
    methods = [m for m in METHODS if any(m in line.losses for line in lines)]
    rows = [["table", "rows", "splits", "loss", *methods, "ratio", "seconds"]]
    rows.append(["---"] * len(rows[0]))
    for line in lines:
        losses = [show(line.losses[m]) if m in line.losses else "" for m in methods]
        seconds = [show(line.seconds[m]) if m in line.seconds else "" for m in methods]
        rows.append(
            [
                *(line.name, f"{line.n_rows:,}", str(line.n_splits), line.figure),
                *(*losses, f"{line.ratio():.3f}", ", ".join(seconds)),
            ]
        )
    parts = [
        fill(f"- {text[0].upper()}{text[1:]}.", 88, subsequent_indent="  ") + "\n"
        for text in summarise(lines)
    ]
    parts += ["\n", *("| " + " | ".join(row) + " |\n" for row in rows)]
    parts += [f"\n![Loss of sknimo over that of each rival, per table]({PICTURE})\n"]
    return "\n" + "".join(parts) + "\n"


def draw(lines: list[Line]) -> Any:
    """A row per table, a dot per rival; left of the line sknimo has the lower loss.

    Ratios below `LEAST_RATIO` are triangles at the edge.
    """
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 1.2 + 0.24 * len(lines)), layout="constrained")
    ax = picture.add_subplot()
    for rival, colour in COLOURS.items():
        known = [(k, line) for k, line in enumerate(lines) if rival in line.losses]
        if known:
            ratios = np.array([line.ratio(rival) for _, line in known])
            places, far = np.array([k for k, _ in known]), ratios < LEAST_RATIO
            how = {"ms": 5, "color": colour, "alpha": 0.8}
            ax.plot(ratios[~far], places[~far], "o", label=rival, **how)
            ax.plot(np.full(far.sum(), LEAST_RATIO), places[far], "<", **how)
    ax.axvline(1, color="#333333", lw=0.8)
    ax.set_xscale("log")
    ticks = [t for t in (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.5, 2, 5) if _within(ax, t)]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_yticks(range(len(lines)), [line.name for line in lines], fontsize=8)
    ax.set_xlabel("test loss of sknimo / test loss of the rival")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", lw=0.3)
    ax.set_ylim(-0.6, len(lines) - 0.4)
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": len(COLOURS)}
    ax.legend(frameon=False, fontsize=8, **above)
    return picture


def _within(ax: Any, tick: float) -> bool:
    low, high = ax.get_xlim()
    return low <= tick <= high


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="DIR", help="folder of the tables")
    parser.add_argument("--tables", help="comma-separated; all by default")
    parser.add_argument("--counts", default=COUNTS, help="tables of counts")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", help="a list such as 0,1,2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-rows", type=int, default=0)
    parser.add_argument("--max-rows", type=int, default=sys.maxsize)
    parser.add_argument("--csv", type=Path, default=Path("real_tables.csv"))
    parser.add_argument("--again", action="store_true", help="fit known rows anew")
    parser.add_argument("--page", type=Path, nargs="?", const=PAGE)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    results = list(read_results(options.csv).values() if options.page else run(options))
    lines = list(make_lines(results))
    for name in {result.task for result in results} - {line.name for line in lines}:
        print(f"left out: {name}: no split with a fit of every method")
    if options.page:
        write_page(options.page, lines)
    for text in summarise(lines):
        print(text)


if __name__ == "__main__":
    main()
