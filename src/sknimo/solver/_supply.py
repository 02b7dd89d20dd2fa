"""Rows as training takes them: blocks that fit into the memory budget, or batches.

Shapes: K models, n rows, q term columns, r inputs, a active features, m rows of a part.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from sknimo.solver._draws import Pool, pool_bytes
from sknimo.solver._problem import MemoryColumns, Options, Problem
from sknimo.solver._quadratic import cut_rows

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
            size = (self.n_inputs, options.batch_size, self.dtype)
            needed = pool_bytes(self.columns, *size)
            if 0 < needed <= self.budget // 2:
                self.pool = Pool(
                    self.columns, self.first_row, self.n_inputs, self.dtype
                )
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
