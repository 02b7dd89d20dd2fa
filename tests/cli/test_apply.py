"""`predict`, `explain`, `report`, `info` and `export` do what the model does."""

import gzip
import io
import json
import re
from copy import copy
from pathlib import Path

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sknimo import NIMOClassifier, NIMORegressor, load
from sknimo import model as model_module
from sknimo.cli import _apply
from sknimo.cli._tables import TableReader

PATIENTS = Path(__file__).parent / "patients.csv"
FEATURES = ["age", "dose", "sex", "ward"]


def read_csv(data):
    return pa_csv.read_csv(io.BytesIO(data))


@pytest.fixture(scope="module")
def long_table():
    """More rows than one part, drawn around those of the patients."""
    rng, n = np.random.default_rng(0), 20_001
    return pa.table(
        {
            "sex": rng.choice(["man", "woman"], n),
            "age": rng.normal(50, 15, n),
            "extra": np.arange(n),
            "ward": rng.choice(["east", "north", "south, old"], n),
            "dose": rng.uniform(0, 40, n),
        }
    )


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "d.parquet"])
def test_predictions_in_parts_equal_those_of_the_whole_table(
    sknimo, model_file, regressor, long_table, tmp_path, name
):
    data, out = tmp_path / name, tmp_path / "out.parquet"
    if name == "d.parquet":
        pa_parquet.write_table(long_table, data, row_group_size=1500)
    else:
        with pa.output_stream(data) as file:
            pa_csv.write_csv(long_table, file)
    done = sknimo("predict", model_file, data, "-o", out)
    found = pa_parquet.read_table(out)["prediction"].to_numpy()
    np.testing.assert_array_equal(found, regressor.predict(long_table.select(FEATURES)))
    assert done.stderr == f"sknimo: 20001 predictions written to {out}.\n"


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(n_rows=st.integers(1, 150), block=st.integers(1, 40), rows=st.integers(1, 60))
def test_however_a_table_is_cut_predictions_are_the_same(
    regressor, long_table, n_rows, block, rows
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "BLOCK_ROWS", block)
        patch.setattr(_apply, "PART_ROWS", max(block, rows))
        X = long_table.select(FEATURES).slice(0, n_rows)
        parts = []
        for first in range(0, n_rows, size := _apply.part_rows(regressor)):
            parts.append(regressor.predict(X.slice(first, size)))
        np.testing.assert_array_equal(np.concatenate(parts), regressor.predict(X))


def test_parts_hold_every_row_once_and_in_order(regressor, long_table, tmp_path):
    data = tmp_path / "d.csv"
    pa_csv.write_csv(long_table, data)
    with TableReader(str(data)) as reader:
        columns = _apply.find_columns(regressor, reader)
        parts = list(_apply.read_parts(regressor, reader, columns, ["extra"]))
    seen = np.concatenate([part.table["extra"].to_numpy() for part in parts])
    np.testing.assert_array_equal(seen, np.arange(20_001))
    assert [part.first for part in parts] == [0, 8192, 16384]


def test_standard_input_to_standard_output(sknimo, model_file, regressor, patients):
    done = sknimo("predict", model_file, "-", given=PATIENTS.read_bytes())
    found = read_csv(done.stdout_bytes)
    assert found.column_names == ["prediction"]
    wanted = regressor.predict(patients.select(FEATURES))
    np.testing.assert_array_equal(found["prediction"].to_numpy(), wanted)
    assert done.stderr == ""


def test_a_classifier_writes_labels_and_chances(
    sknimo, classifier_file, classifier, patients
):
    done = sknimo("predict", classifier_file, PATIENTS)
    found = read_csv(done.stdout_bytes)
    X = patients.select(FEATURES)
    assert found["prediction"].to_pylist() == classifier.predict(X).tolist()
    chances = np.column_stack([found["probability_no"], found["probability_yes"]])
    np.testing.assert_array_equal(chances, classifier.predict_proba(X))


def test_predict_adds_intervals(
    sknimo, regressor, classifier, patients, model_file, tmp_path
):
    X, first = patients.select(FEATURES), []
    for est, target in ((regressor, "fall"), (classifier, "relapse")):
        twin = copy(est).calibrate_interval(X, patients[target].to_pylist())
        twin.save(tmp_path / "m.sknimo")
        done = sknimo("predict", tmp_path / "m.sknimo", PATIENTS, "--interval", "0.8")
        found = read_csv(done.stdout_bytes)
        truth = twin.predict_interval(X, level=0.8)
        name = "upper" if target == "fall" else found.column_names[-1]
        first.append(found.column_names)
        assert found[name].to_pylist() == truth.columns()[name].tolist()
    assert first[0] == ["prediction", "lower", "upper"]
    assert len(first[1]) == 5
    done = sknimo("predict", model_file, PATIENTS, "--interval", "0.8", code=1)
    assert "held none out. Fit without --fixed." in done.stderr


def test_columns_can_be_kept(sknimo, model_file, patients):
    done = sknimo("predict", model_file, PATIENTS, "--keep", "ward,relapse")
    found = read_csv(done.stdout_bytes)
    assert found.column_names == ["ward", "relapse", "prediction"]
    assert found["ward"].equals(patients["ward"])
    done = sknimo("predict", model_file, PATIENTS, "--keep-all")
    assert read_csv(done.stdout_bytes).column_names[:-1] == patients.column_names


def test_json_lines_are_the_same_numbers(sknimo, model_file, regressor, patients):
    done = sknimo("predict", model_file, PATIENTS, "--json", "--keep", "age")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = regressor.predict(patients.select(FEATURES))
    assert [row["prediction"] for row in rows] == wanted.tolist()
    assert rows[0].keys() == {"age", "prediction"}


def test_an_offset_column_is_added(sknimo, model_file, patients, regressor):
    done = sknimo("predict", model_file, PATIENTS, "--offset", "days")
    found = read_csv(done.stdout_bytes)["prediction"].to_numpy()
    X, days = patients.select(FEATURES), patients["days"].to_numpy()
    np.testing.assert_array_equal(found, regressor.predict(X, days))


def test_a_model_without_names_takes_columns_by_position(sknimo, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    est = NIMORegressor(max_iter=0).fit(X, X[:, 0] + 0.1 * rng.normal(size=40))
    est.save(tmp_path / "m.sknimo")
    pa_csv.write_csv(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "d.csv")
    done = sknimo("predict", tmp_path / "m.sknimo", tmp_path / "d.csv")
    found = read_csv(done.stdout_bytes)["prediction"].to_numpy()
    np.testing.assert_array_equal(found, est.predict(X))


def test_truth_values_are_read_as_in_training(sknimo, tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=40), "on": rng.random(40) < 0.5})
    est = NIMORegressor(max_iter=0).fit(table, rng.normal(size=40))
    est.save(tmp_path / "m.sknimo")
    pa_csv.write_csv(table, tmp_path / "d.csv")
    done = sknimo("predict", tmp_path / "m.sknimo", tmp_path / "d.csv")
    found = read_csv(done.stdout_bytes)["prediction"].to_numpy()
    np.testing.assert_array_equal(found, est.predict(table))


def test_texts_that_look_like_numbers_stay_texts(sknimo, tmp_path):
    table = pa.table({"code": ["01", "02", "1x"] * 20, "x": np.arange(60.0)})
    est = NIMORegressor(max_iter=0).fit(table, np.arange(60) % 3)
    est.save(tmp_path / "m.sknimo")
    data = tmp_path / "d.csv"
    data.write_text("code,x\n01,3\n02,4\n")  # nothing here says that 01 is a text
    done = sknimo("predict", tmp_path / "m.sknimo", data)
    found = read_csv(done.stdout_bytes)["prediction"].to_numpy()
    wanted = est.predict(pa.table({"code": ["01", "02"], "x": [3.0, 4.0]}))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("what", "prefix", "attribute"),
    [
        ("contributions", "contribution", "values"),
        ("local-coefficients", "local_coef", "local_coef"),
        ("local-effects", "local_effect", "local_effect"),
    ],
)
def test_explanations_are_those_of_the_estimator(
    sknimo, model_file, regressor, patients, what, prefix, attribute
):
    wanted = regressor.explain(patients.select(FEATURES))
    done = sknimo("explain", model_file, PATIENTS, "--what", what)
    wide = read_csv(done.stdout_bytes)
    found = np.column_stack([wide[f"{prefix}_{name}"] for name in FEATURES])
    np.testing.assert_array_equal(found, getattr(wanted, attribute))
    np.testing.assert_array_equal(wide["eta"].to_numpy(), wanted.eta)
    done = sknimo("explain", model_file, PATIENTS, "--what", what, "--long")
    long = read_csv(done.stdout_bytes)
    np.testing.assert_array_equal(long[prefix].to_numpy(), found.ravel())
    assert long["feature"].to_pylist()[:4] == FEATURES
    assert long["value"].to_pylist()[3] == "south, old"
    assert long["row"].to_pylist()[4] == 2


def test_contributions_and_base_value_sum_to_eta(sknimo, classifier_file):
    done = sknimo("explain", classifier_file, PATIENTS, "--what", "all")
    wide = read_csv(done.stdout_bytes)
    total = wide["base_value"].to_numpy().copy()
    for name in FEATURES:
        total += wide[f"contribution_{name}"].to_numpy()
    np.testing.assert_allclose(total, wide["eta"].to_numpy(), rtol=0, atol=1e-12)
    chance = 1 / (1 + np.exp(-total))
    found = wide["probability_yes"].to_numpy()
    np.testing.assert_allclose(chance, found, rtol=1e-12)


def test_single_rows_are_shown_in_full(sknimo, model_file, regressor, patients):
    wanted = regressor.explain(patients.select(FEATURES))
    done = sknimo("explain", model_file, PATIENTS, "--row", 120, "--row", 1)
    assert done.stdout.index("Row 120") < done.stdout.index("Row 1:")
    assert f"prediction {wanted.mean[0]:.5g}" in done.stdout
    args = ["--row", "2", "--json"]
    (told,) = json.loads(sknimo("explain", model_file, PATIENTS, *args).stdout)
    by_name = {entry["feature"]: entry for entry in told["features"]}
    found = [by_name[name]["contribution"] for name in FEATURES]
    assert found == wanted.values[1].tolist()
    assert by_name["sex"]["value"] == "woman"


def test_explanations_of_long_tables_come_in_parts(
    sknimo, model_file, regressor, long_table, tmp_path
):
    data, out = tmp_path / "d.parquet", tmp_path / "out.parquet"
    pa_parquet.write_table(long_table, data)
    sknimo("explain", model_file, data, "-o", out)
    found = pa_parquet.read_table(out)
    wanted = regressor.explain(long_table.select(FEATURES))
    for j, name in enumerate(FEATURES):
        column = found[f"contribution_{name}"].to_numpy()
        np.testing.assert_array_equal(column, wanted.values[:, j])


def test_far_rows_are_counted_once_over_all_parts(
    sknimo, model_file, long_table, tmp_path
):
    ages = long_table["age"].to_numpy().copy()
    ages[[7, 12_000, 20_000]] = [900.0, -800.0, 700.0]
    table = long_table.set_column(1, "age", pa.array(ages))
    data, out = tmp_path / "d.parquet", tmp_path / "out.csv"
    pa_parquet.write_table(table, data)
    done = sknimo("predict", model_file, data, "-o", out, "--json")
    assert json.loads(done.stdout)["far_rows"] == 3
    assert done.stderr.count("warning") == 1
    told = "3 of 20001 rows lie far from all training rows"
    assert told in done.stderr and "the first is row 8." in done.stderr
    assert "--set clip_inputs=all" in done.stderr


def test_a_fit_tells_of_far_rows_among_those_held_out(sknimo, patients, tmp_path):
    ages = patients["age"].to_numpy().copy()
    index = patients.schema.get_field_index("age")
    ages[5] = 5000.0
    data = tmp_path / "d.parquet"
    pa_parquet.write_table(patients.set_column(index, "age", pa.array(ages)), data)
    found = []
    for seed in range(4):  # the row is held out by some
        args = ["--fixed", "--set", "max_iter=0", "--drop", "days,visits,relapse"]
        args += ["-t", "fall", "--test", 0.3, "--seed", seed, "--quiet"]
        done = sknimo("fit", data, *args)
        found.append("lie far from all training rows" in done.stderr)
        assert not found[-1] or "the first is row 6." in done.stderr
    assert any(found) and not all(found)


def test_outputs_are_written_in_every_format(
    sknimo, model_file, regressor, patients, tmp_path
):
    wanted = regressor.predict(patients.select(FEATURES)).tolist()
    for name in ("o.csv", "o.tsv", "o.csv.gz", "o.parquet", "o.parquet.gz"):
        out = tmp_path / name
        sknimo("predict", model_file, PATIENTS, "-o", out, "--keep", "ward")
        with TableReader(str(out)) as reader:
            table = reader.read()
        assert table["prediction"].to_pylist() == wanted
        assert table["ward"].equals(patients["ward"])
    out = tmp_path / "o.jsonl.gz"
    told = json.loads(
        sknimo("predict", model_file, PATIENTS, "-o", out, "--json").stdout
    )
    assert told == {"output_file": str(out), "rows": 120, "far_rows": 0}
    lines = gzip.decompress(out.read_bytes()).splitlines()
    assert [json.loads(line)["prediction"] for line in lines] == wanted


def test_only_cells_that_need_quotes_have_them(sknimo, model_file, tmp_path):
    data = tmp_path / "d.csv"
    rows = [
        '1,2,man,north,"say ""so"", twice"',
        "1,2,man,north,plain",
        "1,2,man,north,",
    ]
    data.write_text("\n".join(['age,dose,sex,ward,"a ""note"""', *rows]))
    done = sknimo("predict", model_file, data, "--keep", 'a "note"')
    lines = done.stdout.splitlines()
    notes = [line.rpartition(",")[0] for line in lines]
    assert notes == ['"a ""note"""', '"say ""so"", twice"', "plain", ""]


def test_equal_tables_give_equal_files(sknimo, model_file, tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        sknimo("predict", model_file, PATIENTS, "-o", tmp_path / name)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_a_table_can_be_replaced_by_its_own_predictions(sknimo, model_file, tmp_path):
    data = tmp_path / "d.csv"
    data.write_bytes(PATIENTS.read_bytes())
    sknimo("predict", model_file, data, "-o", data, "--keep-all")
    with TableReader(str(data)) as reader:
        assert reader.read().num_rows == 120
        assert reader.schema.names[-1] == "prediction"


def test_info_tells_columns_and_coefficients(sknimo, classifier_file, classifier):
    shown = sknimo("info", classifier_file).stdout
    assert "Predicts the chance of yes against no." in shown
    assert "category: 'east', 'north', 'south, old'; baseline 'north'" in shown
    assert str(classifier.summary()) in shown
    told = json.loads(sknimo("info", classifier_file, "--json").stdout)
    assert told["class"] == "NIMOClassifier"
    assert told["bytes"] == Path(classifier_file).stat().st_size
    assert told["coefficients"]["age"] == classifier.coef_[0]


def test_info_tells_coefficients_of_one_name_apart(sknimo, patients, tmp_path):
    X = patients.select(["age", "sex"]).rename_columns(["sex[woman]", "sex"])
    est = NIMORegressor(max_iter=0, reference={"sex": "man"}).fit(X, patients["fall"])
    assert list(est.coef_names_) == ["sex[woman]", "sex[woman]"]
    est.save(tmp_path / "m.sknimo")
    told = json.loads(sknimo("info", tmp_path / "m.sknimo", "--json").stdout)
    names = ["sex[woman] of sex[woman]", "sex[woman] of sex"]
    assert told["coefficients"] == dict(zip(names, est.coef_, strict=True))


def test_a_report_about_a_saved_model(sknimo, classifier_file, tmp_path):
    out = tmp_path / "r.html"
    args = ["-t", "relapse", "-o", out, "--test", PATIENTS, "--json"]
    told = json.loads(sknimo("report", classifier_file, PATIENTS, *args).stdout)
    assert told == {"report_file": str(out), "rows": 120}
    page = out.read_text()
    assert "relapse" in page
    # Page and command call a row by the same number.
    named = re.search(
        r"<bdi>row (\d+)</bdi>.*?Probability of \w+: ([\d.]+)", page, re.S
    )
    args = ["--row", named[1], "--json"]
    (told,) = json.loads(sknimo("explain", classifier_file, PATIENTS, *args).stdout)
    chances = [told[key] for key in told if key.startswith("probability_")]
    assert named[2] in [f"{100 * chance:.1f}" for chance in chances]


def test_an_exported_graph_predicts_the_same(sknimo, model_file, patients, tmp_path):
    out = tmp_path / "m.onnx"
    sknimo("export", model_file, "-o", out)
    X = patients.select(FEATURES)
    inputs = {
        name: np.array(X[name].to_pylist(), dtype=object).reshape(-1, 1)
        for name in ("sex", "ward")
    }
    for name in ("age", "dose"):
        inputs[name] = X[name].to_numpy().astype(float).reshape(-1, 1)
    session = onnxruntime.InferenceSession(out)
    (found,) = session.run(["prediction"], inputs)
    np.testing.assert_allclose(found, load(model_file).predict(X), rtol=1e-12)


def test_a_row_of_labels_that_are_objects_is_explained(sknimo, tmp_path):
    table = pa_csv.read_csv(PATIENTS)
    y = np.array(table["relapse"].to_pylist(), dtype=object)
    est = NIMOClassifier(max_iter=0).fit(table.select(["age", "dose"]), y)
    est.save(tmp_path / "m")
    done = sknimo("explain", tmp_path / "m", PATIENTS, "--row", 1, "--json")
    assert json.loads(done.stdout)[0]["prediction"] in ("yes", "no")
