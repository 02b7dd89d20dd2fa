"""The scikit-learn surface."""

from sknimo.estimators._load import load
from sknimo.estimators._models import NIMOClassifier, NIMORegressor
from sknimo.estimators._search_models import NIMOClassifierCV, NIMORegressorCV
from sknimo.rows import RowBlocks

__all__ = [
    "NIMOClassifier",
    "NIMOClassifierCV",
    "NIMORegressor",
    "NIMORegressorCV",
    "RowBlocks",
    "load",
]
