"""What the report says is true, and the file is written as promised."""

import os
import re
import warnings
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from sknimo import NIMOClassifier, NIMORegressor, NIMOSurvival, NIMOSurvivalCV, load
from sknimo.report import ModelCard, Report, render_report
from sknimo.report._cases import choose_rows, explain_cases
from sknimo.report._checks import run_checks
from sknimo.report._quality import judge
from sknimo.report._story import tell
from sknimo.report._svg import round_ticks

# Two ways to compute the same number in doubles.
RTOL = 1e-9
MAX_BYTES = 2_000_000


def fit_quietly(est, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, y, **options)


def draw_table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, n_rows),
            "age": rng.normal(60, 10, n_rows),
            "ward": rng.choice(["A", "B", "C"], n_rows),
        }
    )
    effect = 0.1 * (X["dose"] - 20) * (1 + 0.05 * (X["age"] - 60))
    y = effect + (X["ward"] == "B") + 0.3 * rng.normal(size=n_rows)
    return X, y.rename("fall")


@pytest.fixture(scope="module")
def fitted():
    X, y = draw_table(200)
    est = NIMORegressor(alpha=0.003, max_iter=60, random_state=0)
    return fit_quietly(est, X[:150], y[:150]), X, y


@pytest.fixture(scope="module")
def report(fitted):
    est, X, y = fitted
    return est.report(None, X[:150], y[:150], X_test=X[150:], y_test=y[150:])


def measures(quality, which="model"):
    return {measure.name: getattr(measure, which) for measure in quality.measures}


def card(model, **options):
    classes = ("no", "yes") if model.family.is_binary else None
    return ModelCard(model, classes=classes, **options)


def test_gaussian_measures_are_those_of_sklearn(make_model, draw_sample):
    model = make_model(("linear", "spline"))
    sample = draw_sample(model, weight=np.linspace(1, 2, 80))
    found = judge(card(model), sample)
    predicted = model.mean(sample.table)
    weight = {"sample_weight": sample.weight}
    assert measures(found) == pytest.approx(
        {
            "R²": r2_score(sample.y, predicted, **weight),
            "RMSE": root_mean_squared_error(sample.y, predicted, **weight),
            "MAE": mean_absolute_error(sample.y, predicted, **weight),
        },
        rel=RTOL,
    )


def test_binomial_measures_are_those_of_sklearn(make_model, draw_sample):
    model = make_model(("linear", "levels"), "binomial")
    sample = draw_sample(model)
    found = measures(judge(card(model), sample))
    predicted = model.mean(sample.table)
    null = log_loss(sample.y, np.full(80, sample.y.mean()))
    assert found == pytest.approx(
        {
            "Deviance explained": 1 - log_loss(sample.y, predicted) / null,
            "AUC": roc_auc_score(sample.y, predicted),
            "Accuracy": accuracy_score(sample.y, predicted > 0.5),
            "Brier score": brier_score_loss(sample.y, predicted),
            "Log loss": log_loss(sample.y, predicted),
        },
        rel=RTOL,
    )


def test_figures_of_the_report_are_those_of_the_summary(fitted):
    est, X, y = fitted
    story = tell(est._model_card(), est._read_sample(X[:150], y[:150], None, None))
    assert story.effects is est._facts.effects
    explained = story.quality.explained
    assert explained.model == pytest.approx(est._facts.explained, rel=RTOL)
    assert explained.glm is explained.linear is None  # in-sample, nothing competes
    assert explained.model == pytest.approx(est.score(X[:150], y[:150]), rel=RTOL)


def test_training_rows_are_recognised_and_said_to_be_such(fitted, report):
    est, X, y = fitted
    assert "rows it was fitted to, which flatters" not in report.html
    assert "On the 150 training rows" in report.html
    assert "On 50 held-out rows" in report.html
    alone = est.report(None, X[:150], y[:150])
    assert "the 150 rows it was fitted to, which flatters" in alone.html
    assert "No rows held out" in alone.html
    assert "All figures of fit are on rows that helped to fit" in alone.html
    other = est.report(None, X[150:], y[150:])
    assert "not, as a set, those it was fitted to" in other.html


def test_other_rows_are_not_said_to_have_helped_to_fit(fitted):
    est, X, y = fitted
    page = est.report(None, X[150:], y[150:]).html
    assert "All figures of fit are on rows that helped to fit" not in page
    assert "Whether these rows helped to fit is not known" in page


def test_held_out_targets_that_are_all_the_same_have_no_share_and_no_slope(fitted):
    est, X, y = fitted
    story = tell(
        est._model_card(),
        est._read_sample(X[:150], y[:150], None, None),
        est._read_sample(X[150:151], np.array([100.0]), None, None),
        rows=0,
    )
    first = story.fresh.explained
    assert first.model is first.linear is None and first.winner == ""
    found = {check.title: check for check in run_checks(story)}
    calibration = found["Calibration"]
    apart = abs(story.fresh.predicted[0] - 100) / np.std(y[:150])
    assert calibration.status == "note" and f"apart by {apart:.2f}" in calibration.text
    assert "slope" not in calibration.text
    assert "Training against new rows" not in found
    assert "No rows held out" not in found
    page = est.report(
        None, X[:150], y[:150], X_test=X[150:151], y_test=[100.0], rows=0
    ).html
    assert "On 1 held-out row<" in page and "0.0\N{NARROW NO-BREAK SPACE}%" not in page


def test_predictions_that_are_all_the_same_have_no_slope(fitted):
    est, X, y = fitted
    card = est._model_card()
    model = card.model
    mean = model.intercept * 0 + float(np.mean(y[150:]))
    flat = replace(card, model=replace(model, coef=model.coef * 0, intercept=mean))
    story = tell(flat, est._read_sample(X[150:], y[150:], None, None), rows=0)
    calibration = {check.title: check for check in run_checks(story)}["Calibration"]
    assert calibration.status == "ok" and "slope" not in calibration.text


def test_training_rows_are_recognised_with_weights_and_offsets():
    X, y = draw_table(80)
    rng = np.random.default_rng(1)
    given = dict(sample_weight=rng.integers(0, 3, 80), offset=rng.normal(size=80))
    est = fit_quietly(NIMORegressor(max_iter=20, random_state=0), X, y, **given)
    assert "On the 80 training rows" in est.report(None, X, y, **given).html


def test_the_table_holds_every_coefficient(fitted, report):
    est, *_ = fitted
    shown = [
        float(value)
        for value in re.findall(
            r'data-label="Coefficient" data-value="([^"]+)"', report.html
        )
    ]
    assert sorted(shown) == pytest.approx(sorted(est.coef_), rel=RTOL)


def test_the_largest_effects_come_first(make_model, draw_sample):
    model = make_model(("linear",) * 4, idle=(2,))
    story = tell(ModelCard(model), draw_sample(model))
    assert sorted(story.order) == [0, 1, 3]
    assert (np.diff(story.comparisons.importance[list(story.order)]) < 0).all()


def test_bends_that_change_nothing_are_nowhere_on_the_page(make_model, draw_sample):
    model = make_model(("linear", "levels", "spline"))
    assert "Depends on" in render_report(ModelCard(model), draw_sample(model)).html
    faint = replace(model, params=1e-4 * model.params)
    html = render_report(ModelCard(faint), draw_sample(faint)).html
    assert "None worth a figure" in html
    assert set(re.findall('class="bent"[^>]*>([^<]*)<', html)) == {""}


def test_the_code_of_a_page_has_all_that_held_out_rows_were_given(
    make_model, draw_sample
):
    model = make_model(("linear", "spline"), "poisson")
    offset, weight = np.full(80, 0.5), np.ones(80)
    sample = draw_sample(model, offset=offset)
    held_out = draw_sample(model, seed=2, offset=offset, weight=weight)
    card = ModelCard(model, choice=", class_='b'")
    html = unescape(render_report(card, sample, held_out=held_out).html)
    assert (
        "X, y, offset=offset, class_='b', X_test=X_test, y_test=y_test, "
        "sample_weight_test=weight_test, offset_test=offset_test)"
    ) in html
    assert "where the offset is 0." in html  # what the base value is of


def test_nothing_interacts_without_a_network(make_model, draw_sample):
    model = make_model(("linear", "levels", "levels_or_missing", "spline"), size=0.0)
    report = render_report(ModelCard(model), draw_sample(model))
    assert "no effect depends on another feature" in report.html


def test_steps_of_a_row_lead_from_the_base_value_to_eta(make_model, draw_sample):
    model = make_model(("linear",) * 12)
    sample = draw_sample(model, offset=np.linspace(0, 1, 80))
    eta = model.eta(sample.table, sample.offset)
    card = ModelCard(model)
    for case in explain_cases(card, sample, eta, np.zeros((12, 12)), [4, 50]):
        assert case.steps[0].start == model.base_value + sample.offset[case.row]
        assert case.steps[-1].stop == pytest.approx(eta[case.row], rel=RTOL)
        assert case.found.eta[0] == pytest.approx(eta[case.row], rel=RTOL)
        assert "other features" in case.steps[-1].name


def test_rows_are_spread_over_the_predictions(make_model, draw_sample):
    model = make_model(("linear", "spline"))
    sample = draw_sample(model)
    eta = model.eta(sample.table)
    chosen = dict(choose_rows(model.family, sample, eta, None))
    assert len(chosen) == 8
    why = {reason: row for row, reason in chosen.items()}
    assert why["highest prediction"] == eta.argmax()
    assert why["lowest prediction"] == eta.argmin()
    assert np.abs(eta - sample.y).argmax() in chosen
    assert choose_rows(model.family, sample, eta, 0) == []
    assert choose_rows(model.family, sample, eta, [-1]) == [(79, "chosen")]
    with pytest.raises(IndexError, match="from 0 to 79; got 80"):
        choose_rows(model.family, sample, eta, [80])


def checks_of(fit, sample, held_out=None):
    found = run_checks(tell(fit, sample, held_out, 0))
    return {check.title: check for check in found}


def test_checks_find_what_is_wrong_with_the_data(make_model, draw_sample):
    model = make_model(("linear", "linear", "constant", "or_missing", "linear"))
    sample = draw_sample(model, n_rows=40)
    table = sample.table.copy()
    table[0, 0] = model.features.reference[0] + 50 * model.features.scale[0]
    table[:, 4] = (
        table[:, 1] - model.features.reference[1]
    ) * 2 + model.features.reference[4]
    found = checks_of(ModelCard(model, converged=False), replace(sample, table=table))
    assert found["Convergence"].status == "warn"
    assert found["Number of rows"].status == "warn"
    assert "constant 2" in found["Constant columns"].text
    assert "or_missing 3" in found["Missing values"].text
    assert "linear 0" in found["Extrapolation"].text
    assert "linear 0" in found["Far values"].text
    assert "linear 1 and linear 4" in found["Correlated features"].text


def test_checks_are_calm_about_good_data(make_model, draw_sample):
    model = make_model(("linear", "linear"), size=0.1)
    sample, fresh = draw_sample(model, 400), draw_sample(model, 100, seed=2)
    found = checks_of(ModelCard(model, converged=True), sample, fresh)
    assert {check.status for check in found.values()} == {"ok"}


def test_a_model_that_loses_to_its_glm_is_called_out(make_model, draw_sample):
    model = make_model(("linear", "linear"), size=3.0)
    straight = make_model(("linear", "linear"), size=0.0)
    sample = draw_sample(straight, 200)
    fresh = draw_sample(straight, 100, seed=2)
    found = checks_of(ModelCard(model), sample, fresh)
    assert found["Worth of the model"].status == "warn"
    assert "Prefer the plain linear model" in found["Worth of the model"].text


def test_held_out_rows_that_are_not_new_are_noticed(make_model, draw_sample):
    model = make_model(("linear", "or_missing"))
    sample = draw_sample(model)
    found = checks_of(ModelCard(model), sample, sample.take(np.arange(20)))
    assert found["Held-out rows seen before"].status == "warn"
    assert "20 of 20" in found["Held-out rows seen before"].text


def test_rows_of_few_possible_values_repeat_without_being_the_same(
    make_model, draw_sample
):
    model = make_model(("linear", "linear"))
    old, new = (
        replace(each, table=np.sign(each.table), y=np.sign(each.y))
        for each in (draw_sample(model), draw_sample(model, seed=2))
    )
    check = checks_of(ModelCard(model), old, new)["Held-out rows seen before"]
    assert check.status == "note"
    assert "of the report's own rows repeat as well" in check.text


def test_separated_classes_are_noticed(make_model, draw_sample):
    model = make_model(("linear",), "binomial", size=0.0)
    model = replace(model, coef=model.coef * 1e4, intercept=model.intercept * 0)
    sample = draw_sample(model)
    sample = replace(sample, y=(model.eta(sample.table) > 0).astype(float))
    keep = np.abs(model.eta(sample.table)) > 20
    found = checks_of(ModelCard(model), sample.take(np.flatnonzero(keep)))
    assert found["Separation"].status == "warn"


def test_the_same_fit_gives_the_same_file(fitted, report):
    est, X, y = fitted
    again = est.report(None, X[:150], y[:150], X_test=X[150:], y_test=y[150:])
    assert again.html == report.html


def test_a_loaded_model_gives_the_same_report(fitted, report, tmp_path):
    est, X, y = fitted
    est.save(tmp_path / "model.sknimo")
    loaded = load(tmp_path / "model.sknimo")
    again = loaded.report(None, X[:150], y[:150], X_test=X[150:], y_test=y[150:])
    assert again.html == report.html


def test_the_file_needs_nothing_else(report):
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", report.html)
    assert not re.findall(r"url\(|@import|https?://(?!www\.w3\.org)", report.html)
    assert "style=" not in report.html


def test_the_file_is_replaced_as_a_whole(report, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        report.save(path)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
    monkeypatch.undo()
    assert report.save(path) == path
    assert path.read_text(encoding="utf-8") == report.html


def test_new_files_have_usual_permissions(report, tmp_path):
    (tmp_path / "other").write_text("")
    report.save(tmp_path / "report.html")
    modes = {os.stat(tmp_path / name).st_mode for name in ("other", "report.html")}
    assert len(modes) == 1


def test_target_and_index_are_named_and_rows_chosen(fitted):
    est, X, y = fitted
    named = X.set_index(pd.Index([f"patient {i}" for i in range(len(X))]))
    html = est.report(None, named, y, rows=[7], title="A trial").html
    assert "row 7 (patient 7)" in html
    assert "<title>A trial</title>" in html
    assert "of the variance of fall" in html
    assert "the values of 1 row of the data" in html


def test_inputs_that_do_not_fit_are_refused_with_a_remedy(fitted):
    est, X, y = fitted
    with pytest.raises(ValueError, match="give both or neither"):
        est.report(None, X, y, X_test=X)
    with pytest.raises(ValueError, match="X has 200 rows but y has 10"):
        est.report(None, X, y[:10])
    with pytest.raises(IndexError, match="positions of rows of X"):
        est.report(None, X, y, rows=[1000])
    with pytest.raises(ValueError, match="not fitted"):
        NIMORegressor().report(None, X, y)


def test_labels_must_be_those_of_the_training():
    X, y = draw_table(60)
    labels = np.where(y > y.median(), "high", "low")
    est = fit_quietly(NIMOClassifier(max_iter=10, random_state=0), X, labels)
    assert "Probability of low" in est.report(None, X, labels).html
    one_class = est.report(None, X[labels == "low"], labels[labels == "low"])
    assert isinstance(one_class, Report)
    with pytest.raises(ValueError, match="'middle' at row 0; the classes are"):
        est.report(None, X, np.full(60, "middle"))


def test_a_fitted_estimator_shows_its_summary(fitted):
    est, *_ = fitted
    bundle = est._repr_mimebundle_()
    assert 'class="sknimo"' in bundle["text/html"]
    assert bundle["text/html"] == est._repr_html_()
    assert bundle["text/plain"] == repr(est)
    with sklearn.config_context(display="text"):
        assert "text/html" not in est._repr_mimebundle_()
        assert not hasattr(est, "_repr_html_")


def test_an_unfitted_estimator_keeps_the_diagram_of_sklearn():
    bundle = NIMORegressor()._repr_mimebundle_()
    assert "sk-estimator" in bundle["text/html"]
    assert "sk-estimator" in NIMORegressor()._repr_html_()


def test_objects_among_the_settings_leave_no_address():
    X, y = draw_table(40)
    random = np.random.RandomState(0)
    est = fit_quietly(NIMORegressor(max_iter=5, random_state=random), X, y)
    html = est.report(None, X, y).html
    assert "random_state=&lt;RandomState&gt;" in html
    assert "0x" not in re.sub(
        r"<script.*?</script>|<style.*?</style>|<meta http-equiv.*?>",
        "",
        html,
        flags=re.S,
    )


def test_tables_of_one_row_and_one_feature_are_reported():
    X, y = draw_table(30)
    est = fit_quietly(NIMORegressor(max_iter=5, random_state=0), X[["dose"]], y)
    assert "1 of 1" in est.report(None, X[["dose"]][:1], y[:1]).html


@pytest.mark.parametrize("unit", (1e-30, 1e30))
def test_extreme_units_are_reported(unit):
    X, y = draw_table(60)
    X = X.assign(dose=X["dose"] * unit)
    est = fit_quietly(NIMORegressor(max_iter=5, random_state=0), X, y * unit)
    assert "dose" in est.report(None, X, y * unit).html


def test_ticks_are_round_and_within():
    rng = np.random.default_rng(0)
    for low, power in rng.uniform(-6, 6, (200, 2)):
        width = 10**power
        ticks = round_ticks(low, low + width)
        assert 2 <= len(ticks) <= 6
        assert low - 1e-6 * width <= ticks[0] <= ticks[-1] <= low + width * (1 + 1e-6)


@pytest.mark.slow
def test_fifty_features_and_twenty_thousand_rows_stay_under_two_megabytes(
    make_model, draw_sample, open_report, tmp_path
):
    kinds = ("linear",) * 26 + ("levels",) * 10 + ("spline",) * 8 + ("or_missing",) * 6
    model = make_model(kinds, n_members=3, hidden=(16, 16))
    sample = draw_sample(model, 20_000)
    report = render_report(
        ModelCard(model), sample, held_out=draw_sample(model, 500, seed=3)
    )
    path = report.save(tmp_path / "report.html")
    assert path.stat().st_size < MAX_BYTES
    view = open_report(report)
    assert view.mean == pytest.approx(model.mean(model.features.reference[None])[0])


def draw_times(bend, n_rows=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 2))
    time = rng.exponential(np.exp(-X[:, 0] * (1 + bend * X[:, 1]))) + 0.01
    event = rng.random(n_rows) < 0.8
    kind = [("event", "?"), ("time", "f8")]
    return X, np.array(list(zip(event, time, strict=True)), dtype=kind)


def test_times_are_no_offset_of_the_code_that_reproduces_a_report():
    X, y = draw_times(0.0)
    html = NIMOSurvival(max_iter=0).fit(X, y).report(None, X, y).html
    assert "est.fit(X, y)" in html and "offset=offset" not in html
    # It is called as readers know it, and judged by what it is for.
    assert "This is a plain Cox regression" in html and "a mean of 1" not in html
    labels = re.findall(r"<dt>(Concordance|Deviance explained) on", html)
    assert labels[0] == "Concordance"


@pytest.mark.slow
def test_survival_is_compared_with_the_same_model_without_dependence():
    X, y = draw_times(1.0)
    est = NIMOSurvivalCV(random_state=0).fit(X, y)
    assert est.bend_ > 0
    html = est.report(None, X, y).html
    told = re.search(r"without such dependence in\s+([\d.]+)", html)
    assert float(told[1]) == pytest.approx(100 * est.glm_held_out_score_, abs=0.06)
