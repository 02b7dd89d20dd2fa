"""Fit members: eliminate the coefficients, train the network, weigh the evidence."""

from sknimo.solver._additive import (
    AdditiveFit,
    AdditiveOptions,
    fit_additive,
    solve_bags,
)
from sknimo.solver._design import Design, cut_rows
from sknimo.solver._draws import pool_bytes
from sknimo.solver._evidence import (
    fit_evidence,
    linear_predictor,
    reference_step,
    simplify,
)
from sknimo.solver._joint import (
    JointOptions,
    JointStart,
    JointState,
    JointTable,
    predict_rows,
    start_networks,
    train_jointly,
)
from sknimo.solver._member import (
    EvidenceOptions,
    EvidenceState,
    param_groups,
    restrict,
    start_state,
)
from sknimo.solver._outer import solve
from sknimo.solver._problem import (
    History,
    Members,
    MemoryColumns,
    Options,
    Problem,
    Solution,
    Status,
    linear_design,
)
from sknimo.solver._profile import (
    Coefficients,
    PerMember,
    Rows,
    agree,
    downhill,
    expand,
    solve_coefficients,
    start_coefficients,
)
from sknimo.solver._quadratic import minimise_quadratic
from sknimo.solver._tangent import Tangent, needed_bytes

__all__ = [
    "AdditiveFit",
    "AdditiveOptions",
    "Coefficients",
    "Design",
    "EvidenceOptions",
    "EvidenceState",
    "History",
    "JointOptions",
    "JointStart",
    "JointState",
    "JointTable",
    "Members",
    "MemoryColumns",
    "Options",
    "PerMember",
    "Problem",
    "Rows",
    "Solution",
    "Status",
    "Tangent",
    "agree",
    "cut_rows",
    "downhill",
    "expand",
    "fit_additive",
    "fit_evidence",
    "linear_design",
    "linear_predictor",
    "minimise_quadratic",
    "needed_bytes",
    "param_groups",
    "pool_bytes",
    "predict_rows",
    "reference_step",
    "restrict",
    "simplify",
    "solve",
    "solve_bags",
    "solve_coefficients",
    "start_coefficients",
    "start_networks",
    "start_state",
    "train_jointly",
]
