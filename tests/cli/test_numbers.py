"""Numbers as people write them: read, or refused with the option that helps."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sknimo import load

PATIENTS = Path(__file__).parent / "patients.csv"

FAST = ["--fixed", "--set", "max_iter=0"]
RNG = np.random.default_rng(0)
N = 60
X = RNG.uniform(0, 2000, N).round(2)
Y = (0.01 * X + RNG.normal(size=N)).round(3)


def write(path, cells, delimiter=";", target=Y, name="x"):
    """A table of one feature as text, and the target."""
    lines = [f"{cell}{delimiter}{y}" for cell, y in zip(cells, target, strict=True)]
    path.write_text("\n".join([f"{name}{delimiter}y", *lines]))
    return path


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.fixture
def fit(sknimo, tmp_path):
    """Fit a table and return the model and what was said."""

    def run(data, *options):
        path = tmp_path / "m.sknimo"
        done = sknimo("fit", data, "-t", "y", *FAST, *options, "-m", path)
        return load(path), done.stderr

    return run


@pytest.fixture
def plain(fit, tmp_path):
    """The model of the numbers as programs write them."""
    return fit(write(tmp_path / "plain.csv", X))[0]


@pytest.mark.parametrize(
    ("show", "options"),
    [
        (lambda v: f"{v:.2f}".replace(".", ","), ["--decimal", ","]),
        (german, ["--decimal", ",", "--thousands", "."]),
        (lambda v: f"{v:,.2f}", ["--thousands", ","]),
        (lambda v: f"{v:,.2f}".replace(",", " "), ["--thousands", " "]),
        (lambda v: f"{v} %", []),
        (lambda v: f"$ {v}", []),
    ],
)
def test_numbers_of_people_are_read_as_numbers(
    fit, plain, sknimo, tmp_path, show, options
):
    comma = "--decimal" in options
    target = [str(y).replace(".", ",") for y in Y] if comma else Y
    data = write(tmp_path / "d.csv", map(show, X), target=target)
    est, _ = fit(data, *options)
    np.testing.assert_array_equal(est.coef_, plain.coef_)
    told = sknimo("predict", tmp_path / "m.sknimo", data, *options).stdout
    found = np.array(told.split()[1:], dtype=float)
    np.testing.assert_array_equal(found, plain.predict(pa.table({"x": X})))


@pytest.mark.parametrize(
    ("cells", "help_"),
    [
        ([f"{v:.2f}".replace(".", ",") for v in X], "--decimal ','"),
        ([german(v) for v in X], "--decimal ',' --thousands '.'"),
        ([f"{v + 1000:,.0f}" for v in X], "--decimal ',' or --thousands ','"),
        ([f"{1 + k % 28}.12.2024" for k in range(N)], "leave it out with --drop x"),
        ([f"{12 - k % 12}/{1 + k % 28}/24" for k in range(N)], "dates"),
        ([f"{k} %" if k % 2 else f"0.{k:02}" for k in range(N)], "one unit"),
    ],
)
def test_text_that_is_a_number_or_a_date_is_refused_with_a_remedy(
    sknimo, tmp_path, cells, help_
):
    data = write(tmp_path / "d.csv", cells)
    told = sknimo("fit", data, "-t", "y", *FAST, "-q", code=1).stderr
    assert told.startswith("sknimo: error: Column 'x' holds") and help_ in told


def test_codes_keep_their_zeros_unless_they_are_numbers(fit, sknimo, tmp_path):
    codes = [f"{k % 4:05}" for k in range(N)]
    data = write(tmp_path / "d.csv", codes, name="zip")
    est, said = fit(data)
    assert est.model_.features.levels(0) == ("00000", "00001", "00002", "00003")
    assert "codes such as 01234, taken for categories (--numeric): zip" in said
    sknimo("predict", tmp_path / "m.sknimo", data)
    est, said = fit(data, "--numeric", "zip")
    assert est.model_.features.levels(0) is None and "zip" not in said.split("few")[0]


def test_long_numbers_are_copied_to_the_last_digit(fit, sknimo, tmp_path):
    data = write(tmp_path / "d.csv", [str(k % 7) for k in range(N)], name="x")
    fit(data)
    ids = [str(123456789012345670 + k) for k in range(N)]
    rows = [f"{k % 7},0,{name}" for k, name in enumerate(ids)]
    new = tmp_path / "new.csv"
    new.write_text("\n".join(["x,y,id", *rows]))
    told = sknimo("predict", tmp_path / "m.sknimo", new, "--keep", "id").stdout
    assert [line.split(",")[0] for line in told.splitlines()[1:]] == ids


def test_few_whole_numbers_and_row_counts_are_pointed_out(fit, tmp_path):
    data = tmp_path / "d.csv"
    rows = [
        f"{k + 1},{k % 5},{x},{y}" for k, (x, y) in enumerate(zip(X, Y, strict=True))
    ]
    data.write_text("\n".join(["id,grade,x,y", *rows]))
    est, said = fit(data)
    assert "--categorical grade" in said and "--drop id" in said
    _, said = fit(data, "--categorical", "grade", "--drop", "id")
    assert "grade" not in said and "id only" not in said


def test_a_nameless_index_is_no_feature(fit, plain, tmp_path):
    data = tmp_path / "d.csv"
    rows = [f"{k},{x},{y}" for k, (x, y) in enumerate(zip(X, Y, strict=True))]
    data.write_text("\n".join([",x,y", *rows]))
    est, said = fit(data)
    assert "left out a column without a name" in said
    np.testing.assert_array_equal(est.coef_, plain.coef_)


@pytest.mark.slow
def test_an_excel_sheet_is_a_table(fit, plain, sknimo, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["x", "y"])
    for x, y in zip(X.tolist(), Y.tolist(), strict=True):
        book.active.append([x, y])
    data = tmp_path / "d.xlsx"
    book.save(data)
    est, _ = fit(data)
    np.testing.assert_array_equal(est.coef_, plain.coef_)
    assert len(sknimo("predict", tmp_path / "m.sknimo", data).stdout.split()) == N + 1


def test_an_archive_that_is_no_sheet_is_refused(sknimo, tmp_path):
    data = tmp_path / "d.xlsx"
    data.write_bytes(b"PK\x03\x04 and nothing else")
    told = sknimo("fit", data, "-t", "y", code=1).stderr
    assert "Save it as" in told or "save it as CSV" in told


def test_a_constant_target_is_refused(sknimo, tmp_path):
    data = write(tmp_path / "d.csv", X, target=[5] * N)
    told = sknimo("fit", data, "-t", "y", *FAST, code=1).stderr
    assert "Column 'y' is 5 in every row" in told


def test_unknown_levels_can_be_admitted_when_predicting(
    sknimo, model_file, regressor, patients, tmp_path
):
    data = tmp_path / "d.csv"
    data.write_text("age,dose,sex,ward\n60,27.4,woman,west\n")
    told = sknimo("predict", model_file, data, code=1).stderr
    assert "say --unknown reference" in told
    done = sknimo("predict", model_file, data, "--unknown", "reference")
    data.write_text("age,dose,sex,ward\n60,27.4,woman,north\n")
    baseline = regressor.model_.features.levels(3)[int(regressor.reference_[3])]
    data.write_text(f'age,dose,sex,ward\n60,27.4,woman,"{baseline}"\n')
    assert done.stdout == sknimo("predict", model_file, data).stdout


def test_predict_recommends_only_what_it_has(sknimo, model_file, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("age,dose,sex,ward\n60,,woman,north\n")
    told = sknimo("predict", model_file, data, code=1).stderr
    assert "--drop-missing" not in told and "fit with --missing indicator" in told


def test_predict_and_explain_call_the_same_things_by_the_same_names(
    sknimo, classifier_file
):
    lines = PATIENTS.read_text().splitlines()[:6]
    given = "\n".join(lines)
    one = sknimo("predict", classifier_file, "-", given=given).stdout.splitlines()
    two = sknimo("explain", classifier_file, "-", given=given).stdout.splitlines()
    names = ["prediction", "probability_no", "probability_yes"]
    assert one[0].split(",") == names == two[0].split(",")[:3]
    for a, b in zip(one[1:], two[1:], strict=True):
        label, *chances = a.split(",")
        assert b.split(",")[0] == label
        found = np.array(b.split(",")[1:3], dtype=float)
        np.testing.assert_allclose(found, np.array(chances, dtype=float), atol=1e-12)
    row = sknimo("explain", classifier_file, "-", "--row", 1, given=given).stdout
    assert f"prediction {one[1].split(',')[0]}; probability of yes is" in row


def test_rows_held_out_may_be_another_table(sknimo, tmp_path):
    header, *rows = PATIENTS.read_text().splitlines()
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("\n".join([header, *rows[:80]]))
    test.write_text("\n".join([header, *rows[80:]]))
    drop = ["--drop", "days,visits,fall", *FAST]
    args = ["fit", train, "-t", "relapse", *drop, "--test", test]
    told = json.loads(sknimo(*args, "--json").stdout)["held_out"]
    assert 0.5 < told["auc"] <= 1 and told["baseline"]["auc"] == 0.5
    assert told["log_loss"] < told["baseline"]["log_loss"]
    assert "AUC" in sknimo(*args).stdout
    gone = sknimo(*args[:-1], tmp_path / "gone.csv", code=1).stderr
    assert "--test needs a share such as 0.2, or a table" in gone


def test_a_report_takes_no_share_of_rows_that_the_model_may_have_seen(
    sknimo, model_file, tmp_path
):
    args = ["report", model_file, PATIENTS, "-t", "fall", "-o", tmp_path / "r.html"]
    told = sknimo(*args, "--test", "0.2", code=1).stderr
    assert "report --test needs a table" in told


def test_a_wrong_name_is_answered_with_the_right_one(sknimo, model_file):
    told = sknimo("fit", PATIENTS, "-t", "Fall", code=1).stderr
    assert "has no column 'Fall'. Did you mean 'fall'?" in told


def test_predict_says_how_a_decimal_comma_is_read(sknimo, model_file):
    given = "age;dose;sex;ward\n60;27,4;woman;north\n"
    told = sknimo("predict", model_file, "-", given=given, code=1).stderr
    assert "column 'dose' holds '27,4', not a number. Say --decimal ','." in told
    sknimo("predict", model_file, "-", "--decimal", ",", given=given)
