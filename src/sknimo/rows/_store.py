"""The encoded table on disk, read by rows.

Rows are read by explicit calls and not through a memory map: pages of a map count as
memory of the process, and a table that is passed over again and again would fill it.
The temporary file has no name where the system allows that, so that nothing is left of
it whatever becomes of the process.

Shapes: n rows, p columns, m rows that are asked for, q terms, r inputs.
"""

import hashlib
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap

# Shortest stretch for which two rows are read together with what lies between them.
GAP_BYTES = 4096
# Most that is read in one piece, beside the rows that were asked for.
PIECE_BYTES = 2**22


class RowFile:
    """Rows of floats in a file: levels as codes, missing values NaN.

    Attributes
    ----------
    n_rows, n_columns : int
    recode : dict
        Final code of each code, by column, where levels were read in another order.
    """

    def __init__(
        self,
        file: IO[bytes],
        n_rows: int,
        n_columns: int,
        dtype: Any = np.float64,
        start: int = 0,
    ) -> None:
        self.n_rows, self.n_columns = n_rows, n_columns
        self._file, self._dtype, self._start = file, np.dtype(dtype), start
        self._lock = threading.Lock()
        self.recode: dict[int, np.ndarray] = {}

    def read(self, rows: slice) -> np.ndarray:
        """Consecutive rows, (m, p) in float64."""
        begin, end, step = rows.indices(self.n_rows)
        assert step == 1
        out = np.empty((max(end - begin, 0), self.n_columns), dtype=self._dtype)
        self._fill(out, begin)
        return self._in_order(out)

    def take(self, index: np.ndarray) -> np.ndarray:
        """Rows with the given indices in their order, (m, p) in float64."""
        order = np.argsort(index, kind="stable")
        rows = np.asarray(index)[order]
        out = np.empty((len(rows), self.n_columns), dtype=self._dtype)
        row_bytes = max(self.n_columns * self._dtype.itemsize, 1)
        # Rows that lie close together are cheaper to read as one piece.
        apart = np.diff(rows) > max(GAP_BYTES // row_bytes, 1)
        apart |= np.diff(rows // max(PIECE_BYTES // row_bytes, 1)) > 0
        cuts = np.r_[0, np.flatnonzero(apart) + 1, len(rows)]
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            if low == high:
                continue
            first, last = int(rows[low]), int(rows[high - 1])
            piece = np.empty((last - first + 1, self.n_columns), dtype=self._dtype)
            self._fill(piece, first)
            out[order[low:high]] = piece[rows[low:high] - first]
        return self._in_order(out)

    def blocks(self, rows_each: int) -> Iterator[tuple[slice, np.ndarray]]:
        """All rows, a given number at a time."""
        for begin in range(0, self.n_rows, rows_each):
            rows = slice(begin, min(begin + rows_each, self.n_rows))
            yield rows, self.read(rows)

    def _in_order(self, read: np.ndarray) -> np.ndarray:
        table = read.astype(np.float64, copy=False)
        for column, final in self.recode.items():
            codes = table[:, column]
            known = ~np.isnan(codes)
            table[known, column] = final[codes[known].astype(int)]
        return table

    def _fill(self, out: np.ndarray, first: int) -> None:
        """Read rows from `first` on until the array is full."""
        place = self._start + first * self.n_columns * self._dtype.itemsize
        buffer = out.reshape(-1).view(np.uint8).data
        while buffer:
            done = self._read_at(buffer, place)
            if not done:
                raise OSError("The file of the table is shorter than it was.")
            buffer, place = buffer[done:], place + done

    def _read_at(self, buffer: memoryview, place: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [buffer], place)
        with self._lock:
            self._file.seek(place)
            return self._file.readinto(buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the file; a temporary one is gone then."""
        self._file.close()


def map_behind(X: Any) -> mmap.mmap | None:
    """The map of a file that an array shows; None without one, or of a private one."""
    if not isinstance(X, np.memmap) or X.mode not in ("r", "r+", "w+"):
        return None
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def open_mapped(X: Any) -> RowFile | None:
    """The file behind a memory-mapped table, if its rows can be read there as they are.

    That takes floats in C order and a file that holds what the map shows.
    """
    base = map_behind(X)
    if base is None or X.ndim != 2 or 0 in X.shape or X.filename is None:
        return None
    if X.dtype not in (np.float64, np.float32) or not X.flags.c_contiguous:
        return None
    # A slice of a map keeps the offset of the whole: addresses tell where it begins.
    map_begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(base, dtype=np.uint8, count=1).ctypes.data
    start = map_begin + X.ctypes.data - address
    try:
        if X.mode != "r":
            X.flush()
        file = open(X.filename, "rb", buffering=0)
    except OSError:
        return None
    found = RowFile(file, X.shape[0], X.shape[1], X.dtype, start)
    ends = np.unique([0, len(X) - 1])
    try:
        same = np.array_equal(found.take(ends), X[ends].astype(np.float64), True)
    except OSError:  # the file is shorter than its map
        same = False
    if not same:
        found.close()
        return None
    return found


class Spool:
    """A temporary file that takes rows as they come."""

    def __init__(
        self, folder: str | os.PathLike[str] | None, n_bytes: int | None
    ) -> None:
        self._folder = os.fspath(folder or tempfile.gettempdir())
        if n_bytes is not None:
            self._check_space(n_bytes)
        self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)
        self._n_rows = 0

    def _check_space(self, n_bytes: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < n_bytes:
            raise OSError(
                f"The table needs {show_bytes(n_bytes)} on disk while it is fitted, "
                f"but {self._folder} has {show_bytes(free)} left. Name a folder with "
                "more room (folder= of RowBlocks, or the variable TMPDIR)."
            )

    def append(self, table: np.ndarray) -> None:
        """Add rows."""
        buffer = np.ascontiguousarray(table).reshape(-1).view(np.uint8).data
        try:
            while buffer:
                buffer = buffer[self._file.write(buffer) :]
        except OSError as error:
            raise OSError(
                f"The table could not be put in {self._folder} ({error.strerror}), "
                f"after {self._n_rows} rows. Name a folder with more room (folder= of "
                "RowBlocks, or the variable TMPDIR)."
            ) from error
        self._n_rows += len(table)

    def finish(self, n_columns: int) -> RowFile:
        """The rows, ready to be read."""
        return RowFile(self._file, self._n_rows, n_columns)

    def close(self) -> None:
        """Throw the file away."""
        self._file.close()


class Digest:
    """Fingerprint of rows that does not depend on how they are cut into blocks."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)

    def add(self, values: np.ndarray) -> None:
        """Count further rows in."""
        self._hash.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def finish(self) -> str:
        """Sixty-four hexadecimal digits."""
        return self._hash.hexdigest()


def show_bytes(n_bytes: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


class StoredColumns:
    """Terms (m, q) and network inputs (m, r) of rows that are asked for, made anew."""

    def __init__(
        self, table: RowFile, features: FeatureMap, device: torch.device
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
