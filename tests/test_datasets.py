"""The simulated settings are those of the paper, and the truth they state is true.

The formulas are typed here a second time, term by term and one row at a time, from
the paper rather than from the library.
"""

from dataclasses import FrozenInstanceError, fields
from math import atan, cos, exp, pi, sin, tanh

import numpy as np
import pytest

from sknimo.datasets import (
    SyntheticData,
    make_nimo_classification,
    make_nimo_regression,
    make_self_interaction,
    nimo_signal,
)

STEP = 1e-5
FD_ATOL = 1e-8  # along an axis through 0 the signal is a line: only rounding is left
RTOL = 1e-12  # float64: only the order of operations differs
N_MANY = 100_000  # standard error of a proportion below .0016


def logistic(z):
    return 1 / (1 + exp(-z))


def arctan_bounded(z):
    return 2 / pi * atan(z)


# Each returns the terms of the features it names (numbered from 1), then the intercept.
def toy(x):
    return {
        1: 3 * x[1] * (1 + tanh(10 * x[2])),
        2: -3 * x[2] * (1 + sin(-2 * x[1])),
    }, 0.0


def regression_1(x):
    return {
        1: 3 * x[1] * (1 + (2 * logistic(x[2] * x[3]) - 1)),
        2: -2 * x[2],
        3: 2 * x[3],
    }, 0.0


def regression_2(x):
    return {
        1: x[1] * (1 + tanh(x[2] * x[3] + sin(x[4]))),
        2: 2 * x[2] * (1 + sin(2 * x[1])),
        3: -x[3] * (1 + arctan_bounded(x[2] * x[4])),
    }, 0.0


def regression_3(x):
    return {
        1: -2 * x[1] * (1 + tanh(x[2] * x[4])),
        2: 2 * x[2] * (1 + arctan_bounded(x[4] - x[5])),
        4: 3 * x[4] * (1 + tanh(x[2] + sin(x[5]))),
        5: -x[5] * (1 + (2 * logistic(x[1] * x[4]) - 1)),
    }, 0.0


def vanilla(x):
    slopes = {1: -5, 2: -4, 3: -3, 4: -2, 5: -1, 6: 0, 7: 1, 8: 2, 9: 3, 10: 4}
    return {j: slope * x[j] for j, slope in slopes.items()}, 0.0


def classification_1(x):
    return {
        1: 2 * x[1] * (1 + 2 * tanh(x[2])),
        2: -2 * x[2] * (1 + 3 * sin(2 * x[1]) + tanh(2 * x[1])),
    }, 1.0


def classification_2(x):
    return {
        1: 10 * x[1] * (1 + 2 * tanh(2 * x[2]) + sin(x[4])),
        2: 20 * x[2] * (1 + 2 * cos(2 * x[1])),
        3: -20 * x[3] * (1 + 2 * atan(x[2] * x[4])),
        4: 10 * x[4],
    }, -10.0


def classification_3(x):
    return {
        1: -20 * x[1] * (1 + tanh(x[2] * x[4])),
        2: 20 * x[2] * (1 + arctan_bounded(x[4] - x[5])),
        4: 30 * x[4] * (1 + tanh(x[2] + sin(x[5]))),
        5: -10 * x[5] * (1 + (2 * logistic(x[1] * x[4]) - 1)),
    }, 0.0


def squares(x):
    return {j: x[j] ** 2 for j in (1, 2, 3)}, 0.0


def case(make, n_features, formula, **kwargs):
    name = "-".join([make.__name__, *map(str, kwargs.values())])
    return pytest.param(make, kwargs, n_features, formula, id=name)


CASES = [
    case(make_nimo_regression, 3, toy, setting=0),
    case(make_nimo_regression, 5, regression_1, setting=1),
    case(make_nimo_regression, 10, regression_2, setting=2),
    case(make_nimo_regression, 50, regression_3, setting=3),
    case(make_nimo_regression, 10, vanilla, setting=4),
    case(make_nimo_classification, 3, classification_1, setting=1),
    case(make_nimo_classification, 10, classification_2, setting=2),
    case(make_nimo_classification, 50, classification_3, setting=3),
    case(make_self_interaction, 3, squares),
]
every_setting = pytest.mark.parametrize("make, kwargs, n_features, formula", CASES)
every_maker = pytest.mark.parametrize(
    "make", [make_nimo_regression, make_nimo_classification, make_self_interaction]
)


def terms(formula, row):
    """Evaluate the formula at one row; (p,) terms and the intercept."""
    by_number, intercept = formula([None, *row.tolist()])
    out = np.zeros(len(row))
    for number, value in by_number.items():
        out[number - 1] = value
    return out, intercept


def eta(formula, row):
    values, intercept = terms(formula, row)
    return values.sum() + intercept


@every_setting
def test_signal_is_the_formula_of_the_paper(make, kwargs, n_features, formula):
    data = make(**kwargs, random_state=0)
    assert data.X.shape == (200, n_features)
    expected = [eta(formula, row) for row in data.X]
    assert data.signal == pytest.approx(expected, rel=RTOL, abs=RTOL)


@pytest.mark.parametrize("make, kwargs, n_features, formula", CASES[:-1])
def test_the_signal_can_be_evaluated_anywhere(make, kwargs, n_features, formula):
    rows = np.random.default_rng(1).uniform(-3, 3, (20, n_features))
    classes = make is make_nimo_classification
    signal = nimo_signal(kwargs["setting"], rows, classification=classes)
    expected = [eta(formula, row) for row in rows]
    assert signal == pytest.approx(expected, rel=RTOL, abs=RTOL)


def test_rows_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"setting 2 has 10 features; .* \(4, 3\)"):
        nimo_signal(2, np.zeros((4, 3)))


@every_setting
def test_coef_is_the_gradient_at_the_reference(make, kwargs, n_features, formula):
    data = make(**kwargs, random_state=0)
    steps = STEP * np.eye(n_features)
    gradient = [(eta(formula, h) - eta(formula, -h)) / (2 * STEP) for h in steps]
    assert data.coef == pytest.approx(gradient, abs=FD_ATOL)
    assert data.active.tolist() == np.flatnonzero(np.abs(gradient) > 0.5).tolist()


@every_setting
def test_intercept_is_the_signal_at_the_reference(make, kwargs, n_features, formula):
    data = make(**kwargs, random_state=0)
    assert data.intercept == eta(formula, np.zeros(n_features))


@every_setting
def test_contributions_are_the_terms_and_sum_to_the_signal(
    make, kwargs, n_features, formula
):
    data = make(**kwargs, random_state=0)
    expected = np.array([terms(formula, row)[0] for row in data.X])
    assert data.contributions == pytest.approx(expected, rel=RTOL, abs=RTOL)
    total = data.contributions.sum(axis=1) + data.intercept
    assert total == pytest.approx(data.signal, rel=RTOL, abs=RTOL)


@every_setting
def test_modulating_features_are_those_that_move_the_terms_of_others(
    make, kwargs, n_features, formula
):
    data = make(**kwargs, random_state=0)
    modulating = []
    for j in range(n_features):
        moved = data.X.copy()
        moved[:, j] *= -0.5
        change = [
            terms(formula, after)[0] - terms(formula, before)[0]
            for after, before in zip(moved[:10], data.X[:10], strict=True)
        ]
        if np.delete(change, j, axis=1).any():
            modulating.append(j)
    assert data.modulating.tolist() == modulating


def test_the_effect_of_x2_in_classification_2_is_sixty():
    # The paper prints 20 in front of a bracket that is 3 at the reference.
    assert make_nimo_classification(setting=2).coef[1] == 60


@every_setting
def test_features_are_uniform_between_minus_two_and_two(
    make, kwargs, n_features, formula
):
    X = make(**kwargs, n_samples=5000, random_state=0).X
    assert np.abs(X).max() <= 2
    # Quartiles at 5000 rows have standard errors below .03; this allows five.
    for level, quartile in [(0.25, -1), (0.5, 0), (0.75, 1)]:
        assert np.quantile(X, level, axis=0) == pytest.approx(
            np.full(n_features, quartile), abs=0.15
        )


@pytest.mark.parametrize("noise", [0.1, 2.5])
@pytest.mark.parametrize("make", [make_nimo_regression, make_self_interaction])
def test_noise_is_the_standard_deviation_around_the_signal(make, noise):
    data = make(n_samples=20_000, noise=noise, random_state=0)
    residual = data.y - data.signal
    assert residual.std() == pytest.approx(noise, rel=0.03)
    assert residual.mean() == pytest.approx(0, abs=0.03 * noise)


def test_default_noise_is_that_of_the_paper():
    regression = make_nimo_regression(n_samples=20_000, random_state=0)
    assert (regression.y - regression.signal).var() == pytest.approx(0.01, rel=0.05)
    squared = make_self_interaction(n_samples=20_000, random_state=0)
    assert (squared.y - squared.signal).var() == pytest.approx(1.0, rel=0.05)


def test_without_noise_the_target_is_the_signal():
    data = make_nimo_regression(setting=2, noise=0, random_state=0)
    assert (data.y == data.signal).all()


@pytest.mark.parametrize("setting, bayes", [(1, 0.895), (2, 0.988), (3, 0.990)])
def test_the_sign_of_the_logit_reaches_the_bayes_accuracy(setting, bayes):
    data = make_nimo_classification(setting, n_samples=N_MANY, random_state=0)
    assert (data.y == (data.signal > 0)).mean() == pytest.approx(bayes, abs=0.01)


def test_labels_are_drawn_with_the_logistic_probability_of_the_signal():
    data = make_nimo_classification(n_samples=N_MANY, random_state=0)
    for low in (-3, -2, -1, 0, 1, 2):
        bin_ = (data.signal >= low) & (data.signal < low + 1)
        expected = np.mean([logistic(z) for z in data.signal[bin_]])
        # Bins hold thousands of rows: standard errors stay below .01.
        assert data.y[bin_].mean() == pytest.approx(expected, abs=0.03)


def test_noise_on_the_logit_blurs_the_labels():
    sharp = make_nimo_classification(2, n_samples=5000, noise=0, random_state=0)
    blurred = make_nimo_classification(2, n_samples=5000, noise=50, random_state=0)
    assert (sharp.X == blurred.X).all()
    right = [(d.y == (d.signal > 0)).mean() for d in (sharp, blurred)]
    assert right[1] < right[0] - 0.1


@every_maker
def test_the_same_seed_gives_the_same_sample(make):
    first, second, other = (make(random_state=seed) for seed in (3, 3, 4))
    assert (first.X == second.X).all() and (first.y == second.y).all()
    assert not (first.X == other.X).any()


@every_maker
@pytest.mark.parametrize("source", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_accepted_and_advances(make, source):
    rng = source(3)
    first, second = make(random_state=rng), make(random_state=rng)
    again = make(random_state=source(3))
    assert (first.X == again.X).all() and (first.y == again.y).all()
    assert not (first.X == second.X).any()


def test_without_a_seed_samples_differ_and_global_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    first, second = make_nimo_regression(), make_nimo_regression()
    assert not (first.X == second.X).any()
    assert (np.random.get_state()[1] == before).all()


@every_maker
def test_return_X_y_gives_the_sample_alone(make):
    X, y = make(n_samples=30, random_state=0, return_X_y=True)
    data = make(n_samples=30, random_state=0)
    assert (X == data.X).all() and (y == data.y).all()


@every_setting
def test_fields_have_the_documented_types_and_shapes(make, kwargs, n_features, formula):
    data = make(**kwargs, n_samples=7, random_state=0)
    assert data.y.shape == data.signal.shape == (7,)
    assert data.contributions.shape == data.X.shape == (7, n_features)
    assert data.coef.shape == (n_features,)
    assert isinstance(data.intercept, float)
    assert data.names[0] == "x1" and data.names[-1] == f"x{n_features}"
    assert len(data.names) == n_features
    assert data.active.dtype.kind == data.modulating.dtype.kind == "i"
    is_label = make is make_nimo_classification
    assert data.y.dtype == (np.int64 if is_label else np.float64)


def test_labels_are_zero_and_one():
    for setting in (1, 2, 3):
        y = make_nimo_classification(setting, random_state=0).y
        assert set(y.tolist()) == {0, 1}


def test_the_record_is_frozen_and_documents_every_field():
    data = make_nimo_regression(n_samples=2)
    with pytest.raises(FrozenInstanceError):
        data.y = data.signal
    for field in fields(SyntheticData):
        assert f"    {field.name} : " in SyntheticData.__doc__


@pytest.mark.parametrize("n_features", [1, 6])
def test_self_interaction_squares_as_many_features_as_asked(n_features):
    data = make_self_interaction(n_features=n_features, random_state=0)
    assert data.signal == pytest.approx((data.X**2).sum(axis=1), rel=RTOL)
    assert data.active.size == data.modulating.size == 0


def test_an_unknown_setting_lists_the_valid_ones():
    with pytest.raises(ValueError, match="one of 0, 1, 2, 3, 4; got 5"):
        make_nimo_regression(setting=5)
    with pytest.raises(ValueError, match="one of 1, 2, 3; got 0"):
        make_nimo_classification(setting=0)


@every_maker
@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"n_samples": 0}, "n_samples must be at least 1; got 0"),
        ({"noise": -0.1}, "noise must not be negative; got -0.1"),
        ({"noise": float("nan")}, "noise must not be negative; got nan"),
    ],
)
def test_impossible_arguments_are_named_in_the_error(make, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


def test_self_interaction_needs_a_feature():
    with pytest.raises(ValueError, match="n_features must be at least 1; got 0"):
        make_self_interaction(n_features=0)
