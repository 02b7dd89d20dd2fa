"""From arguments to a fitted model: validate, state the problem, solve, keep.

Methods here orchestrate; numbers happen in `features`, `solver` and `model`. Nothing is
written to the estimator before the fit has succeeded, so an interrupted or failed fit
leaves the previous one in place.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_is_fitted,
    check_scalar,
    column_or_1d,
    validate_data,
)

from sknimo.exceptions import SeparationWarning
from sknimo.families import Family
from sknimo.features import FeatureMap, check_finite, fit_features, read_table
from sknimo.model import FittedModel
from sknimo.network import CodeName, make_spec
from sknimo.penalties import PenaltyName, make_penalty
from sknimo.solver import Members, Options, Problem, Solution, Status, solve

DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["float32", "float64"]

MIN_SAMPLES = 3
# Linear predictors beyond this, with hardly any deviance left, mean separation.
SEPARATION_ETA = 30.0


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
class TrainingSet:
    """Validated training data.

    Attributes
    ----------
    table : ndarray of shape (n, p)
    y, weight, offset : ndarray of shape (n,)
        Rows of zero weight have been dropped; the target is centred and scaled where
        the family allows it.
    features : FeatureMap
    y_mean, y_scale : float
        What was subtracted from and divided out of the target.
    """

    table: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    offset: np.ndarray
    features: FeatureMap
    y_mean: float
    y_scale: float


class BaseNIMO(BaseEstimator):
    """Shared fitting and prediction of all NIMO estimators."""

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Numeric table. Columns are standardised inside.
        y : array of shape (n_samples,)
            Target.
        sample_weight : array of shape (n_samples,), optional
            Row weights. Integer weights equal repetition, zero weights deletion.
        offset : array of shape (n_samples,), optional
            Known part of the linear predictor, for example a log exposure.

        Returns
        -------
        self
        """
        self._check_params()
        family = self._family()
        data = self._read_training_set(X, y, sample_weight, offset, family)
        problem = state_problem(
            data,
            family,
            hidden=tuple(self.hidden),
            position_code=self.position_code,
            mask=self.mask,
            device=choose_device(self.device),
        )
        random = check_random_state(self.random_state)
        seeds = tuple(random.randint(2**31 - 1, size=1).tolist())
        options = self._options(int(random.randint(2**31 - 1)))
        members = self._members(problem, data, seeds, random)
        start = self._warm_network(problem)
        solution = solve(problem, members, options, start)
        model = assemble_model(data, problem, solution)
        self._keep(model, solution, data)
        return self

    def _family(self) -> Family:
        raise NotImplementedError

    def _read_target(self, y: Any) -> np.ndarray:
        raise NotImplementedError

    def _check_params(self) -> None:
        """Refuse parameters that make no sense, listing what would."""
        check_option("penalty", self.penalty, get_args(PenaltyName))
        check_option("position_code", self.position_code, get_args(CodeName))
        check_option("device", self.device, get_args(DeviceName))
        check_option("dtype", self.dtype, get_args(DtypeName))
        for name in ("alpha", "network_alpha", "noise", "tol", "weight_decay"):
            check_scalar(getattr(self, name), name, Real, min_val=0)
        check_scalar(self.learning_rate, "learning_rate", Real, min_val=1e-12)
        check_scalar(self.max_iter, "max_iter", Integral, min_val=0)
        check_scalar(self.patience, "patience", Integral, min_val=1)
        check_scalar(self.memory_budget, "memory_budget", Real, min_val=1e6)
        if not 0 < self.delta <= 1:
            raise ValueError(f"delta must lie in (0, 1], got {self.delta!r}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must lie strictly between 0 and 1, got "
                f"{self.validation_fraction!r}."
            )
        if len(self.hidden) != 2 or any(int(size) < 1 for size in self.hidden):
            raise ValueError(
                f"hidden must hold two positive layer widths, got {self.hidden!r}."
            )

    def _read_training_set(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, family: Family
    ) -> TrainingSet:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        table = self._read_table(X, reset=True)
        target = self._read_target(y)
        n_rows = len(table)
        if len(target) != n_rows:
            raise ValueError(
                f"X has {n_rows} rows but y has {len(target)}: inconsistent numbers "
                "of samples."
            )
        weight = read_weight(sample_weight, n_rows)
        shift = read_offset(offset, n_rows)
        keep = weight > 0
        table, target = table[keep], target[keep]
        weight, shift = weight[keep], shift[keep]
        if len(table) < MIN_SAMPLES:
            raise ValueError(
                f"Found {len(table)} sample(s) with positive weight while a minimum of "
                f"{MIN_SAMPLES} is required by {type(self).__name__}."
            )
        check_domain(target, family)
        self._check_classes(target)
        features = fit_features(table, self._names(table.shape[1]), weight)
        mean, scale = 0.0, 1.0
        if family.scaled_target:
            share = weight / weight.sum()
            mean = float(share @ (target - shift))
            scale = float(np.sqrt(share @ (target - shift - mean) ** 2))
            if scale <= 16 * np.finfo(float).eps * abs(mean):
                scale = 1.0  # a constant target: every coefficient is zero
            target, shift = (target - mean) / scale, shift / scale
        return TrainingSet(table, target, weight, shift, features, mean, scale)

    def _check_classes(self, target: np.ndarray) -> None:
        """Classifiers refuse a single class here."""

    def _names(self, n_features: int) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{j}" for j in range(n_features)]
        return [str(name) for name in names]

    def _read_table(self, X: Any, reset: bool) -> np.ndarray:
        """Validate a table and remember (or check) its names."""
        if not reset:
            check_is_fitted(self)
        values = read_table(X)
        if values is not X:  # a data frame: names come from it, numbers from us
            validate_data(self, X, reset=reset, skip_check_array=True)
        table = validate_data(
            self,
            values if values is X else np.asarray(values),
            reset=reset and values is X,
            skip_check_array=False,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=1,
        ) if values is X else _check_plain(values)
        check_finite(table, self._names(table.shape[1]))
        return table

    def _options(self, noise_seed: int) -> Options:
        return Options(
            max_iter=int(self.max_iter),
            learning_rate=float(self.learning_rate),
            noise=float(self.noise),
            noise_seed=noise_seed,
            tol=float(self.tol),
            patience=int(self.patience),
            scale_contributions=bool(self.scale_contributions),
            weight_decay=float(self.weight_decay),
            dtype=getattr(torch, self.dtype),
            memory_budget=int(self.memory_budget),
            progress=bool(self.verbose),
        )

    def _members(
        self,
        problem: Problem,
        data: TrainingSet,
        seeds: tuple[int, ...],
        random: np.random.RandomState,
    ) -> Members:
        weight, validation = data.weight / data.weight.sum(), None
        if self.early_stopping:
            held_out = self._hold_out(data, random)
            validation = np.where(held_out, data.weight, 0.0)
            weight = np.where(held_out, 0.0, data.weight)
            validation = validation / validation.sum()
            weight = weight / weight.sum()
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

    def _hold_out(
        self, data: TrainingSet, random: np.random.RandomState
    ) -> np.ndarray:
        """Rows that judge early stopping, a random share of all."""
        n_rows = len(data.table)
        n_held_out = int(np.clip(round(self.validation_fraction * n_rows), 1, n_rows - 1))
        held_out = np.zeros(n_rows, dtype=bool)
        held_out[random.permutation(n_rows)[:n_held_out]] = True
        return held_out

    def _warm_network(self, problem: Problem) -> torch.Tensor | None:
        """Network of the previous fit, when asked for and still of the right shape."""
        model: FittedModel | None = getattr(self, "model_", None)
        if not self.warm_start or model is None or model.spec != problem.spec:
            return None
        return model.params.clone()

    def _keep(self, model: FittedModel, solution: Solution, data: TrainingSet) -> None:
        """Write the fitted attributes, all at once."""
        status = solution.status[0]
        separated = is_separated(model, data)
        self.model_ = model
        unit = model.features.unit
        self.coef_ = model.features.per_feature(model.term_coef * unit)
        self.intercept_ = model.base_value
        self.reference_ = model.features.reference
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
                stacklevel=3,
            )
        elif not solved:
            warnings.warn(
                "The coefficients did not reach their optimum (residual "
                f"{self.certificate_.kkt:.1e}). Increase alpha or check for collinear "
                "columns.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif not status.ok and status is not Status.MAX_ITER:
            warnings.warn(
                f"{status.value} Lower learning_rate or raise network_alpha.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif status is Status.MAX_ITER:
            warnings.warn(
                f"{status.value} Raise max_iter (now {self.max_iter}) for a better "
                "fit.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _eta(self, X: Any, offset: Any = None) -> np.ndarray:
        check_is_fitted(self)
        table = self._read_table(X, reset=False)
        return self.model_.eta(table, read_offset(offset, len(table)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def _check_plain(values: np.ndarray) -> np.ndarray:
    """Shape checks for a table read from a data frame."""
    from sklearn.utils import check_array

    return check_array(values, dtype=np.float64, ensure_all_finite=False)


def check_option(name: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a value outside a list, naming the list."""
    if value not in options:
        known = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {known}, got {value!r}.")


def read_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Row weights as floats, never negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        weight = np.full(n_rows, float(sample_weight))
    else:
        weight = np.array(sample_weight, dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must be one number per row: expected shape ({n_rows},), "
            f"got {weight.shape}. Sample weights must be 1D array or scalar."
        )
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"sample_weight must be finite and not negative, row {row} has "
            f"{weight[row]}."
        )
    if not (weight > 0).any():
        raise ValueError("sample_weight is zero for every row; nothing to fit.")
    return weight


def read_offset(offset: Any, n_rows: int) -> np.ndarray:
    """Offset as floats, zero when not given."""
    if offset is None:
        return np.zeros(n_rows)
    values = np.array(offset, dtype=np.float64)
    if values.shape != (n_rows,):
        raise ValueError(
            f"offset must be one number per row: expected shape ({n_rows},), got "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise ValueError(
            f"offset must be finite, row {row} has {values[row]}. An exposure of zero "
            "has no logarithm; drop such rows."
        )
    return values


def read_numeric_target(y: Any) -> np.ndarray:
    """A numeric target as a float vector; NaN and infinity are refused by row."""
    if np.iscomplexobj(y):
        raise ValueError("Complex data not supported: y must be real numbers.")
    target = column_or_1d(y, warn=True)
    try:
        target = np.array(target, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "y must hold numbers. Use NIMOClassifier for labels."
        ) from error
    bad = ~np.isfinite(target)
    if bad.any():
        row = int(bad.argmax())
        kind = "NaN" if np.isnan(target[row]) else "infinity (inf)"
        raise ValueError(
            f"Input y contains {kind}, first at row {row}. Drop such rows first."
        )
    return target


def check_domain(target: np.ndarray, family: Family) -> None:
    """Refuse targets that the family cannot have produced, naming the row."""
    inside = family.in_domain(torch.as_tensor(target)).numpy()
    if not inside.all():
        row = int((~inside).argmax())
        raise ValueError(
            f"The {family.name} family needs {family.domain} in y; row {row} of the "
            f"rows used has {target[row]:g}."
        )


def choose_device(name: str) -> torch.device:
    """Device by name; "auto" takes a GPU when there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            'device="cuda" but no GPU is available. Use device="auto" to fall back to '
            "the CPU."
        )
    return torch.device(name)


def state_problem(
    data: TrainingSet,
    family: Family,
    *,
    hidden: tuple[int, int],
    position_code: str,
    mask: bool,
    device: torch.device,
) -> Problem:
    """Tensors of a training set and the network that will see them."""
    features = data.features
    spec = make_spec(
        features.input_feature.tolist(),
        features.n_features,
        hidden,
        position_code,
        mask,
    )
    return Problem(
        terms=torch.as_tensor(features.terms(data.table)),
        term_feature=torch.as_tensor(features.term_feature),
        inputs=torch.as_tensor(features.inputs(data.table)),
        y=torch.as_tensor(data.y),
        offset=torch.as_tensor(data.offset),
        family=family,
        spec=spec,
    ).to(device)


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
    device = problem.terms.device
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
    data: TrainingSet, problem: Problem, solution: Solution
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


def is_separated(model: FittedModel, data: TrainingSet) -> bool:
    """Whether a binary fit predicts every row with certainty."""
    if model.family.name != "binomial":
        return False
    eta = model.eta(data.table, data.offset)
    loss = model.family.loss(torch.as_tensor(data.y), torch.as_tensor(eta)).numpy()
    return bool(np.abs(eta).max() > SEPARATION_ETA and loss.max() < 1e-3)
