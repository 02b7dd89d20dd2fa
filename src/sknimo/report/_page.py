"""What the template shows: every number as text, every figure drawn.

The template arranges and escapes; nothing is computed there.
"""

import hashlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from sknimo.explain import (
    MAX_ROWS,
    NOT_HELD_OUT,
    compared_rows,
    describe_gain,
    describe_kept,
    describe_trial,
    is_bent,
    mean_of,
    n_networks,
    plain_name,
)
from sknimo.report._blocks import (
    make_curve_panels,
    make_effect_panels,
    make_pair_rows,
    make_tables,
    make_waterfall,
    tell_outcome,
)
from sknimo.report._checks import run_checks
from sknimo.report._figures import fit_figure, survival_figure
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._quality import CONCORDANCE, Measure, Quality
from sknimo.report._sentences import make_sentences, modifiers_of, response_name
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
)
from sknimo.version import VERSION

MAX_SETTING = 120
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
        "the {:,} rows it was fitted to, which flatters",
        "On the {:,} training rows",
        "These are the rows the model was fitted to, so the figures flatter; other "
        "models are not compared here.",
    ),
    "left out": _RowsWords(
        "rows left out",
        "rows that were left out of the fit in turn",
        "On {:,} rows, each left out of a fit",
        "Every row is predicted by a fit that has not seen it. The search has also "
        "chosen by such rows, so that its own figure is a little too good.",
    ),
    "held out": _RowsWords(
        "held-out rows",
        "{:,} held-out rows, which it has not seen",
        "On {:,} held-out rows",
        "The model has not seen these rows. The plainer models were solved on the "
        "other rows of this report; the constant is the best for these rows.",
    ),
    "other": _RowsWords(
        "the rows given",
        "{:,} rows that are not, as a set, those it was fitted to",
        "On the {:,} rows given",
        "These are not, as a set, the rows the model was fitted to. Where they overlap "
        "the figures flatter; other models are not compared here.",
    ),
    "unknown": _RowsWords(
        "the rows given",
        "the {:,} rows given",
        "On the {:,} rows given",
        "Nothing was kept of the rows the model was fitted to. Where these are among "
        "them the figures flatter; other models are not compared here.",
    ),
}


ROWS_WORDS["solved again"] = replace(
    ROWS_WORDS["left out"],
    in_lead="rows that were left out in turn when it was solved again",
    text="The model was solved again without each fifth of the rows, with a light "
    "ridge in place of its own penalty, and predicts that fifth.",
)
ROWS_WORDS["chosen by"] = replace(
    ROWS_WORDS["solved again"],
    name="rows it was chosen by",
    in_lead="rows that its features or curves were chosen with, which flatters the "
    "more the more columns there were",
    title="On {:,} rows that helped to choose features",
    text=f"{ROWS_WORDS['solved again'].text} But features or curves were chosen with "
    "these rows, so this figure flatters, the more the more columns there were; other "
    "models are not compared here.",
)


def make_page(story: Story, title: str | None) -> dict[str, Any]:
    """Turn the numbers of a report into text and drawings, by their template names."""
    model, card = story.model, story.card
    effects = make_effect_panels(story)
    cases = [
        (case, tell_outcome(story, case), make_waterfall(story, case))
        for case in story.cases
    ]
    checks = run_checks(story)
    silent = join_words(story.names_with_role("modifier"), 12)
    kind = "mean" if card.classes is None else "probability"
    base = model.base_value + card.base_offset
    known = f", a {kind} of {_mean_text(card, base)}"
    known += " where the offset is 0" * story.sample.given_offset
    says_all = model.family.link == "identity" or model.family.is_hazard
    return dict(
        title=clean_text(title or f"What predicts {story.sample.target}"),
        kicker=f"{card.kind} · {_family_text(story)}",
        lead=f"{card.note} {_lead(story)}".strip(),
        version=VERSION,
        sections=_sections(bool(effects), bool(cases)),
        figures=_figures(story),
        alerts=tuple(check for check in checks if check.status == "warn"),
        sentences=make_sentences(story),
        qualities=tuple(
            # Held-out rows first, where there are any.
            _quality_block(story, quality)
            for quality in (story.fresh, story.quality)
            if quality is not None
        ),
        is_compared=story.fresh is not None and story.fresh.is_fresh,
        averaged=_averaged_text(story),
        is_seen=story.quality.rows == "training",
        ratio_name=model.family.ratio_name or "",
        is_bent=is_bent(model),
        no_pairs=_no_pairs(story),
        misleads=any(line.misleads for line in story.lines),
        errors=_errors_text(story),
        response=response_name(story),
        eta_name=model.family.eta_name,
        about_score=card.about_score,
        total_name=story.total_name,
        tables=make_tables(story),
        base_value=show_number(base),
        base_note="" if says_all else known,
        modifiers_only=silent,
        idle=join_words(story.names_with_role("neither"), 12),
        effects=effects,
        pairs=make_pair_rows(story),
        curves=make_curve_panels(story),
        cases=cases,
        has_reach=any(step.reach for *_, steps in cases for step in steps),
        checks=checks,
        code=_code(story),
        versions=_versions(),
        facts=_facts(story),
        settings=tuple(
            (name, cut_text(value, MAX_SETTING)) for name, value in card.settings
        ),
        privacy=_privacy(story),
    )


def _family_text(story: Story) -> str:
    family, card = story.model.family, story.card
    if card.every:
        return f"softmax of {len(card.every)} classes"
    return f"{family.name} family, {family.link} link"


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
    """Which model this is and how well it predicts rows that are new to it."""
    judged, model = story.judged, story.model
    first = judged.explained
    rows = _tell_rows(ROWS_WORDS[judged.rows].in_lead, len(judged.sample))
    kept = describe_kept(model, None).removesuffix(NOT_HELD_OUT)
    is_variance = first.name == "R²"
    what = f"{'variance' if is_variance else 'deviance'} of {story.sample.target}"
    if first.model is None:
        return kept
    order = judged.measure(CONCORDANCE)
    if order is not None and order.model is not None:
        return " ".join([kept, _tell_order(story, rows, order), *_gain_text(story)])
    if first.model < 0:
        text = f"On {rows}, it predicts {story.sample.target} worse than a constant."
    else:
        text = f"On {rows}, it explains {show_percent(first.model)} of the {what}."
    rivals = [
        f"{name} {show_percent(value) if value >= 0 else 'less than nothing'}"
        for name, value in (
            (f"a plain {plain_name(model.family)} explains", first.linear),
            ("the same model without such dependence", first.glm),
        )
        if value is not None
    ]
    if rivals and is_bent(model):
        text += f" On the same rows {' and '.join(rivals)}."
    return " ".join([kept, text, *_gain_text(story)])


def _tell_rows(text: str, n_rows: int) -> str:
    """A text about rows, of which there may be one alone."""
    text = text.format(n_rows)
    if n_rows > 1:
        return text
    return text.replace("rows that are", "row that is").replace("rows", "row")


def _tell_order(story: Story, rows: str, order: Measure) -> str:
    """How well a hazard tells who has the event first, and how often it expects one."""
    text = f"On {rows}, it tells which of two has the event first in "
    text += f"{show_percent(order.model or 0.0)} of the pairs"
    if order.linear is not None and is_bent(story.model):
        plain = plain_name(story.model.family)
        text += f", a plain {plain} in {show_percent(order.linear)}"
        if order.glm is not None:
            text += ", the same model without such dependence in "
            text += show_percent(order.glm)
    first = story.judged.explained.model
    if first is not None and first < 0:
        text += (
            ". The number of events that it expects of them is further off than with "
            "the same hazard for all: it takes risks to differ too much"
        )
    return f"{text}."


def _gain_text(story: Story) -> Iterator[str]:
    """What the dependence on other features is worth, as the search measured it."""
    scores = story.card.scores
    if scores is None:
        return
    if is_bent(story.model):
        if np.isnan(scores.gain) or story.judged.rows != "left out":
            return
        yield describe_gain(scores)
    elif story.card.converged is not False:
        yield describe_trial(scores)


def _no_pairs(story: Story) -> str:
    """Why there are no pairs of features that act together."""
    if story.effects.directed.any():
        return (
            "None worth a figure: another feature changes no effect by as much as a "
            "hundredth of the largest one."
        )
    return "None: no effect depends on another feature."


def _figures(story: Story) -> tuple[tuple[str, str, str], ...]:
    """The numbers at the top: label, value, note."""
    judged, effects = story.judged, story.effects
    where = ROWS_WORDS[judged.rows].name
    measures = []
    # A second share explained says the same as the first.
    order = judged.measure(CONCORDANCE)  # what hazards are judged by
    first, *others = sorted(judged.measures, key=lambda one: one is not order)
    second = [one for one in others if one.name != "Deviance explained"][:1]
    for one in (first, *second):
        note = ""
        if one.linear is not None:
            note = f"plain {plain_name(story.model.family)} {_measure(one, 'linear')}"
        measures.append((f"{one.name} on {where}", _measure(one, "model"), note))
    bent = sum(bool(modifiers_of(story, j)) for j in story.order)
    acting, p = int(effects.roles.acts.sum()), story.model.features.n_features
    n_rows = len(story.sample)
    held_out = "" if story.held_out is None else f"and {len(story.held_out):,} held out"
    return (
        *measures,
        ("Features with an effect", f"{acting} of {p}", _how_many(bent, acting)),
        ("Rows", f"{n_rows:,}", held_out or ROWS_WORDS[story.quality.rows].name),
    )


def _how_many(bent: int, acting: int) -> str:
    if bent < 2:
        return f"{'one' if bent else 'none'} depends on others"
    count = "all of them" if bent >= acting else f"{bent} of them"
    return f"{count} depend on others"


def _measure(measure: Measure, which: str) -> str:
    value = measure.known.get(which)
    if measure.percent or value is None:
        return show_percent(value)
    known = measure.known.values()
    if not all(size == 0 or 1e-4 <= abs(size) < 1e7 for size in known):
        return show_number(value)
    decimals = common_decimals(known, digits=4)
    return show_fixed(value, decimals).removeprefix("+")


def _quality_block(story: Story, quality: Quality) -> dict[str, Any]:
    """How well models do on one set of rows, by the names that the template has.

    Each row is a measure and a cell per heading: its text, and whether it is best.
    Curves are those of survival, with what they show; there may be none.
    """
    words = ROWS_WORDS[quality.rows]
    by_row = story.model.family.least_squares
    size = "risk" if story.model.family.is_hazard else "prediction"
    caption = f"Every dot a tenth of the rows, by size of {size}."
    if by_row:
        caption = f"Every dot a row (at most {MAX_POINTS}, evenly chosen)."
    plain = plain_name(story.model.family)
    names = {
        "constant": "Constant",
        "linear": plain[0].upper() + plain[1:],
        "glm": "Without dependence",
        "model": "This model",
    }
    kept = [
        name for name in names if any(name in one.known for one in quality.measures)
    ]
    known = len(quality.predicted) > 0
    curves, told = survival_figure(story.card, quality) if known else ("", "")
    return dict(
        title=_tell_rows(words.title, len(quality.sample)),
        text=words.text,
        headings=tuple(names[name] for name in kept),
        rows=tuple(
            (one, tuple((_measure(one, name), one.winner == name) for name in kept))
            for one in quality.measures
        ),
        figure=fit_figure(quality, _target_short(story), by_row) if known else "",
        caption=f"{caption} On the diagonal predictions are exactly right." * known,
        curves=curves,
        curves_caption=told,
    )


def _target_short(story: Story) -> str:
    classes = story.card.classes
    target = story.sample.target.removeprefix("the ")
    what = target if classes is None else f"share of {classes[1]}"
    return cut_text(what, 24)


def _errors_text(story: Story) -> str:
    """What the intervals are, or why there are none."""
    errors = story.card.errors
    if errors is None:
        return "Standard errors were not kept with this model."
    words = " ".join(errors.words(tuple(line.row for line in story.lines)))
    return words.replace(" coef,", " the coefficient,")


def _averaged_text(story: Story) -> str:
    """Over which rows averages are, and where their intervals come from."""
    seen, facts = story.effects.n_rows, story.card.facts
    some = min(seen, compared_rows(story.model))
    known = facts is not None and story.quality.rows == "training"
    total = facts.n_samples if facts is not None and known else len(story.sample)
    text = f"averaged over {some:,} of the {total:,} rows, evenly chosen"
    if some == seen < MAX_ROWS:  # copies of rows count as one there
        text = f"averaged over the {total:,} rows"
    if any(story.show_interval(line) for line in story.lines):
        text += (
            "; below it its 95\N{NO-BREAK SPACE}% interval, by what rows left out of "
            "the fit say of rows like these"
        )
    return text


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
    extra += ", offset=offset" * story.sample.given_offset
    more = clean_text(card.choice)
    if (held_out := story.held_out) is not None:
        more += ", X_test=X_test, y_test=y_test"
        more += ", sample_weight_test=weight_test" * (held_out.weight is not None)
        more += ", offset_test=offset_test" * held_out.given_offset
    return (
        f"from sknimo import {card.kind}\n\n"
        f"est = {call}\n"
        f"est.fit(X, y{extra})\n"
        f'est.report("report.html", X, y{extra}{more})'
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
    family = f"{model.family.title}, {model.family.link}"
    facts = [
        ("Family and link", _family_text(story) if card.every else family),
        ("Networks averaged", f"{n_networks(model):,}"),
        ("Terms", f"{len(model.features.term_feature):,}"),
    ]
    if n_networks(model):
        units = " and ".join(str(width) for width in model.spec.hidden)
        facts.append(("Hidden units", units))
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
