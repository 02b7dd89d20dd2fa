"""Fit NIMO to the diabetes data and print what it found. Run by `make demo`.

The penalty on the coefficients is the one that LassoCV finds, the penalty on the
network is cross-validated on the same training rows, and the test rows are looked at
once, at the end, by all three models.
"""

import warnings
from time import perf_counter

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sknimo import NIMORegressor

# From a network that may read most features to one that is shrunk away entirely,
# which leaves the plain GLM: the data decide how much network they can bear.
NETWORK_ALPHAS = [2.5, 5.0, 10.0]


def fit_nimo(X: np.ndarray, y: np.ndarray, alpha: float) -> NIMORegressor:
    """Cross-validate the network's penalty on the given rows, then fit all of them."""
    est = NIMORegressor(alpha=alpha, max_iter=300, random_state=0)
    search = GridSearchCV(
        est,
        {"network_alpha": NETWORK_ALPHAS},
        scoring="neg_mean_squared_error",
        cv=5,
        refit=False,
    )
    with warnings.catch_warnings():
        # A candidate that has not settled is judged by its error like the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(X, y)
    return clone(est).set_params(**search.best_params_).fit(X, y)


def print_coefficients(
    est: NIMORegressor, names: list[str], spread: np.ndarray
) -> None:
    """One row per feature; `spread` is its standard deviation in training."""
    bent = est.model_.modulated.any(0).numpy()
    reads = est.model_.input_norms > 0
    print(
        f"{'feature':8} {'reference':>10} {'per unit':>10} {'per sd':>10}"
        "   bent   bends others"
    )
    for j, name in enumerate(names):
        bends = reads[j] and np.delete(bent, j).any()
        print(
            f"{name:8} {est.reference_[j]:10.4g} {est.coef_[j]:10.4g} "
            f"{est.coef_[j] * spread[j]:10.2f}   {'yes' if bent[j] else '-':4}   "
            f"{'yes' if bends else '-'}"
        )
    print()
    print("per unit      effect of one unit more, everything else at the reference")
    print("per sd        the same for one standard deviation more")
    print("bent          the network changes this coefficient from row to row")
    print("bends others  the network reads this feature to change other coefficients")


def main() -> None:
    """Fit, print, compare."""
    begin = perf_counter()
    data = load_diabetes(scaled=False)
    X_train, X_test, y_train, y_test = train_test_split(
        data.data, data.target, random_state=0
    )
    lasso = make_pipeline(StandardScaler(), LassoCV()).fit(X_train, y_train)
    # NIMO scales a Gaussian target to unit variance; in those units the penalties of
    # the two libraries are the same.
    alpha = lasso[-1].alpha_ / y_train.std()
    est = fit_nimo(X_train, y_train, alpha)
    glm = clone(est).set_params(max_iter=0).fit(X_train, y_train)
    seconds = perf_counter() - begin

    print("Disease progression after one year, from ten measurements at its start")
    print(f"{len(y_train)} training rows, {len(y_test)} test rows")
    print()
    print_coefficients(est, data.feature_names, X_train.std(axis=0))
    print()
    print(f"intercept     {est.intercept_:.1f}, the prediction at the reference")
    print(f"penalties     alpha={est.alpha:.3g}, network_alpha={est.network_alpha:g}")
    print(f"training      {est.n_iter_} steps")
    print(f"              {est.certificate_.status}")
    print(f"certificate   optimality residual {est.certificate_.kkt:.0e}")
    print()
    print("test error (mean squared)")
    for label, model in (
        ("LassoCV of scikit-learn", lasso),
        ("GLM inside (network off)", glm),
        ("NIMO", est),
    ):
        error = mean_squared_error(y_test, model.predict(X_test))
        print(f"  {label:26} {error:8.1f}")
    print()
    print(f"search and fits took {seconds:.1f} s")


if __name__ == "__main__":
    main()
