"""Artefact 4: which features the network reads (first-layer weights)."""

from __future__ import annotations

import numpy as np

from experiments._data import CLASSIFICATION, REGRESSION, simulate
from experiments._figures import heat, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import Page, Table, Verdict, mean_of, name_of, show
from experiments.coefficients import share

DATASETS = (*REGRESSION, *CLASSIFICATION)
METHODS = ("nimo", "sknimo")
N_SHOWN = 12  # features; of the wide settings the others are summed up in the table


def render(results: Results) -> Page:
    rows = []
    for method in METHODS:
        row = [name_of(method)]
        for dataset in DATASETS:
            exact = share(results.scalars(dataset, method, "inputs_exact"))
            weight = true_share(results, dataset, method)
            row.append(f"{exact}, {weight:.0%}" if exact else "")
        rows.append(tuple(row))
    table = Table(
        "Seeds in which the network reads exactly the features that bend others, and "
        "share of the first layer's weight on these",
        ("method", *DATASETS),
        tuple(rows),
    )
    figures = {
        f"First layer of {name_of(method)}, seed 0": draw(results, method)
        for method in METHODS
        if any(results.items(d, method, "input_norm") for d in DATASETS)
    }
    return Page((table,), figures, verdicts(results))


def true_share(results: Results, dataset: str, method: str) -> float:
    """Weight on the features that truly bend another, as a share of all."""
    truth = simulate(dataset, 0)
    norms = results.table(dataset, method, "input_norm", truth.names)
    total = norms.sum()
    return float(norms[:, truth.modulating].sum() / total) if total > 0 else np.nan


def draw(results: Results, method: str) -> object:
    figure = panels(len(DATASETS), height=3.2, n_columns=3)
    for ax, dataset in zip(figure.axes, DATASETS, strict=True):
        truth = simulate(dataset, 0)
        names = [
            f"{name} *" if j in truth.modulating else name
            for j, name in enumerate(truth.names[:N_SHOWN])
        ]
        found = results.items(dataset, method, "first_layer").get(0, {})
        marked = {}
        for item, value in found.items():
            name, unit = item.split("|")
            star = int(name[1:]) - 1 in truth.modulating
            marked[f"{name} *|{unit}" if star else item] = value
        heat(ax, names, marked)
        n_read = len({item.split("|")[0] for item in found})
        ax.set_title(f"{dataset}: reads {n_read} of {len(truth.names)}", fontsize=10)
    figure.suptitle("* truly bends another feature; white: zero", fontsize=9)
    return figure


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for method in METHODS:
        shares = {d: true_share(results, d, method) for d in DATASETS}
        known = {d: value for d, value in shares.items() if np.isfinite(value)}
        text = ", ".join(f"{d} {value:.0%}" for d, value in known.items())
        exact = [mean_of(results.scalars(d, method, "inputs_exact")) for d in known]
        found.append(
            Verdict(
                f"The features that {name_of(method)} reads are those that matter.",
                min(known.values()) > 0.8 if known else None,
                f"share of the weight on true modifiers {text}; exactly those in "
                f"{show(float(np.mean(exact)))} of all fits"
                if known
                else "not run",
            )
        )
    return tuple(found)


ARTEFACT = Artefact(
    4,
    "first_layer",
    "First-layer weights",
    (Plan(DATASETS, METHODS, seeds=10, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
