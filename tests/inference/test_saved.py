"""Intervals are kept with the model, and old files say that they have none."""

import pickle

import numpy as np
import pytest

from sknimo import NIMORegressor, load
from sknimo.datasets import make_nimo_regression
from sknimo.estimators._later import Later


@pytest.fixture(scope="module")
def fitted():
    data = make_nimo_regression(setting=4, n_samples=80, random_state=0)
    return NIMORegressor(max_iter=0, basis="spline").fit(data.X, data.y)


def test_a_loaded_model_has_the_same_intervals(fitted, tmp_path):
    fitted.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo")
    for cov_type in ("nonrobust", "HC3"):
        one, two = (e.conf_int(cov_type=cov_type) for e in (fitted, again))
        np.testing.assert_array_equal(one.lower, two.lower)
        np.testing.assert_array_equal(one.upper, two.upper)
    bands = [e.curve_band("x0").all_upper for e in (fitted, again)]
    np.testing.assert_array_equal(*bands)
    assert str(again.summary()) == str(fitted.summary())


def test_a_model_without_them_says_so(fitted, tmp_path):
    fitted.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo")
    del vars(again)["_uncertainty"]  # as in files of earlier versions
    assert set(again.conf_int().notes) == {"not kept"}
    assert "No standard errors" in str(again.summary())
    with pytest.raises(ValueError, match="saved before intervals"):
        again.contrast({"x1": 1})


def test_errors_wait_for_who_asks_and_rows_do_not_travel():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    est = NIMORegressor(max_iter=0).fit(X, X[:, 0] + rng.normal(size=40))
    waiting = {name for name, value in vars(est).items() if isinstance(value, Later)}
    assert waiting == {"_facts", "_uncertainty"}
    again = pickle.loads(pickle.dumps(est))
    assert not any(isinstance(value, Later) for value in vars(again).values())
    np.testing.assert_array_equal(again.cov_, est.cov_)
