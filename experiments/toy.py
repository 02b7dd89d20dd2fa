"""Artefact 1: the toy example (the paper's Figure 3)."""

from __future__ import annotations

import numpy as np

from experiments._data import simulate
from experiments._figures import add_key, colour_of, dots, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    Page,
    Table,
    Verdict,
    mean_of,
    name_of,
    show,
    source_of,
    spread,
)
from experiments.coefficients import share

METHODS = ("lasso", "nimo", "sknimo")
NIMO = ("nimo", "sknimo")
NAMES = ["x1", "x2", "x3"]


def render(results: Results) -> Page:
    rows = []
    for method in METHODS:
        effects = results.table("setting0", method, "effect", NAMES)
        rows.append(
            (
                name_of(method),
                spread(list(results.scalars("setting0", method, "mse").values())),
                *(spread(effects[:, j]) for j in range(len(NAMES))),
                *(
                    spread(list(results.scalars("setting0", method, q).values()))
                    for q in ("coef_rmse", "reference_rmse")
                ),
                share(results.scalars("setting0", method, "coef_exact")),
                share(results.scalars("setting0", method, "inputs_exact")),
            )
        )
    head = ("method", "MSE", *NAMES, "error at zero", "error at the reference")
    head += ("zeros exact", "inputs exact")
    title = "Toy example: test error, coefficients (truth 3, -3, 0), selection"
    centre = true_slopes()
    note = (
        "The slope in `x1` rises almost in a step at `x2 = 0`. Its value at the sample "
        "mean, which is what a coefficient estimates, is therefore a matter of chance: "
        "over samples of 300 rows the "
        f"true effect of `x1` there is {show(centre.mean())} with a standard deviation "
        f"of {show(centre.std())}. The formula does not say which of two features a "
        "product of both belongs to. Curves are compared after giving each half of it "
        "the share that leaves the coefficients most even, for the truth as for the "
        "models, so that the plateaus of the truth slope."
    )
    return Page(
        (Table(title, head, tuple(rows)),),
        {
            "Toy example: coefficients (dots are means and bars one sd over seeds), "
            "coefficients bent by the other feature (seed 0), and sizes of first-layer "
            "weights": draw(results)
        },
        verdicts(results),
        (note,),
    )


def true_slopes(n_samples: int = 2000) -> np.ndarray:
    """Slope of the true signal in x1 at the means of samples of 300 rows."""
    rng = np.random.default_rng(0)
    m1, m2 = rng.uniform(-2, 2, (2, n_samples, 300)).mean(axis=2)
    return 3 * (1 + np.tanh(10 * m2)) + 6 * m2 * np.cos(2 * m1)


def draw(results: Results) -> object:
    figure = panels(4)
    truth = simulate("setting0", 0)
    series = {m: results.table("setting0", m, "effect", NAMES) for m in METHODS}
    dots(figure.axes[0], NAMES, series, truth.coef)
    figure.axes[0].set_title("coefficients")
    for ax, pair in zip(figure.axes[1:3], (("x1", "x2"), ("x2", "x1")), strict=True):
        draw_curves(ax, results, pair)
    ax = figure.axes[3]
    for k, method in enumerate(NIMO):
        norms = results.table("setting0", method, "input_norm", NAMES)
        if len(norms):
            places = np.arange(3) + 0.36 * (k - 0.5)
            heights = norms.mean(axis=0)
            ax.bar(
                places, heights, 0.34, color=colour_of(method), label=name_of(method)
            )
    ax.set_xticks(range(3), NAMES)
    ax.set_title("size of first-layer weights")
    add_key(figure)
    return figure


def draw_curves(ax: object, results: Results, pair: tuple[str, str]) -> None:
    """Coefficient of one feature along the other, learned and true."""
    prefix = f"{pair[0]}|{pair[1]}|"
    for method in NIMO:
        learned = curve_of(results, method, "curve", prefix)
        truth = curve_of(results, method, "true_curve", prefix)
        if len(learned):
            ax.plot(*truth.T, color="#333333", lw=2, label="truth")
            ax.plot(*learned.T, color=colour_of(method), label=name_of(method))
    ax.set_xlabel(pair[1])
    ax.set_title(f"coefficient of {pair[0]} along {pair[1]}")


def curve_of(results: Results, method: str, quantity: str, prefix: str) -> np.ndarray:
    """Points of the first seed's curve, (m, 2)."""
    items = results.items("setting0", method, quantity).get(0, {})
    points = [
        (float(item.removeprefix(prefix)), value)
        for item, value in items.items()
        if item.startswith(prefix)
    ]
    return np.array(points).reshape(-1, 2)


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for method in NIMO:
        source = source_of(method)
        exact = results.scalars("setting0", method, "coef_exact")
        inputs = results.scalars("setting0", method, "inputs_exact")
        norms = results.table("setting0", method, "input_norm", NAMES)
        total = norms.sum(axis=1)
        read = norms[total > 0, 2] / total[total > 0]
        n_idle = int((read < 0.01).sum())
        found.append(
            Verdict(
                f"{name_of(method)} drops x3 from coefficients and network alike.",
                mean_of(exact) > 0.5 and n_idle > len(read) / 2 if exact else None,
                f"coefficients exact in {share(exact)} seeds; less than 1 % of the "
                f"first layer's weight on x3 in {n_idle}/{len(read)}; exactly x1 and "
                f"x2 are read in {share(inputs)}",
                source,
            )
        )
        error = mean_of(results.scalars("setting0", method, "coef_rmse"))
        there = mean_of(results.scalars("setting0", method, "reference_rmse"))
        found.append(
            Verdict(
                f"The coefficients of {name_of(method)} are the true ones.",
                there < 0.5 if there == there else None,
                f"mean error {show(error)} against 3, -3 and 0, and {show(there)} "
                "against the true slopes at the reference",
                source,
            )
        )
        found.append(curve_verdict(results, method, source))
    return tuple(found)


def curve_verdict(results: Results, method: str, source: str) -> Verdict:
    """Learned curves against the true ones, over the seeds that have them."""
    claim = f"The bends that {name_of(method)} learns coincide with the truth."
    learned = results.items("setting0", method, "curve")
    truth = results.items("setting0", method, "true_curve")
    shares = []
    for seed in learned.keys() & truth.keys():
        pairs: dict[str, list[tuple[float, float]]] = {}
        for item, right in truth[seed].items():
            name = item.rsplit("|", 1)[0]
            pairs.setdefault(name, []).append((learned[seed][item], right))
        curves = [np.array(points).T for points in pairs.values()]
        left = sum(np.sum((a - b) ** 2) for a, b in curves)
        shares.append(1 - left / sum(np.sum((b - b.mean()) ** 2) for _, b in curves))
    if not shares:
        return Verdict(claim, None, source=source)
    return Verdict(
        claim,
        bool(np.mean(shares) > 0.95),
        f"share of the variance along the true curves {spread(shares)}",
        source,
    )


ARTEFACT = Artefact(
    1,
    "toy",
    "Toy example",
    (Plan(("setting0",), METHODS, seeds=10, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
