"""Simulated truth of each family: exact support, coefficients within their intervals.

A section of `responses.py`; needs no tables, and a "split" is a sample. All designs
have 1000 rows of six features, uniform on [-2, 2]. The first acts, bent by the second
to between nothing and twice its effect; the third acts; the other three do nothing:

    eta = a x1 (1 + tanh(2 x2)) + b x2 + c x3

- classes: three of them, with a = (1, 0, -1), b = (.5, -.5, 0), c = (0, 1, -1);
- survival: `make_nimo_survival`, a = 1, b = 0, c = -.7, two rows in five censored;
- negative_binomial: overdispersion .5, a = .7, b = .3, c = -.4, intercept .5;
- tweedie: power 1.5, else the same.

The searching estimators run with `rule="1se"`, the rule for fewer features, and
`reference` at zero, where a, b and c are the slopes. The support is exact where
predictions change with the values of the features that act, bending included, and with
no others. Coefficients of classes are less their mean over them. Intervals hold
together at 95 % (Bonferroni); a coefficient that was removed has an interval without
width.

- oracle: the GLM, Cox or multinomial regression of statsmodels that knows all but a, b
  and c: the support, the form of the bend, overdispersion or power. What its intervals
  miss is chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from sknimo import NIMOClassifierCV, NIMORegressorCV, NIMOSurvivalCV
from sknimo.datasets import make_nimo_survival

N_ROWS, N_FEATURES = 1000, 6
ACTING = np.arange(N_FEATURES) < 3
STEP = 1e-5  # of numerical derivatives
LEVEL = 0.95


def bend(X: np.ndarray, a: Any, b: Any, c: Any) -> np.ndarray:
    """The true linear predictor; a, b and c are numbers, or arrays over classes."""
    x1, x2, x3 = (X[:, j, None] for j in range(3))
    eta = a * x1 * (1 + np.tanh(2 * x2)) + b * x2 + c * x3
    return eta if np.ndim(a) else eta[:, 0]


def classes(X: np.ndarray) -> np.ndarray:
    a, b, c = np.array([[1.0, 0, -1], [0.5, -0.5, 0], [0, 1, -1]])
    eta = bend(X, a, b, c)
    return eta - eta.mean(1, keepdims=True)


def survival(X: np.ndarray) -> np.ndarray:
    return bend(X, 1.0, 0.0, -0.7)


def counts(X: np.ndarray) -> np.ndarray:
    return bend(X, 0.7, 0.3, -0.4)


def draw_classes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (N_ROWS, N_FEATURES))
    return X, (classes(X) + rng.gumbel(size=(N_ROWS, 3))).argmax(1)


def draw_survival(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    data = make_nimo_survival(N_ROWS, random_state=rng)
    return data.X, data.y


def draw_counts(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (N_ROWS, N_FEATURES))
    return X, rng.poisson(np.exp(0.5 + counts(X)) * rng.gamma(2, 0.5, N_ROWS))


def draw_amounts(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2, 2, (N_ROWS, N_FEATURES))
    root = np.exp((0.5 + counts(X)) / 2)
    number = rng.poisson(2 * root)
    return X, rng.gamma(np.maximum(number, 1), root / 2) * (number > 0)


@dataclass(frozen=True)
class Design:
    """Rows, the truth behind them, and what is to find it."""

    draw: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    eta: Callable[[np.ndarray], np.ndarray]
    estimator: Callable[..., Any]

    def effects(self, at: np.ndarray) -> np.ndarray:
        """Slopes of the linear predictor at a point, (p,) or (C, p)."""
        step = STEP * np.eye(N_FEATURES)
        return ((self.eta(at + step) - self.eta(at - step)) / (2 * STEP)).T


def of_family(name: str) -> Callable[..., Any]:
    return lambda **options: NIMORegressorCV(name, **options)


DESIGNS = {
    "classes": Design(draw_classes, classes, NIMOClassifierCV),
    "survival": Design(draw_survival, survival, NIMOSurvivalCV),
    "negative_binomial": Design(draw_counts, counts, of_family("negative_binomial")),
    "tweedie": Design(draw_amounts, counts, of_family("tweedie")),
}
TABLES = ",".join(DESIGNS)
RULES = {"sknimo": "1se", "min": "min"}  # the default keeps what may help
METHODS = ("oracle", *RULES)


def used_features(est: Any, X: np.ndarray) -> np.ndarray:
    """Features whose values change predictions, (p,)."""
    predict = getattr(est, "decision_function", est.predict)
    found = predict(X)
    out = np.zeros(X.shape[1], dtype=bool)
    for j in range(X.shape[1]):
        other = X.copy()
        other[:, j] = X[::-1, j]
        out[j] = not np.array_equal(predict(other), found)
    return out


def errors(est: Any) -> np.ndarray:
    """Standard errors like `coef_`, NaN where there are none."""
    try:
        if est.coef_.ndim == 1:
            return np.asarray(est.conf_int().std_err)
        one = [est.for_class(label).conf_int().std_err for label in est.classes_]
        return np.stack(one)
    except ValueError:
        return np.full(est.coef_.shape, np.nan)


def consult_oracle(
    table: str, X: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of what acts and their errors, the form of the bend known."""
    import statsmodels.api as sm

    bent = X[:, 0] * (1 + np.tanh(2 * X[:, 1]))
    Z = np.column_stack([bent, X[:, 1], X[:, 2]])
    if table == "survival":
        fit = sm.PHReg(y[:, 0], Z, status=y[:, 1], ties="efron").fit()
        return fit.params, fit.bse
    if table == "classes":
        fit = sm.MNLogit(y, sm.add_constant(Z)).fit(disp=0)
        # Two classes against the first, each with four parameters: less their mean.
        turn = np.eye(3)[:, 1:] - 1 / 3
        turn = np.kron(turn, np.eye(4)[1:])
        found, cov = turn @ fit.params.T.ravel(), turn @ fit.cov_params() @ turn.T
        return found.reshape(3, 3), np.sqrt(cov.diagonal()).reshape(3, 3)
    family = sm.families.NegativeBinomial(alpha=0.5)
    if table == "tweedie":
        family = sm.families.Tweedie(sm.families.links.Log(), var_power=1.5)
    fit = sm.GLM(y, sm.add_constant(Z), family=family).fit()
    return fit.params[1:], fit.bse[1:]


def measure(
    folder: Path | None, table: str, method: str, seed: int
) -> list[dict[str, Any]]:
    """Every coefficient of one sample: truth, estimate, error."""
    design = DESIGNS[table]
    X, y = design.draw(np.random.default_rng(seed))
    exact, bent = True, 1.0
    if method == "oracle":
        found, error = consult_oracle(table, X, y)
    else:
        rule, centre = RULES[method], dict.fromkeys(range(N_FEATURES), 0.0)
        est = design.estimator(rule=rule, reference=centre, random_state=seed).fit(X, y)
        exact = np.array_equal(used_features(est, X[:200]), ACTING)
        found, error, bent = est.coef_, errors(est), est.bend_
    truth = design.effects(np.zeros(N_FEATURES))
    return [
        {
            "target": ",".join(map(str, place)),
            "truth": truth[place],
            "estimate": found[place],
            "std_err": error[place],
            "exact": exact,
            "bend": bent,
        }
        for place in np.ndindex(found.shape)
        if ACTING[place[-1]]
    ]


def show(found: pd.DataFrame) -> None:
    """Of how many samples the support is exact, and all intervals hold the truth."""
    for (table, method), every in found.groupby(["table", "method"]):
        n_targets = every["target"].nunique()
        width = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / n_targets)
        error = every["std_err"].fillna(0.0)
        held = (every["estimate"] - every["truth"]).abs() <= width * error + 1e-6
        rows = every.assign(held=held, both=held & every["exact"])
        samples = rows.groupby("seed")[["exact", "held", "both"]].all()
        print(
            f"{table} ({method}): {len(samples)} samples, support exact in "
            f"{samples['exact'].sum()}, coefficients held in {samples['held'].sum()}, "
            f"both in {samples['both'].sum()}"
        )
        middle = rows.groupby("target")[["truth", "estimate", "std_err"]].mean()
        print(middle.assign(spread=rows.groupby("target")["estimate"].std()).round(3))
