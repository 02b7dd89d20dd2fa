"""Rows in blocks: tables that are read piece by piece and never held whole."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sknimo.ranks import ALONE, Ranks, current_ranks
from sknimo.rows._store import RowFile, map_behind, open_mapped

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]

# Cells of a block where we choose its size: 8 MB as floats.
BLOCK_CELLS = 1_000_000
MAX_BLOCK_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows as they were given."""

    X: Any
    y: Any
    sample_weight: Any = None
    offset: Any = None
    # What messages call the rows; by default they are counted from the first block.
    rows: Any = None


class Source(ABC):
    """Where blocks come from."""

    @abstractmethod
    def blocks(self, ranks: Ranks) -> Iterator[Any]:
        """The blocks of one rank, from its first row on."""

    def n_rows(self, ranks: Ranks) -> int | None:
        """Rows of this rank, None when unknown."""
        return None

    def first_row(self, ranks: Ranks) -> int | None:
        """What the first row of this rank is among those of all, None if unknown."""
        return 0 if ranks.alone else None


class RowBlocks:
    """Training rows that come in blocks, for `fit`.

    `fit` reads the blocks once, puts the encoded table in a temporary file and then
    reads from there: memory does not grow with the table, only with the number of rows
    (a few numbers for each).

    Parameters
    ----------
    source : callable, iterable or iterator
        Gives the blocks: a function that returns a fresh iterable, an iterable, or an
        iterator that can be used for one fit. A block is `(X, y)`, `(X, y,
        sample_weight)` or `(X, y, sample_weight, offset)` with `X` an array or a data
        frame (pandas, polars, pyarrow). All blocks have the same columns.
    sharded : bool, default=False
        Whether the blocks are the rows of this process alone, and all processes of the
        `torch.distributed` group fit one model together.
    folder : str or path, optional
        Where the temporary file is put; by default the folder of the system.

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo import NIMORegressor, RowBlocks
    >>> def read():
    ...     for seed in range(4):
    ...         rng = np.random.default_rng(seed)
    ...         X = rng.normal(size=(50, 3))
    ...         yield X, X[:, 0] * (1 + X[:, 1])
    >>> est = NIMORegressor(max_iter=200, tol=0.01, random_state=0)
    >>> est = est.fit(RowBlocks(read))
    >>> est.predict([[1.0, 0.0, 0.0]]).shape
    (1,)
    """

    def __init__(
        self,
        source: Callable[[], Iterable[Any]] | Iterable[Any],
        *,
        sharded: bool = False,
        folder: PathLike | None = None,
    ) -> None:
        self._source: Source = _Given(source)
        self.sharded = bool(sharded)
        self.folder = folder

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        sharded: bool = False,
        folder: PathLike | None = None,
    ) -> RowBlocks:
        """Blocks of arrays, for example memory-mapped ones.

        A memory-mapped `X` of floats in C order is read where it stands; anything else
        that can be sliced by rows is copied to the temporary file in blocks.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight, offset : array of shape (n_samples,), optional
        sharded, folder
            See the class.

        Returns
        -------
        RowBlocks

        Examples
        --------
        >>> import numpy as np
        >>> from sknimo import NIMORegressor, RowBlocks
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> rows = RowBlocks.from_arrays(X, X[:, 0])
        >>> NIMORegressor(tol=1.0, patience=3, random_state=0).fit(rows).n_features_in_
        2
        """
        return cls._of(_Arrays(X, y, sample_weight, offset), sharded, folder)

    @classmethod
    def from_parquet(
        cls,
        path: PathLike | Sequence[PathLike],
        *,
        target: str,
        weight: str | None = None,
        offset: str | None = None,
        columns: Sequence[str] | None = None,
        sharded: bool = False,
        folder: PathLike | None = None,
    ) -> RowBlocks:
        """Blocks of Parquet files, read by row groups.

        With `sharded=True` every process passes the same files and reads an equal share
        of their rows.

        Parameters
        ----------
        path : str, path or sequence of them
            Files with the same columns.
        target : str
            Column to predict.
        weight, offset : str, optional
            Columns of row weights and of a known part of the linear predictor.
        columns : sequence of str, optional
            Features; by default all other columns.
        sharded, folder
            See the class.

        Returns
        -------
        RowBlocks

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pyarrow as pa
        >>> import pyarrow.parquet
        >>> from sknimo import NIMORegressor, RowBlocks
        >>> table = pa.table(
        ...     {"x": [0.0, 1.0, 2.0, 3.0] * 10, "y": [0.1, 0.9, 2.1, 2.9] * 10}
        ... )
        >>> path = Path(tempfile.mkdtemp()) / "rows.parquet"
        >>> pa.parquet.write_table(table, path)
        >>> rows = RowBlocks.from_parquet(path, target="y")
        >>> NIMORegressor(tol=1.0, patience=3, random_state=0).fit(rows).n_features_in_
        1
        """
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        source = _Parquet(list(map(Path, paths)), (target, weight, offset), columns)
        return cls._of(source, sharded, folder)

    @classmethod
    def _of(cls, source: Source, sharded: bool, folder: PathLike | None) -> RowBlocks:
        rows = cls((), sharded=sharded, folder=folder)
        rows._source = source
        return rows

    @property
    def ranks(self) -> Ranks:
        """The processes that share the fit."""
        return current_ranks() if self.sharded else ALONE

    @property
    def n_rows(self) -> int | None:
        """Rows of this process, None when that is not known beforehand."""
        return self._source.n_rows(self.ranks)

    @property
    def first_row(self) -> int | None:
        """Number of this process's first row among all rows, None if not known."""
        return self._source.first_row(self.ranks)

    def open_file(self) -> RowFile | None:
        """The table as it stands on disk, if it can be read there; to be closed."""
        source = self._source
        return open_mapped(source.X) if isinstance(source, _Arrays) else None

    @property
    def given_weight(self) -> Any:
        """Weights of all rows where they are known beforehand."""
        source = self._source
        return source.sample_weight if isinstance(source, _Arrays) else None

    def __iter__(self) -> Iterator[Block]:
        """The blocks of this process."""
        for number, given in enumerate(self._source.blocks(self.ranks)):
            if isinstance(given, Block):
                yield given
            elif isinstance(given, tuple | list) and 2 <= len(given) <= 4:
                yield Block(*given)
            else:
                size = f" of {len(given)}" if isinstance(given, tuple | list) else ""
                raise TypeError(
                    f"Block {number} is a {type(given).__name__}{size}; a block is "
                    "(X, y), (X, y, sample_weight) or (X, y, sample_weight, offset)."
                )


class _Given(Source):
    """Blocks from a function, an iterable or an iterator."""

    def __init__(self, source: Any) -> None:
        if not (callable(source) or isinstance(source, Iterable)):
            raise TypeError(
                "RowBlocks needs an iterable of blocks or a function that returns one, "
                f"got {type(source).__name__}."
            )
        self._source = source
        self._is_spent = False

    def blocks(self, ranks: Ranks) -> Iterator[Any]:
        if isinstance(self._source, Iterator):
            if self._is_spent:
                raise ValueError(
                    "The blocks come from an iterator, which has been read already. "
                    "Pass a function that returns a new iterator to fit again."
                )
            self._is_spent = True
            return self._source
        given = self._source() if callable(self._source) else self._source
        if not isinstance(given, Iterable):
            raise TypeError(
                "The function given to RowBlocks must return an iterable of blocks, "
                f"got {type(given).__name__}."
            )
        return iter(given)


class _Arrays(Source):
    """Slices of arrays."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> None:
        shape = np.shape(X)
        if len(shape) != 2:
            raise ValueError(
                f"Expected 2D array, got an array of shape {shape} instead. Reshape "
                "your data using X.reshape(-1, 1) if it has a single feature."
            )
        if y is None:
            raise ValueError("RowBlocks needs the target: y is None.")
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            size = np.shape(values)[:1]
            if values is not None and size and size[0] != shape[0]:
                raise ValueError(
                    f"X has {shape[0]} rows but {name} has {size[0]}: inconsistent "
                    "numbers of samples."
                )
        self.X, self.y = X, y
        self.sample_weight, self.offset = sample_weight, offset

    def blocks(self, ranks: Ranks) -> Iterator[Block]:
        file = open_mapped(self.X)
        try:
            for rows in cut_rows(*self.X.shape):
                X = self.X[rows] if file is None else file.read(rows)
                others = (
                    values if values is None or np.ndim(values) == 0 else values[rows]
                    for values in (self.y, self.sample_weight, self.offset)
                )
                yield Block(X, *others)
                _release(self.X)
        finally:
            if file is not None:
                file.close()

    def n_rows(self, ranks: Ranks) -> int | None:
        return int(self.X.shape[0])


def cut_rows(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of rows that make blocks of a good size."""
    size = max(1, min(BLOCK_CELLS // max(n_columns, 1), MAX_BLOCK_ROWS))
    for begin in range(0, n_rows, size):
        yield slice(begin, min(begin + size, n_rows))


def _release(X: Any) -> None:
    """Let go of the pages of a mapped file that have been read."""
    base = map_behind(X)
    if base is not None and hasattr(base, "madvise"):
        base.madvise(mmap.MADV_DONTNEED)


class _Parquet(Source):
    """Rows of Parquet files; ranks take equal shares."""

    def __init__(
        self,
        paths: list[Path],
        special: tuple[str, str | None, str | None],
        columns: Sequence[str] | None,
    ) -> None:
        if not paths:
            raise ValueError("from_parquet needs at least one file.")
        self._paths, self._special = paths, special
        files = [self._open(path) for path in paths]
        self._n_rows = sum(file.metadata.num_rows for file in files)
        known = list(files[0].schema_arrow.names)
        for path, file in zip(paths, files, strict=True):
            if list(file.schema_arrow.names) != known:
                raise ValueError(
                    f"{path} has other columns than {paths[0]}; all files need the "
                    "same columns in the same order."
                )

        used = [name for name in special if name is not None]
        if len(set(used)) < len(used):
            raise ValueError("Target, weight and offset must be different columns.")
        if columns is None:
            columns = [name for name in known if name not in used]
        elif both := [name for name in columns if name in used]:
            raise ValueError(
                f"columns names {both[0]!r}, which is the target, weight or offset. "
                "Leave it out."
            )
        for name in (*used, *columns):
            if name not in known:
                shown = ", ".join(map(repr, known[:12]))
                raise ValueError(
                    f"{paths[0]} has no column {name!r}. Its columns are {shown}."
                )
        if not columns:
            raise ValueError(f"No column is left to predict {used[0]!r} from.")
        self._columns = list(columns)

    @staticmethod
    def _open(path: Path) -> Any:
        try:
            import pyarrow.parquet as pa_parquet
        except ModuleNotFoundError as error:
            raise ImportError(
                "Reading Parquet needs pyarrow: pip install pyarrow."
            ) from error
        with refuse_damage(path):
            return pa_parquet.ParquetFile(path)

    def n_rows(self, ranks: Ranks) -> int | None:
        begin, end = ranks.part(self._n_rows)
        return end - begin

    def first_row(self, ranks: Ranks) -> int | None:
        return ranks.part(self._n_rows)[0]

    def blocks(self, ranks: Ranks) -> Iterator[Block]:
        begin, end = ranks.part(self._n_rows)
        target, weight, offset = self._special
        special = [name for name in self._special if name is not None]
        names = [*self._columns, *(n for n in special if n not in self._columns)]
        for part in read_parquet(self._paths, names, begin, end):
            yield Block(
                part.select(self._columns),
                _vector(part[target]),
                None if weight is None else _vector(part[weight]),
                None if offset is None else _vector(part[offset]),
            )


@contextmanager
def refuse_damage(name: PathLike) -> Iterator[None]:
    """Tell of a damaged Parquet file by its name; errors of the system pass."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{name} is a damaged Parquet file. Write it anew.") from error


def read_parquet(
    paths: Sequence[PathLike], columns: list[str], begin: int, end: int
) -> Iterator[pa.Table]:
    """Rows `begin` to `end` of several files one after the other, in small tables."""
    import pyarrow as pa

    size = next(cut_rows(MAX_BLOCK_ROWS, len(columns))).stop
    at = 0  # rows of all files before this row group
    for path in paths:
        with refuse_damage(path), _Parquet._open(Path(path)) as file:
            for group in range(file.metadata.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                if at < end and at + n_rows > begin:
                    row = at
                    for batch in file.iter_batches(size, [group], columns):
                        low = max(begin - row, 0)
                        high = min(end - row, len(batch))
                        if low < high:
                            yield pa.Table.from_batches([batch[low:high]])
                        row += len(batch)
                at += n_rows


def _vector(column: pa.ChunkedArray) -> np.ndarray:
    """One column as an array; numbers stay numbers, NaN where missing."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        missing = column.null_count > 0
        column = column.cast(pa.float64(), safe=False) if missing else column
        return np.array(column.to_numpy())
    if pa.types.is_boolean(kind) and not column.null_count:
        return np.array(column.to_numpy())
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values
