"""What survival adds: follow-ups in, risks, curves and concordance out."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._intervals import read_level
from sknimo.exceptions import DataWarning, check_option
from sknimo.explain import find_origin
from sknimo.families import COX, Family
from sknimo.features import column_names, take_column, take_columns
from sknimo.inference import PredictionIntervals, Watched
from sknimo.model import FittedModel
from sknimo.rows import RowBlocks
from sknimo.solver import Problem
from sknimo.survival import (
    TIES,
    Baseline,
    FollowUp,
    StepFunctions,
    Ties,
    concordance,
    expose,
)
from sknimo.training import (
    NumberReader,
    StreamedSet,
    Target,
    TargetReader,
    TrainingSet,
    check_events,
    read_follow_up,
    read_strata,
    read_times,
    read_weight,
)

if TYPE_CHECKING:
    from sknimo.report import ModelCard, Report, Sample

# The left side of a formula, and what is on the right.
SURV = r"\s*Surv\(\s*(?P<time>\w+)\s*,\s*(?P<event>\w+)\s*\)\s*~(?P<features>.*)"


class SurvivalTask(BaseNIMO):
    """Times to an event; the model predicts the logarithm of the hazard."""

    ties: Ties
    baseline_: Baseline
    event_times_: np.ndarray
    _measure = "concordance"
    # Of the fit that is under way: its rows and what the baseline took; of a search
    # also when it began, and its round.
    _follow_up: FollowUp
    _shift: float
    _started: float
    _round: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _family(self) -> Family:
        return COX

    def _target_reader(self) -> TargetReader:
        return NumberReader()

    def _read_target(self, y: Any) -> Target:
        """Events as numbers; their times are in the offset."""
        return Target(read_times(y)[1].astype(np.float64))

    def _begin(
        self, X: Any, y: Any, sample_weight: Any, entry: Any, strata: Any
    ) -> FollowUp:
        """Read the follow-up of the training rows."""
        check_option("ties", self.ties, TIES)
        if isinstance(X, RowBlocks):
            raise ValueError(
                "Risk sets need the times of all rows, but rows come in blocks. Read "
                "them into one table."
            )
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None. Give the time and the event of every row."
            )
        n_rows = len(read_times(y)[0])
        weight = read_weight(sample_weight, n_rows)
        rows = read_follow_up(y, weight, entry=entry, strata=strata)
        self._check_n_samples(n_rows, n_rows)
        check_events(rows)
        return rows

    def _watched_rows(self, data: TrainingSet | StreamedSet) -> Watched:
        assert isinstance(data, TrainingSet)  # `_begin` has seen to it
        used = np.flatnonzero(data.place >= 0)
        return Watched(self._follow_up.take(used), data.place[used], self.ties)

    def _keep_model(
        self,
        model: FittedModel,
        data: TrainingSet | StreamedSet,
        problem: Problem,
        room: float,
    ) -> bool:
        """Move the intercept into the hazard: `eta` is zero at the reference."""
        self._shift = model.base_value
        offset = problem.offset.cpu().numpy() + self._shift
        model = replace(model, intercept=torch.zeros_like(model.intercept))
        return super()._keep_model(model, replace(data, offset=offset), problem, room)

    def _finish(self, eta: np.ndarray, honest: np.ndarray) -> None:
        """Keep the hazard at the reference, and deviances of the rows under it.

        `eta` (n_samples,) is that of the rows as given, `honest` one by which their
        events are expected: fits that saw a row expect its event too surely.
        """
        rows = self._follow_up
        del self._follow_up, self._shift
        self._show_baseline(expose(rows, honest, self.ties).baseline)
        facts, offset = self._facts, self.baseline_.watch(rows)
        assert facts is not None
        truth = rows.event.astype(np.float64)
        constant = np.log(rows.weight @ truth / (rows.weight @ np.exp(offset)))
        losses = (
            COX.loss(torch.as_tensor(truth), torch.as_tensor(at + offset))
            for at in (eta, constant)
        )
        found, null = (2 * float(rows.weight @ loss.numpy()) for loss in losses)
        without = found + facts.glm_deviance - facts.deviance
        self._facts = replace(
            facts, deviance=found, null_deviance=null, glm_deviance=without
        )

    def _show_baseline(self, baseline: Baseline) -> None:
        self.baseline_ = baseline
        self.event_times_ = baseline.all_times

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
        the event while the other is at risk and outlives it. Rows of a model that was
        fitted with `entry` or `strata` need theirs, or pairs are wrong: it warns.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> 0.5 < est.score(data.X, data.y) < 1
        True
        """
        eta = self._eta(X)
        known, given = self.baseline_, {"entry": entry, "strata": strata}
        fitted = {"entry": known.entered, "strata": len(known.labels) > 1}
        if left := " and ".join(k for k in given if fitted[k] and given[k] is None):
            warnings.warn(
                f"The model was fitted with {left}, and is scored without: rows that "
                f"were never at risk together are compared. Give score their {left}.",
                DataWarning,
                stacklevel=2,
            )
        weight = read_weight(sample_weight, len(eta))
        rows = read_follow_up(y, weight, entry=entry, strata=strata)
        return concordance(rows, eta)

    def _strata_of(self, strata: Any, n_rows: int) -> np.ndarray:
        """Number of each row's stratum in the baseline."""
        known: tuple[Hashable, ...] = self.baseline_.labels
        if known == (None,):
            return np.zeros(n_rows, dtype=int)
        return read_strata(strata, n_rows, known)[0]

    def report(  # type: ignore[override]
        self,
        path: str | os.PathLike[str] | None,
        X: Any,
        y: Any,
        *,
        X_test: Any = None,
        y_test: Any = None,
        sample_weight: Any = None,
        entry: Any = None,
        strata: Any = None,
        sample_weight_test: Any = None,
        entry_test: Any = None,
        strata_test: Any = None,
        rows: int | Sequence[int] | None = None,
        row_names: Sequence[str] | None = None,
        title: str | None = None,
    ) -> Report:
        """Write a report as one HTML file that needs nothing else.

        As for other estimators, with survival curves by predicted risk beside
        Kaplan-Meier's; predictions are the events expected while a row was watched.

        Parameters
        ----------
        path : str, path or None
            Where to write; None only returns the report.
        X, y : as in `fit`
            Rows that effects, figures and checks refer to; best the training rows.
        X_test, y_test : like X and y, optional
            Rows that the model has not seen, to judge it by.
        sample_weight, entry, strata : array of shape (n_samples,), optional
            As in `fit`.
        sample_weight_test, entry_test, strata_test : array, optional
            The same for `X_test`.
        rows, row_names, title : optional
            As for other estimators.

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
        >>> "Kaplan-Meier" in est.report(None, data.X, data.y).html
        True
        """
        return super().report(
            path,
            X,
            y,
            X_test=X_test,
            y_test=y_test,
            sample_weight=sample_weight,
            offset={"entry": entry, "strata": strata},
            sample_weight_test=sample_weight_test,
            offset_test={"entry": entry_test, "strata": strata_test},
            rows=rows,
            row_names=row_names,
            title=title,
        )

    def _read_sample(self, X: Any, y: Any, weight: Any, offset: Any) -> Sample:
        """Rows of a report; their exposures follow from entry and strata."""
        sample = super()._read_sample(X, y, weight, None)
        rows = self._watched(y, sample.weight, **offset)
        exposure = self.baseline_.watch(rows)
        return replace(sample, follow_up=rows, offset=exposure, target="the events")

    def _model_card(self) -> ModelCard:
        return replace(super()._model_card(), baseline=self.baseline_)

    def _watched(
        self, y: Any, weight: Any = None, entry: Any = None, strata: Any = None
    ) -> FollowUp:
        """The follow-up of rows in the strata of the model."""
        if weight is None:
            weight = np.ones(len(read_times(y)[0]))
        if self.baseline_.entered and entry is None:
            raise ValueError(
                "The model was fitted with entry: give that of these rows as well, "
                "zero for those that were watched from the beginning."
            )
        known = self.baseline_.labels
        if known == (None,):
            return read_follow_up(y, weight, entry=entry)
        return read_follow_up(y, weight, entry=entry, strata=strata, known=known)

    def exposure(self, y: Any, *, entry: Any = None, strata: Any = None) -> np.ndarray:
        """Logarithm of the baseline hazard that each row saw, shape (n_samples,).

        Together with the log risk it makes the number of events that are expected of a
        row: the `offset` of `residuals`, `calibration` and whatever compares these with
        what happened. It follows from the times alone unless the model was fitted with
        `entry` or `strata`.

        Parameters
        ----------
        y : times and events, as in `fit`
        entry, strata : array of shape (n_samples,), optional
            As in `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> entry = data.y[:, 0] / 2
        >>> est = NIMOSurvival(alpha=0, max_iter=0).fit(data.X, data.y, entry=entry)
        >>> seen = est.exposure(data.y, entry=entry)
        >>> expected = est.residuals(data.X, data.y, offset=seen).predicted
        >>> bool(np.isclose(expected.sum(), data.y[:, 1].sum()))
        True
        """
        check_is_fitted(self)
        return self.baseline_.watch(self._watched(y, entry=entry, strata=strata))

    def _offset_for(self, y: Any, offset: Any, n_rows: int) -> np.ndarray | None:
        """Exposures of rows with these times, unless they are given."""
        known = self.baseline_
        if offset is None and (known.entered or len(known.labels) > 1):
            raise ValueError(
                "With entry or strata the exposure of a row does not follow from its "
                "time: give offset=est.exposure(y, entry=..., strata=...)."
            )
        if offset is None:
            return self.exposure(y)
        return super()._offset_for(y, offset, n_rows)

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        *,
        sample_weight: Any = None,
        entry: Any = None,
        strata: Any = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        **params: Any,
    ) -> Self:
        """Fit the model that a formula describes.

        Parameters
        ----------
        formula : str
            `Surv(time, event) ~` and features joined by `+`, as for other estimators.
        data : data frame
            Has the columns that the formula names.
        sample_weight, entry, strata : array of shape (n_samples,), optional
            As in `fit`.
        functions : dict of str to callable, optional
            Python functions that expressions may call by name.
        **params
            Parameters of the estimator.

        Returns
        -------
        estimator
            Fitted.

        Examples
        --------
        >>> import pandas as pd
        >>> from sknimo import NIMOSurvival, datasets
        >>> sample = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> data = pd.DataFrame(sample.X[:, :3], columns=["age", "dose", "bmi"])
        >>> data["weeks"], data["died"] = sample.y.T
        >>> est = NIMOSurvival.from_formula("Surv(weeks, died) ~ .", data, max_iter=0)
        >>> print(*est.coef_names_)
        age dose bmi
        """
        found = re.fullmatch(SURV, str(formula))
        names = column_names(data) or []
        if found is None or not {found["time"], found["event"]} <= {*names}:
            raise ValueError(
                "A formula of survival begins with Surv(time, event) ~, two columns of "
                f"data; got {formula!r}."
            )
        time, event = found["time"], found["event"]
        rest = take_columns(data, {name: None for name in names if name != event})
        right = f"{time} ~ {found['features']}"
        est, _ = cls._follow(right, rest, functions, params)
        columns = [take_column(data, name) for name in (time, event)]
        y = np.stack([np.asarray(part, dtype=float) for part in columns], axis=1)
        more = {"entry": entry, "strata": strata}
        return est.fit(rest, y, sample_weight, **more)


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
