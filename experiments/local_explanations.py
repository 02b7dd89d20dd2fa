"""Artefact 10: contributions of single rows, against the truth and against SHAP."""

from __future__ import annotations

import numpy as np

from experiments._figures import colour_of, panels, scatter
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

METHODS = ("nimo", "sknimo")
ACTIVE = ("x1", "x2", "x3")


def render(results: Results) -> Page:
    rows = []
    for dataset, quantity in (("setting1", "agreement"), ("boston", "shap_agreement")):
        names = results.names(dataset, "effect")
        for name in names:
            cells = []
            for method in METHODS:
                values = results.table(dataset, method, quantity, [name])[:, 0]
                values = values[np.isfinite(values)]
                empty = "truth is zero" if dataset == "setting1" else "no contribution"
                cells.append(spread(values) if len(values) else empty)
            rows.append((dataset, name, *cells))
    table = Table(
        "Correlation of contributions with the true ones (setting 1) and with SHAP "
        "values (Boston), 100 test rows, mean ± sd over seeds",
        ("data", "feature", *map(name_of, METHODS)),
        tuple(rows),
    )
    figures = {}
    for dataset, other in (("setting1", "true_contribution"), ("boston", "shap_value")):
        for method in METHODS:
            if results.items(dataset, method, "contribution").get(0):
                against = "the true ones" if dataset == "setting1" else "SHAP values"
                caption = (
                    f"Contributions of {name_of(method)} on {dataset} against "
                    f"{against}, seed 0"
                )
                figures[caption] = draw(results, dataset, method, other)
    note = (
        "A contribution is measured from the reference, a SHAP value from the mean "
        "prediction, and SHAP shares an interaction between its features: they need "
        "not be equal. Correlations do not see a difference in scale, figures do."
    )
    return Page((table,), figures, verdicts(results), (note,))


def draw(results: Results, dataset: str, method: str, other: str) -> object:
    names = results.names(dataset, "effect")
    figure = panels(len(names), width=2.7, height=2.6, n_columns=5)
    ours = results.items(dataset, method, "contribution")[0]
    theirs = results.items(dataset, method, other)[0]
    label = "true contribution" if other == "true_contribution" else "SHAP value"
    for ax, name in zip(figure.axes, names, strict=True):
        items = [item for item in ours if item.rsplit("|", 1)[0] == name]
        scatter(
            ax,
            np.array([theirs[item] for item in items]),
            np.array([ours[item] for item in items]),
            colour_of(method),
        )
        ax.set_title(name, fontsize=10)
    figure.supxlabel(label, fontsize=10)
    figure.supylabel("contribution", fontsize=10)
    return figure


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for method in METHODS:
        source = source_of(method)
        values = results.table("setting1", method, "agreement", ACTIVE)
        if len(values):
            worst = np.nanmean(values, axis=0).min()
            found.append(
                Verdict(
                    f"{name_of(method)}: contributions on setting 1 follow the truth.",
                    bool(worst > 0.95),
                    f"smallest mean correlation of a feature {show(worst)}",
                    source,
                )
            )
        names = results.names("boston", "effect")
        values = results.table("boston", method, "shap_agreement", names)
        if len(values):
            # Over the splits in which a feature has contributions at all.
            known = np.isfinite(values).any(axis=0)
            mean = np.nanmean(values[:, known], axis=0)
            n_close = int((mean > 0.8).sum())
            found.append(
                Verdict(
                    f"{name_of(method)}: contributions on Boston agree with SHAP for "
                    "most features.",
                    n_close > len(names) / 2,
                    f"mean correlation above 0.8 for {n_close} of {len(names)} "
                    f"features, median over features {show(np.median(mean))}",
                    source,
                )
            )
    return tuple(found)


ARTEFACT = Artefact(
    10,
    "local_explanations",
    "Local explanations",
    (
        Plan(("setting1",), METHODS, seeds=10, quick_seeds=1),
        Plan(("boston",), METHODS, seeds=9, quick_seeds=1),
    ),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
