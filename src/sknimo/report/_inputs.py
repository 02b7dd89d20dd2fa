"""What a report is made from: a fitted model and the rows it is shown on.

Shapes: n rows, p features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain import (
    CertificateLike,
    HeldOutScores,
    KnownErrors,
    TrainingFacts,
    check_weight,
    fill_offset,
)
from sknimo.inference import Conformal, Uncertainty
from sknimo.model import Dial, FittedModel
from sknimo.survival import Baseline, FollowUp

# Level of intervals of the next observation.
INTERVAL = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class ModelCard:
    """A fitted model and what is known of how it was fitted."""

    model: FittedModel
    # What was kept of the training rows; without it a report refers to its own rows.
    facts: TrainingFacts | None = None
    kind: str = "NIMO"  # name of the estimator
    # (name, value), parameters of the estimator as text.
    settings: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()  # names of those that are not at their default
    # Labels of a classifier; the model predicts the second.
    classes: tuple[str, str] | None = None
    certificate: CertificateLike | None = None
    converged: bool | None = None
    status: str = ""  # why a fit without a certificate did not converge
    scores: HeldOutScores | None = None  # what a search knows of rows held out
    errors: KnownErrors | None = None  # how well the coefficients are known
    # (n,), predictions of the training rows by members that have not seen them.
    left_out: np.ndarray | None = None
    straight: np.ndarray | None = None  # (n,), their linear predictors without bends
    note: str = ""  # what readers must know first
    choice: str = ""  # what the call of a report says of the class that is shown
    about_score: str = ""  # what coefficients are of, where the page has to say it
    baseline: Baseline | None = None  # the hazard at the reference of a survival model
    conformal: Conformal | None = None  # how far from predictions rows held out lie
    uncertainty: Uncertainty | None = None  # what single rows can be judged by
    dial: Dial | None = None  # the way to the model without bends
    base_offset: float = 0.0  # of the reference: what other classes say there
    # Models of all classes, of which this is one, and its place among them.
    every: tuple[FittedModel, ...] = ()
    place: int = 0
    # Probability of a class for rows of a table (n, p), (n,), where all classes move.
    respond: Callable[[np.ndarray], np.ndarray] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows with their targets."""

    # (n, p), in the units of the features; codes for levels, NaN for missing values.
    table: np.ndarray
    y: np.ndarray  # (n,)
    # Each (n,).
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    labels: tuple[str, ...] | None = None  # names of the rows, where they have any
    target: str = "the target"  # name of the target
    # What rows are called; by their position, and label, without.
    names: tuple[str, ...] | None = None
    # Times of a survival model, whose `y` are events and `offset` exposures.
    follow_up: FollowUp | None = None
    of_class: bool = False  # whether the offset is what other classes say of a row
    # Whether these are the training rows of a classifier, in their order.
    is_training: bool = False

    def __len__(self) -> int:
        return len(self.table)

    @property
    def row_weight(self) -> np.ndarray:
        """Row weights that sum to one, (n,)."""
        return check_weight(self.weight, len(self))

    @property
    def spread(self) -> float:
        """Standard deviation of the targets."""
        return float(
            np.sqrt(self.row_weight @ (self.y - self.row_weight @ self.y) ** 2)
        )

    @property
    def row_offset(self) -> np.ndarray:
        """Offset of every row, zero when none was given, (n,)."""
        return fill_offset(self.offset, len(self))

    @property
    def given_offset(self) -> bool:
        """Whether somebody gave an offset: no times, and no other classes."""
        return self.known_offset is not None and self.follow_up is None

    @property
    def known_offset(self) -> np.ndarray | None:
        """Offset of models that do not know this one, (n,)."""
        return None if self.of_class else self.offset

    def take(self, rows: np.ndarray) -> Sample:
        """Some of the rows."""
        return replace(
            self,
            table=self.table[rows],
            y=self.y[rows],
            weight=None if self.weight is None else self.weight[rows],
            offset=None if self.offset is None else self.offset[rows],
            labels=self.labels and tuple(self.labels[row] for row in rows),
            names=self.names and tuple(self.names[row] for row in rows),
            follow_up=None if self.follow_up is None else self.follow_up.take(rows),
        )


def row_keys(table: np.ndarray) -> list[bytes]:
    """What tells rows apart; missing equals missing."""
    rows = np.ascontiguousarray(np.where(np.isnan(table), np.inf, table) + 0.0)
    return [row.tobytes() for row in rows]
