"""What deserves a look before the numbers are believed.

Every check gives one line, passed or not, so that a reader sees what was looked at.

Shapes: n rows, p features.
"""

from collections.abc import Callable, Iterator
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
    restore_reach,
    spread_rows,
)
from sknimo.families import FAMILIES, Family
from sknimo.features import may_be_codes
from sknimo.model import FittedModel
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._quality import (
    CONCORDANCE,
    Quality,
    calibration_slope,
    is_varied,
    rank_auc,
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


# Concordances that differ by less are tied.
TIED_ORDER = 0.01
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


def _check(title: str, fine: str, trouble: str, status: Status = "note") -> Check:
    """What is in order, unless something is the trouble with it."""
    return Check(status, title, trouble) if trouble else Check("ok", title, fine)


def run_checks(story: Story) -> tuple[Check, ...]:
    """All checks, warnings first, then notes, then what is in order."""
    card, sample = story.card, story.sample
    found = [
        *_convergence(card),
        *_gain(story),
        *_reference(story),
        *_leakage(card, sample),
        *_separation(story),
        *_dispersion(story),
        *_below_zero(story),
        *_rows(card, sample),
        *_rare(story),
        *_weights(sample),
        *_constant(card, sample),
        *_missing(card, sample),
        *_codes(card, sample),
        *_range(card, sample, story.quality, story.held_out),
        *_far_values(card, sample),
        *_correlation(card, sample),
        *_possible(story),
        *_repeated(card, sample, story.held_out),
        *_balance(_judged(story), story.sample),
    ]
    order = {"warn": 0, "note": 1, "ok": 2}
    return tuple(sorted(found, key=lambda check: order[check.status]))


def _judged(story: Story) -> Quality:
    """Quality on new rows where it is known, with single predictions."""
    fresh = story.fresh
    known = fresh is not None and fresh.is_fresh and len(fresh.predicted) > 0
    return fresh if fresh is not None and known else story.quality


def _convergence(card: ModelCard) -> Iterator[Check]:
    status = card.status if card.certificate is None else card.certificate.status
    stopped = describe_stop(card.converged, status)
    if card.converged is None:
        yield Check("note", "Convergence", "Not recorded for this fit.")
    else:
        fine = f"{status} The training ended calmly.".strip()
        yield _check("Convergence", fine, "".join(stopped), "warn")


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
    for one in fresh.measures:
        if one.name == CONCORDANCE:  # what hazards are judged by
            first, does = one, "tells the first of two events in {} of the pairs"
    others = [value for value in (first.linear, first.glm) if value is not None]
    # Solved again it has another penalty: that is no verdict on this model.
    if others and first.model is not None and fresh.rows != "solved again":
        told = does.format(show_percent(first.model))
        text = (
            f"On rows it has not seen the model {told}, "
            f"plainer models of the same features at most {show_percent(max(others))}"
        )
        worse = max(others) - first.model > (0.0 if first.percent else TIED_ORDER)
        worse &= first.winner not in ("model", "")
        trouble = f"{text}. Prefer the plain one." * worse
        yield _check("Worth of the model", f"{text}.", trouble, "warn")
    trained = quality.explained.model
    if quality.rows == "training" and trained is not None:
        # The same measure on both kinds of rows.
        name = quality.explained.name
        same = [one.model for one in fresh.measures if one.name == name]
        if same and same[0] is not None:
            text = (
                f"{name}: {show_percent(trained)} on the training rows and "
                f"{show_percent(same[0])} on rows the model has not seen"
            )
            status: Status = "warn" if trained - same[0] > OVERFIT else "note"
            trouble = f"{text}: expect the second." * (trained - same[0] > SHORTFALL)
            yield _check("Training against new rows", f"{text}.", trouble, status)


def _reference(story: Story) -> Iterator[Check]:
    """Coefficients that would mislead about the average."""
    quoted = [line for line in story.lines if not line.row.is_rare]
    wrong = [line for line in quoted if line.misleads]
    names = join_words(dict.fromkeys(line.row.full_name for line in wrong), most=4)
    trouble = (
        f"At the reference these effects are unlike those of most rows, in sign or "
        f"size: {names}. Quote the average effect, not the coefficient."
    ) * bool(wrong)
    trouble = describe_reference(len(wrong), len(quoted)) or trouble
    fine = "Every coefficient has the sign and size that most rows have."
    yield _check("Coefficients at the reference", fine, trouble, "warn")


def _leakage(card: ModelCard, sample: Sample) -> Iterator[Check]:
    """A feature that alone tells the target is rather a copy of it than a cause."""
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
            own = _rank_correlation(score, y)
            if (own if category else abs(own)) > LEAK_CORRELATION:
                found.append(f"{name} (rank correlation {show_number(own, 3)})")
    trouble = (
        f"{join_words(found)} alone predicts the target almost perfectly. Is it known "
        "before the outcome, or a copy of it? Drop it if not."
    ) * bool(found)
    yield _check(
        "Leakage", "No feature alone predicts the target perfectly.", trouble, "warn"
    )


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


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation; ties share their mean rank."""
    ranks = []
    for values in (x, y):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[which])
    spread = [float(np.ptp(rank)) for rank in ranks]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if min(spread) > 0 else 0.0


def _separation(story: Story) -> Iterator[Check]:
    if not story.card.model.family.is_binary or len(story.sample) < 2:
        return
    sample, quality = story.sample, story.quality
    if np.ptp(sample.y) == 0:
        return
    area = rank_auc(sample.y, quality.eta, sample.row_weight)
    trouble = (
        "The model orders the two classes without a single error, so the size of "
        "coefficients is arbitrary; their signs are not. Look for a feature that gives "
        "the outcome away."
    ) * (area > SEPARATED_AUC)
    yield _check("Separation", "The classes overlap.", trouble, "warn")


def _dispersion(story: Story) -> Iterator[Check]:
    """Counts vary more than their family allows."""
    model, judged = story.card.model, _judged(story)
    family, sample = model.family, judged.sample
    fixed = not family.estimates_dispersion or family.least_dispersion > 0
    if not fixed or family.is_binary or sample is None:
        return
    if family.is_hazard:  # a row has one event at most
        return
    mean = torch.as_tensor(np.maximum(judged.predicted, 1e-12))
    scaled = (sample.y - judged.predicted) ** 2 / family.variance(mean).numpy()
    size = len(sample)
    spent = 0 if judged.is_fresh else _n_coefficients(model)
    free = max(size - spent, 1)
    statistic = float(size * (sample.row_weight @ scaled)) / free
    text = f"Pearson's statistic is {statistic:.2f} per degree of freedom"
    where = _where(judged)
    trouble = (
        f"{text}, where a {family.name} target has 1: rows vary more than the family "
        f"says.{where} Effects stand; errors that trust the family, such as the ± of "
        f"single rows, are too sure.{_name_wider(family, sample)}"
    ) * (statistic > OVERDISPERSED)
    yield _check("Overdispersion", f"{text}.{where}", trouble, "warn")


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


def _rows(card: ModelCard, sample: Sample) -> Iterator[Check]:
    n_rows = len(sample) if card.facts is None else card.facts.n_samples
    acting = _n_coefficients(card.model)
    count, what = n_rows, "rows"
    if card.model.family.is_binary:
        share = float(np.mean(sample.y))
        count, what = round(min(share, 1 - share) * n_rows), "rows of the rarer class"
    if card.model.family.is_hazard:
        count, what = round(float(np.mean(sample.y)) * n_rows), "events"
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
        "reference and has a coefficient of its own, unless it is too rare for one."
    ) * bool(share.any())
    yield _check("Missing values", "None on the rows of this report.", trouble)


def _codes(card: ModelCard, sample: Sample) -> Iterator[Check]:
    """Numbers of which one more may mean nothing."""
    features = card.model.features
    found = [
        features.names[j]
        for j in np.flatnonzero(find_roles(card.model).relevant).tolist()
        if features.levels(j) is None and may_be_codes(sample.table[:, j])
    ]
    trouble = (
        f"{join_words(found)}: few whole numbers, taken as numbers. If they are codes, "
        "“one more” means nothing: fit them as categories."
    ) * bool(found)
    fine = "No number looks like a code."
    yield _check("Numbers or codes", fine, trouble)


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
    ) * bool(closest)
    fine = f"No two acting features correlate beyond {CLOSE_CORRELATION:g}."
    yield _check("Correlated features", fine, trouble)


def _possible(story: Story) -> Iterator[Check]:
    """Comparisons, all else equal, that hardly any row could make."""
    odd = [
        line.feature
        for line in story.lines
        if line.support < POSSIBLE
        and not line.row.is_rare
        and line.row.kind != "missing"
    ]
    names = [story.card.model.features.names[j] for j in dict.fromkeys(odd)]
    trouble = (
        f"{join_words(names)} cannot change alone in most rows, because other features "
        "almost fix the value. An effect, all else equal, compares rows that do not "
        "exist: read it together with them."
    ) * bool(odd)
    fine = "For every feature most rows could have another value, all else equal."
    yield _check("Possible comparisons", fine, trouble, "warn")


def _rare(story: Story) -> Iterator[Check]:
    """Levels and missing values of very few rows."""
    rare = [line.row for line in story.lines if line.row.is_rare]
    if not any(not line.row.is_feature for line in story.lines):
        return
    shown = join_words(
        f"{row.full_name} ({show_count(round(row.n_rows or 0), 'row')})" for row in rare
    )
    pooled = " Those without a coefficient of their own count as the table above says."
    trouble = (
        f"{shown}. Effects of so few rows are not quoted above; merge such levels "
        "before fitting where that makes sense."
        + pooled
        * any(row.stands_for for row in rare)
    ) * bool(rare)
    fine = f"Every level and every kind of missing value has {RARE} rows or more."
    yield _check("Rare levels", fine, trouble)


def _row_keys(table: np.ndarray) -> list[bytes]:
    """What tells rows apart; missing equals missing."""
    rows = np.ascontiguousarray(np.where(np.isnan(table), np.inf, table) + 0.0)
    return [row.tobytes() for row in rows]


def _repeated(
    card: ModelCard, sample: Sample, held_out: Sample | None
) -> Iterator[Check]:
    """Rows that occur again: in held-out rows, or among the rows themselves."""
    keys = _row_keys(np.column_stack([sample.table, sample.y]))
    if held_out is not None:
        seen = set(keys)
        other = _row_keys(np.column_stack([held_out.table, held_out.y]))
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
    n_rows = len(keys)
    alike = n_rows - len(set(_row_keys(sample.table)))
    exact = n_rows - len(set(keys))
    numeric = [
        len(np.unique(sample.table[:, j]))
        for j in range(card.model.features.n_features)
        if card.model.features.levels(j) is None
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
    trouble = (
        f"{exact:,} of {n_rows:,} rows repeat an earlier one in every feature and the "
        "target."
    ) * (exact > REPEATED * n_rows)
    fine = f"{exact:,} of {n_rows:,} rows repeat an earlier one."
    yield _check("Repeated rows", fine, trouble)


def _balance(quality: Quality, rows: Sample) -> Iterator[Check]:
    """Whether predictions are right on average, and neither too bold nor too timid."""
    sample = quality.sample
    if sample is None or len(quality.predicted) == 0:
        return
    weight, y, mean = sample.row_weight, sample.y, quality.predicted
    predicted, observed = float(weight @ mean), float(weight @ y)
    # Targets that are all the same have no spread: those of the report's rows have.
    scale = sample if is_varied(y, sample) else rows
    spread = _spread(scale) if is_varied(scale.y, scale) else 0.0
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
    yield _check("Calibration", f"{text}.{where}", trouble and f"{trouble}{where}")


def _spread(sample: Sample) -> float:
    """Standard deviation of the targets of some rows."""
    weight, y = sample.row_weight, sample.y
    return float(np.sqrt(weight @ (y - weight @ y) ** 2))
