"""Fit a simulated trial, set it beside a lasso and write a report.

Run by `make demo`; `sknimo demo` does the same.
"""

from sknimo.cli.demo import run_demo

if __name__ == "__main__":
    run_demo("report.html")
