"""A searching estimator among scikit-learn's tools, and what it lets one see."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

import sknimo.search._restarts as restarts_module
import sknimo.search._runner as runner_module
from sknimo import NIMORegressorCV
from sknimo.search import Settings, Verdict

SETTINGS = Settings()
UNITS = 1e-6  # relative to the spread of the predictions
NAMES = ["age", "dose", "size"]
BRIEF = {"n_starts": 1, "max_iter": 12, "hidden": (3, 3)}

# `make_glm` has no time for restarts and is told so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:max_time=0 s:sklearn.exceptions.ConvergenceWarning"
)


class TestAttributes:
    def test_attributes_have_the_promised_shapes(self, family, make_search, draw_bent):
        X, y = draw_bent(family)
        est = make_search(family, **BRIEF).fit(pd.DataFrame(X, columns=NAMES), y)
        assert est.coef_.shape == est.reference_.shape == (3,)
        assert isinstance(est.intercept_, float)
        assert isinstance(est.converged_, bool)
        assert isinstance(est.n_iter_, int)
        assert isinstance(est.n_members_, int)
        assert isinstance(est.alpha_, float)
        assert isinstance(est.log_evidence_, float)
        assert isinstance(est.glm_log_evidence_, float)
        assert isinstance(est.input_precision_, float)
        assert est.verdict_ is None or isinstance(est.verdict_, Verdict)
        assert est.feature_names_in_.tolist() == NAMES
        error = X.std(axis=0) / np.sqrt(len(X))
        assert (np.abs(est.reference_ - X.mean(axis=0)) <= 3.001 * error).all()
        assert est.path_.coef.shape == (len(est.path_.alphas), 3)

    def test_trials_are_ready_for_a_data_frame(self, searched):
        est, frame = searched, pd.DataFrame(searched.trials_)
        assert {"stage", "log_evidence", "n_features", "n_inputs"} <= set(frame)
        assert len(frame) >= 2
        assert (frame["n_features"] <= 3).all()
        assert frame.notna().all(axis=None)
        assert est.best_index_ == frame["log_evidence"].argmax()
        assert est.log_evidence_ == frame["log_evidence"].max()
        assert est.n_iter_ == frame["n_iter"].sum()

    def test_the_precision_of_inputs_is_finite_only_with_a_network(
        self, data, searched, make_glm
    ):
        assert 0 < searched.input_precision_ < 1e4  # inputs die beyond
        assert make_glm().fit(*data).input_precision_ == np.inf

    def test_the_network_beats_the_glm_by_the_margin_when_it_is_kept(
        self, data, searched
    ):
        gain = searched.log_evidence_ - searched.glm_log_evidence_
        assert gain >= SETTINGS.evidence_margin
        assert searched.score(*data) > 0.95

    def test_fit_does_not_change_parameters(self, data, make_search):
        est = make_search(**BRIEF | {"hidden": [3, 3]}, cv=KFold(3))
        before = est.get_params()
        est.fit(*data)
        assert est.get_params() == before


class TestTools:
    @pytest.fixture
    def interrupt(self, monkeypatch):
        def stop(*args, **kwargs):
            raise KeyboardInterrupt

        def interrupt():
            monkeypatch.setattr(restarts_module, "fit_evidence", stop)
            monkeypatch.setattr(runner_module, "fit_crew", stop)

        return interrupt

    def test_an_interrupted_fit_leaves_the_previous_one(
        self, family, interrupt, make_search, draw_bent
    ):
        X, y = draw_bent(family)
        est = make_search(family, **BRIEF).fit(X, y)
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
        self, data, interrupt, make_search
    ):
        est = make_search()
        before = dict(vars(est))
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            est.fit(*data)
        assert vars(est) == before
        with pytest.raises(NotFittedError):
            check_is_fitted(est)

    def test_a_pickle_predicts_the_same_to_the_last_bit(
        self, family, make_search, draw_bent
    ):
        X, y = draw_bent(family)
        est = make_search(family, **BRIEF).fit(X, y)
        copied = pickle.loads(pickle.dumps(est))
        assert np.array_equal(copied.predict(X), est.predict(X))
        assert np.array_equal(copied.model_.eta(X), est.model_.eta(X))
        np.testing.assert_equal(copied.trials_, est.trials_)  # NaN where bags are
        assert np.array_equal(copied.path_.coef, est.path_.coef)

    @pytest.mark.slow
    def test_a_clone_is_unfitted_and_fits_the_same(self, data, make_search):
        X, y = data
        est = make_search(**BRIEF).fit(X, y)
        copied = clone(est)
        with pytest.raises(NotFittedError):
            copied.predict(X)
        assert np.array_equal(copied.fit(X, y).predict(X), est.predict(X))

    def test_an_offset_is_added_on_the_scale_of_eta(self, make_glm, draw_bent):
        X, y = draw_bent("poisson", n_rows=100)
        offset = np.linspace(-1, 1, 100)
        est = make_glm("poisson").fit(X, y)
        expected = est.predict(X) * np.exp(offset)
        assert est.predict(X, offset) == pytest.approx(expected)

    @pytest.mark.slow
    def test_a_constant_offset_moves_the_intercept_alone(self, make_search, draw_bent):
        X, y = draw_bent("poisson", n_rows=100)
        plain = make_search("poisson", **BRIEF).fit(X, y)
        moved = clone(plain).fit(X, y, offset=np.full(100, 0.5))
        assert moved.coef_ == pytest.approx(plain.coef_, rel=UNITS, abs=UNITS)
        assert moved.intercept_ == pytest.approx(plain.intercept_ - 0.5, rel=UNITS)

    def test_labels_may_be_words(self, make_glm, draw_bent):
        X, y = draw_bent("binomial")
        plain = make_glm("binomial").fit(X, y)
        named = clone(plain).fit(X, np.where(y, "yes", "no"))
        assert named.classes_.tolist() == ["no", "yes"]
        assert np.array_equal(named.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("batch_size", [0, 64])
@pytest.mark.parametrize("kind", [list, np.array])
def test_widths_may_be_any_sequence(batch_size, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = X[:, 0] * (1 + X[:, 1]) + 0.1 * rng.normal(size=80)
    how = {"batch_size": batch_size, "max_iter": 2, "n_starts": 1, "basis": "linear"}
    fits = [
        NIMORegressorCV(hidden=hidden, random_state=0, **how).fit(X, y)
        for hidden in ((4, 4), kind([4, 4]))
    ]
    assert fits[0].model_.spec == fits[1].model_.spec
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
