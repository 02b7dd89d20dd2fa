"""Neural additive models (Agarwal et al., 2021).

    eta = bias + sum_j f_j(x_j),  one network per feature

The paper's second architecture, three layers of 64, 64 and 32 rectified units per
feature, with dropout, dropout of whole features and a penalty on the size of their
outputs. Its first, a wide layer of exponential units, is made for jumps, which none of
the tables here has. Settings as recommended: full batches up to 1024 rows, a learning
rate of 0.01, patience of 60 epochs; the output penalty is chosen on the rows held out,
as the paper does. The ensemble has three members, the authors' twenty.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from rivals import Fitted, Rows
from torch import Tensor, nn

from experiments.rivals._train import Budget, Split, fit_best, train

HIDDEN = (64, 64, 32)
DROPOUT, FEATURE_DROPOUT = 0.1, 0.05
OUTPUT_PENALTIES = (0.001, 0.1)
BUDGET = Budget(learning_rate=0.01, batch_size=1024, n_epochs=1000, patience=60)
N_MEMBERS = 3


class GroupedLinear(nn.Module):
    """One linear layer per feature, in one product."""

    def __init__(self, n_groups: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_groups, n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_groups, 1, n_out))
        nn.init.uniform_(self.weight, -bound * math.sqrt(3), bound * math.sqrt(3))
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, z: Tensor) -> Tensor:
        """From (p, n, n_in) to (p, n, n_out)."""
        return torch.baddbmm(self.bias, z, self.weight)


class NAM(nn.Module):
    """A sum of one network per feature."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        widths = (1, *HIDDEN)
        layers: list[nn.Module] = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [
                GroupedLinear(n_features, n_in, n_out),
                nn.ReLU(),
                nn.Dropout(DROPOUT),
            ]
        self.networks = nn.Sequential(*layers, GroupedLinear(n_features, HIDDEN[-1], 1))
        self.keep = nn.Dropout(FEATURE_DROPOUT)
        self.bias = nn.Parameter(torch.zeros(()))

    def shapes(self, X: Tensor) -> Tensor:
        """The value of each feature's function, (n, p)."""
        return self.networks(X.T.unsqueeze(-1)).squeeze(-1).T

    def forward(self, X: Tensor) -> Tensor:
        return self.keep(self.shapes(X)).sum(1) + self.bias


def train_nam(split: Split, output_penalty: float) -> tuple[float, nn.Module]:
    model = NAM(split.X.shape[1])

    def loss(model: NAM, X: Tensor, y: Tensor) -> Tensor:
        shapes = model.keep(model.shapes(X))
        eta = shapes.sum(1) + model.bias
        return split.data_loss(eta, y) + output_penalty * shapes.square().mean()

    return train(model, split, loss, BUDGET), model


def fit(rows: Rows, seed: int, n_jobs: int, n_members: int = N_MEMBERS) -> Fitted:
    candidates = [partial(train_nam, output_penalty=a) for a in OUTPUT_PENALTIES]
    return fit_best(rows, seed, n_jobs, candidates, n_members)
