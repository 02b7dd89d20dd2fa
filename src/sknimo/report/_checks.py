"""What deserves a look before the numbers are believed.

Every check gives one line, passed or not, so that a reader sees what was looked at.

Shapes: n rows, p features.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from sknimo.explain import (
    POSSIBLE,
    RARE,
    describe_reference,
    describe_stop,
    feature_kinds,
    find_roles,
    plain_name,
    restore_reach,
    spread_rows,
)
from sknimo.families import FAMILIES, Family
from sknimo.features import may_be_codes
from sknimo.model import FittedModel
from sknimo.report._inputs import Sample, row_keys
from sknimo.report._quality import (
    CONCORDANCE,
    Quality,
    calibration_slope,
    is_varied,
    rank_auc,
    rank_correlation,
)
from sknimo.report._story import Story
from sknimo.report._text import join_words, show_count, show_number, show_percent

Status = Literal["ok", "note", "warn"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    status: Status
    title: str
    text: str


# Shares and concordances that differ by less are tied.
TIED = 0.01
# Share of predictions below zero that is worth a word.
BELOW_ZERO = 0.005
# Fewer rows than this per coefficient make any fit shaky.
ROWS_PER_COEF = 10
CURVE_EXTRA = 3
# Values this many standard deviations from the reference steer a fit alone.
FAR = 8.0
CLOSE_CORRELATION = 0.95
# Variance that others explain of a feature, times which its own would be blown up.
INFLATION = 20.0
# Beyond this many rows correlations are taken over an even selection.
CORRELATION_ROWS = 5000
# Ranks of a single feature, or of the model, that order the classes almost perfectly.
LEAK_AUC = 0.99
LEAK_CORRELATION = 0.99
SEPARATED_AUC = 1 - 1e-9
# Pearson's statistic per degree of freedom that a family with none to spare may have.
OVERDISPERSED = 1.5
CALIBRATION_GAP = 0.05
# How far the slope of observations on predictions may lie from one, and how surely.
CALIBRATION_SLOPE = 0.2
SLOPE_ERRORS = 3.0
# How much less may be explained on held-out rows before it is said, and warned of.
SHORTFALL = 0.05
OVERFIT = 0.15
# Share of repeated rows that is told, and distinct values of a measured column.
REPEATED = 0.05
MEASURED = 0.2


def run_checks(story: Story) -> tuple[Check, ...]:
    """All checks, warnings first, then notes, then what is in order."""
    found = [
        *_convergence(story),
        *_gain(story),
        *_reference(story),
        *_leakage(story),
        *_separation(story),
        *_dispersion(story),
        *_below_zero(story),
        *_rows(story),
        *_rare(story),
        *_weights(story),
        *_constant(story),
        *_missing(story),
        *_codes(story),
        *_range(story),
        *_far_values(story),
        *_correlation(story),
        *_possible(story),
        *_repeated(story),
        *_balance(story),
    ]
    order = {"warn": 0, "note": 1, "ok": 2}
    return tuple(sorted(found, key=lambda check: order[check.status]))


def _check(
    title: str, wrong: object, trouble: str, fine: str, status: Status = "note"
) -> Check:
    """What the trouble is where something is wrong, else that it is in order."""
    return Check(status, title, trouble) if wrong else Check("ok", title, fine)


def _judged(story: Story) -> Quality:
    """Quality on new rows where it is known, with single predictions."""
    fresh = story.fresh
    known = fresh is not None and fresh.is_fresh and len(fresh.predicted) > 0
    return fresh if fresh is not None and known else story.quality


def _convergence(story: Story) -> Iterator[Check]:
    card = story.card
    if card.converged is None:
        yield Check("note", "Convergence", "Not recorded for this fit.")
        return
    status = card.status if card.certificate is None else card.certificate.status
    stopped = "".join(describe_stop(card.converged, status))
    fine = f"{status} The training ended calmly.".strip()
    yield _check("Convergence", stopped, stopped, fine, "warn")


def _gain(story: Story) -> Iterator[Check]:
    """Whether the network earns its keep, and whether the figures can be trusted."""
    fresh, quality = story.fresh, story.quality
    if fresh is None or not fresh.is_fresh:
        text = "Whether these rows helped to fit is not known; where they did, figures "
        text += "flatter."
        if quality.rows == "training":
            text = (
                "All figures of fit are on rows that helped to fit, which flatters: "
                "pass held-out rows to learn what to expect on new ones."
            )
        yield Check("note", "No rows held out", text)
        return
    first, does = fresh.explained, "explains {}"
    if order := fresh.measure(CONCORDANCE):  # what hazards are judged by
        first, does = order, "tells the first of two events in {} of the pairs"
    plain = f"the plain {plain_name(story.card.model.family)}"
    named = {first.linear: plain, first.glm: "the same model without dependence"}
    best = max((value for value in named if value is not None), default=None)
    # Solved again it has another penalty: that is no verdict on this model.
    if best is not None and first.model is not None and fresh.rows != "solved again":
        told = does.format(show_percent(first.model))
        text = f"On rows it has not seen the model {told}, "
        text += f"{named[best]} {show_percent(best)}"
        worse = best - first.model > TIED
        trouble = f"{text}. Prefer {named[best]}."
        yield _check("Worth of the model", worse, trouble, f"{text}.", "warn")
    trained = quality.explained.model
    if quality.rows == "training" and trained is not None:
        name = quality.explained.name
        same = fresh.measure(name)
        if same is not None and same.model is not None:
            text = (
                f"{name}: {show_percent(trained)} on the training rows and "
                f"{show_percent(same.model)} on rows the model has not seen"
            )
            lost = trained - same.model
            status: Status = "warn" if lost > OVERFIT else "note"
            title, trouble = "Training against new rows", f"{text}: expect the second."
            yield _check(title, lost > SHORTFALL, trouble, f"{text}.", status)


def _reference(story: Story) -> Iterator[Check]:
    """Coefficients that would mislead about the average."""
    quoted = [line for line in story.lines if not line.row.is_rare]
    wrong = [line for line in quoted if line.misleads]
    names = join_words(dict.fromkeys(line.row.full_name for line in wrong), most=4)
    trouble = (
        f"At the reference these effects are unlike the average, in sign or size: "
        f"{names}. Quote the average effect, not the coefficient."
    )
    trouble = describe_reference(len(wrong), len(quoted)) or trouble
    fine = "Every coefficient has the sign and size of the average effect."
    yield _check("Coefficients at the reference", wrong, trouble, fine, "warn")


def _leakage(story: Story) -> Iterator[Check]:
    """A feature that alone tells the target is rather a copy of it than a cause."""
    card, sample = story.card, story.sample
    rows = spread_rows(len(sample), CORRELATION_ROWS)
    y, weight = sample.y[rows], sample.row_weight[rows]
    if np.ptp(y) == 0 or len(rows) < ROWS_PER_COEF:
        return
    found = []
    for j, name in enumerate(card.model.features.names):
        category = card.model.features.levels(j) is not None
        score = _alone(sample.table[rows, j], y, weight, category)
        # A row pulls the mean of the others away from itself: levels that tell nothing
        # rank all rows the wrong way round, which must not pass for knowledge.
        if card.model.family.is_binary:
            own = rank_auc(y, score, weight)
            own = own if category else max(own, 1 - own)
            if own > LEAK_AUC:
                found.append(f"{name} (AUC {own:.3f})")
        else:
            own = rank_correlation(score, y)
            if (own if category else abs(own)) > LEAK_CORRELATION:
                found.append(f"{name} (rank correlation {show_number(own, 3)})")
    trouble = (
        f"{join_words(found)} alone predicts the target almost perfectly. Is it known "
        "before the outcome, or a copy of it? Drop it if not."
    )
    fine = "No feature alone predicts the target perfectly."
    yield _check("Leakage", found, trouble, fine, "warn")


def _alone(
    column: np.ndarray, y: np.ndarray, weight: np.ndarray, category: bool
) -> np.ndarray:
    """How a column alone ranks the rows: itself, or the mean of the level's others."""
    if not category:
        return np.where(np.isnan(column), np.nanmedian(column), column)
    _, which = np.unique(np.nan_to_num(column, nan=-1.0), return_inverse=True)
    total = np.bincount(which, weight)[which] - weight
    mean = float(weight @ y / weight.sum())
    others = np.bincount(which, weight * y)[which] - weight * y
    return np.where(total > 0, others / np.where(total > 0, total, 1.0), mean)


def _separation(story: Story) -> Iterator[Check]:
    sample = story.sample
    if not story.card.model.family.is_binary or np.ptp(sample.y) == 0:
        return
    area = rank_auc(sample.y, story.quality.eta, sample.row_weight)
    trouble = (
        "The model orders the two classes without a single error, so the size of "
        "coefficients is arbitrary; their signs are not. Look for a feature that gives "
        "the outcome away."
    )
    separated = area > SEPARATED_AUC
    yield _check("Separation", separated, trouble, "The classes overlap.", "warn")


def _dispersion(story: Story) -> Iterator[Check]:
    """Counts vary more than their family allows."""
    model, judged = story.card.model, _judged(story)
    family, sample = model.family, judged.sample
    fixed = not family.estimates_dispersion or family.least_dispersion > 0
    # A row of a hazard, as one of two classes, has one event at most.
    if not fixed or family.is_binary or family.is_hazard:
        return
    mean = torch.as_tensor(np.maximum(judged.predicted, 1e-12))
    scaled = (sample.y - judged.predicted) ** 2 / family.variance(mean).numpy()
    size = len(sample)
    # Other rows have spent nothing, as far as is known.
    trained = judged.rows in ("training", "unknown")
    spent = _n_coefficients(model) if trained else 0
    free = max(size - spent, 1)
    statistic = float(size * (sample.row_weight @ scaled)) / free
    text = f"Pearson's statistic is {statistic:.2f} per degree of freedom"
    where = _where(judged)
    trouble = (
        f"{text}, where a {family.name} target has 1: rows vary more than the family "
        f"says.{where} Effects stand; errors that trust the family, such as the ± of "
        f"single rows, are too sure.{_name_wider(family, sample)}"
    )
    wrong = statistic > OVERDISPERSED
    yield _check("Overdispersion", wrong, trouble, f"{text}.{where}", "warn")


def _where(quality: Quality) -> str:
    """On which rows a figure was computed."""
    if quality.is_fresh:
        return " On rows the model has not seen."
    if quality.rows == "training":
        return " On the training rows, which flatters."
    return " On the rows given."


def _name_wider(family: Family, sample: Sample) -> str:
    """The family that lets rows vary as they do, where there is one."""
    y = torch.as_tensor(sample.y)
    takes = (FAMILIES[name] for name in family.wider)
    wider = next((each for each in takes if bool(each.in_domain(y).all())), None)
    return "" if wider is None else f" family={wider.name!r} allows for it."


def _n_coefficients(model: FittedModel) -> int:
    """Coefficients that are not zero; a curve counts for a few."""
    features = model.features
    coef = features.coefficients(model.term_coef)
    curved = [kind == "curve" for kind in feature_kinds(features)]
    acts = find_roles(model).acts
    return int((coef != 0).sum()) + CURVE_EXTRA * int((np.array(curved) & acts).sum())


def _below_zero(story: Story) -> Iterator[Check]:
    """Whether a target that is never negative is predicted to be."""
    quality, y = _judged(story), story.sample.y
    if story.card.model.family.link != "identity" or len(y) == 0 or np.min(y) < 0:
        return
    share = float(np.mean(quality.predicted < 0)) if len(quality.predicted) else 0.0
    if share > BELOW_ZERO:
        yield Check(
            "note",
            "Predictions below zero",
            f"{show_percent(share)} of the predictions are negative, which "
            f"{story.sample.target} never is. A family with a log link, such as "
            "poisson for counts or gamma for amounts, has none.",
        )


def _rows(story: Story) -> Iterator[Check]:
    card, sample = story.card, story.sample
    n_rows = len(sample) if card.facts is None else card.facts.n_samples
    acting, share = _n_coefficients(card.model), float(np.mean(sample.y))
    count, what = n_rows, "rows"
    if card.model.family.is_binary:
        count, what = round(min(share, 1 - share) * n_rows), "rows of the rarer class"
    if card.model.family.is_hazard:
        count, what = round(share * n_rows), "events"
    per = count / max(acting, 1)
    text = f"{count:,} {what} for {show_count(acting, 'coefficient')} that are not zero"
    trouble = (
        f"{text}: fewer than {ROWS_PER_COEF} each. Expect another sample to give other "
        "numbers."
    )
    wrong = per < ROWS_PER_COEF
    yield _check("Number of rows", wrong, trouble, f"{text}.", "warn")


def _weights(story: Story) -> Iterator[Check]:
    sample = story.sample
    if sample.weight is None:
        return
    size = 1 / float((sample.row_weight**2).sum())
    status: Status = "note" if size < len(sample) / 2 else "ok"
    text = f"The weights make {len(sample):,} rows worth about {size:,.0f} equal ones."
    yield Check(status, "Weights", text)


def _names(story: Story, which: Iterable[int]) -> str:
    names = story.card.model.features.names
    return join_words(names[j] for j in which)


def _worst(story: Story, amount: np.ndarray, show: Callable[[Any], str]) -> str:
    """Features with an amount (p,) above zero, largest first."""
    names = story.card.model.features.names
    order = [j for j in np.argsort(-amount, kind="stable") if amount[j] > 0]
    return join_words(f"{names[j]} ({show(amount[j])})" for j in order)


def _numbers(story: Story) -> list[int]:
    """Features with a role that are numbers."""
    model = story.card.model
    relevant = np.flatnonzero(find_roles(model).relevant).tolist()
    return [j for j in relevant if model.features.levels(j) is None]


def _constant(story: Story) -> Iterator[Check]:
    trained = story.card.model.features.scale == 0
    here = np.array([_is_constant(column) for column in story.sample.table.T], bool)
    if trained.any():
        names = _names(story, np.flatnonzero(trained))
        text = f"Without spread in training, hence without any effect: {names}."
        yield Check("note", "Constant columns", text)
    if (here & ~trained).any():
        names = _names(story, np.flatnonzero(here & ~trained))
        text = f"Constant on the rows of this report, though not in training: {names}."
        yield Check("note", "Columns constant here", text)
    if not (trained | here).any():
        yield Check("ok", "Constant columns", "None.")


def _is_constant(column: np.ndarray) -> bool:
    known = column[~np.isnan(column)]
    return len(known) == 0 or float(np.ptp(known)) == 0


def _missing(story: Story) -> Iterator[Check]:
    share = np.isnan(story.sample.table).mean(axis=0)
    trouble = (
        f"{_worst(story, share, show_percent)}. A missing value stands at the "
        "reference and has a coefficient of its own, unless it is too rare for one."
    )
    fine = "None on the rows of this report."
    yield _check("Missing values", share.any(), trouble, fine)


def _codes(story: Story) -> Iterator[Check]:
    """Numbers of which one more may mean nothing."""
    table = story.sample.table
    found = [j for j in _numbers(story) if may_be_codes(table[:, j])]
    trouble = (
        f"{_names(story, found)}: few whole numbers, taken as numbers. If they are "
        "codes, “one more” means nothing: fit them as categories."
    )
    yield _check("Numbers or codes", found, trouble, "No number looks like a code.")


def _range(story: Story) -> Iterator[Check]:
    """Rows outside the range of the training rows: the model extrapolates there."""
    card, held_out, title = story.card, story.held_out, "Extrapolation"
    if story.quality.rows == "training" and held_out is None:
        yield Check("ok", title, "The rows are the training rows: all within range.")
        return
    where, rows = ("", story.sample) if held_out is None else ("held-out", held_out)
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
    text = _worst(story, outside.sum(axis=0), "{:,}".format)
    share = count / len(rows)
    yield Check(
        "warn" if share > 0.1 or n_far else "note",
        title,
        f"{count:,} of {len(rows):,} {where} rows ({show_percent(share)}) lie outside "
        f"the training range in some feature: {text}. Their predictions "
        f"extrapolate.{far}",
    )


def _far_values(story: Story) -> Iterator[Check]:
    features, table = story.card.model.features, story.sample.table
    scale = np.where(features.scale > 0, features.scale, np.inf)
    known = np.where(np.isnan(table), features.reference, table)
    distance = (np.abs(known - features.reference) / scale).max(axis=0, initial=0.0)
    far = [j for j in _numbers(story) if distance[j] > FAR]
    trouble = (
        f"Single values more than {FAR:g} standard deviations from the reference in "
        f"{_names(story, far)}; the furthest is {distance[far].max(initial=0.0):.0f} "
        "away. A few rows may steer these effects: consider a logarithm."
    )
    fine = f"None beyond {FAR:g} standard deviations."
    yield _check("Far values", far, trouble, fine)


def _correlation(story: Story) -> Iterator[Check]:
    """Features that move together share their effects in a way nobody can check."""
    features, every = story.card.model.features, story.sample.table
    wanted = [j for j in _numbers(story) if not _is_constant(every[:, j])]
    table = every[spread_rows(len(every), CORRELATION_ROWS)][:, wanted]
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
    # A sum of several features shows in no pair of them.
    size = len(found)
    ridge = (1 - 1e-6) * found + 1e-6 * np.eye(size)
    inflation = np.diag(np.linalg.inv(ridge))
    paired = set(pairs.ravel().tolist())
    closest += [
        f"{names[j]} and the others together ({show_number(1 - 1 / inflation[j], 3)})"
        for j in np.argsort(-inflation, kind="stable").tolist()
        if inflation[j] > INFLATION and j not in paired
    ]
    trouble = (
        f"{join_words(closest, most=3)}. The penalty, not the data, decides how they "
        "share their effect."
    )
    fine = f"No two acting features correlate beyond {CLOSE_CORRELATION:g}."
    yield _check("Correlated features", closest, trouble, fine)


def _possible(story: Story) -> Iterator[Check]:
    """Comparisons, all else equal, that hardly any row could make."""
    odd = [
        line.feature
        for line in story.lines
        if line.support < POSSIBLE
        and not line.row.is_rare
        and line.row.kind != "missing"
    ]
    trouble = (
        f"{_names(story, dict.fromkeys(odd))} cannot change alone in most rows, "
        "because other features almost fix the value. An effect, all else equal, "
        "compares rows that do not exist: read it together with them."
    )
    fine = "Most rows could make every change that is quoted, all else equal."
    yield _check("Possible comparisons", odd, trouble, fine, "warn")


def _rare(story: Story) -> Iterator[Check]:
    """Levels and missing values of very few rows."""
    rare = [line.row for line in story.lines if line.row.is_rare]
    if all(line.row.is_feature for line in story.lines):
        return
    shown = join_words(
        f"{row.full_name} ({show_count(round(row.n_rows or 0), 'row')})" for row in rare
    )
    trouble = (
        f"{shown}. Effects of so few rows are not quoted above; merge such levels "
        "before fitting where that makes sense."
    )
    if any(row.stands_for for row in rare):
        trouble += (
            " Those without a coefficient of their own count as the table above says."
        )
    fine = f"Every level and every kind of missing value has {RARE} rows or more."
    yield _check("Rare levels", rare, trouble, fine)


def _repeated(story: Story) -> Iterator[Check]:
    """Rows that occur again: in held-out rows, or among the rows themselves."""
    features, sample, held_out = story.card.model.features, story.sample, story.held_out
    keys = row_keys(np.column_stack([sample.table, sample.y]))
    seen = set(keys)
    if held_out is not None:
        other = row_keys(np.column_stack([held_out.table, held_out.y]))
        shared = sum(key in seen for key in other)
        title, fine = "Held-out rows seen before", "None equals a row of the report."
        trouble = (
            f"{shared:,} of {len(other):,} held-out rows equal a row of the report in "
            "every feature and the target. If they are the same cases, the held-out "
            "figures flatter."
        )
        # Rows of few possible values must repeat, those of the report as well.
        own = sum(n for n in Counter(keys).values() if n > 1) / len(keys)
        if own > REPEATED:
            trouble += f" {show_percent(own)} of the report's own rows repeat as well."
        many = shared / len(other) > own + REPEATED
        yield _check(title, shared, trouble, fine, "warn" if many else "note")
    n_rows = len(keys)
    alike = n_rows - len(set(row_keys(sample.table)))
    exact = n_rows - len(seen)
    numeric = [
        len(np.unique(sample.table[:, j]))
        for j in range(features.n_features)
        if features.levels(j) is None
    ]
    # Measurements do not agree in every digit by chance.
    measured = max(numeric, default=0) > MEASURED * n_rows
    if measured and alike > REPEATED * n_rows:
        text = (
            f"{alike:,} of {n_rows:,} rows repeat an earlier one in every feature, "
            "measurements among them. If several rows belong to one case, hold them "
            "out together (groups) or figures on rows left out flatter."
        )
        yield Check("warn", "Repeated rows", text)
        return
    text = f"{exact:,} of {n_rows:,} rows repeat an earlier one"
    trouble = f"{text} in every feature and the target."
    yield _check("Repeated rows", exact > REPEATED * n_rows, trouble, f"{text}.")


def _balance(story: Story) -> Iterator[Check]:
    """Whether predictions are right on average, and neither too bold nor too timid."""
    quality, rows = _judged(story), story.sample
    sample = quality.sample
    if len(quality.predicted) == 0:
        return
    weight, y, mean = sample.row_weight, sample.y, quality.predicted
    predicted, observed = float(weight @ mean), float(weight @ y)
    # Targets that are all the same have no spread: those of the report's rows have.
    spread = next(
        (each.spread for each in (sample, rows) if is_varied(each.y, each)), 0
    )
    alike = 0.0 if np.isclose(predicted, observed) else np.inf
    gap = abs(predicted - observed) / spread if spread > 0 else alike
    text = (
        f"Mean prediction {show_number(predicted)}, mean observation "
        f"{show_number(observed)}"
    )
    apart = "apart, with no spread of the target to measure that by."
    if spread > 0:
        apart = f"apart by {gap:.2f} standard deviations of the target."
    trouble = f"{text}: {apart}" * (gap > CALIBRATION_GAP)
    slope, error = calibration_slope(quality, sample)
    if np.isfinite(error):
        text += f"; observations follow predictions with a slope of {slope:.2f}"
        text += f" (standard error {error:.2f})"
    off = abs(slope - 1)
    if not trouble and off > CALIBRATION_SLOPE and off > SLOPE_ERRORS * error:
        how = "too bold" if slope < 1 else "too timid"
        trouble = f"{text}, where 1 is right: predictions are {how}."
    where = _where(quality)
    yield _check("Calibration", trouble, f"{trouble}{where}", f"{text}.{where}")
