"""Log loss with several classes: this library, logistic regression, LightGBM.

One line of JSON per model, for one table and one split:

    python benchmarks/_responses_classes.py --table iris --seed 0

A table is one of scikit-learn's (iris, wine, digits) or a CSV file, whose last column
holds the labels unless `--target` names another. Seven rows of ten train, the others
judge; splits are stratified. LightGBM stops on a fifth of the training rows and is left
out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

BUILT_IN = ("iris", "wine", "digits")
TEST_SHARE = 0.3
STOP_SHARE = 0.2


def read(table: str, target: str | None) -> tuple[pd.DataFrame, np.ndarray]:
    """Features and labels."""
    if table in BUILT_IN:
        found = getattr(datasets, f"load_{table}")(as_frame=True)
        return found.data, found.target.to_numpy()
    frame = pd.read_csv(table)
    name = frame.columns[-1] if target is None else target
    return frame.drop(columns=name), frame[name].astype(str).to_numpy()


def fit_nimo(X: pd.DataFrame, y: np.ndarray, seed: int) -> Callable:
    """This library with its defaults."""
    from sknimo import NIMOClassifierCV

    return NIMOClassifierCV(random_state=seed).fit(X, y).predict_proba


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
        n_estimators=5000, learning_rate=0.05, verbose=-1, random_state=seed
    )
    model.fit(
        fit,
        own,
        eval_set=[(stop, rest)],
        eval_metric="multi_logloss",
        callbacks=[lightgbm.early_stopping(100, verbose=False)],
    )
    return lambda frame: model.predict_proba(numbers(frame))


FITS = {"nimo": fit_nimo, "logistic": fit_logistic, "lightgbm": fit_lightgbm}


def main() -> None:
    """Fit one table and print the losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", required=True)
    parser.add_argument("--target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(FITS))
    given = parser.parse_args()
    X, y = read(given.table, given.target)
    train, test, own, rest = train_test_split(
        X, y, test_size=TEST_SHARE, random_state=given.seed, stratify=y
    )
    for name in given.models.split(","):
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predict = FITS[name](train, own, given.seed)
                chances = predict(test)
        except ModuleNotFoundError:
            continue
        line = {
            "table": given.table,
            "seed": given.seed,
            "model": name,
            "log_loss": log_loss(rest, chances, labels=np.unique(own)),
            "seconds": time.perf_counter() - begin,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
