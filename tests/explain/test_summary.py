"""The page: fits 80 columns, says what is known and invents nothing."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from sknimo.explain import (
    HeldOutScores,
    KnownErrors,
    compare,
    describe_training,
    effect_curve,
    summarise,
)
from sknimo.explain._frames import clean, cut, pad, width_of, wrap
from sknimo.explain._summary import Summary, SummaryRow
from sknimo.features import FeatureMap

HOSTILE = (
    "<script>alert('age')</script>",
    "dose\nwith\tlines",
    "体格指数（体重÷身長の二乗）とても長い",
    "income " * 20,
    "$\\frac{1}{2}$ & co",
    "_sex",
    "",
    "b\x00lood",
    "\u202etwin",
    "site",
    "constant",
)


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
    # A GLM without a penalty looks better than it is on the rows it was fitted to.
    assert f"{facts.glm_deviance:.5g}" not in text
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
        assert f"{row.coef * row.step:.4g}" in line
        points = f"{100 * row.response:+.1f} pp"
        assert (points if summary.percent else f"{row.response:+.3g}") in line


def test_intervals_are_those_of_conf_int(fitted):
    summary, found = fitted.est.summary(), fitted.est.conf_int()
    assert "95 % interval" in summary.headings
    at = {name: j for j, name in enumerate(found.names)}
    for row in summary.rows:
        j = at[row.name]
        if found.notes[j]:
            assert row.std_error is None
            assert row.error_note == found.notes[j]
        else:
            assert (row.std_error, row.z) == (found.std_err[j], found.z[j])
            assert (row.lower, row.upper) == (found.lower[j], found.upper[j])


def test_without_errors_the_page_says_so(fitted):
    summary = summarise(fitted.model, None, title="x")
    assert all(row.std_error is None for row in summary.rows)
    assert "std err" not in str(summary)
    assert "No standard errors" in str(summary)


def test_ratios_have_a_column_where_they_exist(fitted_models):
    summary = fitted_models["binomial"].est.summary()
    assert "odds ratio" in str(summary)
    row = summary.rows[0]
    assert row.ratio == pytest.approx(np.exp(row.coef))
    assert f"{np.exp(row.coef * row.step):.4g}" in str(summary)
    gaussian = fitted_models["gaussian"].est.summary()
    assert not any("ratio" in heading for heading in gaussian.headings)


def test_every_family_has_a_column_per_standard_deviation(fitted):
    summary = fitted.est.summary()
    scale = dict(
        zip(fitted.X.columns, fitted.model.features.scale.tolist(), strict=True)
    )
    assert "per sd" in summarise(fitted.model, None, title="x").headings
    for row in summary.rows:
        assert row.coef_std == pytest.approx(row.coef * scale[row.name])


@pytest.mark.parametrize("n_members", [2, 5])
def test_the_spread_between_members_is_that_of_their_coefficients(
    make_mixed, n_members
):
    model = make_mixed(n_members=n_members)
    summary = summarise(model, None, title="Members")
    names = model.features.coef_names
    each = [model.features.coefficients(row) for row in model.coef.numpy()]
    spread = dict(zip(names, np.std(each, axis=0, ddof=1), strict=True))
    told = {
        row.name if row.is_feature else f"{row.name}[{row.level}]": row
        for row in summary.rows
    }
    for name, row in told.items():
        if row.kind in ("category", "baseline"):
            assert row.member_sd is None
        else:
            assert row.member_sd == pytest.approx(spread[name], rel=1e-12)
    (note,) = [note for note in summary.notes if note.startswith("members: ")]
    assert f"between the {n_members} that were averaged" in note
    widest = max(
        (row for row in told.values() if row.member_sd is not None),
        key=lambda row: row.member_sd / abs(row.coef),
    )
    assert f"{widest.member_sd:.2g}" in note


def test_the_note_on_members_has_the_unit_of_the_column(make_model, draw_table):
    model = make_model(n_members=3)
    table = draw_table(model)
    facts = describe_training(model, table, model.eta(table))
    summary = summarise(model, facts, title="Members")
    (note,) = [note for note in summary.notes if note.startswith("members: ")]
    assert any(row.step != 1 for row in summary.rows)
    for row in summary.rows:
        assert f" {row.name} {row.member_sd * row.step:.2g}" in note


def test_one_member_has_no_spread(fitted):
    assert fitted.model.n_members == 1
    summary = fitted.est.summary()
    assert all(row.member_sd is None for row in summary.rows)
    assert "members: " not in str(summary)


@pytest.mark.parametrize("n_bent", [0, 2])
def test_parts_that_are_no_models_alone_have_no_spread(make_mixed, n_bent):
    model = make_mixed(n_members=3)
    modulated = model.modulated.clone()
    modulated[n_bent:] = False
    summary = summarise(replace(model, modulated=modulated), None, title="x")
    assert all(row.member_sd is None for row in summary.rows)
    assert "members: " not in str(summary)


def test_a_coefficient_that_members_cancel_is_zero(make_model):
    model = make_model(n_members=3)
    coef = model.coef.clone()
    coef[:, 0] = coef.new_tensor([0.1, 0.2, -0.3])
    model = replace(model, coef=coef)
    assert model.term_coef[0] != 0  # by rounding
    rows = summarise(model, None, title="x").rows
    assert rows[0].coef == 0
    assert rows[1].coef == model.features.coefficients(model.term_coef)[1] != 0


def test_strongest_modifiers_stand_below_the_table(fitted_models):
    summary = fitted_models["gaussian"].est.summary()
    bent = dict(summary.modifiers)
    assert bent["dose"].startswith("age (")


def test_html_holds_the_same_numbers_and_escapes_names(fitted):
    summary = fitted.est.summary()
    cells = read_html(summary._repr_html_())
    for row in summary.rows:
        assert row.name in cells
        assert f"{row.coef * row.step:.4g}" in cells
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


# Every kind of feature


@pytest.fixture
def mixed_page(make_mixed, draw_mixed):
    model = make_mixed(deaf=("blood",))
    table = draw_mixed(80)
    facts = describe_training(model, table, model.eta(table))
    options = dict(title="Mixed", reference="median", order="columns")
    return model, facts, summarise(model, facts, **options)


def test_there_is_one_row_per_feature_level_and_missing_value(mixed_page):
    model, facts, summary = mixed_page
    rows = [(row.name, row.kind, row.level) for row in summary.rows]
    assert rows == [
        ("age", "line", ""),
        ("dose", "curve", ""),
        ("bmi", "curve", ""),
        ("bmi", "missing", "missing"),
        ("income", "line", ""),
        ("income", "missing", "missing"),
        ("smoker", "line", ""),
        ("sex", "category", ""),
        ("sex", "baseline", "man"),
        ("sex", "level", "woman"),
        ("region", "category", ""),
        ("region", "baseline", "north"),
        ("region", "level", "east <&> $x$"),
        ("region", "level", "south"),
        ("region", "level", "two\nlines"),
        ("blood", "category", ""),
        ("blood", "baseline", "0"),
        ("blood", "level", "1"),
        ("blood", "level", "2"),
        ("blood", "missing", "missing"),
        ("twin", "category", ""),
        ("twin", "baseline", "False"),
        ("twin", "level", "True"),
        ("twin", "missing", "missing"),
    ]
    assert summary.idle == ("site", "constant")


def test_numbers_of_the_rows_are_those_of_the_effects(mixed_page):
    model, facts, summary = mixed_page
    effects = facts.effects
    coef = dict(
        zip(
            model.features.coef_names,
            model.features.coefficients(model.term_coef),
            strict=True,
        )
    )
    for row in summary.rows:
        j = effects.names.index(row.name)
        if row.is_feature:
            assert row.average_effect == effects.average_effect[j]
            assert row.bend == effects.bend[j]
            assert row.role == effects.role[j]
            assert np.isnan(row.coef) == (row.kind == "category")
            if row.kind != "category":
                assert row.coef == coef[row.name]
        elif row.kind != "baseline":
            assert row.coef == coef[f"{row.name}[{row.level}]"]
            own = [
                at
                for at in effects.levels.of(j)
                if effects.levels.levels[at] == row.level
            ]
            assert row.average_effect == effects.levels.average_effect[own[0]]


def test_the_page_marks_baselines_levels_and_curves(mixed_page):
    _, _, summary = mixed_page
    text = str(summary)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:2] == ["dose", "(curve)"] for line in lines)
    assert any(line.split()[::2] == ["north", "baseline"] for line in lines)
    assert any(line.startswith("region ") and "4 levels" in line for line in lines)
    assert any(line.startswith("  two\\nlines ") for line in lines)
    assert "levels: change from the baseline" in text
    assert "missing: change from the reference" in text


def test_curves_are_given_with_the_range_of_their_effect(mixed_page):
    model, _, summary = mixed_page
    assert [name for name, _ in summary.curves] == ["dose", "bmi"]
    found = effect_curve(model, "dose")
    low, high = found.effect.min(), found.effect.max()
    text = dict(summary.curves)["dose"]
    assert text.startswith(f"from {low:.3g} at ") and f" to {high:.3g} at " in text


def test_the_head_says_whose_effect_it_is(mixed_page):
    model, facts, summary = mixed_page
    reference = model.features.reference
    text = " ".join(str(summary).split())
    age = f"Reference (median, most frequent level): age {reference[0]:.4g}, dose"
    assert age in text
    assert "sex 'man', region 'north', blood 0, twin False" in text
    chosen = summarise(model, facts, title="x", reference={"age": 30, "sex": "man"})
    assert chosen.reference[0] == "Reference (set for 2 of 11 features)"
    mode = summarise(model, facts, title="x", reference="mode")
    assert mode.reference[0] == "Reference (most frequent value)"
    assert summarise(model, facts, title="x").reference[0] == "Reference"


def test_the_reference_of_many_features_is_cut_and_counted(make_model):
    model = make_model(n_features=60)
    summary = summarise(model, None, title="Sixty", reference="mean")
    begin = str(summary).index("Reference (mean)")
    end = str(summary).index("====", begin)
    lines = str(summary)[begin:end].splitlines()
    assert len(lines) == 3
    shown = len(re.findall(r"\bx\d+ +-?\d", " ".join(lines)))
    assert lines[-1].endswith(f"and {60 - shown} more")
    assert len(summary.reference) == 61
    html = summary._repr_html_()
    assert "x59 " in html


def test_averages_that_are_left_out_are_counted_in_a_line_without_a_name(mixed_page):
    summary = mixed_page[2]
    row = next(row for row in summary.rows if row.kind == "line")
    known = replace(
        row, response=1.0, corrected=1.0, average_lower=0.5, average_upper=1.5
    )
    html = replace(summary, rows=(known,) * 40)._repr_html_()
    assert "<li>and 10 more: to_frame() has them</li>" in html


def test_hostile_names_and_levels_break_neither_text_nor_html(make_mixed, draw_mixed):
    model = make_mixed(family="binomial")
    model = replace(model, features=replace(model.features, names=HOSTILE))
    table = draw_mixed(60)
    y = (model.eta(table) > 0).astype(float)
    summary = summarise(model, describe_training(model, table, y), title="Hostile")
    lines = str(summary).split("\n")
    assert max(map(width_of, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    html = summary._repr_html_()
    cells = read_html(html)
    assert "<script>" not in html and "<script>alert('age')</script>" in cells
    assert "$\\frac{1}{2}$ & co" in cells
    assert "_sex: woman" in cells
    assert ": east <&> $x$" in cells  # a level of the feature without a name


def test_ratios_of_levels_have_their_column(make_mixed, draw_mixed):
    model = make_mixed(family="poisson")
    summary = summarise(model, None, title="Counts")
    for row in summary.rows:
        if row.kind == "category":
            assert np.isnan(row.ratio)
        else:
            assert row.ratio == pytest.approx(np.exp(row.coef))
    assert all(row.average_effect is None and row.bend is None for row in summary.rows)
    assert max(map(len, str(summary).splitlines())) <= 80


# What leads


def test_the_first_sentence_says_which_model_this_is(make_model, draw_table):
    plain, bent = make_model(size=0.0), make_model(n_members=3)
    plain = replace(plain, modulated=plain.modulated & False)
    tried = HeldOutScores(0.4, 0.4, gain=-0.01, gain_error=0.02)
    worth = HeldOutScores(0.5, 0.4, gain=0.16, gain_error=0.02)
    for model, scores, words, count in (
        (plain, None, "This is a plain linear model: no effect depends", 0),
        (plain, tried, "held-out rows no better (-1.0 % (standard error 2.0)", 0),
        (bent, None, "No rows were held out to tell", 3),
        (bent, worth, "50.0 % of the variance, 40.0 % without", 3),
        (bent, worth, "saves 16.0 % (standard error 2.0)", 3),
    ):
        summary = summarise(model, None, title="x", scores=scores)
        assert words in summary.headline[0]
        assert dict(summary.facts)["Networks averaged:"] == str(count)
        shown = " ".join(str(summary).split())
        assert shown.index(" ".join(words.split())) < shown.index("Family:")


def test_curves_are_not_called_plain(make_model):
    model = make_model(curved=(1,), size=0.0)
    model = replace(model, modulated=model.modulated & False)
    (sentence,) = summarise(model, None, title="x").headline
    assert "with curves" in sentence and "plain" not in sentence


def test_a_fit_that_was_cut_short_says_so_before_any_number(fitted):
    summary = summarise(fitted.model, fitted.est._facts, title="x", converged=False)
    assert summary.headline[1].startswith("Not converged")
    calm = summarise(fitted.model, fitted.est._facts, title="x", converged=True)
    assert "onverged:" in str(calm) and "Not converged" not in str(calm)


def hollow(make_model):
    """A model in which x0 acts upwards in all rows and downwards at the reference."""
    model = make_model(n_features=2, size=0.0)
    rng = np.random.default_rng(0)
    side = np.sign(rng.normal(size=200))
    features = model.features
    z = np.column_stack([rng.normal(size=200), side * 1.0])
    return model, features.reference + features.scale * z


def test_a_coefficient_of_the_other_sign_is_warned_of(make_model):
    model, table = hollow(make_model)
    coef = model.features.coefficients(model.term_coef)
    found = compare(model, table)
    assert not found.contradicts(coef).any()  # nothing is bent
    flipped = found.contradicts(-coef)
    assert flipped.all()
    far = found.contradicts(coef * 3)
    assert far.all()


def test_the_warning_names_the_feature_and_both_numbers(make_model):
    model, table = hollow(make_model)
    facts = describe_training(model, table, model.eta(table))
    wrong = replace(facts.comparisons, eta=-facts.comparisons.eta)
    ends = -facts.comparisons.eta_ends[::-1]
    facts = replace(facts, comparisons=replace(wrong, eta_ends=ends))
    summary = summarise(model, facts, title="x")
    (warning,) = [text for text in summary.headline if "Quote the average" in text]
    assert "x0 (" in warning and "there" in warning and "on average" in warning


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_two_measures_do_not_have_one_name(make_model, family):
    model = make_model(family=family)
    table = np.random.default_rng(0).normal(size=(60, 4))
    facts = describe_training(model, table, (model.eta(table) > 0).astype(float))
    page = str(summarise(model, facts, title="x", scores=HeldOutScores(0.4)))
    of_classes = family == "binomial"
    assert ("D2, training rows:" in page) == of_classes
    assert ("Explained, training rows:" in page) != of_classes
    assert ("D2: share of the deviance" in page) == of_classes


def test_without_bends_no_number_is_said_twice():
    labels = [label for label, _ in HeldOutScores(0.4, 0.4, bend=0.0).lines()]
    assert labels == ["Held-out R2"]
    assert len(HeldOutScores(0.5, 0.4, bend=0.3).lines()) == 3


@pytest.mark.parametrize("coef", [-5.398e-08, -0.0004192, 123456.789, -9.87654e-300])
def test_a_row_fits_eighty_columns_whatever_its_coefficient(coef):
    ends = {"std_error": 1e-9, "lower": 3 * coef, "upper": -2.2222 * coef}
    row = SummaryRow(
        "a_name", coef, ends.pop("std_error"), coef, 0.9999999, None, 0.6, ""
    )
    page = Summary(
        *("title", (), (), (), "odds ratio", True, -1.4716, 0.187),
        *((replace(row, response=0.019, **ends),), (), (), (), ()),
    )
    assert max(len(line) for line in str(page).splitlines()) <= 80


def test_a_feature_that_only_bends_is_not_called_removed():
    errors = KnownErrors(*np.full((4, 1), np.nan), ("removed",))
    row = SummaryRow("egfr", 0.0, None, 0.0, np.nan, None, 0.9, "modifier")
    shown = errors.put(row, 0)
    assert shown.error_note == "only bends"
    assert "removed" not in " ".join(errors.words((shown,)))


def test_features_come_by_importance_or_as_given(fitted):
    by_importance = [row for row in fitted.est.summary().rows if row.is_feature]
    sizes = [row.importance for row in by_importance]
    assert sizes == sorted(sizes, reverse=True)
    given = [row.name for row in fitted.est.summary(order="columns").rows]
    assert given == [name for name in fitted.X.columns if name in given]
    with pytest.raises(ValueError, match="order must be one of"):
        fitted.est.summary(order="size")


# Other shapes


def test_a_frame_has_the_numbers_of_the_rows(mixed_page):
    _, _, summary = mixed_page
    frame = summary.to_frame()
    assert frame["feature"].tolist() == [row.name for row in summary.rows]
    np.testing.assert_array_equal(frame["coef"], [row.coef for row in summary.rows])
    known = [row.n_rows for row in summary.rows if row.n_rows is not None]
    assert frame["n_rows"].dropna().tolist() == known


def test_markdown_has_one_line_per_row_and_equal_columns(mixed_page):
    _, _, summary = mixed_page
    lines = [li for li in summary.to_markdown().splitlines() if li.startswith("|")]
    assert len(lines) == len(summary.rows) + 3
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_latex_escapes_names_and_closes_what_it_opens(mixed_page):
    _, _, summary = mixed_page
    text = summary.to_latex()
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    assert r"east <\&> \$x\$" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == len(summary.rows) + 2
    assert len({len(re.findall(r"(?<!\\)&", row)) for row in rows}) == 1


# Text


def test_text_is_cut_by_the_columns_it_takes():
    assert cut("a long name", 6) == "a lon~"
    assert cut("年齢年齢", 6) == "年齢~"
    assert width_of(cut("年齢" * 20, 19)) <= 19
    assert pad("年齢", 6) == "年齢  "
    assert clean("a\tb\x00\u202e") == "a\\tb\\x00\\u202e"
    assert width_of("e\u0301") == 1


@pytest.mark.parametrize(
    "text", ["x" * 100, "a " * 60, "年" * 70, "", "ab " + "c" * 50]
)
@pytest.mark.parametrize("head", ["", "label: "])
def test_wrapped_lines_fit_and_lose_nothing(text, head):
    lines = wrap(text, 20, head, "  ")
    assert max(map(width_of, lines)) <= 20
    assert lines[0].startswith(head)
    joined = lines[0].removeprefix(head) + "".join(line[2:] for line in lines[1:])
    assert joined.replace(" ", "") == text.replace(" ", "")
