"""Survival targets: times and events as users hold them, become a `FollowUp`.

Every refusal names the row and a remedy.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from sknimo.features import is_missing, read_vector
from sknimo.survival import FollowUp
from sknimo.training._checks import check_lengths

# What the column of events is called where neither type nor place says so.
EVENT_NAMES = ("event", "status", "cens", "dead", "death", "died", "observed")


def read_follow_up(
    y: Any,
    weight: np.ndarray,
    *,
    entry: Any = None,
    strata: Any = None,
    known: Sequence[Hashable] | None = None,
) -> FollowUp:
    """Times and events of rows of these weights, with entries and strata if any.

    `known` are the labels of strata that a fitted model has.
    """
    time, event = read_times(y)
    check_lengths(len(weight), len(time))
    begin = np.full(len(time), -np.inf)
    if entry is not None:
        begin = _read_entry(entry, time)
    codes, labels = read_strata(strata, len(time), known)
    return FollowUp(time, event, begin, codes, weight, labels)


def check_events(rows: FollowUp) -> None:
    """Refuse rows of which no hazard can be learned."""
    count = int(rows.ends.sum())
    if count == 0:
        raise ValueError(
            "Every row with positive weight is censored: no hazard can be learned. "
            "Check that y marks events with 1 or True."
        )
    if count == 1:
        row = int(rows.ends.argmax())
        raise ValueError(
            f"Only row {row} has an event; two events are needed at least. Collect "
            "more follow-up, or check that y marks events with 1 or True."
        )


def read_times(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Times (n,) as floats and events (n,) as bool, from two columns of any kind."""
    time, event = _part(y)
    times = read_vector(time, "The time in y")
    for bad, what in (
        (np.isnan(times), "is missing"),
        (np.isinf(times), "is infinite"),
        (times <= 0, "is not positive"),
    ):
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"The time in y {what} at row {row} ({times[row]:g}). Times count from "
                "the beginning of the observation; drop or mend such rows."
            )
    events = read_vector(event, "The event in y")
    odd = ~np.isin(events, (0.0, 1.0))
    if odd.any():
        row = int(odd.argmax())
        raise ValueError(
            f"The event in y must be 1 (it happened) or 0 (censored); row {row} has "
            f"{events[row]:g}. Recode it, and drop rows where it is not known."
        )
    return times, events == 1


def _part(y: Any) -> tuple[Any, Any]:
    """Columns of times and events of a structured array, a frame, or two columns."""
    structured = getattr(getattr(y, "dtype", None), "names", None)
    names = structured or tuple(getattr(y, "columns", ()))
    if len(names) == 2:
        said = [_says_event(name, y[name]) for name in names]
        # Where neither says so the order is scikit-survival's, or that of frames.
        event = said.index(True) if sum(said) == 1 else int(not structured)
        return y[names[1 - event]], y[names[event]]
    if not names:
        array = np.asarray(y)
        if array.ndim == 2 and array.shape[1] == 2:
            return array[:, 0], array[:, 1]
    raise ValueError(
        "y must hold a time and an event for every row: two columns (time, event), a "
        "data frame of two columns, or a structured array such as scikit-survival's "
        f"Surv; got {type(y).__name__} of shape {np.shape(y)}."
    )


def _says_event(name: Hashable, column: Any) -> bool:
    """Whether a column's name or type says that it holds events."""
    kind = str(getattr(column, "dtype", "")).lower()
    return str(name).lower() in EVENT_NAMES or kind.startswith("bool")


def _read_entry(entry: Any, time: np.ndarray) -> np.ndarray:
    """When rows came under observation; missing is from the beginning."""
    begin = read_vector(entry, "entry")
    if begin.shape != time.shape:
        raise ValueError(
            f"entry must be one number per row: expected shape {time.shape}, got "
            f"{begin.shape}."
        )
    late = begin >= time
    if late.any():
        row = int(late.argmax())
        raise ValueError(
            f"entry must lie before the time; row {row} enters at {begin[row]:g} and "
            f"ends at {time[row]:g}. Such a row was never watched: drop it."
        )
    return np.where(np.isnan(begin), -np.inf, begin)


def read_strata(
    strata: Any, n_rows: int, known: Sequence[Hashable] | None = None
) -> tuple[np.ndarray, tuple[Hashable, ...]]:
    """Number of each row's stratum, and what strata are called.

    A fitted model knows its strata: others are refused, and so are none.
    """
    if strata is None:
        if known is not None and len(known) > 1:
            raise ValueError(
                f"The model has {len(known)} strata ({_list(known)}), each with a "
                "baseline of its own: give strata, a label for every row."
            )
        return np.zeros(n_rows, dtype=int), tuple(known or (None,))
    column = np.asarray(strata)
    if column.shape != (n_rows,):
        raise ValueError(
            f"strata must hold one label per row: expected shape ({n_rows},), got "
            f"{column.shape}."
        )
    values = column.tolist()
    missing = [is_missing(value) for value in values]
    if any(missing):
        raise ValueError(
            f"strata holds a missing label in row {missing.index(True)}. Give every "
            "row a label; one of its own if it belongs to no stratum."
        )
    # Sorted, so that the order of rows does not matter.
    labels = sorted(set(values), key=lambda value: (str(type(value)), value))
    if known is not None:
        strange = [value for value in labels if value not in known]
        if strange:
            raise ValueError(
                f"strata has {strange[0]!r} at row {values.index(strange[0])}; the "
                f"model knows {_list(known)}."
            )
        labels = list(known)
    number = {label: s for s, label in enumerate(labels)}
    return np.array([number[value] for value in values], dtype=int), tuple(labels)


def _list(labels: Sequence[Hashable], most: int = 5) -> str:
    shown = ", ".join(repr(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown}, ..."
