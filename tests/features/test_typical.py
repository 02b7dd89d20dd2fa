"""The reference leaves the mean only where nobody is, for a place where somebody is."""

import numpy as np
import pytest

from sknimo.features import typical_reference


def find(table, weight=None, levels=None):
    weight = np.ones(len(table)) if weight is None else weight
    levels = [None] * table.shape[1] if levels is None else levels
    return typical_reference("auto", table, weight, levels)


def towns(n_rows=600, seed=0):
    """Two towns on a diagonal, and a column that has nothing to do with them."""
    rng = np.random.default_rng(seed)
    town = rng.random(n_rows) < 0.4
    north = np.where(town, 34.0, 38.0) + 0.4 * rng.normal(size=n_rows)
    west = np.where(town, 118.0, 122.0) + 0.4 * rng.normal(size=n_rows)
    return np.column_stack([north, west, rng.normal(size=n_rows)])


ORDINARY = {
    "normal": lambda rng: rng.normal(size=(400, 4)),
    "uniform": lambda rng: rng.uniform(size=(400, 4)),
    "correlated": lambda rng: rng.normal(size=(400, 1)) + rng.normal(size=(400, 4)) / 3,
    "skewed": lambda rng: rng.exponential(size=(400, 4)) ** 2,
    "counts": lambda rng: rng.poisson(1.5, size=(400, 4)).astype(float),
    "few rows": lambda rng: rng.normal(size=(20, 4)),
    "flags": lambda rng: rng.integers(0, 2, size=(400, 4)).astype(float),
    "ratings": lambda rng: rng.integers(1, 6, size=(400, 4)).astype(float),
    "constant": lambda rng: np.ones((400, 4)),
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_tables_keep_the_mean(kind):
    for seed in range(5):
        assert find(ORDINARY[kind](np.random.default_rng(seed))) == "auto"


def test_a_place_between_two_towns_is_left_for_one_of_them():
    table = towns()
    found = find(table)
    assert sorted(found) == [0, 1]
    assert abs(found[0] - 38) < 0.4 and abs(found[1] - 122) < 0.4
    apart = np.hypot(table[:, 0] - found[0], table[:, 1] - found[1])
    mean = table[:, :2].mean(axis=0)
    from_mean = np.hypot(table[:, 0] - mean[0], table[:, 1] - mean[1])
    assert (apart < 0.5).sum() > 100 > 5 >= (from_mean < 0.5).sum()


def test_a_number_between_codes_becomes_one_of_them():
    rng = np.random.default_rng(0)
    table = np.column_stack(
        [rng.choice([3.0, 6.0, 7.0], 300, p=[0.55, 0.05, 0.4]), rng.normal(size=300)]
    )
    assert find(table) == {0: 3.0}


def test_weights_count_like_repeated_rows():
    table = towns(300)
    weight = np.where(table[:, 0] < 36, 3.0, 1.0)
    found = find(table, weight)
    assert abs(found[0] - 34) < 0.4  # the smaller town has more weight


def test_what_was_asked_for_is_kept():
    table = towns()
    for asked in ("mean", "median", {0: 36.0}):
        assert typical_reference(asked, table, np.ones(600), [None] * 3) == asked


def test_levels_and_missing_values_are_no_obstacle():
    table = towns()
    table[::7, 2] = np.nan
    table = np.column_stack([table, np.arange(600) % 3])
    assert sorted(find(table, levels=[None, None, None, ("a", "b", "c")])) == [0, 1]


def test_units_do_not_matter():
    table = towns()
    small, large = find(table * 1e-200), find(table * 1e200)
    for j, value in find(table).items():
        assert small[j] == pytest.approx(value * 1e-200)
        assert large[j] == pytest.approx(value * 1e200)
