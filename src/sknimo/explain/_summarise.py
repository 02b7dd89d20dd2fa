"""What goes into a summary: rows, reference, notes, from a model and its training.

Shapes: p features, c coefficients.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from sknimo.explain._comparisons import Comparisons
from sknimo.explain._effects import Effects
from sknimo.explain._frames import NOT_KNOWN, cut, show_number, show_value
from sknimo.explain._kept import (
    HeldOutScores,
    describe_kept,
    describe_stop,
    n_networks,
    warn_of_reference,
    warn_of_support,
)
from sknimo.explain._kinds import feature_kinds
from sknimo.explain._levels import LevelEffects, restore_levels
from sknimo.explain._local import as_array, exp_or_inf, find_roles, mean_of
from sknimo.explain._price import TrainingFacts
from sknimo.explain._summary import (
    FAINT,
    POOLED,
    KnownErrors,
    RowKind,
    Summary,
    SummaryOrder,
    SummaryRow,
)
from sknimo.explain._surfaces import effect_curve
from sknimo.families import SOFTMAX
from sknimo.model import FittedModel

# Coefficients of which a note tells one by one.
NOTED_ROWS = 6
# Shares of what members have that their mean may be off by.
ROUNDING = 1e-14


class CertificateLike(Protocol):
    """What a summary reads of a fit's certificate."""

    @property
    def kkt(self) -> float: ...  # noqa: D102
    @property
    def status(self) -> str: ...  # noqa: D102


def summarise(
    model: FittedModel,
    facts: TrainingFacts | None,
    *,
    title: str,
    certificate: CertificateLike | None = None,
    converged: bool | None = None,
    reference: Any = None,
    scores: HeldOutScores | None = None,
    status: str = "",
    order: SummaryOrder = "importance",
    errors: KnownErrors | None = None,
) -> Summary:
    """Put a fitted model and what is known of its training into one record.

    `reference` is the estimator's parameter of this name, for the words alone; `status`
    says why a fit without a certificate did not converge.
    """
    names, roles = model.features.names, find_roles(model)
    known = None if facts is None else facts.effects
    compared = None if facts is None else facts.comparisons
    rows = tuple(summary_rows(model, known, compared, errors))
    head = _facts(model, facts, int(roles.acts.sum()), certificate, converged)
    if scores is not None:
        head += tuple((f"{name}:", text) for name, text in scores.lines())
    family = model.family
    if certificate is not None:
        status = certificate.status
    warned: tuple[str, ...] = ()
    if known is not None and compared is not None:
        counts = level_counts(model, known.levels)
        warned = warn_of_reference(model, compared, counts)
        warned += warn_of_support(model, compared)
    return Summary(
        title=title,
        headline=(
            describe_kept(model, scores, converged),
            *describe_stop(converged, status),
            *warned,
        ),
        facts=head,
        reference=_describe_reference(model, roles.relevant, reference),
        ratio_label=family.ratio_name,
        percent=family.is_binary,
        base_value=model.base_value,
        base_mean=float(mean_of(family, np.array([model.base_value]))[0]),
        rows=_arrange(rows, order),
        curves=tuple(_curves(model, roles.acts)),
        idle=tuple(name for j, name in enumerate(names) if not roles.relevant[j]),
        modifiers=() if known is None else _modifiers(known),
        notes=_notes(model, rows, facts, certificate, errors)
        + _spread_notes(model, rows),
        level=0.95 if errors is None else errors.level,
    )


def level_counts(model: FittedModel, levels: LevelEffects) -> np.ndarray:
    """Rows behind each coefficient, NaN for slopes, (c,)."""
    features = model.features
    out = np.full(len(features.coef_feature), np.nan)
    for j in np.unique(levels.column).tolist():
        places = np.flatnonzero(features.coef_feature == j)
        own = levels.of(j)
        own = own[~levels.baseline[own]]
        out[places[len(places) - len(own) :]] = levels.n_rows[own]
    return out


def _arrange(
    rows: tuple[SummaryRow, ...], order: SummaryOrder
) -> tuple[SummaryRow, ...]:
    """Features with their levels, the most important first unless as given."""
    if order == "columns" or any(
        row.importance is None for row in rows if row.is_feature
    ):
        return rows
    blocks: list[list[SummaryRow]] = []
    for row in rows:
        if row.is_feature:
            blocks.append([])
        blocks[-1].append(row)
    blocks.sort(key=lambda block: -(block[0].importance or 0.0))
    return tuple(row for block in blocks for row in block)


def summary_rows(
    model: FittedModel,
    known: Effects | None,
    compared: Comparisons | None = None,
    errors: KnownErrors | None = None,
) -> Iterator[SummaryRow]:
    """Features with a role in the order of the columns, each with its levels."""
    features, roles = model.features, find_roles(model)
    compared = None if compared is None else compared.as_read(model.family)
    kinds = feature_kinds(features)
    has_ratio = model.family.ratio_name is not None
    coef = features.feature_coef(model.term_coef)
    levels = restore_levels(model) if known is None else known.levels
    slope_sd, level_sd = _member_sds(model)
    # What members cancel to is none.
    size = features.feature_coef(as_array(model.coef.abs().amax(0)))
    coef = np.where(np.abs(coef) < ROUNDING * np.abs(size), 0.0, coef)
    stands_for = features.stands_for
    nan = math.nan
    for j, name in enumerate(features.names):
        if not roles.relevant[j]:
            continue
        whole = kinds[j] == "category"
        places = iter(np.flatnonzero(features.coef_feature == j).tolist())
        row = SummaryRow(
            name=name,
            coef=nan if whole else float(coef[j]),
            coef_std=nan if whole else float(coef[j] * features.scale[j]),
            ratio=nan if whole or not has_ratio else float(exp_or_inf(coef[j])),
            average_effect=None if known is None else float(known.average_effect[j]),
            bend=None if known is None else float(known.bend[j]),
            role=roles.labels[j],
            kind=kinds[j],
            member_sd=None if whole else slope_sd[j],
            importance=None if compared is None else float(compared.importance[j]),
        )
        yield row if whole else _at(row, compared, errors, next(places))
        for at in levels.of(j).tolist():
            row = _level_row(levels, at, has_ratio, level_sd[at])
            if not levels.baseline[at]:
                place = next(places)
                row = _at(row, compared, errors, place)
                row = replace(row, stands_for=stands_for[place])
            yield row


def _at(
    row: SummaryRow, compared: Comparisons | None, errors: KnownErrors | None, at: int
) -> SummaryRow:
    """The row with its error and its readable step, where they are known."""
    row = row if errors is None else errors.put(row, at)
    if compared is None or np.isnan(compared.step[at]):
        return row
    row = replace(
        row, step=float(compared.step[at]), response=float(compared.response[at])
    )
    if compared.corrected is None:
        return row
    middle, error = compared.corrected[2:, at].tolist()
    if math.isnan(middle) or math.isnan(error) or row.is_rare:
        return row
    reach = NormalDist().inv_cdf(0.975) * error
    return replace(
        row,
        corrected=middle,
        average_lower=min(middle - reach, float(compared.response[at])),
        average_upper=max(middle + reach, float(compared.response[at])),
    )


def _member_sds(model: FittedModel) -> tuple[list[float | None], list[float | None]]:
    """Standard deviations between members: of slopes (p,), of levels (l,).

    None where a member is silent: then all are parts of one model, scaled by how much
    each counts, and no models alone.
    """
    coefs = model.coef if model.modulated.any(-1).all() else model.coef[:1]
    members = [replace(model, coef=coef.unsqueeze(0)) for coef in coefs]
    slopes = [model.features.feature_coef(each.term_coef) for each in members]
    levels = [restore_levels(each).coef for each in members]
    return _deviations(np.stack(slopes)), _deviations(np.stack(levels))


def _deviations(values: np.ndarray) -> list[float | None]:
    """Standard deviation of each column of (M, c); none of a single row."""
    if len(values) == 1:
        return [None] * values.shape[1]
    size = np.abs(values).max(axis=0)
    unit = values / np.where(size > 0, size, 1.0)  # no overflow in extreme units
    return list((size * unit.std(axis=0, ddof=1)).tolist())


def _level_row(
    levels: LevelEffects, at: int, has_ratio: bool, member_sd: float | None
) -> SummaryRow:
    kind: RowKind = "baseline" if levels.baseline[at] else "level"
    average, spread = float(levels.average_effect[at]), float(levels.effect_sd[at])
    size = math.hypot(average, spread)
    bend = (spread / size) ** 2 if size else 0.0  # no overflow in extreme units
    return SummaryRow(
        name=levels.features[at],
        coef=float(levels.coef[at]),
        ratio=float(exp_or_inf(levels.coef[at])) if has_ratio else math.nan,
        average_effect=None if np.isnan(average) else average,
        bend=None if np.isnan(bend) else bend,
        kind="missing" if levels.missing[at] else kind,
        level=levels.levels[at],
        member_sd=None if levels.baseline[at] else member_sd,
        n_rows=None if np.isnan(levels.n_rows[at]) else float(levels.n_rows[at]),
    )


def _curves(model: FittedModel, acts: np.ndarray) -> Iterator[tuple[str, str]]:
    """Range of the effect of each curve, over the usual grid."""
    for j, kind in enumerate(feature_kinds(model.features)):
        if kind == "curve" and acts[j]:
            found = effect_curve(model, j)
            low, high = (
                f"{show_number(found.effect[k], 3)} at {show_number(found.value[k])}"
                for k in (found.effect.argmin(), found.effect.argmax())
            )
            yield found.feature, f"from {low} to {high}"


def _describe_reference(
    model: FittedModel, relevant: np.ndarray, parameter: Any
) -> tuple[str, ...]:
    """Kind of the reference, then the features with a role and their values."""
    features = model.features
    words = {"mean": "mean", "median": "median", "mode": "most frequent value"}
    kind = "Reference"
    if isinstance(parameter, Mapping):
        kind = f"Reference (set for {len(parameter)} of {features.n_features} features)"
    elif parameter in words:
        with_levels = "category" in feature_kinds(features) and parameter != "mode"
        level = ", most frequent level" if with_levels else ""
        kind = f"Reference ({words[parameter]}{level})"
    values = [
        f"{cut(name, 30)} "
        + cut(show_value(features.reference[j], features.levels(j), quote=True), 30)
        for j, name in enumerate(features.names)
        if relevant[j]
    ]
    return (kind, *values) if values else ()


def _has_classes(model: FittedModel) -> bool:
    """Whether the target is one of two classes or more."""
    return model.family.is_binary or model.family.name == SOFTMAX.name


def _facts(
    model: FittedModel,
    facts: TrainingFacts | None,
    n_acting: int,
    certificate: CertificateLike | None,
    converged: bool | None,
) -> tuple[tuple[str, str], ...]:
    """Head of the page, label and value."""
    p = model.features.n_features
    head = [
        ("Family:", model.family.name),
        ("Link:", model.family.link),
        ("Rows:", NOT_KNOWN if facts is None else str(facts.n_samples)),
        ("Features with an effect:", f"{n_acting} of {p}"),
        ("Networks averaged:", str(n_networks(model))),
    ]
    if model.family.shape is not None:
        name, value = model.family.shape.name, model.family.shape.value
        head.insert(1, (f"{name.capitalize()}:", show_number(value)))
    if facts is not None:
        # Rows held out tell shares of the variance, which of classes are others.
        explained = "D2" if _has_classes(model) else "Explained"
        head += [
            ("Deviance, training rows:", f"{facts.deviance:.5g}"),
            (f"{explained}, training rows:", f"{facts.explained:.4f}"),
        ]
        if not math.isnan(facts.near):
            head.append(("Rows like the reference:", f"{100 * facts.near:.0f} %"))
    if converged is not None:
        head.append(("Converged:", "yes" if converged else "no"))
    elif certificate is not None:
        head.append(("Optimality residual:", f"{certificate.kkt:.1e}"))
    return tuple(head)


def _modifiers(known: Effects) -> tuple[tuple[str, str], ...]:
    """Feature and its strongest modifiers with their strengths."""
    names, directed = known.names, known.directed
    bent_by = [
        ", ".join(
            f"{names[k]} ({show_number(directed[j, k], 3)})"
            for k in known.modifiers_of(j)
        )
        for j in range(len(names))
    ]
    return tuple(pair for pair in zip(names, bent_by, strict=True) if pair[1])


def _spread_notes(model: FittedModel, rows: tuple[SummaryRow, ...]) -> tuple[str, ...]:
    """How far the members that were averaged lie apart, the widest first."""
    known = [(row, row.member_sd) for row in rows if row.member_sd is not None]
    if not known:
        return ()
    # Relative to the coefficient: units of features differ.
    known.sort(key=lambda each: -each[1] / max(abs(each[0].coef), 1e-300))
    shown = [
        # Of one step, as in the column.
        f"{cut(row.full_name, 40)} {show_number(spread * row.step, 2)}"
        for row, spread in known[:NOTED_ROWS]
    ]
    left = len(known) - len(shown)
    more = f", and {left} more closer together" if left else ""
    return (
        f"members: standard deviation of coef between the {model.n_members} that were "
        f"averaged: {', '.join(shown)}{more}.",
    )


def _pooled_notes(rows: tuple[SummaryRow, ...]) -> Iterator[str]:
    """What rare levels count as."""
    shown = [f"{r.full_name} counts as {r.stands_for}" for r in rows if r.stands_for]
    more = [f"{len(shown) - NOTED_ROWS} more"] if len(shown) > NOTED_ROWS else []
    if shown:
        listed = "; ".join([*shown[:NOTED_ROWS], *more])
        yield f"{POOLED}: rows too few for a coefficient of their own. {listed}."


def _notes(
    model: FittedModel,
    rows: tuple[SummaryRow, ...],
    facts: TrainingFacts | None,
    certificate: CertificateLike | None,
    errors: KnownErrors | None,
) -> tuple[str, ...]:
    """What a reader must know to read the table rightly."""
    family, kinds = model.family, set(feature_kinds(model.features))
    unit = "the response" if family.link == "identity" else f"the {family.eta_name}"
    notes = []
    if facts is not None:
        points = " (pp: percentage points)" if family.is_binary else ""
        if _has_classes(model):
            notes.append(
                "D2: share of the deviance that is explained; R2 is of the variance."
            )
        response = family.eta_name if family.is_hazard else "response"
        notes.append(
            f"average: change of the {response}{points} that goes with one step more, "
            "the step under per, everything else as in the row, averaged over the "
            "training rows."
        )
    per_sd = " per sd: coef for one standard deviation." if errors is None else ""
    change = "the same on" if facts is not None else "what one unit more adds to"
    notes.append(
        f"coef: {change} {unit}, with everything else at the reference.{per_sd}"
    )
    if facts is not None and not math.isnan(facts.near):
        notes.append(
            "Rows like the reference: within one standard deviation in every number."
        )
    if any((row.bend or 0.0) > FAINT for row in rows):
        notes.append(
            "varies: share of the effect that differs between rows because of other "
            "features."
        )
    if any(row.corrected is not None for row in rows):
        notes.append(
            "Intervals of averages: what rows held out say of rows like these, "
            "stretched to hold the average; see docs/inference.md. What other "
            "features tell almost as well, or one row alone, has none."
        )
    if family.ratio_name is not None:
        notes.append(f"{family.ratio_name}: exp(coef).")
    if "category" in kinds:
        notes.append("levels: change from the baseline to the level, in the same way.")
    if "curve" in kinds:
        notes.append("curve: coef is its slope at the reference.")
    if model.features.admits_missing.any():
        notes.append("missing: change from the reference to a missing value.")
    if any(row.is_rare for row in rows):
        notes.append("*: too few rows to quote.")
    notes += _pooled_notes(rows)
    if any(row.kind in ("line", "curve", "level") for row in rows):
        none = ("No standard errors or intervals were estimated for this fit.",)
        notes += none if errors is None else errors.words(rows)
    if certificate is not None:
        notes.append(
            f"Training: {certificate.status} Optimality residual of the coefficients "
            f"{certificate.kkt:.0e}."
        )
    return (*notes, "Words: docs/glossary.md.")
