"""`basis="auto"`: the evidence finds curves, and leaves lines alone."""

from dataclasses import replace

import numpy as np
import pytest

from sknimo.families import get_family
from sknimo.features import FeatureOptions, Spline, fit_features
from sknimo.rows import WeightedRows
from sknimo.training import CurveRules
from sknimo.training._curves import choose_curves

TRUTH = ["linear", "poly2", "spline", "linear", "linear"]


def draw(n_rows=400, seed=0, noise=0.5):
    """A line, a parabola, a wave, and two columns that do nothing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n_rows, 5))
    eta = X[:, 0] + X[:, 1] ** 2 + 1.5 * np.sin(3 * X[:, 2])
    return X, eta + noise * rng.normal(size=n_rows)


def choose(*args, **options):
    """The kind that every column gets."""
    found = read(*args, **options)
    return [found.basis[j] for j in range(args[0].shape[1])]


def read(X, y, family="gaussian", basis="auto", **rules):
    if family == "gaussian":
        y = (y - y.mean()) / y.std()
    n_rows, n_features = X.shape
    y = np.asarray(y, dtype=float)
    return choose_curves(
        WeightedRows(X, y, np.ones(n_rows), np.zeros(n_rows)),
        [f"x{j}" for j in range(n_features)],
        (None,) * n_features,
        FeatureOptions(basis=basis),
        get_family(family),
        CurveRules(**rules),
    )


@pytest.mark.parametrize("seed", range(3))
def test_curves_are_found_and_lines_stay_lines(seed):
    assert choose(*draw(seed=seed)) == TRUTH


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_on_a_log_scale_too(family):
    X, eta = draw(800, noise=0.0)
    rng = np.random.default_rng(1)
    mean = np.exp(eta - eta.mean())
    y = rng.poisson(mean) if family == "poisson" else rng.gamma(3.0, mean / 3.0)
    kinds = choose(X, y, family)
    assert kinds[2] == "spline"
    assert kinds[0] == kinds[3] == "linear"


def test_of_classes_too():
    X, y = draw(1000)
    assert choose(X, y > np.median(y), "binomial") == TRUTH


def test_only_named_features_are_chosen_for():
    kinds = choose(*draw(), basis={0: "spline", 1: "auto"})
    assert kinds == ["spline", "poly2", "linear", "linear", "linear"]


def test_those_that_were_found_are_held_far_outside():
    """A quarter of the range beyond it; what was asked for goes on."""
    X, y = draw()
    names, none = [f"x{j}" for j in range(5)], (None,) * 5
    how = read(X, y, basis={1: "auto", 2: "spline"})
    features = fit_features(X, names, np.ones(len(X)), none, how)
    asked = replace(how, found=())
    free = fit_features(X, names, np.ones(len(X)), none, asked)
    high, width = X[:, 1].max(), np.ptp(X[:, 1])
    at = high + width * np.array([0.0, 0.2, 0.25, 0.3, 3.0])
    held, on = (each.bases[1].terms(at) for each in (features, free))
    assert held[:3] == pytest.approx(on[:3], rel=1e-12)
    assert (held[3:] == held[2]).all()
    assert (features.bases[1].slopes(at)[3:] == 0).all()
    assert isinstance(features.bases[2], Spline)


def test_noise_has_no_curves():
    X, _ = draw()
    y = np.random.default_rng(5).normal(size=len(X))
    assert choose(X, y) == ["linear"] * 5


@pytest.mark.parametrize("max_lines", [4, 100])
def test_many_features_compete_for_curves(max_lines):
    X, y = draw()
    wide = np.column_stack([np.random.default_rng(3).normal(size=(len(X), 6)), X])
    kinds = choose(wide, y, max_curves=3, max_lines=max_lines)
    assert kinds[6:9] == ["linear", "poly2", "spline"]
    assert set(kinds[:6]) == {"linear"}
