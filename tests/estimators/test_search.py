"""The searching estimators: their GLM path, their folds, their members, their answers.

The path and its cross-validation are recomputed here with scikit-learn, fold by fold.
Where a test compares rows with folds given by the user, `sort_rows` first brings the
table into the order in which `fit` keeps it, unless that order is what is tested.

Shapes: n rows, p features, T penalties, R relaxations, F folds, M members.
"""

import pickle
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import (
    GammaRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    lasso_path,
)
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.utils.validation import check_is_fitted

import sknimo.search._blend as blend_module
import sknimo.search._path as path_module
import sknimo.search._restarts as restarts_module
import sknimo.search._runner as runner_module
import sknimo.search._verdict as verdict_module
from sknimo import NIMOClassifierCV, NIMORegressorCV, SeparationWarning
from sknimo.datasets import make_nimo_classification, make_nimo_regression
from sknimo.training._folds import Fold, _random_folds, make_folds
from sknimo.search._path import RELAXATION, fit_path, largest_alpha
from sknimo.search._restarts import (
    EVIDENCE_MARGIN,
    MEMBER_SHARE,
    SearchResult,
    choose_members,
    keep_stable,
    loose_members,
)
from sknimo.search._runner import Runner, Task
from sknimo.search._verdict import (
    TINY_GAIN,
    Verdict,
    eta_losses,
    merge_folds,
)
from sknimo.families import FAMILIES
from sknimo.solver import Coefficients, EvidenceOptions, start_state

PATH_ATOL = 1e-5  # promised; ours stops at 1e-7, the references at 1e-12
RELAXED_ATOL = 1e-5  # the relaxed fit keeps a ridge of 1e-8
LOSS_RTOL = 1e-5  # held-out losses follow the coefficients
UNITS = 1e-6  # relative to the spread of the predictions
ROUNDING = 1e-12  # float64: only the order of operations differs
SETTING_1_MSE = 0.02  # noise floor 0.01; 200 rows and two restarts
SETTING_1_ACCURACY = 0.85  # Bayes 0.895
DEVIANCE_SHARE = 0.8  # held-out deviance left by the network over that of the GLM

N_ROWS = 60
NAMES = ["age", "dose", "size"]
SHORT = {
    "alphas": (0.1, 0.01),
    "cv": 3,
    "n_starts": 2,
    "max_iter": 15,
    "hidden": (4, 4),
    "random_state": 0,
    "basis": "linear",
}
BRIEF = {"n_starts": 1, "max_iter": 12, "hidden": (3, 3)}

EVERY_FAMILY = pytest.mark.parametrize(
    "family",
    [
        "gaussian",
        pytest.param("binomial", marks=pytest.mark.slow),
        pytest.param("poisson", marks=pytest.mark.slow),
        pytest.param("gamma", marks=pytest.mark.slow),
    ],
)
TWO_SEEDS = pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow)]
)

# `make_glm` has no time for restarts and is told so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:max_time=0 s:sklearn.exceptions.ConvergenceWarning"
)


def make(family="gaussian", **options):
    if family == "binomial":
        return NIMOClassifierCV(**SHORT | options)
    return NIMORegressorCV(family, **SHORT | options)


def make_glm(family="gaussian", **options):
    """No time for restarts: the path of lines and its folds alone."""
    alone = {"alphas": None, "max_time": 0, "max_iter": 1, "basis": "linear"}
    return make(family, **alone | options)


def make_data(family="gaussian", n_rows=N_ROWS, seed=0):
    """`x0` bent by `x1`, and `x2`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) - 0.5 * X[:, 2]
    if family == "gaussian":
        return X, eta + 0.1 * rng.normal(size=n_rows)
    if family == "binomial":
        return X, (rng.random(n_rows) < 1 / (1 + np.exp(-2 * eta))).astype(int)
    if family == "poisson":
        return X, rng.poisson(np.exp(eta / 2)).astype(float)
    return X, rng.gamma(5.0, np.exp(eta / 2) / 5.0)


def make_linear(n_rows=80, n_features=6, noise=1.0, seed=0, dense=False):
    """A linear truth in unequal units, half of it zero unless `dense`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) + 0.5 * rng.normal(size=(n_rows, 1))
    coef = rng.uniform(0.2, 0.8, n_features)
    coef[::2] *= dense
    y = X @ coef + noise * rng.normal(size=n_rows)
    return X * np.logspace(-1, 2, n_features) + 3, y


def sort_rows(X, y):
    """The order in which `fit` keeps rows without repeats: by the target."""
    order = np.argsort(y, kind="stable")
    assert len(np.unique(y)) == len(y)
    return X[order], y[order]


def standardise(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


@pytest.fixture
def data():
    return make_data()


def relative_gap(eta, expected):
    return np.abs(eta - expected).max() / expected.std()


class TestPath:
    """Without the network: a relaxed lasso path, as scikit-learn would compute it."""

    @pytest.fixture
    def table(self):
        """Rows in the order of `fit`, their standardised numbers and three folds."""
        X, y = sort_rows(*make_linear())
        folds = list(KFold(3, shuffle=True, random_state=0).split(X))
        return X, y, standardise(X), standardise(y), folds

    @staticmethod
    def held_out_losses(Z, t, alphas, folds):
        """Half mean squared error of every relaxation, penalty and fold, (R, T, F)."""
        losses = np.empty((len(RELAXATION), len(alphas), len(folds)))
        for f, (train, test) in enumerate(folds):
            for k, alpha in enumerate(alphas):
                lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
                lasso.fit(Z[train], t[train])
                shrunk = lasso.predict(Z[test])
                kept = np.abs(lasso.coef_) > 1e-9
                free = np.full(len(test), t[train].mean())
                if kept.any():
                    ols = LinearRegression().fit(Z[train][:, kept], t[train])
                    free = ols.predict(Z[test][:, kept])
                for r, share in enumerate(RELAXATION):
                    predicted = (1 - share) * shrunk + share * free
                    losses[r, k, f] = np.mean((t[test] - predicted) ** 2) / 2
        return losses

    def test_penalties_fall_from_the_one_that_empties_the_model(self, table):
        X, y, Z, t, folds = table
        path = make_glm(cv=folds).fit(X, y).path_
        largest = np.abs(Z.T @ t).max() / len(t)
        expected = largest * np.geomspace(1, 1e-3, len(path.alphas))
        assert path.alphas == pytest.approx(expected, rel=1e-10)
        assert not path.coef[0].any()
        assert path.coef[1].any()

    def test_coefficients_are_those_of_sklearn_s_lasso_path(self, table):
        X, y, Z, t, folds = table
        path = make_glm(cv=folds).fit(X, y).path_
        _, coef, _ = lasso_path(Z, t, alphas=path.alphas, tol=1e-12, max_iter=100_000)
        np.testing.assert_allclose(path.coef, coef.T, rtol=0, atol=PATH_ATOL)
        assert np.array_equal(path.coef != 0, np.abs(coef.T) > PATH_ATOL)

    def test_weights_enter_the_path(self, table):
        X, y, *_ = table
        weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
        est = make_glm(alphas=[0.3, 0.1, 0.02], cv=3).fit(X, y, weight)
        mean = np.average(X, axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
        level = np.average(y, weights=weight)
        spread = np.sqrt(np.average((y - level) ** 2, weights=weight))
        for alpha, coef in zip(est.path_.alphas, est.path_.coef, strict=True):
            lasso = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000)
            lasso.fit((X - mean) / scale, (y - level) / spread, sample_weight=weight)
            np.testing.assert_allclose(coef, lasso.coef_, rtol=0, atol=PATH_ATOL)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_chosen_point_has_the_smallest_held_out_loss(self, seed):
        """Relaxing more must gain more than its standard error over the folds."""
        X, y = sort_rows(*make_linear(n_rows=40, seed=seed))
        Z, t = standardise(X), standardise(y)
        folds = list(KFold(4, shuffle=True, random_state=seed).split(X))
        est = make_glm(cv=folds, alphas=np.geomspace(0.5, 0.001, 12)).fit(X, y)
        path = est.path_
        losses = self.held_out_losses(Z, t, path.alphas, folds)
        r, k = 0, losses[0].mean(axis=1).argmin()
        for relaxed in range(1, len(RELAXATION)):
            best = losses[relaxed].mean(axis=1).argmin()
            gain = losses[r, k] - losses[relaxed, best]
            if gain.mean() > gain.std(ddof=1) / 2:
                r, k = relaxed, best
        assert (path.relaxation, path.index) == (RELAXATION[r], k)
        assert est.alpha_ == path.alphas[k]
        assert path.cv_loss == pytest.approx(losses[r].mean(axis=1), rel=LOSS_RTOL)
        error = losses[r].std(axis=1, ddof=1) / 2  # four folds of equal size
        assert path.cv_error == pytest.approx(error, rel=1e-3)

    def test_a_path_that_is_not_relaxed_is_lassocv(self):
        """Many weak effects: shrinking helps, and the choice is that of LassoCV."""
        X, y = sort_rows(*make_linear(n_rows=48, n_features=12, seed=2, dense=True))
        folds = list(KFold(4, shuffle=True, random_state=1).split(X))
        est = make_glm(cv=folds).fit(X, y)
        path = est.path_
        assert path.relaxation == 0
        Z, t = standardise(X), standardise(y)
        rival = LassoCV(alphas=path.alphas, cv=folds, tol=1e-12, max_iter=100_000)
        rival.fit(Z, t)
        assert est.alpha_ == rival.alpha_
        expected = rival.mse_path_.mean(axis=1) / 2
        assert path.cv_loss == pytest.approx(expected, rel=LOSS_RTOL)
        np.testing.assert_allclose(
            path.chosen.coef[0], rival.coef_, rtol=0, atol=PATH_ATOL
        )

    @pytest.mark.parametrize("alpha", [0.02, 0.08])
    def test_binary_path_is_that_of_sklearn_s_logistic_regression(self, alpha):
        X, _ = make_linear(n_rows=100)
        rng = np.random.default_rng(0)
        Z = standardise(X)
        labels = (rng.random(100) < 1 / (1 + np.exp(-Z[:, 1] + Z[:, 3]))).astype(int)
        est = make_glm("binomial", alphas=[alpha, 2 * alpha], cv=2)
        path = est.fit(X, labels).path_
        modern = LogisticRegression().get_params()["penalty"] == "deprecated"
        kind = {"l1_ratio": 1.0} if modern else {"penalty": "l1"}
        # Sums the losses that we average; the intercept of saga is not penalised.
        rival = LogisticRegression(
            C=1 / (alpha * 100),
            solver="saga",
            tol=1e-12,
            max_iter=100_000,
            random_state=0,
            **kind,
        ).fit(Z, labels)
        assert path.alphas.tolist() == [2 * alpha, alpha]
        np.testing.assert_allclose(path.coef[1], rival.coef_[0], rtol=0, atol=PATH_ATOL)

    def test_a_fully_relaxed_path_is_least_squares_on_its_supports(self, make_problem):
        problem = make_problem(n_rows=50, widths=(1,) * 6)
        share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
        grid = np.array([0.3, 0.1, 0.01])
        path = fit_path(problem, share, grid)
        free = path.blend(1.0)
        sizes = []
        for k in range(len(grid)):
            kept = path.lasso.coef[k].numpy() != 0
            sizes.append(kept.sum())
            ols = LinearRegression().fit(problem.terms.numpy()[:, kept], problem.y)
            found = free.coef[k].numpy()
            np.testing.assert_allclose(
                found[kept], ols.coef_, rtol=0, atol=RELAXED_ATOL
            )
            assert not found[~kept].any()
            intercept = free.intercept[k].item()
            assert intercept == pytest.approx(ols.intercept_, abs=RELAXED_ATOL)
        assert 0 < sizes[0] < sizes[-1]

    @pytest.mark.parametrize(
        ("family", "rival"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)]
    )
    def test_a_fully_relaxed_path_is_the_free_glm_on_its_supports(
        self, family, rival, make_problem
    ):
        problem = make_problem(family, n_rows=80, widths=(1,) * 5)
        share = torch.full((1, 80), 1 / 80, dtype=torch.float64)
        path = fit_path(problem, share, np.array([0.4]))
        kept = path.lasso.coef[0].numpy() != 0
        assert 0 < kept.sum() < 5
        glm = rival(alpha=0, solver="newton-cholesky", tol=1e-10)
        glm.fit(problem.terms.numpy()[:, kept], problem.y)
        np.testing.assert_allclose(
            path.blend(1.0).coef[0].numpy()[kept], glm.coef_, rtol=0, atol=RELAXED_ATOL
        )

    def test_a_blend_moves_from_the_lasso_to_the_free_fit(self, make_problem):
        problem = make_problem(n_rows=50)
        share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
        path = fit_path(problem, share, np.array([0.1]))
        assert torch.equal(path.blend(0.0).coef, path.lasso.coef)
        assert torch.equal(path.blend(1.0).coef, path.free.coef)
        half = (path.lasso.coef + path.free.coef) / 2
        torch.testing.assert_close(path.blend(0.5).coef, half, rtol=1e-14, atol=0)

    def test_memory_blocks_do_not_change_the_path(self, make_problem):
        problem = make_problem(n_rows=50)
        share = torch.full((1, 50), 1 / 50, dtype=torch.float64)
        grid = np.geomspace(0.5, 0.01, 7)
        whole = fit_path(problem, share, grid)
        blocks = fit_path(problem, share, grid, n_bytes=8 * 4 * 50 * 4 * 2)
        for part in ("lasso", "free"):
            first, second = getattr(whole, part), getattr(blocks, part)
            torch.testing.assert_close(first.coef, second.coef, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("widths", [(1, 1, 1, 1), (1, 3, 2)])
    @pytest.mark.parametrize("family", list(FAMILIES))
    def test_largest_alpha_is_the_smallest_that_empties_the_model(
        self, family, widths, make_problem
    ):
        problem = make_problem(family, n_rows=70, widths=widths, offset=True)
        weight = np.random.default_rng(0).uniform(0.1, 2.0, 70)
        share = torch.as_tensor(weight / weight.sum()).unsqueeze(0)
        largest = largest_alpha(problem, share)
        path = fit_path(problem, share, largest * np.array([1.0001, 0.99]))
        assert not path.lasso.coef[0].any()
        assert path.lasso.coef[1].any()

    def test_given_penalties_are_used_from_the_largest_down(self, table):
        X, y, *_, folds = table
        est = make_glm(alphas=[0.01, 0.2, 0.05], cv=folds).fit(X, y)
        assert est.path_.alphas.tolist() == [0.2, 0.05, 0.01]
        assert est.alpha_ == est.path_.alphas[est.path_.index]
        assert est.path_.coef.shape == (3, 6)
        assert est.path_.cv_loss.shape == est.path_.cv_error.shape == (3,)

    def test_given_penalties_are_left_alone(self, data):
        alphas = [0.01, 0.2]
        est = make_glm(alphas=alphas).fit(*data)
        assert est.alphas is alphas
        assert alphas == [0.01, 0.2]

    def test_one_penalty_is_a_path(self, data):
        est = make_glm(alphas=0.1).fit(*data)
        assert est.alpha_ == 0.1

    @pytest.mark.parametrize("seed", range(4))
    def test_the_one_standard_error_rule_never_keeps_more_features(self, seed):
        X, y = make_linear(n_rows=50, n_features=8, seed=seed)
        best, sparse = (make_glm(rule=rule).fit(X, y) for rule in ("min", "1se"))
        assert sparse.alpha_ >= best.alpha_
        assert sparse.path_.relaxation == best.path_.relaxation
        n_best, n_sparse = (
            np.count_nonzero(est.path_.chosen.coef) for est in (best, sparse)
        )
        assert n_sparse <= n_best
        assert np.count_nonzero(sparse.coef_) <= np.count_nonzero(best.coef_)
        loss, error = best.path_.cv_loss, best.path_.cv_error
        k = best.path_.index
        assert loss[sparse.path_.index] <= loss[k] + error[k]
        assert (loss[: sparse.path_.index] > loss[k] + error[k]).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_one_standard_error_rule_holds_where_shrinking_hurts(self, seed):
        """The unshrunken fit may not keep what the rule's support leaves out."""
        X, y = make_linear(n_rows=200, n_features=8, noise=0.3, seed=seed)
        options = {"alphas": None, "n_starts": 1, "max_iter": 30, "cv": 5}
        sparse = make(rule="1se", **options).fit(X, y)
        assert sparse.path_.relaxation > 0
        assert sparse.n_members_ == 0
        chosen = sparse.path_.chosen.coef[0].numpy() != 0
        assert not (sparse.coef_ != 0)[~chosen].any()

    def test_the_one_standard_error_rule_changes_an_unshrunken_model(self):
        """A weak effect: the evidence wants it, the folds' error hides it."""
        rng = np.random.default_rng(1)
        X = rng.normal(size=(120, 5))
        y = X[:, 0] + 0.25 * X[:, 1] + 0.5 * rng.normal(size=120)
        options = {"alphas": None, "n_starts": 1, "max_iter": 30, "cv": 5}
        best, sparse = (make(rule=rule, **options).fit(X, y) for rule in ("min", "1se"))
        assert best.path_.relaxation > 0
        assert np.flatnonzero(best.coef_).tolist() == [0, 1]
        assert np.flatnonzero(sparse.coef_).tolist() == [0]

    def test_the_one_standard_error_rule_can_be_sparser(self):
        X, y = make_linear(n_rows=50, n_features=8, noise=2.0, seed=0)
        best, sparse = (
            np.count_nonzero(make_glm(rule=rule).fit(X, y).path_.chosen.coef)
            for rule in ("min", "1se")
        )
        assert sparse < best


class TestFolds:
    """`cv` means what it means in scikit-learn, and about the user's rows."""

    FOLDS = 3

    @staticmethod
    def expected_loss(X, y, folds, alpha):
        """Half mean squared error of the lasso alone on the folds."""
        Z, t = standardise(X), standardise(y)
        losses = []
        for train, test in folds:
            lasso = Lasso(alpha=alpha, tol=1e-12).fit(Z[train], t[train])
            losses.append((t[test] - lasso.predict(Z[test])) ** 2 / 2)
        return np.concatenate(losses).mean()

    @classmethod
    def check_folds(cls, cv, X, y, folds, monkeypatch, **options):
        """The held-out loss is that of these folds; relaxation would blur it."""
        monkeypatch.setattr(path_module, "RELAXATION", (0.0,))
        est = make_glm(cv=cv, alphas=[0.1]).fit(X, y, **options)
        expected = cls.expected_loss(X, y, folds, 0.1)
        assert est.path_.cv_loss == pytest.approx([expected], rel=LOSS_RTOL)

    @pytest.mark.parametrize(
        "cv",
        [
            2,
            np.int64(3),
            KFold(3),
            KFold(3, shuffle=True, random_state=0),
            ShuffleSplit(3, random_state=0),
            RepeatedKFold(n_splits=2, n_repeats=2, random_state=0),
            LeaveOneOut(),
            PredefinedSplit(np.arange(N_ROWS) % 4),
        ],
        ids=lambda cv: type(cv).__name__,
    )
    def test_whole_numbers_and_splitters_are_taken(self, cv, data):
        est = make_glm(cv=cv).fit(*data)
        assert np.isfinite(est.path_.cv_loss).all()
        assert est.cv is cv

    @pytest.mark.parametrize("cv", [2, StratifiedKFold(3)])
    def test_classes_can_be_stratified(self, cv):
        X, y = make_data("binomial")
        est = make_glm("binomial", cv=cv).fit(X, np.where(y, "yes", "no"))
        assert np.isfinite(est.path_.cv_loss).all()

    def test_more_folds_than_rows_leave_one_out(self, data):
        X, y = data[0][:8], data[1][:8]
        est = make_glm(cv=100).fit(X, y)
        assert np.isfinite(est.path_.cv_loss).all()

    @pytest.mark.parametrize("n_positive", [1, 2])
    def test_a_rare_class_leaves_everything_finite(self, n_positive):
        """Some folds are trained on a single class then."""
        X, _ = make_data("binomial", n_rows=20)
        labels = (np.arange(20) < n_positive).astype(int)
        est = make_glm("binomial", cv=5).fit(X, labels)
        assert np.isfinite(est.path_.cv_loss).all()
        assert np.isfinite(est.decision_function(X)).all()

    def test_folds_of_whole_numbers_follow_the_seed(self, data):
        X, y = data
        first, again, other = (
            make_glm(random_state=seed).fit(X, y).path_ for seed in (0, 0, 1)
        )
        assert np.array_equal(first.cv_loss, again.cv_loss)
        assert not np.array_equal(first.cv_loss, other.cv_loss)

    @pytest.mark.parametrize(
        "kind",
        [
            "list",
            "generator",
            "masks",
        ],
    )
    def test_given_splits_are_about_the_rows_as_given(self, kind, data, monkeypatch):
        X, y = data
        folds = list(KFold(self.FOLDS, shuffle=True, random_state=0).split(X))
        cv = folds
        if kind == "generator":
            cv = (fold for fold in folds)
        elif kind == "masks":
            inside = np.arange(N_ROWS)
            cv = [(np.isin(inside, a), np.isin(inside, b)) for a, b in folds]
        self.check_folds(cv, X, y, folds, monkeypatch)

    def test_groups_stay_together(self, data, monkeypatch):
        X, y = data
        folds = list(GroupKFold(self.FOLDS).split(X, y, np.arange(N_ROWS) // 7))
        self.check_folds(folds, X, y, folds, monkeypatch)

    @pytest.mark.parametrize("kind", ["numbers", "words"])
    def test_groups_reach_the_splitter(self, kind, data, monkeypatch):
        X, y = data
        groups = np.random.default_rng(0).permutation(np.arange(N_ROWS) // 7)
        labels = groups if kind == "numbers" else np.array([f"g{g}" for g in groups])
        splitter = GroupKFold(self.FOLDS)
        folds = list(splitter.split(X, y, groups))
        self.check_folds(splitter, X, y, folds, monkeypatch, groups=labels)

    def test_a_whole_number_of_folds_keeps_groups_together(self, data):
        """The same as naming the folds that it draws."""
        X, y = data
        groups = np.random.default_rng(0).permutation(np.arange(N_ROWS) // 7)
        training = make_glm()._read_training_set(X, y, None, None, FAMILIES["gaussian"])
        random = np.random.RandomState(0)
        folds = make_folds(training, 3, groups, random)
        assert len(folds) == 3
        held_out = np.array([fold.held_out > 0 for fold in folds])[:, training.place]
        assert (held_out.sum(axis=0) == 1).all()  # every row once
        for fold in range(3):
            inside = held_out[fold]
            assert not set(groups[inside]) & set(groups[~inside])
        sizes = held_out.sum(axis=1)
        assert sizes.min() >= N_ROWS // 3 - 14  # two groups apart at most

    def test_groups_of_one_row_are_folds_of_rows(self, data):
        X, y = data
        apart = make_glm(cv=3).fit(X, y, groups=np.arange(N_ROWS))
        assert np.isfinite(apart.path_.cv_loss).all()

    def test_rows_of_zero_weight_may_have_any_group(self, data):
        X, y = data
        weight = (np.arange(N_ROWS) % 4 > 0).astype(float)
        groups = np.arange(N_ROWS) // 7
        lost = np.where(weight > 0, groups, 999)
        first, second = (
            make_glm(cv=3).fit(X, y, weight, groups=g) for g in (groups, lost)
        )
        assert np.array_equal(first.path_.cv_loss, second.path_.cv_loss)

    @pytest.mark.parametrize(
        ("groups", "message"),
        [
            (np.zeros(N_ROWS), "single group"),
            (np.arange(5), "one label per row: expected 60, got 5"),
            (np.r_[np.nan, np.arange(N_ROWS - 1.0)], "missing label in row 0"),
            (np.array([*range(N_ROWS - 1), None], dtype=object), "row 59"),
        ],
    )
    def test_groups_that_cannot_be_used_are_refused(self, groups, message, data):
        with pytest.raises(ValueError, match=message):
            make_glm().fit(*data, groups=groups)

    def test_a_group_splitter_without_groups_says_what_it_lacks(self, data):
        with pytest.raises(ValueError, match="groups"):
            make_glm(cv=GroupKFold(3)).fit(*data)

    def test_a_splitter_sees_the_rows_as_given(self, data, monkeypatch):
        """Blocks of sorted rows would hold out the largest targets."""
        X, y = data
        splitter = KFold(self.FOLDS)
        self.check_folds(splitter, X, y, list(splitter.split(X)), monkeypatch)

    def test_given_splits_may_name_repeated_rows(self, data, monkeypatch):
        X, y = np.r_[data[0], data[0]], np.r_[data[1], data[1]]
        folds = list(KFold(self.FOLDS, shuffle=True, random_state=0).split(X))
        self.check_folds(folds, X, y, folds, monkeypatch)

    def test_given_splits_may_name_rows_of_zero_weight(self, data):
        X, y = data
        weight = (np.arange(N_ROWS) % 4 > 0).astype(float)
        folds = list(KFold(self.FOLDS, shuffle=True, random_state=0).split(X))
        est = make_glm(cv=folds).fit(X, y, weight)
        kept = np.flatnonzero(weight)
        new_place = np.cumsum(weight).astype(int) - 1
        shorter = [
            tuple(new_place[rows[weight[rows] > 0]] for rows in fold) for fold in folds
        ]
        expected = make_glm(cv=shorter).fit(X[kept], y[kept])
        assert est.path_.cv_loss == pytest.approx(expected.path_.cv_loss, rel=ROUNDING)

    def test_repeated_rows_keep_their_own_weights_in_the_folds(self, data):
        """A row of weight 1 in one fold, the same with weight 3 in another."""
        X, y = np.r_[data[0], data[0]], np.r_[data[1], data[1]]
        weight = np.r_[np.ones(N_ROWS), np.full(N_ROWS, 3.0)]
        fold = np.r_[np.arange(N_ROWS) % 3, (np.arange(N_ROWS) + 1) % 3]
        equal = make_glm(cv=PredefinedSplit(fold)).fit(X, y, weight)
        # Repeats instead of weights: the same rows in the same folds.
        counts = weight.astype(int)
        repeated = make_glm(cv=PredefinedSplit(np.repeat(fold, counts)))
        repeated.fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
        expected = repeated.path_.cv_loss
        assert equal.path_.cv_loss == pytest.approx(expected, rel=1e-9)

    def test_a_fold_that_holds_out_no_weight_does_not_count(self, data):
        X, y = data
        fold = np.arange(N_ROWS) % 4
        weight = (fold > 0).astype(float)
        est = make_glm(cv=PredefinedSplit(fold)).fit(X, y, weight)
        assert np.isfinite(est.path_.cv_loss).all()

    @pytest.mark.parametrize("rule", ["min", "1se"])
    def test_a_single_validation_split_is_enough(self, rule, data):
        split = ShuffleSplit(1, random_state=0)
        est = make_glm(cv=split, rule=rule).fit(*data)
        assert np.isfinite(est.path_.cv_loss).all()

    @pytest.mark.parametrize("cv", [1, 0, -1, True])
    def test_fewer_than_two_folds_are_refused(self, cv, data):
        with pytest.raises(ValueError, match="cv"):
            make_glm(cv=cv).fit(*data)

    @pytest.mark.parametrize("cv", [2.5, "five"])
    def test_what_is_no_splitter_is_refused(self, cv, data):
        with pytest.raises(ValueError, match="cv"):
            make_glm(cv=cv).fit(*data)


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("rule", "2se", "rule must be one of 'min', '1se', 'stability'"),
            ("device", "tpu", "device must be one of"),
            ("position_code", "ternary", "must be one of"),
            ("n_starts", 0, "n_starts"),
            ("n_members", 0, "n_members"),
            ("max_iter", 0, "max_iter"),
            ("max_time", -1.0, "max_time"),
            ("max_time", np.inf, "max_time"),
            ("memory_budget", 1000, "memory_budget"),
            ("memory_budget", np.inf, "memory_budget"),
        ],
    )
    def test_a_wrong_value_is_refused_by_name(self, name, value, message, data):
        with pytest.raises(ValueError, match=message):
            make(**{name: value}).fit(*data)

    @pytest.mark.parametrize("name", ["n_starts", "n_members", "max_iter"])
    def test_a_fraction_is_no_count(self, name, data):
        with pytest.raises(TypeError, match=name):
            make(**{name: 1.5}).fit(*data)

    @pytest.mark.parametrize("alphas", [[], [-1.0, 0.1], [np.inf]])
    def test_penalties_must_be_positive_numbers(self, alphas, data):
        with pytest.raises(ValueError, match="alphas"):
            make_glm(alphas=alphas).fit(*data)

    @pytest.mark.parametrize("hidden", [(0, 3), (3,), 3, (2.5, 2), (3, 3, 3)])
    def test_two_positive_widths_are_needed(self, hidden, data):
        with pytest.raises(ValueError, match="hidden must hold two positive"):
            make(hidden=hidden).fit(*data)


class TestHardData:
    @pytest.mark.filterwarnings("ignore::sknimo.DataWarning")
    def test_a_constant_column_has_no_coefficient(self, data):
        X, y = data
        est = make(**BRIEF).fit(np.c_[X, np.ones(N_ROWS)], y)
        assert est.coef_[3] == 0

    @pytest.mark.filterwarnings("ignore::sknimo.DataWarning")
    def test_constant_columns_alone_give_the_mean(self):
        y = np.arange(10.0)
        est = make(**BRIEF).fit(np.ones((10, 2)), y)
        assert est.predict(np.ones((10, 2))) == pytest.approx(np.full(10, 4.5))

    @pytest.mark.parametrize("value", [0.0, -3.0, 1e8, 1e-300])
    def test_a_constant_target_is_predicted_exactly(self, value, data):
        est = make(**BRIEF).fit(data[0], np.full(N_ROWS, value))
        assert est.n_members_ == 0
        assert not est.coef_.any()
        assert est.predict(data[0]) == pytest.approx(np.full(N_ROWS, value), rel=1e-15)

    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    def test_a_constant_target_is_predicted_by_other_families(self, family, data):
        est = make(family, **BRIEF).fit(data[0], np.full(N_ROWS, 2.0))
        assert not est.coef_.any()
        assert est.predict(data[0]) == pytest.approx(np.full(N_ROWS, 2.0), rel=1e-9)

    def test_counts_that_are_all_zero_stay_finite(self, data):
        est = make("poisson", **BRIEF).fit(data[0], np.zeros(N_ROWS))
        assert np.isfinite(est.intercept_)
        assert est.predict(data[0]) == pytest.approx(np.zeros(N_ROWS), abs=1e-9)

    @EVERY_FAMILY
    def test_more_features_than_rows_can_be_fitted(self, family):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(15, 30))
        y = {"binomial": np.arange(15) % 2, "gaussian": X[:, 0]}.get(
            family, np.exp(X[:, 0])
        )
        est = make(family, **BRIEF).fit(X, y)
        assert np.isfinite(est.coef_).all()
        assert np.isfinite(est.model_.eta(X)).all()

    def test_duplicated_columns_can_be_fitted(self, data):
        X, y = data
        est = make(**BRIEF).fit(np.c_[X, X], y)
        assert np.isfinite(est.coef_).all()
        assert est.score(np.c_[X, X], y) > 0.9

    def test_three_rows_are_enough(self, data):
        est = make(**BRIEF).fit(data[0][:3], data[1][:3])
        assert np.isfinite(est.predict(data[0])).all()

    def test_an_outlier_leaves_everything_finite(self, data):
        X, y = data
        X[3, 0], y[3] = 1e9, -1e6
        assert np.isfinite(make(**BRIEF).fit(X, y).predict(X)).all()

    @pytest.mark.filterwarnings("ignore::sknimo.SeparationWarning")
    def test_parted_classes_give_a_finite_fit(self, data):
        X, _ = data
        labels = (X[:, 0] > 0).astype(int)
        est = make("binomial", **BRIEF).fit(X, labels)
        assert np.isfinite(est.decision_function(X)).all()
        assert est.score(X, labels) == 1.0

    def test_parted_classes_are_reported(self, data):
        """One row is far out, so that its log-odds pass the limit."""
        X = np.r_[np.linspace(-9, -8, 20), np.linspace(8, 9, 19), 100.0][:, None]
        labels = (X[:, 0] > 0).astype(int)
        est = make("binomial", alphas=[1e-9], **BRIEF)
        with pytest.warns(SeparationWarning, match="separated perfectly"):
            est.fit(X, labels)
        assert not est.converged_


class TestInvariance:
    @EVERY_FAMILY
    def test_the_order_of_rows_does_not_matter(self, family):
        X, y = make_data(family)
        order = np.random.default_rng(1).permutation(N_ROWS)
        weight, offset = np.linspace(1, 2, N_ROWS), np.linspace(0, 1, N_ROWS)
        first = make(family, **BRIEF)
        second = clone(first)
        first.fit(X, y, weight, offset)
        second.fit(X[order], y[order], weight[order], offset[order])
        assert np.array_equal(first.model_.eta(X), second.model_.eta(X))

    @EVERY_FAMILY
    def test_integer_weights_equal_repetition(self, family):
        """Equal rows are merged before folds are drawn: the same to the last bit."""
        X, y = make_data(family)
        counts = np.arange(N_ROWS) % 3
        first = make(family, **BRIEF)
        second = clone(first)
        first.fit(X, y, sample_weight=counts)
        rows = np.repeat(np.arange(N_ROWS), counts)
        second.fit(X[rows], y[rows])
        assert np.array_equal(first.model_.eta(X), second.model_.eta(X))

    def test_weights_of_any_size_count_rows_in_total(self, data):
        """Fractions are scaled to a mean of one: a common factor does not matter."""
        X, y = data
        weight = np.random.default_rng(0).uniform(0.5, 1.5, N_ROWS)
        first, second = (make(**BRIEF).fit(X, y, weight * c) for c in (1.0, 1024.0))
        assert relative_gap(second.predict(X), first.predict(X)) < UNITS

    @pytest.mark.parametrize(
        "move",
        [
            lambda X: X * 1e12,
            lambda X: X * [1e6, 1e-6, 1.0] + [0.0, 1.0, 1e3],
        ],
    )
    def test_units_of_x_do_not_matter(self, move, data):
        X, y = data
        moved = move(X)
        expected = make(**BRIEF).fit(standardise(moved), y).predict(standardise(moved))
        assert (
            relative_gap(make(**BRIEF).fit(moved, y).predict(moved), expected) < UNITS
        )

    @pytest.mark.parametrize("factor", [1e6, 1e-100])
    def test_units_of_y_do_not_matter(self, factor, data):
        X, y = data
        plain, scaled = make(**BRIEF).fit(X, y), make(**BRIEF).fit(X, y * factor)
        assert relative_gap(scaled.predict(X) / factor, plain.predict(X)) < UNITS
        assert scaled.coef_ / factor == pytest.approx(plain.coef_, rel=UNITS)

    def test_the_same_seed_gives_the_same_fit(self, data):
        X, y = data
        first, second, other = (
            make(**BRIEF, random_state=seed).fit(X, y).predict(X) for seed in (0, 0, 1)
        )
        assert np.array_equal(first, second)
        assert not np.array_equal(first, other)

    def test_global_state_is_left_alone(self, data):
        generators = torch.get_rng_state(), np.random.get_state()[1].copy()
        n_threads = torch.get_num_threads()
        make().fit(*data)
        assert torch.equal(torch.get_rng_state(), generators[0])
        assert np.array_equal(np.random.get_state()[1], generators[1])
        assert torch.get_num_threads() == n_threads

    @staticmethod
    def check_jobs(family, backend):
        X, y = make_data(family)
        alone = make(family, **BRIEF | {"n_starts": 3}).fit(X, y)
        with parallel_config(backend=backend):
            together = clone(alone).set_params(n_jobs=2).fit(X, y)
        assert alone.n_members_ == together.n_members_
        assert np.array_equal(alone.model_.eta(X), together.model_.eta(X))
        assert alone.cv_results_ == together.cv_results_

    def test_any_number_of_threads_gives_the_same_answer(self):
        self.check_jobs("gaussian", "threading")

    @pytest.mark.slow
    @pytest.mark.parametrize("family", list(FAMILIES))
    def test_any_number_of_processes_gives_the_same_answer(self, family):
        self.check_jobs(family, "loky")


class TestTime:
    def test_out_of_time_says_so_and_gives_a_usable_model(self, data):
        X, y = data
        est = make(max_time=1e-9)
        with pytest.warns(ConvergenceWarning, match="max_time=1e-09 s"):
            est.fit(X, y)
        assert not est.converged_
        assert est.n_members_ == 0
        assert est.best_index_ == -1
        assert np.isfinite(est.predict(X)).all()
        assert est.score(X, y) > 0.3  # the GLM

    def test_the_warning_points_at_the_call_of_fit(self, data):
        with pytest.warns(ConvergenceWarning) as caught:
            make(max_time=1e-9).fit(*data)
        assert caught[0].filename == __file__

    @pytest.fixture
    def clock(self, monkeypatch):
        """A clock that shows one second more each time it is looked at."""
        ticks = iter(np.arange(1e6))
        monkeypatch.setattr(time, "monotonic", lambda: next(ticks))

    def test_restarts_within_the_time_are_kept(self, data, clock):
        """The deadline passes in the midst of the second restart."""
        X, y = data
        est = make(max_time=25, n_starts=4)
        with pytest.warns(ConvergenceWarning, match="restarts; the best so far"):
            est.fit(X, y)
        stages = est.cv_results_["stage"]
        assert stages.count("wide") == 2
        steps = est.cv_results_["n_iter"]
        assert steps[0] == SHORT["max_iter"]
        assert 0 < steps[1] < SHORT["max_iter"]
        assert "relaxed" not in stages
        assert est.verdict_ is None
        assert not est.converged_
        assert np.isfinite(est.predict(X)).all()

    def test_simplifying_ends_in_time(self, data, clock):
        """Restarts fit in the time, tidying up after them does not."""
        est = make(max_time=40, n_starts=2)
        with pytest.warns(ConvergenceWarning):
            est.fit(*data)
        assert est.cv_results_["stage"] == ["wide", "wide", "simplified"]
        assert est.n_iter_ < 40 + SHORT["max_iter"]

    def test_time_enough_changes_nothing(self, data):
        X, y = data
        started = time.monotonic()
        free = make().fit(X, y)
        assert free.converged_
        limit = 100 * (time.monotonic() - started) + 100
        limited = make(max_time=limit).fit(X, y)
        assert limited.converged_
        assert np.array_equal(limited.predict(X), free.predict(X))


class TestAnswers:
    """What the search is for, on small samples of the paper's settings."""

    def test_linear_truth_returns_the_glm(self):
        data = make_nimo_regression(setting=4, n_samples=200, random_state=0)
        est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
        assert est.n_members_ == 0 or not est.model_.modulated.any()
        assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
        test = make_nimo_regression(setting=4, n_samples=1000, random_state=1000)
        error = np.mean((est.predict(test.X) - test.y) ** 2)
        assert error < 0.0115  # noise floor 0.01

    @pytest.mark.parametrize("noise", [0.1, 2.0])
    def test_the_glm_that_is_kept_is_linear(self, noise):
        X, y = make_linear(n_rows=100, noise=noise)
        est = make(alphas=None).fit(X, y)
        assert est.n_members_ == 0
        assert est.log_evidence_ - est.glm_log_evidence_ < EVIDENCE_MARGIN
        eta = est.intercept_ + (X - est.reference_) @ est.coef_
        assert est.predict(X) == pytest.approx(eta, rel=1e-10)

    def test_the_glm_that_is_kept_is_the_chosen_point_where_shrinking_helps(self):
        X, y = make_linear(n_rows=48, n_features=12, seed=2, dense=True)
        est = make_glm().fit(X, y)
        assert est.n_members_ == est.path_.relaxation == 0
        chosen = est.path_.chosen.coef[0].numpy()
        assert est.coef_ == pytest.approx(chosen * y.std() / X.std(axis=0), rel=1e-10)

    def test_the_glm_that_is_kept_has_no_idle_feature_where_shrinking_hurts(self):
        X, y = make_linear(n_rows=200, noise=0.1, seed=5)
        est = make(alphas=None, max_iter=50, n_starts=1).fit(X, y)
        assert est.n_members_ == 0
        assert est.path_.relaxation > 0
        assert np.flatnonzero(est.coef_).tolist() == [1, 3, 5]
        ols = LinearRegression().fit(X[:, [1, 3, 5]], y)
        assert est.coef_[[1, 3, 5]] == pytest.approx(ols.coef_, rel=1e-2)

    def test_noise_gives_the_mean(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(100, 5)), rng.normal(size=100)
        est = make().fit(X, y)
        assert est.n_members_ == 0
        assert est.score(X, y) < 0.2

    @TWO_SEEDS
    def test_setting_1_has_the_exact_support_and_a_small_error(self, seed):
        data = make_nimo_regression(setting=1, n_samples=200, random_state=seed)
        test = make_nimo_regression(setting=1, n_samples=1000, random_state=1000 + seed)
        est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
        assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
        reads = np.flatnonzero(est.model_.input_norms).tolist()
        assert reads == data.modulating.tolist()
        assert np.mean((est.predict(test.X) - test.y) ** 2) <= SETTING_1_MSE

    def test_classification_setting_1_is_solved(self):
        data = make_nimo_classification(setting=1, n_samples=300, random_state=1)
        test = make_nimo_classification(setting=1, n_samples=1000, random_state=1001)
        est = NIMOClassifierCV(n_starts=3, random_state=0).fit(data.X, data.y)
        assert est.n_members_ > 0
        assert est.score(test.X, test.y) >= SETTING_1_ACCURACY

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(5))
    def test_classification_setting_1_is_solved_by_the_defaults(self, seed):
        data = make_nimo_classification(setting=1, n_samples=300, random_state=seed)
        test = make_nimo_classification(
            setting=1, n_samples=1000, random_state=1000 + seed
        )
        est = NIMOClassifierCV(random_state=0).fit(data.X, data.y)
        assert est.score(test.X, test.y) >= SETTING_1_ACCURACY

    @pytest.mark.slow
    @pytest.mark.parametrize(("setting", "limit"), [(2, 0.15), (3, 0.12)])
    def test_harder_settings_have_the_exact_support(self, setting, limit):
        """Limits a little above the means that the issue asks for."""
        data = make_nimo_regression(setting=setting, n_samples=300, random_state=0)
        test = make_nimo_regression(setting=setting, n_samples=1000, random_state=1000)
        est = NIMORegressorCV(random_state=0).fit(data.X, data.y)
        assert np.flatnonzero(est.coef_).tolist() == data.active.tolist()
        assert np.mean((est.predict(test.X) - test.y) ** 2) <= limit

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [204, 206])
    def test_a_weak_interaction_survives_the_removal_of_idle_features(self, seed):
        """Worth six to twelve units of log evidence, with noise as large as effects."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 5))
        signal = X[:, 0] * (1 + 0.4 * np.tanh(2 * X[:, 1])) - X[:, 2]
        est = NIMORegressorCV(n_starts=4, random_state=seed)
        est.fit(X, signal + rng.normal(size=300))
        assert est.n_members_ > 0
        assert np.flatnonzero(est.model_.input_norms).tolist() == [1]

    @TWO_SEEDS
    @pytest.mark.parametrize(
        ("family", "glm"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)]
    )
    def test_one_interaction_is_worth_a_fifth_of_the_glm_s_deviance(
        self, family, glm, seed
    ):
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

    def test_overdispersed_counts_are_no_worse_than_the_glm(self):
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
    def test_heavy_tailed_noise_is_no_worse_than_least_squares(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(300, 5))
        signal = X[:, 0] - X[:, 1]
        y = signal + rng.standard_t(2, size=300)
        est = NIMORegressorCV(n_starts=2, random_state=0).fit(X, y)
        ols = LinearRegression().fit(X, y)
        errors = [np.mean((m.predict(X) - signal) ** 2) for m in (est, ols)]
        assert errors[0] < 1.5 * errors[1]


class TestVerdict:
    """Held-out rows decide between the network and the nested GLM."""

    @staticmethod
    def verdict(gain, error, glm_loss=1.0):
        glm = np.full(3, glm_loss)
        return Verdict(glm - gain, glm, gain, error)

    def test_the_simpler_model_wins_when_they_cannot_be_told_apart(self):
        assert not self.verdict(gain=0.0, error=0.0).keeps_network
        assert not self.verdict(gain=-0.5, error=0.01).keeps_network
        tiny = 0.9 * TINY_GAIN
        assert not self.verdict(gain=tiny, error=1.01 * tiny).keeps_network
        assert self.verdict(gain=tiny, error=0.99 * tiny).keeps_network
        assert self.verdict(gain=1.1 * TINY_GAIN, error=1.0).keeps_network
        assert not self.verdict(gain=np.nan, error=1.0).keeps_network

    def test_losses_are_those_of_the_folds(self, data):
        """The GLM's, recomputed with scikit-learn; the network's are smaller."""
        X, y = data
        folds = list(KFold(3, shuffle=True, random_state=0).split(X))
        est = make(cv=folds, alphas=[0.1]).fit(X, y)
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

    @pytest.mark.parametrize(
        ("gains", "goal", "tried", "kept"),
        [
            ([50.0, 90.0], 40.0, 1, 0),  # the first will do
            ([1.0, 90.0, 99.0], 40.0, 2, 1),  # it failed: the next
            ([1.0, 5.0, 3.0], 40.0, 3, 1),  # all failed: the best of them
        ],
    )
    def test_a_start_that_fails_on_a_fold_is_followed_by_the_next_best(
        self, gains, goal, tried, kept, make_problem, monkeypatch
    ):
        problem = make_problem()
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        everything = torch.ones(4, dtype=torch.bool)
        at = Coefficients(torch.ones(1, 4).double(), torch.zeros(1).double())
        params = torch.zeros(problem.spec.n_params, dtype=torch.float64)
        state = start_state(problem, weight, params, at, everything, everything)
        monkeypatch.setattr(
            verdict_module,
            "fit_linear_evidence",
            lambda *args: replace(state, log_evidence=-7.0),
        )
        asked = []

        def run(problem, weight, task, start, options):
            asked.append(task)
            return replace(state, log_evidence=gains[task] - 7.0)

        monkeypatch.setattr(verdict_module, "run_task", run)
        tasks = list(range(len(gains)))
        found = verdict_module._first_success(
            problem, weight, tasks, goal / problem.n_rows, at, EvidenceOptions()
        )
        assert asked == tasks[:tried]
        assert found.log_evidence == gains[kept] - 7.0

    def test_there_is_no_verdict_without_a_network(self):
        X, y = make_linear(n_rows=100)
        assert make(alphas=None).fit(X, y).verdict_ is None

    def test_a_network_that_loses_on_held_out_rows_is_not_returned(
        self, data, monkeypatch
    ):
        """Whatever its evidence."""
        monkeypatch.setattr(
            blend_module, "judge", lambda *args: self.verdict(gain=-0.1, error=0.01)
        )
        est = make().fit(*data)
        assert est.n_members_ == 0
        assert est.log_evidence_ > est.glm_log_evidence_ + EVIDENCE_MARGIN
        assert est.network_alpha_ == np.inf
        assert not est.model_.modulated.any()
        eta = est.intercept_ + (data[0] - est.reference_) @ est.coef_
        assert est.predict(data[0]) == pytest.approx(eta, rel=1e-10)

    def test_weights_count_rows_in_the_verdict(self, data):
        """Integer weights equal repetition; the error counts repeats as rows."""
        X, y = data
        counts = np.arange(N_ROWS) % 3 + 1
        rows = np.repeat(np.arange(N_ROWS), counts)
        weighted = make(**BRIEF).fit(X, y, counts).verdict_
        repeated = make(**BRIEF).fit(X[rows], y[rows]).verdict_
        assert weighted.gain == repeated.gain
        assert weighted.error == repeated.error

    @pytest.mark.parametrize(
        ("cv", "n_folds"),
        [
            (KFold(3), 3),
            (KFold(10), 5),
            (LeaveOneOut(), 5),
            (ShuffleSplit(12, test_size=0.2, random_state=0), 4),
            (ShuffleSplit(1, random_state=0), 1),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_many_folds_are_held_out_together(self, cv, n_folds):
        X = np.zeros((N_ROWS, 1))
        folds = []
        for train, test in cv.split(X):
            inside, outside = np.zeros(N_ROWS), np.zeros(N_ROWS)
            inside[train], outside[test] = 1, 1
            folds.append(Fold(inside, outside))
        merged = merge_folds(folds)
        assert len(merged) == n_folds
        for fold in merged:
            assert not (fold.train * fold.held_out).any()
            assert fold.held_out.sum() <= max(N_ROWS / 5, folds[0].held_out.sum())
            assert fold.train.sum() >= N_ROWS / 2

    def test_folds_that_share_a_repeated_row_hold_it_out_together(self):
        """Two copies of one row, one in each fold."""
        first = Fold(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0]))
        second = Fold(np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0]))
        both = first.merge(second)
        assert both.train.tolist() == [0, 0, 0]
        assert both.held_out.tolist() == [2, 1, 1]

    def test_leaving_one_out_keeps_a_true_network(self, data):
        est = make(cv=LeaveOneOut(), alphas=[0.1]).fit(*data)
        assert est.n_members_ > 0
        assert len(est.verdict_.glm_loss) == 5

    def test_too_much_certainty_about_one_row_does_not_outweigh_the_rest(
        self, make_problem
    ):
        """Classes are judged by squared error of the probability."""
        problem = make_problem("binomial", n_rows=50)
        side = 2 * problem.y - 1
        bold, timid = 20 * side, 0.1 * side
        bold[0] *= -1  # certain, and wrong
        rows = np.arange(50)
        losses = [
            eta_losses(problem, rows, eta.numpy()).mean() for eta in (bold, timid)
        ]
        assert losses[0] == pytest.approx(1 / 50, abs=1e-6)
        assert losses[0] < losses[1] < 0.25
        deviance = [
            problem.family.loss(problem.y, eta).mean() for eta in (bold, 0.5 * timid)
        ]
        assert deviance[0] > 0.39  # a fiftieth of 20: the deviance is near log 2

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [211, 212, 213])
    def test_noise_whose_size_follows_a_feature_is_no_structure(self, seed):
        """The evidence, which trusts equal variances, is misled; the folds are not."""
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 5))
        y = X[:, 0] - X[:, 1] + 0.5 * np.exp(X[:, 2]) * rng.normal(size=300)
        est = NIMORegressorCV(n_starts=4, random_state=seed).fit(X, y)
        assert est.log_evidence_ > est.glm_log_evidence_ + EVIDENCE_MARGIN
        assert not est.verdict_.keeps_network
        assert est.n_members_ == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("setting", [1, 2, 3])
    @pytest.mark.parametrize("kind", ["regression", "classification"])
    def test_true_structure_is_far_from_being_voted_down(self, kind, setting):
        regression = kind == "regression"
        draw = make_nimo_regression if regression else make_nimo_classification
        data = draw(setting=setting, n_samples=300, random_state=105)
        search = NIMORegressorCV if regression else NIMOClassifierCV
        est = search(n_starts=4, random_state=105).fit(data.X, data.y)
        assert est.n_members_ > 0
        assert est.verdict_.gain > 0.2 * est.verdict_.glm_loss.mean()
        assert est.verdict_.gain > 3 * est.verdict_.error

    def test_an_overflow_on_a_held_out_row_is_a_loss_and_not_a_number(
        self, make_problem
    ):
        problem = make_problem("poisson", n_rows=4)
        eta = torch.tensor([0.0, 1e4, torch.nan, 0.0], dtype=torch.float64)
        losses = eta_losses(problem, np.arange(4), eta.numpy())
        assert np.isfinite(losses).all()
        assert (losses[1:3] > 1e20).all()


class TestMembers:
    """Who joins the average, and that the average is one."""

    @pytest.fixture
    def search(self, make_problem):
        """A finished search with the given log evidences; the linear fit has zero."""

        def search(evidences):
            problem = make_problem()
            weight = torch.ones(problem.n_rows, dtype=torch.float64)
            everything = torch.ones(4, dtype=torch.bool)
            at = Coefficients(torch.ones(1, 4).double(), torch.zeros(1).double())
            params = torch.zeros(problem.spec.n_params, dtype=torch.float64)
            state = start_state(problem, weight, params, at, everything, everything)
            states = [
                replace(state, log_evidence=value, coef=state.coef * (k + 1))
                for k, value in enumerate(evidences)
            ]
            task = Task("relaxed", 0, 1.0, everything, everything)
            runner = Runner(problem, weight, EvidenceOptions())
            linear = replace(state, log_evidence=0.0)
            tasks = [task] * len(states)
            everyone = list(range(len(states)))
            return runner, SearchResult(tasks, states, linear, everyone)

        return search

    @staticmethod
    def chosen(members):
        """Numbers of the restarts, in their order."""
        return [int(state.coef[0]) - 1 for state in members]

    def test_failed_restarts_are_left_out(self, search):
        just, not_quite = 100 * MEMBER_SHARE, 100 * MEMBER_SHARE - 1e-6
        members = choose_members(*search([not_quite, 100.0, just, -50.0, 99.0]), 6)
        assert self.chosen(members) == [1, 4, 2]

    def test_no_more_than_asked_for_join_the_best_first(self, search):
        evidences = [100.0, 99.0, 101.0, 98.0]
        assert self.chosen(choose_members(*search(evidences), 2)) == [2, 0]
        assert self.chosen(choose_members(*search(evidences), 1)) == [2]

    def test_a_network_that_does_not_earn_its_keep_has_no_members(self, search):
        below = EVIDENCE_MARGIN - 1e-6
        assert choose_members(*search([-10.0, below]), 6) == []
        assert choose_members(*search([]), 6) == []
        assert len(choose_members(*search([-10.0, EVIDENCE_MARGIN]), 6)) == 1

    def test_a_selection_that_costs_evidence_keeps_members_of_its_own(self, search):
        """Features that bring little each may bring much together."""
        runner, result = search([100.0, 90.0, 50.0])
        assert self.chosen(choose_members(runner, result, 6)) == [0, 1]

    def test_loose_members_keep_the_supports_that_they_found(self, search):
        runner, result = search([100.0, 90.0, 60.0, 80.0])
        few = torch.tensor([True, False, True, True])
        states = [replace(result.states[0], support=few), *result.states[1:]]
        tasks = [
            replace(task, seed=seed)
            for task, seed in zip(result.tasks, (1, 2, 3, 1), strict=True)
        ]
        result = replace(result, states=states, tasks=tasks)
        members = loose_members(runner, result, 6)
        assert self.chosen(members) == [0, 1]  # one per seed, without the failure
        assert torch.equal(members[0].support, few)
        again = result.loose_tasks(2)
        assert [task.seed for task in again] == [1, 2]
        assert torch.equal(again[0].support, few)

    def test_the_best_restarts_are_named_once_each(self, search):
        """The simplified best has the seed of the restart that it came from."""
        _, result = search([5.0, 9.0, 7.0, 8.0])
        seeds = (1, 2, 3, 2)
        tasks = [
            replace(task, seed=seed)
            for task, seed in zip(result.tasks, seeds, strict=True)
        ]
        best = replace(result, tasks=tasks).best_tasks(2)
        assert [task.seed for task in best] == [2, 3]
        assert torch.equal(best[0].support, result.states[-1].support)

    @pytest.mark.parametrize("n_members", [2, 6])
    def test_members_are_restarts_of_nearly_the_best_evidence(self, n_members, data):
        est = make(n_starts=4, n_members=n_members).fit(*data)
        gains = np.array(est.cv_results_["log_evidence"]) - est.glm_log_evidence_
        eligible = (gains >= MEMBER_SHARE * gains.max()).sum()
        # Restarts can lose their place when they are refitted within the supports.
        assert 1 <= est.n_members_ <= min(n_members, eligible)
        assert est.model_.n_members == est.n_members_

    @EVERY_FAMILY
    def test_the_average_has_the_mean_coefficients_and_the_mean_eta(self, family):
        X, y = make_data(family, n_rows=120)
        est = make(family, n_starts=3).fit(X, y)
        model = est.model_
        if family != "binomial":
            assert est.n_members_ > 1
        singles = [
            replace(
                model,
                coef=model.coef[k : k + 1],
                intercept=model.intercept[k : k + 1],
                params=model.params[k : k + 1],
                modulated=model.modulated[k : k + 1],
            )
            for k in range(model.n_members)
        ]
        per_unit = model.features.coefficients
        coef = np.mean([per_unit(single.term_coef) for single in singles], axis=0)
        assert est.coef_ == pytest.approx(coef, rel=ROUNDING)
        level = np.mean([single.base_value for single in singles])
        assert est.intercept_ == pytest.approx(level, rel=ROUNDING)
        eta = np.mean([single.eta(X) for single in singles], axis=0)
        assert model.eta(X) == pytest.approx(eta, rel=1e-10, abs=1e-10)
        at_reference = model.eta(est.reference_[None])[0]
        assert at_reference == pytest.approx(est.intercept_, rel=1e-10)

    def test_members_share_their_supports(self, data):
        est = make(n_starts=4).fit(*data)
        first = torch.as_tensor(est.model_.first_layer).abs().amax(1) > 0
        assert (first == first[0]).all()
        kept = est.model_.coef != 0
        assert (kept == kept[0]).all()

    def test_without_relaxation_no_restart_is_relaxed(self, data):
        est = make(relax=False).fit(*data)
        assert "relaxed" not in est.cv_results_["stage"]
        assert est.n_members_ > 0
        assert "relaxed" in make(relax=True).fit(*data).cv_results_["stage"]

    def test_restarts_that_are_missing_in_the_middle_leave_the_others_in_place(
        self, make_problem, monkeypatch
    ):
        """Each state stays with its own task, whichever tasks find no time."""
        problem = make_problem()
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        everything = torch.ones(4, dtype=torch.bool)
        tasks = [Task("wide", seed, 1.0, everything, everything) for seed in range(4)]

        def some(problem, weight, task, start, options):
            return None if task.seed == 1 else f"state {task.seed}"

        monkeypatch.setattr(runner_module, "run_task", some)
        done = Runner(problem, weight, EvidenceOptions()).run(tasks, None)
        assert [(task.seed, state) for task, state in done] == [
            (0, "state 0"),
            (2, "state 2"),
            (3, "state 3"),
        ]

    def test_a_restart_that_is_no_number_is_left_out(self, data, monkeypatch):
        real, seeds = runner_module.run_task, []

        def some(problem, weight, task, *rest):
            seeds.append(task.seed)
            state = real(problem, weight, task, *rest)
            return replace(state, log_evidence=-np.inf) if len(seeds) == 1 else state

        monkeypatch.setattr(runner_module, "run_task", some)
        est = make(n_starts=3).fit(*data)
        assert seeds[0] not in est.cv_results_["seed"]
        assert np.isfinite(est.cv_results_["log_evidence"]).all()
        assert est.n_members_ > 0

    def test_one_member_is_the_best_restart(self, data):
        est = make(n_members=1).fit(*data)
        assert est.n_members_ == est.model_.n_members == 1


class TestStability:
    """`rule="stability"`: only what most of the restarts keep."""

    def test_what_few_restarts_keep_is_dropped(self, make_problem, make_params):
        """Feature 1 in three of six, feature 3 in four of five; input 2 in one."""
        problem = make_problem()
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        everything = torch.ones(4, dtype=torch.bool)
        at = Coefficients(torch.ones(1, 4).double(), torch.zeros(1).double())
        params = make_params(problem.spec)[0]
        state = start_state(problem, weight, params, at, everything, everything)

        def restart(features, inputs, evidence=100.0, shown=everything):
            support, reads = torch.zeros(4).bool(), torch.zeros(4).bool()
            support[features], reads[inputs] = True, True
            fitted = replace(
                state, support=support, input_support=reads, log_evidence=evidence
            )
            return Task("wide", 0, 1.0, shown, shown), fitted

        first_three = torch.tensor([True, True, True, False])

        restarts = [
            restart([0, 1, 2, 3], [1, 2, 3]),
            restart([0, 1, 2, 3], [1, 3]),
            restart([0, 1, 2, 3], [1, 3]),
            restart([0, 2, 3], [1, 3]),
            restart([0, 2], [1, 3]),
            restart([1], [2], evidence=10.0),  # failed: has no say
            restart([0, 2], [1], shown=first_three),  # none on feature 3 either
        ]
        runner = Runner(problem, weight, EvidenceOptions(max_iter=1))
        kept = keep_stable(runner, state, restarts, 0.0)
        assert kept.support.tolist() == [True, False, True, True]
        assert kept.input_support.tolist() == [False, True, False, True]
        assert kept.coef[1] == 0

    def test_it_never_keeps_more_and_still_finds_the_truth(self, data):
        X, y = data
        plain, stable = (
            make(rule=rule, n_starts=4).fit(X, y) for rule in ("min", "stability")
        )
        assert stable.n_members_ > 0
        assert set(np.flatnonzero(stable.coef_)) <= set(np.flatnonzero(plain.coef_))
        reads = [set(np.flatnonzero(m.model_.input_norms)) for m in (stable, plain)]
        assert reads[0] <= reads[1]
        assert {0, 2} <= set(np.flatnonzero(stable.coef_))
        assert 1 in reads[0]

    def test_every_member_is_within_the_stable_supports(self, data):
        est = make(rule="stability", n_starts=4).fit(*data)
        stages = est.cv_results_["stage"]
        assert stages[est.best_index_] in ("relaxed", "simplified")
        kept = est.model_.coef != 0
        assert (kept == kept[0]).all()


class TestMemory:
    def test_a_small_budget_changes_nothing(self, data):
        X, y = data
        whole = make(**BRIEF).fit(X, y)
        blocks = make(**BRIEF, memory_budget=1e6).fit(X, y)
        assert relative_gap(blocks.predict(X), whole.predict(X)) < UNITS

    def test_a_budget_that_cannot_do_is_refused(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 20))
        with pytest.raises(ValueError, match="Raise memory_budget, or make hidden"):
            NIMORegressorCV(memory_budget=1e6).fit(X, X[:, 0])


class TestAttributes:
    @EVERY_FAMILY
    def test_attributes_have_the_promised_shapes(self, family):
        X, y = make_data(family)
        est = make(family, **BRIEF).fit(pd.DataFrame(X, columns=NAMES), y)
        assert est.coef_.shape == est.reference_.shape == (3,)
        assert isinstance(est.intercept_, float)
        assert isinstance(est.converged_, bool)
        assert isinstance(est.n_iter_, int)
        assert isinstance(est.n_members_, int)
        assert isinstance(est.alpha_, float)
        assert isinstance(est.log_evidence_, float)
        assert isinstance(est.glm_log_evidence_, float)
        assert isinstance(est.network_alpha_, float)
        assert est.verdict_ is None or isinstance(est.verdict_, Verdict)
        assert est.feature_names_in_.tolist() == NAMES
        error = X.std(axis=0) / np.sqrt(len(X))
        assert (np.abs(est.reference_ - X.mean(axis=0)) <= 3.001 * error).all()
        assert est.path_.coef.shape == (len(est.path_.alphas), 3)

    def test_results_are_ready_for_a_data_frame(self, data):
        est = make(n_starts=2).fit(*data)
        frame = pd.DataFrame(est.cv_results_)
        assert {"stage", "log_evidence", "n_features", "n_inputs"} <= set(frame)
        assert len(frame) >= 2
        assert (frame["n_features"] <= 3).all()
        assert frame.notna().all(axis=None)
        assert est.best_index_ == frame["log_evidence"].argmax()
        assert est.log_evidence_ == frame["log_evidence"].max()
        assert est.n_iter_ == frame["n_iter"].sum()

    def test_network_alpha_is_finite_only_with_a_network(self, data):
        with_network = make().fit(*data)
        assert with_network.n_members_ > 0
        assert 0 < with_network.network_alpha_ < 1e4  # inputs die beyond
        assert make_glm().fit(*data).network_alpha_ == np.inf

    def test_the_network_beats_the_glm_by_the_margin_when_it_is_kept(self, data):
        est = make().fit(*data)
        assert est.n_members_ > 0
        assert est.log_evidence_ >= est.glm_log_evidence_ + EVIDENCE_MARGIN
        assert est.score(*data) > 0.95

    def test_fit_does_not_change_parameters(self, data):
        est = make(hidden=[4, 4], cv=KFold(3))
        before = est.get_params()
        est.fit(*data)
        assert est.get_params() == before


class TestTools:
    @pytest.fixture
    def interrupt(self, monkeypatch):
        def stop(*args, **kwargs):
            raise KeyboardInterrupt

        return lambda: monkeypatch.setattr(restarts_module, "fit_evidence", stop)

    @EVERY_FAMILY
    def test_an_interrupted_fit_leaves_the_previous_one(self, family, interrupt):
        X, y = make_data(family)
        est = make(family, **BRIEF).fit(X, y)
        before, predicted = dict(vars(est)), est.predict(X)
        n_threads = torch.get_num_threads()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            est.fit(X[:, :2], y)
        assert all(vars(est)[name] is value for name, value in before.items())
        assert list(vars(est)) == list(before)
        assert np.array_equal(est.predict(X), predicted)
        assert torch.get_num_threads() == n_threads

    def test_an_interrupted_first_fit_leaves_an_unfitted_estimator(
        self, data, interrupt
    ):
        est = make()
        before = dict(vars(est))
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            est.fit(*data)
        assert vars(est) == before
        with pytest.raises(NotFittedError):
            check_is_fitted(est)

    @EVERY_FAMILY
    def test_a_pickle_predicts_the_same_to_the_last_bit(self, family):
        X, y = make_data(family)
        est = make(family, **BRIEF).fit(X, y)
        copied = pickle.loads(pickle.dumps(est))
        assert np.array_equal(copied.predict(X), est.predict(X))
        assert np.array_equal(copied.model_.eta(X), est.model_.eta(X))
        assert copied.cv_results_ == est.cv_results_
        assert np.array_equal(copied.path_.coef, est.path_.coef)

    def test_a_clone_is_unfitted_and_fits_the_same(self, data):
        X, y = data
        est = make(**BRIEF).fit(X, y)
        copied = clone(est)
        with pytest.raises(NotFittedError):
            copied.predict(X)
        assert np.array_equal(copied.fit(X, y).predict(X), est.predict(X))

    def test_an_offset_is_added_on_the_scale_of_eta(self):
        X, y = make_data("poisson", n_rows=100)
        offset = np.linspace(-1, 1, 100)
        est = make_glm("poisson").fit(X, y)
        expected = est.predict(X) * np.exp(offset)
        assert est.predict(X, offset) == pytest.approx(expected)

    @pytest.mark.slow
    def test_a_constant_offset_moves_the_intercept_alone(self):
        X, y = make_data("poisson", n_rows=100)
        plain = make("poisson", **BRIEF).fit(X, y)
        moved = clone(plain).fit(X, y, offset=np.full(100, 0.5))
        assert moved.coef_ == pytest.approx(plain.coef_, rel=UNITS, abs=UNITS)
        assert moved.intercept_ == pytest.approx(plain.intercept_ - 0.5, rel=UNITS)

    def test_labels_may_be_words(self):
        X, y = make_data("binomial")
        plain = make_glm("binomial").fit(X, y)
        named = clone(plain).fit(X, np.where(y, "yes", "no"))
        assert named.classes_.tolist() == ["no", "yes"]
        assert np.array_equal(named.predict_proba(X), plain.predict_proba(X))


class TestRepeatedRows:
    """Rows that say the same are observations of their own to the folds."""

    def test_folds_share_out_the_observations_that_a_row_stands_for(self):
        weight = np.array([40.0, 1.0, 25.0, 3.0])
        folds = _random_folds(weight, 5, np.random.RandomState(0))
        held_out = np.stack([fold.held_out for fold in folds])
        assert np.array_equal(held_out.sum(0), weight)
        assert all(np.array_equal(fold.total, weight) for fold in folds)
        assert set(held_out.sum(1)) <= {13.0, 14.0}
        assert (held_out[:, 0] > 0).all()

    def test_rows_of_a_fractional_weight_stay_whole(self):
        weight = np.array([0.5, 1.5, 2.5])
        for fold in _random_folds(weight, 3, np.random.RandomState(0)):
            assert np.count_nonzero(fold.held_out) == 1
            assert np.count_nonzero(fold.train) == 2

    def test_a_table_of_flags_alone_is_fitted_as_well_as_by_logistic_regression(self):
        rng = np.random.default_rng(0)
        X = rng.integers(0, 2, (600, 3)).astype(float)
        chance = 1 / (1 + np.exp(-(1.5 * X[:, 0] - X[:, 1])))
        y = (rng.random(600) < chance).astype(int)
        ours = NIMOClassifierCV(n_starts=1, random_state=0).fit(X, y)
        theirs = LogisticRegression(C=1e6).fit(X, y)
        gap = ours.predict_proba(X)[:, 1] - theirs.predict_proba(X)[:, 1]
        assert np.abs(gap).max() < 0.05
