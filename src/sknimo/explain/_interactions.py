"""Who bends whom: directed and symmetric interactions.

Both are in units of the linear predictor, per standard deviation of both features. A
numeric feature moves along its derivative, times its standard deviation. A category is
switched between its levels, and what counts is the standard deviation of the outcome
when levels are drawn by their shares of the rows; between two levels that is the
contrast times the standard deviation of the indicator. A feature that may be missing
moves in both ways, and the two add in squares.

Shapes: n rows, p features, q terms, l states of a feature.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, Literal, get_args

import numpy as np

from sknimo.exceptions import check_option
from sknimo.explain._bends import bent_jacobian, is_large, own_terms
from sknimo.explain._frames import Origin, Shown, cut, make_frame, pad
from sknimo.explain._kinds import States, find_states, switch, usual_scale
from sknimo.explain._levels import affordable_rows
from sknimo.explain._local import (
    MAX_ROWS,
    Roles,
    adjusted_term_coef,
    find_roles,
    local_jacobian,
    local_slopes,
    mixed_derivatives,
    spread_rows,
    sum_by_owner,
    thin_rows,
)
from sknimo.model import FittedModel
from sknimo.solver import cut_rows

Kind = Literal["directed", "strength"]

# Cells of a Jacobian (rows x terms x features) that are held at once.
MAX_CELLS = 2**22
# Evaluations that all pairs of switched features together may cost.
PAIR_EVALUATIONS = 100_000
MIN_PAIR_ROWS = 10
# The same for a large model, whose evaluations cost far more.
LARGE_PAIR_EVALUATIONS = 10_000
MIN_LARGE_PAIR_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Interactions(Shown):
    """How strongly features act on each other's effects, in standard deviations.

    Attributes
    ----------
    directed : ndarray of shape (p, p)
        Row j, column k: how much one standard deviation more of feature k bends the
        coefficient of feature j (itself per standard deviation), on average over rows.
        Several coefficients count by the standard deviation of what they add up to.
        Exact products are shared equally (minimum-energy gauge).
    strength : ndarray of shape (p, p)
        Mean `|d2 eta / dx_j dx_k|` per standard deviations of both, or the same with
        contrasts; symmetric, zero on the diagonal. It depends on the fitted function
        alone.
    names : tuple of str
    roles : Roles
    n_rows : int
        Rows averaged over.
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> est.interactions(data.X).directed.shape
    (5, 5)
    """

    directed: np.ndarray
    strength: np.ndarray
    names: tuple[str, ...]
    roles: Roles
    n_rows: int
    origin: Origin

    def strongest(self, n_pairs: int = 5) -> list[tuple[str, str]]:
        """The pairs that interact most, by `strength`, strongest first."""
        pairs = self.strongest_pairs(n_pairs)
        return [(self.names[j], self.names[k]) for j, k in pairs]

    def strongest_pairs(self, n_pairs: int = 5) -> list[tuple[int, int]]:
        """The same by position."""
        rows, columns = np.triu_indices(len(self.names), 1)
        size = self.strength[rows, columns]
        order = np.argsort(-size, kind="stable")[:n_pairs]
        return [(int(rows[at]), int(columns[at])) for at in order if size[at] > 0]

    def to_frame(self, kind: Kind = "directed") -> Any:
        """The p by p table as a data frame, one row per bent feature.

        Parameters
        ----------
        kind : {"directed", "strength"}, default="directed"
        """
        check_option("kind", kind, get_args(Kind))
        table = getattr(self, kind)
        columns: dict[str, Any] = {"feature": list(self.names)}
        columns |= {name: table[:, k] for k, name in enumerate(self.names)}
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = [f"Interactions of {len(self.names)} features over {self.n_rows} rows"]
        pairs = self.strongest_pairs()
        if not pairs:
            return f"{lines[0]}\n  none"
        lines.append(f"{'pair':44}{'strength':>11}{'1st bent':>11}{'2nd bent':>11}")
        for j, k in pairs:
            pair = f"{cut(self.names[j], 20)} x {cut(self.names[k], 20)}"
            lines.append(
                f"{pad(pair, 44)}{self.strength[j, k]:11.3g}"
                f"{self.directed[j, k]:11.3g}{self.directed[k, j]:11.3g}"
            )
        return "\n".join(lines)


def bending(
    model: FittedModel, table: np.ndarray, weight: np.ndarray, swap: np.ndarray | None
) -> np.ndarray:
    """How much each feature bends the coefficients of each other one, (p, p)."""
    if not find_roles(model).modifies.any():
        return np.zeros((model.features.n_features,) * 2)
    spread = term_spread(model, table, weight)
    along = _bend_many_terms if is_large(model) else _bend_along_slopes
    smooth = along(model, table, weight, swap, spread)
    smooth *= usual_scale(model.features, table)
    switched = _bend_by_switching(model, table, weight, swap, spread)
    return _beyond_rounding(np.hypot(smooth, switched))


def _beyond_rounding(pairs: np.ndarray) -> np.ndarray:
    """What is left where two numbers cancel is rounding, not an interaction, (p, p)."""
    np.fill_diagonal(pairs, 0.0)
    return np.where(pairs > 1e-12 * pairs.max(initial=0.0), pairs, 0.0)


def term_spread(
    model: FittedModel, table: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Matrix F with `|s F|` the standard deviation of `phi . s`, by feature, (q, q).

    A single term is standardised, one standard deviation of the feature is one unit of
    it. Several terms vary together, and their covariance over the rows counts.
    """
    features = model.features
    owner, terms = features.term_feature, features.terms(table)
    out = np.eye(len(owner))
    for j in range(features.n_features):
        own = np.flatnonzero(owner == j)
        if len(own) > 1:
            centred = terms[:, own] - weight @ terms[:, own]
            size, turn = np.linalg.eigh((centred * weight[:, None]).T @ centred)
            out[np.ix_(own, own)] = turn * np.sqrt(np.maximum(size, 0.0))
    return out


def _bend_along_slopes(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    swap: np.ndarray | None,
    spread: np.ndarray,
) -> np.ndarray:
    """Bending by one unit of each numeric feature, along its derivative, (p, p)."""
    features = model.features
    owner, p = features.term_feature, features.n_features
    total = np.zeros((p, p))
    for rows in cut_rows(len(table), len(owner) * p, MAX_CELLS):
        block = table[rows]
        change = local_jacobian(model, block)  # (n, q, p)
        if swap is not None:
            # Column by column: all products at once would take n q q numbers.
            moved = np.zeros((p, *change.shape[:2]))
            for term, slope in enumerate(features.term_slopes(block).T):
                moved[owner[term]] += slope[:, None] * swap[:, term]
            change = change - np.moveaxis(moved, 0, 2)
        size = _size_by_feature(np.moveaxis(change, 1, 2) @ spread, owner, p)
        total += np.einsum("n,nkj->jk", weight[rows], size)
    return total


def _bend_many_terms(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    swap: np.ndarray | None,
    spread: np.ndarray,
) -> np.ndarray:
    """The same for a large model: modulations first, terms of one pair at a time."""
    features, own = model.features, own_terms(model)
    p = features.n_features
    coef = model.coef.double().cpu().numpy() / model.n_members
    total = np.zeros((p, p))
    for rows in cut_rows(len(table), model.n_members * p * p, MAX_CELLS):
        bends = bent_jacobian(model, table[rows])  # (n, M, p, p)
        slopes = features.term_slopes(table[rows])
        for j, k in permutations(range(p), 2):
            turn = spread[own[j], own[j]]
            change = bends[:, :, j, k] @ (coef[:, own[j]] @ turn)  # (n, terms of j)
            if swap is not None:
                change -= slopes[:, own[k]] @ (swap[own[j], own[k]].T @ turn)
            total[j, k] += weight[rows] @ np.sqrt((change**2).sum(1))
    return total


def _bend_by_switching(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    swap: np.ndarray | None,
    spread: np.ndarray,
) -> np.ndarray:
    """Bending by features that are switched between states, (p, p)."""
    features = model.features
    owner, p = features.term_feature, features.n_features
    out = np.zeros((p, p))
    for k, states in _switchable(model, table, weight).items():

        def coefficients(value: float, k: int = k) -> np.ndarray:
            local = adjusted_term_coef(model, switch(table, k, value), swap)
            return local @ spread

        deviation = _spread_over(states, coefficients)
        out[:, k] = weight @ _size_by_feature(deviation, owner, p)
    return out


def _switchable(
    model: FittedModel, table: np.ndarray, weight: np.ndarray
) -> dict[int, States]:
    """States of the features with a role that the rows have in more than one."""
    return {
        k: states
        for k in np.flatnonzero(find_roles(model).relevant).tolist()
        if (states := find_states(model.features, k, table[:, k], weight)) is not None
    }


def _size_by_feature(columns: np.ndarray, owner: np.ndarray, p: int) -> np.ndarray:
    """Root sum of squares of the columns of each feature, (..., q) to (..., p)."""
    if np.array_equal(owner, np.arange(p)):
        return np.abs(columns)
    return np.sqrt(sum_by_owner(columns**2, owner, p))


def _spread_over(states: States, evaluate: Callable[[float], np.ndarray]) -> np.ndarray:
    """Standard deviation over the states of whatever is evaluated at each."""
    share = states.share
    # Distances from the most frequent state: constants cancel before they are squared.
    first = int(share.argmax())
    base = evaluate(float(states.values[first]))
    mean, square = np.zeros_like(base), np.zeros_like(base)
    for at, value in enumerate(states.values.tolist()):
        if at != first:
            distance = evaluate(value) - base
            mean += share[at] * distance
            square += share[at] * distance**2
    return np.sqrt(np.maximum(square - mean**2, 0.0))


def interaction_strength(
    model: FittedModel, table: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Mean size of what two features do together, symmetric, (p, p)."""
    if not find_roles(model).modifies.any():
        return np.zeros((model.features.n_features,) * 2)
    scale, p = usual_scale(model.features, table), model.features.n_features
    smooth = mixed_derivatives(model, table, weight) * np.outer(scale, scale)
    found = _switchable(model, table, weight)
    half = np.zeros((p, p))
    for k, states in found.items():

        def slopes(value: float, k: int = k) -> np.ndarray:
            return local_slopes(model, switch(table, k, value)) * scale

        half[:, k] = weight @ _spread_over(states, slopes)
    both = _switch_pairs(model, table, weight, found)
    return _beyond_rounding(np.sqrt(smooth**2 + (half**2 + half.T**2) + both**2))


def _switch_pairs(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray,
    found: Mapping[int, States],
) -> np.ndarray:
    """Strength of pairs that are both switched, (p, p).

    The standard deviation, over levels of both drawn independently, of what is left of
    eta after the two main effects. It costs an evaluation of every row per pair of
    levels, so long tables are thinned.
    """
    pairs = list(combinations(found, 2))
    most, least = PAIR_EVALUATIONS, MIN_PAIR_ROWS
    if is_large(model):
        most, least = LARGE_PAIR_EVALUATIONS, MIN_LARGE_PAIR_ROWS
    out = np.zeros((table.shape[1],) * 2)
    for j, k in pairs:
        first, second = found[j], found[k]
        shape = (len(first), len(second))
        budget = most // (len(pairs) * shape[0] * shape[1])
        kept = spread_rows(len(table), max(budget, least), weight)
        rows, row_weight = table[kept], weight[kept] / weight[kept].sum()
        eta = np.empty((*shape, len(rows)))
        for a, value in enumerate(first.values.tolist()):
            # At once: a large model spends more on a call than on a few rows.
            moved = np.tile(switch(rows, j, value), (shape[1], 1))
            moved[:, k] = np.repeat(second.values, len(rows))
            eta[a] = model.eta(moved).reshape(eta.shape[1:])
        eta -= np.tensordot(first.share, eta, 1)
        eta -= np.tensordot(second.share, eta, (0, 1))[:, None]
        square = np.einsum("a,b,abn->n", first.share, second.share, eta**2)
        out[j, k] = out[k, j] = row_weight @ np.sqrt(square)
    return out


def interactions(
    model: FittedModel,
    table: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    swap: np.ndarray | None = None,
    directed: np.ndarray | None = None,
    max_rows: int | None = MAX_ROWS,
    origin: Origin | None = None,
) -> Interactions:
    """Average directed and symmetric interactions over at most `max_rows` rows.

    Over fewer where a large model has many levels, unless all are asked for (None).
    `directed` is computed unless given.
    """
    table, weight = thin_rows(table, weight, affordable_rows(model, max_rows))
    if directed is None:
        directed = bending(model, table, weight, swap)
    return Interactions(
        directed=directed,
        strength=interaction_strength(model, table, weight),
        names=model.features.names,
        roles=find_roles(model),
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )
