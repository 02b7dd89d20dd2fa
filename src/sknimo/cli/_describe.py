"""What a fitted model is, as plain values."""

from collections import Counter
from typing import Any

import numpy as np


def describe_model(est: Any) -> dict[str, Any]:
    """What a model is, as plain values."""
    model, facts = est.model_, est._facts
    features = model.features
    described = []
    for j, name in enumerate(features.names):
        levels, reference = features.levels(j), features.reference[j]
        entry: dict[str, Any] = {
            "name": name,
            "kind": "number" if levels is None else "category",
            "reference": reference if levels is None else levels[int(reference)],
        }
        if levels is not None:
            entry["levels"] = list(levels)
        elif features.low:
            entry["range"] = [features.low[j], features.high[j]]
        entry["may_be_missing"] = bool(features.admits_missing[j])
        described.append(entry)
    return {
        "class": type(est).__name__,
        "family": model.family.spelling,
        "link": model.family.link,
        "classes": getattr(est, "classes_", None),
        "members": count_members(model),
        "rows_fitted": None if facts is None else facts.n_samples,
        "deviance_explained": None if facts is None else facts.explained,
        "glm_deviance_explained": None if facts is None else facts.glm_explained,
        "converged": getattr(est, "converged_", None),
        "base_value": np.asarray(est.intercept_).tolist(),
        "coefficients": name_coefficients(est),
        "features": described,
    }


def count_members(model: Any) -> int:
    """Members that are averaged, of each class."""
    n_classes = getattr(model, "n_classes", 1)
    return int(getattr(model, "stacked", model).n_members) // n_classes


def name_coefficients(est: Any) -> dict[str, Any]:
    """Coefficients by name, for each of several classes."""
    names = tell_apart(est.model_.features)
    if est.coef_.ndim == 1:
        return dict(zip(names, est.coef_.tolist(), strict=True))
    return {
        str(label): dict(zip(names, coef.tolist(), strict=True))
        for label, coef in zip(est.classes_, est.coef_, strict=True)
    }


def tell_apart(features: Any) -> list[str]:
    """Names of coefficients, with that of their column where two are the same.

    A level "x" of "c" and a column "c[x]" are.
    """
    names = features.coef_names
    times = Counter(names)
    owners = [features.names[j] for j in features.coef_feature]
    return [
        name if times[name] == 1 else f"{name} of {owner}"
        for name, owner in zip(names, owners, strict=True)
    ]
