"""Threads: small problems run faster on one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Below this many rows threads cost more than they bring.
ONE_THREAD_ROWS = 20_000


@contextmanager
def torch_threads(n_rows: int) -> Iterator[None]:
    """Keep small problems on one thread; the number of threads is restored."""
    before = torch.get_num_threads()
    if n_rows < ONE_THREAD_ROWS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
