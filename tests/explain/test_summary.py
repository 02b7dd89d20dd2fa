"""The page: fits 80 columns, says what is known and invents nothing."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from sknimo.explain import describe_training, summarise
from sknimo.features import FeatureMap


class Text(HTMLParser):
    """Cells of the tables in an HTML text; fails on unbalanced tags."""

    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells.append(data)


def read_html(page):
    parser = Text()
    parser.feed(page)
    assert parser.open == []
    return parser.cells


def test_text_fits_eighty_columns(fitted):
    lines = str(fitted.est.summary()).splitlines()
    assert max(map(len, lines)) <= 80


def test_page_states_family_rows_and_deviances(fitted):
    text = str(fitted.est.summary())
    facts = fitted.est._facts
    assert re.search(rf"Family: +{fitted.model.family.name}", text)
    assert re.search(r"Rows: +160", text)
    assert f"{facts.deviance:.5g}" in text
    assert f"{facts.glm_deviance:.5g}" in text
    assert re.search(rf"Converged: +{'yes' if fitted.est.converged_ else 'no'}", text)
    assert fitted.est.certificate_.status[:20] in text


def test_page_lists_every_coefficient_with_its_role(fitted):
    summary = fitted.est.summary()
    roles = fitted.est.effects(fitted.X).role
    for j, name in enumerate(fitted.X.columns):
        if roles[j] == "neither":
            assert name in summary.idle
            continue
        (row,) = [row for row in summary.rows if row.name == name]
        assert row.coef == fitted.est.coef_[j]
        assert row.role == roles[j]
        line = next(
            line for line in str(summary).splitlines() if line.startswith(f"{name} ")
        )
        assert f"{row.coef:.4g}" in line and line.endswith(row.role)


def test_standard_errors_have_a_place_and_no_number(fitted):
    summary = fitted.est.summary()
    assert all(row.std_error is None for row in summary.rows)
    assert "std err" in str(summary)
    known = replace(summary.rows[0], std_error=0.125)
    filled = replace(summary, rows=(known, *summary.rows[1:]))
    assert "0.125" in str(filled)


def test_ratios_take_the_third_column_where_they_exist(fitted_models):
    page = str(fitted_models["binomial"].est.summary())
    assert "odds ratio" in page and "per sd:" not in page
    row = fitted_models["binomial"].est.summary().rows[0]
    assert row.scaled == pytest.approx(np.exp(row.coef))
    assert "per sd" in str(fitted_models["gaussian"].est.summary())


def test_strongest_modifiers_stand_below_the_table(fitted_models):
    summary = fitted_models["gaussian"].est.summary()
    bent = dict(summary.modifiers)
    assert bent["dose"].startswith("age (")


def test_html_holds_the_same_numbers_and_escapes_names(fitted):
    summary = fitted.est.summary()
    cells = read_html(summary._repr_html_())
    for row in summary.rows:
        assert row.name in cells
        assert f"{row.coef:.4g}" in cells
    evil = replace(summary, rows=(replace(summary.rows[0], name="<b>x & y</b>"),))
    assert "&lt;b&gt;x &amp; y&lt;/b&gt;" in evil._repr_html_()
    read_html(evil._repr_html_())


def test_many_features_with_long_names_still_fit(make_model, draw_table):
    model = make_model(n_features=50, idle=tuple(range(20, 50)))
    names = tuple(f"laboratory measurement number {j}" for j in range(50))
    model = replace(model, features=FeatureMap(names, model.features.bases))
    table = draw_table(model)
    facts = describe_training(model, table, model.eta(table))
    summary = summarise(model, facts, title="Fifty features")
    lines = str(summary).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(summary.rows) == 20
    assert len(summary.idle) == 30


def test_without_training_facts_nothing_is_made_up(fitted):
    summary = summarise(fitted.model, None, title="Loaded")
    text = str(summary)
    assert "Deviance" not in text
    assert all(row.average_effect is None for row in summary.rows)
    assert re.search(r"Rows: +-", text)
