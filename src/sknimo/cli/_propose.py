"""Which family the values of a target suggest, and why."""

import numpy as np

# Counts come near to zero; whole numbers that do not may be any quantity.
FEW_COUNTS = 5
# Counts with a variance beyond so many means are hardly Poisson's, even where features
# explain half of it.
MANY_MEANS = 2.0
# Amounts of which at least this share is exactly zero are not all of one kind.
SOME_ZEROS = 0.02
# A mean beyond so many medians is that of a few large amounts.
MANY_MEDIANS = 1.5


def find_family(y: np.ndarray) -> str:
    """The family that is taken for a target if nobody says otherwise."""
    if y.dtype.kind != "f" or len(np.unique(y[~np.isnan(y)])) == 2:
        return "binomial"
    return "gaussian"


def propose_family(y: np.ndarray, name: str) -> str | None:
    """What may fit a numeric target better than least squares, in a sentence."""
    known = y[np.isfinite(y)]
    if not len(known) or known.min() < 0 or known.max() == 0:
        return None
    mean, variance = float(known.mean()), float(known.var())
    zeros = float((known == 0).mean())
    if bool((known == np.round(known)).all()):
        if known.min() > FEW_COUNTS:
            return None
        if variance > MANY_MEANS * mean:
            why = f"its variance, {variance:.3g}, is far above its mean, {mean:.3g}"
            return _propose(name, "counts", "negative_binomial", why)
        why = f"its variance, {variance:.3g}, is near its mean, {mean:.3g}"
        return _propose(name, "counts", "poisson", why)
    if zeros >= SOME_ZEROS:
        why = f"{zeros:.0%} of its amounts are exactly zero and none is negative"
        return _propose(name, "amounts", "tweedie", why)
    if zeros == 0 and mean > MANY_MEDIANS * float(np.median(known)):
        why = f"none is negative or zero and their mean, {mean:.3g}, is far above the "
        why += f"median, {float(np.median(known)):.3g}"
        return _propose(name, "amounts", "gamma", why)
    return None


def _propose(name: str, what: str, family: str, why: str) -> str:
    return f"column {name!r} holds {what}? --family {family} fits them: {why}."
