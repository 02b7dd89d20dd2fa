"""One-file HTML reports with a what-if page.

`render_report` takes a `Fit` and a `Sample` and returns a `Report`; estimators offer
the same as `report`. See `docs/report.md`.
"""

from sknimo.report._inputs import Fit, Sample
from sknimo.report._quality import nested_glm
from sknimo.report._render import Report, render_report, write_report

__all__ = ["Fit", "Report", "Sample", "nested_glm", "render_report", "write_report"]
