"""The linear predictor of many rows, without its parts.

Explanations want the contribution of every term; a prediction wants their sum alone.
`compile_predictor` keeps what can change that sum: terms with a coefficient, features
that some member bends, inputs that reach them. With D the contributions at the
reference of one member's features and g their modulations,

    eta = base + terms . mean coef + mean over members of sum_j D_j g_j,

and the network works through *tiles*: so many rows times so many features that the
activations stay in the cache of a core. A tile masks in two steps. Inputs of its own
features meet masked weights; all others reach every feature of the tile alike and are
multiplied once. Features that own many inputs have a tile each, which adds up what the
others bring. Nothing is subtracted, so that a feature is hidden from itself to the last
bit, and so is the reference: equal first layers give `g = 0`. Everything is in double
precision, whatever the network was trained in.

Blocks of rows are shared out to threads (`machine`). What a row gets depends neither on
their number nor on what else is computed at the time.

Shapes: M members, n rows, p features, q terms, r inputs, s features of a tile.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.features import Basis, FeatureMap, Linear
from sknimo.machine import run_alone
from sknimo.network import (
    FEW_OWN_INPUTS,
    MASKED_PRODUCT_INPUTS,
    NetworkSpec,
    Weights,
    put_out,
    sum_others,
    unpack,
)

# Activations of one layer in a tile; two layers take half a megabyte.
TILE_SIZE = 2**15
# A tile has at least so many rows, or its products are too thin.
TILE_ROWS = 128
# Rows that a thread takes at a time.
TASK_ROWS = 2048
# What adding the shared product costs, in multiplications per activation.
SHARED_COST = 32
# Rows of a block on a GPU, memory permitting, and the share of memory it may take.
GPU_ROWS = 2**17
GPU_SHARE = 0.25
# What leaves values as they are.
NO_LINE = Linear(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """Columns of one feature that is not a plain line."""

    feature: int  # column of the table
    basis: Basis
    keep: np.ndarray  # columns of the basis that are used
    place: slice  # where they go


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a model uses, terms and inputs alike, and a column of ones."""

    source: np.ndarray  # (c,), integer, column of the table that each is made from
    # As in `Linear`; those of `NO_LINE` for columns that are no lines.
    reference: Tensor  # (c,)
    scale: Tensor  # (c,)
    residue: Tensor  # (c,)
    curves: tuple[Curve, ...]  # how those are made

    def read(self, table: np.ndarray) -> Tensor:
        """The columns of some rows of a table, (n, c), on the device of the record."""
        table = np.asarray(table, dtype=np.float64)
        out = torch.from_numpy(np.take(table, self.source, axis=1))
        out = out.to(self.reference.device)
        out -= self.reference
        if self.residue.any():
            out = torch.where(out == 0, 0.0, out - self.residue)
        out /= self.scale
        for curve in self.curves:
            values = curve.basis.terms(table[:, curve.feature])[:, curve.keep]
            out[:, curve.place] = torch.as_tensor(values).to(out.device)
        out[:, -1] = 1.0
        return out


@dataclass(frozen=True, slots=True)
class Tile:
    """Some features of one member, evaluated together."""

    terms: slice  # columns that hold their terms
    # Coefficients over the number of members: terms times these are D.
    coef: Tensor  # (terms, s)
    # Columns that hold their own inputs, or all columns where nothing is shared.
    inputs: slice
    # First layer of those, masked; what others see of them in a tile of its own.
    own: Tensor  # (inputs, s h1)
    shift: Tensor  # (s, h1), first layer at the reference
    level: Tensor  # (s h1,), its hyperbolic tangent
    base: Tensor  # (s h2,), second layer at the reference
    base_sin: Tensor  # (s h2,), its sine
    out: Tensor  # (s, h2), or (1, h2) where all features have the same


@dataclass(frozen=True, slots=True)
class Bends:
    """What one member adds to the line."""

    # First layer of inputs that no feature of a tile owns. Without it the tiles have
    # weights for all columns, and the shift stands at the column of ones.
    shared: Tensor | None  # (reads, tiles h1); (reads, h1) where tiles are apart
    reads: slice  # columns that it is of
    apart: bool  # whether tiles add up what others bring, and see nothing of their own
    second: Tensor  # (h1, h2)
    tiles: tuple[Tile, ...]

    def add_to(self, eta: Tensor, columns: Tensor) -> None:
        """Add the bends of some rows to `eta`, (n,)."""
        n_rows, (h1, h2) = len(columns), self.second.shape
        shared = self._share(columns)
        for tile, part in zip(self.tiles, shared, strict=True):
            if part is None:
                hidden = columns @ tile.own
            else:
                hidden = (part.unsqueeze(1) + tile.shift).view(n_rows, -1)
                if not self.apart:
                    hidden.addmm_(columns[:, tile.inputs], tile.own)
            hidden.tanh_().sub_(tile.level)
            second = (hidden.view(-1, h1) @ self.second).view(n_rows, -1)
            second.add_(tile.base).sin_().sub_(tile.base_sin)
            bend = put_out(tile.out[None], second.view(1, n_rows, -1, h2))[0]
            eta += ((columns[:, tile.terms] @ tile.coef) * bend).sum(1)

    def _share(self, columns: Tensor) -> Sequence[Tensor | None]:
        """What reaches each tile from inputs that it does not own, (n, h1) each."""
        if self.shared is None:
            return [None] * len(self.tiles)
        shared = columns[:, self.reads] @ self.shared
        if not self.apart:
            return shared.split(len(self.second), dim=1)
        own = [columns[:, tile.inputs] @ tile.own for tile in self.tiles]
        return sum_others(own, shared)


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model reduced to its linear predictor."""

    columns: Columns
    base_value: float
    coef: Tensor  # (c,), mean coefficient of each column, zero unless it is a term
    bends: tuple[Bends, ...]  # one for each member whose network does anything
    tile_rows: int  # rows of a tile on a CPU
    row_bytes: int  # memory that a row needs

    def eta(self, table: np.ndarray, blocks: Iterable[slice]) -> np.ndarray:
        """Linear predictor, (n,); blocks of rows are cut further but never joined."""
        out = np.empty(len(table))
        if self.coef.device.type != "cpu":
            with torch.inference_mode():
                for rows in _cut(slice(0, len(table)), self._gpu_rows()):
                    columns = self.columns.read(table[rows])
                    out[rows] = self._evaluate(columns).cpu().numpy()
            return out

        def work(rows: slice) -> None:
            columns = self.columns.read(table[rows])
            for tile in _cut(slice(0, len(columns)), self.tile_rows):
                out[rows][tile] = self._evaluate(columns[tile]).numpy()

        size = self.tile_rows * max(TASK_ROWS // self.tile_rows, 1)
        run_alone(work, [part for block in blocks for part in _cut(block, size)])
        return out

    def _evaluate(self, columns: Tensor) -> Tensor:
        # Added last: where every term is zero, `eta` is the base value to the last bit.
        eta = columns @ self.coef
        for member in self.bends:
            member.add_to(eta, columns)
        return eta.add_(self.base_value)

    def _gpu_rows(self) -> int:
        """Rows of a block: a power of two, so that memory hardly ever changes it."""
        free, _ = torch.cuda.mem_get_info(self.coef.device)
        fitting = max(int(GPU_SHARE * free) // self.row_bytes, 1)
        return int(min(2 ** (fitting.bit_length() - 1), GPU_ROWS))


def _cut(rows: slice, size: int) -> Iterator[slice]:
    for begin in range(rows.start, rows.stop, size):
        yield slice(begin, min(begin + size, rows.stop))


# Compiling


def compile_predictor(
    features: FeatureMap,
    spec: NetworkSpec,
    coef: Tensor,
    intercept: Tensor,
    params: Tensor,
    modulated: Tensor,
) -> Predictor:
    """Reduce M members to what changes their mean linear predictor.

    Parameters are those of `FittedModel`.
    """
    coef, weights = coef.double(), unpack(spec, params.double())
    term_feature = torch.as_tensor(features.term_feature)
    views = (getattr(weights, field.name) for field in fields(weights))
    members = [Weights(*each) for each in zip(*views, strict=True)]
    live = [
        _live(spec, term_feature, member, coef[m], modulated[m])
        for m, member in enumerate(members)
    ]
    used = [(coef != 0).any(0), torch.stack([each.inputs for each in live]).any(0)]
    columns, places = _choose_columns(features, used[0].numpy(), used[1].numpy())
    width = len(columns.source)
    column_coef = coef.new_zeros(len(coef), width)
    column_coef[:, places.terms[used[0]]] = coef[:, used[0]] / len(coef)
    bends = [
        _compile_member(spec, member, each, column_coef[m], places)
        for m, (member, each) in enumerate(zip(members, live, strict=True))
        if each.features.any()
    ]
    tiles = [tile for member in bends for tile in member.tiles]
    widest = max((len(tile.shift) for tile in tiles), default=1) * max(spec.hidden)
    shared = max((len(member.tiles) for member in bends), default=0) * spec.hidden[0]
    return Predictor(
        columns=columns,
        base_value=float(intercept.double().mean()),
        coef=column_coef.sum(0),
        bends=tuple(bends),
        tile_rows=max(TILE_SIZE // widest, 1),
        row_bytes=8 * (3 * width + 3 * widest + shared),
    )


@dataclass(frozen=True, slots=True)
class Live:
    """What a member needs its network for."""

    features: Tensor  # (p,), bool, features that it bends
    inputs: Tensor  # (r,), bool, inputs that bend them


@dataclass(frozen=True, slots=True)
class Places:
    """Where terms and inputs stand among the columns that are read."""

    terms: Tensor  # (q,), integer
    inputs: Tensor  # (r,), integer, nothing is said of those that are not used
    owner: Tensor  # (c,), integer, the feature that owns each column, p for the ones


def _live(
    spec: NetworkSpec,
    term_feature: Tensor,
    weights: Weights,
    coef: Tensor,
    modulated: Tensor,
) -> Live:
    """Leave out exact zeros: without coefficient, without inputs but one's own."""
    owner = torch.tensor(spec.input_feature, dtype=torch.long)
    inputs = (weights.first != 0).any(0) & (weights.out != 0).any()
    seen = inputs.sum().expand(spec.n_features)
    if spec.mask:
        seen = seen - torch.bincount(owner[inputs], minlength=spec.n_features)
    bent = torch.zeros(spec.n_features, dtype=torch.bool)
    bent[term_feature[coef != 0]] = True
    bent &= modulated & (seen > 0)
    return Live(bent, inputs & bent.any())


def _choose_columns(
    features: FeatureMap, term_used: np.ndarray, input_used: np.ndarray
) -> tuple[Columns, Places]:
    """What to read, feature by feature; a basis that serves twice is read once."""
    terms, inputs = np.zeros(len(term_used), int), np.zeros(len(input_used), int)
    term_feature, input_feature = features.term_feature, features.input_feature
    source: list[int] = []
    lines: list[Linear] = []
    curves: list[Curve] = []
    for j in range(features.n_features):
        basis, seen = features.bases[j], features.input_bases[j]
        own_terms = np.flatnonzero(term_feature == j)
        own_inputs = np.flatnonzero(input_feature == j)
        wanted = [(basis, term_used[own_terms]), (seen, input_used[own_inputs])]
        if _same(basis, seen):
            wanted = [(basis, wanted[0][1] | wanted[1][1])]
        begins = []
        for kind, used in wanted:
            begin, keep = len(source), np.flatnonzero(used)
            begins.append(begin + np.cumsum(used) - 1)
            if len(keep) and not isinstance(kind, Linear):
                curves.append(Curve(j, kind, keep, slice(begin, begin + len(keep))))
            lines += [kind if isinstance(kind, Linear) else NO_LINE] * len(keep)
            source += [j] * len(keep)
        terms[own_terms], inputs[own_inputs] = begins[0], begins[-1]
    reference, scale, residue = torch.tensor(
        [(line.reference, line.scale, line.residue) for line in (*lines, NO_LINE)],
        dtype=torch.float64,
    ).T.contiguous()
    columns = Columns(np.array([*source, 0]), reference, scale, residue, tuple(curves))
    owner = torch.tensor([*source, features.n_features])
    return columns, Places(torch.as_tensor(terms), torch.as_tensor(inputs), owner)


def _same(first: Any, second: Any) -> bool:
    """Whether two bases are equal; those of a model that was loaded are no twins."""
    if is_dataclass(first) and type(first) is type(second):
        return all(
            _same(getattr(first, field.name), getattr(second, field.name))
            for field in fields(first)
        )
    return bool(np.array_equal(first, second))


@dataclass(frozen=True, slots=True)
class Layout:
    """How the features of a member are cut into tiles."""

    size: int  # features in a tile
    sharing: bool  # whether a tile shares inputs that it does not own
    apart: bool = False  # whether it gets them as a sum over the other tiles


def _lay_out(spec: NetworkSpec, n_features: int, n_inputs: int) -> Layout:
    """How many features a tile has, and what they share.

    As many features as fit, or fewer where sharing pays. Per activation, one masked
    product costs a multiplication for every input; with s features in a tile, those of
    the tile and every s-th of the others.
    """
    most = min(n_features, max(TILE_SIZE // (TILE_ROWS * max(spec.hidden)), 1))
    if not spec.mask:
        return Layout(most, sharing=True)
    if n_inputs > max(FEW_OWN_INPUTS * n_features, MASKED_PRODUCT_INPUTS):
        return Layout(1, sharing=True, apart=True)
    size = np.arange(1, most + 1)
    own = n_inputs * size / n_features
    cost = own + (n_inputs - own) / size + SHARED_COST
    best = int(cost.argmin())
    if cost[best] < n_inputs:
        return Layout(int(size[best]), sharing=True)
    return Layout(most, sharing=False)


def _compile_member(
    spec: NetworkSpec, weights: Weights, live: Live, coef: Tensor, places: Places
) -> Bends:
    """Cut the features of one member into tiles and mask their weights."""
    width = len(coef)
    inputs = live.inputs.nonzero().squeeze(-1)
    first = weights.first.new_zeros(width, spec.hidden[0])
    first[places.inputs[inputs]] = weights.first[:, inputs].T
    shift = spec.codes() @ weights.code_weight.T + weights.bias  # (p, h1)
    outputs = weights.out.unsqueeze(0)
    if spec.own_out:
        outputs = spec.codes() @ weights.out.T  # (p, h2)
    active = live.features.nonzero().squeeze(-1)
    layout = _lay_out(spec, len(active), len(inputs))
    tiles, shared, others = [], [], first.clone()
    for group in active.split(layout.size):
        at = shift[group]  # (s, h1)
        member_of = places.owner.unsqueeze(-1) == group  # (c, s)
        terms = _span(member_of.any(1) & (coef != 0))
        seen = _span(member_of.any(1) & spec.mask) if layout.sharing else slice(width)
        own = first.unsqueeze(1) * ~member_of.unsqueeze(-1)  # (c, s, h1)
        if layout.apart:
            seen = _span(member_of.any(1) & (first != 0).any(1))
            own = first.unsqueeze(1)
            others[seen] = 0
        elif layout.sharing:
            others = first.clone()
            others[seen] = 0
            shared.append(others)
        else:
            own[-1] = at
        base = at.tanh() @ weights.second.T + weights.second_bias
        tiles.append(
            Tile(
                terms=terms,
                coef=(coef.unsqueeze(-1) * member_of)[terms],
                inputs=seen,
                own=own[seen].flatten(1),
                shift=at,
                level=at.tanh().flatten(),
                base=base.flatten(),
                base_sin=base.sin().flatten(),
                out=(outputs[group] if spec.own_out else outputs).clone(),
            )
        )
    reads = _span((others != 0).any(1)) if layout.apart else slice(width)
    return Bends(
        shared=torch.cat(shared or [others[reads]], dim=1) if layout.sharing else None,
        reads=reads,
        apart=layout.apart,
        second=weights.second.T.contiguous(),
        tiles=tuple(tiles),
    )


def _span(chosen: Tensor) -> slice:
    """The shortest slice that holds every chosen place."""
    places = chosen.nonzero()
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)
