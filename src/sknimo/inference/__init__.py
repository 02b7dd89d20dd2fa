"""How well a model is known: covariances, intervals, bands, contrasts and tests."""

from sknimo.inference._average import (
    AverageEffects,
    KnownRows,
    average_effects,
    correct_comparisons,
)
from sknimo.inference._bands import (
    Band,
    CovType,
    Intervals,
    choose_covariance,
    coefficient_intervals,
    curve_band,
)
from sknimo.inference._classes import class_covariance
from sknimo.inference._conformal import (
    Conformal,
    Kind,
    PredictionIntervals,
    PredictionSets,
    calibrate,
    next_intervals,
    pack_conformal,
    prediction_sets,
    restore_conformal,
)
from sknimo.inference._contrasts import (
    Contrast,
    contrasts,
    level_weights,
    named_weights,
)
from sknimo.inference._covariance import coefficient_covariance
from sknimo.inference._hazard import Watched
from sknimo.inference._influence import Influence, influence
from sknimo.inference._local import with_errors
from sknimo.inference._means import MOST_BENT, mean_intervals, weigh_members
from sknimo.inference._robust import Clusters
from sknimo.inference._structure import BendTests, bend_tests
from sknimo.inference._uncertainty import REASONS, Uncertainty
