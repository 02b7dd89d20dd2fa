"""Random command lines: each ends in an exit code and at most one line about an error.

Commands, options and values at random, over tables that are whole, damaged or of odd
content. A case fails on a traceback, on an error that no raise statement of ours has
made, and on anything left behind by a command that failed.
"""

import gzip
import io
import os
import shutil
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import strategies as st
from typer.testing import CliRunner

import sknimo.cli._errors as errors
from sknimo import NIMOClassifier, NIMORegressor
from sknimo.cli._app import app

PATIENTS = Path(__file__).parents[1] / "cli" / "patients.csv"
LINES = PATIENTS.read_text().splitlines()
COLUMNS = LINES[0].split(",")
# Words of the command itself; a usage fault is typer's to tell.
DONE, FAILED, USAGE = 0, 1, 2

CELLS = ["", "NA", "nan", "inf", "-1", "0", "1e99", "1e400", "text", "a,b", '"', '""']
CELLS += [
    "=1+1",
    "2024-01-01",
    "true",
    "é",
    "\0",
    "\t",
    " ",
    "x" * 300,
    "0x1F",
    "1_000",
]
NAMES = [*COLUMNS, "", "no such", "age,dose", "-", "--", "Age", "é", "=x"]


@st.composite
def texts(draw):
    """The table of patients with a few changes, as bytes."""
    n_rows = draw(st.sampled_from((40,) * 20 + (0, 1, 2, 3, 120)))
    rows = [line.replace(", old", "").split(",") for line in LINES[: n_rows + 1]]
    for _ in range(draw(st.sampled_from((0, 0, 0, 0, 0, 0, 1, 1, 2, 6)))):
        row = draw(st.integers(0, len(rows) - 1))
        if not rows[row]:
            continue
        place = draw(st.integers(0, len(rows[row]) - 1))
        change = draw(st.sampled_from(("cell",) * 6 + ("column", "less", "more")))
        if change == "cell":
            rows[row][place] = draw(st.sampled_from(CELLS) | st.text(max_size=4))
        elif change == "column":
            cell = draw(st.sampled_from(CELLS))
            for each in rows[1:]:
                each[min(place, len(each) - 1) :][:1] = [cell]
        elif change == "less":
            del rows[row][place]
        else:
            rows[row].insert(place, draw(st.sampled_from(CELLS)))
    comma = draw(st.sampled_from(",,,,,,,,;\t|"))
    end = draw(st.sampled_from(("\n", "\n", "\r\n", "\r")))
    text = end.join(comma.join(row) for row in rows)
    encoding = draw(st.sampled_from(("utf-8",) * 20 + ("utf-8-sig", "utf-16")))
    return text.encode(encoding, "replace")


def to_parquet(text):
    """The same table in Parquet where pandas can read it, else as it was."""
    try:
        frame = pd.read_csv(io.BytesIO(text))
        file = io.BytesIO()
        frame.to_parquet(file, index=False)
    except Exception:
        return text
    return file.getvalue()


def damage(data, place, new):
    at = int(place * len(data))
    return data[:at] + new + data[at + len(new) :]


DAMAGED = st.builds(
    lambda place, new: partial(damage, place=place, new=new),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=8),
)
TABLES = st.builds(
    lambda text, put, hurt: hurt(put(text)),
    texts(),
    st.sampled_from((bytes,) * 6 + (to_parquet, to_parquet, gzip.compress)),
    st.sampled_from((False,) * 5 + (True,)).flatmap(
        lambda is_damaged: DAMAGED if is_damaged else st.just(bytes)
    ),
)

VALUES = ["", "0", "1", "-1", "0.5", "1e99", "nan", "null", "true", "[3, 3]", "{}"]
VALUES += ['"x"', "lasso", "ridge", "auto", "1e-3", "[", "é"]
SETTINGS = ["alpha", "penalty", "hidden", "noise", "network_alpha", "batch_size"]
SETTINGS += ["reference", "input_scaling", "clip_inputs", "dtype", "position_code"]
SETTINGS += ["early_stopping", "validation_fraction", "categorical", "basis", "no such"]


def option(name, *values):
    return st.sampled_from([(name, str(value)) for value in values])


READING = [
    option("--delimiter", *"," * 9, ";", "\t", "", "ab", "é", "\0"),
    option("--encoding", *["utf-8"] * 9, "latin-1", "utf-16", "no such", "rot13"),
    st.just(("--json",)),
    st.just(("--quiet",)),
    option("--offset", "days", "fall", *NAMES),
]
FITTING = [
    *READING,
    option("--family", "auto", "gaussian", "binomial", "poisson", "gamma", "x"),
    option("--basis", "linear", "poly2", "spline", "auto"),
    option("--missing", "indicator", "indicator", "error"),
    option("--unknown", "reference", "error"),
    option("--weight", "days", *NAMES),
    option("--drop", "relapse,fall", "visits", *NAMES),
    option("--categorical", "age", "days", *NAMES),
    option("--seed", 0, 1, -1, 2**40, "x"),
    option("--test", 0.2, 0, 1, -1, "nan", 0.001),
    option("--memory-budget", "1GB", "1MB", "1", "0", "x", "9e99GB"),
    option("--report", "report.html", "no/such/folder.html", "."),
    st.just(("--drop-missing",)),
    st.builds(
        lambda name, value: ("--set", f"{name}={value}"),
        st.sampled_from(SETTINGS),
        st.sampled_from(VALUES),
    ),
]
EXPLAINING = [
    *READING,
    option("--what", "contributions", "local-coefficients", "local-effects", "all"),
    option("--method", "min_energy", "native", "integrated_gradients", "shapley"),
    option("--row", 1, 2, 0, -1, 10**9, "x"),
    st.just(("--long",)),
]
WRITING = [
    option("-o", "out.csv", "out.parquet", "out.tsv.gz", "-", "no/such/file", "."),
    option("--format", "csv", "tsv", "parquet", "jsonl", "x"),
    st.just(("--raw-text",)),
]
PREDICTING = [
    option("--keep", "age", "sex,ward", *NAMES),
    st.just(("--keep-all",)),
]
MODELS = ["model.sknimo"] * 30 + ["damaged.sknimo", "data", "no such", ".", ""]
DATA = ["data"] * 30 + ["model.sknimo", "no such", ".", ""]
FAST = ["--fixed", "--set", "max_iter=2", "--set", "hidden=[3, 3]"]


def some(options):
    """At most four options, in any order."""
    drawn = st.lists(st.one_of(options), max_size=4)
    return drawn.map(lambda pairs: [word for pair in pairs for word in pair])


@st.composite
def lines(draw):
    """The words of one command."""
    command = draw(
        st.sampled_from(
            ("fit",) * 5 + ("predict",) * 3 + ("explain",) * 3 + ("info", "report")
        )
    )
    model, data = draw(st.sampled_from(MODELS)), draw(st.sampled_from(DATA))
    target = draw(st.sampled_from(["fall"] * 20 + ["relapse"] * 10 + NAMES))
    if command == "fit":
        words = [data, "-t", target, "-m", "new.sknimo", *FAST, *draw(some(FITTING))]
    elif command == "predict":
        words = [model, data, *draw(some(READING + WRITING + PREDICTING))]
    elif command == "explain":
        words = [model, data, *draw(some(EXPLAINING + WRITING))]
    elif command == "report":
        weight = [option("--weight", "days", *NAMES)]
        words = [model, data, "-t", target, *draw(some(READING + weight))]
    else:
        words = [model, *draw(some([st.just(("--json",)), st.just(("--bad",))]))]
    return [command, *words]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Bytes of models of the patients: numbers alone, categories, classes, gaps."""
    path = tmp_path_factory.mktemp("models") / "m"
    table = pd.read_csv(PATIENTS)
    made = []
    for cls, target, columns, options in (
        (NIMORegressor, "fall", ["age", "dose"], {}),
        (NIMORegressor, "fall", ["age", "dose", "sex", "ward"], {"basis": "spline"}),
        (NIMOClassifier, "relapse", ["age", "sex", "days"], {}),
        (NIMOClassifier, "relapse", ["dose", "ward"], {"handle_unknown": "reference"}),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est = cls(max_iter=5, random_state=0, **options)
            est.fit(table[columns], table[target]).save(path)
        made.append(path.read_bytes())
    return made


@pytest.fixture
def check(tmp_path, monkeypatch, models, check_refusal):
    """Run a command in a folder of its own; what its end was."""
    told = []
    fail = errors._fail

    def note(error, debug):
        told.append(error)
        fail(error, debug)

    monkeypatch.setattr(errors, "_fail", note)

    def run(words, table, model):
        folder = tmp_path / "work"
        folder.mkdir()
        monkeypatch.chdir(folder)
        told.clear()
        try:
            Path("data").write_bytes(table)
            raw = models[model]
            Path("model.sknimo").write_bytes(raw)
            Path("damaged.sknimo").write_bytes(raw[: len(raw) // 2])
            before = sorted(os.listdir())
            done = CliRunner().invoke(app, words)
            check_end(done, told, check_refusal)
            if done.exit_code != DONE:
                assert sorted(os.listdir()) == before
        finally:
            monkeypatch.chdir(tmp_path)
            shutil.rmtree(folder)
        return f"{words[0]} {('done', 'refused', 'misused')[done.exit_code]}"

    return run


def check_end(done, told, check_refusal):
    assert done.exit_code in (DONE, FAILED, USAGE), repr(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "Traceback" not in done.output
    if done.exit_code == FAILED:
        last = done.stderr.splitlines()[-1]
        assert last.startswith("sknimo: error: "), done.stderr
        assert "--debug" not in last, last
        for error in told:
            kinds = (errors.UserError, ValueError, TypeError, ImportError)
            # Those of the system know the file and are told with it.
            if not (isinstance(error, OSError) and error.filename is not None):
                check_refusal(error, kinds)


CASES = {"words": lines(), "table": TABLES, "model": st.integers(0, 3)}


def test_random_commands_end_in_a_code_and_a_line(run_few, check):
    found = run_few(check, 12, **CASES)
    assert found.total() >= 12


@pytest.mark.slow
def test_many_random_commands_end_in_a_code_and_a_line(run_many, check):
    found = run_many("command lines", check, 1500, **CASES)
    assert all(found[f"{name} done"] > 0 for name in ("fit", "predict", "explain"))
