"""Train coefficients and network together on batches of rows: members of large tables.

Where rows are many, exact solves of the coefficients cost more than they bring: all
parameters of a member move together, on batches, from a start near nothing
(`_muon.py`).

    loss = sum_i w_i loss_i / sum_i w_i + sum_t ridge_t coef_t**2 / 2

Here a modulation need not be zero at the reference: from small coefficients a network
would have to rise from zero within a hair of it, where hardly any row lies, and the
coefficients would be far from the effects beside it. The model of the class has its
value there among the coefficients (`level_terms`):

    coef_j (1 + raw_j(x)) = coef_j (1 + raw_j(x) - raw_j(ref)) + coef_j raw_j(ref)

A member keeps the state that predicts its own held-out rows best, where a state is the
running mean of the parameters over about a pass. The members are independent, but make
one program. Derivatives are written by hand, so that nothing but the activations of a
batch is held, in single precision.

Shapes: K members, n rows, B rows of a batch, q terms, r inputs, p features, a modulated
features, h1 and h2 hidden units, P weights of a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sknimo.families import Family
from sknimo.machine import record
from sknimo.network import NetworkSpec, Weights, unpack
from sknimo.solver._muon import JointOptions, Muon
from sknimo.solver._order import RowOrder, pad_rows
from sknimo.solver._problem import Problem
from sknimo.solver._profile import PerMember, Rows, start_coefficients

DTYPE = torch.float32
# Rows of a block whose losses are computed at once, on a CPU and on a GPU.
EVALUATION_ROWS, GPU_ROWS = 512, 2048

# The gradient at parameters, for rows (K, B) of some weights, where noise (K, 1) counts
# as much.
Slope = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class JointStart(PerMember):
    """Where K members begin, and on which rows; for C classes see `_heads.py`."""

    coef: Tensor  # (K, q), or (K, C, q)
    intercept: Tensor  # (K,), or (K, C)
    params: Tensor  # (K, P), or (K, D)
    train: Tensor  # (K, n), weights of the rows that are trained on
    held_out: Tensor  # (K, n), weights of the rows that choose the state
    seeds: tuple[int, ...]  # of the order of rows


@dataclass(frozen=True, slots=True)
class JointState(PerMember):
    """K trained members."""

    coef: Tensor  # (K, q)
    own: Tensor  # (K, q), coefficients that nothing modulates
    intercept: Tensor  # (K,)
    params: Tensor  # (K, P)
    loss: Tensor  # (K,), on the held-out rows
    n_passes: Tensor  # (K,), integer


@dataclass(frozen=True, slots=True)
class JointTable:
    """A problem in single precision, and where its features have their columns."""

    terms: Tensor  # (n, q)
    inputs: Tensor  # (n, r)
    y: Tensor  # (n,)
    offset: Tensor  # (n,)
    family: Family
    spec: NetworkSpec
    term_feature: Tensor  # (q,)
    active: Tensor  # (a,), features that are modulated
    own: tuple[slice, ...]  # input columns of each of these
    own_terms: tuple[slice, ...]  # their terms
    code: Tensor  # (a, b)

    @property
    def own_all(self) -> bool:
        """Whether modulated features own all inputs: sums over them need no product."""
        return sum(own.stop - own.start for own in self.own) == self.inputs.shape[1]

    @classmethod
    def of(cls, problem: Problem, active: Tensor) -> JointTable:
        """Tensors of a problem in memory, whose inputs stand feature by feature."""
        spec, device = problem.spec, problem.device
        owner = torch.tensor(spec.input_feature, dtype=torch.long)
        inputs = slices_of(owner, spec.n_features)
        terms = slices_of(problem.term_feature, spec.n_features)
        return cls(
            terms=problem.terms.to(DTYPE),
            inputs=problem.inputs.to(DTYPE),
            y=problem.y.to(DTYPE),
            offset=problem.offset.to(DTYPE),
            family=problem.family,
            spec=spec,
            term_feature=problem.term_feature,
            active=active.to(device),
            own=tuple(inputs[j] for j in active.tolist()),
            own_terms=tuple(terms[j] for j in active.tolist()),
            code=spec.codes().to(device, DTYPE)[active.to(device)],
        )

    def turned(self, problem: Problem, sums: Tensor) -> JointTable:
        """With sums of terms (q, q) in place of the terms."""
        return replace(self, terms=(problem.terms @ sums).to(DTYPE))

    def split(self, flat: Tensor) -> tuple[Weights, Tensor, Tensor]:
        """Views of network, coefficients and intercept of (K, P + q + 1)."""
        n_params = self.spec.n_params
        weights = unpack(self.spec, flat[:, :n_params])
        return weights, flat[:, n_params:-1], flat[:, -1:]


def slices_of(owner: Tensor, n_owners: int) -> list[slice]:
    """Columns of every owner, where they stand owner by owner."""
    ends = torch.bincount(owner, minlength=n_owners).cumsum(0).tolist()
    return [slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)]


def block_rows(rows: Tensor) -> int:
    """Rows of a block whose losses are computed at once."""
    return EVALUATION_ROWS if rows.device.type == "cpu" else GPU_ROWS


@dataclass(frozen=True, slots=True)
class Body:
    """The network of a batch below its output, as the backward pass needs it."""

    inputs: Tensor  # (K, B, r)
    first: Tensor  # (K, a, B, h1), hyperbolic tangents
    second: Tensor  # (K, a B, h2), arguments of the sines
    sine: Tensor  # (K, a B, h2)


@dataclass(frozen=True, slots=True)
class Pass:
    """A forward pass of a batch, with what the backward pass needs of it."""

    eta: Tensor  # (K, B)
    terms: Tensor  # (K, B, q)
    effect: Tensor  # (K, B, a), terms times coefficients, of modulated features
    bend: Tensor  # (K, a, B), raw
    body: Body


def run_body(table: JointTable, weights: Weights, inputs: Tensor) -> Body:
    """The layers below the output; `inputs` are (K, B, r)."""
    shift = _shift(table.code, weights)
    n_rows, n_hidden = inputs.shape[1], shift.shape[2]
    first = shift.new_empty(*shift.shape[:2], n_rows, n_hidden)
    by_input = weights.first.mT.contiguous()  # products with rows of it take a third
    for place, own in enumerate(table.own):
        first[:, place] = inputs[:, :, own] @ by_input[:, own]
    total = first.sum(1) if table.own_all else inputs @ by_input
    first = _tanh((shift.unsqueeze(2) + total.unsqueeze(1)).sub_(first))
    by_unit = weights.second.mT.contiguous()  # with many units a half, with few a tenth
    second = torch.baddbmm(
        weights.second_bias.unsqueeze(1), first.flatten(1, 2), by_unit
    )
    return Body(inputs, first, second, second.sin())


def _tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangents, which use `x` up, to an absolute error in half the time."""
    return x.mul_(2).sigmoid_().mul(2).sub_(1)


def _shift(code: Tensor, weights: Weights) -> Tensor:
    """What code and bias add to the first layer, (K, a, h1)."""
    return (weights.code_weight @ code.T).mT + weights.bias.unsqueeze(1)


@dataclass(frozen=True, slots=True)
class Level:
    """The network at the reference, where all inputs are zero."""

    first: Tensor  # (K, a, h1), hyperbolic tangents
    second: Tensor  # (K, a, h2), arguments of the sines
    bend: Tensor  # (K, a), raw

    @classmethod
    def of(cls, code: Tensor, weights: Weights) -> Level:
        """Of all members and modulated features."""
        first = _shift(code, weights).tanh()
        second = first @ weights.second.mT + weights.second_bias.unsqueeze(1)
        return cls(first, second, (second.sin() * weights.outputs(code)).sum(-1))

    def pull(
        self, code: Tensor, weights: Weights, to_net: Weights, by_bend: Tensor
    ) -> None:
        """Add derivatives of all layers, given those of the bends, (K, a)."""
        by_out = by_bend.unsqueeze(-1) * self.second.sin()
        own = to_net.out.ndim > 2
        to_net.out.add_(by_out.mT @ code if own else by_out.sum(1))
        by_second = by_bend.unsqueeze(-1) * weights.outputs(code) * self.second.cos()
        to_net.second.add_(by_second.mT @ self.first)
        to_net.second_bias.add_(by_second.sum(1))
        by_first = (by_second @ weights.second) * (1 - self.first.square())
        to_net.bias.add_(by_first.sum(1))
        to_net.code_weight.add_(by_first.mT @ code)


def level_terms(table: JointTable, coef: Tensor, params: Tensor) -> Tensor:
    """Coefficients (K, q) times the modulation at the reference, (K, q)."""
    at = Level.of(table.code.to(params), unpack(table.spec, params))
    level = coef.new_zeros(len(coef), table.spec.n_features)
    level[:, table.active] = at.bend
    return coef * level[:, table.term_feature]


def forward(table: JointTable, flat: Tensor, rows: Tensor) -> Pass:
    """Linear predictors of rows (K, B), each member its own."""
    weights, coef, intercept = table.split(flat)
    (n_members, n_rows), n_active = rows.shape, len(table.active)
    terms = table.terms[rows]
    body = run_body(table, weights, table.inputs[rows])
    out = weights.outputs(table.code).unsqueeze(-1)  # (K, a or 1, h2, 1)
    bend = _by_output(body.sine, out) @ out
    bend = bend.view(n_members, n_active, n_rows)
    each = terms @ _spread(table, coef)  # (K, B, p)
    effect = each[..., table.active]
    eta = table.offset[rows] + intercept + each.sum(-1) + (effect * bend.mT).sum(-1)
    return Pass(eta, terms, effect, bend, body)


def _by_output(units: Tensor, out: Tensor) -> Tensor:
    """Units (K, a B, h2) of the features that have the same output, (K, _, _, h2)."""
    return units.unflatten(1, (out.shape[1], -1))


def _spread(table: JointTable, coef: Tensor) -> Tensor:
    """Coefficients with a column for each feature, (K, q, p)."""
    wide = coef.new_zeros(*coef.shape, table.spec.n_features)
    index = table.term_feature.expand(len(coef), -1).unsqueeze(-1)
    return wide.scatter_(2, index, coef.unsqueeze(-1))


def gradient(
    table: JointTable,
    flat: Tensor,
    rows: Tensor,
    weight: Tensor,
    ridge: Tensor,
    tie: Tensor | None = None,
) -> Tensor:
    """Derivative of the weighted loss of a batch, the ridge and the tie, as `flat`.

    Hardly any row is near the reference in every feature, so that the loss does not say
    what bends are there. The tie (K, 1) does: about what they are on the average. Half
    of it times their squared distance, in units of the effect's square, is its price.
    """
    at = forward(table, flat, rows)
    weights, coef, _ = table.split(flat)
    out = torch.empty_like(flat)
    to_net, to_coef, to_intercept = table.split(out)
    by_eta = -table.family.score(table.y[rows], at.eta) * weight  # (K, B)
    to_intercept[:] = by_eta.sum(1, keepdim=True)
    gain = torch.ones_like(by_eta).unsqueeze(-1).repeat(1, 1, table.spec.n_features)
    gain[..., table.active] += at.bend.mT
    pulled = at.terms.mT @ (by_eta.unsqueeze(-1) * gain)  # (K, q, p)
    index = table.term_feature.expand(len(flat), -1).unsqueeze(-1)
    to_coef[:] = pulled.gather(2, index).squeeze(-1) + ridge * coef

    body = at.body
    by_bend = (by_eta.unsqueeze(-1) * at.effect).mT  # (K, a, B)
    level = None
    if tie is not None:
        level = Level.of(table.code, weights)
        share = (weight / weight.sum(1, keepdim=True)).unsqueeze(1)
        apart = level.bend - (at.bend * share).sum(2)
        size = (at.effect.square() * share.mT).sum(1)
        by_level = tie * size * apart  # (K, a)
        by_bend = by_bend - by_level.unsqueeze(2) * share
    flat_bend = by_bend.flatten(1).unsqueeze(-1)  # (K, a B, 1)
    last = weights.outputs(table.code).unsqueeze(2)  # (K, a or 1, 1, h2)
    pulled = _by_output(flat_bend, last).mT @ _by_output(body.sine, last)
    pulled = pulled.squeeze(2).mT  # (K, h2, a or 1)
    to_net.out[:] = pulled @ table.code if table.spec.own_out else pulled.squeeze(2)
    by_second = body.second.cos_().mul_(flat_bend)
    _by_output(by_second, last).mul_(last)
    pull_body(table, weights, to_net, body, by_second)
    if level is not None:
        level.pull(table.code, weights, to_net, by_level)
    return out


def pull_body(
    table: JointTable,
    weights: Weights,
    to_net: Weights,
    at: Body,
    by_second: Tensor,
) -> None:
    """Write derivatives of all layers but the output, given those of the sines.

    `by_second` is (K, a B, h2); the body is used up.
    """
    to_net.second[:] = by_second.mT @ at.first.flatten(1, 2)
    to_net.second_bias[:] = by_second.sum(1)

    by_first = (by_second @ weights.second).view(at.first.shape)
    by_first.mul_(at.first.square_().neg_().add_(1))
    by_shift = by_first.sum(2)  # (K, a, h1)
    to_net.bias[:] = by_shift.sum(1)
    to_net.code_weight[:] = by_shift.mT @ table.code
    total = by_first.sum(1)
    if not table.own_all:
        to_net.first[:] = total.mT @ at.inputs
    others = torch.sub(total.unsqueeze(1), by_first, out=by_first)
    for place, own in enumerate(table.own):
        to_net.first[:, :, own] = others[:, place].mT @ at.inputs[:, :, own]


def held_out_loss(
    table: JointTable, flat: Tensor, rows: Tensor, weight: Tensor
) -> Tensor:
    """Mean loss of rows (K, m) with their weights, (K,) in double precision."""

    def lose(part: Tensor) -> Tensor:
        eta = forward(table, flat, part).eta.double()
        return table.family.loss(table.y[part].double(), eta)

    return mean_loss(lose, rows, weight)


def mean_loss(lose: Callable[[Tensor], Tensor], rows: Tensor, weight: Tensor) -> Tensor:
    """Mean over rows (K, m) of what some of them `lose`, block by block, (K,)."""
    total = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
    size = block_rows(rows)
    for part, share in zip(rows.split(size, 1), weight.split(size, 1), strict=True):
        # An overflow is a large loss, and the mean of losses must be a number.
        loss = torch.nan_to_num(lose(part), nan=1e30, posinf=1e30).clamp(max=1e30)
        total += (loss * share).sum(1)
    return total / weight.sum(1)


def loss_alone(table: JointTable, start: JointStart) -> Tensor:
    """Mean loss of the rows held out with an intercept alone, (K,)."""
    weight = start.train / start.train.sum(1, keepdim=True)
    rows = Rows(table.y.double(), table.offset.double(), weight, table.family)
    at = start_coefficients(rows, 0)
    loss = table.family.loss(rows.y, rows.offset + at.intercept.unsqueeze(1))
    return (loss * start.held_out).sum(1) / start.held_out.sum(1)


def predict_rows(table: JointTable, state: JointState, rows: Tensor) -> Tensor:
    """Linear predictor of every member for some rows (m,), (K, m)."""
    flat, own = join_parameters(state), state.own.to(DTYPE)
    parts = [
        forward(table, flat, part.expand(len(flat), -1)).eta + own @ table.terms[part].T
        for part in rows.split(block_rows(rows))
    ]
    return torch.cat(parts, dim=1).double()


def join_parameters(record: Any) -> Tensor:
    """Network, coefficients and intercept side by side, (K, P + q + 1).

    Of several classes all coefficients, then all intercepts.
    """
    parts = record.params, record.coef, record.intercept
    return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1).to(DTYPE)


def train_jointly(
    table: JointTable,
    start: JointStart,
    ridge: Tensor,
    options: JointOptions,
    report: Callable[[int], object] = lambda n_members: None,
) -> JointState:
    """Train K members; `ridge` (q,) is that of the mean loss.

    `report` is called after every pass with the number of members that were in it.
    """
    n_params, ridge = table.spec.n_params, ridge.to(DTYPE)

    def slope(at: Tensor, rows: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        tie = options.tie * noise if options.tie else None
        return gradient(table, at, rows, weight, ridge, tie)

    lose, alone = partial(held_out_loss, table), loss_alone(table, start)
    end = train_members(table, start, options, slope, lose, alone, report)
    coef = end.flat[:, n_params:-1].double()
    return JointState(
        coef,
        torch.zeros_like(coef),
        end.flat[:, -1].double(),
        end.flat[:, :n_params].double(),
        end.loss,
        end.n_passes.long(),
    )


def train_members(
    table: JointTable,
    start: JointStart,
    options: JointOptions,
    slope: Slope,
    lose: Callable[[Tensor, Tensor, Tensor], Tensor],
    alone: Tensor,
    report: Callable[[int], object],
) -> Descent:
    """Step down a slope until rows held out are predicted no better.

    They `lose` so much at parameters of members, and `alone` (K,) with intercepts. The
    learning rate falls to nothing in a cycle; members with hardly any noise left that
    gained until late in it go through another one.
    """
    flat, n_params = join_parameters(start), start.params.shape[1]
    order = RowOrder.of(start.train, start.seeds, options.batch_size)
    course = Course(order, *pad_rows(start.held_out), alone, slope, lose, report)
    muon = Muon(flat, table.spec, n_params, options, order.n_steps)
    found = course.cycle(muon)
    before = torch.zeros_like(found.n_passes)
    for _ in range(options.more_cycles):
        options = muon.options
        best = found.n_passes - found.stale - before
        late = best >= options.late_share * options.max_passes
        quiet = found.loss < options.quiet_share * alone
        some = (late & quiet).nonzero().squeeze(1)
        before = found.n_passes
        if len(some) == 0 or options.out_of_time:
            break
        muon = muon.again(found.flat[some])
        found = found.go_on(some, course.take(some).cycle(muon))
    return found


@dataclass(frozen=True, slots=True)
class Descent(PerMember):
    """The best that K members have come to."""

    flat: Tensor  # (K, N)
    loss: Tensor  # (K,), on the held-out rows
    stale: Tensor  # (K,), passes since then
    n_passes: Tensor  # (K,)

    def going(self, options: JointOptions) -> Tensor:
        """Members that may still find something better, (K,), bool."""
        best = self.n_passes - self.stale
        most = (options.patience_share * best).clamp(min=options.least_patience)
        return self.stale < most.clamp(max=options.patience)

    def follow(
        self, flat: Tensor, loss: Tensor, gain: Tensor, options: JointOptions
    ) -> Descent:
        """After another pass, which ended with these parameters."""
        going = self.going(options)
        better = (gain > 0) & going
        return Descent(
            torch.where(better.unsqueeze(1), flat, self.flat),
            torch.where(better, loss, self.loss),
            torch.where(better, 0.0, self.stale + 1),
            self.n_passes + going,
        )

    def go_on(self, some: Tensor, later: Descent) -> Descent:
        """After another cycle of some of the members."""

        def put(whole: Tensor, part: Tensor) -> Tensor:
            return whole.index_copy(0, some, part)

        return Descent(
            put(self.flat, later.flat),
            put(self.loss, later.loss),
            put(self.stale, later.stale),
            put(self.n_passes, self.n_passes[some] + later.n_passes),
        )


@dataclass(frozen=True, slots=True)
class Course(PerMember):
    """What members go through beside what moves them."""

    order: RowOrder  # of the rows that they train on
    rows: Tensor  # (K, m), held out
    weight: Tensor  # (K, m)
    alone: Tensor  # (K,)
    slope: Slope
    lose: Callable[[Tensor, Tensor, Tensor], Tensor]
    report: Callable[[int], object]

    def cycle(self, muon: Muon) -> Descent:
        """One cycle of the learning rate.

        On a CPU members that stand still are taken out of the program, on a GPU it is
        recorded with all of them.
        """
        options, device = muon.options, muon.flat.device
        on_cpu = device.type == "cpu"
        plan = plan_pass if on_cpu else plan_recorded_pass
        course, left = self, torch.arange(len(muon.flat), device=device)
        mean = muon.flat.clone()
        loss = self.lose(mean, self.rows, self.weight)
        never = torch.zeros_like(loss)
        state = Descent(mean.clone(), loss.clone(), never, never)
        share = self.weight.sum(1) / self.weight.sum()
        go_through = plan(muon, self.order, mean, self.slope)

        def look() -> None:
            loss.copy_(course.lose(mean, course.rows, course.weight))
            # What is no number, as of rows held out that are alike, decays in full.
            share = (loss / course.alone).nan_to_num(1.0).clamp(0, 1)
            muon.noise.copy_(share.pow(options.decay_power).unsqueeze(1))

        again = record(look, device)
        ended, places = [], []
        for _ in range(options.max_passes):
            if options.out_of_time:
                break
            go_through()
            again()
            self.report(len(left))
            gain = state.loss - loss
            gain = (gain @ share).expand_as(gain) if options.common_stop else gain
            state = state.follow(mean, loss, gain, options)
            going = state.going(options)
            if not bool(going.any()):
                break
            if on_cpu and not bool(going.all()):
                ended.append(state.take(~going))
                places.append(left[~going])
                some = going.nonzero().squeeze(1)
                state, muon = state.take(some), muon.take(some)
                course = course.take(some)
                left, mean, loss = left[some], mean[some], loss[some]
                go_through = plan(muon, course.order, mean, self.slope)
        found = Descent.join([*ended, state])
        return found.take(torch.cat([*places, left]).argsort())


def plan_pass(
    muon: Muon, order: RowOrder, mean: Tensor, slope: Slope
) -> Callable[[], None]:
    """What makes one pass over the rows, and moves a running mean of the parameters."""

    def go_through() -> None:
        rows, weight = (part.tensor_split(order.n_steps, 1) for part in order.mix())
        for some, share in zip(rows, weight, strict=True):
            muon.count += 1
            muon.step(
                slope(muon.flat, some, share, muon.noise), mean, muon.pace(muon.count)
            )

    return go_through


def plan_recorded_pass(
    muon: Muon, order: RowOrder, mean: Tensor, slope: Slope
) -> Callable[[], None]:
    """The same with a step that can be recorded.

    It finds its batch and its place in the schedule by a counter on the device. Batches
    are padded to one length by rows without weight.
    """
    device, n_steps = muon.flat.device, order.n_steps
    parts = [*torch.arange(order.rows.shape[1]).tensor_split(n_steps)]
    place = torch.nn.utils.rnn.pad_sequence(parts, True, -1).to(device)  # (steps, B)
    rows, weight = order.rows[:, place], order.weight[:, place]  # (K, steps, B)
    schedule = [muon.pace(1 + t) for t in range(n_steps * muon.options.max_passes)]
    paces = torch.tensor(schedule, dtype=torch.float64).to(muon.flat)
    at = torch.zeros(1, dtype=torch.long, device=device)

    def step() -> None:
        now = at.remainder(n_steps)
        some, share = (part.index_select(1, now).squeeze(1) for part in (rows, weight))
        pace = paces.index_select(0, at).squeeze(0).unbind()
        muon.step(slope(muon.flat, some, share, muon.noise), mean, pace)
        at.add_(1)

    play = record(step, device)

    def go_through() -> None:
        mixed = order.mix()
        rows.copy_(mixed[0][:, place])
        weight.copy_(mixed[1][:, place] * (place >= 0))
        for _ in range(n_steps):
            play()

    return go_through
