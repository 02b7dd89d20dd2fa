"""Files that are whole or not there: write beside the target, then take its name."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `path` on success and nothing otherwise.

    Whoever opens the path meanwhile, or after a crash, finds the old file.
    """
    target = Path(os.path.realpath(path))
    neighbour = target.with_name(f".sknimo-{secrets.token_hex(8)}.tmp")
    try:
        # Unlike `tempfile`, this respects the permissions that new files get.
        with open(neighbour, "xb") as file:
            with suppress(OSError):
                os.chmod(neighbour, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(neighbour, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(neighbour)
        raise
    _sync_folder(target.parent)


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
