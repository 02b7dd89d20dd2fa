"""The state of a training run as arrays and facts, and back, bit by bit.

Everything that the next step depends on is here, and nothing that belongs to one rank:
draws are numbered over all rows, and sums are those of all ranks. The first rank saves;
all go on from its state.

Shapes: K models in training, M members in all, P weights, q terms, p features.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sknimo.checkpoint import Checkpoint, State
from sknimo.ranks import Ranks
from sknimo.solver._problem import History, Solution, Status

Record = TypeVar("Record")


def load_state(checkpoint: Checkpoint | None, name: str, ranks: Ranks) -> State | None:
    """The state that the first rank finds, on all ranks."""
    if checkpoint is None:
        return None
    state: State | None = ranks.share(checkpoint.load(name) if ranks.first else None)
    return state


def flatten(prefix: str, record: Any) -> dict[str, Tensor]:
    """Tensors of a record and of the records within it, by dotted name."""
    tensors: dict[str, Tensor] = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), f"{prefix}.{field.name}"
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, np.ndarray):
            tensors[name] = torch.as_tensor(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            tensors |= flatten(name, value)
    return tensors


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """What is below a prefix, named from there."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in tensors.items()
        if name.startswith(start)
    }


def rebuild(
    record: type[Record],
    tensors: Mapping[str, Tensor],
    prefix: str,
    device: torch.device,
    **others: Any,
) -> Record:
    """Undo `flatten` for a record of tensors; `others` are fields of another kind."""
    own = part_of(tensors, prefix)
    values = {name: value.to(device) for name, value in own.items() if "." not in name}
    return record(**(values | others))


def pack_solution(solution: Solution) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A finished run."""
    facts = {"finished": True, "status": [status.name for status in solution.status]}
    return flatten("solution", solution), facts


def unpack_solution(state: State, device: torch.device) -> Solution:
    """Undo `pack_solution`."""
    history = part_of(state.tensors, "solution.history")
    solution = rebuild(
        Solution,
        state.tensors,
        "solution",
        device,
        status=tuple(Status[name] for name in state.facts["status"]),
        history=History(**{name: value.numpy() for name, value in history.items()}),
    )
    return dataclasses.replace(solution, n_iter=solution.n_iter.cpu())
