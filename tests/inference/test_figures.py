"""Figures and pages show the intervals that `conf_int` has."""

import numpy as np
import pytest

from sknimo import NIMORegressor
from sknimo.datasets import make_nimo_regression

plots = pytest.importorskip("sknimo.plots")


@pytest.fixture(scope="module")
def fitted():
    data = make_nimo_regression(setting=4, n_samples=200, random_state=0)
    est = NIMORegressor(max_iter=0, alpha=0, basis="spline").fit(data.X, data.y)
    return est, data


def test_a_forest_plot_has_the_ends_of_the_intervals(fitted):
    est, data = fitted
    found = est.conf_int()
    effects = est.effects(data.X)
    ax = plots.plot_coefficients(effects, intervals=found, standardised=False)
    (bars,) = [c for c in ax.collections if len(c.get_segments()) == len(found.coef)]
    ends = np.array([segment[:, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(np.sort(ends[:, 0]), np.sort(found.lower))
    np.testing.assert_allclose(np.sort(ends[:, 1]), np.sort(found.upper))
    other = NIMORegressor(max_iter=0).fit(data.X[:, :3], data.y)
    with pytest.raises(ValueError, match="same estimator"):
        plots.plot_coefficients(effects, intervals=other.conf_int())


def test_a_curve_has_both_of_its_bands(fitted):
    est, data = fitted
    curve, band = est.effect_curve("x0", data.X), est.curve_band("x0")
    plain = plots.plot_effect_curve(curve)
    shaded = plots.plot_effect_curve(curve, band=band)
    assert len(shaded.collections) == len(plain.collections) + 2
