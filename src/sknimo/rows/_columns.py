"""Columns of a problem that are read from a stored table.

Shapes: m rows, p columns of the table, q terms, r inputs.
"""

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap
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
        self._features = features
        pairs = zip(features.bases, features.input_bases, strict=True)
        self._reads_terms = all(basis is read for basis, read in pairs)

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Terms (m, q) and inputs (m, r) of consecutive rows."""
        return self._evaluate(self._table.read(rows))

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Terms and inputs of the rows with the given indices, in their order."""
        return self._evaluate(self._table.take(index.cpu().numpy()))

    def _evaluate(self, table: np.ndarray) -> tuple[Tensor, Tensor]:
        terms = torch.as_tensor(self._features.terms(table)).to(self.device)
        if self._reads_terms:
            return terms, terms
        return terms, torch.as_tensor(self._features.inputs(table)).to(self.device)
