"""
Explain single predictions: contributions, local effects, response scale
========================================================================

A simulated trial of a blood pressure drug. It works better when the kidneys are weak
(low eGFR), so that no single number describes it: the average patient loses 0.3 mmHg
per mg, others much more or hardly anything.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sknimo import NIMORegressorCV
from sknimo.plots import plot_beeswarm, plot_effect, plot_waterfall

rng = np.random.default_rng(0)
n_patients = 300
X = pd.DataFrame(
    {
        "dose": rng.uniform(0, 40, n_patients),
        "age": rng.normal(60, 10, n_patients),
        "egfr": rng.normal(75, 18, n_patients).clip(15, 130),
        "weight": rng.normal(80, 14, n_patients),
        "smoker": rng.integers(0, 2, n_patients).astype(float),
    }
)
weak_kidneys = np.tanh((75 - X["egfr"]) / 18)
fall = 8 + 0.3 * (X["dose"] - 20) * (1 + 0.8 * weak_kidneys)
fall += -0.1 * (X["age"] - 60) - 2 * X["smoker"]
y = fall + rng.normal(size=n_patients)

est = NIMORegressorCV(n_starts=1, random_state=0).fit(X, y)

# %%
# Contributions and base value sum to the prediction, exactly.
explanation = est.explain(X)
print(explanation)
print("largest gap:", np.abs(explanation.eta - est.predict(X)).max())

# %%
# Two patients with about the same dose, one with weak and one with strong kidneys.
near = np.flatnonzero((X["dose"] - 33).abs() < 3)
weak, strong = near[X["egfr"].iloc[near].argmin()], near[X["egfr"].iloc[near].argmax()]
fig, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
plot_waterfall(explanation, axes[0], row=weak)
plot_waterfall(explanation, axes[1], row=strong)

# %%
# The local effect says what one mg more would do to each of them. It is not the local
# coefficient, which only shares out the prediction.
print(explanation[[weak, strong]].to_frame("local_effect").round(2))
print(explanation[[weak, strong]].to_frame("local_coef").round(2))

# %%
# All patients at once, and the dose with its strongest modifier.
fig, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plot_beeswarm(explanation, axes[0])
plot_effect(explanation, axes[1], feature="dose")
plt.show()
