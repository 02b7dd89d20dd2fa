"""The nested GLM: a relaxed lasso path, chosen on held-out rows.

A Gaussian path costs one pass: its Gram matrix says all there is to know of the rows.
At the end, how other searches leave features out.

Shapes: n rows, p features, q terms, T penalties, R relaxations, F folds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sknimo.penalties import CoefPenalty, make_penalty
from sknimo.search._settings import Settings
from sknimo.solver import (
    FEW_FEATURES,
    Coefficients,
    MemoryColumns,
    PerMember,
    Problem,
    Rows,
    cut_rows,
    expand,
    linear_design,
    minimise_quadratic,
    most_urgent,
    solve_coefficients,
    start_coefficients,
)
from sknimo.training import AnyFold

RELAXED_RIDGE = 1e-8
# Penalties of many features that are solved together: the path ends where none of as
# many predicts rows held out better than those before. Smaller ones take longest.
PIECE = 5
# Residual that ends a solve, relative to the largest gradient at zero.
PATH_TOL = 1e-7
PATH_BYTES = 256e6
# What is told of a model that was trained: six values, by these names.
Trial = tuple[str, int, int, float, int, int]
TRIAL = ("stage", "fold", "seed", "loss", "n_features", "n_iter")
# Blocks of rows that are read stay in the cache of a processor.
BLOCK_BYTES = 32e6
# Copies of a Gram matrix that are alive while its quadratic is minimised.
GRAM_COPIES = 6


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
    fold_loss : ndarray of shape (F,)
        Mean half deviance of the chosen point on the held-out rows of each fold.
    chosen : Coefficients
    of_folds : Coefficients
        The chosen point, fitted without the held-out rows of each fold.
    """

    alphas: np.ndarray
    coef: np.ndarray
    relaxation: float
    index: int
    cv_loss: np.ndarray
    cv_error: np.ndarray
    fold_loss: np.ndarray
    chosen: Coefficients
    of_folds: Coefficients


def glm_path(
    problem: Problem,
    weight: Tensor,
    folds: Sequence[AnyFold],
    settings: Settings,
    others: Sequence[AnyFold] = (),
) -> GlmPath:
    """Relaxed lasso path of the nested GLM, chosen on held-out rows.

    Other folds of the same rows have their say in the choice: it should not depend on
    how rows fall into a few of them. Penalties and folds are batches of solves, cut to
    bound memory; but least squares of many features goes from penalty to penalty, and
    the path of many features ends where smaller penalties predict no better.
    """
    n_bytes, relaxation = settings.memory_budget / 4, settings.relaxation
    share = problem.share(weight)
    if settings.alphas is None:
        largest = largest_alpha(problem, share, n_bytes)
        grid = largest * np.geomspace(1, settings.path_ratio, settings.path_length)
    else:
        given = np.atleast_1d(np.asarray(settings.alphas, dtype=float))
        grid = np.sort(given)[::-1].copy()
    every_fold, n_folds = [*folds, *others], len(folds)
    outside = [torch.as_tensor(fold.held_out).to(weight) for fold in every_fold]
    held_out = np.array([float(counts.sum()) for counts in outside])
    inside = [problem.share(torch.as_tensor(f.train).to(weight)) for f in every_fold]
    every = share, torch.cat(inside), [problem.share(counts) for counts in outside]
    pieces = [grid]
    if settings.alphas is None and problem.spec.n_features > FEW_FEATURES:
        grid[0] *= 1 + PATH_TOL  # nothing is left there, whatever rounding says
        pieces = np.split(grid, range(PIECE, len(grid), PIECE))
    parts: list[_Piece] = []
    for alphas in pieces:
        parts.append(_solve_piece(problem, *every, alphas, relaxation, n_bytes))
        if len(parts) > 1 and not parts[-1].gains(parts[:-1], held_out):
            break
    full = _Path.join([part.full for part in parts])
    loss = np.concatenate([part.loss for part in parts], axis=1)
    grid = grid[: loss.shape[1]]
    mean = np.average(loss, axis=2, weights=held_out)
    error = partition_error(loss, n_folds)
    r, t = choose_point(loss, mean, n_folds)
    if settings.rule == "1se":  # the strongest penalty as good within its error
        t = int(np.flatnonzero(mean[r] <= mean[r, t] + error[r, t])[0])
    index = torch.tensor([t], device=problem.device)
    return GlmPath(
        alphas=grid,
        coef=full.lasso.coef.cpu().numpy(),
        relaxation=relaxation[r],
        index=t,
        cv_loss=mean[r],
        cv_error=error[r],
        fold_loss=loss[r, t, :n_folds],
        chosen=full.blend(relaxation[r]).take(index),
        of_folds=_at(parts, t, n_folds).blend(relaxation[r]),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some penalties of a path, one after the other."""

    full: _Path
    fitted: _Path  # fold by fold
    loss: np.ndarray  # (R, T, F), on rows held out

    def gains(self, before: Sequence[_Piece], held_out: np.ndarray) -> bool:
        """Whether any relaxation has a smaller mean loss here than before."""
        least, here = (
            np.nanmin(np.average(loss, axis=2, weights=held_out), axis=1)
            for loss in (np.concatenate([x.loss for x in before], axis=1), self.loss)
        )
        return bool((here < least).any())


def _solve_piece(
    problem: Problem,
    share: Tensor,
    inside: Tensor,
    outside: Sequence[Tensor],
    alphas: np.ndarray,
    relaxation: Sequence[float],
    n_bytes: float,
) -> _Piece:
    """Solutions of all rows and of those inside of folds, judged on those outside."""
    full = fit_path(problem, share, alphas, n_bytes)
    fitted = fit_path(problem, inside, alphas, n_bytes, full)
    loss = np.empty((len(relaxation), len(alphas), len(outside)))
    for f, counts in enumerate(outside):
        own = fitted.take(slice(f * len(alphas), (f + 1) * len(alphas)))
        every = Coefficients.join([own.blend(each) for each in relaxation])
        found = path_loss(problem, counts, every, n_bytes)
        loss[:, :, f] = found.cpu().numpy().reshape(len(relaxation), -1)
    return _Piece(full, fitted, loss)


def _at(parts: Sequence[_Piece], t: int, n_folds: int) -> _Path:
    """Solutions of the folds at one penalty of all."""
    for part in parts:
        length = part.loss.shape[1]
        if t < length:
            return part.fitted.take(slice(t, n_folds * length, length))
        t -= length
    raise IndexError(t)


def choose_point(loss: np.ndarray, mean: np.ndarray, n_folds: int) -> tuple[int, int]:
    """Relaxation and penalty of the least loss, (R, T, F) and its mean over folds.

    Relaxing must win by more than the folds disagree.
    """
    r, t = 0, int(np.nanargmin(mean[0]))
    for other in range(1, len(loss)):
        best = int(np.nanargmin(mean[other]))
        gain = loss[r, t] - loss[other, best]
        if gain.mean() > partition_error(gain, n_folds):
            r, t = other, best
    return r, t


def partition_error(values: np.ndarray, n_folds: int) -> Any:
    """Standard error of the mean over the last axis: folds, then others.

    Both hold all rows out, so that together they tell no more than one of them does.
    """
    errors = []
    for part in values[..., :n_folds], values[..., n_folds:]:
        if count := part.shape[-1]:  # a single value has none
            spread = part.std(axis=-1, ddof=min(count - 1, 1))
            errors.append(spread / math.sqrt(count))
    return np.sqrt(np.mean(np.square(errors), axis=0))


@dataclass(frozen=True, slots=True)
class _Path(PerMember):
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
    problem: Problem,
    share: Tensor,
    grid: np.ndarray,
    n_bytes: float = PATH_BYTES,
    near: _Path | None = None,
) -> _Path:
    """Lasso and relaxed solutions for every penalty, in batches of bounded memory.

    Of rows weighted in one way or in several (F, n), one path after the other. `near`
    is a path of other rows, if there is one to start from.
    """
    if problem.family.least_squares:
        size = max(1, int(min(n_bytes, PATH_BYTES) // _gram_bytes(problem)))
        each = [
            _fit_gaussian_path(problem, s, grid, n_bytes) for s in share.split(size)
        ]
        return _Path.join(each)
    which = torch.arange(len(share) * len(grid), device=share.device)
    cells = 4 * max(problem.n_terms, 1) * problem.n_rows
    size = max(1, int(min(n_bytes, PATH_BYTES) // max(8 * cells, 1)))
    parts = [
        _Solver(problem, problem.rows(share[some // len(grid)]), n_bytes).path(
            grid[(some % len(grid)).cpu().numpy()],
            None if near is None else near.take(some % len(grid)),
        )
        for some in which.split(size)
    ]
    return _Path.join(parts)


@torch.no_grad()
def path_loss(
    problem: Problem, share: Tensor, at: Coefficients, n_bytes: float = PATH_BYTES
) -> Tensor:
    """Mean half deviance of some solutions on weighted rows, (T,); one pass."""
    # Only sums leave a block, so that no number per row and solution is kept.
    own = problem.rows(share)
    total = torch.zeros_like(at.intercept)
    row_bytes = 8 * (3 * problem.n_terms + 4 * len(total))
    for some in cut_rows(problem.n_rows, row_bytes, min(n_bytes, BLOCK_BYTES)):
        counts = own.weight[0, some].nonzero().squeeze(-1)  # often one row in five
        terms = problem.columns.read(some)[0][counts]
        part = own.part(some).part(counts)
        total += part.loss(part.offset + at.intercept[:, None] + at.coef @ terms.mT)
    return total


@torch.no_grad()
def _fit_gaussian_path(
    problem: Problem, share: Tensor, grid: np.ndarray, n_bytes: float
) -> _Path:
    """Whole paths from one Gram matrix each.

    Of many features every penalty begins at the one before; of few they are one batch.
    """
    rows, count, q = problem.rows(share), len(share), problem.n_terms
    null = start_coefficients(rows, q)
    here = expand(linear_design(problem, count, n_bytes), rows, null)
    size = 1
    if problem.spec.n_features <= FEW_FEATURES:
        size = max(1, int(min(n_bytes, PATH_BYTES) // (count * _gram_bytes(problem))))
    parts, coef = [], torch.zeros_like(here.moment)
    for alphas in np.split(grid, range(size, len(grid), size)):
        n_times = len(alphas)
        lasso, ridge = _penalties(problem, alphas.repeat(count))
        gram, moment = here.gram.repeat(n_times, 1, 1), here.moment.repeat(n_times, 1)
        coef = minimise_quadratic(gram, moment, lasso, coef[-count:].repeat(n_times, 1))
        kept = (coef != 0).to(coef)
        some = kept.any(0).nonzero().squeeze(-1)
        mask = kept[:, some]
        gram = gram[:, some][:, :, some] * mask.unsqueeze(-1) * mask.unsqueeze(-2)
        few = replace(ridge, column_feature=ridge.column_feature[some])
        moment = moment[:, some] * mask
        free = minimise_quadratic(gram, moment, few, torch.zeros_like(moment))
        free = torch.zeros_like(coef).index_copy(1, some, free)
        for each in zip(coef.split(count), free.split(count), strict=True):
            parts.append(_Path(*(Coefficients(x, here.intercept(x)) for x in each)))
    # They stand penalty by penalty, and are wanted path by path.
    order = torch.arange(count * len(grid)).view(len(grid), count).T.flatten()
    return _Path.join(parts).take(order.to(share.device))


def _gram_bytes(problem: Problem) -> int:
    """What a solve with one Gram matrix takes."""
    return 8 * GRAM_COPIES * max(problem.n_terms, 1) ** 2


@dataclass(frozen=True, slots=True)
class _Solver:
    """Paths of other losses than least squares, some penalties and rows at a time."""

    problem: Problem
    rows: Rows
    n_bytes: float

    def path(self, grid: np.ndarray, near: _Path | None) -> _Path:
        """Lasso and free solutions, for as many weights of the rows as penalties."""
        problem = self.problem
        penalty, ridge = _penalties(problem, grid)
        start = None if near is None else near.lasso
        some = torch.arange(problem.n_terms, device=problem.device)
        many = problem.spec.n_features > FEW_FEATURES and problem.in_one_place
        if many:
            lasso = self.lasso(penalty, start)
        else:
            lasso = self.among(some, penalty, start)
        kept = lasso.coef != 0
        start = lasso if near is None else _nearer(near, lasso)
        some = kept.any(0).nonzero().squeeze(-1) if many else some
        return _Path(lasso, self.among(some, ridge, start, kept[:, some]))

    def among(
        self,
        some: Tensor,
        penalty: CoefPenalty,
        start: Coefficients | None,
        mask: Tensor | None = None,
    ) -> Coefficients:
        """Coefficients that are zero but for some columns, and there by a mask."""
        problem, rows = self.problem, self.rows
        columns = None if len(some) == problem.n_terms else some
        design = linear_design(problem, len(rows.weight), self.n_bytes, mask, columns)
        if columns is not None:
            penalty = replace(penalty, column_feature=penalty.column_feature[some])
            if start is not None:
                start = Coefficients(start.coef[:, some], start.intercept)
        found = solve_coefficients(design, rows, penalty, start, PATH_TOL).coefficients
        if columns is None:
            return found
        coef = found.coef.new_zeros(len(found.coef), problem.n_terms)
        return Coefficients(coef.index_copy(1, some, found.coef), found.intercept)

    def lasso(self, penalty: CoefPenalty, start: Coefficients | None) -> Coefficients:
        """Solved among the features that it asks for; see `minimise_quadratic`."""
        problem, rows = self.problem, self.rows
        at = start or start_coefficients(rows, problem.n_terms)
        there, is_solved = (penalty.norm(at.coef) > 0).any(0), False
        while True:
            if is_solved or not bool(there.any()):
                eta = rows.eta(problem.terms, at.coef, at.intercept)
                gradient = -rows.ranks.total(rows.score(eta) @ problem.terms)
                more = most_urgent(penalty, gradient, penalty.strength, there, PATH_TOL)
                if is_solved and not len(more):
                    return at
                there[more] = True
            some = there[penalty.column_feature].nonzero().squeeze(-1)
            at, is_solved = self.among(some, penalty, at), True


def _nearer(near: _Path, lasso: Coefficients) -> Coefficients:
    """Where to start from: the free solutions of other rows on the same supports."""
    same = ((near.lasso.coef != 0) == (lasso.coef != 0)).all(-1)
    return Coefficients(
        torch.where(same.unsqueeze(-1), near.free.coef, lasso.coef),
        torch.where(same, near.free.intercept, lasso.intercept),
    )


def _penalties(problem: Problem, grid: np.ndarray) -> tuple[CoefPenalty, CoefPenalty]:
    """The lasso at some penalties, and a ridge that only breaks ties."""
    strength = torch.as_tensor(grid, device=problem.device)
    owner, p = problem.term_feature, problem.spec.n_features
    faint = torch.full_like(strength, RELAXED_RIDGE)
    return (
        make_penalty("lasso", strength, owner, p),
        make_penalty("ridge", faint, owner, p),
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
    if problem.family.least_squares:
        null = start_coefficients(rows, problem.n_terms)
    else:  # an offset moves the best intercept
        null = solve_coefficients(design, rows, penalty).coefficients
    slope = expand(design, rows, null).gradient(null.coef)
    norm = penalty.norm(slope) / penalty.weight.clamp(min=1.0)
    return max(float(norm.max()) if norm.numel() else 0.0, 1e-8)


@dataclass(frozen=True, slots=True)
class Size:
    """A model of some of the features, as the scouts see it."""

    kept: Tensor  # (p,), bool
    # Of rows that the scouts leave out: mean, and its standard error.
    loss: float
    error: float

    @classmethod
    def of(cls, kept: Tensor, loss: Tensor, weight: Tensor) -> Self:
        """With the losses of rows, (m,), and how often each of them counts."""
        mean = float(weight @ loss / weight.sum())
        spread = float(weight @ (loss - mean).square() / weight.sum())
        return cls(kept, mean, math.sqrt(spread / float(weight.sum())))


@dataclass(frozen=True, slots=True)
class Look:
    """Members of some of the features, trained."""

    size: Size
    importance: Callable[[], Tensor]  # how much each feature matters, (p,)
    # Their loss on rows held out, with other columns in the place of their own.
    loss: Callable[[Problem], float]


def fewer_features(
    problem: Problem,
    settings: Settings,
    few_kept: int,
    look: Callable[[Tensor], Look],
) -> list[Size]:
    """Models of ever fewer features, those that matter most; the last is to be taken.

    It has the fewest features of those as good as the best within its standard error.
    Up to `few_kept` features leave one at a time.
    """
    kept = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    kept[problem.term_feature.cpu()] = True
    path: list[Size] = []
    while True:
        here = look(kept)
        path.append(here.size)
        n_kept = int(kept.sum())
        count = n_kept - 1 if n_kept <= few_kept else int(settings.keep_share * n_kept)
        if count < 1 or time.monotonic() >= settings.deadline:
            break
        matter = torch.where(kept, here.importance(), -1.0)
        kept = torch.zeros_like(kept)
        kept[matter.argsort(descending=True, stable=True)[:count]] = True
    best = min(path, key=lambda size: size.loss)
    chosen = [size for size in path if size.loss <= best.loss + best.error][-1]
    return [*path, exchange_copies(problem, chosen, settings, look)]


def exchange_copies(
    problem: Problem, size: Size, settings: Settings, look: Callable[[Tensor], Look]
) -> Size:
    """As many features, each the best of those that repeat each other.

    It is chance to which of them members give more weight. But of a noisy copy they
    learn what is true of the column itself: with that in its place they predict better.
    """
    kept, pairs = size.kept.clone(), _copies(problem, size.kept, settings)
    if not pairs or time.monotonic() >= settings.deadline:
        return size
    here = without_features(problem, kept)
    loss_of = look(kept).loss
    least = loss_of(here)
    for j, k in pairs:
        there = _in_place(here, problem, j, k)
        loss = loss_of(there)
        if loss < least and not bool(kept[k]):
            here, least = there, loss
            kept[j], kept[k] = False, True
    return replace(size, kept=kept)


def _copies(
    problem: Problem, kept: Tensor, settings: Settings
) -> list[tuple[int, int]]:
    """Features that are kept, each with the one left out that is most like it."""
    rows = some_rows(problem, settings.spread_rows)
    z = torch.stack([_line(problem, j)[rows] for j in range(len(kept))], 1)
    z = z - z.mean(0)
    z = z / z.norm(dim=0).clamp(min=1e-300)
    alike = (z.T @ z).abs().cpu()
    alike[:, kept] = 0.0
    pairs = [(j, int(alike[j].argmax())) for j in kept.nonzero().squeeze(1).tolist()]
    return [(j, k) for j, k in pairs if float(alike[j, k]) > settings.copy_correlation]


def _line(problem: Problem, j: int) -> Tensor:
    """Standardised values of a feature, (n,); zeros if they are more than a number."""
    own = (problem.term_feature == j) & (problem.term_group == j)
    if int(own.sum()) != 1:
        return problem.y.new_zeros(problem.n_rows)
    return problem.terms[:, own].squeeze(1)


def _in_place(here: Problem, problem: Problem, j: int, k: int) -> Problem:
    """Rows whose columns of feature j are those that its values would have at k's."""
    own, other = _line(problem, j), _line(problem, k)
    values, order = own.sort()
    wanted = other if float(own @ other) > 0 else -other
    above = torch.searchsorted(values, wanted).clamp(max=len(values) - 1)
    below = (above - 1).clamp(min=0)
    nearer = (wanted - values[below]).abs() < (values[above] - wanted).abs()
    rows = order[torch.where(nearer, below, above)]
    owner = torch.tensor(problem.spec.input_feature, device=problem.device)
    terms = torch.where(problem.term_feature == j, here.terms[rows], here.terms)
    inputs = torch.where(owner == j, here.inputs[rows], here.inputs)
    return replace(here, columns=MemoryColumns(terms, inputs))


def without_features(problem: Problem, kept: Tensor) -> Problem:
    """The same rows, with zeros for the columns of features that are left out."""
    if bool(kept.all()):
        return problem
    there = kept.to(problem.device)
    owner = torch.tensor(problem.spec.input_feature, device=problem.device)
    terms = problem.terms * there[problem.term_feature]
    inputs = problem.inputs * there[owner]
    return replace(problem, columns=MemoryColumns(terms, inputs))


def strongest(problem: Problem, weight: Tensor, coef: Tensor, count: int) -> Tensor:
    """Features whose effects vary most over the rows, in their order, (a,)."""
    p = problem.spec.n_features
    share = weight / weight.sum()
    effect = weight.new_zeros(problem.n_rows, p)
    effect.index_add_(1, problem.term_feature, problem.terms * coef)
    centred = effect - share @ effect
    variance = share @ centred.square()
    usable = torch.zeros(p, dtype=torch.bool, device=weight.device)
    usable[problem.term_feature[(problem.terms != 0).any(0)]] = True
    variance = torch.where(usable & ~problem.unbent, variance, -1.0)
    order = variance.argsort(descending=True, stable=True)[:count]
    return order[variance[order] >= 0].sort().values


def mean_changes(rows: Problem, predict: Callable[[Problem], Tensor]) -> Tensor:
    """Mean squared change of `eta` with each feature at its reference, (p,)."""
    whole = predict(rows)
    out = torch.zeros(rows.spec.n_features, dtype=torch.float64)
    for j in range(len(out)):
        others = torch.arange(len(out)) != j
        less = predict(without_features(rows, others))
        out[j] = float((whole - less).square().mean())
    return out


def list_trials(path: Sequence[Size], rows: Sequence[Trial]) -> dict[str, list[Any]]:
    """Columns of a data frame, sizes of a path first."""
    sizes = [("path", -1, -1, size.loss, int(size.kept.sum()), 1) for size in path[:-1]]
    columns = zip(*sizes, *rows, strict=True)
    return {name: list(each) for name, each in zip(TRIAL, columns, strict=True)}


def some_rows(problem: Problem, count: int) -> Tensor:
    """Rows at even distances, about `count`."""
    step = max(1, problem.n_rows // count)
    return torch.arange(0, problem.n_rows, step, device=problem.device)
