"""Survival at the command line: fit, predict, explain and report."""

import io
import re

import numpy as np
import pandas as pd
import pytest

from sknimo import load
from sknimo.datasets import make_nimo_survival

COLUMNS = list("abcdef")
FAST = ["--fixed", "--set", "max_iter=0", "--seed", "1"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    data = make_nimo_survival(n_samples=100, random_state=0)
    frame = pd.DataFrame(data.X, columns=COLUMNS)
    frame["weeks"], frame["died"] = data.y[:, 0], data.y[:, 1] == 1
    frame["clinic"] = ["x", "y"] * 50
    path = tmp_path_factory.mktemp("survival") / "data.csv"
    frame.to_csv(path, index=False)
    return path, frame


def test_fit_predict_explain_and_report(sknimo, table, tmp_path):
    path, frame = table
    model, page = tmp_path / "m.sknimo", tmp_path / "r.html"
    told = ["--time", "weeks", "--event", "died"]
    options = [*told, "--drop", "clinic", *FAST, "--test", "0.3", "-m", model]
    done = sknimo("fit", path, *options)
    assert "concordance" in done.stdout
    est, X = load(model), frame[COLUMNS]
    out = pd.read_csv(io.StringIO(sknimo("predict", model, path, "--at", "1").stdout))
    np.testing.assert_allclose(out["prediction"], est.predict(X))
    np.testing.assert_allclose(out["median_time"], est.predict_median(X))
    alive = est.predict_survival_function(X, times=[1.0]).values[:, 0]
    np.testing.assert_allclose(out["survival_1"], alive)
    parts = pd.read_csv(io.StringIO(sknimo("explain", model, path).stdout))
    np.testing.assert_allclose(parts["prediction"], est.predict(X))
    sknimo("report", model, path, *told, "-o", page)
    assert "Kaplan-Meier" in page.read_text()


def test_intervals_are_those_of_the_time(sknimo, table, tmp_path):
    path, frame = table
    model = tmp_path / "m.sknimo"
    told = ["--time", "weeks", "--event", "died", "--drop", "clinic"]
    sknimo("fit", path, *told, *FAST, "-m", model)
    done = sknimo("predict", model, path, "--interval", "0.8")
    out = pd.read_csv(io.StringIO(done.stdout))
    truth = load(model).predict_interval(frame[COLUMNS], level=0.8)
    np.testing.assert_allclose(out["median_time"], truth.prediction)
    np.testing.assert_allclose(out["lower_time"], truth.lower)
    np.testing.assert_allclose(out["upper_time"], truth.upper)


def test_times_that_need_strata_are_refused(sknimo, table, tmp_path):
    path, _ = table
    model = tmp_path / "m.sknimo"
    told = ["--time", "weeks", "--event", "died", "--strata", "clinic"]
    sknimo("fit", path, *told, *FAST, "-m", model)
    for option, value in (("--at", "1"), ("--interval", "0.8")):
        done = sknimo("predict", model, path, option, value, code=1)
        assert f"depends on them; leave {option}" in done.stderr


def test_strata_are_no_feature(sknimo, table, tmp_path):
    path, _ = table
    model = tmp_path / "m.sknimo"
    told = ["--time", "weeks", "--event", "died", "--strata", "clinic"]
    sknimo("fit", path, *told, *FAST, "-m", model)
    est = load(model)
    assert est.baseline_.labels == ("x", "y")
    assert list(est.feature_names_in_) == COLUMNS


def test_a_row_without_a_stratum_can_be_left_out(sknimo, table, tmp_path):
    path, frame = table
    data, model = tmp_path / "d.csv", tmp_path / "m.sknimo"
    with_gap = pd.read_csv(path)
    with_gap.loc[3, "clinic"] = None
    with_gap.to_csv(data, index=False)
    told = ["--time", "weeks", "--event", "died", "--strata", "clinic"]
    sknimo("fit", data, *told, *FAST, "-m", model, "--drop-missing")
    assert load(model).baseline_.labels == ("x", "y")


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ([], 2, "Name --target COLUMN"),
        (["--time", "weeks"], 1, "--time needs --event"),
        (["--target", "weeks", "--strata", "clinic"], 2, "Name --target COLUMN"),
        (["--time", "clinic", "--event", "died"], 1, "'clinic' holds string, not"),
        (["--time", "weeks", "--event", "a"], 1, "must be 1 .* or 0"),
    ],
)
def test_wrong_columns_are_refused(sknimo, table, options, code, text):
    done = sknimo("fit", table[0], *options, *FAST, code=code)
    assert re.search(text, done.stderr)
