"""Estimators that search: `search/` finds the model, this module reads and keeps."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import field, replace
from functools import cache
from numbers import Integral, Real
from typing import Any, Self, cast, get_args

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from sknimo.estimators._base import parameters, unchanged_on_failure
from sknimo.estimators._bending import Bendable
from sknimo.estimators._tasks import ClassificationTask, RegressionTask
from sknimo.estimators._texts import SEARCHING, document
from sknimo.exceptions import SeparationWarning, check_option
from sknimo.families import SOFTMAX, Family
from sknimo.features import FeatureOptions
from sknimo.machine import count_processes, torch_threads
from sknimo.model import ClassModels
from sknimo.network import make_spec
from sknimo.progress import LAST, expect, plan, watch
from sknimo.rows import RowBlocks
from sknimo.search import (
    Beside,
    MovableReference,
    Outcome,
    RuleName,
    Settings,
    is_large,
    large_features,
    movable_reference,
    search,
    takes_long,
)
from sknimo.solver import Options, Problem
from sknimo.training import (
    AnyFold,
    StreamedSet,
    TaskStore,
    TrainingSet,
    assemble,
    check_number,
    check_widths,
    count_folds,
    find_rows,
    fit_budget,
    learn_again,
    learn_shape,
    read_groups,
    smooth_glm,
)

# Units of the networks that evidence compares.
HIDDEN = (8, 8)


def _lines(basis: Any) -> Any:
    """The same with lines for what is left to the search."""
    if isinstance(basis, Mapping):
        return {key: _lines(kind) for key, kind in basis.items()}
    return "linear" if basis == "auto" else basis


def _straight(options: FeatureOptions) -> FeatureOptions:
    return replace(options, basis=_lines(options.basis), input_scaling="standard")


@parameters
class Searching(Bendable):
    """What the searching estimators share: rows in, a search, attributes out."""

    alphas: Any = None
    cv: Any = 5
    rule: str = "min"
    n_starts: int = 8
    n_members: int = 10
    relax: bool = True
    hidden: tuple[int, int] | None = None
    position_code: str = "binary"
    max_iter: int = 100
    batch_size: Any = "auto"
    max_time: float | None = None
    n_jobs: int | None = None
    device: str = "auto"
    memory_budget: Any = "auto"
    checkpoint: Any = None
    verbose: bool | str = "auto"
    random_state: Any = None
    basis: Any = "auto"
    categorical: Any = None
    reference: Any = "auto"
    missing: str = "error"
    handle_unknown: str = "error"
    input_scaling: str = "auto"
    clip_inputs: bool | str = False
    monotone: Any = None

    def _check_params(self) -> None:
        super()._check_params()
        check_option("rule", self.rule, get_args(RuleName))
        for name in ("n_starts", "n_members", "max_iter"):
            check_number(name, getattr(self, name), Integral, 1)
        if self.hidden is not None:
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
            arrays are read piece by piece; a sample that memory holds is searched.
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

        Examples
        --------
        >>> from sknimo import NIMORegressorCV, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressorCV(n_starts=1, cv=2, max_iter=20, random_state=0).fit(
        ...     data.X, data.y
        ... )
        >>> est.n_members_ >= 1
        True
        """
        with unchanged_on_failure(self), watch(self.verbose, has_tasks=True):
            for _ in self._attempts():
                self._fit(X, y, sample_weight, offset, groups)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, groups: Any = None
    ) -> None:
        self._check_params()
        rows = self._find_rows(X, y, sample_weight, offset, groups)
        started = time.monotonic()
        with self._read_rows(rows, X, y, sample_weight, offset) as data:
            if rows is None:  # reading a table in memory is not part of the search
                started = time.monotonic()
            labels = read_groups(groups, data.n_samples)
            settings = self._search_settings(started)
            if isinstance(data, TrainingSet) and data.read_curves is not None:
                # It was read for evidence, before all columns could be counted.
                settings = replace(settings, batch_size=0)
            hidden = self._widths(HIDDEN)
            if isinstance(data, StreamedSet):
                hidden = settings.bag_hidden
            problem = self._state_problem(data, hidden)
            glm = smooth_glm(data.weight, settings.additive, self._budget())
            problem = learn_shape(problem, data.weight, glm)
            settings = self._foretell(settings, problem)
            blocks = Options(dtype=torch.float32)
            blocks = fit_budget(data, problem, blocks, settings.memory_budget)
            store, random = self._open_store(data, problem)
            with torch_threads(data.n_total, data.n_total * problem.n_terms):
                bags = is_large(problem, settings) or self._n_classes > 2
                cv = self._n_folds(settings) if bags else self.cv
                counts, folds = count_folds(data, cv, labels, random)
                store.check_folds(folds)
                weight = torch.as_tensor(counts).to(problem.y)
                outcome = self._search(
                    problem, data, folds, settings, weight, labels, random, store
                )
                plan(LAST)
                data = self._chosen_features(data, outcome)
                each = outcome.by_class or (outcome.members,)
                models = [assemble(data, outcome.problem, members) for members in each]
                model = ClassModels.of(models) if outcome.by_class else models[0]
                room = blocks.memory_budget
                separated = self._keep_model(model, data, outcome.problem, room)
                seen, often = outcome.sample or (outcome.problem, counts)
                of_fit: dict[str, Any] = {"labels": labels, "separated": separated}
                self._keep_uncertainty(seen, often, outcome.members, data, **of_fit)
            self._keep(outcome, separated)
            self._keep_held_out(outcome, data, separated, labels)
            self._keep_dial(outcome, data, counts)

    def _foretell(self, settings: Settings, problem: Problem) -> Settings:
        """Say how much there may be to do; only bags have bars of their own."""
        group, p = problem.term_group, problem.spec.n_features
        curved = bool(((group >= p) & (group < 2 * p)).any())
        large = is_large(problem, settings)
        stages = {"wide": settings.n_starts, "relaxed": settings.n_starts}
        stages["bag"] = settings.n_members
        expect(2 if curved and not large else 1, stages, self.max_time)
        return replace(settings, progress=settings.progress and large)

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
            p, hidden = X.shape[1], self._settings.work_hidden
            spec = make_spec(list(range(p)), p, hidden, self.position_code, True)
            if not takes_long(len(X), p + spec.n_params, self._settings):
                return None
        return rows

    def _search(
        self,
        problem: Problem,
        data: TrainingSet | StreamedSet,
        folds: Sequence[AnyFold],
        settings: Settings,
        weight: torch.Tensor,
        labels: np.ndarray | None,
        random: np.random.RandomState,
        store: TaskStore,
    ) -> Outcome:
        """Search; once more where what was found asks for another shape."""

        def look(problem: Problem) -> Outcome:
            family = problem.family
            others: Sequence[AnyFold] = ()
            if not is_large(problem, settings):  # which has no path to choose
                others = self._other_folds(data, settings, labels, random)
            beside = self._state_beside(data, settings, others or folds, family)
            return search(
                problem,
                folds,
                settings,
                weight=weight,
                random=random,
                store=store,
                reference=self._movable_reference(data, family),
                beside=beside,
                others=others,
            )

        outcome = look(problem)
        known = data.weight, outcome.held_out_eta
        again = learn_again(problem, self._family(), *known)
        if again is problem or outcome.out_of_time:
            return outcome
        return look(again)

    def _movable_reference(
        self, data: TrainingSet | StreamedSet, family: Family
    ) -> MovableReference | None:
        """How the reference may move; not for families of known dispersion.

        There a perfect fit to a part of the rows would pull it anywhere.
        """
        known = not family.estimates_dispersion
        if self.reference != "auto" or known or isinstance(data, StreamedSet):
            return None
        return movable_reference(data.features, data.table, self.basis != "auto")

    def _n_folds(self, settings: Settings) -> Any:
        """Folds of bags: one for each, unless a splitter is given."""
        if isinstance(self.cv, Integral):
            return max(int(self.cv), settings.n_members)
        return self.cv

    def _other_folds(
        self,
        data: TrainingSet | StreamedSet,
        settings: Settings,
        labels: np.ndarray | None,
        random: np.random.RandomState,
    ) -> Sequence[AnyFold]:
        """Folds of bags, unless rows are few or a splitter has the only ones."""
        if isinstance(data, StreamedSet) or not isinstance(self.cv, Integral):
            return ()
        if len(data.y) < settings.least_rows:
            return ()
        # A copy: the seeds of the search are those of one without bags.
        twin = deepcopy(random)
        return count_folds(data, self._n_folds(settings), labels, twin)[1]

    def _state_beside(
        self,
        data: TrainingSet | StreamedSet,
        settings: Settings,
        folds: Sequence[AnyFold],
        family: Family,
    ) -> Callable[[], Beside] | None:
        """How to read the rows with curves, for bags beside the evidence."""
        if isinstance(data, StreamedSet) or data.read_curves is None:
            return None
        read, features = data.read_curves, data.features

        def state() -> Beside:
            curved = replace(data, features=read())
            problem = self._state_problem(curved, settings.few_hidden, family=family)
            columns = features.embed(read())
            if columns is None:
                return Beside(problem, folds, None)
            terms, inputs = (torch.as_tensor(at).to(problem.device) for at in columns)
            return Beside(problem, folds, (terms, inputs))

        return cache(state)

    def _chosen_features(
        self, data: TrainingSet | StreamedSet, outcome: Outcome
    ) -> TrainingSet | StreamedSet:
        """The rows as the model that was found reads them."""
        features, read = outcome.features, None
        if isinstance(data, TrainingSet):
            read, data = data.read_curves, replace(data, read_curves=None)
        if features is None and outcome.by_bags and read is not None:
            features = read()
        return data if features is None else replace(data, features=features)

    def _read_bags(
        self, n_rows: int, levels: Sequence[Any], in_blocks: bool
    ) -> tuple[FeatureOptions | None, bool]:
        settings, p = self._settings, len(levels)
        several = self._family() is SOFTMAX
        columns = [1 if own is None else len(own) - 1 for own in levels]
        if in_blocks:
            large, beside = True, False
            n_rows = min(n_rows, settings.sample_rows)
        elif isinstance(self.batch_size, str):
            owner = np.repeat(np.arange(p), columns).tolist()
            spec = make_spec(owner, p, settings.work_hidden, self.position_code, True)
            beside = self.rule == "min" and n_rows >= settings.least_rows
            n_parameters = sum(columns) + spec.n_params
            # The loss of other families does not tell noise from a poor fit. Many rows
            # may have more to tell than evidence can say, however little their noise.
            smooth = beside and self._family().least_squares
            smooth &= n_rows <= settings.few_rows
            large = takes_long(n_rows, n_parameters, settings, smooth=smooth)
        else:
            large, beside = self.batch_size > 0, False
        if not (large or beside or several):
            return None, False
        n_numeric = max(sum(own is None for own in levels), 1)
        wanted = self._feature_options()
        if self.input_scaling == "auto":
            wanted = replace(wanted, input_scaling="ramps")
        if several:
            each = settings.class_columns // self._n_classes
            settings = replace(settings, max_columns=min(settings.max_columns, each))
        room = self._budget() / (2 if in_blocks else 1)
        curves = large_features(settings, wanted, n_rows, n_numeric, room)
        if curves is None and (several or not large):
            curves = _straight(wanted)
        return curves, large or several

    def _widths(self, default: tuple[int, int]) -> tuple[int, int]:
        wanted = default if self.hidden is None else self.hidden
        return int(wanted[0]), int(wanted[1])

    def _search_settings(self, started: float) -> Settings:
        """What the parameters ask of the search."""
        size: int | None = None if isinstance(self.batch_size, str) else self.batch_size
        deadline = math.inf if self.max_time is None else started + self.max_time
        on_gpu = self.device == "cuda"  # which is one for all
        n_processes = 1 if on_gpu else count_processes(self.n_jobs)
        return replace(
            self._settings,
            n_starts=int(self.n_starts),
            n_members=int(self.n_members),
            max_iter=int(self.max_iter),
            relax=bool(self.relax),
            rule=cast(RuleName, self.rule),
            alphas=self.alphas,
            batch_size=None if size is None else int(size),
            bag_hidden=self._widths(self._settings.bag_hidden),
            few_hidden=self._widths(self._settings.few_hidden),
            n_jobs=self.n_jobs if n_processes == 1 else 1,
            n_processes=n_processes,
            memory_budget=self._budget(),
            deadline=deadline,
            progress=bool(self.verbose),
        )

    def _keep(self, outcome: Outcome, separated: bool) -> None:
        """Write what is known of the search, and warn where there is cause."""
        self.n_members_ = outcome.n_members
        self.alpha_ = outcome.alpha
        self.input_precision_ = outcome.input_precision
        self.verdict_ = outcome.verdict
        self.path_ = outcome.path
        self.bend_ = outcome.dial
        found = outcome.verdict
        scores = (math.nan, math.nan) if found is None else (found.r2, found.glm_r2)
        kept = outcome.n_members > 0
        self.held_out_score_ = scores[0] if kept else scores[1]
        self.glm_held_out_score_ = scores[1]
        self.held_out_gain_ = self.held_out_gain_error_ = math.nan
        if found is not None:
            loss = float(np.mean(found.glm_loss)) or math.nan
            self.held_out_gain_ = found.gain / loss
            self.held_out_gain_error_ = found.error / loss
        self.trials_ = outcome.trials
        self.best_index_ = outcome.best_index
        self.log_evidence_ = outcome.log_evidence
        self.glm_log_evidence_ = outcome.glm_log_evidence
        self.n_iter_ = max(1, sum(outcome.trials["n_iter"]))
        self._judge_convergence(separated, outcome.out_of_time)

    def _keep_held_out(
        self,
        outcome: Outcome,
        data: TrainingSet | StreamedSet,
        separated: bool,
        labels: np.ndarray | None,
    ) -> None:
        """Predict the rows as they were given, by members that have not seen them."""
        self.oob_prediction_ = None
        if outcome.held_out_eta is None or isinstance(data, StreamedSet):
            return
        eta = torch.as_tensor(outcome.held_out_eta * data.y_scale + data.y_mean)
        family, several = outcome.problem.family, eta.ndim > 1
        mean = (eta.softmax(1) if several else family.mean(eta)).numpy()
        used = data.place >= 0
        used = used[:, None] if several else used
        self.oob_prediction_ = np.where(used, mean[data.place], np.nan)
        if not (several or family.is_hazard):
            known = outcome.held_out_eta, outcome.straight_eta
            self._keep_intervals(data, *known, separated, labels)

    def _judge_convergence(self, separated: bool, out_of_time: bool) -> None:
        self.converged_ = not out_of_time and not separated
        self.status_ = ""
        if separated:
            self.status_ = (
                "The classes are separated perfectly: the fit is finite only because "
                "of its priors, and the size of its coefficients is arbitrary."
            )
            warnings.warn(self.status_, SeparationWarning, stacklevel=5)
        if out_of_time:
            late = (
                f"max_time={self.max_time} s was reached after "
                f"{len(self.trials_['seed'])} restarts; {self._kept_stage()}."
            )
            self.status_ = f"{self.status_} {late}".strip()
            warnings.warn(late, ConvergenceWarning, stacklevel=5)

    def _kept_stage(self) -> str:
        """What a search that was cut short has kept."""
        if self.verdict_ is not None:
            return "what held-out rows preferred until then was kept"
        if self.n_members_ == 0:
            return "the model without a network, which was finished, was kept"
        return "the best so far was kept, which no held-out rows have judged"


@document(SEARCHING)
@parameters
class NIMORegressorCV(RegressionTask, Searching):
    """Regression that finds its own sparsity, smoothness and size.

    The same model as `NIMORegressor`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested GLM is returned.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma", "negative_binomial", "tweedie"} \
or Family, default="gaussian"
        Distribution of the target, by name or as a `sknimo.families.Family`. The
        overdispersion of counts and the power of Tweedie amounts are learned, unless
        the name has them in brackets, as in "tweedie(1.5)".
    <parameters>

    Attributes
    ----------
    <line attributes>
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMORegressorCV, datasets
    >>> data = datasets.make_nimo_regression(n_samples=200, random_state=0)
    >>> est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
    >>> est.coef_.nonzero()[0].tolist()
    [0, 1, 2]
    """

    _classifier = "NIMOClassifierCV"

    family: str | Family = field(default="gaussian", kw_only=False)


@document(SEARCHING)
@parameters
class NIMOClassifierCV(ClassificationTask, Searching):
    """Classification that finds its own sparsity, smoothness and size.

    The same model as `NIMOClassifier`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested logistic regression
    is returned. More than two classes have one softmax, see `docs/classes.md`.

    Parameters
    ----------
    <parameters>
    <class weight>

    Attributes
    ----------
    <class attributes>
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMOClassifierCV, datasets
    >>> data = datasets.make_nimo_classification(n_samples=80, random_state=0)
    >>> est = NIMOClassifierCV(n_starts=1, cv=2, random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (80, 2)
    """

    class_weight: Any = None
