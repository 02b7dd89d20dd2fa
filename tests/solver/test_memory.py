"""Memory follows n d h, never n d d.

Shapes: n rows, d features, h hidden units.
"""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sknimo import NIMORegressor
from sknimo.network import MASKED_PRODUCT_INPUTS
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    Options,
    fit_evidence,
    solve,
    start_state,
)
from sknimo.solver._tangent import needed_bytes

HIDDEN = (8, 8)
MEMORY_LIMIT = 2e9  # bytes, the figure promised for 100,000 x 50
# Both ways to take the first product: few inputs, and more than fit a masked product.
SIZES = pytest.mark.parametrize(
    ("n_rows", "n_features"), [(400, 40), (200, MASKED_PRODUCT_INPUTS + 6)]
)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest output of any operation, backward passes included."""

    def __init__(self):
        super().__init__()
        self.numel = 0
        self.n_calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.n_calls += 1
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


def test_watch_sees_forward_and_backward_tensors():
    """The guard itself: it must notice an n d d tensor, wherever it is made."""
    x = torch.randn(20, 5, requires_grad=True)
    with LargestTensor() as watch:
        value = (x.unsqueeze(2) * x.unsqueeze(1)).sum()
    assert watch.numel == 20 * 5 * 5
    with LargestTensor() as watch:
        torch.autograd.grad(value, x)
    assert watch.numel == 20 * 5 * 5


@pytest.mark.parametrize("scale_contributions", [False, True])
@SIZES
def test_training_never_makes_a_tensor_of_n_d_d_elements(
    n_rows, n_features, scale_contributions, make_problem, make_members
):
    problem = make_problem(n_rows=n_rows, widths=(1,) * n_features, hidden=HIDDEN)
    bend = 1 + problem.terms[:, -1].tanh()
    problem = replace(problem, y=problem.terms.sum(1) * bend)  # every feature counts
    members = make_members(problem, penalty="ridge", alpha=0.01)
    options = Options(
        max_iter=3, check_every=2, noise=0.1, scale_contributions=scale_contributions
    )
    with LargestTensor() as watch:
        solution = solve(problem, members, options)
    assert solution.modulated.all()
    block = n_rows * n_features * max(HIDDEN)
    assert block <= watch.numel < n_rows * n_features**2
    assert watch.numel == block


@SIZES
def test_profile_never_makes_a_tensor_of_n_d_d_elements(
    n_rows, n_features, make_problem, make_members, make_params, profile
):
    problem = make_problem(
        "poisson", n_rows=n_rows, widths=(1,) * n_features, hidden=HIDDEN
    )
    members = make_members(problem, penalty="ridge", alpha=0.1)
    params = make_params(problem.spec, size=0.1)
    with LargestTensor() as watch:
        profile(problem, members, Options(), params)
    assert watch.numel < n_rows * n_features**2


@SIZES
def test_estimator_never_makes_a_tensor_of_n_d_d_elements(n_rows, n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    y = X.sum(axis=1) * (1 + np.tanh(X[:, 0]))
    est = NIMORegressor(
        penalty="ridge", hidden=HIDDEN, max_iter=3, tol=0.0, random_state=0
    )
    with LargestTensor() as watch, pytest.warns(match="iteration limit"):
        est.fit(X, y)
    assert watch.n_calls > 100
    assert watch.numel < n_rows * n_features**2
    with LargestTensor() as watch:
        est.predict(X)
    assert est.model_.modulated.all()
    assert watch.numel < n_rows * n_features**2


def test_budget_cuts_the_activations(make_problem, make_members):
    """With the rows in chunks even the n d h block is never made at once."""
    problem = make_problem(n_rows=400, widths=(1,) * 20, hidden=HIDDEN)
    members = make_members(problem, penalty="ridge", alpha=0.01)
    options = Options(max_iter=2, memory_budget=400_000)
    with LargestTensor() as watch:
        solve(problem, members, options)
    assert watch.numel <= 400 * 20 * max(HIDDEN) // 4


@pytest.mark.slow
def test_a_gauss_newton_step_never_makes_the_whole_jacobian(make_problem, make_params):
    """Blocks of rows, the normal equations and a few columns, but not n x m numbers."""
    n_rows, n_features, spare = 3000, 6, 400_000
    problem = make_problem(n_rows=n_rows, widths=(1,) * n_features, hidden=HIDDEN)
    n_parameters = n_features + problem.spec.n_params
    weight = torch.ones(n_rows, dtype=torch.float64)
    everything = torch.ones(n_features, dtype=torch.bool)
    at = Coefficients(torch.ones(1, n_features).double(), torch.zeros(1).double())
    params = make_params(problem.spec)[0]
    start = start_state(problem, weight, params, at, everything, everything)
    budget = needed_bytes(n_rows, n_parameters) + spare
    options = EvidenceOptions(max_iter=2, burn_in=0, memory_budget=budget)
    with LargestTensor() as watch:
        state = fit_evidence(problem, weight, start, options)
    assert state.input_support.all()
    assert watch.numel <= max(spare // 8, n_parameters**2, n_rows * n_features)
    assert watch.numel < n_rows * n_parameters / 5


SEARCH_20_000_X_20 = """
import json, resource, warnings
import numpy as np
from sknimo import NIMORegressorCV

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 20))
y = X[:, 0] * (1 + np.tanh(X[:, 1])) + 0.1 * rng.normal(size=20_000)
options = dict(n_starts=1, max_iter=2, cv=2, alphas=[0.1], batch_size=0)
NIMORegressorCV(**options).fit(X[:50], y[:50])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
est = NIMORegressorCV(memory_budget=100e6, random_state=0, **options).fit(X, y)
print(json.dumps({"growth": peak() - before, "n_members": est.n_members_}))
"""


@pytest.mark.slow
def test_a_search_stays_near_its_budget():
    """The Jacobian, its copies and the activations would take a gigabyte."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCH_20_000_X_20],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    report = json.loads(done.stdout)
    assert report["n_members"] > 0
    assert report["growth"] < 200e6  # the budget, and a few tables of 3 MB


FIT_100_000_X_50 = """
import json, resource, warnings
import numpy as np
from sknimo import NIMORegressor

warnings.simplefilter("ignore")  # ten steps do not converge
rng = np.random.default_rng(0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
X = rng.normal(size=(100_000, 50))
y = X @ rng.normal(size=50) + X[:, 0] * X[:, 1]
est = NIMORegressor(max_iter=10, tol=0.0, random_state=0).fit(X, y)
print(json.dumps({"growth": peak() - before, "n_iter": est.n_iter_}))
"""


@pytest.mark.slow
def test_a_hundred_thousand_rows_fit_in_two_gigabytes():
    done = subprocess.run(
        [sys.executable, "-c", FIT_100_000_X_50],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    report = json.loads(done.stdout)
    assert report["n_iter"] == 10
    assert report["growth"] < MEMORY_LIMIT
