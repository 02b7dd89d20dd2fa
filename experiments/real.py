"""Artefact 6: real tables (the paper's Figures 5, 6 and those of its appendix)."""

from __future__ import annotations

import numpy as np

from experiments._figures import add_key, boxes, colour_of, dots, panels, say
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    LEVEL,
    SPLIT_OVERLAP,
    Page,
    Table,
    Verdict,
    compare,
    judge_first,
    judge_pairs,
    mean_of,
    name_of,
    show,
    spread,
)
from experiments.first_layer import mean_shares
from experiments.regression import PAPER, RIVALS

SMALL = ("diabetes", "boston")
DATASETS = (*SMALL, "superconduct")
METHODS = (
    *RIVALS,
    "ebm",
    "lightgbm",
    "lightgbm-stopped",
    "nimo",
    "sknimo",
    "sknimo-lines",
)
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
    rows = [
        (
            name_of(method),
            *(spread(list(scores(results, d, method).values())) for d in DATASETS),
        )
        for method in METHODS
        if any(scores(results, d, method) for d in DATASETS)
    ]
    counts = ", ".join(
        f"{d} {max(len(scores(results, d, m)) for m in METHODS)}" for d in DATASETS
    )
    title = f"Test mean squared error, mean ± sd over splits ({counts})"
    return Page(
        (Table(title, ("method", *DATASETS), tuple(rows)),),
        figures(results),
        verdicts(results),
        notes(results),
    )


def notes(results: Results) -> tuple[str, ...]:
    names = results.names("diabetes", "input_norm")
    read = results.table("diabetes", "sknimo", "input_norm", names)
    linear = ""
    if len(read):
        linear = (
            " On diabetes sknimo returned the plain linear model in "
            f"{int((read == 0).all(axis=1).sum())} of {len(read)} splits."
        )
    return (
        "The paper shows these results as box plots without numbers. `superconduct` is "
        "cut to 500 rows in quick runs; NAM, IMN, LocalGLMnet and LightGBM without "
        "early stopping were not run on it, to save time. There NIMO in the paper's "
        "form chooses among two pairs of penalties, on the small tables among nine."
        + linear,
        *collinear_note(results),
    )


def collinear_note(results: Results) -> tuple[str, ...]:
    """Coefficients of superconduct, whose features are nearly collinear."""
    names = results.names("superconduct", "scaled_effect")
    effects = results.table("superconduct", "sknimo", "scaled_effect", names)
    if len(effects) < 2:
        return ()
    variance = mean_of(results.scalars("superconduct", "sknimo", "variance"))
    signs = np.sign(effects)
    n_turning = int(((signs > 0).any(axis=0) & (signs < 0).any(axis=0)).sum())
    largest = float(np.abs(effects).max(axis=1).mean() / np.sqrt(variance))
    return (
        "Many of the features of `superconduct` are nearly collinear, and coefficients "
        "of sknimo there should not be interpreted: "
        f"{(effects != 0).sum(axis=1).mean():.0f} of {len(names)} features are kept, "
        f"the largest effect per sd is {show(largest)} times the standard "
        f"deviation of the target, and {n_turning} change sign between splits.",
    )


def scores(results: Results, dataset: str, method: str) -> dict[int, float]:
    return results.scalars(dataset, method, "mse")


def figures(results: Results) -> dict[str, object]:
    known = results.datasets(DATASETS)
    if not known:
        return {}
    errors = panels(len(known), width=4.8, height=4.0)
    for ax, dataset in zip(errors.axes, known, strict=True):
        values = {m: list(scores(results, dataset, m).values()) for m in METHODS}
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
        "Test error over splits, a dot each": errors,
        "Effects at the mean; dots are means and bars one sd over splits": effects,
        "Share of the first layer's weight, mean over splits": (
            first_layers(results, known)
        ),
    }


def first_layers(results: Results, known: list[str]) -> object:
    """How much of the first layer each feature holds, mean over splits."""
    figure = panels(len(known), width=9.0, height=3.4, n_columns=1)
    for ax, dataset in zip(figure.axes, known, strict=True):
        names = results.names(dataset, "input_norm")
        series = {
            m: mean_shares(results.table(dataset, m, "input_norm", names))
            for m in ("nimo", "sknimo")
            if results.items(dataset, m, "input_norm")
        }
        total = sum(series.values())
        keep = np.sort(np.argsort(-total)[:N_SHOWN])
        for k, (method, shares) in enumerate(series.items()):
            share = shares[keep]
            places = np.arange(len(keep)) + 0.38 * (k - 0.5)
            ax.bar(places, share, 0.36, color=colour_of(method), label=name_of(method))
        ax.set_xticks(range(len(keep)), [names[j] for j in keep], rotation=90)
        rest = f", {N_SHOWN} largest of {len(names)}" if len(names) > N_SHOWN else ""
        ax.set_title(f"{dataset}{rest}: share of the first layer's weight")
        if not total.any():
            ax.set_ylim(0, 1)
            say(ax, "no feature is read")
    add_key(figure)
    return figure


def verdicts(results: Results) -> tuple[Verdict, ...]:
    by_method = {
        d: {m: scores(results, d, m) for m in METHODS if m != "sknimo-lines"}
        for d in DATASETS
    }
    # The methods of the paper, to judge its claims.
    theirs = {d: {m: found[m] for m in PAPER} for d, found in by_method.items()}

    def first(dataset: str) -> Verdict:
        claim = f"sknimo is first or tied for first on {dataset}."
        return judge_first(
            claim, {dataset: by_method[dataset]}, "sknimo", overlap=SPLIT_OVERLAP
        )

    def as_good(dataset: str, claim: str) -> Verdict:
        return judge_first(
            claim,
            {dataset: theirs[dataset]},
            "nimo",
            overlap=SPLIT_OVERLAP,
            source="paper",
        )

    return (
        as_good("diabetes", "NIMO (paper) is as good as others on diabetes."),
        as_good("boston", "NIMO (paper) is as good as others on boston."),
        judge_pairs(
            "NIMO (paper) beats Lasso on boston.",
            {"boston": (theirs["boston"]["nimo"], theirs["boston"]["lasso"])},
            overlap=SPLIT_OVERLAP,
        ),
        as_good("superconduct", "NIMO (paper) is first or tied on superconduct."),
        no_worse(by_method["diabetes"], "sknimo", "lasso"),
        *(first(dataset) for dataset in DATASETS),
        sparsity(results),
        *feature_b(results),
    )


def no_worse(by_method: dict, method: str, other: str) -> Verdict:
    claim = f"{name_of(method)} is no worse than {name_of(other)} on diabetes."
    found = compare(by_method[method], by_method[other], SPLIT_OVERLAP)
    if not np.isfinite(found.gap):
        return Verdict(claim, None, source="sknimo")
    holds = found.gap <= 0 or found.p_value > LEVEL
    return Verdict(claim, bool(holds), found.markdown(), "sknimo")


def sparsity(results: Results) -> Verdict:
    """Coefficients in use on diabetes."""
    names = results.names("diabetes", "effect")
    counts = {}
    for method in SHOWN:
        by_seed = results.items("diabetes", method, "effect")
        counts[method] = {
            seed: float(sum(value != 0 for value in effects.values()))
            for seed, effects in by_seed.items()
        }
    claim = "NIMO keeps fewer coefficients than Lasso on diabetes, without s1, s2, s4."
    if not counts["lasso"] or not counts["nimo"]:
        return Verdict(claim, None)
    found = compare(counts["nimo"], counts["lasso"], SPLIT_OVERLAP)
    dropped = []
    for name in ("s1", "s2", "s4"):
        n_zero = [
            int((results.table("diabetes", m, "effect", [name]) == 0).sum())
            for m in ("nimo", "lasso")
        ]
        dropped.append(f"{name} {n_zero[0]} and {n_zero[1]}")
    return Verdict(
        claim,
        bool(found.gap < 0 and not found.p_value >= LEVEL),
        f"{found.markdown()} of {len(names)}, sknimo "
        f"{show(mean_of(counts['sknimo']))}; dropped by NIMO and by Lasso in "
        f"{len(counts['nimo'])} splits: " + ", ".join(dropped),
    )


def feature_b(results: Results) -> tuple[Verdict, ...]:
    """The feature that the paper finds reduced, as a share of all effects."""
    claims = (
        "On Boston the effect of B is much smaller in NIMO than in Lasso.",
        "B does not matter for the nonlinear terms either.",
    )
    size, weight = {}, {}
    for method in SHOWN:
        for quantity, shares in (("scaled_effect", size), ("input_norm", weight)):
            names = results.names("boston", quantity)
            values = np.abs(results.table("boston", method, quantity, names))
            if values.any():
                shares[method] = float(mean_shares(values)[names.index("B")])
    if not {"lasso", "nimo"} <= set(size):
        return tuple(Verdict(claim, None) for claim in claims)

    def listed(shares: dict[str, float]) -> str:
        return ", ".join(f"{name_of(m)} {value:.1%}" for m, value in shares.items())

    evidence = f"share of the sum of all effects per sd {listed(size)}"
    found = [Verdict(claims[0], size["nimo"] < 0.5 * size["lasso"], evidence)]
    if "nimo" in weight:
        even = 1 / len(results.names("boston", "input_norm"))
        evidence = f"share of the first layer {listed(weight)}; even: {even:.1%}"
        found.append(Verdict(claims[1], weight["nimo"] < 0.5 * even, evidence))
    return tuple(found)


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
