"""Explanations as methods: read the input, call a function, return a record.

Numbers happen in `explain`. Where the estimator keeps `_facts` of its training rows,
gauge, modifiers and summary refer to those, otherwise to the rows of each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sknimo import explain as records
from sknimo.explain import MAX_ROWS, Method, TrainingFacts, find_origin
from sknimo.model import FittedModel


class Explainable:
    """Explanations of a fitted estimator."""

    model_: FittedModel
    _facts: TrainingFacts | None = None

    if TYPE_CHECKING:  # the estimator brings its own

        def _explained(self) -> FittedModel: ...

        def _read_table(self, X: Any) -> np.ndarray: ...

        def _read_target(self, y: Any) -> Any: ...

    def _swap(self, table: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """Gauge of the training rows, or of these where none were kept."""
        if self._facts is not None:
            return self._facts.swap
        return records.fit_gauge(self._explained(), table, weight)

    def explain(
        self,
        X: Any,
        *,
        method: Method = "min_energy",
        offset: Any = None,
        max_exact: int = 12,
        n_permutations: int = 64,
        random_state: int = 0,
    ) -> records.Explanation:
        """Explain the prediction of every row.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        method : {"min_energy", "native", "integrated_gradients", "shapley"}, \
default="min_energy"
            How contributions are shared out. "min_energy" and "native" multiply the
            feature by its local coefficient; the first splits products of features in
            a canonical way, the second as the network happens to hold them. The other
            two depend on the fitted function alone. All sum exactly.
        offset : array of shape (n_samples,), optional
            Known part of the linear predictor.
        max_exact : int, default=12
            Shapley values are exact up to this many features with a role.
        n_permutations, random_state : int, default=64 and 0
            Permutations drawn beyond that, in antithetic pairs, and their seed.

        Returns
        -------
        Explanation
        """
        records.check_method(method)
        table = self._read_table(X)
        return records.explain(
            self._explained(),
            table,
            method=method,
            swap=None if method == "native" else self._swap(table),
            directed=self._directed(table),
            offset=_read_column(offset, len(table), "offset"),
            origin=find_origin(X),
            max_exact=max_exact,
            n_permutations=n_permutations,
            seed=random_state,
        )

    def _directed(self, table: np.ndarray) -> np.ndarray:
        """Who bends whom, over the training rows or some of these."""
        if self._facts is not None:
            return self._facts.effects.directed
        return records.rank_modifiers(self._explained(), table, self._swap(table))

    def effects(
        self,
        X: Any,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        max_rows: int | None = MAX_ROWS,
    ) -> records.Effects:
        """Sum up what each feature does over the rows of `X`.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional
        offset : array of shape (n_samples,), optional
            Matters for effects on the response scale alone.
        max_rows : int or None, default=1000
            Rows, evenly spaced, over which "who bends whom" and the contrasts of more
            than two levels are averaged.

        Returns
        -------
        Effects
            One row per feature, and one per level in `levels`; `to_frame()` makes
            either a data frame.
        """
        table = self._read_table(X)
        weight = _read_column(sample_weight, len(table), "sample_weight")
        return records.effects(
            self._explained(),
            table,
            weight=weight,
            offset=_read_column(offset, len(table), "offset"),
            swap=self._swap(table, weight),
            max_rows=max_rows,
            origin=find_origin(X),
        )

    def interactions(
        self, X: Any, *, sample_weight: Any = None, max_rows: int | None = MAX_ROWS
    ) -> records.Interactions:
        """Measure how features act on each other's effects.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        sample_weight : array of shape (n_samples,), optional
        max_rows : int or None, default=1000
            Rows, evenly spaced, that are averaged over; None takes all.

        Returns
        -------
        Interactions
            The directed matrix "k bends the coefficient of j" and the symmetric
            strength of every pair.
        """
        table = self._read_table(X)
        weight = _read_column(sample_weight, len(table), "sample_weight")
        return records.interactions(
            self._explained(),
            table,
            weight=weight,
            swap=self._swap(table, weight),
            max_rows=max_rows,
            origin=find_origin(X),
        )

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
        """
        table = self._read_table(X)
        return records.reference_sensitivity(
            self._explained(),
            table,
            weight=_read_column(sample_weight, len(table), "sample_weight"),
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
        """
        check_is_fitted(self)
        table = None if X is None else self._read_table(X)
        swap = None if self._facts is None else self._facts.swap
        if swap is None and table is not None:
            swap = self._swap(table)
        return records.correction_curve(
            self._explained(), feature, modifier, swap=swap, n_grid=n_grid, table=table
        )

    def price_of_nonlinearity(
        self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None
    ) -> records.Price:
        """Price the network's corrections in deviance.

        Coefficients are solved again on the rows given, so pass the training rows.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        Price
            Deviance of the nested GLM, of the model, and of the model with the
            correction of each feature switched off.
        """
        table = self._read_table(X)
        return records.price_of_nonlinearity(
            self._explained(),
            table,
            self._read_target(y).values,
            weight=_read_column(sample_weight, len(table), "sample_weight"),
            offset=_read_column(offset, len(table), "offset"),
            origin=find_origin(X),
        )

    def first_layer(self) -> records.FirstLayer:
        """First-layer weights of the network, the paper's picture of its sparsity."""
        check_is_fitted(self)
        return records.first_layer(self.model_)

    def summary(self) -> records.Summary:
        """Sum up the fit in one table, as text and as HTML.

        Returns
        -------
        Summary
            Prints itself in at most 80 columns; notebooks show it as HTML.
        """
        check_is_fitted(self)
        return records.summarise(
            self.model_,
            self._facts,
            title=f"{type(self).__name__}: coefficients at the reference",
            certificate=getattr(self, "certificate_", None),
            converged=getattr(self, "converged_", None),
            reference=getattr(self, "reference", None),
            scores=held_out_scores(self),
        )


def held_out_scores(estimator: Any) -> records.HeldOutScores | None:
    """What a search knows of rows held out."""
    names = ("held_out_score_", "glm_held_out_score_", "bend_")
    if not hasattr(estimator, names[0]):
        return None
    return records.HeldOutScores(*(getattr(estimator, name) for name in names))


def _read_column(values: Any, n_rows: int, name: str) -> np.ndarray | None:
    """One finite number per row, or None."""
    if values is None:
        return None
    column = np.asarray(values, dtype=np.float64)
    if column.shape != (n_rows,) or not np.isfinite(column).all():
        raise ValueError(
            f"{name} must hold one finite number for each of the {n_rows} rows, got "
            f"shape {column.shape}."
        )
    return column
