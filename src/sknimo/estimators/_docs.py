"""Docstrings that several estimators share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Class = TypeVar("Class", bound=type)


def document(shared: Mapping[str, str]) -> Callable[[Class], Class]:
    """Fill shared sections into a class docstring where `<name>` stands."""

    def fill(cls: Class) -> Class:
        text = cls.__doc__ or ""
        for name, section in shared.items():
            text = text.replace(f"<{name}>", section)
        cls.__doc__ = text
        return cls

    return fill
