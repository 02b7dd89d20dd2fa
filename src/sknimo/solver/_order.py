"""Rows of members in an order of their own, pass by pass, cut into batches.

Shapes: K members, n rows, m rows of a member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sknimo.solver._profile import PerMember


@dataclass(frozen=True, slots=True)
class RowOrder(PerMember):
    """Rows of each member in a new order at every pass, cut into batches."""

    rows: Tensor  # (K, m), padded
    weight: Tensor  # (K, m), zero where padded, one on average over a batch
    n_steps: int
    generators: tuple[torch.Generator, ...]

    @classmethod
    def of(cls, train: Tensor, seeds: Sequence[int], batch_size: int) -> RowOrder:
        """All members take equally many steps in a pass; `train` (K, n) are weights."""
        rows, weight = pad_rows(train)
        n_rows = rows.shape[1]
        n_steps = max(1, round(n_rows / batch_size))
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        weight = weight * (n_steps / weight.sum(1, keepdim=True))
        return cls(rows, weight.float(), n_steps, tuple(generators))

    def mix(self) -> tuple[Tensor, Tensor]:
        """Rows and weights in a new order, (K, m) each."""
        size, device = self.rows.shape[1], self.rows.device
        order = torch.stack(
            [torch.randperm(size, generator=g) for g in self.generators]
        )
        order = order.to(device)
        return self.rows.gather(1, order), self.weight.gather(1, order)


def pad_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of positive weight of each member and their weights, (K, m), padded."""
    used = [row.nonzero().squeeze(-1) for row in weight]
    rows = torch.nn.utils.rnn.pad_sequence(used, batch_first=True)
    length = torch.tensor([len(each) for each in used], device=weight.device)
    there = torch.arange(rows.shape[1], device=weight.device) < length.unsqueeze(1)
    return rows, weight.gather(1, rows) * there
