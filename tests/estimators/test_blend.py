"""A table with a curve and a product is searched with curves and without."""

import numpy as np
import pytest

from sknimo import NIMORegressorCV

QUICK = {"n_starts": 2, "max_iter": 25, "hidden": (4, 4), "cv": 3, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(150, 3))
    y = 2 * X[:, 0] ** 2 + X[:, 1] * (1 + X[:, 2]) + 0.1 * rng.normal(size=150)
    return X, y


@pytest.fixture(scope="module")
def fitted(rows):
    return NIMORegressorCV(**QUICK).fit(*rows)


def test_a_table_with_curves_is_searched_with_and_without(fitted):
    stages = fitted.trials_["stage"]
    assert any(stage.startswith("straight") for stage in stages)
    assert any(not stage.startswith("straight") for stage in stages)


def test_the_returned_model_has_the_curve_and_the_product(fitted, rows):
    X, y = rows
    assert fitted.n_members_ > 0
    assert np.mean((fitted.predict(X) - y) ** 2) < 0.03


def test_the_gradient_at_the_reference_is_the_coefficient(fitted):
    step = 1e-5 * np.eye(3)
    at = fitted.reference_
    slope = (fitted.predict(at + step) - fitted.predict(at - step)) / 2e-5
    assert slope == pytest.approx(fitted.coef_, abs=1e-6)


def test_a_table_of_lines_is_searched_once(rows):
    X, _ = rows
    noise = np.random.default_rng(0).normal(size=150)
    est = NIMORegressorCV(**QUICK).fit(X, X @ [1.0, 2.0, 0.0] + noise)
    assert not any(s.startswith("straight") for s in est.trials_["stage"])


def test_processes_do_not_change_the_answer(fitted, rows):
    again = NIMORegressorCV(**QUICK, n_jobs=2).fit(*rows)
    assert np.array_equal(again.predict(rows[0]), fitted.predict(rows[0]))
