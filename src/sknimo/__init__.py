"""NIMO: linear models whose coefficients a network bends, row by row."""

from sknimo.estimators import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    load,
)
from sknimo.exceptions import DataWarning, ModelFileError, SeparationWarning

__version__ = "0.1.0.dev0"

__all__ = [
    "DataWarning",
    "ModelFileError",
    "NIMOClassifier",
    "NIMOClassifierCV",
    "NIMORegressor",
    "NIMORegressorCV",
    "SeparationWarning",
    "__version__",
    "load",
]
