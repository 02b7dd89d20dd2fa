"""Effect curves, surfaces and correction curves of every kind of feature."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sknimo.explain import correction_curve, effect_curve, fit_gauge, pair_surface
from sknimo.explain._frames import Origin
from sknimo.explain._surfaces import feature_grid

TOL = 1e-10


def at_reference(model, j, values):
    """Linear predictor along one feature, all else at the reference, less the base."""
    rows = np.tile(model.features.reference, (len(values), 1))
    rows[:, j] = values
    return model.eta(rows) - model.eta(model.features.reference[None])


def test_effect_curves_are_what_the_model_says(mixed, mixed_table):
    for j, name in enumerate(mixed.features.names):
        for table in (None, mixed_table):
            found = effect_curve(mixed, name, table=table)
            expected = at_reference(mixed, j, found.value)
            assert np.abs(found.effect - expected).max() <= TOL
            if mixed.features.admits_missing[j]:
                assert found.missing == pytest.approx(
                    at_reference(mixed, j, [np.nan])[0], abs=TOL
                )
            else:
                assert found.missing is None


def test_slopes_of_effect_curves_are_their_derivatives(mixed):
    for name in ("age", "dose", "bmi", "income"):
        j = mixed.features.names.index(name)
        found = effect_curve(mixed, name)
        step = 1e-4 * mixed.features.scale[j]
        rise = at_reference(mixed, j, found.value + step)
        fall = at_reference(mixed, j, found.value - step)
        assert found.slope == pytest.approx((rise - fall) / (2 * step), abs=1e-6)
        coef = mixed.features.feature_coef(mixed.term_coef)[j]
        assert found.coef == pytest.approx(coef, abs=TOL)


def test_levels_stand_by_their_names(mixed):
    found = effect_curve(mixed, "region")
    assert found.kind == "category"
    assert found.labels == ("north", "east <&> $x$", "south", "two\nlines")
    assert found.value.tolist() == [0, 1, 2, 3]
    assert found.effect[int(found.reference)] == 0
    assert np.isnan(found.slope).all() and np.isnan(found.coef)
    assert found.reference_text == found.labels[int(found.reference)]


def test_curves_become_frames_with_missing_last(make_mixed):
    model = make_mixed(family="binomial")
    frame = effect_curve(model, "blood").to_frame()
    assert frame["level"].tolist()[:3] == [0, 1, 2]
    assert np.isnan(frame["level"].iloc[3])
    assert frame["odds_ratio"].tolist() == pytest.approx(np.exp(frame["effect"]))
    numeric = effect_curve(model, "bmi", n_grid=7)
    frame = numeric.to_frame()
    assert list(frame.columns) == ["value", "effect", "slope", "odds_ratio"]
    assert len(frame) == 8
    assert frame["effect"].iloc[-1] == numeric.missing
    assert frame["value"].isna().tolist() == [False] * 7 + [True]
    assert numeric.ratio == pytest.approx(np.exp(numeric.effect))
    assert effect_curve(make_mixed(), "bmi").ratio is None


def test_frames_are_polars_where_the_rows_were(mixed):
    frame = effect_curve(mixed, "region", origin=Origin("polars")).to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame["level"].to_list() == list(mixed.features.levels(6))
    assert isinstance(effect_curve(mixed, "age").to_frame(), pd.DataFrame)


def test_grids_are_levels_known_values_or_the_range_of_training(mixed, mixed_table):
    features = mixed.features

    def grid(name, table=None, n_grid=9):
        return feature_grid(features, features.names.index(name), n_grid, table)

    assert grid("sex").tolist() == [0, 1]
    assert grid("blood", mixed_table).tolist() == [0, 1, 2]
    assert grid("smoker", mixed_table).tolist() == [0, 1]
    known = mixed_table[:, 2][~np.isnan(mixed_table[:, 2])]
    inside = np.quantile(known, [0.02, 0.98])
    assert grid("bmi", mixed_table)[[0, -1]] == pytest.approx(inside)
    # Two standard deviations below the mean income there is nobody.
    assert grid("income")[0] == features.low[3] > 0
    only_missing = mixed_table.copy()
    only_missing[:, 2] = np.nan
    assert (grid("bmi", only_missing) == grid("bmi")).all()


def test_surface_of_a_level_and_a_number_carries_the_labels(mixed, mixed_table):
    found = pair_surface(mixed, "bmi", "region", table=mixed_table, n_grid=9)
    assert found.surface.shape == (9, 4)
    assert found.levels_j is None
    assert found.levels_k == mixed.features.levels(6)
    assert np.abs(found.surface[:, int(found.reference[1])]).max() <= TOL


def test_correction_curves_follow_every_coefficient(mixed, mixed_table):
    features = mixed.features
    swap = fit_gauge(mixed, mixed_table)
    found = correction_curve(mixed, "region", "sex", swap=swap)
    own = [name for name in features.coef_names if name.startswith("region[")]
    assert [f"region[{label}]" for label in found.coef_labels] == own
    assert found.all_coef.shape == (2, 3)
    assert np.isnan(found.coef) and np.isnan(found.local_coef).all()
    assert found.modifier_levels == ("man", "woman")
    at = int(found.reference)
    begin = features.coef_names.index(own[0])
    coef = features.coefficients(mixed.term_coef)[begin : begin + 3]
    assert found.all_coef[at] == pytest.approx(coef, abs=TOL)
    # Contrast of contrasts: what a level of region does for the other sex.
    other = features.reference.copy()
    other[5] = 1 - at
    native = correction_curve(mixed, "region", "sex").all_coef[1 - at]
    rows = np.tile(other, (4, 1))
    rows[:, 6] = range(4)
    own_channel = mixed.contributions(rows)[:, 6]
    expected = np.delete(own_channel, int(features.reference[6]))
    assert native == pytest.approx(expected, abs=TOL)


def test_correction_curve_of_a_curve_is_its_slope_at_the_reference(mixed, mixed_table):
    found = correction_curve(mixed, "bmi", "age", table=mixed_table)
    assert found.coef_labels == ("", "missing")
    assert (found.local_coef == found.all_coef[:, 0]).all()
    j, k = 2, 0
    reference, scale = mixed.features.reference, mixed.features.scale
    step = 1e-3 * scale[j]
    rows = np.tile(reference, (len(found.grid), 1))
    rows[:, k] = found.grid
    up, down = rows.copy(), rows.copy()
    up[:, j] += step
    down[:, j] -= step
    slope = mixed.contributions(up)[:, j] - mixed.contributions(down)[:, j]
    assert found.local_coef == pytest.approx(slope / (2 * step), abs=1e-5)


def test_a_single_level_has_an_empty_correction(mixed):
    found = correction_curve(mixed, "site", "age")
    assert found.all_coef.shape == (50, 0)
    assert (found.local_coef == 0).all() and found.coef == 0
    assert effect_curve(mixed, "site").effect.tolist() == [0.0]
    assert effect_curve(mixed, "constant").effect.tolist() == [0.0] * 101
