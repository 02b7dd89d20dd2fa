"""On a GPU the estimators fit, predict and explain as on a CPU."""

from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
)
from sknimo.estimators._later import work_out

DEVICE = "cuda"
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU here"
)
SAME = {"rtol": 1e-6, "atol": 1e-8}  # sums in another order

ONES = {"max_iter": 60, "network_alpha": 0.1, "hidden": (6, 6), "random_state": 0}
SEARCH = {"n_starts": 2, "max_iter": 15, "hidden": (6, 6), "cv": 3, "random_state": 0}
BATCHES = {"batch_size": 64, "max_iter": 20, "hidden": (6, 6), "random_state": 0}
WAYS = {
    "regressor": NIMORegressor(**ONES),
    "poisson": NIMORegressor("poisson", **ONES),
    "single precision": NIMORegressor(dtype="float32", **ONES),
    "batches": NIMORegressor(batch_size=32, noise=0.1, **ONES),
    "curves": NIMORegressor(basis="spline", **ONES),
    "classifier": NIMOClassifier(**ONES),
    "search": NIMORegressorCV(**SEARCH),
    "search of classes": NIMOClassifierCV(**SEARCH),
    "search by batches": NIMORegressorCV(**BATCHES),
}
TRAINED = ("regressor", "poisson", "batches", "curves", "classifier")
EXPLANATIONS = {
    "explain": lambda est, X, y: est.explain(X),
    "native": lambda est, X, y: est.explain(X, method="native"),
    "gradients": lambda est, X, y: est.explain(X, method="integrated_gradients"),
    "shapley": lambda est, X, y: est.explain(X, method="shapley"),
    "effects": lambda est, X, y: est.effects(X),
    "interactions": lambda est, X, y: est.interactions(X),
    "curve": lambda est, X, y: est.effect_curve("dose", X),
    "level": lambda est, X, y: est.effect_curve("ward", X),
    "surface": lambda est, X, y: est.pair_surface("age", "dose", X=X),
    "correction": lambda est, X, y: est.correction_curve("age", "dose", X=X),
    "sensitivity": lambda est, X, y: est.reference_sensitivity(X),
    "price": lambda est, X, y: est.price_of_nonlinearity(X, y),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {
            "age": rng.normal(50, 10, size=n),
            "dose": rng.normal(size=n),
            "ward": rng.choice(["a", "b", "c"], size=n),
            "noise": rng.normal(size=n),
        }
    )
    bend = 1 + np.tanh(X["dose"].to_numpy())
    eta = 0.08 * (X["age"].to_numpy() - 50) * bend + (X["ward"] == "b").to_numpy()
    return X, eta + 0.3 * rng.normal(size=n)


def target(est, y):
    if "Classifier" in type(est).__name__:
        return np.where(y > np.median(y), "high", "low")
    return np.round(np.exp(y / 2)) if est.family == "poisson" else y


def values(record):
    """All numbers of a record and of the records within it."""
    for field in fields(record):
        value = getattr(record, field.name)
        for one in value if isinstance(value, tuple) else [value]:
            if is_dataclass(one):
                yield from values(one)
            elif isinstance(one, np.ndarray | float) and np.asarray(one).dtype != "O":
                yield field.name, one


@pytest.fixture(scope="module")
def fit(rows):
    """Every way is fitted once on each device."""
    made = {}

    def make(way, device):
        if (way, device) not in made:
            est = clone(WAYS[way]).set_params(device=device)
            made[way, device] = est.fit(rows[0], target(est, rows[1]))
        return made[way, device]

    return make


@needs_gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", list(WAYS))
def test_a_gpu_fits_what_a_cpu_fits(way, rows, fit):
    cpu, gpu = fit(way, "cpu"), fit(way, DEVICE)
    found, expected = (
        est.predict_proba(rows[0])[:, 1]
        if hasattr(est, "predict_proba")
        else est.predict(rows[0])
        for est in (gpu, cpu)
    )
    if way in TRAINED:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gpu.coef_, cpu.coef_, rtol=1e-4, atol=1e-5)
    else:  # single precision, and choices that rounding may tip
        assert np.corrcoef(found, expected)[0, 1] > 0.99
    assert gpu.model_.device.type == "cpu"  # models are kept, sent and saved there


@needs_gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", ["regressor", "curves", "classifier", "search"])
def test_a_gpu_predicts_what_a_cpu_predicts(way, rows, fit):
    est = fit(way, "cpu")
    found = clone_fitted(est).set_params(device=DEVICE)
    if way == "classifier":
        one, other = found.predict_proba(rows[0]), est.predict_proba(rows[0])
        np.testing.assert_allclose(one, other, **SAME)
        assert np.array_equal(found.predict(rows[0]), est.predict(rows[0]))
    else:
        np.testing.assert_allclose(found.predict(rows[0]), est.predict(rows[0]), **SAME)


@needs_gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("way", ["regressor", "curves", "classifier", "search"])
@pytest.mark.parametrize("name", list(EXPLANATIONS))
def test_a_gpu_explains_as_a_cpu_does(way, name, rows, fit):
    est = fit(way, "cpu")
    X, y = rows[0][:60], target(est, rows[1])[:60]
    expected = EXPLANATIONS[name](est, X, y)
    found = EXPLANATIONS[name](clone_fitted(est).set_params(device=DEVICE), X, y)
    pairs = list(zip(values(found), values(expected), strict=True))
    assert pairs
    for (field, one), (_, other) in pairs:
        np.testing.assert_allclose(one, other, **SAME, err_msg=field)


@needs_gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_gpu_keeps_the_facts_that_a_cpu_keeps(rows, fit):
    for one, other in zip(
        values(fit("regressor", DEVICE)._facts),
        values(fit("regressor", "cpu")._facts),
        strict=True,
    ):
        np.testing.assert_allclose(
            one[1], other[1], rtol=1e-3, atol=1e-4, err_msg=one[0]
        )
    assert str(fit("regressor", DEVICE).summary())


@needs_gpu
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_gpu_fits_blocks_of_rows(rows):
    X, y = rows
    blocks = RowBlocks(
        [(X[start : start + 64], y[start : start + 64]) for start in range(0, 300, 64)]
    )
    found, expected = (
        NIMORegressor(device=device, batch_size=0, **ONES).fit(blocks)
        for device in (DEVICE, "cpu")
    )
    np.testing.assert_allclose(
        found.predict(X), expected.predict(X), rtol=1e-4, atol=1e-5
    )


def clone_fitted(est):
    other = clone(est)
    work_out(est)  # by the device of the fit
    other.__dict__.update(vars(est))
    return other


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", list(EXPLANATIONS))
def test_where_there_is_no_gpu_the_cpu_explains(name, rows, fit, monkeypatch):
    est = fit("regressor", "cpu")
    X, y = rows[0][:20], rows[1][:20]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = clone_fitted(est).set_params(device="cuda")
    found, expected = (EXPLANATIONS[name](one, X, y) for one in (asked, est))
    for (_, one), (_, other) in zip(values(found), values(expected), strict=True):
        assert np.array_equal(one, other, equal_nan=True)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_explanations_ask_for_the_device_of_predictions(rows, fit, monkeypatch):
    est, asked = clone_fitted(fit("regressor", "cpu")), []
    device = torch.device("cpu")
    monkeypatch.setattr(
        "sknimo.estimators._base.prediction_device",
        lambda name: asked.append(name) or device,
    )
    est.set_params(device="cuda")
    X, y = rows[0][:20], rows[1][:20]
    for name, explanation in EXPLANATIONS.items():
        asked.clear()
        explanation(est, X, y)
        assert asked and set(asked) == {"cuda"}, name
