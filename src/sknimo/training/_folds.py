"""Folds: which rows train and which are held out.

Folds speak of the rows as `fit` keeps them, sorted and merged; a splitter speaks of the
rows as the user gave them. This module translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils import column_or_1d

from sknimo.rows import scatter
from sknimo.training._checks import is_whole
from sknimo.training._data import MERGE_CELLS, TrainingSet, unlike_before
from sknimo.training._streams import StreamedSet

# Beyond this many observations rows of a whole weight stay together.
MAX_OBSERVATIONS = 10_000_000
# Values of a target, as a share of the rows, that are few.
FEW_VALUES = 0.1


@dataclass(frozen=True, slots=True)
class Fold:
    """Weights of the rows that a fold trains on and holds out, each (n,)."""

    train: np.ndarray
    held_out: np.ndarray

    @property
    def total(self) -> np.ndarray:
        """Weight of each row in this fold, (n,)."""
        return self.train + self.held_out

    def merge(self, other: Fold) -> Fold:
        """Hold out what either holds out, and train on what is left of this one."""
        most = np.maximum(self.total, other.total)
        return Fold(
            np.clip(self.train - other.held_out, 0.0, None),
            np.minimum(self.held_out + other.held_out, most),
        )


@dataclass(frozen=True, slots=True)
class NumberedFold:
    """A fold of whole rows, which takes no memory of its own."""

    weight: np.ndarray  # (n,)
    number: np.ndarray  # (n,), integer, the fold that holds the row out
    which: int  # this fold

    @property
    def train(self) -> np.ndarray:
        """Weights of the rows of other folds, (n,)."""
        return np.where(self.number == self.which, 0.0, self.weight)

    @property
    def held_out(self) -> np.ndarray:
        """Weights of the rows of this fold, (n,)."""
        return np.where(self.number == self.which, self.weight, 0.0)


AnyFold = Fold | NumberedFold


def count_folds(
    data: TrainingSet | StreamedSet,
    cv: Any,
    groups: np.ndarray | None,
    random: np.random.RandomState,
) -> tuple[np.ndarray, Sequence[AnyFold]]:
    """Weights of rows, (n,), and folds in their units."""
    if isinstance(data, StreamedSet):
        return data.weight, number_folds(
            data.weight, data.first_row, data.n_total, int(cv), random
        )
    return data.weight, make_folds(data, cv, groups, random)


def number_folds(
    weight: np.ndarray,
    first_row: int,
    n_total: int,
    n_folds: int,
    random: np.random.RandomState,
) -> list[NumberedFold]:
    """Random folds of rows of which this process holds those from `first_row` on.

    A row's fold depends on its number among all `n_total` rows alone. Without weights
    the folds are those of a table in memory with the rows in this order.
    """
    n_folds = min(n_folds, n_total)
    own = slice(first_row, first_row + len(weight))
    number: np.ndarray
    if n_total < MAX_OBSERVATIONS:
        number = random.permutation(n_total)[own] % n_folds
    else:  # nobody holds a number for every row
        salt = np.uint64(random.randint(2**31 - 1)) << np.uint64(32)
        row = np.arange(own.start, own.stop, dtype=np.uint64)
        number = scatter(scatter(row) ^ salt) % np.uint64(n_folds)
    number = number.astype(np.min_scalar_type(n_folds))
    return [NumberedFold(weight, number, which) for which in range(n_folds)]


def read_groups(groups: Any, n_rows: int) -> np.ndarray | None:
    """One label per row of the user, or None."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    if len(labels) != n_rows:
        raise ValueError(
            f"groups must hold one label per row: expected {n_rows}, got {len(labels)}."
        )
    missing = np.array([label is None or label != label for label in labels], bool)
    if missing.any():
        raise ValueError(
            f"groups holds a missing label in row {int(missing.argmax())}. Give every "
            "row a label; one of its own if it belongs to no group."
        )
    return labels


def make_folds(
    data: TrainingSet, cv: Any, groups: np.ndarray | None, random: np.random.RandomState
) -> list[Fold]:
    """Training and held-out weight of every row, per fold.

    A whole number makes random folds of observations, or of whole groups where there
    are any. A row that stands for several observations (a whole weight, or rows that
    were merged) is shared out among the folds like the rows it stands for, unless these
    look like copies of one. A splitter, or an iterable of index pairs, refers to the
    rows as the user gave them.
    """
    if isinstance(cv, Integral) and groups is None:
        return _random_folds(data, int(cv), random)
    folds = [
        Fold(_total(data, train), _total(data, held_out))
        for train, held_out in _splits(data, cv, groups, random)
    ]
    folds = [fold for fold in folds if fold.train.any() and fold.held_out.any()]
    if not folds:
        raise ValueError("cv leaves no fold with rows to train on and to hold out.")
    if data.classes is not None and len(data.classes) > 2:
        _check_classes(data.y, data.classes, folds)
    return folds


def _check_classes(y: np.ndarray, classes: np.ndarray, folds: list[Fold]) -> None:
    """Refuse folds whose training rows lack a class."""
    for number, label in enumerate(classes.tolist()):
        for k, fold in enumerate(folds):
            if not fold.train[y == number].any():
                raise ValueError(
                    f"cv leaves no row of the class {label!r} to train on in fold {k}. "
                    "Give cv a whole number, or a splitter that is stratified."
                )


def _count_copies(data: TrainingSet) -> np.ndarray:
    """Observations of each row that may be in different folds, (n,).

    A model that has seen one copy of a row knows the target of the others, and rows
    held out would praise what it has learned by heart. So copies stay together, as
    those of a bootstrap sample or of a weight. Only where the target has few values,
    and the same features come with another one, are rows repeated by chance.
    """
    copies = np.ones(len(data.weight), dtype=int)
    whole = is_whole(data.weight) and data.weight.sum() < MAX_OBSERVATIONS
    if not whole or data.weight.max() < 2 or data.table.size > MERGE_CELLS:
        return copies
    values, value = np.unique(data.y, return_inverse=True)
    if data.classes is None and len(values) > FEW_VALUES * len(data.y):
        return copies
    order = np.lexsort(data.table.T[::-1])
    cell = np.empty(len(order), dtype=int)
    cell[order] = np.cumsum(unlike_before(data.table[order])) - 1
    apart = np.bincount(cell)[cell] > 1
    if data.classes is not None:  # one that has no other row must be in every fold
        apart |= np.bincount(value)[value] < 2
    return np.where(apart, data.weight.astype(int), 1)


def _random_folds(
    data: TrainingSet, n_folds: int, random: np.random.RandomState
) -> list[Fold]:
    """Folds of observations; those of each class are dealt out in turn."""
    weight, copies = data.weight, _count_copies(data)
    row = np.repeat(np.arange(len(weight)), copies)
    order = random.permutation(len(row))
    if data.classes is not None:
        turn = order[np.argsort(data.y[row[order]], kind="stable")]
        order[turn] = np.arange(len(row))
    fold = order % min(n_folds, len(row))
    each = weight / copies
    held_out = [
        each * np.bincount(row[fold == k], minlength=len(weight))
        for k in range(fold.max() + 1)
    ]
    return [Fold(weight - part, part) for part in held_out]


def _splits(
    data: TrainingSet, cv: Any, groups: np.ndarray | None, random: np.random.RandomState
) -> list[tuple[Any, Any]]:
    """Rows to train on and to hold out, as positions or masks of the user's rows."""
    used = data.place >= 0
    if isinstance(cv, Integral) and groups is not None:
        labels = np.unique(groups[used])
        if len(labels) < 2:
            raise ValueError(
                f"groups holds a single group ({labels[0]!r}); folds need two at least."
            )
        fold_of = random.permutation(len(labels)) % min(int(cv), len(labels))
        index = np.searchsorted(labels, groups[used])
        fold = np.full(len(used), -1)
        fold[used] = fold_of[index]
        return [(used & (fold != k), fold == k) for k in range(fold_of.max() + 1)]
    target = np.where(used, data.y[data.place], 0.0)
    splitter = check_cv(cv, target, classifier=data.classes is not None)
    placeholder = np.zeros((len(target), 1))
    return list(splitter.split(placeholder, target, groups))


def _total(data: TrainingSet, rows: Any) -> np.ndarray:
    """Weight that some of the user's rows give to the rows that are kept, (n,)."""
    index = np.arange(len(data.place))[np.asarray(rows)]  # positions or a mask
    kept = index[data.place[index] >= 0]
    return np.bincount(
        data.place[kept], data.given_weight[kept], minlength=len(data.table)
    )
