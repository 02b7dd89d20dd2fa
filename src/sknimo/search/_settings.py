"""Every number that decides what a search returns, in one record.

The first block is what a user sets through the estimator. The others are fixed: each
stands beside the reason for it and what was measured. Settings that only bound time or
memory stay with the code that they bound.

What was measured is by `benchmarks/ablate.py`, seeds 100 on: the loss on new rows with
one number changed, as a ratio to that of the defaults. It is little so far: each ratio
is of one simulated table at seed 100, without an error. With another `random_state`
alone they are

- poisson (counts, 300 rows, 7 features, an estimated dispersion): 1.00 and 0.91;
- setting3 (300 rows, 50 features, not all numbers): 1.17 and 0.95, which understates
  chance, as even twice the restarts are worse;
- rows4000 (beyond `max_work`, unlike rows2000: searched by batches): 0.74 and 0.99.

"As another seed": no difference beyond that of another seed, no farther from one than
the farther of the two. "Same fit": no difference at all. Seconds, also as ratios, are
rough: the fits shared their processors with other work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sknimo.solver import AdditiveOptions, EvidenceOptions, JointOptions
from sknimo.training import CurveRules

RuleName = Literal["min", "1se", "stability"]


# How bags of few rows are trained: all members stop together, after as many passes
# without progress whatever came before. Steps of matrices: 1.00 (26 splits of 13 small
# tables, seeds 100 and 101), in 1.1 of the seconds. The others are not ablated.
FEW_ROWS = JointOptions(
    more_cycles=0,
    least_patience=JointOptions().patience,
    by_matrix=False,
    weight_decay=0.1,
    decay_power=0.0,
    warm_up=0.05,
    tie=0.0,
    common_stop=True,
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard a search tries, and by which margins it decides."""

    # Restarts per stage. Halved and doubled: 1.23 and 1.39 (setting3), as another seed
    # (poisson), in 0.8 and 1.6 of the seconds.
    n_starts: int = 8
    # Members to average at most. Halved and doubled: as another seed (poisson,
    # setting3).
    n_members: int = 10
    # Steps or passes per member. Halved and doubled: 1.91 and 0.45 (rows4000), in 0.5
    # and 1.3 of the seconds; same fit (poisson, setting3), but as another seed halved
    # on setting3.
    max_iter: int = 100
    relax: bool = True  # whether to restart within the selected supports
    rule: RuleName = "min"  # how much sparsity to ask for
    alphas: Sequence[float] | None = None  # of the GLM's path, None for a grid
    # Rows per batch, 0 to compare evidence; None decides by the size of the table.
    batch_size: int | None = None
    # Widths of the network of bags. Doubled: 1.00, in 1.4 of the seconds.
    bag_hidden: tuple[int, int] = (64, 64)
    # Where rows are few: 8 and 64 units do as well.
    few_hidden: tuple[int, int] = (16, 16)
    n_jobs: int | None = None  # processes that joblib may use
    n_processes: int = 1  # without joblib, this one among them: it forks itself
    memory_budget: float = 1e9  # bytes beside the table
    deadline: float = math.inf  # on the monotonic clock
    progress: bool = False

    # -- Which engine
    # Multiplications in one Gauss-Newton step beyond which bags take over. Loss of bags
    # over that of evidence: 0.87 to 1.01 (five tables), in 0.4 of the seconds or less,
    # but 12.5 on rows2000, which is smooth and almost free of noise.
    max_work: float = 7e8
    # Up to so many times as many, and up to `few_rows`, evidence is used all the same
    # if the first restarts, on as many rows as the above allows, are decisive: on 1,000
    # rows of setting 3 bags miss the mean by 2.0, evidence by 0.1, in fewer seconds.
    smooth_times: float = 5.0
    # That was measured with networks of this width, which still say where to change.
    work_hidden: tuple[int, int] = (16, 16)
    # Bags stand beside evidence where it is affordable, on this many rows or more. A
    # mean of both, in steps of the weight, must beat evidence alone by this many
    # standard errors, more of them where evidence has a network of another family than
    # least squares, and by this share of the loss without any feature, to count in
    # full. Loss relative to evidence alone, 45 splits of 15 small tables, without these
    # margins: bags alone 1.06, equal weights 0.993, weights chosen 0.959, the better of
    # both 0.963. The second margin for least squares: 1.15 (boston, three splits); the
    # first one for two classes, or the second at 1 for survival times: coefficients for
    # features that do nothing. Bags from 16 rows on instead of 40: 0.97.
    least_rows: int = 16
    blend_steps: int = 10
    blend_errors: tuple[float, float] = (0.5, 2.0)
    blend_gain: float = 0.003
    # Whether evidence without a network must beat bags, not they it: its supports have
    # seen the rows held out, and with weak effects sparse lines predict less well than
    # shrunken ones.
    bags_first: bool = False
    # Where bends of bags save less than this share of the additive model's loss, half
    # of a stage's restarts go ahead, given up early (`grace`): without any success
    # among them, the others are not tried. None at all where bags gain nothing:
    # accuracy 0.67 instead of 0.91 (second setting with classes).
    least_gain: float = 0.1
    cautious: bool = False
    # Nats per row that the first restarts gain over the linear model beyond which
    # nothing stands beside them: errors of a tenth of its variance. This and the two
    # numbers below were set on settings 1 and 3, seeds 0 to 2; not ablated.
    decisive_gain: float = 1.15
    # Restarts beyond half of a stage are left out where the two best of it gain about
    # the same over the linear model, and more than this. 0.98: same fit, in 1.05 of the
    # seconds (settings 1 to 3 and the second with classes, ten seeds each).
    agreed_share: float = 0.95
    clear_gain: float = 50.0
    # Rows in blocks that bags are made of, at most; half of the memory holds them.
    sample_rows: int = 50_000

    # -- The nested GLM's path
    # Thirty penalties over three decades. Length halved and doubled: as another
    # seed (poisson, setting3). Ratio a tenth and tenfold: 1.46 and 1.55 (setting3), as
    # another seed (poisson).
    path_length: int = 30
    path_ratio: float = 1e-3
    # How far each support is relaxed; relaxing must win by more than the folds differ.
    # None, and five shares: as another seed (poisson, setting3).
    relaxation: tuple[float, ...] = (0.0, 0.5, 1.0)

    # -- Restarts
    # Where restarts begin, as a share of the dispersion that the GLM leaves,
    # cautious and bold in turn. Only 1.0: 1.42 (setting3); only 0.1, or all halved: as
    # another seed.
    optimism: tuple[float, ...] = (1.0, 0.1, 1.0, 0.02)
    # The same where the dispersion is known: bold ones first. Not ablated.
    optimism_fixed_dispersion: tuple[float, ...] = (0.1, 0.3, 0.03, 1.0)
    # Scale of the output layer's random weights: small, so that a start is near the
    # GLM, but not zero, where all gradients of the first layer vanish. Halved and
    # doubled: as another seed (poisson).
    output_scale: float = 0.1
    # Steps without a rise after which a restart ends, where the dispersion is estimated
    # and where it is known. The first halved: as another seed (setting3). Doubled,
    # and the second: not ablated.
    window: int = 6
    window_fixed_dispersion: int = 12
    # Up to this many features every restart may see all of them. Not ablated.
    few_features: int = 12
    # Narrow restarts see the shortlist (None), then ever fewer of the GLM's strongest
    # features: among fewer a restart goes astray less often, and the evidence tells
    # what is missing. Not ablated.
    narrow_sizes: tuple[int | None, ...] = (None, 8, 6, 4)
    # Gauss-Newton steps of members that are moved or restricted: they are almost there.
    # Halved and doubled: same fit (poisson).
    brief_steps: int = 15

    # -- Selection
    # A feature must bring the log evidence of a squared Wald statistic of this much,
    # plus twice the log of the number of features, so that about one fit in thirty
    # keeps a feature that does nothing, and one unit more, for bilinear terms that can
    # move between features. Threshold halved: as another seed (poisson); doubled, or
    # the margin halved or doubled: same fit.
    wald_threshold: float = 4.0
    bilinear_margin: float = 1.0
    # Evidence is bumpy: a refit without a feature may end in a poorer optimum. A
    # feature that Wald statistics call idle may leave at this multiple of its margin,
    # if restarts without it then reach the evidence that was there before. Halved: as
    # another seed (poisson); doubled: same fit.
    faint_slack: float = 4.0
    # Restarts within the same supports that say, by the median, whether a feature earns
    # its margin, at least, and the share of it where the dispersion is known, so that
    # evidence is less bumpy. Second setting: all 21 samples have exact supports instead
    # of 17.
    n_jurors: int = 6
    known_dispersion_share: float = 0.75
    # Log evidence that a feature must bring to an unshrunken linear model: that of
    # a squared Wald statistic of 4.5, by the formula of `feature_margin`. Halved and
    # doubled: same fit (poisson).
    linear_margin: float = 1.0
    # Share of the successful restarts that must keep what `rule="stability"` keeps.
    # Not ablated.
    stable_share: float = 0.8

    # -- Members
    # A restart joins the average when its gain in log evidence over the GLM is at least
    # this share of the best gain; the others have failed. 0.35: as another seed
    # (poisson); 0.85: same fit.
    member_share: float = 0.7
    # The network must beat the GLM's log evidence by this much: exp(5), odds of 148.
    # Halved: same fit (poisson); doubled: as another seed.
    evidence_margin: float = 5.0
    # The same of two classes, whose evidence is less exact where they can almost be
    # told apart: at 9 nats, what a network had learned of 478 rows cost .52 on new
    # ones, .08 without it. In the settings with classes networks gain 46 and more.
    class_margin: float = 20.0

    # -- The reference: not ablated
    # It stays within so many standard errors of the sample's mean, its prior.
    max_errors: float = 3.0
    # Smaller steps, in standard errors, are not worth a refit.
    min_step: float = 0.02
    max_moves: int = 4
    # Log evidence that a move must bring: coefficients refer to the mean unless the
    # rows insist.
    move_margin: float = 10.0

    # -- The verdict
    # More folds are held out together, up to one part in as many of the rows. Two: as
    # another seed (poisson), in 0.75 of the seconds; three: same fit.
    max_folds: int = 5
    # Restarts to try on a fold, and Gauss-Newton steps of each. One or six restarts, or
    # twice the steps: same fit (poisson); half: as another seed.
    max_tries: int = 3
    verdict_steps: int = 40
    # A restart has succeeded on a fold with this share of the evidence that as many of
    # all rows would bring. 0.25 and 0.75: same fit (poisson).
    success_share: float = 0.5
    # Within one standard error the network must save this share of the GLM's loss.
    # Halved and doubled: same fit (poisson).
    tiny_gain: float = 0.1

    # -- Bags
    # Ratios of losses here and in `JointOptions` are geometric means over 13 real
    # tables of 4,000 rows and more (split 100; `start_share` also ten, split 101),
    # measured on a prototype of this search.
    # Coefficients begin at this share of the additive ones. From the additive model
    # itself training ends in poor optima. 0.1: 1.03 and 1.05; 0.3: 1.01 of that at 0.1.
    start_share: float = 0.03
    # The ridge of the mean loss that precisions of idle groups end in: what is idle in
    # an additive model may still be bent.
    largest_ridge: float = 1e-2
    # Features that have a modulation, those with the largest effects first. Halved:
    # 1.01. Each has an output layer of its own, unless rows are few: one for all 1.03
    # (17 fits, splits 100 and 101), both together 1.03, networks of their own 1.00.
    max_modulated: int = 24
    # Up to so many rows every bag learns precisions of its own, and all bags are one
    # program that stops them together. 4,000: 1.02, in half the seconds (six tables of
    # 2,100 to 3,800 rows, splits 100 and 101; 1.09 on one of them).
    few_rows: int = 2_000
    # The smallest batch, and the fewest that make up a pass where rows are few. Batches
    # of 128 on small tables: 1.02.
    least_batch: int = 32
    least_steps: int = 16
    # Larger batches than those of `joint` where they still make up this many steps of a
    # pass, with a rate that rises by the root of their size.
    most_steps: int = 100
    largest_batch: int = 512
    # Newton steps of the additive model of a bag, from that of all rows.
    bag_steps: int = 4
    # `AdditiveOptions.pooling` where coefficients settle beside bends: many rows tell
    # every precision, and one wave among them must not make all curves rough. Loss of
    # rows held out at 1: 1.000 to 1.055 (five tables, split 100), and slopes that
    # differ four times as much along a line.
    settled_pooling: float = 0.001
    # They are not settled where that costs rows held out more than this share of their
    # loss, and a standard error. The pass a member ended with suits these rows, so that
    # they object a little too often: without a share 1.06 and 1.02 (two of six tables).
    settled_rise: float = 0.05
    # Share of the features that go on to the next size under `rule="1se"`.
    keep_share: float = 0.7
    # Features that correlate more are tried in each other's place. Not ablated.
    copy_correlation: float = 0.9
    # How likely a table without bends may be taken for one with some, before any bag is
    # trained. Four of 29 tables are found to have none, all of them among the six whose
    # bends gained nothing; of those with a gain the least clear has 0.05.
    pair_level: float = 0.2
    # Bags that are trained first, to see whether bends add anything.
    n_scouts: int = 2
    # Passes of a cycle of the learning rate as a share of `max_iter`, unless rows are
    # few; and rows that a member is shown in them, unless these make fewer than ten.
    # Bags times 1.6: 0.99 (six fits), in as many more seconds. 240,000 and 320,000:
    # 1.00 (california). More of them where there are more features than usual: 320,000
    # are 1.03 of twice as many on superconduct (81 features).
    cycle_share: float = 0.4
    max_visits: int = 280_000
    usual_features: int = 40
    # Steps between the additive and the bent model, rows that tell the spread of
    # members, standard errors that bends must gain (with fewer they count in part where
    # rows are few), and the least weight of a part. Loss of the mean by likelihood, and
    # gains that count in part, relative to the best step and all or nothing: 0.997 (31
    # splits of 11 small tables, seeds 100 to 102).
    dial_steps: int = 20
    spread_rows: int = 2_000
    dial_errors: float = 0.5
    least_weight: float = 0.05
    # Edges of curves and of inputs, the columns that they may make, and the fewest of
    # them that are worth having. 64 edges of curves: 1.00; of inputs: 1.01 (six fits of
    # five tables), 1.02 on california, whose places matter.
    term_edges: int = 128
    input_edges: int = 128
    max_columns: int = 1_500
    least_edges: int = 4
    # Columns per row, up to which curves have at least so many edges; more edges come
    # with one at most. A table of 60 features and 145 rows: 0.76 of the loss without
    # bags. Two or four at most with more edges: 1.00 (52 tables), up to 1.2.
    columns_per_row: float = 2.0
    additive: AdditiveOptions = field(default_factory=AdditiveOptions)
    joint: JointOptions = field(default_factory=JointOptions)
    few_joint: JointOptions = FEW_ROWS

    # -- More than two classes
    # Coefficients of all classes, up to which every bag learns its own precisions; and
    # columns that curves may make: cubes of these are the time of a fit.
    class_columns: int = 2_500
    # Ridges of models without curves, as powers of ten: first, last. Newton steps of
    # each from the one before.
    line_ridges: tuple[float, float] = (2.0, -3.25)
    line_steps: int = 10
    # Up to so many features `rule="1se"` leaves out one at a time.
    few_kept: int = 6

    # -- Curves, and the evidence: how one restart is fitted and simplified
    curves: CurveRules = field(default_factory=CurveRules)
    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
