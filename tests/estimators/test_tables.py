"""Real tables: categories, curves, missing values, reference points and frames.

One mixed table runs through the whole file. Its features are a line (age), curves
(dose, size), two and three levels (sex, region), a flag (member), and missing values in
one column of each kind.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sknimo import (
    DataWarning,
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
)
from sknimo.features import OrMissing, Spline

IDENTITY = 1e-10  # the bar of the issue, float64
SAME_FIT = 1e-12  # the same numbers from another frame library
PARITY = 1e-6  # an unpenalised fit by another solver

N_ROWS = 160
NAMES = ["age", "dose", "size", "sex", "region", "member"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*positional reference:UserWarning"),
]


def draw(n_rows=N_ROWS, seed=0, missing=True):
    """The mixed table as pandas, and targets that interactions shape."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, n_rows),
            "dose": rng.gamma(2.0, 2.0, n_rows),
            "size": rng.uniform(-2, 2, n_rows),
            "sex": rng.choice(["f", "m"], n_rows, p=[0.6, 0.4]),
            "region": rng.choice(["north", "south", "west"], n_rows, p=[0.5, 0.3, 0.2]),
            "member": rng.random(n_rows) < 0.3,
        }
    )
    age = (frame["age"] - 50) / 10
    south = (frame["region"] == "south") - 0.5 * (frame["region"] == "west")
    eta = (
        age * (1 + np.tanh(2 * frame["size"])) * (1 + 0.5 * (frame["sex"] == "m"))
        + 0.6 * frame["size"] ** 2
        + np.sin(frame["dose"]) * (1 + 0.4 * frame["member"])
        + south * (1 + 0.6 * age)
        + 0.5 * frame["member"]
    )
    y = (eta + 0.1 * rng.normal(size=n_rows)).to_numpy()
    if missing:
        frame.loc[rng.random(n_rows) < 0.15, "dose"] = np.nan
        frame.loc[rng.random(n_rows) < 0.15, "region"] = None
    return frame, y


def crossed_classes(frame, seed=1):
    """Classes that only an interaction tells apart."""
    noise = np.random.default_rng(seed).normal(size=len(frame))
    cross = (frame["age"] - 50) / 10 * frame["size"] + 0.2 * noise
    return (cross > 0).astype(int).to_numpy()


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

CURVES = {"dose": "spline", "size": "poly2"}
SMALL = {"max_iter": 60, "alpha": 1e-3, "network_alpha": 0.1, "learning_rate": 0.03}
SEARCH = {"alphas": (1e-3,), "cv": 2, "n_starts": 1, "relax": False, "max_iter": 25}


def make(cls=NIMORegressor, **options):
    """A small estimator for the mixed table."""
    given = SEARCH if cls in (NIMORegressorCV, NIMOClassifierCV) else SMALL
    shared = {"basis": CURVES, "missing": "indicator", "random_state": 0}
    return cls(**given | shared | options)


def by_position(est):
    """The same estimator for tables without names."""
    curves = {NAMES.index(name): kind for name, kind in est.basis.items()}
    return clone(est).set_params(basis=curves, categorical=[3, 4])


@dataclass(frozen=True)
class Case:
    """A fitted estimator and the table it was fitted on."""

    est: object
    frame: pd.DataFrame
    y: np.ndarray

    @property
    def model(self):
        return self.est.model_

    @property
    def features(self):
        return self.est.model_.features


OPTIONS = {
    "standard": {},
    "rank_gauss": {"input_scaling": "rank_gauss"},
    "clipped": {"clip_inputs": True, "reference": "median"},
    "splines": {
        "basis": "spline",
        "reference": {"age": 40, "sex": "m", "region": "west", "member": 1},
    },
}


@pytest.fixture(
    scope="module",
    params=[
        *[("NIMORegressor", name) for name in OPTIONS],
        ("NIMOClassifier", "standard"),
        ("NIMORegressorCV", "standard"),
        pytest.param(("NIMORegressorCV", "splines"), marks=pytest.mark.slow),
        ("NIMOClassifierCV", "rank_gauss"),
    ],
    ids=" ".join,
)
def case(request):
    name, options = request.param
    cls = {
        cls.__name__: cls
        for cls in (NIMORegressor, NIMOClassifier, NIMORegressorCV, NIMOClassifierCV)
    }[name]
    frame, y = draw(300)
    target = crossed_classes(frame) if "Classifier" in name else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = make(cls, **OPTIONS[options]).fit(frame, target)
    return Case(est, frame, target)


def local_coef(case, table):
    """Local coefficient of every term, (n, q)."""
    features = case.features
    with torch.no_grad():
        return case.model.local_term_coef(
            torch.as_tensor(features.terms(table)),
            torch.as_tensor(features.inputs(table)),
        ).numpy()


class TestWhatTheTableSays:
    def test_the_networks_bend_something(self, case):
        table = case.est._read_table(case.frame)
        local = local_coef(case, table)
        assert case.model.modulated.any()
        assert np.ptp(local, axis=0).max() > 0.05 * np.abs(case.model.term_coef).max()

    def test_every_coefficient_is_a_slope_or_a_contrast_at_the_reference(self, case):
        features, model = case.features, case.model
        reference = features.reference
        read = dict(zip(case.est.coef_names_, case.est.coef_, strict=True))
        assert len(read) == len(features.coef_feature)
        for j, (name, basis) in enumerate(
            zip(features.names, features.bases, strict=True)
        ):

            def eta(*values, j=j):
                table = np.tile(reference, (len(values), 1))
                table[:, j] = values
                return model.eta(table)

            inner = basis.basis if isinstance(basis, OrMissing) else basis
            at = eta(reference[j])[0]
            if isinstance(basis, OrMissing):
                contrast = eta(np.nan)[0] - at
                assert read[f"{name}[missing]"] == pytest.approx(contrast, abs=IDENTITY)
            levels = features.levels(j)
            for code, level in enumerate(levels or ()):
                if code != reference[j]:
                    contrast = eta(float(code))[0] - at
                    assert read[f"{name}[{level}]"] == pytest.approx(
                        contrast, abs=IDENTITY
                    )
            if levels is None:
                slope = derivative(eta, inner)
                assert read[name] == pytest.approx(slope, rel=IDENTITY, abs=IDENTITY)

    def test_a_flag_is_a_contrast_of_its_two_values(self, case):
        table = np.tile(case.features.reference, (2, 1))
        table[:, NAMES.index("member")] = [0.0, 1.0]
        contrast = np.diff(case.model.eta(table))[0]
        coef = dict(zip(case.est.coef_names_, case.est.coef_, strict=True))["member"]
        assert coef == pytest.approx(contrast, abs=IDENTITY)

    def test_a_row_at_the_reference_is_predicted_by_the_intercept(self, case):
        reference = {
            name: (own[int(at)] if (own := case.features.levels(j)) else at)
            for j, (name, at) in enumerate(
                zip(case.features.names, case.features.reference, strict=True)
            )
        }
        eta = case.est._eta(pd.DataFrame([reference]))
        assert eta[0] == case.est.intercept_

    def test_with_the_others_at_the_reference_a_feature_is_its_curve(self, case):
        features, model = case.features, case.model
        for j, basis in enumerate(features.bases):
            table = np.tile(features.reference, (N_ROWS, 1))
            table[:, j] = case.est._read_table(case.frame)[:N_ROWS, j]
            own = features.term_feature == j
            curve = basis.terms(table[:, j]) @ model.term_coef[own]
            rise = model.eta(table) - model.base_value
            assert rise == pytest.approx(curve, abs=IDENTITY)


def derivative(eta, basis):
    """Derivative of eta at the reference from four values, exact for cubic pieces."""
    step = 0.05 * basis.scale
    if isinstance(basis, Spline):
        step = min(step, 0.4 * basis.scale * np.abs(basis.knots).min())
    at = basis.reference
    near = np.subtract(*eta(at + step, at - step)) / (2 * step)
    wide = np.subtract(*eta(at + 2 * step, at - 2 * step)) / (4 * step)
    return (4 * near - wide) / 3


class TestMask:
    """Whatever happens to a feature, its own coefficient does not move by a bit."""

    @staticmethod
    def changes(case):
        """Every feature replaced by other values of every kind, one at a time."""
        rng = np.random.default_rng(9)
        frame = case.frame
        n_rows = len(frame)
        for name in ("age", "dose", "size"):
            yield name, frame.assign(**{name: rng.normal(0, 1e3, n_rows)})
            yield name, frame.assign(**{name: rng.permutation(frame[name])})
        yield "dose", frame.assign(dose=np.nan)
        yield "sex", frame.assign(sex=rng.permutation(frame["sex"]))
        yield "region", frame.assign(region=rng.permutation(frame["region"]))
        yield "region", frame.assign(region=None)
        yield "region", frame.assign(region="west")
        yield "member", frame.assign(member=~frame["member"])

    def test_modulations_are_blind_to_their_own_feature(self, case):
        before = local_coef(case, case.est._read_table(case.frame))
        moved = set()
        for name, changed in self.changes(case):
            after = local_coef(case, case.est._read_table(changed))
            own = case.features.term_feature == NAMES.index(name)
            assert np.array_equal(after[:, own], before[:, own])
            if not np.array_equal(after[:, ~own], before[:, ~own]):
                moved.add(name)
        assert moved  # the network does read something

    def test_explanations_are_blind_too(self, case):
        single = [
            NAMES.index(name) for name in ("age", "dose", "size", "sex", "member")
        ]
        before = case.est.explain(case.frame, method="native").local_coef
        for name, changed in self.changes(case):
            j = NAMES.index(name)
            if j in single:
                after = case.est.explain(changed, method="native").local_coef
                assert np.array_equal(after[:, j], before[:, j])


@pytest.fixture(scope="module")
def mixed():
    return draw()


@pytest.fixture(scope="module")
def plain(mixed):
    return make().fit(*mixed)


class TestFrames:
    @pytest.mark.parametrize("kind", FRAMES)
    def test_every_frame_library_leads_to_the_same_fit(self, mixed, plain, kind):
        frame, y = mixed
        X = FRAMES[kind](frame)
        est = make() if kind not in ("objects", "lists") else by_position(make())
        est.fit(X, y)
        assert est.coef_ == pytest.approx(plain.coef_, rel=SAME_FIT, abs=SAME_FIT)
        assert est.predict(X) == pytest.approx(plain.predict(frame), rel=SAME_FIT)
        if hasattr(X, "columns"):
            assert est.coef_names_.tolist() == plain.coef_names_.tolist()
            assert est.feature_names_in_.tolist() == NAMES

    @pytest.mark.parametrize("kind", ["polars", "arrow"])
    def test_the_search_sees_the_same_table_too(self, mixed, kind):
        frame, y = mixed
        options = {"max_iter": 4, "hidden": (3, 3)}
        est = make(NIMORegressorCV, **options).fit(FRAMES[kind](frame), y)
        same = make(NIMORegressorCV, **options).fit(frame, y)
        assert est.coef_ == pytest.approx(same.coef_, rel=SAME_FIT, abs=SAME_FIT)

    @pytest.mark.parametrize("kind", FRAMES)
    def test_a_model_predicts_from_any_frame(self, mixed, plain, kind):
        frame, _ = mixed
        X = FRAMES[kind](frame)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # arrays have no names
            assert plain.predict(X) == pytest.approx(plain.predict(frame), rel=SAME_FIT)

    def test_numeric_tables_give_one_fit_from_numpy_too(self):
        frame, y = draw(missing=False)
        frame = frame[["age", "dose", "size"]]
        one = make().fit(frame, y)
        other = make(basis={1: "spline", 2: "poly2"}).fit(frame.to_numpy(), y)
        assert np.array_equal(one.coef_, other.coef_)
        gaps = frame.where(frame["dose"] < 6)
        one = make().fit(gaps, y)
        other = make(basis={1: "spline", 2: "poly2"}).fit(gaps.to_numpy(), y)
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
    def test_a_flag_may_come_as_any_type(self, mixed, plain, kind):
        frame, y = mixed
        flag = frame["member"].astype(kind)
        est = make().fit(frame.assign(member=flag), y)
        assert est.coef_ == pytest.approx(plain.coef_, rel=SAME_FIT)

    def test_unused_and_unordered_categories_do_not_matter(self, mixed, plain):
        frame, y = mixed
        region = pd.Categorical(frame["region"], ["west", "mars", "south", "north"])
        est = make().fit(frame.assign(region=region), y)
        assert np.array_equal(est.coef_, plain.coef_)
        assert est.predict(frame) == pytest.approx(plain.predict(frame), rel=SAME_FIT)

    def test_ordered_categories_keep_their_order(self, mixed):
        frame, y = mixed
        order = ["west", "south", "north"]
        region = pd.Categorical(frame["region"], order, ordered=True)
        est = make().fit(frame.assign(region=region), y)
        assert est.model_.features.levels(4) == tuple(order)
        enum = to_polars(frame).with_columns(pl.col("region").cast(pl.Enum(order)))
        assert np.array_equal(make().fit(enum, y).coef_, est.coef_)

    def test_numbers_are_categories_where_declared(self, mixed):
        frame, y = mixed
        code = frame["region"].map({"north": 1, "south": 2, "west": 3})
        est = make(categorical=["region"]).fit(frame.assign(region=code), y)
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

    def test_an_unseen_level_may_stand_at_the_reference(self, mixed, plain):
        frame, y = mixed
        est = make(handle_unknown="reference").fit(frame, y)
        baseline = est.model_.features.levels(4)[int(est.reference_[4])]
        unseen = est.predict(frame.assign(region="mars"))
        assert np.array_equal(unseen, est.predict(frame.assign(region=baseline)))
        assert np.array_equal(est.coef_, plain.coef_)

    def test_missing_values_are_refused_by_default(self, mixed):
        frame, y = mixed
        row = int(frame["dose"].isna().argmax())
        with pytest.raises(ValueError, match=rf"'dose' .* row {row}\..*indicator"):
            make(missing="error").fit(frame, y)
        known = frame.assign(dose=frame["dose"].fillna(1.0))
        row = int(frame["region"].isna().argmax())
        with pytest.raises(ValueError, match=rf"'region' .* row {row}\..*indicator"):
            make(missing="error").fit(known, y)

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

    def test_an_indicator_changes_nothing_where_nothing_is_missing(self):
        frame, y = draw(missing=False)
        est, same = make().fit(frame, y), make(missing="error").fit(frame, y)
        assert np.array_equal(est.coef_, same.coef_)

    def test_reordered_names_are_refused(self, mixed, plain):
        frame, _ = mixed
        for X in (frame[NAMES[::-1]], to_polars(frame).select(NAMES[::-1])):
            with pytest.raises(ValueError, match="must be in the same order"):
                plain.predict(X)
        with pytest.raises(ValueError, match="yet now missing:\n- sex"):
            plain.predict(frame.drop(columns="sex"))

    def test_another_number_of_columns_is_refused(self, mixed, plain):
        frame, y = mixed
        est = by_position(make()).fit(to_objects(frame), y)
        for X in (to_objects(frame)[:, :4], to_objects(frame)[:, :4].tolist()):
            with pytest.raises(
                ValueError, match="X has 4 features, but .* expecting 6"
            ):
                est.predict(X)
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            est.predict(np.ones(6))

    def test_dates_are_refused(self, mixed):
        frame, y = mixed
        days = pd.date_range("2020-01-01", periods=N_ROWS)
        with pytest.raises(TypeError, match="'age' holds dates.*days since"):
            make().fit(frame.assign(age=days), y)

    def test_identifiers_are_refused_as_categories(self, mixed):
        frame, y = mixed
        names = [f"patient {row}" for row in range(N_ROWS)]
        with pytest.raises(ValueError, match="'sex' has 160 levels .*too many"):
            make().fit(frame.assign(sex=names), y)

    def test_a_single_level_has_no_effect(self, mixed):
        frame, y = mixed
        with pytest.warns(DataWarning, match="Constant column 'sex'"):
            est = make().fit(frame.assign(sex="f"), y)
        assert not any(name.startswith("sex") for name in est.coef_names_)
        assert np.isfinite(est.predict(frame.assign(sex="f"))).all()

    def test_nothing_but_missing_values_is_refused(self, mixed):
        frame, y = mixed
        for name in ("age", "sex"):
            with pytest.raises(ValueError, match=rf"'{name}' .*missing values .* only"):
                make().fit(frame.assign(**{name: None}), y)
        rows = frame["dose"].notna().to_numpy()
        with pytest.raises(ValueError, match="'dose' .*missing values .* only"):
            make().fit(frame, y, sample_weight=np.where(rows, 0.0, 1.0))

    def test_a_failed_fit_leaves_the_previous_one(self, mixed):
        frame, y = mixed
        est = make(max_iter=2).fit(frame, y)
        before = est.predict(frame)
        with pytest.raises(ValueError):
            est.fit(frame.assign(age=np.inf), y)
        assert np.array_equal(est.predict(frame), before)

    @pytest.mark.parametrize("name", ["missing", "handle_unknown"])
    def test_unknown_options_are_listed(self, mixed, name):
        with pytest.raises(ValueError, match=f"^{name} must be one of"):
            make(**{name: "impute"}).fit(*mixed)


class TestParity:
    """Without penalty and network the fits are those of statsmodels."""

    def fit(self, frame, y, **options):
        return NIMORegressor(alpha=0.0, max_iter=0, **options).fit(frame, y)

    def test_levels_are_treatment_contrasts(self):
        frame, y = draw(missing=False)
        est = self.fit(frame[["age", "sex", "region"]], y, reference={"region": "west"})
        oracle = smf.ols(
            "y ~ age + C(sex, Treatment('f')) + C(region, Treatment('west'))",
            frame.assign(y=y),
        ).fit()
        read = dict(zip(est.coef_names_, est.coef_, strict=True))
        assert read["age"] == pytest.approx(oracle.params["age"], rel=PARITY)
        for name, key in (
            ("sex[m]", "C(sex, Treatment('f'))[T.m]"),
            ("region[north]", "C(region, Treatment('west'))[T.north]"),
            ("region[south]", "C(region, Treatment('west'))[T.south]"),
        ):
            assert read[name] == pytest.approx(oracle.params[key], rel=PARITY)

    def test_a_missing_value_is_a_level_at_the_reference(self):
        frame, y = draw()
        est = self.fit(frame[["age", "dose"]], y, missing="indicator")
        mean = frame["dose"].mean()
        oracle = smf.ols(
            "y ~ age + dose + gone",
            frame.assign(
                y=y, gone=frame["dose"].isna() * 1.0, dose=frame["dose"].fillna(mean)
            ),
        ).fit()
        expected = oracle.params[["age", "dose", "gone"]].to_numpy()
        assert est.coef_names_.tolist() == ["age", "dose", "dose[missing]"]
        assert est.coef_ == pytest.approx(expected, rel=PARITY)

    def test_a_spline_is_a_natural_spline_of_the_same_knots(self):
        frame, y = draw(missing=False)
        est = self.fit(frame[["dose", "age"]], y, basis={"dose": "spline"})
        basis = est.model_.features.bases[0]
        low, *inner, high = basis.reference + basis.scale * basis.knots
        bounds = f"knots={inner}, lower_bound={low!r}, upper_bound={high!r}"
        bounds = bounds.replace("np.float64", "")
        oracle = smf.ols(f"y ~ age + cr(dose, {bounds}) - 1", frame.assign(y=y)).fit()
        fitted = est.predict(frame[["dose", "age"]])
        assert fitted == pytest.approx(oracle.fittedvalues, rel=PARITY, abs=PARITY)

    def test_a_parabola_is_a_polynomial(self):
        frame, y = draw(missing=False)
        est = self.fit(frame[["size", "age"]], y, basis={"size": "poly2"})
        oracle = smf.ols("y ~ size + I(size**2) + age", frame.assign(y=y)).fit()
        fitted = est.predict(frame[["size", "age"]])
        assert fitted == pytest.approx(oracle.fittedvalues, rel=PARITY, abs=PARITY)
        slope = (
            oracle.params["size"]
            + 2 * oracle.params["I(size ** 2)"] * frame["size"].mean()
        )
        assert est.coef_[0] == pytest.approx(slope, rel=PARITY)

    def test_logistic_contrasts_are_log_odds_ratios(self):
        frame, y = draw(400, missing=False)
        label = (y > np.median(y)).astype(int)
        est = NIMOClassifier(alpha=0.0, max_iter=0).fit(frame[["age", "region"]], label)
        oracle = smf.logit(
            "y ~ age + C(region, Treatment('north'))", frame.assign(y=label)
        ).fit(disp=0)
        expected = oracle.params.iloc[[3, 1, 2]].to_numpy()
        assert est.coef_ == pytest.approx(expected, rel=1e-5)


class TestRowsAndWeights:
    OPTIONS = {"max_iter": 15}

    def test_integer_weights_are_repetitions(self, mixed):
        frame, y = mixed
        weight = np.random.default_rng(1).integers(0, 4, N_ROWS)
        weighted = make(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        rows = np.repeat(np.arange(N_ROWS), weight)
        repeated = make(**self.OPTIONS).fit(frame.iloc[rows], y[rows])
        assert np.array_equal(weighted.coef_, repeated.coef_)
        assert np.array_equal(weighted.predict(frame), repeated.predict(frame))

    def test_the_order_of_rows_does_not_matter(self, mixed):
        frame, y = mixed
        order = np.random.default_rng(2).permutation(N_ROWS)
        one = make(**self.OPTIONS).fit(frame, y)
        other = make(**self.OPTIONS).fit(frame.iloc[order], y[order])
        assert np.array_equal(one.predict(frame), other.predict(frame))

    def test_the_search_counts_rows_the_same_way(self, mixed):
        frame, y = mixed
        weight = np.random.default_rng(1).integers(0, 3, N_ROWS)
        rows = np.random.default_rng(2).permutation(np.repeat(range(N_ROWS), weight))
        options = {"max_iter": 3, "hidden": (3, 3), "basis": "auto"}
        weighted = make(NIMORegressorCV, **options).fit(frame, y, sample_weight=weight)
        repeated = make(NIMORegressorCV, **options).fit(frame.iloc[rows], y[rows])
        assert np.array_equal(weighted.coef_, repeated.coef_)

    def test_levels_of_weightless_rows_are_unknown(self, mixed):
        frame, y = mixed
        weight = np.where(frame["region"] == "west", 0.0, 1.0)
        est = make(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        kept = weight > 0
        same = make(**self.OPTIONS).fit(frame[kept], y[kept])
        assert est.model_.features.levels(4) == ("north", "south")
        assert np.array_equal(est.coef_, same.coef_)
        with pytest.raises(ValueError, match="level 'west'"):
            est.predict(frame)

    def test_missing_values_of_weightless_rows_are_none(self, mixed):
        frame, y = mixed
        weight = frame["dose"].notna().to_numpy() * 1.0
        est = make(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        assert "dose[missing]" not in est.coef_names_

    def test_weights_can_lift_too_many_levels_as_little_as_repetition(self, mixed):
        frame, y = mixed
        names = [f"patient {row}" for row in range(N_ROWS)]
        rows = np.repeat(range(N_ROWS), 4)
        with pytest.raises(ValueError, match="'sex' has 160 levels in 160 distinct"):
            make().fit(frame.assign(sex=names).iloc[rows], y[rows])


class TestReference:
    def test_the_mean_row_is_not_everyones_reference(self, mixed):
        frame, y = mixed
        given = {"age": 40, "size": -1.5, "sex": "m", "region": "west", "member": True}
        est = make(reference=given).fit(frame, y)
        features = est.model_.features
        assert est.reference_[[0, 2]].tolist() == [40.0, -1.5]
        assert features.levels(3)[int(est.reference_[3])] == "m"
        assert features.levels(4)[int(est.reference_[4])] == "west"
        assert est.reference_[5] == 1.0
        assert est.reference_[1] == pytest.approx(frame["dose"].mean())

    def test_another_reference_is_the_same_line_without_a_network(self):
        frame, y = draw(missing=False)
        options = {"alpha": 0.0, "max_iter": 0, "basis": CURVES}
        one = NIMORegressor(**options).fit(frame, y)
        other = NIMORegressor(
            reference={"age": 40, "region": "west", "sex": "m"}, **options
        ).fit(frame, y)
        assert other.predict(frame) == pytest.approx(one.predict(frame), rel=PARITY)
        assert one.coef_[0] == pytest.approx(other.coef_[0], rel=PARITY)

    def test_a_reference_far_from_everyone_is_reported(self, mixed):
        frame, y = mixed
        with pytest.warns(DataWarning, match="No row lies near .*'age'") as caught:
            make(reference={"age": 150}).fit(frame, y)
        assert caught[0].filename == __file__

    @pytest.mark.parametrize(
        ("reference", "message"),
        [
            ({"height": 1}, "reference names column 'height'"),
            ({"sex": "x"}, "'sex' is 'x', which is none of its levels: 'f', 'm'"),
            ({"age": "old"}, "^reference must be one of 'auto', 'mean', 'median'"),
            ({"age": np.nan}, "'age' must be a finite number"),
        ],
    )
    def test_nonsense_is_refused_by_name(self, mixed, reference, message):
        with pytest.raises(ValueError, match=message):
            make(reference=reference).fit(*mixed)


class TestExtrapolation:
    def test_rows_within_the_training_range_score_zero(self, mixed, plain):
        frame, _ = mixed
        assert not plain.extrapolation_score(frame).any()

    def test_beyond_it_the_largest_distance_in_standard_deviations_counts(
        self, mixed, plain
    ):
        frame, _ = mixed
        far = frame.copy()
        far["age"] = frame["age"].max() + 3 * frame["age"].std(ddof=0)
        far["size"] = frame["size"].min() - 2 * frame["size"].std(ddof=0)
        assert plain.extrapolation_score(far) == pytest.approx(np.full(N_ROWS, 3.0))

    def test_levels_and_missing_values_do_not_count(self, mixed, plain):
        frame, _ = mixed
        other = frame.assign(region=None, dose=np.nan, sex="m")
        assert not plain.extrapolation_score(other).any()

    def test_clipped_networks_do_not_extrapolate(self, mixed):
        frame, y = mixed
        est = make(clip_inputs=True).fit(frame, y)
        edge = frame.assign(size=frame["size"].max())
        far = frame.assign(size=frame["size"].max() + 100)
        others = [j for j, name in enumerate(NAMES) if name != "size"]
        near = est.explain(edge, method="native").values[:, others]
        away = est.explain(far, method="native").values[:, others]
        assert np.array_equal(near, away)


class TestAuto:
    def curved(self, n_rows=400, seed=0, noise=0.5):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n_rows, 5))
        eta = X[:, 0] + X[:, 1] ** 2 + 1.5 * np.sin(3 * X[:, 2])
        return X, eta + noise * rng.normal(size=n_rows)

    KINDS = {"Linear": "linear", "Polynomial": "poly2", "Spline": "spline"}

    def chosen(self, est):
        return [self.KINDS[type(basis).__name__] for basis in est.model_.features.bases]

    @pytest.mark.parametrize("seed", range(3))
    def test_curves_are_found_and_lines_stay_lines(self, seed):
        X, y = self.curved(seed=seed)
        est = NIMORegressor(basis="auto", max_iter=0).fit(X, y)
        assert self.chosen(est) == ["linear", "poly2", "spline", "linear", "linear"]

    @pytest.mark.parametrize("family", ["poisson", "gamma"])
    def test_on_a_log_scale_too(self, family):
        X, eta = self.curved(800, noise=0.0)
        rng = np.random.default_rng(1)
        mean = np.exp(eta - eta.mean())
        y = rng.poisson(mean) if family == "poisson" else rng.gamma(3.0, mean / 3.0)
        est = NIMORegressor(family, basis="auto", max_iter=0).fit(X, y)
        assert self.chosen(est)[2] == "spline"
        assert self.chosen(est)[0] == self.chosen(est)[3] == "linear"

    def test_of_classes_too(self):
        X, y = self.curved(1000)
        est = NIMOClassifier(basis="auto", max_iter=0).fit(X, y > np.median(y))
        assert self.chosen(est) == ["linear", "poly2", "spline", "linear", "linear"]

    def test_only_named_features_are_chosen_for(self):
        X, y = self.curved()
        basis = {0: "spline", 1: "auto"}
        est = NIMORegressor(basis=basis, max_iter=0).fit(X, y)
        assert self.chosen(est) == ["spline", "poly2", "linear", "linear", "linear"]

    def test_noise_has_no_curves(self):
        X, _ = self.curved()
        y = np.random.default_rng(5).normal(size=len(X))
        est = NIMORegressor(basis="auto", max_iter=0).fit(X, y)
        assert self.chosen(est) == ["linear"] * 5

    def test_categories_and_missing_values_are_no_obstacle(self, mixed):
        frame, y = mixed
        est = make(basis="auto", max_iter=5).fit(frame, y)
        assert np.isfinite(est.predict(frame)).all()
        inner = [
            basis.basis if isinstance(basis, OrMissing) else basis
            for basis in est.model_.features.bases
        ]
        assert type(inner[1]).__name__ == "Spline"

    @pytest.mark.parametrize("max_lines", [4, 100])
    def test_many_features_compete_for_curves(self, max_lines, monkeypatch):
        monkeypatch.setattr("sknimo.training._curves.MAX_CURVES", 3)
        monkeypatch.setattr("sknimo.training._curves.MAX_LINES", max_lines)
        X, y = self.curved()
        rng = np.random.default_rng(3)
        wide = np.column_stack([rng.normal(size=(len(X), 6)), X])
        est = NIMORegressor(basis="auto", max_iter=0).fit(wide, y)
        assert self.chosen(est)[6:9] == ["linear", "poly2", "spline"]
        assert set(self.chosen(est)[:6]) == {"linear"}


class TestSelfInteraction:
    """The paper's limitation: y = x1^2 + x2^2 + x3^2 + e, unit noise."""

    @staticmethod
    def draw(n_rows, seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2, 2, (n_rows, 3))
        truth = (X**2).sum(axis=1)
        return X, truth, truth + rng.normal(size=n_rows)

    def error(self, basis, seed=0):
        """Mean squared error on new rows, their unit noise included."""
        X, _, y = self.draw(300, seed)
        est = NIMORegressorCV(basis=basis, n_starts=1, random_state=0).fit(X, y)
        new, truth, _ = self.draw(4000, 1000 + seed)
        return est, 1 + np.mean((est.predict(new) - truth) ** 2)

    def test_lines_cannot_see_it(self):
        assert 5.0 < self.error("linear")[1] < 5.6

    @pytest.mark.parametrize("basis", ["poly2", "spline", "auto"])
    def test_curves_can(self, basis):
        est, error = self.error(basis)
        assert error <= 1.05
        grid = np.linspace(-2, 2, 41)
        for j in range(3):
            table = np.tile(est.model_.features.reference, (41, 1))
            table[:, j] = grid
            curve = est.model_.contributions(table)[:, j]
            gap = (curve - curve.mean()) - (grid**2 - (grid**2).mean())
            assert np.sqrt(np.mean(gap**2)) < 0.05 * 4  # five percent of the range


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
    def test_grids_and_folds_work_on_frames(self, mixed, convert):
        frame, y = mixed
        X = convert(frame)
        grid = {"basis": ["linear", {"size": "poly2"}], "missing": ["indicator"]}
        search = GridSearchCV(NIMORegressor(**self.OPTIONS), grid, cv=2).fit(X, y)
        assert search.best_params_["basis"] == {"size": "poly2"}
        assert np.isfinite(search.predict(X)).all()
        est = make(**self.OPTIONS)
        assert cross_val_predict(est, X, y, cv=2).shape == y.shape

    def test_a_fold_without_a_level_can_still_be_predicted(self, mixed):
        frame, y = mixed
        region = frame["region"].where(frame.index != 3, "mars")
        est = make(handle_unknown="reference", **self.OPTIONS)
        predicted = cross_val_predict(est, frame.assign(region=region), y, cv=4)
        assert np.isfinite(predicted).all()

    def test_estimators_are_cloned_with_their_options(self):
        est = make(reference={"sex": "m"}, categorical=["member"])
        assert clone(est).get_params() == est.get_params()
