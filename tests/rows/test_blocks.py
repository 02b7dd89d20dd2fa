"""What counts as blocks, and how they are read."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from sknimo.features import BlockReader, merge_readings, read_table
from sknimo.ranks import Ranks, together
from sknimo.rows import Block, RowBlocks

BLOCK = (np.ones((2, 1)), np.ones(2))


class TestSources:
    def test_a_function_is_called_for_every_pass(self):
        rows = RowBlocks(lambda: iter([BLOCK, BLOCK]))
        assert len(list(rows)) == len(list(rows)) == 2

    def test_an_iterable_is_read_again(self):
        rows = RowBlocks([BLOCK])
        assert len(list(rows)) == len(list(rows)) == 1

    def test_an_iterator_is_read_once(self):
        rows = RowBlocks(iter([BLOCK]))
        assert len(list(rows)) == 1
        with pytest.raises(ValueError, match="read already.*function"):
            list(rows)

    def test_a_block_has_two_to_four_parts(self):
        (block,) = RowBlocks([(*BLOCK, np.ones(2), np.zeros(2))])
        assert isinstance(block, Block) and block.offset.tolist() == [0.0, 0.0]
        for wrong in (np.ones((2, 1)), (BLOCK[0],), (1, 2, 3, 4, 5)):
            with pytest.raises(TypeError, match="Block 1 .*(X, y)"):
                list(RowBlocks([BLOCK, wrong]))

    def test_anything_else_is_refused(self):
        with pytest.raises(TypeError, match="iterable of blocks"):
            RowBlocks(3)
        with pytest.raises(TypeError, match="must return an iterable"):
            list(RowBlocks(lambda: 3))

    def test_arrays_are_cut_by_rows(self):
        X = np.arange(300_000.0).reshape(-1, 2)
        rows = RowBlocks.from_arrays(X, X[:, 0], offset=X[:, 1])
        blocks = list(rows)
        assert len(blocks) > 1
        assert np.array_equal(np.concatenate([block.X for block in blocks]), X)
        assert np.array_equal(np.concatenate([b.offset for b in blocks]), X[:, 1])
        assert rows.n_rows == len(X)

    def test_arrays_of_different_lengths_are_refused(self):
        with pytest.raises(ValueError, match="X has 3 rows but y has 2"):
            RowBlocks.from_arrays(np.ones((3, 1)), np.ones(2))


class TestParquet:
    @pytest.fixture
    def table(self):
        rng = np.random.default_rng(0)
        return pa.table(
            {
                "a": rng.normal(size=101),
                "c": rng.choice(["x", "y"], 101),
                "n": rng.integers(0, 9, 101),
                "y": rng.normal(size=101),
                "w": rng.integers(1, 3, 101).astype(float),
            }
        )

    @pytest.fixture
    def path(self, table, tmp_path):
        pa_parquet.write_table(table, tmp_path / "t.parquet", row_group_size=30)
        return tmp_path / "t.parquet"

    def test_row_groups_hold_all_rows(self, path, table):
        blocks = list(RowBlocks.from_parquet(path, target="y", weight="w"))
        assert pa.concat_tables([b.X for b in blocks]) == table.select(["a", "c", "n"])
        y = np.concatenate([b.y for b in blocks])
        assert np.array_equal(y, table["y"].to_numpy())
        assert blocks[0].offset is None and blocks[0].sample_weight.dtype == float

    @pytest.mark.parametrize("size", [1, 2, 3, 7])
    def test_ranks_take_equal_shares_in_their_order(self, path, table, size):
        rows = RowBlocks.from_parquet([path, path], target="y", columns=["n"])
        parts, starts = [], []
        for rank in range(size):
            ranks = Ranks(rank, size)
            starts.append(rows._source.first_row(ranks))
            own = [block.X for block in rows._source.blocks(ranks)]
            parts += own
            assert sum(map(len, own)) == rows._source.n_rows(ranks)
            assert abs(sum(map(len, own)) - 202 / size) <= 1
        assert starts == sorted(starts) and starts[0] == 0
        twice = pa.concat_tables([table, table]).select(["n"])
        assert pa.concat_tables(parts).to_pylist() == twice.to_pylist()

    def test_columns_that_are_not_there_are_named(self, path):
        with pytest.raises(ValueError, match="no column 'z'.*'a', 'c'"):
            RowBlocks.from_parquet(path, target="z")
        with pytest.raises(ValueError, match="no column 'z'"):
            RowBlocks.from_parquet(path, target="y", columns=["z"])
        with pytest.raises(ValueError, match="different columns"):
            RowBlocks.from_parquet(path, target="y", weight="y")

    def test_targets_are_numbers_flags_or_texts(self, tmp_path):
        table = pa.table(
            {
                "x": [1.0, 2.0],
                "n": [1, None],
                "f": [True, False],
                "t": pa.array(["u", None]).dictionary_encode(),
            }
        )
        pa_parquet.write_table(table, tmp_path / "t.parquet")
        kinds = {}
        for name in "nft":
            rows = RowBlocks.from_parquet(
                tmp_path / "t.parquet", target=name, columns=["x"]
            )
            (block,) = rows
            kinds[name] = block.y
        assert kinds["n"][0] == 1 and np.isnan(kinds["n"][1])
        assert kinds["f"].dtype == bool
        assert kinds["t"].tolist() == ["u", None]


def read_blocks(frames, **options):
    reader = BlockReader(**options)
    tables, first_row = [], 0
    for frame in frames:
        table = reader.read(frame, first_row)
        reader.mark_used(table)
        tables.append(table)
        first_row += len(frame)
    reading = reader.freeze()
    schema = merge_readings([reading])
    table = np.concatenate(tables)
    for j, levels in enumerate(schema.levels):
        if levels is not None:
            place = reading.columns[j].recode(levels)
            known = ~np.isnan(table[:, j])
            table[known, j] = place[table[known, j].astype(int)]
    return table, schema


def make_frame(n_rows=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=n_rows),
            "site": rng.choice(["Bern", "Basel", "Thun"], n_rows),
            "zip": rng.choice([8001, 3000, 4051], n_rows),
            "flag": rng.random(n_rows) < 0.5,
        }
    )
    frame.loc[rng.random(n_rows) < 0.2, ["age", "site"]] = None
    return frame


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_blocks_are_read_like_the_whole_table(library, size):
    frame = make_frame()
    convert = {
        "pandas": lambda f: f,
        "polars": pl.from_pandas,
        "pyarrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
    }[library]
    parts = [convert(frame.iloc[i : i + size]) for i in range(0, 60, size)]
    table, schema = read_blocks(parts, categorical=["zip"], admit_missing=True)
    whole = read_table(convert(frame), ["zip"], True)
    assert np.array_equal(table, whole.values, equal_nan=True)
    assert schema.levels == whole.levels
    assert schema.names == tuple(frame.columns) and schema.is_named


def test_ordered_categories_keep_their_order():
    frame = pl.DataFrame({"s": ["mid", "low", "top", "low"]})
    frame = frame.with_columns(pl.col("s").cast(pl.Enum(["top", "mid", "low", "no"])))
    _, schema = read_blocks([frame[:2], frame[2:]])
    assert schema.levels == (("top", "mid", "low"),)
    other = frame[2:].with_columns(pl.col("s").cast(pl.String))
    other = other.with_columns(pl.col("s").cast(pl.Enum(["low", "mid", "top"])))
    with pytest.raises(ValueError, match="'s' has its levels in different orders"):
        read_blocks([frame[:2], other])


def test_a_column_may_begin_with_nothing():
    first = pd.DataFrame({"c": [None, None]}, dtype=object)
    second = pd.DataFrame({"c": ["b", "a"]})
    table, schema = read_blocks([first, second], admit_missing=True)
    assert schema.levels == (("a", "b"),)
    assert table[2:, 0].tolist() == [1.0, 0.0]


class TestRefusals:
    def test_rows_are_counted_over_blocks(self):
        parts = [make_frame().dropna()[["age", "site"]] for _ in range(3)]
        n_rows = len(parts[0])
        parts[2] = parts[2].reset_index(drop=True)
        parts[2].loc[4, "age"] = np.inf
        with pytest.raises(ValueError, match=f"'age' .* row {2 * n_rows + 4}"):
            read_blocks(parts)
        parts[2].loc[4, "age"] = 0.0
        parts[2].loc[5, "site"] = None
        with pytest.raises(ValueError, match=f"'site' .* row {2 * n_rows + 5}"):
            read_blocks(parts)

    def test_text_among_numbers_has_a_remedy(self):
        parts = [pd.DataFrame({"z": [1, 2]}), pd.DataFrame({"z": ["a", "b"]})]
        with pytest.raises(ValueError, match="'z' holds text from row 2 .*categorical"):
            read_blocks(parts)
        _, schema = read_blocks(parts, categorical=["z"])
        assert schema.levels == ((1, 2, "a", "b"),)

    def test_objects_in_arrays_are_named_by_row(self):
        parts = [np.ones((3, 1)), np.array([[1.0], ["x"]], dtype=object)]
        with pytest.raises(ValueError, match="'x0' holds 'x' at row 4"):
            read_blocks(parts)

    def test_other_columns_are_refused(self):
        frame = make_frame()
        with pytest.raises(ValueError, match="begins with row 60.*'age'"):
            read_blocks(
                [frame, frame[["site", "age", "zip", "flag"]]], admit_missing=True
            )
        with pytest.raises(ValueError, match="begins with row 2 has the columns"):
            read_blocks([np.ones((2, 2)), np.ones((2, 3))])
        with pytest.raises(ValueError, match="shape"):
            read_blocks([np.ones(3)])

    def test_levels_that_look_alike_are_refused(self):
        parts = [pd.DataFrame({"z": [1]}), pd.DataFrame({"z": ["1"]})]
        with pytest.raises(ValueError, match="look alike"):
            read_blocks(parts, categorical=["z"])

    def test_a_column_of_nothing_is_refused(self):
        with pytest.raises(ValueError, match="'c' .* only"):
            read_blocks([pd.DataFrame({"c": [None, None]})], admit_missing=True)

    def test_ranks_must_agree(self):
        readings = []
        for values in ([1.0], ["a"]):
            reader = BlockReader()
            reader.read(pd.DataFrame({"c": values}), 0)
            readings.append(reader.freeze())
        with pytest.raises(ValueError, match="'c' holds text in the rows of rank 1"):
            merge_readings(readings)
        reader = BlockReader()
        reader.read(pd.DataFrame({"d": [1.0]}), 0)
        with pytest.raises(ValueError, match="rank 1 have the columns 'd'"):
            merge_readings([readings[0], reader.freeze()])
        empty = BlockReader().freeze()
        assert merge_readings([empty, readings[0]]).names == ("c",)
        with pytest.raises(ValueError, match="no row"):
            merge_readings([empty])


def test_an_error_of_one_rank_is_an_error_of_all():
    class Mates(Ranks):
        def gather(self, value):
            return [None, (OSError, "disk full")]

    with pytest.raises(OSError, match="disk full"):
        together(Mates(0, 2), lambda: 3)
