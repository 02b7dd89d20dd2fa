"""From validated rows to tensors, and from what was solved back to units of the user.

A `Problem` is the data in the units of the fit: a Gaussian target is centred and
scaled. `assemble` undoes that when it makes the fitted model.

Shapes: n rows, p features, q terms, P weights, K models, M members.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.machine import to_device
from sknimo.model import ClassModels, FittedModel
from sknimo.network import NetworkSpec, make_spec
from sknimo.ranks import ALONE
from sknimo.rows import StoredColumns
from sknimo.solver import MemoryColumns, Options, PerMember, Prior, Problem, Solution
from sknimo.training._data import SEPARATION_ETA, SEPARATION_LOSS, TrainingSet
from sknimo.training._passes import CACHE_BYTES, fit_stream_budget
from sknimo.training._streams import StreamedSet

# Half deviance that a perfect separation of several classes leaves no row above: that
# of two classes at `SEPARATION_ETA`.
SEPARATED = 1e-12
# Rows that are asked first whether classes are separated.
FIRST_ROWS = 256


def state_network(
    features: FeatureMap, hidden: tuple[int, int], position_code: str, mask: bool
) -> NetworkSpec:
    """The network that sees these features."""
    owner = features.input_feature.tolist()
    return make_spec(owner, features.n_features, hidden, position_code, mask)


def state_problem(
    data: TrainingSet | StreamedSet,
    family: Family,
    spec: NetworkSpec,
    device: torch.device,
) -> Problem:
    """Tensors of a table in memory, or columns that are read from its store."""
    features, ranks = data.features, ALONE
    even = features.even_curves()
    columns: MemoryColumns | StoredColumns
    if isinstance(data, StreamedSet):
        ranks, columns = data.ranks, StoredColumns(data.table, features, device)
    else:
        columns = state_columns(features, data.table)
    problem = Problem(
        columns=columns,
        term_feature=torch.as_tensor(features.term_feature),
        term_group=torch.as_tensor(features.term_group),
        y=torch.as_tensor(data.y),
        offset=torch.as_tensor(data.offset),
        family=family,
        spec=spec,
        ranks=ranks,
        prior=_state_prior(features, *features.walks()),
        learned=_join(even) if even else None,
        curved_inputs=torch.as_tensor(features.curved_inputs),
    )
    return to_device(problem, device)


def _state_prior(
    features: FeatureMap, blocks: list[np.ndarray], group: np.ndarray
) -> Prior | None:
    """Sums of terms, None where they are the terms."""
    if len(group) == len(features.term_group):
        return None
    return Prior(_join(blocks), torch.as_tensor(group))


def _join(blocks: list[np.ndarray]) -> Tensor:
    return torch.block_diag(*map(torch.as_tensor, blocks))


def state_columns(features: FeatureMap, table: np.ndarray) -> MemoryColumns:
    """Terms and inputs of a table in memory."""
    terms, inputs = features.terms(table), features.inputs(table)
    return MemoryColumns(torch.as_tensor(terms), torch.as_tensor(inputs))


@dataclass(frozen=True, slots=True)
class Ensemble(PerMember):
    """Members to average, in the units of the fit."""

    coef: Tensor  # (M, q)
    intercept: Tensor  # (M,)
    params: Tensor  # (M, P)
    modulated: Tensor  # (M, p), bool, features whose coefficient the network bends
    # What coefficients and intercept were multiplied by, so that members of other
    # weights can be averaged as equals; ones by default.
    scale: Tensor = field(default_factory=lambda: torch.empty(0))  # (M,)
    # Members of bags, which stop early: what they know of one point nobody can say.
    of_bags: Tensor = field(default_factory=lambda: torch.empty(0))  # (M,), bool

    def __post_init__(self) -> None:
        if self.scale.numel() == 0:
            object.__setattr__(self, "scale", torch.ones_like(self.intercept))
        if self.of_bags.numel() == 0:
            none = torch.zeros_like(self.intercept, dtype=torch.bool)
            object.__setattr__(self, "of_bags", none)


def assemble(
    data: TrainingSet | StreamedSet, problem: Problem, members: Ensemble | Solution
) -> FittedModel:
    """Fold the target's scaling into the coefficients and move to the CPU."""
    return FittedModel(
        features=data.features,
        family=problem.family,
        spec=problem.spec,
        coef=members.coef.cpu() * data.y_scale,
        intercept=members.intercept.cpu() * data.y_scale + data.y_mean,
        params=members.params.detach().cpu(),
        modulated=members.modulated.cpu(),
    )


def fit_budget(
    data: TrainingSet | StreamedSet,
    problem: Problem,
    options: Options,
    memory_budget: float,
) -> Options:
    """Options whose blocks keep within the budget.

    It does not count a table that is in memory anyway.
    """
    if isinstance(data, StreamedSet):
        return fit_stream_budget(data, problem, options, memory_budget)
    on_cpu = problem.device.type == "cpu"
    room = min(memory_budget, CACHE_BYTES) if on_cpu else memory_budget
    return replace(options, memory_budget=int(room))


def is_separated(model: FittedModel | ClassModels, data: TrainingSet) -> bool:
    """Whether every row's class is predicted with certainty."""
    several = isinstance(model, ClassModels)
    if not (several or model.family.is_binary):
        return False
    # Hardly ever need the other rows be asked.
    some = slice(None, None, 1 + len(data.y) // FIRST_ROWS)
    least = SEPARATED if several else SEPARATION_LOSS
    if _extremes(model, data, some)[1] >= least:
        return False
    largest_eta, largest_loss = _extremes(model, data, slice(None))
    return largest_loss < least and largest_eta > SEPARATION_ETA


def _extremes(
    model: FittedModel | ClassModels, data: TrainingSet, rows: slice
) -> tuple[float, float]:
    """The largest linear predictor of some rows, and the largest loss."""
    table, y = data.table[rows], data.y[rows]
    if isinstance(model, ClassModels):
        chance = model.chances(table)[np.arange(len(y)), y.astype(int)]
        return math.inf, float(-np.log(np.maximum(chance, 1e-300)).max())
    eta = model.eta(table, data.offset[rows])
    loss = model.family.loss(torch.as_tensor(y), torch.as_tensor(eta))
    return float(np.abs(eta).max()), float(loss.max())
