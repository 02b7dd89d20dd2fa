"""How members of bags are trained: in which batches, and how many in one program.

On a CPU a few members make one program for one thread: a step of one member on a small
batch would be mostly the host's own time. The number does not depend on the machine,
and so neither does the fit. On a GPU all of them are one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from sknimo.machine import all_threads, hide_progress, run_alone
from sknimo.network import NetworkSpec, start_networks, unpack
from sknimo.search._settings import Settings
from sknimo.solver import (
    JointOptions,
    JointTable,
    PerMember,
    Problem,
)
from sknimo.training import AnyFold, TaskStore

State = TypeVar("State", bound=PerMember)

# Members of a program on a CPU. Seconds of a core for a pass and a member (california):
# one 0.90, two 0.79, four 0.69.
CPU_MEMBERS = 4


@dataclass(frozen=True, slots=True)
class BagTraining(Generic[State]):
    """How members of bags are trained, all of them on one table."""

    kind: type[State]
    train: Callable[..., State]
    table: JointTable
    ridge: Tensor  # (q,)


def fold_weights(folds: Sequence[AnyFold], problem: Problem) -> tuple[Tensor, Tensor]:
    """Weights of rows that bags train on and hold out, (K, n) each."""
    sides = zip(*((fold.train, fold.held_out) for fold in folds), strict=True)
    train, held_out = (
        torch.as_tensor(np.array(side), dtype=torch.float64, device=problem.device)
        for side in sides
    )
    return train, held_out


def begin_networks(spec: NetworkSpec, seeds: Sequence[int], inputs: Tensor) -> Tensor:
    """Random networks without output, (K, P), for rows with these inputs (n, r)."""
    params = start_networks(spec, seeds).to(inputs.device)
    # Weights of inputs that are zero everywhere would not move: they begin at zero.
    unpack(spec, params).first[:, :, (inputs == 0).all(0)] = 0.0
    return params


def joint_options(
    n_rows: int, n_features: int, few: bool, settings: Settings
) -> JointOptions:
    """How members of so many rows are trained, `few` of them or not."""
    joint = settings.few_joint if few else settings.joint
    passes = round((1.0 if few else settings.cycle_share) * settings.max_iter)
    usual = joint.batch_size
    batch = min(usual, max(settings.least_batch, n_rows // settings.least_steps))
    batch = max(batch, min(settings.largest_batch, n_rows // settings.most_steps))
    batch = settings.batch_size or batch
    visits = settings.max_visits * max(1.0, n_features / settings.usual_features)
    return replace(
        joint,
        max_passes=min(passes, max(int(visits / n_rows), 10)),
        batch_size=batch,
        learning_rate=joint.learning_rate * math.sqrt(max(batch / usual, 1)),
        deadline=settings.deadline,
    )


def in_groups(bags: list[int], device: torch.device) -> list[list[int]]:
    """Bags whose members make one program."""
    size = CPU_MEMBERS if device.type == "cpu" else max(len(bags), 1)
    return [bags[at : at + size] for at in range(0, len(bags), size)]


def train_groups(
    how: BagTraining[State],
    make_start: Callable[[list[int]], Any],
    groups: Sequence[list[int]],
    options: JointOptions,
    settings: Settings,
    store: TaskStore,
) -> list[State]:
    """Members of all bags; a group has a thread of a CPU unless its rows are few."""
    done: dict[int, State] = {}
    bar = tqdm(
        total=sum(map(len, groups)) * options.max_passes,
        desc="sknimo bags",
        disable=hide_progress(settings.progress),
        delay=2,
        leave=False,
    )
    stage = "few-rows" if options.common_stop else "bag"

    def work(place: int) -> None:
        start = make_start(groups[place])
        name = store.name(stage, (start, how.ridge, options))
        state = store.load(how.kind, name)
        if state is None:
            args = (how.table, start, how.ridge, options, bar.update)
            state = store.run(name, how.train, args)
        done[place] = state

    alone = how.ridge.device.type == "cpu" and not options.common_stop
    with bar:
        if alone:
            run_alone(work, range(len(groups)), all_threads())
        else:
            for place in range(len(groups)):
                work(place)
    return [
        done[place].take([k])
        for place, group in enumerate(groups)
        for k in range(len(group))
    ]
