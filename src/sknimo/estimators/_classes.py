"""More than two classes: attributes of all of them, and explanations of one.

A `ClassModels` predicts; explanations are of a `FittedModel`. `for_class` gives the
same classifier with the model of one class against the mean of all, or against a
baseline, in the place of `model_`.

Shapes: n rows, C classes.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._base import BaseNIMO
from sknimo.explain import (
    Reach,
    TrainingFacts,
    describe_training,
    measure_shape,
    restore_reach,
)
from sknimo.machine import torch_threads
from sknimo.model import ClassModels, FittedModel
from sknimo.solver import Problem
from sknimo.training import StreamedSet, TrainingSet, is_separated, read_weight


class SeveralClasses(BaseNIMO):
    """A classifier that may have more than two classes."""

    classes_: np.ndarray
    # The model of all classes where these are more than two, and how far the training
    # rows reach.
    _whole: ClassModels | None = None
    _class_reach: Reach | None = None
    _class: int = 1  # the class that explanations are of

    if TYPE_CHECKING:  # the task brings its own

        def _known_target(self, y: Any) -> np.ndarray: ...

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

        Predictions stay those of all classes. `coef_`, `intercept_`, explanations,
        summary, figures and report are of one linear predictor: the logarithm of the
        probability of the class over the geometric mean of all probabilities, or over
        the probability of a baseline.

        Parameters
        ----------
        label : label of a class
            One of `classes_`.
        baseline : label of a class, optional
            The class to compare with; the mean of all classes by default.
        X : array or data frame of shape (n_samples, n_features), optional
            Rows that the summary averages over, best the training rows; without them
            it has coefficients alone.
        y : array of shape (n_samples,), optional
            The labels of these rows.
        sample_weight : array of shape (n_samples,), optional

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
        if (X is None) != (y is None):
            raise ValueError("X and y belong together; give both or neither.")
        whole = self._whole
        if whole is None:
            first, second = self.classes_.tolist()
            raise ValueError(
                f"The classifier has two classes, {first!r} and {second!r}: all "
                "explanations are of the second. Leave for_class out."
            )
        number = find_class(self.classes_, label, "label")
        base = None
        if baseline is not None:
            base = find_class(self.classes_, baseline, "baseline")
            if base == number:
                raise ValueError(
                    f"label and baseline are the same class, {label!r}. Choose another "
                    "baseline."
                )
        view = copy.copy(self)
        view._show_model(whole.contrast(number, base))
        view._class, view._facts = number, None
        if X is not None:
            view._facts = self._describe_class(view, X, y, sample_weight)
        return view

    def _describe_class(
        self, view: Self, X: Any, y: Any, sample_weight: Any
    ) -> TrainingFacts:
        """What the summary of a class says of some rows.

        The other classes are an offset: with it the linear predictor is the log-odds of
        the class against all others.
        """
        table, truth = self._read_table(X), view._known_target(y)
        if len(truth) != len(table):
            raise ValueError(
                f"X has {len(table)} rows but y has {len(truth)}: inconsistent numbers "
                "of samples."
            )
        weight = read_weight(sample_weight, len(table))
        model = view._explained()
        with torch_threads(len(table)), np.errstate(over="ignore", invalid="ignore"):
            offset = view._log_odds(table) - model.eta(table)
            return describe_training(model, table, truth, weight, offset)

    def _log_odds(self, table: np.ndarray) -> np.ndarray:
        """Log-odds of the class that is explained against all others, (n,)."""
        whole, own = self._whole, self._class
        assert whole is not None
        eta = torch.as_tensor(whole.eta(table))
        others = torch.cat([eta[:, :own], eta[:, own + 1 :]], 1)
        return (eta[:, own] - others.logsumexp(1)).numpy()

    def _explained(self) -> FittedModel:
        model: FittedModel | ClassModels = self.model_
        if isinstance(model, ClassModels):
            label = self.classes_.tolist()[-1]
            raise ValueError(
                f"There are {model.n_classes} classes, and this is of one of them. "
                f"Choose it first: for_class({label!r})."
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
        self,
        model: Any,
        data: TrainingSet | StreamedSet,
        problem: Problem,
        room: float,
    ) -> bool:
        self._whole = self._class_reach = None
        if not isinstance(model, ClassModels):
            return super()._keep_model(model, data, problem, room)
        data = in_memory(data)
        self.classes_ = data.classes  # type: ignore[assignment]
        self._show_model(model)
        found = [restore_reach(model.contrast(c)) for c in range(model.n_classes)]
        number = int(np.argmax([len(reach.columns) for reach in found]))
        one = model.contrast(number)
        shape = measure_shape(one, data.table, data.weight)
        reach = restore_reach(one, shape)
        self._class_reach = reach.within(float(reach.times(data.table).max()))
        return is_separated(model, data)

    def _judge(
        self, X: Any, y: Any, offset: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        truth, eta, mean = super()._judge(X, y, offset)
        if self._whole is None:
            return truth, eta, mean
        odds = self._log_odds(self._read_table(X))
        return truth, odds, torch.as_tensor(odds).sigmoid().numpy()

    def _priced_rows(
        self, table: np.ndarray, y: Any, offset: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        if self._whole is None:
            return super()._priced_rows(table, y, offset)
        known = self._log_odds(table) - self._explained().eta(table)
        return self._known_target(y), known

    def _reach(self) -> Reach:
        if self._whole is None:
            return super()._reach()
        if self._class_reach is None:  # of files: the ranges alone
            return restore_reach(self._whole.contrast(0))
        return self._class_reach


def find_class(classes: np.ndarray, label: Any, name: str) -> int:
    """Place of a label among the classes."""
    known = classes.tolist()
    if label not in known:
        raise ValueError(f"{name} must be one of the classes {known}, got {label!r}.")
    return known.index(label)


def in_memory(data: TrainingSet | StreamedSet) -> TrainingSet:
    """Rows of several classes, which are a table: `LabelReader` has seen to it."""
    assert isinstance(data, TrainingSet)
    return data
