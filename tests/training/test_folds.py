"""Folds of rows that are merged, weighted, grouped, or numbered in a stream."""

from dataclasses import replace

import numpy as np
import pytest

from sknimo.training import Fold, TrainingSet, _folds
from sknimo.training._data import merge_rows
from sknimo.training._folds import make_folds, number_folds


def make_set(table, y, weight):
    """Rows as `fit` keeps them; folds need no features."""
    rows, place = merge_rows(table, y, weight, np.zeros(len(y)))
    kept = (rows.y, rows.weight, rows.offset)
    return TrainingSet(*kept, None, 0.0, 1.0, None, rows.table, place, weight)


def random_folds(weight, n_folds):
    """Of rows that are kept as they are."""
    numbers = np.arange(float(len(weight)))
    data = make_set(numbers[:, None], numbers, weight)
    return make_folds(data, n_folds, None, np.random.RandomState(0))


def test_a_whole_number_of_folds_keeps_groups_together():
    rng = np.random.default_rng(0)
    data = make_set(rng.normal(size=(60, 3)), rng.normal(size=60), np.ones(60))
    groups = np.random.default_rng(0).permutation(np.arange(60) // 7)
    folds = make_folds(data, 3, groups, np.random.RandomState(0))
    assert len(folds) == 3
    held_out = np.array([fold.held_out > 0 for fold in folds])[:, data.place]
    assert (held_out.sum(axis=0) == 1).all()  # every row once
    for inside in held_out:
        assert not set(groups[inside]) & set(groups[~inside])
    assert held_out.sum(axis=1).min() >= 20 - 14  # two groups apart at most


def test_folds_share_out_the_observations_that_a_row_stands_for():
    """The same features have several targets: rows are repeated by chance."""
    x, y = np.repeat(np.arange(10.0), 2)[:, None], np.tile([0.0, 1.0], 10)
    data = make_set(x, y, np.where(y == 1, 40.0, 27.0))
    folds, weight = make_folds(data, 5, None, np.random.RandomState(0)), data.weight
    held_out = np.stack([fold.held_out for fold in folds])
    assert np.array_equal(held_out.sum(0), weight)
    assert all(np.array_equal(fold.total, weight) for fold in folds)
    assert (held_out.sum(1) == 134).all()
    assert (held_out > 0).all()


@pytest.mark.parametrize("repeated", [False, True], ids=["weights", "bootstrap"])
def test_copies_of_one_observation_are_held_out_together(repeated):
    rng = np.random.default_rng(0)
    table, y, weight = rng.normal(size=(40, 2)), rng.normal(size=40), np.ones(40)
    if repeated:
        drawn = rng.integers(40, size=40)
        table, y = table[drawn], y[drawn]
    else:
        weight = rng.integers(1, 4, size=40).astype(float)
    data = make_set(table, y, weight)
    assert data.weight.max() > 1
    for fold in make_folds(data, 4, None, np.random.RandomState(0)):
        assert not ((fold.train > 0) & (fold.held_out > 0)).any()


def test_copies_are_shared_out_where_a_class_has_no_other_row():
    rng = np.random.default_rng(0)
    data = make_set(rng.normal(size=(20, 2)), np.eye(20)[3], np.full(20, 2.0))
    data = replace(data, classes=np.array(["a", "b"]))
    for fold in make_folds(data, 4, None, np.random.RandomState(0)):
        assert fold.train[data.y == 1].sum() >= 1


def test_rows_of_a_fractional_weight_stay_whole():
    weight = np.array([0.5, 1.5, 2.5])
    for fold in random_folds(weight, 3):
        assert np.count_nonzero(fold.held_out) == 1
        assert np.count_nonzero(fold.train) == 2


def test_folds_that_share_a_repeated_row_hold_it_out_together():
    """Two copies of one row, one in each fold."""
    first = Fold(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 1.0]))
    second = Fold(np.array([1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    both = first.merge(second)
    assert both.train.tolist() == [0, 0, 0]
    assert both.held_out.tolist() == [2, 1, 1]


WEIGHT = np.linspace(1, 2, 100)


@pytest.mark.parametrize("limit", [10**7, 10], ids=["permuted", "hashed"])
def test_a_row_is_in_the_fold_of_its_number(limit, monkeypatch):
    monkeypatch.setattr(_folds, "MAX_OBSERVATIONS", limit)
    whole = number_folds(WEIGHT, 0, 100, 4, np.random.RandomState(3))
    for part in (slice(0, 37), slice(37, 100), slice(50, 50)):
        random = np.random.RandomState(3)
        own = number_folds(WEIGHT[part], part.start, 100, 4, random)
        for ours, all_rows in zip(own, whole, strict=True):
            assert np.array_equal(ours.train, all_rows.train[part])
            assert np.array_equal(ours.held_out, all_rows.held_out[part])


@pytest.mark.parametrize("limit", [10**7, 10], ids=["permuted", "hashed"])
def test_every_row_is_held_out_once(limit, monkeypatch):
    monkeypatch.setattr(_folds, "MAX_OBSERVATIONS", limit)
    folds = number_folds(WEIGHT, 0, 100, 4, np.random.RandomState(0))
    assert np.allclose(sum(fold.held_out for fold in folds), WEIGHT)
    for fold in folds:
        assert np.allclose(fold.train + fold.held_out, WEIGHT)
        assert 10 < np.count_nonzero(fold.held_out) < 40
    other = number_folds(WEIGHT, 0, 100, 4, np.random.RandomState(1))
    assert not np.array_equal(folds[0].train, other[0].train)


def test_no_more_folds_than_rows():
    folds = number_folds(np.ones(3), 0, 3, 5, np.random.RandomState(0))
    assert len(folds) == 3
    assert all(fold.held_out.sum() == 1 for fold in folds)
