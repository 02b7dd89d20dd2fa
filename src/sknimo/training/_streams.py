"""Training rows that come in blocks: read once, checked, and kept on disk.

What `TrainingSet` is for a table in memory, `StreamedSet` is for rows that nobody holds
all of. Rows keep their order and equal rows are not merged; rows of zero weight are
dropped. With several ranks every figure here is one of all their rows.

Shapes: n rows of this rank, N rows of all ranks, p features, q terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from sknimo.checkpoint import fingerprint
from sknimo.families import Family
from sknimo.features import (
    BlockReader,
    FeatureMap,
    FeatureOptions,
    TableReading,
    TableSchema,
    fit_summaries,
    merge_readings,
)
from sknimo.machine import torch_threads
from sknimo.ranks import Ranks
from sknimo.rows import (
    SAMPLE_ROWS,
    Block,
    ColumnCounts,
    Digest,
    Moments,
    RowBlocks,
    RowFile,
    RowSample,
    Spool,
    StoredTable,
    block_moments,
    count_columns,
    gather_sample,
    merge_counts,
    merge_moments,
    sample_rows,
    summarise_columns,
    together,
)
from sknimo.training._checks import (
    check_classes,
    check_domain,
    read_labels,
    read_numeric_target,
    read_offset,
    read_weight,
)
from sknimo.training._curves import CurveRules, choose_curves
from sknimo.training._data import Target

# Rows of a vector that are worked on at a time.
VECTOR_ROWS = 1 << 18
# Rows that effects are averaged over after the fit.
FACT_ROWS = 1000
# Share of the memory budget that the sample of rows may take, and its least size.
SAMPLE_SHARE = 1 / 8
MIN_SAMPLE_ROWS = 2000


class TargetReader(Protocol):
    """Reads the target block by block."""

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """One number per row of a block; not yet the final one."""

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """The target of this rank, with labels as all ranks know them."""


class NumberReader:
    """Numbers as they are."""

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """The numbers of a block."""
        return read_numeric_target(y, first_row)

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """All of them."""
        return Target(values)


class LabelReader:
    """Two labels, whichever turns up first."""

    def __init__(self) -> None:
        self._place: dict[Any, int] = {}
        self._found: list[np.ndarray] = []

    def read(self, y: Any, first_row: int) -> np.ndarray:
        """Number of each label in the order of their appearance."""
        labels = read_labels(y, first_row)
        if len(labels) == 0:
            return np.empty(0)
        check_classification_targets(labels)
        found, index = np.unique(labels, return_inverse=True)
        self._found = [np.unique(np.concatenate([*self._found, found]))]
        if len(self._found[0]) > 2:
            check_classes(self._found[0])
        codes = [self._place.setdefault(x, len(self._place)) for x in found.tolist()]
        return np.array(codes, dtype=np.float64)[index]

    def finish(self, values: np.ndarray, ranks: Ranks) -> Target:
        """Zeros and ones by the sorted labels of all ranks."""
        known = [part for found in ranks.gather(self._found) for part in found]
        classes = np.unique(np.concatenate(known)) if known else np.empty(0)
        if len(known):
            check_classes(classes)
        second = np.array([label == classes[1] for label in self._place], dtype=float)
        return Target(second[values.astype(int)] if len(values) else values, classes)


@dataclass(frozen=True, slots=True)
class StreamedSet:
    """Validated training rows of this rank, and what is known of those of all.

    Attributes
    ----------
    table : StoredTable
    y, weight, offset : ndarray of shape (n,)
        The target is centred and scaled where the family allows it.
    features : FeatureMap
    y_mean, y_scale : float
        What was subtracted from and divided out of the target.
    classes : ndarray of shape (2,) or None
        Labels of a classification target.
    counts : ColumnCounts
        Figures of all ranks' rows.
    sample : RowSample
        A few rows of all ranks.
    n_samples : int
        Rows of all ranks as they were given.
    first_row, n_total : int
        Number of this rank's first row, and of all rows, that count.
    ranks : Ranks
    digest : str
        Fingerprint of the rows of all ranks, empty unless asked for.
    """

    table: StoredTable
    y: np.ndarray
    weight: np.ndarray
    offset: np.ndarray
    features: FeatureMap
    y_mean: float
    y_scale: float
    classes: np.ndarray | None
    counts: ColumnCounts
    sample: RowSample
    n_samples: int
    first_row: int
    n_total: int
    ranks: Ranks
    digest: str


@dataclass(frozen=True, slots=True)
class Spooled:
    """Rows of this rank as they were read."""

    file: RowFile
    reading: TableReading
    values: np.ndarray  # (n,), the target before labels are known
    weight: np.ndarray  # (n,)
    offset: np.ndarray  # (n,)
    n_read: int
    digest: str


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How rows are to be read.

    Attributes
    ----------
    features : FeatureOptions
    curves : CurveRules
    categorical : Any
        Columns to take for categories.
    admit_missing : bool
    prepare : callable
        Applied to the table of every block.
    check_n_rows : callable
        Refuses too few rows.
    memory_budget : float
    wants_digest : bool
    """

    features: FeatureOptions
    curves: CurveRules
    categorical: Any
    admit_missing: bool
    prepare: Callable[[Any], Any]
    check_n_rows: Callable[[int], None]
    memory_budget: float
    wants_digest: bool


@contextmanager
def read_stream(
    rows: RowBlocks, target: TargetReader, family: Family, options: StreamOptions
) -> Iterator[tuple[StreamedSet, TableSchema]]:
    """Read all rows and learn features from them; the table goes when the fit ends."""
    ranks = rows.ranks
    spooled = together(ranks, lambda: spool_rows(rows, target, family, options))
    try:
        yield prepare_stream(spooled, ranks, target, family, options)
    finally:
        spooled.file.close()


def spool_rows(
    rows: RowBlocks, target: TargetReader, family: Family, options: StreamOptions
) -> Spooled:
    """Read the blocks of this rank into a file, checked and encoded."""
    spooling = _Spooling(rows, target, family, options)
    try:
        for block in rows:
            with _row_numbers(block, spooling.n_read, rows):
                spooling.add(block)
        return spooling.finish()
    except BaseException:
        spooling.close()
        raise


@contextmanager
def _row_numbers(block: Block, n_read: int, rows: RowBlocks) -> Iterator[None]:
    """Let faults name rows as their source does, or say how they are counted."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if block.rows is not None:
            first = (rows.first_row or 0) + n_read

            def name(found: re.Match[str]) -> str:
                at = int(found[1]) - first
                known = 0 <= at < len(block.rows)
                return f"row {block.rows[at]}" if known else found[0]

            told = re.sub(r"\brow (\d+)\b", name, str(error))
        elif rows.first_row is None:
            told = f"{error} (Rows are counted from the first block of rank "
            told += f"{rows.ranks.rank}.)"
        else:
            raise
        raise type(error)(told) from error


class _Spooling:
    """Rows of this rank under way to their file."""

    def __init__(
        self,
        rows: RowBlocks,
        target: TargetReader,
        family: Family,
        options: StreamOptions,
    ) -> None:
        self._rows, self._target = rows, target
        self._family, self._options = family, options
        self._reader = BlockReader(options.categorical, options.admit_missing)
        self._digest = Digest() if options.wants_digest else None
        self._place = _find_place(rows, options)
        self._first_row = self._at = rows.first_row or 0
        nothing = np.empty(0)
        self._values, self._weight, self._offset = [nothing], [nothing], [nothing]

    @property
    def n_read(self) -> int:
        """Rows read so far."""
        return self._at - self._first_row

    def add(self, block: Block) -> None:
        """Check and encode a block; rows of zero weight are left out."""
        at = self._at
        table = self._reader.read(self._options.prepare(block.X), at)
        values = self._target.read(block.y, at)
        if len(values) != len(table):
            raise ValueError(
                f"X has {len(table)} rows but y has {len(values)} in the block that "
                f"begins with row {at}: inconsistent numbers of samples."
            )
        weight = read_weight(block.sample_weight, len(table), at, is_block=True)
        offset = read_offset(block.offset, len(table), at)
        if isinstance(self._target, NumberReader):
            check_domain(values, weight, self._family, at)
        self._at += len(table)
        keep = weight > 0
        if not keep.all():
            table = table[keep]
        self._reader.mark_used(table)
        self._put(table)
        self._values.append(values[keep])
        self._weight.append(weight[keep])
        self._offset.append(offset[keep])

    def _put(self, table: np.ndarray) -> None:
        if self._place is None:
            n_rows = self._rows.n_rows
            n_bytes = None if n_rows is None else 8 * n_rows * table.shape[1]
            self._place = Spool(self._rows.folder, n_bytes)
        if isinstance(self._place, Spool):
            self._place.append(table)
        if self._digest is not None:
            self._digest.add(table)

    def finish(self) -> Spooled:
        """All that was read."""
        reading = self._reader.freeze()
        place = Spool(self._rows.folder, None) if self._place is None else self._place
        self._place = place
        file = place.finish(len(reading.columns)) if isinstance(place, Spool) else place
        values, weight, offset = (
            np.concatenate(parts)
            for parts in (self._values, self._weight, self._offset)
        )
        digest = ""
        if self._digest is not None:
            for vector in (values, weight, offset):
                self._digest.add(vector)
            digest = self._digest.finish()
        return Spooled(file, reading, values, weight, offset, self.n_read, digest)

    def close(self) -> None:
        """Throw away what was put on disk."""
        if self._place is not None:
            self._place.close()


def _find_place(rows: RowBlocks, options: StreamOptions) -> RowFile | Spool | None:
    """The file that holds the table already, if its rows can stay there."""
    weight = rows.given_weight
    if options.categorical is not None or (
        weight is not None and not (np.asarray(weight) > 0).all()
    ):
        return None
    return rows.open_file()


def prepare_stream(
    spooled: Spooled,
    ranks: Ranks,
    target: TargetReader,
    family: Family,
    options: StreamOptions,
) -> tuple[StreamedSet, TableSchema]:
    """Agree with the other ranks on levels and labels, and learn the features."""
    sizes = ranks.gather((len(spooled.weight), spooled.n_read))
    n_total, n_samples = (sum(each) for each in zip(*sizes, strict=True))
    first_row = sum(n for n, _ in sizes[: ranks.rank])
    if n_samples and not n_total:
        raise ValueError("sample_weight is zero for every row; nothing to fit.")
    schema = merge_readings(ranks.gather(spooled.reading))
    options.check_n_rows(n_total)
    p = len(schema.names)
    file = spooled.file
    if not spooled.reading.columns:  # no block: nobody told the number of columns
        file.n_columns = p
    recode = {}
    for j, (column, levels) in enumerate(
        zip(spooled.reading.columns, schema.levels, strict=False)
    ):
        if levels is not None:
            recode[j] = column.recode(levels)
    table = StoredTable(file, recode)
    read = target.finish(spooled.values, ranks)
    y, weight, offset = read.values, spooled.weight, spooled.offset
    if read.classes is not None:
        if len(set().union(*ranks.gather(set(np.unique(y).tolist())))) < 2:
            raise ValueError(
                "Rows with positive weight hold a single class; two classes are needed."
            )
    mean, scale = 0.0, 1.0
    if family.least_squares:
        spread = _target_moments(y - offset, weight, ranks).line(0)
        # A constant target has no scale: every coefficient is zero.
        mean, scale = spread.reference, spread.scale or 1.0
        y, offset = (y - mean) / scale, offset / scale
    counted = ranks.gather(count_columns(table, weight, schema))
    counts = merge_counts([part for part in counted if part is not None])
    size = choose_sample_size(options.memory_budget, p)
    places = sample_rows(first_row, len(y), size, ranks)
    sample = gather_sample(table, y, weight, offset, places, ranks)
    features = _fit_features(counts, sample, schema, family, options)
    some = np.linspace(0, len(sample.y) - 1, min(len(sample.y), FACT_ROWS))
    data = StreamedSet(
        table,
        y,
        weight,
        offset,
        features,
        mean,
        scale,
        read.classes,
        counts,
        sample.take(some.round().astype(int)),
        n_samples,
        first_row,
        n_total,
        ranks,
        fingerprint(ranks.gather(spooled.digest), schema.names, schema.levels),
    )
    return data, schema


def choose_sample_size(memory_budget: float, n_columns: int) -> int:
    """Rows that quantiles are taken from, within a share of the budget."""
    room = int(SAMPLE_SHARE * memory_budget / (8 * max(n_columns, 1)))
    return min(SAMPLE_ROWS, max(room, MIN_SAMPLE_ROWS))


def _target_moments(values: np.ndarray, weight: np.ndarray, ranks: Ranks) -> Moments:
    """Moments of the target over all ranks, as a column of its own."""
    own = [
        block_moments(values[begin:end, None], weight[begin:end])
        for begin in range(0, len(values), VECTOR_ROWS)
        for end in [begin + VECTOR_ROWS]
    ]
    parts = ranks.gather(merge_moments(own) if own else None)
    return merge_moments([part for part in parts if part is not None])


def _fit_features(
    counts: ColumnCounts,
    sample: RowSample,
    schema: TableSchema,
    family: Family,
    options: StreamOptions,
) -> FeatureMap:
    """Bases, references and scales; curves by the evidence of the sample."""
    with torch_threads(len(sample.y)):
        bases = choose_curves(
            sample.table,
            schema.names,
            sample.weight,
            schema.levels,
            options.features,
            sample.y,
            sample.offset,
            family,
            options.curves,
        )
    summaries = summarise_columns(counts, sample, schema)
    return fit_summaries(summaries, schema.names, schema.levels, bases)
