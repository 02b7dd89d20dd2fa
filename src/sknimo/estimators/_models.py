"""Estimators with fixed penalties, trained by the first-order solver."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from sknimo.estimators._base import (
    BaseNIMO,
    DeviceName,
    choose_device,
    is_separated,
    state_network,
    state_problem,
)
from sknimo.estimators._data import (
    TrainingSet,
    check_batch_size,
    check_budget,
    check_number,
    check_option,
    check_widths,
    choose_batch_size,
)
from sknimo.estimators._docs import document
from sknimo.estimators._passes import (
    CACHE_BYTES,
    describe_stream,
    fit_budget,
    hold_out,
    judge_rows,
    open_stream_store,
    state_stream,
)
from sknimo.estimators._resume import TaskStore, check_folder, open_store
from sknimo.estimators._streams import StreamedSet, find_rows, read_stream
from sknimo.estimators._tasks import ClassificationTask, RegressionTask
from sknimo.exceptions import SeparationWarning
from sknimo.model import FittedModel
from sknimo.network import CodeName
from sknimo.penalties import PenaltyName, make_penalty
from sknimo.ranks import ALONE, Ranks
from sknimo.rows import RowBlocks
from sknimo.solver import Members, Options, Problem, Solution, Status, solve

DtypeName = Literal["float32", "float64"]

# Steps between two checks of progress.
CHECK_EVERY = 10


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known for certain about a fit.

    Attributes
    ----------
    kkt : float
        Optimality residual of the coefficients for the final network, relative to the
        gradient at zero. Rounding level means the zeros are exact and the rest optimal.
    objective : float
        Mean half deviance plus coefficient penalty on the training rows, in the units
        of the fit (a Gaussian target has unit variance there).
    glm_objective : float
        The same for the penalised GLM that the fit started from; never smaller.
    status : str
        How the training ended.
    """

    kkt: float
    objective: float
    glm_objective: float
    status: str


@dataclass(frozen=True, slots=True)
class Seeds:
    """What is drawn before a fit to streamed rows."""

    network: int
    noise: int
    order: int


class FixedPenalties(BaseNIMO):
    """Parameters and fit of the plain estimators."""

    def __init__(
        self,
        *,
        penalty: str = "lasso",
        alpha: float = 0.01,
        delta: float = 0.5,
        scale_contributions: bool = True,
        network_alpha: float = 1.0,
        hidden: tuple[int, int] = (16, 16),
        noise: float = 0.0,
        max_iter: int = 500,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        tol: float = 1e-4,
        patience: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        mask: bool = True,
        position_code: str = "binary",
        warm_start: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        batch_size: Any = "auto",
        memory_budget: Any = "auto",
        checkpoint: Any = None,
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
        self.penalty = penalty
        self.alpha = alpha
        self.delta = delta
        self.scale_contributions = scale_contributions
        self.network_alpha = network_alpha
        self.hidden = hidden
        self.noise = noise
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.tol = tol
        self.patience = patience
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.mask = mask
        self.position_code = position_code
        self.warm_start = warm_start
        self.device = device
        self.dtype = dtype
        self.batch_size = batch_size
        self.memory_budget = memory_budget
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Self:
        self._check_params()
        rows = find_rows(X, y, sample_weight, offset)
        if rows is not None:
            return self._fit_rows(rows)
        family, device = self._family(), choose_device(self.device)
        data = self._read_training_set(X, y, sample_weight, offset, family)
        problem = state_problem(
            data,
            family,
            hidden=(int(self.hidden[0]), int(self.hidden[1])),
            position_code=self.position_code,
            mask=self.mask,
            device=device,
        )
        params = self.get_params(deep=False)
        store = open_store(self.checkpoint, problem, data.weight, params)
        random = store.random(self.random_state)
        seeds = tuple(random.randint(2**31 - 1, size=1).tolist())
        options = self._options(int(random.randint(2**31 - 1)), problem.n_rows)
        if device.type == "cpu":
            budget = min(options.memory_budget, CACHE_BYTES)
            options = replace(options, memory_budget=int(budget))
        held_out = self._hold_out(data, random) if self.early_stopping else None
        members = self._members(problem, data.weight, held_out, seeds)
        start = self._warm_network(problem)
        solution = solve(problem, members, options, start, store.checkpoint)
        model = assemble_model(data, problem, solution)
        separated = is_separated(model, data)
        self._keep_model(model, data)
        self._keep(solution, separated)
        return self

    def _fit_rows(self, rows: RowBlocks) -> Self:
        """The same for rows that come in blocks."""
        family, device = self._family(), choose_device(self.device)
        how = self._stream_options(self._budget(), self.checkpoint)
        with read_stream(rows, self._target_reader(), family, how) as (data, schema):
            self._learn_names(schema)
            hidden = (int(self.hidden[0]), int(self.hidden[1]))
            spec = state_network(data.features, hidden, self.position_code, self.mask)
            problem = state_stream(data, family, spec, device)
            params = self.get_params(deep=False)
            store = open_stream_store(self.checkpoint, data, params, device)
            draws = self._draw_seeds(store)
            options = self._options(draws.noise, data.n_total)
            options = fit_budget(data, problem, options, how.memory_budget)
            held_out = None
            if self.early_stopping:
                held_out = hold_out(data, self.validation_fraction, draws.order)
            members = self._members(
                problem, data.weight, held_out, (draws.network,), data.ranks
            )
            start = self._warm_network(problem)
            solution = solve(problem, members, options, start, store.checkpoint)
            model = assemble_model(data, problem, solution)
            judged = judge_rows(model, data)
            if data.classes is not None:
                self.classes_ = data.classes
            self._show_model(model)
            room = options.memory_budget
            self._facts = describe_stream(model, data, problem, room, judged)
            self._keep(solution, judged.is_separated(family))
        return self

    def _draw_seeds(self, store: TaskStore) -> Seeds:
        """Seeds of the first rank: the network's and the noise's as in memory."""
        random = store.random(self.random_state)
        return Seeds(*(int(random.randint(2**31 - 1)) for _ in range(3)))

    def _check_params(self) -> None:
        """Refuse parameters that make no sense, listing what would."""
        check_option("penalty", self.penalty, get_args(PenaltyName))
        check_option("position_code", self.position_code, get_args(CodeName))
        check_option("device", self.device, get_args(DeviceName))
        check_option("dtype", self.dtype, get_args(DtypeName))
        for name in ("alpha", "network_alpha", "noise", "tol", "weight_decay"):
            check_number(name, getattr(self, name), Real, 0)
        check_number("learning_rate", self.learning_rate, Real, 1e-12)
        check_number("max_iter", self.max_iter, Integral, 0)
        check_number("patience", self.patience, Integral, 1)
        check_budget(self.memory_budget)
        check_folder(self.checkpoint)
        check_number("delta", self.delta, Real, 0)
        check_number("validation_fraction", self.validation_fraction, Real, 0)
        if not 0 < self.delta <= 1:
            raise ValueError(f"delta must lie in (0, 1], got {self.delta!r}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must lie strictly between 0 and 1, got "
                f"{self.validation_fraction!r}."
            )
        check_widths(self.hidden)
        check_batch_size(self.batch_size)

    def _options(self, noise_seed: int, n_rows: int) -> Options:
        batch = choose_batch_size(self.batch_size, n_rows)
        return Options(
            batch_size=batch,
            # With batches a check is a pass over all rows: once per half pass.
            check_every=max(CHECK_EVERY, n_rows // (2 * batch) if batch else 0),
            max_iter=int(self.max_iter),
            learning_rate=float(self.learning_rate),
            noise=float(self.noise),
            noise_seed=noise_seed,
            tol=float(self.tol),
            patience=int(self.patience),
            scale_contributions=bool(self.scale_contributions),
            weight_decay=float(self.weight_decay),
            dtype=getattr(torch, self.dtype),
            memory_budget=int(self._budget()),
            progress=bool(self.verbose),
        )

    def _members(
        self,
        problem: Problem,
        weight: np.ndarray,
        held_out: np.ndarray | None,
        seeds: tuple[int, ...],
        ranks: Ranks = ALONE,
    ) -> Members:
        def share(part: np.ndarray) -> np.ndarray:
            return part / sum(ranks.gather(part.sum()))

        validation = None
        if held_out is not None:
            validation = share(np.where(held_out, weight, 0.0))
            weight = np.where(held_out, 0.0, weight)
        weight = share(weight)
        return state_members(
            problem,
            seeds,
            weight,
            validation,
            penalty=self.penalty,
            alpha=float(self.alpha),
            delta=float(self.delta),
            network_alpha=float(self.network_alpha),
        )

    def _hold_out(self, data: TrainingSet, random: np.random.RandomState) -> np.ndarray:
        """Rows that judge early stopping, a random share; training keeps each class."""
        n_rows = len(data.table)
        order, n_kept = random.permutation(n_rows), 1
        if data.classes is not None:
            last = [np.flatnonzero(data.y[order] == label)[-1] for label in (0, 1)]
            order, n_kept = np.append(np.delete(order, last), order[last]), 2
        n_held_out = int(
            np.clip(round(self.validation_fraction * n_rows), 1, n_rows - n_kept)
        )
        held_out = np.zeros(n_rows, dtype=bool)
        held_out[order[:n_held_out]] = True
        return held_out

    def _warm_network(self, problem: Problem) -> torch.Tensor | None:
        """Network of the previous fit, when asked for and still of the right shape."""
        model: FittedModel | None = getattr(self, "model_", None)
        if not self.warm_start or model is None or model.spec != problem.spec:
            return None
        return model.params.clone()

    def _keep(self, solution: Solution, separated: bool) -> None:
        """Write what is known of the training, and warn where there is cause."""
        status = solution.status[0]
        self.n_iter_ = int(solution.n_iter[0])
        self.history_ = solution.history
        self.certificate_ = Certificate(
            kkt=float(solution.kkt[0]),
            objective=float(solution.objective[0]),
            glm_objective=float(solution.glm_objective[0]),
            status=status.value,
        )
        solved = bool(solution.inner_converged[0])
        self.converged_ = status.ok and solved and not separated
        if separated:
            warnings.warn(
                "The classes are separated perfectly: the fit is finite only because "
                "of the penalties, and the size of its coefficients is arbitrary. "
                "Increase alpha or network_alpha, or collect more rows.",
                SeparationWarning,
                stacklevel=4,
            )
        elif not solved:
            warnings.warn(
                "The coefficients did not reach their optimum (residual "
                f"{self.certificate_.kkt:.1e}). Increase alpha or check for collinear "
                "columns.",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not status.ok:
            remedy = (
                f"Raise max_iter (now {self.max_iter})."
                if status is Status.MAX_ITER
                else "Lower learning_rate or raise network_alpha."
            )
            warnings.warn(f"{status.value} {remedy}", ConvergenceWarning, stacklevel=4)


def state_members(
    problem: Problem,
    seeds: tuple[int, ...],
    weight: np.ndarray,
    validation: np.ndarray | None,
    *,
    penalty: str,
    alpha: float,
    delta: float,
    network_alpha: float,
) -> Members:
    """Members that share weights and penalties and differ in their start."""
    n_models, p = len(seeds), problem.spec.n_features
    device = problem.device
    strength = torch.full((n_models,), alpha, dtype=torch.float64, device=device)

    def repeat(row: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(row, device=device).repeat(n_models, 1)

    allowed = torch.ones(n_models, p, dtype=torch.bool, device=device)
    return Members(
        penalty=make_penalty(penalty, strength, problem.term_feature, p, delta),
        network_alpha=torch.full_like(strength, network_alpha),
        seeds=seeds,
        weight=repeat(weight),
        validation=None if validation is None else repeat(validation),
        support=allowed,
        input_support=allowed.clone(),
    )


def assemble_model(
    data: TrainingSet | StreamedSet, problem: Problem, solution: Solution
) -> FittedModel:
    """Fold the target's scaling into the coefficients and move to the CPU."""
    return FittedModel(
        features=data.features,
        family=problem.family,
        spec=problem.spec,
        coef=solution.coef.cpu() * data.y_scale,
        intercept=solution.intercept.cpu() * data.y_scale + data.y_mean,
        params=solution.params.detach().cpu(),
        modulated=solution.modulated.cpu(),
    )


_SHARED = {
    "basis": """basis : {"linear", "poly2", "spline", "auto"} or dict, \
default="linear"
        How numeric features enter: as a line, a parabola, a natural cubic spline, or
        whichever of the three the evidence prefers. A dictionary chooses by name or
        position; features that it does not name are lines.""",
    "reference": """reference : {"auto", "mean", "median", "mode"} or dict, \
default="mean"
        The point that coefficients refer to; "auto" is the mean here. Columns of two
        values and categories stand at their most frequent value, unless a dictionary
        says otherwise.""",
    "parameters": """penalty : {"lasso", "ridge", "sub_l1"}, default="lasso"
        Penalty on the coefficients of the standardised features.
    alpha : float, default=0.01
        Strength of the penalty; 0 leaves the coefficients free. A Gaussian target is
        scaled to unit variance first, so the same value suits any unit.
    delta : float in (0, 1], default=0.5
        Shape of the sub-l1 penalty `|beta| ** (2 delta / (1 + delta))`; 1 is the lasso.
    scale_contributions : bool, default=True
        Price each coefficient by the size of its feature's modulated column. False
        is the paper's penalty on the bare coefficient, which the network can evade by
        scaling up: the coefficients then come out too small.
    network_alpha : float, default=1.0
        Group shrinkage of the network's first layer, as a rate relative to the
        learning rate. Larger values let fewer features modulate others.
    hidden : tuple of two int, default=(16, 16)
        Units of the network's two layers.
    noise : float, default=0.0
        Standard deviation of noise added to the first layer while training. It makes
        selection in the network stricter and the fit smoother.
    max_iter : int, default=500
        Steps of the network's optimiser; 0 gives the penalised GLM.
    learning_rate : float, default=0.01
        Peak learning rate.
    weight_decay : float, default=0.0
        Decay of the layers after the first.
    tol : float, default=1e-4
        Relative improvement that counts as progress.
    patience : int, default=10
        Checks (every ten steps) without progress before training stops.
    early_stopping : bool, default=False
        Whether to hold out rows and keep the state that predicts them best.
    validation_fraction : float, default=0.2
        Share of rows held out then.
    mask : bool, default=True
        Hide each feature from its own modulation. False is an ablation: coefficients
        then no longer mean what this class promises.
    position_code : {"binary", "none"}, default="binary"
        How the shared network is told which feature it modulates.
    warm_start : bool, default=False
        Start from the network of the previous fit.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to fit; "auto" takes a GPU when there is one. Predictions and explanations
        are made on the CPU unless this is "cuda".
    dtype : {"float64", "float32"}, default="float64"
        Precision of the network. Coefficients are always solved in float64.
    batch_size : int or "auto", default="auto"
        Rows per step of the network's optimiser, 0 for all. "auto" takes all rows up to
        20000 and 1024 beyond. Coefficients are always solved on all rows.
    memory_budget : float or "auto", default="auto"
        Bytes that the fit may take beside a table in memory; rows are cut into blocks
        to keep it. "auto" is 1e9, or half of what is free on a GPU. On a CPU blocks of
        64 MB, which stay in its cache, are enough. For rows that come in blocks it
        covers all that the fit holds; too small a budget is refused with an estimate.
    checkpoint : str or path, optional
        Folder that keeps the state of the fit. A fit that was interrupted resumes there
        when it is run again, with the same result to the last bit; a folder of another
        fit is refused. The folder stays until you remove it.
    verbose : bool, default=False
        Show a progress bar when the output is a terminal.
    random_state : int, RandomState instance or None, default=None
        Governs the start of the network, the noise and the held-out rows.
    <feature parameters>""",
    "attributes": """<feature attributes>
    model_ : FittedModel
        What predictions are made from.
    n_iter_ : int
        Optimiser steps taken.
    converged_ : bool
        Whether the network settled and the coefficients are optimal; never true when
        the classes are separated.
    certificate_ : Certificate
        Optimality residual and objective, beside those of the nested GLM.
    history_ : History
        Objective, validation loss and sparsity during training.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, when `X` had any.""",
}


@document(_SHARED)
class NIMORegressor(RegressionTask, FixedPenalties):
    """Regression whose coefficients a network bends, row by row.

    `eta = intercept + sum_j (x_j - reference_j) * coef_j * (1 + g_j(x without j))` with
    `g_j(reference) = 0`: with everything else at the reference, feature j acts through
    the straight line of slope `coef_j`, and elsewhere the network `g` corrects it.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma"}, default="gaussian"
        Distribution of the target; the link is the identity for Gaussian targets and
        the logarithm otherwise.
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
    >>> from sknimo import NIMORegressor
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=200, random_state=0)
    >>> est = NIMORegressor(random_state=0).fit(data.X, data.y)
    >>> est.score(data.X, data.y) > 0.98
    True
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        penalty: str = "lasso",
        alpha: float = 0.01,
        delta: float = 0.5,
        scale_contributions: bool = True,
        network_alpha: float = 1.0,
        hidden: tuple[int, int] = (16, 16),
        noise: float = 0.0,
        max_iter: int = 500,
        learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        tol: float = 1e-4,
        patience: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        mask: bool = True,
        position_code: str = "binary",
        warm_start: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        batch_size: Any = "auto",
        memory_budget: Any = "auto",
        checkpoint: Any = None,
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
            penalty=penalty,
            alpha=alpha,
            delta=delta,
            scale_contributions=scale_contributions,
            network_alpha=network_alpha,
            hidden=hidden,
            noise=noise,
            max_iter=max_iter,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            tol=tol,
            patience=patience,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            mask=mask,
            position_code=position_code,
            warm_start=warm_start,
            device=device,
            dtype=dtype,
            batch_size=batch_size,
            memory_budget=memory_budget,
            checkpoint=checkpoint,
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
class NIMOClassifier(ClassificationTask, FixedPenalties):
    """Binary classification whose log-odds coefficients a network bends, row by row.

    The log-odds of the second class are `intercept + sum_j (x_j - reference_j) * coef_j
    * (1 + g_j(x without j))` with `g_j(reference) = 0`.

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
    >>> from sknimo import NIMOClassifier
    >>> from sknimo.datasets import make_nimo_classification
    >>> data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    >>> est = NIMOClassifier(random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (200, 2)
    """
