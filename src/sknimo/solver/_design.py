"""The design `phi * (1 + g)`, met one block of rows after the other.

A design that fits into memory is one block. A larger one is a function that makes the
rows asked for; whoever needs sums over rows goes through the blocks and adds. What is
made may be kept, when there is room, so that later passes cost little.

Shapes: K models, n rows, q columns, m rows of a block; the model axis K always leads.
"""

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor


class Design:
    """A tensor (K, n, q) in float64, by blocks of rows.

    Parameters
    ----------
    make : callable
        `rows -> (K, m, q)` for a slice of rows, the same at every call.
    blocks : sequence of slice
        Rows of the blocks: consecutive, and all of them.
    n_columns : int
    keep : bool
        Whether blocks stay in memory once they are made.
    """

    def __init__(
        self,
        make: Callable[[slice], Tensor],
        blocks: Sequence[slice],
        n_columns: int,
        keep: bool = False,
    ) -> None:
        self.n_columns = n_columns
        self.n_blocks = len(blocks)
        self._make = make
        self._slices = tuple(blocks)
        self._keep = keep
        self._kept: dict[int, Tensor] = {}

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Slices of rows and their blocks (K, m, q), in order."""
        for position, rows in enumerate(self._slices):
            block = self._kept.get(position)
            if block is None:
                block = self._make(rows)
                if self._keep:
                    self._kept[position] = block
            yield rows, block


def as_design(design: Design | Tensor) -> Design:
    """A tensor (K, n, q) as a design of one block."""
    if isinstance(design, Design):
        return design
    whole = slice(0, design.shape[-2])
    return Design(lambda rows: design, [whole], design.shape[-1])


def cut_rows(n_rows: int, row_bytes: int, budget: float) -> list[slice]:
    """Blocks of rows that take at most `budget` bytes; one row at least in each."""
    size = max(1, int(budget // max(row_bytes, 1)))
    starts = range(0, max(n_rows, 1), size)
    return [slice(begin, min(begin + size, n_rows)) for begin in starts]
