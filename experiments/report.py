"""Results to `docs/reproduction.md`; no number is typed by hand.

    python -m experiments.report [--quick] [--out DIR] [--page docs/reproduction.md]

Reads the cells of one effort, renders every artefact and adds the protocol, the
settings of all methods and the times of their fits.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments import paper_search
from experiments.__main__ import ARTEFACTS
from experiments._data import BIG
from experiments._run import Artefact, Results, read_results
from experiments._tables import LABELS, Table, name_of, show

INTRODUCTION = """\
# Reproduction of the paper

Every table and figure of *NIMO: a Nonlinear Interpretable MOdel* (Xu, Negri and Roth,
ICLR 2026), computed with this library and with rivals on the same rows. This page is
written by `experiments/report.py` from the results; no measured result is typed by
hand.

## How to repeat it

```shell
make reproduce       # quick: one seed, smaller searches, half an hour on two cores
make reproduce-full  # all seeds
python -m experiments.regression --seeds 10 --jobs 8        # one artefact
python -m experiments --methods sknimo,nimo --datasets boston --seeds 0,1
python -m experiments.report --out experiments/results/full # this page
```

Each fit is a *cell*: a method on a data set with a seed. Cells are written to
`OUT/cells/DATASET.csv` as soon as they are known and never computed twice, so a run can
be stopped, resumed and split between machines. Real tables are read from the folder
given by `--data` or `SKNIMO_DATA`; `python -m experiments.download` fetches them from
PMLB, OpenML, UCI and scikit-learn and checks their numbers against pinned hashes.

## Protocol

**Simulated settings.** The paper's formulas (`sknimo.datasets`), 200 rows to train and
100 to validate on. The paper tests on 100 rows, too few for accuracies, whose standard
error is then 0.03 to 0.05; here 1000 are drawn. The seed draws the data and starts the
methods.

**Real tables.** Shuffled with the seed and split 60/20/20.

**Rows.** All methods may use the same training and validation rows. Lasso, EBM,
LightGBM and sknimo are fitted on both together, NN is refitted on both once its
settings are chosen; LassoNet, NAM, IMN, LocalGLMnet and NIMO in the paper's form train
on the first and use the second to choose. The ablations have sknimo on the training
rows alone too.

**Tuning.** Settings were chosen on seed 100 and beyond; for real tables these are other
splits of the same rows. Results of earlier versions of sknimo on the seeds reported
here were seen during its development.

**Versions.** Cells of sknimo are of the version named below. The search has changed
since; [benchmarks.md](benchmarks.md) says what it reaches today on the simulated
settings and on the small tables.

**Statistics.** Numbers in brackets count the seeds. Methods are compared on their
common seeds by paired t-tests at 5 %; with one seed nothing is tested. Splits of a real
table share rows, for which the variance is widened (Nadeau and Bengio). Tests of one
claim on several settings are corrected after Holm in sections 3 and 8; elsewhere
p-values are not corrected, and that of the best other method is shown. *Tied* means not
told apart, which is not the same as equal; claims of being as good, no worse or tied
count as confirmed when no difference is found. *Partly confirmed*: clear on some
settings, contradicted on none. Sections 1, 4, 7, 10 and 11, and some verdicts
elsewhere, have fixed limits in place of tests. Claims are those of the paper, or ours
where it says sknimo.

**Machines.** Cells come from several, so fit times are given in units of a fixed piece
of work. Large tables (PMLB, superconductivity) were partly fitted on a GPU and are left
out there.

## Methods

| name | what it is |
|---|---|
| sknimo | `NIMORegressorCV`, `NIMOClassifierCV`, defaults |
| sknimo-lines, -poly2, -spline | the same with another `basis` |
| sknimo-train | the same on the training rows alone |
| NIMO (paper) | `NIMORegressor` and `NIMOClassifier` as the paper describes its \
method: l1 on bare coefficients, one member, no refit, binary position code, noise \
0.2, 64 + 64 units, a start at the lasso, 2000 steps of Adam (1000 on real tables) \
whose rate rises to 0.001 (0.005 on real tables) and falls again, both penalties \
chosen among nine pairs (two on tables of more than 20,000 numbers) on the validation \
rows. Width, number of steps, schedule, noise and grid are not in the paper |
| Lasso | `LassoCV`, or `LogisticRegressionCV` with an l1 penalty |
| NN | scikit-learn's network, two layers of 100 units; activation, decay and early \
stopping chosen on the validation rows |
| LassoNet | its path with two layers of 100 units, penalty chosen on the validation \
rows |
| NAM, IMN, LocalGLMnet | compact versions in `experiments/rivals/`, written from the \
papers; their docstrings name settings and departures |
| EBM, LightGBM | defaults; *stopped*: smaller steps, their number chosen on the \
validation rows |

The paper's errata that matter here are listed in
[architecture.md](architecture.md#the-papers-errata-and-what-we-do-instead): the preset
uses the corrected forms.
"""


TIMES_NOTE = (
    "Methods were not run on the same tables, so rows are to be compared with sknimo, "
    "not with one another. Times are of the whole choice of settings: nine fits of "
    "NIMO (paper), six of IMN, thirteen of NN."
)


def write_report(results: Results, out: Path, page: Path) -> None:
    """Render everything; figures go to a folder next to the page."""
    folder = page.with_suffix("")
    parts = [INTRODUCTION, status(results, out)]
    for artefact in ARTEFACTS:
        rendered = artefact.render(results)
        rendered.write(folder, artefact.stem)
        (folder / f"{artefact.stem}.md").unlink()  # it is part of the page
        command = f"python -m experiments.{artefact.name}"
        if results.effort == "quick":
            command += " --quick"
        parts.append(
            f"## {artefact.number}. {artefact.title}\n\n`{command}`\n\n"
            + rendered.markdown(artefact.stem, folder.name)
        )
    parts.append(paper_search.section())
    parts.append("## Fit times\n\n" + times(results).markdown() + "\n\n" + TIMES_NOTE)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n\n".join(part.strip() for part in parts if part) + "\n")


def status(results: Results, out: Path) -> str:
    """What has been run, and what has not."""
    words = [
        f"## What has been run\n\n{len(results.done)} cells of the *{results.effort}* "
        f"plan, with {versions(out, results.effort)} (*source*: a checkout)."
    ]
    if results.effort == "quick":
        words.append(
            "**Quick results**: one seed, smaller searches, large tables cut to 500 "
            "rows. They show that everything runs, not who is better."
        )
    absent = [text for a in ARTEFACTS for text in missing(a, results)]
    if absent:
        words.append("Missing: " + "; ".join(absent) + ".")
    return "\n\n".join(words)


def missing(artefact: Artefact, results: Results) -> Iterable[str]:
    """Methods that were not run at all; tables count the seeds of the others."""
    for plan in artefact.plans:
        for dataset in plan.datasets:
            absent = [
                name_of(m)
                for m in plan.methods
                if not results.items(dataset, m, "seconds")
            ]
            if absent:
                yield f"artefact {artefact.number}, {dataset} ({', '.join(absent)})"


def versions(out: Path, effort: str) -> str:
    """Version of the package behind each method, as recorded with its cells."""
    found: dict[str, set[str]] = {}
    for path in sorted((out / "cells").glob("*.csv")):
        with path.open(newline="") as lines:
            for row in csv.DictReader(lines):
                if row["effort"] == effort and row["quantity"] == "seconds":
                    found.setdefault(package_of(row["method"]), set()).add(
                        row["version"]
                    )
    return ", ".join(
        f"{name} {' and '.join(sorted(v))}" for name, v in sorted(found.items())
    )


def package_of(method: str) -> str:
    first = method.split("-")[0]
    return {
        "nimo": "sknimo",
        "lasso": "scikit-learn",
        "mlp": "scikit-learn",
        "nam": "torch",
        "imn": "torch",
        "localglmnet": "torch",
        "ebm": "interpret",
    }.get(first, first)


def times(results: Results) -> Table:
    """Processor time of fits relative to sknimo on the same data and seed.

    Without large tables, which may have been fitted on a GPU.
    """
    datasets = [
        d
        for d in dict.fromkeys(d for d, m, _ in results.values if m == "sknimo")
        if d not in BIG
    ]
    methods = dict.fromkeys(
        m for _, m, _ in results.values if m in LABELS or m.startswith("sknimo")
    )
    rows = []
    for method in methods:
        ratios = []
        for dataset in datasets:
            ours = results.relative_cpu(dataset, "sknimo")
            theirs = results.relative_cpu(dataset, method)
            common = sorted(set(ours) & set(theirs))
            ratios += [theirs[s] / ours[s] for s in common]
        if ratios:
            low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
            text = f"{show(middle)} ({show(low)} to {show(high)})"
            rows.append((middle, (name_of(method), text, str(len(ratios)))))
    rows.sort(key=lambda row: row[0])
    return Table(
        "Processor time of a fit relative to sknimo on the same rows, each in units of "
        "a fixed piece of work timed just before it: median (10 to 90 %) over cells",
        ("method", "time / time of sknimo", "cells"),
        tuple(row for _, row in rows),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="report quick results")
    parser.add_argument("--out", type=Path, help="folder of results")
    parser.add_argument("--page", type=Path, default=Path("docs", "reproduction.md"))
    options = parser.parse_args()
    effort = "quick" if options.quick else "full"
    out = options.out or Path("experiments", "results", effort)
    results = read_results(out / "cells", effort)
    if not results.done:
        raise SystemExit(f"No {effort} results in {out}.")
    write_report(results, out, options.page)
    print(options.page)


if __name__ == "__main__":
    main()
