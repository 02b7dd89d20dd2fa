"""The benchmark of coverage knows its truths, and intervals hold them."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from sknimo.datasets import make_nimo_regression

FILE = Path(__file__).parents[2] / "benchmarks" / "intervals.py"

pytestmark = pytest.mark.skipif(
    not FILE.exists(), reason="not part of a source distribution"
)
# Of ten tables with five effects each, at 95 %: fewer are rare by chance (1 in 300).
LEAST_COVERED = 0.86


@pytest.fixture(scope="module")
def coverage():
    # Under another name: a library is called coverage, too.
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop(spec.name)


@pytest.mark.parametrize("setting", [1, 2, 3])
def test_truths_are_those_of_the_simulated_settings(coverage, setting):
    design = coverage.DESIGNS[f"setting{setting}"]
    data = make_nimo_regression(setting, n_samples=20, random_state=0)
    np.testing.assert_allclose(design.eta(data.X), data.signal, atol=1e-12)
    at = np.zeros(design.n_features)
    truth = design.effects(at, np.array(design.constants))
    np.testing.assert_allclose(truth, data.coef, atol=1e-6)


def test_the_oracle_of_a_line_is_least_squares(coverage):
    design = coverage.DESIGNS["linear"]
    x = design.rows(np.random.default_rng(0), 50)
    wide = np.column_stack([np.ones(50), x[:, :5]])
    expected = np.sqrt(np.diag(np.linalg.inv(wide.T @ wide)))[1:]
    found = design.oracle(x, np.zeros(design.n_features))
    np.testing.assert_allclose(found[:5], expected, rtol=1e-6)
    assert bool((found[5:] == 0).all())


def test_a_column_of_two_values_has_the_change_between_them(coverage):
    design = coverage.DESIGNS["mixed"]
    constants = np.array(design.constants)
    effects = [design.effects(np.eye(6)[0] * at, constants) for at in (0.0, 1.0)]
    assert effects[0][0] == pytest.approx(1.5)
    assert effects[1][0] == pytest.approx(1.5)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(coverage):
    records = []
    for seed in range(10):
        records += coverage.replicate(("linear", 200, seed))
    own = [r for r in records if r["cov_type"] == "nonrobust"]
    active = [r for r in own if r["active"]]
    inside = [r["lower"] <= r["truth"] <= r["upper"] for r in active]
    assert np.mean(inside) >= LEAST_COVERED
    null = [r for r in own if not r["active"]]
    claims = [r["lower"] > 0 or r["upper"] < 0 for r in null]
    assert np.mean(claims) <= 0.12
    width = np.mean([r["upper"] - r["lower"] for r in active])
    oracle = np.mean([2 * coverage.WIDTH_95 * r["oracle_err"] for r in active])
    assert width < 2 * oracle
