"""Whether any bend can be seen in what an additive model leaves, before one is trained.

Features are cut into few parts of equally many rows. If two of them act together, the
scores of the likelihood of rows that were held out differ between the cells of their
parts: sums of all cells of all pairs are the entries of one matrix product. Three that
act together without any two of them are looked for in halves. Where none of that
stands out among as many tests, a network would find nothing either, and need not be
trained to see it.

Shapes: n rows, p features, c parts of all features.
"""

import numpy as np
import torch
from torch import Tensor

from sknimo.network import NetworkSpec
from sknimo.search._verdict import HeldOut, mean_by_row
from sknimo.solver import Problem

# Parts of a feature, coarse and fine: few cells show a plane, many a wave.
PARTS = (3, 6)
# Beyond so many features all triples take as long as a network.
MOST_FEATURES = 100
ROWS = 2**12  # of a block, whose cells are doubles
SWEEPS = 5


def find_bends(problem: Problem, held_out: HeldOut, level: float) -> bool:
    """Whether two or three features act together, but for a chance of `level`.

    `held_out` are predictions of additive models. True also where it is not known.
    """
    p = problem.spec.n_features
    if not 2 <= p <= MOST_FEATURES:
        return p > 1
    eta = torch.as_tensor(mean_by_row(held_out.rows, held_out.glm, problem.n_rows))
    rows = (~eta.isnan()).nonzero().squeeze(1).to(problem.device)
    y, at = problem.y[rows], eta.to(problem.y)[rows]
    weight = torch.as_tensor(np.bincount(held_out.rows, held_out.weight))
    weight = weight.to(problem.y)[rows]
    score = weight * problem.family.score(y, at)
    size = weight * problem.family.curvature(y, at).clamp(min=0)
    # In units in which scores vary as much as curvatures say, whatever the noise.
    score = score * (size.sum() / score.square().sum().clamp(min=1e-300)).sqrt()
    places = _place(problem.spec, problem.inputs, rows)
    chances = [_pairs(_cut(places, parts), score, size) for parts in PARTS]
    chances.append(_triples(_cut(places, 2), score, size))
    found = [least * count for least, count in chances]
    return min(found) * len(found) < level


def _place(spec: NetworkSpec, inputs: Tensor, rows: Tensor) -> Tensor:
    """A number that rises with a feature, or tells its levels apart, (n, p)."""
    owner = torch.tensor(spec.input_feature, device=inputs.device)
    column = torch.arange(len(owner), device=inputs.device)
    spread = inputs.new_zeros(len(owner), spec.n_features)
    spread[column, owner] = (1 + column / len(owner)).to(inputs)
    return torch.cat([inputs[some] @ spread for some in rows.split(ROWS)])


def _cut(places: Tensor, n_parts: int) -> Tensor:
    """The part of every row, (n, p), bytes: by ranks, alike where values are."""
    parts = torch.empty_like(places, dtype=torch.uint8)
    for values, part in zip(places.T.contiguous(), parts.T, strict=True):
        ranked = values.sort().values
        below, above = (
            torch.searchsorted(ranked, values, right=right) for right in (False, True)
        )
        middle = below + above  # twice the mean rank of the value
        part.copy_(middle * n_parts // (2 * len(places)))
    return parts


def _pairs(parts: Tensor, score: Tensor, size: Tensor) -> tuple[float, int]:
    """The least chance of any pair without a common effect, and how many there are."""
    n_parts, p = int(parts.max()) + 1, parts.shape[1]
    owner = torch.arange(p, device=parts.device).repeat_interleave(n_parts)
    total = score.new_zeros(2, n_parts * p, n_parts * p)
    blocks = zip(parts.split(ROWS), score.split(ROWS), size.split(ROWS), strict=True)
    for part, rise, weight in blocks:
        cells = torch.nn.functional.one_hot(part.long(), n_parts).flatten(1).to(score)
        total[0] += cells.T @ (cells * rise.unsqueeze(1))
        total[1] += cells.T @ (cells * weight.unsqueeze(1))
    rise, weight = total
    blocks_of = torch.nn.functional.one_hot(owner, p).to(score)  # (c, p)
    # Take out what the features do by themselves, which curves have left of it.
    margin = (weight @ blocks_of).clamp(min=1e-300)
    for _ in range(SWEEPS):
        rise = rise - weight * ((rise @ blocks_of) / margin)[:, owner]
        rise = rise - weight * ((rise.T @ blocks_of) / margin)[:, owner].T
    there = weight > 0
    square = torch.where(there, rise.square() / weight.clamp(min=1e-300), 0.0)
    stat = blocks_of.T @ square @ blocks_of  # (p, p)
    used = (there.diagonal().to(score) @ blocks_of).unsqueeze(0)
    free = blocks_of.T @ there.to(score) @ blocks_of - used - used.T + 1
    each = torch.triu(free > 0, 1)
    if not bool(each.any()):
        return 1.0, 1
    chance = torch.special.gammaincc(free[each] / 2, stat[each] / 2)
    return float(chance.min()), len(chance)


def _triples(halves: Tensor, score: Tensor, size: Tensor) -> tuple[float, int]:
    """The same of any three features, by the product of the signs of their halves."""
    p = halves.shape[1]
    sums = score.new_zeros(p, p, p)
    for half, rise in zip(halves.split(ROWS), score.split(ROWS), strict=True):
        signs = 2 * half.to(score) - 1
        for j in range(p - 2):
            later = signs[:, j + 1 :]
            own = later * (rise * signs[:, j]).unsqueeze(1)
            sums[j, j + 1 :, j + 1 :] += later.T @ own
    most = float(sums.triu(1).abs().max())
    z = most / float(size.sum().clamp(min=1e-300).sqrt())
    chance = float(torch.erfc(torch.tensor(z / 2**0.5)))
    return chance, max(1, p * (p - 1) * (p - 2) // 6)
