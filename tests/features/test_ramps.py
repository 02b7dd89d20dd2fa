"""Ramps are a line and a curve of straight pieces, smooth by its own measure.

Oracles: numpy's interpolation, sums written out, and central differences.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from sknimo.features import (
    Clipped,
    FeatureOptions,
    Linear,
    Ramps,
    ValueSample,
    fit_features,
)
from sknimo.features._bases import ramp_bends
from sknimo.features._shapes import place_edges

N_ROWS = 500
# Relative, after whitening of up to 63 columns whose spreads differ by a thousand.
ROUNDING = 1e-9
STEP = 2.0**-20  # of differences that are exact but for the last digits


def draw(kind="normal"):
    rng = np.random.default_rng(0)
    spikes = np.where(rng.random(N_ROWS) < 0.7, 0.0, rng.exponential(size=N_ROWS))
    return {
        "normal": rng.normal(50.0, 8.0, N_ROWS),
        "skewed": np.exp(2 * rng.normal(size=N_ROWS)),
        "ties": rng.poisson(3.0, N_ROWS).astype(float),
        "spikes": spikes,
    }[kind]


COLUMNS = ("normal", "skewed", "ties", "spikes")


def fit(x, weight=None, **options):
    """Ramps of the terms, without their range, and what the network reads."""
    weight = np.ones(len(x)) if weight is None else weight
    options = FeatureOptions(**{"basis": "ramps", "input_scaling": "ramps"} | options)
    features = fit_features(x[:, None], ["x"], weight, None, options, quiet=True)
    basis = features.bases[0]
    inner = basis.basis if isinstance(basis, Clipped) else basis
    return inner, features.input_bases[0]


def test_the_line_goes_on_for_a_quarter_of_the_range_and_curves_stop_at_its_ends():
    x = draw("skewed")
    options = FeatureOptions(basis="ramps")
    weight = np.ones(len(x))
    features = fit_features(x[:, None], ["x"], weight, None, options, quiet=True)
    ends = np.array([[x.min()], [x.max()]])
    more = np.ptp(x) * np.array([[-1.0], [1.0]])
    inside, near, held, far = (
        features.terms(ends + share * more) for share in (0.0, 0.1, 0.25, 1e3)
    )
    assert near[:, 1:].tolist() == inside[:, 1:].tolist()
    line = ((ends + 0.1 * more - x.mean()) / x.std())[:, 0]
    assert near[:, 0] == pytest.approx(line, rel=1e-12)
    assert far.tolist() == held.tolist()


def place(values, n_edges, weight=None):
    weight = np.ones(len(values)) if weight is None else weight
    return place_edges(ValueSample(np.asarray(values, float), weight), n_edges)


@pytest.mark.parametrize("column", COLUMNS)
def test_pieces_sum_to_the_clipped_line(column):
    x = draw(column)
    _, read = fit(x)
    assert isinstance(read, Clipped) and isinstance(read.basis, Ramps)
    edges = read.basis.edges
    wide = np.r_[x, edges, x.min() - 5, x.max() + 7]
    pieces = read.basis.terms(wide)[:, 1:]
    line = pieces @ np.diff(edges) + read.reference
    assert line == pytest.approx(np.clip(wide, x.min(), x.max()), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_curve_is_interpolated_between_its_edges_and_constant_outside(column):
    x = draw(column)
    basis, _ = fit(x)
    wide = np.r_[x, basis.edges, x.min() - 1e3, x.max() + 1e6]
    at_edges = basis.terms(basis.edges)[:, 1:]
    for term, known in zip(basis.terms(wide)[:, 1:].T, at_edges.T, strict=True):
        oracle = np.interp(wide, basis.edges, known)
        assert term == pytest.approx(oracle, abs=ROUNDING * np.abs(known).max())
    z = (wide - x.mean()) / x.std()
    assert basis.terms(wide)[:, 0] == pytest.approx(z, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("column", COLUMNS)
def test_curves_are_uncorrelated_with_the_line_and_each_other(column):
    x, weight = draw(column), np.random.default_rng(1).random(N_ROWS)
    basis, _ = fit(x, weight)
    covariance = np.cov(basis.terms(x).T, aweights=weight, ddof=0)
    size = np.sqrt(np.diag(covariance))
    assert size[:2] == pytest.approx([1.0, 1.0], rel=ROUNDING)
    assert (np.diff(size[1:]) <= 1e-12).all()
    correlation = covariance / np.outer(size, size)
    assert correlation == pytest.approx(np.eye(len(size)), abs=ROUNDING)


def test_a_long_piece_of_few_rows_may_not_be_steep():
    """A rise of one over 1,000 times the length next to it: not a thousandth."""
    edges = np.r_[np.linspace(0.0, 1.0, 11), 101.0]
    rises = np.r_[np.zeros(10), 1.0]
    bend = np.linalg.norm(ramp_bends(edges) @ rises)
    assert bend == pytest.approx(math.sqrt(0.1 / 100.0))


@pytest.mark.parametrize("column", COLUMNS)
def test_squared_coefficients_are_the_squared_changes_of_slope(column):
    """Over every edge, times the mean length of the pieces that meet there."""
    basis, _ = fit(draw(column))
    # A line and a constant are the only directions that curves leave out.
    assert basis.n_terms == len(basis.edges) - 1
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(5):
        coef = rng.normal(size=basis.n_terms - 1)
        curve = basis.terms(basis.edges)[:, 1:] @ coef
        width = np.diff(basis.edges)
        slope = np.diff(curve) / width
        bends = np.diff(slope) * [
            math.sqrt(one * other) for one, other in pairwise(width)
        ]
        ratios.append(sum(c**2 for c in bends) / sum(c**2 for c in coef))
    assert ratios == pytest.approx([ratios[0]] * 5, rel=ROUNDING)


class TestEvenCurves:
    """The same curves in other coordinates: smooth from piece to piece."""

    @pytest.mark.parametrize("column", COLUMNS)
    def test_they_are_uncorrelated_and_scaled_by_how_their_rises_differ(self, column):
        x = draw(column)
        options, weight = FeatureOptions(basis="ramps"), np.ones(len(x))
        features = fit_features(x[:, None], ["x"], weight, None, options, quiet=True)
        (block,), ramps = features.even_curves(), features.bases[0].basis
        curves = features.terms(x[:, None]) @ block
        assert block[:, 0].tolist() == [1.0] + [0.0] * (len(block) - 1)  # the line
        spread = np.cov(curves.T, bias=True)
        size = np.sqrt(spread.diagonal())
        off = spread / np.outer(size, size) - np.eye(len(size))
        assert np.abs(off).max() < 1e-6
        # Rises over the pieces, from the values at the edges.
        at = features.terms(ramps.edges[:, None]) @ block[:, 1:]
        rough = (np.diff(at, 2, axis=0) ** 2).sum(0)
        assert rough == pytest.approx([rough[0]] * len(rough), rel=1e-6)

    def test_without_pieces_there_are_none(self):
        x = draw()
        features = fit_features(x[:, None], ["x"], np.ones(len(x)), None, quiet=True)
        assert features.even_curves() is None


class TestWalks:
    """A curve as a walk: steps over its pieces, of which the line is one sum."""

    @staticmethod
    def of(x):
        options, weight = FeatureOptions(basis="ramps"), np.ones(len(x))
        features = fit_features(x[:, None], ["x"], weight, None, options, quiet=True)
        (block,), group = features.walks()
        return features, features.bases[0].basis, block, group

    @pytest.mark.parametrize("column", COLUMNS)
    def test_each_sum_rises_over_one_piece_by_its_step(self, column):
        x = draw(column)
        features, ramps, block, group = self.of(x)
        found = features.terms(x[:, None]) @ block[:, 1:]
        low, width = ramps.edges[:-1], np.diff(ramps.edges)
        expected = np.clip((x[:, None] - low) / width, 0, 1) * ramps.walk
        found, expected = found - found[0], expected - expected[0]
        assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
        assert group.tolist() == [0] + [1] * len(ramps.walk)

    def test_the_widest_varies_by_one_and_longer_pieces_go_farther(self):
        x = draw("normal")
        features, ramps, block, _ = self.of(x)
        walks = features.terms(x[:, None]) @ block[:, 1:]
        spread = np.linalg.eigvalsh(np.cov(walks.T, bias=True))
        assert spread[-1] == pytest.approx(1.0, rel=1e-6)
        # Edges about the reference are left out: one piece stands for several.
        longest = int(np.argmax(ramps.walk))
        low, high = ramps.edges[longest : longest + 2]
        assert low < ramps.reference < high
        assert len(np.unique(np.round(ramps.walk, 9))) == 2


def test_integer_weights_count_rows():
    x, weight = draw("skewed"), np.random.default_rng(1).integers(1, 4, N_ROWS)
    weighted, _ = fit(x, weight.astype(float))
    repeated, _ = fit(np.repeat(x, weight))
    assert weighted.edges.tolist() == repeated.edges.tolist()
    found, expected = weighted.terms(x), repeated.terms(x)
    assert found == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("reference", [-7.0, 0.5, 1.75])
def test_terms_add_up_the_shares_of_pieces_below_a_value(turned, reference):
    edges = np.array([-2.0, -1.0, 0.5, 1.0, 4.0])
    transform = np.random.default_rng(0).normal(size=(4, 3)) if turned else None
    x = np.array([-3, -2, -1.5, -1, 0.0, 0.5, 0.75, 1, 2, 4, 5])

    def below(x):
        shares = np.clip((x[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
        return shares @ transform if turned else shares

    found = Ramps(reference, 2.0, edges, transform).terms(x)
    expected = below(x) - below(np.array([reference]))
    assert found[:, 0] == pytest.approx((x - reference) / 2)
    assert found[:, 1:] == pytest.approx(expected, abs=1e-14)


class TestSlopes:
    """Steps are powers of two and so are edges: differences are those of the pieces."""

    EDGES = np.array([-2.0, -1.0, 0.5, 1.0, 4.0])
    ON_AND_BETWEEN = np.array([-3, -2, -1.5, -1, 0.0, 0.5, 0.75, 1, 2, 4, 5])

    @pytest.mark.parametrize("turned", [False, True])
    @pytest.mark.parametrize("reference", [-7.0, 0.5, 1.75])
    def test_are_central_differences_on_edges_too(self, turned, reference):
        transform = np.random.default_rng(0).normal(size=(4, 3)) if turned else None
        basis = Ramps(reference, 2.0, self.EDGES, transform)
        x = self.ON_AND_BETWEEN
        rise = basis.terms(x + STEP) - basis.terms(x - STEP)
        assert basis.slopes(x) == pytest.approx(rise / (2 * STEP), abs=1e-9)

    def test_on_an_edge_are_exactly_the_mean_of_both_sides(self):
        basis = Ramps(0.0, 2.0, self.EDGES)
        near = 1e-3
        sides = (basis.slopes(self.EDGES + side)[:, 1:] for side in (-near, near))
        assert np.array_equal(basis.slopes(self.EDGES)[:, 1:], sum(sides) / 2)

    def test_at_the_reference_are_the_readout(self):
        basis = Ramps(0.5, 2.0, self.EDGES)
        assert basis.readout().tolist() == [[0.5, 0.0, 1 / 3, 1.0, 0.0]]
        assert basis.group.tolist() == [0, 1, 1, 1, 1]


class TestEdges:
    def test_few_values_are_all_edges(self):
        values = [0.0, 1.0, 5.0, 7.0]
        assert place(values, 4).tolist() == values

    def test_values_without_ties_are_cut_evenly(self):
        edges = place(np.arange(1001.0), 11)
        assert edges == pytest.approx(np.linspace(0, 1000, 11), abs=1)

    def test_half_of_them_follow_the_rows_and_half_the_values(self):
        weight = np.ones(1001)
        weight[0] = 9000.0  # nine rows in ten have the same value
        edges = place(np.arange(1001.0), 41, weight)
        even = np.linspace(0, 1, 41)[1:-1]
        rows = np.sort(np.repeat(np.arange(1001.0), weight.astype(int)))
        by_row = rows[np.ceil(even[::2] * len(rows)).astype(int) - 1]
        by_value = np.ceil(even[1::2] * 1001) - 1
        assert edges.tolist() == sorted({0.0, *by_row, *by_value, 1000.0})
        assert len(edges) > 20

    @pytest.mark.parametrize("column", COLUMNS)
    def test_are_no_more_than_asked_for_and_reach_both_ends(self, column):
        x = draw(column)
        for n_edges in (8, 16, 64):
            basis, read = fit(x, n_edges=n_edges, n_input_edges=n_edges)
            assert 3 <= len(basis.edges) <= n_edges or len(np.unique(x)) <= n_edges
            assert np.isin(basis.edges, x).all()
            assert (basis.edges[0], basis.edges[-1]) == (x.min(), x.max())
            assert np.isin(basis.edges, read.basis.edges).all()

    def test_curves_have_none_about_the_reference_and_inputs_have(self):
        x = draw("normal")
        basis, read = fit(x, n_edges=64, n_input_edges=64)
        near = 0.1 * basis.scale
        apart = np.abs(basis.edges - basis.reference)
        assert apart.min() > near
        assert np.abs(read.basis.edges - basis.reference).min() < near

    def test_values_that_rounding_confuses_are_one_edge(self):
        edges = place([0.0, 1.0, 1.0 + 1e-12, 2.0, 1000.0], 8)
        assert edges.tolist() == [0.0, 1.0 + 1e-12, 2.0, 1000.0]

    @pytest.mark.parametrize("x", [[0.0, 1.0] * 9, [*range(99), 1e30]])
    def test_without_three_of_them_a_line_is_left(self, x):
        basis, read = fit(np.array(x, float))
        assert isinstance(basis, Linear) and isinstance(read, Linear)
        _, clipped = fit(np.array(x, float), clip_inputs=True)
        assert isinstance(clipped, Clipped) and isinstance(clipped.basis, Linear)


def test_inputs_are_clipped_to_the_range_and_the_reference():
    x = draw()
    _, read = fit(x, reference={"x": 100.0})
    assert (read.low, read.high) == (x.min(), 100.0)
    outside = read.terms(np.array([x.min(), x.min() - 9, 100.0, 1e9]))
    assert np.array_equal(outside[0], outside[1])
    assert not outside[2:].any()


@pytest.mark.parametrize("unit", [2.0**550, 2.0**-550])
def test_what_makes_a_curve_rough_has_no_unit(unit):
    edges = np.array([0.0, 1.0, 1.5, 4.0, 4.2])
    assert np.array_equal(ramp_bends(edges * unit), ramp_bends(edges))


def test_the_value_of_most_rows_is_an_edge_beside_codes_far_out():
    """A few codes move the mean beyond it; what lies below would be lost otherwise."""
    x = np.repeat([0.0, 1.0, 666.0], [80, 918, 2])
    basis, _ = fit(x)
    assert basis.edges.tolist() == [0.0, 1.0, 666.0]
    low, high = basis.terms(np.array([0.0, 1.0]))[:, 1]
    assert abs(high - low) > 1  # the curve varies by one over the rows
