"""How a numeric table becomes terms and network inputs.

Shapes: n rows, p features, q terms, r inputs, c coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sknimo.features._bases import (
    Basis,
    Label,
    Levels,
    Linear,
    OrMissing,
    PooledLevels,
    Ramps,
    innermost,
    move_reference,
    standardise,
    straighten,
    where_known,
)


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """The features of a model."""

    names: tuple[str, ...]
    bases: tuple[Basis, ...]  # one per feature: its terms
    # One per feature: what the network sees of it. By default the terms.
    input_bases: tuple[Basis, ...] = ()
    # Range of each column in training; empty when unknown.
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.input_bases:
            object.__setattr__(self, "input_bases", self.bases)

    @property
    def n_features(self) -> int:
        """Number of features, p."""
        return len(self.bases)

    @property
    def term_feature(self) -> np.ndarray:
        """The feature that owns each term, (q,)."""
        return _owners(self.bases)

    @property
    def input_feature(self) -> np.ndarray:
        """The feature that owns each network input, (r,)."""
        return _owners(self.input_bases)

    @property
    def curved_inputs(self) -> np.ndarray:
        """Network inputs that are curves, not lines, levels or indicators, (r,)."""
        return np.concatenate([basis.group == 1 for basis in self.input_bases])

    @property
    def term_group(self) -> np.ndarray:
        """Terms that share one prior: the parts of each feature, (q,).

        Lines are numbered by feature, then curves, then indicators of missing values.
        """
        parts = [j + self.n_features * b.group for j, b in enumerate(self.bases)]
        return np.concatenate(parts)

    def walks(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Sums of terms that share one prior where curves are walks over their pieces.

        A walk may be any curve, the line among them, so that these are more than there
        are terms. Returns how many of each term are in them, a block for every feature,
        and their groups as in `term_group`.
        """
        return self._sums("walk")

    def even_curves(self) -> list[np.ndarray] | None:
        """As many sums of terms as there are terms, of curves even over their pieces.

        None where no feature has pieces.
        """
        if not any(isinstance(innermost(basis), Ramps) for basis in self.bases):
            return None
        return self._sums("even")[0]

    def _sums(self, what: str) -> tuple[list[np.ndarray], np.ndarray]:
        """Terms, with what rises as ramps say in place of curves."""
        blocks, groups = [], []
        own_groups = self._by_basis(self.term_group)
        for basis, group in zip(self.bases, own_groups, strict=True):
            block, ramps = np.eye(basis.n_terms), innermost(basis)
            rises = getattr(ramps, what, None)
            if isinstance(ramps, Ramps) and rises is not None:
                if rises.ndim == 1:
                    rises = np.diag(rises)
                more = np.zeros((basis.n_terms, rises.shape[1]))
                more[: ramps.n_terms] = ramps.rising(rises)
                kept = basis.group != 1
                block = np.column_stack([block[:, kept], more])
                group = np.r_[group[kept], np.full(rises.shape[1], group[1])]
            blocks.append(block)
            groups.append(group)
        return blocks, np.concatenate(groups)

    def _by_basis(self, per_term: np.ndarray) -> list[np.ndarray]:
        """What belongs to the terms of each basis, from (..., q)."""
        ends = np.cumsum([basis.n_terms for basis in self.bases])
        return np.split(per_term, ends[:-1], axis=-1)

    @property
    def reference(self) -> np.ndarray:
        """Reference point in the units of the table, codes for levels, (p,)."""
        return np.array([basis.reference for basis in self.bases])

    @property
    def scale(self) -> np.ndarray:
        """Spread of each feature in training, zero for a constant one, (p,)."""
        return np.array([basis.scale for basis in self.bases])

    @property
    def coef_feature(self) -> np.ndarray:
        """The feature that owns each coefficient a user reads, (c,)."""
        widths = [len(basis.labels) for basis in self.bases]
        return np.repeat(np.arange(self.n_features), widths)

    @property
    def is_slope(self) -> np.ndarray:
        """Coefficients that are slopes, the first of every number, (c,).

        Labels do not tell: that of a slope is empty, and so may be a level's.
        """
        parts = [
            (np.arange(len(basis.labels)) == 0) & (self.levels(j) is None)
            for j, basis in enumerate(self.bases)
        ]
        return np.concatenate(parts)

    @property
    def coef_names(self) -> tuple[str, ...]:
        """Name of each coefficient: `age`, `sex[woman]`, `age[missing]`; (c,)."""
        labels = [label for basis in self.bases for label in basis.labels]
        each = zip(self.coef_feature, labels, self.is_slope, strict=True)
        return tuple(
            self.names[j] if slope else f"{self.names[j]}[{label}]"
            for j, label, slope in each
        )

    @property
    def stands_for(self) -> tuple[str, ...]:
        """What each coefficient of too few rows counts as, "" for all others; (c,)."""
        return tuple(text for basis in self.bases for text in _stands_for(basis))

    def coefficients(self, per_term: np.ndarray) -> np.ndarray:
        """Coefficients a user reads from those of the terms, (..., q) to (..., c)."""
        each = zip(self._by_basis(per_term), self.bases, strict=True)
        return np.concatenate([own @ b.readout().T for own, b in each], axis=-1)

    def rise(self, coef: np.ndarray) -> float:
        """What slopes (c,) alone add between zero and the reference."""
        slope = self.is_slope
        return float(self.reference[self.coef_feature[slope]] @ coef[slope])

    def feature_coef(self, per_term: np.ndarray) -> np.ndarray:
        """One coefficient per feature, (..., q) to (..., p).

        The slope at the reference, or the contrast of the only other level; NaN for a
        feature of three levels or more, whose coefficients do not fit in one number.
        """
        each, owner = self.coefficients(per_term), self.coef_feature
        out = np.zeros((*per_term.shape[:-1], self.n_features))
        for j, basis in enumerate(self.bases):
            n_labels = len(where_known(basis).labels)
            if n_labels == 1:
                out[..., j] = each[..., np.flatnonzero(owner == j)[0]]
            elif n_labels > 1:
                out[..., j] = np.nan
        return out

    def levels(self, feature: int) -> tuple[Label, ...] | None:
        """Levels of a categorical feature by code, None for a numeric one."""
        basis = where_known(self.bases[feature])
        return basis.values if isinstance(basis, Levels) else None

    @property
    def admits_missing(self) -> np.ndarray:
        """Features whose values may be missing, (p,)."""
        return np.array([isinstance(basis, OrMissing) for basis in self.bases])

    def terms(self, table: np.ndarray) -> np.ndarray:
        """Basis columns, (n, q)."""
        return _columns(self.bases, table)

    def inputs(self, table: np.ndarray) -> np.ndarray:
        """Network inputs, (n, r)."""
        return _columns(self.input_bases, table)

    def term_slopes(self, table: np.ndarray) -> np.ndarray:
        """Derivative of each term in the column of its feature, (n, q)."""
        return _slopes(self.bases, table)

    def input_slopes(self, table: np.ndarray) -> np.ndarray:
        """Derivative of each network input in the column of its feature, (n, r)."""
        return _slopes(self.input_bases, table)

    def embed(self, wide: FeatureMap) -> tuple[np.ndarray, np.ndarray] | None:
        """Terms and inputs of another map of the same columns that are those of this.

        Features are the same there, or have curves beside what they have here; None
        where one has other curves.
        """
        terms = _embed(self.bases, wide.bases)
        inputs = _embed(self.input_bases, wide.input_bases)
        return None if terms is None or inputs is None else (terms, inputs)

    def per_feature(self, per_term: np.ndarray) -> np.ndarray:
        """Sum term columns into their features, (..., q) to (..., p)."""
        total = np.zeros((*per_term.shape[:-1], self.n_features))
        for column, feature in enumerate(self.term_feature):
            total[..., feature] += per_term[..., column]
        return total

    def around(self, reference: np.ndarray) -> FeatureMap:
        """The same features around another point, (p,); only lines can move."""
        bases, input_bases = (
            tuple(
                basis if at == basis.reference else move_reference(basis, float(at))
                for basis, at in zip(each, reference, strict=True)
            )
            for each in (self.bases, self.input_bases)
        )
        return replace(self, bases=bases, input_bases=input_bases)

    def straightened(self) -> FeatureMap:
        """The same features with lines for curves; the network sees what it did."""
        return replace(self, bases=tuple(map(straighten, self.bases)))

    def excess(self, table: np.ndarray) -> np.ndarray:
        """Distance beyond the training range in units of the scale, (n, p).

        Zero for missing values and for constant columns, which the model ignores.
        """
        if not self.low:
            return np.zeros(table.shape)
        low, high = np.array(self.low), np.array(self.high)
        width = np.where(self.scale > 0, self.scale, np.inf)
        with np.errstate(over="ignore"):  # infinitely far beyond a clipped range
            beyond = np.maximum(np.maximum(low - table, table - high), 0.0) / width
        return np.where(np.isnan(table), 0.0, beyond)


def _stands_for(basis: Basis) -> list[str]:
    """The same for the labels of one basis."""
    if isinstance(basis, OrMissing):
        own = "" if basis.indicator_scale else "the reference"
        return [*_stands_for(basis.basis), own]
    out = [""] * len(basis.labels)
    if isinstance(basis, PooledLevels):
        for at, code in enumerate(basis.codes):
            target = basis.acts_as[code]
            if target == basis.baseline:
                out[at] = str(basis.values[target])
            elif basis.acts_as.count(target) > 1:
                out[at] = "one of the rare levels"
    return out


def _owners(bases: Sequence[Basis]) -> np.ndarray:
    return np.repeat(np.arange(len(bases)), [basis.n_terms for basis in bases])


def _columns(bases: Sequence[Basis], table: np.ndarray) -> np.ndarray:
    """Columns of several bases; lines, the most frequent kind, all at once."""
    ends = np.cumsum([basis.n_terms for basis in bases])
    out = np.empty((len(table), ends[-1]))
    lines = [
        (j, basis.reference, basis.scale, basis.residue)
        for j, basis in enumerate(bases)
        if isinstance(basis, Linear) and basis.n_terms
    ]
    if lines:
        index = [j for j, *_ in lines]
        _, reference, scale, residue = np.array(lines).T
        columns = table if len(lines) == table.shape[1] else table[:, index]
        columns = standardise(columns, reference, scale, residue)
        if len(lines) == out.shape[1]:
            return np.ascontiguousarray(columns)
        out[:, ends[index] - 1] = columns
    for j, basis in enumerate(bases):
        if basis.n_terms and not isinstance(basis, Linear):
            out[:, ends[j] - basis.n_terms : ends[j]] = basis.terms(table[:, j])
    return out


def _slopes(bases: Sequence[Basis], table: np.ndarray) -> np.ndarray:
    return np.hstack([basis.slopes(table[:, j]) for j, basis in enumerate(bases)])


def _embed(bases: Sequence[Basis], wide: Sequence[Basis]) -> np.ndarray | None:
    parts = [
        np.full(there.n_terms, True)
        if here.n_terms == there.n_terms
        else there.group != 1
        for here, there in zip(bases, wide, strict=True)
    ]
    if any(part.sum() != here.n_terms for part, here in zip(parts, bases, strict=True)):
        return None
    return np.flatnonzero(np.concatenate(parts))
