"""One map of the columns among those of another that has curves beside lines.

Shapes: n rows, q terms, r inputs.
"""

import numpy as np
import pytest

from sknimo.features import FeatureOptions, fit_features

N_ROWS = 200
BIG = 1e8  # of which the mean is no number of the machine
NAMES = ("normal", "skewed", "gaps", "flag", "few", "kind", "big", "same")
LEVELS = (None,) * 5 + (("x", "y", "z"), None, None)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    columns = {
        "normal": rng.normal(size=N_ROWS),
        "skewed": np.exp(2 * rng.normal(size=N_ROWS)),
        "gaps": np.where(rng.random(N_ROWS) < 0.2, np.nan, rng.normal(size=N_ROWS)),
        "flag": rng.integers(2, size=N_ROWS),
        "few": rng.integers(3, size=N_ROWS),
        "kind": rng.integers(3, size=N_ROWS),
        "big": BIG + rng.normal(size=N_ROWS),
        "same": np.full(N_ROWS, 2.0),
    }
    return np.column_stack([columns[name] for name in NAMES]).astype(float)


def maps(table, **options):
    """Lines, but for a spline, and curves for every other number."""
    chosen = {"skewed": "spline"}
    every = {
        name: "ramps" for name, own in zip(NAMES, LEVELS, strict=True) if own is None
    }
    weight = np.random.default_rng(1).integers(1, 4, N_ROWS).astype(float)
    read = {"input_scaling": "ramps", "n_edges": 10, "n_input_edges": 12}
    return (
        fit_features(table, NAMES, weight, LEVELS, how, quiet=True)
        for how in (
            FeatureOptions(basis=chosen, **options),
            FeatureOptions(basis=every | chosen, **read | options),
        )
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reference": "median"},
        {"clip_inputs": "all"},
        {"clip_inputs": True},
        {"input_scaling": "rank_gauss"},
    ],
    ids=str,
)
def test_columns_are_the_same_on_rows_within_the_range(options, table):
    lines, curves = maps(table, **options)
    terms, inputs = lines.embed(curves)
    assert len(curves.term_feature) > len(lines.term_feature)
    # Ramps do not carry what the mean of large numbers loses in rounding.
    tolerance = np.finfo(float).eps * BIG
    for found, at, expected in (
        (curves.terms(table), terms, lines.terms(table)),
        (curves.inputs(table), inputs, lines.inputs(table)),
    ):
        gap = np.abs(found[:, at] - expected)
        assert gap.max() < tolerance
    owner = curves.term_feature[terms], lines.term_feature
    assert np.array_equal(*owner)
    owner = curves.input_feature[inputs], lines.input_feature
    assert np.array_equal(*owner)


@pytest.mark.parametrize("clip_inputs", [False, "all"])
def test_straightened_features_have_the_columns_that_are_no_curves(clip_inputs, table):
    _, curves = maps(table, clip_inputs=clip_inputs)
    lines = curves.straightened()
    kept = curves.term_group // curves.n_features != 1
    assert not kept.all()
    assert np.array_equal(lines.terms(table), curves.terms(table)[:, kept])
    assert np.array_equal(lines.term_group, curves.term_group[kept])
    assert np.array_equal(lines.inputs(table), curves.inputs(table))


def test_a_map_is_all_of_itself(table):
    for each in maps(table):
        terms, inputs = each.embed(each)
        assert np.array_equal(terms, np.arange(len(each.term_feature)))
        assert np.array_equal(inputs, np.arange(len(each.input_feature)))


def test_other_curves_cannot_be_embedded(table):
    ramps = dict.fromkeys(NAMES[:1], "ramps")
    few, many = (
        fit_features(
            table,
            NAMES,
            np.ones(len(table)),
            LEVELS,
            FeatureOptions(basis=ramps, n_edges=n_edges),
            quiet=True,
        )
        for n_edges in (6, 12)
    )
    assert few.embed(many) is None
    assert many.embed(few) is None
