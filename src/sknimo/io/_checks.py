"""Strict reading of plain records: a cursor that knows where it is.

A file says what it likes; nothing of it is used before it has passed one of these
methods. Every refusal is a `ModelFileError` that names the place.
"""

from __future__ import annotations

import math
import reprlib
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.exceptions import ModelFileError

# Integers beyond this do not survive other readers of JSON.
MAX_INTEGER = 2**53
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def write_real(value: float) -> float | str:
    """A number for a file; one that is not finite by its name."""
    value = float(value)
    return value if math.isfinite(value) else str(value)


def _is_unicode(text: str) -> bool:
    """Whether a string can be written at all: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a record and its place in it, such as `model.features[3].name`."""

    value: Any
    place: str

    def refuse(self, wanted: str) -> ModelFileError:
        """The error to raise when the value is not what is wanted."""
        shown = textwrap.shorten(reprlib.repr(self.value), 80)
        return ModelFileError(f"{self.place} must be {wanted}, got {shown}.")

    def fields(self, *names: str) -> list[Node]:
        """The values of a mapping that has exactly these keys, in this order."""
        return list(self.mapping(*names).values())

    def mapping(self, *names: str) -> dict[str, Node]:
        """The same by their keys."""
        if type(self.value) is not dict:
            raise self.refuse("a mapping")
        for name in names:
            if name not in self.value:
                raise ModelFileError(f"{self.place} has no {name}.")
        for name in self.value.keys() - set(names):
            raise Node(name, f"a key of {self.place}").refuse("known")
        return {name: Node(self.value[name], f"{self.place}.{name}") for name in names}

    def items(self) -> list[Node]:
        """The values of a list."""
        if type(self.value) is not list:
            raise self.refuse("a list")
        return [Node(v, f"{self.place}[{i}]") for i, v in enumerate(self.value)]

    def flag(self) -> bool:
        """True or false."""
        if type(self.value) is not bool:
            raise self.refuse("true or false")
        return self.value

    def text(self, options: Collection[str] | None = None) -> str:
        """A string, one of the options if there are any."""
        if type(self.value) is not str or not _is_unicode(self.value):
            raise self.refuse("a string")
        if options is not None and self.value not in options:
            raise self.refuse("one of " + ", ".join(options))
        return self.value

    def integer(self, low: int = -MAX_INTEGER, high: int = MAX_INTEGER) -> int:
        """An integer between two bounds, both included."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.refuse(f"an integer from {low} to {high}")
        return self.value

    def number(self, low: float = -math.inf) -> float:
        """A finite number not below a bound."""
        if type(self.value) is not float or not math.isfinite(self.value):
            raise self.refuse("a finite number")
        if self.value < low:
            raise self.refuse(f"a number not below {low}")
        return self.value

    def positive(self) -> float:
        """A finite number above zero."""
        if self.number() <= 0:
            raise self.refuse("a number above zero")
        return float(self.value)

    def real(self) -> float:
        """A number that need not be finite; then it goes by its name."""
        if type(self.value) is str and self.value in NON_FINITE:
            return NON_FINITE[self.value]
        return self.number()

    def label(self) -> str | int | float | bool:
        """A level or a class: a string, a number, true or false."""
        if type(self.value) is str:
            return self.text()
        if type(self.value) is int:
            return self.integer(-(2**63), 2**64 - 1)
        return self.flag() if type(self.value) is bool else self.number()

    def labels(self) -> tuple[str | int | float | bool, ...]:
        """A list of labels, of which there may be many."""
        if type(self.value) is not list:
            raise self.refuse("a list")
        return tuple(Node(value, self.place).label() for value in self.value)

    def array(
        self, shape: Sequence[int | None], dtype: Any = np.float64, finite: bool = True
    ) -> np.ndarray:
        """An array of this type and shape; None leaves a length open."""
        value = self.value
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            raise self.refuse(f"an array of {np.dtype(dtype)}")
        if value.ndim != len(shape) or any(
            wanted is not None and wanted != length
            for wanted, length in zip(shape, value.shape, strict=True)
        ):
            raise ModelFileError(
                f"{self.place} must have the shape {tuple(shape)}, got {value.shape}."
            )
        if finite and not np.isfinite(value).all():
            raise ModelFileError(f"{self.place} must hold finite numbers alone.")
        return value
