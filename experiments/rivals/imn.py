"""Interpretable mesomorphic networks (Kadra, Pineda Arango and Grabocka, 2024).

    eta = w(x) . x + b(x)

A deep network, fed the row, writes the weights of a linear model for that row; their
mean absolute value is penalised. Two residual blocks of 128 units, batches of 64, Adam
with l2 decay under cosine cycles with restarts, as published; the authors' code also
warms up, augments rows and averages snapshots of the cycles, which is left out here.
Decay and dropout are chosen on the rows held out from a small grid around the published
configuration, in place of its hundred trials; with it alone (decay 0.01, dropout 0.25)
the error on the simulated settings 2 and 3 is up to twice as large.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from rivals import Fitted, Rows
from torch import Tensor, nn

from experiments.rivals._train import Budget, Split, fit_best, train

WIDTH, N_BLOCKS = 128, 2
LEARNING_RATE, BATCH_SIZE, L1_PENALTY = 0.01, 64, 0.1
WEIGHT_DECAYS, DROPOUTS = (0.01, 0.1, 0.3), (0.0, 0.25)
N_EPOCHS, N_RESTARTS = 280, 3
# Larger tables need fewer passes.
MAX_STEPS = 6000


class Block(nn.Module):
    """A residual block: normalise, widen, drop out, add."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.inside = nn.Sequential(
            nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(WIDTH, WIDTH),
            nn.BatchNorm1d(WIDTH),
        )

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.gelu(z + self.inside(z))


class IMN(nn.Module):
    """A network that writes a linear model for every row."""

    def __init__(self, n_features: int, dropout: float) -> None:
        super().__init__()
        self.hyper = nn.Sequential(
            nn.Linear(n_features, WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.GELU(),
            *(Block(dropout) for _ in range(N_BLOCKS)),
            nn.Linear(WIDTH, n_features + 1),
        )

    def weights(self, X: Tensor) -> Tensor:
        """The linear model of each row, its intercept last, (n, p + 1)."""
        return self.hyper(X)

    def forward(self, X: Tensor) -> Tensor:
        weights = self.weights(X)
        return (weights[:, :-1] * X).sum(1) + weights[:, -1]


def train_imn(
    split: Split, weight_decay: float, dropout: float
) -> tuple[float, nn.Module]:
    model = IMN(split.X.shape[1], dropout)

    def loss(model: IMN, X: Tensor, y: Tensor) -> Tensor:
        weights = model.weights(X)
        eta = (weights[:, :-1] * X).sum(1) + weights[:, -1]
        return split.data_loss(eta, y) + L1_PENALTY * weights.abs().mean()

    n_batches = -(-len(split.y) // BATCH_SIZE)
    n_epochs = min(N_EPOCHS, max(21, MAX_STEPS // n_batches))
    budget = Budget(
        learning_rate=LEARNING_RATE,
        batch_size=BATCH_SIZE,
        n_epochs=n_epochs,
        patience=n_epochs,  # the cycles are run to their end
        weight_decay=weight_decay,
        cosine_restarts=N_RESTARTS,
    )
    return train(model, split, loss, budget), model


def fit(rows: Rows, seed: int, n_jobs: int) -> Fitted:
    candidates = [
        partial(train_imn, weight_decay=decay, dropout=dropout)
        for decay, dropout in product(WEIGHT_DECAYS, DROPOUTS)
    ]
    return fit_best(rows, seed, n_jobs, candidates)
