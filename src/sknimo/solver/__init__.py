"""Fit members: eliminate the coefficients, train the network, weigh the evidence."""

from sknimo.solver._additive import (
    RIDGE,
    AdditiveFit,
    AdditiveOptions,
    bag_moments,
    fit_additive,
    predict_additive,
    solve_bags,
)
from sknimo.solver._crew import LARGEST_CREW, crew_size, reference_step
from sknimo.solver._cycle import ClassCycle
from sknimo.solver._evidence import (
    fit_crew,
    fit_evidence,
    linear_predictor,
    simplify,
    simplify_in_turn,
    trial_options,
    weak_features,
)
from sknimo.solver._heads import HeadsState, predict_heads, train_heads
from sknimo.solver._joint import (
    JointStart,
    JointState,
    JointTable,
    level_terms,
    predict_rows,
    train_jointly,
)
from sknimo.solver._member import (
    EvidenceOptions,
    EvidenceState,
    param_groups,
    restrict,
    start_state,
)
from sknimo.solver._muon import JointOptions
from sknimo.solver._outer import solve
from sknimo.solver._problem import (
    Members,
    MemoryColumns,
    Options,
    Prior,
    Problem,
    Solution,
    Status,
    linear_design,
)
from sknimo.solver._profile import (
    Coefficients,
    PerMember,
    Rows,
    expand,
    solve_coefficients,
    start_coefficients,
)
from sknimo.solver._quadratic import (
    FEW_FEATURES,
    Design,
    cut_rows,
    minimise_quadratic,
    most_urgent,
)
from sknimo.solver._softmax import (
    ClassFit,
    ClassRows,
    fit_classes,
    join_classes,
    minimise,
    solve_class_bag,
)
from sknimo.solver._supply import pool_bytes
from sknimo.solver._tangent import Tangent, needed_bytes
