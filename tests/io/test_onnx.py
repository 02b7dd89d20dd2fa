"""ONNX export: ONNX Runtime computes what the library computes.

The oracle is `FittedModel` (and, for estimators, `predict` and `explain`); the graph is
run by ONNX Runtime, which shares no code with either.
"""

import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch

from sknimo import NIMOClassifier, NIMORegressor, NIMORegressorCV
from sknimo.explain import fit_gauge, local_coefficients
from sknimo.families import get_family
from sknimo.features import FeatureMap, FeatureOptions, fit_features
from sknimo.io import build_onnx
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack

# Both sides compute in float64; sums of a few hundred terms in another order. The
# promise to users is 1e-5.
RTOL = 1e-11
# Single precision in and out.
RTOL_32 = 1e-5
# Central differences of step 1e-4 standard deviations, relative to the largest slope.
FINITE_DIFFERENCE = 1e-7

N_ROWS = 1000
NAMES = ["far", "age", "gap", "town", "grade", "flag"]
TOWNS = ("Aba", "Bern", "", "Zoé, Q")
GRADES = (1, 2, 5)
OPTIONS = {
    "lines": FeatureOptions(),
    "parabolas": FeatureOptions(basis="poly2", clip_inputs=True),
    "splines": FeatureOptions(basis="spline"),
    "mixed": FeatureOptions(
        basis={"far": "spline", "gap": "poly2"},
        input_scaling="rank_gauss",
        clip_inputs=True,
    ),
    "ramps": FeatureOptions(basis="ramps", input_scaling="ramps", n_edges=12),
    "clipped": FeatureOptions(basis={"far": "spline"}, clip_inputs="all"),
    "drawn": FeatureOptions(
        basis={"age": "ramps", "gap": "spline"}, drawn=(1, 2), clip_inputs=True
    ),
    "ranks": FeatureOptions(basis={"age": "spline"}, input_scaling="rank_gauss"),
}


def make_table(seed=0, n_rows=N_ROWS):
    """Codes and numbers: far from zero, skewed, missing, categories of both types."""
    rng = np.random.default_rng(seed)
    table = np.column_stack(
        [
            1e8 + 3 * rng.normal(size=n_rows),
            rng.normal(40, 12, n_rows),
            rng.exponential(size=n_rows),
            rng.integers(0, len(TOWNS), n_rows),
            rng.integers(0, len(GRADES), n_rows),
            rng.integers(0, 2, n_rows),
        ]
    )
    table[rng.random(n_rows) < 0.1, 2] = np.nan
    table[rng.random(n_rows) < 0.1, 4] = np.nan
    return table


def make_features(options, with_text=True):
    table = make_table()
    if not with_text:
        table = np.delete(table, 3, axis=1)
    names = [name for name in NAMES if with_text or name != "town"]
    levels = [{"town": TOWNS, "grade": GRADES}.get(name) for name in names]
    return fit_features(table, names, np.ones(N_ROWS), levels, options, quiet=True)


def make_model(features, family="gaussian", n_members=3, hidden=(5, 4), mask=True):
    """Random members that differ in what they use; some features do nothing."""
    p, owner = features.n_features, torch.as_tensor(features.term_feature)
    spec = make_spec(features.input_feature.tolist(), p, hidden, mask=mask)
    generator = torch.Generator().manual_seed(7)
    params = init_params(spec, range(n_members))
    weights = unpack(spec, params)
    weights.out.normal_(generator=generator)
    inputs = torch.as_tensor(features.input_feature)
    weights.first[:, :, inputs == p - 1] = 0
    coef = 0.3 * torch.randn(
        n_members, len(owner), dtype=torch.float64, generator=generator
    )
    coef[:, owner == 1] = 0  # modifies, does not act
    coef[0, owner == 0] = 0
    modulated = torch.ones(n_members, p, dtype=torch.bool)
    modulated[0, 2:3] = False
    intercept = torch.linspace(-0.2, 0.3, n_members, dtype=torch.float64)
    return FittedModel(
        features, get_family(family), spec, coef, intercept, params, modulated
    )


def as_inputs(features, table, dtype=np.float64):
    """What a user of the graph feeds: raw values, an empty text for missing ones."""
    columns = {}
    for j, name in enumerate(features.names):
        levels, codes = features.levels(j), table[:, j]
        if levels is None:
            values = codes.astype(dtype)
        elif isinstance(levels[0], str):
            values = np.array([levels[int(c)] for c in codes], dtype=object)
        else:
            known = np.array([*levels, np.nan], dtype=dtype)
            values = known[np.where(np.isnan(codes), len(levels), codes).astype(int)]
        columns[name] = values.reshape(-1, 1)
    if any(column.dtype == object for column in columns.values()):
        return columns
    return {"X": np.column_stack(list(columns.values()))}


def run(proto_or_path, inputs):
    """Outputs of the graph by name."""
    if isinstance(proto_or_path, onnx.ModelProto):
        proto_or_path = proto_or_path.SerializeToString()
    session = onnxruntime.InferenceSession(proto_or_path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_close(found, wanted, rtol=RTOL):
    scale = max(np.abs(wanted).max(), 1e-300)
    np.testing.assert_allclose(found / scale, wanted / scale, rtol=0, atol=rtol)


@pytest.fixture(params=[True, False], ids=["text", "numbers"])
def with_text(request):
    return request.param


@pytest.mark.parametrize(
    ("kind", "family"),
    [(kind, "gaussian") for kind in OPTIONS]
    + [("mixed", family) for family in ("binomial", "poisson", "gamma")],
)
def test_the_graph_predicts_and_explains_as_the_model_does(kind, family, with_text):
    features = make_features(OPTIONS[kind], with_text)
    model = make_model(features, family)
    table = make_table(seed=1)
    table[:5, 1] = [-1e3, 1e3, 40, 0, 500]  # far outside the training range
    if not with_text:
        table = np.delete(table, 3, axis=1)
    swap = fit_gauge(model, table)
    out = run(build_onnx(model, swap=swap), as_inputs(features, table))
    assert_close(out["eta"], model.eta(table))
    assert_close(out["prediction"], model.mean(table))
    phi, local = features.terms(table), local_coefficients(model, table, swap)
    assert_close(out["local_coefficients"], local)
    native = model.term_contributions(table)
    gauged = features.per_feature(native - phi * (phi @ swap.T))
    assert_close(out["contributions"], gauged)
    assert_close(out["contributions"].sum(axis=1) + model.base_value, out["eta"])


@pytest.mark.parametrize("mask", [True, False])
def test_without_a_gauge_contributions_are_as_the_network_holds_them(mask):
    model = make_model(make_features(OPTIONS["lines"]), mask=mask)
    table = make_table(seed=1)
    out = run(build_onnx(model), as_inputs(model.features, table))
    assert_close(out["contributions"], model.contributions(table))


@pytest.mark.parametrize("n_members", [1, 2])
def test_a_model_that_nothing_bends_is_exported_too(n_members):
    model = make_model(make_features(OPTIONS["splines"]), n_members=n_members)
    linear = replace(model, modulated=torch.zeros_like(model.modulated))
    table = make_table(seed=1)
    out = run(build_onnx(linear), as_inputs(model.features, table))
    assert_close(out["eta"], linear.eta(table))
    assert out["local_coefficients"].shape == (N_ROWS, len(model.features.coef_names))
    assert np.ptp(out["local_coefficients"], axis=0).max() < 1e-14


def test_a_network_that_reads_one_column_loses_no_digits():
    # ONNX Runtime would fuse its scaling into the first layer in single precision.
    model = make_model(make_features(OPTIONS["lines"], with_text=False))
    weights = unpack(model.spec, model.params)
    weights.first[:, :, torch.tensor(model.spec.input_feature) != 1] = 0
    table = np.delete(make_table(seed=1), 3, axis=1)
    out = run(build_onnx(model), as_inputs(model.features, table))
    assert_close(out["eta"], model.eta(table))


def test_a_model_without_coefficients_predicts_its_base_value():
    model = make_model(make_features(OPTIONS["lines"]), "poisson")
    empty = replace(model, coef=torch.zeros_like(model.coef))
    out = run(build_onnx(empty), as_inputs(model.features, make_table(seed=1)))
    assert out["eta"] == pytest.approx(model.base_value)
    assert out["prediction"] == pytest.approx(np.exp(model.base_value))
    assert not out["contributions"].any() and not out["local_coefficients"].any()
    assert out["contributions"].shape == (N_ROWS, model.features.n_features)


def test_single_precision_in_and_out_keeps_five_digits(with_text):
    features = make_features(OPTIONS["mixed"], with_text)
    if with_text:  # 1e8 has no digits left below one in single precision
        features = FeatureMap(features.names[1:], features.bases[1:])
    table = make_table(seed=1)[:, 1:] if with_text else make_table(seed=1)
    if not with_text:
        table = np.delete(table, 3, axis=1)
        table[:, 0] = np.float32(table[:, 0])
    model = make_model(features)
    rounded = np.float32(table).astype(float)
    inputs = as_inputs(features, rounded, np.float32)
    out = run(build_onnx(model, dtype="float32"), inputs)
    assert out["eta"].dtype == np.float32
    assert_close(out["eta"], model.eta(rounded), RTOL_32)
    assert_close(out["contributions"], model.contributions(rounded), RTOL_32)


def test_the_gradient_of_eta_at_the_reference_is_the_coefficient():
    features = make_features(OPTIONS["ranks"], with_text=False)
    model = make_model(features)
    proto = build_onnx(model)
    coef = features.coefficients(model.term_coef)
    for name, value in zip(features.coef_names, coef, strict=True):
        j = features.names.index(name.partition("[")[0])
        rows = np.tile(features.reference, (2, 1))
        if features.levels(j) is None and "[" not in name:
            step = 1e-4 * features.scale[j]
            rows[:, j] += [-step, step]
            distance = rows[1, j] - rows[0, j]
        else:  # a contrast: from the baseline to the level, or to a missing value
            label, distance = name.partition("[")[2][:-1], 1.0
            levels = [str(level) for level in features.levels(j) or ()]
            rows[1, j] = np.nan if label == "missing" else levels.index(label)
        eta = run(proto, as_inputs(features, rows))["eta"]
        slope = (eta[1] - eta[0]) / distance
        assert slope == pytest.approx(value, abs=FINITE_DIFFERENCE * np.abs(coef).max())


def test_at_the_reference_local_coefficients_are_the_coefficients():
    model = make_model(make_features(OPTIONS["mixed"]))
    features = model.features
    out = run(build_onnx(model), as_inputs(features, features.reference[None]))
    assert_close(out["local_coefficients"][0], features.coefficients(model.term_coef))
    assert np.abs(out["contributions"]).max() < 1e-14
    assert out["eta"][0] == pytest.approx(model.base_value)


def test_no_tensor_of_rows_by_features_by_features_is_built():
    p = 40
    rng = np.random.default_rng(0)
    table = rng.normal(size=(50, p))
    names = [f"x{j}" for j in range(p)]
    features = fit_features(table, names, np.ones(50), None, None, quiet=True)
    model = make_model(features, hidden=(3, 2))
    inferred = onnx.shape_inference.infer_shapes(build_onnx(model), strict_mode=True)
    sizes = []
    for value in inferred.graph.value_info:
        shape = value.type.tensor_type.shape.dim
        if shape and shape[0].dim_param == "n":
            sizes.append(np.prod([d.dim_value for d in shape[1:]]))
    assert max(sizes) <= p * 3
    # Nor do the weights: the masked first layer would hold p * p * 3 of them.
    largest = max(np.prod(c.dims) for c in inferred.graph.initializer)
    assert largest <= p * 3


def test_what_python_refuses_becomes_nan_in_its_row_alone():
    features = make_features(OPTIONS["lines"])
    model = make_model(features)
    table = make_table(seed=1)[:6]
    table[:, 1:5] = features.reference[1:5]
    inputs = as_inputs(features, table)
    inputs["town"][1] = "Nowhere"
    inputs["grade"][2] = 3
    inputs["far"][3] = np.nan
    inputs["gap"][4] = np.nan  # was missing in training too
    eta = run(build_onnx(model), inputs)["eta"]
    assert np.isnan(eta).tolist() == [False, True, True, True, False, False]


def test_unknown_levels_are_the_baseline_where_the_estimator_says_so():
    features = make_features(OPTIONS["lines"])
    model = make_model(features)
    rows = np.tile(features.reference, (2, 1))
    inputs = as_inputs(features, rows)
    inputs["town"][0], inputs["grade"][1] = "Nowhere", 99
    out = run(build_onnx(model, unknown_is_baseline=True), inputs)
    assert out["eta"] == pytest.approx(model.base_value)


def test_gaps_are_the_reference_where_the_estimator_says_so():
    features = make_features(OPTIONS["lines"])
    model = make_model(features)
    rows = np.tile(features.reference, (3, 1))
    inputs = as_inputs(features, rows)
    inputs["age"][0], inputs["flag"][1] = np.nan, np.nan
    inputs["gap"][2] = rows[2, 2] = np.nan  # was missing in training too
    graph = build_onnx(model, unknown_is_baseline=True, gaps_are_reference=True)
    assert_close(run(graph, inputs)["eta"], model.eta(rows))

    table = np.array([[0.0], [1.0], [0.0], [1.0], [0.0]])
    features = fit_features(table, ["c"], np.ones(5), [("a", "b")], None, quiet=True)
    graph = build_onnx(make_model(features, n_members=1), gaps_are_reference=True)
    out = run(graph, {"c": np.array([["a"], [""]], dtype=object)})
    assert out["eta"][0] == out["eta"][1]


def test_an_empty_text_is_a_missing_value_unless_it_is_a_level():
    table = np.array([[0.0], [1.0], [0.0], [np.nan], [1.0], [0.0]])
    features = fit_features(table, ["c"], np.ones(6), [("a", "b")], None, quiet=True)
    model = make_model(features, n_members=1)
    inputs = {"c": np.array([["b"], [""], ["a"]], dtype=object)}
    wanted = model.eta(np.array([[1.0], [np.nan], [0.0]]))
    assert_close(run(build_onnx(model), inputs)["eta"], wanted)


def test_columns_named_like_outputs_get_other_names():
    table = make_table()[:, [0, 1, 3]]
    names = ["eta", "/slash", "label"]
    features = fit_features(
        table, names, np.ones(N_ROWS), [None, None, TOWNS], None, quiet=True
    )
    proto = build_onnx(make_model(features), classes=np.array(["n", "y"]))
    inputs = [value.name for value in proto.graph.input]
    assert inputs == ["eta_input", "slash_input", "label_input"]
    facts = {entry.key: json.loads(entry.value) for entry in proto.metadata_props}
    assert facts["inputs"] == inputs and facts["feature_names"] == names


def test_levels_that_look_alike_as_text_are_refused():
    features = fit_features(
        np.array([[0.0], [1.0], [0.0]]), ["c"], np.ones(3), [(1, "1")], quiet=True
    )
    with pytest.raises(ValueError, match="cannot be told apart"):
        build_onnx(make_model(features))


def test_metadata_tells_what_the_outputs_mean():
    model = make_model(make_features(OPTIONS["lines"]), "binomial")
    proto = build_onnx(model, classes=np.array(["no", "yes"]))
    facts = {entry.key: json.loads(entry.value) for entry in proto.metadata_props}
    assert facts["base_value"] == model.base_value
    assert facts["coefficient_names"] == list(model.features.coef_names)
    assert facts["classes"] == ["no", "yes"]
    assert facts["family"] == "binomial" and facts["link"] == "logit"
    town = NAMES.index("town")
    assert facts["reference"][town] == TOWNS[int(model.features.reference[town])]
    assert facts["contributions"] == "native"
    assert proto.producer_name == "sknimo"


def test_an_unknown_dtype_is_refused():
    model = make_model(make_features(OPTIONS["lines"]))
    with pytest.raises(ValueError, match="dtype must be one of 'float64', 'float32'"):
        build_onnx(model, dtype="float16")


def test_without_onnx_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = make_model(make_features(OPTIONS["lines"]))
    with pytest.raises(ImportError, match=r"pip install 'sknimo\[onnx\]'"):
        build_onnx(model)


def make_frame(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n_rows),
            "z": rng.normal(5, 2, n_rows),
            "town": rng.choice(["Aba", "Bern", "Cork"], n_rows),
            "w": rng.uniform(size=n_rows),
        }
    )


def make_target(X, draw_response, family):
    eta = 0.6 * X["x"] * (1 + np.tanh(X["z"] - 5)) + 0.5 * (X["town"] == "Bern")
    return draw_response(family, eta - 0.2, 1)


def as_columns(X):
    return {
        name: X[[name]].to_numpy(dtype=object if name == "town" else float)
        for name in X
    }


@pytest.mark.parametrize("family", ["gaussian", "poisson", "gamma"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_regressor_is_the_same_in_onnxruntime(family, draw_response, tmp_path):
    X, new = make_frame(200), make_frame(N_ROWS, seed=1)
    est = NIMORegressor(family, alpha=0.01, max_iter=60, random_state=0)
    est.fit(X, make_target(X, draw_response, family))
    assert est.model_.modulated.any()
    est.to_onnx(tmp_path / "m.onnx")
    out = run(tmp_path / "m.onnx", as_columns(new))
    assert_close(out["prediction"], est.predict(new))
    explanation = est.explain(new)
    assert_close(out["eta"], explanation.eta)
    assert_close(out["contributions"], explanation.values)


@pytest.mark.slow
def test_averaged_members_of_a_search_are_the_same_in_onnxruntime(
    draw_response, tmp_path
):
    X, new = make_frame(150)[["x", "z"]], make_frame(N_ROWS, seed=1)[["x", "z"]]
    y = make_target(make_frame(150), draw_response, "gaussian")
    est = NIMORegressorCV(n_starts=3, max_iter=30, hidden=(4, 4), random_state=0)
    est.fit(X, y)
    assert est.model_.n_members > 1
    est.to_onnx(tmp_path / "m.onnx")
    out = run(tmp_path / "m.onnx", {"X": new.to_numpy()})
    assert_close(out["prediction"], est.predict(new))
    assert_close(out["contributions"], est.explain(new).values)
    assert_close(out["local_coefficients"], est.explain(new).local_coef)


@pytest.mark.parametrize(
    "labels", [("no", "yes"), (0, 1), (False, True), (1.0, 2.0)], ids=str
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_classifier_is_the_same_in_onnxruntime(labels, draw_response, tmp_path):
    X, new = make_frame(200), make_frame(N_ROWS, seed=1)
    hit = make_target(X, draw_response, "binomial").astype(int)
    est = NIMOClassifier(alpha=0.01, max_iter=30, random_state=0)
    est.fit(X, np.array(labels)[hit])
    est.to_onnx(tmp_path / "m.onnx")
    out = run(tmp_path / "m.onnx", as_columns(new))
    assert_close(out["probabilities"], est.predict_proba(new))
    assert_close(out["prediction"], est.predict_proba(new)[:, 1])
    assert_close(out["eta"], est.decision_function(new))
    assert out["label"].tolist() == est.predict(new).tolist()


def test_an_estimator_that_is_not_fitted_cannot_be_exported(tmp_path):
    with pytest.raises(Exception, match="not fitted"):
        NIMORegressor().to_onnx(tmp_path / "m.onnx")
