"""How well a fitted model is known: covariances, intervals, bands and contrasts."""

from sknimo.inference._bands import (
    Band,
    CovType,
    Intervals,
    choose_covariance,
    coefficient_intervals,
    curve_band,
)
from sknimo.inference._contrasts import (
    Contrast,
    contrasts,
    level_weights,
    named_weights,
)
from sknimo.inference._covariance import (
    REASONS,
    Uncertainty,
    coefficient_covariance,
)
from sknimo.inference._robust import Clusters

__all__ = [
    "REASONS",
    "Band",
    "Clusters",
    "Contrast",
    "CovType",
    "Intervals",
    "Uncertainty",
    "choose_covariance",
    "coefficient_covariance",
    "coefficient_intervals",
    "contrasts",
    "curve_band",
    "level_weights",
    "named_weights",
]
