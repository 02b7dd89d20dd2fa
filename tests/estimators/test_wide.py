"""Tables of about as many columns as rows: as good as ridge or the lasso, as it is due.

Oracles: ridge and the lasso of scikit-learn, with penalties by cross-validation.
"""

import numpy as np
import pytest
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.metrics import mean_squared_error

from sknimo import NIMORegressorCV

N_ROWS, N_FEATURES = 100, 150


def draw(n_active, seed):
    """Training rows and new ones of a linear model with as much noise as signal."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS + 3000, N_FEATURES))
    if n_active == N_FEATURES:  # what all have in common can be learned from few rows
        X += rng.normal(size=(len(X), 4)) @ rng.normal(size=(4, N_FEATURES))
    eta = X[:, :n_active] @ rng.normal(size=n_active)
    y = eta / eta.std() + rng.normal(size=len(X))
    return X[:N_ROWS], y[:N_ROWS], X[N_ROWS:], y[N_ROWS:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sknimo.exceptions.ExtrapolationWarning")
@pytest.mark.parametrize("n_active", [3, N_FEATURES])
def test_wide_tables_are_predicted_by_what_suits_them(n_active):
    rivals = RidgeCV(np.logspace(0, 5, 21)), LassoCV(max_iter=100_000)
    losses = []
    for seed in range(3):
        X, y, new, truth = draw(n_active, seed)
        own = NIMORegressorCV(random_state=0, n_jobs=1).fit(X, y)
        models = own, *(model.fit(X, y) for model in rivals)
        losses.append([mean_squared_error(truth, m.predict(new)) for m in models])
    ours, ridge, lasso = np.mean(losses, axis=0)
    assert ours < 1.05 * min(ridge, lasso)
    assert ours < 0.95 * max(ridge, lasso)


@pytest.mark.parametrize("n_features", [4, 16])
def test_a_summary_says_whether_bends_were_looked_for(n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, n_features))
    y = X[:, 0] + rng.normal(size=30)
    est = NIMORegressorCV(n_starts=1, cv=2, n_members=2, max_iter=5, random_state=0)
    text = " ".join(str(est.fit(X, y).summary()).split())
    wide = 2 * n_features > 30
    assert ("were not searched for: there are fewer than two rows" in text) == wide
    assert est.n_members_ == 0 or not wide
