"""Search, relax, average: the best model of the class without tuning.

The search runs in four steps, each of which compares models by their log evidence (see
`solver/_evidence.py`), so that all rows are used for fitting:

1. *Nested GLM.* A linear fit with learned precisions gives the evidence to beat; a
   relaxed lasso path, chosen by cross-validation, gives the GLM that is returned when
   the network does not earn its keep.
2. *Select.* Restarts from few to many parameters: wide ones see every feature, narrow
   ones only the strongest features of the GLM. What the data do not need is switched
   off exactly. The best restart, simplified, decides the supports.
3. *Relax.* Fresh restarts with the supports frozen.
4. *Average* the restarts that explain almost as much as the best.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from torch import Tensor
from tqdm.auto import tqdm

from sknimo.estimators._base import (
    BaseNIMO,
    DeviceName,
    choose_device,
    is_separated,
    state_problem,
    torch_threads,
)
from sknimo.estimators._data import (
    TrainingSet,
    check_number,
    check_option,
    check_widths,
)
from sknimo.estimators._docs import document
from sknimo.estimators._tasks import ClassificationTask, RegressionTask
from sknimo.exceptions import SeparationWarning
from sknimo.model import FittedModel
from sknimo.network import init_params, unpack
from sknimo.penalties import make_penalty
from sknimo.solver import (
    ESTIMATED_DISPERSION,
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    Rows,
    fit_evidence,
    restrict,
    simplify,
    solve_coefficients,
    start_state,
)

RuleName = Literal["min", "1se"]

# Where restarts begin, as a share of the dispersion that the GLM leaves.
OPTIMISM = (1.0, 0.1, 1.0, 0.02)
OPTIMISM_FIXED_DISPERSION = (0.1, 0.3, 0.03, 1.0)
# A restart joins the average when its gain in log evidence over the GLM is at least
# this share of the best gain; the others have failed.
MEMBER_SHARE = 0.7
# The network must beat the GLM's log evidence by this much.
EVIDENCE_MARGIN = 5.0
# Penalty path of the GLM, and how far each support is relaxed.
PATH_LENGTH = 30
PATH_RATIO = 1e-3
RELAXATION = (0.0, 0.5, 1.0)
RELAXED_RIDGE = 1e-8
PATH_BYTES = 256e6
# Up to this many features every restart may see all of them.
FEW_FEATURES = 12
# Log evidence that a feature must bring to an unshrunken linear model.
LINEAR_MARGIN = 1.0
OUTPUT_SCALE = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """One restart: where it starts and what it may use."""

    stage: str
    seed: int
    optimism: float
    support: Tensor
    input_support: Tensor


@dataclass(frozen=True, slots=True)
class Fold:
    """Weights of the rows that a fold trains on and holds out, each (n,)."""

    train: np.ndarray
    held_out: np.ndarray


@dataclass(frozen=True, slots=True)
class GlmPath:
    """The relaxed lasso path and what cross-validation chose on it.

    Attributes
    ----------
    alphas : ndarray of shape (T,)
    coef : ndarray of shape (T, q)
        Standardised coefficients along the path.
    relaxation : float
        Share of the unpenalised solution on the support in the chosen model.
    index : int
        Chosen position on the path.
    cv_loss, cv_error : ndarray of shape (T,)
        Mean half deviance on held-out rows and its standard error, at the chosen
        relaxation.
    chosen : Coefficients
    """

    alphas: np.ndarray
    coef: np.ndarray
    relaxation: float
    index: int
    cv_loss: np.ndarray
    cv_error: np.ndarray
    chosen: Coefficients


class EvidenceSearch(BaseNIMO):
    """Parameters and fit of the searching estimators."""

    def __init__(
        self,
        *,
        alphas: Any = None,
        cv: Any = 5,
        rule: str = "min",
        n_starts: int = 8,
        n_members: int = 10,
        relax: bool = True,
        hidden: tuple[int, int] = (16, 16),
        position_code: str = "binary",
        max_iter: int = 100,
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: Any = None,
        basis: Any = "linear",
        categorical: Any = None,
        reference: Any = "mean",
        missing: str = "error",
        handle_unknown: str = "error",
        input_scaling: str = "standard",
        clip_inputs: bool = False,
    ) -> None:
        super().__init__(
            basis=basis,
            categorical=categorical,
            reference=reference,
            missing=missing,
            handle_unknown=handle_unknown,
            input_scaling=input_scaling,
            clip_inputs=clip_inputs,
        )
        self.alphas = alphas
        self.cv = cv
        self.rule = rule
        self.n_starts = n_starts
        self.n_members = n_members
        self.relax = relax
        self.hidden = hidden
        self.position_code = position_code
        self.max_iter = max_iter
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _check_params(self) -> None:
        check_option("rule", self.rule, get_args(RuleName))
        check_option("device", self.device, get_args(DeviceName))
        for name in ("n_starts", "n_members", "max_iter"):
            check_number(name, getattr(self, name), Integral, 1)
        check_widths(self.hidden)
        if isinstance(self.cv, Integral) and int(self.cv) < 2:
            raise ValueError(
                f"cv must be 2 folds or more, or a splitter; got {self.cv}."
            )
        if self.alphas is not None:
            alphas = np.atleast_1d(np.asarray(self.alphas, dtype=float))
            if not (alphas.size and np.isfinite(alphas).all() and (alphas > 0).all()):
                raise ValueError(
                    f"alphas must be positive numbers, got {self.alphas!r}."
                )
        if self.max_time is not None:
            check_number("max_time", self.max_time, Real, 0)

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Self:
        self._check_params()
        family = self._family()
        data = self._read_training_set(X, y, sample_weight, offset, family)
        problem = state_problem(
            data,
            family,
            hidden=(int(self.hidden[0]), int(self.hidden[1])),
            position_code=self.position_code,
            mask=True,
            device=choose_device(self.device),
        )
        with torch_threads(problem.n_rows):
            return self._search(problem, data)

    def _search(self, problem: Problem, data: TrainingSet) -> Self:
        random = check_random_state(self.random_state)
        weight = torch.as_tensor(count_weights(data.weight)).to(problem.terms)
        path = glm_path(
            problem, weight, self.alphas, self._folds(data, random), self.rule
        )
        runner = Runner(
            problem,
            weight,
            self._evidence_options(problem),
            self.n_jobs,
            self.max_time,
            bool(self.verbose),
        )
        search = run_search(
            runner, path.chosen, random, int(self.n_starts), bool(self.relax)
        )
        members = choose_members(runner, search, int(self.n_members))
        glm = path.chosen
        if not members and path.relaxation > 0:
            # Shrinkage hurts here: the unshrunken fit selects more exactly.
            glm = linear_model(runner, search.linear)
        model = assemble(data, problem, members, glm)
        self._keep(model, data, search, members, path, runner)
        return self

    def _evidence_options(self, problem: Problem) -> EvidenceOptions:
        known = problem.family.name not in ESTIMATED_DISPERSION
        return EvidenceOptions(
            max_iter=int(self.max_iter),
            feature_margin=feature_margin(problem.spec.n_features),
            window=12 if known else 6,
        )

    def _folds(self, data: TrainingSet, random: np.random.RandomState) -> list[Fold]:
        """Training and held-out weight of every row, per fold.

        An integer makes random folds of distinct rows. A splitter, or an iterable of
        index pairs, refers to the rows as the user gave them.
        """
        n_rows = len(data.table)
        if isinstance(self.cv, Integral):
            fold = random.permutation(n_rows) % min(int(self.cv), n_rows)
            return [
                Fold(data.weight * (fold != k), data.weight * (fold == k))
                for k in range(fold.max() + 1)
            ]
        used = data.place >= 0
        target = np.where(used, data.y[data.place], 0.0)
        splitter = check_cv(self.cv, target, classifier=data.classes is not None)

        def total(rows: Any) -> np.ndarray:
            index = np.arange(len(used))[np.asarray(rows)]  # positions or a mask
            kept = index[used[index]]
            weight = data.given_weight[kept]
            return np.bincount(data.place[kept], weight, minlength=n_rows)

        placeholder = np.zeros((len(target), 1))
        folds = [
            Fold(total(train), total(test))
            for train, test in splitter.split(placeholder, target)
        ]
        folds = [f for f in folds if f.train.any() and f.held_out.any()]
        if not folds:
            raise ValueError("cv leaves no fold with rows to train on and to hold out.")
        return folds

    def _keep(
        self,
        model: FittedModel,
        data: TrainingSet,
        search: SearchResult,
        members: list[EvidenceState],
        path: GlmPath,
        runner: Runner,
    ) -> None:
        self._keep_model(model, data)
        self.n_members_ = len(members)
        self.alpha_ = float(path.alphas[path.index])
        self.path_ = path
        self.cv_results_ = search.table()
        self.best_index_ = search.best_index
        self.log_evidence_ = search.best.log_evidence
        self.glm_log_evidence_ = search.linear.log_evidence
        self.n_iter_ = max(1, sum(state.n_iter for state in search.states))
        separated = is_separated(model, data)
        self.converged_ = not runner.out_of_time and not separated
        if separated:
            warnings.warn(
                "The classes are separated perfectly: the fit is finite only because "
                "of its priors, and the size of its coefficients is arbitrary.",
                SeparationWarning,
                stacklevel=5,
            )
        if runner.out_of_time:
            warnings.warn(
                f"max_time={self.max_time} s was reached after "
                f"{len(search.states)} restarts; the best so far was kept.",
                ConvergenceWarning,
                stacklevel=5,
            )


def feature_margin(n_features: int) -> float:
    """Log evidence that a feature must bring.

    A coefficient with squared Wald statistic t raises the evidence by
    `(t - 1 - log t) / 2`. The t used here grows with the number of features so that
    about one fit in thirty would keep a feature that does nothing; one more unit pays
    for the bilinear terms that can move between features.
    """
    threshold = 4 + 2 * math.log(max(n_features, 1))
    return 1 + (threshold - 1 - math.log(threshold)) / 2


def count_weights(weight: np.ndarray) -> np.ndarray:
    """Weights that count rows: integers as they are, others scaled to mean one."""
    if np.array_equal(weight, np.round(weight)):
        return weight
    return weight * (len(weight) / weight.sum())


class Runner:
    """Runs restarts, in this process or in several, until time is up."""

    def __init__(
        self,
        problem: Problem,
        weight: Tensor,
        options: EvidenceOptions,
        n_jobs: int | None,
        max_time: float | None,
        progress: bool,
    ) -> None:
        self.problem, self.weight, self.options = problem, weight, options
        self.n_jobs, self.progress = n_jobs, progress
        self.deadline = math.inf if max_time is None else time.monotonic() + max_time
        self.out_of_time = False

    def run(self, tasks: Sequence[Task], start: Coefficients) -> list[EvidenceState]:
        """Fit every task; tasks that cannot start in time are left out."""
        calls = (
            delayed(run_task)(
                self.problem, self.weight, task, start, self.options, self.deadline
            )
            for task in tasks
        )
        bar = tqdm(
            Parallel(n_jobs=self.n_jobs, return_as="generator")(calls),
            total=len(tasks),
            desc=f"sknimo {tasks[0].stage}" if tasks else "sknimo",
            disable=None if self.progress else True,
            delay=2,
            leave=False,
        )
        done = [state for state in bar if state is not None]
        self.out_of_time = self.out_of_time or len(done) < len(tasks)
        return done


def run_task(
    problem: Problem,
    weight: Tensor,
    task: Task,
    start: Coefficients,
    options: EvidenceOptions,
    deadline: float,
) -> EvidenceState | None:
    """One restart, on one thread unless the table is large."""
    if time.monotonic() > deadline:
        return None
    with torch_threads(problem.n_rows):
        state = start_state(
            problem,
            weight,
            random_network(problem, task.seed),
            start,
            task.support,
            task.input_support,
            task.optimism,
        )
        state = restrict(state, problem, task.input_support, task.support)
        return fit_evidence(problem, weight, state, options)


def random_network(problem: Problem, seed: int) -> Tensor:
    """A random network with a small output layer, (P,)."""
    params = init_params(problem.spec, [seed])
    generator = torch.Generator().manual_seed(seed)
    out = unpack(problem.spec, params).out
    out.normal_(
        0, OUTPUT_SCALE / math.sqrt(problem.spec.hidden[1]), generator=generator
    )
    return params[0].to(problem.terms.device)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All restarts, the linear fit beside them, and the best."""

    tasks: list[Task]
    states: list[EvidenceState]
    linear: EvidenceState
    best_index: int

    @property
    def best(self) -> EvidenceState:
        """The state with the highest evidence, the linear fit included."""
        if self.best_index < 0:
            return self.linear
        return self.states[self.best_index]

    def table(self) -> dict[str, list[Any]]:
        """One row per restart, ready for a data frame."""
        return {
            "stage": [task.stage for task in self.tasks],
            "optimism": [task.optimism for task in self.tasks],
            "seed": [task.seed for task in self.tasks],
            "log_evidence": [state.log_evidence for state in self.states],
            "n_features": [int(state.support.sum()) for state in self.states],
            "n_inputs": [int(state.input_support.sum()) for state in self.states],
            "n_effective": [state.n_effective for state in self.states],
            "n_iter": [state.n_iter for state in self.states],
        }


def run_search(
    runner: Runner,
    start: Coefficients,
    random: np.random.RandomState,
    n_starts: int,
    relax: bool,
) -> SearchResult:
    """Select supports by restarts, then restart within them."""
    problem = runner.problem
    p, device = problem.spec.n_features, problem.terms.device
    usable = torch.zeros(p, dtype=torch.bool, device=device)
    usable[problem.term_feature] = True
    nothing = torch.zeros_like(usable)
    levels = (
        OPTIMISM
        if problem.family.name in ESTIMATED_DISPERSION
        else OPTIMISM_FIXED_DISPERSION
    )

    def tasks(stage: str, support: Tensor, inputs: Tensor, count: int) -> list[Task]:
        return [
            Task(
                stage,
                int(random.randint(2**31 - 1)),
                levels[k % len(levels)],
                support,
                inputs,
            )
            for k in range(count)
        ]

    linear = fit_evidence(
        problem,
        runner.weight,
        start_state(
            problem,
            runner.weight,
            torch.zeros(problem.spec.n_params, dtype=torch.float64, device=device),
            start,
            usable,
            nothing,
        ),
        runner.options,
    )
    shortlist = linear.support | strongest_features(problem, start)
    n_narrow = n_starts // 2 if p > FEW_FEATURES and bool(shortlist.any()) else 0
    plan = tasks("wide", usable, usable, n_starts - n_narrow)
    plan += tasks("narrow", shortlist, shortlist, n_narrow)
    states = runner.run(plan, start)
    plan = plan[: len(states)]
    if not states or max(state.log_evidence for state in states) == -math.inf:
        return SearchResult([], [], linear, -1)
    leader = int(np.argmax([state.log_evidence for state in states]))
    best = states[leader]
    tidied = simplify(problem, runner.weight, best, runner.options)
    if relax and bool(tidied.input_support.any()):
        more = tasks("relaxed", tidied.support, tidied.input_support, n_starts)
        relaxed = runner.run(more, start)
        plan = [*plan, *more[: len(relaxed)]]
        states = [*states, *relaxed]
        # A better fit tells a feature that does nothing more clearly.
        best = max([tidied, *relaxed], key=lambda state: state.log_evidence)
        tidied = simplify(problem, runner.weight, best, runner.options)
    plan.append(replace(plan[leader], stage="simplified"))
    states.append(tidied)
    evidence = [state.log_evidence for state in states]
    return SearchResult(plan, states, linear, int(np.argmax(evidence)))


def strongest_features(problem: Problem, at: Coefficients) -> Tensor:
    """Features with the largest coefficients of the GLM, `FEW_FEATURES` at most."""
    size = at.coef.new_zeros(problem.spec.n_features)
    size.index_add_(0, problem.term_feature, at.coef[0].square())
    top = torch.topk(size, min(FEW_FEATURES, len(size)))
    strongest = torch.zeros_like(size, dtype=torch.bool)
    strongest[top.indices] = top.values > 0
    return strongest


def choose_members(
    runner: Runner, search: SearchResult, n_members: int
) -> list[EvidenceState]:
    """The restarts to average; none when the network does not beat the GLM.

    A restart has failed when it gains less than `MEMBER_SHARE` of the evidence that the
    best one gains over the linear fit, before or after it has been restricted to the
    selected supports.
    """
    floor = search.linear.log_evidence
    gain = search.best.log_evidence - floor
    if search.best_index < 0 or gain < EVIDENCE_MARGIN:
        return []
    pool = [s for s in search.states if s.log_evidence - floor >= MEMBER_SHARE * gain]
    pool = sorted(pool, key=lambda state: -state.log_evidence)[:n_members]
    agreed = agree(runner, pool, search.states[-1])
    return [s for s in agreed if s.log_evidence - floor >= MEMBER_SHARE * gain]


def agree(
    runner: Runner, members: list[EvidenceState], selected: EvidenceState
) -> list[EvidenceState]:
    """Restrict members to the selected features and inputs, refitting if need be."""
    brief = replace(runner.options, max_iter=12, burn_in=0)
    agreed = []
    for state in members:
        support = state.support & selected.support
        inputs = state.input_support & selected.input_support
        if not torch.equal(support, state.support) or not torch.equal(
            inputs, state.input_support
        ):
            fewer = restrict(state, runner.problem, inputs, support)
            state = fit_evidence(runner.problem, runner.weight, fewer, brief)
        agreed.append(state)
    return agreed


def linear_model(runner: Runner, linear: EvidenceState) -> Coefficients:
    """Coefficients of the linear evidence fit without features that bring nothing."""
    gentle = replace(runner.options, feature_margin=LINEAR_MARGIN)
    state = simplify(runner.problem, runner.weight, linear, gentle)
    return Coefficients(state.coef.unsqueeze(0), state.intercept.reshape(1))


def assemble(
    data: TrainingSet,
    problem: Problem,
    members: list[EvidenceState],
    glm: Coefficients,
) -> FittedModel:
    """Average the members, or keep the GLM when there are none."""
    p = problem.spec.n_features
    if members:
        coef = torch.stack([state.coef for state in members])
        intercept = torch.stack([state.intercept for state in members])
        params = torch.stack([state.params for state in members])
        modulated = torch.stack(
            [state.support & state.input_support.any() for state in members]
        )
    else:
        coef, intercept = glm.coef, glm.intercept
        params = torch.zeros(1, problem.spec.n_params, dtype=torch.float64)
        modulated = torch.zeros(1, p, dtype=torch.bool)
    return FittedModel(
        features=data.features,
        family=problem.family,
        spec=problem.spec,
        coef=coef.cpu() * data.y_scale,
        intercept=intercept.cpu() * data.y_scale + data.y_mean,
        params=params.cpu(),
        modulated=modulated.cpu(),
    )


def glm_path(
    problem: Problem,
    weight: Tensor,
    alphas: Any,
    folds: list[Fold],
    rule: str,
) -> GlmPath:
    """Relaxed lasso path of the nested GLM, chosen on held-out rows.

    All folds and penalties are one batch of solves, cut only to bound memory.
    """
    share = (weight / weight.sum()).unsqueeze(0)
    if alphas is None:
        largest = largest_alpha(problem, share)
        grid = largest * np.geomspace(1, PATH_RATIO, PATH_LENGTH)
    else:
        grid = np.sort(np.atleast_1d(np.asarray(alphas, dtype=float)))[::-1].copy()
    full = fit_path(problem, share, grid)
    loss = np.empty((len(RELAXATION), len(grid), len(folds)))
    held_out = np.empty(len(folds))
    for f, fold in enumerate(folds):
        inside = torch.as_tensor(fold.train).to(weight)
        fitted = fit_path(problem, (inside / inside.sum()).unsqueeze(0), grid)
        outside = torch.as_tensor(fold.held_out).to(weight)
        held_out[f] = float(outside.sum())
        rows = Rows(
            problem.y,
            problem.offset,
            (outside / outside.sum()).unsqueeze(0),
            problem.family,
        )
        for r, relaxation in enumerate(RELAXATION):
            at = fitted.blend(relaxation)
            eta = rows.eta(problem.terms, at.coef, at.intercept)
            loss[r, :, f] = rows.loss(eta).cpu().numpy()
    mean = np.average(loss, axis=2, weights=held_out)
    error = standard_error(loss)
    r, t = 0, int(np.nanargmin(mean[0]))
    for other in range(1, len(RELAXATION)):
        best = int(np.nanargmin(mean[other]))
        gain = loss[r, t] - loss[other, best]
        # Relaxing must win by more than the folds disagree.
        if gain.mean() > standard_error(gain):
            r, t = other, best
    if rule == "1se":  # the strongest penalty that is as good within its error
        t = int(np.flatnonzero(mean[r] <= mean[r, t] + error[r, t])[0])
    at = full.blend(RELAXATION[r])
    index = torch.tensor([int(t)], device=problem.terms.device)
    return GlmPath(
        alphas=grid,
        coef=full.lasso.coef.cpu().numpy(),
        relaxation=RELAXATION[r],
        index=int(t),
        cv_loss=mean[r],
        cv_error=error[r],
        chosen=at.take(index),
    )


def standard_error(values: np.ndarray) -> Any:
    """Standard error of the mean over the last axis; zero for a single value."""
    count = values.shape[-1]
    return values.std(axis=-1, ddof=1 if count > 1 else 0) / math.sqrt(count)


@dataclass(frozen=True, slots=True)
class _Path:
    """Lasso solutions and the free solutions on their supports."""

    lasso: Coefficients
    free: Coefficients

    def blend(self, relaxation: float) -> Coefficients:
        """Move every solution of the path towards the free one."""
        keep = 1 - relaxation
        return Coefficients(
            keep * self.lasso.coef + relaxation * self.free.coef,
            keep * self.lasso.intercept + relaxation * self.free.intercept,
        )


def fit_path(problem: Problem, share: Tensor, grid: np.ndarray) -> _Path:
    """Lasso and relaxed solutions for every penalty, in batches of bounded memory."""
    n, q = problem.terms.shape
    size = max(1, int(PATH_BYTES // max(8 * 4 * n * max(q, 1), 1)))
    parts = [
        _fit_path_block(problem, share, grid[begin : begin + size])
        for begin in range(0, len(grid), size)
    ]
    return _Path(
        _concatenate([part.lasso for part in parts]),
        _concatenate([part.free for part in parts]),
    )


def _fit_path_block(problem: Problem, share: Tensor, grid: np.ndarray) -> _Path:
    device, p = problem.terms.device, problem.spec.n_features
    strength = torch.as_tensor(grid, device=device)
    count = len(grid)
    rows = Rows(problem.y, problem.offset, share.expand(count, -1), problem.family)
    design = problem.terms.expand(count, -1, -1)
    penalty = make_penalty("lasso", strength, problem.term_feature, p)
    lasso = solve_coefficients(design, rows, penalty, tol=1e-7).coefficients
    ridge = make_penalty(
        "ridge", torch.full_like(strength, RELAXED_RIDGE), problem.term_feature, p
    )
    kept = (lasso.coef != 0).to(design)
    free = solve_coefficients(design * kept.unsqueeze(1), rows, ridge, lasso, tol=1e-7)
    return _Path(lasso, free.coefficients)


def _concatenate(parts: list[Coefficients]) -> Coefficients:
    return Coefficients(
        torch.cat([part.coef for part in parts]),
        torch.cat([part.intercept for part in parts]),
    )


def largest_alpha(problem: Problem, share: Tensor) -> float:
    """Smallest lasso penalty that empties the model."""
    p = problem.spec.n_features
    huge = torch.full((1,), 1e12, dtype=torch.float64, device=share.device)
    penalty = make_penalty("lasso", huge, problem.term_feature, p)
    rows = Rows(problem.y, problem.offset, share, problem.family)
    null = solve_coefficients(problem.terms.unsqueeze(0), rows, penalty).coefficients
    eta = rows.eta(problem.terms.unsqueeze(0), null.coef, null.intercept)
    pull = (rows.weight * rows.family.score(rows.y, eta)) @ problem.terms
    norm = penalty.norm(pull) / penalty.weight.clamp(min=1.0)
    return max(float(norm.max()) if norm.numel() else 0.0, 1e-8)


_SHARED = {
    "parameters": """alphas : array of float, optional
        Penalties of the nested GLM's lasso path; by default from the smallest one that
        empties the model down to a thousandth of it.
    cv : int, splitter or iterable, default=5
        Folds that choose on this path.
    rule : {"min", "1se"}, default="min"
        Take the best penalty of the path, or the strongest that is as good within one
        standard error.
    n_starts : int, default=8
        Restarts in each of the two stages, selection and relaxed refit.
    n_members : int, default=10
        Largest number of restarts to average; 1 keeps the best alone.
    relax : bool, default=True
        Whether to restart within the selected supports.
    hidden : tuple of two int, default=(16, 16)
        Units of the network's two layers.
    position_code : {"binary", "none"}, default="binary"
        How the shared network is told which feature it modulates.
    max_iter : int, default=100
        Gauss-Newton steps of one restart.
    max_time : float, optional
        Seconds after which no further restart begins; the best so far is kept.
    n_jobs : int, optional
        Processes (joblib); the answer does not depend on it.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to fit; "auto" takes a GPU when there is one.
    verbose : bool, default=False
        Show a progress bar when the output is a terminal.
    random_state : int, RandomState instance or None, default=None
        Governs folds and restarts.
    <feature parameters>""",
    "attributes": """<feature attributes>
    model_ : FittedModel
        What predictions are made from.
    n_members_ : int
        Averaged restarts; 0 when the GLM was kept.
    log_evidence_ : float
        Log evidence of the best restart.
    glm_log_evidence_ : float
        Log evidence of the linear fit.
    alpha_ : float
        Penalty chosen for the nested GLM.
    path_ : GlmPath
        Its lasso path, held-out loss and chosen point.
    cv_results_ : dict of list
        One entry per restart: stage, evidence, features and inputs kept.
    best_index_ : int
        Position of the best restart there, -1 when there is none.
    n_iter_ : int
        Gauss-Newton steps of all restarts.
    converged_ : bool
        False when time ran out or the classes are separated.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, when `X` had any.""",
}


@document(_SHARED)
class NIMORegressorCV(RegressionTask, EvidenceSearch):
    """Regression that finds its own sparsity, smoothness and size.

    The same model as `NIMORegressor`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested GLM is returned.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma"}, default="gaussian"
        Distribution of the target.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Effect of each feature at the reference, per unit of its column, on the scale
        of the linear predictor. Zeros are exact.
    intercept_ : float
        Linear predictor at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMORegressorCV
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=200, random_state=0)
    >>> est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
    >>> est.coef_.nonzero()[0].tolist()
    [0, 1, 2]
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        alphas: Any = None,
        cv: Any = 5,
        rule: str = "min",
        n_starts: int = 8,
        n_members: int = 10,
        relax: bool = True,
        hidden: tuple[int, int] = (16, 16),
        position_code: str = "binary",
        max_iter: int = 100,
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: Any = None,
        basis: Any = "linear",
        categorical: Any = None,
        reference: Any = "mean",
        missing: str = "error",
        handle_unknown: str = "error",
        input_scaling: str = "standard",
        clip_inputs: bool = False,
    ) -> None:
        super().__init__(
            alphas=alphas,
            cv=cv,
            rule=rule,
            n_starts=n_starts,
            n_members=n_members,
            relax=relax,
            hidden=hidden,
            position_code=position_code,
            max_iter=max_iter,
            max_time=max_time,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
            random_state=random_state,
            basis=basis,
            categorical=categorical,
            reference=reference,
            missing=missing,
            handle_unknown=handle_unknown,
            input_scaling=input_scaling,
            clip_inputs=clip_inputs,
        )
        self.family = family


@document(_SHARED)
class NIMOClassifierCV(ClassificationTask, EvidenceSearch):
    """Binary classification that finds its own sparsity, smoothness and size.

    The same model as `NIMOClassifier`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested logistic regression
    is returned.

    Parameters
    ----------
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels; the model predicts the log-odds of the second.
    coef_ : ndarray of shape (n_features,)
        Effect of each feature on the log-odds at the reference, per unit of its column.
    intercept_ : float
        Log-odds at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMOClassifierCV
    >>> from sknimo.datasets import make_nimo_classification
    >>> data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    >>> est = NIMOClassifierCV(n_starts=3, random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (200, 2)
    """
