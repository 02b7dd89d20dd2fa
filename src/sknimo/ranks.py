"""Processes that fit one model together, each on rows of its own.

Started by `torchrun` or anything else that initialises `torch.distributed`. Whatever
the ranks decide on must come from sums over all of them, so that every rank takes the
same path; a process on its own is the special case of one rank.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

Result = TypeVar("Result")

# How long a rank waits for the others; shards may differ in size.
PATIENCE = timedelta(hours=1)
# The same before the work begins, and how often a rank looks who is there.
START_PATIENCE = timedelta(minutes=10)
START_PAUSE = 0.05
NAME_KEY = "sknimo/name"


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process among those that work together."""

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

    def part(self, n_rows: int) -> tuple[int, int]:
        """Where the rows of this rank begin and end if all have equal parts."""
        begin, end = (n_rows * rank // self.size for rank in (self.rank, self.rank + 1))
        return begin, end

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


def together(ranks: Ranks, work: Callable[[], Result]) -> Result:
    """The result of `work`, or on every rank the error of the first that failed.

    A rank that failed alone would leave the others waiting for it.
    """
    if ranks.alone:
        return work()
    failed: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failed = error
    told = None if failed is None else (type(failed), str(failed))
    for rank, other in enumerate(ranks.gather(told)):
        if other is not None:
            kind, text = other
            if rank == ranks.rank and failed is not None:
                raise failed
            try:
                told_again = kind(text)
            except TypeError:  # an error that takes more than a text
                told_again = RuntimeError(text)
            raise told_again
    return result


@contextmanager
def join_ranks(device: str = "auto") -> Iterator[Ranks]:
    """The processes that `torchrun` has started, joined in a group; alone without it.

    Tensors travel by NCCL between GPUs and by gloo otherwise. Processes that
    `torchrun --max-restarts` has started again form a group of their own.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    # Not every build of torch has them.
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

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
    store, rank, size = next(rendezvous("env://", timeout=START_PATIENCE))
    token = meet(store, rank, size, START_PATIENCE)
    store.set_timeout(PATIENCE)
    torch.distributed.init_process_group(
        backend,
        store=PrefixStore(token, store),
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
    )
    try:
        yield current_ranks()
    finally:
        with suppress(RuntimeError):  # others may have gone already
            torch.distributed.destroy_process_group()


def meet(store: Store, rank: int, size: int, patience: timedelta) -> str:
    """A name that only these processes know, the same on every rank.

    `torchrun` keeps one store for all restarts of its processes. Under the names that
    torch uses, a process would find addresses of processes that are gone. Nor can it
    know by itself whether what it reads was written by one of them. Hence the first
    rank posts a name that never was; each of the others answers under it with a word of
    its own; the first rank posts all answers. Who finds its word among them has met the
    living, who does not has read an old name and looks again. All processes have gone
    before the first is started again, so that no answer to a new name is an old one.
    """
    word = secrets.token_hex(16)
    end = time.monotonic() + patience.total_seconds()
    while time.monotonic() < end:
        name = _invite(store, word, size) if rank == 0 else _answer(store, word, rank)
        if name is not None:
            return name
        time.sleep(START_PAUSE)
    raise TimeoutError(
        f"Rank {rank} has waited {patience} for the other {size - 1} processes. Start "
        "all of them at about the same time, with the same address and port."
    )


def _invite(store: Store, word: str, size: int) -> str | None:
    """Post the name and, once they are all there, the answers to it."""
    store.set(NAME_KEY, word)
    keys = [f"{word}/{rank}" for rank in range(1, size)]
    if not store.check(keys):
        return None
    store.set(f"{word}/all", json.dumps([store.get(key).decode() for key in keys]))
    return word


def _answer(store: Store, word: str, rank: int) -> str | None:
    """Answer to the name that is posted; it counts if the answer was heard."""
    if not store.check([NAME_KEY]):
        return None
    name = store.get(NAME_KEY).decode()
    store.set(f"{name}/{rank}", word)
    heard = f"{name}/all"
    if store.check([heard]) and word in json.loads(store.get(heard)):
        return name
    return None
