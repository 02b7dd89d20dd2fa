"""What regression and classification add: targets in, predictions out."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from sknimo.advice import REFUSED
from sknimo.estimators._base import BaseNIMO
from sknimo.estimators._classes import SeveralClasses
from sknimo.exceptions import check_option
from sknimo.families import BINOMIAL, FAMILIES, SOFTMAX, Family, get_family
from sknimo.machine import prediction_device
from sknimo.ranks import ALONE
from sknimo.rows import RowBlocks
from sknimo.training import (
    LabelReader,
    NumberReader,
    ReadingOptions,
    Target,
    TrainingSet,
    check_number,
    read_numeric_target,
    read_offset,
    read_weight,
)

REGRESSION_FAMILIES = {
    name: family for name, family in FAMILIES.items() if not family.is_binary
}


class RegressionTask(RegressorMixin, BaseNIMO):
    """Numeric targets; `family` chooses the distribution."""

    family: str | Family
    # The class for labels, which refusals name.
    _classifier: ClassVar[str] = "NIMOClassifier"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        family: Any = self.family
        if isinstance(family, str):
            family = FAMILIES.get(family.partition("(")[0].strip())
        known = isinstance(family, Family)  # `fit` refuses what is none
        tags.target_tags.positive_only = known and family.positive_only
        return tags

    def _family(self) -> Family:
        family = self.family
        named = isinstance(family, str) and ("(" in family or family in REFUSED)
        if not named:  # the message for whatever is no family at all
            check_option("family", family, REGRESSION_FAMILIES, Family)
        if isinstance(family, str):
            family = get_family(family, REGRESSION_FAMILIES)
        if family.is_binary:
            raise ValueError(
                f"{family!r} is for two classes; use {self._classifier} for labels."
            )
        return family

    def _target_reader(self) -> NumberReader:
        return NumberReader(self._classifier)

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Predict the mean response.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        offset : array of shape (n_samples,) or float, optional
            Added to the linear predictor. Without, it is zero; after a fit with an
            offset a warning says so, which `offset=0` keeps away.

        Returns
        -------
        ndarray of shape (n_samples,)

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.predict(data.X[:3]).shape
        (3,)
        """
        eta = torch.as_tensor(self._eta(X, offset))
        return self.model_.family.mean(eta).numpy()

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
    ) -> float:
        """Share of deviance explained; for the Gaussian family this is R squared.

        With an `offset` it is that of a constant rate that is explained.

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> 0.5 < est.score(data.X, data.y) < 1
        True
        """
        check_is_fitted(self)
        target = read_numeric_target(y, classifier=self._classifier)
        if self.model_.family.least_squares:
            predicted = self.predict(X, offset)
            return float(r2_score(target, predicted, sample_weight=sample_weight))
        weight = read_weight(sample_weight, len(target))
        family, eta = self.model_.family, torch.as_tensor(self._eta(X, offset))
        rows = [torch.as_tensor(each) for each in (target, weight)]
        if np.ptp(target[weight > 0]) == 0:  # nothing to explain, as in r2_score
            loss = family.loss(rows[0], eta).numpy()
            return float(np.allclose(weight * loss, 0))
        known = None
        if offset is not None:
            known = torch.as_tensor(read_offset(offset, len(target)))
        return family.explained(rows[0], eta, rows[1], known)


class ClassificationTask(ClassifierMixin, SeveralClasses):
    """Two classes, where the model predicts the log-odds of the second, or more."""

    class_weight: Any
    classes_: np.ndarray

    def _family(self) -> Family:
        return SOFTMAX if self._n_classes > 2 else BINOMIAL

    def _target_reader(self) -> LabelReader:
        self._n_classes = 2
        return LabelReader()

    def _read_target(self, y: Any) -> Target:
        reader = LabelReader(several=True)
        target = reader.finish(reader.read(y, 0), ALONE)
        self._n_classes = len(target.classes)  # type: ignore[arg-type]
        return target

    def _read_rows(self, rows: RowBlocks | None, *given: Any) -> Any:
        if rows is not None and not isinstance(given[0], RowBlocks):
            # A mapped table, as processes are given: it can be held where it must be.
            several = len(np.unique(given[1])) > 2
            rows = None if several or self.class_weight is not None else rows
        if rows is not None and self.class_weight is not None:
            raise ValueError(
                "class_weight needs the classes of all rows, but rows come in blocks. "
                "Leave it out and give the blocks a sample_weight."
            )
        return super()._read_rows(rows, *given)

    def _read_training_set(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, how: ReadingOptions
    ) -> TrainingSet:
        data = super()._read_training_set(X, y, sample_weight, offset, how)
        if self._n_classes > 2:
            refuse_offset(offset)
        return data

    def _weigh_target(self, target: Target, weight: np.ndarray) -> np.ndarray:
        """Row weights times those of their classes, which add no observations."""
        if self.class_weight is None:
            return weight
        number = target.values.astype(int)
        n_classes = len(target.classes)  # type: ignore[arg-type]
        if isinstance(self.class_weight, str):
            check_option("class_weight", self.class_weight, ("balanced",))
            own = np.array([weight[number == c].sum() for c in range(n_classes)])
            # A class without weight is refused later, with a remedy.
            each = weight.sum() / (n_classes * np.where(own > 0, own, 1.0))
        else:
            each = _read_class_weight(self.class_weight, target.classes)
        each = each[number]
        mean = np.average(each, weights=weight)
        return weight * (each / mean if mean > 0 else each)

    def _eta_of(self, table: np.ndarray, offset: Any) -> np.ndarray:
        if self._whole is None:
            return super()._eta_of(table, offset)
        refuse_offset(offset)
        return self._whole.eta(table, device=prediction_device(self.device))

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Log-odds of the second class, shape (n_samples,).

        Of C classes, C > 2, the logarithms of their probabilities over the geometric
        mean of these, shape (n_samples, C).

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> odds = est.decision_function(data.X)
        >>> bool(((odds > 0) == (est.predict(data.X) == 1)).all())
        True
        """
        return self._eta(X, offset)

    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Probability of each class, shape (n_samples, n_classes).

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> bool(abs(est.predict_proba(data.X).sum(axis=1) - 1).max() < 1e-12)
        True
        """
        eta = torch.as_tensor(self._eta(X, offset))
        if eta.ndim > 1:
            return eta.softmax(1).numpy()
        return torch.stack([torch.sigmoid(-eta), torch.sigmoid(eta)], dim=1).numpy()

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Most probable class, shape (n_samples,).

        Examples
        --------
        >>> from sknimo import NIMOClassifier, datasets
        >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
        >>> est = NIMOClassifier(max_iter=0).fit(data.X, data.y)
        >>> sorted(set(est.predict(data.X).tolist()))
        [0, 1]
        """
        eta = self._eta(X, offset)
        if eta.ndim > 1:
            return self.classes_[eta.argmax(axis=1)]
        return self.classes_[(eta > 0).astype(int)]


def refuse_offset(offset: Any) -> None:
    """An offset is added to one linear predictor; several classes have several."""
    if offset is not None:
        raise ValueError(
            "offset is the known part of one linear predictor, but there are more than "
            "two classes. Leave it out."
        )


def _read_class_weight(given: Any, classes: Any) -> np.ndarray:
    """Weights of the classes from a mapping; a class that it leaves out has one."""
    if not isinstance(given, Mapping):
        raise ValueError(
            f"class_weight must be 'balanced', None or a dict, got {given!r}."
        )
    labels = classes.tolist()
    for label, value in given.items():
        if label not in labels:
            raise ValueError(
                f"class_weight names the class {label!r}; the classes are {labels}."
            )
        check_number(f"class_weight[{label!r}]", value, Real, 0)
    return np.array([float(given.get(label, 1.0)) for label in labels])
