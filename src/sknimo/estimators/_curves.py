"""Choose which features enter as curves: `basis="auto"`.

Every feature enters an additive model without a network in up to three parts: a line,
a *bow* (what a parabola adds to it) and *wiggles* (what a spline adds to that). Each
part has a precision of its own, learned by maximising the evidence (see
`solver/_evidence.py`). Parts that the evidence can do without leave, wiggles first:
what remains of a feature is a spline, a parabola or a line.

Shapes: n rows, p features, q columns, g parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from sknimo.estimators._data import count_weights
from sknimo.families import Family
from sknimo.features import (
    Basis,
    FeatureMap,
    FeatureOptions,
    Label,
    fit_features,
    spread_option,
)
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import (
    ESTIMATED_DISPERSION,
    EvidenceOptions,
    EvidenceState,
    Problem,
    Rows,
    fit_evidence,
    restrict,
    solve_coefficients,
    start_state,
)

AUTO = "auto"
# Curves show on this many rows or not at all.
MAX_ROWS = 4_000
# Features beyond this many compete for a curve by what it explains on its own.
MAX_CURVES = 40
START_RIDGE = 1e-3
# Log evidence that a part must bring where one feature may have a curve. With many
# features each is as much less likely to have one, which costs the logarithm of their
# number: of fifty simulated tables without curves one gets one.
CURVE_MARGIN = 1.75
# More where the dispersion is known: what lines leave to the network cannot pass for
# noise there, and passes for curves.
FIXED_DISPERSION_MARGIN = 3.0
# A part whose columns vary less than this has nothing to add.
NEGLIGIBLE = 1e-6

LINE, BOW, WIGGLES = range(3)


@dataclass(frozen=True, slots=True)
class Parts:
    """Columns of the additive model and where they belong.

    Attributes
    ----------
    design : ndarray of shape (n, q)
    part : ndarray of shape (q,)
        The part that owns each column.
    feature, role : ndarray of shape (g,)
        The feature of each part, and which of its parts it is.
    """

    design: np.ndarray
    part: np.ndarray
    feature: np.ndarray
    role: np.ndarray


def choose_curves(
    table: np.ndarray,
    names: Sequence[str],
    weight: np.ndarray,
    levels: Sequence[tuple[Label, ...] | None],
    options: FeatureOptions,
    target: np.ndarray,
    offset: np.ndarray,
    family: Family,
) -> FeatureOptions:
    """Replace "auto" by "linear", "poly2" or "spline" for every feature."""
    kinds = spread_option("basis", options.basis, names, "linear")
    auto = [j for j, kind in enumerate(kinds) if isinstance(kind, str) and kind == AUTO]
    if not auto:
        return options
    chosen = {j: "linear" if j in auto else kind for j, kind in enumerate(kinds)}

    def fit(kind: str) -> FeatureMap:
        trial = {j: kind if j in auto else kinds[j] for j in chosen}
        trial = {j: "linear" if levels[j] else kind for j, kind in trial.items()}
        basis = replace(options, basis=trial)
        return fit_features(table, names, weight, levels, basis, quiet=True)

    splines, parabolas = fit("spline"), fit("poly2")
    some = np.linspace(0, len(table) - 1, min(len(table), MAX_ROWS)).astype(int)
    counts = count_weights(weight)
    share = counts[some] * (counts.sum() / counts[some].sum())
    parts = split_curves(table[some], splines, parabolas, auto, share)
    additive = Additive(parts, target[some], share, offset[some], family)
    for part in additive.needed_curves():
        kind = "spline" if parts.role[part] == WIGGLES else "poly2"
        chosen[int(parts.feature[part])] = kind
    return replace(
        options, basis={j: kind for j, kind in chosen.items() if levels[j] is None}
    )


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
            rest = _residual(_curve(curve, x), np.hstack(below), weight)
            below.append(rest)
            add(rest, j, kind)
    widths = [block.shape[1] for block in columns]
    return Parts(
        np.hstack(columns or [np.empty((len(table), 0))]),
        np.repeat(np.arange(len(widths)), widths),
        np.array(feature, dtype=int),
        np.array(role, dtype=int),
    )


def _curve(basis: Basis, x: np.ndarray) -> np.ndarray:
    """Terms that are neither a line nor an indicator of missing values."""
    return basis.terms(x)[:, basis.group == 1]


def _residual(block: np.ndarray, below: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What a block adds to columns below it, in weighted least squares."""
    root = np.sqrt(weight / weight.sum())[:, None]
    fitted, *_ = np.linalg.lstsq(root * below, root * block, rcond=None)
    rest = block - below @ fitted
    size = np.sqrt((root**2 * rest**2).sum(axis=0))
    return rest[:, size > NEGLIGIBLE]


class Additive:
    """An additive model whose curves have to earn their keep."""

    def __init__(
        self,
        parts: Parts,
        target: np.ndarray,
        weight: np.ndarray,
        offset: np.ndarray,
        family: Family,
    ) -> None:
        self.parts = parts
        self.curved = np.unique(parts.feature[parts.role != LINE])
        self.margin = CURVE_MARGIN + math.log(max(len(self.curved), 1))
        if family.name not in ESTIMATED_DISPERSION:
            self.margin += FIXED_DISPERSION_MARGIN
        self.weight = torch.as_tensor(weight)
        self.problem = Problem.in_memory(
            terms=torch.as_tensor(parts.design),
            term_feature=torch.as_tensor(parts.part),
            inputs=torch.zeros(len(target), 0, dtype=torch.float64),
            y=torch.as_tensor(target),
            offset=torch.as_tensor(offset),
            family=family,
            spec=make_spec([], len(parts.role), (1, 1), "none", True),
        )
        self.state = self._start()

    def _start(self) -> EvidenceState:
        """Fit lines alone, then all lines and the most promising curves."""
        problem, role = self.problem, self.parts.role
        strength = torch.full((1,), START_RIDGE, dtype=torch.float64)
        penalty = make_penalty("ridge", strength, problem.term_feature, len(role))
        share = (self.weight / self.weight.sum()).unsqueeze(0)
        rows = Rows(problem.y, problem.offset, share, problem.family)
        straight = torch.as_tensor((role == LINE)[self.parts.part])
        design = (problem.terms * straight).unsqueeze(0)
        lines = solve_coefficients(design, rows, penalty).coefficients
        eta = rows.eta(design, lines.coef, lines.intercept)
        promise = self._promise(rows.score(eta)[0], rows.curvature(eta)[0])
        allowed = torch.as_tensor((role == LINE) | promise)
        state = start_state(
            problem,
            self.weight,
            torch.zeros(problem.spec.n_params, dtype=torch.float64),
            lines,
            allowed,
            torch.zeros_like(allowed),
        )
        return fit_evidence(problem, self.weight, state, EvidenceOptions())

    def _promise(self, score: torch.Tensor, curvature: torch.Tensor) -> np.ndarray:
        """Parts of the features whose curves explain most of what lines leave, (g,)."""
        parts, curved = self.parts, self.curved
        if len(curved) <= MAX_CURVES:
            return np.ones(len(parts.role), dtype=bool)
        gain = []
        for feature in curved:
            own = (parts.feature[parts.part] == feature) & (
                parts.role[parts.part] != LINE
            )
            block = parts.design[:, own]
            pull = score.numpy() @ block
            gram = (block * curvature.numpy()[:, None]).T @ block
            gain.append(pull @ np.linalg.lstsq(gram, pull, rcond=None)[0])
        best = curved[np.argsort(gain, kind="stable")[-MAX_CURVES:]]
        return np.isin(parts.feature, best)

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
        brief = EvidenceOptions(max_iter=30, burn_in=1)
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
