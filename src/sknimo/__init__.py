"""NIMO: linear models whose coefficients a network bends, row by row."""

from sknimo.estimators import NIMOClassifier, NIMORegressor
from sknimo.exceptions import DataWarning, SeparationWarning

__version__ = "0.1.0.dev0"

__all__ = [
    "DataWarning",
    "NIMOClassifier",
    "NIMORegressor",
    "SeparationWarning",
    "__version__",
]
