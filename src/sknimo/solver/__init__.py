"""Fit members: eliminate the coefficients, train the network, weigh the evidence."""

from sknimo.solver._evidence import (
    ESTIMATED_DISPERSION,
    EvidenceOptions,
    EvidenceState,
    fit_evidence,
    restrict,
    simplify,
    start_state,
)
from sknimo.solver._outer import profile, solve
from sknimo.solver._problem import (
    History,
    Members,
    Options,
    Problem,
    Solution,
    Status,
)
from sknimo.solver._profile import Coefficients, Rows, solve_coefficients

__all__ = [
    "ESTIMATED_DISPERSION",
    "Coefficients",
    "EvidenceOptions",
    "EvidenceState",
    "History",
    "Members",
    "Options",
    "Problem",
    "Rows",
    "Solution",
    "Status",
    "fit_evidence",
    "profile",
    "restrict",
    "simplify",
    "solve",
    "solve_coefficients",
    "start_state",
]
