"""Warnings and errors that users may want to catch by name, and the commonest check."""

from __future__ import annotations

from collections.abc import Iterable


class DataWarning(UserWarning):
    """The data are usable, but something in them deserves a look."""


class ExtrapolationWarning(UserWarning):
    """Rows to predict lie far from all training rows."""


class SeparationWarning(UserWarning):
    """The classes are separated perfectly, so the size of coefficients is arbitrary."""


class CheckpointWarning(UserWarning):
    """A state of a fit could not be kept; the fit itself goes on."""


class ModelFileError(ValueError):
    """A file is no saved model of this library, or a damaged or newer one."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another piece of work."""


def check_option(
    name: str, value: object, options: Iterable[str], record: type | None = None
) -> None:
    """Refuse a value outside a list, naming the list; records of a kind may pass."""
    options = list(options)
    if record is not None and isinstance(value, record):
        return
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        other = f" Or give a {record.__name__}." if record is not None else ""
        raise ValueError(f"{name} must be one of {known}, got {value!r}.{other}")
