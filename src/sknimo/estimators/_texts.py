"""Docstrings that several estimators share."""

from collections.abc import Callable, Mapping
from typing import TypeVar

SEARCHING = {
    "basis": """basis : {"auto", "linear", "poly2", "spline", "ramps"} or dict, \
default="auto"
        How numeric features enter: as a line, a parabola, a natural cubic spline, a
        curve of straight pieces, or whichever of the first three the evidence prefers
        (on large tables straight pieces, which end as lines where the rows want lines).
        A dictionary chooses by name or position; features that it does not name are
        lines. Where there are curves, a second search does without them, and the two
        are averaged if held-out rows have nothing against it. Bags beside them have
        curves for every feature, of straight pieces unless another kind was chosen.""",
    "reference": """reference : {"auto", "mean", "median", "mode"} or dict, \
default="auto"
        The point that coefficients refer to. "auto" is the mean, but in columns whose
        mean lies where hardly any row is (a gap, a combination that does not occur)
        the place where rows lie closest together; and where the rows are explained much
        better around another point it is that point, at most three standard errors
        away. Large tables keep the mean. Columns of two values and categories stand at
        their most frequent value, unless a dictionary says otherwise.""",
    "parameters": """alphas : array of float, optional
        Penalties of the nested GLM's lasso path; by default from the smallest one that
        empties the model down to a thousandth of it.
    cv : int, splitter or iterable, default=5
        Folds that choose on this path, and that judge the network at the end. Every bag
        leaves one of them out; for bags a whole number is raised to `n_members`. Rows
        that come in blocks need a whole number.
    rule : {"min", "1se", "stability"}, default="min"
        "1se" takes the strongest penalty of the path that is as good as the best within
        one standard error; "stability" keeps only features and inputs that four in five
        of the successful restarts keep. Both search without bags on small tables. On
        large tables "stability" has no restarts to ask, and "1se" is the fewest
        features as good as the best number of them, within one standard error, in what
        the first members predict of rows held out; `trials_` has the loss of every
        number that was tried.
    n_starts : int, default=8
        Restarts in each of the two stages, selection and relaxed refit.
    n_members : int, default=10
        Largest number of restarts to average; 1 keeps the best alone. Also the number
        of bags, all rows but those of one fold, with a member each.
    relax : bool, default=True
        Whether to restart within the selected supports.
    hidden : tuple of two int, optional
        Units of the network's two layers; by default (8, 8), (16, 16) for classes, on
        large tables and for rows in blocks (64, 64).
    position_code : {"binary", "none"}, default="binary"
        How the shared network is told which feature it modulates.
    max_iter : int, default=100
        Gauss-Newton steps of one restart; with batches the most passes over the rows,
        fewer where rows are very many.
    batch_size : int or "auto", default="auto"
        Whether to train on batches of that many rows and choose by held-out rows: 0
        never does. "auto" does nothing else on tables for which Gauss-Newton steps take
        too long; on others it does both, and averages them as held-out rows prefer.
    max_time : float, optional
        Seconds after which no further step of the search begins; the best so far is
        kept.
    n_jobs : int, optional
        Processes. None is this one, on Linux with another beside it where torch has
        two threads or more. They are forks on Linux, which begin at once, and joblib's
        elsewhere or where a backend was chosen. The answer does not depend on it.
    <device>
    memory_budget : float or "auto", default="auto"
        Bytes that each process may take beside the table. Rows are cut into blocks.
        "auto" is 1e9, or half of what is free on a GPU. Of rows that come in blocks
        it covers all that the fit holds: half of it a sample of up to 50,000 rows,
        which bags are made of.
    checkpoint : str or path, optional
        Folder that keeps every finished task of the search. A fit that was interrupted
        resumes there when it is run again, with the same result to the last bit; a
        folder of another fit is refused. What `max_time` cut short is not kept: its
        clock starts anew with every run. The folder stays until you remove it.
    <verbose>
    random_state : int, RandomState instance or None, default=None
        Governs folds and restarts.
    <feature parameters>""",
    "attributes": """<feature attributes>
    n_members_ : int
        Averaged networks; 0 when a model without any was kept.
    log_evidence_ : float
        Log evidence of the best restart; NaN after a search on batches of rows.
    glm_log_evidence_ : float
        Log evidence of the linear fit.
    alpha_ : float
        Penalty chosen for the nested GLM; NaN on large tables and for rows in blocks,
        whose precisions are learned.
    input_precision_ : float
        Median learned precision of the first-layer weights, over the inputs that the
        best member reads; NaN after a search on batches, infinite when the GLM was
        kept.
    verdict_ : Verdict or None
        Held-out losses of the network and of the nested GLM on the folds, the gain of
        the network and its standard error. None when there was no network to judge, or
        no time. On large tables the GLM is the additive model of curves.
    bend_ : float
        The share of members with a network: 0 is an additive model alone, 1 none of it.
    oob_prediction_ : ndarray of shape (n_samples,) or None
        A prediction of every row (the probability of the second class) by members that
        have not seen it, rows as given; NaN for rows of no weight and for those that no
        fold holds out. None for rows in blocks, or where time ran out.
    held_out_score_ : float
        R2 on rows held out, of probabilities for classes, share of the deviance for
        other families; NaN where it is not known. Held-out rows have also chosen, so
        that it is a little too good.
    glm_held_out_score_ : float
        The same for the nested GLM.
    held_out_gain_ : float
        Share of the nested GLM's loss on held-out rows that the network saves, or, when
        the GLM was kept, would have saved; NaN where it was not judged.
    held_out_gain_error_ : float
        Its standard error.
    path_ : GlmPath or None
        Its lasso path, held-out loss and chosen point; None on large tables.
    trials_ : dict of list
        One entry per model that was trained: stage, seed, evidence or held-out loss,
        features kept. Ready for a data frame.
    best_index_ : int
        Position of the best one there, -1 when there is none.
    n_iter_ : int
        Gauss-Newton steps of all restarts.
    converged_ : bool
        False when time ran out or the classes are separated.
    status_ : str
        Why the search did not converge, and what was kept; empty when it did.
    <columns>""",
}


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
        Refuse levels that no training row had, or take them for the baseline. With
        `missing="indicator"` a value that is missing where none was in training then
        stands at the reference.
    input_scaling : {"auto", "standard", "rank_gauss", "ramps"}, default="auto"
        What the network sees of numeric columns: standardised values; normal scores of
        their ranks, which tame heavy tails; or the value and how much of each of up to
        63 pieces of the training range lies below it, which lets it bend anywhere.
        "auto" is "ramps" where a search finds the table large, else "standard".
    clip_inputs : bool or "all", default=False
        Whether the network sees values outside the training range as the nearest value
        within. With "all" the terms do so too: predictions stay as they are at the end
        of the range.
    monotone : dict, optional
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
        The reference, with the code of the baseline for categories.
    model_ : FittedModel
        What predictions are made from.""",
    "columns": """n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, when `X` had any.""",
    "device": """device : {"auto", "cpu", "cuda"}, default="auto"
        Where to fit; "auto" takes a GPU, when there is one, for more than 2,000 rows.
        Predictions and explanations are made on the CPU unless this is "cuda".""",
    "verbose": """verbose : bool or "auto", default="auto"
        Show how far a fit of more than two seconds is, and what is left at most: "auto"
        as a bar in terminals and notebooks, True elsewhere too, as lines with times.\
""",
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
