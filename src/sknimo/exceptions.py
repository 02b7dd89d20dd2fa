"""Warnings and errors that users may want to catch by name, and the commonest check."""

from collections.abc import Iterable


class DataWarning(UserWarning):
    """The data are usable, but something in them deserves a look.

    Examples
    --------
    >>> import warnings
    >>> import sknimo
    >>> X = [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]] * 5  # the second column is constant
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     est = sknimo.NIMORegressor(max_iter=0).fit(X, [0.0, 1.0, 2.0] * 5)
    >>> any(w.category is sknimo.DataWarning for w in caught)
    True
    """


class ExtrapolationWarning(UserWarning):
    """Rows to predict lie far from all training rows.

    Examples
    --------
    >>> import warnings
    >>> import sknimo
    >>> est = sknimo.NIMORegressor(max_iter=0)
    >>> est = est.fit([[0.0], [1.0], [2.0]] * 5, [0.0, 1.0, 2.0] * 5)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     far = est.predict([[1000.0]])
    >>> any(w.category is sknimo.ExtrapolationWarning for w in caught)
    True
    """


class SeparationWarning(UserWarning):
    """The classes are separated perfectly, so the size of coefficients is arbitrary.

    Examples
    --------
    >>> import warnings
    >>> import sknimo
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]] * 5, [0, 0, 1, 1] * 5
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     est = sknimo.NIMOClassifier(alpha=0, max_iter=0).fit(X, y)
    >>> any(w.category is sknimo.SeparationWarning for w in caught)
    True
    """


class CheckpointWarning(UserWarning):
    """A state of a fit could not be kept; the fit itself goes on.

    Examples
    --------
    Let a script end where states cannot be kept:

    >>> import warnings
    >>> import sknimo
    >>> warnings.simplefilter("error", sknimo.CheckpointWarning)
    """


class ModelFileError(ValueError):
    """A file is no saved model of this library, or a damaged or newer one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import sknimo
    >>> path = Path(tempfile.mkdtemp()) / "model.sknimo"
    >>> size = path.write_text("not a model")
    >>> try:
    ...     sknimo.load(path)
    ... except sknimo.ModelFileError:
    ...     print("no model")
    no model
    """


class CheckpointError(ValueError):
    """A checkpoint is damaged, or belongs to another piece of work.

    Examples
    --------
    The folder belongs to other rows:

    >>> import tempfile
    >>> import sknimo
    >>> est = sknimo.NIMORegressor(
    ...     tol=1.0, patience=3, checkpoint=tempfile.mkdtemp(), random_state=0
    ... )
    >>> est = est.fit([[0.0], [1.0], [2.0]] * 5, [0.0, 1.0, 2.0] * 5)
    >>> try:
    ...     est.fit([[0.0], [1.0], [3.0]] * 5, [0.0, 1.0, 2.0] * 5)
    ... except sknimo.CheckpointError:
    ...     print("another fit")
    another fit
    """


def check_option(
    name: str, value: object, options: Iterable[str], record: type | None = None
) -> None:
    """Refuse a value outside a list, naming the list; records of a kind may pass."""
    options = list(options)
    if record is not None and isinstance(value, record):
        return
    if not isinstance(value, str) or value not in options:
        known = ", ".join(repr(option) for option in options)
        other = f" Or give a {record.__name__}." if record is not None else ""
        raise ValueError(f"{name} must be one of {known}, got {value!r}.{other}")
