"""Response families: what an error costs, how Newton's method sees it, and its facts.

A family turns the linear predictor `eta` into a mean through its link and prices a
row by its half unit deviance, so that a perfect fit costs zero and the Gaussian cost
is `(y - eta)**2 / 2`. Every cost here is convex in `eta`; `score` is minus its first
and `curvature` its second derivative, which is all that iteratively reweighted least
squares needs. Working in scores never divides by a vanishing weight.

Whatever else the library has to know of a family is a field of its record: nothing
asks for a family by name. A new family is one `Family`, given to an estimator as it is.
Some names stand for many families, told apart by one number, their `Shape`: it is given
or a fit learns it.

Shapes: `y` and `eta` broadcast against each other; results have the broadcast shape.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from sknimo.advice import REFUSED, advise_on_counts, advise_on_sign, advise_on_zeros
from sknimo.exceptions import check_option
from sknimo.shapes import learn_overdispersion, learn_power

# Targets and linear predictors at which functions are told apart, see `traits`.
PROBES = (-3.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.5, 30.0)


@dataclass(frozen=True, slots=True)
class Link:
    """The scale on which effects add up."""

    mean: Callable[[Tensor], Tensor]  # inverse link, `eta -> mu`
    link_function: Callable[[Tensor], Tensor]  # link, `mu -> eta`
    eta_name: str  # what the linear predictor is called in figures and reports
    # Ends of the open range of means.
    lowest: float = -math.inf
    highest: float = math.inf

    def inside(self, mean: Tensor, margin: float) -> Tensor:
        """Means moved to where the link is finite, `margin` away from its ends."""
        return mean.clamp(self.lowest + margin, self.highest - margin)


# Pages and exported graphs compute these three as well.
LINKS = {
    "identity": Link(lambda eta: eta, lambda mu: mu, "prediction"),
    "log": Link(torch.exp, torch.log, "log of the mean", 0.0),
    "logit": Link(torch.sigmoid, torch.logit, "log-odds", 0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A number that tells the families of one name apart.

    Attributes
    ----------
    name : str
        What it is called.
    value : float
    make : callable
        `value -> Family` with that number.
    learn : callable
        `(y, mu, weight) -> value` that makes rows with these means likeliest.
    is_free : bool
        Whether a fit learns it. Until then `value` is where it starts.

    Examples
    --------
    >>> from sknimo.families import get_family
    >>> shape = get_family("negative_binomial").shape
    >>> shape.name, shape.is_free
    ('overdispersion', True)
    """

    name: str
    value: float
    make: Callable[[float], Family]
    learn: Callable[[Tensor, Tensor, Tensor], float]
    is_free: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Family:
    """Link, cost, derivatives and facts of one response distribution.

    Attributes
    ----------
    name : str
        What it is called; those in `FAMILIES` are found and saved by their names.
    link : {"identity", "log", "logit"}
        The link function that maps the mean to `eta`.
    loss : callable
        `(y, eta) -> half unit deviance` per row, convex in `eta`.
    score : callable
        `(y, eta) -> -d loss / d eta` per row.
    curvature : callable
        `(y, eta) -> d2 loss / d eta2` per row, never negative.
    variance : callable
        `mu -> variance` per row, at dispersion one.
    in_domain : callable
        `y -> bool` per row: whether the family can have produced it.
    domain : str
        The same in words, for error messages.
    dispersion : {"deviance", "pearson", "known"}
        How the variance beyond the family's own is estimated: by the mean deviance, by
        Pearson's statistic, or not at all, because it is one.
    least_dispersion : float
        No estimate lies below.
    separable : bool
        Whether some targets are fitted best by an infinite `eta`: coefficients then
        run away where features set such rows apart.
    ratio_name : str, optional
        What the exponential of an effect is called; None where it means nothing.
    is_binary : bool
        Whether the targets are two classes, which only classifiers take.
    least_squares : bool
        Whether the loss is the Gaussian one. A Newton step then is exact, centring and
        scaling `y` changes nothing, and the deviance is a variance.
    held_out_loss : callable, optional
        `(y, eta) -> cost` of a row that judges a model, where it is not `loss`.
    eta_label : str, optional
        What the linear predictor is called, where that is not the link's name for it.
    is_hazard : bool
        Whether the targets are events under a baseline hazard, which only survival
        estimators know.
    shape : Shape, optional
        What tells families of this name apart.
    advice : callable, optional
        `target -> str`: what to do about one that the family cannot have produced.
    wider : tuple of str
        Families for targets that vary more than this one lets them, best first.

    Examples
    --------
    Claims, most of which are zero, with a variance of `mu ** 1.5`, written out (there
    is `family="tweedie(1.5)"` already):

    >>> from sknimo import NIMORegressor
    >>> from sknimo.families import Family
    >>> claims = Family(
    ...     name="claims",
    ...     link="log",
    ...     loss=lambda y, eta: (
    ...         2 * y * (-eta / 2).exp() + 2 * (eta / 2).exp() - 4 * y.sqrt()
    ...     ),
    ...     score=lambda y, eta: y * (-eta / 2).exp() - (eta / 2).exp(),
    ...     curvature=lambda y, eta: (y * (-eta / 2).exp() + (eta / 2).exp()) / 2,
    ...     variance=lambda mu: mu**1.5,
    ...     in_domain=lambda y: (y >= 0) & y.isfinite(),
    ...     domain="numbers that are zero or positive",
    ...     dispersion="pearson",
    ...     separable=True,
    ...     ratio_name="mean ratio",
    ... )
    >>> NIMORegressor(claims)
    NIMORegressor(family=<Family claims>)
    """

    name: str
    link: Literal["identity", "log", "logit"]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]
    curvature: Callable[[Tensor, Tensor], Tensor]
    variance: Callable[[Tensor], Tensor]
    in_domain: Callable[[Tensor], Tensor]
    domain: str
    dispersion: Literal["deviance", "pearson", "known"] = "deviance"
    least_dispersion: float = 0.0
    separable: bool = False
    ratio_name: str | None = None
    is_binary: bool = False
    least_squares: bool = False
    held_out_loss: Callable[[Tensor, Tensor], Tensor] | None = None
    eta_label: str | None = None
    is_hazard: bool = False
    shape: Shape | None = None
    advice: Callable[[float], str] | None = None
    wider: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_option("link", self.link, LINKS)

    @property
    def mean(self) -> Callable[[Tensor], Tensor]:
        """Inverse link, `eta -> mu`."""
        return LINKS[self.link].mean

    @property
    def link_function(self) -> Callable[[Tensor], Tensor]:
        """Link, `mu -> eta`."""
        return LINKS[self.link].link_function

    @property
    def eta_name(self) -> str:
        """What the linear predictor is called."""
        return self.eta_label or LINKS[self.link].eta_name

    @property
    def estimates_dispersion(self) -> bool:
        """Whether the rows say how much they vary."""
        return self.dispersion != "known"

    @property
    def positive_only(self) -> bool:
        """Whether negative targets are impossible."""
        return not bool(self.in_domain(torch.tensor(-1.0)))

    @property
    def is_free(self) -> bool:
        """Whether a fit has yet to learn its shape."""
        return self.shape is not None and self.shape.is_free

    @property
    def spelling(self) -> str:
        """The text that `get_family` finds it by, its number included."""
        if self.shape is None or self.is_free:
            return self.name
        return f"{self.name}({self.shape.value!r})"

    @property
    def title(self) -> str:
        """Its name and number as they are shown."""
        if self.shape is None or self.is_free:
            return self.name
        return f"{self.name}, {self.shape.name} {self.shape.value:.4g}"

    @property
    def is_registered(self) -> bool:
        """Whether its spelling alone says which family this is."""
        known = REGISTERED.get(self.name)
        if known is None or known is self:
            return known is self
        if self.shape is None or known.shape is None:
            return False
        return self.shape.make is known.shape.make

    @property
    def by_deviance(self) -> bool:
        """Whether predictions are scored by deviances, not by squared errors."""
        return not (self.least_squares or self.is_binary)

    def explained(
        self, y: Tensor, eta: Tensor, weight: Tensor, offset: Tensor | None = None
    ) -> float:
        """Share of what weighted rows (n,) vary that is explained, NaN without any.

        `offset` (n,) are logarithms of exposures; a constant rate explains nothing.
        """
        mean = (weight @ y) / weight.sum()
        if self.by_deviance:
            null = self.link_function(mean).expand_as(y)
            if offset is not None and self.link == "log":
                null = offset + ((weight @ y) / (weight @ offset.exp())).log()
            left, total = (weight @ self.loss(y, at) for at in (eta, null))
        else:
            left = weight @ (y - self.mean(eta)).square()
            total = weight @ (y - mean).square()
        return 1 - float(left / total) if float(total) > 0 else math.nan

    def learned(self, y: Tensor, eta: Tensor, weight: Tensor) -> Family:
        """The family of this name that is likeliest for rows (n,) with these means."""
        assert self.shape is not None
        counts = weight > 0
        mean = LINKS[self.link].inside(self.mean(eta[counts]), 1e-12)
        value = self.shape.learn(y[counts], mean, weight[counts])
        return self.shape.make(value)

    def traits(self) -> list[object]:
        """Everything that tells this family from others, in facts and numbers.

        A function is known by its values at a few points: it has no lasting name.
        """
        eta = y = torch.tensor(PROBES, dtype=torch.float64)
        pairs = torch.cartesian_prod(y[self.in_domain(y)], eta).unbind(-1)
        traits: list[object] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("shape", "advice", "wider"):
                continue  # the other fields show it
            if field.name == "in_domain":
                value = value(y)
            elif field.name == "variance":
                value = value(self.mean(eta))
            elif callable(value):
                value = value(*pairs)
            traits.append(value)
        return traits

    def __repr__(self) -> str:
        return f"<Family {self.spelling}>"

    def __reduce__(self) -> tuple[Callable[..., Family], tuple[object, ...]]:
        """Pickle by name where that says all: there is one record per such family."""
        if self.is_registered:
            return get_family, (self.spelling,)
        return Family, tuple(getattr(self, field.name) for field in fields(self))


def _binomial_loss(y: Tensor, eta: Tensor) -> Tensor:
    entropy = torch.xlogy(y, y) + torch.xlogy(1 - y, 1 - y)
    # log(1 + exp(eta)) - y * eta, without overflow on either side, and without loss of
    # digits where a class is nearly certain: steps are judged by what is left there.
    certain = torch.maximum((1 - y) * eta, -y * eta)
    return certain + torch.log1p((-eta.abs()).exp()) + entropy


def _binomial_score(y: Tensor, eta: Tensor) -> Tensor:
    # y - sigmoid(eta), with all digits where a class is nearly certain.
    return y * torch.sigmoid(-eta) - (1 - y) * torch.sigmoid(eta)


def _gamma_loss(y: Tensor, eta: Tensor) -> Tensor:
    rest = y.log() - eta
    return rest.expm1() - rest


GAUSSIAN = Family(
    name="gaussian",
    link="identity",
    loss=lambda y, eta: (y - eta).square() / 2,
    score=lambda y, eta: y - eta,
    curvature=lambda y, eta: torch.ones_like(eta),
    variance=torch.ones_like,
    in_domain=lambda y: torch.isfinite(y),
    domain="finite numbers",
    least_squares=True,
)

BINOMIAL = Family(
    name="binomial",
    link="logit",
    loss=_binomial_loss,
    score=_binomial_score,
    curvature=lambda y, eta: torch.sigmoid(eta) * torch.sigmoid(-eta),
    variance=lambda mu: mu * (1 - mu),
    in_domain=lambda y: (y >= 0) & (y <= 1),
    domain="numbers between 0 and 1",
    dispersion="known",
    separable=True,
    ratio_name="odds ratio",
    is_binary=True,
    # The deviance of a class has no bound: a few rows predicted with too much certainty
    # would outweigh a hundred that only the network gets right.
    held_out_loss=lambda y, eta: (y - torch.sigmoid(eta)).square(),
)

POISSON = Family(
    name="poisson",
    link="log",
    loss=lambda y, eta: eta.exp() - y * eta + torch.xlogy(y, y) - y,
    score=lambda y, eta: y - eta.exp(),
    curvature=lambda y, eta: eta.exp(),
    variance=lambda mu: mu,
    in_domain=lambda y: (y >= 0) & torch.isfinite(y),
    domain="counts or rates that are zero or positive",
    advice=advise_on_sign,
    wider=("negative_binomial", "tweedie"),
    # Counts can vary more than Poisson's law says, which is taken for noise, not less.
    dispersion="pearson",
    least_dispersion=1.0,
    separable=True,
    ratio_name="rate ratio",
)

GAMMA = Family(
    name="gamma",
    link="log",
    loss=_gamma_loss,
    score=lambda y, eta: (y.log() - eta).expm1(),
    # Observed, not expected, information: Newton's method on a convex cost.
    curvature=lambda y, eta: y * (-eta).exp(),
    variance=torch.square,
    in_domain=lambda y: (y > 0) & torch.isfinite(y),
    domain="strictly positive numbers",
    ratio_name="mean ratio",
    advice=advise_on_zeros,
)

# One of several classes: its linear predictor stands beside those of the others in a
# softmax. With the others taken off as an offset it is that of two classes. Its
# exponential is a probability over that of another class, or over the mean of all.
SOFTMAX = replace(
    BINOMIAL,
    name="softmax",
    link="log",
    in_domain=lambda y: (y >= 0) & (y == y.round()),
    domain="numbers of classes",
    ratio_name="probability ratio",
    is_binary=False,
)

# Events at given exposures to a baseline hazard (`survival.py`): Poisson's cost, but a
# row has one event at most, and what is left of its chance says nothing of dispersion.
COX = replace(
    POISSON,
    name="cox",
    in_domain=lambda y: (y == 0) | (y == 1),
    domain="events, 0 or 1,",
    dispersion="known",
    ratio_name="hazard ratio",
    eta_label="log hazard",
    is_hazard=True,
)


@lru_cache(maxsize=256)
def negative_binomial(overdispersion: float) -> Family:
    """Counts with variance `mu + overdispersion * mu**2` and a log link.

    Zero would be the Poisson family. statsmodels calls the number `alpha`, R has its
    inverse, `theta`.

    Examples
    --------
    >>> from sknimo.families import negative_binomial
    >>> negative_binomial(0.5)
    <Family negative_binomial(0.5)>
    """
    k = float(overdispersion)
    if not 0 < k < math.inf:
        raise ValueError(
            f"The overdispersion of the negative_binomial family must be a positive "
            f"number, got {overdispersion!r}. With none at all it is "
            "family='poisson'; family='negative_binomial' learns it."
        )
    log_k = math.log(k)

    def loss(y: Tensor, eta: Tensor) -> Tensor:
        # log((1 + k mu) / (1 + k y)), with all digits where k is small.
        rest = torch.log1p(k * (eta.exp() - y) / (1 + k * y))
        return (y + 1 / k) * rest - y * eta + torch.xlogy(y, y)

    def score(y: Tensor, eta: Tensor) -> Tensor:
        at = eta + log_k
        return y * torch.sigmoid(-at) - torch.sigmoid(at) / k

    def curvature(y: Tensor, eta: Tensor) -> Tensor:
        at = eta + log_k
        return (y + 1 / k) * torch.sigmoid(at) * torch.sigmoid(-at)

    return Family(
        name="negative_binomial",
        link="log",
        loss=loss,
        score=score,
        curvature=curvature,
        variance=lambda mu: mu * (1 + k * mu),
        in_domain=lambda y: (y >= 0) & torch.isfinite(y) & (y == y.round()),
        domain="whole counts that are zero or positive",
        # What is learned without a network is too much with one, never too little.
        dispersion="pearson",
        least_dispersion=1.0,
        separable=True,
        ratio_name="rate ratio",
        shape=Shape("overdispersion", k, negative_binomial, learn_overdispersion),
        advice=advise_on_counts,
    )


@lru_cache(maxsize=256)
def tweedie(power: float) -> Family:
    """Amounts of which some are exactly zero, with variance `phi * mu**power`.

    Sums of a Poisson number of gamma amounts, such as claims; the link is the
    logarithm. The power lies between that of counts, 1, and that of amounts, 2.

    Examples
    --------
    >>> from sknimo.families import tweedie
    >>> tweedie(1.5)
    <Family tweedie(1.5)>
    """
    p = float(power)
    if not 1 < p < 2:
        raise ValueError(
            "The power of the tweedie family must lie strictly between 1 and 2, got "
            f"{power!r}. At 1 it is family='poisson', at 2 family='gamma'; "
            "family='tweedie' learns it."
        )

    def loss(y: Tensor, eta: Tensor) -> Tensor:
        down, up = y * ((1 - p) * eta).exp(), ((2 - p) * eta).exp()
        return down / (p - 1) + up / (2 - p) - y ** (2 - p) / ((p - 1) * (2 - p))

    def curvature(y: Tensor, eta: Tensor) -> Tensor:
        down, up = y * ((1 - p) * eta).exp(), ((2 - p) * eta).exp()
        return (p - 1) * down + (2 - p) * up

    return Family(
        name="tweedie",
        link="log",
        loss=loss,
        score=lambda y, eta: y * ((1 - p) * eta).exp() - ((2 - p) * eta).exp(),
        curvature=curvature,
        variance=lambda mu: mu**p,
        in_domain=POISSON.in_domain,
        domain="amounts that are zero or positive",
        dispersion="pearson",
        separable=True,
        ratio_name="mean ratio",
        shape=Shape("power", p, tweedie, learn_power),
        advice=advise_on_sign,
        wider=("negative_binomial", "tweedie"),
    )


def _free(family: Family) -> Family:
    """The same, to be learned from there on."""
    assert family.shape is not None
    return replace(family, shape=replace(family.shape, is_free=True))


NEGATIVE_BINOMIAL = _free(negative_binomial(1.0))
TWEEDIE = _free(tweedie(1.5))

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (GAUSSIAN, BINOMIAL, POISSON, GAMMA, NEGATIVE_BINOMIAL, TWEEDIE)
}
# With those that no parameter names; files know them all.
REGISTERED = FAMILIES | {family.name: family for family in (COX, SOFTMAX)}
_SPELLING = re.compile(r"(\w+)\s*\(\s*([^()]*?)\s*\)")


def get_family(name: str, among: Iterable[str] = FAMILIES) -> Family:
    """Find a family by name; an unknown name lists the known ones.

    A number in brackets is its shape.

    Examples
    --------
    >>> from sknimo.families import get_family
    >>> get_family("tweedie(1.6)").shape.value
    1.6
    """
    found = _SPELLING.fullmatch(name)
    plain = name if found is None else found[1]
    if plain in REFUSED:
        raise ValueError(f"There is no family {plain!r}. {REFUSED[plain]}")
    check_option("family", plain, REGISTERED if plain in REGISTERED else among)
    if found is None:
        return REGISTERED[name]
    shape = REGISTERED[plain].shape
    if shape is None:
        raise ValueError(
            f"The {plain} family has no number to give, got {name!r}. Leave out the "
            "brackets."
        )
    try:
        value = float(found[2])
    except ValueError:
        raise ValueError(
            f"family={name!r} needs a number in its brackets, the {shape.name}."
        ) from None
    return shape.make(value)
