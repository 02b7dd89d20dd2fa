"""Search on rows in blocks: bags of as many of them as memory holds.

A member of a bag is shown some hundred thousand rows, over and over if there are fewer:
of a table that nobody holds all of a sample teaches it as much. A row's place in the
whole table decides whether it is drawn: neither blocks nor ranks change the answer. The
first rank searches, the others wait for what it finds.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.machine import to_device
from sknimo.network import NetworkSpec
from sknimo.ranks import ALONE, together
from sknimo.search._bags import COLUMN_BYTES, search_bags
from sknimo.search._settings import Settings
from sknimo.search._verdict import Outcome
from sknimo.solver import MemoryColumns, Problem
from sknimo.training import AnyFold, Fold, TaskStore

# Multiples of it, without their whole part, are spread evenly between 0 and 1, and
# know of no period of the rows. Hashes (`rows.sample_rows`) are not as even: of rows in
# the order of time every stretch and season should have its share.
GOLDEN = (math.sqrt(5) - 1) / 2
# Rows that are read at a time, with those between them.
TAKEN_ROWS = 2_000


def search_blocks(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    random: np.random.RandomState,
    store: TaskStore,
) -> Outcome:
    """Additive and bent members of bags of a sample of the rows."""
    ranks = problem.ranks
    part, some, share = gather_rows(
        problem, folds, weight, draw_rows(problem, settings)
    )

    def work() -> Outcome | None:
        if not ranks.first:
            return None
        return search_bags(part, some, settings, share, random, store)

    found = together(ranks, work)
    spec, outcome = ranks.share(None if found is None else _without_rows(found))
    outcome = to_device(outcome, problem.device)
    sample = (replace(part, spec=spec), share) if ranks.alone else None
    return replace(outcome, problem=replace(problem, spec=spec), sample=sample)


def draw_rows(problem: Problem, settings: Settings) -> np.ndarray:
    """Numbers of the own rows that are drawn."""
    sizes = problem.ranks.gather(problem.n_rows)
    row_bytes = COLUMN_BYTES * (problem.n_terms + len(problem.spec.input_feature))
    room = settings.memory_budget / 2 / row_bytes
    share = min(settings.sample_rows, room) / sum(sizes)
    first = sum(sizes[: problem.ranks.rank])
    place = np.arange(first, first + problem.n_rows)
    return np.flatnonzero(place * GOLDEN % 1 < share)


def gather_rows(
    problem: Problem, folds: Sequence[AnyFold], weight: Tensor, index: np.ndarray
) -> tuple[Problem, list[Fold], Tensor]:
    """These rows of all ranks in memory: the problem, its folds and weights (m,)."""
    rows = torch.as_tensor(index, device=problem.device)
    columns = _read_columns(problem, rows)
    own = replace(
        problem, columns=columns, y=problem.y[rows], offset=problem.offset[rows]
    )
    some = [Fold(fold.train[index], fold.held_out[index]) for fold in folds]
    if problem.ranks.alone:
        return own, some, weight[rows]
    vectors = own.terms, own.inputs, own.y, own.offset, weight[rows]
    told = [vector.cpu().numpy() for vector in vectors]
    told += [side for fold in some for side in (fold.train, fold.held_out)]
    parts = problem.ranks.gather(told)
    whole = [np.concatenate(each) for each in zip(*parts, strict=True)]
    terms, inputs, y, offset, share = (
        torch.as_tensor(vector, device=problem.device) for vector in whole[:5]
    )
    columns = MemoryColumns(terms, inputs)
    part = replace(own, columns=columns, y=y, offset=offset, ranks=ALONE)
    pairs = zip(whole[5::2], whole[6::2], strict=True)
    return part, [Fold(*pair) for pair in pairs], share


def _read_columns(problem: Problem, rows: Tensor) -> MemoryColumns:
    """Terms and inputs of rows in ascending order, a few read at a time."""
    terms = problem.y.new_empty(len(rows), problem.n_terms)
    inputs = problem.y.new_empty(len(rows), len(problem.spec.input_feature))
    for begin in range(0, len(rows), TAKEN_ROWS):
        some = slice(begin, begin + TAKEN_ROWS)
        terms[some], inputs[some] = problem.columns.take(rows[some])
    return MemoryColumns(terms, inputs)


def _without_rows(found: Outcome) -> tuple[NetworkSpec, Outcome]:
    """What the other ranks have to know: the network, and the members."""
    dropped: dict[str, Any] = dict(problem=None, held_out_eta=None, straight_eta=None)
    members = to_device(replace(found, **dropped), torch.device("cpu"))
    return found.problem.spec, members
