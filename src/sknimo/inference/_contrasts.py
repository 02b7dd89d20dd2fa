"""Contrasts: differences of coefficients, with the error that both have together.

Shapes: c coefficients, k contrasts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.explain import Origin, make_frame
from sknimo.features import MISSING_LABEL, FeatureMap
from sknimo.inference._bands import (
    choose_covariance,
    choose_kind,
    errors_of,
    interval,
    quantile,
)
from sknimo.inference._uncertainty import Uncertainty


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """Weighted sums of coefficients, such as the difference of two levels.

    Attributes
    ----------
    names : tuple of str
    estimate, std_err, z, lower, upper : ndarray of shape (k,)
        On the scale of the linear predictor.
    level : float
    cov_type : str

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(setting=4, n_samples=80, random_state=0)
    >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
    >>> est.contrast({"x0": 1, "x9": 1}).to_frame().shape
    (1, 6)
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    std_err: np.ndarray
    z: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    cov_type: str

    def to_frame(self) -> Any:
        """One row per contrast, as a pandas data frame."""
        columns: dict[str, Any] = {"name": list(self.names)}
        for name in ("estimate", "std_err", "z", "lower", "upper"):
            columns[name] = getattr(self, name)
        return make_frame(columns, Origin())


def level_weights(
    features: FeatureMap, feature: int, level: Any, baseline: Any
) -> tuple[str, np.ndarray]:
    """Name and weights (c,) of the change from one level to another.

    Missing values are a level, after all others, unless a level has their name.
    """
    name = features.names[feature]
    levels = features.levels(feature)
    if levels is None:
        raise ValueError(
            f"Column {name!r} has no levels. Give weights of coefficients instead, "
            "such as {'x1': 1, 'x2': -1}."
        )
    # By place, not by name: another column may be called "name[level]".
    own = np.flatnonzero(features.coef_feature == feature).tolist()
    at_reference = int(features.reference[feature])
    weights = np.zeros(len(features.coef_feature))
    if features.admits_missing[feature] and MISSING_LABEL not in levels:
        levels = (*levels, MISSING_LABEL)
    for sign, wanted in ((1.0, level), (-1.0, baseline)):
        if wanted not in levels:
            raise ValueError(
                f"Column {name!r} has no level {wanted!r}; its levels are "
                f"{list(levels)}."
            )
        code = levels.index(wanted)
        if code != at_reference:
            weights[own[code - (code > at_reference)]] += sign
    return f"{name}[{level}] - {name}[{baseline}]", weights


def named_weights(
    features: FeatureMap, given: dict[str, float]
) -> tuple[str, np.ndarray]:
    """Name and weights (c,) of a sum that names its coefficients."""
    known = features.coef_names
    weights = np.zeros(len(known))
    for name, weight in given.items():
        if name not in known:
            raise ValueError(
                f"There is no coefficient {name!r}; coef_names_ has {list(known)[:10]}."
            )
        if known.count(name) > 1:
            raise ValueError(
                f"{known.count(name)} coefficients are called {name!r}: one of a level "
                "and one of a column of that name. Rename the column and fit again."
            )
        weights[known.index(name)] += float(weight)
    text = " ".join(f"{weight:+g} {name}" for name, weight in given.items())
    return text, weights


def contrasts(
    known: Uncertainty,
    coef: np.ndarray,
    named: Sequence[tuple[str, np.ndarray]],
    level: float,
    cov_type: str | None,
) -> Contrast:
    """Estimates and intervals of weighted sums of coefficients.

    Where one of them was removed, or rows do not tell the sum, there is no interval.
    """
    reach = quantile(level, known)
    matrix = np.array([weights for _, weights in named])
    cov_type = choose_kind(known, cov_type)
    covariance = choose_covariance(known, cov_type)[1:, 1:]
    estimate = matrix @ coef
    assert known.centre is not None
    middle = matrix @ known.centre[1:]
    error = errors_of(matrix, covariance)
    error[(matrix[:, coef == 0] != 0).any(1) | known.is_loose(matrix)] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        z = middle / error
    return Contrast(
        tuple(name for name, _ in named),
        estimate,
        error,
        z,
        *interval(estimate, middle, reach * error),
        level,
        cov_type,
    )
