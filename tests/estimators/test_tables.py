"""Real tables: what categories, curves, missing values and references mean."""

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
import torch

from sknimo import (
    DataWarning,
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
)
from sknimo.features import Clipped, OrMissing, Ramps, Spline

IDENTITY = 1e-10  # the bar of the issue, float64
SAME_FIT = 1e-12  # the same numbers from another frame library
PARITY = 1e-6  # an unpenalised fit by another solver

N_ROWS = 160
NAMES = ["age", "dose", "size", "sex", "region", "member"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*positional reference:UserWarning"),
]


def crossed_classes(frame, seed=1):
    """Classes that only an interaction tells apart."""
    noise = np.random.default_rng(seed).normal(size=len(frame))
    cross = (frame["age"] - 50) / 10 * frame["size"] + 0.2 * noise
    return (cross > 0).astype(int).to_numpy()


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
    "ramps": {"basis": "ramps", "input_scaling": "ramps"},
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
def case(request, make_small, draw_mixed):
    name, options = request.param
    cls = {
        cls.__name__: cls
        for cls in (NIMORegressor, NIMOClassifier, NIMORegressorCV, NIMOClassifierCV)
    }[name]
    frame, y = draw_mixed(300)
    target = crossed_classes(frame) if "Classifier" in name else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = make_small(cls, **OPTIONS[options]).fit(frame, target)
    case = Case(est, frame, target)
    local = local_coef(case, est._read_table(frame))
    # Or every test below would hold of a straight line.
    assert np.ptp(local, axis=0).max() > 0.05 * np.abs(case.model.term_coef).max()
    return case


def local_coef(case, table):
    """Local coefficient of every term, (n, q)."""
    features = case.features
    with torch.no_grad():
        return case.model.local_term_coef(
            torch.as_tensor(features.terms(table)),
            torch.as_tensor(features.inputs(table)),
        ).numpy()


class TestWhatTheTableSays:
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

            inner = basis
            while isinstance(inner, OrMissing | Clipped):
                inner = inner.basis
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
    if isinstance(basis, Ramps):
        step = min(step, 0.4 * np.abs(basis.edges - basis.reference).min())
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


class TestParity:
    """Without penalty and network the fits are those of statsmodels."""

    def fit(self, frame, y, **options):
        return NIMORegressor(alpha=0.0, max_iter=0, **options).fit(frame, y)

    def test_levels_are_treatment_contrasts(self, draw_mixed):
        frame, y = draw_mixed(missing=False)
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

    def test_a_missing_value_is_a_level_at_the_reference(self, draw_mixed):
        frame, y = draw_mixed()
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

    def test_a_spline_is_a_natural_spline_of_the_same_knots(self, draw_mixed):
        frame, y = draw_mixed(missing=False)
        est = self.fit(frame[["dose", "age"]], y, basis={"dose": "spline"})
        basis = est.model_.features.bases[0]
        low, *inner, high = basis.reference + basis.scale * basis.knots
        bounds = f"knots={inner}, lower_bound={low!r}, upper_bound={high!r}"
        bounds = bounds.replace("np.float64", "")
        oracle = smf.ols(f"y ~ age + cr(dose, {bounds}) - 1", frame.assign(y=y)).fit()
        fitted = est.predict(frame[["dose", "age"]])
        assert fitted == pytest.approx(oracle.fittedvalues, rel=PARITY, abs=PARITY)

    def test_a_parabola_is_a_polynomial(self, draw_mixed):
        frame, y = draw_mixed(missing=False)
        est = self.fit(frame[["size", "age"]], y, basis={"size": "poly2"})
        oracle = smf.ols("y ~ size + I(size**2) + age", frame.assign(y=y)).fit()
        fitted = est.predict(frame[["size", "age"]])
        assert fitted == pytest.approx(oracle.fittedvalues, rel=PARITY, abs=PARITY)
        slope = (
            oracle.params["size"]
            + 2 * oracle.params["I(size ** 2)"] * frame["size"].mean()
        )
        assert est.coef_[0] == pytest.approx(slope, rel=PARITY)

    def test_logistic_contrasts_are_log_odds_ratios(self, draw_mixed):
        frame, y = draw_mixed(400, missing=False)
        label = (y > np.median(y)).astype(int)
        est = NIMOClassifier(alpha=0.0, max_iter=0).fit(frame[["age", "region"]], label)
        oracle = smf.logit(
            "y ~ age + C(region, Treatment('north'))", frame.assign(y=label)
        ).fit(disp=0)
        expected = oracle.params.iloc[[3, 1, 2]].to_numpy()
        assert est.coef_ == pytest.approx(expected, rel=1e-5)


class TestRowsAndWeights:
    OPTIONS = {"max_iter": 15}

    def test_integer_weights_are_repetitions(self, mixed, make_small):
        frame, y = mixed
        weight = np.random.default_rng(1).integers(0, 4, N_ROWS)
        weighted = make_small(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        rows = np.repeat(np.arange(N_ROWS), weight)
        repeated = make_small(**self.OPTIONS).fit(frame.iloc[rows], y[rows])
        assert np.array_equal(weighted.coef_, repeated.coef_)
        assert np.array_equal(weighted.predict(frame), repeated.predict(frame))

    def test_the_order_of_rows_does_not_matter(self, mixed, make_small):
        frame, y = mixed
        order = np.random.default_rng(2).permutation(N_ROWS)
        one = make_small(**self.OPTIONS).fit(frame, y)
        other = make_small(**self.OPTIONS).fit(frame.iloc[order], y[order])
        assert np.array_equal(one.predict(frame), other.predict(frame))

    def test_the_search_counts_rows_the_same_way(self, mixed, make_small):
        frame, y = mixed
        weight = np.random.default_rng(1).integers(0, 3, N_ROWS)
        rows = np.random.default_rng(2).permutation(np.repeat(range(N_ROWS), weight))
        options = {"max_iter": 3, "hidden": (3, 3), "basis": "auto"}
        weighted = make_small(NIMORegressorCV, **options).fit(
            frame, y, sample_weight=weight
        )
        repeated = make_small(NIMORegressorCV, **options).fit(frame.iloc[rows], y[rows])
        assert np.array_equal(weighted.coef_, repeated.coef_)

    def test_levels_of_weightless_rows_are_unknown(self, mixed, make_small):
        frame, y = mixed
        weight = np.where(frame["region"] == "west", 0.0, 1.0)
        est = make_small(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        kept = weight > 0
        same = make_small(**self.OPTIONS).fit(frame[kept], y[kept])
        assert est.model_.features.levels(4) == ("north", "south")
        assert np.array_equal(est.coef_, same.coef_)
        with pytest.raises(ValueError, match="level 'west'"):
            est.predict(frame)

    def test_missing_values_of_weightless_rows_are_none(self, mixed, make_small):
        frame, y = mixed
        weight = frame["dose"].notna().to_numpy() * 1.0
        est = make_small(**self.OPTIONS).fit(frame, y, sample_weight=weight)
        assert "dose[missing]" not in est.coef_names_

    def test_weights_can_lift_too_many_levels_as_little_as_repetition(
        self, mixed, make_small
    ):
        frame, y = mixed
        names = [f"patient {row}" for row in range(N_ROWS)]
        rows = np.repeat(range(N_ROWS), 4)
        with pytest.raises(ValueError, match="'sex' has 160 levels in 160 distinct"):
            make_small().fit(frame.assign(sex=names).iloc[rows], y[rows])


class TestReference:
    def test_the_mean_row_is_not_everyones_reference(self, mixed, make_small):
        frame, y = mixed
        given = {"age": 40, "size": -1.5, "sex": "m", "region": "west", "member": True}
        est = make_small(reference=given).fit(frame, y)
        features = est.model_.features
        assert est.reference_[[0, 2]].tolist() == [40.0, -1.5]
        assert features.levels(3)[int(est.reference_[3])] == "m"
        assert features.levels(4)[int(est.reference_[4])] == "west"
        assert est.reference_[5] == 1.0
        assert est.reference_[1] == pytest.approx(frame["dose"].mean())

    def test_another_reference_is_the_same_line_without_a_network(self, draw_mixed):
        frame, y = draw_mixed(missing=False)
        options = {
            "alpha": 0.0,
            "max_iter": 0,
            "basis": {"dose": "spline", "size": "poly2"},
        }
        one = NIMORegressor(**options).fit(frame, y)
        other = NIMORegressor(
            reference={"age": 40, "region": "west", "sex": "m"}, **options
        ).fit(frame, y)
        assert other.predict(frame) == pytest.approx(one.predict(frame), rel=PARITY)
        assert one.coef_[0] == pytest.approx(other.coef_[0], rel=PARITY)

    @pytest.mark.parametrize("cls", [NIMORegressor, NIMORegressorCV])
    def test_a_reference_far_from_everyone_is_reported(self, cls, mixed, make_small):
        frame, y = mixed
        est = make_small(cls, reference={"age": 150}, max_iter=2)
        with pytest.warns(DataWarning, match="No row lies near .*'age'") as caught:
            est.fit(frame, y)
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
    def test_nonsense_is_refused_by_name(self, mixed, reference, message, make_small):
        with pytest.raises(ValueError, match=message):
            make_small(reference=reference).fit(*mixed)


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

    def test_clipped_networks_do_not_extrapolate(self, mixed, make_small):
        frame, y = mixed
        est = make_small(clip_inputs=True).fit(frame, y)
        edge = frame.assign(size=frame["size"].max())
        far = frame.assign(size=frame["size"].max() + 100)
        others = [j for j, name in enumerate(NAMES) if name != "size"]
        near = est.explain(edge, method="native").values[:, others]
        away = est.explain(far, method="native").values[:, others]
        assert np.array_equal(near, away)


class TestRareThings:
    """One row of a level and three gaps, unpenalised, in a logistic regression."""

    GAPS = (3, 40, 77)

    @pytest.fixture(scope="class")
    @classmethod
    def frame(cls):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(
            {
                "age": rng.normal(60, 10, 300),
                "ward": rng.choice(["north", "south"], 300, p=[0.6, 0.4]),
            }
        )
        frame.loc[list(cls.GAPS), "age"] = np.nan
        frame.loc[5, "ward"] = "attic"
        return frame

    @pytest.fixture(scope="class")
    @classmethod
    def sick(cls, frame):
        rng = np.random.default_rng(1)
        logit = (frame["age"].fillna(60) - 60) / 10 + (frame["ward"] == "south")
        sick = np.array(rng.random(300) < 1 / (1 + np.exp(-logit)), dtype=int)
        # Alone they would have coefficients without end: all of them are ill.
        sick[[5, *cls.GAPS]] = 1
        return sick

    @pytest.fixture(scope="class")
    @classmethod
    def est(cls, frame, sick):
        plain = NIMOClassifier(alpha=0.0, max_iter=0, missing="indicator")
        return plain.fit(frame, sick)

    def test_the_fit_is_that_of_the_table_without_them(self, est, frame, sick):
        filled = frame.replace({"ward": {"attic": "north"}})
        filled["age"] = filled["age"].fillna(frame["age"].mean())
        other = NIMOClassifier(alpha=0.0, max_iter=0).fit(filled, sick)
        found = est.predict_proba(frame)
        assert found == pytest.approx(other.predict_proba(filled), abs=PARITY)

    def test_coefficients_of_their_own_are_zero(self, est):
        coef = dict(zip(est.coef_names_, est.coef_, strict=True))
        assert coef["ward[attic]"] == coef["age[missing]"] == 0
        assert coef["ward[south]"] > 0.5

    def test_summary_counts_them_and_says_what_they_count_as(self, est):
        text = " ".join(str(est.summary()).split())
        assert "attic n=1* too few" in text
        assert "missing n=3* too few" in text
        assert "age: missing counts as the reference" in text
        assert "ward: attic counts as north" in text

    def test_report_has_no_number_for_them(self, est, frame, sick):
        page = est.report(None, frame, sick).html
        assert "1 row, counts as north" in page
        assert "3 rows, counts as the reference" in page

    def test_a_flag_that_hardly_any_row_has_is_told(self, sick):
        flag = np.where(np.arange(300) < 2, "yes", "no")
        rare = pd.DataFrame({"age": np.linspace(40, 80, 300), "flag": flag})
        with pytest.warns(DataWarning, match="'flag' has hardly any row outside"):
            est = NIMOClassifier(max_iter=0).fit(rare, sick)
        assert est.coef_[1] == 0
