"""Covariance of the coefficients of several classes, whose `eta` meet in a softmax.

What is common to all classes changes no probability, so that parameters are those of
C - 1 orthonormal contrasts of the classes. With Q (C, C - 1) these, a row has the
information `Q'(diag(p) - pp')Q`. Models of several classes come from bags, so that
lines with products tell (`_lines.py`), for all contrasts together; without a network
and a penalty it is multinomial regression. Intercepts are eliminated.

Shapes: n rows, C classes, k = C - 1 contrasts, q terms, u of them used, b products,
c coefficients.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureMap
from sknimo.inference._covariance import refuse_fit
from sknimo.inference._lines import MAX_PRODUCTS, Lines, average_sizes
from sknimo.inference._posterior import (
    Given,
    Normal,
    loose_directions,
    settle,
    tie_ridge,
)
from sknimo.inference._uncertainty import (
    MAX_TERMS,
    Uncertainty,
    by_feature,
    read_loose,
)
from sknimo.solver import Problem


def class_covariance(
    problem: Problem,
    eta: np.ndarray,
    coef: np.ndarray,
    weight: Tensor,
    features: FeatureMap,
    *,
    exact: bool,
    separated: bool,
) -> Uncertainty:
    """Covariance of coefficients `coef` (C, q) with linear predictors `eta` (n, C).

    `exact` is without a network and a penalty.
    """
    n_classes, n_terms = coef.shape
    strength = torch.as_tensor(np.abs(coef).max(0)).to(weight)
    n_used = (n_classes - 1) * (1 + int((strength != 0).sum()))
    if separated:
        return Uncertainty("separated")
    if n_classes * n_terms > MAX_TERMS:
        return Uncertainty("too many")
    if n_used > float(weight.sum()):
        return Uncertainty("p > n")
    basis = contrast_basis(n_classes).to(weight)
    known = torch.as_tensor(eta).to(weight) @ basis
    lines = Lines(problem, strength, 0 if exact else MAX_PRODUCTS // len(basis.T))
    none = torch.zeros_like(weight)
    given = Given(problem, weight, none, none + 1, none)
    loose = loose_directions(problem, weight, strength.unsqueeze(0))
    if exact:
        given = replace(given, ridge=tie_ridge(given, loose))
    normal = class_equations(given, lines, basis, known)
    settled = settle(given, normal, 1.0)
    if reason := refuse_fit(given, [settled], settled.n_effective):
        return Uncertainty(reason)
    assert normal.target is not None
    theta, inverse = settled.inverse @ normal.target, settled.inverse
    if not exact:
        part = torch.zeros(len(settled.inverse) - 1 - len(normal.columns)).long()
        settled, theta = average_sizes(given, settled, part)
        assert settled.spread is not None
        inverse = settled.inverse + settled.spread
    at = slice(1, 1 + len(normal.columns))
    found = Uncertainty(
        n_effective=settled.n_effective,
        n_rows=float(weight.sum()),
        dispersion=1.0,
        estimated=False,
        method="exact" if exact else "lines",
        loose=read_loose(features, loose),
    )
    return _spread_out(
        found, features, basis, lines.columns, theta[at], inverse[at, at]
    )


def contrast_basis(n_classes: int) -> Tensor:
    """Orthonormal contrasts, (C, C - 1)."""
    centred = torch.eye(n_classes, dtype=torch.float64) - 1 / n_classes
    return torch.linalg.qr(centred)[0][:, : n_classes - 1]


def class_equations(given: Given, lines: Lines, basis: Tensor, known: Tensor) -> Normal:
    """Normal equations of one step from `known` (n, k), of all contrasts together.

    In the order of terms by contrast and products by contrast, after a silent one.
    """
    problem, weight, k = given.problem, given.weight, basis.shape[1]
    width = 1 + len(lines.columns) + lines.width
    gram = weight.new_zeros(k, width, k, width)
    target = weight.new_zeros(k, width)
    for rows in lines.chunks():
        block, own = lines.rows(rows), weight[rows]
        chance = (known[rows] @ basis.mT).softmax(1)
        middle = chance @ basis
        share = torch.einsum("nc,ca,cb->nab", chance, basis, basis)
        share -= middle.unsqueeze(2) * middle.unsqueeze(1)
        score = basis[problem.y[rows].long()] - middle
        aim = torch.einsum("nab,nb->na", share, known[rows]) + score
        target += (aim * own.unsqueeze(1)).mT @ block
        for a in range(k):
            for b in range(k):
                weighed = block * (own * share[:, a, b]).unsqueeze(1)
                gram[a, :, b] += weighed.mT @ block
    u = len(lines.columns)
    place = torch.arange(k * width, device=weight.device).reshape(k, width)
    level = place[:, 0]
    order = torch.cat([place[:, 1 : 1 + u].ravel(), place[:, 1 + u :].ravel()])
    gram, target = gram.reshape(k * width, -1), target.ravel()
    # Intercepts have no prior, and nobody asks for them.
    pull = torch.linalg.solve(gram[level][:, level], gram[level][:, order])
    size = 1 + len(order)
    small, aimed = gram.new_zeros(size, size), gram.new_zeros(size)
    small[0, 0] = 1.0
    small[1:, 1:] = gram[order][:, order] - gram[order][:, level] @ pull
    aimed[1:] = target[order] - pull.mT @ target[level]
    return lines.normal(small, aimed, k)


def _spread_out(
    found: Uncertainty,
    features: FeatureMap,
    basis: Tensor,
    columns: Tensor,
    theta: Tensor,
    covariance: Tensor,
) -> Uncertainty:
    """Contrasts as classes, used terms as all, and terms as coefficients."""
    n_classes, k = basis.shape
    q, u = len(features.term_feature), len(columns)
    place = np.zeros((k, u, n_classes, q))
    place[:, np.arange(u), :, columns.cpu().numpy()] = basis.mT.cpu().numpy()
    wide = place.reshape(k * u, n_classes * q)
    terms = wide.T @ covariance.cpu().numpy() @ wide
    centre = (theta.cpu().numpy() @ wide).reshape(n_classes, q)
    read = np.zeros((q, 1 + len(features.coef_feature)))
    read[:, 1:] = features.coefficients(np.eye(q))
    each = np.kron(np.eye(n_classes), read)
    return replace(
        found,
        centre=(centre @ read).ravel(),
        nonrobust=each.T @ terms @ each,
        terms=by_feature(terms, features, n_classes),
        term_centre=centre.ravel(),
    )
