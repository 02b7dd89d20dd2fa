"""The comparison on real tables reads, splits, judges, resumes and writes its page."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="not part of a source distribution"
)


@pytest.fixture
def real(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import real_tables

    return real_tables


@pytest.fixture
def tables(tmp_path):
    """Two tables to fit and three to be left out."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": rng.normal(size=90), "level": rng.choice(["p", "q", "r"], 90)}
    )
    line = X["a"] + (X["level"] == "p")
    targets = {
        "amounts": line + 0.1 * rng.normal(size=90),
        "visits": rng.poisson(np.exp(line)),
        "classes": np.where(line > 0, "yes", "no"),
        "kinds": rng.choice(["x", "y", "z"], 90),
    }
    for name, target in targets.items():
        X.assign(target=target).to_csv(tmp_path / f"{name}.csv.gz", index=False)
    lives = X.assign(event=1, target=1.0)
    lives.to_csv(tmp_path / "lives.csv.gz", index=False)
    copied = (tmp_path / "amounts.csv.gz").read_bytes()
    (tmp_path / "copied.csv.gz").write_bytes(copied)
    return tmp_path


def call(real, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["real_tables.py", *map(str, arguments)])
    return real.parse_options()


def test_targets_decide_the_loss_and_misfits_are_named(
    real, tables, monkeypatch, capsys
):
    options = call(real, monkeypatch, "--data", tables, "--counts", "visits")
    found = {table.name: table for table in real.read_tables(options)}
    assert {name: table.figure for name, table in found.items()} == {
        "amounts": "mse",
        "visits": "deviance",
        "classes": "log loss",
    }
    labels = pd.read_csv(tables / "classes.csv.gz")["target"]
    assert np.array_equal(found["classes"].y, labels == "yes")
    assert found["amounts"].X["level"].dtype == "category"
    said = capsys.readouterr().out
    for words in ("kinds: 3 classes", "lives: survival", "copied: a copy of amounts"):
        assert f"left out: {words}" in said


@pytest.mark.parametrize(
    ("figure", "predicted", "expected"),
    [
        ("mse", [0.5, 0.5], 0.25),
        ("log loss", [0.25, 0.25], -(np.log(0.75) + np.log(0.25)) / 2),
        ("deviance", [1.0, 2.0], 2 * (1 + (np.log(0.5) + 1)) / 2),
    ],
)
def test_losses_are_those_of_the_textbook(real, figure, predicted, expected):
    y = np.array([0, 1])
    assert real.loss(figure, y, np.array(predicted)) == pytest.approx(expected)


def test_a_split_is_stratified_and_holds_out_three_in_ten(real):
    y = np.arange(200) % 4 == 0
    table = real.Table("t", pd.DataFrame({"a": np.arange(200.0)}), y * 1, "log loss")
    task = real.split(table, 1)
    assert (len(task.rows.y), len(task.y_test)) == (140, 60)
    assert task.y_test.mean() == task.rows.y.mean() == 0.25
    assert set(task.X_test["a"]).isdisjoint(task.rows.X["a"])
    assert task.rows.n_held_out == 28


def test_known_fits_are_not_done_again(real, tables, monkeypatch, capsys):
    path = tables / "out.csv"
    arguments = ["--data", tables, "--methods", "linear", "--counts", "visits"]
    arguments += ["--csv", path, "--seeds", "0", "--threads", "1"]
    options = call(real, monkeypatch, *arguments)
    monkeypatch.setattr("torch.set_num_threads", lambda n: None)
    first = real.run(options)
    written = path.read_text()
    assert {result.task for result in first} == {"amounts", "visits", "classes"}
    amounts = next(result for result in first if result.task == "amounts")
    assert amounts.value < 0.02  # the noise of a line has variance 0.01
    again = real.run(options)
    assert path.read_text() == written
    assert [result.key for result in again] == [result.key for result in first]


def test_ratios_are_to_the_best_rival_on_splits_that_all_have(real, tmp_path):
    def result(task, rival, seed, value, n_fit=70):
        return real.Result(task, rival, seed, n_fit, 30, "mse", value, 1.0, 1, "source")

    lines = list(
        real.make_lines(
            [
                result("t", "sknimo", 0, 2.0),
                result("t", "sknimo", 1, 9.0),  # no rival has this split
                result("t", "linear", 0, 4.0),
                result("t", "ebm", 0, 1.0),
                result("u", "sknimo", 0, 1.0, n_fit=6_000),
                result("u", "linear", 0, 8.0, n_fit=6_000),
                result("v", "sknimo", 0, 1.0),  # nothing to compare with
            ]
        )
    )
    assert [(line.name, line.best_rival, line.ratio()) for line in lines] == [
        ("t", "ebm", 2.0),
        ("u", "linear", 0.125),
    ]
    texts = real.summarise(lines)
    assert [text.split(":")[0] for text in texts] == [
        "all tables (2)",
        "under 5,000 rows (1)",
        "4,000 rows and more (1)",
    ]
    assert "0.500 times that of the best rival" in texts[0]  # sqrt(2 / 8)
    page = tmp_path / "page.md"
    marks = "before\n<!-- real tables -->\nold\n<!-- end of real tables -->\nafter\n"
    page.write_text(marks)
    real.write_page(page, lines)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n")
    assert (
        "old" not in text and "| u | 6,030 | 1 | mse | 1.00 |  | 8.00 | 0.125 |" in text
    )
    assert (tmp_path / real.PICTURE).stat().st_size > 0
