"""Numbers and names as readers see them.

Names come from data and may hold anything: they are cleaned here once and escaped
where they enter HTML or SVG.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence

from sknimo.features import MISSING_LABEL, Label

MINUS = "\N{MINUS SIGN}"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
UNKNOWN = "\N{EN DASH}"
# Thousands are grouped from here on.
GROUPED = 1e4


def show_number(value: float | None, digits: int = 4, signed: bool = False) -> str:
    """A number with a few significant digits, a true minus and grouped thousands.

    Below ten thousand nothing is grouped: it may be a year.

    Examples
    --------
    >>> show_number(0.000123456), show_number(1234567.8), show_number(0.5, signed=True)
    ('0.0001235', '1,234,568', '+0.5')
    >>> show_number(6.02e23), show_number(2006.0), show_number(None), show_number(-2.0)
    ('6.02e23', '2006', '–', '−2')
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return ("+" if signed else "") + "∞" if value > 0 else f"{MINUS}∞"
    rounded = float(f"{value:.{digits}g}")
    size = abs(rounded)
    if size == 0:
        return "0"
    if 1e-4 <= size < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{abs(value):{',' if size >= GROUPED else ''}.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    sign = MINUS if rounded < 0 else "+" if signed else ""
    return sign + text


def show_value(value: float, levels: Sequence[Label] | None) -> str:
    """A value of a feature as its reader knows it: a level by its name."""
    if math.isnan(value):
        return MISSING_LABEL
    return show_number(value) if levels is None else clean_text(levels[int(value)])


def show_fixed(value: float, decimals: int) -> str:
    """A signed number with a given number of decimals, for columns that line up.

    Examples
    --------
    >>> show_fixed(3.6489, 2), show_fixed(-0.001, 2)
    ('+3.65', '0.00')
    """
    text = f"{abs(value):{',' if abs(value) >= GROUPED else ''}.{decimals}f}"
    if float(f"{value:.{decimals}f}") == 0:  # a sign would claim what is not shown
        return text
    return ("+" if value > 0 else MINUS) + text


def show_range(low: float, high: float) -> str:
    """Two signed ends with the same number of decimals.

    Examples
    --------
    >>> show_range(0.1938, 0.41), show_range(-2.0, 1e9)
    ('+0.194 to +0.410', '−2 to +1e9')
    """
    if low == high:
        return show_number(low, 3)
    if not 1e-4 <= max(abs(low), abs(high)) < 1e7:
        return " to ".join(show_number(end, 3, signed=True) for end in (low, high))
    decimals = common_decimals((low, high))
    return " to ".join(show_fixed(end, decimals) for end in (low, high))


def common_decimals(values: Iterable[float], digits: int = 3) -> int:
    """Decimals that show the largest of some numbers with a few significant digits."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0 or not math.isfinite(largest):
        return 0
    return min(max(digits - 1 - math.floor(math.log10(largest)), 0), 12)


def show_percent(share: float | None) -> str:
    """A share in percent, with a thin space before the sign."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    text = f"{100 * share:.1f}".replace("-", MINUS)
    return f"{text}\N{NARROW NO-BREAK SPACE}%"


def show_count(count: int, noun: str) -> str:
    """A number with its noun: "1 row", "1,200 rows"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def clean_text(text: object) -> str:
    """Text without control characters or halves of surrogate pairs."""
    return "".join(
        REPLACEMENT if unicodedata.category(char) in ("Cc", "Cs") else char
        for char in str(text)
    )


def cut_text(text: str, width: int) -> str:
    """Text cut to a width, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def join_words(words: Iterable[str], most: int = 5) -> str:
    """Join words by commas and "and"; the rest beyond `most` is counted.

    Examples
    --------
    >>> join_words(["a", "b", "c"]), join_words("abcdefg", most=3)
    ('a, b and c', 'a, b, c and 4 more')
    """
    items = list(words)
    if len(items) > most + 1:
        items = [*items[:most], f"{len(items) - most:,} more"]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
