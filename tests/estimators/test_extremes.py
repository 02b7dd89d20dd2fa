"""Numbers at the edge of floats: they work, or a sentence says which ones do not.

Nothing here depends on a long training, so every fit takes a few steps only.
"""

import time
import warnings

import numpy as np
import pytest
import torch

from sknimo import (
    DataWarning,
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
)

N_ROWS = 40
SOON = 5.0  # seconds for a refusal; such fits took more than a minute
SEARCH = {"n_starts": 1, "max_iter": 5, "random_state": 0, "basis": "linear"}
PLAIN = {"max_iter": 5, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(N_ROWS, 3))


@pytest.fixture
def y(X):
    noise = np.random.default_rng(1).normal(size=N_ROWS)
    return X[:, 0] * (1 + np.tanh(X[:, 2])) - 0.5 * X[:, 1] + 0.3 * noise


@pytest.fixture
def counts(y):
    return np.round(np.exp(y))


def with_values(values, changes):
    out = np.array(values, dtype=float)
    for where, value in changes.items():
        out[where] = value
    return out


def in_blocks(X, y, weight=None, offset=None):
    def read():
        for begin in range(0, len(y), 15):
            part = slice(begin, begin + 15)
            rest = [None if v is None else v[part] for v in (weight, offset)]
            yield X[part], y[part], *rest

    return RowBlocks(read)


def same_fit(one, other, X):
    return np.array_equal(one.coef_, other.coef_) and np.array_equal(
        one.predict(X), other.predict(X)
    )


class TestSpans:
    @pytest.mark.parametrize(
        "est",
        [
            NIMORegressor(**PLAIN),
            NIMORegressor(basis="spline", **PLAIN),
            NIMORegressorCV(**SEARCH),
        ],
        ids=["plain", "spline", "search"],
    )
    def test_columns_that_no_float_can_span_are_refused_by_rows(self, X, y, est, capfd):
        huge = with_values(X, {(7, 1): 1.7e308, (9, 1): -1.7e308})
        message = r"'x1' of X reaches from -1.7e\+308 \(row 9\) to 1.7e\+308 \(row 7\)"
        with pytest.raises(ValueError, match=message):
            est.fit(huge, y)
        assert capfd.readouterr().err == ""  # LAPACK spoke there

    def test_targets_that_no_float_can_span_are_refused_by_rows(self, X, y):
        ends = {7: 1.7e308, 9: -1.7e308}
        with pytest.raises(ValueError, match=r"y reaches .*row 9.*row 7"):
            NIMORegressor(**PLAIN).fit(X, with_values(y, ends))
        with pytest.raises(ValueError, match=r"y - offset reaches .*row 7.*row 9"):
            NIMORegressor(**PLAIN).fit(X, y, offset=with_values(y, ends))

    def test_rows_without_weight_may_hold_anything(self, X, y):
        weight = with_values(np.ones(N_ROWS), {7: 0.0})
        huge = with_values(X, {(7, 1): 1.7e308, (9, 1): -1.7e308})
        est = NIMORegressor(**PLAIN).fit(huge, y, weight)
        assert np.isfinite(est.coef_).all()

    def test_half_the_span_can_be_fitted(self, X, y):
        huge = with_values(X, {(7, 1): 8e307, (9, 1): -8e307})
        est = NIMORegressorCV(**SEARCH).fit(huge, y)
        assert np.isfinite(est.predict(huge)).all()

    @pytest.mark.parametrize("what", ["X", "y"])
    def test_blocks_are_refused_by_column(self, X, y, what):
        ends = [1.7e308, -1.7e308]
        if what == "X":
            X[[7, 30], 1] = ends
        else:
            y[[7, 30]] = ends
        name = "Column 'x1' of X" if what == "X" else "y"
        with pytest.raises(ValueError, match=f"{name} reaches from -1.7e.308 to"):
            NIMORegressor(**PLAIN).fit(in_blocks(X, y))


class TestLinks:
    @pytest.mark.parametrize("search", [False, True])
    @pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])
    def test_offsets_worlds_apart_are_refused_soon(self, X, y, counts, family, search):
        offset = np.where(np.arange(N_ROWS) % 2, 1e3, -1e3)
        params = SEARCH if search else PLAIN
        if family == "binomial":
            make = NIMOClassifierCV if search else NIMOClassifier
            est, target = make(**params), (y > 0).astype(int)
        else:
            make = NIMORegressorCV if search else NIMORegressor
            est, target = make(family, **params), counts + 1
        message = r"offset reaches from -1000 \(row 0\) to 1000 \(row 1\).*link"
        begin = time.perf_counter()
        with pytest.raises(ValueError, match=message):
            est.fit(X, target, offset=offset)
        assert time.perf_counter() - begin < SOON

    def test_offsets_of_the_identity_link_may_be_worlds_apart(self, X, y):
        offset = np.where(np.arange(N_ROWS) % 2, 1e3, -1e3)
        est = NIMORegressor(**PLAIN)
        moved = est.fit(X, y + offset, offset=offset).predict(X, offset=0)
        assert moved == pytest.approx(est.fit(X, y).predict(X), abs=1e-9)

    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    def test_targets_worlds_apart_are_refused_by_rows(self, X, counts, family):
        target = with_values(counts + 1, {7: 1e200, 9: 1e-100})
        with pytest.raises(ValueError, match=r"log\(y\) reaches .*row 9.*row 7"):
            NIMORegressor(family, **PLAIN).fit(X, target)

    def test_a_huge_count_among_zeros_is_refused(self, X):
        target = with_values(np.zeros(N_ROWS), {7: 1e300})
        with pytest.raises(ValueError, match=r"log\(y\) reaches from 0 .*\(row 7\)"):
            NIMORegressor("poisson", **PLAIN).fit(X, target)

    def test_the_unit_of_counts_does_not_matter_beside_zeros(self, X, counts):
        assert (counts == 0).any()
        est = NIMORegressor("poisson", **PLAIN).fit(X, counts * 1e-200)
        assert np.isfinite(est.coef_).all()


class TestWeights:
    @pytest.mark.parametrize("unit", [2.0**-1060, 2.0**1000])
    @pytest.mark.parametrize("search", [False, True])
    def test_units_at_the_edge_change_nothing(self, X, y, unit, search):
        weight = np.random.default_rng(2).integers(1, 9, N_ROWS) / 8
        make, params = (NIMORegressorCV, SEARCH) if search else (NIMORegressor, PLAIN)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            extreme = make(**params).fit(X, y, weight * unit)
        assert same_fit(extreme, make(**params).fit(X, y, weight), X)

    @pytest.mark.parametrize("blocks", [False, True])
    def test_rows_that_cannot_count_are_left_out_with_a_warning(self, X, y, blocks):
        weight = np.where(np.arange(N_ROWS) < 30, 1.0, 1e-300)
        zeros = np.where(weight < 1, 0.0, 1.0)
        given = (in_blocks(X, y, weight),) if blocks else (X, y, weight)
        message = "10 of the rows weigh less than 2e-16"
        with pytest.warns(DataWarning, match=message) as caught:
            est = NIMORegressor(**PLAIN).fit(*given)
        if not blocks:  # in blocks the rows stay, without weight
            assert caught[0].filename == __file__
            assert same_fit(est, NIMORegressor(**PLAIN).fit(X, y, zeros), X)
        assert np.isfinite(est.coef_).all()

    def test_a_search_leaves_them_out_too(self, X, y):
        weight = np.where(np.arange(N_ROWS) < 30, 1e300, 1e-300)
        with pytest.warns(DataWarning, match="10 of the rows weigh"):
            est = NIMORegressorCV(**SEARCH).fit(X, y, weight)
        assert np.isfinite(est.predict(X)).all()

    @pytest.mark.parametrize("rest", [1e-10, 1e-20, 1e-300])
    @pytest.mark.parametrize("make", [NIMORegressorCV, NIMOClassifierCV])
    def test_a_row_that_carries_all_the_weight_is_refused_soon(self, X, y, rest, make):
        target = y if make is NIMORegressorCV else (y > 0).astype(int)
        weight = with_values(np.full(N_ROWS, rest), {7: 1.0})
        begin = time.perf_counter()
        with pytest.raises(ValueError, match=r"1 of 40 .*heaviest is row 7\).*units"):
            make(**SEARCH).fit(X, target, weight)
        assert time.perf_counter() - begin < SOON

    def test_copies_of_one_row_do_not_share_its_weight(self, X, y):
        many = np.r_[np.arange(N_ROWS), 7, 7, 7]
        weight = np.r_[np.full(N_ROWS, 1e-10), 1.0, 1.0, 1.0]
        with pytest.raises(ValueError, match="1 of 40 distinct rows carry all"):
            NIMORegressor(**PLAIN).fit(X[many], y[many], weight)

    @pytest.mark.slow
    @pytest.mark.parametrize("rest", [1e-9, 1e-15])
    def test_heavy_rows_of_one_class_are_fitted_soon(self, X, y, rest):
        target, heavy = (y > 0).astype(int), y > np.sort(y)[-4]
        weight = np.where(heavy, 1.0, rest)
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            est = NIMOClassifierCV(**SEARCH).fit(X, target, weight)
        assert time.process_time() - begin < SOON
        assert np.isfinite(est.decision_function(X)).all()

    def test_blocks_whose_weight_one_row_carries_are_refused(self, X, y):
        weight = with_values(np.full(N_ROWS, 1e-10), {7: 1.0})
        with pytest.raises(ValueError, match="1 of 40 .*rows carry all the weight"):
            NIMORegressor(**PLAIN).fit(in_blocks(X, y, weight))


class TestOtherNumbers:
    @pytest.mark.parametrize("what", ["X", "y", "sample_weight", "offset"])
    def test_long_doubles_beyond_floats_are_refused_by_row(self, X, y, what):
        if np.finfo(np.longdouble).max <= np.finfo(float).max:
            pytest.skip("long doubles are floats here")
        given = {"X": X, "y": y, "sample_weight": np.ones(N_ROWS), "offset": 0 * y}
        wide = given[what].astype(np.longdouble)
        wide[7] = np.longdouble(10) ** 400
        name = "Column 'x0' of X" if what == "X" else what
        message = f"^{name} holds a number beyond 1.8e308 at row 7.*larger units.$"
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            with pytest.raises(ValueError, match=message):
                NIMORegressor(**PLAIN).fit(**{**given, what: wide})

    def test_tensors_that_require_gradients_are_numbers(self, X, y):
        def tensor(values):
            return torch.tensor(values, requires_grad=True)

        weight, offset = np.abs(y) + 0.1, 0.1 * y
        plain = NIMORegressor(**PLAIN).fit(X, y, weight, offset)
        est = NIMORegressor(**PLAIN)
        est.fit(tensor(X), tensor(y), tensor(weight), tensor(offset))
        assert np.array_equal(est.coef_, plain.coef_)
        found = est.predict(tensor(X), offset=0)
        assert np.array_equal(found, plain.predict(X, offset=0))
        est.fit(in_blocks(tensor(X), tensor(y)))
        labels = (y > 0) * 1.0
        classes = NIMOClassifier(**PLAIN).fit(tensor(X), tensor(labels))
        assert same_fit(classes, NIMOClassifier(**PLAIN).fit(X, labels), X)

    @pytest.mark.parametrize("make", [NIMORegressor, NIMOClassifier])
    def test_equal_rows_are_refused_in_the_words_of_the_user(self, make):
        X, y = np.ones((20, 2)), np.tile([0, 1], 10)
        message = "X has 20 rows, but with y only 2 of them .* differ from each other"
        with pytest.raises(ValueError, match=message):
            make(**PLAIN).fit(X, y)
