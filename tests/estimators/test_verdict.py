"""Held-out rows have the last word on the network that a search returns."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.model_selection import KFold, LeaveOneOut

import sknimo.search._verdict as verdict_module
from sknimo import NIMOClassifierCV, NIMORegressorCV
from sknimo.datasets import make_nimo_classification, make_nimo_regression
from sknimo.search import Settings, Verdict

SETTINGS = Settings()
LOSS_RTOL = 1e-5  # held-out losses follow the coefficients
ROUNDING = 1e-12  # float64: only the order of operations differs
N_ROWS = 60
BRIEF = {"n_starts": 1, "max_iter": 12, "hidden": (3, 3)}


def standardise(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def test_losses_are_those_of_the_folds(data, make_search):
    """The GLM's, recomputed with scikit-learn; the network's are smaller."""
    X, y = data
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    est = make_search(cv=folds, alphas=[0.1], batch_size=0).fit(X, y)
    verdict, Z, t = est.verdict_, standardise(X), standardise(y)
    share = est.path_.relaxation
    expected, saved = [], []
    for train, test in folds:
        lasso = Lasso(alpha=0.1, tol=1e-12).fit(Z[train], t[train])
        kept = lasso.coef_ != 0
        free = LinearRegression().fit(Z[train][:, kept], t[train])
        predicted = (1 - share) * lasso.predict(Z[test])
        predicted += share * free.predict(Z[test][:, kept])
        expected.append(np.mean((t[test] - predicted) ** 2) / 2)
    assert verdict.glm_loss == pytest.approx(expected, rel=LOSS_RTOL)
    assert verdict.network_loss.shape == (3,)
    # Folds of equal size: the gain per row is the mean over folds.
    saved = np.mean(verdict.glm_loss - verdict.network_loss)
    assert verdict.gain == pytest.approx(saved, rel=ROUNDING)
    assert verdict.keeps_network
    assert est.n_members_ > 0


def test_there_is_no_verdict_without_a_network(make_search, draw_linear):
    X, y = draw_linear(n_rows=100)
    assert make_search(alphas=None, batch_size=0).fit(X, y).verdict_ is None


def test_a_network_that_loses_on_held_out_rows_is_not_returned(
    data, monkeypatch, make_search
):
    """Whatever its evidence."""
    loses = Verdict(np.full(3, 1.1), np.ones(3), gain=-0.1, error=0.01)
    monkeypatch.setattr(verdict_module, "judge", lambda *args, **named: loses)
    est = make_search(batch_size=0).fit(*data)
    assert est.n_members_ == 0
    assert est.log_evidence_ > est.glm_log_evidence_ + SETTINGS.evidence_margin
    assert est.input_precision_ == np.inf
    assert not est.model_.modulated.any()
    eta = est.intercept_ + (data[0] - est.reference_) @ est.coef_
    assert est.predict(data[0]) == pytest.approx(eta, rel=1e-10)


@pytest.mark.slow
def test_weights_count_rows_in_the_verdict(data, make_search):
    """Integer weights equal repetition; the error counts repeats as rows."""
    X, y = data
    counts = np.arange(N_ROWS) % 3 + 1
    rows = np.repeat(np.arange(N_ROWS), counts)
    weighted = make_search(**BRIEF).fit(X, y, counts).verdict_
    repeated = make_search(**BRIEF).fit(X[rows], y[rows]).verdict_
    assert weighted.gain == repeated.gain
    assert weighted.error == repeated.error


@pytest.mark.slow
def test_leaving_one_out_keeps_a_true_network(data, make_search):
    est = make_search(cv=LeaveOneOut(), alphas=[0.1]).fit(*data)
    assert est.n_members_ > 0
    assert len(est.verdict_.glm_loss) == 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [211, 212, 213])
def test_noise_whose_size_follows_a_feature_is_no_structure(seed):
    """The evidence, which trusts equal variances, is misled; the folds are not."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5))
    y = X[:, 0] - X[:, 1] + 0.5 * np.exp(X[:, 2]) * rng.normal(size=300)
    est = NIMORegressorCV(n_starts=4, random_state=seed).fit(X, y)
    assert est.log_evidence_ > est.glm_log_evidence_ + SETTINGS.evidence_margin
    assert not est.verdict_.keeps_network
    assert est.n_members_ == 0


@pytest.mark.slow
@pytest.mark.parametrize("setting", [1, 2, 3])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_true_structure_is_far_from_being_voted_down(kind, setting):
    regression = kind == "regression"
    draw = make_nimo_regression if regression else make_nimo_classification
    data = draw(setting=setting, n_samples=300, random_state=105)
    search = NIMORegressorCV if regression else NIMOClassifierCV
    est = search(n_starts=4, random_state=105).fit(data.X, data.y)
    assert est.n_members_ > 0
    assert est.verdict_.gain > 0.2 * est.verdict_.glm_loss.mean()
    assert est.verdict_.gain > 3 * est.verdict_.error
