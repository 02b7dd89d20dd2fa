"""The demonstration: simulated data with a known truth, a fit, a comparison, a report.

`make demo`, `examples/demo.py` and `sknimo demo` all run `run_demo`.
"""

import os
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa

N_TRAIN, N_TEST = 400, 2000
NOISE = 1.0
# Effect of one unit more, or of a level, with everything else at the reference.
TRUTH = {
    "dose": 0.3,
    "age": -0.1,
    "egfr": 0.0,
    "weight": 0.0,
    "smoker[yes]": -2.0,
    "centre[B]": 0.0,
    "centre[C]": 0.0,
}
STORY = """\
A simulated trial: the fall of blood pressure (mmHg) under 0 to 40 mg of a drug. One mg
more lowers it by 0.3 in the average patient, almost twice that when kidneys are weak
(low eGFR) and hardly at all when they are strong. Age and smoking reduce the fall;
body weight and centre do nothing. The noise has variance 1."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Patients and their outcomes."""

    columns: dict[str, np.ndarray]  # each (n,)
    y: np.ndarray  # (n,)

    @property
    def X(self) -> pa.Table:  # noqa: N802
        """Columns as a data frame."""
        return pa.table(self.columns)

    @property
    def dummies(self) -> np.ndarray:
        """Columns as numbers, one per level but the first."""
        parts = []
        for values in self.columns.values():
            if values.dtype.kind == "f":
                parts.append(values)
            else:
                parts += [values == level for level in np.unique(values)[1:]]
        return np.column_stack(parts)


def simulate_trial(n_rows: int, seed: int) -> Trial:
    """Draw patients and outcomes."""
    rng = np.random.default_rng(seed)
    dose = rng.uniform(0, 40, n_rows)
    age = rng.normal(60, 10, n_rows)
    egfr = rng.normal(75, 18, n_rows).clip(15, 130)
    weight = rng.normal(80, 14, n_rows)
    smoker = rng.random(n_rows) < 0.3
    centre = rng.choice(["A", "B", "C"], n_rows, p=[0.5, 0.3, 0.2])
    response = 1 + 0.8 * np.tanh((75 - egfr) / 18)
    fall = 8 + 0.3 * (dose - 20) * response - 0.1 * (age - 60) - 2 * smoker
    columns = {
        "dose": dose,
        "age": age,
        "egfr": egfr,
        "weight": weight,
        "smoker": np.where(smoker, "yes", "no"),
        "centre": centre,
    }
    return Trial(columns, fall + NOISE * rng.normal(size=n_rows))


def run_demo(report: str | os.PathLike[str] = "report.html", seed: int = 0) -> None:
    """Fit the trial, print coefficients and errors, write the report.

    Parameters
    ----------
    report : str or path
        Where to write the report.
    seed : int
        Governs data and fit.
    """
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from sknimo.estimators import NIMORegressorCV

    train = simulate_trial(N_TRAIN, 2 * seed)
    test = simulate_trial(N_TEST, 2 * seed + 1)
    print(STORY)
    print(f"\nFitting {N_TRAIN} patients ...")
    begin = perf_counter()
    est = NIMORegressorCV(n_starts=4, random_state=seed).fit(train.X, train.y)
    seconds = perf_counter() - begin
    lasso = make_pipeline(StandardScaler(), LassoCV()).fit(train.dummies, train.y)

    print(f"... in {seconds:.1f} s.\n")
    print(est.summary())
    print("\nCoefficients beside the truth they were simulated with")
    for name, coef in zip(est.coef_names_, est.coef_, strict=True):
        print(f"  {name:14} {coef:8.3f}   truth {TRUTH[name]:6.2f}")
    print(
        f"\nMean squared error on {N_TEST} new patients; the noise alone has {NOISE:g}"
    )
    for label, predicted in (
        ("LassoCV of scikit-learn", lasso.predict(test.dummies)),
        ("sknimo", est.predict(test.X)),
    ):
        print(f"  {label:26} {np.mean((test.y - predicted) ** 2):6.2f}")
    title = "A simulated trial"
    est.report(report, train.X, train.y, X_test=test.X, y_test=test.y, title=title)
    print(f"\nReport with figures and a what-if page: {os.path.abspath(report)}")
