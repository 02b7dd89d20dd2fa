"""Search on large tables: mini-batches and held-out rows instead of evidence.

Gauss-Newton steps and the evidence cost `n m**2` for n rows and m parameters. Beyond
`MAX_WORK` the search turns to the first-order solver, and to validation, which many
rows make precise:

1. *Choose.* All pairs of coefficient and first-layer penalty are trained for a while on
   the first fold, as one batch of models.
2. *Train* the best pair to the end on every fold, each time keeping the state that
   predicts the held-out rows best.
3. *Average* the folds' members: every row has trained most of them.
4. *Verdict.* Held-out rows must agree that the network is worth having.

Shapes: K models, n rows, p features, F folds.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._data import BATCH_ROWS
from sknimo.estimators._folds import Fold
from sknimo.estimators._path import GlmPath, fit_path, path_loss, standard_error
from sknimo.estimators._resume import TaskStore
from sknimo.estimators._verdict import Verdict
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Options, Problem, Solution, solve

# Multiplications in one Gauss-Newton step beyond which batches take over.
MAX_WORK = 2e10
# Candidate penalties: shares of the smallest alpha that empties the model, and rates of
# the first layer's group shrinkage.
ALPHA_SHARES = (4e-4, 1.5e-3, 5e-3)
NETWORK_ALPHAS = (0.0, 0.1)
# Share of the passes that candidates are trained for.
TRIAL_SHARE = 0.25
LEARNING_RATE = 1e-2
# Progress is checked twice in a pass; a member may stand still for this share of them.
PATIENCE_SHARE = 0.3


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
    n_parameters = problem.n_terms + problem.spec.n_params
    return float(problem.n_rows) * min(n_parameters, problem.n_rows) ** 2 > MAX_WORK


def search_batches(
    problem: Problem,
    path: GlmPath,
    folds: list[Fold],
    options: BatchOptions,
    random: np.random.RandomState,
    store: TaskStore,
) -> BatchSearch:
    """Choose penalties on the first fold, then train one member per fold."""
    folds = folds[: options.n_members]
    largest = float(path.alphas[0])
    pairs = [(s * largest, rate) for s in ALPHA_SHARES for rate in NETWORK_ALPHAS]
    seed = int(random.randint(2**31 - 1))
    trials = _train(
        store,
        "trials",
        problem,
        _members(problem, folds[:1] * len(pairs), pairs, (seed,) * len(pairs)),
        options,
        max(1, round(TRIAL_SHARE * options.n_passes)),
        seed,
    )
    trial_loss = trials.validation_loss.cpu().numpy()
    best = int(np.nanargmin(trial_loss))
    chosen = pairs[best]
    seeds = tuple(int(s) for s in random.randint(2**31 - 1, size=len(folds)))
    if time.monotonic() > options.deadline:
        folds, seeds, final = folds[:1], (seed,), _only(trials, best)
    else:
        final = _train(
            store,
            "members",
            problem,
            _members(problem, folds, [chosen] * len(folds), seeds),
            options,
            options.n_passes,
            seeds[0],
        )
    network_loss = final.validation_loss.cpu().numpy()
    n_final = len(network_loss)
    table: dict[str, list[Any]] = {
        "stage": ["trial"] * len(pairs) + ["member"] * n_final,
        "alpha": [alpha for alpha, _ in pairs] + [chosen[0]] * n_final,
        "network_alpha": [rate for _, rate in pairs] + [chosen[1]] * n_final,
        "fold": [0] * len(pairs) + list(range(n_final)),
        "seed": [seed] * len(pairs) + list(seeds),
        "loss": [*trial_loss.tolist(), *network_loss.tolist()],
        "n_features": _n_features(trials) + _n_features(final),
        "n_iter": [*trials.n_iter.tolist(), *final.n_iter.tolist()],
    }
    return BatchSearch(
        solution=final,
        alpha=chosen[0],
        network_alpha=chosen[1],
        table=table,
        best_index=len(pairs) + int(np.nanargmin(network_loss)),
        verdict=_compare(
            network_loss,
            np.array([_glm_loss(problem, path, fold) for fold in folds[:n_final]]),
        ),
    )


def _members(
    problem: Problem,
    folds: list[Fold],
    pairs: list[tuple[float, float]],
    seeds: tuple[int, ...],
) -> Members:
    device, p = problem.device, problem.spec.n_features
    alpha, rate = torch.tensor(pairs, dtype=torch.float64, device=device).unbind(1)
    everything = torch.ones(len(pairs), p, dtype=torch.bool, device=device)

    def shares(rows: list[np.ndarray]) -> Tensor:
        weight = torch.as_tensor(np.stack(rows), dtype=torch.float64, device=device)
        return weight / weight.sum(-1, keepdim=True)

    return Members(
        penalty=make_penalty("lasso", alpha.contiguous(), problem.term_feature, p),
        network_alpha=rate.contiguous(),
        seeds=seeds,
        weight=shares([fold.train for fold in folds]),
        validation=shares([fold.held_out for fold in folds]),
        support=everything,
        input_support=everything.clone(),
    )


def _train(
    store: TaskStore,
    stage: str,
    problem: Problem,
    members: Members,
    options: BatchOptions,
    n_passes: int,
    noise_seed: int,
) -> Solution:
    batch = min(options.batch_size, problem.n_rows)
    per_pass = max(1, problem.n_rows // batch)
    return solve(
        problem,
        members,
        Options(
            max_iter=n_passes * per_pass,
            learning_rate=LEARNING_RATE,
            noise_seed=noise_seed,
            tol=0.0,
            patience=max(10, round(PATIENCE_SHARE * 2 * n_passes)),
            check_every=max(1, per_pass // 2),
            scale_contributions=True,
            # Rounding is far below what a batch leaves open; solves stay float64.
            dtype=torch.float32,
            batch_size=batch,
            memory_budget=options.memory_budget // 2,
            progress=options.progress,
        ),
        checkpoint=store.checkpoint,
        name=store.name(stage, (members, n_passes, noise_seed)),
    )


def _compare(network_loss: np.ndarray, glm_loss: np.ndarray) -> Verdict:
    gain = glm_loss - network_loss
    return Verdict(
        network_loss, glm_loss, float(gain.mean()), float(standard_error(gain))
    )


def _only(solution: Solution, member: int) -> Solution:
    """One member of a solution."""
    values: dict[str, Any] = {
        name: value[member : member + 1] if isinstance(value, Tensor | tuple) else value
        for name in Solution.__dataclass_fields__
        for value in [getattr(solution, name)]
    }
    return Solution(**values)


def _n_features(solution: Solution) -> list[int]:
    return (solution.coef != 0).sum(-1).tolist()


def _glm_loss(problem: Problem, path: GlmPath, fold: Fold) -> float:
    """Held-out loss of the nested GLM that cross-validation chose."""
    device = problem.device
    train, held_out = (
        (torch.as_tensor(part / part.sum(), device=device)).unsqueeze(0)
        for part in (fold.train, fold.held_out)
    )
    alpha = path.alphas[path.index : path.index + 1]
    at = fit_path(problem, train, alpha).blend(path.relaxation)
    return float(path_loss(problem, held_out, at)[0])
