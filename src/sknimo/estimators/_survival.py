"""Survival: Cox's model by the engine of counts; the baseline hazard is its offset."""

import math
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sknimo.checkpoint import Checkpoint
from sknimo.estimators._base import parameters, unchanged_on_failure
from sknimo.estimators._plain import PLAIN, FixedPenalties
from sknimo.estimators._searching import Searching
from sknimo.estimators._survival_task import SurvivalTask
from sknimo.estimators._texts import SEARCHING, document
from sknimo.progress import watch
from sknimo.search import Outcome, Settings
from sknimo.solver import Members, Options, Problem, Solution, solve
from sknimo.survival import FollowUp, Ties, concordance, expose, settle
from sknimo.training import StreamedSet, TrainingSet, assemble

# Rounds of network and hazard in turn; further ones move predictions by little.
NETWORK_ROUNDS = 3
# Searches at most, and the change of log exposures that needs no other. After a change
# by 0.05 a second search moved predictions by a fiftieth of their spread, and no
# concordance; from one round to the next changes fell to a tenth.
SEARCHES = 3
SETTLED = 0.1
# How much precisions of curves have in common, see `AdditiveOptions`: events are fewer
# than rows, and tell less of each. Log partial likelihood of test rows above that of no
# model, mean of 25 splits of three tables, additive model alone: 14.2 at 1, 14.9 at 4,
# 15.1 at 16 and at 64.
POOLING = 16.0
# How clear a curve must be. Of the whole search, 48 splits of three tables: 17.8 at 1,
# 17.9 at 2 and 4, 18.0 at 8.
CURVE_WALD = 4.0
# Standard errors that bends of bags must gain. Where they gained half of one to one (12
# splits of two tables) they took .007 off the concordance of test rows, though they
# added 0.4 to the log partial likelihood.
DIAL_ERRORS = 1.0


_FOLLOW_UP = """X : array or data frame of shape (n_samples, n_features)
            Numeric columns are standardised inside; text, categorical and enum columns
            of a data frame are categories.
        y : structured array, data frame or array of two columns
            The time, and whether the event happened then (1) or the row was censored
            (0). Structured arrays are scikit-survival's, with the event first; frames
            and plain arrays have the time first.
        sample_weight : array of shape (n_samples,), optional
            Row weights. Of tied events the weights are averaged, as in R.
        entry : array of shape (n_samples,), optional
            When rows came under observation (left truncation): at risk are those with
            `entry < t <= time`. Missing is from the beginning.
        strata : array of shape (n_samples,), optional
            Labels of groups with a baseline hazard of their own."""
_SHARED = {
    "ties": """ties : {"efron", "breslow"}, default="efron"
        How events at the same time share their risk set.""",
    "survival attributes": """coef_ : ndarray of shape (n_features,)
        Effect of each feature on the log hazard at the reference, per unit of its
        column; exponentials are hazard ratios. Zeros are exact.
    intercept_ : float
        Always zero: the baseline is the hazard at the reference.
    intercept_at_zero_ : float
        Intercept of `X @ coef_ + intercept_at_zero_`, the log hazard of a model of
        straight lines without a network and its tangent at the reference otherwise.
    baseline_ : Baseline
        Cumulative hazard at the reference, a step function for each stratum.
    event_times_ : ndarray
        Times at which training rows had an event.""",
}


@document(PLAIN | _SHARED)
@parameters
class NIMOSurvival(SurvivalTask, FixedPenalties):
    """Cox regression whose coefficients a network bends, row by row.

    The hazard is `h0(t) exp(sum_j (x_j - reference_j) * coef_j * (1 + g_j(x without
    j)))` with `g_j(reference) = 0` and a baseline `h0` that the rows decide. Network
    off, this is penalised Cox regression.

    Parameters
    ----------
    <parameters>
    <ties>

    Attributes
    ----------
    <survival attributes>
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMOSurvival, datasets
    >>> data = datasets.make_nimo_survival(n_samples=200, random_state=0)
    >>> est = NIMOSurvival(max_iter=0).fit(data.X, data.y)
    >>> est.score(data.X, data.y) > 0.7
    True
    """

    ties: Ties = "efron"

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        entry: Any = None,
        strata: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        <rows>

        Returns
        -------
        self

        Examples
        --------
        >>> from sknimo import NIMOSurvival, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> NIMOSurvival(max_iter=0).fit(data.X, data.y).coef_.shape
        (6,)
        """
        with unchanged_on_failure(self), watch(self.verbose, has_tasks=False):
            rows = self._follow_up = self._begin(X, y, sample_weight, entry, strata)
            start = expose(rows, np.zeros(len(rows)), self.ties).offset
            X = _in_memory(X)
            for _ in self._attempts():
                self._fit(X, y, sample_weight, start)
            eta = self.model_.eta(self._read_table(X))
            self._finish(eta, eta)
        return self

    def _solve(
        self,
        problem: Problem,
        members: Members,
        options: Options,
        start: Tensor | None,
        checkpoint: Checkpoint | None,
        data: TrainingSet | StreamedSet,
    ) -> tuple[Problem, Solution]:
        """Coefficients and hazard until they agree, then the network and both."""
        assert isinstance(data, TrainingSet)
        still, watched = replace(options, max_iter=0), self._watched_rows(data)

        def at(offset: np.ndarray) -> Problem:
            return replace(problem, offset=torch.as_tensor(offset).to(problem.offset))

        def renew(solution: Solution) -> np.ndarray:
            return watched.offset(assemble(data, problem, solution).eta(data.table))

        offset = settle(
            lambda given: renew(solve(at(given), members, still)), data.offset
        )
        solution = solve(at(offset), members, still)
        for k in range(NETWORK_ROUNDS if options.max_iter else 0):
            name = f"round-{k}"
            solution = solve(at(offset), members, options, start, checkpoint, name)
            offset, start = renew(solution), solution.params
        return at(offset), solution


@document(SEARCHING | _SHARED)
@parameters
class NIMOSurvivalCV(SurvivalTask, Searching):
    """Cox regression that finds its own sparsity, smoothness and size.

    The same model as `NIMOSurvival`; penalties are learned from the data, supports are
    selected, the network is refitted within them and the best restarts are averaged.
    When the network does not earn its keep, the nested Cox regression is returned.
    The search holds the baseline hazard fixed, at first that of a ridge regression;
    where what it finds asks for another one, it searches again.

    Parameters
    ----------
    <parameters>
    <ties>

    Attributes
    ----------
    <survival attributes>
    <attributes>

    Notes
    -----
    `oob_prediction_` has log hazards, and the two scores on rows held out are
    concordances.

    Examples
    --------
    >>> from sknimo import NIMOSurvivalCV, datasets
    >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
    >>> est = NIMOSurvivalCV(n_starts=1, cv=2, max_iter=5, random_state=0)
    >>> est.fit(data.X, data.y).predict_median(data.X).shape
    (80,)
    """

    ties: Ties = "efron"
    _settings = replace(
        SurvivalTask._settings,
        additive=replace(
            SurvivalTask._settings.additive,
            pooling=POOLING,
            least_curve_wald=CURVE_WALD,
        ),
        dial_errors=DIAL_ERRORS,
        bags_first=True,
        blend_gain=0.0,
    )

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        entry: Any = None,
        strata: Any = None,
        groups: Any = None,
    ) -> Self:
        """Search and fit.

        Parameters
        ----------
        <rows>
        groups : array of shape (n_samples,), optional
            Rows of one group are held out together.

        Returns
        -------
        self

        Examples
        --------
        >>> from sknimo import NIMOSurvivalCV, datasets
        >>> data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        >>> est = NIMOSurvivalCV(n_starts=1, cv=2, max_iter=5, random_state=0)
        >>> est.fit(data.X, data.y).coef_.shape
        (6,)
        """
        with unchanged_on_failure(self), watch(self.verbose, has_tasks=True):
            rows = self._follow_up = self._begin(X, y, sample_weight, entry, strata)
            X, self._started = _in_memory(X), time.monotonic()
            eta = self._first_eta(X, y, sample_weight, entry, strata)
            offset = expose(rows, eta, self.ties).offset
            for self._round in range(SEARCHES):
                for _ in self._attempts():
                    self._fit(X, y, sample_weight, offset, groups)
                eta = self.model_.eta(self._read_table(X))
                found = self.oob_prediction_
                honest = eta if found is None else np.where(np.isnan(found), eta, found)
                before, offset = offset, expose(rows, honest, self.ties).offset
                if not self.converged_ or _distance(rows, offset - before) < SETTLED:
                    break
            self._finish(eta, honest)
            del self._started, self._round
        return self

    def _first_eta(
        self, X: Any, y: Any, weight: Any, entry: Any, strata: Any
    ) -> np.ndarray:
        """Log hazards of a ridge regression, for a first baseline."""
        names = ("ties", "missing", "categorical", "handle_unknown", "device")
        how = {name: getattr(self, name) for name in names}
        first = NIMOSurvival(penalty="ridge", max_iter=0, **how)
        first._recipe = self._recipe
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the search warns of the same
            return first.fit(X, y, weight, entry=entry, strata=strata).predict(X)

    def _checkpoint_folder(self) -> Any:
        """Every round is a search of its own, with its own states."""
        return self.checkpoint and Path(self.checkpoint) / f"round-{self._round}"

    def _search_settings(self, started: float) -> Settings:
        # Time is that of all rounds.
        return super()._search_settings(self._started)

    def _keep_held_out(
        self,
        outcome: Outcome,
        data: TrainingSet | StreamedSet,
        separated: bool,
        labels: np.ndarray | None,
    ) -> None:
        """Log hazards of the rows as given, by members that have not seen them."""
        assert isinstance(data, TrainingSet)
        self.oob_prediction_ = None
        self.held_out_score_ = self.glm_held_out_score_ = math.nan
        if outcome.held_out_eta is None or outcome.straight_eta is None:
            return
        both = (
            np.where(data.place >= 0, (eta - data.offset)[data.place], np.nan)
            for eta in (outcome.held_out_eta, outcome.straight_eta)
        )
        held_out, straight = (each - self._shift for each in both)
        known = ~np.isnan(held_out)
        rows = self._follow_up.take(known)
        self.oob_prediction_ = held_out
        self.held_out_score_ = concordance(rows, held_out[known])
        self.glm_held_out_score_ = concordance(rows, straight[known])


def _distance(rows: FollowUp, change: np.ndarray) -> float:
    """How far exposures have moved, but for a common factor."""
    mean = np.average(change, weights=rows.weight)
    return float(np.average(np.abs(change - mean), weights=rows.weight))


def _in_memory(X: Any) -> Any:
    """Memory-mapped rows as plain ones: risk sets need all of them."""
    return np.asarray(X) if isinstance(X, np.memmap) else X


for _class in (NIMOSurvival, NIMOSurvivalCV):
    _class.fit.__doc__ = (_class.fit.__doc__ or "").replace("<rows>", _FOLLOW_UP)
