"""Formulas from strangers: nothing in them runs, and nothing in them takes long.

What a formula may hold is listed, everything else is refused by name. Honest random
expressions equal what Python computes; damaged ones work or are refused in words.
"""

import resource
import sys
import time
import traceback
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import strategies as st

from sknimo import NIMORegressor
from sknimo.estimators._formula import read_formula

MAX_SECONDS = 10
MAX_KILOBYTES = 2**20
N_ROWS = 20

# What Python itself announces before it acts; `ast.parse` is a mere "compile".
ACTS = {
    "exec",
    "open",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.system",
    "socket.connect",
    "subprocess.Popen",
}
watching = []


def notice(event, arguments):
    if watching and event in ACTS and not is_importing():
        watching.append((event, str(arguments)[:200]))
        raise AssertionError(f"a formula acted: {event}{arguments}"[:300])


def is_importing():
    """Whether a library loads a module of its own: narwhals does so when needed."""
    frames = traceback.walk_stack(None)
    return any("importlib" in frame.f_code.co_filename for frame, _ in frames)


@pytest.fixture(scope="module", autouse=True)
def hook():
    sys.addaudithook(notice)  # Python takes none back: it sleeps outside of `watched`


@contextmanager
def watched():
    """Fail if anything runs, and if it takes much time or memory."""
    watching[:] = ["armed"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    try:
        yield
    finally:
        seen = watching[1:]
        watching.clear()
    assert seen == []
    assert time.perf_counter() - start < MAX_SECONDS
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - memory < MAX_KILOBYTES


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N_ROWS),
            "b": rng.gamma(2.0, size=N_ROWS),
            "c": rng.normal(5.0, 2.0, N_ROWS),
            "sex": rng.choice(["f", "m"], N_ROWS),
            "my column": rng.normal(size=N_ROWS),
            "y": rng.normal(size=N_ROWS),
        }
    )


def fit(formula, frame, **options):
    return NIMORegressor.from_formula(formula, frame, alpha=0.01, max_iter=0, **options)


class TestNothingRuns:
    @pytest.mark.parametrize(
        ("term", "piece"),
        [
            ("np.add(b, __import__('os').system('touch x'))", "__import__.*system"),
            ("np.asarray(b).tofile('x')", "np.asarray.*tofile"),
            ("__import__('os').system('touch x')", "__import__.*system"),
            ("b.to_csv('x')", "b.to_csv"),
            ("eval('b')", "'eval'"),
            ("open('x', 'w')", "'open'"),
            ("np.load('x')", "np.load"),
            ("np.lib.npyio.DataSource('x')", "np.lib.npyio.DataSource"),
            ("I(b.__class__.__mro__)", "__mro__.*Attribute"),
            ("I(np.pi * b)", "np.pi.*Attribute"),
            ("I(b[0])", "Subscript"),
            ("I([x for x in b])", "ListComp"),
            ("I((lambda: b)())", "lambda"),
            ("I((b := 3))", "NamedExpr"),
            ("I(f'{b}')", "JoinedStr"),
            ("I(b if c else c)", "IfExp"),
            ("I(b and c)", "BoolOp"),
            ("I(b @ c)", "'b @ c'"),
            ("I({'b': b})", "Dict"),
            ("I(b + 'text')", "'text'.*Constant"),
            ("I(b + 1j)", "1j"),
            ("log(x=b)", r"log\(x=b\)"),
            ("log(*b)", "Starred"),
            ("log(b, c)", "takes 1 argument, got 2"),
            ("I(`b`.real)", "`b`.real.*Attribute"),
            ("`np.log`(b)", "`np.log`.* not defined"),
            ("C(sex, __import__('os').system('x'))", r"C\(column, Treatment"),
            ("C(sex, Treatment(__import__('os')))", "__import__.* neither text nor a"),
            ("bs(b, df=__import__('os').system('x'))", "smoothness is learned"),
            ("poly(b, degree=open('x', 'w'))", "open.* neither text nor a number"),
        ],
    )
    def test_everything_else_is_refused_by_name(self, frame, term, piece):
        for formula in (f"y ~ a + {term}", f"{term} ~ a"):
            if formula.startswith(("C(", "bs(", "poly(")):
                continue  # kinds of features are none of targets
            with watched(), pytest.raises(ValueError, match=piece):
                fit(formula, frame)

    def test_the_refusal_says_what_is_allowed(self, frame):
        with pytest.raises(ValueError, match=r"comparisons.*functions .*clip.*log1p"):
            fit("y ~ nosuch(a)", frame)

    @pytest.mark.parametrize("name", ["np", "log", "eval", "__import__('os')", "a + b"])
    def test_names_of_columns_are_data(self, frame, name):
        odd = pd.DataFrame({name: frame["b"], "a": frame["a"], "y": frame["y"]})
        for formula in ("y ~ .", f"y ~ `{name}` + a", f"`{name}` ~ a + y"):
            with watched():
                fit(formula, odd).predict(odd)
        with watched():
            est = fit(f"y ~ a + log(`{name}`)", odd)
        assert np.array_equal(
            est.coef_, fit("y ~ a + log(b)", frame).coef_
        )  # nothing else was read


class TestNothingIsWithoutEnd:
    @pytest.mark.parametrize(
        ("formula", "size"),
        [
            ("y ~ (a + b)**30", r"'a:b' among 2\*\*30 products"),
            ("y ~ (a + b + c)^30", r"'a:b' among 3\*\*30 products"),
            ("y ~ ((a + b)**30)**30", r"2\*\*30 products"),
            ("y ~ (.)**99999999", r"5\*\*99999999 products"),
            ("y ~ (a + b)**" + "9" * 9000, "products"),
            ("y ~ " + "(" * 21 + "a" + ")" * 21, "nested more than 20 deep"),
            ("y ~ " + "(" * 90_000, "nested more than 20 deep"),
            ("y ~ I(" + "-" * 900 + "a)", "nested more than 100 deep"),
            ("y ~ I(a" + "**a" * 300 + ")", "nested more than 100 deep"),
            ("y ~ I(a" + " + a" * 300 + ")", "expression of 1,204 characters"),
            ("y ~ a" + " + a" * 30_000, "has 120,005 characters, at most 100,000"),
            ("y ~ ." + "-." * 40_000, "more than 100,000 terms"),
            ("y ~ " + "'\\" * 40_000, "' is not closed"),
            ("y ~ I(a ** 10 ** 10 ** 10)", "it is inf at row .* from a = "),
            ("y ~ I(a * " + "9" * 500 + ")", "int too large"),
            ("y ~ I(a * " + "9" * 5000 + ")", "characters"),
        ],
    )
    def test_the_size_is_refused_at_once(self, frame, formula, size):
        start = time.process_time()
        with watched(), pytest.raises(ValueError, match=size) as refusal:
            fit(formula, frame)
        assert time.process_time() - start < 1
        assert len(str(refusal.value)) < 1500

    def test_wide_tables_are_read_in_linear_time(self):
        rng = np.random.default_rng(0)
        names = [f"feature{j}" for j in range(5000)]
        wide = pd.DataFrame(rng.normal(size=(4, 5000)), columns=names)
        wide["y"] = 1.0
        with watched():
            recipe = read_formula("y ~ " + " + ".join(names), wide, {})
            assert recipe.apply(wide).columns.tolist() == names


class TestRows:
    def test_a_value_that_cannot_be_computed_is_named(self, frame):
        wrong = frame.assign(b=frame["b"].where(frame.index != 7, -2.0))
        for missing in ("error", "indicator"):
            with pytest.raises(ValueError, match=r"'log\(b\)': it is nan at row 7.*-2"):
                fit("y ~ log(b)", wrong, missing=missing)

    def test_missing_values_stay_missing(self, frame):
        gaps = frame.assign(
            b=frame["b"].where(frame.index != 7),
            sex=frame["sex"].where(frame.index > 2),
        )
        for term in ("I(b > 1)", "I(b ** 0)", "I(~(b > 1))", "I(sex == 'm')"):
            with pytest.raises(ValueError, match="missing value|NaN"):
                fit(f"y ~ a + {term}", gaps)
            est = fit(f"y ~ a + {term}", gaps, missing="indicator")
            assert np.isfinite(est.predict(gaps.iloc[[7, 0]])).all()


@dataclass(frozen=True)
class Written:
    """An expression as a formula has it, and the same for Python's `eval`."""

    formula: str
    python: str


def write(formula, python=None):
    """A function that puts expressions into templates of both kinds."""

    def put(*inner):
        return Written(
            formula.format(*(each.formula for each in inner)),
            (python or formula).format(*(each.python for each in inner)),
        )

    return put


CALLS = ["log({})", "np.log1p({})", "exp({})", "np.sqrt({})", "abs({})", "sign({})"]
SIGNS = ["+", "-", "*", "/", "**", "%", "//"]
COMPARISONS = ["<", ">=", "==", "!="]
numbers = st.integers(0, 9) | st.floats(0.01, 100).map(lambda value: round(value, 3))
leaves = (
    st.sampled_from([Written(name, name) for name in "abc"])
    | st.just(Written("`my column`", "mine"))
    | numbers.map(lambda value: Written(str(value), f"np.float64({value})"))
)


def grow(inner):
    """Expressions one step larger than those of a strategy."""
    steps = [(write(call), 1) for call in [*CALLS, "I({})", "(-{})"]]
    steps += [(write(f"({{}} {sign} {{}})"), 2) for sign in SIGNS]
    steps += [
        (write(f"({{}} {sign} {{}})", f"(1.0 * ({{}} {sign} {{}}))"), 2)
        for sign in COMPARISONS
    ]
    steps += [(write("minimum({}, {})"), 2), (write("np.clip({}, 0, {})"), 2)]
    steps += [(write("np.where({} > 1, {}, {})"), 3)]
    return st.sampled_from(steps).flatmap(
        lambda step: st.tuples(*[inner] * step[1]).map(lambda each: step[0](*each))
    )


honest = st.recursive(leaves, grow, max_leaves=8)

TERMS = st.sampled_from(
    ["a", "b", "c", ".", "sex", "C(sex)", "C(sex, Treatment('m'))", "bs(c)", "s(a)"]
    + ["poly(b, 2)", "I(sex == 'm')", "`my column`", "1", "0", "(a + b)", "{a + b}"]
)
ACTIONS = [
    "__import__('os').system('touch x')",
    "().__class__.__mro__[1]",
    "(lambda: 0)()",
    "b.tofile('x')",
    "a[0]",
    "f'{a}'",
    "[x for x in a]",
    "print(a)",
    "np.load('x')",
    "(a if b else c)",
    "(a, b)",
    "(x := a)",
    "(yield)",
    "sex",
    "'m'",
    "a.real",
    "1j",
    "1e999",
    "9" * 400,
    "log(a, b)",
    "clip(*a)",
    "nosuch(a)",
    "bs(a)",
]
DAMAGE = st.sampled_from(
    ["`", "``", "'", '"', "\\", "\0", "\ud800", "#", "\n", "~", "|", ":", "**30", "^9"]
    + [
        "%in%",
        "(",
        ")",
        "()",
        "[",
        "]",
        "{",
        "}",
        "not ",
        "await ",
        ":=",
        "*",
        "=",
        ",",
    ]
    + ["...", "0x", "é", "ａ", "𝒂", "-", "+", "a", "C(", "bs(", "Treatment(", "Q('a')"]
)
acting = st.builds(
    write("({} + {})"),
    honest,
    st.sampled_from(ACTIONS).map(lambda text: Written(text, text)),
)


@st.composite
def formulas(draw):
    """A formula, whole or damaged in a few places, with or without an action."""
    computed = (honest | acting).map(lambda written: f"I({written.formula})")
    terms = draw(st.lists(TERMS | computed, min_size=1, max_size=4))
    signs = draw(st.lists(st.sampled_from("+++++-*:"), min_size=3))
    left = st.sampled_from(["y ~ "] * 6 + ["log(b) ~ ", "log(y) ~ ", "~", ""])
    text = draw(left) + terms[0]
    text += "".join(f" {s} {t}" for s, t in zip(signs, terms[1:], strict=False))
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 4]))):
        at = draw(st.integers(0, len(text)))
        end = at + draw(st.sampled_from([0, 0, 1, 5]))
        times = draw(st.sampled_from([1, 1, 1, 2, 30, 5000]))
        new = draw(DAMAGE | st.text(max_size=3) | st.just(text[at:end])) * times
        text = text[:at] + new + text[end:]
    return text


def check_honest(frame, written):
    """An expression has the values that Python gives it, or is refused for them."""
    scope = {name: getattr(np, name) for name in ("log", "exp", "sign", "minimum")}
    scope |= {name: frame[name].to_numpy() for name in "abc"}
    scope |= {"np": np, "I": lambda x: x, "mine": frame["my column"].to_numpy()}
    with np.errstate(all="ignore"):
        expected = np.multiply(1.0, eval(written.python, scope))
    formula = f"y ~ I({written.formula})"
    if expected.ndim == 0 or not np.isfinite(expected).all():
        with (
            watched(),
            pytest.raises(ValueError, match="no column|it is (-?inf|nan)"),
        ):
            read_formula(formula, frame, {}).apply(frame)
        return "refused"
    with watched():
        values = read_formula(formula, frame, {}).apply(frame)
    assert np.array_equal(values.to_numpy()[:, 0], expected)
    return "computed"


def check_any(frame, check_refusal, formula, is_polars, is_fitted):
    """A formula works or is refused in words, quickly, and nothing in it runs."""
    data = pl.from_pandas(frame) if is_polars else frame
    refusal = None
    with watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if is_fitted:
                fit(formula, data).predict(data)
            else:
                recipe = read_formula(formula, data, {})
                recipe.target_of(data)
                assert len(recipe.apply(data)) == N_ROWS
        except Exception as error:
            refusal = error
    if refusal is not None:
        check_refusal(refusal)
        return "refused"
    return "fitted" if is_fitted else "computed"


RARELY = st.sampled_from([True, False, False, False, False])
FORMULAS = {"formula": formulas(), "is_polars": st.booleans(), "is_fitted": RARELY}


class TestRandomFormulas:
    @pytest.fixture
    def check_expression(self, frame):
        return partial(check_honest, frame)

    @pytest.fixture
    def check_formula(self, frame, check_refusal):
        return partial(check_any, frame, check_refusal)

    def test_expressions_are_those_of_python(self, run_few, check_expression):
        run_few(check_expression, 80, written=honest)

    def test_work_or_are_refused_in_words(self, run_few, check_formula):
        run_few(check_formula, 60, **FORMULAS)

    @pytest.mark.slow
    def test_many_expressions_are_those_of_python(self, run_many, check_expression):
        run_many("expressions", check_expression, 2000, written=honest)

    @pytest.mark.slow
    def test_many_work_or_are_refused_in_words(self, run_many, check_formula):
        run_many("formulas", check_formula, 2000, **FORMULAS)
