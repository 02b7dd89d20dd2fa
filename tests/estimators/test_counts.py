"""Counts and amounts: without a network the fits of statsmodels, their numbers
included, and what is learned is kept wherever the model goes."""

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import nbinom
from sklearn.base import clone
from sklearn.metrics import d2_tweedie_score

from sknimo import NIMORegressor, NIMORegressorCV, RowBlocks, load
from sknimo.exceptions import DataWarning
from sknimo.families import negative_binomial, tweedie
from sknimo.io import model_record

GLM_RTOL = 1e-5  # promised; both converge further
N_ROWS = 300
COEF = np.array([0.7, -0.4, 0.0])


def draw(family, seed=0, n_rows=N_ROWS):
    """Rows, targets and log exposures; the third feature does nothing."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    exposure = rng.uniform(0.5, 2.0, n_rows)
    mean = exposure * np.exp(0.8 + X.to_numpy() @ COEF)
    if family == "negative_binomial":
        return X, rng.poisson(mean * rng.gamma(2, 0.5, n_rows)), np.log(exposure)
    number = rng.poisson(2 * np.sqrt(mean))
    amounts = rng.gamma(np.maximum(number, 1), np.sqrt(mean) / 2)
    return X, amounts * (number > 0), np.log(exposure)


@pytest.fixture(scope="module", params=["negative_binomial", "tweedie"])
def family(request):
    return request.param


@pytest.fixture(scope="module")
def rows(family):
    return draw(family)


@pytest.fixture(scope="module")
def glm(family, rows):
    X, y, offset = rows
    return NIMORegressor(family, alpha=0, max_iter=0).fit(X, y, offset=offset)


class TestAgreement:
    def test_coefficients_and_number_are_those_of_statsmodels(self, family, rows, glm):
        X, y, offset = rows
        design = sm.add_constant(X - X.mean())
        if family == "negative_binomial":
            other = sm.NegativeBinomial(y, design, offset=offset)
            other = other.fit(method="newton", tol=1e-12, maxiter=100, disp=0)
            expected, number = other.params[:-1], other.params.iloc[-1]
            assert glm.model_.family.shape.value == pytest.approx(number, rel=GLM_RTOL)
        else:  # whose power is given there: it has no likelier one
            power = glm.model_.family.shape.value
            fits = [tweedie_of_statsmodels(rows, power + d) for d in (-0.01, 0, 0.01)]
            expected = fits[1].params
            likelihoods = [log_likelihood(fit, y) for fit in fits]
            assert np.argmax(likelihoods) == 1
        found = [glm.intercept_, *glm.coef_]
        np.testing.assert_allclose(found, expected, rtol=GLM_RTOL, atol=1e-8)

    def test_the_score_is_the_deviance_explained(self, family, rows, glm):
        X, y, _ = rows
        value, rate = glm.model_.family.shape.value, glm.predict(X, offset=0)
        if family == "tweedie":
            expected = d2_tweedie_score(y, rate, power=value)
        else:
            of = sm.families.NegativeBinomial(alpha=value)
            null = of.deviance(y, np.full(len(y), y.mean()))
            expected = 1 - of.deviance(y, rate) / null
        with pytest.warns(DataWarning, match="fitted with an offset"):
            found = glm.score(X, y)
        assert found == pytest.approx(expected, rel=1e-9)

    def test_an_offset_that_is_left_out_is_missed(self, family, rows, glm):
        X, _, offset = rows
        with pytest.warns(DataWarning, match="offset=0 if that is meant"):
            alone = glm.predict(X)
        np.testing.assert_array_equal(alone, glm.predict(X, offset=0))
        np.testing.assert_array_equal(alone, glm.predict(X, np.zeros(len(X))))
        np.testing.assert_allclose(glm.predict(X, offset), alone * np.exp(offset))
        shifted = glm.explain(X[:3], offset=1.5)
        np.testing.assert_array_equal(shifted.offset, np.full(3, 1.5))

    def test_a_number_that_is_given_is_kept(self, family, rows):
        X, y, offset = rows
        given = {"negative_binomial": negative_binomial(0.3), "tweedie": tweedie(1.3)}
        for name in (given[family].spelling, given[family]):
            est = NIMORegressor(name, alpha=0, max_iter=0).fit(X, y, offset=offset)
            assert est.model_.family is given[family]

    def test_rows_in_blocks_lead_to_the_same(self, family, rows, glm):
        X, y, offset = rows
        blocks = RowBlocks.from_arrays(X.to_numpy(), y, None, offset)
        est = NIMORegressor(family, alpha=0, max_iter=0).fit(blocks)
        np.testing.assert_allclose(est.coef_, glm.coef_, rtol=1e-6)
        found, expected = (e.model_.family.shape.value for e in (est, glm))
        assert found == pytest.approx(expected, rel=1e-5)

    @pytest.mark.slow
    def test_integer_weights_equal_repetition(self, family, rows):
        X, y, offset = rows
        counts = np.random.default_rng(1).integers(0, 3, len(y))
        est = NIMORegressor(family, alpha=0.01, max_iter=0)
        weighed = clone(est).fit(X, y, counts, offset)
        again = np.repeat(np.arange(len(y)), counts)
        repeated = clone(est).fit(X.iloc[again], y[again], offset=offset[again])
        assert weighed.model_.family is repeated.model_.family
        assert np.array_equal(weighed.coef_, repeated.coef_)


def tweedie_of_statsmodels(rows, power):
    X, y, offset = rows
    of = sm.families.Tweedie(sm.families.links.Log(), var_power=power, eql=False)
    design = sm.add_constant(X - X.mean())
    return sm.GLM(y, design, family=of, offset=offset).fit(tol=1e-12, maxiter=200)


def log_likelihood(fit, y):
    """The highest over dispersions."""
    of, scales = fit.model.family, np.exp(np.linspace(-1, 1, 41)) * fit.scale
    return max(of.loglike_obs(y, fit.mu, scale=scale).sum() for scale in scales)


class TestKept:
    def test_files_pickles_and_copies_have_what_was_learned(
        self, family, rows, glm, tmp_path
    ):
        glm.save(tmp_path / "m.sknimo")
        others = load(tmp_path / "m.sknimo"), pickle.loads(pickle.dumps(glm))
        for other in (*others, copy.deepcopy(glm)):
            assert other.model_.family is glm.model_.family
            assert other.get_params()["family"] == family
            assert np.array_equal(other.predict(*rows[::2]), glm.predict(*rows[::2]))
        assert model_record(glm.model_)["family"] == glm.model_.family.spelling

    @pytest.mark.slow
    def test_a_clone_learns_anew(self, family, glm):
        again = clone(glm).fit(*draw(family, seed=1)[:2])
        assert again.model_.family.shape.value != glm.model_.family.shape.value

    def test_summary_tells_it(self, family, glm):
        told = {"negative_binomial": "Overdispersion:", "tweedie": "Power:"}[family]
        line = next(x for x in str(glm.summary()).splitlines() if told in x)
        value = float(re.search(rf"{told}\s+([0-9.]+)", line)[1])
        assert value == pytest.approx(glm.model_.family.shape.value, rel=1e-3)

    @pytest.mark.slow
    def test_the_report_tells_it(self, glm, rows, tmp_path):
        glm.report(tmp_path / "m.html", *rows[:2])
        page = (tmp_path / "m.html").read_text(encoding="utf-8")
        assert glm.model_.family.title in page

    @pytest.mark.slow
    def test_sql_and_onnx_predict_the_mean(self, glm, rows, tmp_path):
        runtime = pytest.importorskip("onnxruntime")
        glm.to_onnx(tmp_path / "m.onnx")
        session = runtime.InferenceSession(tmp_path / "m.onnx")
        (found,) = session.run(["prediction"], {"X": rows[0].to_numpy()})
        np.testing.assert_allclose(found.ravel(), glm.predict(rows[0]), rtol=1e-10)
        assert "EXP(" in glm.to_sql().upper()


class TestRefusals:
    @pytest.mark.parametrize(
        ("family", "targets", "words"),
        [
            ("negative_binomial", [1, -2], "row 1 has -2. Check the column: nothing"),
            ("negative_binomial", [2, 2.5], "row 1 has 2.5. Parts of a count have no"),
            ("tweedie", [1, -0.1], "row 1 has -0.1. Check the column"),
            ("gamma", [1, 0], "row 1 has 0. Take family='tweedie', which has zeros"),
            ("poisson", [1, -1], "row 1 has -1. Check the column"),
        ],
    )
    def test_an_impossible_target_is_named_with_a_remedy(self, family, targets, words):
        y = np.r_[targets, np.ones(8)]
        with pytest.raises(ValueError, match=re.escape(words)):
            NIMORegressor(family).fit(np.arange(10.0).reshape(-1, 1), y)

    @pytest.mark.parametrize(
        ("family", "words"),
        [
            ("tweedie(2)", "strictly between 1 and 2, got 2.0. At 1 it is family="),
            ("tweedie(1)", "strictly between 1 and 2, got 1.0"),
            ("tweedie(nan)", "strictly between 1 and 2, got nan"),
            ("tweedie(high)", "needs a number in its brackets, the power"),
            ("negative_binomial(0)", "must be a positive number, got 0.0"),
            ("poisson(2)", "has no number to give, got 'poisson(2)'"),
            ("cauchy(2)", "must be one of 'gaussian', 'poisson'"),
            ("huber", "Huber's loss turns straight at a distance"),
            ("pinball", "no curvature to take Newton steps by"),
            ("quantile(0.9)", "a model that is not one of means"),
            ("inverse_gaussian", "its cost bends downwards"),
        ],
    )
    def test_an_impossible_family_is_refused_with_the_reason(self, family, words):
        with pytest.raises(ValueError, match=re.escape(words)):
            NIMORegressor(family).fit(np.arange(10.0).reshape(-1, 1), np.arange(10.0))


@pytest.mark.slow
class TestTruth:
    def test_the_support_is_exact_in_nine_of_ten_samples(self, family):
        """With the rule for fewer features; the default keeps what may help."""
        exact = 0
        for seed in range(10):
            X, y, offset = draw(family, seed, n_rows=1000)
            for name in "defgh":
                X[name] = np.random.default_rng([seed, ord(name)]).normal(size=1000)
            est = NIMORegressorCV(
                family, rule="1se", batch_size=0, n_starts=1, basis="linear"
            ).set_params(random_state=0)
            est.fit(X, y, offset=offset)
            exact += np.array_equal(est.coef_ != 0, np.r_[COEF != 0, [False] * 5])
        assert exact >= 9

    @pytest.mark.parametrize("seed", range(3))
    def test_a_search_finds_coefficients_and_number(self, family, seed):
        X, y, offset = draw(family, seed, n_rows=1000)
        est = NIMORegressorCV(family, random_state=0, basis="linear", n_starts=2)
        est.fit(X, y, offset=offset)
        assert est.coef_ == pytest.approx(COEF, abs=0.12)
        value = {"negative_binomial": 0.5, "tweedie": 1.5}[family]
        assert est.model_.family.shape.value == pytest.approx(value, abs=0.15)

    def test_a_search_of_blocks_learns_the_number(self, family):
        X, y, offset = draw(family, n_rows=2000)
        blocks = RowBlocks.from_arrays(X.to_numpy(), y, None, offset)
        est = NIMORegressorCV(family, max_iter=5, random_state=0).fit(blocks)
        value = {"negative_binomial": 0.5, "tweedie": 1.5}[family]
        assert est.model_.family.shape.value == pytest.approx(value, abs=0.15)

    def test_a_bend_is_found_among_overdispersed_counts(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(3000, 4))
        eta = 1 + 0.6 * X[:, 0] * (1 + np.tanh(2 * X[:, 1])) + 0.3 * X[:, 2]
        y = rng.poisson(np.exp(eta) * rng.gamma(3, 1 / 3, len(X)))
        train, test = slice(0, 2000), slice(2000, None)
        est = NIMORegressorCV("negative_binomial", random_state=0, n_starts=2)
        est.fit(X[train], y[train])
        assert est.n_members_ > 0
        glm = NIMORegressor("negative_binomial", alpha=0, max_iter=0)
        glm.fit(X[train], y[train])

        def likelihood(model):
            k, mean = model.model_.family.shape.value, model.predict(X[test])
            return nbinom.logpmf(y[test], 1 / k, 1 / (1 + k * mean)).mean()

        assert likelihood(est) > likelihood(glm) + 0.05
