"""The fitted function and its derivatives, row by row.

Everything here goes through `FittedModel.local_term_coef` and its derivatives, in
blocks of rows and never row by row. Three quantities, never mixed:

* the *local coefficient*, what the coefficient of feature j has become in this row,
  with whatever the other features do to it. Slope at the reference of a numeric
  feature, contrast with the baseline of a category;
* the *contribution*, terms times their local coefficients; contributions and the base
  value sum to eta. That of a straight line is `(x_j - reference_j)` times its local
  coefficient;
* the *local effect*, what a change of feature j does to eta with all else as it is in
  this row, and so also carries how feature j bends the coefficients of the others.
  The derivative `d eta / d x_j` of a numeric feature, a contrast for a category.

Codes of levels are names: nothing here differentiates or interpolates them.

Shapes: M members, n rows, p features, q terms, r network inputs, c coefficients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.explain._bends import bent_rows, bent_second, bent_term_coef, is_large
from sknimo.explain._kinds import eta_at, is_category, n_levels
from sknimo.families import Family
from sknimo.model import FittedModel

# Second derivatives and directed interactions are averaged over at most this many rows.
MAX_ROWS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Switch:
    """Linear predictor (n,) before and after a feature changes from value to value.

    All else is as in each row. `distance` is that between the two values, one for
    levels.
    """

    feature: int
    before: np.ndarray
    after: np.ndarray
    distance: float = 1.0

    @property
    def contrast(self) -> np.ndarray:
        """Change of the linear predictor per unit, (n,)."""
        return (self.after - self.before) / self.distance


@dataclass(frozen=True, slots=True, eq=False)
class LocalValues:
    """What the model does at each row, each (n, p), in the words of `Explanation`.

    The size is that of each feature's local coefficients as the network has them. The
    switches are those behind the local effects of categories.
    """

    contributions: np.ndarray
    local_coef: np.ndarray
    local_effect: np.ndarray
    size: np.ndarray
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """What each feature does in the model, read off its exact zeros."""

    acts: np.ndarray  # (p,), bool, some member has a coefficient for the feature
    # (p,), bool, the network reads the feature to bend the coefficient of another one.
    modifies: np.ndarray

    @property
    def relevant(self) -> np.ndarray:
        """Features that can change a prediction at all, (p,)."""
        return self.acts | self.modifies

    @property
    def labels(self) -> tuple[str, ...]:
        """One of "effect", "modifier", "both" and "neither" per feature."""
        words = ("neither", "effect", "modifier", "both")
        return tuple(words[at] for at in self.acts + 2 * self.modifies)


def sum_by_owner(columns: np.ndarray, owner: np.ndarray, n_owners: int) -> np.ndarray:
    """Sum the columns of each owner, (..., q) to (..., n_owners)."""
    if np.array_equal(owner, np.arange(n_owners)):
        return np.array(columns)
    total = np.zeros((*columns.shape[:-1], n_owners))
    for column, feature in enumerate(owner):
        total[..., feature] += columns[..., column]
    return total


def split_members(model: FittedModel) -> Iterator[FittedModel]:
    """Each member as a model of its own."""
    for m in range(model.n_members):
        yield model.take(slice(m, m + 1))


def find_roles(model: FittedModel) -> Roles:
    """Read the roles off the zeros of coefficients, first layer and modulation."""
    p = model.features.n_features
    owner = model.features.term_feature
    acts, modifies = np.zeros(p, dtype=bool), np.zeros(p, dtype=bool)
    for member in split_members(model):
        own = sum_by_owner(as_array(member.coef[0] != 0) * 1.0, owner, p) > 0
        bent = as_array(member.modulated[0]) & own
        # A feature cannot bend itself: it needs another one that is bent.
        others = bent.sum() - bent > 0
        acts |= own
        modifies |= (member.input_norms > 0) & others
    return Roles(acts, modifies)


def spread_rows(
    n_rows: int, max_rows: int | None, weight: np.ndarray | None = None
) -> np.ndarray:
    """Indices of at most `max_rows` rows, evenly spaced among those of any weight."""
    if max_rows is None or n_rows <= max_rows:
        return np.arange(n_rows)
    there = np.arange(n_rows) if weight is None else np.flatnonzero(weight)
    if len(there) <= max_rows:
        return there
    return there[np.linspace(0, len(there) - 1, max_rows).round().astype(int)]


def check_weight(weight: np.ndarray | None, n_rows: int) -> np.ndarray:
    """Row weights that sum to one, equal ones when none are given."""
    weight = np.ones(n_rows) if weight is None else np.asarray(weight, dtype=float)
    return weight / weight.sum()


def fill_offset(offset: np.ndarray | None, n_rows: int) -> np.ndarray:
    """Offset of every row, zero when none is given, (n,)."""
    return np.zeros(n_rows) if offset is None else offset


def thin_rows(
    table: np.ndarray, weight: np.ndarray | None, max_rows: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """At most `max_rows` rows of a table, with weights that sum to one."""
    kept = spread_rows(len(table), max_rows, weight)
    weight = check_weight(weight, len(table))[kept]
    return table[kept], weight / weight.sum()


def weighted_quantiles(
    values: np.ndarray, weight: np.ndarray, probability: Sequence[float]
) -> np.ndarray:
    """Quantiles of the known values; integer weights equal repetition.

    Examples
    --------
    >>> weighted_quantiles(np.array([3.0, np.nan, 1.0]), np.ones(3), [0.25, 0.5])
    array([1., 2.])
    """
    known = ~np.isnan(values) & (weight > 0)
    if not known.any():
        return np.full(len(probability), np.nan)
    order = np.argsort(values[known], kind="stable")
    ranked, total = values[known][order], np.cumsum(weight[known][order])
    goal = np.array(probability) * total[-1]
    low = np.searchsorted(total, goal * (1 - 1e-12))
    high = np.searchsorted(total, goal * (1 + 1e-12))
    last = len(ranked) - 1
    return (ranked[np.minimum(low, last)] + ranked[np.minimum(high, last)]) / 2


def block_tensors(model: FittedModel, table: np.ndarray) -> tuple[Tensor, Tensor]:
    """Terms (n, q) and differentiable network inputs (n, r) of a block of rows."""
    terms = as_tensor(model, model.features.terms(table))
    inputs = as_tensor(model, model.features.inputs(table))
    return terms, inputs.requires_grad_(True)


def as_tensor(model: FittedModel, values: np.ndarray) -> Tensor:
    """A copy of numbers on the model's device."""
    return torch.as_tensor(np.array(values)).to(model.device)


def as_array(values: Tensor) -> np.ndarray:
    """Numbers from whatever device."""
    return values.detach().cpu().numpy()


def gradients(
    value: Tensor, leaves: tuple[Tensor, ...], **options: Any
) -> tuple[Tensor, ...]:
    """Derivatives of a sum over rows, zero where nothing depends on a leaf."""
    if not value.requires_grad:
        return tuple(map(torch.zeros_like, leaves))
    return torch.autograd.grad(value, leaves, materialize_grads=True, **options)


def local_values(
    model: FittedModel, table: np.ndarray, swap: np.ndarray | None = None
) -> LocalValues:
    """Contributions, local coefficients and local effects of every row.

    `swap` (q, q), antisymmetric, moves the bilinear term `swap[t, u] phi_t phi_u` from
    the channel of term t to that of term u; the function stays the same.
    """
    features = model.features
    n_rows, p = len(table), features.n_features
    owner = features.term_feature
    contributions, local_coef, local_effect, size = np.empty((4, n_rows, p))
    for rows in model.blocks(n_rows):
        terms, own, local_effect[rows] = _block_slopes(model, table[rows])
        size[rows] = np.sqrt(sum_by_owner(own**2, owner, p))
        if swap is not None:
            own = own - terms @ swap.T
        # Adding zero turns -0.0 into 0.0, which prints as what it is.
        contributions[rows] = sum_by_owner(terms * own, owner, p) + 0.0
        local_coef[rows] = features.feature_coef(own)
    category = is_category(features)
    for j in np.flatnonzero(category).tolist():
        if n_levels(features, j) > 2:  # the row's own level: all that it contributes
            local_coef[:, j] = contributions[:, j]
    switches = category_switches(model, table)
    for found in switches:
        local_effect[:, found.feature] = found.contrast
    local_effect[np.isnan(table) & ~category] = np.nan
    return LocalValues(contributions, local_coef, local_effect, size, switches)


def local_slopes(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """Derivative of eta in every numeric feature, (n, p).

    Zero for categories and where a value is missing.
    """
    out = np.empty(table.shape)
    for rows in model.blocks(len(table)):
        *_, out[rows] = _block_slopes(model, table[rows])
    return out


def _block_slopes(
    model: FittedModel, block: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Terms and their local coefficients (n, q), derivative of eta (n, p)."""
    if is_large(model):
        return bent_rows(model, block)
    features = model.features
    p = features.n_features
    terms, inputs = block_tensors(model, block)
    with torch.enable_grad():
        local = model.local_term_coef(terms, inputs)
        (slope,) = gradients((terms * local).sum(), (inputs,))
    own = as_array(local)
    direct = own * features.term_slopes(block)
    through = as_array(slope) * features.input_slopes(block)
    slopes = sum_by_owner(direct, features.term_feature, p)
    slopes += sum_by_owner(through, features.input_feature, p)
    return as_array(terms), own, slopes


def category_switches(model: FittedModel, table: np.ndarray) -> tuple[Switch, ...]:
    """What the local effect of each category with a role compares.

    Two levels: the baseline and the other one. More: the baseline and the row's own.
    """
    features = model.features
    wanted = np.flatnonzero(is_category(features) & find_roles(model).relevant)
    if len(wanted) == 0:
        return ()
    eta = model.eta(table)
    found = []
    for j in wanted.tolist():
        baseline = float(features.reference[j])
        before = after = eta_at(model, table, j, baseline, eta)
        if n_levels(features, j) == 2:
            after = eta_at(model, table, j, 1 - baseline, eta)
        elif n_levels(features, j) > 2:
            after = eta
        found.append(Switch(j, before, after))
    return tuple(found)


@torch.no_grad()
def local_term_coef(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """Local coefficient of each term as the network has it, (n, q)."""
    out = np.empty((len(table), len(model.features.term_feature)))
    large = is_large(model)
    for rows in model.blocks(len(table)):
        if large:
            out[rows] = bent_term_coef(model, table[rows])
        else:
            terms, inputs = block_tensors(model, table[rows])
            out[rows] = as_array(model.local_term_coef(terms, inputs))
    return out


def adjusted_term_coef(
    model: FittedModel, table: np.ndarray, swap: np.ndarray | None
) -> np.ndarray:
    """Local coefficient of each term in the gauge `swap`, (n, q)."""
    local = local_term_coef(model, table)
    return local if swap is None else local - model.features.terms(table) @ swap.T


def local_coefficients(
    model: FittedModel, table: np.ndarray, swap: np.ndarray | None = None
) -> np.ndarray:
    """Every coefficient that a reader can quote, in every row, (n, c).

    In the order of `FeatureMap.coef_names`: slopes at the reference, contrasts of all
    levels with the baseline, of missing with the reference.
    """
    return model.features.coefficients(adjusted_term_coef(model, table, swap))


def local_jacobian(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """How each numeric feature bends each term's coefficient, d s_t / d x_k, (n, q, p).

    Products of the Jacobian with a direction, one per numeric feature with a role and
    for all terms and rows of a block: the derivative, in the weights of a weighted sum
    of the coefficients, of its derivative along the direction.
    """
    features = model.features
    owner = features.input_feature
    wanted = np.flatnonzero(find_roles(model).relevant & ~is_category(features))
    out = np.zeros((len(table), len(features.term_feature), features.n_features))
    for rows in model.blocks(len(table)):
        terms, inputs = block_tensors(model, table[rows])
        slopes = as_tensor(model, features.input_slopes(table[rows]))
        with torch.enable_grad():
            local = model.local_term_coef(terms, inputs)
            weights = torch.ones_like(terms, requires_grad=True)
            (slope,) = gradients((weights * local).sum(), (inputs,), create_graph=True)
            for k in wanted.tolist():
                along = (slope * slopes)[:, owner == k].sum()
                (change,) = gradients(along, (weights,), retain_graph=True)
                out[rows, :, k] = as_array(change)
    return out


def mixed_derivatives(
    model: FittedModel, table: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Mean of `|d2 eta / dx_j dx_k|` over weighted rows, zero diagonal, (p, p).

    Zero where one of the two is a category. Hessian-vector products: one double
    backward pass per feature that matters, each for all rows of a block at once. Only
    mixed derivatives are wanted: the curvature of a feature's own basis never enters.
    """
    features = model.features
    p = features.n_features
    owner, input_owner = features.term_feature, features.input_feature
    relevant = np.flatnonzero(find_roles(model).relevant & ~is_category(features))
    total = np.zeros((p, p))
    large = is_large(model)
    for rows in model.blocks(len(table)):
        block = table[rows]
        if large:
            second = np.abs(bent_second(model, block))
            total += np.tensordot(weight[rows], second, 1)
            continue
        terms, inputs = block_tensors(model, block)
        terms.requires_grad_(True)
        term_slopes = as_tensor(model, features.term_slopes(block))
        input_slopes = as_tensor(model, features.input_slopes(block))
        with torch.enable_grad():
            eta = (terms * model.local_term_coef(terms, inputs)).sum()
            slope = gradients(eta, (terms, inputs), create_graph=True)
            for k in relevant:
                along = (slope[0] * term_slopes)[:, owner == k].sum()
                along = along + (slope[1] * input_slopes)[:, input_owner == k].sum()
                second = gradients(along, (terms, inputs), retain_graph=True)
                row = sum_by_owner(as_array(second[0] * term_slopes), owner, p)
                through = as_array(second[1] * input_slopes)
                row += sum_by_owner(through, input_owner, p)
                total[k] += weight[rows] @ np.abs(row)
    np.fill_diagonal(total, 0.0)
    return (total + total.T) / 2


def mean_slope(family: Family, eta: np.ndarray) -> np.ndarray:
    """Derivative of the mean response in eta, same shape."""
    leaf = torch.as_tensor(np.array(eta, dtype=np.float64)).requires_grad_(True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(family.mean(leaf).sum(), leaf)
    return slope.numpy()


def mean_of(family: Family, eta: np.ndarray) -> np.ndarray:
    """Mean response at a linear predictor, same shape."""
    return family.mean(torch.as_tensor(np.array(eta, dtype=np.float64))).numpy()


def response_effects(
    family: Family,
    local_effect: np.ndarray,
    switches: tuple[Switch, ...],
    eta: np.ndarray,
    offset: np.ndarray | None,
) -> np.ndarray:
    """Local effects on the mean response, (n, p).

    Slopes by the chain rule, contrasts by evaluating both ends: the mean between two
    levels is no straight line. `eta` includes the offset.
    """
    out = mean_slope(family, eta)[:, None] * local_effect
    offset = fill_offset(offset, len(eta))
    for found in switches:
        after = mean_of(family, found.after + offset)
        before = mean_of(family, found.before + offset)
        out[:, found.feature] = (after - before) / found.distance
    return out


def exp_or_inf(values: np.ndarray) -> np.ndarray:
    """Exponential; a ratio too large for a float is infinite, without a warning."""
    with np.errstate(over="ignore"):
        return np.exp(values)
