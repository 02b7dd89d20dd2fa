"""Read the first sheet of an Excel file. Needs openpyxl, the extra `excel`."""

import io
from collections.abc import Sequence
from datetime import date, datetime, time
from typing import IO, Any

import pyarrow as pa

from sknimo.cli._errors import UserError


def name_columns(names: Sequence[str]) -> list[str]:
    """Names of columns; one without a name has its position for one."""
    return [
        name if name.strip() else f"unnamed_{place}"
        for place, name in enumerate(names, 1)
    ]


def read_sheet(file: IO[bytes], name: str) -> pa.Table:
    """The first sheet, whose first row has the names of the columns."""
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
        rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
    except Exception as error:  # whatever a damaged file makes of the library
        raise UserError(
            f"{name} is a damaged Excel file, an old one (.xls) or another archive. "
            "Save it as .xlsx or CSV."
        ) from error
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if not rows:
        raise UserError(f"{name} is empty.")
    if len(rows) == 1:
        raise UserError(f"{name} has a header but no rows.")
    header = ["" if cell is None else str(cell) for cell in rows[0]]
    names = name_columns(header)
    columns = {
        column: _read_column([row[k] for row in rows[1:]])
        for k, column in enumerate(names)
        if header[k] or any(row[k] is not None for row in rows[1:])
    }
    if len(columns) < len(names) - header.count(""):
        repeated = next(column for column in names if names.count(column) > 1)
        raise UserError(f"{name} has several columns named {repeated!r}. Rename them.")
    return pa.table(columns)


def _read_column(cells: list[Any]) -> pa.Array:
    """Cells of one column: numbers, truth values or dates if all are, else text."""
    known = [cell for cell in cells if cell is not None]
    if all(isinstance(cell, bool) for cell in known) and known:
        return pa.array(cells, pa.bool_())
    if all(isinstance(cell, int | float) for cell in known):
        return pa.array([None if c is None else float(c) for c in cells], pa.float64())
    if all(isinstance(cell, date | datetime) for cell in known):
        return pa.array(cells, pa.timestamp("us"))
    return pa.array([None if c is None else _show(c) for c in cells], pa.string())


def _show(cell: Any) -> str:
    if isinstance(cell, datetime | time | date):
        return cell.isoformat()
    return f"{cell:g}" if isinstance(cell, float) else str(cell)
