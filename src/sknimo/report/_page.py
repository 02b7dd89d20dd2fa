"""What the template shows: every number as text, every figure drawn.

The template arranges and escapes; nothing is computed there.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from sknimo.explain import mean_of
from sknimo.report._blocks import (
    make_curve_panels,
    make_effect_panels,
    make_pair_rows,
    make_tables,
    make_waterfall,
    tell_outcome,
)
from sknimo.report._figures import fit_figure
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._lines import Line
from sknimo.report._quality import Measure, Quality
from sknimo.report._story import MAX_POINTS, Story
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


@dataclass(frozen=True, slots=True)
class _RowsWords:
    """How rows of one kind are called, and what to know of figures about them."""

    name: str
    in_lead: str
    title: str
    text: str


ROWS_WORDS = {
    "training": _RowsWords(
        "the training rows",
        "rows, the ones it was fitted to",
        "On the {:,} training rows",
        "These are the rows the model was fitted to, so the figures flatter; rows it "
        "has not seen are the honest test.",
    ),
    "held out": _RowsWords(
        "held-out rows",
        "held-out rows, which it has not seen",
        "On {:,} held-out rows",
        "The model has not seen these rows. The nested GLM was solved on the other "
        "rows of this report.",
    ),
    "other": _RowsWords(
        "the rows given",
        "rows, not the set it was fitted to",
        "On the {:,} rows given",
        "These are not, as a set, the rows the model was fitted to. Where they overlap "
        "the figures flatter the model; the nested GLM was solved on these very rows, "
        "which flatters it.",
    ),
}


@dataclass(frozen=True, slots=True)
class QualityBlock:
    """How well the model does on one set of rows.

    Each row is a measure, and its value for a constant, the GLM and the model.
    """

    title: str
    text: str
    rows: tuple[tuple[Measure, str, str, str], ...]
    figure: str
    caption: str


def make_page(story: Story, title: str | None) -> dict[str, Any]:
    """Turn the numbers of a report into text and drawings, by their template names."""
    model, card = story.model, story.card
    effects = make_effect_panels(story)
    cases = [
        (case, tell_outcome(story, case), make_waterfall(story, case))
        for case in story.cases
    ]
    silent = join_words(story.names_with_role("modifier"), 12)
    known = f", a mean of {_mean_text(card, story.model.base_value)}"
    return dict(
        title=clean_text(title or f"What predicts {story.sample.target}"),
        kicker=f"{card.kind} · {model.family.name} family, {model.family.link} link",
        lead=_lead(story),
        version=VERSION,
        sections=_sections(bool(effects), bool(cases)),
        figures=_figures(story),
        alerts=tuple(check for check in story.checks if check.status == "warn"),
        sentences=_sentences(story),
        qualities=tuple(
            # Held-out rows first, where there are any.
            _quality_block(story, quality)
            for quality in (story.held_out_quality, story.quality)
            if quality is not None
        ),
        n_local=f"{story.effects.n_rows:,}",
        scaled_label=model.family.ratio_name or "per sd",
        eta_name=model.family.eta_name,
        tables=make_tables(story),
        base_value=show_number(model.base_value),
        base_note="" if model.family.link == "identity" else known,
        modifiers_only=silent,
        idle=join_words(story.names_with_role("neither"), 12),
        effects=effects,
        pairs=make_pair_rows(story),
        curves=make_curve_panels(story),
        cases=cases,
        checks=story.checks,
        code=_code(story),
        versions=_versions(),
        facts=_facts(story),
        settings=tuple(
            (name, cut_text(value, MAX_SETTING)) for name, value in card.settings
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


def _lead(story: Story) -> str:
    judged = story.judged
    what = "variance" if story.model.family.least_squares else "deviance"
    rows = f"{judged.n_rows:,} {ROWS_WORDS[judged.rows].in_lead}"
    model, glm = judged.explained.model, judged.explained.glm
    if model < 0:
        return (
            f"On {rows}, the model predicts "
            f"{story.sample.target} worse than a constant would. The same features in "
            f"a plain linear model explain {show_percent(glm)} of the {what}."
        )
    return (
        f"The model explains {show_percent(model)} of the {what} of "
        f"{story.sample.target} on {rows}. The same "
        f"features in a plain linear model, without the network, explain "
        f"{show_percent(glm)}."
    )


def _figures(story: Story) -> tuple[tuple[str, str, str], ...]:
    """The numbers at the top: label, value, note."""
    judged, effects = story.judged, story.effects
    where = ROWS_WORDS[judged.rows].name
    measures = [
        (f"{one.name} on {where}", _measure(one, "model"), _measure(one, "glm"))
        for one in judged.measures[:2]
    ]
    bent = sum(bool(effects.modifiers_of(j)) for j in story.order)
    acting, p = int(effects.roles.acts.sum()), story.model.features.n_features
    n_rows = len(story.sample)
    held_out = "" if story.held_out is None else f"and {len(story.held_out):,} held out"
    return (
        *((name, model, f"nested GLM {glm}") for name, model, glm in measures),
        (
            "Features with an effect",
            f"{acting} of {p}",
            f"{bent} bent by others" if bent else "none bent by others",
        ),
        ("Rows", f"{n_rows:,}", held_out or ROWS_WORDS[story.quality.rows].name),
    )


def _measure(measure: Measure, which: str) -> str:
    value = getattr(measure, which)
    if measure.percent or value is None:
        return show_percent(value)
    every = (measure.constant, measure.glm, measure.model)
    known = [size for size in every if size is not None]
    if not all(size == 0 or 1e-4 <= abs(size) < 1e7 for size in known):
        return show_number(value)
    decimals = common_decimals(known, digits=4)
    return show_fixed(value, decimals).removeprefix("+")


def _quality_block(story: Story, quality: Quality) -> QualityBlock:
    words = ROWS_WORDS[quality.rows]
    by_row = story.model.family.least_squares
    caption = (
        f"Every dot a row (at most {MAX_POINTS}, evenly chosen)."
        if by_row
        else "Every dot a tenth of the rows, by size of prediction."
    )
    return QualityBlock(
        title=words.title.format(quality.n_rows),
        text=words.text,
        rows=tuple(
            (
                one,
                _measure(one, "constant"),
                _measure(one, "glm"),
                _measure(one, "model"),
            )
            for one in quality.measures
        ),
        figure=fit_figure(quality, _target_short(story), by_row),
        caption=f"{caption} On the diagonal predictions are exactly right.",
    )


def _target_short(story: Story) -> str:
    classes = story.card.classes
    what = story.sample.target if classes is None else f"share of {classes[1]}"
    return cut_text(what, 24)


def _sentences(story: Story) -> tuple[tuple[str, str], ...]:
    """The strongest features, each with a sentence."""
    out = []
    for feature in story.order[:MAX_SENTENCES]:
        line = max(
            story.lines_of(feature),
            key=lambda line: abs(line.average_effect * line.unit),
        )
        acts = story.effects.roles.acts[feature]
        text = _sentence(story, line) if acts else _modifier_sentence(story, feature)
        out.append((story.name(feature), text))
    return tuple(out)


def _sentence(story: Story, line: Line) -> str:
    """One coefficient in words: at the reference, over rows, and what bends it."""
    where = ""
    if story.model.family.link != "identity":
        where = f" in the {story.model.family.eta_name}"
    low, high = line.local_effect
    text = (
        f": {_comparison(story, line)} goes with "
        f"{show_number(line.row.coef, 3, signed=True)}{where} at the reference"
    )
    if high - low <= STEADY * abs(line.average_effect):
        return f"{text}, and much the same everywhere."
    ends = show_range(low, high, signed=True)
    text = f"{text}; from {ends} over 90 % of the rows"
    modifiers = story.effects.modifiers_of(line.feature)
    if not modifiers:
        return f"{text}."
    return f"{text}, depending on {join_words(story.name(k) for k in modifiers)}."


def _modifier_sentence(story: Story, feature: int) -> str:
    """What a feature without a coefficient does: it bends others."""
    moved = story.effects.directed[:, feature]
    strongest = [j for j in np.argsort(-moved, kind="stable").tolist() if moved[j] > 0]
    names = join_words(story.name(j) for j in strongest[:3])
    return f": no effect at the reference, but it bends that of {names}."


def _comparison(story: Story, line: Line) -> str:
    if not line.row.is_feature:
        baseline = story.reference_text(line.feature)
        return f"{clean_text(line.row.level)} instead of {baseline}"
    column = story.sample.table[:, line.feature]
    values = np.unique(column[~np.isnan(column)])
    if len(values) == 2 and values[1] - values[0] == 1:
        low, high = (show_number(float(value)) for value in values)
        return f"{high} instead of {low}"
    return "one unit more"


def _mean_text(card: ModelCard, eta: float) -> str:
    mean = float(mean_of(card.model.family, np.array([eta]))[0])
    return show_percent(mean) if card.classes is not None else show_number(mean)


def _code(story: Story) -> str:
    card = story.card
    values = dict(card.settings)
    changed = [f"{name}={cut_text(values[name], MAX_SETTING)}" for name in card.changed]
    call = f"{card.kind}({', '.join(changed)})"
    if len(call) > 68:
        inner = "".join(f"    {part},\n" for part in changed)
        call = f"{card.kind}(\n{inner})"
    extra = ", sample_weight=weight" * (story.sample.weight is not None)
    extra += ", offset=offset" * (story.sample.offset is not None)
    held_out = ", X_test=X_test, y_test=y_test" * (story.held_out is not None)
    return (
        f"from sknimo import {card.kind}\n\n"
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
    card, model = story.card, story.model
    facts = [
        ("Family and link", f"{model.family.name}, {model.family.link}"),
        ("Members averaged", f"{model.n_members:,}"),
        ("Terms", f"{len(model.features.term_feature):,}"),
        ("Hidden units", " and ".join(str(width) for width in model.spec.hidden)),
    ]
    if card.facts is not None:
        facts.append(("Training rows", f"{card.facts.n_samples:,}"))
    if card.scores is not None:
        facts += card.scores.lines()
    if card.converged is not None:
        facts.append(("Converged", "yes" if card.converged else "no"))
    if card.certificate is not None:
        facts.append(("Optimality residual", f"{card.certificate.kkt:.0e}"))
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
