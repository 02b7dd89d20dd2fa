"""Tables are fetched, checked and written; tested on a server of its own."""

import gzip
import http.server
import threading
from functools import partial

import numpy as np
import pytest
from experiments.download import (
    DownloadError,
    Source,
    Table,
    fetch,
    parse,
    read,
    read_pmlb,
    target_last,
)

pytest.importorskip("pooch")

ROWS = np.array([[0.1, 5.0, 2.5], [1e-7, 6.0, -1.0], [1 / 3, 7.0, 0.0]])


@pytest.fixture
def server(tmp_path):
    """A local server with one compressed table, its target in the middle."""
    served = tmp_path / "served"
    served.mkdir()
    with gzip.open(served / "small.tsv.gz", "wt") as lines:
        lines.write("a\ttarget\tb\n")
        for row in ROWS:
            lines.write("\t".join(repr(float(value)) for value in row) + "\n")
    handler = partial(QuietHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/small.tsv.gz"
        httpd.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


EXPECTED = Table(("a", "b", "target"), ROWS[:, [0, 2, 1]])


def test_a_table_arrives_with_every_digit_and_its_target_last(server, folder):
    path = fetch("small", folder, Source(read_pmlb(server), EXPECTED.digest))
    table = read(path)
    assert table.names == ("a", "b", "target")
    assert np.array_equal(table.values, EXPECTED.values)


def test_a_table_that_is_there_is_not_fetched_again(server, folder):
    source = Source(read_pmlb(server), EXPECTED.digest)
    path = fetch("small", folder, source)
    before = path.stat().st_mtime_ns
    broken = Source(read_pmlb("http://127.0.0.1:9/nothing"), "")
    assert fetch("small", folder, broken) == path
    assert path.stat().st_mtime_ns == before


def test_other_numbers_are_refused_and_nothing_is_written(server, folder):
    with pytest.raises(DownloadError, match=r"^small: .*sha256"):
        fetch("small", folder, Source(read_pmlb(server), "0" * 64))
    assert not (folder / "small.csv.gz").exists()


def test_a_server_that_does_not_answer_is_named(folder):
    url = "http://127.0.0.1:9/small.tsv.gz"
    with pytest.raises(DownloadError, match="127.0.0.1"):
        fetch("small", folder, Source(read_pmlb(url), ""))


def test_the_digest_ignores_the_order_of_rows_but_not_their_values():
    shuffled = Table(EXPECTED.names, EXPECTED.values[[2, 0, 1]])
    changed = EXPECTED.values.copy()
    changed[1, 1] += 1e-12
    assert shuffled.digest == EXPECTED.digest
    assert Table(EXPECTED.names, changed).digest != EXPECTED.digest
    assert Table(EXPECTED.names, changed).target_digest == EXPECTED.target_digest


def test_an_unknown_name_lists_the_known_ones(folder):
    with pytest.raises(DownloadError, match="boston"):
        fetch("bostn", folder)


def test_a_missing_target_names_the_columns():
    table = parse(iter(["a,b", "1,2"]), ",")
    with pytest.raises(DownloadError, match="No column target among a, b"):
        target_last(table, "target")
