"""Figures hold the numbers of their records, and their labels can be read."""

import warnings
from dataclasses import dataclass, replace
from types import SimpleNamespace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from sknimo import (  # noqa: E402
    NIMOClassifier,
    NIMORegressor,
    NIMORegressorCV,
    plots,
)
from sknimo.explain import (  # noqa: E402
    correction_curve,
    effects,
    explain,
    first_layer,
    fit_gauge,
    interactions,
    pair_surface,
)


@dataclass(frozen=True, eq=False)
class Case:
    """A brief fit with its records."""

    est: NIMORegressor
    X: np.ndarray
    explanation: object
    effects: object
    interactions: object

    @property
    def p(self):
        return self.X.shape[1]


def make_case(p):
    rng = np.random.default_rng(p)
    X = rng.normal(size=(120, p))
    weight = np.linspace(2, 0.4, p)
    y = (X * weight) @ np.ones(p) + X[:, 0] * np.tanh(X[:, 1])
    est = NIMORegressor(
        alpha=1e-3, network_alpha=0.1, hidden=(6, 6), max_iter=25, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    model = est.model_
    swap = fit_gauge(model, X)
    found = interactions(model, X, swap=swap, max_rows=30)
    explanation = explain(model, X, swap=swap, directed=found.directed)
    return Case(est, X, explanation, effects(model, X, swap=swap, max_rows=30), found)


@pytest.fixture(
    scope="module", params=[5, pytest.param(13, marks=pytest.mark.slow), 50]
)
def case(request):
    return make_case(request.param)


@pytest.fixture(scope="module")
def small():
    return make_case(5)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def row_labels(ax):
    return [text.get_text() for text in ax.get_yticklabels()]


def overlapping(ax, labels):
    """Pairs of neighbouring tick labels whose boxes share ink."""
    ax.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    pairs = zip(boxes[:-1], boxes[1:], strict=True)
    return [pair for pair in pairs if pair[0].overlaps(pair[1])]


def points(ax):
    """Data of all scatter collections, stacked, (number of points, 2)."""
    offsets = [found.get_offsets() for found in ax.collections]
    return np.concatenate([np.asarray(found) for found in offsets if len(found)])


def draw_all(case):
    """Every figure of a case, by name."""
    est, model = case.est, case.est.model_
    path = SimpleNamespace(
        alphas=np.geomspace(1, 1e-2, 6),
        coef=np.outer(np.arange(6), np.linspace(-1, 1, case.p)),
        index=3,
    )
    return {
        "coefficients": plots.plot_coefficients(case.effects),
        "path": plots.plot_path(path),
        "first_layer": plots.plot_first_layer(first_layer(model)),
        "nonlinearity": plots.plot_nonlinearity(case.effects),
        "beeswarm": plots.plot_beeswarm(case.explanation),
        "waterfall": plots.plot_waterfall(case.explanation),
        "effect": plots.plot_effect(case.explanation),
        "correction": plots.plot_correction(correction_curve(model, 0, 1)),
        "pair_surface": plots.plot_pair_surface(pair_surface(model, 0, 1)),
        "interactions": plots.plot_interactions(case.interactions),
        "graph": plots.plot_modification_graph(case.interactions),
        "agreement": plots.plot_agreement(
            case.explanation, against=case.explanation.values
        ),
        "history": plots.plot_history(est.history_),
    }


def test_every_axis_is_labelled_and_no_labels_overlap(case):
    for name, ax in draw_all(case).items():
        if name != "graph":
            assert ax.get_xlabel(), name
            assert ax.get_ylabel() or row_labels(ax), name
        assert overlapping(ax, ax.get_yticklabels()) == [], name
        assert overlapping(ax, ax.get_xticklabels()) == [], name
        plt.close(ax.figure)


def test_given_axes_are_drawn_on_and_returned(small):
    model = small.est.model_
    calls = {
        plots.plot_coefficients: small.effects,
        plots.plot_first_layer: first_layer(model),
        plots.plot_nonlinearity: small.effects,
        plots.plot_beeswarm: small.explanation,
        plots.plot_waterfall: small.explanation,
        plots.plot_effect: small.explanation,
        plots.plot_correction: correction_curve(model, 0, 1),
        plots.plot_pair_surface: pair_surface(model, 0, 1),
        plots.plot_interactions: small.interactions,
        plots.plot_modification_graph: small.interactions,
        plots.plot_history: small.est.history_,
    }
    for plot, record in calls.items():
        _, ax = plt.subplots()
        assert plot(record, ax) is ax
        assert plot(record, ax=ax) is ax


def test_coefficients_stand_beside_truth_and_rivals(case):
    truth = np.linspace(-1, 1, case.p)
    ax = plots.plot_coefficients(
        case.effects, against={"truth": truth, "lasso": 0 * truth}, standardised=False
    )
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["NIMO", "truth", "lasso"]
    lines = {line.get_label(): line for line in ax.get_lines()}
    shown = [case.effects.names.index(name) for name in row_labels(ax)]
    assert len(shown) == min(case.p, 30)
    assert lines["NIMO"].get_xdata() == pytest.approx(case.effects.coef[shown])
    assert lines["truth"].get_xdata() == pytest.approx(truth[shown])
    assert "per unit" in ax.get_xlabel()
    title = ax.get_title(loc="left")
    assert title == ("30 of 50 features" if case.p == 50 else "")


def test_a_bare_array_is_the_truth_in_the_same_unit(small):
    ax = plots.plot_coefficients(small.effects, against=small.effects.coef)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert (lines["truth"].get_xdata() == lines["NIMO"].get_xdata()).all()
    order = [small.effects.names.index(name) for name in row_labels(ax)]
    assert lines["NIMO"].get_xdata() == pytest.approx(small.effects.coef_std[order])


def test_path_marks_the_chosen_penalty(case):
    path = SimpleNamespace(
        alphas=np.array([1.0, 0.1, 0.01]),
        coef=np.outer([0, 1, 2], np.linspace(-1, 1, case.p)),
        index=1,
    )
    names = [f"gene {j}" for j in range(case.p)]
    ax = plots.plot_path(path, names=names)
    texts = [text.get_text() for text in ax.texts]
    assert "chosen 0.1" in texts
    assert {"gene 0", f"gene {case.p - 1}"} <= set(texts)
    assert len(texts) <= 11
    assert ax.get_xscale() == "log"
    assert ax.get_xlim() == (1.0, 0.01)
    centres = np.array([text.get_position()[1] for text in ax.texts[1:]])
    gap = 0.05 * np.ptp(ax.get_ylim())
    assert np.diff(np.sort(centres)).min() >= gap


def test_first_layer_shows_every_weight_and_counts_what_is_read(case):
    record = first_layer(case.est.model_)
    ax = plots.plot_first_layer(record)
    drawn = ax.get_images()[0].get_array().filled(0)
    assert drawn == pytest.approx(record.size[0].T)
    assert row_labels(ax) == list(record.names)
    n_read = int((record.norms > 0).sum())
    assert f"reads {n_read} of {case.p}" in ax.get_title(loc="left")


@pytest.mark.parametrize("measure", ["bend", "nonlinearity"])
def test_nonlinearity_bars_end_at_the_values(case, measure):
    ax = plots.plot_nonlinearity(case.effects, measure=measure)
    shown = [case.effects.names.index(name) for name in row_labels(ax)]
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert ends == pytest.approx(getattr(case.effects, measure)[shown])
    assert all(case.effects.roles.acts[j] for j in shown)


def test_unknown_options_are_refused(small):
    with pytest.raises(ValueError, match="'bend', 'nonlinearity'"):
        plots.plot_nonlinearity(small.effects, measure="wiggle")
    with pytest.raises(ValueError, match="'directed', 'strength'"):
        plots.plot_interactions(small.interactions, kind="both")
    with pytest.raises(ValueError, match="against has shape"):
        plots.plot_agreement(small.explanation, against=np.ones((3, 5)))


def test_beeswarm_draws_every_contribution_once(case):
    found = case.explanation
    ax = plots.plot_beeswarm(found)
    labels = row_labels(ax)
    assert len(labels) == min(case.p, 16)
    drawn = points(ax)
    for place, label in enumerate(labels[:15]):
        j = found.names.index(label)
        line = drawn[np.abs(drawn[:, 1] - place) < 0.5, 0]
        assert np.sort(line) == pytest.approx(np.sort(found.values[:, j]))
    if case.p == 50:
        assert labels[-1] == "35 others together"
        shown = [found.names.index(label) for label in labels[:15]]
        rest = np.delete(found.values, shown, axis=1).sum(1)
        line = drawn[np.abs(drawn[:, 1] - 15) < 0.5, 0]
        assert np.sort(line) == pytest.approx(np.sort(rest))


def test_beeswarm_thins_long_tables(small, monkeypatch):
    monkeypatch.setattr("sknimo.plots._style.MAX_POINTS", 30)
    ax = plots.plot_beeswarm(small.explanation)
    assert len(points(ax)) == 30 * 5


def test_waterfall_goes_from_base_value_to_eta(case):
    found = case.explanation[7]
    ax = plots.plot_waterfall(found)
    bars = ax.patches
    assert bars[0].get_x() == pytest.approx(found.base_value)
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(found.eta[0])
    assert sum(bar.get_width() for bar in bars) == pytest.approx(found.values.sum())
    labels = row_labels(ax)
    assert labels[0] == "base value" and labels[-1] == "prediction"
    biggest = int(np.abs(found.values[0]).argmax())
    assert labels[1] == f"{found.names[biggest]} = {found.data[0, biggest]:.4g}"
    texts = [text.get_text() for text in ax.texts]
    assert f"{found.eta[0]:.4g}" in texts
    if case.p == 50:
        assert "38 others together" in labels


@pytest.mark.slow
def test_waterfall_has_an_axis_of_the_response_where_eta_alone_gives_it():
    X = np.random.default_rng(0).normal(size=(60, 2))
    several = NIMOClassifier(max_iter=0).fit(X, np.repeat(["a", "b", "c"], 20))
    counts = NIMORegressor(max_iter=0, family="poisson").fit(X, np.arange(60.0))
    for est, axes in ((several.for_class("b"), 0), (counts, 1)):
        ax = plots.plot_waterfall(est.explain(X[:1]))
        assert len(ax.child_axes) == axes


def test_effect_scatters_contributions_coloured_by_the_modifier(case):
    found = case.explanation
    ax = plots.plot_effect(found, feature=0)
    drawn = points(ax)
    assert drawn[:, 0] == pytest.approx(found.data[:, 0])
    assert drawn[:, 1] == pytest.approx(found.values[:, 0])
    assert ax.get_xlabel() == found.names[0]
    bar = ax.figure.axes[-1]
    assert bar.get_ylabel() == found.names[found.strongest_modifier(0)]
    other = plots.plot_effect(found, feature=0, modifier=3).figure.axes[-1]
    assert other.get_ylabel() == found.names[3]


def test_correction_curve_and_rows_are_drawn(small):
    curve = correction_curve(small.est.model_, 0, 1)
    ax = plots.plot_correction(curve, rows=small.explanation)
    lines = {line.get_label(): line for line in ax.get_lines()}
    drawn = lines["all else at the reference"]
    assert drawn.get_ydata() == pytest.approx(curve.local_coef)
    assert lines["coefficient"].get_ydata()[0] == curve.coef
    assert points(ax)[:, 1] == pytest.approx(small.explanation.local_coef[:, 0])
    assert ax.get_xlabel() == curve.modifier
    assert curve.feature in ax.get_ylabel()


def test_pair_surface_is_drawn_with_its_references(small):
    record = pair_surface(small.est.model_, 0, 1, n_grid=9)
    ax = plots.plot_pair_surface(record)
    drawn = ax.collections[0].get_array()
    assert np.asarray(drawn).reshape(9, 9) == pytest.approx(record.surface.T)
    assert (ax.get_xlabel(), ax.get_ylabel()) == record.names
    at = [line.get_xdata()[0] for line in ax.get_lines()]
    assert record.reference[0] in at


def test_rounding_is_no_interaction(small):
    record = pair_surface(small.est.model_, 0, 1, n_grid=9)
    noise = 1e-16 * np.random.default_rng(0).normal(size=(9, 9))
    for surface in (noise, 0 * noise):
        ax = plots.plot_pair_surface(replace(record, surface=surface))
        assert not ax.axison and not ax.collections
        assert ax.texts[0].get_text().startswith("no effect of the two")
    faint = replace(record, surface=1e-6 * record.surface)
    assert plots.plot_pair_surface(faint).collections


@pytest.mark.parametrize("kind", ["directed", "strength"])
def test_heat_map_shows_the_strongest_features(case, kind):
    ax = plots.plot_interactions(case.interactions, kind=kind)
    labels = row_labels(ax)
    assert len(labels) <= 30
    assert labels == [text.get_text() for text in ax.get_xticklabels()]
    shown = [case.interactions.names.index(name) for name in labels]
    table = getattr(case.interactions, kind)[np.ix_(shown, shown)]
    assert ax.get_images()[0].get_array().filled(0) == pytest.approx(table)
    strongest = np.unravel_index(
        getattr(case.interactions, kind).argmax(), (case.p, case.p)
    )
    assert set(strongest) <= set(shown)


def test_graph_has_an_arrow_for_each_strong_bend(case):
    ax = plots.plot_modification_graph(case.interactions, max_edges=6)
    assert 1 <= len(ax.patches) <= 6
    names = {text.get_text() for text in ax.texts}
    j, k = np.unravel_index(case.interactions.directed.argmax(), (case.p, case.p))
    assert {case.interactions.names[j], case.interactions.names[k]} <= names


def test_graph_of_a_straight_model_says_so(small):
    record = replace(small.interactions, directed=np.zeros((5, 5)))
    ax = plots.plot_modification_graph(record)
    assert ax.texts[0].get_text() == "no feature bends another"


def test_agreement_states_the_correlation(case):
    found = case.explanation
    rng = np.random.default_rng(0)
    other = found.values + 0.1 * rng.normal(size=found.values.shape)
    ax = plots.plot_agreement(found, against=other, label="shap")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    j = int(found.importance.argmax())
    r = np.corrcoef(other[:, j], found.values[:, j])[0, 1]
    assert f"{found.names[j]} (r = {r:.3f})" in texts
    assert ax.get_xlabel() == "contribution, shap"
    assert (case.p == 5) or f"{case.p - 6} others" in texts


def test_agreement_takes_a_shap_explanation(small):
    ax = plots.plot_agreement(small.explanation, against=small.explanation.to_shap())
    drawn = points(ax)
    assert drawn[:, 0] == pytest.approx(drawn[:, 1])


def test_history_shows_objective_validation_and_counts():
    history = SimpleNamespace(
        step=np.array([0, 10, 20]),
        objective=np.array([[1.0, 2.0], [0.5, np.nan], [0.4, np.nan]]),
        validation=np.array([[1.1, 2.1], [0.7, np.nan], [0.8, np.nan]]),
        n_features=np.array([[5, 5], [4, 5], [3, 5]]),
        n_inputs=np.array([[5, 5], [5, 5], [2, 5]]),
    )
    ax = plots.plot_history(history)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [
        "objective",
        "validation loss",
        "features with a coefficient",
        "features the network reads",
    ]
    assert ax.get_lines()[0].get_ydata() == pytest.approx([1.0, 0.5, 0.4])
    assert len(ax.get_lines()) == 4  # two members, objective and validation


def test_long_names_are_cut_in_figures(small):
    names = tuple(f"a very long name of measurement {j}" for j in range(5))
    record = replace(small.effects, names=names)
    labels = row_labels(plots.plot_coefficients(record))
    assert max(map(len, labels)) <= 30
    assert len(set(labels)) == len(labels)  # they differ at the end


LONG = ("average_household_income_per_person_2019", "x1", "x2", "x3", "x4")


def test_a_long_name_leaves_the_heat_map_its_place(small):
    ax = plots.plot_interactions(replace(small.interactions, names=LONG))
    short = plots.plot_interactions(small.interactions)
    for each in (ax, short):
        each.figure.canvas.draw()
    size, usual = ax.get_window_extent().width, short.get_window_extent().width
    assert size >= 0.9 * usual
    assert ax.texts
    assert all(text.get_window_extent().width <= size / 5 for text in ax.texts)


def test_numbers_are_left_out_where_cells_are_too_narrow(small):
    _, ax = plt.subplots(figsize=(2.4, 2.4), layout="constrained")
    assert not plots.plot_interactions(small.interactions, ax).texts
    assert ax.get_images()


@pytest.mark.parametrize("width", [None, 4.5])
def test_a_long_name_does_not_push_a_label_out_of_the_figure(small, width):
    record = replace(small.effects, names=LONG)
    for draw in (plots.plot_coefficients, plots.plot_nonlinearity):
        given = None
        if width is not None:
            _, given = plt.subplots(figsize=(width, 3), layout="constrained")
        ax = draw(record, given)
        ax.figure.canvas.draw()
        box, page = ax.xaxis.label.get_window_extent(), ax.figure.bbox
        assert page.x0 <= box.x0 and box.x1 <= page.x1
        assert page.y0 <= box.y0


def test_binary_axes_show_their_two_levels(small):
    data = small.explanation.data.copy()
    data[:, 0] = data[:, 0] > 0
    record = replace(small.explanation, data=data)
    ax = plots.plot_effect(record, feature=0, modifier=1)
    assert ax.get_xticks().tolist() == [0, 1]
    ax = plots.plot_effect(record, feature=1, modifier=0)
    ticks = [text.get_text() for text in ax.figure.axes[-1].get_yticklabels()]
    assert ticks == ["0", "1"]


# Categories, curves, missing values, and names that matplotlib could misread.

REGION, CURVE = "$re_{gion$ <b>", "_dose\nin $mg"
LEVELS = ("north $1$", "_south", "a level with a name that is very long", "x^2 \\frac")


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(0)
    n = 120
    X = pd.DataFrame(
        {
            CURVE: rng.uniform(0, 40, n),
            "sex": rng.choice(["man", "woman"], n),
            REGION: rng.choice([*LEVELS, None], n, p=[0.4, 0.2, 0.2, 0.1, 0.1]),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(50, 10, n)),
            "smoker": rng.random(n) < 0.4,
        }
    )
    z = (X[CURVE] - 20) / 12
    south = X[REGION] == LEVELS[1]
    y = z * (1 + south) + z**2 + (X["sex"] == "man") * (1 + z) + 2 * south
    y += 0.5 * X["smoker"] + X["age"].isna()
    est = NIMORegressor(
        basis={CURVE: "spline"},
        missing="indicator",
        alpha=1e-3,
        network_alpha=0.1,
        hidden=(6, 6),
        max_iter=40,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    return est, X


def draw_mixed(est, X):
    """Every figure of a mixed table, by name."""
    rows, table = est.explain(X), est.effects(X)
    pairs = est.interactions(X)
    return {
        "coefficients": lambda: plots.plot_coefficients(table),
        "levels": lambda: plots.plot_levels(table),
        "levels of one": lambda: plots.plot_levels(table, feature=REGION),
        "curve": lambda: plots.plot_effect_curve(est.effect_curve(CURVE, X), rows=rows),
        "curve of levels": lambda: plots.plot_effect_curve(est.effect_curve(REGION, X)),
        "curve with missing": lambda: plots.plot_effect_curve(
            est.effect_curve("age"), rows=rows
        ),
        "nonlinearity": lambda: plots.plot_nonlinearity(table),
        "beeswarm": lambda: plots.plot_beeswarm(rows),
        "waterfall": lambda: plots.plot_waterfall(rows, row=4),
        "effect of levels": lambda: plots.plot_effect(
            rows, feature=REGION, modifier=CURVE
        ),
        "effect by levels": lambda: plots.plot_effect(
            rows, feature=CURVE, modifier=REGION
        ),
        "effect of missing": lambda: plots.plot_effect(
            rows, feature="age", modifier="sex"
        ),
        "effect by missing": lambda: plots.plot_effect(
            rows, feature="smoker", modifier="age"
        ),
        "correction of levels": lambda: plots.plot_correction(
            est.correction_curve(REGION, CURVE, X=X), rows=rows
        ),
        "correction by levels": lambda: plots.plot_correction(
            est.correction_curve(CURVE, REGION, X=X), rows=rows
        ),
        "correction by missing": lambda: plots.plot_correction(
            est.correction_curve("sex", "age", X=X), rows=rows
        ),
        "surface of levels": lambda: plots.plot_pair_surface(
            est.pair_surface(REGION, "sex")
        ),
        "surface by levels": lambda: plots.plot_pair_surface(
            est.pair_surface(CURVE, REGION)
        ),
        "surface of numbers": lambda: plots.plot_pair_surface(
            est.pair_surface(CURVE, "age", X=X)
        ),
        "interactions": lambda: plots.plot_interactions(pairs),
        "graph": lambda: plots.plot_modification_graph(pairs),
        "agreement": lambda: plots.plot_agreement(rows, against=rows.values),
        "first layer": lambda: plots.plot_first_layer(est.first_layer()),
    }


@pytest.mark.slow
def test_every_figure_of_a_mixed_table_is_labelled_and_can_be_drawn(mixed):
    for name, draw in draw_mixed(*mixed).items():
        ax = draw()
        if name != "graph":
            assert ax.get_xlabel(), name
            assert ax.get_ylabel() or row_labels(ax), name
        ax.figure.canvas.draw()
        assert overlapping(ax, ax.get_yticklabels()) == [], name
        if not ax.get_xticklabels()[0].get_rotation():
            assert overlapping(ax, ax.get_xticklabels()) == [], name
        plt.close(ax.figure)


def unescape(text):
    return text.replace(r"\$", "$")


def test_names_are_drawn_as_they_are(mixed):
    est, X = mixed
    ax = plots.plot_effect(est.explain(X), feature=CURVE, modifier=REGION)
    assert unescape(ax.get_xlabel()) == r"_dose\nin $mg"
    legend = ax.get_legend()
    assert unescape(legend.get_title().get_text()) == REGION
    texts = [unescape(text.get_text()) for text in legend.get_texts()]
    assert sorted(texts)[:2] == [" _south", "a level with a name…very long"]
    for text in (ax.xaxis.label, legend.get_title(), *legend.get_texts()):
        _, is_math = text._preprocess_math(text.get_text())
        assert is_math is False


def test_coefficients_of_one_feature_stand_together(mixed):
    est, X = mixed
    record = est.effects(X)
    ax = plots.plot_coefficients(record, against=est.coef_, standardised=False)
    lines = {line.get_label(): line.get_xdata() for line in ax.get_lines()}
    assert (lines["NIMO"] == lines["truth"]).all()
    owner = [label.split(":")[0] for label in row_labels(ax)]
    changes = sum(a != b for a, b in zip(owner[:-1], owner[1:], strict=True))
    assert changes == len(set(owner)) - 1
    assert np.sort(lines["NIMO"]) == pytest.approx(np.sort(est.coef_[est.coef_ != 0]))
    # One number per feature stands for slopes and for the only other level.
    ax = plots.plot_coefficients(record, against={"rival": np.arange(1.0, 6.0)})
    lines = {line.get_label(): line.get_xdata() for line in ax.get_lines()}
    shown = dict(zip(row_labels(ax), lines["rival"], strict=True))
    (other,) = [name for name in shown if name.startswith("sex: ")]
    assert shown[other] == 2.0
    assert np.isnan([value for name, value in shown.items() if "re_" in name]).all()
    assert np.isnan(shown["age: missing"])
    with pytest.raises(ValueError, match="against holds 3 numbers"):
        plots.plot_coefficients(record, against=np.ones(3))


def test_levels_show_contrasts_at_the_reference_and_on_average(mixed):
    est, X = mixed
    record = est.effects(X)
    ax = plots.plot_levels(record, feature=REGION)
    own = record.levels.of(2)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert lines["at the reference"].get_xdata() == pytest.approx(
        record.levels.coef[own]
    )
    assert lines["average"].get_xdata() == pytest.approx(
        record.levels.average_effect[own]
    )
    labels = [unescape(label) for label in row_labels(ax)]
    assert labels[1].startswith("a level with a") and labels[-1] == "missing"
    assert sum("(baseline)" in label for label in labels) == 1
    assert "missing: from the reference" in ax.get_xlabel()
    few = plots.plot_levels(record, max_levels=3)
    assert len(row_labels(few)) == 3 and "3 of 8 levels" in few.get_xlabel()


def test_levels_of_a_model_without_any_say_so(small):
    assert plots.plot_levels(small.effects).texts[0].get_text() == (
        "no feature has levels"
    )


def test_effect_curves_draw_the_numbers_of_their_records(mixed):
    est, X = mixed
    record = est.effect_curve(CURVE, X)
    ax = plots.plot_effect_curve(record, rows=est.explain(X))
    lines = {line.get_label(): line for line in ax.get_lines()}
    drawn = lines["all else at the reference"]
    assert drawn.get_xdata() == pytest.approx(record.value)
    assert drawn.get_ydata() == pytest.approx(record.effect)
    assert points(ax)[:, 1] == pytest.approx(est.explain(X).values[:, 0])
    record = est.effect_curve("age", X)
    ax = plots.plot_effect_curve(record, rows=est.explain(X))
    (point,) = [line for line in ax.get_lines() if line.get_label() == "missing"]
    assert point.get_ydata() == [record.missing]
    assert point.get_xdata()[0] > np.nanmax(X["age"])
    absent = X["age"].isna().to_numpy()
    assert (points(ax)[absent, 0] == point.get_xdata()[0]).all()
    record = est.effect_curve(REGION)
    ax = plots.plot_effect_curve(record)
    dots = np.asarray(ax.collections[-1].get_offsets())
    assert dots[:, 0] == pytest.approx([*record.effect, record.missing])


def test_rows_stand_above_their_level_and_missing_ones_beside(mixed):
    est, X = mixed
    found = est.explain(X)
    ax = plots.plot_effect(found, feature=REGION, modifier="sex")
    drawn = points(ax)
    lanes = np.round(drawn[:, 0]).astype(int)
    codes = np.where(np.isnan(found.data[:, 2]), 4, found.data[:, 2])
    assert np.array_equal(np.sort(lanes), np.sort(codes))
    assert np.sort(drawn[:, 1]) == pytest.approx(np.sort(found.values[:, 2]))
    ticks = [unescape(text.get_text()) for text in ax.get_xticklabels()]
    assert ticks[-1] == "missing" and len(ticks) == 5
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["man", "woman"]


def test_waterfall_names_levels_and_missing_values(mixed):
    est, X = mixed
    row = int(np.flatnonzero(X["age"].isna() & X["smoker"])[0])
    ax = plots.plot_waterfall(est.explain(X), row=row)
    labels = [unescape(label) for label in row_labels(ax)]
    assert "age = missing" in labels
    assert any(label.startswith("sex = ") for label in labels) or (
        X["sex"].iloc[row] == "woman"
    )


def test_levels_have_no_rank_in_the_beeswarm(mixed):
    est, X = mixed
    ax = plots.plot_beeswarm(est.explain(X))
    assert "grey: levels and missing values" in ax.get_xlabel()
    grey = matplotlib.colors.to_rgb("#8C8C8C")
    for place, label in enumerate(row_labels(ax)):
        colours = ax.collections[place].get_facecolors()[:, :3]
        is_grey = np.isclose(colours, grey).all(1)
        expected = {"sex": 120, "age": X["age"].isna().sum(), "smoker": 0}
        if label in expected:
            assert is_grey.sum() == expected[label]


def test_surface_of_a_category_has_one_line_per_level(mixed):
    est, _ = mixed
    for pair in ((CURVE, REGION), (REGION, CURVE)):
        record = est.pair_surface(*pair, n_grid=12)
        ax = plots.plot_pair_surface(record)
        surface = record.surface if pair[0] == REGION else record.surface.T
        lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 12]
        for line, values in zip(lines, surface, strict=True):
            assert line.get_ydata() == pytest.approx(values)
        assert unescape(ax.get_legend().get_title().get_text()) == REGION
    record = est.pair_surface(REGION, "sex")
    ax = plots.plot_pair_surface(record)
    assert len(ax.texts) == 8
    assert [text.get_text() for text in ax.get_yticklabels()] == ["man", "woman"]


def test_correction_of_many_levels_has_one_line_each(mixed):
    est, X = mixed
    record = est.correction_curve(REGION, CURVE, X=X)
    ax = plots.plot_correction(record)
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) == 50]
    assert len(lines) == 4  # three levels and missing
    for line, values in zip(lines, record.all_coef.T, strict=True):
        assert line.get_ydata() == pytest.approx(values)
    assert "contrast with the baseline" in ax.get_ylabel()


@pytest.fixture(scope="module")
def table():
    """Months, a flag and a number, and a class that depends on them."""
    rng = np.random.default_rng(0)
    names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
    names += ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    X = pd.DataFrame({"month": np.tile(names, 20), "flag": rng.integers(0, 2, 240)})
    X["personal_status_and_sex_of_the_applicant"] = rng.normal(size=240)
    eta = X["flag"] - 0.5 + X.iloc[:, 2]
    return X, np.where(eta + rng.logistic(size=240) > 0, "ill", "well")


@pytest.fixture(scope="module")
def glm(table):
    return NIMOClassifier(max_iter=0, alpha=1e-3).fit(*table)


def test_twelve_levels_have_twelve_colours_and_a_legend_beside_the_axes(glm, table):
    ax = plots.plot_effect(glm.explain(table[0]), feature=2, modifier="month")
    colours = {tuple(dots.get_facecolor()[0]) for dots in ax.collections[1:]}
    assert len(colours) == 12
    legend = ax.get_legend()
    ax.figure.canvas.draw()
    assert legend.get_window_extent().x0 >= ax.get_window_extent().x1 - 1


def test_a_column_of_two_values_is_two_points_even_without_rows(glm):
    ax = plots.plot_effect_curve(glm.effect_curve("flag"))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1"]
    (line,) = [each for each in ax.get_lines() if each.get_marker() == "o"]
    assert line.get_xdata().tolist() == [0, 1] and line.get_linestyle() == "None"


def test_figures_of_a_glm_say_that_nothing_is_bent(glm, table):
    X, _ = table
    told = [
        plots.plot_nonlinearity(glm.effects(X)),
        plots.plot_interactions(glm.interactions(X)),
        plots.plot_modification_graph(glm.interactions(X)),
        plots.plot_first_layer(
            SimpleNamespace(size=np.zeros((1, 4, 3)), names=("a", "b", "c"))
        ),
    ]
    for ax in told:
        assert len(ax.texts) == 1 and not ax.axison
        assert ax.texts[0].get_text().startswith(("no ", "the network reads no"))


def test_a_waterfall_tells_the_probability(glm, table):
    found = glm.explain(table[0])
    ax = plots.plot_waterfall(found, row=5)
    assert ax.get_title(loc="left") == f"row 5: probability {found.mean[5]:.1%}"
    (top,) = ax.child_axes
    at = [float(tick.get_text().rstrip("%")) / 100 for tick in top.get_xticklabels()]
    wanted = 1 / (1 + np.exp(-top.get_xticks()))
    assert at == pytest.approx(wanted, abs=0.006)


def test_names_are_cut_between_words(glm, table):
    labels = row_labels(plots.plot_coefficients(glm.effects(table[0])))
    assert any(label.startswith("personal_status_and…") for label in labels)


def test_the_path_of_a_table_with_levels_and_curves_has_their_names():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=90), "kind": np.tile(["a", "b", "c"], 30)})
    y = X["x"] ** 2 + 2 * (X["kind"] == "b") + 0.1 * rng.normal(size=90)
    est = NIMORegressorCV(
        basis={"x": "poly2"}, n_starts=1, max_iter=3, random_state=0, max_time=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est.fit(X, y)
    ax = plots.plot_path(est)
    drawn = {text.get_text() for text in ax.texts}
    assert {"x", "x (curve 1)", "kind: b", "kind: c"} <= drawn
    with pytest.raises(ValueError, match="names has 2 entries for 4 columns"):
        plots.plot_path(est.path_, names=["x", "kind"])


def test_quality_is_drawn_within_its_range(glm, table):
    roc = glm.roc(*table)
    ax = plots.plot_roc({"one": roc, "two": roc})
    assert f"one AUC {roc.auc:.3f}" in [
        t.get_text() for t in ax.get_legend().get_texts()
    ]
    assert len(plots.plot_roc(roc).texts) == 5
    ax = plots.plot_calibration(glm.calibration(*table))
    assert ax.get_ylim() == pytest.approx((-0.02, 1.02))
    ax = plots.plot_residuals(glm.residuals(*table))
    assert "beyond 2" in ax.get_title(loc="left")
    found = glm.dependence(table[0], "month")
    ax = plots.plot_dependence(found, max_rows=10)
    assert len(ax.get_lines()) == 12 and ax.get_ylabel() == "probability"
    assert ax.get_lines()[-1].get_ydata() == pytest.approx(found.mean)
