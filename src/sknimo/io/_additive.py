"""What exports without a network need: whether a model is additive, and its shapes.

Shapes: n values, p features.
"""

import numpy as np

from sknimo.model import FittedModel
from sknimo.network import unpack


def bent_features(model: FittedModel) -> list[str]:
    """Names of the features whose coefficients a network really bends."""
    weights = unpack(model.spec, model.params)
    reads = (weights.first.abs().amax(1) > 0).any(-1)  # (M,)
    speaks = (weights.out.abs().flatten(1).amax(1) > 0) & reads
    owner = model.features.term_feature
    bent = []
    for j, name in enumerate(model.features.names):
        own = (model.coef[:, owner == j] != 0).any(-1)
        if bool((own & speaks & model.modulated[:, j]).any()):
            bent.append(name)
    return bent


def refuse_bends(model: FittedModel, what: str, remedy: str) -> None:
    """Refuse a model that is not a sum of its features."""
    bent = bent_features(model)
    if bent:
        more = f" and {len(bent) - 3} more" if len(bent) > 3 else ""
        raise ValueError(
            f"{what} adds up features, but a network bends the coefficients of "
            f"{', '.join(map(repr, bent[:3]))}{more}. {remedy}"
        )


def contribution(model: FittedModel, feature: int, values: np.ndarray) -> np.ndarray:
    """What values of one feature add to the linear predictor, unbent, (n,)."""
    features = model.features
    own = model.term_coef[features.term_feature == feature]
    return np.asarray(features.bases[feature].terms(values) @ own)
