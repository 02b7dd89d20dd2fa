"""`basis="auto"`: the evidence finds curves, and leaves lines alone."""

from dataclasses import replace

import numpy as np
import pytest

from sknimo.families import get_family
from sknimo.features import FeatureOptions, Spline, fit_features
from sknimo.rows import WeightedRows
from sknimo.training import CurveRules
from sknimo.training._curves import Additive, choose_curves, split_curves

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


def test_what_a_curve_promises_is_its_gain_in_marginal_likelihood():
    """With the best precision for all of its columns, and everything else as it is."""
    X, y = draw(n_rows=60)
    X, y = X[:, 1:3], (y - y.mean()) / y.std()
    names, none, weight = ["a", "b"], (None, None), np.ones(len(X))
    splines, parabolas = (
        fit_features(X, names, weight, none, FeatureOptions(basis=kind))
        for kind in ("spline", "poly2")
    )
    parts = split_curves(X, splines, parabolas, [0, 1], weight)
    rows = WeightedRows(X, y, weight, np.zeros(len(X)))
    rules = CurveRules(promise=1e9)
    additive = Additive(parts, rows, get_family("gaussian"), rules)
    outside = parts.role != 0
    promise = additive._promise(additive.state, outside)

    state = additive.state
    lines = parts.columns(state.support.numpy() & ~outside)
    prior = state.coef_precision.numpy()[state.support.numpy() & ~outside]
    spread = (
        state.dispersion * np.eye(len(y)) + 1e7 + lines @ np.diag(1 / prior) @ lines.T
    )

    def likelihood(spread):
        _, log_det = np.linalg.slogdet(spread)
        return -(log_det + y @ np.linalg.solve(spread, y)) / 2

    for part in np.flatnonzero(outside):
        block = parts.design[:, parts.part == part]
        best = max(
            likelihood(spread + block @ block.T / precision)
            for precision in np.logspace(-6, 8, 300)
        )
        assert promise[part] == pytest.approx(best - likelihood(spread), abs=0.02)


def test_a_curve_may_show_only_beside_another():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.5 * rng.normal(size=300)
    assert choose(X[:, 1:], y) == ["linear"]
    assert choose(X, y) == ["spline", "poly2"]


@pytest.mark.parametrize(("values", "kind"), [(3, "ramps"), (7, "spline")])
def test_a_parabola_is_none_where_few_rows_lie_far_out(values, kind):
    """Their code would be all that it tells."""
    rng = np.random.default_rng(0)
    X = rng.integers(values - 1, size=(600, 1)).astype(float)
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=600)
    y[X[:, 0] == 0] -= 2.0
    X[:12], y[:12] = 666.0, 3.0
    assert choose(X, y) == [kind]
