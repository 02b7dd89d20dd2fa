"""
Who bends whom: interactions, pair surfaces, correction curves
==============================================================

Setting 2 of the NIMO paper: three features act, and x4 has no effect of its own and yet
bends two others. Directed strengths, the graph of modification and the surface of a
pair show it.
"""

import matplotlib.pyplot as plt
import pandas as pd

from sknimo import NIMORegressor
from sknimo.datasets import make_nimo_regression
from sknimo.plots import (
    plot_correction,
    plot_first_layer,
    plot_interactions,
    plot_modification_graph,
    plot_pair_surface,
)

data = make_nimo_regression(setting=2, n_samples=400, random_state=0)
X = pd.DataFrame(data.X, columns=list(data.names))
est = NIMORegressor(
    penalty="sub_l1",
    delta=0.33,
    alpha=0.005,
    network_alpha=2.0,
    noise=0.1,
    dtype="float32",
    max_iter=600,
    tol=1e-3,
    random_state=0,
).fit(X, data.y)

# %%
# Row j, column k: how much one standard deviation of k changes the coefficient of j.
interactions = est.interactions(X)
print(interactions)
print(interactions.to_frame().round(2).to_string(index=False))

# %%
# The roles: x4 is a modifier without an effect of its own.
roles = dict(zip(data.names, interactions.roles.labels, strict=True))
print(roles)

# %%
# As a heat map and as a graph.
fig, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
plot_interactions(interactions, axes[0])
plot_modification_graph(interactions, axes[1])

# %%
# What x1 and x2 do together, and the coefficient of x2 along x1.
fig, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
plot_pair_surface(est.pair_surface("x2", "x1", X=X), axes[0])
plot_correction(est.correction_curve("x2", "x1", X=X), axes[1], rows=est.explain(X))

# %%
# What the network reads at all: the paper's picture of sparsity.
plot_first_layer(est.first_layer())
plt.show()
