"""Explanations against the truth, against shap, and by published yardsticks.

The yardsticks are those of XAI-Bench (Liu, Khandagale, White and Neiswanger, "Synthetic
Benchmarks for Scientific Research in Explainable Machine Learning", NeurIPS 2021),
written anew from their formulas:

* faithfulness (Alvarez-Melis and Jaakkola, arXiv 1806.07538): per row the correlation
  over features of `|attribution_j|` with the change of the prediction when feature j is
  redrawn given the others;
* monotonicity (Luss et al., arXiv 1905.12698): per row, add features from the smallest
  attribution to the largest; the share of steps in which the expected prediction moves
  no less than in the step before;
* infidelity (Yeh et al., arXiv 1901.09392): per row, the mean square of
  `I . attribution - (f(x) - f(x - I))` over random perturbations I, with attributions
  per unit and after the optimal scaling.
"""

import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import shap
from scipy.stats import kendalltau
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMORegressor, NIMORegressorCV
from sknimo.datasets import make_nimo_regression
from sknimo.explain import describe_training, shapley

DATA = Path(os.environ.get("SKNIMO_DATA", "no-such-folder"))


def fit_quietly(X, y, **options):
    est = NIMORegressor(random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    est._facts = describe_training(est.model_, np.asarray(X), np.asarray(y))
    return est


@pytest.mark.slow
def test_contributions_follow_the_truth_of_setting_1():
    data = make_nimo_regression(setting=1, n_samples=300, random_state=0)
    est = NIMORegressorCV(n_starts=4, random_state=0).fit(data.X, data.y)
    est._facts = describe_training(est.model_, data.X, data.y)
    values = est.explain(data.X).values
    for j in data.active:
        assert np.corrcoef(values[:, j], data.contributions[:, j])[0, 1] >= 0.98
    others = np.delete(values, data.active, axis=1)
    assert others.std(axis=0).max() <= 0.02 * data.y.std()


def load_table(name):
    if name == "diabetes":
        table = load_diabetes(scaled=False)
        return table.data, table.target
    path = DATA / "boston.csv.gz"
    if not path.exists():
        pytest.skip("set SKNIMO_DATA to a folder that holds boston.csv.gz")
    table = pd.read_csv(path)
    return table.drop(columns="target").to_numpy(float), table["target"].to_numpy(float)


@pytest.mark.parametrize("name", ["diabetes", "boston"])
@pytest.mark.slow
def test_shapley_values_of_real_tables_agree_with_shap(name):
    X, y = load_table(name)
    est = fit_quietly(X, y, network_alpha=0.5, max_iter=60)
    rows = X[::60]
    masker = shap.maskers.Independent(est.reference_[None])
    oracle = shap.explainers.Exact(est.predict, masker)(rows).values
    exact = est.explain(rows, method="shapley", max_exact=13)
    scale = np.abs(oracle).max()
    assert np.abs(exact.values - oracle).max() <= 1e-10 * scale
    sampled = est.explain(rows, method="shapley", max_exact=0, n_permutations=64)
    ranks = kendalltau(sampled.importance, np.abs(oracle).mean(0)).statistic
    assert ranks >= 0.8
    distance = np.abs(sampled.values - oracle)
    assert (distance <= 6 * sampled.error + 1e-10 * scale).all()


class GaussianLinear:
    """XAI-Bench's linear task: five normal features of one correlation, y scaled."""

    weight = np.array([4.0, 3.0, 2.0, 1.0, 0.0])

    def __init__(self, correlation):
        off = np.ones((5, 5)) - np.eye(5)
        self.covariance = np.eye(5) + correlation * off

    def sample(self, n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.multivariate_normal(np.zeros(5), self.covariance, size=n_rows)
        y = X @ self.weight + 0.01 * rng.normal(size=n_rows)
        return X, (y - y.mean()) / y.std()

    def redraw(self, x, known, n_draws, rng):
        """Rows that keep the known features of x and redraw the others given them."""
        hidden = ~known
        if not hidden.any():
            return np.tile(x, (n_draws, 1))
        cov = self.covariance
        pull = cov[np.ix_(hidden, known)] @ np.linalg.pinv(cov[np.ix_(known, known)])
        spread = cov[np.ix_(hidden, hidden)] - pull @ cov[np.ix_(known, hidden)]
        rows = np.tile(x, (n_draws, 1))
        draw = rng.multivariate_normal(np.zeros(hidden.sum()), spread, n_draws // 2)
        # Opposite draws in pairs: the mean is exact for a linear function.
        rows[:, hidden] = pull @ x[known] + np.concatenate([draw, -draw])
        return rows


def faithfulness(task, predict, X, attribution, n_draws=100):
    rng = np.random.default_rng(0)
    scores = []
    for x, share, now in zip(X, np.abs(attribution), predict(X), strict=True):
        change = []
        for j in range(len(x)):
            known = np.arange(len(x)) != j
            change.append(
                abs(now - predict(task.redraw(x, known, n_draws, rng)).mean())
            )
        scores.append(np.corrcoef(share, change)[0, 1])
    return float(np.mean(scores))


def monotonicity(task, predict, X, attribution, n_draws=100):
    rng = np.random.default_rng(0)
    scores = []
    for x, share in zip(X, np.abs(attribution), strict=True):
        known = np.zeros(len(x), dtype=bool)
        path = [predict(task.redraw(x, known, n_draws, rng)).mean()]
        for j in np.argsort(share, kind="stable"):
            known[j] = True
            path.append(predict(task.redraw(x, known, n_draws, rng)).mean())
        moves = np.abs(np.diff(path))
        scores.append((np.diff(moves) >= 0).mean())
    return float(np.mean(scores))


def infidelity(predict, X, attribution_per_unit, n_draws=1000):
    rng = np.random.default_rng(0)
    scores = []
    for x, slope, now in zip(X, attribution_per_unit, predict(X), strict=True):
        step = np.clip(0.2 * rng.normal(size=(n_draws, len(x))) + x, x - 1, x)
        change = now - predict(x - step)
        guess = step @ slope
        guess = guess * (change @ guess) / (guess @ guess)
        scores.append(np.mean((change - guess) ** 2))
    return float(np.mean(scores))


@pytest.fixture(scope="module", params=[0.0, 0.5])
def gaussian_linear(request):
    task = GaussianLinear(request.param)
    X, y = task.sample(1000, seed=0)
    est = fit_quietly(X, y, alpha=1e-4, max_iter=100)
    rows, _ = task.sample(100, seed=1)
    return task, est, rows


def test_faithfulness_monotonicity_and_infidelity_on_the_linear_task(gaussian_linear):
    task, est, rows = gaussian_linear
    found = est.explain(rows)
    if task.covariance[0, 1] == 0:  # marginal attributions ignore correlation by design
        assert faithfulness(task, est.predict, rows, found.values) >= 0.98
        assert monotonicity(task, est.predict, rows, found.values) >= 0.75
    assert infidelity(est.predict, rows, found.local_coef) <= 0.01


def test_the_yardsticks_tell_a_random_explanation_apart(gaussian_linear):
    task, est, rows = gaussian_linear
    guess = np.random.default_rng(2).normal(size=rows.shape)
    assert faithfulness(task, est.predict, rows, guess) < 0.5
    assert infidelity(est.predict, rows, guess) > 0.01


def test_shapley_option_is_exact_on_the_linear_task(gaussian_linear):
    _, est, rows = gaussian_linear
    expected = (rows - est.reference_) * est.coef_
    found = shapley(est.model_, rows).values
    assert np.abs(found - expected).max() <= 0.02
