"""How sure one can be: intervals of predictions and average effects."""

from sknimo.inference._average import (
    AverageEffects,
    KnownRows,
    average_effects,
    correct_comparisons,
)
from sknimo.inference._conformal import (
    Conformal,
    Intervals,
    Kind,
    PredictionSets,
    Scores,
    Width,
    calibrate,
    next_intervals,
    pack_conformal,
    prediction_sets,
    restore_conformal,
)

__all__ = [
    "AverageEffects",
    "Conformal",
    "Intervals",
    "Kind",
    "KnownRows",
    "PredictionSets",
    "Scores",
    "Width",
    "average_effects",
    "calibrate",
    "correct_comparisons",
    "next_intervals",
    "pack_conformal",
    "prediction_sets",
    "restore_conformal",
]
