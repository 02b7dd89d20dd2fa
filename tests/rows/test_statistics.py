"""Statistics over blocks and ranks are those of the whole table."""

import tempfile

import numpy as np
import pytest

from sknimo.features import (
    FeatureOptions,
    TableSchema,
    fit_features,
    fit_linear,
    fit_summaries,
)
from sknimo.ranks import ALONE
from sknimo.rows import (
    RowFile,
    WeightedRows,
    block_moments,
    count_columns,
    merge_counts,
    merge_moments,
    sample_rows,
    summarise_columns,
)

# Only the order of summation differs.
RTOL = 1e-13


def count(table, weight, schema):
    with tempfile.TemporaryFile() as file:
        file.write(np.ascontiguousarray(table).tobytes())
        file.flush()
        return count_columns(RowFile(file, *table.shape), weight, schema)


def make_table(seed=0, n_rows=500):
    rng = np.random.default_rng(seed)
    table = np.column_stack(
        [
            rng.normal(1e8, 1e-3, n_rows),  # a mean that a float can hardly hold
            rng.normal(0, 1e200, n_rows),  # squares overflow
            rng.exponential(size=n_rows),
            rng.integers(0, 2, n_rows),
            rng.integers(0, 3, n_rows),  # a category
            np.full(n_rows, 7.1),
        ]
    )
    table[rng.random(n_rows) < 0.2, 2] = np.nan
    return table, rng.integers(1, 4, n_rows) / 3


def cut(table, weight, places):
    return zip(np.split(table, places), np.split(weight, places), strict=True)


@pytest.mark.parametrize("places", [[250], [1, 2, 3], [100, 100, 499], [497]])
def test_merged_moments_are_those_of_all_rows(places):
    table, weight = make_table()
    parts = [block_moments(t, w) for t, w in cut(table, weight, places) if len(t)]
    merged = merge_moments(parts)
    for j in range(table.shape[1]):
        known = ~np.isnan(table[:, j])
        line = fit_linear(table[known, j], weight[known])
        found = merged.line(j)
        mean = found.reference + found.residue
        assert mean == pytest.approx(line.reference + line.residue, rel=RTOL, abs=1e-15)
        # A residue is all that is left of the mean: its last digits are open.
        assert found.residue == pytest.approx(line.residue, abs=1e-7 * line.scale)
        assert found.scale == pytest.approx(line.scale, rel=1e-7 if j == 0 else RTOL)
        assert merged.n_known[j] == known.sum()
        assert merged.low[j] == np.nanmin(table[:, j])
        assert merged.high[j] == np.nanmax(table[:, j])


def test_a_block_without_a_value_changes_nothing():
    table, weight = make_table()
    nothing = np.full((3, table.shape[1]), np.nan)
    parts = [block_moments(nothing, np.ones(3)), block_moments(table, weight)]
    for order in (parts, parts[::-1]):
        merged = merge_moments(order)
        assert merged.n_known.tolist() == parts[1].n_known.tolist()
        assert merged.line(2) == parts[1].line(2)


@pytest.mark.parametrize(
    "options",
    [
        {"basis": {2: "spline"}},
        {"basis": {2: "poly2"}, "input_scaling": "rank_gauss"},
        {"basis": {2: "ramps"}, "input_scaling": "ramps"},
        {"clip_inputs": True, "reference": "median"},
        {"reference": "mode"},
    ],
)
@pytest.mark.parametrize("places", [[], [1, 340], [250]])
@pytest.mark.filterwarnings("ignore::sknimo.DataWarning")
def test_features_of_merged_rows_are_those_of_the_table(options, places):
    table, weight = make_table()
    names = tuple("abcdef")
    levels = (None, None, None, None, ("low", "mid", "top"), None)
    schema = TableSchema(names, True, levels)
    counts = merge_counts(
        [count(part, share, schema) for part, share in cut(table, weight, places)]
    )
    sample = WeightedRows(table, weight, weight, weight)
    summaries = summarise_columns(counts, sample, schema)
    found = fit_summaries(summaries, names, levels, FeatureOptions(**options))
    whole = fit_features(table, names, weight, levels, FeatureOptions(**options))
    assert found.low == whole.low and found.high == whole.high
    assert found.coef_names == whole.coef_names
    for evaluate in ("terms", "inputs"):
        ours, theirs = (getattr(f, evaluate)(table) for f in (found, whole))
        # Column a is all residue: seven of its digits are left.
        tol = np.where(whole.term_feature == 0, 1e-6, 1e-10)
        if evaluate == "inputs":
            tol = np.where(whole.input_feature == 0, 1e-6, 1e-10)
        assert (np.abs(ours - theirs) <= tol * np.abs(theirs).max(0)).all()


def test_a_rare_value_counts_although_the_sample_lacks_it():
    flag = np.zeros((1000, 1))
    flag[3] = 1.0
    schema = TableSchema(("flag",), True, (None,))
    counts = count(flag, np.ones(1000), schema)
    few = WeightedRows(flag[10:20], *[np.ones(10)] * 3)
    (known,) = summarise_columns(counts, few, schema)
    assert known.sample.values.tolist() == [0.0, 1.0]
    assert known.sample.weight.tolist() == [999.0, 1.0]


def test_ends_of_the_range_are_knots_although_the_sample_lacks_them():
    x = np.linspace(0, 1, 2001)[:, None]
    schema = TableSchema(("x",), True, (None,))
    counts = count(x, np.ones(len(x)), schema)
    inner = WeightedRows(x[200:1800], *[np.ones(1600)] * 3)
    features = fit_summaries(
        summarise_columns(counts, inner, schema),
        ("x",),
        (None,),
        FeatureOptions(basis="spline"),
    )
    (basis,) = features.bases
    knots = basis.reference + basis.scale * basis.knots
    assert knots[[0, -1]] == pytest.approx([0, 1])


@pytest.mark.parametrize("cuts", [[400], [0], [1000], [30, 31, 900]])
def test_the_sample_does_not_depend_on_how_rows_are_shared_out(cuts):
    alone = sample_rows(0, 1000, 64, ALONE)
    assert len(alone) == 64
    ends = [0, *cuts, 1000]
    hashes = []

    class Collect:
        def gather(self, value):
            hashes.append(value)
            return [value]

    class Mates:
        def gather(self, value):
            return hashes

    pairs = list(zip(ends[:-1], ends[1:], strict=True))
    for begin, end in pairs:
        sample_rows(begin, end - begin, 64, Collect())
    found = [
        begin + sample_rows(begin, end - begin, 64, Mates()) for begin, end in pairs
    ]
    assert np.concatenate(found).tolist() == alone.tolist()


def test_a_sample_is_spread_evenly():
    rows = sample_rows(0, 100_000, 5_000, ALONE)
    found, _ = np.histogram(rows, bins=10, range=(0, 100_000))
    # Binomial with mean 500 and standard deviation 21.
    assert (np.abs(found - 500) < 5 * 21).all()


def test_a_small_table_is_its_own_sample():
    assert sample_rows(10, 50, 64, ALONE).tolist() == list(range(50))


def test_means_of_columns_at_the_end_of_the_range_do_not_overflow():
    column = np.array([2.0, 2.2, -0.4, 2.1, 1.9, 2.0, 2.2, 2.1, 2.0, 1.8, 2.1, 2.2])
    found = block_moments(column[:, None] * 2.0**1019, np.ones(12)).line(0)
    assert found.reference / 2.0**1019 == pytest.approx(column.mean(), rel=1e-14)
    assert found.scale / 2.0**1019 == pytest.approx(column.std(), rel=1e-14)
