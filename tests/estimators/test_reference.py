"""A search may leave the mean by its standard error: where the data ask for it."""

import numpy as np
import pytest
import torch

from sknimo import NIMOClassifierCV, NIMORegressorCV
from sknimo.datasets import make_nimo_classification, make_nimo_regression
from sknimo.search._reference import movable_features
from sknimo.families import get_family
from sknimo.features import FeatureOptions, fit_features
from sknimo.network import init_params, make_spec
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    Problem,
    fit_evidence,
    reference_step,
    start_state,
)

FEW = {"n_starts": 2, "max_iter": 40, "random_state": 0}


@pytest.fixture(scope="module")
def sample():
    """Simulated around zero; the rows have another mean."""
    return make_nimo_regression(setting=0, n_samples=300, random_state=101)


@pytest.fixture(scope="module")
def searched(sample):
    return NIMORegressorCV(**FEW).fit(sample.X, sample.y)


def test_the_centre_of_the_simulation_is_found_better_than_by_the_mean(
    searched, sample
):
    """Both features that matter are bent: the reference decides what can be fitted."""
    off = np.abs(sample.X.mean(axis=0)[:2])
    assert np.abs(searched.reference_[:2]).max() < 0.3 * off.max()


def test_it_never_leaves_the_mean_by_more_than_three_standard_errors(searched, sample):
    error = sample.X.std(axis=0) / np.sqrt(len(sample.X))
    away = np.abs(searched.reference_ - sample.X.mean(axis=0))
    assert (away <= 3.001 * error).all()


def test_new_rows_are_predicted_better_for_it(searched, sample):
    new = make_nimo_regression(setting=0, n_samples=1000, random_state=1)
    mean = NIMORegressorCV(**FEW, reference="mean").fit(sample.X, sample.y)
    moved_error, mean_error = (
        np.mean((est.predict(new.X) - new.y) ** 2) for est in (searched, mean)
    )
    assert moved_error < 0.7 * mean_error
    assert mean.reference_ == pytest.approx(sample.X.mean(axis=0))


def test_coefficients_are_the_gradient_at_the_reference_it_chose(searched):
    step = 1e-5
    for j, coef in enumerate(searched.coef_):
        rows = np.tile(searched.reference_, (2, 1))
        rows[:, j] += (-step, step)
        low, high = searched.predict(rows)
        assert (high - low) / (2 * step) == pytest.approx(coef, abs=1e-6)
    assert searched.predict([searched.reference_]) == pytest.approx(searched.intercept_)


def test_contributions_still_sum_to_the_prediction(searched, sample):
    model = searched.model_
    total = model.base_value + model.contributions(sample.X[:20]).sum(axis=1)
    assert total == pytest.approx(searched.predict(sample.X[:20]), rel=1e-12)


def test_without_a_network_the_reference_is_the_mean():
    data = make_nimo_regression(setting=4, n_samples=200, random_state=0)
    est = NIMORegressorCV(**FEW).fit(data.X, data.y)
    assert est.n_members_ == 0
    assert est.reference_ == pytest.approx(data.X.mean(axis=0))


def test_classes_keep_the_mean():
    data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    est = NIMOClassifierCV(n_starts=1, max_iter=10, random_state=0)
    est.fit(data.X, data.y)
    assert est.reference_ == pytest.approx(data.X.mean(axis=0))


def test_only_lines_through_several_values_move():
    generator = np.random.default_rng(0)
    table = generator.normal(size=(50, 5))
    table[:, 1] = table[:, 1] > 0  # two values: its mode is the reference
    table[:, 2] = 7.0
    table[:, 4] = table[:, 4] * 1e-3 + 1e13  # a float cannot hold its mean
    with pytest.warns(UserWarning, match="Constant column"):
        features = fit_features(
            table,
            list("abcde"),
            np.ones(50),
            (None,) * 5,
            FeatureOptions(basis={"d": "spline"}),
        )
    assert movable_features(features, table).tolist() == [True] + [False] * 4


@pytest.mark.parametrize(
    "options", [{}, {"input_scaling": "rank_gauss"}, {"clip_inputs": True}]
)
def test_terms_and_inputs_vanish_at_a_moved_reference(options):
    table = np.random.default_rng(0).normal(size=(80, 2))
    features = fit_features(
        table, ["a", "b"], np.ones(80), (None, None), FeatureOptions(**options)
    )
    point = features.reference + [0.2, 0.0]
    moved = features.around(point)
    assert moved.reference.tolist() == point.tolist()
    assert not moved.terms(point[None]).any()
    assert not moved.inputs(point[None]).any()
    steps = moved.terms(table) - features.terms(table)
    assert steps[:, 0] == pytest.approx(-0.2 / features.scale[0])
    assert not steps[:, 1].any()


def test_a_curve_cannot_move():
    table = np.random.default_rng(0).normal(size=(80, 1))
    features = fit_features(
        table, ["a"], np.ones(80), (None,), FeatureOptions(basis="spline")
    )
    with pytest.raises(TypeError, match="Spline basis cannot move"):
        features.around(features.reference + 1)


def test_the_step_is_that_of_the_joint_least_squares_problem():
    """Against the dense normal equations with numerical derivatives."""
    generator = np.random.default_rng(3)
    z = torch.as_tensor(generator.normal(size=(60, 2)))
    y = (z[:, 0] - 0.2) * (1 + torch.tanh(2 * z[:, 1])) + 0.3 * z[:, 1]
    spec = make_spec([0, 1], 2, (2, 2))

    def state_at(shift):
        return Problem.in_memory(
            terms=z - shift,
            inputs=z - shift,
            term_feature=torch.arange(2),
            y=y,
            offset=torch.zeros(60, dtype=torch.float64),
            family=get_family("gaussian"),
            spec=spec,
        )

    problem, weight = state_at(torch.zeros(2)), torch.ones(60, dtype=torch.float64)
    everything = torch.ones(2, dtype=torch.bool)
    params = init_params(spec, [0])[0]
    params = params + 0.3 * torch.randn(
        len(params), generator=torch.Generator().manual_seed(0)
    )
    start = Coefficients(torch.ones(1, 2).double(), torch.zeros(1).double())
    state = start_state(problem, weight, params, start, everything, everything)
    state = fit_evidence(problem, weight, state, EvidenceOptions(max_iter=12))

    def eta(theta):
        """Intercept, coefficients, shift of the terms alone, then the weights."""
        from sknimo.network import Modulator

        modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)
        active = torch.arange(2).unsqueeze(0)
        g = modulator(theta[5:].unsqueeze(0), z, active)[0]
        return theta[0] + ((z - theta[3:5]) * (1 + g) * theta[1:3]).sum(1)

    theta = torch.cat(
        [state.intercept.reshape(1), state.coef, torch.zeros(2), state.params]
    )
    jacobian = torch.autograd.functional.jacobian(eta, theta)
    sizes = [int(np.prod(shape)) for shape in list(spec.shapes.values())[1:]]
    owner = [0, 1] * spec.hidden[0]
    for block, size in enumerate(sizes):
        owner += [2 + block] * size
    precision = torch.cat(
        [
            torch.zeros(1),
            state.coef_precision[:2],
            torch.full((2,), 60.0),
            state.params_precision[torch.tensor(owner)],
        ]
    ).double()
    normal = jacobian.T @ jacobian / state.dispersion + torch.diag(precision)
    pull = jacobian.T @ (y - eta(theta)) / state.dispersion - precision * theta
    expected = torch.linalg.solve(normal, pull)[3:5]
    step = reference_step(
        problem,
        weight,
        state,
        everything,
        torch.zeros(2).double(),
        EvidenceOptions(),
    )
    assert expected[0] > 0.01
    torch.testing.assert_close(step, expected, rtol=1e-6, atol=1e-9)
