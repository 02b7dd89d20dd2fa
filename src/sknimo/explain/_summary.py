"""The coefficient table: one page that a reader of regression tables recognises.

A summary is data first; text (at most 80 columns), HTML, Markdown, LaTeX and a data
frame are ways to show it. It leads with what was kept and with averages on the scale of
the response, beside which stand the coefficients at the reference.

Shapes: p features.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

import numpy as np

from sknimo.explain._comparisons import RARE
from sknimo.explain._frames import (
    HTML_STYLE,
    NOT_KNOWN,
    Origin,
    align,
    clean,
    cut,
    make_frame,
    pad,
    show_number,
    width_of,
    wrap,
)
from sknimo.explain._local import exp_or_inf

WIDTH = 78
NAME_WIDTH = 20
# Lines of the list of averages in the population.
MAX_AVERAGES = 30
# Lines that the reference may take before the rest is counted.
REFERENCE_LINES = 3

# Columns of the table; all but the last have one more where there are no intervals.
STEP_WIDTH, NUMBER_WIDTH, RATIO_WIDTH, INTERVAL_WIDTH = 7, 9, 11, 16
FAINT = 0.005  # a share that is shown as nothing
POOLED = "too few"  # instead of a coefficient
BENDS, COLLINEAR = "only bends", "collinear"  # instead of an interval

# Columns of the data frame, four words and then numbers; fields of another name.
FRAME_COLUMNS = (
    *("feature", "level", "kind", "role", "step", "average", "coef", "std_err"),
    *("lower", "upper", "z", "coef_std", "ratio", "average_effect", "bend", "n_rows"),
    *("importance", "corrected_average", "average_lower", "average_upper"),
)
FIELDS = {"feature": "name", "average": "response", "std_err": "std_error"}
FIELDS |= {"corrected_average": "corrected"}

RowKind = Literal["line", "curve", "category", "level", "baseline", "missing"]
SummaryOrder = Literal["importance", "columns"]


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of the table: a feature, or one of its levels."""

    name: str  # the feature
    # Slope at the reference, contrast of a level with the baseline, of missing with the
    # reference; NaN for a category as a whole. Per unit.
    coef: float
    # Of the coefficient. None, as `lower`, `upper` and `z` below, where it was not
    # estimated: no number is better than a false one.
    std_error: float | None = None
    coef_std: float = math.nan  # per standard deviation, NaN for contrasts
    ratio: float = math.nan  # exponential of the coefficient for ratio families
    # None where no training rows were summed up.
    average_effect: float | None = None
    bend: float | None = None
    role: str = ""  # empty for levels
    # "line", "curve" and "category" are features; "level", "baseline" and "missing"
    # follow their feature.
    kind: RowKind = "line"
    level: str = ""  # the level of a row that stands for one
    # Standard deviation of the coefficient between members; None for one member, a
    # category as a whole and a baseline.
    member_sd: float | None = None
    step: float = 1.0  # round number of units that the table is about, one for levels
    # Average change of the response that goes with one step.
    response: float | None = None
    # The same in the population, corrected for shrinkage, and the ends of its 95 %
    # interval, stretched to hold both.
    corrected: float | None = None
    average_lower: float | None = None
    average_upper: float | None = None
    n_rows: float | None = None  # training rows of a level or of missing values
    # Of a feature: how far it moves the linear predictor from the reference, on
    # average.
    importance: float | None = None
    lower: float | None = None  # ends of the interval of the coefficient
    upper: float | None = None
    z: float | None = None
    error_note: str = ""  # why there is none, in a word
    # What a level, or a missing value, of so few rows counts as that it has no
    # coefficient of its own.
    stands_for: str = ""

    @property
    def is_pooled(self) -> bool:
        """Whether the row has no coefficient of its own."""
        return bool(self.stands_for) and self.coef == 0

    @property
    def is_aside(self) -> bool:
        """Whether the coefficient lies in an outer quarter of its interval."""
        if self.lower is None or self.upper is None:
            return False
        middle, width = (self.lower + self.upper) / 2, self.upper - self.lower
        return abs(self.coef - middle) > width / 4

    @property
    def is_feature(self) -> bool:
        """Whether the row stands for a feature and not for one of its levels."""
        return self.kind in ("line", "curve", "category")

    @property
    def is_rare(self) -> bool:
        """Whether too few rows are behind the number to quote it."""
        return self.n_rows is not None and self.n_rows < RARE

    @property
    def step_ratio(self) -> float:
        """The ratio that goes with one step, NaN where it means nothing."""
        if math.isnan(self.ratio):
            return math.nan
        return float(exp_or_inf(np.array(self.coef * self.step)))

    @property
    def full_name(self) -> str:
        """Name of the line where there is room for it."""
        if self.is_feature:
            return clean(self.name) + (" (curve)" if self.kind == "curve" else "")
        return f"{clean(self.name)}: {clean(self.level)}"


@dataclass(frozen=True, slots=True, eq=False)
class KnownErrors:
    """Standard errors and intervals of all coefficients, NaN where there are none."""

    # Each (c,).
    std_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    z: np.ndarray
    notes: tuple[str, ...]  # why an entry has none, in a word
    reason: str = ""  # why none has, in a sentence
    level: float = 0.95

    def put(self, row: SummaryRow, at: int) -> SummaryRow:
        """A row with the error of its coefficient."""
        if np.isnan(self.std_error[at]):
            note = BENDS if row.role == "modifier" else self.notes[at]
            return replace(row, error_note=note)
        return replace(
            row,
            std_error=float(self.std_error[at]),
            lower=float(self.lower[at]),
            upper=float(self.upper[at]),
            z=float(self.z[at]),
        )

    def words(self, rows: tuple[SummaryRow, ...]) -> tuple[str, ...]:
        """What a reader must know of them."""
        if self.reason:
            return (f"No standard errors or intervals: {self.reason}",)
        words = [
            f"{100 * self.level:g} % interval: of coef, approximate. It allows for all "
            "that was estimated, not for features having been selected."
        ]
        if any(row.is_aside for row in rows):
            words.append(
                "Intervals lie around an estimate without shrinkage and are stretched "
                "to hold coef, which can then be one of their ends."
            )
        if any(row.error_note == "removed" and not row.is_pooled for row in rows):
            words.append("removed: selected away, which is no proof of no effect.")
        if any(row.error_note == COLLINEAR for row in rows):
            words.append(
                f"{COLLINEAR}: a combination of other columns, so that the rows do not "
                "tell which of them has the effect. Leave one out."
            )
        if any(row.error_note == BENDS for row in rows):
            words.append(f"{BENDS}: no coefficient of its own; it bends others.")
        return tuple(words)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a fitted model says, ready to print.

    Attributes
    ----------
    title : str
    headline : tuple of str
        Which model this is, and what must be known before the table is read.
    facts : tuple of (label, value)
    reference : tuple of str
        Whose effect it is: kind of the reference, then each feature with its value.
    ratio_label : str or None
        What exponentials of coefficients are called; None where they mean nothing.
    percent : bool
        Whether the response is a probability.
    base_value, base_mean : float
        Linear predictor and response at the reference.
    rows : tuple of SummaryRow
        Features with a role, each followed by its levels.
    curves : tuple of (feature, text)
        Smallest and largest effect of each curve, and where.
    idle : tuple of str
        Features that neither act nor modify.
    modifiers : tuple of (feature, text)
        What bends each coefficient most, with its strength.
    notes : tuple of str
    level : float
        Of the intervals.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> max(len(line) for line in str(est.summary()).splitlines()) <= 80
    True
    """

    title: str
    headline: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    reference: tuple[str, ...]
    ratio_label: str | None
    percent: bool
    base_value: float
    base_mean: float
    rows: tuple[SummaryRow, ...]
    curves: tuple[tuple[str, str], ...]
    idle: tuple[str, ...]
    modifiers: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    level: float = 0.95

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the coefficient table."""
        return ("", *(heading for heading, *_ in self._columns()))

    def _columns(self) -> Iterator[tuple[str, int, Callable[[SummaryRow], str]]]:
        """Heading, width and cells of every column that has something to say."""
        more = 0 if self.with_errors else 1
        yield "per", STEP_WIDTH + more, _per
        yield "average", NUMBER_WIDTH + more, self._average
        yield "coef", NUMBER_WIDTH + more, self._coef
        if self.with_errors:  # there is no room for all
            if self.ratio_label is None:
                yield "std err", NUMBER_WIDTH, _std_error
            yield f"{100 * self.level:g} % interval", INTERVAL_WIDTH, _interval
        if self.ratio_label is not None:
            fits = not self.with_errors or len(self.ratio_label) < RATIO_WIDTH
            yield self.ratio_label if fits else "ratio", RATIO_WIDTH + more, _ratio
        if not self.with_errors:
            yield "per sd", NUMBER_WIDTH + more, lambda row: _known(row.coef_std)
        if any((row.bend or 0.0) > FAINT for row in self.rows):
            yield "varies", STEP_WIDTH + more, _varies

    @property
    def with_errors(self) -> bool:
        """Whether standard errors, or why there are none, have their columns."""
        return any(row.std_error is not None or row.error_note for row in self.rows)

    def cells(self) -> list[tuple[str, ...]]:
        """The coefficient table as text, one tuple per line."""
        columns = [show for *_, show in self._columns()]
        mean = f"{100 * self.base_mean:.1f} %" if self.percent else ""
        mean = mean or show_number(self.base_mean)
        same = self.base_mean == self.base_value
        coef = "" if same else show_number(self.base_value)
        empty = ("",) * (len(columns) - 3)
        base = ("at the reference", "", mean, coef, *empty)
        rows = [(_label(row), *(show(row) for show in columns)) for row in self.rows]
        return [base, *rows]

    def _average(self, row: SummaryRow) -> str:
        if row.is_pooled or row.kind == "baseline":
            return ""
        if row.response is None and row.kind == "category":
            return ""
        if row.response is None or math.isnan(row.response):
            return NOT_KNOWN
        return self._change(row.response) + " pp" * self.percent

    def _change(self, value: float) -> str:
        """A change of the response; nothing has no sign."""
        text = f"{100 * value:.1f}" if self.percent else show_number(value, 3)
        if math.isnan(value) or float(text) == 0:
            return text.lstrip("-")
        return text if value < 0 else f"+{text}"

    def _coef(self, row: SummaryRow) -> str:
        if row.kind == "baseline":
            return "baseline"
        if row.is_pooled:
            return POOLED
        if row.kind == "category":
            n_levels = sum(
                other.name == row.name and other.kind in ("level", "baseline")
                for other in self.rows
            )
            return f"{n_levels} levels"
        return _fitting((row.coef * row.step,), NUMBER_WIDTH, 4)

    def __str__(self) -> str:
        thick, thin = "=" * WIDTH, "-" * WIDTH
        lines = [self.title.center(WIDTH).rstrip(), thick]
        for text in self.headline:
            lines += wrap(text, WIDTH)
        lines += [thin] * bool(self.headline) + self._fact_lines()
        lines += [*self._reference_lines(), thick]
        widths = (NAME_WIDTH, *(width for _, width, _ in self._columns()))
        lines += [align(self.headings, widths), thin]
        lines += [align(line, widths) for line in self.cells()]
        for head, section in self._sections():
            lines += [thin, head]
            wide = _label_width(section)
            for name, text in section:
                label = f"  {pad(cut(name, wide - 1), wide)}"
                lines += wrap(text, WIDTH, label, " " * (wide + 2))
        if self.idle:
            lines += [thin, *wrap(self._idle_text(), WIDTH)]
        lines.append(thick)
        for note in self.notes:
            lines += wrap(note, WIDTH)
        return "\n".join(lines)

    __repr__ = __str__

    def _sections(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
        """Headed lists below the table."""
        known = [row for row in self.rows if row.corrected is not None]
        if known:
            lines = [
                (row.full_name, self._interval(row)) for row in known[:MAX_AVERAGES]
            ]
            left = len(known) - len(lines)
            lines += [("", f"and {left} more: to_frame() has them")] * bool(left)
            yield "The averages with their 95 % intervals", tuple(lines)
        if self.curves:
            head = "Curves (effect within 2 sd, everything else at the reference)"
            yield head, self.curves
        if self.modifiers:
            head = "Depends most on (change of the coefficient per sd of each)"
            yield head, self.modifiers

    def _interval(self, row: SummaryRow) -> str:
        """An average change and the ends of its interval."""
        ends = (row.response, row.average_lower, row.average_upper)
        middle, low, high = (self._change(_number(x)) for x in ends)
        return f"{middle}{' pp' * self.percent} [{low}, {high}]"

    def _idle_text(self) -> str:
        return f"No effect and no influence: {', '.join(self.idle)}"

    def _reference_lines(self) -> list[str]:
        """The reference in a few lines; features that do not fit are counted."""
        if not self.reference:
            return []
        head, *values = self.reference
        for n_shown in range(len(values), -1, -1):
            left = len(values) - n_shown
            more = [f"and {left} more"] if left else []
            lines = wrap(f"{head}: {', '.join([*values[:n_shown], *more])}", WIDTH)
            if len(lines) <= REFERENCE_LINES:
                break
        return lines

    def _fact_lines(self) -> list[str]:
        half = -(-len(self.facts) // 2)
        left, right = self.facts[:half], list(self.facts[half:])
        right += [("", "")] * (half - len(right))
        wide = WIDTH // 2 - 1
        return [
            f"{_fact(*first, wide)}  {_fact(*second, wide)}".rstrip()
            for first, second in zip(left, right, strict=True)
        ]

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>"
            for label, value in self.facts
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in self.headings)
        body = "".join(
            f'<tr><th class="name">{escape(name)}</th>'
            f"{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>"
            for name, *cells in self._full_lines()
        )
        parts = [
            f'<div class="sknimo">{HTML_STYLE}<b>{escape(self.title)}</b>',
            *(f"<p>{escape(clean(text))}</p>" for text in self.headline),
            f'<table class="facts">{facts}</table>',
        ]
        if self.reference:
            kind, *values = self.reference
            parts.append(f"<p>{escape(kind)}: {escape(', '.join(values))}</p>")
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        parts.append(f'<div style="overflow-x: auto">{table}</div>')
        for title, section in self._sections():
            items = "".join(
                f"<li>{f'<b>{escape(clean(name))}</b>: ' * bool(name)}"
                f"{escape(clean(text))}</li>"
                for name, text in section
            )
            parts.append(f"<p>{escape(title)}:</p><ul>{items}</ul>")
        if self.idle:
            parts.append(f"<p>{escape(clean(self._idle_text()))}</p>")
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        parts.append(f"<details><summary>How to read</summary><ul>{notes}</ul>")
        return "\n".join([*parts, "</details></div>"])

    def _full_lines(self) -> list[tuple[str, ...]]:
        """The same as `cells`, by names for which there is room."""
        names = ["at the reference", *(row.full_name for row in self.rows)]
        return [(n, *line[1:]) for n, line in zip(names, self.cells(), strict=True)]

    def to_frame(self) -> Any:
        """One row per line of the table, numbers in full, as a data frame."""
        columns: dict[str, list[Any]] = {}
        for name in FRAME_COLUMNS:
            cells = [getattr(row, FIELDS.get(name, name)) for row in self.rows]
            words = name in FRAME_COLUMNS[:4]
            columns[name] = cells if words else [_number(cell) for cell in cells]
        return make_frame(columns, Origin())

    def to_markdown(self) -> str:
        """What was kept and the coefficient table, as Markdown."""
        rule = (":--", *["--:"] * (len(self.headings) - 1))
        lines = [f"**{_escape_markdown(self.title)}**", ""]
        for text in self.headline:
            lines += [_escape_markdown(text), ""]
        table = [tuple(map(_escape_markdown, line)) for line in self._full_lines()]
        lines += [f"| {' | '.join(line)} |" for line in (self.headings, rule, *table)]
        return "\n".join(
            [*lines, "", *(f"* {_escape_markdown(n)}" for n in self.notes)]
        )

    def to_latex(self) -> str:
        """The coefficient table as a LaTeX table of booktabs rules."""
        caption = _escape_latex(" ".join((f"{self.title}.", *self.headline)))
        lines = [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}",
            r"\toprule",
            " & ".join(map(_escape_latex, self.headings)) + r" \\",
            r"\midrule",
        ]
        for cells in self._full_lines():
            lines.append(" & ".join(map(_escape_latex, cells)) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _known(value: float) -> str:
    """A number, nothing where there is none."""
    return "" if math.isnan(value) else show_number(value)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _label(row: SummaryRow) -> str:
    if not row.is_feature:
        return f"  {clean(row.level)}"
    # The name goes first: curves have a list of their own.
    roomy = width_of(row.full_name) < NAME_WIDTH
    return row.full_name if roomy else clean(row.name)


def _per(row: SummaryRow) -> str:
    """Round step of a number, rows of a level."""
    if row.kind in ("line", "curve"):
        return f"{row.step:g}"
    if row.n_rows is None or math.isnan(row.n_rows):
        return ""
    return f"n={row.n_rows:.6g}{'*' * row.is_rare}"


def _ratio(row: SummaryRow) -> str:
    if math.isnan(row.ratio) or row.kind == "baseline" or row.is_pooled:
        return ""
    return _fitting((row.step_ratio,), RATIO_WIDTH, 4)


def _std_error(row: SummaryRow) -> str:
    if row.std_error is None:
        empty = row.kind in ("baseline", "category") or row.is_pooled
        return "" if empty else NOT_KNOWN
    return show_number(row.std_error * row.step, 3)


def _interval(row: SummaryRow) -> str:
    """Both ends, or why there are none."""
    if row.lower is None or row.upper is None:
        return "" if row.is_pooled else row.error_note
    ends = row.lower * row.step, row.upper * row.step
    return _fitting(ends, INTERVAL_WIDTH, 3)


def _fitting(values: tuple[float, ...], width: int, digits: int) -> str:
    """Numbers in as many digits as leave a gap in a column, one at least."""
    for most in range(digits, 0, -1):
        text = ", ".join(show_number(value, most) for value in values)
        if len(text) < width:
            break
    return text


def _varies(row: SummaryRow) -> str:
    if row.kind == "baseline" or row.is_pooled:
        return ""
    return NOT_KNOWN if row.bend is None else f"{100 * row.bend:.0f} %"


def _label_width(section: tuple[tuple[str, str], ...]) -> int:
    """Room for the names of a list: what its texts leave, if names need it."""
    room = WIDTH - 2 - max(width_of(clean(text)) for _, text in section)
    needed = 1 + max(width_of(clean(name)) for name, _ in section)
    return max(NAME_WIDTH, min(needed, room))


def _fact(label: str, value: str, width: int) -> str:
    return f"{label}{value:>{max(width - len(label), 1)}}" if label else ""


def _escape_markdown(text: str) -> str:
    shown = clean(text).replace("\\", "\\\\")
    for char in "`*_[]|<>":
        shown = shown.replace(char, f"\\{char}")
    return shown


def _escape_latex(text: str) -> str:
    words = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
    words |= {"^": r"\textasciicircum{}"} | {char: f"\\{char}" for char in "&%$#_{}"}
    return "".join(words.get(char, char) for char in clean(text))
