"""Ranges of coefficients and effects hold 90 % of the rows that `explain` explains."""

import numpy as np
import pandas as pd
import pytest

from sknimo import NIMORegressor
from sknimo.explain import coefficient_ranges, effects


@pytest.fixture(scope="module")
def mixed():
    """A brief fit with every kind of coefficient, and its rows."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, 200),
            "ward": rng.choice(["A", "B", "C"], 200),
            "age": np.where(rng.random(200) < 0.1, np.nan, rng.normal(60, 10, 200)),
            "smokes": rng.integers(0, 2, 200).astype(float),
        }
    )
    y = 0.1 * X["dose"] * (1 + 0.05 * (X["age"].fillna(60) - 60)) + (X["ward"] == "B")
    est = NIMORegressor(missing="indicator", tol=1.0, patience=3, random_state=0)
    return est.fit(X, y + X["smokes"] * (X["ward"] == "A")), X


def outside(values, ends):
    """Shares of the known values below and above two ends."""
    known = values[~np.isnan(values)]
    return [(known < ends[0]).mean(), (known > ends[1]).mean()]


def find_ranges(est, X, **options):
    found = coefficient_ranges(
        est.model_, est._read_table(X), swap=est._facts.swap, **options
    )
    names = est.model_.features.coef_names
    return {
        name: (found.local_coef[at], found.local_effect[at])
        for at, name in enumerate(names)
    }


def test_slopes_have_the_local_quantities_of_90_percent_of_the_rows(mixed):
    est, X = mixed
    found, rows = find_ranges(est, X), est.explain(X)
    for name in ("dose", "age"):
        local_coef, local_effect = found[name]
        j = rows.column(name)
        assert outside(rows.local_coef[:, j], local_coef) == pytest.approx(
            [0.05, 0.05], abs=0.006
        )
        assert outside(rows.local_effect[:, j], local_effect) == pytest.approx(
            [0.05, 0.05], abs=0.006
        )


def test_levels_have_the_contrasts_of_90_percent_of_the_rows(mixed):
    est, X = mixed
    features = est.model_.features
    j = features.names.index("ward")
    baseline = features.levels(j)[int(features.reference[j])]
    found = find_ranges(est, X)
    for level in {"A", "B", "C"} - {baseline}:
        change = est.predict(X.assign(ward=level)) - est.predict(
            X.assign(ward=baseline)
        )
        share = outside(change, found[f"ward[{level}]"][1])
        assert share == pytest.approx([0.05, 0.05], abs=0.006)


def test_missing_is_a_contrast_with_the_reference(mixed):
    est, X = mixed
    reference = float(est.model_.features.reference[2])
    change = est.predict(X.assign(age=np.nan)) - est.predict(X.assign(age=reference))
    share = outside(change, find_ranges(est, X)["age[missing]"][1])
    assert share == pytest.approx([0.05, 0.05], abs=0.006)


def test_two_values_are_compared_and_not_differentiated(mixed):
    est, X = mixed
    change = est.predict(X.assign(smokes=1.0)) - est.predict(X.assign(smokes=0.0))
    share = outside(change, find_ranges(est, X)["smokes"][1])
    assert share == pytest.approx([0.05, 0.05], abs=0.006)


def test_weights_are_repetitions(mixed):
    est, X = mixed
    weight = np.random.default_rng(1).integers(0, 3, len(X))
    weighted = find_ranges(est, X, weight=weight.astype(float))
    repeated = find_ranges(est, X.loc[X.index.repeat(weight)])
    for name, ends in weighted.items():
        assert ends[0] == pytest.approx(repeated[name][0], rel=1e-9, abs=1e-12)
        assert ends[1] == pytest.approx(repeated[name][1], rel=1e-9, abs=1e-12)


def test_averages_lie_within_their_range(mixed):
    est, X = mixed
    table, swap = est._read_table(X), est._facts.swap
    found = effects(est.model_, table, swap=swap)
    low, high = find_ranges(est, X)["dose"][1]
    assert low < found.average_effect[0] < high


def test_a_column_without_a_known_value_has_no_range_of_slopes(mixed):
    est, X = mixed
    found = find_ranges(est, X.assign(age=np.nan))
    assert np.isnan(found["age"][1]).all()
    assert np.isfinite(found["age[missing]"][1]).all()
