"""The accuracy benchmark runs, resumes and prints its table."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCRIPT.exists(), reason="not part of a source distribution"),
]


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_run_adds_nothing_and_the_table_shows_every_rival(tmp_path):
    path = tmp_path / "out.csv"
    arguments = ["--tasks", "setting4,class1", "--rivals", "lasso,sknimo-glm"]
    arguments += ["--quick", "--n-jobs", 1, "--csv", path]
    first = run(*arguments)
    written = path.read_text()
    assert "setting4" in first
    run(*arguments)
    assert path.read_text() == written
    rows = list(csv.DictReader(written.splitlines()))
    assert [(row["task"], row["rival"]) for row in rows] == [
        ("setting4", "lasso"),
        ("setting4", "sknimo-glm"),
        ("class1", "lasso"),
        ("class1", "sknimo-glm"),
    ]
    # A linear setting with noise of variance 0.01, which linear methods all but reach.
    assert all(float(row["value"]) < 0.02 for row in rows[:2])
    table = run("--table", path)
    assert "| sknimo-glm |" in table and "| lasso |" in table


def test_names_of_tasks_may_be_ranges(tmp_path):
    path = tmp_path / "out.csv"
    run("--tasks", "class1..class2", "--rivals", "lasso", "--quick", "--csv", path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["task"] for row in rows] == ["class1", "class2"]
