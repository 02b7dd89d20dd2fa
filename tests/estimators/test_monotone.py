"""A feature with a sign moves every prediction that way, whatever the others are."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from sknimo import (
    DataWarning,
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    NIMOSurvival,
    RowBlocks,
    load,
)
from sknimo.solver._tangent import Tangent

# Rounding of predictions whose sums have another order.
ROUNDING = 1e-12

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::sknimo.ExtrapolationWarning"),
]


@pytest.fixture(scope="module")
def rows():
    """`dose` rises for some and falls for others; `age` bends along a curve."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(300, 4)), columns=["dose", "age", "ward", "bmi"])
    eta = X["dose"] * (0.5 + np.tanh(X["ward"])) + np.exp(X["age"] / 2) - 0.6 * X["bmi"]
    return X, (eta + 0.3 * rng.normal(size=300)).to_numpy()


def check_signs(est, signs, predict):
    """Raise one feature at a time, near the rows and far from them."""
    rng = np.random.default_rng(1)
    for name, sign in signs.items():
        for distance in (1.0, 10.0):
            table = rng.normal(size=(100, 4)) * distance
            low = pd.DataFrame(table, columns=["dose", "age", "ward", "bmi"])
            high = low.copy()
            high[name] += rng.uniform(0, distance, 100)
            before = predict(low)
            change = sign * (predict(high) - before)
            assert (change >= -ROUNDING * np.abs(before).max()).all()


def test_predictions_move_one_way_everywhere(rows, tmp_path):
    X, y = rows
    free = NIMORegressor(max_iter=15, random_state=0).fit(X, y)
    with pytest.raises(AssertionError):  # what is asked for is not so by itself
        check_signs(free, {"dose": 1}, free.predict)
    signs = {"dose": 1, "bmi": -1}
    est = NIMORegressor(max_iter=15, random_state=0, monotone=signs).fit(X, y)
    assert est.model_.modulated.any()  # others are still bent
    assert est.coef_[0] > 0 > est.coef_[3]
    check_signs(est, signs, est.predict)
    est.save(tmp_path / "m.sknimo")
    again = load(tmp_path / "m.sknimo")
    assert again.monotone == signs
    assert np.array_equal(again.predict(X), est.predict(X))


@pytest.mark.parametrize("steps", [0, pytest.param(15, marks=pytest.mark.slow)])
def test_hazards_move_one_way_everywhere(steps, rows):
    X, y = rows[0][:100], rows[1][:100]
    rng = np.random.default_rng(2)
    times = np.column_stack([rng.exponential(np.exp(-y)), rng.uniform(size=100) < 0.7])
    signs = {"dose": 1, "bmi": 1}  # the rows want the other sign of bmi
    est = NIMOSurvival(max_iter=steps, tol=1.0, random_state=0, monotone=signs)
    with pytest.warns(DataWarning, match="other sign than monotone for 'bmi'"):
        est.fit(X, times)
    assert est.coef_[0] > 0 == est.coef_[3]
    check_signs(est, signs, est.predict)


@pytest.mark.slow
def test_log_odds_move_one_way_everywhere(rows):
    X, y = rows
    est = NIMOClassifier(max_iter=60, random_state=0, monotone={0: 1}).fit(X, y > 1)
    check_signs(est, {"dose": 1}, est.decision_function)


@pytest.mark.parametrize("family", ["gaussian", "poisson"])
def test_without_network_it_is_the_constrained_optimum(family, rows):
    X, y = rows
    y = y if family == "gaussian" else np.round(np.exp(y / 2))
    asked = {"dose": -1, "age": 1, "bmi": -1}
    est = NIMORegressor(family, penalty="ridge", max_iter=0, alpha=0.1, monotone=asked)
    with pytest.warns(DataWarning, match="other sign than monotone for 'dose'"):
        est.fit(X, y)
    Z = ((X - X.mean()) / X.std(ddof=0)).to_numpy()
    unit = y.std() if family == "gaussian" else 1.0
    target = (y - y.mean()) / unit if family == "gaussian" else y

    def objective(at):
        eta = at[0] + Z @ at[1:]
        loss = (target - eta) ** 2 / 2
        if family == "poisson":
            loss = np.exp(eta) - target * eta
        return loss.mean() + 0.05 * at[1:] @ at[1:]

    bounds = [(None, None), (None, 0), (0, None), (None, None), (None, 0)]
    exact = {"ftol": 1e-14, "gtol": 1e-10, "maxfun": 10_000}
    found = minimize(objective, np.zeros(5), bounds=bounds, options=exact)
    expected = found.x[1:] * unit / X.std(ddof=0).to_numpy()
    assert expected[0] == est.coef_[0] == 0
    np.testing.assert_allclose(est.coef_, expected, atol=1e-5)


def test_the_tangent_leaves_features_unbent(make_problem, make_params):
    problem = make_problem()
    params, active = make_params(problem.spec)[0], torch.tensor([0, 2])
    columns = torch.arange(4)
    tangent = Tangent(problem.spec, problem.inputs, problem.terms, columns, active)
    bent = Tangent(problem.spec, problem.inputs, problem.terms, columns, columns)
    design, every = tangent.design(params), bent.design(params)
    assert torch.equal(design[:, [1, 3]], problem.terms[:, [1, 3]])
    torch.testing.assert_close(design[:, [0, 2]], every[:, [0, 2]])
    coef = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    jacobian = tangent.jacobian(params, coef)
    torch.testing.assert_close(jacobian[:, :4], design)
    for k in range(0, len(params), 7):
        step = torch.zeros_like(params)
        step[k] = 1e-6
        rise = (tangent.design(params + step) - tangent.design(params - step)) @ coef
        torch.testing.assert_close(
            jacobian[:, 4 + k], rise / 2e-6, atol=1e-8, rtol=1e-6
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dose": 2}, "monotone['dose'] must be 1 for a feature that raises"),
        ({"dose": True}, "monotone['dose'] must be 1"),
        ({"dose": np.ones(2)}, "monotone['dose'] must be 1"),
        ({"dose": 1, 0: -1}, "monotone asks both signs of the feature 'dose'"),
        ({"doze": 1}, "monotone names the feature 'doze', which is none. The features"),
        ({9: 1}, "monotone names the feature 9"),
        ([1, 0, 0, 0], "monotone must be a dict of features and signs"),
        ({"sex": 1}, "Feature 'sex' holds categories, which have no order"),
        ({"age": 1}, "which a line has and a curve of basis='spline' need not have"),
    ],
)
def test_what_cannot_be_monotone_is_refused(given, words, rows):
    X, y = rows
    X = X.assign(sex=np.where(X["ward"] > 0, "f", "m"))
    est = NIMORegressor(max_iter=0, basis={"age": "spline"}, monotone=given)
    with pytest.raises(ValueError, match=re.escape(words)):
        est.fit(X, y)
    assert not hasattr(est, "model_")


def test_several_classes_are_refused(rows):
    X, y = rows
    est = NIMOClassifier(max_iter=0, monotone={"dose": 1})
    with pytest.raises(ValueError, match="y holds 3 classes, whose probabilities"):
        est.fit(X, np.digitize(y, [0, 2]))


def test_a_checkpoint_is_refused(rows, tmp_path):
    est = NIMORegressor(max_iter=0, monotone={"dose": 1}, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="more than one fit, and a checkpoint belongs"):
        est.fit(*rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 64, "max_iter": 10},
        {"reference": "mean", "basis": "linear"},
        {"missing": "indicator", "clip_inputs": "all", "batch_size": 0},
        {"rule": "1se", "position_code": "none"},
    ],
)
def test_searches_keep_signs_too(options, rows):
    X, y = rows
    signs = {"dose": 1, "age": 1}
    est = NIMORegressorCV(n_starts=2, random_state=0, monotone=signs, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        est.fit(X, y)
    check_signs(est, signs, est.predict)
    assert est.coef_[0] > 0 and est.coef_[1] > 0


@pytest.mark.slow
def test_searches_of_classes_and_blocks_keep_signs_too(rows):
    X, y = rows
    est = NIMOClassifierCV(n_starts=2, random_state=0, monotone={"dose": 1})
    est.fit(X, y > 1)
    check_signs(est, {"dose": 1}, est.decision_function)
    blocks = RowBlocks.from_arrays(X.to_numpy(), y)
    est = NIMORegressorCV(max_iter=5, random_state=0, monotone={0: 1}).fit(blocks)

    def predict(frame):
        return est.predict(frame.to_numpy())

    check_signs(est, {"dose": 1}, predict)


@pytest.mark.parametrize("cls", [NIMORegressor, NIMOSurvival])
def test_warnings_of_every_fit_point_at_the_caller(rows, cls):
    X, y = rows
    if cls is NIMOSurvival:
        y = np.column_stack([np.exp(-y), np.ones(len(y))])
    est = cls(monotone={"bmi": 1}, max_iter=2, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        est.fit(X, y)
    kinds = {item.category for item in caught}
    assert kinds == {ConvergenceWarning, DataWarning}
    assert {item.filename for item in caught} == {__file__}
