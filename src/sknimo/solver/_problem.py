"""Records that cross the solver's border.

Shapes: K models, n rows, q term columns, r network inputs, p features, P weights.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.network import NetworkSpec
from sknimo.penalties import CoefPenalty
from sknimo.ranks import ALONE, Ranks
from sknimo.solver._profile import PerMember, Rows
from sknimo.solver._quadratic import Design, cut_rows

# The part of a feature that its curve is, see `FeatureMap.term_group`.
CURVE = 1


class Status(enum.Enum):
    """How the training of one member ended; the value is the message."""

    CONVERGED = "The objective stopped falling."
    EARLY_STOPPED = "The validation loss stopped falling; the best state was kept."
    MAX_ITER = "The iteration limit was reached while the objective still fell."
    DIVERGED = "Training diverged three times; the best state before was kept."
    NESTED = "The network did not lower the objective; the penalised GLM was kept."
    PLAIN = "No network was asked for."

    @property
    def ok(self) -> bool:
        """Whether the member may be called converged."""
        return self not in (Status.MAX_ITER, Status.DIVERGED)


class ProblemColumns(Protocol):
    """The table of a problem, read by rows: terms (m, q) and inputs (m, r).

    Both are float64 on `device` and zero at the reference. A table larger than memory
    implements this by reading and transforming the rows that are asked for.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""

    @property
    def n_terms(self) -> int:
        """Number of term columns, q."""

    @property
    def device(self) -> torch.device:
        """Where the rows are put."""

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Terms and inputs of consecutive rows."""

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Terms and inputs of the rows with the given indices, in their order."""


@dataclass(frozen=True, slots=True)
class MemoryColumns:
    """Columns that are there as a whole."""

    terms: Tensor  # (n, q), basis columns, zero at the reference
    inputs: Tensor  # (n, r), network inputs, zero at the reference

    @property
    def n_rows(self) -> int:
        """Number of rows, n."""
        return self.terms.shape[0]

    @property
    def n_terms(self) -> int:
        """Number of term columns, q."""
        return self.terms.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.terms.device

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Views of consecutive rows."""
        return self.terms[rows], self.inputs[rows]

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the rows with the given indices, in their order."""
        return self.terms[index], self.inputs[index]


@dataclass(frozen=True, slots=True)
class Prior:
    """Sums of terms whose coefficients are independent before any row is seen.

    The coefficients of the terms are `sums @ own` for coefficients `own` of m sums.
    """

    sums: Tensor  # (q, m)
    group: Tensor  # (m,), integer, as `Problem.term_group`


@dataclass(frozen=True, slots=True)
class Problem:
    """The data as numbers, shared by all members.

    Vectors with one number per row are in memory; the tables of terms and inputs need
    not be. With several ranks each holds rows of its own, in the order of the ranks.
    """

    columns: ProblemColumns  # terms (n, q) and network inputs (n, r)
    term_feature: Tensor  # (q,), integer, the feature that owns each term
    y: Tensor  # (n,)
    offset: Tensor  # (n,)
    family: Family
    spec: NetworkSpec
    # (q,), integer. Terms of one group share a learned precision: line and curve of a
    # spline have one each. By default a feature is a group.
    term_group: Tensor = field(default_factory=lambda: torch.empty(0).long())
    ranks: Ranks = ALONE  # the processes over which the rows are spread
    # (p,), bool. Features that no network bends; by default none.
    unbent: Tensor = field(default_factory=lambda: torch.empty(0).bool())
    # What shares a precision in additive models, if that is not the terms themselves.
    prior: Prior | None = None
    # (q, q). Sums of terms by which batches learn; the terms themselves if None.
    learned: Tensor | None = None
    # (r,), bool. Inputs that are curves; by default none.
    curved_inputs: Tensor = field(default_factory=lambda: torch.empty(0).bool())

    def __post_init__(self) -> None:
        if self.term_group.numel() == 0:
            object.__setattr__(self, "term_group", self.term_feature)
        if self.unbent.numel() == 0:
            none = torch.zeros(self.spec.n_features, dtype=torch.bool)
            object.__setattr__(self, "unbent", none.to(self.term_feature.device))
        if self.curved_inputs.numel() == 0:
            none = torch.zeros(len(self.spec.input_feature), dtype=torch.bool)
            object.__setattr__(self, "curved_inputs", none.to(self.unbent.device))

    @classmethod
    def in_memory(cls, *, terms: Tensor, inputs: Tensor, **others: Any) -> Problem:
        """A problem whose tables are tensors."""
        return cls(columns=MemoryColumns(terms, inputs), **others)

    @property
    def terms(self) -> Tensor:
        """Basis columns in memory, (n, q)."""
        return self._memory().terms

    @property
    def inputs(self) -> Tensor:
        """Network inputs in memory, (n, r)."""
        return self._memory().inputs

    def _memory(self) -> MemoryColumns:
        if not isinstance(self.columns, MemoryColumns):
            raise TypeError(
                "This step needs the table in memory, but it is read by blocks of rows."
            )
        return self.columns

    @property
    def n_rows(self) -> int:
        """Number of rows in this process, n."""
        return self.columns.n_rows

    @property
    def n_terms(self) -> int:
        """Number of term columns, q."""
        return self.columns.n_terms

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.columns.device

    @property
    def n_groups(self) -> int:
        """Number of groups of terms; some may be empty."""
        largest = int(self.term_group.max()) if self.term_group.numel() else -1
        return max(self.spec.n_features, largest + 1)

    @property
    def group_is_curve(self) -> Tensor:
        """Groups that are curves, not lines, levels or indicators, (g,), bool."""
        part = torch.arange(self.n_groups, device=self.device)
        return part // max(self.spec.n_features, 1) == CURVE

    @property
    def in_one_place(self) -> bool:
        """Whether the tables are in memory."""
        return isinstance(self.columns, MemoryColumns)

    def share(self, weight: Tensor) -> Tensor:
        """Weights of the rows of one model, summing to one over all ranks, (1, n)."""
        return (weight / self.ranks.total(weight.sum())).unsqueeze(0)

    def rows(self, weight: Tensor) -> Rows:
        """What the inner solve sees, for weights (K, n) that sum to one."""
        return Rows(self.y, self.offset, weight, self.family, self.ranks)

    def take(self, index: Tensor) -> Problem:
        """Keep the rows with the given indices, in memory."""
        return replace(
            self,
            columns=MemoryColumns(*self.columns.take(index)),
            y=self.y[index],
            offset=self.offset[index],
        )


@dataclass(frozen=True, slots=True)
class Members(PerMember):
    """What differs between the K models that are fitted together."""

    penalty: CoefPenalty
    # Group shrinkage of the first layer, as a rate relative to the learning rate.
    network_alpha: Tensor  # (K,)
    seeds: tuple[int, ...]  # start of each member's network
    weight: Tensor  # (K, n), training weight of each row, summing to one
    validation: Tensor | None  # (K, n), validation weight of each row, summing to one

    @property
    def n_models(self) -> int:
        """Number of members, K."""
        return len(self.seeds)


@dataclass(frozen=True, slots=True)
class Options:
    """How to train; the same for all members."""

    # Steps of the network optimiser; the learning rate anneals over them.
    max_iter: int = 500
    learning_rate: float = 1e-2  # peak of the one-cycle schedule
    # Standard deviation added to the first layer of the rows while training.
    noise: float = 0.0
    noise_seed: int = 0
    # Relative fall of the objective over `patience` checks that still counts.
    tol: float = 1e-4
    patience: int = 10  # checks without progress before a member stops
    check_every: int = 10  # steps between two checks; active sets are renewed there
    # Price `|beta_j|` by the size of the feature's modulated column, so that the
    # network cannot evade the penalty by scaling up.
    scale_contributions: bool = False
    weight_decay: float = 0.0  # decoupled decay of the layers after the first
    # Precision of the network; the inner solve is always float64.
    dtype: torch.dtype = torch.float64
    batch_size: int = 0  # rows per step of the network optimiser; zero takes all
    # Bytes that tables, designs and activations may take, besides vectors with a number
    # per row and the columns themselves where they are in memory; rows are cut into
    # blocks. On a GPU no more than what is free.
    memory_budget: int = 64 * 10**6
    checkpoint_seconds: float = 10.0  # least time between two saved states
    progress: bool = False  # whether to show a progress bar on a terminal


@dataclass(frozen=True, slots=True)
class History:
    """One row per check; NaN once a member has stopped.

    Attributes
    ----------
    step : ndarray of shape (T,)
    objective : ndarray of shape (T, K)
        Mean loss plus coefficient penalty on the training rows.
    validation : ndarray of shape (T, K)
        Mean loss on the validation rows, NaN without them.
    n_features, n_inputs : ndarray of shape (T, K)
        Features with a coefficient, and features that the first layer reads.
    """

    step: np.ndarray
    objective: np.ndarray
    validation: np.ndarray
    n_features: np.ndarray
    n_inputs: np.ndarray

    @classmethod
    def begin(cls, n_models: int) -> History:
        """No check yet."""
        return cls(np.empty(0, dtype=int), *(np.empty((0, n_models)),) * 4)

    def add(self, step: int, *figures: Tensor) -> History:
        """Another check, with its figures (K,) in the order of the attributes."""
        fresh = (figure.detach().cpu().double()[None].numpy() for figure in figures)
        grown = map(np.concatenate, zip(self._figures(), fresh, strict=True))
        return History(np.append(self.step, step), *grown)

    @classmethod
    def join(cls, parts: Sequence[History]) -> History:
        """Members side by side; those that stopped earlier have no figures then."""
        longest = max((part.step for part in parts), key=len)
        missing = [len(longest) - len(part.step) for part in parts]
        figures = zip(*(part._figures() for part in parts), strict=True)

        def pad(figure: np.ndarray, rows: int) -> np.ndarray:
            return np.pad(figure, ((0, rows), (0, 0)), constant_values=np.nan)

        return cls(
            longest,
            *(np.concatenate(list(map(pad, each, missing)), 1) for each in figures),
        )

    def _figures(self) -> list[np.ndarray]:
        return [self.objective, self.validation, self.n_features, self.n_inputs]


@dataclass(frozen=True, slots=True)
class Solution:
    """K fitted members."""

    coef: Tensor  # (K, q), exact zeros included
    intercept: Tensor  # (K,)
    params: Tensor  # (K, P), network weights
    modulated: Tensor  # (K, p), bool, features whose coefficient the network bends
    # Training objective of the member and of the penalised GLM it started from.
    objective: Tensor  # (K,)
    glm_objective: Tensor  # (K,)
    kkt: Tensor  # (K,), optimality residual of the coefficients
    inner_converged: Tensor  # (K,), bool, whether the coefficients reached optimality
    n_iter: Tensor  # (K,), integer
    status: tuple[Status, ...]
    history: History = field(repr=False)


def linear_design(
    problem: Problem,
    n_models: int,
    budget: float,
    mask: Tensor | None = None,
    columns: Tensor | None = None,
) -> Design:
    """Design of K models without a network, (K, n, q); a mask (K, q) clears columns.

    Rows come in blocks when all of them would take more than `budget` bytes. `columns`
    are the numbers of those to take, all if None.
    """
    q = problem.n_terms if columns is None else len(columns)
    # A block, its centred copy, that copy with weights, and one to spare.
    blocks = cut_rows(problem.n_rows, 8 * 4 * n_models * max(q, 1), budget)

    def make(rows: slice) -> Tensor:
        terms, _ = problem.columns.read(rows)
        if columns is not None:
            terms = terms[:, columns]
        wide = terms.expand(n_models, -1, -1)
        return wide if mask is None else wide * mask.to(terms).unsqueeze(1)

    return Design(make, blocks, q, keep=len(blocks) == 1)
