"""Mini-batch training with early stopping, shared by the torch rivals."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from rivals import Fitted, Rows, Scaling, few_threads, quietly
from torch import Tensor, nn

# Takes the model, rows and targets; the training loss with its penalties.
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Budget:
    """How a network is trained."""

    learning_rate: float
    batch_size: int
    n_epochs: int
    patience: int
    weight_decay: float = 0.0
    optimiser: type[torch.optim.Optimizer] = torch.optim.Adam
    cosine_restarts: int = 0  # cycles of the learning rate, each twice as long


@dataclass(frozen=True)
class Split:
    """Standardised rows to train on and to validate on, as tensors."""

    X: Tensor
    y: Tensor
    X_held_out: Tensor
    y_held_out: Tensor
    is_regression: bool

    def data_loss(self, eta: Tensor, y: Tensor) -> Tensor:
        """Squared error or log loss of a linear predictor."""
        if self.is_regression:
            return nn.functional.mse_loss(eta, y)
        return nn.functional.binary_cross_entropy_with_logits(eta, y)

    @torch.no_grad()
    def held_out_loss(self, model: nn.Module) -> float:
        model.eval()
        return float(self.data_loss(model(self.X_held_out), self.y_held_out))


def split_rows(rows: Rows, scaling: Scaling) -> Split:
    X = torch.as_tensor(scaling.columns(rows.X), dtype=torch.float32)
    y = torch.as_tensor(scaling.target(rows.y), dtype=torch.float32)
    n = rows.n_train
    return Split(X[:n], y[:n], X[n:], y[n:], rows.is_regression)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws that depend on `seed` alone, and leave the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def train(model: nn.Module, split: Split, loss: Loss, budget: Budget) -> float:
    """Train in place, keep the state with the least held-out loss and return that."""
    n = len(split.y)
    batch_size = min(budget.batch_size, n)
    optimiser = budget.optimiser(
        model.parameters(), lr=budget.learning_rate, weight_decay=budget.weight_decay
    )
    schedule = None
    if budget.cosine_restarts:
        # Cycles of length t, 2t, 4t, ... that add up to all epochs.
        first = max(1, budget.n_epochs // (2**budget.cosine_restarts - 1))
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
            optimiser, first, 2
        )
    best, best_state, waited = np.inf, copy.deepcopy(model.state_dict()), 0
    for _ in range(budget.n_epochs):
        model.train()
        for batch in torch.randperm(n).split(batch_size):
            if len(batch) == 1:  # nothing to normalise over
                continue
            optimiser.zero_grad()
            loss(model, split.X[batch], split.y[batch]).backward()
            optimiser.step()
        if schedule is not None:
            schedule.step()
        held_out = split.held_out_loss(model)
        if held_out < best:
            best, best_state, waited = held_out, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited >= budget.patience:
                break
    model.load_state_dict(best_state)
    model.eval()
    return best


def fit_best(
    rows: Rows,
    seed: int,
    n_jobs: int,
    candidates: Sequence[Callable[[Split], tuple[float, nn.Module]]],
    n_members: int = 1,
) -> Fitted:
    """Train each candidate; the one with the least held-out loss predicts.

    With more members the winner is trained again from other starts and averaged.
    """
    scaling = Scaling.learn(rows, rows.n_train, always=True)
    split = split_rows(rows, scaling)
    with few_threads(rows, n_jobs), seeded(seed):
        trials = [candidate(split) for candidate in candidates]
        losses = [loss for loss, _ in trials]
        best = int(np.argmin(losses))
        members = [trials[best][1]]
        members += [candidates[best](split)[1] for _ in range(n_members - 1)]

    @torch.no_grad()
    def eta(Z: np.ndarray) -> np.ndarray:
        inputs = torch.as_tensor(Z, dtype=torch.float32)
        return torch.stack([m(inputs) for m in members]).mean(0).double().numpy()

    if rows.is_regression:
        return Fitted(scaling.wrap(eta))
    labels = quietly(lambda X: (eta(scaling.columns(X)) > 0).astype(int))
    return Fitted(labels)
