"""Text that is a number or a date in disguise: `12,5`, `45 %`, `1.234,56`.

Such a column would become a category with a level per value, which nobody wants and
nobody sees. Codes with leading zeros, such as `01234`, are names and no disguise.

And numbers that are none: codes of a missing value, such as 999, and identifiers. Of
7,722 columns of 1,000 public tables seven hold such a code, one of them a value that
larger ones were cut to, and all 19 of an identifier's name are one. Whole numbers in a
row without such a name are as often ranks and times.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from sknimo.exceptions import DataWarning
from sknimo.features._bases import Label

# Signs that stand before or after a number and change nothing but its unit.
UNITS = "[$€£¥%‰]"
SIGNS = rf"\s*{UNITS}?\s*"
DATE = re.compile(r"\s*\d{1,4}([-./])\d{1,2}\1\d{1,4}([T ,].*)?")
CODE = re.compile(r"0\d+")
# Decimal point and mark between thousands, in the order in which they are tried.
FORMATS = ((".", ""), (",", ""), (",", "."), (".", ","), (".", " "), (",", " "))
# Text of which at least this share are numbers is a column of numbers.
MOSTLY = 0.5
# Columns of so few whole numbers, each in so many rows, may be codes.
FEW_VALUES = 12
MIN_ROWS_EACH = 5
# Numbers that stand for something else, and names of columns that number the rows.
STAND_IN = re.compile(r"-?(7{2,}|8{2,}|9{2,})")
NUMBERS_ROWS = re.compile(r"(.*[^a-zA-Z])?[iI][dD]|.*[a-z]I[dD]|Unnamed: 0|rownames")
# Rows of such a number at least, other values, and rows that are numbered.
MIN_STAND_INS, MIN_OTHERS, MIN_NUMBERED = 2, 3, 20


@dataclass(frozen=True, slots=True)
class Disguise:
    """What a column of text really holds."""

    is_date: bool
    decimal: str  # what a reader needs to know to read the numbers
    thousands: str
    example: str  # a value that shows it
    other: str | None = None  # the first value that is no number, if any is none
    is_plain: bool = False  # whether they are numbers without any disguise
    may_be_grouped: bool = False  # whether a decimal comma may also part thousands

    def describe(self) -> str:
        """The column in words, to follow its name."""
        what = "dates" if self.is_date else "numbers as text"
        return f"holds {what}, such as {self.example!r}"


@cache
def number_pattern(decimal: str, thousands: str) -> str:
    """Regular expression of a number with these marks, units included."""
    point = re.escape(decimal)
    whole = r"\d+"
    if thousands:
        # Narrow and fixed spaces part thousands like the plain one.
        mark = "[ \xa0\u202f]" if thousands == " " else re.escape(thousands)
        whole = rf"(\d{{1,3}}({mark}\d{{3}})+|\d+)"
    exponent = r"([eE][-+]?\d+)?"
    return rf"^{SIGNS}[-+]?({whole}({point}\d*)?|{point}\d+){exponent}{SIGNS}$"


def find_disguise(labels: Mapping[str, int] | Iterable[str]) -> Disguise | None:
    """What most labels are if they are no names; a mapping counts the rows of each."""
    counts = labels if isinstance(labels, Mapping) else Counter(labels)
    total = sum(counts.values())
    if not total:
        return None
    dates = sum(n for label, n in counts.items() if DATE.fullmatch(label))
    if dates > MOSTLY * total:
        first = next(label for label in counts if DATE.fullmatch(label))
        return Disguise(True, ".", "", first)
    matched = {
        marks: sum(n for label, n in counts.items() if is_number(label, *marks))
        for marks in FORMATS
    }
    best = max(FORMATS, key=lambda marks: matched[marks])
    if matched[best] < MOSTLY * total or is_code(counts):
        return None
    plain = {
        label
        for label in counts
        if is_number(label, ".", "") and not re.search(UNITS, label)
    }
    known = [label for label in counts if is_number(label, *best)]
    shows = [label for label in known if label not in plain]
    other = next((label for label in counts if label not in known), None)
    grouped = best == (",", "") and all(is_number(label, ".", ",") for label in known)
    return Disguise(False, *best, (shows or known)[0], other, not shows, grouped)


def is_number(text: str, decimal: str, thousands: str) -> bool:
    """Whether a text is a number with these marks."""
    return re.match(number_pattern(decimal, thousands), text) is not None


def is_code(labels: Iterable[str]) -> bool:
    """Whether some labels are whole numbers that begin with a zero."""
    return any(CODE.fullmatch(label.strip()) for label in labels)


def may_be_codes(column: np.ndarray) -> bool:
    """Whether a column of numbers holds so few whole ones that they may be codes."""
    values = np.unique(column[~np.isnan(column)])
    whole = bool((values == np.round(values)).all())
    few = 2 < len(values) <= FEW_VALUES
    return whole and few and len(values) * MIN_ROWS_EACH <= len(column)


def find_stand_in(values: np.ndarray, n_rows: np.ndarray) -> int | None:
    """Place of a value that looks like a code; they increase, each in so many rows.

    It is as far from all others as these are from each other, or farther.
    """
    if len(values) <= MIN_OTHERS:
        return None
    for at, near, far in ((len(values) - 1, -2, 0), (0, 1, -1)):
        apart = abs(values[at] - values[near]) > abs(values[near] - values[far])
        seen = n_rows[at] >= MIN_STAND_INS
        if seen and apart and STAND_IN.fullmatch(f"{values[at]:.12g}"):
            return at
    return None


def numbers_rows(name: str, values: np.ndarray, n_rows: int) -> bool:
    """Whether a column with these distinct values in so many rows is an identifier."""
    each = len(values) == n_rows >= MIN_NUMBERED and (values == np.round(values)).all()
    return bool(each and NUMBERS_ROWS.fullmatch(name))


def warn_disguise(levels: Sequence[Label], name: str) -> None:
    """Warn of text that is a number or a date in disguise."""
    found = find_disguise([level for level in levels if isinstance(level, str)])
    if found is None or len(levels) < 2:
        return
    warnings.warn(
        f"Column {name!r} {found.describe()}: each value is taken for a level. Convert "
        f"it to numbers first, or say categorical=[{name!r}] if levels are meant.",
        DataWarning,
        stacklevel=2,
    )
