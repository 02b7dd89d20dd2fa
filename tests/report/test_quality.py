"""Which rows models are judged on, and that nothing competes on the rows of a fit."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from sknimo.explain import HeldOutScores, describe_training
from sknimo.report import ModelCard, render_report
from sknimo.report._quality import Measure, judge_held_out, judge_left_out
from sknimo.report._story import tell


@pytest.fixture(scope="module")
def searched(make_model, draw_sample):
    """A model with curves, its rows, and predictions of them by others."""
    model = make_model(("linear", "spline", "levels"), "binomial")
    sample = draw_sample(model, n_rows=200)
    rng = np.random.default_rng(0)
    left_out = np.clip(model.mean(sample.table) + 0.05 * rng.normal(size=200), 0, 1)
    scores = HeldOutScores(r2_score(sample.y, left_out), 0.1, 0.5, 0.2, 0.05)
    facts = describe_training(model, sample.table, sample.y)
    card = ModelCard(
        model, facts, classes=("no", "yes"), scores=scores, left_out=left_out
    )
    return card, sample


def values(quality, which):
    return {one.name: getattr(one, which) for one in quality.measures}


def test_rows_left_out_are_judged_by_those_that_have_not_seen_them(searched):
    card, sample = searched
    found = judge_left_out(card, sample)
    known = values(found, "model")
    inside = np.clip(card.left_out, 1e-12, 1 - 1e-12)
    assert known["R²"] == pytest.approx(r2_score(sample.y, card.left_out))
    assert known["AUC"] == pytest.approx(roc_auc_score(sample.y, card.left_out))
    assert known["Log loss"] == pytest.approx(log_loss(sample.y, inside))
    assert values(found, "glm")["R²"] == card.scores.glm_r2
    assert values(found, "linear")["AUC"] is not None


def test_rows_in_another_order_are_not_mistaken(searched):
    card, sample = searched
    other = sample.take(np.random.default_rng(1).permutation(200))
    found = judge_left_out(card, other)
    assert list(values(found, "model")) == ["R²"]  # what the search itself knows
    assert found.explained.model == card.scores.r2


def test_a_model_without_a_network_is_solved_again_on_folds(searched):
    card, sample = searched
    model = replace(card.model, modulated=card.model.modulated & False)
    alone = replace(card, model=model, scores=None, left_out=None)
    found = judge_left_out(alone, sample)
    assert found.rows == "solved again"
    assert found.explained.glm is None
    assert len(found.predicted) == 200
    # Another penalty than the model's own does not stand beside what the search knows.
    known = judge_left_out(replace(card, model=model, left_out=None), sample)
    assert [one.name for one in known.measures] == ["R²"]
    seen = replace(card, model=model)
    assert not np.allclose(found.predicted, seen.model.mean(sample.table))


def test_rows_that_chose_the_features_are_not_new_to_the_model(searched):
    card, sample = searched
    model = replace(card.model, modulated=card.model.modulated & False)
    plain = replace(card, model=model, scores=None, left_out=None)
    assert judge_left_out(plain, sample).is_fresh  # nothing was chosen
    coef = model.coef.clone()
    coef[:, 0] = 0.0
    dropped = replace(plain, model=replace(model, coef=coef))
    dropped = replace(
        dropped, facts=describe_training(dropped.model, sample.table, sample.y)
    )
    found = judge_left_out(dropped, sample)
    assert not found.is_fresh
    assert all(one.linear is None and one.winner == "" for one in found.measures)
    # A column of one value, which nobody could have kept, was not dropped by choice.
    table = sample.table.copy()
    table[:, 0] = table[0, 0]
    assert judge_left_out(dropped, replace(sample, table=table)).is_fresh
    # Nor are curves that a search has chosen without the rows left out.
    searching = replace(plain, scores=HeldOutScores())
    assert not judge_left_out(searching, sample).is_fresh
    page = render_report(dropped, sample).html
    lead = re.search(r'<p class="lead">(.*?)</p>', page)[1]
    assert "features or curves were chosen with, which flatters" in lead
    assert "so this figure flatters, the more the more columns there were" in page
    assert "Training against new rows" not in page
    assert "not seen" not in lead and "that none of them has seen" not in page


def test_on_its_own_rows_a_model_has_no_rivals(searched):
    card, sample = searched
    story = tell(card, sample, rows=0)
    assert story.quality.rows == "training"
    for one in story.quality.measures:
        assert one.linear is one.glm is None and one.winner == ""
    assert story.judged is story.fresh and story.fresh.is_fresh


def test_held_out_rows_show_the_plain_model_beside_curves(searched, draw_sample):
    card, sample = searched
    fresh = draw_sample(card.model, n_rows=100, seed=5)
    found = judge_held_out(card, sample, fresh)
    for one in found.measures[1:]:
        assert None not in (one.constant, one.linear, one.glm, one.model)
    page = render_report(card, sample, held_out=fresh).html
    assert "Logistic regression" in page and "Without dependence" in page
    assert "Nested GLM" not in page


def test_a_model_without_dependence_has_no_rival_without_it(searched, draw_sample):
    card, sample = searched
    silent = torch.zeros_like(card.model.modulated)
    plain = replace(card, model=replace(card.model, modulated=silent), dial=None)
    fresh = draw_sample(card.model, n_rows=100, seed=5)
    for one in judge_held_out(plain, sample, fresh).measures[1:]:
        assert one.glm is None and None not in (one.linear, one.model)


def test_the_lead_names_model_rows_rivals_and_gain(searched):
    card, sample = searched
    page = render_report(card, sample).html
    lead = re.search(r'<p class="lead">(.*?)</p>', page)[1]
    assert "effects can depend on other features" in lead
    assert "left out of the fit in turn" in lead
    assert "a plain logistic regression" in lead
    assert "saves 20.0 % (standard error 5.0)" in lead


@pytest.mark.parametrize(
    ("linear", "glm", "model", "winner"),
    [
        (0.5, None, 0.6, "model"),
        (0.5, 0.7, 0.6, "glm"),
        (0.5, 0.6005, 0.6, ""),
        (None, None, 0.6, ""),
    ],
)
def test_bold_is_the_best_of_several_unless_they_tie(linear, glm, model, winner):
    options = dict(larger_is_better=True, percent=True)
    one = Measure("R²", "", None, model, linear, glm, **options)
    assert one.winner == winner


def test_rare_levels_are_counted_and_never_in_the_headlines(make_model, draw_sample):
    model = make_model(("linear", "levels"))
    sample = draw_sample(model, n_rows=200)
    table = sample.table.copy()
    common = int(model.features.reference[1])
    rarest = (common + 1) % 3
    table[:, 1] = common
    table[:3, 1] = rarest
    # The rare level is by far the strongest.
    coef = model.coef.clone()
    coef[0, 1:] = 50.0
    sample = replace(sample, table=table)
    story = tell(ModelCard(replace(model, coef=coef)), sample, rows=0)
    rare = [line for line in story.lines if line.row.is_rare]
    assert {line.row.n_rows for line in rare} >= {3.0}
    page = render_report(story.card, sample, rows=0).html
    findings = re.search(r'<ul class="findings">(.*?)</ul>', page, re.S)[1]
    level = model.features.levels(1)[rarest]
    assert f"{level} instead of" not in findings
    assert "3 rows, too few to quote" in page
