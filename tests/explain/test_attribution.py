"""Integrated gradients and Shapley values: axioms, known answers, and shap."""

from math import comb

import numpy as np
import pytest
import shap
import torch

from sknimo.explain import explain, integrated_gradients, shapley
from sknimo.families import get_family
from sknimo.features import FeatureMap, Linear

SUM_TOL = 1e-10


class Monomial:
    """`eta = x0 ** a * x1 ** b * ...` as something that explains like a model."""

    def __init__(self, *powers):
        self.powers = torch.tensor(powers, dtype=torch.float64)
        p = len(powers)
        names = tuple(f"x{j}" for j in range(p))
        self.features = FeatureMap(names, (Linear(0.0, 1.0),) * p)
        self.family = get_family("gaussian")
        self.base_value = 0.0
        self.n_members = 1
        self.coef = torch.ones(1, p, dtype=torch.float64)
        self.device = self.coef.device
        self.intercept = torch.zeros(1)
        self.params = torch.zeros(1, 1, dtype=torch.float64)
        self.modulated = torch.ones(1, p, dtype=torch.bool)

    def local_term_coef(self, terms, inputs):
        rest = self.powers.clone()
        rest[0] -= 1  # everything stands in the channel of the first feature
        first = (inputs**rest).prod(1, keepdim=True)
        return torch.cat([first, torch.zeros_like(inputs[:, 1:])], dim=1)

    def blocks(self, n_rows):
        yield slice(0, n_rows)

    def eta(self, table):
        return (torch.as_tensor(table) ** self.powers).prod(1).numpy()


@pytest.fixture
def monomial(monkeypatch):
    def make(*powers):
        model = Monomial(*powers)
        everyone = type("Everyone", (), {"relevant": np.ones(len(powers), dtype=bool)})
        monkeypatch.setattr(
            "sknimo.explain._attribution.find_roles", lambda model: everyone
        )
        return model

    return make


def test_integrated_gradients_share_a_monomial_by_exponents(monomial):
    model = monomial(1, 2, 3)
    table = np.random.default_rng(0).uniform(0.5, 2, size=(10, 3))
    found = integrated_gradients(model, table).values
    expected = model.eta(table)[:, None] * np.array([1, 2, 3]) / 6
    assert found == pytest.approx(expected, rel=1e-10)


def test_shapley_values_share_a_monomial_equally(monomial):
    model = monomial(1, 2, 3)
    table = np.random.default_rng(0).uniform(0.5, 2, size=(10, 3))
    found = shapley(model, table)
    expected = np.repeat(model.eta(table)[:, None] / 3, 3, axis=1)
    assert found.values == pytest.approx(expected, rel=1e-12)
    assert found.note == "exact Shapley values, 8 coalitions"


@pytest.mark.parametrize("method", ["integrated_gradients", "shapley"])
def test_contributions_of_every_method_sum_to_eta(fitted, method):
    found = fitted.est.explain(fitted.X, method=method)
    assert np.abs(found.eta - fitted.model.eta(fitted.table)).max() <= SUM_TOL


@pytest.mark.parametrize("method", ["integrated_gradients", "shapley"])
def test_features_without_a_role_get_exactly_nothing(make_model, draw_table, method):
    model = make_model(n_features=5, idle=(1, 3))
    found = explain(model, draw_table(model), method=method)
    assert (found.values[:, [1, 3]] == 0).all()


@pytest.mark.parametrize("method", ["integrated_gradients", "shapley"])
def test_a_modifier_without_coefficient_gets_its_share(make_model, draw_table, method):
    model = make_model(n_features=3, deaf=(2,))
    found = explain(model, draw_table(model), method=method)
    assert found.values[:, 2].std() > 0.05
    assert (explain(model, draw_table(model)).values[:, 2] == 0).all()


def test_shapley_values_equal_those_of_shap(fitted):
    model = fitted.model
    reference = model.features.reference[None]
    rows = fitted.table[:20]
    masker = shap.maskers.Independent(reference)
    oracle = shap.explainers.Exact(model.eta, masker)(rows)
    found = shapley(model, rows)
    assert np.abs(found.values - oracle.values).max() <= SUM_TOL
    assert oracle.base_values == pytest.approx(np.full(20, model.base_value))


def test_sampled_shapley_values_lie_within_their_error(make_model, draw_table):
    model = make_model(n_features=6, n_members=2)
    table = draw_table(model)
    exact = shapley(model, table)
    sampled = shapley(model, table, max_exact=3, n_permutations=200)
    assert exact.error is None
    assert sampled.note == (
        "sampled Shapley values, 200 permutations in antithetic pairs"
    )
    distance = (sampled.values - exact.values) / sampled.error
    assert np.sqrt((distance**2).mean()) == pytest.approx(1, abs=0.35)
    assert np.abs(distance).max() < 5  # 300 draws from about a standard normal
    total = sampled.values.sum(1) + model.base_value
    assert np.abs(total - model.eta(table)).max() <= SUM_TOL


def test_one_antithetic_pair_is_exact_for_products_of_two(monomial):
    model = monomial(1, 1)
    table = np.random.default_rng(0).normal(size=(10, 2))
    found = shapley(model, table, max_exact=0, n_permutations=2)
    assert found.values == pytest.approx(np.tile(model.eta(table)[:, None] / 2, 2))


def test_sampling_is_repeatable_and_seeded(make_model, draw_table):
    model = make_model(n_features=5)
    table = draw_table(model, n_rows=5)
    first, again, other = (
        shapley(model, table, max_exact=2, n_permutations=4, seed=seed).values
        for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_coalition_weights_count_every_order_once():
    n_players = 7
    weight = [1 / (n_players * comb(n_players - 1, s)) for s in range(n_players)]
    total = sum(weight[s] * comb(n_players - 1, s) for s in range(n_players))
    assert total == pytest.approx(1)


def test_rows_are_enumerated_in_blocks(make_model, draw_table, monkeypatch):
    model = make_model()
    table = draw_table(model)
    whole = shapley(model, table).values
    monkeypatch.setattr("sknimo.explain._attribution.MAX_EVALUATIONS", 50)
    assert np.abs(whole - shapley(model, table).values).max() <= 1e-12
