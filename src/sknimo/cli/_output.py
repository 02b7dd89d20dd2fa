"""Write tables and pages: whole or not at all, to files or standard output."""

import gzip
import io
import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.parquet as pa_parquet

from sknimo.cli._errors import UserError
from sknimo.files import replace_file

STDOUT = "-"
ENDINGS: dict[str, str] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
# Text that spreadsheets take for a formula, but for numbers, which do nothing.
FORMULA = "^[=+@\\-\t\r\n＝＋－＠]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


class TableWriter(ABC):
    """Takes a table part by part."""

    def __init__(self, stream: IO[bytes], raw_text: bool = False) -> None:
        self._stream, self._raw_text = stream, raw_text

    @abstractmethod
    def write(self, part: pa.Table) -> None:
        """Append rows; all parts have the same columns."""

    def close(self) -> None:  # noqa: B027
        """Finish the table; most have nothing left to do."""


def choose_format(path: str) -> str:
    """Format by the ending of a file; CSV on standard output."""
    name = Path(path).name.lower().removesuffix(".gz")
    ending = Path(name).suffix
    if path == STDOUT or ending == "" or path.startswith("/dev/"):
        return "csv"
    if ending not in ENDINGS:
        raise UserError(
            f"The ending of {path} names no format that can be written. Use "
            f"{', '.join(ENDINGS)} (each may end in .gz), or --format."
        )
    return ENDINGS[ending]


@contextmanager
def open_table(path: str, kind: str, raw_text: bool = False) -> Iterator[TableWriter]:
    """A table under construction; a file appears only when it is complete.

    Without `raw_text`, an apostrophe keeps spreadsheets from running text as a formula.
    """
    with open_output(path) as file, _compress(path, file) as stream:
        writer = _WRITERS[kind](stream, raw_text)
        yield writer
        writer.close()


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `path` on success and nothing otherwise."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with replace_file(path) as file:
            yield file


def check_output(path: str) -> None:
    """Refuse an output file whose folder cannot take it, before any work is done."""
    target = Path(os.path.realpath(path))
    if path == STDOUT or (target.exists() and not target.is_dir()):
        return
    if target.is_dir():
        raise UserError(f"{path} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise UserError(f"There is no folder {target.parent}. Make it first.")
    if not os.access(target.parent, os.W_OK):
        raise UserError(f"No permission to write into {target.parent}.")


@contextmanager
def _compress(path: str, file: IO[bytes]) -> Iterator[IO[bytes]]:
    if not path.lower().endswith(".gz"):
        yield file
        return
    # Neither name nor time in the header: equal tables give equal files.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
        yield cast(IO[bytes], stream)


class _TextWriter(TableWriter):
    """Delimited text with a header."""

    delimiter = ","
    _begun = False

    def write(self, part: pa.Table) -> None:
        if not self._begun:
            names = self._cells(pa.chunked_array([part.column_names], pa.string()))
            header = self.delimiter.join(names.to_pylist())
            self._stream.write(header.encode() + b"\n")
            self._begun = True
        cells = [self._cells(column) for column in part.columns]
        lines = pa_compute.binary_join_element_wise(*cells, self.delimiter)
        self._stream.write("\n".join([*lines.to_pylist(), ""]).encode())

    def _cells(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Cells as text, in quotes where they need them; pyarrow would quote all."""
        text = pa_compute.fill_null(column.cast(pa.string()), "")
        if not self._raw_text and not pa.types.is_primitive(column.type):
            text = _disarm(text)
        special = pa_compute.match_substring_regex(text, f'["\r\n{self.delimiter}]')
        if not pa_compute.any(special).as_py():
            return text
        doubled = pa_compute.replace_substring(text, '"', '""')
        quoted = pa_compute.binary_join_element_wise('"', doubled, '"', "")
        return pa_compute.if_else(special, quoted, text)


class _TabWriter(_TextWriter):
    delimiter = "\t"


def _disarm(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text that no spreadsheet runs."""
    formula = pa_compute.match_substring_regex(text, FORMULA)
    number = pa_compute.match_substring_regex(text, NUMBER)
    quoted = pa_compute.binary_join_element_wise("'", text, "")
    return pa_compute.if_else(pa_compute.and_not(formula, number), quoted, text)


class _ParquetWriter(TableWriter):
    """Parquet, one row group per part."""

    _writer: pa_parquet.ParquetWriter | None = None

    def write(self, part: pa.Table) -> None:
        if self._writer is None:
            file = pa.PythonFile(_Positioned(self._stream), mode="w")
            self._writer = pa_parquet.ParquetWriter(file, part.schema)
        self._writer.write_table(part)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class _Positioned(io.RawIOBase):
    """Knows its position, which a pipe does not, and leaves the stream open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._place = stream, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self._place += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place


class _LinesWriter(TableWriter):
    """One JSON object per line; NaN, which JSON does not have, as null."""

    def write(self, part: pa.Table) -> None:
        for row in part.to_pylist():
            line = json.dumps(plain_values(row), ensure_ascii=False)
            self._stream.write(line.encode() + b"\n")


_WRITERS: dict[str, type[TableWriter]] = {
    "csv": _TextWriter,
    "tsv": _TabWriter,
    "parquet": _ParquetWriter,
    "jsonl": _LinesWriter,
}


def plain_values(value: Any) -> Any:
    """A value as JSON can hold it: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | type(None)) else str(value)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(plain_values(value), indent=2, ensure_ascii=False))
