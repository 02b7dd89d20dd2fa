"""
Counts: bicycle trips by the hour
=================================

This tutorial models counts with exposure, by a Poisson family and an offset.

Three hundred simulated hours at a counter of bicycles. Trips rise with the temperature,
but less so in the rain, and there are rush hours on workdays alone. Some counters ran
for half of the hour only: their *exposure*.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import PoissonRegressor

from sknimo import NIMORegressorCV
from sknimo.plots import plot_effect_curve, plot_interactions


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "temperature": rng.normal(14, 7, n).round(1),
            "rain": rng.gamma(0.6, 1.2, n).round(1).clip(max=5),
            "hour": rng.integers(6, 22, n).astype(float),
            "day": rng.choice(["workday", "weekend"], n, p=[5 / 7, 2 / 7]),
            "wind": rng.gamma(4, 3, n).round(),
        }
    )
    commute = np.exp(-((X["hour"] - 8) ** 2) / 4) + np.exp(-((X["hour"] - 17) ** 2) / 4)
    workday = X["day"] == "workday"
    rate = 2.2 + 0.05 * (X["temperature"] - 14) * np.exp(-X["rain"]) - 0.15 * X["rain"]
    rate = rate + 0.9 * commute * workday
    exposure = rng.choice([1.0, 0.5], n, p=[0.8, 0.2])
    return X, rng.poisson(exposure * np.exp(rate)), np.log(exposure)


X, y, offset = simulate(300, seed=0)
X_test, y_test, offset_test = simulate(2000, seed=1)

# %%
# Family and offset
# -----------------
#
# ``family="poisson"`` has a log link: coefficients act on the logarithm of the rate,
# and ``exp(coef)`` is a rate ratio. The offset is a known part of it, here the
# logarithm of the exposure. ``basis="spline"`` allows the hour a curve, which no
# straight line could replace.
est = NIMORegressorCV(
    "poisson", basis={"hour": "spline"}, n_starts=1, random_state=0
).fit(X, y, offset=offset)
print(est.summary())

# %%
# Beside the plain Poisson regression, on new hours. scikit-learn has no offset: rates
# with weights do the same.
dummies = pd.get_dummies(X, drop_first=True, dtype=float)
exposure = np.exp(offset)
glm = PoissonRegressor(alpha=1e-4, max_iter=1000, solver="newton-cholesky")
glm.fit(dummies, y / exposure, sample_weight=exposure)
dummies_test = pd.get_dummies(X_test, drop_first=True, dtype=float)


def deviance(mean):
    ratio = np.where(y_test > 0, y_test / mean, 1.0)
    return 2 * np.mean(y_test * np.log(ratio) - (y_test - mean))


plain = glm.predict(dummies_test) * np.exp(offset_test)
print(f"Poisson regression {deviance(plain):.2f}")
print(f"sknimo             {deviance(est.predict(X_test, offset=offset_test)):.2f}")

# %%
# Read the rates
# --------------
#
# Rate ratios per unit, at the reference and on average over the hours.
columns = ["feature", "coef", "rate_ratio", "average_rate_ratio", "bend"]
est.effects(X, offset=offset).to_frame()[columns].round(3)

# %%
# The curve of the hour with everything else at the reference, and which features act on
# each other's effects.
fig, axes = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
plot_effect_curve(est.effect_curve("hour", X), axes[0])
plot_interactions(est.interactions(X), axes[1])

# %%
# Are the counts Poisson? If not, means stay right but likelihoods are too sure. Mean
# squared Pearson residuals far above one say so.
mean = est.predict(X_test, offset=offset_test)
print(f"dispersion {np.mean((y_test - mean) ** 2 / mean):.2f}")
