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
