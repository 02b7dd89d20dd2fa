"""Files that are whole or not there: write beside the target, then take its name."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

HEX_DIGITS = 16
UNFINISHED = ".sknimo-{}.tmp"


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `path` on success and nothing otherwise.

    Whoever opens the path meanwhile, or after a crash, finds the old file. What a crash
    leaves beside it, `remove_unfinished` takes away.
    """
    target = Path(os.path.realpath(path))
    file, neighbour = _open_beside(target)
    try:
        with file:
            with suppress(OSError):
                os.chmod(neighbour, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform != "win32":  # under the lock, or it could be removed
                os.replace(neighbour, target)
        if sys.platform == "win32":  # files in use keep their names there
            os.replace(neighbour, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(neighbour)
        raise
    _sync_folder(target.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed have left; the living keep theirs."""
    for path in folder.glob(UNFINISHED.format("[0-9a-f]" * HEX_DIGITS)):
        with suppress(OSError):
            if sys.platform == "win32":
                os.unlink(path)  # refused while it is in use
            else:
                with open(path, "r+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)


def _open_beside(target: Path) -> tuple[IO[bytes], Path]:
    """A new file next to the target, locked for as long as its writer lives."""
    while True:
        digits = secrets.token_hex(HEX_DIGITS // 2)
        neighbour = target.with_name(UNFINISHED.format(digits))
        # Unlike `tempfile`, this respects the permissions that new files get.
        file = open(neighbour, "xb")
        if sys.platform != "win32":
            with suppress(OSError):  # some network file systems cannot
                fcntl.flock(file, fcntl.LOCK_EX)
        if neighbour.exists():  # not taken for a stray before it was locked
            return file, neighbour
        file.close()


def _sync_folder(path: Path) -> None:
    """The new name itself must reach the disk."""
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(folder)
    finally:
        os.close(folder)
