"""Estimators that say when they extrapolate."""

import warnings
from typing import Any

import numpy as np

from sknimo.estimators._explaining import Explainable
from sknimo.exceptions import ExtrapolationWarning
from sknimo.explain import Reach, restore_reach


class Reaching(Explainable):
    """An estimator that knows how far its training rows reach."""

    def extrapolation_score(self, X: Any) -> np.ndarray:
        """How far each row lies beyond the training range.

        Zero within the range of every column. Beyond it, distance to the range in
        standard deviations of the training rows, largest over columns. Levels, missing
        values and columns that were constant in training do not count.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> float(est.extrapolation_score(data.X).max())
        0.0
        >>> bool(est.extrapolation_score(10 * data.X).max() > 5)
        True
        """
        excess = self.model_.features.excess(self._read_table(X, anywhere=True))
        return excess.max(axis=1, initial=0.0)

    def far_rows(self, X: Any) -> np.ndarray:
        """Rows that lie far from all training rows: predictions warn of them.

        In a numeric column that the model uses such a row is more than three standard
        deviations beyond the training range and at least twice as far from the
        reference as its end; or in all of them together its Mahalanobis distance is
        more than twice that of any training row. Columns that are clipped
        (`clip_inputs="all"`) do not count.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,), bool

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> int(est.far_rows(data.X).sum())
        0
        >>> bool(est.far_rows(100 * data.X).any())
        True
        """
        return self._reach().find_far(self._read_table(X, anywhere=True))

    def _reach(self) -> Reach:
        """What is known of the training rows; of some files the ranges alone."""
        facts = self._facts
        return restore_reach(self.model_) if facts is None else facts.reach

    def _warn_far(self, table: np.ndarray) -> None:
        """Warn once of all rows that are far."""
        reach = self._reach()
        far = np.flatnonzero(reach.find_far(table))
        if len(far) == 0:
            return
        features = self.model_.features
        found = reach.worst(table[far])
        row, name = far[found.row], features.names[found.column]
        what = f"no value alone but their combination, above all {name!r}"
        if found.is_alone:
            low, high = features.low[found.column], features.high[found.column]
            value = table[row, found.column]
            what = f"{name!r} is {value:.5g} where they have {low:.5g} to {high:.5g}"
        warnings.warn(
            f"{len(far)} of {len(table)} rows lie far from all training rows, where "
            f"predictions are guesses; the furthest is row {row}: {what}. Check "
            'these rows, or fit with clip_inputs="all" to hold predictions at the '
            "training range.",
            ExtrapolationWarning,
            stacklevel=4,
        )
