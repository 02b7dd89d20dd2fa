"""The state of a training run as arrays and facts, and back, bit by bit.

Everything that the next step depends on is here, and nothing that belongs to one rank:
draws are numbered over all rows, and sums are those of all ranks. The first rank saves;
all go on from its state.

Shapes: K models in training, M members in all, P weights, q terms, p features.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from sknimo.checkpoint import (
    Checkpoint,
    State,
    pack_record,
    part_of,
    put_below,
    unpack_record,
)
from sknimo.ranks import Ranks
from sknimo.solver._problem import Solution, Status


def load_state(checkpoint: Checkpoint | None, name: str, ranks: Ranks) -> State | None:
    """The state that the first rank finds, on all ranks."""
    if checkpoint is None:
        return None
    state: State | None = ranks.share(checkpoint.load(name) if ranks.first else None)
    return state


def pack_solution(solution: Solution) -> State:
    """A finished run."""
    names = [status.name for status in solution.status]
    tensors = put_below("solution", pack_record(solution).tensors)
    return State(tensors, {"finished": True, "status": names})


def unpack_solution(state: State, device: torch.device) -> Solution:
    """Undo `pack_solution`."""
    status = tuple(Status[name] for name in state.facts["status"])
    packed = State(part_of(state.tensors, "solution"), {})
    solution = unpack_record(Solution, packed, device, status=status)
    return replace(solution, n_iter=solution.n_iter.cpu())
