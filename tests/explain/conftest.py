"""Fitted and random models that the explanation tests share.

Fitted models are trained once per session and briefly: identities hold for every
network, good or bad. Random models bend much harder than any fit would.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.explain import Explainable, describe_training
from sknimo.families import get_family
from sknimo.features import FeatureMap, Linear, Polynomial
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack

FAMILIES = ("gaussian", "binomial", "poisson", "gamma")
NAMES = ("age", "dose", "weight", "smoker", "noise")


class Regressor(NIMORegressor, Explainable):
    """The estimator with explanations mixed in."""


class Classifier(NIMOClassifier, Explainable):
    """The estimator with explanations mixed in."""


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
            Classifier(**options)
            if family == "binomial"
            else Regressor(family=family, **options)
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
