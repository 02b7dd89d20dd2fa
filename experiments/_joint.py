"""NIMO trained by joint gradient descent on coefficients and network.

What the paper argues against. The network, its start, the noise, the group shrinkage,
the learning rate and the number of steps are those of `NIMORegressor`; only the
coefficients are moved by Adam, together with the weights, instead of being eliminated.
Gaussian targets alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from rivals import Scaling
from sklearn.linear_model import Lasso
from torch import Tensor

from sknimo.network import Modulator, init_params, make_spec, unpack

NEGLIGIBLE = 1e-3  # share of the largest coefficient that counts as zero


@dataclass(frozen=True)
class JointNIMO:
    """A trained network and its coefficients, for standardised rows and target."""

    scaling: Scaling
    modulator: Modulator
    params: Tensor  # (1, P)
    coef: Tensor  # (p,)
    intercept: Tensor  # ()

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> np.ndarray:
        def eta(Z: np.ndarray) -> np.ndarray:
            rows = torch.as_tensor(Z, dtype=torch.float32)
            return self.intercept.add(self.design(rows) @ self.coef).double().numpy()

        return self.scaling.wrap(eta)(X)

    def design(self, Z: Tensor, noise: Tensor | None = None) -> Tensor:
        everyone = torch.arange(Z.shape[1]).unsqueeze(0)
        return Z * (1 + self.modulator(self.params, Z, everyone, noise)[0])

    @property
    def slopes(self) -> np.ndarray:
        """Coefficients per unit of each column, negligible ones as zero, (p,)."""
        coef = self.coef.detach().double().numpy()
        coef = np.where(np.abs(coef) < NEGLIGIBLE * np.abs(coef).max(), 0.0, coef)
        return coef * self.scaling.y_scale / self.scaling.scale


def train_joint(
    Z: np.ndarray,
    y: np.ndarray,
    scaling: Scaling,
    *,
    alpha: float,
    network_alpha: float,
    hidden: tuple[int, int],
    noise: float,
    max_iter: int,
    learning_rate: float,
    seed: int,
) -> JointNIMO:
    """Minimise half the mean squared error plus an l1 penalty over all parameters.

    Like elimination, descent starts at the lasso, where the network is silent.
    """
    rows, target = (torch.as_tensor(v, dtype=torch.float32) for v in (Z, y))
    p = rows.shape[1]
    spec = make_spec(range(p), p, hidden)
    params = init_params(spec, [seed]).float().requires_grad_()
    lasso = Lasso(alpha=alpha).fit(Z, y)
    coef = torch.tensor(lasso.coef_, dtype=torch.float32, requires_grad=True)
    intercept = torch.zeros((), requires_grad=True)
    modulator = Modulator.build(spec, torch.device("cpu"), torch.float32)
    model = JointNIMO(scaling, modulator, params, coef, intercept)
    optimiser = torch.optim.Adam([params, coef, intercept], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: one_cycle(step / max_iter)
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(max_iter):
        optimiser.zero_grad()
        jitter = noise * torch.randn(len(rows), hidden[0], generator=generator)
        eta = intercept + model.design(rows, jitter) @ coef
        loss = 0.5 * (target - eta).square().mean() + alpha * coef.abs().sum()
        loss.backward()
        optimiser.step()
        shrink(unpack(spec, params).first, network_alpha * schedule.get_last_lr()[0])
        schedule.step()
    return model


def one_cycle(share: float) -> float:
    """Learning rate relative to its peak: up over a tenth, then down a cosine."""
    if share < 0.1:
        return max(share / 0.1, 0.01)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


@torch.no_grad()
def shrink(first: Tensor, amount: float) -> None:
    """Shrink the first-layer weights of each feature, (1, h, p), as one group."""
    size = first.norm(dim=1, keepdim=True).clamp(min=1e-12)
    first.mul_((1 - amount / size).clamp(min=0))
