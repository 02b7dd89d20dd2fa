"""Search on batches, for rows in blocks: held-out rows choose, folds are averaged.

The GLM is a floor. Tables in memory that are large go to bags, see `test_bags.py`.
"""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import sknimo
import sknimo.search._batches as batches
from sknimo import NIMOClassifierCV, NIMORegressor, NIMORegressorCV, RowBlocks
from sknimo.datasets import make_nimo_classification, make_nimo_regression

SHORT = {"batch_size": 64, "max_iter": 30, "hidden": (8, 8), "random_state": 0}


def rows(X, y):
    """Rows that come in two blocks."""
    return RowBlocks([(X[:300], y[:300]), (X[300:], y[300:])])


@pytest.fixture(scope="module")
def sample():
    return make_nimo_regression(setting=1, n_samples=500, random_state=0)


@pytest.fixture(scope="module")
def fitted(sample):
    return NIMORegressorCV(**SHORT).fit(rows(sample.X, sample.y))


def test_one_member_per_fold_beats_the_glm_on_rows_it_has_not_seen(fitted):
    new = make_nimo_regression(setting=1, n_samples=1000, random_state=1)
    error = np.mean((fitted.predict(new.X) - new.y) ** 2)
    assert fitted.n_members_ == 5
    assert error < 0.3  # the lasso has 3
    assert (fitted.verdict_.network_loss < fitted.verdict_.glm_loss).all()


def test_the_chosen_penalties_have_the_smallest_loss_of_the_trials(fitted):
    table = fitted.trials_
    trials = [k for k, stage in enumerate(table["stage"]) if stage == "round 2"]
    assert len(trials) == 6
    assert table["stage"].count("round 1") >= 24
    best = min(trials, key=lambda k: table["loss"][k])
    assert fitted.alpha_ == table["alpha"][best]
    assert fitted.network_alpha_ == table["network_alpha"][best]
    assert len({len(column) for column in table.values()}) == 1


def test_losses_of_members_are_those_of_held_out_rows_in_the_table(fitted):
    table = fitted.trials_
    members = [k for k, stage in enumerate(table["stage"]) if stage == "member"]
    losses = [table["loss"][k] for k in members]
    assert losses == fitted.verdict_.network_loss.tolist()
    assert fitted.best_index_ == members[int(np.argmin(losses))]


def test_the_gradient_at_the_reference_is_the_coefficient(fitted):
    step = 1e-4
    for j, coef in enumerate(fitted.coef_):
        rows = np.tile(fitted.reference_, (2, 1))
        rows[:, j] += (-step, step)
        low, high = fitted.predict(rows)
        assert (high - low) / (2 * step) == pytest.approx(coef, abs=1e-3)


def test_the_same_seed_gives_the_same_fit(sample, fitted):
    again = NIMORegressorCV(**SHORT).fit(rows(sample.X, sample.y))
    assert np.array_equal(again.predict(sample.X), fitted.predict(sample.X))


def test_one_member_is_one_member(sample):
    est = NIMORegressorCV(**SHORT, n_members=1).fit(rows(sample.X, sample.y))
    assert est.n_members_ == est.model_.n_members == 1


def test_noise_is_left_to_the_glm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + rng.normal(size=400)
    est = NIMORegressorCV(**SHORT).fit(rows(X, y))
    assert est.n_members_ == 0
    assert math.isinf(est.network_alpha_)
    assert np.allclose(est.predict(X), est.intercept_ + (X - X.mean(0)) @ est.coef_)


@pytest.mark.slow
def test_classes_are_searched_by_batches_too():
    data = make_nimo_classification(setting=1, n_samples=500, random_state=0)
    est = NIMOClassifierCV(**{**SHORT, "max_iter": 200}).fit(rows(data.X, data.y))
    new = make_nimo_classification(setting=1, n_samples=1000, random_state=1)
    assert est.n_members_ == 5
    assert est.score(new.X, new.y) > 0.85  # logistic regression: about .63


def test_without_time_one_trial_is_kept_and_said_so(sample):
    est = NIMORegressorCV(**SHORT, max_time=0)
    with pytest.warns(ConvergenceWarning, match="max_time=0"):
        est.fit(rows(sample.X, sample.y))
    assert est.n_members_ <= 1
    assert not est.converged_


def test_time_that_suffices_changes_nothing(sample, fitted):
    est = NIMORegressorCV(**SHORT, max_time=1e6).fit(rows(sample.X, sample.y))
    assert est.alpha_ == fitted.alpha_
    assert est.network_alpha_ == fitted.network_alpha_
    assert est.converged_
    assert est.trials_["stage"] == fitted.trials_["stage"]
    assert est.trials_["alpha"] == fitted.trials_["alpha"]
    assert np.allclose(est.predict(sample.X), fitted.predict(sample.X), atol=1e-3)


def test_time_for_a_few_candidates_is_spent_on_neighbours(sample, monkeypatch):
    """Every group of candidates costs ten seconds each, of thirty-five."""
    now, train = [0.0], batches._train

    def wait(store, stage, problem, candidates, *others):
        now[0] += 10 * len(candidates)
        return train(store, stage, problem, candidates, *others)

    monkeypatch.setattr(batches, "_train", wait)
    monkeypatch.setattr(batches.time, "monotonic", lambda: now[0])
    with pytest.warns(ConvergenceWarning, match="max_time=35"):
        est = NIMORegressorCV(**SHORT, max_time=35).fit(rows(sample.X, sample.y))
    table = est.trials_
    trials = [k for k, stage in enumerate(table["stage"]) if stage == "round 1"]
    assert len(trials) == 3
    pairs = {(table["alpha"][k], table["network_alpha"][k]) for k in trials}
    shares, rates = zip(*pairs, strict=True)
    assert len(pairs) == 3 and len(set(shares)) <= 2 and len(set(rates)) <= 3


def test_what_merely_ends_late_is_not_cut(sample, monkeypatch):
    """All members are trained when the clock passes the deadline."""
    now, note = [0.0], batches._add_rows

    def dawdle(table, stage, *others):
        now[0] = 100.0 if stage == "member" else 0.0
        return note(table, stage, *others)

    monkeypatch.setattr(batches.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(batches, "_add_rows", dawdle)
    est = NIMORegressorCV(**SHORT, max_time=50).fit(rows(sample.X, sample.y))
    assert now[0] > 50
    assert est.converged_


@pytest.mark.parametrize("stage", ["round-1", "members"])
def test_what_was_cut_short_does_not_replace_what_was_better(
    sample, fitted, monkeypatch, stage
):
    train = batches._train

    def hurry(store, name, problem, candidates, settings, *others):
        if name == stage:
            settings = replace(settings, deadline=time.monotonic())
            monkeypatch.setattr(batches, "_is_late", lambda *_: True)
        return train(store, name, problem, candidates, settings, *others)

    monkeypatch.setattr(batches, "_train", hurry)
    with pytest.warns(ConvergenceWarning, match="was kept"):
        est = NIMORegressorCV(**SHORT).fit(rows(sample.X, sample.y))
    tried = fitted.trials_
    before = "round 1" if stage == "round-1" else "round 2"
    losses = [
        loss
        for loss, name in zip(tried["loss"], tried["stage"], strict=True)
        if name == before
    ]
    assert est.n_members_ <= 1
    assert est.verdict_.network_loss.tolist() == [min(losses)]


def test_a_saved_model_predicts_the_same(fitted, sample, tmp_path):
    fitted.save(tmp_path / "model.sknimo")
    again = sknimo.load(tmp_path / "model.sknimo")
    assert np.array_equal(again.predict(sample.X), fitted.predict(sample.X))


@pytest.mark.parametrize("batch_size", [-1, 2.5, "all", None])
@pytest.mark.parametrize("kind", [NIMORegressor, NIMORegressorCV])
def test_what_is_no_number_of_rows_is_refused(sample, kind, batch_size):
    with pytest.raises((TypeError, ValueError), match="batch_size"):
        kind(batch_size=batch_size).fit(sample.X, sample.y)
