"""How well the model predicts, beside the nested GLM and a constant.

The nested GLM has the same features and no network. It is solved without a penalty on
the rows of the report; all three are then judged on the same rows.

Shapes: n rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

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
    """One measure of fit for a constant (where it says anything), GLM and model."""

    name: str
    meaning: str
    constant: float | None
    glm: float
    model: float
    _: KW_ONLY
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
    """How well the model does on rows that are "training", "held out" or "other".

    The share of deviance explained is the first measure. Means are over at most
    N_GROUPS groups of rows with similar predictions; the other arrays are (n,).
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
    """Measure the best constant, the nested GLM and the model on a sample."""
    model, facts = card.model, card.facts
    family = model.family
    constant = best_constant(model, sample.y, sample.weight, sample.offset)
    eta = (
        constant + sample.row_offset,
        *(one.eta(sample.table, sample.offset) for one in (glm, model)),
    )
    deviances = [mean_deviance(family, sample, at) for at in eta]
    means = [mean_of(family, at) for at in eta]
    rows = "held out" if held_out else "other"
    if not held_out and facts is not None:
        known = training_deviances(facts, sample)
        near = SAME_DEVIANCE * known[-1] + 1e-12 * known[0]
        same = abs(deviances[-1] - known[-1]) <= near
        if len(sample) == facts.n_samples and same:
            rows, deviances = "training", known
    groups = group_means(means[-1], sample)
    return Quality(
        n_rows=len(sample),
        rows=rows,
        measures=tuple(_measures(family, sample, deviances, means)),
        eta=eta[-1],
        predicted=means[-1],
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


def training_deviances(facts: TrainingFacts, sample: Sample) -> list[float]:
    """Mean unit deviances of constant, GLM and model that a fit keeps of its rows.

    They are those of a sample if the model's is: the rows themselves are not kept.
    """
    total = len(sample) if sample.weight is None else float(sample.weight.sum())
    every = (facts.null_deviance, facts.glm_deviance, facts.deviance)
    return [deviance / total for deviance in every]


def _measures(
    family: Family, sample: Sample, deviances: list[float], means: list[np.ndarray]
) -> Iterator[Measure]:
    """Measures that suit the family; the share of deviance explained first."""
    gaussian, binary = family.least_squares, family.is_binary
    null, glm, model = deviances
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
    yield from (_class_measures if binary else _size_measures)(sample, means)
    if binary:
        meaning = "mean negative log-likelihood; smaller is better"
        yield Measure("Log loss", meaning, null / 2, glm / 2, model / 2)
    elif not gaussian:
        meaning = f"mean {family.name} deviance of a row; smaller is better"
        yield Measure("Mean deviance", meaning, null, glm, model)


def _class_measures(sample: Sample, means: list[np.ndarray]) -> Iterator[Measure]:
    """Measures of predicted probabilities, each (n,)."""
    y, weight = sample.y, sample.row_weight
    yield Measure(
        "AUC",
        "chance that a random row of the class is ranked above one that is not",
        *(rank_auc(y, at, weight) for at in means),
        larger_is_better=True,
    )
    yield Measure(
        "Accuracy",
        "share of rows put into the right class at probability one half",
        *(float(weight @ ((at > 0.5) == (y > 0.5))) for at in means),
        larger_is_better=True,
        percent=True,
    )
    yield Measure(
        "Brier score",
        "mean squared error of the probability; smaller is better",
        *(float(weight @ (at - y) ** 2) for at in means),
    )


def _size_measures(sample: Sample, means: list[np.ndarray]) -> Iterator[Measure]:
    """Measures of predicted sizes, each (n,)."""
    y, weight = sample.y, sample.row_weight
    yield Measure(
        "RMSE",
        "root mean squared error, in units of the target; smaller is better",
        *(float(np.sqrt(weight @ (at - y) ** 2)) for at in means),
    )
    yield Measure(
        "MAE",
        "mean absolute error, in units of the target; smaller is better",
        *(float(weight @ np.abs(at - y)) for at in means),
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
