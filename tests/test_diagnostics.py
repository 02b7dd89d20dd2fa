"""Measures of predictions agree with other libraries and stay within their range."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning
from sklearn.inspection import partial_dependence
from sklearn.metrics import confusion_matrix, roc_auc_score

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.diagnostics import calibrate, judge_thresholds

RNG = np.random.default_rng(0)
TRUTH = RNG.random(200) < 0.3
CHANCE = np.clip(0.3 * TRUTH + RNG.random(200).round(2) * 0.7, 0, 1)
WEIGHT = RNG.integers(1, 4, 200)


def test_the_area_is_that_of_scikit_learn_with_ties_and_weights():
    for weight in (None, WEIGHT):
        wanted = roc_auc_score(TRUTH, CHANCE, sample_weight=weight)
        found = judge_thresholds(TRUTH, CHANCE, weight)
        assert found.auc == pytest.approx(wanted)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.55, 1.0])
def test_a_threshold_counts_as_a_confusion_matrix_does(threshold):
    one = judge_thresholds(TRUTH, CHANCE).at(threshold)
    (tn, fp), (fn, tp) = confusion_matrix(TRUTH, threshold <= CHANCE)
    assert one.sensitivity[0] == pytest.approx(tp / (tp + fn))
    assert one.specificity[0] == pytest.approx(tn / (tn + fp))
    assert one.called[0] == pytest.approx((tp + fp) / 200)
    assert list(one.to_frame()["threshold"]) == [threshold]


def test_one_class_has_no_thresholds():
    with pytest.raises(ValueError, match="y holds a single class"):
        judge_thresholds(np.ones(5), CHANCE[:5])


def test_calibration_of_probabilities_stays_within_zero_and_one():
    truth = np.r_[np.zeros(30), np.ones(30)]
    found = calibrate(truth, np.linspace(0, 1, 60), is_probability=True, n_bins=6)
    assert found.observed.tolist() == [0, 0, 0, 1, 1, 1]
    assert (found.low >= 0).all() and (found.high <= 1).all()
    assert found.n_rows.sum() == 60
    constant = calibrate(truth, np.full(60, 0.5), is_probability=True)
    assert constant.observed.tolist() == [0.5]


def test_bins_are_by_what_they_are_asked_to_be():
    rng, by = np.random.default_rng(1), np.arange(400.0)
    expected = rng.exponential(size=400)
    truth = rng.poisson(expected)
    found = calibrate(truth, expected, is_probability=False, n_bins=4, by=by)
    parts = expected.reshape(4, 100), truth.reshape(4, 100)
    np.testing.assert_allclose(found.predicted, parts[0].mean(1))
    np.testing.assert_allclose(found.observed, parts[1].mean(1))
    error = (parts[1] - parts[0]).std(1, ddof=1) / 10
    np.testing.assert_allclose((found.high - found.low) / (2 * 1.96), error, rtol=1e-4)


@pytest.fixture(scope="module")
def fitted():
    X = pd.DataFrame(RNG.normal(size=(150, 2)), columns=["a", "b"])
    X["c"] = RNG.choice(["x", "y", "z"], 150)
    y = np.where(X["a"] + (X["c"] == "y") + RNG.normal(size=150) > 0.5, "ill", "well")
    return NIMOClassifier(max_iter=0).fit(X, y), X, y


def test_dependence_is_that_of_scikit_learn(fitted):
    est, X, _ = fitted
    found = est.dependence(X[["a", "b", "c"]], "a", n_grid=5)
    moved = X.copy()
    for value, mean in zip(found.grid, found.mean, strict=True):
        chance = est.predict_proba(moved.assign(a=value))[:, 1]
        assert mean == pytest.approx(chance.mean())
    numbers = X[["a", "b"]].to_numpy()
    line = NIMORegressor(max_iter=0).fit(numbers, numbers @ [1.0, 2.0])
    found = line.dependence(numbers, 1, n_grid=9)
    wanted = partial_dependence(line, numbers, [1], custom_values={1: found.grid})
    np.testing.assert_allclose(found.mean, wanted["average"][0])
    assert est.dependence(X, "c").levels == ("x", "y", "z")


def test_methods_of_a_classifier_know_their_classes(fitted):
    est, X, y = fitted
    chance = est.predict_proba(X)[:, 1]
    assert est.roc(X, y).auc == pytest.approx(roc_auc_score(y == "well", chance))
    with pytest.warns(DataConversionWarning):  # as in fit
        assert est.roc(X, pd.DataFrame({"state": y})).auc == est.roc(X, y).auc
    assert est.calibration(X, y, n_bins=4).n_rows.sum() == 150
    with pytest.raises(ValueError, match="y holds 'sick' at row 0; the classes are"):
        est.roc(X, np.full(150, "sick"))


def test_residuals_are_signed_roots_of_the_deviance():
    X = RNG.normal(size=(80, 1))
    y = RNG.poisson(np.exp(0.5 * X[:, 0])).astype(float)
    est = NIMORegressor("poisson", max_iter=0).fit(X, y)
    found = est.residuals(X, y)
    mean = est.predict(X)
    log = np.log(np.where(y > 0, y, 1.0) / mean)
    deviance = 2 * (y * log - (y - mean))
    ratio = found.residual**2 / deviance
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_array_equal(np.sign(found.residual), np.sign(y - mean))
    with pytest.raises(ValueError, match="X has 80 rows but y has 79"):
        est.residuals(X, y[1:])
