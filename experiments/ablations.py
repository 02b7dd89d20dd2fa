"""Artefact 8: what each part of the method is worth.

The paper's ablations (masking, position code, group penalty), its claim that
eliminating the coefficients beats joint gradient descent, and the steps that lead from
its form to ours.
"""

from __future__ import annotations

import numpy as np

from experiments._data import REGRESSION
from experiments._figures import colour_of, heat, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    LEVEL,
    Page,
    Table,
    Verdict,
    difference,
    mean_of,
    show,
    spread,
)

STEPS = {
    "nimo": "NIMO (paper)",
    "nimo-no-mask": "without masking",
    "nimo-no-mask-no-code": "without masking and position code",
    "nimo-no-code": "without position code",
    "nimo-no-group": "without group penalty",
    "nimo-no-noise": "without noise",
    "nimo-joint": "joint gradient descent, no elimination",
    "nimo-sub-l1": "sub-l1 instead of l1",
    "nimo-contributions": "penalty on contributions",
    "sknimo-no-relax": "sknimo without relaxed refit",
    "sknimo-one-member": "sknimo without averaging",
    "sknimo": "sknimo",
}
METHODS = tuple(STEPS)
SEEDS = 5
PICTURED = ("nimo", "nimo-no-mask", "nimo-no-mask-no-code", "nimo-no-group")


def render(results: Results) -> Page:
    head = ["variant"]
    for dataset in REGRESSION:
        head += [f"{dataset}, MSE", f"{dataset}, coefficient error"]
    rows = []
    for method, label in STEPS.items():
        row = [label]
        for dataset in REGRESSION:
            for quantity in ("mse", "coef_rmse"):
                values = by_seed(results, dataset, method, quantity)
                row.append(spread(list(values.values())))
        rows.append(tuple(row))
    counts = [len(by_seed(results, d, "nimo", "mse")) for d in REGRESSION]
    table = Table(
        "Ablations: test error and root mean square error of the coefficients, mean ± "
        f"sd over {max(counts)} seed(s); penalties are chosen anew for each variant",
        tuple(head),
        tuple(rows),
    )
    figures = {"Errors of all variants": draw_errors(results)}
    if results.items("setting1", "nimo", "first_layer"):
        figures["First layer on setting 1, seed 0"] = draw_layers(results)
    return Page((table,), figures, verdicts(results))


def by_seed(
    results: Results, dataset: str, method: str, quantity: str
) -> dict[int, float]:
    """Values of the seeds that all variants have; other artefacts ran more of some."""
    values = results.scalars(dataset, method, quantity)
    return {seed: value for seed, value in values.items() if seed < SEEDS}


def draw_errors(results: Results) -> object:
    figure = panels(len(REGRESSION), width=4.6, height=4.2)
    for k, (ax, dataset) in enumerate(zip(figure.axes, REGRESSION, strict=True)):
        for place, method in enumerate(METHODS):
            values = list(by_seed(results, dataset, method, "mse").values())
            if values:
                colour = colour_of(method)
                ax.plot(
                    values, [-place] * len(values), "o", ms=4, color=colour, alpha=0.5
                )
                ax.plot(
                    np.exp(np.mean(np.log(values))), -place, "|", ms=14, color=colour
                )
        ax.set_xscale("log")
        ax.set_title(f"{dataset}: test mean squared error", fontsize=10)
        labels = STEPS.values() if k == 0 else [""] * len(STEPS)
        ax.set_yticks([-p for p in range(len(STEPS))], labels)
        ax.set_ylim(-len(STEPS) + 0.4, 0.6)
        ax.grid(axis="x", lw=0.3)
    return figure


def draw_layers(results: Results) -> object:
    figure = panels(len(PICTURED), width=3.6, height=2.6)
    names = results.names("setting1", "input_norm")
    for ax, method in zip(figure.axes, PICTURED, strict=True):
        heat(ax, names, results.items("setting1", method, "first_layer").get(0, {}))
        ax.set_title(STEPS[method], fontsize=9)
    return figure


# What the paper says of each part: the variant that lacks it, and where it must lose.
CLAIMS = (
    ("Masking keeps the coefficients true.", "nimo", "nimo-no-mask", "coef_rmse"),
    (
        "Removing the position code as well distorts the coefficients further.",
        "nimo-no-mask",
        "nimo-no-mask-no-code",
        "coef_rmse",
    ),
    ("The group penalty lowers the error.", "nimo", "nimo-no-group", "mse"),
    ("Noise lowers the error.", "nimo", "nimo-no-noise", "mse"),
    ("Elimination beats joint gradient descent.", "nimo", "nimo-joint", "mse"),
    ("Sub-l1 beats l1.", "nimo-sub-l1", "nimo", "mse"),
    ("The relaxed refit lowers the error.", "sknimo", "sknimo-no-relax", "mse"),
    ("Averaging restarts lowers the error.", "sknimo", "sknimo-one-member", "mse"),
    ("sknimo beats the paper's form.", "sknimo", "nimo", "mse"),
)


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for claim, better, worse, quantity in CLAIMS:
        parts, outcomes = [], []
        for dataset in REGRESSION:
            a = by_seed(results, dataset, better, quantity)
            b = by_seed(results, dataset, worse, quantity)
            gap, p_value = difference(a, b)
            if not np.isfinite(gap):
                continue
            text = f"{dataset} {show(mean_of(a))} against {show(mean_of(b))}"
            parts.append(
                text + (f" (p = {p_value:.2g})" if np.isfinite(p_value) else "")
            )
            outcomes.append(outcome(a, b))
        # Better somewhere and worse nowhere.
        holds = min(outcomes) < 0 >= max(outcomes) if outcomes else None
        found.append(Verdict(claim, holds, "; ".join(parts)))
    return tuple(found)


def outcome(a: dict[int, float], b: dict[int, float]) -> int:
    """-1 where a is clearly smaller than b, 1 where larger, 0 where they are alike.

    Clearly means significantly or, with a single seed, by more than 5 %.
    """
    gap, p_value = difference(a, b)
    clear = p_value < LEVEL
    if not np.isfinite(p_value):
        clear = abs(gap) > 0.05 * mean_of(b)
    return int(np.sign(gap)) if clear else 0


ARTEFACT = Artefact(
    8,
    "ablations",
    "Ablations",
    (Plan(REGRESSION, METHODS, seeds=SEEDS, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
