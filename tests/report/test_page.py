"""The page in a browser: safe, legible, usable without a mouse, on any screen."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from sknimo.features import FeatureMap, Levels, Linear
from sknimo.report import ModelCard, Sample, render_report

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "<!--<script>",
    "{{ 7 * 7 }}",
    "' onfocus='alert(5)' autofocus='",
    "\u202egnol\u202c \x00 \u2028 \ud800",
    "a" * 300,
    "<b>bold</b> & <i>more</i>",
)
KINDS = ("linear", "levels", "spline", "or_missing", "linear", "polynomial")
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def hostile(make_model, draw_sample):
    """A report in which every text that data can bring tries to break out."""
    model = make_model(("linear",) * (len(HOSTILE) - 1) + ("levels",), names=HOSTILE)
    bases = list(model.features.bases)
    bases[-1] = Levels(tuple(HOSTILE[:3]), 1, 0.45)
    features = FeatureMap(
        HOSTILE, tuple(bases), (), model.features.low, model.features.high
    )
    model = replace(model, features=features)
    sample = draw_sample(model, target=HOSTILE[1])
    labels = tuple(HOSTILE[row % len(HOSTILE)] for row in range(len(sample)))
    sample = Sample(sample.table, sample.y, labels=labels, target=HOSTILE[0])
    settings = (("alpha", HOSTILE[1]), ("title", HOSTILE[3]))
    fit = ModelCard(model, kind="NIMORegressor", settings=settings, changed=("alpha",))
    return render_report(fit, sample, held_out=sample, title=HOSTILE[1])


def test_hostile_names_are_shown_and_not_run(hostile, open_report):
    view = open_report(hostile)
    shown = view.page.evaluate("() => document.body.innerText")
    for name in HOSTILE[:4]:
        assert name in shown
    assert "{{ 7 * 7 }}" in shown
    assert view.page.locator("h1").inner_text() == HOSTILE[1]
    assert view.page.evaluate("() => document.scripts.length") == 2
    assert view.page.locator("img, b, i, iframe, object, embed").count() == 0


def test_hostile_levels_are_options_like_any_other(hostile, open_report):
    view = open_report(hostile)
    options = view.control(len(HOSTILE) - 1).locator("option").all_inner_texts()
    assert options == list(HOSTILE[:3])


def test_markup_that_slips_through_is_forbidden_to_run(make_report, browser, tmp_path):
    page = make_report(("linear",)).report.html
    attack = (
        "<script>document.title = 'broken'</script><img src='http://127.0.0.1:9/x'>"
    )
    path = tmp_path / "report.html"
    path.write_text(page.replace("<main", attack + "<main", 1), encoding="utf-8")
    view = browser.new_page()
    blocked = []
    view.on("console", lambda message: blocked.append(message.text))
    view.goto(path.as_uri())
    assert view.title() != "broken"
    assert sum("Content Security Policy" in text for text in blocked) == 2
    view.close()


OUTSIDE = """
(scrolling) => [...document.querySelectorAll("body *")].filter((element) => {
  if (element.matches(scrolling)) return false;
  const { left, right } = element.getBoundingClientRect();
  return right > innerWidth + 0.5 || left < -0.5;
}).map((element) => element.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize(
    "scheme", (pytest.param("light", marks=pytest.mark.slow), "dark")
)
@pytest.mark.parametrize("font", ("of the machine", "wide"))
@pytest.mark.parametrize("size", (pytest.param(100, marks=pytest.mark.slow), 120))
def test_no_screen_needs_to_scroll_sideways(
    hostile, open_report, wide_font, font, size, scheme
):
    style = f":root {{ font-size: {size}% }}" + wide_font * (font == "wide")
    view = open_report(hostile, scheme=scheme, style=style)
    view.page.evaluate(
        "() => document.querySelectorAll('details').forEach((it) => { it.open = true })"
    )
    for width in (320, 390, 768, 1200):
        view.page.set_viewport_size({"width": width, "height": 900})
        assert view.page.evaluate("() => document.documentElement.scrollWidth") <= width
        # On a wide screen the table of coefficients may scroll by itself.
        scrolling = ".scroller *" if width > 960 else "none"
        assert view.page.evaluate(OUTSIDE, scrolling) == []


def test_tables_suit_the_width_of_the_screen(make_report, open_report):
    view = open_report(make_report(("linear", "levels", "spline"), judged=True).report)

    def boxes(what):
        found = view.page.locator(what).evaluate_all(
            "(all) => all.map((one) => one.getBoundingClientRect().toJSON())"
        )
        assert found
        return found

    view.page.set_viewport_size({"width": 390, "height": 844})
    # A coefficient takes a few lines of a phone, not a card.
    assert max(box["height"] for box in boxes(".coefficients tbody tr")) < 110
    # Numbers stand below their headings.
    table = "table.measures >> nth=0 >> "
    heads = boxes(table + "thead th.num")
    first = boxes(table + "tbody tr >> nth=0 >> td")
    pairs = zip(heads, first, strict=True)
    assert all(abs(one["right"] - two["right"]) < 1 for one, two in pairs)
    view.page.set_viewport_size({"width": 1280, "height": 900})
    assert boxes("main")[0]["width"] == 1280
    name = view.page.locator(".coefficients .feature-name").first
    name.evaluate("(it) => { it.textContent = 'exercise_angina_induced' }")
    assert name.evaluate("(it) => it.getClientRects()[0].height") < 30


def test_labels_fit_their_figures_in_any_font(make_report, open_report, wide_font):
    """In any font a label stays within its figure and off the label beside it."""
    view = open_report(make_report(KINDS).report, style=wide_font)
    assert view.page.evaluate("() => document.fonts.check('1rem Wide')")
    labels = view.page.evaluate(
        "() => [...document.querySelectorAll('svg.figure')].map((drawing) => ["
        " drawing.getBoundingClientRect().toJSON(),"
        " [...drawing.querySelectorAll('text')]"
        "  .map((label) => label.getBoundingClientRect().toJSON())])"
    )
    assert sum(len(texts) for _, texts in labels) > 20
    for drawing, texts in labels:
        for place, one in enumerate(texts):
            assert one["left"] > drawing["left"] - 1
            assert one["right"] < drawing["right"] + 1
            for other in texts[:place]:
                assert not _overlap(one, other)


def _overlap(one, other):
    """Whether two boxes share more than a pixel of breadth and half a line."""
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    up = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across > 1 and up > min(one["height"], other["height"]) / 2


CONTRAST = """
() => {
  const parse = (text) => {
    const numbers = text.match(/[\\d.]+/g).map(Number);
    return { rgb: numbers.slice(0, 3), alpha: numbers.length > 3 ? numbers[3] : 1 };
  };
  const luminance = (rgb) => {
    const linear = rgb.map((c) => {
      const s = c / 255;
      return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.alpha > 0) return colour.rgb;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, option")) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [luminance(colour.rgb), luminance(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([walker.currentNode.data.trim(), ratio]);
  }
  return poor;
}
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_has_contrast_in_both_themes(make_report, open_report, scheme):
    view = open_report(make_report(KINDS).report, scheme=scheme)
    assert view.page.evaluate(CONTRAST) == []


def background(view):
    return view.page.evaluate("() => getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_and_can_be_switched(make_report, open_report):
    report = make_report(("linear",)).report
    light, dark = (open_report(report, scheme=scheme) for scheme in SCHEMES)
    bright, dim = background(light), background(dark)
    assert bright != dim
    light.page.locator("#theme").click()
    dark.page.locator("#theme").click()
    assert (background(light), background(dark)) == (dim, bright)


def test_every_control_has_a_name(make_report, open_report):
    view = open_report(make_report(KINDS, "poisson").report)
    nameless = view.page.evaluate(
        "() => [...document.querySelectorAll('input, select, button, output')]"
        ".filter((item) => !(item.labels?.length || item.ariaLabel ||"
        " item.getAttribute('aria-labelledby') || item.textContent.trim()))"
        ".map((item) => item.outerHTML)"
    )
    assert nameless == []
    unlabelled = view.page.evaluate(
        "() => [...document.querySelectorAll('input, select')]"
        ".filter((item) => !(item.labels?.length || item.ariaLabel))"
        ".map((item) => item.outerHTML)"
    )
    assert unlabelled == []


def test_identifiers_are_unique_and_references_resolve(make_report, open_report):
    view = open_report(make_report(KINDS).report)
    ids = view.page.evaluate(
        "() => [...document.querySelectorAll('[id]')].map((item) => item.id)"
    )
    assert len(ids) == len(set(ids))
    wanted = view.page.evaluate(
        "() => [...document.querySelectorAll('[for], [aria-labelledby], nav a')]"
        ".map((item) => item.getAttribute('for') ??"
        " item.getAttribute('aria-labelledby') ?? item.hash.slice(1))"
    )
    assert set(wanted) <= set(ids)


def test_headings_descend_one_level_at_a_time(make_report, open_report):
    view = open_report(make_report(KINDS).report)
    levels = view.page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, h3, h4')]"
        ".map((item) => Number(item.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(step <= 1 for step in np.diff(levels))


def test_every_drawing_is_described_or_hidden(make_report, open_report):
    view = open_report(make_report(KINDS).report)
    bare = view.page.evaluate(
        "() => [...document.querySelectorAll('svg')].filter((item) =>"
        " !(item.getAttribute('role') === 'img' && item.ariaLabel) &&"
        " !item.closest('[aria-hidden=true]')).length"
    )
    assert bare == 0


def test_paper_gets_the_report_in_light_colours_without_controls(
    make_report, open_report
):
    view = open_report(make_report(KINDS).report, scheme="dark")
    view.page.emulate_media(media="print", color_scheme="dark")
    assert background(view) == "rgb(255, 255, 255)"
    assert not view.page.locator("#what-if").is_visible()
    assert view.page.locator("#coefficients").is_visible()
    assert len(view.page.pdf()) > 10_000


def test_the_report_reads_without_javascript(make_report, browser, tmp_path):
    path = make_report(KINDS).report.save(tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("table.coefficients").is_visible()
    assert "needs JavaScript" in page.locator("#what-if").inner_text()
    context.close()


@pytest.mark.slow
def test_many_features_show_the_strongest_and_fold_the_rest(make_report, open_report):
    made = make_report(("linear",) * 20)
    view = open_report(made.report)
    assert view.page.locator("#controls .control").count() == 12
    assert view.page.locator("#more summary").inner_text().startswith("8 more")
    assert not view.page.locator("#more-controls .control").first.is_visible()
    view.page.locator("#more summary").click()
    assert view.page.locator("#more-controls .control").first.is_visible()


def test_a_notebook_shows_the_report_in_a_frame(make_report, browser, tmp_path):
    made = make_report(("linear", "levels"))
    path = tmp_path / "notebook.html"
    path.write_text(
        f"<!DOCTYPE html><meta charset='utf-8'>{made.report._repr_html_()}",
        encoding="utf-8",
    )
    page = browser.new_page()
    page.goto(path.as_uri())
    frame = page.frame_locator("iframe")
    shown = frame.locator("#prediction").get_attribute("data-value")
    mean = made.model.mean(made.model.features.reference[None])[0]
    assert float(shown) == pytest.approx(mean, rel=1e-9)
    page.close()


def test_the_model_in_the_page_is_plain_json(make_report):
    made = make_report(KINDS)
    found = re.search(
        r'<script type="application/json" id="page-data">(.*?)</script>',
        made.report.html,
        re.S,
    )
    data = json.loads(found.group(1))
    assert np.array(data["model"]["params"]).shape == made.model.params.shape
    assert not set("<>&") & set(found.group(1))
    assert isinstance(made.model.features.bases[0], Linear)
