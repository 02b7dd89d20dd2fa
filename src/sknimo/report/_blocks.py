"""Tables, panels and explained rows of a page, as text and drawings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sknimo.model import FittedModel
from sknimo.report._cases import Case
from sknimo.report._effects import Line, evaluate, show_value, spread_rows
from sknimo.report._figures import (
    MAX_POINTS,
    curve_figure,
    effect_figure,
    range_cell,
    range_limits,
    shade_rows,
    share_cell,
    step_cell,
    total_cell,
)
from sknimo.report._story import Story
from sknimo.report._text import (
    clean_text,
    common_decimals,
    cut_text,
    join_words,
    show_fixed,
    show_number,
    show_percent,
    show_range,
)

MAX_EFFECTS = 6
MAX_PAIRS = 8
MAX_CURVES = 6
# Pairs below this share of the strongest are not worth a figure.
FAINT_PAIR = 0.05
# Features in the first table of coefficients; the others are folded.
FIRST_FEATURES = 20
# Names of modifiers are cut to this width; the modifier has a row of its own.
MAX_NAME = 24


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the table of coefficients; a `heading` names a feature with levels."""

    name: str
    note: str
    bent_by: str
    heading: bool = False
    level: bool = False
    coef: str = ""
    coef_value: str = ""
    scaled: str = ""
    local_coef: str = ""
    average: str = ""
    local_effect: str = ""
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A part of the table of coefficients; `folded` is the text that unfolds it."""

    rows: tuple[TableRow, ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class EffectPanel:
    """The figure of one effect and what its shades stand for."""

    name: str
    figure: str
    shade: str
    shade_ends: str


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two features and what they do together."""

    first: str
    second: str
    joint: str
    cell: str


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """The coefficient of one feature along another."""

    bent: str
    modifier: str
    figure: str
    caption: str


@dataclass(frozen=True, slots=True)
class CaseStep:
    """A line of a waterfall."""

    name: str
    value: str
    amount: str
    cell: str
    total: bool = False


@dataclass(frozen=True, slots=True)
class CaseBlock:
    """One row explained."""

    label: str
    why: str
    outcome: str
    steps: tuple[CaseStep, ...]


def make_tables(story: Story) -> tuple[Table, ...]:
    """The table of coefficients: strongest features at once, the others folded."""
    findings = story.findings
    limits = range_limits(findings.lines)
    first = set(findings.order[:FIRST_FEATURES])
    if len(findings.order) <= FIRST_FEATURES + 2:
        first = set(findings.order)
    shown: list[TableRow] = []
    rest: list[TableRow] = []
    for feature in findings.order:
        rows = _table_rows(story, feature, limits)
        (shown if feature in first else rest).extend(rows)
    tables = [Table(tuple(shown))]
    if rest:
        count = len(findings.order) - len(first)
        tables.append(Table(tuple(rest), f"{count} weaker features"))
    return tuple(tables)


def _table_rows(
    story: Story, feature: int, limits: tuple[float, float]
) -> list[TableRow]:
    model = story.model
    lines = [line for line in story.findings.lines if line.feature == feature]
    modifiers = story.findings.modifiers(feature)
    bent_by = join_words(cut_text(story.name(k), MAX_NAME) for k in modifiers)
    reference = show_value(model, feature, float(model.features.reference[feature]))
    if len(lines) == 1 and lines[0].label == "":
        note = f"at {reference}"
        return [_table_row(model, lines[0], story.name(feature), note, bent_by, limits)]
    where = "at" if model.features.levels(feature) is None else "against"
    heading = TableRow(
        story.name(feature), f"{where} {reference}", bent_by, heading=True
    )
    rows = [heading]
    for line in lines:
        name = clean_text(line.label) if line.label else "per unit"
        row = _table_row(model, line, name, "", "", limits, level=True)
        rows.append(row)
    return rows


def _table_row(
    model: FittedModel,
    line: Line,
    name: str,
    note: str,
    bent_by: str,
    limits: tuple[float, float],
    level: bool = False,
) -> TableRow:
    scaled: float | None
    if model.family.ratio_name is not None:
        scaled = float(np.exp(min(line.coef, 700.0)))
    else:
        scaled = line.coef * line.scale if line.label == "" else None
    return TableRow(
        name=name,
        note=note,
        bent_by=bent_by,
        level=level,
        coef=show_number(line.coef),
        coef_value=repr(line.coef),
        scaled=show_number(scaled),
        local_coef=show_range(*line.local_coef),
        average=show_number(line.average_effect),
        local_effect=show_range(*line.local_effect),
        cell=range_cell(line, *limits),
    )


def make_effect_panels(story: Story) -> tuple[EffectPanel, ...]:
    model, findings = story.model, story.findings
    rows = story.sample.take(spread_rows(len(story.sample), MAX_POINTS))
    values = evaluate(model, rows.table, story.swap).contributions
    panels = []
    acting = [j for j in findings.order if findings.roles.acts[j]]
    for feature in acting[:MAX_EFFECTS]:
        modifiers = findings.modifiers(feature)
        shade = None
        if modifiers:
            shade = shade_rows(model, modifiers[0], rows.table[:, modifiers[0]])
        panels.append(
            EffectPanel(
                name=story.name(feature),
                figure=effect_figure(model, rows, values[:, feature], feature, shade),
                shade="" if shade is None else story.name(shade.feature),
                shade_ends="" if shade is None else shade.legend,
            )
        )
    return tuple(panels)


def make_pair_rows(story: Story) -> tuple[PairRow, ...]:
    pairs = story.findings.pairs[:MAX_PAIRS]
    largest = max((pair.joint for pair in pairs), default=0.0)
    decimals = common_decimals([largest])
    return tuple(
        PairRow(
            story.name(pair.first),
            story.name(pair.second),
            show_fixed(pair.joint, decimals).removeprefix("+"),
            share_cell(pair.joint / largest if largest > 0 else 0.0),
        )
        for pair in pairs
        if pair.joint > 0
    )


def make_curve_panels(story: Story) -> tuple[CurvePanel, ...]:
    pairs = story.findings.pairs[:MAX_CURVES]
    largest = max((pair.joint for pair in pairs), default=0.0)
    panels = []
    for pair in pairs:
        if pair.joint <= FAINT_PAIR * largest:
            continue
        drawn = curve_figure(story.model, story.sample, story.swap, pair)
        panels.append(
            CurvePanel(
                story.name(pair.bent),
                story.name(pair.modifier),
                drawn.figure,
                drawn.key,
            )
        )
    return tuple(panels)


def make_case_block(story: Story, case: Case) -> CaseBlock:
    low, high = case.limits
    base = case.base_value
    decimals = common_decimals(step.amount for step in case.steps)
    steps = [
        CaseStep("base value", "", show_number(base), total_cell(base, low, high), True)
    ]
    if case.offset:
        start = total_cell(base + case.offset, low, high)
        amount = show_fixed(case.offset, decimals)
        steps.append(CaseStep("offset", "", amount, start))
    steps += [
        CaseStep(
            step.name,
            f"= {step.value}" if step.value else "",
            show_fixed(step.amount, decimals),
            step_cell(step.start, step.stop, low, high),
        )
        for step in case.steps
    ]
    end = total_cell(case.eta, low, high)
    name = story.model.family.eta_name
    steps.append(CaseStep(name, "", show_number(case.eta), end, True))
    return CaseBlock(case.label, case.why, _outcome(story, case), tuple(steps))


def _outcome(story: Story, case: Case) -> str:
    classes = story.fit.classes
    if classes is None:
        return (
            f"Predicted {show_number(case.prediction)}, observed "
            f"{show_number(case.observed)}."
        )
    observed = classes[int(case.observed > 0.5)]
    chance = show_percent(case.prediction)
    return f"Probability of {classes[1]} {chance}, observed {observed}."
