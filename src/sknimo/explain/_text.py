"""Names, levels and numbers as readers see them.

Names and levels come from data and may hold anything. Whatever is printed in columns
goes through `clean` and is measured by `width_of`, so that a line break, a tab or a
wide character cannot break a table.
"""

import math
import unicodedata
from collections.abc import Sequence

from sknimo.features import MISSING_LABEL, Label

NOT_KNOWN = "-"


def clean(text: object) -> str:
    r"""Text in which nothing moves the cursor: control characters are written out.

    Examples
    --------
    >>> clean("two\nlines"), clean("naïve")
    ('two\\nlines', 'naïve')
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in str(text)
    )


def width_of(text: str) -> int:
    """Columns that a text takes in a terminal.

    Examples
    --------
    >>> width_of("age"), width_of("年齢")
    (3, 4)
    """
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: object, width: int) -> str:
    """Clean text of at most `width` columns; `~` says that something is missing."""
    whole = clean(text)
    if width_of(whole) <= width:
        return whole
    kept, used = "", 0
    for char in whole:
        used += _char_width(char)
        if used > width - 1:
            break
        kept += char
    return kept + "~"


def pad(text: str, width: int) -> str:
    """Text filled with spaces to a number of columns."""
    return text + " " * max(width - width_of(text), 0)


def wrap(text: str, width: int, head: str = "", indent: str = "  ") -> list[str]:
    """Lines of at most `width` columns, broken at spaces, or within a long word.

    `head` opens the first line, `indent` all others.

    Examples
    --------
    >>> wrap("one two three", 9)
    ['one two', '  three']
    """
    lines, line, fresh = [], head, True
    for word in clean(text).split(" "):
        gap = "" if fresh else " "
        if not fresh and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line, gap = indent, ""
        while width_of(line) + width_of(gap + word) > width:
            room = width - width_of(line)
            fits = cut(word, room + 1)[:-1]
            if not fits:  # not even one character: go on below
                lines.append(line)
                line = indent
                continue
            lines.append(line + fits)
            line, word = indent, word[len(fits) :]
        line, fresh = line + gap + word, False
    return [*lines, line]


def show_number(value: float | None, digits: int = 4) -> str:
    """A number in a few digits, a dash where it is not known."""
    if value is None or math.isnan(value):
        return NOT_KNOWN
    return f"{value:.{digits}g}"


def show_value(
    value: float, levels: Sequence[Label] | None, quote: bool = False
) -> str:
    """A value of a feature as its reader knows it: levels by name, NaN as missing.

    Examples
    --------
    >>> show_value(1.0, ("man", "woman")), show_value(float("nan"), None)
    ('woman', 'missing')
    >>> show_value(54.21875, None), show_value(0.0, ("man",), quote=True)
    ('54.22', "'man'")
    """
    if math.isnan(value):
        return MISSING_LABEL
    if levels is None:
        return f"{value:.4g}"
    level = levels[int(value)]
    return clean(repr(level) if quote and isinstance(level, str) else level)
