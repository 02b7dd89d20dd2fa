"""Additive models: ridge for given precisions, learned ones by evidence, exact bags.

Precisions of groups are drawn towards those of their kind, and groups that do nothing
are left out: `ALONE` asks for neither, and then the evidence has its maximum.

Oracles: normal equations written out, gradients that vanish, refits on the rows that
remain, and the members without a network that `fit_evidence` makes.

Shapes: n rows, q terms, g groups of terms, K bags.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.families import get_family
from sknimo.features import FeatureOptions, fit_features
from sknimo.network import make_spec
from sknimo.solver import (
    EvidenceOptions,
    MemoryColumns,
    Prior,
    Problem,
    bag_moments,
    fit_additive,
    solve_bags,
)
from sknimo.solver._additive import AdditiveFit, AdditiveOptions, predict_additive
from sknimo.training import state_columns

RIDGE_RTOL = 1e-8  # normal equations of a few dozen rows
GRADIENT_ATOL = 1e-6  # of sums over rows, after steps that all keep one matrix
PRECISION_RTOL = 0.1  # `AdditiveOptions.tol` stops at changes of five per cent
FIXED_POINT_RTOL = 1e-6  # after updates until nothing moves
ALL = AdditiveOptions(least_wald=0, least_curve_wald=0)
ALONE = replace(ALL, pooling=0)
STILL = replace(ALL, tol=1e-12, updates_least_squares=3000)

EVERY_FAMILY = pytest.mark.parametrize(
    "family", ["gaussian", "binomial", "poisson", "gamma"]
)
GLMS = pytest.mark.parametrize("family", ["binomial", "poisson", "gamma"])


def some_weight(problem):
    weight = np.random.default_rng(3).uniform(0.5, 2.0, problem.n_rows)
    return torch.as_tensor(weight)


def given_fit(problem, coef=0.0, dispersion=0.7):
    """Precisions that were not learned, around coefficients that are far off."""
    precision = torch.linspace(0.5, 5.0, problem.n_groups).double()
    coef = torch.full((problem.n_terms,), 0.1 + coef, dtype=torch.float64)
    level = torch.tensor(0.3).double()
    return AdditiveFit(coef, coef, level, precision, dispersion, 0.0)


def slope(problem, weight, ridge, coef, intercept):
    """Gradient of loss plus ridge, in intercept and coefficients, (q + 1,)."""
    eta = problem.offset + intercept + problem.terms @ coef
    score = problem.family.score(problem.y, eta) * weight
    return torch.cat([score.sum().view(1), score @ problem.terms - ridge * coef])


def normal_equations(problem, weight, ridge):
    """Intercept and coefficients of weighted ridge regression, (q + 1,)."""
    X = np.column_stack([np.ones(problem.n_rows), problem.terms.numpy()])
    w, y = weight.numpy(), (problem.y - problem.offset).numpy()
    penalty = np.diag([0.0, *ridge.tolist()])
    return np.linalg.solve(X.T @ (w[:, None] * X) + penalty, X.T @ (w * y))


def spread(problem, weight, fit):
    """Variances of coefficients of least squares under their priors, (q,)."""
    X, w = problem.terms.numpy(), weight.numpy()
    centred = X - np.average(X, axis=0, weights=w)
    gram = centred.T @ (w[:, None] * centred)
    ridge = np.diag(fit.ridge(problem.term_group))
    return np.diag(np.linalg.inv(gram + ridge)) * fit.dispersion


def learned_by_group(problem, weight, fit):
    """Coefficients that the rows determine and squares, of every group, (g,) each."""
    variance = spread(problem, weight, fit)
    size, used, square = (
        np.bincount(problem.term_group, values, problem.n_groups)
        for values in (np.ones_like(variance), variance, fit.coef.numpy() ** 2)
    )
    return size - fit.precision.numpy() * used, square


def folds_of(weight, n_bags=3):
    """Weights that bags leave out, (K, n)."""
    fold = torch.arange(len(weight)) % n_bags
    return torch.stack([weight * (fold == k) for k in range(n_bags)])


class TestMoments:
    """Sums that bags of least squares share are worked out once."""

    def test_a_fit_with_them_is_that_without(self, make_problem):
        problem = make_problem("gaussian", n_rows=200)
        train = some_weight(problem) - folds_of(some_weight(problem))
        for weight, known in zip(train, bag_moments(problem, train), strict=True):
            found = fit_additive(problem, weight, ALL, moments=known)
            expected = fit_additive(problem, weight, ALL)
            for name in ("coef", "intercept", "precision"):
                ours, theirs = getattr(found, name), getattr(expected, name)
                torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)

    def test_those_of_other_families_are_not_known(self, make_problem):
        problem = make_problem("poisson", n_rows=50)
        train = some_weight(problem) - folds_of(some_weight(problem))
        assert set(bag_moments(problem, train)) == {None}


class TestBags:
    """Coefficients of a bag are those of the rows that it has."""

    @pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 3)])
    def test_least_squares_solves_the_normal_equations_without_the_rows(
        self, widths, make_problem
    ):
        problem = make_problem(widths=widths, offset=True)
        weight, fit = some_weight(problem), given_fit(problem)
        left_out = torch.cat([torch.zeros_like(weight).view(1, -1), folds_of(weight)])
        coef, intercept = solve_bags(problem, weight, left_out, fit, n_steps=1)
        ridge = fit.ridge(problem.term_group)
        for k, out in enumerate(left_out):
            expected = normal_equations(problem, weight - out, ridge)
            found = [float(intercept[k]), *coef[k].tolist()]
            assert found == pytest.approx(expected, rel=RIDGE_RTOL)

    @GLMS
    def test_other_families_end_where_the_gradient_vanishes(self, family, make_problem):
        problem = make_problem(family, n_rows=200, widths=(2, 1, 3), offset=True)
        weight = some_weight(problem)
        fit = fit_additive(problem, weight, AdditiveOptions())
        left_out, ridge = folds_of(weight), fit.ridge(problem.term_group)
        coef, intercept = solve_bags(problem, weight, left_out, fit, n_steps=40)
        for k, out in enumerate(left_out):
            rest = slope(problem, weight - out, ridge, coef[k], intercept[k])
            live = torch.cat([torch.ones(1), fit.coef]) != 0
            assert rest[live].abs().max() < GRADIENT_ATOL

    @GLMS
    def test_a_few_steps_are_enough(self, family, make_problem):
        """Predictions differ by much less than those of neighbouring bags do."""
        problem = make_problem(family, n_rows=200)
        weight = some_weight(problem)
        fit = fit_additive(problem, weight, AdditiveOptions())
        few, many = (
            solve_bags(problem, weight, folds_of(weight), fit, n_steps)
            for n_steps in (4, 40)
        )
        gap = (few[0] - many[0]).abs().max()
        assert gap < 0.02 * (many[0][0] - many[0][1]).abs().max()

    @pytest.mark.parametrize("n_steps", [1, 2, 3, 4])
    def test_steps_that_would_raise_the_loss_of_a_bag_are_halved(
        self, n_steps, make_problem
    ):
        """Sure of every class, and wrong: the matrix says next to nothing there."""
        problem = make_problem("binomial", n_rows=200)
        weight, fit = some_weight(problem), given_fit(problem, coef=9.0)
        out = torch.where(torch.arange(200) < 180, 0.0, weight)
        coef, intercept = solve_bags(problem, weight, out[None], fit, n_steps)
        ridge = fit.ridge(problem.term_group)

        def objective(coef, intercept):
            eta = problem.terms @ coef + problem.offset + intercept
            loss = (weight - out) @ problem.family.loss(problem.y, eta)
            return float(loss + (ridge * coef.square()).sum() / 2)

        before = objective(fit.coef, fit.intercept)
        assert objective(coef[0], intercept[0]) < before

    def test_part_of_the_weight_can_be_left_out(self, make_problem):
        problem = make_problem()
        weight, fit = some_weight(problem), given_fit(problem)
        out = weight * torch.linspace(0.0, 0.8, len(weight)).double()
        coef, _ = solve_bags(problem, weight, out.view(1, -1), fit, 1)
        expected = normal_equations(problem, weight - out, fit.ridge(torch.arange(4)))
        assert coef[0].tolist() == pytest.approx(expected[1:], rel=RIDGE_RTOL)

    def test_what_is_idle_stays_exactly_zero(self, make_problem):
        problem = make_problem()
        weight, fit = some_weight(problem), given_fit(problem)
        coef = fit.coef * torch.tensor([1.0, 0.0, 1.0, 0.0])
        fit = replace(fit, coef=coef, own=coef)
        coef, _ = solve_bags(problem, weight, folds_of(weight), fit, 1)
        assert (coef[:, 1::2] == 0).all()
        assert (coef[:, ::2] != 0).all()


class TestPrecisions:
    """Learned precisions are stationary points of the evidence."""

    @pytest.mark.parametrize("pooling", [0.0, 0.3, 1.0])
    def test_least_squares_ends_at_a_fixed_point(self, pooling):
        """`(gamma + 2 a) / (square + 2 a / common)`, alone for `a = 0`."""
        problem, _ = curved_problem(wavy, n_rows=120, missing=True)
        weight = some_weight(problem)
        fit = fit_additive(problem, weight, replace(STILL, pooling=pooling))
        expected = normal_equations(problem, weight, fit.ridge(problem.term_group))
        live = (fit.precision < STILL.precision_range[1])[problem.term_group].numpy()
        scale = np.abs(expected[1:]).max()
        gap = np.abs(fit.coef.numpy() - expected[1:])
        assert gap[live].max() < FIXED_POINT_RTOL * scale
        gamma, square = learned_by_group(problem, weight, fit)
        precision = fit.precision.numpy()
        kind = np.repeat([0, 1, 0], 3)  # lines, curves, indicators of missing values
        common = np.array(
            [gamma[kind == k].sum() / square[kind == k].sum() for k in (0, 1)]
        )
        found = (gamma + 2 * pooling) / (square + 2 * pooling / common[kind])
        there = np.bincount(problem.term_group, minlength=9) > 0
        # Alone, what does nothing is on its way to infinity.
        sure = there & (precision < (1e3 if pooling == 0 else np.inf))
        assert sure[kind == 0].sum() >= 3 and sure[kind == 1].sum() >= 1
        assert found[sure] == pytest.approx(precision[sure], rel=1e-4)

    def test_pooling_draws_precisions_together(self):
        problem, _ = curved_problem(wavy, n_rows=120)
        weight = some_weight(problem)
        apart, near, together = (
            fit_additive(problem, weight, replace(STILL, pooling=a)).precision.log()
            for a in (0.0, 1.0, 1e6)
        )
        for kind in (slice(0, 3), slice(3, 6)):
            assert near[kind].std() < 0.7 * apart[kind].std()
            assert together[kind].std() < 1e-3
        assert abs(together[0] - together[3]) > 0.1  # kinds do not mix

    @EVERY_FAMILY
    def test_they_are_those_of_a_member_without_a_network(
        self, family, make_problem, fit
    ):
        problem = make_problem(family, n_rows=300, widths=(2, 1, 3, 1))
        ones = torch.ones(300, dtype=torch.float64)
        found = fit_additive(problem, ones, ALONE)
        options = EvidenceOptions(max_iter=60)
        member = fit(problem, ones, options, inputs=False)
        live = (found.coef != 0) & (member.coef != 0)
        assert live.sum() >= 4
        groups = problem.term_group[live].unique()
        ratio = found.precision[groups] / member.coef_precision[groups]
        sure = member.coef_precision[groups] < 50  # others drift to infinity, slowly
        assert sure.any()
        assert ((ratio[sure] - 1).abs() < PRECISION_RTOL).all()
        scale = member.coef.abs().max()
        assert ((found.coef - member.coef)[live].abs() < 0.02 * scale).all()
        assert found.dispersion == pytest.approx(member.dispersion, rel=0.02)

    def test_weights_count_repeated_rows(self, make_problem):
        problem = make_problem(n_rows=60)
        counts = 1 + torch.arange(60) % 3
        again = problem.take(torch.repeat_interleave(torch.arange(60), counts))
        once = fit_additive(problem, counts.double(), AdditiveOptions())
        ones = torch.ones(again.n_rows, dtype=torch.float64)
        repeated = fit_additive(again, ones, AdditiveOptions())
        gap = (once.coef - repeated.coef).abs().max()
        assert gap < RIDGE_RTOL * once.coef.abs().max()
        assert once.dispersion == pytest.approx(repeated.dispersion, rel=1e-8)

    def test_rows_of_no_weight_teach_nothing_where_no_noise_is_left(self, make_problem):
        """The fit of all rows, where a bag begins, has seen them."""
        problem = make_problem("gaussian", n_rows=40, widths=(1,) * 80)
        weight, out = torch.ones(40, dtype=torch.float64), torch.arange(40) < 8
        nothing = torch.full((problem.n_groups,), 1e-6, dtype=torch.float64)
        held = replace(STILL, updates_least_squares=0)

        def bag(problem):
            start = replace(given_fit(problem, dispersion=1e-4), precision=nothing)
            known = fit_additive(problem, weight, held, start)
            return fit_additive(problem, torch.where(out, 0.0, weight), held, known)

        other = replace(problem, y=torch.where(out, 9.0, problem.y))
        one, two = bag(problem).coef, bag(other).coef
        torch.testing.assert_close(one, two, rtol=0, atol=1e-2)  # of about one

    @pytest.mark.parametrize("seed", range(3))
    def test_more_terms_than_rows_do_not_explain_noise(self, seed, make_problem):
        problem = make_problem("gaussian", n_rows=60, widths=(1,) * 200)
        rng = np.random.default_rng(seed)
        problem = replace(problem, y=torch.as_tensor(rng.normal(size=60)))
        weight = torch.ones(60, dtype=torch.float64)
        fit = fit_additive(problem, weight, replace(ALL, pooling=1000.0))
        assert fit.dispersion > 0.1
        assert fit.n_effective < 50

    def test_no_terms_leave_the_intercept(self, make_problem):
        problem = make_problem("poisson", n_rows=40)
        nothing = torch.empty(40, 0, dtype=torch.float64)
        empty = Problem.in_memory(
            terms=nothing,
            inputs=problem.inputs,
            term_feature=torch.empty(0, dtype=torch.long),
            y=problem.y,
            offset=problem.offset,
            family=problem.family,
            spec=problem.spec,
        )
        ones = torch.ones(40, dtype=torch.float64)
        fit = fit_additive(empty, ones, AdditiveOptions())
        mean = float(problem.y.mean())
        assert float(fit.intercept) == pytest.approx(np.log(mean), rel=1e-6)


def wavy(X, rng):
    """A strong wave, a faint one, a line, and noise."""
    known = np.nan_to_num(X)
    eta = np.sin(2 * known[:, 0]) + 0.5 * known[:, 1] + 0.3 * np.cos(2 * known[:, 2])
    return eta + 0.2 * rng.normal(size=len(X))


def curved_problem(
    y_of, family="gaussian", n_rows=800, p=3, seed=0, missing=False, n_edges=16
):
    """A table of curves of straight pieces; `y_of(X, rng)` makes the target."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n_rows, p))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    names, ones = [f"x{j}" for j in range(p)], np.ones(n_rows)
    options = FeatureOptions(basis="ramps", n_edges=n_edges)
    features = fit_features(X, names, ones, (None,) * p, options)
    owner = torch.as_tensor(features.term_feature)
    problem = Problem(
        columns=state_columns(features, X),
        term_feature=owner,
        term_group=torch.as_tensor(features.term_group),
        y=torch.as_tensor(y_of(X, rng)),
        offset=torch.zeros(n_rows, dtype=torch.float64),
        family=get_family(family),
        spec=make_spec(features.input_feature, p, (3, 3)),
    )
    return problem, X


def sizes(problem, fit):
    """Standard deviation of what each group adds, lines then curves, (2, p)."""
    p = problem.spec.n_features
    each = torch.zeros(problem.n_rows, 2 * p).double()
    each.index_add_(1, problem.term_group, problem.terms * fit.coef)
    return each.std(0).view(2, p)


class TestCurves:
    """Curves appear where the rows want them."""

    @EVERY_FAMILY
    def test_a_line_stays_a_line(self, family, draw_response):
        """By chance the evidence keeps a faint curve now and then."""

        def line(X, rng):
            return draw_response(family, 0.8 * X[:, 0] - 0.4 * X[:, 1], seed)

        faint = []
        for seed in range(16):
            problem, _ = curved_problem(line, family, seed=seed)
            ones = torch.ones(problem.n_rows, dtype=torch.float64)
            fit = fit_additive(problem, ones, AdditiveOptions())
            lines, curves = sizes(problem, fit)
            assert (lines[:2] > 0.25).all()
            assert (curves < 0.25 * lines[0]).all()
            faint += (curves < 0.05 * lines[0]).tolist()
        assert np.mean(faint) > 0.7

    @EVERY_FAMILY
    def test_a_sine_is_found(self, family, draw_response):
        def sine(X, rng):
            return draw_response(family, 1.5 * np.sin(2 * X[:, 0]))

        problem, X = curved_problem(sine, family, n_rows=1500)
        ones = torch.ones(problem.n_rows, dtype=torch.float64)
        fit = fit_additive(problem, ones, AdditiveOptions())
        eta = predict_additive(problem, fit.coef, fit.intercept).numpy()
        assert np.corrcoef(eta, np.sin(2 * X[:, 0]))[0, 1] > 0.97

    def test_what_does_nothing_is_exactly_nothing(self):
        """A target without noise leaves no doubt."""
        problem, _ = curved_problem(lambda X, rng: X[:, 0], p=2)
        ones = torch.ones(problem.n_rows, dtype=torch.float64)
        fit = fit_additive(problem, ones, AdditiveOptions())
        idle = fit.precision >= AdditiveOptions().precision_range[1]
        assert idle.any()
        assert (fit.coef[idle[problem.term_group]] == 0).all()

    @pytest.mark.parametrize("seed", range(3))
    def test_what_is_left_out_has_small_wald_statistics(self, seed):
        """Squared ones that sum to less than so many as the rows determine."""

        def line(X, rng):
            return X[:, 0] + rng.normal(size=len(X))

        problem, _ = curved_problem(line, n_rows=150, p=6, seed=seed, n_edges=8)
        weight, group = some_weight(problem), problem.term_group.numpy()
        every = fit_additive(problem, weight, replace(STILL, pooling=1.0))
        least = replace(STILL, least_wald=0.5, least_curve_wald=0.8)
        fit = fit_additive(problem, weight, least)
        gamma, _ = learned_by_group(problem, weight, every)
        wald = np.bincount(
            group, every.coef.numpy() ** 2 / spread(problem, weight, every)
        )
        out = wald < np.where(problem.group_is_curve, 0.8, 0.5) * gamma
        assert 0 < out.sum() < len(out) and not out[0]
        assert np.array_equal(fit.coef.numpy() == 0, out[group])
        # The others are as if those had never been there, at the same precisions.
        kept = ~out[group]
        fewer = replace(
            problem, columns=MemoryColumns(problem.terms[:, kept], problem.inputs)
        )
        ridge = every.ridge(problem.term_group)[torch.as_tensor(kept)]
        expected = normal_equations(fewer, weight, ridge)
        assert fit.coef.numpy()[kept] == pytest.approx(expected[1:], rel=1e-3)
        assert float(fit.intercept) == pytest.approx(expected[0], rel=1e-3)

    def test_separated_classes_keep_finite_coefficients(self):
        problem, _ = curved_problem(
            lambda X, rng: (X[:, 0] > 0).astype(float), "binomial", n_rows=200
        )
        ones = torch.ones(problem.n_rows, dtype=torch.float64)
        fit = fit_additive(problem, ones, AdditiveOptions())
        assert fit.coef.isfinite().all()
        eta = predict_additive(problem, fit.coef, fit.intercept)
        assert (((eta > 0).double() == problem.y).double().mean()) > 0.97


class TestPrior:
    """Sums of terms with a prior of their own are as good as terms."""

    @staticmethod
    def both(problem):
        """The problem with a prior on sums of terms, and one whose terms they are."""
        rng = np.random.default_rng(5)
        sums = torch.as_tensor(rng.normal(size=(problem.n_terms, problem.n_terms + 1)))
        owner = torch.cat([problem.term_feature, problem.term_feature[-1:]])
        group = torch.cat([problem.term_group, problem.term_group[-1:]])
        columns = MemoryColumns(problem.terms @ sums, problem.inputs)
        direct = replace(problem, columns=columns, term_feature=owner, term_group=group)
        return replace(problem, prior=Prior(sums, group)), direct

    @EVERY_FAMILY
    def test_fits_are_those_of_the_sums_as_terms(self, family, make_problem):
        problem, direct = self.both(make_problem(family, n_rows=200))
        weight = some_weight(problem)
        found, expected = (
            fit_additive(each, weight, AdditiveOptions()) for each in (problem, direct)
        )
        assert found.own.tolist() == pytest.approx(expected.coef.tolist(), abs=1e-8)
        sums = problem.prior.sums @ found.own
        assert found.coef.tolist() == pytest.approx(sums.tolist(), abs=1e-10)
        assert float(found.intercept) == pytest.approx(float(expected.intercept))

    @EVERY_FAMILY
    def test_bags_are_those_of_the_sums_as_terms(self, family, make_problem):
        problem, direct = self.both(make_problem(family, n_rows=200))
        weight = some_weight(problem)
        etas = []
        for each in (problem, direct):
            fit = fit_additive(each, weight, AdditiveOptions())
            coef, level = solve_bags(each, weight, folds_of(weight), fit, n_steps=4)
            etas.append(each.terms @ coef.T + level)
        assert torch.allclose(*etas, atol=1e-8)

    def test_one_row_far_away_does_not_tilt_the_curve(self):
        """With its line free a curve went on to that row, whatever the others said."""
        rng = np.random.default_rng(0)
        x = np.append(rng.lognormal(size=400), 2000.0)[:, None]
        y = np.where(x[:, 0] > 1, 1.0, -1.0) + rng.normal(0, 0.3, len(x))
        options, known = FeatureOptions(basis="ramps"), np.ones(len(x))
        features = fit_features(x, ["x"], known, None, options, quiet=True)
        (block,), group = features.walks()
        problem = Problem(
            columns=state_columns(features, x),
            term_feature=torch.as_tensor(features.term_feature),
            term_group=torch.as_tensor(features.term_group),
            y=torch.as_tensor(y),
            offset=torch.zeros(len(y)).double(),
            family=get_family("gaussian"),
            spec=make_spec(features.input_feature.tolist(), 1, (2, 2)),
            prior=Prior(torch.as_tensor(block), torch.as_tensor(group)),
        )
        known[-1] = 0.0
        fit = fit_additive(problem, torch.as_tensor(known), AdditiveOptions())
        eta = predict_additive(problem, fit.coef, fit.intercept)
        assert abs(float(eta[-1]) - 1.0) < 0.5
