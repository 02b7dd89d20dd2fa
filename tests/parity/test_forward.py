"""The network is written several times; all of them compute the same numbers.

Predictions skip contributions, training works on batches of models, the tangent writes
the layers out for its derivatives, and exported graphs and the page of a report carry
arithmetic of their own. Each is compared with `FittedModel.eta`, for every basis,
family and layout, within the training range and far outside it.

Shapes: M members, n rows, p features, q terms, r inputs.
"""

import json
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import onnxruntime
import pytest
import torch

from sknimo.families import FAMILIES
from sknimo.io import build_onnx, model_record
from sknimo.network import Modulator, unpack
from sknimo.report._whatif import _plain, _shorten
from sknimo.solver import Options, Problem
from sknimo.solver._forward import Bent, Forward
from sknimo.solver._tangent import Tangent

# All compute in float64, in another order. Some take a feature's own columns out of its
# first layer by subtraction, which costs digits in proportion to its distance.
RTOL = {1.0: 1e-12, 10.0: 1e-12, 1e3: 1e-11, 1e6: 1e-8}
# The same mean from the same linear predictor.
MEAN_RTOL = 1e-13

KINDS = (
    "linear",
    "residue",
    "constant",
    "polynomial",
    "spline",
    "levels",
    "rank_gauss",
    "clipped",
    "or_missing",
    "levels_or_missing",
    "pooled_levels",
    "few_missing",
    "ramps",
    "drawn",
)
# Kinds of the features and options of the model. Single kinds have two lines beside
# them that bend them; wide tables take other products.
CASES = {
    **{kind: ((kind, "linear", "linear"), {}) for kind in KINDS},
    "all": (KINDS, {}),
    "some members and inputs": (KINDS, {"sparse": True}),
    "without mask": (KINDS, {"mask": False}),
    "trained in single precision": (KINDS, {"single": True}),
    "outputs of their own": (KINDS, {"own_out": True, "sparse": True}),
    "wide": (KINDS * 6, {}),
    "wide, outputs of their own": (KINDS * 6, {"own_out": True}),
    "wide, some members and inputs": (KINDS * 6, {"sparse": True}),
    "wide, without mask": (KINDS * 6, {"mask": False}),
}


@dataclass(frozen=True)
class Case:
    """A model and rows within and far outside the range it knows.

    Attributes
    ----------
    model : FittedModel
    table : ndarray of shape (n, p)
    rtol : ndarray of shape (n,)
    """

    model: object
    table: np.ndarray
    rtol: np.ndarray

    @property
    def terms(self):
        return torch.as_tensor(self.model.features.terms(self.table))

    @property
    def inputs(self):
        return torch.as_tensor(self.model.features.inputs(self.table))

    @property
    def term_feature(self):
        return torch.as_tensor(self.model.features.term_feature)

    def eta_of(self, designs):
        """Average over members of design times coefficients, (M, n, q) to (n,)."""
        coef, intercept = self.model.coef, self.model.intercept.unsqueeze(-1)
        each = (designs @ coef.unsqueeze(-1)).squeeze(-1) + intercept
        return each.mean(0).numpy()

    def check(self, eta):
        """Compare linear predictors with those of the model."""
        expected = self.model.eta(self.table)
        assert np.isfinite(expected).all()
        bound = self.rtol * np.maximum(np.abs(expected), 1)
        assert (np.abs(eta - expected) <= bound).all()


def thin(model, seed):
    """Members with features, inputs and bends of their own."""
    rng = np.random.default_rng(seed)
    params = model.params.clone()
    first = unpack(model.spec, params).first
    keep = rng.random((len(first), 1, first.shape[-1])) > 0.4
    first.mul_(torch.as_tensor(keep))
    coef = model.coef * torch.as_tensor(rng.random(model.coef.shape) > 0.4)
    modulated = torch.as_tensor(rng.random(model.modulated.shape) > 0.3)
    return replace(model, params=params, coef=coef, modulated=modulated)


def edges_of(basis):
    """Where a curve of straight pieces has its corners."""
    return getattr(getattr(basis, "basis", basis), "edges", ())


def draw_rows(features, distance, seed=1):
    """Rows with all features or a single one so many sd from the reference, (n, p)."""
    rng = np.random.default_rng(seed)
    p = features.n_features
    signs = rng.choice([-1.0, 1.0], size=(10 + p, p))
    signs[10:] *= np.eye(p)
    step = distance * signs + rng.normal(size=signs.shape)
    table = features.reference + step * np.where(features.scale > 0, features.scale, 1)
    for j in range(p):
        levels = features.levels(j)
        if levels is not None:
            table[:, j] = rng.integers(0, len(levels), len(table))
        corners = edges_of(features.bases[j])
        if len(corners):
            some = rng.random(len(table)) < 0.3
            table[some, j] = rng.choice(corners, some.sum())
        if features.admits_missing[j]:
            table[rng.random(len(table)) < 0.2, j] = np.nan
    return table


@pytest.fixture(scope="module", params=CASES)
def case(request, make_model):
    kinds, options = CASES[request.param]
    options = dict(options)
    sparse, single = options.pop("sparse", False), options.pop("single", False)
    model = make_model(kinds, n_members=3, **options)
    if single:  # the page gets fewer digits
        model = replace(model, params=model.params.float().double())
    if sparse:
        model = thin(model, seed=2)
    tables = [draw_rows(model.features, distance) for distance in RTOL]
    rtol = np.repeat(list(RTOL.values()), [len(table) for table in tables])
    return Case(model, np.concatenate(tables), rtol)


@pytest.fixture(scope="module")
def evaluate_in_page(browser):
    """Linear predictors and means by the script of the report, in a browser."""
    page = browser.new_page()
    script = files("sknimo.report").joinpath("assets", "model.js").read_text("utf-8")
    page.add_script_tag(content=script)

    def evaluate(model, table):
        rows = [[None if np.isnan(x) else x for x in row] for row in table.tolist()]
        record = _shorten(model_record(model))
        found = page.evaluate(
            """([record, link, rows]) => {
              const model = compileModel(JSON.parse(record), [], link);
              return rows.map((row) => {
                const eta = model.eta(row.map((value) => value ?? NaN));
                return [eta, model.mean(eta)];
              });
            }""",
            [json.dumps(_plain(record)), model.family.link, rows],
        )
        return np.array(found, dtype=float).T

    yield evaluate
    page.close()


def run_onnx(model, table):
    """Linear predictors and means by ONNX Runtime, levels given by their names."""
    features = model.features
    session = onnxruntime.InferenceSession(build_onnx(model).SerializeToString())
    feed = {}
    for j, name in enumerate(features.names):
        column, levels = table[:, [j]], features.levels(j)
        if levels is not None:
            named = np.array([*levels, ""], dtype=object)
            codes = np.where(np.isnan(column), len(levels), column).astype(int)
            feed[name] = named[codes]
        else:
            feed[name] = column
    if all(column.dtype == float for column in feed.values()):
        feed = {"X": np.column_stack(list(feed.values()))}
    return session.run(["eta", "prediction"], feed)


def check_mean(model, eta, mean, atol=0.0):
    expected = model.family.mean(torch.as_tensor(eta)).numpy()
    np.testing.assert_allclose(mean, expected, rtol=MEAN_RTOL, atol=atol)


def test_rows_reach_far_outside_and_are_bent(case):
    """What is compared below is not a straight line near the reference."""
    model = case.model
    straight = replace(model, modulated=torch.zeros_like(model.modulated))
    assert np.abs(model.eta(case.table) - straight.eta(case.table)).max() > 0.1
    assert case.terms.abs().max() > 500


def test_contributions_sum_to_the_prediction(case):
    total = case.model.base_value + case.model.contributions(case.table).sum(axis=1)
    case.check(total)


@pytest.mark.parametrize("exact", [True, False])
def test_the_modulator_predicts_the_same(case, exact):
    model, spec = case.model, case.model.spec
    modulator = Modulator.build(spec, torch.device("cpu"), torch.float64)
    everything = torch.arange(spec.n_features).expand(model.n_members, -1)
    bend = modulator(model.params, case.inputs, everything, exact=exact)
    bend = bend * model.modulated.unsqueeze(1)
    designs = case.terms * (1 + bend[..., case.term_feature])
    case.check(case.eta_of(designs))


def test_the_design_of_training_predicts_the_same(case, make_members):
    model, y = case.model, torch.zeros(len(case.table), dtype=torch.float64)
    problem = Problem.in_memory(
        terms=case.terms,
        term_feature=case.term_feature,
        inputs=case.inputs,
        y=y,
        offset=y,
        family=model.family,
        spec=model.spec,
    )
    forward = Forward(problem, make_members(problem, model.n_members), Options())
    designs = forward.bend(
        Bent.by(model.params, model.modulated), case.terms, case.inputs, None
    )
    case.check(case.eta_of(designs))


def test_the_tangent_predicts_the_same(case):
    model, terms, owner = case.model, case.terms, case.term_feature
    designs = terms.repeat(model.n_members, 1, 1)
    for member, params in enumerate(model.params):
        active = model.modulated[member].nonzero().squeeze(-1)
        bent = torch.isin(owner, active)
        tangent = Tangent(model.spec, case.inputs, terms[:, bent], owner[bent], active)
        designs[member][:, bent] = tangent.design(params)
        # Beside its derivatives it has the design once more.
        jacobian = tangent.jacobian(params, model.coef[member, bent])
        assert torch.equal(jacobian[:, : bent.sum()], designs[member][:, bent])
    case.check(case.eta_of(designs))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_onnx_graph_predicts_the_same(case, family):
    model = replace(case.model, family=FAMILIES[family])
    eta, mean = run_onnx(model, case.table)
    case.check(eta)
    # Its sigmoid is exact to the last digit of one, not of a small probability.
    check_mean(model, eta, mean, atol=1e-15)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_page_predicts_the_same(case, family, evaluate_in_page):
    model = replace(case.model, family=FAMILIES[family])
    eta, mean = evaluate_in_page(model, case.table)
    case.check(eta)
    check_mean(model, eta, mean)
