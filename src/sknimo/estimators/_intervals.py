"""Intervals as methods: of predictions, and of average effects.

Numbers happen in `inference`. What rows held out have said is kept with the model, the
rows themselves are not.

Shapes: n rows, p features.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Self, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sknimo import explain, inference
from sknimo.estimators._explaining import Explainable, read_column, read_weights
from sknimo.estimators._later import change_late
from sknimo.exceptions import check_option
from sknimo.explain import MAX_ROWS, Effects, TrainingFacts, find_origin, mean_of
from sknimo.inference import (
    REASONS,
    AverageEffects,
    BendTests,
    Conformal,
    Influence,
    Kind,
    KnownRows,
    PredictionIntervals,
    PredictionSets,
)
from sknimo.machine import prediction_device
from sknimo.penalties import CoefPenalty
from sknimo.solver import Problem
from sknimo.training import (
    TrainingSet,
    check_number,
    count_weights,
    read_groups,
    read_weight,
)

# Groups that averages are taken of.
MAX_GROUPS = 20
NO_INTERVALS = (
    "Intervals of the next observation need rows that the fit has not seen, and this "
    "one held none out. Give it such rows: est.calibrate_interval(X, y)."
)
# Why a hazard is refused, and what there is instead.
NO_HAZARDS = {
    "intervals": "Intervals are of a mean response, and a hazard has none. Use the "
    "predicted survival, or resample the fit (docs/inference.md).",
    "test_bends": "test_bends needs residuals that do not depend on each other, and "
    "those of survival share a baseline hazard. Compare with NIMOSurvival(max_iter=0) "
    "on rows held out.",
    "influence": "influence leaves out one row and keeps all else, and without a row "
    "of survival the baseline hazard is another. Fit again without it; residuals tells "
    "which rows the model does not fit.",
}


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRows:
    """What members that had not seen them say of the training rows, as given.

    The rows are known again by their digest and targets. Those of no weight are not;
    what would be said of them is NaN.
    """

    used: np.ndarray  # (n,), bool, rows that have some weight
    digest: str
    y: np.ndarray  # (n,)
    offset: np.ndarray  # (n,)
    eta: np.ndarray  # (n,), offset included
    straight: np.ndarray  # (n,), the same of the model without bends
    cluster: np.ndarray | None  # (n,), numbers of the groups that the fit was given

    def finds(self, table: np.ndarray, y: np.ndarray, offset: np.ndarray) -> bool:
        """Whether these are the rows."""
        used = self.used
        return (
            len(y) == len(self.y)
            and np.allclose(y[used], self.y[used], rtol=1e-9)
            and np.allclose(offset[used], self.offset[used], rtol=1e-9)
            and digest_rows(table[used]) == self.digest
        )


def digest_rows(table: np.ndarray) -> str:
    """A short name of a table (n, p)."""
    plain = np.where(np.isnan(table), np.nan, table + 0.0)  # one zero, one NaN
    return hashlib.sha256(np.ascontiguousarray(plain).tobytes()).hexdigest()


class Foreseeing(Explainable):
    """An estimator that says what its rows tell: of effects, bends and predictions."""

    classes_: np.ndarray
    _uncertainty: Any  # an estimator has errors of its own
    _scores: Conformal | None = None
    _held_out: HeldOutRows | None = None
    # Of a plain estimator: the penalty of a problem.
    _penalise: Callable[[Problem], CoefPenalty] | None = None

    def average_effects(
        self,
        X: Any,
        y: Any,
        *,
        by: Any = None,
        groups: Any = None,
        level: float = 0.95,
        population: bool = True,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> AverageEffects:
        """Average effects in the population, corrected for shrinkage, with intervals.

        Give the training rows, or new ones. Of training rows a search takes residuals
        of members that have not seen them; those of a plain fit, or of one from a file,
        have been seen, which makes intervals of large models a little too short.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        by : str, int, or array of shape (n_samples,), optional
            A column of `X`, a label for each row or a mask: averages of each group, and
            differences to the first.
        groups : array of shape (n_samples,), optional
            Rows that belong together, such as visits of a patient. Of training rows a
            search knows those that it was given.
        level : float, default=0.95
        population : bool, default=True
            Whether the rows are a sample of a population; otherwise the interval is
            that of the average over these very rows.
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        AverageEffects
            `to_frame()` has a row per group and coefficient.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X, data.y)
        >>> est.average_effects(data.X, data.y, by=data.X[:, 0] > 0).groups
        ('False', 'True', 'True - False')
        """
        read_level(level)
        rows = self._known_rows(X, y, sample_weight, offset, groups)
        return inference.average_effects(
            self._explained(),
            replace(rows, population=bool(population)),
            by=self._read_by(by, rows.table),
            level=float(level),
            origin=find_origin(X),
        )

    def effects(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        level: float = 0.95,
        sample_weight: Any = None,
        offset: Any = None,
        max_rows: int | None = MAX_ROWS,
    ) -> Effects:
        """Sum up what each feature does over the rows of `X`.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,), optional
            With targets average effects are corrected for shrinkage, and have standard
            errors and intervals, as in `average_effects`.
        groups : array of shape (n_samples,), optional
            Rows that belong together, for the intervals alone.
        level : float, default=0.95
        sample_weight : array of shape (n_samples,), optional
        offset : array of shape (n_samples,), optional
            Matters for effects on the response scale alone.
        max_rows : int or None, default=1000
            Rows, evenly spaced, over which "who bends whom" and the contrasts of more
            than two levels are averaged.

        Returns
        -------
        Effects
            One row per feature, and one per level in `levels`.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> table = est.effects(data.X).to_frame()  # pandas, or what X was
        >>> bool((table["coef"] == est.coef_).all())
        True
        """
        table = self._read_table(X)
        weight = read_weights(sample_weight, len(table))
        found = explain.effects(
            self._explained(),
            table,
            weight=weight,
            offset=read_column(offset, len(table), "offset"),
            swap=self._swap(table, weight),
            max_rows=max_rows,
            origin=find_origin(X),
        )
        found = self._mean_on_response(found, table, weight)
        if y is None:
            return found
        averages = self.average_effects(
            X, y, groups=groups, level=level, sample_weight=sample_weight, offset=offset
        )
        return averages.beside(found, self.model_.features.coef_feature)

    def _mean_on_response(
        self, found: Effects, table: np.ndarray, weight: np.ndarray | None
    ) -> Effects:
        """Effects with those on the response, where their family cannot tell."""
        return found

    def test_bends(
        self,
        X: Any,
        y: Any,
        *,
        groups: Any = None,
        level: float = 0.05,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> BendTests:
        """Test whether effects depend on other features, and on which.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            The training rows of a search, for a test of any bend from rows held out;
            with other rows there are tests of pairs alone.
        y : array of shape (n_samples,)
        groups : array of shape (n_samples,), optional
            Rows that belong together; of training rows a search knows its own.
        level : float, default=0.05
            Chance that any pair is found where none bends another; also that of the
            test of any bend.
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        BendTests

        Examples
        --------
        >>> import numpy as np
        >>> from sknimo import NIMORegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.normal(size=(200, 3))
        >>> y = X[:, 0] * (1 + X[:, 1]) + random.normal(size=200)
        >>> est = NIMORegressor(max_iter=0).fit(X, y)
        >>> est.test_bends(X, y).found
        (('x0', 'x1'),)
        """
        read_level(level)
        refuse_others(self, "test_bends")
        rows = self._known_rows(X, y, sample_weight, offset, groups)
        facts = self._facts
        p = self.model_.features.n_features
        importance, bent = np.ones(p), np.zeros((p, p), dtype=bool)
        if facts is not None:
            bent = facts.effects.bends
            if facts.comparisons is not None:
                importance = facts.comparisons.importance
        kept = self._held_out
        return inference.bend_tests(
            self._explained(),
            rows,
            None if rows.held_out is None or kept is None else kept.straight,
            importance,
            bent,
            level=float(level),
            origin=find_origin(X),
        )

    def influence(
        self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None
    ) -> Influence:
        """Say which rows hold the model where it is, without fitting again.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            The training rows.
        y : array of shape (n_samples,)
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        Influence
            Leverage, Cook's distance, and about what would be predicted without the
            row. Selection and learned penalties are taken as they are.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(alpha=0, max_iter=0).fit(data.X, data.y)
        >>> list(est.influence(data.X, data.y).to_frame().columns)
        ['leverage', 'distance', 'prediction', 'left_out']
        """
        refuse_others(self, "influence")
        rows = self._known_rows(X, y, sample_weight, offset)
        return inference.influence(
            self.model_,
            rows,
            self._penalise,
            scaled=bool(getattr(self, "scale_contributions", False)),
            origin=find_origin(X),
        )

    def _known_rows(
        self, X: Any, y: Any, weight: Any, offset: Any, groups: Any = None
    ) -> KnownRows:
        """Rows with their targets; what members that had not seen them say of them."""
        refuse_others(self)
        table, truth = self._read_pairs(X, y)
        known = self._offset_for(y, offset, len(table))
        known = np.zeros(len(table)) if known is None else known
        kept = self._held_out
        if kept is not None and not kept.finds(table, truth, known):
            kept = None
        labels = read_groups(groups, len(table))
        cluster = None if kept is None else kept.cluster
        return KnownRows(
            table=table,
            y=truth,
            weight=count_weights(read_weight(weight, len(table))),
            offset=known,
            held_out=None if kept is None else kept.eta,
            cluster=cluster if labels is None else _number(labels),
        )

    def _read_by(self, by: Any, table: np.ndarray) -> Sequence[tuple[str, np.ndarray]]:
        """Name and mask of every group."""
        if by is None:
            return ()
        names = self.model_.features.names
        if isinstance(by, str | Integral):
            j = names.index(by) if isinstance(by, str) and by in names else by
            if isinstance(j, str) or not 0 <= int(j) < len(names):
                raise ValueError(
                    f"by={by!r} is no column of X; its columns are {list(names)}. Give "
                    "one of them, or a label for each row."
                )
            levels, labels = self.model_.features.levels(int(j)), table[:, int(j)]
        else:
            levels, given = None, read_groups(by, len(table))
            assert given is not None
            labels = given
        values = np.unique(labels[labels == labels])
        if len(values) > MAX_GROUPS:
            raise ValueError(
                f"by has {len(values)} different values; at most {MAX_GROUPS} groups "
                "can be told apart. Give a label for each row, such as a range."
            )
        shown = [v if levels is None else levels[int(v)] for v in values.tolist()]
        return [
            (str(name), labels == value)
            for name, value in zip(shown, values, strict=True)
        ]

    @property
    def _conformal(self) -> Conformal | None:
        """Scores; those of folds as long as errors say that the fit deserves."""
        if self._scores is not None and self._scores.by_folds:
            self._scores = self._scores.of_all_rows(self._uncertainty.left_out)
        return self._scores

    @_conformal.setter
    def _conformal(self, found: Conformal | None) -> None:
        self._scores = found

    def predict_interval(
        self,
        X: Any,
        *,
        level: float = 0.9,
        kind: Kind = "next",
        adapt: bool = True,
        offset: Any = None,
    ) -> PredictionIntervals | PredictionSets:
        """Predict with an interval.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        level : float, default=0.9
            Share of new rows whose observation lies within.
        kind : {"next", "mean"}, default="next"
            The next observation of a row like this, or the mean of all such rows; for
            classes the probability of the second. That of the mean is approximate and
            trusts the model.
        adapt : bool, default=True
            Whether the width follows the row, where rows held out show that it does.
            Otherwise it is the same in every row, or follows the family's variance.
        offset : array of shape (n_samples,), optional

        Returns
        -------
        PredictionIntervals or PredictionSets
            For classes the set of those that the next row may have.

        Examples
        --------
        >>> from sknimo import NIMORegressorCV, datasets
        >>> data = datasets.make_nimo_regression(n_samples=120, random_state=0)
        >>> est = NIMORegressorCV(n_starts=1, cv=2, max_iter=5, random_state=0)
        >>> list(est.fit(data.X, data.y).predict_interval(data.X).to_frame().columns)
        ['prediction', 'lower', 'upper']
        """
        refuse_others(self)
        check_option("kind", kind, get_args(Kind))
        read_level(level)
        found, model = self._conformal, self._explained()
        table, eta = self._read_table(X), self._eta(X, offset)
        how: dict[str, Any] = {"level": float(level), "origin": find_origin(X)}
        if kind == "mean":
            errors = self._uncertainty
            if errors.nonrobust is None:
                raise ValueError(
                    f"There is no interval of the mean. {REASONS[errors.reason]} "
                    "docs/inference.md has others."
                )
            return inference.mean_intervals(model, errors, table, eta, **how)
        if found is None:
            raise ValueError(NO_INTERVALS)
        if model.family.is_binary:
            chance = mean_of(model.family, np.stack([-eta, eta], axis=1))
            return inference.prediction_sets(found, chance, self.classes_, **how)
        how["adapt"] = bool(adapt)
        return inference.next_intervals(model, found, table, eta, **how)

    def calibrate_interval(
        self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Learn from new rows how wrong predictions are, for `predict_interval`.

        A search knows it from rows that it has held out. Rows that no part of the fit
        has seen make the level of the intervals exact.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Rows that the fit has not seen.
        y : array of shape (n_samples,)
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        self

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=160, random_state=0)
        >>> est = NIMORegressor(max_iter=0).fit(data.X[:80], data.y[:80])
        >>> est = est.calibrate_interval(data.X[80:], data.y[80:])
        >>> est.predict_interval(data.X[:3]).lower.shape
        (3,)
        """
        rows = self._known_rows(X, y, sample_weight, offset)
        model = self._explained()
        eta = model.eta(rows.table, rows.offset)
        self._conformal = inference.calibrate(
            model, rows.table, rows.y, eta, rows.weight
        )
        return self

    def _keep_intervals(
        self,
        data: TrainingSet,
        eta: np.ndarray,
        straight: np.ndarray | None,
        separated: bool,
        labels: np.ndarray | None,
    ) -> None:
        """Keep what linear predictors (n,) of members that have not seen them say.

        Effects of separated classes have no honest interval. Rows of the same label, of
        all that were given, belong together.
        """
        units, place = data.y_scale, data.place
        y = data.y * units + data.y_mean
        eta = eta * units + data.y_mean
        line = eta if straight is None else straight * units + data.y_mean
        known = data.offset * units
        rows = KnownRows(data.table, y, data.weight, known, eta)
        cluster, used = None, place >= 0
        if labels is not None:  # of rows as they were given, not merged
            cluster = _number(labels)
            at, weight = place[used], data.given_weight[used]
            rows = KnownRows(
                data.table[at], y[at], weight, known[at], eta[at], cluster[used]
            )
        self._learn_intervals(rows, separated)
        given = {"y": y, "offset": known, "eta": eta, "straight": line}
        self._held_out = HeldOutRows(
            used=used,
            digest=digest_rows(data.table[place[used]]),
            cluster=cluster,
            **{name: np.where(used, x[place], np.nan) for name, x in given.items()},
        )

    def _learn_intervals(self, rows: KnownRows, separated: bool) -> None:
        """Intervals of predictions, and averages corrected for shrinkage.

        Members that have not seen them predict the rows.
        """
        model, device = self.model_, self.device
        assert rows.held_out is not None

        @np.errstate(over="ignore", invalid="ignore")
        def correct(facts: TrainingFacts | None) -> TrainingFacts | None:
            if facts is None or facts.comparisons is None:
                return facts
            there = model.to(prediction_device(device))
            found = inference.correct_comparisons(there, rows, facts.comparisons)
            return replace(facts, comparisons=found)

        with np.errstate(over="ignore", invalid="ignore"):
            self._conformal = inference.calibrate(
                self._explained(),
                rows.table,
                rows.y,
                rows.held_out,
                rows.weight,
                by_folds=True,
            )
        if not separated:
            change_late(self, "_facts", correct)


def _number(labels: np.ndarray) -> np.ndarray:
    """Labels as whole numbers, (n,)."""
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def refuse_others(est: Any, what: str = "intervals") -> None:
    """Refuse several classes and hazards, whose responses are no single mean."""
    check_is_fitted(est)
    if getattr(est, "_whole", None) is not None:
        raise ValueError(
            "More than two classes have no mean response, which this is about. Use "
            "predict_proba, or fit one class against all others."
        )
    if est.model_.family.is_hazard:
        raise ValueError(NO_HAZARDS[what])


def read_level(level: Any) -> None:
    """Refuse what is no share of the rows."""
    check_number("level", level, Real, 0.0)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
