"""What is recorded of one fit: a list of (quantity, item, value).

| quantity | item | value |
|---|---|---|
| mse, accuracy | | test error, or share of correct labels |
| variance | | of the test target |
| effect | feature | effect at the mean per unit of the column |
| scaled_effect | feature | the same per standard deviation of the column |
| coef_rmse | | effects against the truth at zero, root mean square over features |
| reference_rmse | | effects against the truth at the reference of the fit |
| coef_exact, inputs_exact, features_exact | | 1 if the support is the true one |
| input_norm | feature | size of its first-layer weights |
| first_layer | feature, unit | size of one weight |
| bend, nonlinearity | feature | share of its effect that varies; mean of abs(1 + g) |
| members | | averaged restarts, 0 when the GLM was kept |
| shap | feature | mean of abs(SHAP value) over test rows |
| contribution, true_contribution, shap_value | feature, row | of some test rows |
| curve, true_curve | feature, modifier, place | coefficient along another feature |
| agreement, shap_agreement | feature | correlation of contributions with the above |
| yardstick | | processor seconds of a fixed piece of work, just before the fit |
| cpu, seconds | | processor and wall-clock time of the fit; the last entries |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter, process_time

import numpy as np
from rivals import Fitted, Rival

from experiments._data import Dataset
from sknimo.datasets import SyntheticData

Entry = tuple[str, str, float]
SUPPORTS = ("coef", "inputs", "features")
# Of the first seed and these methods single rows and weights are kept, for pictures.
DETAILED_SEED = 0
DETAILED = ("nimo", "sknimo")
N_ROWS, N_PERMUTATIONS = 100, 48
N_GRID = 61
# In standard deviations; wide enough for networks that compute in single precision.
STEP = 1e-2


def measure(data: Dataset, method: Rival) -> list[Entry]:
    """Fit a method and look at the result."""
    method.load()
    task = data.task
    unit = yardstick()
    begin, begin_cpu = perf_counter(), process_time()
    fitted = method.fit(task.rows, task.seed)
    seconds, cpu = perf_counter() - begin, process_time() - begin_cpu
    entries = [
        (task.figure, "", task.score(fitted.predict(task.X_test))),
        ("variance", "", float(np.var(task.y_test))),
        *effects(data, fitted),
        *supports(data, fitted),
    ]
    if fitted.estimator is not None:
        entries += explanations(data, fitted.estimator, detailed(data, method))
    times = (("yardstick", unit), ("cpu", cpu), ("seconds", seconds))
    return [*entries, *((name, "", value) for name, value in times)]


def yardstick() -> float:
    """Processor seconds of a fixed piece of work, the least of three.

    Processor times of fits divided by it can be compared across machines, roughly.
    """
    block = np.random.default_rng(0).standard_normal((400, 400))
    times = []
    for _ in range(3):
        begin = process_time()
        for _ in range(4):
            np.tanh(block @ block / 20)
        times.append(process_time() - begin)
    return min(times)


def effects(data: Dataset, fitted: Fitted) -> Iterator[Entry]:
    """Effects at the mean: parameters of the model, or differences of predictions."""
    rows = data.task.rows
    slopes, spread = fitted.slopes, rows.X.std(axis=0)
    if slopes is None:
        if not rows.is_regression:
            return  # labels have no slope
        slopes = slopes_at_mean(fitted.predict, rows.X)
    for name, slope, scale in zip(data.names, slopes, spread, strict=True):
        yield "effect", name, float(slope)
        yield "scaled_effect", name, float(slope * scale)
    reference = getattr(fitted.estimator, "reference_", rows.X.mean(axis=0))
    at_reference = data.true_slopes(reference)
    if at_reference is not None:
        yield "coef_rmse", "", root_mean_square(slopes - data.truth.coef)
        yield "reference_rmse", "", root_mean_square(slopes - at_reference)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def slopes_at_mean(predict: Callable, X: np.ndarray) -> np.ndarray:
    """Central differences at the mean of the columns, per unit, (p,)."""
    step = np.diag(STEP * np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0))
    centre = X.mean(axis=0)
    return (predict(centre + step) - predict(centre - step)) / (2 * step.diagonal())


def supports(data: Dataset, fitted: Fitted) -> Iterator[Entry]:
    """Whether what a sparse method kept is what matters."""
    for name in SUPPORTS:
        found = getattr(fitted, name)
        if data.task.truth is not None and found is not None:
            exact = np.array_equal(found, getattr(data.task.truth, name))
            yield f"{name}_exact", "", float(exact)


def detailed(data: Dataset, method: Rival) -> bool:
    """Whether single rows and weights are kept; ablations are drawn on setting 1."""
    drawn = method.name in DETAILED or data.task.name == "setting1"
    return drawn and data.task.seed == DETAILED_SEED


def explanations(data: Dataset, est: object, detail: bool) -> Iterator[Entry]:
    """What only a NIMO model has: roles, bent coefficients, contributions."""
    task, names = data.task, data.names
    layer, summed = est.first_layer(), est.effects(task.X_test)
    yield "members", "", float(getattr(est, "n_members_", 1))
    for j, name in enumerate(names):
        yield "input_norm", name, float(layer.norms[j])
        yield "bend", name, float(summed.bend[j])
        yield "nonlinearity", name, float(summed.nonlinearity[j])
    if detail and task.truth is not None:
        size = layer.size[0]  # (h, p)
        for (unit, j), weight in np.ndenumerate(size):
            if weight > 0:
                yield "first_layer", f"{names[j]}|{unit}", float(weight)
        if task.name == "setting0":
            yield from curves(data.truth, est, names)
    if data.test_truth is not None and task.name == "setting1":
        truth = data.test_truth[:N_ROWS]
        yield from compare(data, est, truth, "true_contribution", detail)
    if task.name in ("diabetes", "boston"):
        values = shap_values(
            est.predict, task.X_test[:N_ROWS], task.rows.X, seed=task.seed
        )
        for j, name in enumerate(names):
            yield "shap", name, float(np.abs(values[:, j]).mean())
        yield from compare(data, est, values, "shap_value", detail)


def compare(
    data: Dataset, est: object, other: np.ndarray, label: str, detail: bool
) -> Iterator[Entry]:
    """Contributions beside the truth or another explanation of the same rows."""
    values = est.explain(data.task.X_test[: len(other)]).values
    agreement = "agreement" if label == "true_contribution" else "shap_agreement"
    for j, name in enumerate(data.names):
        if values[:, j].std() > 0 and other[:, j].std() > 0:
            yield agreement, name, float(np.corrcoef(values[:, j], other[:, j])[0, 1])
        if detail:
            for row in range(len(other)):
                yield "contribution", f"{name}|{row}", float(values[row, j])
                yield label, f"{name}|{row}", float(other[row, j])


def curves(
    truth: SyntheticData, est: object, names: tuple[str, ...]
) -> Iterator[Entry]:
    """Coefficients of the toy example along the other feature, with the truth.

    The part of a product that is linear in both features may sit in either
    coefficient. Both curves are drawn in the split of least energy.
    """
    grid = np.linspace(-2, 2, N_GRID)
    bent = {(0, 1): 3 * np.tanh(10 * grid), (1, 0): -3 * np.sin(-2 * grid)}
    x1, x2 = truth.X[:, 0], truth.X[:, 1]
    moved = np.mean(
        x1 * x2 * (x1 * 3 * np.tanh(10 * x2) - x2 * -3 * np.sin(-2 * x1))
    ) / (2 * np.mean(x1**2 * x2**2))
    for (j, k), true_bend in bent.items():
        curve = est.correction_curve(j, k, X=truth.X, n_grid=N_GRID)
        sign = -1 if j == 0 else 1
        expected = np.interp(
            curve.grid, grid, truth.coef[j] + true_bend + sign * moved * grid
        )
        for value, learned, right in zip(
            curve.grid, curve.local_coef, expected, strict=True
        ):
            place = f"{names[j]}|{names[k]}|{value:.4f}"
            yield "curve", place, float(learned)
            yield "true_curve", place, float(right)


def shap_values(
    predict: Callable,
    rows: np.ndarray,
    background: np.ndarray,
    *,
    n_permutations: int = N_PERMUTATIONS,
    seed: int = 0,
) -> np.ndarray:
    """SHAP values (interventional Shapley values) by sampled permutations, (n, p).

    Features join in random order, in pairs of an order and its reverse; those that
    have not joined take the values of a background row drawn anew each time. What the
    rows' predictions exceed the mean of those drawn is shared out exactly.
    """
    rng = np.random.default_rng(seed)
    n, p = rows.shape
    total = np.zeros((n, p))
    for _ in range(n_permutations // 2):
        order = rng.permutation(p)
        drawn = background[rng.integers(len(background), size=n)]
        for path in (order, order[::-1]):
            joined = drawn.copy()
            stages = [joined.copy()]
            for j in path:
                joined[:, j] = rows[:, j]
                stages.append(joined.copy())
            values = predict(np.concatenate(stages)).reshape(p + 1, n)
            total[:, path] += np.diff(values, axis=0).T
    return total / (2 * (n_permutations // 2))
