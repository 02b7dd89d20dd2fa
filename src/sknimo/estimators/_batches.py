"""Search on large tables: mini-batches and held-out rows instead of evidence.

Gauss-Newton steps and the evidence cost `n m**2` for n rows and m parameters. Beyond
`MAX_WORK` the search turns to the first-order solver, and to validation, which many
rows make precise:

1. *Choose.* All pairs of coefficient and first-layer penalty are trained on the first
   fold, as one batch of models: briefly first, then the best of them for longer.
2. *Train* the best pair to the end on every fold, each time keeping the state that
   predicts the held-out rows best.
3. *Average* the folds' members: every row has trained most of them.
4. *Verdict.* Held-out rows must agree that the network is worth having.

At the deadline training stops where it is, and the best that was found on the first
fold is returned.

Nothing here needs the table in memory, nor in one process: with several ranks each has
rows of its own, losses are those of all rows, and the first rank's clock counts.

Shapes: K models, n rows, p features, F folds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._data import BATCH_ROWS
from sknimo.estimators._folds import AnyFold
from sknimo.estimators._path import GlmPath, standard_error
from sknimo.estimators._resume import TaskStore
from sknimo.estimators._verdict import Verdict
from sknimo.penalties import make_penalty
from sknimo.solver import (
    History,
    Members,
    Options,
    Problem,
    Solution,
    Status,
    pool_bytes,
    solve,
)

# Multiplications in one Gauss-Newton step beyond which batches take over.
MAX_WORK = 1e9
# Candidate penalties: shares of the smallest alpha that empties the model, and rates of
# the first layer's group shrinkage.
ALPHA_SHARES = (3e-5, 1e-4, 4e-4, 1.5e-3, 5e-3, 2e-2)
NETWORK_ALPHAS = (0.0, 0.03, 0.1, 0.3)
# The pair that goes ahead where time is short: moderate in both.
FIRST_PAIR = (2, 1)
# Rounds of choosing: share of the passes that candidates are trained for, and how many
# of the best go on.
ROUNDS = ((0.08, 6), (0.25, 1))
LEARNING_RATE = 1e-2
# Progress is checked twice in a pass; a member may stand still for this share of them.
PATIENCE_SHARE = 0.3
# Rounding is far below what a batch leaves open; solves stay float64.
DTYPE = torch.float32
# Numbers per row that a member in training takes: weights, `eta`, derivatives, trials.
MEMBER_VECTORS = 12
HISTORY_FIGURES = ("objective", "validation", "n_features", "n_inputs")
# Blocks of this size stay in the cache of a processor.
CACHE_BYTES = 64e6


@dataclass(frozen=True, slots=True)
class BatchSearch:
    """What the search on batches found.

    Attributes
    ----------
    solution : Solution
        One member per fold.
    alpha, network_alpha : float
        The penalties chosen.
    table : dict of list
        One row per candidate and fold.
    best_index : int
        Row of the best candidate there.
    verdict : Verdict
        Held-out losses of the members and of the nested GLM.
    """

    solution: Solution
    alpha: float
    network_alpha: float
    table: dict[str, list[Any]]
    best_index: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Plan:
    """A member to train: its rows, penalties and start."""

    fold: AnyFold
    alpha: float
    network_alpha: float
    seed: int


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How hard to try.

    Attributes
    ----------
    n_passes : int
        Passes over the rows for the members that are returned.
    batch_size : int
    n_members : int
        Folds to train on at most.
    memory_budget : int
        Half of it is for blocks of rows, half for numbers per row and member.
    deadline : float
        On the monotonic clock.
    progress : bool
    """

    n_passes: int
    batch_size: int = BATCH_ROWS
    n_members: int = 5
    memory_budget: int = 2**30
    deadline: float = math.inf
    progress: bool = False


def is_large(problem: Problem) -> bool:
    """Whether a Gauss-Newton step would take too long."""
    return takes_long(problem.n_rows, problem.n_terms + problem.spec.n_params)


def takes_long(n_rows: int, n_parameters: int) -> bool:
    """Whether a Gauss-Newton step of that size would."""
    return float(n_rows) * min(n_parameters, n_rows) ** 2 > MAX_WORK


def search_batches(
    problem: Problem,
    path: GlmPath,
    folds: Sequence[AnyFold],
    options: BatchOptions,
    random: np.random.RandomState,
    store: TaskStore,
) -> BatchSearch:
    """Choose penalties on the first fold, then train one member per fold."""
    folds = folds[: options.n_members]
    seed = int(random.randint(2**31 - 1))
    plans, trials = _try_all(problem, path, folds[0], options, seed, store)
    table = _Table()
    best: list[tuple[Plan, Solution]] = []
    for number, (share, n_kept) in enumerate(ROUNDS):
        if number:
            if _is_late(problem, options):
                break
            n_passes = _n_passes(options, share)
            stage = f"round-{number}"
            trials = _train(store, stage, problem, plans, options, n_passes, seed)
        table.add(f"round {number + 1}", plans, [0] * len(plans), trials)
        order = np.argsort(trials.validation_loss.cpu().numpy(), kind="stable")
        best.append((plans[order[0]], _take(trials, [int(order[0])])))
        plans = [plans[k] for k in order[:n_kept]]
    seeds = [int(s) for s in random.randint(2**31 - 1, size=len(folds))]
    chosen, final = best[-1]
    plans = [chosen]
    if not _is_late(problem, options):
        plans = [
            replace(chosen, fold=fold, seed=seed)
            for fold, seed in zip(folds, seeds, strict=True)
        ]
        final = _train(
            store, "members", problem, plans, options, options.n_passes, seeds[0]
        )
    if Status.OUT_OF_TIME in final.status:
        # What was cut short counts only where it had the time to become better.
        plan, trial = min(best, key=lambda one: float(one[1].validation_loss))
        if float(trial.validation_loss) < float(final.validation_loss[0]):
            chosen, plans, final = plan, [plan], trial
    network_loss = final.validation_loss.cpu().numpy()
    n_final, n_tried = len(plans), len(table.rows["stage"])
    table.add("member", plans, list(range(n_final)), final)
    return BatchSearch(
        solution=final,
        alpha=chosen.alpha,
        network_alpha=chosen.network_alpha,
        table=table.rows,
        best_index=n_tried + int(np.nanargmin(network_loss)),
        verdict=_compare(network_loss, path.fold_loss[:n_final]),
    )


def _try_all(
    problem: Problem,
    path: GlmPath,
    fold: AnyFold,
    options: BatchOptions,
    seed: int,
    store: TaskStore,
) -> tuple[list[Plan], Solution]:
    """First round: all pairs of penalties, or as many as there is time for.

    With a deadline one pair goes ahead and shows what a pair costs; on a GPU many cost
    little more than one. The others follow, those next to it first.
    """
    largest = float(path.alphas[0])
    grid = list(product(range(len(ALPHA_SHARES)), range(len(NETWORK_ALPHAS))))
    plans = [
        Plan(fold, ALPHA_SHARES[i] * largest, NETWORK_ALPHAS[k], seed) for i, k in grid
    ]
    n_passes = _n_passes(options, ROUNDS[0][0])

    def train(some: list[int]) -> Solution:
        group = [plans[at] for at in some]
        return _train(store, "round-0", problem, group, options, n_passes, seed)

    everything = list(range(len(plans)))
    if math.isinf(options.deadline) or problem.device.type != "cpu":
        return plans, train(everything)
    i, k = FIRST_PAIR
    near = sorted(
        everything, key=lambda at: abs(grid[at][0] - i) + abs(grid[at][1] - k)
    )
    begin = time.monotonic()
    first = train(near[:1])
    now = time.monotonic()
    cost = max(now - begin, 1e-9)
    n_more = problem.ranks.share(int((options.deadline - now) / cost))
    chosen = near[: 1 + max(0, n_more)]
    parts = [first] if len(chosen) == 1 else [first, train(chosen[1:])]
    order = sorted(range(len(chosen)), key=lambda at: chosen[at])
    return [plans[chosen[at]] for at in order], _take(_join(parts), order)


def _n_passes(options: BatchOptions, share: float) -> int:
    return max(1, round(share * options.n_passes))


def _is_late(problem: Problem, options: BatchOptions) -> bool:
    """Whether time is up by the clock of the first rank."""
    return bool(problem.ranks.share(time.monotonic() > options.deadline))


class _Table:
    """One row per model that was trained, ready for a data frame."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Any]] = {}

    def add(
        self, stage: str, plans: Sequence[Plan], folds: list[int], trained: Solution
    ) -> None:
        columns: dict[str, list[Any]] = {
            "stage": [stage] * len(plans),
            "alpha": [plan.alpha for plan in plans],
            "network_alpha": [plan.network_alpha for plan in plans],
            "fold": folds,
            "seed": [plan.seed for plan in plans],
            "loss": trained.validation_loss.tolist(),
            "n_features": (trained.coef != 0).sum(-1).tolist(),
            "n_iter": trained.n_iter.tolist(),
        }
        for name, values in columns.items():
            self.rows.setdefault(name, []).extend(values)


def _members(problem: Problem, plans: Sequence[Plan]) -> Members:
    device, p = problem.device, problem.spec.n_features

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    def shares(rows: list[np.ndarray]) -> Tensor:
        parts = [problem.share(torch.as_tensor(row, device=device)) for row in rows]
        return torch.cat(parts)

    alpha = column([plan.alpha for plan in plans])
    everything = torch.ones(len(plans), p, dtype=torch.bool, device=device)
    return Members(
        penalty=make_penalty("lasso", alpha, problem.term_feature, p),
        network_alpha=column([plan.network_alpha for plan in plans]),
        seeds=tuple(plan.seed for plan in plans),
        weight=shares([plan.fold.train for plan in plans]),
        validation=shares([plan.fold.held_out for plan in plans]),
        support=everything,
        input_support=everything.clone(),
    )


def _train(
    store: TaskStore,
    stage: str,
    problem: Problem,
    plans: Sequence[Plan],
    options: BatchOptions,
    n_passes: int,
    noise_seed: int,
) -> Solution:
    """Train members together, as many at a time as there is memory for."""
    sizes = problem.ranks.gather(problem.n_rows)
    batch = min(options.batch_size, sum(sizes))
    per_pass = max(1, sum(sizes) // batch)
    half = options.memory_budget // 2
    group = max(1, half // (8 * MEMBER_VECTORS * max(sizes)))
    how = Options(
        max_iter=n_passes * per_pass,
        learning_rate=LEARNING_RATE,
        noise_seed=noise_seed,
        tol=0.0,
        patience=max(10, round(PATIENCE_SHARE * 2 * n_passes)),
        check_every=max(1, per_pass // 2),
        scale_contributions=True,
        dtype=DTYPE,
        batch_size=batch,
        memory_budget=_block_bytes(problem, batch, half),
        deadline=options.deadline,
        progress=options.progress,
    )
    parts = []
    for begin in range(0, len(plans), group):
        members = _members(problem, plans[begin : begin + group])
        name = store.name(stage, (members, n_passes, noise_seed))
        parts.append(
            solve(problem, members, how, checkpoint=store.checkpoint, name=name)
        )
    return _join(parts)


def _block_bytes(problem: Problem, batch: int, most: int) -> int:
    """Memory for blocks of rows; of a stored table no more than a cache holds."""
    if problem.in_one_place or problem.device.type != "cpu":
        return most
    n_inputs = len(problem.spec.input_feature)
    pool = pool_bytes(problem.columns, n_inputs, batch, DTYPE)
    return int(min(most, max(CACHE_BYTES, 2 * pool)))


def _join(parts: list[Solution]) -> Solution:
    """Members of several solutions in one."""
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for name in Solution.__dataclass_fields__:
        each = [getattr(part, name) for part in parts]
        if isinstance(each[0], Tensor):
            values[name] = torch.cat(each)
        elif isinstance(each[0], tuple):
            values[name] = tuple(one for some in each for one in some)
    return Solution(**values, history=_join_histories([p.history for p in parts]))


def _join_histories(parts: list[History]) -> History:
    """Members side by side; those that stopped earlier have no figures then."""
    longest = max((part.step for part in parts), key=len)

    def figures(name: str) -> np.ndarray:
        padded = []
        for part in parts:
            values = getattr(part, name)
            rest = np.full((len(longest) - len(values), values.shape[1]), np.nan)
            padded.append(np.concatenate([values, rest]))
        return np.concatenate(padded, axis=1)

    return History(longest, *(figures(name) for name in HISTORY_FIGURES))


def _compare(network_loss: np.ndarray, glm_loss: np.ndarray) -> Verdict:
    gain = glm_loss - network_loss
    return Verdict(
        network_loss, glm_loss, float(gain.mean()), float(standard_error(gain))
    )


def _take(solution: Solution, members: list[int]) -> Solution:
    """Some members of a solution, in that order."""
    values: dict[str, Any] = {}
    for name in Solution.__dataclass_fields__:
        value = getattr(solution, name)
        if isinstance(value, Tensor):
            value = value[members]
        elif isinstance(value, tuple):
            value = tuple(value[k] for k in members)
        values[name] = value
    past = solution.history
    figures = (getattr(past, name)[:, members] for name in HISTORY_FIGURES)
    return Solution(**values | {"history": History(past.step, *figures)})
