"""A search may leave the mean by its standard error: where the data ask for it."""

import numpy as np
import pytest

from sknimo import NIMOClassifierCV, NIMORegressorCV
from sknimo.datasets import make_nimo_classification, make_nimo_regression

FEW = {"n_starts": 2, "max_iter": 40, "hidden": (8, 8), "random_state": 0}


@pytest.fixture(scope="module")
def sample():
    """Simulated around zero; the rows have another mean."""
    return make_nimo_regression(setting=0, n_samples=300, random_state=101)


@pytest.fixture(scope="module")
def searched(sample):
    return NIMORegressorCV(**FEW).fit(sample.X, sample.y)


def test_the_centre_of_the_simulation_is_found_better_than_by_the_mean(
    searched, sample
):
    """Both features that matter are bent: the reference decides what can be fitted."""
    off = np.abs(sample.X.mean(axis=0)[:2])
    assert np.abs(searched.reference_[:2]).max() < 0.3 * off.max()


def test_it_never_leaves_the_mean_by_more_than_three_standard_errors(searched, sample):
    error = sample.X.std(axis=0) / np.sqrt(len(sample.X))
    away = np.abs(searched.reference_ - sample.X.mean(axis=0))
    assert (away <= 3.001 * error).all()


def test_new_rows_are_predicted_better_for_it(searched, sample):
    new = make_nimo_regression(setting=0, n_samples=1000, random_state=1)
    mean = NIMORegressorCV(**FEW, reference="mean").fit(sample.X, sample.y)
    moved_error, mean_error = (
        np.mean((est.predict(new.X) - new.y) ** 2) for est in (searched, mean)
    )
    assert moved_error < 0.7 * mean_error
    assert mean.reference_ == pytest.approx(sample.X.mean(axis=0))


def test_coefficients_are_the_gradient_at_the_reference_it_chose(searched):
    step = 1e-5
    for j, coef in enumerate(searched.coef_):
        rows = np.tile(searched.reference_, (2, 1))
        rows[:, j] += (-step, step)
        low, high = searched.predict(rows)
        assert (high - low) / (2 * step) == pytest.approx(coef, abs=1e-6)
    assert searched.predict([searched.reference_]) == pytest.approx(searched.intercept_)


def test_contributions_still_sum_to_the_prediction(searched, sample):
    model = searched.model_
    total = model.base_value + model.contributions(sample.X[:20]).sum(axis=1)
    assert total == pytest.approx(searched.predict(sample.X[:20]), rel=1e-12)


def test_without_a_network_the_reference_is_the_mean():
    data = make_nimo_regression(setting=4, n_samples=200, random_state=0)
    est = NIMORegressorCV(**FEW).fit(data.X, data.y)
    assert est.n_members_ == 0
    assert est.reference_ == pytest.approx(data.X.mean(axis=0))


def test_classes_keep_the_mean():
    data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    est = NIMOClassifierCV(n_starts=1, max_iter=10, hidden=(4, 4), random_state=0)
    est.fit(data.X, data.y)
    assert est.reference_ == pytest.approx(data.X.mean(axis=0))
