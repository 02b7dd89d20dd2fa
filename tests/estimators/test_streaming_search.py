"""Searches on rows that come in blocks, or shared out to processes: the same model.

Shapes: n rows, p columns, F folds.
"""

import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from sknimo import NIMOClassifierCV, NIMORegressorCV, RowBlocks, load
from sknimo.datasets import make_nimo_regression
from sknimo.estimators import _base
from sknimo.exceptions import CheckpointError
from sknimo.search import Settings, _blocks
from sknimo.training import _data

# Blocks change the order of sums alone, but the network is one of single precision.
ATOL = 1e-6
FAST = {
    "batch_size": 64,
    "max_iter": 4,
    "hidden": (6, 5),
    "n_members": 3,
    "cv": 3,
    "random_state": 0,
}


def make_table(family="gaussian", n_rows=300, seed=0):
    """Features, target and offset in the order in which a table in memory is kept."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) + 0.5 * X[:, 2]
    offset = np.sort(0.1 * rng.normal(size=n_rows))
    if family == "gaussian":
        return X, eta + offset + 0.1 * rng.normal(size=n_rows), offset
    if family == "binomial":
        y = np.where(eta + offset + 0.3 * rng.logistic(size=n_rows) > 0, "yes", "no")
        return X, y, offset
    return X, rng.poisson(np.exp(eta / 2 + offset)).astype(float), offset


def cut(X, y, *others, size=70):
    """The rows in blocks."""
    columns = (X, y, *others)
    return RowBlocks(
        [
            tuple(None if c is None else c[begin : begin + size] for c in columns)
            for begin in range(0, len(X), size)
        ]
    )


def make_estimator(family, **params):
    params = {**FAST, **params}
    if family == "binomial":
        return NIMOClassifierCV(**params)
    return NIMORegressorCV(family, **params)


def predict(est, X):
    return est.decision_function(X) if hasattr(est, "classes_") else est.predict(X)


@pytest.fixture(scope="module")
def streamed():
    X, y, offset = make_table()
    return make_estimator("gaussian").fit(cut(X, y, None, offset))


class TestSameHoweverCut:
    @pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
    def test_folds_members_and_predictions(self, family):
        X, y, offset = make_table(family)
        whole = cut(X, y, None, offset, size=len(X))
        theirs = make_estimator(family).fit(whole)
        ours = make_estimator(family).fit(cut(X, y, None, offset))
        assert ours.trials_["loss"] == pytest.approx(theirs.trials_["loss"], abs=ATOL)
        assert ours.trials_["seed"] == theirs.trials_["seed"]
        assert ours.bend_ == pytest.approx(theirs.bend_, abs=ATOL)
        assert ours.n_members_ == theirs.n_members_
        assert ours.verdict_.gain == pytest.approx(theirs.verdict_.gain, abs=ATOL)
        assert predict(ours, X) == pytest.approx(predict(theirs, X), abs=ATOL)
        for name in ("n_samples", "deviance", "null_deviance", "glm_deviance"):
            ours_, theirs_ = getattr(ours._facts, name), getattr(theirs._facts, name)
            assert ours_ == pytest.approx(theirs_, rel=1e-5), name

    def test_a_table_in_memory_gives_the_same_model(self):
        X, y, offset = make_table()
        ours = make_estimator("gaussian").fit(cut(X, y, None, offset))
        theirs = make_estimator("gaussian").fit(X, y, offset=offset)
        assert ours.n_members_ == theirs.n_members_
        assert ours.coef_ == pytest.approx(theirs.coef_, abs=0.02)
        assert ours.predict(X) == pytest.approx(theirs.predict(X, 0), abs=0.1)

    def test_the_network_is_worth_having(self):
        data = make_nimo_regression(setting=1, n_samples=500, random_state=0)
        est = NIMORegressorCV(batch_size=64, n_members=4, random_state=0)
        est.fit(cut(data.X, data.y))
        new = make_nimo_regression(setting=1, n_samples=1000, random_state=1)
        assert est.n_members_ == 4
        assert (est.verdict_.network_loss < est.verdict_.glm_loss).all()
        assert np.mean((est.predict(new.X) - new.y) ** 2) < 0.3  # the lasso has 3

    def test_noise_is_left_to_the_additive_model(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 4))
        est = make_estimator("gaussian").fit(cut(X, X[:, 0] + rng.normal(size=400)))
        assert est.n_members_ == 0
        assert est.bend_ == 0


class TestSample:
    """Of rows that memory does not hold bags have a part."""

    @pytest.fixture
    def few(self, monkeypatch):
        monkeypatch.setattr(_base.BaseNIMO, "_settings", Settings(sample_rows=150))

    def test_it_is_drawn_by_place_not_by_block(self, few):
        X, y, offset = make_table()
        one, other = (
            make_estimator("gaussian").fit(cut(X, y, None, offset, size=size))
            for size in (300, 11)
        )
        assert np.array_equal(one.predict(X), other.predict(X))

    def test_it_has_the_share_that_was_asked_for(self, few, streamed, monkeypatch):
        drawn, draw = [], _blocks.draw_rows

        def watch(problem, settings):
            drawn.append(draw(problem, settings))
            return drawn[-1]

        monkeypatch.setattr(_blocks, "draw_rows", watch)
        X, y, offset = make_table()
        est = make_estimator("gaussian").fit(cut(X, y, None, offset))
        assert len(drawn[0]) == pytest.approx(150, abs=2)
        # Every second row, or every third, is as likely as any other.
        for period in (2, 3, 24):
            counts = np.bincount(drawn[0] % period, minlength=period)
            assert np.ptp(counts) <= 4
        assert not np.array_equal(est.predict(X), streamed.predict(X))
        assert est._facts.n_samples == 300


class TestBlocks:
    def test_their_size_changes_nothing(self, streamed):
        X, y, offset = make_table()
        other = make_estimator("gaussian").fit(cut(X, y, None, offset, size=11))
        assert np.array_equal(streamed.predict(X), other.predict(X))

    def test_too_small_a_budget_is_refused_with_an_estimate(self):
        X, y, _ = make_table(n_rows=20_000)
        with pytest.raises(ValueError, match=r"needs about [\d.]+ MB.*20000 rows"):
            make_estimator("gaussian", memory_budget=1.2e6).fit(cut(X, y))

    def test_without_time_the_additive_model_is_kept_and_said_so(self):
        X, y, _ = make_table()
        with pytest.warns(ConvergenceWarning, match="max_time=0"):
            est = make_estimator("gaussian", max_time=0).fit(cut(X, y))
        assert not est.converged_
        assert np.isfinite(est.predict(X)).all()

    def test_the_gradient_at_the_reference_is_the_coefficient(self, streamed):
        step = 1e-5
        for j, coef in enumerate(streamed.coef_):
            rows = np.tile(streamed.reference_, (2, 1))
            rows[:, j] += (-step, step)
            low, high = streamed.predict(rows)
            assert (high - low) / (2 * step) == pytest.approx(coef, abs=1e-6)


class TestFaults:
    @pytest.mark.parametrize(
        ("params", "fit", "message"),
        [
            ({"cv": KFold(3)}, {}, "splitter .* whole number"),
            ({"cv": [([0, 1], [2, 3])]}, {}, "splitter .* whole number"),
            ({}, {"groups": np.arange(300)}, "groups refers to the rows of a table"),
            ({"batch_size": 0}, {}, "batch_size=0 asks for the evidence"),
        ],
        ids=["splitter", "pairs", "groups", "evidence"],
    )
    def test_what_needs_a_table_is_refused(self, params, fit, message):
        X, y, _ = make_table()
        with pytest.raises(ValueError, match=message):
            make_estimator("gaussian", **params).fit(cut(X, y), **fit)

    def test_blocks_bring_their_own_targets(self):
        X, y, _ = make_table()
        with pytest.raises(ValueError, match="part of the blocks"):
            NIMORegressorCV().fit(cut(X, y), y)

    def test_a_bad_value_is_named_by_its_row_among_all(self):
        X, y, _ = make_table()
        y[233] = np.nan
        with pytest.raises(ValueError, match="Input y .* row 233"):
            NIMORegressorCV().fit(cut(X, y))


class TestMemoryMaps:
    @pytest.fixture
    def mapped(self, tmp_path, monkeypatch):
        """A table that counts as large, on disk."""
        monkeypatch.setattr(_data, "MERGE_CELLS", 100)
        X, y, _ = make_table()
        np.save(tmp_path / "X.npy", X)
        return np.load(tmp_path / "X.npy", mmap_mode="r"), y

    def test_a_large_one_is_searched_where_it_stands(self, mapped):
        X, y = mapped
        est = make_estimator("gaussian").fit(X, y)
        blocks = make_estimator("gaussian").fit(cut(np.array(X), y))
        assert np.array_equal(est.predict(X), blocks.predict(X))

    def test_what_needs_a_table_reads_it_into_memory(self, mapped, monkeypatch):
        X, y = mapped
        monkeypatch.setattr(_base, "read_stream", None)
        make_estimator("gaussian", cv=KFold(3)).fit(X, y)
        make_estimator("gaussian").fit(X, y, groups=np.arange(300) % 10)
        # By its evidence: Gauss-Newton steps on so few rows are quick.
        est = make_estimator("gaussian", batch_size="auto", n_starts=1).fit(X, y)
        assert np.isfinite(est.log_evidence_)


class TestAfterwards:
    def test_the_model_is_like_any_other(self, tmp_path):
        X, y, offset = make_table()
        frame = pd.DataFrame(X, columns=list("abcd"))
        frame["site"] = np.random.default_rng(0).choice(["Bern", "Thun"], 300)
        frame.loc[::7, "b"] = np.nan
        est = make_estimator("gaussian", missing="indicator")
        est.fit(cut(frame, y, np.ones(300), offset))
        est.save(tmp_path / "m.sknimo")
        again = load(tmp_path / "m.sknimo")
        assert again.predict(frame) == pytest.approx(est.predict(frame), abs=1e-12)
        assert str(again.summary()) == str(est.summary())
        assert "Rows:                              300" in str(est.summary())
        assert est.explain(frame).values.shape == frame.shape
        assert est.feature_names_in_.tolist() == list(frame.columns)


class TestCheckpoint:
    def test_a_search_goes_on_from_its_states(self, streamed, tmp_path):
        X, y, offset = make_table()
        state = tmp_path / "state"
        given = cut(X, y, None, offset)
        est = make_estimator("gaussian", checkpoint=state).fit(given)
        assert np.array_equal(est.predict(X), streamed.predict(X))
        kept = {file.name.split("-")[0] for file in state.iterdir()}
        assert {"curves", "few"} <= kept
        for file in state.glob("few-*"):
            file.unlink()
        again = make_estimator("gaussian", checkpoint=state).fit(given)
        assert np.array_equal(est.predict(X), again.predict(X))

    def test_other_rows_and_folds_are_refused(self, tmp_path):
        X, y, _ = make_table()
        params = {"checkpoint": tmp_path / "state", "max_iter": 1}
        make_estimator("gaussian", **params).fit(cut(X, y))
        with pytest.raises(CheckpointError, match="other folds"):
            make_estimator("gaussian", **params, cv=4).fit(cut(X, y))
        changed = y.copy()
        changed[200] += 1e-9
        with pytest.raises(CheckpointError, match="another fit"):
            make_estimator("gaussian", **params).fit(cut(X, changed))

    def test_a_seed_that_nobody_gave_is_kept(self, tmp_path):
        X, y, _ = make_table()
        params = {"checkpoint": tmp_path / "state", "random_state": None, "max_iter": 1}
        first = make_estimator("gaussian", **params).fit(cut(X, y))
        for file in (tmp_path / "state").glob("few-*"):
            file.unlink()
        second = make_estimator("gaussian", **params).fit(cut(X, y))
        assert np.array_equal(first.predict(X), second.predict(X))


@pytest.mark.slow
def test_memory_stays_near_the_budget():
    code = """
        import resource, warnings
        import numpy as np, torch
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        from sknimo import NIMORegressorCV, RowBlocks

        def rows(n_blocks=10):
            for seed in range(n_blocks):
                X = np.random.default_rng(seed).normal(size=(15_000, 60))
                yield X, X[:, 0] * (1 + X[:, 1])

        def fit(source):
            est = NIMORegressorCV(
                max_iter=1, hidden=(2, 2), batch_size=8192, cv=2, memory_budget=1e8,
                basis="linear", random_state=0,
            )
            est.fit(RowBlocks(source))

        X = np.random.default_rng(0).normal(size=(300, 60))
        fit([(X, X[:, 0])])  # everything is loaded now
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fit(rows)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # The table alone is 72 MB, and as encoded for bags 144 MB.
    assert int(done.stdout.split()[-1]) < 1.5e8
