"""Rows on disk: read as they were written, and gone afterwards."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from sknimo.rows import Digest, RowFile, Spool, show_bytes
from sknimo.rows._store import open_mapped


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(size=(300, 7))


@pytest.fixture
def spool(tmp_path):
    spools = []

    def write(table, cuts=()):
        spools.append(Spool(tmp_path, None))
        for part in np.split(table, cuts):
            spools[-1].append(part)
        return spools[-1].finish(table.shape[1])

    yield write
    for each in spools:
        each.close()


def test_rows_come_back_as_they_went(table, spool):
    file = spool(table, [1, 100, 100, 250])
    assert file.n_rows == 300
    assert np.array_equal(file.read(slice(0, 300)), table)
    assert np.array_equal(file.read(slice(17, 18)), table[17:18])
    assert file.read(slice(5, 5)).shape == (0, 7)
    index = np.random.default_rng(1).permutation(300)[:120]
    assert np.array_equal(file.take(index), table[index])
    assert np.array_equal(file.take(np.array([4, 4, 0])), table[[4, 4, 0]])
    assert file.take(np.empty(0, dtype=int)).shape == (0, 7)


def test_without_positional_reads_rows_are_the_same(table, spool, monkeypatch):
    monkeypatch.delattr(os, "preadv")
    file = spool(table)
    assert np.array_equal(file.read(slice(30, 60)), table[30:60])
    assert np.array_equal(file.take(np.array([250, 3])), table[[250, 3]])


def test_codes_are_put_in_order_when_they_are_read(spool):
    codes = np.array([[0.0, 5.0], [1.0, 6.0], [np.nan, 7.0], [2.0, 8.0]])
    stored = spool(codes)
    stored.recode = {0: np.array([2.0, 0.0, 1.0])}
    assert stored.read(slice(0, 4))[:, 0].tolist()[:2] == [2.0, 0.0]
    assert np.isnan(stored.read(slice(2, 3))[0, 0])
    assert stored.take(np.array([3, 0]))[:, 0].tolist() == [1.0, 2.0]


def test_a_file_that_has_shrunk_is_refused(table, tmp_path):
    path = tmp_path / "table"
    path.write_bytes(table.tobytes())
    file = RowFile(path.open("rb"), *table.shape)
    os.truncate(path, 100)
    with pytest.raises(OSError, match="shorter"):
        file.read(slice(0, 300))
    file.close()


def test_the_temporary_file_has_no_name(table, spool, tmp_path):
    spool(table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_is_left_after_a_kill(tmp_path):
    code = f"""
        import os, signal
        import numpy as np
        from sknimo.rows import Spool
        out = Spool({str(tmp_path)!r}, None)
        out.append(np.ones((1000, 10)))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)])
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_beforehand(tmp_path):
    with pytest.raises(OSError, match=r"needs 1e\+03 TB .* has .* left.*folder="):
        Spool(tmp_path, 10**15)


class TestMapped:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_a_mapped_table_is_read_where_it_stands(self, tmp_path, table, dtype):
        np.save(tmp_path / "X.npy", table.astype(dtype))
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
        found = open_mapped(X)
        assert np.array_equal(found.read(slice(20, 40)), X[20:40].astype(float))
        found.close()

    def test_so_are_some_rows_of_it(self, tmp_path, table):
        np.save(tmp_path / "X.npy", table)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")[101:250]
        found = open_mapped(X)
        assert found.n_rows == 149
        assert np.array_equal(found.read(slice(0, 149)), table[101:250])
        found.close()

    def test_what_was_written_through_the_map_is_seen(self, tmp_path, table):
        X = np.lib.format.open_memmap(
            tmp_path / "X.npy", mode="w+", dtype=float, shape=table.shape
        )
        X[:] = table
        found = open_mapped(X)
        assert np.array_equal(found.read(slice(0, 300)), table)
        found.close()

    def test_other_layouts_are_not(self, tmp_path, table):
        np.save(tmp_path / "X.npy", table)
        private = np.load(tmp_path / "X.npy", mmap_mode="c")
        private[0] = 0.0
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
        np.save(tmp_path / "whole.npy", table.astype(int))
        whole = np.load(tmp_path / "whole.npy", mmap_mode="r")
        for other in (private, X[:, :3], X[::2], X.T, whole, table, X[0]):
            assert open_mapped(other) is None

    def test_a_file_that_was_replaced_is_not(self, tmp_path, table):
        np.save(tmp_path / "X.npy", table)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
        os.replace(tmp_path / "X.npy", tmp_path / "old.npy")
        assert open_mapped(X) is None
        np.save(tmp_path / "X.npy", table + 1)
        assert open_mapped(X) is None


def test_digests_do_not_depend_on_blocks(table):
    def digest(*parts):
        found = Digest()
        for part in parts:
            found.add(part)
        return found.finish()

    assert digest(table) == digest(table[:13], table[13:])
    changed = table.copy()
    changed[7, 3] += 1e-12
    assert digest(table) != digest(changed)


def test_bytes_are_shown_in_their_unit():
    assert show_bytes(12) == "12 B"
    assert show_bytes(64e6) == "64 MB"
    assert show_bytes(1.25e13) == "12.5 TB"
