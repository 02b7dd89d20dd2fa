"""Tables that are read row by row: blocks, their store, and statistics of all rows."""

from sknimo.rows._blocks import Block, RowBlocks, read_parquet, refuse_damage
from sknimo.rows._statistics import (
    SAMPLE_ROWS,
    ColumnCounts,
    Moments,
    WeightedRows,
    block_moments,
    count_columns,
    gather_sample,
    merge_counts,
    merge_moments,
    sample_rows,
    scatter,
    summarise_columns,
)
from sknimo.rows._store import (
    Digest,
    RowFile,
    Spool,
    StoredColumns,
    show_bytes,
)
