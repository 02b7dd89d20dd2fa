"""All numbers of a report, before they become text: the records of `explain`.

Shapes: p features, q terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain import (
    MAX_ROWS,
    Effects,
    Explanation,
    Interactions,
    coefficient_ranges,
    effects,
    explain,
    fit_gauge,
    interactions,
    nested_glm,
    ranking_rows,
    spread_rows,
)
from sknimo.model import FittedModel
from sknimo.report._cases import Case, explain_cases
from sknimo.report._checks import Check, run_checks
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._lines import Line, make_lines
from sknimo.report._quality import Quality, judge
from sknimo.report._text import clean_text, show_value

# Rows that are drawn as dots.
MAX_POINTS = 240


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """All numbers of a report, before they become text.

    `swap` (q, q) is the gauge of the contributions. The effects are those of the
    summary where the rows are the training rows. Lines come in the order of the
    columns; `dots` explains the rows that are drawn.
    """

    card: ModelCard
    sample: Sample
    held_out: Sample | None
    quality: Quality
    held_out_quality: Quality | None
    swap: np.ndarray
    effects: Effects
    interactions: Interactions
    lines: tuple[Line, ...]
    dots: Explanation
    cases: tuple[Case, ...]
    checks: tuple[Check, ...]

    @property
    def model(self) -> FittedModel:
        """The fitted model."""
        return self.card.model

    @property
    def judged(self) -> Quality:
        """The quality to quote: on held-out rows where there are any."""
        held_out = self.held_out_quality
        return self.quality if held_out is None else held_out

    @property
    def order(self) -> tuple[int, ...]:
        """Features with a role, largest effects first."""
        ranked = np.argsort(-self.effects.size, kind="stable").tolist()
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
    glm = nested_glm(model, sample.table, sample.y, weight=weight, offset=sample.offset)
    quality = judge(card, sample, glm)
    other = None if held_out is None else judge(card, held_out, glm, held_out=True)
    # As many rows as a fit sums up of its training.
    some, few = sample.take(spread_rows(len(sample), MAX_ROWS)), ranking_rows(model)
    table, weight = some.table, some.weight
    pairs = interactions(model, table, weight=weight, swap=swap, max_rows=few)
    if facts is not None and quality.rows == "training":
        found = facts.effects
    else:
        found = effects(
            model,
            table,
            weight=weight,
            offset=some.offset,
            swap=swap,
            directed=pairs.directed,
            max_rows=few,
        )
    ranges = coefficient_ranges(model, table, weight=weight, swap=swap, max_rows=few)
    dots = sample.table[spread_rows(len(sample), MAX_POINTS)]
    return Story(
        card=card,
        sample=sample,
        held_out=held_out,
        quality=quality,
        held_out_quality=other,
        swap=swap,
        effects=found,
        interactions=pairs,
        lines=tuple(make_lines(model, found, ranges)),
        dots=explain(model, dots, swap=swap),
        cases=explain_cases(model, sample, quality.eta, swap, rows),
        checks=run_checks(card, sample, quality, held_out, other),
    )


def _clean_card(card: ModelCard) -> ModelCard:
    """The same model with names that can be shown; features are known by position."""
    features = card.model.features
    names = tuple(clean_text(name) for name in features.names)
    classes = card.classes
    return replace(
        card,
        model=replace(card.model, features=replace(features, names=names)),
        kind=clean_text(card.kind),
        settings=tuple((name, clean_text(value)) for name, value in card.settings),
        classes=None
        if classes is None
        else (clean_text(classes[0]), clean_text(classes[1])),
    )


def _clean_sample(sample: Sample) -> Sample:
    """The same rows with names that can be shown."""
    labels = sample.labels
    return replace(
        sample,
        labels=None if labels is None else tuple(map(clean_text, labels)),
        target=clean_text(sample.target),
    )
