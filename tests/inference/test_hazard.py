"""Standard errors under a baseline hazard, against statsmodels."""

import numpy as np
import pytest

from sknimo import NIMOSurvival
from sknimo.datasets import make_nimo_survival
from sknimo.survival import RiskSums
from sknimo.training._follow_up import read_follow_up

phreg = pytest.importorskip("statsmodels.duration.hazard_regression")
OFF = {"alpha": 0.0, "max_iter": 0}


@pytest.fixture(scope="module")
def rows():
    """Features, tied times and events, late entries, and strata."""
    data = make_nimo_survival(n_samples=150, random_state=0)
    random = np.random.default_rng(0)
    time, event = np.asarray(data.y).T
    time = np.ceil(5 * time) / 5
    entry = random.uniform(0, 0.5, len(time)) * time
    return data.X[:, :3], time, event, entry, random.integers(0, 3, len(time))


@pytest.mark.parametrize(("ties", "late"), [("efron", True), ("breslow", False)])
def test_errors_are_those_of_a_cox_regression(rows, ties, late):
    X, time, event, entry, strata = rows
    more = {"entry": entry, "strata": strata} if late else {}
    theirs = phreg.PHReg(time, X, status=event, ties=ties, **more).fit()
    est = NIMOSurvival(ties=ties, **OFF).fit(X, np.c_[time, event], **more)
    found = est.conf_int()
    np.testing.assert_allclose(est.coef_, theirs.params, rtol=1e-6)
    np.testing.assert_allclose(found.std_err, theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(found.lower, theirs.conf_int()[:, 0], rtol=1e-5)
    np.testing.assert_allclose(est.cov_, theirs.cov_params(), rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_weights_count_rows_and_merged_rows_stay_apart(rows):
    X, time, event, _, _ = rows
    X = X.round(0)  # many rows are alike but for their times
    y = np.c_[time, event]
    weight = np.random.default_rng(1).integers(0, 3, len(time))
    row = np.repeat(np.arange(len(time)), weight)
    one = NIMOSurvival(ties="breslow", **OFF).fit(X, y, sample_weight=weight)
    two = NIMOSurvival(ties="breslow", **OFF).fit(X[row], y[row])
    np.testing.assert_allclose(one.cov_, two.cov_, rtol=1e-6)
    theirs = phreg.PHReg(time[row], X[row], status=event[row], ties="breslow").fit()
    np.testing.assert_allclose(two.conf_int().std_err, theirs.bse, rtol=1e-6)


def test_clusters_are_those_of_statsmodels(rows):
    X, time, event, entry, strata = rows
    more = {"entry": entry, "strata": strata}
    groups = np.random.default_rng(2).integers(0, 30, len(time))
    model = phreg.PHReg(time, X, status=event, ties="breslow", **more)
    theirs = model.fit(groups=groups)
    est = NIMOSurvival(ties="breslow", **OFF)
    keep = est._keep_uncertainty
    est._keep_uncertainty = lambda *a, **k: keep(*a, labels=groups, **k)
    found = est.fit(X, np.c_[time, event], **more).conf_int(cov_type="cluster")
    known, n = est._uncertainty, len(time)
    few = 30 / 29 * (n - 1) / (n - known.n_effective)
    np.testing.assert_allclose(found.std_err, np.sqrt(few) * theirs.bse, rtol=1e-6)
    with pytest.raises(ValueError, match="groups of one row"):
        est.conf_int(cov_type="HC3")


def test_rows_add_up_to_the_score_of_tied_events(rows):
    X, time, event, _, _ = rows
    follow_up = read_follow_up(np.c_[time, event], np.ones(len(time)))
    at = np.array([0.3, -0.2, 0.1])
    sums = RiskSums.of(follow_up, X @ at, "efron")
    found = sums.score_residuals(X, np.ones(len(time)))
    truth = phreg.PHReg(time, X, status=event, ties="efron").score(at)
    np.testing.assert_allclose(found.sum(0), truth, rtol=1e-9)
