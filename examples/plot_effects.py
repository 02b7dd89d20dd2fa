"""
Read a fitted model: coefficients, average effects, summary
===========================================================

Ten measurements of diabetes patients and the progress of their disease a year later.
The summary reads like any regression table; the effects table adds what a straight line
cannot say: how far an effect varies between patients, and what it varies with.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sknimo import NIMORegressor
from sknimo.plots import plot_coefficients, plot_nonlinearity

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
est = NIMORegressor(alpha=0.02, network_alpha=2.0, tol=1e-3, random_state=0).fit(X, y)

# %%
# The table. Each coefficient holds at the average patient, per unit of its feature.
print(est.summary())

# %%
# One row per feature. ``average_effect`` is the mean over the patients, ``bend`` the
# share of the effect that varies from patient to patient: 0 is a straight line.
effects = est.effects(X)
columns = ["feature", "role", "coef", "average_effect", "effect_sd", "bend", "bent_by"]
print(effects.to_frame()[columns].round(3).to_string(index=False))

# %%
# Beside the lasso, per standard deviation so that units do not matter.
lasso = make_pipeline(StandardScaler(), LassoCV()).fit(X, y)
rival = lasso[-1].coef_ / lasso[0].scale_
fig, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plot_coefficients(effects, axes[0], against={"lasso": rival})
plot_nonlinearity(effects, axes[1])
plt.show()
