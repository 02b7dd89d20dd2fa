"""How well coefficients are known, or why nothing honest can be said.

Shapes: q terms, q_j of a feature, c coefficients that a user reads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from sknimo.features import FeatureMap

# Terms beyond which there is no covariance.
MAX_TERMS = 4_000
COLLINEAR = "collinear"
# Share of a sum of coefficients along which columns are combinations of each other from
# which on the rows do not tell it.
LOOSE_SHARE = 1e-6

REASONS = {
    "p > n": "There are more coefficients than the rows can tell apart.",
    "separated": "The classes are separated, or almost: the size of coefficients is "
    "arbitrary.",
    "few rows": (
        "Fewer than ten residual degrees of freedom are left to estimate the noise."
    ),
    COLLINEAR: "Some columns are combinations of others.",
    "perfect fit": "The fit leaves no noise to estimate errors from.",
    "too many": f"More than {MAX_TERMS} columns: their covariance was not computed.",
    "several ranks": "Errors were not computed over several processes.",
    "overflow": "Numbers of this size have no squares.",
    "bend set": "Bends were set after the fit, and errors are those of the fit.",
    "not kept": "The model was saved before intervals were kept with it.",
}


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How well the coefficients of a fitted model are known.

    Of several classes arrays hold those of each, one after the other.

    Attributes
    ----------
    reason : str
        Why there are no numbers, a key of `REASONS`; empty where there are.
    centre : ndarray of shape (1 + c,) or None
        Intercept and coefficients that the covariances are about.
    nonrobust, hc3, cluster : ndarray of shape (1 + c, 1 + c) or None
        Covariances of these, by assumption.
    terms : tuple of ndarray
        Covariance of the terms of each feature, (q_j, q_j).
    term_centre : ndarray of shape (q,) or None
        What they are about.
    dispersion : float
    n_effective : float
        Directions that the data determine.
    n_rows : float
    scale : ndarray of shape (M,) or None
        What the coefficients of each member were multiplied with, so that members of
        other weights became equals; None for one.
    together : int
        How many members are one: of a class against others those of each class, which
        stand one class after the other.
    loose : ndarray of shape (c, u) or None
        How coefficients, of any class, can change while no row notices: directions in
        which columns are combinations of others. None where there are none.
    left_out : float
        Mean size of a residual had its row been left out, in units of the family's
        spread; NaN where that is not known, for members of bags, and in files, whose
        scores know it.
    estimated : bool
        Whether the rows told the dispersion; it is known otherwise.
    method : str
        "exact" without a network, "joint" with all its weights, "sketched" with random
        combinations of them, "lines" where no network tells; "... of a part of the
        rows".
    """

    reason: str = ""
    centre: np.ndarray | None = None
    nonrobust: np.ndarray | None = None
    hc3: np.ndarray | None = None
    cluster: np.ndarray | None = None
    terms: tuple[np.ndarray, ...] = ()
    term_centre: np.ndarray | None = None
    dispersion: float = math.nan
    n_effective: float = math.nan
    n_rows: float = math.nan
    scale: np.ndarray | None = None
    together: int = 1
    loose: np.ndarray | None = None
    left_out: float = math.nan
    estimated: bool = True
    method: str = ""

    def grouped(self, owner: np.ndarray) -> Uncertainty:
        """With errors of groups in place of those of rows, where a fit had groups.

        Terms of a feature, of which groups are not known, have those of its
        coefficients, (c,) with their `owner`, about.
        """
        if self.cluster is None or self.nonrobust is None:
            return self
        before, after = (
            np.diag(np.nan_to_num(x))[1:] for x in (self.nonrobust, self.cluster)
        )
        terms = []
        for j, block in enumerate(self.terms):
            own = (owner == j) & (before > 0) & (after > 0)
            times = float(np.mean(after[own] / before[own])) if own.any() else 1.0
            terms.append(times * block)
        return replace(self, nonrobust=self.cluster, terms=tuple(terms))

    def of_class(
        self, n_classes: int, number: int, baseline: int | None, bent: np.ndarray
    ) -> Uncertainty:
        """One class of several against the mean of all, or against another.

        Arrays of several classes are those of one, side by side. Members of the result
        are those of `ClassModels.contrast`; `bent` (M,) of each class are.
        """
        if self.reason or self.centre is None or self.term_centre is None:
            return self
        share = np.full(n_classes, -1.0 / n_classes)
        if baseline is not None:
            share = np.zeros(n_classes)
            share[baseline] = -1.0
        share[number] += 1.0

        def square(values: np.ndarray) -> np.ndarray:
            size = len(values) // n_classes
            four = values.reshape(n_classes, size, n_classes, size)
            return np.asarray(np.einsum("aibj,a,b->ij", four, share, share))

        together = n_classes if baseline is None else 2
        scale = np.ones(len(bent))
        if self.scale is not None:
            scale = self.scale[: len(bent)]
        n_members = 1 + together * int(bent.sum())
        each = np.tile(scale[bent] * (n_members / len(bent)), together)
        assert self.nonrobust is not None
        return replace(
            self,
            centre=share @ self.centre.reshape(n_classes, -1),
            nonrobust=square(self.nonrobust),
            terms=tuple(map(square, self.terms)),
            scale=np.append(each, 0.0),
            together=together,
            term_centre=share @ self.term_centre.reshape(n_classes, -1),
        )

    def is_loose(self, sums: np.ndarray) -> np.ndarray:
        """Which weighted sums (k, c) of coefficients the rows do not tell, (k,)."""
        if self.loose is None:
            return np.zeros(len(sums), dtype=bool)
        size = np.abs(sums) @ np.abs(self.loose)
        return np.asarray((np.abs(sums @ self.loose) > LOOSE_SHARE * size).any(1))

    @property
    def free(self) -> float:
        """Degrees of freedom that are left to estimate the dispersion; inf if known."""
        return self.n_rows - self.n_effective if self.estimated else math.inf


def read_loose(features: FeatureMap, loose: Tensor) -> np.ndarray | None:
    """Directions of terms (q, u) as those of coefficients (c, u), None without any."""
    if not loose.shape[1]:
        return None
    return features.coefficients(loose.mT.cpu().numpy()).T


def by_feature(
    terms: np.ndarray, features: FeatureMap, n_classes: int = 1
) -> tuple[np.ndarray, ...]:
    """What each feature has of a covariance of terms, of all classes."""
    owner = np.tile(features.term_feature, n_classes)
    places = [np.flatnonzero(owner == j) for j in range(features.n_features)]
    return tuple(terms[np.ix_(own, own)] for own in places)
