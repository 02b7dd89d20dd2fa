"""Features whose effect must rise, or fall, everywhere.

Such a feature acts along one straight line beside the network, which neither bends its
coefficient nor sees its values. The derivative of the linear predictor in it then is
its coefficient, whatever the row, so that a sign of the coefficient is a sign of the
effect everywhere, exactly. Where the rows want the other sign the feature is left out:
zero is where the coefficient ends that may not change its sign.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from numbers import Integral, Real
from typing import Any, TypeVar

from sknimo.exceptions import DataWarning
from sknimo.features import Clipped, FeatureMap, Linear, OrMissing, spread_option
from sknimo.model import FittedModel
from sknimo.training import StreamedSet, TrainingSet

Rows = TypeVar("Rows", TrainingSet, StreamedSet)


class Restrained:
    """What `monotone` asks of the fits of an estimator."""

    monotone: Any
    basis: Any
    checkpoint: Any
    model_: FittedModel
    _n_classes: int
    _left_out: frozenset[int] = frozenset()

    def _signs(self, features: FeatureMap) -> dict[int, int]:
        """Signs of features by their position."""
        return read_signs(self.monotone, features, self.basis)

    def _restrain(self, data: Rows) -> Rows:
        """The rows with monotone features, if any, beside the network."""
        if self.monotone is None:
            return data
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
        signs = self._signs(data.features), self._left_out
        if isinstance(data, TrainingSet):
            read = data.read_curves
            curves = None if read is None else cache(lambda: restrain(read(), *signs))
            data = replace(data, read_curves=curves)
        return replace(data, features=restrain(data.features, *signs))

    def _attempts(self) -> Iterator[None]:
        """One fit; where it violates `monotone`, others without the feature.

        Fits are made by who iterates, so that warnings point at the caller.
        """
        yield
        if self.monotone is None:
            return
        features = self.model_.features
        signs = self._signs(features)
        while (worst := find_worst(self.model_, signs)) is not None:
            self._left_out |= {worst}
            yield
        places, self._left_out = self._left_out, frozenset()
        if places:
            told = ", ".join(repr(features.names[j]) for j in sorted(places))
            warnings.warn(
                f"The rows want the other sign than monotone for {told}: left out, "
                "with a coefficient of zero. Check the sign, or the column.",
                DataWarning,
                stacklevel=3,
            )


def restrain(
    features: FeatureMap, places: Iterable[int], left_out: Collection[int]
) -> FeatureMap:
    """Lines beside the network, nothing for those that are left out."""
    bases, inputs = list(features.bases), list(features.input_bases)
    for j in places:
        bases[j] = _as_line(bases[j], 0.0 if j in left_out else None)
        inputs[j] = Linear(bases[j].reference, 0.0)
    return replace(features, bases=tuple(bases), input_bases=tuple(inputs))


def find_worst(model: FittedModel, signs: Mapping[int, int]) -> int | None:
    """The feature whose effect has the wrong sign and is largest, if any."""
    coef, owner = model.term_coef, model.features.term_feature
    # The line is the first term; columns without variation have none.
    wrong = {j: -s * coef[owner == j][0] for j, s in signs.items() if j in owner}
    found = max(wrong, key=lambda j: wrong[j], default=None)
    return found if found is not None and wrong[found] > 0 else None


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


def read_signs(given: Any, features: FeatureMap, basis: Any) -> dict[int, int]:
    """Signs by name or position; what cannot be monotone is refused."""
    if not isinstance(given, Mapping):
        raise ValueError(
            "monotone must be a dict of features and signs, such as {'dose': 1}, or "
            f"None; got {given!r}."
        )
    kinds = spread_option("basis", basis, features.names, "linear")
    signs: dict[int, int] = {}
    for key, sign in given.items():
        j = _find(key, features.names)
        number = isinstance(sign, Real) and not isinstance(sign, bool)
        if not number or sign not in (-1, 1):
            raise ValueError(
                f"monotone[{key!r}] must be 1 for a feature that raises predictions, "
                f"or -1 for one that lowers them; got {sign!r}."
            )
        if features.levels(j) is not None:
            raise ValueError(
                f"Feature {features.names[j]!r} holds categories, which have no order "
                "to be monotone in. Leave it out of monotone, or make it a number."
            )
        if isinstance(kinds[j], str) and kinds[j] not in ("linear", "auto"):
            raise ValueError(
                f"monotone[{key!r}] asks for one sign everywhere, which a line has and "
                f"a curve of basis={kinds[j]!r} need not have. Give this feature "
                "basis='linear', or leave it out of monotone."
            )
        if signs.setdefault(j, int(sign)) != sign:
            raise ValueError(
                f"monotone asks both signs of the feature {features.names[j]!r}, by "
                "name and by position. Leave one out."
            )
    return signs


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
