"""What one member of a model knows of its coefficients: joint Gauss-Newton.

A coefficient is estimated together with the network that bends it. With `J` the
derivatives of `eta` in intercept, coefficients and weights, `W` the information of a
row, s the dispersion and A the precisions of the priors,

    H = J'WJ / s + A,   covariance = H^-1 = H^-1 (J'WJ / s) H^-1 + H^-1 A H^-1.

The first part is what another sample would change, the second what the priors keep
back. Taking the network for granted would leave its columns out of `J`, and intervals
would be far too short.

A member brings no precisions along: those of the evidence are found again from its
parameters, `a = gamma / |theta|**2`, which is where a search that learns them ends.
Coefficients are pooled as in `solver/_additive.py`, so that one that happens to be near
zero is not taken for certain. A penalty that is known takes their place.

A large network is seen through random combinations of its weights, by block: the
covariance that its prior gives to `eta` is kept on average.

Shapes: n rows, q terms, c readings, m parameters, g groups of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sknimo.inference._hazard import Risks
from sknimo.network import keep_inputs, unpack
from sknimo.solver import Problem, Tangent, cut_rows, param_groups

# Precisions are kept in this range, see `EvidenceOptions`.
PRECISION_RANGE = (1e-6, 1e10)
LEAST_SEPARABLE = 1e-2
# Pseudo-coefficients by which precisions of one kind are drawn together.
POOLING = 1.0
MAX_UPDATES, TOL = 20, 0.05
# Condition of the curvature from which on some columns are combinations of others, and
# a ridge for these that others do not feel, as a share of what rows tell. What is less
# than a share of a combination is no part of it.
MAX_CONDITION, TIE, NO_PART = 1e12, 1e-7, 1e-6
# A block of weights is seen through at most so many combinations.
SKETCH = 256
# Bytes of one block of derivatives.
BLOCK_BYTES = 32 * 2**20
# Rows that are read at once where nothing else is made of them.
BLOCK_ROWS = 2048


@dataclass(frozen=True, slots=True)
class MemberPoint:
    """One member, unscaled: what it is alone."""

    coef: Tensor  # (q,)
    intercept: Tensor  # ()
    params: Tensor  # (P,)
    modulated: Tensor  # (p,), bool
    # Terms that it or another member has: what one has left out is not known to be
    # nothing while others have it.
    used: Tensor  # (q,), bool


@dataclass(frozen=True, slots=True)
class Given:
    """The rows, as the whole model sees them."""

    problem: Problem
    weight: Tensor  # (n,), counts rows
    eta: Tensor  # (n,)
    information: Tensor  # (n,), of a row of weight one at dispersion one
    score: Tensor  # (n,), of a row of weight one
    # Known ridge of the sum of weighted losses, None to learn precisions.
    ridge: Tensor | None = None  # (q,)
    # Under a baseline hazard, whose steps were estimated as well.
    risks: Risks | None = None

    @property
    def n_rows(self) -> float:
        """How many observations tell something: rows, or events under a hazard."""
        if self.risks is None:
            return float(self.weight.sum())
        return float(self.weight @ self.problem.y)

    @property
    def is_finite(self) -> bool:
        """Whether nothing has overflown."""
        return bool((self.score.isfinite() & self.information.isfinite()).all())


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal equations of one member, at dispersion one; the intercept comes first."""

    gram: Tensor  # (1 + m, 1 + m)
    group: Tensor  # (m,)
    size: Tensor  # (g,), sum of squares of each group
    kind: Tensor  # (g,), groups of one kind are pooled: lines, curves, or -1
    columns: Tensor  # (q',), terms that have a coefficient
    tangents: Columns
    # What the parameters are solved from, None where they are known.
    target: Tensor | None = None  # (1 + m,)


class Columns(Protocol):
    """Derivatives of `eta` in intercept, coefficients and all else, by rows."""

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""

    def rows(self, rows: slice) -> Tensor:
        """Derivatives of some rows, (n, 1 + m)."""


class Tangents:
    """Derivatives of `eta` in what a member can move, block by block of rows."""

    def __init__(self, problem: Problem, point: MemberPoint) -> None:
        curve = problem.group_is_curve[problem.term_group]
        used = (point.coef != 0) | (point.used & ~curve)
        self.columns = used.nonzero().squeeze(-1)
        self.coef = point.coef[self.columns]
        owner = problem.term_feature[self.columns]
        active = torch.zeros_like(point.modulated)
        active[owner] = True
        active &= point.modulated
        params = point.params.double().unsqueeze(0)
        first = unpack(problem.spec, params).first
        live = (first.abs().amax((0, 1)) > 0).nonzero().squeeze(-1)
        spec, small = keep_inputs(problem.spec, params, live)
        self.params = small[0]
        silent = len(live) == 0 or not bool(active.any())
        if silent or not bool(unpack(spec, small).out.any()):
            self.params, live = self.params[:0], live[:0]
        self.group = param_groups(spec).to(params.device)[: len(self.params)]
        self.owner = owner
        # Features that are not modulated keep their terms as they are.
        self.fixed = ~active[owner]
        bent = (~self.fixed).nonzero().squeeze(-1)
        self.bent = bent
        self.spec, self.live = spec, live
        self.active = active.nonzero().squeeze(-1)
        self.problem = problem
        # Places of blocks of weights, which are mixed where they are many; none of a
        # small network. Mixes are made when they are needed.
        self.blocks: dict[int, Tensor] = {}
        self.mixes: dict[int, Tensor] = {}
        if len(self.params) > 3 * SKETCH:
            p = problem.spec.n_features
            block = torch.where(self.group < p, 0, self.group - p + 1)
            self.group = block + p - 1  # the first layer in one
            for number in block.unique().tolist():
                self.blocks[number] = (block == number).nonzero().squeeze(-1)

    def chunks(self, slopes: bool = True) -> list[slice]:
        """Blocks of rows that stay small, with derivatives or without."""
        h1, h2 = self.spec.hidden
        n_per_row = 2 * len(self.columns) + len(self.active) * 4 * (h1 + h2)
        if slopes:
            n_per_row += 2 * len(self.params) + 2 * len(self.live) * h1
        return cut_rows(self.problem.n_rows, 8 * max(n_per_row, 1), BLOCK_BYTES)

    def design(self, rows: slice) -> Tensor:
        """Columns whose coefficients add up to `eta`, (n, q')."""
        terms, inputs = self.problem.columns.read(rows)
        design = terms[:, self.columns]
        if len(self.params):
            bent = self._tangent(design, inputs).design(self.params)
            design[:, self.bent] = bent
        return design

    def bends(self, inputs: Tensor) -> Tensor:
        """How much more the features that bend have, times a coefficient, (n, a)."""
        if len(self.params) == 0:
            return inputs.new_zeros(len(inputs), 0)
        size = self.coef.new_zeros(self.problem.spec.n_features)
        size.index_add_(0, self.owner[self.bent], self.coef[self.bent].abs())
        ones = inputs.new_ones(len(inputs), len(self.active))
        tangent = Tangent(
            self.spec, inputs[:, self.live], ones, self.active, self.active
        )
        return tangent.design(self.params) * size[self.active]

    def _tangent(self, terms: Tensor, inputs: Tensor) -> Tangent:
        return Tangent(
            self.spec,
            inputs[:, self.live],
            terms[:, self.bent],
            self.owner[self.bent],
            self.active,
        )

    def rows(self, rows: slice) -> Tensor:
        """Derivatives in intercept, coefficients and weights, (n, 1 + m)."""
        terms, inputs = self.problem.columns.read(rows)
        terms = terms[:, self.columns]
        one = terms.new_ones(len(terms), 1)
        if len(self.params) == 0:
            return torch.cat([one, terms], dim=1)
        tangent = self._tangent(terms, inputs)
        both = tangent.jacobian(self.params, self.coef[self.bent])
        q = len(self.bent)
        terms[:, self.bent] = both[:, :q]
        return torch.cat([one, terms, self._mixed(both[:, q:])], dim=1)

    def _mixed(self, slopes: Tensor) -> Tensor:
        """Random combinations in place of the weights of large blocks."""
        if not self.blocks:
            return slopes
        parts = []
        for number, own in self.blocks.items():
            part = slopes[:, own]
            if len(own) > SKETCH:
                if number not in self.mixes:
                    generator = torch.Generator().manual_seed(number)
                    mix = random_mix(len(own), SKETCH, generator)
                    self.mixes[number] = mix.to(self.params)
                part = part @ self.mixes[number]
            parts.append(part)
        return torch.cat(parts, dim=1)

    @property
    def column_group(self) -> Tensor:
        """Group of every column of weights."""
        if not self.blocks:
            return self.group
        return torch.cat([self.group[own[:SKETCH]] for own in self.blocks.values()])


def random_mix(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Random combinations of `count` columns, (count, size)."""
    mix = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return mix / max(size, 1) ** 0.5


def normal_equations(given: Given, point: MemberPoint) -> Normal:
    """Sums over rows of one member's derivatives."""
    problem = given.problem
    tangents = Tangents(problem, point)
    gram = gram_of(given, tangents)
    columns, n_groups = tangents.columns, problem.n_groups
    group = torch.cat([problem.term_group[columns], tangents.column_group + n_groups])
    size = gram.new_zeros(n_groups + problem.spec.n_features + 5)
    size.index_add_(0, problem.term_group[columns], tangents.coef.square())
    size.index_add_(0, tangents.group + n_groups, tangents.params.square())
    return Normal(gram, group, size, kinds(problem, len(size)), columns, tangents)


def kinds(problem: Problem, n_groups: int) -> Tensor:
    """Which groups are pooled: lines and levels, or curves; -1 for all others."""
    kind = torch.full((n_groups,), -1, dtype=torch.long, device=problem.device)
    kind[: problem.n_groups] = problem.group_is_curve.long()
    return kind


def gram_of(given: Given, columns: Columns) -> Tensor:
    """`J'WJ` of all rows, block by block."""
    share = given.weight * given.information
    total: Tensor | None = None
    for rows in columns.chunks():
        block = columns.rows(rows)
        if total is None:
            total = block.new_zeros(block.shape[1], block.shape[1])
        total.addmm_((block * share[rows].unsqueeze(-1)).mT, block)
    assert total is not None  # a fit has rows
    if given.risks is not None:
        total -= given.risks.explained(columns, len(total))
        # The intercept is the hazard's.
        total[0] = total[:, 0] = 0.0
        total[0, 0] = 1.0
    return total


@dataclass(frozen=True, slots=True)
class Settled:
    """Precisions of one member, and the inverse of its curvature."""

    normal: Normal
    learned: Tensor  # (g,), of the groups
    precision: Tensor  # (1 + m,), zero for the intercept
    inverse: Tensor  # (1 + m, 1 + m), H^-1
    dispersion: float
    n_effective: float  # directions that the data determine, the intercept included
    # Of the curvature among the coefficients, without priors that were learned.
    condition: float
    # Of an average over several precisions: what priors keep back, and how far the
    # parameters lie apart, (1 + m, 1 + m).
    prior: Tensor | None = None
    spread: Tensor | None = None


def settle(
    given: Given, normal: Normal, dispersion: float, start: Settled | None = None
) -> Settled:
    """Learn the precisions at a dispersion, from those of `start`, and invert."""
    gram, group = normal.gram / dispersion, normal.group
    count = torch.bincount(group, minlength=len(normal.size)).to(gram)
    precision = torch.ones_like(normal.size) if start is None else start.learned
    q = len(normal.columns)
    known = None
    if given.ridge is not None:
        known = given.ridge[normal.columns] / dispersion
    low, high = PRECISION_RANGE
    if given.problem.family.separable:
        low = max(low, LEAST_SEPARABLE)
    learns = known is None or len(group) > q
    for _ in range(MAX_UPDATES if learns else 1):
        each = _spread(precision, group, known)
        inverse = invert(gram, each)
        if not learns:
            break
        spread = gram.new_zeros(len(precision))
        spread.index_add_(0, group, (each * inverse.diagonal())[1:])
        gamma = (count - spread).clamp(min=1e-8)
        size = normal.size
        if normal.target is not None:
            theta = inverse @ (normal.target / dispersion)
            size = torch.zeros_like(size).index_add_(0, group, theta[1:].square())
        new = _pool(gamma, size, normal.kind).clamp(low, high)
        new = torch.where(count > 0, new, precision)
        if float((new / precision).log().abs().max()) < TOL:
            break
        precision = new
    left = float((each * inverse.diagonal()).sum())
    straight = gram[: q + 1, : q + 1]
    if known is not None:
        straight = straight + torch.diag(each[: q + 1])
    condition = _condition(straight)
    used = len(gram) - left
    return Settled(normal, precision, each, inverse, dispersion, used, condition)


def pearson(given: Given, used: float, score: Tensor | None = None) -> float:
    """Pearson's statistic per residual degree of freedom, one where it is known.

    `score` are those of a fit near the one that is given.
    """
    family = given.problem.family
    if not family.estimates_dispersion:
        return 1.0
    if score is None:
        mean = family.mean(given.eta)
        variance = family.variance(mean).clamp(min=1e-300)
        squares = (given.problem.y - mean).square() / variance
    else:
        squares = score.square() / given.information
    total, n_rows = float((given.weight * squares).sum()), float(given.weight.sum())
    free = max(n_rows - used, 0.05 * n_rows)
    return max(total / free, family.least_dispersion, 1e-300)


def settle_all(
    given: Given,
    normals: Sequence[Normal],
    shares: Sequence[float],
    used: float,
    rounds: int,
) -> tuple[list[Settled], float]:
    """Members and their dispersion in turn, and the directions used on average."""
    settled: list[Settled] = []
    for _ in range(rounds):
        dispersion = pearson(given, used)
        settled = [
            settle(given, normal, dispersion, start)
            for normal, start in zip_longest(normals, settled)
        ]
        used = float(np.dot(shares, [found.n_effective for found in settled]))
    return settled, used


def _spread(precision: Tensor, group: Tensor, known: Tensor | None) -> Tensor:
    """Precision of every parameter; the intercept has none, (1 + m,)."""
    each = precision[group]
    if known is not None:
        each = torch.cat([known, each[len(known) :]])
    return torch.cat([each.new_zeros(1), each])


def _pool(gamma: Tensor, size: Tensor, kind: Tensor) -> Tensor:
    """Precisions of groups, those of coefficients drawn towards that of their kind."""
    alone = (gamma + 1e-3) / (size + 1e-8)
    pooled = kind >= 0
    both = torch.zeros(2, 2, dtype=gamma.dtype, device=gamma.device)
    there = pooled & (size > 0)
    both.index_add_(1, kind[there], torch.stack([gamma, size])[:, there])
    common = (both[0] / both[1].clamp(min=1e-30)).clamp(min=1e-30)
    drawn = (gamma + 2 * POOLING) / (size + 2 * POOLING / common[kind.clamp(min=0)])
    return torch.where(pooled, drawn, alone)


def invert(gram: Tensor, precision: Tensor) -> Tensor:
    """`(gram + diag(precision))^-1`."""
    factor, root = _factor(gram, precision)
    return torch.cholesky_inverse(factor) * root * root.unsqueeze(-1)


def solve_sized(gram: Tensor, precision: Tensor, aim: Tensor) -> tuple[Tensor, Tensor]:
    """`(gram + diag(precision))^-1 aim`, and the log determinant of the sum."""
    factor, root = _factor(gram, precision)
    found = torch.cholesky_solve((aim * root).unsqueeze(-1), factor).squeeze(-1)
    return found * root, 2 * (factor.diagonal().log().sum() - root.log().sum())


def _factor(gram: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factor of the sum, scaled on both sides by what comes second."""
    matrix = gram + torch.diag(precision)
    root = matrix.diagonal().clamp(min=1e-300).rsqrt()
    scaled = matrix * root * root.unsqueeze(-1)
    lift = 0.0
    for _ in range(6):
        factor, info = torch.linalg.cholesky_ex(
            scaled + lift * torch.eye(len(scaled)).to(scaled)
        )
        if not bool(info):
            break
        lift = max(100 * lift, 1e-14)
    return factor, root


def loose_directions(problem: Problem, weight: Tensor, coef: Tensor) -> Tensor:
    """How lines and levels of `coef` (M, q) can change unnoticed by rows, (q, u)."""
    straight = ~problem.group_is_curve[problem.term_group]
    columns = ((coef != 0).any(0) & straight).nonzero().squeeze(-1)
    gram = weight.new_zeros(1 + len(columns), 1 + len(columns))
    for rows in cut_rows(problem.n_rows, 1, BLOCK_ROWS):
        terms, share = problem.columns.read(rows)[0], weight[rows].unsqueeze(-1)
        block = torch.cat([torch.ones_like(share), terms[:, columns]], dim=1)
        gram += (block * share).mT @ block
    root = gram.diagonal().clamp(min=1e-300).rsqrt()
    values, vectors = torch.linalg.eigh(gram * root * root.unsqueeze(-1))
    found = vectors[:, values < values[-1] / MAX_CONDITION]
    found = torch.where(found.abs() > NO_PART, found, 0.0) * root.unsqueeze(-1)
    loose = weight.new_zeros(problem.n_terms, found.shape[1])
    loose[columns] = found[1:]
    return loose


def tie_ridge(given: Given, loose: Tensor) -> Tensor:
    """A ridge for terms in loose directions, without which nothing is known, (q,)."""
    size = float(given.weight @ given.information)
    return TIE * size * (loose != 0).any(1)


def _condition(gram: Tensor) -> float:
    """Condition of the scaled curvature of intercept and coefficients."""
    root = gram.diagonal().clamp(min=1e-300).rsqrt()
    values = torch.linalg.eigvalsh(gram * root * root.unsqueeze(-1))
    return float(values[-1] / values[0].clamp(min=1e-300))
