"""The plain estimator with penalties set by hand reaches the paper's figures."""

import numpy as np
import pytest

from sknimo import NIMORegressor
from sknimo.datasets import make_nimo_regression

# Mean squared error of NIMO in the paper, 200 training rows.
PAPER = {1: 0.024, 2: 0.197}
SEEDS = range(10)  # the penalties were chosen on seeds 101 to 108


@pytest.mark.slow
@pytest.mark.parametrize("setting", PAPER)
def test_penalties_set_by_hand_reach_the_paper(setting):
    errors = []
    for seed in SEEDS:
        train = make_nimo_regression(setting=setting, n_samples=200, random_state=seed)
        test = make_nimo_regression(
            setting=setting, n_samples=1000, random_state=5000 + seed
        )
        est = NIMORegressor(
            penalty="sub_l1",
            delta=0.33,
            alpha=0.002,
            network_alpha=1.0,
            noise=0.1,
            max_iter=2000,
            patience=1000,
            dtype="float32",
            random_state=seed,
        ).fit(train.X, train.y)
        errors.append(np.mean((est.predict(test.X) - test.y) ** 2))
    assert np.median(errors) <= PAPER[setting]
