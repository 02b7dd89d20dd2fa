"""Columns of a problem that are read from a stored table.

Shapes: m rows, p columns of the table, q terms, r inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sknimo.features import Basis, FeatureMap, Linear
from sknimo.rows._store import StoredTable


class StoredColumns:
    """Terms and network inputs, computed anew whenever rows are asked for.

    Attributes
    ----------
    n_rows, n_terms : int
    device : torch.device
    """

    def __init__(
        self, table: StoredTable, features: FeatureMap, device: torch.device
    ) -> None:
        self._table = table
        self.n_rows = table.n_rows
        self.n_terms = len(features.term_feature)
        self.device = device
        self._terms = _Evaluator(features.bases)
        pairs = zip(features.bases, features.input_bases, strict=True)
        same = all(basis is read for basis, read in pairs)
        self._inputs = None if same else _Evaluator(features.input_bases)

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Terms (m, q) and inputs (m, r) of consecutive rows."""
        return self._evaluate(self._table.read(rows))

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Terms and inputs of the rows with the given indices, in their order."""
        return self._evaluate(self._table.take(index.cpu().numpy()))

    def _evaluate(self, table: np.ndarray) -> tuple[Tensor, Tensor]:
        terms = torch.as_tensor(self._terms(table)).to(self.device)
        if self._inputs is None:
            return terms, terms
        return terms, torch.as_tensor(self._inputs(table)).to(self.device)


class _Evaluator:
    """Columns of several bases; lines are computed all at once."""

    def __init__(self, bases: Sequence[Basis]) -> None:
        widths = [basis.n_terms for basis in bases]
        ends = np.cumsum(widths)
        self._width = sum(widths)
        lines = [
            (j, int(end) - 1, basis)
            for j, (basis, end) in enumerate(zip(bases, ends, strict=True))
            if isinstance(basis, Linear) and basis.n_terms
        ]
        self._column = np.array([j for j, _, _ in lines], dtype=int)
        self._place = np.array([place for _, place, _ in lines], dtype=int)
        self._reference = np.array([line.reference for _, _, line in lines])
        self._scale = np.array([line.scale for _, _, line in lines])
        self._residue = np.array([line.residue for _, _, line in lines])
        self._curves = [
            (j, slice(int(end) - width, int(end)), basis)
            for j, (basis, width, end) in enumerate(
                zip(bases, widths, ends, strict=True)
            )
            if width and not isinstance(basis, Linear)
        ]

    def __call__(self, table: np.ndarray) -> np.ndarray:
        """The columns of some rows, in the order of the bases."""
        every = len(self._column) == table.shape[1]
        lines = (table if every else table[:, self._column]) - self._reference
        if self._residue.any():
            lines = np.where(lines == 0, 0.0, lines - self._residue)
        lines /= self._scale
        if len(self._place) == self._width:
            return lines
        out = np.empty((len(table), self._width))
        out[:, self._place] = lines
        for column, place, basis in self._curves:
            out[:, place] = basis.terms(table[:, column])
        return out
