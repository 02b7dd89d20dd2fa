"""Rows that are explained one by one, and from which the what-if page may start.

Shapes: n rows, p features.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from sknimo.explain import Explanation, explain
from sknimo.families import Family
from sknimo.inference import with_errors
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._quality import row_deviance
from sknimo.report._text import show_value

# Typical rows by their rank among the predictions, then rows that fit badly.
RANKS = (
    (0.5, "median prediction"),
    (0.0, "lowest prediction"),
    (1.0, "highest prediction"),
    (0.25, "lower quartile"),
    (0.75, "upper quartile"),
)
N_CASES = 8
MAX_STEPS = 8
Z_95 = 1.959964


@dataclass(frozen=True, slots=True)
class CaseStep:
    """What one feature (or the rest together) adds to a prediction.

    Name and value are ready to be shown; `start` and `stop` are the linear predictor
    before and after, `reach` how far a 95 % interval of the amount goes, NaN for none.
    """

    name: str
    value: str
    amount: float
    start: float
    stop: float
    reach: float = math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One row explained: its position in the sample, its name, and why it was chosen.

    `found` is of this row alone; `steps` lead from base value and offset to eta,
    largest first.
    """

    row: int
    label: str
    why: str
    observed: float
    found: Explanation
    steps: tuple[CaseStep, ...]

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest linear predictor along the way."""
        start = self.found.base_value + float(self.found.offset[0])
        ends = self.found.base_value, start, float(self.found.eta[0])
        edges = [*ends, *(step.stop for step in self.steps)]
        low, high = min(edges), max(edges)
        margin = 0.03 * (high - low) or 1.0
        return low - margin, high + margin


def choose_rows(
    family: Family, sample: Sample, eta: np.ndarray, rows: int | Sequence[int] | None
) -> list[tuple[int, str]]:
    """Positions of the rows to explain, each with the reason why.

    A sequence is taken as it is. Otherwise rows spread over the predictions come
    first, then those with the largest deviance. Those of a hazard are its risks,
    however long a row was watched.
    """
    n_rows = len(sample)
    if isinstance(rows, Sequence | np.ndarray):
        return [(_check_row(row, n_rows), "chosen") for row in rows]
    wanted = min(N_CASES if rows is None else max(int(rows), 0), n_rows)
    risk, name = eta, "prediction"
    if family.is_hazard:
        risk, name = eta - sample.row_offset, "risk"
    ranked = np.argsort(risk, kind="stable")
    chosen: dict[int, str] = {}
    for rank, why in RANKS[:wanted]:
        place = int(ranked[round(rank * (n_rows - 1))])
        chosen.setdefault(place, why.replace("prediction", name))
    worst = np.argsort(-row_deviance(family, sample, eta), kind="stable")
    for row in worst:
        if len(chosen) >= wanted:
            break
        chosen.setdefault(int(row), "among the largest misses")
    return list(chosen.items())


def _check_row(row: object, n_rows: int) -> int:
    if not isinstance(row, Integral) or not -n_rows <= int(row) < n_rows:
        raise IndexError(
            f"rows must hold positions of rows of X, from 0 to {n_rows - 1}; got "
            f"{row!r}."
        )
    return int(row) % n_rows


def explain_cases(
    card: ModelCard,
    sample: Sample,
    eta: np.ndarray,
    swap: np.ndarray,
    rows: int | Sequence[int] | None,
) -> tuple[Case, ...]:
    """Explain the chosen rows of a sample with linear predictor `eta`."""
    model = card.model
    chosen = choose_rows(model.family, sample, eta, rows)
    if not chosen:
        return ()
    picked = sample.take(np.array([row for row, _ in chosen]))
    # A hazard is that of the row, however long it was watched.
    known = None if model.family.is_hazard else picked.offset
    found = explain(model, picked.table, swap=swap, offset=known)
    if card.uncertainty is not None:
        found = with_errors(model, card.uncertainty, found)
    return tuple(
        Case(
            row=row,
            label=_row_name(sample, row),
            why=why,
            observed=float(sample.y[row]),
            found=found[at],
            steps=_steps(found[at]),
        )
        for at, (row, why) in enumerate(chosen)
    )


def _row_name(sample: Sample, row: int) -> str:
    """Its name, or its position, and its label where that says more."""
    if sample.names is not None:
        return sample.names[row]
    label = None if sample.labels is None else sample.labels[row]
    return f"row {row}" if label in (None, str(row)) else f"row {row} ({label})"


def _steps(found: Explanation) -> tuple[CaseStep, ...]:
    """Largest contributions first, the rest in one step."""
    parts = found.values[0]
    start = found.base_value + float(found.offset[0])
    order = [j for j in np.argsort(-np.abs(parts), kind="stable") if parts[j] != 0]
    shown, rest = order[:MAX_STEPS], order[MAX_STEPS:]
    if len(rest) == 1:
        shown, rest = order, []
    steps = []
    for j in shown:
        amount = float(parts[j])
        value = show_value(float(found.data[0, j]), found.levels[j])
        reach = math.nan if found.std_err is None else Z_95 * float(found.std_err[0, j])
        stop = start + amount
        steps.append(CaseStep(found.names[j], value, amount, start, stop, reach))
        start += amount
    if rest:
        amount = float(parts[rest].sum())
        name = f"{len(rest)} other features"
        steps.append(CaseStep(name, "", amount, start, start + amount))
    return tuple(steps)
