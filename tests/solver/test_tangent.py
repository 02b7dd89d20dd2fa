"""Derivatives by hand, and the algebra of one linearised step.

Shapes: n rows, q term columns, r inputs, p features, a active features, P weights,
m = q + P parameters.
"""

import pytest
import torch

from sknimo.families import FAMILIES
from sknimo.network import Modulator, keep_inputs, restore_inputs
from sknimo.solver import Rows
from sknimo.solver._tangent import (
    Dual,
    Primal,
    Tangent,
    linearise,
    working_rows,
)

AUTOGRAD_ATOL = 1e-12  # the same sums in another order
DIFFERENCE_ATOL = 1e-7  # promised; central differences leave about 1e-9
DIFFERENCE_STEP = 1e-5
ALGEBRA_RTOL = 1e-9  # dense inverses of matrices with condition numbers up to 1e4
CHUNK_RTOL = 1e-10  # promised; only the order of sums differs

BOTH_REGIMES = pytest.mark.parametrize(
    ("n", "m"), [(30, 12), (12, 30), (20, 20)], ids=["m<n", "m>n", "m=n"]
)


class TestTangent:
    """Derivatives by hand are those of the modulator, whatever is switched off."""

    CASES = {
        "plain": {},
        "columns in groups": {"widths": (2, 1, 3)},
        "inactive features": {"active": (1, 3)},
        "groups, inactive features": {"widths": (2, 1, 3, 1), "active": (0, 2)},
        "inputs off": {"off": (0, 2)},
        "groups, inputs off": {"widths": (2, 1, 3, 1), "active": (0, 3), "off": (2,)},
        "no mask": {"mask": False},
        "no mask, groups, inputs off": {
            "mask": False,
            "widths": (2, 1, 3),
            "active": (0, 1),
            "off": (1,),
        },
        "no code": {"code": "none"},
        "outputs of their own": {"own_out": True, "widths": (2, 1, 3)},
        "some of them": {"own_out": True, "active": (0, 2)},
        "one feature": {"widths": (1,)},
    }
    EVERY_CASE = pytest.mark.parametrize("case", CASES)

    @pytest.fixture
    def setup(self, make_problem, make_params):
        """A tangent on compact arrays, and the eta of the full network."""

        def setup(case):
            options = dict(self.CASES[case])
            active, off = options.pop("active", None), options.pop("off", ())
            problem = make_problem(n_rows=15, hidden=(3, 4), **options)
            spec = problem.spec
            p = spec.n_features
            active = torch.tensor(range(p) if active is None else active)
            params = make_params(spec)
            live = [j for j, owner in enumerate(spec.input_feature) if owner not in off]
            small, compact = keep_inputs(spec, params, torch.tensor(live))
            columns = torch.isin(problem.term_feature, active).nonzero().squeeze(-1)
            tangent = Tangent(
                small,
                problem.inputs[:, live],
                problem.terms[:, columns],
                problem.term_feature[columns],
                active,
            )
            modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)

            def design(compact):
                full = restore_inputs(
                    spec, small, compact.unsqueeze(0), torch.tensor(live)
                )
                everything = torch.arange(p).unsqueeze(0)
                bend = modulator(full, problem.inputs, everything)[0]
                bent = problem.terms * (1 + bend[:, problem.term_feature])
                return bent[:, columns]

            coef = torch.linspace(-1, 2, len(columns), dtype=torch.float64)
            return tangent, design, compact[0], coef

        return setup

    @EVERY_CASE
    def test_the_design_is_that_of_the_modulator(self, case, setup):
        tangent, design, params, _ = setup(case)
        expected = design(params)
        torch.testing.assert_close(
            tangent.design(params), expected, rtol=0, atol=AUTOGRAD_ATOL
        )
        assert case == "one feature" or not torch.equal(expected, tangent.terms)

    @EVERY_CASE
    def test_a_jacobian_after_a_design_is_the_same(self, case, setup):
        """Activations are taken over from the same weights, and from no others."""
        tangent, _, params, coef = setup(case)
        expected = tangent.jacobian(params, coef)
        other = params.clone()
        for kept in (params, other):
            design = tangent.design(kept, keep=True)
            assert torch.equal(tangent.jacobian(params, coef), expected)
            assert torch.equal(design, tangent.design(params))
        tangent.design(2 * params, keep=True)
        assert torch.equal(tangent.jacobian(params, coef), expected)
        tangent.design(params, keep=True)
        first = slice(0, 7)
        torch.testing.assert_close(
            tangent.jacobian(params, coef, first), expected[first], rtol=0, atol=1e-14
        )

    @EVERY_CASE
    def test_the_jacobian_is_that_of_autograd(self, case, setup):
        tangent, design, params, coef = setup(case)
        jacobian = tangent.jacobian(params, coef)
        expected = torch.autograd.functional.jacobian(
            lambda weights: design(weights) @ coef, params
        )
        assert jacobian.shape == (15, len(coef) + len(params))
        in_coef, in_params = jacobian.tensor_split([len(coef)], dim=1)
        torch.testing.assert_close(in_coef, design(params), rtol=0, atol=AUTOGRAD_ATOL)
        torch.testing.assert_close(in_params, expected, rtol=0, atol=AUTOGRAD_ATOL)

    @EVERY_CASE
    def test_blocks_of_rows_are_parts_of_the_whole(self, case, setup):
        tangent, _, params, coef = setup(case)
        chunks = tangent.chunks(6_000)
        assert 1 < len(chunks) < 15
        for whole, part in (
            (tangent.design(params), tangent.design),
            (
                tangent.jacobian(params, coef),
                lambda params, rows: tangent.jacobian(params, coef, rows),
            ),
        ):
            parts = torch.cat([part(params, rows) for rows in chunks])
            torch.testing.assert_close(parts, whole, rtol=0, atol=AUTOGRAD_ATOL)

    @EVERY_CASE
    def test_the_jacobian_is_that_of_finite_differences(self, case, setup):
        tangent, _, params, coef = setup(case)
        steps = DIFFERENCE_STEP * torch.eye(len(params), dtype=torch.float64)
        slopes = [
            (tangent.design(params + step) - tangent.design(params - step)) @ coef
            for step in steps
        ]
        expected = torch.stack(slopes, dim=1) / (2 * DIFFERENCE_STEP)
        torch.testing.assert_close(
            tangent.jacobian(params, coef)[:, len(coef) :],
            expected,
            rtol=0,
            atol=DIFFERENCE_ATOL,
        )

    def test_a_feature_alone_has_nothing_to_be_bent_by(self, setup):
        tangent, _, params, coef = setup("one feature")
        assert torch.equal(tangent.design(params), tangent.terms)
        in_params = tangent.jacobian(params, coef)[:, len(coef) :]
        assert (in_params.abs() < AUTOGRAD_ATOL).all()

    @pytest.mark.parametrize("nothing", ["features", "inputs"])
    def test_without_features_or_inputs_the_design_is_the_terms(
        self, nothing, make_problem, make_params
    ):
        problem = make_problem(hidden=(3, 4))
        spec, params, inputs = problem.spec, make_params(problem.spec), problem.inputs
        columns = torch.arange(4)
        if nothing == "inputs":
            spec, params = keep_inputs(spec, params, columns[:0])
            inputs = inputs[:, :0]
        else:
            columns = columns[:0]
        terms = problem.terms[:, columns]
        tangent = Tangent(spec, inputs, terms, columns, columns)
        jacobian = tangent.jacobian(params[0], torch.ones(len(columns)).double())
        assert tangent.is_linear
        assert torch.equal(tangent.design(params[0]), terms)
        assert jacobian.shape == (60, len(columns) + params.shape[1])
        assert torch.equal(jacobian[:, : len(columns)], terms)
        assert not jacobian[:, len(columns) :].any()


class TestLinearised:
    """Primal and dual algebra are the same, and so are blocks of rows."""

    DISPERSION = 0.4

    @staticmethod
    def draw(n, m, seed=0):
        generator = torch.Generator().manual_seed(seed)
        jacobian = torch.randn(n, m, generator=generator, dtype=torch.float64)
        residual = torch.randn(n, generator=generator, dtype=torch.float64)
        theta = torch.randn(m, generator=generator, dtype=torch.float64)
        precision = torch.logspace(-2, 2, m, dtype=torch.float64)
        return jacobian, residual @ jacobian, precision, theta

    @pytest.fixture(params=[Primal, Dual])
    def state(self, request):
        """The linearised loss in one form or the other."""

        def state(jacobian, pull):
            gain, pull = pull.new_zeros(1), pull.unsqueeze(0)
            if request.param is Dual:
                return Dual(jacobian.unsqueeze(0), pull, gain)
            return Primal((jacobian.T @ jacobian).unsqueeze(0), pull, gain)

        return state

    @BOTH_REGIMES
    @pytest.mark.parametrize("damping", [0.0, 1e-6, 0.7, 10.0])
    def test_the_step_minimises_the_damped_quadratic(self, n, m, damping, state):
        jacobian, pull, precision, theta = self.draw(n, m)
        damped = precision + damping
        downhill = pull / self.DISPERSION - precision * theta
        dispersion = torch.tensor([self.DISPERSION], dtype=torch.float64)
        factor = state(jacobian, pull).factorised(dispersion, damped[None])
        move = factor.solve(downhill[None, :, None])[0, :, 0]
        # Half of |r - J d|^2 / dispersion + sum precision (theta + d)^2 + damping d^2.
        hessian = jacobian.T @ jacobian / self.DISPERSION + torch.diag(damped)
        torch.testing.assert_close(
            move, torch.linalg.solve(hessian, downhill), rtol=ALGEBRA_RTOL, atol=1e-12
        )

    @BOTH_REGIMES
    def test_the_posterior_is_that_of_dense_algebra(self, n, m, state):
        jacobian, pull, precision, _ = self.draw(n, m)
        dispersion = torch.tensor([self.DISPERSION], dtype=torch.float64)
        factor = state(jacobian, pull).factorised(dispersion, precision[None])
        posterior = factor.posterior()
        hessian = jacobian.T @ jacobian / self.DISPERSION + torch.diag(precision)
        torch.testing.assert_close(
            posterior.variance[0],
            torch.linalg.inv(hessian).diagonal(),
            rtol=ALGEBRA_RTOL,
            atol=0,
        )
        expected = torch.linalg.slogdet(hessian)[1] - precision.log().sum()
        assert posterior.half_log_det.item() == pytest.approx(
            expected.item() / 2, rel=ALGEBRA_RTOL
        )

    @pytest.mark.parametrize("n_rows", [40, 300], ids=["m>n", "m<n"])
    @pytest.mark.parametrize("chunk", [1, 7, 1000])
    @pytest.mark.parametrize("family", list(FAMILIES))
    def test_whitening_weighs_the_rows_and_takes_the_intercept_out(
        self, family, chunk, n_rows, make_problem, make_params
    ):
        """Against a dense projection of the whole Jacobian."""
        problem = make_problem(family, n_rows=n_rows, hidden=(3, 4), offset=True)
        everything = torch.arange(4)
        # Columns far from zero: a difference of large moments would lose digits.
        terms = problem.terms + 1e4
        tangent = Tangent(problem.spec, problem.inputs, terms, everything, everything)
        params, coef = make_params(problem.spec)[0], torch.full((4,), 1e-5).double()
        weight = torch.linspace(0, 2, n_rows, dtype=torch.float64)
        rows = Rows(problem.y, problem.offset, weight.unsqueeze(0), problem.family)
        eta = problem.offset + 0.1 + tangent.design(params) @ coef
        chunks = [slice(k, k + chunk) for k in range(0, n_rows, chunk)]
        working = working_rows(rows, eta.unsqueeze(0))
        linear = linearise(
            tangent, params.unsqueeze(0), coef.unsqueeze(0), working, chunks
        ).take(0)
        curvature = weight * problem.family.curvature(problem.y, eta)
        score = weight * problem.family.score(problem.y, eta)
        jacobian = tangent.jacobian(params, coef)
        centred = jacobian - (curvature @ jacobian) / curvature.sum()
        gram = centred.T @ (curvature.unsqueeze(-1) * centred)
        scale = gram.diagonal().sqrt()
        found = (
            linear.gram
            if isinstance(linear, Primal)
            else linear.jacobian.T @ linear.jacobian
        )
        gap = (found - gram) / (scale * scale.unsqueeze(-1)).clamp(min=1e-12)
        assert gap.abs().max() < CHUNK_RTOL
        torch.testing.assert_close(
            linear.pull / scale, score @ centred / scale, rtol=0, atol=CHUNK_RTOL * 100
        )
        assert linear.level_gain.item() == pytest.approx(
            score.sum().item() ** 2 / curvature.sum().item(), rel=1e-9, abs=1e-20
        )
