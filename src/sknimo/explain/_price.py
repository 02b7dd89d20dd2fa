"""The price of linearity: what the deviance says about each correction.

The GLM with the same features is nested in the model (`g = 0`), and with the network
held fixed the coefficients have an exact optimum. Switching corrections off and solving
again therefore prices each of them without any training.

Shapes: M members, n rows, p features, q terms.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.explain._bends import is_large
from sknimo.explain._comparisons import Comparisons, compare
from sknimo.explain._effects import Effects, effects
from sknimo.explain._frames import Origin, Shown, cut, make_frame, pad
from sknimo.explain._gauge import fit_gauge
from sknimo.explain._interactions import bending
from sknimo.explain._kinds import near_reference
from sknimo.explain._levels import affordable_rows, contrast_rows, count_levels
from sknimo.explain._local import (
    MAX_ROWS,
    as_array,
    check_weight,
    fill_offset,
    find_roles,
    local_term_coef,
    split_members,
    spread_rows,
    sum_by_owner,
)
from sknimo.explain._nested import MemoryRows
from sknimo.explain._reach import Reach, measure_shape, restore_reach
from sknimo.model import FittedModel

# Training facts rank modifiers over this many rows and average effects over more. Many
# levels leave fewer rows.
RANKING_ROWS = 200
CONTRAST_EVALUATIONS = 20_000
# Rows that a large model is evaluated at for its deviance. On a table of 34,000 rows
# so many should tell it to about 0.3 per cent.
DEVIANCE_ROWS = 20_000
# Numbers of the terms from which deviances are worked out: about a gigabyte.
MAX_CELLS = 2**27


@dataclass(frozen=True, slots=True, eq=False)
class Deviances:
    """How far a constant, the nested GLM and the model are from some rows."""

    null_deviance: float  # intercept (and offset) alone
    glm_deviance: float  # the nested GLM: same features, no corrections
    deviance: float  # the model as fitted

    @property
    def explained(self) -> float:
        """Share of the null deviance that the model explains."""
        return self._gone(self.deviance)

    @property
    def glm_explained(self) -> float:
        """Share of the null deviance that the nested GLM explains."""
        return self._gone(self.glm_deviance)

    def _gone(self, deviance: float) -> float:
        return 1 - deviance / self.null_deviance if self.null_deviance > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Price(Shown, Deviances):
    """Deviances with and without the network's corrections.

    Coefficients are solved again, all but unpenalised, on the rows given: pass the
    training rows. `deviance` alone belongs to the model as it was fitted.

    Attributes
    ----------
    null_deviance, glm_deviance, deviance : float
        Of the intercept alone, the nested GLM and the model as fitted.
    names : tuple of str
    refit_deviance : float
        The model with its coefficients solved again.
    without : ndarray of shape (p,)
        The same with the correction of one feature switched off.
    n_rows : int
    origin : Origin

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> price = est.price_of_nonlinearity(data.X, data.y)
    >>> len(price.names) == len(price.price)
    True
    """

    names: tuple[str, ...]
    refit_deviance: float
    without: np.ndarray
    n_rows: int
    origin: Origin

    @property
    def price(self) -> np.ndarray:
        """Deviance gained by each correction, (p,); it may be negative."""
        return self.without - self.refit_deviance

    @property
    def share(self) -> np.ndarray:
        """Price as a share of what the network gains over the GLM, (p,)."""
        gain = self.glm_deviance - self.refit_deviance
        return self.price / gain if gain > 0 else np.zeros_like(self.without)

    def to_frame(self) -> Any:
        """One row per feature: deviance without its correction, and the price."""
        columns = {
            "feature": list(self.names),
            "deviance_without": self.without,
            "price": self.price,
            "share": self.share,
        }
        return make_frame(columns, self.origin)

    def __repr__(self) -> str:
        lines = [
            f"Price of nonlinearity over {self.n_rows} rows (deviance)",
            f"  intercept alone      {self.null_deviance:12.5g}",
            f"  nested GLM           {self.glm_deviance:12.5g}"
            f"   explains {self.glm_explained:.3f}",
            f"  model                {self.deviance:12.5g}"
            f"   explains {self.explained:.3f}",
            f"  model, solved again  {self.refit_deviance:12.5g}",
        ]
        for j in np.argsort(-self.price, kind="stable"):
            if self.price[j] != 0:
                label = pad(cut(f"without g of {self.names[j]}", 21), 21)
                lines.append(
                    f"  {label}{self.without[j]:12.5g}   price {self.price[j]:.4g}"
                )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class TrainingFacts(Deviances):
    """What explanations remember of the training rows; no row itself is kept.

    Attributes
    ----------
    null_deviance, glm_deviance, deviance : float
    n_samples : int
    swap : ndarray of shape (q, q)
        The minimum-energy gauge over the training rows.
    effects : Effects
        Over the training rows.
    reach : Reach
        How far the training rows reach.
    comparisons : Comparisons or None
        Over the training rows; not in files of earlier versions.
    near : float
        Share of them within a standard deviation of the reference in every number with
        a role; NaN where it is not known.
    """

    n_samples: int
    swap: np.ndarray
    effects: Effects
    reach: Reach
    comparisons: Comparisons | None = None
    near: float = math.nan


def member_designs(model: FittedModel, table: np.ndarray) -> Tensor:
    """`phi * (1 + g)` of each member, zero outside its support, (M, n, q)."""
    phi = model.features.terms(table)
    designs = []
    for member in split_members(model):
        coef = member.term_coef
        local = local_term_coef(member, table)
        factor = np.divide(local, coef, out=np.zeros_like(local), where=coef != 0)
        designs.append(phi * factor)
    return torch.as_tensor(np.stack(designs))


def price_of_nonlinearity(
    model: FittedModel,
    table: np.ndarray,
    y: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    origin: Origin | None = None,
) -> Price:
    """Price the correction of every feature."""
    rows = MemoryRows(model, y, weight, offset)
    features = model.features
    phi = torch.as_tensor(features.terms(table))
    support = model.coef.cpu() != 0  # (M, q)
    designs = member_designs(model, table)
    refit = rows.solved_deviance(designs)
    without = np.full(features.n_features, refit)
    acts = sum_by_owner(support.numpy() * 1.0, features.term_feature, len(without)) > 0
    bent = (as_array(model.modulated) & acts).any(0)
    for j in np.flatnonzero(bent):
        own = torch.as_tensor(features.term_feature == j)
        straight = (phi * own) * support.unsqueeze(1)
        design = torch.where(own, straight, designs)
        without[j] = rows.solved_deviance(design)
    return Price(
        **_three_deviances(rows, table),
        names=features.names,
        refit_deviance=refit,
        without=without,
        n_rows=len(table),
        origin=Origin() if origin is None else origin,
    )


def _three_deviances(rows: MemoryRows, table: np.ndarray) -> dict[str, float]:
    """What `Deviances` holds.

    The deviance of a large model on many rows is that of the GLM, times the ratio of
    the two over `DEVIANCE_ROWS` of them.
    """
    glm_eta = rows.solved_eta(rows.nested_design(table))
    found = {
        "null_deviance": rows.solved_deviance(rows.null_design()),
        "glm_deviance": rows.deviance(glm_eta),
    }
    most = DEVIANCE_ROWS if is_large(rows.model) else None
    kept = spread_rows(len(table), most)
    eta = rows.model.eta(table[kept], rows.rows.offset[kept].numpy())
    found["deviance"] = rows.deviance(torch.as_tensor(eta), kept)
    if len(kept) < len(table):
        found["deviance"] *= found["glm_deviance"] / rows.deviance(glm_eta[kept], kept)
    return found


def ranking_rows(model: FittedModel) -> int:
    """Rows over which who bends whom, and contrasts of levels, are averaged."""
    rows = min(RANKING_ROWS, contrast_rows(model, CONTRAST_EVALUATIONS))
    return affordable_rows(model, rows) or rows


def describe_training(
    model: FittedModel,
    table: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    n_samples: int | None = None,
) -> TrainingFacts:
    """Sum up the training rows for later explanations.

    `y` and `offset` are in the units of the family, not standardised. Effects and gauge
    are averaged over at most a thousand rows, who bends whom and the contrasts of more
    than two levels over at most two hundred of them, deviances over all. Large models
    and tables take evenly spaced rows for these, too: `DEVIANCE_ROWS`, and as many as
    `MAX_CELLS` allows.
    """
    weight = np.ones(len(table)) if weight is None else weight
    offset = np.asarray(fill_offset(offset, len(table)), dtype=float)
    n_terms = max(len(model.features.term_feature), 1)
    kept = spread_rows(len(table), MAX_CELLS // n_terms)
    rows = MemoryRows(model, y[kept], weight[kept], offset[kept])
    rows.total = float(np.sum(weight))
    facts = describe_sample(
        model,
        table,
        weight,
        offset,
        n_samples=len(table) if n_samples is None else n_samples,
        **_three_deviances(rows, table[kept]),
    )
    levels = count_levels(facts.effects.levels, table, weight)
    return replace(
        facts,
        effects=replace(facts.effects, levels=levels),
        reach=facts.reach.within(float(facts.reach.times(table).max())),
    )


def describe_sample(
    model: FittedModel,
    table: np.ndarray,
    weight: np.ndarray | None,
    offset: np.ndarray | None,
    *,
    n_samples: int,
    **deviances: float,
) -> TrainingFacts:
    """The same from some of the rows, with `Deviances` that are known of all.

    Levels count no rows yet, and no row is known to be the furthest.
    """
    kept = spread_rows(len(table), MAX_ROWS, weight)
    table, weight = table[kept], check_weight(weight, len(table))[kept]
    offset = None if offset is None else offset[kept]
    swap = fit_gauge(model, table, weight)
    near = near_reference(model.features, table, find_roles(model).relevant)
    return TrainingFacts(
        n_samples=n_samples,
        swap=swap,
        effects=effects(
            model,
            table,
            weight=weight,
            offset=offset,
            swap=swap,
            max_rows=ranking_rows(model),
        ),
        reach=restore_reach(model, measure_shape(model, table, weight)),
        comparisons=compare(model, table, weight=weight, offset=offset),
        near=float(weight[near].sum() / weight.sum()),
        **deviances,
    )


def rank_modifiers(
    model: FittedModel, table: np.ndarray, swap: np.ndarray
) -> np.ndarray:
    """Who bends whom over some of these rows, (p, p), where no facts were kept."""
    some = table[spread_rows(len(table), RANKING_ROWS)]
    return bending(model, some, check_weight(None, len(some)), swap)
