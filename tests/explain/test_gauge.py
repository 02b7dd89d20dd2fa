"""The minimum-energy gauge is one split, the same from every start."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from sknimo import NIMORegressor, NIMORegressorCV
from sknimo.explain import (
    correction_curve,
    effects,
    explain,
    find_roles,
    fit_gauge,
    interactions,
    local_values,
    pair_surface,
)
from sknimo.explain._local import local_term_coef
from sknimo.network import unpack

# Everything the documentation calls invariant: rounding, squared by normal equations.
INVARIANT_TOL = 1e-8


def acting_pairs(model):
    acts = np.flatnonzero(find_roles(model).acts)
    return list(combinations(acts.tolist(), 2))


def report(model, table, method="min_energy"):
    """Every number that the documentation calls invariant."""
    swap = fit_gauge(model, table)
    found = explain(model, table, swap=swap, method=method)
    table_of = effects(model, table, swap=swap)
    pairs = interactions(model, table, swap=swap)
    return {
        "values": found.values,
        "local_coef": found.local_coef,
        "local_effect": found.local_effect,
        "base_value": found.base_value,
        "coef": table_of.coef,
        "coef_std": table_of.coef_std,
        "average_effect": table_of.average_effect,
        "effect_sd": table_of.effect_sd,
        "variance_share": table_of.variance_share,
        "bend": table_of.bend,
        "response_effect": table_of.response_effect,
        "directed": pairs.directed,
        "strength": pairs.strength,
        "surface": pair_surface(model, 0, 1).surface,
        "curve": correction_curve(model, 0, 1, swap=swap).local_coef,
    }


@pytest.mark.parametrize("method", ["min_energy", "integrated_gradients", "shapley"])
def test_reports_of_fitted_models_survive_a_random_swap(fitted, swap_products, method):
    model, table = fitted.model, fitted.table
    other = swap_products(model, acting_pairs(model))
    assert np.abs(other.eta(table) - model.eta(table)).max() <= 1e-12
    before, after = report(model, table, method), report(other, table, method)
    gaps = {name: np.abs(before[name] - after[name]).max() for name in before}
    assert max(gaps.values()) <= INVARIANT_TOL, gaps


def test_native_contributions_do_not_survive_the_same_swap(fitted, swap_products):
    model, table = fitted.model, fitted.table
    other = swap_products(model, acting_pairs(model))
    before, after = local_values(model, table), local_values(other, table)
    assert np.abs(before.contributions - after.contributions).max() > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_reports_of_random_models_survive_a_random_swap(
    make_model, draw_table, swap_products, seed
):
    model = make_model(n_features=5, n_members=2, seed=seed, deaf=(2,), idle=(4,))
    table = draw_table(model, n_rows=80)
    other = swap_products(model, acting_pairs(model), seed)
    before, after = report(model, table), report(other, table)
    gaps = {name: np.abs(before[name] - after[name]).max() for name in before}
    assert max(gaps.values()) <= INVARIANT_TOL, gaps


def test_gauge_survives_a_swap_between_terms_of_a_wider_basis(
    make_model, draw_table, swap_products
):
    model = make_model(n_features=3, curved=(1,))
    table = draw_table(model, n_rows=80)
    # Terms 1 and 2 belong to feature 1; both trade with terms 0 and 3.
    other = swap_products(model, [(0, 1), (0, 2), (1, 3), (2, 3)])
    before = explain(model, table, swap=fit_gauge(model, table))
    after = explain(other, table, swap=fit_gauge(other, table))
    assert np.abs(before.values - after.values).max() <= INVARIANT_TOL
    assert np.abs(before.local_coef - after.local_coef).max() <= INVARIANT_TOL


def test_a_swap_is_antisymmetric_and_keeps_the_function(fitted):
    model, table = fitted.model, fitted.table
    swap = fit_gauge(model, table)
    assert np.abs(swap + swap.T).max() <= 1e-15
    total = local_values(model, table, swap).contributions.sum(1)
    assert np.abs(total + model.base_value - model.eta(table)).max() <= 1e-10


def least_squares_split(model, table):
    """Nonlinear contributions of least energy, as a plain least-squares problem."""
    phi = model.features.terms(table)
    native = local_values(model, table).contributions - phi * model.term_coef
    pairs = list(combinations(range(4), 2))
    design = np.zeros((len(table), 4, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        design[:, i, column] = phi[:, i] * phi[:, j]
        design[:, j, column] = -phi[:, i] * phi[:, j]
    amount, *_ = np.linalg.lstsq(
        design.reshape(-1, len(pairs)), native.reshape(-1), rcond=None
    )
    return native - design @ amount


@pytest.mark.parametrize(("n_rows", "tol"), [(60, 0.1), (1000, 0.005)])
def test_gauge_minimises_the_energy_as_least_squares_does(
    make_model, draw_table, monkeypatch, n_rows, tol
):
    model = make_model(n_features=4)
    table = draw_table(model, n_rows=n_rows)
    straight = model.features.terms(table) * model.term_coef

    def found():
        swap = fit_gauge(model, table)
        return local_values(model, table, swap).contributions - straight

    expected = least_squares_split(model, table)
    # The ridge is a small part of it, the smaller the more rows there are.
    assert found() == pytest.approx(expected, abs=tol)
    monkeypatch.setattr("sknimo.explain._gauge.RIDGE", 0.0)
    assert found() == pytest.approx(expected, abs=1e-10)


def test_the_gauge_holds_on_rows_it_has_not_seen(make_mixed, draw_mixed):
    # As many products of terms as rows: least squares alone would fit the rows.
    model = make_mixed()
    few, fresh = draw_mixed(120, seed=3), draw_mixed(1000, seed=4)
    straight = model.features.per_feature(model.features.terms(fresh) * model.term_coef)

    def energy(swap):
        bent = local_values(model, fresh, swap).contributions - straight
        return (bent**2).sum(1).mean()

    assert energy(fit_gauge(model, few)) < 0.7 * energy(None)


def test_a_pure_product_is_shared_equally(make_model, draw_table, swap_products):
    model = make_model(n_features=3, size=0.0)  # the network bends nothing
    table = draw_table(model)
    other = swap_products(model, [(0, 1)], seed=3)
    # Channel 0 holds +a x0 x1 and channel 1 the same with a minus: nothing in total.
    assert fit_gauge(other, table) == pytest.approx(-other.swap.numpy(), abs=1e-12)


def test_gauge_never_invents_an_interaction(make_model, draw_table):
    model = make_model(n_features=5)
    # Only feature 4 is read, so no two of the others bend each other.
    first = model.first_layer
    params = model.params.clone()
    unpack(model.spec, params).first[:, :, :4] = 0
    model = replace(model, params=params)
    assert (model.first_layer[:, :, 4] == first[:, :, 4]).all()
    swap = fit_gauge(model, draw_table(model))
    assert (swap[:4, :4] == 0).all()
    assert (swap[4, :4] != 0).all()


def test_a_swap_between_strangers_is_undone_exactly(
    make_model, draw_table, swap_products
):
    # Features 0 and 1 do not bend each other; a swap makes it look as if they did.
    model = make_model(n_features=3)
    params = model.params.clone()
    unpack(model.spec, params).first[:, :, :2] = 0
    model = replace(model, params=params)
    table = draw_table(model)
    other = swap_products(model, [(0, 1)])
    before, after = report(model, table), report(other, table)
    assert before["directed"][0, 1] == after["directed"][0, 1] == 0
    gaps = {name: np.abs(before[name] - after[name]).max() for name in before}
    assert max(gaps.values()) <= INVARIANT_TOL, gaps


def test_gauge_of_a_straight_model_is_zero(make_model, draw_table):
    model = make_model()
    model.modulated[:] = False
    assert (fit_gauge(model, draw_table(model)) == 0).all()


def test_rows_are_explained_alike_alone_and_together(fitted):
    est, X = fitted.est, fitted.X
    together = est.explain(X).values[:3]
    alone = np.concatenate([est.explain(X.iloc[[i]]).values for i in range(3)])
    assert np.abs(together - alone).max() <= 1e-12


def test_weights_equal_repetition(make_model, draw_table):
    model = make_model()
    table = draw_table(model, n_rows=30)
    counts = np.arange(30) % 3 + 1
    by_weight = fit_gauge(model, table, counts)
    # The anchors are quantiles of the rows: only the first step may differ.
    by_repetition = fit_gauge(model, np.repeat(table, counts, axis=0))
    assert by_weight == pytest.approx(by_repetition, abs=1e-10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_products_that_no_row_has_do_not_grow_where_nobody_looks():
    """Two rows have the middle value, none of them with the flag."""
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=150), rng.random(150) < 0.2, rng.choice([0.0, 2.0], 150)]
    )
    X[:2, 1:] = 0.0, 1.0
    y = X[:, 0] * (1 + X[:, 2]) + X[:, 1] * (X[:, 2] - 1)
    options = {"basis": {2: "ramps"}, "input_scaling": "ramps", "reference": {2: 0.0}}
    est = NIMORegressor(tol=1.0, patience=3, random_state=0, **options).fit(X, y)
    model, at = est.model_, np.tile(est.reference_, (3, 1))
    at[:, 2] = 0.0, 1.0, 2.0
    swap = fit_gauge(model, X)
    native = local_term_coef(model, at)
    moved = native - model.features.terms(at) @ swap.T
    assert np.abs(moved[:, 1]).max() < 3 * np.abs(native[:, 1]).max()


@pytest.mark.slow
def test_the_gauge_invents_no_interaction_of_a_feature_that_hardly_bends():
    """Curves have hundreds of products, which could explain rows by chance."""
    rng = np.random.default_rng(2)
    columns = {"a": rng.normal(size=400), "b": rng.normal(size=400)}
    columns |= {"u": rng.uniform(-2, 2, 400), "noise": rng.normal(size=400)}
    X = pd.DataFrame(columns)
    y = 2 * X["a"] * (1 + 0.8 * np.tanh(X["b"])) + 1.5 * X["u"] ** 2
    y += rng.normal(size=400)
    est = NIMORegressorCV(n_starts=1, random_state=0).fit(X, y)
    found = {m: est.explain(X, method=m).values for m in ("min_energy", "shapley")}
    sizes = {name: values.std(axis=0) for name, values in found.items()}
    assert 0 < sizes["min_energy"][3] < 2 * sizes["shapley"][3]  # five times before
    directed = est.interactions(X).directed
    assert directed[0, 1] > 3 * directed[0, 3]
