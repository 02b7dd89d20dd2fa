"""Problems to search, and states that no fit had to find."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from sknimo.families import get_family
from sknimo.features import FeatureMap, FeatureOptions, fit_features
from sknimo.network import make_spec
from sknimo.search import Settings, movable_reference, search
from sknimo.search._runner import Runner, Start
from sknimo.solver import Coefficients, EvidenceOptions, Problem, start_state
from sknimo.training import Fold, TaskStore, state_columns


@dataclass(frozen=True)
class Task:
    """A table that can be searched."""

    problem: Problem
    folds: list
    features: FeatureMap
    table: np.ndarray

    def search(self, seed=0, moves=False, store=None, keeps=True, **settings):
        """The outcome of a short search."""
        reference = movable_reference(self.features, self.table, keeps)
        short = {"alphas": (0.1, 0.01), "n_starts": 2, "max_iter": 15}
        return search(
            self.problem,
            self.folds,
            Settings(**short | settings),
            weight=torch.ones(self.problem.n_rows, dtype=torch.float64),
            random=np.random.RandomState(seed),
            store=store,
            reference=reference if moves else None,
        )


@pytest.fixture(scope="session")
def make_task():
    """Four features: `x0` bent by `x1`, and `x2`; or a straight line of the two.

    Coefficients are those around the mean of the rows, off the centre of the bend by
    `off` standard errors.
    """

    def make(
        family="gaussian",
        n_rows=80,
        bent=True,
        off=0.0,
        noise=0.1,
        seed=0,
        basis="linear",
    ):
        rng = np.random.default_rng(seed)
        table = rng.normal(size=(n_rows, 4))
        table = (table - table.mean(0)) / table.std(0)
        x = table - off / np.sqrt(n_rows)
        bend = np.tanh(2 * x[:, 1]) if bent else 0.0
        eta = x[:, 0] * (1 + bend) - 0.5 * x[:, 2]
        if family == "gaussian":
            y = eta + noise * rng.normal(size=n_rows)
            y = (y - y.mean()) / y.std()
        else:
            y = rng.gamma(5.0, np.exp(eta / 2) / 5.0)
        names, ones = [f"x{j}" for j in range(4)], np.ones(n_rows)
        how = FeatureOptions(basis=basis)
        features = fit_features(table, names, ones, (None,) * 4, how)
        problem = Problem(
            columns=state_columns(features, table),
            term_feature=torch.as_tensor(features.term_feature),
            term_group=torch.as_tensor(features.term_group),
            y=torch.as_tensor(y),
            offset=torch.zeros(n_rows, dtype=torch.float64),
            family=get_family(family),
            spec=make_spec(features.input_feature.tolist(), 4, (4, 4)),
        )
        third = np.arange(n_rows) % 3
        folds = [Fold(1.0 * (third != f), 1.0 * (third == f)) for f in range(3)]
        return Task(problem, folds, features, table)

    return make


@pytest.fixture
def make_state(make_problem, make_params):
    """A member of a problem of four features that uses all of them."""

    def make(problem):
        everything = torch.ones(4, dtype=torch.bool)
        return start_state(
            problem,
            torch.ones(problem.n_rows, dtype=torch.float64),
            make_params(problem.spec)[0],
            Coefficients(torch.ones(1, 4).double(), torch.zeros(1).double()),
            everything,
            everything,
        )

    return make


@pytest.fixture
def make_start():
    """Where a restart begins that is shown all of four features, or some."""

    def make(seed=0, shown=(True,) * 4, stage="wide"):
        shown = torch.tensor(shown)
        return Start(stage, seed, 1.0, 0.1, shown, shown)

    return make


@pytest.fixture
def make_runner():
    """Runs restarts of a problem whose rows weigh the same."""

    def make(problem, max_iter=100, **settings):
        weight = torch.ones(problem.n_rows, dtype=torch.float64)
        options = EvidenceOptions(max_iter=max_iter)
        return Runner(weight, Settings(**settings), options, TaskStore())

    return make
