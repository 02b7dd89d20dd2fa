"""How far coefficients and effects reach over rows.

Shapes: n rows, c coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sknimo.explain._effects import row_effects
from sknimo.explain._kinds import is_category
from sknimo.explain._levels import level_contrasts, restore_levels
from sknimo.explain._local import (
    check_weight,
    local_coefficients,
    local_values,
    spread_rows,
    weighted_quantiles,
)
from sknimo.model import FittedModel

ENDS = (0.05, 0.95)


@dataclass(frozen=True, slots=True, eq=False)
class CoefficientRanges:
    """What 90 % of the rows have, one line per coefficient.

    Attributes
    ----------
    local_coef, local_effect : ndarray of shape (c, 2)
        Local coefficient and local effect (for a level or a missing value the contrast)
        below which 5 % and 95 % of the weight lie; NaN where no value is known.
    """

    local_coef: np.ndarray
    local_effect: np.ndarray


def coefficient_ranges(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    max_rows: int | None = None,
) -> CoefficientRanges:
    """Find the ranges over weighted rows, of contrasts over at most `max_rows`."""
    features = model.features
    weight = check_weight(weight, len(table))
    coef = local_coefficients(model, table, swap)
    local_coef = [weighted_quantiles(column, weight, ENDS) for column in coef.T]
    local_effect = np.zeros((coef.shape[1], 2))
    steps, _ = row_effects(
        model, table, local_values(model, table, swap), model.eta(table)
    )
    # A numeric feature has its slope first; all other coefficients are contrasts.
    numeric = np.flatnonzero(~is_category(features))
    slopes = np.searchsorted(features.coef_feature, numeric)
    for at, j in zip(slopes, numeric, strict=True):
        local_effect[at] = weighted_quantiles(steps[:, j], weight, ENDS)
    levels = restore_levels(model)
    others = np.setdiff1d(np.arange(len(local_effect)), slopes)
    position = dict(zip(np.flatnonzero(~levels.baseline), others, strict=True))
    kept = spread_rows(len(table), max_rows)
    for at, contrast in level_contrasts(model, table[kept], levels):
        ends = weighted_quantiles(contrast, weight[kept], ENDS)
        local_effect[position[at]] = ends
    return CoefficientRanges(np.reshape(local_coef, (-1, 2)), local_effect)
