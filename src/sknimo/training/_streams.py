"""Training rows that come in blocks: read once, checked, and kept on disk.

What `TrainingSet` is for a table in memory, `StreamedSet` is for rows that nobody holds
all of. Rows keep their order and equal rows are not merged; rows of zero weight are
dropped. With several ranks every figure here is one of all their rows.

Shapes: n rows of this rank, N rows of all ranks, p features, q terms.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from sknimo.checkpoint import fingerprint
from sknimo.explain import spread_rows
from sknimo.families import Family
from sknimo.features import (
    BlockReader,
    TableReading,
    TableSchema,
    fit_summaries,
    merge_readings,
)
from sknimo.ranks import Ranks, together
from sknimo.rows import (
    SAMPLE_ROWS,
    Block,
    ColumnCounts,
    Digest,
    Moments,
    RowBlocks,
    RowFile,
    Spool,
    WeightedRows,
    block_moments,
    count_columns,
    gather_sample,
    merge_counts,
    merge_moments,
    sample_rows,
    summarise_columns,
)
from sknimo.training._checks import (
    NumberReader,
    TargetReader,
    check_domain,
    check_heavy,
    check_span,
    check_spans,
    read_offset,
    read_weight,
    settle_weights,
)
from sknimo.training._curves import choose_curves
from sknimo.training._data import (
    FitRows,
    ReadingOptions,
    refuse_single_class,
    to_fit_units,
)
from sknimo.training._tails import draw_tails

# Rows of a vector that are worked on at a time.
VECTOR_ROWS = 1 << 18
# Rows that effects are averaged over after the fit.
FACT_ROWS = 1000
# Share of the memory budget that the sample of rows may take, and its least size.
SAMPLE_SHARE = 1 / 8
MIN_SAMPLE_ROWS = 2000


@dataclass(frozen=True, slots=True)
class StreamedSet(FitRows):
    """Rows of this rank, and what is known of those of all."""

    table: RowFile
    counts: ColumnCounts  # figures of all ranks' rows
    sample: WeightedRows  # a few rows of all ranks
    n_samples: int  # rows of all ranks as they were given
    # Number of this rank's first row, and of all rows, that count.
    first_row: int
    n_total: int
    ranks: Ranks
    digest: str  # fingerprint of the rows of all ranks, empty unless asked for


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


@contextmanager
def read_stream(
    rows: RowBlocks, target: TargetReader, family: Family, options: ReadingOptions
) -> Iterator[tuple[StreamedSet, TableSchema]]:
    """Read all rows and learn features from them; the table goes when the fit ends."""
    ranks = rows.ranks
    spooled = together(ranks, lambda: spool_rows(rows, target, family, options))
    try:
        yield prepare_stream(spooled, ranks, target, family, options)
    finally:
        spooled.file.close()


def spool_rows(
    rows: RowBlocks, target: TargetReader, family: Family, options: ReadingOptions
) -> Spooled:
    """Read the blocks of this rank into a file; rows of zero weight are left out."""
    reader = BlockReader(options.categorical, options.admit_missing)
    digest = Digest() if options.wants_digest else None
    file = _find_file(rows, options)
    at = first_row = rows.first_row or 0
    parts: list[tuple[np.ndarray, ...]] = [(np.empty(0),) * 3]
    try:
        for block in rows:
            with _row_numbers(block, at - first_row, rows):
                X = reader.read(options.prepare(block.X), at)
                vectors = _read_vectors(block, at, len(X), target, family)
            at += len(X)
            keep = vectors[1] > 0
            X = X if keep.all() else X[keep]
            reader.mark_used(X)
            if file is None:
                n_bytes = None if rows.n_rows is None else 8 * rows.n_rows * X.shape[1]
                file = Spool(rows.folder, n_bytes)
            if isinstance(file, Spool):
                file.append(X)
            if digest is not None:
                digest.add(X)
            parts.append(tuple(vector[keep] for vector in vectors))
        reading = reader.freeze()
        values, weight, offset = map(np.concatenate, zip(*parts, strict=True))
        if digest is not None:
            for vector in (values, weight, offset):
                digest.add(vector)
        file = Spool(rows.folder, None) if file is None else file
        table = file.finish(len(reading.columns)) if isinstance(file, Spool) else file
    except BaseException:
        if file is not None:
            file.close()
        raise
    told = "" if digest is None else digest.finish()
    return Spooled(table, reading, values, weight, offset, at - first_row, told)


def _read_vectors(
    block: Block, at: int, n_rows: int, target: TargetReader, family: Family
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, weights and offset of a block that begins with row `at`."""
    values = target.read(block.y, at)
    if len(values) != n_rows:
        raise ValueError(
            f"X has {n_rows} rows but y has {len(values)} in the block that "
            f"begins with row {at}: inconsistent numbers of samples."
        )
    weight = read_weight(block.sample_weight, n_rows, at, is_block=True)
    offset = read_offset(block.offset, n_rows, at)
    if isinstance(target, NumberReader):
        check_domain(values, weight, family, at)
    return values, weight, offset


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


def _find_file(rows: RowBlocks, options: ReadingOptions) -> RowFile | Spool | None:
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
    options: ReadingOptions,
) -> tuple[StreamedSet, TableSchema]:
    """Agree with the other ranks on levels and labels, and learn the features."""
    sizes = ranks.gather((len(spooled.weight), spooled.n_read))
    n_total, n_samples = (sum(each) for each in zip(*sizes, strict=True))
    first_row = sum(n for n, _ in sizes[: ranks.rank])
    if n_samples and not n_total:
        raise ValueError("sample_weight is zero for every row; nothing to fit.")
    # Blocks without a row know no kind of their columns.
    schema = merge_readings(ranks.gather(spooled.reading) if n_samples else ())
    options.check_n_rows(n_total, n_samples)
    table = _in_schema(spooled, schema)
    read = target.finish(spooled.values, ranks)
    y, offset = read.values, spooled.offset
    check_heavy(spooled.weight, ranks=ranks)
    weight = settle_weights(spooled.weight, ranks)
    check_spans(y, offset, family, ranks=ranks)
    if read.classes is not None:
        found = ranks.gather(set(np.unique(y).tolist()))
        refuse_single_class(set().union(*found))
    spread = None
    if family.least_squares:
        spread = _target_moments(y - offset, weight, ranks).line(0)
    y, offset, units = to_fit_units(y, offset, spread)
    counts = _count_columns(table, weight, schema, ranks)
    size = choose_sample_size(options.memory_budget, len(schema.names))
    own = sample_rows(first_row, len(y), size, ranks)
    sample = gather_sample(table, y, weight, offset, own, ranks)
    names, levels = schema.names, schema.levels
    how, rules = options.read_bags(n_total, levels, True)[0], options.curves
    if how is None:
        how = choose_curves(sample, names, levels, options.features, family, rules)
    else:
        free = options.features.basis
        drawn = draw_tails(sample, names, levels, free, how, family, rules)
        how = replace(how, drawn=drawn)
    columns = summarise_columns(counts, sample, schema)
    data = StreamedSet(
        y=y,
        weight=weight,
        offset=offset,
        features=fit_summaries(columns, names, levels, how),
        classes=read.classes,
        table=table,
        counts=counts,
        sample=sample.take(spread_rows(len(sample.y), FACT_ROWS)),
        n_samples=n_samples,
        first_row=first_row,
        n_total=n_total,
        ranks=ranks,
        digest=fingerprint(ranks.gather(spooled.digest), names, levels),
        **units,
    )
    return data, schema


def _count_columns(
    table: RowFile, weight: np.ndarray, schema: TableSchema, ranks: Ranks
) -> ColumnCounts:
    """Figures of all ranks' rows; columns that reach too far for them are refused."""
    with np.errstate(over="ignore", invalid="ignore"):
        counted = ranks.gather(count_columns(table, weight, schema))
        counts = merge_counts([part for part in counted if part is not None])
    for name, *ends in zip(
        schema.names, counts.moments.low, counts.moments.high, strict=True
    ):
        check_span(f"Column {name!r} of X", np.array(ends))
    return counts


def _in_schema(spooled: Spooled, schema: TableSchema) -> RowFile:
    """The rows of this rank, their levels as all ranks know them."""
    columns, file = spooled.reading.columns, spooled.file
    if not columns:  # no block: nobody told the number of columns
        file.n_columns = len(schema.names)
    known = enumerate(zip(columns, schema.levels, strict=False))
    file.recode = {j: own.recode(to) for j, (own, to) in known if to is not None}
    return file


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
