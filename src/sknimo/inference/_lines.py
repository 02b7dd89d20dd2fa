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
have left out, and to bends that turn about another point than the reference, with a
size of their own: `(z_j - t) g(z_k)` around the reference is a bend and a curve
`-t g(z_k)`, which the model does not have. In the paper's settings 2 and 3, where
features turn about zero and the reference is their mean, intervals held .80 of the
effects without that (72 tables of 200 rows), and .94 and .85 with it (129 and 127).

Linear models of 25 to 40 tables of 200 rows (designs of `benchmarks/intervals.py`), one
size learned / sizes averaged: coverage of effects in "linear" 0.95 / 0.98, "bends" 0.99
/ 1.00, "poisson" 0.92 / 0.96; width beside the oracle's 1.07 / 1.11, 2.6 / 2.2, 1.20 /
1.25. Curves beside the products (a feature that bends itself) made "bends" 3.1 wide and
helped nowhere.

Shapes: n rows, q terms, l lines and levels, b products.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from sknimo.features import FeatureMap
from sknimo.inference._posterior import (
    Columns,
    Given,
    Normal,
    Settled,
    Tangents,
    gram_of,
    invert,
    kinds,
    random_mix,
    solve_sized,
)
from sknimo.solver import Problem, cut_rows

# Products beyond so many are seen through as many random combinations.
MAX_PRODUCTS = 256
# Lines whose products are made, the strongest first.
MAX_LINES = 64
BLOCK_ROWS = 2048
# Sizes that products may have, as shares of their line: none to speak of to as large as
# the line itself. All are as likely beforehand.
SIZES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8)
# Sizes that are less likely than this are left out.
LEAST_SHARE = 1e-3
# Rows for every line and level, and condition, at which rows alone tell coefficients;
# otherwise a prior of lines tells at most so many times what the rows do. One that is
# learned from noise alone has no bound.
ROWS_PER_LINE = 3
MAX_CONDITION = 1e6
LARGEST_PRIOR = 0.3
# A slope at the reference, and rows among which every level is looked for.
STEP = 1e-4
BLOCK_CELLS = 1 << 20  # products of lines that are made at a time
MAX_LEVEL_ROWS = 100_000


class Lines:
    """Intercept, terms, and products of lines with others."""

    def __init__(
        self, problem: Problem, coef: Tensor, most: int = MAX_PRODUCTS
    ) -> None:
        self.problem = problem
        self.columns = (coef != 0).nonzero().squeeze(-1)
        owner, group = problem.term_feature, problem.term_group
        straight = group < problem.spec.n_features
        size = torch.where(straight, coef.abs(), -1.0)
        strongest = size.argsort(descending=True, stable=True)[:MAX_LINES]
        bent = strongest[size[strongest] > 0].sort().values
        other = strongest[size[strongest] >= 0].sort().values
        first, second = torch.cartesian_prod(bent, other).reshape(-1, 2).unbind(-1)
        apart = owner[first] != owner[second]
        self.first, self.second = first[apart], second[apart]
        # The square of a level is the level.
        levels = owner.new_tensor(find_levels(problem, other))
        self.curved = ~torch.isin(self.second, levels)
        self.size = coef[self.first].abs()  # bends multiply coefficients
        counts = len(self.first), int(self.curved.sum())
        generator = torch.Generator().manual_seed(0)
        self.mixes = [
            random_mix(n, most, generator).to(problem.device) if n > most else None
            for n in counts
        ]
        # Columns of products, with lines and with squares.
        self.width = sum(min(n, most) for n in counts)

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""
        size = min(BLOCK_ROWS, BLOCK_CELLS // max(len(self.first), 1))
        return cut_rows(self.problem.n_rows, 1, size)

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

    def normal(self, gram: Tensor, target: Tensor, copies: int = 1) -> Normal:
        """Normal equations of so many copies of the terms, and then of the products."""
        columns, n_groups = self.columns.repeat(copies), self.problem.n_groups
        own = self.problem.term_group[columns]
        group = torch.cat([own, own.new_full((copies * self.width,), n_groups)])
        size, kind = gram.new_zeros(n_groups + 1), kinds(self.problem, n_groups + 1)
        return Normal(gram, group, size, kind, columns, self, target)


class Beside:
    """Columns, and more of the same rows behind them."""

    def __init__(self, columns: Columns, *more: Callable[[slice], Tensor]) -> None:
        self.columns, self.more = columns, more

    def chunks(self) -> list[slice]:
        """Blocks of rows that stay small."""
        return self.columns.chunks()

    def rows(self, rows: slice) -> Tensor:
        """Columns of some rows."""
        more = [read(rows) for read in self.more]
        return torch.cat([self.columns.rows(rows), *more], dim=1)


class Turned:
    """Bends that turn about another point than the reference.

    `beta_k (z_k - t_k) (1 + g_k)` is the model with a curve `-t_k beta_k g_k` in those
    that bend feature k. It has no slope at the reference here, so that coefficients
    stay effects there.
    """

    def __init__(
        self, tangents: Tangents, features: FeatureMap, straight: Tensor
    ) -> None:
        self.tangents = tangents
        terms, inputs = tangents.problem.columns.read(slice(0, MAX_LEVEL_ROWS))
        base = torch.as_tensor(features.inputs(features.reference[None])).to(inputs)
        self.base = tangents.bends(base)  # (1, a)
        ends = self._ends(features, straight, terms, inputs, base)
        before, after = (tangents.bends(part) for part in ends[:2])
        self.slopes = (after - before) / ends[2].unsqueeze(-1)
        self.straight = straight

    def _ends(
        self,
        features: FeatureMap,
        straight: Tensor,
        terms: Tensor,
        inputs: Tensor,
        base: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs before and after one term each moves, and by how much these do.

        Terms move a little at the reference, those of two values from one to the other:
        nobody is between them, and a curve that is left there would be the term.
        """
        at = features.reference[None]
        term_slope = torch.as_tensor(features.term_slopes(at)[0]).to(inputs)
        input_slope = torch.as_tensor(features.input_slopes(at)[0]).to(inputs)
        owner = torch.as_tensor(features.term_feature).to(straight)
        of_input = torch.as_tensor(features.input_feature).to(straight)
        levels = find_levels(self.tangents.problem, straight)
        before, step = base.repeat(len(straight), 1), base.new_ones(len(straight))
        after = before.clone()
        for k, term in enumerate(straight.tolist()):
            own, column = of_input == owner[term], terms[:, term]
            slope = term_slope[term]
            if bool(slope.isfinite()) and bool(slope != 0) and term not in levels:
                after[k, own] += STEP * input_slope[own] / slope
                step[k] = STEP
                continue
            ends = column.argmin(), column.argmax()
            if column[ends[0]] < column[ends[1]]:
                step[k] = column[ends[1]] - column[ends[0]]
                for part, row in zip((before, after), ends, strict=True):
                    if column[row] != 0:  # not at the reference
                        part[k, own] = inputs[row, own]
        return before, after, step

    @property
    def width(self) -> int:
        """How many there are."""
        return self.base.shape[1]

    def rows(self, rows: slice) -> Tensor:
        """Columns of some rows, (n, a)."""
        terms, inputs = self.tangents.problem.columns.read(rows)
        curve = self.tangents.bends(inputs) - self.base
        return curve - terms[:, self.straight] @ self.slopes


def open_bends(
    given: Given,
    settled: Settled,
    theta: Tensor,
    coef: Tensor,
    features: FeatureMap,
) -> tuple[Settled, Tensor]:
    """A member with products that it does not have, and its parameters in one step.

    `theta` (1 + m,) are those it has. What was left out is not proven to be nothing.
    """
    lines, tangents = Lines(given.problem, coef), settled.normal.tangents
    assert isinstance(tangents, Tangents)
    group = given.problem.term_group[tangents.columns]
    straight = tangents.columns[~given.problem.group_is_curve[group]]
    turned = Turned(tangents, features, straight)
    opened = Beside(tangents, lines.products, turned.rows)
    gram = gram_of(given, opened)
    part = torch.tensor([0, 1], device=gram.device)
    part = part.repeat_interleave(
        torch.tensor([lines.width, turned.width], device=gram.device)
    )
    start = torch.cat([theta, theta.new_zeros(len(part))])
    target = gram @ start
    for rows in opened.chunks():
        target += (given.weight[rows] * given.score[rows]) @ opened.rows(rows)
    normal = replace(settled.normal, gram=gram, tangents=opened, target=target)
    return average_sizes(given, replace(settled, normal=normal), part)


def average_sizes(
    given: Given, settled: Settled, part: Tensor
) -> tuple[Settled, Tensor]:
    """What is known whatever size products have; they are the last columns.

    Those of each `part` (b,), 0 or 1, have one size.

    Every size counts by its evidence. The parameters are the mean over sizes.
    """
    normal = settled.normal
    assert normal.target is not None
    gram, aim = (x / settled.dispersion for x in (normal.gram, normal.target))
    precision = _free_lines(given, settled)[: len(gram) - len(part)]
    count = part.bincount(minlength=2).tolist()
    tried, evidence = [], []
    for sizes in product(*(SIZES if n else SIZES[:1] for n in count)):
        each = torch.cat([precision, gram.new_tensor(sizes)[part] ** -2])
        theta, log_size = solve_sized(gram, each, aim)
        tried.append(each)
        prior = sum(n * math.log(size) for n, size in zip(count, sizes, strict=True))
        evidence.append((aim @ theta - log_size) / 2 - prior)
    chance = torch.stack(evidence).softmax(0)
    likely = (chance > LEAST_SHARE).nonzero().squeeze(-1).tolist()
    share = (chance[likely] / chance[likely].sum()).tolist()
    found = []
    for k in likely:
        inverse = invert(gram, tried[k])
        prior = inverse @ (tried[k].unsqueeze(-1) * inverse)
        found.append((inverse @ aim, tried[k], inverse, prior))

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
    well as those that do not. That helps predictions and makes intervals miss: of 30
    features in 120 rows they held .74 of the effects on log-odds (40 tables), and hold
    .93 without it.
    """
    problem, columns = given.problem, settled.normal.columns
    straight = ~problem.group_is_curve[problem.term_group[columns]]
    enough = given.n_rows >= ROWS_PER_LINE * (1 + float(straight.sum()))
    at = 1 + straight.nonzero().squeeze(-1)
    known = settled.normal.gram.diagonal()[at] / settled.dispersion
    most = torch.zeros_like(known)
    if not enough:
        most = LARGEST_PRIOR * known
    elif settled.condition > MAX_CONDITION:
        most = known / MAX_CONDITION
    free = settled.precision.clone()
    free[at] = torch.minimum(free[at], most)
    return free


def find_levels(problem: Problem, terms: Tensor) -> list[int]:
    """Those of some terms that have two values in the rows."""
    block = problem.columns.read(slice(0, min(problem.n_rows, 1000)))[0]
    return [term for term in terms.tolist() if len(block[:, term].unique()) <= 2]


def line_equations(given: Given, lines: Lines) -> Normal:
    """Normal equations of terms and products.

    They are those of one step from the linear predictor that is `given`.
    """
    known = (given.eta - given.problem.offset).unsqueeze(-1)
    wide = gram_of(given, Beside(lines, lambda rows: known[rows]))
    gram, target = wide[:-1, :-1], wide[:-1, -1]
    for rows in lines.chunks():
        target += (given.weight[rows] * given.score[rows]) @ lines.rows(rows)
    return lines.normal(gram, target)
