"""Artefact 2: test error on the simulated regression settings (the paper's Table 1)."""

from __future__ import annotations

from experiments._data import REGRESSION
from experiments._run import Artefact, Plan, Results
from experiments._tables import (
    Page,
    Table,
    Verdict,
    judge_first,
    mean_of,
    name_of,
    show,
    spread,
)

RIVALS = ("lasso", "mlp", "nam", "imn", "localglmnet", "lassonet-deep")
METHODS = (*RIVALS, "nimo", "sknimo")
PAPER = {
    "lasso": (3.164, 3.340, 13.122),
    "mlp": (1.109, 1.482, 13.718),
    "nam": (3.427, 5.126, 16.543),
    "imn": (0.137, 1.188, 6.308),
    "lassonet-deep": (0.078, 2.612, 1.738),
    "nimo": (0.024, 0.197, 0.380),
}
NOTES = (
    "The noise has a variance of 0.01: no method can do better.",
    "Where a method stays behind its figure in the paper: the paper reports one number "
    "without spread and tests on 100 rows, so its figures have an error of their own. "
    "LassoNet on setting 1 lies within a standard deviation of it. The paper's NN has "
    "NIMO's layers, with the sine, which suits setting 2, and strong dropout; "
    "scikit-learn's has neither. The paper kept IMN at its defaults; here decay and "
    "dropout are searched around them, which helps, and no choice came near the "
    "paper's figures on settings 2 and 3. Of NIMO itself the paper leaves width, "
    "length of training, noise and grid of penalties open; with the l1 penalty that it "
    "describes, the preset stays behind its figures on all three settings, and none of "
    "the choices tried reached that on setting 3. "
    "LocalGLMnet has no sparsity and overfits 50 features.",
)
SANE = 1.2  # a method may be worse than its figure in the paper by this factor


def render(results: Results) -> Page:
    table = beside_paper(results, REGRESSION, METHODS, "mse", PAPER)
    scores = {
        dataset: {m: results.scalars(dataset, m, "mse") for m in METHODS}
        for dataset in REGRESSION
    }
    rivals = {d: {m: s[m] for m in PAPER} for d, s in scores.items()}
    verdicts = (
        judge_first(
            "NIMO beats every rival.", rivals, "nimo", strictly=True, source="paper"
        ),
        judge_first("sknimo is first or tied for first.", scores, "sknimo"),
        sanity(scores),
    )
    return Page((table,), {}, verdicts, NOTES)


def beside_paper(
    results: Results,
    datasets: tuple[str, ...],
    methods: tuple[str, ...],
    figure: str,
    paper: dict[str, tuple[float, ...]],
) -> Table:
    """A method per row; the paper's figure and ours for each data set."""
    head = ["method"]
    for dataset in datasets:
        head += [f"{dataset}, paper", f"{dataset}, here"]
    rows = []
    for method in methods:
        row = [name_of(method)]
        for place, dataset in enumerate(datasets):
            row.append(show(paper[method][place]) if method in paper else "")
            row.append(spread(list(results.scalars(dataset, method, figure).values())))
        rows.append(tuple(row))
    counts = {len(results.scalars(d, m, figure)) for d in datasets for m in methods}
    title = f"{'Mean squared error' if figure == 'mse' else 'Accuracy'} on 1000 test "
    title += f"rows, mean ± sd over seeds ({max(counts)})"
    return Table(title, tuple(head), tuple(rows))


def sanity(scores: dict[str, dict[str, dict[int, float]]]) -> Verdict:
    """Our versions of the paper's methods against its figures."""
    worse, n_known = [], 0
    for method, paper in PAPER.items():
        for dataset, figure in zip(REGRESSION, paper, strict=True):
            ours = mean_of(scores[dataset][method])
            n_known += ours == ours
            if ours > SANE * figure:
                where = f"{name_of(method)} on {dataset}"
                worse.append(f"{where} {show(ours)}, paper {show(figure)}")
    claim = "Every method is as good here as in the paper, within 20 %."
    if not n_known:
        return Verdict(claim, None, source="sknimo")
    return Verdict(claim, not worse, "; ".join(worse) or "all are", "sknimo")


ARTEFACT = Artefact(
    2,
    "regression",
    "Simulated regression: test error",
    (Plan(REGRESSION, METHODS, seeds=10, quick_seeds=1),),
    render,
)

if __name__ == "__main__":
    ARTEFACT.main()
