"""What a fitted model says about itself is true to the last digits.

The identities hold for every member and for averages of members: contributions sum to
the linear predictor, its gradient at the reference is the coefficient, each feature
acts along a straight line there, and no feature reaches its own modulation.

Shapes: M members, n rows, p features, q terms, r inputs.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import sknimo.model
from sknimo import NIMOClassifier, NIMORegressor
from sknimo.families import get_family
from sknimo.features import FeatureMap, Linear, Polynomial
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack

IDENTITY = {"float64": 1e-10, "float32": 1e-5}  # the bars of the issue
ROUNDING = 1e-13  # float64: only the order of operations differs
# Products of other shapes sum in another order, in the precision of the network.
BLOCK_RTOL = {"float64": 1e-13, "float32": 1e-6}
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


def fit_estimator(family, dtype="float64", random_state=0):
    options = {"alpha": 1e-3, "network_alpha": 0.1, "max_iter": 80, "dtype": dtype}
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
    return fit_estimator(family, dtype), IDENTITY[dtype]


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
    def test_the_network_bends_something(self, fitted):
        est, _ = fitted
        X = draw("gaussian")[0]
        local = local_coef(est.model_, X)
        assert np.ptp(local, axis=0).max() > 0.1 * np.abs(est.model_.term_coef).max()

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
        bound = BLOCK_RTOL[est.dtype] * np.abs(whole).max()
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
