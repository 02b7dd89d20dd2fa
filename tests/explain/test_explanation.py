"""The record: selection, frames, shap, ratios, offsets and how it prints."""

import pickle
from copy import copy

import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import shap
from sklearn.exceptions import NotFittedError

from sknimo.explain import explain

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture
def gaussian(fitted_models):
    return fitted_models["gaussian"]


def test_rows_are_selected_by_position_slice_and_mask(gaussian):
    found = gaussian.est.explain(gaussian.X)
    assert len(found[3]) == 1
    assert (found[3].values[0] == found.values[3]).all()
    assert (found[-1].data[0] == found.data[-1]).all()
    assert (found[2:5].local_effect == found.local_effect[2:5]).all()
    old = gaussian.X["age"].to_numpy() > 60
    assert len(found[old]) == old.sum()
    assert (found[[5, 1]].local_coef == found.local_coef[[5, 1]]).all()
    assert found[old].names == found.names


def test_selection_by_two_axes_is_refused(gaussian):
    found = gaussian.est.explain(gaussian.X)
    with pytest.raises(IndexError):
        found[3, 2]


def test_frames_are_pandas_with_the_rows_labels_as_the_input(gaussian):
    X = gaussian.X.set_axis([f"patient {i}" for i in range(len(gaussian.X))])
    found = gaussian.est.explain(X)
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(found.names)
    assert (frame.to_numpy() == found.values).all()
    assert list(frame.index[:2]) == ["patient 0", "patient 1"]
    assert list(found[[7, 2]].to_frame().index) == ["patient 7", "patient 2"]
    effect = found.to_frame("local_effect")
    assert (effect.to_numpy() == found.local_effect).all()


def test_frames_are_polars_as_the_input(gaussian):
    found = gaussian.est.explain(pl.from_pandas(gaussian.X))
    frame = found[:4].to_frame("local_coef")
    assert isinstance(frame, pl.DataFrame)
    assert (frame.to_numpy() == found.local_coef[:4]).all()


def test_arrays_get_a_frame_too(fitted_models, gaussian):
    found = explain(gaussian.model, gaussian.table[:3])
    assert isinstance(found.to_frame(), pd.DataFrame)
    assert list(found.to_frame().columns) == list(gaussian.X.columns)


def test_without_any_frame_library_the_error_says_what_to_do(gaussian, monkeypatch):
    monkeypatch.setattr("sknimo.explain._frames.find_spec", lambda name: None)
    found = explain(gaussian.model, gaussian.table[:3])
    with pytest.raises(ImportError, match="pandas, polars or pyarrow"):
        found.to_frame()


def test_unknown_options_list_the_known_ones(gaussian):
    est, X = gaussian.est, gaussian.X
    with pytest.raises(ValueError, match="'native', 'integrated_gradients', 'shapley'"):
        est.explain(X, method="lime")
    with pytest.raises(ValueError, match="'values', 'local_coef', 'local_effect'"):
        est.explain(X).to_frame("effect")


def test_shap_plots_accept_the_explanation(fitted):
    found = fitted.est.explain(fitted.X).to_shap()
    assert isinstance(found, shap.Explanation)
    assert found.shape == fitted.X.shape
    assert found.feature_names == list(fitted.X.columns)
    with matplotlib.rc_context():
        shap.plots.waterfall(found[0], show=False)
        labels = [text.get_text() for text in plt.gca().get_yticklabels()]
        assert any("dose" in label for label in labels)
        plt.close("all")
        shap.plots.beeswarm(found, show=False)
        plt.close("all")


def test_shap_values_start_at_base_value_plus_offset(fitted_models):
    fitted = fitted_models["poisson"]
    offset = np.linspace(0, 1, len(fitted.X))
    found = fitted.est.explain(fitted.X, offset=offset)
    total = found.to_shap().base_values + found.to_shap().values.sum(1)
    assert np.abs(total - fitted.model.eta(fitted.table, offset)).max() <= 1e-10
    expected = fitted.est.predict(fitted.X, offset=offset)
    assert found.mean == pytest.approx(expected, rel=1e-10)


def test_an_offset_of_the_wrong_length_is_refused(gaussian):
    with pytest.raises(ValueError, match="offset must hold one finite number"):
        gaussian.est.explain(gaussian.X, offset=[1.0, 2.0])


def test_ratios_multiply_to_the_mean_of_log_links(fitted_models):
    for family in ("poisson", "gamma"):
        found = fitted_models[family].est.explain(fitted_models[family].X)
        product = np.exp(found.base_value) * found.ratios.prod(axis=1)
        assert product == pytest.approx(found.mean, rel=1e-10)


def test_ratios_multiply_to_the_odds_of_the_logit_link(fitted_models):
    fitted = fitted_models["binomial"]
    found = fitted.est.explain(fitted.X)
    odds = np.exp(found.base_value) * found.ratios.prod(axis=1)
    probability = fitted.est.predict_proba(fitted.X)[:, 1]
    assert odds / (1 + odds) == pytest.approx(probability, rel=1e-10)
    assert found.ratio_name == "odds ratio"
    assert (found.local_ratios == np.exp(found.local_effect)).all()


def test_the_identity_link_has_no_ratios(gaussian):
    found = gaussian.est.explain(gaussian.X)
    assert found.ratio_name is None
    with pytest.raises(ValueError, match="identity link has no ratios"):
        _ = found.ratios


def test_response_effect_is_the_slope_of_the_mean(fitted):
    model, table = fitted.model, fitted.table[:10]
    found = fitted.est.explain(fitted.X[:10]).response_effect
    step = 1e-5 * model.features.scale[0]
    high, low = table.copy(), table.copy()
    high[:, 0] += step
    low[:, 0] -= step
    slope = (model.mean(high) - model.mean(low)) / (2 * step)
    assert found[:, 0] == pytest.approx(slope, abs=1e-8)


def test_the_repr_is_short_and_says_what_it_is(fitted):
    text = repr(fitted.est.explain(fitted.X))
    lines = text.splitlines()
    assert lines[0].startswith("Explanation of 160 rows, 5 features")
    assert "minimum-energy gauge" in text
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 8
    assert "1 row," in repr(fitted.est.explain(fitted.X)[0])


def test_strongest_modifier_is_the_one_that_was_built_in(gaussian):
    found = gaussian.est.explain(gaussian.X)
    assert found.names[found.strongest_modifier("dose")] == "age"


def test_an_unfitted_estimator_explains_nothing(gaussian):
    with pytest.raises((AttributeError, NotFittedError), match="not fitted yet"):
        type(gaussian.est)().explain(gaussian.X)
    with pytest.raises((AttributeError, NotFittedError), match="not fitted yet"):
        type(gaussian.est)().summary()


def test_without_training_facts_the_rows_of_the_call_set_the_gauge(fitted):
    est = copy(fitted.est)
    est._facts = None
    alone, kept = est.explain(fitted.X), fitted.est.explain(fitted.X)
    # The facts were taken from the same rows.
    assert np.abs(alone.values - kept.values).max() <= 1e-12
    assert alone.directed == pytest.approx(kept.directed, abs=1e-12)
    assert est.effects(fitted.X).bend == pytest.approx(
        fitted.est.effects(fitted.X).bend
    )
    curve = est.correction_curve("dose", "age", X=fitted.X).local_coef
    same = fitted.est.correction_curve("dose", "age", X=fitted.X).local_coef
    assert curve == pytest.approx(same, abs=1e-12)
    assert est.summary().rows[0].average_effect is None


def test_records_travel_by_pickle(fitted):
    found = fitted.est.explain(fitted.X)
    again = pickle.loads(pickle.dumps(found))
    assert (again.values == found.values).all()
    assert again.family is found.family
    assert pickle.loads(pickle.dumps(fitted.est._facts)).deviance > 0


def test_reordered_columns_are_refused(gaussian):
    with pytest.raises(ValueError, match="feature names"):
        gaussian.est.explain(gaussian.X[gaussian.X.columns[::-1]])
