"""Attributes that are worked out when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from sknimo.machine import torch_threads
from sknimo.progress import LAST, plan, watch

T = TypeVar("T")

# Cells of the table up to which rows wait for what is said of them to be asked for;
# more would take room.
MAX_WAITING = 10_000_000


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """A value that nobody has asked for; the work holds the rows that it needs."""

    work: Callable[[], T]
    # What is known of it already, and what the work is called where it takes long.
    known: Any = None
    stage: str = LAST


class Late(Generic[T]):
    """An attribute that may be given as a `Later`.

    It stands under its own name among the instance's, where pickles have it.
    """

    def __init__(self, default: T) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        found = vars(instance).get(self._name, self._default) if instance else None
        if isinstance(found, Later):
            with watch(getattr(instance, "verbose", False), has_tasks=True):
                plan(found.stage)
                found = found.work()
            setattr(instance, self._name, found)
        return found  # type: ignore[return-value]

    def __set__(self, instance: Any, value: T | Later[T]) -> None:
        vars(instance)[self._name] = value


def known_of(instance: Any, name: str) -> Any:
    """What is known of a value that waits; None where none does."""
    value = vars(instance).get(name)
    return value.known if isinstance(value, Later) else None


def change_late(instance: Any, name: str, change: Callable[[T], T]) -> None:
    """Change a value, or what it will be."""
    value = vars(instance).get(name)
    if isinstance(value, Later):
        setattr(instance, name, replace(value, work=lambda: change(value.work())))
    else:
        setattr(instance, name, change(getattr(instance, name)))


def work_out(instance: Any) -> None:
    """Let nothing wait any longer, and so keep no rows."""
    for name, value in list(vars(instance).items()):
        if isinstance(value, Later):
            getattr(instance, name)


@contextmanager
def quiet(*size: int) -> Iterator[None]:
    """In units beyond 1e150 squares overflow: infinite there, but no failed fit."""
    errors = np.errstate(over="ignore", invalid="ignore")
    with torch_threads(*size), torch.no_grad(), errors:
        yield
