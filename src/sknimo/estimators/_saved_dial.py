"""The model without bends, in files; earlier ones have none of it."""

import numpy as np

from sknimo.io import Node
from sknimo.model import Dial

# Where the dial has a score.
POSITIONS = np.linspace(0.0, 1.0, 21)
DIAL_TENSORS = ("dial.coef", "dial.intercept", "dial.scores")


def write_dial(dial: Dial | None) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    if dial is None:
        return {}
    return dict(
        zip(DIAL_TENSORS, (dial.coef, dial.intercept, dial.scores), strict=True)
    )


def read_dial(
    tensors: dict[str, np.ndarray], n_terms: int, n_classes: int, bend: float
) -> Dial | None:
    """Undo `write_dial`; earlier files have none of it."""
    if not any(name in tensors for name in DIAL_TENSORS):
        return None
    shapes = (n_classes, n_terms), (n_classes,), POSITIONS.shape
    nodes = [Node(tensors.get(name), name) for name in DIAL_TENSORS]
    coef, intercept = (
        node.array(shape) for node, shape in zip(nodes[:2], shapes[:2], strict=True)
    )
    scores = nodes[2].array(shapes[2], finite=False)
    if not 0 < bend <= 1:
        raise nodes[0].refuse("a share of bends above 0")
    return Dial(bend, coef, intercept, POSITIONS, scores)
