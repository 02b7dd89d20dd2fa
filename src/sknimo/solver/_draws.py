"""What chance decides while training: the rows of a batch, and the noise of a row.

Rows are numbered over all ranks, and everything here depends on these numbers alone. So
neither the size of blocks nor the number of ranks changes what is drawn, and a run can
go on from the few numbers that `Batches.state` returns.

A pass visits pages of consecutive rows in random order. A few pages at a time form a
pool; the rows of the pool are shuffled and cut into batches. A stored table is thus
read once per pass, page by page; with few rows the pool is all of them, and a pass is
a permutation.

Shapes: n rows, q terms, r inputs, h1 units of the first layer, m rows of a batch.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from sknimo.solver._problem import MemoryColumns, ProblemColumns

PAGE_ROWS = 8192
POOL_ROWS = 8 * PAGE_ROWS


class Batches:
    """Rows of every step out of those of all ranks, the same for all members."""

    def __init__(self, n_rows: int, size: int, seed: int) -> None:
        self.n_rows = n_rows
        self.size = min(size, n_rows)
        self.generator = torch.Generator().manual_seed(seed)
        self.pages = torch.empty(0, dtype=torch.long)  # of this pass, still to come
        self.order = torch.empty(0, dtype=torch.long)  # rows drawn but not yet used

    def draw(self) -> Tensor:
        """Rows of the next step, (m,), numbered over all ranks, on the CPU."""
        while len(self.order) < self.size:
            self.order = torch.cat([self.order, self._shuffled_pool()])
        batch, self.order = self.order[: self.size], self.order[self.size :]
        return batch

    def _shuffled_pool(self) -> Tensor:
        if self.n_rows <= POOL_ROWS:
            return torch.randperm(self.n_rows, generator=self.generator)
        if len(self.pages) == 0:
            n_pages = -(-self.n_rows // PAGE_ROWS)
            self.pages = torch.randperm(n_pages, generator=self.generator)
        n_pages = POOL_ROWS // PAGE_ROWS
        chosen, self.pages = self.pages[:n_pages], self.pages[n_pages:]
        rows = chosen.unsqueeze(-1) * PAGE_ROWS + torch.arange(PAGE_ROWS)
        rows = rows[rows < self.n_rows]  # the last page may be short
        return rows[torch.randperm(len(rows), generator=self.generator)]

    def state(self) -> dict[str, Tensor]:
        """All that the next draws depend on."""
        return {
            "generator": self.generator.get_state(),
            "pages": self.pages,
            "order": self.order,
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        self.generator.set_state(state["generator"])
        self.pages, self.order = state["pages"], state["order"]


class Pool:
    """Rows of stored columns that coming batches ask for, read once and held.

    This process's rows are numbered from `first_row` on over all ranks.
    """

    def __init__(
        self, columns: ProblemColumns, first_row: int, n_inputs: int, dtype: torch.dtype
    ) -> None:
        self.columns, self.first_row = columns, first_row
        self.n_inputs, self.dtype = n_inputs, dtype
        self.rows = torch.empty(0, dtype=torch.long)  # sorted, numbered from zero here
        self.terms, self.inputs = self._allocate(0)

    def _allocate(self, n_rows: int) -> tuple[Tensor, Tensor]:
        columns, device = self.columns, self.columns.device
        return (
            torch.empty(n_rows, columns.n_terms, dtype=torch.float64, device=device),
            torch.empty(n_rows, self.n_inputs, dtype=self.dtype, device=device),
        )

    def take(self, index: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
        """Terms and inputs of some rows; `ahead` says what will be asked for next."""
        if not bool(self._holds(index).all()):
            self._load(torch.cat([index, ahead]).unique())
        place = torch.searchsorted(self.rows, index).to(self.terms.device)
        return self.terms[place], self.inputs[place]

    def _holds(self, index: Tensor) -> Tensor:
        if len(self.rows) == 0:
            return torch.zeros_like(index, dtype=torch.bool)
        place = torch.searchsorted(self.rows, index).clamp(max=len(self.rows) - 1)
        return self.rows[place] == index

    def _load(self, wanted: Tensor) -> None:
        """Hold the wanted rows; those that are there already are not read again."""
        held, device = self._holds(wanted), self.terms.device
        place = torch.searchsorted(self.rows, wanted[held]).to(device)
        terms, inputs = self.terms[place], self.inputs[place]
        self.terms, self.inputs = self._allocate(0)  # the old rows go first
        self.rows = wanted
        self.terms, self.inputs = self._allocate(len(wanted))
        here = held.nonzero().squeeze(-1).to(device)
        self.terms[here], self.inputs[here] = terms, inputs
        for place in self._by_page((~held).nonzero().squeeze(-1)):
            rows, here = wanted[place], place.to(device)
            self.terms[here], self.inputs[here] = self._read(rows)

    def _by_page(self, place: Tensor) -> list[Tensor]:
        """Cut places of rows where the page of the row changes."""
        if len(place) == 0:
            return []
        row = self.rows[place] + self.first_row
        page = row.div(PAGE_ROWS, rounding_mode="floor")
        _, counts = page.unique_consecutive(return_counts=True)
        return list(place.split(counts.tolist()))

    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Sorted rows of one page, by reading from the first to the last."""
        begin, stop = int(rows[0]), int(rows[-1]) + 1
        terms, inputs = self.columns.read(slice(begin, stop))
        if len(rows) < stop - begin:
            place = (rows - begin).to(terms.device)
            terms, inputs = terms[place], inputs[place]
        return terms, inputs.to(self.dtype)


def pool_bytes(
    columns: ProblemColumns, n_inputs: int, size: int, dtype: torch.dtype
) -> int:
    """Memory of a pool; none for columns that are in memory as a whole."""
    if isinstance(columns, MemoryColumns):
        return 0
    itemsize = torch.finfo(dtype).bits // 8
    n_rows = min(POOL_ROWS + size, columns.n_rows)
    return n_rows * (8 * columns.n_terms + itemsize * n_inputs)


class Noise:
    """Noise of the first layer, drawn afresh for every step and page of rows.

    Drawn on the CPU in one precision: the same noise on every device.
    """

    def __init__(self, seed: int, width: int) -> None:
        self.seed, self.width = seed, width
        self.latest: tuple[tuple[int, int, int], Tensor] | None = None

    def draw(self, step: int, begin: int, stop: int, n_rows: int) -> Tensor:
        """Standard normal numbers of rows `begin` to `stop` of `n_rows`, (m, h1)."""
        pages = range(begin // PAGE_ROWS, -(-stop // PAGE_ROWS))
        parts = []
        for page in pages:
            first = page * PAGE_ROWS
            drawn = self._page(step, page, min(PAGE_ROWS, n_rows - first))
            parts.append(drawn[max(begin - first, 0) : stop - first])
        if len(parts) == 1:
            return parts[0]
        return torch.cat(parts) if parts else torch.empty(0, self.width)

    def _page(self, step: int, page: int, n_rows: int) -> Tensor:
        """One page; the latest is remembered, because blocks may be smaller."""
        key = (step, page, n_rows)
        if self.latest is None or self.latest[0] != key:
            mixed = np.random.SeedSequence((self.seed, step, page)).generate_state(2)
            generator = torch.Generator().manual_seed(int(mixed.view(np.uint64)[0]))
            draw = torch.randn((n_rows, self.width), generator=generator)
            self.latest = (key, draw)
        return self.latest[1]
