"""Several classes: sknimo, multinomial logistic regression, LightGBM.

A section of `responses.py`. A table is one of scikit-learn's (iris, wine, digits) or a
file NAME.csv.gz of the folder, whose last column holds the labels. Rows are split 70/30
at random, stratified by class, and judged by the log loss of the 30 %.

- sknimo: `NIMOClassifierCV`, defaults; unseen levels stand at the reference;
- logistic: one softmax, the ridge chosen by the log loss of five folds, on standardised
  and one-hot columns;
- lightgbm: rate 0.05, stopped early on a fifth of the training rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TABLES = "iris,wine,vehicle,contraceptive,digits"
BUILT_IN = ("iris", "wine", "digits")
TEST_SHARE = 0.3
STOP_SHARE = 0.2


def read(folder: Path | None, table: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Features and labels."""
    if table in BUILT_IN:
        found = getattr(datasets, f"load_{table}")(as_frame=True)
        return found.data, found.target.to_numpy()
    if folder is None:
        raise SystemExit("name the folder of the tables with --data or SKNIMO_DATA")
    frame = pd.read_csv(folder / f"{table}.csv.gz")
    return frame.iloc[:, :-1], frame.iloc[:, -1].astype(str).to_numpy()


def fit_sknimo(X: pd.DataFrame, y: np.ndarray, seed: int) -> Callable:
    """This library with its defaults."""
    from sknimo import NIMOClassifierCV

    est = NIMOClassifierCV(handle_unknown="reference", random_state=seed)
    return est.fit(X, y).predict_proba


def fit_logistic(X: pd.DataFrame, y: np.ndarray, seed: int) -> Callable:
    """Multinomial logistic regression, its ridge chosen by the log loss of folds."""
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=np.number)),
        (
            OneHotEncoder(handle_unknown="ignore"),
            make_column_selector(dtype_exclude=np.number),
        ),
    )
    ridge = LogisticRegressionCV(
        Cs=10, cv=5, scoring="neg_log_loss", max_iter=5000, random_state=seed
    )
    return make_pipeline(columns, ridge).fit(X, y).predict_proba


def fit_lightgbm(X: pd.DataFrame, y: np.ndarray, seed: int) -> Callable:
    """Boosted trees, stopped early."""
    import lightgbm

    def numbers(frame: pd.DataFrame) -> pd.DataFrame:
        kept = {
            name: frame[name].astype("category")
            for name in frame
            if not pd.api.types.is_numeric_dtype(frame[name])
        }
        return frame.assign(**kept)

    fit, stop, own, rest = train_test_split(
        numbers(X), y, test_size=STOP_SHARE, random_state=seed, stratify=y
    )
    model = lightgbm.LGBMClassifier(
        n_estimators=5000, learning_rate=0.05, verbose=-1, n_jobs=1
    ).set_params(random_state=seed)
    model.fit(
        fit,
        own,
        eval_set=[(stop, rest)],
        eval_metric="multi_logloss",
        callbacks=[lightgbm.early_stopping(100, verbose=False)],
    )
    return lambda frame: model.predict_proba(numbers(frame))


METHODS = {"sknimo": fit_sknimo, "logistic": fit_logistic, "lightgbm": fit_lightgbm}


def measure(
    folder: Path | None, table: str, method: str, seed: int
) -> list[dict[str, Any]]:
    """The log loss of one split."""
    X, y = read(folder, table)
    train, test, own, rest = train_test_split(
        X, y, test_size=TEST_SHARE, random_state=seed, stratify=y
    )
    chances = METHODS[method](train, own, seed)(test)
    return [{"log_loss": log_loss(rest, chances, labels=np.unique(own))}]


def show(found: pd.DataFrame) -> None:
    """Means over splits, and the geometric mean over tables of ratios to each rival."""
    means = found.pivot_table("log_loss", "table", "method")
    count = found.pivot_table("log_loss", "table", "method", aggfunc="size")
    print(means.round(4).join(count, rsuffix=" splits").to_string())
    if "sknimo" not in means:
        return
    for rival in means.columns.drop("sknimo"):
        both = found.pivot_table("log_loss", ["table", "seed"], "method")
        both = both[["sknimo", rival]].dropna().groupby("table").mean()
        ratio = both["sknimo"] / both[rival]
        middle = float(np.exp(np.log(ratio).mean()))
        print(f"over {rival}: {middle:.3f}, at worst {ratio.max():.3f}")
