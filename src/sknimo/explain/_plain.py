"""The plain linear model: every column as a line, no curves and no network.

A yardstick that readers know. It has all columns of the table, whether or not the
fitted model uses them, and a ridge of one row, so that separated classes and copies of
columns leave it finite.

Shapes: n rows, p features, q terms.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from sknimo.explain._local import fill_offset, spread_rows
from sknimo.explain._nested import MemoryRows
from sknimo.features import Basis, FeatureMap, Levels, Linear, OrMissing
from sknimo.model import FittedModel

N_FOLDS = 5
# Rows that folds are made of; more tell no more.
MAX_FOLD_ROWS = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class PlainModel:
    """A generalised linear model without a network."""

    features: FeatureMap
    coef: np.ndarray  # (q,)
    intercept: float
    ends: np.ndarray  # (2, p), range of each column in the rows it was solved on

    def eta(self, table: np.ndarray, offset: np.ndarray | None = None) -> np.ndarray:
        """Linear predictor, (n,); numbers beyond the ends stand at them."""
        inside = np.clip(table, *self.ends)  # one absurd value would decide alone
        eta = self.features.terms(inside) @ self.coef + self.intercept
        return eta if offset is None else eta + offset


def straighten(features: FeatureMap) -> FeatureMap:
    """The same columns, every number as a line."""
    bases = tuple(map(_line, features.bases))
    return replace(features, bases=bases, input_bases=bases)


def _line(basis: Basis) -> Basis:
    if isinstance(basis, OrMissing):
        return replace(basis, basis=_line(basis.basis))
    is_category = isinstance(basis, Levels)
    return basis if is_category else Linear(basis.reference, basis.scale)


def plain_model(
    model: FittedModel,
    table: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    *,
    curves: bool = False,
) -> PlainModel:
    """Solve the plain linear model on some rows, or with the curves of the model."""
    features = model.features if curves else straighten(model.features)
    rows = MemoryRows(replace(model, features=features), y, weight, offset)
    if curves:
        terms = rows.nested_design(table)
    else:
        terms = torch.as_tensor(features.terms(table)).unsqueeze(0)
    found = rows.solve(terms, ridge=1 / len(y))
    ends = np.stack([np.fmin.reduce(table, axis=0), np.fmax.reduce(table, axis=0)])
    return PlainModel(features, found.coef[0].numpy(), float(found.intercept[0]), ends)


def plain_by_folds(
    model: FittedModel,
    table: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    *,
    curves: bool = False,
) -> np.ndarray:
    """Its linear predictor of each row, solved without a fifth of the rows, (n,).

    Of very many rows the others are NaN. Copies of a row share a fold: they would be no
    new rows. But rows with the same features and other targets are told apart, or rows
    would be left out by their target, and predicted away from it.
    """
    unknown = np.full(len(y), np.nan)
    weight = np.ones(len(y)) if weight is None else weight
    offset = fill_offset(offset, len(y))
    kept = spread_rows(len(y), MAX_FOLD_ROWS)
    kept = kept[weight[kept] > 0]
    keys = np.nan_to_num(table[kept], nan=np.inf)
    _, cell = np.unique(keys, axis=0, return_inverse=True)
    cell = cell.ravel()
    ends = np.full((2, cell.max() + 1), np.inf)
    for end, target in zip(ends, (y[kept], -y[kept]), strict=True):
        np.minimum.at(end, cell, target)
    alone = (ends.sum(0) < 0)[cell]  # the greatest target there is not the least
    which = np.where(alone, len(cell) + np.arange(len(cell)), cell)
    _, which = np.unique(which, return_inverse=True)
    fold = np.random.default_rng(0).permutation(which.max() + 1)[which]
    fold %= N_FOLDS
    out = unknown.copy()
    for k in range(N_FOLDS):
        inside, outside = kept[fold != k], kept[fold == k]
        if len(outside) == 0 or np.ptp(y[inside]) == 0:
            return unknown
        rows = (table[inside], y[inside], weight[inside], offset[inside])
        found = plain_model(model, *rows, curves=curves)
        out[outside] = found.eta(table[outside], offset[outside])
    return out
