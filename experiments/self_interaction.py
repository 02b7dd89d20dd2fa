"""Artefact 9: a sum of squares, before and after basis expansion (limitation table)."""

from __future__ import annotations

import numpy as np

from experiments._data import SQUARES
from experiments._figures import add_key, dots, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    LEVEL,
    Page,
    Table,
    Verdict,
    compare,
    mean_of,
    name_of,
    show,
    spread,
)

METHODS = ("lasso", "lassonet-deep", "nimo", "sknimo-lines")
BASES = ("sknimo-poly2", "sknimo-spline", "sknimo")
PAPER = {
    "lasso": (5.307, 1.009),
    "lassonet-deep": (1.027, 1.012),
    "nimo": (5.340, 1.009),
}
NAMES = ("x1", "x2", "x3", "x1^2", "x1 x2", "x1 x3", "x2^2", "x2 x3", "x3^2")
TRUTH = (0, 0, 0, 1, 0, 0, 1, 0, 1)


def render(results: Results) -> Page:
    rows = []
    for method in (*METHODS, *BASES):
        row = [name_of(method)]
        for place, dataset in enumerate(SQUARES):
            row.append(show(PAPER[method][place]) if method in PAPER else "")
            row.append(spread(list(results.scalars(dataset, method, "mse").values())))
        rows.append(tuple(row))
    n_seeds = max(len(results.scalars(SQUARES[0], m, "mse")) for m in METHODS)
    table = Table(
        f"Test error, mean ± sd over seeds ({n_seeds}); the noise floor is 1.0; three "
        "features as they are, and nine after expansion",
        ("method", "original, paper", "original", "expanded, paper", "expanded"),
        tuple(rows),
    )
    figure = panels(1, width=7.5, height=3.4)
    series = {
        m: results.table("squares-expanded", m, "effect", NAMES)
        for m in ("lasso", "nimo", "sknimo-lines")
    }
    dots(figure.axes[0], NAMES, series, TRUTH)
    figure.axes[0].set_ylabel("coefficient")
    figure.axes[0].set_title("after expansion")
    add_key(figure)
    note = (
        "`sknimo-poly2` gives each feature a square of its own and hides both columns "
        "from its modulation. Expanding the table by hand, as the paper does, does "
        "not: a square can see its feature through the other columns."
    )
    return Page(
        (table,),
        {"Coefficients after expansion; dots are means, bars one sd": figure},
        verdicts(results),
        (note,),
    )


def verdicts(results: Results) -> tuple[Verdict, ...]:
    plain = errors(results, "squares", METHODS)
    wide = errors(results, "squares-expanded", METHODS)
    ours = errors(results, "squares", BASES)
    both = {"nimo", "lassonet-deep"}
    lasso = compare(
        results.scalars("squares", "nimo", "mse"),
        results.scalars("squares", "lasso", "mse"),
    )
    return (
        Verdict(
            "NIMO cannot fit squares and is no better than Lasso there; LassoNet can.",
            plain["nimo"] > 4
            and plain["lassonet-deep"] < 2
            and not (lasso.gap < 0 and lasso.p_value < LEVEL)
            if both <= set(plain)
            else None,
            f"{listed(plain)}; NIMO and Lasso {lasso.markdown()}",
        ),
        squares_verdict(results),
        Verdict(
            "After expansion NIMO is as good as LassoNet.",
            wide["nimo"] < 1.05 * wide["lassonet-deep"] if both <= set(wide) else None,
            listed(wide),
        ),
        Verdict(
            "A basis inside the library removes the limitation.",
            max(ours.values()) < 1.1 if ours else None,
            listed(ours),
            "sknimo",
        ),
    )


def squares_verdict(results: Results) -> Verdict:
    """Coefficients of the squares after expansion, whose truth is 1."""
    claim = "After expansion NIMO recovers the coefficients of the squares."
    squares = [name for name, true in zip(NAMES, TRUTH, strict=True) if true]
    values = results.table("squares-expanded", "nimo", "effect", squares)
    if not len(values):
        return Verdict(claim, None)
    error = float(np.abs(values.mean(axis=0) - 1).max())
    text = ", ".join(
        f"{name} {spread(column)}"
        for name, column in zip(squares, values.T, strict=True)
    )
    return Verdict(claim, error < 0.1, text)


def errors(results: Results, dataset: str, methods: tuple[str, ...]) -> dict:
    """Mean errors of the methods that have been run."""
    found = {m: mean_of(results.scalars(dataset, m, "mse")) for m in methods}
    return {m: value for m, value in found.items() if value == value}


def listed(values: dict[str, float]) -> str:
    return ", ".join(f"{name_of(m)} {show(v)}" for m, v in values.items())


ARTEFACT = Artefact(
    9,
    "self_interaction",
    "Limitation: self-interaction",
    (
        Plan(("squares",), (*METHODS, *BASES), seeds=10, quick_seeds=1),
        Plan(("squares-expanded",), METHODS, seeds=10, quick_seeds=1),
    ),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
