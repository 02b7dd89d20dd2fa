"""Two models side by side on the same rows: measures, figures, effects, one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from sknimo.cli._apply import read_known
from sknimo.cli._errors import UserError
from sknimo.cli._fit import (
    NAMES,
    ColumnRoles,
    FileRows,
    Judgement,
    cost_chances,
    find_chances,
    judge,
)
from sknimo.cli._tables import TextFormat

# Two sides of a normal interval that holds 95 in 100.
WIDTH_95 = 1.96
# Rows that effects are averaged over, features and rows that are listed.
EFFECT_ROWS = 500
MAX_FEATURES = 25
MAX_ROWS = 8
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem;
  padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem .2rem 0; text-align: right; }
td:first-child, th:first-child { text-align: left; }
th { border-bottom: 1px solid #888; font-weight: 600; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; }
.figures svg { max-width: 100%; height: auto; flex: 1 1 20rem; }
.verdict { font-size: 1.15rem; } .note { color: #666; }
.wide { overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model on the rows of a table."""

    name: str
    est: Any
    rows: FileRows
    judged: Judgement
    mean: np.ndarray  # (n,)
    loss: np.ndarray  # (n,), what each row costs

    @property
    def is_classifier(self) -> bool:
        """Whether it predicts classes."""
        return hasattr(self.est, "classes_")

    @property
    def has_several(self) -> bool:
        """Whether these are more than two: then the mean is the chance of the truth."""
        return self.is_classifier and len(self.est.classes_) > 2


def short_names(one: str, two: str) -> tuple[str, str]:
    """Names of two files without what they share."""
    first, second = Path(one), Path(two)
    if first.stem != second.stem:
        return first.stem, second.stem
    return (one, two) if one != two else (f"{one} (1)", f"{two} (2)")


def assess(
    est: Any, name: str, data: str, text: TextFormat, roles: ColumnRoles
) -> Candidate:
    """A model and how well it predicts the rows of a table."""
    rows = read_known(est, data, text, roles)
    judged = judge(est, rows)
    if not hasattr(est, "classes_"):
        mean = est.predict(rows.X, rows.offset)
        return Candidate(name, est, rows, judged, mean, (rows.y - mean) ** 2)
    chances, truth = find_chances(est, rows)
    several = len(est.classes_) > 2  # then it is the chance of what happened
    mean = (chances * truth).sum(axis=1) if several else chances[:, 1]
    return Candidate(name, est, rows, judged, mean, cost_chances(chances, truth))


def check_pair(one: Any, two: Any) -> None:
    """Refuse estimators that do not predict the same thing."""
    if hasattr(one, "baseline_") or hasattr(two, "baseline_"):
        raise UserError(
            "Hazards are not compared here. sknimo report with --test shows the "
            "concordance of each on the same rows."
        )
    told = [
        " or ".join(map(str, est.classes_)) if hasattr(est, "classes_") else "a number"
        for est in (one, two)
    ]
    if told[0] != told[1]:
        raise UserError(
            f"One model predicts {told[0]}, the other {told[1]}. Compare models of one "
            "target."
        )


def give_verdict(one: Candidate, two: Candidate) -> str:
    """Which model predicts these rows better, with the uncertainty, in a sentence."""
    what = "log loss" if one.is_classifier else "squared error"
    weight = np.ones(len(one.loss)) if one.rows.weight is None else one.rows.weight
    share = weight / weight.sum()
    gain = one.loss - two.loss
    mean = float(share @ gain)
    error = float(np.sqrt(share**2 @ (gain - mean) ** 2))
    better, worse = (two, one) if mean > 0 else (one, two)
    low, high = abs(mean) - WIDTH_95 * error, abs(mean) + WIDTH_95 * error
    interval = f"95 % interval {low:.3g} to {high:.3g}, rows taken as independent"
    if low > 0:
        return (
            f"{better.name} predicts these rows better than {worse.name}: mean {what} "
            f"lower by {abs(mean):.3g} ({interval})."
        )
    return (
        f"No clear difference: mean {what} of {better.name} is lower by "
        f"{abs(mean):.3g} ({interval})."
    )


def list_measures(one: Candidate, two: Candidate) -> list[list[str]]:
    """Lines of a table: measure, both models, baseline."""
    lines = [["", one.name, two.name, "baseline"]]
    families = {each.est.model_.family.title for each in (one, two)}
    for name, value in one.judged.model.items():
        if name == "deviance_explained" and len(families) > 1:
            continue  # of one family each: no common yardstick
        beside = one.judged.baseline.get(name, 0.0)
        numbers = [value, two.judged.model[name], beside]
        shown = NAMES.get(name, name.replace("_", " "))
        lines.append([shown, *(f"{number:.4g}" for number in numbers)])
    return lines


def show_table(lines: Sequence[Sequence[str]]) -> str:
    """A table as text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def build_page(one: Candidate, two: Candidate, data: str) -> str:
    """The comparison as one HTML file."""
    title = f"{escape(one.name)} and {escape(two.name)}"
    note = (
        f"{len(one.loss)} rows of {escape(Path(data).name)}. Rows that one of the "
        "models was fitted to favour it: a fair comparison needs rows that neither has "
        "seen. Baseline: the mean of these rows, for everybody."
    )
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="verdict">{escape(give_verdict(one, two))}</p>',
        _table(list_measures(one, two)),
        f'<p class="note">{note}</p>',
        f'<div class="figures">{"".join(_draw(one, two))}</div>',
        *_tell_effects(one, two),
        "<h2>Rows on which they differ most</h2>",
        _table(_list_rows(one, two)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _tell_effects(one: Candidate, two: Candidate) -> list[str]:
    """Average effects under their heading; several classes have too many."""
    if one.has_several:
        return []
    return [
        "<h2>Average effects</h2>",
        '<p class="note">Of one unit more on the linear predictor, averaged over these '
        "rows; of a category the mean change from its baseline. Sorted by size.</p>",
        f'<div class="wide">{_table(_list_effects(one, two))}</div>',
    ]


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = [[escape(cell) for cell in line] for line in lines]
    rows = "".join(f"<tr><td>{'</td><td>'.join(line)}</td></tr>" for line in body)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{rows}</table>"


def _draw(one: Candidate, two: Candidate) -> list[str]:
    """ROC or residuals, calibration, and one model's predictions beside the other's."""
    from sknimo import plots

    both = {each.name: each for each in (one, two)}
    known = {
        name: {"X": each.rows.X, "y": each.rows.y, "offset": each.rows.offset}
        for name, each in both.items()
    }
    axes = []
    if one.is_classifier and "auc" in one.judged.model:
        curves = {name: each.est.roc(**known[name]) for name, each in both.items()}
        axes.append(plots.plot_roc(curves))
    if not one.has_several:
        bins = {
            name: each.est.calibration(**known[name]) for name, each in both.items()
        }
        axes.append(plots.plot_calibration(bins))
    axes.append(plots.plot_beside(one.mean, two.mean, (one.name, two.name)))
    return [plots.to_svg(ax) for ax in axes]


def _list_effects(one: Candidate, two: Candidate) -> list[list[str]]:
    """Average effects of both models, features of the larger effects first."""
    found: dict[str, list[float]] = {}
    size: dict[str, float] = {}
    for place, each in enumerate((one, two)):
        some = np.linspace(0, len(each.loss) - 1, min(len(each.loss), EFFECT_ROWS))
        rows = each.rows.take(some.round().astype(int))
        record = each.est.effects(rows.X)
        for j, name in enumerate(record.names):
            found.setdefault(name, [np.nan, np.nan])[place] = record.average_effect[j]
            size[name] = max(size.get(name, 0.0), float(record.size[j]))
    order = sorted(found, key=lambda name: -size[name])
    lines = [["feature", one.name, two.name]]
    for name in order[:MAX_FEATURES]:
        cells = ["–" if np.isnan(v) else f"{v:.4g}" for v in found[name]]
        lines.append([name, *cells])
    if len(order) > MAX_FEATURES:
        lines.append([f"{len(order) - MAX_FEATURES} more, smaller", "", ""])
    return lines


def _list_rows(one: Candidate, two: Candidate) -> list[list[str]]:
    """The rows whose predictions lie farthest apart; they count from one."""
    order = np.argsort(-np.abs(one.mean - two.mean), kind="stable")[:MAX_ROWS]
    lines = [["row", one.rows.target, one.name, two.name]]
    for row in order:
        truth = one.rows.y[row]
        shown = f"{truth:.4g}" if isinstance(truth, float) else str(truth)
        lines.append(
            [str(row + 1), shown, f"{one.mean[row]:.4g}", f"{two.mean[row]:.4g}"]
        )
    return lines
