"""Draw the figure of the README: coefficients and a bent one, against the truth."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV

from sknimo import NIMORegressorCV
from sknimo.datasets import make_nimo_regression

OURS, THEIRS, TRUTH = "#1f6fb0", "#c8591c", "#20242c"


def draw():
    train = make_nimo_regression(setting=1, n_samples=300, random_state=0)
    test = make_nimo_regression(setting=1, n_samples=1000, random_state=1)
    est = NIMORegressorCV(n_starts=4, random_state=0).fit(train.X, train.y)
    lasso = LassoCV().fit(train.X, train.y)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")

    place = np.arange(5)
    left.axhline(0, color="#c9ced6", lw=1)
    left.plot(place, train.coef, "_", ms=26, mew=2, color=TRUTH, label="truth")
    left.plot(place - 0.12, lasso.coef_, "s", ms=7, color=THEIRS, label="LassoCV")
    left.plot(place + 0.12, est.coef_, "o", ms=8, color=OURS, label="sknimo")
    left.set_xticks(place, train.names)
    left.set_title("Coefficients at the reference", loc="left", fontsize=11)
    left.legend(frameon=False)

    grid = np.tile(est.reference_, (101, 1))
    grid[:, 1] = np.linspace(-2, 2, 101)
    for x3, style in ((-1.5, ":"), (0.0, "--"), (1.5, "-")):
        grid[:, 2] = x3
        true = 3 * (1 + np.tanh(grid[:, 1] * x3 / 2))
        local = est.explain(grid, method="native").local_coef[:, 0]
        right.plot(grid[:, 1], true, color=TRUTH, lw=5, alpha=0.15)
        right.plot(grid[:, 1], local, style, color=OURS, lw=2, label=f"x3 = {x3:g}")
    right.set_xlabel("x2")
    right.set_title("Local coefficient of x1 (truth behind)", loc="left", fontsize=11)
    right.legend(frameon=False, loc="upper center")
    errors = [np.mean((m.predict(test.X) - test.y) ** 2) for m in (est, lasso)]
    figure.suptitle(
        f"Test error {errors[0]:.3f}, LassoCV {errors[1]:.2f}, noise 0.010",
        x=0.01,
        ha="left",
        fontsize=10,
        color="#5a6270",
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    folder = Path(__file__).parent.parent / "docs" / "images"
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else folder / "readme.png", dpi=120)
