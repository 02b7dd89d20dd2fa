"""Large models take a shorter way; it leads to the same numbers.

The oracle is the way of small models: autograd through all terms and inputs.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.explain import _bends as bends
from sknimo.explain import _interactions as pairs
from sknimo.explain import _levels as levels
from sknimo.explain import _nested as nested
from sknimo.explain import _price as price
from sknimo.explain import (
    describe_training,
    effects,
    explain,
    fit_gauge,
    interactions,
)
from sknimo.families import get_family

# Sums in another order; what cancels in them is a few times larger than the result.
RTOL = 1e-9


@pytest.fixture
def as_large(monkeypatch):
    """Whatever is computed by a function, for the same model as if it were large."""

    def compute(function):
        with monkeypatch.context() as patch:
            patch.setattr(bends, "LARGE", 0)
            patch.setattr(bends, "BLOCK_SIZE", 300)  # several blocks, the last shorter
            # Over the same rows: how many a large model takes is another question.
            patch.setattr(pairs, "LARGE_PAIR_EVALUATIONS", pairs.PAIR_EVALUATIONS)
            patch.setattr(pairs, "MIN_LARGE_PAIR_ROWS", pairs.MIN_PAIR_ROWS)
            return function()

    return compute


@pytest.fixture
def uneven(make_mixed):
    """Members that bend some features each, one that bends none, inputs not read."""
    model = make_mixed(n_members=4, deaf=("dose", "region"))
    generator = torch.Generator().manual_seed(3)
    bent = torch.rand(model.modulated.shape, generator=generator) < 0.6
    bent[2] = False
    params = model.params.clone()
    params[0, : len(model.spec.input_feature)] = 0.0
    return replace(model, modulated=bent, params=params)


def assert_same(found, expected, names):
    for name in names:
        one, other = getattr(found, name), getattr(expected, name)
        size = np.nanmax(np.abs(other), initial=0.0)
        assert one == pytest.approx(other, rel=RTOL, abs=RTOL * size, nan_ok=True), name


def test_a_model_is_large_by_members_inputs_units_and_features(make_model):
    small = make_model(n_features=4, n_members=2)
    assert not bends.is_large(small)
    assert bends.is_large(make_model(n_features=200, n_members=5))
    nothing_bent = torch.zeros_like(small.modulated)
    assert not bends.is_large(replace(small, modulated=nothing_bent))


def test_explanations_are_those_of_small_models(uneven, mixed_table, as_large):
    swap = fit_gauge(uneven, mixed_table)

    def find():
        return explain(uneven, mixed_table, swap=swap)

    names = ("values", "local_coef", "local_effect")
    assert_same(as_large(find), find(), names)


def test_derivatives_do_not_mind_who_has_switched_gradients_off(uneven, mixed_table):
    with torch.no_grad():
        found = bends.bent_jacobian(uneven, mixed_table)
    assert np.array_equal(found, bends.bent_jacobian(uneven, mixed_table))
    assert found.any()


def test_the_gauge_is_that_of_small_models(uneven, mixed_table, as_large):
    expected = fit_gauge(uneven, mixed_table)
    found = as_large(lambda: fit_gauge(uneven, mixed_table))
    # By conjugate gradients, which magnify rounding.
    assert found == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())
    assert np.abs(expected).max() > 0


@pytest.mark.parametrize("gauge", [False, True])
def test_interactions_are_those_of_small_models(uneven, mixed_table, as_large, gauge):
    swap = fit_gauge(uneven, mixed_table) if gauge else None

    def find():
        return interactions(uneven, mixed_table, swap=swap)

    expected = find()
    assert expected.strength.max() > 0 and expected.directed.max() > 0
    assert_same(as_large(find), expected, ("directed", "strength"))


def test_effects_are_those_of_small_models(uneven, mixed_table, as_large):
    def find():
        return effects(uneven, mixed_table)

    names = ("average_effect", "effect_sd", "nonlinearity", "bend", "variance_share")
    assert_same(as_large(find), find(), names)


@pytest.mark.slow
def test_many_levels_leave_a_large_model_fewer_rows(
    mixed, draw_mixed, as_large, monkeypatch
):
    table = draw_mixed(90)
    n_levels = len(levels.restore_levels(mixed))
    monkeypatch.setattr(levels, "LARGE_EVALUATIONS", 60 * n_levels)
    assert interactions(mixed, table).n_rows == 90
    assert as_large(lambda: interactions(mixed, table)).n_rows == 60
    assert as_large(lambda: interactions(mixed, table, max_rows=None)).n_rows == 90
    assert as_large(lambda: price.ranking_rows(mixed)) == 60


class TestDescent:
    def test_ends_at_the_nested_glm(self, fitted, monkeypatch):
        y = fitted.est._read_target(fitted.y).values
        weight, offset = np.linspace(1, 2, len(y)), np.linspace(-0.2, 0.2, len(y))

        def find():
            rows = nested.MemoryRows(fitted.model, y, weight, offset)
            return rows.solved_eta(rows.nested_design(fitted.table)).numpy()

        expected = find()
        monkeypatch.setattr(nested, "MAX_GRAM", 0)
        monkeypatch.setattr(nested, "BLOCK_ROWS", 50)
        # A promise of 1e-8 of the loss leaves its root of the linear predictor.
        assert find() == pytest.approx(expected, abs=1e-3)

    def test_has_the_deviance_of_the_nested_glm(self, fitted, monkeypatch):
        y = fitted.est._read_target(fitted.y).values
        expected = describe_training(fitted.model, fitted.table, y)
        monkeypatch.setattr(nested, "MAX_GRAM", 0)
        found = describe_training(fitted.model, fitted.table, y)
        # As many digits as are shown, and one more.
        for name in ("null_deviance", "glm_deviance", "deviance"):
            assert getattr(found, name) == pytest.approx(
                getattr(expected, name), rel=1e-6
            )

    def test_solves_columns_of_very_unequal_size(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(300, 6)) * 10.0 ** np.arange(-3, 3) + 5
        y = X[:, 0] * 1e3 + X[:, 5] / 1e2 + rng.normal(size=300)
        rows = nested.Rows(
            torch.as_tensor(y),
            torch.zeros(300, dtype=torch.float64),
            torch.full((1, 300), 1 / 300, dtype=torch.float64),
            get_family("gaussian"),
        )
        found = nested.descend(torch.as_tensor(X), rows)
        oracle, *_ = np.linalg.lstsq(np.column_stack([np.ones(300), X]), y, rcond=None)
        eta = X @ found.coef[0].numpy() + float(found.intercept[0])
        # The ridge of 1e-8 counts against columns of variance 1e-6.
        assert eta == pytest.approx(oracle[0] + X @ oracle[1:], abs=0.05)


def test_the_deviance_of_a_large_model_is_a_ratio_over_some_rows_times_the_glm(
    fitted, as_large, monkeypatch
):
    model, table = fitted.model, fitted.table
    y = fitted.est._read_target(fitted.y).values.astype(float)
    exact = describe_training(model, table, y)
    monkeypatch.setattr(price, "DEVIANCE_ROWS", 120)
    found = as_large(lambda: describe_training(model, table, y))

    kept = np.linspace(0, len(table) - 1, 120).round().astype(int)
    rows = nested.MemoryRows(model, y, None, None)
    glm_eta = rows.solved_eta(rows.nested_design(table)).numpy()
    bent, straight = (
        float(model.family.loss(torch.as_tensor(y[kept]), torch.as_tensor(eta)).sum())
        for eta in (model.eta(table[kept]), glm_eta[kept])
    )
    assert found.glm_deviance == exact.glm_deviance
    assert found.deviance == pytest.approx(
        exact.glm_deviance * bent / straight, rel=RTOL
    )


def test_evenly_spaced_rows_stand_for_a_table_of_too_many_numbers(fitted, monkeypatch):
    y = fitted.est._read_target(fitted.y).values
    kept = slice(None, None, 3)
    table, target = np.repeat(fitted.table[kept], 3, 0), np.repeat(y[kept], 3)
    whole = describe_training(fitted.model, table, target)
    n_terms = len(fitted.model.features.term_feature)
    monkeypatch.setattr(price, "MAX_CELLS", n_terms * len(table) // 3)
    some = describe_training(fitted.model, table, target)
    # Every row is there three times; which of them is kept does not matter much.
    assert some.null_deviance == pytest.approx(whole.null_deviance, rel=0.1)
    assert some.n_samples == len(table)
