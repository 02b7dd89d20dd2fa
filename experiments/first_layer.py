"""Artefact 4: which features the network reads (first-layer weights)."""

from __future__ import annotations

import numpy as np

from experiments._data import CLASSIFICATION, REGRESSION, simulate
from experiments._figures import heat, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    PARTLY,
    Page,
    Table,
    Verdict,
    mean_of,
    name_of,
    source_of,
)
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
            found = recall(results, dataset, method)
            row.append(f"{exact}, {weight:.0%}, {found:.0%}" if exact else "")
        rows.append(tuple(row))
    table = Table(
        "Seeds in which the network reads exactly the features that bend others, share "
        "of the first layer's weight on features of the formula, and share of those "
        "that bend others which is read",
        ("method", *DATASETS),
        tuple(rows),
    )
    figures = {
        f"First layer of {name_of(method)}, seed 0; colours scaled within a panel": (
            draw(results, method)
        )
        for method in METHODS
        if any(results.items(d, method, "input_norm") for d in DATASETS)
    }
    note = (
        "A product may be written as a bend of any of its factors, so that a network "
        "which reads another factor of it than the formula has is not wrong: in "
        "setting 1 it may read x1 in place of x2 or x3."
    )
    return Page((table,), figures, verdicts(results), (note,))


def shares_by_seed(results: Results, dataset: str, method: str) -> dict[int, float]:
    """Weight on the features of the formula, as a share of all.

    Not only of those that bend another there, since a product can be written
    otherwise.
    """
    truth = simulate(dataset, 0)
    named = {*truth.modulating, *truth.active}
    found = {}
    for seed, norms in results.items(dataset, method, "input_norm").items():
        total = sum(norms.values())
        if total > 0:
            on_true = sum(norms[truth.names[j]] for j in named)
            found[seed] = on_true / total
    return found


def true_share(results: Results, dataset: str, method: str) -> float:
    return mean_of(shares_by_seed(results, dataset, method))


def mean_shares(norms: np.ndarray) -> np.ndarray:
    """Shares of each row's sum, mean over rows; a row of zeros counts 0, (p,)."""
    total = norms.sum(axis=1, keepdims=True)
    return (norms / np.where(total > 0, total, 1.0)).mean(axis=0)


def recall(results: Results, dataset: str, method: str) -> float:
    """How many of the features that truly bend another are read."""
    truth = simulate(dataset, 0)
    names = [truth.names[j] for j in truth.modulating]
    norms = results.table(dataset, method, "input_norm", names)
    return float((norms > 0).mean()) if norms.size else np.nan


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
        known = [d for d in DATASETS if results.items(d, method, "input_norm")]
        claim = f"The features that {name_of(method)} reads are those that matter."
        source = source_of(method)
        if not known:
            found.append(Verdict(claim, None, source=source))
            continue
        weight = [true_share(results, d, method) for d in known]
        complete = [recall(results, d, method) for d in known]
        exact = [
            value
            for d in known
            for value in results.scalars(d, method, "inputs_exact").values()
        ]
        fine = [w > 0.8 and c > 0.8 for w, c in zip(weight, complete, strict=True)]
        text = ", ".join(
            f"{d} {w:.0%} and {c:.0%}"
            for d, w, c in zip(known, weight, complete, strict=True)
        )
        found.append(
            Verdict(
                claim,
                all(fine) or (PARTLY if any(fine) else False),
                "share of the weight on features of the formula, and share of those "
                f"that bend others which is read: {text}; exactly the latter in "
                f"{int(sum(exact))} of {len(exact)} fits",
                source,
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
