"""What the network reads: the weights of its first layer.

Shapes: M members, p features, h units of the first layer, r network inputs.
"""

from dataclasses import dataclass

import numpy as np

from sknimo.explain._frames import Shown
from sknimo.explain._local import find_roles, sum_by_owner
from sknimo.model import FittedModel


@dataclass(frozen=True, slots=True, eq=False)
class FirstLayer(Shown):
    """First-layer weights per feature.

    Attributes
    ----------
    weights : ndarray of shape (M, h, r)
    size : ndarray of shape (M, h, p)
        Norm of the weights from each feature to each unit.
    norms : ndarray of shape (p,)
        Norm over all units, averaged over members; zero where nothing is read.
    modifies : ndarray of shape (p,), bool
        Whether the feature bends a coefficient at all.
    names : tuple of str

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> est.first_layer().names[:2]
    ('x0', 'x1')
    """

    weights: np.ndarray
    size: np.ndarray
    norms: np.ndarray
    modifies: np.ndarray
    names: tuple[str, ...]


def first_layer(model: FittedModel) -> FirstLayer:
    """Read the first layer of a fitted model."""
    features = model.features
    weights = model.first_layer
    square = sum_by_owner(weights**2, features.input_feature, features.n_features)
    return FirstLayer(
        weights=weights,
        size=np.sqrt(square),
        norms=model.input_norms,
        modifies=find_roles(model).modifies,
        names=features.names,
    )
