"""What the what-if page carries: the model itself and how to show it.

The model travels as `sknimo.io.model_record`, with arrays as lists of all their digits;
`assets/model.js` evaluates it. Weights that were trained in single precision need half
as many: where the record is `single`, the page rounds them to that. The gauge (see
`docs/explanations.md`) travels as the entries above its diagonal that are not zero.

Shapes: p features, q terms.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sknimo.explain import FEW_VALUES, POSSIBLE, Support, weighted_quantiles
from sknimo.inference import MOST_BENT, Conformal, Uncertainty, weigh_members
from sknimo.io import model_record
from sknimo.model import Dial, FittedModel
from sknimo.report._inputs import INTERVAL, ModelCard, Sample
from sknimo.report._lines import Line
from sknimo.report._story import Story
from sknimo.report._text import clean_text

N_BINS = 32
# Rows at either end are far where the others take up so much less of the range.
FAR_SHARE = 0.01
FAR_TIMES = 4
# Means at which variances are told apart.
MEANS = (0.3, 1.0, 2.5)
ENDS = ("lowest", "highest")
# Columns of which the page carries the covariance.
MAX_SUPPORT = 120
# Covariances of terms that it carries.
MAX_COVARIANCES = 60_000
# Numbers of the models of all classes that it carries.
MAX_CLASS_NUMBERS = 1_000_000
# Features whose controls are shown at once; the others are folded.
SHOWN = 12


def page_data(story: Story) -> dict[str, Any]:
    """Everything that the what-if page needs, ready for JSON."""
    card, sample, model = story.card, story.sample, story.model
    return {
        "model": _plain(_shorten(model_record(model))),
        "swap": _upper(story.swap),
        "link": model.family.link,
        "etaName": story.total_name,
        "name": _prediction_name(story),
        "controls": [_control(model, sample, j) for j in story.order],
        "shown": SHOWN,
        "fixed": _fixed(story.lines, sample.table),
        "support": None if story.support is None else _support(story.support),
        "interval": _interval(model, card.conformal),
        "errors": _errors(model, card.uncertainty),
        "dial": _dial(card.dial),
        "every": [_plain(_shorten(model_record(one))) for one in _every(card)],
        "place": card.place,
        "hasOffset": sample.given_offset,
        "baseOffset": card.base_offset,
        "rows": [
            {
                "label": f"{case.label}, {case.why}",
                "values": _numbers(case.found.data[0]),
                "offset": float(case.found.offset[0]),
            }
            for case in story.cases
        ],
    }


def _prediction_name(story: Story) -> str:
    """What the number at the top of the page is."""
    if story.model.family.is_hazard:
        return "Hazard, times that of the reference"
    classes = story.card.classes
    if story.model.family.is_binary:
        held = story.sample.of_class and not _every(story.card)
        name = f"Probability of {'1' if classes is None else classes[1]}"
        return name + ", scores of the other classes held" * held
    return f"Predicted {story.sample.target}"


def _every(card: ModelCard) -> tuple[FittedModel, ...]:
    """Models of all classes, unless the page would become too large for them."""
    size = sum(one.params.numel() + one.coef.numel() for one in card.every)
    return card.every if size <= MAX_CLASS_NUMBERS else ()


def _fixed(lines: Sequence[Line], table: np.ndarray) -> list[int]:
    """Features of few values that others fix: to change one alone is not proposed.

    Of the others the page sees itself how far they may go.
    """
    own = [line for line in lines if line.row.kind != "missing"]
    free = {line.feature for line in own if not line.support < POSSIBLE}
    fixed = {line.feature for line in own} - free
    return sorted(j for j in fixed if len(np.unique(table[:, j])) <= FEW_VALUES)


def _interval(model: FittedModel, found: Conformal | None) -> dict[str, Any] | None:
    """How the page finds the interval of the next observation.

    The spread of the family travels as a power of the mean; others have no interval.
    """
    if found is None or model.family.is_binary:
        return None
    means = torch.tensor(MEANS, dtype=torch.float64)
    spread = model.family.variance(means)
    powers = [k for k in range(4) if torch.allclose(spread, means**k)]
    ends = [getattr(found.adapted, end)((1 + INTERVAL) / 2) for end in ENDS]
    if not powers or not np.isfinite(ends).all():
        return None
    width = found.width
    return {
        "level": f"{100 * INTERVAL:g} %",
        "ends": ends,
        "power": powers[0] / 2,
        "coef": _numbers(width.coef),
        "centre": _numbers(width.centre),
        "log": [width.intercept, width.low, width.high],
        "whole": found.whole,
        "positive": model.family.positive_only,
    }


def _dial(dial: Dial | None) -> dict[str, Any] | None:
    """The model without bends, and what rows held out say along the way to it."""
    if dial is None or not np.isfinite(dial.scores).all():
        return None
    return {
        "bend": dial.bend,
        "coef": _numbers(dial.coef[0]),
        "intercept": float(dial.intercept[0]),
        "scores": _round(dial.scores),
    }


def _errors(model: FittedModel, known: Uncertainty | None) -> dict[str, Any] | None:
    """How the page finds the error of a contribution, as `inference/_local.py` does."""
    if known is None or known.nonrobust is None:
        return None
    known = known.grouped(model.features.coef_feature)
    if sum(block.size for block in known.terms) > MAX_COVARIANCES:
        return None
    some = weigh_members(model, known)
    return {
        "blocks": [_round(np.nan_to_num(block)) for block in known.terms],
        "most": MOST_BENT,
        "members": some.places.tolist() if len(some.places) > 1 else [],
        "share": _numbers(some.share),
        "count": some.count,
        "scale": _numbers(some.scale),
    }


def _support(support: Support) -> dict[str, Any] | None:
    """Where rows lie, for the page to say how unusual a combination is.

    The inverse covariance travels as its upper triangle, squared distances of the rows
    as their percentiles; a column without a value is the number, -1 is missing.
    """
    if len(support.owner) > MAX_SUPPORT:
        return None
    rows, columns = np.triu_indices(len(support.owner))
    shares = np.linspace(0.0, 1.0, 101).tolist()
    values = [
        None if np.isnan(value) else -1 if np.isinf(value) else int(value)
        for value in support.value
    ]
    return {
        "owner": support.owner.tolist(),
        "value": values,
        "mean": _numbers(support.mean),
        "scale": _numbers(support.scale),
        "precision": _round(support.precision[rows, columns]),
        "percentiles": _round(
            weighted_quantiles(support.distance, support.weight, shares)
        ),
    }


def _round(values: Any) -> Any:
    """Numbers with a few digits, which is as well as a distance is known."""
    if np.ndim(values):
        return [_round(value) for value in values]
    return float(f"{values:.6g}")


def _shorten(record: dict[str, Any]) -> dict[str, Any]:
    """The same model with as few digits of the weights as tell single numbers apart."""
    with np.errstate(over="ignore"):
        single = record["params"].astype(np.float32)
    if not np.array_equal(single, record["params"]):
        return record
    return record | {"params": single.astype(str).astype(float), "single": True}


def _upper(swap: np.ndarray) -> list[list[Any]]:
    """Entries above the diagonal of an antisymmetric matrix: row, column, value."""
    rows, columns = np.nonzero(np.triu(swap, 1))
    entries = zip(rows, columns, strict=True)
    return [[int(t), int(u), float(swap[t, u])] for t, u in entries]


def _control(model: FittedModel, sample: Sample, j: int) -> dict[str, Any]:
    """How one feature is set: its range or levels, and where the rows lie."""
    features = model.features
    column = sample.table[:, j]
    known = column[~np.isnan(column)]
    control: dict[str, Any] = {
        "feature": j,
        "name": features.names[j],
        "mayMiss": bool(features.admits_missing[j]),
    }
    levels = features.levels(j)
    if levels is not None:
        counts = np.bincount(known.astype(int), minlength=len(levels))
        return control | {
            "levels": [clean_text(level) for level in levels],
            "counts": _heights(counts),
        }
    least, most = _range(model, j, known)
    seen = np.append(known, [least, most])
    whole = bool((seen == np.round(seen)).all() and np.abs(seen).max() < 2**53)
    low, high = _usual_range(known, least, most, features.reference[j], whole)
    n_bins, ends = _bins(low, high, whole)
    counts, _ = np.histogram(np.clip(known, low, high), n_bins, ends)
    return control | {
        "low": low,
        "high": high,
        "least": least,
        "most": most,
        "whole": whole,
        "counts": _heights(counts),
    }


def _range(model: FittedModel, j: int, known: np.ndarray) -> tuple[float, float]:
    """Training range of a feature, or that of the rows where it is not known."""
    features = model.features
    if features.low and np.isfinite([features.low[j], features.high[j]]).all():
        return float(features.low[j]), float(features.high[j])
    ends = np.append(known, features.reference[j])
    return float(ends.min()), float(ends.max())


def _usual_range(
    known: np.ndarray, least: float, most: float, reference: float, whole: bool
) -> tuple[float, float]:
    """What slider and picture cover: not the way to a few far values."""
    if len(known) == 0:
        return least, most
    ends = np.quantile(known, [FAR_SHARE, 1 - FAR_SHARE])
    if not 0 < ends[1] - ends[0] < (most - least) / FAR_TIMES:
        return least, most
    low, high = min(ends[0], reference), max(ends[1], reference)
    if whole:
        low, high = np.floor(low), np.ceil(high)
    return float(low), float(high)


def _bins(low: float, high: float, whole: bool) -> tuple[int, tuple[float, float]]:
    """How many bins, and between which ends.

    Each holds as many whole numbers as the next: else some look empty or too full.
    """
    n_values = high - low + 1
    if not whole or n_values <= N_BINS / 2:
        return N_BINS, (low, high)
    width = np.ceil(n_values / N_BINS)
    n_bins = int(np.ceil(n_values / width))
    return n_bins, (low - 0.5, low - 0.5 + width * n_bins)


def _heights(counts: np.ndarray) -> list[int]:
    """Counts in percent of the largest."""
    largest = int(counts.max(initial=0)) or 1
    return [int(np.ceil(100 * count / largest)) for count in counts]


def _plain(value: Any) -> Any:
    """Nested mappings, lists and arrays as what JSON knows."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            return _numbers(value)
        return value.astype(int).tolist()
    if isinstance(value, str):
        return clean_text(value)
    return value


def _numbers(array: np.ndarray) -> list[Any]:
    """Floats as nested lists; whole numbers lose their point, NaN becomes null."""
    if array.ndim > 1:
        return [_numbers(row) for row in array]
    return [_number(float(value)) for value in array]


def _number(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
