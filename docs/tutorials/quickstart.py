"""
Quick start
===========

This page fits a model, reads it and writes a report, in five minutes.

It needs ``pip install "sknimo[plot,report]"`` and pandas. The table is scikit-learn's
diabetes data: ten measurements of 442 patients, and how far their disease has
progressed a year later.
"""

import tempfile
from pathlib import Path

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sknimo import NIMORegressorCV, load
from sknimo.plots import plot_waterfall

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1: "one", 2: "two"})  # a name, not an amount
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# Fit
# ---
#
# Nothing needs tuning. Text columns are categories, and units stay as they are.
est = NIMORegressorCV(n_starts=2, random_state=0).fit(X_train, y_train)
print(f"R squared on new patients: {est.score(X_test, y_test):.2f}")

# %%
# Read
# ----
#
# The table reads like that of any regression. A coefficient is the effect of one step
# more (``per``) in a patient at the *reference*, the average patient. In a notebook
# the estimator shows the same table by itself.
print(est.summary())

# %%
# Coefficients that the network bends differ from patient to patient. On this table it
# may well find that nothing bends: the plain linear model is then what you get.
est.effects(X_train).to_frame()[["feature", "coef", "average_effect", "bend", "role"]]

# %%
# How sure is it?
# ---------------
#
# Average effects in patients like these, with 95 % intervals; and bounds between which
# nine of ten new patients should lie.
averages = est.average_effects(X_train, y_train).to_frame()
print(averages.round(2).to_string(index=False))
bounds = est.predict_interval(X_test, level=0.9)
inside = (bounds.lower <= y_test) & (y_test <= bounds.upper)
print(f"{inside.mean():.0%} of new patients lie inside their bounds")

# %%
# Explain a prediction
# --------------------
#
# Contributions and the base value add up to the prediction, exactly.
explanation = est.explain(X_test)
print(explanation[0])
plot_waterfall(explanation, row=0)

# %%
# Share
# -----
#
# The report is one file that opens anywhere, with a page on which every feature can be
# moved. The model is one file too, without code inside.
folder = Path(tempfile.mkdtemp())
est.report(folder / "report.html", X_train, y_train, X_test=X_test, y_test=y_test)
est.save(folder / "diabetes.sknimo")
same = load(folder / "diabetes.sknimo")
print(bool((same.predict(X_test) == est.predict(X_test)).all()))

# %%
# Where to go on
# --------------
#
# * :doc:`A clinical table </auto_tutorials/clinical>`, with an interaction in it.
# * :doc:`/models`: which class, which family.
# * :doc:`/inference`: what each interval assumes.
# * :doc:`/explanations`: what each number means.
# * :doc:`/choose`: when another method is the better choice.
