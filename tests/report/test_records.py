"""The page shows the numbers of `summary`, `effects`, `interactions` and `explain`."""

import json
import re
import warnings
from html import unescape
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.explain import compare
from sknimo.report._figures import curve_panel, effect_panel
from sknimo.report._text import show_fixed, show_number, show_percent

N_TRAIN = 150


def draw_table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, 240),
            "ward": rng.choice(["A", "B", "C"], 240),
            "sex": rng.choice(["f", "m"], 240),
            "age": np.where(rng.random(240) < 0.1, np.nan, rng.normal(60, 10, 240)),
            "smokes": rng.integers(0, 2, 240).astype(float),
        }
    )
    bent = 1 + 0.05 * (X["age"].fillna(55) - 60) + 0.5 * (X["sex"] == "m")
    y = 0.1 * (X["dose"] - 20) * bent + (X["ward"] == "B") * (1 + X["smokes"])
    return X, (y + 0.3 * rng.normal(size=240)).rename("fall")


@pytest.fixture(scope="module", params=("gaussian", "binomial"))
def fitted(request):
    X, y = draw_table()
    options = dict(
        alpha=0.003, max_iter=40, missing="indicator", basis={"dose": "spline"}
    )
    est = NIMORegressor(**options, random_state=0)
    if request.param == "binomial":
        est, y = NIMOClassifier(**options, random_state=0), y > y.median()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X[:N_TRAIN], y[:N_TRAIN]), X, y


@pytest.fixture(scope="module")
def page(fitted):
    """The page on the training rows."""
    est, X, y = fitted
    return est.report(None, X[:N_TRAIN], y[:N_TRAIN]).html


@pytest.fixture(scope="module")
def other_page(fitted):
    """The page on rows that the model was not fitted to."""
    est, X, y = fitted
    return est.report(None, X[N_TRAIN:], y[N_TRAIN:]).html


def plain(html):
    return unescape(re.sub(r"<[^>]+>", "", html)).strip()


def read_coefficients(html):
    """Rows of the table of coefficients: (feature, level) to cells by their label."""
    table = re.search(r'<table class="coefficients">(.*?)</table>', html, re.S)[1]
    found, feature = {}, ""
    for row in re.findall(r"<tr.*?</tr>", table.partition("<tbody>")[2], re.S):
        name = plain(re.search(r'class="feature-name">(.*?)</bdi>', row)[1])
        cells = {
            label: plain(text)
            for label, text in re.findall(r'data-label="([^"]*)"[^>]*>(.*?)</td>', row)
        }
        exact = re.search(r'data-value="([^"]+)"', row)
        cells["exact"] = None if exact is None else float(exact[1])
        is_level = 'class="level' in row and "level-head" not in row
        feature = feature if is_level else name
        found[feature, name if is_level else ""] = cells
    return found


def read_pairs(html):
    table = re.search(r'<table class="pairs">(.*?)</table>', html, re.S)[1]
    rows = re.findall(r"<tr><th.*?</tr>", table.partition("<tbody>")[2], re.S)
    return {
        plain(re.search(r"<th.*?</th>", row)[0]): plain(
            re.search(r'<td class="num">(.*?)</td>', row)[1]
        )
        for row in rows
    }


def read_measures(html):
    found = re.findall(
        r'<tr><th scope="row">(.*?) <span class="meaning">.*?</th>(.*?)</tr>', html
    )
    return {
        name: [plain(cell) for cell in re.findall(r"<td.*?</td>", cells)]
        for name, cells in found
    }


def show_change(value, percent):
    """A change of the response as the page has it."""
    if not percent:
        return show_number(value, 3, signed=True)
    return f"{show_fixed(100 * value, 1)} points"


def number(text):
    amount = text.partition(" ±")[0]
    return float(amount.replace("−", "-").replace(",", ""))


def test_the_page_is_given_all_that_its_script_reads(page):
    found = re.search(r'id="page-data">(.*?)</script>', page, re.S)[1]
    script = page.partition(found)[2]
    assert set(re.findall(r"\bdata\.(\w+)", script)) == set(json.loads(found))


def test_every_coefficient_of_the_summary_is_on_the_page(fitted, page):
    est, *_ = fitted
    shown = read_coefficients(page)
    summary = est.summary()
    for row in summary.rows:
        if row.kind in ("category", "baseline"):
            continue
        level = row.level
        if not level and (row.name, "the number") in shown:
            level = "the number"
        cells = shown.pop((row.name, level))
        assert cells["exact"] == row.coef
        coef = cells["Coefficient"].removesuffix(" (unlike most rows)")
        assert coef == show_number(row.coef * row.step)
        if summary.ratio_label is not None:
            assert cells[summary.ratio_label] == show_number(row.step_ratio)
        assert cells["Average effect"] == show_change(row.response, summary.percent)
        assert cells["per"] == (show_number(row.step) if row.is_feature else "")
    assert {cells["exact"] for cells in shown.values()} == {None}  # headings


def test_what_bends_a_coefficient_is_what_the_summary_says(fitted, page):
    est, *_ = fitted
    shown = {
        feature: cells["Depends on"]
        for (feature, level), cells in read_coefficients(page).items()
        if not level
    }
    named = {
        name: re.findall(r"(\w+) \(", text) for name, text in est.summary().modifiers
    }
    assert any(named.values())
    for feature, text in shown.items():
        assert re.findall(r"\w+", text.replace(" and ", " ")) == named.get(feature, [])


def test_what_is_explained_is_what_the_summary_says(fitted, page):
    est, *_ = fitted
    _, model = next(iter(read_measures(page).values()))
    assert model == show_percent(est._facts.explained)


def test_on_other_rows_the_page_shows_their_effects(fitted, other_page):
    est, X, _ = fitted
    model = est.model_
    found = compare(model, est._read_table(X[N_TRAIN:]))
    shown = read_coefficients(other_page)
    for at, full in enumerate(model.features.coef_names):
        name, _, level = full.rstrip("]").partition("[")
        cells = shown.get((name, level or "the number")) or shown[name, ""]
        change = show_change(found.response[at], model.family.is_binary)
        assert cells["Average effect"] == change


@pytest.mark.parametrize("rows", (slice(0, N_TRAIN), slice(N_TRAIN, None)))
def test_strengths_of_pairs_are_those_of_interactions(fitted, request, rows):
    est, X, _ = fitted
    name = "page" if rows.start == 0 else "other_page"
    shown = read_pairs(request.getfixturevalue(name))
    found = est.interactions(X[rows])
    ranked = [f"{j} × {k}" for j, k in found.strongest(100)]
    assert [pair for pair in ranked if pair in shown] == list(shown)
    for pair, text in shown.items():
        j, k = (found.names.index(part) for part in pair.split(" × "))
        decimals = len(text.partition(".")[2])
        assert text == f"{found.strength[j, k]:.{decimals}f}"
    assert len(shown) > 3


def test_steps_of_single_rows_are_the_contributions_of_explain(fitted):
    est, X, y = fitted
    html = est.report(None, X[:N_TRAIN], y[:N_TRAIN], rows=[3]).html
    table = re.search(r'<table class="waterfall">(.*?)</table>', html, re.S)[1]
    rows = est.explain(X[3:4])
    shown = {
        plain(name): number(plain(amount))
        for name, amount in re.findall(
            r'<bdi class="feature-name">(.*?)</bdi>.*?<td class="num">(.*?)</td>', table
        )
    }
    assert shown["base value"] == pytest.approx(rows.base_value, rel=5e-4)
    values = dict(zip(rows.names, rows.values[0], strict=True))
    largest = max(map(abs, values.values()))
    for name, value in values.items():
        assert shown.get(name, 0.0) == pytest.approx(value, abs=6e-3 * largest)


def test_figures_say_which_levels_they_leave_out():
    def panel(count):
        labels = tuple(f"month {k}" for k in range(count))
        values = np.arange(float(count))
        curve = SimpleNamespace(
            feature="month", levels=labels, value=values, effect=0 * values
        )
        rows = SimpleNamespace(data=values[:, None], values=np.zeros((count, 1)))
        return effect_panel(curve, rows, 0, None)

    assert panel(12).left == ""
    assert all(f"month {k}<" in panel(12).figure for k in range(12))
    assert panel(14).left == "Not drawn: 2 values of fewer rows."


def test_figures_of_coefficients_have_the_unit_of_the_table():
    """And a missing value, whose unit is another, is not among them."""
    curve = SimpleNamespace(
        feature="hour",
        modifier="day",
        modifier_levels=None,
        feature_levels=None,
        grid=np.array([0.0, 1.0]),
        reference=0.5,
        all_coef=np.array([[0.1, 3.0], [0.2, 9.0]]),
        coef_labels=("", "missing"),
    )
    panel = curve_panel(curve, np.array([0.15, 5.0]), step=10.0)
    assert "coefficient of hour, per 10" in panel.figure
    assert "goes from 1 to 2" in panel.figure
    assert panel.caption == panel.left == ""


def test_a_feature_that_goes_up_and_down_is_told_by_its_ends():
    """The sum of its ups and downs would be a headline about nothing."""
    hour = np.repeat(np.arange(10.0), 30)
    random = np.random.default_rng(0)
    X = pd.DataFrame({"hour": hour, "age": random.normal(60, 10, 300)})
    y = 20 - (hour - 4) ** 2 + 0.001 * X["age"]
    est = NIMORegressor(alpha=0.0, max_iter=0, basis={"hour": "poly2"})
    text = plain(est.fit(X, y).report(None, X, y).html)
    assert "hour: up and down. With all else as in the rows" in text
    assert "lowest at 9 (−4.94 on average) and highest at 4 (20.1)" in text


def test_what_helped_to_fit_is_called_so(page, other_page):
    seen = "The rows helped to fit, so that predictions lie closer to them"
    assert seen in page
    assert seen not in other_page
    assert "On the training rows, which flatters." in page
    assert "On the rows given." in other_page


def test_a_target_without_a_name_has_one_article(make_report):
    made = make_report(("linear", "levels"))
    assert "the target" in made.report.html
    assert "the the" not in made.report.html
