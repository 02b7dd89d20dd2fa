"""The searching estimators as users meet them; `_search.py` does the work."""

from __future__ import annotations

from typing import Any

from sknimo.estimators._docs import document
from sknimo.estimators._search import EvidenceSearch
from sknimo.estimators._tasks import ClassificationTask, RegressionTask

_SHARED = {
    "basis": """basis : {"auto", "linear", "poly2", "spline"} or dict, default="auto"
        How numeric features enter: as a line, a parabola, a natural cubic spline, or
        whichever of the three the evidence prefers. A dictionary chooses by name or
        position; features that it does not name are lines. Where there are curves, a
        second search does without them, and the two are averaged if held-out rows have
        nothing against it.""",
    "reference": """reference : {"auto", "mean", "median", "mode"} or dict, \
default="auto"
        The point that coefficients refer to. "auto" is the mean; where the rows are
        explained much better around another point it is that point, at most three
        standard errors of the mean away. Columns of two values and categories stand at
        their most frequent value, unless a dictionary says otherwise.""",
    "parameters": """alphas : array of float, optional
        Penalties of the nested GLM's lasso path; by default from the smallest one that
        empties the model down to a thousandth of it.
    cv : int, splitter or iterable, default=5
        Folds that choose on this path, and that judge the network at the end. Rows
        that come in blocks need a whole number.
    rule : {"min", "1se", "stability"}, default="min"
        "1se" takes the strongest penalty of the path that is as good as the best within
        one standard error; "stability" keeps only features and inputs that four in five
        of the successful restarts keep. A search on batches has no restarts to ask.
    n_starts : int, default=8
        Restarts in each of the two stages, selection and relaxed refit.
    n_members : int, default=10
        Largest number of restarts to average; 1 keeps the best alone.
    relax : bool, default=True
        Whether to restart within the selected supports.
    hidden : tuple of two int, optional
        Units of the network's two layers; (16, 16) by default, (32, 32) with batches.
    position_code : {"binary", "none"}, default="binary"
        How the shared network is told which feature it modulates.
    max_iter : int, default=100
        Gauss-Newton steps of one restart; passes over the rows with batches.
    batch_size : int or "auto", default="auto"
        Whether to train on batches of that many rows and choose by held-out rows: 0
        never does, "auto" does on tables for which Gauss-Newton steps take too long.
    max_time : float, optional
        Seconds after which no further step of the search begins; the best so far is
        kept.
    n_jobs : int, optional
        Processes (joblib); the answer does not depend on it.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where to fit; "auto" takes a GPU when there is one. Predictions and explanations
        are made on the CPU unless this is "cuda".
    memory_budget : float or "auto", default="auto"
        Bytes that each process may take beside the table. Rows are cut into blocks.
        "auto" is 1e9, or half of what is free on a GPU. Of
        rows that come in blocks it covers all that the fit holds.
    checkpoint : str or path, optional
        Folder that keeps every finished task of the search. A fit that was interrupted
        resumes there when it is run again, with the same result to the last bit; a
        folder of another fit is refused. What `max_time` cut short is not kept: its
        clock starts anew with every run. The folder stays until you remove it.
    verbose : bool, default=False
        Show a progress bar when the output is a terminal.
    random_state : int, RandomState instance or None, default=None
        Governs folds and restarts.
    <feature parameters>""",
    "attributes": """<feature attributes>
    model_ : FittedModel
        What predictions are made from.
    n_members_ : int
        Averaged restarts; 0 when the GLM was kept.
    log_evidence_ : float
        Log evidence of the best restart; NaN after a search on batches.
    glm_log_evidence_ : float
        Log evidence of the linear fit.
    alpha_ : float
        Penalty chosen for the nested GLM, or for the members of a search on batches.
    network_alpha_ : float
        Median learned precision of the first-layer weights, over the inputs that the
        best member reads, or the group shrinkage chosen by a search on batches;
        infinite when the GLM was kept.
    verdict_ : Verdict or None
        Held-out losses of the network and of the nested GLM on the folds, the gain of
        the network and its standard error. None when there was no network to judge, or
        no time.
    path_ : GlmPath
        Its lasso path, held-out loss and chosen point.
    cv_results_ : dict of list
        One entry per restart: stage, evidence, features and inputs kept.
    best_index_ : int
        Position of the best restart there, -1 when there is none.
    n_iter_ : int
        Gauss-Newton steps of all restarts.
    converged_ : bool
        False when time ran out or the classes are separated.
    n_features_in_ : int
        Number of columns seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, when `X` had any.""",
}


@document(_SHARED)
class NIMORegressorCV(RegressionTask, EvidenceSearch):
    """Regression that finds its own sparsity, smoothness and size.

    The same model as `NIMORegressor`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested GLM is returned.

    Parameters
    ----------
    family : {"gaussian", "poisson", "gamma"}, default="gaussian"
        Distribution of the target.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Effect of each feature at the reference, per unit of its column, on the scale
        of the linear predictor. Zeros are exact.
    intercept_ : float
        Linear predictor at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMORegressorCV
    >>> from sknimo.datasets import make_nimo_regression
    >>> data = make_nimo_regression(setting=1, n_samples=200, random_state=0)
    >>> est = NIMORegressorCV(n_starts=2, random_state=0).fit(data.X, data.y)
    >>> est.coef_.nonzero()[0].tolist()
    [0, 1, 2]
    """

    def __init__(
        self,
        family: str = "gaussian",
        *,
        alphas: Any = None,
        cv: Any = 5,
        rule: str = "min",
        n_starts: int = 8,
        n_members: int = 10,
        relax: bool = True,
        hidden: tuple[int, int] | None = None,
        position_code: str = "binary",
        max_iter: int = 100,
        batch_size: Any = "auto",
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        memory_budget: Any = "auto",
        checkpoint: Any = None,
        verbose: bool = False,
        random_state: Any = None,
        basis: Any = "auto",
        categorical: Any = None,
        reference: Any = "auto",
        missing: str = "error",
        handle_unknown: str = "error",
        input_scaling: str = "standard",
        clip_inputs: bool = False,
    ) -> None:
        super().__init__(
            alphas=alphas,
            cv=cv,
            rule=rule,
            n_starts=n_starts,
            n_members=n_members,
            relax=relax,
            hidden=hidden,
            position_code=position_code,
            max_iter=max_iter,
            batch_size=batch_size,
            max_time=max_time,
            n_jobs=n_jobs,
            device=device,
            memory_budget=memory_budget,
            checkpoint=checkpoint,
            verbose=verbose,
            random_state=random_state,
            basis=basis,
            categorical=categorical,
            reference=reference,
            missing=missing,
            handle_unknown=handle_unknown,
            input_scaling=input_scaling,
            clip_inputs=clip_inputs,
        )
        self.family = family


@document(_SHARED)
class NIMOClassifierCV(ClassificationTask, EvidenceSearch):
    """Binary classification that finds its own sparsity, smoothness and size.

    The same model as `NIMOClassifier`; penalties are learned from the data, supports
    are selected, the network is refitted within them and the best restarts are
    averaged. When the network does not earn its keep, the nested logistic regression
    is returned.

    Parameters
    ----------
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels; the model predicts the log-odds of the second.
    coef_ : ndarray of shape (n_features,)
        Effect of each feature on the log-odds at the reference, per unit of its column.
    intercept_ : float
        Log-odds at the reference.
    <attributes>

    Examples
    --------
    >>> from sknimo import NIMOClassifierCV
    >>> from sknimo.datasets import make_nimo_classification
    >>> data = make_nimo_classification(setting=1, n_samples=200, random_state=0)
    >>> est = NIMOClassifierCV(n_starts=3, random_state=0).fit(data.X, data.y)
    >>> est.predict_proba(data.X).shape
    (200, 2)
    """
