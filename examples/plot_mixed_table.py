"""
A table as users have it: levels, curves, missing values
========================================================

Simulated patients with a text column of two levels, one of four, an age whose effect is
a curve, and a laboratory value that was not always measured. Each feature is one
feature, however many columns it takes: it has one row in the table, one curve or one
list of contrasts, and one share of every prediction.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sknimo import NIMORegressorCV
from sknimo.plots import (
    plot_beeswarm,
    plot_coefficients,
    plot_correction,
    plot_effect,
    plot_effect_curve,
    plot_levels,
    plot_pair_surface,
    plot_waterfall,
)

rng = np.random.default_rng(0)
n = 300
X = pd.DataFrame(
    {
        "age": rng.uniform(20, 80, n),
        "sex": rng.choice(["woman", "man"], n, p=[0.55, 0.45]),
        "clinic": rng.choice(
            ["north", "south", "east", "west"], n, p=[0.4, 0.3, 0.2, 0.1]
        ),
        "dose": rng.uniform(0, 40, n),
        "crp": rng.lognormal(1.0, 0.6, n),
    }
)
age, dose = (X["age"] - 50) / 15, (X["dose"] - 20) / 10
y = 0.8 * age**2 + dose * (1 + 0.8 * (X["clinic"] == "south"))
y += 1.5 * (X["sex"] == "man") * (1 + 0.5 * np.tanh(dose))
y += X["clinic"].map({"north": 0.0, "south": 0.5, "east": -1.0, "west": 0.0})
# Whoever looked well was not measured: a missing value says something by itself.
missing = rng.random(n) < 0.15
y += np.where(missing, -1.0, 0.3 * (X["crp"] - 3)) + 0.5 * rng.normal(size=n)
X.loc[missing, "crp"] = np.nan

est = NIMORegressorCV(
    basis={"age": "spline"}, missing="indicator", n_starts=1, random_state=0
).fit(X, y)

# %%
# The table has one row per feature and one per level. Its head says whose effects these
# are: those of a person at the reference.
print(est.summary())

# %%
# Contrasts of all levels and of missing values, at the reference and on average.
effects = est.effects(X)
print(effects.levels.to_frame().round(2).to_string(index=False))
fig, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plot_coefficients(effects, axes[0])
plot_levels(effects, axes[1])

# %%
# What each feature does with all others at the reference. The curve is exactly what the
# model says; grey points are contributions in the rows, where others bend it.
explanation = est.explain(X)
fig, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
plot_effect_curve(est.effect_curve("age", X), axes[0], rows=explanation)
plot_effect_curve(est.effect_curve("crp", X), axes[1], rows=explanation)
plot_effect_curve(est.effect_curve("clinic"), axes[2])

# %%
# The dose works better in the south. Three views of the same: the coefficient along the
# clinics, what both do together, and the contributions in the rows.
fig, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
plot_correction(est.correction_curve("dose", "clinic", X=X), axes[0], rows=explanation)
plot_pair_surface(est.pair_surface("dose", "clinic", X=X), axes[1])
plot_effect(explanation, axes[2], feature="dose", modifier="clinic")

# %%
# One patient and all of them. Levels have names, and a missing value is one.
row = int(np.flatnonzero(X["crp"].isna() & (X["sex"] == "man"))[0])
fig, axes = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
plot_waterfall(explanation, axes[0], row=row)
plot_beeswarm(explanation, axes[1])

# %%
# Would another reference tell another story? For a curve it must: the slope at a
# quartile is not the slope at the mean.
print(est.reference_sensitivity(X))
plt.show()
