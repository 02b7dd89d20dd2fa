"""What survival models predict: risks, curves, times, and how good their order is."""

from collections.abc import Hashable
from typing import Any, NoReturn

import numpy as np

from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._intervals import read_level
from sknimo.explain import find_origin
from sknimo.inference import PredictionIntervals
from sknimo.survival import Baseline, StepFunctions, concordance
from sknimo.training import read_follow_up, read_strata, read_weight


class ForeseesTimes(BaseNIMO):
    """Predictions from log hazards and a baseline."""

    baseline_: Baseline
    event_times_: np.ndarray

    def predict(self, X: Any) -> np.ndarray:
        """Logarithm of the hazard, relative to that at the reference.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Larger is a greater risk; its exponential is a hazard ratio.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> est.predict(data.X[:3]).shape
        (3,)
        """
        return self._eta(X)

    def predict_survival_function(
        self, X: Any, times: Any = None, *, strata: Any = None
    ) -> StepFunctions:
        """Chance to be without the event at given times.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        times : array of shape (k,), optional
            By default all times at which training rows had an event; functions at
            chosen times stay where they are from one of these to the next.
        strata : array of shape (n_samples,), optional
            Needed where the fit had strata.

        Returns
        -------
        StepFunctions
            An array (`values`, `times`), a list of functions, or `to_frame()`.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> est.predict_survival_function(data.X[:3], times=[0.0, 1.0]).values[:, 0]
        array([1., 1., 1.])
        """
        hazard = self.predict_cumulative_hazard_function(X, times, strata=strata)
        return StepFunctions(hazard.times, np.exp(-hazard.values), 1.0)

    def predict_cumulative_hazard_function(
        self, X: Any, times: Any = None, *, strata: Any = None
    ) -> StepFunctions:
        """Cumulative hazard at given times, minus the logarithm of survival.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        times : array of shape (k,), optional
            By default all times at which training rows had an event.
        strata : array of shape (n_samples,), optional
            Needed where the fit had strata.

        Returns
        -------
        StepFunctions

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> curves = est.predict_cumulative_hazard_function(data.X[:3])
        >>> bool((curves.values[:, 1:] >= curves.values[:, :-1]).all())
        True
        """
        eta = self._eta(X)
        at = self.event_times_ if times is None else _read_grid(times)
        stratum = self._strata_of(strata, len(eta))
        with np.errstate(over="ignore"):
            risk = np.exp(eta)[:, None]
        return StepFunctions(at, risk * self.baseline_.at(at, stratum), 0.0)

    def predict_median(self, X: Any, *, strata: Any = None) -> np.ndarray:
        """Time by which half of such rows have had the event; infinite if never seen.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        strata : array of shape (n_samples,), optional
            Needed where the fit had strata.

        Returns
        -------
        ndarray of shape (n_samples,)

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> est.predict_median(data.X[:3]).shape
        (3,)
        """
        return self._time_at(X, strata, 0.5)

    def predict_interval(  # type: ignore[override]
        self, X: Any, *, level: float = 0.9, strata: Any = None
    ) -> PredictionIntervals:
        """Times between which the event of such a row lies, by its survival curve.

        The model is taken for true: how well it is known is not in the interval.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        level : float, default=0.9
            Chance that the event lies within; half of the rest lies on either side.
        strata : array of shape (n_samples,), optional
            Needed where the fit had strata.

        Returns
        -------
        PredictionIntervals
            `prediction` is the median; infinite where the curve does not go so far
            down.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> found = (
        ...     NIMOSurvival(max_iter=0).fit(data.X, data.y).predict_interval(data.X)
        ... )
        >>> bool((found.lower <= found.prediction).all())
        True
        """
        read_level(level)
        return PredictionIntervals(
            self._time_at(X, strata, 0.5),
            self._time_at(X, strata, 0.5 + level / 2),
            self._time_at(X, strata, 0.5 - level / 2),
            float(level),
            "next",
            find_origin(X),
        )

    def calibrate_interval(self, X: Any, y: Any, **given: Any) -> NoReturn:
        """Not for survival: intervals of times follow from the curves.

        Examples
        --------
        >>> from sknimo import NIMOSurvival
        >>> try:
        ...     NIMOSurvival().calibrate_interval(None, None)
        ... except ValueError:
        ...     print("nothing to calibrate")
        nothing to calibrate
        """
        raise ValueError(
            "Intervals of times follow from the survival curves, so that there is "
            "nothing to calibrate. Use predict_interval as it is."
        )

    def _time_at(self, X: Any, strata: Any, share: float) -> np.ndarray:
        """First time at which survival is down to a share, (n,); infinite if none."""
        eta = self._eta(X)
        stratum = self._strata_of(strata, len(eta))
        out = np.full(len(eta), np.inf)
        for s, hazard in enumerate(self.baseline_.hazard):
            own = np.flatnonzero(stratum == s)
            # The first time with `H exp(eta) >= -log(share)`.
            with np.errstate(over="ignore"):
                place = np.searchsorted(hazard, -np.log(share) * np.exp(-eta[own]))
            reached = place < len(hazard)
            out[own[reached]] = self.baseline_.times[s][place[reached]]
        return out

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        entry: Any = None,
        strata: Any = None,
    ) -> float:
        """Harrell's concordance: the share of pairs whose risks are in the right order.

        1 is perfect, 1/2 says nothing. Pairs are of one stratum; in each one row has
        the event while the other is at risk and outlives it.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> 0.5 < est.score(data.X, data.y) < 1
        True
        """
        eta = self._eta(X)
        weight = read_weight(sample_weight, len(eta))
        rows = read_follow_up(y, weight, entry=entry, strata=strata)
        return concordance(rows, eta)

    def _strata_of(self, strata: Any, n_rows: int) -> np.ndarray:
        """Number of each row's stratum in the baseline."""
        known: tuple[Hashable, ...] = self.baseline_.labels
        if known == (None,):
            return np.zeros(n_rows, dtype=int)
        return read_strata(strata, n_rows, known)[0]


def _read_grid(times: Any) -> np.ndarray:
    """Times to evaluate curves at, which increase as those of step functions do."""
    at = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if at.ndim != 1 or at.size == 0 or not np.isfinite(at).all():
        raise ValueError(f"times must be finite numbers, got {times!r}.")
    if not (np.diff(at) > 0).all():
        raise ValueError(
            f"times must increase, got {times!r}. Sort them, and leave out repetitions."
        )
    return at
