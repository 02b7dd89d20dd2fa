"""The estimators as a user meets them: units, order, repeats, interruptions, tools."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Lasso, LinearRegression
from sklearn.metrics import (
    accuracy_score,
    d2_tweedie_score,
    mean_poisson_deviance,
    r2_score,
)
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import sknimo.estimators._plain
from sknimo import NIMOClassifier, NIMORegressor
from sknimo.datasets import make_nimo_regression
from sknimo.exceptions import DataWarning

UNITS = 1e-6  # the bar of the issue, relative to the spread of the predictions
ROUNDING = 1e-12  # float64: only the order of operations differs
LINEAR_TRUTH = 1.02  # test error over that of the best penalised linear model
N_ROWS = 80
NAMES = ["age", "dose", "size"]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regressor(family="gaussian", **options):
    return NIMORegressor(family, **{"max_iter": 30, "random_state": 0} | options)


def classifier(**options):
    return NIMOClassifier(**{"max_iter": 30, "random_state": 0} | options)


def make_data(family="gaussian", n_rows=N_ROWS, seed=0):
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


def make(family, **options):
    return (
        classifier(**options) if family == "binomial" else regressor(family, **options)
    )


EVERY_FAMILY = pytest.mark.parametrize(
    "family", ["gaussian", "binomial", "poisson", "gamma"]
)


@pytest.fixture
def data():
    return make_data()


def relative_gap(eta, expected):
    return np.abs(eta - expected).max() / expected.std()


class TestUnits:
    """A whole training in other units ends at the same predictions."""

    MOVES = {
        "scale 1e12": lambda X: X * 1e12,
        "scale 1e-12": lambda X: X * 1e-12,
        "offset 1e8": lambda X: X + 1e8,
        "scale 1e12, offset 1e8": lambda X: X * 1e12 + 1e8,
        "one unit per column": lambda X: X * [1e12, 1e-12, 1.0] + [0.0, 1.0, 1e8],
    }

    def check(self, family, move, **options):
        X, y = make_data(family)
        moved = self.MOVES[move](X)
        # Rounding in the move itself is not the model's: start from the moved numbers.
        exact = moved.astype(np.longdouble)
        standard = ((exact - exact.mean(0)) / exact.std(0)).astype(float)
        expected = make(family, **options).fit(standard, y).model_.eta(standard)
        eta = make(family, **options).fit(moved, y).model_.eta(moved)
        assert relative_gap(eta, expected) < UNITS

    @EVERY_FAMILY
    @pytest.mark.parametrize("move", MOVES)
    @pytest.mark.slow
    def test_units_of_x_do_not_matter(self, family, move):
        self.check(family, move)

    @pytest.mark.slow
    @EVERY_FAMILY
    @pytest.mark.parametrize("move", MOVES)
    def test_units_of_x_do_not_matter_after_a_long_training(self, family, move):
        self.check(family, move, max_iter=500)

    @pytest.mark.parametrize("factor", [1e6, 1e-6, 1e200, 1e-200])
    def test_units_of_y_do_not_matter(self, data, factor):
        X, y = data
        plain = regressor().fit(X, y)
        scaled = regressor().fit(X, y * factor)
        assert relative_gap(scaled.predict(X) / factor, plain.predict(X)) < UNITS
        assert scaled.coef_ / factor == pytest.approx(plain.coef_, rel=UNITS)

    def test_the_level_of_y_does_not_matter(self, data):
        X, y = data
        plain = regressor().fit(X, y)
        moved = regressor().fit(X, y + 1e6)
        assert relative_gap(moved.predict(X) - 1e6, plain.predict(X)) < UNITS

    def test_coefficients_are_per_unit_of_their_column(self, data):
        X, y = data
        plain = regressor().fit(X, y)
        scaled = regressor().fit(X * [1.0, 10.0, 100.0], y)
        expected = plain.coef_ / [1.0, 10.0, 100.0]
        assert scaled.coef_ == pytest.approx(expected, rel=UNITS)


class TestInterruption:
    @pytest.fixture
    def interrupt(self, monkeypatch):
        def stop(*args, **kwargs):
            raise KeyboardInterrupt

        return lambda: monkeypatch.setattr(sknimo.estimators._plain, "solve", stop)

    @pytest.mark.parametrize("family", ["gaussian", "binomial"])
    def test_an_interrupted_fit_leaves_the_previous_one(self, family, interrupt):
        X, y = make_data(family)
        frame = pd.DataFrame(X, columns=NAMES)
        est = make(family).fit(frame, y)
        before, predicted = dict(vars(est)), est.predict(frame)
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            est.fit(X[:, :2], y)
        assert list(vars(est)) == list(before)
        assert all(vars(est)[name] is value for name, value in before.items())
        assert np.array_equal(est.predict(frame), predicted)

    def test_an_interrupted_first_fit_leaves_an_unfitted_estimator(
        self, data, interrupt
    ):
        est = regressor()
        before = dict(vars(est))
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            est.fit(*data)
        assert vars(est) == before
        with pytest.raises(NotFittedError):
            check_is_fitted(est)

    def test_a_refused_fit_leaves_the_previous_one(self, data):
        X, y = data
        est = regressor().fit(X, y)
        predicted = est.predict(X)
        with pytest.raises(ValueError, match="NaN"):
            est.fit(np.full((5, 2), np.nan), y[:5])
        assert est.n_features_in_ == 3
        assert np.array_equal(est.predict(X), predicted)

    def test_a_warning_turned_into_an_error_leaves_the_previous_fit(self, data):
        X, y = data
        est = regressor(max_iter=0).fit(X, y)
        before = dict(vars(est))
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            with pytest.raises(ConvergenceWarning):
                est.set_params(max_iter=5).fit(X, y)
        assert vars(est) == before | {"max_iter": 5}


class TestWarmStart:
    def test_a_warm_start_continues_from_the_previous_network(self, data):
        est = regressor(warm_start=True).fit(*data)
        first, network = est.certificate_.objective, est.model_.params
        est.fit(*data)
        cold = regressor().fit(*data)
        assert est.certificate_.objective < first
        assert not torch.equal(est.model_.params, network)
        assert cold.certificate_.objective == first

    def test_without_steps_a_warm_start_keeps_the_network(self, data):
        est = regressor(warm_start=True).fit(*data)
        network = est.model_.params
        est.set_params(max_iter=0).fit(*data)
        assert torch.equal(est.model_.params, network)

    def test_a_warm_start_leaves_the_previous_model_alone(self, data):
        est = regressor(warm_start=True).fit(*data)
        previous = est.model_
        before = previous.params.clone()
        est.fit(*data)
        assert torch.equal(previous.params, before)

    def test_another_shape_starts_cold(self, data):
        X, y = data
        warm = regressor(warm_start=True).fit(X[:, :2], y).fit(X, y)
        assert np.array_equal(warm.predict(X), regressor().fit(X, y).predict(X))


class TestEarlyStopping:
    @EVERY_FAMILY
    def test_early_stopping_is_reproducible(self, family):
        X, y = make_data(family)
        first, second = (
            make(family, early_stopping=True, max_iter=60).fit(X, y) for _ in range(2)
        )
        assert np.array_equal(first.model_.eta(X), second.model_.eta(X))
        assert np.isfinite(first.history_.validation).all()

    def test_early_stopping_ends_training_before_the_limit(self):
        X, y = make_data(n_rows=40)
        noise = np.random.default_rng(0).normal(size=len(y))
        est = regressor(early_stopping=True, max_iter=2000, patience=3).fit(X, noise)
        assert est.n_iter_ < 2000
        assert est.converged_

    def test_the_held_out_rows_follow_the_seed(self, data):
        X, y = data
        first, second = (
            regressor(early_stopping=True, max_iter=0, random_state=seed).fit(X, y)
            for seed in (0, 1)
        )
        assert not np.array_equal(first.coef_, second.coef_)


class TestRepeats:
    @EVERY_FAMILY
    def test_the_same_seed_gives_the_same_fit(self, family):
        X, y = make_data(family)
        first, second = (make(family, noise=0.1).fit(X, y) for _ in range(2))
        assert np.array_equal(first.model_.eta(X), second.model_.eta(X))

    def test_another_seed_gives_another_network(self, data):
        X, y = data
        first, second = (regressor(random_state=seed).fit(X, y) for seed in (0, 1))
        assert not np.array_equal(first.predict(X), second.predict(X))

    def test_a_random_state_instance_moves_on(self, data):
        X, y = data
        random = np.random.RandomState(0)
        first, second = (regressor(random_state=random).fit(X, y) for _ in range(2))
        assert not np.array_equal(first.predict(X), second.predict(X))

    @pytest.mark.parametrize("options", [{}, {"noise": 0.1}, {"early_stopping": True}])
    def test_global_generators_are_left_alone(self, data, options):
        torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()
        regressor(**options).fit(*data).predict(data[0])
        assert torch.equal(torch.get_rng_state(), torch_before)
        assert np.array_equal(np.random.get_state()[1], numpy_before[1])
        assert np.random.get_state()[2] == numpy_before[2]

    def test_the_number_of_threads_is_left_alone(self, data):
        before = torch.get_num_threads()
        regressor().fit(*data)
        assert torch.get_num_threads() == before

    @pytest.mark.parametrize("early_stopping", [False, True])
    @EVERY_FAMILY
    def test_the_order_of_rows_does_not_matter(self, family, early_stopping):
        X, y = make_data(family)
        order = np.random.default_rng(1).permutation(N_ROWS)
        weight, offset = np.linspace(1, 2, N_ROWS), np.linspace(0, 1, N_ROWS)
        first = make(family, early_stopping=early_stopping)
        second = clone(first)
        first.fit(X, y, weight, offset)
        second.fit(X[order], y[order], weight[order], offset[order])
        assert np.array_equal(first.model_.eta(X), second.model_.eta(X))
        assert np.array_equal(first.coef_, second.coef_)


class TestLinearTruth:
    """Where the truth is linear the network must not get in the way."""

    GRID = (1e-4, 1e-3, 1e-2)
    SEEDS = range(5)

    @staticmethod
    def errors(make_model):
        found = []
        for seed in TestLinearTruth.SEEDS:
            options = {"setting": 4, "random_state": seed}
            train = make_nimo_regression(n_samples=200, **options)
            test = make_nimo_regression(
                setting=4, n_samples=1000, random_state=1000 + seed
            )
            model = make_model(train.y.std()).fit(train.X, train.y)
            found.append(np.mean((model.predict(test.X) - test.y) ** 2))
        return np.mean(found)

    def test_test_error_is_that_of_the_best_penalised_linear_model(self):
        # Ours scales the target to unit variance; the lasso's alpha does not.
        linear = [self.errors(lambda scale: LinearRegression())] + [
            self.errors(lambda scale, a=alpha: Lasso(alpha=a * scale))
            for alpha in self.GRID
        ]
        ours = self.errors(lambda _: NIMORegressor(alpha=self.GRID[0], random_state=0))
        assert ours < LINEAR_TRUTH * min(linear)


class TestPredictions:
    def test_an_offset_is_added_on_the_scale_of_eta(self):
        offset = np.linspace(-1, 1, N_ROWS)
        X, y = make_data("gaussian")
        est = regressor().fit(X, y)
        assert est.predict(X, offset) == pytest.approx(est.predict(X) + offset)
        X, y = make_data("poisson")
        est = regressor("poisson").fit(X, y)
        expected = est.predict(X) * np.exp(offset)
        assert est.predict(X, offset) == pytest.approx(expected)
        X, y = make_data("binomial")
        est = classifier().fit(X, y)
        expected = est.decision_function(X) + offset
        assert est.decision_function(X, offset) == pytest.approx(expected)

    def test_an_exposure_equals_a_rate_with_weights(self):
        X, y = make_data("poisson")
        exposure = np.random.default_rng(1).uniform(0.5, 2.0, N_ROWS)
        # Without penalty the weighted scaling of the columns does not matter.
        counts = regressor("poisson", alpha=0, max_iter=0)
        rates = clone(counts)
        counts.fit(X, y, offset=np.log(exposure))
        rates.fit(X, y / exposure, sample_weight=exposure)
        assert counts.predict(X, 0) == pytest.approx(rates.predict(X), rel=1e-8)

    def test_gaussian_score_is_r_squared(self, data):
        X, y = data
        weight = np.linspace(0, 1, N_ROWS)
        est = regressor().fit(X, y)
        assert est.score(X, y) == pytest.approx(r2_score(y, est.predict(X)))
        expected = r2_score(y, est.predict(X), sample_weight=weight)
        assert est.score(X, y, weight) == pytest.approx(expected)

    @pytest.mark.parametrize(("family", "power"), [("poisson", 1), ("gamma", 2)])
    def test_score_is_the_share_of_deviance_explained(self, family, power):
        X, y = make_data(family)
        est = regressor(family).fit(X, y)
        weight = np.linspace(0, 1, N_ROWS)
        expected = d2_tweedie_score(y, est.predict(X), power=power)
        assert est.score(X, y) == pytest.approx(expected, rel=1e-9)
        expected = d2_tweedie_score(
            y, est.predict(X), power=power, sample_weight=weight
        )
        assert est.score(X, y, weight) == pytest.approx(expected, rel=1e-9)

    def test_probabilities_decisions_and_classes_agree(self):
        X, y = make_data("binomial")
        est = classifier().fit(X, y)
        eta, proba = est.decision_function(X), est.predict_proba(X)
        assert proba.shape == (N_ROWS, 2)
        assert proba.sum(axis=1) == pytest.approx(np.ones(N_ROWS), rel=ROUNDING)
        assert proba[:, 1] == pytest.approx(1 / (1 + np.exp(-eta)), rel=ROUNDING)
        assert np.array_equal(est.predict(X), est.classes_[(eta > 0).astype(int)])
        assert np.array_equal(est.predict(X), est.classes_[proba.argmax(axis=1)])
        assert est.score(X, y) == accuracy_score(y, est.predict(X))

    def test_both_probabilities_keep_their_digits_far_out(self):
        X, y = make_data("binomial")
        est = classifier().fit(X, y)
        offset = np.where(np.arange(N_ROWS) % 2, 600.0, -600.0)
        proba = est.predict_proba(X, offset)
        assert (proba > 0).all()
        assert np.log(proba[:, 1]) - np.log(proba[:, 0]) == pytest.approx(
            est.decision_function(X, offset)
        )

    @pytest.mark.parametrize(
        "names",
        [("no", "yes"), (-1, 1), (5, 7), (False, True), (0.0, 1.0)],
        ids=["str", "signs", "int", "bool", "float"],
    )
    def test_labels_may_be_anything(self, names):
        X, y = make_data("binomial")
        plain = classifier().fit(X, y)
        named = classifier().fit(X, np.array(names)[y])
        assert named.classes_.tolist() == list(names)
        assert np.array_equal(named.predict(X), np.array(names)[plain.predict(X)])
        assert np.array_equal(named.predict_proba(X), plain.predict_proba(X))

    @pytest.mark.parametrize("dtype", [object, "category", "str"])
    def test_labels_may_be_pandas_strings(self, dtype):
        X, y = make_data("binomial")
        words = pd.Series(np.where(y, "yes", "no"), dtype=dtype)
        est = classifier().fit(X, words)
        assert est.classes_.tolist() == ["no", "yes"]
        assert set(est.predict(X)) == {"no", "yes"}

    def test_without_training_the_model_is_the_penalised_glm(self, data):
        X, y = data
        est = regressor(max_iter=0, alpha=0.1).fit(X, y)
        Z = (X - X.mean(0)) / X.std(0)
        lasso = Lasso(alpha=0.1, tol=1e-12).fit(Z, (y - y.mean()) / y.std())
        expected = lasso.predict(Z) * y.std() + y.mean()
        assert est.predict(X) == pytest.approx(expected, abs=1e-8)


class TestAttributes:
    @EVERY_FAMILY
    def test_attributes_have_the_promised_shapes(self, family):
        X, y = make_data(family)
        est = make(family).fit(pd.DataFrame(X, columns=NAMES), y)
        assert est.coef_.shape == est.reference_.shape == (3,)
        assert isinstance(est.intercept_, float)
        assert isinstance(est.converged_, bool)
        assert isinstance(est.n_iter_, int)
        assert est.feature_names_in_.tolist() == NAMES
        assert est.reference_ == pytest.approx(X.mean(axis=0), rel=ROUNDING)

    @EVERY_FAMILY
    def test_the_fit_is_never_above_the_glm_it_starts_from(self, family):
        certificate = make(family).fit(*make_data(family)).certificate_
        assert certificate.objective <= certificate.glm_objective
        assert certificate.kkt < 1e-8  # relative, the bar of the issue

    def test_the_reference_is_the_weighted_mean(self, data):
        X, y = data
        weight = np.linspace(1, 5, N_ROWS)
        est = regressor().fit(X, y, weight)
        expected = np.average(X, axis=0, weights=weight)
        assert est.reference_ == pytest.approx(expected, rel=ROUNDING)

    def test_an_unfinished_training_is_reported(self, data):
        with pytest.warns(
            ConvergenceWarning, match=r"Raise max_iter \(now 5\)"
        ) as seen:
            est = regressor(max_iter=5).fit(*data)
        assert seen[0].filename == __file__
        assert not est.converged_

    def test_a_strong_penalty_gives_exact_zeros(self, data):
        est = regressor(alpha=0.3).fit(*data)
        assert np.count_nonzero(est.coef_ == 0) >= 1


class TestTools:
    def test_frames_of_any_kind_give_the_numbers_of_arrays(self, data):
        X, y = data
        plain = regressor().fit(X, y)
        for frame in (pd.DataFrame(X, columns=NAMES), pl.DataFrame(X, schema=NAMES)):
            est = regressor().fit(frame, y)
            assert est.feature_names_in_.tolist() == NAMES
            assert np.array_equal(est.predict(frame), plain.predict(X))
        fitted_on_pandas = regressor().fit(pd.DataFrame(X, columns=NAMES), y)
        predicted = fitted_on_pandas.predict(pl.DataFrame(X, schema=NAMES))
        assert np.array_equal(predicted, plain.predict(X))

    @EVERY_FAMILY
    def test_a_pickle_predicts_the_same_to_the_last_bit(self, family):
        X, y = make_data(family)
        est = make(family).fit(X, y)
        for copied in (pickle.loads(pickle.dumps(est)), copy.deepcopy(est)):
            assert np.array_equal(copied.predict(X), est.predict(X))
            assert np.array_equal(copied.model_.eta(X), est.model_.eta(X))
            assert copied.certificate_ == est.certificate_

    def test_a_clone_is_unfitted_and_fits_the_same(self, data):
        X, y = data
        est = regressor(alpha=0.05, hidden=(4, 4)).fit(X, y)
        copied = clone(est)
        assert copied.get_params() == est.get_params()
        with pytest.raises(NotFittedError):
            copied.predict(X)
        assert np.array_equal(copied.fit(X, y).predict(X), est.predict(X))

    def test_fit_does_not_change_parameters(self, data):
        hidden = [4, 4]
        est = regressor(hidden=hidden)
        before = est.get_params()
        est.fit(*data)
        assert est.get_params() == before
        assert est.hidden is hidden

    def test_pipelines_pass_weights_and_names(self, data):
        X, y = data
        frame = pd.DataFrame(X, columns=NAMES)
        pipeline = make_pipeline(StandardScaler(), regressor())
        pipeline.set_output(transform="pandas")
        weight = np.linspace(1, 2, N_ROWS)
        pipeline.fit(frame, y, nimoregressor__sample_weight=weight)
        assert pipeline[-1].feature_names_in_.tolist() == NAMES
        plain = regressor().fit(X, y, weight)
        assert relative_gap(pipeline.predict(frame), plain.predict(X)) < UNITS

    def test_grid_search_finds_the_weaker_penalty(self, data):
        search = GridSearchCV(regressor(), {"alpha": [0.01, 0.5]}, cv=2)
        search.fit(*data)
        assert search.best_params_ == {"alpha": 0.01}
        assert search.best_estimator_.score(*data) > 0.8

    def test_cross_validation_stratifies_classes(self):
        X, y = make_data("binomial")
        scores = cross_val_score(classifier(), X, y, cv=3, scoring="roc_auc")
        assert scores.shape == (3,)
        assert scores.mean() > 0.7

    def test_float32_networks_predict_like_float64_ones(self, data):
        X, y = data
        double = regressor().fit(X, y)
        single = regressor(dtype="float32").fit(X, y)
        # Thirty steps apart in precision only.
        assert relative_gap(single.predict(X), double.predict(X)) < 1e-3

    def test_the_memory_budget_does_not_change_the_fit(self, data):
        X, y = data
        X, y = np.tile(X, (10, 1)) + np.arange(800)[:, None] * 1e-3, np.tile(y, 10)
        whole = regressor(hidden=(64, 64)).fit(X, y)
        chunked = regressor(hidden=(64, 64), memory_budget=1e6).fit(X, y)
        assert relative_gap(chunked.predict(X), whole.predict(X)) < UNITS


def test_scores_of_rates_know_their_exposures():
    rng = np.random.default_rng(0)
    X, years = rng.normal(size=(300, 2)), rng.uniform(0.2, 5, 300)
    y = rng.poisson(years * np.exp(0.8 * X[:, 0])).astype(float)
    est = NIMORegressor(family="poisson", alpha=0.0, max_iter=0)
    est.fit(X, y, offset=np.log(years))
    mean, rate = est.predict(X, np.log(years)), y.sum() / years.sum()
    left, null = (mean_poisson_deviance(y, at) for at in (mean, rate * years))
    found = est.score(X, y, offset=np.log(years))
    assert found == pytest.approx(1 - left / null, rel=1e-9)
    days = np.log(365 * years)
    again = NIMORegressor(family="poisson", alpha=0.0, max_iter=0)
    again.fit(X, y, offset=days)
    assert again.score(X, y, offset=days) == pytest.approx(found, rel=1e-6)
    with pytest.warns(DataWarning, match="fitted with an offset"):
        est.score(X, y)


def test_a_level_without_events_makes_no_network_of_a_plain_model():
    """Its coefficient has no bound, so that every further solve gains a little."""
    random = np.random.default_rng(0)
    rare = np.arange(300) >= 280
    X = np.column_stack([rare, random.normal(size=300)])
    y = np.where(rare, 0, random.poisson(2, 300))
    est = NIMORegressor("poisson", alpha=0, max_iter=0).fit(X, y)
    assert not est.model_.modulated.any()
    assert "effects can depend" not in str(est.summary())
    assert est.certificate_.status == "No network was asked for."


def test_rows_without_weight_are_as_good_as_absent_where_rows_are_thinned():
    random = np.random.default_rng(4)
    X = random.normal(size=(199, 3))
    y = X[:, 0] * (1 + np.tanh(X[:, 1]))
    est = NIMORegressor(max_iter=20, tol=0.0, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    weight = np.arange(199) % 2.0  # no row of those that a thinning would keep
    few = {"max_rows": 100}
    found, known = (
        est.interactions(rows, sample_weight=w, **few).strength
        for rows, w in ((X, weight), (X[1::2], None))
    )
    assert known[0, 1] > 0.1
    np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-12)
    modifiers = est.effects(X, sample_weight=weight, **few).modifiers
    assert modifiers == est.effects(X[1::2], **few).modifiers
    for wrong in (-weight, 0 * weight):
        with pytest.raises(ValueError, match="sample_weight"):
            est.interactions(X, sample_weight=wrong)


def test_labels_that_mix_text_and_numbers_are_refused_by_row():
    y = np.array([1, 1, "a", 1], dtype=object)
    for labels in (y, y[::-1]):
        with pytest.raises(ValueError, match="'a' at row [12] and 1 at row 0"):
            NIMOClassifier().fit(np.eye(4), labels)
