"""Overdispersed counts: sknimo, statsmodels, LightGBM.

A section of `responses.py`. The last column of a table is `target`. Rows are split
70/30 at random. Figures of the 30 % are the mean log likelihood, more is better, and
the mean negative binomial deviance, all methods measured with the overdispersion that
statsmodels finds, less is better.

- sknimo: `NIMORegressorCV(family="negative_binomial")`, defaults;
- statsmodels: `NegativeBinomial`, one-hot columns, no penalty;
- lightgbm: Poisson loss, rate 0.03, trees by early stopping on a fifth of the training
  rows, refitted on all; to its means belongs the overdispersion that is likeliest for
  that fifth, which its trees had not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

from sknimo import NIMORegressorCV
from sknimo.families import negative_binomial
from sknimo.shapes import learn_overdispersion, negative_binomial_log_likelihood

TABLES = "badhealth,ofp"


@dataclass(frozen=True)
class CountFit:
    """Means of the rows held out, and the overdispersion learned without them."""

    mean: np.ndarray
    overdispersion: float


def one_hot(X: pd.DataFrame) -> pd.DataFrame:
    """Numbers alone, categories without their first level."""
    return pd.get_dummies(X, drop_first=True, dtype=float)


def fit_sknimo(
    X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int
) -> CountFit:
    est = NIMORegressorCV(
        "negative_binomial", handle_unknown="reference", random_state=seed
    ).fit(X, y)
    return CountFit(est.predict(new), est.model_.family.shape.value)


def fit_statsmodels(
    X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int
) -> CountFit:
    import statsmodels.api as sm

    both = sm.add_constant(one_hot(pd.concat([X, new])), has_constant="add")
    design, others = both.iloc[: len(X)], both.iloc[len(X) :]
    glm = sm.GLM(y, design, family=sm.families.Poisson()).fit()
    start = np.r_[glm.params, 0.5]
    fit = sm.NegativeBinomial(y, design).fit(start, maxiter=500, disp=0)
    return CountFit(np.asarray(fit.predict(others)), float(fit.params.iloc[-1]))


def fit_lightgbm(
    X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int
) -> CountFit:
    import lightgbm

    columns = {name: "category" for name in X.select_dtypes(exclude="number")}
    both = pd.concat([X, new]).astype(columns)
    X, new = both.iloc[: len(X)], both.iloc[len(X) :]
    how = {"objective": "poisson", "learning_rate": 0.03, "random_state": seed}
    how |= {"verbose": -1, "n_jobs": 1}
    train, held_out = train_test_split(
        np.arange(len(y)), test_size=0.2, random_state=seed
    )
    trial = lightgbm.LGBMRegressor(n_estimators=3000, **how).fit(
        X.iloc[train],
        y[train],
        eval_set=[(X.iloc[held_out], y[held_out])],
        callbacks=[lightgbm.early_stopping(100, verbose=False)],
    )
    unseen = as_tensors(y[held_out], trial.predict(X.iloc[held_out]))
    k = learn_overdispersion(*unseen, torch.ones(len(held_out), dtype=torch.float64))
    n_trees = max(trial.best_iteration_, 1)
    est = lightgbm.LGBMRegressor(n_estimators=n_trees, **how).fit(X, y)
    return CountFit(est.predict(new), k)


def as_tensors(*arrays: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(np.asarray(array, dtype=float)) for array in arrays]


METHODS: dict[str, Callable[..., CountFit]] = {
    "sknimo": fit_sknimo,
    "statsmodels": fit_statsmodels,
    "lightgbm": fit_lightgbm,
}


def measure(
    folder: Path | None, table: str, method: str, seed: int
) -> list[dict[str, Any]]:
    """Likelihood and deviance of one split."""
    if folder is None:
        raise SystemExit("name the folder of the tables with --data or SKNIMO_DATA")
    frame = pd.read_csv(folder / f"{table}.csv.gz")
    train, test = train_test_split(frame, test_size=0.3, random_state=seed)
    X, new = train.drop(columns="target"), test.drop(columns="target")
    y, truth = train["target"].to_numpy(float), test["target"].to_numpy(float)
    found = METHODS[method](X, y, new, seed)
    yardstick = fit_statsmodels(X, y, new, seed).overdispersion
    at, mean = as_tensors(truth, found.mean)
    likelihood = negative_binomial_log_likelihood(at, mean, found.overdispersion)
    deviance = 2 * negative_binomial(yardstick).loss(at, mean.log()).mean()
    return [{"log_likelihood": float(likelihood.mean()), "deviance": float(deviance)}]


def show(found: pd.DataFrame) -> None:
    """Means over splits."""
    figures = ["log_likelihood", "deviance", "seconds"]
    print(found.groupby(["table", "method"])[figures].mean().round(4).to_string())
