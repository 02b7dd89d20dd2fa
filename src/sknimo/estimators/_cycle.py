"""Fixed penalties with more than two classes: one class after the other, again and again.

With the other classes known, a softmax in the linear predictor of class c is the
likelihood of two classes with an offset:

    P(class c) = sigmoid(eta_c - log sum_{l != c} exp(eta_l))

So each class in turn is solved by what solves two classes, and the sum of the softmax
loss and all penalties falls at every turn. Without networks that sum is convex and the
cycle ends at its minimum; with networks it ends where no class alone can lower it.

Shapes: n rows, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.checkpoint import Checkpoint
from sknimo.families import BINOMIAL
from sknimo.model import ClassModels
from sknimo.solver import History, Members, Options, Problem, Solution, solve
from sknimo.training import TrainingSet, assemble

# Turns of all classes without a network, with one, and with networks that stay.
GLM_TURNS, NETWORK_TURNS, LAST_TURNS = 300, 4, 20
# Relative fall of the objective in a turn that counts as none.
SETTLED = 1e-13


@dataclass(frozen=True, slots=True)
class Cycle:
    """Where the classes ended."""

    solutions: list[Solution]  # of one member each
    objective: float  # softmax loss and penalties
    glm_objective: float  # the same without networks
    settled: bool

    def model(self, data: TrainingSet, problem: Problem) -> ClassModels:
        """The fitted models of all classes."""
        return ClassModels.of([assemble(data, problem, one) for one in self.solutions])

    def join(self) -> Solution:
        """The first class, with what is known of the training of all."""
        every = self.solutions
        bad = [one.status[0] for one in every if not one.status[0].ok]
        first = every[0]
        return replace(
            first,
            objective=torch.full_like(first.objective, self.objective),
            glm_objective=torch.full_like(first.objective, self.glm_objective),
            kkt=torch.stack([one.kkt for one in every]).amax(0),
            inner_converged=torch.stack([one.inner_converged for one in every]).all(0)
            & self.settled,
            n_iter=torch.stack([one.n_iter for one in every]).sum(0),
            status=(bad[0],) if bad else first.status,
            history=History.join([one.history for one in every]),
        )


@dataclass(slots=True)
class ClassCycle:
    """The classes of a problem, on their way."""

    problem: Problem  # its target numbers the classes
    data: TrainingSet
    members: Sequence[Members]  # of every class, with one member
    options: Options
    checkpoint: Checkpoint | None = None

    def run(self, start: Tensor | None) -> Cycle:
        """Solve without networks, train them, and solve again around them.

        `start` (C, P) replaces random networks.
        """
        n_classes = len(self.members)
        share = self.members[0].weight[0]
        counts = torch.stack(
            [share[self.problem.y == c].sum() for c in range(n_classes)]
        )
        eta = counts.clamp(min=1e-9).log().expand(self.problem.n_rows, -1).clone()
        still = replace(self.options, max_iter=0, progress=False)
        eta, found, glm = self._turns(eta, GLM_TURNS, still, [None] * n_classes)
        if self.options.max_iter == 0:
            return Cycle(found, glm.value, glm.value, glm.settled)
        starts = [None] * n_classes if start is None else list(start.unsqueeze(1))
        steps = math.ceil(self.options.max_iter / NETWORK_TURNS)
        train = replace(self.options, max_iter=steps)
        eta, found, end = self._turns(eta, NETWORK_TURNS, train, starts, "class")
        n_iter = [one.n_iter for one in found]
        history = [one.history for one in found]
        status = [one.status for one in found]
        networks = [one.params for one in found]
        _, found, end = self._turns(eta, LAST_TURNS, still, networks)
        found = [
            replace(one, n_iter=NETWORK_TURNS * n, history=log, status=said)
            for one, n, log, said in zip(found, n_iter, history, status, strict=True)
        ]
        return Cycle(found, end.value, glm.value, end.settled)

    def _turns(
        self,
        eta: Tensor,
        n_turns: int,
        options: Options,
        starts: Sequence[Tensor | None],
        name: str = "",
    ) -> tuple[Tensor, list[Solution], Turn]:
        """Go round until the objective settles; `eta` is (n, C)."""
        trains = options.max_iter > 0
        networks, value = list(starts), math.inf
        for turn in range(n_turns):
            found, penalty = [], 0.0
            for c, members in enumerate(self.members):
                offset = -torch.cat([eta[:, :c], eta[:, c + 1 :]], 1).logsumexp(1)
                truth = (self.problem.y == c).to(eta)
                one = replace(self.problem, y=truth, offset=offset, family=BINOMIAL)
                keep = self.checkpoint if trains else None
                args = (one, members, options, networks[c], keep)
                solution = solve(*args, name=f"{name}-{c}-{turn}")
                own = self._eta(one, solution)
                eta[:, c] = own
                loss = members.weight[0] @ BINOMIAL.loss(truth, own + offset)
                penalty += float(solution.objective[0] - loss)
                networks[c] = solution.params if trains else networks[c]
                found.append(solution)
            truth = eta.gather(1, self.problem.y.long().unsqueeze(1)).squeeze(1)
            loss = self.members[0].weight[0] @ (eta.logsumexp(1) - truth)
            before, value = value, float(loss) + penalty
            settled = before - value <= SETTLED * max(abs(value), 1e-3)
            # Under a ridge what is common to all classes costs penalty alone.
            ridge = self.members[0].penalty.power == 2
            if ridge and not any(one.modulated.any() for one in found):
                eta = eta - eta.mean(1, keepdim=True)
            if settled:
                break
        return eta, found, Turn(value, settled or trains)

    def _eta(self, problem: Problem, solution: Solution) -> Tensor:
        """Linear predictor of a class without the offset, (n,)."""
        model = assemble(self.data, problem, solution)
        return torch.as_tensor(model.eta(self.data.table)).to(problem.y)


def class_members(members: Members, n_classes: int) -> list[Members]:
    """The same for every class, with a seed each."""
    seed = members.seeds[0]
    return [replace(members, seeds=(seed + c,)) for c in range(n_classes)]


@dataclass(frozen=True, slots=True)
class Turn:
    """How a stage of the cycle ended."""

    value: float
    settled: bool
