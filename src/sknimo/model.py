"""The fitted model: the one thing predicted from, explained and saved.

A model averages M members on the scale of the linear predictor. The average of NIMO
models is again one: its coefficients are the mean coefficients, its local coefficients
the mean of `beta_j (1 + g_j)`, and its gradient at the reference is its coefficient.

Shapes: M members, n rows, p features, q terms, r inputs, P weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from sknimo.families import Family
from sknimo.features import FeatureMap
from sknimo.machine import to_device
from sknimo.network import (
    Modulator,
    NetworkSpec,
    head_above_reference,
    input_norms,
    keep_inputs,
    unpack,
)
from sknimo.prediction import Predictor, compile_predictor

# Activations of one block of rows at prediction.
BLOCK_BYTES = 64 * 2**20
# At most so many rows, so that a table read in parts has the same blocks.
BLOCK_ROWS = 8192
# Where a dial has a score.
POSITIONS = np.linspace(0.0, 1.0, 21)


class Compiled:
    """A place for what was compiled from a model, by device.

    It is no field: copies, pickles and comparisons do without it.
    """

    __slots__ = ("_networks", "_predictors")

    _predictors: dict[torch.device, Predictor]
    _networks: dict[tuple[torch.device, torch.dtype], list[MemberNetwork | None]]


@dataclass(frozen=True, slots=True)
class Units:
    """Rows at the first layer of one member's network.

    `bend` is differentiable in `hidden`: feature k moves the units of feature j by
    `reach`, unless k is j itself.
    """

    bend: Tensor  # (n, a)
    hidden: Tensor  # (1, n, a, h1)
    reach: Tensor  # (n, p, h1), what a unit of each feature adds to the first layer


@dataclass(frozen=True, slots=True)
class MemberNetwork:
    """The network of one member, reduced to the inputs that it reads."""

    modulator: Modulator
    params: Tensor  # (1, P')
    live: Tensor  # (r',), integer, those inputs
    active: Tensor  # (a,), integer, features that it bends

    def bends(self, inputs: Tensor) -> Tensor:
        """`g` of the active features, (n, a); `inputs` (n, r)."""
        live, active = inputs[:, self.live], self.active.unsqueeze(0)
        return self.modulator(self.params, live, active, exact=True)[0]

    def units(self, inputs: Tensor, slopes: Tensor) -> Units:
        """The same from the first layer on; `slopes` (n, r) are those of the inputs."""
        weights = unpack(self.modulator.spec, self.params)
        every = torch.arange(self.modulator.spec.n_features, device=inputs.device)
        reach = self.modulator.own_products(
            weights.first, slopes[:, self.live], every.unsqueeze(0)
        )
        hidden, shift = self.modulator.first_layer(
            weights, inputs[:, self.live], self.active.unsqueeze(0), exact=True
        )
        hidden.requires_grad_(True)
        with torch.enable_grad():
            out = self.modulator.outputs(weights, self.active.unsqueeze(0))
            bend = head_above_reference(weights, out, hidden, shift)[0]
        return Units(bend, hidden, reach[0])


@dataclass(frozen=True, slots=True)
class FittedModel(Compiled):
    """Features, family and M members."""

    features: FeatureMap
    family: Family
    spec: NetworkSpec
    # At the reference, on the scale of the linear predictor: effect of each term, and
    # that predictor itself.
    coef: Tensor  # (M, q)
    intercept: Tensor  # (M,)
    params: Tensor  # (M, P), network weights
    modulated: Tensor  # (M, p), bool, features whose coefficient the network bends

    @property
    def n_members(self) -> int:
        """Number of members, M."""
        return self.coef.shape[0]

    def take(self, which: slice | Tensor) -> FittedModel:
        """Some of the members as a model of their own."""
        return replace(
            self,
            coef=self.coef[which],
            intercept=self.intercept[which],
            params=self.params[which],
            modulated=self.modulated[which],
        )

    def and_straight(self, coef: Tensor, intercept: Tensor) -> FittedModel:
        """With a member more that bends nothing; `coef` (1, q), `intercept` (1,)."""
        return replace(
            self,
            coef=torch.cat([self.coef, coef]),
            intercept=torch.cat([self.intercept, intercept]),
            params=pad(self.params, (0, 0, 0, 1)),
            modulated=pad(self.modulated, (0, 0, 0, 1)),
        )

    @property
    def device(self) -> torch.device:
        """Where rows are worked on."""
        return self.coef.device

    def to(self, device: torch.device) -> FittedModel:
        """The same model on a device; arrays go in and come out as before."""
        return self if device == self.device else to_device(self, device)

    @property
    def base_value(self) -> float:
        """Linear predictor at the reference."""
        return float(self.intercept.double().mean())

    @property
    def term_coef(self) -> np.ndarray:
        """Effect of each term at the reference, averaged over members, (q,)."""
        return self.coef.double().mean(0).cpu().numpy()

    @property
    def first_layer(self) -> np.ndarray:
        """First-layer weights of each member, (M, h1, r)."""
        return unpack(self.spec, self.params).first.double().cpu().numpy()

    @property
    def input_norms(self) -> np.ndarray:
        """Size of each feature's first-layer weights, averaged over members, (p,)."""
        return input_norms(self.spec, self.params.double()).mean(0).cpu().numpy()

    def local_term_coef(self, terms: Tensor, inputs: Tensor) -> Tensor:
        """Local coefficient of each term, mean of `beta (1 + g)`, (n, q).

        Differentiable in `inputs`. A modulation never sees its own feature, not even
        by rounding, and members work only on features that they use. The precision is
        that of `inputs`, whatever the network was trained in.
        """
        total = terms.new_zeros(terms.shape)
        owner = torch.as_tensor(self.features.term_feature, device=terms.device)
        for member, network in enumerate(self.networks(inputs)):
            coef = self.coef[member].to(terms)
            total = total + coef
            if network is None:
                continue
            full = terms.new_zeros(len(terms), self.spec.n_features)
            full = full.index_copy(1, network.active, network.bends(inputs))
            total = total + coef * full[:, owner]
        return total / self.n_members

    def networks(self, like: Tensor) -> list[MemberNetwork | None]:
        """What bends the features of each member, on device and in type of `like`.

        None for a member that bends nothing. Made on first use, as is `_predictor`.
        """
        made = getattr(self, "_networks", {})
        key = like.device, like.dtype
        if key not in made:
            found = [self._network(member, like) for member in range(self.n_members)]
            made = made | {key: found}
            object.__setattr__(self, "_networks", made)
        return made[key]

    def _network(self, member: int, like: Tensor) -> MemberNetwork | None:
        active = self.modulated[member].nonzero().squeeze(-1).to(like.device)
        if len(active) == 0:
            return None
        params = self.params[member : member + 1].to(like)
        first = unpack(self.spec, params).first
        live = (first.abs().amax((0, 1)) > 0).nonzero().squeeze(-1)
        spec, small = keep_inputs(self.spec, params, live)
        modulator = Modulator.build(spec, like.device, params.dtype)
        return MemberNetwork(modulator, small, live, active)

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Row blocks whose activations stay small."""
        h1, h2 = self.spec.hidden
        per_row = 8 * max(int(self.modulated.sum(-1).max()), 1) * (h1 + h2)
        size = max(1, min(BLOCK_BYTES // per_row, BLOCK_ROWS))
        for begin in range(0, n_rows, size):
            yield slice(begin, min(begin + size, n_rows))

    @torch.no_grad()
    def term_contributions(self, table: np.ndarray) -> np.ndarray:
        """Contribution of each term to the linear predictor, (n, q)."""
        out = np.empty((len(table), len(self.features.term_feature)))
        for rows in self.blocks(len(table)):
            terms = torch.as_tensor(self.features.terms(table[rows])).to(self.device)
            inputs = torch.as_tensor(self.features.inputs(table[rows])).to(self.device)
            parts = terms * self.local_term_coef(terms, inputs)
            out[rows] = parts.cpu().numpy()
        return out

    def contributions(self, table: np.ndarray) -> np.ndarray:
        """Contribution of each feature; with `base_value` they sum to eta, (n, p)."""
        return self.features.per_feature(self.term_contributions(table))

    def eta(
        self,
        table: np.ndarray,
        offset: np.ndarray | None = None,
        device: torch.device | None = None,
    ) -> np.ndarray:
        """Linear predictor, (n,), by default on the model's own device.

        The sum of `base_value` and the contributions up to rounding, without working
        them out one by one.
        """
        predictor = self._predictor(device or self.device)
        eta = predictor.eta(table, self.blocks(len(table)))
        return eta if offset is None else eta + offset

    def _predictor(self, device: torch.device) -> Predictor:
        """What `eta` needs, compiled on first use; threads may both compile it."""
        made: dict[torch.device, Predictor] = getattr(self, "_predictors", {})
        if device not in made:
            compiled = compile_predictor(
                self.features,
                self.spec,
                self.coef.cpu(),
                self.intercept.cpu(),
                self.params.cpu(),
                self.modulated.cpu(),
            )
            made = made | {device: to_device(compiled, device)}
            object.__setattr__(self, "_predictors", made)
        return made[device]

    def mean(self, table: np.ndarray, offset: np.ndarray | None = None) -> np.ndarray:
        """Mean response, (n,)."""
        return self.family.mean(torch.as_tensor(self.eta(table, offset))).numpy()


@dataclass(frozen=True, slots=True)
class ClassModels:
    """Models of several classes; a softmax of their `eta` gives probabilities.

    What is common to all classes changes no probability. `eta` is therefore centred:
    that of a class is the logarithm of its probability over the geometric mean of all.
    """

    stacked: FittedModel  # members of all classes, those of the first class first
    n_classes: int

    @classmethod
    def of(cls, models: Sequence[FittedModel]) -> ClassModels:
        """Models of the classes in their order, which differ in members alone."""
        stacked = replace(
            models[0],
            coef=torch.cat([model.coef for model in models]),
            intercept=torch.cat([model.intercept for model in models]),
            params=torch.cat([model.params for model in models]),
            modulated=torch.cat([model.modulated for model in models]),
        )
        return cls(stacked, len(models))

    @property
    def features(self) -> FeatureMap:
        """The features of all classes."""
        return self.stacked.features

    @property
    def family(self) -> Family:
        """The family of each class."""
        return self.stacked.family

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Row blocks whose activations stay small."""
        return self.stacked.blocks(n_rows)

    def of_class(self, number: int) -> FittedModel:
        """One class as it was trained, not centred."""
        n_members = self.stacked.n_members // self.n_classes
        begin = number * n_members
        return self.stacked.take(slice(begin, begin + n_members))

    @property
    def bent(self) -> Tensor:
        """Members that bend in a class, (M,), bool."""
        return self.stacked.modulated.any(1).cpu().reshape(self.n_classes, -1).any(0)

    def contrast(self, number: int, baseline: int | None = None) -> FittedModel:
        """One class against the mean of all, or against another, as a model.

        A difference of models is a model: members of the others with coefficients of
        the other sign. First come those that bend, by class, then all others as one.
        """
        model, n_classes = self.stacked, self.n_classes
        share = torch.full((n_classes,), -1.0 / n_classes, dtype=torch.float64)
        if baseline is not None:
            share = torch.zeros_like(share)
            share[baseline] = -1.0
        share[number] += 1.0
        n_members = model.n_members // n_classes
        share = (share / n_members).repeat_interleave(n_members)
        silent = ~self.bent.repeat(n_classes)
        bent = ((share != 0) & ~silent).nonzero().squeeze(1)
        some = model.take(bent)
        still = torch.where(silent, share, 0.0).to(model.coef)
        count = len(bent) + 1
        scale = (count * share[bent]).to(model.coef)
        coef, intercept = scale.unsqueeze(1) * some.coef, scale * some.intercept
        return replace(some, coef=coef, intercept=intercept).and_straight(
            (count * still @ model.coef)[None], (count * still @ model.intercept)[None]
        )

    def eta(self, table: np.ndarray, device: torch.device | None = None) -> np.ndarray:
        """Linear predictors that sum to zero over classes, (n, C)."""
        found = [
            self.of_class(c).eta(table, None, device) for c in range(self.n_classes)
        ]
        eta = np.stack(found, axis=1)
        return eta - eta.mean(axis=1, keepdims=True)

    def chances(self, table: np.ndarray) -> np.ndarray:
        """Probability of each class, (n, C)."""
        return torch.as_tensor(self.eta(table)).softmax(1).numpy()


@dataclass(frozen=True, slots=True, eq=False)
class Dial:
    """The way from the model without bends to the model that is nothing but bent.

    Linear predictors are linear in coefficients: `(1 - w) straight + w bent` is a model
    for every w, and a model found at one w gives that at any other.
    """

    bend: float  # where the model stands, above 0
    # The straight model, of every class; C is 1 where there are no classes.
    coef: np.ndarray  # (C, q)
    intercept: np.ndarray  # (C,)
    scores: np.ndarray  # scores on rows held out, at `POSITIONS`

    def score(self, bend: float) -> float:
        """Score on rows held out, between positions by interpolation."""
        return float(np.interp(bend, POSITIONS, self.scores))

    def turn(self, model: FittedModel | ClassModels, bend: float) -> Any:
        """The model with another share of bends."""
        if isinstance(model, ClassModels):
            each = [
                self._turn(model.of_class(c), bend, c) for c in range(model.n_classes)
            ]
            return ClassModels.of(each)
        return self._turn(model, bend, 0)

    def _turn(self, model: FittedModel, bend: float, number: int) -> FittedModel:
        own = torch.as_tensor(self.coef[number : number + 1]).to(model.coef)
        level = torch.as_tensor(self.intercept[number : number + 1]).to(own)
        ratio = bend / self.bend
        # Members that bend nothing become one, which has the straight model beside.
        bent = model.modulated.any(1) if bend > 0 else torch.zeros(model.n_members) > 0
        some = model.take(bent.nonzero().squeeze(1))
        count, scale = some.n_members + 1, ratio / model.n_members
        coef = scale * model.coef[~bent].sum(0) if bend > 0 else 0.0
        intercept = scale * model.intercept[~bent].sum() if bend > 0 else 0.0
        some = replace(
            some,
            coef=count * scale * some.coef,
            intercept=count * scale * some.intercept,
        )
        return some.and_straight(
            count * (coef + (1 - ratio) * own),
            count * (intercept + (1 - ratio) * level),
        )
