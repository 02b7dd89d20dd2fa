"""Coefficients where no network is there to trust: lines, and bends that may be there.

A model without bends says that effects are the same everywhere, and bags know averages
better than the effect at one point. The effect at the reference is then estimated from
its terms and, beside them, products of a line with another feature and its square,

    eta = b0 + phi beta + sum_jk z_j (c_jk z_k + d_jk z_k**2),

around the linear predictor of the model, in one step; the `z_k` are bounded, as the
bends of a network are. Products have one precision, learned by evidence: where rows
show no bends they vanish, and intervals are those of a generalised linear model; where
bends were only not proven, intervals are as wide as that leaves them. Members of the
evidence are opened in the same way to bends that they have left out.

Coverage of the effect 2 of the design "bends" (`benchmarks/intervals.py`) by a linear
model of 200 rows, 40 tables: 0.45 with squares of a precision of their own and not
bounded, 0.80 bounded and with the distance that products move the coefficient added to
its error, 0.95 with one precision; 1.08 of the oracle's width where nothing bends.

Shapes: n rows, q terms, l lines and levels, b products.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from sknimo.inference._posterior import (
    Columns,
    Given,
    Normal,
    Settled,
    gram_of,
    invert,
    kinds,
)
from sknimo.solver import Problem

# Products beyond this are seen through as many random combinations.
MAX_PRODUCTS = 256
# Lines whose products are made, the strongest first.
MAX_LINES = 64
BLOCK_ROWS = 2048
# Precisions of products: turns, when they have settled, and their range.
MAX_TURNS, TOL = 10, 0.05
LEAST, MOST = 1e-6, 1e10


class Lines:
    """Intercept, terms, and products of lines with others."""

    def __init__(self, problem: Problem, coef: Tensor) -> None:
        self.problem = problem
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
        self.mixes = self._make_mixes()

    def _make_mixes(self) -> list[Tensor | None]:
        generator = torch.Generator().manual_seed(0)
        mixes: list[Tensor | None] = []
        for count in (len(self.first), int(self.curved.sum())):
            mix = None
            if count > MAX_PRODUCTS:
                mix = torch.randn(
                    count, MAX_PRODUCTS, generator=generator, dtype=torch.float64
                )
                mix = mix.to(self.problem.device) / MAX_PRODUCTS**0.5
            mixes.append(mix)
        return mixes

    @property
    def widths(self) -> list[int]:
        """Columns of products with lines, and with squares."""
        counts = len(self.first), int(self.curved.sum())
        return [min(count, MAX_PRODUCTS) for count in counts]

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
        line, other = terms[:, self.first], terms[:, self.second].tanh()
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
    scaled, aim = gram / settled.dispersion, target / settled.dispersion
    m, learned = len(theta), 1.0
    for _ in range(MAX_TURNS):
        new = theta.new_full((len(gram) - m,), learned)
        precision = torch.cat([settled.precision, new])
        inverse = invert(scaled, precision)
        found = inverse @ aim
        left = learned * float(inverse.diagonal()[m:].sum())
        size = float(found[m:].square().sum())
        before = learned
        learned = (max(len(new) - left, 1e-8) + 1e-3) / (size + 1e-8)
        learned = min(max(learned, LEAST), MOST)
        if abs(math.log(learned / before)) < TOL:
            break
    used = len(gram) - float((precision * inverse.diagonal()).sum())
    normal = replace(settled.normal, gram=gram, tangents=opened)
    known = replace(
        settled, normal=normal, precision=precision, inverse=inverse, n_effective=used
    )
    return known, found


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
