"""One model of two searches: what evidence has found, and what bags have beside it.

Evidence selects exactly and is hard to beat where a table is smooth; bags are steadier
where it is noisy. The linear predictor is linear in the coefficients, so that a
weighted mean of both is again a model of the class: members of the one stand among the
columns of the other, which has all of theirs and more. Rows that neither has seen
choose the weight.

Shapes: n rows, q terms, r inputs, p features, K members, P weights of a network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sknimo.network import NetworkSpec, one_hot, unpack
from sknimo.search._settings import Settings
from sknimo.search._verdict import (
    HeldOut,
    Outcome,
    damp_weight,
    eta_losses,
    judge,
    likely_weight,
)
from sknimo.solver import Coefficients, Problem, Rows
from sknimo.training import AnyFold, Ensemble, fit_lines

# Shares of their own certainty that networks of two classes may keep.
CERTAINTIES = np.linspace(0.05, 1.0, 20)


@dataclass(frozen=True, slots=True)
class Beside:
    """The rows of a table with curves, and folds of which every bag leaves one out."""

    problem: Problem
    folds: Sequence[AnyFold]
    # Columns that are the terms and inputs of the evidence: (q,) and (r,) integers, or
    # None where it has other curves.
    columns: tuple[Tensor, Tensor] | None


def blend_outcomes(
    found: Outcome, other: Outcome, beside: Beside, weight: Tensor, settings: Settings
) -> Outcome:
    """Evidence, bags or a mean of both: what predicts rows held out best.

    Bags that improve on evidence, or on a model without features, by less than a share
    of the standard error and of that model's loss count in part. Beside a network of
    other families than least squares they then count for nothing: what evidence has
    selected is the simpler model. With `bags_first` lines that evidence selected must
    improve on bags, and where it has none bags must improve on that alone.
    """
    one, two = found.held_out_eta, other.held_out_eta
    if one is None or two is None:
        # Time that ends before the evidence is judged leaves the bags.
        late = found.out_of_time and two is not None and not other.out_of_time
        return replace(other, out_of_time=True) if late else found
    rows = np.flatnonzero(np.isfinite(one) & np.isfinite(two))
    share = weight.cpu().numpy()[rows]
    found = _temper(found, rows, share)
    one = found.held_out_eta
    assert one is not None
    # Members around another point or of other curves cannot stand beside each other,
    # nor do wide networks fit into narrow ones.
    same = found.features is None and beside.columns is not None
    widths = zip(found.problem.spec.hidden, other.problem.spec.hidden, strict=True)
    same &= all(own <= there for own, there in widths)
    steps = np.linspace(0, 1, settings.blend_steps + 1) if same else np.arange(2.0)
    losses = [
        _losses(found.problem, rows, (1 - w) * one[rows] + w * two[rows]) for w in steps
    ]
    means = np.array([np.average(loss, weights=share) for loss in losses])
    w = float(steps[np.argmin(means)])
    if same:
        w = likely_weight(steps, means, float(share.sum()), found.problem.family)
    mixed = _losses(found.problem, rows, (1 - w) * one[rows] + w * two[rows])
    empty_handed = settings.bags_first and not found.members.coef.any()
    home = settings.bags_first and not (found.n_members or empty_handed)
    saved = losses[-1 if home else 0] - mixed
    gain = float(np.average(saved, weights=share))
    spread = float(np.average((saved - gain) ** 2, weights=share))
    strict = found.n_members > 0 and not found.problem.family.least_squares
    errors = settings.blend_errors[strict]
    errors *= math.sqrt(spread / float(share.sum()))
    empty = _empty_loss(found.problem, rows, share)
    least = max(errors, settings.blend_gain * empty)
    left = float(np.average(mixed, weights=share))
    if home and not gain > least:
        w, gain, left = 1.0, least, means[-1]
    if not empty_handed:  # it is that model, judged by rows that it has not seen
        gain = min(gain, empty - left)
    if gain < least and (strict or not same):
        return found
    w = damp_weight(w, gain, least, settings)
    if w == 0:
        return found
    if w < 1:
        return _blend(found, other, beside, w, weight)
    facts = ("path", "alpha", "input_precision", "log_evidence", "glm_log_evidence")
    kept = {name: getattr(found, name) for name in facts}
    trials = _join(found.trials, other.trials)
    return replace(other, trials=trials, best_index=found.best_index, **kept)


def _temper(found: Outcome, rows: np.ndarray, share: np.ndarray) -> Outcome:
    """Networks of two classes, as certain as rows held out allow.

    Few rows that lie between the classes leave their coefficients without a bound; no
    other family takes more certainty for a better fit.
    """
    problem, members, eta = found.problem, found.members, found.held_out_eta
    if eta is None or not (problem.family.is_binary and found.n_members):
        return found
    known = problem.offset.cpu().numpy()
    own = eta - known
    scaled = [known[rows] + s * own[rows] for s in CERTAINTIES]
    means = [_mean_loss(problem, rows, each, share) for each in scaled]
    n_rows, family = float(share.sum()), problem.family
    s = likely_weight(CERTAINTIES, np.array(means), n_rows, family)
    members = replace(members, coef=s * members.coef, intercept=s * members.intercept)
    return replace(found, members=members, held_out_eta=known + s * own)


def _losses(problem: Problem, rows: np.ndarray, eta: np.ndarray) -> np.ndarray:
    return eta_losses(problem, rows, eta, bounded=False)


def _mean_loss(
    problem: Problem, rows: np.ndarray, eta: np.ndarray, share: np.ndarray
) -> float:
    return float(np.average(_losses(problem, rows, eta), weights=share))


def _empty_loss(problem: Problem, rows: np.ndarray, share: np.ndarray) -> float:
    """Mean loss of a model without features."""
    y, offset = (
        each.cpu()[torch.as_tensor(rows)] for each in (problem.y, problem.offset)
    )
    weight = torch.as_tensor(share / share.sum()).unsqueeze(0)
    nothing = np.empty((len(rows), 0))
    constant = fit_lines(nothing, Rows(y, offset, weight, problem.family)).intercept
    return _mean_loss(problem, rows, (offset + constant).numpy(), share)


def _blend(
    found: Outcome, other: Outcome, beside: Beside, w: float, weight: Tensor
) -> Outcome:
    """The model whose linear predictor is `(1 - w) found + w other`."""
    spec = _joint_spec(found, other)
    problem = replace(other.problem, spec=spec)
    first, second = _embed(found, problem, beside), other.members
    assert isinstance(second, Ensemble)
    params = _recode(other.problem.spec, spec, second.params)
    second = replace(second, params=params)
    members = _weigh(first, second, w)
    eta = _mean(found.held_out_eta, other.held_out_eta, w)
    straight = _mean(found.straight_eta, other.straight_eta, w)
    rows = np.flatnonzero(np.isfinite(eta) & np.isfinite(straight))
    most = weight.cpu().numpy()
    held_out = HeldOut(
        rows, np.zeros_like(rows), most[rows], straight[rows], eta[rows], eta[rows]
    )
    return replace(
        found,
        members=members,
        problem=problem,
        verdict=judge(problem, held_out, eta[rows], most, tiny_gain=0.0),
        trials=_join(found.trials, other.trials),
        n_members=int(members.modulated.any(-1).sum()),
        dial=(1 - w) * found.dial + w * other.dial,
        held_out_eta=eta,
        straight_eta=straight,
        by_bags=True,
        straight=_mean_line(found.straight, other.straight, beside, w),
    )


def _mean(one: np.ndarray | None, two: np.ndarray | None, w: float) -> np.ndarray:
    assert one is not None and two is not None  # both have predicted rows held out
    return np.asarray((1 - w) * one + w * two)


def _mean_line(
    one: Coefficients | None, two: Coefficients | None, beside: Beside, w: float
) -> Coefficients | None:
    """The mean of two models without bends, among the columns of the second."""
    if one is None or two is None or beside.columns is None:
        return None
    coef = torch.zeros_like(two.coef)
    coef[:, beside.columns[0]] = one.coef
    return Coefficients(
        (1 - w) * coef + w * two.coef, (1 - w) * one.intercept + w * two.intercept
    )


def _weigh(first: Ensemble, second: Ensemble, w: float) -> Ensemble:
    """All members as equals, with coefficients that give either side its weight."""
    counts = len(first.coef), len(second.coef)
    shares = (1 - w) / counts[0], w / counts[1]
    return Ensemble.join(
        [
            replace(
                each,
                coef=sum(counts) * share * each.coef,
                intercept=sum(counts) * share * each.intercept,
                scale=sum(counts) * share * each.scale,
            )
            for each, share in zip((first, second), shares, strict=True)
        ]
    )


def _joint_spec(found: Outcome, other: Outcome) -> NetworkSpec:
    """The network of the bags, with a code for every feature that either modulates."""
    spec = other.problem.spec
    if not spec.code or not spec.code[0]:
        return spec
    coded = spec.codes().any(-1) | found.members.modulated.any(0).cpu()
    active = coded.nonzero().squeeze(-1).tolist()
    return replace(spec, code=one_hot(spec.n_features, active))


def _embed(found: Outcome, problem: Problem, beside: Beside) -> Ensemble:
    """Members of the evidence among the columns of the bags."""
    assert beside.columns is not None
    terms, inputs = beside.columns
    members, old, new = found.members, found.problem.spec, problem.spec
    assert isinstance(members, Ensemble)
    coef = members.coef.new_zeros(len(members.coef), problem.n_terms)
    coef[:, terms] = members.coef
    params = _recode(old, new, members.params, inputs)
    return Ensemble(coef, members.intercept, params, members.modulated, members.scale)


def _recode(
    old: NetworkSpec, new: NetworkSpec, params: Tensor, inputs: Tensor | None = None
) -> Tensor:
    """The same networks with other codes of features, and more inputs, (K, P).

    What a code adds to the first layer of a feature is all that matters of it.
    """
    out = params.new_zeros(len(params), new.n_params)
    before, after = unpack(old, params), unpack(new, out)
    # Units that are new do nothing.
    h1, h2 = old.hidden
    after.first[:, :h1, slice(None) if inputs is None else inputs] = before.first
    shift = before.code_weight @ old.codes().to(params).T  # (K, h1, p)
    codes = new.codes().to(params)
    coded = shift @ codes if codes.shape[1] else before.code_weight
    after.code_weight[:, :h1] = coded
    after.bias[:, :h1], after.second[:, :h2, :h1] = before.bias, before.second
    after.second_bias[:, :h2] = before.second_bias
    given = before.outputs(old.codes().to(params)).mT  # (K, h2, p), or (K, h2, 1)
    if new.own_out:
        given = given.expand(-1, -1, len(codes)) @ codes
    after.out[:, :h2] = given.view_as(after.out[:, :h2])
    return out


def _join(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> dict[str, Any]:
    """Models that both searches have trained, NaN where one does not say."""
    sizes = len(first["stage"]), len(second["stage"])
    return {
        name: first.get(name, [math.nan] * sizes[0])
        + second.get(name, [math.nan] * sizes[1])
        for name in {**first, **second}
    }
