"""The fault table: bad input is refused by name and row, odd input just works.

Nothing here depends on a long training, so every fit takes a few steps only.
"""

import datetime
import time
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning, NotFittedError

from sknimo import (
    DataWarning,
    ExtrapolationWarning,
    NIMOClassifier,
    NIMORegressor,
    NIMOSurvival,
    SeparationWarning,
)
from sknimo.estimators import _plain
from sknimo.training import hold_out

N_ROWS = 40
NAMES = ["age", "dose", "size"]
KKT = 1e-8  # relative optimality residual, the bar of the issue
SUM_RTOL = 1e-6  # equal columns leave the Gram matrix singular
OFFSET_TOL = 1e-6  # an offset of 1e3 costs three digits, training some more

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def regressor(family="gaussian", **options):
    return NIMORegressor(family, **{"max_iter": 12, "random_state": 0} | options)


def classifier(**options):
    return NIMOClassifier(**{"max_iter": 12, "random_state": 0} | options)


def make_data(n_rows=N_ROWS, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    eta = X[:, 0] * (1 + np.tanh(X[:, -1])) - 0.5 * X[:, 1]
    return X, eta + 0.3 * rng.normal(size=n_rows)


@pytest.fixture
def X():
    return make_data()[0]


@pytest.fixture
def y():
    return make_data()[1]


@pytest.fixture
def labels(y):
    return (y > 0).astype(int)


@pytest.fixture
def frame(X):
    return pd.DataFrame(X, columns=NAMES)


def spoil(values, where, value):
    """A copy with one entry replaced; objects only where floats cannot hold it."""
    kind = float if isinstance(value, float) else object
    values = np.array(values, dtype=kind)
    values[where] = value
    return values


NOT_FINITE = pytest.mark.parametrize(
    ("value", "kind"),
    [(np.nan, "NaN"), (pd.NA, "NaN"), (None, "NaN"), (np.inf, "inf"), (-np.inf, "inf")],
    ids=["nan", "NA", "None", "inf", "-inf"],
)


class TestValuesThatAreNotFinite:
    @NOT_FINITE
    def test_x_is_refused_by_column_and_first_row(self, X, y, value, kind):
        bad = spoil(spoil(X, (9, 1), value), (7, 1), value)
        message = rf"Column 'x1' of X contains .*{kind}.*, first at row 7\."
        with pytest.raises(ValueError, match=message):
            regressor().fit(bad, y)

    @NOT_FINITE
    def test_a_frame_is_refused_by_its_column_name(self, frame, y, value, kind):
        frame["dose"] = pd.Series(spoil(frame["dose"], 7, value))
        message = rf"Column 'dose' of X contains .*{kind}.*, first at row 7\."
        with pytest.raises(ValueError, match=message):
            regressor().fit(frame, y)

    @pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean"])
    def test_missing_values_in_nullable_columns_are_refused(self, frame, y, dtype):
        flags = pd.Series([0, 1] * (N_ROWS // 2), dtype=dtype)
        frame["dose"] = flags.where(frame.index != 7)
        with pytest.raises(ValueError, match=r"'dose' .* first at row 7\."):
            regressor().fit(frame, y)

    @NOT_FINITE
    @pytest.mark.parametrize("make", [regressor, classifier])
    def test_y_is_refused_by_its_first_row(self, X, labels, make, value, kind):
        bad = spoil(spoil(labels, 9, value), 7, value)
        if kind == "inf":
            bad = bad.astype(float)
        with pytest.raises(ValueError, match=rf"y contains {kind}.* at row 7\."):
            make().fit(X, bad)

    def test_missing_labels_among_strings_are_refused_by_row(self, X, labels):
        words = np.where(labels, "yes", "no").astype(object)
        words[7] = None
        with pytest.raises(ValueError, match=r"y contains NaN, first at row 7\."):
            classifier().fit(X, words)
        with pytest.raises(ValueError, match=r"y contains NaN, first at row 7\."):
            classifier().fit(X, pd.Series(words, dtype="str"))

    @NOT_FINITE
    @pytest.mark.parametrize("name", ["sample_weight", "offset"])
    def test_weight_and_offset_are_refused_by_row(self, X, y, name, value, kind):
        bad = spoil(np.ones(N_ROWS), 7, value)
        message = f"{name} must be finite.*row 7 has .*{kind.lower()}"
        with pytest.raises(ValueError, match=message):
            regressor().fit(X, y, **{name: bad})

    def test_an_exposure_of_zero_is_refused(self, X, y):
        with np.errstate(divide="ignore"):
            offset = np.log(np.r_[np.ones(7), 0.0, np.ones(N_ROWS - 8)])
        with pytest.raises(ValueError, match="row 7 has -inf.*exposure of zero"):
            regressor("poisson").fit(X, np.abs(y), offset=offset)

    def test_rows_are_counted_as_given_when_others_weigh_nothing(self, X, y):
        weight = np.r_[np.zeros(5), np.ones(N_ROWS - 5)]
        with pytest.raises(ValueError, match="row 7"):
            regressor().fit(spoil(X, (7, 1), np.nan), y, weight)
        with pytest.raises(ValueError, match="row 7"):
            regressor().fit(X, spoil(y, 7, np.nan), weight)
        with pytest.raises(ValueError, match="row 7"):
            regressor().fit(X, y, spoil(weight, 7, np.nan))
        with pytest.raises(ValueError, match="row 7"):
            regressor().fit(X, y, weight, spoil(y, 7, np.nan))

    @pytest.mark.parametrize("method", ["predict", "predict_proba"])
    def test_prediction_refuses_them_too(self, frame, labels, method):
        est = classifier().fit(frame, labels)
        bad = frame.copy()
        bad.loc[7, "dose"] = np.nan
        with pytest.raises(ValueError, match=r"Column 'dose' .*first at row 7\."):
            getattr(est, method)(bad)
        with pytest.raises(ValueError, match=r"offset must be finite, row 3 has nan"):
            getattr(est, method)(frame, offset=spoil(np.zeros(N_ROWS), 3, np.nan))

    def test_a_gap_that_training_had_not_is_told_as_such(self, frame, y):
        """Where missing="indicator" was set, to set it is no remedy."""
        est = regressor(max_iter=0, missing="indicator").fit(frame, y)
        bad = frame.assign(dose=spoil(frame["dose"], 7, np.nan))
        with pytest.raises(
            ValueError, match=r"row 7\. Training rows had no gap in this"
        ):
            est.predict(bad)
        est.set_params(handle_unknown="reference")  # what the message advises
        assert np.isfinite(est.predict(bad)).all()

    def test_infinity_is_to_be_made_missing_first(self, frame, y):
        """Imputers refuse it, too."""
        bad = frame.assign(dose=spoil(frame["dose"], 7, np.inf))
        with pytest.raises(ValueError, match=r"Replace it by NaN, then .*impute"):
            regressor().fit(bad, y)
        est = regressor(max_iter=0).fit(frame, y)
        with pytest.raises(ValueError, match=r"Replace it by NaN, then .*impute"):
            est.predict(bad)

    def test_prediction_on_an_array_names_the_column_seen_in_fit(self, frame, y):
        est = regressor().fit(frame, y)
        bad = spoil(frame.to_numpy(), (7, 1), np.nan)
        with (
            pytest.warns(UserWarning, match="does not have valid feature names"),
            pytest.raises(ValueError, match=r"Column 'dose' .*first at row 7\."),
        ):
            est.predict(bad)


class TestThingsThatAreNoNumbers:
    def test_strings_are_refused_with_a_remedy(self, X, y):
        with pytest.raises(ValueError, match="X holds strings.*categorical="):
            regressor().fit(X.astype(str), y)
        words = X.astype(object)
        words[7, 1] = "high"
        with pytest.raises(ValueError, match="'x1' holds 'high' at row 7.*categorical"):
            regressor().fit(words, y)

    def test_rows_in_lists_are_refused_by_column_and_row(self, X, y):
        rows = X.tolist()
        rows[7][1] = "high"
        with pytest.raises(ValueError, match="'x1' holds 'high' at row 7.*categorical"):
            regressor().fit(rows, y)
        rows[7][1] = 1j
        with pytest.raises(TypeError, match="'x1' holds complex at row 7"):
            regressor().fit(rows, y)
        rows[7] = rows[7][:2]
        with pytest.raises(ValueError, match="row 0 has 3 values, row 7 has 2"):
            regressor().fit(rows, y)

    def test_text_in_a_frame_is_a_category(self, frame, y):
        words = np.where(y > 0, "high", "low")
        for column in (words, words.astype(object), pd.Categorical(words)):
            est = regressor().fit(frame.assign(dose=column), y)
            assert len(est.coef_names_) == 3
            assert est.coef_names_[1] in ("dose[high]", "dose[low]")

    def test_dates_are_refused_with_a_remedy(self, frame, X, y):
        days = pd.date_range("2020-01-01", periods=N_ROWS)
        with pytest.raises(TypeError, match="'dose' holds dates.*days since"):
            regressor().fit(frame.assign(dose=days), y)
        with pytest.raises(TypeError, match="X holds dates.*days since"):
            regressor().fit(X.astype("M8[D]"), y)
        with pytest.raises(TypeError, match="'dose'"):
            regressor().fit(frame.assign(dose=days.date), y)

    def test_prediction_refuses_them_too(self, frame, y):
        est = regressor().fit(frame, y)
        with pytest.raises(ValueError, match="'dose' holds text.* numbers in training"):
            est.predict(frame.assign(dose="high"))

    @pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array])
    def test_sparse_tables_are_refused(self, X, y, kind):
        with pytest.raises(TypeError, match=r"[Ss]parse.*toarray"):
            regressor().fit(kind(X), y)
        est = regressor().fit(X, y)
        with pytest.raises(TypeError, match=r"[Ss]parse.*toarray"):
            est.predict(kind(X))

    def test_complex_numbers_are_refused(self, X, y):
        with pytest.raises(ValueError, match="Complex data not supported"):
            regressor().fit(X + 0j, y)
        with pytest.raises(ValueError, match="Complex data not supported"):
            regressor().fit(X, y + 0j)
        for name in ("sample_weight", "offset"):
            with pytest.raises(ValueError, match=f"Complex.*{name}"):
                regressor().fit(X, y, **{name: np.ones(N_ROWS) + 0j})

    def test_a_numeric_target_must_be_numbers(self, X, y, labels):
        with pytest.raises(ValueError, match="row 0 .*Use NIMOClassifier for labels"):
            regressor().fit(X, np.where(labels, "yes", "no"))
        days = [datetime.datetime(2020, 1, 1 + day % 28) for day in range(N_ROWS)]
        with pytest.raises(TypeError, match="y holds dates"):
            regressor().fit(X, np.array(days, dtype="M8[s]"))

    def test_a_continuous_target_is_no_class(self, X, y):
        with pytest.raises(ValueError, match="Unknown label type"):
            classifier().fit(X, y)

    @pytest.mark.parametrize("name", ["sample_weight", "offset"])
    def test_words_are_no_weights(self, X, y, name):
        with pytest.raises(ValueError, match=f"{name} must hold numbers, row 7"):
            regressor().fit(X, y, **{name: spoil(np.ones(N_ROWS), 7, "much")})


class TestColumns:
    def test_a_constant_column_has_no_effect(self, X, y):
        X[:, 1] = 7.0
        est = regressor()
        with pytest.warns(DataWarning, match="Constant column 'x1'") as caught:
            est.fit(X, y)
        assert caught[0].filename == __file__
        assert est.coef_[1] == 0
        assert est.reference_[1] == 7.0
        assert est.model_.input_norms[1] == 0
        moved = X.copy()
        moved[:, 1] = np.linspace(-1e6, 1e6, N_ROWS)
        assert np.array_equal(est.predict(moved), est.predict(X))

    def test_a_constant_column_leaves_the_other_effects_alone(self, X, y):
        est = regressor(max_iter=0).fit(X, y)
        with pytest.warns(DataWarning):
            wider = regressor(max_iter=0).fit(np.c_[np.ones(N_ROWS), X], y)
        assert wider.coef_[1:] == pytest.approx(est.coef_, rel=1e-12)

    def test_only_constant_columns_leave_the_mean(self, y):
        with pytest.warns(DataWarning):
            est = regressor().fit(np.ones((N_ROWS, 2)), y)
        assert not est.coef_.any()
        assert est.predict(np.ones((1, 2))) == pytest.approx([y.mean()])

    def test_two_equal_columns_have_the_effect_of_one_under_the_lasso(self, X, y):
        once = regressor(max_iter=0).fit(X, y)
        twice = regressor(max_iter=0).fit(np.c_[X, X[:, 0]], y)
        assert twice.certificate_.kkt < KKT
        total = twice.coef_[0] + twice.coef_[3]
        assert total == pytest.approx(once.coef_[0], rel=SUM_RTOL)
        assert twice.coef_[1:3] == pytest.approx(once.coef_[1:], rel=SUM_RTOL)

    def test_two_equal_columns_share_their_effect_under_a_ridge(self, X, y):
        est = regressor(penalty="ridge", max_iter=0).fit(np.c_[X, X[:, 0]], y)
        assert est.certificate_.kkt < KKT
        assert est.coef_[0] == pytest.approx(est.coef_[3], rel=SUM_RTOL)

    @pytest.mark.parametrize("penalty", ["lasso", "ridge", "sub_l1"])
    def test_duplicated_columns_can_be_fitted(self, X, y, penalty):
        est = regressor(penalty=penalty).fit(np.c_[X, X], y)
        assert np.isfinite(est.coef_).all()
        assert est.score(np.c_[X, X], y) > 0.5

    @pytest.mark.parametrize("make", [regressor, classifier])
    def test_more_columns_than_rows_can_be_fitted(self, make):
        X, y = make_data(n_rows=20, n_features=50)
        est = make(alpha=0.05).fit(X, y if make is regressor else (y > 0).astype(int))
        assert np.isfinite(est.coef_).all()
        assert 0 < np.count_nonzero(est.coef_) < 20
        assert est.certificate_.kkt < KKT

    def test_columns_that_cancel_cost_no_more_time_than_others(self, X, y):
        """Without a penalty the coefficients of near copies grow until they cancel."""
        X[:, 1] = X[:, 0] + 1e-9 * X[:, 1]
        X[-1, :2] = 1e15
        start = time.process_time()
        est = regressor(alpha=0.0).fit(X, y)
        assert np.isfinite(est.predict(X)).all()
        assert time.process_time() - start < 2

    def test_an_outlier_leaves_everything_finite(self, X, y):
        X[3, 0], y[3] = 1e9, -1e6
        est = regressor().fit(X, y)
        assert np.isfinite(est.predict(X)).all()

    def test_an_array_of_one_dimension_is_refused(self, X, y):
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            regressor().fit(X[:, 0], y)


class TestTooFewRows:
    @pytest.mark.parametrize("n_rows", [1, 2])
    def test_the_minimum_is_stated(self, X, y, n_rows):
        with pytest.raises(ValueError, match="minimum of 3 is required"):
            regressor().fit(X[:n_rows], y[:n_rows])

    def test_rows_without_weight_do_not_count(self, X, y):
        weight = np.r_[1.0, 1.0, np.zeros(N_ROWS - 2)]
        with pytest.raises(ValueError, match="minimum of 3 is required"):
            regressor().fit(X, y, weight)

    def test_three_rows_are_enough(self, X, y):
        est = regressor().fit(X[:3], y[:3])
        assert np.isfinite(est.predict(X[:3])).all()
        with pytest.warns(ExtrapolationWarning):  # hardly any row is near three
            assert np.isfinite(est.predict(X)).all()

    def test_no_rows_or_columns_are_refused(self, X, y):
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            regressor().fit(X[:0], y[:0])
        with pytest.raises(ValueError, match=r"0 feature\(s\)"):
            regressor().fit(X[:, :0], y)
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            regressor().fit(X, y).predict(X[:0])

    def test_lengths_must_agree(self, X, y):
        with pytest.raises(ValueError, match="X has 40 rows but y has 39"):
            regressor().fit(X, y[1:])

    def test_a_target_is_needed(self, X):
        with pytest.raises(ValueError, match="requires y"):
            regressor().fit(X, None)


class TestTargets:
    def test_a_single_class_is_refused(self, X):
        with pytest.raises(ValueError, match="single class"):
            classifier().fit(X, np.ones(N_ROWS, dtype=int))

    def test_a_single_class_is_named_as_it_is_written(self, X):
        for label in (1.0, 1, "yes", True):
            with pytest.raises(ValueError, match=rf"single class \({label!r}\)"):
                classifier().fit(X, np.full(N_ROWS, label))

    def test_a_class_without_weight_does_not_count(self, X, labels):
        with pytest.raises(ValueError, match="single class"):
            classifier().fit(X, labels, sample_weight=labels)

    def test_one_of_several_classes_that_is_seen_once_is_refused(self, X):
        labels = np.array(["a", "b"])[np.arange(N_ROWS) % 2].astype(object)
        labels[7] = "rare"
        with pytest.raises(ValueError, match=r"'rare' of y is seen once \(row 7\)"):
            classifier().fit(X, labels)
        weight = np.ones(N_ROWS)
        weight[7] = 0
        with pytest.raises(ValueError, match="'rare' of y has no row of positive"):
            classifier().fit(X, labels, sample_weight=weight)

    def test_several_classes_have_no_offset(self, X):
        with pytest.raises(ValueError, match="offset is the known part of one"):
            classifier().fit(X, np.arange(N_ROWS) % 3, offset=np.ones(N_ROWS))

    @pytest.mark.parametrize(
        ("family", "value", "range_"),
        [
            ("poisson", -1.0, "zero or positive"),
            ("gamma", 0.0, "strictly positive"),
            ("gamma", -2.5, "strictly positive"),
        ],
    )
    def test_values_outside_the_range_are_refused_by_row(
        self, X, y, family, value, range_
    ):
        target = np.abs(y) + 0.1
        target[[3, 7]] = value
        weight = np.ones(N_ROWS)
        weight[[0, 3]] = 0  # a row that weighs nothing may hold anything
        message = rf"{family} family needs .*{range_}.* row 7 has {value:g}"
        with pytest.raises(ValueError, match=message):
            regressor(family).fit(X, target, weight)
        target[7] = 1.0
        assert np.isfinite(regressor(family).fit(X, target, weight).coef_).all()

    @pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e8, 1e-300])
    def test_a_constant_target_is_predicted_exactly(self, X, value):
        with pytest.warns(DataWarning, match="in every row: there is nothing"):
            est = regressor().fit(X, np.full(N_ROWS, value))
        assert not est.coef_.any()
        assert est.predict(X) == pytest.approx(np.full(N_ROWS, value), rel=1e-15)
        assert est.converged_

    @pytest.mark.filterwarnings("ignore:y is .* in every row")
    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    @pytest.mark.parametrize("value", [2.0, 1e-8])
    def test_a_constant_target_is_predicted_by_other_families(self, X, family, value):
        target = np.full(N_ROWS, value)
        est = regressor(family).fit(X, target)
        assert not est.coef_.any()
        assert est.predict(X) == pytest.approx(target, rel=1e-9)
        assert est.score(X, target) == 1.0

    @pytest.mark.filterwarnings("ignore:y is .* in every row")
    def test_counts_that_are_all_zero_stay_finite(self, X):
        target = np.zeros(N_ROWS)
        est = regressor("poisson").fit(X, target)
        assert not est.coef_.any()
        assert np.isfinite(est.intercept_)
        assert est.predict(X) == pytest.approx(target, abs=1e-9)

    def test_a_column_vector_is_taken_with_a_warning(self, X, y):
        with pytest.warns(DataConversionWarning):
            est = regressor().fit(X, y[:, None])
        assert np.array_equal(est.predict(X), regressor().fit(X, y).predict(X))

    def test_two_targets_are_refused(self, X, y):
        with pytest.raises(ValueError, match="1d array"):
            regressor().fit(X, np.c_[y, y])

    @pytest.mark.parametrize("alpha", [0.0, 1e-6])
    def test_parted_classes_give_a_finite_fit_and_a_warning(self, X, alpha):
        labels = (X[:, 0] > 0).astype(int)
        est = classifier(alpha=alpha)
        with pytest.warns(SeparationWarning, match="separated perfectly") as caught:
            est.fit(X, labels)
        assert caught[0].filename == __file__
        assert not est.converged_
        assert np.isfinite(est.coef_).all()
        assert np.isfinite(est.decision_function(X)).all()
        assert est.score(X, labels) == 1.0

    @pytest.mark.slow
    def test_early_stopping_never_leaves_a_single_class_for_training(self):
        X, _ = make_data(n_rows=12)
        labels = np.eye(12, dtype=int)[0]
        for seed in range(8):
            est = classifier(early_stopping=True, random_state=seed).fit(X, labels)
            assert abs(est.intercept_) < 20

    def test_early_stopping_keeps_a_training_row_of_each_class(self, X, monkeypatch):
        """A class of two rows would often be held out as a whole."""
        labels = np.repeat(["a", "b", "c"], [20, 18, 2])
        seen = []

        def watch(data, *given):
            held_out = hold_out(data, *given)
            seen.append((held_out.mean(), np.unique(data.y[~held_out]).tolist()))
            return held_out

        monkeypatch.setattr(_plain, "hold_out", watch)
        options = {"early_stopping": True, "validation_fraction": 0.6, "alpha": 1.0}
        for seed in range(8):
            classifier(max_iter=0, random_state=seed, **options).fit(X, labels)
        assert seen == [(pytest.approx(0.6), [0, 1, 2])] * 8


class TestWeights:
    def test_negative_weights_are_refused_by_row(self, X, y):
        weight = np.ones(N_ROWS)
        weight[[7, 9]] = -1.0
        with pytest.raises(ValueError, match=r"not negative, row 7 has -1\.0"):
            regressor().fit(X, y, weight)

    def test_weights_that_are_all_zero_are_refused(self, X, y):
        with pytest.raises(ValueError, match="zero for every row"):
            regressor().fit(X, y, np.zeros(N_ROWS))

    @pytest.mark.parametrize("name", ["sample_weight", "offset"])
    @pytest.mark.parametrize("shape", [(N_ROWS - 1,), (N_ROWS, 1), (1, N_ROWS)])
    def test_a_wrong_shape_is_refused(self, X, y, name, shape):
        with pytest.raises(ValueError, match=rf"{name} .*expected shape \(40,\)"):
            regressor().fit(X, y, **{name: np.ones(shape)})

    @pytest.mark.parametrize("early_stopping", [False, True])
    @pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma"])
    def test_integer_weights_equal_repetition(self, X, y, family, early_stopping):
        def make():
            if family == "binomial":
                return classifier(early_stopping=early_stopping)
            return regressor(family, early_stopping=early_stopping)

        target = (y > 0).astype(int) if family == "binomial" else y
        if family in ("poisson", "gamma"):
            target = np.abs(y) + 0.1
        counts = np.random.default_rng(1).integers(0, 4, N_ROWS)
        weighted = make().fit(X, target, counts)
        repeated = make().fit(np.repeat(X, counts, 0), np.repeat(target, counts))
        assert np.array_equal(weighted.model_.eta(X), repeated.model_.eta(X))
        assert np.array_equal(weighted.coef_, repeated.coef_)

    def test_zero_weights_equal_deletion(self, X, y):
        weight = np.random.default_rng(1).random(N_ROWS)
        weight[::3] = 0
        keep = weight > 0
        spoiled = X.copy()
        spoiled[~keep] = 1e6
        weighted = regressor().fit(spoiled, y, weight)
        deleted = regressor().fit(X[keep], y[keep], weight[keep])
        assert np.array_equal(weighted.predict(X), deleted.predict(X))

    def test_weights_of_one_equal_no_weights(self, X, y):
        plain = regressor().fit(X, y).predict(X)
        assert np.array_equal(regressor().fit(X, y, np.ones(N_ROWS)).predict(X), plain)
        assert np.array_equal(regressor().fit(X, y, 2.0).predict(X), plain)

    def test_weights_and_offset_are_not_changed(self, X, y):
        weight, offset = np.linspace(0, 1, N_ROWS), np.linspace(-1, 1, N_ROWS)
        before = weight.copy(), offset.copy()
        weight.flags.writeable = offset.flags.writeable = False
        regressor().fit(X, y, weight, offset)
        assert np.array_equal(weight, before[0])
        assert np.array_equal(offset, before[1])


class TestOffsets:
    @pytest.mark.parametrize("level", [1e3, -1e3])
    @pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma"])
    def test_a_large_constant_offset_moves_only_the_intercept(
        self, X, y, labels, family, level
    ):
        is_binary = family == "binomial"
        make = classifier if is_binary else lambda: regressor(family)
        target = labels if is_binary else (y if family == "gaussian" else np.abs(y) + 1)
        offset = np.full(N_ROWS, level)
        plain = make().fit(X, target)
        moved = make().fit(X, target, offset=offset)
        assert moved.intercept_ == pytest.approx(plain.intercept_ - level, abs=1e-6)
        assert moved.coef_ == pytest.approx(plain.coef_, abs=OFFSET_TOL)
        eta = moved.model_.eta(X, offset)
        assert eta == pytest.approx(plain.model_.eta(X), abs=OFFSET_TOL)

    def test_a_wide_offset_is_stable(self, X):
        rng = np.random.default_rng(1)
        offset = np.linspace(-8, 8, N_ROWS)
        counts = rng.poisson(np.exp(np.clip(offset + 0.5 * X[:, 0], None, 8)))
        est = regressor("poisson").fit(X, counts, offset=offset)
        assert np.isfinite(est.predict(X, offset)).all()


class TestNames:
    def test_reordered_names_are_refused(self, frame, y):
        est = regressor().fit(frame, y)
        with pytest.raises(ValueError, match="must be in the same order"):
            est.predict(frame[NAMES[::-1]])

    def test_missing_and_extra_names_are_listed(self, frame, y):
        est = regressor().fit(frame, y)
        with pytest.raises(ValueError, match="yet now missing:\n- dose"):
            est.predict(frame.drop(columns="dose"))
        with pytest.raises(ValueError, match="unseen at fit time:\n- height"):
            est.predict(frame.assign(height=1.0))
        with pytest.raises(ValueError, match="unseen at fit time:\n- height"):
            est.predict(frame.rename(columns={"dose": "height"}))

    def test_polars_names_are_checked_too(self, X, y):
        table = pl.DataFrame(X, schema=NAMES)
        est = regressor().fit(table, y)
        assert est.feature_names_in_.tolist() == NAMES
        with pytest.raises(ValueError, match="must be in the same order"):
            est.predict(table.select(NAMES[::-1]))

    def test_names_at_fit_only_warn_as_in_sklearn(self, frame, X, y):
        est = regressor().fit(frame, y)
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            predicted = est.predict(X)
        assert np.array_equal(predicted, est.predict(frame))

    def test_names_at_predict_only_warn_as_in_sklearn(self, frame, X, y):
        est = regressor().fit(X, y)
        with pytest.warns(UserWarning, match="fitted without feature names"):
            est.predict(frame)

    def test_a_second_fit_forgets_the_names_of_the_first(self, frame, X, y):
        est = regressor().fit(frame, y).fit(X, y)
        assert not hasattr(est, "feature_names_in_")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            est.predict(X)

    def test_another_number_of_columns_is_refused(self, X, y):
        est = regressor().fit(X, y)
        with pytest.raises(ValueError, match="X has 2 features, but .* expecting 3"):
            est.predict(X[:, :2])

    def test_duplicate_names_are_refused(self, frame, y):
        with pytest.raises(ValueError, match="'age' 2 times. Rename or drop"):
            regressor().fit(frame.set_axis(["age", "dose", "age"], axis=1), y)

    def test_integer_names_are_taken_as_no_names(self, X, y):
        est = regressor().fit(pd.DataFrame(X), y)
        assert not hasattr(est, "feature_names_in_")
        assert np.array_equal(est.predict(X), est.predict(pd.DataFrame(X)))


def as_memmap(X, folder):
    path = folder / "table.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def as_read_only(X, folder):
    X = X.copy()
    X.flags.writeable = False
    return X


def as_strided(X, folder):
    wide = np.full((2 * len(X), 2 * X.shape[1]), np.nan)
    wide[::2, ::2] = X
    return wide[::2, ::2]


LAYOUTS = {
    "read-only": as_read_only,
    "memmap": as_memmap,
    "Fortran order": lambda X, folder: np.asfortranarray(X),
    "strided": as_strided,
    "reversed": lambda X, folder: X[::-1].copy()[::-1],
    "big-endian": lambda X, folder: X.astype(">f8"),
    "long double": lambda X, folder: X.astype(np.longdouble),
    "objects": lambda X, folder: X.astype(object),
    "list": lambda X, folder: X.tolist(),
}


class TestLayouts:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_the_layout_of_numbers_does_not_matter(self, X, y, tmp_path, layout):
        given = LAYOUTS[layout](X, tmp_path)
        before = np.array(given, dtype=float)
        est = regressor().fit(given, y)
        plain = regressor().fit(X, y)
        assert np.array_equal(est.predict(given), plain.predict(X))
        assert np.array_equal(est.coef_, plain.coef_)
        assert np.array_equal(np.array(given, dtype=float), before)

    @pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "i4", "u1", "bool"])
    def test_the_precision_of_numbers_does_not_matter(self, X, y, dtype):
        if dtype == "bool":
            given = X > 0
        elif np.dtype(dtype).kind in "iu":
            given = np.clip(10 * X + 50, 0, 200).astype(dtype)
        else:
            given = X.astype(dtype)
        before = given.copy()
        double = given.astype(np.float64)
        est = regressor().fit(given, y)
        plain = regressor().fit(double, y)
        assert np.array_equal(est.predict(given), plain.predict(double))
        assert np.array_equal(given, before)

    def test_the_layout_of_the_target_does_not_matter(self, X, y):
        plain = regressor().fit(X, y.astype("f4").astype(float)).predict(X)
        for target in (y.astype("f4"), y.astype(">f4"), y.astype("f4").astype(object)):
            assert np.array_equal(regressor().fit(X, target).predict(X), plain)
        plain = regressor().fit(X, y).predict(X)
        read_only = as_read_only(y, None)
        for target in (y.tolist(), pd.Series(y, index=y), pl.Series(y), read_only):
            assert np.array_equal(regressor().fit(X, target).predict(X), plain)
        assert np.array_equal(read_only, y)


class TestParameters:
    @pytest.mark.parametrize(
        ("name", "value", "known"),
        [
            ("family", "cauchy", "'gaussian', 'poisson', 'gamma', .*"),
            ("family", "binomial", "'gaussian', 'poisson', 'gamma', .*"),
            ("penalty", "l1", "'ridge', 'lasso', 'sub_l1'"),
            ("penalty", None, "'ridge', 'lasso', 'sub_l1'"),
            ("penalty", np.array(["lasso", "ridge"]), "'ridge', 'lasso', 'sub_l1'"),
            ("position_code", "one-hot", "'binary', 'none'"),
            ("device", "tpu", "'auto', 'cpu', 'cuda'"),
            ("dtype", "float16", "'float32', 'float64'"),
            ("dtype", np.float64, "'float32', 'float64'"),
        ],
    )
    def test_an_unknown_option_lists_the_known_ones(self, X, y, name, value, known):
        with pytest.raises(ValueError, match=f"^{name} must be one of {known}, got "):
            regressor().set_params(**{name: value}).fit(X, y)

    @pytest.mark.parametrize(
        "name",
        ["alpha", "network_alpha", "noise", "tol", "weight_decay", "learning_rate"]
        + ["memory_budget", "delta", "validation_fraction"],
    )
    @pytest.mark.parametrize("value", [-1.0, np.nan, np.inf, "much", None])
    def test_bad_numbers_are_refused_by_name(self, X, y, name, value):
        with pytest.raises((ValueError, TypeError), match=f"^{name} "):
            regressor().set_params(**{name: value}).fit(X, y)

    @pytest.mark.parametrize("name", ["max_iter", "patience"])
    @pytest.mark.parametrize("value", [-1, 1.5, np.nan, "many", None])
    def test_bad_counts_are_refused_by_name(self, X, y, name, value):
        with pytest.raises((ValueError, TypeError), match=f"^{name} "):
            regressor().set_params(**{name: value}).fit(X, y)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("learning_rate", 0),
            ("patience", 0),
            ("delta", 0),
            ("delta", 1.1),
            ("validation_fraction", 0),
            ("validation_fraction", 1),
            ("memory_budget", 10),
        ],
    )
    def test_numbers_out_of_range_are_refused_by_name(self, X, y, name, value):
        with pytest.raises(ValueError, match=f"^{name} "):
            regressor().set_params(**{name: value}).fit(X, y)

    @pytest.mark.parametrize(
        "hidden", [16, None, (16,), (4, 4, 4), (0, 4), (-1, 4), (1.5, 2), ("a", "b")]
    )
    def test_bad_layer_widths_are_refused(self, X, y, hidden):
        with pytest.raises(ValueError, match="^hidden must hold two positive whole"):
            regressor(hidden=hidden).fit(X, y)

    @pytest.mark.parametrize("hidden", [[4, 4], np.array([4, 4]), (np.int32(4), 4)])
    def test_layer_widths_may_come_in_any_sequence(self, X, y, hidden):
        plain = regressor(hidden=(4, 4)).fit(X, y).predict(X)
        assert np.array_equal(regressor(hidden=hidden).fit(X, y).predict(X), plain)

    @pytest.mark.parametrize("value", ["seed", 1.5, -1])
    def test_a_bad_seed_is_refused(self, X, y, value):
        with pytest.raises(ValueError, match=r"[Ss]eed"):
            regressor(random_state=value).fit(X, y)

    def test_bad_parameters_are_found_at_fit_not_before(self):
        assert NIMORegressor(penalty="l1", alpha=-1).get_params()["alpha"] == -1

    def test_no_network_training_is_no_failure(self, X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            est = regressor(max_iter=0).fit(X, y)
        assert est.converged_
        assert est.n_iter_ == 0


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_an_unfitted_estimator_says_so(X, method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(classifier(), method)(X)


@pytest.mark.parametrize("make", [regressor, classifier, NIMOSurvival])
def test_what_is_said_of_rows_needs_a_fit(X, y, make):
    times = np.column_stack([np.abs(y), y > 0])
    calls = [
        (make().extrapolation_score, (X,)),
        (make().far_rows, (X,)),
        (make().influence, (X, times if make is NIMOSurvival else y)),
        (NIMOSurvival().exposure, (times,)),
    ]
    for method, given in calls:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            method(*given)
