"""Derivatives of eta by hand, and the linear algebra that Gauss-Newton needs of them.

The joint Jacobian of `eta` in coefficients and weights has n m numbers. It is never
held when m <= n: blocks of rows are made, added to the normal equations (`Primal`) and
forgotten. With more parameters than rows the smaller n x n system is solved instead
(`Dual`), which keeps the Jacobian.

Both hold a dispersion of one; the loss is `|residual - jacobian d|**2 / 2` divided by
the dispersion, so that precisions and dispersion may move without a new Jacobian.

Shapes: n rows, q term columns, r inputs, p features, a active features, b code bits,
h1 and h2 hidden units, P weights, m = q + P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sknimo.network import NetworkSpec, unpack
from sknimo.solver._design import cut_rows
from sknimo.solver._profile import WEIGHT_FLOOR, Rows

# Blocks of this size keep products efficient; larger ones are no faster on a CPU.
BLOCK_BYTES = 64 * 2**20
# From this many inputs on, one product for all features less each one's own columns
# beats a product with masked weights.
FEW_INPUTS = 16
# A symmetric product is made in panels of this many columns, above the diagonal only.
PANEL = 256
# Relative to the mean diagonal of a matrix that rounding made indefinite.
LIFT = 1e-14
EVERY_ROW = slice(None)


class Tangent:
    """Design and Jacobian of `eta`, by hand.

    Only features with a coefficient are evaluated, only inputs that are read.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        inputs: Tensor,
        terms: Tensor,
        term_feature: Tensor,
        active: Tensor,
    ) -> None:
        self.spec, self.inputs, self.terms, self.active = spec, inputs, terms, active
        device = terms.device
        slots = torch.arange(len(active), device=device)
        position = torch.full((spec.n_features,), len(active), device=device)
        position[active] = slots
        # The active feature that a term belongs to, `a` for one that is not bent.
        self.term_slot = position[term_feature]  # (q,)
        self.n_spare = int((self.term_slot == len(active)).any())
        owner = torch.tensor(spec.input_feature, dtype=torch.long, device=device)
        # The active feature that an input belongs to, `a` for none.
        self.input_slot = (
            position[owner] if spec.mask else torch.full_like(owner, len(active))
        )
        self.code = spec.codes().to(device)[active]  # (a, b)
        self.visible = (self.input_slot != slots.unsqueeze(-1)).double()  # (a, r)

    @property
    def is_linear(self) -> bool:
        """Whether there is nothing to bend or nothing to bend it."""
        return len(self.active) == 0 or self.inputs.shape[1] == 0

    def chunks(self, n_bytes: float) -> list[slice]:
        """Blocks of rows whose Jacobian and activations take that many bytes."""
        n, r = self.inputs.shape
        h1, h2 = self.spec.hidden
        n_parameters = self.terms.shape[1] + self.spec.n_params
        per_row = 8 * (
            2 * n_parameters + len(self.active) * (4 * h1 + 4 * h2) + 2 * r * h1
        )
        return cut_rows(n, per_row, n_bytes)

    def design(self, params: Tensor, rows: slice = EVERY_ROW) -> Tensor:
        """`phi * (1 + g)` of some rows, (n, q)."""
        terms = self.terms[rows]
        if self.is_linear:
            return terms
        layers = self._layers(params, rows)
        bend = layers.angle().sin_() @ layers.out
        bend -= layers.angle_ref().sin() @ layers.out
        return terms * (1 + self._of_terms(bend))

    def _of_terms(self, bend: Tensor) -> Tensor:
        """Bends (n, a) of the features that own the terms, zero for others, (n, q)."""
        return torch.nn.functional.pad(bend, (0, self.n_spare))[:, self.term_slot]

    def jacobian(self, params: Tensor, coef: Tensor, rows: slice = EVERY_ROW) -> Tensor:
        """`d eta / d (coef, params)` of some rows, (n, m); the design comes first."""
        terms, inputs = self.terms[rows], self.inputs[rows]
        n, q = terms.shape
        if self.is_linear:
            return torch.cat([terms, terms.new_zeros(n, len(params))], dim=1)
        out = terms.new_empty(n, q + len(params))
        slope = unpack(self.spec, out[:, q:])  # views: the blocks are written in place
        layers = self._layers(params, rows)
        angle, angle_ref = layers.angle(), layers.angle_ref()
        pull = terms.new_zeros(n, len(self.active) + self.n_spare)
        pull.index_add_(1, self.term_slot, terms * coef)
        pull = pull[:, : len(self.active)]  # (n, a)
        wave = angle.cos().mul_(layers.out).mul_(pull.unsqueeze(-1))  # (n, a, h2)
        wave_ref = layers.out * angle_ref.cos()  # (a, h2)
        sine, sine_ref = angle.sin_(), angle_ref.sin()
        bend = sine @ layers.out - sine_ref @ layers.out
        torch.mul(terms, 1 + self._of_terms(bend), out=out[:, :q])
        slope.out[:] = (pull.unsqueeze(1) @ sine).squeeze(1) - pull @ sine_ref
        slope.second_bias[:] = wave.sum(1) - pull @ wave_ref
        outer_ref = wave_ref.unsqueeze(-1) * layers.hidden_ref.unsqueeze(-2)
        slope.second[:] = wave.mT @ layers.hidden
        slope.second.sub_((pull @ outer_ref.flatten(1)).view(n, *outer_ref.shape[1:]))
        first = wave @ layers.second  # (n, a, h1)
        first.addcmul_(first, layers.hidden.square_(), value=-1)
        first_ref = (wave_ref @ layers.second) * (1 - layers.hidden_ref.square())
        total = first.sum(1)  # (n, h1)
        slope.bias[:] = total - pull @ first_ref
        # What an input moves: every feature but its own.
        padded = torch.nn.functional.pad(first, (0, 0, 0, 1))  # (n, a + 1, h1)
        seen = padded.index_select(1, self.input_slot)  # (n, r, h1)
        torch.sub(total.unsqueeze(1), seen, out=seen)
        torch.mul(seen, inputs.unsqueeze(-1), out=slope.first.mT)
        if self.code.shape[1]:
            code_ref = first_ref.unsqueeze(-1) * self.code.unsqueeze(1)  # (a, h1, b)
            slope.code_weight[:] = first.mT @ self.code
            slope.code_weight.sub_(
                (pull @ code_ref.flatten(1)).view(n, *code_ref.shape[1:])
            )
        return out

    def _layers(self, params: Tensor, rows: slice) -> _Layers:
        weights = unpack(self.spec, params.unsqueeze(0))
        first, inputs = weights.first[0], self.inputs[rows]
        shift = self.code @ weights.code_weight[0].T + weights.bias[0]  # (a, h1)
        if inputs.shape[1] < FEW_INPUTS:
            masked = first * self.visible.unsqueeze(1)  # (a, h1, r)
            hidden = (inputs @ masked.flatten(0, 1).T).view(len(inputs), *shift.shape)
            hidden += shift
        else:
            hidden = (inputs @ first.T).unsqueeze(1) + shift
            own = (self.input_slot < len(self.active)).nonzero().squeeze(-1)
            hidden.index_add_(
                1,
                self.input_slot[own],
                inputs[:, own].unsqueeze(-1) * first.T[own],
                alpha=-1,
            )
        return _Layers(
            hidden=hidden.tanh_(),
            hidden_ref=shift.tanh(),
            second=weights.second[0],
            second_bias=weights.second_bias[0],
            out=weights.out[0],
        )


@dataclass(frozen=True, slots=True)
class _Layers:
    """Activations of the network on rows and at the reference."""

    hidden: Tensor  # (n, a, h1)
    hidden_ref: Tensor  # (a, h1)
    second: Tensor  # (h2, h1)
    second_bias: Tensor  # (h2,)
    out: Tensor  # (h2,)

    def angle(self) -> Tensor:
        return torch.nn.functional.linear(self.hidden, self.second, self.second_bias)

    def angle_ref(self) -> Tensor:
        return self.hidden_ref @ self.second.T + self.second_bias


@dataclass(frozen=True, slots=True)
class Posterior:
    """Marginal variances and half the log determinant of `I + J A^-1 J'`."""

    variance: Tensor  # (m,)
    half_log_det: float


@dataclass(frozen=True, slots=True)
class Primal:
    """Normal equations of the linearised loss, for m <= n.

    `level_gain` is twice what the intercept, which is projected out, could gain alone.
    """

    gram: Tensor  # (m, m)
    pull: Tensor  # (m,), minus the gradient of the loss
    level_gain: float = 0.0

    def step(self, dispersion: float, damped: Tensor, downhill: Tensor) -> Tensor:
        """Solve `(gram / dispersion + damped) move = downhill`, (m,) or (m, k)."""
        matrix = self.gram / dispersion
        matrix.diagonal().add_(damped)
        factor = _cholesky(matrix)
        return torch.cholesky_solve(_wide(downhill), factor).view_as(downhill)

    def posterior(self, dispersion: float, precision: Tensor) -> Posterior:
        """Laplace approximation around the current parameters."""
        root = (precision * dispersion).rsqrt()
        matrix = self.gram * root
        matrix *= root.unsqueeze(-1)
        matrix.diagonal().add_(1.0)
        factor = _cholesky(matrix)
        inverse = torch.cholesky_inverse(factor)
        return _posterior(inverse.diagonal() / precision, factor)


@dataclass(frozen=True, slots=True)
class Dual:
    """Whitened Jacobian, for m > n: every solve is n x n."""

    jacobian: Tensor  # (n, m)
    pull: Tensor  # (m,)
    level_gain: float = 0.0

    def step(self, dispersion: float, damped: Tensor, downhill: Tensor) -> Tensor:
        """Solve `(J'J / dispersion + damped) move = downhill`, (m,) or (m, k)."""
        scaled = self.jacobian / damped
        factor = self._factor(scaled, dispersion)
        free = _wide(downhill) / damped.unsqueeze(-1)
        dual = torch.cholesky_solve(self.jacobian @ free, factor)  # by Woodbury
        return (free - scaled.mT @ dual / dispersion).view_as(downhill)

    def posterior(self, dispersion: float, precision: Tensor) -> Posterior:
        """Laplace approximation around the current parameters."""
        scaled = self.jacobian / precision
        factor = self._factor(scaled, dispersion)
        whitened = torch.linalg.solve_triangular(factor, scaled, upper=False)
        explained = whitened.square_().sum(0) / dispersion
        return _posterior(1 / precision - explained, factor)

    def _factor(self, scaled: Tensor, dispersion: float) -> Tensor:
        matrix = scaled @ self.jacobian.mT
        matrix /= dispersion
        matrix.diagonal().add_(1.0)
        return _cholesky(matrix)


def _wide(vectors: Tensor) -> Tensor:
    return vectors if vectors.dim() == 2 else vectors.unsqueeze(-1)


def _cholesky(matrix: Tensor) -> Tensor:
    """Lower factor; a matrix that rounding made indefinite is lifted first."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    lift = LIFT
    while bool(info > 0) and lift < 1:
        matrix.diagonal().add_(lift * matrix.diagonal().abs().mean())
        factor, info = torch.linalg.cholesky_ex(matrix)
        lift *= 100
    return factor


def _posterior(variance: Tensor, factor: Tensor) -> Posterior:
    return Posterior(variance.clamp(min=1e-300), float(factor.diagonal().log().sum()))


@dataclass(frozen=True, slots=True)
class Working:
    """Roots of the working weights and whitened scores at dispersion one.

    The intercept has been projected out of the scores; `level_gain` is its share of
    their squares.
    """

    root: Tensor  # (n,)
    score: Tensor  # (n,)
    level_gain: float


def working_rows(rows: Rows, eta: Tensor) -> Working:
    """Weights and scores of the rows at `eta`, (n,)."""
    weight, family = rows.weight[0], rows.family
    counts = weight > 0  # rows of no weight may hold anything, even an overflow
    nothing = torch.zeros_like(weight)
    curvature = torch.where(counts, family.curvature(rows.y, eta), nothing)
    floor = WEIGHT_FLOOR * (weight * curvature).sum() / weight.sum()
    curvature = torch.maximum(curvature, floor).clamp(min=1e-300)
    root = (weight * curvature).sqrt()
    score = torch.where(counts, family.score(rows.y, eta), nothing)
    score = (weight / curvature).sqrt() * score
    unit = root / root.norm().clamp(min=1e-300)
    level = unit @ score
    return Working(root, score - unit * level, float(level.square()))


def linearise(
    tangent: Tangent,
    params: Tensor,
    coef: Tensor,
    working: Working,
    chunks: Sequence[slice],
) -> Primal | Dual:
    """Whiten the Jacobian by the working weights and project the intercept out."""
    n, q = tangent.terms.shape
    m = q + len(params)
    root = working.root
    square = (root @ root).clamp(min=1e-300)
    if m > n:
        whitened = root.new_empty(n, m)
        for rows in chunks:
            whitened[rows] = tangent.jacobian(params, coef, rows)
        whitened *= root.unsqueeze(-1)
        whitened.addr_(root, (root @ whitened) / square, alpha=-1)
        return Dual(whitened, working.score @ whitened, working.level_gain)
    gram, pull, tilt = root.new_zeros(m, m), root.new_zeros(m), root.new_zeros(m)
    centre: Tensor | None = None
    for rows in chunks:
        block, share = tangent.jacobian(params, coef, rows), root[rows]
        block *= share.unsqueeze(-1)
        if centre is None:
            # Any constant may be taken off the columns. One near their mean leaves
            # little for the correction below: no difference of large moments.
            centre = (share @ block) / (share @ share).clamp(min=1e-300)
        block.addr_(share, centre, alpha=-1)
        tilt += share @ block
        pull += working.score[rows] @ block
        _add_gram(gram, block)
    gram.addr_(tilt, tilt, alpha=-float(1 / square))
    gram = gram.triu_() + gram.triu(1).mT
    return Primal(gram, pull, working.level_gain)


def _add_gram(gram: Tensor, block: Tensor) -> None:
    """Add `block' block` to the part on and above the diagonal (and some below)."""
    for begin in range(0, len(gram), PANEL):
        end = begin + PANEL
        gram[begin:end, begin:].addmm_(block[:, begin:end].mT, block[:, begin:])


def needed_bytes(n_rows: int, n_parameters: int) -> int:
    """Memory of the matrices that a step cannot do without."""
    n, m = n_rows, n_parameters
    return 8 * (4 * m * m if m <= n else 3 * n * (m + n))
