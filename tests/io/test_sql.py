"""SQL scores as `predict` does, and a card of points comes as near as it says."""

import sqlite3
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sknimo import NIMOClassifier, NIMORegressor, NIMOSurvival
from sknimo.datasets import make_nimo_survival
from sknimo.io import build_sql

# Both compute in doubles, in another order.
TOL = 1e-9
KINDS = (
    *("linear", "residue", "constant", "polynomial", "spline", "levels", "clipped"),
    *("or_missing", "levels_or_missing", "ramps", "drawn"),
)


def run(query, frame, table="data"):
    """The rows of a query in SQLite, as columns."""
    with sqlite3.connect(":memory:") as base:
        frame.to_sql(table, base, index=False)
        return pd.read_sql_query(query, base)


def rows_of(features, seed=0, n_rows=400):
    """Values within and far outside the ranges, codes for levels, some missing."""
    rng = np.random.default_rng(seed)
    table = features.reference + features.scale * rng.normal(
        0, 4, (n_rows, len(features.names))
    )
    for j in range(features.n_features):
        levels = features.levels(j)
        if levels is not None:
            table[:, j] = rng.integers(len(levels), size=n_rows)
        if features.admits_missing[j]:
            table[rng.random(n_rows) < 0.2, j] = np.nan
    return table


def as_frame(features, table):
    """The same with levels as they are called."""
    frame = pd.DataFrame(table, columns=list(features.names))
    for j, name in enumerate(features.names):
        levels = features.levels(j)
        if levels is not None:
            codes = table[:, j]
            frame[name] = [None if np.isnan(c) else levels[int(c)] for c in codes]
    return frame


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_every_basis_scores_as_the_model_does(make_model, family):
    model = make_model(KINDS, family=family)
    model = replace(model, modulated=model.modulated & False)
    table = rows_of(model.features)
    found = run(build_sql(model, table="data"), as_frame(model.features, table))
    eta = model.eta(table)
    bound = TOL * np.maximum(np.abs(eta), 1)
    assert (np.abs(found["sknimo_eta"] - eta) <= bound).all()
    np.testing.assert_allclose(found["prediction"], model.mean(table), rtol=1e-7)


@pytest.fixture(scope="module")
def patients():
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 12, n).round(),
            'the "dose"': rng.gamma(2, 10, n),
            "ward": rng.choice(["north", "south's", "o"], n),
        }
    )
    frame.loc[rng.random(n) < 0.1, "age"] = np.nan
    risk = 0.05 * (frame["age"].fillna(60) - 50) + (frame["ward"] == "north")
    return frame, (risk + rng.logistic(size=n) > 0.5).map({True: "ill", False: "well"})


@pytest.fixture(scope="module")
def glm(patients):
    est = NIMOClassifier(basis="spline", missing="indicator", max_iter=0, alpha=1e-3)
    return est.fit(*patients)


def test_a_classifier_gives_labels_and_probabilities(glm, patients, tmp_path):
    frame = patients[0]
    query = glm.to_sql(tmp_path / "m.sql", table="my patients")
    assert (tmp_path / "m.sql").read_text() == query
    found = run(query, frame, "my patients")
    assert found["prediction"].tolist() == glm.predict(frame).tolist()
    chance = glm.predict_proba(frame)[:, 1]
    np.testing.assert_allclose(found["probability_well"], chance, rtol=TOL)
    np.testing.assert_array_equal(found["ward"], frame["ward"])


def test_what_the_model_refuses_is_null(glm, patients):
    odd = patients[0].head(2).assign(ward=["west", None])
    assert run(glm.to_sql(), odd)["sknimo_eta"].isna().all()
    kind = NIMOClassifier(**glm.get_params()).set_params(handle_unknown="reference")
    kind.fit(*patients)
    found = run(kind.to_sql(), odd)["sknimo_eta"]
    known = odd.head(1).assign(
        ward=kind.model_.features.levels(2)[int(kind.reference_[2])]
    )
    assert found[0] == pytest.approx(kind.decision_function(known)[0])
    assert found[1] == pytest.approx(kind.decision_function(odd.tail(1))[0])


def test_gaps_that_the_model_takes_for_the_reference_are_no_null(patients):
    frame = patients[0].dropna().assign(ward=lambda each: each["ward"].astype(str))
    how = {"missing": "indicator", "handle_unknown": "reference"}
    est = NIMORegressor(max_iter=0, **how).fit(frame, np.arange(len(frame)) % 7)
    odd = frame.head(len(frame.columns)).reset_index(drop=True).astype(object)
    for k in range(len(odd)):
        odd.iloc[k, k] = None
    found = run(est.to_sql(), odd)["prediction"]
    np.testing.assert_allclose(found, est.predict(odd), rtol=TOL)


def test_a_network_is_refused_or_approximated_with_the_error(patients):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] * (1 + 0.5 * X[:, 1]) + 0.1 * rng.normal(size=300)
    est = NIMORegressor(random_state=0, max_iter=60, tol=1.0, patience=6).fit(X, y)
    with pytest.raises(ValueError, match=r"a network bends .*'x0'.*give X to to_sql"):
        est.to_sql()
    with pytest.raises(ValueError, match="A scorecard adds up features"):
        est.scorecard()
    query = est.to_sql(X=X)
    found = run(query, pd.DataFrame(X, columns=["x0", "x1"]))["prediction"]
    off = np.abs(found - est.predict(X))
    stated = float(query.split("largest error ")[1].split(".\n")[0])
    assert off.max() == pytest.approx(stated, rel=0.01)


def test_rows_to_approximate_on_must_show_what_the_model_knows(patients):
    frame = patients[0]
    age, north = frame["age"].fillna(60) - 50, frame["ward"] == "north"
    how = {"missing": "indicator", "handle_unknown": "reference"}
    est = NIMORegressor(max_iter=3, tol=1.0, random_state=0, **how)
    est.fit(frame, age * (0.1 + north))
    with pytest.raises(ValueError, match="no row with ward = 'north', which the model"):
        est.to_sql(X=frame[~north])
    with pytest.raises(ValueError, match="no row with a missing value of age, which"):
        est.to_sql(X=frame.dropna())
    found = run(est.to_sql(X=frame), frame)["prediction"]
    assert np.corrcoef(found, est.predict(frame))[0, 1] > 0.9


def score(card, frame):
    """Points of every row, by the words of the card."""
    total = np.zeros(len(frame))
    for row in card.rows:
        column = frame[row.feature]
        if row.value == "missing":
            hit = column.isna()
        elif column.dtype.kind == "f":
            low = -np.inf if row.low is None else row.low
            high = np.inf if row.high is None else row.high
            hit = (column >= low) & (column < high)
        else:
            hit = column == row.value
        total += row.points * hit
    return total


def test_points_add_up_to_the_prediction_within_the_stated_error(glm, patients):
    frame = patients[0]
    card = glm.scorecard()
    points = score(card, frame)
    off = card.base + card.unit * points - glm.decision_function(frame)
    assert np.abs(off).max() <= card.error * (1 + 1e-9) + 0.02  # of ranges by a grid
    assert points.min() >= 0 and points.max() <= card.most
    assert card.unit * 20 == pytest.approx(np.log(2))
    chance = glm.predict_proba(frame)[:, 1]
    assert np.corrcoef(card.predict(points), chance)[0, 1] > 0.9


def test_the_card_is_a_table(glm):
    card = glm.scorecard(max_ranges=3)
    lines = card.to_csv().splitlines()
    assert (
        lines[0] == "feature,value,from,below,points"
        and len(lines) == len(card.rows) + 1
    )
    assert sum(row.feature == "age" for row in card.rows) <= 4  # and missing values
    text = card.to_markdown()
    assert "| sum of points | probability |" in text and "south's" in text


def test_columns_of_two_whole_numbers_have_a_row_for_each():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"sick": rng.random(80) < 0.3, "sex": rng.integers(1, 3, 80)})
    X["share"], X["visits"] = rng.random(80).round(2), rng.integers(0, 3, 80)
    X["side"] = np.where(rng.random(80) < 0.2, np.nan, rng.integers(0, 2, 80))
    est = NIMORegressor(alpha=0, max_iter=0, missing="indicator")
    card = est.fit(X, X.fillna(2) @ [3, 2, 1, 1, 1]).scorecard()
    rows = [(r.value, r.low, r.high) for r in card.rows if r.feature == "sick"]
    assert rows == [("0", None, None), ("1", None, None)]
    values = {name: [r.value for r in card.rows if r.feature == name] for name in X}
    assert values["sex"] == ["1", "2"] and values["side"] == ["0", "1", "missing"]
    assert min(len(values["share"]), len(values["visits"])) > 3
    gap = 3 / card.unit
    assert card.rows[1].points - card.rows[0].points == pytest.approx(gap, abs=1)


def test_a_column_of_the_table_is_not_taken_for_the_linear_predictor():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"eta": rng.normal(size=50), "x": rng.normal(size=50)})
    est = NIMORegressor(family="poisson", max_iter=0, alpha=0.0)
    est.fit(X, rng.poisson(np.exp(X["x"] + X["eta"])).astype(float))
    found = run(est.to_sql(), X)["prediction"]
    np.testing.assert_allclose(found, est.predict(X), rtol=1e-9)


def test_ranges_of_a_card_keep_the_digits_that_numbers_far_from_zero_need():
    time = 1.6e9 + np.arange(60.0)
    est = NIMORegressor(max_iter=0, alpha=1e-4).fit(time[:, None], np.arange(60.0))
    card = est.scorecard()
    lines = [line.split(",") for line in card.to_csv().splitlines()[1:]]
    ends = [float(line[2]) for line in lines[1:]]
    assert ends == [row.low for row in card.rows[1:]] == sorted({*ends})
    words = [line[1].split()[0] for line in lines[1:]]
    assert [float(word) for word in words] == ends


def test_survival_exports_predict_the_log_hazard(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    data = make_nimo_survival(n_samples=60, random_state=0)
    est = NIMOSurvival(max_iter=0, alpha=0.01).fit(data.X, data.y)
    frame = pd.DataFrame(data.X, columns=est.model_.features.names)
    found = run(est.to_sql(), frame)
    np.testing.assert_allclose(found["prediction"], est.predict(data.X), rtol=TOL)
    np.testing.assert_allclose(np.log(found["hazard_ratio"]), found["prediction"])
    est.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (made,) = session.run(["prediction"], {"X": data.X})
    np.testing.assert_allclose(made, est.predict(data.X), rtol=1e-9)
    assert "| hazard ratio |" in est.scorecard().to_markdown()
