"""Predictions far from the training rows say so; new rows like the old do not."""

import warnings

import numpy as np
import pandas as pd
import pytest

from sknimo import (
    ExtrapolationWarning,
    NIMOClassifier,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
    load,
)

N_ROWS = 200
CLOSE = 0.95  # correlation of the first two columns
QUICK = {"max_iter": 15, "random_state": 0}
NAMES = ["age", "dose", "size", "idle"]
# Share of new rows from the same distribution that may be called far.
FALSE_ALARMS = 0.01
# Two matrix products in another order.
RTOL = 1e-9

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    X[:, 1] = CLOSE * X[:, 0] + np.sqrt(1 - CLOSE**2) * X[:, 1]
    noise = 0.1 * rng.normal(size=n_rows)
    return X, X[:, 0] - X[:, 1] + 0.5 * X[:, 2] * (1 + np.tanh(X[:, 0])) + noise


@pytest.fixture(scope="module")
def rows():
    return draw()


@pytest.fixture(scope="module")
def fitted(rows):
    X, y = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NIMORegressor(**QUICK).fit(pd.DataFrame(X, columns=NAMES), y)


def frame(*values):
    return pd.DataFrame(list(values), columns=NAMES, dtype=float)


def mahalanobis(X, at):
    """Distance from the mean of rows, by the inverse of their covariance."""
    gap = at - X.mean(0)
    inverse = np.linalg.inv(np.cov(X.T, bias=True))
    return np.sqrt(np.einsum("ij,jk,ik->i", gap, inverse, gap))


class TestTooFar:
    @pytest.mark.parametrize("value", [1e60, -1.7e308])
    @pytest.mark.parametrize(
        "method", ["predict", "explain", "effects", "interactions"]
    )
    def test_rows_too_far_to_compute_with_are_refused_by_name(
        self, fitted, method, value
    ):
        new = frame([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, value, 0])
        message = r"'size' of X is .* at row 2, too far .*units.*clip_inputs=\"all\""
        with pytest.raises(ValueError, match=message):
            getattr(fitted, method)(new)

    def test_gaps_elsewhere_do_not_hide_them(self, rows):
        X, y = rows
        gaps = X.copy()
        gaps[::7, 0] = np.nan
        est = NIMORegressor(missing="indicator", **QUICK).fit(gaps, y)
        new = np.array([[np.nan, 0, 0, 0], [np.nan, 0, 1e60, 0]])
        with pytest.raises(ValueError, match=r"'x2' of X is 1e\+60 at row 1"):
            est.predict(new)
        assert np.isfinite(est.predict(new[:1])).all()

    def test_clipped_and_idle_columns_may_be_anywhere(self, rows):
        X, y = rows
        X = X.copy()
        X[:, 3] = 7.0
        with pytest.warns(UserWarning, match="Constant"):
            est = NIMORegressor(clip_inputs="all", **QUICK).fit(X, y)
        new = np.array([[0, 0, 1.7e308, -1.7e308], [0, 0, X[:, 2].max(), 7.0]])
        one, other = est.predict(new)
        assert one == other
        assert not est.far_rows(new).any()


class TestWarning:
    @pytest.mark.parametrize("distance", [10.0, -10.0, 100.0])
    def test_a_row_at_ten_deviations_is_warned_of_once(self, fitted, distance):
        new = frame([0, 0, 0, 0], [0, 0, distance, 0], [0, 0, distance / 1.1, 0])
        with pytest.warns(ExtrapolationWarning) as caught:
            fitted.predict(new)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        text = str(caught[0].message)
        assert text.startswith("2 of 3 rows lie far from all training rows")
        assert f"row 1: 'size' is {distance:g} where they have" in text
        assert 'clip_inputs="all"' in text

    @pytest.mark.parametrize(
        "method", ["predict", "predict_proba", "decision_function"]
    )
    def test_every_method_of_a_classifier_warns_once(self, rows, method):
        X, y = rows
        est = NIMOClassifier(**QUICK).fit(X, y > 0)
        with pytest.warns(ExtrapolationWarning, match="1 of 1 rows") as caught:
            getattr(est, method)([[0.0, 0.0, 30.0, 0.0]])
        assert [item.filename for item in caught] == [__file__]

    def test_scores_warn_too(self, fitted, rows):
        far = pd.DataFrame(100 * rows[0], columns=NAMES)
        with pytest.warns(ExtrapolationWarning, match="200 of 200 rows"):
            fitted.score(far, rows[1])

    def test_training_rows_are_never_far(self, fitted, rows):
        assert not fitted.far_rows(pd.DataFrame(rows[0], columns=NAMES)).any()

    @pytest.mark.parametrize("n_rows", [30, 200, 1000])
    def test_new_rows_like_the_old_are_hardly_ever_far(self, n_rows):
        est = NIMORegressor(max_iter=0).fit(*draw(n_rows))
        new, _ = draw(5000, seed=1)
        assert est.far_rows(new).mean() < FALSE_ALARMS

    def test_columns_without_a_role_do_not_count(self, rows):
        X, y = rows
        est = NIMORegressor(alpha=0.2, max_iter=0).fit(X, y)
        idle = np.flatnonzero(est.coef_ == 0)
        assert len(idle) and not est.model_.modulated.any()
        new = np.zeros((1, 4))
        new[:, idle] = 1e6
        assert not est.far_rows(new).any()
        assert est.extrapolation_score(new) > 1e5

    def test_missing_values_and_levels_are_not_far(self, rows):
        X, y = rows
        table = pd.DataFrame(X, columns=NAMES).assign(city=np.where(y > 0, "a", "b"))
        table.loc[::7, "size"] = np.nan
        est = NIMORegressor(missing="indicator", **QUICK).fit(table, y)
        new = table.head(3).assign(size=[np.nan, 0.0, 40.0])
        assert est.far_rows(new).tolist() == [False, False, True]

    def test_infinite_distances_are_far(self, fitted):
        new = frame([0, 0, 1.7e308, 0], [0, 0, 0, 0])
        assert fitted.far_rows(new).tolist() == [True, False]
        assert (fitted.extrapolation_score(new) > 1e307).tolist() == [True, False]


class TestTogether:
    def test_a_combination_of_ordinary_values_can_be_far(self, fitted, rows):
        X, _ = rows
        high = X[:, :2].max(0)
        new = frame([0.8 * high[0], -0.8 * high[1], 0, 0], [1, 1, 0, 0])
        assert not fitted.extrapolation_score(new).any()
        assert fitted.far_rows(new).tolist() == [True, False]
        message = "row 0: no value alone but their combination, above all '(age|dose)'"
        with pytest.warns(ExtrapolationWarning, match=message):
            fitted.predict(new)

    def test_the_distance_is_that_of_mahalanobis_when_rows_are_many(self):
        X, y = draw(20_000)
        X, y = X[np.argsort(y)], np.sort(y)  # as rows are kept
        est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
        reach = est._facts.reach
        assert reach.columns.tolist() == [0, 1, 2, 3]
        at = draw(50, seed=2)[0]
        # Shrunk by one per cent towards unit variances.
        z, centre = (at - X.mean(0)) / X.std(0), (X - X.mean(0)) / X.std(0)
        cov = 0.99 * np.cov(X[spread(len(X))].T / X.std(0)[:, None], bias=True)
        inverse = np.linalg.inv(cov + 0.01 * np.eye(4))
        mean = centre[spread(len(X))].mean(0)

        def distance(rows):
            return np.sqrt(np.einsum("ij,jk,ik->i", rows - mean, inverse, rows - mean))

        wanted = distance(z) / distance(centre).max()
        assert reach.times(at) == pytest.approx(wanted, rel=RTOL)
        plain = mahalanobis(X, at) / mahalanobis(X, X).max()
        assert reach.times(at) == pytest.approx(plain, rel=0.2)

    def test_files_keep_it_and_older_files_judge_columns(self, fitted, tmp_path):
        new = frame([2, -2, 0, 0], [0, 0, 50, 0], [0, 0, 0, 0])
        assert fitted.far_rows(new).tolist() == [True, True, False]
        fitted.save(tmp_path / "model.sknimo")
        again = load(tmp_path / "model.sknimo")
        assert again.far_rows(new).tolist() == [True, True, False]
        again._facts = None
        assert again.far_rows(new).tolist() == [False, True, False]

    def test_rows_in_blocks_are_remembered_as_well(self, rows):
        X, y = rows
        blocks = RowBlocks(
            lambda: ((X[b : b + 64], y[b : b + 64]) for b in (0, 64, 128))
        )
        est = NIMORegressor(**QUICK).fit(blocks)
        assert est._facts.reach.times(X[:192]).max() == pytest.approx(1.0)
        new = np.array([[2.0, -2.0, 0, 0], [0, 0, 50.0, 0], [0, 0, 0, 0]])
        assert est.far_rows(new).tolist() == [True, True, False]

    def test_the_report_counts_far_rows(self, fitted, rows):
        X, y = (values[:40].copy() for values in rows)
        X[3], X[4, 2] = [2.0, -2.0, 0.0, 0.0], 60.0
        held_out = {"X_test": pd.DataFrame(X, columns=NAMES), "y_test": y}
        train = pd.DataFrame(rows[0], columns=NAMES)
        page = fitted.report(None, train, rows[1], **held_out).html
        assert "2 rows lie far from all training rows" in page


def spread(n_rows):
    """The thousand rows that facts are learned from."""
    return np.linspace(0, n_rows - 1, 1000).round().astype(int)


class TestClipping:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"basis": "spline"},
            {"basis": "poly2"},
            {"input_scaling": "rank_gauss"},
            {"missing": "indicator"},
        ],
        ids=str,
    )
    def test_predictions_stay_as_they_are_at_the_end_of_the_range(self, rows, options):
        X, y = rows[0].copy(), rows[1]
        if "missing" in options:
            X[::9, 3] = np.nan
        est = NIMORegressor(clip_inputs="all", **options, **QUICK).fit(X, y)
        new = 50 * draw(30, seed=3)[0]
        low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            predicted = est.predict(new)
        assert np.array_equal(predicted, est.predict(np.clip(new, low, high)))
        explained = est.explain(new)
        assert explained.eta == pytest.approx(predicted, rel=RTOL)
        outside = (new < low) | (new > high)
        assert not explained.local_effect[outside].any()

    @pytest.mark.parametrize("make", [NIMORegressor, NIMORegressorCV])
    def test_the_fit_is_that_with_clipped_inputs(self, rows, make):
        params = {"max_iter": 3, "random_state": 0, "basis": "linear"}
        params |= {} if make is NIMORegressor else {"n_starts": 1, "cv": 2}
        X, y = rows
        some, every = (
            make(clip_inputs=how, **params).fit(X, y) for how in (True, "all")
        )
        assert np.array_equal(every.coef_, some.coef_)
        assert np.array_equal(every.reference_, some.reference_)
        assert every.predict(X) == pytest.approx(some.predict(X), rel=RTOL)

    def test_other_words_are_refused(self, rows):
        with pytest.raises(ValueError, match="clip_inputs must be one of 'all', got"):
            NIMORegressor(clip_inputs="terms", **QUICK).fit(*rows)
