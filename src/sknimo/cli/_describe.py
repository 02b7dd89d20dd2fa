"""What a fitted model is, as plain values."""

from __future__ import annotations

from typing import Any


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
        "members": model.n_members,
        "rows_fitted": None if facts is None else facts.n_samples,
        "deviance_explained": None if facts is None else facts.explained,
        "glm_deviance_explained": None if facts is None else facts.glm_explained,
        "converged": getattr(est, "converged_", None),
        "base_value": model.base_value,
        "coefficients": dict(zip(est.coef_names_, est.coef_.tolist(), strict=True)),
        "features": described,
    }
