"""Every number that decides what a search returns, in one record.

The first block is what a user sets through the estimator. The others are fixed: each
stands beside the reason for it, "not ablated" where nobody has measured it yet, and an
ablation replaces one at a time. Settings that
only bound time or memory stay with the code that they bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sknimo.solver import AdditiveOptions, EvidenceOptions, JointOptions
from sknimo.training import CurveRules

RuleName = Literal["min", "1se", "stability"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard a search tries, and by which margins it decides.

    Attributes
    ----------
    n_starts, n_members, max_iter : int
        Restarts per stage, members to average at most, steps or passes per member.
    relax : bool
        Whether to restart within the selected supports.
    rule : {"min", "1se", "stability"}
        How much sparsity to ask for.
    alphas : sequence of float or None
        Penalties of the GLM's path, None for a grid below the largest useful one.
    batch_size : int or None
        Rows per batch, 0 to compare evidence; None decides by the size of the table.
    batch_hidden, bag_hidden : tuple of two int
        Widths of the network of a search on batches, and on bags.
    n_jobs : int or None
        Processes.
    memory_budget, deadline : float
        Bytes beside the table; time on the monotonic clock.
    progress : bool

    Notes
    -----
    The other fields are commented where they are declared.
    """

    n_starts: int = 8
    n_members: int = 10
    max_iter: int = 100
    relax: bool = True
    rule: RuleName = "min"
    alphas: Sequence[float] | None = None
    batch_size: int | None = None
    batch_hidden: tuple[int, int] = (32, 32)
    bag_hidden: tuple[int, int] = (64, 64)
    n_jobs: int | None = None
    memory_budget: float = 1e9
    deadline: float = math.inf
    progress: bool = False

    # -- Which engine
    # Multiplications in one Gauss-Newton step beyond which batches take over. Not
    # ablated.
    max_work: float = 1e9
    # Rows of a batch that nobody chose.
    batch_rows: int = 1024

    # -- The nested GLM's path
    # Thirty penalties over three decades. Not ablated.
    path_length: int = 30
    path_ratio: float = 1e-3
    # How far each support is relaxed; relaxing must win by more than the folds differ.
    relaxation: tuple[float, ...] = (0.0, 0.5, 1.0)

    # -- Restarts
    # Where restarts begin, as a share of the dispersion that the GLM leaves,
    # cautious and bold in turn. Not ablated.
    optimism: tuple[float, ...] = (1.0, 0.1, 1.0, 0.02)
    # The same where the dispersion is known: bold ones first. Not ablated.
    optimism_fixed_dispersion: tuple[float, ...] = (0.1, 0.3, 0.03, 1.0)
    # Scale of the output layer's random weights: small, so that a start is near the
    # GLM, but not zero, where all gradients of the first layer vanish.
    output_scale: float = 0.1
    # Steps without a rise after which a restart ends, where the dispersion is estimated
    # and where it is known. Not ablated.
    window: int = 6
    window_fixed_dispersion: int = 12
    # Up to this many features every restart may see all of them.
    few_features: int = 12
    # Narrow restarts see the shortlist (None), then ever fewer of the GLM's strongest
    # features: among fewer a restart goes astray less often, and the evidence tells
    # what is missing.
    narrow_sizes: tuple[int | None, ...] = (None, 8, 6, 4)
    # Gauss-Newton steps of members that are moved or restricted: they are almost there.
    brief_steps: int = 15

    # -- Selection
    # A feature must bring the log evidence of a squared Wald statistic of this much,
    # plus twice the log of the number of features, so that about one fit in thirty
    # keeps a feature that does nothing, and one unit more, for bilinear terms that can
    # move between features.
    wald_threshold: float = 4.0
    bilinear_margin: float = 1.0
    # Evidence is bumpy: a refit without a feature may end in a poorer optimum. A
    # feature that Wald statistics call idle may leave at this multiple of its margin,
    # if restarts without it then reach the evidence that was there before.
    faint_slack: float = 4.0
    # Log evidence that a feature must bring to an unshrunken linear model: that of
    # a squared Wald statistic of 4.5, by the formula of `feature_margin`.
    linear_margin: float = 1.0
    # Share of the successful restarts that must keep what `rule="stability"` keeps.
    stable_share: float = 0.8

    # -- Members
    # A restart joins the average when its gain in log evidence over the GLM is at least
    # this share of the best gain; the others have failed.
    member_share: float = 0.7
    # The network must beat the GLM's log evidence by this much: exp(5), odds of 148.
    evidence_margin: float = 5.0

    # -- The reference
    # It stays within so many standard errors of the sample's mean, its prior.
    max_errors: float = 3.0
    # Smaller steps, in standard errors, are not worth a refit.
    min_step: float = 0.02
    max_moves: int = 4
    # Log evidence that a move must bring: coefficients refer to the mean unless the
    # rows insist. Not ablated.
    move_margin: float = 10.0

    # -- The verdict
    # More folds are held out together, up to one part in as many of the rows.
    max_folds: int = 5
    # Restarts to try on a fold, and Gauss-Newton steps of each.
    max_tries: int = 3
    verdict_steps: int = 40
    # A restart has succeeded on a fold with this share of the evidence that as many of
    # all rows would bring.
    success_share: float = 0.5
    # Within one standard error the network must save this share of the GLM's loss.
    tiny_gain: float = 0.1

    # -- Batches
    # Candidate penalties: shares of the smallest alpha that empties the model, and
    # rates of the first layer's group shrinkage.
    alpha_shares: tuple[float, ...] = (3e-5, 1e-4, 4e-4, 1.5e-3, 5e-3, 2e-2)
    network_alphas: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3)
    # The pair that goes ahead where time is short: moderate in both.
    first_pair: tuple[int, int] = (2, 1)
    # Rounds of choosing: share of the passes that candidates are trained for, and how
    # many of the best go on.
    rounds: tuple[tuple[float, int], ...] = ((0.08, 6), (0.25, 1))
    learning_rate: float = 1e-2
    # Progress is checked twice in a pass; a member may stand still for this share.
    patience_share: float = 0.3

    # -- Bags
    # Coefficients begin at this share of the additive ones. From the additive model
    # itself training ends in poor optima.
    start_share: float = 0.03
    # The ridge of the mean loss that precisions of idle groups end in: what is idle in
    # an additive model may still be bent.
    largest_ridge: float = 1e-2
    # Features that have a modulation, those with the largest effects first.
    max_modulated: int = 24
    # Newton steps of the additive model of a bag, from that of all rows.
    bag_steps: int = 4
    # Bags that are trained first, to see whether bends add anything.
    n_scouts: int = 2
    # Rows that a member is shown in all its passes, unless these are fewer than ten.
    max_visits: int = 1_500_000
    # Steps between the additive and the bent model, and rows that tell the spread of
    # members.
    dial_steps: int = 20
    spread_rows: int = 4_000
    # Edges of curves and of inputs, the columns that they may make, and the fewest of
    # them that are worth having.
    term_edges: int = 128
    input_edges: int = 64
    max_columns: int = 1_500
    least_edges: int = 8
    additive: AdditiveOptions = field(default_factory=AdditiveOptions)
    joint: JointOptions = field(default_factory=JointOptions)

    # -- Curves, and the evidence: how one restart is fitted and simplified
    curves: CurveRules = field(default_factory=CurveRules)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
