"""Whatever goes wrong: one line with a remedy, the right code, no half-written file."""

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

PATIENTS = Path(__file__).parent / "patients.csv"
FAST = ["--fixed", "--set", "max_iter=0", "--quiet"]
ROWS = PATIENTS.read_text().splitlines()


def with_cell(line, column, text):
    """The table with one cell changed; the header is line 1."""
    lines = list(ROWS)
    cells = lines[line - 1].replace("south, old", "south").split(",")
    cells[column] = text
    lines[line - 1] = ",".join(cells)
    return "\n".join(lines)


def ask(sknimo, *arguments, code=1, **options):
    """Run a command that fails; returns its only line."""
    done = sknimo(*arguments, code=code, **options)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("sknimo: error: "), done.stderr
    assert "Traceback" not in done.stderr
    return lines[0].removeprefix("sknimo: error: ")


DROP = ["--drop", "days,visits,relapse"]
TABLES = {
    "an empty file": ("", "fall", [], "is empty"),
    "a file of blank lines": ("\n \n", "fall", [], "is empty"),
    "a header alone": (ROWS[0], "fall", [], "has a header but no rows"),
    "no such target": (
        "\n".join(ROWS),
        "gain",
        [],
        "no column 'gain'. Its columns are",
    ),
    "no such weight": ("\n".join(ROWS), "fall", ["--weight", "w"], "no column 'w'"),
    "no such column to drop": (
        "\n".join(ROWS),
        "fall",
        ["--drop", "a,b"],
        "no column 'a'",
    ),
    "one column for two roles": (
        "\n".join(ROWS),
        "fall",
        ["--weight", "fall"],
        "must be different columns",
    ),
    "nothing left": (
        "\n".join(ROWS),
        "fall",
        ["--drop", ROWS[0].removesuffix(",fall")],
        "no column left to predict 'fall' from",
    ),
    "text among numbers": (
        with_cell(8, 1, "tall"),
        "fall",
        DROP,
        "Column 'dose' holds numbers but for 'tall' in row 7. Mend or empty that cell, "
        "or say --categorical dose.",
    ),
    "text in a numeric target": (
        with_cell(8, 7, "much"),
        "fall",
        DROP,
        "Column 'fall' holds numbers but for 'much' in row 7. Mend or empty that cell.",
    ),
    "a missing cell": (
        with_cell(8, 1, ""),
        "fall",
        DROP,
        "Column 'dose' of X contains missing value (NaN), first at row 7. Drop or "
        "impute such rows first (--drop-missing), or fit with --missing indicator",
    ),
    "a missing target": (
        with_cell(8, 7, ""),
        "fall",
        DROP,
        "first at row 7. Drop such rows, or say --drop-missing.",
    ),
    "a missing label": (
        with_cell(8, 6, ""),
        "relapse",
        ["--drop", "days,visits,fall"],
        "first at row 7",
    ),
    "a class seen once": (
        with_cell(8, 6, "perhaps"),
        "relapse",
        ["--drop", "days,visits,fall"],
        "The class 'perhaps' of y is seen once",
    ),
    "a date": (
        "\n".join(["day,y", *(f"2024-01-{d:02},{d}" for d in range(1, 29))]),
        "y",
        [],
        "Column 'day' holds dates or times",
    ),
    "a name per row": (
        "\n".join(["name,y", *(f"n{d},{d}" for d in range(60))]),
        "y",
        [],
        "Leave it out with --drop, or merge",
    ),
    "a cell too many": (
        "\n".join([*ROWS[:5], ROWS[5] + ",1"]),
        "fall",
        [],
        "line 6: 9 cells where the header has 8",
    ),
    "two columns of one name": ("x,x,y\n1,2,3\n", "y", [], "2 columns named 'x'"),
    "negative counts": (
        with_cell(8, 5, "-1"),
        "visits",
        ["--family", "poisson", "--drop", "relapse"],
        "row 7 has -1",
    ),
    "text as a weight": (
        "\n".join(ROWS),
        "fall",
        ["--weight", "sex"],
        "Column 'sex' holds string, not numbers",
    ),
    "an unknown setting": (
        "\n".join(ROWS),
        "fall",
        ["--set", "depth=3"],
        "NIMORegressor has no setting 'depth'. It has 'family'",
    ),
    "a setting without a value": (
        "\n".join(ROWS),
        "fall",
        ["--set", "depth"],
        "--set needs name=value",
    ),
    "a setting out of range": (
        "\n".join(ROWS),
        "fall",
        ["--set", "penalty=none"],
        "penalty must be one of",
    ),
    "everything held out": (
        "\n".join(ROWS),
        "fall",
        ["--test", "1"],
        "leaves nothing to one side",
    ),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_bad_table_or_option_is_told_in_one_line(sknimo, tmp_path, fault):
    text, target, options, message = TABLES[fault]
    data, model = tmp_path / "d.csv", tmp_path / "m.sknimo"
    data.write_text(text)
    told = ask(sknimo, "fit", data, "-t", target, *options, *FAST, "-m", model)
    assert message in told
    assert os.listdir(tmp_path) == ["d.csv"]


def test_rows_are_counted_in_the_file_even_if_some_are_held_out(sknimo, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text(with_cell(100, 5, "-1"))
    args = ["--family", "poisson", "--drop", "relapse", "--test", "0.1", *FAST]
    assert "row 99 has -1" in ask(sknimo, "fit", data, "-t", "visits", *args)


def as_parquet():
    file = io.BytesIO()
    table = pa_csv.read_csv(PATIENTS)
    pa_parquet.write_table(table, file, compression="snappy")
    return file.getvalue()


FILES = {
    "a damaged page of a Parquet file": (
        as_parquet()[:40] + bytes(20) + as_parquet()[60:],
        "is a damaged Parquet file. Write it anew.",
    ),
    "a damaged end of a Parquet file": (
        as_parquet()[:-60] + b"\xff" * 40 + as_parquet()[-20:],
        "is a damaged Parquet file. Write it anew.",
    ),
    "bytes of another encoding": (b"x,y\nM\xfcnchen,1\n", "--encoding latin-1"),
    "a damaged gzip file": (gzip.compress(PATIENTS.read_bytes())[:-20], "damaged gzip"),
    "a gzip file that ends early": (gzip.compress(b"x" * 999)[:15], "damaged gzip"),
    "a damaged Parquet file": (b"PAR1" + bytes(50), "damaged Parquet"),
}


@pytest.mark.parametrize("fault", FILES)
def test_a_file_that_cannot_be_read_is_told_in_one_line(sknimo, tmp_path, fault):
    content, message = FILES[fault]
    (tmp_path / "d").write_bytes(content)
    assert message in ask(sknimo, "fit", tmp_path / "d", "-t", "y")


READING = {
    "no encoding": (["--encoding", "no such"], "no encoding 'no such'"),
    "no encoding of text": (["--encoding", "rot13"], "no encoding 'rot13' of text"),
    "another encoding": (["--encoding", "utf-16"], "is not encoded in utf-16"),
    "two characters": (["--delimiter", "ab"], "one ASCII character, got 'ab'"),
    "not ASCII": (["--delimiter", "é"], "one ASCII character, got 'é'"),
    "no share": (["--test", "nan"], "--test nan of 120 rows leaves nothing"),
}


@pytest.mark.parametrize("fault", READING)
def test_a_way_to_read_that_is_none_is_told_in_one_line(sknimo, fault):
    options, message = READING[fault]
    assert message in ask(sknimo, "fit", PATIENTS, "-t", "fall", *FAST, *options)


def test_a_column_without_a_name_is_not_there(sknimo, model_file):
    for command in ("predict", "explain"):
        told = ask(sknimo, command, model_file, PATIENTS, "--offset", "")
        assert "has no column ''" in told


def test_another_encoding_can_be_read(sknimo, tmp_path):
    rows = [f"{'Köln' if k % 2 else 'Ulm'};{k % 7}" for k in range(40)]
    (tmp_path / "d.csv").write_bytes("\n".join(["Straße;y", *rows]).encode("latin-1"))
    args = ["-t", "y", "--encoding", "latin-1", *FAST]
    assert "Straße" in sknimo("fit", tmp_path / "d.csv", *args).stdout


def test_files_that_are_not_there_are_named(sknimo, model_file, tmp_path):
    gone = tmp_path / "gone.csv"
    assert ask(sknimo, "fit", gone, "-t", "y") == f"There is no file {gone}."
    assert ask(sknimo, "predict", gone, PATIENTS) == f"There is no file {gone}."
    assert ask(sknimo, "info", gone) == f"There is no file {gone}."
    told = ask(sknimo, "predict", model_file, tmp_path)
    assert told == f"{tmp_path} is a folder, not a file."


def test_a_file_that_is_no_model_is_refused(sknimo):
    for command in (["predict", PATIENTS, PATIENTS], ["info", PATIENTS]):
        assert "patients.csv cannot be loaded" in ask(sknimo, *command)


def test_outputs_that_cannot_be_written_are_refused_before_the_work(
    sknimo, model_file, tmp_path
):
    missing = tmp_path / "no" / "out.csv"
    told = ask(sknimo, "predict", model_file, tmp_path / "gone.csv", "-o", missing)
    assert told == f"There is no folder {tmp_path / 'no'}. Make it first."
    told = ask(sknimo, "fit", tmp_path / "gone.csv", "-t", "y", "-r", tmp_path)
    assert told == f"{tmp_path} is a folder; name a file in it."
    told = ask(sknimo, "predict", model_file, PATIENTS, "-o", tmp_path / "out.xlsx")
    assert "names no format that can be written" in told


APPLIED = {
    "a missing column": ("age,sex,ward\n1,man,north\n", "no column 'dose', which"),
    "text in a numeric column": (
        with_cell(8, 1, "tall"),
        "line 8: column 'dose' holds 'tall', not a number. Mend or empty that cell.",
    ),
    "a missing cell": (
        with_cell(8, 1, ""),
        "Column 'dose' of X contains missing value",
    ),
    "an unknown level": (
        with_cell(8, 2, "other"),
        "Column 'sex' has level 'other' at row 7, which no training row had (known: "
        "'man', 'woman'). Fit again with such rows, or say --unknown reference",
    ),
    "an empty file": ("", "is empty"),
    "a header alone": (ROWS[0], "has a header but no rows"),
}


@pytest.mark.parametrize("command", ["predict", "explain"])
@pytest.mark.parametrize("fault", APPLIED)
def test_a_table_that_does_not_suit_the_model_is_told_in_one_line(
    sknimo, model_file, tmp_path, command, fault
):
    text, message = APPLIED[fault]
    data, out = tmp_path / "d.csv", tmp_path / "out.csv"
    data.write_text(text)
    out.write_text("as it was")
    assert message in ask(sknimo, command, model_file, data, "-o", out)
    assert out.read_text() == "as it was"
    assert sorted(os.listdir(tmp_path)) == ["d.csv", "out.csv"]


def test_a_fault_late_in_a_long_table_is_counted_from_its_start(
    sknimo, model_file, tmp_path
):
    header, *rows = ROWS
    rows = (rows * 100)[:10_000]
    rows[9_500] = "30,10,other,north,100,1,no,5"
    (tmp_path / "d.csv").write_text("\n".join([header, *rows]))
    out = tmp_path / "out.csv"
    told = ask(sknimo, "predict", model_file, tmp_path / "d.csv", "-o", out)
    assert "level 'other' at row 9501" in told
    assert os.listdir(tmp_path) == ["d.csv"]


def test_kept_columns_must_not_have_the_name_of_an_output(sknimo, model_file, tmp_path):
    data = tmp_path / "d.parquet"
    table = pa.table(
        {"age": [1], "dose": [2], "sex": ["man"], "ward": ["north"], "prediction": [0]}
    )
    pa_parquet.write_table(table, data)
    told = ask(
        sknimo, "predict", model_file, data, "--keep-all", "-o", tmp_path / "o.csv"
    )
    assert "'prediction' has the name of a column that is written" in told


def test_rows_that_are_not_there_cannot_be_shown(sknimo, model_file):
    told = ask(sknimo, "explain", model_file, PATIENTS, "--row", 121)
    assert told == "There is no row 121; the table has 120 rows."
    assert "count from 1" in ask(sknimo, "explain", model_file, PATIENTS, "--row", 0)


def test_dates_are_no_classes(sknimo, tmp_path):
    lines = [f"{k},2024-01-{k % 20 + 1:02}" for k in range(60)]
    (tmp_path / "d.csv").write_text("\n".join(["x,day", *lines]))
    told = ask(sknimo, "fit", tmp_path / "d.csv", "-t", "day", *FAST)
    assert told.startswith("The target holds dates or times.")


def test_a_table_to_judge_by_is_looked_at_before_the_fit(sknimo, tmp_path):
    (tmp_path / "t.csv").write_text("age,dose\n60,1.5\n")
    how = ["-t", "fall", "--test", tmp_path / "t.csv", "--fixed"]
    told = ask(sknimo, "fit", PATIENTS, *how)  # and no word about the family
    assert "t.csv has no column 'fall'" in told


def test_events_are_zero_or_one(sknimo):
    how = ["--time", "days", "--event", "relapse", *FAST]
    told = ask(sknimo, "fit", PATIENTS, *how)
    assert told.startswith("Column 'relapse' must have 1 where the event happened")


def test_warnings_have_remedies_of_the_command(sknimo, tmp_path):
    lines = [f"{k},{('A1', 'A1', 'A1', '17', '18')[k % 5]}" for k in range(60)]
    (tmp_path / "d.csv").write_text("\n".join(["y,x", *lines]))
    told = sknimo("fit", tmp_path / "d.csv", "-t", "y", *FAST).stderr
    assert "or say --categorical 'x' if levels are meant" in told


def test_a_report_refuses_labels_that_the_model_does_not_know(
    sknimo, classifier_file, tmp_path
):
    (tmp_path / "d.csv").write_text(with_cell(8, 6, "maybe"))
    args = ["-t", "relapse", "-o", tmp_path / "r.html"]
    told = ask(sknimo, "report", classifier_file, tmp_path / "d.csv", *args)
    assert "'maybe'" in told and "at row 7" in told
    assert os.listdir(tmp_path) == ["d.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", PATIENTS],
        ["fit", PATIENTS, "-t", "fall", "--family", "cauchy"],
        ["fit", PATIENTS, "-t", "fall", "--speed"],
        ["fit", PATIENTS, "-t", "fall", "--fixed", "--jobs", "2"],
        ["fit", PATIENTS, "-t", "fall", "--test", "0.2", "--seed", "-1"],
        ["demo", "--seed", "-1"],
        ["predict"],
        ["bake"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:1] + arguments[2:])),
)
def test_wrong_usage_has_exit_code_two(sknimo, arguments):
    done = sknimo(*arguments, code=2)
    assert "Usage: " in done.stderr and done.stdout == ""


def test_debug_shows_the_traceback(sknimo, tmp_path):
    done = sknimo("info", tmp_path / "gone", "--debug", code=1)
    assert "Traceback" in done.stderr and "FileNotFoundError" in done.stderr


def start(*arguments, **options):
    command = [sys.executable, "-m", "sknimo", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, **options)


@pytest.mark.slow
def test_a_reader_that_stops_reading_ends_the_command_without_a_word(
    model_file, tmp_path
):
    header, *rows = ROWS
    (tmp_path / "d.csv").write_text("\n".join([header, *rows * 300]))
    with start("explain", model_file, tmp_path / "d.csv", "--long") as process:
        assert process.stdout.readline() == b"row,feature,value,contribution\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.slow
def test_an_interrupt_leaves_no_file_and_exit_code_130(model_file, tmp_path):
    out = tmp_path / "out.csv"
    # Standard input stays open: the command waits for more when the signal comes.
    with start("predict", model_file, "-", "-o", out, stdin=subprocess.PIPE) as process:
        header, *rows = ROWS
        process.stdin.write("\n".join([header, *rows * 1500]).encode())
        process.stdin.flush()
        until = time.monotonic() + 60
        while not os.listdir(tmp_path):  # the output is under construction
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b"sknimo: interrupted.\n"
    assert os.listdir(tmp_path) == []


def test_help_is_there_before_torch_and_pyarrow():
    code = """
import sys
from sknimo.cli import main
try:
    main(["fit", "--help"])
except SystemExit as done:
    assert done.code == 0
print(*{"torch", "sklearn", "pyarrow", "numpy"} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--target" in done.stdout
    assert done.stderr.split() == []


def test_without_typer_the_command_says_what_to_install(monkeypatch):
    from sknimo.cli import main

    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "sknimo.cli._app")
    with pytest.raises(SystemExit, match=r"pip install 'sknimo\[cli\]'"):
        main([])


def test_the_version_is_that_of_the_package(sknimo):
    import sknimo as package

    assert sknimo("--version").stdout == f"sknimo {package.__version__}\n"
