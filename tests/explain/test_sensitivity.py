"""Coefficients beside the effects at other points."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sknimo.explain import local_values, reference_sensitivity
from sknimo.explain._frames import Origin

TOL = 1e-10


def test_points_are_mean_median_and_quartiles_of_known_values(mixed, mixed_table):
    found = reference_sensitivity(mixed, mixed_table)
    assert found.points == ("mean", "median", "lower_quartile", "upper_quartile")
    for j in (0, 1, 2, 3):
        known = mixed_table[~np.isnan(mixed_table[:, j]), j]
        assert found.values[0, j] == pytest.approx(known.mean())
        # Any value between the neighbours of a quantile will do.
        for at, share in ((1, 0.5), (2, 0.25), (3, 0.75)):
            below, above = (
                np.quantile(known, share, method=method)
                for method in ("lower", "higher")
            )
            assert below - 1e-9 <= found.values[at, j] <= above + 1e-9
    # Codes and columns of two values have no quartiles: the most frequent value.
    for j in range(4, 9):
        known = mixed_table[~np.isnan(mixed_table[:, j]), j].astype(int)
        assert (found.values[:, j] == np.bincount(known).argmax()).all()


def test_effects_are_slopes_and_contrasts_at_each_point(mixed, mixed_table):
    found = reference_sensitivity(mixed, mixed_table)
    features = mixed.features
    assert found.names == features.coef_names
    slopes = local_values(mixed, found.values).local_effect
    for name, row in zip(found.names, found.effects, strict=True):
        feature, _, label = name.partition("[")
        j = features.names.index(feature)
        if not label:
            assert row == pytest.approx(slopes[:, j], abs=TOL)
            continue
        before, after = found.values.copy(), found.values.copy()
        if label == "missing]":
            after[:, j] = np.nan
            if features.levels(j) is not None:
                before[:, j] = features.reference[j]
        else:
            levels = [f"{level}]" for level in features.levels(j)]
            after[:, j] = levels.index(label)
            before[:, j] = features.reference[j]
        expected = mixed.eta(after) - mixed.eta(before)
        assert row == pytest.approx(expected, abs=TOL)


def test_a_straight_model_does_not_care(make_model, draw_table):
    model = make_model()
    model.modulated[:] = False
    found = reference_sensitivity(model, draw_table(model))
    assert found.largest_change == pytest.approx(np.zeros(4), abs=1e-12)
    assert not found.changes_sign.any()


def test_a_curve_cares_even_without_a_network(mixed, mixed_table):
    straight = replace(mixed, modulated=mixed.modulated & False)
    found = reference_sensitivity(straight, mixed_table)
    change = dict(zip(found.names, found.largest_change, strict=True))
    assert change["dose"] > 0.01
    assert change["age"] == pytest.approx(0, abs=1e-10)
    assert change["region[south]"] == pytest.approx(0, abs=1e-10)


def test_largest_change_is_relative_to_the_coefficient(mixed, mixed_table):
    found = reference_sensitivity(mixed, mixed_table)
    known = np.abs(found.coef) > 0
    expected = np.abs(found.effects[known] / found.coef[known, None] - 1).max(1)
    assert found.largest_change[known] == pytest.approx(expected, rel=1e-9)
    zero = replace(found, coef=np.zeros_like(found.coef))
    moved = np.abs(found.effects).max(1) > 0
    assert (zero.largest_change == np.where(moved, np.inf, 0)).all()
    flipped = replace(found, coef=-found.effects[:, 0])
    assert (flipped.changes_sign == (found.effects[:, 0] != 0)).all()


def test_weights_equal_repetition(mixed, mixed_table):
    counts = np.arange(len(mixed_table)) % 3
    weighted = reference_sensitivity(mixed, mixed_table, weight=counts)
    repeated = reference_sensitivity(mixed, np.repeat(mixed_table, counts, axis=0))
    assert weighted.values == pytest.approx(repeated.values, abs=1e-9)
    assert weighted.effects == pytest.approx(repeated.effects, abs=1e-9)


def test_it_becomes_a_frame_and_a_page(mixed, mixed_table):
    found = reference_sensitivity(mixed, mixed_table)
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["name"].tolist() == list(mixed.features.coef_names)
    assert (frame["upper_quartile"] == found.effects[:, 3]).all()
    polars = reference_sensitivity(mixed, mixed_table, origin=Origin("polars"))
    assert isinstance(polars.to_frame(), pl.DataFrame)
    lines = repr(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 2 + len(found.names)
