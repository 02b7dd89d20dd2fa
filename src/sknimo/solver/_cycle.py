"""Fixed penalties with more than two classes: one after the other, again and again.

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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sknimo.checkpoint import Checkpoint
from sknimo.families import BINOMIAL
from sknimo.machine import torch_threads
from sknimo.solver._forward import Bent, Forward
from sknimo.solver._outer import solve
from sknimo.solver._problem import History, Members, Options, Problem, Solution
from sknimo.solver._profile import (
    Coefficients,
    expand,
    kkt_scale,
    start_coefficients,
    violation,
)

# Turns of all classes without a network, with one, and with networks that stay.
GLM_TURNS, NETWORK_TURNS, LAST_TURNS = 300, 4, 30
# Relative fall of the objective in a turn that counts as none.
SETTLED = 1e-13


@dataclass(frozen=True, slots=True)
class Cycle:
    """Where the classes are."""

    eta: Tensor  # (n, C)
    solutions: list[Solution]  # of one member each, none before the first turn
    objective: float = math.inf  # softmax loss and penalties
    glm_objective: float = math.inf  # the same without networks
    settled: bool = False  # a turn of all classes changed nothing

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
            inner_converged=torch.stack([one.inner_converged for one in every]).all(0),
            n_iter=torch.stack([one.n_iter for one in every]).sum(0),
            status=(bad[0],) if bad else first.status,
            history=History.join([one.history for one in every]),
        )


@dataclass(frozen=True, slots=True)
class ClassCycle:
    """Several classes of a problem, with one member each."""

    problem: Problem  # its target numbers the classes
    n_classes: int
    members: Members  # one; later classes have the seeds after its own
    options: Options
    checkpoint: Checkpoint | None = None

    def run(self, start: Tensor | None) -> Cycle:
        """Solve without networks, train them, and solve again around them.

        `start` (C, P) replaces random networks.
        """
        problem, options, share = self.problem, self.options, self.members.weight[0]
        own = [share[problem.y == c].sum() for c in range(self.n_classes)]
        counts = torch.stack(own)
        eta = counts.clamp(min=1e-9).log().expand(problem.n_rows, -1).clone()
        still = replace(options, max_iter=0, progress=False)
        train = replace(options, max_iter=math.ceil(options.max_iter / NETWORK_TURNS))
        # Small sums gain nothing by threads, and wait for them.
        with torch_threads(work=problem.n_rows * problem.n_terms):
            at = self._turns(Cycle(eta, []), GLM_TURNS, still)
            glm = at.objective
            if options.max_iter > 0:
                for turn in range(NETWORK_TURNS):
                    at = self._train(at, start, train, turn)
                    start = torch.cat([one.params for one in at.solutions])
                at = self._turns(at, LAST_TURNS, still)
        return replace(at, glm_objective=glm)

    def _train(
        self, at: Cycle, start: Tensor | None, options: Options, turn: int
    ) -> Cycle:
        """Train the network of every class once, in turn."""
        eta, found = at.eta.clone(), list(at.solutions)
        for c in range(self.n_classes):
            one = self._of_class(eta, c)
            network = None if start is None else start[c : c + 1]
            name = f"class-{c}-{turn}"
            how = options, network, self.checkpoint, name
            solution = solve(one, self._member(c), *how)
            if turn:
                n_iter = found[c].n_iter + solution.n_iter
                solution = replace(solution, n_iter=n_iter)
            found[c] = solution
            eta[:, c] = self._settle(one, options, solution)[1]
        return Cycle(eta, found)

    def _turns(self, at: Cycle, n_turns: int, options: Options) -> Cycle:
        """Solve for the coefficients of every class in turn, until nothing changes."""
        for _ in range(n_turns):
            eta, found, penalty = at.eta.clone(), [], 0.0
            for c in range(self.n_classes):
                one = self._of_class(eta, c)
                known = at.solutions[c : c + 1]
                first = known[0] if known else solve(one, self._member(c), options)
                solution, own = self._settle(one, options, first)
                loss = self.members.weight[0] @ BINOMIAL.loss(one.y, own + one.offset)
                penalty += float(solution.objective[0] - loss)
                eta[:, c] = own
                found.append(solution)
            value = self._loss(eta) + penalty
            settled = at.objective - value <= SETTLED * max(abs(value), 1e-3)
            joint = eta
            # Under a ridge what is common to all classes costs penalty alone.
            ridge = self.members.penalty.power == 2
            if ridge and not any(bool(x.modulated.any()) for x in found):
                eta = eta - eta.mean(1, keepdim=True)
            at = Cycle(eta, found, value, settled=settled)
            if settled:
                break
        # At its own turn a class has no residual: the others moved after it.
        found = [
            replace(one, kkt=self._residual(joint, c, options, one))
            for c, one in enumerate(at.solutions)
        ]
        return replace(at, solutions=found)

    def _member(self, c: int) -> Members:
        return replace(self.members, seeds=(self.members.seeds[0] + c,))

    def _of_class(self, eta: Tensor, c: int) -> Problem:
        """One class, with all others as an offset."""
        offset = -torch.cat([eta[:, :c], eta[:, c + 1 :]], 1).logsumexp(1)
        truth = (self.problem.y == c).to(eta)
        return replace(self.problem, y=truth, offset=offset, family=BINOMIAL)

    def _loss(self, eta: Tensor) -> float:
        """Mean softmax loss of linear predictors (n, C)."""
        own = eta.gather(1, self.problem.y.long().unsqueeze(1)).squeeze(1)
        return float(self.members.weight[0] @ (eta.logsumexp(1) - own))

    @torch.no_grad()
    def _settle(
        self, problem: Problem, options: Options, at: Solution
    ) -> tuple[Solution, Tensor]:
        """Coefficients of a class again, its network as it is; its eta, (n,)."""
        forward = Forward(problem, self.members, options)
        bent = Bent.by(at.params, at.modulated)
        exact = forward.solve_exactly(bent, Coefficients(at.coef, at.intercept))
        found = exact.coefficients
        solution = replace(
            at,
            coef=found.coef,
            intercept=found.intercept,
            objective=exact.objective,
            kkt=exact.kkt,
            inner_converged=exact.converged,
        )
        return solution, forward.eta(bent, found)[0] - problem.offset

    @torch.no_grad()
    def _residual(self, eta: Tensor, c: int, options: Options, at: Solution) -> Tensor:
        """Optimality residual of a class beside all others as they are, (1,)."""
        forward = Forward(self._of_class(eta, c), self.members, options)
        design, rows = forward.design(Bent.by(at.params, at.modulated)), forward.rows
        start = start_coefficients(rows, design.n_columns)
        null = expand(design, rows, start, square=options.scale_contributions)
        penalty = forward.price(null.square)
        here = expand(design, rows, Coefficients(at.coef, at.intercept))
        return violation(here, penalty) / kkt_scale(null, penalty)
