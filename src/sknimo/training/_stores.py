"""Finished tasks of a search on disk: the next run begins where the last one ended.

A search is a chain of tasks, each a deterministic function of its arguments: a run that
finds some results on disk ends with the same model, bit for bit, as one that computes
them all. Each result is one state of a checkpoint, written by the process that computed
it and named by a digest of the arguments, so that no task is taken for another. Of
several ranks the first one searches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch

from sknimo.checkpoint import Checkpoint, fingerprint, pack_record, unpack_record
from sknimo.exceptions import CheckpointError
from sknimo.progress import finish, plan
from sknimo.ranks import ALONE, Ranks, together
from sknimo.solver import EvidenceOptions, JointOptions, Problem
from sknimo.training._data import TrainingSet
from sknimo.training._folds import AnyFold
from sknimo.training._streams import StreamedSet
from sknimo.version import VERSION

Result = TypeVar("Result")

DIGEST_LENGTH = 24
# Arguments with a deadline, which must not tell tasks apart.
TIMED = EvidenceOptions | JointOptions
# Parameters that do not change the answer, or only through what else is looked at.
FREE_PARAMETERS = (
    "checkpoint",
    "cv",
    "family",
    "max_time",
    "n_jobs",
    "random_state",
    "verbose",
)


@dataclass(frozen=True, slots=True)
class TaskStore:
    """Results of finished tasks; without a checkpoint nothing is kept."""

    checkpoint: Checkpoint | None = None
    device: torch.device = torch.device("cpu")  # where tensors are put
    # How the table is looked at: around which point, with or without curves.
    view: tuple[Any, ...] = ()
    ranks: Ranks = ALONE  # the processes that share what is remembered

    def call(
        self,
        kind: type[Result],
        stage: str,
        function: Callable[..., Result],
        *args: Any,
    ) -> Result:
        """Result of a task in this process, a record of the given kind."""
        name = self.name(stage, args)
        found = self.load(kind, name)
        return self.run(name, function, args) if found is None else found

    def run(
        self, name: str, function: Callable[..., Result], args: Sequence[Any]
    ) -> Result:
        """Compute and keep a result, unless the deadline may have cut it short."""
        result = function(*args)
        finish(stage_of(name))
        late = any(isinstance(arg, TIMED) and arg.out_of_time for arg in args)
        if self.checkpoint is not None and result is not None and not late:
            state = pack_record(result)
            self.checkpoint.save(name, state.tensors, state.facts)
        return result

    def name(self, stage: str, args: Sequence[Any]) -> str:
        """Name of a task's state."""
        plan(stage)
        if self.checkpoint is None:
            return stage
        digest = fingerprint(self.view, *_what_matters(args))
        return f"{stage.replace(' ', '-')}-{digest[:DIGEST_LENGTH]}"

    def load(self, kind: type[Result], name: str) -> Result | None:
        """A result as it was computed, None if it is not there."""
        state = None if self.checkpoint is None else self.checkpoint.load(name)
        return None if state is None else unpack_record(kind, state, self.device)

    def remember(self, name: str, value: Any) -> Any:
        """The value under this name of the run that began; this one if it is ours."""
        value = self.ranks.share(value)
        checkpoint, first = self.checkpoint, self.ranks.first
        if checkpoint is None:
            return value
        kept = together(
            self.ranks, lambda: checkpoint.agree(name, value) if first else None
        )
        return self.ranks.share(kept)

    def random(
        self, source: np.random.RandomState, given: bool
    ) -> np.random.RandomState:
        """Source of folds and seeds; one that nobody gave is drawn once."""
        if self.checkpoint is not None and not given:
            seed = self.remember("seed", int(source.randint(2**31 - 1)))
            source = np.random.RandomState(seed)
        shared: np.random.RandomState = self.ranks.share(source)
        return shared

    def check_folds(self, folds: Sequence[AnyFold]) -> None:
        """Refuse other folds than those that the search began with."""
        if self.checkpoint is None:
            return
        digest = self.ranks.share(fingerprint(list(folds)))
        if self.remember("folds", digest) != digest:
            raise CheckpointError(
                f"{self.checkpoint.folder} was begun with other folds: cv or groups "
                "have changed, or cv is a splitter that shuffles without a "
                "random_state. Restore them, or remove the folder to begin again."
            )


def stage_of(name: str) -> str:
    """The stage of a task, which its name begins with."""
    stage, _, digest = name.rpartition("-")
    return stage if len(digest) == DIGEST_LENGTH else name


def open_store(
    path: Any, data: TrainingSet | StreamedSet, problem: Problem, params: dict[str, Any]
) -> TaskStore:
    """Store in a folder that belongs to one fit to these rows; none without a path.

    `params` are those of the estimator; how many processes work, and for how long, may
    change from run to run.
    """
    ranks = problem.ranks
    if path is None:
        return TaskStore(ranks=ranks)
    random_state = params["random_state"]
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.get_state()
    table: tuple[Any, ...]
    if isinstance(data, StreamedSet):
        table = (data.digest,)
    else:
        table = (problem.terms, problem.inputs, problem.y, problem.offset, data.weight)
    work = fingerprint(
        VERSION,
        *table,
        problem.term_feature,
        problem.term_group,
        problem.family.traits(),
        problem.spec,
        problem.device.type,
        random_state,
        {key: params[key] for key in sorted(params) if key not in FREE_PARAMETERS},
    )
    checkpoint = together(ranks, lambda: Checkpoint.open(path, work))
    return TaskStore(checkpoint, problem.device, ranks=ranks)


def _what_matters(args: Sequence[Any]) -> list[Any]:
    """Arguments that tell one task from another.

    The table does not, since the checkpoint belongs to it, and the deadline must not.
    """
    return [
        replace(arg, deadline=np.inf) if isinstance(arg, TIMED) else arg
        for arg in args
        if not isinstance(arg, Problem)
    ]
