"""What a fitted model says about itself is true to the last digits.

The identities hold for every member and for averages of members: contributions sum to
the linear predictor, its gradient at the reference is the coefficient, each feature
acts along a straight line there, and no feature reaches its own modulation.

Shapes: M members, n rows, p features, q terms, r inputs.
"""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch

import sknimo.model
from sknimo import NIMOClassifier, NIMORegressor
from sknimo.families import get_family
from sknimo.features import (
    Clipped,
    FeatureMap,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    Ramps,
    RankGauss,
    Spline,
)
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack

IDENTITY = {"float64": 1e-10, "float32": 1e-5}  # the bars of the issue
ROUNDING = 1e-13  # float64: only the order of operations differs
# Products of other shapes sum in another order.
BLOCK_RTOL = 1e-13
N_ROWS = 120
CONSTANT = 2  # a column without effect, so that terms and features differ

FAMILIES = ("gaussian", "binomial", "poisson", "gamma")


def draw(family, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal([0.0, 5.0, 7.0, -3.0], [1.0, 20.0, 0.0, 0.1], (N_ROWS, 4))
    z = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1)
    eta = 0.3 + 0.8 * z[:, 0] * (1 + np.tanh(2 * z[:, 1])) - 0.5 * z[:, 3]
    if family == "gaussian":
        return X, eta + 0.1 * rng.normal(size=N_ROWS)
    if family == "binomial":
        return X, (rng.random(N_ROWS) < 1 / (1 + np.exp(-2 * eta))).astype(int)
    if family == "poisson":
        return X, rng.poisson(np.exp(eta)).astype(float)
    return X, rng.gamma(5.0, np.exp(eta) / 5.0)


@cache
def fit_estimator(family, dtype="float64", random_state=0):
    options = {"alpha": 1e-3, "network_alpha": 0.1, "max_iter": 40, "dtype": dtype}
    if family == "binomial":
        est = NIMOClassifier(random_state=random_state, **options)
    else:
        est = NIMORegressor(family, random_state=random_state, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant column, and a short training
        return est.fit(*draw(family))


@pytest.fixture(
    scope="module", params=[(f, d) for f in FAMILIES for d in IDENTITY], ids=" ".join
)
def fitted(request):
    """Estimator and the tolerance of its identities."""
    family, dtype = request.param
    est = fit_estimator(family, dtype)
    local = local_coef(est.model_, draw("gaussian")[0])
    # Or every identity would hold of a straight line.
    assert np.ptp(local, axis=0).max() > 0.1 * np.abs(est.model_.term_coef).max()
    return est, IDENTITY[dtype]


@pytest.fixture(scope="module")
def model():
    return fit_estimator("gaussian").model_


@pytest.fixture(scope="module")
def pair():
    """A model of two members and the members on their own."""
    first, second = (fit_estimator("gaussian", random_state=s).model_ for s in (0, 1))
    return join(first, second), first, second


def join(first, second):
    return FittedModel(
        features=first.features,
        family=first.family,
        spec=first.spec,
        coef=torch.cat([first.coef, second.coef]),
        intercept=torch.cat([first.intercept, second.intercept]),
        params=torch.cat([first.params, second.params]),
        modulated=torch.cat([first.modulated, second.modulated]),
    )


def local_coef(model, table):
    terms = torch.as_tensor(model.features.terms(table))
    inputs = torch.as_tensor(model.features.inputs(table))
    with torch.no_grad():
        return model.local_term_coef(terms, inputs).numpy()


def gradient_at_reference(model):
    """Gradient of eta in the table, by autograd through terms and inputs, (p,)."""
    features = model.features
    reference = torch.as_tensor(features.reference)
    x = reference.clone().requires_grad_(True)
    owner = torch.as_tensor(features.term_feature)
    slopes = torch.as_tensor(features.term_slopes(features.reference[None])[0])
    terms = ((x - reference)[owner] * slopes).unsqueeze(0)
    eta = model.base_value + (terms * model.local_term_coef(terms, terms)).sum()
    (gradient,) = torch.autograd.grad(eta, x)
    return gradient.numpy()


class TestIdentities:
    def test_contributions_and_base_value_sum_to_eta(self, fitted):
        est, tol = fitted
        X = draw("gaussian", seed=5)[0]
        total = est.intercept_ + est.model_.contributions(X).sum(axis=1)
        assert total == pytest.approx(est.model_.eta(X), abs=tol, rel=tol)

    def test_eta_leads_to_the_predictions(self, fitted):
        est, tol = fitted
        X = draw("gaussian", seed=5)[0]
        mean = est.model_.family.mean(torch.as_tensor(est.model_.eta(X))).numpy()
        is_regressor = isinstance(est, NIMORegressor)
        predicted = est.predict(X) if is_regressor else est.predict_proba(X)[:, 1]
        assert predicted == pytest.approx(mean, rel=tol)
        assert est.model_.mean(X) == pytest.approx(mean, rel=tol)

    def test_gradient_at_the_reference_is_the_coefficient(self, fitted):
        est, tol = fitted
        gradient = gradient_at_reference(est.model_)
        assert gradient == pytest.approx(est.coef_, abs=tol, rel=tol)

    def test_finite_differences_agree_with_the_coefficient(self, fitted):
        est, tol = fitted
        reference = est.reference_
        # Along an axis through the reference the model is a line: any step will do.
        step = np.where(est.coef_ != 0, np.abs(reference) + 1.0, 1.0)
        up = est.model_.eta(reference + np.diag(step))
        down = est.model_.eta(reference - np.diag(step))
        slope = (up - down) / (2 * step)
        assert slope == pytest.approx(est.coef_, abs=tol, rel=tol)

    def test_eta_at_the_reference_is_the_intercept(self, fitted):
        est, _ = fitted
        assert est.model_.eta(est.reference_[None, :])[0] == est.intercept_

    @pytest.mark.parametrize("feature", range(4))
    def test_with_the_others_at_the_reference_a_feature_is_a_straight_line(
        self, fitted, feature
    ):
        est, _ = fitted
        model = est.model_
        table = np.tile(est.reference_, (41, 1))
        spread = 1.0 if feature == CONSTANT else draw("gaussian")[0][:, feature].std()
        table[:, feature] += np.linspace(-50, 50, 41) * spread
        line = est.coef_[feature] * (table[:, feature] - est.reference_[feature])
        rise = model.eta(table) - est.intercept_
        assert rise == pytest.approx(line, abs=ROUNDING * np.abs(line).max(initial=1))
        terms = np.flatnonzero(model.features.term_feature == feature)
        slopes = local_coef(model, table)[:, terms]
        assert np.array_equal(slopes, np.tile(model.term_coef[terms], (41, 1)))


class TestMask:
    def test_a_feature_never_reaches_its_own_modulation(self, fitted):
        est, _ = fitted
        X, _ = draw("gaussian", seed=5)
        before = local_coef(est.model_, X)
        rng = np.random.default_rng(6)
        for column, feature in enumerate(est.model_.features.term_feature):
            changed = X.copy()
            changed[:, feature] += 100 * rng.normal(size=N_ROWS)
            after = local_coef(est.model_, changed)
            assert np.array_equal(after[:, column], before[:, column])

    def test_but_it_does_reach_others(self, model):
        X, _ = draw("gaussian", seed=5)
        changed = X.copy()
        changed[:, 1] += 20.0
        assert not np.array_equal(local_coef(model, changed), local_coef(model, X))

    def test_a_constant_column_reaches_nothing(self, fitted):
        est, _ = fitted
        X, _ = draw("gaussian", seed=5)
        changed = X.copy()
        changed[:, CONSTANT] = -1e6
        assert np.array_equal(est.model_.eta(changed), est.model_.eta(X))
        assert est.coef_[CONSTANT] == 0
        assert not est.model_.contributions(changed)[:, CONSTANT].any()


class TestGroups:
    """A feature with several columns: one modulation, blind to all of them."""

    @pytest.fixture
    def grouped(self):
        bases = (
            Polynomial(1.0, 1.0, 1.0),
            Linear(0.0, 2.0),
            Polynomial(-1.0, 1.0, 1.0),
            Linear(3.0, 1.0),
        )
        features = FeatureMap(("a", "b", "c", "d"), bases)
        spec = make_spec(features.input_feature, 4, (6, 5))
        params = init_params(spec, [0, 1])
        generator = torch.Generator().manual_seed(2)
        out = unpack(spec, params).out
        out.copy_(torch.randn(out.shape, generator=generator))
        coef = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        return FittedModel(
            features=features,
            family=get_family("gaussian"),
            spec=spec,
            coef=coef,
            intercept=torch.tensor([1.0, 2.0], dtype=torch.float64),
            params=params,
            modulated=torch.tensor([[True] * 4, [True, False, True, True]]),
        )

    def test_no_column_of_a_group_reaches_its_modulation(self, grouped):
        table = np.random.default_rng(0).normal(size=(20, 4))
        before = local_coef(grouped, table)
        for feature in range(4):
            changed = table.copy()
            changed[:, feature] += 3.0
            after = local_coef(grouped, changed)
            own = grouped.features.term_feature == feature
            assert np.array_equal(after[:, own], before[:, own])
            assert not np.array_equal(after[:, ~own], before[:, ~own])

    def test_gradient_of_a_modulation_in_its_own_inputs_is_exactly_zero(self, grouped):
        owner = torch.as_tensor(grouped.features.term_feature)
        inputs = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
        local = grouped.local_term_coef(torch.ones(3, 6, dtype=torch.float64), inputs)
        for column in range(6):
            (gradient,) = torch.autograd.grad(
                local[:, column].sum(), inputs, retain_graph=True
            )
            assert not gradient[:, owner == owner[column]].any()
            assert gradient[:, owner != owner[column]].all()

    def test_identities_hold_for_groups(self, grouped):
        table = np.random.default_rng(0).normal(size=(20, 4))
        total = grouped.base_value + grouped.contributions(table).sum(axis=1)
        assert total == pytest.approx(grouped.eta(table), abs=ROUNDING)
        slope = grouped.features.coefficients(grouped.term_coef)
        step = 1e-6 * np.eye(4)
        at = grouped.features.reference
        rise = grouped.eta(at + step) - grouped.eta(at - step)
        # Central differences of a smooth function: step**2 and rounding / step.
        assert rise / 2e-6 == pytest.approx(slope, abs=1e-8)

    def test_input_norms_cover_all_columns_of_a_group(self, grouped):
        first = unpack(grouped.spec, grouped.params).first.numpy()
        owner = grouped.features.input_feature
        expected = [
            np.mean([np.linalg.norm(member[:, owner == j]) for member in first])
            for j in range(4)
        ]
        assert grouped.input_norms == pytest.approx(expected, rel=ROUNDING)


class TestMembers:
    def test_coefficients_and_predictions_are_means_over_members(self, pair):
        both, first, second = pair
        X, _ = draw("gaussian", seed=5)
        assert both.n_members == 2
        assert not np.array_equal(first.term_coef, second.term_coef)
        coef = (first.term_coef + second.term_coef) / 2
        assert both.term_coef == pytest.approx(coef, rel=ROUNDING)
        base = (first.base_value + second.base_value) / 2
        assert both.base_value == pytest.approx(base, rel=ROUNDING)
        eta = (first.eta(X) + second.eta(X)) / 2
        assert both.eta(X) == pytest.approx(eta, abs=ROUNDING)

    def test_the_average_keeps_the_identities(self, pair):
        both, _, _ = pair
        X, _ = draw("gaussian", seed=5)
        coef = both.features.coefficients(both.term_coef)
        tol = IDENTITY["float64"]
        assert gradient_at_reference(both) == pytest.approx(coef, abs=tol, rel=tol)
        total = both.base_value + both.contributions(X).sum(axis=1)
        assert total == pytest.approx(both.eta(X), abs=tol)

    def test_a_member_that_bends_nothing_counts_as_linear(self, pair):
        _, first, second = pair
        straight = replace(second, modulated=torch.zeros_like(second.modulated))
        X, _ = draw("gaussian", seed=5)
        line = straight.base_value + straight.features.terms(X) @ straight.term_coef
        assert straight.eta(X) == pytest.approx(line, abs=ROUNDING)
        eta = (first.eta(X) + line) / 2
        assert join(first, straight).eta(X) == pytest.approx(eta, abs=ROUNDING)

    def test_the_network_does_not_touch_features_that_it_does_not_bend(self, model):
        modulated = torch.zeros_like(model.modulated)
        modulated[:, 0] = True
        X, _ = draw("gaussian", seed=5)
        local = local_coef(replace(model, modulated=modulated), X)
        assert np.array_equal(local[:, 1:], np.tile(model.term_coef[1:], (N_ROWS, 1)))
        assert local[:, 0] == pytest.approx(local_coef(model, X)[:, 0], rel=ROUNDING)


class TestPrediction:
    def test_the_size_of_row_blocks_does_not_change_predictions(
        self, fitted, monkeypatch
    ):
        est, _ = fitted
        X, _ = draw("gaussian", seed=5)
        whole = est.model_.eta(X)
        monkeypatch.setattr(sknimo.model, "BLOCK_BYTES", 7 * 8 * 4 * 32)
        assert len(list(est.model_.blocks(N_ROWS))) > 10
        bound = BLOCK_RTOL * np.abs(whole).max()
        assert est.model_.eta(X) == pytest.approx(whole, abs=bound)

    def test_row_blocks_cover_every_row_once(self, model, monkeypatch):
        monkeypatch.setattr(sknimo.model, "BLOCK_BYTES", 1)
        rows = np.concatenate([np.arange(50)[block] for block in model.blocks(50)])
        assert rows.tolist() == list(range(50))
        assert list(model.blocks(0)) == []

    def test_an_offset_is_added_to_eta(self, model):
        X, _ = draw("gaussian", seed=5)
        offset = np.linspace(-1, 1, N_ROWS)
        assert np.array_equal(model.eta(X, offset), model.eta(X) + offset)

    def test_an_input_with_zero_norm_modulates_nothing(self, model):
        weights = model.params.clone()
        unpack(model.spec, weights).first[:, :, 1] = 0.0
        deaf = replace(model, params=weights)
        feature = model.spec.input_feature[1]
        assert deaf.input_norms[feature] == 0
        X, _ = draw("gaussian", seed=5)
        changed = X.copy()
        changed[:, feature] += 100.0
        assert np.array_equal(local_coef(deaf, changed), local_coef(deaf, X))

    def test_without_live_inputs_the_model_is_linear(self, model):
        weights = model.params.clone()
        unpack(model.spec, weights).first.zero_()
        deaf = replace(model, params=weights)
        assert not deaf.input_norms.any()
        X, _ = draw("gaussian", seed=5)
        local = local_coef(deaf, X)
        assert np.array_equal(local, np.tile(deaf.term_coef, (N_ROWS, 1)))

    def test_input_norms_are_those_of_the_first_layer(self, fitted):
        est, tol = fitted
        model = est.model_
        first = unpack(model.spec, model.params).first[0].double().numpy()
        expected = np.zeros(4)
        expected[list(model.spec.input_feature)] = np.linalg.norm(first, axis=0)
        assert model.input_norms == pytest.approx(expected, rel=tol)
        assert model.input_norms[CONSTANT] == 0


FAST_RTOL = 1e-12  # predictions sum in another order than contributions
N_KINDS = 8


def every_kind():
    """One feature of each kind; some inputs are not the terms."""
    spline = Spline(0.2, 1.5, np.array([-1.0, 0.0, 0.5, 1.0]), np.eye(3) + 0.1)
    points = np.linspace(-2, 2, 9)
    scores = RankGauss(0.1, points, np.sinh(points))
    bases = (
        Linear(1.0, 2.0),
        Linear(1e8, 2.0, residue=3e-9),
        Linear(3.0, 0.0),
        Polynomial(0.5, 1.0, 2.0),
        spline,
        Levels(("a", "b", "c", "d"), 1, 0.4),
        OrMissing(Linear(0.0, 1.0), 0.3),
        Linear(0.1, 0.7),
    )
    clipped = Clipped(bases[0], -1.0, 2.5)
    inputs = (clipped, *bases[1:7], scores)
    return FeatureMap(tuple("abcdefgh"), bases, inputs)


def draw_every_kind(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_rows, N_KINDS)) * 1.5
    table[:, 1] += 1e8
    table[:, 5] = rng.integers(0, 4, n_rows)
    table[rng.random(n_rows) < 0.2, 6] = np.nan
    return table


def plain_lines(p):
    names = tuple(f"x{j}" for j in range(p))
    return FeatureMap(names, tuple(Linear(0.1 * j, 1.0 + j / p) for j in range(p)))


def many_pieces(p):
    """Features that own sixteen inputs each, and a line that owns one."""
    lines = plain_lines(p + 1)
    edges = np.linspace(-2, 2, 16)
    ramps = [Ramps(line.reference, line.scale, edges) for line in lines.bases[1:]]
    return replace(lines, bases=(lines.bases[0], *ramps), input_bases=())


def random_model(
    features, seed=0, n_members=3, hidden=(6, 5), family=None, own_out=False
):
    """Members with supports of their own, and weights large enough to bend."""
    p, q = features.n_features, len(features.term_feature)
    spec = make_spec(features.input_feature, p, hidden, own_out=own_out)
    generator = torch.Generator().manual_seed(seed)
    params = 2 * init_params(spec, range(seed, seed + n_members))
    weights = unpack(spec, params)
    weights.out.copy_(torch.randn(weights.out.shape, generator=generator))
    coef = torch.randn(n_members, q, generator=generator, dtype=torch.float64)
    draws = torch.rand(3, n_members, max(p, q), generator=generator)
    coef[draws[0, :, :q] < 0.3] = 0
    dead = draws[1, :, : len(features.input_feature)] < 0.3
    weights.first.masked_fill_(dead.unsqueeze(1), 0.0)
    return FittedModel(
        features=features,
        family=get_family(family or "gaussian"),
        spec=spec,
        coef=coef,
        intercept=torch.randn(n_members, generator=generator, dtype=torch.float64),
        params=params,
        modulated=draws[2, :, :p] < 0.7,
    )


def slow_eta(model, table):
    """The oracle: every contribution worked out, then summed."""
    return model.base_value + model.term_contributions(table).sum(axis=1)


def assert_fast_is_slow(model, table):
    slow, fast = slow_eta(model, table), model.eta(table)
    assert fast.shape == slow.shape and fast.dtype == np.float64
    size = np.abs(slow).max(initial=1.0)
    assert np.abs(fast - slow).max(initial=0) <= FAST_RTOL * size


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class TestFastPath:
    """Predictions skip the contributions and equal their sum all the same."""

    @pytest.mark.parametrize("family", FAMILIES)
    def test_means_follow(self, family):
        model = random_model(every_kind(), 3, family=family)
        table, offset = draw_every_kind(50), np.linspace(-1, 1, 50)
        eta = torch.as_tensor(slow_eta(model, table) / 20)
        small = replace(model, coef=model.coef / 20, intercept=model.intercept / 20)
        mean = small.family.mean(eta + torch.as_tensor(offset)).numpy()
        assert small.mean(table, offset) == pytest.approx(mean, rel=1e-10)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("p", [1, 2, 40, 150])
    @pytest.mark.parametrize("hidden", [(4, 7), (16, 16)])
    def test_any_number_of_features(self, p, hidden, dtype):
        model = random_model(plain_lines(p), p, hidden=hidden)
        model = replace(model, params=model.params.to(dtype))
        table = np.random.default_rng(p).normal(size=(200, p))
        assert_fast_is_slow(model, table)

    @pytest.mark.parametrize("features", [plain_lines(40), many_pieces(8)])
    def test_features_with_outputs_of_their_own(self, features):
        model = random_model(features, own_out=True)
        table = np.random.default_rng(0).normal(size=(200, features.n_features))
        assert_fast_is_slow(model, table)
        one = replace(model, spec=replace(model.spec, code=model.spec.code[::-1]))
        assert np.abs(one.eta(table) - model.eta(table)).max() > 0.1

    def test_wide_models_share_the_inputs_of_other_tiles(self):
        model = random_model(plain_lines(150), 1)
        sharing = [member.shared is not None for member in compiled(model).bends]
        narrow = random_model(plain_lines(20), 1)
        apart = [member.shared is None for member in compiled(narrow).bends]
        assert all(sharing) and all(apart)

    @pytest.mark.parametrize("p", [8, 40])
    @pytest.mark.parametrize("seed", range(3))
    def test_features_with_many_inputs_get_the_sum_of_the_others(self, p, seed):
        model = random_model(many_pieces(p), seed)
        assert all(member.apart for member in compiled(model).bends)
        table = np.random.default_rng(p).normal(size=(700, p + 1))
        assert_fast_is_slow(model, table)
        table[:, 3] *= 1e6
        assert_fast_is_slow(model, table)

    @pytest.mark.parametrize("p", [5, 150])
    def test_distant_values_do_not_reach_their_own_modulation(self, p):
        # A product corrected by subtraction would lose six digits here.
        model = random_model(plain_lines(p), 2)
        table = np.random.default_rng(0).normal(size=(40, p))
        table[:, 3] *= 1e6
        assert_fast_is_slow(model, table)

    def test_without_rows_there_are_no_predictions(self):
        model = random_model(every_kind())
        assert model.eta(np.empty((0, N_KINDS))).shape == (0,)
        assert model.mean(np.empty((0, N_KINDS)), np.empty(0)).shape == (0,)

    @pytest.mark.parametrize("what", ["coef", "modulated", "params"])
    def test_without_active_features_the_model_is_a_line(self, what):
        model = random_model(every_kind(), 4)
        bare = replace(model, **{what: torch.zeros_like(getattr(model, what))})
        table = draw_every_kind(30)
        line = bare.base_value + bare.features.terms(table) @ bare.term_coef
        assert bare.eta(table) == pytest.approx(line, rel=1e-13)
        assert compiled(bare).bends == ()

    def test_a_column_that_the_model_does_not_use_is_not_read(self):
        model = random_model(plain_lines(6), 5)
        weights, coef = model.params.clone(), model.coef.clone()
        unpack(model.spec, weights).first[:, :, 2] = 0.0
        coef[:, 2] = 0.0
        table = np.random.default_rng(0).normal(size=(10, 6))
        unused = replace(model, params=weights, coef=coef)
        before = unused.eta(table)
        table[:, 2] = np.nan
        assert np.array_equal(unused.eta(table), before)

    def test_an_input_that_only_its_own_feature_would_see_bends_nothing(self):
        model = random_model(plain_lines(4), 6)
        weights = model.params.clone()
        unpack(model.spec, weights).first[:, :, 1:] = 0.0
        unpack(model.spec, weights).first[:, :, 0] = 1.0
        everywhere = torch.ones_like(model.modulated)
        alone = replace(model, params=weights, modulated=everywhere)
        table = np.random.default_rng(0).normal(size=(30, 4))
        assert_fast_is_slow(alone, table)
        bent = {int(t.terms.start) for m in compiled(alone).bends for t in m.tiles}
        assert 0 not in bent

    def test_predictions_do_not_depend_on_the_number_of_threads(self, two_threads):
        model = random_model(every_kind(), 7)
        table = draw_every_kind(20_000)
        both = model.eta(table)
        torch.set_num_threads(1)
        assert np.array_equal(model.eta(table), both)

    def test_threads_that_predict_at_once_get_the_same(self, two_threads):
        model = random_model(every_kind(), 8)
        tables = [draw_every_kind(5000, seed) for seed in range(6)]
        alone = [replace(model).eta(table) for table in tables]
        with ThreadPoolExecutor(6) as pool:  # the model is compiled in the race
            together = list(pool.map(model.eta, tables * 3))
        for found, expected in zip(together, alone * 3, strict=True):
            assert np.array_equal(found, expected)
        assert torch.get_num_threads() == 2

    @pytest.mark.parametrize("block", [7, 100, 3000])
    def test_parts_of_whole_blocks_equal_the_whole(self, block, monkeypatch):
        monkeypatch.setattr(sknimo.model, "BLOCK_ROWS", block)
        model = random_model(every_kind(), 9)
        table = draw_every_kind(2 * block + 5)
        parts = [model.eta(table[rows]) for rows in model.blocks(len(table))]
        assert np.array_equal(np.concatenate(parts), model.eta(table))

    def test_any_layout_of_the_table_will_do(self):
        model = random_model(plain_lines(5), 10)
        table = np.random.default_rng(0).integers(-3, 4, size=(50, 5))
        expected = model.eta(table.astype(float))
        for same in (table, np.asfortranarray(table), table.astype(np.float32)):
            assert np.array_equal(model.eta(same), expected)

    def test_what_was_compiled_is_neither_copied_nor_pickled(self):
        model = random_model(every_kind(), 11)
        table, size = draw_every_kind(20), len(pickle.dumps(model))
        expected = model.eta(table)
        assert len(pickle.dumps(model)) == size
        names = [field.name for field in fields(model)]
        assert "_predictors" not in names
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert not hasattr(other, "_predictors")
            assert np.array_equal(other.eta(table), expected)

    def test_bases_need_only_be_equal_to_be_read_once(self):
        model = random_model(every_kind(), 14)
        twin = replace(model.features, input_bases=every_kind().input_bases)
        again = replace(model, features=twin)
        table = draw_every_kind(50)
        assert np.array_equal(again.eta(table), model.eta(table))
        source = compiled(again).columns.source
        assert np.array_equal(source, compiled(model).columns.source)

    def test_a_changed_model_is_compiled_anew(self):
        model = random_model(every_kind(), 12)
        table = draw_every_kind(20)
        before = model.eta(table)
        changed = replace(model, params=model.params * 1.5)
        assert not np.allclose(changed.eta(table), before)
        assert_fast_is_slow(changed, table)

    def test_where_there_is_no_gpu_the_cpu_predicts(self, monkeypatch):
        est = fit_estimator("gaussian")
        X, _ = draw("gaussian", seed=5)
        expected = est.predict(X)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert np.array_equal(est.set_params(device="cuda").predict(X), expected)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    @pytest.mark.parametrize("n_rows", [1, 1000])
    def test_a_gpu_predicts_the_same(self, n_rows, monkeypatch):
        monkeypatch.setattr("sknimo.prediction.GPU_ROWS", 256)
        for model in (random_model(every_kind(), 13), random_model(plain_lines(150))):
            p = model.features.n_features
            table = draw_every_kind(n_rows) if p == N_KINDS else np.ones((n_rows, p))
            found = model.eta(table, device=torch.device("cuda"))
            assert found == pytest.approx(slow_eta(model, table), rel=1e-12)


def compiled(model):
    model.eta(np.zeros((1, model.features.n_features)))
    return model._predictors[torch.device("cpu")]
