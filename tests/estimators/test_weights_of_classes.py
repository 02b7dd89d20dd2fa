"""`class_weight` is a factor on row weights; coefficients reassemble predictions."""

import numpy as np
import pandas as pd
import pytest

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV
from sknimo.rows import RowBlocks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 2)) + [3.0, -1.0]
Y = np.where(X[:, 0] + RNG.normal(size=120) > 4.2, "ill", "well")
FAST = {"max_iter": 0, "alpha": 0.01}


def fit(weight=None, **params):
    return NIMOClassifier(**FAST, **params).fit(X, Y, sample_weight=weight)


def test_class_weights_are_row_weights():
    rows = np.where(Y == "ill", 3.0, 1.0)
    one = fit(class_weight={"ill": 3})
    np.testing.assert_array_equal(one.coef_, fit(rows).coef_)
    own = 1 + np.arange(120) % 3
    both = fit(own, class_weight={"ill": 3, "well": 1})
    np.testing.assert_allclose(both.coef_, fit(own * rows).coef_, rtol=1e-10)


def test_class_weights_add_no_observations():
    """Weights of rows that are integers repeat them; those of classes do not."""
    plain = fit().conf_int().std_err
    even = fit(class_weight={"ill": 4, "well": 4}).conf_int().std_err
    np.testing.assert_array_equal(even, plain)
    whole, other = (
        fit(class_weight={"ill": times, "well": 1}).conf_int().std_err
        for times in (3, 3.000001)
    )
    np.testing.assert_allclose(whole, other, rtol=1e-5)


def test_balanced_classes_weigh_the_same():
    n_ill = (Y == "ill").sum()
    assert n_ill < 40
    rows = np.where(Y == "ill", 60 / n_ill, 60 / (120 - n_ill))
    balanced = fit(class_weight="balanced")
    np.testing.assert_allclose(balanced.coef_, fit(rows).coef_, rtol=1e-9)
    # At the optimum probabilities average to the share of the class: one half.
    chance = balanced.predict_proba(X)[:, 0]
    assert np.average(chance, weights=rows) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("even", "class_weight must be one of 'balanced'"),
        (2.0, "class_weight must be 'balanced', None or a dict"),
        ({"sick": 1}, "names the class 'sick'; the classes are"),
        ({"ill": -1}, "class_weight"),
    ],
)
def test_weights_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        fit(class_weight=given)


def test_rows_in_blocks_have_weights_of_their_own():
    with pytest.raises(ValueError, match="class_weight needs the classes of all rows"):
        NIMOClassifier(class_weight="balanced").fit(RowBlocks.from_arrays(X, Y))


def test_coefficients_and_the_intercept_at_zero_make_the_linear_predictor():
    est = NIMORegressor(**FAST).fit(X, X @ [1.0, 2.0] + 5)
    np.testing.assert_allclose(X @ est.coef_ + est.intercept_at_zero_, est.predict(X))
    frame = pd.DataFrame({"a": X[:, 0], "kind": Y})
    est = NIMORegressor(**FAST).fit(frame, X[:, 1] + (Y == "ill"))
    design = np.c_[X[:, 0], Y == "ill"]
    found = design @ est.coef_ + est.intercept_at_zero_
    np.testing.assert_allclose(found, est.predict(frame))


@pytest.mark.parametrize("cls", [NIMORegressor, NIMORegressorCV])
def test_a_refusal_of_labels_names_the_twin_of_the_class(cls):
    twin = cls.__name__.replace("Regressor", "Classifier")
    with pytest.raises(ValueError, match=rf"Use {twin} for labels"):
        cls().fit(X, Y)
