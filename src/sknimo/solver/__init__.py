"""Fit K members: eliminate the coefficients, train the network."""

from sknimo.solver._outer import profile, solve
from sknimo.solver._problem import (
    History,
    Members,
    Options,
    Problem,
    Solution,
    Status,
)

__all__ = [
    "History",
    "Members",
    "Options",
    "Problem",
    "Solution",
    "Status",
    "profile",
    "solve",
]
