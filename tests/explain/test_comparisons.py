"""Steps and supports: averages by their definition, and what rows make possible."""

import numpy as np
import pytest
import torch

from sknimo.explain import compare, measure_support
from sknimo.explain._comparisons import Cells, Comparisons, readable_step
from sknimo.explain._kept import warn_of_reference
from sknimo.explain._kinds import usual_scale
from sknimo.families import get_family
from sknimo.features import fit_features
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec


@pytest.mark.parametrize("scale", [3e-7, 0.04, 0.4999, 0.5, 1.0, 7.0, 2822.0, 1e12])
def test_steps_are_round_and_neither_tiny_nor_huge(scale):
    step = readable_step(scale)
    assert np.isclose(np.log10(step), round(np.log10(step)))
    assert 0.19 * scale <= step <= 2.01 * scale


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_averages_are_those_of_the_definition(make_mixed, draw_mixed, family):
    """Row by row, from predictions alone."""
    model, table = make_mixed(family=family), draw_mixed(40)
    offset = np.linspace(-0.5, 0.5, 40)
    found = compare(model, table, offset=offset)
    features = model.features

    def mean(j, values):
        moved = table.copy()
        moved[:, j] = values
        return model.mean(moved, offset)

    for at, (name, j) in enumerate(
        zip(features.coef_names, features.coef_feature, strict=True)
    ):
        column = table[:, j]
        known = ~np.isnan(column)
        levels = features.levels(j)
        if name in ("site", "constant") or features.names[j] in ("site", "constant"):
            continue
        if name.endswith("[missing]"):
            change = mean(j, np.nan) - mean(j, features.reference[j])
            known[:] = True
        elif levels is not None:
            code = [f"{features.names[j]}[{level}]" for level in levels].index(name)
            change = mean(j, float(code)) - mean(j, features.reference[j])
            known[:] = True
        elif len(np.unique(column[known])) == 2:
            change = mean(j, 1.0) - mean(j, 0.0)
        else:
            # In full, and within the range: at its ends to one side.
            step = found.step[at]
            least = np.minimum(features.low[j], column)
            most = np.maximum(features.high[j], column)
            low = np.clip(column - step / 2, least, most - step)
            change = mean(j, low + step) - mean(j, low)
        assert found.response[at] == pytest.approx(change[known].mean(), rel=1e-9)


def test_weights_count_like_repeated_rows(make_mixed, draw_mixed):
    model, table = make_mixed(), draw_mixed(30)
    weight = np.arange(30) % 3
    again = compare(model, np.repeat(table, weight, axis=0))
    found = compare(model, table, weight=weight.astype(float))
    np.testing.assert_allclose(found.response, again.response, rtol=1e-9)
    np.testing.assert_allclose(found.importance, again.importance, rtol=1e-9)


def test_importance_is_the_mean_distance_from_the_reference(make_model, draw_table):
    model = make_model(idle=(2,))
    table = draw_table(model)
    found = compare(model, table).importance
    for j in range(4):
        moved = table.copy()
        moved[:, j] = model.features.reference[j]
        change = np.abs(model.eta(table) - model.eta(moved)).mean()
        assert found[j] == pytest.approx(change, rel=1e-9)
    assert found[2] == 0


def test_one_absurd_value_does_not_set_the_unit(make_model, draw_table):
    model = make_model()
    table = draw_table(model, n_rows=200)
    usual = usual_scale(model.features, table)
    assert np.array_equal(usual, model.features.scale)
    table[:, 0] = model.features.reference[0] + np.linspace(-1, 1, 200) / 100
    table[0, 0] = 1e4
    assert usual_scale(model.features, table)[0] < model.features.scale[0] / 3


# What rows make possible


def calendar(n_rows=600, seed=0):
    """Day of the year, and its month as a level beside an unrelated number."""
    rng = np.random.default_rng(seed)
    day = rng.uniform(0, 360, n_rows)
    return np.column_stack([day, day // 30, rng.normal(size=n_rows)])


@pytest.fixture
def make_calendar_model(make_mixed):
    """A straight model of day, month and noise, fitted to nothing."""

    def make(table):
        levels = [None, tuple(f"m{k}" for k in range(12)), None]
        names = ("day", "month", "noise")
        features = fit_features(table, names, np.ones(len(table)), levels, quiet=True)
        q = len(features.term_feature)
        rng = np.random.default_rng(0)
        spec = make_spec(features.input_feature.tolist(), 3, (4, 4))
        model = FittedModel(
            features=features,
            family=get_family("gaussian"),
            spec=spec,
            coef=torch.as_tensor(rng.normal(size=(1, q))),
            intercept=torch.zeros(1, dtype=torch.float64),
            params=init_params(spec, range(1)),
            modulated=torch.zeros(1, 3, dtype=torch.bool),
        )
        return model, table

    return make


def test_a_month_that_the_day_forbids_is_impossible(make_calendar_model):
    model, table = make_calendar_model(calendar())
    support = dict(
        zip(model.features.coef_names, compare(model, table).support, strict=True)
    )
    months = [share for name, share in support.items() if name.startswith("month")]
    assert max(months) < 0.5
    assert support["noise"] > 0.9
    rng = np.random.default_rng(1)
    table[:, 1] = rng.permutation(table[:, 1])  # now any month goes with any day
    support = compare(model, table).support
    assert support.min() > 0.9


def test_a_holiday_that_is_a_working_day_is_impossible():
    """Between them three columns of few values forbid what no covariance sees."""
    rng = np.random.default_rng(0)
    weekday = rng.integers(0, 7, 3000)
    holiday = (rng.random(3000) < 0.05) & (weekday < 5)
    working = (weekday < 5) & ~holiday
    sunny = rng.random(3000) < 0.4
    table = np.column_stack([weekday, holiday, working, sunny]).astype(float)
    cells = Cells(table, np.ones(4, dtype=bool))

    def share(j, value):
        return cells.never(table, j, np.full(3000, float(value))).mean()

    # On no other day it could be one.
    assert share(1, 1) == pytest.approx(1 - holiday.mean())
    assert share(2, 0) == pytest.approx(working.mean())
    assert share(2, 1) == pytest.approx(1 - working.mean())
    assert share(3, 0) == share(3, 1) == 0


def test_a_december_in_july_is_more_unusual_than_any_row(make_calendar_model):
    model, table = make_calendar_model(calendar())
    support = measure_support(model, table)
    odd = np.array([[184.0, 11.0, 0.0], [184.0, 6.0, 0.0], [345.0, 11.0, 0.0]])
    square = support.square(support.columns(odd))
    assert square[0] > 3 * support.distance.max()
    assert max(square[1:]) < np.quantile(support.distance, 0.99)
    np.testing.assert_allclose(
        support.square(support.columns(table)), support.distance, rtol=1e-9
    )


def test_effects_of_few_rows_are_not_counted_among_those_that_mislead(make_mixed):
    model = make_mixed()
    coef = model.features.coefficients(model.term_coef)
    one = np.ones(len(coef))
    ends = np.stack([-coef, -coef])
    found = Comparisons(
        one, -coef, -coef, ends, ends, one, one
    )  # all of the other sign
    n_rows = np.where(np.arange(len(coef)) < 3, 2.0, np.nan)
    (text,) = warn_of_reference(model, found, n_rows)
    assert f"{np.count_nonzero(coef[3:])} of {len(coef) - 3} effects" in text
