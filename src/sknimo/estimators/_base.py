"""What all estimators share: validated data in, predictions out.

Methods here orchestrate; numbers happen in `features`, `solver` and `model`. An
interrupted or failed fit leaves the previous one in place.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
)

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sknimo.estimators._diagnosing import Diagnosable
from sknimo.estimators._formula import FromFormula
from sknimo.estimators._inferring import Inferring
from sknimo.estimators._later import Later, quiet
from sknimo.estimators._monotone import Restrained
from sknimo.estimators._reporting import Reportable
from sknimo.estimators._saving import LEFT_OUT, Saveable
from sknimo.exceptions import DataWarning, check_option
from sknimo.explain import TrainingFacts, describe_training, measure_reach
from sknimo.families import Family
from sknimo.features import (
    FeatureOptions,
    InputScaling,
    Table,
    TableSchema,
    check_finite,
    check_new,
    encode_table,
    has_columns,
    read_table,
)
from sknimo.machine import DeviceName, choose_device, prediction_device
from sknimo.model import FittedModel
from sknimo.progress import watch
from sknimo.ranks import ALONE
from sknimo.rows import RowBlocks
from sknimo.search import Settings
from sknimo.solver import Problem
from sknimo.training import (
    ReadingOptions,
    StreamedSet,
    Target,
    TargetReader,
    TaskStore,
    TrainingSet,
    check_domain,
    check_folder,
    check_lengths,
    check_number_or_auto,
    check_verbose,
    describe_stream,
    is_separated,
    judge_rows,
    open_store,
    prepare_table,
    read_offset,
    read_stream,
    read_weight,
    state_network,
    state_problem,
)

MIN_SAMPLES = 3


class ReadsTables(FromFormula):
    """Estimators that learn the columns of a table, and read new rows alike."""

    categorical: Any
    missing: str
    handle_unknown: str
    model_: FittedModel

    def _learn_names(self, schema: TableSchema) -> None:
        """Number and names of the columns, as `validate_data` learns them."""
        self.n_features_in_ = len(schema.names)
        if schema.is_named:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_n_samples(self, n_samples: int, n_given: int) -> None:
        """Refuse too few rows that count among those that were given."""
        if n_samples >= MIN_SAMPLES:
            return
        found = f"Found n_samples = {n_samples}"
        if n_samples < n_given:
            found = (
                f"X has {n_given} rows, but with y only {n_samples} of them have "
                "positive weight and differ from each other,"
            )
        raise ValueError(
            f"{found} while a minimum of {MIN_SAMPLES} is required by "
            f"{type(self).__name__}. Add rows that differ."
        )

    def _names(self, n_features: int) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return [f"x{j}" for j in range(n_features)]
        return [str(name) for name in names]

    def _apply_formula(self, X: Any) -> Any:
        """Columns that the formula asks for; the table itself without a formula."""
        return X if self._recipe is None else self._recipe.apply(X)

    def _read_training_table(self, X: Any) -> Table:
        """Learn names, levels and numbers of a training table."""
        missing = self.missing == "indicator"
        X = self._apply_formula(X)
        read = read_table(X, self.categorical, missing)
        if read.values is not X:  # names come from the frame, numbers from us
            validate_data(self, X, reset=True, skip_check_array=True)
            table = self._as_array(read.values)
        else:
            table = validate_data(
                self, X, reset=True, dtype=np.float64, ensure_all_finite=False
            )
        check_finite(table, self._names(table.shape[1]), missing)
        return Table(table, read.levels)

    def _read_table(self, X: Any, anywhere: bool = False) -> np.ndarray:
        """Read new rows as the training rows were read.

        Those too far away to compute with are refused, unless they may be anywhere.
        """
        check_is_fitted(self)
        X = self._apply_formula(X)
        features, values = self.model_.features, X
        admit = self.missing == "indicator" and self.handle_unknown == "reference"
        if has_columns(X):  # number and names first: columns are read by position
            validate_data(self, X, reset=False, skip_check_array=True)
            values = encode_table(X, features, self.handle_unknown)
        table = self._as_array(values)
        if admit:  # what no training row had stands at the reference
            strange = np.isnan(table) & ~features.admits_missing
            table = np.where(strange, features.reference, table)
        check_new(table, features, anywhere)
        return table

    def _as_array(self, values: Any) -> np.ndarray:
        return check_array(
            values, dtype=np.float64, ensure_all_finite=False, estimator=self
        )


# Bytes that a fit may take when nobody says otherwise, and the share of a GPU's memory.
MEMORY_BUDGET = 1e9
GPU_SHARE = 0.5


T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parameters(cls: type[T]) -> type[T]:
    """Make the constructor: a class declares its parameters as fields."""
    return dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)


class BaseNIMO(
    ReadsTables,
    Saveable,
    Inferring,
    Diagnosable,
    Reportable,
    Restrained,
    BaseEstimator,
):
    """Validation, fitting shell and prediction of all NIMO estimators."""

    basis: Any
    reference: Any
    input_scaling: str
    clip_inputs: bool | str
    position_code: str
    max_iter: int
    device: str
    batch_size: Any
    memory_budget: Any
    checkpoint: Any
    verbose: bool | str
    random_state: Any
    _n_classes: int = 2  # of the target that was read last
    _has_offset: bool = False  # whether the last table had one
    # Numbers that decide and that no parameter sets; an ablation replaces them.
    _settings: ClassVar[Settings] = Settings()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "indicator"
        return tags

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features), or RowBlocks
            Numeric columns are standardised inside; text, categorical and enum columns
            of a data frame are categories. Blocks of rows and memory-mapped arrays are
            read piece by piece.
        y : array of shape (n_samples,)
            Target; part of the blocks if there are any.
        sample_weight : array of shape (n_samples,), optional
            Row weights. Integer weights equal repetition, zero weights deletion.
        offset : array of shape (n_samples,), optional
            Known part of the linear predictor, for example a log exposure.

        Returns
        -------
        self

        Examples
        --------
        >>> from sknimo import NIMORegressor, datasets
        >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
        >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
        >>> est.coef_.shape
        (5,)
        """
        with unchanged_on_failure(self), watch(self.verbose, has_tasks=False):
            for _ in self._attempts():
                self._fit(X, y, sample_weight, offset)
        return self

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> None:
        """Validate, solve and write the fitted attributes."""

    def _check_params(self) -> None:
        """Refuse parameters that make no sense, listing what would."""
        self._family()
        check_option("device", self.device, get_args(DeviceName))
        check_option("missing", self.missing, ("error", "indicator"))
        check_option("handle_unknown", self.handle_unknown, ("error", "reference"))
        scalings = ("auto", *get_args(InputScaling))
        check_option("input_scaling", self.input_scaling, scalings)
        check_number_or_auto("batch_size", self.batch_size, Integral, 0)
        check_number_or_auto("memory_budget", self.memory_budget, Real, 1e6)
        check_folder(self.checkpoint)
        check_verbose(self.verbose)

    @abstractmethod
    def _family(self) -> Family:
        """Response family of this estimator."""

    @abstractmethod
    def _target_reader(self) -> TargetReader:
        """How targets become numbers, all at once or in blocks."""

    def _weigh_target(self, target: Target, weight: np.ndarray) -> np.ndarray:
        """Row weights; a class may have the target count in."""
        return weight

    def _read_target(self, y: Any) -> Target:
        """Target of all rows as numbers."""
        reader = self._target_reader()
        return reader.finish(reader.read(y, 0), ALONE)

    def _known_target(self, y: Any) -> np.ndarray:
        """Target of new rows as the model counts it."""
        return self._read_target(y).values

    @contextmanager
    def _read_rows(
        self, rows: RowBlocks | None, X: Any, y: Any, sample_weight: Any, offset: Any
    ) -> Iterator[TrainingSet | StreamedSet]:
        """Validated rows of a table in memory, or of blocks, which are put on disk."""
        how = self._reading_options()
        if rows is None:
            data = self._read_training_set(X, y, sample_weight, offset, how)
            yield self._restrain(data)
            return
        reader, family = self._target_reader(), self._family()
        self._has_offset = False  # blocks keep it to themselves
        with read_stream(rows, reader, family, how) as (read, schema):
            self._learn_names(schema)
            yield self._restrain(read)

    def _state_problem(
        self,
        data: TrainingSet | StreamedSet,
        hidden: Any,
        mask: bool = True,
        family: Family | None = None,
    ) -> Problem:
        """The rows as tensors, with the network that will see them."""
        widths = int(hidden[0]), int(hidden[1])
        spec = state_network(data.features, widths, self.position_code, mask)
        family = family or self._family()
        device = choose_device(self.device, data.n_total)
        problem = state_problem(data, family, spec, device)
        if self.monotone is None:
            return problem
        unbent = torch.zeros(data.features.n_features, dtype=torch.bool)
        unbent[list(self._signs(data.features))] = True
        return replace(problem, unbent=unbent.to(problem.device))

    def _open_store(
        self, data: TrainingSet | StreamedSet, problem: Problem
    ) -> tuple[TaskStore, np.random.RandomState]:
        """Where the fit keeps its states, and the source of its seeds."""
        params = self.get_params(deep=False)
        store = open_store(self._checkpoint_folder(), data, problem, params)
        given = self.random_state
        return store, store.random(check_random_state(given), given is not None)

    def _checkpoint_folder(self) -> Any:
        """Where states are kept, if they are."""
        return self.checkpoint

    def _read_training_set(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, how: ReadingOptions
    ) -> TrainingSet:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        read = self._read_training_table(X)
        n_rows, n_features = read.values.shape
        self._check_n_samples(n_rows, n_rows)
        target = self._read_target(y)
        check_lengths(n_rows, len(target.values))
        weight = self._weigh_target(target, read_weight(sample_weight, n_rows))
        known = read_offset(offset, n_rows)
        self._has_offset = bool(known.any())
        family = self._family()  # the number of classes is known by now
        check_domain(target.values, weight, family)
        names = self._names(n_features)
        return prepare_table(read, names, target, weight, known, family, how)

    def _reading_options(self) -> ReadingOptions:
        """How rows are to be read."""
        return ReadingOptions(
            self._feature_options(),
            self._settings.curves,
            self.categorical,
            self.missing == "indicator",
            self._apply_formula,
            self._check_n_samples,
            self._budget(),
            self.checkpoint is not None,
            self._read_bags,
        )

    def _feature_options(self) -> FeatureOptions:
        """How columns of a table that is not large enter."""
        scaling = "standard" if self.input_scaling == "auto" else self.input_scaling
        return FeatureOptions(self.basis, self.reference, scaling, self.clip_inputs)

    def _read_bags(
        self, n_rows: int, levels: Sequence[Any], in_blocks: bool
    ) -> tuple[FeatureOptions | None, bool]:
        """How bags read a table, and whether they alone do; only a search has bags."""
        return None, False

    def _keep_model(
        self, model: Any, data: TrainingSet | StreamedSet, problem: Problem, room: float
    ) -> bool:
        """Write the attributes that every fitted estimator has.

        Returns whether the classes are separated. What the summary says of the training
        rows is kept as facts, and the rows only until somebody asks for these. Blocks
        of rows take at most `room` bytes.
        """
        if data.classes is not None:
            self.classes_ = data.classes
        self._conformal = self._held_out = None
        self._show_model(model)
        if isinstance(data, StreamedSet):
            deviance, separated = judge_rows(model, data)
            self._facts = describe_stream(model, data, problem, room, deviance)
            return separated
        how = (
            data.table,
            data.y * data.y_scale + data.y_mean,
            data.weight,
            data.offset * data.y_scale,
            data.n_samples,
        )
        device = self.device

        @quiet(data.n_total)
        def describe() -> TrainingFacts:
            return describe_training(model.to(prediction_device(device)), *how)

        with quiet():
            reach = measure_reach(model, data.table, data.weight)
        self._facts = Later(describe, reach)
        return is_separated(model, data)

    def _show_model(self, model: FittedModel) -> None:
        """Keep a model and write the attributes that follow from it alone."""
        self.model_ = model
        features = model.features
        self.coef_ = features.coefficients(model.term_coef)
        self.coef_names_ = np.array(features.coef_names, dtype=object)
        self.intercept_ = model.base_value
        self.intercept_at_zero_ = model.base_value - features.rise(self.coef_)
        self.reference_ = features.reference

    def _eta(self, X: Any, offset: Any = None) -> np.ndarray:
        table = self._read_table(X)
        self._warn_far(table)
        watched = self.model_.family.is_hazard  # an offset of its own, from the times
        if offset is None and self._has_offset and not watched:
            warnings.warn(
                "The model was fitted with an offset, and these rows are taken to have "
                "an offset of zero (one unit of exposure where it is a log exposure). "
                "Give offset=, or offset=0 if that is meant.",
                DataWarning,
                stacklevel=3,
            )
        return self._eta_of(table, offset)

    def _eta_of(self, table: np.ndarray, offset: Any) -> np.ndarray:
        device = prediction_device(self.device)
        return self.model_.eta(table, read_offset(offset, len(table)), device)

    def _explained(self) -> FittedModel:
        """The model on the device that predictions are made on."""
        check_is_fitted(self)
        return self.model_.to(prediction_device(self.device))

    def _budget(self) -> float:
        """Bytes that a fit may take; most of what is free on a GPU."""
        budget = self.memory_budget
        if not isinstance(budget, str):
            return float(budget)
        device = choose_device(self.device)
        if device.type != "cuda":
            return MEMORY_BUDGET
        free, _ = torch.cuda.mem_get_info(device)
        return max(MEMORY_BUDGET, GPU_SHARE * free)

    if not TYPE_CHECKING:  # or every attribute would be known

        def __getattr__(self, name):
            """Say of an attribute that files leave out why it is not there."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in LEFT_OUT and "_saved_by" in vars(self):
                text += ": it is a trace of the training, which files leave out"
            raise AttributeError(text, name=name, obj=self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


@contextmanager
def unchanged_on_failure(estimator: BaseNIMO) -> Iterator[None]:
    """An interrupted or failed fit leaves what was there before."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise
