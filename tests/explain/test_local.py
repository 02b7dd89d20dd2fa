"""Contributions, local effects and derivatives against finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from sknimo.explain import find_roles, local_values
from sknimo.explain._local import (
    local_jacobian,
    local_term_coef,
    mixed_derivatives,
    split_members,
)
from sknimo.features import FeatureMap, Linear
from sknimo.network import init_params, make_spec

SUM_TOL = 1e-10  # float64: only the order of summation differs
SLOPE_TOL = 1e-6  # five-point differences of a smooth function, step 1e-3 sd


def slopes_by_differences(function, table, scale):
    """Five-point central differences, one feature at a time, (n, p)."""
    columns = []
    for j in range(table.shape[1]):
        step = np.zeros(table.shape[1])
        step[j] = 1e-3 * scale[j]
        if step[j] == 0:
            columns.append(np.zeros(len(table)))
            continue
        near = function(table + step) - function(table - step)
        far = function(table + 2 * step) - function(table - 2 * step)
        columns.append((8 * near - far) / (12 * step[j]))
    return np.stack(columns, axis=-1)


def test_contributions_of_fitted_models_sum_to_eta(fitted):
    found = fitted.est.explain(fitted.X)
    eta = fitted.model.eta(fitted.table)
    assert np.abs(found.eta - eta).max() <= SUM_TOL
    assert np.abs(found.base_value + found.values.sum(1) - eta).max() <= SUM_TOL


def test_local_effect_of_fitted_models_equals_finite_differences(fitted):
    found = fitted.est.explain(fitted.X).local_effect
    model = fitted.model
    numeric = slopes_by_differences(model.eta, fitted.table, model.features.scale)
    assert np.abs(found - numeric).max() <= SLOPE_TOL


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("curved", [(), (1,)])
def test_local_effect_of_random_models_equals_finite_differences(
    make_model, draw_table, n_members, curved
):
    model = make_model(n_members=n_members, curved=curved, idle=(2,), deaf=(3,))
    table = draw_table(model)
    found = local_values(model, table)
    numeric = slopes_by_differences(model.eta, table, model.features.scale)
    assert np.abs(found.local_effect - numeric).max() <= SLOPE_TOL
    total = found.contributions.sum(1) + model.base_value
    assert np.abs(total - model.eta(table)).max() <= SUM_TOL


def test_local_effect_at_the_reference_is_the_coefficient(fitted):
    model = fitted.model
    reference = model.features.reference[None]
    found = local_values(model, reference).local_effect[0]
    assert found == pytest.approx(fitted.est.coef_, abs=1e-13)


def test_local_effect_differs_from_local_coefficient_away_from_it(fitted_models):
    found = fitted_models["gaussian"].est.explain(fitted_models["gaussian"].X)
    assert np.abs(found.local_effect - found.local_coef).max() > 0.01


def test_contributions_are_distance_times_local_coefficient(fitted):
    found = fitted.est.explain(fitted.X)
    product = (found.data - found.reference) * found.local_coef
    assert np.abs(found.values - product).max() <= SUM_TOL


@pytest.mark.parametrize("curved", [(), (1,)])
def test_jacobian_of_local_coefficients_equals_finite_differences(
    make_model, draw_table, curved
):
    model = make_model(n_members=2, curved=curved)
    table = draw_table(model, n_rows=20)
    scale = model.features.scale
    numeric = slopes_by_differences(lambda X: local_term_coef(model, X), table, scale)
    assert np.abs(local_jacobian(model, table) - numeric).max() <= SLOPE_TOL


@pytest.mark.parametrize("curved", [(), (1,)])
def test_mixed_derivatives_equal_differences_of_the_local_effect(
    make_model, draw_table, curved
):
    model = make_model(n_members=2, curved=curved, deaf=(3,))
    table = draw_table(model, n_rows=20)
    share = np.full(20, 1 / 20)

    def effect(X):
        return local_values(model, X).local_effect

    numeric = slopes_by_differences(effect, table, model.features.scale)  # (n, p, p)
    expected = np.einsum("n,njk->jk", share, np.abs(numeric))
    np.fill_diagonal(expected, 0)
    found = mixed_derivatives(model, table, share)
    assert np.abs(found - expected).max() <= SLOPE_TOL
    assert np.array_equal(found, found.T)


def test_a_constant_column_has_no_effect(make_model, draw_table):
    model = make_model(n_features=3)
    bases = (*model.features.bases[:2], Linear(1.0, 0.0))
    features = FeatureMap(model.features.names, bases)
    spec = make_spec([0, 1], 3, (6, 5))
    params = init_params(spec, [0])
    model = replace(
        model, features=features, spec=spec, params=params, coef=model.coef[:, :2]
    )
    found = local_values(model, np.ones((4, 3)))
    assert (found.local_effect[:, 2] == 0).all()
    assert (found.contributions[:, 2] == 0).all()
    assert find_roles(model).labels[2] == "neither"


def test_results_do_not_depend_on_the_block_size(make_model, draw_table, monkeypatch):
    model = make_model(n_members=2)
    table = draw_table(model)
    whole = local_values(model, table)
    monkeypatch.setattr("sknimo.model.BLOCK_BYTES", 5000)
    assert len(list(model.blocks(len(table)))) > 3
    parts = local_values(model, table)
    for name in ("contributions", "local_coef", "local_effect"):
        gap = np.abs(getattr(whole, name) - getattr(parts, name)).max()
        assert gap <= SUM_TOL


def test_roles_are_read_off_exact_zeros(make_model):
    model = make_model(n_features=4, idle=(1,), deaf=(2,))
    assert find_roles(model).labels == ("both", "neither", "modifier", "both")
    straight = make_model(n_features=2)
    straight.modulated[:] = False
    assert find_roles(straight).labels == ("effect", "effect")


def test_the_only_bent_feature_does_not_modify(make_model):
    model = make_model(n_features=3)
    model.modulated[:] = False
    model.modulated[:, 0] = True
    assert find_roles(model).labels == ("effect", "both", "both")


def test_members_average_to_the_model(make_model, draw_table):
    model = make_model(n_members=3)
    table = draw_table(model)
    each = [local_values(member, table) for member in split_members(model)]
    mean = np.mean([found.contributions for found in each], axis=0)
    whole = local_values(model, table).contributions
    assert np.abs(whole - mean).max() <= SUM_TOL
