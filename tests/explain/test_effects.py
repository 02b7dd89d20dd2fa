"""One row per feature: known answers and identities."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sknimo.explain import effects, fit_gauge, local_values


def test_variance_shares_sum_to_one(fitted):
    found = fitted.est.effects(fitted.X)
    assert found.variance_share.sum() == pytest.approx(1, abs=1e-10)


def test_coefficients_are_those_of_the_estimator(fitted):
    found = fitted.est.effects(fitted.X)
    assert (found.coef == fitted.est.coef_).all()
    assert found.coef_std == pytest.approx(fitted.est.coef_ * fitted.X.std(ddof=0))
    assert (found.reference == fitted.est.reference_).all()


def test_average_effect_is_the_mean_slope_of_a_numeric_feature(fitted):
    found = fitted.est.effects(fitted.X)
    local = fitted.est.explain(fitted.X).local_effect
    assert found.average_effect[:3] == pytest.approx(local.mean(0)[:3], abs=1e-12)
    assert found.effect_sd[:3] == pytest.approx(local.std(0)[:3], abs=1e-12)
    assert found.contrast.tolist() == [False, False, False, True, False]


def test_average_effect_of_a_binary_feature_is_a_contrast(fitted):
    found = fitted.est.effects(fitted.X)
    eta = [
        fitted.model.eta(fitted.X.assign(smoker=level).to_numpy())
        for level in (0.0, 1.0)
    ]
    assert found.average_effect[3] == pytest.approx((eta[1] - eta[0]).mean(), abs=1e-12)


def test_a_straight_model_has_plain_effects(make_model, draw_table):
    model = make_model()
    model.modulated[:] = False
    table = draw_table(model)
    found = effects(model, table)
    assert found.average_effect == pytest.approx(found.coef, abs=1e-12)
    assert found.bend == pytest.approx(np.zeros(4), abs=1e-12)
    assert found.nonlinearity == pytest.approx(np.ones(4), abs=1e-12)
    assert found.modifiers == ((),) * 4
    assert found.role == ("effect",) * 4
    linear = (table - model.features.reference) * found.coef
    total = linear.sum(1)
    share = [np.cov(column, total)[0, 1] for column in linear.T] / total.var(ddof=1)
    assert found.variance_share == pytest.approx(share, abs=1e-10)


def test_bends_that_change_no_effect_are_not_named(make_model, draw_table):
    model = make_model()
    found = effects(model, draw_table(model))
    assert any(found.modifiers)
    weak = replace(found, directed=1e-3 * found.size.max() * (found.directed > 0))
    assert not any(weak.modifiers)


def test_bend_is_the_varying_share_of_the_effect(make_model, draw_table):
    model = make_model(n_members=2)
    table = draw_table(model)
    effect = local_values(model, table).local_effect
    expected = effect.var(0) / (effect**2).mean(0)
    assert effects(model, table).bend == pytest.approx(expected, abs=1e-12)


def test_paper_nonlinearity_is_the_mean_size_of_one_plus_g(make_model, draw_table):
    model = make_model(deaf=(3,))
    table = draw_table(model)
    coef = effects(model, table).coef
    native = local_values(model, table).local_coef
    found = effects(model, table).nonlinearity
    expected = np.abs(native / np.where(coef == 0, 1, coef)).mean(0)
    assert found[:3] == pytest.approx(expected[:3], rel=1e-12)
    assert np.isnan(found[3])


def test_integer_weights_equal_repetition(fitted):
    counts = np.arange(len(fitted.X)) % 3
    weighted = fitted.est.effects(fitted.X, sample_weight=counts, max_rows=None)
    repeated = fitted.X.loc[fitted.X.index.repeat(counts)]
    again = fitted.est.effects(repeated, max_rows=None)
    for name in ("average_effect", "effect_sd", "variance_share", "bend", "directed"):
        assert getattr(weighted, name) == pytest.approx(getattr(again, name), abs=1e-10)


def test_ratios_stand_beside_link_effects(fitted_models):
    expected = {
        "gaussian": None,
        "binomial": "odds_ratio",
        "poisson": "rate_ratio",
        "gamma": "mean_ratio",
    }
    for family, column in expected.items():
        found = fitted_models[family].est.effects(fitted_models[family].X)
        frame = found.to_frame()
        if column is None:
            assert found.ratio is None
            assert not [name for name in frame.columns if "ratio" in name]
        else:
            assert (frame[column] == np.exp(frame["coef"])).all()
            assert (frame[f"average_{column}"] == np.exp(frame["average_effect"])).all()
            assert "response_effect" in frame.columns


def test_response_effect_averages_the_slope_of_the_mean(fitted):
    found = fitted.est.effects(fitted.X)
    slope = fitted.est.explain(fitted.X).response_effect.mean(0)
    assert found.response_effect[:3] == pytest.approx(slope[:3], abs=1e-12)


def test_modifiers_name_what_was_built_in(fitted_models):
    fitted = fitted_models["gaussian"]
    found = fitted.est.effects(fitted.X)
    assert found.modifiers[1][0] == "age"
    assert found.role[1] in ("effect", "both")


def test_frame_has_one_row_per_feature_in_the_input_library(fitted_models):
    fitted = fitted_models["gaussian"]
    frame = fitted.est.effects(fitted.X).to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["feature"].tolist() == list(fitted.X.columns)
    other = fitted.est.effects(pl.from_pandas(fitted.X)).to_frame()
    assert isinstance(other, pl.DataFrame)
    assert other["coef"].to_list() == frame["coef"].tolist()


def test_repr_is_a_table_of_80_columns(fitted):
    text = repr(fitted.est.effects(fitted.X))
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in fitted.X.columns)


def test_effects_of_a_member_average_have_the_mean_coefficient(make_model, draw_table):
    model = make_model(n_members=3)
    table = draw_table(model)
    found = effects(model, table, swap=fit_gauge(model, table))
    per_unit = model.coef.numpy() / model.features.scale
    assert found.coef == pytest.approx(per_unit.mean(0), abs=1e-12)
