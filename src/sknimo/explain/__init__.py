"""Explain a fitted model: effects, contributions, interactions, summary.

Everything here is a function of a `FittedModel` and a numeric table, and returns a
frozen record; estimators offer the same as methods. What a number
means, and which numbers belong to the fitted function alone, is said in
`docs/explanations.md`.
"""

from sknimo.explain._attribution import Attribution, integrated_gradients, shapley
from sknimo.explain._effects import Effects, effects
from sknimo.explain._explanation import Explanation, Method, check_method, explain
from sknimo.explain._first_layer import FirstLayer, first_layer
from sknimo.explain._frames import Origin, find_origin
from sknimo.explain._gauge import fit_gauge
from sknimo.explain._interactions import Interactions, interactions
from sknimo.explain._kinds import feature_kinds
from sknimo.explain._levels import LevelEffects, level_effects, restore_levels
from sknimo.explain._local import (
    MAX_ROWS,
    LocalValues,
    Roles,
    find_roles,
    local_coefficients,
    local_values,
)
from sknimo.explain._price import (
    Price,
    TrainingFacts,
    describe_sample,
    describe_training,
    price_of_nonlinearity,
    rank_modifiers,
)
from sknimo.explain._sensitivity import ReferenceSensitivity, reference_sensitivity
from sknimo.explain._summary import Summary, SummaryRow, summarise
from sknimo.explain._surfaces import (
    CorrectionCurve,
    EffectCurve,
    PairSurface,
    correction_curve,
    effect_curve,
    pair_surface,
)
from sknimo.explain._text import clean, show_value

__all__ = [
    "MAX_ROWS",
    "Attribution",
    "CorrectionCurve",
    "EffectCurve",
    "Effects",
    "Explanation",
    "FirstLayer",
    "Interactions",
    "LevelEffects",
    "LocalValues",
    "Method",
    "Origin",
    "PairSurface",
    "Price",
    "ReferenceSensitivity",
    "Roles",
    "Summary",
    "SummaryRow",
    "TrainingFacts",
    "check_method",
    "clean",
    "correction_curve",
    "describe_sample",
    "describe_training",
    "effect_curve",
    "effects",
    "explain",
    "feature_kinds",
    "find_origin",
    "find_roles",
    "first_layer",
    "fit_gauge",
    "integrated_gradients",
    "interactions",
    "level_effects",
    "local_coefficients",
    "local_values",
    "pair_surface",
    "price_of_nonlinearity",
    "rank_modifiers",
    "reference_sensitivity",
    "restore_levels",
    "shapley",
    "show_value",
    "summarise",
]
