"""Who bends whom, pair surfaces and correction curves."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sknimo.explain import (
    correction_curve,
    fit_gauge,
    interactions,
    local_values,
    pair_surface,
)
from sknimo.network import unpack


@pytest.fixture
def one_way(make_model):
    """Feature 0 alone is bent, by feature 2 alone; 1 is straight, 2 has no effect."""
    model = make_model(n_features=3, deaf=(2,))
    params = model.params.clone()
    unpack(model.spec, params).first[:, :, :2] = 0
    modulated = model.modulated.clone()
    modulated[:, 1] = False
    return replace(model, params=params, modulated=modulated)


def test_direction_is_seen(one_way, draw_table):
    table = draw_table(one_way)
    found = interactions(one_way, table, swap=fit_gauge(one_way, table))
    assert found.roles.labels == ("effect", "effect", "modifier")
    seen = found.directed > 0
    assert np.argwhere(seen).tolist() == [[0, 2]]
    assert found.strongest() == [("x0", "x2")]


def test_strength_of_a_one_way_pair_equals_its_bend(one_way, draw_table):
    # eta = x0 s(x2) + ...: the mixed derivative is the slope of s itself.
    table = draw_table(one_way)
    found = interactions(one_way, table)
    assert found.strength[0, 2] == pytest.approx(found.directed[0, 2], rel=1e-12)
    assert (np.diag(found.strength) == 0).all()


def test_strength_is_in_standard_deviations(make_model, draw_table):
    model = make_model()
    table = draw_table(model)
    raw = interactions(model, table)
    # Other units of a feature, the same model and rows.
    base = model.features.bases[1]
    wider = replace(base, reference=10 * base.reference, scale=10 * base.scale)
    bases = (model.features.bases[0], wider, *model.features.bases[2:])
    other = replace(
        model, features=replace(model.features, bases=bases, input_bases=())
    )
    moved = table.copy()
    moved[:, 1] *= 10
    found = interactions(other, moved)
    assert found.strength == pytest.approx(raw.strength, rel=1e-10)
    assert found.directed == pytest.approx(raw.directed, rel=1e-10)


def test_frame_names_rows_and_columns(fitted):
    found = fitted.est.interactions(fitted.X)
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["feature", *fitted.X.columns]
    assert (frame.iloc[:, 1:].to_numpy() == found.directed).all()
    symmetric = found.to_frame("strength").iloc[:, 1:].to_numpy()
    assert (symmetric == symmetric.T).all()
    with pytest.raises(ValueError, match="'directed', 'strength'"):
        found.to_frame("both")


def test_rows_are_capped_evenly(fitted):
    found = fitted.est.interactions(fitted.X, max_rows=40)
    assert found.n_rows == 40
    assert fitted.est.interactions(fitted.X, max_rows=None).n_rows == len(fitted.X)


def test_repr_names_the_strongest_pair(fitted_models):
    fitted = fitted_models["gaussian"]
    found = fitted.est.interactions(fitted.X)
    lines = repr(found).splitlines()
    assert " x ".join(found.strongest()[0]) in lines[2]
    assert max(map(len, lines)) <= 80
    straight = replace(fitted.model, modulated=fitted.model.modulated & False)
    assert "none" in repr(interactions(straight, fitted.table))


def test_pair_surface_is_zero_along_both_references(fitted):
    model = fitted.model
    reference = model.features.reference
    table = np.array([reference - 1, reference, reference + 1])
    found = pair_surface(model, "age", "dose", table=table)
    assert np.abs(found.surface[1]).max() <= 1e-12
    assert np.abs(found.surface[:, 1]).max() <= 1e-12
    # With all else at the reference a feature acts along a straight line.
    expected = model.base_value + fitted.est.coef_[0] * (found.grid_j - reference[0])
    assert found.eta[:, 1] == pytest.approx(expected, abs=1e-12)


def test_pair_surface_is_the_anchored_mixed_difference(make_model):
    model = make_model()
    found = pair_surface(model, 0, "x2", n_grid=5)
    reference = model.features.reference
    row = reference.copy()
    row[0], row[2] = found.grid_j[1], found.grid_k[3]
    local = local_values(model, row[None]).contributions[0]
    alone = (row - reference) * local_values(model, reference[None]).local_coef[0]
    expected = local[0] + local[2] - alone[0] - alone[2]
    assert found.surface[1, 3] == pytest.approx(expected, abs=1e-12)
    assert found.names == ("x0", "x2")
    assert found.surface.shape == (5, 5)


def test_grid_covers_the_rows_or_two_standard_deviations(fitted):
    est, X = fitted.est, fitted.X
    inside = est.pair_surface("age", "smoker", X=X)
    assert inside.grid_k.tolist() == [0.0, 1.0]
    assert inside.grid_j[0] == pytest.approx(X["age"].quantile(0.02))
    wide = est.pair_surface("age", "dose")
    assert wide.grid_j[-1] == pytest.approx(X["age"].mean() + 2 * X["age"].std(ddof=0))


def test_correction_curve_passes_through_the_coefficient(fitted):
    curve = fitted.est.correction_curve("dose", "age", X=fitted.X)
    reference = fitted.est.reference_[0]
    at = np.interp(reference, curve.grid, curve.local_coef)
    assert at == pytest.approx(curve.coef, abs=0.02 * abs(curve.coef) + 1e-3)
    assert curve.coef == fitted.est.coef_[1]
    assert (curve.feature, curve.modifier) == ("dose", "age")
    straight = correction_curve(fitted.model, "dose", "noise")
    assert len(straight.grid) == 50


def test_a_pair_needs_two_features_that_exist(fitted):
    est = fitted.est
    with pytest.raises(ValueError, match="two features"):
        est.pair_surface(1, 1)
    with pytest.raises(ValueError, match="own coefficient"):
        est.correction_curve("age", "age")
    with pytest.raises(KeyError, match="No feature 'salt'"):
        est.pair_surface("salt", "age")
    with pytest.raises(IndexError, match="5 features"):
        est.pair_surface(0, 7)
