"""How well contributions and local coefficients of single rows are known.

With `d` the terms of a row, bent as the model bends them, a contribution is `d . beta`
over the terms of its feature. Its variance follows from the covariance of these terms
and from how far members lie apart at the row, which says how well the bends are known
there. Without a network it is that of a GLM. Members may split products of features
differently: where they do, the errors of single features are too large rather than too
small.

Shapes: n rows, p features, q terms, c coefficients, M members.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sknimo.explain import Explanation, local_term_coef
from sknimo.inference._means import bend_factor, between, term_variance
from sknimo.inference._uncertainty import Uncertainty
from sknimo.model import FittedModel

# Contributions that are terms times coefficients; others follow the whole function.
METHODS = ("min_energy", "native")


def with_errors(
    model: FittedModel, known: Uncertainty, found: Explanation
) -> Explanation:
    """An explanation with the standard errors of what it shows, where there are any."""
    if known.nonrobust is None or found.method not in METHODS:
        return found
    features, table = model.features, found.data
    known = known.grouped(features.coef_feature)
    assert known.nonrobust is not None
    factor = bend_factor(model, table)
    value = term_variance(features, known, table, factor)
    variance = np.maximum(np.diag(np.nan_to_num(known.nonrobust))[1:], 0.0)
    owner, first = np.unique(features.coef_feature, return_index=True)
    slope = np.zeros_like(factor)
    slope[:, owner] = variance[first] * factor[:, owner] ** 2
    columns = features.terms(table)

    def look(member: FittedModel) -> np.ndarray:
        own = local_term_coef(member, table)
        parts = features.per_feature(columns * own)
        return np.stack([parts, np.nan_to_num(features.feature_coef(own))])

    value, slope = np.stack([value, slope]) + between(model, known, look)
    # Of several levels the coefficient is that of the row's own: all that it adds.
    several = np.isnan(features.feature_coef(model.term_coef))
    slope = np.where(several, value, slope)
    return replace(
        found,
        std_err=np.sqrt(np.maximum(value, 0.0)),
        coef_std_err=np.sqrt(np.maximum(slope, 0.0)),
    )
