"""Searching estimators: what they refuse, and what they survive."""

import numpy as np
import pytest

from sknimo import NIMORegressorCV, SeparationWarning

N_ROWS = 60
UNITS = 1e-6  # relative to the spread of the predictions
BRIEF = {"n_starts": 1, "max_iter": 12, "hidden": (3, 3)}


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
    def test_a_wrong_value_is_refused_by_name(
        self, name, value, message, data, make_search
    ):
        with pytest.raises(ValueError, match=message):
            make_search(**{name: value}).fit(*data)

    @pytest.mark.parametrize("name", ["n_starts", "n_members", "max_iter"])
    def test_a_fraction_is_no_count(self, name, data, make_search):
        with pytest.raises(TypeError, match=name):
            make_search(**{name: 1.5}).fit(*data)

    @pytest.mark.parametrize("alphas", [[], [-1.0, 0.1], [np.inf]])
    def test_penalties_must_be_positive_numbers(self, alphas, data, make_glm):
        with pytest.raises(ValueError, match="alphas"):
            make_glm(alphas=alphas).fit(*data)

    @pytest.mark.parametrize("hidden", [(0, 3), (3,), 3, (2.5, 2), (3, 3, 3)])
    def test_two_positive_widths_are_needed(self, hidden, data, make_search):
        with pytest.raises(ValueError, match="hidden must hold two positive"):
            make_search(hidden=hidden).fit(*data)


class TestHardData:
    @pytest.mark.filterwarnings("ignore::sknimo.DataWarning")
    def test_a_constant_column_has_no_coefficient(self, data, make_search):
        X, y = data
        est = make_search(**BRIEF).fit(np.c_[X, np.ones(N_ROWS)], y)
        assert est.coef_[3] == 0

    @pytest.mark.filterwarnings("ignore::sknimo.DataWarning")
    def test_constant_columns_alone_give_the_mean(self, make_search):
        y = np.arange(10.0)
        est = make_search(**BRIEF).fit(np.ones((10, 2)), y)
        assert est.predict(np.ones((10, 2))) == pytest.approx(np.full(10, 4.5))

    @pytest.mark.filterwarnings("ignore:y is:sknimo.exceptions.DataWarning")
    @pytest.mark.parametrize("value", [0.0, -3.0, 1e8, 1e-300])
    def test_a_constant_target_is_predicted_exactly(self, value, data, make_search):
        est = make_search(**BRIEF).fit(data[0], np.full(N_ROWS, value))
        assert est.n_members_ == 0
        assert not est.coef_.any()
        assert est.predict(data[0]) == pytest.approx(np.full(N_ROWS, value), rel=1e-15)

    @pytest.mark.filterwarnings("ignore:y is:sknimo.exceptions.DataWarning")
    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    def test_a_constant_target_is_predicted_by_other_families(
        self, family, data, make_search
    ):
        est = make_search(family, **BRIEF).fit(data[0], np.full(N_ROWS, 2.0))
        assert not est.coef_.any()
        assert est.predict(data[0]) == pytest.approx(np.full(N_ROWS, 2.0), rel=1e-9)

    @pytest.mark.filterwarnings("ignore:y is:sknimo.exceptions.DataWarning")
    def test_counts_that_are_all_zero_stay_finite(self, data, make_search):
        est = make_search("poisson", **BRIEF).fit(data[0], np.zeros(N_ROWS))
        assert np.isfinite(est.intercept_)
        assert est.predict(data[0]) == pytest.approx(np.zeros(N_ROWS), abs=1e-9)

    def test_more_features_than_rows_can_be_fitted(self, family, make_search):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(15, 30))
        y = {"binomial": np.arange(15) % 2, "gaussian": X[:, 0]}.get(
            family, np.exp(X[:, 0])
        )
        est = make_search(family, **BRIEF).fit(X, y)
        assert np.isfinite(est.coef_).all()
        assert np.isfinite(est.model_.eta(X)).all()

    def test_duplicated_columns_can_be_fitted(self, data, make_search):
        X, y = data
        est = make_search(**BRIEF).fit(np.c_[X, X], y)
        assert np.isfinite(est.coef_).all()
        assert est.score(np.c_[X, X], y) > 0.9

    @pytest.mark.filterwarnings("ignore::sknimo.ExtrapolationWarning")
    def test_three_rows_are_enough(self, data, make_search):
        est = make_search(**BRIEF).fit(data[0][:3], data[1][:3])
        assert np.isfinite(est.predict(data[0])).all()

    def test_an_outlier_leaves_everything_finite(self, data, make_search):
        X, y = data
        X[3, 0], y[3] = 1e9, -1e6
        assert np.isfinite(make_search(**BRIEF).fit(X, y).predict(X)).all()

    @pytest.mark.filterwarnings("ignore::sknimo.SeparationWarning")
    def test_parted_classes_give_a_finite_fit(self, data, make_search):
        X, _ = data
        labels = (X[:, 0] > 0).astype(int)
        est = make_search("binomial", **BRIEF).fit(X, labels)
        assert np.isfinite(est.decision_function(X)).all()
        assert est.score(X, labels) == 1.0

    def test_parted_classes_are_reported(self, data, make_search):
        """One row is far out, so that its log-odds pass the limit."""
        X = np.r_[np.linspace(-9, -8, 20), np.linspace(8, 9, 19), 100.0][:, None]
        labels = (X[:, 0] > 0).astype(int)
        est = make_search("binomial", alphas=[1e-9], **BRIEF)
        with pytest.warns(SeparationWarning, match="separated perfectly"):
            est.fit(X, labels)
        assert not est.converged_


class TestMemory:
    @pytest.mark.slow
    def test_a_small_budget_changes_nothing(self, data, make_search):
        X, y = data
        whole = make_search(**BRIEF).fit(X, y)
        blocks = make_search(**BRIEF, memory_budget=1e6).fit(X, y)
        gap = np.abs(blocks.predict(X) - whole.predict(X)).max()
        assert gap < UNITS * whole.predict(X).std()

    def test_a_budget_that_cannot_do_is_refused(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 20))
        with pytest.raises(ValueError, match="Raise memory_budget, or make hidden"):
            NIMORegressorCV(memory_budget=1e6).fit(X, X[:, 0])
