"""Search on large tables: mini-batches and held-out rows instead of evidence.

Gauss-Newton steps and the evidence cost `n m**2` for n rows and m parameters. Beyond
`Settings.max_work` the search turns to the first-order solver, and to validation, which
many rows make precise:

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

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.penalties import make_penalty
from sknimo.search._path import GlmPath, standard_error
from sknimo.search._settings import Settings
from sknimo.search._verdict import Outcome, Verdict, glm_member
from sknimo.solver import Members, Options, Problem, Solution, Status, pool_bytes, solve
from sknimo.training import AnyFold, TaskStore, state_members

# Rounding is far below what a batch leaves open; solves stay float64.
DTYPE = torch.float32
# Numbers per row that a member in training takes: weights, `eta`, derivatives, trials.
MEMBER_VECTORS = 12
# The same of target, offset, weights and folds that are not a member's own.
SET_VECTORS = 5
# Blocks of this size stay in the cache of a processor.
CACHE_BYTES = 64e6


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member to train: its rows, penalties and start."""

    fold: AnyFold
    alpha: float
    network_alpha: float
    seed: int


def search_batches(
    problem: Problem,
    path: GlmPath,
    folds: Sequence[AnyFold],
    settings: Settings,
    random: np.random.RandomState,
    store: TaskStore,
) -> Outcome:
    """Choose penalties on the first fold, then train one member per fold."""
    folds = folds[: settings.n_members]
    seed = int(random.randint(2**31 - 1))
    table: dict[str, list[Any]] = {}
    best = _choose(problem, path, folds[0], settings, seed, store, table)
    seeds = [int(s) for s in random.randint(2**31 - 1, size=len(folds))]
    chosen, final = best[-1]
    members = [chosen]
    late = _is_late(problem, settings)
    if not late:
        members = [
            replace(chosen, fold=fold, seed=seed)
            for fold, seed in zip(folds, seeds, strict=True)
        ]
        final = _train(store, "members", problem, members, settings, 1.0, seeds[0])
    late = late or Status.OUT_OF_TIME in final.status  # what ends late is not cut
    if Status.OUT_OF_TIME in final.status:
        # What was cut short counts only where it had the time to become better.
        candidate, trial = min(best, key=lambda one: float(one[1].validation_loss))
        if float(trial.validation_loss) < float(final.validation_loss[0]):
            chosen, members, final = candidate, [candidate], trial
    network_loss = final.validation_loss.cpu().numpy()
    n_final, n_tried = len(members), len(table["stage"])
    _add_rows(table, "member", members, list(range(n_final)), final)
    gain = path.fold_loss[:n_final] - network_loss
    error = float(standard_error(gain))
    losses = network_loss, path.fold_loss[:n_final]
    verdict = Verdict(*losses, float(gain.mean()), error, settings.tiny_gain)
    keeps = verdict.keeps_network
    return Outcome(
        members=final if keeps else glm_member(problem, path.chosen),
        problem=problem,
        path=path,
        verdict=verdict,
        alpha=chosen.alpha if keeps else float(path.alphas[path.index]),
        network_alpha=chosen.network_alpha if keeps else math.inf,
        trials=table,
        best_index=n_tried + int(np.nanargmin(network_loss)),
        n_members=n_final if keeps else 0,
        out_of_time=late,
    )


def _choose(
    problem: Problem,
    path: GlmPath,
    fold: AnyFold,
    settings: Settings,
    seed: int,
    store: TaskStore,
    table: dict[str, list[Any]],
) -> list[tuple[Candidate, Solution]]:
    """The best candidate of every round, until one is left or time is up."""
    candidates, trials = _try_all(problem, path, fold, settings, seed, store)
    best: list[tuple[Candidate, Solution]] = []
    for number, (share, n_kept) in enumerate(settings.rounds):
        if number:
            if _is_late(problem, settings):
                break
            stage = f"round-{number}"
            trials = _train(store, stage, problem, candidates, settings, share, seed)
        folds = [0] * len(candidates)
        _add_rows(table, f"round {number + 1}", candidates, folds, trials)
        order = np.argsort(trials.validation_loss.cpu().numpy(), kind="stable")
        best.append((candidates[order[0]], trials.take([int(order[0])])))
        candidates = [candidates[k] for k in order[:n_kept]]
    return best


def _try_all(
    problem: Problem,
    path: GlmPath,
    fold: AnyFold,
    settings: Settings,
    seed: int,
    store: TaskStore,
) -> tuple[list[Candidate], Solution]:
    """First round: all pairs of penalties, or as many as there is time for.

    With a deadline one pair goes ahead and shows what a pair costs; on a GPU many cost
    little more than one. The others follow, those next to it first.
    """
    largest = float(path.alphas[0])
    shares, rates = settings.alpha_shares, settings.network_alphas
    grid = list(product(range(len(shares)), range(len(rates))))
    candidates = [Candidate(fold, shares[i] * largest, rates[k], seed) for i, k in grid]
    share = settings.rounds[0][0]

    def train(some: list[int]) -> Solution:
        group = [candidates[at] for at in some]
        return _train(store, "round-0", problem, group, settings, share, seed)

    everything = list(range(len(candidates)))
    if math.isinf(settings.deadline) or problem.device.type != "cpu":
        return candidates, train(everything)
    i, k = settings.first_pair
    near = sorted(
        everything, key=lambda at: abs(grid[at][0] - i) + abs(grid[at][1] - k)
    )
    begin = time.monotonic()
    first = train(near[:1])
    now = time.monotonic()
    cost = max(now - begin, 1e-9)
    n_more = problem.ranks.share(int((settings.deadline - now) / cost))
    chosen = near[: 1 + max(0, n_more)]
    parts = [first] if len(chosen) == 1 else [first, train(chosen[1:])]
    order = sorted(range(len(chosen)), key=lambda at: chosen[at])
    return [candidates[chosen[at]] for at in order], Solution.join(parts).take(order)


def _is_late(problem: Problem, settings: Settings) -> bool:
    """Whether time is up by the clock of the first rank."""
    return bool(problem.ranks.share(time.monotonic() > settings.deadline))


def _add_rows(
    table: dict[str, list[Any]],
    stage: str,
    candidates: Sequence[Candidate],
    folds: list[int],
    trained: Solution,
) -> None:
    """One row per model that was trained, ready for a data frame."""
    columns: dict[str, list[Any]] = {
        "stage": [stage] * len(candidates),
        "alpha": [each.alpha for each in candidates],
        "network_alpha": [each.network_alpha for each in candidates],
        "fold": folds,
        "seed": [each.seed for each in candidates],
        "loss": trained.validation_loss.tolist(),
        "n_features": (trained.coef != 0).sum(-1).tolist(),
        "n_iter": trained.n_iter.tolist(),
    }
    for name, values in columns.items():
        table.setdefault(name, []).extend(values)


def _members(problem: Problem, candidates: Sequence[Candidate]) -> Members:
    device, p = problem.device, problem.spec.n_features

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    def shares(rows: list[np.ndarray]) -> Tensor:
        parts = [problem.share(torch.as_tensor(row, device=device)) for row in rows]
        return torch.cat(parts)

    alpha = column([each.alpha for each in candidates])
    return state_members(
        problem,
        make_penalty("lasso", alpha, problem.term_feature, p),
        column([each.network_alpha for each in candidates]),
        tuple(each.seed for each in candidates),
        shares([each.fold.train for each in candidates]),
        shares([each.fold.held_out for each in candidates]),
    )


def _train(
    store: TaskStore,
    stage: str,
    problem: Problem,
    candidates: Sequence[Candidate],
    settings: Settings,
    share: float,
    noise_seed: int,
) -> Solution:
    """Train members for a share of the passes, as many at a time as memory carries."""
    sizes = problem.ranks.gather(problem.n_rows)
    batch = min(settings.batch_size or settings.batch_rows, sum(sizes))
    per_pass = max(1, sum(sizes) // batch)
    n_passes = max(1, round(share * settings.max_iter))
    n_steps = min(n_passes * per_pass, max(1, round(share * settings.batch_steps)))
    half = int(_room(problem, settings)) // 2
    group = max(1, half // (8 * MEMBER_VECTORS * max(sizes)))
    how = Options(
        max_iter=n_steps,
        learning_rate=settings.learning_rate,
        noise_seed=noise_seed,
        tol=0.0,
        patience=max(10, round(settings.patience_share * 2 * n_passes)),
        check_every=max(1, per_pass // 2),
        scale_contributions=True,
        dtype=DTYPE,
        batch_size=batch,
        memory_budget=_block_bytes(problem, batch, half),
        deadline=settings.deadline,
        progress=settings.progress,
    )
    parts = []
    for begin in range(0, len(candidates), group):
        members = _members(problem, candidates[begin : begin + group])
        name = store.name(stage, (members, n_steps, noise_seed))
        parts.append(
            solve(problem, members, how, checkpoint=store.checkpoint, name=name)
        )
    return Solution.join(parts)


def _room(problem: Problem, settings: Settings) -> float:
    """Bytes beside target, offset, weights and folds of rows that are not in memory."""
    budget = settings.memory_budget
    if problem.in_one_place:
        return budget
    n_rows = max(problem.ranks.gather(problem.n_rows))
    return max(budget - 8.0 * SET_VECTORS * n_rows, budget / 2)


def _block_bytes(problem: Problem, batch: int, most: int) -> int:
    """Memory for blocks of rows; of a stored table no more than a cache holds."""
    if problem.in_one_place or problem.device.type != "cpu":
        return most
    n_inputs = len(problem.spec.input_feature)
    pool = pool_bytes(problem.columns, n_inputs, batch, DTYPE)
    return int(min(most, max(CACHE_BYTES, 2 * pool)))
