"""Response families: what an error costs, and how Newton's method sees it.

A family turns the linear predictor `eta` into a mean through its link and prices a
row by its half unit deviance, so that a perfect fit costs zero and the Gaussian cost
is `(y - eta)**2 / 2`. Every cost here is convex in `eta`; `score` is minus its first
and `curvature` its second derivative, which is all that iteratively reweighted least
squares needs. Working in scores never divides by a vanishing weight.

Shapes: `y` and `eta` broadcast against each other; results have the broadcast shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

FamilyName = Literal["gaussian", "binomial", "poisson", "gamma"]


@dataclass(frozen=True, slots=True)
class Family:
    """Link, cost and derivatives of one response distribution.

    Attributes
    ----------
    name : str
        Name under which the family is found and saved.
    link : str
        Name of the link function that maps the mean to `eta`.
    loss : callable
        `(y, eta) -> half unit deviance` per row.
    score : callable
        `(y, eta) -> -d loss / d eta` per row.
    curvature : callable
        `(y, eta) -> d2 loss / d eta2` per row, never negative.
    mean : callable
        Inverse link, `eta -> mu`.
    link_function : callable
        Link, `mu -> eta`.
    in_domain : callable
        `y -> bool` per row: whether the family can have produced it.
    domain : str
        The same in words, for error messages.
    scaled_target : bool
        Whether centring and scaling `y` leaves the family as it is. Only then are
        penalties measured in units of the target's standard deviation.
    """

    name: str
    link: str
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]
    curvature: Callable[[Tensor, Tensor], Tensor]
    mean: Callable[[Tensor], Tensor]
    link_function: Callable[[Tensor], Tensor]
    in_domain: Callable[[Tensor], Tensor]
    domain: str
    scaled_target: bool = False

    def __reduce__(self) -> tuple[Callable[[str], Family], tuple[str]]:
        """Pickle by name: there is one record per family."""
        return get_family, (self.name,)


def _binomial_loss(y: Tensor, eta: Tensor) -> Tensor:
    entropy = torch.xlogy(y, y) + torch.xlogy(1 - y, 1 - y)
    # logaddexp(0, eta) = log(1 + exp(eta)) without overflow on either side.
    return torch.logaddexp(torch.zeros_like(eta), eta) - y * eta + entropy


def _binomial_curvature(y: Tensor, eta: Tensor) -> Tensor:
    return torch.sigmoid(eta) * torch.sigmoid(-eta)


def _poisson_loss(y: Tensor, eta: Tensor) -> Tensor:
    return eta.exp() - y * eta + torch.xlogy(y, y) - y


def _gamma_loss(y: Tensor, eta: Tensor) -> Tensor:
    return y * (-eta).exp() + eta - 1 - y.log()


GAUSSIAN = Family(
    name="gaussian",
    link="identity",
    loss=lambda y, eta: (y - eta).square() / 2,
    score=lambda y, eta: y - eta,
    curvature=lambda y, eta: torch.ones_like(eta),
    mean=lambda eta: eta,
    link_function=lambda mu: mu,
    in_domain=lambda y: torch.isfinite(y),
    domain="finite numbers",
    scaled_target=True,
)

BINOMIAL = Family(
    name="binomial",
    link="logit",
    loss=_binomial_loss,
    score=lambda y, eta: y - torch.sigmoid(eta),
    curvature=_binomial_curvature,
    mean=torch.sigmoid,
    link_function=torch.logit,
    in_domain=lambda y: (y >= 0) & (y <= 1),
    domain="numbers between 0 and 1",
)

POISSON = Family(
    name="poisson",
    link="log",
    loss=_poisson_loss,
    score=lambda y, eta: y - eta.exp(),
    curvature=lambda y, eta: eta.exp(),
    mean=torch.exp,
    link_function=torch.log,
    in_domain=lambda y: (y >= 0) & torch.isfinite(y),
    domain="counts or rates that are zero or positive",
)

GAMMA = Family(
    name="gamma",
    link="log",
    loss=_gamma_loss,
    score=lambda y, eta: y * (-eta).exp() - 1,
    # Observed, not expected, information: Newton's method on a convex cost.
    curvature=lambda y, eta: y * (-eta).exp(),
    mean=torch.exp,
    link_function=torch.log,
    in_domain=lambda y: (y > 0) & torch.isfinite(y),
    domain="strictly positive numbers",
)

FAMILIES: dict[str, Family] = {
    family.name: family for family in (GAUSSIAN, BINOMIAL, POISSON, GAMMA)
}


def get_family(name: str) -> Family:
    """Find a family by name; an unknown name lists the known ones."""
    if name not in FAMILIES:
        known = ", ".join(repr(option) for option in get_args(FamilyName))
        raise ValueError(f"family must be one of {known}, got {name!r}.")
    return FAMILIES[name]
