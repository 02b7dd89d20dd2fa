"""Columns that are not in memory, for tests of the solver.

Shapes: K models, n rows, q terms, r inputs.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch


class FileColumns:
    """Terms and inputs in files, read by rows; counts what is read."""

    device = torch.device("cpu")

    def __init__(self, terms, inputs):
        self.tables = terms, inputs
        self.n_rows, self.n_terms = terms.shape
        self.n_read = 0
        self.largest = 0

    def read(self, rows):
        return self._copy(rows)

    def take(self, index):
        return self._copy(index.numpy())

    def _copy(self, rows):
        terms, inputs = (torch.from_numpy(np.array(t[rows])) for t in self.tables)
        self.n_read += len(terms)
        self.largest = max(self.largest, len(terms))
        return terms, inputs


@pytest.fixture
def store(tmp_path):
    """The same problem with its columns on disk."""

    def write(problem):
        files = []
        for name in ("terms", "inputs"):
            path = tmp_path / f"{name}.npy"
            np.save(path, getattr(problem, name).numpy())
            files.append(np.load(path, mmap_mode="r"))
        return replace(problem, columns=FileColumns(*files))

    return write
