"""Derivatives of eta by hand, and the linear algebra that Gauss-Newton needs of them.

The joint Jacobian of `eta` in coefficients and weights has n m numbers. It is never
held when m <= n: blocks of rows are made, added to the normal equations (`Primal`) and
forgotten. With more parameters than rows the smaller n x n system is solved instead
(`Dual`), which keeps the Jacobian.

Both hold a dispersion of one; the loss is `|residual - jacobian d|**2 / 2` divided by
the dispersion, so that precisions and dispersion may move without a new Jacobian.

Shapes: K models, n rows, q term columns, r inputs, p features, a active features,
b code bits, h1 and h2 hidden units, P weights, m = q + P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from sknimo.network import NetworkSpec, unpack
from sknimo.solver._profile import WEIGHT_FLOOR, PerMember, Rows
from sknimo.solver._quadratic import cut_rows

# Blocks of this size keep products efficient; larger ones are no faster on a CPU.
BLOCK_BYTES = 64 * 2**20
# From this many inputs on, one product for all features less each one's own columns
# beats a product with masked weights.
FEW_INPUTS = 16
# A symmetric product is made in panels of this many columns, above the diagonal only.
PANEL = 256
# Where there are many more columns than rows, smaller panels pay.
DUAL_PANEL = 96
# Relative to the mean diagonal of a matrix that rounding made indefinite.
LIFT = 1e-14
EVERY_ROW = slice(None)


class Tangent:
    """Design and Jacobian of `eta`, by hand, of one network or of K at once.

    Only features with a coefficient are evaluated, only inputs that are read. Weights
    are (P,) of one network, or (K, P): then everything else has the model axis, too.
    """

    def __init__(
        self,
        spec: NetworkSpec,
        inputs: Tensor,
        terms: Tensor,
        term_feature: Tensor,
        active: Tensor,
        reads: Tensor | None = None,
    ) -> None:
        self.spec, self.inputs, self.active = spec, inputs, active
        self.n_active = len(active)
        self.terms = terms  # (n, q), or (K, n, q) where models have other terms
        self.reads = reads  # (K, r), None where all models read all inputs
        device = terms.device
        slots = torch.arange(len(active), device=device)
        position = torch.full((spec.n_features,), len(active), device=device)
        position[active] = slots
        # The active feature that a term belongs to, `a` for one that is not bent.
        self.term_slot = position[term_feature]  # (q,)
        self.n_spare = int((self.term_slot == len(active)).any())
        self.one_each = torch.equal(self.term_slot, slots)
        owner = torch.tensor(spec.input_feature, dtype=torch.long, device=device)
        # The active feature that an input belongs to, `a` for none.
        self.input_slot = (
            position[owner] if spec.mask else torch.full_like(owner, len(active))
        )
        self.code = spec.codes().to(device)[active]  # (a, b)
        self.visible = (self.input_slot != slots.unsqueeze(-1)).double()  # (a, r)
        # Activations of the last weights whose design was made.
        self._known: tuple[Tensor, _Layers, Tensor] | None = None

    def take(self, members: Tensor) -> Tangent:
        """The same of some of the models."""
        if self.terms.dim() == 2 and self.reads is None:
            return self
        some = copy(self)
        some._known = None
        if self.terms.dim() == 3:
            some.terms = self.terms[members]
        if self.reads is not None:
            some.reads = self.reads[members]
        return some

    @property
    def is_linear(self) -> bool:
        """Whether there is nothing to bend or nothing to bend it."""
        return self.n_active == 0 or self.inputs.shape[1] == 0

    def chunks(self, n_bytes: float, n_models: int = 1) -> list[slice]:
        """Blocks of rows whose Jacobian and activations take that many bytes."""
        n, r = self.inputs.shape
        h1, h2 = self.spec.hidden
        n_parameters = self.terms.shape[-1] + self.spec.n_params
        per_row = 8 * (
            2 * n_parameters + len(self.active) * (4 * h1 + 4 * h2) + 2 * r * h1
        )
        return cut_rows(n, n_models * per_row, n_bytes)

    def design(
        self, params: Tensor, rows: slice = EVERY_ROW, keep: bool = False
    ) -> Tensor:
        """`phi * (1 + g)` of some rows, (n, q) or (K, n, q).

        What is kept of all rows spares a Jacobian of the same weights half its work.
        """
        terms = self.terms[..., rows, :]
        if self.is_linear:
            return terms if params.dim() == 1 else terms.expand(len(params), -1, -1)
        layers = self._layers(torch.atleast_2d(params), rows)
        angle = layers.angle()
        if keep:
            self._known = params, layers, angle
        sine = angle.sin() if keep else angle.sin_()
        bend = layers.bend(sine, layers.angle_ref().sin_())
        bent = (self._of_terms(bend) + 1).mul_(terms.mT)
        return bent.mT.view(*params.shape[:-1], *terms.shape[-2:])

    def _of_terms(self, bend: Tensor) -> Tensor:
        """Bends (K, a, n) of the features that own the terms, zero for others."""
        if self.one_each:
            return bend
        padded = torch.nn.functional.pad(bend, (0, 0, 0, self.n_spare))
        return padded.index_select(1, self.term_slot)

    def jacobian(self, params: Tensor, coef: Tensor, rows: slice = EVERY_ROW) -> Tensor:
        """`d eta / d (coef, params)` of some rows; the design comes first.

        (n, m), or (K, n, m), a view of memory in which rows come last.
        """
        weights, terms = torch.atleast_2d(params), self.terms[..., rows, :].mT
        q, n = terms.shape[-2:]
        out = terms.new_empty(len(weights), q + weights.shape[1], n)
        if self.is_linear:
            out.zero_()[:, :q] = terms
        else:
            parts = torch.atleast_2d(coef).unsqueeze(-1) * terms
            known, self._known = self._known, None  # its memory is written over
            if known is not None and known[0] is params and rows == EVERY_ROW:
                layers, angle = known[1:]
            else:
                layers = self._layers(weights, rows)
                angle = layers.angle()
            self._differentiate(out, layers, angle, terms, parts, rows)
        return out.mT.view(*params.shape[:-1], n, out.shape[1])

    def _pull(self, parts: Tensor) -> Tensor:
        """Contributions (K, q, n) of terms summed by active feature, (K, a, n)."""
        if self.one_each:
            return parts
        n_slots = self.n_active + self.n_spare
        pull = parts.new_zeros(len(parts), n_slots, parts.shape[2])
        pull.index_add_(1, self.term_slot, parts)
        return pull[:, : self.n_active]

    def _differentiate(
        self,
        out: Tensor,
        layers: _Layers,
        angle: Tensor,
        terms: Tensor,
        parts: Tensor,
        rows: slice,
    ) -> None:
        """Write the Jacobian (K, m, n), given contributions (K, q, n) without bends."""
        pull, angle_ref = self._pull(parts), layers.angle_ref()
        weight = layers.out
        wave = angle.cos().mul_(weight.unsqueeze(-1)).mul_(pull.unsqueeze(2))
        wave_ref = weight * angle_ref.cos()  # (K, a, h2)
        sine, sine_ref = angle.sin_(), angle_ref.sin()
        bend = self._of_terms(layers.bend(sine, sine_ref))
        q, n = parts.shape[1:]
        torch.mul(terms, bend + 1, out=out[:, :q])
        blocks = out[:, q:].split(self.spec.sizes, dim=1)
        first_block, code, bias, second, second_bias, last = blocks
        sine.mul_(pull.unsqueeze(2))
        last_ref = sine_ref
        if self.spec.own_out:
            self._by_code(last, sine)
            last_ref = (sine_ref.unsqueeze(-1) * self.code.unsqueeze(1)).flatten(2)
        else:
            torch.sum(sine, 1, out=last)
        torch.sum(wave, 1, out=second_bias)
        hidden, hidden_ref = layers.hidden, layers.hidden_ref
        square = second.view(len(parts), *self.spec.hidden[::-1], n)
        torch.mul(wave[:, 0].unsqueeze(2), hidden[:, 0].unsqueeze(1), out=square)
        for k in range(1, wave.shape[1]):
            square.addcmul_(wave[:, k].unsqueeze(2), hidden[:, k].unsqueeze(1))
        second_ref = wave_ref.unsqueeze(-1) * hidden_ref.unsqueeze(-2)
        first = layers.second.mT.unsqueeze(1) @ wave  # (K, a, h1, n)
        first.addcmul_(first, hidden.square_(), value=-1)
        first_ref = (wave_ref @ layers.second) * (1 - hidden_ref.square())
        total = first.sum(1)  # (K, h1, n)
        bias.copy_(total)
        self._differentiate_inputs(first_block, total, first, rows)
        self._by_code(code, first)
        code_ref = first_ref.unsqueeze(-1) * self.code.unsqueeze(1)
        # Less what the reference takes away, where inputs are zero; (K, a, size) each.
        taken = [code_ref.flatten(2), first_ref, second_ref.flatten(2), wave_ref]
        reference = torch.cat([*taken, last_ref], dim=2)
        later = out[:, q + first_block.shape[1] :]
        later.baddbmm_(reference.mT, pull, alpha=-1)

    def _by_code(self, block: Tensor, units: Tensor) -> None:
        """Units (K, a, h, n) summed by each number of the code, (K, h b, n)."""
        block.copy_((self.code.T @ units.transpose(1, 2)).flatten(1, 2))

    def _differentiate_inputs(
        self, block: Tensor, total: Tensor, first: Tensor, rows: slice
    ) -> None:
        """What an input moves: every feature but its own."""
        inputs = self.inputs[rows].mT  # (r, n)
        moved = block.view(*total.shape[:2], *inputs.shape)  # (K, h1, r, n)
        torch.mul(total.unsqueeze(2), inputs, out=moved)
        owned = self.input_slot < self.n_active
        slots = self.input_slot[owned]
        own = first.index_select(1, slots).transpose(1, 2)  # (K, h1, r', n)
        if len(slots) == len(inputs):
            moved.addcmul_(own, inputs, value=-1)
        else:
            moved[:, :, owned] -= own * inputs[owned]
        if self.reads is not None:
            moved *= self.reads[:, None, :, None]

    def _layers(self, params: Tensor, rows: slice) -> _Layers:
        weights, inputs = unpack(self.spec, params), self.inputs[rows].mT
        shift = self.code @ weights.code_weight.mT + weights.bias.unsqueeze(1)
        n_active = shift.shape[1]
        if len(inputs) < FEW_INPUTS:
            # (K, a, h1, r)
            masked = weights.first.unsqueeze(1) * self.visible.unsqueeze(1)
            hidden = torch.matmul(masked.flatten(1, 2), inputs)
            hidden = hidden.view(*shift.shape, -1)
            hidden += shift.unsqueeze(-1)
        else:
            hidden = (weights.first @ inputs).unsqueeze(1) + shift.unsqueeze(-1)
            own = (self.input_slot < n_active).nonzero().squeeze(-1)
            part = weights.first.mT[:, own].unsqueeze(-1) * inputs[own].unsqueeze(1)
            hidden.index_add_(1, self.input_slot[own], part, alpha=-1)
        return _Layers(
            hidden=hidden.tanh_(),
            hidden_ref=shift.tanh(),
            second=weights.second,
            second_bias=weights.second_bias,
            out=weights.outputs(self.code),
        )


@dataclass(frozen=True, slots=True)
class _Layers:
    """Activations of the networks on rows and at the reference."""

    hidden: Tensor  # (K, a, h1, n): rows come last, operations on them are long
    hidden_ref: Tensor  # (K, a, h1)
    second: Tensor  # (K, h2, h1)
    second_bias: Tensor  # (K, h2)
    out: Tensor  # (K, a, h2), or (K, 1, h2) of all

    def angle(self) -> Tensor:
        angle = self.second.unsqueeze(1) @ self.hidden
        return angle.add_(self.second_bias[:, None, :, None])

    def angle_ref(self) -> Tensor:
        bias = self.second_bias.unsqueeze(1)
        return torch.baddbmm(bias, self.hidden_ref, self.second.mT)

    def bend(self, sine: Tensor, sine_ref: Tensor) -> Tensor:
        """Modulations, (K, a, n)."""
        bend = (self.out.unsqueeze(2) @ sine).squeeze(2)
        return bend.sub_((sine_ref * self.out).sum(-1, keepdim=True))


@dataclass(frozen=True, slots=True)
class Posterior:
    """Marginal variances and half the log determinant of `I + J A^-1 J'`."""

    variance: Tensor  # (K, m)
    half_log_det: Tensor  # (K,)


@dataclass(frozen=True, slots=True)
class Primal(PerMember):
    """Normal equations of the linearised loss, for m <= n.

    `level_gain` is twice what the intercept, which is projected out, could gain alone.
    """

    gram: Tensor  # (K, m, m)
    pull: Tensor  # (K, m), minus the gradient of the loss
    level_gain: Tensor  # (K,)

    def factorised(self, dispersion: Tensor, precision: Tensor) -> PrimalFactor:
        """The same divided by dispersions, with precisions (K, m) on the diagonal."""
        root = precision.rsqrt()
        scale = root * dispersion.rsqrt().unsqueeze(-1)
        matrix = self.gram * scale.unsqueeze(-2)
        matrix *= scale.unsqueeze(-1)
        _diagonal(matrix).add_(1.0)
        return PrimalFactor(root.unsqueeze(-1), _cholesky(matrix))


@dataclass(frozen=True, slots=True)
class PrimalFactor:
    """Of `root (gram / dispersion + precision) root`: its diagonal is above one."""

    root: Tensor  # (K, m, 1), of the inverse precisions
    factor: Tensor  # (K, m, m)

    def solve(self, target: Tensor) -> Tensor:
        """`(gram / dispersion + precision) x = target`, (K, m, k)."""
        return self.root * torch.cholesky_solve(self.root * target, self.factor)

    def posterior(self) -> Posterior:
        """Laplace approximation around the current parameters."""
        inverse = _diagonal(torch.cholesky_inverse(self.factor))
        return _posterior(inverse * self.root.squeeze(-1).square(), self.factor)


@dataclass(frozen=True, slots=True)
class Dual(PerMember):
    """Whitened Jacobian, for m > n: every solve is n x n."""

    jacobian: Tensor  # (K, n, m)
    pull: Tensor  # (K, m)
    level_gain: Tensor  # (K,)

    def factorised(self, dispersion: Tensor, precision: Tensor) -> DualFactor:
        """The same divided by dispersions, with precisions (K, m) as a prior."""
        scale = precision.rsqrt() * dispersion.rsqrt().unsqueeze(-1)
        scaled = self.jacobian * scale.unsqueeze(-2)
        matrix = scaled.new_zeros(*scaled.shape[:2], scaled.shape[1])
        _add_gram(matrix, scaled, DUAL_PANEL)
        _mirror(matrix, DUAL_PANEL)
        _diagonal(matrix).add_(1.0)
        return DualFactor(scaled, precision.unsqueeze(-1), _cholesky(matrix))


@dataclass(frozen=True, slots=True)
class DualFactor:
    """Of `I + scaled scaled'`, by which all is known of `scaled' scaled + I`."""

    scaled: Tensor  # (K, n, m), Jacobian over roots of dispersion and precision
    precision: Tensor  # (K, m, 1)
    factor: Tensor  # (K, n, n)

    def solve(self, target: Tensor) -> Tensor:
        """`(J'J / dispersion + precision) x = target`, (K, m, k), by Woodbury."""
        root = self.precision.rsqrt()
        free = root * target
        dual = torch.cholesky_solve(self.scaled @ free, self.factor)
        return root * (free - self.scaled.mT @ dual)

    def posterior(self) -> Posterior:
        """Laplace approximation around the current parameters."""
        # One small inverse and products are far faster than a solve per parameter.
        n = self.factor.shape[-1]
        unit = torch.eye(n, dtype=self.factor.dtype, device=self.factor.device)
        inverse = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        explained = torch.zeros_like(self.scaled[:, 0])
        for begin in range(0, n, DUAL_PANEL):
            end = min(begin + DUAL_PANEL, n)
            whitened = inverse[:, begin:end, :end] @ self.scaled[:, :end]
            explained += whitened.square_().sum(-2)
        return _posterior((1 - explained) / self.precision.squeeze(-1), self.factor)


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _cholesky(matrix: Tensor) -> Tensor:
    """Lower factors; matrices that rounding made indefinite are lifted first."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    lift = LIFT
    while lift < 1 and bool((info > 0).any()):
        bad = info > 0
        size = _diagonal(matrix).abs().mean(-1, keepdim=True)
        _diagonal(matrix).add_(lift * size * bad.unsqueeze(-1))
        again, info = torch.linalg.cholesky_ex(matrix)
        factor = torch.where(bad[:, None, None], again, factor)
        lift *= 100
    return factor


def _posterior(variance: Tensor, factor: Tensor) -> Posterior:
    return Posterior(variance.clamp(min=1e-300), _diagonal(factor).log().sum(-1))


@dataclass(frozen=True, slots=True)
class Working:
    """Roots of the working weights and whitened scores at dispersion one.

    The intercept has been projected out of the scores; `level` is its share.
    """

    root: Tensor  # (K, n)
    unit: Tensor  # (K, n), roots of length one
    score: Tensor  # (K, n)
    level: Tensor  # (K,)

    @property
    def level_gain(self) -> Tensor:
        """Twice what the intercept could gain alone, (K,)."""
        return self.level.square()


def working_rows(rows: Rows, eta: Tensor, known: Working | None = None) -> Working:
    """Weights and scores of the rows at `eta`, (K, n).

    Weights of squares are those that are `known` anywhere.
    """
    weight, family = rows.weight, rows.family
    counts = weight > 0  # rows of no weight may hold anything, even an overflow
    score = torch.where(counts, family.score(rows.y, eta), 0.0)
    if family.least_squares:
        root = weight.sqrt() if known is None else known.root
        score *= root
    else:
        curvature = torch.where(counts, family.curvature(rows.y, eta), 0.0)
        total = (weight * curvature).sum(-1, keepdim=True)
        floor = WEIGHT_FLOOR * total / weight.sum(-1, keepdim=True)
        curvature = torch.maximum(curvature, floor).clamp(min=1e-300)
        root = (weight * curvature).sqrt()
        score *= (weight / curvature).sqrt()
    if family.least_squares and known is not None:
        unit = known.unit
    else:
        unit = root / root.norm(dim=-1, keepdim=True).clamp(min=1e-300)
    level = (unit * score).sum(-1, keepdim=True)
    return Working(root, unit, score - unit * level, level.squeeze(-1))


def linearise(
    tangent: Tangent,
    params: Tensor,
    coef: Tensor,
    working: Working,
    chunks: Sequence[slice],
) -> Primal | Dual:
    """Whiten the Jacobian by the working weights and project the intercept out.

    Weights (K, P) and coefficients (K, q) of K models.
    """
    n_models, n = working.root.shape
    m = coef.shape[1] + params.shape[1]
    if len(chunks) == 1:
        return Whitened(tangent.jacobian(params, coef).mT, working.root).at(working)
    if m > n:
        whole = coef.new_empty(n_models, m, n)
        for rows in chunks:
            whole[..., rows] = tangent.jacobian(params, coef, rows).mT
        return Whitened(whole, working.root).at(working)
    root = working.root.unsqueeze(1)  # (K, 1, n)
    square = root.square().sum(-1, keepdim=True).clamp(min=1e-300)
    score = working.score.unsqueeze(-1)  # (K, n, 1)
    gram = root.new_zeros(n_models, m, m)
    pull, tilt = root.new_zeros(n_models, m, 1), root.new_zeros(n_models, m, 1)
    centre: Tensor | None = None
    for rows in chunks:
        block, share = tangent.jacobian(params, coef, rows).mT, root[..., rows]
        block *= share
        if centre is None:
            # Any constant may be taken off the columns. One near their mean leaves
            # little for the correction below: no difference of large moments.
            size = share.square().sum(-1, keepdim=True).clamp(min=1e-300)
            centre = (block @ share.mT) / size
        block.addcmul_(centre, share, value=-1)
        tilt += block @ share.mT
        pull += block @ score[:, rows]
        _add_gram(gram, block, PANEL)
    gram.baddbmm_(tilt, tilt.mT / square, alpha=-1)
    _mirror(gram, PANEL)
    return Primal(gram, pull.squeeze(-1), working.level_gain)


class Whitened:
    """Columns (K, m, n) of a Jacobian, weighed by roots, without the intercept.

    They are written over. Without a network and with squares only scores ever change.
    """

    def __init__(self, columns: Tensor, root: Tensor) -> None:
        root = root.unsqueeze(1)
        square = root.square().sum(-1, keepdim=True).clamp(min=1e-300)
        columns *= root
        columns.addcmul_((columns @ root.mT) / square, root, value=-1)
        self.columns = columns
        m, n = columns.shape[1:]
        # `Dual` needs all of the columns and `Primal` their products.
        self.gram: Tensor | None = None
        if m <= n:
            self.gram = columns.new_zeros(len(columns), m, m)
            _add_gram(self.gram, columns, PANEL)
            _mirror(self.gram, PANEL)

    def at(self, working: Working) -> Primal | Dual:
        """With the scores at some coefficients."""
        pull = (self.columns @ working.score.unsqueeze(-1)).squeeze(-1)
        if self.gram is None:
            return Dual(self.columns.mT, pull, working.level_gain)
        return Primal(self.gram, pull, working.level_gain)


def _add_gram(gram: Tensor, block: Tensor, panel: int) -> None:
    """Add `block block'` to the part on and above the diagonal (and some below)."""
    for begin in range(0, gram.shape[1], panel):
        end = begin + panel
        gram[:, begin:end, begin:].baddbmm_(block[:, begin:end], block[:, begin:].mT)


def _mirror(gram: Tensor, panel: int) -> None:
    """Copy to below the diagonal what panels have left out there."""
    for begin in range(panel, gram.shape[1], panel):
        end = begin + panel
        gram[:, begin:end, :begin] = gram[:, :begin, begin:end].mT


def needed_bytes(n_rows: int, n_parameters: int) -> int:
    """Memory of the matrices that a step cannot do without."""
    n, m = n_rows, n_parameters
    return 8 * (4 * m * m if m <= n else 3 * n * (m + n))
