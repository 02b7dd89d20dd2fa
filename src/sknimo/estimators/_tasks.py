"""What regression and classification add: targets in, predictions out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._base import BaseNIMO
from sknimo.exceptions import check_option
from sknimo.families import BINOMIAL, FAMILIES, Family
from sknimo.training import (
    LabelReader,
    NumberReader,
    read_numeric_target,
    read_weight,
)

REGRESSION_FAMILIES = {
    name: family for name, family in FAMILIES.items() if not family.is_binary
}


class RegressionTask(RegressorMixin, BaseNIMO):
    """Numeric targets; `family` chooses the distribution."""

    family: str | Family

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        family: Any = self.family
        if isinstance(family, str):
            family = FAMILIES.get(family)
        known = isinstance(family, Family)  # `fit` refuses what is none
        tags.target_tags.positive_only = known and family.positive_only
        return tags

    def _family(self) -> Family:
        family = self.family
        check_option("family", family, REGRESSION_FAMILIES, Family)
        if isinstance(family, str):
            family = FAMILIES[family]
        if family.is_binary:
            raise ValueError(
                f"{family!r} is for two classes; use NIMOClassifier for labels."
            )
        return family

    def _target_reader(self) -> NumberReader:
        return NumberReader()

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Predict the mean response.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        offset : array of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples,)

        Examples
        --------
        >>> from sknimo import NIMORegressor
        >>> from sknimo.datasets import make_nimo_regression
        >>> data = make_nimo_regression(setting=1, n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.predict(data.X[:3]).shape
        (3,)
        """
        eta = torch.as_tensor(self._eta(X, offset))
        return self.model_.family.mean(eta).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of deviance explained; for the Gaussian family this is R squared.

        Examples
        --------
        >>> from sknimo import NIMORegressor
        >>> from sknimo.datasets import make_nimo_regression
        >>> data = make_nimo_regression(setting=1, n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> 0.5 < est.score(data.X, data.y) < 1
        True
        """
        check_is_fitted(self)
        target = read_numeric_target(y)
        if self.model_.family.least_squares:
            return float(r2_score(target, self.predict(X), sample_weight=sample_weight))
        weight = read_weight(sample_weight, len(target))
        family, truth = self.model_.family, torch.as_tensor(target)
        loss = family.loss(truth, torch.as_tensor(self._eta(X))).numpy()
        if np.ptp(target[weight > 0]) == 0:  # nothing to explain, as in r2_score
            return float(np.allclose(weight * loss, 0))
        null = family.link_function(torch.as_tensor(np.average(target, weights=weight)))
        null_loss = family.loss(truth, null.expand(len(target))).numpy()
        return float(1 - np.sum(weight * loss) / np.sum(weight * null_loss))


class ClassificationTask(ClassifierMixin, BaseNIMO):
    """Two classes; the model predicts the log-odds of the second."""

    classes_: np.ndarray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _family(self) -> Family:
        return BINOMIAL

    def _target_reader(self) -> LabelReader:
        return LabelReader()

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Log-odds of the second class, shape (n_samples,).

        Examples
        --------
        >>> from sknimo import NIMOClassifier
        >>> from sknimo.datasets import make_nimo_classification
        >>> data = make_nimo_classification(setting=1, n_samples=80, random_state=0)
        >>> est = NIMOClassifier(tol=1.0, patience=3, random_state=0).fit(
        ...     data.X, data.y
        ... )
        >>> odds = est.decision_function(data.X)
        >>> bool(((odds > 0) == (est.predict(data.X) == 1)).all())
        True
        """
        return self._eta(X, offset)

    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Probability of each class, shape (n_samples, 2).

        Examples
        --------
        >>> from sknimo import NIMOClassifier
        >>> from sknimo.datasets import make_nimo_classification
        >>> data = make_nimo_classification(setting=1, n_samples=80, random_state=0)
        >>> est = NIMOClassifier(tol=1.0, patience=3, random_state=0).fit(
        ...     data.X, data.y
        ... )
        >>> bool(abs(est.predict_proba(data.X).sum(axis=1) - 1).max() < 1e-12)
        True
        """
        eta = torch.as_tensor(self._eta(X, offset))
        return torch.stack([torch.sigmoid(-eta), torch.sigmoid(eta)], dim=1).numpy()

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Most probable class, shape (n_samples,).

        Examples
        --------
        >>> from sknimo import NIMOClassifier
        >>> from sknimo.datasets import make_nimo_classification
        >>> data = make_nimo_classification(setting=1, n_samples=80, random_state=0)
        >>> est = NIMOClassifier(tol=1.0, patience=3, random_state=0).fit(
        ...     data.X, data.y
        ... )
        >>> sorted(set(est.predict(data.X).tolist()))
        [0, 1]
        """
        positive = (self._eta(X, offset) > 0).astype(int)
        return self.classes_[positive]
