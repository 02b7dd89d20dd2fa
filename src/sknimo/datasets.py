"""Simulated data with known truth: the synthetic settings of the NIMO paper.

Every setting is a NIMO model whose features are uniform on [-2, 2]:

    signal = intercept + sum_j x_j * s_j(x without j)

The local coefficient s_j is written down once per setting; all else follows from it.
A contribution is x_j * s_j(x), and the coefficient of a feature, its effect at the
reference x = 0, is s_j(0). `make_self_interaction` alone breaks the rule: its s_j
looks at x_j, which no NIMO model can follow.

Shapes: n samples, p features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SyntheticData",
    "make_nimo_classification",
    "make_nimo_regression",
    "make_nimo_survival",
    "make_self_interaction",
    "nimo_signal",
]

Floats: TypeAlias = NDArray[np.float64]
Target: TypeAlias = NDArray[np.float64] | NDArray[np.int64]
Rng: TypeAlias = np.random.Generator | np.random.RandomState
Seed: TypeAlias = int | Rng | None
# Takes the p columns, returns s_j for the leading features; the others have s_j = 0.
LocalCoef: TypeAlias = Callable[..., Sequence[Floats | float]]


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticData:
    """A simulated sample together with the truth behind it.

    Attributes
    ----------
    X : ndarray of shape (n, p)
        Features, uniform on [-2, 2].
    y : ndarray of shape (n,)
        Noisy target; integer labels 0 and 1 for classification.
    signal : ndarray of shape (n,)
        Noise-free eta: the mean of `y`, or the logit for classification.
    coef : ndarray of shape (p,)
        True effects at the reference x = 0, the gradient of the signal there.
    intercept : float
        Signal at the reference.
    contributions : ndarray of shape (n, p)
        True term of each feature; with the intercept they sum to the signal.
    active : ndarray of int
        Indices of the features with a nonzero coefficient.
    modulating : ndarray of int
        Indices of the features that enter the local coefficient of another one.
    names : tuple of str
        Feature names, "x1" to "xp", as the paper numbers them.

    Examples
    --------
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=50, random_state=0)
    >>> total = data.intercept + data.contributions.sum(axis=1)
    >>> bool(abs(total - data.signal).max() < 1e-12)
    True
    """

    X: Floats
    y: Target
    signal: Floats
    coef: Floats
    intercept: float
    contributions: Floats
    active: NDArray[np.intp]
    modulating: NDArray[np.intp]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Setting:
    """How a signal depends on its features; indices start at 0."""

    n_features: int
    local_coef: LocalCoef
    modulating: tuple[int, ...] = ()
    intercept: float = 0.0


def _sigmoid(z: Floats) -> Floats:
    # The tanh form cannot overflow, however large the logit.
    return 0.5 * (1 + np.tanh(0.5 * z))


_REGRESSION: Mapping[int, _Setting] = {
    0: _Setting(
        3,
        lambda x1, x2, *_: (3 * (1 + np.tanh(10 * x2)), -3 * (1 + np.sin(-2 * x1))),
        modulating=(0, 1),
    ),
    1: _Setting(
        5,
        lambda x1, x2, x3, *_: (3 * (1 + (2 * _sigmoid(x2 * x3) - 1)), -2.0, 2.0),
        modulating=(1, 2),
    ),
    2: _Setting(
        10,
        lambda x1, x2, x3, x4, *_: (
            1 + np.tanh(x2 * x3 + np.sin(x4)),
            2 * (1 + np.sin(2 * x1)),
            -(1 + 2 / np.pi * np.arctan(x2 * x4)),
        ),
        modulating=(0, 1, 2, 3),
    ),
    3: _Setting(
        50,
        lambda x1, x2, x3, x4, x5, *_: (
            -2 * (1 + np.tanh(x2 * x4)),
            2 * (1 + 2 / np.pi * np.arctan(x4 - x5)),
            0.0,
            3 * (1 + np.tanh(x2 + np.sin(x5))),
            -(1 + (2 * _sigmoid(x1 * x4) - 1)),
        ),
        modulating=(0, 1, 3, 4),
    ),
    4: _Setting(10, lambda *_: [float(slope) for slope in range(-5, 5)]),
}
_CLASSIFICATION: Mapping[int, _Setting] = {
    1: _Setting(
        3,
        lambda x1, x2, *_: (
            2 * (1 + 2 * np.tanh(x2)),
            -2 * (1 + 3 * np.sin(2 * x1) + np.tanh(2 * x1)),
        ),
        modulating=(0, 1),
        intercept=1.0,
    ),
    2: _Setting(
        10,
        lambda x1, x2, x3, x4, *_: (
            10 * (1 + 2 * np.tanh(2 * x2) + np.sin(x4)),
            20 * (1 + 2 * np.cos(2 * x1)),
            -20 * (1 + 2 * np.arctan(x2 * x4)),
            10.0,
        ),
        modulating=(0, 1, 3),
        intercept=-10.0,
    ),
    3: replace(
        _REGRESSION[3],
        local_coef=lambda *x: [10 * s for s in _REGRESSION[3].local_coef(*x)],
    ),
}
_SURVIVAL = _Setting(
    6, lambda x1, x2, *_: (1 + np.tanh(2 * x2), 0.0, -0.7), modulating=(1,)
)


def _check_random_state(random_state: Seed) -> Rng:
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return random_state
    return np.random.default_rng(random_state)


def _check_setting(settings: Mapping[int, _Setting], setting: int) -> _Setting:
    if setting not in settings:
        options = ", ".join(map(str, settings))
        raise ValueError(f"setting must be one of {options}; got {setting!r}.")
    return settings[setting]


def _local_coef(setting: _Setting, X: Floats) -> Floats:
    """Evaluate s_j at every row; (n, p) like `X`."""
    local_coef = np.zeros_like(X)
    for j, column in enumerate(setting.local_coef(*X.T)):
        local_coef[:, j] = column
    return local_coef


def _simulate(
    setting: _Setting,
    n_samples: int,
    noise: float,
    random_state: Seed,
    labels: bool = False,
) -> SyntheticData:
    """Draw the features, then the noise, then the labels where they are wanted."""
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1; got {n_samples!r}.")
    if not noise >= 0:
        raise ValueError(f"noise must not be negative; got {noise!r}.")
    rng = _check_random_state(random_state)
    n_features = setting.n_features
    X = rng.uniform(-2, 2, size=(n_samples, n_features))
    contributions = X * _local_coef(setting, X)
    signal = setting.intercept + contributions.sum(axis=1)
    eta = signal + noise * rng.standard_normal(n_samples)
    y: Target = eta
    if labels:
        y = (rng.uniform(size=n_samples) < _sigmoid(eta)).astype(np.int64)
    coef = _local_coef(setting, np.zeros((1, n_features)))[0]
    return SyntheticData(
        X=X,
        y=y,
        signal=signal,
        coef=coef,
        intercept=setting.intercept,
        contributions=contributions,
        active=np.flatnonzero(coef),
        modulating=np.array(setting.modulating, dtype=np.intp),
        names=tuple(f"x{j + 1}" for j in range(n_features)),
    )


def _pack(
    data: SyntheticData, return_X_y: bool
) -> SyntheticData | tuple[Floats, Target]:
    return (data.X, data.y) if return_X_y else data


@overload
def make_nimo_regression(
    setting: int = ...,
    n_samples: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[False] = ...,
) -> SyntheticData: ...
@overload
def make_nimo_regression(
    setting: int = ...,
    n_samples: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[True],
) -> tuple[Floats, Target]: ...
def make_nimo_regression(
    setting: int = 1,
    n_samples: int = 200,
    *,
    noise: float = 0.1,
    random_state: Seed = None,
    return_X_y: bool = False,
) -> SyntheticData | tuple[Floats, Target]:
    """Simulate a regression setting of the NIMO paper.

    Features are uniform on [-2, 2] and Gaussian noise is added to these signals, with
    `sigma` the logistic function:

    0. the toy example, 3 features:
       3 x1 (1 + tanh(10 x2)) - 3 x2 (1 + sin(-2 x1))
    1. 5 features:
       3 x1 (1 + (2 sigma(x2 x3) - 1)) - 2 x2 + 2 x3
    2. 10 features:
       x1 (1 + tanh(x2 x3 + sin(x4))) + 2 x2 (1 + sin(2 x1))
       - x3 (1 + 2/pi arctan(x2 x4))
    3. 50 features:
       -2 x1 (1 + tanh(x2 x4)) + 2 x2 (1 + 2/pi arctan(x4 - x5))
       + 3 x4 (1 + tanh(x2 + sin(x5))) - x5 (1 + (2 sigma(x1 x4) - 1))
    4. vanilla linear regression, 10 features:
       -5 x1 - 4 x2 - 3 x3 - 2 x4 - x5 + x7 + 2 x8 + 3 x9 + 4 x10

    In setting 2, x4 has no effect of its own and yet bends two others.

    Parameters
    ----------
    setting : {0, 1, 2, 3, 4}, default=1
        Number of the setting in the paper.
    n_samples : int, default=200
        Number of rows.
    noise : float, default=0.1
        Standard deviation of the Gaussian noise.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness; an int gives the same sample on every call.
    return_X_y : bool, default=False
        Return `(X, y)` alone.

    Returns
    -------
    SyntheticData or tuple of (X, y)
        The sample and the truth behind it, or the sample alone.

    Examples
    --------
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, random_state=0)
    >>> data.X.shape
    (200, 5)
    >>> data.coef
    array([ 3., -2.,  2.,  0.,  0.])
    >>> [data.names[j] for j in data.modulating]
    ['x2', 'x3']
    """
    chosen = _check_setting(_REGRESSION, setting)
    return _pack(_simulate(chosen, n_samples, noise, random_state), return_X_y)


@overload
def make_nimo_classification(
    setting: int = ...,
    n_samples: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[False] = ...,
) -> SyntheticData: ...
@overload
def make_nimo_classification(
    setting: int = ...,
    n_samples: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[True],
) -> tuple[Floats, Target]: ...
def make_nimo_classification(
    setting: int = 1,
    n_samples: int = 200,
    *,
    noise: float = 0.1,
    random_state: Seed = None,
    return_X_y: bool = False,
) -> SyntheticData | tuple[Floats, Target]:
    """Simulate a binary classification setting of the NIMO paper.

    As `make_nimo_regression`, with labels drawn at these logits, noise included:

    1. 3 features:
       2 x1 (1 + 2 tanh(x2)) - 2 x2 (1 + 3 sin(2 x1) + tanh(2 x1)) + 1
    2. 10 features:
       10 x1 (1 + 2 tanh(2 x2) + sin(x4)) + 20 x2 (1 + 2 cos(2 x1))
       - 20 x3 (1 + 2 arctan(x2 x4)) + 10 x4 - 10
    3. 50 features:
       -20 x1 (1 + tanh(x2 x4)) + 20 x2 (1 + 2/pi arctan(x4 - x5))
       + 30 x4 (1 + tanh(x2 + sin(x5))) - 10 x5 (1 + (2 sigma(x1 x4) - 1))

    Parameters
    ----------
    setting : {1, 2, 3}, default=1
        Number of the setting in the paper.
    n_samples : int, default=200
        Number of rows.
    noise : float, default=0.1
        Standard deviation of the Gaussian noise on the logit.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness; an int gives the same sample on every call.
    return_X_y : bool, default=False
        Return `(X, y)` alone.

    Returns
    -------
    SyntheticData or tuple of (X, y)
        The sample and the truth behind it, or the sample alone.

    Notes
    -----
    In setting 2 the cosine does not vanish at the reference, where the bracket of x2
    is 3 and not 1: the coefficient of x2 is 60, not the 20 in front of the bracket.
    No classifier can be right more often than about .895, .988 and .990 of the time.

    Examples
    --------
    >>> from sknimo.datasets import make_nimo_classification
    >>> data = make_nimo_classification(setting=2, random_state=0)
    >>> sorted(set(data.y.tolist()))
    [0, 1]
    >>> data.coef[:5]
    array([ 10.,  60., -20.,  10.,   0.])
    >>> data.intercept
    -10.0
    """
    chosen = _check_setting(_CLASSIFICATION, setting)
    return _pack(_simulate(chosen, n_samples, noise, random_state, True), return_X_y)


def make_nimo_survival(
    n_samples: int = 200, *, random_state: Seed = None
) -> SyntheticData:
    """Simulate survival times whose log hazard is a NIMO model of 6 features.

    The hazard at time t is `0.75 sqrt(t)` times the exponential of

        x1 (1 + tanh(2 x2)) - 0.7 x3

    and two in five rows are censored, at times between 0 and 4.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness; an int gives the same sample on every call.

    Returns
    -------
    SyntheticData
        Its `y` has two columns, the time and whether the event was seen then (1) or
        the row was censored (0); its `signal` is the log hazard ratio.

    Examples
    --------
    >>> from sknimo.datasets import make_nimo_survival
    >>> data = make_nimo_survival(n_samples=50, random_state=0)
    >>> data.y.shape
    (50, 2)
    >>> data.coef
    array([ 1. ,  0. , -0.7,  0. ,  0. ,  0. ])
    """
    rng = _check_random_state(random_state)
    data = _simulate(_SURVIVAL, n_samples, 0.0, rng)
    cumulative = rng.exponential(size=n_samples) * np.exp(-data.signal)
    event, end = (2 * cumulative) ** (2 / 3), rng.uniform(0, 4, size=n_samples)
    return replace(data, y=np.stack([np.minimum(event, end), event <= end], axis=1))


def nimo_signal(setting: int, X: Floats, *, classification: bool = False) -> Floats:
    """Evaluate the signal of a setting of the NIMO paper at rows of one's own.

    The truth elsewhere than at the simulated rows: a difference of signals at the
    reference of a fit, for example, is what its coefficients should be.

    Parameters
    ----------
    setting : int
        Number of the setting in the paper.
    X : array of shape (n, p)
        Rows with the features of the setting.
    classification : bool, default=False
        Whether a setting of `make_nimo_classification` is meant.

    Returns
    -------
    ndarray of shape (n,)
        The mean of the target, or its logit.

    Examples
    --------
    >>> from sknimo.datasets import make_nimo_regression, nimo_signal
    >>> data = make_nimo_regression(setting=2, random_state=0)
    >>> bool((nimo_signal(2, data.X) == data.signal).all())
    True
    """
    settings = _CLASSIFICATION if classification else _REGRESSION
    chosen = _check_setting(settings, setting)
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != chosen.n_features:
        raise ValueError(
            f"setting {setting} has {chosen.n_features} features; X has shape "
            f"{rows.shape}."
        )
    signal: Floats = chosen.intercept + (rows * _local_coef(chosen, rows)).sum(axis=1)
    return signal


@overload
def make_self_interaction(
    n_samples: int = ...,
    n_features: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[False] = ...,
) -> SyntheticData: ...
@overload
def make_self_interaction(
    n_samples: int = ...,
    n_features: int = ...,
    *,
    noise: float = ...,
    random_state: Seed = ...,
    return_X_y: Literal[True],
) -> tuple[Floats, Target]: ...
def make_self_interaction(
    n_samples: int = 200,
    n_features: int = 3,
    *,
    noise: float = 1.0,
    random_state: Seed = None,
    return_X_y: bool = False,
) -> SyntheticData | tuple[Floats, Target]:
    """Simulate a sum of squares, which NIMO on a linear basis cannot fit.

    The signal is x1^2 + ... + xp^2 with features uniform on [-2, 2]. Each feature acts
    on itself alone, so every effect at the reference is zero: `coef` is zero and
    `active` empty, although every feature contributes. Squares as basis functions
    make the model fit again.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    n_features : int, default=3
        Number of squares in the sum.
    noise : float, default=1.0
        Standard deviation of the Gaussian noise.
    random_state : int, Generator, RandomState or None, default=None
        Source of randomness; an int gives the same sample on every call.
    return_X_y : bool, default=False
        Return `(X, y)` alone.

    Returns
    -------
    SyntheticData or tuple of (X, y)
        The sample and the truth behind it, or the sample alone.

    Examples
    --------
    >>> from sknimo.datasets import make_self_interaction
    >>> data = make_self_interaction(random_state=0)
    >>> data.coef
    array([0., 0., 0.])
    >>> bool((data.contributions == data.X**2).all())
    True
    """
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1; got {n_features!r}.")
    # Each contribution is a square: what the model excludes by design.
    chosen = _Setting(n_features, lambda *columns: columns)
    return _pack(_simulate(chosen, n_samples, noise, random_state), return_X_y)
