"""What a training step costs on a GPU, against what the card can do.

    python benchmarks/gpu.py [--rows 100000] [--features 100] [--width 64]
                             [--parts ceilings,steps,profile,prediction,variants]
                             [--seconds 80] [--csv steps.csv] [--device cuda|cpu]

Ceilings are measured: copying a tensor larger than every cache, products of large
matrices, and the two functions of the network on a tensor of the size of a layer.

A step is one full-batch step of the solver, Gaussian family, one member, all rows in
one block unless a row of the table says otherwise: design, exact coefficients,
gradient, Adam. "wide" keeps every feature active, in "sparse" ten features act and the
lasso has put the others to zero. Checks, which come every tenth step, are timed apart.

Work is counted while a step runs, not by formula. FLOPs are those of the products, as
torch counts them. Bytes "moved" are those of every operation that computes or copies:
each operand read once and each result written once, views free, broadcast dimensions
counted once. This is what the program as it stands has to move if caches hold nothing
from one operation to the next. Bytes "needed" are the floor for a program that works
layer by layer and keeps activations for the way back: the values and the derivatives
of each of the two layers are written once and read twice (by the next layer and by the
gradient of its weights), functions that act on single numbers are free, and the design
(float64) is written, read for its Gram matrix, read for the predictor, and its
derivative written and read. A share of the ceiling above one says that caches helped.

Every part stands alone: one that fails prints its error, and the others go on.
"""

from __future__ import annotations

import argparse
import csv
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sknimo import NIMORegressor, network
from sknimo.families import get_family
from sknimo.machine import to_device
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Options, Problem
from sknimo.solver._outer import _Run, _threads

PARTS = ("ceilings", "steps", "profile", "prediction", "variants")
N_ACTING = 10  # of the sparse case
TARGET_SHARE = 0.4  # of the copy bandwidth
ROOMY, USUAL = 60e9, 1e9  # memory budgets: all rows in one block, and the default
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
COPIES = ("cudaMemcpyAsync", "cudaMemcpy")
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel")


@dataclass(frozen=True)
class Machine:
    """Where to run, and the size of the tensors that ceilings are measured with."""

    device: torch.device
    copy_bytes: int
    matmul_size: int

    @property
    def is_gpu(self) -> bool:
        """Whether the device works while the host goes on."""
        return self.device.type == "cuda"

    def seconds(self, call: Callable[[], object], repeats: int = 5) -> float:
        """Best time of a call; the first one, which warms up, does not count."""
        call()
        return min(self._once(call) for _ in range(repeats))

    def _once(self, call: Callable[[], object]) -> float:
        self.wait()
        begin = perf_counter()
        call()
        self.wait()
        return perf_counter() - begin

    def wait(self) -> None:
        """Let the device finish."""
        if self.is_gpu:
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Ceilings:
    """What the card reaches at best, per second."""

    copy: float  # bytes
    float32: float  # FLOPs
    float64: float


@dataclass(frozen=True)
class Case:
    """One kind of step."""

    name: str
    n_rows: int
    n_features: int
    width: int
    is_sparse: bool = False
    dtype: str = "float32"
    memory_budget: float = ROOMY
    is_masked: bool = False  # first layer by masked weights, however many inputs


@dataclass(frozen=True)
class Work:
    """What one step computes and moves."""

    flops: float
    moved_bytes: float
    needed_bytes: float
    n_operations: int


@dataclass(frozen=True)
class Timing:
    """One row of the table."""

    case: str
    n_rows: int
    n_features: int
    n_active: int
    n_blocks: int
    milliseconds: float
    check_milliseconds: float
    gigaflops: float
    moved_gigabytes: float
    needed_gigabytes: float
    moved_share: float
    needed_share: float
    flops_share: float
    peak_gigabytes: float


class TrafficMode(TorchDispatchMode):
    """Counts bytes read and written by every operation that is not a view."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0.0
        self.by_name: Counter[str] = Counter()
        self.n_operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        read = tensors_in((args, kwargs or {}))
        written = tensors_in(result)
        name = str(func.overloadpacket)
        mutates = func._schema.is_mutable
        known = {tensor.untyped_storage().data_ptr() for tensor in read}
        fresh = [t for t in written if t.untyped_storage().data_ptr() not in known]
        is_view = bool(written) and not fresh and not mutates
        if not is_view and "empty" not in name:
            moved = sum(map(distinct_bytes, read))
            moved += sum(map(distinct_bytes, written if mutates else fresh))
            self.n_bytes += moved
            self.by_name[name] += moved
            self.n_operations += 1
        return result


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, tuple | list):
        return []
    return [tensor for value in values for tensor in tensors_in(value)]


def distinct_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor, dimensions along which it repeats itself counted once."""
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        size *= length if stride != 0 else min(length, 1)
    return size


def needed_bytes(case: Case, n_active: int) -> float:
    """Floor of a program that works layer by layer; see the module's docstring."""
    n, p = case.n_rows, case.n_features
    itemsize = torch.finfo(getattr(torch, case.dtype)).bits // 8
    layer = n * n_active * case.width * itemsize
    inputs, design = 2 * n * p * itemsize, 5 * n * p * 8
    return float(2 * 2 * 3 * layer + inputs + design)


def make_run(case: Case, device: torch.device, check_every: int = 10**6) -> _Run:
    """The solver at its start, ready to step."""
    n, p = case.n_rows, case.n_features
    generator = torch.Generator(device=device).manual_seed(0)
    table = torch.randn(n, p, generator=generator, device=device, dtype=torch.float64)
    acting = min(N_ACTING, p) if case.is_sparse else p
    bend = 1 + 0.5 * torch.tanh(table.roll(1, dims=1)[:, :acting])
    y = (table[:, :acting] * bend).sum(1)
    y += torch.randn(n, generator=generator, device=device, dtype=torch.float64)
    y = (y - y.mean()) / y.std()
    problem = Problem.in_memory(
        terms=table,
        term_feature=torch.arange(p, device=device),
        inputs=table,
        y=y,
        offset=torch.zeros_like(y),
        family=get_family("gaussian"),
        spec=make_spec(range(p), p, (case.width, case.width)),
    )
    strength = torch.full((1,), 0.02 if case.is_sparse else 1e-4, dtype=torch.float64)
    members = Members(
        penalty=make_penalty("lasso", strength, torch.arange(p), p),
        network_alpha=torch.full_like(strength, 0.1),
        seeds=(0,),
        weight=torch.full((1, n), 1 / n, dtype=torch.float64),
        validation=None,
    )
    options = Options(
        max_iter=10**6,
        check_every=check_every,
        patience=10**6,
        scale_contributions=True,
        dtype=getattr(torch, case.dtype),
        memory_budget=int(case.memory_budget),
    )
    return _Run.begin(to_device(problem, device), to_device(members, device), options)


@contextmanager
def settings_of(run: _Run, case: Case) -> Iterator[None]:
    """The solver's own threads of torch, and the case's way."""
    before = network.MASKED_PRODUCT_INPUTS
    if case.is_masked:
        network.MASKED_PRODUCT_INPUTS = 10**9
    try:
        with _threads(run.problem, run.members):
            yield
    finally:
        network.MASKED_PRODUCT_INPUTS = before


def count_work(case: Case, run: _Run) -> Work:
    """Count what one step does."""
    flops, traffic = FlopCounterMode(display=False), TrafficMode()
    with flops:
        run.step(run.next_step)
    with traffic:
        run.step(run.next_step)
    return Work(
        flops=float(flops.get_total_flops()),
        moved_bytes=traffic.n_bytes,
        needed_bytes=needed_bytes(case, run.live.active.shape[1]),
        n_operations=traffic.n_operations,
    )


def time_steps(run: _Run, machine: Machine, n_steps: int) -> float:
    """Seconds of one step, best of three rounds."""

    def steps() -> None:
        for _ in range(n_steps):
            run.step(run.next_step)

    return machine.seconds(steps, repeats=3) / n_steps


# --- Parts ----------------------------------------------------------------------------


def measure_ceilings(machine: Machine, width: int) -> Ceilings:
    """Copy, products, and the functions that the network uses."""
    copy = measure_streams(machine, width)
    found = {}
    for name in ("float32", "float64"):
        m, dtype = machine.matmul_size, getattr(torch, name)
        left = torch.randn(m, m, device=machine.device, dtype=dtype)
        taken = machine.seconds(lambda a=left: a @ a, repeats=3)
        found[name] = 2 * m**3 / taken
        print(f"matmul {m}, {name:8s}         {found[name] / 1e12:9.2f} TFLOP/s")
    return Ceilings(copy=copy, **found)


def measure_streams(machine: Machine, width: int) -> float:
    """What goes through memory once: bytes per second of a copy, others printed."""
    source = torch.ones(machine.copy_bytes // 4, device=machine.device)
    target = torch.empty_like(source)
    n_bytes = 2 * 4 * len(source)
    copy = n_bytes / machine.seconds(lambda: target.copy_(source))
    print(f"copy                          {copy / 1e9:9.0f} GB/s")
    for name in ("tanh", "sin", "cos"):
        call = getattr(torch, name)
        found = n_bytes / machine.seconds(lambda c=call: c(source, out=target))
        print(f"{name:5s} float32, read and write {found / 1e9:9.0f} GB/s")
    # The product of a layer: many rows by a small square matrix.
    n_rows = len(source) // width
    rows, out = (t[: n_rows * width].view(n_rows, width) for t in (source, target))
    weight = torch.ones(width, width, device=machine.device)
    taken = machine.seconds(lambda: torch.mm(rows, weight, out=out))
    print(
        f"rows x {width} by {width} x {width} "
        f"{8 * rows.numel() / taken / 1e9:6.0f} GB/s "
        f"{2 * rows.numel() * width / taken / 1e12:9.2f} TFLOP/s"
    )
    return copy


HEADER = (
    f"{'step':26} {'active':>6} {'blocks':>6} {'ms':>9} {'check ms':>9} "
    f"{'moved GB':>9} {'share':>6} {'needed GB':>9} {'share':>6} "
    f"{'GFLOP':>8} {'share':>6} {'peak GB':>8}"
)


def format_timing(row: Timing) -> str:
    """One line of the table."""
    return (
        f"{row.case:26} {row.n_active:6d} {row.n_blocks:6d} {row.milliseconds:9.2f} "
        f"{row.check_milliseconds:9.2f} {row.moved_gigabytes:9.2f} "
        f"{row.moved_share:6.2f} {row.needed_gigabytes:9.2f} {row.needed_share:6.2f} "
        f"{row.gigaflops:8.1f} {row.flops_share:6.2f} {row.peak_gigabytes:8.2f}"
    )


def measure_step(
    case: Case, machine: Machine, ceilings: Ceilings | None, n_steps: int
) -> Timing:
    """Time and count one kind of step."""
    run = make_run(case, machine.device)
    if machine.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with settings_of(run, case):
        for _ in range(2):  # the first is a check
            run.step(run.next_step)
        seconds = time_steps(run, machine, n_steps)
        check = machine.seconds(run._evaluate, repeats=2)
        peak = torch.cuda.max_memory_allocated() if machine.is_gpu else 0
        work = count_work(case, run)
    n_active = run.live.active.shape[1]
    blocks, _ = run.forward.supply.plan(run.members.n_models, n_active)
    copy = ceilings.copy if ceilings else np.nan
    rate = getattr(ceilings, case.dtype) if ceilings else np.nan
    return Timing(
        case=case.name,
        n_rows=case.n_rows,
        n_features=case.n_features,
        n_active=n_active,
        n_blocks=len(blocks),
        milliseconds=1e3 * seconds,
        check_milliseconds=1e3 * check,
        gigaflops=work.flops / 1e9,
        moved_gigabytes=work.moved_bytes / 1e9,
        needed_gigabytes=work.needed_bytes / 1e9,
        moved_share=work.moved_bytes / seconds / copy,
        needed_share=work.needed_bytes / seconds / copy,
        flops_share=work.flops / seconds / rate,
        peak_gigabytes=peak / 1e9,
    )


def print_traffic(case: Case, machine: Machine) -> None:
    """Which operations move the bytes."""
    run = make_run(case, machine.device)
    with settings_of(run, case):
        for _ in range(2):
            run.step(run.next_step)
        traffic = TrafficMode()
        with traffic:
            run.step(run.next_step)
    print(f"\nbytes of one step by operation, {case.name}:")
    for name, n_bytes in traffic.by_name.most_common(14):
        print(f"  {name:36s} {n_bytes / 1e9:8.2f} GB")


def profile_steps(case: Case, machine: Machine, n_steps: int) -> None:
    """The ten most expensive kernels, and how often the host waits."""
    run = make_run(case, machine.device)
    activities = [ProfilerActivity.CPU]
    if machine.is_gpu:
        activities.append(ProfilerActivity.CUDA)
    with settings_of(run, case):
        for _ in range(3):
            run.step(run.next_step)
        machine.wait()
        begin = perf_counter()
        with profile(activities=activities) as profiler:
            for _ in range(n_steps):
                run.step(run.next_step)
            host = perf_counter() - begin
            machine.wait()
        wall = perf_counter() - begin
    events = profiler.key_averages()
    counts = Counter({event.key: event.count for event in events})
    kernels = [event for event in events if own_time(event, machine.is_gpu) > 0]
    kernels.sort(key=lambda event: own_time(event, machine.is_gpu), reverse=True)
    busy = sum(own_time(event, machine.is_gpu) for event in kernels) / 1e6
    print(
        f"\nprofile, {case.name}: {1e3 * wall / n_steps:.2f} ms per step with the "
        f"profiler on, {1e3 * busy / n_steps:.2f} ms of kernels; the host had issued "
        f"a step after {1e3 * host / n_steps:.2f} ms"
    )
    if machine.is_gpu:
        waits = sum(counts[name] for name in WAITS)
        print(
            f"per step: {sum(counts[n] for n in LAUNCHES) / n_steps:.0f} launches, "
            f"{(waits - 1) / n_steps:.2f} host synchronisations besides the last one, "
            f"{sum(counts[n] for n in COPIES) / n_steps:.2f} copies by the host"
        )
        for name in (*WAITS, *COPIES):
            print(f"  {name:26s} {counts[name]:5d} in {n_steps} steps")
        for event in events:
            if event.key.startswith("Memcpy"):
                print(f"  {event.key:42s} {event.count:5d} in {n_steps} steps")
    print(f"{'share':>6} {'ms/step':>8} {'calls':>6}  kernel")
    for event in kernels[:10]:
        own = own_time(event, machine.is_gpu) / 1e6
        print(
            f"{own / busy:6.1%} {1e3 * own / n_steps:8.3f} "
            f"{event.count / n_steps:6.1f}  {event.key[:110]}"
        )


def own_time(event: Any, on_gpu: bool) -> float:
    """Microseconds of a kernel itself; zero for what runs on the host."""
    if not on_gpu:
        return float(event.self_cpu_time_total)
    if "CUDA" not in str(event.device_type):
        return 0.0
    name = "self_device_time_total"
    if not hasattr(event, name):  # torch before 2.4
        name = "self_cuda_time_total"
    return float(getattr(event, name))


class CompiledModulator:
    """A modulator whose evaluation went through `torch.compile`."""

    def __init__(self, modulator: Any) -> None:
        self.input_feature = modulator.input_feature
        self._call = torch.compile(
            lambda params, inputs, active, noise: modulator(
                params, inputs, active, noise
            )
        )

    def __call__(self, *arguments: Any) -> Tensor:
        return self._call(*arguments)


def try_compile(case: Case, machine: Machine, n_steps: int) -> None:
    """Steps whose network is compiled, against steps as they are, in turns."""
    plain, compiled = (make_run(case, machine.device) for _ in range(2))
    compiled.forward.modulator = CompiledModulator(compiled.forward.modulator)
    with settings_of(plain, case):
        begin = perf_counter()
        for run in (plain, compiled):
            for _ in range(3):
                run.step(run.next_step)
        machine.wait()
        ready = perf_counter() - begin
        before, after = (time_steps(run, machine, n_steps) for run in (plain, compiled))
    report_gain("torch.compile of the network", case, before, after)
    gap = (plain.live.params - compiled.live.params).abs().max()
    print(f"  compiled after {ready:.1f} s; weights differ by at most {gap:.1e}")


def try_graph(case: Case, machine: Machine, n_steps: int) -> None:
    """Replay objective and gradient of one step as a CUDA graph.

    The optimiser's move stays outside: its rates are numbers of the host.
    """
    run = make_run(case, machine.device)
    with settings_of(run, case):
        for _ in range(2):
            run.step(run.next_step)
        live, forward = run.live, run.forward

        def evaluate() -> Any:
            return forward.differentiate(live.bent, live.coefficients, None).gradient

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                expected = evaluate()
        torch.cuda.current_stream().wait_stream(side)
        before = machine.seconds(lambda: [evaluate() for _ in range(n_steps)])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = evaluate()
        after = machine.seconds(lambda: [graph.replay() for _ in range(n_steps)])
    report_gain("CUDA graph of the gradient", case, before / n_steps, after / n_steps)
    print(f"  gradients differ by at most {(found - expected).abs().max():.1e}")


def report_gain(what: str, case: Case, before: float, after: float) -> None:
    """Two times and their ratio."""
    print(
        f"{what}, {case.name}: {1e3 * before:.2f} -> {1e3 * after:.2f} ms "
        f"({before / after:.2f} times as fast)"
    )


def time_prediction(machine: Machine, n_rows: int, n_features: int, width: int) -> None:
    """Rows per second of a fitted model, table in the host's memory."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((n_rows, n_features), dtype=np.float32).astype(float)
    for name, acting in (("wide", n_features), ("sparse", min(N_ACTING, n_features))):
        few = table[: min(5000, n_rows)]
        bend = 1 + 0.5 * np.tanh(np.roll(few, 1, axis=1)[:, :acting])
        y = (few[:, :acting] * bend).sum(1) + rng.standard_normal(len(few))
        est = NIMORegressor(
            alpha=1e-3 if name == "wide" else 0.05,
            network_alpha=0.0,
            hidden=(width, width),
            max_iter=20,
            batch_size=0,
            device=machine.device.type,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est.fit(few, y)
        model = est.model_
        seconds = machine.seconds(
            lambda m=model: m.eta(table, device=machine.device), repeats=2
        )
        print(
            f"{name:7s} {int(model.modulated.sum()):4d} features bent: "
            f"{n_rows} rows in {seconds:.3f} s, {n_rows / seconds:,.0f} rows/s"
        )


# --- Command --------------------------------------------------------------------------


class Bench:
    """The parts in turn, each on its own, until time is up."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.begin = perf_counter()
        on_gpu = args.device == "cuda"
        self.machine = Machine(
            torch.device(args.device),
            4 * 2**30 if on_gpu else 32 * 2**20,
            8192 if on_gpu else 512,
        )
        self.n_steps = 10 if on_gpu else 2
        self.ceilings: Ceilings | None = None
        self.rows: list[Timing] = []

    def run(self) -> None:
        """All parts that were asked for."""
        for part in self.args.parts.split(","):
            print(f"\n=== {part} ({perf_counter() - self.begin:.0f} s)", flush=True)
            getattr(self, f"part_{part}")()
        if self.args.csv and self.rows:
            table = [asdict(row) for row in self.rows]
            with self.args.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, table[0])
                writer.writeheader()
                writer.writerows(table)
        print(f"\ndone after {perf_counter() - self.begin:.0f} s")

    def attempt(self, what: str, call: Callable[[], Any]) -> Any:
        """Call, unless time is up; a failure is printed and survived."""
        if perf_counter() - self.begin > self.args.seconds:
            print(f"{what}: left out, {self.args.seconds:.0f} s are over")
            return None
        try:
            return call()
        except Exception as error:
            print(f"{what} FAILED: {type(error).__name__}: {str(error)[:500]}")
            traceback.print_exc(limit=-3, file=sys.stdout)
            return None
        finally:
            sys.stdout.flush()
            if self.machine.is_gpu:
                torch.cuda.empty_cache()

    def case(self, name: str, **others: Any) -> Case:
        """A case of the size that was asked for."""
        args = self.args
        sizes = {"n_rows": args.rows, "n_features": args.features, "width": args.width}
        return Case(name, **(sizes | others))

    def part_ceilings(self) -> None:
        def measure() -> None:
            self.ceilings = measure_ceilings(self.machine, self.args.width)

        self.attempt("ceilings", measure)

    def part_steps(self) -> None:
        print(HEADER)
        for case in (
            self.case("wide, float32"),
            self.case("wide, float32, masked", is_masked=True),
            self.case("wide, float64", dtype="float64"),
            self.case("wide, float32, 1 GB", memory_budget=USUAL),
            self.case("sparse, float32", is_sparse=True),
            self.case("sparse, float32, 1 GB", is_sparse=True, memory_budget=USUAL),
            self.case("small, float32", n_rows=300, n_features=10, width=16),
        ):
            row = self.attempt(
                case.name,
                lambda c=case: measure_step(
                    c, self.machine, self.ceilings, self.n_steps
                ),
            )
            if row is not None:
                self.rows.append(row)
                print(format_timing(row), flush=True)
        self.report_target()

    def report_target(self) -> None:
        """The promise about the memory ceiling."""
        for row in self.rows:
            if row.case.startswith("wide, float32"):
                verdict = "kept" if row.moved_share >= TARGET_SHARE else "MISSED"
                print(
                    f"{row.case}: {row.moved_gigabytes / row.milliseconds * 1e3:.0f} "
                    f"GB/s moved, {row.moved_share:.0%} of the copy ceiling "
                    f"(target {TARGET_SHARE:.0%} {verdict}); "
                    f"{row.needed_share:.0%} by the bytes needed"
                )

    def part_profile(self) -> None:
        cases = (
            self.case("wide, float32"),
            self.case("sparse, float32", is_sparse=True),
        )
        for case in cases:
            self.attempt(
                f"profile of {case.name}",
                lambda c=case: profile_steps(c, self.machine, self.n_steps),
            )
        self.attempt("traffic", lambda: print_traffic(cases[0], self.machine))

    def part_variants(self) -> None:
        small = self.case("small, float32", n_rows=300, n_features=10, width=16)
        wide, sparse = (
            self.case(f"{name}, float32", is_sparse=name == "sparse")
            for name in ("wide", "sparse")
        )
        if self.machine.is_gpu:
            for case in (small, sparse, wide):
                self.attempt(
                    f"CUDA graph, {case.name}",
                    lambda c=case: try_graph(c, self.machine, self.n_steps),
                )
        for case in (wide, sparse):
            self.attempt(
                f"torch.compile, {case.name}",
                lambda c=case: try_compile(c, self.machine, self.n_steps),
            )

    def part_prediction(self) -> None:
        args, n_rows = self.args, 4 * self.args.rows
        self.attempt(
            "prediction",
            lambda: time_prediction(self.machine, n_rows, args.features, args.width),
        )


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=80, help="begin nothing after")
    parser.add_argument("--csv", type=Path, help="write the table of steps here")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    unknown = set(args.parts.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--parts knows {', '.join(PARTS)}; not {', '.join(unknown)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        print("There is no CUDA device here; nothing to measure.")
        return
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(
        f"{name}, torch {torch.__version__}: {args.rows} x {args.features}, "
        f"hidden ({args.width}, {args.width})"
    )
    Bench(args).run()


if __name__ == "__main__":
    main()
