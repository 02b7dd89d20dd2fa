"""
The penalty path of the nested GLM
==================================

The searching estimators start from a lasso path of the plain GLM. Its chosen point is
what is returned when the network does not earn its keep, as here, where the truth is a
straight line.
"""

import matplotlib.pyplot as plt
import pandas as pd

from sknimo import NIMORegressorCV
from sknimo.datasets import make_nimo_regression
from sknimo.plots import plot_coefficients, plot_path

data = make_nimo_regression(setting=4, n_samples=150, random_state=0)
X = pd.DataFrame(data.X, columns=list(data.names))
est = NIMORegressorCV(n_starts=2, random_state=0).fit(X, data.y)

fig, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
plot_path(est.path_, axes[0], names=data.names)
plot_coefficients(est.effects(X), axes[1], against=data.coef, standardised=False)
plt.show()
