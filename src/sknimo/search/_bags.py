"""Search on large tables: curves solved exactly, bags of bent members, and a dial.

Gauss-Newton steps and the evidence of a network cost `n m**2` for n rows and m
parameters. Beyond `Settings.max_work` members are trained on batches instead, and rows
that each of them has not seen decide:

1. *Curves.* An additive model of all rows learns the precision of every line and curve
   by its evidence, and is solved for every bag: all rows but those of one fold. Bent
   members are trained with smooth curves: rough ones they learn too fast.
2. *Bends.* For every bag a member with a network is trained from a start near nothing
   (`solver/_joint.py`), unless no features are seen to act together (`_pairs.py`). The
   first few scout: where they add nothing to the curves the others are not trained.
3. *The dial.* `(1 - w) additive + w bent` is again a model of the class, and rows held
   out choose w. A row held out is predicted by one bent member, in the end by the mean
   of all, so the spread between members is taken off the loss of the bent share.

Shapes: K members, n rows, m rows held out, q terms, p features, P weights.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.features import FeatureOptions
from sknimo.network import one_hot
from sknimo.search._bag_training import (
    BagTraining,
    begin_networks,
    fold_weights,
    in_groups,
    joint_options,
    train_groups,
)
from sknimo.search._pairs import find_bends
from sknimo.search._path import (
    Look,
    Size,
    Trial,
    fewer_features,
    list_trials,
    mean_changes,
    some_rows,
    strongest,
    without_features,
)
from sknimo.search._runner import is_wide
from sknimo.search._settings import Settings
from sknimo.search._verdict import (
    HeldOut,
    Outcome,
    damp_weight,
    eta_losses,
    judge,
    likely_weight,
    mean_by_row,
    spread_of_loss,
)
from sknimo.solver import (
    RIDGE,
    AdditiveFit,
    Coefficients,
    JointStart,
    JointState,
    JointTable,
    Problem,
    bag_moments,
    fit_additive,
    level_terms,
    predict_additive,
    predict_rows,
    solve_bags,
    train_jointly,
)
from sknimo.training import AnyFold, Ensemble, TaskStore

# A number of the encoded table, in double and in single precision; terms once more in
# the other coordinates of `_take_turns`.
COLUMN_BYTES = 14


@dataclass(frozen=True, slots=True)
class Bags:
    """Additive models of all bags, and where their bent members begin."""

    problem: Problem
    ridge: Tensor  # (q,), of the mean loss
    # Smooth curves, of which bent members have a share when they begin, and walks; the
    # same where lines have a second one beside them.
    curves: Coefficients
    walks: Coefficients
    coef: Tensor  # (K, q), of their mixture
    intercept: Tensor  # (K,)
    train: Tensor  # (K, n), weights
    held_out: Tensor  # (K, n), weights
    active: Tensor  # (a,), features that are modulated
    seeds: tuple[int, ...]
    table: JointTable
    smooth: AdditiveFit  # of all rows, as curves of bent members are penalised

    def additive_eta(self, bag: int, rows: Tensor) -> Tensor:
        """Linear predictor of the additive model of a bag for some rows, (m,)."""
        terms = self.problem.columns.take(rows)[0]
        known = self.problem.offset[rows]
        return terms @ self.coef[bag] + self.intercept[bag] + known


def search_bags(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    random: np.random.RandomState,
    store: TaskStore,
) -> Outcome:
    """Additive and bent members of every bag, mixed as rows held out prefer."""
    if is_wide(problem, problem.n_rows):
        settings = replace(settings, additive=RIDGE)
    seeds = random.randint(2**31 - 1, size=settings.n_members).tolist()
    chosen = [folds[k % len(folds)] for k in range(len(seeds))]
    kept = torch.ones(problem.spec.n_features, dtype=torch.bool)
    path: list[Size] = []
    if settings.rule == "1se":
        path = _path_of_sizes(problem, chosen, settings, weight, seeds, store)
        kept = path[-1].kept
    problem = without_features(problem, kept)
    fit = store.call(
        AdditiveFit, "curves", fit_additive, problem, weight, settings.additive
    )
    bags = state_bags(problem, chosen, settings, weight, fit, seeds)
    states = train_bags(bags, settings, store)
    # From here on nothing is left out: what merely ends late is not cut.
    late = time.monotonic() >= settings.deadline
    states = states if late else settle(bags, states, settings)
    bags = weigh_walks(bags, states, settings)
    held_out = _hold_out(bags, states)
    most = np.max([fold.train + fold.held_out for fold in folds], axis=0)
    dial = turn_dial(bags, states, held_out, settings)
    mixed = held_out.mix(dial)
    verdict = judge(bags.problem, held_out, mixed, most, tiny_gain=0.0)
    if problem.n_rows <= settings.few_rows:  # bends of few rows must gain by themselves
        least = settings.dial_errors * verdict.error
        dial = damp_weight(dial, verdict.gain, least, settings)
        mixed = held_out.mix(dial)
        verdict = judge(bags.problem, held_out, mixed, most, tiny_gain=0.0)
    table = _table(bags, states, held_out, path)
    return Outcome(
        members=mix_members(bags, states, dial),
        problem=bags.problem,
        verdict=verdict,
        trials=table,
        best_index=int(np.argmin(table["loss"])),
        n_members=len(states) if dial > 0 else 0,
        out_of_time=late,
        dial=dial,
        held_out_eta=mean_by_row(held_out.rows, mixed, problem.n_rows),
        straight_eta=mean_by_row(held_out.rows, held_out.glm, problem.n_rows),
        by_bags=True,
        straight=Coefficients(bags.coef.mean(0)[None], bags.intercept.mean(0)[None]),
    )


def large_features(
    settings: Settings,
    options: FeatureOptions,
    n_rows: int,
    n_numeric: int,
    memory_budget: float,
) -> FeatureOptions | None:
    """Curves for every numeric feature, as many pieces as the memory carries.

    None where it carries none.
    """
    room = memory_budget / (2 * COLUMN_BYTES * n_rows)
    most, least = min(settings.max_columns, room), settings.least_edges
    if min(most, settings.columns_per_row * n_rows) < least * n_numeric:
        return None
    each = int(min(most, n_rows) / n_numeric)
    basis = options.basis
    if isinstance(basis, Mapping):
        basis = {key: _curve(kind) for key, kind in basis.items()}
    else:
        basis = _curve(basis)
    return replace(
        options,
        basis=basis,
        n_edges=max(least, min(settings.term_edges, each, n_rows // 16)),
        n_input_edges=max(least, min(settings.input_edges, each, n_rows // 8)),
    )


def _curve(kind: str) -> str:
    return "ramps" if kind == "auto" else kind


def _path_of_sizes(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    seeds: Sequence[int],
    store: TaskStore,
) -> list[Size]:
    """Models of ever fewer features; the last is wanted.

    Curves alone would not do: a feature may act by bending others.
    """
    few = min(settings.n_scouts, len(folds))

    def look(kept: Tensor) -> Look:
        part = without_features(problem, kept)
        fit = fit_additive(part, weight, settings.additive)
        bags = state_bags(part, folds[:few], settings, weight, fit, seeds[:few])
        states = train_bags(bags, settings, store)
        bags = weigh_walks(bags, states, settings)
        dial = turn_dial(bags, states, _hold_out(bags, states), settings)

        def size(rows: Problem) -> Size:
            own = replace(bags, problem=rows, table=JointTable.of(rows, bags.active))
            held_out = _hold_out(own, states)
            loss = torch.as_tensor(eta_losses(rows, held_out.rows, held_out.mix(dial)))
            return Size.of(kept, loss, torch.as_tensor(held_out.weight))

        return Look(
            size(bags.problem),
            lambda: importance(bags, states, dial, settings),
            lambda rows: size(replace(rows, spec=bags.problem.spec)).loss,
        )

    return fewer_features(problem, settings, 0, look)


def importance(
    bags: Bags, states: Sequence[JointState], dial: float, settings: Settings
) -> Tensor:
    """Mean squared change of `eta` with a feature at its reference, (p,)."""
    problem = bags.problem
    some = problem.take(some_rows(problem, settings.spread_rows))

    def predict(part: Problem) -> Tensor:
        eta = (1 - dial) * (part.terms @ bags.coef.mean(0))
        if dial > 0:
            rows = torch.arange(part.n_rows, device=part.device)
            table = JointTable.of(part, bags.active)
            bent = torch.cat([predict_rows(table, state, rows) for state in states])
            eta = eta + dial * bent.mean(0)
        return eta

    return mean_changes(some, predict)


def state_bags(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    fit: AdditiveFit,
    seeds: Sequence[int],
) -> Bags:
    """Solve the additive model of every bag; choose what the network modulates."""
    train, held_out = fold_weights(folds, problem)
    few = problem.n_rows <= settings.few_rows

    def solve(rows: Problem, fit: AdditiveFit) -> Coefficients:
        if few:
            # Precisions of all rows know what is held out: every bag learns its own.
            fits = [fit_additive(rows, part, settings.additive, fit) for part in train]
            intercept = torch.stack([each.intercept for each in fits])
            return Coefficients(torch.stack([each.coef for each in fits]), intercept)
        out, steps = weight - train, settings.bag_steps
        return Coefficients(*solve_bags(rows, weight, out, fit, steps))

    plain, smooth = replace(problem, prior=None), fit
    walks = curves = solve(problem, fit)
    if problem.prior is not None:
        smooth = fit_additive(plain, weight, settings.additive)
        curves = solve(plain, smooth)
    problem = plain
    active = strongest(problem, weight, smooth.coef, settings.max_modulated)
    code = problem.spec.code
    coded = bool(code and code[0])
    if coded:
        code = one_hot(problem.spec.n_features, active.tolist())
    hidden = settings.few_hidden if few else settings.bag_hidden
    spec = replace(problem.spec, code=code, hidden=hidden, own_out=coded and not few)
    problem = replace(problem, spec=spec)
    ridge = smooth.ridge(problem.term_group) / weight.sum()
    bags = Bags(
        problem=problem,
        ridge=ridge.clamp(max=settings.largest_ridge),
        curves=curves,
        walks=walks,
        coef=curves.coef,
        intercept=curves.intercept,
        train=train,
        held_out=held_out,
        active=active,
        seeds=tuple(seeds),
        table=JointTable.of(problem, active),
        smooth=smooth,
    )
    return weigh_walks(bags, [], settings)


def weigh_walks(bags: Bags, states: Sequence[JointState], settings: Settings) -> Bags:
    """Mix walks and smooth curves as rows held out prefer, beside the bent members.

    A walk that is too rough by itself may be what smooth bent members lack: the share
    of walks is its mean over all weights of the members, by their likelihood.
    """
    if bags.walks is bags.curves:
        return bags
    smooth, rough = (
        _hold_out(replace(bags, coef=part.coef, intercept=part.intercept), states)
        for part in (bags.curves, bags.walks)
    )
    grid = np.linspace(0.0, 1.0, settings.dial_steps + 1)
    dials = grid if states else grid[:1]
    counts = smooth.weight / smooth.weight.sum()

    def losses(share: float) -> np.ndarray:
        straight = (1 - share) * smooth.glm + share * rough.glm
        eta = straight + dials[:, None] * (smooth.agreed - straight)  # (dials, m)
        return eta_losses(bags.problem, smooth.rows, eta, bounded=False) @ counts

    relief = dials**2 * spread_loss(bags, states, settings, len(states))
    mean = np.concatenate([losses(share) - relief for share in grid])
    n_rows, family = len(np.unique(smooth.rows)), bags.problem.family
    share = likely_weight(np.repeat(grid, len(dials)), mean, n_rows, family)
    return replace(
        bags,
        coef=torch.lerp(bags.curves.coef, bags.walks.coef, share),
        intercept=torch.lerp(bags.curves.intercept, bags.walks.intercept, share),
    )


def train_bags(bags: Bags, settings: Settings, store: TaskStore) -> list[JointState]:
    """Bent members of all bags; of the scouts alone where they bring nothing."""
    problem, n_bags = bags.problem, len(bags.seeds)
    if len(bags.active) < 1 or problem.spec.n_features < 2:
        return []
    # Where rows cannot tell lines apart they cannot tell bends.
    if is_wide(problem, problem.n_rows):
        return []
    n_rows, device = int((bags.train[0] > 0).sum()), problem.device
    few = problem.n_rows <= settings.few_rows
    if not (few or find_bends(problem, _hold_out(bags, []), settings.pair_level)):
        return []
    options = joint_options(n_rows, problem.spec.n_features, few, settings)
    train_members = train_jointly if few else _take_turns(bags)
    how = BagTraining(JointState, train_members, bags.table, bags.ridge)

    def begin(group: list[int]) -> JointStart:
        return _start(bags, group, settings)

    def train(groups: Sequence[list[int]]) -> list[JointState]:
        found = train_groups(how, begin, groups, options, settings, store)
        order = [bag for group in groups for bag in group]
        return [found[place] for place in np.argsort(order)]

    everyone = list(range(n_bags))
    if few:
        return train([everyone])
    scouts = everyone[: settings.n_scouts]
    # Of a GPU all members take hardly more time than two.
    halves = [half for half in (everyone[::2], everyone[1::2]) if half]
    states = train([[k] for k in scouts] if device.type == "cpu" else halves)
    some = states[: len(scouts)]
    if turn_dial(bags, some, _hold_out(bags, some), settings, n_bags) == 0:
        return []
    if time.monotonic() < settings.deadline:
        left = everyone[len(states) :]
        states += train(in_groups(left[::2], device) + in_groups(left[1::2], device))
    return states


def _take_turns(bags: Bags) -> Callable[..., JointState]:
    """Train even bags by their terms, odd ones by curves that are even over the pieces.

    Terms are smooth along the values, these along ranks; which is learned better is up
    to the table. Losses by the second relative to the first: 0.86 to 1.03 (four
    tables); taking turns 0.99 and 1.00 (two of them).
    """
    sums = bags.problem.learned
    if sums is None:
        return train_jointly
    other = bags.table.turned(bags.problem, sums)

    def train(table: JointTable, start: JointStart, *how: Any) -> JointState:
        if bags.seeds.index(start.seeds[0]) % 2 == 0:
            return train_jointly(table, start, *how)
        coef = torch.linalg.solve(sums, start.coef.T).T
        state = train_jointly(other, replace(start, coef=coef), *how)
        return replace(state, coef=state.coef @ sums.T)

    return train


def settle(
    bags: Bags, states: list[JointState], settings: Settings
) -> list[JointState]:
    """Solve for the coefficients once more, with the bends of every bag held.

    Batches leave curves rougher than the precisions want them, which shows in slopes at
    the reference. Where rows are few, bends have learned too much of their noise to be
    held: losses of three small splits were 1.08, 1.07 and 1.12 of those without. Nor is
    it done where rows held out clearly object, as where classes can be told apart and
    no finite coefficients are best.
    """
    problem, settled = bags.problem, []
    if not states or problem.n_rows <= settings.few_rows:
        return states
    rows = torch.arange(problem.n_rows, device=problem.device)
    moments = bag_moments(problem, bags.train[: len(states)])
    how, pooling = settings.additive, settings.settled_pooling
    brief = replace(
        how, max_looks=1, updates_least_squares=how.updates, pooling=pooling
    )
    for bag, (state, known) in enumerate(zip(states, moments, strict=True)):
        level = level_terms(bags.table, state.coef, state.params)[0]
        still, intercept = state.coef[0] + level, state.intercept[0]
        eta = predict_rows(bags.table, state, rows)[0]
        bends = eta - predict_additive(problem, still, intercept) + problem.offset
        rest = replace(problem, offset=bends)
        start = replace(bags.smooth, coef=still, own=still, intercept=intercept)
        found = fit_additive(rest, bags.train[bag], brief, start, moments=known)
        own, intercept = (found.coef - still)[None], found.intercept[None]
        settled.append(replace(state, own=own, intercept=intercept))
    before, after = (_hold_out(bags, found) for found in (states, settled))
    share = before.weight / before.weight.sum()
    loss, new = (
        eta_losses(problem, part.rows, part.agreed, bounded=False)
        for part in (before, after)
    )
    rise, mean = new - loss, share @ (new - loss)
    error = np.linalg.norm(share * (rise - mean))
    worse = mean > max(error, settings.settled_rise * (share @ loss))
    return states if worse else settled


def _start(bags: Bags, group: list[int], settings: Settings) -> JointStart:
    """Hardly any coefficients, a random network without output."""
    seeds = tuple(bags.seeds[k] for k in group)
    return JointStart(
        coef=settings.start_share * bags.curves.coef[group],
        intercept=bags.intercept[group],
        params=begin_networks(bags.problem.spec, seeds, bags.problem.inputs),
        train=bags.train[group],
        held_out=bags.held_out[group],
        seeds=seeds,
    )


def _hold_out(bags: Bags, states: Sequence[JointState]) -> HeldOut:
    """What additive and bent members say of the rows that they have not seen."""
    parts = []
    for bag in range(len(states) or len(bags.seeds)):
        rows = bags.held_out[bag].nonzero().squeeze(-1)
        glm = bags.additive_eta(bag, rows)
        bent = predict_rows(bags.table, states[bag], rows)[0] if states else glm
        number, weight = torch.full_like(rows, bag), bags.held_out[bag][rows]
        parts.append([rows, number, weight, glm, bent, bent])
    joined = [torch.cat(each).cpu().numpy() for each in zip(*parts, strict=True)]
    return HeldOut(*joined)


def turn_dial(
    bags: Bags,
    states: Sequence[JointState],
    held_out: HeldOut,
    settings: Settings,
    n_members: int | None = None,
) -> float:
    """Weight of the bent members: the mean of what rows held out find likely.

    `n_members` is how many will be averaged in the end, those that are there if None.
    Zero where the gain is less than `Settings.dial_errors` of its standard errors.
    """
    if not states:
        return 0.0
    problem, weights = bags.problem, np.linspace(0.0, 1.0, settings.dial_steps + 1)
    share = held_out.weight / held_out.weight.sum()

    def losses(w: float) -> np.ndarray:
        return eta_losses(problem, held_out.rows, held_out.mix(w), bounded=False)

    relief = weights**2 * spread_loss(bags, states, settings, n_members or len(states))
    mean = np.array([share @ losses(w) for w in weights]) - relief
    dial = likely_weight(weights, mean, len(np.unique(held_out.rows)), problem.family)
    saved = losses(0.0) - losses(dial)
    error = float(np.linalg.norm(share * (saved - share @ saved)))
    gain = share @ saved + np.interp(dial, weights, relief)
    return dial if gain > settings.dial_errors * error else 0.0


def spread_loss(
    bags: Bags, states: Sequence[JointState], settings: Settings, n_members: int
) -> float:
    """Loss of a bent member that the mean of `n_members` does not have."""
    if len(states) < 2:
        return 0.0
    problem = bags.problem
    rows = some_rows(problem, settings.spread_rows)
    eta = torch.cat([predict_rows(bags.table, state, rows) for state in states])
    loss = spread_of_loss(
        lambda eta: problem.family.loss(problem.y[rows], eta),
        eta,
        bags.train[: len(states), rows] > 0,
        bags.train[0][rows] + bags.held_out[0][rows],
    )
    return loss * (1 - 1 / n_members)


def mix_members(bags: Bags, states: Sequence[JointState], dial: float) -> Ensemble:
    """Members whose mean is `(1 - dial)` additive and `dial` bent.

    The linear predictor is linear in the coefficients: members of equal weight with
    scaled coefficients make any weights. One silent member has the additive model, and
    of the others what nothing modulates and what modulations are at the reference.
    """
    spec, n_bent = bags.problem.spec, len(states) if dial > 0 else 0
    count = n_bent + 1
    coef, intercept, params, scale = [], [], [], []
    own = (1 - dial) * bags.coef.mean(0, keepdim=True)
    for state in states[:n_bent]:
        share = count * dial / n_bent
        scale.append(share)
        coef.append(share * state.coef)
        intercept.append(share * state.intercept)
        params.append(state.params)
        level = level_terms(bags.table, state.coef, state.params)
        own = own + dial / n_bent * (state.own + level)
    scale.append(count * (1 - dial) or 1.0)
    coef.append(count * own)
    intercept.append(count * (1 - dial) * bags.intercept.mean(0, keepdim=True))
    params.append(own.new_zeros(1, spec.n_params))
    modulated = torch.zeros(count, spec.n_features, dtype=torch.bool, device=own.device)
    modulated[:n_bent, bags.active] = True
    joined = torch.cat(coef), torch.cat(intercept), torch.cat(params)
    factor = torch.tensor(scale).to(own)
    return Ensemble(*joined, modulated, factor, torch.ones_like(factor).bool())


def _table(
    bags: Bags,
    states: Sequence[JointState],
    held_out: HeldOut,
    path: Sequence[Size],
) -> dict[str, list[Any]]:
    """One row per model that was trained, ready for a data frame."""

    def row(stage: str, bag: int, coef: Tensor, eta: np.ndarray, n_iter: int) -> Trial:
        own = held_out.fold == bag
        loss = eta_losses(bags.problem, held_out.rows[own], eta[own])
        used = bags.problem.term_feature[coef != 0].unique()
        mean = float(np.average(loss, weights=held_out.weight[own]))
        return stage, bag, bags.seeds[bag], mean, len(used), n_iter

    plain = np.unique(held_out.fold).tolist()
    rows = [row("additive", k, bags.coef[k], held_out.glm, 1) for k in plain]
    for bag, state in enumerate(states):
        n_iter = int(state.n_passes[0])
        rows.append(row("bent", bag, state.coef[0], held_out.agreed, n_iter))
    return list_trials(path, rows)
