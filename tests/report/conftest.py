"""Models, reports and a real browser for the tests of the report.

Random models bend much harder than any fit would and hold every kind of basis; the
page has to reproduce them all.
"""

import base64
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from sknimo.explain import fit_gauge
from sknimo.families import get_family
from sknimo.features import (
    Clipped,
    FeatureMap,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    RankGauss,
    Spline,
)
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack
from sknimo.report import Fit, Sample, render_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No sandbox, because tests run as root in containers; nothing that would call home.
BROWSER_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium, or a skip that says how to get one."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium: `apt-get install chromium` lets this test run")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found, args=BROWSER_OPTIONS
        )
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """A page in the browser and everything it should not have done."""

    page: object
    url: str
    troubles: list = field(default_factory=list)

    def watch(self):
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", self.refuse)
        self.page.on("request", self.note_request)

    def refuse(self, dialog):
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def note_request(self, request):
        if request.url != self.url:
            self.troubles.append(f"request: {request.url}")

    def settle(self):
        """Wait until curves and moves belong to the values shown."""
        self.page.wait_for_selector("#moves[aria-busy=false]")

    def control(self, feature):
        return self.page.locator(f".control[data-feature='{feature}']")

    def number(self, selector, name="value"):
        return float(self.page.locator(selector).get_attribute(f"data-{name}"))

    @property
    def mean(self):
        return self.number("#prediction")

    @property
    def eta(self):
        return self.number("#prediction", "eta")

    def parts(self):
        """Contribution of every feature that has a control."""
        found = self.page.evaluate(
            "() => [...document.querySelectorAll('.control')].map((item) =>"
            " [item.dataset.feature, item.querySelector('.part').dataset.value])"
        )
        return {int(feature): float(value) for feature, value in found}

    def values(self):
        """Value of every feature that has a control, NaN for a missing one."""
        found = self.page.evaluate(
            "() => [...document.querySelectorAll('.control')].map((item) =>"
            " [item.dataset.feature, item.dataset.value])"
        )
        return {int(feature): float(value) for feature, value in found}

    def set(self, feature, value):
        """Put a feature to a value by its field, as a reader would."""
        control = self.control(feature)
        missing = control.locator("input[type=checkbox]")
        if np.isnan(value):
            missing.check()
            return
        if missing.count():
            missing.uncheck()
        select = control.locator("select")
        if select.count():
            select.select_option(str(int(value)))
        else:
            control.locator("input[type=number]").fill(repr(float(value)))


@pytest.fixture
def open_report(browser, tmp_path):
    """Open a report in the browser; at the end nothing may have gone wrong.

    `style` is added to the page as a reader's own style would be.
    """
    opened = []

    def show(report, width=1200, height=900, scheme="light", settled=True, style=""):
        path = tmp_path / f"report-{len(opened)}.html"
        html = report.html
        if style:
            html = html.replace("</head>", f"<style>{style}</style></head>", 1)
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            bypass_csp=bool(style),
        )
        view = Opened(context.new_page(), path.as_uri())
        view.watch()
        view.page.set_default_timeout(15_000)
        view.page.goto(view.url)
        if settled:
            view.settle()
        opened.append((context, view))
        return view

    yield show
    for context, view in opened:
        context.close()
        assert view.troubles == []


@pytest.fixture(scope="session")
def wide_font():
    """Style that sets every text in one font, whose letters are all 0.9 em wide."""
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    font = base64.b64encode((folder / "DejaVuSansMono.ttf").read_bytes()).decode()
    return (
        "@font-face { font-family: Wide; size-adjust: 150%;"
        f" src: url(data:font/ttf;base64,{font}) }}"
        "* { font-family: Wide !important }"
    )


def random_basis(kind, rng):
    """A basis of a kind and the network's view of the same column."""
    reference, scale = rng.normal(), rng.uniform(0.5, 3)
    line = Linear(reference, scale)
    if kind == "linear":
        return line, line
    if kind == "residue":
        exact = Linear(1e8, 2.0, residue=1e-9)
        return exact, exact
    if kind == "constant":
        return Linear(reference, 0.0), Linear(reference, 0.0)
    if kind == "polynomial":
        return Polynomial(reference, scale, 1.4), line
    if kind == "spline":
        knots = np.sort(rng.normal(size=6))
        return Spline(reference, scale, knots, rng.normal(size=(5, 4))), line
    if kind == "levels":
        levels = Levels(("north", "south", "east"), 1, 0.45)
        return levels, levels
    if kind == "rank_gauss":
        points = np.sort(rng.normal(reference, scale, 9))
        return line, RankGauss(reference, points, np.linspace(-2, 2, 9))
    if kind == "clipped":
        return line, Clipped(line, reference - scale, reference + scale)
    if kind == "or_missing":
        return OrMissing(line, 0.3), OrMissing(Clipped(line, reference, 9.0), 0.3)
    if kind == "levels_or_missing":
        levels = Levels(("a", "b"), 0, 0.5)
        return OrMissing(levels, 0.2), OrMissing(levels, 0.2)
    raise ValueError(kind)


EVERY_KIND = (
    "linear",
    "residue",
    "constant",
    "polynomial",
    "spline",
    "levels",
    "rank_gauss",
    "clipped",
    "or_missing",
    "levels_or_missing",
)


@pytest.fixture(scope="session")
def make_model():
    """A random model with the given kinds of features."""

    def make(
        kinds=EVERY_KIND,
        family="gaussian",
        n_members=2,
        seed=0,
        names=None,
        size=0.6,
        idle=(),
        hidden=(5, 4),
    ):
        rng = np.random.default_rng(seed)
        bases, inputs = zip(*(random_basis(kind, rng) for kind in kinds), strict=True)
        p = len(kinds)
        names = (
            tuple(f"{kind} {j}" for j, kind in enumerate(kinds))
            if names is None
            else names
        )
        plain = FeatureMap(tuple(names), bases, inputs)
        ends = [_ends(plain, j) for j in range(p)]
        low, high = zip(*ends, strict=True)
        features = FeatureMap(tuple(names), bases, inputs, low, high)
        owner = features.term_feature
        spec = make_spec(features.input_feature.tolist(), p, hidden)
        params = init_params(spec, range(seed, seed + n_members))
        weights = unpack(spec, params)
        weights.out.copy_(
            torch.as_tensor(size * rng.normal(size=(n_members, hidden[1])))
        )
        silent = np.isin(owner, idle)
        coef = rng.normal(size=(n_members, len(owner))) * ~silent
        weights.first[:, :, np.isin(features.input_feature, idle)] = 0
        modulated = np.ones((n_members, p), dtype=bool)
        modulated[:, list(idle)] = False
        return FittedModel(
            features=features,
            family=get_family(family),
            spec=spec,
            coef=torch.as_tensor(coef),
            intercept=torch.as_tensor(rng.normal(size=n_members)),
            params=params,
            modulated=torch.as_tensor(modulated),
        )

    return make


def _ends(features, j):
    levels = features.levels(j)
    if levels is not None:
        return 0.0, float(len(levels) - 1)
    scale = features.scale[j]
    return float(features.reference[j] - 3 * scale), float(
        features.reference[j] + 3 * scale
    )


@pytest.fixture(scope="session")
def draw_sample():
    """Rows and targets that a model could have produced."""

    def draw(model, n_rows=80, seed=1, **options):
        rng = np.random.default_rng(seed)
        features = model.features
        columns = []
        for j in range(features.n_features):
            levels = features.levels(j)
            if levels is None:
                low, high = features.low[j], features.high[j]
                column = np.clip(
                    rng.normal(features.reference[j], features.scale[j], n_rows),
                    low,
                    high,
                )
            else:
                column = rng.integers(0, len(levels), n_rows).astype(float)
            if features.admits_missing[j]:
                column[rng.random(n_rows) < 0.2] = np.nan
            columns.append(column)
        table = np.column_stack(columns)
        mean = model.mean(table)
        if model.family.name == "gaussian":
            y = mean + 0.3 * rng.normal(size=n_rows)
        elif model.family.name == "binomial":
            y = (rng.random(n_rows) < mean).astype(float)
        elif model.family.name == "poisson":
            y = rng.poisson(np.minimum(mean, 1e6)).astype(float)
        else:
            y = rng.gamma(4.0, np.clip(mean, 1e-6, 1e6) / 4.0) + 1e-9
        return Sample(table, y, **options)

    return draw


@pytest.fixture(scope="session")
def make_report(make_model, draw_sample):
    """A report on a random model, with the model and its rows."""

    def make(kinds=EVERY_KIND, family="gaussian", rows=None, sample=None, **options):
        model = make_model(kinds, family, **options)
        sample = draw_sample(model) if sample is None else sample
        classes = ("no", "yes") if family == "binomial" else None
        fit = Fit(model, kind="NIMORegressor", classes=classes)
        return Made(render_report(fit, sample, rows=rows), model, sample)

    return make


@dataclass(frozen=True)
class Made:
    """A report, its model and its rows."""

    report: object
    model: FittedModel
    sample: Sample

    @cached_property
    def swap(self):
        """Gauge of the contributions."""
        return fit_gauge(self.model, self.sample.table)
