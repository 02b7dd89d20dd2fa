"""The dial after the fit: every position is a model of the class."""

import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance, r2_score

import sknimo
import sknimo.search._bags as bagged
from sknimo import NIMOClassifierCV, NIMORegressorCV, NIMOSurvivalCV, datasets

SUM_ATOL = 1e-9  # the same sums in another order
BAGS = {
    "batch_size": 32,
    "max_iter": 30,
    "hidden": (4, 4),
    "n_members": 2,
    "cv": 2,
    "random_state": 0,
}
CLASSES = {"n_members": 2, "hidden": (4, 4), "max_iter": 20, "random_state": 0}


def fit_classes():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    eta = np.column_stack([3 * X[:, 0] * X[:, 1], X[:, 2], np.zeros(150)])
    labels = (eta + rng.gumbel(size=eta.shape)).argmax(1)
    return NIMOClassifierCV(**CLASSES).fit(X, labels), X


@pytest.fixture(scope="module", params=["evidence", "bags", "classes"])
def turned(request, draw_bent, searched):
    """A search that bends, and rows."""
    if request.param == "evidence":
        est, X = searched, draw_bent()[0]
    elif request.param == "bags":
        X, y = draw_bent(n_rows=240)
        est = NIMORegressorCV(**BAGS).fit(X, y)
    else:
        est, X = fit_classes()
    assert est.bend_ > 0
    return est, X


def eta_of(est, X):
    return est.model_.eta(np.asarray(X))


def test_models_between_two_positions_are_their_weighted_mean(turned):
    est, X = turned
    low, high, between = (est.set_bend(w) for w in (0.0, 1.0, 0.3))
    assert np.ptp(eta_of(high, X) - eta_of(low, X)) > 0.1
    mean = 0.7 * eta_of(low, X) + 0.3 * eta_of(high, X)
    assert eta_of(between, X) == pytest.approx(mean, abs=SUM_ATOL)
    mean = 0.7 * low.coef_ + 0.3 * high.coef_
    assert between.coef_ == pytest.approx(mean, abs=SUM_ATOL)
    assert (low.bend_, high.bend_, between.bend_) == (0.0, 1.0, 0.3)


def test_the_position_of_the_fit_is_the_fit_also_after_a_detour(turned):
    est, X = turned
    before = eta_of(est, X)
    for same in (est.set_bend(est.bend_), est.set_bend(0.2).set_bend(est.bend_)):
        assert eta_of(same, X) == pytest.approx(before, abs=SUM_ATOL)
        assert same.coef_ == pytest.approx(est.coef_, abs=SUM_ATOL)
        assert same.held_out_score_ == pytest.approx(est.held_out_score_, abs=0.01)
    assert np.array_equal(eta_of(est, X), before)


def test_files_keep_the_dial(turned, tmp_path):
    est, X = turned
    est.save(tmp_path / "model.sknimo")
    again = sknimo.load(tmp_path / "model.sknimo").set_bend(0.4)
    assert np.array_equal(eta_of(again, X), eta_of(est.set_bend(0.4), X))
    again.save(tmp_path / "turned.sknimo")
    loaded = sknimo.load(tmp_path / "turned.sknimo")
    assert np.array_equal(eta_of(loaded, X), eta_of(again, X))
    assert loaded.bend_ == 0.4


@pytest.mark.filterwarnings("ignore:max_time")
def test_without_bends_it_is_the_nested_model(searched, make_glm, draw_bent):
    X, y = draw_bent()
    additive = searched.set_bend(0.0)
    glm = make_glm(alphas=(0.1, 0.01)).fit(X, y)
    assert eta_of(additive, X) == pytest.approx(eta_of(glm, X), abs=1e-6)
    assert additive.n_members_ == 0


def test_without_bends_it_is_the_additive_model_of_bags(draw_bent, monkeypatch):
    X, y = draw_bent(n_rows=240)
    additive = NIMORegressorCV(**BAGS).fit(X, y).set_bend(0.0)
    monkeypatch.setattr(bagged, "turn_dial", lambda *args: 0.0)
    alone = NIMORegressorCV(**BAGS).fit(X, y)
    assert alone.bend_ == 0
    assert eta_of(additive, X) == pytest.approx(eta_of(alone, X), abs=SUM_ATOL)
    told, found = (" ".join(str(e.summary()).split()) for e in (additive, alone))
    assert "has been set aside (set_bend)" in told
    assert "set aside" not in found and "were searched for" in found


def test_rows_follow_the_dial(searched, draw_bent):
    X, y = draw_bent()
    est = searched.set_bend(0.5, X, y)
    assert est.held_out_score_ == pytest.approx(r2_score(y, est.oob_prediction_))
    straight = searched.set_bend(0.0)
    expected = searched.oob_prediction_ + straight.oob_prediction_
    assert est.oob_prediction_ == pytest.approx(expected / 2)
    explained = est.explain(X)
    total = explained.base_value + explained.values.sum(axis=1)
    assert total == pytest.approx(est.predict(X), abs=SUM_ATOL)
    assert "0.50" in str(est.summary())
    wide, narrow = (e.predict_interval(X).to_frame() for e in (est, searched))
    assert (wide.upper - wide.lower).mean() > (narrow.upper - narrow.lower).mean()


class TestRefusals:
    """What cannot be turned says why."""

    @pytest.mark.parametrize("bend", [-0.1, 1.5, np.nan])
    def test_no_share(self, searched, bend):
        with pytest.raises(ValueError, match="bend"):
            searched.set_bend(bend)

    @pytest.mark.filterwarnings("ignore:max_time")
    def test_nothing_to_bend_with(self, make_glm, draw_bent):
        est = make_glm().fit(*draw_bent())
        assert est.set_bend(0).bend_ == 0
        with pytest.raises(ValueError, match="nothing can bend"):
            est.set_bend(0.5)

    def test_errors_of_another_share(self, searched):
        assert np.isnan(searched.set_bend(0.5).cov_).all()

    @pytest.mark.slow
    def test_a_baseline_hazard(self):
        data = datasets.make_nimo_survival(n_samples=80, random_state=0)
        est = NIMOSurvivalCV(n_starts=1, cv=2, max_iter=5, random_state=0)
        with pytest.raises(ValueError, match="baseline hazard"):
            est.fit(data.X, data.y).set_bend(0.5)


@pytest.mark.slow
def test_held_out_rows_of_counts_are_scored_by_deviance():
    rng = np.random.default_rng(0)
    X, years = rng.normal(size=(400, 2)), rng.uniform(0.5, 2, 400)
    mean = years * np.exp(0.6 * X[:, 0] * (1 + X[:, 1]))
    y = rng.poisson(mean).astype(float)
    search = NIMORegressorCV(family="poisson", n_starts=1, random_state=0)
    est = search.fit(X, y, offset=np.log(years))
    rate = years * y.sum() / years.sum()
    left, null = (mean_poisson_deviance(y, at) for at in (est.oob_prediction_, rate))
    assert est.held_out_score_ == pytest.approx(1 - left / null, rel=1e-6)
    page = str(est.summary())
    assert "of the deviance" in page and "of the variance" not in page
    # What bends save of the error that is left, said by both figures.
    saved = 1 - (1 - est.held_out_score_) / (1 - est.glm_held_out_score_)
    assert est.held_out_gain_ == pytest.approx(saved, abs=0.02)
