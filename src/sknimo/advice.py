"""What to do about targets and families that cannot be fitted."""

# What is asked for and cannot be had: what it would need, and what to take instead.
_QUANTILE = (
    "has no curvature to take Newton steps by, and predicts a quantile: it would need "
    "a smoothed corner, a scale for it, and a model that is not one of means. Fit the "
    "mean, and take quantiles of what it leaves in rows that were held out."
)
REFUSED = {
    "inverse_gaussian": (
        "On the log link its cost bends downwards where the mean is beyond twice the "
        "target: fits would have several optima, and none could be certified. Take "
        "family='gamma', which has the same targets."
    ),
    "huber": (
        "Huber's loss turns straight at a distance in units of the residuals' scale: "
        "it would need that scale learned with the coefficients, and a target measured "
        "in it. Take family='gaussian' with less sample_weight for rows not to be "
        "trusted."
    ),
    "pinball": f"The pinball loss {_QUANTILE}",
    "quantile": f"The loss of quantiles {_QUANTILE}",
}


def advise_on_sign(y: float) -> str:
    """About targets that no family of this kind takes."""
    return "Check the column: nothing counted or paid is negative." if y < 0 else ""


def advise_on_counts(y: float) -> str:
    """About targets that are no whole counts."""
    return advise_on_sign(y) or (
        "Parts of a count have no probability: give whole counts, with the logarithm "
        "of their exposure as offset, or take family='tweedie' for amounts."
    )


def advise_on_zeros(y: float) -> str:
    """About targets that are not strictly positive."""
    return advise_on_sign(y) or (
        "Take family='tweedie', which has zeros among its amounts, or drop such rows."
    )
