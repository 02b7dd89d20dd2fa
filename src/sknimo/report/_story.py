"""All numbers of a report, before they become text: the records of `explain`.

Shapes: p features, q terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain import (
    MAX_ROWS,
    Comparisons,
    Effects,
    Explanation,
    Interactions,
    Support,
    compare,
    effects,
    explain,
    fit_gauge,
    interactions,
    measure_support,
    ranking_rows,
    spread_rows,
    usual_scale,
)
from sknimo.model import FittedModel
from sknimo.report._cases import Case, explain_cases
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._lines import Line, make_lines
from sknimo.report._quality import Quality, judge, judge_held_out, judge_left_out
from sknimo.report._text import (
    clean_text,
    show_fixed,
    show_number,
    show_range,
    show_value,
)

# Rows that are drawn as dots.
MAX_POINTS = 240


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """All numbers of a report, before they become text.

    `swap` (q, q) is the gauge of the contributions. The effects are those of the
    summary where the rows are the training rows. Lines come in the order of the
    columns; `dots` explains the rows that are drawn. `fresh` is the quality on rows
    that the model, or at least its coefficients, has not seen, None without any.
    """

    card: ModelCard
    sample: Sample
    held_out: Sample | None
    quality: Quality
    fresh: Quality | None
    swap: np.ndarray
    effects: Effects
    comparisons: Comparisons
    support: Support | None
    interactions: Interactions
    lines: tuple[Line, ...]
    dots: Explanation
    cases: tuple[Case, ...]

    @property
    def model(self) -> FittedModel:
        """The fitted model."""
        return self.card.model

    @property
    def judged(self) -> Quality:
        """The quality to quote: on rows as new to the model as any are."""
        return self.quality if self.fresh is None else self.fresh

    @property
    def order(self) -> tuple[int, ...]:
        """Features with a role, those that move predictions most first."""
        ranked = np.argsort(-self.comparisons.importance, kind="stable").tolist()
        return tuple(j for j in ranked if self.effects.roles.relevant[j])

    def name(self, feature: int) -> str:
        """Name of a feature."""
        return self.model.features.names[feature]

    def names_with_role(self, role: str) -> list[str]:
        """Features that do nothing else."""
        labels = self.effects.role
        return [self.name(j) for j, label in enumerate(labels) if label == role]

    def reference_text(self, feature: int) -> str:
        """Reference of a feature, a level by its name."""
        features = self.model.features
        value = float(features.reference[feature])
        return show_value(value, features.levels(feature))

    @property
    def total_name(self) -> str:
        """What base value, offset and parts of a row sum to."""
        return "log-odds" if self.sample.of_class else self.model.family.eta_name

    def show_change(self, value: float) -> str:
        """A change of the response: points of a probability, a multiple of a hazard."""
        family = self.model.family
        if family.is_hazard and not np.isnan(value):
            return f"{show_number(np.exp(value), 3)} times"
        if family.is_binary and not np.isnan(value):
            return f"{show_fixed(100 * value, 1)} points"
        return show_number(value, 3, signed=True)

    def show_changes(self, low: float, high: float) -> str:
        """The ends of a range of such changes."""
        hazard = self.model.family.is_hazard
        if not (hazard or self.model.family.is_binary):
            return show_range(low, high)
        return " to ".join(
            show_number(np.exp(end), 3) if hazard else show_fixed(100 * end, 1)
            for end in (low, high)
        )

    def show_interval(self, line: Line) -> str:
        """The 95 % interval of an average, where rows held out give one."""
        low, high = line.row.average_lower, line.row.average_upper
        return "" if low is None or high is None else self.show_changes(low, high)

    def lines_of(self, feature: int) -> list[Line]:
        """The coefficients of a feature."""
        return [line for line in self.lines if line.feature == feature]


def tell(
    card: ModelCard,
    sample: Sample,
    held_out: Sample | None = None,
    rows: int | Sequence[int] | None = None,
) -> Story:
    """Compute all numbers of a report."""
    card, sample = _clean_card(card), _clean_sample(sample)
    model, facts = card.model, card.facts
    weight = sample.weight
    swap = fit_gauge(model, sample.table, weight) if facts is None else facts.swap
    quality = judge(card, sample)
    fresh = None
    if held_out is not None:
        fresh = judge_held_out(card, sample, held_out)
    elif quality.rows == "training":
        fresh = judge_left_out(card, sample)
    # As many rows as a fit sums up of its training.
    some, few = sample.take(spread_rows(len(sample), MAX_ROWS)), ranking_rows(model)
    table, weight = some.table, some.weight
    compared, found, directed = None, None, None
    if facts is not None and quality.rows == "training":
        found, compared = facts.effects, facts.comparisons
        directed = found.directed  # one answer to who bends whom
    pairs = interactions(
        model, table, weight=weight, swap=swap, directed=directed, max_rows=few
    )
    if found is None:
        found = effects(
            model,
            table,
            weight=weight,
            offset=some.offset,
            swap=swap,
            directed=pairs.directed,
            max_rows=few,
        )
    if compared is None:
        compared = compare(
            model, table, weight=weight, offset=some.offset, respond=card.respond
        )
    # A few far values must not stretch the scale of all.
    scale = usual_scale(model.features, table)
    lines = tuple(make_lines(model, found, compared, card.errors, scale))
    dots = sample.table[spread_rows(len(sample), MAX_POINTS)]
    return Story(
        card=card,
        sample=sample,
        held_out=held_out,
        quality=quality,
        fresh=fresh,
        swap=swap,
        effects=found,
        comparisons=compared,
        support=measure_support(model, table, weight),
        interactions=pairs,
        lines=lines,
        dots=explain(model, dots, swap=swap),
        cases=explain_cases(card, sample, quality.eta, swap, rows),
    )


def _clean_card(card: ModelCard) -> ModelCard:
    """The same model with names that can be shown; features are known by position."""
    features, classes = card.model.features, card.classes
    names = tuple(map(clean_text, features.names))
    return replace(
        card,
        model=replace(card.model, features=replace(features, names=names)),
        kind=clean_text(card.kind),
        settings=tuple((name, clean_text(value)) for name, value in card.settings),
        classes=classes and (clean_text(classes[0]), clean_text(classes[1])),
    )


def _clean_sample(sample: Sample) -> Sample:
    """The same rows with names that can be shown."""
    return replace(
        sample,
        labels=sample.labels and tuple(map(clean_text, sample.labels)),
        names=sample.names and tuple(map(clean_text, sample.names)),
        target=clean_text(sample.target),
    )
