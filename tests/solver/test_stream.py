"""Columns that are not in memory: the same answer, block by block.

Shapes: K models, n rows, q terms, p features.
"""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.families import FAMILIES, get_family
from sknimo.penalties import make_penalty
from sknimo.solver import Options, solve
from sknimo.solver import _supply as draws
from sknimo.solver._forward import Bent, Forward
from sknimo.solver._profile import (
    Coefficients,
    Rows,
    expand,
    newton_steps,
    solve_coefficients,
)
from sknimo.solver._quadratic import Design
from sknimo.solver._supply import Batches, Noise

SAME_ATOL = 1e-8  # the figure promised: blocks change the order of sums alone
ALGEBRA_RTOL = 1e-10
SHORT = Options(
    max_iter=12,
    check_every=4,
    patience=100,
    learning_rate=0.05,
    scale_contributions=True,
)
SMALL = 20_000  # bytes: many blocks, too little to keep a design

SOME_FAMILIES = pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
BOTH_PRICES = pytest.mark.parametrize("scale_contributions", [False, True])


def assert_same(left, right, atol=SAME_ATOL):
    for name in ("coef", "intercept", "params", "objective", "glm_objective"):
        torch.testing.assert_close(
            getattr(left, name), getattr(right, name), rtol=0, atol=atol, equal_nan=True
        )
    assert torch.equal(left.modulated, right.modulated)
    assert left.status == right.status
    np.testing.assert_allclose(
        left.history.objective, right.history.objective, rtol=0, atol=atol
    )


class TestSolutions:
    """Where the table lies and how it is cut does not matter."""

    @pytest.mark.parametrize(
        "budget", [SMALL, pytest.param(60_000, marks=pytest.mark.slow), 10**8]
    )
    @BOTH_PRICES
    @SOME_FAMILIES
    def test_stored_columns_equal_columns_in_memory(
        self, family, scale_contributions, budget, store, make_problem, make_members
    ):
        problem = make_problem(family, n_rows=80, widths=(1, 2, 1), offset=True)
        often = 1 + (torch.arange(80) % 5 == 0)
        members = make_members(
            problem, 2, alpha=0.01, weight=often, validation=3 - often
        )
        options = replace(SHORT, scale_contributions=scale_contributions)
        whole = solve(problem, members, options)
        assert whole.modulated.any()
        stored = store(problem)
        small = replace(options, memory_budget=budget)
        assert_same(whole, solve(stored, members, small))
        assert stored.columns.n_read > 0
        if budget == SMALL:
            assert stored.columns.largest < 80 / 4

    @SOME_FAMILIES
    def test_noise_belongs_to_the_row(self, family, store, make_problem, make_members):
        problem = make_problem(family, n_rows=80)
        members = make_members(problem, alpha=0.02)
        noisy = replace(SHORT, noise=0.3)
        whole = solve(problem, members, noisy)
        small = solve(store(problem), members, replace(noisy, memory_budget=SMALL))
        assert_same(whole, small)
        clean = solve(problem, members, SHORT)
        assert (clean.params - whole.params).abs().max() > 1e-4

    @pytest.mark.parametrize("budget", [SMALL, 10**8])
    @pytest.mark.parametrize("noise", [0.0, 0.3])
    @SOME_FAMILIES
    def test_batches_of_stored_rows_are_those_of_rows_in_memory(
        self, family, noise, budget, store, make_problem, make_members
    ):
        problem = make_problem(family, n_rows=80)
        members = make_members(problem, 2, alpha=0.02)
        options = replace(SHORT, batch_size=24, noise=noise)
        whole = solve(problem, members, options)
        stored = solve(store(problem), members, replace(options, memory_budget=budget))
        assert_same(whole, stored)

    def test_single_precision_follows_too(self, store, make_problem, make_members):
        problem = make_problem(n_rows=80)
        members = make_members(problem, alpha=0.02)
        options = replace(SHORT, dtype=torch.float32)
        whole = solve(problem, members, options)
        stored = solve(store(problem), members, replace(options, memory_budget=SMALL))
        assert_same(whole, stored, 1e-4)

    @BOTH_PRICES
    def test_profile_comes_in_blocks_too(
        self,
        scale_contributions,
        store,
        make_problem,
        make_members,
        make_params,
        profile,
    ):
        problem = make_problem("poisson", n_rows=80)
        members = make_members(problem, alpha=0.05)
        params = make_params(problem.spec)
        options = Options(scale_contributions=scale_contributions)
        whole = profile(problem, members, options, params)
        parts = profile(
            store(problem), members, replace(options, memory_budget=SMALL), params
        )
        for name in ("objective", "gradient", "eta"):
            torch.testing.assert_close(
                getattr(parts, name), getattr(whole, name), rtol=0, atol=SAME_ATOL
            )

    def test_a_step_that_needs_the_table_in_memory_says_so(self, store, make_problem):
        with pytest.raises(TypeError, match="read by blocks"):
            _ = store(make_problem()).terms


class TestReads:
    """A stored table is read as rarely as the mathematics allows."""

    def test_a_gaussian_step_reads_every_row_twice(
        self, store, make_problem, make_members
    ):
        """Once for the solve and once for the gradient, however small the blocks."""
        stored = store(make_problem(n_rows=80))
        members = make_members(stored, alpha=0.02)
        forward = Forward(stored, members, replace(SHORT, memory_budget=SMALL))
        params = torch.zeros(1, stored.spec.n_params).double()
        bent = Bent.by(params, torch.ones(1, 4).bool())
        at = forward.solve_exactly(bent, None).coefficients
        assert len(forward.supply.blocks(1, 4)) > 4
        before = stored.columns.n_read
        forward.differentiate(bent, at, None)
        assert stored.columns.n_read - before == 2 * 80

    def test_a_pass_of_batches_reads_every_row_once(
        self, store, make_problem, make_members, monkeypatch
    ):
        monkeypatch.setattr(draws, "PAGE_ROWS", 16)
        monkeypatch.setattr(draws, "POOL_ROWS", 64)
        stored = store(make_problem(n_rows=200))
        members = make_members(stored, alpha=0.02)
        options = replace(SHORT, batch_size=24, memory_budget=10**8)
        forward = Forward(stored, members, options)
        assert forward.supply.pool is not None
        params = torch.zeros(1, stored.spec.n_params).double()
        bent = Bent.by(params, torch.ones(1, 4).bool())
        at = forward.solve_exactly(bent, None).coefficients
        before = stored.columns.n_read
        batches = Batches(200, 24, seed=0)
        for _ in range(25):  # 25 batches are three passes
            batch = batches.draw()
            forward.differentiate_batch(bent, members.penalty, at, batch, batches.order)
        # A row left over from one pass may be in the next pool as well.
        assert 540 < stored.columns.n_read - before <= 600
        assert len(forward.supply.pool.rows) <= 64 + 24


class TestDraws:
    """What is drawn depends on seed, step and row."""

    @pytest.fixture(autouse=True)
    def small_pages(self, monkeypatch):
        monkeypatch.setattr(draws, "PAGE_ROWS", 10)
        monkeypatch.setattr(draws, "POOL_ROWS", 40)

    @pytest.mark.parametrize("n_rows", [7, 40, 95])
    @pytest.mark.parametrize("size", [1, 7, 60])
    def test_every_row_comes_once_per_pass(self, n_rows, size):
        batches = Batches(n_rows, size, seed=0)
        size = min(size, n_rows)
        drawn = torch.cat([batches.draw() for _ in range(n_rows)])
        assert len(drawn) == size * n_rows
        for one_pass in drawn.split(n_rows):
            assert torch.equal(one_pass.sort().values, torch.arange(n_rows))

    def test_pages_come_in_another_order_every_pass(self):
        batches = Batches(95, 5, seed=0)
        passes = [torch.cat([batches.draw() for _ in range(19)]) for _ in range(2)]
        assert not torch.equal(*passes)
        # Rows of one batch come from all over the pool.
        assert len((passes[0][:5] // 10).unique()) > 2

    def test_batches_go_on_from_their_state(self):
        batches, other = Batches(95, 7, seed=0), Batches(95, 7, seed=1)
        for _ in range(5):
            batches.draw()
        state = {name: value.clone() for name, value in batches.state().items()}
        expected = [batches.draw() for _ in range(40)]
        other.restore(state)
        assert all(torch.equal(other.draw(), batch) for batch in expected)

    def test_noise_does_not_depend_on_the_cut(self):
        whole = Noise(3, 4).draw(5, 0, 95, 95)
        assert whole.shape == (95, 4)
        cut = Noise(3, 4)
        parts = [
            cut.draw(5, begin, min(begin + 7, 95), 95) for begin in range(0, 95, 7)
        ]
        assert torch.equal(torch.cat(parts), whole)
        assert torch.equal(cut.draw(5, 33, 81, 95), whole[33:81])

    def test_noise_differs_between_steps_pages_and_seeds(self):
        drawn = [
            Noise(3, 4).draw(5, 0, 10, 95),
            Noise(3, 4).draw(6, 0, 10, 95),
            Noise(3, 4).draw(5, 10, 20, 95),
            Noise(4, 4).draw(5, 0, 10, 95),
        ]
        for k, left in enumerate(drawn):
            assert not any(torch.equal(left, right) for right in drawn[k + 1 :])

    def test_noise_is_standard_normal(self):
        drawn = Noise(0, 50).draw(0, 0, 2000, 2000).double()
        assert abs(float(drawn.mean())) < 0.02  # six standard errors
        assert abs(float(drawn.std()) - 1) < 0.02


class TestInnerSolve:
    """Sums over blocks are the sums over all rows."""

    @pytest.fixture(params=list(FAMILIES))
    def inner(self, request, draw_response):
        rng = np.random.default_rng(0)
        design = torch.as_tensor(rng.normal(size=(2, 90, 6)))
        y = draw_response(request.param, design[0].numpy() @ rng.normal(size=6) * 0.4)
        weight = torch.as_tensor(rng.uniform(0.2, 1.8, size=(2, 90)))
        weight[:, 30:40] = 0  # a block without weight
        rows = Rows(
            torch.as_tensor(y),
            torch.as_tensor(0.3 * rng.normal(size=90)),
            weight / weight.sum(-1, keepdim=True),
            get_family(request.param),
        )
        return design, rows

    def cut(self, design, size=10, keep=False):
        starts = range(0, design.shape[1], size)
        return Design(
            lambda rows: design[:, rows],
            [slice(begin, min(begin + size, design.shape[1])) for begin in starts],
            design.shape[2],
            keep,
        )

    @pytest.mark.parametrize("shift", [0.0, 1e6])
    def test_moments_merge_without_losing_digits(self, inner, shift):
        """Raw sums of squares would leave four digits at a shift of 1e6."""
        design, rows = inner
        at = Coefficients(torch.zeros(2, 6).double(), torch.full((2,), 0.1).double())
        centred = expand(design, rows, at, square=True)
        parts = expand(self.cut(design + shift), rows, at, square=True)
        scale = centred.gram.abs().max()
        torch.testing.assert_close(
            parts.gram / scale, centred.gram / scale, rtol=0, atol=1e-9
        )
        torch.testing.assert_close(parts.moment, centred.moment, rtol=0, atol=1e-9)
        torch.testing.assert_close(parts.level, centred.level, rtol=0, atol=1e-9)
        direct = (rows.weight.unsqueeze(-1) * (design + shift).square()).sum(1)
        torch.testing.assert_close(parts.square, direct, rtol=ALGEBRA_RTOL, atol=0)

    @pytest.mark.parametrize(
        ("penalty", "size"),
        [
            *[(penalty, 13) for penalty in ("ridge", "lasso", "sub_l1")],
            *[("lasso", size) for size in (1, 90)],
            *[
                pytest.param(penalty, size, marks=pytest.mark.slow)
                for penalty in ("ridge", "sub_l1")
                for size in (1, 90)
            ],
        ],
    )
    def test_solutions_do_not_depend_on_blocks(self, inner, penalty, size):
        design, rows = inner
        strength = torch.tensor([0.01, 0.1]).double()
        prices = make_penalty(penalty, strength, torch.arange(6), 6, 0.5)
        whole = solve_coefficients(design, rows, prices)
        parts = solve_coefficients(self.cut(design, size), rows, prices)
        assert parts.converged.all()
        torch.testing.assert_close(
            parts.coefficients.coef, whole.coefficients.coef, rtol=0, atol=1e-8
        )
        assert torch.equal(parts.coefficients.coef == 0, whole.coefficients.coef == 0)
        assert parts.kkt.max() <= 1e-8
        step = newton_steps(
            self.cut(design, size), rows, torch.ones(2, 6).double(), whole.coefficients
        )
        expected = newton_steps(
            design, rows, torch.ones(2, 6).double(), whole.coefficients
        )
        torch.testing.assert_close(step.coef, expected.coef, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("family", ["binomial", "poisson"])
    def test_saturated_rows_are_lifted_alike_in_every_cut(self, family, inner):
        design, rows = inner
        rows = replace(rows, family=get_family(family), y=(rows.y > 0).double())
        far = design.clone()
        far[:, :5] *= 40  # working weights of exp(-40) and less
        at = Coefficients(torch.ones(2, 6).double(), torch.zeros(2).double())
        bare = rows.curvature(rows.eta(far, at.coef, at.intercept))
        counts = rows.weight > 0
        floor = 1e-8 * bare.sum(-1, keepdim=True) * rows.weight
        assert (bare < floor)[counts].any()
        whole, parts = expand(far, rows, at), expand(self.cut(far), rows, at)
        torch.testing.assert_close(
            parts.gram, whole.gram, rtol=ALGEBRA_RTOL, atol=1e-12
        )
        # By hand: lifted, centred, squared.
        lifted = torch.maximum(bare, floor)
        mean = (lifted.unsqueeze(-1) * far).sum(1) / lifted.sum(-1, keepdim=True)
        centred = far - mean.unsqueeze(1)
        gram = centred.mT @ (lifted.unsqueeze(-1) * centred)
        torch.testing.assert_close(whole.gram, gram, rtol=ALGEBRA_RTOL, atol=1e-12)

    def test_kept_blocks_are_made_once(self, inner):
        design, rows = inner
        made = []

        def make(some):
            made.append(some)
            return design[:, some]

        halves = [slice(0, 50), slice(50, 90)]
        prices = make_penalty(
            "lasso", torch.ones(2).double() * 0.05, torch.arange(6), 6
        )
        solve_coefficients(Design(make, halves, 6, keep=True), rows, prices)
        assert made == halves


STREAMED_FIT = """
import json, resource, sys, tempfile
import numpy as np
import torch

from sknimo.families import get_family
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Options, Problem, solve

torch.set_num_threads(1)
n, p, budget = 200_000, 40, 20_000_000
batch_size = int(sys.argv[1])


class Made:
    "Columns that are computed when they are read."

    n_rows, n_terms, device = n, p, torch.device("cpu")

    def read(self, rows):
        return self.take(torch.arange(rows.start, rows.stop))

    def take(self, index):
        phase = index.double().unsqueeze(1) * torch.arange(1, p + 1).double().sqrt()
        terms = 1.4 * phase.sin()
        return terms, terms


def fit(columns, n, n_iter):
    weight = torch.full((1, n), 1 / n, dtype=torch.float64)
    y = torch.empty(n, dtype=torch.float64)
    for part in torch.arange(n).split(10_000):
        terms, _ = columns.take(part)
        y[part] = terms[:, 0] * (1 + terms[:, 1].tanh()) + terms[:, 2]
    problem = Problem(
        columns, torch.arange(p), y, torch.zeros_like(y), get_family("gaussian"),
        make_spec(range(p), p, (16, 16)),
    )
    members = Members(
        make_penalty("lasso", torch.tensor([0.01]).double(), torch.arange(p), p),
        torch.zeros(1).double(), (0,), weight, None,
    )
    options = Options(
        max_iter=n_iter, memory_budget=budget, scale_contributions=True,
        batch_size=batch_size, dtype=torch.float32,
    )
    return solve(problem, members, options)


peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
small = Made()
small.n_rows = 2000
fit(small, 2000, 3)
before = peak()
solution = fit(Made(), n, 3)
print(json.dumps({
    "growth": peak() - before,
    "vectors": 8 * n,
    "kkt": float(solution.kkt),
    "n_modulated": int(solution.modulated.sum()),
}))
"""


@pytest.mark.parametrize("batch_size", [0, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_memory_stays_within_the_budget_whatever_the_rows(batch_size):
    """Terms and inputs of 128 MB in a budget of 20 MB."""
    done = subprocess.run(
        [sys.executable, "-c", STREAMED_FIT, str(batch_size)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    report = json.loads(done.stdout)
    assert report["kkt"] < SAME_ATOL
    assert report["n_modulated"] > 0
    # The budget, what the allocator wastes, and some ten vectors of a number per row.
    assert report["growth"] < 1.5 * 20e6 + 12 * report["vectors"]
