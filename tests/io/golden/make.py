"""Write golden files: saved models that every later version must read.

    python tests/io/golden/make.py

Files that are there are never written again. A new schema gets new files of what it
writes in another way.
"""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from sknimo import NIMOClassifier, NIMOClassifierCV, NIMORegressor, NIMORegressorCV

HERE = Path(__file__).parent
# The schema since which a case is written as it is.
SCHEMA = {"bags": 4, "drawn": 5}
OLDER = 3
N_ROWS = 48
# The rows that are predicted, some of them unlike any training row.
N_SHOWN = 8
EVERY_KIND = {
    "basis": {"income": "spline", "dose": "poly2"},
    "missing": "indicator",
    "reference": {"age": 40.0, "city": "Rome"},
    "handle_unknown": "reference",
}
SHORT = {"hidden": (6, 5), "random_state": 0}
SEARCH = SHORT | {"n_starts": 2, "n_members": 2, "max_iter": 15}


def make_table(rng):
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 12, N_ROWS).round(1),
            "income": rng.lognormal(size=N_ROWS).round(3),
            "city": rng.choice(["Rome", "Oslo", "Köln"], N_ROWS),
            "dose": rng.normal(size=N_ROWS).round(2),
            "lab": rng.normal(size=N_ROWS).round(2),
            "sex": rng.integers(0, 2, N_ROWS).astype(float),
        }
    )
    table.loc[::6, "lab"] = np.nan
    return table


def make_eta(table):
    bend = 1 + np.tanh(table["dose"]) + table["lab"].fillna(0)
    return (table["age"] - 40) / 12 * bend + (table["city"] == "Oslo")


def make_cases():
    rng = np.random.default_rng(0)
    table = make_table(rng)
    eta = make_eta(table)
    numbers = eta + 0.1 * rng.normal(size=N_ROWS)
    counts = rng.poisson(np.exp(np.clip(eta, -2, 2))).astype(float)
    labels = np.where(numbers > numbers.median(), "yes", "no")
    array = table[["age", "dose", "sex"]].to_numpy()
    coarse = table.round({"age": -1, "income": 0, "dose": 0, "lab": 0})
    clipped, ranks = {"clip_inputs": "all"}, {"input_scaling": "rank_gauss"}
    rare = table.assign(lab=table["lab"].fillna(0.0))
    rare.loc[0, "city"], rare.loc[1, "lab"] = "Bari", np.nan
    bags = NIMORegressorCV(**SEARCH | {"max_iter": 200, "n_members": 3}, batch_size=16)
    bags._settings = replace(bags._settings, few_rows=10)
    drawn = NIMORegressorCV(**SEARCH | {"max_iter": 30, "n_members": 3})
    tails = np.exp(array * [0.1, 2, 1])
    ramps = EVERY_KIND | {"basis": "ramps", "input_scaling": "ramps"}
    return {
        "numeric": (NIMORegressor(**SHORT), array, numbers),
        "every-kind": (NIMORegressor(**SHORT, **EVERY_KIND, **clipped), table, numbers),
        "poisson-float32": (
            NIMORegressor("poisson", dtype="float32", **SHORT, **EVERY_KIND, **ranks),
            table,
            counts,
        ),
        "pooled": (NIMORegressor(**SHORT, **EVERY_KIND), rare, numbers),
        "ramps": (NIMORegressor(**SHORT, **ramps), coarse, numbers),
        "classifier": (NIMOClassifier(**SHORT, **EVERY_KIND), table, labels),
        "bags": (bags, array, numbers),
        "drawn": (drawn, tails, array[:, 0] / 12 - array[:, 1] + numbers),
        "search": (NIMORegressorCV(**SEARCH, **EVERY_KIND), table, numbers),
        "classifier-search": (NIMOClassifierCV(**SEARCH), array, labels == "yes"),
    }


def shown_rows(table):
    """A few training rows and two that are far away."""
    if isinstance(table, np.ndarray):
        return np.vstack([table[:N_SHOWN], 3 * table[:2]])
    far = table[:2].assign(age=140.0, income=30.0, dose=-5.0, city="Atlantis")
    return pd.concat([table[:N_SHOWN], far], ignore_index=True)


def plain(values):
    """Numbers and labels for JSON; a missing value is null."""
    return [None if value != value else value for value in np.asarray(values).tolist()]


def write(name, est, table, y):
    path = HERE / f"v{SCHEMA.get(name, OLDER)}-{name}.sknimo"
    if path.exists():
        return
    warnings.simplefilter("ignore")
    est.fit(table, y)
    rows = shown_rows(table)
    if isinstance(rows, np.ndarray):
        written = rows.tolist()
    else:
        written = {column: plain(rows[column]) for column in rows}
    truth = {
        "class": type(est).__name__,
        "rows": written,
        "coef": plain(est.coef_),
        "eta": plain(est.model_.eta(est._read_table(rows))),
        "prediction": plain(est.predict(rows)),
    }
    est.save(path)
    text = json.dumps(truth, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n")
    print(path.name, path.stat().st_size)


if __name__ == "__main__":
    for name, case in make_cases().items():
        write(name, *case)
