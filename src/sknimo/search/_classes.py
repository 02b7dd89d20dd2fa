"""Search with more than two classes: bags of softmax models, and dials.

The way of `_bags.py`, with coefficients for every class. Every bag, all rows but those
of one fold, has up to four models:

1. *Curves*, an additive model whose precisions are learned by evidence, for all classes
   together (`solver/_softmax.py`).
2. *Lines*, on tables of few rows: one ridge for all, which rows held out choose. Few
   rows that are almost separated do not tell precisions.
3. *Bends*: one network with a head for every class (`solver/_heads.py`).
4. *Straight bends*: the same with lines alone, as terms and as what the network sees.
   Curves make bends rough about the reference: where the truth was smooth, an effect of
   1 there became 0.4 to 0.9, and 0.9 to 1 by straight bends, which also predicted
   better (simulated, 1,000 rows).

Linear predictors are linear in coefficients, so that a weighted mean of all is a model.
The weights are those that predict rows held out best; bends with curves, and bends at
all, must earn theirs.

Shapes: K bags, C classes, n rows, m rows held out, q terms, p features, P weights.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.network import one_hot
from sknimo.search._bag_training import (
    BagTraining,
    begin_networks,
    fold_weights,
    joint_options,
    train_groups,
)
from sknimo.search._class_dials import (
    BENDS,
    CURVES,
    LINES,
    STAGES,
    STRAIGHT,
    ClassHeldOut,
    best_share,
    class_losses,
    judge,
    mean_of,
)
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
from sknimo.search._runner import straight_columns
from sknimo.search._settings import Settings
from sknimo.search._verdict import Outcome, mean_by_row, spread_of_loss
from sknimo.solver import (
    ClassFit,
    ClassRows,
    Coefficients,
    HeadsState,
    JointStart,
    JointTable,
    MemoryColumns,
    Problem,
    fit_classes,
    join_classes,
    level_terms,
    minimise,
    predict_heads,
    solve_class_bag,
    train_heads,
)
from sknimo.training import AnyFold, Ensemble, TaskStore


@dataclass(frozen=True, slots=True)
class ClassBags:
    """Models without a network of all bags, and where bent members begin."""

    problem: Problem
    ridge: Tensor  # (q,), of the mean loss
    curves: Tensor  # (K, C, q + 1), coefficients and intercepts of additive models
    lines: Tensor | None  # (K, C, q + 1), of those without curves
    train: Tensor  # (K, n), weights
    held_out: Tensor  # (K, n), weights
    active: Tensor  # (a,), features that are modulated
    seeds: tuple[int, ...]
    # Rows as bent members see them, by kind; straight ones where there are curves.
    tables: dict[int, JointTable]

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return self.curves.shape[1]

    def still(self, share: Tensor) -> Tensor:
        """What a mix has of models without a network, mean of bags, (C, q + 1)."""
        total = float(share[CURVES]) * self.curves.mean(0)
        if self.lines is not None:
            total = total + float(share[LINES]) * self.lines.mean(0)
        return total


@dataclass(frozen=True, slots=True)
class Bent:
    """Trained members by kind, one for each of the first bags."""

    states: dict[int, list[HeadsState]] = field(default_factory=dict)

    @property
    def n_bags(self) -> int:
        """How many bags have a member of every kind; 0 if there are none."""
        return min((len(each) for each in self.states.values()), default=0)

    def used(self, share: Tensor) -> dict[int, list[HeadsState]]:
        """Kinds that have a weight."""
        return {k: each for k, each in self.states.items() if float(share[k]) > 0}


def search_classes(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    random: np.random.RandomState,
    store: TaskStore,
) -> Outcome:
    """Models of every bag, mixed as rows held out prefer."""
    seeds = [int(s) for s in random.randint(2**31 - 1, size=settings.n_members)]
    chosen = [folds[k % len(folds)] for k in range(settings.n_members)]
    path: list[Size] = []
    if settings.rule == "1se":
        path = _path_of_sizes(problem, chosen, settings, weight, seeds, store)
        problem = without_features(problem, path[-1].kept)
    bags = state_bags(problem, chosen, settings, weight, seeds, store)
    bent = train_bags(bags, settings, store)
    # From here on nothing is left out: what merely ends late is not cut.
    late = time.monotonic() >= settings.deadline
    held_out = hold_out(bags, bent)
    share, still = turn_dials(bags, bent, held_out, settings)
    verdict = judge(held_out, share, still)
    members, plain = mix_members(bags, bent, share), bags.still(still)
    table, rows = _table(bags, bent, held_out, path), held_out.rows.numpy()
    return Outcome(
        members=members[0],
        problem=bags.problem,
        verdict=verdict,
        trials=table,
        best_index=int(np.argmin(table["loss"])),
        n_members=sum(map(len, bent.used(share).values())),
        out_of_time=late,
        dial=float(share[BENDS] + share[STRAIGHT]),
        held_out_eta=mean_by_row(rows, held_out.mix(share).numpy(), problem.n_rows),
        straight_eta=mean_by_row(rows, held_out.mix(still).numpy(), problem.n_rows),
        by_bags=True,
        by_class=tuple(members),
        straight=Coefficients(plain[:, :-1], plain[:, -1]),
    )


def state_bags(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    seeds: Sequence[int],
    store: TaskStore,
) -> ClassBags:
    """Solve the models without a network; choose what the network modulates."""
    train, held_out = fold_weights(folds, problem)
    few = problem.n_rows <= settings.few_rows
    fit = store.call(ClassFit, "curves", fit_all, problem, weight, settings.additive)
    n_classes = len(fit.coef)
    fits, lines = [], []
    own = few and n_classes * problem.n_terms <= settings.class_columns
    for part in train:
        rows = ClassRows.of(problem, part, n_classes)
        if own:
            groups = problem.term_group, problem.group_is_curve
            fits.append(fit_classes(rows, *groups, settings.additive, fit))
        else:
            fits.append(solve_class_bag(rows, fit, problem.term_group))
    if few:
        lines = fit_lines(problem, train, held_out, n_classes, settings)
    size = fit.coef.square().sum(0).sqrt()
    active = strongest(problem, weight, size, settings.max_modulated)
    spec = problem.spec
    code = one_hot(spec.n_features, active.tolist())
    code = code if spec.code and spec.code[0] else spec.code
    hidden = settings.few_hidden if few else settings.bag_hidden
    problem = replace(problem, spec=replace(spec, code=code, hidden=hidden))
    ridge = fit.ridge(problem.term_group) / weight.sum()
    return ClassBags(
        problem=problem,
        ridge=ridge.clamp(max=settings.largest_ridge),
        curves=torch.stack([join_classes(each) for each in fits]),
        lines=torch.stack(lines) if lines else None,
        train=train,
        held_out=held_out,
        active=active,
        seeds=tuple(seeds),
        tables=bent_tables(problem, active),
    )


def bent_tables(problem: Problem, active: Tensor) -> dict[int, JointTable]:
    """Rows as bent members of each kind see them."""
    tables = {BENDS: JointTable.of(problem, active)}
    lines = straight_columns(problem)
    if not bool(lines.all()):
        terms, inputs = problem.terms * lines, problem.inputs * ~problem.curved_inputs
        plain = replace(problem, columns=MemoryColumns(terms, inputs))
        tables[STRAIGHT] = JointTable.of(plain, active)
    return tables


def fit_all(problem: Problem, weight: Tensor, options: Any) -> ClassFit:
    """The additive model of all rows."""
    n_classes = int(problem.y.max()) + 1  # all of them have rows
    rows = ClassRows.of(problem, weight, n_classes)
    return fit_classes(rows, problem.term_group, problem.group_is_curve, options)


def fit_lines(
    problem: Problem,
    train: Tensor,
    held_out: Tensor,
    n_classes: int,
    settings: Settings,
) -> list[Tensor]:
    """Models of lines and levels, (C, q + 1) for every bag.

    Held-out rows choose the ridge that all terms and bags have.
    """
    straight = straight_columns(problem)
    terms = problem.terms[:, straight]
    ones = terms.new_ones(len(terms), 1)
    columns = torch.cat([terms, ones], 1)
    truth = torch.nn.functional.one_hot(problem.y.long(), n_classes).to(terms)
    ridges = 10.0 ** torch.arange(*settings.line_ridges, -0.5, dtype=torch.float64)
    loss = torch.zeros(len(ridges), dtype=torch.float64)
    found = []
    for part, out in zip(train, held_out, strict=True):
        used, away = part > 0, out > 0
        rows = ClassRows(columns[used], truth[used], part[used])
        rest = ClassRows(columns[away], truth[away], out[away])
        flat = columns.new_zeros(n_classes, columns.shape[1])
        steps = []
        for k, size in enumerate(ridges.tolist()):
            ridge = terms.new_full((terms.shape[1],), size)
            flat = minimise(
                rows, flat, ridge, rows.curvature(flat), settings.line_steps
            )
            loss[k] += rest.objective(flat, torch.zeros_like(flat[0]))
            steps.append(flat)
        found.append(steps)
    best = int(loss.argmin())
    wide = columns.new_zeros(len(found), n_classes, problem.n_terms + 1)
    place = torch.cat([straight, straight.new_ones(1)])
    wide[:, :, place] = torch.stack([steps[best] for steps in found])
    return list(wide)


def train_bags(bags: ClassBags, settings: Settings, store: TaskStore) -> Bent:
    """Bent members of all bags; of the scouts alone where they bring nothing."""
    problem, n_bags = bags.problem, len(bags.seeds)
    if len(bags.active) < 1 or problem.spec.n_features < 2:
        return Bent()
    few = problem.n_rows <= settings.few_rows
    n_rows = int((bags.train[0] > 0).sum())
    options = joint_options(n_rows, problem.spec.n_features, few, settings)

    def train(kind: int, which: list[int]) -> list[HeadsState]:
        how = BagTraining(HeadsState, train_heads, bags.tables[kind], bags.ridge)
        together = few or problem.device.type != "cpu"
        return train_groups(
            how,
            lambda group: _start(bags, kind, group, settings),
            [which] if together else [[k] for k in which],
            options,
            settings,
            store,
        )

    n_first = n_bags if few else min(settings.n_scouts, n_bags)
    first = Bent({kind: train(kind, list(range(n_first))) for kind in bags.tables})
    if few:
        return first
    share, _ = turn_dials(bags, first, hold_out(bags, first), settings, n_bags)
    found, rest = first.used(share), list(range(n_first, n_bags))
    for kind in found:
        if time.monotonic() < settings.deadline:
            found[kind] += train(kind, rest)
    return Bent(found)


def _start(
    bags: ClassBags, kind: int, group: list[int], settings: Settings
) -> JointStart:
    """Hardly any coefficients, a random network without output."""
    seeds = tuple(bags.seeds[k] for k in group)
    spec, table = bags.problem.spec, bags.tables[kind]
    params = begin_networks(spec, seeds, table.inputs)
    heads = params.new_zeros(len(seeds), (bags.n_classes - 1) * spec.hidden[1])
    begin = bags.curves if kind == BENDS or bags.lines is None else bags.lines
    coef = begin[group, :, :-1] * (table.terms != 0).any(0)
    return JointStart(
        coef=settings.start_share * coef,
        intercept=begin[group, :, -1],
        params=torch.cat([params, heads], 1),
        train=bags.train[group],
        held_out=bags.held_out[group],
        seeds=seeds,
    )


def hold_out(bags: ClassBags, bent: Bent) -> ClassHeldOut:
    """What models say of the rows that they have not seen."""
    problem, parts = bags.problem, []
    kinds = (CURVES, *((LINES,) if bags.lines is not None else ()), *bent.states)
    for bag in range(bent.n_bags or len(bags.seeds)):
        rows = bags.held_out[bag].nonzero().squeeze(-1)
        terms = problem.columns.take(rows)[0]
        columns = torch.cat([terms, terms.new_ones(len(terms), 1)], 1)
        eta = terms.new_zeros(len(STAGES), len(rows), bags.n_classes)
        eta[CURVES] = columns @ bags.curves[bag].T
        if bags.lines is not None:
            eta[LINES] = columns @ bags.lines[bag].T
        for kind, states in bent.states.items():
            eta[kind] = predict_heads(bags.tables[kind], states[bag], rows)[0]
        parts.append(
            [
                rows.cpu(),
                torch.full_like(rows, bag).cpu(),
                bags.held_out[bag][rows].cpu(),
                problem.y[rows].long().cpu(),
                eta.cpu().transpose(0, 1),
            ]
        )
    rows, number, weight, truth, eta = (torch.cat(x) for x in zip(*parts, strict=True))
    eta = eta.transpose(0, 1).contiguous()
    return ClassHeldOut(rows, number, weight, truth, eta, kinds)


def turn_dials(
    bags: ClassBags,
    bent: Bent,
    held_out: ClassHeldOut,
    settings: Settings,
    n_members: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights of all kinds, (4,), that predict rows held out best.

    Second, the same without bends. Curves within bends must gain a part of a standard
    error over straight bends, and where rows are few bends over none. `n_members` is
    how many will be averaged in the end.
    """
    relief = torch.zeros(len(STAGES), dtype=torch.float64)
    for kind, states in bent.states.items():
        relief[kind] = spread_loss(bags, kind, states, settings, n_members)
    still = best_share(held_out, {CURVES, LINES}, relief, settings.dial_steps)
    share, few = still, bags.problem.n_rows <= settings.few_rows
    for kinds in ({STRAIGHT}, {BENDS, STRAIGHT}):
        if not kinds & {*bent.states}:
            continue
        more = {CURVES, LINES, *kinds}
        found = best_share(held_out, more, relief, settings.dial_steps)
        gain = judge(held_out, found, share)
        least = settings.dial_errors if few or float(share[STRAIGHT]) > 0 else 0.0
        if gain.gain > least * gain.error:
            share = found
    return share, still


def spread_loss(
    bags: ClassBags,
    kind: int,
    states: Sequence[HeadsState],
    settings: Settings,
    n_members: int | None,
) -> float:
    """Loss of a bent member that the mean of `n_members` does not have."""
    if len(states) < 2:
        return 0.0
    rows, table = some_rows(bags.problem, settings.spread_rows), bags.tables[kind]
    eta = torch.cat([predict_heads(table, state, rows) for state in states])
    truth = bags.problem.y[rows].long()
    loss = spread_of_loss(
        lambda eta: class_losses(truth, eta),
        eta,
        bags.train[: len(states), rows] > 0,
        bags.train[0][rows] + bags.held_out[0][rows],
    )
    return loss * (1 - 1 / (n_members or len(states)))


def mix_members(bags: ClassBags, bent: Bent, share: Tensor) -> list[Ensemble]:
    """Members of every class whose mean is the weighted mean of all kinds."""
    spec, n_units = bags.problem.spec, bags.problem.spec.hidden[1]
    still = bags.still(share)
    each = [
        (bags.tables[kind], state, float(share[kind]) / len(states))
        for kind, states in bent.used(share).items()
        for state in states
    ]
    count = len(each) + 1
    modulated = torch.zeros(count, spec.n_features, dtype=torch.bool)
    modulated[:-1, bags.active.cpu()] = True
    scale = torch.tensor([*(count * part for *_, part in each), 1.0]).double()
    members = []
    for c in range(bags.n_classes):
        coef, intercept, params = [], [], []
        # With what the modulations are at the reference.
        own = still[None, c, :-1]
        for table, state, part in each:
            net = state.of_class(c, n_units)
            coef.append(count * part * state.coef[:, c])
            intercept.append(count * part * state.intercept[:, c])
            params.append(net)
            own = own + part * level_terms(table, state.coef[:, c], net)
        coef.append(count * own)
        intercept.append(count * still[None, c, -1])
        params.append(bags.curves.new_zeros(1, spec.n_params))
        joined = torch.cat(coef), torch.cat(intercept), torch.cat(params)
        members.append(Ensemble(*joined, modulated.to(own.device), scale.to(own)))
    return members


def _path_of_sizes(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    seeds: Sequence[int],
    store: TaskStore,
) -> list[Size]:
    """Models of ever fewer features; the last is wanted."""
    few = min(settings.n_scouts, len(folds))

    def look(kept: Tensor) -> Look:
        part = without_features(problem, kept)
        bags = state_bags(part, folds[:few], settings, weight, seeds[:few], store)
        bent = train_bags(bags, settings, store)
        share, _ = turn_dials(bags, bent, hold_out(bags, bent), settings)

        def size(rows: Problem) -> Size:
            tables = bent_tables(rows, bags.active)
            held_out = hold_out(replace(bags, problem=rows, tables=tables), bent)
            loss = class_losses(held_out.truth, held_out.mix(share))
            return Size.of(kept, loss, held_out.weight)

        return Look(
            size(bags.problem),
            lambda: importance(bags, bent, share, settings),
            lambda rows: size(replace(rows, spec=bags.problem.spec)).loss,
        )

    return fewer_features(problem, settings, settings.few_kept, look)


def importance(
    bags: ClassBags, bent: Bent, share: Tensor, settings: Settings
) -> Tensor:
    """Mean squared change of the linear predictors without a feature, (p,)."""
    problem = bags.problem
    some = problem.take(some_rows(problem, settings.spread_rows))
    still = bags.still(share)

    def predict(part: Problem) -> Tensor:
        eta = part.terms @ still[:, :-1].T
        rows = torch.arange(part.n_rows, device=part.device)
        tables = bent_tables(part, bags.active)
        for kind, states in bent.used(share).items():
            each = [predict_heads(tables[kind], state, rows) for state in states]
            eta = eta + float(share[kind]) * torch.cat(each).mean(0)
        return eta - eta.mean(1, keepdim=True)

    return mean_changes(some, predict)


def _table(
    bags: ClassBags,
    bent: Bent,
    held_out: ClassHeldOut,
    path: Sequence[Size],
) -> dict[str, list[Any]]:
    """One row per model that was trained, ready for a data frame."""
    rows: list[Trial] = []
    coefs = {CURVES: bags.curves[:, :, :-1]}
    if bags.lines is not None:
        coefs[LINES] = bags.lines[:, :, :-1]
    for kind, states in bent.states.items():
        coefs[kind] = torch.cat([state.coef for state in states])
    for kind, coef in coefs.items():
        loss = class_losses(held_out.truth, held_out.eta[kind])
        for bag in held_out.bag.unique().tolist():
            used = bags.problem.term_feature[(coef[bag] != 0).any(0)].unique()
            mean = mean_of(loss, held_out.weight, held_out.bag == bag)
            n_iter = int(bent.states[kind][bag].n_passes[0]) if kind >= BENDS else 1
            rows.append((STAGES[kind], bag, bags.seeds[bag], mean, len(used), n_iter))
    return list_trials(path, rows)
