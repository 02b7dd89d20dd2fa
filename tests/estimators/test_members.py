"""Who joins the average of a search by evidence, and that the average is one.

`batch_size=0` asks for evidence alone: beside it bags would join.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.search import Settings

SETTINGS = Settings()
ROUNDING = 1e-12  # float64: only the order of operations differs


@pytest.fixture(scope="module")
def four(make_search, draw_bent):
    """A search of four restarts in each stage."""
    return make_search(n_starts=4, n_members=6, batch_size=0).fit(*draw_bent())


@pytest.fixture(scope="module")
def stable(make_search, draw_bent):
    """The same by the rule that most restarts must agree."""
    how = {"n_starts": 4, "n_members": 6, "batch_size": 0}
    return make_search(rule="stability", **how).fit(*draw_bent())


@pytest.mark.parametrize("n_members", [2, 6])
def test_members_are_restarts_of_nearly_the_best_evidence(
    n_members, data, make_search, four
):
    est = four
    if n_members != four.n_members:
        est = make_search(n_members=n_members, batch_size=0).fit(*data)
    gains = np.array(est.trials_["log_evidence"]) - est.glm_log_evidence_
    eligible = (gains >= SETTINGS.member_share * gains.max()).sum()
    # Restarts can lose their place when they are refitted within the supports.
    assert 1 <= est.n_members_ <= min(n_members, eligible)
    assert est.model_.n_members == est.n_members_


def test_the_average_has_the_mean_coefficients_and_the_mean_eta(
    family, make_search, draw_bent
):
    X, y = draw_bent(family, n_rows=120)
    est = make_search(family, n_starts=3, batch_size=0).fit(X, y)
    model = est.model_
    if family != "binomial":
        assert est.n_members_ > 1
    singles = [
        replace(
            model,
            coef=model.coef[k : k + 1],
            intercept=model.intercept[k : k + 1],
            params=model.params[k : k + 1],
            modulated=model.modulated[k : k + 1],
        )
        for k in range(model.n_members)
    ]
    per_unit = model.features.coefficients
    coef = np.mean([per_unit(single.term_coef) for single in singles], axis=0)
    assert est.coef_ == pytest.approx(coef, rel=ROUNDING)
    level = np.mean([single.base_value for single in singles])
    assert est.intercept_ == pytest.approx(level, rel=ROUNDING)
    eta = np.mean([single.eta(X) for single in singles], axis=0)
    assert model.eta(X) == pytest.approx(eta, rel=1e-10, abs=1e-10)
    at_reference = model.eta(est.reference_[None])[0]
    assert at_reference == pytest.approx(est.intercept_, rel=1e-10)


def test_members_share_their_supports(four):
    assert four.n_members_ > 1
    first = torch.as_tensor(four.model_.first_layer).abs().amax(1) > 0
    assert (first == first[0]).all()
    kept = four.model_.coef != 0
    assert (kept == kept[0]).all()


def test_without_relaxation_no_restart_is_relaxed(data, make_search, four):
    assert "relaxed" in four.trials_["stage"]
    est = make_search(relax=False, batch_size=0).fit(*data)
    assert "relaxed" not in est.trials_["stage"]
    assert est.n_members_ > 0


def test_one_member_is_the_best_restart(data, make_search):
    est = make_search(n_members=1, batch_size=0).fit(*data)
    assert est.n_members_ == est.model_.n_members == 1


def test_the_stable_rule_never_keeps_more_and_still_finds_the_truth(four, stable):
    assert stable.n_members_ > 0
    assert set(np.flatnonzero(stable.coef_)) <= set(np.flatnonzero(four.coef_))
    reads = [set(np.flatnonzero(m.model_.input_norms)) for m in (stable, four)]
    assert reads[0] <= reads[1]
    assert {0, 2} <= set(np.flatnonzero(stable.coef_))
    assert 1 in reads[0]


def test_every_member_is_within_the_stable_supports(stable):
    stages = stable.trials_["stage"]
    assert stages[stable.best_index_] in ("relaxed", "simplified")
    kept = stable.model_.coef != 0
    assert (kept == kept[0]).all()
