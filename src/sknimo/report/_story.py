"""All numbers of a report, before they become text.

Shapes: n rows, q terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain import fit_gauge
from sknimo.model import FittedModel
from sknimo.report._cases import Case, explain_cases
from sknimo.report._checks import Check, run_checks
from sknimo.report._effects import Findings, find_effects
from sknimo.report._inputs import Fit, Sample
from sknimo.report._quality import Quality, judge, nested_glm
from sknimo.report._text import clean_text


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """All numbers of a report, before they become text.

    Attributes
    ----------
    fit : Fit
    sample : Sample
    held_out : Sample or None
    quality : Quality
        On the rows of the report.
    held_out_quality : Quality or None
    swap : ndarray of shape (q, q)
        Gauge of the contributions.
    findings : Findings
    cases : tuple of Case
    checks : tuple of Check
    """

    fit: Fit
    sample: Sample
    held_out: Sample | None
    quality: Quality
    held_out_quality: Quality | None
    swap: np.ndarray
    findings: Findings
    cases: tuple[Case, ...]
    checks: tuple[Check, ...]

    @property
    def model(self) -> FittedModel:
        """The fitted model."""
        return self.fit.model

    @property
    def judged(self) -> Quality:
        """The quality to quote: on held-out rows where there are any."""
        held_out = self.held_out_quality
        return self.quality if held_out is None else held_out

    def name(self, feature: int) -> str:
        """Name of a feature."""
        return self.model.features.names[feature]


def tell(
    fit: Fit,
    sample: Sample,
    held_out: Sample | None = None,
    rows: int | Sequence[int] | None = None,
) -> Story:
    """Compute all numbers of a report."""
    fit, sample = _clean_fit(fit), _clean_sample(sample)
    model = fit.model
    if fit.facts is None:
        swap = fit_gauge(model, sample.table, sample.weight)
    else:
        swap = fit.facts.swap
    glm = nested_glm(model, sample)
    quality = judge(fit, sample, glm)
    other = None if held_out is None else judge(fit, held_out, glm, held_out=True)
    return Story(
        fit=fit,
        sample=sample,
        held_out=held_out,
        quality=quality,
        held_out_quality=other,
        swap=swap,
        findings=find_effects(model, sample, swap),
        cases=explain_cases(model, sample, quality.eta, swap, rows),
        checks=run_checks(fit, sample, quality, held_out, other),
    )


def _clean_fit(fit: Fit) -> Fit:
    """The same fit with names that can be shown; features are known by position."""
    features = fit.model.features
    names = tuple(clean_text(name) for name in features.names)
    classes = fit.classes
    return replace(
        fit,
        model=replace(fit.model, features=replace(features, names=names)),
        kind=clean_text(fit.kind),
        settings=tuple((name, clean_text(value)) for name, value in fit.settings),
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
