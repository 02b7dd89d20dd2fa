"""Time explanations of 10,000 rows against shap's permutation explainer on 1,000.

Run with `python benchmarks/explain.py`; `--rows` and `--shap-rows` shorten it, and the
time of shap is then scaled up, which is fair because it explains row by row.

Both explain one and the same fitted model of 50 features. shap gets the cheapest
setting that it has: the reference as its only background row and its default number of
evaluations, through the library's own prediction function. With the usual background of
100 rows it needs a hundred times the evaluations.
"""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter

import numpy as np
import shap
from sklearn.exceptions import ConvergenceWarning

from sknimo import NIMORegressor
from sknimo.explain import describe_training, explain, shapley

N_FEATURES = 50
LIMIT = 0.05  # of shap's time


def make_table(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Every feature acts and the first ten bend the others: nothing is idle."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    weight = np.linspace(1, 0.2, N_FEATURES)
    bend = 1 + np.tanh(X[:, :10] @ rng.normal(size=(10, N_FEATURES)) / 3)
    return X, (X * weight * bend).sum(1) + 0.1 * rng.normal(size=n_rows)


def fit_model() -> NIMORegressor:
    """A dense model: the least favourable case for us."""
    X, y = make_table(1000, seed=0)
    est = NIMORegressor(alpha=1e-4, network_alpha=0.0, max_iter=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return est.fit(X, y)


def best_of(n_runs: int, call) -> float:
    times = []
    for _ in range(n_runs):
        begin = perf_counter()
        call()
        times.append(perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--shap-rows", type=int, default=1000)
    options = parser.parse_args()
    est = fit_model()
    model = est.model_
    X, y = make_table(options.rows, seed=1)
    begin = perf_counter()
    facts = describe_training(model, X[:1000], y[:1000])
    facts_time = perf_counter() - begin
    ours = best_of(3, lambda: explain(model, X, swap=facts.swap))
    ours *= 10_000 / options.rows
    masker = shap.maskers.Independent(est.reference_[None])
    explainer = shap.explainers.Permutation(est.predict, masker, seed=0)
    some = X[: options.shap_rows]
    explainer(X[-2:], silent=True)  # compiles what it needs, outside the clock
    begin = perf_counter()
    theirs = explainer(some, silent=True).values
    shap_time = (perf_counter() - begin) * 1000 / len(some)
    few = some[:50]
    sampled = shapley(model, few, max_exact=0, n_permutations=8)
    begin = perf_counter()
    shapley(model, some, max_exact=0, n_permutations=8)
    own_time = (perf_counter() - begin) * 1000 / len(some)
    gap = np.abs(theirs[:50] - sampled.values).mean() / np.abs(theirs[:50]).mean()

    bent = int(model.modulated.any(0).sum())
    print(f"model: {N_FEATURES} features, {bent} bent, {model.n_members} member")
    print(f"explain, 10,000 rows                {ours:9.2f} s")
    print(f"training facts, 1,000 rows, once    {facts_time:9.2f} s")
    print(f"shap Permutation, 1,000 rows        {shap_time:9.2f} s")
    print(f"our sampled Shapley, 1,000 rows     {own_time:9.2f} s (gap {gap:.1%})")
    share = ours / shap_time
    verdict = "kept" if share < LIMIT else "missed"
    limit = f"limit {LIMIT:.0%} {verdict}"
    print(f"explain / shap                      {share:9.2%} ({limit})")


if __name__ == "__main__":
    main()
