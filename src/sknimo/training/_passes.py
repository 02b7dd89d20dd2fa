"""A fit to streamed rows: its problem, its memory, and what is said of it afterwards.

Everything here passes over the rows block by block and adds over the ranks.

Shapes: n rows of this rank, N rows of all ranks, p features, q terms.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from sknimo.explain import TrainingFacts, describe_sample, streamed_losses
from sknimo.model import FittedModel
from sknimo.ranks import ALONE
from sknimo.rows import show_bytes
from sknimo.solver import Options, Problem, pool_bytes
from sknimo.training._data import TrainingSet, certain
from sknimo.training._streams import StreamedSet, choose_sample_size

# Cells of the table that are predicted at a time.
BLOCK_CELLS = 1 << 18
# Vectors with a number per row that are alive at the same time in a fit.
ROW_VECTORS = 14
# Blocks of this size stay in the cache of a processor.
CACHE_BYTES = 64e6
# Square matrices of the inner solve that are alive at the same time.
GRAM_MATRICES = 12
# A block of fewer rows than this would spend its time on overheads.
MIN_BLOCK_ROWS = 64


def hold_out(
    data: TrainingSet | StreamedSet, fraction: float, random: np.random.RandomState
) -> np.ndarray:
    """Rows of this rank that judge early stopping, (n,); training keeps each class.

    Every row has a random turn among all. The first ones are held out, but for one row
    of each class: the last, which is put behind all others.
    """
    first_row, ranks = 0, ALONE
    if isinstance(data, StreamedSet):  # ranks draw the same turns
        first_row, ranks = data.first_row, data.ranks
        random = np.random.RandomState(int(random.randint(2**31 - 1)))
        turn = random.permutation(data.n_total)
    else:
        turn = np.argsort(random.permutation(data.n_total))
    turn = turn[first_row : first_row + len(data.y)]
    spared: list[int] = []
    if data.classes is not None:
        numbers = range(len(data.classes))
        own = [int(turn[data.y == k].max(initial=-1)) for k in numbers]
        spared = [max(last) for last in zip(*ranks.gather(own), strict=True)]
    n_held_out = round(fraction * data.n_total)
    n_held_out = int(np.clip(n_held_out, 1, data.n_total - max(len(spared), 1)))
    moved = turn - sum((turn > last).astype(int) for last in spared)
    return np.asarray((moved < n_held_out) & ~np.isin(turn, spared))


def fit_stream_budget(
    data: StreamedSet, problem: Problem, options: Options, memory_budget: float
) -> Options:
    """Options whose blocks leave room for everything else, or a refusal."""
    n_rows = max(data.ranks.gather(len(data.y)))  # all ranks refuse, or none
    h1, h2 = problem.spec.hidden
    p, q, r = problem.spec.n_features, problem.n_terms, len(problem.spec.input_feature)
    itemsize = torch.finfo(options.dtype).bits // 8
    per_row = 3 * p * (h1 + h2) * itemsize + 8 * (6 * q + 2 * r)
    vectors = 8.0 * ROW_VECTORS * n_rows
    # Blocks of rows, activations and Gram matrices; before, rows to learn features of.
    block = max(MIN_BLOCK_ROWS, options.batch_size) * per_row
    solver = float(block + 8 * GRAM_MATRICES * q * q)
    sample = 24.0 * min(choose_sample_size(memory_budget, p), n_rows) * p
    least = vectors + max(solver, sample)
    if least > memory_budget:
        raise ValueError(
            f"memory_budget={memory_budget:.0f} bytes is too small: the fit needs "
            f"about {show_bytes(least)}, {show_bytes(vectors)} of it for "
            f"{n_rows} rows. Raise memory_budget, make hidden or batch_size "
            "smaller, or share the rows out to more processes."
        )
    room = memory_budget - vectors
    if problem.device.type == "cpu":
        size = options.batch_size
        pool = pool_bytes(problem.columns, r, size, options.dtype) if size else 0
        room = min(room, max(CACHE_BYTES, 2 * pool))
    return replace(options, memory_budget=int(room))


def _blocks(data: StreamedSet) -> Iterator[tuple[slice, np.ndarray]]:
    """The rows of this rank, a few at a time."""
    return data.table.blocks(max(1, BLOCK_CELLS // max(data.table.n_columns, 1)))


def judge_rows(model: FittedModel, data: StreamedSet) -> tuple[float, bool]:
    """Deviance of all rows, and whether a binary fit predicts each with certainty."""
    total, largest_eta, largest_loss = 0.0, 0.0, 0.0
    for rows, block in _blocks(data):
        eta = model.eta(block, data.offset[rows] * data.y_scale)
        y = data.y[rows] * data.y_scale + data.y_mean
        loss = model.family.loss(torch.as_tensor(y), torch.as_tensor(eta)).numpy()
        total += float(data.weight[rows] @ loss)
        largest_eta = max(largest_eta, float(np.abs(eta).max()))
        largest_loss = max(largest_loss, float(loss.max()))
    parts = data.ranks.gather((total, largest_eta, largest_loss))
    totals, etas, losses = zip(*parts, strict=True)
    separated = model.family.is_binary and certain(max(etas), max(losses))
    return 2 * sum(totals), separated


def describe_stream(
    model: FittedModel,
    data: StreamedSet,
    problem: Problem,
    budget: float,
    deviance: float,
) -> TrainingFacts:
    """What the summary says of the rows: deviances of all, effects over a sample.

    Blocks of rows take at most `budget` bytes.
    """
    total = data.counts.weight
    weight = torch.as_tensor(data.weight / total).to(problem.device)
    glm, null = streamed_losses(model, problem, weight, budget)
    unit = 2 * total * data.y_scale**2  # deviance of a loss, in units of the target
    sample = data.sample
    facts = describe_sample(
        model,
        sample.table,
        sample.weight,
        sample.offset * data.y_scale,
        n_samples=data.n_samples,
        deviance=deviance,
        null_deviance=unit * null,
        glm_deviance=unit * glm,
    )
    far = (float(facts.reach.times(block).max()) for _, block in _blocks(data))
    radius = max(data.ranks.gather(max(far, default=0.0)))
    levels = facts.effects.levels
    counts = data.counts
    n_rows = np.zeros(len(levels))
    for at, (j, value) in enumerate(zip(levels.column, levels.value, strict=True)):
        of_levels = counts.level_weight[j]
        if np.isnan(value):
            n_rows[at] = counts.weight - counts.moments.weight[j]
        elif of_levels is not None:
            n_rows[at] = of_levels[int(value)]
    levels = replace(levels, n_rows=n_rows)
    found = replace(facts.effects, levels=levels)
    return replace(facts, effects=found, reach=facts.reach.within(radius))
