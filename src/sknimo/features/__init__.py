"""Columns to features: names, bases, groups, reference and scaling.

A *feature* is a column as the user sees it. It enters the model through *terms*, basis
columns that are zero at the reference, and is seen by the network through *inputs*,
which are zero there too. A feature may own several of both; `term_feature` and
`input_feature` say which columns belong together, so that one modulator masks them all.
A feature without terms (a constant column) has no effect and no coefficient.
"""

from sknimo.features._bases import (
    MISSING_LABEL,
    Basis,
    Clipped,
    Drawn,
    Label,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    PooledLevels,
    Ramps,
    RankGauss,
    Spline,
    drawn_scale,
)
from sknimo.features._disguise import (
    Disguise,
    find_disguise,
    is_code,
    may_be_codes,
    number_pattern,
)
from sknimo.features._fit import (
    ColumnSummary,
    FeatureOptions,
    InputScaling,
    fit_features,
    fit_summaries,
    only_missing,
    spread_option,
    summarise_column,
)
from sknimo.features._grow import BlockReader, TableReading, TableSchema, merge_readings
from sknimo.features._map import FeatureMap
from sknimo.features._read import (
    Table,
    check_finite,
    check_new,
    column_names,
    drop_gradient,
    drop_unused_levels,
    encode_table,
    has_columns,
    is_missing,
    read_table,
    read_vector,
    take_column,
    take_columns,
    take_rows,
)
from sknimo.features._shapes import ValueSample, fit_linear, make_linear, weigh_values
from sknimo.features._typical import typical_reference
