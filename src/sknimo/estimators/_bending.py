"""The dial after the fit: the same search with more or fewer bends.

Shapes: n rows, q terms, C classes.
"""

import copy
import math
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._explaining import refuse_half
from sknimo.estimators._later import quiet
from sknimo.explain import describe_training
from sknimo.inference import KnownRows, Uncertainty
from sknimo.model import POSITIONS, ClassModels, Dial, FittedModel
from sknimo.search import Outcome
from sknimo.solver import Problem
from sknimo.training import StreamedSet, TrainingSet, check_number


class Bendable(BaseNIMO):
    """A search whose dial can be turned afterwards."""

    bend_: float
    n_members_: int
    held_out_score_: float
    _class: int
    _baseline: int | None
    held_out_gain_: float
    held_out_gain_error_: float
    oob_prediction_: np.ndarray | None
    _dial: Dial | None = None

    def set_bend(
        self,
        bend: float,
        X: Any = None,
        y: Any = None,
        *,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> Self:
        """The same estimator with another share of bends, see `bend_`.

        The search has chosen the share that predicts rows held out best; another may be
        easier to tell. At 0 the model is additive. Coefficients and contributions are
        exact. Standard errors belong to the share that was fitted and are not there;
        `held_out_score_` and `oob_prediction_` follow, gains are not known.

        Parameters
        ----------
        bend : float between 0 and 1
        X : array or data frame of shape (n_samples, n_features), optional
            The training rows, for all that the summary says of rows, and for intervals
            of predictions; without them it has coefficients alone.
        y, sample_weight, offset : array of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        estimator
            A copy; this one stays as it is.

        Examples
        --------
        >>> from sknimo import NIMORegressorCV, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressorCV(n_starts=1, cv=2, random_state=0).fit(data.X, data.y)
        >>> additive = est.set_bend(0)
        >>> additive.n_members_, additive.bend_
        (0, 0.0)
        """
        check_is_fitted(self)
        refuse_half(X, y, "X and y")
        whole = getattr(self, "_whole", None)
        if whole is not None and X is not None:
            raise ValueError(
                "Of more than two classes no summary of rows is kept: leave X and y "
                "out, and give them to for_class."
            )
        dial = self._find_dial(bend)
        view = copy.copy(self)
        if dial is None:  # additive already
            return view
        model = dial.turn(self.model_ if whole is None else whole, float(bend))
        view._show_model(model)
        if isinstance(model, ClassModels) and isinstance(self.model_, FittedModel):
            # Explanations were of one class, and stay so.
            view._show_model(model.contrast(self._class, self._baseline))
        view.bend_ = float(bend)
        view._dial = None if bend == 0 else replace(dial, bend=view.bend_)
        stacked = model if isinstance(model, FittedModel) else model.of_class(0)
        view.n_members_ = int(stacked.modulated.any(-1).sum())
        view.held_out_gain_ = view.held_out_gain_error_ = math.nan
        view.held_out_score_ = dial.score(view.bend_)
        view._uncertainty, view._facts = Uncertainty("bend set"), None
        view._class_errors = view._conformal = view.oob_prediction_ = None
        view._turn_held_out(view.bend_ / dial.bend)
        if X is not None:
            view._describe_rows(view._known_rows(X, y, sample_weight, offset))
        return view

    def _find_dial(self, bend: float) -> Dial | None:
        """The dial; None where it is at 0 already. Refuses what cannot be turned."""
        check_number("bend", bend, Real, 0.0)
        if not bend <= 1:
            raise ValueError(f"bend must lie between 0 and 1, got {bend!r}.")
        if self.model_.family.is_hazard:
            raise ValueError(
                "The baseline hazard belongs to the hazards of this fit, so that its "
                "bend cannot be set. NIMOSurvival(max_iter=0) has none."
            )
        if self._dial is None and self.bend_ == bend == 0:
            return None
        if self._dial is None:
            reason = "the model without bends was not kept with it (rows in blocks, a "
            reason += "search that ran out of time, or a file of an earlier version)"
            if self.bend_ == 0:
                reason = "no member with a network was kept, so that nothing can bend"
            raise ValueError(
                f"bend={bend} cannot be set: {reason}. Fit again, or keep bend_, which "
                f"is {self.bend_}."
            )
        return self._dial

    def _turn_held_out(self, ratio: float) -> None:
        """What members say of rows that they have not seen, at another share."""
        kept = self._held_out
        if kept is None:
            return
        eta = kept.straight + ratio * (kept.eta - kept.straight)
        self._held_out = replace(kept, eta=eta)
        mean = self.model_.family.mean(torch.as_tensor(eta))
        self.oob_prediction_ = mean.numpy()

    def _describe_rows(self, rows: KnownRows) -> None:
        """What the summary says of rows, and intervals of those that are known."""
        with quiet(len(rows.y)):
            self._facts = describe_training(
                self._explained(), rows.table, rows.y, rows.weight, rows.offset
            )
            if rows.held_out is not None:
                self._learn_intervals(rows, separated=False)

    def _keep_dial(
        self, outcome: Outcome, data: TrainingSet | StreamedSet, weight: np.ndarray
    ) -> None:
        """Keep the model without bends, and scores along the way to it.

        `weight` (n,) counts the rows of the problem.
        """
        self._dial, line = None, outcome.straight
        bent, straight = outcome.held_out_eta, outcome.straight_eta
        hazard = outcome.problem.family.is_hazard
        if line is None or bent is None or straight is None or hazard:
            return
        if not outcome.dial > 0:
            return
        scores = [
            score_rows(outcome.problem, straight + w * (bent - straight), weight)
            for w in POSITIONS / outcome.dial
        ]
        self._dial = Dial(
            outcome.dial,
            line.coef.cpu().numpy() * data.y_scale,
            line.intercept.cpu().numpy() * data.y_scale + data.y_mean,
            np.array(scores),
        )


def score_rows(problem: Problem, eta: np.ndarray, weight: np.ndarray) -> float:
    """Score of linear predictors (n,), or of probabilities of classes for (n, C)."""
    y, predicted = problem.y.cpu(), torch.as_tensor(eta)
    if eta.ndim == 1:
        there = predicted.isfinite()
        rows = y, predicted, torch.as_tensor(weight).to(predicted), problem.offset.cpu()
        return problem.family.explained(*(part[there] for part in rows))
    known = np.isfinite(eta).all(1)
    place, mean = y.long().numpy(), predicted.softmax(1).numpy()
    return score_classes(place[known], mean[known], weight[known])


def score_classes(place: np.ndarray, mean: np.ndarray, weight: np.ndarray) -> float:
    """Share of the variance of all classes that probabilities (n, C) explain."""
    truth = np.eye(mean.shape[1])[place]
    spread = weight @ (truth - np.average(truth, axis=0, weights=weight)) ** 2
    left = weight @ (truth - mean) ** 2
    return 1 - float(left.sum() / spread.sum()) if spread.sum() > 0 else math.nan
