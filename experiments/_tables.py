"""Pages: tables, figures and verdicts, and the statistics in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Methods that cannot be told apart at this level share a place.
LEVEL = 0.05


@dataclass(frozen=True)
class Table:
    """Text in rows and columns, the first column for names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", "| " + " | ".join(self.head) + " |"]
        lines.append("|---" * len(self.head) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here (None: not run), and the figures."""

    claim: str
    holds: bool | None
    evidence: str = ""

    def markdown(self) -> str:
        if self.holds is None:
            return f"- *{self.claim}* **Not run.**"
        word = "Confirmed" if self.holds else "Not confirmed"
        return f"- *{self.claim}* **{word}**: {self.evidence}."


@dataclass(frozen=True)
class Page:
    """What is shown of an artefact."""

    tables: tuple[Table, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)  # by caption
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()

    def markdown(self, stem: str, folder: str = ".") -> str:
        """The page as text; figures are linked where `write` puts them."""
        blocks = [table.markdown() for table in self.tables]
        blocks += list(self.notes)
        if self.verdicts:
            blocks.append("\n".join(verdict.markdown() for verdict in self.verdicts))
        for place, caption in enumerate(self.figures):
            blocks.append(f"![{caption}]({folder}/{figure_name(stem, place)})")
        return "\n\n".join(blocks)

    def write(self, out: Path, stem: str) -> None:
        """Save text and figures."""
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{stem}.md").write_text(self.markdown(stem) + "\n")
        for place, figure in enumerate(self.figures.values()):
            figure.savefig(out / figure_name(stem, place), dpi=110)


def figure_name(stem: str, place: int) -> str:
    return f"{stem}_{place + 1}.png"


def show(value: float) -> str:
    """Three significant digits, without exponents."""
    if not np.isfinite(value):
        return ""
    if abs(value) < 5e-6:
        return "0"
    n_decimals = max(0, 2 - int(np.floor(np.log10(abs(value)))))
    return f"{value:.{min(n_decimals, 5)}f}"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds, and how many there are."""
    values = np.asarray(values, dtype=float)
    if len(values) == 0:
        return ""
    if len(values) == 1:
        return show(values[0])
    return f"{show(values.mean())} ± {show(values.std(ddof=1))} ({len(values)})"


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> np.ndarray:
    """Values of two methods for the seeds that both have, (2, n)."""
    seeds = sorted(set(a) & set(b))
    return np.array([[a[s] for s in seeds], [b[s] for s in seeds]])


def difference(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[float, float]:
    """Mean of a - b over common seeds and its two-sided p-value (paired t-test)."""
    both = paired(a, b)
    if both.shape[1] < 2:
        return (float(both[0].mean() - both[1].mean()) if both.size else np.nan), np.nan
    gap = both[0] - both[1]
    if np.ptp(gap) <= 1e-9 * np.abs(gap).max():  # the same everywhere
        return float(gap.mean()), float(gap[0] == 0)
    return float(gap.mean()), float(stats.ttest_rel(*both).pvalue)


def average_ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks of k methods, the smallest score first, averaged over N tables, (k,)."""
    return stats.rankdata(scores, axis=1).mean(axis=0)


def critical_difference(n_methods: int, n_tables: int) -> float:
    """Difference of average ranks beyond which two methods differ (Nemenyi)."""
    quantile = stats.studentized_range.ppf(1 - LEVEL, n_methods, np.inf)
    return float(
        quantile / np.sqrt(2) * np.sqrt(n_methods * (n_methods + 1) / (6 * n_tables))
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's correlation; NaN when one side is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def judge_first(
    claim: str,
    scores: Mapping[str, Mapping[str, Mapping[int, float]]],
    method: str,
    *,
    larger_is_better: bool = False,
) -> Verdict:
    """Whether a method is first, or tied with the first, on every data set.

    `scores` go by data set, method and seed. A method is tied with a better one when a
    paired t-test over seeds does not tell them apart; with one seed nothing is tied.
    """
    sign = -1 if larger_is_better else 1
    parts, holds = [], []
    for dataset, by_method in scores.items():
        ours = by_method.get(method, {})
        means = {
            m: sign * mean_of(v) for m, v in by_method.items() if v and m != method
        }
        if not ours or not means:
            continue
        best = min(means, key=means.__getitem__)
        gap, p_value = difference(ours, by_method[best])
        ahead = sign * gap <= 0
        text = f"{dataset} {show(mean_of(ours))}, best other {show(sign * means[best])}"
        text += f" ({name_of(best)}"
        if np.isfinite(p_value) and not ahead:
            text += f", p = {p_value:.2g}"
        parts.append(text + ")")
        holds.append(ahead or p_value > LEVEL)
    if not parts:
        return Verdict(claim, None)
    return Verdict(claim, all(holds), "; ".join(parts))


def mean_of(by_seed: Mapping[int, float]) -> float:
    return float(np.mean(list(by_seed.values()))) if by_seed else float("nan")


LABELS = {
    "lasso": "Lasso",
    "mlp": "NN",
    "nam": "NAM",
    "imn": "IMN",
    "localglmnet": "LocalGLMnet",
    "lassonet": "LassoNet",
    "lassonet-deep": "LassoNet",
    "ebm": "EBM",
    "lightgbm": "LightGBM",
    "lightgbm-stopped": "LightGBM, stopped",
    "nimo": "NIMO (paper)",
}


def name_of(method: str) -> str:
    """A method as tables and figures call it."""
    return LABELS.get(method, method)
