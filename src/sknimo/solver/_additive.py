"""Additive models: smoothness of every curve learned, then exact fits of bags.

A GLM of terms, without a network. Every group of terms (line, curve, levels, missing)
has a precision that maximises the evidence, as in `_evidence.py`, pooled with those of
its kind: few rows do not tell every precision apart. A curve becomes its line where the
rows want a line. All that is needed of the rows are means and Gram
matrices of their terms, so that least squares reads them once, and other families once
for every linearisation. A bag, which leaves some rows out, subtracts what they add; its
coefficients then follow by Newton steps that keep this matrix.

Everything is in double precision.

Shapes: n rows, q terms, g groups of terms, K bags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.families import LINKS
from sknimo.solver._member import estimate_dispersion
from sknimo.solver._problem import Problem
from sknimo.solver._profile import WEIGHT_FLOOR
from sknimo.solver._quadratic import cut_rows

# Rows of a block: a few megabytes for as many terms as there usually are.
BLOCK_ROWS = 4096
# A perfect fit leaves no dispersion, and then precisions would be infinite.
LEAST_DISPERSION = 1e-12
# Shares of a Newton step that are tried.
HALVINGS = 12


@dataclass(frozen=True, slots=True)
class AdditiveOptions:
    """When precisions have settled, and where they end."""

    # Linearisations of a loss that is not quadratic, precision updates at each, and at
    # the only one of least squares.
    max_looks: int = 12
    updates: int = 8
    updates_least_squares: int = 40
    # Largest change of a logarithm of a precision that counts as none.
    tol: float = 0.05
    # A precision counts as much as twice so many coefficients of its group beside what
    # all curves, or all other groups, have in common. Loss of rows held out relative to
    # that at 1, geometric mean over 33 splits of 18 real tables of fewer than 4,000
    # rows: 1.05 without pooling, 1.01 at 0.25, 1.00 at 4, 1.01 with all precisions of a
    # kind equal.
    pooling: float = 1.0
    # Precisions are kept in this range.
    precision_range: tuple[float, float] = (1e-6, 1e7)
    # A group whose squared Wald statistics sum to less than this share of the
    # coefficients that the data determine is idle: it is left out exactly. Loss
    # relative to leaving none out, 17 small tables: 1.002; at 1: 1.004; at 2: 1.01.
    least_wald: float = 0.5
    # The same of curves.
    least_curve_wald: float = 0.5
    # Where targets can be separated coefficients run away; see `EvidenceOptions`.
    least_separable: float = 1e-2


# Where rows cannot tell lines apart: one precision of all, and none is left out.
RIDGE = AdditiveOptions(pooling=1000.0, least_wald=0.0)


@dataclass(frozen=True, slots=True)
class AdditiveFit:
    """An additive model of all rows, and the precisions of its groups."""

    coef: Tensor  # (q,)
    own: Tensor  # (m,), of the sums of terms that have a prior, see `Prior`
    intercept: Tensor  # ()
    precision: Tensor  # (g,)
    dispersion: float
    n_effective: float  # directions that the data determine

    def at(self, coef: Tensor, own: Tensor, intercept: Tensor) -> AdditiveFit:
        """The same with other coefficients."""
        return replace(self, coef=coef, own=own, intercept=intercept)

    def ridge(self, group: Tensor) -> Tensor:
        """Ridge of the sum of weighted losses, of terms or sums in these groups."""
        return (self.precision * self.dispersion)[group]


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over rows of terms under working weights."""

    weight: Tensor  # ()
    terms: Tensor  # (q,)
    gram: Tensor  # (q, q), about zero

    def less(self, other: Moments) -> Moments:
        """Without the rows of another."""
        return Moments(
            self.weight - other.weight,
            self.terms - other.terms,
            self.gram - other.gram,
        )

    def centred(self) -> tuple[Tensor, Tensor]:
        """Means of the terms (q,) and their Gram matrix about these (q, q)."""
        mean = self.terms / self.weight
        return mean, self.gram - torch.outer(self.terms, mean)


@dataclass(frozen=True, slots=True)
class Frame:
    """The coordinates in which coefficients are independent before a row is seen."""

    group: Tensor  # (m,)
    size: Tensor  # (g,), how many of them each group has
    kind: Tensor  # (g,), integer: 1 for curves, 0 for lines, levels and indicators
    sums: Tensor | None  # (q, m), those of the terms if None

    @classmethod
    def of(cls, problem: Problem) -> Frame:
        """The prior of a problem, or its terms."""
        prior = problem.prior
        group = problem.term_group if prior is None else prior.group
        size = torch.bincount(group, minlength=problem.n_groups).to(problem.y)
        kind = problem.group_is_curve.long()
        return cls(group, size, kind, None if prior is None else prior.sums)

    def coef(self, own: Tensor) -> Tensor:
        """Coefficients of the terms, (q,)."""
        return own if self.sums is None else self.sums @ own

    def pull(self, terms: Tensor) -> Tensor:
        """What pulls at terms (q,) as it pulls here, (m,)."""
        return terms if self.sums is None else terms @ self.sums

    def gram(self, terms: Tensor) -> Tensor:
        """A Gram matrix of terms here, (m, m)."""
        return terms if self.sums is None else self.sums.T @ terms @ self.sums


@dataclass(frozen=True, slots=True)
class Look:
    """Rows linearised at a linear predictor."""

    curvature: Tensor  # (n,), working weights
    score: Tensor  # (n,), weighted
    moments: Moments


def fit_additive(
    problem: Problem,
    weight: Tensor,
    options: AdditiveOptions,
    start: AdditiveFit | None = None,
    moments: Moments | None = None,
) -> AdditiveFit:
    """Coefficients of all rows, with precisions learned; `weight` (n,) counts rows.

    `start` is the fit of almost the same rows, if there is one; `moments` of least
    squares may be known.
    """
    rows = _Counted(problem, weight, Frame.of(problem))
    state = rows.start() if start is None else start
    quadratic = problem.family.least_squares
    for number in range(1 if quadratic else options.max_looks):
        before = state
        look = rows.look(state, moments)
        if quadratic:
            moments = look.moments
        state, whole = rows.damp(before, rows.learn(state, look, options))
        if not quadratic:
            all_rows, used = problem.rows(weight.unsqueeze(0)), state.n_effective + 1
            left = estimate_dispersion(all_rows, rows.eta(state), used)
            state = replace(state, dispersion=max(left, LEAST_DISPERSION))
        moved = (state.precision / before.precision).log().abs()[rows.frame.size > 0]
        settled = float(moved.max()) < 2 * options.tol if len(moved) else True
        if number > (0 if start else 2) and whole and settled:
            break
    return rows.leave_out(state, options, moments)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows of a problem, how much each counts, and the coordinates of coefficients."""

    problem: Problem
    weight: Tensor  # (n,)
    frame: Frame

    def start(self) -> AdditiveFit:
        """No coefficients, precisions of one.

        More of them where terms could explain all rows at that: all their noise passes
        for signal from such a start, and with it ever more.
        """
        problem, frame = self.problem, self.frame
        link, share = LINKS[problem.family.link], self.weight / self.weight.sum()
        if problem.family.link == "identity":
            intercept = share @ (problem.y - problem.offset)
        else:
            mean = link.inside(share @ problem.y, 1e-9)
            intercept = link.link_function(mean) - share @ problem.offset
        ones = torch.ones(len(frame.size), dtype=torch.float64, device=problem.device)
        nothing = ones.new_zeros(len(frame.group))
        precision = ones * len(nothing) if len(nothing) >= problem.n_rows else ones
        return AdditiveFit(frame.coef(nothing), nothing, intercept, precision, 1.0, 0.0)

    def eta(self, at: AdditiveFit) -> Tensor:
        """Linear predictor, (n,)."""
        return predict_additive(self.problem, at.coef, at.intercept)

    def look(self, at: AdditiveFit, moments: Moments | None = None) -> Look:
        """Rows linearised; their moments may be known."""
        problem, eta = self.problem, self.eta(at)
        curvature = problem.family.curvature(problem.y, eta) * self.weight
        # A fit of next to no noise would learn from rows that are left out.
        floor = torch.where(self.weight > 0, WEIGHT_FLOOR * curvature.mean(), 0.0)
        curvature = torch.maximum(curvature, floor)
        score = problem.family.score(problem.y, eta) * self.weight
        return Look(curvature, score, moments or _moments(problem, curvature))

    def learn(
        self, state: AdditiveFit, look: Look, options: AdditiveOptions
    ) -> AdditiveFit:
        """Alternate ridge solves and precision updates on one quadratic model."""
        problem, family, frame = self.problem, self.problem.family, self.frame
        group, size = frame.group, frame.size
        low, high = options.precision_range
        low = max(low, options.least_separable) if family.separable else low
        mean, gram = look.moments.centred()
        pull = _pull(problem, look.score) - mean * look.score.sum()
        target = frame.pull(pull + gram @ state.coef)
        own_gram = frame.gram(gram)
        n_rows = float(self.weight.sum())
        precision, dispersion = state.precision, state.dispersion
        own, gamma = state.own, torch.zeros_like(precision)
        squares = float((look.score.square() / look.curvature.clamp(min=1e-300)).sum())
        squares -= float(look.score.sum()) ** 2 / float(look.moments.weight)
        n_updates = options.updates
        if family.least_squares:
            n_updates = options.updates_least_squares
        for number in range(n_updates + 1):
            ridge = (precision * dispersion)[group]
            factor = factorise(own_gram, ridge)
            own = torch.cholesky_solve(target.unsqueeze(1), factor).squeeze(1)
            if number == n_updates:
                break
            spread = torch.cholesky_inverse(factor).diagonal() * dispersion
            gamma = size - precision * by_group(spread, group, size)
            gamma = torch.minimum(gamma.clamp(min=1e-8), size)
            square = by_group(own.square(), group, size).clamp(min=1e-30)
            new = pool_precisions(gamma, square, frame.kind, options.pooling)
            new = torch.where(size > 0, new.clamp(low, high), precision)
            change = (new / precision).log().abs()
            precision = new
            if family.least_squares:
                step = frame.coef(own) - state.coef
                left = squares - 2 * float(step @ pull) + float(step @ (gram @ step))
                free = max(n_rows - float(gamma.sum()) - 1, 1.0)
                dispersion = max(left / free, LEAST_DISPERSION)
            if float(change.max()) < options.tol:
                break
        coef = frame.coef(own)
        shift = (look.score.sum() / look.moments.weight) - mean @ (coef - state.coef)
        level, used = state.intercept + shift, float(gamma.sum())
        return AdditiveFit(coef, own, level, precision, dispersion, used)

    def damp(self, before: AdditiveFit, after: AdditiveFit) -> tuple[AdditiveFit, bool]:
        """Go as far to the new coefficients as the loss falls; whether all the way."""
        if self.problem.family.least_squares:
            return after, True
        ridge = after.ridge(self.frame.group)
        start = self.objective(before, ridge)
        known = before.coef, before.own, before.intercept
        moves = after.coef - known[0], after.own - known[1], after.intercept - known[2]
        for halving in range(HALVINGS):
            near = (
                old + 0.5**halving * move
                for old, move in zip(known, moves, strict=True)
            )
            trial = after.at(*near)
            if self.objective(trial, ridge) <= start:
                return trial, halving == 0
        return after.at(*known), False

    def objective(self, at: AdditiveFit, ridge: Tensor) -> float:
        """Weighted losses, and what the precisions charge."""
        problem = self.problem
        loss = torch.nan_to_num(problem.family.loss(problem.y, self.eta(at)), nan=1e300)
        return float((self.weight * loss).sum() + (ridge * at.own.square()).sum() / 2)

    def leave_out(
        self, state: AdditiveFit, options: AdditiveOptions, moments: Moments | None
    ) -> AdditiveFit:
        """Without the groups that do nothing, as far as the rows can tell."""
        frame, group, size = self.frame, self.frame.group, self.frame.size
        look = self.look(state, moments)
        gram = frame.gram(look.moments.centred()[1])
        factor = factorise(gram, state.ridge(group))
        spread = torch.cholesky_inverse(factor).diagonal() * state.dispersion
        gamma = size - state.precision * by_group(spread, group, size)
        wald = by_group(state.own.square() / spread, group, size)
        least = torch.where(
            frame.kind > 0, options.least_curve_wald, options.least_wald
        )
        idle = wald < least * gamma
        if not bool(idle.any()):
            return state
        high = torch.full_like(state.precision, options.precision_range[1])
        before = replace(state, precision=torch.where(idle, high, state.precision))
        still = replace(options, updates=0, updates_least_squares=0)
        after = self.damp(before, self.learn(before, look, still))[0]
        own = torch.where(idle[group], 0.0, after.own)
        used = state.n_effective
        return replace(after, coef=frame.coef(own), own=own, n_effective=used)


def pool_precisions(
    gamma: Tensor, square: Tensor, kind: Tensor, pooling: float
) -> Tensor:
    """Precisions of groups, (g,), each drawn towards that of its kind.

    `gamma` counts the coefficients of a group that the data determine, `square` is the
    sum of their squares: alone a group would have the ratio of both.
    """
    both = gamma.new_zeros(2, int(kind.max()) + 1)
    both.index_add_(1, kind, torch.stack([gamma, square]))
    common = (both[0] / both[1].clamp(min=1e-30))[kind].clamp(min=1e-30)
    return (gamma + 2 * pooling) / (square + 2 * pooling / common)


def solve_bags(
    problem: Problem, weight: Tensor, left_out: Tensor, fit: AdditiveFit, n_steps: int
) -> tuple[Tensor, Tensor]:
    """Coefficients (K, q) and intercepts (K,) without the rows of weight `left_out`.

    `left_out` (K, n) is in units of `weight`. Precisions are those of all rows.
    """
    frame = Frame.of(problem)
    ridge = fit.ridge(frame.group)
    idle = (fit.own == 0) & (ridge > 0)
    rows = _Counted(problem, weight, frame)
    start, look = rows.eta(fit), rows.look(fit)
    per_row = look.curvature / weight.clamp(min=1e-300)
    coefs, intercepts = [], []
    for out in left_out:
        moments = look.moments.less(_moments(problem, per_row * out, few=True))
        state, train = fit, replace(rows, weight=weight - out)
        mean, factor = _factorise(moments, frame, ridge, idle)
        for step in range(1 if problem.family.least_squares else n_steps):
            eta = train.eta(state) if step else start
            score = problem.family.score(problem.y, eta) * train.weight
            total = score.sum()
            pull = frame.pull(_pull(problem, score) - mean * total) - ridge * state.own
            move = torch.cholesky_solve(pull.unsqueeze(1), factor).squeeze(1)
            own = state.own + torch.where(idle, 0.0, move)
            coef = frame.coef(own)
            level = state.intercept + total / moments.weight
            level = level - mean @ (coef - state.coef)
            state, whole = train.damp(state, state.at(coef, own, level))
            if not whole:
                # Rows of its own decide where classes can almost be told apart: the
                # matrix of all rows says nothing of a bag without them.
                moments = train.look(state).moments
                mean, factor = _factorise(moments, frame, ridge, idle)
        coefs.append(state.coef)
        intercepts.append(state.intercept)
    return torch.stack(coefs), torch.stack(intercepts)


def _factorise(
    moments: Moments, frame: Frame, ridge: Tensor, idle: Tensor
) -> tuple[Tensor, Tensor]:
    """Means of terms, and the factor of a Newton step that leaves what is idle."""
    mean, gram = moments.centred()
    return mean, factorise(frame.gram(gram), torch.where(idle, 1e12, 1.0) * ridge)


def bag_moments(problem: Problem, train: Tensor) -> Iterator[Moments | None]:
    """Moments of bags with these weights (K, n), where they depend on nothing else.

    Bags share most of their rows: what they differ in is added to those of the first.
    """
    if not problem.family.least_squares:
        yield from [None] * len(train)
        return
    first = _moments(problem, train[0])
    for weight in train:
        yield first.less(_moments(problem, train[0] - weight, few=True))


def predict_additive(problem: Problem, coef: Tensor, intercept: Tensor) -> Tensor:
    """Linear predictor without a network, (n,)."""
    blocks = cut_rows(problem.n_rows, 1, BLOCK_ROWS)
    parts = [problem.columns.read(rows)[0] @ coef for rows in blocks]
    return torch.cat(parts) + problem.offset + intercept


def _moments(problem: Problem, curvature: Tensor, few: bool = False) -> Moments:
    """Moments of all rows, or of the `few` that have a weight."""
    terms = curvature.new_zeros(problem.n_terms)
    gram = curvature.new_zeros(problem.n_terms, problem.n_terms)
    rows = curvature.nonzero().squeeze(-1) if few else None
    share = curvature if rows is None else curvature[rows]
    for block in cut_rows(len(share), 1, BLOCK_ROWS):
        if rows is None:
            columns = problem.columns.read(block)[0]
        else:
            columns = problem.columns.take(rows[block])[0]
        weighed = columns * share[block].unsqueeze(1)
        terms += weighed.sum(0)
        gram.addmm_(weighed.T, columns)
    return Moments(share.sum(), terms, gram)


def _pull(problem: Problem, score: Tensor) -> Tensor:
    """Terms times a vector over rows, (q,)."""
    total = score.new_zeros(problem.n_terms)
    for block in cut_rows(problem.n_rows, 1, BLOCK_ROWS):
        total += score[block] @ problem.columns.read(block)[0]
    return total


def factorise(gram: Tensor, ridge: Tensor) -> Tensor:
    """Cholesky factor; rounding may ask for a little more ridge."""
    scale = float(gram.diagonal().max()) if len(gram) else 1.0
    for power in (0.0, 1e-13, 1e-11, 1e-9):
        factor, info = torch.linalg.cholesky_ex(
            gram + torch.diag(ridge + power * scale)
        )
        if not bool(info):
            return factor
    raise ValueError(
        "Terms are too far from independent to solve for. Drop columns of X that "
        "others determine."
    )


def by_group(values: Tensor, group: Tensor, size: Tensor) -> Tensor:
    return torch.zeros_like(size).index_add_(0, group, values)
