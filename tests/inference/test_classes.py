"""Standard errors of several classes, against statsmodels."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo import NIMOClassifier, load
from sknimo.model import ClassModels

sm = pytest.importorskip("statsmodels.api")


@pytest.fixture(scope="module")
def case():
    """Rows of three classes, and a fit without a network and a penalty."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3))
    eta = np.c_[np.zeros(200), X[:, 0] - 0.5 * X[:, 1], 0.5 * X[:, 2] + 0.3 * X[:, 0]]
    y = (eta + random.gumbel(size=eta.shape)).argmax(1)
    return X, y, NIMOClassifier(max_iter=0, alpha=0.0).fit(X, y)


def test_errors_are_those_of_multinomial_regression(case):
    X, y, est = case
    theirs = sm.MNLogit(y, sm.add_constant(X)).fit(disp=0, tol=1e-12)
    for c in (1, 2):
        found = est.for_class(c, baseline=0).conf_int()
        np.testing.assert_allclose(found.coef, theirs.params[1:, c - 1], rtol=1e-5)
        np.testing.assert_allclose(found.std_err, theirs.bse[1:, c - 1], rtol=1e-6)
    # A class against the mean of all is a sum of these.
    cov = theirs.cov_params().reshape(2, 4, 2, 4)[:, 1:, :, 1:]
    share = np.array([2, -1]) / 3
    expected = np.einsum("aibj,a,b->ij", cov, share, share)
    np.testing.assert_allclose(est.for_class(1).cov_, expected, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(est.cov_[3:6, 3:6], expected, rtol=1e-5, atol=1e-9)


def test_contributions_have_them_too(case):
    """Distances times errors; on top what members that differ in all classes say."""
    X, _, est = case
    plain = est.for_class(1, baseline=0)
    away = np.abs(X[:5] - est.reference_)
    alone = plain.explain(X[:5])
    np.testing.assert_allclose(alone.std_err, away * plain.conf_int().std_err)
    one, several = est._whole, copy.copy(est)
    # Of each class two bent members, one 1.2 times the other, and a straight one.
    times = torch.tensor([1.0, 1.2, 1.0]).double().repeat(3)
    stacked = replace(
        one.stacked,
        coef=one.stacked.coef.repeat_interleave(3, 0) * times[:, None],
        intercept=one.stacked.intercept.repeat_interleave(3) * times,
        params=one.stacked.params.repeat_interleave(3, 0),
        modulated=torch.tensor([[True], [True], [False]]).repeat(3, 3),
    )
    several._show_model(ClassModels(stacked, 3))
    found = several.for_class(1, baseline=0).explain(X[:5])
    apart = (0.2 * alone.values) ** 2 / 2 * (2 / 3) ** 2
    np.testing.assert_allclose(found.std_err**2, alone.std_err**2 + apart, rtol=1e-6)


def test_summary_and_file_have_them(case, tmp_path):
    est = case[2]
    one = est.for_class(2)
    assert "95 % interval" in str(one.summary())
    one.save(tmp_path / "model.sknimo")  # all classes are kept
    again = load(tmp_path / "model.sknimo")
    np.testing.assert_array_equal(again.cov_, est.cov_)
    for view in (again.for_class(2), one.for_class(1).for_class(2)):
        np.testing.assert_array_equal(view.conf_int().lower, one.conf_int().lower)
