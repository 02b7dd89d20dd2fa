"""Train members of several classes: one network with a head for each class.

The network below its output is shared; class c has its own output weights, and with
them its own modulations, coefficients and intercept. The linear predictors of a member
meet in a softmax, so that all classes are trained together. All else is as in
`_joint.py`.

    loss = sum_i w_i (log sum_c exp eta_ic - eta_i,y(i)) / sum_i w_i
           + sum_ct ridge_t coef_ct**2 / 2

The parameters of a member stand in a row: network without output, outputs of all
classes, their coefficients, their intercepts.

Shapes: K members, C classes, n rows, B rows of a batch, q terms, r inputs, a modulated
features, h2 units of the second layer, P weights of a network with one output, D
weights of one with C outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sknimo.network import Weights, unpack
from sknimo.solver._joint import (
    DTYPE,
    Body,
    JointStart,
    JointTable,
    block_rows,
    join_parameters,
    mean_loss,
    pull_body,
    run_body,
    train_members,
)
from sknimo.solver._muon import JointOptions
from sknimo.solver._profile import PerMember


@dataclass(frozen=True, slots=True)
class HeadsState(PerMember):
    """K trained members."""

    coef: Tensor  # (K, C, q)
    intercept: Tensor  # (K, C)
    params: Tensor  # (K, D)
    loss: Tensor  # (K,), on the held-out rows
    n_passes: Tensor  # (K,), integer

    def of_class(self, number: int, n_units: int) -> Tensor:
        """Networks with the output of one class alone, (K, P)."""
        n_classes = self.coef.shape[1]
        body = self.params.shape[1] - n_classes * n_units
        begin = body + number * n_units
        head = self.params[:, begin : begin + n_units]
        return torch.cat([self.params[:, :body], head], 1)


@dataclass(frozen=True, slots=True)
class Heads:
    """Views of the parameters of K members."""

    body: Weights  # whose output is that of the first class
    out: Tensor  # (K, C, h2)
    coef: Tensor  # (K, C, q)
    intercept: Tensor  # (K, C)


def split_heads(table: JointTable, n_classes: int, flat: Tensor) -> Heads:
    """Name the blocks of (K, D + C q + C); the views share its memory."""
    spec, n_terms = table.spec, table.terms.shape[1]
    units = spec.hidden[1]
    begin = spec.n_params - units
    sizes = [begin, n_classes * units, n_classes * n_terms, n_classes]
    _, out, coef, intercept = flat.split(sizes, 1)
    return Heads(
        unpack(spec, flat[:, : spec.n_params]),
        out.unflatten(1, (n_classes, units)),
        coef.unflatten(1, (n_classes, n_terms)),
        intercept,
    )


@dataclass(frozen=True, slots=True)
class HeadsPass:
    """A forward pass of a batch, with what the backward pass needs of it."""

    eta: Tensor  # (K, B, C)
    terms: Tensor  # (K, B, q)
    effect: Tensor  # (K, a, B, C), terms times coefficients, of modulated features
    bend: Tensor  # (K, a, B, C), raw
    body: Body


def run_heads(table: JointTable, heads: Heads, rows: Tensor) -> HeadsPass:
    """Linear predictors of rows (K, B), each member its own."""
    n_members, n_rows = rows.shape
    n_active, n_classes = len(table.active), heads.out.shape[1]
    terms = table.terms[rows]
    body = run_body(table, heads.body, table.inputs[rows])
    # With ten classes products with rows of these take a tenth to a third.
    coef, out = heads.coef.mT.contiguous(), heads.out.mT.contiguous()
    bend = (body.sine @ out).view(n_members, n_active, n_rows, n_classes)
    effect = torch.empty_like(bend)
    for place, own in enumerate(table.own_terms):
        effect[:, place] = terms[:, :, own] @ coef[:, own]
    eta = terms @ coef + heads.intercept.unsqueeze(1)
    return HeadsPass(eta + (effect * bend).sum(1), terms, effect, bend, body)


def heads_gradient(
    table: JointTable,
    n_classes: int,
    flat: Tensor,
    rows: Tensor,
    weight: Tensor,
    ridge: Tensor,
) -> Tensor:
    """Derivative of the weighted loss of a batch and of the ridge, as `flat`."""
    heads = split_heads(table, n_classes, flat)
    at = run_heads(table, heads, rows)
    slope = torch.empty_like(flat)
    to = split_heads(table, n_classes, slope)
    by_eta = at.eta.softmax(2)  # (K, B, C)
    truth = table.y[rows].long().unsqueeze(2)
    by_eta.scatter_add_(2, truth, -torch.ones_like(by_eta[..., :1]))
    by_eta *= weight.unsqueeze(2)
    to.intercept[:] = by_eta.sum(1)
    to.coef[:] = by_eta.mT @ at.terms + ridge * heads.coef
    by_bend = by_eta.unsqueeze(1) * at.effect  # (K, a, B, C)
    for place, own in enumerate(table.own_terms):
        pulled = (by_eta * at.bend[:, place]).mT @ at.terms[:, :, own]
        to.coef[:, :, own] += pulled
    body = at.body
    by_bend = by_bend.flatten(1, 2)
    by_second = (by_bend @ heads.out).mul_(body.second.cos_())
    pull_body(table, heads.body, to.body, body, by_second)
    to.out[:] = by_bend.mT @ body.sine
    return slope


def heads_loss(
    table: JointTable, n_classes: int, flat: Tensor, rows: Tensor, weight: Tensor
) -> Tensor:
    """Mean loss of rows (K, m) with their weights, (K,) in double precision."""
    heads = split_heads(table, n_classes, flat)

    def lose(part: Tensor) -> Tensor:
        eta = run_heads(table, heads, part).eta.double()
        own = eta.gather(2, table.y[part].long().unsqueeze(2)).squeeze(2)
        return eta.logsumexp(2) - own

    return mean_loss(lose, rows, weight)


def heads_alone(table: JointTable, start: JointStart) -> Tensor:
    """Mean loss of the rows held out with intercepts alone, (K,)."""
    truth = one_hot(table.y.long(), start.coef.shape[1]).double()  # (n, C)
    share = start.train @ truth
    log_share = (share / share.sum(1, keepdim=True)).clamp(min=1e-300).log()
    held_out = start.held_out @ truth
    return -(held_out * log_share).sum(1) / held_out.sum(1)


def predict_heads(table: JointTable, state: HeadsState, rows: Tensor) -> Tensor:
    """Linear predictors of every member for some rows (m,), (K, m, C)."""
    flat = join_parameters(state)
    heads = split_heads(table, state.coef.shape[1], flat)
    parts = [
        run_heads(table, heads, part.expand(len(flat), -1)).eta
        for part in rows.split(block_rows(rows))
    ]
    return torch.cat(parts, dim=1).double()


def train_heads(
    table: JointTable,
    start: JointStart,
    ridge: Tensor,
    options: JointOptions,
    report: Callable[[int], object] = lambda n_members: None,
) -> HeadsState:
    """Train K members; `ridge` (q,) is that of the mean loss, as in `train_jointly`."""
    n_classes, ridge = start.coef.shape[1], ridge.to(DTYPE)

    def slope(at: Tensor, rows: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
        return heads_gradient(table, n_classes, at, rows, weight, ridge)

    lose, alone = partial(heads_loss, table, n_classes), heads_alone(table, start)
    end = train_members(table, start, options, slope, lose, alone, report)
    heads = split_heads(table, n_classes, end.flat.double())
    return HeadsState(
        heads.coef,
        heads.intercept,
        end.flat[:, : start.params.shape[1]].double(),
        end.loss,
        end.n_passes.long(),
    )
