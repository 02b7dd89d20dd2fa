"""`sknimo fit` does what the estimators do, told by options."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV, load
from sknimo.cli._propose import propose_family

PATIENTS = Path(__file__).parent / "patients.csv"
FEATURES = ["age", "dose", "sex", "ward"]
SETTINGS = {"alpha": 0.01, "max_iter": 40, "random_state": 0}
FIXED = ["--fixed", "--set", "alpha=0.01", "--set", "max_iter=40"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_the_saved_model_is_the_estimator_with_these_settings(
    sknimo, regressor, tmp_path
):
    path = tmp_path / "m.sknimo"
    drop = ["--drop", "days,visits", "--drop", "relapse"]
    done = sknimo("fit", PATIENTS, "-t", "fall", *drop, *FIXED, "--model", path)
    est = load(path)
    assert type(est) is NIMORegressor
    assert est.coef_names_.tolist() == regressor.coef_names_.tolist()
    np.testing.assert_array_equal(est.coef_, regressor.coef_)
    assert "at the reference" in done.stdout
    assert f"Model saved to {path}" in done.stdout
    assert "gaussian family, as column 'fall' suggests" in done.stderr


def test_without_fixed_penalties_are_found(sknimo, patients, tmp_path):
    path = tmp_path / "m.sknimo"
    sknimo(
        *("fit", PATIENTS, "-t", "fall", "--drop", "days,visits,relapse,ward,sex"),
        *("--set", "n_starts=1", "--set", "max_iter=15", "--seed", "3", "-m", path),
    )
    est = NIMORegressorCV(n_starts=1, max_iter=15, random_state=3)
    est.fit(patients.select(["age", "dose"]), patients["fall"])
    np.testing.assert_array_equal(load(path).coef_, est.coef_)


def test_weight_and_offset_are_columns_and_no_features(sknimo, patients, tmp_path):
    path = tmp_path / "m.sknimo"
    sknimo(
        *("fit", PATIENTS, "--target", "visits", "--family", "poisson"),
        *("--weight", "days", "--offset", "dose", "--drop", "fall,relapse,ward"),
        *FIXED,
        *("--model", path),
    )
    est = NIMORegressor("poisson", **SETTINGS).fit(
        patients.select(["age", "sex"]),
        patients["visits"],
        sample_weight=patients["days"],
        offset=patients["dose"],
    )
    assert load(path).feature_names_in_.tolist() == ["age", "sex"]
    np.testing.assert_array_equal(load(path).coef_, est.coef_)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["yes", "no"], ["no", "yes"]),
        (["1", "0"], [0, 1]),
        (["2.5", "0.5"], ["0.5", "2.5"]),
        (["true", "false"], [False, True]),
    ],
)
def test_two_values_or_texts_make_a_classifier(sknimo, tmp_path, values, classes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    hit = (x + 0.5 * rng.normal(size=60) < 0).astype(int)
    lines = [f"{a:.3f},{values[k]}" for a, k in zip(x, hit, strict=True)]
    data, path = tmp_path / "d.csv", tmp_path / "m.sknimo"
    data.write_text("\n".join(["x,y", *lines]))
    done = sknimo("fit", data, "-t", "y", *FIXED, "-m", path)
    est = load(path)
    assert type(est) is NIMOClassifier
    assert est.classes_.tolist() == classes
    assert "binomial family" in done.stderr


def test_a_family_that_is_given_is_taken(sknimo, tmp_path):
    path = tmp_path / "m.sknimo"
    args = ["--drop", "fall,relapse,ward,days", "--family", "gaussian", *FIXED]
    done = sknimo("fit", PATIENTS, "-t", "visits", *args, "-m", path)
    assert load(path).family == "gaussian"
    assert "family" not in done.stderr


def test_numbers_can_be_declared_categories(sknimo, patients, tmp_path):
    path = tmp_path / "m.sknimo"
    drop = ["--drop", "days,relapse,ward,sex,age"]
    sknimo(
        *("fit", PATIENTS, "-t", "fall", "--categorical", "visits", *drop, *FIXED),
        *("-m", path),
    )
    levels = sorted(set(patients["visits"].to_pylist()))
    assert load(path).model_.features.levels(1) == tuple(levels)


def test_rows_with_missing_cells_can_be_left_out(sknimo, patients, tmp_path):
    text = PATIENTS.read_text().splitlines()
    text[3] = text[3].replace("21,", ",", 1)
    text[5] = text[5].rpartition(",")[0] + ","
    data, path = tmp_path / "d.csv", tmp_path / "m.sknimo"
    data.write_text("\n".join(text))
    drop = ["--drop", "days,visits,relapse"]
    done = sknimo(
        *("fit", data, "-t", "fall", "--drop-missing", *drop, *FIXED, "-m", path)
    )
    assert "left out 2 rows" in done.stderr
    kept = np.delete(np.arange(len(patients)), [2, 4])
    est = NIMORegressor(**SETTINGS)
    est.fit(patients.select(FEATURES).take(kept), patients["fall"].take(kept))
    np.testing.assert_array_equal(load(path).coef_, est.coef_)


@pytest.mark.slow
def test_missing_cells_can_have_a_coefficient(sknimo, tmp_path):
    text = PATIENTS.read_text().splitlines()
    text[3] = text[3].replace("21,", ",", 1)
    data, path = tmp_path / "d.csv", tmp_path / "m.sknimo"
    data.write_text("\n".join(text))
    args = ["--missing", "indicator", "--drop", "days,visits,relapse"]
    sknimo("fit", data, "-t", "fall", *args, *FIXED, "-m", path)
    assert "age[missing]" in load(path).coef_names_


def test_held_out_rows_judge_the_model(sknimo, patients):
    args = ["--drop", "days,visits,relapse", *FIXED, "--test", "0.25", "--seed", "1"]
    told = json.loads(sknimo("fit", PATIENTS, "-t", "fall", *args, "--json").stdout)
    order = np.random.default_rng(1).permutation(len(patients))
    test, train = np.sort(order[:30]), np.sort(order[30:])
    X, y = patients.select(FEATURES), patients["fall"].to_numpy()
    est = NIMORegressor(**{**SETTINGS, "random_state": 1}).fit(X.take(train), y[train])
    error = y[test] - est.predict(X.take(test))
    found = told["held_out"]
    assert found["root_mean_squared_error"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert found["deviance_explained"] == pytest.approx(
        est.score(X.take(test), y[test])
    )
    assert told["rows_fitted"] == 90


def test_a_classifier_is_judged_by_accuracy_and_log_loss(sknimo):
    args = ["--drop", "days,visits,fall", *FIXED, "--test", "0.25", "--json"]
    told = json.loads(sknimo("fit", PATIENTS, "-t", "relapse", *args).stdout)
    assert 0.4 < told["held_out"]["accuracy"] <= 1
    assert 0 < told["held_out"]["log_loss"] < 1.5
    assert told["classes"] == ["no", "yes"]


def test_json_has_the_coefficients_and_nothing_else_is_printed(sknimo, regressor):
    args = ["--drop", "days,visits,relapse", *FIXED, "--json", "--quiet"]
    done = sknimo("fit", PATIENTS, "-t", "fall", *args)
    told = json.loads(done.stdout)
    wanted = dict(zip(regressor.coef_names_, regressor.coef_.tolist(), strict=True))
    assert told["coefficients"] == wanted
    assert told["model_file"] is None
    ward = told["features"][3]
    assert ward["kind"] == "category"
    assert ward["levels"] == ["east", "north", "south, old"]


def test_a_report_is_written_on_request(sknimo, tmp_path):
    path = tmp_path / "r.html"
    args = ["--drop", "days,visits,relapse", *FIXED, "--test", "0.2", "-r", path]
    done = sknimo("fit", PATIENTS, "-t", "fall", *args)
    assert path.read_text().lower().startswith("<!doctype html>")
    assert "fall" in path.read_text()
    assert f"Report written to {path}" in done.stdout


@pytest.mark.parametrize("name", ["d.parquet", "d.csv.gz", "d.tsv", "d.txt"])
def test_every_format_gives_the_same_fit(sknimo, patients, regressor, tmp_path, name):
    data, path = tmp_path / name, tmp_path / "m.sknimo"
    table = patients.select([*FEATURES, "fall"])
    if name == "d.parquet":
        pa_parquet.write_table(table, data)
    elif name == "d.csv.gz":
        with pa.output_stream(data) as file:  # compressed, as the ending says
            pa_csv.write_csv(table, file)
    else:
        delimiter = "\t" if name == "d.tsv" else ";"
        pa_csv.write_csv(table, data, pa_csv.WriteOptions(delimiter=delimiter))
    sknimo("fit", data, "-t", "fall", *FIXED, "-m", path)
    np.testing.assert_array_equal(load(path).coef_, regressor.coef_)


def test_a_table_can_come_from_standard_input(sknimo, regressor, tmp_path):
    path = tmp_path / "m.sknimo"
    args = ["--drop", "days,visits,relapse", *FIXED, "-m", path]
    sknimo("fit", "-", "-t", "fall", *args, given=PATIENTS.read_bytes())
    np.testing.assert_array_equal(load(path).coef_, regressor.coef_)


def test_warnings_are_lines_without_code(sknimo, tmp_path):
    data = tmp_path / "d.csv"
    lines = PATIENTS.read_text().splitlines()
    data.write_text(
        "\n".join(["one," + lines[0], *("1," + line for line in lines[1:])])
    )
    args = ["--drop", "days,visits,relapse", "-q", *FIXED]
    done = sknimo("fit", data, "-t", "fall", *args)
    told = [line for line in done.stderr.splitlines() if "one" in line]
    assert len(told) == 1 and told[0].startswith("sknimo: warning: Constant column")


def test_counts_are_pointed_out(sknimo):
    drop = ["--drop", "days,fall,relapse,ward", *FIXED]
    told = sknimo("fit", PATIENTS, "-t", "visits", *drop).stderr
    assert "--family poisson fits them: its variance" in told
    quiet = sknimo("fit", PATIENTS, "-t", "visits", *drop, "--family", "gaussian")
    assert "poisson" not in quiet.stderr


@pytest.mark.parametrize(
    ("values", "family", "why"),
    [
        ([0, 0, 1, 9, 30, 2, 0, 4], "negative_binomial", "far above its mean, 5.75"),
        ([0, 1, 2, 3, 2, 1, 0, 1], "poisson", "is near its mean, 1.25"),
        ([0, 1.5, 0, 20.25, 3, 0, 0.1, 2], "tweedie", "38% of its amounts are exactly"),
        ([0.5, 1, 1.2, 30, 0.7, 2, 0.1, 9], "gamma", "far above the median, 1.1"),
        ([-1, 0, 1, 5, 30, 2], None, ""),
        ([41, 52, 63, 90, 44, 41], None, ""),
        ([1.5, 1.7, 1.9, 2.0, 1.6], None, ""),
        ([np.nan, np.nan], None, ""),
    ],
)
def test_a_family_is_proposed_with_the_reason(values, family, why):
    told = propose_family(np.array(values, dtype=float), "cost")
    assert (told is None) == (family is None)
    if family is not None:
        assert told.startswith("column 'cost' holds ")
        assert f"--family {family} fits them" in told and why in told


@pytest.mark.parametrize("given", ["--family", "--set"])
def test_counts_are_fitted_as_counts(sknimo, tmp_path, given):
    path = tmp_path / "m.sknimo"
    family = {"--family": "negative_binomial", "--set": "family=tweedie(1.5)"}[given]
    args = ["--drop", "days,fall,relapse,ward", *FIXED, "--model", path, "--json"]
    done = sknimo("fit", PATIENTS, "-t", "visits", *args, given, family)
    told = json.loads(done.stdout)["family"]
    assert told == load(path).model_.family.spelling
    assert told.startswith(family.removeprefix("family=").partition("(")[0])
    assert "suggests" not in done.stderr
