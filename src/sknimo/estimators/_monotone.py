"""Features whose effect must rise, or fall, everywhere.

Such a feature acts along one straight line beside the network, which neither bends its
coefficient nor sees its values. The derivative of the linear predictor in it then is
its coefficient, whatever the row, so that a sign of the coefficient is a sign of the
effect everywhere, exactly. Where the rows want the other sign the feature is left out:
zero is where the coefficient ends that may not change its sign.
"""

import warnings
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np

from sknimo.exceptions import DataWarning
from sknimo.features import Clipped, FeatureMap, Linear, OrMissing
from sknimo.model import FittedModel
from sknimo.training import StreamedSet, TrainingSet

Rows = TypeVar("Rows", TrainingSet, StreamedSet)


@dataclass(frozen=True, slots=True)
class Monotone:
    """Signs of some features by position, and which of them are left out."""

    signs: Mapping[int, int]
    left_out: Collection[int] = ()

    def restrain(self, features: FeatureMap) -> FeatureMap:
        """Lines beside the network, nothing for those that are left out."""
        bases, inputs = list(features.bases), list(features.input_bases)
        for j in self.signs:
            bases[j] = _as_line(bases[j], None if j not in self.left_out else 0.0)
            inputs[j] = Linear(bases[j].reference, 0.0)
        return replace(features, bases=tuple(bases), input_bases=tuple(inputs))

    def worst(self, model: FittedModel) -> int | None:
        """The feature whose effect has the wrong sign and is largest, if any."""
        coef, owner = model.term_coef, model.features.term_feature
        wrong = {
            j: -sign * coef[np.flatnonzero(owner == j)[0]]
            for j, sign in self.signs.items()
            if (owner == j).any()
        }
        found = max(wrong, key=lambda j: wrong[j], default=None)
        return found if found is not None and wrong[found] > 0 else None


class Restrained:
    """What `monotone` asks of the fits of an estimator."""

    # Signs of features; classes without this parameter have none.
    monotone: Any = None
    basis: Any
    checkpoint: Any
    model_: FittedModel
    _n_classes: int
    _left_out: frozenset[int] = frozenset()

    @abstractmethod
    def _fit(self, *given: Any) -> Self:
        """Validate, solve and write the fitted attributes."""

    def _unbent(self, features: FeatureMap) -> np.ndarray:
        """Features that no network bends, (p,)."""
        out = np.zeros(features.n_features, dtype=bool)
        out[list(self._monotone(features).signs)] = True
        return out

    def _monotone(self, features: FeatureMap) -> Monotone:
        """Features with a sign, and those that this fit is to do without."""
        return read_monotone(self.monotone, features, self.basis, self._left_out)

    def _restrain(self, data: Rows) -> Rows:
        """The rows with monotone features beside the network."""
        if self.checkpoint is not None:
            raise ValueError(
                "monotone may take more than one fit, and a checkpoint belongs to one. "
                "Leave out checkpoint."
            )
        if self._n_classes > 2:
            raise ValueError(
                f"monotone has one sign per feature, but y holds {self._n_classes} "
                "classes, whose probabilities cannot all rise. Give two classes, or "
                "leave out monotone."
            )
        restrain = self._monotone(data.features).restrain
        if isinstance(data, TrainingSet):
            data = replace(data, curves=data.curves and restrain(data.curves))
        return replace(data, features=restrain(data.features))

    def _fit_signs(self, *given: Any) -> Self:
        """Fit, with the signs that `monotone` asks for if there are any."""
        fit = self._fit if self.monotone is None else self._fit_monotone
        return fit(*given)

    def _fit_monotone(self, *given: Any) -> Self:
        """Fit; where `monotone` is violated, again without the feature in question."""
        self._left_out = frozenset()
        worst: int | None = -1
        while worst is not None:
            self._fit(*given)
            worst = self._monotone(self.model_.features).worst(self.model_)
            self._left_out |= set() if worst is None else {worst}
        names, self._left_out = self._left_out, frozenset()
        if names:
            told = ", ".join(repr(self.model_.features.names[j]) for j in sorted(names))
            warnings.warn(
                f"The rows want the other sign than monotone for {told}: left out, "
                "with a coefficient of zero. Check the sign, or the column.",
                DataWarning,
                stacklevel=3,
            )
        return self


def _as_line(basis: Any, scale: float | None) -> Any:
    """The line of a basis, around the same point; of another scale if there is one.

    Ends of a curve are not those of its line.
    """
    if isinstance(basis, Clipped) and not isinstance(basis.basis, Linear):
        return _as_line(basis.basis, scale)
    if isinstance(basis, OrMissing | Clipped):
        return replace(basis, basis=_as_line(basis.basis, scale))
    if isinstance(basis, Linear) and scale is None:
        return basis
    return Linear(basis.reference, basis.scale if scale is None else scale)


def read_monotone(
    given: Any, features: FeatureMap, basis: Any, left_out: Collection[int]
) -> Monotone:
    """Signs by name or position; what cannot be monotone is refused."""
    if not isinstance(given, Mapping):
        raise ValueError(
            "monotone must be a dict of features and signs, such as {'dose': 1}, or "
            f"None; got {given!r}."
        )
    signs = {}
    for key, sign in given.items():
        j = _find(key, features.names)
        if isinstance(sign, bool) or sign not in (-1, 1):
            raise ValueError(
                f"monotone[{key!r}] must be 1 for a feature that raises predictions, "
                f"or -1 for one that lowers them; got {sign!r}."
            )
        if features.levels(j) is not None:
            raise ValueError(
                f"Feature {features.names[j]!r} holds categories, which have no order "
                "to be monotone in. Leave it out of monotone, or make it a number."
            )
        _refuse_curve(key, j, features.names[j], basis)
        signs[j] = int(sign)
    return Monotone(signs, left_out)


def _find(key: Any, names: tuple[str, ...]) -> int:
    """Position of a feature."""
    if isinstance(key, str) and key in names:
        return names.index(key)
    if isinstance(key, Integral) and 0 <= int(key) < len(names):
        return int(key)
    shown = ", ".join(map(repr, names[:10])) + ", ..." * (len(names) > 10)
    raise ValueError(
        f"monotone names the feature {key!r}, which is none. The features are {shown}."
    )


def _refuse_curve(key: Any, j: int, name: str, basis: Any) -> None:
    """Refuse a curve that was asked for by hand: only lines have one sign."""
    asked = basis
    if isinstance(basis, Mapping):
        asked = basis.get(name, basis.get(j, "linear"))
    if isinstance(asked, str) and asked not in ("linear", "auto"):
        raise ValueError(
            f"monotone[{key!r}] asks for one sign everywhere, which a line has and a "
            f"curve of basis={asked!r} need not have. Give this feature "
            "basis='linear', or leave it out of monotone."
        )
