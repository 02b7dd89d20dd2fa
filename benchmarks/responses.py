"""Held-out likelihoods for responses that are no plain numbers, by sections.

    python benchmarks/responses.py counts --data DIR --tables NAME,NAME [--seeds 0,1,2]

DIR is a folder of tables NAME.csv.gz with a header line and `target` as the last
column; text columns are categories. Rows are split 70/30 at random for every seed, and
every method has its defaults. A section prints one line per table, seed and method, and
then the mean of each method over seeds.

counts: overdispersed counts. Figures are the mean log likelihood of rows held out, more
is better, and their mean negative binomial deviance, all methods measured with the
overdispersion that statsmodels finds, less is better.

- sknimo: `NIMORegressorCV(family="negative_binomial")`;
- statsmodels: `NegativeBinomial`, one-hot columns, no penalty;
- lightgbm: Poisson loss, rate 0.03, trees by early stopping on a fifth of the training
  rows, refitted on all; to its means belongs the overdispersion that is likeliest for
  that fifth, which its trees had not seen.

Another section is a function `(table, seed) -> iterator of Figures` in `SECTIONS`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split

from sknimo import NIMORegressorCV
from sknimo.families import negative_binomial
from sknimo.shapes import learn_overdispersion, negative_binomial_log_likelihood


@dataclass(frozen=True)
class Figures:
    """What one method reaches on the rows held out of one split."""

    method: str
    log_likelihood: float
    deviance: float
    seconds: float


@dataclass(frozen=True)
class CountFit:
    """Means of the rows held out, and the overdispersion learned without them."""

    mean: np.ndarray
    overdispersion: float


def one_hot(X: pd.DataFrame) -> pd.DataFrame:
    """Numbers alone, categories without their first level."""
    return pd.get_dummies(X, drop_first=True, dtype=float)


def fit_ours(X: pd.DataFrame, y: np.ndarray, new: pd.DataFrame, seed: int) -> CountFit:
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


COUNT_METHODS: dict[str, Callable[..., CountFit]] = {
    "statsmodels": fit_statsmodels,  # first: it sets the yardstick of the deviance
    "sknimo": fit_ours,
    "lightgbm": fit_lightgbm,
}


def compare_counts(table: pd.DataFrame, seed: int) -> Iterator[Figures]:
    """Fit every method to one split."""
    train, test = train_test_split(table, test_size=0.3, random_state=seed)
    X, new = train.drop(columns="target"), test.drop(columns="target")
    y, truth = train["target"].to_numpy(float), test["target"].to_numpy(float)
    yardstick = None
    for method, fit in COUNT_METHODS.items():
        begin = time.perf_counter()
        found = fit(X, y, new, seed)
        seconds = time.perf_counter() - begin
        yardstick = yardstick or negative_binomial(found.overdispersion)
        at, mean = as_tensors(truth, found.mean)
        likelihood = negative_binomial_log_likelihood(at, mean, found.overdispersion)
        deviance = 2 * yardstick.loss(at, mean.log()).mean()
        yield Figures(method, float(likelihood.mean()), float(deviance), seconds)


SECTIONS: dict[str, Callable[[pd.DataFrame, int], Iterator[Any]]] = {
    "counts": compare_counts
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tables", required=True)
    parser.add_argument("--seeds", default="0,1,2")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in args.tables.split(","):
        table = pd.read_csv(args.data / f"{name}.csv.gz")
        every: dict[str, list[Any]] = {}
        for seed in map(int, args.seeds.split(",")):
            for found in SECTIONS[args.section](table, seed):
                every.setdefault(found.method, []).append(astuple(found)[1:])
                print(
                    name, seed, show(found.method, every[found.method][-1]), flush=True
                )
        for method, figures in every.items():
            print(name, "mean", show(method, np.mean(figures, axis=0)), flush=True)


def show(method: str, figures: Any) -> str:
    return f"{method:12}" + "".join(f"{figure:12.4f}" for figure in figures)


if __name__ == "__main__":
    main()
