"""What features do, in a sentence each."""

import math

import numpy as np

from sknimo.explain import POSSIBLE, mean_of, spread_rows
from sknimo.report._blocks import HARDLY
from sknimo.report._lines import Line
from sknimo.report._story import Story
from sknimo.report._text import (
    clean_text,
    cut_text,
    join_words,
    show_number,
    show_percent,
)

MAX_SENTENCES = 4
# An effect that varies by less than this share of itself is called the same.
STEADY = 0.1
# One that goes so many times its average either way has no direction.
UP_AND_DOWN = 2.0
# A curve that goes one way by more than this share of the other turns: it is told by
# where it is lowest and highest, looked for over rows and values.
TURNS = 0.25
TURN_ROWS = 200
TURN_VALUES = 25


def make_sentences(story: Story) -> tuple[tuple[str, str], ...]:
    """The features that move predictions most, each with a sentence."""
    out = []
    for feature in story.order:
        # What few rows say is no headline.
        lines = [line for line in story.lines_of(feature) if not line.row.is_rare]
        lines = [line for line in lines if np.isfinite(line.response)]
        # Nor is a missing value beside what is known.
        lines = [line for line in lines if line.row.kind != "missing"] or lines
        if not lines:
            continue
        line = max(lines, key=lambda line: abs(line.eta * line.per_unit))
        acts = story.effects.roles.acts[feature]
        text = _sentence(story, line) if acts else _modifier_sentence(story, feature)
        out.append((story.name(feature), text))
        if len(out) == MAX_SENTENCES:
            break
    return tuple(out)


def _sentence(story: Story, line: Line) -> str:
    """One comparison in words: on average, over rows, and what it depends on."""
    low, high = line.response_ends
    what, where = _comparison(story, line), response_name(story)
    average, ends = story.show_change(line.response), story.show_changes(low, high)
    modifiers = modifiers_of(story, line.feature)
    depends = ""
    if modifiers:
        depends = f", depending on {join_words(story.name(k) for k in modifiers)}"
    elif np.ptp(line.eta_ends) <= STEADY * abs(line.eta):
        # The link alone makes them differ.
        depends = f", though nearly the same on the {story.model.family.eta_name}"
    if line.support < POSSIBLE:
        depends += "; few rows could change so, all else equal"
    sure = story.show_interval(line)
    usual = "on average"
    usual += f" (95\N{NO-BREAK SPACE}% interval {sure})" if sure else ""
    if line.row.kind == "curve" and min(-low, high) > TURNS * max(-low, high):
        return f": up and down. {_turns(story, line.feature)}{depends}."
    size = UP_AND_DOWN * abs(line.response)
    if low < -size and high > size:  # its average says little
        times = "times" if story.model.family.is_hazard else "in"
        return (
            f": up and down. {what[0].upper()}{what[1:]} goes with {ends} {times} the "
            f"{where} in 90\N{NO-BREAK SPACE}% of the rows, {average} {usual}{depends}."
        )
    inside = "" if story.model.family.is_hazard else "in "
    text = f": {what} goes with {average} {inside}the {where} {usual}"
    if high - low <= STEADY * abs(line.response):
        return f"{text}, much the same in all rows."
    return f"{text}; {ends} in 90\N{NO-BREAK SPACE}% of the rows{depends}."


def _turns(story: Story, feature: int) -> str:
    """Where along a feature predictions are lowest and highest, on average."""
    rows = story.sample.take(spread_rows(len(story.sample), TURN_ROWS))
    hazard = story.model.family.is_hazard
    weight, values = rows.row_weight, _values(story, feature)
    if len(values) > TURN_VALUES:
        column = story.sample.table[:, feature]
        values = np.nanquantile(column, np.linspace(0.02, 0.98, TURN_VALUES))
    table, means, respond = rows.table.copy(), [], story.card.respond
    for value in values:
        table[:, feature] = value
        if respond is not None:
            mean = respond(table)
        elif hazard:
            mean = story.model.eta(table)
        else:
            eta = story.model.eta(table) + rows.row_offset
            mean = mean_of(story.model.family, eta)
        means.append(float(weight @ mean))
    if hazard:
        means = [math.exp(mean - story.model.base_value) for mean in means]
    low, high = int(np.argmin(means)), int(np.argmax(means))
    shown = [
        show_percent(means[at])
        if story.card.classes is not None
        else show_number(means[at], 3)
        + " times the reference's" * (hazard and at == low)
        for at in (low, high)
    ]
    ends = [show_number(float(values[at]), 3) for at in (low, high)]
    where = response_name(story)
    return (
        f"With all else as in the rows, the {where} is lowest at {ends[0]} "
        f"({shown[0]} on average) and highest at {ends[1]} ({shown[1]})"
    )


def _modifier_sentence(story: Story, feature: int) -> str:
    """What a feature without a coefficient does: it bends others."""
    effects = story.effects
    order = np.argsort(-effects.directed[:, feature], kind="stable").tolist()
    moved = [j for j in order if effects.bends[j, feature]] or order
    names = join_words(story.name(j) for j in moved[:3])
    return f": no effect at the reference, but that of {names} depends on it."


def _comparison(story: Story, line: Line) -> str:
    if not line.row.is_feature:
        baseline = story.reference_text(line.feature)
        return f"{clean_text(line.row.level)} instead of {baseline}"
    values = _values(story, line.feature)
    if len(values) == 2:
        low, high = (show_number(float(value)) for value in values)
        return f"{high} instead of {low}"
    return "one more" if line.row.step == 1 else f"{show_number(line.row.step)} more"


def _values(story: Story, feature: int) -> np.ndarray:
    """Different values of a number, in order."""
    column = story.sample.table[:, feature]
    return np.unique(column[~np.isnan(column)])


def response_name(story: Story) -> str:
    """What averages are about."""
    classes = story.card.classes
    if classes is not None:
        target = cut_text(story.sample.target, 24)
        return f"probability that {target} is {cut_text(classes[1], 24)}"
    if story.model.family.is_hazard:
        return "hazard"
    mean = "" if story.model.family.link == "identity" else "mean of "
    # A target without a name is "the target"; its reader says "the" before it.
    target = story.sample.target if mean else story.sample.target.removeprefix("the ")
    return f"{mean}{cut_text(target, 32)}"


def modifiers_of(story: Story, feature: int) -> tuple[int, ...]:
    """What an effect depends on, if it is worth a word."""
    varies = float(np.nan_to_num(story.effects.bend[feature]))
    return tuple(story.effects.modifiers_of(feature)) if varies > HARDLY else ()
