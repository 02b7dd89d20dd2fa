"""The numerics of survival, against counts and likelihoods written out by hand."""

import numpy as np
import pytest

from sknimo.survival import (
    TIES,
    Baseline,
    FollowUp,
    StepFunctions,
    concordance,
    expose,
    kaplan_meier,
    settle,
)

N = 60
LABELS = ("a", "b", "c")
# Central differences of a sum of sixty logarithms.
SLOPE_ERROR = 1e-7


def watch_rows(seed=0):
    """Tied times, late entries, strata and weights, one of which is zero."""
    rng = np.random.default_rng(seed)
    time = np.ceil(rng.exponential(6, N))
    late = rng.random(N) < 0.5
    entry = np.where(late, time - np.ceil(rng.exponential(3, N)), -np.inf)
    weight = rng.uniform(0.1, 2, N)
    weight[3] = 0
    return FollowUp(
        time, rng.random(N) < 0.7, entry, rng.integers(0, 3, N), weight, LABELS
    )


def write_out(rows, eta, ties):
    """Log partial likelihood, event by event and row by row."""
    total = 0.0
    for s in range(len(rows.labels)):
        for t in np.unique(rows.time):
            tied = [
                i
                for i in range(N)
                if rows.time[i] == t
                and rows.event[i]
                and rows.stratum[i] == s
                and rows.weight[i] > 0
            ]
            at_risk = [
                i
                for i in range(N)
                if rows.entry[i] < t <= rows.time[i] and rows.stratum[i] == s
            ]
            risk = sum(rows.weight[i] * np.exp(eta[i]) for i in at_risk)
            leaving = sum(rows.weight[i] * np.exp(eta[i]) for i in tied)
            mean = np.mean([rows.weight[i] for i in tied]) if tied else 0.0
            for k, i in enumerate(tied):
                left = k / len(tied) if ties == "efron" else 0.0
                total += rows.weight[i] * eta[i]
                total -= mean * np.log(risk - left * leaving)
    return total


def count_pairs(rows, risk):
    """Concordance, pair by pair."""
    right = pairs = 0.0
    for i in np.flatnonzero(rows.event):
        for j in range(N):
            outlives = rows.time[j] > rows.time[i] or (
                rows.time[j] == rows.time[i] and not rows.event[j]
            )
            same = rows.stratum[i] == rows.stratum[j]
            if i == j or not same or not outlives or rows.entry[j] >= rows.time[i]:
                continue
            both = rows.weight[i] * rows.weight[j]
            pairs += both
            right += both * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
    return right / pairs


@pytest.mark.parametrize("ties", TIES)
def test_score_of_counts_at_the_exposures_is_the_partial_score(ties):
    rows, eta = watch_rows(), np.random.default_rng(1).normal(size=N)
    score = rows.weight * (rows.event - np.exp(eta + expose(rows, eta, ties).offset))
    step = 1e-5
    slope = [
        write_out(rows, eta + step * row, ties)
        - write_out(rows, eta - step * row, ties)
        for row in np.eye(N)
    ]
    np.testing.assert_allclose(score, np.array(slope) / (2 * step), atol=SLOPE_ERROR)


@pytest.mark.parametrize("ties", TIES)
def test_a_constant_moves_from_eta_to_the_hazard(ties):
    rows, eta = watch_rows(), np.random.default_rng(1).normal(size=N)
    here, there = expose(rows, eta, ties), expose(rows, eta + 800, ties)
    np.testing.assert_allclose(here.offset - 800, there.offset, atol=1e-9)


def test_baseline_without_features_is_nelson_aalen():
    time, event = np.array([1.0, 2, 2, 3, 4]), np.array([1, 1, 0, 1, 0]) == 1
    whole = np.full(5, -np.inf)
    rows = FollowUp(time, event, whole, np.zeros(5, dtype=int), np.ones(5))
    found = expose(rows, np.zeros(5), "breslow").baseline
    np.testing.assert_array_equal(found.times[0], [1, 2, 3])
    np.testing.assert_allclose(found.hazard[0], np.cumsum([1 / 5, 1 / 4, 1 / 2]))


def test_efron_takes_tied_rows_out_one_by_one():
    rows = FollowUp(
        np.array([1.0, 1, 2]),
        np.array([True, True, False]),
        np.full(3, -np.inf),
        np.zeros(3, dtype=int),
        np.ones(3),
    )
    found = expose(rows, np.zeros(3), "efron")
    assert found.baseline.hazard[0][0] == pytest.approx(1 / 3 + 1 / 2)
    own = 1 / 3 + 0.5 * 1 / 2
    np.testing.assert_allclose(np.exp(found.offset), [own, own, 1 / 3 + 1 / 2])


def test_kaplan_meier_by_hand():
    time, event = np.array([1.0, 2, 2, 3, 4]), np.array([1, 1, 0, 1, 0]) == 1
    whole = np.full(5, -np.inf)
    rows = FollowUp(time, event, whole, np.zeros(5, dtype=int), np.ones(5))
    curve = np.exp(-kaplan_meier(rows).hazard[0])
    np.testing.assert_allclose(curve, np.cumprod([4 / 5, 3 / 4, 1 / 2]))


def test_concordance_counts_pairs():
    rows = watch_rows()
    risk = np.random.default_rng(2).normal(size=N).round(1)  # with ties
    assert concordance(rows, risk) == pytest.approx(count_pairs(rows, risk), rel=1e-12)
    plain = FollowUp(
        rows.time, rows.event, np.full(N, -np.inf), np.zeros(N, dtype=int), np.ones(N)
    )
    assert concordance(plain, risk) == pytest.approx(count_pairs(plain, risk))
    assert concordance(plain, plain.event - 2 * plain.time) == 1
    assert np.isnan(concordance(plain.take(~plain.event), risk[~plain.event]))


def test_settling_finds_the_fixed_point_of_a_slow_step():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    slow = basis @ np.diag(np.linspace(0, 0.98, 30) ** 8) @ basis.T
    goal, n_steps = rng.normal(size=30), 0

    def step(at):
        nonlocal n_steps
        n_steps += 1
        return goal + slow @ (at - goal)

    np.testing.assert_allclose(settle(step, np.zeros(30)), goal, atol=1e-7)
    assert n_steps < 100  # plain steps take 800


def test_step_functions_hold_their_value_until_the_next_time():
    times = np.array([1.0, 2]), np.array([3.0])
    hazard = np.array([0.1, 0.3]), np.array([0.2])
    baseline = Baseline(("m", "w"), times, hazard)
    values = baseline.at(np.array([0.5, 1, 2.5, 3]), np.array([0, 1]))
    np.testing.assert_array_equal(values, [[0, 0.1, 0.3, 0.3], [0, 0, 0, 0.2]])
    curves = StepFunctions(np.array([1.0, 2]), np.array([[0.9, 0.5], [0.8, 0.7]]), 1.0)
    assert len(curves) == len(list(curves)) == 2
    np.testing.assert_array_equal(curves[1]([0.5, 1, 1.5, 9]), [1, 0.8, 0.8, 0.7])
    np.testing.assert_allclose(curves.hazard, -np.log(curves.values))
    assert list(curves.to_frame().columns) == [1, 2]
    np.testing.assert_array_equal(np.asarray(curves[1:]), [[0.8, 0.7]])
