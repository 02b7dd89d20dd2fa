"""Every kind of feature: slopes and contrasts against differences of eta.

The oracles only evaluate `FittedModel.eta` (or `predict`) at other values: five-point
differences for slopes, differences between two states for levels and missing values.
"""

from dataclasses import replace

import numpy as np
import pytest
import shap
import torch

from sknimo.explain import (
    effects,
    explain,
    feature_kinds,
    find_roles,
    fit_gauge,
    integrated_gradients,
    interactions,
    local_coefficients,
    local_values,
    pair_surface,
    shapley,
)
from sknimo.explain._local import adjusted_term_coef, local_slopes
from sknimo.features import FeatureMap, Levels, OrMissing
from sknimo.model import FittedModel
from sknimo.network import unpack

# Rounding of five-point differences with a step of a thousandth.
REFERENCE_TOL = 1e-10
SUM_TOL = 1e-10
SLOPE_TOL = 1e-6

FAMILIES = ("gaussian", "binomial", "poisson", "gamma")


def put(rows, j, value):
    """The same rows with one feature at another value."""
    out = np.array(rows)
    out[:, j] = value
    return out


def five_point(function, at, step):
    """Derivative of a function of one number, exact for polynomials of degree four."""
    near = function(at + step) - function(at - step)
    far = function(at + 2 * step) - function(at - 2 * step)
    return (8 * near - far) / (12 * step)


def other_levels(features, j):
    """Codes of the levels of a category other than its baseline."""
    levels = features.levels(j) or ()
    return [code for code in range(len(levels)) if code != features.reference[j]]


def coefficients_by_differences(function, features, rows, j):
    """What a reader calls coefficients of feature j, from `function(table)` alone.

    All features but j stay as they are in `rows`; (n, number of coefficients).
    """

    def along(value):
        return function(put(rows, j, value))

    reference, columns = features.reference[j], []
    base = along(reference)
    if features.levels(j) is None:
        step = 1e-3 * (features.scale[j] or 1.0)
        columns.append(five_point(along, reference, step))
    columns += [along(code) - base for code in other_levels(features, j)]
    if features.admits_missing[j]:
        columns.append(along(np.nan) - base)
    return np.stack(columns, axis=1) if columns else np.empty((len(rows), 0))


def test_the_fixture_has_every_kind(mixed, mixed_table):
    kinds = dict(zip(mixed.features.names, feature_kinds(mixed.features), strict=True))
    assert kinds["age"] == kinds["income"] == kinds["smoker"] == "line"
    assert kinds["dose"] == kinds["bmi"] == "curve"
    assert kinds["sex"] == kinds["region"] == kinds["blood"] == "category"
    assert np.isnan(mixed_table).any(0).sum() == 4
    bent = local_values(mixed, mixed_table).contributions
    straight = replace(mixed, modulated=mixed.modulated & False)
    assert np.abs(bent - straight.contributions(mixed_table)).max() > 0.5


# Done when, 3: gradient or contrast at the reference equals the table.


@pytest.mark.parametrize("n_members", [1, 3])
def test_coefficients_are_slopes_and_contrasts_at_the_reference(make_mixed, n_members):
    model = make_mixed(n_members=n_members)
    features = model.features
    expected = [
        coefficients_by_differences(model.eta, features, features.reference[None], j)
        for j in range(features.n_features)
    ]
    expected = np.concatenate(expected, axis=1)
    found = features.coefficients(model.term_coef)
    assert len(found) == len(features.coef_names) == 17
    assert np.abs(found - expected[0]).max() <= REFERENCE_TOL


def test_all_three_quantities_agree_at_the_reference(mixed):
    features = mixed.features
    at = local_values(mixed, features.reference[None])
    coef = features.feature_coef(mixed.term_coef)
    known = ~np.isnan(coef)
    assert np.abs(at.local_coef[0] - coef)[known].max() <= REFERENCE_TOL
    assert np.abs(at.local_effect[0] - coef)[known].max() <= REFERENCE_TOL
    # More than two levels: at the baseline there is nothing to say of the others.
    assert (at.local_coef[0, ~known] == 0).all()
    assert (at.local_effect[0, ~known] == 0).all()
    assert (at.contributions == 0).all()


# Contributions


@pytest.mark.parametrize(
    "method", ["min_energy", "native", "integrated_gradients", "shapley"]
)
def test_contributions_sum_to_eta(mixed, mixed_table, method):
    rows = mixed_table[:12]
    swap = fit_gauge(mixed, mixed_table)
    found = explain(mixed, rows, swap=swap, method=method)
    assert np.abs(found.eta - mixed.eta(rows)).max() <= SUM_TOL


def test_contributions_are_terms_times_local_coefficients(mixed, mixed_table):
    features = mixed.features
    swap = fit_gauge(mixed, mixed_table)
    found = local_values(mixed, mixed_table, swap)
    local = local_coefficients(mixed, mixed_table, swap)
    for j, name in enumerate(features.names):
        own = np.flatnonzero(features.coef_feature == j)
        if feature_kinds(features)[j] == "category":
            place = {code: at for at, code in enumerate(other_levels(features, j))}
            for i, code in enumerate(mixed_table[:, j]):
                at = len(own) - 1 if np.isnan(code) else place.get(int(code))
                expected = 0.0 if at is None else local[i, own[at]]
                assert found.contributions[i, j] == pytest.approx(expected, abs=1e-12)
        elif name in ("age", "smoker"):
            distance = mixed_table[:, j] - features.reference[j]
            gap = found.contributions[:, j] - distance * found.local_coef[:, j]
            assert np.abs(gap).max() <= SUM_TOL


@pytest.mark.parametrize("gauged", [False, True])
def test_local_coefficients_are_those_of_the_features_own_channel(
    mixed, mixed_table, gauged
):
    # Moving feature j alone moves its channel through phi_j and nothing else.
    features = mixed.features
    rows = mixed_table[:10]
    swap = fit_gauge(mixed, mixed_table) if gauged else None
    found = local_coefficients(mixed, rows, swap)
    moved = np.zeros((len(features.term_feature),) * 2) if swap is None else swap
    for j in range(features.n_features):

        def channel(table, j=j):
            phi = features.terms(table)
            own = features.per_feature(phi * (phi @ moved.T))
            return (mixed.contributions(table) - own)[:, j]

        expected = coefficients_by_differences(channel, features, rows, j)
        gap = np.abs(found[:, features.coef_feature == j] - expected)
        assert gap.max(initial=0.0) <= 1e-9


def test_local_coefficient_of_a_feature_is_the_one_of_its_row(mixed, mixed_table):
    features = mixed.features
    found = local_values(mixed, mixed_table)
    each = local_coefficients(mixed, mixed_table)
    for j, kind in enumerate(feature_kinds(features)):
        own = np.flatnonzero(features.coef_feature == j)
        n_levels = len(features.levels(j) or ())
        if kind != "category" or n_levels == 2:
            # Whatever the row has, missing included.
            assert found.local_coef[:, j] == pytest.approx(each[:, own[0]], abs=1e-12)
        elif n_levels > 2:
            assert (found.local_coef[:, j] == found.contributions[:, j]).all()
            at_baseline = mixed_table[:, j] == features.reference[j]
            assert (found.local_coef[at_baseline, j] == 0).all()


# Local effects


def away_from_kinks(features, table, step):
    """Cells whose neighbourhood holds no corner of a clipped or rank-Gauss input."""
    clear = np.ones(table.shape, dtype=bool)
    for j, basis in enumerate(features.input_bases):
        inner = basis.basis if isinstance(basis, OrMissing) else basis
        corners = getattr(inner, "points", None)
        if corners is None:
            corners = [getattr(inner, "low", np.inf), getattr(inner, "high", np.inf)]
        distance = np.abs(table[:, j][:, None] - np.asarray(corners))
        with np.errstate(invalid="ignore"):
            clear[:, j] = ~(distance.min(1) < 3 * step[j])
    return clear


@pytest.mark.parametrize("n_members", [1, 2])
def test_local_effects_are_derivatives_and_contrasts(make_mixed, draw_mixed, n_members):
    model = make_mixed(n_members=n_members, deaf=("age", "region"))
    table = draw_mixed(40, seed=5)
    features = model.features
    found = local_values(model, table).local_effect
    step = 1e-4 * np.where(features.scale > 0, features.scale, 1.0)
    clear = away_from_kinks(features, table, step)
    for j, kind in enumerate(feature_kinds(features)):
        column, baseline = table[:, j], features.reference[j]
        if kind == "category":
            n_levels = len(features.levels(j))
            after = model.eta(put(table, j, 1 - baseline) if n_levels == 2 else table)
            expected = after - model.eta(put(table, j, baseline))
            assert np.abs(found[:, j] - expected).max() <= 1e-12
        else:
            missing = np.isnan(column)
            assert np.isnan(found[missing, j]).all()

            def along(x, j=j):
                return model.eta(put(table, j, x))

            expected = five_point(along, column, step[j])
            known = ~missing & clear[:, j]
            assert known.sum() > 25
            assert np.abs(found[known, j] - expected[known]).max() <= SLOPE_TOL


def test_a_constant_feature_and_a_single_level_have_no_effect(mixed, mixed_table):
    found = local_values(mixed, mixed_table)
    for name in ("constant", "site"):
        j = mixed.features.names.index(name)
        for values in (found.contributions, found.local_coef, found.local_effect):
            assert (values[:, j] == 0).all()
        assert find_roles(mixed).labels[j] == "neither"


@pytest.mark.parametrize("family", FAMILIES)
def test_response_effects_are_slopes_and_differences_of_the_mean(
    make_mixed, draw_mixed, family
):
    model = make_mixed(family=family)
    table = draw_mixed(30, seed=7)
    features = model.features
    offset = np.linspace(-0.3, 0.3, len(table))
    found = explain(model, table, offset=offset).response_effect
    for name in ("sex", "region", "twin"):
        j = features.names.index(name)
        other = 1 - features.reference[j] if name != "region" else table[:, j]
        before = model.mean(put(table, j, features.reference[j]), offset)
        after = model.mean(put(table, j, other), offset)
        assert found[:, j] == pytest.approx(after - before, abs=1e-12)
    j = features.names.index("smoker")
    slope = five_point(
        lambda x: model.mean(put(table, j, x), offset), table[:, j], 1e-4
    )
    assert found[:, j] == pytest.approx(slope, rel=1e-6, abs=1e-8)


# Averages


def test_levels_average_contrasts_over_all_rows(mixed, mixed_table):
    features = mixed.features
    weight = 1.0 + np.arange(len(mixed_table)) % 3
    levels = effects(mixed, mixed_table, weight=weight).levels
    assert len(levels) == 16  # 2 + 4 + 3 + 2 + 1 levels and missing of four features
    for at in range(len(levels)):
        j, value = levels.column[at], levels.value[at]
        assert levels.features[at] == features.names[j]
        contrast = mixed.eta(put(mixed_table, j, value))
        contrast = contrast - mixed.eta(put(mixed_table, j, features.reference[j]))
        mean = np.average(contrast, weights=weight)
        spread = np.sqrt(np.average((contrast - mean) ** 2, weights=weight))
        assert levels.average_effect[at] == pytest.approx(mean, abs=1e-12)
        assert levels.effect_sd[at] == pytest.approx(spread, abs=1e-12)
        reference = features.reference[None]
        alone = mixed.eta(put(reference, j, value)) - mixed.eta(reference)
        assert levels.coef[at] == pytest.approx(alone[0], abs=REFERENCE_TOL)
        same = np.array_equal
        hit = [same([x], [value], equal_nan=True) for x in mixed_table[:, j]]
        assert levels.n_rows[at] == weight[hit].sum()
    baseline = levels.baseline
    assert baseline.sum() == 5 and (levels.coef[baseline] == 0).all()


def test_average_effect_skips_missing_values(mixed, mixed_table):
    found = effects(mixed, mixed_table)
    local = local_values(mixed, mixed_table).local_effect
    for name in ("bmi", "income", "age", "dose"):
        j = mixed.features.names.index(name)
        known = local[~np.isnan(local[:, j]), j]
        assert found.average_effect[j] == pytest.approx(known.mean(), abs=1e-12)
        assert found.effect_sd[j] == pytest.approx(known.std(), abs=1e-12)
        assert not found.contrast[j]


def test_average_effect_of_two_levels_is_the_mean_contrast(mixed, mixed_table):
    found = effects(mixed, mixed_table)
    for name in ("sex", "twin", "smoker"):
        j = mixed.features.names.index(name)
        high, low = mixed.eta(put(mixed_table, j, 1)), mixed.eta(put(mixed_table, j, 0))
        sign = -1 if name != "smoker" and mixed.features.reference[j] == 1 else 1
        expected = sign * (high - low)
        assert found.average_effect[j] == pytest.approx(expected.mean(), abs=1e-12)
        assert found.effect_sd[j] == pytest.approx(expected.std(), abs=1e-12)
        bend = expected.var() / (expected**2).mean()
        assert found.bend[j] == pytest.approx(bend, abs=1e-12)
        assert found.contrast[j]


def test_coefficient_is_unknown_for_more_than_two_levels_only(mixed, mixed_table):
    found = effects(mixed, mixed_table)
    unknown = {
        name
        for name, coef in zip(found.names, found.coef, strict=True)
        if np.isnan(coef)
    }
    assert unknown == {"region", "blood"}
    for values in (found.average_effect, found.effect_sd, found.bend):
        assert np.isfinite(values).all()
    assert found.variance_share.sum() == pytest.approx(1, abs=1e-10)


def test_average_of_more_levels_is_the_change_from_the_baseline(mixed, mixed_table):
    found = effects(mixed, mixed_table)
    j = mixed.features.names.index("region")
    change = mixed.eta(mixed_table) - mixed.eta(
        put(mixed_table, j, mixed.features.reference[j])
    )
    assert found.average_effect[j] == pytest.approx(change.mean(), abs=1e-12)


def test_nothing_is_bent_without_a_network(mixed, mixed_table):
    straight = replace(mixed, modulated=mixed.modulated & False)
    found = effects(straight, mixed_table)
    # A curve and a list of levels are no constants, and yet nothing bends them.
    assert found.bend == pytest.approx(np.zeros(11), abs=1e-12)
    assert found.levels.average_effect == pytest.approx(found.levels.coef, abs=1e-12)
    assert found.levels.effect_sd == pytest.approx(np.zeros(16), abs=1e-7)
    assert found.modifiers == ((),) * 11


def test_bend_of_a_curve_is_what_differs_from_the_curve(mixed, mixed_table):
    j = mixed.features.names.index("dose")
    reference = mixed.features.reference
    x = mixed_table[:, j]
    alone = five_point(
        lambda value: mixed.eta(put(np.tile(reference, (len(x), 1)), j, value)), x, 0.01
    )
    effect = local_values(mixed, mixed_table).local_effect[:, j]
    extra = effect - alone
    constant = ((alone + extra.mean()) ** 2).mean()
    expected = extra.var() / (extra.var() + constant)
    assert effects(mixed, mixed_table).bend[j] == pytest.approx(expected, abs=1e-8)


def test_bend_of_many_levels_is_within_levels_not_between(mixed, mixed_table):
    features = mixed.features
    for name in ("region", "blood"):
        j = features.names.index(name)
        base = mixed.eta(put(mixed_table, j, features.reference[j]))
        varying = constant = 0.0
        for code in other_levels(features, j):
            contrast = mixed.eta(put(mixed_table, j, code)) - base
            share = (mixed_table[:, j] == code).mean()
            varying += share * contrast.var()
            constant += share * contrast.mean() ** 2
        found = effects(mixed, mixed_table).bend[j]
        assert found == pytest.approx(varying / (varying + constant), abs=1e-12)


def test_long_tables_average_the_contrasts_of_many_levels_over_fewer_rows(
    mixed, mixed_table
):
    whole = effects(mixed, mixed_table).levels
    few = effects(mixed, mixed_table, max_rows=20).levels
    some = effects(
        mixed, mixed_table[np.linspace(0, 59, 20).round().astype(int)]
    ).levels
    region, sex = whole.of(6), whole.of(5)
    assert few.average_effect[region] == pytest.approx(some.average_effect[region])
    assert (few.average_effect[region] != whole.average_effect[region])[1:].any()
    assert (few.average_effect[sex] == whole.average_effect[sex]).all()
    assert (few.n_rows == whole.n_rows).all()


# Codes are names


def permute_levels(model, table, name, order):
    """The same model and rows with the levels of a category in another order."""
    features = model.features
    j = features.names.index(name)
    basis = features.bases[j]
    inner = basis.basis if isinstance(basis, OrMissing) else basis
    place = np.argsort(order)  # where each code goes
    moved = Levels(
        tuple(inner.values[code] for code in order),
        int(place[inner.baseline]),
        inner.scale,
    )
    wrapped = (
        OrMissing(moved, basis.indicator_scale)
        if isinstance(basis, OrMissing)
        else moved
    )
    bases = [*features.bases[:j], wrapped, *features.bases[j + 1 :]]
    inputs = [*features.input_bases[:j], wrapped, *features.input_bases[j + 1 :]]
    codes = [inner.codes.index(order[code]) for code in moved.codes]
    if isinstance(basis, OrMissing):
        codes.append(len(codes))

    def column_order(owner):
        index = np.arange(len(owner))
        own = np.flatnonzero(owner == j)
        index[own] = own[codes]
        return torch.as_tensor(index)

    params = model.params.clone()
    first = unpack(model.spec, params).first
    first.copy_(first[:, :, column_order(features.input_feature)].clone())
    other = replace(
        model,
        features=FeatureMap(
            features.names, tuple(bases), tuple(inputs), features.low, features.high
        ),
        coef=model.coef[:, column_order(features.term_feature)],
        params=params,
    )
    rows = table.copy()
    known = ~np.isnan(rows[:, j])
    rows[known, j] = place[rows[known, j].astype(int)]
    return other, rows


@pytest.mark.parametrize(
    ("name", "order"),
    [("region", [2, 0, 3, 1]), ("blood", [2, 1, 0]), ("sex", [1, 0])],
)
def test_the_order_of_levels_changes_nothing(mixed, mixed_table, name, order):
    other, rows = permute_levels(mixed, mixed_table, name, order)
    assert np.abs(mixed.eta(mixed_table) - other.eta(rows)).max() <= 1e-12

    def everything(model, table):
        swap = fit_gauge(model, table)
        found = explain(model, table, swap=swap)
        each = effects(model, table, swap=swap)
        pairs = interactions(model, table, swap=swap)
        return {
            "values": found.values,
            "local_coef": found.local_coef,
            "local_effect": found.local_effect,
            "gradients": integrated_gradients(model, table[:10]).values,
            "shapley": shapley(model, table[:3]).values,
            "bend": each.bend,
            "average": each.average_effect,
            "nonlinearity": each.nonlinearity,
            "directed": pairs.directed,
            "strength": pairs.strength,
        }

    before, after = everything(mixed, mixed_table), everything(other, rows)
    gaps = {key: np.nanmax(np.abs(before[key] - after[key])) for key in before}
    assert max(gaps.values()) <= 1e-9, gaps


# Attribution


@pytest.mark.slow
def test_shapley_values_equal_those_of_shap(mixed, mixed_table):
    rows = mixed_table[:6]
    masker = shap.maskers.Independent(mixed.features.reference[None])
    oracle = shap.explainers.Exact(mixed.eta, masker)(rows)
    found = shapley(mixed, rows)
    assert np.abs(found.values - oracle.values).max() <= SUM_TOL


@pytest.mark.parametrize("method", ["integrated_gradients", "shapley"])
def test_attribution_of_a_straight_model_is_its_terms(mixed, mixed_table, method):
    straight = replace(mixed, modulated=mixed.modulated & False)
    rows = mixed_table[:10]
    found = explain(straight, rows, method=method)
    assert np.abs(found.values - straight.contributions(rows)).max() <= SUM_TOL


@pytest.mark.slow
def test_integrated_gradients_follow_terms_and_inputs_in_a_straight_line(mixed):
    # Two features away from the reference, one of them a level: a path of the
    # columns, integrated by the trapezoidal rule in small steps.
    features = mixed.features
    row = features.reference[None].copy()
    j, k = features.names.index("region"), features.names.index("dose")
    row[0, j], row[0, k] = other_levels(features, j)[1], 33.0
    terms = torch.as_tensor(features.terms(row))
    inputs = torch.as_tensor(features.inputs(row))

    def eta(part_j, part_k):
        def scaled(columns, owner):
            factor = np.zeros(len(owner))
            factor[owner == j], factor[owner == k] = part_j, part_k
            return columns * torch.as_tensor(factor)

        some = scaled(terms, features.term_feature)
        local = mixed.local_term_coef(some, scaled(inputs, features.input_feature))
        return float((some * local).sum())

    steps = np.linspace(0, 1, 301)
    middle = (steps[1:] + steps[:-1]) / 2
    width = steps[1] - steps[0]
    h = width / 2
    share_j = sum(eta(t + h, t) - eta(t - h, t) for t in middle)
    share_k = sum(eta(t, t + h) - eta(t, t - h) for t in middle)
    found = integrated_gradients(mixed, row).values[0]
    assert found[j] == pytest.approx(share_j, abs=1e-5)
    assert found[k] == pytest.approx(share_k, abs=1e-5)


# The gauge


class SwappedTerms(FittedModel):
    """The same function with products of terms moved between channels."""

    swap = None

    def local_term_coef(self, terms, inputs):
        local = FittedModel.local_term_coef(self, terms, inputs)
        return local - terms @ self.swap.T


def test_the_gauge_undoes_swaps_between_terms_of_every_kind(mixed, draw_mixed):
    table = draw_mixed(300, seed=3)
    q = len(mixed.features.term_feature)
    owner = mixed.features.term_feature
    amount = np.random.default_rng(0).normal(size=(q, q))
    amount = (amount - amount.T) * (owner[:, None] != owner) / 4

    class Swapped(SwappedTerms):
        swap = torch.as_tensor(amount)

    fields = FittedModel.__dataclass_fields__
    other = Swapped(**{name: getattr(mixed, name) for name in fields})
    assert np.abs(other.eta(table) - mixed.eta(table)).max() <= 1e-11

    def gauged(model):
        return local_values(model, table, fit_gauge(model, table))

    native = local_values(mixed, table), local_values(other, table)
    assert np.abs(native[0].contributions - native[1].contributions).max() > 0.5
    before, after = gauged(mixed), gauged(other)
    assert np.abs(before.contributions - after.contributions).max() <= 1e-7
    assert np.abs(before.local_coef - after.local_coef).max() <= 1e-7


# Interactions


def spread(values, share):
    mean = np.tensordot(share, values, 1)
    return np.sqrt(np.tensordot(share, (values - mean) ** 2, 1))


def state_shares(features, j, column):
    """States of a category and their shares, missing last."""
    values, counts = np.unique(column, return_counts=True, equal_nan=True)
    return values, counts / counts.sum()


def test_strength_of_a_category_is_the_spread_of_slopes_over_its_levels(
    mixed, mixed_table
):
    found = interactions(mixed, mixed_table).strength
    names = mixed.features.names
    k = names.index("region")
    values, share = state_shares(mixed.features, k, mixed_table[:, k])
    slopes = np.stack([local_slopes(mixed, put(mixed_table, k, v)) for v in values])
    expected = spread(slopes, share).mean(0) * mixed.features.scale
    for name in ("age", "dose", "smoker"):
        j = names.index(name)
        assert found[j, k] == pytest.approx(expected[j], abs=1e-10)
        assert found[k, j] == found[j, k]


def test_strength_of_two_categories_is_what_main_effects_leave(mixed, mixed_table):
    found = interactions(mixed, mixed_table).strength
    names = mixed.features.names
    j, k = names.index("sex"), names.index("region")
    first, share = state_shares(mixed.features, j, mixed_table[:, j])
    second, other = state_shares(mixed.features, k, mixed_table[:, k])
    eta = np.stack([
        [mixed.eta(put(put(mixed_table, j, a), k, b)) for b in second] for a in first
    ])  # fmt: skip
    # Weighted two-way analysis of variance, row by row.
    both = np.outer(share, other)[..., None]
    grand = (both * eta).sum((0, 1))
    main_j = np.einsum("b,abn->an", other, eta) - grand
    main_k = np.einsum("a,abn->bn", share, eta) - grand
    left = eta - grand - main_j[:, None] - main_k[None]
    expected = np.sqrt((both * left**2).sum((0, 1))).mean()
    assert found[j, k] == pytest.approx(expected, abs=1e-10)


def test_directed_strength_is_the_spread_of_the_bent_contribution(mixed, mixed_table):
    # Region bends dose: spread over regions of what the terms of dose add up to,
    # itself spread over the doses of the rows.
    swap = fit_gauge(mixed, mixed_table)
    found = interactions(mixed, mixed_table, swap=swap).directed
    features, names = mixed.features, mixed.features.names
    j, k = names.index("dose"), names.index("region")
    values, share = state_shares(features, k, mixed_table[:, k])
    own = np.flatnonzero(features.term_feature == j)
    phi = features.terms(mixed_table)[:, own]
    covariance = np.cov(phi.T, bias=True)
    local = np.stack(
        [
            adjusted_term_coef(mixed, put(mixed_table, k, v), swap)[:, own]
            for v in values
        ]
    )
    centred = local - np.tensordot(share, local, 1)
    square = np.einsum("l,lnt,tu,lnu->n", share, centred, covariance, centred)
    assert found[j, k] == pytest.approx(np.sqrt(square).mean(), abs=1e-10)


def test_two_levels_and_a_number_with_two_values_interact_alike(mixed, mixed_table):
    # The contrast times the standard deviation of the indicator, either way.
    names = mixed.features.names
    found = interactions(mixed, mixed_table).strength
    j, k = names.index("age"), names.index("sex")
    slopes = [local_slopes(mixed, put(mixed_table, k, v))[:, j] for v in (0, 1)]
    share = (mixed_table[:, k] == 1).mean()
    size = np.abs(slopes[1] - slopes[0]).mean() * np.sqrt(share * (1 - share))
    assert found[j, k] == pytest.approx(size * mixed.features.scale[j], abs=1e-10)


def test_missing_values_interact_too(mixed, mixed_table):
    # Only the missing indicator of income is read, and it bends the slope of age.
    features = mixed.features
    income, age = features.names.index("income"), features.names.index("age")
    params = mixed.params.clone()
    first = unpack(mixed.spec, params).first
    own = np.flatnonzero(features.input_feature == income)
    keep = first[:, :, own[-1]].clone()
    first[:] = 0
    first[:, :, own[-1]] = keep
    model = replace(mixed, params=params)
    found = interactions(model, mixed_table)
    missing = np.isnan(mixed_table[:, income]).mean()
    change = [
        local_coefficients(model, put(mixed_table, income, value))[:, 0]
        for value in (np.nan, features.reference[income])
    ]
    size = np.abs(change[0] - change[1]).mean() * np.sqrt(missing * (1 - missing))
    expected = size * features.scale[age]
    assert found.directed[age, income] == pytest.approx(expected, abs=1e-10)
    assert found.directed[income, age] == 0
    assert found.strength[age, income] == pytest.approx(expected, abs=1e-10)


def test_pairs_of_categories_are_thinned_on_long_tables(
    mixed, mixed_table, monkeypatch
):
    monkeypatch.setattr("sknimo.explain._interactions.PAIR_EVALUATIONS", 500)
    few = interactions(mixed, mixed_table).strength
    monkeypatch.undo()
    whole = interactions(mixed, mixed_table).strength
    j, k = mixed.features.names.index("sex"), mixed.features.names.index("region")
    assert few[j, k] != whole[j, k]
    assert few[j, k] == pytest.approx(whole[j, k], rel=0.6)


def test_pair_surface_of_levels_is_the_anchored_double_contrast(mixed):
    features = mixed.features
    j, k = features.names.index("region"), features.names.index("sex")
    found = pair_surface(mixed, "region", "sex")
    assert found.levels_j == features.levels(j)
    assert found.grid_j.tolist() == [0, 1, 2, 3]
    reference = features.reference[None]
    for a in range(4):
        for b in range(2):
            both = mixed.eta(put(put(reference, j, a), k, b))
            alone = mixed.eta(put(reference, j, a)), mixed.eta(put(reference, k, b))
            expected = both - alone[0] - alone[1] + mixed.eta(reference)
            assert found.surface[a, b] == pytest.approx(expected[0], abs=1e-12)


# Awkward rows


@pytest.mark.parametrize("seed", range(4))
def test_other_random_models_keep_the_table_and_the_sums(make_mixed, draw_mixed, seed):
    model = make_mixed(n_members=1, seed=seed)
    features = model.features
    table = draw_mixed(20, seed=seed)
    found = explain(model, table, swap=fit_gauge(model, table))
    assert np.abs(found.eta - model.eta(table)).max() <= SUM_TOL
    reference = features.reference[None]
    expected = np.concatenate(
        [
            coefficients_by_differences(model.eta, features, reference, j)
            for j in range(features.n_features)
        ],
        axis=1,
    )
    gap = features.coefficients(model.term_coef) - expected[0]
    assert np.abs(gap).max() <= REFERENCE_TOL


@pytest.mark.parametrize("rows", ["one", "all missing", "one level"])
def test_few_rows_are_summed_up_without_a_warning(mixed, mixed_table, rows):
    table = mixed_table[:1] if rows == "one" else mixed_table.copy()
    if rows == "all missing":
        table[:, [2, 3, 7, 8]] = np.nan
    if rows == "one level":
        table[:, 5:9] = 0.0
    swap = fit_gauge(mixed, table)
    found = effects(mixed, table, swap=swap)
    pairs = interactions(mixed, table, swap=swap)
    assert np.isfinite(pairs.directed).all() and np.isfinite(pairs.strength).all()
    names = mixed.features.names
    unknown = {"bmi", "income"} if rows == "all missing" else set()
    missing = {
        names[j] for j in (2, 3) if rows == "one" and np.isnan(mixed_table[0, j])
    }
    nan = {
        name
        for name, mean in zip(names, found.average_effect, strict=True)
        if np.isnan(mean)
    }
    assert nan == unknown | missing
    assert np.isfinite(found.levels.average_effect).all()


def test_models_in_single_precision_are_explained_in_double(mixed, mixed_table):
    single = replace(
        mixed,
        params=mixed.params.float(),
        coef=mixed.coef.float(),
        intercept=mixed.intercept.float(),
    )
    found = explain(single, mixed_table, swap=fit_gauge(single, mixed_table))
    assert np.abs(found.eta - single.eta(mixed_table)).max() <= SUM_TOL
    exact = local_values(mixed, mixed_table)
    close = local_values(single, mixed_table)
    assert close.local_effect == pytest.approx(
        exact.local_effect, abs=1e-3, nan_ok=True
    )
    pairs = interactions(single, mixed_table).strength
    assert pairs == pytest.approx(interactions(mixed, mixed_table).strength, abs=1e-3)
