"""Explanations as methods: read the input, call a function, return a record.

Numbers happen in `explain`. Where the estimator keeps `_facts` of its training rows,
gauge, modifiers and summary refer to those, otherwise to the rows of each call.
"""

from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from sknimo import explain as records
from sknimo.estimators._later import Late
from sknimo.exceptions import check_option
from sknimo.explain import (
    MAX_ROWS,
    Method,
    SummaryOrder,
    TrainingFacts,
    find_origin,
)
from sknimo.families import SOFTMAX
from sknimo.model import FittedModel
from sknimo.training import check_lengths, read_weight, too_wide


class Explainable:
    """Explanations of a fitted estimator."""

    model_: FittedModel
    converged_: bool
    reference: Any
    _facts = Late[TrainingFacts | None](None)
    # What scores on rows held out measure.
    _measure: ClassVar[str] = "R2"

    if TYPE_CHECKING:  # the estimator brings its own
        device: str

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

        def _explained(self) -> FittedModel: ...

        def _eta(self, X: Any, offset: Any = None) -> np.ndarray: ...

        def _read_table(self, X: Any, anywhere: bool = False) -> np.ndarray: ...

        def _read_target(self, y: Any) -> Any: ...

        def _known_target(self, y: Any) -> np.ndarray: ...

        def _known_errors(self) -> records.KnownErrors | None: ...

        def _with_errors(self, found: records.Explanation) -> records.Explanation: ...

    def _read_pairs(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows with their targets, as the model knows both."""
        table, target = self._read_table(X), self._known_target(y)
        check_lengths(len(table), len(target))
        return table, target

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

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> explanation = est.explain(data.X)
        >>> total = explanation.base_value + explanation.values.sum(axis=1)
        >>> bool(abs(total - est.predict(data.X)).max() < 1e-9)
        True
        """
        records.check_method(method)
        table = self._read_table(X)
        found = records.explain(
            self._explained(),
            table,
            method=method,
            swap=None if method == "native" else self._swap(table),
            directed=self._directed(table),
            offset=read_column(offset, len(table), "offset"),
            origin=find_origin(X),
            max_exact=max_exact,
            n_permutations=n_permutations,
            seed=random_state,
        )
        return self._with_errors(found)

    def _directed(self, table: np.ndarray) -> np.ndarray:
        """Who bends whom, over the training rows or some of these."""
        if self._facts is not None:
            return self._facts.effects.directed
        return records.rank_modifiers(self._explained(), table, self._swap(table))

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

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> found = est.interactions(data.X)
        >>> bool((found.strength == found.strength.T).all())
        True
        """
        table = self._read_table(X)
        weight = read_weights(sample_weight, len(table))
        return records.interactions(
            self._explained(),
            table,
            weight=weight,
            swap=self._swap(table, weight),
            max_rows=max_rows,
            origin=find_origin(X),
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

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> price = est.price_of_nonlinearity(data.X, data.y)
        >>> price.deviance < price.glm_deviance
        True
        """
        table = self._read_table(X)
        target, known = self._priced_rows(table, y, offset)
        weight = read_weights(sample_weight, len(table))
        found = records.price_of_nonlinearity(
            self._explained(),
            table,
            target,
            weight=weight,
            offset=known,
            origin=find_origin(X),
        )
        return self._without_features(found, target, weight)

    def _without_features(
        self, found: records.Price, target: np.ndarray, weight: np.ndarray | None
    ) -> records.Price:
        """A price beside that of no feature, where its offset knows of features."""
        return found

    def _priced_rows(
        self, table: np.ndarray, y: Any, offset: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Target as numbers, and offset."""
        return self._read_target(y).values, self._offset_for(y, offset, len(table))

    def _offset_for(self, y: Any, offset: Any, n_rows: int) -> np.ndarray | None:
        """Known part of the linear predictor of rows with these targets, (n,)."""
        return read_column(offset, n_rows, "offset")

    def first_layer(self) -> records.FirstLayer:
        """First-layer weights of the network, the paper's picture of its sparsity.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.first_layer().norms.shape
        (5,)
        """
        return records.first_layer(self._explained())

    def summary(self, order: SummaryOrder = "importance") -> records.Summary:
        """Sum up the fit in one table, as text and as HTML.

        Parameters
        ----------
        order : {"importance", "columns"}, default="importance"
            Whether features that move predictions most come first, or all stand as in
            the table.

        Returns
        -------
        Summary
            Prints itself in at most 80 columns; notebooks show it as HTML.
            `to_frame()`, `to_markdown()` and `to_latex()` are for other places.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> "at the reference" in str(est.summary())
        True
        """
        check_option("order", order, get_args(SummaryOrder))
        return records.summarise(
            self._explained(),
            self._facts,
            title=f"{type(self).__name__}: summary",
            order=order,
            certificate=getattr(self, "certificate_", None),
            status=getattr(self, "status_", ""),
            converged=self.converged_,
            reference=self.reference,
            scores=held_out_scores(self),
            errors=self._known_errors(),
        )


def held_out_scores(estimator: Any) -> records.HeldOutScores | None:
    """What a search knows of rows held out."""
    if not hasattr(estimator, "held_out_score_"):
        return None
    family, measure = estimator.model_.family, estimator._measure
    if family.by_deviance and not family.is_hazard and family is not SOFTMAX:
        measure = "D2"
    facts, used = estimator._facts, np.unique(estimator.model_.features.term_feature)
    wide = facts is not None and too_wide(len(used), facts.n_samples)
    return records.HeldOutScores(
        r2=estimator.held_out_score_,
        glm_r2=estimator.glm_held_out_score_,
        bend=estimator.bend_,
        gain=estimator.held_out_gain_,
        gain_error=estimator.held_out_gain_error_,
        measure=measure,
        sought=not wide or estimator.held_out_gain_error_ > 0,
        turned=estimator._uncertainty.reason == "bend set",
    )


def refuse_half(one: Any, other: Any, names: str) -> None:
    """Refuse one of two arguments without the other."""
    if (one is None) != (other is None):
        raise ValueError(f"{names} belong together; give both or neither.")


def refuse_classes(est: Any, what: str) -> None:
    """Some things are of one linear predictor, and several classes have several."""
    if getattr(est, "_whole", None) is not None:
        raise ValueError(
            f"{what} is for two classes, and there are {len(est.classes_)}: their "
            "linear predictors meet in a softmax. Save the model to a file instead."
        )


def read_weights(values: Any, n_rows: int) -> np.ndarray | None:
    """Weights of rows, or None."""
    return None if values is None else read_weight(values, n_rows)


def read_column(values: Any, n_rows: int, name: str) -> np.ndarray | None:
    """One finite number per row, one for all, or None."""
    if values is None:
        return None
    column = np.asarray(values, dtype=np.float64)
    if column.ndim == 0:
        column = np.full(n_rows, column)
    if column.shape != (n_rows,) or not np.isfinite(column).all():
        raise ValueError(
            f"{name} must hold one finite number for each of the {n_rows} rows, got "
            f"shape {column.shape}."
        )
    return column
