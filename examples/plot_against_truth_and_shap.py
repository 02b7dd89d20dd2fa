"""
Contributions against the truth and against SHAP
================================================

In setting 1 of the NIMO paper the true terms are known. Contributions follow them;
Shapley values, ours and those of the shap package, answer another question: they share
every product equally among its features.
"""

import matplotlib.pyplot as plt
import numpy as np
import shap

from sknimo import NIMORegressorCV
from sknimo.datasets import make_nimo_regression
from sknimo.plots import plot_agreement

data = make_nimo_regression(setting=1, n_samples=200, random_state=0)
est = NIMORegressorCV(n_starts=1, random_state=0).fit(data.X, data.y)

# %%
# Contributions against the terms that made the data.
explanation = est.explain(data.X)
shares = est.explain(data.X, method="shapley")
print(shares.note)
fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
plot_agreement(explanation, axes[0], against=data.contributions, label="true term")
plot_agreement(shares, axes[1], against=data.contributions, label="true term")

# %%
# The same Shapley values from the shap package, with the reference as its background.
rows = data.X[:60]
explainer = shap.explainers.Exact(est.predict, est.reference_[None])
oracle = explainer(rows, silent=True)
gap = np.abs(oracle.values - shares.values[:60]).max()
print(f"largest difference to shap: {gap:.1e}")
fig, ax = plt.subplots(figsize=(5, 4.6), layout="constrained")
plot_agreement(shares[:60], ax, against=oracle, label="shap")

# %%
# shap's own plots take our explanations.
plt.figure()
shap.plots.waterfall(explanation.to_shap()[0], show=False)
plt.show()
