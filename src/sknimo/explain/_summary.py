"""The coefficient table: one page that a reader of regression tables recognises.

A summary is data first; text (at most 80 columns) and HTML are two ways to show it.

Shapes: p features.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

from sknimo.explain._effects import exp_or_inf
from sknimo.explain._local import find_roles, ratio_name
from sknimo.explain._price import TrainingFacts
from sknimo.model import FittedModel

WIDTH = 78
NAME_WIDTH = 20
NOT_KNOWN = "-"


class CertificateLike(Protocol):
    """What a summary reads of a fit's certificate."""

    @property
    def kkt(self) -> float: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One feature of the table.

    Attributes
    ----------
    name : str
    coef : float
    std_error : float or None
        None until it has been estimated: no number is better than a false one.
    scaled : float
        Coefficient per standard deviation, or its exponential for ratio families.
    average_effect, bend : float or None
        None where no training rows were summed up.
    role : str
    """

    name: str
    coef: float
    std_error: float | None
    scaled: float
    average_effect: float | None
    bend: float | None
    role: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a fitted model says, ready to print.

    Attributes
    ----------
    title : str
    facts : tuple of (label, value)
    scaled_label : str
        Heading of `SummaryRow.scaled`.
    base_value : float
    rows : tuple of SummaryRow
        Features with a role, in the order of the columns.
    idle : tuple of str
        Features that neither act nor modify.
    modifiers : tuple of (feature, text)
        What bends each coefficient most, with its strength.
    notes : tuple of str
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    scaled_label: str
    base_value: float
    rows: tuple[SummaryRow, ...]
    idle: tuple[str, ...]
    modifiers: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the coefficient table."""
        return ("", "coef", "std err", self.scaled_label, "average", "bend", "role")

    def cells(self) -> list[tuple[str, ...]]:
        """The coefficient table as text, one tuple per line."""
        base = ("base value", _number(self.base_value), "", "", "", "", "")
        return [
            base,
            *(
                (
                    row.name,
                    _number(row.coef),
                    _number(row.std_error),
                    _number(row.scaled),
                    _number(row.average_effect),
                    NOT_KNOWN if row.bend is None else f"{row.bend:.2f}",
                    row.role,
                )
                for row in self.rows
            ),
        ]

    def __str__(self) -> str:
        thick, thin = "=" * WIDTH, "-" * WIDTH
        lines = [self.title.center(WIDTH).rstrip(), thick, *self._fact_lines(), thick]
        lines += [_table_line(self.headings), thin]
        lines += [_table_line(line) for line in self.cells()]
        if self.modifiers:
            lines += [thin, "Bent most by (change of the coefficient per sd of each)"]
            for name, text in self.modifiers:
                indent = " " * (NAME_WIDTH + 2)
                head = f"  {_cut(name, NAME_WIDTH - 1):{NAME_WIDTH}}"
                lines += textwrap.wrap(
                    text, WIDTH, initial_indent=head, subsequent_indent=indent
                )
        if self.idle:
            text = f"No effect and no influence: {', '.join(self.idle)}"
            lines += [thin, *textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
        lines.append(thick)
        for note in self.notes:
            lines += textwrap.wrap(note, WIDTH, subsequent_indent="  ")
        return "\n".join(lines)

    __repr__ = __str__

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
        cell = 'style="text-align:right"'
        facts = "".join(
            f"<tr><th {cell}>{escape(label)}</th><td>{escape(value)}</td></tr>"
            for label, value in self.facts
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in self.headings)
        body = "".join(
            "<tr>"
            + f"<th {cell}>{escape(line[0])}</th>"
            + "".join(f"<td {cell}>{escape(text)}</td>" for text in line[1:])
            + "</tr>"
            for line in self.cells()
        )
        bent = "".join(
            f"<li><b>{escape(name)}</b>: {escape(text)}</li>"
            for name, text in self.modifiers
        )
        parts = [
            '<div class="sknimo-summary">',
            f"<table><caption>{escape(self.title)}</caption>{facts}</table>",
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        ]
        if bent:
            parts.append(f"<p>Bent most by, per sd of each:</p><ul>{bent}</ul>")
        if self.idle:
            idle = escape(", ".join(self.idle))
            parts.append(f"<p>No effect and no influence: {idle}</p>")
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        parts.append(f"<ul>{notes}</ul></div>")
        return "\n".join(parts)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "~"


def _number(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.4g}"


def _fact(label: str, value: str, width: int) -> str:
    return f"{label}{value:>{max(width - len(label), 1)}}" if label else ""


def _table_line(cells: tuple[str, ...]) -> str:
    name, coef, std_error, scaled, average, bend, role = cells
    return (
        f"{_cut(name, NAME_WIDTH - 1):{NAME_WIDTH}}{coef:>11}{std_error:>9}"
        f"{scaled:>11}{average:>11}{bend:>6}  {role}"
    ).rstrip()


def summarise(
    model: FittedModel,
    facts: TrainingFacts | None,
    *,
    title: str,
    certificate: CertificateLike | None = None,
    converged: bool | None = None,
) -> Summary:
    """Put a fitted model and what is known of its training into one record."""
    names, roles = model.features.names, find_roles(model)
    label = ratio_name(model.family)
    features = model.features
    coef = features.feature_coef(model.term_coef)
    scaled = coef * features.scale if label is None else exp_or_inf(coef)
    known = None if facts is None else facts.effects
    rows = tuple(
        SummaryRow(
            name=name,
            coef=float(coef[j]),
            std_error=None,
            scaled=float(scaled[j]),
            average_effect=None if known is None else float(known.average_effect[j]),
            bend=None if known is None else float(known.bend[j]),
            role=roles.labels[j],
        )
        for j, name in enumerate(names)
        if roles.relevant[j]
    )
    return Summary(
        title=title,
        facts=_facts(model, facts, int(roles.acts.sum()), certificate, converged),
        scaled_label="per sd" if label is None else label,
        base_value=model.base_value,
        rows=rows,
        idle=tuple(name for j, name in enumerate(names) if not roles.relevant[j]),
        modifiers=() if known is None else _modifiers(known),
        notes=_notes(model, label, facts, certificate, converged),
    )


def _facts(
    model: FittedModel,
    facts: TrainingFacts | None,
    n_acting: int,
    certificate: CertificateLike | None,
    converged: bool | None,
) -> tuple[tuple[str, str], ...]:
    """Head of the page, label and value."""
    p = model.features.n_features
    head = [
        ("Family:", model.family.name),
        ("Link:", model.family.link),
        ("Rows:", NOT_KNOWN if facts is None else str(facts.n_samples)),
        ("Features with an effect:", f"{n_acting} of {p}"),
        ("Members averaged:", str(model.n_members)),
    ]
    if facts is not None:
        head += [
            ("Deviance:", f"{facts.deviance:.5g}"),
            ("Deviance of nested GLM:", f"{facts.glm_deviance:.5g}"),
            ("Deviance explained:", f"{facts.explained:.4f}"),
            ("... by nested GLM:", f"{facts.glm_explained:.4f}"),
        ]
    if converged is not None:
        head.append(("Converged:", "yes" if converged else "no"))
    elif certificate is not None:
        head.append(("Optimality residual:", f"{certificate.kkt:.1e}"))
    return tuple(head)


def _modifiers(known: Any) -> tuple[tuple[str, str], ...]:
    """Feature and its strongest modifiers with their strengths."""
    out = []
    for j, bent_by in enumerate(known.modifiers):
        if bent_by:
            strengths = [known.directed[j, known.names.index(name)] for name in bent_by]
            pairs = zip(bent_by, strengths, strict=True)
            text = ", ".join(f"{name} ({size:.3g})" for name, size in pairs)
            out.append((known.names[j], text))
    return tuple(out)


def _notes(
    model: FittedModel,
    label: str | None,
    facts: TrainingFacts | None,
    certificate: CertificateLike | None,
    converged: bool | None,
) -> tuple[str, ...]:
    """What a reader must know to read the table rightly."""
    unit = "the response" if model.family.link == "identity" else "the linear predictor"
    third = "per sd" if label is None else label
    meaning = (
        "for one standard deviation" if label is None else "exp(coef), for one unit"
    )
    notes = [
        f"coef: effect of one unit more on {unit}, everything else at the reference "
        "(the training mean). base value: the prediction there.",
        f"{third}: {meaning} more. average: effect averaged over the training rows. "
        "bend: share of the effect's mean square that varies from row to row.",
        "std err: not estimated for this fit.",
    ]
    if facts is not None:
        notes.append(
            "Deviances are in-sample; the nested GLM has the same features and is not "
            "penalised."
        )
    if certificate is not None:
        notes.append(
            f"Training: {certificate.status} Optimality residual of the coefficients "
            f"{certificate.kkt:.0e}."
        )
    if converged is False:
        notes.append("Not converged: read every number with care.")
    return tuple(notes)
