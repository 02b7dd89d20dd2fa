"""Curves of single features: what lines cannot see, and a search with and without."""

import numpy as np
import pytest
from joblib import parallel_config

from sknimo import NIMORegressorCV
from sknimo.features import OrMissing

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


@pytest.mark.slow
def test_jobs_do_not_change_the_answer(fitted, rows):
    with parallel_config(backend="threading"):
        again = NIMORegressorCV(**QUICK, n_jobs=2).fit(*rows)
    assert np.array_equal(again.predict(rows[0]), fitted.predict(rows[0]))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_categories_and_missing_values_are_no_obstacle(mixed, make_small):
    frame, y = mixed
    est = make_small(basis="auto", max_iter=5).fit(frame, y)
    assert np.isfinite(est.predict(frame)).all()
    inner = [
        basis.basis if isinstance(basis, OrMissing) else basis
        for basis in est.model_.features.bases
    ]
    assert type(inner[1]).__name__ == "Spline"


class TestSelfInteraction:
    """The paper's limitation: y = x1^2 + x2^2 + x3^2 + e, unit noise."""

    @staticmethod
    def draw(n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n_rows, 3))
        truth = (X**2).sum(axis=1)
        return X, truth, truth + rng.normal(size=n_rows)

    def error(self, basis, seed=0):
        """Mean squared error on new rows, their unit noise included."""
        X, _, y = self.draw(300, seed)
        est = NIMORegressorCV(basis=basis, n_starts=1, random_state=0).fit(X, y)
        new, truth, _ = self.draw(4000, 1000 + seed)
        return est, 1 + np.mean((est.predict(new) - truth) ** 2)

    def test_lines_cannot_see_it(self):
        assert 5.0 < self.error("linear")[1] < 5.6

    @pytest.mark.parametrize("basis", ["poly2", "spline", "auto"])
    def test_curves_can(self, basis):
        est, error = self.error(basis)
        assert error <= 1.05
        grid = np.linspace(-2, 2, 41)
        for j in range(3):
            table = np.tile(est.model_.features.reference, (41, 1))
            table[:, j] = grid
            curve = est.model_.contributions(table)[:, j]
            gap = (curve - curve.mean()) - (grid**2 - (grid**2).mean())
            assert np.sqrt(np.mean(gap**2)) < 0.05 * 4  # five percent of the range
