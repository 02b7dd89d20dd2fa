"""`sknimo fit` on tables that are read part by part, by one process or several."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import sknimo as library
from sknimo.cli import _stream
from sknimo.cli._fit import read_size

FEATURES = ["age", "dose", "sex", "ward"]
OTHERS = "--drop=days,visits"
FIT = ["--fixed", "--set", "max_iter=20", "--device", "cpu"]
SAME = 1e-8  # only the order of sums differs


@pytest.fixture
def parquet(patients, tmp_path):
    path = tmp_path / "patients.parquet"
    pa_parquet.write_table(patients, path, row_group_size=25)
    return path


@pytest.fixture
def large(monkeypatch):
    """Every table is large."""
    monkeypatch.setattr(_stream, "TABLE_SHARE", 0.0)


def same_predictions(first, second, table):
    first, second = library.load(first), library.load(second)
    return first.predict(table) == pytest.approx(second.predict(table), abs=SAME)


class TestLargeTables:
    @pytest.mark.slow
    def test_the_model_is_that_of_a_table_in_memory(
        self, sknimo, parquet, patients, tmp_path, monkeypatch
    ):
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        sknimo(*fit, "--model", tmp_path / "whole.sknimo")
        monkeypatch.setattr(_stream, "TABLE_SHARE", 0.0)
        done = sknimo(*fit, "--model", tmp_path / "parts.sknimo")
        assert "Fitted 120 rows" in done.stdout
        files = tmp_path / "whole.sknimo", tmp_path / "parts.sknimo"
        assert same_predictions(*files, patients.select(FEATURES))

    @pytest.mark.slow
    def test_the_budget_decides_what_is_large(self, sknimo, parquet, monkeypatch):
        seen = []
        find = _stream.find_source

        def watch(*arguments):
            seen.append(find(*arguments))
            return seen[-1]

        monkeypatch.setattr(_stream, "find_source", watch)
        monkeypatch.setattr(_stream, "TABLE_SHARE", 8 * 120 * 8 / 5e6)
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        sknimo(*fit, "--memory-budget", "5.1MB")
        sknimo(*fit, "--memory-budget", "4.9MB")
        assert seen[0] is None and seen[1].is_parquet

    def test_classes_rows_held_out_and_a_report(self, sknimo, parquet, tmp_path, large):
        done = sknimo(
            *["fit", parquet, "-t", "relapse", OTHERS, "--drop=fall", *FIT],
            *["--test", "0.25", "--report", tmp_path / "r.html"],
        )
        assert "On 30 rows held out" in done.stdout and "Fitted 90 rows" in done.stdout
        assert re.search(r"Rows: +90", done.stdout)
        assert "binomial family" in done.stderr
        assert (tmp_path / "r.html").stat().st_size > 10_000

    def test_numbers_of_two_values_are_labels(self, sknimo, tmp_path, large):
        rng = np.random.default_rng(0)
        x = rng.normal(size=200)
        y = (x + rng.normal(size=200) > 0).astype(float)
        pa_parquet.write_table(pa.table({"x": x, "y": y}), tmp_path / "t.parquet")
        sknimo(
            *["fit", tmp_path / "t.parquet", "-t", "y", *FIT],
            *["--model", tmp_path / "m.sknimo"],
        )
        classes = library.load(tmp_path / "m.sknimo").classes_
        assert classes.tolist() == [0, 1] and classes.dtype == np.int64

    def test_faults_name_the_row_of_the_file(self, sknimo, patients, tmp_path, large):
        table = patients.select([*FEATURES, "fall"])
        dose = table["dose"].to_numpy().copy()
        dose[[5, 77]] = np.nan, np.inf
        table = table.set_column(1, "dose", pa.array(dose, from_pandas=True))
        pa_parquet.write_table(table, tmp_path / "t.parquet", row_group_size=20)
        fit = ["fit", tmp_path / "t.parquet", "-t", "fall", *FIT]
        done = sknimo(*fit, code=1)
        assert re.search("'dose' .* row 6.*--drop-missing", done.stderr)
        # Rows that are left out count all the same.
        done = sknimo(*fit, "--drop-missing", code=1)
        assert re.search("'dose' .*infinity.* row 78", done.stderr)
        done = sknimo(*fit, "--drop-missing", "--test", "0.5", "--seed", "1", code=1)
        assert "row 78" in done.stderr

    def test_rows_with_gaps_are_left_out(self, sknimo, patients, tmp_path, large):
        table = patients.select([*FEATURES, "fall"])
        sex = table["sex"].to_pylist()
        sex[50:60] = [None] * 10
        table = table.set_column(2, "sex", pa.array(sex))
        pa_parquet.write_table(table, tmp_path / "t.parquet", row_group_size=20)
        fit = ["fit", tmp_path / "t.parquet", "-t", "fall", *FIT, "--drop-missing"]
        done = sknimo(*fit)
        assert "left out 10 rows" in done.stderr and "Fitted 110 rows" in done.stdout

    def test_penalties_are_searched_for_unless_they_are_set(
        self, sknimo, parquet, patients, tmp_path, large
    ):
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", "--json"]
        done = sknimo(*fit, *FIT)
        assert '"class": "NIMORegressor"' in done.stdout
        search = ["--set", "max_iter=2", "--set", "batch_size=32", "--device", "cpu"]
        search += ["--max-time", "60", "--model", tmp_path / "m.sknimo"]
        done = sknimo(*fit, *search)
        assert "a sample of its rows is searched" in done.stderr
        assert '"class": "NIMORegressorCV"' in done.stdout
        est = library.load(tmp_path / "m.sknimo")
        assert np.isfinite(est.predict(patients.select(FEATURES))).all()


class TestCheckpoint:
    def test_states_go_once_the_model_is_saved(self, sknimo, parquet, tmp_path):
        state = tmp_path / "state"
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        sknimo(*fit, "--checkpoint", state)
        assert list(state.iterdir())
        sknimo(*fit, "--checkpoint", state, "--model", tmp_path / "m.sknimo")
        assert not state.exists()

    def test_states_of_another_fit_are_refused(self, sknimo, parquet, tmp_path):
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        sknimo(*fit, "--checkpoint", tmp_path / "state")
        done = sknimo(*fit, "--checkpoint", tmp_path / "state", "--seed", "1", code=1)
        assert "belongs to another fit" in done.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4e9), ("500 MB", 5e8), ("1.5g", 1.5e9), ("64000000", 6.4e7), ("1e9", 1e9)],
)
def test_sizes_have_units(text, size):
    assert read_size(text) == size


def test_a_size_that_is_none_is_refused(sknimo, parquet):
    for wrong in ("much", "-3GB", "0"):
        done = sknimo(
            *["fit", parquet, "-t", "fall", f"--memory-budget={wrong}"], code=1
        )
        assert "such as 4GB" in done.stderr


def torchrun(*arguments, restarts=0):
    """Start two processes as a user would."""
    return subprocess.Popen(
        [
            *[sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"],
            *["--standalone", f"--max-restarts={restarts}", "-m", "sknimo"],
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def own_words(stderr):
    return [line for line in stderr.splitlines() if line.startswith("sknimo: error")]


@pytest.mark.slow
class TestTorchrun:
    def test_two_processes_fit_one_model(self, sknimo, parquet, patients, tmp_path):
        fit = ["fit", parquet, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        run = torchrun(*fit, "--model", tmp_path / "two.sknimo")
        sknimo(*fit, "--model", tmp_path / "one.sknimo")
        stdout, stderr = run.communicate(timeout=120)
        assert run.returncode == 0, stderr
        # One process speaks.
        assert stdout.count("Fitted 120 rows") == stdout.count("Model saved") == 1
        assert stderr.count("gaussian family") == 1
        files = tmp_path / "one.sknimo", tmp_path / "two.sknimo"
        assert same_predictions(*files, patients.select(FEATURES))

    @pytest.mark.slow
    def test_a_fault_in_one_share_is_told_once(self, patients, tmp_path):
        table = patients.select([*FEATURES, "fall"])
        dose = table["dose"].to_numpy().copy()
        dose[101] = np.inf
        table = table.set_column(1, "dose", pa.array(dose))
        pa_parquet.write_table(table, tmp_path / "t.parquet")
        run = torchrun("fit", tmp_path / "t.parquet", "-t", "fall", *FIT)
        _, stderr = run.communicate(timeout=120)
        assert run.returncode != 0
        (told,) = own_words(stderr)
        assert "'dose'" in told and "row 102" in told

    @pytest.mark.slow
    def test_text_is_shared_out_as_well(self, sknimo, patients, tmp_path):
        data = Path(__file__).with_name("patients.csv")
        fit = ["fit", data, "-t", "fall", OTHERS, "--drop=relapse", *FIT]
        run = torchrun(*fit, "--model", tmp_path / "two.sknimo")
        sknimo(*fit, "--model", tmp_path / "one.sknimo")
        assert run.communicate(timeout=120) and run.returncode == 0
        files = tmp_path / "one.sknimo", tmp_path / "two.sknimo"
        assert same_predictions(*files, patients.select(FEATURES))

    @pytest.mark.slow
    @pytest.mark.parametrize("restarts", [0, 1])
    def test_a_killed_process_ends_the_job_or_starts_it_again(
        self, patients, tmp_path, restarts
    ):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2000, 5))
        y = X[:, 0] * (1 + X[:, 1]) + 0.1 * rng.normal(size=2000)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(5)}, "y": y})
        pa_parquet.write_table(table, tmp_path / "t.parquet")
        fit = ["fit", tmp_path / "t.parquet", "-t", "y", "--fixed", "--device=cpu"]
        fit += ["--set", "max_iter=600", "--set", "tol=0", "--set", "patience=1000"]
        run = torchrun(
            *[*fit, "--model", tmp_path / "m.sknimo"],
            *["--checkpoint", tmp_path / "state"],
            restarts=restarts,
        )
        deadline = time.monotonic() + 60
        while not (tmp_path / "state").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        # The launcher looks ten times a second and ends the other process, on a busy
        # machine before that has spoken: it looks again when the other has ended.
        first, second = sorted(children(run.pid))
        os.kill(run.pid, signal.SIGSTOP)
        os.kill(second, signal.SIGKILL)
        while not has_ended(first) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(run.pid, signal.SIGCONT)
        _, stderr = run.communicate(timeout=300)
        if restarts == 0:
            assert run.returncode != 0
            told = own_words(stderr)
            assert any("another process has ended" in t for t in told), stderr
            assert not (tmp_path / "m.sknimo").exists()
            return
        assert run.returncode == 0, stderr
        whole = torchrun(*fit, "--model", tmp_path / "whole.sknimo")
        assert whole.communicate(timeout=300) and whole.returncode == 0
        X = table.drop_columns("y")
        resumed, at_once = (
            library.load(tmp_path / f"{name}.sknimo").predict(X)
            for name in ("m", "whole")
        )
        assert np.array_equal(resumed, at_once)


def children(pid):
    """Processes that a process has started."""
    out = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(word) for word in out.stdout.split()]


def has_ended(pid):
    """Whether a process has ended that its parent has not asked for yet."""
    out = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    )
    return out.stdout.startswith("Z")
