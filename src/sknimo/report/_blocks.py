"""Tables, panels and explained rows of a page, as text and drawings."""

import math
from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain import (
    Origin,
    SummaryRow,
    correction_curve,
    effect_curve,
    is_bent,
)
from sknimo.inference import next_intervals
from sknimo.report._cases import Case
from sknimo.report._figures import (
    Panel,
    bar_cell,
    curve_panel,
    effect_panel,
    range_cell,
    range_scale,
    step_cell,
    total_cell,
)
from sknimo.report._inputs import INTERVAL
from sknimo.report._lines import Line
from sknimo.report._story import Story
from sknimo.report._svg import Scale
from sknimo.report._text import (
    clean_text,
    common_decimals,
    cut_text,
    join_words,
    show_count,
    show_fixed,
    show_number,
    show_percent,
)

MAX_EFFECTS = 6
MAX_PAIRS = 8
MAX_CURVES = 6
# Values along which a curve is drawn.
N_GRID = 41
# Pairs below this share of the strongest are not worth a figure.
FAINT_PAIR = 0.05
# Share of an effect that differs between rows, up to which it hardly does.
HARDLY = 0.1
# Lines, and features, of the first table of coefficients; the others are folded.
FIRST_LINES = 30
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
    per: str = ""
    average: str = ""
    sure: str = ""
    reach: str = ""
    coef: str = ""
    coef_value: str = ""
    ratio: str = ""
    interval: str = ""
    cell: str = ""
    faint: bool = False
    misleads: bool = False


@dataclass(frozen=True, slots=True)
class StepRow:
    """A line of a waterfall."""

    name: str
    value: str
    amount: str
    cell: str
    total: bool = False
    reach: str = ""


def make_tables(story: Story) -> list[tuple[list[TableRow], str]]:
    """Rows of coefficients, strongest features at once, and what unfolds the others."""
    scale = range_scale(story.lines)
    order = story.order
    n_lines = np.cumsum([len(story.lines_of(j)) for j in order])
    n_first = max(1, min(FIRST_FEATURES, int((n_lines <= FIRST_LINES).sum())))
    if len(order) <= n_first + 2:  # folding them would hide more than it saves
        n_first = len(order)
    tables = []
    for features, folded in (
        (order[:n_first], ""),
        (order[n_first:], f"{len(order) - n_first} weaker features"),
    ):
        rows = [row for j in features for row in _table_rows(story, j, scale)]
        if rows or not folded:
            tables.append((rows, folded))
    return tables


def _table_rows(story: Story, feature: int, scale: Scale) -> list[TableRow]:
    features = story.model.features
    lines = story.lines_of(feature)
    name, modifiers = story.name(feature), story.effects.modifiers_of(feature)
    bent_by = join_words(cut_text(story.name(k), MAX_NAME) for k in modifiers)
    reference = story.reference_text(feature)
    if len(lines) == 1 and lines[0].row.is_feature:
        note = f"reference {reference}"
        return [_table_row(story, lines[0], scale, name, note, bent_by)]
    where = "reference" if features.levels(feature) is None else "against"
    heading = TableRow(name, f"{where} {reference}", bent_by, heading=True)
    labels = [clean_text(line.row.level) or "the number" for line in lines]
    pairs = zip(lines, labels, strict=True)
    return [heading, *(_table_row(story, line, scale, label) for line, label in pairs)]


def _table_row(
    story: Story, line: Line, scale: Scale, name: str, note: str = "", bent_by: str = ""
) -> TableRow:
    row, level = line.row, not note  # which stands below a heading
    if not row.is_feature and row.n_rows is not None:
        note = show_count(round(row.n_rows), "row")
        note += f", counts as {clean_text(row.stands_for)}" * bool(row.stands_for)
        note += ", too few to quote" * (row.is_rare and not row.is_pooled)
    if row.is_pooled:  # no coefficient, no figure
        return TableRow(name, note, bent_by, level=level, faint=True)
    low, high = line.response_ends
    return TableRow(
        name=name,
        note=note,
        bent_by=bent_by,
        level=level,
        per=show_number(row.step) if row.is_feature else "",
        average=story.show_change(line.response),
        sure=story.show_interval(line),
        reach="" if np.isclose(low, high, 1e-9, 0) else story.show_changes(low, high),
        coef=show_number(row.coef * row.step),
        coef_value=repr(row.coef),
        ratio="" if np.isnan(row.ratio) else show_number(row.step_ratio),
        interval=_show_interval(row),
        cell=range_cell(line, scale),
        faint=row.is_rare,
        misleads=line.misleads,
    )


def _show_interval(row: SummaryRow) -> str:
    """Both ends for one step, or why there are none."""
    if row.lower is None or row.upper is None:
        return row.error_note
    ends = (show_number(end * row.step, 3) for end in (row.lower, row.upper))
    return " to ".join(ends)


def make_effect_panels(story: Story) -> tuple[Panel, ...]:
    panels = []
    acting = [j for j in story.order if story.effects.roles.acts[j]]
    for feature in acting[:MAX_EFFECTS]:
        modifier = next(iter(story.effects.modifiers_of(feature)), None)
        curve = effect_curve(
            story.model, feature, n_grid=N_GRID, table=story.sample.table
        )
        panel = effect_panel(curve, story.dots, feature, modifier)
        varies = float(np.nan_to_num(story.effects.bend[feature]))
        if modifier is None and is_bent(story.model):
            how = "Hardly depends" if varies <= HARDLY else "Depends a little"
            panel = replace(panel, caption=f"{how} on others.")
        panels.append(panel)
    return tuple(panels)


def _bent_pairs(story: Story, most: int) -> list[tuple[int, int]]:
    """Pairs that interact, strongest first; of either the one that is bent more."""
    directed, bends = story.effects.directed, story.effects.bends
    p = len(directed)
    pairs = [
        (j, k) if directed[j, k] >= directed[k, j] else (k, j)
        for j, k in story.interactions.strongest_pairs(p * p)
    ]
    # Where the table says that nothing bends a coefficient, nothing does here.
    return [pair for pair in pairs if bends[pair]][:most]


def make_pair_rows(story: Story) -> tuple[tuple[str, str, str, str], ...]:
    """Names of two features, and how strongly they interact: as a bar and a number."""
    pairs = _bent_pairs(story, MAX_PAIRS)
    strength = [float(story.interactions.strength[pair]) for pair in pairs]
    decimals = common_decimals(strength)
    return tuple(
        (
            story.name(min(pair)),
            story.name(max(pair)),
            bar_cell(size / strength[0]),
            show_fixed(size, decimals).removeprefix("+"),
        )
        for pair, size in zip(pairs, strength, strict=True)
    )


def make_curve_panels(story: Story) -> tuple[Panel, ...]:
    model, features = story.model, story.model.features
    coef = features.coefficients(model.term_coef)
    strength = story.interactions.strength
    panels = []
    for bent, modifier in _bent_pairs(story, MAX_CURVES):
        if strength[bent, modifier] <= FAINT_PAIR * strength.max():
            continue
        curve = correction_curve(
            model,
            bent,
            modifier,
            swap=story.swap,
            n_grid=N_GRID,
            table=story.sample.table,
        )
        own = features.coef_feature == bent
        panels.append(curve_panel(curve, coef[own], _step_of(story, bent)))
    return tuple(panels)


def _step_of(story: Story, feature: int) -> float:
    """The step that the table has a number's coefficient for; one for levels."""
    return next((x.row.step for x in story.lines_of(feature) if x.row.is_feature), 1.0)


def make_waterfall(story: Story, case: Case) -> list[StepRow]:
    """The way from the base value to the linear predictor of one row."""
    scale = Scale(*case.limits, 0.0, 1.0)
    base, offset = case.found.base_value, float(case.found.offset[0])
    amounts = [offset, *(step.amount for step in case.steps)]
    decimals = common_decimals(amounts)
    first = total_cell(base, scale)
    steps = [StepRow("base value", "", show_number(base), first, total=True)]
    if offset:
        start = total_cell(base + offset, scale)
        name = "other classes" if story.sample.of_class else "offset"
        steps.append(StepRow(name, "", show_fixed(offset, decimals), start))
    steps += [
        StepRow(
            step.name,
            f"= {step.value}" if step.value else "",
            show_fixed(step.amount, decimals),
            step_cell(step.start, step.stop, scale),
            reach=_show_reach(step.reach),
        )
        for step in case.steps
    ]
    eta = float(case.found.eta[0])
    end = total_cell(eta, scale)
    steps.append(StepRow(story.total_name, "", show_number(eta), end, total=True))
    return steps


def _show_reach(reach: float) -> str:
    """How far an interval goes to either side, in two digits."""
    return "" if math.isnan(reach) else f"\N{PLUS-MINUS SIGN} {show_number(reach, 2)}"


def tell_outcome(story: Story, case: Case) -> str:
    """What was predicted for a row, and what was observed."""
    classes, mean = story.card.classes, float(case.found.mean[0])
    if classes is None:
        if story.model.family.is_hazard:
            seen = "an event" if case.observed > 0 else "no event"
            return (
                f"Hazard {show_number(mean)} times the reference's. Observed: {seen}."
            )
        text = f"Predicted {show_number(mean)}, observed {show_number(case.observed)}."
        return text + _tell_interval(story, case)
    observed = classes[int(case.observed > 0.5)]
    chance = show_percent(mean)
    return f"Probability of {classes[1]}: {chance}. Observed: {observed}."


def _tell_interval(story: Story, case: Case) -> str:
    """Where such a row is expected, if rows held out have told."""
    if story.card.conformal is None:
        return ""
    found = next_intervals(
        story.model,
        story.card.conformal,
        case.found.data,
        case.found.eta,
        level=INTERVAL,
        adapt=True,
        origin=Origin(),
    )
    ends = float(found.lower[0]), float(found.upper[0])
    if not np.isfinite(ends).all():
        return ""
    low, high = (show_number(end) for end in ends)
    return f" Expected between {low} and {high} ({100 * INTERVAL:g} %)."
