"""How time and memory grow with rows, features, active features, members and ranks.

    python benchmarks/scaling.py [--quick] [--parts n,d,active,k,ranks,chunks,million]
                                 [--rivals lightgbm,ebm,lassonet] [--limit 300]
                                 [--threads 1] [--csv scaling.csv]

A measurement is a fit of the plain estimator with default widths and a float64 network
on full batches, cut short after a few steps (the table says how many), in a process of
its own. Rows are normal, made in blocks of 10,000 and handed over as
`sknimo.RowBlocks`: no process ever holds the table. Printed are

    step s    seconds of the processor per step; every tenth step comes with a check
    clock s   the same by the clock, other work on the machine included
    fixed s   seconds of the processor besides the steps: making and reading the rows,
              statistics, the nested GLM, the exact solve at the end, the summary
    peak MB   largest resident memory of the process (of each process, with ranks)
    data MB   the same less what it held once the libraries were loaded

and the slopes of log seconds on log size. Fits of a few steps say what a step costs,
not how long a fit takes: that is the part `rivals`, where all methods are fitted with
their defaults, each until it is done or has used `--limit` seconds of the processor.

Parts: `n` (20 features, all active), `d` (10 active), `active` (of 100 features), `k`
(members of 10 features in one solve, as searches fit them), `ranks` (two processes by
gloo against one, one thread each), `chunks` (the same fit with blocks of several sizes:
the gap between the answers), `million` (1,000,000 x 100 on all cores, with the promise
of 4 GB), and `rivals`. `--quick` shrinks every part to about two minutes in all.

One thread is the default: growth is then that of the work, and no thread waits for
another one that the machine has given to somebody else.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from steps import growth_exponent, peak_resident, resident

# torch, sknimo and the rivals are imported by the processes that measure.

PARTS = ("n", "d", "active", "k", "ranks", "chunks", "million", "rivals")
BLOCK_ROWS = 10_000
TEST_SEED = 10**6
PROMISED_BYTES = 4e9  # for 1,000,000 rows and 100 features
PROMISED_GAP = 1e-8  # between blocks of different sizes
PROMISED_EXPONENTS = {"n": 1.05, "active": 1.1}
# Below this size of a part what a step costs whatever its size counts too much.
LARGE = {"n": 10_000, "active": 20}


@dataclass(frozen=True)
class Case:
    """One fit to be measured."""

    part: str
    n_rows: int
    n_features: int
    n_acting: int
    n_steps: int
    alpha: float = 0.01
    n_models: int = 1
    n_ranks: int = 1
    n_threads: int = 1  # 0 leaves the choice to torch
    memory_budget: float = 1e9


@dataclass(frozen=True)
class Measurement:
    """What one case cost; with ranks the slowest and the largest of them."""

    part: str
    n_rows: int
    n_features: int
    n_acting: int
    n_steps: int
    alpha: float
    n_models: int
    n_ranks: int
    n_threads: int
    memory_budget: float
    n_active: int
    step_seconds: float
    step_clock: float
    fixed_seconds: float
    total_clock: float
    peak_bytes: int
    data_bytes: int


@dataclass(frozen=True)
class RivalCase:
    """One method on one table."""

    method: str
    n_rows: int
    n_features: int
    n_acting: int
    n_threads: int
    limit: float  # seconds of the processor


# --- Rows -----------------------------------------------------------------------------


def make_block(case: Case | RivalCase, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one block; a truth in which features bend each other's coefficients."""
    rng = np.random.default_rng(block)
    begin = (block % TEST_SEED) * BLOCK_ROWS
    n_rows = min(BLOCK_ROWS, case.n_rows - begin)
    X = rng.standard_normal((n_rows, case.n_features))
    acting = X[:, : case.n_acting]
    signal = (acting * (1 + 0.5 * np.tanh(np.roll(acting, 1, axis=1)))).sum(1)
    noise = 0.5 * np.sqrt(case.n_acting) * rng.standard_normal(n_rows)
    return X, signal + noise


def read_blocks(
    case: Case, rank: int = 0, n_ranks: int = 1
) -> Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """A function that makes the blocks of one rank."""
    n_blocks = -(-case.n_rows // BLOCK_ROWS)
    own = range(n_blocks * rank // n_ranks, n_blocks * (rank + 1) // n_ranks)
    return lambda: (make_block(case, block) for block in own)


# --- Measuring, in a process of its own -----------------------------------------------


class StepClock:
    """Times the solver's steps while a fit runs."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.processor = 0.0
        self.n_steps = 0
        self.n_active: list[int] = []

    def __enter__(self) -> StepClock:
        from sknimo.solver._outer import _Run

        self._run, self._step = _Run, _Run.step
        inner = _Run.step

        def step(run: Any, number: int) -> None:
            self.n_active.append(run.live.active.shape[1])
            clock, processor = time.perf_counter(), time.process_time()
            inner(run, number)
            self.clock += time.perf_counter() - clock
            self.processor += time.process_time() - processor
            self.n_steps += 1

        _Run.step = step
        return self

    def __exit__(self, *error: object) -> None:
        self._run.step = self._step


def measure(case: Case) -> Measurement:
    """Load the libraries, then fit once."""
    import torch

    import sknimo  # noqa: F401

    if case.n_threads:
        torch.set_num_threads(case.n_threads)
    rank = int(os.environ.get("RANK", "0"))
    if case.n_ranks > 1:
        torch.distributed.init_process_group("gloo")
    fit = _make_members(case) if case.part == "k" else _make_fit(case, rank)
    _warm_up(case)
    before = resident()
    clock, processor = time.perf_counter(), time.process_time()
    with StepClock() as steps, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that is cut short
        fit()
    total_clock = time.perf_counter() - clock
    total = time.process_time() - processor
    if case.n_ranks > 1:
        torch.distributed.destroy_process_group()
    peak = peak_resident()
    return Measurement(
        **asdict(case),
        n_active=max(steps.n_active, default=0),
        step_seconds=steps.processor / steps.n_steps,
        step_clock=steps.clock / steps.n_steps,
        fixed_seconds=total - steps.processor,
        total_clock=total_clock,
        peak_bytes=peak,
        data_bytes=peak - before,
    )


def _make_fit(case: Case, rank: int) -> Callable[[], Any]:
    from sknimo import RowBlocks

    sharded = case.n_ranks > 1
    rows = RowBlocks(read_blocks(case, rank, case.n_ranks), sharded=sharded)
    return lambda: _make_estimator(case).fit(rows)


def _make_estimator(case: Case) -> Any:
    from sknimo import NIMORegressor

    return NIMORegressor(
        alpha=case.alpha,
        max_iter=case.n_steps,
        tol=0.0,
        patience=10**6,
        batch_size=0,
        memory_budget=case.memory_budget,
        device="cpu",
        random_state=0,
    )


def _make_members(case: Case) -> Callable[[], Any]:
    from steps import Case as StepCase
    from steps import make_fit

    sizes = (case.n_rows, case.n_features, case.n_models)
    fit = make_fit(StepCase("members", *sizes, case.n_steps, 1, "float64", "cpu", 1))
    return lambda: fit(case.n_steps)


def _warm_up(case: Case) -> None:
    """A tiny fit: thread pools and lazy imports get ready."""
    tiny = replace(case, n_rows=100, n_features=3, n_acting=3, n_steps=2, n_ranks=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _make_fit(tiny, 0)()


def measure_gaps(case: Case) -> dict[str, float]:
    """Largest gap of predictions, in standard deviations, from one block of rows."""
    import torch

    from sknimo import RowBlocks

    torch.set_num_threads(1)
    table, y = make_block(case, 0)
    cells = [
        ("in memory, 64 MB", None, 1e9),
        ("in memory, 4 MB", None, 4e6),
        ("blocks of 10000 rows, 64 MB", BLOCK_ROWS, 1e9),
        ("blocks of 333 rows, 16 MB", 333, 16e6),
        ("blocks of 100 rows, 8 MB", 100, 8e6),
    ]
    found = {}
    for name, size, budget in cells:
        est = _make_estimator(replace(case, memory_budget=budget))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if size is None:
                est.fit(table, y)
            else:
                cuts = range(0, len(y), size)
                est.fit(
                    RowBlocks([(table[i : i + size], y[i : i + size]) for i in cuts])
                )
        found[name] = est.predict(table)
    first = found[cells[0][0]]
    return {
        name: float(np.abs(values - first).max() / first.std())
        for name, values in found.items()
    }


def measure_rival(case: RivalCase) -> dict[str, float]:
    """Fit one method with its defaults; share of variance explained on new rows."""
    import torch
    from rivals import RIVALS, Rows

    torch.set_num_threads(case.n_threads)
    blocks = [make_block(case, b) for b in range(-(-case.n_rows // BLOCK_ROWS))]
    X = np.concatenate([block for block, _ in blocks])
    y = np.concatenate([target for _, target in blocks])
    rows = Rows(X, y, "regression", n_held_out=len(y) // 5, scale_target=False)
    if case.method == "sknimo-plain":
        from sknimo import NIMORegressor

        def fit() -> Callable[[np.ndarray], np.ndarray]:
            return NIMORegressor(device="cpu", random_state=0).fit(X, y).predict

    else:
        rival = RIVALS[case.method]
        rival.load()

        def fit() -> Callable[[np.ndarray], np.ndarray]:
            return rival.fit(rows, 0, case.n_threads).predict

    clock, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signal.setitimer(signal.ITIMER_PROF, case.limit)  # ends the process
        predict = fit()
        signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = time.perf_counter() - clock
    processor = time.process_time() - processor
    test, truth = make_block(case, TEST_SEED)
    explained = 1 - np.mean((predict(test) - truth) ** 2) / truth.var()
    return {
        "seconds": seconds,
        "processor": processor,
        "explained": float(explained),
        "peak_bytes": float(peak_resident()),
    }


# --- The parent -----------------------------------------------------------------------


def run_apart(kind: str, case: Case | RivalCase, n_ranks: int = 1) -> list[Any]:
    """Measure in one or several processes; what each of them found."""
    n_threads = case.n_threads
    # Threads that wait sleep: on a busy machine spinning costs more than the work.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    if n_threads:
        environment["OMP_NUM_THREADS"] = str(n_threads)
    else:
        environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable]
    if n_ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={n_ranks}"]
    with tempfile.TemporaryDirectory() as folder:
        command += [__file__, "--child", kind, json.dumps(asdict(case)), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode == -signal.SIGPROF:
            raise TimeoutError
        if done.returncode:
            told = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"exit code {done.returncode}: {told[0]}")
        return [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]


def be_child(kind: str, text: str, folder: str) -> None:
    """Measure and leave the result in a file named after the rank."""
    fields = json.loads(text)
    if kind == "fit":
        found: Any = asdict(measure(Case(**fields)))
    elif kind == "gaps":
        found = measure_gaps(Case(**fields))
    else:
        found = measure_rival(RivalCase(**fields))
    rank = os.environ.get("RANK", "0")
    (Path(folder) / rank).write_text(json.dumps(found))


def measure_apart(case: Case) -> Measurement:
    """One row of the table: the slowest and the largest of the ranks."""
    found = [Measurement(**each) for each in run_apart("fit", case, case.n_ranks)]
    worst = {
        name: max(getattr(each, name) for each in found)
        for name in (
            "step_seconds",
            "step_clock",
            "fixed_seconds",
            "total_clock",
            "peak_bytes",
            "data_bytes",
        )
    }
    return replace(found[0], **worst)


def make_cases(part: str, quick: bool, n_threads: int) -> list[Case]:
    """The fits of one part."""

    def case(n: int, d: int, acting: int, n_steps: int, **others: Any) -> Case:
        others = {"n_threads": n_threads} | others
        return Case(part, n, d, acting, n_steps, **others)

    if part == "n":
        sizes = (1_000, 10_000, 50_000) if quick else (1_000, 10_000, 100_000, 10**6)
        return [case(n, 20, 20, 3 if n > 10**5 else 10) for n in sizes]
    if part == "d":
        sizes = (10, 100, 300) if quick else (10, 30, 100, 300, 1_000)
        n = 5_000 if quick else 10_000
        return [case(n, d, 10, 5 if quick else 10, alpha=0.05) for d in sizes]
    if part == "active":
        sizes = (10, 20, 50, 100)
        n = 5_000 if quick else 20_000
        return [case(n, 100, a, 5 if quick else 10, alpha=0.02) for a in sizes]
    if part == "k":
        sizes = (1, 4, 16) if quick else (1, 4, 16, 64)
        n = 1_000 if quick else 3_000
        return [case(n, 10, 10, 10, n_models=k, n_threads=1) for k in sizes]
    if part == "ranks":
        n = 20_000 if quick else 200_000
        return [case(n, 20, 20, 5, n_ranks=k, n_threads=1) for k in (1, 2)]
    if part == "million":
        n, n_steps = (30_000, 2) if quick else (10**6, 3)
        return [case(n, 100, 100, n_steps, n_threads=0)]
    raise ValueError(f"no part {part!r}")


SIZES = {"n": "n_rows", "d": "n_features", "active": "n_active", "k": "n_models"}
HEADER = (
    f"{'part':8} {'n':>8} {'d':>5} {'active':>6} {'K':>3} {'ranks':>5} {'steps':>5} "
    f"{'step s':>9} {'clock s':>9} {'fixed s':>8} {'fit s':>8} {'peak MB':>8} "
    f"{'data MB':>8}"
)


def format_row(row: Measurement) -> str:
    """One line of the table."""
    return (
        f"{row.part:8} {row.n_rows:8d} {row.n_features:5d} {row.n_active:6d} "
        f"{row.n_models:3d} {row.n_ranks:5d} {row.n_steps:5d} "
        f"{row.step_seconds:9.4f} {row.step_clock:9.4f} {row.fixed_seconds:8.2f} "
        f"{row.total_clock:8.1f} {row.peak_bytes / 1e6:8.0f} "
        f"{row.data_bytes / 1e6:8.0f}"
    )


def describe_growth(part: str, rows: list[Measurement]) -> list[str]:
    """Exponents of one part, over all sizes and over the large ones."""
    lines = []
    for name, chosen in (
        ("all sizes", rows),
        (f"from {LARGE.get(part)}", [r for r in rows if size_of(r) >= LARGE[part]])
        if part in LARGE
        else ("", []),
    ):
        if len(chosen) < 2:
            continue
        sizes = [size_of(row) for row in chosen]
        exponent = growth_exponent(sizes, [row.step_seconds for row in chosen])
        text = f"seconds per step grow as {part}^{exponent:.2f}, {name}"
        if part in PROMISED_EXPONENTS and name != "all sizes":
            limit = PROMISED_EXPONENTS[part]
            text += f" (promised {limit}, {'kept' if exponent <= limit else 'BROKEN'})"
        lines.append(text)
    if part == "n" and len(rows) > 1:
        first, last = rows[0], rows[-1]
        gained = last.data_bytes - first.data_bytes
        each = gained / (last.n_rows - first.n_rows)
        lines.append(f"memory grows by {each:.0f} bytes per row")
    return lines


def size_of(row: Measurement) -> int:
    """The size along which a part grows."""
    return int(getattr(row, SIZES[row.part]))


def describe_ranks(rows: list[Measurement]) -> str:
    """Two processes against one."""
    one, two = rows
    return (
        f"two ranks take {two.step_seconds / one.step_seconds:.2f} of the processor's "
        f"and {two.step_clock / one.step_clock:.2f} of the clock's seconds per step"
    )


def describe_million(row: Measurement) -> str:
    """The promise about memory."""
    verdict = "kept" if row.peak_bytes < PROMISED_BYTES else "BROKEN"
    return (
        f"{row.n_rows} x {row.n_features}, {row.n_steps} steps: "
        f"{row.peak_bytes / 1e9:.2f} GB in the whole process at most; promised "
        f"{PROMISED_BYTES / 1e9:.0f} GB, {verdict}"
    )


def run_part(part: str, quick: bool, n_threads: int) -> list[Measurement]:
    """Measure a part, print its rows and what follows from them."""
    rows = []
    for case in make_cases(part, quick, n_threads):
        try:
            rows.append(measure_apart(case))
        except RuntimeError as error:
            print(f"{part:8} {case.n_rows:8d} {case.n_features:5d} failed, {error}")
            continue
        print(format_row(rows[-1]), flush=True)
    if part in SIZES:
        for line in describe_growth(part, rows):
            print(f"  {line}")
    elif part == "ranks" and len(rows) == 2:
        print(f"  {describe_ranks(rows)}")
    elif part == "million" and rows:
        print(f"  {describe_million(rows[0])}")
    sys.stdout.flush()
    return rows


def run_chunks(quick: bool) -> None:
    """Print how far blocks of other sizes lead."""
    case = Case("chunks", 1_000 if quick else 3_000, 20, 20, 50)
    (gaps,) = run_apart("gaps", case)
    print(f"chunks: {case.n_rows} x {case.n_features}, {case.n_steps} steps")
    for name, gap in gaps.items():
        print(f"  {name:30s} differs by at most {gap:.1e} standard deviations")
    verdict = "kept" if max(gaps.values()) <= PROMISED_GAP else "BROKEN"
    print(f"  promised {PROMISED_GAP:.0e}, {verdict}", flush=True)


def run_rivals(quick: bool, methods: list[str], limit: float, n_threads: int) -> None:
    """Default fits to the end, ratio to the first method, test error beside."""
    sizes = ((1_000, 10),) if quick else ((1_000, 10), (10_000, 20), (100_000, 50))
    print(
        f"{'rivals':14} {'n':>8} {'d':>5} {'seconds':>9} {'processor':>9} "
        f"{'plain / it':>10} {'explained':>9} {'peak MB':>8}"
    )
    for n_rows, n_features in sizes:
        ours = None
        for method in ["sknimo-plain", *methods]:
            acting = min(10, n_features)
            case = RivalCase(method, n_rows, n_features, acting, n_threads, limit)
            place = f"{method:14} {n_rows:8d} {n_features:5d}"
            try:
                (found,) = run_apart("rival", case)
            except TimeoutError:
                print(f"{place}  not done after {limit:.0f} s", flush=True)
                continue
            except RuntimeError as error:
                print(f"{place}  failed, {error}", flush=True)
                continue
            ours = found["seconds"] if method == "sknimo-plain" else ours
            ratio = np.nan if ours is None else ours / found["seconds"]
            print(
                f"{place} {found['seconds']:9.2f} {found['processor']:9.2f} "
                f"{ratio:10.2f} {found['explained']:9.3f} "
                f"{found['peak_bytes'] / 1e6:8.0f}",
                flush=True,
            )


def main() -> None:
    """Measure the parts that were asked for."""
    if sys.argv[1:2] == ["--child"]:
        be_child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about two minutes")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rivals", default="sknimo,lightgbm,ebm,lassonet")
    parser.add_argument("--limit", type=float, help="processor seconds of one fit")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    args = parser.parse_args()
    parts = parse_parts(args.parts)
    limit = args.limit or (20 if args.quick else 300)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}, threads {args.threads}\n\n{HEADER}",
        flush=True,
    )
    rows: list[Measurement] = []
    for part in parts:
        if part == "chunks":
            run_chunks(args.quick)
        elif part == "rivals":
            run_rivals(args.quick, args.rivals.split(","), limit, args.threads)
        else:
            rows += run_part(part, args.quick, args.threads)
    if args.csv and rows:
        table = [asdict(row) for row in rows]
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)


def parse_parts(text: str) -> list[str]:
    """Names of parts, in the order in which they are run."""
    asked = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(asked) - set(PARTS))
    if unknown:
        raise SystemExit(f"--parts knows {', '.join(PARTS)}; not {', '.join(unknown)}")
    return [part for part in PARTS if part in asked]


if __name__ == "__main__":
    main()
