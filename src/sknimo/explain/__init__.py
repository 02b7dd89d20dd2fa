"""Explain a fitted model: effects, contributions, interactions, summary.

Everything here is a function of a `FittedModel` and a numeric table, and returns a
frozen record; estimators offer the same as methods. What a number
means, and which numbers belong to the fitted function alone, is said in
`docs/explanations.md`.

>>> from sknimo import NIMORegressor, datasets
>>> data = datasets.make_nimo_regression(n_samples=100, random_state=0)
>>> X, y = data.X, data.y
>>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(X, y)
>>> model = est.model_

>>> swap = fit_gauge(model, X)
>>> bool(abs(explain(model, X, swap=swap).eta - est.predict(X)).max() < 1e-10)
True
>>> explain(model, X[:3], method="shapley").note
'exact Shapley values, 32 coalitions'
>>> shapley(model, X[:3], max_exact=2, n_permutations=8).note
'sampled Shapley values, 8 permutations in antithetic pairs'

>>> found = effects(model, X, swap=swap)
>>> found.coef.round(0)
array([ 3., -2.,  2.,  0.,  0.])
>>> round(float(found.variance_share.sum()), 6)
1.0
>>> strength = interactions(model, X, swap=swap).strength
>>> bool((strength == strength.T).all())
True
>>> line = effect_curve(model, "x0", n_grid=5)
>>> bool(abs(line.slope - est.coef_[0]).max() < 1e-12)
True
>>> pair_surface(model, "x0", "x1", n_grid=7).surface.shape
(7, 7)
>>> bool(abs(reference_sensitivity(model, X).effects[:, 0] - est.coef_).max() < 1e-9)
True

>>> price = price_of_nonlinearity(model, X, y)
>>> price.glm_deviance > price.refit_deviance, price.names[price.price.argmax()]
(True, 'x0')
>>> page = str(summarise(model, describe_training(model, X, y), title="A fit"))
>>> max(len(line) for line in page.splitlines()) <= 80
True
"""

from sknimo.explain._attribution import integrated_gradients, shapley
from sknimo.explain._comparisons import (
    FEW_VALUES,
    POSSIBLE,
    RARE,
    Comparisons,
    Move,
    Support,
    compare,
    compared_rows,
    measure_support,
    moves_of,
    restore_comparisons,
)
from sknimo.explain._effects import Effects, class_response, effects, mean_response
from sknimo.explain._explanation import Explanation, Method, check_method, explain
from sknimo.explain._frames import Origin, Shown, clean, find_origin, make_frame
from sknimo.explain._gauge import fit_gauge
from sknimo.explain._interactions import Interactions, interactions
from sknimo.explain._kept import (
    NOT_HELD_OUT,
    HeldOutScores,
    describe_gain,
    describe_kept,
    describe_reference,
    describe_stop,
    describe_trial,
    has_curves,
    is_bent,
    n_networks,
    plain_name,
)
from sknimo.explain._kinds import eta_at, feature_kinds, usual_scale
from sknimo.explain._levels import LevelEffects, restore_levels
from sknimo.explain._local import (
    MAX_ROWS,
    check_weight,
    fill_offset,
    find_roles,
    local_coefficients,
    local_term_coef,
    local_values,
    mean_of,
    mean_slope,
    split_members,
    spread_rows,
    sum_by_owner,
    weighted_quantiles,
)
from sknimo.explain._nested import best_constant, streamed_losses
from sknimo.explain._plain import plain_by_folds, plain_model
from sknimo.explain._price import (
    Price,
    TrainingFacts,
    describe_sample,
    describe_training,
    price_of_nonlinearity,
    rank_modifiers,
    ranking_rows,
)
from sknimo.explain._reach import (
    Reach,
    measure_reach,
    measure_shape,
    restore_reach,
    widest_class,
)
from sknimo.explain._sensitivity import (
    FirstLayer,
    ReferenceSensitivity,
    first_layer,
    reference_sensitivity,
)
from sknimo.explain._summarise import CertificateLike, summarise, summary_rows
from sknimo.explain._summary import KnownErrors, Summary, SummaryOrder, SummaryRow
from sknimo.explain._surfaces import (
    CorrectionCurve,
    EffectCurve,
    PairSurface,
    correction_curve,
    effect_curve,
    pair_surface,
)
