"""Cox's partial likelihood as a Poisson likelihood, baseline hazards, concordance.

For linear predictors `eta` of all rows the derivative of the log partial likelihood by
that of row i is `event_i - exp(eta_i) H_i`. `H_i`, the row's *exposure*, is the
cumulative baseline hazard over the time that it was watched, estimated at the same
`eta`. That is the score of a Poisson count with offset `log H_i`. So a Poisson fit at
fixed exposures and new exposures from its `eta`, in turn, end where the partial
likelihood is stationary, and whatever fits a Poisson model with an offset fits Cox's.

Ties are Efron's or Breslow's: in Efron's way the rows that end at one time leave the
risk set one after the other, each in part, so that their own exposure at that time is
smaller than that of others. Rows are at risk at times `t` with `entry < t <= time`.

Shapes: n rows, m times with an event, S strata.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

Ties = Literal["efron", "breslow"]
TIES = get_args(Ties)

# Rows that no event finds at risk have no exposure; logarithms need some, which is lost
# in the rounding of any sum.
LEAST_EXPOSURE = 1e-12


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Rows and how long they were watched."""

    time: np.ndarray  # (n,), end of the observation
    event: np.ndarray  # (n,), bool, whether it ended with the event
    entry: np.ndarray  # (n,), when it began, -inf for the beginning
    stratum: np.ndarray  # (n,), integer, from 0
    weight: np.ndarray  # (n,)
    labels: tuple[Hashable, ...] = (None,)  # (S,), what strata are called

    def __len__(self) -> int:
        return len(self.time)

    @property
    def ends(self) -> np.ndarray:
        """Rows whose event counts, (n,), bool."""
        return np.asarray(self.event & (self.weight > 0))

    def take(self, rows: np.ndarray) -> FollowUp:
        """Some of the rows."""
        return FollowUp(
            self.time[rows],
            self.event[rows],
            self.entry[rows],
            self.stratum[rows],
            self.weight[rows],
            self.labels,
        )


@dataclass(frozen=True, slots=True)
class Baseline:
    """Cumulative hazard at the reference: a step function for each stratum.

    Attributes
    ----------
    labels : tuple
        What strata are called; one None where there are none.
    times : tuple of ndarray of shape (m,)
        Times with an event in each stratum, increasing.
    hazard : tuple of ndarray of shape (m,)
        The cumulative hazard from each of them on.
    entered : bool
        Whether rows that it was estimated from were watched from later times on.

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo.survival import Baseline
    >>> baseline = Baseline((None,), (np.array([1.0, 3.0]),), (np.array([0.1, 0.4]),))
    >>> baseline.at(np.array([0.5, 2.0]), stratum=np.array([0]))
    array([[0. , 0.1]])
    """

    labels: tuple[Hashable, ...]
    times: tuple[np.ndarray, ...]
    hazard: tuple[np.ndarray, ...]
    entered: bool = False

    def at(self, times: np.ndarray, stratum: np.ndarray) -> np.ndarray:
        """Of rows of these strata (n,) at times (k,), shape (n, k)."""
        out = np.empty((len(stratum), len(times)))
        for s in np.unique(stratum).tolist():
            out[stratum == s] = _step(self.times[s], self.hazard[s], times)
        return out

    def watch(self, rows: FollowUp) -> np.ndarray:
        """Logarithm of what each row saw of it, (n,), also of rows that are new."""
        seen = np.empty(len(rows))
        for own, part in _parts(rows):
            s = self.labels.index(rows.labels[int(part.stratum[0])]) if len(own) else 0
            seen[own] = _rise(self.times[s], self.hazard[s], part)
        # Before the first event nobody was exposed; logarithms need a little.
        least = LEAST_EXPOSURE * max(float(x[-1]) for x in self.hazard if len(x))
        return np.log(np.maximum(seen, least))

    @property
    def all_times(self) -> np.ndarray:
        """Times with an event in any stratum, increasing."""
        return np.unique(np.concatenate(self.times))


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """A curve of one row, to be called with times.

    Attributes
    ----------
    x : ndarray of shape (k,)
        Times, increasing.
    y : ndarray of shape (k,)
        The value from each of them until the next.
    start : float
        The value before the first.
    """

    x: np.ndarray
    y: np.ndarray
    start: float

    @property
    def domain(self) -> tuple[float, float]:
        """From when until when events were seen; the last value goes on beyond."""
        return 0.0, float(self.x[-1])

    def __call__(self, times: Any) -> Any:
        """The values at these times, an array for an array."""
        return _step(self.x, self.y, np.asarray(times, dtype=float), self.start)


@dataclass(frozen=True, slots=True, eq=False)
class StepFunctions:
    """Curves of several rows at common times: an array, and a list of functions.

    Attributes
    ----------
    times : ndarray of shape (k,)
        Increasing.
    values : ndarray of shape (n_samples, k)
        One curve per row.
    start : float
        Their value before the first time: 1 for survival, 0 for a hazard.

    Examples
    --------
    >>> import numpy as np
    >>> from sknimo.survival import StepFunctions
    >>> curves = StepFunctions(np.array([1.0, 3.0]), np.array([[0.9, 0.5]]), 1.0)
    >>> curves[0]([0.5, 2.0, 3.0])
    array([1. , 0.9, 0.5])
    >>> [float(curve(2.0)) for curve in curves]
    [0.9]
    """

    times: np.ndarray
    values: np.ndarray
    start: float

    @property
    def survival(self) -> np.ndarray:
        """The chance to be without the event, whatever the curves are."""
        return self.values if self.start == 1 else np.exp(-self.values)

    @property
    def hazard(self) -> np.ndarray:
        """The cumulative hazard, whatever the curves are."""
        with np.errstate(divide="ignore"):
            return -np.log(self.values) if self.start == 1 else self.values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice | np.ndarray | list):
            return StepFunctions(self.times, self.values[row], self.start)
        return StepFunction(self.times, self.values[row], self.start)

    def __iter__(self) -> Iterator[StepFunction]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """The values, for functions of arrays."""
        return np.array(self.values, dtype=dtype)

    def to_frame(self) -> Any:
        """One row per row, one column per time, as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.values, columns=self.times)


def _step(
    times: np.ndarray, values: np.ndarray, at: np.ndarray, start: float = 0.0
) -> Any:
    """A step function that has these values from these times on, elsewhere."""
    place = np.searchsorted(times, at, side="right")
    return np.concatenate([[start], values])[place]


def _rise(times: np.ndarray, values: np.ndarray, rows: FollowUp) -> np.ndarray:
    """How far a step function rises while each row is watched, (n,)."""
    ends, begins = (_step(times, values, at) for at in (rows.time, rows.entry))
    return np.asarray(ends - begins)


@dataclass(frozen=True, slots=True)
class Exposures:
    """What rows were exposed to, by Breslow's or Efron's estimate at some `eta`."""

    offset: np.ndarray  # (n,), logarithm of each row's exposure
    baseline: Baseline


@dataclass(frozen=True, slots=True)
class _RiskSets:
    """The times with an event in one stratum, (m,) each."""

    times: np.ndarray
    count: np.ndarray  # rows with the event then
    each: np.ndarray  # their mean weight
    at_risk: np.ndarray  # sum of `weight * exp(eta)` over those at risk
    leaving: np.ndarray  # the same over those with the event

    def partings(self, ties: Ties) -> Iterator[_Parting]:
        """The tied events of all times, the first ones first."""
        for gone in range(int(self.count.max(initial=0))):
            at = np.flatnonzero(self.count > gone)
            # The share of each of the tied rows that has left by now.
            left = gone / self.count[at] if ties == "efron" else np.zeros(len(at))
            size = self.at_risk[at] - left * self.leaving[at]
            yield _Parting(at, 1 - left, self.each[at], size)


@dataclass(frozen=True, slots=True)
class _Parting:
    """One event of each of some times."""

    at: np.ndarray  # which times
    stays: np.ndarray  # share of the tied rows that is still at risk
    weight: np.ndarray  # of the event
    size: np.ndarray  # of the risk set


def expose(rows: FollowUp, eta: np.ndarray, ties: Ties) -> Exposures:
    """Estimate the baseline hazard at `eta` (n,) and what each row saw of it."""
    shift = _largest(rows, eta)
    exposure = np.zeros(len(rows))
    times, hazard = [], []
    for here, part in _parts(rows):
        sets = _risk_sets(part, eta[here] - shift)
        steps, tied = np.zeros(len(sets.times)), np.zeros(len(sets.times))
        for event in sets.partings(ties):
            step = event.weight / event.size
            steps[event.at] += step
            tied[event.at] += event.stays * step
        total = np.cumsum(steps)
        seen = _rise(sets.times, total, part)
        own = np.searchsorted(sets.times, part.time[part.ends])
        seen[part.ends] -= (steps - tied)[own]
        exposure[here] = seen
        times.append(sets.times)
        hazard.append(total * np.exp(-shift))
    least = LEAST_EXPOSURE * np.average(exposure, weights=rows.weight)
    offset = np.log(np.maximum(exposure, least)) - shift
    entered = bool(np.isfinite(rows.entry).any())
    baseline = Baseline(rows.labels, tuple(times), tuple(hazard), entered)
    return Exposures(offset, baseline)


@dataclass(frozen=True, slots=True)
class RiskSums:
    """Sums over those at risk at every event, added up block by block of rows.

    Times with an event of all strata stand one after the other, N in all. A row is at
    risk at those from `first` to before `last`, and has its event at `tied` or never.
    """

    risk: np.ndarray  # (n,), weight * exp(eta), but for a common factor
    first: np.ndarray  # (n,)
    last: np.ndarray  # (n,)
    tied: np.ndarray  # (n,), -1 for none
    n_times: int  # N
    partings: tuple[_Parting, ...]

    @classmethod
    def of(cls, rows: FollowUp, eta: np.ndarray, ties: Ties) -> RiskSums:
        """Risk sets at `eta` (n,)."""
        shift, n = _largest(rows, eta), len(rows)
        risk = rows.weight * np.exp(np.minimum(eta - shift, 0.0))
        first, last = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
        tied, total = np.full(n, -1), 0
        partings = []
        for own, part in _parts(rows):
            sets = _risk_sets(part, eta[own] - shift)
            for event in sets.partings(ties):
                partings.append(replace(event, at=event.at + total))
            last[own] = total + np.searchsorted(sets.times, part.time, side="right")
            first[own] = total + np.searchsorted(sets.times, part.entry, side="right")
            tied[own] = np.where(part.ends, last[own] - 1, -1)
            total += len(sets.times)
        return cls(risk, first, last, tied, total, tuple(partings))

    def add(self, sums: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
        """Add the values (k, m) of some rows (k,) to `sums` (2, N + 1, m)."""
        values = values * self.risk[rows, None]
        np.add.at(sums[0], self.last[rows], values)
        np.subtract.at(sums[0], self.first[rows], values)
        leaves = self.tied[rows] >= 0
        np.add.at(sums[1], self.tied[rows][leaves], values[leaves])

    def means(self, sums: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Means over those at risk at events (e, m), and weights of the events (e,)."""
        # A row counts at all times before its last: sums from the end.
        at_risk = np.cumsum(sums[0][::-1], axis=0)[::-1][1:]
        for event in self.partings:
            gone = (1 - event.stays)[:, None] * sums[1][event.at]
            yield (at_risk[event.at] - gone) / event.size[:, None], event.weight

    def score_residuals(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """What each row adds to the partial score along its `values` (n, m).

        Rows count by `weight` (n,). Those at risk are compared with the mean of all who
        are, at every step of the hazard that they have seen.
        """
        sums = np.zeros((2, self.n_times + 1, values.shape[1]))
        self.add(sums, np.arange(len(values)), values)
        # Steps of the hazard, and these times the means: of all, of tied rows, plain.
        size = np.zeros((2, self.n_times + 1, 1))
        steps = np.zeros((3, self.n_times + 1, values.shape[1]))
        count = np.zeros(self.n_times + 1)
        for event, (mean, own) in zip(self.partings, self.means(sums), strict=True):
            step = (own / event.size)[:, None]
            for k, share in enumerate((1.0, event.stays[:, None])):
                size[k, event.at] += share * step
                steps[k, event.at] += share * step * mean
            steps[2, event.at] += mean
            count[event.at] += 1
        total = [np.cumsum(np.roll(x, 1, axis=0), axis=0) for x in (size[0], steps[0])]
        seen, means = (x[self.last] - x[self.first] for x in total)
        there = np.flatnonzero(self.tied >= 0)
        at = self.tied[there]
        seen[there] -= (size[0] - size[1])[at]
        means[there] -= (steps[0] - steps[1])[at]
        out = -self.risk[:, None] * (seen * values - means)
        middle = steps[2][at] / count[at][:, None]
        out[there] += weight[there, None] * (values[there] - middle)
        return np.asarray(out)


def _largest(rows: FollowUp, eta: np.ndarray) -> float:
    """What is taken off `eta`, so that no exponential overflows."""
    return float(eta[rows.weight > 0].max())


def _parts(rows: FollowUp) -> Iterator[tuple[np.ndarray, FollowUp]]:
    """Positions and rows of every stratum."""
    for s in range(len(rows.labels)):
        own = np.flatnonzero(rows.stratum == s)
        yield own, rows.take(own)


def _risk_sets(rows: FollowUp, eta: np.ndarray) -> _RiskSets:
    """The times of one stratum, whose `eta` are not positive."""
    # A row without weight may lie anywhere.
    risk = rows.weight * np.exp(np.minimum(eta, 0.0))
    times, place = np.unique(rows.time[rows.ends], return_inverse=True)
    count = np.bincount(place, minlength=len(times))
    weight = np.bincount(place, rows.weight[rows.ends], minlength=len(times))
    at_risk = _sum_from(rows.time, risk, times)
    if np.isfinite(rows.entry).any():
        at_risk -= _sum_from(rows.entry, risk, times)
    leaving = np.bincount(place, risk[rows.ends], minlength=len(times))
    # Sums are rounded, but those who leave are there.
    return _RiskSets(
        times, count, weight / count, np.maximum(at_risk, leaving), leaving
    )


def _sum_from(at: np.ndarray, values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Sum of the values at or after each time; small late sums keep their digits."""
    order = np.argsort(at, kind="stable")
    tail = np.concatenate([np.cumsum(values[order][::-1])[::-1], [0.0]])
    return np.asarray(tail[np.searchsorted(at[order], times, side="left")])


def concordance(rows: FollowUp, risk: np.ndarray) -> float:
    """Harrell's concordance of a risk (n,): 1 is perfect, 1/2 says nothing.

    Of all pairs of one stratum in which one row has the event while the other is at
    risk and outlives it, the share in which the first has the larger risk; a tie counts
    half. Rows censored at the time of an event outlive it. NaN without such a pair.
    """
    level = np.unique(risk, return_inverse=True)[1]
    right, pairs = 0.0, 0.0
    for own, part in _parts(rows):
        first = np.flatnonzero(part.ends)
        # Rows that leave after the event, or then without it, less those yet to come.
        later = 2.0 * np.unique(
            np.concatenate([part.time, part.entry]), return_inverse=True
        )[1].astype(float)
        leave, enter = later[: len(own)], later[len(own) :]
        leave = leave + ~part.ends
        found = _pairs(leave, leave[first] + 1, level[own], part.weight, first)
        late = _pairs(enter, leave[first], level[own], part.weight, first)
        right += float((found - late)[0] @ part.weight[first])
        pairs += float((found - late)[1] @ part.weight[first])
    return right / pairs if pairs > 0 else float("nan")


def _pairs(
    key: np.ndarray,
    least: np.ndarray,
    level: np.ndarray,
    weight: np.ndarray,
    first: np.ndarray,
) -> np.ndarray:
    """Weight of rows with `key >= least`: below the level of `first`, and in all.

    Rows on the same level count half below. Shape (2, number of first).
    """
    order = np.argsort(-key, kind="stable")
    n_before = np.searchsorted(-key[order], -least, side="right")
    total = np.concatenate([[0.0], np.cumsum(weight[order])])[n_before]
    ranked, weight = level[order], weight[order]
    below = _weight_below(ranked, weight, n_before, level[first])
    through = _weight_below(ranked, weight, n_before, level[first] + 1)
    return np.stack([(below + through) / 2, total])


def _weight_below(
    level: np.ndarray, weight: np.ndarray, n_before: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """Of the first `n_before` rows, the weight of those below each limit.

    A wavelet matrix: rows are parted by the bits of their levels, the highest first,
    and every question follows the bits of its limit. n log n in all.
    """
    begin, end = np.zeros_like(n_before), n_before.copy()
    out = np.zeros(len(n_before))
    n_bits = max(int(level.max(initial=0)), int(limit.max(initial=0))).bit_length()
    for bit in reversed(range(n_bits)):
        one = (level >> bit & 1).astype(bool)
        zeros = np.concatenate([[0], np.cumsum(~one)])
        sums = np.concatenate([[0.0], np.cumsum(np.where(one, 0.0, weight))])
        up = (limit >> bit & 1).astype(bool)
        out += np.where(up, sums[end] - sums[begin], 0.0)
        begin = np.where(up, zeros[-1] + begin - zeros[begin], zeros[begin])
        end = np.where(up, zeros[-1] + end - zeros[end], zeros[end])
        order = np.argsort(one, kind="stable")
        level, weight = level[order], weight[order]
    return out


def settle(
    step: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    tol: float = 1e-9,
    max_steps: int = 200,
) -> np.ndarray:
    """Fixed point of a step on offsets (n,), by Anderson's acceleration.

    Plain steps always improve the likelihood, but slowly where strata or late entries
    explain what features explain. The last few of them tell where they lead. Where the
    likelihood has no highest point they lead nowhere, and it ends.
    """
    at, memory, patience = start, 5, 10
    ends: list[np.ndarray] = []
    moves: list[np.ndarray] = []
    best, stale = np.inf, 0
    for _ in range(max_steps):
        end = step(at)
        move = end - at
        size = float(np.abs(move).max())
        stale = 0 if size < 0.9 * best else stale + 1
        if size < tol or stale > patience:
            return end
        if size > 2 * best:  # acceleration went astray: begin again
            ends, moves = [], []
        best = min(best, size)
        ends, moves = [*ends[-memory:], end], [*moves[-memory:], move]
        at = end
        if len(moves) > 1:
            change = np.diff(np.stack(moves), axis=0).T
            share = np.linalg.lstsq(change, move, rcond=1e-10)[0]
            at = end - np.diff(np.stack(ends), axis=0).T @ share
    return at


def kaplan_meier(rows: FollowUp) -> Baseline:
    """Share without the event, in `hazard` as `-log`; one curve for all rows."""
    sets = _risk_sets(rows, np.zeros(len(rows)))  # which does not look at strata
    with np.errstate(divide="ignore"):
        steps = -np.log1p(-np.minimum(sets.leaving / sets.at_risk, 1.0))
    return Baseline((None,), (sets.times,), (np.cumsum(steps),))
