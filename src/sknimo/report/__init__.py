"""One-file HTML reports with a what-if page.

`render_report` takes a `ModelCard` and a `Sample` and returns a `Report`; estimators
offer the same as `report`. See `docs/report.md`.
"""

from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._render import Report, render_report

__all__ = ["ModelCard", "Report", "Sample", "render_report"]
