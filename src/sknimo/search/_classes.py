"""Search with more than two classes: bags of softmax models, and a dial.

The way of `_bags.py`, with coefficients for every class. Every bag, all rows but those
of one fold, has up to three models:

1. *Curves*, an additive model whose precisions are learned by evidence, for all classes
   together (`solver/_softmax.py`).
2. *Lines*, on tables of few rows: one ridge for all, which rows held out choose. Few
   rows that are almost separated do not tell precisions.
3. *Bends*: one network with a head for every class (`solver/_heads.py`).

Linear predictors are linear in coefficients, so that a weighted mean of the three is a
model. The weights are those that predict rows held out best.

Shapes: K bags, C classes, n rows, m rows held out, q terms, p features, P weights.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.network import one_hot, unpack
from sknimo.search._bags import BagTraining, joint_options, train_groups
from sknimo.search._settings import Settings
from sknimo.search._sizes import (
    Size,
    some_rows,
    sparsest,
    strongest,
    without_features,
)
from sknimo.search._verdict import Outcome, Verdict, straight_columns
from sknimo.solver import (
    ClassFit,
    ClassRows,
    HeadsStart,
    HeadsState,
    JointTable,
    Problem,
    fit_classes,
    level_terms,
    minimise,
    predict_heads,
    solve_class_bag,
    start_networks,
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
    table: JointTable

    @property
    def n_classes(self) -> int:
        """Number of classes, C."""
        return self.curves.shape[1]


@dataclass(frozen=True, slots=True)
class ClassHeldOut:
    """Linear predictors of rows that bags hold out, of every kind of model."""

    rows: Tensor  # (m,)
    bag: Tensor  # (m,)
    weight: Tensor  # (m,)
    truth: Tensor  # (m,), numbers of classes
    eta: Tensor  # (3, m, C) of curves, lines and bends; those that are not are curves

    def mix(self, share: Tensor) -> Tensor:
        """A weighted mean of the three, (m, C)."""
        return torch.einsum("k,kmc->mc", share, self.eta)


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
        path = fewer_features(problem, chosen, settings, weight, seeds, store)
        problem = without_features(problem, sparsest(path).kept)
    bags = state_bags(problem, chosen, settings, weight, seeds, store)
    states = train_bags(bags, settings, store)
    held_out = hold_out(bags, states)
    share, straight = turn_dials(bags, states, held_out, settings)
    verdict = judge(held_out, share, straight)
    few = problem.n_rows <= settings.few_rows
    if few and not verdict.gain > settings.dial_errors * verdict.error:
        share = straight
        verdict = judge(held_out, share, straight)
    dial = float(share[2])
    members = mix_members(bags, states, share)
    table = _table(bags, states, held_out, path)
    return Outcome(
        members=members[0],
        problem=bags.problem,
        features=None,
        path=None,
        verdict=verdict,
        alpha=math.nan,
        network_alpha=math.nan,
        input_precision=math.nan,
        log_evidence=math.nan,
        glm_log_evidence=math.nan,
        trials=table,
        best_index=int(np.argmin(table["loss"])),
        n_members=len(states) if dial > 0 else 0,
        out_of_time=time.monotonic() >= settings.deadline,
        dial=dial,
        held_out_eta=mean_by_row(held_out, held_out.mix(share), problem.n_rows),
        straight_eta=mean_by_row(held_out, held_out.mix(straight), problem.n_rows),
        by_bags=True,
        by_class=tuple(members),
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
    train, held_out = (
        torch.as_tensor(np.array(part), dtype=torch.float64, device=problem.device)
        for part in zip(*((fold.train, fold.held_out) for fold in folds), strict=True)
    )
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
        curves=torch.stack([join(each) for each in fits]),
        lines=torch.stack(lines) if lines else None,
        train=train,
        held_out=held_out,
        active=active,
        seeds=tuple(seeds),
        table=JointTable.of(problem, active),
    )


def join(fit: ClassFit) -> Tensor:
    """Coefficients and intercepts side by side, (C, q + 1)."""
    return torch.cat([fit.coef, fit.intercept.unsqueeze(1)], 1)


def fit_all(problem: Problem, weight: Tensor, options: Any) -> ClassFit:
    """The additive model of all rows."""
    rows = ClassRows.of(problem, weight, count_classes(problem))
    return fit_classes(rows, problem.term_group, problem.group_is_curve, options)


def count_classes(problem: Problem) -> int:
    """Number of classes, all of which have rows."""
    return int(problem.y.max()) + 1


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


def train_bags(
    bags: ClassBags, settings: Settings, store: TaskStore
) -> list[HeadsState]:
    """Bent members of all bags; of the scouts alone where they bring nothing."""
    problem, n_bags = bags.problem, len(bags.seeds)
    if len(bags.active) < 1 or problem.spec.n_features < 2:
        return []
    few = problem.n_rows <= settings.few_rows
    n_rows = int((bags.train[0] > 0).sum())
    options = joint_options(n_rows, few, settings)
    how = BagTraining(HeadsState, train_heads, bags.table, bags.ridge)

    def train(which: list[int]) -> list[HeadsState]:
        return train_groups(
            how,
            lambda group: _start(bags, group, settings),
            which,
            options,
            settings,
            store,
            problem.device,
        )

    if few:
        return train(list(range(n_bags)))
    scouts = list(range(min(settings.n_scouts, n_bags)))
    states = train(scouts)
    share, _ = turn_dials(bags, states, hold_out(bags, states), settings, n_bags)
    if float(share[2]) == 0:
        return []
    if time.monotonic() < settings.deadline:
        states += train(list(range(len(scouts), n_bags)))
    return states


def _start(bags: ClassBags, group: list[int], settings: Settings) -> HeadsStart:
    """Hardly any coefficients, a random network without output."""
    seeds = tuple(bags.seeds[k] for k in group)
    spec = bags.problem.spec
    params = start_networks(spec, seeds).to(bags.curves)
    # Weights of inputs that are zero everywhere would not move: they begin at zero.
    idle = (bags.problem.inputs == 0).all(0)
    unpack(spec, params).first[:, :, idle] = 0.0
    heads = params.new_zeros(len(seeds), (bags.n_classes - 1) * spec.hidden[1])
    return HeadsStart(
        coef=settings.start_share * bags.curves[group, :, :-1],
        intercept=bags.curves[group, :, -1],
        params=torch.cat([params, heads], 1),
        train=bags.train[group],
        held_out=bags.held_out[group],
        seeds=seeds,
    )


def hold_out(bags: ClassBags, states: Sequence[HeadsState]) -> ClassHeldOut:
    """What models say of the rows that they have not seen."""
    problem, parts = bags.problem, []
    for bag in range(len(states) or len(bags.seeds)):
        rows = bags.held_out[bag].nonzero().squeeze(-1)
        terms = problem.columns.take(rows)[0]
        columns = torch.cat([terms, terms.new_ones(len(terms), 1)], 1)
        curves = columns @ bags.curves[bag].T
        lines = curves if bags.lines is None else columns @ bags.lines[bag].T
        bends = predict_heads(bags.table, states[bag], rows)[0] if states else curves
        parts.append(
            [
                rows.cpu(),
                torch.full_like(rows, bag).cpu(),
                bags.held_out[bag][rows].cpu(),
                problem.y[rows].long().cpu(),
                torch.stack([curves, lines, bends]).cpu().transpose(0, 1),
            ]
        )
    rows, number, weight, truth, eta = (torch.cat(x) for x in zip(*parts, strict=True))
    return ClassHeldOut(rows, number, weight, truth, eta.transpose(0, 1).contiguous())


def class_losses(truth: Tensor, eta: Tensor) -> Tensor:
    """Deviance halves of rows, (m,)."""
    own = eta.gather(1, truth.unsqueeze(1)).squeeze(1)
    loss = torch.nan_to_num(eta.logsumexp(1) - own, nan=1e30, posinf=1e30)
    return loss.clamp(max=1e30)


def turn_dials(
    bags: ClassBags,
    states: Sequence[HeadsState],
    held_out: ClassHeldOut,
    settings: Settings,
    n_members: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights of curves, lines and bends, (3,), that predict rows held out best.

    Second, the same without bends. `n_members` is how many will be averaged in the end.
    """
    relief = spread_loss(bags, states, settings, n_members or len(states))
    steps = settings.dial_steps
    best: list[tuple[float, Tensor]] = []
    for most in (steps if states else 0, 0):
        found = (math.inf, torch.zeros(3))
        for bent in range(most + 1):
            for lines in range(steps - bent + 1 if bags.lines is not None else 1):
                counts = [steps - bent - lines, lines, bent]
                share = torch.tensor(counts, dtype=torch.float64) / steps
                loss = class_losses(held_out.truth, held_out.mix(share))
                mean = float(held_out.weight @ loss / held_out.weight.sum())
                mean -= float(share[2]) ** 2 * relief
                if mean < found[0]:
                    found = (mean, share)
        best.append(found)
    return best[0][1], best[1][1]


def spread_loss(
    bags: ClassBags, states: Sequence[HeadsState], settings: Settings, n_members: int
) -> float:
    """Loss of a bent member that the mean of `n_members` does not have.

    As in `_bags.py`, with the curvature of a softmax.
    """
    if len(states) < 2:
        return 0.0
    rows = some_rows(bags.problem, settings.spread_rows)
    eta = torch.cat([predict_heads(bags.table, state, rows) for state in states])
    seen = (bags.train[: len(states), rows] > 0).to(eta).unsqueeze(2)
    count = seen.sum(0)
    mean = (eta * seen).sum(0) / count.clamp(min=1)
    chance, off = mean.softmax(1), (eta - mean) * seen
    squares = (chance * off.square()).sum(2) - (chance * off).sum(2).square()
    count = count.squeeze(1)
    variance = squares.sum(0) / (count - 1).clamp(min=1)
    share = (bags.train[0][rows] + bags.held_out[0][rows]) * (count > 1)
    each = torch.nan_to_num(variance, posinf=0.0) * share
    loss = float(each.sum() / share.sum().clamp(min=1e-300)) / 2
    return loss * (1 - 1 / n_members)


def judge(held_out: ClassHeldOut, share: Tensor, straight: Tensor) -> Verdict:
    """Compare what has bends with what has none, by Brier's score.

    A deviance has no bound: a few rows would outweigh all others.
    """
    truth = torch.nn.functional.one_hot(held_out.truth, held_out.eta.shape[2])
    weight = held_out.weight

    def score(eta: Tensor) -> Tensor:
        return (eta.softmax(1) - truth).square().sum(1)

    bent, plain = score(held_out.mix(share)), score(held_out.mix(straight))
    saved = plain - bent
    total = float(weight.sum())
    gain = float(weight @ saved) / total
    spread = float(weight @ (saved - gain).square()) / total
    bent_loss, plain_loss = (
        np.array([_mean(x, weight, held_out.bag == k) for k in held_out.bag.unique()])
        for x in (bent, plain)
    )
    shares = (weight @ truth.double()) / total
    null = float(weight @ (shares - truth).square().sum(1)) / total
    r2, plain_r2 = (1 - float(weight @ x) / total / null for x in (bent, plain))
    n_rows = float(torch.bincount(held_out.rows, weight).clamp(max=1.0).sum())
    error = math.sqrt(spread / max(min(total, n_rows), 1.0))
    return Verdict(bent_loss, plain_loss, gain, error, 0.0, r2, plain_r2)


def _mean(values: Tensor, weight: Tensor, own: Tensor) -> float:
    return float(weight[own] @ values[own] / weight[own].sum())


def mean_by_row(held_out: ClassHeldOut, eta: Tensor, n_rows: int) -> np.ndarray:
    """Mean over the bags that hold a row out, (n, C), NaN where none does."""
    count = torch.bincount(held_out.rows, minlength=n_rows).unsqueeze(1)
    total = eta.new_zeros(n_rows, eta.shape[1]).index_add_(0, held_out.rows, eta)
    return torch.where(count > 0, total / count.clamp(min=1), math.nan).numpy()


def mix_members(
    bags: ClassBags, states: Sequence[HeadsState], share: Tensor
) -> list[Ensemble]:
    """Members of every class whose mean is the weighted mean of all kinds."""
    spec, n_units = bags.problem.spec, bags.problem.spec.hidden[1]
    dial = float(share[2])
    bent = list(states) if dial > 0 else []
    still = float(share[0]) * bags.curves.mean(0)
    if bags.lines is not None:
        still = still + float(share[1]) * bags.lines.mean(0)
    count = len(bent) + 1
    modulated = torch.zeros(count, spec.n_features, dtype=torch.bool)
    modulated[: len(bent), bags.active.cpu()] = True
    silent = bags.curves.new_zeros(1, spec.n_params)
    members = []
    for c in range(bags.n_classes):
        scale = count * dial / max(len(bent), 1)
        coef = [scale * state.coef[:, c] for state in bent]
        intercept = [scale * state.intercept[:, c] for state in bent]
        params = [state.of_class(c, n_units) for state in bent]
        # With what the modulations are at the reference.
        own = still[None, c, :-1]
        for state, net in zip(bent, params, strict=True):
            level = level_terms(bags.table, state.coef[:, c], net)
            own = own + dial / len(bent) * level
        coef.append(count * own)
        intercept.append(count * still[None, c, -1])
        params.append(silent)
        joined = torch.cat(coef), torch.cat(intercept), torch.cat(params)
        members.append(Ensemble(*joined, modulated.to(silent.device)))
    return members


def fewer_features(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    weight: Tensor,
    seeds: Sequence[int],
    store: TaskStore,
) -> list[Size]:
    """Models of ever fewer features, those that matter most, until one is left."""
    kept = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    kept[problem.term_feature.cpu()] = True
    few = min(settings.n_scouts, len(folds))
    path: list[Size] = []
    while True:
        part = without_features(problem, kept)
        bags = state_bags(part, folds[:few], settings, weight, seeds[:few], store)
        states = train_bags(bags, settings, store)
        held_out = hold_out(bags, states)
        share, _ = turn_dials(bags, states, held_out, settings)
        loss, own = class_losses(held_out.truth, held_out.mix(share)), held_out.weight
        mean = float(own @ loss / own.sum())
        spread = float(own @ (loss - mean).square() / own.sum())
        path.append(Size(kept, mean, math.sqrt(spread / float(own.sum()))))
        count = int(settings.keep_share * int(kept.sum()))
        if int(kept.sum()) <= settings.few_kept:
            count = int(kept.sum()) - 1
        if count < 1 or time.monotonic() >= settings.deadline:
            return path
        matter = torch.where(kept, importance(bags, states, share, settings), -1.0)
        kept = torch.zeros_like(kept)
        kept[matter.argsort(descending=True, stable=True)[:count]] = True


def importance(
    bags: ClassBags, states: Sequence[HeadsState], share: Tensor, settings: Settings
) -> Tensor:
    """Mean squared change of the linear predictors without a feature, (p,)."""
    problem = bags.problem
    some = problem.take(some_rows(problem, settings.spread_rows))
    still = float(share[0]) * bags.curves.mean(0)
    if bags.lines is not None:
        still = still + float(share[1]) * bags.lines.mean(0)

    def predict(part: Problem) -> Tensor:
        eta = part.terms @ still[:, :-1].T
        if states and float(share[2]) > 0:
            rows = torch.arange(part.n_rows, device=part.device)
            table = JointTable.of(part, bags.active)
            bent = torch.cat([predict_heads(table, state, rows) for state in states])
            eta = eta + float(share[2]) * bent.mean(0)
        return eta - eta.mean(1, keepdim=True)

    whole = predict(some)
    out = torch.zeros(problem.spec.n_features, dtype=torch.float64)
    for j in range(len(out)):
        others = torch.arange(len(out)) != j
        less = predict(without_features(some, others))
        out[j] = float((whole - less).square().mean())
    return out


def _table(
    bags: ClassBags,
    states: Sequence[HeadsState],
    held_out: ClassHeldOut,
    path: Sequence[Size],
) -> dict[str, list[Any]]:
    """One row per model that was trained, ready for a data frame."""
    names = ("stage", "fold", "seed", "loss", "n_features", "n_iter")
    rows: list[tuple[Any, ...]] = [
        ("path", -1, -1, size.loss, int(size.kept.sum()), 1) for size in path
    ]
    kinds = [("additive", bags.curves[:, :, :-1], 0)]
    if bags.lines is not None:
        kinds.append(("lines", bags.lines[:, :, :-1], 1))
    if states:
        kinds.append(("bent", torch.cat([state.coef for state in states]), 2))
    for stage, coef, place in kinds:
        loss = class_losses(held_out.truth, held_out.eta[place])
        for bag in held_out.bag.unique().tolist():
            used = bags.problem.term_feature[(coef[bag] != 0).any(0)].unique()
            mean = _mean(loss, held_out.weight, held_out.bag == bag)
            n_iter = int(states[bag].n_passes[0]) if place == 2 else 1
            rows.append((stage, bag, bags.seeds[bag], mean, len(used), n_iter))
    return {
        name: list(values)
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }
