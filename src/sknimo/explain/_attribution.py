"""Contributions that depend on the fitted function alone.

Two ways to share out `eta(x) - eta(reference)` among the features without asking how
the network holds its interactions. Both sum exactly and both start at the reference:

* *integrated gradients* (Sundararajan, Taly and Yan 2017), the gradient averaged along
  the straight line from the reference: a monomial goes to its features in proportion
  to their exponents;
* *baseline Shapley values* (Shapley 1953; Sundararajan and Najmi 2020), the average
  over all orders in which features leave the reference: equal shares.

At the reference terms and inputs are zero, so a feature is switched off by zeroing its
columns and no background data are needed.

Shapes: n rows, p features, q terms, r inputs, c coalitions.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from sknimo.explain._frames import Shown
from sknimo.explain._local import (
    as_array,
    as_tensor,
    block_tensors,
    find_roles,
    gradients,
    sum_by_owner,
)
from sknimo.model import FittedModel
from sknimo.solver import cut_rows

# Gauss-Legendre nodes are doubled up to this many until the shares sum to eta.
MAX_NODES = 256
# Evaluations of the model that are held at once.
MAX_EVALUATIONS = 2**21


@dataclass(frozen=True, slots=True, eq=False)
class Attribution(Shown):
    """Shares of each feature in `eta - base_value`."""

    values: np.ndarray  # (n, p)
    note: str  # how they were computed
    # (n, p), standard error of sampled values; None when nothing was sampled.
    error: np.ndarray | None = None


def integrated_gradients(model: FittedModel, table: np.ndarray) -> Attribution:
    """Share out eta by the gradient averaged from the reference to each row."""
    eta = model.eta(table) - model.base_value
    eps = float(torch.finfo(model.params.dtype).eps)
    goal = 1e3 * eps * (1 + np.abs(eta).max(initial=0.0))
    n_nodes, gap = 8, np.inf
    while True:
        n_nodes *= 2
        values = _average_gradient(model, table, n_nodes)
        last, gap = gap, float(np.abs(values.sum(1) - eta).max(initial=0.0))
        if gap <= goal or n_nodes >= MAX_NODES or gap > last / 2:
            note = f"integrated gradients, {n_nodes} nodes, gap {gap:.0e}"
            return Attribution(values, note)


def _average_gradient(
    model: FittedModel, table: np.ndarray, n_nodes: int
) -> np.ndarray:
    """Path integral by Gauss-Legendre quadrature, (n, p)."""
    features = model.features
    p = features.n_features
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    out = np.zeros((len(table), p))
    for rows in model.blocks(len(table)):
        terms, inputs = block_tensors(model, table[rows])
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            at = (node * inputs).detach().requires_grad_(True)
            with torch.enable_grad():
                local = model.local_term_coef(terms, at)
                (slope,) = gradients((node * terms * local).sum(), (at,))
            direct, through = as_array(terms * local), as_array(inputs * slope)
            out[rows] += weight * sum_by_owner(direct, features.term_feature, p)
            out[rows] += weight * sum_by_owner(through, features.input_feature, p)
    return out


def shapley(
    model: FittedModel,
    table: np.ndarray,
    *,
    max_exact: int = 12,
    n_permutations: int = 64,
    seed: int = 0,
) -> Attribution:
    """Baseline Shapley values against the reference.

    Features without any role get exactly zero and are left out. Up to `max_exact`
    others every coalition is evaluated; beyond, permutations are drawn in pairs of
    opposite order, which removes the error of all main and pair effects.
    """
    players = np.flatnonzero(find_roles(model).relevant)
    n_players = len(players)
    values = np.zeros((len(table), model.features.n_features))
    if n_players <= max_exact:
        values[:, players] = _by_enumeration(model, table, players)
        note = f"exact Shapley values, {2**n_players} coalitions"
        return Attribution(values, note)
    n_pairs = max(1, math.ceil(n_permutations / 2))
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(n_players) for _ in range(n_pairs)]
    mean, spread = _by_permutation(model, table, players, orders)
    values[:, players] = mean
    error = np.zeros_like(values)
    error[:, players] = spread
    note = f"sampled Shapley values, {2 * n_pairs} permutations in antithetic pairs"
    return Attribution(values, note, error)


def _by_enumeration(
    model: FittedModel, table: np.ndarray, players: np.ndarray
) -> np.ndarray:
    """Shapley values from all coalitions, (n, number of players)."""
    n_players = len(players)
    code = np.arange(2**n_players)
    member = (code[:, None] >> np.arange(n_players) & 1).astype(bool)  # (c, players)
    size = member.sum(1)
    orders = [math.comb(n_players - 1, s) for s in range(n_players)]
    weight = 1 / (n_players * np.array(orders))  # of a coalition without the player
    out = np.empty((len(table), n_players))
    for rows in cut_rows(len(table), len(code), MAX_EVALUATIONS):
        value = _coalition_eta(model, table[rows], players, member)  # (c, n)
        for j in range(n_players):
            without = code[~member[:, j]]
            gain = value[without | 1 << j] - value[without]
            out[rows, j] = weight[size[without]] @ gain
    return out


def _by_permutation(
    model: FittedModel, table: np.ndarray, players: np.ndarray, orders: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over antithetic pairs, both (n, number of players)."""
    n_players = len(players)
    total, square = np.zeros((2, len(table), n_players))
    for order in orders:
        pair = np.zeros((len(table), n_players))
        for path in (order, order[::-1]):
            rank = np.empty(n_players, dtype=int)
            rank[path] = np.arange(n_players)
            member = rank < np.arange(n_players + 1)[:, None]  # (players + 1, players)
            value = _coalition_eta(model, table, players, member)
            pair[:, path] += np.diff(value, axis=0).T / 2
        total += pair
        square += pair**2
    n_pairs = len(orders)
    mean = total / n_pairs
    variance = np.maximum(square / n_pairs - mean**2, 0) / max(n_pairs - 1, 1)
    return mean, np.sqrt(variance)


@torch.no_grad()
def _coalition_eta(
    model: FittedModel, table: np.ndarray, players: np.ndarray, member: np.ndarray
) -> np.ndarray:
    """`eta - base_value` with only some features away from the reference, (c, n)."""
    features = model.features
    present = np.zeros((len(member), features.n_features))
    present[:, players] = member
    terms, inputs = block_tensors(model, table)
    term_mask = as_tensor(model, present[:, features.term_feature])
    input_mask = as_tensor(model, present[:, features.input_feature])
    out = np.empty((len(member), len(table)))
    flat = out.reshape(-1)
    for rows in model.blocks(out.size):
        index = torch.arange(rows.start, rows.stop, device=model.device)
        coalition, row = index // len(table), index % len(table)
        some = terms[row] * term_mask[coalition]
        local = model.local_term_coef(some, inputs[row] * input_mask[coalition])
        flat[rows] = as_array((some * local).sum(1))
    return out
