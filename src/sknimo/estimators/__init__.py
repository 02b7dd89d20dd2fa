"""The scikit-learn surface."""

from sknimo.estimators._classes import ClassSummaries
from sknimo.estimators._load import load
from sknimo.estimators._plain import NIMOClassifier, NIMORegressor
from sknimo.estimators._searching import NIMOClassifierCV, NIMORegressorCV
from sknimo.estimators._survival import NIMOSurvival, NIMOSurvivalCV
from sknimo.rows import RowBlocks
