"""Docstrings that several estimators share."""

from collections.abc import Callable, Mapping
from typing import TypeVar

Class = TypeVar("Class", bound=type)


FEATURES = {
    "feature parameters": """<basis>
    categorical : list of str or int, optional
        Columns to take for categories besides text, categorical and enum columns of a
        data frame, which always are. A category is one feature with one coefficient
        per level other than the baseline.
    <reference>
    missing : {"error", "indicator"}, default="error"
        Refuse missing values, or put them at the reference and give "missing" a
        coefficient of its own.
    handle_unknown : {"error", "reference"}, default="error"
        Refuse levels that no training row had, or take them for the baseline.
    input_scaling : {"auto", "standard", "rank_gauss", "ramps"}, default="auto"
        What the network sees of numeric columns: standardised values; normal scores of
        their ranks, which tame heavy tails; or the value and how much of each of up to
        63 pieces of the training range lies below it, which lets it bend anywhere.
        "auto" is "ramps" where a search finds the table large, else "standard".
    clip_inputs : bool or "all", default=False
        Whether the network sees values outside the training range as the nearest value
        within. With "all" the terms do so too: predictions stay as they are at the end
        of the range.""",
    "monotone": """monotone : dict, optional
        Signs of numeric features by name or position, such as `{"dose": 1, "age": -1}`:
        predictions rise, or fall, with such a feature whatever the others are. It acts
        along one straight line that the network neither bends nor sees. Where the rows
        want the other sign its coefficient is zero.""",
    "class weight": """class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of each class: given by label, or such that
        all classes weigh the same. Probabilities are then those of a population with
        these weights. Not for rows in blocks.""",
    "class attributes": """classes_ : ndarray of shape (n_classes,)
        The labels; of two, the model predicts the log-odds of the second.
    coef_ : ndarray of shape (n_features,), or (n_classes, n_features)
        Effect of each feature on the log-odds at the reference, per unit of its column.
        Of more than two classes those of each, which sum to zero: effects on the
        logarithm of its probability over the geometric mean of all. `for_class`
        compares with a baseline instead.
    intercept_ : float, or ndarray of shape (n_classes,)
        Log-odds at the reference.
    intercept_at_zero_ : float, or ndarray of shape (n_classes,)
        Intercept of `X @ coef_ + intercept_at_zero_`, the log-odds of a model of
        straight lines without a network and its tangent at the reference otherwise.""",
    "line attributes": """coef_ : ndarray of shape (n_features,)
        Effect of each feature at the reference, per unit of its column, on the scale
        of the linear predictor. Zeros are exact.
    intercept_ : float
        Linear predictor at the reference.
    intercept_at_zero_ : float
        Intercept of `X @ coef_ + intercept_at_zero_`, the linear predictor of a model
        of straight lines without a network, and otherwise its tangent there.""",
    "feature attributes": """coef_names_ : ndarray of str
        Name of each coefficient: the feature, or `feature[level]`.
    reference_ : ndarray of shape (n_features,)
        The reference, with the code of the baseline for categories.""",
}


def document(shared: Mapping[str, str]) -> Callable[[Class], Class]:
    """Fill shared sections into a class docstring where `<name>` stands.

    A section may itself contain others.
    """
    sections = {**shared, **FEATURES}

    def fill(cls: Class) -> Class:
        text = cls.__doc__ or ""
        while found := [name for name in sections if f"<{name}>" in text]:
            for name in found:
                text = text.replace(f"<{name}>", sections[name])
        cls.__doc__ = text
        return cls

    return fill
