"""Artefact 7: features ranked by their effect at the mean, and by SHAP (Table 2)."""

from __future__ import annotations

import numpy as np
from scipy import stats

from experiments._run import Artefact, Plan, Results
from experiments._tables import Page, Table, Verdict, name_of, rank_correlation, show
from experiments.real import SMALL

METHODS = ("sknimo", "nimo", "lassonet-deep", "nam", "imn", "lasso")
# Ranks in the paper, features in the order of the tables.
PAPER = {
    "diabetes": {
        "SHAP": (7, 5, 1, 3, 10, 9, 4, 8, 2, 6),
        "nimo": (7, 5, 1, 3, 10, 9, 4, 8, 2, 6),
        "lassonet-deep": (9, 5, 2, 3, 7, 10, 4, 8, 1, 6),
        "nam": (5, 7, 2, 3, 10, 9, 6, 8, 1, 4),
        "imn": (9, 5, 2, 3, 8, 7, 6, 4, 1, 10),
        "lasso": (10, 5, 2, 4, 3, 6, 8, 7, 1, 9),
    },
    "boston": {
        "SHAP": (10, 13, 11, 12, 8, 2, 6, 3, 5, 4, 7, 9, 1),
        "nimo": (9, 13, 12, 8, 11, 2, 7, 3, 1, 5, 6, 10, 4),
        "lassonet-deep": (3, 10, 2, 5, 9, 8, 6, 1, 12, 11, 4, 13, 7),
        "nam": (5, 11, 12, 8, 10, 6, 9, 3, 13, 7, 4, 2, 1),
        "imn": (8, 12, 13, 10, 9, 1, 5, 3, 7, 6, 4, 11, 2),
        "lasso": (9, 8, 13, 11, 7, 3, 12, 2, 4, 6, 5, 10, 1),
    },
}


def render(results: Results) -> Page:
    tables, verdicts, notes = [], [], []
    for dataset in SMALL:
        names = results.names(dataset, "scaled_effect")
        sizes = {m: mean_size(results, dataset, m, names) for m in METHODS}
        sizes = {m: size for m, size in sizes.items() if size is not None}
        if not sizes:
            continue
        columns = {
            "paper: SHAP": np.array(PAPER[dataset]["SHAP"], dtype=float),
            "paper: NIMO": np.array(PAPER[dataset]["nimo"], dtype=float),
        }
        for method in ("sknimo", "nimo"):
            shap = results.table(dataset, method, "shap", names)
            if len(shap):
                label = f"SHAP of {name_of(method)}"
                columns[label] = stats.rankdata(-shap.mean(axis=0))
        columns |= {name_of(m): stats.rankdata(-size) for m, size in sizes.items()}
        tables += [rank_table(dataset, names, columns), correlations(dataset, columns)]
        verdicts.append(shap_verdict(results, dataset, names))
        notes.append(beside_paper(dataset, sizes))
        if dataset == "boston" and "lassonet-deep" in sizes:
            place = stats.rankdata(-sizes["lassonet-deep"])[names.index("INDUS")]
            claim = "On Boston LassoNet gives INDUS a high rank."
            verdicts.append(Verdict(claim, bool(place <= 4), f"{place:g} of 13"))
    return Page(
        tuple(tables),
        {},
        tuple(verdicts),
        (
            "Ranks are of the mean over splits of the absolute effect per standard "
            "deviation, by central differences at the mean where a model has no such "
            "parameter. SHAP values are interventional, by 24 random orders and their "
            "reverses, each pair with one training or validation row as background. "
            "Features with equal values share the mean of their ranks.",
            *notes,
        ),
    )


def beside_paper(dataset: str, sizes: dict[str, np.ndarray]) -> str:
    """How our ranking by each method goes with the paper's by the same method."""
    found = ", ".join(
        f"{name_of(m)} {rank_correlation(-size, PAPER[dataset][m]):.2f}"
        for m, size in sizes.items()
        if m in PAPER[dataset]
    )
    return (
        f"Rank correlation with the paper's ranking by the same method, {dataset}: "
        f"{found}."
    )


def mean_size(
    results: Results, dataset: str, method: str, names: list[str]
) -> np.ndarray | None:
    effects = results.table(dataset, method, "scaled_effect", names)
    return np.abs(effects).mean(axis=0) if len(effects) else None


def rank_table(dataset: str, names: list[str], columns: dict[str, np.ndarray]) -> Table:
    rows = [
        (name, *(f"{ranks[j]:g}" for ranks in columns.values()))
        for j, name in enumerate(names)
    ]
    return Table(f"{dataset}: ranks", ("feature", *columns), tuple(rows))


def correlations(dataset: str, columns: dict[str, np.ndarray]) -> Table:
    """Spearman's correlation of every ranking with every other."""
    rows = [
        (a, *(f"{rank_correlation(x, y):.2f}" for y in columns.values()))
        for a, x in columns.items()
    ]
    title = f"{dataset}: rank correlations"
    return Table(title, ("", *columns), tuple(rows))


def shap_verdict(results: Results, dataset: str, names: list[str]) -> Verdict:
    """Agreement of effects at the mean with SHAP, split by split."""
    found = {}
    for method in ("nimo", "sknimo"):
        effects = results.table(dataset, method, "scaled_effect", names)
        shap = results.table(dataset, method, "shap", names)
        values = [
            rank_correlation(np.abs(e), s) for e, s in zip(effects, shap, strict=True)
        ]
        values = [value for value in values if np.isfinite(value)]
        if values:
            found[method] = float(np.mean(values))
    word = "the same" if dataset == "diabetes" else "largely the same"
    claim = f"On {dataset} SHAP ranks the features of NIMO {word} as its coefficients."
    if "nimo" not in found:
        return Verdict(claim, None)
    paper = rank_correlation(PAPER[dataset]["SHAP"], PAPER[dataset]["nimo"])
    evidence = ", ".join(f"{name_of(m)} {show(v)}" for m, v in found.items())
    limit = 0.9 if dataset == "diabetes" else 0.7
    return Verdict(
        claim,
        found["nimo"] > limit,
        f"mean rank correlation over splits {evidence}; in the paper {show(paper)}",
    )


ARTEFACT = Artefact(
    7,
    "rankings",
    "Feature rankings",
    (Plan(SMALL, METHODS, seeds=9, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
