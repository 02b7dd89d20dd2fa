"""What all estimators share: validated data in, predictions out.

Methods here orchestrate; numbers happen in `features`, `solver` and `model`. An
interrupted or failed fit leaves the previous one in place.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sknimo.estimators._explaining import Explainable
from sknimo.estimators._formula import FromFormula
from sknimo.estimators._reporting import Reportable
from sknimo.estimators._saving import Saveable
from sknimo.explain import describe_training
from sknimo.families import Family
from sknimo.features import (
    FeatureMap,
    FeatureOptions,
    Table,
    TableSchema,
    check_finite,
    drop_unused_levels,
    encode_table,
    fit_features,
    fit_linear,
    has_columns,
    read_table,
)
from sknimo.machine import choose_device, prediction_device, torch_threads
from sknimo.model import FittedModel
from sknimo.rows import RowBlocks
from sknimo.search import Settings
from sknimo.solver import Problem
from sknimo.training import (
    StreamedSet,
    StreamOptions,
    Target,
    TargetReader,
    TaskStore,
    TrainingSet,
    check_domain,
    check_option,
    choose_curves,
    describe_stream,
    is_separated,
    judge_rows,
    merge_rows,
    open_store,
    read_offset,
    read_stream,
    read_weight,
    state_network,
    state_problem,
)

MIN_SAMPLES = 3
# Bytes that a fit may take when nobody says otherwise, and the share of a GPU's memory.
MEMORY_BUDGET = 1e9
GPU_SHARE = 0.5


class BaseNIMO(FromFormula, Saveable, Reportable, Explainable, BaseEstimator):
    """Validation, fitting shell and prediction of all NIMO estimators."""

    basis: Any
    categorical: Any
    reference: Any
    missing: str
    handle_unknown: str
    input_scaling: str
    clip_inputs: bool
    position_code: str
    max_iter: int
    device: str
    batch_size: Any
    memory_budget: Any
    checkpoint: Any
    verbose: bool
    random_state: Any
    model_: FittedModel
    # Numbers that decide and that no parameter sets; an ablation replaces them.
    _settings: ClassVar[Settings] = Settings()

    def _take_params(self, given: Mapping[str, Any]) -> None:
        """Keep what a constructor was given, as it was given."""
        for name, value in given.items():
            if name != "self":
                setattr(self, name, value)

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
        """
        with unchanged_on_failure(self):
            return self._fit(X, y, sample_weight, offset)

    @abstractmethod
    def _fit(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Self:
        """Validate, solve and write the fitted attributes."""

    @abstractmethod
    def _family(self) -> Family:
        """Response family of this estimator."""

    @abstractmethod
    def _read_target(self, y: Any) -> Target:
        """Target as numbers."""

    @abstractmethod
    def _target_reader(self) -> TargetReader:
        """The same for targets that come in blocks."""

    @contextmanager
    def _read_rows(
        self, rows: RowBlocks | None, X: Any, y: Any, sample_weight: Any, offset: Any
    ) -> Iterator[TrainingSet | StreamedSet]:
        """Validated rows of a table in memory, or of blocks, which are put on disk."""
        family = self._family()
        if rows is None:
            yield self._read_training_set(X, y, sample_weight, offset, family)
            return
        how = self._stream_options()
        with read_stream(rows, self._target_reader(), family, how) as (data, schema):
            self._learn_names(schema)
            yield data

    def _state_problem(
        self, data: TrainingSet | StreamedSet, hidden: Any, mask: bool = True
    ) -> Problem:
        """The rows as tensors, with the network that will see them."""
        widths = int(hidden[0]), int(hidden[1])
        spec = state_network(data.features, widths, self.position_code, mask)
        return state_problem(data, self._family(), spec, choose_device(self.device))

    def _open_store(
        self, data: TrainingSet | StreamedSet, problem: Problem
    ) -> tuple[TaskStore, np.random.RandomState]:
        """Where the fit keeps its states, and the source of its seeds."""
        params = self.get_params(deep=False)
        store = open_store(self.checkpoint, data, problem, params)
        given = self.random_state
        return store, store.random(check_random_state(given), given is not None)

    def _read_training_set(
        self, X: Any, y: Any, sample_weight: Any, offset: Any, family: Family
    ) -> TrainingSet:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        check_option("missing", self.missing, ("error", "indicator"))
        check_option("handle_unknown", self.handle_unknown, ("error", "reference"))
        read_X = self._read_training_table(X)
        n_rows = len(read_X.values)
        self._check_n_samples(n_rows)
        read = self._read_target(y)
        target = read.values
        if len(target) != n_rows:
            raise ValueError(
                f"X has {n_rows} rows but y has {len(target)}: inconsistent numbers "
                "of samples."
            )
        weight = read_weight(sample_weight, n_rows)
        shift = read_offset(offset, n_rows)
        check_domain(target, weight, family)
        given_weight = weight
        read_X = drop_unused_levels(read_X, weight)
        rows = merge_rows(read_X.values, target, weight, shift)
        table, target = rows.table, rows.target
        weight, shift = rows.weight, rows.offset
        self._check_n_samples(len(table))
        if read.classes is not None and target.min() == target.max():
            raise ValueError(
                "Rows with positive weight hold a single class; two classes are needed."
            )
        mean, scale = 0.0, 1.0
        if family.least_squares:
            spread = fit_linear(target - shift, weight)
            # A constant target has no scale: every coefficient is zero.
            mean, scale = spread.reference, spread.scale or 1.0
            target, shift = (target - mean) / scale, shift / scale
        features = self._fit_features(read_X, table, target, weight, shift, family)
        return TrainingSet(
            table,
            target,
            weight,
            shift,
            features,
            mean,
            scale,
            read.classes,
            rows.place,
            given_weight,
        )

    def _fit_features(
        self,
        read: Table,
        table: np.ndarray,
        target: np.ndarray,
        weight: np.ndarray,
        offset: np.ndarray,
        family: Family,
    ) -> FeatureMap:
        """Bases, references and scales; curves by evidence where asked for."""
        names, options = self._names(table.shape[1]), self._feature_options()
        levels = read.levels or (None,) * table.shape[1]
        with torch_threads(len(table)):
            options = choose_curves(
                table,
                names,
                weight,
                levels,
                options,
                target,
                offset,
                family,
                self._settings.curves,
            )
        return fit_features(table, names, weight, levels, options)

    def _feature_options(self) -> FeatureOptions:
        return FeatureOptions(
            self.basis, self.reference, self.input_scaling, bool(self.clip_inputs)
        )

    def _stream_options(self) -> StreamOptions:
        """How blocks of rows are to be read."""
        check_option("missing", self.missing, ("error", "indicator"))
        check_option("handle_unknown", self.handle_unknown, ("error", "reference"))
        return StreamOptions(
            self._feature_options(),
            self._settings.curves,
            self.categorical,
            self.missing == "indicator",
            self._apply_formula,
            self._check_n_samples,
            self._budget(),
            self.checkpoint is not None,
        )

    def _learn_names(self, schema: TableSchema) -> None:
        """Number and names of the columns, as `validate_data` learns them."""
        self.n_features_in_ = len(schema.names)
        if schema.is_named:
            self.feature_names_in_ = np.array(schema.names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

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

    def _read_table(self, X: Any) -> np.ndarray:
        """Read new rows as the training rows were read."""
        X = self._apply_formula(X)
        features, values = self.model_.features, X
        if has_columns(X):  # number and names first: columns are read by position
            validate_data(self, X, reset=False, skip_check_array=True)
            values = encode_table(X, features, self.handle_unknown)
        table = self._as_array(values)
        check_finite(table, features.names, features.admits_missing)
        return table

    def _as_array(self, values: Any) -> np.ndarray:
        return check_array(
            values, dtype=np.float64, ensure_all_finite=False, estimator=self
        )

    def _keep_model(
        self,
        model: FittedModel,
        data: TrainingSet | StreamedSet,
        problem: Problem,
        room: float,
    ) -> bool:
        """Write the attributes that every fitted estimator has.

        Returns whether the classes are separated. What the summary says of the training
        rows is kept as facts: the rows themselves are not. Blocks of rows take at most
        `room` bytes.
        """
        if data.classes is not None:
            self.classes_ = data.classes
        self._show_model(model)
        if isinstance(data, StreamedSet):
            judged = judge_rows(model, data)
            self._facts = describe_stream(model, data, problem, room, judged)
            return judged.is_separated(model.family)
        # In units beyond 1e150 squares overflow: infinite there, but no failed fit.
        quiet = np.errstate(over="ignore", invalid="ignore")
        with torch_threads(data.n_total), quiet:
            self._facts = describe_training(
                self._explained(),
                data.table,
                data.y * data.y_scale + data.y_mean,
                data.weight,
                data.offset * data.y_scale,
                n_samples=data.n_samples,
            )
        return is_separated(model, data)

    def _show_model(self, model: FittedModel) -> None:
        """Keep a model and write the attributes that follow from it alone."""
        self.model_ = model
        features = model.features
        self.coef_ = features.coefficients(model.term_coef)
        self.coef_names_ = np.array(features.coef_names, dtype=object)
        self.intercept_ = model.base_value
        self.reference_ = features.reference

    def _eta(self, X: Any, offset: Any = None) -> np.ndarray:
        check_is_fitted(self)
        table = self._read_table(X)
        device = prediction_device(self.device)
        return self.model_.eta(table, read_offset(offset, len(table)), device)

    def _explained(self) -> FittedModel:
        """The model on the device that predictions are made on."""
        device = prediction_device(self.device)
        return self.model_.to(device)

    def extrapolation_score(self, X: Any) -> np.ndarray:
        """How far each row lies beyond the training range.

        Zero within the range of every column. Beyond it, distance to the range in
        standard deviations of the training rows, largest over columns. Levels, missing
        values and columns that were constant in training do not count.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        excess = self.model_.features.excess(self._read_table(X))
        return excess.max(axis=1, initial=0.0)

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

    def _check_fitted(self) -> None:
        check_is_fitted(self)

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
