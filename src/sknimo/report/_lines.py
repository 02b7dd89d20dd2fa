"""The coefficients that a page shows: rows of the summary, with their reach over rows.

Shapes: c coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sknimo.explain import CoefficientRanges, Effects, SummaryRow, summary_rows
from sknimo.model import FittedModel


@dataclass(frozen=True, slots=True)
class Line:
    """One coefficient that a reader can quote, and what becomes of it over rows.

    `row` is a slope, a level or a missing value, as the summary has it. `unit` makes
    lines comparable: the standard deviation of a slope, one for a contrast. Local
    coefficients and effects are the ends of what 90 % of the rows have.
    """

    feature: int
    row: SummaryRow
    unit: float
    local_coef: tuple[float, float]
    local_effect: tuple[float, float]

    @property
    def average_effect(self) -> float:
        """Mean local effect; NaN where no value is known."""
        average = self.row.average_effect
        return float("nan") if average is None else average


def make_lines(
    model: FittedModel, effects: Effects, ranges: CoefficientRanges
) -> Iterator[Line]:
    """One line per coefficient of every feature with a role, in their order."""
    owner, scale = model.features.coef_feature, model.features.scale
    roles = iter(np.flatnonzero(effects.roles.relevant).tolist())
    for row in summary_rows(model, effects):
        if row.is_feature:
            feature = next(roles)
            own = iter(np.flatnonzero(owner == feature).tolist())
        if row.kind in ("category", "baseline"):
            continue
        at = next(own)
        yield Line(
            feature=feature,
            row=row,
            unit=float(scale[feature]) if row.is_feature else 1.0,
            local_coef=tuple(ranges.local_coef[at].tolist()),
            local_effect=tuple(ranges.local_effect[at].tolist()),
        )
