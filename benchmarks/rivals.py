"""One adapter per rival: the same rows in, a prediction function out.

Settings are those that each project recommends, with what its documentation asks for
(scaled columns, a validation set) added. Departures from a project's defaults are
explained where they are made; they were chosen on seeds that are not reported.

A method that needs no validation set is fitted on all rows. One that does trains on the
first rows and validates on the last `n_held_out`.

Packages are imported on use; `Rival.load` says how to get one that is missing.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

import numpy as np

TaskName = Literal["regression", "classification"]
Predict = Callable[[np.ndarray], np.ndarray]

# Below this many numbers in a table a second thread costs more than it gains, and many
# times as much when other work keeps the cores busy.
ONE_THREAD_CELLS = 200_000


@dataclass(frozen=True)
class Rows:
    """What a method is fitted on.

    `scale_target` says that the target comes in units of its own, such as dollars, and
    has to be standardised for methods that are trained by gradient steps.
    """

    X: np.ndarray  # (n, p)
    y: np.ndarray  # (n,)
    task: TaskName
    n_held_out: int
    scale_target: bool

    @property
    def is_regression(self) -> bool:
        return self.task == "regression"

    @property
    def n_train(self) -> int:
        return len(self.y) - self.n_held_out

    def n_threads(self, n_jobs: int) -> int:
        """The faster of one thread and `n_jobs`, for methods that share threads."""
        return 1 if self.X.size < ONE_THREAD_CELLS else n_jobs

    def predictor(self, est: Any) -> Predict:
        """How a fitted estimator predicts: values, or labels."""
        return quietly(est.predict)


@dataclass(frozen=True)
class Fitted:
    """A prediction function, and what a sparse method kept; boolean, (p,).

    `slopes` are the effects at the mean, on the scale of the linear predictor, of
    methods that have them as parameters.
    """

    predict: Predict  # values for regression, labels for classification
    coef: np.ndarray | None = None  # features with a coefficient
    inputs: np.ndarray | None = None  # features that bend the coefficients of others
    features: np.ndarray | None = None  # features in use at all
    slopes: np.ndarray | None = None  # per unit of each column, (p,)
    estimator: Any = None  # of sknimo, to be explained


class MissingRivalError(ImportError):
    """The package of a rival is not installed."""


@dataclass(frozen=True)
class Rival:
    """A method: its name, the package it comes from and how to fit it."""

    name: str
    package: str  # as it is installed
    module: str  # as it is imported
    fit_rows: Callable[[Rows, int, int], Fitted]

    def load(self) -> None:
        """Import the package, so that the first fit does not pay for it."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            raise MissingRivalError(
                f"{self.name} needs the package {self.package}, which could not be "
                f"imported ({error}). Install it with: pip install {self.package}"
            ) from error

    @property
    def version(self) -> str:
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:  # run from its sources
            return "source"

    def fit(self, rows: Rows, seed: int, n_jobs: int | None = 1) -> Fitted:
        """Fit without the warnings that methods raise about their own progress."""
        self.load()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = self.fit_rows(rows, seed, n_jobs)
        return fitted


def start_workers(n_jobs: int, modules: Sequence[str] = ("sknimo",)) -> None:
    """Start joblib's processes and load the libraries there, once per run."""
    from joblib import Parallel, delayed

    if n_jobs > 1:
        load = delayed(importlib.import_module)
        Parallel(n_jobs=n_jobs)(load(m) for _ in range(2 * n_jobs) for m in modules)


def quietly(predict: Predict) -> Predict:
    """The same function without warnings, such as those about column names."""

    def call(X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(predict(X)).reshape(len(X))

    return call


def fit_lasso(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    from sklearn.linear_model import LassoCV, LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if rows.is_regression:
        linear = LassoCV(cv=5, max_iter=10_000, n_jobs=n_jobs, random_state=seed)
    else:
        linear = LogisticRegressionCV(
            l1_ratios=(1,),
            solver="saga",
            cv=5,
            scoring="neg_log_loss",
            max_iter=5000,
            use_legacy_attributes=False,
            n_jobs=n_jobs,
            random_state=seed,
        )
    scaler = StandardScaler()
    est = make_pipeline(scaler, linear).fit(rows.X, rows.y)
    slopes = np.ravel(linear.coef_) / scaler.scale_
    kept = slopes != 0
    return Fitted(quietly(est.predict), coef=kept, features=kept, slopes=slopes)


def fit_lassonet(
    rows: Rows, seed: int, n_jobs: int, hidden: tuple[int, ...] = (100,)
) -> Fitted:
    """The standard path, from the dense network until no feature is left.

    The penalty with the smallest loss on the rows held out wins. The simulated targets
    are taken as they are: standardising them makes LassoNet's steps small and its error
    half as large again. Real ones are standardised, as in the project's examples,
    because the path diverges otherwise.
    """
    import lassonet

    kind = "Regressor" if rows.is_regression else "Classifier"
    net = getattr(lassonet, f"LassoNet{kind}")(
        hidden_dims=hidden, verbose=0, random_state=seed, torch_seed=seed
    )
    n = rows.n_train
    scaling = Scaling.learn(rows, n)
    X, y = scaling.columns(rows.X), scaling.target(rows.y)
    with few_threads(rows, n_jobs):
        path = net.path(X[:n], y[:n], X_val=X[n:], y_val=y[n:], return_state_dicts=True)
    best = min(path, key=lambda step: step.val_loss)
    net.load(best)
    return Fitted(scaling.wrap(net.predict), features=best.selected.numpy())


def fit_lassonet_deep(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    """Two hidden layers instead of one, which products of features call for."""
    return fit_lassonet(rows, seed, n_jobs, hidden=(100, 100))


def fit_lassonet_cv(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    """Five folds and a last path on all rows: six times the work of one path."""
    import lassonet

    kind = "Regressor" if rows.is_regression else "Classifier"
    net = getattr(lassonet, f"LassoNet{kind}CV")(
        hidden_dims=(100,), verbose=0, random_state=seed, torch_seed=seed
    )
    scaling = Scaling.learn(rows, len(rows.y))
    with few_threads(rows, n_jobs):
        net.fit(scaling.columns(rows.X), scaling.target(rows.y))
    return Fitted(scaling.wrap(net.predict), features=net.best_selected_.numpy())


def fit_ebm(rows: Rows, seed: int, n_jobs: int, **options: Any) -> Fitted:
    """All defaults: fourteen bags, pairwise terms, its own validation rows."""
    from interpret import glassbox

    kind = "Regressor" if rows.is_regression else "Classifier"
    make = getattr(glassbox, f"ExplainableBoosting{kind}")
    est = make(n_jobs=n_jobs, random_state=seed, **options).fit(rows.X, rows.y)
    return Fitted(rows.predictor(est))


def fit_lightgbm(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    """All defaults: a hundred trees."""
    est = _make_lightgbm(rows, seed, n_jobs).fit(rows.X, rows.y)
    return Fitted(quietly(est.predict))


def fit_lightgbm_stopped(
    rows: Rows, seed: int, n_jobs: int, most: int = 10_000, **options: Any
) -> Fitted:
    """Smaller steps, their number found on the rows held out; refitted on all rows."""
    import lightgbm

    n, slow = rows.n_train, {"learning_rate": 0.03, **options}
    trial = _make_lightgbm(rows, seed, n_jobs, n_estimators=most, **slow)
    trial.fit(
        rows.X[:n],
        rows.y[:n],
        eval_set=[(rows.X[n:], rows.y[n:])],
        callbacks=[lightgbm.early_stopping(100, verbose=False)],
    )
    n_trees = max(trial.best_iteration_, 1)
    est = _make_lightgbm(rows, seed, n_jobs, n_estimators=n_trees, **slow)
    est.fit(rows.X, rows.y)
    return Fitted(rows.predictor(est))


def _make_lightgbm(rows: Rows, seed: int, n_jobs: int, **options: Any) -> Any:
    import lightgbm

    make = lightgbm.LGBMRegressor if rows.is_regression else lightgbm.LGBMClassifier
    n_threads = rows.n_threads(n_jobs)
    return make(n_jobs=n_threads, random_state=seed, verbose=-1, **options)


def fit_mlp(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    """Two layers; weight decay, activation and early stopping by validation.

    Each candidate is trained on the first rows and judged on those held out; the best
    is refitted on all rows. With one fixed setting the error on settings 1 and 3 is two
    to four times as large.
    """
    scaling = Scaling.learn(rows, len(rows.y), always=True)
    X, y, n = scaling.columns(rows.X), scaling.target(rows.y), rows.n_train
    candidates = [
        {"activation": activation, "alpha": alpha, "early_stopping": stop}
        for activation in ("relu", "tanh")
        for alpha in (1e-4, 1.0, 10.0)
        for stop in (True, False)
    ]
    losses = []
    with few_threads(rows, n_jobs):
        for options in candidates:
            trial = _make_mlp(rows, seed, options).fit(X[:n], y[:n])
            losses.append(held_out_loss(trial, rows, X[n:], y[n:]))
        best = candidates[int(np.argmin(losses))]
        est = _make_mlp(rows, seed, best).fit(X, y)
    return Fitted(scaling.wrap(est.predict))


def _make_mlp(rows: Rows, seed: int, options: dict[str, Any]) -> Any:
    """Patience and length in rows seen: with 300 rows an epoch is one or two steps."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    make = MLPRegressor if rows.is_regression else MLPClassifier
    return make(
        hidden_layer_sizes=(100, 100),
        validation_fraction=0.2,
        n_iter_no_change=max(10, 20_000 // len(rows.y)),
        max_iter=max(200, 500_000 // len(rows.y)),
        random_state=seed,
        **options,
    )


def held_out_loss(est: Any, rows: Rows, X: np.ndarray, y: np.ndarray) -> float:
    """Squared error or log loss."""
    if rows.is_regression:
        return float(np.mean((est.predict(X) - y) ** 2))
    chance = est.predict_proba(X)[np.arange(len(y)), y]
    return float(-np.log(np.maximum(chance, 1e-12)).mean())


def fit_sknimo(rows: Rows, seed: int, n_jobs: int | None, **options: Any) -> Fitted:
    """All defaults."""
    import sknimo

    make = sknimo.NIMORegressorCV if rows.is_regression else sknimo.NIMOClassifierCV
    est = make(n_jobs=n_jobs, random_state=seed, **options).fit(rows.X, rows.y)
    return describe_nimo(est)


def describe_nimo(est: Any) -> Fitted:
    """What a fitted estimator of sknimo kept."""
    slopes = np.ravel(est.coef_)
    coef, inputs = slopes != 0, est.model_.input_norms > 0
    return Fitted(quietly(est.predict), coef, inputs, coef | inputs, slopes, est)


def fit_sknimo_glm(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    """The nested GLM: what the search returns when no restart may begin."""
    return fit_sknimo(rows, seed, 1, max_time=0)


@dataclass(frozen=True)
class Scaling:
    """Standardised columns and, for regression, a standardised target."""

    mean: np.ndarray  # (p,)
    scale: np.ndarray  # (p,)
    y_mean: float
    y_scale: float
    is_regression: bool

    @classmethod
    def learn(cls, rows: Rows, n: int, always: bool = False) -> Scaling:
        """Look at the first `n` rows only."""
        scale = rows.X[:n].std(axis=0)
        scale[scale == 0] = 1.0
        y_mean, y_scale = 0.0, 1.0
        if rows.is_regression and (rows.scale_target or always):
            y_mean, y_scale = float(rows.y[:n].mean()), float(rows.y[:n].std())
        mean = rows.X[:n].mean(axis=0)
        return cls(mean, scale, y_mean, y_scale, rows.is_regression)

    def columns(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean) / self.scale

    def target(self, y: np.ndarray) -> np.ndarray:
        return (y - self.y_mean) / self.y_scale if self.is_regression else y

    def wrap(self, predict: Predict) -> Predict:
        """A prediction function in the original units."""

        def call(X: np.ndarray) -> np.ndarray:
            predicted = predict(self.columns(X))
            if self.is_regression:
                predicted = self.y_mean + self.y_scale * predicted
            return predicted

        return quietly(call)


@contextmanager
def few_threads(rows: Rows, n_jobs: int) -> Iterator[None]:
    """Let BLAS and torch use as many threads as pay off."""
    import torch
    from threadpoolctl import threadpool_limits

    before, n_threads = torch.get_num_threads(), rows.n_threads(n_jobs)
    torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        torch.set_num_threads(before)


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("sknimo", "sknimo", "sknimo", fit_sknimo),
        Rival("sknimo-glm", "sknimo", "sknimo", fit_sknimo_glm),
        Rival("lasso", "scikit-learn", "sklearn.linear_model", fit_lasso),
        Rival("lassonet", "lassonet", "lassonet", fit_lassonet),
        Rival("lassonet-deep", "lassonet", "lassonet", fit_lassonet_deep),
        Rival("lassonet-cv", "lassonet", "lassonet", fit_lassonet_cv),
        Rival("ebm", "interpret-core", "interpret.glassbox", fit_ebm),
        Rival("lightgbm", "lightgbm", "lightgbm", fit_lightgbm),
        Rival("lightgbm-stopped", "lightgbm", "lightgbm", fit_lightgbm_stopped),
        Rival("mlp", "scikit-learn", "sklearn.neural_network", fit_mlp),
    )
}
# Run unless others are named; the folds of lassonet-cv take several minutes a fit.
USUAL_RIVALS = [name for name in RIVALS if name != "lassonet-cv"]
