"""The coefficients that a page shows: rows of the summary, with their reach over rows.

Shapes: c coefficients.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sknimo.explain import Comparisons, Effects, KnownErrors, SummaryRow, summary_rows
from sknimo.model import FittedModel


@dataclass(frozen=True, slots=True)
class Line:
    """One coefficient that a reader can quote, and what becomes of it over rows.

    `row` is a slope, a level or a missing value, as the summary has it. `unit` makes
    lines comparable: the standard deviation of a slope, one for a contrast. Changes
    are for one `row.step`: of the linear predictor and of the response on average, and
    the ends of what 90 % of the rows have. `support` is the share of the rows that
    could make the step.
    """

    feature: int
    row: SummaryRow
    unit: float
    eta: float
    eta_ends: tuple[float, float]
    response: float
    response_ends: tuple[float, float]
    support: float
    misleads: bool

    @property
    def per_unit(self) -> float:
        """Factor from a step to the unit of comparison."""
        return self.unit / self.row.step


def make_lines(
    model: FittedModel,
    effects: Effects,
    found: Comparisons,
    errors: KnownErrors | None = None,
    scale: np.ndarray | None = None,
) -> Iterator[Line]:
    """One line per coefficient of every feature with a role, in their order.

    `scale` (p,) is the spread of the features that makes them comparable.
    """
    owner, found = model.features.coef_feature, found.as_read(model.family)
    scale = model.features.scale if scale is None else scale
    roles = iter(np.flatnonzero(effects.roles.relevant).tolist())
    wrong = found.contradicts(model.features.coefficients(model.term_coef))
    for row in summary_rows(model, effects, found, errors):
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
            eta=float(found.eta[at]),
            eta_ends=tuple(found.eta_ends[:, at].tolist()),
            response=float(found.response[at]),
            response_ends=tuple(found.response_ends[:, at].tolist()),
            support=float(found.support[at]),
            misleads=bool(wrong[at]) and not row.is_rare,
        )
