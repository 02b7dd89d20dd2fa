"""Tables of all kinds are read by the same rules, and faults name the right line."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from sknimo import NIMORegressor
from sknimo.cli._errors import UserError
from sknimo.cli._numbers import Marks
from sknimo.cli._stream import TableFile
from sknimo.cli._tables import TableReader, TextFormat

TEXT = "code,x,share,grade\nA12,1.5,45 %,1\n7654321,NA,50 %,\n007,2.25,55 %,3\n"


def read(path, types=None, **options):
    with TableReader(str(path), TextFormat(**options)) as reader:
        return reader.read(types=types)


@pytest.fixture
def plain(tmp_path):
    """The table as programs write it."""
    path = tmp_path / "plain.csv"
    path.write_text(TEXT)
    return read(path)


def save_sheet(path, rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_cells_of_a_sheet_are_read_like_text(plain, tmp_path):
    rows = [["code", "x", "share", "grade"], ["A12", 1.5, "45 %", 1], []]
    rows += [[7654321, "NA", "50 %"], ["007", 2.25, "55 %", 3.0]]
    sheet = save_sheet(tmp_path / "d.xlsx", rows)
    assert read(sheet).equals(plain)
    as_text = read(sheet, types=dict.fromkeys(plain.column_names, pa.string()))
    assert as_text["code"].to_pylist() == ["A12", "7654321", "007"]
    assert as_text["grade"].to_pylist() == ["1", None, "3"]


def test_a_sheet_may_hold_numbers_as_text_with_a_decimal_comma(tmp_path):
    sheet = save_sheet(tmp_path / "d.xlsx", [["x", "y"], ["1,5", 2.5], [3, "4,25"]])
    found = read(sheet, marks=Marks(","))
    assert found.to_pydict() == {"x": [1.5, 3.0], "y": [2.5, 4.25]}


def test_parquet_text_holds_numbers_where_an_option_says_so(tmp_path):
    path = tmp_path / "d.parquet"
    pa_parquet.write_table(pa.table({"x": ["1,5", None], "y": ["1", "2"]}), path)
    assert read(path)["x"].to_pylist() == ["1,5", None]
    found = read(path, marks=Marks(","), numeric=["y"])
    assert found.to_pydict() == {"x": [1.5, None], "y": [1.0, 2.0]}
    with pytest.raises(UserError, match="row 1: column 'x' holds '1,5'"):
        read(path, types={"x": pa.float64()})
    large = TableFile(str(path), TextFormat(marks=Marks(","), numeric=["y"]), True)
    ((first, part),) = large.parts(["y", "x"], 1)
    assert first == 1 and part.to_pydict() == {"y": [2.0], "x": [None]}


def test_parquet_numbers_are_levels_of_a_model_that_knows_text(tmp_path):
    path = tmp_path / "d.parquet"
    numbers = {"whole": [1234567, 8], "gap": [1234567.0, None]}
    pa_parquet.write_table(pa.table(numbers), path)
    found = read(path, types=dict.fromkeys(numbers, pa.string()))
    assert found.to_pydict() == {"whole": ["1234567", "8"], "gap": ["1234567", None]}


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("utf-16"),
        TEXT.replace("\n", "\r").encode(),
        ("\r\n\n" + TEXT.replace("\n", "\n\n")).encode(),
    ],
    ids=["UTF-16", "lines of an old Macintosh", "empty lines"],
)
def test_encodings_and_line_ends_are_recognised(plain, tmp_path, data):
    path = tmp_path / "d.csv"
    path.write_bytes(data)
    assert read(path).equals(plain)


def test_faults_name_the_line_of_the_file(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('\nx,note\n1,"two\nlines"\n\n2,none\ntall,none\n')
    with pytest.raises(UserError, match="line 7: column 'x' holds 'tall'"):
        read(path, types={"x": pa.float64()})
    path.write_text('\nx,note\n1,"two\nlines"\n\n2,none\n3\n')
    with pytest.raises(UserError, match="line 7: 1 cells where the header has 2"):
        read(path)


def test_numbers_far_from_zero_are_shown_with_all_digits(sknimo, tmp_path):
    time = 1.6e9 + np.arange(60.0)
    table = pa.table({"time": time})
    est = NIMORegressor(max_iter=0, alpha=1e-4).fit(table, np.arange(60.0))
    est.save(tmp_path / "m.sknimo")
    told = sknimo("info", tmp_path / "m.sknimo").stdout
    assert "from 1600000000 to 1600000059; reference 1600000029.5" in told
    pa_parquet.write_table(table, tmp_path / "d.parquet")
    args = ("explain", tmp_path / "m.sknimo", tmp_path / "d.parquet", "--row", 8)
    assert "1600000007" in sknimo(*args).stdout
