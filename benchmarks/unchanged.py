"""Fits of every kind, digested: do two checkouts give the same numbers to the bit?

    python benchmarks/unchanged.py before.json          # in one checkout
    python benchmarks/unchanged.py after.json           # in the other
    python benchmarks/unchanged.py --compare before.json after.json

Digests are of coefficients, predictions inside and far outside the training range,
explanations, effects, interactions and of the saved file. Only public names are used,
so that the insides may change freely.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
)
from sknimo.datasets import make_nimo_classification, make_nimo_regression

BRIEF = {"n_starts": 2, "max_iter": 40, "random_state": 0}
EFFECTS = ("coef", "average_effect", "effect_sd", "bend", "variance_share")
EXPLANATION = ("values", "local_coef", "local_effect", "response_effect", "base_value")


def make_table(n_rows=240, seed=0, missing=False):
    """Numbers, a column of two values, a category and, if asked for, gaps."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n_rows, 4)), columns=list("abcd"))
    frame["flag"] = rng.integers(0, 2, n_rows).astype(float)
    frame["level"] = pd.Categorical(rng.choice(["p", "q", "r", "s"], n_rows))
    step = frame["level"].map({"p": 0.0, "q": 0.4, "r": -0.5, "s": 0.8}).astype(float)
    eta = 0.5 * frame["a"] + 0.4 * frame["b"] * (1 + np.tanh(frame["a"]))
    eta = (eta + 0.3 * np.sin(2 * frame["c"]) + step).to_numpy()
    if missing:
        frame.loc[rng.random(n_rows) < 0.1, "b"] = np.nan
    return frame, eta, rng


def make_target(eta, rng, family):
    if family == "gaussian":
        return eta + 0.3 * rng.normal(size=len(eta))
    if family == "poisson":
        return rng.poisson(np.exp(0.6 * eta)).astype(float)
    if family == "gamma":
        return rng.gamma(4.0, np.exp(0.5 * eta) / 4.0)
    return (rng.random(len(eta)) < 1 / (1 + np.exp(-2 * eta))).astype(int)


def in_blocks(X, y, size=70):
    def read():
        for begin in range(0, len(y), size):
            part = slice(begin, begin + size)
            yield X.iloc[part].reset_index(drop=True), y[part]

    return RowBlocks(read)


def plain(family, cls=NIMORegressor, missing=False, **params):
    X, eta, rng = make_table(missing=missing)
    y = make_target(eta, rng, family)
    how = {"max_iter": 150, "random_state": 0}
    if cls is NIMORegressor:
        how["family"] = family
    if missing:
        how["missing"] = "indicator"
    weight = rng.integers(1, 3, len(y)).astype(float)
    offset = 0.1 * rng.normal(size=len(y))
    return cls(**how, **params).fit(X, y, weight, offset), X


def searching(family, cls=NIMORegressorCV, missing=False, n_rows=240, **params):
    X, eta, rng = make_table(n_rows, missing=missing)
    y = make_target(eta, rng, family)
    how = dict(BRIEF)
    if cls is NIMORegressorCV:
        how["family"] = family
    if missing:
        how["missing"] = "indicator"
    return cls(**how, **params).fit(X, y), X


def paper(make, cls, setting, n_rows, seed=0, **params):
    data = make(setting=setting, n_samples=n_rows, random_state=seed)
    X = pd.DataFrame(data.X).rename(columns="x{}".format)
    return cls(**{**BRIEF, **params}).fit(X, data.y), X


def streamed(cls, family, **params):
    X, eta, rng = make_table(400, missing=True)
    y = make_target(eta, rng, family)
    est = cls(missing="indicator", random_state=0, **params)
    return est.fit(in_blocks(X, y)), X


FITS = {
    "plain gaussian": lambda: plain("gaussian"),
    "plain poisson, gaps": lambda: plain("poisson", missing=True),
    "plain gamma, splines": lambda: plain("gamma", basis="spline", penalty="ridge"),
    "plain classes, sub-l1": lambda: plain(
        "binomial", NIMOClassifier, penalty="sub_l1", early_stopping=True
    ),
    "plain batches": lambda: plain("gaussian", batch_size=64, dtype="float32"),
    "search paper 1": lambda: paper(make_nimo_regression, NIMORegressorCV, 1, 200),
    "search moved reference": lambda: paper(
        make_nimo_regression, NIMORegressorCV, 0, 300, seed=101
    ),
    "search paper classes": lambda: paper(
        make_nimo_classification, NIMOClassifierCV, 1, 200
    ),
    "search curves": lambda: searching("gaussian"),
    "search poisson": lambda: searching("poisson", rule="1se"),
    "search gamma, gaps": lambda: searching("gamma", missing=True),
    "search stability": lambda: paper(
        make_nimo_regression, NIMORegressorCV, 2, 200, rule="stability"
    ),
    "search classes": lambda: searching("binomial", NIMOClassifierCV),
    "search batches": lambda: searching(
        "gaussian", n_rows=600, batch_size=128, basis="linear"
    ),
    "streamed": lambda: streamed(NIMORegressor, "gaussian", max_iter=100),
    "streamed search": lambda: streamed(
        NIMORegressorCV, "gaussian", max_iter=20, batch_size=128
    ),
}


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(np.asarray(array, dtype=np.float64))
        found.update(str(values.shape).encode() + values.tobytes())
    return found.hexdigest()[:16]


def far(X):
    """The same rows, their numbers far outside the range of training."""
    numbers = X.select_dtypes("number").columns
    return X.assign(**{name: 7 * X[name] + 3 for name in numbers})


def describe(est, X):
    predict = est.decision_function if hasattr(est, "classes_") else est.predict
    explanation = est.explain(X[:40])
    effects = est.effects(X)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sknimo"
        est.save(path)
        saved = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return {
        "coefficients": digest(est.coef_, est.intercept_, est.reference_),
        "predictions": digest(predict(X), predict(far(X))),
        "explanation": digest(*(getattr(explanation, name) for name in EXPLANATION)),
        "effects": digest(*(getattr(effects, name) for name in EFFECTS)),
        "interactions": digest(est.interactions(X).directed),
        "saved file": saved,
        "coef": [float(value) for value in est.coef_],
    }


def rank_of_two(folder, rank):
    """One of two processes; the first writes what came out."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    X, eta, rng = make_table(400, missing=True)
    y = make_target(eta, rng, "gaussian")
    own = slice(0, 190) if rank == 0 else slice(190, 400)

    def read():
        yield X.iloc[own].reset_index(drop=True), y[own]

    found = {}
    for name, est in {
        "two ranks": NIMORegressor(max_iter=60, random_state=0, missing="indicator"),
        "two ranks, search": NIMORegressorCV(
            max_iter=10, random_state=0, missing="indicator"
        ),
    }.items():
        est.fit(RowBlocks(read, sharded=True))
        found[name] = describe(est, X)
    torch.distributed.destroy_process_group()
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))


def run_ranks():
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen([sys.executable, __file__, "--rank", str(k), folder])
            for k in (0, 1)
        ]
        if any(rank.wait() for rank in ranks):
            raise SystemExit("two ranks: a process failed")
        return json.loads((Path(folder) / "found.json").read_text())


def compare(before, after):
    first, second = (json.loads(Path(path).read_text()) for path in (before, after))
    n_changed = 0
    for name in first.keys() | second.keys():
        old, new = first.get(name, {}), second.get(name, {})
        changed = [key for key in old if old[key] != new.get(key)]
        n_changed += bool(changed)
        print(f"{name:26s} {'same' if not changed else 'CHANGED: ' + str(changed)}")
    print(f"{len(first)} fits, {n_changed} changed")
    return n_changed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--rank", type=int)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.compare:
        raise SystemExit(bool(compare(*args.paths)))
    if args.rank is not None:
        return rank_of_two(args.paths[0], args.rank)
    found = {}
    for name, fit in FITS.items():
        begin = time.perf_counter()
        found[name] = describe(*fit())
        print(f"{name:26s} {time.perf_counter() - begin:6.1f} s", flush=True)
    found.update(run_ranks())
    Path(args.paths[0]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
