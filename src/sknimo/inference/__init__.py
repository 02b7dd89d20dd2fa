"""How sure one can be: intervals of predictions and average effects."""

from sknimo.inference._average import (
    AverageEffects,
    KnownRows,
    average_effects,
    correct_comparisons,
)
from sknimo.inference._conformal import (
    Conformal,
    Kind,
    PredictionIntervals,
    PredictionSets,
    Scores,
    Width,
    calibrate,
    next_intervals,
    pack_conformal,
    prediction_sets,
    restore_conformal,
)
from sknimo.inference._structure import BendTests, bend_tests

__all__ = [
    "AverageEffects",
    "BendTests",
    "Conformal",
    "PredictionIntervals",
    "Kind",
    "KnownRows",
    "PredictionSets",
    "Scores",
    "Width",
    "average_effects",
    "bend_tests",
    "calibrate",
    "correct_comparisons",
    "next_intervals",
    "pack_conformal",
    "prediction_sets",
    "restore_conformal",
]
