"""Fitted and random models that the explanation tests share.

Fitted models are trained once per session and briefly: identities hold for every
network, good or bad. Random models bend much harder than any fit would.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.explain import describe_training
from sknimo.families import get_family
from sknimo.features import (
    FeatureMap,
    FeatureOptions,
    Linear,
    Polynomial,
    fit_features,
)
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack

FAMILIES = ("gaussian", "binomial", "poisson", "gamma")
NAMES = ("age", "dose", "weight", "smoker", "noise")


@dataclass(frozen=True, eq=False)
class Fitted:
    """An estimator with the rows it was fitted to."""

    est: object
    X: pd.DataFrame
    y: np.ndarray

    @property
    def table(self):
        return self.X.to_numpy()

    @property
    def model(self):
        return self.est.model_


def draw_target(family, eta, rng):
    if family == "gaussian":
        return eta + 0.2 * rng.normal(size=len(eta))
    if family == "binomial":
        return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(int)
    mean = np.exp(eta / 2)
    return rng.poisson(mean) if family == "poisson" else rng.gamma(5.0, mean / 5)


def fit_briefly(est, X, y, facts=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    if facts:
        target = est._read_target(y).values
        est._facts = describe_training(est.model_, X.to_numpy(), target)
    return Fitted(est, X, np.asarray(y))


@pytest.fixture(scope="session")
def fitted_models():
    """One brief fit per family: dose acts, age bends it, smoker is binary."""
    rng = np.random.default_rng(0)
    n_rows = 160
    X = pd.DataFrame(rng.normal(size=(n_rows, 5)), columns=list(NAMES))
    X["age"] = 50 + 12 * X["age"]
    X["smoker"] = (X["smoker"] > 0).astype(float)
    age = (X["age"] - 50) / 12
    eta = X["dose"] * (1 + np.tanh(age)) + 0.6 * X["weight"] * (1 + age * X["smoker"])
    eta = (eta - 0.5 * age + 0.8 * X["smoker"]).to_numpy()
    models = {}
    for family in FAMILIES:
        options = dict(
            alpha=0.005, network_alpha=0.3, hidden=(8, 8), max_iter=120, random_state=0
        )
        est = (
            NIMOClassifier(**options)
            if family == "binomial"
            else NIMORegressor(family=family, **options)
        )
        models[family] = fit_briefly(est, X, draw_target(family, eta, rng))
    return models


@pytest.fixture(params=FAMILIES)
def fitted(request, fitted_models):
    """The brief fit of each family in turn."""
    return fitted_models[request.param]


@dataclass(frozen=True)
class SwappedModel(FittedModel):
    """The same function with products moved between channels, (q, q)."""

    swap: torch.Tensor | None = None

    def local_term_coef(self, terms, inputs):
        local = FittedModel.local_term_coef(self, terms, inputs)
        return local - inputs @ self.swap.T


@pytest.fixture
def swap_products():
    """Move a random multiple of `x_i x_j` from channel i to j, for each pair."""

    def swapped(model, pairs, seed=0):
        rng = np.random.default_rng(seed)
        q = len(model.features.term_feature)
        swap = np.zeros((q, q))
        for i, j in pairs:
            amount = rng.normal()
            swap[i, j] += amount
            swap[j, i] -= amount
        names = FittedModel.__dataclass_fields__
        fields = {name: getattr(model, name) for name in names}
        return SwappedModel(**fields, swap=torch.as_tensor(swap))

    return swapped


@pytest.fixture
def make_model():
    """A random model; `idle` features have no role, `deaf` ones only modify."""

    def make(
        n_features=4,
        n_members=1,
        family="gaussian",
        seed=0,
        idle=(),
        deaf=(),
        curved=(),
        size=0.8,
    ):
        rng = np.random.default_rng(seed)
        lines = [Linear(rng.normal(), rng.uniform(0.5, 3)) for _ in range(n_features)]
        bases = tuple(
            Polynomial(line.reference, line.scale, 1.0) if j in curved else line
            for j, line in enumerate(lines)
        )
        features = FeatureMap(tuple(f"x{j}" for j in range(n_features)), bases)
        owner = features.term_feature
        spec = make_spec(owner.tolist(), n_features, (6, 5))
        params = init_params(spec, range(seed, seed + n_members))
        weights = unpack(spec, params)
        generator = torch.Generator().manual_seed(seed)
        weights.out.copy_(
            size * torch.randn(weights.out.shape, generator=generator).double()
        )
        silent = np.isin(owner, [*idle, *deaf])
        coef = rng.normal(size=(n_members, len(owner))) * ~silent
        weights.first[:, :, np.isin(owner, list(idle))] = 0
        modulated = np.ones((n_members, n_features), dtype=bool)
        modulated[:, [*idle, *deaf]] = False
        return FittedModel(
            features=features,
            family=get_family(family),
            spec=spec,
            coef=torch.as_tensor(coef),
            intercept=torch.as_tensor(rng.normal(size=n_members)),
            params=params,
            modulated=torch.as_tensor(modulated),
        )

    return make


@pytest.fixture
def draw_table():
    """Rows around a model's reference, (n, p)."""

    def draw(model, n_rows=50, seed=1):
        rng = np.random.default_rng(seed)
        features = model.features
        shape = (n_rows, features.n_features)
        return features.reference + features.scale * rng.normal(size=shape)

    return draw


# Every kind of feature: basis, input of the network, and whether values may be missing.
LEVELS = {
    "sex": ("man", "woman"),
    "region": ("north", "east <&> $x$", "south", "two\nlines"),
    "blood": (0, 1, 2),
    "twin": (False, True),
    "site": ("only",),
}
MIXED = (
    "age",  # straight line, rank-Gauss input
    "dose",  # parabola, clipped input
    "bmi",  # spline with missing values
    "income",  # straight line with missing values, rank-Gauss input
    "smoker",  # number with two values
    *LEVELS,
    "constant",
)
MISSING = ("bmi", "income", "blood", "twin")


def draw_mixed_table(n_rows=60, seed=0):
    """Rows of every kind of feature, codes for levels and NaN for missing."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": 50 + 12 * rng.normal(size=n_rows),
        "dose": rng.uniform(0, 40, n_rows),
        "bmi": 25 + 4 * rng.normal(size=n_rows),
        "income": np.exp(rng.normal(size=n_rows)),
        "smoker": (rng.random(n_rows) < 0.3).astype(float),
        "constant": np.ones(n_rows),
    }
    for name, levels in LEVELS.items():
        shares = np.arange(len(levels), 0, -1) / np.arange(1, len(levels) + 1).sum()
        columns[name] = rng.choice(len(levels), n_rows, p=shares).astype(float)
    for name in MISSING:
        columns[name][rng.random(n_rows) < 0.15] = np.nan
    return np.column_stack([columns[name] for name in MIXED])


def mixed_features(seed=0):
    table = draw_mixed_table(200, seed + 100)
    levels = [LEVELS.get(name) for name in MIXED]
    basis = {"bmi": "spline", "dose": "poly2"}

    def fit(**options):
        options = FeatureOptions(basis=basis, **options)
        return fit_features(
            table, MIXED, np.ones(len(table)), levels, options, quiet=True
        )

    clipped, ranked = fit(clip_inputs=True), fit(input_scaling="rank_gauss")
    standard = fit()
    inputs = list(standard.input_bases)
    for name, other in (("age", ranked), ("income", ranked), ("dose", clipped)):
        inputs[MIXED.index(name)] = other.input_bases[MIXED.index(name)]
    return replace(standard, input_bases=tuple(inputs))


@pytest.fixture
def make_mixed():
    """A random model of every kind of feature that bends hard."""

    def make(n_members=2, family="gaussian", seed=0, deaf=(), size=0.6):
        features = mixed_features(seed)
        rng = np.random.default_rng(seed)
        p = features.n_features
        owner = features.term_feature
        spec = make_spec(features.input_feature.tolist(), p, (6, 5))
        params = init_params(spec, range(seed, seed + n_members))
        generator = torch.Generator().manual_seed(seed)
        out = unpack(spec, params).out
        out.copy_(size * torch.randn(out.shape, generator=generator).double())
        silent = np.isin(owner, [MIXED.index(name) for name in deaf])
        coef = rng.normal(size=(n_members, len(owner))) * ~silent
        return FittedModel(
            features=features,
            family=get_family(family),
            spec=spec,
            coef=torch.as_tensor(coef),
            intercept=torch.as_tensor(rng.normal(size=n_members)),
            params=params,
            modulated=torch.ones(n_members, p, dtype=torch.bool),
        )

    return make


@pytest.fixture
def mixed(make_mixed):
    return make_mixed()


@pytest.fixture
def draw_mixed():
    """Rows for such a model, `(n_rows, seed) -> (n, p)`."""
    return draw_mixed_table


@pytest.fixture
def mixed_table(draw_mixed):
    return draw_mixed()
