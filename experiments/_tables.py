"""Pages: tables, figures and verdicts, and the statistics in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Methods that cannot be told apart at this level share a place.
LEVEL = 0.05
# Test rows over rows fitted, 20/80; 20/60 for methods that only validate on the rest.
SPLIT_OVERLAP = 0.25
PARTLY: Literal["partly"] = "partly"
Source = Literal["paper", "sknimo"]  # whose claim is judged


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
    """A claim, whether it holds here (None: not run), and the figures.

    `PARTLY` means that it holds on some data sets and is contradicted on none.
    """

    claim: str
    holds: bool | None | Literal["partly"]
    evidence: str = ""
    source: Source = "paper"

    def markdown(self) -> str:
        head = f"- {self.source.replace('paper', 'Paper')}: *{self.claim}*"
        if self.holds is None:
            return f"{head} **Not run.**"
        if self.holds == PARTLY:
            word = "Partly confirmed"
        else:
            word = "Confirmed" if self.holds else "Not confirmed"
        return f"{head} **{word}**: {self.evidence}."


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
            link = f"{folder}/{figure_name(stem, place)}"
            blocks.append(f"![{caption}]({link})\n\n*{caption}.*")
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
        return f"{show(values[0])} (1)"
    return f"{show(values.mean())} ± {show(values.std(ddof=1))} ({len(values)})"


@dataclass(frozen=True)
class Comparison:
    """Means of two methods over the seeds that both have, and a paired t-test."""

    ours: float
    theirs: float
    p_value: float  # two-sided; NaN with fewer than two seeds

    @property
    def gap(self) -> float:
        return self.ours - self.theirs

    def markdown(self) -> str:
        return f"{show(self.ours)} against {show(self.theirs)}{self.p_text}"

    @property
    def p_text(self) -> str:
        return f" (p = {self.p_value:.2g})" if np.isfinite(self.p_value) else ""


def compare(
    a: Mapping[int, float], b: Mapping[int, float], overlap: float = 0.0
) -> Comparison:
    """Two methods on the same seeds; NaN if there are none.

    Splits of one table share rows. `overlap`, the number of test rows over that of the
    rows fitted, widens the variance for it as Nadeau and Bengio propose; samples that
    are drawn anew need none.
    """
    seeds = sorted(set(a) & set(b))
    if not seeds:
        return Comparison(np.nan, np.nan, np.nan)
    first, second = (np.array([v[s] for s in seeds], dtype=float) for v in (a, b))
    gap = first - second
    if len(seeds) < 2:
        p_value = np.nan
    elif np.ptp(gap) <= 1e-9 * np.abs(gap).max():  # the same everywhere
        p_value = float(gap[0] == 0)
    else:
        n = len(seeds)
        t_value = gap.mean() / (gap.std(ddof=1) * np.sqrt(1 / n + overlap))
        p_value = float(2 * stats.t.sf(abs(t_value), n - 1))
    return Comparison(float(first.mean()), float(second.mean()), p_value)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's correction for several tests of one claim; NaN stays."""
    values = np.asarray(p_values, dtype=float)
    adjusted, known = values.copy(), np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known])]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return adjusted


def judge_pairs(
    claim: str,
    pairs: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]],
    *,
    larger_is_better: bool = False,
    overlap: float = 0.0,
    source: Source = "paper",
) -> Verdict:
    """Whether the first of each pair is better than the second, by data set.

    It holds if the first is clearly better everywhere, partly if somewhere and worse
    nowhere. Clearly means significantly, corrected for the number of data sets or, with
    a single seed, by more than 5 %.
    """
    found = {name: compare(*pair, overlap) for name, pair in pairs.items()}
    found = {name: c for name, c in found.items() if np.isfinite(c.gap)}
    if not found:
        return Verdict(claim, None, source=source)
    adjusted = holm([c.p_value for c in found.values()])
    sign, signs, parts = (-1 if larger_is_better else 1), [], []
    for (name, c), p_value in zip(found.items(), adjusted, strict=True):
        clear = p_value < LEVEL
        if not np.isfinite(p_value):
            clear = abs(c.gap) > 0.05 * abs(c.theirs)
        signs.append(int(np.sign(sign * c.gap)) if clear else 0)
        parts.append(f"{name} {replace(c, p_value=p_value).markdown()}")
    n_better = signs.count(-1)
    holds: bool | Literal["partly"] = n_better == len(signs)
    if 0 < n_better < len(signs) and 1 not in signs:
        holds = PARTLY
    return Verdict(claim, holds, "; ".join(parts), source)


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
    strictly: bool = False,
    overlap: float = 0.0,
    source: Source = "sknimo",
) -> Verdict:
    """Whether a method is first, or tied with the first, on every data set.

    `scores` go by data set, method and seed. A method is compared with each other on
    their common seeds. It is tied with a better one when a paired t-test does not tell
    them apart; with one seed nothing is tied. `strictly` asks for clearly better.
    """
    sign = -1 if larger_is_better else 1
    parts, holds = [], []
    for dataset, by_method in scores.items():
        ours = by_method.get(method, {})
        others = {
            m: compare(ours, v, overlap) for m, v in by_method.items() if m != method
        }
        others = {m: c for m, c in others.items() if np.isfinite(c.gap)}
        if not others:
            continue
        for c in others.values():
            ahead = sign * c.gap <= 0
            if strictly:
                holds.append(ahead and not c.p_value >= LEVEL)
            else:
                holds.append(ahead or c.p_value > LEVEL)
        best = max(others, key=lambda m: sign * others[m].gap)
        c = others[best]
        p_text = f", p = {c.p_value:.2g}" if np.isfinite(c.p_value) else ""
        text = f"{dataset} {show(c.ours)}, best other {show(c.theirs)}"
        parts.append(f"{text} ({name_of(best)}{p_text})")
    if not parts:
        return Verdict(claim, None, source=source)
    return Verdict(claim, all(holds), "; ".join(parts), source)


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
    "lightgbm-stopped": "LightGBM (stopped)",
    "nimo": "NIMO (paper)",
    "nimo-joint": "NIMO by joint descent",
}


def source_of(method: str) -> Source:
    """Whose claim it is that this form of NIMO does well."""
    return "sknimo" if method.startswith("sknimo") else "paper"


def name_of(method: str) -> str:
    """A method as tables and figures call it."""
    return LABELS.get(method, method)
