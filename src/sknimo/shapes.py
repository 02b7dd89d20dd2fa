"""Numbers beyond the mean that a family may have, and which ones rows make likeliest.

The negative binomial family has an overdispersion `k` with variance `mu + k mu**2`, the
Tweedie family a power `p` with variance `phi mu**p`. Given the means of the rows, each
is where the likelihood is highest. A Tweedie target is a sum of gamma amounts of which
there is a Poisson number, and its density a sum over that number.

Shapes: n rows; `y`, `mu` and `weight` are (n,) and in double precision.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Overdispersions that are told apart; below the lowest counts are Poisson's.
OVERDISPERSION_RANGE = (1e-6, 1e3)
# Powers that are learned. Near one the density of amounts breaks up into spikes.
POWER_RANGE = (1.05, 1.95)
# Likely numbers of amounts in one target up to which they are summed over one by one;
# beyond it the saddlepoint of the density is as good.
MOST_AMOUNTS = 100.0
# Numbers of amounts that are looked at in any case, and at most.
AMOUNTS_RANGE = (30, 1000)
# Rows that a power is learned from: the density of each is a sum.
POWER_ROWS = 5000
STEPS, HALVINGS = 50, 20
GOLDEN = (math.sqrt(5) - 1) / 2


def negative_binomial_log_likelihood(y: Tensor, mu: Tensor, k: float) -> Tensor:
    """Logarithm of the probability of each count, (n,).

    Examples
    --------
    With an overdispersion of one counts are geometric:

    >>> import torch
    >>> y, mu = torch.arange(3.0), torch.ones(3)
    >>> negative_binomial_log_likelihood(y, mu, 1.0).exp().tolist()
    [0.5, 0.25, 0.125]
    """
    size = torch.as_tensor(1 / k, dtype=y.dtype)
    ways = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1)
    return ways + torch.xlogy(y, k * mu) - (y + size) * torch.log1p(k * mu)


def learn_overdispersion(y: Tensor, mu: Tensor, weight: Tensor) -> float:
    """The overdispersion under which counts with these means are likeliest."""

    def value(log_k: float) -> float:
        each = negative_binomial_log_likelihood(y, mu, math.exp(log_k))
        return float(weight @ each)

    low, high = (math.log(end) for end in OVERDISPERSION_RANGE)
    return math.exp(_maximise(value, low, high))


def _maximise(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one number is highest: best of a grid, then golden section.

    An end of the range is returned as it is.
    """
    grid = torch.linspace(low, high, 31, dtype=torch.float64).tolist()
    best = max(range(len(grid)), key=lambda at: value(grid[at]))
    if best in (0, len(grid) - 1):
        return grid[best]
    low, high = grid[best - 1], grid[best + 1]
    inner = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    found = [value(at) for at in inner]
    while high - low > 1e-8:
        if found[0] >= found[1]:
            high, inner[1], found[1] = inner[1], inner[0], found[0]
            inner[0] = high - GOLDEN * (high - low)
            found[0] = value(inner[0])
        else:
            low, inner[0], found[0] = inner[0], inner[1], found[1]
            inner[1] = low + GOLDEN * (high - low)
            found[1] = value(inner[1])
    return (low + high) / 2


def tweedie_log_likelihood(
    y: Tensor, mu: Tensor, power: Tensor, dispersion: Tensor, many: Tensor | None = None
) -> Tensor:
    """Logarithm of the density of each amount, of its probability where it is zero.

    `many` (n,) are rows whose density is that of the saddlepoint; by default those in
    which more than `MOST_AMOUNTS` amounts are likely. Derivatives in `power` and
    `dispersion` are those of what is computed.

    Examples
    --------
    No amount at all, where 0.5 are expected:

    >>> import torch
    >>> one, half = torch.ones(1), torch.tensor([0.25])
    >>> where = torch.tensor([1.5]), torch.tensor([2.0])
    >>> round(tweedie_log_likelihood(0 * one, half, *where).item(), 6)
    -0.5
    """
    out = -_likely_amounts(mu, power, dispersion)
    positive = y > 0
    if many is None:
        many = _likely_amounts(y, power, dispersion) > MOST_AMOUNTS
    far = positive & many
    near = positive & ~many
    if bool(far.any()):
        at, mean = y[far], mu[far]
        deviance = 2 * (
            (at ** (2 - power)) / ((1 - power) * (2 - power))
            - at * mean ** (1 - power) / (1 - power)
            + mean ** (2 - power) / (2 - power)
        )
        level = (2 * math.pi * dispersion * at**power).log()
        out = out.masked_scatter(far, -(level + deviance / dispersion) / 2)
    if bool(near.any()):
        density = _sum_over_amounts(y[near], mu[near], power, dispersion)
        out = out.masked_scatter(near, density)
    return out


def _likely_amounts(y: Tensor, power: Tensor, dispersion: Tensor) -> Tensor:
    """The likeliest number of amounts in each target, or expected for a mean, (n,)."""
    return y ** (2 - power) / (dispersion * (2 - power))


def _sum_over_amounts(
    y: Tensor, mu: Tensor, power: Tensor, dispersion: Tensor
) -> Tensor:
    """Logarithm of the sum over numbers of amounts of their joint densities, (n,)."""
    number = _likely_amounts(mu, power, dispersion)
    shape = (2 - power) / (power - 1)
    scale = dispersion * (power - 1) * mu ** (power - 1)
    likely = float(_likely_amounts(y, power, dispersion).max().detach())
    least, most = AMOUNTS_RANGE
    count = int(min(least + likely + 8 * math.sqrt(likely), most))
    j = torch.arange(1, count + 1, dtype=y.dtype)
    rate = number.log() + shape * (y / scale).log()
    ways = torch.lgamma(j + 1) + torch.lgamma(shape * j)
    each = torch.logsumexp(j * rate.unsqueeze(1) - ways, dim=1)
    return each - number - y / scale - y.log()


def learn_power(y: Tensor, mu: Tensor, weight: Tensor) -> float:
    """The power under which amounts with these means are likeliest.

    The dispersion, of which nothing else depends on, is learned along.
    """
    step = -(-len(y) // POWER_ROWS)
    y, mu, weight = y[::step], mu[::step], weight[::step]
    weight = weight / weight.sum()
    low, high = POWER_RANGE
    start = float(weight @ ((y - mu).square() / mu**1.5))
    at = torch.tensor([0.0, math.log(max(start, 1e-12))], dtype=torch.float64)
    middle = torch.tensor(1.5, dtype=torch.float64)
    many = _likely_amounts(y, middle, at[1].exp()) > MOST_AMOUNTS

    def power_at(at: Tensor) -> Tensor:
        return low + (high - low) * torch.sigmoid(at[0])

    def cost(at: Tensor) -> Tensor:
        each = tweedie_log_likelihood(y, mu, power_at(at), at[1].exp(), many)
        return -(weight @ each)

    return float(power_at(_minimise(cost, at)))


def _minimise(cost: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Where a smooth function of two numbers is lowest, by damped Newton steps."""
    for _ in range(STEPS):
        leaf = at.detach().requires_grad_(True)
        with torch.enable_grad():
            value = cost(leaf)
            (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
            rows = [
                torch.autograd.grad(each, leaf, retain_graph=True)[0] for each in slope
            ]
        values, axes = torch.linalg.eigh(torch.stack(rows))
        # Downhill wherever the function bends downwards too, and not too far.
        step = axes @ ((axes.T @ slope.detach()) / values.abs().clamp(min=1e-6))
        step = step * (1 / step.abs().max().clamp(min=1.0))
        before = float(value.detach())
        for _ in range(HALVINGS):
            if float(cost(at - step)) <= before:
                break
            step = step / 2
        else:
            return at
        at = at - step
        if float(step.abs().max()) < 1e-9:
            return at
    return at
