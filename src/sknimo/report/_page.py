"""What the template shows: every number as text, every figure drawn.

The template arranges and escapes; nothing is computed there.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from sknimo.report._blocks import (
    CaseBlock,
    CurvePanel,
    EffectPanel,
    PairRow,
    Table,
    make_case_block,
    make_curve_panels,
    make_effect_panels,
    make_pair_rows,
    make_tables,
)
from sknimo.report._checks import Check
from sknimo.report._effects import Line, show_value
from sknimo.report._figures import fit_figure
from sknimo.report._inputs import Fit, Sample
from sknimo.report._quality import Measure, Quality, means
from sknimo.report._story import Story
from sknimo.report._text import (
    clean_text,
    common_decimals,
    cut_text,
    join_words,
    show_count,
    show_fixed,
    show_number,
    show_percent,
    show_range,
)
from sknimo.version import VERSION

MAX_SENTENCES = 4
MAX_SETTING = 120
# An effect that varies by less than this share of itself is called the same.
STEADY = 0.1

PACKAGES = ("sknimo", "numpy", "scikit-learn", "scipy", "torch")
REFERENCE_NOTE = (
    "The point at which the coefficients hold: by default the training mean of a "
    "number and the most frequent level of a category. With many features no row may "
    "lie near it; read the average effect beside the coefficient, and say which one "
    "you mean."
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """What one feature does, in words."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A measure of fit as text."""

    name: str
    meaning: str
    constant: str
    glm: str
    model: str
    winner: str


@dataclass(frozen=True, slots=True)
class QualityBlock:
    """How well the model does on one set of rows."""

    title: str
    text: str
    rows: tuple[MeasureRow, ...]
    figure: str
    caption: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template shows."""

    title: str
    kind: str
    family: str
    link: str
    lead: str
    version: str
    sections: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str, str], ...]
    alerts: tuple[Check, ...]
    sentences: tuple[Sentence, ...]
    qualities: tuple[QualityBlock, ...]
    n_local: str
    range_unit: str
    scaled_label: str
    eta_name: str
    tables: tuple[Table, ...]
    base_value: str
    base_note: str
    modifiers_only: str
    idle: str
    effects: tuple[EffectPanel, ...]
    pairs: tuple[PairRow, ...]
    curves: tuple[CurvePanel, ...]
    cases: tuple[CaseBlock, ...]
    checks: tuple[Check, ...]
    formula: str
    reference_note: str
    code: str
    versions: tuple[tuple[str, str], ...]
    facts: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    privacy: str


def make_page(story: Story, title: str | None) -> Page:
    """Turn the numbers of a report into text and drawings."""
    model, fit = story.model, story.fit
    effects = make_effect_panels(story)
    cases = tuple(make_case_block(story, case) for case in story.cases)
    names = [story.name(j) for j in range(model.features.n_features)]
    labels = story.findings.roles.labels
    silent = [
        name for name, role in zip(names, labels, strict=True) if role == "modifier"
    ]
    idle = [name for name, role in zip(names, labels, strict=True) if role == "neither"]
    known = f", a mean of {_mean_text(fit, story.model.base_value)}"
    return Page(
        title=clean_text(title or f"What predicts {story.sample.target}"),
        kind=fit.kind,
        family=model.family.name,
        link=model.family.link,
        lead=_lead(story),
        version=VERSION,
        sections=_sections(bool(effects), bool(cases)),
        figures=_figures(story),
        alerts=tuple(check for check in story.checks if check.status == "warn"),
        sentences=_sentences(story),
        qualities=_quality_blocks(story),
        n_local=f"{story.findings.n_rows:,}",
        range_unit="on one scale: numbers per standard deviation, levels against their "
        "baseline",
        scaled_label=model.family.ratio_name or "per sd",
        eta_name=model.family.eta_name,
        tables=make_tables(story),
        base_value=show_number(model.base_value),
        base_note="" if model.family.link == "identity" else known,
        modifiers_only=f"Without a coefficient of their own, only bending others: "
        f"{join_words(silent, 12)}."
        if silent
        else "",
        idle=join_words(idle, 12),
        effects=effects,
        pairs=make_pair_rows(story),
        curves=make_curve_panels(story),
        cases=cases,
        checks=story.checks,
        formula=f"{model.family.eta_name} = base value + Σ coefficient × "
        "(distance from the reference) × (1 + g(all other features))",
        reference_note=REFERENCE_NOTE,
        code=_code(story),
        versions=_versions(),
        facts=_facts(story),
        settings=tuple(
            (name, cut_text(value, MAX_SETTING)) for name, value in fit.settings
        ),
        privacy=_privacy(story),
    )


def _sections(effects: bool, cases: bool) -> tuple[tuple[str, str], ...]:
    every = (
        ("overview", "At a glance", True),
        ("fit", "Fit", True),
        ("coefficients", "Coefficients", True),
        ("effects", "Effects", effects),
        ("interactions", "Interactions", True),
        ("rows", "Rows", cases),
        ("what-if", "What if", True),
        ("checks", "Checks", True),
        ("reading", "How to read", True),
        ("reproduce", "Reproduce", True),
    )
    return tuple((anchor, label) for anchor, label, kept in every if kept)


ROWS_NAMES = {
    "training": "the training rows",
    "held out": "held-out rows",
    "other": "the rows given",
}


def _lead(story: Story) -> str:
    judged = story.judged
    what = "variance" if story.model.family.least_squares else "deviance"
    model, glm = judged.explained.model, judged.explained.glm
    if model < 0:
        return (
            f"On {judged.n_rows:,} {_rows_phrase(judged)}, the model predicts "
            f"{story.sample.target} worse than a constant would. The same features in "
            f"a plain linear model explain {show_percent(glm)} of the {what}."
        )
    return (
        f"The model explains {show_percent(model)} of the {what} of "
        f"{story.sample.target} on {judged.n_rows:,} {_rows_phrase(judged)}. The same "
        f"features in a plain linear model, without the network, explain "
        f"{show_percent(glm)}."
    )


def _rows_phrase(quality: Quality) -> str:
    return {
        "training": "rows, the ones it was fitted to",
        "held out": "held-out rows, which it has not seen",
        "other": "rows, not the set it was fitted to",
    }[quality.rows]


def _figures(story: Story) -> tuple[tuple[str, str, str], ...]:
    """The numbers at the top: label, value, note."""
    judged, findings = story.judged, story.findings
    first, second = judged.measures[:2]
    where = ROWS_NAMES[judged.rows]
    bent = sum(bool(findings.modifiers(j)) for j in findings.order)
    acting, p = int(findings.roles.acts.sum()), story.model.features.n_features
    n_rows = len(story.sample)
    held_out = "" if story.held_out is None else f"and {len(story.held_out):,} held out"
    return (
        (f"{first.name} on {where}", _measure(first, "model"), _beside(first)),
        (f"{second.name} on {where}", _measure(second, "model"), _beside(second)),
        (
            "Features with an effect",
            f"{acting} of {p}",
            f"{bent} bent by others" if bent else "none bent by others",
        ),
        ("Rows", f"{n_rows:,}", held_out or ROWS_NAMES[story.quality.rows]),
    )


def _beside(measure: Measure) -> str:
    return f"nested GLM {_measure(measure, 'glm')}"


def _measure(measure: Measure, which: str) -> str:
    value = getattr(measure, which)
    if measure.percent or value is None:
        return show_percent(value)
    known = [
        size
        for size in (measure.constant, measure.glm, measure.model)
        if size is not None
    ]
    if not all(size == 0 or 1e-4 <= abs(size) < 1e7 for size in known):
        return show_number(value)
    decimals = common_decimals(known, digits=4)
    return show_fixed(value, decimals).removeprefix("+")


def _quality_blocks(story: Story) -> tuple[QualityBlock, ...]:
    """Held-out rows first, where there are any."""
    blocks = []
    if story.held_out_quality is not None:
        blocks.append(_quality_block(story, story.held_out_quality))
    blocks.append(_quality_block(story, story.quality))
    return tuple(blocks)


def _quality_block(story: Story, quality: Quality) -> QualityBlock:
    title = {
        "training": f"On the {quality.n_rows:,} training rows",
        "held out": f"On {quality.n_rows:,} held-out rows",
        "other": f"On the {quality.n_rows:,} rows given",
    }[quality.rows]
    text = {
        "training": "These are the rows the model was fitted to, so the figures "
        "flatter; rows it has not seen are the honest test.",
        "held out": "The model has not seen these rows. The nested GLM was solved on "
        "the other rows of this report.",
        "other": "These are not, as a set, the rows the model was fitted to. Where "
        "they overlap the figures flatter the model; the nested GLM was solved on "
        "these very rows, which flatters it.",
    }[quality.rows]
    family = story.model.family
    caption = (
        "Every dot a row (at most 240, evenly chosen)."
        if family.least_squares
        else "Every dot a tenth of the rows, by size of prediction."
    )
    return QualityBlock(
        title=title,
        text=text,
        rows=tuple(
            MeasureRow(
                measure.name,
                measure.meaning,
                _measure(measure, "constant"),
                _measure(measure, "glm"),
                _measure(measure, "model"),
                measure.winner,
            )
            for measure in quality.measures
        ),
        figure=fit_figure(quality, _target_short(story), family),
        caption=f"{caption} On the diagonal predictions are exactly right.",
    )


def _target_short(story: Story) -> str:
    classes = story.fit.classes
    what = story.sample.target if classes is None else f"share of {classes[1]}"
    return cut_text(what, 24)


def _sentences(story: Story) -> tuple[Sentence, ...]:
    """The strongest features in words, one sentence each."""
    out = []
    for feature in story.findings.order[:MAX_SENTENCES]:
        lines = [line for line in story.findings.lines if line.feature == feature]
        line = max(lines, key=lambda line: abs(line.average_effect * line.scale))
        acts = story.findings.roles.acts[feature]
        text = _sentence(story, line) if acts else _modifier_sentence(story, feature)
        out.append(Sentence(story.name(feature), text))
    return tuple(out)


def _sentence(story: Story, line: Line) -> str:
    """One coefficient in words: at the reference, over rows, and what bends it."""
    where = ""
    if story.model.family.link != "identity":
        where = f" in the {story.model.family.eta_name}"
    low, high = line.local_effect
    text = (
        f": {_comparison(story, line)} goes with "
        f"{show_number(line.coef, 3, signed=True)}{where} at the reference"
    )
    if high - low <= STEADY * abs(line.average_effect):
        return f"{text}, and much the same everywhere."
    ends = show_range(low, high, signed=True)
    text = f"{text}; from {ends} over 90 % of the rows"
    modifiers = story.findings.modifiers(line.feature)
    if not modifiers:
        return f"{text}."
    return f"{text}, depending on {join_words(story.name(k) for k in modifiers)}."


def _modifier_sentence(story: Story, feature: int) -> str:
    """What a feature without a coefficient does: it bends others."""
    moved = story.findings.bending[:, feature]
    strongest = [j for j in np.argsort(-moved, kind="stable").tolist() if moved[j] > 0]
    names = join_words(story.name(j) for j in strongest[:3])
    return f": no effect at the reference, but it bends that of {names}."


def _comparison(story: Story, line: Line) -> str:
    model, j = story.model, line.feature
    if line.label:
        baseline = show_value(model, j, float(model.features.reference[j]))
        return f"{clean_text(line.label)} instead of {baseline}"
    column = story.sample.table[:, j]
    values = np.unique(column[~np.isnan(column)])
    if line.contrast and len(values) == 2 and values[1] - values[0] == 1:
        low, high = (show_number(float(value)) for value in values)
        return f"{high} instead of {low}"
    return "one unit more"


def _mean_text(fit: Fit, eta: float) -> str:
    mean = float(means(fit.model.family, np.array([eta]))[0])
    return show_percent(mean) if fit.classes is not None else show_number(mean)


def _code(story: Story) -> str:
    fit = story.fit
    values = dict(fit.settings)
    changed = [f"{name}={cut_text(values[name], MAX_SETTING)}" for name in fit.changed]
    call = f"{fit.kind}({', '.join(changed)})"
    if len(call) > 68:
        inner = "".join(f"    {part},\n" for part in changed)
        call = f"{fit.kind}(\n{inner})"
    extra = ", sample_weight=weight" * (story.sample.weight is not None)
    extra += ", offset=offset" * (story.sample.offset is not None)
    held_out = ", X_test=X_test, y_test=y_test" * (story.held_out is not None)
    return (
        f"from sknimo import {fit.kind}\n\n"
        f"est = {call}\n"
        f"est.fit(X, y{extra})\n"
        f'est.report("report.html", X, y{extra}{held_out})'
    )


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # pragma: no cover
            continue
    return tuple(found)


def _facts(story: Story) -> tuple[tuple[str, str], ...]:
    fit, model = story.fit, story.model
    facts = [
        ("Family and link", f"{model.family.name}, {model.family.link}"),
        ("Members averaged", f"{model.n_members:,}"),
        ("Terms", f"{len(model.features.term_feature):,}"),
        ("Hidden units", " and ".join(str(width) for width in model.spec.hidden)),
    ]
    if fit.facts is not None:
        facts.append(("Training rows", f"{fit.facts.n_samples:,}"))
    if fit.converged is not None:
        facts.append(("Converged", "yes" if fit.converged else "no"))
    if fit.certificate is not None:
        facts.append(("Optimality residual", f"{fit.certificate.kkt:.0e}"))
    facts.append(("Fingerprint of the rows", fingerprint(story.sample)))
    if story.held_out is not None:
        facts.append(("... of the held-out rows", fingerprint(story.held_out)))
    return tuple(facts)


def fingerprint(sample: Sample) -> str:
    """First digits of the SHA-256 of table and target, to recognise the same data.

    Examples
    --------
    >>> import numpy as np
    >>> fingerprint(Sample(np.zeros((2, 1)), np.ones(2)))
    'c2678240d4475ab3'
    """
    digest = hashlib.sha256()
    for array in (sample.table, sample.y):
        plain = np.where(np.isnan(array), np.nan, array) + 0.0
        digest.update(np.ascontiguousarray(plain, dtype="<f8").tobytes())
    return digest.hexdigest()[:16]


def _privacy(story: Story) -> str:
    if not story.cases:
        return "; it holds no row of the data, but shows single values in figures"
    count = show_count(len(story.cases), "row")
    return f"; it holds the values of {count} of the data in full"
