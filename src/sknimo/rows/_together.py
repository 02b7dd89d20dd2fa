"""Work that all ranks do and none may fail in alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sknimo.ranks import Ranks

Result = TypeVar("Result")


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
