"""Estimators on mixed data frames: every explanation, in pandas and polars.

The oracles here only call `predict`, on frames in which single cells were replaced.
"""

import warnings

import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import shap
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMOClassifier, NIMOClassifierCV, NIMORegressor, NIMORegressorCV

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

TOL = 1e-10
LEVELS = ("north <1>", "south & $west$", "é\n年")


def draw_frame(n_rows=90, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": 50 + 12 * rng.normal(size=n_rows),
            "bmi": np.where(
                rng.random(n_rows) < 0.15, np.nan, rng.normal(26, 4, n_rows)
            ),
            "dose": rng.uniform(0, 40, n_rows),
            "sex": rng.choice(["man", "woman"], n_rows),
            "region": rng.choice([*LEVELS, None], n_rows, p=[0.4, 0.3, 0.2, 0.1]),
            "smoker": rng.random(n_rows) < 0.3,
        }
    )


def draw_target(X, seed=1):
    rng = np.random.default_rng(seed)
    dose, age = (X["dose"] - 20) / 12, (X["age"] - 50) / 12
    man, south = X["sex"] == "man", X["region"] == LEVELS[1]
    eta = dose * (1 + 0.8 * south) + 0.6 * man * (1 + np.tanh(age)) + 0.5 * dose**2
    return (eta + 0.5 * X["region"].isna() + 0.2 * rng.normal(size=len(X))).to_numpy()


@pytest.fixture(scope="module")
def fits():
    X = draw_frame()
    y = draw_target(X)
    options = dict(
        missing="indicator",
        basis={"dose": "poly2", "bmi": "spline"},
        random_state=0,
    )
    brief = dict(alpha=0.002, network_alpha=0.2, hidden=(6, 6), max_iter=60)
    estimators = {
        "regressor": NIMORegressor(**options, **brief),
        "classifier": NIMOClassifier(**options, **brief),
        "regressor search": NIMORegressorCV(**options, n_starts=1, cv=3),
        "classifier search": NIMOClassifierCV(**options, n_starts=1, cv=3),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name, est in estimators.items():
            labels = np.where(y > np.median(y), "yes", "no")
            est.fit(X, labels if name.startswith("classifier") else y)
    return X, estimators


@pytest.fixture(
    params=["regressor", "classifier", "regressor search", "classifier search"]
)
def fit(request, fits):
    X, estimators = fits
    return X, estimators[request.param]


def eta(est, X):
    """Linear predictor through the public surface alone."""
    if hasattr(est, "decision_function"):
        return est.decision_function(X)
    return est.predict(X)


def reference_row(est, X):
    row = X.iloc[[0]].copy()
    for j, name in enumerate(X.columns):
        levels = est.model_.features.levels(j)
        value = est.reference_[j]
        row[name] = value if levels is None else levels[int(value)]
    return row


@pytest.mark.slow
def test_the_table_equals_contrasts_of_predict_at_the_reference(fit):
    X, est = fit
    row = reference_row(est, X)
    base = eta(est, row)
    assert base[0] == pytest.approx(est.intercept_, abs=TOL)
    coef = dict(zip(est.coef_names_, est.coef_, strict=True))
    for name in ("sex", "region"):
        for level in X[name].dropna().unique():
            if level != row[name].iloc[0]:
                change = eta(est, row.assign(**{name: level})) - base
                assert coef[f"{name}[{level}]"] == pytest.approx(change[0], abs=TOL)
    for name in ("bmi", "region"):
        change = eta(est, row.assign(**{name: [None]}).astype(X.dtypes)) - base
        assert coef[f"{name}[missing]"] == pytest.approx(change[0], abs=TOL)
    for name in ("age", "dose", "smoker"):
        at, step = float(row[name].iloc[0]), 1e-2

        def along(x, name=name):
            return eta(est, row.assign(**{name: float(x)}))[0]

        near, far = (along(at + k * step) - along(at - k * step) for k in (1, 2))
        assert coef[name] == pytest.approx((8 * near - far) / (12 * step), abs=TOL)


def test_every_explanation_works_and_agrees_between_libraries(fit):
    X, est = fit
    other = pl.from_pandas(X)
    for method in ("min_energy", "native", "integrated_gradients", "shapley"):
        rows = X.iloc[:4]
        found = est.explain(rows, method=method)
        assert found.eta == pytest.approx(eta(est, rows), abs=TOL)
        again = est.explain(other[:4], method=method)
        assert (again.values == found.values).all()
        for quantity in ("values", "local_coef", "local_effect", "data"):
            assert isinstance(found.to_frame(quantity), pd.DataFrame)
            assert isinstance(again.to_frame(quantity), pl.DataFrame)
    one, two = est.effects(X), est.effects(other)
    assert one.coef == pytest.approx(two.coef, nan_ok=True)
    assert isinstance(one.levels.to_frame(), pd.DataFrame)
    assert isinstance(two.levels.to_frame(), pl.DataFrame)
    assert isinstance(two.to_frame(), pl.DataFrame)
    assert (est.interactions(X).strength == est.interactions(other).strength).all()
    assert isinstance(est.effect_curve("region", other).to_frame(), pl.DataFrame)
    assert isinstance(est.reference_sensitivity(other).to_frame(), pl.DataFrame)
    est.pair_surface("region", "dose", X=other)
    est.correction_curve("region", "sex", X=X)
    est.correction_curve("dose", "region")
    assert max(map(len, str(est.summary()).splitlines())) <= 80
    for record in (one, two.levels, est.interactions(X), est.reference_sensitivity(X)):
        lines = repr(record).split("\n")
        assert max(map(len, lines)) <= 80
        assert all(line.isprintable() for line in lines)


def test_data_come_back_as_they_were_given(fit):
    X, est = fit
    for frame in (X, pl.from_pandas(X)):
        found = est.explain(frame).to_frame("data")
        assert list(found["sex"]) == list(frame["sex"])
        given = [None if pd.isna(level) else level for level in frame["region"]]
        assert [None if pd.isna(x) else x for x in found["region"]] == given
        assert np.array_equal(found["bmi"], frame["bmi"], equal_nan=True)


def test_values_read_as_text(fit):
    X, est = fit
    found = est.explain(X)
    row = int(np.flatnonzero(X["region"].isna())[0])
    assert found.value_text(row, "region") == "missing"
    row = int(np.flatnonzero(X["region"] == LEVELS[2])[0])
    assert found.value_text(row, "region") == "é\\n年"
    assert found.value_text(0, "sex") == X["sex"].iloc[0]
    assert found.value_text(0, "age") == f"{X['age'].iloc[0]:.4g}"


def test_average_contrasts_are_those_of_predict(fit):
    X, est = fit
    levels = est.effects(X).levels
    frame = levels.to_frame()
    base = levels.baseline & (np.array(levels.features) == "region")
    baseline = frame["level"][base].iloc[0]
    for level in LEVELS:
        contrast = eta(est, X.assign(region=level)) - eta(
            est, X.assign(region=baseline)
        )
        row = frame[(frame["feature"] == "region") & (frame["level"] == level)].iloc[0]
        assert row["average_effect"] == pytest.approx(contrast.mean(), abs=TOL)
        assert row["effect_sd"] == pytest.approx(contrast.std(), abs=TOL)
        assert row["n_rows"] == (X["region"] == level).sum()
    missing = frame[(frame["feature"] == "region") & (frame["level"] == "missing")]
    assert missing["n_rows"].iloc[0] == X["region"].isna().sum()


def test_the_summary_counts_levels_over_all_training_rows(fit):
    X, est = fit
    counts = est._facts.effects.levels
    for at, (name, level) in enumerate(
        zip(counts.features, counts.levels, strict=True)
    ):
        column = X[name]
        hit = column.isna() if level == "missing" else column.astype(str) == level
        assert counts.n_rows[at] == hit.sum()


def test_shap_shows_levels_by_name(fit):
    X, est = fit
    shown = est.explain(X[:3]).to_shap()
    assert shown.display_data[0, 3] == X["sex"].iloc[0]
    assert shown.data.dtype == float
    assert shown.base_values + shown.values.sum(1) == pytest.approx(
        eta(est, X[:3]), abs=TOL
    )


def test_shap_draws_mixed_explanations(fits):
    X, estimators = fits
    shown = estimators["classifier"].explain(X).to_shap()
    with matplotlib.rc_context():
        shap.plots.waterfall(shown[0], show=False)
        labels = [text.get_text() for text in plt.gca().get_yticklabels()]
        assert any(X["sex"].iloc[0] in label for label in labels)
        plt.close("all")


def test_arrays_with_declared_categories_are_explained_too():
    X = draw_frame().drop(columns=["bmi", "region", "smoker"])
    y = draw_target(draw_frame())
    array = X.to_numpy(dtype=object)
    est = NIMORegressor(categorical=[2], max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(array, y)
    found = est.explain(array[:5])
    assert found.eta == pytest.approx(est.predict(array[:5]), abs=TOL)
    assert found.to_frame("data")["x2"].tolist() == X["sex"].tolist()[:5]
    assert est.effects(array).levels.levels == ("man", "woman")


def test_every_record_has_a_table_for_notebooks(fitted_models):
    fitted = fitted_models["gaussian"]
    est, X, y = fitted.est, fitted.X, fitted.y
    hostile = X.rename(columns={"age": "<b>age</b>"})
    again = type(est)(max_iter=3, tol=1.0, patience=1).fit(hostile, y)
    records = [
        again.effects(hostile),
        again.effects(hostile).levels,
        again.interactions(hostile),
        again.explain(hostile),
        again.effect_curve("dose"),
        again.pair_surface("dose", "weight"),
        again.correction_curve("dose", "weight"),
        again.reference_sensitivity(hostile),
        again.price_of_nonlinearity(hostile, y),
        again.first_layer(),
        again.summary(),
    ]
    for record in records:
        html = record._repr_html_()
        assert html.startswith('<div class="sknimo"') and html.endswith("</div>")
        assert "<b>age</b>" not in html
    html = est.effects(X)._repr_html_()
    coef = est.effects(X).coef[0]
    assert f"<td>{coef:.4g}</td>" in html
    assert "more rows: to_frame() has them" in est.explain(X)._repr_html_()
