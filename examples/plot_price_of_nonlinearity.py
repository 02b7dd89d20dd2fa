"""
Is the network worth it? The price of nonlinearity
==================================================

The plain GLM is nested in the model: switch every correction off, solve for the
coefficients again and compare deviances. Then switch them off one by one. A logistic
example, with odds ratios beside the log-odds.
"""

import matplotlib.pyplot as plt
import pandas as pd

from sknimo import NIMOClassifier
from sknimo.datasets import make_nimo_classification
from sknimo.plots import plot_coefficients, plot_history

data = make_nimo_classification(setting=1, n_samples=500, random_state=0)
X = pd.DataFrame(data.X, columns=list(data.names))
est = NIMOClassifier(
    alpha=0.003, network_alpha=0.5, max_iter=400, tol=1e-3, random_state=0
).fit(X, data.y)

# %%
# Deviance of the nested GLM, of the model, and without each correction.
price = est.price_of_nonlinearity(X, data.y)
print(price)

# %%
# Effects on the log-odds, as odds ratios and on the probability.
effects = est.effects(X)
columns = ["feature", "coef", "odds_ratio", "average_effect", "response_effect"]
print(effects.to_frame()[columns].round(3).to_string(index=False))

# %%
# The gain per correction, the coefficients beside the truth, and how training went.
fig, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
axes[0].bar(price.names, price.price, color="#0072B2")
axes[0].set_ylabel("deviance gained by the correction")
plot_coefficients(effects, axes[1], against=data.coef, standardised=False)
plot_history(est.history_, axes[2])
plt.show()
