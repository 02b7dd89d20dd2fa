"""Read tables in batches: CSV, TSV, Parquet, any of them gzipped, files or stdin.

Text is recognised by its content, not by its name: gzip, Parquet and Excel by their
first bytes, the delimiter by the header. Rows arrive in batches, so that memory does
not grow with the file; training reads all of them. An Excel sheet is read whole, as if
it had been saved as text: the same rules hold for its cells.

The types of text columns are taken from the first rows, whole numbers as floats, codes
with leading zeros as text. A model that is already fitted knows better: a text column
stays text even if all of it looks like numbers.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from sknimo.cli._errors import UserError
from sknimo.cli._numbers import Marks, advise_reading, holds_codes, is_text
from sknimo.rows import refuse_damage

STDIN = "-"
# What one batch of text holds; the first one tells delimiter and types.
BLOCK_BYTES = 4 << 20
PARQUET_ROWS = 1 << 16
DELIMITERS = ",\t;|"
GZIP, PARQUET, EXCEL = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
OLD_EXCEL = b"\xd0\xcf\x11\xe0"

# Python's own handling of an interrupt is all that is needed.
pa.enable_signal_handlers(False)


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How text is to be read."""

    delimiter: str | None = None  # character between cells; None looks at the header
    encoding: str = "utf-8"
    marks: Marks = Marks()
    numeric: Sequence[str] = ()  # columns of numbers although they look like codes


class _BadNumberError(UserError):
    """A cell that should be a number."""


class TableReader:
    """A table that is read once, from its first row to its last.

    Attributes
    ----------
    name : str
        What messages call it.
    codes : list of str
        Columns of numbers that were left as text because some begin with a zero, or are
        too long.
    schema : pyarrow.Schema
        Names and types of its columns.
    """

    def __init__(self, path: str, text: TextFormat | None = None) -> None:
        self.name = "standard input" if path == STDIN else path
        self._stack = ExitStack()
        self._raw = self._stack.enter_context(_open_bytes(path))
        self._size = _file_size(self._raw)
        self._rows: tuple[int, int] | None = None
        text = text or TextFormat()
        self._encoding, self._marks = text.encoding, text.marks
        self.codes: list[str] = []
        try:
            with self._refuse_damage():
                self._open(text)
            _refuse_repeats(self.schema.names, self.name)
        except BaseException:
            self.close()
            raise

    def _open(self, text: TextFormat) -> None:
        head, stream = _look(self._raw)
        is_zipped = head.startswith(GZIP)
        if is_zipped:
            unzipped = self._stack.enter_context(gzip.GzipFile(fileobj=stream))
            head, stream = _look(unzipped)
        self._parquet: pa_parquet.ParquetFile | None = None
        if head.startswith(PARQUET):
            self._open_parquet(stream, is_zipped or self._size is None, text)
        elif head.startswith((EXCEL, OLD_EXCEL)):
            sheet = read_sheet(io.BufferedReader(stream), self.name, self._marks)
            text = replace(text, delimiter=",", encoding="utf-8")
            self._open_text(_Stream(io.BytesIO(sheet).read), text)
        else:
            if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                text = replace(text, encoding="utf-16")
            self._open_text(stream, text)

    def _open_parquet(self, stream: _Stream, is_stream: bool, text: TextFormat) -> None:
        source: IO[bytes] = self._raw
        if is_stream:  # Parquet is read from its end: it must be put down first
            source = self._stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(cast(IO[bytes], io.BufferedReader(stream)), source)
        source.seek(0)
        with refuse_damage(self.name):
            self._parquet = pa_parquet.ParquetFile(source)
        self.schema = self._parquet.schema_arrow
        self._rows, self._line = (0, self._parquet.metadata.num_rows), 0
        if text.numeric or not self._marks.is_usual:  # some text may be numbers
            numeric = split_names(text.numeric, self.schema.names)
            with refuse_damage(self.name):
                some = self._parquet.iter_batches(PARQUET_ROWS)
                head = pa.Table.from_batches([*islice(some, 1)], self.schema)
            for k, field in enumerate(self.schema):
                if is_text(field.type):
                    known = self._judge(field, head[field.name], numeric)
                    self.schema = self.schema.set(k, known)

    def _open_text(self, stream: _Stream, text: TextFormat) -> None:
        try:
            "".encode(text.encoding)
        except (LookupError, ValueError) as error:
            raise UserError(
                f"There is no encoding {text.encoding!r} of text; utf-8 and latin-1 "
                "are two."
            ) from error
        comma = text.delimiter or ","
        if len(comma) > 1 or not comma.isascii() or comma in '\0\r\n"':
            raise UserError(
                f"--delimiter needs one ASCII character, got {text.delimiter!r}."
            )
        self._blocks = _read_blocks(stream, text.encoding)
        first = next(self._blocks, b"")
        if not first.strip():
            raise UserError(f"{self.name} is empty.")
        begin = len(first) - len(first.lstrip(b"\r\n"))
        end = _find_row_end(first[begin:]) + begin
        header, self._first = first[begin:end], first[end:]
        self._line = first.count(b"\n", 0, end)
        self._delimiter = text.delimiter or _find_delimiter(header.decode())
        names = name_columns(self._parse(header, None, None).column_names)
        if not self._first.strip():
            raise UserError(f"{self.name} has a header but no rows.")
        _refuse_repeats(names, self.name)
        found = self._parse(self._first, names, None, lenient=True).schema
        texts = self._parse(
            self._first, names, dict.fromkeys(names, pa.string()), lenient=True
        )
        numeric = split_names(text.numeric, names)
        fields = [self._judge(field, texts[field.name], numeric) for field in found]
        self.schema = pa.schema(fields)

    def _judge(
        self, field: pa.Field, cells: pa.ChunkedArray, numeric: Collection[str]
    ) -> pa.Field:
        """Type of a column by its first rows: what pyarrow found, codes, or numbers."""
        name, kind = field.name, field.type
        if pa.types.is_integer(kind) and name not in numeric and holds_codes(cells):
            self.codes.append(name)
            return pa.field(name, pa.string())
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if is_text(kind) or (is_number and not self._marks.is_usual):
            fits = name in numeric or self._marks.fits(cells)
            return pa.field(name, pa.float64() if fits else pa.string())
        # Whole numbers and empty columns as floats: later rows may hold any number.
        if is_number or pa.types.is_null(kind):
            return pa.field(name, pa.float64())
        return field

    def _parse(
        self,
        block: bytes,
        names: list[str] | None,
        types: Mapping[str, pa.DataType] | None,
        lenient: bool = False,
    ) -> pa.Table:
        """Whole lines to a table; without names the first line has them."""
        try:
            return pa_csv.read_csv(
                pa.BufferReader(block if block.endswith(b"\n") else block + b"\n"),
                read_options=pa_csv.ReadOptions(
                    column_names=names, block_size=len(block) + 1, use_threads=False
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=(lambda row: "skip") if lenient else None,
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=types and dict(types),
                    include_columns=types and list(types),
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._explain(str(error), block) from error

    def batches(
        self,
        columns: Collection[str] | None = None,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> Iterator[pa.Table]:
        """Some columns, batch by batch, where `types` overrides what was found."""
        names = self.schema.names if columns is None else list(columns)
        check_names(self, names)
        wanted = {name: self.schema.field(name).type for name in names}
        wanted |= {name: kind for name, kind in (types or {}).items() if name in wanted}
        if self._parquet is not None:
            yield from self._parquet_batches(self._parquet, wanted)
            return
        with self._refuse_damage():
            block = self._first
            while block:
                if block.strip():
                    yield self._read_cells(block, wanted)
                self._line += block.count(b"\n")
                block = next(self._blocks, b"")

    def _read_cells(self, block: bytes, wanted: Mapping[str, pa.DataType]) -> pa.Table:
        """A block with the types wanted; people's numbers are read from their text."""
        names, floats = self.schema.names, pa.types.is_floating
        try:
            if self._marks.is_usual:
                return self._parse(block, names, wanted)
        except _BadNumberError:  # perhaps a unit, which the text will show
            pass
        types = {name: pa.string() if floats(t) else t for name, t in wanted.items()}
        table = self._parse(block, names, types)
        for place, (name, kind) in enumerate(wanted.items()):
            if floats(kind):
                refuse = partial(self._bad_cell, name, block=block)
                column = self._marks.read(table[name], refuse)
                table = table.set_column(place, name, column)
        return table

    def _bad_cell(self, name: str, row: int, text: str, block: bytes) -> UserError:
        advice = advise_reading(text) or "Mend or empty that cell"
        return _BadNumberError(
            f"{self.name}, {self._place(block, row)}: column {name!r} holds "
            f"{text!r}, not a number. {advice}."
        )

    def _place(self, block: bytes, row: int) -> str:
        """Where a row of a block stands, in words; lines and rows count from one."""
        if self._parquet is not None:
            return f"row {self._line + row + 1}"
        return f"line {self._line + _lines_before(block, row, self._delimiter) + 1}"

    def _parquet_batches(
        self, file: pa_parquet.ParquetFile, wanted: Mapping[str, pa.DataType]
    ) -> Iterator[pa.Table]:
        with refuse_damage(self.name):
            for batch in file.iter_batches(PARQUET_ROWS, columns=list(wanted)):
                table = pa.Table.from_batches([batch])
                yield self.convert(table, self._line, wanted)
                self._line += batch.num_rows
                self._rows = (self._line, file.metadata.num_rows)

    def convert(
        self, table: pa.Table, row: int, wanted: Mapping[str, pa.DataType]
    ) -> pa.Table:
        """Rows of a Parquet file from some row on, in the types wanted."""
        self._line, table = row, table.select(list(wanted))
        for place, (name, kind) in enumerate(wanted.items()):
            column = self._convert(table[name], name, kind)
            table = table.set_column(place, name, column)
        return table

    def _convert(
        self, column: pa.ChunkedArray, name: str, kind: pa.DataType
    ) -> pa.ChunkedArray:
        """A column with numbers or text as wanted, where it holds the other."""
        if pa.types.is_floating(kind) and is_text(column.type):
            return self._marks.read(column, partial(self._bad_cell, name, block=b""))
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(
            column.type
        )
        return _write_numbers(column) if is_text(kind) and is_number else column

    def read(
        self,
        columns: Collection[str] | None = None,
        types: Mapping[str, pa.DataType] | None = None,
    ) -> pa.Table:
        """All rows of some columns."""
        batches = list(self.batches(columns, types))
        if not sum(map(len, batches)):
            raise UserError(f"{self.name} has no rows.")
        return pa.concat_tables(batches)

    @property
    def progress(self) -> float | None:
        """Share of the table that has been read, None when unknown."""
        if self._rows is not None:
            done, total = self._rows
            return done / max(total, 1)
        return None if self._size is None else self._raw.tell() / max(self._size, 1)

    @contextmanager
    def _refuse_damage(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{self.name} is a damaged gzip file.") from error
        except UnicodeError as error:
            raise UserError(
                f"{self.name} is not encoded in {self._encoding}. Say how it is, for "
                "example with --encoding latin-1."
            ) from error

    def _explain(self, message: str, block: bytes) -> UserError:
        """What pyarrow says about a bad cell or line, with a remedy."""
        cell = re.search(
            r"CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): "
            r"invalid value '(.*)'",
            message,
            re.S,
        )
        if cell:
            column, row, kind, value = cell.groups()
            name = self.schema.names[int(column)]
            if kind == "double":
                return self._bad_cell(name, int(row) - 1, value, block)
            wanted = {"bool": "true or false"}.get(kind, kind)
            place = self._place(block, int(row) - 1)
            return UserError(
                f"{self.name}, {place}: column {name!r} holds {value!r}, not {wanted}. "
                "Mend or empty that cell."
            )
        width = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
        if width:
            row, expected, found = width.groups()
            place = self._place(block, int(row) - 1)
            return UserError(
                f"{self.name}, {place}: {found} cells where the header has {expected}. "
                f"Is {self._delimiter!r} the delimiter (--delimiter)?"
            )
        return UserError(f"{self.name} cannot be read: {message}")

    def close(self) -> None:
        """Close all files."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Stream(io.RawIOBase):
    """What a function reads, after a head that has been read; its source stays open."""

    def __init__(self, read: Callable[[int], bytes], head: bytes = b"") -> None:
        self._read, self._head = read, head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        part = self._head[:size] or self._read(size)
        self._head = self._head[size:]
        buffer[: len(part)] = part
        return len(part)


def _look(source: Any, size: int = 4) -> tuple[bytes, _Stream]:
    """The first bytes of a stream, and all of it."""
    head = b""
    while len(head) < size and (more := source.read(size - len(head))):
        head += more
    return head, _Stream(source.read, head)


def _open_bytes(path: str) -> IO[bytes]:
    if path == STDIN:
        # What is there is taken at once: more may be long in coming.
        return cast(IO[bytes], _Stream(cast(io.BufferedReader, sys.stdin.buffer).read1))
    if Path(path).is_dir():
        raise UserError(f"{path} is a folder, not a file.")
    return open(path, "rb")


def _file_size(file: IO[bytes]) -> int | None:
    """Bytes of a regular file, None for a stream."""
    try:
        return os.fstat(file.fileno()).st_size if file.seekable() else None
    except OSError:
        return None


def _read_blocks(stream: _Stream, encoding: str) -> Iterator[bytes]:
    """Text in blocks of whole rows, in UTF-8 and without a byte order mark."""
    decode = codecs.getincrementaldecoder(encoding)().decode
    rest, at_end, at_start, is_old = b"", False, True, False
    while not at_end:
        while len(rest) < BLOCK_BYTES and not at_end:
            more = stream.read(BLOCK_BYTES)
            at_end = not more
            rest += decode(more or b"", at_end).encode()
        if at_start:
            rest, at_start = rest.removeprefix(codecs.BOM_UTF8), False
            is_old = b"\r" in rest and b"\n" not in rest  # as once on a Macintosh
        if is_old:
            rest = rest.replace(b"\r", b"\n")
        end = len(rest) if at_end else _find_row_end(rest, last=True)
        if end:
            yield rest[:end]
            rest = rest[end:]


def _find_row_end(block: bytes, last: bool = False) -> int:
    """Where the first or last whole row of a block ends; 0 if the last row is the only.

    A line break ends a row if the quotes before it come in pairs.
    """
    end = len(block) if last else 0
    while True:
        found = block.rfind(b"\n", 0, end) if last else block.find(b"\n", end)
        if found < 0:
            return 0 if last else len(block)
        if block.count(b'"', 0, found) % 2 == 0:
            return found + 1
        end = found if last else found + 1


def _lines_before(block: bytes, row: int, delimiter: str) -> int:
    """Lines of a block before a row: breaks in quotes make more, empty ones no row."""
    lines = io.StringIO(block.decode(errors="replace"), newline="")
    reader, before, seen = csv.reader(lines, delimiter=delimiter), 0, -1
    with suppress(csv.Error):
        for cells in reader:
            seen += bool(cells)
            if seen == row:
                return before
            before = reader.line_num
    return row


def _write_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as text, as a model that knows them as text has them."""
    cells = [_show(cell, Marks()) or None for cell in column.to_pylist()]
    return pa.chunked_array([pa.array(cells, pa.string())])


def _find_delimiter(header: str) -> str:
    """The character that parts the cells of the header, a comma when none does."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def _refuse_repeats(names: list[str], source: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"{source} has {names.count(name)} columns named {name!r}. Rename all "
                "but one of them."
            )


def read_numbers(table: pa.Table, name: str | None) -> np.ndarray | None:
    """A column of numbers, NaN where missing; None for no name."""
    if name is None:
        return None
    column = table[name]
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise UserError(f"Column {name!r} holds {column.type}, not numbers.")
    return np.array(column.cast(pa.float64(), safe=False).to_numpy())


def split_names(given: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Names from repeated options; a comma parts names unless a name has one."""
    out: list[str] = []
    for text in given:
        known = text in columns
        out += [text] if known else [part.strip() for part in text.split(",")]
    return tuple(name for name in out if name)


def check_names(reader: TableReader, names: Collection[str]) -> None:
    """Refuse names that are no columns of a table."""
    for name in names:
        if name not in reader.schema.names:
            raise no_column(reader.name, name, reader.schema.names)


def no_column(source: str, name: str, names: Sequence[str]) -> UserError:
    """The refusal of a name that is not there, with the one that may be meant."""
    alike = {each.strip().lower(): each for each in names}
    near = difflib.get_close_matches(name.strip().lower(), alike, 1, 0.75)
    hint = f" Did you mean {alike[near[0]]!r}?" if near else ""
    return UserError(
        f"{source} has no column {name!r}.{hint} Its columns are {list_names(names)}."
    )


def list_names(names: Collection[str], limit: int = 12) -> str:
    """Names in quotes, cut after some."""
    shown = ", ".join(repr(name) for name in list(names)[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def name_columns(names: Sequence[str]) -> list[str]:
    """Names of columns; one without a name has its position for one."""
    return [
        name if name.strip() else f"unnamed_{place}"
        for place, name in enumerate(names, 1)
    ]


def read_sheet(file: IO[bytes], name: str, marks: Marks) -> bytes:
    """The first sheet as CSV, whose first row has the names of the columns."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(
            f"{name} is an Excel file, and reading it needs openpyxl: pip install "
            "'sknimo[excel]'. Or save it as CSV."
        ) from error
    try:
        # An archive is read from its end, so a stream must be put down first.
        whole = io.BytesIO(file.read())
        book = load_workbook(whole, read_only=True, data_only=True)
        rows = [
            [_show(cell, marks) for cell in row]
            for row in book.worksheets[0].iter_rows(values_only=True)
        ]
    except Exception as error:  # whatever a damaged file makes of the library
        raise UserError(
            f"{name} is a damaged Excel file, an old one (.xls) or another archive. "
            "Save it as .xlsx or CSV."
        ) from error
    width = max(map(len, rows), default=0)
    used = [k for k in range(width) if any(row[k : k + 1] > [""] for row in rows)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    begun = False
    for row in rows:
        if not any(row):
            out.write("\n")  # keeps lines what they are in the sheet
            continue
        cells = [*row, *[""] * (width - len(row))]
        if not begun:
            cells, begun = name_columns(cells), True
        writer.writerow([cells[k] for k in used])
    return out.getvalue().encode()


def _show(cell: Any, marks: Marks) -> str:
    """A cell as text, with all digits of a number and the decimal mark that is read."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < 1e15
        return str(int(cell)) if is_whole else repr(cell).replace(".", marks.decimal)
    if isinstance(cell, bool):
        return str(cell).lower()
    return cell.isoformat() if isinstance(cell, time | date) else str(cell)
