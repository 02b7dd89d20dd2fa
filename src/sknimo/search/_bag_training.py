"""How members of bags are trained: in which batches, and how many in one program.

Small batches take more steps over the same rows and end in better members on most
tables, but where many columns tell the same they end in worse ones, and nothing in the
shape of a table says so. So the first members are trained both ways, and the rows that
these hold out choose.

On a CPU a few members make one program for one thread: a step of one member on a small
batch would be mostly the host's own time. The number does not depend on the machine,
and so neither does the fit. On a GPU all of them are one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

from sknimo.machine import all_threads, hide_progress, run_alone
from sknimo.search._settings import Settings
from sknimo.solver import JointOptions, JointTable, PerMember
from sknimo.training import TaskStore

State = TypeVar("State", bound=PerMember)
# Bags whose members make one program, and how these are trained.
Job = tuple[list[int], JointOptions]

# Members of a program on a CPU. Seconds of a core for a pass and a member with batches
# of 64 (california): one 0.78, two 0.47, four 0.29; of 256: one 0.27.
CPU_MEMBERS = 4


@dataclass(frozen=True, slots=True)
class BagTraining(Generic[State]):
    """How members of bags are trained, all of them on one table."""

    kind: type[State]
    train: Callable[..., State]
    table: JointTable
    ridge: Tensor  # (q,)


def joint_options(n_rows: int, few: bool, settings: Settings) -> JointOptions:
    """How members of so many rows are trained, `few` of them or not."""
    joint = settings.joint
    passes = settings.max_iter if few else settings.more_passes * settings.max_iter
    most, least = joint.batch_size, settings.least_batch
    return replace(
        joint,
        max_passes=min(passes, max(settings.max_visits // n_rows, 10)),
        batch_size=settings.batch_size
        or min(most, max(least, n_rows // settings.least_steps)),
        common_stop=few,
        deadline=settings.deadline,
    )


def ways_to_train(n_rows: int, n_bags: int, settings: Settings) -> list[JointOptions]:
    """What scouts choose from; one way where there is a batch size, or they are all."""
    large = joint_options(n_rows, False, settings)
    if settings.batch_size:
        return [large]
    passes = min(settings.max_iter, large.max_passes)
    batch = min(settings.small_batch, large.batch_size)
    small = replace(large, batch_size=batch, max_passes=passes)
    return [small, large] if n_bags > settings.n_scouts else [small]


def in_groups(bags: list[int], device: torch.device) -> list[list[int]]:
    """Bags whose members make one program."""
    size = CPU_MEMBERS if device.type == "cpu" else max(len(bags), 1)
    return [bags[at : at + size] for at in range(0, len(bags), size)]


def train_groups(
    how: BagTraining[State],
    make_start: Callable[[list[int]], Any],
    jobs: Sequence[Job],
    settings: Settings,
    store: TaskStore,
    device: torch.device,
) -> list[list[State]]:
    """Members of every job, which has a thread of a CPU unless its rows are few."""
    done: dict[int, State] = {}
    bar = tqdm(
        total=sum(len(bags) * options.max_passes for bags, options in jobs),
        desc="sknimo bags",
        disable=hide_progress(settings.progress),
        delay=2,
        leave=False,
    )

    def work(place: int) -> None:
        bags, options = jobs[place]
        start = make_start(bags)
        stage = "few-rows" if options.common_stop else "bag"
        name = store.name(stage, (start, how.ridge, options))
        state = store.load(how.kind, name)
        if state is None:
            args = (how.table, start, how.ridge, options, bar.update)
            state = store.run(name, how.train, args)
        done[place] = state

    alone = device.type == "cpu" and not any(way.common_stop for _, way in jobs)
    with bar:
        if alone:
            run_alone(work, range(len(jobs)), all_threads())
        else:
            for place in range(len(jobs)):
                work(place)
    return [
        [done[place].take([k]) for k in range(len(bags))]
        for place, (bags, _) in enumerate(jobs)
    ]
