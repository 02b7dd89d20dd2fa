"""Small tables and searching estimators that have little to do.

The builders are functions; `searched` is one fit that many tests look at, and leave as
it is.
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMOClassifierCV, NIMORegressor, NIMORegressorCV
from sknimo.estimators._base import BaseNIMO

SHORT = {
    "alphas": (0.1, 0.01),
    "cv": 3,
    "n_starts": 2,
    "max_iter": 15,
    "hidden": (4, 4),
    "random_state": 0,
    "basis": "linear",
}

# Of the mixed table.
CURVES = {"dose": "spline", "size": "poly2"}
SMALL = {"max_iter": 60, "alpha": 1e-3, "network_alpha": 0.1, "learning_rate": 0.03}
SEARCH = {
    "alphas": (1e-3,),
    "cv": 2,
    "n_starts": 1,
    "relax": False,
    "max_iter": 25,
    "hidden": (8, 8),
}


@pytest.fixture(
    params=[
        "gaussian",
        pytest.param("binomial", marks=pytest.mark.slow),
        pytest.param("poisson", marks=pytest.mark.slow),
        pytest.param("gamma", marks=pytest.mark.slow),
    ]
)
def family(request):
    """Every family; in the quick tests one speaks for all."""
    return request.param


@pytest.fixture(scope="session")
def make_search():
    """A search of a few steps: `make_search("poisson", n_starts=4)`."""

    def make(family="gaussian", **options):
        if family == "binomial":
            return NIMOClassifierCV(**SHORT | options)
        return NIMORegressorCV(family, **SHORT | options)

    return make


@pytest.fixture(scope="session")
def make_glm(make_search):
    """No time for restarts: the path of lines and its folds alone."""

    def make(family="gaussian", **options):
        alone = {"alphas": None, "max_time": 0, "max_iter": 1}
        return make_search(family, **alone | options)

    return make


@pytest.fixture(scope="session")
def draw_bent():
    """Rows and target: `x0` bent by `x1`, and `x2`."""

    def draw(family="gaussian", n_rows=60, seed=0):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_rows, 3))
        eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) - 0.5 * X[:, 2]
        if family == "gaussian":
            return X, eta + 0.1 * rng.normal(size=n_rows)
        if family == "binomial":
            return X, (rng.random(n_rows) < 1 / (1 + np.exp(-2 * eta))).astype(int)
        if family in ("poisson", "negative_binomial"):
            return X, rng.poisson(np.exp(eta / 2)).astype(float)
        return X, rng.gamma(5.0, np.exp(eta / 2) / 5.0)

    return draw


@pytest.fixture(scope="session")
def draw_linear():
    """A linear truth in unequal units, half of it zero unless `dense`."""

    def draw(n_rows=80, n_features=6, noise=1.0, seed=0, dense=False):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n_rows, n_features)) + 0.5 * rng.normal(size=(n_rows, 1))
        coef = rng.uniform(0.2, 0.8, n_features)
        coef[::2] *= dense
        y = X @ coef + noise * rng.normal(size=n_rows)
        return X * np.logspace(-1, 2, n_features) + 3, y

    return draw


@pytest.fixture
def data(draw_bent):
    """Sixty bent rows and their target."""
    return draw_bent()


@pytest.fixture(scope="session")
def searched(make_search, draw_bent):
    """The short search of these rows, which keeps a network."""
    est = make_search().fit(*draw_bent())
    assert est.n_members_ > 0
    return est


@pytest.fixture
def change_settings(monkeypatch):
    """Replace numbers that decide: `change_settings(relaxation=(0.0,))`."""

    def change(**numbers):
        settings = replace(BaseNIMO._settings, **numbers)
        monkeypatch.setattr(BaseNIMO, "_settings", settings)

    return change


@pytest.fixture(scope="session")
def draw_mixed():
    """A mixed table as pandas, and a target that interactions shape.

    A line (age), curves (dose, size), two and three levels (sex, region), a flag
    (member), and missing values in one column of each kind.
    """

    def draw(n_rows=160, seed=0, missing=True):
        rng = np.random.default_rng(seed)
        frame = pd.DataFrame(
            {
                "age": rng.normal(50, 10, n_rows),
                "dose": rng.gamma(2.0, 2.0, n_rows),
                "size": rng.uniform(-2, 2, n_rows),
                "sex": rng.choice(["f", "m"], n_rows, p=[0.6, 0.4]),
                "region": rng.choice(
                    ["north", "south", "west"], n_rows, p=[0.5, 0.3, 0.2]
                ),
                "member": rng.random(n_rows) < 0.3,
            }
        )
        age = (frame["age"] - 50) / 10
        south = (frame["region"] == "south") - 0.5 * (frame["region"] == "west")
        eta = (
            age * (1 + np.tanh(2 * frame["size"])) * (1 + 0.5 * (frame["sex"] == "m"))
            + 0.6 * frame["size"] ** 2
            + np.sin(frame["dose"]) * (1 + 0.4 * frame["member"])
            + south * (1 + 0.6 * age)
            + 0.5 * frame["member"]
        )
        y = (eta + 0.1 * rng.normal(size=n_rows)).to_numpy()
        if missing:
            frame.loc[rng.random(n_rows) < 0.15, "dose"] = np.nan
            frame.loc[rng.random(n_rows) < 0.15, "region"] = None
        return frame, y

    return draw


@pytest.fixture(scope="session")
def mixed(draw_mixed):
    return draw_mixed()


@pytest.fixture(scope="session")
def make_small():
    """A small estimator for the mixed table."""

    def make(cls=NIMORegressor, **options):
        given = SEARCH if cls in (NIMORegressorCV, NIMOClassifierCV) else SMALL
        shared = {"basis": CURVES, "missing": "indicator", "random_state": 0}
        return cls(**given | shared | options)

    return make


@pytest.fixture(scope="session")
def plain(mixed, make_small):
    """The regressor of the mixed table, to be left as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_small().fit(*mixed)
