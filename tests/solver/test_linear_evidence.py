"""Evidence of linear models has a closed form, which is the reference here.

Ridge regression for the coefficients, the density of a Gaussian vector for the
evidence, scikit-learn's automatic relevance determination for the precisions.

Shapes: n rows, q term columns, p features.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.linear_model import ARDRegression, BayesianRidge, Ridge

from sknimo.families import get_family
from sknimo.machine import to_device
from sknimo.network import make_spec
from sknimo.solver import EvidenceOptions, Problem, fit_evidence, simplify
from sknimo.solver._crew import Crew
from sknimo.solver._evidence import feature_strength

RIDGE_RTOL = 1e-8  # the tie break of the coefficient solve is at 1e-11
EVIDENCE_ATOL = 1e-7  # log densities of some dozens of rows
ALGEBRA_RTOL = 1e-9  # dense inverses of matrices with condition numbers up to 1e4
ARD_RTOL = 0.02  # other hyperpriors and another count of degrees of freedom
FEW_STEPS = EvidenceOptions(max_iter=25)
# Until nothing moves: no step is ever too small to go on.
UNTIL_STILL = EvidenceOptions(max_iter=60, burn_in=1, tol=-np.inf)

# Where every family costs seconds, the log links wait for the slow run.
EITHER_LINK = pytest.mark.parametrize(
    "family",
    [
        "gaussian",
        "binomial",
        pytest.param("poisson", marks=pytest.mark.slow),
        pytest.param("gamma", marks=pytest.mark.slow),
    ],
)


def ones(problem):
    return torch.ones(problem.n_rows, dtype=torch.float64)


def flags(problem, *features):
    """The given features on, the others off; all of them when none is given."""
    chosen = torch.zeros(problem.spec.n_features, dtype=torch.bool)
    chosen[list(features) if features else slice(None)] = True
    return chosen


def draw_linear(n_rows=40, widths=(1, 1, 1), noise=0.5, seed=0):
    """A Gaussian problem with a linear truth and uncentred columns."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(widths)), widths)
    X = rng.normal(size=(n_rows, len(owner))) + rng.normal(size=len(owner))
    y = X @ rng.uniform(0.5, 1.5, len(owner)) + 3 + noise * rng.normal(size=n_rows)
    return Problem.in_memory(
        terms=torch.as_tensor(X),
        term_feature=torch.as_tensor(owner),
        inputs=torch.as_tensor(X.copy()),
        y=torch.as_tensor(y),
        offset=torch.zeros(n_rows, dtype=torch.float64),
        family=get_family("gaussian"),
        spec=make_spec(owner.tolist(), len(widths), (3, 3), "binary", True),
    )


class TestLinearModel:
    """Without inputs the member is Bayesian linear regression, which is solved."""

    PRECISION = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)
    DISPERSION = 0.3

    @pytest.fixture
    def fixed(self, begin):
        """One step, judged once, with precisions and dispersion as given."""

        def fixed(problem, weight=None):
            weight = ones(problem) if weight is None else weight
            start = replace(
                begin(problem, weight, inputs=False),
                coef_precision=self.PRECISION,
                dispersion=self.DISPERSION,
            )
            member = Crew(problem, weight.unsqueeze(0), [start], EvidenceOptions())
            member.newton_step()
            member.update_precisions()
            return member.expanded()[0]

        return fixed

    @pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 3)])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_coefficients_are_those_of_a_ridge(self, widths, weighted, fixed):
        problem = draw_linear(widths=widths)
        weight = ones(problem)
        if weighted:
            weight = torch.linspace(0, 3, problem.n_rows, dtype=torch.float64)
        state = fixed(problem, weight)
        # A penalty of its own per column is one penalty on rescaled columns.
        scale = (self.PRECISION * self.DISPERSION)[problem.term_feature].sqrt()
        ridge = Ridge(alpha=1.0, solver="cholesky")
        ridge.fit(problem.terms / scale, problem.y, sample_weight=weight)
        expected = torch.as_tensor(ridge.coef_) / scale
        torch.testing.assert_close(state.coef, expected, rtol=RIDGE_RTOL, atol=0)
        assert state.intercept.item() == pytest.approx(ridge.intercept_, rel=RIDGE_RTOL)

    @pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 3)])
    def test_log_evidence_is_a_gaussian_density_up_to_a_constant(self, widths, fixed):
        """The intercept has a flat prior: only what is orthogonal to it has a density.

        With B (n, n - 1) an orthonormal basis of the contrasts, `B'y` is Gaussian with
        mean 0 and covariance `dispersion I + B' X A^-1 X' B`. Its log density equals

            -loss / dispersion - prior - log det(I + J A^-1 J') / 2
            - (n - 1) / 2 log(dispersion) - (n - 1) / 2 log(2 pi),

        J being the whitened columns without their mean. The code leaves the last term
        out.
        """
        problem = draw_linear(widths=widths)
        n = problem.n_rows
        contrasts = np.linalg.svd(np.ones((1, n)))[2][1:].T
        terms = contrasts.T @ problem.terms.numpy()
        variance = 1 / self.PRECISION[problem.term_feature].numpy()
        covariance = self.DISPERSION * np.eye(n - 1) + (terms * variance) @ terms.T
        density = multivariate_normal(np.zeros(n - 1), covariance)
        constant = (n - 1) / 2 * np.log(2 * np.pi)
        expected = density.logpdf(contrasts.T @ problem.y.numpy()) + constant
        assert fixed(problem).log_evidence == pytest.approx(expected, abs=EVIDENCE_ATOL)

    def test_the_determined_directions_are_the_trace_of_the_hat_matrix(self, fixed):
        problem = draw_linear()
        centred = problem.terms - problem.terms.mean(0)
        gram = centred.T @ centred / self.DISPERSION
        hat = torch.linalg.solve(gram + torch.diag(self.PRECISION), gram)
        expected = hat.trace().item() + 1  # and the intercept
        assert fixed(problem).n_effective == pytest.approx(expected, rel=ALGEBRA_RTOL)

    def test_the_intercept_and_a_shift_of_columns_do_not_change_the_evidence(
        self, fixed
    ):
        problem = draw_linear()
        columns = replace(problem.columns, terms=problem.terms + 5.0)
        moved = replace(problem, columns=columns, y=problem.y - 100.0)
        plain, shifted = fixed(problem), fixed(moved)
        assert shifted.log_evidence == pytest.approx(plain.log_evidence, abs=1e-6)
        torch.testing.assert_close(shifted.coef, plain.coef, rtol=1e-7, atol=0)

    def test_an_offset_is_as_good_as_subtracting_it(self, fixed):
        problem = draw_linear()
        offset = torch.linspace(-2, 5, problem.n_rows, dtype=torch.float64)
        known = fixed(replace(problem, y=problem.y + offset, offset=offset))
        plain = fixed(problem)
        assert known.log_evidence == pytest.approx(
            plain.log_evidence, abs=EVIDENCE_ATOL
        )
        torch.testing.assert_close(known.coef, plain.coef, rtol=RIDGE_RTOL, atol=0)

    def test_precisions_settle_where_those_of_sklearn_s_ard_do(self, fit):
        problem = draw_linear(n_rows=120)
        state = fit(problem, options=UNTIL_STILL, inputs=False)
        reference = ARDRegression(max_iter=1000, tol=1e-10)
        reference.fit(problem.terms.numpy(), problem.y.numpy())
        assert state.coef.numpy() == pytest.approx(reference.coef_, rel=ARD_RTOL)
        assert state.coef_precision.numpy() == pytest.approx(
            reference.lambda_, rel=ARD_RTOL
        )
        assert state.dispersion == pytest.approx(1 / reference.alpha_, rel=ARD_RTOL)

    def test_columns_of_one_feature_share_a_precision_as_in_bayesian_ridge(self, fit):
        problem = draw_linear(n_rows=120, widths=(5,))
        state = fit(problem, options=UNTIL_STILL, inputs=False)
        reference = BayesianRidge(max_iter=1000, tol=1e-10)
        reference.fit(problem.terms.numpy(), problem.y.numpy())
        assert state.coef.numpy() == pytest.approx(reference.coef_, rel=ARD_RTOL)
        assert state.coef_precision.item() == pytest.approx(
            reference.lambda_, rel=ARD_RTOL
        )
        assert state.dispersion == pytest.approx(1 / reference.alpha_, rel=ARD_RTOL)

    @EITHER_LINK
    def test_settled_precisions_are_a_fixed_point_of_the_update(
        self, family, make_problem, fit
    ):
        problem = make_problem(family, n_rows=150, widths=(2,))
        state = fit(problem, options=UNTIL_STILL, inputs=False)
        again = fit_evidence(
            problem, ones(problem), state, replace(UNTIL_STILL, max_iter=2)
        )
        torch.testing.assert_close(
            again.coef_precision, state.coef_precision, rtol=1e-5, atol=0
        )
        assert again.dispersion == pytest.approx(state.dispersion, rel=1e-6)
        assert again.log_evidence == pytest.approx(state.log_evidence, abs=1e-6)

    def test_noise_that_a_coefficient_cannot_explain_is_dropped(self, fit):
        rng = np.random.default_rng(0)
        problem = draw_linear(n_rows=200, widths=(1,) * 6)
        noise = torch.as_tensor(rng.normal(size=200))
        state = fit(replace(problem, y=noise), options=UNTIL_STILL, inputs=False)
        state = simplify(
            replace(problem, y=noise), ones(problem), state, EvidenceOptions()
        )
        assert not state.support.any()
        assert not state.coef.any()


class TestTermGroups:
    """Line and curve of a feature have precisions of their own."""

    GROUP = torch.tensor([0, 0, 3, 3, 1, 2])

    @pytest.fixture
    def problem(self):
        """Feature 0 owns four columns in two groups; the second group is idle."""
        rng = np.random.default_rng(5)
        terms = rng.normal(size=(200, 6))
        truth = np.array([1.0, -0.8, 0.0, 0.0, 0.5, 0.7])
        y = terms @ truth + 0.3 * rng.normal(size=200)
        owner = [0, 0, 0, 0, 1, 2]
        return Problem.in_memory(
            terms=torch.as_tensor(terms),
            term_feature=torch.tensor(owner),
            inputs=torch.as_tensor(terms.copy()),
            y=torch.as_tensor(y),
            offset=torch.zeros(200, dtype=torch.float64),
            family=get_family("gaussian"),
            spec=make_spec(owner, 3, (3, 3), "binary", True),
            term_group=self.GROUP,
        )

    def test_a_feature_is_a_group_unless_told_otherwise(self, make_problem):
        problem = make_problem(widths=(2, 1, 3))
        assert torch.equal(problem.term_group, problem.term_feature)
        assert problem.n_groups == 3
        moved = to_device(problem, torch.device("cpu"))
        assert torch.equal(moved.term_group, problem.term_group)

    def test_groups_travel_with_the_problem(self, problem):
        moved = to_device(replace(problem, y=-problem.y), torch.device("cpu"))
        assert torch.equal(moved.term_group, self.GROUP)
        assert moved.n_groups == 4

    def test_the_fit_is_that_of_features_with_one_group_each(self, problem, fit):
        """Without a network only the groups matter."""
        apart = replace(
            problem,
            term_feature=self.GROUP,
            spec=make_spec(self.GROUP.tolist(), 4, (3, 3), "binary", True),
            unbent=torch.zeros(4, dtype=torch.bool),
        )
        together, separate = (
            fit(case, options=FEW_STEPS, inputs=False) for case in (problem, apart)
        )
        assert torch.equal(together.coef, separate.coef)
        assert torch.equal(together.coef_precision, separate.coef_precision)
        assert together.log_evidence == separate.log_evidence

    def test_an_idle_group_is_exactly_zero_and_its_feature_stays(self, problem, fit):
        state = fit(problem, options=UNTIL_STILL, inputs=False)
        state = fit_evidence(problem, ones(problem), state, EvidenceOptions())
        assert not state.coef[2:4].any()
        assert state.coef[:2].all()
        assert state.support.tolist() == [True, True, True]
        assert state.coef_precision[3] > EvidenceOptions().dead_coef
        assert (state.coef_precision[:3] < 100).all()

    def test_a_group_that_is_off_stays_off(self, problem, fit, begin, is_finite):
        start = begin(problem, size=0.5)
        start = replace(
            start,
            coef_precision=torch.tensor([1.0, 1.0, 1.0, 1e10], dtype=torch.float64),
            coef=start.coef * (self.GROUP != 3),
        )
        state = fit_evidence(problem, ones(problem), start, FEW_STEPS)
        assert not state.coef[2:4].any()
        assert state.coef_precision[3] == 1e10
        assert is_finite(state)

    def test_a_feature_without_a_live_group_leaves(self, problem, fit):
        """The noise has nothing to do with the columns of feature 0."""
        noise = torch.as_tensor(np.random.default_rng(6).normal(size=200))
        others = problem.terms - problem.terms.mean(0)
        noise = noise - others @ torch.linalg.lstsq(others, noise).solution
        y = problem.terms[:, 4] + problem.terms[:, 5] + 0.1 * noise
        state = fit(
            replace(problem, y=y), options=EvidenceOptions(max_iter=80), inputs=False
        )
        assert state.support.tolist() == [False, True, True]
        assert not state.coef[:4].any()

    def test_the_strength_of_a_feature_sums_over_its_columns(self, problem, fit):
        """From dense algebra, each column's own prior left out."""
        state = fit(problem, options=UNTIL_STILL, inputs=False)
        found = feature_strength(problem, ones(problem), state, EvidenceOptions())
        kept = state.coef != 0
        centred = (problem.terms - problem.terms.mean(0))[:, kept]
        prior = state.coef_precision[self.GROUP[kept]]
        hessian = centred.T @ centred / state.dispersion + torch.diag(prior)
        variance = torch.linalg.inv(hessian).diagonal()
        statistic = (state.coef[kept] / variance).square() / (1 / variance - prior)
        expected = torch.zeros(3, dtype=torch.float64)
        expected.index_add_(0, problem.term_feature[kept], statistic)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)
