"""The public estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from sknimo.estimators._base import (
    BaseNIMO,
    Target,
    check_option,
    read_labels,
    read_numeric_target,
    read_weight,
)
from sknimo.families import Family, get_family

REGRESSION_FAMILIES = ("gaussian", "poisson", "gamma")

_SHARED = {
    "parameters": """penalty : {"lasso", "ridge", "sub_l1"}, default="lasso"
        Penalty on the coefficients of the standardised features.
    alpha : float, default=0.01
        Strength of the penalty; 0 leaves the coefficients free. A Gaussian target is
        scaled to unit variance first, so the same value suits any unit.
    delta : float in (0, 1], default=0.5
        Shape of the sub-l1 penalty `|beta| ** (2 delta / (1 + delta))`; 1 is the lasso.
    scale_contributions : bool, default=True
        Price each coefficient by the size of its feature's modulated column. False
        is the paper's penalty on the bare coefficient, which the network can evade by
        scaling up: the coefficients then come out too small.
    network_alpha : float, default=1.0
        Group shrinkage of the network's first layer, as a rate relative to the
        learning rate. Larger values let fewer features modulate others.
    hidden : tuple of two int, default=(16, 16)
        Units of the network's two layers.
    noise : float, default=0.0
        Standard deviation of noise added to the first layer while training. It makes
        selection in the network stricter, but weights then no longer equal repetition.
    max_iter : int, default=500
        Steps of the network's optimiser; 0 gives the penalised GLM.
    learning_rate : float, default=0.01
        Peak learning rate.
    weight_decay : float, default=0.0
        Decay of the layers after the first.
    tol : float, default=1e-4
        Relative improvement that counts as progress.
    patience : int, default=10
        Checks (every ten steps) without progress before training stops.
    early_stopping : bool, default=False
        Whether to hold out rows and keep the state that predicts them best.
    validation_fraction : float, default=0.2
        Share of rows held out then.
    mask : bool, default=True
        Hide each feature from its own modulation. False is an ablation: coefficients
        then no longer mean what this class promises.
    position_code : {"binary", "none"}, default="binary"
        How the shared network is told which feature it modulates.
    warm_start : bool, default=False
        Start from the network of the previous fit.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to fit; "auto" takes a GPU when there is one.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the network. Coefficients are always solved in float64.
    memory_budget : float, default=512e6
        Bytes for the network's activations; rows are processed in chunks to keep it.
    verbose : bool, default=False
        Show a progress bar when the output is a terminal.
    random_state : int, RandomState instance or None, default=None
        Governs the start of the network, the noise and the held-out rows.""",
    "attributes": """reference_ : ndarray of shape (n_features,)
        The (weighted) mean of the training rows.
    model_ : FittedModel
        What predictions are made from.
    n_iter_ : int
        Optimiser steps taken.
    converged_ : bool
        Whether the network settled and the coefficients are optimal; never true when
        the classes are separated.
    certificate_ : Certificate
        Optimality residual and objective, beside those of the nested GLM.
    history_ : History
        Objective, validation loss and sparsity during training.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, when `X` had any.""",
}


def _document(cls: type) -> type:
    """Fill the shared parameters and attributes into a class docstring."""
    text = cls.__doc__ or ""
    for name, shared in _SHARED.items():
        text = text.replace(f"<{name}>", shared)
    cls.__doc__ = text
    return cls


@_document
class NIMORegressor(RegressorMixin, BaseNIMO):
    """Regression whose coefficients a network bends, row by row.

    `eta = intercept + sum_j (x_j - reference_j) * coef_j * (1 + g_j(x without j))` with
    `g_j(reference) = 0`: with everything else at the reference, feature j acts through
    the straight line of slope `coef_j`, and elsewhere the network `g` corrects it.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma"}, default="gaussian"
        Distribution of the target; the link is the identity for Gaussian targets and
        the logarithm otherwise.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Effect of each feature at the reference, per unit of its column, on the scale
        of the linear predictor. Zeros are exact.
    intercept_ : float
        Linear predictor at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=200, random_state=0)
    >>> est = NIMORegressor(random_state=0).fit(data.X, data.y)
    >>> est.score(data.X, data.y) > 0.98
    True
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        penalty: str = "lasso",
        alpha: float = 0.01,
        delta: float = 0.5,
        scale_contributions: bool = True,
        network_alpha: float = 1.0,
        hidden: tuple[int, int] = (16, 16),
        noise: float = 0.0,
        max_iter: int = 500,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        tol: float = 1e-4,
        patience: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        mask: bool = True,
        position_code: str = "binary",
        warm_start: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        memory_budget: float = 512e6,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            penalty=penalty,
            alpha=alpha,
            delta=delta,
            scale_contributions=scale_contributions,
            network_alpha=network_alpha,
            hidden=hidden,
            noise=noise,
            max_iter=max_iter,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            tol=tol,
            patience=patience,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            mask=mask,
            position_code=position_code,
            warm_start=warm_start,
            device=device,
            dtype=dtype,
            memory_budget=memory_budget,
            verbose=verbose,
            random_state=random_state,
        )
        self.family = family

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.family in ("poisson", "gamma")
        return tags

    def _family(self) -> Family:
        check_option("family", self.family, REGRESSION_FAMILIES)
        return get_family(self.family)

    def _read_target(self, y: Any) -> Target:
        return Target(read_numeric_target(y))

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Predict the mean response.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
        offset : array of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        eta = torch.as_tensor(self._eta(X, offset))
        return self.model_.family.mean(eta).numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of deviance explained; for the Gaussian family this is R squared."""
        check_is_fitted(self)
        target = read_numeric_target(y)
        if self.model_.family.scaled_target:
            return float(r2_score(target, self.predict(X), sample_weight=sample_weight))
        weight = read_weight(sample_weight, len(target))
        family, truth = self.model_.family, torch.as_tensor(target)
        loss = family.loss(truth, torch.as_tensor(self._eta(X))).numpy()
        if np.ptp(target[weight > 0]) == 0:  # nothing to explain, as in r2_score
            return float(np.allclose(weight * loss, 0))
        null = family.link_function(torch.as_tensor(np.average(target, weights=weight)))
        null_loss = family.loss(truth, null.expand(len(target))).numpy()
        return float(1 - np.sum(weight * loss) / np.sum(weight * null_loss))


@_document
class NIMOClassifier(ClassifierMixin, BaseNIMO):
    """Binary classification whose log-odds coefficients a network bends, row by row.

    The log-odds of the second class are `intercept + sum_j (x_j - reference_j) * coef_j
    * (1 + g_j(x without j))` with `g_j(reference) = 0`.

    Parameters
    ----------
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels; the model predicts the log-odds of the second.
    coef_ : ndarray of shape (n_features,)
        Effect of each feature on the log-odds at the reference, per unit of its column.
    intercept_ : float
        Log-odds at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMOClassifier
    >>> from sknimo.datasets import make_nimo_classification
    >>> data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    >>> est = NIMOClassifier(random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (200, 2)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _family(self) -> Family:
        return get_family("binomial")

    def _read_target(self, y: Any) -> Target:
        labels = read_labels(y)
        check_classification_targets(labels)
        kind = type_of_target(labels, input_name="y", raise_unknown=True)
        classes = np.unique(labels)
        if len(classes) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{kind} with {len(classes)} classes."
            )
        if len(classes) < 2:
            raise ValueError(
                f"y holds a single class ({classes[0]!r}); two classes are needed."
            )
        return Target((labels == classes[1]).astype(np.float64), classes)

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Log-odds of the second class, shape (n_samples,)."""
        return self._eta(X, offset)

    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Probability of each class, shape (n_samples, 2)."""
        eta = torch.as_tensor(self._eta(X, offset))
        return torch.stack([torch.sigmoid(-eta), torch.sigmoid(eta)], dim=1).numpy()

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Most probable class, shape (n_samples,)."""
        positive = (self.decision_function(X, offset) > 0).astype(int)
        return self.classes_[positive]
