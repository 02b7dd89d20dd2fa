"""From arguments to a fitted model: validate, state the problem, solve, keep.

Methods here orchestrate; numbers happen in `features`, `solver` and `model`. Nothing is
written to the estimator before the fit has succeeded, so an interrupted or failed fit
leaves the previous one in place.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import (
    check_is_fitted,
    check_scalar,
    column_or_1d,
    validate_data,
)

from sknimo.exceptions import SeparationWarning
from sknimo.families import Family
from sknimo.features import (
    FeatureMap,
    check_finite,
    fit_features,
    fit_linear,
    is_missing,
    read_table,
    read_vector,
)
from sknimo.model import FittedModel
from sknimo.network import CodeName, make_spec
from sknimo.penalties import PenaltyName, make_penalty
from sknimo.solver import Members, Options, Problem, Solution, Status, solve

DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["float32", "float64"]

MIN_SAMPLES = 3
# Tables up to this size are sorted and repeated rows merged.
MERGE_CELLS = 2_000_000
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
    classes : ndarray of shape (2,) or None
        Labels of a classification target.
    """

    table: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    offset: np.ndarray
    features: FeatureMap
    y_mean: float
    y_scale: float
    classes: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Target:
    """A target as numbers, with the labels they stand for if any."""

    values: np.ndarray
    classes: np.ndarray | None = None


class BaseNIMO(BaseEstimator):
    """Shared parameters, fitting and prediction of the plain estimators."""

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
        memory_budget: float = 512e6,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
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
        self.memory_budget = memory_budget
        self.verbose = verbose
        self.random_state = random_state

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
        before = dict(vars(self))
        try:
            return self._fit(X, y, sample_weight, offset)
        except BaseException:  # an interrupted fit leaves what was there before
            self.__dict__ = before
            raise

    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Self:
        self._check_params()
        family = self._family()
        data = self._read_training_set(X, y, sample_weight, offset, family)
        problem = state_problem(
            data,
            family,
            hidden=(int(self.hidden[0]), int(self.hidden[1])),
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

    @abstractmethod
    def _family(self) -> Family:
        """Response family of this estimator."""

    @abstractmethod
    def _read_target(self, y: Any) -> Target:
        """Target as numbers."""

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
        check_number("memory_budget", self.memory_budget, Real, 1e6)
        check_number("delta", self.delta, Real, 0)
        check_number("validation_fraction", self.validation_fraction, Real, 0)
        if not 0 < self.delta <= 1:
            raise ValueError(f"delta must lie in (0, 1], got {self.delta!r}.")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must lie strictly between 0 and 1, got "
                f"{self.validation_fraction!r}."
            )
        hidden: Any = self.hidden
        widths = list(hidden) if isinstance(hidden, Iterable) else []
        if len(widths) != 2 or not all(
            isinstance(size, Integral) and int(size) >= 1 for size in widths
        ):
            raise ValueError(
                f"hidden must hold two positive whole layer widths, got {hidden!r}."
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
        self._check_n_samples(len(table))
        read = self._read_target(y)
        target = read.values
        n_rows = len(table)
        if len(target) != n_rows:
            raise ValueError(
                f"X has {n_rows} rows but y has {len(target)}: inconsistent numbers "
                "of samples."
            )
        weight = read_weight(sample_weight, n_rows)
        shift = read_offset(offset, n_rows)
        check_domain(target, weight, family)
        rows = merge_rows(table, target, weight, shift)
        table, target = rows.table, rows.target
        weight, shift = rows.weight, rows.offset
        self._check_n_samples(len(table))
        if read.classes is not None and target.min() == target.max():
            raise ValueError(
                "Rows with positive weight hold a single class; two classes are needed."
            )
        features = fit_features(table, self._names(table.shape[1]), weight)
        mean, scale = 0.0, 1.0
        if family.scaled_target:
            spread = fit_linear(target - shift, weight)
            # A constant target has no scale: every coefficient is zero.
            mean, scale = spread.reference, spread.scale or 1.0
            target, shift = (target - mean) / scale, shift / scale
        return TrainingSet(
            table, target, weight, shift, features, mean, scale, read.classes
        )

    def _check_n_samples(self, n_samples: int) -> None:
        if n_samples < MIN_SAMPLES:
            raise ValueError(
                f"Found n_samples = {n_samples} (rows of positive weight) while a "
                f"minimum of {MIN_SAMPLES} is required by {type(self).__name__}."
            )

    def _names(self, n_features: int) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{j}" for j in range(n_features)]
        return [str(name) for name in names]

    def _read_table(self, X: Any, reset: bool) -> np.ndarray:
        """Validate a table and remember (or check) its names."""
        values = read_table(X)
        if values is not X:  # a data frame: names come from it, numbers from us
            validate_data(self, X, reset=reset, skip_check_array=True)
            table = check_array(values, dtype=np.float64, ensure_all_finite=False)
        else:
            table = validate_data(
                self, X, reset=reset, dtype=np.float64, ensure_all_finite=False
            )
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

    def _keep(self, model: FittedModel, solution: Solution, data: TrainingSet) -> None:
        """Write the fitted attributes."""
        status = solution.status[0]
        separated = is_separated(model, data)
        if data.classes is not None:
            self.classes_ = data.classes
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

    def _eta(self, X: Any, offset: Any = None) -> np.ndarray:
        check_is_fitted(self)
        table = self._read_table(X, reset=False)
        return self.model_.eta(table, read_offset(offset, len(table)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


@dataclass(frozen=True, slots=True)
class _WeightedRows:
    """Distinct rows with their total weights."""

    table: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    offset: np.ndarray


def merge_rows(
    table: np.ndarray, target: np.ndarray, weight: np.ndarray, offset: np.ndarray
) -> _WeightedRows:
    """Drop rows of zero weight, sort the rest and merge repeated ones.

    The objective depends on the rows only through their weighted distribution. In this
    canonical form so does every rounding error: integer weights equal repetition and
    the order of rows does not matter, to the last bit. Beyond `MERGE_CELLS` cells
    sorting is no longer free, and sums are long enough not to care.
    """
    keep = weight > 0
    table, target = table[keep], target[keep]
    weight, offset = weight[keep], offset[keep]
    if table.size > MERGE_CELLS or len(table) == 0:
        return _WeightedRows(table, target, weight, offset)
    keys = np.column_stack([offset, target, table])
    order = np.lexsort(keys.T[::-1])
    keys, weight = keys[order], weight[order]
    first = np.ones(len(keys), dtype=bool)
    first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    total = np.add.reduceat(weight, np.flatnonzero(first))
    keys = keys[first]
    return _WeightedRows(
        np.ascontiguousarray(keys[:, 2:]), keys[:, 1].copy(), total, keys[:, 0].copy()
    )


def check_option(name: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a value outside a list, naming the list."""
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {known}, got {value!r}.")


def check_number(name: str, value: Any, kind: type, minimum: float) -> None:
    """Refuse what is not a finite number of a kind, or is too small."""
    check_scalar(value, name, kind, min_val=minimum)
    if not np.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}.")


def read_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    """Row weights as floats, never negative and not all zero."""
    if sample_weight is None:
        return np.ones(n_rows)
    if isinstance(sample_weight, Real):
        weight = np.full(n_rows, float(sample_weight))
    else:
        weight = read_vector(sample_weight, "sample_weight")
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
    values = read_vector(offset, "offset")
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
    column = column_or_1d(y, warn=True)
    try:
        target = read_vector(column, "y")
    except ValueError as error:
        raise ValueError(f"{error} Use NIMOClassifier for labels.") from error
    _refuse_missing(target)
    return target


def read_labels(y: Any) -> np.ndarray:
    """Class labels as a vector; missing ones are refused by row."""
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "f":
        _refuse_missing(labels)
    elif labels.dtype.kind == "O":
        absent = [is_missing(label) for label in labels]
        _refuse_missing(np.where(absent, np.nan, 0.0))
    return labels


def _refuse_missing(target: np.ndarray) -> None:
    """Refuse NaN and infinity in a target, naming the first row."""
    bad = ~np.isfinite(target)
    if bad.any():
        row = int(bad.argmax())
        kind = "NaN" if np.isnan(target[row]) else "infinity (inf)"
        raise ValueError(
            f"Input y contains {kind}, first at row {row}. Drop such rows first."
        )


def check_domain(target: np.ndarray, weight: np.ndarray, family: Family) -> None:
    """Refuse targets that the family cannot have produced, naming the row."""
    outside = ~family.in_domain(torch.as_tensor(target)).numpy() & (weight > 0)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"The {family.name} family needs {family.domain} in y; row {row} has "
            f"{target[row]:g}."
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
