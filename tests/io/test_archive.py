"""Saved models: what comes back is what was saved, and old files stay readable.

Other libraries serve as oracles where they can: safetensors opens our files, pickle and
joblib copy the same estimators.
"""

import copy
import json
import math
import os
import pickle
import re
import stat
import subprocess
import sys
import time
import warnings
from dataclasses import fields, is_dataclass, replace
from io import BytesIO
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold

import sknimo
from sknimo import (
    ModelFileError,
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    load,
)
from sknimo import features as features_package
from sknimo.estimators._later import work_out
from sknimo.explain import Effects, Reach, TrainingFacts
from sknimo.io import model_from_record, model_record
from sknimo.io._archive import DTYPES
from sknimo.io._checks import Node
from sknimo.io._record import KINDS, basis_from_record, basis_record

# Files must predict the same far from the training rows too.
pytestmark = pytest.mark.filterwarnings("ignore::sknimo.ExtrapolationWarning")

GOLDEN = Path(__file__).parent / "golden"
# Another machine may sum in another order.
GOLDEN_RTOL = {torch.float64: 1e-10, torch.float32: 1e-4}
LEFT_OUT = {"history_", "oob_prediction_", "trials_", "path_", "verdict_", "_held_out"}
# What two classes have none of.
LEFT_OUT |= {"_whole", "_class_errors", "_class_reach", "_n_classes", "_has_offset"}
QUICK = {"max_iter": 8, "random_state": 0}
QUICK_SEARCH = {"n_starts": 1, "max_iter": 4, "hidden": (4, 4), "random_state": 0}


def make_table(n_rows=90, seed=0):
    """Columns of every sort: numbers, levels of several types, missing values."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 12, n_rows),
            "income <€>": rng.lognormal(size=n_rows),
            "city": rng.choice(["Rome", "Oslo", "Köln, am Rhein"], n_rows),
            "dose": rng.normal(size=n_rows),
            "lab": rng.normal(size=n_rows),
            "ward": rng.choice(["A", "B"], n_rows),
            "sex": rng.integers(0, 2, n_rows).astype(float),
        }
    )
    table.loc[::7, "lab"] = np.nan
    table.loc[3::11, "ward"] = None
    return table


def make_eta(table):
    z = (table["age"] - 40) / 12
    bend = 1 + np.tanh(table["dose"]) + table["lab"].fillna(0)
    return z * bend + (table["city"] == "Oslo") + table["dose"] ** 2 / 2


EVERY_KIND = {
    "basis": {"income <€>": "spline", "dose": "poly2"},
    "missing": "indicator",
    "reference": {"age": 40.0, "city": "Rome"},
}


def fit_every_kind(cls=NIMORegressor, n_rows=90, **params):
    table = make_table(n_rows)
    eta = make_eta(table).to_numpy()
    rng = np.random.default_rng(1)
    if issubclass(cls, NIMOClassifier | NIMOClassifierCV):
        y = np.where(rng.random(n_rows) < 1 / (1 + np.exp(-eta)), "yes", "no")
    elif params.get("family") in ("poisson", "gamma"):
        y = rng.poisson(np.exp(np.clip(eta, -2, 2))) + 1.0
    else:
        y = eta + 0.1 * rng.normal(size=n_rows)
    return fit_quietly(cls(**params), table, y), table, y


def fit_quietly(est, table, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits do not converge, by intent
        return est.fit(table, y)


def fit_numeric(cls=NIMORegressor, y=None, n_features=4, **params):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, n_features))
    if y is None:
        y = table[:, 0] * (1 + np.tanh(table[:, 1])) + 0.1 * rng.normal(size=60)
    return fit_quietly(cls(**QUICK | params), table, y), table, y


CASES = {
    "every basis": (NIMORegressor, EVERY_KIND | QUICK),
    "rank-Gauss inputs": (
        NIMORegressor,
        EVERY_KIND | QUICK | {"input_scaling": "rank_gauss"},
    ),
    "ramps": (
        NIMORegressor,
        EVERY_KIND | QUICK | {"basis": "ramps", "input_scaling": "ramps"},
    ),
    "clipped inputs": (NIMORegressor, EVERY_KIND | QUICK | {"clip_inputs": True}),
    "float32": (NIMORegressor, EVERY_KIND | QUICK | {"dtype": "float32"}),
    "poisson": (NIMORegressor, EVERY_KIND | QUICK | {"family": "poisson"}),
    "gamma": (NIMORegressor, EVERY_KIND | QUICK | {"family": "gamma"}),
    "no mask, no code": (
        NIMORegressor,
        EVERY_KIND | QUICK | {"mask": False, "position_code": "none"},
    ),
    "classifier": (NIMOClassifier, EVERY_KIND | QUICK),
    "regression search": (NIMORegressorCV, EVERY_KIND | QUICK_SEARCH),
    "classifier search": (NIMOClassifierCV, EVERY_KIND | QUICK_SEARCH),
}


@pytest.fixture(scope="module", params=CASES)
def saved(request, tmp_path_factory):
    """An estimator, its rows, and the same estimator from a file."""
    cls, params = CASES[request.param]
    est, table, y = fit_every_kind(cls, **params)
    path = tmp_path_factory.mktemp("saved") / "model.sknimo"
    est.save(path)
    return est, table, y, load(path), path


@pytest.fixture(scope="module")
def numeric():
    """A small numeric regression and its rows."""
    est, table, _ = fit_numeric()
    return est, table


@pytest.fixture
def plain(numeric, tmp_path):
    """A copy of that regression, which tests may change, and a place to save it."""
    est, table = numeric
    return copy.deepcopy(est), table, tmp_path / "model.sknimo"


# Fields of records that nothing but a fit reads.
ONLY_TO_FIT = {"walk", "drawn", "even", "left_out"}


def differences(a, b, place="record"):
    """Places where two records differ, bit by bit; NaN equals NaN."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        a, b = a.numpy(), b.numpy()
    if isinstance(a, pd.Index):
        a, b = a.to_numpy(), b.to_numpy()
    if type(a) is not type(b):
        return [f"{place}: {type(a).__name__} and {type(b).__name__}"]
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape
        nan = a.dtype.kind == "f"
        return [] if same and np.array_equal(a, b, equal_nan=nan) else [place]
    if is_dataclass(a):
        names = [f.name for f in fields(a) if f.name not in ONLY_TO_FIT]
        pairs = [(name, getattr(a, name), getattr(b, name)) for name in names]
    elif isinstance(a, dict) and a.keys() == b.keys():
        pairs = [(key, a[key], b[key]) for key in a]
    elif isinstance(a, tuple | list) and len(a) == len(b):
        pairs = [(str(i), *pair) for i, pair in enumerate(zip(a, b, strict=True))]
    else:
        nan = isinstance(a, float) and math.isnan(a) and math.isnan(b)
        return [] if nan or a == b else [f"{place}: {a!r} and {b!r}"]
    return [d for name, x, y in pairs for d in differences(x, y, f"{place}.{name}")]


# --- what comes back -----------------------------------------------------------------


def test_every_attribute_comes_back_but_traces_of_the_training(saved):
    est, _, _, again, _ = saved
    work_out(est)
    before, after = vars(est), vars(again)
    assert type(again) is type(est)
    assert before.keys() - after.keys() <= LEFT_OUT
    assert after.keys() - before.keys() == {"_saved_by"}
    kept = before.keys() - LEFT_OUT
    found = differences({k: before[k] for k in kept}, {k: after[k] for k in kept})
    assert found == []


def test_predictions_are_equal_to_the_last_bit(saved):
    est, table, y, again, _ = saved
    wild = make_table(50, seed=9)
    wild["age"] *= 10
    for rows in (table, wild):
        assert np.array_equal(again.predict(rows), est.predict(rows))
        if hasattr(est, "predict_proba"):
            assert np.array_equal(again.predict_proba(rows), est.predict_proba(rows))
    assert again.score(table, y) == est.score(table, y)


@pytest.mark.slow
def test_explanations_are_equal_to_the_last_bit(saved):
    est, table, y, again, _ = saved
    for name in ("explain", "effects", "interactions"):
        found = getattr(again, name)(table)
        assert differences(getattr(est, name)(table), found, name) == []
    price = again.price_of_nonlinearity(table, y)
    assert differences(est.price_of_nonlinearity(table, y), price) == []
    assert differences(est.first_layer(), again.first_layer()) == []
    assert str(again.summary()) == str(est.summary())
    assert again.summary()._repr_html_() == est.summary()._repr_html_()


def test_columns_are_checked_after_loading_as_before(saved):
    _, table, _, again, _ = saved
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table[table.columns[::-1]])
    unknown = table.assign(city="Atlantis")
    with pytest.raises(ValueError, match="Atlantis"):
        again.predict(unknown)


def test_a_loaded_estimator_can_be_saved_fitted_and_cloned(saved, tmp_path):
    est, table, y, again, path = saved
    again.save(tmp_path / "second.sknimo")
    assert (tmp_path / "second.sknimo").read_bytes() == path.read_bytes()
    assert not hasattr(clone(again), "model_")
    if hasattr(est, "history_"):  # a search would take long
        fit_quietly(again, table, y)
        assert np.array_equal(again.predict(table), est.predict(table))
        assert differences(est.history_, again.history_) == []


@pytest.mark.parametrize(
    "copied",
    [
        lambda est: pickle.loads(pickle.dumps(est)),
        copy.deepcopy,
        lambda est: joblib.load(_rewound(joblib.dump, est)),
    ],
    ids=["pickle", "deepcopy", "joblib"],
)
def test_copies_by_other_means_work_before_and_after(saved, copied):
    est, table, _, again, _ = saved
    for one in (est, again):
        assert np.array_equal(copied(one).predict(table), est.predict(table))


def _rewound(dump, est):
    buffer = BytesIO()
    dump(est, buffer)
    buffer.seek(0)
    return buffer


def test_names_are_remembered_only_if_there_were_any(plain):
    est, table, path = plain
    est.save(path)
    again = load(path)
    assert not hasattr(again, "feature_names_in_")
    assert again.n_features_in_ == table.shape[1]
    assert again.model_.features.names == ("x0", "x1", "x2", "x3")


@pytest.mark.parametrize(
    "labels",
    [
        np.array([False, True]),
        np.array([0, 1]),
        np.array([-1, 1], dtype=np.int8),
        np.array([7, 2**63 + 1], dtype=np.uint64),
        np.array([-1.0, 2.0]),
        np.array([1, 2], dtype=np.float32),
        np.array(["no", "yes"]),
        np.array(["a", "ü“\\"], dtype=object),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_class_labels_keep_their_type(labels, tmp_path):
    y = np.resize(labels, 60)
    est, table, _ = fit_numeric(NIMOClassifier, y=y, max_iter=0)
    est.save(tmp_path / "m.sknimo")
    again = load(tmp_path / "m.sknimo")
    assert again.classes_.dtype == est.classes_.dtype
    assert [type(c) for c in again.classes_] == [type(c) for c in est.classes_]
    assert np.array_equal(again.predict(table), est.predict(table))


def test_traces_of_the_training_are_refused_with_the_reason(plain):
    est, _, path = plain
    assert est.history_ is not None
    est.save(path)
    with pytest.raises(AttributeError, match="history_.*files leave out"):
        _ = load(path).history_
    with pytest.raises(AttributeError, match="no attribute 'path_'$"):
        _ = est.path_


@pytest.mark.parametrize(
    "params",
    [
        {"alpha": np.float64(0.25), "max_iter": np.int64(3)},
        {"hidden": [8, 4], "verbose": np.True_},
        {"memory_budget": math.inf},
        {"categorical": ("x1",), "reference": {"x0": 0.5, "x1": 1}},
    ],
    ids=str,
)
def test_parameters_come_back_with_their_types(params, plain):
    est, _, path = plain
    est.set_params(**params).save(path)
    again = load(path).get_params()
    for name, value in est.get_params().items():
        assert again[name] == value
        assert isinstance(value, np.generic) or type(again[name]) is type(value)


@pytest.mark.slow
def test_arrays_among_the_parameters_come_back(tmp_path):
    grid = np.geomspace(1, 1e-3, 7)
    est, *_ = fit_numeric(NIMORegressorCV, alphas=grid, **QUICK_SEARCH)
    est.save(tmp_path / "m.sknimo")
    assert np.array_equal(load(tmp_path / "m.sknimo").alphas, grid)


def test_parameters_that_are_objects_become_their_defaults(tmp_path):
    search = QUICK_SEARCH | {"cv": KFold(3), "random_state": np.random.RandomState(0)}
    est, table, _ = fit_numeric(NIMORegressorCV, **search)
    est.save(tmp_path / "m.sknimo")
    again = load(tmp_path / "m.sknimo")
    assert again.cv == 5
    assert again.random_state is None
    assert document_of(tmp_path / "m.sknimo")["omitted"] == ["cv", "random_state"]
    assert np.array_equal(again.predict(table), est.predict(table))


def test_numbers_that_are_not_finite_come_back(plain):
    est, _, path = plain
    est.certificate_ = replace(est.certificate_, kkt=math.inf, objective=math.nan)
    est._facts = replace(est._facts, deviance=-math.inf)
    est.save(path)
    again = load(path)
    assert differences(est.certificate_, again.certificate_) == []
    assert differences(est._facts, again._facts) == []


def test_an_estimator_that_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        NIMORegressor().save(tmp_path / "m.sknimo")
    assert list(tmp_path.iterdir()) == []


# --- the record ----------------------------------------------------------------------


def test_every_basis_has_one_entry_in_the_table_of_kinds():
    known = {
        cls
        for cls in vars(features_package).values()
        if is_dataclass(cls) and hasattr(cls, "readout")
    }
    assert [kind.cls for kind in KINDS.values()] == list(
        dict.fromkeys(kind.cls for kind in KINDS.values())
    )
    assert {kind.cls for kind in KINDS.values()} == known
    for kind in KINDS.values():
        # What a fit alone needs is no part of the model, and of no file.
        kept = [field.name for field in fields(kind.cls) if field.compare]
        assert list(kind.fields) == kept


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"basis": "poly2", "clip_inputs": "all"},
        {"basis": "spline", "input_scaling": "rank_gauss"},
        {"basis": "ramps", "input_scaling": "ramps"},
    ],
)
def test_drawn_tails_come_back_around_whatever_they_hold(options):
    x = np.random.default_rng(0).lognormal(sigma=2.0, size=80)
    how = features_package.FeatureOptions(drawn=(0,), **options)
    features = features_package.fit_features(x[:, None], ["x"], np.ones(80), None, how)
    for basis in (features.bases[0], features.input_bases[0]):
        again = basis_from_record(Node(basis_record(basis), "basis"))
        assert np.array_equal(again.terms(x), basis.terms(x))
        assert (again.reference, again.scale) == (basis.reference, basis.scale)


def test_files_keep_every_field_of_the_training_facts():
    # A new field needs a place in the file, and with it a new schema.
    from sknimo.estimators._saving import DEVIANCES, EFFECTS, RATIOS

    derived = {"names", "kinds", "roles", "family", "origin"}
    stored = {*EFFECTS, *RATIOS, "contrast", "directed", "levels", "n_rows"}
    asked = {"corrected", "std_err", "lower", "upper"}  # with targets alone
    assert {field.name for field in fields(Effects)} == stored | derived | asked
    facts = {field.name for field in fields(TrainingFacts)}
    compared = {"comparisons", "near"}
    assert facts == {"n_samples", "swap", "effects", "reach", *compared, *DEVIANCES}
    reach = {field.name for field in fields(Reach)}
    made = {"columns", "low", "high", "end", "reference", "scale"}  # by the model
    assert reach == made | {"shape"}


PLAIN = (dict, list, str, int, float, bool, np.ndarray)


def test_a_record_is_plain_values_and_arrays(saved):
    est, *_ = saved
    record = model_record(est.model_)

    def plain(value):
        assert value is None or type(value) in PLAIN
        inner = value.values() if type(value) is dict else value
        for item in inner if type(value) in (dict, list) else ():
            plain(item)

    plain(record)
    assert differences(model_from_record(record), est.model_) == []


def test_a_record_shares_no_memory_with_the_model(plain):
    est, table, _ = plain
    expected = est.predict(table)
    record = model_record(est.model_)
    model = model_from_record(record)
    for name in ("coef", "intercept", "params"):
        record[name][...] = 7.0
    record["modulated"][...] = False
    assert np.array_equal(est.predict(table), expected)
    assert np.array_equal(model.eta(table), expected)


# --- the file ------------------------------------------------------------------------


def document_of(path):
    with safe_open(path, framework="numpy") as file:
        assert file.metadata().keys() == {"sknimo"}
        return json.loads(file.metadata()["sknimo"])


def test_safetensors_reads_our_files(saved):
    est, *_, path = saved
    with safe_open(path, framework="numpy") as file:
        assert np.array_equal(file.get_tensor("coef"), est.model_.coef.numpy())
        assert np.array_equal(file.get_tensor("params"), est.model_.params.numpy())
        assert file.get_tensor("modulated").dtype == np.uint8
        kinds = {file.get_slice(name).get_dtype() for name in file.keys()}
    assert kinds <= DTYPES.keys()


def test_the_document_says_what_it_is(saved):
    est, *_, path = saved
    document = document_of(path)
    assert document["format"] == "sknimo"
    assert document["schema"] == 5
    assert document["class"] == type(est).__name__
    assert document["library"] == sknimo.__version__
    assert [f["name"] for f in document["model"]["features"]] == list(make_table())


def test_the_checksum_is_of_the_whole_file_with_its_digits_blank(saved):
    import hashlib

    *_, path = saved
    raw = path.read_bytes()
    digest = document_of(path)["sha256"]
    blank = raw.replace(digest.encode(), b"0" * 64)
    assert len(re.findall(digest.encode(), raw)) == 1
    assert hashlib.sha256(blank).hexdigest() == digest


def test_saving_twice_gives_the_same_bytes(plain):
    est, _, path = plain
    est.save(path)
    first = path.read_bytes()
    est.save(str(path))
    assert path.read_bytes() == first


def test_a_feature_may_be_named_like_the_blank_checksum(tmp_path):
    table = make_table()
    zeros = table.rename(columns={"sex": "0" * 64, "age": '"sha256":"' + "0" * 64})
    est = NIMORegressor(missing="indicator", **QUICK)
    fit_quietly(est, zeros, make_eta(table).to_numpy())
    est.save(tmp_path / "m.sknimo")
    again = load(tmp_path / "m.sknimo")
    assert np.array_equal(again.predict(zeros), est.predict(zeros))


def fifty_features():
    """Fifty features that all act, three members."""
    est, *_ = fit_numeric(n_features=50, alpha=0.0, network_alpha=0.0)
    model, _facts = est.model_, est._facts
    three = {
        name: getattr(model, name).repeat(3, *[1] * (getattr(model, name).ndim - 1))
        for name in ("coef", "intercept", "params", "modulated")
    }
    est._show_model(replace(model, **three))
    return est


def test_fifty_features_and_three_members_are_small_and_fast(tmp_path):
    est = fifty_features()
    path = tmp_path / "m.sknimo"
    est.save(path)
    assert path.stat().st_size < 200_000
    row = np.zeros((1, 50))
    seconds = []
    for _ in range(5):
        start = time.process_time()
        load(path).predict(row)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.05


def test_a_sparse_model_of_many_features_is_small(tmp_path):
    est, *_ = fit_numeric(n_features=300, alpha=0.3)
    est.save(tmp_path / "m.sknimo")
    p = 300
    assert (est.coef_ != 0).sum() < 30
    # The full gauge alone would take 8 p^2 bytes.
    weights = est.model_.params.nbytes
    assert (tmp_path / "m.sknimo").stat().st_size < weights + 4 * p**2


def test_a_model_too_large_for_the_format_is_refused_in_words(plain, monkeypatch):
    est, _, path = plain
    monkeypatch.setattr("sknimo.io._archive.MAX_HEADER_BYTES", 1000)
    with pytest.raises(ValueError, match="too large to save.*rare levels"):
        est.save(path)
    assert not path.exists()


# --- replacing -----------------------------------------------------------------------


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_save_leaves_the_old_file_and_no_litter(
    plain, monkeypatch, call, error
):
    est, _, path = plain
    est.save(path)
    before = path.read_bytes()

    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises(type(error)):
            est.set_params(alpha=0.5).save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_save_keeps_the_permissions_and_the_link(plain):
    est, _, path = plain
    real = path.with_name("real.sknimo")
    est.save(real)
    os.chmod(real, 0o640)
    path.symlink_to(real)
    est.set_params(alpha=0.5).save(path)
    assert path.is_symlink()
    assert load(real).alpha == 0.5
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_gets_the_usual_permissions(plain):
    est, _, path = plain
    est.save(path)
    usual = path.with_name("usual")
    usual.write_bytes(b"")
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_folder_that_is_not_there_is_an_os_error(plain):
    est, _, path = plain
    with pytest.raises(FileNotFoundError):
        est.save(path.parent / "nowhere" / "m.sknimo")
    with pytest.raises(FileNotFoundError):
        load(path)


KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from sknimo import load

first, second, target = map(Path, sys.argv[1:4])
models = [load(first), load(second)]
known = {first.read_bytes(), second.read_bytes()}
models[0].save(target)
random.seed(0)
cut = 0
for _ in range(int(sys.argv[4])):
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                model.save(target)
    time.sleep(random.uniform(0.002, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    load(target)
    assert target.read_bytes() in known
    litter = [path for path in target.parent.iterdir() if path.suffix == ".tmp"]
    cut += len(litter)
    for path in litter:
        path.unlink()
print(cut)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_kill_during_save_leaves_a_whole_file(plain):
    est, _, path = plain
    est.save(path)
    other = path.with_name("other.sknimo")
    est.set_params(alpha=0.5).save(other)
    folder = path.parent / "target"
    folder.mkdir()
    arguments = [path, other, folder / "m.sknimo", "100"]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Some saves were cut in the middle, or the test would show nothing.
    assert int(done.stdout) > 0


# --- files of old --------------------------------------------------------------------


def golden_table(rows):
    """Rows of a golden file as the frame or array that it was fitted on."""
    return pd.DataFrame(rows) if isinstance(rows, dict) else np.array(rows)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sknimo")), ids=lambda p: p.stem)
def test_a_golden_file_loads_and_predicts_as_ever(path):
    truth = json.loads(path.with_suffix(".json").read_text())
    est = load(path)
    rtol = GOLDEN_RTOL[est.model_.params.dtype]
    table = golden_table(truth["rows"])
    assert type(est).__name__ == truth["class"]
    assert est.coef_ == pytest.approx(truth["coef"], rel=rtol)
    eta = est.model_.eta(est._read_table(table))
    assert eta == pytest.approx(truth["eta"], rel=rtol)
    prediction = est.predict(table)
    if est.model_.family.name == "binomial":
        assert prediction.tolist() == truth["prediction"]
    else:
        assert prediction == pytest.approx(truth["prediction"], rel=rtol)
    explained = est.explain(table)
    total = explained.base_value + explained.values.sum(axis=1)
    assert total == pytest.approx(eta, rel=rtol)
    assert str(est.summary())


def test_golden_files_cover_every_class_and_every_basis():
    classes, kinds = set(), set()

    def note(basis):
        kinds.add(type(basis))
        if hasattr(basis, "basis"):
            note(basis.basis)

    for path in GOLDEN.glob("*.sknimo"):
        est = load(path)
        classes.add(type(est))
        for basis in est.model_.features.bases + est.model_.features.input_bases:
            note(basis)
    assert classes == {NIMORegressor, NIMOClassifier, NIMORegressorCV, NIMOClassifierCV}
    assert kinds == {kind.cls for kind in KINDS.values()}


def test_the_one_error_is_a_value_error():
    assert issubclass(ModelFileError, ValueError)
