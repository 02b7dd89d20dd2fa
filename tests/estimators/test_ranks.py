"""Rows shared out to processes: every rank ends with the model of one process.

Processes take seconds to start: two of them fit everything that is compared here.
"""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sknimo.datasets import make_nimo_classification

SHARDS = str(Path(__file__).with_name("shards.py"))
# Blocks and ranks change the order of sums alone; some networks have single precision.
ATOL = 1e-6
SINGLE_ATOL = 1e-4
PLAIN = {"max_iter": 25, "random_state": 0, "hidden": (5, 4)}
SEARCH = {
    "batch_size": 64,
    "max_iter": 2,
    "hidden": (3, 3),
    "cv": 3,
    "random_state": 0,
}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def run_ranks(*folders):
    """Fit with two processes; what each of them found, folder by folder."""
    ranks = [
        subprocess.Popen(
            [sys.executable, SHARDS, str(rank), "2", *map(str, folders)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks), "\n".join(errors)
    return {
        folder.name: [dict(np.load(folder / f"{rank}-of-2.npz")) for rank in range(2)]
        for folder in folders
    }


def fit_alone(folder):
    """What this process finds."""
    runpy.run_path(SHARDS)["fit_all"](folder, 0, 1)
    return dict(np.load(folder / "0-of-1.npz"))


def write_tasks(folder, frame, tasks):
    folder.mkdir(exist_ok=True)
    frame.to_pickle(folder / "table.pkl")
    (folder / "task.json").write_text(json.dumps(tasks))


def write_fits(folder):
    """Sorted by site: shards know different levels, and two sites are on one rank."""
    rng = np.random.default_rng(0)
    n_rows = 330
    frame = pd.DataFrame(
        {
            "age": rng.normal(54, 12, n_rows),
            "site": rng.choice(["Bern", "Basel", "Thun"], n_rows, p=[0.2, 0.5, 0.3]),
            "bmi": rng.lognormal(3.2, 0.2, n_rows),
            "zip": rng.choice([8001, 3000], n_rows),
            "smoker": rng.random(n_rows) < 0.3,
        }
    )
    eta = 0.05 * (frame["age"] - 54) * (1 + 0.6 * frame["smoker"])
    eta += (frame["site"] == "Bern") + 0.02 * (frame["bmi"] - 25) ** 2
    frame["w"] = rng.integers(0, 3, n_rows).astype(float)
    frame["o"] = 0.3 * rng.normal(size=n_rows)
    frame["y"] = eta + frame["o"] + 0.3 * rng.normal(size=n_rows)
    frame.loc[rng.random(n_rows) < 0.15, "bmi"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "site"] = None
    gaps = {**PLAIN, "missing": "indicator", "categorical": ["zip"]}
    tasks = {
        "uneven": {"params": {**gaps, "basis": {"bmi": "spline"}}, "cuts": [0, 30]},
        "noise": {"params": {**gaps, "noise": 0.1, "early_stopping": True}},
        "batches": {"params": {**gaps, "batch_size": 64}},
        "single": {"params": {**gaps, "dtype": "float32"}},
        "empty": {"params": gaps, "cuts": [0, n_rows]},
        "error": {"params": {**PLAIN, "missing": "error"}, "error": True},
    }
    for task in tasks.values():
        task["classifier"] = False
        task["cuts"] = [*task.get("cuts", [0, 200]), n_rows]
    write_tasks(folder, frame.sort_values("site", ignore_index=True), tasks)


def write_searches(folder):
    """Sorted by site: the ranks know different levels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) + 0.5 * X[:, 2]
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["o"] = np.sort(0.1 * rng.normal(size=300))
    frame["y"] = eta + frame["o"] + 0.1 * rng.normal(size=300)
    frame["site"] = np.sort(rng.choice(["Bern", "Basel", "Thun"], 300))
    frame["w"] = rng.integers(0, 3, 300).astype(float)
    common = {"search": True, "classifier": False, "params": SEARCH}
    state = {"params": {**SEARCH, "checkpoint": str(folder / "state")}}
    kept = common | state | {"cuts": [0, 40, 300]}
    tasks = {
        "first": kept,
        "resumed": kept,
        "empty": {**common, "cuts": [0, 300, 300]},
    }
    write_tasks(folder, frame, tasks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(folder):
    """What two ranks find, `found["fits"][rank]["uneven.coef"]`."""
    write_fits(folder / "fits")
    write_searches(folder / "searches")
    return run_ranks(folder / "fits", folder / "searches")


@pytest.mark.slow
def test_fits_of_two_ranks_equal_those_of_one_process(found, folder):
    one, two = fit_alone(folder / "fits"), found["fits"]
    names = {name.split(".")[0] for name in one} - {"error"}
    assert len(names) == 5
    for name in names:
        atol = SINGLE_ATOL if name == "single" else ATOL
        for rank in two:
            terms = rank[f"{name}.names"].tolist()
            assert {"site[Thun]", "site[Bern]"} <= set(terms)
            assert terms == one[f"{name}.names"].tolist()
            for figure in ("coef", "prediction", "deviances", "levels"):
                ours, theirs = rank[f"{name}.{figure}"], one[f"{name}.{figure}"]
                rel = 1e-6 if figure == "deviances" else 0
                assert ours == pytest.approx(theirs, abs=atol, rel=rel), name
        assert np.array_equal(*(rank[f"{name}.coef"] for rank in two))


@pytest.mark.slow
def test_every_rank_refuses_what_one_of_them_has_read(found):
    texts = {str(rank["error.error"]) for rank in found["fits"]}
    assert len(texts) == 1
    assert "missing value" in texts.pop()


@pytest.mark.slow
def test_searches_of_two_ranks_equal_those_of_one_process(found, folder):
    shutil.rmtree(folder / "searches" / "state")  # belongs to these shards
    one, two = fit_alone(folder / "searches"), found["searches"]
    for name in ("first", "resumed", "empty"):
        for rank in two:
            assert rank[f"{name}.names"].tolist() == one[f"{name}.names"].tolist()
            for figure in ("coef", "prediction", "losses", "chosen", "deviances"):
                ours, theirs = rank[f"{name}.{figure}"], one[f"{name}.{figure}"]
                rel = 1e-5 if figure == "deviances" else 0
                assert ours == pytest.approx(theirs, abs=ATOL, rel=rel), (name, figure)
        assert np.array_equal(*(rank[f"{name}.coef"] for rank in two))
    for rank in two:
        assert np.array_equal(rank["first.prediction"], rank["resumed.prediction"])


@pytest.mark.slow
def test_two_ranks_search_for_classes(tmp_path):
    data = make_nimo_classification(setting=1, n_samples=400, random_state=0)
    frame = pd.DataFrame(data.X, columns=[f"x{j}" for j in range(data.X.shape[1])])
    frame["y"], frame["o"], frame["w"] = data.y, 0.0, 1.0
    params = {**SEARCH, "max_iter": 4, "hidden": (6, 5)}
    task = {"search": True, "classifier": True, "params": params, "cuts": [0, 90, 400]}
    write_tasks(tmp_path, frame, {"classes": task})
    one = fit_alone(tmp_path)
    for rank in run_ranks(tmp_path)[tmp_path.name]:
        for figure in ("coef", "prediction", "losses", "chosen"):
            name = f"classes.{figure}"
            assert rank[name] == pytest.approx(one[name], abs=ATOL), figure
