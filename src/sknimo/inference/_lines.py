"""Coefficients where no network is there to trust: lines, and bends that may be there.

A model without bends says that effects are the same everywhere, and bags know averages
better than the effect at one point. The effect at the reference is then estimated from
its terms and, beside them, products of a line with another feature and its square,

    eta = b0 + phi beta + sum_jk |beta_j| z_j (c_jk z_k + d_jk z_k**2),

around the linear predictor of the model, in one step; the `z_k` are bounded, as the
bends of a network are. All `c` and `d` have one size. Whatever is known is averaged
over sizes by their evidence: where rows show no bends intervals are about those of a
generalised linear model; where bends were only not proven, intervals are as wide as
that leaves them. One size that is learned finds no bend among many possible ones, and
intervals miss. Members of the evidence are opened in the same way to bends that they
have left out.

Linear models of 25 to 40 tables of 200 rows (designs of `benchmarks/intervals.py`), one
size learned / sizes averaged: coverage of effects in "linear" 0.95 / 0.98, "bends" 0.99
/ 1.00, "poisson" 0.92 / 0.96; width beside the oracle's 1.07 / 1.11, 2.6 / 2.2, 1.20 /
1.25. Curves beside the products (a feature that bends itself) made "bends" 3.1 wide and
helped nowhere.

Shapes: n rows, q terms, l lines and levels, b products.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from sknimo.inference._posterior import (
    Columns,
    Given,
    Normal,
    Settled,
    gram_of,
    invert_sized,
    kinds,
)
from sknimo.solver import Problem

# Products beyond so many are seen through as many random combinations.
MAX_PRODUCTS = 256
# Lines whose products are made, the strongest first.
MAX_LINES = 64
BLOCK_ROWS = 2048
# Sizes that products may have, as shares of their line: none to speak of to as large as
# the line itself. All are as likely beforehand.
SIZES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8)
# Rows for every line and level, and condition, at which rows alone tell coefficients.
ROWS_PER_LINE = 10
MAX_CONDITION = 1e6


class Lines:
    """Intercept, terms, and products of lines with others."""

    def __init__(
        self, problem: Problem, coef: Tensor, most: int = MAX_PRODUCTS
    ) -> None:
        self.problem, self.most = problem, most
        self.columns = (coef != 0).nonzero().squeeze(-1)
        owner, group = problem.term_feature, problem.term_group
        straight = group < problem.spec.n_features
        size = torch.where(straight, coef.abs(), -1.0)
        bent = size.argsort(descending=True, stable=True)[:MAX_LINES]
        bent = bent[size[bent] > 0].sort().values
        other = straight.nonzero().squeeze(-1)
        if len(other) > MAX_LINES:
            other = size[other].argsort(descending=True, stable=True)[:MAX_LINES]
            other = straight.nonzero().squeeze(-1)[other].sort().values
        first, second = torch.cartesian_prod(bent, other).reshape(-1, 2).unbind(-1)
        apart = owner[first] != owner[second]
        self.first, self.second = first[apart], second[apart]
        # The square of a level is the level.
        levels = torch.tensor(
            [bool(_is_level(problem, int(j))) for j in other.tolist()],
            dtype=torch.bool,
            device=owner.device,
        )
        place = torch.full_like(owner, 0)
        place[other] = torch.arange(len(other), device=owner.device)
        self.curved = ~levels[place[self.second]]
        self.size = coef[self.first].abs()  # bends multiply coefficients
        self.mixes = self._make_mixes()

    def _make_mixes(self) -> list[Tensor | None]:
        generator = torch.Generator().manual_seed(0)
        mixes: list[Tensor | None] = []
        for count in (len(self.first), int(self.curved.sum())):
            mix = None
            if count > self.most:
                mix = torch.randn(
                    count, self.most, generator=generator, dtype=torch.float64
                )
                mix = mix.to(self.problem.device) / max(self.most, 1) ** 0.5
            mixes.append(mix)
        return mixes

    @property
    def widths(self) -> list[int]:
        """Columns of products with lines, and with squares."""
        counts = len(self.first), int(self.curved.sum())
        return [min(count, self.most) for count in counts]

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""
        n = self.problem.n_rows
        return [slice(b, min(b + BLOCK_ROWS, n)) for b in range(0, n, BLOCK_ROWS)]

    def rows(self, rows: slice) -> Tensor:
        """Columns of some rows, (n, 1 + q + b)."""
        terms = self.problem.columns.read(rows)[0]
        one = terms.new_ones(len(terms), 1)
        return torch.cat([one, terms[:, self.columns], self.products(rows)], dim=1)

    def products(self, rows: slice) -> Tensor:
        """Lines times bounded functions of others, (n, b)."""
        terms = self.problem.columns.read(rows)[0]
        # Bounded, as the bends of a network are.
        line, other = terms[:, self.first] * self.size, terms[:, self.second].tanh()
        parts = [line * other]
        parts.append(parts[0][:, self.curved] * other[:, self.curved])
        seen = [
            part if mix is None else part @ mix
            for part, mix in zip(parts, self.mixes, strict=True)
        ]
        return torch.cat(seen, dim=1)


class Beside:
    """Columns, and one more (n,) as the last."""

    def __init__(self, columns: Columns, last: Tensor) -> None:
        self.columns, self.last = columns, last

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""
        return self.columns.chunks()

    def rows(self, rows: slice) -> Tensor:
        """Columns of some rows, (n, 1 + m + 1)."""
        last = self.last[rows].unsqueeze(-1)
        return torch.cat([self.columns.rows(rows), last], dim=1)


class Opened:
    """Derivatives of a member, and products that it does not have."""

    def __init__(self, columns: Columns, lines: Lines) -> None:
        self.columns, self.lines = columns, lines

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""
        return self.columns.chunks()

    def rows(self, rows: slice) -> Tensor:
        """Derivatives of some rows, (n, 1 + m + b)."""
        return torch.cat([self.columns.rows(rows), self.lines.products(rows)], dim=1)


def open_bends(
    given: Given, settled: Settled, theta: Tensor, coef: Tensor
) -> tuple[Settled, Tensor]:
    """A member with products that it does not have, and its parameters in one step.

    `theta` (1 + m,) are those it has. What was left out is not proven to be nothing.
    """
    lines = Lines(given.problem, coef)
    opened = Opened(settled.normal.tangents, lines)
    gram = gram_of(given, opened)
    start = torch.cat([theta, theta.new_zeros(sum(lines.widths))])
    target = gram @ start
    for rows in opened.chunks():
        target += (given.weight[rows] * given.score[rows]) @ opened.rows(rows)
    normal = replace(settled.normal, gram=gram, tangents=opened, target=target)
    return average_sizes(given, replace(settled, normal=normal), len(theta))


def average_sizes(given: Given, settled: Settled, first: int) -> tuple[Settled, Tensor]:
    """What is known whatever size products have; they stand from `first` on.

    Every size counts by its evidence. The parameters are the mean over sizes.
    """
    normal = settled.normal
    assert normal.target is not None
    gram, aim = (x / settled.dispersion for x in (normal.gram, normal.target))
    precision = _free_lines(given, settled)[:first]
    count = len(gram) - first
    found, evidence = [], []
    for size in SIZES if count else SIZES[:1]:
        each = torch.cat([precision, gram.new_full((count,), size**-2)])
        inverse, log_size = invert_sized(gram, each)
        theta = inverse @ aim
        evidence.append((aim @ theta - log_size) / 2 - count * math.log(size))
        prior = inverse @ (each.unsqueeze(-1) * inverse)
        found.append((theta, each, inverse, prior))
    share = torch.stack(evidence).softmax(0).tolist()

    def mean(parts: Iterable[Tensor]) -> Tensor:
        weighed = (w * part for w, part in zip(share, parts, strict=True))
        return torch.stack(list(weighed)).sum(0)

    theta, each, inverse, prior = (mean(parts) for parts in zip(*found, strict=True))
    spread = mean(torch.outer(x[0] - theta, x[0] - theta) for x in found)
    left = mean((x[1] * x[2].diagonal()).sum() for x in found)
    known = replace(
        settled,
        precision=each,
        inverse=inverse,
        n_effective=len(gram) - float(left),
        prior=prior + spread,
        spread=spread,
    )
    return known, theta


def _free_lines(given: Given, settled: Settled) -> Tensor:
    """Precisions (1 + m,), none for lines and levels where the rows suffice.

    A prior that is learned pulls all coefficients a little to zero, those that act as
    well as those that do not. That helps predictions and makes intervals miss.
    """
    problem, columns = given.problem, settled.normal.columns
    straight = ~problem.group_is_curve[problem.term_group[columns]]
    enough = given.n_rows >= ROWS_PER_LINE * (1 + float(straight.sum()))
    if not enough or settled.condition > MAX_CONDITION:
        return settled.precision
    free = settled.precision.clone()
    free[1 : 1 + len(columns)][straight] = 0.0
    return free


def _is_level(problem: Problem, term: int) -> bool:
    """Whether a term has two values in the rows."""
    column = problem.columns.read(slice(0, min(problem.n_rows, 1000)))[0][:, term]
    return len(column.unique()) <= 2


def line_equations(given: Given, coef: Tensor) -> Normal:
    """Normal equations of terms that have a coefficient in `coef` (q,), and products.

    They are those of one step from the linear predictor that is `given`.
    """
    problem = given.problem
    lines = Lines(problem, coef)
    wide = gram_of(given, Beside(lines, given.eta - problem.offset))
    gram, target = wide[:-1, :-1], wide[:-1, -1]
    for rows in lines.chunks():
        target += (given.weight[rows] * given.score[rows]) @ lines.rows(rows)
    n_groups = problem.n_groups
    group = torch.cat(
        [
            problem.term_group[lines.columns],
            *(
                torch.full((width,), n_groups, device=gram.device)
                for width in lines.widths
            ),
        ]
    )
    size = gram.new_zeros(n_groups + 1)
    kind = kinds(problem, n_groups + 1)
    return Normal(gram, group, size, kind, lines.columns, lines, target)
