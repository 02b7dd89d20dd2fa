"""
A clinical table: who benefits from the drug?
=============================================

This tutorial goes from a messy table of patients to a report with intervals.

The trial is simulated, so that the truth is known. 300 patients get between 0 and 40 mg
of a drug, and the outcome is the fall of their blood pressure. One mg lowers it by 0.3
mmHg in the average patient, by almost twice that where kidneys are weak (a low eGFR),
and hardly at all where they are strong. Some eGFR values are missing.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sknimo import NIMORegressorCV
from sknimo.plots import plot_coefficients, plot_effect, plot_waterfall


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, n).round(),
            "age": rng.normal(60, 10, n).round(),
            "egfr": rng.normal(75, 18, n).clip(15, 130).round(),
            "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
            "centre": rng.choice(["A", "B", "C"], n),
        }
    )
    response = 1 + 0.8 * np.tanh((75 - X["egfr"]) / 18)
    fall = 8 + 0.3 * (X["dose"] - 20) * response - 0.1 * (X["age"] - 60)
    fall = fall - 2 * (X["smoker"] == "yes") + rng.normal(size=n)
    X.loc[rng.random(n) < 0.05, "egfr"] = np.nan
    return X, fall.rename("fall")


X, y = simulate(300, seed=0)
X_test, y_test = simulate(1000, seed=1)
X.head()

# %%
# One fit
# -------
#
# ``missing="indicator"`` gives missing values a coefficient of their own. Text columns
# are categories: one feature each, with one coefficient per level.
est = NIMORegressorCV(missing="indicator", n_starts=3, random_state=0).fit(X, y)
print(est.summary())

# %%
# The head says whose effects these are: a patient at the reference. ``varies`` is the
# share of an effect that differs between patients, and the block below the table says
# what it depends on. The centre does nothing, and its coefficients are exactly zero.
#
# Was the network worth it? The plain linear model is nested in this one; here is what
# both explain, and what each correction is worth.
print(est.price_of_nonlinearity(X, y))
print(f"on new patients: {est.score(X_test, y_test):.3f}")

# %%
# Who benefits
# ------------
#
# The local effect is what one mg more would do to *this* patient. Against the kidneys
# it shows the interaction.
explanation = est.explain(X)
fig, axes = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
plot_coefficients(est.effects(X), axes[0])
effect = explanation.to_frame("local_effect")["dose"]
axes[1].scatter(X["egfr"], effect, s=12, color="#1f6fb0")
axes[1].set(xlabel="eGFR", ylabel="effect of one mg more, mmHg")

# %%
# One patient: what made the prediction. The bars and the base value add up to it.
fig, axes = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
plot_waterfall(explanation, axes[0], row=0)
plot_effect(explanation, axes[1], feature="dose", modifier="egfr")

# %%
# Intervals
# ---------
#
# How much would another sample of patients change? Draw patients with replacement, fit
# again, and look at the spread. Ten refits keep this page quick; take 200 or more for
# a paper, and :doc:`/inference` for what such an interval covers.
quick = NIMORegressorCV(
    missing="indicator", basis="linear", n_starts=1, n_members=1, cv=2
)
weak, strong = X.assign(egfr=45.0), X.assign(egfr=100.0)
found = []
for seed in range(10):
    rows = np.random.default_rng(seed).integers(0, len(X), len(X))
    refit = quick.set_params(random_state=seed).fit(X.iloc[rows], y.iloc[rows])
    found.append(
        {
            "at the reference": refit.coef_[0],
            "weak kidneys": refit.effects(weak).average_effect[0],
            "strong kidneys": refit.effects(strong).average_effect[0],
        }
    )
found = pd.DataFrame(found)
pd.DataFrame(
    {"effect of one mg": found.mean(), "low": found.min(), "high": found.max()}
).round(2)

# %%
# The report
# ----------
#
# One file to send around: how well the model predicts, what it says, checks of the
# data, and a page on which the reader moves every feature.
folder = Path(tempfile.mkdtemp())
report = est.report(
    folder / "trial.html", X, y, X_test=X_test, y_test=y_test, title="The trial"
)
print(f"{len(report.html) // 1000} kB")

# %%
# In a notebook ``report`` as the last line of a cell shows it in place.
