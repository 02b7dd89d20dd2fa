"""Every public estimator passes all of scikit-learn's checks; none may fail.

The checks are about behaviour, not about training: a short run shows the same as a
long one. The runs with plain defaults and of other families are marked slow.
"""

import numpy as np
import pytest
from sklearn.utils import column_or_1d
from sklearn.utils.estimator_checks import parametrize_with_checks

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    NIMOSurvival,
)

SHORT = 3  # optimiser steps: the checks ask for manners, not for a fit
SHORT_SEARCH = {
    "alphas": (0.05,),
    "cv": 2,
    "n_starts": 1,
    "relax": False,
    "max_iter": 2,
    "hidden": (2, 2),
    "basis": "linear",
}

# The checks fit tiny tables, now and then with a constant column or parted classes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sknimo.DataWarning"),
    pytest.mark.filterwarnings("ignore::sknimo.SeparationWarning"),
]


@parametrize_with_checks(
    [
        NIMORegressor(max_iter=SHORT),
        NIMOClassifier(max_iter=SHORT),
        NIMORegressorCV(**SHORT_SEARCH),
        NIMOClassifierCV(**SHORT_SEARCH),
    ]
)
def test_estimators_pass_every_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        NIMORegressor(),
        NIMORegressor(family="poisson"),
        NIMORegressor(family="gamma"),
        NIMOClassifier(),
        NIMORegressorCV(),
        NIMORegressorCV(family="poisson"),
        NIMORegressorCV(family="gamma"),
        NIMOClassifierCV(),
    ]
)
def test_estimators_pass_every_check_with_plain_defaults(estimator, check):
    check(estimator)


class EveryTimeEnds(NIMOSurvival):
    """Survival for checks, which know no targets of two columns: `y` is the time."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, as_times(y), sample_weight)

    def score(self, X, y, sample_weight=None):
        return super().score(X, as_times(y), sample_weight)


def as_times(y):
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    time = column_or_1d(np.asarray(y), warn=True)
    if time.dtype.kind in "OUS":
        time = np.unique(time.astype(str), return_inverse=True)[1]
    if np.iscomplexobj(time):
        raise ValueError("Complex data not supported: y must be real numbers.")
    time = time.astype(float)
    return np.column_stack([time - np.nanmin(time) + 1, np.ones(len(time))])


@pytest.mark.slow
# Integer weights equal repetition with Breslow's ties alone.
@parametrize_with_checks([EveryTimeEnds(max_iter=0, ties="breslow")])
def test_survival_passes_every_check(estimator, check):
    check(estimator)
