"""Tables that estimators are given: names, levels and numbers of their columns."""

from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from sknimo.estimators._formula import FromFormula
from sknimo.features import (
    Table,
    TableSchema,
    check_finite,
    check_new,
    encode_table,
    has_columns,
    read_table,
)
from sknimo.model import FittedModel

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
        if has_columns(X):  # number and names first: columns are read by position
            validate_data(self, X, reset=False, skip_check_array=True)
            values = encode_table(X, features, self.handle_unknown)
        table = self._as_array(values)
        check_new(table, features, anywhere)
        return table

    def _as_array(self, values: Any) -> np.ndarray:
        return check_array(
            values, dtype=np.float64, ensure_all_finite=False, estimator=self
        )
