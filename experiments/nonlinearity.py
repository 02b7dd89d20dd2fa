"""Artefact 11: degree of nonlinearity, diabetes against Boston."""

from __future__ import annotations

import numpy as np

from experiments._figures import add_key, colour_of, panels, say
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    Page,
    Table,
    Verdict,
    name_of,
    show,
    source_of,
    spread,
)
from experiments.real import SMALL

METHODS = ("nimo", "sknimo")
MEASURES = {
    "nonlinearity": "mean |1 + g|, 1 = unbent (the paper's measure)",
    "bend": "share of the effect that varies from row to row",
}


def render(results: Results) -> Page:
    rows = []
    for method in METHODS:
        row = [name_of(method)]
        for quantity in MEASURES:
            row += [spread(degree(results, d, method, quantity)) for d in SMALL]
        rows.append(tuple(row))
    head = ["method"]
    head += [f"{d}, abs(mean abs(1 + g) - 1)" for d in SMALL]
    head += [f"{d}, bend" for d in SMALL]
    table = Table(
        "Degree of nonlinearity: mean over the features in use, mean ± sd over splits",
        tuple(head),
        tuple(rows),
    )
    note = (
        "`bend` is the share of a feature's effect that varies from row to row. The "
        "data do not determine how a product is split between the coefficients of its "
        "features; the paper's measure depends on the split, `bend` does not. An l1 "
        "penalty on bare coefficients inflates the paper's measure: coefficients "
        "shrink and `1 + g` grows in return."
    )
    return Page(
        (table,),
        {"Degree of nonlinearity, mean over splits": draw(results)},
        verdicts(results),
        (note,),
    )


def in_use(results: Results, dataset: str, method: str) -> np.ndarray:
    """Whether a feature has a coefficient, (n_seeds, p)."""
    names = results.names(dataset, "effect")
    return results.table(dataset, method, "effect", names) != 0


def degree(results: Results, dataset: str, method: str, quantity: str) -> np.ndarray:
    """Distance from an unbent model, mean over the features in use, (n_seeds,)."""
    names = results.names(dataset, "effect")
    values = results.table(dataset, method, quantity, names)
    if quantity == "nonlinearity":
        values = np.abs(values - 1)
    used = in_use(results, dataset, method)
    return np.array([v[u].mean() for v, u in zip(values, used, strict=True) if u.any()])


def draw(results: Results) -> object:
    figure = panels(4, width=5.2, height=3.4, n_columns=2)
    places = [(q, d) for q in MEASURES for d in SMALL]
    for ax, (quantity, dataset) in zip(figure.axes, places, strict=True):
        names = results.names(dataset, "effect")
        base = 1.0 if quantity == "nonlinearity" else 0.0
        bent = False
        for k, method in enumerate(METHODS):
            values = results.table(dataset, method, quantity, names)
            if not len(values):
                continue
            used = in_use(results, dataset, method)
            mean = np.ma.masked_array(values, ~used).mean(axis=0).filled(base)
            bent |= bool((np.abs(mean - base) > 1e-6).any())  # beyond rounding
            spots = np.arange(len(names)) + 0.38 * (k - 0.5)
            ax.bar(
                spots,
                mean - base,
                0.36,
                bottom=base,
                color=colour_of(method),
                label=name_of(method),
            )
        ax.axhline(base, color="#333333", lw=0.8)
        if not bent:
            say(ax, "no feature is bent")
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_title(f"{dataset}: {MEASURES[quantity]}", fontsize=9)
    for first in (0, 2):  # the same scale for both tables
        pair = figure.axes[first : first + 2]
        low = min(ax.get_ylim()[0] for ax in pair)
        high = max(ax.get_ylim()[1] for ax in pair)
        for ax in pair:
            ax.set_ylim(low, high)
    add_key(figure)
    return figure


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for method in METHODS:
        parts, holds = [], []
        for quantity in MEASURES:
            diabetes, boston = (degree(results, d, method, quantity) for d in SMALL)
            if len(diabetes) and len(boston):
                parts.append(
                    f"{quantity} {show(boston.mean())} against {show(diabetes.mean())}"
                )
                holds.append(boston.mean() > diabetes.mean())
        found.append(
            Verdict(
                f"{name_of(method)} is bent more on Boston than on diabetes.",
                all(holds) if holds else None,
                "; ".join(parts),
                source_of(method),
            )
        )
    return tuple(found)


ARTEFACT = Artefact(
    11,
    "nonlinearity",
    "Degree of nonlinearity",
    (Plan(SMALL, METHODS, seeds=9, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
