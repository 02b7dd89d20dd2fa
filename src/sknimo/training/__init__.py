"""Validated rows: what users pass becomes the problem that the solver is given.

Tables in memory (`TrainingSet`) and rows that come in blocks (`StreamedSet`) end as the
same `Problem`; folds, curves chosen by evidence, and the store of finished tasks are
here too.
"""

from sknimo.training._checks import (
    LabelReader,
    NumberReader,
    Target,
    TargetReader,
    check_domain,
    check_folder,
    check_lengths,
    check_number,
    check_number_or_auto,
    check_verbose,
    check_widths,
    choose_batch_size,
    count_weights,
    read_labels,
    read_numeric_target,
    read_offset,
    read_weight,
)
from sknimo.training._curves import CurveRules, fit_lines, too_wide
from sknimo.training._data import ReadingOptions, TrainingSet, find_rows, prepare_table
from sknimo.training._folds import AnyFold, Fold, count_folds, read_groups
from sknimo.training._follow_up import (
    check_events,
    read_follow_up,
    read_strata,
    read_times,
)
from sknimo.training._passes import describe_stream, hold_out, judge_rows
from sknimo.training._problem import (
    Ensemble,
    assemble,
    fit_budget,
    is_separated,
    state_columns,
    state_network,
    state_problem,
)
from sknimo.training._shape import (
    learn_again,
    learn_shape,
    penalised_glm,
    smooth_glm,
)
from sknimo.training._stores import TaskStore, open_store
from sknimo.training._streams import StreamedSet, read_stream
