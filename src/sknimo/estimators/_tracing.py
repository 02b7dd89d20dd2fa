"""Explanations that follow features: curves and surfaces, and effects elsewhere."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from sknimo import explain as records
from sknimo.estimators._explaining import Explainable, read_column
from sknimo.explain import find_origin


class Traceable(Explainable):
    """What features do at the reference and at other points."""

    def effect_curve(
        self, feature: int | str, X: Any = None, *, n_grid: int = 101
    ) -> records.EffectCurve:
        """Follow the effect of one feature, all others at the reference.

        Parameters
        ----------
        feature : int or str
            Position or name.
        X : array or data frame, optional
            Rows whose range the grid covers; two standard deviations around the
            reference without them. A category is shown at all of its levels.
        n_grid : int, default=101

        Returns
        -------
        EffectCurve
            Effect and slope at each value; `to_frame()` makes it a data frame.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> curve = est.effect_curve("x0", n_grid=5)
        >>> bool(abs(curve.slope - est.coef_[0]).max() < 1e-9)
        True
        """
        check_is_fitted(self)
        return records.effect_curve(
            self._explained(),
            feature,
            n_grid=n_grid,
            table=None if X is None else self._read_table(X),
            origin=find_origin(X),
        )

    def reference_sensitivity(
        self, X: Any, *, sample_weight: Any = None
    ) -> records.ReferenceSensitivity:
        """Set the coefficients beside the effects at other points.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows whose mean, median and quartiles are the other points.
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        ReferenceSensitivity
            One row per coefficient, with its largest relative change.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.reference_sensitivity(data.X).effects.shape  # features, points
        (5, 4)
        """
        table = self._read_table(X)
        return records.reference_sensitivity(
            self._explained(),
            table,
            weight=read_column(sample_weight, len(table), "sample_weight"),
            origin=find_origin(X),
        )

    def pair_surface(
        self, j: int | str, k: int | str, *, X: Any = None, n_grid: int = 25
    ) -> records.PairSurface:
        """Evaluate two features together, all else at the reference.

        Parameters
        ----------
        j, k : int or str
            Positions or names.
        X : array or data frame, optional
            Rows whose range the grid covers; two standard deviations around the
            reference without them.
        n_grid : int, default=25
            Grid values per feature.

        Returns
        -------
        PairSurface

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.pair_surface("x0", "x1", X=data.X).surface.shape
        (25, 25)
        """
        check_is_fitted(self)
        table = None if X is None else self._read_table(X)
        return records.pair_surface(self._explained(), j, k, n_grid=n_grid, table=table)

    def correction_curve(
        self,
        feature: int | str,
        modifier: int | str,
        *,
        X: Any = None,
        n_grid: int = 50,
    ) -> records.CorrectionCurve:
        """Follow the coefficient of a feature along another, all else at the reference.

        Parameters
        ----------
        feature, modifier : int or str
            Positions or names.
        X : array or data frame, optional
            Rows whose range the grid covers, and whose gauge is used where no training
            rows were summed up.
        n_grid : int, default=50

        Returns
        -------
        CorrectionCurve

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.correction_curve("x0", "x1", X=data.X).local_coef.shape
        (50,)
        """
        check_is_fitted(self)
        table = None if X is None else self._read_table(X)
        swap = None if self._facts is None else self._facts.swap
        if swap is None and table is not None:
            swap = self._swap(table)
        return records.correction_curve(
            self._explained(), feature, modifier, swap=swap, n_grid=n_grid, table=table
        )
