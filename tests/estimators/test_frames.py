"""Tables of any frame library and any type of column, and what is refused."""

import warnings

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sknimo import DataWarning, NIMORegressor, NIMORegressorCV, load, plots

SAME_FIT = 1e-12  # the same numbers from another frame library

N_ROWS = 160
NAMES = ["age", "dose", "size", "sex", "region", "member"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*positional reference:UserWarning"),
]


def to_polars(frame):
    return pl.from_pandas(frame).with_columns(
        pl.col("sex").cast(pl.Categorical), pl.col("dose").fill_nan(None)
    )


def to_arrow(frame):
    return pa.Table.from_pandas(frame, preserve_index=False)


def to_objects(frame):
    return frame.astype(object).to_numpy()


FRAMES = {
    "polars": to_polars,
    "arrow": to_arrow,
    "objects": to_objects,
    "lists": lambda frame: to_objects(frame).tolist(),
    "nullable": lambda frame: frame.convert_dtypes(),
    "category": lambda frame: frame.astype({"sex": "category", "region": "category"}),
    "narrow": lambda frame: frame.astype({"member": "int8"}),
}


def by_position(est):
    """The same estimator for tables without names."""
    curves = {NAMES.index(name): kind for name, kind in est.basis.items()}
    return clone(est).set_params(basis=curves, categorical=[3, 4])


class TestFrames:
    @pytest.mark.parametrize("kind", FRAMES)
    def test_every_frame_library_leads_to_the_same_fit(
        self, mixed, plain, kind, make_small
    ):
        frame, y = mixed
        X = FRAMES[kind](frame)
        est = (
            make_small()
            if kind not in ("objects", "lists")
            else by_position(make_small())
        )
        est.fit(X, y)
        assert est.coef_ == pytest.approx(plain.coef_, rel=SAME_FIT, abs=SAME_FIT)
        assert est.predict(X) == pytest.approx(plain.predict(frame), rel=SAME_FIT)
        if hasattr(X, "columns"):
            assert est.coef_names_.tolist() == plain.coef_names_.tolist()
            assert est.feature_names_in_.tolist() == NAMES

    @pytest.mark.parametrize("kind", ["polars", "arrow"])
    def test_the_search_sees_the_same_table_too(self, mixed, kind, make_small):
        frame, y = mixed
        options = {"max_iter": 4, "hidden": (3, 3)}
        est = make_small(NIMORegressorCV, **options).fit(FRAMES[kind](frame), y)
        same = make_small(NIMORegressorCV, **options).fit(frame, y)
        assert est.coef_ == pytest.approx(same.coef_, rel=SAME_FIT, abs=SAME_FIT)

    @pytest.mark.parametrize("kind", FRAMES)
    def test_a_model_predicts_from_any_frame(self, mixed, plain, kind):
        frame, _ = mixed
        X = FRAMES[kind](frame)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # arrays have no names
            assert plain.predict(X) == pytest.approx(plain.predict(frame), rel=SAME_FIT)

    def test_numeric_tables_give_one_fit_from_numpy_too(self, make_small, draw_mixed):
        frame, y = draw_mixed(missing=False)
        frame = frame[["age", "dose", "size"]]
        one = make_small().fit(frame, y)
        other = make_small(basis={1: "spline", 2: "poly2"}).fit(frame.to_numpy(), y)
        assert np.array_equal(one.coef_, other.coef_)
        gaps = frame.where(frame["dose"] < 6)
        one = make_small().fit(gaps, y)
        other = make_small(basis={1: "spline", 2: "poly2"}).fit(gaps.to_numpy(), y)
        assert np.array_equal(one.coef_, other.coef_)

    def test_outputs_come_back_in_the_users_frame(self, mixed, plain):
        frame, _ = mixed
        for X, kind in ((frame, pd.DataFrame), (to_polars(frame), pl.DataFrame)):
            assert isinstance(plain.explain(X).to_frame(), kind)
            assert isinstance(plain.effects(X).to_frame(), kind)


class TestTypes:
    """Rows of the fault table on dtypes, names, levels and missing values."""

    @pytest.mark.parametrize(
        "kind", ["bool", "boolean", "int64", "Int64", "float32", "Float64", "object"]
    )
    def test_a_flag_may_come_as_any_type(self, mixed, plain, kind, make_small):
        frame, y = mixed
        flag = frame["member"].astype(kind)
        est = make_small().fit(frame.assign(member=flag), y)
        assert est.coef_ == pytest.approx(plain.coef_, rel=SAME_FIT)

    def test_unused_and_unordered_categories_do_not_matter(
        self, mixed, plain, make_small
    ):
        frame, y = mixed
        region = pd.Categorical(frame["region"], ["west", "mars", "south", "north"])
        est = make_small().fit(frame.assign(region=region), y)
        assert np.array_equal(est.coef_, plain.coef_)
        assert est.predict(frame) == pytest.approx(plain.predict(frame), rel=SAME_FIT)

    def test_ordered_categories_keep_their_order(self, mixed, make_small):
        frame, y = mixed
        order = ["west", "south", "north"]
        region = pd.Categorical(frame["region"], order, ordered=True)
        est = make_small().fit(frame.assign(region=region), y)
        assert est.model_.features.levels(4) == tuple(order)
        enum = to_polars(frame).with_columns(pl.col("region").cast(pl.Enum(order)))
        assert np.array_equal(make_small().fit(enum, y).coef_, est.coef_)

    def test_numbers_are_categories_where_declared(self, mixed, make_small):
        frame, y = mixed
        code = frame["region"].map({"north": 1, "south": 2, "west": 3})
        est = make_small(categorical=["region"]).fit(frame.assign(region=code), y)
        names = [name for name in est.coef_names_ if name.startswith("region")]
        assert names == ["region[2]", "region[3]", "region[missing]"]

    def test_an_unseen_level_is_refused_by_column_level_and_row(self, mixed, plain):
        frame, _ = mixed
        other = frame.copy()
        other.loc[7, "region"] = "mars"
        with pytest.raises(
            ValueError, match=r"Column 'region' has level 'mars' at row 7, .*reference"
        ):
            plain.predict(other)

    def test_an_unseen_level_may_stand_at_the_reference(self, mixed, plain, make_small):
        frame, y = mixed
        est = make_small(handle_unknown="reference").fit(frame, y)
        baseline = est.model_.features.levels(4)[int(est.reference_[4])]
        unseen = est.predict(frame.assign(region="mars"))
        assert np.array_equal(unseen, est.predict(frame.assign(region=baseline)))
        assert np.array_equal(est.coef_, plain.coef_)

    def test_a_gap_that_training_had_not_may_stand_there_too(self, mixed, make_small):
        frame, y = mixed
        full = frame.assign(
            size=frame["size"].fillna(1.0), region=frame["region"].fillna("north")
        )
        est = make_small(handle_unknown="reference").fit(full, y)
        baseline = est.model_.features.levels(4)[int(est.reference_[4])]
        size = float(est.reference_[list(frame).index("size")])
        at = est.predict(full.assign(region=baseline, size=size))
        assert np.array_equal(est.predict(full.assign(region=None, size=np.nan)), at)
        strict = make_small(handle_unknown="error").fit(full, y)
        with pytest.raises(ValueError, match="'size' .* row 0"):
            strict.predict(full.assign(size=np.nan))

    def test_missing_values_are_refused_by_default(self, mixed, make_small):
        frame, y = mixed
        row = int(frame["dose"].isna().argmax())
        with pytest.raises(ValueError, match=rf"'dose' .* row {row}\..*indicator"):
            make_small(missing="error").fit(frame, y)
        known = frame.assign(dose=frame["dose"].fillna(1.0))
        row = int(frame["region"].isna().argmax())
        with pytest.raises(ValueError, match=rf"'region' .* row {row}\..*indicator"):
            make_small(missing="error").fit(known, y)

    @pytest.mark.parametrize("value", [np.nan, None, pd.NA])
    @pytest.mark.parametrize("name", ["age", "sex"])
    def test_missing_at_predict_only_is_refused_by_row(self, mixed, plain, name, value):
        frame, _ = mixed
        other = frame.astype({name: object})
        other.loc[7, name] = value
        with pytest.raises(ValueError, match=rf"'{name}' .*NaN.* row 7\."):
            plain.predict(other)

    @pytest.mark.parametrize("value", [np.nan, None, pd.NA])
    def test_every_missing_value_is_the_same(self, mixed, plain, value):
        frame, _ = mixed
        other = frame.astype({"dose": object, "region": object})
        other.loc[frame["dose"].isna(), "dose"] = value
        other.loc[frame["region"].isna(), "region"] = value
        assert np.array_equal(plain.predict(other), plain.predict(frame))

    def test_columns_without_missing_values_get_no_indicator(self, plain):
        named = [name for name in plain.coef_names_ if name.endswith("[missing]")]
        assert named == ["dose[missing]", "region[missing]"]

    def test_an_indicator_changes_nothing_where_nothing_is_missing(
        self, make_small, draw_mixed
    ):
        frame, y = draw_mixed(missing=False)
        est, same = (
            make_small().fit(frame, y),
            make_small(missing="error").fit(frame, y),
        )
        assert np.array_equal(est.coef_, same.coef_)

    def test_reordered_names_are_refused(self, mixed, plain):
        frame, _ = mixed
        for X in (frame[NAMES[::-1]], to_polars(frame).select(NAMES[::-1])):
            with pytest.raises(ValueError, match="must be in the same order"):
                plain.predict(X)
        with pytest.raises(ValueError, match="yet now missing:\n- sex"):
            plain.predict(frame.drop(columns="sex"))

    def test_another_number_of_columns_is_refused(self, mixed, plain, make_small):
        frame, y = mixed
        est = by_position(make_small()).fit(to_objects(frame), y)
        for X in (to_objects(frame)[:, :4], to_objects(frame)[:, :4].tolist()):
            with pytest.raises(
                ValueError, match="X has 4 features, but .* expecting 6"
            ):
                est.predict(X)
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            est.predict(np.ones(6))

    def test_dates_are_refused(self, mixed, make_small):
        frame, y = mixed
        days = pd.date_range("2020-01-01", periods=N_ROWS)
        with pytest.raises(TypeError, match="'age' holds dates.*days since"):
            make_small().fit(frame.assign(age=days), y)

    def test_identifiers_are_refused_as_categories(self, mixed, make_small):
        frame, y = mixed
        names = [f"patient {row}" for row in range(N_ROWS)]
        with pytest.raises(ValueError, match="'sex' has 160 levels .*too many"):
            make_small().fit(frame.assign(sex=names), y)

    def test_a_single_level_has_no_effect(self, mixed, make_small):
        frame, y = mixed
        with pytest.warns(DataWarning, match="Constant column 'sex'"):
            est = make_small().fit(frame.assign(sex="f"), y)
        assert not any(name.startswith("sex") for name in est.coef_names_)
        assert np.isfinite(est.predict(frame.assign(sex="f"))).all()

    def test_nothing_but_missing_values_is_refused(self, mixed, make_small):
        frame, y = mixed
        for name in ("age", "sex"):
            with pytest.raises(ValueError, match=rf"'{name}' .*missing values .* only"):
                make_small().fit(frame.assign(**{name: None}), y)
        rows = frame["dose"].notna().to_numpy()
        with pytest.raises(ValueError, match="'dose' .*missing values .* only"):
            make_small().fit(frame, y, sample_weight=np.where(rows, 0.0, 1.0))

    def test_a_failed_fit_leaves_the_previous_one(self, mixed, make_small):
        frame, y = mixed
        est = make_small(max_iter=2).fit(frame, y)
        before = est.predict(frame)
        with pytest.raises(ValueError):
            est.fit(frame.assign(age=np.inf), y)
        assert np.array_equal(est.predict(frame), before)

    @pytest.mark.parametrize("name", ["missing", "handle_unknown"])
    def test_unknown_options_are_listed(self, mixed, name, make_small):
        with pytest.raises(ValueError, match=f"^{name} must be one of"):
            make_small(**{name: "impute"}).fit(*mixed)


def draw_blanks(blank, levels=3):
    """Text with empty cells, as `fillna("")` leaves them, or other text there."""
    random = np.random.default_rng(0)
    text = np.array(["aa", "", "bb"])[random.integers(0, levels, 90)]
    text[:20] = "aa"
    X = pd.DataFrame({"c": text, "x": random.normal(5, 1, 90)})
    y = 2 * X["x"] + (X["c"] == "") * (1 + X["x"]) + random.normal(size=90)
    return X.replace({"c": {"": blank}}), y


class TestEmptyText:
    """It is a level as any other, such as "a", which is sorted first as well."""

    def test_is_named_and_has_no_part_in_the_intercept_at_zero(self):
        X, y = draw_blanks("")
        est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
        assert list(est.coef_names_) == ["c[]", "c[bb]", "x"]
        design = np.c_[X["c"] == "", X["c"] == "bb", X["x"]]
        found = design @ est.coef_ + est.intercept_at_zero_
        np.testing.assert_allclose(found, est.predict(X))

    def test_has_contrasts_and_average_effects(self):
        found = []
        for blank in ("", "a"):
            X, y = draw_blanks(blank, levels=2)
            est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, y)
            effect = est.average_effects(X, y)
            contrast = est.contrast("c", blank, "aa").estimate[0]
            found.append([contrast, *effect.effect.ravel(), *effect.std_err.ravel()])
        np.testing.assert_allclose(found[0], found[1])

    def test_is_a_contrast_in_figures(self):
        X, y = draw_blanks("")
        options = {"max_iter": 5, "tol": 1.0, "patience": 1, "random_state": 0}
        est = NIMORegressor(**options).fit(X, y)
        ax = plots.plot_correction(est.correction_curve("c", "x"))
        assert ax.get_ylabel() == "coefficient of c, contrast with the baseline"
        legend = [text.get_text() for text in ax.get_legend().get_texts()]
        assert legend == ['""', "bb"]


def test_pieces_of_a_number_are_a_category_in_files_and_graphs_too(tmp_path):
    x = np.random.default_rng(0).normal(size=60)
    X = pd.DataFrame({"x": x, "piece": pd.cut(x**2, [-1, 0.5, 1, 10])})
    est = NIMORegressor(alpha=0.0, max_iter=0).fit(X, x**2)
    assert "piece[(1.0, 10.0]]" in est.coef_names_
    est.save(tmp_path / "m.sknimo")
    text = X.astype({"piece": str})
    assert np.array_equal(load(tmp_path / "m.sknimo").predict(text), est.predict(X))
    est.to_onnx(tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    given = {"x": X[["x"]].to_numpy(), "piece": text[["piece"]].to_numpy(dtype=object)}
    np.testing.assert_allclose(
        session.run(["prediction"], given)[0].ravel(), est.predict(X)
    )


class TestPipelines:
    OPTIONS = {"max_iter": 4, "random_state": 0, "hidden": (3, 3)}

    @staticmethod
    def prepare(frame, output):
        numbers = ["age", "dose", "size", "member"]
        steps = make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            (
                make_pipeline(
                    SimpleImputer(strategy="constant", fill_value="none"),
                    OneHotEncoder(sparse_output=False, drop="first"),
                ),
                ["sex", "region"],
            ),
            verbose_feature_names_out=False,
        )
        return steps.set_output(transform=output)

    @pytest.mark.parametrize("output", ["default", "pandas", "polars"])
    def test_prepared_columns_are_predicted_from(self, mixed, output):
        frame, y = mixed
        pipe = make_pipeline(
            self.prepare(frame, output), NIMORegressor(**self.OPTIONS)
        ).fit(frame, y)
        assert np.isfinite(pipe.predict(frame)).all()
        if output != "default":
            names = pipe[-1].feature_names_in_.tolist()
            assert names[:4] == ["age", "dose", "size", "member"]
            assert names[4] == "sex_m"

    @pytest.mark.parametrize("output", ["pandas", "polars"])
    def test_categories_may_pass_through_to_the_model(self, mixed, output):
        frame, y = mixed
        steps = make_column_transformer(
            (SimpleImputer(), ["age", "dose", "size"]),
            remainder="passthrough",
            verbose_feature_names_out=False,
        ).set_output(transform=output)
        X = to_polars(frame) if output == "polars" else frame
        est = NIMORegressor(missing="indicator", **self.OPTIONS)
        pipe = make_pipeline(steps, est).fit(X, y)
        assert pipe[-1].model_.features.levels(4) == ("north", "south", "west")
        assert np.isfinite(pipe.predict(X)).all()

    @pytest.mark.parametrize("convert", [lambda frame: frame, to_polars])
    def test_grids_and_folds_work_on_frames(self, mixed, convert, make_small):
        frame, y = mixed
        X = convert(frame)
        grid = {"basis": ["linear", {"size": "poly2"}], "missing": ["indicator"]}
        search = GridSearchCV(NIMORegressor(**self.OPTIONS), grid, cv=2).fit(X, y)
        assert search.best_params_["basis"] == {"size": "poly2"}
        assert np.isfinite(search.predict(X)).all()
        est = make_small(**self.OPTIONS)
        assert cross_val_predict(est, X, y, cv=2).shape == y.shape

    def test_a_fold_without_a_level_can_still_be_predicted(self, mixed, make_small):
        frame, y = mixed
        region = frame["region"].where(frame.index != 3, "mars")
        est = make_small(handle_unknown="reference", **self.OPTIONS)
        predicted = cross_val_predict(est, frame.assign(region=region), y, cv=4)
        assert np.isfinite(predicted).all()

    def test_estimators_are_cloned_with_their_options(self, make_small):
        est = make_small(reference={"sex": "m"}, categorical=["member"])
        assert clone(est).get_params() == est.get_params()


def test_sparse_columns_are_numbers():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.integers(0, 2, 60)})
    y = X["a"] + X["b"] + rng.normal(size=60)
    thin = X.assign(b=pd.arrays.SparseArray(X["b"].to_numpy()))
    dense, sparse = (NIMORegressor(max_iter=0).fit(each, y) for each in (X, thin))
    assert sparse.coef_.tolist() == dense.coef_.tolist()
    assert sparse.predict(thin).tolist() == dense.predict(X).tolist()


def test_a_lazy_frame_is_refused_with_a_remedy():
    X = pl.DataFrame({"a": [1.0, 2.0, 3.0]}).lazy()
    with pytest.raises(TypeError, match="collect"):
        NIMORegressor(max_iter=0).fit(X, [1.0, 2.0, 3.0])
