"""A search that was cut off ends as if it had not been.

Runs are killed with SIGKILL in processes of their own, at random moments spread over
the search; the next run must end with the same bits as one that nobody disturbed. What
the folder belongs to, and what it holds, is tested without.
"""

import errno
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import joblib
import numpy as np
import pytest
import safetensors
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, ShuffleSplit

from sknimo import (
    CheckpointError,
    CheckpointWarning,
    NIMOClassifierCV,
    NIMORegressorCV,
    RowBlocks,
)
from sknimo.solver._crew import Crew
from sknimo.training._stores import TaskStore

SHORT = {
    "alphas": (0.1, 0.01),
    "cv": 3,
    "n_starts": 2,
    "max_iter": 20,
    "hidden": (4, 4),
    "random_state": 0,
    "basis": "linear",  # which curves to take is asked anew by every run
}

WORKER = """
import sys
import numpy as np
from sknimo import NIMORegressorCV

folder, X, y, options = sys.argv[1:]
est = NIMORegressorCV(**eval(options), checkpoint=folder)
est.fit(np.load(X), np.load(y))
"""


def make(checkpoint=None, **options):
    return NIMORegressorCV(**{**SHORT, **options}, checkpoint=checkpoint)


@pytest.fixture(scope="module")
def data():
    """`x0` bent by `x1`, and `x2`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) - 0.5 * X[:, 2]
    return X, eta + 0.1 * rng.normal(size=100)


@pytest.fixture(scope="module")
def expected(data):
    """The model of a search that keeps nothing and is not disturbed."""
    est = make().fit(*data)
    assert est.n_members_ > 0  # every stage has been through
    return est


@pytest.fixture
def idle(monkeypatch):
    """Call it, and whoever computes from then on fails."""

    def fail(*args, **kwargs):
        raise AssertionError("computed what is on disk")

    def stop():
        monkeypatch.setattr(TaskStore, "run", fail)
        monkeypatch.setattr(Crew, "newton_step", fail)

    return stop


def assert_same(est, expected, X):
    """Two fits that are equal to the last bit."""
    for name in ("coef_", "intercept_"):
        assert np.array_equal(getattr(est, name), getattr(expected, name)), name
    for name in ("alpha_", "input_precision_"):  # NaN after a search on bags
        ours, theirs = getattr(est, name), getattr(expected, name)
        assert np.array_equal(ours, theirs, equal_nan=True), name
    for name in ("coef", "intercept", "params", "modulated"):
        assert torch.equal(getattr(est.model_, name), getattr(expected.model_, name))
    assert est.trials_ == expected.trials_
    assert np.array_equal(est.predict(X), expected.predict(X))
    assert (est.path_ is None) == (expected.path_ is None)
    if expected.path_ is not None:
        assert np.array_equal(est.path_.coef, expected.path_.coef)
    assert (est.verdict_ is None) == (expected.verdict_ is None)
    for name in ("network_loss", "glm_loss", "gain", "error"):
        if expected.verdict_ is None:
            break
        ours, theirs = getattr(est.verdict_, name), getattr(expected.verdict_, name)
        assert np.array_equal(ours, theirs), name


def count_states(folder):
    return len(list(Path(folder).glob("*.safetensors")))


def read_states(folder):
    """States by name; every file that has a name is whole."""
    states = {}
    for path in Path(folder).iterdir():
        if path.name.startswith(".sknimo-"):
            continue  # a write that was cut off
        states[path.name] = path.read_bytes()
        safetensors.deserialize(states[path.name])
    return states


class TestKilled:
    @pytest.fixture
    def kill(self, data, tmp_path):
        """Search in a process of its own; kill it after some states and seconds."""
        for name, values in zip("Xy", data, strict=True):
            np.save(tmp_path / name, values)

        def run(folder, n_states, seconds, n_jobs=1):
            options = {**SHORT, "n_jobs": n_jobs}
            inputs = (tmp_path / "X.npy", tmp_path / "y.npy", options)
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, *map(str, (folder, *inputs))],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
            while worker.poll() is None and count_states(folder) < n_states:
                time.sleep(0.002)
            time.sleep(seconds)
            worker.kill()
            killed = worker.wait() == -signal.SIGKILL
            with suppress(ProcessLookupError):
                # Workers of joblib would wait for another five minutes.
                os.killpg(worker.pid, signal.SIGKILL)
            return killed

        return run

    @pytest.mark.parametrize(
        ("n_kills", "n_jobs"),
        [
            pytest.param(20, 1, marks=pytest.mark.slow),
            pytest.param(20, 2, marks=pytest.mark.slow),
        ],
    )
    def test_the_next_run_ends_with_the_same_model(
        self, data, expected, kill, tmp_path, n_kills, n_jobs
    ):
        begin = time.perf_counter()
        make(tmp_path / "whole").fit(*data)
        n_states = count_states(tmp_path / "whole")
        each = (time.perf_counter() - begin) / n_states
        rng = np.random.default_rng(n_kills + n_jobs)
        n_killed = 0
        for k in range(n_kills):
            folder = tmp_path / f"work {k}"
            least = 1 + (k * (n_states - 1)) // n_kills
            n_killed += kill(folder, least, each * rng.random(), n_jobs)
            kept = read_states(folder)
            assert len(kept) >= least
            est = make(folder, n_jobs=n_jobs).fit(*data)
            assert_same(est, expected, data[0])
            now = read_states(folder)
            assert all(now[name] == content for name, content in kept.items())
        assert n_killed > 0.8 * n_kills

    @pytest.mark.slow
    def test_one_folder_survives_kill_after_kill(self, data, expected, kill, tmp_path):
        """Every run adds two states at least; together they finish the search."""
        folder, n_states = tmp_path / "work", 0
        while kill(folder, n_states + 2, 0.0):
            kept = read_states(folder)
            assert len(kept) >= n_states + 2
            n_states = len(kept)
        assert_same(make(folder).fit(*data), expected, data[0])


class TestFolder:
    def test_nothing_is_computed_twice(self, data, expected, idle, tmp_path):
        first = make(tmp_path / "work").fit(*data)
        assert_same(first, expected, data[0])
        idle()
        assert_same(make(tmp_path / "work").fit(*data), expected, data[0])

    def test_any_half_of_the_states_is_enough(self, data, expected, tmp_path):
        make(tmp_path).fit(*data)
        states = sorted(tmp_path.glob("*.safetensors"))
        rng = np.random.default_rng(0)
        for path in rng.choice(states, len(states) // 2, replace=False):
            path.unlink()
        assert_same(make(tmp_path).fit(*data), expected, data[0])

    @pytest.mark.slow
    def test_without_the_folder_the_search_begins_again(self, data, idle, tmp_path):
        folder = tmp_path / "work"
        make(folder).fit(*data)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        idle()
        with pytest.raises(AssertionError, match="computed"):
            make(folder).fit(*data)

    @pytest.mark.parametrize("fault", ["full", "removed"])
    def test_a_folder_that_fails_does_not_cost_the_fit(
        self, data, expected, tmp_path, monkeypatch, fault
    ):
        def fail(_):
            if fault == "removed":
                shutil.rmtree(tmp_path / "work")
            else:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.warns(CheckpointWarning, match="the fit goes on"):
            assert_same(make(tmp_path / "work").fit(*data), expected, data[0])

    def test_classes_resume_too(self, data, idle, tmp_path):
        X, y = data
        est = NIMOClassifierCV(**SHORT, checkpoint=tmp_path).fit(X, y > 0)
        idle()
        again = clone(est).fit(X, y > 0)
        assert np.array_equal(again.predict_proba(X), est.predict_proba(X))

    @pytest.mark.parametrize(
        "options",
        [
            {"rule": "stability"},
            {"rule": "1se"},
            {"relax": False},
            # With curves and without.
            pytest.param({"basis": {0: "spline"}}, marks=pytest.mark.slow),
        ],
    )
    def test_every_rule_resumes(self, data, idle, tmp_path, options):
        expected = make(**options).fit(*data)
        make(tmp_path, **options).fit(*data)
        idle()
        assert_same(make(tmp_path, **options).fit(*data), expected, data[0])

    def test_what_time_cut_short_is_not_kept(self, data, expected, tmp_path):
        """Run by run with little time, and the answer is that of one long run."""
        with pytest.warns(ConvergenceWarning, match="max_time=0 s"):
            make(tmp_path, max_time=0).fit(*data)
        for _ in range(100):
            before = count_states(tmp_path)
            try:
                est = make(tmp_path, max_time=0.5).fit(*data)
            except ConvergenceWarning:
                continue
            break
        assert before > 2
        assert est.converged_
        assert_same(est, expected, data[0])

    def test_processes_time_and_talk_may_change(self, data, expected, idle, tmp_path):
        make(tmp_path).fit(*data)
        idle()
        est = make(str(tmp_path), n_jobs=2, max_time=1e6, verbose=True).fit(*data)
        assert_same(est, expected, data[0])

    def test_a_seed_that_nobody_gave_is_drawn_once(self, data, tmp_path):
        X, y = data
        first, again, other = (
            make(tmp_path / name, random_state=None).fit(X, y) for name in "aab"
        )
        assert_same(again, first, X)
        assert first.trials_["seed"] != other.trials_["seed"]

    @pytest.mark.slow
    def test_a_generator_in_the_same_state_resumes(self, data, idle, tmp_path):
        X, y = data
        state = np.random.RandomState(3)
        first = make(tmp_path, random_state=state).fit(X, y)
        with pytest.raises(CheckpointError, match="another fit"):
            make(tmp_path, random_state=state).fit(X, y)  # it has moved on
        idle()
        again = make(tmp_path, random_state=np.random.RandomState(3)).fit(X, y)
        assert_same(again, first, X)


class TestBlocks:
    """A search on rows in blocks: its curves and its members are one state each."""

    SHORT = {"batch_size": 16, "hidden": (4, 4), "n_members": 3}

    def make(self, folder):
        return NIMORegressorCV(**self.SHORT, random_state=0, checkpoint=folder)

    @pytest.mark.slow
    def test_an_interrupted_search_resumes(self, data, tmp_path, monkeypatch):
        expected = self.make(None).fit(RowBlocks([data]))
        assert expected.n_members_ > 0
        real, names = TaskStore.run, []

        def run(store, name, function, args):
            names.append(name)
            if len(names) == 2:
                raise KeyboardInterrupt
            return real(store, name, function, args)

        monkeypatch.setattr(TaskStore, "run", run)
        with pytest.raises(KeyboardInterrupt):
            self.make(tmp_path).fit(RowBlocks([data]))
        curves, members = (tmp_path / f"{name}.safetensors" for name in names)
        written = curves.stat().st_mtime_ns
        assert not members.exists()
        assert_same(self.make(tmp_path).fit(RowBlocks([data])), expected, data[0])
        assert members.exists()
        assert curves.stat().st_mtime_ns == written
        n_done = len(names)
        assert_same(self.make(tmp_path).fit(RowBlocks([data])), expected, data[0])
        assert len(names) == n_done


class TestOtherWork:
    """A folder belongs to one search on one table."""

    BRIEF = {"max_iter": 2, "n_starts": 1}

    @pytest.fixture
    def folder(self, data, tmp_path):
        make(tmp_path / "work", **self.BRIEF).fit(*data)
        return tmp_path / "work"

    def fit(self, folder, X, y, *args, groups=None, **options):
        make(folder, **self.BRIEF | options).fit(X, y, *args, groups=groups)

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda X, y: (X + 1e-9 * (X == X[3, 2]), y), id="one cell"),
            pytest.param(lambda X, y: (X, y + 1e-9 * (y == y[5])), id="one target"),
            pytest.param(lambda X, y: (X[1:], y[1:]), id="rows"),
            pytest.param(lambda X, y: (X[:, ::-1], y), id="columns"),
            pytest.param(lambda X, y: (X, y, np.arange(1.0, 101)), id="weights"),
            pytest.param(lambda X, y: (X, y, None, X[:, 0]), id="offset"),
        ],
    )
    def test_other_data_are_refused(self, data, folder, change):
        with pytest.raises(CheckpointError, match="another fit.*remove this one"):
            self.fit(folder, *change(*data))

    @pytest.mark.parametrize(
        "options",
        [
            {"n_starts": 2},
            {"random_state": 1},
            {"random_state": None},
            {"rule": "1se"},
            {"hidden": (4, 5)},
            {"alphas": (0.1, 0.02)},
            {"basis": {0: "spline"}},
            {"batch_size": 50},
            {"family": "gamma"},
        ],
    )
    def test_other_parameters_are_refused(self, data, folder, options):
        X, y = data
        with pytest.raises(CheckpointError, match="another fit"):
            self.fit(folder, X, np.exp(y) if "family" in options else y, **options)

    @pytest.mark.parametrize(
        "options",
        [
            {"cv": 4},
            {"cv": KFold(3)},
            {"groups": np.arange(100) // 5},
            {"cv": [(np.arange(50), np.arange(50, 100))]},
        ],
    )
    def test_other_folds_are_refused(self, data, folder, options):
        with pytest.raises(CheckpointError, match="other folds.*remove the folder"):
            self.fit(folder, *data, **options)

    def test_a_splitter_that_shuffles_anew_is_named(self, data, tmp_path):
        make(tmp_path, **self.BRIEF, cv=ShuffleSplit(2)).fit(*data)
        with pytest.raises(CheckpointError, match="without a random_state"):
            make(tmp_path, **self.BRIEF, cv=ShuffleSplit(2)).fit(*data)

    def test_a_refused_fit_leaves_folder_and_estimator_alone(self, data, folder):
        before = {path: path.read_bytes() for path in folder.iterdir()}
        est = make(folder)
        with pytest.raises(CheckpointError):
            est.fit(*data)
        assert not hasattr(est, "model_")
        assert {path: path.read_bytes() for path in folder.iterdir()} == before

    def test_a_damaged_state_is_named(self, data, tmp_path):
        est = make(tmp_path, **self.BRIEF).fit(*data)
        path = next(tmp_path.glob("path-*"))
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(CheckpointError, match=f"{path.name}.*Remove it"):
            est.fit(*data)

    @pytest.mark.parametrize("path", [3, True, ["folder"]])
    def test_what_is_no_path_is_refused(self, data, path):
        with pytest.raises(TypeError, match="checkpoint must be the path of a folder"):
            make(path).fit(*data)

    def test_a_file_is_refused(self, data, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(CheckpointError, match="is a file"):
            make(tmp_path / "file").fit(*data)


class TestParameter:
    def test_clones_pickles_and_parameters_carry_the_folder(self, data, tmp_path):
        est = make(tmp_path, max_iter=2, n_starts=1)
        assert est.get_params()["checkpoint"] == tmp_path
        assert clone(est).checkpoint == tmp_path
        copied = pickle.loads(pickle.dumps(est.fit(*data)))
        assert np.array_equal(copied.predict(data[0]), est.predict(data[0]))
        assert copied.checkpoint == tmp_path


class TestBackends:
    """Whoever runs the tasks, the answer is the same."""

    @pytest.mark.parametrize(
        "backend",
        [
            "threading",
            # Cannot return results one by one, and neither can Ray's.
            "multiprocessing",
            pytest.param("loky", marks=pytest.mark.slow),
        ],
    )
    def test_backends_of_joblib(self, data, expected, tmp_path, backend):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            est = make(tmp_path).fit(*data)
        assert_same(est, expected, data[0])

    @pytest.mark.parametrize(
        "processes", [False, pytest.param(True, marks=pytest.mark.slow)]
    )
    def test_dask(self, data, expected, idle, tmp_path, processes):
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=processes,
                dashboard_address=None,
            ) as cluster,
            distributed.Client(cluster),
            joblib.parallel_config(backend="dask"),
        ):
            est = make(tmp_path).fit(*data)
        assert_same(est, expected, data[0])
        idle()
        assert_same(make(tmp_path).fit(*data), expected, data[0])
