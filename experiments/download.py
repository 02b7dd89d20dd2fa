"""Fetch the real tables and write them in the form that the experiments read.

    python -m experiments.download [NAME ...] [--data DIR]

Each table becomes NAME.csv.gz with a header line and `target` as its last column.
Downloads go through pooch and are checked before they are used: the numbers of a table
are hashed, not the bytes of the file that carried them, because mirrors compress and
print the same table in different ways.

| table | source |
|---|---|
| boston | scikit-learn 1.1.3, the last release that carried it |
| superconduct | UCI 464 |
| 688_visualizing_soil | OpenML 688 |
| all others | PMLB |
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import os
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER_VARIABLE = "SKNIMO_DATA"
PMLB_URL = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{0}/{0}.tsv.gz"
BOSTON_URL = (
    "https://raw.githubusercontent.com/scikit-learn/scikit-learn/1.1.3/"
    "sklearn/datasets/data/boston_house_prices.csv"
)
SUPERCONDUCT_URL = (
    "https://archive.ics.uci.edu/static/public/464/superconductivty+data.zip"
)
SOIL_ID = 688
TIMEOUT = 15  # seconds that a server may be silent


class DownloadError(RuntimeError):
    """A table could not be fetched, or is not the one that was expected."""


@dataclass(frozen=True)
class Table:
    """Numbers and names; the target is the last column."""

    names: tuple[str, ...]  # of the columns, the last is "target"
    values: np.ndarray  # (n, p + 1)

    @property
    def digest(self) -> str:
        """Hash of the numbers, whatever the order of the rows."""
        values = self.values[np.lexsort(self.values.T)]
        return hashlib.sha256(np.ascontiguousarray(values, "<f8").tobytes()).hexdigest()

    @property
    def target_digest(self) -> str:
        """The same of the target alone."""
        target = np.sort(self.values[:, -1])
        return hashlib.sha256(np.ascontiguousarray(target, "<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Source:
    """Where a table comes from and how to know it.

    `digest` is that of the table, or of its target alone where the columns are known
    only up to rounding.
    """

    read: Callable[[Path], Table]  # given a folder for downloads
    digest: str
    target_only: bool = False


def retrieve(url: str, scratch: Path) -> Path:
    """Download a file; its content is checked later, see `Table.digest`."""
    try:
        import pooch
    except ImportError as error:
        raise DownloadError(
            "Downloads need pooch: pip install 'sknimo[bench]'."
        ) from error
    pooch.get_logger().setLevel("WARNING")
    name = url.rsplit("/", 1)[-1]
    try:
        polite = pooch.HTTPDownloader(timeout=TIMEOUT)
        return Path(pooch.retrieve(url, None, name, scratch, downloader=polite))
    except Exception as error:  # whatever the network does, one kind of error
        raise DownloadError(f"{url} could not be downloaded: {error}") from error


def read_pmlb(url: str) -> Callable[[Path], Table]:
    def read(scratch: Path) -> Table:
        with gzip.open(retrieve(url, scratch), "rt") as lines:
            return target_last(parse(lines, "\t"), "target")

    return read


def read_boston(scratch: Path) -> Table:
    """The first line counts rows and columns, the second names them."""
    with retrieve(BOSTON_URL, scratch).open() as lines:
        next(lines)
        return target_last(parse(lines, ","), "MEDV")


def read_superconduct(scratch: Path) -> Table:
    with zipfile.ZipFile(retrieve(SUPERCONDUCT_URL, scratch)) as archive:
        name = next(n for n in archive.namelist() if n.endswith("train.csv"))
        with archive.open(name) as raw:
            lines = io.TextIOWrapper(raw, "utf-8")
            return target_last(parse(lines, ","), "critical_temp")


def read_soil(scratch: Path) -> Table:
    from sklearn.datasets import fetch_openml

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        data = fetch_openml(
            data_id=SOIL_ID,
            as_frame=False,
            parser="liac-arff",
            data_home=scratch,
            n_retries=1,
            delay=0.1,
        )
    except Exception as error:
        raise DownloadError(f"OpenML {SOIL_ID}: {error}") from error
    finally:
        socket.setdefaulttimeout(before)
    names = [*data.feature_names, *([] if data.target is None else data.target_names)]
    columns = [np.asarray(data.data, dtype=float)]
    if data.target is not None:
        columns.append(np.asarray(data.target, dtype=float).reshape(len(columns[0]), 1))
    return target_last(Table(tuple(names), np.hstack(columns)), "track")


def parse(lines: io.TextIOBase, delimiter: str) -> Table:
    rows = csv.reader(lines, delimiter=delimiter)
    names = tuple(next(rows))
    values = np.array([[float(cell) for cell in row] for row in rows if row])
    return Table(names, values)


def target_last(table: Table, target: str) -> Table:
    """Move the column called `target` to the end and give it that name."""
    if target not in table.names:
        raise DownloadError(f"No column {target} among {', '.join(table.names)}.")
    place = table.names.index(target)
    order = [j for j in range(len(table.names)) if j != place] + [place]
    names = tuple(table.names[j] for j in order[:-1])
    return Table((*names, "target"), table.values[:, order])


def _pmlb(name: str, digest: str) -> tuple[str, Source]:
    return name, Source(read_pmlb(PMLB_URL.format(name)), digest)


SOURCES: dict[str, Source] = {
    "boston": Source(
        read_boston,
        "76dfb4e1194fdc3090709f15e8a0b56104d5bdaebd9b595eb631175cff37db39",
    ),
    "superconduct": Source(
        read_superconduct,
        "a7e958833763a4517aacf589c1ac5595c2a9ae27715d1c40fc2655b89579f264",
        target_only=True,
    ),
    "688_visualizing_soil": Source(
        read_soil,
        "9eb26aa1e8f5e92e3b30a9390ea2af9db2f20f6b0c7acc3199f34e88d9296f47",
    ),
} | dict(
    _pmlb(*row)
    for row in (
        (
            "197_cpu_act",
            "e78270831cd73083792ac0f634597e71fab0cdb2409a6a9f2dd8fe2ab313d5eb",
        ),
        (
            "201_pol",
            "a51edb8d1bbc955b436df618e5c155a7896d656c4cb04875ad818d6cfd1b7fe9",
        ),
        (
            "225_puma8NH",
            "7dfc27f4cebc48ffa0678d016dc0fbdce3e4732998c563c1991aeefb354bc785",
        ),
        (
            "227_cpu_small",
            "920f4fe52d218ad1a9cb63d7dcfc6a9742725f0dc330a86a4ef52f8b5b32d133",
        ),
        (
            "294_satellite_image",
            "39b5cfe6098f29692bfa08cbcd9c8e08ab74d6a5d378e7e1111562c22223c962",
        ),
        (
            "503_wind",
            "884540cacdc3c4b081e35816bfebe1149effac1130a1a471467c33e5c7ba1799",
        ),
        (
            "529_pollen",
            "03f8f24383bc53ee5aa9ddb0a89297495f7ce1963043e5eecf58172902a6e220",
        ),
    )
)


def fetch(name: str, folder: Path, source: Source | None = None) -> Path:
    """Make sure that a table is in the folder, and return its path."""
    path = folder / f"{name}.csv.gz"
    if path.exists():
        return path
    source = source or SOURCES.get(name)
    if source is None:
        raise DownloadError(f"{name} is not one of {', '.join(SOURCES)}.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        table = source.read(Path(scratch))
    digest = table.target_digest if source.target_only else table.digest
    if digest != source.digest:
        raise DownloadError(
            f"{name}: the numbers of the table are not those that the results refer "
            f"to (sha256 {digest} instead of {source.digest})."
        )
    write(table, path)
    return path


def write(table: Table, path: Path) -> None:
    """Write next to the final place first: an interrupted run leaves no half file."""
    draft = path.with_suffix(".part")
    with gzip.open(draft, "wt") as lines:
        lines.write(",".join(table.names) + "\n")
        for row in table.values:
            lines.write(",".join(f"{value:.17g}" for value in row) + "\n")
    draft.replace(path)


def read(path: Path) -> Table:
    with gzip.open(path, "rt") as lines:
        return parse(lines, ",")


def default_folder() -> Path:
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "sknimo"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(SOURCES))
    parser.add_argument("--data", type=Path, default=default_folder())
    options = parser.parse_args()
    failures = 0
    for name in options.names:
        try:
            print(fetch(name, options.data), flush=True)
        except DownloadError as error:
            print(f"{name}: {error}", file=sys.stderr)
            failures += 1
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
