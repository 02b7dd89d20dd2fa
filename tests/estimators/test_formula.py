"""Formulas say which columns are features and how they enter."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import statsmodels.formula.api as smf
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    load,
)
from sknimo.features import Levels, Linear, Polynomial, Spline

PARITY = 1e-6  # an unpenalised fit by another solver
FLAT = {"alpha": 0.0, "max_iter": 0}
N_ROWS = 120

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(50, 10, N_ROWS),
            "bmi": rng.gamma(9.0, 3.0, N_ROWS),
            "dose": rng.gamma(2.0, 2.0, N_ROWS),
            "sex": rng.choice(["f", "m"], N_ROWS),
            "site": rng.choice([1, 2, 3], N_ROWS, p=[0.5, 0.3, 0.2]),
            "blood pressure": rng.normal(120, 10, N_ROWS),
        },
        index=np.arange(N_ROWS)[::-1] + 1000,  # not the usual one
    )
    frame["y"] = (
        0.1 * frame["age"]
        + np.log(frame["dose"])
        + (frame["sex"] == "m")
        + np.sin(frame["bmi"] / 5)
        + 0.5 * (frame["site"] == 2)
        + rng.normal(size=N_ROWS)
    )
    frame["ill"] = np.where(frame["y"] > frame["y"].median(), "yes", "no")
    return frame


def fit(formula, data, **options):
    return NIMORegressor.from_formula(formula, data, **FLAT | options)


def kinds(est):
    return [type(basis) for basis in est.model_.features.bases]


class TestTerms:
    def test_each_is_one_feature(self, data):
        est = fit("y ~ age + C(site) + bs(bmi) + sex + np.log(dose)", data)
        assert est.feature_names_in_.tolist() == [
            "age",
            "site",
            "bmi",
            "sex",
            "np.log(dose)",
        ]
        assert kinds(est) == [Linear, Levels, Spline, Levels, Linear]

    @pytest.mark.parametrize("term", ["bs(bmi)", "cr(bmi)", "cs(bmi)", "s(bmi)"])
    def test_splines_have_many_names(self, data, term):
        assert kinds(fit(f"y ~ {term}", data)) == [Spline]

    def test_parabolas(self, data):
        assert kinds(fit("y ~ poly(bmi, 2)", data)) == [Polynomial]
        assert kinds(fit("y ~ poly(bmi, degree=2)", data)) == [Polynomial]

    @pytest.mark.parametrize(
        "coding",
        [
            "Treatment({})",
            "Treatment(reference={})",
            "contr.treatment({})",
            "contr.treatment(base={})",
        ],
    )
    def test_a_category_may_name_its_baseline(self, data, coding):
        for level, other in (("m", "f"), ("f", "m")):
            est = fit(f"y ~ age + C(sex, {coding.format(repr(level))})", data)
            assert est.coef_names_.tolist() == ["age", f"sex[{other}]"]

    def test_a_baseline_may_be_a_number(self, data):
        est = fit("y ~ C(site, Treatment(3))", data)
        assert est.coef_names_.tolist() == ["site[1]", "site[2]"]

    def test_names_may_be_quoted(self, data):
        est = fit("y ~ `blood pressure` + age", data)
        assert est.feature_names_in_.tolist() == ["blood pressure", "age"]
        assert kinds(fit("y ~ bs(`blood pressure`)", data)) == [Spline]
        est = fit("y ~ np.log(`blood pressure`)", data)
        assert np.isfinite(est.predict(data)).all()

    def test_a_dot_stands_for_all_other_columns(self, data):
        est = fit("y ~ .", data.drop(columns="ill"))
        assert est.feature_names_in_.tolist() == list(data.columns[:6])

    @pytest.mark.parametrize(
        ("term", "oracle"),
        [
            ("np.log(dose)", "np.log(dose)"),
            ("log(dose)", "np.log(dose)"),
            ("I(dose**2)", "I(dose**2)"),
            ("I(dose > 2)", "I(1.0 * (dose > 2))"),
            ("{dose + age}", "I(dose + age)"),
            ("I(sex == 'm')", "I(1.0 * (sex == 'm'))"),
            ("I((age > 50) & ~(dose < 2))", "I(1.0 * ((age > 50) & ~(dose < 2)))"),
            ("I(40 < age <= 50)", "I(1.0 * ((40 < age) & (age <= 50)))"),
            ("np.where(dose > 2, dose, 2)", "np.where(dose > 2, dose, 2)"),
        ],
    )
    def test_expressions_are_numbers(self, data, term, oracle):
        est = fit(f"y ~ {term}", data)
        oracle = smf.ols(f"y ~ {oracle}", data).fit()
        assert est.predict(data) == pytest.approx(oracle.fittedvalues, rel=PARITY)


class TestFits:
    FORMULA = "y ~ age + C(site, Treatment(1)) + C(sex) + np.log(dose)"

    def test_without_penalty_and_network_are_those_of_statsmodels(self, data):
        est = fit(self.FORMULA, data, reference={"sex": "f"})
        oracle = smf.ols(self.FORMULA, data).fit()
        expected = {
            "age": "age",
            "site[2]": "C(site, Treatment(1))[T.2]",
            "site[3]": "C(site, Treatment(1))[T.3]",
            "sex[m]": "C(sex)[T.m]",
            "np.log(dose)": "np.log(dose)",
        }
        read = dict(zip(est.coef_names_, est.coef_, strict=True))
        for name, key in expected.items():
            assert read[name] == pytest.approx(oracle.params[key], rel=PARITY)
        assert est.predict(data) == pytest.approx(
            oracle.predict(data).to_numpy(), rel=PARITY
        )

    @pytest.mark.parametrize(
        "convert",
        [pl.from_pandas, lambda frame: pa.Table.from_pandas(frame)],
        ids=["polars", "arrow"],
    )
    def test_are_the_same_from_every_frame_library(self, data, convert):
        formula = "y ~ age + C(site) + bs(bmi) + sex + np.log(dose)"
        options = {"alpha": 1e-3, "max_iter": 10, "random_state": 0}
        one = NIMORegressor.from_formula(formula, data, **options)
        other = NIMORegressor.from_formula(formula, convert(data), **options)
        assert other.coef_ == pytest.approx(one.coef_, rel=1e-12)
        assert other.predict(convert(data)) == pytest.approx(
            one.predict(data), rel=1e-12
        )

    def test_are_those_of_the_columns_themselves(self, data):
        est = fit("y ~ age + bs(bmi) + sex", data, max_iter=10, random_state=0)
        same = NIMORegressor(
            basis={"bmi": "spline"}, **FLAT | {"max_iter": 10}, random_state=0
        ).fit(data[["age", "bmi", "sex"]], data["y"])
        assert np.array_equal(est.coef_, same.coef_)

    def test_a_target_may_be_an_expression(self, data):
        positive = data.assign(y=np.exp(data["y"] / 5))
        est = fit("np.log(y) ~ age + sex", positive)
        same = fit("y ~ age + sex", data.assign(y=data["y"] / 5))
        assert est.coef_ == pytest.approx(same.coef_, rel=PARITY)

    def test_weights_and_offsets_are_those_of_fit(self, data):
        weight = np.arange(N_ROWS) % 3
        offset = np.linspace(-1, 1, N_ROWS)
        est = fit("y ~ age + sex", data, sample_weight=weight, offset=offset)
        same = NIMORegressor(**FLAT).fit(
            data[["age", "sex"]], data["y"], sample_weight=weight, offset=offset
        )
        assert np.array_equal(est.coef_, same.coef_)
        assert np.array_equal(
            est.predict(data, offset=offset),
            same.predict(data[["age", "sex"]], offset=offset),
        )

    @pytest.mark.parametrize(
        ("cls", "target", "options"),
        [
            (NIMOClassifier, "ill", {"max_iter": 3}),
            (NIMORegressorCV, "y", {"n_starts": 1, "max_iter": 2, "relax": False}),
            (NIMOClassifierCV, "ill", {"n_starts": 1, "max_iter": 2, "relax": False}),
        ],
    )
    def test_every_class_takes_formulas(self, data, cls, target, options):
        est = cls.from_formula(f"{target} ~ age + C(site) + bs(bmi)", data, **options)
        assert isinstance(est, cls)
        assert est.predict(data).shape == (N_ROWS,)
        assert est.explain(data.head(3)).names == ("age", "site", "bmi")

    def test_parameters_apply_to_what_the_formula_leaves_open(self, data):
        est = fit(
            "y ~ age + poly(bmi, 2) + C(sex, Treatment('m')) + dose",
            data,
            basis="spline",
            reference="median",
        )
        assert kinds(est) == [Spline, Polynomial, Levels, Spline]
        assert est.reference_[[0, 3]] == pytest.approx(
            data[["age", "dose"]].median().to_numpy()
        )
        est = fit("y ~ age + sex + dose", data, basis={"age": "poly2"})
        assert kinds(est) == [Polynomial, Levels, Linear]
        est = fit("y ~ site + age", data, categorical="site")
        assert kinds(est) == [Levels, Linear]

    def test_missing_values_are_those_of_fit(self, data):
        gaps = data.assign(dose=data["dose"].where(data["dose"] > 1))
        with pytest.raises(ValueError, match=r"'np.log\(dose\)' .*NaN"):
            fit("y ~ np.log(dose) + sex", gaps)
        est = fit("y ~ np.log(dose) + sex", gaps, missing="indicator")
        assert "np.log(dose)[missing]" in est.coef_names_

    @pytest.mark.parametrize(
        ("formula", "reference", "shown"),
        [
            ("y ~ age + bmi", None, "(mean)"),
            ("y ~ age + bmi", "median", "(median)"),
            ("y ~ age + bmi", {"age": 50}, "(set for 1 of 2 features)"),
            ("y ~ age + bmi + C(sex, Treatment('m'))", None, "(set for 1 of 3 "),
            ("y ~ age + C(sex, Treatment('m'))", {"age": 50}, "(set for 2 of 2 "),
        ],
    )
    def test_a_summary_counts_the_references_that_were_set(
        self, data, formula, reference, shown
    ):
        given = {} if reference is None else {"reference": reference}
        assert f"Reference {shown}" in str(fit(formula, data, **given).summary())


class TestPrediction:
    FORMULA = "y ~ age + bs(bmi) + sex + np.log(dose)"

    def test_needs_only_the_columns_of_the_features(self, data):
        est = fit(self.FORMULA, data)
        columns = ["dose", "sex", "bmi", "age"]
        assert np.array_equal(est.predict(data[columns]), est.predict(data))
        one = est.predict(data.head(1))
        assert one == pytest.approx(est.predict(data)[:1])

    def test_says_which_column_is_missing(self, data):
        est = fit(self.FORMULA, data)
        with pytest.raises(ValueError, match="needs column 'dose', which the data do"):
            est.predict(data.drop(columns="dose"))

    def test_refuses_arrays(self, data):
        est = fit("y ~ age + bmi", data)
        with pytest.raises(TypeError, match="from the formula .* pass a data frame"):
            est.predict(data[["age", "bmi"]].to_numpy())

    def test_survives_pickling(self, data):
        est = fit(self.FORMULA, data)
        again = pickle.loads(pickle.dumps(est))
        assert np.array_equal(again.predict(data), est.predict(data))

    def test_a_loaded_model_takes_the_features_themselves(self, data, tmp_path):
        est = fit(self.FORMULA, data)
        est.save(tmp_path / "model.sknimo")
        again = load(tmp_path / "model.sknimo")
        features = data.assign(**{"np.log(dose)": np.log(data["dose"])})
        features = features[again.feature_names_in_.tolist()]
        assert again.predict(features) == pytest.approx(est.predict(data), rel=1e-12)

    def test_the_model_can_be_fitted_again(self, data):
        est = fit(self.FORMULA, data)
        before = est.predict(data)
        est.fit(data, data["y"] + 1.0)
        assert est.predict(data) == pytest.approx(before + 1.0)


class TestRefusals:
    @pytest.mark.parametrize(
        ("formula", "message"),
        [
            ("y ~ age:bmi", "interaction 'age:bmi'.*network finds interactions"),
            ("y ~ age * bmi", "interaction 'age:bmi'.*network finds interactions"),
            ("y ~ (age + bmi) ** 2", "interaction 'age:bmi'"),
            ("y ~ age - 1", "removes the intercept.*prediction at the reference"),
            ("y ~ 0 + age", "removes the intercept"),
            ("y ~ 1", "has no features"),
            ("~ age", "write a target, ~, and features"),
            ("age", "write a target, ~, and features"),
            ("y ~ age | bmi", "write a target, ~, and features"),
            ("y + dose ~ age", "needs a single target"),
            ("y ~ age +", "Cannot read the formula"),
            ("y ~ (age", "Cannot read the formula"),
            ("y ~ height", "names column 'height'; the data have 'age', 'bmi'"),
            ("height ~ age", "names column 'height'; the data have 'age', 'bmi'"),
            ("y ~ bs(height)", "single column"),
            ("y ~ bs(np.log(bmi))", "single column.*Compute the column first"),
            ("y ~ bs(bmi, df=4)", "smoothness is learned.*Write bs"),
            ("y ~ poly(bmi, 3)", r"write poly\(bmi, 2\), or s\(bmi\)"),
            ("y ~ poly(bmi)", r"write poly\(bmi, 2\)"),
            ("y ~ C(sex, Sum)", r"write C\(column\) or C\(column, Treatment"),
            ("y ~ C(sex, Treatment(m))", "m is neither text nor a number"),
            ("y ~ C(sex, Treatment('x'))", "'sex' is 'x', which is none of its levels"),
            ("y ~ bs(sex)", "'sex' is 'spline', but its values are levels"),
            ("y ~ age + bs(age)", "'age' twice, .*includes the line"),
            ("y ~ dose + np.log(dose)", "'dose' twice"),
            ("y ~ y + age", "'y' twice"),
            ("y ~ age + offset(dose)", "Pass the values as offset="),
            ("y ~ center(age)", "'center' is not defined.*Compute other columns first"),
            ("y ~ dose ** 2", r"Write 'I\(dose \*\* 2\)' for the power of a column"),
            ("y ~ age + 2", "'2', which names no column"),
            ("y ~ C()", r"write C\(column\)"),
            ("y ~ I(sex < 'm')", "levels have no order"),
            ("y ~ I(sex + 1)", r"'sex' holds text. .* or write C\(sex\)"),
            ("y ~ I(age & bmi)", "& joins conditions"),
            ("y ~ age + nosuch(dose)", "Cannot compute 'nosuch.*not defined"),
            ("y ~ np.log(sex)", r"Cannot compute 'np.log\(sex\)'"),
            ("np.log(sex) ~ age", r"Cannot compute 'np.log\(sex\)'"),
        ],
    )
    def test_say_what_is_wrong(self, data, formula, message):
        with pytest.raises(ValueError, match=message):
            fit(formula, data)

    def test_data_must_be_a_frame_and_the_formula_text(self, data):
        with pytest.raises(TypeError, match="data must be a data frame .* got ndarray"):
            fit("y ~ age", data[["age"]].to_numpy())
        with pytest.raises(TypeError, match="formula must be a string, got list"):
            fit(["y", "age"], data)

    def test_names_of_the_caller_are_no_columns(self, data):
        secret = 3.0  # noqa: F841 (an evaluation in this scope would find it)
        with pytest.raises(ValueError, match="not defined"):
            fit("y ~ np.multiply(dose, secret)", data)

    def test_columns_without_text_for_a_name_are_named(self, data):
        odd = data.rename(columns={"age": 7})
        with pytest.raises(TypeError, match="Column 7 .* cannot name it. Rename it"):
            fit("y ~ .", odd)


def hill(dose, half):
    return dose / (dose + half)


class TestFunctionsOfTheCaller:
    def test_run_by_name(self, data):
        est = fit("y ~ hill(dose, 3) + age", data, functions={"hill": hill})
        same = fit("y ~ I(dose / (dose + 3)) + age", data)
        assert np.array_equal(est.coef_, same.coef_)
        again = pickle.loads(pickle.dumps(est))
        assert np.array_equal(again.predict(data), same.predict(data))

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda x: x - x.mean(), r"'own\(dose\)' depends on other rows"),
            (lambda x: x[:3], "not one number per row"),
            (lambda x: {}[0], "own raised KeyError: 0"),
            (lambda x: "text", "own raised ValueError"),
        ],
    )
    def test_give_one_number_per_row(self, data, function, message):
        with pytest.raises(ValueError, match=message):
            fit("y ~ own(dose)", data, functions={"own": function})

    def test_do_not_replace_those_of_formulas(self, data):
        with pytest.raises(ValueError, match="'log', which formulas already know"):
            fit("y ~ log(dose)", data, functions={"log": hill})
        with pytest.raises(TypeError, match="functions must be a dict .* got list"):
            fit("y ~ hill(dose, 3)", data, functions=[hill])


def test_a_clone_reads_tables_by_the_formula():
    """Cross-validation of a whole frame had trained on the target, too."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": rng.normal(size=120), "b": rng.normal(size=120)})
    data["y"] = data["a"] + 3 * rng.normal(size=120)
    est = NIMORegressor.from_formula("y ~ a", data, max_iter=0)
    scores = cross_val_score(est, data, data["y"])
    assert scores.max() < 0.5
    again = clone(est).fit(data, data["y"])
    assert again.coef_names_ == est.coef_names_
    assert again.predict(data) == pytest.approx(est.predict(data))
