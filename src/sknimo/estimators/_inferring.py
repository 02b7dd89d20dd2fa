"""Estimators that say how well their coefficients are known."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._explaining import Explainable
from sknimo.estimators._later import MAX_WAITING, Late, Later, quiet, work_out
from sknimo.explain import Explanation, KnownErrors, find_roles
from sknimo.inference import (
    Band,
    Clusters,
    Contrast,
    CovType,
    Intervals,
    Uncertainty,
    Watched,
    choose_covariance,
    class_covariance,
    coefficient_covariance,
    coefficient_intervals,
    contrasts,
    curve_band,
    level_weights,
    named_weights,
    with_errors,
)
from sknimo.machine import to_device
from sknimo.model import ClassModels, FittedModel
from sknimo.penalties import CoefPenalty
from sknimo.solver import Problem
from sknimo.training import Ensemble, StreamedSet, TrainingSet, state_columns

# Values of a curve, between these quantiles of a normal column.
GRID_SIZE = 101
GRID_REACH = 2.0


class Inferring(Explainable):
    """Standard errors, intervals and contrasts of a fitted estimator."""

    coef_: np.ndarray
    _uncertainty = Late(Uncertainty("not kept"))

    def __getstate__(self) -> Any:
        """What copies and pickles hold: no rows."""
        work_out(self)
        return super().__getstate__()

    @property
    def cov_(self) -> np.ndarray:
        """Covariance of the entries of `coef_`, (c, c); NaN for what has no errors.

        All NaN where there are no errors; `conf_int` says why.
        """
        check_is_fitted(self)
        if self._uncertainty.reason:
            return np.full((self.coef_.size,) * 2, np.nan)
        cov = choose_covariance(self._uncertainty)
        # Intercepts stand before the coefficients, of every class.
        kept = np.arange(len(cov)) % (1 + self.coef_.shape[-1]) > 0
        cov = cov[np.ix_(kept, kept)]
        gone = self.coef_.ravel() == 0
        loose = self._uncertainty.is_loose(np.eye(self.coef_.shape[-1]))
        gone |= np.tile(loose, gone.size // loose.size)
        cov[gone] = np.nan
        cov[:, gone] = np.nan
        return cov

    def conf_int(
        self, level: float = 0.95, *, cov_type: CovType | None = None
    ) -> Intervals:
        """Intervals of the coefficients of the model that is shown.

        They count in that the network was estimated, too, and that members differ.
        They are approximate and trust the model; what was removed has none.

        Parameters
        ----------
        level : float, default=0.95
        cov_type : {"nonrobust", "HC3", "cluster"}, optional
            What is assumed of the rows: the variance that the family says, any
            variance, or groups of rows that go together (those given to `fit`).
            Without, "cluster" for a fit with groups, "nonrobust" for a plain fit
            without a network, as other programs have it, and "HC3" for all others where
            it was kept.

        Returns
        -------
        Intervals
            With `std_err`, `lower` and `upper`; `to_frame()` has one row per entry of
            `coef_`.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(4, n_samples=80, random_state=0)
        >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
        >>> table = est.conf_int(level=0.9).to_frame()
        >>> bool((table["lower"] < table["upper"]).all())
        True
        """
        model = self._explained()
        return coefficient_intervals(
            self._uncertainty, model.features, model.term_coef, level, cov_type
        )

    def contrast(
        self,
        feature: Any,
        level_a: Any = None,
        level_b: Any = None,
        *,
        level: float = 0.95,
        cov_type: CovType | None = None,
    ) -> Contrast:
        """Difference of two levels of a category, or any sum of coefficients.

        Parameters
        ----------
        feature : str, int or mapping
            A category, or weights by the names in `coef_names_`.
        level_a, level_b : object
            Two levels of the category: the change from the second to the first.
        level : float, default=0.95
        cov_type : {"nonrobust", "HC3", "cluster"}, optional
            As in `conf_int`.

        Returns
        -------
        Contrast

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(4, n_samples=80, random_state=0)
        >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
        >>> bool(abs(est.contrast({"x1": 1, "x0": -1}).estimate[0] - 1) < 0.2)
        True
        """
        features = self._explained().features
        if isinstance(feature, Mapping):
            named = named_weights(features, dict(feature))
        else:
            place = self._find_feature(feature)
            named = level_weights(features, place, level_a, level_b)
        return contrasts(self._uncertainty, self.coef_, [named], level, cov_type)

    def curve_band(
        self, feature: Any, *, values: Any = None, level: float = 0.95
    ) -> Band:
        """How well the curve of one feature is known, others at their reference.

        Parameters
        ----------
        feature : str or int
        values : array, optional
            Where; by default a grid over two standard deviations around the reference.
        level : float, default=0.95

        Returns
        -------
        Band
            A range at each value alone, and one for the whole curve.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(4, n_samples=200, random_state=0)
        >>> est = NIMORegressor(alpha=0, max_iter=0, basis="spline").fit(data.X, data.y)
        >>> band = est.curve_band("x0")
        >>> bool((band.all_lower <= band.lower).all())
        True
        """
        features = self._explained().features
        place = self._find_feature(feature)
        if features.levels(place) is not None:
            raise ValueError(
                f"Column {features.names[place]!r} has levels, not a curve; conf_int() "
                "and contrast() are for levels."
            )
        if values is None:
            values = self._grid(place)
        grid = np.atleast_1d(np.asarray(values, dtype=float))
        term_coef = self._explained().term_coef
        return curve_band(self._uncertainty, features, term_coef, place, grid, level)

    def _known_errors(self) -> KnownErrors | None:
        """How well the coefficients are known; None where nothing was kept."""
        if self._uncertainty.reason == "not kept":
            return None
        found = self.conf_int()
        return KnownErrors(
            found.std_err, found.lower, found.upper, found.z, found.notes, found.reason
        )

    def _with_errors(self, found: Explanation) -> Explanation:
        """An explanation with standard errors, where they are known."""
        return with_errors(self._explained(), self._uncertainty, found)

    def _grid(self, place: int) -> np.ndarray:
        """Values around the reference, within the training range."""
        features = self.model_.features
        middle, scale = features.reference[place], features.scale[place]
        low, high = middle - GRID_REACH * scale, middle + GRID_REACH * scale
        if features.low:
            low, high = max(low, features.low[place]), min(high, features.high[place])
        return np.linspace(low, high, GRID_SIZE)

    def _find_feature(self, feature: Any) -> int:
        """Position of a feature that was given by name or position."""
        names = self.model_.features.names
        if isinstance(feature, int | np.integer) and 0 <= feature < len(names):
            return int(feature)
        if feature in names:
            return names.index(feature)
        raise ValueError(
            f"There is no feature {feature!r}; the model has {list(names)[:10]}."
        )

    def _keep_uncertainty(
        self,
        problem: Problem,
        counts: Any,
        members: Any,
        data: TrainingSet | StreamedSet,
        *,
        labels: np.ndarray | None = None,
        **others: Any,
    ) -> None:
        """Have errors of the coefficients worked out; at once where rows are many."""
        model: FittedModel | ClassModels = self.model_
        weight = torch.as_tensor(counts).to(problem.y)
        table = data.table if isinstance(data, TrainingSet) else None
        if table is not None:  # columns are many times the table: only that waits
            none = state_columns(model.features, table[:0])
            problem = replace(problem, columns=none, prior=None)
        work: Callable[[Problem], Uncertainty]
        if isinstance(model, ClassModels):
            # Members of all classes stand side by side, as many of each.
            scale = None
            if isinstance(members, Ensemble):
                scale = np.tile(members.scale.double().cpu(), model.n_classes)
            work = partial(_of_classes, model, table, weight, scale, **others)
        else:
            if not isinstance(members, Ensemble):
                own = members.coef, members.intercept, members.params, members.modulated
                members = Ensemble(*own)
            work = partial(
                coefficient_covariance,
                members=members,
                weight=weight,
                features=model.features,
                y_mean=data.y_mean,
                y_scale=data.y_scale,
                clusters=_clusters(data, labels, weight),
                watched=self._watched_rows(data),
                **others,
            )
        device = weight.device

        @quiet(data.n_total, data.n_total * problem.n_terms)
        def ask() -> Uncertainty:
            if table is None:
                return work(problem)
            columns = to_device(state_columns(model.features, table), device)
            return work(replace(problem, columns=columns))

        self._uncertainty = Later(ask, stage="errors")
        if table is None or table.size > MAX_WAITING:
            work_out(self)

    def _watched_rows(self, data: TrainingSet | StreamedSet) -> Watched | None:
        """The follow-up behind the rows of a fit, for hazards."""
        return None


def _of_classes(
    model: ClassModels,
    table: np.ndarray | None,
    weight: torch.Tensor,
    scale: np.ndarray | None,
    problem: Problem,
    *,
    separated: bool,
    penalty: CoefPenalty | None = None,
    **_: Any,
) -> Uncertainty:
    """How well coefficients of several classes are known."""
    assert table is not None  # `LabelReader` has seen to it
    each = [model.of_class(c) for c in range(model.n_classes)]
    free = penalty is not None and not bool((penalty.strength > 0).any())
    found = class_covariance(
        problem,
        model.eta(table),
        np.stack([one.term_coef for one in each]),
        weight,
        model.features,
        exact=free and not find_roles(model.stacked).modifies.any(),
        separated=separated,
    )
    return replace(found, scale=scale)


def _clusters(
    data: TrainingSet | StreamedSet, labels: np.ndarray | None, weight: torch.Tensor
) -> Clusters | None:
    """Groups of the rows as they were given, in the units of `weight`."""
    if labels is None or isinstance(data, StreamedSet):
        return None
    used = np.flatnonzero(data.place >= 0)
    number = np.unique(labels[used], return_inverse=True)[1]
    unit = float(weight.sum()) / float(data.given_weight[used].sum())
    return Clusters(
        torch.as_tensor(number).to(weight.device),
        torch.as_tensor(data.place[used]).to(weight.device),
        torch.as_tensor(data.given_weight[used] * unit).to(weight),
    )
