"""How well the model predicts, beside plainer models and a constant.

Models are compared on rows that none of them has seen: held-out rows, or rows that were
left out of a fit. On the rows of the fit the model stands beside a constant alone.

Shapes: n rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import torch

from sknimo.explain import (
    HeldOutScores,
    best_constant,
    fill_offset,
    has_curves,
    is_bent,
    mean_of,
    plain_by_folds,
    plain_model,
    plain_name,
)
from sknimo.families import LINKS, Family
from sknimo.report._inputs import ModelCard, Sample
from sknimo.survival import concordance

# A deviance that agrees to this share is that of the same rows.
SAME_DEVIANCE = 1e-6
# Predictions in the order of these rows explain what the search says, relative to it.
# Not exactly: copies of a row may be left out in turn. In another order the share
# changes its sign.
SAME_SCORE = 0.02
N_GROUPS = 10
# How far predictions on new rows may lie from the ends of their range.
EDGE = 1e-12
CONCORDANCE = "Concordance"
EXPLAINED = (
    "Deviance explained",
    "share of the deviance of the best constant that is gone",
)
MODELS = ("constant", "linear", "glm", "model")
STEPS = 20  # Newton's, of which five are enough


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of fit for a constant and for models; None is not known."""

    name: str
    meaning: str
    constant: float | None
    model: float | None
    linear: float | None = None
    glm: float | None = None
    _: KW_ONLY
    larger_is_better: bool = False
    percent: bool = False

    @property
    def known(self) -> dict[str, float]:
        """What is known, by the names of the constant and of models."""
        every = {name: getattr(self, name) for name in MODELS}
        return {name: value for name, value in every.items() if value is not None}

    @property
    def winner(self) -> str:
        """Which of several models does best; empty for a tie in what is shown."""
        known = {name: v for name, v in self.known.items() if name != "constant"}
        if len(known) < 2:
            return ""
        sign = 1 if self.larger_is_better else -1
        first, second = sorted(known, key=lambda name: -sign * known[name])[:2]
        gap = abs(known[first] - known[second])
        size = 1.0 if self.percent else max(abs(known[first]), abs(known[second]))
        tie = gap <= (1e-3 if self.percent else 5e-4) * size
        return "" if tie else first


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """How well the model does on rows of a kind.

    Rows are "training", "held out" (given as such), "left out" (of fits to the other
    training rows), "solved again" (left out, by a model solved for this), "chosen by"
    (the same, where they have helped to choose its features), "other" or "unknown",
    where nothing was kept of those of the training.
    The share of deviance explained is the first measure.
    Means are over at most N_GROUPS groups of rows with similar predictions; the other
    arrays are (n,), and empty where single predictions are not known.
    """

    sample: Sample
    rows: str
    measures: tuple[Measure, ...]
    eta: np.ndarray
    predicted: np.ndarray
    mean_predicted: np.ndarray
    mean_observed: np.ndarray

    @property
    def explained(self) -> Measure:
        """Share of deviance explained."""
        return self.measures[0]

    def measure(self, name: str) -> Measure | None:
        """The measure of a name, where there is one."""
        return next((one for one in self.measures if one.name == name), None)

    @property
    def is_fresh(self) -> bool:
        """Whether the model has not seen the rows."""
        return self.rows in ("held out", "left out", "solved again")


def judge(card: ModelCard, sample: Sample) -> Quality:
    """Measure the model, beside a constant, on the rows of a report."""
    model, facts = card.model, card.facts
    eta = model.eta(sample.table, sample.offset)
    rows, known = "unknown", None
    if sample.is_training:
        rows = "training"
    elif facts is not None:
        rows = "other"
        # A fit keeps the deviances of its rows, not the rows: they are these if the
        # model's is.
        total = len(sample) if sample.weight is None else float(sample.weight.sum())
        trained = [facts.null_deviance / total, facts.deviance / total]
        near = SAME_DEVIANCE * trained[1] + 1e-12 * trained[0]
        same = abs(mean_deviance(model.family, sample, eta) - trained[1]) <= near
        if len(sample) == facts.n_samples and same:
            rows, known = "training", trained
    return _quality(card, sample, {"model": eta}, rows, known)


def judge_held_out(card: ModelCard, sample: Sample, held_out: Sample) -> Quality:
    """Measure models that were solved on the rows of a report on rows held out."""
    model = card.model
    given = sample.table, sample.y, sample.weight, sample.known_offset
    new = held_out.table, held_out.known_offset
    eta = {"linear": plain_model(model, *given).eta(*new)}
    if is_bent(model):  # otherwise that is this model
        if card.dial is not None:  # the same penalties and averages
            eta["glm"] = card.dial.turn(model, 0.0).eta(*new)
        elif has_curves(model):
            eta["glm"] = plain_model(model, *given, curves=True).eta(*new)
    eta["model"] = model.eta(held_out.table, held_out.offset)
    return _quality(card, held_out, eta, "held out")


def judge_left_out(card: ModelCard, sample: Sample) -> Quality | None:
    """What is known of training rows that were left out of a fit.

    Predictions by members that have not seen the row, where the search has them in the
    order of these rows; otherwise the scores of the search. Where there are none, a
    model without a network is solved again without a fifth of the rows: of what all of
    them have chosen, where something was.
    """
    model, scores = card.model, card.scores
    given = sample.table, sample.y, sample.weight, sample.known_offset
    eta = {"linear": plain_by_folds(model, *given)}
    found = card.left_out
    if found is not None and scores is not None and len(found) == len(sample):
        known = ~np.isnan(found)
        some = sample.take(np.flatnonzero(known))
        follow_up = some.follow_up
        if follow_up is not None:
            again = concordance(follow_up, found[known])
        else:
            again = _explained(model.family, some, _link(model.family, found[known]))
        same = abs(again - scores.r2) <= SAME_SCORE * abs(scores.r2)
        same |= sample.is_training
        if same and follow_up is not None:
            eta["model"] = found + sample.row_offset
        elif same:
            eta["model"] = _link(model.family, found)
            if card.straight is not None and is_bent(model) and has_curves(model):
                eta["glm"] = card.straight
    rows, measured = "left out", scores is not None and not np.isnan(scores.r2)
    # Solved with another penalty it is not quite this model: better than nothing, but
    # not beside what the search has measured.
    if "model" not in eta and not is_bent(model) and not measured:
        solved = plain_by_folds(model, *given, curves=True)
        if _has_chosen(card, sample):  # a plain model of all columns is no rival there
            rows, eta = "chosen by", {"model": solved}
        else:
            rows, eta["model"] = "solved again", solved
    kept = ~np.any([np.isnan(each) for each in eta.values()], axis=0)
    if kept.sum() < 3:
        return None
    some = sample.take(np.flatnonzero(kept))
    eta = {name: each[kept] for name, each in eta.items()}
    quality = _quality(card, some, eta, rows)
    # Of several classes it is that of all, and of hazards a concordance.
    if scores is not None and measured and not sample.of_class:
        if sample.follow_up is None:
            return _with_scores(quality, card, scores, eta["linear"])
        glm = scores.glm_r2 if is_bent(model) else None
        measures = [
            replace(one, glm=glm) if one.name == CONCORDANCE else one
            for one in quality.measures
        ]
        quality = replace(quality, measures=tuple(measures))
    return quality if "model" in eta else None


def _has_chosen(card: ModelCard, sample: Sample) -> bool:
    """Whether a fit has dropped what varies, or a search has chosen curves."""
    model = card.model
    terms = model.features.terms(sample.table[sample.row_weight > 0])
    kept = (model.coef != 0).any(0).numpy()
    searched = card.scores is not None and has_curves(model)
    return searched or bool((~kept & (np.ptp(terms, axis=0) > 0)).any())


def _with_scores(
    quality: Quality, card: ModelCard, scores: HeldOutScores, linear: np.ndarray
) -> Quality:
    """The same with what the search itself has measured first.

    `linear` (n,) are linear predictors of the plain model.
    """
    family = card.model.family
    plain = _explained(family, quality.sample, linear)
    names = "R²", "share of the variance of the target that the predictions explain"
    first = Measure(
        *(EXPLAINED if family.by_deviance else names),
        None,
        scores.r2,
        None if np.isnan(plain) else plain,
        scores.glm_r2 if is_bent(card.model) and has_curves(card.model) else None,
        larger_is_better=True,
        percent=True,
    )
    others = [one for one in quality.measures if one.name != first.name]
    others = others if len(quality.predicted) else []  # without the model
    return replace(quality, measures=(first, *others))


def _explained(family: Family, sample: Sample, eta: np.ndarray) -> float:
    """Score of linear predictors (n,), as of a search; NaN where nothing varies."""
    y = np.asarray(sample.y, dtype=np.float64)
    offset = fill_offset(sample.known_offset, len(sample))
    return family.explained(*map(torch.as_tensor, (y, eta, sample.row_weight, offset)))


def _link(family: Family, mean: np.ndarray) -> np.ndarray:
    """Linear predictors of means (n,)."""
    link = LINKS[family.link]
    inside = link.inside(torch.as_tensor(np.array(mean)), EDGE)
    return link.link_function(inside).numpy()


def _quality(
    card: ModelCard,
    sample: Sample,
    eta: Mapping[str, np.ndarray],
    rows: str,
    known: list[float] | None = None,
) -> Quality:
    """All measures of some linear predictors (n,); deviances where they are known."""
    model, family = card.model, card.model.family
    offset = sample.known_offset
    constant = best_constant(model, sample.y, sample.weight, offset)
    every = {"constant": constant + fill_offset(offset, len(sample)), **eta}
    deviances = {name: mean_deviance(family, sample, at) for name, at in every.items()}
    if known is not None:
        deviances = dict(zip(("constant", "model"), known, strict=True))
    means = {name: mean_of(family, at) for name, at in every.items()}
    none = np.empty(0)
    groups = np.empty((2, 0))
    if "model" in eta:
        # Expected events grow with the time that a row was watched: go by its risk.
        watched = sample.follow_up is not None
        by = eta["model"] - sample.row_offset if watched else means["model"]
        groups = group_means(means["model"], sample, by)
    return Quality(
        sample=sample,
        rows=rows,
        measures=tuple(_measures(family, sample, deviances, means)),
        eta=eta.get("model", none),
        predicted=means.get("model", none),
        mean_predicted=groups[0],
        mean_observed=groups[1],
    )


def row_deviance(family: Family, sample: Sample, eta: np.ndarray) -> np.ndarray:
    """Unit deviance of every row, (n,)."""
    truth = torch.as_tensor(np.array(sample.y, dtype=np.float64))
    return 2 * family.loss(truth, torch.as_tensor(eta)).numpy()


def mean_deviance(family: Family, sample: Sample, eta: np.ndarray) -> float:
    """Weighted mean of unit deviances; rows without weight do not count."""
    loss, weight = row_deviance(family, sample, eta), sample.row_weight
    return float(weight[weight > 0] @ loss[weight > 0])


def _measures(
    family: Family,
    sample: Sample,
    deviances: Mapping[str, float],
    means: Mapping[str, np.ndarray],
) -> Iterator[Measure]:
    """Measures that suit the family; the share of deviance explained first."""
    gaussian, binary = family.least_squares, family.is_binary
    null = deviances["constant"]
    # Of targets that are all the same, rounding alone leaves a constant something.
    varies = is_varied(sample.y, sample) or sample.known_offset is not None
    gone = {
        name: 1 - deviance / null if varies and null > 0 else np.nan
        for name, deviance in deviances.items()
        if name != "constant"
    }
    yield _measure(
        *(
            ("R²", "share of the variance that the predictions explain")
            if gaussian
            else EXPLAINED
        ),
        gone,
        larger_is_better=True,
        percent=True,
    )
    if family.is_hazard:
        yield from _order_measures(sample, means)
    else:
        yield from (_class_measures if binary else _size_measures)(sample, means)
    if binary:
        half = {name: deviance / 2 for name, deviance in deviances.items()}
        yield _measure("Log loss", "mean negative log-likelihood; less is better", half)
    elif not gaussian:
        kind = plain_name(family).removesuffix(" regression")
        meaning = f"mean {kind} deviance of a row; less is better"
        yield _measure("Mean deviance", meaning, deviances)


def _measure(
    name: str, meaning: str, values: Mapping[str, float], **options: bool
) -> Measure:
    known = {each: value for each, value in values.items() if not np.isnan(value)}
    every = (known.get(each) for each in ("constant", "model", "linear", "glm"))
    return Measure(name, meaning, *every, **options)


def _class_measures(
    sample: Sample, means: Mapping[str, np.ndarray]
) -> Iterator[Measure]:
    """Measures of predicted probabilities, each (n,)."""
    y, weight = sample.y, sample.row_weight
    yield _measure(
        "AUC",
        "chance that a random row of the class is ranked above one that is not",
        {name: rank_auc(y, at, weight) for name, at in means.items()},
        larger_is_better=True,
    )
    yield _measure(
        "Accuracy",
        "share of rows put into the right class at probability one half",
        {name: float(weight @ ((at > 0.5) == (y > 0.5))) for name, at in means.items()},
        larger_is_better=True,
        percent=True,
    )
    yield _measure(
        "Brier score",
        "mean squared error of the probability; less is better",
        {name: float(weight @ (at - y) ** 2) for name, at in means.items()},
    )


def _order_measures(
    sample: Sample, means: Mapping[str, np.ndarray]
) -> Iterator[Measure]:
    """Measures of expected events, each (n,), by the order of their risks."""
    rows, offset = sample.follow_up, sample.row_offset
    if rows is None:
        return
    with np.errstate(divide="ignore"):
        found = {
            name: concordance(rows, np.log(at) - offset)
            for name, at in means.items()
            if name != "constant"
        }
    yield _measure(
        CONCORDANCE,
        "chance that of two rows the one with the earlier event has the larger risk",
        {"constant": 0.5, **found},
        larger_is_better=True,
    )


def _size_measures(
    sample: Sample, means: Mapping[str, np.ndarray]
) -> Iterator[Measure]:
    """Measures of predicted sizes, each (n,)."""
    y, weight = sample.y, sample.row_weight
    yield _measure(
        "RMSE",
        "root mean squared error, in units of the target; less is better",
        {name: float(np.sqrt(weight @ (at - y) ** 2)) for name, at in means.items()},
    )
    yield _measure(
        "MAE",
        "mean absolute error, in units of the target; less is better",
        {name: float(weight @ np.abs(at - y)) for name, at in means.items()},
    )


def rank_auc(y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
    """Area under the ROC curve, weighted; ties count half.

    Examples
    --------
    >>> import numpy as np
    >>> rank_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]), np.ones(4))
    0.75
    """
    values, which = np.unique(score, return_inverse=True)
    positive = np.bincount(which, weight * y, len(values))
    negative = np.bincount(which, weight * (1 - y), len(values))
    below = np.cumsum(negative) - negative / 2
    total = positive.sum() * negative.sum()
    return float(positive @ below / total) if total > 0 else float("nan")


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation; ties share their mean rank."""
    ranks = []
    for values in (x, y):
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[which])
    spread = [float(np.ptp(rank)) for rank in ranks]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]) if min(spread) > 0 else 0.0


def group_means(predicted: np.ndarray, sample: Sample, by: np.ndarray) -> np.ndarray:
    """Mean prediction and mean observation of rows that are similar `by`, (2, g)."""
    order = np.argsort(by, kind="stable")
    weight = sample.row_weight[order]
    # Groups of equal weight; equal predictions stay together.
    middle = np.cumsum(weight) - weight / 2
    group = np.minimum((middle * N_GROUPS).astype(int), N_GROUPS - 1)
    ranked = by[order]
    group = group[np.searchsorted(ranked, ranked)]
    total = np.bincount(group, weight, N_GROUPS)
    known = total > 0
    sums = [
        np.bincount(group, weight * values[order], N_GROUPS)[known]
        for values in (predicted, sample.y)
    ]
    return np.array(sums) / total[known]


def is_varied(values: np.ndarray, sample: Sample) -> bool:
    """Whether values (n,) differ between rows that count."""
    return bool(np.ptp(values[sample.row_weight > 0]) > 0)


def calibration_slope(quality: Quality, sample: Sample) -> tuple[float, float]:
    """Slope of observations on predictions, and its standard error; 1 is right.

    The error is infinite where one of both is constant: there is no slope.
    """
    if sample.follow_up is not None:  # predictions grow with the time that is left
        return _hazard_slope(quality.eta - sample.row_offset, sample)
    weight, y, mean = sample.row_weight, sample.y, quality.predicted
    x, y = mean - weight @ mean, y - weight @ y
    total = float(weight @ x**2)
    if not (is_varied(mean, sample) and is_varied(y, sample) and total > 0):
        return 1.0, np.inf
    slope = float(weight @ (x * y)) / total
    left = (y - slope * x) * weight * x
    return slope, float(np.sqrt((left**2).sum())) / total


def _hazard_slope(risk: np.ndarray, sample: Sample) -> tuple[float, float]:
    """Slope of log hazards on predicted ones, and its standard error."""
    design = np.stack([np.ones_like(risk), risk - sample.row_weight @ risk], axis=1)
    if not (is_varied(risk, sample) and sample.row_weight @ sample.y > 0):
        return 1.0, np.inf
    beta, weight = np.array([sample.row_weight @ risk, 1.0]), sample.row_weight
    for _ in range(STEPS):
        mean = weight * np.exp(design @ beta + sample.row_offset)
        information = design.T @ (design * mean[:, None])
        step = np.linalg.solve(information, design.T @ (weight * sample.y - mean))
        beta = beta + step * min(1.0, 1 / float(np.abs(step).max() or 1.0))
    spread = float(np.linalg.inv(information)[1, 1]) / len(risk)
    return float(beta[1]), float(np.sqrt(spread))
