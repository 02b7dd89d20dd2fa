"""
A scientific regression: find the interactions
==============================================

This tutorial finds which variables act together, and draws how.

The data are setting 2 of the NIMO paper. Three of its variables act: the first is bent
by the second, third and fourth, the second by the first, the third by the second and
fourth. The truth is known, and the model is not told.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sknimo import NIMORegressorCV
from sknimo.datasets import make_nimo_regression
from sknimo.plots import (
    plot_agreement,
    plot_interactions,
    plot_modification_graph,
    plot_pair_surface,
)

train = make_nimo_regression(setting=2, n_samples=250, random_state=0)
test = make_nimo_regression(setting=2, n_samples=1000, random_state=1)
X = pd.DataFrame(train.X, columns=list(train.names))
X_test = pd.DataFrame(test.X, columns=list(test.names))
est = NIMORegressorCV(n_starts=2, random_state=0).fit(X, train.y)
print(f"R squared on new rows: {est.score(X_test, test.y):.3f}")

# %%
# Which variables
# ---------------
#
# Selection gives exact zeros: in the coefficients, and in the network's first layer.
# The role of a variable is read off them.
columns = ["feature", "coef", "truth", "bend", "role", "bent_by"]
est.effects(X).to_frame().assign(truth=train.coef)[columns].round(2)

# %%
# Which interactions
# ------------------
#
# ``strength`` is symmetric: the mean size of the mixed second derivative, in standard
# deviations of both variables. It depends on the fitted function alone. ``directed``
# says whose coefficient is bent by whom, in the convention of :doc:`/explanations`.
found = est.interactions(X)
fig, axes = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained")
plot_interactions(found, axes[0])
plot_modification_graph(found, axes[1])

# %%
# The pair that matters most, as a surface: what both do beyond what each does alone.
strength = np.triu(found.strength, 1)
j, k = np.unravel_index(strength.argmax(), strength.shape)
print(found.names[j], found.names[k])
fig, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
plot_pair_surface(est.pair_surface(found.names[j], found.names[k], X=X), ax)

# %%
# Against the truth
# -----------------
#
# Contributions follow the terms that made the data.
fig, ax = plt.subplots(figsize=(6, 4.4), layout="constrained")
plot_agreement(est.explain(X), ax, against=train.contributions, label="true term")

# %%
# Would another seed tell the same? A search averages members that start from different
# networks; the spread of a coefficient between them is in the summary.
print(est.summary())
