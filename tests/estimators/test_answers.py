"""What the search is for, on small samples of the paper's settings."""

import numpy as np
import pytest
from sklearn.linear_model import (
    GammaRegressor,
    LassoCV,
    LinearRegression,
    PoissonRegressor,
)

from sknimo import NIMOClassifierCV, NIMORegressorCV
from sknimo.datasets import make_nimo_classification, make_nimo_regression
from sknimo.search import Settings

SETTINGS = Settings()
SETTING_1_MSE = 0.02  # noise floor 0.01; 200 rows and two restarts
SETTING_1_ACCURACY = 0.85  # Bayes 0.895
DEVIANCE_SHARE = 0.8  # held-out deviance left by the network over that of the GLM

TWO_SEEDS = pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow)]
)


def test_linear_truth_returns_the_glm():
    data = make_nimo_regression(setting=4, n_samples=200, random_state=0)
    est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
    assert est.n_members_ == 0 or not est.model_.modulated.any()
    assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
    test = make_nimo_regression(setting=4, n_samples=1000, random_state=1000)
    error = np.mean((est.predict(test.X) - test.y) ** 2)
    assert error < 0.0115  # noise floor 0.01


@pytest.mark.parametrize("noise", [0.1, 2.0])
def test_the_glm_that_is_kept_is_linear(noise, make_search, draw_linear):
    X, y = draw_linear(n_rows=100, noise=noise)
    est = make_search(alphas=None).fit(X, y)
    assert est.n_members_ == 0
    assert est.log_evidence_ - est.glm_log_evidence_ < SETTINGS.evidence_margin
    eta = est.intercept_ + (X - est.reference_) @ est.coef_
    assert est.predict(X) == pytest.approx(eta, rel=1e-10)


@pytest.mark.filterwarnings("ignore:max_time=0 s")
def test_the_glm_that_is_kept_is_the_chosen_point_where_shrinking_helps(
    make_glm, draw_linear
):
    X, y = draw_linear(n_rows=48, n_features=12, seed=2, dense=True)
    est = make_glm().fit(X, y)
    assert est.n_members_ == est.path_.relaxation == 0
    chosen = est.path_.chosen.coef[0].numpy()
    assert est.coef_ == pytest.approx(chosen * y.std() / X.std(axis=0), rel=1e-10)


def test_the_glm_that_is_kept_has_no_idle_feature_where_shrinking_hurts(
    make_search, draw_linear
):
    X, y = draw_linear(n_rows=200, noise=0.1, seed=5)
    est = make_search(alphas=None, max_iter=50, n_starts=1).fit(X, y)
    assert est.n_members_ == 0
    assert est.path_.relaxation > 0
    assert np.flatnonzero(est.coef_).tolist() == [1, 3, 5]
    ols = LinearRegression().fit(X[:, [1, 3, 5]], y)
    assert est.coef_[[1, 3, 5]] == pytest.approx(ols.coef_, rel=1e-2)


def test_noise_gives_the_mean(make_search):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 5)), rng.normal(size=100)
    est = make_search().fit(X, y)
    assert est.n_members_ == 0
    assert est.score(X, y) < 0.2


@pytest.mark.parametrize(
    ("seed", "n_starts"),
    [
        (0, 2),
        # Two restarts leave the first input to the network; the usual number does not.
        pytest.param(1, SETTINGS.n_starts, marks=pytest.mark.slow),
    ],
)
def test_setting_1_has_the_exact_support_and_a_small_error(seed, n_starts):
    data = make_nimo_regression(setting=1, n_samples=200, random_state=seed)
    test = make_nimo_regression(setting=1, n_samples=1000, random_state=1000 + seed)
    est = NIMORegressorCV(n_starts=n_starts, random_state=0).fit(data.X, data.y)
    assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
    reads = np.flatnonzero(est.model_.input_norms).tolist()
    assert reads == data.modulating.tolist()
    assert np.mean((est.predict(test.X) - test.y) ** 2) <= SETTING_1_MSE


@pytest.mark.slow
def test_classification_setting_1_is_solved():
    data = make_nimo_classification(setting=1, n_samples=300, random_state=1)
    test = make_nimo_classification(setting=1, n_samples=1000, random_state=1001)
    est = NIMOClassifierCV(n_starts=3, random_state=0).fit(data.X, data.y)
    assert est.n_members_ > 0
    assert est.score(test.X, test.y) >= SETTING_1_ACCURACY


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_classification_setting_1_is_solved_by_the_defaults(seed):
    data = make_nimo_classification(setting=1, n_samples=300, random_state=seed)
    test = make_nimo_classification(setting=1, n_samples=1000, random_state=1000 + seed)
    est = NIMOClassifierCV(random_state=0).fit(data.X, data.y)
    assert est.score(test.X, test.y) >= SETTING_1_ACCURACY


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "limit"), [(2, 0.15), (3, 0.12)])
def test_harder_settings_have_the_exact_support(setting, limit):
    """Limits a little above the means that the issue asks for."""
    data = make_nimo_regression(setting=setting, n_samples=300, random_state=0)
    test = make_nimo_regression(setting=setting, n_samples=1000, random_state=1000)
    est = NIMORegressorCV(random_state=0).fit(data.X, data.y)
    assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
    assert np.mean((est.predict(test.X) - test.y) ** 2) <= limit


@pytest.mark.slow
@pytest.mark.parametrize("seed", [204, 206])
def test_a_weak_interaction_survives_the_removal_of_idle_features(seed):
    """Worth six to twelve units of log evidence, with noise as large as effects.

    Without bags, which remove nothing.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5))
    signal = X[:, 0] * (1 + 0.4 * np.tanh(2 * X[:, 1])) - X[:, 2]
    est = NIMORegressorCV(n_starts=4, batch_size=0, random_state=seed)
    est.fit(X, signal + rng.normal(size=300))
    assert est.n_members_ > 0
    assert np.flatnonzero(est.model_.input_norms).tolist() == [1]


@TWO_SEEDS
@pytest.mark.parametrize(
    ("family", "glm"),
    [
        ("poisson", PoissonRegressor),
        pytest.param("gamma", GammaRegressor, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_one_interaction_is_worth_a_fifth_of_the_glm_s_deviance(family, glm, seed):
    def draw(n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, size=(n_rows, 4))
        eta = 0.5 + 0.6 * X[:, 0] * (1 + np.tanh(2 * X[:, 1])) - 0.4 * X[:, 2]
        if family == "poisson":
            return X, rng.poisson(np.exp(eta)).astype(float)
        return X, rng.gamma(5.0, np.exp(eta) / 5.0)

    X, y = draw(150, seed)
    test_X, test_y = draw(1000, 100 + seed)
    est = NIMORegressorCV(family, n_starts=2, random_state=0).fit(X, y)
    rival = glm(alpha=0, solver="newton-cholesky").fit(X, y)
    # Both scores are the share of the deviance that is explained.
    left = 1 - est.score(test_X, test_y)
    assert left < DEVIANCE_SHARE * (1 - rival.score(test_X, test_y))


@pytest.mark.slow
def test_overdispersed_counts_are_no_worse_than_the_glm():
    """Noise beyond Poisson's looks like structure if its size is thought known."""

    def draw(n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_rows, 5))
        mean = np.exp(2 + 0.4 * X[:, 0] - 0.3 * X[:, 1])
        return X, rng.poisson(mean * rng.exponential(size=n_rows)).astype(float)

    X, y = draw(300, 0)
    test_X, test_y = draw(2000, 50)
    est = NIMORegressorCV("poisson", n_starts=2, random_state=0).fit(X, y)
    glm = PoissonRegressor(alpha=0, solver="newton-cholesky").fit(X, y)
    assert est.score(test_X, test_y) > glm.score(test_X, test_y) - 0.02


@pytest.mark.slow
def test_heavy_tailed_noise_is_no_worse_than_least_squares():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    signal = X[:, 0] - X[:, 1]
    y = signal + rng.standard_t(2, size=300)
    est = NIMORegressorCV(n_starts=2, random_state=0).fit(X, y)
    ols = LinearRegression().fit(X, y)
    errors = [np.mean((m.predict(X) - signal) ** 2) for m in (est, ols)]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.slow
def test_more_features_than_rows_are_predicted_about_as_well_as_by_a_lasso():
    """Evidence had no bound there and explained all rows: twice the error."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, coef = rng.normal(size=(1060, 120)), np.zeros(120)
        coef[:6] = rng.normal(size=6)
        y = X @ coef + rng.normal(size=1060)
        ours, theirs = (
            np.mean((est.fit(X[:60], y[:60]).predict(X[60:]) - y[60:]) ** 2)
            for est in (NIMORegressorCV(random_state=0), LassoCV())
        )
        ratios.append(ours / theirs)
    assert np.exp(np.mean(np.log(ratios))) < 1.1
    assert max(ratios) < 1.4
