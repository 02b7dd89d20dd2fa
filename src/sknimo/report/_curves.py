"""Survival curves of a report: what was predicted beside what happened.

Shapes: n rows, k times.
"""

import numpy as np

from sknimo.report import _svg as svg
from sknimo.report._inputs import ModelCard
from sknimo.report._quality import Quality
from sknimo.report._text import show_number, show_percent
from sknimo.survival import Baseline, FollowUp, kaplan_meier

GROUPS = ("lowest", "middle", "highest")
# Dots of one curve that can be told apart.
MAX_DOTS = 12
# Points of a predicted curve.
N_TIMES = 60


def survival_figure(card: ModelCard, quality: Quality) -> tuple[str, str]:
    """Curves of thirds of the rows by risk, and a caption with the median time."""
    sample, baseline = quality.sample, card.baseline
    rows = None if sample is None else sample.follow_up
    if baseline is None or rows is None or not rows.event.any():
        return "", ""
    assert sample is not None
    risk = quality.eta - sample.row_offset
    middle = float(np.median(rows.time[rows.ends]))
    times = np.linspace(0.0, float(rows.time[rows.ends].max()), N_TIMES)
    across, up = svg.panel_scales(times, [0.0, 1.0])
    body = svg.axes(across, up, "time", "share without the event")
    body += svg.rule(across(middle), up.start, across(middle), up.stop, "reference")
    told = []
    for k, part in enumerate(np.array_split(np.argsort(risk, kind="stable"), 3)):
        expected = _predicted(baseline, rows, risk, part, np.append(times, middle))
        seen = kaplan_meier(rows.take(part))
        at = seen.times[0][:: len(seen.times[0]) // MAX_DOTS + 1]
        body += svg.line_path(across(times), up(expected[:-1]), f"curve curve-{k}")
        body += svg.points_path(across(at), up(_alive(seen, at)), f"level curve-{k}")
        observed = _alive(seen, np.array([middle]))[0]
        told.append(
            f"{show_percent(float(expected[-1]))} and {show_percent(float(observed))} "
            f"({GROUPS[k]})"
        )
    caption = (
        "Predicted survival (lines) and Kaplan-Meier's (dots) of the third of the rows "
        "with the lowest, middle (dashed) and highest (dotted) predicted risk. At "
        f"{show_number(middle)}, the median time of the events: {', '.join(told)}."
    )
    return svg.figure(body, "Survival by predicted risk", caption), caption


def _predicted(
    baseline: Baseline,
    rows: FollowUp,
    risk: np.ndarray,
    part: np.ndarray,
    times: np.ndarray,
) -> np.ndarray:
    """Mean predicted survival of some rows, (k,)."""
    places = [baseline.labels.index(label) for label in rows.labels]
    stratum = np.array(places)[rows.stratum[part]]
    weight = rows.weight[part]
    hazard = baseline.at(times, stratum) * np.exp(risk[part])[:, None]
    return np.asarray(weight @ np.exp(-hazard) / weight.sum())


def _alive(curve: Baseline, times: np.ndarray) -> np.ndarray:
    """Kaplan-Meier's estimate, (k,)."""
    return np.asarray(np.exp(-curve.at(times, np.zeros(1, dtype=int)))[0])
