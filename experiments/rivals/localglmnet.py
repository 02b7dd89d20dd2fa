"""LocalGLMnet (Richman and Wüthrich, 2023).

    eta = b0 + sum_j beta_j(x) x_j

One network sees the whole row and returns the regression attentions beta(x); unlike in
NIMO, beta_j sees x_j, so that contributions are less unique still. The paper's network:
layers of 20, 15 and 10 hyperbolic tangents, Nadam, early stopping on rows held out. No
other regularisation; the mean of a few starts, which its authors advise.
"""

from __future__ import annotations

import torch
from rivals import Fitted, Rows
from torch import Tensor, nn

from experiments.rivals._train import Budget, Split, fit_best, train

HIDDEN = (20, 15, 10)
N_MEMBERS = 5
# Keras' default rate; batches and patience for hundreds of rows, not for the
# hundreds of thousands of insurance portfolios.
LEARNING_RATE, BATCH_SIZE, N_EPOCHS, PATIENCE = 0.001, 32, 1000, 50
MAX_STEPS = 20_000


class LocalGLMnet(nn.Module):
    """A network of regression attentions and a constant intercept."""

    def __init__(self, n_features: int) -> None:
        super().__init__()
        widths = (n_features, *HIDDEN)
        layers: list[nn.Module] = []
        for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(n_in, n_out), nn.Tanh()]
        self.attentions = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], n_features))
        self.intercept = nn.Parameter(torch.zeros(()))

    def forward(self, X: Tensor) -> Tensor:
        return (self.attentions(X) * X).sum(1) + self.intercept


def train_localglmnet(split: Split) -> tuple[float, nn.Module]:
    model = LocalGLMnet(split.X.shape[1])
    batch_size = max(BATCH_SIZE, len(split.y) // 100)
    n_batches = -(-len(split.y) // batch_size)
    budget = Budget(
        learning_rate=LEARNING_RATE,
        batch_size=batch_size,
        n_epochs=min(N_EPOCHS, MAX_STEPS // n_batches),
        patience=PATIENCE,
        optimiser=torch.optim.NAdam,
    )

    def loss(model: nn.Module, X: Tensor, y: Tensor) -> Tensor:
        return split.data_loss(model(X), y)

    return train(model, split, loss, budget), model


def fit(rows: Rows, seed: int, n_jobs: int, n_members: int = N_MEMBERS) -> Fitted:
    return fit_best(rows, seed, n_jobs, [train_localglmnet], n_members)
