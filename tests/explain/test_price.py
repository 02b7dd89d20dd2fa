"""Deviances with corrections switched off, against other libraries."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch

from sknimo.explain import describe_training, price_of_nonlinearity
from sknimo.explain._local import local_term_coef

SM_FAMILY = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
}
# A ridge of 1e-8 on standardised columns moves a deviance in the 12th digit.
RTOL = 1e-8


def fit_glm(fitted, design, **options):
    family = SM_FAMILY[fitted.model.family.name]
    target = fitted.est._read_target(fitted.y).values
    return sm.GLM(target, sm.add_constant(design), family=family, **options).fit(
        tol=1e-12, tol_criterion="params", maxiter=200
    )


def test_nested_glm_is_the_one_of_statsmodels(fitted):
    found = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    acts = fitted.est.coef_ != 0
    oracle = fit_glm(fitted, fitted.table[:, acts])
    assert found.glm_deviance == pytest.approx(oracle.deviance, rel=RTOL)
    assert found.null_deviance == pytest.approx(oracle.null_deviance, rel=RTOL)


def test_each_price_is_a_glm_on_the_modulated_columns(fitted):
    found = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    native = fitted.est.explain(fitted.X, method="native")
    coef = fitted.est.coef_
    columns = native.values / np.where(coef == 0, 1, coef)
    straight = fitted.table - fitted.est.reference_
    acts = np.flatnonzero(coef)
    assert found.refit_deviance == pytest.approx(
        fit_glm(fitted, columns[:, acts]).deviance, rel=RTOL
    )
    for j in acts:
        design = columns.copy()
        design[:, j] = straight[:, j]
        oracle = fit_glm(fitted, design[:, acts])
        assert found.without[j] == pytest.approx(oracle.deviance, rel=RTOL)


def test_deviance_is_that_of_the_predictions(fitted):
    found = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    family = SM_FAMILY[fitted.model.family.name]
    target = fitted.est._read_target(fitted.y).values
    expected = family.deviance(target, fitted.model.mean(fitted.table))
    assert found.deviance == pytest.approx(expected, rel=RTOL)
    assert found.explained == pytest.approx(fitted.est.score(fitted.X, fitted.y)) or (
        fitted.model.family.name == "binomial"
    )


def test_solving_again_never_raises_the_deviance(fitted):
    found = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    assert found.refit_deviance <= found.deviance * (1 + 1e-12)


def test_the_only_correction_is_worth_all_that_the_network_gains(fitted_models):
    fitted = fitted_models["gaussian"]
    modulated = torch.zeros_like(fitted.model.modulated)
    modulated[:, 1] = True
    model = replace(fitted.model, modulated=modulated)
    found = price_of_nonlinearity(model, fitted.table, fitted.y)
    assert found.without[1] == pytest.approx(found.glm_deviance, rel=1e-10)
    assert found.share[1] == pytest.approx(1, rel=1e-8)
    assert (found.price[[0, 2, 3, 4]] == 0).all()


def test_weights_equal_repetition_and_offsets_count(fitted_models):
    fitted = fitted_models["poisson"]
    counts = np.arange(len(fitted.X)) % 3
    offset = np.linspace(-0.5, 0.5, len(fitted.X))
    found = fitted.est.price_of_nonlinearity(
        fitted.X, fitted.y, sample_weight=counts, offset=offset
    )
    rows = np.repeat(np.arange(len(fitted.X)), counts)
    again = fitted.est.price_of_nonlinearity(
        fitted.X.iloc[rows], fitted.y[rows], offset=offset[rows]
    )
    for name in ("null_deviance", "glm_deviance", "deviance", "refit_deviance"):
        assert getattr(found, name) == pytest.approx(getattr(again, name), rel=1e-9)
    acts = fitted.est.coef_ != 0
    oracle = fit_glm(fitted, fitted.table[:, acts], offset=offset, freq_weights=counts)
    assert found.glm_deviance == pytest.approx(oracle.deviance, rel=RTOL)


def test_members_are_solved_each_on_its_own_design(make_model, draw_table):
    model = make_model(n_members=2)
    table = draw_table(model)
    y = model.eta(table)
    found = price_of_nonlinearity(model, table, y)
    assert found.deviance == pytest.approx(0, abs=1e-20)
    assert found.glm_deviance > 0.1
    assert (found.without > 0).all()


def test_training_facts_agree_with_the_price(fitted):
    target = fitted.est._read_target(fitted.y).values
    facts = describe_training(fitted.model, fitted.table, target)
    price = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    for name in ("deviance", "null_deviance", "glm_deviance", "explained"):
        assert getattr(facts, name) == pytest.approx(getattr(price, name), rel=1e-12)
    assert facts.n_samples == len(fitted.X)


def test_frame_and_repr_name_every_priced_feature(fitted_models):
    fitted = fitted_models["gaussian"]
    found = fitted.est.price_of_nonlinearity(fitted.X, fitted.y)
    frame = found.to_frame()
    assert frame["price"].to_numpy() == pytest.approx(found.price)
    text = repr(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "without g of dose" in text


# Every kind of feature


def least_squares(design, y):
    """Residual sum of squares of an unpenalised fit with intercept."""
    design = np.column_stack([np.ones(len(y)), design])
    coef, *_ = np.linalg.lstsq(design, y, rcond=None)
    return float(((y - design @ coef) ** 2).sum())


def dummies(table, names):
    """Terms of a mixed table by hand; the spline in powers between its knots."""
    frame = pd.DataFrame(table, columns=list(names))
    columns = [frame["age"], frame["dose"], frame["dose"] ** 2, frame["smoker"]]
    for name in ("sex", "region"):
        columns += [frame[name] == code for code in np.unique(frame[name])[1:]]
    for name in ("blood", "twin", "bmi", "income"):
        columns.append(frame[name].isna())
    for name in ("blood", "twin"):
        codes = np.unique(frame[name].dropna())[1:]
        columns += [frame[name] == code for code in codes]
    columns.append(frame["income"].fillna(0.0))
    return np.column_stack([np.asarray(column, dtype=float) for column in columns])


def test_price_of_a_mixed_model_is_that_of_its_columns(make_mixed, draw_mixed):
    model = make_mixed(n_members=1)
    features = model.features
    table = draw_mixed(150)
    rng = np.random.default_rng(0)
    y = model.eta(table) + 0.3 * rng.normal(size=len(table))
    found = price_of_nonlinearity(model, table, y)
    terms, owner = features.terms(table), features.term_feature
    spline = terms[:, owner == features.names.index("bmi")][:, :-1]
    nested = np.column_stack([dummies(table, features.names), spline])
    assert nested.shape[1] == terms.shape[1]
    assert found.glm_deviance == pytest.approx(least_squares(nested, y), rel=1e-5)
    bent = terms * local_term_coef(model, table) / model.term_coef
    assert found.refit_deviance == pytest.approx(least_squares(bent, y), rel=1e-5)
    for name in ("region", "bmi", "income"):
        j = features.names.index(name)
        design = np.where(owner == j, terms, bent)
        assert found.without[j] == pytest.approx(least_squares(design, y), rel=1e-5)
    for name in ("site", "constant"):
        assert found.price[features.names.index(name)] == 0
