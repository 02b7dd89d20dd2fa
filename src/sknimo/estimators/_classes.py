"""More than two classes: attributes of all of them, and explanations of one.

A `ClassModels` predicts; explanations are of a `FittedModel`. `for_class` gives the
same classifier with the model of one class against the mean of all, or against a
baseline, in the place of `model_`.

Shapes: n rows, C classes.
"""

import copy
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sknimo.diagnostics import Roc, judge_thresholds
from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._bending import score_classes
from sknimo.estimators._explaining import refuse_half
from sknimo.estimators._later import quiet
from sknimo.estimators._reporting import Reportable
from sknimo.explain import (
    Effects,
    Explanation,
    Price,
    Reach,
    Summary,
    SummaryOrder,
    TrainingFacts,
    class_response,
    compare,
    describe_training,
    mean_of,
    mean_response,
    measure_shape,
    restore_reach,
    widest_class,
)
from sknimo.families import BINOMIAL, SOFTMAX
from sknimo.inference import Uncertainty
from sknimo.model import ClassModels, FittedModel
from sknimo.solver import Problem
from sknimo.training import (
    StreamedSet,
    TrainingSet,
    is_separated,
    read_labels,
    read_weight,
)


class SeveralClasses(BaseNIMO):
    """A classifier that may have more than two classes."""

    _response = "probability"
    classes_: np.ndarray
    # The model of all classes where these are more than two, and how far the training
    # rows reach.
    _whole: ClassModels | None = None
    _class_reach: Reach | None = None
    _class_errors: Uncertainty | None = None  # of all classes
    # The class that explanations are of, and what it is compared with if not the mean.
    _class: int = 1
    _baseline: int | None = None

    def for_class(
        self,
        label: Any,
        baseline: Any = None,
        *,
        X: Any = None,
        y: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """The same classifier, with explanations of one of several classes.

        Predictions stay those of all classes. Coefficients, explanations, summary and
        report are of one linear predictor: the logarithm of the probability of the
        class over the geometric mean of all probabilities, or over that of a baseline.

        Parameters
        ----------
        label, baseline : labels of classes
            The class, and the one to compare with; by default the mean of all.
        X : array or data frame of shape (n_samples, n_features), optional
            Rows that the summary averages over; without them it has coefficients alone.
        y, sample_weight : array of shape (n_samples,), optional
            Labels and weights of these rows.

        Returns
        -------
        estimator
            A copy that shares its model with this one.

        Examples
        --------
        >>> import numpy as np
        >>> from sknimo import NIMOClassifier
        >>> X = np.random.default_rng(0).normal(size=(90, 2))
        >>> y = np.repeat(["a", "b", "c"], 30)
        >>> est = NIMOClassifier(max_iter=0, alpha=0.001).fit(X, y)
        >>> one = est.for_class("b", baseline="a")
        >>> bool(np.allclose(one.coef_, est.coef_[1] - est.coef_[0]))
        True
        """
        check_is_fitted(self)
        refuse_half(X, y, "X and y")
        whole = self._whole
        if whole is None:
            first, second = self.classes_.tolist()
            raise ValueError(
                f"The classifier has two classes, {first!r} and {second!r}: all "
                "explanations are of the second. Leave for_class out."
            )
        number, base = find_class(self.classes_, label, "label"), None
        if baseline is not None:
            base = find_class(self.classes_, baseline, "baseline", number)
        view = copy.copy(self)
        view._show_model(whole.contrast(number, base))
        view._class, view._baseline, view._facts = number, base, None
        errors = view._class_errors = self._class_errors or self._uncertainty
        view._uncertainty = errors.of_class(
            whole.n_classes, number, base, whole.bent.numpy()
        )
        if X is not None:
            view._facts = view._describe_class(X, y, sample_weight)
        return view

    def _describe_class(self, X: Any, y: Any, sample_weight: Any) -> TrainingFacts:
        """What the summary of a class says of some rows.

        The other classes are an offset: with it the linear predictor is the log-odds of
        the class against all others.
        """
        table, truth = self._read_pairs(X, y)
        weight = read_weight(sample_weight, len(table))
        model = self._explained()
        with quiet(len(table)):
            offset = self._others(table)
            facts = describe_training(model, table, truth, weight, offset)
            # A step of a feature moves all classes.
            compared = compare(model, table, weight=weight, respond=self._chance)
        null = null_deviance(truth, weight)
        return replace(facts, comparisons=compared, null_deviance=null)

    def _chance(self, table: np.ndarray) -> np.ndarray:
        """Probability of the class that is explained, (n,)."""
        return self._respond(table, None)[1]

    def _log_odds(self, table: np.ndarray) -> np.ndarray:
        """Log-odds of the class that is explained against all others, (n,)."""
        whole, own = self._whole, self._class
        assert whole is not None
        eta = torch.as_tensor(whole.eta(table))
        others = torch.cat([eta[:, :own], eta[:, own + 1 :]], 1)
        return (eta[:, own] - others.logsumexp(1)).numpy()

    def _explained(self) -> FittedModel:
        if self._whole is not None and isinstance(self.model_, ClassModels):
            labels = self.classes_.tolist()
            raise ValueError(
                f"There are {len(labels)} classes, and this is of one of them. "
                f"Choose it first: for_class({labels[-1]!r})."
            )
        return super()._explained()

    def _show_model(self, model: FittedModel | ClassModels) -> None:
        if not isinstance(model, ClassModels):
            super()._show_model(model)
            return
        features = model.features
        each = [model.contrast(c) for c in range(model.n_classes)]
        self._whole, self._facts = model, None
        self.model_: Any = model
        self.coef_ = np.stack([features.coefficients(one.term_coef) for one in each])
        self.coef_names_ = np.array(features.coef_names, dtype=object)
        self.intercept_: Any = np.array([one.base_value for one in each])
        rise = np.array([features.rise(coef) for coef in self.coef_])
        self.intercept_at_zero_: Any = self.intercept_ - rise
        self.reference_ = features.reference

    def _keep_model(
        self, model: Any, data: TrainingSet | StreamedSet, problem: Problem, room: float
    ) -> bool:
        self._whole = self._class_reach = self._class_errors = None
        if not isinstance(model, ClassModels):
            return super()._keep_model(model, data, problem, room)
        assert isinstance(data, TrainingSet)  # `LabelReader` has seen to it
        self.classes_ = data.classes  # type: ignore[assignment]
        self._show_model(model)
        one = widest_class(model)
        shape = measure_shape(one, data.table, data.weight)
        reach = restore_reach(one, shape)
        self._class_reach = reach.within(float(reach.times(data.table).max()))
        return is_separated(model, data)

    def _with_errors(self, found: Explanation) -> Explanation:
        found, table = super()._with_errors(found), found.data
        if self._whole is None:
            return found
        effect = self._response_effects(table, between=False)
        return replace(found, response=self._chance(table), response_effect=effect)

    def _mean_on_response(
        self, found: Effects, table: np.ndarray, weight: np.ndarray | None
    ) -> Effects:
        if self._whole is None:
            return super()._mean_on_response(found, table, weight)
        effect = mean_response(self._response_effects(table, between=True), weight)
        return replace(found, response_effect=effect)

    def _response_effects(self, table: np.ndarray, between: bool) -> np.ndarray:
        """Effects on the probability of the class that is explained, (n, p)."""
        whole = self._whole
        assert whole is not None
        models = [whole.of_class(c) for c in range(whole.n_classes)]
        return class_response(models, table, self._class, between)

    def _known_target(self, y: Any) -> np.ndarray:
        labels = read_labels(y)
        unknown = ~np.isin(labels, self.classes_)
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueError(
                f"y holds {labels.tolist()[row]!r} at row {row}; the classes are "
                f"{self.classes_.tolist()}."
            )
        return (labels == self.classes_[self._class]).astype(float)

    def roc(
        self, X: Any, y: Any, *, sample_weight: Any = None, offset: Any = None
    ) -> Roc:
        """Sensitivity and specificity of every threshold on the probability.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        sample_weight, offset : array of shape (n_samples,), optional

        Returns
        -------
        Roc
            `at([0.1, 0.5])` has chosen thresholds, `to_frame()` a table.

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> est.roc(data.X, data.y).at(0.0).sensitivity
        array([1.])
        """
        truth, _, mean = self._judge(X, y, offset)
        return judge_thresholds(truth, mean, read_weight(sample_weight, len(truth)))

    def _respond(
        self, table: np.ndarray, offset: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        if self._whole is None or isinstance(self.model_, ClassModels):
            return super()._respond(table, offset)
        eta = self._log_odds(table)
        return eta, mean_of(BINOMIAL, eta)

    def _priced_rows(
        self, table: np.ndarray, y: Any, offset: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        if self._whole is None:
            return super()._priced_rows(table, y, offset)
        return self._known_target(y), self._others(table)

    def _without_features(
        self, found: Price, target: np.ndarray, weight: np.ndarray | None
    ) -> Price:
        if self._whole is None:
            return super()._without_features(found, target, weight)
        weight = np.ones(len(target)) if weight is None else weight
        return replace(found, null_deviance=null_deviance(target, weight))

    def summary(self, order: SummaryOrder = "importance") -> Any:
        """Sum up the fit in one table, or more than two classes in one each.

        Parameters
        ----------
        order : {"importance", "columns"}, default="importance"
            Whether features that move predictions most come first, or all stand as in
            the table.

        Returns
        -------
        Summary or ClassSummaries
            Prints itself; notebooks show it as HTML.

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> "at the reference" in str(est.summary())
        True
        """
        if self._whole is None:
            return super().summary(order)
        if not isinstance(self.model_, ClassModels):
            return self._word_summary(super().summary(order))
        labels = self.classes_.tolist()
        return ClassSummaries(
            {label: self.for_class(label).summary(order) for label in labels}
        )

    def _word_summary(self, found: Summary) -> Summary:
        """A summary of one class, with its probability for the response."""
        label = self.classes_.tolist()[self._class]
        unit = f"the logarithm of the probability of {label!r} over {self._over()}"
        words = {
            "the log of the mean": unit,
            "change of the response": "change of the probability in percentage points",
            "of the variance": "of the variance of all classes",
        }

        def told(text: str) -> str:
            for word, other in words.items():
                text = text.replace(word, other)
            return text

        reference = self._read_reference()
        return replace(
            found,
            title=f"{found.title} of {label!r}",
            headline=tuple(map(told, found.headline)),
            percent=True,
            base_mean=float(self._chance(reference)[0]),
            notes=tuple(map(told, found.notes)),
        )

    def _over(self) -> str:
        """What the probability of a class is divided by in its linear predictor."""
        if self._baseline is None:
            return "the geometric mean of those of all classes"
        return f"that of {self.classes_.tolist()[self._baseline]!r}"

    def _read_reference(self) -> np.ndarray:
        """The reference as a table of one row."""
        return np.asarray(self.model_.features.reference, dtype=float)[None]

    def _shown(self, class_: Any) -> Reportable:
        if self._whole is None:
            return super()._shown(class_)
        if isinstance(self.model_, ClassModels) or class_ is not None:
            last = self.classes_.tolist()[-1]
            return self.for_class(last if class_ is None else class_)
        return self

    def _read_sample(self, X: Any, y: Any, weight: Any, offset: Any) -> Any:
        sample = super()._read_sample(X, y, weight, offset)
        if self._whole is None:
            return sample
        others = self._others(sample.table)
        seen = self._has_seen(y, sample.weight)
        return replace(sample, offset=others, of_class=True, is_training=seen)

    def _has_seen(self, y: Any, weight: np.ndarray | None) -> bool:
        """Whether these are the targets of the rows that a search was fitted to.

        Predictions of rows held out then score what the search has found.
        """
        found = getattr(self, "oob_prediction_", None)
        if found is None or len(found) != len(y):
            return False
        known = np.isfinite(found).all(1)
        share = np.ones(len(found)) if weight is None else weight
        place = np.searchsorted(self.classes_, np.asarray(y))
        score = score_classes(place[known], found[known], share[known])
        return abs(score - self.held_out_score_) <= SAME_SCORE * abs(score)

    def _others(self, table: np.ndarray) -> np.ndarray:
        """What the other classes add to the log-odds of the one explained, (n,)."""
        return self._log_odds(table) - self._explained().eta(table)

    def _render(
        self, path: Any, sample: Any, held_out: Any, rows: Any, title: str | None
    ) -> Any:
        if self._whole is not None and title is None:
            title = f"What predicts {sample.target} = {self.classes_[self._class]}"
        return super()._render(path, sample, held_out, rows, title)

    def _model_card(self) -> Any:
        card = super()._model_card()
        if self._whole is None:
            return card
        label, left_out = str(self.classes_[self._class]), card.left_out
        others = join_others(self.classes_, self._class)
        family = replace(
            BINOMIAL,
            ratio_name=SOFTMAX.ratio_name,
            eta_label=f"score of {label}",
        )
        return replace(
            card,
            # With all else as an offset it is the log-odds against the other classes.
            model=replace(card.model, family=family),
            respond=self._chance,
            every=tuple(map(self._whole.of_class, range(len(self.classes_)))),
            place=self._class,
            facts=None,
            dial=None,
            base_offset=float(self._others(self._read_reference())[0]),
            classes=(others, label),
            left_out=None if left_out is None else left_out[:, self._class],
            note=(f"This page is about {label}, one of {len(self.classes_)} classes."),
            choice=f", class_={self.classes_.tolist()[self._class]!r}",
            about_score=(
                "Averages are of its probability, which all classes move. Coefficients "
                "and parts of rows are of its score, the "
                f"logarithm of its probability over {self._over()}."
            ),
        )

    def _reach(self) -> Reach:
        if self._whole is None:
            return super()._reach()
        if self._class_reach is None:  # of files: the ranges alone
            return restore_reach(self._whole.contrast(0))
        return self._class_reach


# Of the same rows; copies of a row, which are fitted as one, may be left out in turn.
SAME_SCORE = 0.02


@dataclass(frozen=True, slots=True)
class ClassSummaries:
    """Summaries of all classes, each against the mean of all.

    Attributes
    ----------
    parts : dict
        Summaries by label.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sknimo import NIMOClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> est = NIMOClassifier(penalty="ridge", max_iter=0).fit(X, y)
    >>> sorted(est.summary().parts)
    [0, 1, 2]
    """

    parts: dict[Any, Summary]

    def __str__(self) -> str:
        return "\n\n".join(
            f"Class {label!r}, against the mean of all\n\n{part}"
            for label, part in self.parts.items()
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{escape(str(label))}, against the mean of all classes</h4>"
            f"{part._repr_html_()}"
            for label, part in self.parts.items()
        )


def null_deviance(truth: np.ndarray, weight: np.ndarray) -> float:
    """Deviance of a class, 0 or 1 for each row, if all had its frequency."""
    share = torch.as_tensor(np.average(truth, weights=weight)).logit()
    loss = BINOMIAL.loss(torch.as_tensor(truth), share.expand(len(truth)))
    return 2 * float(weight @ loss.numpy())


def join_others(classes: np.ndarray, own: int) -> str:
    """Names of all classes but one, or their number."""
    others = [str(label) for c, label in enumerate(classes.tolist()) if c != own]
    return " or ".join(others) if len(others) < 4 else f"{len(others)} other classes"


def find_class(
    classes: np.ndarray, label: Any, name: str, other: int | None = None
) -> int:
    """Place of a label among the classes, which must not be that of another."""
    known = classes.tolist()
    if label not in known:
        raise ValueError(f"{name} must be one of the classes {known}, got {label!r}.")
    if known.index(label) == other:
        raise ValueError(
            f"label and baseline are the same class, {label!r}. Choose another "
            "baseline."
        )
    return known.index(label)
