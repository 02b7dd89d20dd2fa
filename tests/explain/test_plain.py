"""The plain linear model: that of scikit-learn, on rows that it has not seen."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from sknimo.explain import plain_by_folds, plain_model, plain_name
from sknimo.families import REGISTERED

# Two solvers of the same convex problem.
TOL = 1e-5


def test_curves_become_lines_and_the_fit_is_that_of_ridge(make_mixed, draw_table):
    model = make_mixed()
    names = [model.features.names.index(name) for name in ("age", "dose")]
    rng = np.random.default_rng(0)
    table = np.tile(model.features.reference, (80, 1))
    table[:, names] += model.features.scale[names] * rng.normal(size=(80, 2))
    y = table[:, names[1]] ** 2 + rng.normal(size=80)
    found = plain_model(model, table, y)
    z = (table[:, names] - model.features.reference[names]) / model.features.scale[
        names
    ]
    # The mean of half squares and a ridge of one row: alpha is one, per sum of squares.
    expected = Ridge(alpha=1.0).fit(z, y).predict(z)
    np.testing.assert_allclose(found.eta(table), expected, rtol=TOL)


def test_classes_that_are_separated_leave_it_finite(make_model, draw_table):
    model = make_model(family="binomial")
    table = draw_table(model, 60)
    y = (table[:, 0] > model.features.reference[0]).astype(float)
    z = (table - model.features.reference) / model.features.scale
    found = plain_model(model, table, y)
    expected = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(z, y)
    np.testing.assert_allclose(found.eta(table), expected.decision_function(z), TOL)


def test_no_row_is_predicted_by_a_fit_that_has_seen_it(make_model, draw_table):
    model = make_model(n_features=2)
    table = draw_table(model, 40)
    rng = np.random.default_rng(1)
    y = rng.normal(size=40)
    before = plain_by_folds(model, table, y)
    for row in (0, 17, 39):
        changed = y.copy()
        changed[row] += 100.0
        after = plain_by_folds(model, table, changed)
        assert abs(after[row] - before[row]) < 1e-9
        assert np.abs(after - before).max() > 1.0


def test_copies_of_a_row_are_left_out_together(make_model, draw_table):
    model = make_model(n_features=3)
    table = draw_table(model, 20)
    y = np.random.default_rng(2).normal(size=20)
    twice = plain_by_folds(model, np.vstack([table, table]), np.r_[y, y])
    # Nothing is learned of a row from its copy: noise stays noise.
    assert np.corrcoef(twice, np.r_[y, y])[0, 1] < 0.3


def test_values_beyond_the_rows_stand_at_their_ends(make_model, draw_table):
    model = make_model()
    table = draw_table(model, 60)
    found = plain_model(model, table, model.eta(table))
    far = table[:1].copy()
    far[0, 0] = 1e9
    at_end = table[:1].copy()
    at_end[0, 0] = table[:, 0].max()
    assert found.eta(far) == pytest.approx(found.eta(at_end))


def test_rows_are_not_left_out_by_their_target(make_model, draw_table):
    """Few features and counts: a fold without the zeros of a cell would expect more."""
    model = make_model(family="poisson")
    rng = np.random.default_rng(0)
    table = np.round(draw_table(model, 600))
    y = rng.poisson(1.0, 600).astype(float)
    eta = plain_by_folds(model, table, y)
    assert abs(np.corrcoef(eta, y)[0, 1]) < 0.1


def test_models_are_called_as_people_call_them():
    called = {name: plain_name(family) for name, family in REGISTERED.items()}
    assert called["cox"] == "Cox regression"
    assert called["softmax"] == "multinomial logistic regression"
    assert called["negative_binomial"] == "negative binomial regression"
    assert called["gaussian"] == "linear model"
