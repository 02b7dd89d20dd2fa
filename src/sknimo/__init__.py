"""NIMO: linear models whose coefficients a network bends, row by row."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sknimo.exceptions import (
    CheckpointError,
    CheckpointWarning,
    DataWarning,
    ExtrapolationWarning,
    ModelFileError,
    SeparationWarning,
)
from sknimo.version import VERSION

if TYPE_CHECKING:
    from sknimo.estimators import (
        NIMOClassifier,
        NIMOClassifierCV,
        NIMORegressor,
        NIMORegressorCV,
        NIMOSurvival,
        NIMOSurvivalCV,
        RowBlocks,
        load,
    )

__version__ = VERSION

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "DataWarning",
    "ExtrapolationWarning",
    "ModelFileError",
    "NIMOClassifier",
    "NIMOClassifierCV",
    "NIMORegressor",
    "NIMORegressorCV",
    "NIMOSurvival",
    "NIMOSurvivalCV",
    "RowBlocks",
    "SeparationWarning",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """Load torch and scikit-learn with the first estimator, not before.

    They take seconds, and `sknimo --help` needs neither.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("sknimo.estimators"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
