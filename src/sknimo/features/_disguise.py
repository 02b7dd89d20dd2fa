"""Text that is a number or a date in disguise: `12,5`, `45 %`, `1.234,56`.

Such a column would become a category with a level per value, which nobody wants and
nobody sees. Codes with leading zeros, such as `01234`, are names and no disguise.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

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
