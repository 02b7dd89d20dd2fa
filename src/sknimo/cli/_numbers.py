"""Numbers as people write them: read where that is safe, refused with an option if not.

`45 %` and `$ 12` are read as 45 and 12, and `01234` stays a code. A decimal comma or a
mark between thousands is read when an option names it: `1,234` may be either.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pa_compute

from sknimo.cli._errors import UserError
from sknimo.features import (
    Disguise,
    find_disguise,
    is_code,
    may_be_codes,
    number_pattern,
)

UNITS = "[$€£¥%‰]"
# Whole numbers that not all floats tell apart.
LONG = re.compile(r"[+-]?\d{16,}")
# Names that a column without one has been given.
NAMELESS = ("Unnamed: 0", "__index_level_0__", "unnamed_1")


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands in numbers besides digits."""

    decimal: str = "."
    thousands: str = ""

    def __post_init__(self) -> None:
        for option, mark in (("decimal", self.decimal), ("thousands", self.thousands)):
            if len(mark) > 1 or mark.isalnum():
                raise UserError(
                    f"--{option} needs one character such as a comma, got {mark!r}."
                )
        if self.decimal == self.thousands or not self.decimal:
            raise UserError(
                "--decimal and --thousands must be two different characters."
            )

    @property
    def is_usual(self) -> bool:
        """Whether numbers are written as programs write them."""
        return self == Marks()

    def fits(self, column: pa.ChunkedArray) -> bool:
        """Whether all text of a column are numbers with one unit or none."""
        hit = pa_compute.match_substring_regex(column, self._pattern)
        if column.null_count == len(column) or not pa_compute.all(hit).as_py():
            return False
        # A bare number among percentages may be a share.
        sign = pa_compute.replace_substring_regex(column, f"[^{UNITS[1:]}", "")
        return len(pa_compute.unique(sign.drop_null())) == 1

    def read(
        self, column: pa.ChunkedArray, refuse: Callable[[int, str], Exception]
    ) -> pa.ChunkedArray:
        """Text as numbers; `refuse` makes the error for a row and its text."""
        hit = pa_compute.match_substring_regex(column, self._pattern)
        good = pa_compute.fill_null(hit, True).to_numpy()
        if not good.all():
            row = int(np.argmin(good))
            raise refuse(row, column[row].as_py())
        text = pa_compute.replace_substring_regex(column, f"{UNITS}|\\s", "")
        if self.thousands:
            mark = "[ \xa0\u202f]" if self.thousands == " " else f"[{self.thousands}]"
            text = pa_compute.replace_substring_regex(text, mark, "")
        text = pa_compute.replace_substring(text, self.decimal, ".")
        return text.cast(pa.float64())

    @property
    def _pattern(self) -> str:
        return number_pattern(self.decimal, self.thousands)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def holds_codes(column: pa.ChunkedArray) -> bool:
    """Whether some text of a column is a whole number with a zero in front.

    Or one of more digits than a float holds: then different ones would become equal.
    """
    cells = pa_compute.unique(column).drop_null().to_pylist()
    return is_code(cells) or any(LONG.fullmatch(cell.strip()) for cell in cells)


def refuse_disguise(
    column: pa.ChunkedArray, name: str, is_target: bool, first_row: int
) -> None:
    """Refuse text that is a number or a date, with the option that helps."""
    if not is_text(column.type):
        return
    counted = column.drop_null().value_counts()
    counts = {each["values"].as_py(): each["counts"].as_py() for each in counted}
    found = find_disguise(counts)
    if found is None or (is_target and len(counts) == 2):
        return
    as_levels = "" if is_target else f", or say --categorical {name}"
    if found.is_date:
        raise UserError(
            f"Column {name!r} {found.describe()}. Make a number with a meaning of it, "
            f"such as days since a start, or leave it out with --drop {name}."
        )
    if found.other is not None:
        row = first_row + pa_compute.index(column, found.other).as_py() + 1
        shown = "" if found.is_plain else f" such as {found.example!r}"
        raise UserError(
            f"Column {name!r} holds numbers{shown} but for {found.other!r} in row "
            f"{row}. Mend or empty that cell{as_levels}."
        )
    raise UserError(
        f"Column {name!r} {found.describe()}. {_advise(found, name)}{as_levels}."
    )


def _advise(found: Disguise, name: str) -> str:
    """The option that reads the numbers of a column."""
    if found.may_be_grouped:
        return "Say --decimal ',' or --thousands ','"
    options = "" if found.decimal == "." else f" --decimal '{found.decimal}'"
    options += f" --thousands '{found.thousands}'" if found.thousands else ""
    if options:
        return f"Say{options}"
    if found.is_plain:
        return f"Say --numeric {name}"
    return "Write all of its numbers in one way and one unit"


def advise_reading(text: str) -> str:
    """The options that read one cell as a number, empty where there are none."""
    found = find_disguise([text])
    if found is None or found.is_date or (found.decimal, found.thousands) == (".", ""):
        return ""
    return _advise(found, "")


def remark_on(
    X: pa.Table, categorical: Collection[str], remark: Callable[[str], None]
) -> None:
    """Tell of numbers that may be codes, and of a column that counts the rows."""
    few, counting = [], []
    for name in X.column_names:
        if name in categorical or not pa.types.is_floating(X[name].type):
            continue
        if may_be_codes(X[name].to_numpy()):
            few.append(name)
        elif counts_rows(X[name]):
            counting.append(name)
    if few:
        remark(
            f"few whole numbers, taken as numbers: {', '.join(few)}. If they are "
            f"codes: --categorical {','.join(few)}"
        )
    if counting:
        remark(
            f"{', '.join(counting)} only counts the rows. To leave it out: --drop "
            f"{','.join(counting)}"
        )


def counts_rows(column: pa.ChunkedArray) -> bool:
    """Whether a column numbers the rows from zero or one on."""
    if column.null_count or len(column) < 3 or is_text(column.type):
        return False
    values: Any = column.to_numpy()
    if not np.issubdtype(values.dtype, np.number):
        return False
    steps = np.arange(len(values))
    return bool(values[0] in (0, 1) and (values == values[0] + steps).all())


def leave_out_index(
    table: pa.Table, used: Collection[str | None], remark: Callable[[str], None]
) -> pa.Table:
    """The table without a nameless column that only counts the rows."""
    for name in NAMELESS:
        if name in table.column_names and name not in used:
            if counts_rows(table[name]):
                remark("left out a column without a name, which counts the rows.")
                table = table.drop_columns([name])
    return table
