"""Small tables: evidence and bags side by side, and one model of both.

Searches are watched where both meet, so that each of them is known alone.
"""

import math
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import sknimo
import sknimo.search._blend as blend_module
import sknimo.search._engine as engine_module
from sknimo import NIMOClassifierCV, NIMORegressorCV
from sknimo.estimators._base import BaseNIMO
from sknimo.network import Modulator

SHORT = {
    "n_starts": 1,
    "max_iter": 30,
    "hidden": (4, 4),
    "n_members": 3,
    "cv": 3,
    "missing": "indicator",
    "random_state": 0,
}
IDENTITY = 1e-10  # relative to the spread of predictions: sums in another order
SLOPE_ATOL = 1e-6  # of differences


def draw(n_rows, noise, seed):
    """Bends, a curve, levels and missing values under noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["x", "y", "z"], n_rows)
    eta = X[:, 0] * (1 + np.tanh(2 * X[:, 1])) + np.sin(2 * X[:, 2])
    eta += (frame["kind"] == "y") * (1 + X[:, 0])
    frame.loc[rng.random(n_rows) < 0.1, "c"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "kind"] = None
    return frame, eta + noise * rng.normal(size=n_rows)


@contextmanager
def watch():
    """What is blended: evidence, bags, the weight of bags, and the outcome."""
    seen, blend = [], blend_module._blend
    with pytest.MonkeyPatch.context() as patch:

        def record(found, other, beside, w, weight):
            seen.append((found, other, w, blend(found, other, beside, w, weight)))
            return seen[-1][-1]

        patch.setattr(blend_module, "_blend", record)
        yield seen


def eta_of(outcome):
    """Mean linear predictor of the members for the training rows, (n,)."""
    problem, members = outcome.problem, outcome.members
    modulator = Modulator.build(problem.spec, torch.device("cpu"), torch.float64)
    every = torch.arange(problem.spec.n_features).expand(len(members.coef), -1)
    bend = modulator(members.params, problem.inputs, every)
    bend = bend * members.modulated.unsqueeze(1)
    design = problem.terms * (1 + bend[..., problem.term_feature])
    eta = (design @ members.coef.unsqueeze(-1)).squeeze(-1)
    return (eta + members.intercept.unsqueeze(1)).mean(0).numpy()


CASES = {
    "numbers": (NIMORegressorCV, (200, 1.0, 0), {}, {}),
    "classes": (NIMOClassifierCV, (200, 0.3, 3), {}, {}),
    "no code": (NIMORegressorCV, (200, 1.0, 0), {"position_code": "none"}, {}),
    "few bent": (NIMORegressorCV, (200, 1.0, 0), {}, {"max_modulated": 2}),
}


QUICK = "classes"


@pytest.fixture(
    scope="module",
    params=[
        name if name == QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in CASES
    ],
)
def blended(request):
    """An estimator, its rows, and what was blended."""
    cls, rows, options, numbers = CASES[request.param]
    X, y = draw(*rows)
    y = y.to_numpy() if cls is NIMORegressorCV else (y > 0.5).to_numpy()
    with watch() as seen, pytest.MonkeyPatch.context() as patch:
        settings = replace(BaseNIMO._settings, **numbers)
        patch.setattr(BaseNIMO, "_settings", settings)
        est = cls(**SHORT | options).fit(X, y)
    assert len(seen) == 1, "nothing was blended: choose another table"
    return est, X, y, seen[0]


class TestModel:
    """A blend is a model of the class: every identity holds."""

    def test_its_linear_predictor_is_the_weighted_mean_of_both(self, blended):
        """To the rows in the order of the fit, and back in units of the target."""
        est, X, y, (found, other, w, blend) = blended
        assert 0 < w < 1
        expected = (1 - w) * eta_of(found) + w * eta_of(other)
        assert np.std(eta_of(found) - eta_of(other)) > 0.01 * np.std(expected)
        inside = eta_of(blend)
        assert np.abs(inside - expected).max() < IDENTITY * np.std(expected)
        table = est._read_table(X)
        outside = np.sort(est.model_.eta(table))
        if isinstance(est, NIMORegressorCV):
            expected = y.mean() + y.std() * expected
        gap = np.abs(outside - np.sort(expected)).max()
        assert gap < IDENTITY * np.std(expected)

    def test_without_bends_it_is_the_weighted_mean_of_both_without(self, blended):
        est, X, y, (found, other, w, _) = blended
        lines = [
            each.problem.terms @ each.straight.coef[0] + each.straight.intercept
            for each in (found, other)
        ]
        expected = ((1 - w) * lines[0] + w * lines[1]).numpy()
        if isinstance(est, NIMORegressorCV):
            expected = y.mean() + y.std() * expected
        outside = est.set_bend(0.0).model_.eta(est._read_table(X))
        gap = np.abs(np.sort(outside) - np.sort(expected)).max()
        assert gap < IDENTITY * np.std(expected)

    def test_contributions_sum_to_eta(self, blended):
        est, X, _, _ = blended
        table = est._read_table(X)
        total = est.model_.base_value + est.model_.contributions(table).sum(axis=1)
        assert total == pytest.approx(est.model_.eta(table), abs=1e-9)

    def test_the_gradient_at_the_reference_is_the_coefficient(self, blended):
        est, _, _, _ = blended
        features, step = est.model_.features, 1e-5
        slope = features.coefficients(est.model_.term_coef)
        for j in range(3):  # the numeric ones
            rows = np.tile(features.reference, (2, 1))
            rows[:, j] += (-step, step)
            low, high = est.model_.eta(rows)
            assert (high - low) / (2 * step) == pytest.approx(slope[j], abs=SLOPE_ATOL)
            assert slope[j] == pytest.approx(est.coef_[j], abs=1e-12)

    def test_a_saved_model_predicts_the_same(self, blended, tmp_path):
        est, X, _, _ = blended
        est.save(tmp_path / "model.sknimo")
        again = sknimo.load(tmp_path / "model.sknimo")
        table = est._read_table(X)
        assert np.array_equal(again.model_.eta(table), est.model_.eta(table))
        assert again.bend_ == est.bend_

    def test_attributes_speak_of_the_blend(self, blended):
        est, _, _, (found, other, w, blend) = blended
        assert est.bend_ == pytest.approx((1 - w) * found.dial + w * other.dial)
        assert est.n_members_ == int(est.model_.modulated.any(-1).sum())
        assert est.path_ is not None and math.isfinite(est.alpha_)
        assert {"additive", "bent"} <= set(est.trials_["stage"])
        assert np.isfinite(est.oob_prediction_).all()


class TestInvariance:
    @pytest.mark.slow
    def test_weights_repeat_rows_and_their_order_does_not_matter(self):
        X, y = draw(200, 1.0, 0)
        counts = np.arange(200) % 2 + 1
        rows = np.repeat(np.arange(200), counts)
        rows = np.random.default_rng(0).permutation(rows)
        with watch() as seen:
            weighted = NIMORegressorCV(**SHORT).fit(X, y, sample_weight=counts)
            repeated = clone(weighted).fit(X.iloc[rows], y.iloc[rows])
        assert len(seen) == 2
        assert np.array_equal(weighted.predict(X), repeated.predict(X))
        held_out = weighted.oob_prediction_[rows]
        assert np.array_equal(held_out, repeated.oob_prediction_)

    @pytest.mark.slow
    def test_a_folder_of_states_gives_the_same_bits(self, tmp_path):
        X, y = draw(200, 1.0, 0)
        with watch() as seen:
            expected, first, again = (
                NIMORegressorCV(**SHORT, checkpoint=folder).fit(X, y)
                for folder in (None, tmp_path, tmp_path)
            )
        assert len(seen) == 3
        for est in (first, again):
            assert np.array_equal(est.predict(X), expected.predict(X))
            assert np.array_equal(est.oob_prediction_, expected.oob_prediction_)


class TestEvidenceAlone:
    """Where bags add nothing the fit is that without them, to the last bit."""

    def same(self, X, y, **options):
        both, alone = (
            NIMORegressorCV(**SHORT | options, batch_size=batch_size).fit(X, y)
            for batch_size in ("auto", 0)
        )
        assert np.array_equal(both.predict(X), alone.predict(X))
        for name in ("coef_", "intercept_", "reference_", "alpha_", "n_members_"):
            assert np.array_equal(getattr(both, name), getattr(alone, name)), name
        return both, alone

    def test_lines(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(80, 3))
        y = X @ [1.0, 0.0, -2.0] + 0.1 * rng.normal(size=80)
        both, _ = self.same(X, y)
        assert both.n_members_ == 0
        assert both.coef_[1] == 0

    def test_bends(self, draw_bent):
        both, alone = self.same(*draw_bent(n_rows=100), max_iter=50)
        assert both.n_members_ > 0
        assert both.trials_ == alone.trials_


@pytest.mark.skipif(sys.platform != "linux", reason="others do not fork")
def test_a_process_for_bags_changes_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60) > 0
    search, here = engine_module.search_bags, []

    def note(*args):
        here.append(True)
        return search(*args)

    monkeypatch.setattr(engine_module, "search_bags", note)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    fits = []
    for n_jobs in (2, 1):
        est = NIMOClassifierCV(**SHORT, n_jobs=n_jobs).fit(X, y)
        fits.append(est.decision_function(X))
        assert len(here) == (n_jobs == 1)
    assert np.array_equal(*fits)


@pytest.mark.filterwarnings("ignore:max_time=")
@pytest.mark.slow
def test_time_that_ends_after_the_bags_leaves_them(monkeypatch):
    X, y = draw(200, 0.3, 0)
    search, now, found = engine_module.search_bags, time.monotonic, []

    def end(*args):
        found.append(search(*args))
        monkeypatch.setattr(time, "monotonic", lambda: now() + 1e9)
        return found[-1]

    monkeypatch.setattr(engine_module, "search_bags", end)
    est = NIMORegressorCV(**SHORT, max_time=1e6, n_jobs=1).fit(X, y)
    assert not est.converged_
    assert est.oob_prediction_ is not None
    assert est.n_members_ == found[0].n_members
    assert est.bend_ == found[0].dial


@pytest.mark.slow
def test_the_border_to_large_tables_is_no_cliff(change_settings):
    """A noisy table on either side of `max_work` is predicted alike."""
    frame, y = draw(1000, 1.0, 3)
    assert_alike(
        *(
            fit_within(max_work, frame, y, change_settings)
            for max_work in (1.0, math.inf)
        )
    )


@pytest.mark.slow
def test_rows_more_or_less_about_the_border_give_similar_models(change_settings):
    frame, y = draw(700, 1.0, 3)
    work = 1.16e8
    change_settings(max_work=work, smooth_times=1.0)
    # A number with gaps has two columns, as a category of three levels has.
    levels = ("x", "y", "z")
    kinds = [levels, levels, None, levels]
    est = NIMORegressorCV()
    large = [est._read_bags(n, kinds, False)[1] for n in range(400, 700)]
    border = 400 + large.index(True)
    assert 410 < border < 690, "no border within the table: choose another number"
    more, fewer = (
        fit_within(work, frame[:n], y[:n], change_settings)
        for n in (border + 5, border - 5)
    )
    assert more.path_ is None and fewer.path_ is not None, "both are of one engine"
    assert_alike(more, fewer)


@pytest.mark.slow
def test_beyond_the_border_smooth_tables_still_have_evidence(change_settings):
    """Bags smooth away what hardly any noise hides; noisy tables have them at once."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 5))
    truth = X[:, 0] * (1 + np.tanh(X[:, 1] * X[:, 2])) + X[:, 3]
    change_settings(max_work=6e6)
    assert not NIMORegressorCV()._read_bags(300, [None] * 5, False)[1]
    for noise, smooth in ((0.05, True), (1.0, False)):
        y = truth + noise * rng.normal(size=300)
        est = NIMORegressorCV(random_state=0).fit(X, y)
        assert (est.path_ is not None) == smooth
        assert ("bent" in est.trials_["stage"]) != smooth


def fit_within(max_work, frame, y, change_settings):
    change_settings(max_work=max_work)
    return NIMORegressorCV(missing="indicator", random_state=0).fit(frame, y)


def assert_alike(large, small):
    """Predictions, losses on new rows, and average effects of both are close."""
    new, _ = draw(2000, 1.0, 4)
    _, truth = draw(2000, 0.0, 4)
    fits = [est.predict(new) for est in (large, small)]
    assert np.corrcoef(*fits)[0, 1] > 0.95
    losses = [np.mean((fit - truth) ** 2) + 1.0 for fit in fits]  # noise of new rows
    assert losses[1] < 1.05 * losses[0]
    assert losses[0] < 1.15 * losses[1]
    effects = [est.effects(new).average_effect[:3] for est in (large, small)]
    assert np.abs(effects[0] - effects[1]).max() < 0.2
