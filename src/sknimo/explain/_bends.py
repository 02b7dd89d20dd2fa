"""Large models: the same derivatives by way of the first layer.

Rows reach a network through its first layer alone. With `v_j` the derivative of `g_j`
in its units and `u_k` what a unit of feature k adds to them,

    d g_j / d x_k = v_j . u_k    for every other feature k.

One backward pass through the layers above gives all `v_j` of a member, however many
terms and inputs a feature has. What terms add is summed by feature and member before
anything else. The numbers are those of `_local.py` up to rounding, and small models
keep to that: theirs cost little.

Shapes: M members, n rows, p features, q terms, r inputs, a active features, h1 units.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from sknimo.model import FittedModel, MemberNetwork, Units

# Members x inputs x units x features above which a model is large.
LARGE = 2**21
# Activations of a layer in a block of rows; a few of them fit a cache.
BLOCK_SIZE = 2**16


def is_large(model: FittedModel) -> bool:
    """Whether a model has so many weights, inputs and terms that it takes this way."""
    bent = int(model.modulated.sum(-1).max()) if model.n_members else 0
    inputs, units = len(model.spec.input_feature), sum(model.spec.hidden)
    return model.spec.mask and model.n_members * inputs * units * bent > LARGE


def _blocks(model: FittedModel, n_rows: int) -> Iterator[slice]:
    bent = max(int(model.modulated.sum(-1).max()), 1)
    size = max(BLOCK_SIZE // (bent * max(model.spec.hidden)), 16)
    for begin in range(0, n_rows, size):
        yield slice(begin, min(begin + size, n_rows))


def _networks(model: FittedModel, like: Tensor) -> Iterator[tuple[int, MemberNetwork]]:
    for member, network in enumerate(model.networks(like)):
        if network is not None:
            yield member, network


def _tensor(model: FittedModel, values: np.ndarray) -> Tensor:
    return torch.as_tensor(values).to(model.device)


def own_terms(model: FittedModel) -> list[slice]:
    """Where the terms of each feature stand; they stand together."""
    ends = np.cumsum([basis.n_terms for basis in model.features.bases]).tolist()
    return [slice(*ends) for ends in zip([0, *ends], ends, strict=False)]


def _weigh_terms(model: FittedModel, values: np.ndarray) -> Tensor:
    """Terms (or slopes) times coefficients over M, by member and feature, (M, n, p)."""
    columns = _tensor(model, values)
    coef = model.coef.to(columns) / model.n_members
    parts = [coef[:, own] @ columns[:, own].T for own in own_terms(model)]
    return torch.stack(parts, dim=2)


@torch.no_grad()
def bent_term_coef(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """Local coefficient of each term, (n, q)."""
    inputs = _tensor(model, model.features.inputs(table))
    bends = inputs.new_zeros(model.n_members, len(table), model.features.n_features)
    for member, network in _networks(model, inputs):
        for rows in _blocks(model, len(table)):
            bends[member, rows, network.active] = network.bends(inputs[rows])
    return _spread(model, bends)


def _spread(model: FittedModel, bends: Tensor) -> np.ndarray:
    """Mean of `beta (1 + g)` from the modulations (M, n, p), (n, q)."""
    coef = model.coef.to(bends) / model.n_members
    out = bends.new_empty(bends.shape[1], coef.shape[1])
    for j, own in enumerate(own_terms(model)):
        out[:, own] = coef[:, own].sum(0) + bends[:, :, j].T @ coef[:, own]
    return out.cpu().numpy()


def _units(
    model: FittedModel, table: np.ndarray
) -> Iterator[tuple[int, MemberNetwork, slice, Units]]:
    """Every member that bends, block by block of rows."""
    inputs = _tensor(model, model.features.inputs(table))
    slopes = _tensor(model, model.features.input_slopes(table))
    for member, network in _networks(model, inputs):
        for rows in _blocks(model, len(table)):
            yield member, network, rows, network.units(inputs[rows], slopes[rows])


def _pull(units: Units, weight: Tensor | None, again: bool = False) -> Tensor:
    """Derivative in the first layer of the sum of (weighted) bends, (n, a, h1).

    It can be differentiated `again`.
    """
    with torch.enable_grad():
        total = (units.bend if weight is None else weight * units.bend).sum()
        return torch.autograd.grad(total, units.hidden, create_graph=again)[0][0]


def _reach_others(network: MemberNetwork, pull: Tensor, units: Units) -> Tensor:
    """Along every feature but the own one, (n, a, h1) to (n, a, p)."""
    along = pull @ units.reach.mT
    along[:, torch.arange(len(network.active)), network.active] = 0.0
    return along


def bent_rows(
    model: FittedModel, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Terms, their local coefficients (n, q), and slopes of eta (n, p)."""
    terms = model.features.terms(table)
    direct = _weigh_terms(model, terms)
    bends, through = torch.zeros_like(direct), torch.zeros_like(direct[0])
    for member, network, some, units in _units(model, table):
        bends[member, some, network.active] = units.bend.detach()
        weight = direct[member, some][:, network.active]
        along = _reach_others(network, _pull(units, weight), units)
        through[some] += along.sum(1)
    flat = _weigh_terms(model, model.features.term_slopes(table))
    slopes = (flat * (1 + bends)).sum(0) + through
    return terms, _spread(model, bends), slopes.cpu().numpy()


def bent_jacobian(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """How features bend the modulations, `d g_jm / d x_k`, (n, M, p, p)."""
    shape = (len(table), model.n_members, *2 * (model.features.n_features,))
    out = torch.zeros(shape, dtype=torch.float64, device=model.device)
    for member, network, some, units in _units(model, table):
        along = _reach_others(network, _pull(units, None), units)
        out[some, member, network.active] = along
    return out.cpu().numpy()


def bent_second(model: FittedModel, table: np.ndarray) -> np.ndarray:
    """Mixed derivatives of eta in two features, nothing on the diagonal, (n, p, p)."""
    p = model.features.n_features
    direct = _weigh_terms(model, model.features.terms(table))
    flat = _weigh_terms(model, model.features.term_slopes(table))
    out = flat.new_zeros(len(table), p, p)
    for member, network, some, units in _units(model, table):
        active = network.active
        first = _pull(units, None, again=True).detach()
        once = _reach_others(network, first, units)
        once = once * flat[member, some][:, active].unsqueeze(-1)
        out[some, active] += once
        out[some, :, active] += once.mT
        pull = _pull(units, direct[member, some][:, active], again=True)
        for k in range(p):
            others = (active != k).unsqueeze(-1)
            with torch.enable_grad():
                along = (pull * units.reach[:, k : k + 1] * others).sum()
            (bow,) = torch.autograd.grad(along, units.hidden, retain_graph=True)
            out[some, k] += _reach_others(network, bow[0], units).sum(1)
    out.diagonal(dim1=1, dim2=2).zero_()
    return out.cpu().numpy()
