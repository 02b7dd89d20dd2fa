"""What the benchmarks of growth and of the GPU work out by themselves."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="not part of a source distribution"
)


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.fixture
def row():
    import scaling

    case = scaling.Case("n", 1000, 20, 20, 10)
    return scaling.Measurement(
        **vars(case),
        n_active=20,
        step_seconds=1.0,
        step_clock=1.0,
        fixed_seconds=0.0,
        total_clock=1.0,
        peak_bytes=0,
        data_bytes=0,
    )


def grow(row, sizes, power):
    """Measurements whose seconds are a power of the size, above a fixed cost."""
    return [
        replace(
            row, n_rows=n, step_seconds=1e-3 + (n / 1e6) ** power, data_bytes=50 * n
        )
        for n in sizes
    ]


def test_parts_are_run_in_their_order_and_unknown_ones_are_refused():
    import scaling

    assert scaling.parse_parts("million, n,d") == ["n", "d", "million"]
    with pytest.raises(SystemExit, match="columns"):
        scaling.parse_parts("n,columns")


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "kept"), (1.3, "BROKEN")])
def test_growth_is_judged_where_fixed_costs_do_not_count(row, power, verdict):
    import scaling

    rows = grow(row, (1, 10**5, 10**6, 10**7), power)
    everything, large, memory = scaling.describe_growth("n", rows)
    assert f"n^{power:.2f}, from 10000" in large and verdict in large
    assert f"n^{power:.2f}" not in everything  # the small one costs too much
    assert "50 bytes per row" in memory


def test_blocks_of_all_ranks_are_those_of_one():
    import scaling

    case = scaling.Case("n", 45_000, 3, 2, 1)
    alone = list(scaling.read_blocks(case)())
    shared = [b for rank in range(2) for b in scaling.read_blocks(case, rank, 2)()]
    assert sum(len(y) for _, y in alone) == 45_000
    for (X, y), (X_shared, y_shared) in zip(alone, shared, strict=True):
        assert np.array_equal(X, X_shared) and np.array_equal(y, y_shared)


def test_traffic_counts_operands_and_results_but_no_views():
    import gpu

    x, bias = torch.ones(5, 4), torch.ones(4)
    with gpu.TrafficMode() as traffic:
        x.view(4, 5).mT[:2].unsqueeze(0)
    assert traffic.n_bytes == 0
    with gpu.TrafficMode() as traffic:
        x + bias.expand(5, 4)  # 20 read, 4 read, 20 written
        x.mul_(2.0)  # 20 read, 20 written
    assert traffic.n_bytes == 4 * (44 + 40)


@pytest.mark.slow
def test_traffic_counts_the_way_back():
    import gpu

    x = torch.ones(6, requires_grad=True)
    y = x.sin()
    with gpu.TrafficMode() as traffic:
        torch.autograd.grad(y, x, torch.ones(6))  # ones; cos; product with the gradient
    assert traffic.n_bytes == 4 * (6 + 12 + 18)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_there_is_nothing_to_measure(monkeypatch, capsys):
    import gpu

    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    gpu.main()
    assert "no CUDA device" in capsys.readouterr().out


@pytest.mark.slow
def test_a_part_of_the_scaling_benchmark_runs(tmp_path):
    path = tmp_path / "out.csv"
    command = [sys.executable, str(FOLDER / "scaling.py"), "--quick"]
    command += ["--parts", "k,ranks", "--csv", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "seconds per step grow as k^" in done.stdout
    assert "two ranks take" in done.stdout
    assert len(path.read_text().splitlines()) == 1 + 3 + 2
