"""The nested GLM: a relaxed lasso path, chosen on held-out rows.

Shapes: n rows, q terms, T penalties, F folds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.estimators._folds import Fold
from sknimo.penalties import make_penalty
from sknimo.solver import (
    Coefficients,
    Problem,
    downhill,
    linear_design,
    solve_coefficients,
)

PATH_LENGTH = 30
PATH_RATIO = 1e-3
# How far each support is relaxed.
RELAXATION = (0.0, 0.5, 1.0)
RELAXED_RIDGE = 1e-8
PATH_BYTES = 256e6
# Numbers per row and model beside a stored table: `eta`, its derivatives, trials.
VECTORS = 8


@dataclass(frozen=True, slots=True)
class GlmPath:
    """The relaxed lasso path and what cross-validation chose on it.

    Attributes
    ----------
    alphas : ndarray of shape (T,)
    coef : ndarray of shape (T, q)
        Standardised coefficients along the path.
    relaxation : float
        Share of the unpenalised solution on the support in the chosen model.
    index : int
        Chosen position on the path.
    cv_loss, cv_error : ndarray of shape (T,)
        Mean half deviance on held-out rows and its standard error, at the chosen
        relaxation.
    chosen : Coefficients
    """

    alphas: np.ndarray
    coef: np.ndarray
    relaxation: float
    index: int
    cv_loss: np.ndarray
    cv_error: np.ndarray
    chosen: Coefficients


def glm_path(
    problem: Problem,
    weight: Tensor,
    alphas: Any,
    folds: list[Fold],
    rule: str,
    n_bytes: float = PATH_BYTES,
) -> GlmPath:
    """Relaxed lasso path of the nested GLM, chosen on held-out rows.

    All folds and penalties are one batch of solves, cut only to bound memory.
    """
    share = problem.share(weight)
    if alphas is None:
        largest = largest_alpha(problem, share, n_bytes)
        grid = largest * np.geomspace(1, PATH_RATIO, PATH_LENGTH)
    else:
        grid = np.sort(np.atleast_1d(np.asarray(alphas, dtype=float)))[::-1].copy()
    full = fit_path(problem, share, grid, n_bytes)
    loss = np.empty((len(RELAXATION), len(grid), len(folds)))
    held_out = np.empty(len(folds))
    for f, fold in enumerate(folds):
        inside = problem.share(torch.as_tensor(fold.train).to(weight))
        fitted = fit_path(problem, inside, grid, n_bytes)
        outside = torch.as_tensor(fold.held_out).to(weight)
        held_out[f] = float(problem.ranks.total(outside.sum()))
        for r, relaxation in enumerate(RELAXATION):
            at = fitted.blend(relaxation)
            found = path_loss(problem, problem.share(outside), at, n_bytes)
            loss[r, :, f] = found.cpu().numpy()
    mean = np.average(loss, axis=2, weights=held_out)
    error = standard_error(loss)
    r, t = 0, int(np.nanargmin(mean[0]))
    for other in range(1, len(RELAXATION)):
        best = int(np.nanargmin(mean[other]))
        gain = loss[r, t] - loss[other, best]
        # Relaxing must win by more than the folds disagree.
        if gain.mean() > standard_error(gain):
            r, t = other, best
    if rule == "1se":  # the strongest penalty that is as good within its error
        t = int(np.flatnonzero(mean[r] <= mean[r, t] + error[r, t])[0])
    at = full.blend(RELAXATION[r])
    index = torch.tensor([int(t)], device=problem.device)
    return GlmPath(
        alphas=grid,
        coef=full.lasso.coef.cpu().numpy(),
        relaxation=RELAXATION[r],
        index=int(t),
        cv_loss=mean[r],
        cv_error=error[r],
        chosen=at.take(index),
    )


def standard_error(values: np.ndarray) -> Any:
    """Standard error of the mean over the last axis; zero for a single value."""
    count = values.shape[-1]
    return values.std(axis=-1, ddof=1 if count > 1 else 0) / math.sqrt(count)


@dataclass(frozen=True, slots=True)
class _Path:
    """Lasso solutions and the free solutions on their supports."""

    lasso: Coefficients
    free: Coefficients

    def blend(self, relaxation: float) -> Coefficients:
        """Move every solution of the path towards the free one."""
        keep = 1 - relaxation
        return Coefficients(
            keep * self.lasso.coef + relaxation * self.free.coef,
            keep * self.lasso.intercept + relaxation * self.free.intercept,
        )


def fit_path(
    problem: Problem, share: Tensor, grid: np.ndarray, n_bytes: float = PATH_BYTES
) -> _Path:
    """Lasso and relaxed solutions for every penalty, in batches of bounded memory."""
    size = _batch_size(problem, n_bytes)
    parts = [
        _fit_path_block(problem, share, grid[begin : begin + size], n_bytes)
        for begin in range(0, len(grid), size)
    ]
    return _Path(
        _concatenate([part.lasso for part in parts]),
        _concatenate([part.free for part in parts]),
    )


def _batch_size(problem: Problem, n_bytes: float) -> int:
    """Models whose tables fit into memory; whose vectors do, if tables are stored."""
    width = 4 * max(problem.n_terms, 1) if problem.in_one_place else VECTORS
    most = max(problem.ranks.gather(problem.n_rows))
    return max(1, int(min(n_bytes, PATH_BYTES) // max(8 * width * most, 1)))


def path_loss(
    problem: Problem, share: Tensor, at: Coefficients, n_bytes: float = PATH_BYTES
) -> Tensor:
    """Mean half deviance of some solutions on weighted rows, (T,)."""
    rows, size = problem.rows(share), _batch_size(problem, n_bytes)
    losses = []
    for begin in range(0, len(at.coef), size):
        coef = at.coef[begin : begin + size]
        design = linear_design(problem, len(coef), n_bytes)
        intercept = at.intercept[begin : begin + size]
        losses.append(rows.loss(rows.eta(design, coef, intercept)))
    return torch.cat(losses)


def _fit_path_block(
    problem: Problem, share: Tensor, grid: np.ndarray, n_bytes: float
) -> _Path:
    device, p = problem.device, problem.spec.n_features
    strength = torch.as_tensor(grid, device=device)
    count = len(grid)
    rows = problem.rows(share.expand(count, -1))
    design = linear_design(problem, count, n_bytes)
    penalty = make_penalty("lasso", strength, problem.term_feature, p)
    lasso = solve_coefficients(design, rows, penalty, tol=1e-7).coefficients
    ridge = make_penalty(
        "ridge", torch.full_like(strength, RELAXED_RIDGE), problem.term_feature, p
    )
    kept = linear_design(problem, count, n_bytes, lasso.coef != 0)
    free = solve_coefficients(kept, rows, ridge, lasso, tol=1e-7)
    return _Path(lasso, free.coefficients)


def _concatenate(parts: list[Coefficients]) -> Coefficients:
    return Coefficients(
        torch.cat([part.coef for part in parts]),
        torch.cat([part.intercept for part in parts]),
    )


def largest_alpha(
    problem: Problem, share: Tensor, n_bytes: float = PATH_BYTES
) -> float:
    """Smallest lasso penalty that empties the model."""
    p = problem.spec.n_features
    huge = torch.full((1,), 1e12, dtype=torch.float64, device=share.device)
    penalty = make_penalty("lasso", huge, problem.term_feature, p)
    rows = problem.rows(share)
    design = linear_design(problem, 1, n_bytes)
    null = solve_coefficients(design, rows, penalty).coefficients
    norm = penalty.norm(downhill(design, rows, null)) / penalty.weight.clamp(min=1.0)
    return max(float(norm.max()) if norm.numel() else 0.0, 1e-8)
