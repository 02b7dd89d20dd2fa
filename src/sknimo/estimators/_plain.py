"""Estimators with fixed penalties, trained by the first-order solver."""

import warnings
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sknimo.checkpoint import Checkpoint
from sknimo.estimators._base import BaseNIMO, parameters
from sknimo.estimators._tasks import ClassificationTask, RegressionTask
from sknimo.estimators._texts import document
from sknimo.exceptions import SeparationWarning, check_option
from sknimo.families import Family
from sknimo.model import ClassModels, FittedModel
from sknimo.network import CodeName
from sknimo.penalties import PENALTIES, CoefPenalty, Penalty, make_penalty
from sknimo.solver import (
    ClassCycle,
    Members,
    Options,
    Problem,
    Solution,
    Status,
    solve,
)
from sknimo.training import (
    StreamedSet,
    TrainingSet,
    assemble,
    check_number,
    check_widths,
    choose_batch_size,
    find_rows,
    fit_budget,
    hold_out,
    learn_shape,
    penalised_glm,
)

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


@parameters
class FixedPenalties(BaseNIMO):
    """What the plain estimators share: rows in, one solve, attributes out."""

    penalty: str | Penalty = "lasso"
    alpha: float = 0.01
    delta: float = 0.5
    scale_contributions: bool = True
    network_alpha: float = 1.0
    hidden: tuple[int, int] = (16, 16)
    noise: float = 0.0
    max_iter: int = 500
    learning_rate: float = 0.01
    weight_decay: float = 0.0
    tol: float = 1e-4
    patience: int = 10
    early_stopping: bool = False
    validation_fraction: float = 0.2
    mask: bool = True
    position_code: str = "binary"
    warm_start: bool = False
    device: str = "auto"
    dtype: str = "float64"
    batch_size: Any = "auto"
    memory_budget: Any = "auto"
    checkpoint: Any = None
    verbose: bool | str = "auto"
    random_state: Any = None
    basis: Any = "linear"
    categorical: Any = None
    reference: Any = "mean"
    missing: str = "error"
    handle_unknown: str = "error"
    input_scaling: str = "auto"
    clip_inputs: bool | str = False
    monotone: Any = None

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> None:
        self._check_params()
        rows = find_rows(X, y, sample_weight, offset)
        with self._read_rows(rows, X, y, sample_weight, offset) as data:
            problem = self._state_problem(data, self.hidden, self.mask)
            store, random = self._open_store(data, problem)
            seed, noise_seed = (int(random.randint(2**31 - 1)) for _ in range(2))
            options = self._options(noise_seed, data.n_total)
            options = fit_budget(data, problem, options, self._budget())
            held_out = None
            if self.early_stopping:
                held_out = hold_out(data, self.validation_fraction, random)
            members = self._members(problem, data.weight, held_out, seed)
            glm = penalised_glm(members, options)
            problem = learn_shape(problem, members.weight[0].cpu().numpy(), glm)
            start = self._warm_network(problem)
            model: FittedModel | ClassModels
            settled = True
            if self._n_classes > 2:
                how = members, options, store.checkpoint
                end = ClassCycle(problem, self._n_classes, *how).run(start)
                parts = [assemble(data, problem, one) for one in end.solutions]
                model, solution = ClassModels.of(parts), end.join()
                settled = end.settled
            else:
                problem, solution = self._solve(
                    problem, members, options, start, store.checkpoint, data
                )
                model = assemble(data, problem, solution)
            separated = self._keep_model(model, data, problem, options.memory_budget)
            self._keep_uncertainty(
                problem,
                data.weight if held_out is None else data.weight * ~held_out,
                solution,
                data,
                penalty=members.penalty,
                scaled_penalty=bool(self.scale_contributions),
                separated=separated,
            )
            self._keep(solution, separated, settled)

    def _solve(
        self,
        problem: Problem,
        members: Members,
        options: Options,
        start: Tensor | None,
        checkpoint: Checkpoint | None,
        data: TrainingSet | StreamedSet,
    ) -> tuple[Problem, Solution]:
        """The solution, and the problem that it solves."""
        return problem, solve(problem, members, options, start, checkpoint)

    def _check_params(self) -> None:
        super()._check_params()
        check_option("penalty", self.penalty, PENALTIES, Penalty)
        check_option("position_code", self.position_code, get_args(CodeName))
        check_option("dtype", self.dtype, get_args(DtypeName))
        for name in ("alpha", "network_alpha", "noise", "tol", "weight_decay"):
            check_number(name, getattr(self, name), Real, 0)
        check_number("learning_rate", self.learning_rate, Real, 1e-12)
        check_number("max_iter", self.max_iter, Integral, 0)
        check_number("patience", self.patience, Integral, 1)
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
        seed: int,
    ) -> Members:
        """One member; rows held out judge early stopping and train nothing."""
        device = problem.device

        def share(part: np.ndarray) -> Tensor:
            total = sum(problem.ranks.gather(part.sum()))
            return torch.as_tensor(part / total, device=device).unsqueeze(0)

        def one(value: float) -> Tensor:
            return torch.full((1,), float(value), dtype=torch.float64, device=device)

        validation = None
        if held_out is not None:
            validation = share(np.where(held_out, weight, 0.0))
            weight = np.where(held_out, 0.0, weight)
        return Members(
            penalty=self._penalise(problem),
            network_alpha=one(self.network_alpha),
            seeds=(seed,),
            weight=share(weight),
            validation=validation,
        )

    def _penalise(self, problem: Problem) -> CoefPenalty:
        """The penalty of the mean loss."""
        alpha = torch.full((1,), float(self.alpha), dtype=torch.float64)
        alpha = alpha.to(problem.device)
        p, delta = problem.spec.n_features, float(self.delta)
        return make_penalty(self.penalty, alpha, problem.term_feature, p, delta)

    def _warm_network(self, problem: Problem) -> torch.Tensor | None:
        """Network of the previous fit, when asked for and still of the right shape."""
        model: FittedModel | ClassModels | None = getattr(self, "model_", None)
        if not self.warm_start or model is None:
            return None
        if isinstance(model, ClassModels):
            model = model.stacked
        count = self._n_classes if self._n_classes > 2 else 1
        if model.spec != problem.spec or model.n_members != count:
            return None
        return model.params.clone()

    def _keep(self, solution: Solution, separated: bool, settled: bool) -> None:
        """Write what is known of the training, and warn where there is cause.

        `settled` says whether several classes had come to rest beside one another.
        """
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
        self.converged_ = status.ok and solved and settled and not separated
        if self.converged_:
            return
        if separated:
            warnings.warn(
                "The classes are separated perfectly: the fit is finite only because "
                "of the penalties, and the size of its coefficients is arbitrary. "
                "Increase alpha or network_alpha, or collect more rows.",
                SeparationWarning,
                stacklevel=4,
            )
            return
        if status is Status.MAX_ITER:
            told = f"{status.value} Raise max_iter (now {self.max_iter})."
        elif not status.ok:
            told = f"{status.value} Lower learning_rate or raise network_alpha."
        else:
            what = (
                "The classes were still moving one another when their turns ended"
                if solved
                else "The coefficients did not reach their optimum"
            )
            told = (
                f"{what} (residual {self.certificate_.kkt:.1e}). Increase alpha or "
                "check for collinear columns."
            )
        warnings.warn(told, ConvergenceWarning, stacklevel=4)


PLAIN = {
    "basis": """basis : {"linear", "poly2", "spline", "ramps", "auto"} or dict, \
default="linear"
        How numeric features enter: as a line, a parabola, a natural cubic spline, a
        curve of straight pieces, or whichever of the first three the evidence prefers.
        A dictionary chooses by name or position; features that it does not name are
        lines.""",
    "reference": """reference : {"auto", "mean", "median", "mode"} or dict, \
default="mean"
        The point that coefficients refer to; "auto" is the mean, but in columns whose
        mean lies where hardly any row is the place where rows lie closest together.
        Columns of two values and categories stand at their most frequent value, unless
        a dictionary says otherwise.""",
    "parameters": """penalty : {"lasso", "ridge", "sub_l1"} or Penalty, default="lasso"
        Penalty on the coefficients of the standardised features, by name or as a
        `sknimo.penalties.Penalty`.
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
    <device>
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
    <verbose>
    random_state : int, RandomState instance or None, default=None
        Governs the start of the network, the noise and the held-out rows.
    <feature parameters>""",
    "attributes": """<feature attributes>
    n_iter_ : int
        Optimiser steps taken.
    converged_ : bool
        Whether the network settled and the coefficients are optimal; never true when
        the classes are separated.
    certificate_ : Certificate
        Optimality residual and objective, beside those of the nested GLM.
    history_ : History
        Objective, validation loss and sparsity during training.
    <columns>""",
}


@document(PLAIN)
@parameters
class NIMORegressor(RegressionTask, FixedPenalties):
    """Regression whose coefficients a network bends, row by row.

    `eta = intercept + sum_j (x_j - reference_j) * coef_j * (1 + g_j(x without j))` with
    `g_j(reference) = 0`: with everything else at the reference, feature j acts through
    the straight line of slope `coef_j`, and elsewhere the network `g` corrects it.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma", "negative_binomial", "tweedie"} \
or Family, default="gaussian"
        Distribution of the target; the link is the identity for Gaussian targets and
        the logarithm otherwise. The overdispersion of counts and the power of Tweedie
        amounts are learned, unless the name has them in brackets, as in "tweedie(1.5)".
        A distribution of your own is a `sknimo.families.Family`.
    <parameters>

    Attributes
    ----------
    <line attributes>
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=200, random_state=0)
    >>> est = NIMORegressor(random_state=0).fit(data.X, data.y)
    >>> est.score(data.X, data.y) > 0.98
    True
    """

    family: str | Family = field(default="gaussian", kw_only=False)


@document(PLAIN)
@parameters
class NIMOClassifier(ClassificationTask, FixedPenalties):
    """Classification whose log-odds coefficients a network bends, row by row.

    The log-odds of the second of two classes are `intercept + sum_j (x_j - reference_j)
    * coef_j * (1 + g_j(x without j))` with `g_j(reference) = 0`. More than two classes
    have a linear predictor of this kind each, and a softmax makes them probabilities.

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
    >>> from sknimo import NIMOClassifier, datasets
    >>> data = datasets.make_nimo_classification(n_samples=200, random_state=0)
    >>> est = NIMOClassifier(random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (200, 2)
    """

    class_weight: Any = None
