"""Files that are whole or not there: write beside the target, then take its name."""

import errno
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

if sys.platform != "win32":
    import fcntl

HEX_DIGITS = 16
UNFINISHED = ".sknimo-{}.tmp"
REMEDIES = {
    errno.ENOENT: "Make its folder first.",
    errno.EISDIR: "Name a file in it.",
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "Free some room, or name a path on another disk.",
    ),
}


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A stream that becomes the file at `path` on success and nothing otherwise.

    Whoever opens the path meanwhile, or after a crash, finds the old file, and of two
    writers the last one wins. What a killed writer has left beside it, the next one
    takes away. Devices and pipes are written to as they are.

    Raises
    ------
    OSError
        With the path, whatever file or folder it was that failed, and the remedy.
    """
    with _naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        special = target.exists() and not target.is_file()
        if not special:
            remove_unfinished(target.parent)
            file, neighbour = _open_beside(target, path)
    if special:
        with _open(target, "w", path) as file:
            yield file
        return
    try:
        with file:
            with suppress(OSError):
                os.chmod(neighbour, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            with _naming(path):
                os.fsync(file.fileno())
                if sys.platform != "win32":  # under the lock, or it could be removed
                    os.replace(neighbour, target)
        if sys.platform == "win32":  # files in use keep their names there
            with _naming(path):
                os.replace(neighbour, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(neighbour)
        raise
    _sync_folder(target.parent)


class _Named(io.FileIO):
    """A file whose failed writes name the path that the user gave."""

    def __init__(self, file: Path, mode: str, path: str | os.PathLike[str]) -> None:
        super().__init__(file, mode)
        self._path = path

    def write(self, data: Any) -> int:
        with _naming(self._path):
            return super().write(data)


def _open(file: Path, mode: str, path: str | os.PathLike[str]) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedWriter(_Named(file, mode, path)))


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let faults of the system say which output they are about and what helps."""
    try:
        yield
    except OSError as error:
        code = error.errno or errno.EIO
        remedy = REMEDIES.get(code, "Name another path.")
        cause = os.strerror(code) if error.errno else str(error)
        text = f"{cause}, so nothing was written. {remedy}"
        raise OSError(code, text, os.fspath(path)) from error


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


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time look at a folder and write into it."""
    if sys.platform == "win32":  # folders cannot be locked there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_beside(target: Path, path: str | os.PathLike[str]) -> tuple[IO[bytes], Path]:
    """A new file next to the target, locked for as long as its writer lives."""
    while True:
        digits = secrets.token_hex(HEX_DIGITS // 2)
        neighbour = target.with_name(UNFINISHED.format(digits))
        # Unlike `tempfile`, this respects the permissions that new files get.
        file = _open(neighbour, "x", path)
        if sys.platform != "win32":
            with suppress(OSError):  # some network file systems cannot
                fcntl.flock(file, fcntl.LOCK_EX)
        if neighbour.exists():  # not taken for a stray before it was locked
            return file, neighbour
        file.close()


def _sync_folder(path: Path) -> None:
    """The new name itself must reach the disk."""
    # Windows and some network file systems cannot, some folders may not.
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
