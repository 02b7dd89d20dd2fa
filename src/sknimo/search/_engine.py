"""Search, relax, average: the best model of the class without tuning.

The search compares models by their log evidence (see `solver/_evidence.py`), so that
all rows are used for fitting: the nested GLM (`_path.py`), restarts that select
supports, restarts within these, the average of those that explain almost as much as
the best (`_restarts.py`). Held-out rows must agree at the end (`_verdict.py`).

Evidence is exact where a table is smooth and nearly free of noise. Most are not, and
an average of bags predicts them better (`_bags.py`): both are tried, and rows held out
weigh them (`_blend.py`). Tables too large for evidence have bags alone, and of rows
that come in blocks a sample has them (`_blocks.py`). All ways end with the same record.

Shapes: n rows, p features.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from sknimo.families import SOFTMAX
from sknimo.machine import work_beside
from sknimo.search._bags import search_bags
from sknimo.search._blend import Beside, blend_outcomes
from sknimo.search._blocks import search_blocks
from sknimo.search._classes import search_classes
from sknimo.search._path import GlmPath, glm_path
from sknimo.search._restarts import (
    Selection,
    by_evidence,
    choose_members,
    first_starts,
    is_decisive,
    linear_model,
    loose_members,
    scout,
    select,
)
from sknimo.search._runner import (
    MovableReference,
    Runner,
    Start,
    View,
    is_wide,
    lines_alone,
    settle_reference,
    straight_columns,
    without_curves,
)
from sknimo.search._settings import Settings
from sknimo.search._verdict import (
    Exploration,
    Outcome,
    decide,
    glm_member,
    hold_out,
    join_tables,
    mean_by_row,
    merge_folds,
)
from sknimo.solver import (
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    needed_bytes,
)
from sknimo.training import AnyFold, Fold, TaskStore


def search(
    problem: Problem,
    folds: Sequence[AnyFold],
    settings: Settings,
    *,
    weight: Tensor,
    random: np.random.RandomState,
    store: TaskStore | None = None,
    reference: MovableReference | None = None,
    beside: Callable[[], Beside] | None = None,
    others: Sequence[AnyFold] = (),
) -> Outcome:
    """Find the model that predicts new rows best.

    `weight` (n,) counts rows: it sums to the number of observations. Rows that `folds`
    hold out choose the GLM and judge the network, in units of `weight`; `others` hold
    every row out once in another way, which helps to choose the GLM. A `store` keeps
    finished tasks, so that an interrupted search can be resumed. The `reference` says
    how it may move; without it, it stays where it is. `beside` reads the same rows with
    curves, for bags beside the evidence.
    """
    store = store or TaskStore()
    if problem.family is SOFTMAX:
        return search_classes(problem, folds, settings, weight, random, store)
    if not problem.in_one_place:
        return search_blocks(problem, folds, settings, weight, random, store)
    if is_large(problem, settings):
        return search_bags(problem, folds, settings, weight, random, store)
    # Copies of the source: restarts have the seeds of a search without bags.
    if beside is not None and _is_long(problem, settings):
        if not _is_smooth(problem, settings, weight, deepcopy(random), store):
            rows = beside().problem, beside().folds
            return search_bags(*rows, settings, weight, random, store)
    check_memory(problem, settings.memory_budget)
    own, more = (
        [fold for fold in each if isinstance(fold, Fold)] for each in (folds, others)
    )
    more = merge_folds(more, settings.max_folds)
    find_path = cache(lambda: _path(problem, weight, folds, settings, store, more))
    options = evidence_options(problem, settings)
    runner, view = Runner(weight, settings, options, store), View(problem, reference)

    def compare(random: np.random.RandomState) -> Outcome:
        return _by_evidence(runner, view, find_path(), own, random)

    if beside is None or not _is_open(runner, view, find_path, deepcopy(random)):
        return compare(random)
    return _with_bags(runner, compare, beside(), random)


def _with_bags(
    runner: Runner,
    compare: Callable[[np.random.RandomState], Outcome],
    beside: Beside,
    random: np.random.RandomState,
) -> Outcome:
    """What evidence finds and what bags do, side by side, and a mean of both."""
    settings, weight, twin = runner.settings, runner.weight, deepcopy(random)
    many = float(weight.sum()) > settings.few_rows  # equal rows may be one by now
    at_once = settings.n_processes > 1 and not many

    def bag() -> Outcome:
        rows = beside.problem, beside.folds
        return search_bags(*rows, settings, weight, deepcopy(twin), runner.store)

    def gains(outcome: Outcome | None) -> bool:
        return outcome is not None and bend_gain(outcome) >= settings.least_gain

    # Where a few restarts fail there are no others, unless bags gain by bends, which is
    # too rare to wait for them. In one process bags come first: they leave a model
    # where time ends. Of many rows they have learned what there is to learn, unless
    # bends matter much.
    with work_beside(bag, at_once) as bags:
        other = None if at_once else bags()
        if other is not None and many and not gains(other):
            return other
        runner.settings = replace(settings, cautious=not gains(other))
        runner.n_busy = lambda: int(at_once and not bags.is_over)
        found = compare(random)
        if other is None:
            other = bags()
    if runner.gave_up and gains(other):
        runner.settings = settings
        found = compare(twin)
    mean = blend_outcomes(found, other, beside, weight, settings)
    if mean.by_bags and found.n_members:
        again = judge_like_bags(runner, found, beside)
        if again is not found:
            mean = blend_outcomes(again, other, beside, weight, settings)
    return mean


def _is_open(
    runner: Runner,
    view: View,
    find_path: Callable[[], GlmPath],
    random: np.random.RandomState,
) -> bool:
    """Whether the first restarts leave it open that bags do better."""
    # The loss of classes is bounded: no gain over the linear model is decisive. Nor has
    # a wide table any restarts.
    if view.problem.family.is_binary or is_wide(view.problem, view.problem.n_rows):
        return True
    gain = _first_gain(runner, view, find_path().chosen, random)
    return not is_decisive(runner, gain)


def _is_smooth(
    problem: Problem,
    settings: Settings,
    weight: Tensor,
    random: np.random.RandomState,
    store: TaskStore,
) -> bool:
    """Whether the first restarts on a part of the rows leave hardly any noise."""
    if not _has_room(problem, settings.memory_budget):
        return False
    step = 2
    while _is_long(problem, settings, step):
        step += 1
    rows = torch.arange(0, problem.n_rows, step, device=problem.device)
    part, share = problem.take(rows), weight[rows]
    runner = Runner(share, settings, evidence_options(part, settings), store)
    view = View(part, kind="part")
    empty = Coefficients(part.y.new_zeros(1, part.n_terms), part.y.new_zeros(1))
    at = runner.linear(view, empty).coefficients
    return is_decisive(runner, _first_gain(runner, view, at, random))


def _first_gain(
    runner: Runner, view: View, at: Coefficients, random: np.random.RandomState
) -> float:
    """Log evidence that the first restarts gain over the linear model."""
    linear = runner.linear(view, at)
    starts = first_starts(view.problem, at, linear.support, random, runner.settings)
    return scout(runner, view, starts, at, linear.log_evidence)


def bend_gain(outcome: Outcome) -> float:
    """Share of the additive model's loss that bends save on rows held out."""
    verdict = outcome.verdict
    if verdict is None:
        return 0.0
    network, glm = (float(np.mean(x)) for x in (verdict.network_loss, verdict.glm_loss))
    return 1 - network / glm if glm > 0 else 0.0


def is_large(problem: Problem, settings: Settings) -> bool:
    """Whether members are trained on batches of rows, as those in blocks always are."""
    if not problem.in_one_place:
        return True
    if settings.batch_size is not None:
        return settings.batch_size > 0
    spec = replace(problem.spec, hidden=settings.work_hidden)
    return takes_long(problem.n_rows, problem.n_terms + spec.n_params, settings)


def _is_long(problem: Problem, settings: Settings, step: int = 1) -> bool:
    """Whether evidence takes long on one row in so many, as read without curves."""
    spec = replace(problem.spec, hidden=settings.work_hidden)
    n_terms = int(straight_columns(problem).sum())
    return takes_long(problem.n_rows // step, n_terms + spec.n_params, settings)


def takes_long(
    n_rows: int, n_parameters: int, settings: Settings, *, smooth: bool = False
) -> bool:
    """Whether a Gauss-Newton step of that size would take too long.

    `smooth` asks it of a table that is almost free of noise.
    """
    work = float(n_rows) * min(n_parameters, n_rows) ** 2
    return work > settings.max_work * (settings.smooth_times if smooth else 1.0)


def _path(
    problem: Problem,
    weight: Tensor,
    folds: Sequence[AnyFold],
    settings: Settings,
    store: TaskStore,
    others: Sequence[AnyFold] = (),
) -> GlmPath:
    # What does not change the answer must not change the name of the task.
    how = replace(settings, deadline=math.inf, progress=False)
    how = replace(how, n_jobs=None, n_processes=1)
    rows = problem, weight, list(folds)
    return store.call(GlmPath, "path", glm_path, *rows, how, list(others))


def _by_evidence(
    runner: Runner,
    view: View,
    path: GlmPath,
    folds: list[Fold],
    random: np.random.RandomState,
) -> Outcome:
    """Curves and lines side by side where there are curves; one search otherwise."""
    has_curves = not bool(straight_columns(view.problem).all())
    curved = explore(runner, view, path, random, compare=has_curves)
    merged = merge_folds(folds, runner.settings.max_folds)
    if curved.has_network:
        curved = judge_restarts(runner, curved, merged)
    straight = None
    if has_curves and not runner.out_of_time:
        lines = without_curves(curved.view)
        settings, store = runner.settings, replace(runner.store, view=lines.name)
        line_path = _path(lines.problem, runner.weight, folds, settings, store)
        straight = explore(runner, lines, line_path, random, compare=True)
        if _lines_suffice(runner, straight, curved):
            return _by_evidence(runner, lines_alone(view), line_path, folds, random)
        if straight.has_network:
            straight = judge_restarts(runner, straight, merged)
    if not curved.has_network:
        # Without any network all folds are held out, as those of bags are.
        bent = straight is not None and straight.has_network
        curved = judge_restarts(runner, curved, merged if bent else folds)
    most = np.max([fold.train + fold.held_out for fold in folds], axis=0)
    decision = decide(curved, straight, runner.settings, most)
    eta, choice = decision.eta, decision.choice
    held_out = straight_eta = None
    if eta is not None and curved.held_out is not None:
        where, n_rows = curved.held_out, view.problem.n_rows
        held_out = mean_by_row(where.rows, eta, n_rows)
        straight_eta = mean_by_row(where.rows, where.glm, n_rows)
    features, glm = curved.view.features, curved.view.shift(curved.glm)
    if choice is None:
        features, glm = view.features, curved.glm
        if curved.has_network:
            glm = choose_glm(runner, view, curved.selection, path)
    members = glm_member(view.problem, glm) if choice is None else choice.members
    both = [curved] if straight is None else [curved, straight]
    n_members = int(members.modulated.any(-1).sum())
    agreed = [state for each in both for state in each.agreed] if n_members else []
    return Outcome(
        members=members,
        problem=view.problem,
        features=features,
        path=path,
        verdict=decision.verdict,
        alpha=float(path.alphas[path.index]),
        input_precision=input_precision(agreed),
        log_evidence=curved.selection.best.log_evidence,
        glm_log_evidence=curved.selection.linear.log_evidence,
        trials=join_tables(curved, straight),
        best_index=curved.selection.best_index,
        n_members=n_members,
        out_of_time=runner.out_of_time,
        dial=float(n_members > 0),
        held_out_eta=held_out,
        straight_eta=straight_eta,
        straight=glm,
        parts=() if choice is None else choice.parts,
    )


def _lines_suffice(runner: Runner, straight: Exploration, curved: Exploration) -> bool:
    """Whether lines leave hardly any noise, and less where all references move.

    A bend can look like a curve of one feature, whose reference then stays.
    """
    found, reference = straight.selection, curved.view.reference
    if reference is None or reference.keeps_curves or not found.eligible:
        return False
    if not is_decisive(runner, found.best.log_evidence - found.linear.log_evidence):
        return False
    best = replace(found.restarts[found.best_index], view=lines_alone(curved.view))
    settled = settle_reference(runner, best)
    return by_evidence(settled) > curved.selection.best.log_evidence


def explore(
    runner: Runner,
    view: View,
    path: GlmPath,
    random: np.random.RandomState,
    compare: bool,
) -> Exploration:
    """Restarts and members.

    `compare` asks for all that `decide` can make use of: restarts within their own
    supports.
    """
    found = select(runner, view, path.chosen, random)
    agreed = choose_members(runner, found)
    loose = loose_members(runner, found) if compare else []
    if agreed or loose:
        return Exploration(found.view, path, found, agreed, loose, path.chosen)
    # Without a network nothing speaks for another point than the mean.
    glm = path.chosen
    if view.kind != "straight":  # which is returned for its network alone
        glm = choose_glm(runner, view, found, path)
    return Exploration(view, path, found, agreed, loose, glm)


def judge_restarts(
    runner: Runner, explored: Exploration, folds: list[Fold]
) -> Exploration:
    """With what is predicted of the rows that folds hold out, if there is time."""
    if runner.out_of_time:
        return explored
    agreed, loose = (again_on_folds(runner, explored, x) for x in ("agreed", "loose"))
    held_out = hold_out(runner, explored, folds, agreed, loose)
    return replace(explored, held_out=held_out)


def again_on_folds(runner: Runner, explored: Exploration, pool: str) -> list[Start]:
    """Restarts of a pool that are tried on every fold."""
    max_tries, found = runner.settings.max_tries, explored.selection
    if pool == "agreed":
        return found.best_starts(max_tries) if explored.agreed else []
    return found.loose_starts(min(max_tries, len(explored.loose)))


def judge_like_bags(runner: Runner, found: Outcome, beside: Beside) -> Outcome:
    """With what members predict of the rows that bags hold out.

    Each bag leaves out fewer rows than the verdict does, and networks may need all they
    can get: members that are to be weighed against bags must have seen as many.
    """
    folds = [fold for fold in beside.folds if isinstance(fold, Fold)]
    folds = merge_folds(folds, runner.settings.n_members)
    before = [part.explored.held_out for part in found.parts]
    if not any(one is not None and one.fold.max() + 1 < len(folds) for one in before):
        return found
    held_outs = []
    for part in found.parts:
        starts = again_on_folds(runner, part.explored, part.pool)
        pools = (starts, []) if part.pool == "agreed" else ([], starts)
        one = hold_out(runner, part.explored, folds, *pools, of_path=False)
        if one is None:
            return found
        held_outs.append(one)
    first, n_rows = held_outs[0], found.problem.n_rows
    pairs = zip(held_outs, found.parts, strict=True)
    eta = np.mean([getattr(one, part.pool) for one, part in pairs], axis=0)
    return replace(
        found,
        held_out_eta=mean_by_row(first.rows, eta, n_rows),
        straight_eta=mean_by_row(first.rows, first.glm, n_rows),
    )


def choose_glm(
    runner: Runner, view: View, found: Selection, path: GlmPath
) -> Coefficients:
    """The GLM to return when there is no network."""
    wide = is_wide(view.problem, view.problem.n_rows)  # has no evidence to select by
    if path.relaxation == 0 or runner.out_of_time or wide:
        return path.chosen
    # Shrinkage hurts here: the unshrunken fit selects more exactly.
    within = None
    if runner.settings.rule == "1se":
        within = torch.zeros_like(found.linear.support)
        within[view.problem.term_feature[path.chosen.coef[0] != 0]] = True
    return linear_model(runner, view, found.linear, within)


def evidence_options(problem: Problem, settings: Settings) -> EvidenceOptions:
    """How the restarts of a search are fitted."""
    window = settings.window
    if not problem.family.estimates_dispersion:
        window = settings.window_fixed_dispersion
    return replace(
        settings.evidence,
        max_iter=settings.max_iter,
        feature_margin=feature_margin(problem.spec.n_features, settings),
        window=window,
        memory_budget=int(settings.memory_budget),
        deadline=settings.deadline,
    )


def feature_margin(n_features: int, settings: Settings) -> float:
    """Log evidence that a feature must bring.

    A coefficient with squared Wald statistic t raises the evidence by
    `(t - 1 - log t) / 2`; the t used here grows with the number of features.
    """
    threshold = settings.wald_threshold + 2 * math.log(max(n_features, 1))
    return settings.bilinear_margin + (threshold - 1 - math.log(threshold)) / 2


def input_precision(members: list[EvidenceState]) -> float:
    """Median learned precision of the inputs that the best member reads."""
    if not members or not bool(members[0].input_support.any()):
        return math.inf
    best = members[0]
    precision = best.params_precision[: len(best.input_support)]
    return float(precision[best.input_support].median())


def check_memory(problem: Problem, memory_budget: float) -> None:
    """Refuse a table whose Gauss-Newton step cannot stay within the budget."""
    n_parameters = problem.n_terms + problem.spec.n_params
    needed = needed_bytes(problem.n_rows, n_parameters)
    if not _has_room(problem, memory_budget):
        raise ValueError(
            f"memory_budget={memory_budget:.0f} bytes is too small: a step on "
            f"{problem.n_rows} rows and {n_parameters} parameters needs {needed}. "
            "Raise memory_budget, or make hidden smaller."
        )


def _has_room(problem: Problem, memory_budget: float) -> bool:
    n_parameters = problem.n_terms + problem.spec.n_params
    return needed_bytes(problem.n_rows, n_parameters) <= memory_budget
