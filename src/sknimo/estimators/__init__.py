"""The scikit-learn surface."""

from sknimo.estimators._models import NIMOClassifier, NIMORegressor

__all__ = ["NIMOClassifier", "NIMORegressor"]
