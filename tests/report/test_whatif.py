"""The page computes what Python computes, and reacts as a reader expects.

Every test runs in a real browser; no page may write to the console, fail, open a
dialog or ask for anything beyond itself (`open_report` checks at the end).
"""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import sknimo.report._whatif as whatif
from sknimo import NIMOClassifier, NIMORegressor
from sknimo.explain import Origin, explain, measure_support
from sknimo.inference import calibrate, next_intervals
from sknimo.model import ClassModels, Dial
from sknimo.report import ModelCard, Sample, render_report

FAMILIES = ("gaussian", "binomial", "poisson", "gamma")
# Both sides compute in doubles; sums run in another order.
TOL = 1e-9


def close(value, tol=TOL):
    return pytest.approx(value, rel=tol, abs=tol)


def expected(made, row):
    """Mean and contributions of one row of a table, by Python."""
    found = explain(made.model, row[None], swap=made.swap)
    return found.mean[0], found.values[0]


def assert_page_agrees(view, made, row):
    mean, parts = expected(made, row)
    assert view.mean == close(mean)
    shown = view.parts()
    for feature, value in shown.items():
        assert value == close(parts[feature])
    hidden = np.delete(parts, list(shown))
    assert not hidden.any(), "a feature without a control contributes"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_feature_is_predicted_and_explained_as_in_python(
    make_report, open_report, family
):
    made = make_report(family=family, rows=[3, 11, 20])
    view = open_report(made.report)
    assert_page_agrees(view, made, made.model.features.reference)
    for place, row in enumerate((3, 11, 20), start=1):
        view.page.locator("#start").select_option(str(place))
        assert_page_agrees(view, made, made.sample.table[row])
    row = made.sample.table[20].copy()
    for feature, value in enumerate(made.sample.table[7]):
        if made.model.features.scale[feature] > 0:
            view.set(feature, value)
            row[feature] = value
            assert_page_agrees(view, made, row)


@pytest.mark.slow
def test_the_dial_predicts_as_the_model_with_another_share_of_bends(
    make_report, open_report
):
    made = make_report(("linear", "spline", "levels"), family="binomial")
    rng = np.random.default_rng(0)
    coef, scores = (
        rng.normal(size=made.model.coef[:1].shape),
        np.linspace(-0.1, 0.5, 21),
    )
    dial = Dial(0.6, coef, np.array([0.3]), scores)
    card = ModelCard(made.model, classes=("no", "yes"), dial=dial)
    view = open_report(render_report(card, made.sample, rows=[3]))
    view.page.locator("#start").select_option("1")
    row = made.sample.table[3]
    assert_page_agrees(view, made, row)
    for share in (0.0, 0.9):
        view.page.locator("#bend").fill(str(share))
        model = dial.turn(made.model, share)
        swap = share / dial.bend * made.swap
        found = explain(model, row[None], swap=swap)
        assert view.mean == close(found.mean[0])
        for feature, value in view.parts().items():
            assert value == close(found.values[0][feature])
        assert view.number("#bend-told") == close(-0.1 + 0.6 * share)
        assert "but for the dependence" in view.page.locator("#change").inner_text()
    view.page.locator("#reset").click()
    assert_page_agrees(view, made, row)
    assert float(view.page.locator("#bend").input_value()) == dial.bend
    told = view.page.locator("#bend-told").inner_text()  # not those given to judge by
    assert "rows left out in turn. With none: \N{MINUS SIGN}10.0" in told
    assert view.page.locator("#reach-key").is_hidden()  # this model has no errors
    assert view.page.locator("#change").inner_text() == "as at the start"


def test_values_beyond_the_training_range_are_predicted_and_flagged(
    make_report, open_report
):
    made = make_report(("linear", "spline", "polynomial", "clipped", "rank_gauss"))
    view = open_report(made.report)
    row = made.model.features.reference.copy()
    for feature in range(5):
        row[feature] = made.model.features.high[feature] + 1.5
        view.set(feature, row[feature])
        assert "outside" in view.control(feature).get_attribute("class")
        assert_page_agrees(view, made, row)


@pytest.mark.slow
def test_a_far_value_stretches_no_slider_and_is_not_flagged(
    open_report, draw_sample, make_model
):
    model = make_model(("linear", "spline"))
    features = replace(model.features, high=(1e3, *model.features.high[1:]))
    model = replace(model, features=features)
    sample = draw_sample(model, n_rows=200)
    table = sample.table.copy()
    table[7, 0] = 1e3
    view = open_report(render_report(ModelCard(model), Sample(table, sample.y)))
    slider = view.control(0).locator("input[type=range]")
    ends = [float(slider.get_attribute(name)) for name in ("min", "max")]
    assert ends == close(np.quantile(table[:, 0], [0.01, 0.99]))
    view.set(0, 1e3)
    assert view.mean == close(model.mean(np.array([[1e3, features.reference[1]]]))[0])
    assert "outside" not in view.control(0).get_attribute("class")
    view.set(0, 1001)
    assert "outside" in view.control(0).get_attribute("class")


@pytest.mark.slow
def test_bars_recover_when_an_absurd_value_is_corrected(make_report, open_report):
    made = make_report(("linear", "linear", "spline"), rows=[3])
    view = open_report(made.report)
    view.page.locator("#start").select_option("1")
    row = made.sample.table[3]

    def widths():
        bars = view.page.locator("#controls .control-part rect.bar")
        return [float(bar.get_attribute("width")) for bar in bars.all()]

    before = widths()
    assert max(before) > 10
    view.set(0, 1e6)
    squeezed = [now < 0.1 * then for now, then in zip(widths(), before, strict=True)]
    assert any(squeezed)
    view.set(0, row[0])
    assert widths() == pytest.approx(before)


def test_sliders_move_the_prediction(make_report, open_report):
    made = make_report(("linear", "levels", "spline"))
    view = open_report(made.report)
    slider = view.control(0).locator("input[type=range]")
    low, high = made.model.features.low[0], made.model.features.high[0]
    row = made.model.features.reference.copy()
    for share in (0.0, 0.31, 0.77, 1.0):
        slider.fill(repr(low + share * (high - low)))
        row[0] = view.values()[0]
        assert row[0] == pytest.approx(low + share * (high - low), abs=1e-2)
        assert_page_agrees(view, made, row)
    assert row[0] == high


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
def test_the_page_has_the_interval_of_the_next_observation(
    make_report, open_report, family
):
    made = make_report(("linear", "levels", "spline"), family, judged=True)
    view = open_report(made.report)
    sample, model = made.sample, made.model
    eta = model.eta(sample.table, sample.offset)
    found = calibrate(model, sample.table, sample.y, eta, np.ones(len(sample)))
    row = model.features.reference.copy()
    for value in (0.3, -0.4):
        view.set(0, value)
        row[0] = value
        table = row[None]
        wanted = next_intervals(
            model,
            found,
            table,
            model.eta(table),
            level=0.9,
            adapt=True,
            origin=Origin(),
        )
        ends = view.number("#expected", "low"), view.number("#expected", "high")
        assert ends == pytest.approx((wanted.lower[0], wanted.upper[0]), rel=1e-9)
    assert (
        "% of all rows lie within their intervals"
        in view.page.locator("#expected").inner_text()
    )


def test_sliders_answer_to_the_keyboard(make_report, open_report):
    made = make_report(("linear", "spline"))
    view = open_report(made.report)
    slider = view.control(0).locator("input[type=range]")
    slider.focus()
    before = view.values()[0]
    view.page.keyboard.press("ArrowRight")
    after = view.values()[0]
    assert after > before
    row = made.model.features.reference.copy()
    row[0] = after
    assert_page_agrees(view, made, row)
    view.page.keyboard.press("Home")
    assert view.values()[0] == made.model.features.low[0]


def test_everything_on_the_page_can_be_reached_by_tab(make_report, open_report):
    view = open_report(make_report(("linear", "levels", "or_missing")).report)
    wanted = view.page.locator(
        "#what-if-app :is(input, select, button):visible:not([disabled])"
    )
    # Of a group of radio buttons one is reached by tab, the others by arrows.
    total = wanted.count() - 2
    view.page.locator("#start").focus()
    seen = set()
    for _ in range(3 * total):
        seen.add(
            view.page.evaluate(
                "() => document.activeElement.closest('#what-if-app') &&"
                " (document.activeElement.id || document.activeElement.ariaLabel ||"
                " document.activeElement.type)"
            )
        )
        view.page.keyboard.press("Tab")
    assert len(seen - {None}) >= total


def inside(support):
    """Squared distance within which 99 % of the rows lie."""
    return np.quantile(support.distance, 0.99, method="averaged_inverted_cdf")


def test_moves_list_the_best_value_of_every_feature(make_report, open_report):
    made = make_report(("linear", "levels", "spline", "or_missing"), rows=[5])
    view = open_report(made.report)
    view.page.locator("#start").select_option("1")
    view.settle()
    features, row = made.model.features, made.sample.table[5]
    before = made.model.mean(row[None])[0]
    support = measure_support(made.model, made.sample.table)
    square = support.square(support.columns(row[None]))[0]
    most = max(inside(support), square) * (1 + 1e-4)
    gains = {}
    for j in range(features.n_features):
        levels = features.levels(j)
        grid = (
            np.linspace(features.low[j], features.high[j], 41)
            if levels is None
            else np.arange(len(levels))
        )
        trial = np.tile(row, (len(grid), 1))
        trial[:, j] = grid
        change = made.model.mean(trial) - before
        change[support.square(support.columns(trial)) > most] = 0.0
        best = np.abs(change).argmax()
        if change[best]:
            gains[j] = (grid[best], change[best])
    items = view.page.locator("#moves li")
    shown = [
        {
            name: float(items.nth(at).get_attribute(f"data-{name}"))
            for name in ("feature", "value", "change")
        }
        for at in range(items.count())
    ]
    order = sorted(gains, key=lambda j: -abs(gains[j][1]))
    assert [int(item["feature"]) for item in shown] == order
    for item, j in zip(shown, order, strict=True):
        assert (item["value"], item["change"]) == close(gains[j])


def test_combinations_that_no_row_has_are_told_and_not_proposed(
    make_report, open_report, make_model, draw_sample
):
    model = make_model(("linear", "levels", "linear"))
    sample = draw_sample(model, n_rows=300)
    table = sample.table.copy()
    features = model.features
    table[:, 2] = features.reference[2] + features.scale[2] * (
        (table[:, 0] - features.reference[0]) / features.scale[0]
    )
    table[:, 2] += 0.05 * features.scale[2] * np.sin(np.arange(300))
    sample = replace(sample, table=table)
    made = make_report(("linear", "levels", "linear"), sample=sample, rows=[3])
    view = open_report(made.report)
    told = view.page.locator("#unusual")
    support = measure_support(made.model, table)
    assert "No row is as unusual" not in told.inner_text()
    view.set(0, features.reference[0] + 1.5 * features.scale[0])
    view.set(2, features.reference[2] - 1.5 * features.scale[2])
    odd = features.reference.copy()
    odd[[0, 2]] += np.array([1.5, -1.5]) * features.scale[[0, 2]]
    square = support.square(support.columns(odd[None]))[0]
    assert view.number("#unusual") == pytest.approx(square, rel=1e-3)
    assert square > support.distance.max()
    assert "No row is as unusual" in told.inner_text()
    view.page.locator("#reset").click()
    view.settle()
    moves = view.page.eval_on_selector_all(
        "#moves li[data-change]",
        "items => items.map(i => [+i.dataset.feature, +i.dataset.value])",
    )
    for feature, value in moves:
        trial = features.reference.copy()
        trial[feature] = value
        near = support.square(support.columns(trial[None]))[0]
        assert near <= inside(support) * 1.001
    assert any(feature == 0 for feature, _ in moves)


def test_a_move_can_be_taken_and_undone(make_report, open_report):
    made = make_report(("linear", "spline"))
    view = open_report(made.report)
    first = view.page.locator("#moves li").first
    feature, change = (
        int(first.get_attribute("data-feature")),
        float(first.get_attribute("data-change")),
    )
    before = view.mean
    first.locator("button").click()
    assert view.mean == close(before + change)
    view.control(feature).locator(".undo").click()
    assert view.mean == close(before)


@pytest.mark.slow
def test_moves_can_aim_higher_or_lower(make_report, open_report):
    view = open_report(make_report(("linear", "levels", "spline")).report)
    for aim, sign in (("higher", 1), ("lower", -1)):
        view.page.locator(f"input[value={aim}]").check(force=True)
        changes = view.page.eval_on_selector_all(
            "#moves li[data-change]", "items => items.map(i => +i.dataset.change)"
        )
        assert changes and all(sign * change > 0 for change in changes)


def test_reset_returns_to_the_start(make_report, open_report):
    made = make_report(("linear", "levels", "or_missing"), rows=[9])
    view = open_report(made.report)
    view.page.locator("#start").select_option("1")
    before = view.mean
    for feature, value in enumerate(made.sample.table[30]):
        view.set(feature, value)
    view.page.locator("#reset").click()
    assert view.mean == before
    assert_page_agrees(view, made, made.sample.table[9])


def test_an_offset_enters_the_prediction(
    make_report, open_report, draw_sample, make_model
):
    model = make_model(("linear", "spline"), "poisson")
    offset = np.linspace(-1, 1, 80)
    sample = draw_sample(model, offset=offset)
    made = make_report(("linear", "spline"), "poisson", sample=sample, rows=[4])
    view = open_report(made.report)
    view.page.locator("#start").select_option("1")
    assert view.mean == close(model.mean(sample.table[4:5], offset[4:5])[0])
    view.page.locator("#offset").fill("0.75")
    assert view.mean == close(model.mean(sample.table[4:5], np.array([0.75]))[0])


@pytest.mark.slow
def test_whole_numbers_stay_whole(make_report, open_report, draw_sample, make_model):
    model = make_model(("linear", "spline"))
    features = replace(model.features, low=(-3.0, -2.0), high=(4.0, 17.0))
    model = replace(model, features=features)
    sample = draw_sample(model)
    table = sample.table.copy()
    table[:, 0] = table[:, 0].round()
    table[:, 1] = np.tile(np.arange(-2, 18), 4)
    view = open_report(render_report(ModelCard(model), Sample(table, sample.y)))
    slider = view.control(0).locator("input[type=range]")
    reference = model.features.reference[0]
    assert reference % 1 and float(slider.input_value()) == close(reference)
    slider.focus()
    view.page.keyboard.press("Home")
    seen = []
    for _ in range(3):
        seen.append(view.values()[0])
        view.page.keyboard.press("ArrowRight")
    assert seen == [-3.0, -2.0, -1.0]
    bars = view.control(1).locator("rect.density").all()
    assert len({bar.get_attribute("height") for bar in bars}) == 1


@pytest.mark.parametrize("task", ("regression", "classification"))
def test_a_fitted_estimator_and_its_page_agree(open_report, task):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, 150),
            "age": rng.normal(60, 10, 150).round(),
            "ward": rng.choice(["A", "B", "C"], 150),
            "egfr": np.where(rng.random(150) < 0.1, np.nan, rng.normal(75, 18, 150)),
        }
    )
    eta = 0.1 * (X["dose"] - 20) * (1 + 0.05 * (X["age"] - 60)) + (X["ward"] == "B")
    options = dict(
        missing="indicator", basis={"dose": "spline"}, alpha=0.003, max_iter=40
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if task == "regression":
            est = NIMORegressor(random_state=0, **options)
            est.fit(X, eta + 0.1 * rng.normal(size=150))
            y, mean = eta, est.predict(X)
        else:
            est = NIMOClassifier(random_state=0, **options)
            y = np.where(rng.random(150) < 1 / (1 + np.exp(-eta)), "ill", "well")
            est.fit(X, y)
            mean = est.predict_proba(X)[:, 1]
    rows = [0, 17, 60, 120]
    view = open_report(est.report(None, X, y, rows=rows))
    explanation = est.explain(X)
    for place, row in enumerate(rows, start=1):
        view.page.locator("#start").select_option(str(place))
        assert view.mean == close(mean[row])
        assert view.eta == close(explanation.eta[row])
        for feature, value in view.parts().items():
            assert value == close(explanation.values[row, feature])
            reach = 1.959964 * explanation.std_err[row, feature]
            shown = f'.control[data-feature="{feature}"] .reach'
            assert view.number(shown, "value") == close(reach, 1e-5)
    assert view.page.locator("#reach-key").is_visible()


@pytest.mark.slow
def test_a_page_of_one_class_has_its_probability_and_errors(open_report, monkeypatch):
    """Members of all classes together differ, by coefficients and by bends."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    eta = np.c_[np.zeros(90), X[:, 0], X[:, 1] + X[:, 0]]
    y = np.array(["a", "b", "c"])[(eta + rng.gumbel(size=eta.shape)).argmax(1)]
    est = NIMOClassifier(alpha=0.01, max_iter=0, hidden=(2, 2)).fit(X, y)
    one = est.model_.stacked
    params = torch.as_tensor(rng.normal(size=(9, one.params.shape[1])))
    stacked = replace(
        one,
        coef=one.coef.repeat_interleave(3, 0) * torch.tensor([[1.0], [1.2], [1.0]] * 3),
        intercept=one.intercept.repeat_interleave(3),
        params=params.to(one.params),
        modulated=torch.tensor([[True], [True], [False]]).repeat(3, 2),
    )
    est._show_model(ClassModels(stacked, 3))
    report = est.report(None, X, y, rows=[5], class_="b")
    assert "On the 90 rows given" in report.html
    assert "as a set" not in report.html  # they are the rows of the fit
    view = open_report(report)
    assert view.mean == close(est.predict_proba(est.reference_[None])[0, 1])
    view.page.locator("#start").select_option("1")
    known = 1.959964 * est.for_class("b").explain(X[5:6]).std_err[0]
    for feature in (0, 1):
        shown = f'.control[data-feature="{feature}"] .reach'
        assert view.number(shown, "value") == close(known[feature], 1e-5)
    assert view.page.locator(".waterfall .reach").count() > 0
    # All classes move with a feature, in figures of single values and along them.
    row = X[5].copy()
    for feature, value in ((0, -1.5), (1, 2.0)):
        view.set(feature, value)
        row[feature] = value
        assert view.mean == close(est.predict_proba(row[None])[0, 1])
    assert "other classes" in view.page.locator("#sum").inner_text()
    assert view.page.locator("#offset").count() == 0
    text = report.html
    assert "softmax of 3 classes" in text and "binomial family" not in text
    assert "change of the score of b with everything else at the reference" in text
    name = "Probability of b"
    assert view.page.locator("#prediction-name").inner_text() == name
    # A page that would become too large says that it holds the others.
    monkeypatch.setattr(whatif, "MAX_CLASS_NUMBERS", 10)
    small = open_report(est.report(None, X, y, rows=[5], class_="b"))
    assert small.mean == close(est.predict_proba(est.reference_[None])[0, 1])
    told = small.page.locator("#prediction-name").inner_text()
    assert told == f"{name}, scores of the other classes held"


def test_what_other_features_fix_is_not_proposed_to_change_alone(
    make_report, open_report, make_model, draw_sample
):
    kinds = ("linear", "levels", "linear")
    model = make_model(kinds)
    sample = draw_sample(model, n_rows=300)
    table = sample.table.copy()
    table[:, 1] = np.arange(300) % len(model.features.levels(1))
    table[:, 0] = model.features.reference[0] + table[:, 1] * model.features.scale[0]
    proposed = []
    for part in (sample, replace(sample, table=table)):
        view = open_report(make_report(kinds, sample=part, rows=[3]).report)
        find = "items => items.map(i => +i.dataset.feature)"
        items = view.page.eval_on_selector_all("#moves li[data-change]", find)
        proposed.append(1 in items)
    assert proposed == [True, False]
