"""On a linear truth the network costs nothing: the fit is as good as the best lasso."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from sknimo import NIMORegressor
from sknimo.datasets import make_nimo_regression

MSE_RATIO = 1.02  # the figure promised on setting 4
ALPHAS = np.geomspace(1e-5, 1e-2, 7)  # for columns and target of unit variance


@pytest.mark.parametrize("seed", range(5))
def test_linear_truth_is_fitted_as_well_as_by_the_best_lasso(seed):
    train = make_nimo_regression(setting=4, n_samples=200, random_state=seed)
    test = make_nimo_regression(setting=4, n_samples=2000, random_state=1000 + seed)
    mean, scale, unit = train.X.mean(0), train.X.std(0), train.y.std()

    def lasso_error(alpha):
        lasso = Lasso(alpha=alpha * unit, tol=1e-8, max_iter=100_000)
        lasso.fit((train.X - mean) / scale, train.y)
        return np.mean((test.y - lasso.predict((test.X - mean) / scale)) ** 2)

    errors = [lasso_error(alpha) for alpha in ALPHAS]
    best = ALPHAS[int(np.argmin(errors))]
    est = NIMORegressor(alpha=best, random_state=0).fit(train.X, train.y)
    assert est.n_iter_ > 0
    error = np.mean((test.y - est.predict(test.X)) ** 2)
    assert error <= MSE_RATIO * min(errors)
