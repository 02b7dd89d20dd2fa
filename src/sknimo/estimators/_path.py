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
from sknimo.solver import Coefficients, Problem, Rows, solve_coefficients

PATH_LENGTH = 30
PATH_RATIO = 1e-3
# How far each support is relaxed.
RELAXATION = (0.0, 0.5, 1.0)
RELAXED_RIDGE = 1e-8
PATH_BYTES = 256e6


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
    share = (weight / weight.sum()).unsqueeze(0)
    if alphas is None:
        largest = largest_alpha(problem, share)
        grid = largest * np.geomspace(1, PATH_RATIO, PATH_LENGTH)
    else:
        grid = np.sort(np.atleast_1d(np.asarray(alphas, dtype=float)))[::-1].copy()
    full = fit_path(problem, share, grid, n_bytes)
    loss = np.empty((len(RELAXATION), len(grid), len(folds)))
    held_out = np.empty(len(folds))
    for f, fold in enumerate(folds):
        inside = torch.as_tensor(fold.train).to(weight)
        inside_share = (inside / inside.sum()).unsqueeze(0)
        fitted = fit_path(problem, inside_share, grid, n_bytes)
        outside = torch.as_tensor(fold.held_out).to(weight)
        held_out[f] = float(outside.sum())
        rows = Rows(
            problem.y,
            problem.offset,
            (outside / outside.sum()).unsqueeze(0),
            problem.family,
        )
        for r, relaxation in enumerate(RELAXATION):
            at = fitted.blend(relaxation)
            eta = rows.eta(problem.terms, at.coef, at.intercept)
            loss[r, :, f] = rows.loss(eta).cpu().numpy()
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
    n, q = problem.n_rows, problem.n_terms
    size = max(1, int(min(n_bytes, PATH_BYTES) // max(8 * 4 * n * max(q, 1), 1)))
    parts = [
        _fit_path_block(problem, share, grid[begin : begin + size])
        for begin in range(0, len(grid), size)
    ]
    return _Path(
        _concatenate([part.lasso for part in parts]),
        _concatenate([part.free for part in parts]),
    )


def _fit_path_block(problem: Problem, share: Tensor, grid: np.ndarray) -> _Path:
    device, p = problem.device, problem.spec.n_features
    strength = torch.as_tensor(grid, device=device)
    count = len(grid)
    rows = Rows(problem.y, problem.offset, share.expand(count, -1), problem.family)
    design = problem.terms.expand(count, -1, -1)
    penalty = make_penalty("lasso", strength, problem.term_feature, p)
    lasso = solve_coefficients(design, rows, penalty, tol=1e-7).coefficients
    ridge = make_penalty(
        "ridge", torch.full_like(strength, RELAXED_RIDGE), problem.term_feature, p
    )
    kept = (lasso.coef != 0).to(design)
    free = solve_coefficients(design * kept.unsqueeze(1), rows, ridge, lasso, tol=1e-7)
    return _Path(lasso, free.coefficients)


def _concatenate(parts: list[Coefficients]) -> Coefficients:
    return Coefficients(
        torch.cat([part.coef for part in parts]),
        torch.cat([part.intercept for part in parts]),
    )


def largest_alpha(problem: Problem, share: Tensor) -> float:
    """Smallest lasso penalty that empties the model."""
    p = problem.spec.n_features
    huge = torch.full((1,), 1e12, dtype=torch.float64, device=share.device)
    penalty = make_penalty("lasso", huge, problem.term_feature, p)
    rows = Rows(problem.y, problem.offset, share, problem.family)
    null = solve_coefficients(problem.terms.unsqueeze(0), rows, penalty).coefficients
    eta = rows.eta(problem.terms.unsqueeze(0), null.coef, null.intercept)
    pull = (rows.weight * rows.family.score(rows.y, eta)) @ problem.terms
    norm = penalty.norm(pull) / penalty.weight.clamp(min=1.0)
    return max(float(norm.max()) if norm.numel() else 0.0, 1e-8)
