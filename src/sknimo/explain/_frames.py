"""Names, levels and numbers as readers see them, and data frames in and out.

Names and levels come from data and may hold anything. Whatever is printed in columns
goes through `clean` and is measured by `width_of`, so that a line break, a tab or a
wide character cannot break a table. Frames are of whatever library the input came
from: none is imported here, narwhals finds the one in use.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np

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


def align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of a table: a name, cut to its column, then cells to the right.

    Examples
    --------
    >>> align(("age", "1.5", "12"), (6, 5, 4))
    'age     1.5  12'
    """
    line = pad(cut(cells[0], widths[0] - 1), widths[0])
    for text, width in zip(cells[1:], widths[1:], strict=True):
        line += " " * max(width - width_of(text), 1) + text
    return line.rstrip()


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
    """A number in a few digits, a dash where it is not known.

    Below a million without an exponent, which takes more room than it saves.
    """
    if value is None or math.isnan(value):
        return NOT_KNOWN
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


# Whole numbers below this, of up to ten digits, are written out: they may be dates.
WHOLE = 1e10


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
    >>> show_value(202004.0, None), show_value(70321.7, None)
    ('202004', '70320')
    """
    if math.isnan(value):
        return MISSING_LABEL
    if levels is None:
        whole = float(value).is_integer() and abs(value) < WHOLE
        return f"{value:.0f}" if whole else show_number(value)
    level = levels[int(value)]
    return clean(repr(level) if quote and isinstance(level, str) else level)


# Rows that a notebook shows, and letters of a record without a table.
MAX_HTML_ROWS = 30
TITLE = 200
# Of tables in notebooks: numbers to the right, no colours of their own.
HTML_STYLE = (
    "<style>.sknimo table{border-collapse:collapse;margin:.6em 0;"
    "font-variant-numeric:tabular-nums}.sknimo td,.sknimo th{text-align:right;"
    "padding:.15em .7em;border:0;white-space:nowrap}.sknimo thead th,"
    ".sknimo tbody tr:last-child>*{border-bottom:1px solid currentColor}"
    ".sknimo th.name,.sknimo .facts th{text-align:left;font-weight:normal}"
    ".sknimo p{max-width:46em}</style>"
)


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Where a table came from, so that results can go back there."""

    backend: Any = None  # data frame library of the input, None for an array
    index: Any = None  # row labels of the input, where its library has any

    def take(self, rows: Any) -> Origin:
        """The same for some of the rows."""
        return Origin(self.backend, None if self.index is None else self.index[rows])


def find_origin(X: Any) -> Origin:
    """Read library and row labels off a table."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return Origin()
    return Origin(frame.implementation, nw.maybe_get_index(frame))


class Shown:
    """A record that notebooks show as a table, and everything else as text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        title = repr(self).partition("\n")[0]
        if not hasattr(self, "to_frame"):
            return (
                f'<div class="sknimo"><pre>{escape(clean(title[:TITLE]))}</pre></div>'
            )
        if title.startswith(f"{type(self).__name__}("):  # a record without words
            title = type(self).__name__
        try:
            frame = nw.from_native(self.to_frame(), eager_only=True)
        except ImportError:  # no data frame library
            return f'<div class="sknimo"><pre>{escape(repr(self))}</pre></div>'
        head = "".join(f"<th>{escape(clean(name))}</th>" for name in frame.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>"
            for row in frame.head(MAX_HTML_ROWS).iter_rows()
        )
        left = len(frame) - MAX_HTML_ROWS
        more = f"<p>and {left:,} more rows: to_frame() has them</p>" if left > 0 else ""
        return (
            f'<div class="sknimo">{HTML_STYLE}<b>{escape(clean(title))}</b>'
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"{more}</div>"
        )


def _cell(value: Any) -> str:
    """One value of a table: a few digits of a number."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else clean(value)


def make_frame(
    columns: Mapping[str, Any], origin: Origin, with_index: bool = False
) -> Any:
    """Build a native data frame; arrays get pandas, or polars without it."""
    backend = origin.backend
    if backend is None:
        known = [name for name in ("pandas", "polars", "pyarrow") if find_spec(name)]
        if not known:
            raise ImportError(
                "A data frame needs pandas, polars or pyarrow; install one of them, "
                "or use the arrays of this record."
            )
        backend = known[0]
    data = {name: _plain(values) for name, values in columns.items()}
    native = nw.from_dict(data, backend=backend).to_native()
    if with_index and origin.index is not None:
        native.index = origin.index
    return native


def label_column(codes: np.ndarray, levels: Sequence[Label]) -> list[Label | None]:
    """Levels by code, None for NaN; as text where their types differ.

    Examples
    --------
    >>> label_column(np.array([1.0, np.nan, 0.0]), ("man", "woman"))
    ['woman', None, 'man']
    >>> label_column(np.array([1.0, 0.0]), (1, "one"))
    ['one', '1']
    """
    one_type = len({type(level) for level in levels}) == 1
    known = levels if one_type else [str(level) for level in levels]
    return [None if np.isnan(code) else known[int(code)] for code in codes]


def _plain(values: Any) -> Any:
    """Strings as a list, numbers as a contiguous array."""
    if isinstance(values, list):
        return values
    array = np.asarray(values)
    return array.tolist() if array.dtype.kind in "OUb" else np.ascontiguousarray(array)
