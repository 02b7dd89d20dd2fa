"""More than two classes: one softmax, coefficients per class, explanations of one.

Shapes: n rows, C classes.
"""

import json
from html import unescape

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import sknimo.search._classes as classes
import sknimo.solver._cycle as cycle
from sknimo import NIMOClassifier, NIMOClassifierCV, load

N_ROWS = 150
LABELS = np.array(["ash", "elm", "oak"])
ORACLE_ATOL = 1e-5  # two solvers, each to its own tolerance
SUM_ATOL = 1e-9  # the same sums in another order
SLOPE_ATOL = 1e-6  # central differences
TRUTH_ATOL = 0.3  # three standard errors of a coefficient, 1000 rows


def draw(n_rows=N_ROWS, seed=0, bend=0.0):
    """Features (n, 4), of which the last does nothing, and numbers of classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)) * [1, 2, 1, 1]
    coef = np.array([[1.0, 0, -1], [0.5, -0.5, 0], [0, 1, -1], [0, 0, 0]])
    eta = X @ coef + bend * (X[:, :1] * X[:, 2:3]) * [1.0, -1.0, 0.0]
    return X, (eta + rng.gumbel(size=eta.shape)).argmax(1)


@pytest.fixture(scope="module")
def rows():
    X, y = draw()
    return X, LABELS[y]


@pytest.fixture(scope="module")
def found(rows):
    """A short search that keeps bends: what is checked holds for any model."""
    X, y = draw(300, seed=1, bend=3.0)
    est = NIMOClassifierCV(n_members=2, hidden=(8, 8), max_iter=60, random_state=0)
    est.fit(X, LABELS[y])
    assert est.bend_ > 0
    return est


def glm(**options):
    return NIMOClassifier(**{"max_iter": 0} | options)


def test_ridge_without_a_network_is_multinomial_logistic_regression(rows):
    X, y = rows
    alpha = 0.02
    est = glm(penalty="ridge", alpha=alpha, scale_contributions=False).fit(X, y)
    scale = X.std(0)
    other = LogisticRegression(C=1 / (N_ROWS * alpha), tol=1e-10, max_iter=10_000)
    other.fit((X - X.mean(0)) / scale, y)
    np.testing.assert_allclose(est.coef_ * scale, other.coef_, atol=ORACLE_ATOL)
    chances = other.predict_proba((X - X.mean(0)) / scale)
    np.testing.assert_allclose(est.predict_proba(X), chances, atol=ORACLE_ATOL)
    assert est.converged_


def test_without_penalty_a_baseline_gives_mnlogit(rows):
    X, y = rows
    est = glm(alpha=0.0).fit(X, y)
    codes = np.searchsorted(LABELS, y)
    other = sm.MNLogit(codes, sm.add_constant(X)).fit(disp=0, tol=1e-10)
    for c in (1, 2):
        one = est.for_class(LABELS[c], baseline=LABELS[0])
        expected = np.asarray(other.params)[:, c - 1]
        np.testing.assert_allclose(one.coef_, expected[1:], atol=ORACLE_ATOL)
        at_zero = one.intercept_at_zero_
        np.testing.assert_allclose(at_zero, expected[0], atol=ORACLE_ATOL)


def test_balanced_classes_are_rows_weighed_by_their_class(rows):
    X, y = rows
    weight = np.random.default_rng(0).integers(1, 4, N_ROWS)
    options = {"penalty": "ridge", "alpha": 0.0, "class_weight": "balanced"}
    est = glm(**options).fit(X, y, sample_weight=weight)
    # Classes weigh the same; scikit-learn balances their counts of rows instead.
    total = np.array([weight[y == label].sum() for label in LABELS])
    each = weight / total[np.searchsorted(LABELS, y)]
    plain = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    plain.fit(X, y, sample_weight=each * N_ROWS)
    np.testing.assert_allclose(
        est.predict_proba(X), plain.predict_proba(X), atol=ORACLE_ATOL
    )


@pytest.mark.parametrize(
    ("max_iter", "words"),
    [(0, "classes were still moving one another"), (8, "iteration limit was reached")],
)
def test_classes_that_still_move_are_certified_where_they_are(
    max_iter, words, rows, monkeypatch
):
    for turns in ("GLM_TURNS", "LAST_TURNS"):
        monkeypatch.setattr(cycle, turns, 1)
    X, y = rows
    est = NIMOClassifier(max_iter=max_iter, hidden=(4, 4), random_state=0)
    with pytest.warns(ConvergenceWarning, match=words):
        est.fit(X, y)
    # Intercepts are free; what the residual is relative to is below one.
    slope = (est.predict_proba(X) - (y[:, None] == LABELS)).mean(0)
    assert est.certificate_.kkt > np.abs(slope).max() > 1e-3
    assert not est.converged_


def test_shapes_are_those_of_scikit_learn(found):
    X, _ = draw(seed=1)
    assert found.coef_.shape == (3, 4)
    assert found.intercept_.shape == (3,)
    assert found.decision_function(X).shape == (N_ROWS, 3)
    chances = found.predict_proba(X)
    np.testing.assert_allclose(chances.sum(1), 1, atol=SUM_ATOL)
    assert (found.predict(X) == LABELS[chances.argmax(1)]).all()
    assert found.oob_prediction_.shape == (300, 3)


def test_coefficients_are_slopes_of_the_decision_at_the_reference(found):
    np.testing.assert_allclose(found.coef_.sum(0), 0, atol=SUM_ATOL)
    step = 1e-4
    for j in range(4):
        both = np.stack([found.reference_, found.reference_])
        both[:, j] += [step, -step]
        up, down = found.decision_function(both)
        slope = (up - down) / (2 * step)
        np.testing.assert_allclose(found.coef_[:, j], slope, atol=SLOPE_ATOL)


@pytest.mark.parametrize("baseline", [None, "ash"])
def test_contributions_of_a_class_sum_to_its_decision(found, baseline):
    X, _ = draw(seed=1)
    decision = found.decision_function(X)
    one = found.for_class("oak", baseline)
    expected = decision[:, 2] - (0 if baseline is None else decision[:, 0])
    for method in ("native", "min_energy"):
        told = one.explain(X, method=method)
        total = told.base_value + told.values.sum(1)
        np.testing.assert_allclose(total, expected, atol=SUM_ATOL)
    np.testing.assert_array_equal(one.predict_proba(X), found.predict_proba(X))


def test_a_class_has_a_summary_and_is_judged_by_its_probability(found):
    X, y = draw(seed=1, bend=2.0)
    one = found.for_class("elm", X=X[:60], y=LABELS[y[:60]])
    page = " ".join(str(one.summary()).split())
    assert "x0" in page and "D2, training rows:" in page
    assert "R2 is of the variance of all classes." in page
    chance = found.predict_proba(X)[:, 1]
    assert one.roc(X, LABELS[y]).auc == pytest.approx(_auc(y == 1, chance))


@pytest.mark.parametrize("baseline", [None, "ash"])
def test_what_a_class_says_of_the_response_is_of_its_probability(found, baseline):
    est, (X, _), number = found, draw(seed=1), 1
    one = est.for_class("elm", baseline=baseline)

    def chance(rows):
        return est.predict_proba(rows)[:, number]

    step = np.eye(X.shape[1])[0] * 1e-6
    slope = (chance(X + step) - chance(X - step)) / 2e-6
    told = one.explain(X)
    np.testing.assert_allclose(told.mean, chance(X), rtol=1e-12)
    np.testing.assert_allclose(told[3:5].mean, chance(X)[3:5], rtol=1e-12)
    near = np.abs(told.response_effect[:, 0] - slope) < 1e-6
    assert near.mean() > 0.95  # all but rows at an edge of a curve
    assert one.effects(X).response_effect[0] == pytest.approx(slope.mean(), abs=1e-3)
    lines = one.dependence(X, 0, n_grid=5)
    moved = X.copy()
    moved[:, 0] = lines.grid[0]
    assert lines.mean[0] == pytest.approx(chance(moved).mean(), rel=1e-12)
    assert lines.response == "probability"


@pytest.mark.slow
def test_a_class_is_explained_beside_its_frequency(found):
    est, label, (X, y) = found, "elm", draw(300, seed=1, bend=3.0)
    y = LABELS[y]
    one = est.for_class(label, X=X, y=y)
    truth = y == label
    null = 2 * len(y) * log_loss(truth, np.full(len(y), truth.mean()))
    left = 2 * len(y) * log_loss(truth, est.predict_proba(X)[:, 1])
    price = one.price_of_nonlinearity(X, y)
    assert price.null_deviance == pytest.approx(null, rel=1e-9)
    assert f"{1 - left / null:.4f}" in str(one.summary())
    report = est.report(None, X, y, class_=label)
    assert "worse than a constant" not in report.html


def _auc(truth, chance):
    pairs = chance[truth][:, None] - chance[~truth]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def test_explanations_ask_for_a_class(found):
    X, _ = draw(seed=1)
    with pytest.raises(ValueError, match=r"Choose it first: for_class\('oak'\)"):
        found.explain(X)
    with pytest.raises(ValueError, match="one of the classes"):
        found.for_class("fir")
    with pytest.raises(ValueError, match="to_sql is for two classes"):
        found.to_sql()


def test_an_onnx_graph_predicts_as_the_model_does(found, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, _ = draw(20, seed=5)
    found.to_onnx(tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx")
    names = ["eta", "probabilities", "label"]
    assert [out.name for out in session.get_outputs()] == names
    eta, chances, label = session.run(names, {"X": X})
    np.testing.assert_allclose(eta, found.decision_function(X), atol=1e-9)
    np.testing.assert_allclose(chances, found.predict_proba(X), atol=1e-9)
    assert label.tolist() == found.predict(X).tolist()
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == found.classes_.tolist()


def test_a_file_predicts_as_the_model_does(found, tmp_path):
    X, _ = draw(seed=1)
    found.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo")
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))
    np.testing.assert_array_equal(again.coef_, found.coef_)
    assert again.classes_.tolist() == LABELS.tolist()
    told = again.for_class("oak").explain(X[:5])
    expected = again.decision_function(X[:5])[:, 2]
    np.testing.assert_allclose(told.base_value + told.values.sum(1), expected)
    far = found.extrapolation_score(3 * X)
    np.testing.assert_array_equal(again.extrapolation_score(3 * X), far)
    straight = found.set_bend(0.0)
    straight.save(tmp_path / "model.sknimo")
    again = load(tmp_path / "model.sknimo")
    np.testing.assert_array_equal(again.predict_proba(X), straight.predict_proba(X))


@pytest.mark.parametrize("labels", [[3.0, 1.0, 2.0], [10, -2, 4]])
def test_labels_of_any_type_come_back(rows, labels):
    X, y = rows
    given = np.array(labels)
    est = glm(alpha=0.1).fit(X, given[np.searchsorted(LABELS, y)])
    assert est.classes_.tolist() == sorted(labels)
    assert est.predict(X).dtype == given.dtype


def test_a_fit_to_two_classes_forgets_the_third(rows):
    X, y = rows
    est = glm(alpha=0.1).fit(X, y)
    two = est.fit(X[y != "oak"], y[y != "oak"])
    assert two.coef_.shape == (4,)
    assert two.predict_proba(X).shape == (N_ROWS, 2)
    with pytest.raises(ValueError, match="has two classes"):
        two.for_class("ash")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_networks_of_all_classes_lower_the_objective_together(rows):
    X, y = draw(seed=2, bend=2.0)
    est = NIMOClassifier(max_iter=40, random_state=0).fit(X, LABELS[y])
    assert est.certificate_.objective < est.certificate_.glm_objective
    line = glm().fit(X, LABELS[y])
    chances = [one.predict_proba(X) for one in (est, line)]
    assert log_loss(y, chances[0]) < log_loss(y, chances[1])


@pytest.mark.slow
def test_the_feature_that_does_nothing_leaves_all_classes():
    """And no other leaves any, in 9 of 10 seeds; the search finds the bends."""
    right = 0
    for seed in range(10):
        X, y = draw(1000, seed, bend=1.0)
        est = NIMOClassifierCV(rule="1se", n_members=2, max_iter=40, random_state=0)
        est.fit(X, y)
        used = (est.coef_ != 0).any(0)
        right += used.tolist() == [True, True, True, False] and est.bend_ > 0
    assert right >= 9


@pytest.mark.slow
def test_coefficients_of_straight_classes_are_found():
    truth = np.array([[1.0, 0, -1], [0.5, -0.5, 0], [0, 1, -1], [0, 0, 0]]).T
    for seed in range(5):
        X, y = draw(1000, seed)
        est = NIMOClassifierCV(n_members=2, max_iter=20, random_state=0).fit(X, y)
        assert abs(est.coef_ - truth).max() < TRUTH_ATOL


@pytest.mark.slow
def test_curves_are_chosen_for_each_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    eta = np.column_stack([2 * X[:, 0] ** 2, 2 + X[:, 1], 2 - X[:, 1]])
    y = (eta + rng.gumbel(size=eta.shape)).argmax(1)
    est = glm(basis="auto", alpha=0.001).fit(X, y)
    kinds = [type(basis).__name__ for basis in est.model_.features.bases]
    assert kinds[0] != "Linear"
    assert kinds[1] == "Linear"


@pytest.mark.slow
def test_effects_at_the_reference_are_not_drawn_to_zero_by_strong_bends():
    """A steep bend, which rough networks level off about the reference: 0.4 to 0.8."""
    errors = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (1000, 4))
        steep = X[:, 0] * (1 + np.tanh(2 * X[:, 1]))
        eta = np.outer(steep, [1, 0, -1]) + np.outer(X[:, 2], [0, 1, -1])
        y = (eta + rng.gumbel(size=eta.shape)).argmax(1)
        est = NIMOClassifierCV(random_state=0).fit(X, y)
        slope = 1 + np.tanh(2 * est.reference_[1])
        errors.append(est.coef_[:, 0] - slope * np.array([1, 0, -1]))
    assert abs(np.mean(errors, axis=0)).max() < TRUTH_ATOL / 2


@pytest.mark.slow
def test_what_merely_ends_late_is_not_cut(rows, monkeypatch):
    """All members are trained when the clock passes the deadline."""
    now, judge = [0.0], classes.judge

    def dawdle(*args):
        now[0] = 100.0
        return judge(*args)

    monkeypatch.setattr(classes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(classes, "judge", dawdle)
    est = NIMOClassifierCV(n_members=2, max_iter=4, max_time=50, random_state=0)
    assert est.fit(*rows).converged_
    assert now[0] > 50


def test_another_share_of_bends_stays_with_its_class(found):
    one = found.for_class("elm", "ash")
    less = one.set_bend(found.bend_ / 2)
    expected = found.set_bend(found.bend_ / 2).for_class("elm", "ash")
    np.testing.assert_allclose(less.coef_, expected.coef_, rtol=1e-12)
    X, _ = draw(seed=1)
    np.testing.assert_allclose(less.explain(X).values, expected.explain(X).values)


def test_a_page_judges_a_class_by_rows_that_fits_have_not_seen():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    eta = np.c_[np.zeros(150), 2 * X[:, 0], 2 * X[:, 1]]
    y = LABELS[(eta + rng.gumbel(size=eta.shape)).argmax(1)]
    X, y = np.r_[X[:140], X[:10]], np.r_[y[:140], y[:10]]  # copies are fitted as one
    est = NIMOClassifierCV(max_iter=5, random_state=0).fit(X, y)
    chance = np.clip(est.oob_prediction_[:, 1], 1e-12, 1 - 1e-12)
    truth = (y == LABELS[1]).astype(float)
    loss = [log_loss(truth, each) for each in (chance, np.full(150, truth.mean()))]
    html = est.report(None, X, y, class_=LABELS[1]).html
    assert "rows that were left out of the fit in turn" in html
    share = f"{100 * (1 - loss[0] / loss[1]):.1f}"
    assert share in html
    assert f"class_={str(LABELS[1])!r}" in unescape(
        html
    )  # the code says whose page it is
    # Other rows, or the same in another order, are not taken for them.
    other = est.report(None, X[::-1], y[::-1], class_=LABELS[1]).html
    assert "On the 150 rows given" in other
