"""How well the model predicts, beside the nested GLM and a constant.

The nested GLM has the same features and no network. It is solved without a penalty on
the rows of the report; all three are then judged on the same rows.

Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from sknimo.explain import TrainingFacts, best_constant, mean_of
from sknimo.families import Family
from sknimo.model import FittedModel
from sknimo.report._inputs import ModelCard, Sample

# A deviance that agrees to this share is that of the same rows.
SAME_DEVIANCE = 1e-6
N_GROUPS = 10


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of fit for a constant, the nested GLM and the model.

    Attributes
    ----------
    name, meaning : str
    constant, glm, model : float or None
        None where the measure says nothing.
    larger_is_better : bool
    percent : bool
        Whether the measure is a share.
    """

    name: str
    meaning: str
    constant: float | None
    glm: float
    model: float
    larger_is_better: bool = False
    percent: bool = False

    @property
    def winner(self) -> str:
        """Which of the two models does better; empty for a tie in what is shown."""
        gain = self.model - self.glm if self.larger_is_better else self.glm - self.model
        if abs(gain) <= 5e-4 * max(abs(self.model), abs(self.glm)):
            return ""
        return "model" if gain > 0 else "glm"


@dataclass(frozen=True, slots=True, eq=False)
class Quality:
    """How well the model does on some rows.

    Attributes
    ----------
    n_rows : int
    rows : str
        Which rows these are: "training", "held out" or "other".
    measures : tuple of Measure
        The share of deviance explained comes first.
    eta, predicted, observed : ndarray of shape (n,)
    mean_predicted, mean_observed : ndarray of shape (at most N_GROUPS,)
        Averages over groups of rows with similar predictions.
    """

    n_rows: int
    rows: str
    measures: tuple[Measure, ...]
    eta: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    mean_predicted: np.ndarray
    mean_observed: np.ndarray

    @property
    def explained(self) -> Measure:
        """Share of deviance explained."""
        return self.measures[0]


def judge(
    card: ModelCard, sample: Sample, glm: FittedModel, held_out: bool = False
) -> Quality:
    """Measure the model, the nested GLM and the best constant on a sample."""
    model, facts = card.model, card.facts
    family = model.family
    constant = best_constant(model, sample.y, sample.weight, sample.offset)
    eta = {
        "constant": constant + sample.row_offset,
        "glm": glm.eta(sample.table, sample.offset),
        "model": model.eta(sample.table, sample.offset),
    }
    deviance = {name: mean_deviance(family, sample, at) for name, at in eta.items()}
    mean = {name: mean_of(family, at) for name, at in eta.items()}
    rows = "held out" if held_out else "other"
    if not held_out and facts is not None:
        known = training_deviance(facts, sample)
        gap = abs(deviance["model"] - known["model"])
        near = SAME_DEVIANCE * known["model"] + 1e-12 * known["constant"]
        if len(sample) == facts.n_samples and gap <= near:
            rows, deviance = "training", known
    groups = group_means(mean["model"], sample)
    return Quality(
        n_rows=len(sample),
        rows=rows,
        measures=tuple(_measures(family, sample, deviance, mean)),
        eta=eta["model"],
        predicted=mean["model"],
        observed=sample.y,
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


def training_deviance(facts: TrainingFacts, sample: Sample) -> dict[str, float]:
    """Mean unit deviances that a fit keeps of its training rows.

    They are those of a sample if the model's is: the rows themselves are not kept.
    """
    total = len(sample) if sample.weight is None else float(sample.weight.sum())
    return {
        "constant": facts.null_deviance / total,
        "glm": facts.glm_deviance / total,
        "model": facts.deviance / total,
    }


def _measures(
    family: Family,
    sample: Sample,
    deviance: Mapping[str, float],
    mean: Mapping[str, np.ndarray],
) -> Iterator[Measure]:
    """Measures that suit the family; the share of deviance explained first."""
    gaussian, binary = family.least_squares, family.is_binary
    null, glm, model = (deviance[name] for name in ("constant", "glm", "model"))
    yield Measure(
        "R²" if gaussian else "Deviance explained",
        "share of the variance that the predictions explain"
        if gaussian
        else "share of the deviance of the best constant that is gone",
        None,
        1 - glm / null if null > 0 else 0.0,
        1 - model / null if null > 0 else 0.0,
        larger_is_better=True,
        percent=True,
    )
    for metric in METRICS["probability" if binary else "size"]:
        values = {
            name: metric.value(sample.y, at, sample.row_weight)
            for name, at in mean.items()
        }
        yield Measure(
            metric.name,
            metric.meaning,
            **values,
            larger_is_better=metric.larger_is_better,
            percent=metric.percent,
        )
    if binary:
        meaning = "mean negative log-likelihood; smaller is better"
        yield Measure("Log loss", meaning, null / 2, glm / 2, model / 2)
    elif not gaussian:
        meaning = f"mean {family.name} deviance of a row; smaller is better"
        yield Measure("Mean deviance", meaning, null, glm, model)


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


@dataclass(frozen=True, slots=True)
class _Metric:
    """How a measure follows from targets, predicted means and weights, each (n,)."""

    name: str
    meaning: str
    value: Callable[[np.ndarray, np.ndarray, np.ndarray], float]
    larger_is_better: bool = False
    percent: bool = False


METRICS = {
    "probability": (
        _Metric(
            "AUC",
            "chance that a random row of the class is ranked above one that is not",
            rank_auc,
            larger_is_better=True,
        ),
        _Metric(
            "Accuracy",
            "share of rows put into the right class at probability one half",
            lambda y, mean, weight: float(weight @ ((mean > 0.5) == (y > 0.5))),
            larger_is_better=True,
            percent=True,
        ),
        _Metric(
            "Brier score",
            "mean squared error of the probability; smaller is better",
            lambda y, mean, weight: float(weight @ (mean - y) ** 2),
        ),
    ),
    "size": (
        _Metric(
            "RMSE",
            "root mean squared error, in units of the target; smaller is better",
            lambda y, mean, weight: float(np.sqrt(weight @ (mean - y) ** 2)),
        ),
        _Metric(
            "MAE",
            "mean absolute error, in units of the target; smaller is better",
            lambda y, mean, weight: float(weight @ np.abs(mean - y)),
        ),
    ),
}


def group_means(predicted: np.ndarray, sample: Sample) -> np.ndarray:
    """Mean prediction and mean observation of rows with similar predictions, (2, g)."""
    order = np.argsort(predicted, kind="stable")
    weight = sample.row_weight[order]
    # Groups of equal weight; equal predictions stay together.
    middle = np.cumsum(weight) - weight / 2
    group = np.minimum((middle * N_GROUPS).astype(int), N_GROUPS - 1)
    ranked = predicted[order]
    group = group[np.searchsorted(ranked, ranked)]
    total = np.bincount(group, weight, N_GROUPS)
    known = total > 0
    sums = [
        np.bincount(group, weight * values[order], N_GROUPS)[known]
        for values in (predicted, sample.y)
    ]
    return np.array(sums) / total[known]
