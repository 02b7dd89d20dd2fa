"""What deserves a look before the numbers are believed.

Every check gives one line, passed or not, so that a reader sees what was looked at.

Shapes: n rows, p features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sknimo.explain import find_roles, restore_reach, spread_rows
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._quality import Quality
from sknimo.report._text import join_words, show_count, show_number, show_percent

Status = Literal["ok", "note", "warn"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    status: Status
    title: str
    text: str


# Fewer rows than this per coefficient make any fit shaky.
ROWS_PER_COEF = 10
# Values this many standard deviations from the reference steer a fit alone.
FAR = 8.0
CLOSE_CORRELATION = 0.95
# Beyond this many rows correlations are taken over an even selection.
CORRELATION_ROWS = 5000
# Linear predictors beyond this with hardly any deviance left mean separation.
SEPARATION_ETA = 30.0
CALIBRATION_GAP = 0.05
# How much less may be explained on held-out rows before it is said, and warned of.
SHORTFALL = 0.05
OVERFIT = 0.15


def _check(title: str, fine: str, trouble: str, status: Status = "note") -> Check:
    """What is in order, unless something is the trouble with it."""
    return Check(status, title, trouble) if trouble else Check("ok", title, fine)


def run_checks(
    card: ModelCard,
    sample: Sample,
    quality: Quality,
    held_out: Sample | None,
    held_out_quality: Quality | None,
) -> tuple[Check, ...]:
    """All checks, warnings first, then notes, then what is in order."""
    found = [
        *_convergence(card),
        *_gain(quality, held_out_quality),
        *_separation(card, sample, quality),
        *_rows(card, sample),
        *_weights(sample),
        *_constant(card, sample),
        *_missing(card, sample),
        *_range(card, sample, quality, held_out),
        *_far_values(card, sample),
        *_correlation(card, sample),
        *_repeated(sample, held_out),
        *(
            _balance(sample, quality)
            if held_out is None or held_out_quality is None
            else _balance(held_out, held_out_quality)
        ),
    ]
    order = {"warn": 0, "note": 1, "ok": 2}
    return tuple(sorted(found, key=lambda check: order[check.status]))


def _convergence(card: ModelCard) -> Iterator[Check]:
    verdicts: dict[bool | None, tuple[Status, str]] = {
        None: ("note", "Not recorded for this fit."),
        True: ("ok", "The training ended calmly."),
        False: ("warn", "The fit did not converge: read every number with care."),
    }
    status, text = verdicts[card.converged]
    known = "" if card.certificate is None else f"{card.certificate.status} "
    yield Check(status, "Convergence", known + text)


def _gain(quality: Quality, held_out: Quality | None) -> Iterator[Check]:
    """Whether the network earns its keep, and whether the figures can be trusted."""
    judged = quality if held_out is None else held_out
    model, glm = judged.explained.model, judged.explained.glm
    figures = (
        f"The model explains {show_percent(model)}, the same features without a "
        f"network {show_percent(glm)}"
    )
    if held_out is None:
        where = "" if quality.rows == "training" else ", which was solved on these rows"
        yield Check(
            "note",
            "No held-out rows",
            f"{figures}{where}. A figure on rows that helped to fit is flattering: "
            "pass held-out rows to learn what to expect on new ones.",
        )
        return
    trouble = (
        f"{figures}: on held-out rows the plain GLM predicts better. Prefer it, or a "
        "stronger penalty on the network."
    ) * (judged.explained.winner == "glm")
    fine = f"{figures}, on held-out rows."
    yield _check("Worth of the network", fine, trouble, "warn")
    if quality.rows == "training":
        trained, fresh = quality.explained.model, held_out.explained.model
        text = (
            f"The model explains {show_percent(trained)} on the training rows and "
            f"{show_percent(fresh)} on held-out ones"
        )
        status: Status = "warn" if trained - fresh > OVERFIT else "note"
        trouble = f"{text}: expect the second on new rows."
        trouble *= trained - fresh > SHORTFALL
        yield _check("Training against held-out", f"{text}.", trouble, status)


def _separation(card: ModelCard, sample: Sample, quality: Quality) -> Iterator[Check]:
    if not card.model.family.is_binary:
        return
    gap = np.abs(quality.predicted - sample.y).max(initial=0.0)
    far = np.abs(quality.eta).max(initial=0.0) > SEPARATION_ETA
    trouble = (
        "The classes are separated perfectly, so the size of coefficients is "
        "arbitrary; their signs are not."
    ) * bool(far and gap < 1e-3)
    yield _check("Separation", "The classes overlap.", trouble, "warn")


def _rows(card: ModelCard, sample: Sample) -> Iterator[Check]:
    n_rows = len(sample) if card.facts is None else card.facts.n_samples
    acting = int((card.model.term_coef != 0).sum())
    count, what = n_rows, "rows"
    if card.model.family.is_binary:
        share = float(np.mean(sample.y))
        count, what = round(min(share, 1 - share) * n_rows), "rows of the rarer class"
    per = count / max(acting, 1)
    text = f"{count:,} {what} for {show_count(acting, 'coefficient')} that are not zero"
    trouble = (
        f"{text}: fewer than {ROWS_PER_COEF} each. Expect another sample to give other "
        "numbers."
    ) * (per < ROWS_PER_COEF)
    yield _check("Number of rows", f"{text}.", trouble, "warn")


def _weights(sample: Sample) -> Iterator[Check]:
    if sample.weight is None:
        return
    size = 1 / float((sample.row_weight**2).sum())
    status: Status = "note" if size < len(sample) / 2 else "ok"
    text = f"The weights make {len(sample):,} rows worth about {size:,.0f} equal ones."
    yield Check(status, "Weights", text)


def _names(card: ModelCard, which: np.ndarray) -> str:
    names = card.model.features.names
    return join_words(names[j] for j in np.flatnonzero(which))


def _worst(card: ModelCard, amount: np.ndarray, show: Callable[[Any], str]) -> str:
    """Features with an amount (p,) above zero, largest first."""
    names = card.model.features.names
    order = [j for j in np.argsort(-amount, kind="stable") if amount[j] > 0]
    return join_words(f"{names[j]} ({show(amount[j])})" for j in order)


def _constant(card: ModelCard, sample: Sample) -> Iterator[Check]:
    trained = card.model.features.scale == 0
    here = np.array([_is_constant(column) for column in sample.table.T], dtype=bool)
    if trained.any():
        text = "Without spread in training, hence without any effect"
        yield Check("note", "Constant columns", f"{text}: {_names(card, trained)}.")
    if (here & ~trained).any():
        text = "Constant on the rows of this report, though not in training"
        names = _names(card, here & ~trained)
        yield Check("note", "Columns constant here", f"{text}: {names}.")
    if not (trained | here).any():
        yield Check("ok", "Constant columns", "None.")


def _is_constant(column: np.ndarray) -> bool:
    known = column[~np.isnan(column)]
    return len(known) == 0 or float(np.ptp(known)) == 0


def _missing(card: ModelCard, sample: Sample) -> Iterator[Check]:
    share = np.isnan(sample.table).mean(axis=0)
    trouble = (
        f"{_worst(card, share, show_percent)}. A missing value stands at the "
        "reference and has a coefficient of its own."
    ) * bool(share.any())
    yield _check("Missing values", "None on the rows of this report.", trouble)


def _range(
    card: ModelCard, sample: Sample, quality: Quality, held_out: Sample | None
) -> Iterator[Check]:
    """Rows outside the range of the training rows: the model extrapolates there."""
    title = "Extrapolation"
    if quality.rows == "training" and held_out is None:
        yield Check("ok", title, "The rows are the training rows: all within range.")
        return
    where, rows = ("held-out", held_out) if held_out is not None else ("", sample)
    reach = restore_reach(card.model) if card.facts is None else card.facts.reach
    n_far = int(reach.find_far(rows.table).sum())
    far = (
        f" {show_count(n_far, 'row')} {'lies' if n_far == 1 else 'lie'} far from all "
        "training rows, in one feature or in several together: predictions there are "
        "guesses."
    ) * (n_far > 0)
    outside = card.model.features.excess(rows.table) > 0
    count = int(outside.any(axis=1).sum())
    if count == 0:
        text = "within the range of the training rows in every feature."
        text = f"All {len(rows):,} {where} rows lie {text}{far}"
        yield Check("warn" if n_far else "ok", title, text)
        return
    text = _worst(card, outside.sum(axis=0), "{:,}".format)
    share = count / len(rows)
    yield Check(
        "warn" if share > 0.1 or n_far else "note",
        title,
        f"{count:,} of {len(rows):,} {where} rows ({show_percent(share)}) lie outside "
        f"the training range in some feature: {text}. Their predictions "
        f"extrapolate.{far}",
    )


def _far_values(card: ModelCard, sample: Sample) -> Iterator[Check]:
    features = card.model.features
    numeric = np.array([features.levels(j) is None for j in range(features.n_features)])
    scale = np.where(features.scale > 0, features.scale, np.inf)
    known = np.where(np.isnan(sample.table), features.reference, sample.table)
    distance = (np.abs(known - features.reference) / scale).max(axis=0, initial=0.0)
    far = numeric & find_roles(card.model).relevant & (distance > FAR)
    trouble = (
        f"Single values more than {FAR:g} standard deviations from the reference in "
        f"{_names(card, far)}; the furthest is {distance[far].max(initial=0.0):.0f} "
        "away. A few rows may steer these effects: consider a logarithm."
    ) * bool(far.any())
    yield _check("Far values", f"None beyond {FAR:g} standard deviations.", trouble)


def _correlation(card: ModelCard, sample: Sample) -> Iterator[Check]:
    """Features that move together share their effects in a way nobody can check."""
    features = card.model.features
    wanted = [
        j
        for j in np.flatnonzero(find_roles(card.model).relevant).tolist()
        if features.levels(j) is None and not _is_constant(sample.table[:, j])
    ]
    rows = spread_rows(len(sample), CORRELATION_ROWS)
    table = sample.table[rows][:, wanted]
    table = np.where(np.isnan(table), features.reference[wanted], table)
    # In units of their own: squares of extreme units would overflow.
    table = (table - features.reference[wanted]) / features.scale[wanted]
    spread = table.std(axis=0)
    keep = spread > 0
    wanted = [j for j, kept in zip(wanted, keep, strict=True) if kept]
    if len(wanted) < 2:
        return
    found = np.corrcoef(table[:, keep], rowvar=False)
    pairs = np.argwhere(np.triu(np.abs(found) > CLOSE_CORRELATION, 1))
    names = [features.names[j] for j in wanted]
    closest = [
        f"{names[j]} and {names[k]} ({show_number(found[j, k], 3)})" for j, k in pairs
    ]
    trouble = (
        f"{join_words(closest, most=3)}. The penalty, not the data, decides how they "
        "share their effect."
    ) * bool(closest)
    fine = f"No two acting features correlate beyond {CLOSE_CORRELATION:g}."
    yield _check("Correlated features", fine, trouble)


def _row_keys(sample: Sample) -> list[bytes]:
    """What tells rows with their targets apart; missing equals missing."""
    rows = np.column_stack([sample.table, sample.y])
    rows = np.ascontiguousarray(np.where(np.isnan(rows), np.inf, rows) + 0.0)
    return [row.tobytes() for row in rows]


def _repeated(sample: Sample, held_out: Sample | None) -> Iterator[Check]:
    keys = _row_keys(sample)
    seen = set(keys)
    repeated = len(keys) - len(seen)
    if held_out is not None:
        other = _row_keys(held_out)
        shared = sum(key in seen for key in other)
        title, fine = "Held-out rows seen before", "None equals a row of the report."
        trouble = (
            f"{shared:,} of {len(other):,} held-out rows equal a row of the report in "
            "every feature and the target. If they are the same cases, the held-out "
            "figures flatter."
        ) * bool(shared)
        yield _check(
            title, fine, trouble, "warn" if shared > len(other) / 20 else "note"
        )
    if repeated > len(keys) / 20:
        count = f"{repeated:,} of {len(keys):,} rows"
        text = f"{count} repeat an earlier one in every feature and the target."
        yield Check("note", "Repeated rows", text)


def _balance(sample: Sample, quality: Quality) -> Iterator[Check]:
    """Whether predictions are right on average."""
    weight, y = sample.row_weight, sample.y
    predicted, observed = float(weight @ quality.predicted), float(weight @ y)
    spread = float(np.sqrt(weight @ (y - observed) ** 2))
    gap = abs(predicted - observed) / spread if spread > 0 else 0.0
    text = (
        f"Mean prediction {show_number(predicted)}, mean observation "
        f"{show_number(observed)}"
    )
    trouble = f"{text}: apart by {gap:.2f} standard deviations of the target."
    yield _check("Calibration", f"{text}.", trouble * (gap > CALIBRATION_GAP))
