"""How often intervals hold the truth, how wide they are, and what they cost.

    python benchmarks/intervals.py [--designs linear,setting1,...] [--rows 200,500]
                                  [--replications R] [--first SEED] [--jobs N]
                                  [--time-limit S] [--out coverage.csv]
                                  [--table] [--markdown]

One replication is one simulated table and one fit with the defaults of the searching
estimators; everything that is measured is measured on that fit. Rows are appended to
the file, one per interval, and what the file has is not run again. `--table` prints
the file and runs nothing, `--markdown` as the page has it. All designs advance
together: a run that is cut short has some of each.

The truth of a coefficient is the derivative of the true linear predictor at the
reference of the fitted model, for a column of two values the change between them. The
oracle knows the support and the form of the truth and estimates its constants: its
standard errors are those of maximum likelihood at the true constants, and for average
effects of the rows as a sample besides.

A feature that acts and was removed counts as not covered. A null feature is one whose
true effect at the population's reference is zero, whatever it bends; a false claim is
an interval that does not hold the truth of such a feature.

Only numpy, pandas, scikit-learn and torch are used besides the library itself. Run it
with OMP_NUM_THREADS=1 where `--jobs` is more than one.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = (
    *("design", "rows", "seed", "measure", "cov_type", "target", "truth", "estimate"),
    *("active", "std_err", "lower", "upper", "oracle_err", "note"),
    *("seconds", "fit_seconds", "centre"),
)
LEVEL = 0.95
WIDTH_95 = 1.959964
# Steps of numerical derivatives: in features and constants.
STEP = 1e-5
TINY = 1e-6  # a true effect below this is none
# Rows that stand for the population, and an average effect that is none among them.
POPULATION = 200_000
AVERAGE_TINY = 0.01
# New rows of every fit, and the level of their intervals.
NEW_ROWS = 50
NEXT_LEVEL = 0.9
# Goals: shares that are covered, false claims, and width beside the oracle's.
GOALS = {"coefficient": (0.90, 0.985), "average": (0.92, 0.98), "next": (0.87, 0.94)}
MOST_CLAIMS, MOST_WIDTH = 0.07, 2.0


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * z))


# --- Truths: functions of rows (n, p) and constants -----------------------------------


def linear(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    return x[:, : len(c)] @ c


def nothing(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.zeros(len(x)) + c[0]


def setting1(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    bend = 1 + c[1] * (2 * sigmoid(c[2] * x[:, 1] * x[:, 2]) - 1)
    return c[0] * x[:, 0] * bend + c[3] * x[:, 1] + c[4] * x[:, 2]


def setting2(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    x1, x2, x3, x4 = x.T[:4]
    first = 1 + c[1] * np.tanh(c[2] * x2 * x3 + c[3] * np.sin(x4))
    third = 1 + c[7] * np.arctan(x2 * x4)
    second = 1 + c[5] * np.sin(2 * x1)
    return c[0] * x1 * first + c[4] * x2 * second + c[6] * x3 * third


def setting3(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    x1, x2, _, x4, x5 = x.T[:5]
    return (
        c[0] * x1 * (1 + c[1] * np.tanh(x2 * x4))
        + c[2] * x2 * (1 + c[3] * np.arctan(x4 - x5))
        + c[4] * x4 * (1 + c[5] * np.tanh(x2 + np.sin(x5)))
        + c[6] * x5 * (1 + c[7] * (2 * sigmoid(x1 * x4) - 1))
    )


def bends(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    # The third feature has no coefficient and bends both others.
    x1, x2, x3 = x.T[:3]
    one = 1 + c[1] * np.tanh(x2) + c[2] * (1 - np.exp(-(x3**2) / 2))
    return c[0] * x1 * one + c[3] * x2 * (1 + c[4] * np.sin(x3))


def mixed(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    # Columns: binary, exponential, normal, binary.
    b, s, z = x.T[:3]
    return c[0] * b * (1 + c[1] * np.tanh(z)) + c[2] * s + c[3] * z


def one_bend(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    x1, x2, x3 = x.T[:3]
    return c[0] + c[1] * x1 * (1 + c[2] * np.tanh(x2)) + c[3] * x2 + c[4] * x3


# --- Designs --------------------------------------------------------------------------


def normal(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    return rng.standard_normal((n, p))


def uniform(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    return rng.uniform(-2, 2, (n, p))


def correlated(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    common = rng.standard_normal((n, 1))
    return np.sqrt(0.7) * common + np.sqrt(0.3) * rng.standard_normal((n, p))


def of_all_kinds(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    x = rng.standard_normal((n, p))
    x[:, 0] = rng.uniform(size=n) < 0.4
    x[:, 1] = rng.exponential(size=n)
    x[:, 3] = rng.uniform(size=n) < 0.3
    x[:, 4] = rng.exponential(size=n)
    return x


@dataclass(frozen=True)
class Design:
    """A truth, its features, and the noise on top of it."""

    signal: Callable[[np.ndarray, np.ndarray], np.ndarray]
    constants: tuple[float, ...]
    n_features: int
    features: Callable[..., np.ndarray] = normal
    family: str = "gaussian"
    noise: float = 1.0
    kind: str = "even"  # of the noise: "even", "uneven" or "heavy"
    binary: tuple[int, ...] = ()
    has_level: bool = field(default=False)  # whether a constant is the intercept

    def rows(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Features of n rows."""
        return self.features(rng, n, self.n_features)

    def eta(self, x: np.ndarray) -> np.ndarray:
        """True linear predictor."""
        return self.signal(x, np.array(self.constants))

    def target(self, rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
        """Targets of rows."""
        eta = self.eta(x)
        if self.family == "binomial":
            return (rng.uniform(size=len(x)) < sigmoid(eta)).astype(int)
        if self.family == "poisson":
            return rng.poisson(np.exp(eta)).astype(float)
        noise = rng.standard_normal(len(x))
        if self.kind == "heavy":
            noise = rng.standard_t(3, len(x)) / np.sqrt(3)
        return eta + noise * self.spread(x)

    def spread(self, x: np.ndarray) -> np.ndarray:
        """Standard deviation of the noise of each row."""
        if self.kind == "uneven":
            wide = np.exp(0.6 * x[:, 0])
            return self.noise * wide / np.exp(0.36)
        return np.full(len(x), self.noise)

    def effects(self, at: np.ndarray, constants: np.ndarray) -> np.ndarray:
        """True effect of every feature at a point, (p,)."""
        p = self.n_features
        up, down = np.tile(at, (p, 1)), np.tile(at, (p, 1))
        size = np.full(p, 2 * STEP)
        for j in range(p):
            if j in self.binary:
                up[j, j], size[j] = 1 - at[j], 1 - 2 * at[j]
            else:
                up[j, j], down[j, j] = at[j] + STEP, at[j] - STEP
        change = self.signal(up, constants) - self.signal(down, constants)
        return change / size

    def row_effects(self, x: np.ndarray, constants: np.ndarray) -> np.ndarray:
        """True effect of every feature on the mean response of rows, (n, p)."""
        means = {"binomial": sigmoid, "poisson": np.exp}
        mean = means.get(self.family, np.asarray)
        found = []
        for j in range(self.n_features):
            up, down, size = x.copy(), x.copy(), 2 * STEP
            if j in self.binary:
                up[:, j], down[:, j], size = 1.0, 0.0, 1.0
            else:
                up[:, j] += STEP
                down[:, j] -= STEP
            ends = (mean(self.signal(at, constants)) for at in (up, down))
            found.append((next(ends) - next(ends)) / size)
        return np.array(found).T

    def slopes(
        self, function: Callable[[np.ndarray], np.ndarray], constants: np.ndarray
    ) -> np.ndarray:
        """Derivatives of a function of the constants in each of them, (..., k)."""
        moves = []
        for k in range(len(constants)):
            up, down = constants.copy(), constants.copy()
            up[k] += STEP
            down[k] -= STEP
            moves.append((function(up) - function(down)) / (2 * STEP))
        return np.stack(moves, axis=-1)

    def covariance(self, x: np.ndarray) -> np.ndarray:
        """Covariance of the constants where the form is known, (k, k)."""
        constants = np.array(self.constants)
        jacobian = self.slopes(lambda c: self.signal(x, c), constants)
        if not self.has_level:
            jacobian = np.column_stack([jacobian, np.ones(len(x))])
        eta = self.eta(x)
        weight = np.ones(len(x)) / self.noise**2
        if self.family == "binomial":
            weight = sigmoid(eta) * sigmoid(-eta)
        elif self.family == "poisson":
            weight = np.exp(eta)
        bread = np.linalg.pinv((jacobian * weight[:, None]).T @ jacobian)
        if self.kind == "uneven":
            score = jacobian * (weight * self.spread(x))[:, None]
            bread = bread @ (score.T @ score) @ bread
        return bread[: len(constants), : len(constants)]

    def oracle(self, x: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Standard errors of the effects at a point where the form is known, (p,)."""
        slope = self.slopes(lambda c: self.effects(at, c), np.array(self.constants))
        return np.sqrt(np.maximum((slope @ self.covariance(x) * slope).sum(1), 0.0))

    def average_oracle(self, x: np.ndarray) -> np.ndarray:
        """Standard errors of average effects: of the constants, and of the rows."""
        constants = np.array(self.constants)
        slope = self.slopes(lambda c: self.row_effects(x, c).mean(0), constants)
        known = (slope @ self.covariance(x) * slope).sum(1)
        drawn = self.row_effects(x, constants).var(0, ddof=1) / len(x)
        return np.sqrt(np.maximum(known, 0.0) + drawn)


BENDS = (2.0, 0.5, 0.6, -1.5, 0.5)
DESIGNS = {
    "linear": Design(linear, (1.0, -0.8, 0.6, 0.5, 0.4), 10),
    "setting1": Design(setting1, (3, 1, 1, -2, 2), 5, uniform, noise=0.1),
    "setting2": Design(
        setting2, (1, 1, 1, 1, 2, 1, -1, 2 / np.pi), 10, uniform, noise=0.1
    ),
    "setting3": Design(
        setting3, (-2, 1, 2, 2 / np.pi, 3, 1, -1, 1), 50, uniform, noise=0.1
    ),
    "bends": Design(bends, BENDS, 6),
    "correlated": Design(bends, BENDS, 6, correlated),
    "uneven": Design(bends, BENDS, 6, kind="uneven"),
    "heavy": Design(bends, BENDS, 6, kind="heavy"),
    "null": Design(nothing, (1.0,), 8, has_level=True),
    "mixed": Design(mixed, (1.5, 0.6, 1.0, 0.8), 6, of_all_kinds, binary=(0, 3)),
    "logistic": Design(
        one_bend, (0.3, 1.2, 0.5, -1.0, 0.8), 6, family="binomial", has_level=True
    ),
    "poisson": Design(
        one_bend, (0.5, 0.4, 0.5, -0.3, 0.3), 6, family="poisson", has_level=True
    ),
}


# --- One replication ------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fit and the truth behind it."""

    name: str
    design: Design
    estimator: Any
    x: np.ndarray
    y: np.ndarray
    rng: np.random.Generator  # for rows that the fit has not seen


Record = dict[str, Any]


def measure_coefficients(case: Case) -> Iterator[Record]:
    """Intervals of the coefficients at the reference."""
    est, design = case.estimator, case.design
    at = np.asarray(est.reference_, dtype=float)
    truth = design.effects(at, np.array(design.constants))
    oracle = design.oracle(case.x, at)
    # What only bends others has a small effect where the reference is a bit off.
    active = np.abs(design.effects(0 * at, np.array(design.constants))) > TINY
    for cov_type in ("nonrobust", "HC3"):
        try:
            found = est.conf_int(LEVEL, cov_type=cov_type)
        except ValueError:
            continue
        for j in range(design.n_features):
            yield {
                "cov_type": cov_type,
                "target": f"x{j}",
                "truth": truth[j],
                "active": int(active[j]),
                "estimate": found.coef[j],
                "centre": found.centre[j],
                "std_err": found.std_err[j],
                "lower": found.lower[j],
                "upper": found.upper[j],
                "oracle_err": oracle[j],
                "note": found.notes[j],
            }


@lru_cache
def average_truth(name: str) -> np.ndarray:
    """Average effect of every feature on the response in the population, (p,)."""
    design = DESIGNS[name]
    x = design.rows(np.random.default_rng(0), POPULATION)
    return design.row_effects(x, np.array(design.constants)).mean(0)


def measure_averages(case: Case) -> Iterator[Record]:
    """Intervals of average effects on the response, corrected for shrinkage."""
    truth, oracle = average_truth(case.name), case.design.average_oracle(case.x)
    found = case.estimator.average_effects(case.x, case.y, level=LEVEL)
    for j in range(case.design.n_features):
        yield {
            "cov_type": "held out" if found.held_out else "seen",
            "target": f"x{j}",
            "truth": truth[j],
            "active": int(abs(truth[j]) > AVERAGE_TINY),
            "estimate": found.response[0, j],
            "std_err": found.response_std_err[0, j],
            "lower": found.response_lower[0, j],
            "upper": found.response_upper[0, j],
            "oracle_err": oracle[j],
        }


def measure_next(case: Case) -> Iterator[Record]:
    """Intervals of new observations; the truth is the observation."""
    if case.design.family == "binomial":
        return
    x = case.design.rows(case.rng, NEW_ROWS)
    y = case.design.target(case.rng, x)
    for adapt in (True, False):
        found = case.estimator.predict_interval(x, level=NEXT_LEVEL, adapt=adapt)
        for i in range(NEW_ROWS):
            yield {
                "cov_type": "adapted" if adapt else "plain",
                "target": f"row {i}",
                "truth": y[i],
                "active": 1,
                "estimate": found.prediction[i],
                "lower": found.lower[i],
                "upper": found.upper[i],
            }


# What is measured on every fit. A measure yields records with any of COLUMNS.
MEASURES: dict[str, Callable[[Case], Iterator[Record]]] = {
    "coefficient": measure_coefficients,
    "average": measure_averages,
    "next": measure_next,
}


def attempt(job: tuple[str, int, int]) -> list[Record]:
    """One replication; a failure is told and does not end the others."""
    try:
        return replicate(job)
    except Exception as error:
        print(f"{job} failed: {error!r}", flush=True)
        return []


def replicate(job: tuple[str, int, int]) -> list[Record]:
    """Simulate, fit and measure."""
    import torch

    from sknimo import NIMOClassifierCV, NIMORegressorCV

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    name, n_rows, seed = job
    design = DESIGNS[name]
    # Many small fits side by side are no work for one GPU.
    options = {"random_state": seed, "verbose": False, "device": "cpu"}
    rng = np.random.default_rng([seed, n_rows, zlib.crc32(name.encode())])
    x = design.rows(rng, n_rows)
    y = design.target(rng, x)
    if design.family == "binomial":
        est: Any = NIMOClassifierCV(**options)
    else:
        est = NIMORegressorCV(design.family, **options)
    # A replication is one thread: what other processes do beside it does not count.
    begin = time.process_time()
    est.fit(x, y)
    fitted = time.process_time()
    records = []
    for measure, function in MEASURES.items():
        start = time.process_time()
        found = list(function(Case(name, design, est, x, y, rng)))
        seconds = time.process_time() - start
        for record in found:
            head = {"design": name, "rows": n_rows, "seed": seed, "measure": measure}
            tail = {"seconds": seconds, "fit_seconds": fitted - begin}
            records.append(head | record | tail)
    return records


# --- Many of them ---------------------------------------------------------------------


def read(path: Path) -> list[Record]:
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def run(
    jobs: list[tuple[str, int, int]], path: Path, n_jobs: int, time_limit: float
) -> None:
    """Replications side by side; every one that is finished is on disk at once."""
    begin, new = time.monotonic(), not path.exists()
    context = multiprocessing.get_context("spawn")
    with path.open("a", newline="") as file, context.Pool(n_jobs) as pool:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        if new:
            writer.writeheader()
        for done, records in enumerate(pool.imap_unordered(attempt, jobs), 1):
            writer.writerows(records)
            file.flush()
            used = time.monotonic() - begin
            where = records[0]["design"] if records else "nothing"
            print(f"{done}/{len(jobs)} {where} {used:.0f} s", flush=True)
            if used > time_limit:
                pool.terminate()
                break


def summarise(records: list[Record]) -> Any:
    """Coverage, false claims, widths, errors and seconds by design, a data frame.

    Widths and errors of the estimate are relative to the oracle's.
    """
    import pandas as pd

    frame = pd.DataFrame(records)
    numbers = ("truth", "estimate", "centre", "lower", "upper", "oracle_err")
    if "centre" not in frame:  # of older files
        frame["centre"] = math.nan
    for name in (*numbers, "rows", "seed", "seconds", "fit_seconds"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    frame["active"] = pd.to_numeric(frame["active"]) > 0
    frame["there"] = frame["lower"].notna()
    inside = (frame["lower"] <= frame["truth"]) & (frame["truth"] <= frame["upper"])
    frame["inside"] = inside & frame["there"]
    frame["width"] = frame["upper"] - frame["lower"]
    frame["oracle"] = 2 * WIDTH_95 * frame["oracle_err"]
    lines = []
    keys = ["measure", "cov_type", "rows", "design"]
    for place, own in frame.groupby(keys, dropna=False, sort=False):
        act, off = own[own["active"]], own[~own["active"]]
        both = act[act["there"] & (act["oracle"] > 0)]
        each = own.groupby("seed")[["seconds", "fit_seconds"]].first().mean()
        lines.append(
            dict(zip(keys, place, strict=True))
            | {
                "fits": own["seed"].nunique(),
                "covered": act["inside"].mean(),
                "given": act["there"].mean(),
                "claims": (off["there"] & ~off["inside"]).mean(),
                "width": both["width"].mean() / both["oracle"].mean(),
                "error": relative_error(both, "estimate"),
                "centre": relative_error(both, "centre"),
                "seconds": each["seconds"],
                "fit_seconds": each["fit_seconds"],
            }
        )
    order = {name: k for k, name in enumerate(DESIGNS)}
    found = pd.DataFrame(lines)
    found["order"] = found["design"].map(order)
    return found.sort_values(["measure", "cov_type", "rows", "order"])


def relative_error(rows: Any, name: str) -> float:
    """Root mean squared error of a column beside the oracle's; NaN without rows."""
    error = ((rows[name] - rows["truth"]) ** 2).mean()
    return float((error / (rows["oracle_err"] ** 2).mean()) ** 0.5)


def table(records: list[Record]) -> str:
    """All of it as text."""
    found = summarise(records).drop(columns="order")
    return str(found.to_string(index=False, float_format="%.3f", na_rep="-"))


def markdown(records: list[Record]) -> str:
    """Tables for the page; what misses its goal is bold."""
    found = summarise(records)

    def show(value: float, low: float = 0.0, high: float = np.inf) -> str:
        if np.isnan(value):
            return "-"
        text = f"{value:.3f}" if high < 2 else f"{value:.2f}"
        return text if low <= value <= high else f"**{text}**"

    def pick(measure: str, kind: str, line: Any) -> Any:
        at = (found["measure"] == measure) & (found["cov_type"] == kind)
        at &= (found["rows"] == line["rows"]) & (found["design"] == line["design"])
        return found[at].iloc[0] if at.any() else None

    lines = [
        "| design | rows | fits | coefficients | false claims | width | error "
        "| nonrobust | averages | false claims | width | next | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    kept = found[(found["measure"] == "coefficient")]
    # What searches show by default comes first.
    for _, line in kept[kept["cov_type"] == "HC3"].iterrows():
        plain = pick("coefficient", "nonrobust", line)
        mean = pick("average", "held out", line)
        following = pick("next", "adapted", line)
        cells = [
            line["design"],
            f"{line['rows']:.0f}",
            f"{line['fits']:.0f}",
            show(line["covered"], *GOALS["coefficient"]),
            show(line["claims"], 0, MOST_CLAIMS),
            show(line["width"], 0, MOST_WIDTH),
            show(line["error"]),
            "-" if plain is None else show(plain["covered"], *GOALS["coefficient"]),
            "-" if mean is None else show(mean["covered"], *GOALS["average"]),
            "-" if mean is None else show(mean["claims"], 0, MOST_CLAIMS),
            "-" if mean is None else show(mean["width"], 0, MOST_WIDTH),
            "-" if following is None else show(following["covered"], *GOALS["next"]),
            f"{line['fit_seconds']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--rows", default="200,500,2000")
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=np.inf)
    parser.add_argument("--out", type=Path, default=Path("coverage.csv"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if not (args.table or args.markdown):
        # Processes run side by side: one thread for each.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"
        known = {(r["design"], int(r["rows"]), int(r["seed"])) for r in read(args.out)}
        jobs = [
            (design, int(rows), seed)
            for seed in range(args.first, args.first + args.replications)
            for rows in args.rows.split(",")
            for design in args.designs.split(",")
        ]
        todo = [job for job in jobs if job not in known]
        run(todo, args.out, args.jobs, args.time_limit)
    print((markdown if args.markdown else table)(read(args.out)))


if __name__ == "__main__":
    main()
