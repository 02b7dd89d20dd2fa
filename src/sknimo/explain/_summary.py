"""The coefficient table: one page that a reader of regression tables recognises.

A summary is data first; text (at most 80 columns) and HTML are two ways to show it.

Shapes: p features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal, Protocol

import numpy as np

from sknimo.explain._effects import Effects
from sknimo.explain._kinds import feature_kinds
from sknimo.explain._levels import LevelEffects, restore_levels
from sknimo.explain._local import exp_or_inf, find_roles
from sknimo.explain._price import TrainingFacts
from sknimo.explain._surfaces import effect_curve
from sknimo.explain._text import (
    NOT_KNOWN,
    clean,
    cut,
    pad,
    show_number,
    show_value,
    wrap,
)
from sknimo.model import FittedModel

WIDTH = 78
NAME_WIDTH = 20
# Lines that the reference may take before the rest is counted.
REFERENCE_LINES = 3
# Coefficients of which the spread between members is told.
SPREAD_ROWS = 6

RowKind = Literal["line", "curve", "category", "level", "baseline", "missing"]


class CertificateLike(Protocol):
    """What a summary reads of a fit's certificate."""

    @property
    def kkt(self) -> float: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class HeldOutScores:
    """What a search knows of rows that its members have not seen; NaN is not known.

    Attributes
    ----------
    r2, glm_r2 : float
        Explained variance of the target, by the model and by its nested GLM.
    bend : float
        Share of the bent members beside the additive model.
    """

    r2: float
    glm_r2: float
    bend: float

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and value of what is known."""
        found = (
            ("Held-out R2", f"{self.r2:.4f}"),
            ("Held-out R2 of nested GLM", f"{self.glm_r2:.4f}"),
            ("Share of bent members", f"{self.bend:.2f}"),
        )
        return tuple(line for line in found if line[1] != "nan")


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of the table: a feature, or one of its levels.

    Attributes
    ----------
    name : str
        The feature.
    coef : float
        Slope at the reference, contrast of a level with the baseline, of missing with
        the reference; NaN for a category as a whole.
    std_error : float or None
        None until it has been estimated: no number is better than a false one.
    scaled : float
        Coefficient per standard deviation, NaN for contrasts; the exponential of the
        coefficient for ratio families.
    average_effect, bend : float or None
        None where no training rows were summed up.
    role : str
        Empty for levels.
    kind : str
        "line", "curve" and "category" are features; "level", "baseline" and "missing"
        follow their feature.
    level : str
        The level of a row that stands for one.
    member_sd : float or None
        Standard deviation of the coefficient between members; None for one member, a
        category as a whole and a baseline.
    """

    name: str
    coef: float
    std_error: float | None
    scaled: float
    average_effect: float | None
    bend: float | None
    role: str
    kind: RowKind = "line"
    level: str = ""
    member_sd: float | None = None

    @property
    def is_feature(self) -> bool:
        """Whether the row stands for a feature and not for one of its levels."""
        return self.kind in ("line", "curve", "category")


@dataclass(frozen=True, slots=True)
class Summary:
    """What a fitted model says, ready to print.

    Attributes
    ----------
    title : str
    facts : tuple of (label, value)
    reference : tuple of str
        Whose effect it is: kind of the reference, then each feature with its value.
    scaled_label : str
        Heading of `SummaryRow.scaled`.
    base_value : float
    rows : tuple of SummaryRow
        Features with a role, in the order of the columns, each followed by its levels.
    curves : tuple of (feature, text)
        Smallest and largest effect of each curve, and where.
    idle : tuple of str
        Features that neither act nor modify.
    modifiers : tuple of (feature, text)
        What bends each coefficient most, with its strength.
    notes : tuple of str

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> max(len(line) for line in str(est.summary()).splitlines()) <= 80
    True
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    reference: tuple[str, ...]
    scaled_label: str
    base_value: float
    rows: tuple[SummaryRow, ...]
    curves: tuple[tuple[str, str], ...]
    idle: tuple[str, ...]
    modifiers: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the coefficient table."""
        return ("", "coef", "std err", self.scaled_label, "average", "bend", "role")

    def cells(self) -> list[tuple[str, ...]]:
        """The coefficient table as text, one tuple per line."""
        base = ("base value", show_number(self.base_value), "", "", "", "", "")
        return [base, *map(self._cells, self.rows)]

    def _cells(self, row: SummaryRow) -> tuple[str, ...]:
        coef, std_error = show_number(row.coef), show_number(row.std_error)
        scaled = "" if np.isnan(row.scaled) else show_number(row.scaled)
        bend = NOT_KNOWN if row.bend is None else f"{row.bend:.2f}"
        average = show_number(row.average_effect)
        if row.kind == "category":
            n_levels = sum(
                other.name == row.name and other.kind in ("level", "baseline")
                for other in self.rows
            )
            coef, std_error = f"{n_levels} levels", ""
        if row.kind == "baseline":
            coef, std_error, scaled, average, bend = "baseline", "", "", "", ""
        name = clean(row.name) if row.is_feature else f"  {clean(row.level)}"
        if row.kind == "curve":
            name = f"{cut(name, NAME_WIDTH - 9)} (curve)"
        return (name, coef, std_error, scaled, average, bend, row.role)

    def __str__(self) -> str:
        thick, thin = "=" * WIDTH, "-" * WIDTH
        lines = [self.title.center(WIDTH).rstrip(), thick, *self._fact_lines()]
        lines += [*self._reference_lines(), thick]
        lines += [_table_line(self.headings), thin]
        lines += [_table_line(line) for line in self.cells()]
        for head, section in self._sections():
            lines += [thin, head]
            for name, text in section:
                label = f"  {pad(cut(name, NAME_WIDTH - 1), NAME_WIDTH)}"
                lines += wrap(text, WIDTH, label, " " * (NAME_WIDTH + 2))
        if self.idle:
            lines += [thin, *wrap(self._idle_text(), WIDTH)]
        lines.append(thick)
        for note in self.notes:
            lines += wrap(note, WIDTH)
        return "\n".join(lines)

    __repr__ = __str__

    def _sections(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...]]]:
        """Headed lists below the table."""
        if self.curves:
            head = "Curves (effect within 2 sd, everything else at the reference)"
            yield head, self.curves
        if self.modifiers:
            head = "Bent most by (change of the coefficient per sd of each)"
            yield head, self.modifiers

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
        cell = 'style="text-align:right"'
        facts = "".join(
            f"<tr><th {cell}>{escape(label)}</th><td>{escape(value)}</td></tr>"
            for label, value in self.facts
        )
        head = "".join(f"<th>{escape(name)}</th>" for name in self.headings)
        names = ["base value", *(_full_name(row) for row in self.rows)]
        body = "".join(
            "<tr>"
            + f"<th {cell}>{escape(name)}</th>"
            + "".join(f"<td {cell}>{escape(text)}</td>" for text in line[1:])
            + "</tr>"
            for name, line in zip(names, self.cells(), strict=True)
        )
        parts = [
            '<div class="sknimo-summary">',
            f"<table><caption>{escape(self.title)}</caption>{facts}</table>",
        ]
        if self.reference:
            kind, *values = self.reference
            parts.append(f"<p>{escape(kind)}: {escape(', '.join(values))}</p>")
        parts.append(
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
        for title, section in self._sections():
            items = "".join(
                f"<li><b>{escape(clean(name))}</b>: {escape(clean(text))}</li>"
                for name, text in section
            )
            parts.append(f"<p>{escape(title)}:</p><ul>{items}</ul>")
        if self.idle:
            parts.append(f"<p>{escape(clean(self._idle_text()))}</p>")
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        parts.append(f"<ul>{notes}</ul></div>")
        return "\n".join(parts)


def _full_name(row: SummaryRow) -> str:
    """Name of a line where there is room for it."""
    if row.is_feature:
        return clean(row.name) + (" (curve)" if row.kind == "curve" else "")
    return f"{clean(row.name)}: {clean(row.level)}"


def _fact(label: str, value: str, width: int) -> str:
    return f"{label}{value:>{max(width - len(label), 1)}}" if label else ""


def _table_line(cells: tuple[str, ...]) -> str:
    name, coef, std_error, scaled, average, bend, role = cells
    return (
        f"{pad(cut(name, NAME_WIDTH - 1), NAME_WIDTH)}{coef:>11}{std_error:>9}"
        f"{scaled:>11}{average:>11}{bend:>6}  {role}"
    ).rstrip()


def summarise(
    model: FittedModel,
    facts: TrainingFacts | None,
    *,
    title: str,
    certificate: CertificateLike | None = None,
    converged: bool | None = None,
    reference: Any = None,
    scores: HeldOutScores | None = None,
) -> Summary:
    """Put a fitted model and what is known of its training into one record.

    `reference` is the estimator's parameter of this name, for the words alone.
    """
    names, roles = model.features.names, find_roles(model)
    scaled_label = model.family.ratio_name or "per sd"
    known = None if facts is None else facts.effects
    rows = tuple(summary_rows(model, known))
    head = _facts(model, facts, int(roles.acts.sum()), certificate, converged)
    if scores is not None:
        head += tuple((f"{name}:", text) for name, text in scores.lines())
    return Summary(
        title=title,
        facts=head,
        reference=_describe_reference(model, roles.relevant, reference),
        scaled_label=scaled_label,
        base_value=model.base_value,
        rows=rows,
        curves=tuple(_curves(model, roles.acts)),
        idle=tuple(name for j, name in enumerate(names) if not roles.relevant[j]),
        modifiers=() if known is None else _modifiers(known),
        notes=_notes(model, scaled_label, facts, certificate, converged)
        + _spread_notes(model, rows),
    )


def summary_rows(model: FittedModel, known: Effects | None) -> Iterator[SummaryRow]:
    """Features with a role, each followed by its levels."""
    features, roles = model.features, find_roles(model)
    kinds = feature_kinds(features)
    has_ratio = model.family.ratio_name is not None
    coef = features.feature_coef(model.term_coef)
    levels = restore_levels(model) if known is None else known.levels
    slope_sd, level_sd = _member_sds(model)
    for j, name in enumerate(features.names):
        if not roles.relevant[j]:
            continue
        whole = kinds[j] == "category"
        factor = exp_or_inf(coef[j]) if has_ratio else coef[j] * features.scale[j]
        yield SummaryRow(
            name=name,
            coef=float("nan") if whole else float(coef[j]),
            std_error=None,
            scaled=float("nan") if whole else float(factor),
            average_effect=None if known is None else float(known.average_effect[j]),
            bend=None if known is None else float(known.bend[j]),
            role=roles.labels[j],
            kind=kinds[j],
            member_sd=None if whole else slope_sd[j],
        )
        for at in levels.of(j).tolist():
            yield _level_row(levels, at, has_ratio, level_sd[at])


def _member_sds(model: FittedModel) -> tuple[list[float | None], list[float | None]]:
    """Standard deviations between members: of slopes (p,), of levels (l,).

    Where an additive model is mixed with bent members, it stands there as a silent one
    with a weight of its own: then it is the bent members' share that varies.
    """
    coefs, bent = model.coef, model.modulated.any(-1)
    if bent.any():
        coefs = coefs[bent] * (int(bent.sum()) / len(bent))
    members = [replace(model, coef=coef.unsqueeze(0)) for coef in coefs]
    slopes = [model.features.feature_coef(each.term_coef) for each in members]
    levels = [restore_levels(each).coef for each in members]
    return _deviations(np.stack(slopes)), _deviations(np.stack(levels))


def _deviations(values: np.ndarray) -> list[float | None]:
    """Standard deviation of each column of (M, c); none of a single row."""
    if len(values) == 1:
        return [None] * values.shape[1]
    size = np.abs(values).max(axis=0)
    unit = values / np.where(size > 0, size, 1.0)  # no overflow in extreme units
    return list((size * unit.std(axis=0, ddof=1)).tolist())


def _level_row(
    levels: LevelEffects, at: int, has_ratio: bool, member_sd: float | None
) -> SummaryRow:
    kind: RowKind = "baseline" if levels.baseline[at] else "level"
    average, spread = float(levels.average_effect[at]), float(levels.effect_sd[at])
    size = math.hypot(average, spread)
    bend = (spread / size) ** 2 if size else 0.0  # no overflow in extreme units
    return SummaryRow(
        name=levels.features[at],
        coef=float(levels.coef[at]),
        std_error=None,
        scaled=float(exp_or_inf(levels.coef[at])) if has_ratio else float("nan"),
        average_effect=None if np.isnan(average) else average,
        bend=None if np.isnan(bend) else bend,
        role="",
        kind="missing" if levels.missing[at] else kind,
        level=levels.levels[at],
        member_sd=None if levels.baseline[at] else member_sd,
    )


def _curves(model: FittedModel, acts: np.ndarray) -> Iterator[tuple[str, str]]:
    """Range of the effect of each curve, over the usual grid."""
    for j, kind in enumerate(feature_kinds(model.features)):
        if kind == "curve" and acts[j]:
            found = effect_curve(model, j)
            low, high = int(found.effect.argmin()), int(found.effect.argmax())
            text = (
                f"from {found.effect[low]:.3g} at {found.value[low]:.4g} to "
                f"{found.effect[high]:.3g} at {found.value[high]:.4g}"
            )
            yield found.feature, text


def _describe_reference(
    model: FittedModel, relevant: np.ndarray, parameter: Any
) -> tuple[str, ...]:
    """Kind of the reference, then the features with a role and their values."""
    features = model.features
    words = {"mean": "mean", "median": "median", "mode": "most frequent value"}
    kind = "Reference"
    if isinstance(parameter, Mapping):
        kind = f"Reference (set for {len(parameter)} of {features.n_features} features)"
    elif parameter in words:
        with_levels = "category" in feature_kinds(features) and parameter != "mode"
        level = ", most frequent level" if with_levels else ""
        kind = f"Reference ({words[parameter]}{level})"
    values = [
        f"{cut(name, 30)} "
        + cut(show_value(features.reference[j], features.levels(j), quote=True), 30)
        for j, name in enumerate(features.names)
        if relevant[j]
    ]
    return (kind, *values) if values else ()


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


def _modifiers(known: Effects) -> tuple[tuple[str, str], ...]:
    """Feature and its strongest modifiers with their strengths."""
    names, directed = known.names, known.directed
    bent_by = [
        ", ".join(f"{names[k]} ({directed[j, k]:.3g})" for k in known.modifiers_of(j))
        for j in range(len(names))
    ]
    return tuple(pair for pair in zip(names, bent_by, strict=True) if pair[1])


def _spread_notes(model: FittedModel, rows: tuple[SummaryRow, ...]) -> tuple[str, ...]:
    """How far the members that were averaged lie apart, the widest first."""
    known = [(row, row.member_sd) for row in rows if row.member_sd is not None]
    if not known:
        return ()
    # Relative to the coefficient: units of features differ.
    known.sort(key=lambda each: -each[1] / max(abs(each[0].coef), 1e-300))
    shown = [
        f"{cut(_full_name(row), 40)} {show_number(spread, 2)}"
        for row, spread in known[:SPREAD_ROWS]
    ]
    left = len(known) - len(shown)
    more = f", and {left} more closer together" if left else ""
    return (
        f"members: standard deviation of coef between the {model.n_members} that were "
        f"averaged: {', '.join(shown)}{more}.",
    )


def _notes(
    model: FittedModel,
    scaled_label: str,
    facts: TrainingFacts | None,
    certificate: CertificateLike | None,
    converged: bool | None,
) -> tuple[str, ...]:
    """What a reader must know to read the table rightly."""
    unit = "the response" if model.family.link == "identity" else "the linear predictor"
    has_ratio = model.family.ratio_name is not None
    meaning = "exp(coef), for one unit" if has_ratio else "for one standard deviation"
    kinds = set(feature_kinds(model.features))
    notes = [
        f"coef: effect of one unit more on {unit}, everything else at the reference. "
        "base value: the prediction there.",
    ]
    if "category" in kinds:
        notes.append("levels: change from the baseline to the level, in the same way.")
    if "curve" in kinds:
        notes.append("curve: coef is its slope at the reference.")
    if model.features.admits_missing.any():
        notes.append("missing: change from the reference to a missing value.")
    notes += [
        f"{scaled_label}: {meaning} more. average: effect averaged over the training "
        "rows. bend: share of the effect's mean square that varies with other "
        "features.",
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
