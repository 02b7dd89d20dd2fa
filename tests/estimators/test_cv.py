"""`cv` means what it means in scikit-learn, and about the user's rows."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)

from sknimo import NIMOClassifierCV

LOSS_RTOL = 1e-5  # held-out losses follow the coefficients
ROUNDING = 1e-12  # float64: only the order of operations differs
N_ROWS = 60

# `make_glm` has no time for restarts and is told so.
pytestmark = pytest.mark.filterwarnings(
    "ignore:max_time=0 s:sklearn.exceptions.ConvergenceWarning"
)


def standardise(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


FOLDS = 3


def expected_loss(X, y, folds, alpha):
    """Half mean squared error of the lasso alone on the folds."""
    Z, t = standardise(X), standardise(y)
    losses = []
    for train, test in folds:
        lasso = Lasso(alpha=alpha, tol=1e-12).fit(Z[train], t[train])
        losses.append((t[test] - lasso.predict(Z[test])) ** 2 / 2)
    return np.concatenate(losses).mean()


@pytest.fixture
def check_folds(make_glm, change_settings):
    """The held-out loss is that of these folds; relaxation would blur it."""

    def check(cv, X, y, folds, **options):
        change_settings(relaxation=(0.0,))
        est = make_glm(cv=cv, alphas=[0.1]).fit(X, y, **options)
        expected = expected_loss(X, y, folds, 0.1)
        assert est.path_.cv_loss == pytest.approx([expected], rel=LOSS_RTOL)

    return check


@pytest.mark.parametrize(
    "cv",
    [
        2,
        np.int64(3),
        KFold(3),
        KFold(3, shuffle=True, random_state=0),
        ShuffleSplit(3, random_state=0),
        RepeatedKFold(n_splits=2, n_repeats=2, random_state=0),
        LeaveOneOut(),
        PredefinedSplit(np.arange(N_ROWS) % 4),
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_whole_numbers_and_splitters_are_taken(cv, data, make_glm):
    est = make_glm(cv=cv).fit(*data)
    assert np.isfinite(est.path_.cv_loss).all()
    assert est.cv is cv


@pytest.mark.parametrize("cv", [2, StratifiedKFold(3)])
def test_classes_can_be_stratified(cv, make_glm, draw_bent):
    X, y = draw_bent("binomial")
    est = make_glm("binomial", cv=cv).fit(X, np.where(y, "yes", "no"))
    assert np.isfinite(est.path_.cv_loss).all()


def test_more_folds_than_rows_leave_one_out(data, make_glm):
    X, y = data[0][:8], data[1][:8]
    est = make_glm(cv=100).fit(X, y)
    assert np.isfinite(est.path_.cv_loss).all()


@pytest.mark.parametrize("n_positive", [1, 2])
def test_a_rare_class_leaves_everything_finite(n_positive, make_glm, draw_bent):
    """Some folds are trained on a single class then."""
    X, _ = draw_bent("binomial", n_rows=20)
    labels = (np.arange(20) < n_positive).astype(int)
    est = make_glm("binomial", cv=5).fit(X, labels)
    assert np.isfinite(est.path_.cv_loss).all()
    assert np.isfinite(est.decision_function(X)).all()


def test_folds_of_whole_numbers_follow_the_seed(data, make_glm):
    X, y = data
    first, again, other = (
        make_glm(random_state=seed).fit(X, y).path_ for seed in (0, 0, 1)
    )
    assert np.array_equal(first.cv_loss, again.cv_loss)
    assert not np.array_equal(first.cv_loss, other.cv_loss)


@pytest.mark.parametrize(
    "kind",
    [
        "list",
        "generator",
        "masks",
    ],
)
def test_given_splits_are_about_the_rows_as_given(kind, data, check_folds):
    X, y = data
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    cv = folds
    if kind == "generator":
        cv = (fold for fold in folds)
    elif kind == "masks":
        inside = np.arange(N_ROWS)
        cv = [(np.isin(inside, a), np.isin(inside, b)) for a, b in folds]
    check_folds(cv, X, y, folds)


def test_groups_stay_together(data, check_folds):
    X, y = data
    folds = list(GroupKFold(FOLDS).split(X, y, np.arange(N_ROWS) // 7))
    check_folds(folds, X, y, folds)


@pytest.mark.parametrize("kind", ["numbers", "words"])
def test_groups_reach_the_splitter(kind, data, check_folds):
    X, y = data
    groups = np.random.default_rng(0).permutation(np.arange(N_ROWS) // 7)
    labels = groups if kind == "numbers" else np.array([f"g{g}" for g in groups])
    splitter = GroupKFold(FOLDS)
    folds = list(splitter.split(X, y, groups))
    check_folds(splitter, X, y, folds, groups=labels)


def test_groups_of_one_row_are_folds_of_rows(data, make_glm):
    X, y = data
    apart = make_glm(cv=3).fit(X, y, groups=np.arange(N_ROWS))
    assert np.isfinite(apart.path_.cv_loss).all()


def test_rows_of_zero_weight_may_have_any_group(data, make_glm):
    X, y = data
    weight = (np.arange(N_ROWS) % 4 > 0).astype(float)
    groups = np.arange(N_ROWS) // 7
    lost = np.where(weight > 0, groups, 999)
    first, second = (make_glm(cv=3).fit(X, y, weight, groups=g) for g in (groups, lost))
    assert np.array_equal(first.path_.cv_loss, second.path_.cv_loss)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(N_ROWS), "single group"),
        (np.arange(5), "one label per row: expected 60, got 5"),
        (np.r_[np.nan, np.arange(N_ROWS - 1.0)], "missing label in row 0"),
        (np.array([*range(N_ROWS - 1), None], dtype=object), "row 59"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, message, data, make_glm):
    with pytest.raises(ValueError, match=message):
        make_glm().fit(*data, groups=groups)


def test_a_group_splitter_without_groups_says_what_it_lacks(data, make_glm):
    with pytest.raises(ValueError, match="groups"):
        make_glm(cv=GroupKFold(3)).fit(*data)


def test_a_splitter_sees_the_rows_as_given(data, check_folds):
    """Blocks of sorted rows would hold out the largest targets."""
    X, y = data
    splitter = KFold(FOLDS)
    check_folds(splitter, X, y, list(splitter.split(X)))


def test_given_splits_may_name_repeated_rows(data, check_folds):
    X, y = np.r_[data[0], data[0]], np.r_[data[1], data[1]]
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    check_folds(folds, X, y, folds)


def test_given_splits_may_name_rows_of_zero_weight(data, make_glm):
    X, y = data
    weight = (np.arange(N_ROWS) % 4 > 0).astype(float)
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(X))
    est = make_glm(cv=folds).fit(X, y, weight)
    kept = np.flatnonzero(weight)
    new_place = np.cumsum(weight).astype(int) - 1
    shorter = [
        tuple(new_place[rows[weight[rows] > 0]] for rows in fold) for fold in folds
    ]
    expected = make_glm(cv=shorter).fit(X[kept], y[kept])
    assert est.path_.cv_loss == pytest.approx(expected.path_.cv_loss, rel=ROUNDING)


def test_repeated_rows_keep_their_own_weights_in_the_folds(data, make_glm):
    """A row of weight 1 in one fold, the same with weight 3 in another."""
    X, y = np.r_[data[0], data[0]], np.r_[data[1], data[1]]
    weight = np.r_[np.ones(N_ROWS), np.full(N_ROWS, 3.0)]
    fold = np.r_[np.arange(N_ROWS) % 3, (np.arange(N_ROWS) + 1) % 3]
    equal = make_glm(cv=PredefinedSplit(fold)).fit(X, y, weight)
    # Repeats instead of weights: the same rows in the same folds.
    counts = weight.astype(int)
    repeated = make_glm(cv=PredefinedSplit(np.repeat(fold, counts)))
    repeated.fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    expected = repeated.path_.cv_loss
    assert equal.path_.cv_loss == pytest.approx(expected, rel=1e-9)


def test_a_fold_that_holds_out_no_weight_does_not_count(data, make_glm):
    X, y = data
    fold = np.arange(N_ROWS) % 4
    weight = (fold > 0).astype(float)
    est = make_glm(cv=PredefinedSplit(fold)).fit(X, y, weight)
    assert np.isfinite(est.path_.cv_loss).all()


@pytest.mark.parametrize("rule", ["min", "1se"])
def test_a_single_validation_split_is_enough(rule, data, make_glm):
    split = ShuffleSplit(1, random_state=0)
    est = make_glm(cv=split, rule=rule).fit(*data)
    assert np.isfinite(est.path_.cv_loss).all()


@pytest.mark.parametrize("cv", [1, 0, -1, True])
def test_fewer_than_two_folds_are_refused(cv, data, make_glm):
    with pytest.raises(ValueError, match="cv"):
        make_glm(cv=cv).fit(*data)


@pytest.mark.parametrize("cv", [2.5, "five"])
def test_what_is_no_splitter_is_refused(cv, data, make_glm):
    with pytest.raises(ValueError, match="cv"):
        make_glm(cv=cv).fit(*data)


def test_a_table_of_flags_alone_is_fitted_as_well_as_by_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (600, 3)).astype(float)
    chance = 1 / (1 + np.exp(-(1.5 * X[:, 0] - X[:, 1])))
    y = (rng.random(600) < chance).astype(int)
    ours = NIMOClassifierCV(n_starts=1, random_state=0).fit(X, y)
    theirs = LogisticRegression(C=1e6).fit(X, y)
    gap = ours.predict_proba(X)[:, 1] - theirs.predict_proba(X)[:, 1]
    assert np.abs(gap).max() < 0.05
