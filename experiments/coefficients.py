"""Artefact 3: learned coefficients against the truth (the paper's Figure 4)."""

from __future__ import annotations

from experiments._data import simulate
from experiments._figures import add_key, dots, panels
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    Page,
    Table,
    Verdict,
    judge_pairs,
    mean_of,
    name_of,
    show,
    source_of,
    spread,
)

DATASETS = ("setting4", "setting1", "setting2", "setting3")
METHODS = ("lasso", "nimo", "sknimo")
N_SHOWN = 10  # features of setting 3; the others have no effect


def render(results: Results) -> Page:
    head = ["method"]
    for dataset in DATASETS:
        head += [f"{dataset}, error", "at reference", "exact zeros"]
    rows = []
    for method in METHODS:
        row = [name_of(method)]
        for dataset in DATASETS:
            for quantity in ("coef_rmse", "reference_rmse"):
                errors = results.scalars(dataset, method, quantity)
                row.append(spread(list(errors.values())))
            row.append(share(results.scalars(dataset, method, "coef_exact")))
        rows.append(tuple(row))
    table = Table(
        "Coefficients: root mean square error over features, against the truth at zero "
        "and at the reference of the fit (mean ± sd over seeds); seeds in which "
        "exactly the true ones are nonzero",
        tuple(head),
        tuple(rows),
    )
    figure = panels(len(DATASETS))
    for ax, dataset in zip(figure.axes, DATASETS, strict=True):
        truth = simulate(dataset, 0)
        names = list(truth.names[:N_SHOWN])
        series = {m: results.table(dataset, m, "effect", names) for m in METHODS}
        dots(ax, names, series, truth.coef[: len(names)])
        cut = (
            f", first {N_SHOWN} of {len(truth.names)}" if len(truth.names) > 10 else ""
        )
        ax.set_title(("vanilla" if dataset == "setting4" else dataset) + cut)
    figure.axes[0].set_ylabel("effect at the mean")
    add_key(figure)
    note = (
        "The truth drawn is the effect at zero, the centre of the distribution. A "
        "coefficient is the effect at the reference of its fit, the sample mean or for "
        "sknimo a point near it, where "
        "the true effect differs a little; the table has both."
    )
    return Page(
        (table,),
        {
            "Coefficients learned, with the truth; dots are means and bars one sd over "
            "seeds": figure
        },
        verdicts(results),
        (note,),
    )


def share(by_seed: dict[int, float]) -> str:
    """How many of the seeds, as a fraction."""
    return f"{int(sum(by_seed.values()))}/{len(by_seed)}" if by_seed else ""


def verdicts(results: Results) -> tuple[Verdict, ...]:
    found = []
    for method in ("nimo", "sknimo"):
        source = source_of(method)
        linear = results.scalars("setting4", method, "coef_rmse")
        found.append(
            Verdict(
                f"{name_of(method)} leaves a purely linear signal undistorted.",
                mean_of(linear) < 0.05 if linear else None,
                f"error {show(mean_of(linear))} on coefficients from -5 to 4",
                source,
            )
        )
        found.append(
            judge_pairs(
                f"The coefficients of {name_of(method)} are nearer to the truth at the "
                "reference than those of Lasso.",
                {
                    d: tuple(
                        results.scalars(d, m, "reference_rmse")
                        for m in (method, "lasso")
                    )
                    for d in DATASETS[1:]
                },
                source=source,
            )
        )
        exact = {
            m: [results.scalars(d, m, "coef_exact") for d in DATASETS[1:]]
            for m in (method, "lasso")
        }
        known = [mean_of(values) for values in exact[method] if values]
        found.append(
            Verdict(
                f"{name_of(method)} finds the zero coefficients, which Lasso does not.",
                all(value > 0.5 for value in known)
                and not all(mean_of(values) > 0.5 for values in exact["lasso"])
                if known
                else None,
                "seeds with exactly the true support "
                + "; ".join(
                    f"{name_of(m)} {' '.join(share(v) for v in values)}"
                    for m, values in exact.items()
                ),
                source,
            )
        )
    return tuple(found)


ARTEFACT = Artefact(
    3,
    "coefficients",
    "Simulated regression: coefficients",
    (Plan(DATASETS, METHODS, seeds=10, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
