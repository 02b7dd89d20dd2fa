"""Reports on random models, opened in a real browser."""

import base64
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import matplotlib
import numpy as np
import pytest

from sknimo.explain import fit_gauge
from sknimo.inference import calibrate
from sknimo.model import FittedModel
from sknimo.report import ModelCard, Sample, render_report


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
    """A report on a random model, with the model and its rows; each is made once."""
    known = {}

    def make(kinds=None, family="gaussian", *, sample=None, **options):
        key = repr((kinds, family, options))
        if sample is not None:
            return render(kinds, family, sample=sample, **options)
        if key not in known:
            known[key] = render(kinds, family, **options)
        return known[key]

    def render(kinds, family, rows=None, sample=None, judged=False, **options):
        model = make_model(kinds, family, **options)
        sample = draw_sample(model) if sample is None else sample
        classes = ("no", "yes") if family == "binomial" else None
        conformal = None
        if judged:  # by rows that it has not seen
            eta = model.eta(sample.table, sample.offset)
            weight = np.ones(len(sample))
            conformal = calibrate(model, sample.table, sample.y, eta, weight)
        fit = ModelCard(
            model, kind="NIMORegressor", classes=classes, conformal=conformal
        )
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
