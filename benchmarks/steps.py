"""Seconds per network step and peak memory, over rows, features and members.

    python benchmarks/steps.py [--device cpu|cuda] [--dtype float64|float32] [--quick]
                               [--threads N] [--csv out.csv] [--json]

Every feature keeps its coefficient, so that the network works on all of them: this is
the dear end of the scale, and real fits, whose active set shrinks, are cheaper.

Seconds per step are the time of a fit of a given number of steps less that of a fit of
none, divided by the number; the latter, the nested GLM with its exact solves, is shown
as "start". Both are the best of two runs, except for the last row. On a CPU each case
runs in a process of its own, and memory is the growth of its resident set over what it
held once the data stood ready; on a GPU it is the peak of allocated memory over the
same moment. Where other work keeps the cores busy, measure with `--threads 1`: threads
that wait for one another then cost many times what they save.

Only torch and numpy are used besides the library itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

# torch and sknimo are imported by the process that measures: on a CPU the parent stays
# small, because a child's high-water mark may start at its parent's.

PROMISED_BYTES = 2e9  # for a fit of 100,000 rows and 50 features on a CPU


@dataclass(frozen=True)
class Case:
    """One fit to be measured."""

    series: str
    n_rows: int
    n_features: int
    n_models: int
    n_steps: int
    n_repeats: int
    dtype: str
    device: str
    n_threads: int  # 0 leaves the choice to torch


@dataclass(frozen=True)
class Measurement:
    """What one case cost; bytes on the device that the case ran on."""

    series: str
    n_rows: int
    n_features: int
    n_models: int
    n_steps: int
    n_repeats: int
    dtype: str
    device: str
    n_threads: int
    step_seconds: float
    start_seconds: float
    growth_bytes: int
    peak_bytes: int


def make_cases(device: str, dtype: str, n_threads: int, quick: bool) -> list[Case]:
    """The grid; `quick` takes fewer steps and leaves the longest row out."""
    rows = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    many = 1 if quick else 3

    def case(series: str, n: int, p: int, k: int, n_steps: int) -> Case:
        n_repeats = 1 if series == "promise" else 2
        return Case(series, n, p, k, n_steps, n_repeats, dtype, device, n_threads)

    return [
        *(case("rows", n, 20, 1, many * max(10, 20_000 // n)) for n in rows),
        *(case("features", 5_000, p, 1, many * 10) for p in (5, 20, 50, 100)),
        *(case("members", 300, 10, k, many * 20) for k in (1, 8, 32)),
        case("promise", 100_000, 50, 1, 10),
    ]


def measure(case: Case) -> Measurement:
    """Build the data, warm up, then time a fit with and one without steps."""
    import torch

    if case.n_threads:
        torch.set_num_threads(case.n_threads)
    on_gpu = case.device == "cuda"
    fit = make_fit(case)
    make_fit(_tiny(case))(2)  # libraries and thread pools get ready
    before = _mark(on_gpu)
    repeats = range(case.n_repeats)
    start_seconds = min(_time(fit, 0, on_gpu) for _ in repeats)
    total_seconds = min(_time(fit, case.n_steps, on_gpu) for _ in repeats)
    peak = torch.cuda.max_memory_allocated() if on_gpu else peak_resident()
    step_seconds = max(total_seconds - start_seconds, 0.0) / case.n_steps
    return Measurement(
        **asdict(case),
        step_seconds=step_seconds,
        start_seconds=start_seconds,
        growth_bytes=peak - before,
        peak_bytes=peak,
    )


def _tiny(case: Case) -> Case:
    return replace(case, series="warm-up", n_rows=50, n_features=3, n_models=1)


def make_fit(case: Case):
    """A function of the number of steps that fits the case's data."""
    import torch

    from sknimo.families import get_family
    from sknimo.machine import to_device
    from sknimo.network import make_spec
    from sknimo.penalties import make_penalty
    from sknimo.solver import Members, Options, Problem, solve

    n, p, n_models = case.n_rows, case.n_features, case.n_models
    device = torch.device(case.device)
    rng = np.random.default_rng(0)
    table = rng.standard_normal((n, p))
    local_coef = 1 + 0.5 * np.tanh(np.roll(table, 1, axis=1))
    y = (table * local_coef).sum(1) + rng.standard_normal(n)
    y = (y - y.mean()) / y.std()
    terms = torch.as_tensor(table)
    problem = Problem.in_memory(
        terms=terms,
        term_feature=torch.arange(p),
        inputs=terms,
        y=torch.as_tensor(y),
        offset=torch.zeros(n, dtype=torch.float64),
        family=get_family("gaussian"),
        spec=make_spec(range(p), p, (16, 16)),
    )
    strength = torch.full((n_models,), 1e-3, dtype=torch.float64)
    members = Members(
        penalty=make_penalty("lasso", strength, torch.arange(p), p),
        network_alpha=torch.full_like(strength, 0.1),
        seeds=tuple(range(n_models)),
        weight=torch.full((n_models, n), 1 / n, dtype=torch.float64),
        validation=None,
    )
    problem, members = to_device(problem, device), to_device(members, device)

    def fit(n_steps: int) -> None:
        # The patience outlasts the steps: no fit ends early.
        options = Options(
            max_iter=n_steps,
            tol=0.0,
            patience=n_steps + 1,
            scale_contributions=True,
            dtype=getattr(torch, case.dtype),
        )
        solve(problem, members, options)

    return fit


def _mark(on_gpu: bool) -> int:
    """Bytes held now; from here on the peak counts."""
    import torch

    if not on_gpu:
        return resident()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _time(fit, n_steps: int, on_gpu: bool) -> float:
    import torch

    begin = perf_counter()
    fit(n_steps)
    if on_gpu:
        torch.cuda.synchronize()
    return perf_counter() - begin


def resident() -> int:
    """Resident bytes of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux: the high-water mark must do
        return peak_resident()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident() -> int:
    """Largest resident set of this process so far, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    kilobytes = next(line for line in lines if line.startswith("VmHWM")).split()[1]
    return int(kilobytes) * 1024


def measure_apart(case: Case) -> Measurement:
    """The same in a process of its own, whose memory is the case's alone."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def growth_exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds on log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def growth_exponents(rows: list[Measurement]) -> dict[str, float]:
    """Growth of the seconds per step along each series."""
    exponents = {}
    for series, size in (
        ("rows", "n_rows"),
        ("features", "n_features"),
        ("members", "n_models"),
    ):
        chosen = [row for row in rows if row.series == series]
        exponents[series] = growth_exponent(
            [getattr(row, size) for row in chosen],
            [row.step_seconds for row in chosen],
        )
    return exponents


HEADER = (
    f"{'series':9} {'n':>7} {'d':>4} {'K':>3} {'steps':>6} "
    f"{'ms/step':>9} {'start s':>8} {'growth MB':>10} {'peak MB':>9}"
)


def format_row(row: Measurement) -> str:
    """One line of the table."""
    return (
        f"{row.series:9} {row.n_rows:7d} {row.n_features:4d} {row.n_models:3d} "
        f"{row.n_steps:6d} {1e3 * row.step_seconds:9.2f} {row.start_seconds:8.2f} "
        f"{row.growth_bytes / 1e6:10.0f} {row.peak_bytes / 1e6:9.0f}"
    )


def print_summary(rows: list[Measurement]) -> None:
    """Growth exponents, and the promise about memory."""
    print()
    names = {"rows": "n", "features": "d", "members": "K"}
    for series, exponent in growth_exponents(rows).items():
        name = names[series]
        sizes = ", ".join(
            str({"n": row.n_rows, "d": row.n_features, "K": row.n_models}[name])
            for row in rows
            if row.series == series
        )
        print(f"seconds per step grow as {name}^{exponent:.2f} over {name} = {sizes}")
    (row,) = (row for row in rows if row.series == "promise")
    verdict = "kept" if row.peak_bytes < PROMISED_BYTES else "BROKEN"
    whole = "on the device" if row.device == "cuda" else "in the whole process"
    print(
        f"{row.n_rows} x {row.n_features}, {row.n_steps} steps: "
        f"{row.peak_bytes / 1e9:.2f} GB {whole} at most; promised "
        f"{PROMISED_BYTES / 1e9:.0f} GB, {verdict}"
    )


def describe_machine(device: str, n_threads: int) -> str:
    """The machine, in one line."""
    if device == "cuda":
        import torch

        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    threads = n_threads or "all"
    return f"{platform.machine()}, {os.cpu_count()} cores, threads: {threads}"


def main() -> None:
    """Measure the grid and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--threads", type=int, default=0, help="default: all")
    parser.add_argument("--quick", action="store_true", help="a smaller grid")
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    parser.add_argument("--json", action="store_true", help="end with a JSON line")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(asdict(measure(Case(**json.loads(args.case))))))
        return
    machine = describe_machine(args.device, args.threads)
    print(f"{args.device}, {args.dtype}: {machine}\n\n{HEADER}", flush=True)
    run = measure if args.device == "cuda" else measure_apart
    rows = []
    for case in make_cases(args.device, args.dtype, args.threads, args.quick):
        rows.append(run(case))
        print(format_row(rows[-1]), flush=True)
    print_summary(rows)
    table = [asdict(row) for row in rows]
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
    if args.json:
        print(
            json.dumps(
                {
                    "machine": machine,
                    "exponents": growth_exponents(rows),
                    "rows": table,
                }
            )
        )


if __name__ == "__main__":
    main()
