"""How well the model predicts, beside the nested GLM and a constant.

The nested GLM has the same features and no network. It is solved without a penalty on
the rows of the report; all three are then judged on the same rows.

Shapes: n rows, q terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from sknimo.families import LINKS, Family
from sknimo.model import FittedModel
from sknimo.penalties import make_penalty
from sknimo.report._inputs import Fit, Sample
from sknimo.solver import Rows, solve_coefficients

# Relative to a Gram matrix of standardised columns: breaks ties, moves nothing.
RIDGE = 1e-8
# A deviance that agrees to this share is that of the same rows.
SAME_DEVIANCE = 1e-6
N_GROUPS = 10
MAX_NEWTON = 100


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of fit for a constant, the nested GLM and the model.

    Attributes
    ----------
    name : str
    constant, glm, model : float or None
        None where the measure says nothing.
    meaning : str
    larger_is_better : bool
    percent : bool
        Whether the measure is a share.
    """

    name: str
    constant: float | None
    glm: float
    model: float
    meaning: str
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


def nested_glm(model: FittedModel, sample: Sample) -> FittedModel:
    """The model without its network, solved again without a penalty on a sample.

    Only terms with a coefficient in some member take part, so that the GLM is nested
    in the model.

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> from sknimo.report import Sample, nested_glm
    >>> data = make_nimo_regression(setting=1, n_samples=100, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> linear = nested_glm(est.model_, Sample(data.X, data.y))
    >>> bool(linear.modulated.any())
    False
    """
    support = (model.coef != 0).any(0).cpu()
    terms = torch.as_tensor(model.features.terms(sample.table)) * support
    rows = Rows(
        torch.as_tensor(np.array(sample.y, dtype=np.float64)),
        torch.as_tensor(np.array(sample.shift, dtype=np.float64)),
        torch.as_tensor(sample.share).unsqueeze(0),
        model.family,
    )
    owner = torch.as_tensor(model.features.term_feature)
    strength = torch.full((1,), RIDGE, dtype=torch.float64)
    penalty = make_penalty("ridge", strength, owner, model.features.n_features)
    found = solve_coefficients(terms.unsqueeze(0), rows, penalty).coefficients
    return replace(
        model,
        coef=found.coef,
        intercept=found.intercept,
        params=model.params[:1],
        modulated=torch.zeros_like(model.modulated[:1]),
    )


def best_constant(family: Family, sample: Sample) -> float:
    """Intercept that fits a sample best next to its offset, by Newton's method."""
    y = torch.as_tensor(np.array(sample.y, dtype=np.float64))
    offset, share = torch.as_tensor(sample.shift), torch.as_tensor(sample.share)
    # Without an offset the mean is the answer; inside the domain of the link.
    mean = LINKS[family.link].inside((share * y).sum(), 1e-12)
    at = family.link_function(mean) - (share * offset).sum()
    for _ in range(MAX_NEWTON):
        score = (share * family.score(y, at + offset)).sum()
        step = score / (share * family.curvature(y, at + offset)).sum().clamp(1e-300)
        at = at + step.clamp(-1.0, 1.0) if family.link != "identity" else at + step
        if abs(float(step)) <= 1e-12 * (1 + abs(float(at))):
            break
    return float(at)


def judge(
    fit: Fit, sample: Sample, glm: FittedModel, held_out: bool = False
) -> Quality:
    """Measure the model, the nested GLM and the best constant on a sample."""
    model = fit.model
    eta = {
        "constant": best_constant(model.family, sample) + sample.shift,
        "glm": glm.eta(sample.table, sample.offset),
        "model": model.eta(sample.table, sample.offset),
    }
    deviance = {
        name: mean_deviance(model.family, sample, at) for name, at in eta.items()
    }
    mu = {name: means(model.family, at) for name, at in eta.items()}
    rows = "other"
    if held_out:
        rows = "held out"
    elif is_training_sample(fit, sample, deviance["model"]):
        rows = "training"
    groups = group_means(mu["model"], sample)
    return Quality(
        n_rows=len(sample),
        rows=rows,
        measures=_measures(model.family, sample, deviance, mu),
        eta=eta["model"],
        predicted=mu["model"],
        observed=sample.y,
        mean_predicted=groups[0],
        mean_observed=groups[1],
    )


def means(family: Family, eta: np.ndarray) -> np.ndarray:
    """Mean response, (n,)."""
    return family.mean(torch.as_tensor(eta)).numpy()


def row_deviance(family: Family, sample: Sample, eta: np.ndarray) -> np.ndarray:
    """Unit deviance of every row, (n,)."""
    truth = torch.as_tensor(np.array(sample.y, dtype=np.float64))
    return 2 * family.loss(truth, torch.as_tensor(eta)).numpy()


def mean_deviance(family: Family, sample: Sample, eta: np.ndarray) -> float:
    """Weighted mean of unit deviances; rows without weight do not count."""
    loss, share = row_deviance(family, sample, eta), sample.share
    return float(share[share > 0] @ loss[share > 0])


def is_training_sample(fit: Fit, sample: Sample, deviance: float) -> bool:
    """Whether a sample is the one that the model was fitted to.

    Training rows are not kept, but their number and their deviance are.
    """
    facts = fit.facts
    if facts is None or facts.n_samples != len(sample):
        return False
    total = deviance * (len(sample) if sample.weight is None else sample.weight.sum())
    return bool(np.isclose(total, facts.deviance, rtol=SAME_DEVIANCE, atol=1e-12))


def _measures(
    family: Family,
    sample: Sample,
    deviance: dict[str, float],
    mu: dict[str, np.ndarray],
) -> tuple[Measure, ...]:
    """Measures that suit the family; the share of deviance explained first."""
    null = deviance["constant"]

    def explained(name: str) -> float:
        return 1 - deviance[name] / null if null > 0 else 0.0

    variance = family.least_squares
    measures = [
        Measure(
            "R²" if variance else "Deviance explained",
            None,
            explained("glm"),
            explained("model"),
            "share of the variance that the predictions explain"
            if variance
            else "share of the deviance of the best constant that is gone",
            larger_is_better=True,
            percent=True,
        )
    ]

    def add(name: str, measure: object, meaning: str, **options: bool) -> None:
        values = {key: measure(at) for key, at in mu.items()}  # type: ignore[operator]
        measures.append(Measure(name, meaning=meaning, **values, **options))

    share, y = sample.share, sample.y
    if family.is_binary:
        add(
            "AUC",
            lambda at: rank_auc(y, at, share),
            "chance that a random row of the class is ranked above one that is not",
            larger_is_better=True,
        )
        add(
            "Accuracy",
            lambda at: float(share @ ((at > 0.5) == (y > 0.5))),
            "share of rows put into the right class at probability one half",
            larger_is_better=True,
            percent=True,
        )
        add(
            "Brier score",
            lambda at: float(share @ (at - y) ** 2),
            "mean squared error of the probability; smaller is better",
        )
        measures.append(
            Measure(
                "Log loss",
                null / 2,
                deviance["glm"] / 2,
                deviance["model"] / 2,
                "mean negative log-likelihood; smaller is better",
            )
        )
        return tuple(measures)
    add(
        "RMSE",
        lambda at: float(np.sqrt(share @ (at - y) ** 2)),
        "root mean squared error, in units of the target; smaller is better",
    )
    add(
        "MAE",
        lambda at: float(share @ np.abs(at - y)),
        "mean absolute error, in units of the target; smaller is better",
    )
    if not variance:
        measures.append(
            Measure(
                "Mean deviance",
                null,
                deviance["glm"],
                deviance["model"],
                f"mean {family.name} deviance of a row; smaller is better",
            )
        )
    return tuple(measures)


def rank_auc(y: np.ndarray, score: np.ndarray, weight: np.ndarray) -> float:
    """Area under the ROC curve, weighted; ties count half.

    Examples
    --------
    >>> import numpy as np
    >>> rank_auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]), np.ones(4))
    0.75
    """
    levels, place = np.unique(score, return_inverse=True)
    positive = np.bincount(place, weight * y, len(levels))
    negative = np.bincount(place, weight * (1 - y), len(levels))
    below = np.cumsum(negative) - negative / 2
    total = positive.sum() * negative.sum()
    return float(positive @ below / total) if total > 0 else float("nan")


def group_means(predicted: np.ndarray, sample: Sample) -> np.ndarray:
    """Mean prediction and mean observation of rows with similar predictions, (2, g)."""
    order = np.argsort(predicted, kind="stable")
    share = sample.share[order]
    # Groups of equal weight; equal predictions stay together.
    middle = np.cumsum(share) - share / 2
    group = np.minimum((middle * N_GROUPS).astype(int), N_GROUPS - 1)
    ranked = predicted[order]
    group = group[np.searchsorted(ranked, ranked)]
    total = np.bincount(group, share, N_GROUPS)
    known = total > 0
    sums = [
        np.bincount(group, share * values[order], N_GROUPS)[known]
        for values in (predicted, sample.y)
    ]
    return np.array(sums) / total[known]
