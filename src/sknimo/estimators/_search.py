"""Search, relax, average: the best model of the class without tuning.

The search compares models by their log evidence (see `solver/_evidence.py`), so that
all rows are used for fitting, and asks held-out rows at the end:

1. *Nested GLM.* A linear fit with learned precisions gives the evidence to beat; a
   relaxed lasso path, chosen by cross-validation, gives the GLM that is returned when
   the network does not earn its keep.
2. *Select.* Restarts from few to many parameters: wide ones see every feature, narrow
   ones only the strongest features of the GLM. What the data do not need is switched
   off exactly. The best restart, simplified, decides the supports.
3. *Relax.* Fresh restarts with the supports frozen.
4. *Average* the restarts that explain almost as much as the best.
5. *Verdict.* Held-out rows must agree that the network is worth having.

Restarts are independent tasks with their own seeds: any number of processes gives the
same answer. Tables too large for this, and rows that come in blocks, go another way,
see `_batches.py`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sknimo.estimators._base import (
    BaseNIMO,
    DeviceName,
    choose_device,
    is_separated,
    state_network,
    state_problem,
    unchanged_on_failure,
)
from sknimo.estimators._batches import (
    DTYPE,
    BatchOptions,
    BatchSearch,
    is_large,
    search_batches,
    takes_long,
)
from sknimo.estimators._blend import (
    Fit,
    Part,
    decide,
    glm_parts,
    join_tables,
    straight_columns,
    without_curves,
)
from sknimo.estimators._data import (
    BATCH_ROWS,
    TrainingSet,
    check_batch_size,
    check_budget,
    check_number,
    check_option,
    check_widths,
    count_weights,
)
from sknimo.estimators._folds import (
    AnyFold,
    Fold,
    make_folds,
    number_folds,
    read_groups,
)
from sknimo.estimators._models import assemble_model
from sknimo.estimators._passes import (
    describe_stream,
    fit_budget,
    judge_rows,
    open_stream_store,
    state_stream,
)
from sknimo.estimators._path import GlmPath, glm_path
from sknimo.estimators._reference import Reference, movable_features
from sknimo.estimators._restarts import (
    SearchResult,
    choose_members,
    feature_margin,
    linear_model,
    loose_members,
    run_search,
)
from sknimo.estimators._resume import TaskStore, check_folder, open_store
from sknimo.estimators._runner import Runner
from sknimo.estimators._streams import StreamedSet, find_rows, read_stream
from sknimo.estimators._threads import torch_threads
from sknimo.estimators._verdict import MAX_TRIES, Verdict, hold_out
from sknimo.exceptions import SeparationWarning
from sknimo.features import FeatureMap
from sknimo.model import FittedModel
from sknimo.network import make_spec
from sknimo.rows import RowBlocks
from sknimo.solver import (
    ESTIMATED_DISPERSION,
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    MemoryColumns,
    Options,
    Problem,
    needed_bytes,
)

RuleName = Literal["min", "1se", "stability"]

HIDDEN = (16, 16)
HIDDEN_BATCHES = (32, 32)
# Numbers per row of a streamed set and its folds.
SET_VECTORS = 5


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
        hidden: tuple[int, int] | None = None,
        position_code: str = "binary",
        max_iter: int = 100,
        batch_size: Any = "auto",
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        memory_budget: Any = "auto",
        checkpoint: Any = None,
        verbose: bool = False,
        random_state: Any = None,
        basis: Any = "auto",
        categorical: Any = None,
        reference: Any = "auto",
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
        self.batch_size = batch_size
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.device = device
        self.memory_budget = memory_budget
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def _check_params(self) -> None:
        check_option("rule", self.rule, get_args(RuleName))
        check_option("device", self.device, get_args(DeviceName))
        for name in ("n_starts", "n_members", "max_iter"):
            check_number(name, getattr(self, name), Integral, 1)
        if self.hidden is not None:
            check_widths(self.hidden)
        check_batch_size(self.batch_size)
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
        check_budget(self.memory_budget)
        check_folder(self.checkpoint)

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Search and fit.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features), or RowBlocks
            Numeric columns are standardised inside; text, categorical and enum columns
            of a data frame are categories. Blocks of rows and large memory-mapped
            arrays are read piece by piece, and searched by batches.
        y : array of shape (n_samples,)
            Target; part of the blocks if there are any.
        sample_weight : array of shape (n_samples,), optional
            Row weights. Integer weights equal repetition, zero weights deletion.
        offset : array of shape (n_samples,), optional
            Known part of the linear predictor, for example a log exposure.
        groups : array of shape (n_samples,), optional
            Rows of one group are held out together: labels for a group splitter such
            as `GroupKFold`. A whole number `cv` makes folds of whole groups. Not for
            blocks of rows.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, offset, groups)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any = None
    ) -> Self:
        self._check_params()
        rows = self._find_rows(X, y, sample_weight, offset, groups)
        if rows is not None:
            return self._fit_rows(rows)
        family = self._family()
        data = self._read_training_set(X, y, sample_weight, offset, family)
        labels = read_groups(groups, len(data.place))
        problem = state_problem(
            data,
            family,
            hidden=self._widths(HIDDEN),
            position_code=self.position_code,
            mask=True,
            device=choose_device(self.device),
        )
        by_batches = bool(self.batch_size)
        if isinstance(self.batch_size, str):
            by_batches = is_large(problem)
        with torch_threads(problem.n_rows):
            if by_batches:
                spec = replace(problem.spec, hidden=self._widths(HIDDEN_BATCHES))
                problem = replace(problem, spec=spec)
                return self._search_batches(problem, data, labels)
            check_memory(problem, self._budget())
            return self._search(problem, data, labels)

    def _find_rows(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any
    ) -> RowBlocks | None:
        """Rows to be searched as they come, None for a table to be held.

        A memory-mapped table is held where that is feasible and has more to offer.
        """
        rows = find_rows(X, y, sample_weight, offset)
        reason = None
        if groups is not None:
            reason = "groups refers to the rows of a table"
        elif not isinstance(self.cv, Integral):
            reason = "a splitter refers to the rows of a table (give cv a whole number)"
        elif self.batch_size == 0:
            reason = "batch_size=0 asks for the evidence of a table"
        if isinstance(X, RowBlocks):
            if reason is not None:
                raise ValueError(f"Rows in blocks are not in memory, but {reason}.")
            return rows
        if rows is None or reason is not None:
            return None
        if isinstance(self.batch_size, str):
            p, hidden = X.shape[1], self._widths(HIDDEN)
            spec = make_spec(list(range(p)), p, hidden, self.position_code, True)
            if not takes_long(len(X), p + spec.n_params):
                return None
        return rows

    def _widths(self, default: tuple[int, int]) -> tuple[int, int]:
        if self.hidden is None:
            return default
        return int(self.hidden[0]), int(self.hidden[1])

    def _deadline(self) -> float:
        if self.max_time is None:
            return math.inf
        return time.monotonic() + float(self.max_time)

    def _open_store(self, problem: Problem, data: TrainingSet) -> TaskStore:
        params = self.get_params(deep=False)
        return open_store(self.checkpoint, problem, data.weight, params)

    def _fit_glm(
        self,
        problem: Problem,
        data: TrainingSet,
        groups: np.ndarray | None,
        random: np.random.RandomState,
        store: TaskStore,
    ) -> tuple[Tensor, list[Fold], GlmPath]:
        """Weights that count rows, folds in their units, and the nested GLM."""
        counts = count_weights(data.weight)
        weight = torch.as_tensor(counts).to(problem.y)
        unit = float(counts.sum() / data.weight.sum())
        folds = [f.times(unit) for f in make_folds(data, self.cv, groups, random)]
        store.check_folds(folds)
        return weight, folds, self._path(problem, weight, folds, store)

    def _path(
        self,
        problem: Problem,
        weight: Tensor,
        folds: Sequence[AnyFold],
        store: TaskStore,
    ) -> GlmPath:
        n_bytes = self._budget() / 4
        how = (self.alphas, list(folds), self.rule, n_bytes)
        return store.call(GlmPath, "path", glm_path, problem, weight, *how)

    def _search(
        self, problem: Problem, data: TrainingSet, groups: np.ndarray | None
    ) -> Self:
        deadline = self._deadline()
        store = self._open_store(problem, data)
        random = store.random(self.random_state)
        weight, folds, path = self._fit_glm(problem, data, groups, random, store)
        options = self._evidence_options(problem, deadline)
        runner = Runner(
            problem,
            weight,
            options,
            self.n_jobs,
            bool(self.verbose),
            store,
            self._reference(problem, data),
        )
        has_curves = not bool(straight_columns(problem).all())
        fit = self._explore(runner, path, folds, random, compare=has_curves)
        straight = None
        if has_curves and not runner.out_of_time:
            straight = self._explore_straight(runner, folds, random)
        most = np.max([fold.train + fold.held_out for fold in folds], axis=0)
        parts, verdict = decide(fit, straight, int(self.n_members), most)
        if parts is None:
            runner.move(torch.zeros_like(runner.shift))
            glm = fit.glm
            if fit.has_network:
                glm = self._glm(runner, fit.search, path)
            parts = glm_parts(problem.spec, glm)
        elif runner.has_moved and runner.reference is not None:
            data = replace(data, features=runner.reference.features_at(runner.shift))
        self._keep(assemble(data, problem, parts), data, fit, straight, verdict)
        return self

    def _explore(
        self,
        runner: Runner,
        path: GlmPath,
        folds: list[Fold],
        random: np.random.RandomState,
        compare: bool,
    ) -> Fit:
        """Restarts, members, and what they predict of rows held out.

        `compare` asks for all that `decide` can make use of: restarts within their own
        supports, and held-out rows even where there is no network.
        """
        search = run_search(
            runner,
            path.chosen,
            random,
            int(self.n_starts),
            bool(self.relax),
            stable=self.rule == "stability",
        )
        n_members = int(self.n_members)
        agreed = choose_members(runner, search, n_members)
        loose, held_out = [], None
        if compare:
            loose = loose_members(runner, search, n_members)
        if not (agreed or loose):
            runner.move(torch.zeros_like(runner.shift))
        if (agreed or compare) and not runner.out_of_time:
            again = search.best_tasks(MAX_TRIES) if agreed else []
            others = search.loose_tasks(min(MAX_TRIES, len(loose)))
            held_out = hold_out(runner, search, path, folds, again, others)
        glm = path.chosen
        if not (agreed or loose):
            glm = self._glm(runner, search, path)
        return Fit(runner, path, search, agreed, loose, glm, held_out)

    def _explore_straight(
        self, runner: Runner, folds: list[Fold], random: np.random.RandomState
    ) -> Fit:
        """The same search around the same point, without curves."""
        problem = without_curves(runner.problem)
        store = replace(runner.store, place=("straight", *runner.store.place))
        path = self._path(problem, runner.weight, folds, store)
        how = (runner.options, runner.n_jobs, runner.progress)
        lines = Runner(problem, runner.weight, *how, store)
        return self._explore(lines, path, folds, random, compare=True)

    def _search_batches(
        self, problem: Problem, data: TrainingSet, groups: np.ndarray | None
    ) -> Self:
        """The same on a large table: validation instead of evidence."""
        deadline = self._deadline()
        store = self._open_store(problem, data)
        random = store.random(self.random_state)
        _, folds, path = self._fit_glm(problem, data, groups, random, store)
        options = self._batch_options(deadline, self._budget())
        search = search_batches(problem, path, folds, options, random, store)
        model = assemble_batches(data, problem, search, path)
        self._keep_model(model, data)
        separated = is_separated(model, data)
        self._keep_batches(search, path, separated, time.monotonic() > deadline)
        return self

    def _fit_rows(self, rows: RowBlocks) -> Self:
        """Search on batches of rows that come in blocks."""
        deadline = self._deadline()
        family, device = self._family(), choose_device(self.device)
        budget = self._budget()
        how = self._stream_options(budget, self.checkpoint)
        with read_stream(rows, self._target_reader(), family, how) as (data, schema):
            self._learn_names(schema)
            hidden = self._widths(HIDDEN_BATCHES)
            spec = state_network(data.features, hidden, self.position_code, True)
            problem = state_stream(data, family, spec, device)
            size = min(self._batch_rows(), data.n_total)
            least = fit_budget(
                data, problem, Options(dtype=DTYPE, batch_size=size), budget
            )
            with torch_threads(data.n_total):
                search, path = self._search_rows(problem, data, deadline)
                model = assemble_batches(data, problem, search, path)
                judged = judge_rows(model, data)
                if data.classes is not None:
                    self.classes_ = data.classes
                self._show_model(model)
                room = least.memory_budget
                self._facts = describe_stream(model, data, problem, room, judged)
            late = data.ranks.share(time.monotonic() > deadline)
            self._keep_batches(search, path, judged.is_separated(family), late)
        return self

    def _search_rows(
        self, problem: Problem, data: StreamedSet, deadline: float
    ) -> tuple[BatchSearch, GlmPath]:
        """Folds by the number of the row, the nested GLM, and the search."""
        params = self.get_params(deep=False)
        store = open_stream_store(self.checkpoint, data, params, problem.device)
        random = store.random(self.random_state)
        folds = number_folds(
            data.weight, data.first_row, data.n_total, int(self.cv), random
        )
        store.check_folds(folds)
        weight = torch.as_tensor(data.weight).to(problem.y)
        budget = self._budget()
        path = self._path(problem, weight, folds, store)
        # What is left beside target, offset, weights and folds.
        n_rows = max(data.ranks.gather(len(data.y)))
        left = max(budget - 8.0 * SET_VECTORS * n_rows, budget / 2)
        options = self._batch_options(deadline, left)
        return search_batches(problem, path, folds, options, random, store), path

    def _batch_rows(self) -> int:
        auto = isinstance(self.batch_size, str)
        return BATCH_ROWS if auto else int(self.batch_size)

    def _batch_options(self, deadline: float, memory_budget: float) -> BatchOptions:
        return BatchOptions(
            n_passes=int(self.max_iter),
            batch_size=self._batch_rows(),
            n_members=int(self.n_members),
            memory_budget=int(memory_budget),
            deadline=deadline,
            progress=bool(self.verbose),
        )

    def _keep_batches(
        self, search: BatchSearch, path: GlmPath, separated: bool, out_of_time: bool
    ) -> None:
        keeps = search.verdict.keeps_network
        self.n_members_ = self.model_.n_members if keeps else 0
        self.alpha_ = search.alpha if keeps else float(path.alphas[path.index])
        self.network_alpha_ = search.network_alpha if keeps else math.inf
        self.verdict_: Verdict | None = search.verdict
        self.path_ = path
        self.cv_results_ = search.table
        self.best_index_ = search.best_index
        self.n_iter_ = max(1, sum(search.table["n_iter"]))
        self.log_evidence_ = self.glm_log_evidence_ = math.nan
        self._judge_convergence(separated, out_of_time)

    def _reference(self, problem: Problem, data: TrainingSet) -> Reference | None:
        """How the reference may move; not for families of fixed dispersion.

        There a perfect fit to a part of the rows would pull it anywhere.
        """
        if self.reference != "auto" or problem.family.name not in ESTIMATED_DISPERSION:
            return None
        movable = movable_features(data.features, data.table)

        def restate(features: FeatureMap) -> Problem:
            terms, inputs = features.terms(data.table), features.inputs(data.table)
            columns = MemoryColumns(torch.as_tensor(terms), torch.as_tensor(inputs))
            return replace(problem, columns=columns.to(problem.device))

        return Reference(data.features, torch.as_tensor(movable), restate)

    def _glm(self, runner: Runner, search: SearchResult, path: GlmPath) -> Coefficients:
        """The GLM to return when there is no network."""
        if path.relaxation == 0 or runner.out_of_time:
            return path.chosen
        # Shrinkage hurts here: the unshrunken fit selects more exactly.
        within = None
        if self.rule == "1se":
            within = torch.zeros_like(search.linear.support)
            within[runner.problem.term_feature[path.chosen.coef[0] != 0]] = True
        return linear_model(runner, search.linear, within)

    def _evidence_options(self, problem: Problem, deadline: float) -> EvidenceOptions:
        known = problem.family.name not in ESTIMATED_DISPERSION
        return EvidenceOptions(
            max_iter=int(self.max_iter),
            feature_margin=feature_margin(problem.spec.n_features),
            window=12 if known else 6,
            memory_budget=int(self._budget()),
            deadline=deadline,
        )

    def _keep(
        self,
        model: FittedModel,
        data: TrainingSet,
        fit: Fit,
        straight: Fit | None,
        verdict: Verdict | None,
    ) -> None:
        self._keep_model(model, data)
        self.n_members_ = int(model.modulated.any(-1).sum())
        fits = [fit] if straight is None else [fit, straight]
        members = [state for each in fits for state in each.agreed]
        self.network_alpha_ = network_alpha(members if self.n_members_ else [])
        self.verdict_ = verdict
        self.alpha_ = float(fit.path.alphas[fit.path.index])
        self.path_ = fit.path
        self.cv_results_ = join_tables(fit, straight)
        self.best_index_ = fit.search.best_index
        self.log_evidence_ = fit.search.best.log_evidence
        self.glm_log_evidence_ = fit.search.linear.log_evidence
        self.n_iter_ = max(1, sum(self.cv_results_["n_iter"]))
        out_of_time = any(each.runner.out_of_time for each in fits)
        self._judge_convergence(is_separated(model, data), out_of_time)

    def _judge_convergence(self, separated: bool, out_of_time: bool) -> None:
        self.converged_ = not out_of_time and not separated
        if separated:
            warnings.warn(
                "The classes are separated perfectly: the fit is finite only because "
                "of its priors, and the size of its coefficients is arbitrary.",
                SeparationWarning,
                stacklevel=6,
            )
        if out_of_time:
            warnings.warn(
                f"max_time={self.max_time} s was reached after "
                f"{len(self.cv_results_['seed'])} restarts; the best so far was kept.",
                ConvergenceWarning,
                stacklevel=6,
            )


def network_alpha(members: list[EvidenceState]) -> float:
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
    if needed > memory_budget:
        raise ValueError(
            f"memory_budget={memory_budget:.0f} bytes is too small: a step on "
            f"{problem.n_rows} rows and {n_parameters} parameters needs {needed}. "
            "Raise memory_budget, or make hidden smaller."
        )


def assemble_batches(
    data: TrainingSet | StreamedSet,
    problem: Problem,
    search: BatchSearch,
    path: GlmPath,
) -> FittedModel:
    """The folds' members, or the GLM where the held-out rows prefer it."""
    if search.verdict.keeps_network:
        return assemble_model(data, problem, search.solution)
    return assemble(data, problem, glm_parts(problem.spec, path.chosen))


def assemble(
    data: TrainingSet | StreamedSet, problem: Problem, parts: list[Part]
) -> FittedModel:
    """A model that averages its parts."""
    coef, intercept, params, modulated = (
        torch.stack([getattr(part, name) for part in parts]).cpu()
        for name in ("coef", "intercept", "params", "modulated")
    )
    return FittedModel(
        features=data.features,
        family=problem.family,
        spec=problem.spec,
        coef=coef * data.y_scale,
        intercept=intercept * data.y_scale + data.y_mean,
        params=params,
        modulated=modulated,
    )
