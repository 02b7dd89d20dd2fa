"""What must not matter to a search: order, units, repeats, processes."""

import numpy as np
import pytest
import torch
from joblib import parallel_config
from sklearn.base import clone

from sknimo.families import FAMILIES

N_ROWS = 60
UNITS = 1e-6  # relative to the spread of the predictions
BRIEF = {"n_starts": 1, "max_iter": 12, "hidden": (3, 3)}


def standardise(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def relative_gap(eta, expected):
    return np.abs(eta - expected).max() / expected.std()


@pytest.fixture(scope="module")
def plain(make_search, draw_bent):
    return make_search(**BRIEF).fit(*draw_bent())


def test_the_order_of_rows_does_not_matter(family, make_search, draw_bent):
    X, y = draw_bent(family)
    order = np.random.default_rng(1).permutation(N_ROWS)
    weight, offset = np.linspace(1, 2, N_ROWS), np.linspace(0, 1, N_ROWS)
    first = make_search(family, **BRIEF)
    second = clone(first)
    first.fit(X, y, weight, offset)
    second.fit(X[order], y[order], weight[order], offset[order])
    assert np.array_equal(first.model_.eta(X), second.model_.eta(X))


def test_integer_weights_equal_repetition(family, make_search, draw_bent):
    """Equal rows are merged before folds are drawn: the same to the last bit."""
    X, y = draw_bent(family)
    counts = np.arange(N_ROWS) % 3
    first = make_search(family, **BRIEF)
    second = clone(first)
    first.fit(X, y, sample_weight=counts)
    rows = np.repeat(np.arange(N_ROWS), counts)
    second.fit(X[rows], y[rows])
    assert np.array_equal(first.model_.eta(X), second.model_.eta(X))


def test_weights_of_any_size_count_rows_in_total(data, make_search):
    """Fractions are scaled to a mean of one: a common factor does not matter."""
    X, y = data
    weight = np.random.default_rng(0).uniform(0.5, 1.5, N_ROWS)
    first, second = (make_search(**BRIEF).fit(X, y, weight * c) for c in (1.0, 1024.0))
    assert relative_gap(second.predict(X), first.predict(X)) < UNITS


@pytest.mark.parametrize(
    "move",
    [
        lambda X: X * 1e12,
        lambda X: X * [1e6, 1e-6, 1.0] + [0.0, 1.0, 1e3],
    ],
)
def test_units_of_x_do_not_matter(move, data, make_search):
    X, y = data
    moved = move(X)
    Z = standardise(moved)
    expected = make_search(**BRIEF).fit(Z, y).predict(Z)
    found = make_search(**BRIEF).fit(moved, y).predict(moved)
    assert relative_gap(found, expected) < UNITS


@pytest.mark.parametrize("factor", [1e6, 1e-100])
def test_units_of_y_do_not_matter(factor, data, make_search, plain):
    X, y = data
    scaled = make_search(**BRIEF).fit(X, y * factor)
    assert relative_gap(scaled.predict(X) / factor, plain.predict(X)) < UNITS
    assert scaled.coef_ / factor == pytest.approx(plain.coef_, rel=UNITS)


def test_the_same_seed_gives_the_same_fit(data, make_search, plain):
    X, y = data
    same, other = (
        make_search(**BRIEF, random_state=seed).fit(X, y).predict(X) for seed in (0, 1)
    )
    assert np.array_equal(same, plain.predict(X))
    assert not np.array_equal(other, same)


def test_global_state_is_left_alone(data, make_search):
    generators = torch.get_rng_state(), np.random.get_state()[1].copy()
    n_threads = torch.get_num_threads()
    make_search(**BRIEF).fit(*data)
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert np.array_equal(np.random.get_state()[1], generators[1])
    assert torch.get_num_threads() == n_threads


@pytest.fixture
def check_jobs(make_search, draw_bent):
    def check(family, backend):
        X, y = draw_bent(family)
        alone = make_search(family, **BRIEF | {"n_starts": 3}).fit(X, y)
        with parallel_config(backend=backend):
            together = clone(alone).set_params(n_jobs=2).fit(X, y)
        assert alone.n_members_ == together.n_members_
        assert np.array_equal(alone.model_.eta(X), together.model_.eta(X))
        assert alone.trials_ == together.trials_

    return check


def test_any_number_of_threads_gives_the_same_answer(check_jobs):
    check_jobs("gaussian", "threading")


@pytest.mark.slow
@pytest.mark.parametrize("family", list(FAMILIES))
def test_any_number_of_processes_gives_the_same_answer(family, check_jobs):
    check_jobs(family, "loky")
