"""Contrasts of levels are those of the coefficients that they name."""

import numpy as np
import pandas as pd
import pytest

from sknimo import NIMORegressor

OFF = {"alpha": 0.0, "max_iter": 0}


def test_missing_values_are_a_level():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=120), "g": rng.choice(list("uvw"), 120)})
    X["g"] = X["g"].mask(rng.random(120) < 0.2)
    y = X["a"] + X["g"].isna() + rng.normal(size=120)
    est = NIMORegressor(missing="indicator", **OFF).fit(X, y)
    wanted = est.contrast({"g[missing]": 1, "g[v]": -1})
    named = NIMORegressor(**OFF).fit(X.fillna("missing"), y)  # a level of the user
    for one in (est, named):
        found = one.contrast("g", "missing", "v")
        assert found.names == ("g[missing] - g[v]",)
        assert found.estimate == pytest.approx(wanted.estimate)
        assert found.std_err == pytest.approx(wanted.std_err)
    with pytest.raises(ValueError, match=r"no level 'q'.*'w', 'missing'\]"):
        est.contrast("g", "q", "u")
