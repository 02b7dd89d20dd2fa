"""The linear predictor of many rows, without its parts.

Explanations want the contribution of every term; a prediction wants their sum alone.
`compile_predictor` keeps what can change that sum: terms with a coefficient, features
that some member bends, inputs that reach them. With D the contributions at the
reference of one member's features and g their modulations,

    eta = base + terms . mean coef + mean over members of sum_j D_j g_j,

and the network works through *tiles*: so many rows times so many features that the
activations stay in the cache of a core. A tile masks in two steps. Inputs of its own
features meet masked weights; all others reach every feature of the tile alike and are
multiplied once. Nothing is subtracted, so that a feature is hidden from itself to the
last bit, and so is the reference: equal first layers give `g = 0`.

Blocks of rows are shared out to threads on which torch computes alone. A team of
threads within each small product waits more than it works, and on a busy machine a
hundred times as long. What a row gets depends neither on the number of threads nor on
what else is computed at the time.

Shapes: M members, n rows, p features, q terms, r inputs, s features of a tile.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sknimo.features import Basis, FeatureMap, Linear
from sknimo.network import NetworkSpec, Weights, unpack

# Activations of one layer in a tile; two layers in double precision take a megabyte.
TILE_SIZE = 2**16
# A tile has at least so many rows, or its products are too thin.
TILE_ROWS = 128
# Rows that a thread takes at a time.
TASK_ROWS = 2048
# What adding the shared product costs, in multiplications per activation.
SHARED_COST = 8
# Rows of a block on a GPU, memory permitting, and the share of memory it may take.
GPU_ROWS = 2**17
GPU_SHARE = 0.25


class Movable:
    """A record whose tensors can go to a device."""

    __slots__ = ()

    def to(self, device: torch.device) -> Self:
        """The same record with its tensors on a device."""
        moved: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Tensor | Movable):
                moved[field.name] = value.to(device)
            elif isinstance(value, tuple):
                moved[field.name] = tuple(
                    v.to(device) if isinstance(v, Movable) else v for v in value
                )
        return replace(self, **moved)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Curve(Movable):
    """Columns of one feature that is not a plain line.

    Attributes
    ----------
    feature : int
        Column of the table.
    basis : Basis
    keep : ndarray of int
        Columns of the basis that are used.
    place : slice
        Where they go.
    """

    feature: int
    basis: Basis
    keep: np.ndarray
    place: slice


@dataclass(frozen=True, slots=True)
class Columns(Movable):
    """The columns that a model uses, terms and inputs alike, c in number.

    Attributes
    ----------
    width : int
        Number of columns, c.
    lines : ndarray of int
        Columns of the table that are only shifted and scaled.
    place : Tensor of int
        Where they go.
    reference, scale, residue : Tensor
        As in `Linear`, one number per line.
    curves : tuple of Curve
        Everything else.
    """

    width: int
    lines: np.ndarray
    place: Tensor
    reference: Tensor
    scale: Tensor
    residue: Tensor
    curves: tuple[Curve, ...]

    def read(self, table: np.ndarray) -> Tensor:
        """The columns of some rows of a table, (n, c), on the device of the record."""
        device = self.reference.device
        table = np.asarray(table, dtype=np.float64)
        every = np.array_equal(self.lines, np.arange(table.shape[1]))
        x = table if every else np.take(table, self.lines, axis=1)
        lines = torch.as_tensor(x).to(device) - self.reference
        if self.residue.any():
            lines = torch.where(lines == 0, 0.0, lines - self.residue)
        lines /= self.scale
        if not self.curves:
            return lines
        out = lines.new_empty(len(table), self.width)
        out[:, self.place] = lines
        for curve in self.curves:
            values = curve.basis.terms(table[:, curve.feature])
            out[:, curve.place] = torch.as_tensor(values[:, curve.keep]).to(device)
        return out


@dataclass(frozen=True, slots=True)
class Tile(Movable):
    """Some features of one member, evaluated together.

    Attributes
    ----------
    terms : slice
        Their terms.
    coef : Tensor of shape (terms, s)
        Coefficients over the number of members: terms times these are D.
    inputs : slice
        Inputs of the member that these features own, and what lies between.
    own : Tensor of shape (inputs, s h1)
        First layer of those inputs, masked.
    shift : Tensor of shape (s h1,)
        First layer at the reference.
    level : Tensor of shape (s h1,)
        Its hyperbolic tangent.
    base : Tensor of shape (s h2,)
        Second layer at the reference.
    base_sin : Tensor of shape (s h2,)
        Its sine.
    """

    terms: slice
    coef: Tensor
    inputs: slice
    own: Tensor
    shift: Tensor
    level: Tensor
    base: Tensor
    base_sin: Tensor


@dataclass(frozen=True, slots=True)
class Bends(Movable):
    """What one member adds to the line.

    Attributes
    ----------
    inputs : Tensor of shape (r,)
        Its inputs among the columns that are read.
    shared : Tensor of shape (r, tiles h1) or None
        First layer of inputs that no feature of a tile owns.
    second : Tensor of shape (h1, h2)
    out : Tensor of shape (h2,)
    tiles : tuple of Tile
    """

    inputs: Tensor
    shared: Tensor | None
    second: Tensor
    out: Tensor
    tiles: tuple[Tile, ...]

    def add_to(self, eta: Tensor, terms: Tensor, columns: Tensor) -> None:
        """Add the bends of some rows to `eta`, (n,)."""
        inputs = columns.index_select(1, self.inputs).to(self.out.dtype)
        shared = None if self.shared is None else inputs @ self.shared
        h1, h2 = self.second.shape
        for place, tile in enumerate(self.tiles):
            hidden = torch.addmm(tile.shift, inputs[:, tile.inputs], tile.own)
            if shared is not None:
                part = shared[:, place * h1 : (place + 1) * h1]
                hidden.view(len(inputs), -1, h1).add_(part.unsqueeze(1))
            hidden.tanh_().sub_(tile.level)
            second = (hidden.view(-1, h1) @ self.second).view(len(inputs), -1)
            second.add_(tile.base).sin_().sub_(tile.base_sin)
            bend = (second.view(-1, h2) @ self.out).view(len(inputs), -1)
            eta += ((terms[:, tile.terms] @ tile.coef) * bend).sum(1)


@dataclass(frozen=True, slots=True)
class Predictor(Movable):
    """A model reduced to its linear predictor.

    Attributes
    ----------
    base_value : float
    columns : Columns
    terms : Tensor of int
        The terms among the columns that are read.
    coef : Tensor
        Mean coefficient of each.
    bends : tuple of Bends
        One for each member whose network does anything.
    tile_rows : int
        Rows of a tile on a CPU.
    row_bytes : int
        Memory that a row needs.
    """

    base_value: float
    columns: Columns
    terms: Tensor
    coef: Tensor
    bends: tuple[Bends, ...]
    tile_rows: int
    row_bytes: int

    def eta(self, table: np.ndarray, blocks: Iterable[slice]) -> np.ndarray:
        """Linear predictor, (n,); blocks of rows are cut further but never joined."""
        out = np.empty(len(table))
        if self.coef.device.type == "cpu":

            def work(rows: slice) -> None:
                columns = self.columns.read(table[rows])
                for tile in _cut(slice(0, len(columns)), self.tile_rows):
                    out[rows][tile] = self._evaluate(columns[tile]).numpy()

            size = self.tile_rows * max(TASK_ROWS // self.tile_rows, 1)
            run_alone(work, [part for block in blocks for part in _cut(block, size)])
            return out
        with torch.inference_mode():
            for rows in _cut(slice(0, len(table)), self._gpu_rows()):
                columns = self.columns.read(table[rows])
                out[rows] = self._evaluate(columns).cpu().numpy()
        return out

    def _evaluate(self, columns: Tensor) -> Tensor:
        terms = columns.index_select(1, self.terms)
        eta = terms @ self.coef + self.base_value
        for member in self.bends:
            member.add_to(eta, terms, columns)
        return eta

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
    coef, weights = coef.double(), unpack(spec, params)
    owner = torch.tensor(spec.input_feature, dtype=torch.long)
    members = [
        _live(spec, owner, _member(weights, m), coef[m], modulated[m], features)
        for m in range(len(coef))
    ]
    term_used = (coef != 0).any(0)
    input_used = torch.zeros(len(owner), dtype=torch.bool)
    for live in members:
        input_used[live.inputs] = True
    columns, term_place, input_place = _choose_columns(
        features, term_used.numpy(), input_used.numpy()
    )
    kept = term_used.nonzero().squeeze(-1)
    term_owner = torch.as_tensor(features.term_feature)[kept]
    bends, widest = [], 1
    for m, live in enumerate(members):
        if len(live.features) == 0:
            continue
        layout = _lay_out(spec, len(live.features), len(live.inputs))
        widest = max(widest, layout.size)
        bends.append(
            _compile_member(
                spec,
                owner,
                _member(weights, m),
                live,
                coef[m, kept] / len(coef),
                term_owner,
                torch.as_tensor(input_place[live.inputs.numpy()]),
                layout,
            )
        )
    width = max(spec.hidden)
    tiles = max((len(member.tiles) for member in bends), default=0)
    return Predictor(
        base_value=float(intercept.double().mean()),
        columns=columns,
        terms=torch.as_tensor(term_place[kept.numpy()]),
        coef=coef[:, kept].mean(0),
        bends=tuple(bends),
        tile_rows=max(TILE_SIZE // (widest * width), 1),
        row_bytes=8 * (4 * columns.width + 3 * widest * width + tiles * width + 8),
    )


@dataclass(frozen=True, slots=True)
class Live:
    """Features that a member bends and inputs that bend them."""

    features: Tensor
    inputs: Tensor


def _member(weights: Weights, member: int) -> Weights:
    views = (getattr(weights, field.name) for field in fields(weights))
    return Weights(*(view[member] for view in views))


def _live(
    spec: NetworkSpec,
    owner: Tensor,
    weights: Weights,
    coef: Tensor,
    modulated: Tensor,
    features: FeatureMap,
) -> Live:
    """Find what a member needs its network for: exact zeros alone are left out."""
    bent = torch.zeros(spec.n_features, dtype=torch.bool)
    bent[torch.as_tensor(features.term_feature)[coef != 0]] = True
    bent &= modulated
    alive = (weights.first != 0).any(0)
    if not (weights.out != 0).any():
        alive = torch.zeros_like(alive)
    seen = alive.sum().expand(spec.n_features)
    if spec.mask:
        seen = seen - torch.bincount(owner[alive], minlength=spec.n_features)
    active = (bent & (seen > 0)).nonzero().squeeze(-1)
    inputs = alive.nonzero().squeeze(-1)
    return Live(active, inputs if len(active) else inputs[:0])


def _choose_columns(
    features: FeatureMap, term_used: np.ndarray, input_used: np.ndarray
) -> tuple[Columns, np.ndarray, np.ndarray]:
    """What to read, and where each used term and each used input stands in it."""
    term_place = np.full(len(term_used), -1)
    input_place = np.full(len(input_used), -1)
    lines: list[tuple[int, int, Linear]] = []
    curves: list[Curve] = []
    width = first_term = first_input = 0
    for j, (basis, seen) in enumerate(
        zip(features.bases, features.input_bases, strict=True)
    ):
        terms = slice(first_term, first_term + basis.n_terms)
        inputs = slice(first_input, first_input + seen.n_terms)
        first_term, first_input = terms.stop, inputs.stop
        wanted = [
            (basis, term_used[terms], [(term_place[terms], term_used[terms])]),
            (seen, input_used[inputs], [(input_place[inputs], input_used[inputs])]),
        ]
        if basis is seen:  # read once for both
            either = term_used[terms] | input_used[inputs]
            wanted = [(basis, either, wanted[0][2] + wanted[1][2])]
        for kind, used, places in wanted:
            keep = np.flatnonzero(used)
            if len(keep) == 0:
                continue
            for place, mine in places:
                place[mine] = width + np.searchsorted(keep, np.flatnonzero(mine))
            if isinstance(kind, Linear):
                lines.append((j, width, kind))
            else:
                curves.append(Curve(j, kind, keep, slice(width, width + len(keep))))
            width += len(keep)

    def numbers(name: str) -> Tensor:
        values = [getattr(line, name) for _, _, line in lines]
        return torch.tensor(values, dtype=torch.float64)

    columns = Columns(
        width=width,
        lines=np.array([j for j, _, _ in lines], dtype=int),
        place=torch.tensor([place for _, place, _ in lines], dtype=torch.long),
        reference=numbers("reference"),
        scale=numbers("scale"),
        residue=numbers("residue"),
        curves=tuple(curves),
    )
    return columns, term_place, input_place


@dataclass(frozen=True, slots=True)
class Layout:
    """Features in a tile, and whether a tile shares inputs that it does not own."""

    size: int
    sharing: bool


def _lay_out(spec: NetworkSpec, n_features: int, n_inputs: int) -> Layout:
    """As many features as fit, or fewer where sharing inputs pays.

    Per activation, one masked product costs a multiplication for every input; with s
    features in a tile, those of the tile and every s-th of the others.
    """
    most = min(n_features, max(TILE_SIZE // (TILE_ROWS * max(spec.hidden)), 1))
    if not spec.mask:
        return Layout(most, sharing=True)
    size = np.arange(1, most + 1)
    own = n_inputs * size / n_features
    cost = own + (n_inputs - own) / size + SHARED_COST
    best = int(cost.argmin())
    if cost[best] < n_inputs:
        return Layout(int(size[best]), sharing=True)
    return Layout(most, sharing=False)


def _compile_member(
    spec: NetworkSpec,
    owner: Tensor,
    weights: Weights,
    live: Live,
    coef: Tensor,
    term_owner: Tensor,
    input_place: Tensor,
    layout: Layout,
) -> Bends:
    """Cut the features of one member into tiles and mask their weights."""
    first = weights.first[:, live.inputs].T  # (r, h1)
    input_owner = owner[live.inputs]
    code = torch.tensor(spec.code, dtype=first.dtype)
    code = code.reshape(spec.n_features, spec.shapes["code_weight"][1])
    shift = code @ weights.code_weight.T + weights.bias  # (p, h1)
    tiles, shared = [], []
    for group in live.features.split(layout.size):
        terms = _span(torch.isin(term_owner, group))
        inputs = slice(0, len(first))
        if layout.sharing:
            owned = torch.isin(input_owner, group) & spec.mask
            inputs = _span(owned)
        visible = input_owner[inputs].unsqueeze(-1) != group  # (inputs, s)
        own = first[inputs].unsqueeze(1) * visible.unsqueeze(2)  # (inputs, s, h1)
        others = first.clone()
        others[inputs] = 0
        shared.append(others)
        mine = term_owner[terms].unsqueeze(-1) == group
        at = shift[group]
        base = at.tanh() @ weights.second.T + weights.second_bias
        tiles.append(
            Tile(
                terms=terms,
                coef=coef[terms].unsqueeze(-1) * mine,
                inputs=inputs,
                own=own.flatten(1).contiguous(),
                shift=at.flatten(),
                level=at.tanh().flatten(),
                base=base.flatten(),
                base_sin=base.sin().flatten(),
            )
        )
    common = torch.cat(shared, dim=1)
    return Bends(
        inputs=input_place,
        shared=common if layout.sharing else None,
        second=weights.second.T.contiguous(),
        out=weights.out.clone(),
        tiles=tuple(tiles),
    )


def _span(chosen: Tensor) -> slice:
    """The shortest slice that holds every chosen place."""
    places = chosen.nonzero()
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


# Threads


_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def run_alone(work: Callable[[Any], None], tasks: Iterable[Any]) -> None:
    """Do all tasks, as many at a time as torch has threads, one thread for each.

    A thread that takes a task computes it by itself: torch starts no team within it,
    so that results do not depend on the number of threads.
    """
    left = deque(tasks)

    def drain() -> None:
        with torch.inference_mode():
            while left:
                try:
                    task = left.popleft()
                except IndexError:  # another thread was faster
                    return
                work(task)

    n_threads = torch.get_num_threads()
    if n_threads == 1 or not left:
        return drain()
    pool = _workers(n_threads)
    futures = [pool.submit(drain) for _ in range(min(n_threads, len(left)))]
    try:
        for future in futures:
            future.result()
    except BaseException:
        left.clear()  # the other threads stop after the task at hand
        raise


def _workers(n_threads: int) -> ThreadPoolExecutor:
    """Threads for which torch computes on one thread, started once.

    The number of torch's threads belongs to a thread, but setting it also sets what
    threads begin with. It is put back at once, while the lock is held.
    """
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < n_threads:
            _pool = ThreadPoolExecutor(
                n_threads, "sknimo", initializer=torch.set_num_threads, initargs=(1,)
            )
            _pool_size = n_threads
            ready = threading.Barrier(n_threads + 1)
            for _ in range(n_threads):
                _pool.submit(ready.wait)
            ready.wait()
            torch.set_num_threads(n_threads)
        return _pool


def _forget_workers() -> None:
    """A process that was forked has none of the threads."""
    global _lock, _pool
    _lock, _pool = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
