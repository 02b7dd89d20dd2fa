"""From exceptions to one line on standard error and an exit code."""

from __future__ import annotations

import functools
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

FAILURE = 1
INTERRUPTED = 130
# What a shell reports of a command that SIGPIPE has ended.
PIPE_CLOSED = 141
# Remedies of the library in the words of the command line.
OPTIONS = {
    'fit with missing="indicator"': "fit with --missing indicator",
    'use handle_unknown="reference"': "fit with --unknown reference",
    ", for example with sklearn.impute.SimpleImputer": " (--drop-missing)",
    "with categorical=, pass a data frame with text columns, or drop it.": "with "
    "--categorical, or leave it out with --drop.",
    "Use NIMOClassifier for labels.": "Leave out --family for labels.",
    "Use NIMOClassifierCV for labels.": "Leave out --family for labels.",
    "Drop it, or merge": "Leave it out with --drop, or merge",
    "(NaN) only. Drop it.": "(NaN) only. Leave it out with --drop.",
    "Drop such rows first.": "Drop such rows, or say --drop-missing.",
    "for example days since a start.": "for example days since a start, or leave it "
    "out with --drop.",
    "Give it such rows: est.calibrate_interval(X, y).": "Fit without --fixed.",
    "give X to to_sql (--data FILE)": "name rows with --data FILE",
    "additive model (max_iter=0)": "additive model (--set max_iter=0)",
}
# The same of warnings.
WARNED = {
    "Choose another point with reference=.": "Choose another point with --set "
    "reference=median.",
    "Drop it to silence this warning.": "Leave it out with --drop.",
    "Raise max_iter (now": "Raise it with --set max_iter=NUMBER (now",
    "Increase alpha or network_alpha": "Increase --set alpha or network_alpha",
}
# The same where a model is only applied: rows cannot be left out there.
APPLIED = OPTIONS | {
    'use handle_unknown="reference"': "say --unknown reference",
    ", for example with sklearn.impute.SimpleImputer": "",
    "Drop such rows first.": "Drop such rows first.",
}


class UserError(Exception):
    """Something the user can mend; the message says how."""


def guard(command: Callable[P, T]) -> Callable[P, T]:
    """Let a command end in an exit code, whatever happens inside.

    With `debug=True` among its arguments, exceptions keep their traceback.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            try:
                result = command(*args, **kwargs)
                sys.stdout.flush()
                return result
            except BrokenPipeError:
                # The reader has seen enough. Standard output must not be flushed again
                # when the interpreter ends, hence the replacement.
                with suppress(OSError, ValueError):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(PIPE_CLOSED) from None
            except KeyboardInterrupt:
                say("interrupted.")
                raise typer.Exit(INTERRUPTED) from None
            except Exception as error:
                _fail(error, bool(kwargs.get("debug")))

    return run


def _fail(error: Exception, debug: bool) -> NoReturn:
    if isinstance(error, typer.Exit | typer.Abort | typer.BadParameter):
        raise error
    if debug:
        traceback.print_exception(error)
    elif _speaks(error):
        say(f"error: {describe(error)}")
    raise typer.Exit(FAILURE) from None


def own_rank() -> int:
    """Number of this process among those that fit together, zero for one alone."""
    return int(os.environ.get("RANK", 0)) if os.environ.get("WORLD_SIZE") else 0


def _speaks(error: Exception) -> bool:
    """Whether this process tells of an error.

    Faults of the data and of files are found by all ranks together, and the first one
    tells. Whoever loses or misses the others tells as well, but not a crowd.
    """
    if isinstance(error, TimeoutError):
        return own_rank() <= 1
    if isinstance(error, UserError | ValueError | TypeError | ImportError | OSError):
        return own_rank() == 0
    return own_rank() <= 1 or not _lost_others(error)


def _lost_others(error: Exception) -> bool:
    """Whether an error says that another process has gone."""
    text = str(error).lower()
    names = {kind.__name__ for kind in type(error).__mro__}
    gone = "gloo" in text or "nccl" in text or "connection" in text
    return "DistError" in names or (isinstance(error, RuntimeError) and gone)


def describe(error: Exception) -> str:
    """One line about an error."""
    if isinstance(error, OSError) and str(error.strerror).endswith("."):
        text = f"{error.filename}: {error.strerror}"  # of our own, with the remedy
    elif isinstance(error, FileNotFoundError):
        text = f"There is no file {error.filename}."
    elif isinstance(error, PermissionError):
        text = f"No permission to use {error.filename}."
    elif isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}."
    elif isinstance(error, UserError):
        text = str(error)
    elif isinstance(error, ValueError | TypeError | ImportError | OSError):
        text = _translate(str(error), OPTIONS)
    elif _lost_others(error):
        text = (
            "another process has ended, and with it the fit. Its own message, if it "
            "could leave one, says why. With --checkpoint FOLDER the fit can be "
            "started again and goes on; torchrun --max-restarts does that by itself."
        )
    else:  # none of the known faults: say what it is and how to learn more
        text = f"{type(error).__name__}: {error} (--debug shows where.)"
    return " ".join(text.split()) or type(error).__name__


def say(text: str) -> None:
    """One line on standard error."""
    with suppress(OSError):
        print(f"sknimo: {text}", file=sys.stderr)


@contextmanager
def count_rows(
    place: np.ndarray | int, options: Mapping[str, str] = OPTIONS
) -> Iterator[None]:
    """Let faults name rows as the user counts them, from one and in the whole file.

    `place` holds where each row stands in its file, or where the first one does, and
    `options` remedies in words of the library and of the command.
    """

    def count(found: re.Match[str]) -> str:
        row = int(found[1])
        if isinstance(place, int):
            return f"row {place + row + 1}"
        return f"row {int(place[row]) + 1 if row < len(place) else row + 1}"

    try:
        yield
    except (ValueError, TypeError) as error:
        text = re.sub(r"\brow (\d+)\b", count, str(error))
        raise UserError(_translate(text, options)) from error


def _translate(text: str, options: Mapping[str, str]) -> str:
    """The same with remedies in words of the command."""
    for words, option in options.items():
        text = text.replace(words, option)
    return text


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    text = _translate(" ".join(str(message).split()), WARNED)
    say("warning: " + re.sub(r"\bcategorical=\[(.+?)\]", r"--categorical \1", text))
