"""
A clinical table: who benefits from the drug?
=============================================

This tutorial goes from a messy table of patients to intervals and a report.

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
# Intervals stand beside the coefficients; their part of this page is further down.
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
plot_coefficients(est.effects(X), axes[0], intervals=est.conf_int())
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
# What does one mg do on average, in patients like these? Each fold of patients was held
# out from some members of the model. What they leave over there corrects the average,
# and says how sure it is.
averages = est.average_effects(X, y).to_frame().set_index("coefficient")
averages.round(3)

# %%
# The intervals of the centre hold zero: it was left out, and nothing speaks against
# that.
#
# Is the drug better where kidneys are weak? Groups are populations of their own, and
# the last line is their difference. ``test_bends`` asks whether effects depend on other
# features at all, and on which.
kidneys = np.where(X["egfr"] < 60, "weak", "other")
groups = est.average_effects(X, y, by=kidneys).to_frame()
print(groups[groups["coefficient"] == "dose"].round(3).to_string(index=False))
print(est.test_bends(X, y).found)

# %%
# The table of a paper: coefficients at the reference, averages, 95 % intervals of both.
at_reference = est.conf_int().to_frame().set_index("name")
pd.DataFrame(
    {
        "at the reference": at_reference["coef"],
        "from": at_reference["lower"],
        "to": at_reference["upper"],
        "on average": averages["effect"],
        "from ": averages["lower"],
        "to ": averages["upper"],
    }
).round(2)

# %%
# And the next patient? Nine of ten lie between these bounds, which assume no law of the
# errors. :doc:`/inference` says what each interval assumes.
bounds = est.predict_interval(X_test, level=0.9)
inside = (bounds.lower <= y_test) & (y_test <= bounds.upper)
print(f"{inside.mean():.0%} of new patients lie inside")
bounds.to_frame().head(3).round(1)

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
