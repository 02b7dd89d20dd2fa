"""The shared masked network that bends the coefficients.

For feature j and a row with inputs z the modulation is

    g_j(z) = raw(z without j, code_j) - raw(0, code_j),
    raw = out . sin(second tanh(first z_(-j) + code_weight code_j + bias) + bias2),

so `g_j` is exactly zero at the reference and blind to every input column that feature
j owns. The masked inputs are never built: `first z_(-j)` is one product `first z` for
all features minus the few columns of feature j.

On large tables the output layer reads the code, too (`own_out`): it is `out code_j`, an
output for every number of the code.

All weights of one model live in one row of a flat (K, P) tensor: optimisers, freezing,
restoring and saving then need no bookkeeping.

Shapes: K models, n rows, r input columns, p features, a active features, b code bits,
h1 and h2 hidden units; the model axis K always leads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, get_args

import torch
from torch import Tensor

from sknimo.exceptions import check_option

CodeName = Literal["binary", "none"]

# Up to this many inputs a masked product beats the full product with a correction.
MASKED_PRODUCT_INPUTS = 64
# Masked weights of more bytes are made for some features at a time.
MASKED_BYTES = 64 * 2**20
# Up to this many own inputs are taken out one by one, more by one product.
FEW_OWN_INPUTS = 8


@dataclass(frozen=True)
class NetworkSpec:
    """Architecture shared by all members of a fit."""

    input_feature: tuple[int, ...]  # the feature that owns each of the r input columns
    # Position code, one row of b numbers per feature; b may be 0.
    code: tuple[tuple[float, ...], ...]
    hidden: tuple[int, int] = (16, 16)  # units in the tanh and in the sine layer
    # Whether a feature is hidden from its own modulation. Off only for ablations:
    # without it the coefficients lose their meaning.
    mask: bool = True
    # Whether the output layer reads the code: one output for each of its numbers.
    own_out: bool = False

    @property
    def n_features(self) -> int:
        """Number of modulated features, p."""
        return len(self.code)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each block of weights, in the order of the flat vector."""
        h1, h2 = self.hidden
        n_bits = len(self.code[0]) if self.code else 0
        return {
            "first": (h1, len(self.input_feature)),
            "code_weight": (h1, n_bits),
            "bias": (h1,),
            "second": (h2, h1),
            "second_bias": (h2,),
            "out": (h2, n_bits) if self.own_out else (h2,),
        }

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers in each block of weights."""
        return [math.prod(shape) for shape in self.shapes.values()]

    @property
    def n_params(self) -> int:
        """Number of weights of one model, P."""
        return sum(self.sizes)

    def codes(self) -> Tensor:
        """Position code of each feature, (p, b) in float64."""
        n_bits = self.shapes["code_weight"][1]
        code = torch.tensor(self.code, dtype=torch.float64)
        return code.reshape(self.n_features, n_bits)

    def own_columns(self) -> Tensor:
        """Input columns of each feature, (p, m), short rows padded with r."""
        owned: list[list[int]] = [[] for _ in range(self.n_features)]
        for column, feature in enumerate(self.input_feature):
            owned[feature].append(column)
        width = max((len(columns) for columns in owned), default=0)
        none = len(self.input_feature)
        rows = [columns + [none] * (width - len(columns)) for columns in owned]
        return torch.tensor(rows, dtype=torch.long).reshape(self.n_features, width)


@dataclass(frozen=True, slots=True)
class Weights:
    """Views into the flat (K, P) tensor, by name."""

    first: Tensor  # (K, h1, r)
    code_weight: Tensor  # (K, h1, b)
    bias: Tensor  # (K, h1)
    second: Tensor  # (K, h2, h1)
    second_bias: Tensor  # (K, h2)
    out: Tensor  # (K, h2), or (K, h2, b) where features have outputs of their own

    def outputs(self, code: Tensor) -> Tensor:
        """Output layers of features with these codes (a, b), (K, a, h2).

        (K, 1, h2) where all have the same.
        """
        return self.out.unsqueeze(1) if self.out.dim() == 2 else (self.out @ code.T).mT


def unpack(spec: NetworkSpec, params: Tensor) -> Weights:
    """Name the blocks of a flat (K, P) tensor; the views share its memory."""
    shapes, n_models = spec.shapes.values(), params.shape[0]
    blocks = zip(params.split(spec.sizes, dim=1), shapes, strict=True)
    return Weights(*(block.view(n_models, *shape) for block, shape in blocks))


def input_norms(spec: NetworkSpec, params: Tensor) -> Tensor:
    """Size of each feature's first-layer weights, (K, p)."""
    square = unpack(spec, params).first.square().sum(1)
    owner = torch.tensor(spec.input_feature, dtype=torch.long, device=params.device)
    total = square.new_zeros(len(params), spec.n_features)
    return total.index_add_(1, owner, square).sqrt()


def keep_inputs(
    spec: NetworkSpec, params: Tensor, columns: Tensor
) -> tuple[NetworkSpec, Tensor]:
    """The network restricted to some input columns, and its (K, P') weights."""
    owner = tuple(spec.input_feature[column] for column in columns.tolist())
    first = unpack(spec, params).first
    rest = params[:, first[0].numel() :]
    small = replace(spec, input_feature=owner)
    return small, torch.cat([first[:, :, columns].flatten(1), rest], dim=1)


def restore_inputs(
    spec: NetworkSpec, small: NetworkSpec, params: Tensor, columns: Tensor
) -> Tensor:
    """Undo `keep_inputs`: zero weights for the columns that were left out."""
    first = unpack(small, params).first
    full = first.new_zeros(*first.shape[:2], len(spec.input_feature))
    full[:, :, columns] = first
    rest = params[:, first[0].numel() :]
    return torch.cat([full.flatten(1), rest], dim=1)


def binary_code(n_features: int) -> tuple[tuple[float, ...], ...]:
    """Binary digits of the feature index, one row per feature, as in the paper."""
    n_bits = max(n_features, 1).bit_length()
    return tuple(
        tuple(float(index >> bit & 1) for bit in range(n_bits))
        for index in range(1, n_features + 1)
    )


def one_hot(n_features: int, active: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    """A code of its own for every modulated feature, nothing for the others."""
    place = {feature: bit for bit, feature in enumerate(active)}
    return tuple(
        tuple(float(place.get(j) == bit) for bit in range(len(active)))
        for j in range(n_features)
    )


def make_spec(
    input_feature: Sequence[int],
    n_features: int,
    hidden: tuple[int, int],
    code: str = "binary",
    mask: bool = True,
    own_out: bool = False,
) -> NetworkSpec:
    """Assemble a spec from public options."""
    check_option("position_code", code, get_args(CodeName))
    codes = binary_code(n_features) if code == "binary" else ((),) * n_features
    return NetworkSpec(tuple(map(int, input_feature)), codes, hidden, mask, own_out)


def init_params(spec: NetworkSpec, seeds: Sequence[int]) -> Tensor:
    """Random start, one row per seed, (K, P) in float64 on the CPU.

    The output layer starts at zero, so training starts exactly at the penalised GLM.
    """
    fan_in = spec.shapes["first"][1] + spec.shapes["code_weight"][1]
    bound = 1 / math.sqrt(max(fan_in, 1))
    return draw_params(spec, seeds, bound, bound)


def start_networks(spec: NetworkSpec, seeds: Sequence[int]) -> Tensor:
    """Random first layers, second layers, and no output, (K, P).

    Sums over inputs are of order one however many columns a feature is read by, and
    codes tell features apart from the beginning.
    """
    return draw_params(spec, seeds, 1 / math.sqrt(2 * max(spec.n_features, 1)), 1.0)


def draw_params(
    spec: NetworkSpec, seeds: Sequence[int], narrow: float, code: float
) -> Tensor:
    """Random weights without output, the first layer and its codes within bounds.

    Each member draws from its own generator: its start does not depend on the others.
    """
    params = torch.zeros(len(seeds), spec.n_params, dtype=torch.float64)
    hidden = 1 / math.sqrt(spec.hidden[0])
    for row, seed in zip(params, seeds, strict=True):
        generator = torch.Generator().manual_seed(int(seed))
        weights = unpack(spec, row.unsqueeze(0))
        for block, bound in (
            (weights.first, narrow),
            (weights.code_weight, code),
            (weights.bias, narrow),
            (weights.second, hidden),
            (weights.second_bias, hidden),
        ):
            block.uniform_(-bound, bound, generator=generator)
    return params


@dataclass(frozen=True, slots=True)
class Modulator:
    """A spec with its constant tensors on one device: evaluates `g`."""

    spec: NetworkSpec
    code: Tensor  # (p, b)
    input_feature: Tensor  # (r,)
    own_columns: Tensor  # (p, m)

    @classmethod
    def build(
        cls, spec: NetworkSpec, device: torch.device, dtype: torch.dtype
    ) -> Modulator:
        """Put the constants of `spec` on a device."""
        return cls(
            spec,
            spec.codes().to(device, dtype),
            torch.tensor(spec.input_feature, dtype=torch.long, device=device),
            spec.own_columns().to(device),
        )

    def __call__(
        self,
        params: Tensor,
        inputs: Tensor,
        active: Tensor,
        noise: Tensor | None = None,
        exact: bool = False,
    ) -> Tensor:
        """Modulation `g` of the active features (K, a) of each model, (K, n, a).

        `inputs` (n, r) are zero at the reference. `noise` (n, h1) moves the first layer
        of the rows but not that of the reference: `g(reference) = 0` stays exact. In
        the `exact` way own columns have zero weights whatever the cost, and the
        reference is subtracted layer by layer: neither do they reach the modulation nor
        does `g(reference)` differ from zero, even by rounding.
        """
        weights = unpack(self.spec, params)
        hidden, shift = self.first_layer(weights, inputs, active, exact)
        if noise is not None:
            hidden = hidden + noise.unsqueeze(1)
        out = self.outputs(weights, active)
        if exact:
            return head_above_reference(weights, out, hidden, shift)
        level = _head(weights, out, shift.unsqueeze(1))
        return _head(weights, out, hidden) - level

    def outputs(self, weights: Weights, active: Tensor) -> Tensor:
        """Output layers of the active features, (K, a, h2), or (K, 1, h2) of all."""
        out = weights.outputs(self.code)
        return _take(out, active) if self.spec.own_out else out

    def first_layer(
        self, weights: Weights, inputs: Tensor, active: Tensor, exact: bool
    ) -> tuple[Tensor, Tensor]:
        """What enters the units, of rows (K, n, a, h1) and reference (K, a, h1)."""
        # What the first layer sees besides z: bias and code of the feature, (K, a, h1).
        shift = weights.code_weight @ self.code.T  # (K, h1, p)
        shift = _take(shift.mT + weights.bias.unsqueeze(1), active)
        if not self.spec.mask:
            hidden = (inputs @ weights.first.mT).unsqueeze(2) + shift.unsqueeze(1)
        elif len(self.input_feature) <= MASKED_PRODUCT_INPUTS:
            hidden = self._masked_product(weights.first, inputs, active, shift)
        elif self.own_columns.shape[1] > FEW_OWN_INPUTS:
            add_up = self._sum_of_others if exact else self._sum_without_own
            hidden = add_up(weights.first, inputs, active, shift)
        elif exact:
            # Masked weights of that many features fit.
            size = max(MASKED_BYTES // max(weights.first.nbytes, 1), 1)
            parts = zip(active.split(size, 1), shift.split(size, 1), strict=True)
            products = [
                self._masked_product(weights.first, inputs, *part) for part in parts
            ]
            hidden = products[0] if len(products) == 1 else torch.cat(products, dim=2)
        else:
            hidden = self._product_without_own(weights.first, inputs, active, shift)
        return hidden, shift

    def _masked_product(
        self, first: Tensor, inputs: Tensor, active: Tensor, shift: Tensor
    ) -> Tensor:
        """First layer (K, n, a, h1) by one product with masked weights (K, a h1, r)."""
        visible = self.input_feature != active.unsqueeze(-1)  # (K, a, r)
        masked = first.unsqueeze(1) * visible.unsqueeze(2)  # (K, a, h1, r)
        product = torch.baddbmm(
            shift.flatten(1).unsqueeze(1),
            inputs.expand(len(active), -1, -1),
            masked.flatten(1, 2).mT,
        )
        return product.view(len(active), len(inputs), *shift.shape[1:])

    def _product_without_own(
        self, first: Tensor, inputs: Tensor, active: Tensor, shift: Tensor
    ) -> Tensor:
        """First layer (K, n, a, h1) as the full product minus each feature's columns.

        Costs n r h1 instead of n a r h1: worth its extra passes when inputs are many.
        """
        hidden = (inputs @ first.mT).unsqueeze(2) + shift.unsqueeze(1)
        own_columns = self.own_columns[active]  # (K, a, m)
        padded_first = torch.nn.functional.pad(first.mT, (0, 0, 0, 1))  # (K, r+1, h1)
        padded_inputs = torch.nn.functional.pad(inputs, (0, 1))  # (n, r+1)
        for slot in range(own_columns.shape[-1]):
            column = own_columns[..., slot]  # (K, a)
            own_first = _take(padded_first, column)  # (K, a, h1)
            own_input = padded_inputs[:, column].movedim(0, 1)  # (K, n, a)
            hidden = torch.addcmul(
                hidden, own_input.unsqueeze(-1), own_first.unsqueeze(1), value=-1
            )
        return hidden

    def _sum_without_own(
        self, first: Tensor, inputs: Tensor, active: Tensor, shift: Tensor
    ) -> Tensor:
        """The same where features own many columns, by one product for all of them."""
        hidden = (inputs @ first.mT).unsqueeze(2) + shift.unsqueeze(1)
        return hidden - self.own_products(first, inputs, active)

    def _sum_of_others(
        self, first: Tensor, inputs: Tensor, active: Tensor, shift: Tensor
    ) -> Tensor:
        """The same without a subtraction: what comes before a feature and after it.

        Inputs of features that are not active reach all others alike.
        """
        own = self.own_products(first, inputs, active).unbind(2)
        shared = (self.input_feature != active.unsqueeze(-1)).all(1)  # (K, r)
        start = inputs @ (first * shared.unsqueeze(1)).mT  # (K, n, h1)
        return torch.stack(sum_others(own, start), dim=2) + shift.unsqueeze(1)

    def own_products(self, first: Tensor, inputs: Tensor, active: Tensor) -> Tensor:
        """What the columns of each active feature add to the layer, (K, n, a, h1)."""
        features, place = active.unique(return_inverse=True)  # (u,), (K, a)
        columns = self.own_columns[features]  # (u, m)
        padded_first = torch.nn.functional.pad(first.mT, (0, 0, 0, 1))  # (K, r+1, h1)
        padded_inputs = torch.nn.functional.pad(inputs, (0, 1))  # (n, r+1)
        own_first = padded_first[:, columns].permute(1, 2, 0, 3)  # (u, m, K, h1)
        product = padded_inputs[:, columns].movedim(0, 1) @ own_first.flatten(2)
        product = product.unflatten(2, own_first.shape[2:]).permute(2, 1, 0, 3)
        if len(features) == active.shape[1] and bool((active == features).all()):
            return product
        index = place[:, None, :, None].expand(-1, len(inputs), -1, product.shape[-1])
        return product.gather(2, index)


def sum_others(parts: Sequence[Tensor], start: Tensor) -> list[Tensor]:
    """For each part the sum of all others and `start`, without a subtraction."""
    before = accumulate(parts[:-1], initial=start)
    after = [*accumulate(parts[:0:-1], initial=torch.zeros_like(start))][::-1]
    return [low + high for low, high in zip(before, after, strict=True)]


def _take(values: Tensor, index: Tensor) -> Tensor:
    """Rows of (K, m, h) picked per model by (K, a): (K, a, h)."""
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def _head(weights: Weights, out: Tensor, hidden: Tensor) -> Tensor:
    """Everything after the first product: (K, n, a, h1) to (K, n, a)."""
    second = torch.baddbmm(
        weights.second_bias.unsqueeze(1),
        hidden.flatten(1, 2).tanh(),
        weights.second.mT,
    )
    return put_out(out, second.sin().unflatten(1, hidden.shape[1:3]))


def put_out(out: Tensor, units: Tensor) -> Tensor:
    """Units (K, n, a, h2) times outputs (K, a, h2), or (K, 1, h2) of all: (K, n, a)."""
    if out.shape[1] == 1:
        return (units.flatten(1, 2) @ out.mT).view(units.shape[:3])
    return (units * out.unsqueeze(1)).sum(-1)


def head_above_reference(
    weights: Weights, out: Tensor, hidden: Tensor, shift: Tensor
) -> Tensor:
    """Head of the rows minus that of the reference, (K, n, a, h1) to (K, n, a).

    The same number as two calls of `_head`, but products of unequal shapes round
    unequally: here equal first layers give zero to the last bit.
    """
    level = shift.tanh()  # (K, a, h1)
    base = torch.baddbmm(weights.second_bias.unsqueeze(1), level, weights.second.mT)
    rise = (hidden.tanh() - level.unsqueeze(1)).flatten(1, 2) @ weights.second.mT
    second = rise.unflatten(1, hidden.shape[1:3]) + base.unsqueeze(1)
    return put_out(out, second.sin() - base.sin().unsqueeze(1))
