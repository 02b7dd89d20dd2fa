"""Processes that fit one model together, each on rows of its own.

Started by `torchrun` or anything else that initialises `torch.distributed`. Whatever
the ranks decide on must come from sums over all of them, so that every rank takes the
same path; a process on its own is the special case of one rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

# How long a rank waits for the others; shards may differ in size.
PATIENCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process among those that work together.

    Attributes
    ----------
    rank, size : int
    """

    rank: int = 0
    size: int = 1

    @property
    def alone(self) -> bool:
        """Whether this process has all rows."""
        return self.size == 1

    @property
    def first(self) -> bool:
        """Whether this process speaks for all: saves, logs, shows progress."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Sum over ranks; the same bits on every rank."""
        if self.alone:
            return values
        result = values.detach().clone().contiguous()
        torch.distributed.all_reduce(result)
        return result

    def gather(self, value: Any) -> list[Any]:
        """Values of all ranks, in their order."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(values, value)
        return values

    def share(self, value: Any) -> Any:
        """The first rank's value."""
        if self.alone:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]


ALONE = Ranks()


def current_ranks() -> Ranks:
    """All processes of the default process group; alone without one."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    return Ranks(distributed.get_rank(), distributed.get_world_size())


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """The processes that `torchrun` has started, joined in a group; alone without it.

    Tensors travel by NCCL between GPUs and by gloo otherwise.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    backend = "gloo"
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        local, n_devices = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= n_devices:
            raise ValueError(
                f"There are more processes than GPUs on this machine ({n_devices}). "
                'Start one process for each, or use device="cpu".'
            )
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield current_ranks()
    finally:
        with suppress(RuntimeError):  # others may have gone already
            torch.distributed.destroy_process_group()
