"""Fit tables that are too large to hold, or that several processes share.

Rows are read part by part, straight into the temporary file of the fit. Processes that
`torchrun` has started read equal shares of the rows; the first one speaks for all.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from sknimo.cli._errors import UserError, count_rows
from sknimo.cli._fit import (
    ROW_COLUMNS,
    ColumnRoles,
    FileRows,
    Fitted,
    Request,
    choose_estimator,
    constant_target,
    count_test_rows,
    find_complete,
    find_features,
    judge,
    label_target,
    read_roles,
    read_target,
    split_roles,
)
from sknimo.cli._tables import PARQUET, STDIN, TableReader, TextFormat
from sknimo.families import get_family
from sknimo.ranks import Ranks, together
from sknimo.rows import Block, RowBlocks, read_parquet, refuse_damage

# A table of more than this share of the budget is not held: a fit makes copies.
TABLE_SHARE = 0.25
DEFAULT_BUDGET = 1e9
# Rows that a report is made from, and the most that are held out to judge by.
REPORT_ROWS = 20_000
TEST_ROWS = 200_000
# Values of the target that may suggest a family.
LOOK_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that can be read again and again, from any row on."""

    path: str
    text: TextFormat
    is_parquet: bool  # whether row groups can be read on their own

    def names(self) -> list[str]:
        """Names of the columns."""
        with TableReader(self.path, self.text) as reader:
            return list(reader.schema.names)

    def parts(
        self, columns: list[str], begin: int = 0, end: int = sys.maxsize
    ) -> Iterator[tuple[int, pa.Table]]:
        """Some rows in tables, each with the number of its first row."""
        if self.is_parquet:
            with TableReader(self.path, self.text) as reader:
                wanted = {name: reader.schema.field(name).type for name in columns}
                for table in read_parquet([self.path], columns, begin, end):
                    yield begin, reader.convert(table, begin, wanted)
                    begin += len(table)
            return
        at = 0
        with TableReader(self.path, self.text) as reader:
            for table in reader.batches(columns):
                low, high = max(begin - at, 0), min(end - at, len(table))
                if low < high:
                    yield at + low, table.slice(low, high - low)
                at += len(table)
                if at >= end:
                    return


def find_source(
    path: str, text: TextFormat, budget: float | None, ranks: Ranks
) -> TableFile | None:
    """The file if it is to be read part by part, None if it is to be held."""
    is_parquet = _is_parquet(path)
    if ranks.alone:
        if not is_parquet:
            return None
        try:
            with refuse_damage(path), pa_parquet.ParquetFile(path) as file:
                cells = file.metadata.num_rows * file.metadata.num_columns
        except ValueError:  # damaged, which whoever reads it will tell
            return None
        large = 8 * cells > TABLE_SHARE * (budget or DEFAULT_BUDGET)
        return TableFile(path, text, True) if large else None
    if path == STDIN:
        raise UserError(
            "Several processes cannot share standard input; name a file instead."
        )
    return TableFile(path, text, is_parquet)


def _is_parquet(path: str) -> bool:
    if path == STDIN or not Path(path).is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(PARQUET)) == PARQUET


@dataclass(frozen=True, slots=True)
class Scan:
    """What one pass over the target has found."""

    n_rows: int
    is_binary: bool  # whether it is text, truth values or two numbers
    is_whole: bool  # whether all of its numbers are whole
    some: np.ndarray  # its first values


def scan_target(source: TableFile, roles: ColumnRoles) -> Scan:
    """Count the rows and look at the values of the target."""
    n_rows, is_number, is_whole = 0, True, True
    seen: set[float] = set()
    some = np.empty(0)
    for _, table in source.parts([roles.target]):
        y = read_target(table[roles.target])
        n_rows += len(y)
        is_number = is_number and y.dtype.kind == "f"
        if is_number and len(some) < LOOK_ROWS:
            some = np.concatenate([some, y[: LOOK_ROWS - len(some)]])
        if is_number and len(seen) <= 2:
            known = np.asarray(y[~np.isnan(y)])
            seen.update(np.unique(known).tolist())
            is_whole = is_whole and bool((known == np.round(known)).all())
    if not n_rows:
        raise UserError(f"{source.path} has no rows.")
    if is_number and len(seen) == 1:
        raise UserError(constant_target(roles.target, seen.pop()))
    return Scan(n_rows, not is_number or len(seen) == 2, is_whole, some)


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """Which rows are for what, and how they are read."""

    source: TableFile
    roles: ColumnRoles
    columns: list[str]
    scan: Scan
    as_labels: bool  # whether the target is turned into labels
    skip_missing: bool
    held_out: np.ndarray  # (n_rows,), bool, rows that the fit must not see

    def read(self, table: pa.Table, first_row: int) -> FileRows:
        """One part of the file, with rows numbered as there."""
        kept = replace(self.roles, drop=())  # what is dropped has not been read
        rows = read_roles(table, self.source.path, kept, first_row)
        if self.as_labels:
            rows = replace(rows, y=label_target(rows.y, self.scan.is_whole))
        if self.skip_missing:
            rows = rows.take(np.flatnonzero(find_complete(rows)))
        return rows

    def blocks(self, ranks: Ranks) -> Iterator[Block]:
        """The rows of one rank to fit."""
        begin, end = ranks.part(self.scan.n_rows)
        for first_row, table in self.source.parts(self.columns, begin, end):
            rows = self.read(table, first_row)
            rows = rows.take(np.flatnonzero(~self.held_out[rows.place]))
            if len(rows.y):
                yield Block(rows.X, rows.y, rows.weight, rows.offset, rows.place)

    def collect(self, wanted: np.ndarray) -> FileRows | None:
        """Some rows of the file, (n_rows,) a mask, in memory."""
        parts = []
        for first_row, table in self.source.parts(self.columns):
            hit = wanted[first_row : first_row + len(table)]
            if hit.any():
                rows = self.read(table, first_row)
                parts.append(rows.take(np.flatnonzero(wanted[rows.place])))
        return _join(parts)


def _join(parts: list[FileRows]) -> FileRows | None:
    if not sum(len(part.y) for part in parts):
        return None
    X = pa.concat_tables([part.X for part in parts])
    known = [name for name in ROW_COLUMNS if getattr(parts[0], name) is not None]
    every: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in known
    }
    return replace(parts[0], X=X, **every)


def fit_stream(
    source: TableFile, request: Request, ranks: Ranks, remark: Callable[[str], None]
) -> Fitted:
    """Fit an estimator to a file that is read part by part.

    The rows in the result, a sample of those fitted, are there on the first rank alone.
    """
    roles, columns, scan = together(ranks, lambda: _look(source, request.roles))
    if not request.fixed:
        remark(
            "the table is read part by part, and a sample of its rows is searched "
            "(--max-time, --fixed)."
        )
    likely = "binomial" if scan.is_binary else "gaussian"
    family, est = choose_estimator(request, roles, likely, scan.some, remark)
    held_out = _choose_test(scan.n_rows, request.test, request.seed, remark)
    as_labels = get_family(family).is_binary
    skip = request.skip_missing
    plan = ReadingPlan(source, roles, columns, scan, as_labels, skip, held_out)
    begin = perf_counter()
    with count_rows(0):
        est.fit(RowBlocks(lambda: plan.blocks(ranks), sharded=not ranks.alone))
    seconds = perf_counter() - begin
    n_rows: int = est._facts.n_samples
    rows, judged, tested = None, None, None
    if ranks.first:
        left_out = scan.n_rows - int(held_out.sum()) - n_rows
        if left_out:
            remark(f"left out {left_out} rows with missing cells.")
        tested = plan.collect(held_out) if request.test is not None else None
        judged = None if tested is None else judge(est, tested)
        if request.wants_rows:
            rows = plan.collect(_sample(~held_out, REPORT_ROWS, request.seed))
            if n_rows > REPORT_ROWS:
                remark(f"the report is made from {REPORT_ROWS} of the rows.")
    return Fitted(est, n_rows, rows, tested, judged, seconds)


def _look(source: TableFile, roles: ColumnRoles) -> tuple[ColumnRoles, list[str], Scan]:
    """Check the columns, list those that are needed, and scan the target."""
    names = source.names()
    roles = split_roles(roles, names)
    features = find_features(names, source.path, roles)
    return roles, [*features, *roles.special], scan_target(source, roles)


def _choose_test(
    n_rows: int, share: float | None, seed: int, remark: Callable[[str], None]
) -> np.ndarray:
    """Rows to hold out, the same on every rank."""
    if share is None:
        return np.zeros(n_rows, dtype=bool)
    n_test = count_test_rows(n_rows, share)
    if n_test > TEST_ROWS:
        remark(f"{TEST_ROWS} rows are held out: more would judge no better.")
    return _sample(np.ones(n_rows, dtype=bool), min(n_test, TEST_ROWS), seed)


def _sample(rows: np.ndarray, size: int, seed: int) -> np.ndarray:
    """At most so many of the rows in a mask, at random."""
    index = np.flatnonzero(rows)
    chosen = np.random.default_rng(seed).permutation(len(index))[:size]
    out = np.zeros_like(rows)
    out[index[chosen]] = True
    return out
