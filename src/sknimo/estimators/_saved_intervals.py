"""What rows held out said of predictions, in files; earlier ones have none of it."""

import numpy as np

from sknimo.inference import Conformal, pack_conformal, restore_conformal
from sknimo.io import Node
from sknimo.model import FittedModel

SHAPES = {"facts": (6,), "width": (2, None), "plain": (3, None), "adapted": (3, None)}
INTERVAL_TENSORS = tuple(f"intervals.{name}" for name in SHAPES)


def write_intervals(found: Conformal | None) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    packed = {} if found is None else pack_conformal(found)
    return {f"intervals.{name}": array for name, array in packed.items()}


def read_intervals(
    tensors: dict[str, np.ndarray], model: FittedModel
) -> Conformal | None:
    """Undo `write_intervals`."""
    if not any(name in tensors for name in INTERVAL_TENSORS):
        return None
    nodes = {
        name: Node(tensors.get(f"intervals.{name}"), f"intervals.{name}")
        for name in SHAPES
    }
    found = {name: nodes[name].array(shape) for name, shape in SHAPES.items()}
    # A width follows all terms and the linear predictor, or that alone.
    if found["width"].shape[1] not in (1, len(model.features.term_feature) + 1):
        raise nodes["width"].refuse("a column for every term, or one")
    for name in ("plain", "adapted"):
        if found[name].shape[1] == 0 or (np.diff(found[name]) < 0).any():
            raise nodes[name].refuse("scores in order")
    return restore_conformal(found)
