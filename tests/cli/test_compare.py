"""`sknimo compare` measures two models on the same rows and says how sure it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from sknimo import NIMOClassifier, NIMORegressor

PATIENTS = Path(__file__).parent / "patients.csv"


@pytest.fixture(scope="module")
def other_file(patients, tmp_path_factory):
    """A model that knows less: the age alone."""
    est = NIMOClassifier(max_iter=0, alpha=0.2)
    est.fit(patients.select(["age"]), patients["relapse"].to_pylist())
    path = tmp_path_factory.mktemp("models") / "age.sknimo"
    est.save(path)
    return str(path)


def test_measures_and_verdict_are_those_of_the_rows(
    sknimo, classifier_file, other_file, classifier, patients
):
    args = ["compare", other_file, classifier_file, PATIENTS, "-t", "relapse"]
    told = json.loads(sknimo(*args, "--json").stdout)
    X = patients.select(["age", "dose", "sex", "ward"])
    y = np.array(patients["relapse"].to_pylist())
    chance = classifier.predict_proba(X)
    own = chance[np.arange(len(y)), (y == "yes").astype(int)]
    assert told["relapse"]["log_loss"] == pytest.approx(-np.log(own).mean())
    assert told["relapse"]["auc"] > told["age"]["auc"]
    assert told["verdict"].startswith("relapse predicts these rows better than age")
    text = sknimo(*args).stdout
    assert text.splitlines()[0].split() == ["age", "relapse", "baseline"]


@pytest.mark.slow
def test_the_page_has_everything_in_one_file(
    sknimo, classifier_file, other_file, tmp_path
):
    page = tmp_path / "c.html"
    args = ["compare", other_file, classifier_file, PATIENTS, "-t", "relapse"]
    sknimo(*args, "-o", page)
    text = page.read_text()
    assert text.count("<svg") == 3 and "http" not in text.replace("http://www.w3", "")
    assert "<script" not in text and "<img" not in text
    sknimo(*args, "-o", page)
    assert page.read_text() == text
    assert "Average effects" in text and "neither has seen" in text


def test_models_of_different_targets_are_refused(sknimo, classifier_file, model_file):
    args = ["compare", model_file, classifier_file, PATIENTS, "-t", "relapse"]
    told = sknimo(*args, code=1).stderr
    assert "One model predicts a number, the other no or yes." in told


@pytest.mark.parametrize("label", ["maybe", ""])
def test_a_label_that_the_models_do_not_know_is_refused(
    sknimo, classifier_file, tmp_path, label
):
    data = tmp_path / "d.csv"
    data.write_text(PATIENTS.read_text().replace(",yes,", f",{label},"))
    args = ["compare", classifier_file, classifier_file, data, "-t", "relapse"]
    told = sknimo(*args, code=1).stderr
    assert "at row 1" in told and ("'maybe'" in told or "NaN" in told)


def test_labels_that_are_text_are_known_from_numbers(sknimo, patients, tmp_path):
    """A data frame may hold "0" and "1" where a CSV file has numbers."""
    y = np.array(patients["relapse"].to_pylist()) == "yes"
    X = patients.select(["age", "dose"])
    est = NIMOClassifier(max_iter=0).fit(X, y.astype(int).astype(str))
    est.save(tmp_path / "m.sknimo")
    (tmp_path / "d.csv").write_text(
        PATIENTS.read_text().replace(",yes,", ",1,").replace(",no,", ",0,")
    )
    args = ["compare", *[tmp_path / "m.sknimo"] * 2, tmp_path / "d.csv"]
    told = json.loads(sknimo(*args, "-t", "relapse", "--json").stdout)
    one = next(iter(told.values()))
    assert one["accuracy"] == pytest.approx(est.score(X, y.astype(int).astype(str)))


def test_equal_models_show_no_difference(sknimo, model_file):
    args = ["compare", model_file, model_file, PATIENTS, "-t", "fall"]
    assert "No clear difference" in sknimo(*args).stdout


def test_three_classes_and_two_families_are_compared(sknimo, patients, tmp_path):
    X = patients.select(["age", "dose"])
    files = []
    for name, penalty in (("weak", 0.5), ("strong", 0.001)):
        est = NIMOClassifier(max_iter=0, penalty="ridge", alpha=penalty)
        files.append(tmp_path / f"{name}.sknimo")
        est.fit(X, patients["ward"].to_pylist()).save(files[-1])
    page = tmp_path / "c.html"
    sknimo("compare", *files, PATIENTS, "-t", "ward", "-o", page)
    assert page.read_text().count("<svg") == 1

    ages = np.asarray(patients["age"].to_pylist(), dtype=float)
    for family in ("gaussian", "poisson"):
        est = NIMORegressor(max_iter=0, alpha=0.0, family=family)
        est.fit(patients.select(["dose"]), ages).save(tmp_path / f"{family}.sknimo")
    files = [tmp_path / f"{family}.sknimo" for family in ("gaussian", "poisson")]
    told = sknimo("compare", *files, PATIENTS, "-t", "age").stdout
    assert "squared error" in told and "deviance" not in told


def test_models_fitted_from_arrays_are_compared(sknimo, tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * random.normal(size=60)
    data, page = tmp_path / "data.csv", tmp_path / "c.html"
    rows = np.column_stack([X, y])
    np.savetxt(data, rows, delimiter=",", header="x0,x1,y", comments="")
    files = []
    for name, alpha in (("weak", 0.5), ("strong", 0.0)):
        files.append(tmp_path / f"{name}.sknimo")
        NIMORegressor(max_iter=0, alpha=alpha).fit(X, y).save(files[-1])
    sknimo("compare", *files, data, "-t", "y", "-o", page)
    assert "<td>x0</td>" in page.read_text()
