"""What a report is made from: a fitted model and the rows it is shown on.

Shapes: n rows, p features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sknimo.explain import (
    CertificateLike,
    HeldOutScores,
    KnownErrors,
    TrainingFacts,
    check_weight,
    fill_offset,
)
from sknimo.inference import Conformal
from sknimo.model import FittedModel
from sknimo.survival import Baseline, FollowUp

# Level of intervals of the next observation.
INTERVAL = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class ModelCard:
    """A fitted model and what is known of how it was fitted.

    Attributes
    ----------
    model : FittedModel
    facts : TrainingFacts or None
        What was kept of the training rows; without it a report refers to its own rows.
    kind : str
        Name of the estimator.
    settings : tuple of (name, value)
        Parameters of the estimator as text.
    changed : tuple of str
        Names of those that are not at their default.
    classes : tuple of two str or None
        Labels of a classifier; the model predicts the second.
    certificate : CertificateLike or None
    converged : bool or None
    status : str
        Why a fit without a certificate did not converge.
    scores : HeldOutScores or None
        What a search knows of rows held out.
    errors : KnownErrors or None
        How well the coefficients are known.
    left_out : ndarray of shape (n,) or None
        Predictions of the training rows by members that have not seen them.
    straight : ndarray of shape (n,) or None
        Linear predictors of the same rows without bends.
    note : str
        What readers must know first.
    baseline : Baseline or None
        The hazard at the reference of a survival model.
    conformal : Conformal or None
        How far from predictions rows held out lie.
    """

    model: FittedModel
    facts: TrainingFacts | None = None
    kind: str = "NIMO"
    settings: tuple[tuple[str, str], ...] = ()
    changed: tuple[str, ...] = ()
    classes: tuple[str, str] | None = None
    certificate: CertificateLike | None = None
    converged: bool | None = None
    status: str = ""
    scores: HeldOutScores | None = None
    errors: KnownErrors | None = None
    left_out: np.ndarray | None = None
    straight: np.ndarray | None = None
    note: str = ""
    baseline: Baseline | None = None
    conformal: Conformal | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Rows with their targets.

    Attributes
    ----------
    table : ndarray of shape (n, p)
        In the units of the features; codes for levels, NaN for missing values.
    y : ndarray of shape (n,)
    weight, offset : ndarray of shape (n,) or None
    labels : tuple of str or None
        Names of the rows, where they have any.
    target : str
        Name of the target.
    names : tuple of str or None
        What rows are called; by their position, and label, without.
    follow_up : FollowUp or None
        Times of a survival model, whose `y` are events and `offset` exposures.
    """

    table: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    labels: tuple[str, ...] | None = None
    target: str = "the target"
    names: tuple[str, ...] | None = None
    follow_up: FollowUp | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def row_weight(self) -> np.ndarray:
        """Row weights that sum to one, (n,)."""
        return check_weight(self.weight, len(self))

    @property
    def row_offset(self) -> np.ndarray:
        """Offset of every row, zero when none was given, (n,)."""
        return fill_offset(self.offset, len(self))

    def take(self, rows: np.ndarray) -> Sample:
        """Some of the rows."""
        return Sample(
            self.table[rows],
            self.y[rows],
            None if self.weight is None else self.weight[rows],
            None if self.offset is None else self.offset[rows],
            None if self.labels is None else tuple(self.labels[row] for row in rows),
            self.target,
            None if self.names is None else tuple(self.names[row] for row in rows),
            None if self.follow_up is None else self.follow_up.take(rows),
        )
