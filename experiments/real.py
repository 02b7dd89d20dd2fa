"""Artefact 6: real tables (the paper's Figures 5, 6 and those of its appendix)."""

from __future__ import annotations

import numpy as np

from experiments._figures import add_key, boxes, colour_of, dots, panels, say
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    Page,
    Table,
    Verdict,
    difference,
    judge_first,
    mean_of,
    name_of,
    show,
    spread,
)
from experiments.regression import RIVALS

SMALL = ("diabetes", "boston")
DATASETS = (*SMALL, "superconduct")
METHODS = (*RIVALS, "ebm", "lightgbm", "nimo", "sknimo", "sknimo-lines")
BIG_METHODS = (
    "lasso",
    "mlp",
    "lassonet-deep",
    "ebm",
    "lightgbm-stopped",
    "nimo",
    "sknimo",
    "sknimo-lines",
)
SHOWN = ("lasso", "nimo", "sknimo")
N_SHOWN = 20  # features of superconduct


def render(results: Results) -> Page:
    order = (*METHODS, "lightgbm-stopped")
    rows = [
        (
            name_of(method),
            *(spread(list(scores(results, d, method).values())) for d in DATASETS),
        )
        for method in order
        if any(scores(results, d, method) for d in DATASETS)
    ]
    counts = ", ".join(
        f"{d} {max(len(scores(results, d, m)) for m in order)}" for d in DATASETS
    )
    title = f"Test mean squared error, mean ± sd over splits ({counts})"
    return Page(
        (Table(title, ("method", *DATASETS), tuple(rows)),),
        figures(results, order),
        verdicts(results, order),
        (
            "The paper shows these results as box plots without numbers. "
            "`superconduct` is cut to 500 rows in quick runs.",
        ),
    )


def scores(results: Results, dataset: str, method: str) -> dict[int, float]:
    return results.scalars(dataset, method, "mse")


def figures(results: Results, order: tuple[str, ...]) -> dict[str, object]:
    known = results.datasets(DATASETS)
    if not known:
        return {}
    errors = panels(len(known), width=4.8, height=4.0)
    for ax, dataset in zip(errors.axes, known, strict=True):
        values = {m: list(scores(results, dataset, m).values()) for m in order}
        boxes(ax, {m: v for m, v in values.items() if v})
        ax.set_title(dataset)
        ax.set_xlabel("test mean squared error")
    effects = panels(len(known), width=9.0, height=3.8, n_columns=1)
    for ax, dataset in zip(effects.axes, known, strict=True):
        names = results.names(dataset, "scaled_effect")
        series = {m: results.table(dataset, m, "scaled_effect", names) for m in SHOWN}
        size = sum(np.abs(v).mean(axis=0) for v in series.values() if len(v))
        keep = np.sort(np.argsort(-size)[:N_SHOWN])
        dots(
            ax,
            [names[j] for j in keep],
            {m: values[:, keep] for m, values in series.items()},
        )
        rest = f", {N_SHOWN} largest of {len(names)}" if len(names) > N_SHOWN else ""
        ax.set_title(f"{dataset}{rest}: effect at the mean per standard deviation")
    add_key(effects)
    return {
        "Test error over splits": errors,
        "Coefficients": effects,
        "First layer": first_layers(results, known),
    }


def first_layers(results: Results, known: list[str]) -> object:
    """How much of the first layer each feature holds, mean over splits."""
    figure = panels(len(known), width=9.0, height=3.4, n_columns=1)
    for ax, dataset in zip(figure.axes, known, strict=True):
        names = results.names(dataset, "input_norm")
        series = {
            m: results.table(dataset, m, "input_norm", names).mean(axis=0)
            for m in ("nimo", "sknimo")
            if results.items(dataset, m, "input_norm")
        }
        total = sum(series.values())
        keep = np.sort(np.argsort(-total)[:N_SHOWN])
        for k, (method, norms) in enumerate(series.items()):
            share = norms[keep] / max(norms.sum(), 1e-300)
            places = np.arange(len(keep)) + 0.38 * (k - 0.5)
            ax.bar(places, share, 0.36, color=colour_of(method), label=name_of(method))
        ax.set_xticks(range(len(keep)), [names[j] for j in keep], rotation=90)
        ax.set_title(f"{dataset}: share of the first layer's weight")
        if not total.any():
            ax.set_ylim(0, 1)
            say(ax, "no feature is read")
    add_key(figure)
    return figure


def verdicts(results: Results, order: tuple[str, ...]) -> tuple[Verdict, ...]:
    by_method = {
        d: {m: scores(results, d, m) for m in order if m != "sknimo-lines"}
        for d in DATASETS
    }
    found = [
        compare(by_method, "diabetes", "nimo", "lasso", strictly=False),
        compare(by_method, "diabetes", "sknimo", "lasso", strictly=False),
        judge_first(
            "sknimo is first or tied for first on diabetes.",
            {"diabetes": by_method["diabetes"]},
            "sknimo",
        ),
        compare(by_method, "boston", "nimo", "lasso", strictly=True),
        judge_first(
            "sknimo is first or tied for first on Boston.",
            {"boston": by_method["boston"]},
            "sknimo",
        ),
        judge_first(
            "NIMO in the paper's form is first on superconductivity.",
            {
                "superconduct": {
                    m: v for m, v in by_method["superconduct"].items() if m != "sknimo"
                }
            },
            "nimo",
        ),
        judge_first(
            "sknimo is first or tied for first on superconductivity.",
            {"superconduct": by_method["superconduct"]},
            "sknimo",
        ),
        sparsity(results),
        feature_b(results),
    ]
    return tuple(found)


def compare(
    by_method: dict, dataset: str, method: str, other: str, *, strictly: bool
) -> Verdict:
    """Better than another method, or no worse."""
    ours, theirs = by_method[dataset][method], by_method[dataset][other]
    word = "beats" if strictly else "is no worse than"
    claim = f"{name_of(method)} {word} {name_of(other)} on {dataset}."
    gap, p_value = difference(ours, theirs)
    if not np.isfinite(gap):
        return Verdict(claim, None)
    evidence = f"{show(mean_of(ours))} against {show(mean_of(theirs))}"
    if np.isfinite(p_value):
        evidence += f", p = {p_value:.2g}"
    if strictly:
        holds = gap < 0 and (p_value < 0.05 or not np.isfinite(p_value))
    else:
        holds = gap <= 0 or p_value > 0.05
    return Verdict(claim, bool(holds), evidence)


def sparsity(results: Results) -> Verdict:
    """Coefficients in use on diabetes."""
    counts = {}
    names = results.names("diabetes", "effect")
    for method in SHOWN:
        values = results.table("diabetes", method, "effect", names)
        counts[method] = float((values != 0).sum(axis=1).mean()) if len(values) else 0
    claim = "NIMO keeps fewer coefficients than Lasso on diabetes."
    if not counts["lasso"] or not counts["nimo"]:
        return Verdict(claim, None)
    evidence = ", ".join(f"{name_of(m)} {show(v)}" for m, v in counts.items())
    return Verdict(
        claim, counts["nimo"] < counts["lasso"], f"of {len(names)} features {evidence}"
    )


def feature_b(results: Results) -> Verdict:
    """The feature that the paper finds reduced."""
    claim = "On Boston the effect of B is much smaller in NIMO than in Lasso."
    size = {
        m: float(np.abs(results.table("boston", m, "scaled_effect", ["B"])).mean())
        for m in SHOWN
        if results.items("boston", m, "scaled_effect")
    }
    if not {"lasso", "nimo"} <= set(size):
        return Verdict(claim, None)
    evidence = ", ".join(f"{name_of(m)} {show(v)}" for m, v in size.items())
    return Verdict(
        claim, size["nimo"] < 0.5 * size["lasso"], f"mean size per sd {evidence}"
    )


ARTEFACT = Artefact(
    6,
    "real",
    "Real tables: error, coefficients, first layer",
    (
        Plan(SMALL, METHODS, seeds=9, quick_seeds=1),
        Plan(("superconduct",), BIG_METHODS, seeds=5, quick_seeds=1),
    ),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
