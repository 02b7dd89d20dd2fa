"""Rows as training takes them: blocks that fit into the memory budget, or batches.

What chance decides, the rows of a batch and the noise of a row, depends on the numbers
of the rows over all ranks alone. So neither the size of blocks nor the number of ranks
changes what is drawn, and a run can go on from the few numbers that `Batches.state`
returns.

A pass visits pages of consecutive rows in random order. A few pages at a time form a
pool; the rows of the pool are shuffled and cut into batches. A stored table is thus
read once per pass, page by page; with few rows the pool is all of them, and a pass is
a permutation.

Shapes: K models, n rows, q term columns, r inputs, a active features, h1 units of the
first layer, m rows of a part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sknimo.solver._problem import MemoryColumns, Options, Problem, ProblemColumns
from sknimo.solver._quadratic import cut_rows

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


@dataclass
class Noise:
    """Noise of the first layer, drawn afresh for every step and page of rows.

    Drawn on the CPU in one precision: the same noise on every device.
    """

    seed: int
    width: int
    latest: tuple[tuple[int, int, int], Tensor] | None = None

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


# Share of a GPU's free memory that may be taken.
FREE_SHARE = 0.8


class RowSupply:
    """Terms and inputs of a problem's rows, the inputs in the network's precision.

    The budget in bytes is by default what the options and the device allow.
    """

    def __init__(
        self, problem: Problem, options: Options, budget: int | None = None
    ) -> None:
        self.problem = problem
        self.dtype = options.dtype
        self.n_inputs = len(problem.spec.input_feature)
        sizes = problem.ranks.gather(problem.n_rows)
        self.n_total = sum(sizes)  # rows of all ranks
        self.first_row = sum(sizes[: problem.ranks.rank])
        budget = choose_budget(problem, options) if budget is None else budget
        self.budget = self.whole_budget = budget
        self.columns = problem.columns
        self.table_bytes = 0  # in memory
        if isinstance(self.columns, MemoryColumns):
            terms, inputs = self.columns.terms, self.columns.inputs
            self.table_bytes = terms.nbytes + inputs.nbytes
            self.columns = MemoryColumns(terms, inputs.to(self.dtype))
        self.pool: Pool | None = None
        if options.batch_size:
            columns, r = self.columns, self.n_inputs
            needed = pool_bytes(columns, r, options.batch_size, self.dtype)
            if 0 < needed <= self.budget // 2:
                self.pool = Pool(columns, self.first_row, r, self.dtype)
                self.budget -= needed

    def blocks(self, n_models: int, n_active: int, budget: int = 0) -> list[slice]:
        """Row blocks whose activations stay within the memory budget."""
        row_bytes = self._row_bytes(n_models, n_active)
        return cut_rows(self.problem.n_rows, row_bytes, budget or self.budget)

    def _row_bytes(self, n_models: int, n_active: int) -> int:
        """Bytes per row while a block is made, used and differentiated."""
        (h1, h2), q = self.problem.spec.hidden, self.problem.n_terms
        itemsize = torch.finfo(self.dtype).bits // 8
        # Autograd keeps about three tensors of each layer; making the design in
        # float64, using it and going back takes up to ten of its size.
        activations = max(n_active, 1) * (3 * h1 + 3 * h2) * itemsize
        table = 8 * (q + self.n_inputs) + itemsize * self.n_inputs
        return n_models * (activations + 10 * 8 * q) + table

    def plan(self, n_models: int, n_active: int) -> tuple[list[slice], bool]:
        """Blocks of rows, and whether their designs may be kept beside them."""
        blocks = self.blocks(n_models, n_active)
        whole = 8 * n_models * self.problem.n_rows * self.problem.n_terms
        if len(blocks) > 1 and whole <= self.budget // 2:
            return self.blocks(n_models, n_active, self.budget - whole), True
        # Where a table is in memory, there is room for another of its size.
        return blocks, len(blocks) == 1 or whole <= self.table_bytes

    def read(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Terms and inputs of consecutive rows."""
        terms, inputs = self.columns.read(rows)
        return terms, inputs.to(self.dtype)

    def batch(
        self, batch: Tensor, ahead: Tensor | None, n_models: int, n_active: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Blocks of the rows of a batch that this process holds.

        Yields their positions in the batch, their numbers here (on the device), terms
        and inputs. `batch` (m,) numbers rows over all ranks; `ahead` are rows that
        later batches will ask for.
        """
        position = self._own(batch).nonzero().squeeze(-1)
        if len(position) == 0:
            return
        row_bytes = self._row_bytes(n_models, n_active)
        for some in cut_rows(len(position), row_bytes, self.budget):
            index = batch[position[some]] - self.first_row
            where = send(index, self.problem.device)
            yield position[some], where, *self._take(index, where, ahead)

    def _own(self, batch: Tensor) -> Tensor:
        """Which rows of a batch this process holds, (m,)."""
        last = self.first_row + self.problem.n_rows
        return (batch >= self.first_row) & (batch < last)

    def _take(
        self, index: Tensor, where: Tensor, ahead: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Rows by their numbers, given on the CPU and on the device."""
        if self.pool is None:
            terms, inputs = self.columns.take(where)
            return terms, inputs.to(self.dtype)
        coming = index[:0] if ahead is None else ahead[self._own(ahead)]
        return self.pool.take(index, coming - self.first_row)


def choose_budget(problem: Problem, options: Options) -> int:
    """Memory in bytes, the same on every rank: no more than a GPU has free."""
    budget, device = options.memory_budget, problem.device
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        free += torch.cuda.memory_reserved(device)
        free -= torch.cuda.memory_allocated(device)
        budget = min(budget, int(FREE_SHARE * free))
    return min(problem.ranks.gather(budget))


def send(values: Tensor, device: torch.device) -> Tensor:
    """Copy from the CPU to a device without waiting for the device."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
