"""Figures: every `plot_*(record, ax=None)` draws one record and returns its Axes.

Long tables are cut to what can be read, and the figure says so. Needs matplotlib, the
extra `plot`.

>>> import matplotlib
>>> matplotlib.use("Agg")
>>> from sknimo import NIMORegressor, datasets, plots
>>> from sknimo.explain import explain
>>> data = datasets.make_nimo_regression(n_samples=100, random_state=0)
>>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
>>> ax = plots.plot_waterfall(explain(est.model_, data.X), row=3)
>>> ax.get_xlabel()
'prediction'
"""

# The style comes first: without matplotlib it says what to install.
from sknimo.plots import _style  # noqa: F401, I001
from sknimo.plots._effects import (
    plot_coefficients,
    plot_effect_curve,
    plot_levels,
    plot_nonlinearity,
)
from sknimo.plots._pairs import (
    plot_correction,
    plot_interactions,
    plot_modification_graph,
    plot_pair_surface,
)
from sknimo.plots._quality import (
    plot_beside,
    plot_calibration,
    plot_dependence,
    plot_residuals,
    plot_roc,
)
from sknimo.plots._rows import (
    plot_agreement,
    plot_beeswarm,
    plot_effect,
    plot_waterfall,
)
from sknimo.plots._style import to_svg
from sknimo.plots._training import plot_first_layer, plot_history, plot_path

__all__ = [
    "plot_agreement",
    "plot_beeswarm",
    "plot_beside",
    "plot_calibration",
    "plot_coefficients",
    "plot_correction",
    "plot_dependence",
    "plot_effect",
    "plot_effect_curve",
    "plot_first_layer",
    "plot_history",
    "plot_interactions",
    "plot_levels",
    "plot_modification_graph",
    "plot_nonlinearity",
    "plot_pair_surface",
    "plot_path",
    "plot_residuals",
    "plot_roc",
    "plot_waterfall",
    "to_svg",
]
