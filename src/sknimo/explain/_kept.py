"""Which model this is, in a sentence: what was kept, and what the bends are worth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sknimo.explain._comparisons import POSSIBLE, RARE, Comparisons
from sknimo.explain._frames import cut, show_number
from sknimo.explain._kinds import feature_kinds
from sknimo.explain._local import find_roles
from sknimo.families import Family
from sknimo.model import FittedModel

# Families as they are spoken of, where that is not their name.
SPOKEN = {
    "cox": "Cox",
    "poisson": "Poisson",
    "softmax": "multinomial logistic",
    "tweedie": "Tweedie",
}
# Coefficients that are named where they mislead; the others are counted. More than so
# many, and half of all: the reference is the odd one.
NAMED = 3
MANY = 8
NOT_HELD_OUT = " No rows were held out to tell whether that predicts better."


@dataclass(frozen=True, slots=True)
class HeldOutScores:
    """What a search knows of rows that its members have not seen; NaN is not known."""

    # Explained variance of the target ("R2"), deviance ("D2") or what else `measure`
    # says, by the model and by its nested GLM.
    r2: float = math.nan
    glm_r2: float = math.nan
    bend: float = math.nan  # share of the bent members beside the additive model
    # Share of the nested GLM's loss that the bends save, and its standard error. Of a
    # model without bends: what they would have saved.
    gain: float = math.nan
    gain_error: float = math.nan
    measure: str = "R2"  # what the first two are
    sought: bool = True  # whether bends were looked for: not on wide tables
    turned: bool = False  # whether a user has set the share of bends

    def lines(self) -> tuple[tuple[str, str], ...]:
        """Label and value of what is known."""
        found = [(f"Held-out {self.measure}", f"{self.r2:.4f}")]
        if self.bend != 0:  # otherwise they would say the same again
            found += [
                (f"Held-out {self.measure}, no bends", f"{self.glm_r2:.4f}"),
                ("Share of bent members", f"{self.bend:.2f}"),
            ]
        return tuple(line for line in found if line[1] != "nan")


def is_bent(model: FittedModel) -> bool:
    """Whether some effect depends on another feature."""
    return bool(find_roles(model).modifies.any())


def has_curves(model: FittedModel) -> bool:
    """Whether some feature with an effect acts along a curve."""
    acts = find_roles(model).acts
    return any(
        kind == "curve" and acts[j]
        for j, kind in enumerate(feature_kinds(model.features))
    )


def n_networks(model: FittedModel) -> int:
    """Members with a network, `n_members_` of a search."""
    return int(model.modulated.any(-1).sum())


def plain_name(family: Family) -> str:
    """What a model of lines without a network is called."""
    names = {"identity": "linear model", "logit": "logistic regression"}
    own = SPOKEN.get(family.name, family.name.replace("_", " "))
    return names.get(family.link, f"{own} regression")


def describe_kept(
    model: FittedModel, scores: HeldOutScores | None, converged: bool | None = None
) -> str:
    """What was kept, and how much the bends add on rows held out."""
    bent, plain = is_bent(model), plain_name(model.family)
    article = "an" if plain[0] in "aeiou" else "a"
    if not bent:
        text = f"This is a plain {plain}: no effect depends on another feature."
        if has_curves(model):
            text = (
                f"This is {article} {plain} with curves: every feature acts on its "
                "own, and no effect depends on another feature."
            )
    else:
        count = n_networks(model)
        average = f" (average of {count} fits)" if count > 1 else ""
        text = f"In this model effects can depend on other features{average}."
    if scores is None:
        return text + NOT_HELD_OUT * bent
    return f"{text} {_worth(model, scores, bent, converged)}".strip()


def _worth(
    model: FittedModel, scores: HeldOutScores, bent: bool, converged: bool | None
) -> str:
    """What a search measured on rows held out."""
    parts = []
    if not bent:
        if converged is not False:
            parts.append(describe_trial(scores))
    if not math.isnan(scores.r2):
        what = "deviance" if scores.measure == "D2" else "variance"
        text = f"On held-out rows it explains {_percent(scores.r2)} of the {what}"
        without = _percent(scores.glm_r2)
        if scores.measure not in ("R2", "D2"):
            text = f"On held-out rows its {scores.measure} is {scores.r2:.3f}"
            without = f"{scores.glm_r2:.3f}"
        if bent and not math.isnan(scores.glm_r2):
            plain = plain_name(model.family)
            plain = "additive curves" if has_curves(model) else plain
            text += f", {without} without such dependence ({plain})"
        parts.append(f"{text}.")
    if bent and not math.isnan(scores.gain):
        parts.append(describe_gain(scores))
    return " ".join(parts)


def describe_gain(scores: HeldOutScores) -> str:
    """What the dependence saves of the error that would remain, on held-out rows."""
    if scores.gain > scores.gain_error:
        return f"The dependence saves {_share(scores)} of the remaining error."
    return (
        "The dependence makes no difference that held-out rows could show: it saves "
        f"{_share(scores)} of the remaining error."
    )


def describe_trial(scores: HeldOutScores) -> str:
    """What became of the dependence that a search has looked for."""
    if scores.turned:
        return "The dependence that was found has been set aside (set_bend)."
    if not scores.sought:
        return (
            "Effects that depend on other features were not searched for: there are "
            "fewer than two rows for each feature."
        )
    text = "Effects that depend on other features were searched for and"
    if math.isnan(scores.gain):
        return f"{text} found no support."
    size = f" ({_share(scores)} of its error)" if scores.gain_error > 0 else ""
    return f"{text} predict held-out rows no better{size}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _share(scores: HeldOutScores) -> str:
    return f"{100 * scores.gain:.1f} % (standard error {100 * scores.gain_error:.1f})"


def describe_stop(converged: bool | None, status: str = "") -> tuple[str, ...]:
    """What must be said first of a fit that was cut short."""
    if converged is not False:
        return ()
    why = f"{status.rstrip()} " if status else ""
    return (f"Not converged. {why}Read every number below with care: it may move.",)


def warn_of_reference(
    model: FittedModel, comparisons: Comparisons, n_rows: np.ndarray
) -> tuple[str, ...]:
    """Coefficients that mislead about the average; `n_rows` (c,) of levels, or NaN."""
    features = model.features
    coef = features.coefficients(model.term_coef)
    quoted = np.isfinite(comparisons.eta) & ~(n_rows < RARE)
    found = np.flatnonzero(comparisons.contradicts(coef) & quoted)
    if len(found) == 0:
        return ()
    whole = describe_reference(len(found), int(quoted.sum()))
    if whole:
        return (whole,)
    ranked = found[np.argsort(-np.abs(comparisons.eta[found]), kind="stable")]
    unit = "" if model.family.link == "identity" else f" on the {model.family.eta_name}"
    named = [
        f"{cut(features.coef_names[c], 40)} "
        f"({show_number(coef[c] * comparisons.step[c], 3)} there, "
        f"{show_number(comparisons.eta[c], 3)} on average)"
        for c in ranked
    ]
    return (
        f"At the reference these effects{unit} are unlike the average: "
        f"{_name_some(named)}. Quote the average.",
    )


def _name_some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    left = len(names) - NAMED
    return ", ".join(names[:NAMED]) + f" and {left} more" * (left > 0)


def describe_reference(n_wrong: int, n_all: int) -> str:
    """What to say where most effects at the reference mislead; nothing otherwise."""
    return (
        f"The reference is an unusual point: {n_wrong} of {n_all} effects there are "
        "unlike the average. Quote the averages, not the coefficients."
    ) * (n_wrong > max(MANY, n_all / 2))


def warn_of_support(model: FittedModel, comparisons: Comparisons) -> tuple[str, ...]:
    """Features whose step hardly any row could make, all else equal."""
    features = model.features
    owner = features.coef_feature
    # Cells that are missing together say nothing of the values; a feature's last
    # coefficient is that of a missing one.
    missing = features.admits_missing[owner] & (np.diff(owner, append=-1) != 0)
    odd = (comparisons.support < POSSIBLE) & ~missing
    names = [cut(features.names[j], 30) for j in np.unique(owner[odd])]
    if not names:
        return ()
    it, its = ("it", "Its effect") if len(names) == 1 else ("them", "Their effects")
    s = "s" * (len(names) == 1)
    return (
        f"{_name_some(names)} cannot change alone in most rows: other features "
        f"almost fix {it}. {its}, all else equal, compare{s} rows that do not exist.",
    )
