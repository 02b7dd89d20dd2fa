"""Estimators on large tables: what the mix of additive and bent members promises.

`batch_size` asks for the way of large tables on small ones.
"""

import math
import time

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

import sknimo
import sknimo.search._bags as bagged
from sknimo import NIMOClassifierCV, NIMORegressorCV

SHORT = {
    "batch_size": 32,
    "max_iter": 30,
    "hidden": (4, 4),
    "n_members": 3,
    "cv": 3,
    "random_state": 0,
}
SUM_ATOL = 1e-9  # promised; contributions are summed in another order
SLOPE_ATOL = 1e-6  # promised; differences of straight pieces leave about 1e-9
FILE_ATOL = 1e-10  # ONNX sums in another order
N_ROWS = 240


def make(cls=NIMORegressorCV, **options):
    return cls(**SHORT | options)


def draw(n_rows=N_ROWS, seed=0, noise=0.2):
    """Four columns; the first is bent by the second, the third is a curve."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 4))
    eta = X[:, 0] * (1 + 2 * np.tanh(2 * X[:, 1])) + np.sin(2 * X[:, 2])
    return X, eta + noise * np.random.default_rng(seed + 1).normal(size=n_rows)


def draw_frame(n_rows=N_ROWS):
    """Numbers, two categories and missing values."""
    X, y = draw(n_rows)
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(X[:, :3], columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["x", "y", "z"], n_rows)
    y = y + (frame["kind"] == "y") * (1 + X[:, 0])
    frame.loc[rng.random(n_rows) < 0.1, "c"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "kind"] = None
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def fitted():
    """A fit that tests look at and leave as it is."""
    X, y = draw()
    est = make().fit(X, y)
    assert est.bend_ > 0.3 and est.n_members_ == 3
    return est


@pytest.fixture(scope="module")
def mixed():
    """A fit to categories and missing values."""
    est = make(missing="indicator").fit(*draw_frame())
    assert est.bend_ > 0
    return est


class TestModel:
    """A mix of bags is a model of the class: every identity holds."""

    @pytest.mark.parametrize("name", ["fitted", "mixed"])
    def test_contributions_sum_to_eta(self, name, request):
        est = request.getfixturevalue(name)
        X = draw(seed=7)[0] if name == "fitted" else draw_frame()[0]
        table = est._read_table(X)
        total = est.model_.base_value + est.model_.contributions(table).sum(axis=1)
        assert total == pytest.approx(est.predict(X), abs=SUM_ATOL)

    def test_the_gradient_at_the_reference_is_the_coefficient(self, fitted):
        step = 1e-5
        for j, coef in enumerate(fitted.coef_):
            rows = np.tile(fitted.reference_, (2, 1))
            rows[:, j] += (-step, step)
            low, high = fitted.predict(rows)
            assert (high - low) / (2 * step) == pytest.approx(coef, abs=SLOPE_ATOL)

    def test_a_feature_does_not_bend_itself(self, fitted):
        """Not by a bit."""
        X, _ = draw(50, seed=7)
        features = fitted.model_.features

        def local(X):
            terms, inputs = map(
                torch.as_tensor, (features.terms(X), features.inputs(X))
            )
            return fitted.model_.local_term_coef(terms, inputs).numpy()

        for j in range(4):
            other = X.copy()
            other[:, j] = other[::-1, j] * 2 + 0.3
            own = features.term_feature == j
            before, after = local(X), local(other)
            assert np.array_equal(before[:, own], after[:, own])
            assert not np.array_equal(before[:, ~own], after[:, ~own])

    def test_curves_are_constant_from_a_quarter_of_their_range_beyond_it(self, fitted):
        X, _ = draw()
        rows = np.tile(X.max(0) + 0.25 * np.ptp(X, axis=0), (2, 1))
        rows[1] += 1e3
        inside, outside = fitted.predict(rows)
        assert outside == pytest.approx(inside, abs=SUM_ATOL)

    def test_a_saved_model_predicts_the_same(self, mixed, tmp_path):
        X, _ = draw_frame()
        mixed.save(tmp_path / "model.sknimo")
        again = sknimo.load(tmp_path / "model.sknimo")
        assert np.array_equal(again.predict(X), mixed.predict(X))
        for name in ("bend_", "held_out_score_", "glm_held_out_score_"):
            assert getattr(again, name) == getattr(mixed, name)
        assert str(again.summary()) == str(mixed.summary())

    def test_an_onnx_graph_predicts_the_same(self, fitted, tmp_path):
        X, _ = draw(seed=7)
        fitted.to_onnx(tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        (found,) = session.run(["prediction"], {"X": X})
        assert found.ravel() == pytest.approx(fitted.predict(X), abs=FILE_ATOL)

    def test_the_attributes_say_which_way_was_taken(self, fitted):
        assert fitted.path_ is None
        for name in ("alpha_", "log_evidence_", "input_precision_"):
            assert math.isnan(getattr(fitted, name))
        assert fitted.trials_["stage"] == ["additive"] * 3 + ["bent"] * 3


class TestHeldOut:
    """`oob_prediction_` is by members that have not seen the row."""

    def test_noise_is_not_predicted(self):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(150, 3)), rng.normal(size=150)
        est = make(max_iter=8).fit(X, y)
        assert r2_score(y, est.oob_prediction_) < 0.02
        assert r2_score(y, est.predict(X)) > r2_score(y, est.oob_prediction_)

    def test_it_tells_the_error_on_new_rows(self, fitted):
        _, y = draw()
        new_X, new_y = draw(2000, seed=11)
        known = np.mean((fitted.oob_prediction_ - y) ** 2)
        new = np.mean((fitted.predict(new_X) - new_y) ** 2)
        assert new < 1.2 * known  # the mean of members is better than one of them
        assert known < 4 * new

    def test_its_score_is_in_the_summary_and_in_the_report(self, fitted):
        X, y = draw()
        expected = r2_score(y, fitted.oob_prediction_)
        assert fitted.held_out_score_ == pytest.approx(expected, abs=1e-6)
        assert fitted.glm_held_out_score_ < fitted.held_out_score_
        facts = dict(fitted.summary().facts)
        assert facts["Held-out R2:"] == f"{expected:.4f}"
        assert facts["Share of bent members:"] == f"{fitted.bend_:.2f}"
        page = fitted.report(None, X, y)._repr_html_()
        assert "Held-out R2" in page and f"{expected:.4f}" in page

    def test_rows_stand_as_they_were_given(self, fitted):
        """They are sorted inside, so that their order does not matter."""
        X, y = draw()
        order = np.random.default_rng(1).permutation(N_ROWS)
        again = make().fit(X[order], y[order])
        assert np.array_equal(again.oob_prediction_, fitted.oob_prediction_[order])
        assert np.corrcoef(fitted.oob_prediction_, y)[0, 1] > 0.5

    def test_rows_of_no_weight_have_none(self):
        X, y = draw()
        weight = np.ones(N_ROWS)
        weight[::5] = 0
        found = make(max_iter=3).fit(X, y, sample_weight=weight).oob_prediction_
        assert np.array_equal(np.isnan(found), weight == 0)

    def test_rows_that_no_fold_holds_out_have_none(self):
        X, y = draw()
        rows = np.arange(N_ROWS)
        folds = [(rows[80:], rows[:40]), (rows[:200], rows[200:])]
        found = make(cv=folds, max_iter=3).fit(X, y).oob_prediction_
        assert np.array_equal(np.isnan(found), (rows >= 40) & (rows < 200))

    def test_probabilities_are_held_out_for_classes(self):
        X, eta = draw()
        y = np.where(eta > 0, "yes", "no")
        found = make(NIMOClassifierCV).fit(X, y).oob_prediction_
        assert found.min() >= 0 and found.max() <= 1
        assert np.mean((found > 0.5) == (y == "yes")) > 0.65

    def test_groups_are_held_out_whole(self):
        """Labels that tell the target: only rows of one's own group give it away."""
        rng = np.random.default_rng(0)
        group = np.repeat(np.arange(20), 12)
        X = np.column_stack([rng.normal(size=20)[group], rng.normal(size=240)])
        y = rng.normal(size=20)[group] + 0.1 * rng.normal(size=240)
        est = make(max_iter=5).fit(X, y, groups=group)
        assert r2_score(y, est.oob_prediction_) < 0.05
        apart = make(max_iter=5).fit(X, y)
        assert r2_score(y, apart.oob_prediction_) > 0.2

    @pytest.mark.parametrize("batch_size", [0, "auto"])
    def test_small_tables_have_it_too(self, batch_size, make_search, draw_bent):
        X, y = draw_bent(n_rows=100)
        est = make_search(batch_size=batch_size, max_iter=50).fit(X, y)
        assert 0 < est.bend_ <= 1
        assert r2_score(y, est.oob_prediction_) > 0.9
        new_X, new_y = draw_bent(n_rows=2000, seed=9)
        known = np.mean((est.oob_prediction_ - y) ** 2)
        assert np.mean((est.predict(new_X) - new_y) ** 2) < 1.5 * known


class TestFolds:
    def test_every_member_has_a_fold(self):
        X, y = draw()
        est = make(cv=2, n_members=4, max_iter=5).fit(X, y)
        assert max(est.trials_["fold"]) == 3
        assert np.isfinite(est.oob_prediction_).all()

    def test_a_splitter_has_the_folds_that_it_has(self):
        X, y = draw()
        est = make(cv=KFold(2), n_members=3).fit(X, y)
        assert est.n_members_ == 3
        assert np.isfinite(est.oob_prediction_).all()

    def test_one_member_is_one_member(self):
        X, y = draw()
        est = make(n_members=1, max_iter=80).fit(X, y)
        assert est.n_members_ == 1
        assert est.model_.n_members == 2  # and a silent one
        assert np.isnan(est.oob_prediction_).sum() == N_ROWS * 2 / 3


class TestInvariance:
    """Seeds, threads, interruptions and repeats."""

    def test_the_same_seed_gives_the_same_bits(self, fitted):
        X, y = draw()
        again = make().fit(X, y)
        assert np.array_equal(again.predict(X), fitted.predict(X))
        assert again.trials_ == fitted.trials_

    def test_another_seed_gives_another_fit(self, fitted):
        X, y = draw()
        other = make(random_state=1, max_iter=3).fit(X, y)
        assert not np.array_equal(other.predict(X), fitted.predict(X))

    def test_threads_and_processes_do_not_matter(self, fitted):
        X, y = draw()
        torch.set_num_threads(2)
        try:
            again = make(n_jobs=2).fit(X, y)
        finally:
            torch.set_num_threads(1)
        assert again.predict(X) == pytest.approx(fitted.predict(X), abs=1e-4)

    @pytest.mark.parametrize(
        ("few_rows", "n_done"), [(0, 0), (0, 1), (0, 3), (N_ROWS, 0), (N_ROWS, 1)]
    )
    def test_an_interrupted_search_resumes_with_the_same_bits(
        self, few_rows, n_done, fitted, tmp_path, monkeypatch, change_settings
    ):
        """Every bag is a state, or all of them are where rows are few."""
        # Of fewer rows the first bags bring nothing, and there are no others.
        X, y = draw() if few_rows else draw(3 * N_ROWS)
        change_settings(few_rows=few_rows)
        if not few_rows:
            fitted = make().fit(X, y)
        assert fitted.n_members_ == 3
        n_states = 1 if few_rows else 3
        calls, real = [], bagged.train_jointly

        def fail(*args):
            if len(calls) == n_done:
                raise KeyboardInterrupt
            calls.append(None)
            return real(*args)

        monkeypatch.setattr(bagged, "train_jointly", fail)
        est = make(checkpoint=tmp_path)
        if n_done < n_states:
            with pytest.raises(KeyboardInterrupt):
                est.fit(X, y)
            assert not hasattr(est, "model_")
        else:
            est.fit(X, y)
        stage = "few-rows" if few_rows else "bag"
        assert len(list(tmp_path.glob(f"{stage}-*"))) == n_done
        monkeypatch.setattr(bagged, "train_jointly", real)
        again = make(checkpoint=tmp_path).fit(X, y)
        assert np.array_equal(again.predict(X), fitted.predict(X))
        assert np.array_equal(again.oob_prediction_, fitted.oob_prediction_)

    def test_integer_weights_equal_repetition(self):
        """Equal rows are merged before folds are drawn: the same to the last bit."""
        X, y = draw(120)
        counts = np.arange(120) % 3
        first = make(max_iter=4)
        second = clone(first)
        rows = np.repeat(np.arange(120), counts)
        first.fit(X, y, sample_weight=counts)
        second.fit(X[rows], y[rows])
        assert np.array_equal(first.predict(X), second.predict(X))

    def test_units_do_not_matter(self, fitted):
        X, y = draw()
        again = make().fit(X * 1000 + 3, 10 * y - 4)
        assert again.predict(X * 1000 + 3) == pytest.approx(
            10 * fitted.predict(X) - 4, abs=1e-2
        )


class TestTime:
    def test_without_time_something_is_kept_and_said_so(self):
        X, y = draw()
        est = make(max_time=0)
        with pytest.warns(ConvergenceWarning, match="max_time=0"):
            est.fit(X, y)
        assert not est.converged_
        assert est.score(X, y) > 0.3  # the additive model

    @pytest.mark.slow
    def test_the_deadline_holds_within_a_member(self):
        """All passes of one member take longer than the time that is given."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200_000, 10))
        y = X[:, 0] * (1 + np.tanh(X[:, 1])) + X[:, 2] + rng.normal(size=len(X))
        begin = time.process_time()  # other work on the machine does not count
        est = NIMORegressorCV(basis="linear", max_time=2, random_state=0)
        with pytest.warns(ConvergenceWarning, match="max_time=2 s"):
            est.fit(X, y)
        assert time.process_time() - begin < 12
        assert not est.converged_
        line = LinearRegression().fit(X, y)
        assert est.score(X, y) > line.score(X, y) - 0.01

    def test_time_that_suffices_changes_nothing(self, fitted):
        X, y = draw()
        est = make(max_time=1e6).fit(X, y)
        assert est.converged_
        assert np.array_equal(est.predict(X), fitted.predict(X))


class TestTables:
    """Tables of all kinds go this way."""

    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    def test_families_and_offsets(self, family):
        X, eta = draw()
        rng = np.random.default_rng(2)
        offset = rng.normal(size=N_ROWS)
        mean = np.exp(eta / 3 + offset)
        y = rng.poisson(mean) if family == "poisson" else rng.gamma(5.0, mean / 5)
        est = make(family=family).fit(X, y, offset=offset)
        found = np.log(est.oob_prediction_) - offset
        assert np.corrcoef(found, eta)[0, 1] > 0.5
        assert np.log(est.predict(X, offset=offset)) == pytest.approx(
            est.model_.eta(X) + offset, abs=SUM_ATOL
        )

    def test_an_offset_is_known_and_not_learned(self, fitted):
        X, y = draw()
        offset = np.tanh(y)  # rows are sorted by it, and folds are those of the order
        est = make().fit(X, y + offset, offset=offset)
        assert est.predict(X, 0) == pytest.approx(fitted.predict(X), abs=1e-3)
        assert est.oob_prediction_ - offset == pytest.approx(
            fitted.oob_prediction_, abs=1e-3
        )

    def test_categories_and_missing_values(self, mixed):
        X, y = draw_frame()
        assert r2_score(y, mixed.oob_prediction_) > 0.3

    def test_one_feature_is_a_curve(self):
        X, _ = draw(1000)
        y = np.sin(2 * X[:, 2]) + 0.1 * X[:, 1]
        est = make().fit(X[:, 2:3], y)
        assert est.n_members_ == 0 and est.bend_ == 0
        assert r2_score(y, est.oob_prediction_) > 0.9

    def test_a_constant_column_does_nothing(self, fitted):
        X, y = draw()
        wide = np.column_stack([X[:, :2], np.full(N_ROWS, 3.0), X[:, 2:]])
        with pytest.warns(sknimo.DataWarning, match="Constant column"):
            est = make().fit(wide, y)
        assert est.coef_[2] == 0
        assert r2_score(y, est.oob_prediction_) > 0.2

    def test_lines_stay_lines_where_they_are_asked_for(self):
        X, y = draw()
        est = make(basis="linear", max_iter=5).fit(X, y)
        assert len(est.model_.features.term_feature) == 4
        rows = np.tile(est.reference_, (3, 1))
        rows[:, 2] += (0, 1, 2)
        assert np.diff(est.predict(rows), n=2) == pytest.approx(0, abs=SUM_ATOL)

    def test_only_large_ones_go_this_way_unasked(self, change_settings):
        X, y = draw(100)
        brief = {"n_starts": 1, "max_iter": 3, "random_state": 0}
        for few_rows, hidden in ((0, (64, 64)), (100, (16, 16))):
            change_settings(max_work=1.0, few_rows=few_rows)
            large = NIMORegressorCV(**brief, n_members=2).fit(X, y)
            assert large.path_ is None and math.isnan(large.log_evidence_)
            assert large.model_.spec.hidden == hidden
        never = NIMORegressorCV(**brief, batch_size=0).fit(X, y)
        assert math.isfinite(never.log_evidence_)
        assert not {"additive", "bent"} & set(never.trials_["stage"])


@pytest.mark.slow
def test_coefficients_of_many_rows_are_near_the_truth():
    """No row is near the reference in all features."""
    coef = np.array([1.0, -1.0, 0.5, 2.0, -0.5, 1.0])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 6))
    bends = 1.5 * X[:, 0] * np.tanh(X[:, 1]) + X[:, 3] * X[:, 4]
    y = X @ coef + bends + rng.normal(size=5000)
    est = NIMORegressorCV(n_members=4, random_state=0).fit(X, y)
    assert est.coef_ == pytest.approx(coef, rel=0.15)


@pytest.mark.slow
def test_coefficients_are_effects_at_the_reference():
    """Not those of a dip that only the reference itself would show."""
    X = np.random.default_rng(1).normal(size=(6000, 5))
    y = 2 * np.sin(X[:, 0]) + X[:, 1] * (1 + X[:, 2]) + 0.5 * X[:, 3]
    y += 0.5 * np.random.default_rng(2).normal(size=len(y))
    est = NIMORegressorCV(batch_size=256, random_state=0).fit(X, y)
    assert est.coef_ == pytest.approx([2.0, 1.0, 0.0, 0.5, 0.0], abs=0.5)


@pytest.fixture(scope="module")
def sparse():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    X = np.column_stack([X, X + 0.1 * rng.normal(size=X.shape)])
    y = 2 * np.sin(X[:, 0]) + X[:, 1] * (1 + X[:, 2]) + 0.5 * rng.normal(size=900)
    est = NIMORegressorCV(
        rule="1se",
        batch_size=64,
        n_members=3,
        hidden=(8, 8),
        max_iter=25,
        random_state=0,
    )
    return est.fit(X, y)


@pytest.mark.slow
class TestFewerFeatures:
    """`rule="1se"`, on columns of which the second half repeats the first, noisily."""

    def test_what_acts_by_bending_alone_is_kept(self, sparse):
        assert sparse.coef_[[0, 1]].all()
        assert sparse.model_.input_norms[2] > 0

    def test_what_repeats_others_is_left_out_exactly(self, sparse):
        left_out = np.arange(8) >= 4
        assert not sparse.coef_[left_out].any()
        assert not sparse.model_.input_norms[left_out].any()

    def test_trials_have_what_it_costs(self, sparse):
        trials = sparse.trials_
        tried = [at for at, stage in enumerate(trials["stage"]) if stage == "path"]
        sizes = [trials["n_features"][at] for at in tried]
        assert sizes == [8, 5, 3, 2, 1]
        losses = [trials["loss"][at] for at in tried]
        assert losses[sizes.index(3)] < losses[sizes.index(2)] < losses[-1]
