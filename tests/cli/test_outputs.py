"""Every way out, on a bad day: the old file or the new one, and nothing beside it.

Disks that are full, folders that go, two writers at once, kills at any line.
"""

import csv
import errno
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMORegressor, files

PATIENTS = Path(__file__).parent / "patients.csv"
OLD = b"as it was"
# Endings of the command's tables, with the command that writes them.
TABLES = {
    "predictions.csv": "predict",
    "predictions.csv.gz": "predict",
    "predictions.parquet": "predict",
    "explanations.tsv": "explain",
    "explanations.jsonl": "explain",
}
WAYS = ["model.sknimo", "model.onnx", "report.html", *TABLES]


@pytest.fixture(scope="session")
def report(regressor, patients):
    y = patients["fall"].to_numpy()
    return regressor.report(None, patients.select(regressor.feature_names_in_), y)


@pytest.fixture(params=WAYS)
def way(request, regressor, report, sknimo, model_file, tmp_path):
    """A function that writes to a path, and the path, which holds something already.

    It returns what it has to say of a failure.
    """
    path = tmp_path / "out" / request.param
    path.parent.mkdir()
    path.write_bytes(OLD)

    def write(code=0):
        command = TABLES.get(path.name)
        if command is not None:
            return sknimo(command, model_file, PATIENTS, "-o", path, code=code).stderr
        ways = {
            "model.sknimo": regressor.save,
            "model.onnx": regressor.to_onnx,
            "report.html": report.save,
        }
        if not code:
            return ways[path.name](path)
        with pytest.raises(OSError) as caught:
            ways[path.name](path)
        assert caught.value.filename == str(path)
        return str(caught.value)

    return write, path


@contextmanager
def short_files(n_bytes):
    """The system refuses to let any file grow beyond this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_may_not_grow_is_told_and_the_old_one_stays(way):
    write, path = way
    with short_files(64):
        told = write(code=1)
    assert str(path) in told and "nothing was written. Free some room" in told
    assert path.read_bytes() == OLD
    assert os.listdir(path.parent) == [path.name]
    write()
    assert path.read_bytes() != OLD


def test_a_disk_that_is_full_at_the_end_is_told_and_the_old_file_stays(
    way, monkeypatch
):
    def fail(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write, path = way
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        told = write(code=1)
    assert str(path) in told and "No space left on device" in told
    assert "Free some room" in told
    assert path.read_bytes() == OLD
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_goes_under_the_writer_is_named(way, monkeypatch):
    write, path = way
    monkeypatch.setattr(os, "fsync", lambda _: shutil.rmtree(path.parent))
    told = write(code=1)
    assert str(path) in told and "Make its folder first." in told
    assert ".tmp" not in told


def test_of_two_writers_the_last_one_wins(way):
    write, path = way
    write()
    whole = path.read_bytes()
    if path.name in TABLES:  # the command's output cannot be caught in threads
        twins = [lambda: files_write(path, whole)] * 2
    else:
        twins = [write, write]
    seen, done = set(), threading.Event()

    def watch():
        while not done.is_set():
            seen.add(path.read_bytes() == whole)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(3):
        threads = [threading.Thread(target=twin) for twin in twins]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    done.set()
    watcher.join()
    assert seen == {True}
    assert os.listdir(path.parent) == [path.name]


def files_write(path, content):
    with files.replace_file(path) as file:
        for begin in range(0, len(content), 100):
            file.write(content[begin : begin + 100])


@pytest.mark.parametrize("name", ["model.sknimo", "model.onnx", "report.html"])
def test_a_pipe_is_written_to_and_stays_one(name, regressor, report, tmp_path):
    path, got = tmp_path / name, []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    write = {"model.sknimo": regressor.save, "model.onnx": regressor.to_onnx}
    write.get(name, report.save)(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    reader.join(30)
    write.get(name, report.save)(tmp_path / "whole")
    assert got == [(tmp_path / "whole").read_bytes()]


def test_errors_of_the_input_are_not_blamed_on_the_output(tmp_path):
    path = tmp_path / "out"
    with pytest.raises(OSError) as caught, files.replace_file(path):
        raise OSError(errno.EIO, "of a disk that is read", "in")
    assert caught.value.filename == "in"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "remedy"), [("no/out", "Make its folder first."), (".", "Name a file")]
)
def test_paths_that_cannot_be_files_are_named(tmp_path, name, remedy):
    path = tmp_path / name
    with pytest.raises(OSError, match=remedy) as caught, files.replace_file(path):
        pytest.fail("nothing can be written")
    assert caught.value.filename == str(path)


def test_the_next_writer_clears_what_a_killed_one_left(tmp_path):
    stray = tmp_path / files.UNFINISHED.format("0" * files.HEX_DIGITS)
    stray.touch()
    with files.replace_file(tmp_path / "out") as file:
        file.write(b"new")
    assert os.listdir(tmp_path) == ["out"]


# Forks a child for every line of `files` that a way out runs, and kills it there.
KILLER = """
import json, os, signal, sys
import torch
from sknimo import files, load
from sknimo.cli._app import app
from sknimo.report import Report

torch.set_num_threads(1)
path, model, data, old = sys.argv[1:]
est, name = load(model), os.path.basename(path)
page = Report("<p>" * 100_000)

def write():
    if name == "model.sknimo":
        est.save(path)
    elif name == "model.onnx":
        est.to_onnx(path)
    elif name == "report.html":
        page.save(path)
    else:
        command = "predict" if name.startswith("pred") else "explain"
        app([command, model, data, "-o", path, "--quiet"], standalone_mode=False)

def restore():
    with open(path, "w") as file:
        file.write(old)

def die_at(line):
    count = 0
    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code.co_filename != files.__file__:
            return None
        count += event == "line"
        if count == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    write()
    os._exit(0)

write()
with open(path, "rb") as file:
    new = file.read()
found, killed, line = [], 0, 0
while True:
    line += 1
    restore()
    child = os.fork()
    if not child:
        die_at(line)
    status = os.waitpid(child, 0)[1]
    with open(path, "rb") as file:
        content = file.read()
    found.append("old" if content == old.encode() else "new" if content == new else "?")
    if status == 0:
        break
    killed += os.WTERMSIG(status) == signal.SIGKILL
write()
print(json.dumps([found, killed, os.listdir(os.path.dirname(path))]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one(
    name, model_file, tmp_path
):
    path = tmp_path / name
    done = subprocess.run(
        [sys.executable, "-c", KILLER, path, model_file, PATIENTS, OLD],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found, killed, left = json.loads(done.stdout)
    assert killed == len(found) - 1 > 20
    assert found == sorted(found, reverse=True)  # the old one first, then the new one
    assert set(found) == {"old", "new"}
    assert left == [name]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("output", [[], ["-o", "/dev/full"]])
def test_a_full_standard_output_is_told_in_one_line(model_file, output):
    command = [sys.executable, "-m", "sknimo", "predict", model_file, PATIENTS]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command, *output], stdout=full, stderr=subprocess.PIPE, check=False
        )
    told = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert len(told) == 1 and "No space left on device" in told[0]


# What a spreadsheet would run, or read as the begin of something to run.
ARMED = ["=1+1", "+x", "-x", "@SUM(A1)", "\tx", "\rx", "-1+1", "=cmd|' /C calc'!A0"]
HARMLESS = ["x=1", "-1.5e-3", "+7", "-.5", "'quoted", "", "a-b"]


@pytest.fixture
def armed_table(tmp_path):
    """A table of the patients' columns with a note whose name is armed, too."""
    path = tmp_path / "armed.parquet"
    n = len(ARMED + HARMLESS)
    columns = {"age": [50.0] * n, "dose": [-20.0] * n}
    columns |= {"sex": ["man"] * n, "ward": ["north"] * n, "=note": ARMED + HARMLESS}
    pa_parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_text_that_a_spreadsheet_would_run_is_written_as_text(
    sknimo, model_file, armed_table, tmp_path, kind
):
    out = tmp_path / f"out.{kind}"

    def written(*options):
        sknimo("predict", model_file, armed_table, "--keep-all", "-o", out, *options)
        with open(out, newline="") as file:
            return list(csv.reader(file, delimiter="," if kind == "csv" else "\t"))

    header, *rows = written()
    assert header == ["age", "dose", "sex", "ward", "'=note", "prediction"]
    assert [row[4] for row in rows] == [*(f"'{text}" for text in ARMED), *HARMLESS]
    assert {row[1] for row in rows} == {"-20"}  # numbers stay numbers
    raw_header, *raw_rows = written("--raw-text")
    assert raw_header[4] == "=note"
    assert [row[4] for row in raw_rows] == [*ARMED, *HARMLESS]
    assert [row[5] for row in raw_rows] == [row[5] for row in rows]


def test_levels_and_names_in_explanations_are_written_as_text(sknimo, tmp_path):
    frame = pd.DataFrame({"@age": [-1.0, 2, 3, 4] * 5, "sex": ["=a", "b"] * 10})
    y = np.arange(20.0) % 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = NIMORegressor(max_iter=0, random_state=0).fit(frame, y)
    est.save(tmp_path / "m.sknimo")
    frame.head(2).to_csv(tmp_path / "d.csv", index=False)
    arguments = [tmp_path / "m.sknimo", tmp_path / "d.csv", "--long"]
    lines = sknimo("explain", *arguments).stdout.splitlines()[1:]
    cells = [line.split(",")[1:3] for line in lines]
    assert cells[:2] == [["'@age", "-1"], ["sex", "'=a"]]
    lines = sknimo("explain", *arguments, "--raw-text").stdout.splitlines()[1:]
    assert [line.split(",")[1:3] for line in lines][1] == ["sex", "=a"]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_formats_that_no_spreadsheet_runs_keep_the_text(
    sknimo, model_file, armed_table, tmp_path, kind
):
    out = tmp_path / f"out.{kind}"
    sknimo("predict", model_file, armed_table, "--keep", "=note", "-o", out)
    if kind == "parquet":
        notes = pa_parquet.read_table(out)["=note"].to_pylist()
    else:
        notes = [json.loads(line)["=note"] for line in out.read_text().splitlines()]
    assert notes == ARMED + HARMLESS


@pytest.mark.parametrize(("name", "begins"), [("m.sql", "-- "), ("m.md", "# Score")])
def test_an_export_is_what_its_ending_says(sknimo, patients, tmp_path, name, begins):
    est = NIMORegressor(max_iter=0).fit(
        patients.select(["age", "sex"]), patients["fall"]
    )
    est.save(tmp_path / "m.sknimo")
    sknimo("export", tmp_path / "m.sknimo", "-o", tmp_path / name)
    assert (tmp_path / name).read_text().startswith(begins)


def test_an_export_of_unknown_kind_or_a_network_is_refused(
    sknimo, model_file, tmp_path
):
    told = sknimo("export", model_file, "-o", tmp_path / "m.pkl", code=1).stderr
    assert "names no export. Use .onnx, .sql" in told
    args = ["export", model_file, "-o", tmp_path / "m.sql"]
    assert "approximate it: name rows with --data FILE." in sknimo(*args, code=1).stderr
    told = sknimo("export", model_file, "-o", tmp_path / "m.md", code=1).stderr
    assert "fit an additive model (--set max_iter=0)" in told
    told = sknimo(*args, "--data", PATIENTS).stdout
    assert "Approximates a network by curves: R2 of" in told
    told = sknimo(*args, "--format", "onnx", code=1).stderr
    assert "ending of another format" in told
