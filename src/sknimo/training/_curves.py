"""Choose which features enter as curves: `basis="auto"`.

In an additive model without a network a feature has up to three parts: a line, a *bow*
(what a parabola adds to it) and *wiggles* (what a spline adds to that). Each part has a
precision of its own, learned by maximising the evidence (see `solver/_evidence.py`).
Lines are fitted first. Parts that promise enough evidence enter, round by round, and
those that the evidence can do without leave, wiggles first: what remains of a feature
is a spline, a parabola or a line.

Shapes: n rows, p features, q columns, g parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sknimo.families import BINOMIAL, SOFTMAX, Family
from sknimo.features import (
    FeatureMap,
    FeatureOptions,
    Label,
    fit_features,
    spread_option,
    summarise_column,
)
from sknimo.machine import torch_threads
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.rows import WeightedRows
from sknimo.solver import (
    RIDGE,
    Coefficients,
    EvidenceOptions,
    EvidenceState,
    Problem,
    Rows,
    fit_additive,
    fit_evidence,
    restrict,
    solve_coefficients,
    start_state,
)

AUTO = "auto"
START_RIDGE = 1e-3
# A part whose columns vary less than this has nothing to add.
NEGLIGIBLE = 1e-6

# Of a wide table one feature for so many rows may have a curve, and one a line beside
# them: with as many parts as rows evidence has no bound. Fifteen linear tables of 100
# rows and 150 to 400 features had seven curves each without these shares; of 84 with
# them eight have one or two.
WIDE_SHARES = 8, 4

LINE, BOW, WIGGLES = range(3)
# From straight to curved; what a user chose is the same for all classes.
CURVED = ("linear", "poly2", "spline", "ramps")


@dataclass(frozen=True, slots=True)
class CurveRules:
    """Numbers that decide which features enter as curves.

    What was measured is told in the words of `search/_settings.py`.
    """

    # Log evidence that a part must bring where one feature may have a curve. With many
    # features each is as much less likely to have one, which costs the logarithm of
    # their number: of fifty simulated tables without curves one gets one. Halved: same
    # fit (poisson); doubled: as another seed.
    margin: float = 1.75
    # More where the dispersion is known: what lines leave to the network cannot pass
    # for noise there, and passes for curves. Not ablated.
    fixed_dispersion_margin: float = 3.0
    # Curves show on this many rows or not at all. A quarter: 1.30 (rows4000); half: as
    # another seed, in 0.6 of the seconds.
    max_rows: int = 4_000
    # Features that may have a curve, those of most promise. Not ablated.
    max_curves: int = 40
    # Lines beside them, those that explain most; what others explain is taken as known.
    # Not ablated.
    max_lines: int = 100
    # Log evidence that a part must promise, all else as it is, to be fitted at all. Of
    # 1416 true curves in 24 simulated tables of each of eleven kinds 4 finds 1094 (and
    # 15 false ones), 3 finds 1077 (26), 6 finds 1067 (7). All parts at once, then
    # fewer: 629 (13) where this finds 670 (9), in twice the seconds.
    promise: float = 4.0
    # Gauss-Newton steps of a trial without some parts: it starts almost there. Halved
    # and doubled: same fit (poisson).
    trial_steps: int = 30


def too_wide(n_features: int, n_rows: int) -> bool:
    """Whether there are too many features for evidence: one for every other row.

    With almost as many coefficients as rows a fit leaves no noise, and evidence has no
    bound; and what is selected among so many has seen the rows that should judge it.
    """
    return 2 * n_features > n_rows


@dataclass(frozen=True, slots=True)
class Parts:
    """Columns of the additive model and where they belong."""

    design: np.ndarray  # (n, q)
    part: np.ndarray  # (q,), the part that owns each column
    # The feature of each part, and which of its parts it is.
    feature: np.ndarray  # (g,)
    role: np.ndarray  # (g,)

    @property
    def is_wide(self) -> bool:
        """Whether there are too many features for evidence."""
        return too_wide(len(np.unique(self.feature)), len(self.design))

    @property
    def curved(self) -> np.ndarray:
        """Features that may have a curve."""
        return np.unique(self.feature[self.role != LINE])

    def columns(self, parts: np.ndarray) -> np.ndarray:
        """Columns of the parts that a mask (g,) names."""
        return self.design[:, parts[self.part]]

    def take(self, parts: np.ndarray) -> Parts:
        """Some of the parts, by a mask (g,)."""
        number = np.cumsum(parts) - 1
        kept = self.part[parts[self.part]]
        return Parts(
            self.columns(parts), number[kept], self.feature[parts], self.role[parts]
        )


def without_features(rows: WeightedRows) -> tuple[torch.Tensor, ...]:
    """Targets, linear predictors and weights, (n,), on a log link without features."""
    exposure = rows.offset - rows.offset.max(initial=-math.inf)
    level = np.average(rows.y, weights=rows.weight)
    level /= np.average(np.exp(exposure), weights=rows.weight)
    eta = np.log(max(level, 1e-12)) + exposure
    return tuple(map(torch.as_tensor, (rows.y, eta, rows.weight)))


def choose_curves(
    rows: WeightedRows,
    names: Sequence[str],
    levels: Sequence[tuple[Label, ...] | None],
    options: FeatureOptions,
    family: Family,
    rules: CurveRules,
) -> FeatureOptions:
    """Replace "auto" by "linear", "poly2" or "spline" for every feature."""
    kinds = spread_option("basis", options.basis, names, "linear")
    auto = [j for j, kind in enumerate(kinds) if isinstance(kind, str) and kind == AUTO]
    if not auto:
        return options
    if family is SOFTMAX:
        return _choose_for_classes(rows, names, levels, options, rules)
    chosen = {j: "linear" if j in auto else kind for j, kind in enumerate(kinds)}

    def fit(kind: str) -> FeatureMap:
        trial = {j: kind if j in auto else kinds[j] for j in chosen}
        trial = {j: "linear" if levels[j] else kind for j, kind in trial.items()}
        basis = replace(options, basis=trial)
        return fit_features(rows.table, names, rows.weight, levels, basis, quiet=True)

    splines, parabolas = fit("spline"), fit("poly2")
    n_rows = len(rows.y)
    index = np.linspace(0, n_rows - 1, min(n_rows, rules.max_rows)).astype(int)
    weight = rows.weight[index] * (rows.weight.sum() / rows.weight[index].sum())
    some = WeightedRows(rows.table[index], rows.y[index], weight, rows.offset[index])
    if family.is_free:
        family = family.learned(*without_features(some))
    with torch_threads(n_rows):
        parts = split_curves(some.table, splines, parabolas, auto, weight)
        additive = Additive(parts, some, family, rules)
        needed = additive.needed_curves()
    for part in needed:
        j = int(additive.parts.feature[part])
        column = summarise_column(rows.table[:, j], rows.weight, None, names[j])
        is_spline = additive.parts.role[part] == WIGGLES
        chosen[j] = "spline" if is_spline else "poly2"
        if column.is_far() and not is_spline:
            chosen[j] = column.curve_beyond()
    basis = {j: kind for j, kind in chosen.items() if levels[j] is None}
    return replace(options, basis=basis, found=tuple(auto))


def _choose_for_classes(
    rows: WeightedRows,
    names: Sequence[str],
    levels: Sequence[tuple[Label, ...] | None],
    options: FeatureOptions,
    rules: CurveRules,
) -> FeatureOptions:
    """The most that a feature needs to tell one of several classes from the others."""
    found: dict[int, str] = {}
    own = options
    for number in np.unique(rows.y):
        one = replace(rows, y=(rows.y == number).astype(float))
        own = choose_curves(one, names, levels, options, BINOMIAL, rules)
        kinds = spread_option("basis", own.basis, names, "linear")
        for j, kind in enumerate(kinds):
            if levels[j] is None:
                found[j] = max(found.get(j, kind), kind, key=CURVED.index)
    return replace(options, basis=found, found=own.found)


def split_curves(
    table: np.ndarray,
    splines: FeatureMap,
    parabolas: FeatureMap,
    auto: Sequence[int],
    weight: np.ndarray,
) -> Parts:
    """Line, bow and wiggles of the features in `auto`; others are one part each."""
    columns: list[np.ndarray] = []
    feature: list[int] = []
    role: list[int] = []

    def add(block: np.ndarray, j: int, kind: int) -> None:
        if block.shape[1]:
            columns.append(block)
            feature.append(j)
            role.append(kind)

    for j, basis in enumerate(splines.bases):
        x = table[:, j]
        terms = basis.terms(x)
        if j not in auto:
            add(terms, j, LINE)
            continue
        add(terms[:, basis.group != 1], j, LINE)
        below = [np.ones((len(x), 1)), terms[:, basis.group != 1]]
        for curve, kind in ((parabolas.bases[j], BOW), (basis, WIGGLES)):
            own = curve.terms(x)[:, curve.group == 1]
            rest = _residual(own, np.hstack(below), weight)
            below.append(rest)
            add(rest, j, kind)
    widths = [block.shape[1] for block in columns]
    return Parts(
        np.hstack(columns or [np.empty((len(table), 0))]),
        np.repeat(np.arange(len(widths)), widths),
        np.array(feature, dtype=int),
        np.array(role, dtype=int),
    )


def _residual(block: np.ndarray, below: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What a block adds to columns below it, in weighted least squares."""
    root = np.sqrt(weight / weight.sum())[:, None]
    fitted, *_ = np.linalg.lstsq(root * below, root * block, rcond=None)
    rest = block - below @ fitted
    size = np.sqrt((root**2 * rest**2).sum(axis=0))
    return rest[:, size > NEGLIGIBLE]


def fit_lines(design: np.ndarray, rows: Rows) -> Coefficients:
    """A model of lines with a little ridge."""
    q = design.shape[1]
    strength = torch.full((1,), START_RIDGE, dtype=torch.float64)
    penalty = make_penalty("ridge", strength, torch.arange(q), q)
    terms = torch.as_tensor(design).unsqueeze(0)
    return solve_coefficients(terms, rows, penalty).coefficients


def shrink_lines(design: np.ndarray, rows: Rows) -> Coefficients:
    """A model of lines of one learned precision."""
    n_rows, q = design.shape
    problem = Problem.in_memory(
        terms=torch.as_tensor(design),
        term_feature=torch.arange(q),
        inputs=torch.zeros(n_rows, 0, dtype=torch.float64),
        y=rows.y,
        offset=rows.offset,
        family=rows.family,
        spec=make_spec([], q, (1, 1), "none", True),
    )
    fit = fit_additive(problem, n_rows * rows.weight[0], RIDGE)
    return Coefficients(fit.coef.unsqueeze(0), fit.intercept.unsqueeze(0))


def strongest_lines(
    parts: Parts, rows: Rows, max_lines: int
) -> tuple[np.ndarray, np.ndarray]:
    """Features whose lines explain most, and what the lines of others explain, (n,).

    Of a wide table that is noise for the most part, and left there.
    """
    straight = parts.role == LINE
    design = parts.columns(straight)
    fit = (shrink_lines if parts.is_wide else fit_lines)(design, rows)
    effect = design * fit.coef[0].numpy()
    owner = parts.feature[parts.part[straight[parts.part]]]
    size = np.bincount(owner, effect.var(axis=0), parts.feature.max() + 1)
    strong = np.argsort(size, kind="stable")[-max_lines:]
    weak = ~np.isin(owner, strong) & (not parts.is_wide)
    return strong, effect[:, weak].sum(axis=1)


class Additive:
    """An additive model whose curves have to earn their keep."""

    def __init__(
        self, parts: Parts, given: WeightedRows, family: Family, rules: CurveRules
    ) -> None:
        self.parts, self.rules = parts, rules
        self.margin = rules.margin + math.log(max(len(parts.curved), 1))
        if not family.estimates_dispersion:
            self.margin += rules.fixed_dispersion_margin
        self.max_curves, max_lines = rules.max_curves, rules.max_lines
        if parts.is_wide:
            curves, lines = (len(given.y) // share for share in WIDE_SHARES)
            self.max_curves = min(self.max_curves, curves)
            max_lines = min(max_lines, lines)
        self.weight = torch.as_tensor(given.weight)
        y, share = torch.as_tensor(given.y), self.weight / self.weight.sum()
        rows = Rows(y, torch.as_tensor(given.offset), share.unsqueeze(0), family)
        straight = parts.role == LINE
        if straight.sum() > max_lines:
            strong, known = strongest_lines(parts, rows, max_lines)
            straight &= np.isin(parts.feature, strong)
            rows = replace(rows, offset=rows.offset + torch.as_tensor(known))
        self.problem = Problem.in_memory(
            terms=torch.as_tensor(parts.design),
            term_feature=torch.as_tensor(parts.part),
            inputs=torch.zeros(len(y), 0, dtype=torch.float64),
            y=y,
            offset=rows.offset,
            family=family,
            spec=make_spec([], len(parts.role), (1, 1), "none", True),
        )
        self.state = self._start(rows, straight)

    def _start(self, rows: Rows, straight: np.ndarray) -> EvidenceState:
        """Fit these lines, then beside them the curves that promise anything."""
        problem = self.problem
        lines = fit_lines(self.parts.columns(straight), rows)
        coef = lines.coef.new_zeros(1, problem.n_terms)
        coef[:, torch.as_tensor(straight[self.parts.part])] = lines.coef
        state = start_state(
            problem,
            self.weight,
            torch.zeros(problem.spec.n_params, dtype=torch.float64),
            replace(lines, coef=coef),
            torch.as_tensor(straight),
            torch.zeros(len(straight), dtype=torch.bool),
        )
        fresh, asked = state.coef_precision, straight.copy()
        while True:
            state = fit_evidence(problem, self.weight, state, EvidenceOptions())
            enter = self._promising(state, asked)
            if not enter.any():
                return state
            asked |= enter
            new = torch.as_tensor(enter)
            precision = torch.where(new, fresh, state.coef_precision)
            support = state.support | new
            state = replace(state, support=support, coef_precision=precision)

    def _promising(self, state: EvidenceState, asked: np.ndarray) -> np.ndarray:
        """Parts of curves to fit next, (g,), with the line below that is not yet there.

        Each is asked for once, and the best where not all have room.
        """
        feature, outside = self.parts.feature, (self.parts.role != LINE) & ~asked
        gain = np.where(outside, self._promise(state, outside), -math.inf)
        used = set(feature[asked & (self.parts.role != LINE)].tolist())
        enter = np.zeros_like(asked)
        for part in np.argsort(-gain, kind="stable"):
            if gain[part] <= self.rules.promise:
                break
            if feature[part] in used or len(used) < self.max_curves:
                used.add(feature[part])
                enter[part] = True
        below = (self.parts.role == LINE) & np.isin(feature, feature[enter])
        return enter | (below & ~asked)

    def _promise(self, state: EvidenceState, outside: np.ndarray) -> np.ndarray:
        """Log evidence that some parts would add with the best precision each, (g,).

        All else stays as it is. What a block B of columns adds to the likelihood, its
        coefficients integrated out, depends on `B' V^-1 B` and `B' V^-1 y`, where V is
        the variance of the targets so far (Tipping and Faul, 2003, for single columns).
        """
        part, terms = torch.as_tensor(self.parts.part), self.problem.terms
        rows = self.problem.rows(self.weight.unsqueeze(0))
        eta = rows.eta(terms.unsqueeze(0), state.coef[None], state.intercept[None])
        score, curvature = (
            each(eta)[0] / state.dispersion for each in (rows.score, rows.curvature)
        )
        root, on = curvature.sqrt().unsqueeze(-1), state.support[part]
        inside = root * torch.cat([torch.ones_like(root), terms[:, on]], dim=1)
        prior = torch.cat([inside.new_zeros(1), state.coef_precision[part[on]]])
        factor = torch.linalg.cholesky(inside.T @ inside + prior.diag())
        ratios = torch.logspace(-6, 6, 49, dtype=torch.float64).unsqueeze(-1)
        gain = np.zeros(len(outside))
        for k in np.flatnonzero(outside):
            block = terms[:, part == k]
            own = root * block
            known = torch.linalg.solve_triangular(factor, inside.T @ own, upper=False)
            size, axes = torch.linalg.eigh(own.T @ own - known.T @ known)
            size, pull = size.clamp(min=1e-12), (score @ block @ axes).square()
            precision = size.max() * ratios
            each = pull / (size + precision) - (1 + size / precision).log()
            gain[k] = each.sum(-1).max() / 2
        return gain

    def needed_curves(self) -> list[int]:
        """Parts without which the evidence falls, wiggles before the bows below them.

        A bow is judged only where the wiggles have gone: a spline holds both.
        """
        wiggles = self._shed(self._alive(WIGGLES))
        splines = self.parts.feature[wiggles]
        bows = [
            part for part in self._alive(BOW) if self.parts.feature[part] not in splines
        ]
        return [*self._shed(bows), *wiggles]

    def _alive(self, role: int) -> list[int]:
        on = self.state.support.numpy() & (self.parts.role == role)
        return np.flatnonzero(on).tolist()

    def _shed(self, parts: list[int]) -> list[int]:
        """Drop parts that bring too little, weakest first; return those that stay."""
        brief = EvidenceOptions(max_iter=self.rules.trial_steps, burn_in=1)
        left, needed = list(parts), []
        while left:
            size = self._size()
            left.sort(key=lambda part: (size[part], part))
            count = max(1, len(left) // 2)
            while count:
                support = self.state.support.clone()
                support[left[:count]] = False
                fewer = restrict(
                    self.state, self.problem, self.state.input_support, support
                )
                trial = fit_evidence(self.problem, self.weight, fewer, brief)
                cost = self.state.log_evidence - trial.log_evidence
                if cost < self.margin * count:
                    self.state, left = trial, left[count:]
                    break
                count //= 2
            else:
                needed.append(left.pop(0))
        return [part for part in needed if self.state.support[part]]

    def _size(self) -> np.ndarray:
        """Variance of what each part contributes, (g,)."""
        part, n_parts = self.parts.part, len(self.parts.role)
        effect = self.parts.design * self.state.coef.numpy()
        total = np.zeros((n_parts, len(effect)))
        np.add.at(total, part, effect.T)
        return np.average(total**2, axis=1, weights=self.weight.numpy())
