"""Read training data block by block: levels grow, and find their order at the end.

Codes are handed out in the order in which levels turn up. Once all blocks have been
read, by one process or by several, `merge_readings` puts the levels in the order that a
table in memory gives them, and `ColumnReading.recode` says where each code went.

Shapes: n rows of a block, p columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals as nw
import numpy as np

from sknimo.features._bases import Label
from sknimo.features._disguise import warn_disguise
from sknimo.features._fit import find_columns, only_missing, show_names
from sknimo.features._read import (
    Column,
    as_frame,
    check_finite,
    code_labels,
    drop_gradient,
    is_category,
    is_text,
    name_columns,
    order_levels,
    read_array,
    read_labels,
    read_numbers,
    split_columns,
    stated_order,
)

# A column of nothing but missing values may turn out to be either.
Kind = Literal["number", "category", "unknown"]


class ColumnReading:
    """What one process has found in a column."""

    def __init__(self, name: str, is_declared: bool) -> None:
        # Whether its values are levels by name or by type.
        self.name, self.is_declared = name, is_declared
        self.kind: Kind = "category" if is_declared else "unknown"
        self.codes: dict[Label, int] = {}  # levels in the order of their appearance
        self.used = np.zeros(0, dtype=bool)  # whether a row that counts has them
        self.has_missing = False
        # Orders that the types of the blocks gave the levels; None for no order.
        self.own_orders: list[tuple[Label, ...] | None] = []

    def read(self, column: Column, admit_missing: bool, first_row: int) -> np.ndarray:
        if self.kind == "category" or is_text(column):
            if self.kind == "number":
                raise ValueError(
                    f"Column {self.name!r} holds text from row {first_row} on, but "
                    "numbers before. Declare it a category with categorical=, or give "
                    "all blocks one type."
                )
            self.is_declared = self.is_declared or is_category(column)
            return self._codes(column, admit_missing, first_row)
        numbers = read_numbers(column, self.name, admit_missing, first_row)
        if not np.isnan(numbers).all():
            self.kind = "number"
        return numbers

    def _codes(self, column: Column, admit_missing: bool, first_row: int) -> np.ndarray:
        self.kind = "category"
        order = stated_order(column, self.name)
        if order not in self.own_orders:
            self.own_orders.append(order)
        labels = read_labels(column, self.name, first_row)
        for label in dict.fromkeys(labels):
            if label is None:
                self.has_missing = True
            else:
                self.codes.setdefault(label, len(self.codes))
        return code_labels(labels, self.codes, self.name, admit_missing, first_row)

    def mark_used(self, codes: np.ndarray) -> None:
        """Note the levels of rows that count."""
        grown = np.zeros(len(self.codes), dtype=bool)
        grown[: len(self.used)] = self.used
        grown[codes[~np.isnan(codes)].astype(int)] = True
        self.used = grown

    def recode(self, levels: tuple[Label, ...]) -> np.ndarray:
        """Final code of each code, NaN for a level that is unused."""
        final = {label: float(code) for code, label in enumerate(levels)}
        return np.array([final.get(label, np.nan) for label in self.codes])


@dataclass(frozen=True, slots=True)
class TableReading:
    """What one process has found in its blocks; no columns without a block."""

    columns: tuple[ColumnReading, ...] = ()
    is_named: bool = False  # whether the columns came with names

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns as all processes agree on them."""

    names: tuple[str, ...]
    is_named: bool
    # Levels of each categorical column in their final order.
    levels: tuple[tuple[Label, ...] | None, ...]


class BlockReader:
    """Reads blocks of training data by the rules of `read_table`.

    Text, categorical and enum columns of data frames are categories, and so are the
    columns that `categorical` names. Refusals name the column, the row counted from the
    first block on, and a remedy.
    """

    def __init__(
        self,
        categorical: Sequence[Any] | str | int | None = None,
        admit_missing: bool = False,
    ) -> None:
        self._categorical = categorical
        self._admit_missing = admit_missing
        self._columns: list[ColumnReading] | None = None
        self._is_named = False

    def read(self, X: Any, first_row: int) -> np.ndarray:
        """One block as floats, levels as codes in the order of their appearance."""
        frame = as_frame(X)
        if frame is None and not isinstance(X, np.ndarray | list | tuple):
            X = np.asarray(drop_gradient(X))
        parts = split_columns(X, frame)
        if parts is None:
            raise ValueError(
                "X of a block must be a table of rows and columns; the block that "
                f"begins with row {first_row} has shape {np.shape(X)}. Use "
                "X.reshape(-1, 1) for a single column."
            )
        columns = self._match(frame, len(parts), first_row)
        if frame is None and not any(column.is_declared for column in columns):
            table = self._read_array(X, columns, first_row)
        else:
            read = [
                column.read(part, self._admit_missing, first_row)
                for column, part in zip(columns, parts, strict=True)
            ]
            table = np.column_stack(read)
        names = [column.name for column in columns]
        check_finite(table, names, self._admit_missing, first_row)
        return table

    def _match(
        self, frame: nw.DataFrame[Any] | None, n_columns: int, first_row: int
    ) -> list[ColumnReading]:
        """The columns of this block, which must be those of the first."""
        names = name_columns(frame, n_columns)
        is_named = frame is not None and names == list(frame.columns)
        if self._columns is None:
            if not names:
                raise ValueError("X has no columns; at least one is needed.")
            declared = find_columns(self._categorical, names, "categorical")
            self._columns = [
                ColumnReading(name, j in declared) for j, name in enumerate(names)
            ]
            self._is_named = is_named
        known = [column.name for column in self._columns]
        if names != known or is_named != self._is_named:
            raise ValueError(
                f"The block that begins with row {first_row} has the columns "
                f"{show_names(names)} where the first block has {show_names(known)}. "
                "All blocks need the same columns in the same order."
            )
        return self._columns

    def _read_array(
        self, X: Any, columns: list[ColumnReading], first_row: int
    ) -> np.ndarray:
        """An array of numbers; strings, dates and complex numbers are refused."""
        array = X if isinstance(X, np.ndarray) else np.array(X)
        if np.iscomplexobj(array):
            raise ValueError("Complex data not supported: X must hold real numbers.")
        names = [column.name for column in columns]
        read = read_array(array, names, self._admit_missing, first_row)
        for column in columns:
            column.kind = "number"
        return np.asarray(read, dtype=np.float64)

    def mark_used(self, table: np.ndarray) -> None:
        """Note the levels of rows that count: those of positive weight."""
        for j, column in enumerate(self._columns or ()):
            if column.kind == "category":
                column.mark_used(table[:, j])

    def freeze(self) -> TableReading:
        """What has been found in all blocks."""
        columns = tuple(self._columns or ())
        for column in columns:
            column.mark_used(np.empty(0))
        return TableReading(columns, self._is_named)


def merge_readings(readings: Sequence[TableReading]) -> TableSchema:
    """Names, kinds and levels on which all processes agree, or a refusal."""
    known = [(rank, each) for rank, each in enumerate(readings) if each.columns]
    if not known:
        raise ValueError("There is no row to fit: the blocks are empty.")
    first_rank, first = known[0]
    for rank, each in known:
        if each.names != first.names or each.is_named != first.is_named:
            raise ValueError(
                f"The rows of rank {rank} have the columns {show_names(each.names)} "
                f"where those of rank {first_rank} have {show_names(first.names)}. "
                "All ranks need the same columns in the same order."
            )
    levels = tuple(
        _merge_column([(rank, each.columns[j]) for rank, each in known])
        for j in range(len(first.columns))
    )
    return TableSchema(first.names, first.is_named, levels)


def _merge_column(
    parts: Sequence[tuple[int, ColumnReading]],
) -> tuple[Label, ...] | None:
    """Levels of a column in their final order, None for numbers."""
    name = parts[0][1].name
    rank_of = {part.kind: rank for rank, part in reversed(parts)}
    if "number" in rank_of and "category" in rank_of:
        raise ValueError(
            f"Column {name!r} holds text in the rows of rank {rank_of['category']}, "
            f"but numbers in those of rank {rank_of['number']}. Declare it a category "
            "with categorical=, or give it one type everywhere."
        )
    if "number" in rank_of:
        return None
    columns = [part for _, part in parts]
    found = {label for column in columns for label in column.codes}
    has_missing = any(column.has_missing for column in columns)
    orders = {order for column in columns for order in column.own_orders}
    stated = sorted(show_names(order) for order in orders if order is not None)
    if len(stated) > 1:
        shown = " and ".join(stated)
        raise ValueError(
            f"Column {name!r} has its levels in different orders: {shown}. Give all "
            "blocks the same categories."
        )
    own_order = None if len(orders) != 1 else orders.pop()
    ordered = order_levels(found, has_missing, own_order, name)
    used = {
        label
        for column in columns
        for label, is_used in zip(column.codes, column.used, strict=True)
        if is_used
    }
    levels = tuple(level for level in ordered if level in used)
    if not levels:
        raise ValueError(only_missing(name))
    if not any(column.is_declared for column in columns):
        warn_disguise(levels, name)
    return levels
