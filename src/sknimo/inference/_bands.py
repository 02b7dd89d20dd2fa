"""Intervals of coefficients and bands of curves, from a covariance that is known.

Shapes: c coefficients, p features, g values of a grid, q terms of a feature.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from sknimo.exceptions import check_option
from sknimo.explain import Origin, make_frame
from sknimo.features import FeatureMap
from sknimo.inference._uncertainty import COLLINEAR, REASONS, Uncertainty

CovType = Literal["nonrobust", "HC3", "cluster"]
COV_TYPES: tuple[CovType, ...] = ("nonrobust", "HC3", "cluster")
# Draws of a normal curve that tell how wide a band for all of it must be.
N_DRAWS = 10_000
# Beyond so many degrees of freedom Student's t is normal.
MANY = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Coefficients with their standard errors and intervals.

    Attributes
    ----------
    names : tuple of str
    coef, std_err, z, lower, upper : ndarray of shape (c,)
        One number per entry of `coef_`, on the scale of the linear predictor; NaN where
        nothing honest can be said.
    centre : ndarray of shape (c,)
        The effect at the reference without shrinkage, which the standard error is of
        and `z` is about; `coef` without a network. The interval lies around it, and
        reaches to the coefficient that is shown where that lies outside.
    notes : tuple of str
        Why an entry has no interval, in a word; empty where it has one.
    level : float
        Share of intervals that hold the true coefficient, in the long run.
    cov_type : str
        What the errors assume of the rows.
    reason : str
        Why there are no intervals at all, in a sentence; empty where there are.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(setting=4, n_samples=80, random_state=0)
    >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
    >>> found = est.conf_int()
    >>> bool((found.lower < est.coef_).all() and (est.coef_ < found.upper).all())
    True
    """

    names: tuple[str, ...]
    coef: np.ndarray
    centre: np.ndarray
    std_err: np.ndarray
    z: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    notes: tuple[str, ...]
    level: float
    cov_type: str
    reason: str = ""

    def to_frame(self) -> Any:
        """One row per entry of `coef_`, as a pandas data frame."""
        names = ("coef", "centre", "std_err", "lower", "upper", "z")
        columns: dict[str, Any] = {"name": list(self.names)}
        columns |= {name: getattr(self, name) for name in names}
        return make_frame(columns | {"note": list(self.notes)}, Origin())


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A curve, with the range that holds it at each value and the one that holds all.

    Attributes
    ----------
    feature : str
    value : ndarray of shape (g,)
        In the units of the column.
    effect, std_err : ndarray of shape (g,)
        Change of the linear predictor from the reference, others at their reference.
    lower, upper : ndarray of shape (g,)
        Interval at each value alone.
    all_lower, all_upper : ndarray of shape (g,)
        Band that holds the whole curve with probability `level`.
    level : float

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(setting=4, n_samples=200, random_state=0)
    >>> est = NIMORegressor(alpha=0, max_iter=0, basis="spline").fit(data.X, data.y)
    >>> est.curve_band("x0", values=[-1.0, 0.0, 1.0]).to_frame().shape
    (3, 7)
    """

    feature: str
    value: np.ndarray
    effect: np.ndarray
    std_err: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    all_lower: np.ndarray
    all_upper: np.ndarray
    level: float

    def to_frame(self) -> Any:
        """One row per value, as a pandas data frame."""
        names = ["value", "effect", "std_err", "lower", "upper"]
        names += ["all_lower", "all_upper"]
        return make_frame({name: getattr(self, name) for name in names}, Origin())


def choose_kind(known: Uncertainty, cov_type: str | None) -> str:
    """What to assume of the rows where nobody says.

    A GLM has the errors that other programs show. A network, or a search, is never
    quite right: there residuals say how large the variance is, where they were kept.
    Groups were given because rows are not independent.
    """
    if cov_type is not None:
        check_option("cov_type", cov_type, COV_TYPES)
        return cov_type
    if known.cluster is not None:
        return "cluster"
    exact = known.method.startswith("exact") or known.hc3 is None
    return "nonrobust" if exact else "HC3"


def choose_covariance(known: Uncertainty, cov_type: str | None = None) -> np.ndarray:
    """The covariance of a kind, with the intercept first; says why it is not there."""
    cov_type = choose_kind(known, cov_type)
    if known.reason:
        raise ValueError(f"This fit has no standard errors. {REASONS[known.reason]}")
    named = {"nonrobust": known.nonrobust, "HC3": known.hc3, "cluster": known.cluster}
    found = named[cov_type]
    if found is None:
        remedy = "Give groups to the fit of a search (the classes named ...CV)."
        if cov_type == "HC3":
            remedy = "Use 'nonrobust', or of a search 'cluster' with groups of one row."
        raise ValueError(f"cov_type={cov_type!r} was not kept with this fit. {remedy}")
    return found


def coefficient_intervals(
    known: Uncertainty,
    features: FeatureMap,
    term_coef: np.ndarray,
    level: float,
    cov_type: str | None = None,
) -> Intervals:
    """Intervals of all coefficients; those that were removed have none."""
    reach = quantile(level, known)
    cov_type = choose_kind(known, cov_type)
    coef = features.coefficients(term_coef)
    there = coef != 0
    loose = known.is_loose(np.eye(len(coef))) & there & (not known.reason)
    there &= ~loose
    word = known.reason or "removed"
    notes = tuple("" if own and not known.reason else word for own in there)
    notes = tuple(np.where(loose, COLLINEAR, notes).tolist())
    error, centre = np.full(len(coef), np.nan), coef
    if not known.reason and known.centre is not None:
        variance = np.diag(choose_covariance(known, cov_type))[1:]
        error = np.where(there, np.sqrt(np.maximum(variance, 0.0)), np.nan)
        centre = known.centre[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = centre / error
    return Intervals(
        features.coef_names,
        coef,
        np.where(np.isnan(error), np.nan, centre),
        error,
        z,
        *interval(coef, centre, reach * error),
        notes,
        level,
        cov_type,
        REASONS.get(known.reason, ""),
    )


def curve_band(
    known: Uncertainty,
    features: FeatureMap,
    term_coef: np.ndarray,
    feature: int,
    values: np.ndarray,
    level: float,
) -> Band:
    """Band of one feature's curve at some values (g,), others at their reference."""
    reach = quantile(level, known)
    choose_covariance(known, "nonrobust")
    known = known.grouped(features.coef_feature)
    columns = features.bases[feature].terms(values)
    own = features.term_feature == feature
    effect, covariance = columns @ term_coef[own], known.terms[feature]
    assert known.term_centre is not None
    middle = columns @ known.term_centre[own]
    error = errors_of(columns, covariance)
    farthest = max(reach, widest(columns, covariance, level))
    return Band(
        features.names[feature],
        values,
        effect,
        error,
        *interval(effect, middle, reach * error),
        *interval(effect, middle, farthest * error),
        level,
    )


def errors_of(sums: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Standard errors of weighted sums, one for each row of the weights."""
    return np.sqrt(np.maximum((sums @ covariance * sums).sum(1), 0.0))


def interval(
    shown: np.ndarray, centre: np.ndarray, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ends around the centre, which reach to what is shown where that lies outside."""
    return np.minimum(centre - width, shown), np.maximum(centre + width, shown)


def widest(columns: np.ndarray, covariance: np.ndarray, level: float) -> float:
    """Errors that hold all of a normal curve at once, by simulation."""
    values, vectors = np.linalg.eigh(covariance)
    root = columns @ (vectors * np.sqrt(np.maximum(values, 0.0)))
    error = np.sqrt((root**2).sum(1))
    moving = error > 1e-12 * max(float(error.max(initial=0.0)), 1e-300)
    if not moving.any():
        return 0.0
    unit = root[moving] / error[moving, None]
    draws = np.random.default_rng(0).standard_normal((N_DRAWS, unit.shape[1]))
    return float(np.quantile(np.abs(draws @ unit.T).max(axis=1), level))


def quantile(level: Any, known: Uncertainty) -> float:
    """Errors to either side: Student's t where the rows tell the dispersion."""
    if not (isinstance(level, int | float | np.floating) and 0 < level < 1):
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}.")
    return t_quantile((1 + float(level)) / 2, known.free)


def t_quantile(probability: float, free: float) -> float:
    """Quantile of Student's t, by Newton's method on the integral of its density."""
    found = NormalDist().inv_cdf(probability)
    if not free < MANY:  # NaN too: there is nothing to estimate the noise from
        return found
    log_peak = math.lgamma((free + 1) / 2) - math.lgamma(free / 2)
    peak = math.exp(log_peak) / math.sqrt(free * math.pi)
    nodes, weights = np.polynomial.legendre.leggauss(80)

    def density(t: Any) -> Any:
        return peak * (1 + t**2 / free) ** (-(free + 1) / 2)

    for _ in range(60):
        below = 0.5 + found / 2 * float(weights @ density(found * (nodes + 1) / 2))
        step = (probability - below) / float(density(found))
        found += step
        if abs(step) < 1e-13 * max(1.0, abs(found)):
            break
    return found
