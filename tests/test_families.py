"""A family's derivatives belong to its loss, its loss is half of the deviance, and its
facts are those of the distribution. A new family is one record."""

import copy
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from sklearn.base import clone
from sklearn.metrics import (
    log_loss,
    mean_gamma_deviance,
    mean_poisson_deviance,
    mean_squared_error,
    mean_tweedie_deviance,
)

from sknimo import CheckpointError, NIMOClassifier, NIMORegressor, NIMORegressorCV, load
from sknimo.checkpoint import fingerprint
from sknimo.cli._options import FamilyChoice
from sknimo.families import BINOMIAL, FAMILIES, LINKS, POISSON, Family, get_family

AUTOGRAD_RTOL = 1e-12  # both sides analytic, float64: only the form differs
STEP = 1e-5
FD_RTOL = 1e-7  # central differences: truncation STEP**2, rounding eps / STEP
DEVIANCE_RTOL = 1e-12  # the same sums in another order
ROUNDING = 1e-14  # a perfect fit: terms of order one cancel

EVERY_FAMILY = pytest.mark.parametrize("name", list(FAMILIES))
TARGETS = {
    "gaussian": (-2.0, 0.0, 0.7, 30.0),
    "binomial": (0.0, 0.25, 0.5, 1.0),
    "poisson": (0.0, 1.0, 2.5, 30.0),
    "gamma": (1e-3, 1.0, 2.5, 30.0),
    "negative_binomial": (0.0, 1.0, 3.0, 30.0),
    "tweedie": (0.0, 1.0, 2.5, 30.0),
}
SKLEARN_DEVIANCE = {
    "gaussian": mean_squared_error,
    "binomial": lambda y, mu: 2 * log_loss(y, mu),
    "poisson": mean_poisson_deviance,
    "gamma": mean_gamma_deviance,
    "tweedie": partial(mean_tweedie_deviance, power=1.5),
    # scikit-learn has none; the overdispersion that the record starts from is one.
    "negative_binomial": lambda y, mu: (
        sm.families.NegativeBinomial(alpha=1.0).deviance(y, mu) / len(y)
    ),
}


def grid(name):
    """Every target against every linear predictor, as two flat tensors."""
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    eta = torch.linspace(-4, 4, 17, dtype=torch.float64)
    pairs = torch.cartesian_prod(y, eta)
    return pairs[:, 0], pairs[:, 1]


def derivative(function, y, eta):
    eta = eta.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(function(y, eta).sum(), eta)
    return slope


@EVERY_FAMILY
def test_score_is_minus_the_slope_of_the_loss(name):
    family, (y, eta) = get_family(name), grid(name)
    slope = derivative(family.loss, y, eta)
    torch.testing.assert_close(
        family.score(y, eta), -slope, rtol=AUTOGRAD_RTOL, atol=ROUNDING
    )


@EVERY_FAMILY
def test_score_agrees_with_central_differences(name):
    family, (y, eta) = get_family(name), grid(name)
    rise = family.loss(y, eta + STEP) - family.loss(y, eta - STEP)
    score = family.score(y, eta)
    scale = family.loss(y, eta).abs().max()
    assert (score + rise / (2 * STEP)).abs().max() <= FD_RTOL * scale


@EVERY_FAMILY
def test_curvature_is_minus_the_slope_of_the_score(name):
    family, (y, eta) = get_family(name), grid(name)
    slope = derivative(family.score, y, eta)
    curvature = family.curvature(y, eta)
    torch.testing.assert_close(curvature, -slope, rtol=AUTOGRAD_RTOL, atol=ROUNDING)
    assert (curvature >= 0).all()


@EVERY_FAMILY
def test_loss_is_half_of_the_deviance_of_sklearn(name):
    rng = np.random.default_rng(0)
    eta = rng.normal(size=50)
    y = rng.choice([value for value in TARGETS[name] if value % 1 == 0], size=50)
    family = get_family(name)
    mu = family.mean(torch.as_tensor(eta)).numpy()
    expected = SKLEARN_DEVIANCE[name](y, mu) / 2
    loss = family.loss(torch.as_tensor(y), torch.as_tensor(eta)).mean().item()
    assert loss == pytest.approx(expected, rel=DEVIANCE_RTOL)


@EVERY_FAMILY
def test_saturated_fit_costs_nothing_and_anything_else_costs(name):
    family = get_family(name)
    inside = [value for value in TARGETS[name] if 0 < value < 1 or name != "binomial"]
    y = torch.tensor(inside, dtype=torch.float64)
    y = y[y > 0] if family.link == "log" else y
    saturated = family.link_function(y)
    scale = 1 + y.abs() * (1 + saturated.abs())
    assert (family.loss(y, saturated).abs() <= ROUNDING * scale).all()
    assert (family.loss(y, saturated + 0.1) > 1e-4).all()
    assert (family.loss(y, saturated - 0.1) > 1e-4).all()


@EVERY_FAMILY
def test_link_inverts_mean(name):
    family = get_family(name)
    eta = torch.linspace(-3, 3, 13, dtype=torch.float64)
    torch.testing.assert_close(
        family.link_function(family.mean(eta)), eta, rtol=1e-12, atol=1e-12
    )


# The largest |eta| at which the cost itself still is a float64, on either side.
@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("gaussian", -1e100, 1e100),
        ("binomial", -1e300, 1e300),
        ("poisson", -1e300, 700.0),
        ("gamma", -700.0, 1e300),
        ("negative_binomial", -1e300, 700.0),
        ("tweedie", -1400.0, 1400.0),
    ],
)
def test_extreme_linear_predictors_stay_finite(name, lowest, highest):
    family = get_family(name)
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    for value in (lowest, highest):
        eta = torch.full_like(y, value)
        for function in (family.loss, family.score, family.curvature):
            assert torch.isfinite(function(y, eta)).all()
        assert (family.loss(y, eta) >= 0).all()
        assert not torch.isnan(family.mean(eta)).any()


@pytest.mark.parametrize(("name", "eta"), [("poisson", 1e4), ("gamma", -1e4)])
def test_overflow_is_infinite_never_nan(name, eta):
    family = get_family(name)
    y = torch.tensor(TARGETS[name], dtype=torch.float64)
    loss = family.loss(y, torch.full_like(y, eta))
    assert torch.isposinf(loss).all()


def test_binomial_tails_are_exact():
    family = get_family("binomial")
    one, eta = torch.ones(1), torch.tensor([50.0], dtype=torch.float64)
    assert family.loss(one, -eta).item() == pytest.approx(50.0, rel=1e-15)
    for sure, sign in ((one, 1), (0 * one, -1)):
        for exact in (family.loss, family.curvature, family.score):
            left = exact(sure, sign * eta).abs().item()
            assert left == pytest.approx(np.exp(-50), rel=1e-12)
        assert sign * family.score(sure, sign * eta).item() > 0


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("gaussian", [-5.0, 0.0], [np.inf, np.nan]),
        ("binomial", [0.0, 0.3, 1.0], [-0.1, 1.1, np.nan]),
        ("poisson", [0.0, 3.0], [-1.0, np.inf, np.nan]),
        ("gamma", [0.1, 3.0], [0.0, -1.0, np.inf, np.nan]),
        ("negative_binomial", [0.0, 3.0], [-1.0, 2.5, np.inf, np.nan]),
        ("tweedie", [0.0, 2.5], [-1.0, np.inf, np.nan]),
    ],
)
def test_domain_tells_possible_targets_from_impossible(name, inside, outside):
    family = get_family(name)
    assert family.in_domain(torch.tensor(inside)).all()
    assert not family.in_domain(torch.tensor(outside)).any()


@EVERY_FAMILY
def test_copies_are_the_same_record(name):
    family = get_family(name)
    assert pickle.loads(pickle.dumps(family)) is family
    assert copy.deepcopy(family) is family


def test_unknown_family_lists_the_known():
    with pytest.raises(ValueError, match="'gaussian'.*'gamma'.*, got 'cauchy'"):
        get_family("cauchy")


STATSMODELS = {
    "gaussian": sm.families.Gaussian(),
    "binomial": sm.families.Binomial(),
    "poisson": sm.families.Poisson(),
    "gamma": sm.families.Gamma(sm.families.links.Log()),
    "negative_binomial": sm.families.NegativeBinomial(alpha=1.0),
    "tweedie": sm.families.Tweedie(sm.families.links.Log(), var_power=1.5),
}


class TestFacts:
    @EVERY_FAMILY
    def test_link_and_variance_are_those_of_statsmodels(self, name):
        family, other = get_family(name), STATSMODELS[name]
        mean = np.linspace(0.1, 0.9, 9)
        found = family.variance(torch.as_tensor(mean)).numpy()
        np.testing.assert_allclose(found, other.variance(mean), rtol=1e-14)
        eta = family.link_function(torch.as_tensor(mean)).numpy()
        np.testing.assert_allclose(eta, other.link(mean), rtol=1e-13, atol=1e-15)

    @EVERY_FAMILY
    def test_a_row_that_is_its_mean_informs_by_slope_and_variance(self, name):
        """Curvature there is (d mu / d eta)**2 / variance."""
        family = get_family(name)
        eta = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
        mean = family.mean(eta)
        (slope,) = torch.autograd.grad(mean.sum(), eta)
        mean, eta = mean.detach(), eta.detach()
        expected = slope.square() / family.variance(mean)
        torch.testing.assert_close(
            family.curvature(mean, eta), expected, rtol=AUTOGRAD_RTOL, atol=ROUNDING
        )

    @EVERY_FAMILY
    def test_separable_are_those_that_an_infinite_predictor_fits(self, name):
        family = get_family(name)
        y = torch.tensor(TARGETS[name], dtype=torch.float64)
        far = [family.loss(y, torch.full_like(y, eta)) for eta in (-600.0, 600.0)]
        assert family.separable == bool((torch.stack(far) < 1e-100).any())

    @EVERY_FAMILY
    def test_ratios_go_with_links_that_make_effects_multiply(self, name):
        family = get_family(name)
        step, eta = 0.3, torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
        mean, moved = family.mean(eta), family.mean(eta + step)
        if family.is_binary:  # odds multiply, probabilities do not
            mean, moved = mean / (1 - mean), moved / (1 - moved)
        multiplies = torch.allclose(moved, np.exp(step) * mean, rtol=1e-12)
        assert multiplies == (family.ratio_name is not None)

    @EVERY_FAMILY
    def test_least_squares_is_where_moving_and_scaling_the_target_does_nothing(
        self, name
    ):
        family, (y, eta) = get_family(name), grid(name)
        inside = (y > 0) & (y < 1) if family.is_binary else y > 0
        y, eta = y[inside], eta[inside]
        moved = family.loss(y / 3 + 0.1, eta / 3 + 0.1) * 9
        unchanged = torch.allclose(moved, family.loss(y, eta), rtol=1e-12, atol=0)
        assert family.least_squares == unchanged

    def test_the_rest_is_as_documented(self):
        facts = {
            name: (
                family.dispersion,
                family.least_dispersion,
                family.estimates_dispersion,
                family.is_binary,
                family.positive_only,
                family.ratio_name,
                family.eta_name,
            )
            for name, family in FAMILIES.items()
        }
        assert facts == {
            "gaussian": ("deviance", 0, True, False, False, None, "prediction"),
            "binomial": ("known", 0, False, True, True, "odds ratio", "log-odds"),
            "poisson": ("pearson", 1, True, False, True, "rate ratio")
            + ("log of the mean",),
            "gamma": ("deviance", 0, True, False, True, "mean ratio")
            + ("log of the mean",),
            "negative_binomial": ("pearson", 1, True, False, True, "rate ratio")
            + ("log of the mean",),
            "tweedie": ("pearson", 0, True, False, True, "mean ratio")
            + ("log of the mean",),
        }

    def test_held_out_classes_cost_the_squared_error_of_their_probability(self):
        y, eta = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 1e30, -1e30])
        assert BINOMIAL.held_out_loss(y, eta).tolist() == [0.25, 0.0, 1.0]
        others = [
            FAMILIES[name].held_out_loss for name in FAMILIES if name != "binomial"
        ]
        assert others == [None] * (len(FAMILIES) - 1)

    @pytest.mark.parametrize("name", list(LINKS))
    def test_a_mean_moved_inside_has_a_finite_link(self, name):
        link, means = LINKS[name], torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
        inside = link.inside(means, 1e-6)
        assert torch.isfinite(link.link_function(inside)).all()
        assert (inside - means).abs().max() <= 1.01e-6
        assert inside[1] == 0.5

    def test_the_command_offers_every_family(self):
        assert {choice.value for choice in FamilyChoice} == {"auto", *FAMILIES}

    def test_a_link_that_nobody_can_compute_is_refused(self):
        with pytest.raises(ValueError, match="one of 'identity', 'log', 'logit', got"):
            replace(POISSON, link="sqrt")


class TweedieLoss:
    """Functions of a Tweedie family with log link, which pickle by value."""

    def __init__(self, power):
        self.power = power

    def parts(self, y, eta):
        p = self.power
        return y * ((1 - p) * eta).exp(), ((2 - p) * eta).exp()

    def loss(self, y, eta):
        p, (down, up) = self.power, self.parts(y, eta)
        return down / (p - 1) + up / (2 - p) - y ** (2 - p) / ((p - 1) * (2 - p))

    def score(self, y, eta):
        down, up = self.parts(y, eta)
        return down - up

    def curvature(self, y, eta):
        p, (down, up) = self.power, self.parts(y, eta)
        return (p - 1) * down + (2 - p) * up

    def variance(self, mu):
        return mu**self.power

    def in_domain(self, y):
        return (y >= 0) & torch.isfinite(y)


def make_tweedie(power=1.5):
    """Positive amounts of which some are exactly zero: a family of our own."""
    of = TweedieLoss(power)
    return Family(
        name="tweedie",
        link="log",
        loss=of.loss,
        score=of.score,
        curvature=of.curvature,
        variance=of.variance,
        in_domain=of.in_domain,
        domain="numbers that are zero or positive",
        dispersion="pearson",
        separable=True,
        ratio_name="mean ratio",
    )


TWEEDIE = make_tweedie()


@pytest.fixture(scope="module")
def claims():
    """Sums of a Poisson number of gamma amounts; `b` acts more where `a` is large."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "c"])
    eta = 0.5 + 0.6 * X["a"] + 0.5 * X["b"] * (1 + 1.5 * np.tanh(X["a"]))
    counts = rng.poisson(np.exp(0.5 * eta))
    y = np.where(counts > 0, rng.gamma(np.maximum(counts, 1) * 2.0), 0.0)
    y *= np.exp(0.5 * eta) / 2
    assert (y == 0).mean() > 0.1
    return X, y


@pytest.fixture(scope="module")
def bent(claims):
    return NIMORegressor(TWEEDIE, max_iter=60, tol=0.0, random_state=0).fit(*claims)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestNewFamily:
    def test_its_functions_are_those_of_a_tweedie_distribution(self):
        y, eta = grid("poisson")
        slope = derivative(TWEEDIE.loss, y, eta)
        torch.testing.assert_close(TWEEDIE.score(y, eta), -slope)
        torch.testing.assert_close(
            TWEEDIE.curvature(y, eta), -derivative(TWEEDIE.score, y, eta)
        )
        expected = mean_tweedie_deviance(y, eta.exp(), power=1.5) / 2
        assert TWEEDIE.loss(y, eta).mean().item() == pytest.approx(expected, rel=1e-12)

    def test_without_network_and_penalty_it_is_the_glm_of_statsmodels(self, claims):
        X, y = claims
        offset = 0.2 * X["c"].to_numpy() ** 2
        est = NIMORegressor(TWEEDIE, alpha=0, max_iter=0).fit(X, y, offset=offset)
        family = sm.families.Tweedie(sm.families.links.Log(), var_power=1.5)
        glm = sm.GLM(y, sm.add_constant(X - X.mean()), family=family, offset=offset)
        glm = glm.fit(tol=1e-12, maxiter=200)
        found = [est.intercept_, *est.coef_]
        np.testing.assert_allclose(found, glm.params, rtol=1e-6, atol=1e-8)

    def test_the_score_is_the_deviance_explained(self, bent, claims):
        X, y = claims
        of = {"power": 1.5}
        null = mean_tweedie_deviance(y, np.full(len(y), y.mean()), **of)
        expected = 1 - mean_tweedie_deviance(y, bent.predict(X), **of) / null
        assert bent.score(X, y) == pytest.approx(expected, rel=1e-10)

    def test_explanations_sum_to_the_log_of_the_mean(self, bent, claims):
        X, _ = claims
        found = bent.explain(X)
        total = found.base_value + found.values.sum(axis=1)
        np.testing.assert_allclose(np.exp(total), bent.predict(X), rtol=1e-10)
        assert found.ratio_name == "mean ratio"
        assert (bent.effects(X).ratio > 0).all()

    def test_summary_and_report_speak_of_it(self, bent, claims, tmp_path):
        X, y = claims
        text = str(bent.summary())
        assert "tweedie" in text
        assert "mean ratio" in text
        bent.report(tmp_path / "claims.html", X, y)
        page = (tmp_path / "claims.html").read_text(encoding="utf-8")
        for words in ("tweedie, log", "log of the mean", "mean ratio", "&lt;Family"):
            assert words in page

    @pytest.mark.slow
    def test_a_search_finds_what_acts_and_what_bends(self, claims):
        X, y = claims
        est = NIMORegressorCV(
            TWEEDIE, n_starts=1, max_iter=30, basis="linear", random_state=0
        ).fit(X, y)
        assert est.coef_[:2] == pytest.approx([0.6, 0.5], abs=0.15)
        assert est.coef_[2] == 0
        glm = NIMORegressor(TWEEDIE, alpha=0, max_iter=0).fit(X, y)
        assert est.score(X, y) > glm.score(X, y)

    def test_impossible_targets_are_refused_in_its_words(self, claims):
        X, y = claims
        with pytest.raises(ValueError, match="tweedie family needs numbers that are"):
            NIMORegressor(TWEEDIE).fit(X, y - 1)

    def test_parameters_survive_clones_and_pickles(self, bent, claims):
        again = clone(bent)
        assert fingerprint(again.family.traits()) == fingerprint(TWEEDIE.traits())
        assert bent.get_params()["family"] is TWEEDIE
        assert repr(bent).startswith("NIMORegressor(family=<Family tweedie>")
        restored = pickle.loads(pickle.dumps(bent))
        X, _ = claims
        assert np.array_equal(restored.predict(X), bent.predict(X))

    def test_it_cannot_be_saved_but_exported(self, bent, claims, tmp_path):
        with pytest.raises(ValueError, match="<Family tweedie> is no family of this"):
            bent.save(tmp_path / "model.sknimo")
        assert not any(tmp_path.iterdir())
        runtime = pytest.importorskip("onnxruntime")
        bent.to_onnx(tmp_path / "model.onnx")
        session = runtime.InferenceSession(tmp_path / "model.onnx")
        X, _ = claims
        (found,) = session.run(["prediction"], {"X": X.to_numpy()})
        np.testing.assert_allclose(found.ravel(), bent.predict(X), rtol=1e-10)

    def test_a_checkpoint_knows_it_by_what_it_does(self, claims, tmp_path):
        X, y = claims
        est = NIMORegressor(
            make_tweedie(1.5), max_iter=20, checkpoint=tmp_path, random_state=0
        )
        first = est.fit(X, y).predict(X)
        again = clone(est).set_params(family=make_tweedie(1.5)).fit(X, y)
        assert np.array_equal(again.predict(X), first)
        for other in (make_tweedie(1.6), replace(TWEEDIE, dispersion="deviance")):
            with pytest.raises(CheckpointError):
                clone(est).set_params(family=other).fit(X, y)


def test_families_differ_in_their_traits():
    digests = {fingerprint(family.traits()) for family in FAMILIES.values()}
    digests |= {fingerprint(make_tweedie(power).traits()) for power in (1.5, 1.6, 1.5)}
    assert len(digests) == len(FAMILIES) + 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_name_and_its_record_lead_to_the_same_file(claims, tmp_path):
    X, y = claims
    for name, family in (("string", "poisson"), ("record", POISSON)):
        est = NIMORegressor(family, max_iter=20, random_state=0).fit(X, y)
        est.save(tmp_path / name)
    assert (tmp_path / "string").read_bytes() == (tmp_path / "record").read_bytes()
    assert load(tmp_path / "record").family == "poisson"


def test_a_namesake_of_a_family_is_not_taken_for_it(claims, tmp_path):
    X, y = claims
    namesake = replace(POISSON, dispersion="known")
    est = NIMORegressor(namesake, max_iter=0).fit(X, y)
    with pytest.raises(ValueError, match="<Family poisson> is no family of this"):
        est.save(tmp_path / "model.sknimo")
    assert copy.deepcopy(namesake) == namesake != POISSON


def test_classes_are_for_classifiers(claims):
    X, y = claims
    with pytest.raises(ValueError, match="<Family binomial> is for two classes"):
        NIMORegressor(BINOMIAL).fit(X, y > 0)
    assert NIMOClassifier(max_iter=0).fit(X, y > 0).model_.family is BINOMIAL


def test_what_is_no_family_is_refused_with_the_options(claims):
    with pytest.raises(ValueError, match="'gamma'.*, got 3. Or give a Family."):
        NIMORegressor(3).fit(*claims)
