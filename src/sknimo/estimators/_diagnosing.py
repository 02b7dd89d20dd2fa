"""How good predictions are, how they move, and when they extrapolate."""

import warnings
from typing import Any, ClassVar

import numpy as np
import torch

from sknimo.diagnostics import (
    Calibration,
    Dependence,
    Residuals,
    calibrate,
    depend,
)
from sknimo.estimators._explaining import Explainable
from sknimo.estimators._later import known_of
from sknimo.exceptions import ExtrapolationWarning
from sknimo.explain import Reach, effect_curve, mean_of, restore_reach, spread_rows
from sknimo.training import read_offset

# Rows that a dependence is computed from, spread evenly.
MAX_ROWS = 500


class Diagnosable(Explainable):
    """An estimator that judges predictions, moves them, and knows how far rows reach.

    On training rows everything looks too good: give rows that the fit has not seen.
    """

    _response: ClassVar[str] = "prediction"

    def _judge(
        self, X: Any, y: Any, offset: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Target as numbers, linear predictor and mean of each row, (n,)."""
        table, truth = self._read_pairs(X, y)
        return truth, *self._respond(table, self._offset_for(y, offset, len(table)))

    def _respond(
        self, table: np.ndarray, offset: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Linear predictor and mean response of each row, (n,)."""
        model = self._explained()
        eta = model.eta(table, offset)
        return eta, mean_of(model.family, eta)

    def calibration(
        self, X: Any, y: Any, *, offset: Any = None, n_bins: int = 10
    ) -> Calibration:
        """Set predictions beside what happened, in bins.

        Bins have similar predictions; of survival, whose predictions are the events
        that are expected until a row's own time, similar risks.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        offset : array of shape (n_samples,), optional
        n_bins : int, default=10

        Returns
        -------
        Calibration

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
        >>> len(est.calibration(data.X, data.y, n_bins=4).observed)
        4
        """
        truth, eta, mean = self._judge(X, y, offset)
        family, by = self._explained().family, None
        known = self._offset_for(y, offset, len(eta))
        if family.is_hazard and known is not None:
            # Expected events grow with the time until the row's own event, so that they
            # know of what they are compared with; risks do not.
            by = eta - known
        return calibrate(
            truth, mean, is_probability=family.is_binary, n_bins=n_bins, by=by
        )

    def residuals(self, X: Any, y: Any, *, offset: Any = None) -> Residuals:
        """Deviance residuals of every row.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        offset : array of shape (n_samples,), optional

        Returns
        -------
        Residuals

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
        >>> est.residuals(data.X, data.y).residual.shape
        (80,)
        """
        truth, eta, mean = self._judge(X, y, offset)
        family = self._explained().family
        loss = family.loss(torch.as_tensor(truth), torch.as_tensor(eta)).numpy()
        deviance = 2 * np.maximum(loss, 0.0)
        scale = deviance.mean() if family.estimates_dispersion else 1.0
        signed = np.sign(truth - mean) * np.sqrt(deviance / (scale or 1.0))
        return Residuals(mean, signed)

    def dependence(
        self, X: Any, feature: int | str, *, offset: Any = None, n_grid: int = 41
    ) -> Dependence:
        """Move one feature through its values in every row, on the response scale.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows whose other values are kept; of many 500 are taken.
        feature : int or str
            Position or name.
        offset : array of shape (n_samples,), optional
        n_grid : int, default=41

        Returns
        -------
        Dependence
            `mean` is the partial dependence, `rows` has a line for each row.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
        >>> est.dependence(data.X, 0, n_grid=5).rows.shape
        (80, 5)
        """
        table = self._read_table(X)
        known = read_offset(offset, len(table))
        model = self._explained()
        curve = effect_curve(model, feature, n_grid=n_grid, table=table)
        j = model.features.names.index(curve.feature)
        rows = spread_rows(len(table), MAX_ROWS)
        lines = depend(
            lambda moved: self._respond(moved, known[rows])[1],
            table[rows],
            j,
            curve.value,
        )
        return Dependence(
            feature=curve.feature,
            grid=curve.value,
            levels=None if curve.labels is None else tuple(curve.labels),
            mean=lines.mean(axis=0),
            rows=lines,
            response=self._response,
        )

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
        table = self._read_table(X, anywhere=True)
        excess = self.model_.features.excess(table)
        return excess.max(axis=1, initial=0.0)

    def far_rows(self, X: Any) -> np.ndarray:
        """Rows that lie far from all training rows: predictions warn of them.

        In a numeric column that the model uses such a row is more than three standard
        deviations beyond the training range and at least twice as far from the
        reference as its end; or in all of them together its Mahalanobis distance is
        more than twice that of any training row. Columns that are held at
        the end of a range (`clip_inputs="all"`, curves that the data chose) do not
        count.

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
        table = self._read_table(X, anywhere=True)
        return self._reach().find_far(table)

    def _reach(self) -> Reach:
        """What is known of the training rows; of some files the ranges alone."""
        known: Reach | None = known_of(self, "_facts")
        if known is not None:
            return known
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
